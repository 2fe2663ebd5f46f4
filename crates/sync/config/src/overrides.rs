// SPDX-License-Identifier: MIT OR Apache-2.0
//! Local overrides: values of single users and groups that replace those of the directory.
//!
//! They are in tables `[domain.NAME.override.user.USER]` of the configuration, or in tables `[user.USER]` of the file
//! `overrides_file`. The publisher applies them. This module reads the tables of both forms with the same rules.

use crate::NameConfig;
use crate::keys::{self, ConfigTable};
use crate::toml_section::{LoadReport, TableEntry, TomlSection, bare_or_quoted, entry};
use roster_messages::CodedError;
use roster_messages::table::config as codes;
use roster_names::{compose, fold};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use toml::de::DeTable;

/// The overrides of a domain, by the names of the entries in the directory. Names are in the form in which the domain
/// compares them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalOverrides {
    /// By name of the user.
    pub users: BTreeMap<String, UserOverride>,
    /// By name of the group.
    pub groups: BTreeMap<String, GroupOverride>,
}

/// The local overrides of a domain in the configuration, and the path of its file with further ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverridesConfig {
    /// The overrides in the configuration.
    pub entries: LocalOverrides,
    /// The file with further ones.
    pub file: Option<PathBuf>,
    /// No override may give a uid or a gid, as in an on-demand domain. If the directory has two entries of one name, the
    /// first lookup would decide which entry gets the id.
    pub refuses_ids: bool,
}

/// Values of a user. `None` keeps the directory's value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserOverride {
    /// User name.
    pub name: Option<String>,
    /// User id.
    pub uid: Option<u32>,
    /// Primary group id.
    pub gid: Option<u32>,
    /// GECOS.
    pub gecos: Option<String>,
    /// Home directory.
    pub home: Option<String>,
    /// Login shell.
    pub shell: Option<String>,
}

/// Values of a group. `None` keeps the directory's value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupOverride {
    /// Group name.
    pub name: Option<String>,
    /// Group id.
    pub gid: Option<u32>,
}

impl LocalOverrides {
    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Returns the names in the directory that find no entry on this host, because an override gives the entry another
    /// name, each with that name. The keys are in the form of [`NameConfig::override_key`].
    pub(crate) fn replaced_names(&self, names: &NameConfig, is_user: bool) -> BTreeMap<&str, &str> {
        let users = self.users.iter().map(|(key, user)| (key, &user.name));
        let groups = self.groups.iter().map(|(key, group)| (key, &group.name));
        let all: Vec<_> = if is_user { users.collect() } else { groups.collect() };
        let given = all.iter().filter_map(|(_, given)| given.as_deref());
        let given: BTreeSet<String> = given.map(|given| names.override_key_text(given)).collect();
        let replaced = all.into_iter().filter(|(key, _)| !given.contains(*key));
        replaced.filter_map(|(key, given)| Some((&**key, given.as_deref()?))).collect()
    }
}

impl OverridesConfig {
    /// Fails if an override gives a uid or a gid, and none may.
    pub(crate) fn check_ids(&self, found: &LocalOverrides) -> Result<(), CodedError> {
        let users = found.users.iter();
        let user = users.filter(|(_, user)| user.uid.is_some() || user.gid.is_some());
        let group = found.groups.iter().filter(|(_, group)| group.gid.is_some());
        let mut names = user.map(|(name, _)| name).chain(group.map(|(name, _)| name));
        match names.next().filter(|_| self.refuses_ids) {
            Some(name) => {
                let text = format!(
                    "the override of {name} gives an id, which requires mode = \"replicate\""
                );
                Err(CodedError::new(&codes::OVERRIDE_ID_ON_DEMAND, text))
            }
            None => Ok(()),
        }
    }
}

impl NameConfig {
    /// Returns the name of an entry in the form in which overrides are compared: composed and folded if the domain
    /// ignores case.
    #[must_use]
    pub fn override_key<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        match self.case.ignores_case() {
            true => Cow::Owned(fold(&compose(name)).into_owned()),
            false => Cow::Borrowed(name),
        }
    }

    fn override_key_text(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.override_key(name.as_bytes())).into_owned()
    }
}

/// Reads the subtable `override` of a domain.
pub(crate) fn local_overrides(
    section: &mut TomlSection<'_, '_, '_, '_>,
    names: &NameConfig,
) -> LocalOverrides {
    let path = section.key_path("override");
    let found = section.subtable("override");
    let Some((place, value)) = found else { return LocalOverrides::default() };
    // A mistake such as override = "alice" is reported as for any table.
    let kind = ConfigTable::OverrideUser;
    drop(TomlSection::new(section.report, kind, &path, Some((place, value))));
    let Some(table) = value.get_ref().as_table() else { return LocalOverrides::default() };
    let none = LocalOverrides::default();
    let mut reader = OverrideReader::new(section.report, names, &none, "");
    reader.read_tables(table, &format!("{path}."));
    reader.found
}

/// Reads tables with overrides.
pub(crate) struct OverrideReader<'c, 'r, 't> {
    report: &'r mut LoadReport<'t>,
    names: &'c NameConfig,
    /// Overrides that were read before, from the configuration.
    configured: &'c LocalOverrides,
    /// The table of those.
    elsewhere: &'c str,
    /// All overrides so far.
    pub found: LocalOverrides,
    user_values: GivenValues,
    group_values: GivenValues,
}

/// The names and ids that overrides of one kind of entry give.
#[derive(Default)]
struct GivenValues {
    names: BTreeSet<String>,
    ids: BTreeSet<u32>,
}

