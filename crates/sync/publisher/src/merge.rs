// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merges domains into one set of users and groups. Pure.
//!
//! A uid or gid belongs to the first domain, in configured order, that has an entry with it. Within the domain it
//! belongs to the first such entry. A name belongs to the entry that owns it by `name_owners`. An entry without its name
//! is served with its domain. Only entries that pass `roster_admission` count. An entry is served if it owns its id and
//! a name.
//!
//! A primary gid makes a user a member as well. A user is therefore rejected if a higher-priority domain has its
//! primary group. A group is rejected if its gid is the primary gid of a user in a higher-priority domain.
//!
//! A private group is a group with lower priority than those of the directory. Its user has to be served as well. If all
//! users of the domain have one, a user is rejected with its private group.
//!
//! Ownership does not depend on whether another entry is served. So the order in which entries become known does not
//! matter, and a domain takes nothing from a higher-priority domain.

use super::domain_model::{DomainModel, private_group_number, private_group_owner};
use super::model_entry::{ModelEntry, ModelGroup, ModelUser};
use super::name_owners::{EntryOwner, NameClaim, NameOwners, NameScheme, OwnerTable};
use roster_admission::{Admitted, AsGroup as _, Id, Locals, Owner, Refusal, Rules, numeric_value};
use roster_config::PrivateGroups;
use std::collections::hash_map::Entry as Place;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// An entry that is served.
pub struct MergedEntry<'a, T> {
    /// Position of its domain.
    pub domain: usize,
    /// The entry's number there.
    pub number: u32,
    /// The entry.
    pub entry: Admitted<'a, T>,
}

/// The served entries of all domains together.
pub struct MergedDomains<'a> {
    /// Users, domain by domain.
    pub users: Vec<MergedEntry<'a, ModelUser>>,
    /// Groups, domain by domain: those of the directory, then private groups.
    pub groups: Vec<MergedEntry<'a, ModelGroup>>,
    /// By domain, the numbers of rejected entries, with the reasons.
    pub rejected: Vec<Vec<(u32, Refusal)>>,
    /// By domain, the numbers of entries that are served with their domain because another domain has the name.
    pub with_domain: Vec<HashSet<u32>>,
}

/// A domain, and the rules for it.
#[derive(Clone, Copy)]
pub struct DomainSource<'a> {
    /// The domain's entries.
    pub domain: &'a DomainModel,
    /// Rules for the entries that may be served.
    pub rules: &'a Rules,
}

/// Merges domains.
#[must_use]
pub fn merge<'a>(
    sources: &[DomainSource<'a>],
    locals: &Locals,
    scheme: &Arc<NameScheme>,
) -> MergedDomains<'a> {
    let users = sources.iter().map(|source| source.domain.users().count()).sum();
    let groups = sources.iter().map(|source| source.domain.groups().count()).sum();
    let mut merged = MergedDomains {
        users: Vec::with_capacity(users),
        groups: Vec::with_capacity(groups),
        rejected: vec![Vec::new(); sources.len()],
        with_domain: vec![HashSet::new(); sources.len()],
    };
    // All owners of an entry's name and id are known before its check.
    let mut claims = Ownership::with_capacity(users, groups, scheme);
    for (domain, DomainSource { domain: entries, rules }) in sources.iter().enumerate() {
        for (number, group) in entries.groups().filter(|(_, group)| group.gid.is_some()) {
            match rules.group(group, locals) {
                Ok(entry) => {
                    claims.add_group((domain, number), group);
                    merged.groups.push(MergedEntry { domain, number, entry });
                }
                Err(refusal) => merged.rejected[domain].push((number, refusal)),
            }
        }
        for (number, user) in entries.users() {
            match rules.user(user, locals) {
                Ok(entry) => {
                    claims.add_user((domain, number), user);
                    claims.add_private_group((domain, number), user, rules, locals);
                    merged.users.push(MergedEntry { domain, number, entry });
                }
                Err(refusal) => merged.rejected[domain].push((number, refusal)),
            }
        }
    }
    merged.retain_served(sources, locals, &claims);
    merged.add_private_groups(sources, locals, &claims);
    merged
}

