//! What the publisher knows: each domain's entries, the host's own accounts, and what the last
//! merge made of them. Decides whether it is time to publish; does no input or output.

use super::admit::{Locals, Refusal, Rules};
use super::build::build;
use super::merge::{Claims, Merged, Source, merge};
use super::model::{Domain, Entry, Refused, record_number};
use crate::role::{DomainRules, Publisher};
use roster_bus::interfaces::{DomainCounts, Kind, Rejected, Shown};
use roster_config::{Host, Mode};
use roster_snapshot_build::{Image, TooLarge};
use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names that one change tells one by one; of more it says that anything may have changed.
const NAMES_TOLD_MAX: usize = 100;

/// One domain.
pub struct DomainState {
    /// Its name.
    pub name: String,
    /// Whether its back-end has everything that the directory has.
    pub mode: Mode,
    pub(super) rules: Rules,
    pub(super) entries: Domain,
    /// Whether an image was current since this process began.
    current: bool,
    refused: Vec<(u32, Refusal)>,
    counts: DomainCounts,
}

/// Everything.
pub struct State {
    pub(super) domains: Vec<DomainState>,
    pub(super) locals: Option<Locals>,
    pub(super) claims: Claims,
    min_id: u32,
    /// The socket to ask about domains that are not mirrored.
    responder: Option<Vec<u8>>,
    /// Domains with entries in the snapshot that is in place.
    pub served: BTreeSet<String>,
    /// What changed since the merge that is being published began: domain and number, or a whole
    /// domain. The claims of that merge know nothing of it.
    since_made: Vec<(usize, Option<u32>)>,
}

/// What a merge came to, to be put in place of the last one when the image is published.
pub struct Made {
    /// The snapshot to be.
    pub image: Image,
    /// Domains with entries in it.
    pub served: BTreeSet<String>,
    claims: Claims,
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
    /// if there are any.
    #[must_use]
    pub fn new(config: &Publisher, responder: &Path, served: BTreeSet<String>) -> Self {
        let asked = config.domains.iter().any(|domain| domain.mode == Mode::OnDemand);
        let domains = config.domains.iter().map(|rules| DomainState::new(rules, &config.host));
        Self {
            domains: domains.collect(),
            min_id: config.host.min_id,
            responder: asked.then(|| responder.as_os_str().as_bytes().to_owned()),
            locals: None,
            claims: Claims::default(),
            served,
            since_made: Vec::new(),
        }
    }

    /// The host's own accounts, as they are now. Whether they changed.
    pub fn set_locals(&mut self, locals: Locals) -> bool {
        let changed = self.locals.as_ref() != Some(&locals);
        self.locals = Some(locals);
        changed
    }

    /// Where to go on with the domain's changes: epoch and last change.
    #[must_use]
    pub fn position(&self, domain: usize) -> (u64, u64) {
        let entries = &self.domains[domain].entries;
        (entries.epoch, entries.sequence)
    }

    /// Takes in what a back-end handed over. Of a directory that is mirrored only what is whole
    /// takes the place of what is here, for a back-end that lost its cache starts from nothing; and
    /// only what is current, for one that was killed starts from a cache that may be a moment behind.
    pub fn apply(&mut self, domain: usize, image: &[u8]) -> Result<Taken, Refused> {
        let position = domain;
        let domain = &mut self.domains[position];
        let (header, records) = roster_bus::exchange::Header::parse(image)?;
        let complete = header.flags & roster_bus::exchange::COMPLETE != 0;
        let current = header.flags & roster_bus::exchange::CURRENT != 0;
        let goes_back = domain.entries.present && header.epoch != domain.entries.epoch && !current;
        if domain.mode == Mode::Replicate && !complete {
            return Ok(Taken::NotYet("the back-end does not have everything yet"));
        }
        if domain.mode == Mode::Replicate && goes_back {
            return Ok(Taken::NotYet("the back-end has not heard from its directory yet"));
        }
        let mut forget = Forget::default();
        if header.since == 0 || header.records as usize > NAMES_TOLD_MAX {
            forget.all = true;
        } else {
            records.clone().flatten().for_each(|record| domain.note(&record, &mut forget));
        }
        if header.since == 0 {
            domain.entries.apply(image)?;
            self.since_made.push((position, None));
        } else {
            let numbers: Vec<u32> =
                records.flatten().map(|record| record_number(&record)).collect();
            self.change(position, &numbers, |entries| entries.apply(image))?;
        }
        let domain = &mut self.domains[position];
        domain.entries.complete = domain.mode == Mode::Replicate;
        let caught_up = current && !std::mem::replace(&mut domain.current, current);
        let new = header.since == 0 || header.records > 0 || caught_up;
        Ok(if new { Taken::Changes(forget) } else { Taken::NothingNew })
    }

