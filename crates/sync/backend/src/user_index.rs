// SPDX-License-Identifier: MIT OR Apache-2.0
//! An index for logins: users by name, and the members of the groups in rules. `access` evaluates the rules.
//!
//! Follows the engine by its changes, as a publisher does, and stores only numbers. Records and accounts are read from
//! the cache or the batches. If an answer is uncertain, for example because two entries have one name, the index
//! returns an error.

use super::domain_image::ImageError;
use super::engine::{Engine, ViewUnavailable};
use parking_lot::{Mutex, MutexGuard};
use roster_bus::domain_image::{NO_REFERENCE, Record, Records};
use roster_config::{DomainMode, ListNames};
use roster_provider::access::{ListKind, Membership};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Index of users and of members of groups.
pub struct UserIndex {
    engine: Arc<Engine>,
    mode: DomainMode,
    /// Whether rules name groups. Otherwise groups are not indexed.
    has_groups: bool,
    /// The form in which names of rules are compared.
    names: ListNames,
    state: Mutex<IndexState>,
}

/// A user in the backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedUser {
    /// The entry.
    pub number: u32,
    gid: u32,
    references: [u32; 2],
    /// Numbers of the groups, if they were queried.
    groups: Option<Vec<u32>>,
}

/// Reasons why a user cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum UserLookupError {
    /// The domain is unknown, or cannot be read.
    #[error(transparent)]
    ViewUnavailable(#[from] ViewUnavailable),
    /// The changes cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// There is no user of that name and uid.
    #[error("the domain has no such user")]
    NotFound,
    /// There are several such users.
    #[error("the domain has several users of that name and uid")]
    Ambiguous,
    /// The process is about to end.
    #[error("the backend is stopping")]
    Ending,
}

#[derive(Default)]
struct IndexState {
    sequence: u64,
    hasher: RandomState,
    /// Hashes of names with the numbers of their users.
    names: BTreeSet<(u64, u32)>,
    users: HashMap<u32, u64>,
    groups: HashMap<u32, IndexedGroup>,
    by_reference: HashMap<u32, u32>,
    /// By the names in queries.
    members: BTreeMap<String, RuleGroups>,
    /// The change count of the rejected entries for these members.
    rejections: u64,
    /// Hashes of the names of removed users.
    removed_names: HashSet<u64>,
}

struct IndexedGroup {
    name: Box<[u8]>,
    /// `None` for a group that only nests.
    gid: Option<u32>,
    reference: u32,
}

/// The groups that a name in a list means. Only hostile or faulty directories have two groups of one name.
#[derive(Clone, Default)]
struct RuleGroups {
    /// The group that is served.
    served: NamedGroup,
    /// All groups of that name.
    all: Option<Arc<GroupMembers>>,
}

/// The group of a name that is served.
#[derive(Clone, Default)]
enum NamedGroup {
    #[default]
    None,
    Known(Arc<GroupMembers>),
    /// There are several, and the group that was known first may be any of them.
    Ambiguous,
}

/// All members of groups, direct and nested.
#[derive(Default)]
struct GroupMembers {
    references: HashSet<u32>,
    /// Gids of the group and of its nested groups: they are primary groups of further members.
    gids: HashSet<u32>,
    /// Numbers of these groups.
    numbers: HashSet<u32>,
    /// Whether the members are complete.
    is_complete: bool,
}

impl UserIndex {
    /// Makes an empty index.
    #[must_use]
    pub fn new(engine: Arc<Engine>, mode: DomainMode, has_groups: bool) -> Self {
        Self { engine, mode, has_groups, names: ListNames::default(), state: Mutex::default() }
    }

    /// Compares the names of rules in the form of a domain.
    #[must_use]
    pub fn with_names(self, names: ListNames) -> Self {
        Self { names, ..self }
    }

    /// Returns a user's name in the form of the rules.
    #[must_use]
    pub fn rule_name(&self, name: &[u8]) -> String {
        self.names.entry_text(name)
    }

    /// Returns the user of that name and uid.
    pub fn find(&self, name: &[u8], uid: u32) -> Result<IndexedUser, UserLookupError> {
        let numbers: Vec<u32> = {
            let known = self.updated_state()?;
            let hash = known.hasher.hash_one(name);
            known.names.range((hash, 0)..=(hash, u32::MAX)).map(|(_, number)| *number).collect()
        };
        let mut found = None;
        for number in numbers {
            let Some(records) = self.engine.record(number)? else { continue };
            if let Some(person) = find_record(&records, name, uid)
                && found.replace(person).is_some()
            {
                return Err(UserLookupError::Ambiguous);
            }
        }
        found.ok_or(UserLookupError::NotFound)
    }