impl<'a> MergedDomains<'a> {
    /// Removes entries without their ids or a name.
    fn retain_served(&mut self, sources: &[DomainSource<'a>], locals: &Locals, claims: &Ownership) {
        let Self { users, groups, rejected, with_domain } = self;
        let mut check = |domain: usize, number, served| match served {
            Ok(ServedName::Preferred) => true,
            Ok(ServedName::WithDomain) => with_domain[domain].insert(number),
            Err(refusal) => {
                rejected[domain].push((number, refusal));
                false
            }
        };
        groups.retain_mut(|MergedEntry { domain, number, entry }| {
            let served = claims.check_group((*domain, *number), entry, &sources[*domain], locals);
            check(*domain, *number, served)
        });
        users.retain_mut(|MergedEntry { domain, number, entry }| {
            let served = claims.check_user((*domain, *number), entry, &sources[*domain], locals);
            check(*domain, *number, served)
        });
    }

    /// Adds the private groups of served users. A rejected private group is reported, unless its user is rejected for
    /// another reason.
    fn add_private_groups(
        &mut self,
        sources: &[DomainSource<'a>],
        locals: &Locals,
        claims: &Ownership,
    ) {
        let before = self.groups.len();
        for (domain, source) in sources.iter().enumerate() {
            let refused = self.rejected[domain].iter();
            let refused: HashSet<u32> = refused
                .filter(|(_, refusal)| *refusal != Refusal::PrivateGroup)
                .map(|(number, _)| *number)
                .collect();
            for (number, group) in source.domain.private_groups() {
                if private_group_owner(number).is_some_and(|user| refused.contains(&user)) {
                    continue;
                }
                let checked = source.rules.group(group, locals).and_then(|mut entry| {
                    let me = (domain, number);
                    let served = claims.check_group(me, &mut entry, source, locals)?;
                    Ok((entry, served))
                });
                match checked {
                    Ok((entry, served)) => {
                        if served == ServedName::WithDomain {
                            self.with_domain[domain].insert(number);
                        }
                        self.groups.push(MergedEntry { domain, number, entry });
                    }
                    Err(refusal) => self.rejected[domain].push((number, refusal)),
                }
            }
        }
        if self.groups.len() > before {
            self.groups.sort_by_key(|group| group.domain);
        }
    }
}

/// The name of a served entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedName {
    /// The name that admission chose.
    Preferred,
    /// The name with the domain, because an entry of another domain has the name alone.
    WithDomain,
}

/// Owners of names and ids, among the entries that may be served.
#[derive(Default)]
pub struct Ownership {
    scheme: Arc<NameScheme>,
    user_names: NameOwners,
    uids: OwnerTable<u32>,
    group_names: NameOwners,
    gids: OwnerTable<u32>,
    /// Number of users with a primary gid, by domain and gid.
    primary: HashMap<(usize, u32), u32>,
}

impl Ownership {
    /// Makes an empty table.
    #[must_use]
    pub fn new(scheme: &Arc<NameScheme>) -> Self {
        Self::with_capacity(0, 0, scheme)
    }

    fn with_capacity(users: usize, groups: usize, scheme: &Arc<NameScheme>) -> Self {
        Self {
            scheme: Arc::clone(scheme),
            user_names: NameOwners::with_capacity(users, scheme),
            uids: OwnerTable::with_capacity(users),
            group_names: NameOwners::with_capacity(groups, scheme),
            gids: OwnerTable::with_capacity(groups),
            primary: HashMap::new(),
        }
    }

    /// Records the names and ids of an entry, if it may be served.
    pub fn add(&mut self, me: EntryOwner, entry: ModelEntry<'_>, rules: &Rules, locals: &Locals) {
        match entry {
            ModelEntry::User(user) if rules.user(user, locals).is_ok() => {
                self.add_user(me, user);
                self.add_private_group(me, user, rules, locals);
            }
            ModelEntry::Group(group) if rules.group(group, locals).is_ok() => {
                self.add_group(me, group);
            }
            _ => {}
        }
    }

    fn add_user(&mut self, me: EntryOwner, user: &ModelUser) {
        let name = self.scheme.names(me.0).preferred(user.name());
        if self.user_names.add(&self.scheme, me, &name) {
            self.uids.add(user.uid, me);
            *self.primary.entry((me.0, user.gid)).or_default() += 1;
        }
    }

    /// Records the name and gid of an admitted user's private group, even if a group of the directory replaces it.
    fn add_private_group(
        &mut self,
        user: EntryOwner,
        entry: &ModelUser,
        rules: &Rules,
        locals: &Locals,
    ) {
        if let Some(group) = entry.private_group()
            && rules.group(group, locals).is_ok()
        {
            self.add_group((user.0, private_group_number(user.1)), group);
        }
    }

