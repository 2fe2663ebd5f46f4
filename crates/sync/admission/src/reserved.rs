// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names and ids that local overrides give to entries of a domain. No other entry of the domain may have them, whether
//! the overridden entry exists or not. So the result does not depend on the entries that are known. The publisher
//! applies the overrides (`local_overrides`).

use crate::{Id, Refusal};
use roster_config::{LocalOverrides, NameConfig};
use std::collections::HashSet;

/// The fields of an entry that a local override gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverriddenFields {
    /// The name.
    pub name: bool,
    /// The uid of a user, or the gid of a group.
    pub id: bool,
    /// The primary gid of a user.
    pub primary_gid: bool,
}

/// The reserved names and ids of a domain. Names are in the form in which the domain compares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservedIdentities {
    user_names: HashSet<Vec<u8>>,
    uids: HashSet<u32>,
    group_names: HashSet<Vec<u8>>,
    gids: HashSet<u32>,
}

impl ReservedIdentities {
    /// Returns the names and ids that overrides of a domain give.
    #[must_use]
    pub fn new(overrides: &LocalOverrides, names: &NameConfig) -> Self {
        let key = |name: &String| names.override_key(name.as_bytes()).into_owned();
        let (users, groups) = (overrides.users.values(), overrides.groups.values());
        Self {
            user_names: users.clone().flat_map(|user| &user.name).map(key).collect(),
            uids: users.filter_map(|user| user.uid).collect(),
            group_names: groups.clone().flat_map(|group| &group.name).map(key).collect(),
            gids: groups.filter_map(|group| group.gid).collect(),
        }
    }

    /// Returns whether nothing is reserved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks a user with this name in the compared form.
    pub(crate) fn check_user(
        &self,
        name: &[u8],
        (uid, gid): (u32, u32),
        own: OverriddenFields,
    ) -> Result<(), Refusal> {
        if !own.name && self.user_names.contains(name) {
            return Err(Refusal::NameOverridden);
        }
        if !own.id && self.uids.contains(&uid) {
            return Err(Refusal::IdOverridden(Id::Uid, uid));
        }
        if !own.primary_gid && self.gids.contains(&gid) {
            return Err(Refusal::IdOverridden(Id::PrimaryGid, gid));
        }
        Ok(())
    }

    /// Checks a group with this name in the compared form.
    pub(crate) fn check_group(
        &self,
        name: &[u8],
        gid: u32,
        own: OverriddenFields,
    ) -> Result<(), Refusal> {
        if !own.name && self.group_names.contains(name) {
            return Err(Refusal::NameOverridden);
        }
        if !own.id && self.gids.contains(&gid) {
            return Err(Refusal::IdOverridden(Id::Gid, gid));
        }
        Ok(())
    }
}
