// SPDX-License-Identifier: MIT OR Apache-2.0
//! The local overrides of one domain: applied to entries as a backend sends them, and to queries of programs. Pure.
//!
//! A name or uid that an override gives finds the overridden entry alone, because [`ReservedIdentities`] rejects every
//! other one. A query for it is therefore a query for the entry's name in the directory.

use super::model_entry::{ModelGroup, ModelUser, NativeGroup};
use roster_admission::{OverriddenFields, ReservedIdentities};
use roster_config::{GroupOverride, LocalOverrides, NameConfig, UserOverride};
use roster_request::{LookupKind, Query};
use std::collections::HashMap;
use std::sync::Arc;

/// The overrides of a domain. Names are in the form of [`NameConfig::override_key`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DomainOverrides {
    names: NameConfig,
    users: HashMap<Vec<u8>, UserOverride>,
    groups: HashMap<Vec<u8>, GroupOverride>,
    given_to_users: GivenIdentities,
    given_to_groups: GivenIdentities,
    reserved: Arc<ReservedIdentities>,
}

/// The overridden entries, by the names and ids that they have on this host.
#[derive(Debug, Default, PartialEq, Eq)]
struct GivenIdentities {
    names: HashMap<Vec<u8>, Vec<u8>>,
    ids: HashMap<u32, Vec<u8>>,
}

