// SPDX-License-Identifier: MIT OR Apache-2.0
//! The publisher's state: the entries of each domain, the host's own accounts, and the results of the last merge.
//! Decides when to publish. Does no input or output. `merge` compares the domains, and `snapshot_build` builds the
//! image.

use super::domain_model::{
    DomainImage, DomainModel, ImageRejection, MissingMembers, private_group_owner, record_number,
};
use super::entry_counts::{EntryCounts, ServedCounts};
use super::last_snapshot::LastSnapshot;
use super::local_overrides::DomainOverrides;
use super::lookup_overlay::LookupOverlay;
use super::merge::{DomainSource, MergedDomains, Ownership, merge};
use super::model_entry::ModelEntry;
use super::name_owners::NameScheme;
use super::printable::printable;
use super::published_counts::domain_counts;
use super::snapshot_build::build;
use crate::role_config::{DomainRules, PublisherRoleConfig};
use roster_admission::{AsGroup as _, DomainNames, Locals, Refusal, Rules};
use roster_bus::domain_image::{COMPLETE, CURRENT, REMOVALS_JUDGED, Record};
use roster_bus::interfaces::{PublishedDomain, ServedUser};
use roster_config::{DomainMode, PrivateGroups, WhenAway};
use roster_messages::{Message, table::daemon};
use roster_names::qualified_forms;
use roster_passwd_format::User;
use roster_provider::mass_deletion::{RemovalDecision, RemovalGuard};
use roster_snapshot::Snapshot;
use roster_snapshot_build::{self as snapshot, TooLarge};
use std::collections::{BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{Level, enabled};

/// Names that one change lists. With more names it invalidates everything.
const NAMES_LISTED_MAX: usize = 100;
/// Overrides without an entry that the status lists.
const UNUSED_OVERRIDES_MAX: usize = 20;
/// Lifetime of an approval of removals. It lasts until the backend, perhaps after a restart, has sent its entries
/// again.
const CONFIRMATION_LIFETIME: Duration = Duration::from_secs(600);

/// Reasons not to apply an image for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeferReason {
    /// The backend still reads its directory.
    #[error("the backend has not read all entries yet")]
    Incomplete,
    /// The backend has only its cache.
    #[error("the backend has not reached its directory yet")]
    DirectoryNotReached,
    /// Removals wait for an approval.
    #[error("the update removes more entries than mass_deletion_threshold allows")]
    RemovalsHeld,
}

impl DeferReason {
    /// Returns the code.
    pub fn message(self) -> &'static Message {
        match self {
            Self::Incomplete => &daemon::DOMAIN_INCOMPLETE,
            Self::DirectoryNotReached => &daemon::DOMAIN_NOT_REACHED,
            Self::RemovalsHeld => &daemon::REMOVALS_HELD,
        }
    }
}

/// One domain.
pub struct DomainState {
    /// The domain's name.
    pub name: String,
    /// Whether the backend mirrors the directory or queries it on demand.
    pub mode: DomainMode,
    /// The treatment of unknown names while no server of an on-demand domain replies.
    pub(super) when_away: WhenAway,
    pub(super) rules: Rules,
    /// Names of groups in access rules.
    rule_groups: BTreeSet<String>,
    pub(super) entries: DomainModel,
    /// Records in the model that no fetched state has yet.
    pub(super) overlay: LookupOverlay,
    pub(super) rejected: Vec<(u32, Refusal)>,
    /// Numbers of entries that the last publication served with their domain, because another domain has the name.
    pub(super) with_domain: HashSet<u32>,
    mass_deletion: f64,
    /// Whether an image was current since this process began.
    is_current: bool,
    /// Whether to wait for a current image, because the snapshot in place may be newer.
    is_awaited: bool,
    removals: RemovalApproval,
    errors: DomainErrors,
    counts: PublishedDomain,
}

/// Removals of a domain that need an approval.
#[derive(Default)]
struct RemovalApproval {
    /// Removals that wait for it.
    held: Option<u64>,
    /// Expiry of an approval, and the number of approved removals.
    confirmed: Option<(Instant, u64)>,
}