    /// Why it is too early to publish: a domain that is in the present snapshot, and whose back-end
    /// has not said yet what it has, would vanish. One that may be a moment behind would go back;
    /// that is waited for only as long as there is `patience`, for its directory may be away.
    #[must_use]
    pub fn waits_for(&self, patience: bool) -> Option<String> {
        if self.locals.is_none() {
            return Some("the host's own accounts".into());
        }
        let missing = |domain: &&DomainState| {
            let behind = patience && domain.mode == Mode::Replicate && !domain.current;
            (!domain.entries.present || behind) && self.served.contains(&domain.name)
        };
        self.domains.iter().find(missing).map(|domain| format!("domain {}", domain.name))
    }

    /// Whether any domain has handed anything over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.domains.iter().all(|domain| !domain.entries.present)
    }

    /// Changes entries, and has their claims be what they are afterwards. An entry that is refused has
    /// none, and is not found.
    pub(super) fn change<T>(
        &mut self,
        position: usize,
        numbers: &[u32],
        change: impl FnOnce(&mut Domain) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let entries = &mut self.domains[position].entries;
        for &number in numbers {
            if let Some(entry) = entries.entry(number) {
                self.claims.release((position, number), entry);
            }
        }
        let changed = change(entries);
        self.since_made.extend(numbers.iter().map(|&number| (position, Some(number))));
        self.claim(position, numbers.iter().copied());
        changed
    }

    /// Puts down the claims of entries; groups go first, as in a merge.
    fn claim(&mut self, position: usize, numbers: impl Iterator<Item = u32> + Clone) {
        let Self { domains, claims, locals: Some(locals), .. } = self else { return };
        let DomainState { entries, rules, .. } = &domains[position];
        let each = |number| Some((number, entries.entry(number)?));
        for (number, entry) in numbers.clone().filter_map(each) {
            if let Entry::Group(group) = entry {
                let _ = claims.group(position, number, group, rules, locals);
            }
        }
        for (number, entry) in numbers.filter_map(each) {
            if let Entry::User(user) = entry {
                let _ = claims.user(position, number, user, rules, locals);
            }
        }
    }

    /// A merge is about to begin.
    pub fn begin(&mut self) {
        self.since_made.clear();
    }

    /// Merges and builds. Takes time in proportion to all memberships.
    pub fn make(&self) -> Result<Made, TooLarge> {
        let none = Locals::default();
        let locals = self.locals.as_ref().unwrap_or(&none);
        let sources: Vec<_> = self.domains.iter().map(DomainState::source).collect();
        let merged = merge(&sources, locals);
        let entries: Vec<_> = sources.iter().map(|source| source.domain).collect();
        let image = build(&entries, &merged, self.min_id, self.responder.as_deref())?;
        let counts = self.counts(&merged);
        let present = self.domains.iter().filter(|domain| domain.entries.present);
        let served = present.map(|domain| domain.name.clone()).collect();
        let Merged { claims, refused, .. } = merged;
        Ok(Made { image, served, claims, refused, counts })
    }

    /// What was made is in place.
    pub fn published(&mut self, made: Made) {
        self.claims = made.claims;
        self.served = made.served;
        for (position, number) in std::mem::take(&mut self.since_made) {
            match number {
                Some(number) => self.claim(position, std::iter::once(number)),
                None => {
                    let entries = &self.domains[position].entries;
                    let numbers: Vec<u32> = entries
                        .groups()
                        .map(|(number, _)| number)
                        .chain(entries.users().map(|(number, _)| number))
                        .collect();
                    self.claim(position, numbers.into_iter());
                }
            }
        }
        let results = made.refused.into_iter().zip(made.counts);
        for (domain, (refused, counts)) in self.domains.iter_mut().zip(results) {
            (domain.refused, domain.counts) = (refused, counts);
        }
    }

    fn counts(&self, merged: &Merged<'_>) -> Vec<DomainCounts> {
        let mut counts: Vec<_> = self.domains.iter().map(DomainState::no_counts).collect();
        merged.users.iter().for_each(|user| counts[user.domain].users += 1);
        merged.groups.iter().for_each(|group| counts[group.domain].groups += 1);
        for (counts, refused) in counts.iter_mut().zip(&merged.refused) {
            let mut reasons: HashMap<Refusal, u64> = HashMap::new();
            refused.iter().for_each(|(_, refusal)| *reasons.entry(*refusal).or_default() += 1);
            counts.refused =
                reasons.into_iter().map(|(reason, count)| (reason.to_string(), count)).collect();
            counts.refused.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        }
        counts
    }

    /// What became of each domain's entries.
    #[must_use]
    pub fn domain_counts(&self) -> Vec<DomainCounts> {
        self.domains
            .iter()
            .map(|domain| DomainCounts { present: domain.entries.present, ..domain.counts.clone() })
            .collect()
    }

    /// Entries of a domain that are not served. `None` when there is no such domain.
    #[must_use]
    pub fn rejected(&self, domain: &str, from: u32, at_most: u32) -> Option<Vec<Rejected>> {
        let domain = self.domains.iter().find(|known| known.name == domain)?;
        let refused = domain.refused.iter().skip(from as usize).take(at_most as usize);
        Some(refused.filter_map(|(number, refusal)| domain.rejected(*number, refusal)).collect())
    }

    /// Every entry of that name in any domain; of users when `kind` is one for users.
    #[must_use]
    pub fn show(&self, kind: Kind, name: &[u8]) -> Vec<Shown> {
        let positions = 0..self.domains.len();
        positions.flat_map(|position| self.show_in(position, kind, name)).collect()
    }

    fn show_in(&self, position: usize, kind: Kind, name: &[u8]) -> Vec<Shown> {
        let domain = &self.domains[position];
        let refused = |number: u32| {
            let found = domain.refused.iter().find(|(refused, _)| *refused == number);
            found.map(|(_, refusal)| refusal.to_string()).unwrap_or_default()
        };
        let shown = |number, id| Shown {
            domain: domain.name.clone(),
            name: printable(name),
            id,
            refused: refused(number),
            ..Shown::default()
        };
        match kind {
            Kind::UserByName | Kind::UserByUid | Kind::GroupsOf => {
                let users = domain.entries.users().filter(|(_, user)| user.name() == name);
                users
                    .map(|(number, user)| Shown {
                        gid: user.gid,
                        details: [user.gecos(), user.dir(), user.shell()].map(printable).into(),
                        related: domain.groups_of(user),
                        ..shown(number, user.uid)
                    })
                    .collect()
            }
            Kind::GroupByName | Kind::GroupByGid => {
                let groups = domain.entries.groups().filter(|(_, group)| *group.name == *name);
                groups
                    .map(|(number, group)| Shown {
                        related: domain.named(group.members.as_deref().unwrap_or_default()),
                        ..shown(number, group.gid)
                    })
                    .collect()
            }
        }
    }
}

