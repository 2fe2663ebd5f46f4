//! Many domains into one set of users and groups. Pure.
//!
//! A name, uid or gid belongs to the first domain, in configured order, that has it in an entry that
//! `roster_admission` lets pass, and there to the first entry. An entry is served when its name and its id are its
//! own. A primary gid makes a member as well: a user whose is a group of an earlier domain is refused,
//! and so is a group whose gid is the primary gid of an earlier domain's user. Nothing depends on
//! whether another entry is served, so that it does not matter in which order entries become known, and
//! a domain takes nothing from one that goes before it.

use super::model::{Domain, Entry, Group, User};
use roster_admission::{Admitted, Id, Locals, Owner, Refusal, Rules};
use std::borrow::Borrow;
use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// An entry that is served.
pub struct Served<'a, T> {
    /// Position of its domain.
    pub domain: usize,
    /// Its number there.
    pub number: u32,
    /// The entry.
    pub entry: Admitted<'a, T>,
}

/// What all domains together come to.
pub struct Merged<'a> {
    /// Users, domain by domain.
    pub users: Vec<Served<'a, User>>,
    /// Groups, domain by domain.
    pub groups: Vec<Served<'a, Group>>,
    /// By domain, the numbers of entries that are not served, and why.
    pub refused: Vec<Vec<(u32, Refusal)>>,
}

/// A domain, and the rules for it.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// Its entries.
    pub domain: &'a Domain,
    /// What may be served of them.
    pub rules: &'a Rules,
}

/// Merges.
#[must_use]
pub fn merge<'a>(sources: &[Source<'a>], locals: &Locals) -> Merged<'a> {
    let users = sources.iter().map(|source| source.domain.users().count()).sum();
    let groups = sources.iter().map(|source| source.domain.groups().count()).sum();
    let mut merged = Merged {
        users: Vec::with_capacity(users),
        groups: Vec::with_capacity(groups),
        refused: vec![Vec::new(); sources.len()],
    };
    // Whatever an entry can lose to has claimed before it is judged: all that goes before.
    let mut claims = Claims::with_capacity(users, groups);
    for (domain, Source { domain: entries, rules }) in sources.iter().enumerate() {
        for (number, group) in entries.groups() {
            let admitted = rules.group(group, locals).and_then(|entry| {
                claims.add_group((domain, number), group);
                claims.group((domain, number), group).map(|()| entry)
            });
            match admitted {
                Ok(entry) => merged.groups.push(Served { domain, number, entry }),
                Err(refusal) => merged.refused[domain].push((number, refusal)),
            }
        }
        for (number, user) in entries.users() {
            let admitted = rules.user(user, locals).and_then(|entry| {
                claims.add_user((domain, number), user);
                claims.user((domain, number), user).map(|()| entry)
            });
            match admitted {
                Ok(entry) => merged.users.push(Served { domain, number, entry }),
                Err(refusal) => merged.refused[domain].push((number, refusal)),
            }
        }
    }
    merged
}

/// An entry: domain by position, and number. The smaller goes before.
pub type Claimant = (usize, u32);

/// Who has which name and id, of entries that may be served.
#[derive(Default)]
pub struct Claims {
    user_names: Table<Box<[u8]>>,
    uids: Table<u32>,
    group_names: Table<Box<[u8]>>,
    gids: Table<u32>,
    /// How many users of a domain have a primary gid.
    primary: HashMap<(usize, u32), u32>,
}

impl Claims {
    fn with_capacity(users: usize, groups: usize) -> Self {
        Self {
            user_names: Table::with_capacity(users),
            uids: Table::with_capacity(users),
            group_names: Table::with_capacity(groups),
            gids: Table::with_capacity(groups),
            primary: HashMap::new(),
        }
    }

    /// Puts down what an entry claims, if it may be served.
    pub fn add(&mut self, me: Claimant, entry: Entry<'_>, rules: &Rules, locals: &Locals) {
        match entry {
            Entry::User(user) if rules.user(user, locals).is_ok() => self.add_user(me, user),
            Entry::Group(group) if rules.group(group, locals).is_ok() => self.add_group(me, group),
            _ => {}
        }
    }

    fn add_user(&mut self, me: Claimant, user: &User) {
        if self.user_names.add(user.name().into(), me) {
            self.uids.add(user.uid, me);
            *self.primary.entry((me.0, user.gid)).or_default() += 1;
        }
    }