/// Faults of a domain that the status shows.
#[derive(Default)]
struct DomainErrors {
    /// The reason why updates are rejected. Empty while they are accepted.
    update: String,
    /// The reason why the file with overrides is rejected. Empty while it is accepted.
    overrides: String,
}

/// Everything.
pub struct PublisherState {
    pub(super) domains: Vec<DomainState>,
    pub(super) locals: Option<Arc<Locals>>,
    /// Owners of names and ids among all present entries. Filled only if a domain is on demand, because lookups read
    /// it.
    pub(super) ownership: Ownership,
    pub(super) scheme: Arc<NameScheme>,
    /// Counts the changes of owners and lists.
    pub(super) change_count: u64,
    min_id: u32,
    /// The socket for queries about on-demand domains.
    responder: Option<Vec<u8>>,
    /// Entries of each domain in the snapshot in place.
    pub served: ServedCounts,
    /// The snapshot that was in place when this process began, until the next publication.
    previous: Option<LastSnapshot>,
    /// Another program wrote the snapshot in place. It is replaced once all domains are present, or when the wait for
    /// them ends.
    is_foreign: bool,
}

/// Input of a snapshot: the state at one moment. It shares entries with the state, which continues to change.
pub struct SnapshotInput {
    domains: Vec<DomainInput>,
    scheme: Arc<NameScheme>,
    locals: Arc<Locals>,
    min_id: u32,
    responder: Option<Vec<u8>>,
}

/// One domain of the input.
struct DomainInput {
    name: String,
    entries: DomainModel,
    rules: Rules,
}

/// Results of a merge.
pub struct MergeResult {
    /// The new snapshot.
    pub image: snapshot::SnapshotImage,
    /// Entries of each domain in it.
    pub served: ServedCounts,
    rejected: Vec<Vec<(u32, Refusal)>>,
    with_domain: Vec<HashSet<u32>>,
    counts: Vec<PublishedDomain>,
}

/// The result of an image.
#[derive(Debug, PartialEq, Eq)]
pub enum ImageOutcome {
    /// The image is not applied for now, for this reason.
    Deferred(DeferReason),
    /// A snapshot would show no difference.
    Unchanged,
    /// A new snapshot is due.
    Changed(Invalidation),
}

/// Entries that other roles have to drop from their caches.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Invalidation {
    /// Everything.
    pub all: bool,
    /// Names of users.
    pub users: Vec<Vec<u8>>,
    /// Names of groups.
    pub groups: Vec<Vec<u8>>,
}

impl PublisherState {
    /// Makes a state without entries. `responder` is the socket for queries about on-demand domains, if there are any.
    /// `served` and `previous` describe the snapshot in place.
    #[must_use]
    pub fn new(
        config: &PublisherRoleConfig,
        responder: &Path,
        served: ServedCounts,
        previous: Option<Vec<u8>>,
    ) -> Self {
        let asked = config.domains.iter().any(|domain| domain.mode == DomainMode::OnDemand);
        let domains = config.domains.iter().map(|rules| DomainState::new(rules, config));
        let domains: Vec<DomainState> = domains.collect();
        let names = domains.iter().map(|domain| domain.rules.names.clone()).collect();
        let scheme = Arc::new(NameScheme::new(names, config.host.default_domain.as_deref()));
        Self {
            domains,
            min_id: config.host.min_id,
            responder: asked.then(|| responder.as_os_str().as_bytes().to_owned()),
            locals: None,
            ownership: Ownership::new(&scheme),
            scheme,
            change_count: 0,
            served,
            previous: previous.map(LastSnapshot::new),
            is_foreign: false,
        }
    }

    /// Records that another program wrote the snapshot in place. Nothing in it counts as served.
    pub fn set_foreign(&mut self) {
        self.is_foreign = true;
    }

    /// Replaces the host's own accounts. Returns whether they changed.
    pub fn set_locals(&mut self, locals: Locals) -> bool {
        if self.locals.as_deref() == Some(&locals) {
            return false;
        }
        self.locals = Some(Arc::new(locals));
        self.change_count += 1;
        self.ownership = Ownership::new(&self.scheme);
        for position in 0..self.domains.len() {
            self.claim_domain(position);
        }
        true
    }

