// SPDX-License-Identifier: MIT OR Apache-2.0
//! The defaults that depend on `schema` and `id_mapping`: filters, names of attributes, case, homes and intervals.
//!
//! `domain` reads the keys. This module only has the values, and rejects keys that contradict the schema.

use crate::keys::{self, ConfigKey};
use crate::toml_section::TomlSection;
use roster_messages::CodedError;
use roster_messages::table::config as codes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The schema of an LDAP directory, and the source of ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DirectorySchema {
    /// POSIX attributes. `rfc2307` and `rfc2307bis` differ in attributes with members alone.
    #[default]
    Posix,
    /// Active Directory with POSIX attributes.
    ActiveDirectoryPosix,
    /// Active Directory with ids that are computed from SIDs.
    ActiveDirectorySids,
}

impl DirectorySchema {
    /// Returns the schema of a domain, before its keys are read.
    pub(crate) fn from_section(section: &TomlSection<'_, '_, '_, '_>) -> Self {
        let is_ldap = section.has_text(&keys::DOMAIN_PROVIDER, "ldap");
        if !is_ldap || !section.has_text(&keys::LDAP_SCHEMA, "ad") {
            return Self::Posix;
        }
        match section.has_text(&keys::LDAP_ID_MAPPING, "posix") {
            true => Self::ActiveDirectoryPosix,
            false => Self::ActiveDirectorySids,
        }
    }

    /// Returns whether the server is Active Directory.
    #[must_use]
    pub fn is_active_directory(self) -> bool {
        self != Self::Posix
    }

    /// Returns whether ids are computed from SIDs.
    #[must_use]
    pub fn maps_sids(self) -> bool {
        self == Self::ActiveDirectorySids
    }

    pub(crate) fn case(self) -> &'static str {
        if self.is_active_directory() { "insensitive" } else { "sensitive" }
    }

    pub(crate) fn fallback_home(self) -> Option<String> {
        self.is_active_directory().then(|| "/home/%d/%u".to_owned())
    }

    pub(crate) fn fallback_shell(self) -> Option<String> {
        self.is_active_directory().then(|| "/bin/bash".to_owned())
    }

    pub(crate) fn member_attributes(self) -> Vec<String> {
        let names: &[&str] = match self {
            Self::Posix => &["memberUid", "member", "uniqueMember"],
            _ => &["member"],
        };
        names.iter().copied().map(str::to_owned).collect()
    }

    pub(crate) fn user_filter(self) -> String {
        let filter = match self {
            Self::Posix => "(objectClass=posixAccount)",
            Self::ActiveDirectoryPosix => {
                "(&(objectClass=user)(sAMAccountType=805306368)(uidNumber=*))"
            }
            Self::ActiveDirectorySids => "(&(objectClass=user)(sAMAccountType=805306368))",
        };
        filter.to_owned()
    }

    pub(crate) fn group_filter(self) -> String {
        match self {
            Self::Posix => "(objectClass=posixGroup)".to_owned(),
            Self::ActiveDirectoryPosix => format!("(&{SECURITY_GROUPS}(gidNumber=*))"),
            Self::ActiveDirectorySids => SECURITY_GROUPS.to_owned(),
        }
    }

    pub(crate) fn nested_group_filter(self) -> String {
        let filter = match self {
            Self::Posix => {
                "(|(objectClass=posixGroup)(objectClass=groupOfNames)\
                 (objectClass=groupOfUniqueNames)(objectClass=groupOfMembers))"
            }
            _ => SECURITY_GROUPS,
        };
        filter.to_owned()
    }

    pub(crate) fn poll_interval(self) -> Duration {
        Duration::from_secs(if self.is_active_directory() { 1 } else { 30 })
    }

    pub(crate) fn reconcile_interval(self) -> Duration {
        Duration::from_secs(60 * if self.is_active_directory() { 5 } else { 15 })
    }

    /// Returns the default of an attribute that Active Directory has under another name.
    pub(crate) fn attribute(self, key: &ConfigKey) -> String {
        let names = match key.name {
            "user_name" => ["uid", "sAMAccountName", "sAMAccountName"],
            "user_uid" => ["uidNumber", "uidNumber", "objectSid"],
            "user_gid" => ["gidNumber", "gidNumber", "primaryGroupID"],
            "user_home" => ["homeDirectory", "unixHomeDirectory", "unixHomeDirectory"],
            "group_name" => ["cn", "sAMAccountName", "sAMAccountName"],
            _ => ["gidNumber", "gidNumber", "objectSid"],
        };
        let [posix, of_directory, of_sids] = names;
        let name = match self {
            Self::Posix => posix,
            Self::ActiveDirectoryPosix => of_directory,
            Self::ActiveDirectorySids => of_sids,
        };
        name.to_owned()
    }

    /// Rejects keys of a domain that contradict Active Directory.
    pub(crate) fn check_domain(self, section: &mut TomlSection<'_, '_, '_, '_>) {
        if !self.is_active_directory() {
            return;
        }
        if section.has_text(&keys::DOMAIN_MODE, "on-demand") {
            let text = "schema = \"ad\" requires mode = \"replicate\"";
            section.error(&keys::DOMAIN_MODE, CodedError::new(&codes::AD_ON_DEMAND, text));
        }
        let has_private_groups = section.has(&keys::DOMAIN_PRIVATE_GROUPS)
            && !section.has_text(&keys::DOMAIN_PRIVATE_GROUPS, "off");
        if has_private_groups {
            let text = "has no place beside the primary groups of Active Directory";
            let error = CodedError::new(&codes::AD_PRIVATE_GROUPS, text);
            section.error(&keys::DOMAIN_PRIVATE_GROUPS, error);
        }
    }

    /// Rejects names of attributes for ids that come from SIDs.
    pub(crate) fn check_attributes(self, section: &mut TomlSection<'_, '_, '_, '_>) {
        let ids: [&ConfigKey; 3] =
            [&keys::ATTRIBUTE_USER_UID, &keys::ATTRIBUTE_USER_GID, &keys::ATTRIBUTE_GROUP_GID];
        for key in ids.into_iter().filter(|_| self.maps_sids()) {
            if section.has(key) {
                let text = "contradicts id_mapping = \"sid\"";
                section.error(key, CodedError::new(&codes::AD_ID_ATTRIBUTE, text));
            }
        }
    }
}

/// Global, universal and domain-local security groups (MS-SAMR 2.2.1.9), without the builtin ones of each computer
/// (MS-ADTS 2.2.12).
const SECURITY_GROUPS: &str = "(&(objectClass=group)\
     (|(sAMAccountType=268435456)(sAMAccountType=536870912))(!(groupType=-2147483643)))";
