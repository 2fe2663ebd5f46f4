//! Many domains into one set of users and groups: what is admitted, in the order of the domains and
//! of their entries, and of two with one name or id the first. Pure.

use super::admit::{Admitted, Id, Locals, Owner, Refusal, Rules};
use super::model::{Domain, Entry, Group, User};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
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
    /// Who has which name and id.
    pub claims: Claims,
}

/// A domain, and the rules for it.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// Its entries.
    pub domain: &'a Domain,
    /// What may be served of them.
    pub rules: &'a Rules,
}

/// Merges. Groups go first: whose a primary gid is decides about its users.
#[must_use]
pub fn merge<'a>(sources: &[Source<'a>], locals: &Locals) -> Merged<'a> {
    let users = sources.iter().map(|source| source.domain.users().count()).sum();
    let groups = sources.iter().map(|source| source.domain.groups().count()).sum();
    let mut merged = Merged {
        users: Vec::with_capacity(users),
        groups: Vec::with_capacity(groups),
        refused: vec![Vec::new(); sources.len()],
        claims: Claims::with_capacity(users, groups),
    };
    for (domain, source) in sources.iter().enumerate() {
        for (number, group) in source.domain.groups() {
            match merged.claims.group(domain, number, group, source.rules, locals) {
                Ok(entry) => merged.groups.push(Served { domain, number, entry }),
                Err(refusal) => merged.refused[domain].push((number, refusal)),
            }
        }
    }
    for (domain, source) in sources.iter().enumerate() {
        for (number, user) in source.domain.users() {
            match merged.claims.user(domain, number, user, source.rules, locals) {
                Ok(entry) => merged.users.push(Served { domain, number, entry }),
                Err(refusal) => merged.refused[domain].push((number, refusal)),
            }
        }
    }
    merged
}

/// An entry: domain by position, and number. The smaller goes before.
pub type Claimant = (usize, u32);

/// Who has which name and id.
#[derive(Default)]
pub struct Claims {
    user_names: HashMap<Box<[u8]>, Claimant>,
    uids: HashMap<u32, Claimant>,
    group_names: HashMap<Box<[u8]>, Claimant>,
    gids: HashMap<u32, Claimant>,
}

impl Claims {
    fn with_capacity(users: usize, groups: usize) -> Self {
        Self {
            user_names: HashMap::with_capacity(users),
            uids: HashMap::with_capacity(users),
            group_names: HashMap::with_capacity(groups),
            gids: HashMap::with_capacity(groups),
        }
    }

    /// Admits a user if nobody who goes before has the name or the uid, and puts the claims down.
    pub fn user<'a>(
        &mut self,
        domain: usize,
        number: u32,
        user: &'a User,
        rules: &Rules,
        locals: &Locals,
    ) -> Result<Admitted<'a, User>, Refusal> {
        let admitted = rules.user(user, locals)?;
        let me = (domain, number);
        if self.gids.get(&user.gid).is_some_and(|(owner, _)| *owner != domain) {
            return Err(Refusal::ForeignGroup(user.gid));
        }
        if let Some(owner) = before(me, self.user_names.get(user.name())) {
            return Err(Refusal::NameTaken(owner));
        }
        if let Some(owner) = before(me, self.uids.get(&user.uid)) {
            return Err(Refusal::IdTaken(Id::Uid, user.uid, owner));
        }
        claim(&mut self.user_names, user.name().into(), me);
        claim(&mut self.uids, user.uid, me);
        Ok(admitted)
    }

    /// The same for a group.
    pub fn group<'a>(
        &mut self,
        domain: usize,
        number: u32,
        group: &'a Group,
        rules: &Rules,
        locals: &Locals,
    ) -> Result<Admitted<'a, Group>, Refusal> {
        let admitted = rules.group(group, locals)?;
        let me = (domain, number);
        if let Some(owner) = before(me, self.group_names.get(&*group.name)) {
            return Err(Refusal::NameTaken(owner));
        }
        if let Some(owner) = before(me, self.gids.get(&group.gid)) {
            return Err(Refusal::IdTaken(Id::Gid, group.gid, owner));
        }
        claim(&mut self.group_names, group.name.clone(), me);
        claim(&mut self.gids, group.gid, me);
        Ok(admitted)
    }

    /// What the entry claimed is free again: it is about to change or to go.
    pub fn release(&mut self, claimant: Claimant, entry: Entry<'_>) {
        match entry {
            Entry::User(user) => {
                free(&mut self.user_names, user.name(), claimant);
                free(&mut self.uids, &user.uid, claimant);
            }
            Entry::Group(group) => {
                free(&mut self.group_names, &*group.name, claimant);
                free(&mut self.gids, &group.gid, claimant);
            }
        }
    }

    /// Whether nobody has the entry's name, or nobody its id.
    #[must_use]
    pub fn is_free(&self, entry: Entry<'_>) -> bool {
        match entry {
            Entry::User(user) => {
                !self.user_names.contains_key(user.name()) || !self.uids.contains_key(&user.uid)
            }
            Entry::Group(group) => {
                !self.group_names.contains_key(&group.name) || !self.gids.contains_key(&group.gid)
            }
        }
    }

    /// Only these keep what they claimed.
    pub fn retain(&mut self, keep: impl Fn(&Claimant) -> bool) {
        self.user_names.retain(|_, claimant| keep(claimant));
        self.uids.retain(|_, claimant| keep(claimant));
        self.group_names.retain(|_, claimant| keep(claimant));
        self.gids.retain(|_, claimant| keep(claimant));
    }

    /// Who has the user name.
    #[must_use]
    pub fn user_named(&self, name: &[u8]) -> Option<Claimant> {
        self.user_names.get(name).copied()
    }

    /// Who has the uid.
    #[must_use]
    pub fn uid(&self, uid: u32) -> Option<Claimant> {
        self.uids.get(&uid).copied()
    }

    /// Who has the group name.
    #[must_use]
    pub fn group_named(&self, name: &[u8]) -> Option<Claimant> {
        self.group_names.get(name).copied()
    }

    /// Who has the gid.
    #[must_use]
    pub fn gid(&self, gid: u32) -> Option<Claimant> {
        self.gids.get(&gid).copied()
    }
}

/// Whose claim goes before mine, if one does.
fn before((domain, number): Claimant, other: Option<&Claimant>) -> Option<Owner> {
    match other {
        Some(&(owner, _)) if owner < domain => Some(Owner::EarlierDomain),
        Some(&(owner, other)) if owner == domain && other < number => Some(Owner::SameDomain),
        _ => None,
    }
}

fn free<K, Q>(claims: &mut HashMap<K, Claimant>, key: &Q, claimant: Claimant)
where
    K: Hash + Eq + Borrow<Q>,
    Q: Hash + Eq + ?Sized,
{
    if claims.get(key) == Some(&claimant) {
        claims.remove(key);
    }
}

/// Puts a claim down that goes before whichever is there.
fn claim<K: Hash + Eq>(claims: &mut HashMap<K, Claimant>, key: K, me: Claimant) {
    match claims.entry(key) {
        MapEntry::Occupied(mut entry) => *entry.get_mut() = me,
        MapEntry::Vacant(entry) => {
            entry.insert(me);
        }
    }
}