    /// Returns the epoch and sequence number after which the next changes start.
    #[must_use]
    pub fn position(&self, domain: usize) -> (u64, u64) {
        let entries = &self.domains[domain].entries;
        (entries.epoch, entries.sequence)
    }

    /// Returns the kind of a domain's private groups.
    #[must_use]
    pub fn private_groups(&self, domain: usize) -> PrivateGroups {
        self.domains[domain].entries.private_group_kind()
    }

    /// Stores the reason why a backend's updates are rejected. Returns whether it is new.
    pub fn set_update_error(&mut self, position: usize, why: &str) -> bool {
        let not_taken = &mut self.domains[position].errors.update;
        let is_news = not_taken != why;
        *not_taken = why.to_owned();
        is_news
    }

    /// Replaces the local overrides of a domain, and applies them to its entries. Returns whether they changed.
    pub fn set_overrides(&mut self, position: usize, overrides: DomainOverrides) -> bool {
        let domain = &mut self.domains[position];
        domain.errors.overrides.clear();
        if **domain.entries.overrides() == overrides {
            return false;
        }
        let overrides = Arc::new(overrides);
        domain.rules.reserved = Arc::clone(overrides.reserved());
        let mut entries = domain.entries.clone();
        entries.set_overrides(&overrides);
        self.replace(position, entries);
        true
    }

    /// Stores the reason why a file with overrides is rejected. Returns whether it is new.
    pub fn set_overrides_error(&mut self, position: usize, why: &str) -> bool {
        let error = &mut self.domains[position].errors.overrides;
        let is_news = error != why;
        why.clone_into(error);
        is_news
    }

    /// Applies an image from a backend. An image of a mirrored domain is deferred in three cases:
    ///
    /// - It is incomplete. A backend that lost its cache starts from nothing.
    /// - It is not current, and comes from another process. A killed backend starts from a cache that may be outdated.
    /// - It comes from another process and removes more entries than the limit. A backend that starts from nothing
    ///   cannot tell.
    pub fn apply(
        &mut self,
        position: usize,
        image: DomainImage<'_>,
    ) -> Result<ImageOutcome, ImageRejection> {
        let header = *image.header();
        let domain = &self.domains[position];
        let complete = header.flags & COMPLETE != 0;
        let current = header.flags & CURRENT != 0;
        let is_another = header.epoch != domain.entries.epoch;
        if domain.mode == DomainMode::Replicate && !complete {
            return Ok(ImageOutcome::Deferred(DeferReason::Incomplete));
        }
        let has_entries = domain.entries.is_present;
        if domain.mode == DomainMode::Replicate && has_entries && is_another && !current {
            return Ok(ImageOutcome::Deferred(DeferReason::DirectoryNotReached));
        }
        let mut forget = Invalidation::default();
        match image {
            DomainImage::Full(_, mut entries) => {
                entries.set_overrides(domain.entries.overrides());
                if domain.mode == DomainMode::Replicate && is_another {
                    let is_judged = header.flags & REMOVALS_JUDGED != 0;
                    let held = self.excess_removals(position, &entries, is_judged);
                    self.domains[position].removals.held = held;
                    if held.is_some() {
                        return Ok(ImageOutcome::Deferred(DeferReason::RemovalsHeld));
                    }
                    self.domains[position].removals.confirmed = None;
                }
                forget.all = true;
                self.domains[position].overlay.apply_overlay(&mut entries);
                self.replace(position, entries);
            }
            DomainImage::Changes(header, records) => {
                forget = domain.invalidation(records.clone().flatten(), MissingMembers::Forget);
                let mut learnt = std::mem::take(&mut self.domains[position].overlay);
                let all = records.clone().chain(learnt.records_after(header.sequence));
                let numbers: Vec<u32> =
                    all.flatten().map(|record| record_number(&record)).collect();
                let applied = self.change(position, &numbers, |entries| {
                    entries.apply(&header, records)?;
                    learnt.apply_overlay(entries);
                    Ok(())
                });
                self.domains[position].overlay = learnt;
                applied?;
            }
        }
        let domain = &mut self.domains[position];
        domain.entries.is_complete = domain.mode == DomainMode::Replicate;
        let caught_up = current && !std::mem::replace(&mut domain.is_current, current);
        let new = header.since == 0 || header.records > 0 || caught_up;
        Ok(if new { ImageOutcome::Changed(forget) } else { ImageOutcome::Unchanged })
    }

