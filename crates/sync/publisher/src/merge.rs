// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merges domains into one set of users and groups. Pure.
//!
//! A name, uid or gid belongs to the first domain, in configured order, that has an entry with it. Within the domain it
//! belongs to the first such entry. Only entries that pass `roster_admission` count. An entry is served if it owns both
//! its name and its id.
//!
//! A primary gid makes a user a member as well. A user is therefore rejected if a higher-priority domain has its
//! primary group. A group is rejected if its gid is the primary gid of a user in a higher-priority domain.
//!
//! Ownership does not depend on whether another entry is served. So the order in which entries become known does not
//! matter, and a domain takes nothing from a higher-priority domain.

use super::domain_model::DomainModel;
use super::model_entry::{ModelEntry, ModelGroup, ModelUser};
use roster_admission::{Admitted, AsGroup as _, Id, Locals, Owner, Refusal, Rules};
use std::borrow::Borrow;
use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// An entry that is served.
pub struct MergedEntry<'a, T> {
    /// Position of its domain.
    pub domain: usize,
    /// Its number there.
    pub number: u32,
    /// The entry.
    pub entry: Admitted<'a, T>,
}

/// The served entries of all domains together.
pub struct MergedDomains<'a> {
    /// Users, domain by domain.
    pub users: Vec<MergedEntry<'a, ModelUser>>,
    /// Groups, domain by domain.
    pub groups: Vec<MergedEntry<'a, ModelGroup>>,
    /// By domain, the numbers of rejected entries, with the reasons.
    pub rejected: Vec<Vec<(u32, Refusal)>>,
}

/// A domain, and the rules for it.
#[derive(Clone, Copy)]
pub struct DomainSource<'a> {
    /// Its entries.
    pub domain: &'a DomainModel,
    /// Rules for the entries that may be served.
    pub rules: &'a Rules,
}

/// Merges domains.
#[must_use]
pub fn merge<'a>(sources: &[DomainSource<'a>], locals: &Locals) -> MergedDomains<'a> {
    let users = sources.iter().map(|source| source.domain.users().count()).sum();
    let groups = sources.iter().map(|source| source.domain.groups().count()).sum();
    let mut merged = MergedDomains {
        users: Vec::with_capacity(users),
        groups: Vec::with_capacity(groups),
        rejected: vec![Vec::new(); sources.len()],
    };
    // All higher-priority owners of an entry's name and id are known before its check.
    let mut claims = Ownership::with_capacity(users, groups);
    for (domain, DomainSource { domain: entries, rules }) in sources.iter().enumerate() {
        for (number, group) in entries.groups().filter(|(_, group)| group.gid.is_some()) {
            let admitted = rules.group(group, locals).and_then(|entry| {
                claims.add_group((domain, number), group);
                claims.check_group((domain, number), group).map(|()| entry)
            });
            match admitted {
                Ok(entry) => merged.groups.push(MergedEntry { domain, number, entry }),
                Err(refusal) => merged.rejected[domain].push((number, refusal)),
            }
        }
        for (number, user) in entries.users() {
            let admitted = rules.user(user, locals).and_then(|entry| {
                claims.add_user((domain, number), user);
                claims.check_user((domain, number), user).map(|()| entry)
            });
            match admitted {
                Ok(entry) => merged.users.push(MergedEntry { domain, number, entry }),
                Err(refusal) => merged.rejected[domain].push((number, refusal)),
            }
        }
    }
    merged
}

/// An entry: domain by position, and number. The smaller pair has the higher priority.
pub type EntryOwner = (usize, u32);

/// Owners of names and ids, among the entries that may be served.
#[derive(Default)]
pub struct Ownership {
    user_names: OwnerTable<Box<[u8]>>,
    uids: OwnerTable<u32>,
    group_names: OwnerTable<Box<[u8]>>,
    gids: OwnerTable<u32>,
    /// Number of users with a primary gid, by domain and gid.
    primary: HashMap<(usize, u32), u32>,
}

impl Ownership {
    fn with_capacity(users: usize, groups: usize) -> Self {
        Self {
            user_names: OwnerTable::with_capacity(users),
            uids: OwnerTable::with_capacity(users),
            group_names: OwnerTable::with_capacity(groups),
            gids: OwnerTable::with_capacity(groups),
            primary: HashMap::new(),
        }
    }

    /// Records the names and ids of an entry, if it may be served.
    pub fn add(&mut self, me: EntryOwner, entry: ModelEntry<'_>, rules: &Rules, locals: &Locals) {
        match entry {
            ModelEntry::User(user) if rules.user(user, locals).is_ok() => self.add_user(me, user),
            ModelEntry::Group(group) if rules.group(group, locals).is_ok() => {
                self.add_group(me, group);
            }
            _ => {}
        }
    }

    fn add_user(&mut self, me: EntryOwner, user: &ModelUser) {
        if self.user_names.add(user.name().into(), me) {
            self.uids.add(user.uid, me);
            *self.primary.entry((me.0, user.gid)).or_default() += 1;
        }
    }

    fn add_group(&mut self, me: EntryOwner, group: &ModelGroup) {
        self.group_names.add(group.name.clone(), me);
        self.gids.add(group.gid(), me);
    }

