// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory that seems to have lost its users. They are served until an administrator approves their removal.

use roster_system_tests::rosterd::{OracleSource, SOON};
use roster_system_tests::{
    DirectoryServer, DomainTable, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions, wait_for,
    wait_until,
};
use rustix::process::Signal;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// Long enough for a change to have shown, had it been let through.
const A_WHILE: Duration = Duration::from_secs(3);

const USERS: u32 = 200;

fn directory() -> LdifBuilder {
    LdifBuilder::new(Schema::Rfc2307)
}

fn served() -> Slapd {
    Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &directory().populated(USERS, 40, 5))
}

fn users(rosterd: &Rosterd) -> usize {
    rosterd.host().run("getent", &["-s", "roster", "passwd"]).text().lines().count()
}

#[test]
fn many_deletions_wait_for_a_confirmation_and_a_few_do_not() {
    let slapd = served();
    let mut rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    let all = users(&rosterd);

    let some: Vec<_> = (0..20).map(|i| directory().user_dn(&format!("u{i}"))).collect();
    slapd.delete(&some);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    assert_eq!(users(&rosterd), all - 20);

    // Most of the remaining users.
    let most: Vec<_> = (20..180).map(|i| directory().user_dn(&format!("u{i}"))).collect();
    slapd.delete(&most);
    slapd.change(&directory().user("newcomer", 70_000));
    rosterd.expect(
        "passwd",
        "newcomer",
        Some("newcomer:*:70000:70000:newcomer of dc=example,dc=com:/home/newcomer:/bin/sh"),
    );
    sleep(A_WHILE);
    let kept = users(&rosterd);
    // Users that were removed before the share was full may be gone.
    assert!(kept > all / 2, "{kept} of {all}");
    let waiting = wait_for(SOON, || rosterd.pending_removals("corp"));
    assert!(waiting > 0);

    // A restart does not confirm removals.
    rosterd.stop();
    rosterd.launch();
    slapd.change(&directory().user("second", 70_001));
    wait_until(SOON, "it is followed", || rosterd.getent("passwd", "second").is_some());
    sleep(A_WHILE);
    assert!(users(&rosterd) > all / 2, "{} of {all}", users(&rosterd));
    wait_until(SOON, "removals wait", || {
        rosterd.pending_removals("corp").is_ok_and(|held| held > 0)
    });

    let confirmed = rosterd.roster(&["domain", "approve-removals", "corp"]);
    assert_eq!(confirmed.code, 0, "{}", confirmed.error());
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    wait_until(SOON, "nothing waits", || rosterd.pending_removals("corp") == Ok(0));
}

/// A server that was set up again, or a base that this reader cannot read any more.
#[test]
fn a_directory_that_returns_empty_loses_nobody() {
    let empty = Slapd::loaded(SlapdOptions::new(Schema::Rfc2307), &directory().tree());
    let nothing = empty.save();
    let mut slapd = served();
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    let all = users(&rosterd);
    slapd.stop();
    let saved = slapd.save();
    slapd.restore(&nothing);
    slapd.start();
    wait_for(SOON, || {
        let waiting = rosterd.pending_removals("corp")?;
        if waiting > u64::from(USERS) { Ok(()) } else { Err(format!("{waiting} removals wait")) }
    });
    assert_eq!(users(&rosterd), all);
    // It was a mistake: with the entries back, nothing waits and nothing was lost.
    slapd.stop();
    slapd.restore(&saved);
    slapd.start();
    wait_until(SOON, "nothing waits", || rosterd.pending_removals("corp") == Ok(0));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
}

/// The server ends its answer early, for a limit or by dying: missing entries are not gone.
#[test]
fn an_enumeration_that_is_cut_short_deletes_nothing() {
    let mut slapd = served();
    let mut rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    let all = users(&rosterd);
    rosterd.stop();
    slapd.stop();
    slapd.set_size_limit(Some(50));
    slapd.start();
    rosterd.launch();
    wait_for(SOON, || {
        let done = rosterd.roster(&["domain", "refresh", "corp"]);
        if done.code == 0 { Ok(()) } else { Err(done.error()) }
    });
    rosterd.expect_domain_status("corp", "online", false);
    assert_eq!(users(&rosterd), all);
    slapd.stop();
    slapd.set_size_limit(None);
    slapd.start();
    slapd.change(&directory().user("after", 70_000));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    assert_eq!(users(&rosterd), all + 1);
}