    /// Returns the number of entries that would vanish from the snapshot in place, if that is too many. An entry with
    /// another id counts as another entry. Entries that are missing from a backend without a cache get the stricter
    /// limit: it does not know whether they were deleted.
    fn excess_removals(
        &self,
        position: usize,
        entries: &DomainModel,
        is_judged: bool,
    ) -> Option<u64> {
        let domain = &self.domains[position];
        if self.is_foreign {
            return None;
        }
        let before = self.served.get(&domain.name)?;
        let previous = match self.previous.as_ref().map(|previous| Snapshot::open(&previous.bytes))
        {
            None => None,
            Some(Ok(snapshot)) => Some(snapshot),
            // The snapshot cannot be read, so it serves nothing that could vanish.
            Some(Err(_)) => return None,
        };
        let known = if previous.is_none() { domain.last_published() } else { HashSet::new() };
        // Private groups go with their users, and would hide the removal of other groups.
        let is_private = |name: &[u8], gid: u32| match &previous {
            _ if domain.entries.private_group_kind() == PrivateGroups::Off => false,
            Some(snapshot) => {
                let user = snapshot.user_by_uid(gid).ok().flatten();
                user.is_some_and(|user| user.gid == gid)
            }
            None => known.contains(&(true, name, gid)),
        };
        let private = match &previous {
            Some(snapshot) => domain.groups_of_snapshot(snapshot, &is_private),
            None => {
                let groups = known.iter().filter(|(is_user, ..)| !is_user);
                groups.filter(|(_, name, gid)| is_private(name, *gid)).count() as u64
            }
        };
        // The name with the domain finds an entry of the domain, and no other one.
        let names = &domain.rules.names;
        let called = |native: &[u8]| names.qualified(&names.base(native)).into_owned();
        let is_served = |entry: ModelEntry<'_>| match (&previous, entry) {
            (Some(snapshot), ModelEntry::User(user)) => {
                match snapshot.user_by_name(&called(user.name())) {
                    Ok(found) => found.is_some_and(|found| found.uid == user.uid),
                    // An unreadable record does not count as a removal.
                    Err(_) => true,
                }
            }
            (Some(snapshot), ModelEntry::Group(group)) => {
                match snapshot.group_by_name(&called(&group.name)) {
                    Ok(found) => found.is_some_and(|found| Some(found.gid) == group.gid),
                    Err(_) => true,
                }
            }
            (None, entry) => known.contains(&entry_identity(entry)),
        };
        let mut kept = EntryCounts::default();
        // An administrator may have changed an override since the snapshot. One that is rejected serves no entry.
        let is_admitted = |entry: ModelEntry<'_>| match (&self.locals, entry) {
            (None, _) => true,
            (Some(locals), ModelEntry::User(user)) => domain.rules.user(user, locals).is_ok(),
            (Some(locals), ModelEntry::Group(group)) => domain.rules.group(group, locals).is_ok(),
        };
        let is_kept = |entry: ModelEntry<'_>| match entry.has_given_identity() {
            true => is_admitted(entry),
            false => is_served(entry),
        };
        for (_, entry) in entries.entries().filter(|(_, entry)| is_kept(*entry)) {
            match entry {
                ModelEntry::User(_) => kept.users += 1,
                ModelEntry::Group(group) if is_private(&group.name, group.gid()) => {}
                ModelEntry::Group(_) => kept.groups += 1,
            }
        }
        let groups = before.groups.saturating_sub(private);
        let gone = [(before.users, kept.users), (groups, kept.groups)]
            .map(|(before, kept)| (before, before.saturating_sub(kept)));
        domain.removals_to_hold(gone, is_judged)
    }

    /// Approves the waiting removals for the next fetch from the backend. Returns the domain's position and their
    /// number; `None` if there is no such domain.
    pub fn confirm(&mut self, domain: &str) -> Option<(usize, u64)> {
        let position = self.domains.iter().position(|known| known.name == domain)?;
        let domain = &mut self.domains[position];
        let held = domain.removals.held.take().unwrap_or_default();
        if held > 0 {
            domain.removals.confirmed = Some((Instant::now() + CONFIRMATION_LIFETIME, held));
        }
        Some((position, held))
    }

    /// Replaces all entries. With on-demand domains a query may arrive before the next snapshot is made. The owners of
    /// names and ids are therefore updated at once.
    fn replace(&mut self, position: usize, entries: DomainModel) {
        self.change_count += 1;
        let old = std::mem::replace(&mut self.domains[position].entries, entries);
        for (number, entry) in old.entries() {
            self.ownership.remove((position, number), entry);
        }
        self.claim_domain(position);
    }

    /// Whether any domain is on demand, so that lookups need the owners.
    fn has_on_demand(&self) -> bool {
        self.responder.is_some()
    }

    /// Returns the condition that publication waits for. A served domain without entries from its backend would vanish,
    /// and so would the domains below it. A domain that may be outdated would go back in time. The wait for that one is
    /// limited, because its directory may be unreachable.
    #[must_use]
    pub fn waiting_for(&self) -> Option<String> {
        if self.locals.is_none() {
            return Some("the host's own accounts have been read".into());
        }
        let is_served = |domain: &DomainState| self.served.contains_key(&domain.name);
        let missing = |(position, domain): &(usize, &DomainState)| {
            let behind = domain.is_awaited && domain.may_be_outdated();
            if self.is_foreign {
                return domain.is_awaited && (behind || !domain.entries.is_present);
            }
            (!domain.entries.is_present || behind) && is_served(domain)
                || domain.is_unread() && self.behind(*position).any(is_served)
        };
        let missing = self.domains.iter().enumerate().find(missing);
        missing.map(|(_, domain)| match (&domain.name, domain.removals.held) {
            (name, _) if !domain.has_overrides() => {
                format!("the overrides of domain {name} can be read")
            }
            (name, Some(_)) => {
                format!("the removals of domain {name} are confirmed: roster domain approve-removals {name}")
            }
            (name, None) => format!("domain {name} can be read"),
        })
    }

    /// Returns the domain and the uid of a user in the snapshot in place, while the domain at that position was not
    /// read. Only domains at or below that position count. Programs still get that user.
    #[must_use]
    pub fn find_previously_served(&self, position: usize, name: &[u8]) -> Option<ServedUser> {
        let previous = self.previous.as_ref()?;
        let snapshot = Snapshot::open(&previous.bytes).ok()?;
        let user = snapshot.user_by_name(name).ok()??.record();
        let known = snapshot.domains().ok()?.collect::<Result<Vec<_>, _>>().ok()?;
        let domain = self.behind(position).find(|domain| {
            let known = known.iter().find(|known| known.name == domain.name.as_bytes());
            let mut of_domain = known.into_iter().flat_map(|known| known.users.clone());
            of_domain.any(|position| match snapshot.user(position) {
                Ok(Some(found)) => found.record().name == user.name,
                Ok(None) | Err(_) => false,
            })
        })?;
        let [at, _] = qualified_forms(user.name);
        let alone = at.filter(|form| domain.rules.names.is_called(form.domain));
        let alone = alone.map_or(user.name, |form| form.name);
        let native = User { name: alone, ..user };
        domain
            .rules
            .user(&native, self.locals.as_ref()?)
            .ok()
            .filter(|_| domain.has_overrides())?;
        // The rules reject a name and a uid of an override, so these are the directory's.
        let name = alone.to_vec();
        let (uid, directory_name) = (user.uid, name.clone());
        let rule_groups = domain.renamed_rule_groups();
        let domain = domain.name.clone();
        Some(ServedUser { domain, name, uid, directory_name, directory_uid: uid, rule_groups })
    }

    /// Returns the domain at a position, and the domains with a lower priority.
    fn behind(&self, position: usize) -> impl Iterator<Item = &DomainState> {
        let domains = self.domains.iter().enumerate();
        let is_behind =
            move |other: usize| other == position || self.scheme.precedes(position, other);
        domains.filter(move |(other, _)| is_behind(*other)).map(|(_, domain)| domain)
    }

    /// Returns the snapshot that was in place when this process began, until the next publication.
    #[must_use]
    pub fn last_snapshot(&self) -> Option<LastSnapshot> {
        self.previous.clone()
    }

    /// Whether a domain may have fewer entries than the snapshot in place, because its backend has not contacted the
    /// directory since this process began.
    #[must_use]
    pub fn may_be_outdated(&self, position: usize) -> bool {
        self.domains[position].may_be_outdated()
    }

    /// Serves the entries of the domain's backend from now on, even if they may be outdated.
    pub fn accept_stale_data(&mut self, position: usize) {
        self.domains[position].is_awaited = false;
    }

    /// Whether no domain has entries yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.domains.iter().all(|domain| !domain.entries.is_present)
    }

    /// Changes entries and updates their owners.
    pub(super) fn change<T>(
        &mut self,
        position: usize,
        numbers: &[u32],
        change: impl FnOnce(&mut DomainModel) -> Result<T, ImageRejection>,
    ) -> Result<T, ImageRejection> {
        self.change_count += 1;
        let entries = &mut self.domains[position].entries;
        for &number in numbers {
            if let Some(entry) = entries.entry(number) {
                self.ownership.remove((position, number), entry);
            }
        }
        let changed = change(entries);
        self.claim(position, numbers.iter().copied());
        changed
    }

    fn claim_domain(&mut self, position: usize) {
        let numbers: Vec<_> =
            self.domains[position].entries.entries().map(|(number, _)| number).collect();
        self.claim(position, numbers.into_iter());
    }

    fn claim(&mut self, position: usize, numbers: impl Iterator<Item = u32>) {
        if !self.has_on_demand() {
            return;
        }
        let Self { domains, ownership: claims, locals: Some(locals), .. } = self else { return };
        let DomainState { entries, rules, .. } = &domains[position];
        for number in numbers {
            if let Some(entry) = entries.entry(number) {
                claims.add((position, number), entry, rules, locals);
            }
        }
    }

    /// Returns the input of the next snapshot. Below a domain that was never read nothing is served, because that
    /// domain could own any name there.
    pub fn snapshot_input(&self) -> SnapshotInput {
        let domains = self.domains.iter().enumerate().map(|(position, domain)| {
            let entries = match self.unread_before(position) {
                Some(_) => {
                    let kind = domain.entries.private_group_kind();
                    DomainModel::new(domain.entries.is_complete, kind)
                }
                None => domain.entries.clone(),
            };
            DomainInput { name: domain.name.clone(), entries, rules: domain.rules.clone() }
        });
        SnapshotInput {
            domains: domains.collect(),
            scheme: Arc::clone(&self.scheme),
            locals: self.locals.clone().unwrap_or_default(),
            min_id: self.min_id,
            responder: self.responder.clone(),
        }
    }

    /// Returns a domain that was never read and has a higher priority.
    pub(super) fn unread_before(&self, position: usize) -> Option<&DomainState> {
        let mut domains = self.domains.iter().enumerate();
        let unread = domains.find(|(other, domain)| {
            domain.is_unread() && *other != position && self.scheme.precedes(*other, position)
        });
        unread.map(|(_, domain)| domain)
    }

    /// Records that a snapshot is in place.
    pub fn apply_published(&mut self, made: MergeResult) {
        self.served = made.served;
        self.previous = None;
        self.is_foreign = false;
        // The snapshot in place now has the present entries.
        self.domains.iter_mut().for_each(|domain| domain.is_awaited = false);
        let results = made.rejected.into_iter().zip(made.with_domain).zip(made.counts);
        for (domain, ((refused, with_domain), counts)) in self.domains.iter_mut().zip(results) {
            (domain.rejected, domain.counts) = (refused, counts);
            domain.with_domain = with_domain;
            if enabled!(Level::TRACE) {
                domain.log_rejections();
            }
        }
    }

    /// Returns the counts of each domain.
    #[must_use]
    pub fn domain_counts(&self) -> Vec<PublishedDomain> {
        let counts = self.domains.iter().enumerate().map(|(position, domain)| PublishedDomain {
            present: domain.entries.is_present,
            held_removals: domain.removals.held.unwrap_or_default(),
            not_taken: domain.errors.update.clone(),
            overrides_error: domain.errors.overrides.clone(),
            waits_for: self
                .unread_before(position)
                .map(|unread| unread.name.clone())
                .unwrap_or_default(),
            ..domain.counts.clone()
        });
        counts.collect()
    }
}