impl DomainOverrides {
    /// Prepares the overrides of a domain with these names.
    #[must_use]
    pub fn new(overrides: LocalOverrides, names: &NameConfig) -> Self {
        let reserved = Arc::new(ReservedIdentities::new(&overrides, names));
        let users = overrides.users.into_iter().map(|(name, user)| (name.into_bytes(), user));
        let groups = overrides.groups.into_iter().map(|(name, group)| (name.into_bytes(), group));
        let (users, groups) = (users.collect(), groups.collect());
        let mut made = Self { names: names.clone(), users, groups, reserved, ..Self::default() };
        for (key, user) in &made.users {
            made.given_to_users.add(names, key, user.name.as_deref(), user.uid);
        }
        for (key, group) in &made.groups {
            made.given_to_groups.add(names, key, group.name.as_deref(), group.gid);
        }
        made
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Returns the names and ids that no other entry may have.
    #[must_use]
    pub fn reserved(&self) -> &Arc<ReservedIdentities> {
        &self.reserved
    }

    /// Returns a user of the directory as this host serves it.
    #[must_use]
    pub fn apply_to_user(&self, native: ModelUser) -> ModelUser {
        match self.users.get(&*self.names.override_key(native.name())) {
            Some(values) => native.overridden(values),
            None => native,
        }
    }

    /// Returns a group of the directory as this host serves it. A group that only nests stays as it is.
    #[must_use]
    pub fn apply_to_group(&self, native: ModelGroup) -> ModelGroup {
        let values = self.groups.get(&*self.names.override_key(&native.name));
        let (Some(values), Some(_)) = (values, native.gid) else { return native };
        let fields = OverriddenFields {
            name: values.name.is_some(),
            id: values.gid.is_some(),
            primary_gid: false,
        };
        let name = values.name.as_ref().map(|name| name.as_bytes().into());
        ModelGroup {
            name: name.unwrap_or_else(|| native.name.clone()),
            gid: values.gid.or(native.gid),
            native: Some(Box::new(NativeGroup { name: native.name, gid: native.gid, fields })),
            ..native
        }
    }

    /// Returns the name under which this host serves a user of the directory.
    #[must_use]
    pub fn user_name<'n>(&'n self, native: &'n [u8]) -> &'n [u8] {
        let values = self.users.get(&*self.names.override_key(native));
        values.and_then(|values| values.name.as_deref()).map_or(native, str::as_bytes)
    }

    /// Returns the name under which this host serves a group of the directory.
    #[must_use]
    pub fn group_name<'n>(&'n self, native: &'n [u8]) -> &'n [u8] {
        let values = self.groups.get(&*self.names.override_key(native));
        values.and_then(|values| values.name.as_deref()).map_or(native, str::as_bytes)
    }

    /// Returns the name in the directory of the user or group with this name on this host.
    #[must_use]
    pub fn native_name<'n>(&'n self, kind: LookupKind, name: &'n [u8]) -> &'n [u8] {
        let given = self.given(kind).names.get(&*self.names.override_key(name));
        given.map_or(name, Vec::as_slice)
    }

    /// Returns the query to the directory for a query about an entry of this host. One for a given id is a query by
    /// name.
    #[must_use]
    pub fn native_request(&self, question: &Query<Vec<u8>>) -> Query<Vec<u8>> {
        let kind = question.kind();
        if kind.is_by_name() {
            let native = self.native_name(kind, question.name());
            return Query::new(kind, native.to_vec(), question.id());
        }
        match self.given(kind).ids.get(&question.id()) {
            Some(native) => Query::new(by_name(kind), native.clone(), 0),
            None => question.clone(),
        }
    }

    /// Returns the query about an entry of this host for a query to the directory by name.
    #[must_use]
    pub fn served_request(&self, question: &Query<Vec<u8>>) -> Query<Vec<u8>> {
        let name = match question.kind() {
            LookupKind::UserByName | LookupKind::GroupsOf => self.user_name(question.name()),
            LookupKind::GroupByName => self.group_name(question.name()),
            LookupKind::UserByUid | LookupKind::GroupByGid => question.name(),
        };
        Query::new(question.kind(), name.to_vec(), question.id())
    }

    /// Returns whether a name is that of an overridden entry in the directory, which has another name on this host, and
    /// no other entry has it.
    #[must_use]
    pub fn hides(&self, question: &Query<Vec<u8>>) -> bool {
        let kind = question.kind();
        if !kind.is_by_name() {
            return false;
        }
        let key = self.names.override_key(question.name());
        let given = match kind {
            LookupKind::GroupByName => self.groups.get(&*key).and_then(|group| group.name.as_ref()),
            _ => self.users.get(&*key).and_then(|user| user.name.as_ref()),
        };
        let is_other = |given: &String| self.names.override_key(given.as_bytes()) != key;
        given.is_some_and(is_other) && !self.given(kind).names.contains_key(&*key)
    }

    /// Returns the overrides that apply to none of these entries: users, then groups, by name.
    #[must_use]
    pub fn unused<'e>(
        &self,
        users: impl Iterator<Item = &'e [u8]>,
        groups: impl Iterator<Item = &'e [u8]>,
    ) -> Vec<(&'static str, &[u8])> {
        let (mut unused_users, mut unused_groups): (Vec<_>, Vec<_>) = (
            self.users.keys().map(Vec::as_slice).collect(),
            self.groups.keys().map(Vec::as_slice).collect(),
        );
        unused_users.sort_unstable();
        unused_groups.sort_unstable();
        let forget = |unused: &mut Vec<&[u8]>, native: &[u8]| {
            if let Ok(place) = unused.binary_search(&&*self.names.override_key(native)) {
                unused.remove(place);
            }
        };
        users.for_each(|native| forget(&mut unused_users, native));
        groups.for_each(|native| forget(&mut unused_groups, native));
        let users = unused_users.into_iter().map(|name| ("user", name));
        users.chain(unused_groups.into_iter().map(|name| ("group", name))).collect()
    }

    fn given(&self, kind: LookupKind) -> &GivenIdentities {
        match kind {
            LookupKind::UserByName | LookupKind::UserByUid | LookupKind::GroupsOf => {
                &self.given_to_users
            }
            LookupKind::GroupByName | LookupKind::GroupByGid => &self.given_to_groups,
        }
    }
}

impl GivenIdentities {
    fn add(&mut self, names: &NameConfig, key: &[u8], name: Option<&str>, id: Option<u32>) {
        let name = name.map(|name| names.override_key(name.as_bytes()).into_owned());
        self.names.extend(name.map(|name| (name, key.to_vec())));
        self.ids.extend(id.map(|id| (id, key.to_vec())));
    }
}

fn by_name(kind: LookupKind) -> LookupKind {
    match kind {
        LookupKind::UserByUid => LookupKind::UserByName,
        LookupKind::GroupByGid => LookupKind::GroupByName,
        LookupKind::UserByName | LookupKind::GroupByName | LookupKind::GroupsOf => kind,
    }
}