/// A base with a typing error, or a cache that was lost beside a directory that was. The backend begins again without
/// users, and removes none.
#[test]
fn a_back_end_that_begins_anew_with_nobody_loses_nobody() {
    let slapd = served();
    slapd.change("dn: ou=empty,dc=example,dc=com\nobjectClass: organizationalUnit\nou: empty\n\n");
    let corp = DomainTable::ldap("corp", &slapd);
    let mut rosterd = Rosterd::start(std::slice::from_ref(&corp));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    let all = users(&rosterd);
    let waits = |rosterd: &Rosterd| {
        wait_until(SOON, "removals wait", || {
            rosterd.pending_removals("corp").is_ok_and(|held| held > u64::from(USERS))
        });
    };

    let mistyped = corp.clone().with("base", "\"ou=empty,dc=example,dc=com\"");
    rosterd.set_domains(std::slice::from_ref(&mistyped));
    rosterd.process().signal(Signal::HUP);
    waits(&rosterd);
    assert_eq!(users(&rosterd), all);
    // The same holds after a restart of everything, with the cache gone as well.
    rosterd.stop();
    fs::remove_dir_all(rosterd.host().path("state/domains")).expect("remove the cache");
    rosterd.launch();
    waits(&rosterd);
    assert_eq!(users(&rosterd), all);

    // It was a mistake.
    rosterd.set_domains(std::slice::from_ref(&corp));
    rosterd.process().signal(Signal::HUP);
    wait_until(SOON, "nothing waits", || rosterd.pending_removals("corp") == Ok(0));
    slapd.change(&directory().user("after", 70_000));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    assert_eq!(users(&rosterd), all + 1);

    // It is meant.
    rosterd.set_domains(&[mistyped]);
    rosterd.process().signal(Signal::HUP);
    waits(&rosterd);
    let confirmed = rosterd.roster(&["domain", "approve-removals", "corp"]);
    assert_eq!(confirmed.code, 0, "{}", confirmed.error());
    wait_until(SOON, "they are gone", || users(&rosterd) == 0);
    assert_eq!(rosterd.pending_removals("corp"), Ok(0));
}

/// While it waits for the confirmation a new publisher serves the last snapshot as it is. New local accounts count
/// with the next one.
#[test]
fn held_removal_keeps_last_snapshot_after_restart() {
    let slapd = served();
    slapd.change(&directory().user("alice", 5001));
    slapd.change(&directory().group("wheel-corp", 6000, &["alice", "u0"]));
    let corp = DomainTable::ldap("corp", &slapd);
    let mut rosterd = Rosterd::start(std::slice::from_ref(&corp));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    let all = users(&rosterd);

    // Users outside the filter would be removed, and alice would stay.
    let narrow = corp.with("user_filter", "\"(&(objectClass=posixAccount)(uid=alice))\"");
    rosterd.set_domains(&[narrow]);
    rosterd.process().signal(Signal::HUP);
    let waits = |rosterd: &Rosterd| {
        wait_until(SOON, "removals wait", || {
            rosterd.pending_removals("corp").is_ok_and(|held| held >= u64::from(USERS))
        });
    };
    waits(&rosterd);
    rosterd.kill_role("publisher");
    rosterd.wait_for_role("publisher");
    waits(&rosterd);
    wait_until(SOON, "it says what it waits for", || {
        let status = rosterd.status().unwrap_or_default();
        let waits_for = status["snapshot"]["waiting_for"].as_str().unwrap_or_default();
        waits_for.contains("are confirmed: roster domain approve-removals corp")
    });
    rosterd.expect_groups("alice", 5001, &[5001, 6000]);

    let passwd = rosterd.host().path("etc/passwd");
    let accounts = fs::read_to_string(&passwd).expect("read");
    let fresh = rosterd.host().path("etc/fresh");
    let write = |text: &str| {
        fs::write(&fresh, text).expect("write");
        fs::rename(&fresh, &passwd).expect("rename");
    };
    write(&format!("{accounts}alice:x:1700:1700::/home/alice:/bin/sh\n"));
    sleep(A_WHILE);
    assert_eq!(users(&rosterd), all, "the last snapshot is served as it is");

    let confirmed = rosterd.roster(&["domain", "approve-removals", "corp"]);
    assert_eq!(confirmed.code, 0, "{}", confirmed.error());
    wait_until(SOON, "they are gone", || users(&rosterd) == 0);
    assert_eq!(rosterd.getent("passwd", "alice"), None, "alice is local");
    rosterd.expect("group", "wheel-corp", Some("wheel-corp:*:6000:"));
    write(&accounts);
    rosterd.expect(
        "passwd",
        "alice",
        Some("alice:*:5001:5001:alice of dc=example,dc=com:/home/alice:/bin/sh"),
    );
    rosterd.expect("group", "wheel-corp", Some("wheel-corp:*:6000:alice"));
}
