// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a conversion: keys of roster.toml, and the fate of each setting. `sssd` and `nslcd` fill it, and
//! `render` writes it.

use std::fmt;
use std::path::PathBuf;

/// The position of a setting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// The fate of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Keys of Roster have the setting's value, such as `domain.corp.uris`.
    Mapped {
        /// The keys.
        keys: Vec<String>,
    },
    /// Roster needs no counterpart, or has none and loses no restriction.
    Dropped {
        /// A sentence about Roster's behaviour.
        note: String,
    },
    /// The loss of the setting would admit users or serve entries that were excluded before, or the domain cannot be
    /// converted.
    Stopped {
        /// The reason, a clause.
        reason: String,
        /// A sentence with the cure.
        cure: String,
        /// `--without` may leave it out.
        can_be_waived: bool,
    },
    /// `--without` names it.
    Waived {
        /// The reason for which it would have stopped the conversion.
        reason: String,
    },
}

/// A setting and its fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The position. A missing setting has the position of its section's first setting.
    pub origin: Origin,
    /// The section: `domain/corp`, `nss`, or `nslcd`.
    pub section: String,
    /// The name.
    pub setting: String,
    /// The value, without secrets.
    pub value: String,
    /// The fate.
    pub outcome: Outcome,
}

/// A table of roster.toml: keys in order, with their values in TOML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TomlTable(Vec<(String, String)>);

impl TomlTable {
    /// Adds a key, or replaces its value.
    pub fn set(&mut self, key: &str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|(known, _)| known != key);
    }

    /// Returns the value of a key in TOML.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| &**value)
    }

    /// Returns keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Returns whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A password of the old configuration. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the password, for its file.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// One domain of the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainPlan {
    /// The domain's name in roster.toml.
    pub name: String,
    /// The domain comes from `id_provider = ad`.
    pub is_active_directory: bool,
    /// The section that it comes from.
    pub section: String,
    /// `[domain.NAME]`.
    pub keys: TomlTable,
    /// `[domain.NAME.attributes]`.
    pub attributes: TomlTable,
    /// `[domain.NAME.access]`.
    pub access: TomlTable,
    /// The password of the reader. The key `bind_password_file` names its file.
    pub password: Option<Password>,
}

/// The result of a conversion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The files that were read, in order.
    pub sources: Vec<PathBuf>,
    /// `[host]`, without `domains`.
    pub host: TomlTable,
    /// The domains in order of priority.
    pub domains: Vec<DomainPlan>,
    /// `[responder.pam]`.
    pub responder_pam: TomlTable,
    /// `[log]`.
    pub log: TomlTable,
    /// Every setting of the sources.
    pub items: Vec<Item>,
    /// Sentences about the next steps and about behaviour that differs.
    pub notes: Vec<String>,
}

impl Plan {
    /// Returns the settings that stop the conversion.
    pub fn stops(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| matches!(item.outcome, Outcome::Stopped { .. }))
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}

/// The settings that `--without` names, as `SETTING` or `SECTION/SETTING`, and `--ignore-gpo`.
#[derive(Clone, Debug, Default)]
pub struct Waivers {
    names: Vec<(String, bool)>,
    ignores_group_policies: bool,
    were_policies_ignored: bool,
}

impl Waivers {
    /// Returns the waivers of these names.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        let names = names.iter().map(|name| (name.trim().to_ascii_lowercase(), false));
        Self { names: names.collect(), ..Self::default() }
    }

    /// Sets whether the conversion may ignore group policies of Active Directory.
    #[must_use]
    pub fn ignoring_group_policies(self, ignores: bool) -> Self {
        Self { ignores_group_policies: ignores, ..self }
    }

    /// Returns whether group policies may be ignored, and marks that waiver as used.
    pub(crate) fn take_group_policies(&mut self) -> bool {
        self.were_policies_ignored |= self.ignores_group_policies;
        self.ignores_group_policies
    }

    /// Returns whether `--ignore-gpo` stopped nothing.
    #[must_use]
    pub fn has_unused_group_policies(&self) -> bool {
        self.ignores_group_policies && !self.were_policies_ignored
    }

    /// Returns whether a setting is waived, and marks the waiver as used.
    pub(crate) fn take_waiver(&mut self, section: &str, setting: &str) -> bool {
        let qualified = format!("{section}/{setting}").to_ascii_lowercase();
        let mut found = false;
        for (name, used) in &mut self.names {
            if *name == qualified || name.eq_ignore_ascii_case(setting) {
                *used = true;
                found = true;
            }
        }
        found
    }

    /// Returns the names that stopped nothing.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        self.names.iter().filter(|(_, used)| !used).map(|(name, _)| &**name)
    }
}