    /// Whether there is exactly one known user of that name and uid. `None` if that is unknown: on demand, a name
    /// without a query is unknown.
    #[must_use]
    pub fn has(&self, name: &[u8], uid: u32) -> Option<bool> {
        match self.find(name, uid) {
            Ok(_) => Some(true),
            Err(UserLookupError::NotFound) if self.mode == DomainMode::OnDemand => {
                self.updated_state().ok().filter(|known| known.has_known_name(name)).map(|_| false)
            }
            Err(UserLookupError::NotFound | UserLookupError::Ambiguous) => Some(false),
            Err(
                UserLookupError::ViewUnavailable(_)
                | UserLookupError::Image(_)
                | UserLookupError::Ending,
            ) => None,
        }
    }

    /// Returns the account data of a user, see `roster_provider::account`.
    pub fn account(&self, person: &IndexedUser) -> Result<Option<Vec<u8>>, UserLookupError> {
        Ok(self.engine.account(person.number)?)
    }

    /// Returns whether a user is in a group of a list.
    #[must_use]
    pub fn membership(&self, person: &IndexedUser, list: ListKind, group: &str) -> Membership {
        let Ok(groups) = self.rule_groups(group) else { return Membership::Unknown };
        let members = match (list, groups.served, groups.all) {
            (ListKind::Allow, NamedGroup::Ambiguous, _) => return Membership::Ambiguous,
            (ListKind::Allow, NamedGroup::Known(members), _)
            | (ListKind::Deny, _, Some(members)) => members,
            (ListKind::Allow, NamedGroup::None, _) | (ListKind::Deny, _, None) => {
                return Membership::NoSuchGroup;
            }
        };
        let listed = match self.mode {
            DomainMode::Replicate => {
                let mut references = person.references.iter().filter(|one| **one != NO_REFERENCE);
                references.any(|reference| members.references.contains(reference))
            }
            DomainMode::OnDemand => {
                let mut groups = person.groups.iter().flatten();
                groups.any(|number| members.numbers.contains(number))
            }
        };
        let is_known = match self.mode {
            DomainMode::Replicate => members.is_complete,
            DomainMode::OnDemand => person.groups.is_some(),
        };
        if listed || members.gids.contains(&person.gid) {
            Membership::Member
        } else if is_known {
            Membership::NotMember
        } else {
            Membership::Unknown
        }
    }

    /// Returns the groups that a name in a list means.
    fn rule_groups(&self, group: &str) -> Result<RuleGroups, UserLookupError> {
        let mut known = self.updated_state()?;
        if let Some(groups) = known.members.get(group) {
            return Ok(groups.clone());
        }
        let wanted = group.as_bytes();
        // A denial also means a group that the directory calls `ops@corp`. Such a group is not served.
        let mut numbers = known.groups_called(|name| *self.names.rule_form(name) == *wanted);
        let expand = |numbers: &[u32]| known.expand_groups(&self.engine, self.mode, numbers);
        let denied = known.with_gids(&numbers);
        let all = (!denied.is_empty()).then(|| expand(&denied).map(Arc::new)).transpose()?;
        numbers.retain(|number| {
            let group = known.groups.get(number);
            group.is_some_and(|group| *self.names.entry_form(&group.name) == *wanted)
        });
        let served = match (&*known.with_gids(&numbers), self.mode, &all) {
            ([], ..) => NamedGroup::None,
            ([_], _, Some(all)) if denied.len() == 1 => NamedGroup::Known(Arc::clone(all)),
            // A publisher serves the smallest number, which is the group that the mirror had first.
            ([first], ..) | ([first, ..], DomainMode::Replicate, _) => {
                NamedGroup::Known(Arc::new(expand(&[*first])?))
            }
            // Queries decide which group was known first. An attacker could query the own group of that name.
            (_, DomainMode::OnDemand, _) => NamedGroup::Ambiguous,
        };
        let groups = RuleGroups { served, all };
        known.members.insert(group.to_owned(), groups.clone());
        Ok(groups)
    }

    /// Updates the index and the members of these groups. That may read a whole domain.
    pub fn prepare(&self, groups: &[String]) {
        for group in groups {
            // A later query finds the error.
            let _ = self.rule_groups(group);
        }
    }

    /// Whether queries about users and these groups need no update: nothing has changed since they were
    /// [prepared](Self::prepare).
    #[must_use]
    pub fn is_ready(&self, groups: &[String]) -> bool {
        // Another thread that holds the lock is updating the index.
        let Some(known) = self.state.try_lock() else { return false };
        self.engine.is_at(known.sequence)
            && self.engine.rejection_changes() == known.rejections
            && groups.iter().all(|group| known.members.contains_key(group))
    }