    fn add_group(&mut self, me: EntryOwner, group: &ModelGroup) {
        let name = self.scheme.names(me.0).preferred(&group.name);
        self.group_names.add(&self.scheme, me, &name);
        self.gids.add(group.gid(), me);
    }

    /// Releases the names and ids of an entry before it changes or is removed. A user's private group goes with it.
    pub fn remove(&mut self, me: EntryOwner, entry: ModelEntry<'_>) {
        match entry {
            ModelEntry::User(user) => {
                if let Some(group) = user.private_group() {
                    self.remove_group((me.0, private_group_number(me.1)), group);
                }
                let name = self.scheme.names(me.0).preferred(user.name());
                if !self.user_names.remove(&self.scheme, me, &name) {
                    return;
                }
                self.uids.remove(&user.uid, me);
                if let Place::Occupied(mut users) = self.primary.entry((me.0, user.gid)) {
                    *users.get_mut() -= 1;
                    if *users.get() == 0 {
                        users.remove();
                    }
                }
            }
            ModelEntry::Group(group) => self.remove_group(me, group),
        }
    }

    fn remove_group(&mut self, me: EntryOwner, group: &ModelGroup) {
        let name = self.scheme.names(me.0).preferred(&group.name);
        self.group_names.remove(&self.scheme, me, &name);
        self.gids.remove(&group.gid(), me);
    }

    /// Whether there are no owners.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let names = [&self.user_names, &self.group_names].map(NameOwners::is_empty);
        let ids = [&self.uids, &self.gids].map(OwnerTable::is_empty);
        names == [true; 2] && ids == [true; 2] && self.primary.is_empty()
    }

    /// Checks that a user owns its uid and a name, and that no higher-priority domain owns its primary group. If
    /// all users of the domain have a private group, it has to be served as well. Gives an entry without its name the
    /// name with the domain.
    pub fn check_user(
        &self,
        me: EntryOwner,
        user: &mut Admitted<'_, ModelUser>,
        source: &DomainSource<'_>,
        locals: &Locals,
    ) -> Result<ServedName, Refusal> {
        let served = self.check_user_alone(me, user, source, locals)?;
        if source.domain.private_group_kind() == PrivateGroups::Always {
            let group = source.domain.private_group(user.entry()).ok_or(Refusal::PrivateGroup)?;
            let group = source.rules.group(group, locals);
            let mut group = group.map_err(|_| Refusal::PrivateGroup)?;
            let number = private_group_number(me.1);
            self.check_private_group((me.0, number), &mut group, served, (source, locals))
                .map_err(|_| Refusal::PrivateGroup)?;
        }
        Ok(served)
    }

    fn check_user_alone(
        &self,
        me: EntryOwner,
        user: &mut Admitted<'_, ModelUser>,
        source: &DomainSource<'_>,
        locals: &Locals,
    ) -> Result<ServedName, Refusal> {
        let entry = user.entry();
        if self.gids.first(&entry.gid).is_some_and(|(owner, _)| owner < me.0) {
            return Err(Refusal::ForeignGroup(entry.gid));
        }
        let claim = self.user_names.claim(&self.scheme, me, user.name());
        if let NameClaim::Taken(owner) = claim {
            return Err(Refusal::NameTaken(owner));
        }
        if let Some(owner) = higher_owner(me, self.uids.first(&entry.uid)) {
            return Err(Refusal::IdTaken(Id::Uid, entry.uid, owner));
        }
        check_number(me, user.name(), &self.uids)?;
        if claim == NameClaim::Owned {
            return Ok(ServedName::Preferred);
        }
        *user = source.rules.qualify_user(user, locals)?;
        self.check_qualified(&self.user_names, me, user.name())
    }

    /// Checks that a group owns its gid and a name. A gid that is a user's primary gid in a higher-priority domain
    /// fails. Gives an entry without its name the name with the domain. A private group fails with its user.
    pub fn check_group(
        &self,
        me: EntryOwner,
        group: &mut Admitted<'_, ModelGroup>,
        source: &DomainSource<'_>,
        locals: &Locals,
    ) -> Result<ServedName, Refusal> {
        let Some(number) = private_group_owner(me.1) else {
            return self.check_group_alone(me, group, source, locals);
        };
        let Some(ModelEntry::User(user)) = source.domain.entry(number) else {
            return Err(Refusal::PrivateGroup);
        };
        let mut user = source.rules.user(user, locals)?;
        let named = self.check_user_alone((me.0, number), &mut user, source, locals)?;
        self.check_private_group(me, group, named, (source, locals))
    }

