// SPDX-License-Identifier: MIT OR Apache-2.0
//! The effective configuration: every key with its value and its origin.
//!
//! `toml_section` records the settings. This module only formats them, for `roster check-config --explain`.

use std::fmt;
use std::path::PathBuf;

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// A line of a file.
    Line {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The default.
    Default,
    /// Derived from other keys, with a description.
    Follows(&'static str),
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(f, "{}:{line}", file.display()),
            Self::Default => f.write_str("default"),
            Self::Follows(how) => f.write_str(how),
        }
    }
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// Path of its table, such as `domain.corp`.
    pub table: String,
    /// Name of the key.
    pub key: &'static str,
    /// The value in TOML. `None` if it is not set.
    pub value: Option<String>,
    /// The origin of the value.
    pub origin: ValueOrigin,
}

/// Formats an equivalent file with every key. Keys without a value are comments.
pub fn explain(settings: &[EffectiveSetting]) -> String {
    let mut text = String::new();
    let mut tables: Vec<&str> = Vec::new();
    for setting in settings {
        if !tables.contains(&&*setting.table) {
            tables.push(&setting.table);
        }
    }
    for table in tables {
        let here = || settings.iter().filter(|setting| setting.table == table);
        let written: Vec<(String, String)> = here()
            .map(|EffectiveSetting { key, value, origin, .. }| match (value, origin) {
                (Some(value), origin) => (format!("{key} = {value}"), origin.to_string()),
                (None, ValueOrigin::Follows(how)) => (format!("# {key}"), (*how).to_owned()),
                (None, _) => (format!("# {key}"), "not set".to_owned()),
            })
            .collect();
        // Long values do not determine the column of the comments.
        let width = written.iter().map(|(line, _)| line.chars().count()).filter(|&len| len <= 44);
        let width = width.max().unwrap_or_default();
        text += &format!("{}[{table}]\n", if text.is_empty() { "" } else { "\n" });
        for (line, remark) in written {
            text += &format!("{line:<width$}  # {remark}\n");
        }
    }
    text
}
