// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections of the merged configuration, and the conversion that gives each setting its fate. `settings` has the table
//! of settings, and `plan` the results.

use super::secrets::{HIDDEN, is_secret};
use crate::plan::{Item, Origin, Outcome, Plan, Waivers};
use crate::values;
use std::collections::{BTreeMap, BTreeSet};

/// A setting with its position.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub name: String,
    pub value: String,
    pub origin: Origin,
}

impl Setting {
    /// Returns the value for output. The value of a secret never leaves the parser.
    fn shown(&self, section: &str) -> String {
        if is_secret(section, &self.name) { HIDDEN.to_owned() } else { self.value.clone() }
    }

    /// Returns the setting without its value, which may be a secret under a misspelt name.
    pub(crate) fn without_value(&self) -> Self {
        Self { value: HIDDEN.to_owned(), ..self.clone() }
    }
}

/// A section. The last one of equal names counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    pub name: String,
    settings: BTreeMap<String, Setting>,
    used: BTreeSet<String>,
}

impl Section {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    pub(crate) fn insert(&mut self, setting: Setting) {
        self.settings.insert(setting.name.clone(), setting);
    }

    /// Returns a setting, and marks it as handled.
    pub(crate) fn take_setting(&mut self, name: &str) -> Option<Setting> {
        let found = self.settings.get(name)?.clone();
        self.used.insert(found.name.clone());
        Some(found)
    }

    /// Returns a setting that is not marked yet, and marks it.
    pub(crate) fn take_unused(&mut self, name: &str) -> Option<Setting> {
        if self.used.contains(name) { None } else { self.take_setting(name) }
    }

    /// Returns a setting without marking it.
    pub(crate) fn peek(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(|setting| &*setting.value)
    }

    /// Returns the settings that no code handled.
    pub(crate) fn rest(&self) -> Vec<Setting> {
        let unused = |setting: &&Setting| !self.used.contains(&setting.name);
        self.settings.values().filter(unused).cloned().collect()
    }

    /// Returns the position of its first setting.
    pub(crate) fn origin(&self) -> Origin {
        let first = self.settings.values().map(|setting| &setting.origin).min();
        first.cloned().unwrap_or(Origin { file: "sssd.conf".into(), line: 1 })
    }

    /// Returns a missing setting with the value that SSSD uses without it.
    pub(crate) fn default_setting(&self, name: &str, value: &str) -> Setting {
        let value = format!("{value} (default)");
        Setting { name: name.to_owned(), value, origin: self.origin() }
    }
}

/// A conversion in progress.
pub(crate) struct Conversion<'w> {
    pub plan: Plan,
    pub waivers: &'w mut Waivers,
}

impl Conversion<'_> {
    fn push(&mut self, section: &str, setting: &Setting, outcome: Outcome) {
        let same = |item: &&mut Item| {
            item.origin == setting.origin && item.section == section && item.setting == setting.name
        };
        match (self.plan.items.iter_mut().find(same), outcome) {
            (
                Some(Item { outcome: Outcome::Mapped { keys }, .. }),
                Outcome::Mapped { keys: new },
            ) => {
                keys.extend(new.into_iter().filter(|key| !keys.contains(key)).collect::<Vec<_>>());
            }
            // A stop stays if another domain converts the setting. A key stays beside a note.
            (Some(Item { outcome: Outcome::Stopped { .. }, .. }), _)
            | (Some(Item { outcome: Outcome::Mapped { .. }, .. }), Outcome::Dropped { .. }) => {}
            (Some(item), outcome) => item.outcome = outcome,
            (None, outcome) => self.plan.items.push(Item {
                origin: setting.origin.clone(),
                section: section.to_owned(),
                setting: setting.name.clone(),
                value: setting.shown(section),
                outcome,
            }),
        }
    }

    /// Records that a key has the value of a setting.
    pub(crate) fn mapped(&mut self, section: &str, setting: &Setting, key: impl Into<String>) {
        self.push(section, setting, Outcome::Mapped { keys: vec![key.into()] });
    }

    /// Records that a setting has no counterpart and needs none.
    pub(crate) fn dropped(&mut self, section: &str, setting: &Setting, note: impl Into<String>) {
        self.push(section, setting, Outcome::Dropped { note: note.into() });
    }

    /// Records that the loss of a setting would open the host. `--without` may name the setting.
    pub(crate) fn stop(&mut self, section: &str, setting: &Setting, reason: &str, cure: &str) {
        let outcome = if self.waivers.take_waiver(section, &setting.name) {
            Outcome::Waived { reason: reason.to_owned() }
        } else {
            Outcome::Stopped {
                reason: reason.to_owned(),
                cure: cure.to_owned(),
                can_be_waived: true,
            }
        };
        self.push(section, setting, outcome);
    }

    /// Records that group policies of Active Directory would not count. `--ignore-gpo` accepts that.
    pub(crate) fn stop_for_group_policies(
        &mut self,
        section: &str,
        setting: &Setting,
        reason: &str,
        cure: &str,
    ) {
        if self.waivers.take_group_policies() {
            let outcome = Outcome::Waived { reason: reason.to_owned() };
            self.push(section, setting, outcome);
        } else {
            self.fail(section, setting, reason, cure);
        }
    }

    /// Records that the domain cannot be converted.
    pub(crate) fn fail(&mut self, section: &str, setting: &Setting, reason: &str, cure: &str) {
        let outcome = Outcome::Stopped {
            reason: reason.to_owned(),
            cure: cure.to_owned(),
            can_be_waived: false,
        };
        self.push(section, setting, outcome);
    }

    /// Records that a section lacks a setting without which it cannot be converted.
    pub(crate) fn missing(&mut self, section: &Section, name: &str, reason: &str, cure: &str) {
        let setting = Setting {
            name: name.to_owned(),
            value: "(missing)".to_owned(),
            origin: section.origin(),
        };
        self.fail(&section.name, &setting, reason, cure);
    }

    /// Converts a search filter.
    pub(crate) fn filter(
        &mut self,
        section: &str,
        setting: &Setting,
        text: &str,
    ) -> Option<String> {
        let filter = values::checked_filter(text);
        if let Err(mistake) = &filter {
            self.fail(section, setting, mistake, "Write one filter (RFC 4515).");
        }
        filter.ok()
    }

    /// Reads `true` or `false`.
    pub(crate) fn flag(&mut self, section: &str, setting: &Setting) -> Option<bool> {
        match &*setting.value.to_ascii_lowercase() {
            "true" | "yes" | "1" | "on" => Some(true),
            "false" | "no" | "0" | "off" => Some(false),
            _ => {
                self.fail(
                    section,
                    setting,
                    "the value is neither true nor false",
                    "Write true or false.",
                );
                None
            }
        }
    }

    /// Reads a whole number, decimal or with 0x.
    pub(crate) fn number(&mut self, section: &str, setting: &Setting) -> Option<u64> {
        let value = &*setting.value;
        let number = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => value.parse().ok(),
        };
        if number.is_none() {
            self.fail(section, setting, "the value is not a whole number", "Write a whole number.");
        }
        number
    }
}
