// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks a converted configuration with rosterd's parser.

use roster_messages::table::tools;
use roster_messages::{CodedError, Severity};

/// Parses the text as rosterd does. Files that it names need not exist.
///
/// # Errors
///
/// rosterd would reject the text. The error has the first mistakes.
pub fn check(text: &str) -> Result<(), CodedError> {
    let Err(problems) = roster_config::parse(text) else { return Ok(()) };
    let errors: Vec<String> = problems
        .iter()
        .filter(|problem| problem.severity > Severity::Warning)
        .take(5)
        .map(|problem| format!("line {}: {}", problem.line, problem.without_position()))
        .collect();
    let text = format!("the converted configuration is not valid: {}", errors.join("; "));
    Err(CodedError::new(&tools::MIGRATE_RESULT_INVALID, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_invalid_result_names_line_and_key() {
        let text = "[host]\ndomains = [\"corp\"]\n[domain.corp]\nprovider = \"ldap\"\n\
                    base = \"dc=x\"\nuris = [\"ldaps://x\"]\n";
        assert!(check(text).is_ok());
        let error = check(&text.replace("dc=x", "nonsense")).unwrap_err();
        assert!(error.text.contains("line 5: domain.corp.base"), "{error}");
        assert_eq!(error.message.code, tools::MIGRATE_RESULT_INVALID.code);
    }
}
