//! What the publisher knows: each domain's entries, the host's own accounts, and what the last
//! merge made of them. Decides whether it is time to publish; does no input or output.

use super::build::build;
use super::kept::{Displaced, Kept, Unusable, user_at};
use super::learnt::Learnt;
use super::merge::{Claims, Merged, Source, merge};
use super::model::{Domain, Entry, Image, Refused, Untold, record_number};
use super::places::Places;
use super::report;
use super::restored::{Behind, Restored, Restoring};
use super::served::{Counts, Served};
use crate::backend::deletion::{Guard, Verdict};
use crate::role::{DomainRules, Publisher};
use roster_admission::{Locals, Refusal, Rules};
use roster_bus::exchange::{COMPLETE, CURRENT, NO_REFERENCE, REMOVALS_JUDGED, Record};
use roster_bus::interfaces::DomainCounts;
use roster_config::{Host, Mode};
use roster_snapshot::Snapshot;
use roster_snapshot_build::{self as snapshot, TooLarge};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Names that one change tells one by one; of more it says that anything may have changed.
const NAMES_TOLD_MAX: usize = 100;
/// How long a confirmation holds: until the back-end has handed its entries over once more, which may
/// have been started again meanwhile.
const CONFIRMED_FOR: Duration = Duration::from_secs(600);

/// Why nothing is taken in while removals wait for a confirmation.
pub(super) const HELD: &str = "more entries would go at once than go without a confirmation";

/// One domain.
pub struct DomainState {
    /// Its name.
    pub name: String,
    /// Whether its back-end has everything that the directory has.
    pub mode: Mode,
    pub(super) rules: Rules,
    pub(super) entries: Domain,
    /// Of what is in there, what was not fetched yet.
    pub(super) learnt: Learnt,
    pub(super) refused: Vec<(u32, Refusal)>,
    mass_deletion: f64,
    /// Whether an image was current since this process began.
    current: bool,
    /// Whether it is waited for until one is, where a snapshot in place may be newer.
    patience: bool,
    /// Removals that wait for a confirmation.
    held: Option<u64>,
    /// Until when as many removals may happen, because somebody confirmed them.
    confirmed: Option<(Instant, u64)>,
    /// Why nothing of it is taken in any more; empty while it is.
    not_taken: String,
    /// Who was served behind it, while its entries are what it had and nothing of it can be taken in.
    behind: Option<Arc<Behind>>,
    counts: DomainCounts,
}

/// Everything.
pub struct State {
    pub(super) domains: Vec<DomainState>,
    pub(super) locals: Option<Arc<Locals>>,
    /// Who has which name and id, of all entries as they are at this moment. Put down only where some
    /// domain is asked on demand, for questions are answered by it.
    pub(super) claims: Claims,
    /// How often anything changed that claims or lists go by.
    pub(super) changes: u64,
    min_id: u32,
    /// The socket to ask about domains that are not mirrored.
    responder: Option<Vec<u8>>,
    /// What the snapshot in place has of each domain.
    pub served: Served,
    /// The snapshot that was in place when this process began, until there is another.
    previous: Option<Previous>,
    /// Another program wrote the snapshot in place: it is replaced as soon as the domains are there, and no
    /// later than the patience with them is over.
    is_foreign: bool,
}

struct Previous {
    bytes: Arc<Vec<u8>>,
    /// What lies where in it, if that is known.
    places: Option<Places>,
    /// The accounts that it was last looked at with, and what the file has been without since.
    looked_at: Option<Arc<Locals>>,
    displaced: Displaced,
    /// Why nothing can be displaced in it; empty while it can.
    unusable: String,
}

/// What a snapshot is made of: the state at one moment. Entries are shared with the state, which goes on
/// changing meanwhile.
pub struct Basis {
    domains: Vec<Part>,
    locals: Arc<Locals>,
    min_id: u32,
    responder: Option<Vec<u8>>,
}