    fn add_group(&mut self, me: Claimant, group: &Group) {
        self.group_names.add(group.name.clone(), me);
        self.gids.add(group.gid, me);
    }

    /// What the entry claimed is free again: it is about to change or to go.
    pub fn remove(&mut self, me: Claimant, entry: Entry<'_>) {
        match entry {
            Entry::User(user) if self.user_names.remove(user.name(), me) => {
                self.uids.remove(&user.uid, me);
                if let Place::Occupied(mut users) = self.primary.entry((me.0, user.gid)) {
                    *users.get_mut() -= 1;
                    if *users.get() == 0 {
                        users.remove();
                    }
                }
            }
            Entry::User(_) => {}
            Entry::Group(group) => {
                self.group_names.remove(&*group.name, me);
                self.gids.remove(&group.gid, me);
            }
        }
    }

    /// Whether nobody claims anything.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let names = [&self.user_names, &self.group_names].map(Table::is_empty);
        let ids = [&self.uids, &self.gids].map(Table::is_empty);
        names == [true; 2] && ids == [true; 2] && self.primary.is_empty()
    }

    /// Whether a user has its name and its uid for itself, and a primary group that is no one else's.
    pub fn user(&self, me: Claimant, user: &User) -> Result<(), Refusal> {
        if self.gids.first(&user.gid).is_some_and(|(owner, _)| owner < me.0) {
            return Err(Refusal::ForeignGroup(user.gid));
        }
        if let Some(owner) = before(me, self.user_names.first(user.name())) {
            return Err(Refusal::NameTaken(owner));
        }
        if let Some(owner) = before(me, self.uids.first(&user.uid)) {
            return Err(Refusal::IdTaken(Id::Uid, user.uid, owner));
        }
        Ok(())
    }

    /// The same of a group: its name and its gid, which is no earlier domain's user's primary gid.
    pub fn group(&self, me: Claimant, group: &Group) -> Result<(), Refusal> {
        if let Some(owner) = before(me, self.group_names.first(&*group.name)) {
            return Err(Refusal::NameTaken(owner));
        }
        if let Some(owner) = before(me, self.gids.first(&group.gid)) {
            return Err(Refusal::IdTaken(Id::Gid, group.gid, owner));
        }
        if (0..me.0).any(|domain| self.primary.contains_key(&(domain, group.gid))) {
            return Err(Refusal::ForeignMembers(group.gid));
        }
        Ok(())
    }

    /// Who has the user name.
    #[must_use]
    pub fn user_named(&self, name: &[u8]) -> Option<Claimant> {
        self.user_names.first(name)
    }

    /// Who has the uid.
    #[must_use]
    pub fn uid(&self, uid: u32) -> Option<Claimant> {
        self.uids.first(&uid)
    }

    /// Who has the group name.
    #[must_use]
    pub fn group_named(&self, name: &[u8]) -> Option<Claimant> {
        self.group_names.first(name)
    }

    /// Who has the gid.
    #[must_use]
    pub fn gid(&self, gid: u32) -> Option<Claimant> {
        self.gids.first(&gid)
    }
}

/// Whose claim goes before mine, if one does.
fn before((domain, number): Claimant, first: Option<Claimant>) -> Option<Owner> {
    match first {
        Some((owner, _)) if owner < domain => Some(Owner::EarlierDomain),
        Some((owner, other)) if owner == domain && other < number => Some(Owner::SameDomain),
        _ => None,
    }
}

/// Who claims each name, or each id. Nearly always one does.
#[derive(Default)]
struct Table<K> {
    first: HashMap<K, Claimant>,
    /// Those behind the first.
    others: HashMap<K, BTreeSet<Claimant>>,
}

impl<K: Hash + Eq + Clone> Table<K> {
    fn with_capacity(capacity: usize) -> Self {
        Self { first: HashMap::with_capacity(capacity), others: HashMap::new() }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.first.is_empty() && self.others.is_empty()
    }

    fn first<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Claimant>
    where
        K: Borrow<Q>,
    {
        self.first.get(key).copied()
    }

    /// Whether that was not down yet.
    fn add(&mut self, key: K, me: Claimant) -> bool {
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

    /// Whether it was down.
    fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, me: Claimant) -> bool
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
            // Sets that are empty are not kept.
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