impl DomainState {
    fn new(rules: &DomainRules, host: &Host) -> Self {
        let allowed_local_gids = host.allowed_local_gids.clone();
        let DomainRules { name, mode, min_id, max_id, .. } = rules.clone();
        let counts = DomainCounts { domain: name.clone(), ..DomainCounts::default() };
        let rules = Rules { min_id, max_id, allowed_local_gids };
        let entries = Domain::new(mode == Mode::Replicate);
        Self { name, mode, rules, entries, current: false, refused: Vec::new(), counts }
    }

    fn source(&self) -> Source<'_> {
        Source { domain: &self.entries, rules: &self.rules }
    }

    fn no_counts(&self) -> DomainCounts {
        DomainCounts { domain: self.name.clone(), ..DomainCounts::default() }
    }

    /// Puts down whose memory a record makes untrue: under the old name and the new one.
    pub(super) fn note(&self, record: &roster_bus::exchange::Record<'_>, forget: &mut Forget) {
        use roster_bus::exchange::Record;
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

    fn rejected(&self, number: u32, refusal: &Refusal) -> Option<Rejected> {
        let (kind, name) = match self.entries.entry(number)? {
            Entry::User(user) => ("user", user.name()),
            Entry::Group(group) => ("group", &*group.name),
        };
        let name = printable(name);
        Some(Rejected { kind: kind.into(), name, reason: refusal.to_string() })
    }

    /// Names behind references; of users, and of groups in parentheses.
    fn named(&self, references: &[u32]) -> Vec<String> {
        let wanted: std::collections::HashSet<_> = references.iter().copied().collect();
        let users = self.entries.users().filter(|(_, user)| wanted.contains(&user.reference));
        let groups = self.entries.groups().filter(|(_, group)| wanted.contains(&group.reference));
        let users = users.map(|(_, user)| printable(user.name()));
        let groups = groups.map(|(_, group)| format!("({})", printable(&group.name)));
        users.chain(groups).collect()
    }

    /// Names of the groups that list the user, or that the directory named when it was asked.
    fn groups_of(&self, user: &super::model::User) -> Vec<String> {
        let lists = |group: &super::model::Group| {
            group.members.iter().flatten().any(|&member| member == user.reference)
        };
        let asked = |number: u32| user.groups.iter().flatten().any(|&group| group == number);
        let groups = self.entries.groups();
        let groups = groups.filter(|(number, group)| asked(*number) || lists(group));
        groups.map(|(_, group)| printable(&group.name)).collect()
    }
}

/// Any bytes as text that can be printed and sent: a NUL does not go over the bus, and an escape
/// sequence not onto a terminal.
fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| text.extend(byte.escape_ascii().map(char::from)));
    }
    text
}