/// One domain of it.
struct Part {
    name: String,
    entries: Domain,
    rules: Rules,
    /// Who may be served of these, if not everybody.
    only: Option<Arc<Behind>>,
}

/// What a merge came to.
pub struct Made {
    /// The snapshot to be.
    pub image: snapshot::Image,
    /// What it has of each domain.
    pub served: Served,
    refused: Vec<Vec<(u32, Refusal)>>,
    counts: Vec<DomainCounts>,
}

/// What came of an image.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// It stays outside for now, for this reason.
    NotYet(&'static str),
    /// There is nothing in it that a snapshot would show.
    NothingNew,
    /// A new snapshot should show it.
    Changes(Forget),
}

/// What others may have remembered and should forget.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Forget {
    /// Everything.
    pub all: bool,
    /// These users.
    pub users: Vec<Vec<u8>>,
    /// These groups.
    pub groups: Vec<Vec<u8>>,
}

impl State {
    /// Nothing known yet. `responder` is the socket to ask about domains that are not mirrored,
    /// if there are any; `served` and `previous` are what is known of the snapshot in place.
    #[must_use]
    pub fn new(
        config: &Publisher,
        responder: &Path,
        served: Served,
        previous: Option<Vec<u8>>,
    ) -> Self {
        let asked = config.domains.iter().any(|domain| domain.mode == Mode::OnDemand);
        let domains = config.domains.iter().map(|rules| DomainState::new(rules, &config.host));
        Self {
            domains: domains.collect(),
            min_id: config.host.min_id,
            responder: asked.then(|| responder.as_os_str().as_bytes().to_owned()),
            locals: None,
            claims: Claims::default(),
            changes: 0,
            served,
            previous: previous.map(Previous::new),
            is_foreign: false,
        }
    }

    /// Another program wrote the snapshot in place, and nothing in it counts as served.
    pub fn set_foreign(&mut self) {
        self.is_foreign = true;
    }

    /// What lies where in the snapshot in place, which may not be known.
    pub fn set_places(&mut self, places: Option<Places>) {
        if let Some(previous) = &mut self.previous {
            previous.places = places;
        }
    }

    /// The host's own accounts, as they are now. Whether they changed.
    pub fn set_locals(&mut self, locals: Locals) -> bool {
        if self.locals.as_deref() == Some(&locals) {
            return false;
        }
        self.locals = Some(Arc::new(locals));
        self.changes += 1;
        self.claims = Claims::default();
        for position in 0..self.domains.len() {
            self.claim_all_of(position);
        }
        true
    }

    /// Where to go on with the domain's changes: epoch and last change.
    #[must_use]
    pub fn position(&self, domain: usize) -> (u64, u64) {
        let entries = &self.domains[domain].entries;
        (entries.epoch, entries.sequence)
    }

    /// Puts down why what a domain's back-end hands over is not taken; whether that is news.
    pub fn set_not_taken(&mut self, position: usize, why: &str) -> bool {
        let not_taken = &mut self.domains[position].not_taken;
        let is_news = not_taken != why;
        *not_taken = why.to_owned();
        is_news
    }

