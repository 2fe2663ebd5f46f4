// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of keys, commands and fields in an older installation, for tests that `scripts/prove` runs with its programs.
//! `ROSTER_OLD_NAMES` holds pairs `NEW=OLD`, separated by spaces. Without it, each name stays as it is.

use std::sync::OnceLock;

static NAMES: OnceLock<Vec<(String, String)>> = OnceLock::new();

fn names() -> &'static [(String, String)] {
    NAMES.get_or_init(|| {
        let pairs = std::env::var("ROSTER_OLD_NAMES").unwrap_or_default();
        let split = |pair: &str| {
            let (new, old) = pair.split_once('=').expect("ROSTER_OLD_NAMES: NEW=OLD");
            (new.to_owned(), old.to_owned())
        };
        pairs.split_whitespace().map(split).collect()
    })
}

/// The text of a roster.toml with the installation's keys; one key a line.
pub(crate) fn config_of_installation(text: &str) -> String {
    let key = |line: &str| {
        let renamed = names().iter().find_map(|(new, old)| {
            let value = line.strip_prefix(new.as_str())?;
            value.starts_with(" =").then(|| format!("{old}{value}"))
        });
        renamed.unwrap_or_else(|| line.to_owned()) + "\n"
    };
    text.lines().map(key).collect()
}

/// The installation's names of the snapshots of accounts and of password hashes.
#[must_use]
pub fn snapshot_names() -> [&'static str; 2] {
    ["roster.v3.snap", "shadow.v3.snap"].map(word_of_installation)
}

/// The installation's name of a subcommand or any other word of a command line.
pub(crate) fn word_of_installation(word: &str) -> &str {
    names().iter().find(|(new, _)| new == word).map_or(word, |(_, old)| old)
}

/// Output of the installation with the present names of fields of JSON and of subcommands of `roster domain`.
pub(crate) fn with_present_names(output: Vec<u8>) -> Vec<u8> {
    if names().is_empty() {
        return output;
    }
    let text = String::from_utf8_lossy(&output).into_owned();
    let text = names().iter().fold(text, |text, (new, old)| {
        text.replace(&format!("\"{old}\":"), &format!("\"{new}\":"))
            .replace(&format!("roster domain {old}"), &format!("roster domain {new}"))
    });
    text.into_bytes()
}
