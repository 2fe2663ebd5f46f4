// SPDX-License-Identifier: MIT OR Apache-2.0
//! Account attributes of a directory, and stored credentials: any bytes are parsed or rejected. sshd gets no key that
//! it could read in another way. Ambiguous facts allow no login, and encoding restores the parsed value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_config::{AccessConfig, AccountCheck};
use roster_domain_cache::credentials::StoredCredential;
use roster_domain_cache::password_hash::{MEMORY_KIB_MAX, PASSES_MAX, PasswordHash};
use roster_provider::access::{
    AccessFacts, FilterOutcome, Membership, decide, parse_generalized_time,
};
use roster_provider::account::{Account, AccountFact, FactValue};
use roster_provider::ssh_keys;

fuzz_target!(|bytes: &[u8]| {
    if let Some(account) = Account::from_bytes(bytes) {
        let again = account.to_bytes();
        assert_eq!(Account::from_bytes(&again), Some(account.clone()));
        judge(&account);
    }
    let options = [String::from("from"), String::from("no-pty")];
    if let Ok(line) = ssh_keys::parse_line(bytes, &options) {
        let text = line.as_str();
        assert!(!text.contains(['\n', '\r', '\0']), "one line");
        assert_eq!(
            ssh_keys::parse_line(text.as_bytes(), &options),
            Ok(line.clone()),
            "its own form"
        );
        if ssh_keys::parse_line(bytes, &[]).is_err() {
            let begins = text.to_ascii_lowercase();
            assert!(begins.starts_with("from") || begins.starts_with("no-pty"), "as it came");
        }
    }
    let _ = parse_generalized_time(bytes);
    if let Some(credential) = StoredCredential::from_bytes(bytes) {
        assert_eq!(credential.to_bytes(), bytes);
        let _ = PasswordHash::parse(&credential.hash);
    }
    if let Ok(hash) = std::str::from_utf8(bytes).map(PasswordHash::parse)
        && let Ok(hash) = hash
    {
        let params = hash.params();
        assert!(params.memory_kib <= MEMORY_KIB_MAX && params.passes <= PASSES_MAX);
    }
});

/// A fact with two values, of a kind that has one, allows no login.
fn judge(account: &Account<'_>) {
    // A list of hosts or services may have several values.
    let has_single = |check: &AccountCheck| {
        !matches!(
            check,
            AccountCheck::Host | AccountCheck::AuthorizedService | AccountCheck::RemoteHost
        )
    };
    let checks = AccountCheck::ALL.into_iter().filter(has_single).collect();
    let access = AccessConfig { account_checks: checks, ..AccessConfig::unconfigured() };
    let facts = AccessFacts {
        name: "alice",
        directory_name: "alice",
        service: "sshd",
        remote_host: "",
        host_names: &[],
        now_unix: 1_800_000_000,
        account: Some(account),
        membership: &|_, _| Membership::Unknown,
        filter: "",
        filter_outcome: &FilterOutcome::Now(true),
        changed_day: None,
    };
    let evaluation = decide(&access, &facts);
    let has_list = |fact: &AccountFact| {
        use AccountFact::{AuthorizedService, Host, LockingRole, RemoteHost, SshKey};
        matches!(fact, SshKey | LockingRole | Host | AuthorizedService | RemoteHost)
    };
    let single = AccountFact::ALL.iter().filter(|fact| !has_list(fact));
    for fact in single {
        if account.value_of(*fact) == FactValue::Several {
            assert!(!evaluation.decision.is_allowed(), "{fact:?}");
        }
    }
}