    /// Takes in what a back-end handed over. Of a directory that is mirrored only what is whole
    /// takes the place of what is here, for a back-end that lost its cache starts from nothing; only
    /// what is current, for one that was killed starts from a cache that may be a moment behind; and
    /// only what does not remove more at once than is allowed, for a back-end that starts from nothing
    /// cannot tell.
    pub fn apply(&mut self, position: usize, image: Image<'_>) -> Result<Taken, Refused> {
        let header = *image.header();
        let domain = &self.domains[position];
        let complete = header.flags & COMPLETE != 0;
        let current = header.flags & CURRENT != 0;
        let is_another = header.epoch != domain.entries.epoch;
        if domain.mode == Mode::Replicate && !complete {
            return Ok(Taken::NotYet("the back-end does not have everything yet"));
        }
        let has_entries = domain.entries.present;
        if domain.mode == Mode::Replicate && has_entries && is_another && !current {
            return Ok(Taken::NotYet("the back-end has not heard from its directory yet"));
        }
        let mut forget = Forget::default();
        match image {
            Image::Full(_, mut entries) => {
                if domain.mode == Mode::Replicate && is_another {
                    let is_judged = header.flags & REMOVALS_JUDGED != 0;
                    let held = self.hold(position, &entries, is_judged);
                    self.domains[position].held = held;
                    if held.is_some() {
                        return Ok(Taken::NotYet(HELD));
                    }
                    self.domains[position].confirmed = None;
                }
                forget.all = true;
                self.domains[position].learnt.lay_over(&mut entries);
                self.replace(position, entries);
            }
            Image::Changes(header, records) => {
                forget = domain.forget(records.clone().flatten(), Untold::Unknown);
                let mut learnt = std::mem::take(&mut self.domains[position].learnt);
                let all = records.clone().chain(learnt.records_after(header.sequence));
                let numbers: Vec<u32> =
                    all.flatten().map(|record| record_number(&record)).collect();
                let applied = self.change(position, &numbers, |entries| {
                    entries.apply(&header, records)?;
                    learnt.lay_over(entries);
                    Ok(())
                });
                self.domains[position].learnt = learnt;
                applied?;
            }
        }
        let domain = &mut self.domains[position];
        domain.entries.complete = domain.mode == Mode::Replicate;
        let caught_up = current && !std::mem::replace(&mut domain.current, current);
        let new = header.since == 0 || header.records > 0 || caught_up;
        Ok(if new { Taken::Changes(forget) } else { Taken::NothingNew })
    }