impl GivenValues {
    /// Adds values. Returns the text of one that another override has, too.
    fn add(
        &mut self,
        config: &NameConfig,
        name: Option<&String>,
        (noun, id): (&str, Option<u32>),
    ) -> Option<(&'static str, String)> {
        let name = name.filter(|name| !self.names.insert(config.override_key_text(name)));
        let shared_id = id.filter(|id| !self.ids.insert(*id));
        let key = if noun == "uid" { "uid" } else { "gid" };
        let by_id = || shared_id.map(|id| (key, format!("another override has {noun} {id}, too")));
        name.map(|name| ("name", format!("another override has the name {name:?}, too")))
            .or_else(by_id)
    }
}

impl<'c, 'r, 't> OverrideReader<'c, 'r, 't> {
    pub fn new(
        report: &'r mut LoadReport<'t>,
        names: &'c NameConfig,
        configured: &'c LocalOverrides,
        elsewhere: &'c str,
    ) -> Self {
        let (mut user_values, mut group_values) = (GivenValues::default(), GivenValues::default());
        for user in configured.users.values() {
            user_values.add(names, user.name.as_ref(), ("uid", user.uid));
        }
        for group in configured.groups.values() {
            group_values.add(names, group.name.as_ref(), ("gid", group.gid));
        }
        let found = configured.clone();
        Self { report, names, configured, elsewhere, found, user_values, group_values }
    }

    /// Reads the tables `user` and `group`. Their paths begin with `prefix`.
    pub fn read_tables(&mut self, table: &DeTable<'_>, prefix: &str) {
        for (key, _) in table {
            let name = &**key.get_ref();
            if !matches!(name, "user" | "group") {
                let error = CodedError::new(&codes::UNKNOWN_TABLE, "is not a table of overrides");
                let path = format!("{prefix}{}", bare_or_quoted(name));
                let fix = "Write [user.NAME] or [group.NAME], and the keys below.";
                self.report.error(&key.span(), &path, error.fix(fix));
            }
        }
        for (kind, name) in
            [(ConfigTable::OverrideUser, "user"), (ConfigTable::OverrideGroup, "group")]
        {
            let Some((place, value)) = entry(table, name) else { continue };
            let path = format!("{prefix}{name}");
            drop(TomlSection::new(self.report, kind, &path, Some((place, value))));
            for (key, value) in value.get_ref().as_table().into_iter().flatten() {
                let native = &**key.get_ref();
                let path = format!("{path}.{}", bare_or_quoted(native));
                self.read_entry(kind, native, &path, (key.span(), value));
            }
        }
    }

    fn read_entry(
        &mut self,
        kind: ConfigTable,
        native: &str,
        path: &str,
        found: TableEntry<'_, '_>,
    ) {
        let is_user = kind == ConfigTable::OverrideUser;
        let place = found.0.clone();
        let key = self.names.override_key_text(native);
        let has = |overrides: &LocalOverrides| match is_user {
            true => overrides.users.contains_key(&key),
            false => overrides.groups.contains_key(&key),
        };
        let (is_configured, is_twice) = (has(self.configured), has(&self.found));
        let mut section = TomlSection::new(self.report, kind, path, Some(found));
        let shared = if is_user {
            let user = user_override(&mut section);
            check_values(&mut section, user == UserOverride::default(), &place, path);
            let shared = self.user_values.add(self.names, user.name.as_ref(), ("uid", user.uid));
            self.found.users.entry(key).or_insert(user);
            shared
        } else {
            let group = group_override(&mut section);
            check_values(&mut section, group == GroupOverride::default(), &place, path);
            let shared = self.group_values.add(self.names, group.name.as_ref(), ("gid", group.gid));
            self.found.groups.entry(key).or_insert(group);
            shared
        };
        if is_twice {
            let kind = if is_user { "user" } else { "group" };
            let text = match is_configured {
                true => format!(
                    "{native:?} has an override in [{}.{kind}.{}] of the configuration, too",
                    self.elsewhere,
                    bare_or_quoted(native)
                ),
                false => format!("another override of {native:?} differs by case only"),
            };
            self.report.error(&place, path, CodedError::new(&codes::OVERRIDE_TWICE, text));
        } else if let Some((key, text)) = shared {
            let error = CodedError::new(&codes::OVERRIDES_SHARE_VALUE, text);
            self.report.error(&place, &format!("{path}.{key}"), error);
        }
    }
}

fn user_override(section: &mut TomlSection<'_, '_, '_, '_>) -> UserOverride {
    UserOverride {
        name: section.optional_value(&keys::OVERRIDE_USER_NAME),
        uid: section.optional_value(&keys::OVERRIDE_USER_UID),
        gid: section.optional_value(&keys::OVERRIDE_USER_GID),
        gecos: section.optional_value(&keys::OVERRIDE_USER_GECOS),
        home: section.optional_value(&keys::OVERRIDE_USER_HOME),
        shell: section.optional_value(&keys::OVERRIDE_USER_SHELL),
    }
}

fn group_override(section: &mut TomlSection<'_, '_, '_, '_>) -> GroupOverride {
    GroupOverride {
        name: section.optional_value(&keys::OVERRIDE_GROUP_NAME),
        gid: section.optional_value(&keys::OVERRIDE_GROUP_GID),
    }
}

/// Reports unknown keys, and a table without keys.
fn check_values(
    section: &mut TomlSection<'_, '_, '_, '_>,
    is_empty: bool,
    place: &Range<usize>,
    path: &str,
) {
    let before = section.report.problems.len();
    section.reject_unknown_keys(None);
    let is_reported = section.report.problems.len() > before;
    if is_empty && !is_reported && section.is_empty() {
        let error = CodedError::new(&codes::OVERRIDE_EMPTY, "the override has no key");
        section.report.error(place, path, error);
    }
}