impl SnapshotInput {
    /// Merges and builds. The time is proportional to the number of all memberships.
    pub fn make(&self) -> Result<MergeResult, TooLarge> {
        let sources = self.domains.iter();
        let sources: Vec<_> = sources
            .map(|DomainInput { entries, rules, .. }| DomainSource { domain: entries, rules })
            .collect();
        let mut merged = merge(&sources, &self.locals, &self.scheme);
        let names: Vec<_> = self.domains.iter().map(|part| part.name.as_str()).collect();
        let image =
            build(&self.scheme, &sources, &mut merged, self.min_id, self.responder.as_deref())?;
        let mut counts = domain_counts(&names, &merged);
        for (counts, part) in counts.iter_mut().zip(&self.domains) {
            counts.unused_overrides = unused_overrides(&part.entries);
        }
        let present = self.domains.iter().zip(&counts).filter(|(part, _)| part.entries.is_present);
        let served = present.map(|(DomainInput { name, .. }, counts)| {
            (name.clone(), EntryCounts { users: counts.users, groups: counts.groups })
        });
        let served = served.collect();
        let MergedDomains { rejected: refused, with_domain, .. } = merged;
        Ok(MergeResult { image, served, rejected: refused, with_domain, counts })
    }
}

impl DomainState {
    /// Returns the number of removals, if they have to wait for an approval: entries before and entries removed, of users
    /// and of groups.
    fn removals_to_hold(&self, gone: [(u64, u64); 2], is_judged: bool) -> Option<u64> {
        let removals = gone.iter().map(|(_, gone)| gone).sum();
        let now = Instant::now();
        if self.removals.confirmed.is_some_and(|(until, most)| now < until && removals <= most) {
            return None;
        }
        let too_many = |&(before, gone): &(u64, u64)| {
            let mut guard = match is_judged {
                true => RemovalGuard::for_named(self.mass_deletion),
                false => RemovalGuard::for_missing(),
            };
            guard.decide(now, before, 0, gone) == RemovalDecision::Hold
        };
        gone.iter().any(too_many).then_some(removals)
    }