    /// How many entries would go from the snapshot in place if these were the domain's, if that is too
    /// many. One with another id is another's. Entries that a back-end lacks which began with nothing
    /// are missing: it does not know whether they were named as deleted.
    fn hold(&self, position: usize, entries: &Domain, is_judged: bool) -> Option<u64> {
        let domain = &self.domains[position];
        if self.is_foreign {
            return None;
        }
        let before = self.served.get(&domain.name)?;
        let previous = match self.previous.as_ref().map(|previous| Snapshot::open(&previous.bytes))
        {
            None => None,
            Some(Ok(snapshot)) => Some(snapshot),
            // Nobody can read it, so that nothing is served that could go.
            Some(Err(_)) => return None,
        };
        let known = if previous.is_none() { domain.last_served() } else { HashSet::new() };
        let is_served = |entry: Entry<'_>| match (&previous, entry) {
            (Some(snapshot), Entry::User(user)) => match snapshot.user_by_name(user.name()) {
                Ok(found) => found.is_some_and(|found| found.uid == user.uid),
                // What cannot be read now is no removal.
                Err(_) => true,
            },
            (Some(snapshot), Entry::Group(group)) => match snapshot.group_by_name(&group.name) {
                Ok(found) => found.is_some_and(|found| found.gid == group.gid),
                Err(_) => true,
            },
            (None, entry) => known.contains(&identity(entry)),
        };
        let mut kept = Counts::default();
        for (_, entry) in entries.entries().filter(|(_, entry)| is_served(*entry)) {
            match entry {
                Entry::User(_) => kept.users += 1,
                Entry::Group(_) => kept.groups += 1,
            }
        }
        let gone = [(before.users, kept.users), (before.groups, kept.groups)]
            .map(|(before, kept)| (before, before.saturating_sub(kept)));
        let removals = gone.iter().map(|(_, gone)| gone).sum();
        let now = Instant::now();
        if domain.confirmed.is_some_and(|(until, most)| now < until && removals <= most) {
            return None;
        }
        let too_many = |&(before, gone): &(u64, u64)| {
            let mut guard = match is_judged {
                true => Guard::named(domain.mass_deletion),
                false => Guard::missing(),
            };
            guard.judge(now, before, 0, gone) == Verdict::Hold
        };
        gone.iter().any(too_many).then_some(removals)
    }

    /// Lets the removals that wait happen, the next time that the back-end is asked what it has. Gives
    /// the domain's position and their number; `None` when there is no such domain.
    pub fn confirm(&mut self, domain: &str) -> Option<(usize, u64)> {
        let position = self.domains.iter().position(|known| known.name == domain)?;
        let domain = &mut self.domains[position];
        let held = domain.held.take().unwrap_or_default();
        if held > 0 {
            domain.confirmed = Some((Instant::now() + CONFIRMED_FOR, held));
        }
        Some((position, held))
    }

    /// Puts other entries in the place of all. Where questions are asked the next may come before the
    /// next snapshot, and who has which name and id is known at once.
    fn replace(&mut self, position: usize, entries: Domain) {
        self.changes += 1;
        self.domains[position].behind = None;
        let old = std::mem::replace(&mut self.domains[position].entries, entries);
        for (number, entry) in old.entries() {
            self.claims.remove((position, number), entry);
        }
        self.claim_all_of(position);
    }

    /// Whether any domain is asked on demand, so that claims answer questions.
    fn is_asked(&self) -> bool {
        self.responder.is_some()
    }

    /// What has to be before anything is published: a domain that is in the present snapshot, and whose
    /// back-end has not said yet what it has, would vanish, and so would those that come after it. One
    /// that may be a moment behind would go back; that is waited for only as long as there is patience, for
    /// its directory may be away.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        if self.locals.is_none() {
            return Some("the host's own accounts have been read".into());
        }
        let is_served = |domain: &DomainState| self.served.contains_key(&domain.name);
        let missing = |(position, domain): &(usize, &DomainState)| {
            let behind = domain.patience && domain.may_be_behind();
            if self.is_foreign {
                return domain.patience && (behind || !domain.entries.present);
            }
            (!domain.entries.present || behind) && is_served(domain)
                || domain.is_unread() && self.domains[*position..].iter().any(is_served)
        };
        let missing = self.domains.iter().enumerate().find(missing);
        missing.map(|(_, DomainState { name, held, .. })| match held {
            Some(_) => {
                format!("the removals of domain {name} are confirmed: roster domain confirm {name}")
            }
            None => format!("domain {name} can be read"),
        })
    }

    /// What a domain had in the snapshot in place, if nothing of it can be taken in and nothing of it is here.
    /// None where one is behind it now that was before: what is whose between them does not follow from there.
    #[must_use]
    pub fn restoring(&self, position: usize) -> Option<Restoring> {
        let domain = &self.domains[position];
        if domain.not_taken.is_empty() || domain.entries.present {
            return None;
        }
        let previous = self.previous.as_ref()?;
        let places = previous.places.as_ref()?;
        let (users, groups) = places.of(&domain.name)?;
        let complete = domain.mode == Mode::Replicate;
        let behind: Vec<_> = self.domains[position + 1..].iter().map(|one| &*one.name).collect();
        if complete && places.any_before(&domain.name, &behind) {
            return None;
        }
        Some(Restoring { bytes: Arc::clone(&previous.bytes), users, groups, complete })
    }

    /// The domain and the uid of a user whom the snapshot in place serves, of a domain at that position or
    /// behind it, while that position was not read: programs are told of that user.
    #[must_use]
    pub fn served_before(&self, position: usize, name: &[u8]) -> Option<(String, u32)> {
        let previous = self.previous.as_ref()?;
        let snapshot = Snapshot::open(&previous.bytes).ok()?;
        let user = user_at(0, NO_REFERENCE, &snapshot.user_by_name(name).ok()??);
        let domain = self.domains.get(position..)?.iter().find(|domain| {
            let places = previous.places.as_ref().and_then(|places| places.of(&domain.name));
            let mut of_domain = places.into_iter().flat_map(|(users, _)| users);
            of_domain.any(|position| match snapshot.user(position) {
                Ok(Some(user)) => user.record().name == name,
                Ok(None) | Err(_) => false,
            })
        })?;
        domain
            .rules
            .user(&user, self.locals.as_ref()?)
            .is_ok()
            .then(|| (domain.name.clone(), user.uid))
    }

    /// Goes on with what a domain had, unless it was taken in meanwhile.
    pub fn restored(&mut self, position: usize, restored: Restored) {
        if self.domains[position].entries.present {
            return;
        }
        self.replace(position, restored.domain);
        let domain = &mut self.domains[position];
        domain.behind = restored.behind.map(Arc::new);
        // No more can be known of it than that.
        domain.patience = false;
    }

    /// The last domain before that position which is as it was, and who was served behind it. Fewer were than
    /// behind any that goes before it.
    pub(super) fn restored_before(&self, position: usize) -> Option<(&str, &Arc<Behind>)> {
        let mut before = self.domains[..position].iter().rev();
        before.find_map(|domain| Some((&*domain.name, domain.behind.as_ref()?)))
    }

    /// The gid with which an entry of the domain at that position may be served, or the domain before it
    /// behind which nobody new is.
    pub(super) fn gid_of(&self, position: usize, entry: Entry<'_>) -> Result<u32, &str> {
        match self.restored_before(position) {
            Some((restored, behind)) => behind.gid_of(entry).ok_or(restored),
            None => Ok(entry.gid()),
        }
    }

    /// What goes on being served while something is waited for, when the host's own accounts may
    /// displace something else in it than they did, or when it `is_lost` and has to be written again.
    #[must_use]
    pub fn keep(&self, is_lost: bool) -> Option<Kept> {
        let (previous, locals) = (self.previous.as_ref()?, self.locals.as_ref()?);
        if !is_lost
            && previous.looked_at.as_ref().is_some_and(|looked_at| Arc::ptr_eq(looked_at, locals))
        {
            return None;
        }
        let places = previous.places.clone();
        let domains = match &places {
            Some(places) => places.domains.iter().map(|(name, _)| name.clone()).collect(),
            None => self.domains.iter().map(|domain| domain.name.clone()).collect(),
        };
        Some(Kept {
            bytes: Arc::clone(&previous.bytes),
            locals: Arc::clone(locals),
            rules: Rules::any_of(self.domains.iter().map(|domain| &domain.rules))?,
            min_id: self.min_id,
            domains,
            served: self.served.clone(),
            places,
            displaced: previous.displaced.clone(),
            is_lost,
        })
    }

    /// What is in place is as it should be under those accounts, or cannot be. What removals are
    /// measured by stays what it was: who is displaced has not gone from a directory, and is back when the
    /// local account goes.
    pub fn kept(&mut self, locals: Arc<Locals>, displaced: Result<Displaced, Unusable>) {
        let Some(previous) = &mut self.previous else { return };
        previous.looked_at = Some(locals);
        match displaced {
            Ok(displaced) => (previous.displaced, previous.unusable) = (displaced, String::new()),
            Err(error) => previous.unusable = error.to_string(),
        }
    }

    /// Why local accounts displace nothing in what is in place; empty when they do.
    #[must_use]
    pub fn unusable(&self) -> &str {
        self.previous.as_ref().map(|previous| &*previous.unusable).unwrap_or_default()
    }

    /// Whether a domain may have less than a snapshot in place, for its back-end has not heard from the
    /// directory since this process began.
    #[must_use]
    pub fn may_be_behind(&self, position: usize) -> bool {
        self.domains[position].may_be_behind()
    }

    /// From now on what the domain's back-end has is served even if it may be behind.
    pub fn lose_patience(&mut self, position: usize) {
        self.domains[position].patience = false;
    }

    /// Whether any domain has handed anything over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.domains.iter().all(|domain| !domain.entries.present)
    }

    /// Changes entries, and has their claims be what they are afterwards.
    pub(super) fn change<T>(
        &mut self,
        position: usize,
        numbers: &[u32],
        change: impl FnOnce(&mut Domain) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        self.changes += 1;
        let entries = &mut self.domains[position].entries;
        for &number in numbers {
            if let Some(entry) = entries.entry(number) {
                self.claims.remove((position, number), entry);
            }
        }
        let changed = change(entries);
        self.claim(position, numbers.iter().copied());
        changed
    }

    fn claim_all_of(&mut self, position: usize) {
        let numbers: Vec<_> =
            self.domains[position].entries.entries().map(|(number, _)| number).collect();
        self.claim(position, numbers.into_iter());
    }

    fn claim(&mut self, position: usize, numbers: impl Iterator<Item = u32>) {
        if !self.is_asked() {
            return;
        }
        let Self { domains, claims, locals: Some(locals), .. } = self else { return };
        let DomainState { entries, rules, .. } = &domains[position];
        for number in numbers {
            if let Some(entry) = entries.entry(number) {
                claims.add((position, number), entry, rules, locals);
            }
        }
    }

    /// What the next snapshot is made of. Behind a domain that was never read nothing is served: what
    /// is whose would be decided by who is away.
    pub fn begin(&self) -> Basis {
        let unread = self.unread();
        let domains = self.domains.iter().enumerate().map(|(position, domain)| {
            let entries = match unread {
                Some(unread) if unread < position => Domain::new(domain.entries.complete),
                _ => domain.entries.clone(),
            };
            let only = self.restored_before(position).map(|(_, behind)| Arc::clone(behind));
            Part { name: domain.name.clone(), entries, rules: domain.rules.clone(), only }
        });
        Basis {
            domains: domains.collect(),
            locals: self.locals.clone().unwrap_or_default(),
            min_id: self.min_id,
            responder: self.responder.clone(),
        }
    }

    pub(super) fn unread(&self) -> Option<usize> {
        self.domains.iter().position(DomainState::is_unread)
    }

    /// What was made is in place.
    pub fn published(&mut self, made: Made) {
        self.served = made.served;
        self.previous = None;
        self.is_foreign = false;
        // It is what is here that is in place now.
        self.domains.iter_mut().for_each(|domain| domain.patience = false);
        let results = made.refused.into_iter().zip(made.counts);
        for (domain, (refused, counts)) in self.domains.iter_mut().zip(results) {
            (domain.refused, domain.counts) = (refused, counts);
        }
    }

    /// What became of each domain's entries.
    #[must_use]
    pub fn domain_counts(&self) -> Vec<DomainCounts> {
        let unread = self.unread();
        let counts = self.domains.iter().enumerate().map(|(position, domain)| DomainCounts {
            present: domain.entries.present,
            held_removals: domain.held.unwrap_or_default(),
            not_taken: domain.not_taken.clone(),
            waits_for: unread
                .filter(|unread| *unread < position)
                .map(|unread| self.domains[unread].name.clone())
                .unwrap_or_default(),
            new_wait_for: self
                .restored_before(position)
                .map(|(restored, _)| restored.to_owned())
                .unwrap_or_default(),
            ..domain.counts.clone()
        });
        counts.collect()
    }
}

