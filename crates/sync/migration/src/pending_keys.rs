// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks a converted configuration with rosterd's parser.

use roster_messages::table::tools;
use roster_messages::{CodedError, Severity};

/// Keys that the conversion writes and that the parser of this tree does not know yet. [`check`] leaves their lines out.
/// Remove a key from this list as soon as `roster-config` declares it.
pub const PENDING_KEYS: &[&str] = &[
    "private_groups",
    "allowed_shells",
    "refused_shells",
    "replacement_shell",
    "allow_empty_home",
    "enumerate",
];

/// Values that the parser of this tree does not know yet: key, and a part of the value in TOML.
const PENDING_VALUES: &[(&str, &str)] = &[
    ("home", "%l"),
    ("home", "%f"),
    ("home", "%h"),
    ("fallback_home", "%l"),
    ("fallback_home", "%f"),
    ("fallback_home", "%h"),
];

/// Parses the text as rosterd does. Files that it names need not exist.
///
/// # Errors
///
/// rosterd would reject the text. The error has the first mistakes.
pub fn check(text: &str) -> Result<(), CodedError> {
    let Err(problems) = roster_config::parse(&without_pending_keys(text)) else { return Ok(()) };
    let errors: Vec<String> = problems
        .iter()
        .filter(|problem| problem.severity > Severity::Warning)
        .take(5)
        .map(|problem| format!("line {}: {}", problem.line, problem.without_position()))
        .collect();
    let text = format!("the converted configuration is not valid: {}", errors.join("; "));
    Err(CodedError::new(&tools::MIGRATE_RESULT_INVALID, text))
}

/// Returns a converted configuration without the keys and values that the parser of this tree does not know yet.
#[must_use]
pub fn without_pending_keys(text: &str) -> String {
    text.lines().map(known_line).collect()
}

/// Returns a line without pending keys and values. The numbers of lines stay.
fn known_line(line: &str) -> String {
    let Some((key, value)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) else {
        return format!("{line}\n");
    };
    if PENDING_KEYS.contains(&key) {
        return "\n".to_owned();
    }
    let is_pending = |(pending, part): &&(&str, &str)| {
        *pending == key && if *part == "[" { value.starts_with('[') } else { value.contains(part) }
    };
    match PENDING_VALUES.iter().find(is_pending) {
        Some(_) => "\n".to_owned(),
        None => format!("{line}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_invalid_result_names_line_and_key() {
        let text = "[host]\ndomains = [\"corp\"]\n[domain.corp]\nprovider = \"ldap\"\nenumerate = false\n\
                    base = \"dc=x\"\nuris = [\"ldaps://x\"]\n";
        assert!(check(text).is_ok());
        let error = check(&text.replace("dc=x", "nonsense")).unwrap_err();
        assert!(error.text.contains("line 6: domain.corp.base"), "{error}");
        assert_eq!(error.message.code, tools::MIGRATE_RESULT_INVALID.code);
    }

    #[test]
    fn pending_keys_are_unknown_to_parser() {
        let table = "[host]\ndomains = [\"c\"]\n[domain.c]\nprovider = \"files\"\npasswd = \"/a\"\n\
                     group = \"/b\"\n";
        for key in PENDING_KEYS {
            let text = format!("{table}{key} = true\n[domain.c.access]\n{key} = true\n");
            let problems = roster_config::parse(&text).expect_err(key);
            let of_key =
                problems.iter().filter(|problem| problem.key.ends_with(&format!(".{key}")));
            assert_eq!(of_key.count(), 2, "{key} is declared: remove it from PENDING_KEYS");
        }
    }
}