    fn new(rules: &DomainRules, config: &PublisherRoleConfig) -> Self {
        let host = &config.host;
        let allowed_local_gids = host.allowed_local_gids.clone();
        let all = config.domains.iter().map(|other| (&*other.name, &*other.names.short_name));
        let names = DomainNames::new(&rules.name, &rules.names, all);
        let DomainRules {
            name,
            mode,
            min_id,
            max_id,
            mass_deletion,
            when_away,
            serving,
            overrides,
            rule_groups,
            ..
        } = rules.clone();
        let given = Arc::new(match overrides.file {
            Some(_) => DomainOverrides::unknown(),
            None => DomainOverrides::new(overrides.entries, &rules.names),
        });
        let mut entries = DomainModel::new(mode == DomainMode::Replicate, rules.private_groups);
        entries.set_overrides(&given);
        Self {
            counts: PublishedDomain { domain: name.clone(), ..PublishedDomain::default() },
            name,
            mode,
            when_away,
            rules: Rules {
                min_id,
                max_id,
                allowed_local_gids,
                exceptions: host.exceptions.clone(),
                names,
                serving,
                reserved: Arc::clone(given.reserved()),
            },
            rule_groups: rule_groups.into_iter().collect(),
            entries,
            overlay: LookupOverlay::default(),
            rejected: Vec::new(),
            with_domain: HashSet::new(),
            mass_deletion,
            is_current: false,
            is_awaited: true,
            removals: RemovalApproval::default(),
            errors: DomainErrors::default(),
        }
    }