impl Basis {
    /// Merges and builds. Takes time in proportion to all memberships.
    pub fn make(&self) -> Result<Made, TooLarge> {
        let shown: Vec<Domain> = self.domains.iter().map(Part::shown).collect();
        let sources = shown.iter().zip(&self.domains);
        let sources: Vec<_> =
            sources.map(|(domain, Part { rules, .. })| Source { domain, rules }).collect();
        let mut merged = merge(&sources, &self.locals);
        let entries: Vec<_> = sources.iter().map(|source| source.domain).collect();
        let image = build(&entries, &mut merged, self.min_id, self.responder.as_deref())?;
        let names: Vec<_> = self.domains.iter().map(|part| part.name.as_str()).collect();
        let counts = report::counts(&names, &merged);
        let present = self.domains.iter().zip(&counts).filter(|(part, _)| part.entries.present);
        let served = present.map(|(Part { name, .. }, counts)| {
            (name.clone(), Counts { users: counts.users, groups: counts.groups })
        });
        let served = served.collect();
        let Merged { refused, .. } = merged;
        Ok(Made { image, served, refused, counts })
    }
}

impl Part {
    fn shown(&self) -> Domain {
        match &self.only {
            Some(behind) => self.entries.only(|entry| behind.gid_of(entry)),
            None => self.entries.clone(),
        }
    }
}