    /// Releases the names and ids of an entry before it changes or is removed.
    pub fn remove(&mut self, me: EntryOwner, entry: ModelEntry<'_>) {
        match entry {
            ModelEntry::User(user) if self.user_names.remove(user.name(), me) => {
                self.uids.remove(&user.uid, me);
                if let Place::Occupied(mut users) = self.primary.entry((me.0, user.gid)) {
                    *users.get_mut() -= 1;
                    if *users.get() == 0 {
                        users.remove();
                    }
                }
            }
            ModelEntry::User(_) => {}
            ModelEntry::Group(group) => {
                self.group_names.remove(&*group.name, me);
                self.gids.remove(&group.gid(), me);
            }
        }
    }

    /// Whether there are no owners.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let names = [&self.user_names, &self.group_names].map(OwnerTable::is_empty);
        let ids = [&self.uids, &self.gids].map(OwnerTable::is_empty);
        names == [true; 2] && ids == [true; 2] && self.primary.is_empty()
    }

    /// Checks that a user owns its name and its uid, and that no higher-priority domain owns its primary group.
    pub fn check_user(&self, me: EntryOwner, user: &ModelUser) -> Result<(), Refusal> {
        if self.gids.first(&user.gid).is_some_and(|(owner, _)| owner < me.0) {
            return Err(Refusal::ForeignGroup(user.gid));
        }
        if let Some(owner) = higher_owner(me, self.user_names.first(user.name())) {
            return Err(Refusal::NameTaken(owner));
        }
        if let Some(owner) = higher_owner(me, self.uids.first(&user.uid)) {
            return Err(Refusal::IdTaken(Id::Uid, user.uid, owner));
        }
        Ok(())
    }

    /// Checks that a group owns its name and its gid. A gid that is a user's primary gid in a higher-priority domain
    /// fails.
    pub fn check_group(&self, me: EntryOwner, group: &ModelGroup) -> Result<(), Refusal> {
        if let Some(owner) = higher_owner(me, self.group_names.first(&*group.name)) {
            return Err(Refusal::NameTaken(owner));
        }
        let gid = group.gid();
        if let Some(owner) = higher_owner(me, self.gids.first(&gid)) {
            return Err(Refusal::IdTaken(Id::Gid, gid, owner));
        }
        if (0..me.0).any(|domain| self.primary.contains_key(&(domain, gid))) {
            return Err(Refusal::ForeignMembers(gid));
        }
        Ok(())
    }

    /// Returns the owner of a user name.
    #[must_use]
    pub fn user_name_owner(&self, name: &[u8]) -> Option<EntryOwner> {
        self.user_names.first(name)
    }

    /// Returns the owner of a uid.
    #[must_use]
    pub fn uid_owner(&self, uid: u32) -> Option<EntryOwner> {
        self.uids.first(&uid)
    }

    /// Returns the owner of a group name.
    #[must_use]
    pub fn group_name_owner(&self, name: &[u8]) -> Option<EntryOwner> {
        self.group_names.first(name)
    }

    /// Returns the owner of a gid.
    #[must_use]
    pub fn gid_owner(&self, gid: u32) -> Option<EntryOwner> {
        self.gids.first(&gid)
    }
}

/// Returns the kind of owner, if the first owner has a higher priority than this entry.
fn higher_owner((domain, number): EntryOwner, first: Option<EntryOwner>) -> Option<Owner> {
    match first {
        Some((owner, _)) if owner < domain => Some(Owner::EarlierDomain),
        Some((owner, other)) if owner == domain && other < number => Some(Owner::SameDomain),
        _ => None,
    }
}

/// The owners of each name, or of each id. Nearly all keys have one owner.
#[derive(Default)]
struct OwnerTable<K> {
    first: HashMap<K, EntryOwner>,
    /// Owners behind the first one.
    others: HashMap<K, BTreeSet<EntryOwner>>,
}

impl<K: Hash + Eq + Clone> OwnerTable<K> {
    fn with_capacity(capacity: usize) -> Self {
        Self { first: HashMap::with_capacity(capacity), others: HashMap::new() }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.first.is_empty() && self.others.is_empty()
    }

    fn first<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<EntryOwner>
    where
        K: Borrow<Q>,
    {
        self.first.get(key).copied()
    }

    /// Adds an owner. Returns whether it is new.
    fn add(&mut self, key: K, me: EntryOwner) -> bool {
        match self.first.entry(key) {
            Place::Vacant(place) => {
                place.insert(me);
                true
            }
            Place::Occupied(place) if *place.get() == me => false,
            Place::Occupied(mut place) => {
                let others = self.others.entry(place.key().clone()).or_default();
                let first = place.get_mut();
                if me < *first {
                    others.insert(std::mem::replace(first, me))
                } else {
                    others.insert(me)
                }
            }
        }
    }

    /// Removes an owner. Returns whether there was one.
    fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, me: EntryOwner) -> bool
    where
        K: Borrow<Q>,
    {
        let Some(first) = self.first.get_mut(key) else { return false };
        let Some(others) = self.others.get_mut(key) else {
            let is_me = *first == me;
            if is_me {
                self.first.remove(key);
            }
            return is_me;
        };
        let was_down = if *first == me {
            // Empty sets are removed.
            *first = others.pop_first().unwrap_or(me);
            true
        } else {
            others.remove(&me)
        };
        if others.is_empty() {
            self.others.remove(key);
        }
        was_down
    }
}