    /// Returns the groups in access rules that have other names in the directory, as
    /// [`ServedUser::rule_groups`].
    pub(super) fn renamed_rule_groups(&self) -> Vec<(String, String)> {
        let groups = self.rule_groups.iter().map(String::as_str);
        self.entries.overrides().renamed_groups(groups)
    }

    fn may_be_outdated(&self) -> bool {
        self.mode == DomainMode::Replicate && !self.is_current
    }

    /// Whether its entries are unknown: it is mirrored, and was never read, or its overrides were not.
    fn is_unread(&self) -> bool {
        !self.has_overrides() || self.mode == DomainMode::Replicate && !self.entries.is_present
    }

    /// Whether the local overrides are known. No entry is served before.
    pub(super) fn has_overrides(&self) -> bool {
        self.entries.overrides().is_known()
    }

    /// Returns the entries that the last publication served.
    fn last_published(&self) -> HashSet<(bool, &[u8], u32)> {
        let refused: HashSet<u32> = self.rejected.iter().map(|(number, _)| *number).collect();
        let is_served = |number: &u32| !refused.contains(number);
        let served = self.entries.entries().filter(|(number, _)| is_served(number));
        let groups = self.entries.private_groups().filter(|(number, _)| {
            is_served(number) && private_group_owner(*number).is_some_and(|user| is_served(&user))
        });
        let groups = groups.map(|(number, group)| (number, ModelEntry::Group(group)));
        served.chain(groups).map(|(_, entry)| entry_identity(entry)).collect()
    }