    /// Returns the index after an update.
    fn updated_state(&self) -> Result<MutexGuard<'_, IndexState>, UserLookupError> {
        let mut known = self.state.lock();
        let rejections = self.engine.rejection_changes();
        if rejections != known.rejections {
            known.members.clear();
            known.rejections = rejections;
        }
        let Some(view) = self.engine.changes(known.sequence)? else { return Ok(known) };
        if view.header.since == 0 {
            *known = IndexState { rejections, ..IndexState::default() };
        }
        let mut of_groups = false;
        view.records(|number, records| {
            of_groups |= known.apply_records(number, records, self.has_groups);
            Ok(())
        })?;
        if of_groups {
            known.members.clear();
        }
        known.sequence = view.header.sequence;
        Ok(known)
    }
}

impl IndexState {
    /// Whether a user of that name is or was there.
    fn has_known_name(&self, name: &[u8]) -> bool {
        let hash = self.hasher.hash_one(name);
        let mut named = self.names.range((hash, 0)..=(hash, u32::MAX));
        named.next().is_some() || self.removed_names.contains(&hash)
    }

    /// Updates an entry. Returns whether it was or is a group.
    fn apply_records(&mut self, number: u32, records: Option<&[u8]>, with_groups: bool) -> bool {
        if let Some(hash) = self.users.remove(&number) {
            self.names.remove(&(hash, number));
            self.removed_names.insert(hash);
        }
        let mut of_groups = false;
        if let Some(group) = self.groups.remove(&number) {
            of_groups = true;
            if self.by_reference.get(&group.reference) == Some(&number) {
                self.by_reference.remove(&group.reference);
            }
        }
        match records.and_then(|records| Records::without_header(records).next()) {
            Some(Ok(Record::User(user))) => {
                let hash = self.hasher.hash_one(user.name);
                self.removed_names.remove(&hash);
                self.users.insert(number, hash);
                self.names.insert((hash, number));
            }
            Some(Ok(Record::Group(group))) if with_groups => {
                of_groups = true;
                if group.reference != NO_REFERENCE {
                    self.by_reference.insert(group.reference, number);
                }
                let (name, gid, reference) = (group.name.into(), group.gid, group.reference);
                self.groups.insert(number, IndexedGroup { name, gid, reference });
            }
            _ => {}
        }
        of_groups
    }

    /// Returns the members of all these groups.
    fn expand_groups(
        &self,
        engine: &Engine,
        mode: DomainMode,
        groups: &[u32],
    ) -> Result<GroupMembers, ViewUnavailable> {
        let mut next = groups.to_vec();
        // The members of an unreadable group are unknown, and so are those of the groups around it.
        let unreadable = engine.unreadable_groups();
        let is_whole = next.len() == 1 && (unreadable.is_some() || mode == DomainMode::OnDemand);
        let unreadable = unreadable.unwrap_or_default();
        let served_unreadable = engine.served_unreadable();
        let mut members = GroupMembers { is_complete: is_whole, ..GroupMembers::default() };
        while let Some(number) = next.pop() {
            let Some(group) = self.groups.get(&number) else { continue };
            if !members.numbers.insert(number) {
                continue;
            }
            members.gids.extend(group.gid);
            // On demand a user's groups are known with their parents, so members of groups are not needed.
            if mode == DomainMode::OnDemand {
                continue;
            }
            members.is_complete &= !served_unreadable.contains(&number);
            let records = engine.record(number)?.unwrap_or_default();
            let Some(Ok(Record::Group(record))) = Records::without_header(&records).next() else {
                members.is_complete = false;
                continue;
            };
            match record.members {
                Some(list) => {
                    for reference in list.iter() {
                        members.references.insert(reference);
                        members.is_complete &= !unreadable.contains(&reference);
                        next.extend(self.by_reference.get(&reference));
                    }
                }
                None => members.is_complete = false,
            }
        }
        Ok(members)
    }
}

impl IndexState {
    /// Returns the groups of a name, smallest number first.
    fn groups_called(&self, is_called: impl Fn(&[u8]) -> bool) -> Vec<u32> {
        let named = self.groups.iter().filter(|(_, group)| is_called(&group.name));
        let mut numbers: Vec<u32> = named.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns the groups that count. A group without gid counts only if no group has a gid.
    fn with_gids(&self, groups: &[u32]) -> Vec<u32> {
        let has_gid =
            |number: &u32| self.groups.get(number).is_some_and(|group| group.gid.is_some());
        let any_gid = groups.iter().any(has_gid);
        groups.iter().copied().filter(|number| has_gid(number) == any_gid).collect()
    }
}

/// Returns the user of these records, if it has that name and uid.
fn find_record(records: &[u8], name: &[u8], uid: u32) -> Option<IndexedUser> {
    let mut records = Records::without_header(records);
    let user = match records.next()?.ok()? {
        Record::User(user) if user.name == name && user.uid == uid => user,
        _ => return None,
    };
    let groups = match records.next() {
        Some(Ok(Record::GroupsOf { groups, .. })) => Some(groups.iter().collect()),
        _ => None,
    };
    let references = [user.reference, user.by_name];
    Some(IndexedUser { number: user.number, gid: user.gid, references, groups })
}
