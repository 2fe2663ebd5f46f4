// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups without gidNumber: their members are in the groups around them, they are not served, and access rules name
//! them. Mirrored and on demand, with the directory and without it.

use roster_system_tests::pam::{self, FIRST_LOGIN_UID};
use roster_system_tests::rosterd::SOON;
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, needs_root, wait_for,
};
use serde_json::Value;

const RULES: &str = r#"
[domain.corp.access]
allowed_groups = ["role"]

[domain.corp.access.service.cron]
denied_groups = ["inner"]
"#;

fn directory() -> LdifBuilder {
    LdifBuilder::new(Schema::Rfc2307)
}

/// A group without gidNumber.
fn nested(name: &str, members: &[String]) -> String {
    let members: String = members.iter().map(|dn| format!("member: {dn}\n")).collect();
    let dn = directory().group_dn(name);
    format!("dn: {dn}\nobjectClass: groupOfNames\ncn: {name}\n{members}\n")
}

/// alice and bob are in `outer` and `role`, bob through `inner`.
fn slapd() -> Slapd {
    let slapd = pam::slapd_with_users(&["alice", "bob", "carol"]);
    let directory = directory();
    let [alice, bob] = ["alice", "bob"].map(|name| directory.user_dn(name));
    let [inner, role] = ["inner", "role"].map(|name| directory.group_dn(name));
    slapd.change(&nested("role", &[alice, inner]));
    slapd.change(&nested("inner", &[bob]));
    // extensibleObject allows members by DN, which posixGroup of RFC 2307 does not have.
    slapd.change(&format!(
        "dn: {}\nobjectClass: extensibleObject\nobjectClass: posixGroup\ncn: outer\n\
         gidNumber: 30000\nmember: {role}\n\n",
        directory.group_dn("outer")
    ));
    slapd
}

fn with_mode(domain: DomainTable, mode: &str) -> DomainTable {
    let domain = domain.with("mode", &format!("\"{mode}\"")).with("connect_timeout", "\"1s\"");
    if mode == "on-demand" { domain.with("refresh_interval", "\"1s\"") } else { domain }
}

/// Makes carol a member of `inner`.
fn add_carol(slapd: &Slapd) {
    slapd.change(&format!(
        "dn: {}\nchangetype: modify\nadd: member\nmember: {}\n-\n\n",
        directory().group_dn("inner"),
        directory().user_dn("carol")
    ));
}

/// Waits until users of these verdicts may log in, by `roster access`.
#[track_caller]
fn expect_access(rosterd: &Rosterd, service: &str, allowed: [bool; 3]) {
    for (user, allowed) in ["alice", "bob", "carol"].into_iter().zip(allowed) {
        wait_for(SOON, || {
            let told = rosterd.roster(&["access", user, "--service", service, "--json"]);
            let said: Value = serde_json::from_slice(&told.stdout).map_err(|_| told.error())?;
            if said["allowed"] == allowed { Ok(()) } else { Err(format!("{user}: {said}")) }
        });
    }
}

#[test]
fn nested_groups_count_for_lists() {
    for mode in ["replicate", "on-demand"] {
        let slapd = slapd();
        let rosterd = Rosterd::start(&[with_mode(DomainTable::ldap("corp", &slapd), mode)]);
        let (alice, bob) = (FIRST_LOGIN_UID, FIRST_LOGIN_UID + 1);
        rosterd.expect("group", "outer", Some("outer:*:30000:alice,bob"));
        rosterd.expect_groups("bob", bob, &[bob, 30_000]);
        rosterd.expect_groups("alice", alice, &[alice, 30_000]);
        for key in ["role", "inner", "0", "4294967295"] {
            rosterd.expect("group", key, None);
        }
        let status = rosterd.domain("corp").expect("a status");
        assert_eq!((&status["nested_groups"], &status["parse_errors"]), (&2.into(), &0.into()));
        let shown = rosterd.roster(&["domain", "show", "corp"]).text();
        assert!(shown.contains("2 groups without gid, for nesting and access rules"), "{shown}");
        let rejected = rosterd.roster(&["domain", "rejected", "corp"]).text();
        assert!(!rejected.contains("role") && !rejected.contains("inner"), "{rejected}");
        let shown = rosterd.roster(&["cache", "show", "group", "role"]).stdout;
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains("[RST-5720]"), "{shown}");
        add_carol(&slapd);
        rosterd.expect("group", "outer", Some("outer:*:30000:alice,bob,carol"));
    }
}

#[test]
fn nested_groups_count_for_rules() {
    if !needs_root() {
        return;
    }
    for mode in ["replicate", "on-demand"] {
        let mut slapd = slapd();
        let mut rosterd = pam::start_daemon(&[with_mode(pam::domain(&slapd), mode)], RULES);
        pam::wait_until_user_known(&rosterd, "alice");
        expect_access(&rosterd, "sshd", [true, true, false]);
        expect_access(&rosterd, "cron", [true, false, false]);
        add_carol(&slapd);
        expect_access(&rosterd, "sshd", [true, true, true]);
        pam::stop_server(&mut slapd, &rosterd);
        expect_access(&rosterd, "sshd", [true, true, true]);
        expect_access(&rosterd, "cron", [true, false, false]);
        pam::restart(&mut rosterd, "alice");
        expect_access(&rosterd, "sshd", [true, true, true]);
        expect_access(&rosterd, "cron", [true, false, false]);
    }
}

/// A filter and the attributes of members limit which of them count.
#[test]
fn nested_group_filter_selects_them() {
    let slapd = slapd();
    let domain = DomainTable::ldap("corp", &slapd).with("nested_group_filter", "\"(cn=role)\"");
    let rosterd = Rosterd::start(&[domain]);
    rosterd.expect("group", "outer", Some("outer:*:30000:alice"));
    assert_eq!(rosterd.domain("corp").expect("a status")["nested_groups"], 1);
    let domain = DomainTable::ldap("corp", &slapd).with("member_attributes", "[\"memberUid\"]");
    let rosterd = Rosterd::start(&[domain]);
    rosterd.expect("group", "outer", Some("outer:*:30000:"));
    assert_eq!(rosterd.domain("corp").expect("a status")["nested_groups"], 0);
}