impl Previous {
    fn new(bytes: Vec<u8>) -> Self {
        let (looked_at, displaced) = Default::default();
        Self { bytes: Arc::new(bytes), places: None, looked_at, displaced, unusable: String::new() }
    }
}

impl DomainState {
    fn new(rules: &DomainRules, host: &Host) -> Self {
        let allowed_local_gids = host.allowed_local_gids.clone();
        let DomainRules { name, mode, min_id, max_id, mass_deletion, .. } = rules.clone();
        Self {
            counts: DomainCounts { domain: name.clone(), ..DomainCounts::default() },
            name,
            mode,
            rules: Rules {
                min_id,
                max_id,
                allowed_local_gids,
                exceptions: host.exceptions.clone(),
            },
            entries: Domain::new(mode == Mode::Replicate),
            learnt: Learnt::default(),
            refused: Vec::new(),
            mass_deletion,
            current: false,
            patience: true,
            held: None,
            confirmed: None,
            not_taken: String::new(),
            behind: None,
        }
    }

    fn may_be_behind(&self) -> bool {
        self.mode == Mode::Replicate && !self.current
    }

    /// Whether nobody can tell who is in it: it is mirrored, and was never read.
    fn is_unread(&self) -> bool {
        self.mode == Mode::Replicate && !self.entries.present
    }