    /// Checks the private group of a user that is served under a name of this kind. The group gets the same.
    fn check_private_group(
        &self,
        me: EntryOwner,
        group: &mut Admitted<'_, ModelGroup>,
        user: ServedName,
        (source, locals): (&DomainSource<'_>, &Locals),
    ) -> Result<ServedName, Refusal> {
        let gid = group.entry().gid();
        // A rejected group of the directory owns no gid, and still has it.
        if source.domain.has_gid(gid) {
            return Err(Refusal::IdTaken(Id::Gid, gid, Owner::SameDomain));
        }
        let served = self.check_group_alone(me, group, source, locals)?;
        if (user, served) != (ServedName::WithDomain, ServedName::Preferred) {
            return Ok(served);
        }
        *group = source.rules.qualify_group(group, locals)?;
        self.check_qualified(&self.group_names, me, group.name())
    }

    fn check_group_alone(
        &self,
        me: EntryOwner,
        group: &mut Admitted<'_, ModelGroup>,
        source: &DomainSource<'_>,
        locals: &Locals,
    ) -> Result<ServedName, Refusal> {
        let gid = group.entry().gid();
        let claim = self.group_names.claim(&self.scheme, me, group.name());
        if let NameClaim::Taken(owner) = claim {
            return Err(Refusal::NameTaken(owner));
        }
        if let Some(owner) = higher_owner(me, self.gids.first(&gid)) {
            return Err(Refusal::IdTaken(Id::Gid, gid, owner));
        }
        if (0..me.0).any(|domain| self.primary.contains_key(&(domain, gid))) {
            return Err(Refusal::ForeignMembers(gid));
        }
        check_number(me, group.name(), &self.gids)?;
        if claim == NameClaim::Owned {
            return Ok(ServedName::Preferred);
        }
        *group = source.rules.qualify_group(group, locals)?;
        self.check_qualified(&self.group_names, me, group.name())
    }

    /// Checks that no other entry of the domain has the name with the domain as its own name. Other domains cannot have
    /// such a name.
    fn check_qualified(
        &self,
        names: &NameOwners,
        me: EntryOwner,
        name: &[u8],
    ) -> Result<ServedName, Refusal> {
        match names.in_domain(&self.scheme, me.0, name) {
            Some(owner) if owner != me => Err(Refusal::NameTaken(Owner::SameDomain)),
            _ => Ok(ServedName::WithDomain),
        }
    }

    /// Returns the owner of a user name: of a domain at a position, or without a domain.
    #[must_use]
    pub fn user_name_owner(&self, domain: Option<usize>, name: &[u8]) -> Option<EntryOwner> {
        match domain {
            Some(position) => self.user_names.in_domain(&self.scheme, position, name),
            None => self.user_names.owner(&self.scheme, name),
        }
    }

    /// Returns the owner of a uid.
    #[must_use]
    pub fn uid_owner(&self, uid: u32) -> Option<EntryOwner> {
        self.uids.first(&uid)
    }

    /// Returns the owner of a group name: of a domain at a position, or without a domain.
    #[must_use]
    pub fn group_name_owner(&self, domain: Option<usize>, name: &[u8]) -> Option<EntryOwner> {
        match domain {
            Some(position) => self.group_names.in_domain(&self.scheme, position, name),
            None => self.group_names.owner(&self.scheme, name),
        }
    }

    /// Returns the owner of a gid.
    #[must_use]
    pub fn gid_owner(&self, gid: u32) -> Option<EntryOwner> {
        self.gids.first(&gid)
    }
}

/// Checks that a name of digits is not the id of another entry.
fn check_number(me: EntryOwner, name: &[u8], ids: &OwnerTable<u32>) -> Result<(), Refusal> {
    let id = numeric_value(name).and_then(|value| u32::try_from(value).ok());
    match id.and_then(|id| ids.first(&id)) {
        Some(owner) if owner != me => Err(Refusal::NumberIsId),
        _ => Ok(()),
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
