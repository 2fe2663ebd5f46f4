// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment of a command: the variables of its user and caller, and those that the rule keeps. `rule_match`
//! selects them.

use crate::exec::Account;
use crate::rootwrap_conf::SECURE_PATH;
use std::ffi::OsString;

/// Returns the environment of a command that runs for a caller as an account.
pub(super) fn build_environment(
    account: &Account,
    caller: (u32, &str),
    kept: &[(OsString, OsString)],
) -> Vec<(OsString, OsString)> {
    let (uid, name) = caller;
    // A rule may keep these variables of the caller, but not those that name the caller.
    let own: [(&str, OsString); 5] = [
        ("PATH", SECURE_PATH.into()),
        ("HOME", account.home.clone().into()),
        ("SHELL", account.shell.clone().into()),
        ("USER", account.name.clone().into()),
        ("LOGNAME", account.name.clone().into()),
    ];
    let told = [("ROSTER_USER", name.into()), ("ROSTER_UID", uid.to_string().into())];
    let is_kept = |wanted: &str| kept.iter().any(|(name, _)| name == wanted);
    let mut environment: Vec<(OsString, OsString)> = Vec::new();
    for (name, value) in own.into_iter().filter(|(name, _)| !is_kept(name)).chain(told) {
        environment.push((name.into(), value));
    }
    for (name, value) in kept {
        // The first of two variables with one name counts, as in getenv(3).
        if !environment.iter().any(|(known, _)| known == name) {
            environment.push((name.clone(), value.clone()));
        }
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_knows_its_user_its_caller_and_what_was_kept() {
        let account = Account::for_tests("bob", "/home/bob");
        let kept = [("HOME", "/x"), ("LC_ALL", "C"), ("ROSTER_USER", "root"), ("LC_ALL", "D")]
            .map(|(name, value)| (name.into(), value.into()));
        let environment = build_environment(&account, (7, "alice"), &kept);
        let of = |name: &str| -> Vec<&str> {
            let found = environment.iter().filter(|(known, _)| known == name);
            found.map(|(_, value)| value.to_str().unwrap()).collect()
        };
        assert_eq!(
            (of("USER"), of("LOGNAME"), of("PATH")),
            (vec!["bob"], vec!["bob"], vec![SECURE_PATH])
        );
        assert_eq!((of("HOME"), of("LC_ALL")), (vec!["/x"], vec!["C"]));
        assert_eq!((of("ROSTER_USER"), of("ROSTER_UID")), (vec!["alice"], vec!["7"]));
    }
}