    /// The entries that the last publication served.
    fn last_served(&self) -> HashSet<(bool, &[u8], u32)> {
        let refused: HashSet<u32> = self.refused.iter().map(|(number, _)| *number).collect();
        let served = self.entries.entries().filter(|(number, _)| !refused.contains(number));
        served.map(|(_, entry)| identity(entry)).collect()
    }

    /// Whose memory records make untrue: nobody's who is told as they are known, for what a look-up brought
    /// comes once more with the next changes.
    pub(super) fn forget<'a>(
        &self,
        records: impl Iterator<Item = Record<'a>> + Clone,
        untold: Untold,
    ) -> Forget {
        let mut forget = Forget::default();
        let news = records.filter(|record| self.entries.is_changed_by(record, untold));
        if news.clone().nth(NAMES_TOLD_MAX).is_some() {
            forget.all = true;
        } else {
            news.for_each(|record| self.note(&record, &mut forget));
        }
        forget
    }

    /// Puts down whose memory a record makes untrue: under the old name and the new one.
    fn note(&self, record: &Record<'_>, forget: &mut Forget) {
        let (number, new) = match record {
            Record::User(user) => (user.number, Some((true, user.name))),
            Record::Group(group) => (group.number, Some((false, group.name))),
            Record::Gone { number } | Record::GroupsOf { user: number, .. } => (*number, None),
        };
        let old = self.entries.entry(number).map(|entry| match entry {
            Entry::User(user) => (true, user.name()),
            Entry::Group(group) => (false, &*group.name),
        });
        for (is_user, name) in [old, new].into_iter().flatten() {
            let list = if is_user { &mut forget.users } else { &mut forget.groups };
            if !list.iter().any(|known| known == name) {
                list.push(name.to_owned());
            }
        }
    }
}

/// Who an entry is to programs: whether a user, name, id.
fn identity(entry: Entry<'_>) -> (bool, &[u8], u32) {
    match entry {
        Entry::User(user) => (true, user.name(), user.uid),
        Entry::Group(group) => (false, &group.name, group.gid),
    }
}
