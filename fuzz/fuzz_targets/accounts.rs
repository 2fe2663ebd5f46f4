//! What a directory says of an account, and what is kept of a password: any bytes whatever are read or
//! refused. No key is told to sshd that could be read otherwise, nobody is let in by what nobody understands,
//! and what is written is read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_config::{Access, AccountCheck};
use roster_provider::access::{Facts, Matched, Membership, decide, generalized};
use roster_provider::account::{Account, Fact, One};
use roster_provider::ssh_keys;
use roster_store::credentials::Credential;
use roster_store::password::{Hash, MEMORY_KIB_MAX, PASSES_MAX};

fuzz_target!(|bytes: &[u8]| {
    if let Some(account) = Account::read(bytes) {
        let again = account.to_bytes();
        assert_eq!(Account::read(&again), Some(account.clone()));
        judge(&account);
    }
    let options = [String::from("from"), String::from("no-pty")];
    if let Ok(line) = ssh_keys::line(bytes, &options) {
        let text = line.as_str();
        assert!(!text.contains(['\n', '\r', '\0']), "one line");
        assert_eq!(ssh_keys::line(text.as_bytes(), &options), Ok(line.clone()), "its own form");
        if ssh_keys::line(bytes, &[]).is_err() {
            let begins = text.to_ascii_lowercase();
            assert!(begins.starts_with("from") || begins.starts_with("no-pty"), "as it came");
        }
    }
    let _ = generalized(bytes);
    if let Some(credential) = Credential::from_bytes(bytes) {
        assert_eq!(credential.to_bytes(), bytes);
        let _ = Hash::parse(&credential.hash);
    }
    if let Ok(hash) = std::str::from_utf8(bytes).map(Hash::parse)
        && let Ok(hash) = hash
    {
        let cost = hash.cost();
        assert!(cost.memory_kib <= MEMORY_KIB_MAX && cost.passes <= PASSES_MAX);
    }
});

/// A fact that is there twice, where there can be one, lets nobody in.
fn judge(account: &Account<'_>) {
    let access = Access::unconfigured();
    let facts = Facts {
        name: "alice",
        service: "sshd",
        now_unix: 1_800_000_000,
        account: Some(account),
        membership: &|_| Membership::Unknown,
        matched: &Matched::Now(true),
    };
    let decision = decide(&access, &facts);
    assert_eq!(access.account_checks.len(), AccountCheck::ALL.len());
    let single = Fact::ALL.iter().filter(|fact| !matches!(fact, Fact::SshKey | Fact::LockingRole));
    for fact in single {
        if account.one(*fact) == One::Several {
            assert!(!decision.verdict.lets_in(), "{fact:?}");
        }
    }
}