    /// Counts groups of the domain in a snapshot by name and gid.
    fn groups_of_snapshot(
        &self,
        snapshot: &Snapshot<'_>,
        is_counted: &impl Fn(&[u8], u32) -> bool,
    ) -> u64 {
        let Ok(mut known) = snapshot.domains() else { return 0 };
        let is_here = |name: &[u8]| name == self.name.as_bytes();
        let Some(Ok(known)) =
            known.find(|known| known.as_ref().is_ok_and(|known| is_here(known.name)))
        else {
            return 0;
        };
        let groups = known.groups.filter_map(|position| snapshot.group(position).ok().flatten());
        groups.filter(|group| is_counted(group.record().name, group.gid)).count() as u64
    }

    /// Returns the entries that these records make outdated in other roles' caches. A record of a lookup comes once
    /// more with the next changes. Entries that it leaves unchanged are not listed then.
    pub(super) fn invalidation<'a>(
        &self,
        records: impl Iterator<Item = Record<'a>> + Clone,
        untold: MissingMembers,
    ) -> Invalidation {
        let mut forget = Invalidation::default();
        let news = records.filter(|record| self.entries.is_changed_by(record, untold));
        if news.clone().nth(NAMES_LISTED_MAX).is_some() {
            forget.all = true;
        } else {
            news.for_each(|record| self.invalidate_record(&record, &mut forget));
        }
        forget
    }

    /// Adds the names that a record makes outdated: the old one and the new one.
    fn invalidate_record(&self, record: &Record<'_>, forget: &mut Invalidation) {
        let overrides = self.entries.overrides();
        let (number, new) = match record {
            Record::User(user) => (user.number, Some((true, overrides.user_name(user.name)))),
            Record::Group(group) => (group.number, Some((false, overrides.group_name(group.name)))),
            Record::Removed { number } | Record::GroupsOf { user: number, .. } => (*number, None),
        };
        let old = self.entries.entry(number).map(|entry| match entry {
            ModelEntry::User(user) => (true, user.name()),
            ModelEntry::Group(group) => (false, &*group.name),
        });
        for (is_user, name) in [old, new].into_iter().flatten() {
            let list = if is_user { &mut forget.users } else { &mut forget.groups };
            if !list.iter().any(|known| known == name) {
                list.push(name.to_owned());
            }
            let has_group = self.entries.private_group_kind() != PrivateGroups::Off;
            if is_user && has_group && !forget.groups.iter().any(|known| known == name) {
                forget.groups.push(name.to_owned());
            }
        }
    }
}

/// Returns the first overrides without an entry, as the administrator sees them.
fn unused_overrides(entries: &DomainModel) -> Vec<String> {
    let unused = entries.unused_overrides().into_iter().take(UNUSED_OVERRIDES_MAX);
    unused.map(|(kind, name)| format!("{kind} {}", printable(name))).collect()
}

/// The identity of an entry: whether it is a user, name, id.
fn entry_identity(entry: ModelEntry<'_>) -> (bool, &[u8], u32) {
    match entry {
        ModelEntry::User(user) => (true, user.name(), user.uid),
        ModelEntry::Group(group) => (false, &group.name, group.gid()),
    }
}
