//! A directory that seems to have lost its people: they are served until somebody says that they are
//! meant to go.

use roster_system_tests::rosterd::{SOON, Source};
use roster_system_tests::{
    Directory, Domain, Rosterd, Schema, Server, Setup, Slapd, wait_for, wait_until,
};
use rustix::process::Signal;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// Long enough for a change to have shown, had it been let through.
const A_WHILE: Duration = Duration::from_secs(3);

const USERS: u32 = 200;

fn directory() -> Directory {
    Directory::new(Schema::Rfc2307)
}

fn served() -> Slapd {
    Slapd::serving(Setup::new(Schema::Rfc2307), &directory().populated(USERS, 40, 5))
}

fn users(rosterd: &Rosterd) -> usize {
    rosterd.host().run("getent", &["-s", "roster", "passwd"]).text().lines().count()
}

#[test]
fn many_deletions_wait_for_a_confirmation_and_a_few_do_not() {
    let slapd = served();
    let mut rosterd = Rosterd::start(&[Domain::ldap("corp", &slapd)]);
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
    let all = users(&rosterd);

    let some: Vec<_> = (0..20).map(|i| directory().user_dn(&format!("u{i}"))).collect();
    slapd.delete(&some);
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
    assert_eq!(users(&rosterd), all - 20);

    // Most of those that are left.
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
    // Those that went before the share was full may be gone.
    assert!(kept > all / 2, "{kept} of {all}");
    let waiting = wait_for(SOON, || rosterd.held_removals("corp"));
    assert!(waiting > 0);

    // A restart is no confirmation.
    rosterd.stop();
    rosterd.launch();
    slapd.change(&directory().user("second", 70_001));
    wait_until(SOON, "it is followed", || rosterd.getent("passwd", "second").is_some());
    sleep(A_WHILE);
    assert!(users(&rosterd) > all / 2, "{} of {all}", users(&rosterd));
    wait_until(SOON, "removals wait", || rosterd.held_removals("corp").is_ok_and(|held| held > 0));

    let confirmed = rosterd.roster(&["domain", "confirm", "corp"]);
    assert_eq!(confirmed.code, 0, "{}", confirmed.error());
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
    wait_until(SOON, "nothing waits", || rosterd.held_removals("corp") == Ok(0));
}

/// A server that was set up anew, or a base that says nothing to this reader any more.
#[test]
fn a_directory_that_returns_empty_loses_nobody() {
    let empty = Slapd::loaded(Setup::new(Schema::Rfc2307), &directory().tree());
    let nothing = empty.save();
    let mut slapd = served();
    let rosterd = Rosterd::start(&[Domain::ldap("corp", &slapd)]);
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
    let all = users(&rosterd);
    slapd.stop();
    let saved = slapd.save();
    slapd.restore(&nothing);
    slapd.start();
    wait_for(SOON, || {
        let waiting = rosterd.held_removals("corp")?;
        if waiting > u64::from(USERS) { Ok(()) } else { Err(format!("{waiting} removals wait")) }
    });
    assert_eq!(users(&rosterd), all);
    // It was a mistake: with the entries back, nothing waits and nothing was lost.
    slapd.stop();
    slapd.restore(&saved);
    slapd.start();
    wait_until(SOON, "nothing waits", || rosterd.held_removals("corp") == Ok(0));
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
}

/// The server ends its answer early, for a limit or by dying: what it did not say is not gone.
#[test]
fn an_enumeration_that_is_cut_short_deletes_nothing() {
    let mut slapd = served();
    let mut rosterd = Rosterd::start(&[Domain::ldap("corp", &slapd)]);
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
    let all = users(&rosterd);
    rosterd.stop();
    slapd.stop();
    slapd.limit(Some(50));
    slapd.start();
    rosterd.launch();
    wait_for(SOON, || {
        let done = rosterd.roster(&["domain", "refresh", "corp"]);
        if done.code == 0 { Ok(()) } else { Err(done.error()) }
    });
    rosterd.expect_of_domain("corp", "online", false);
    assert_eq!(users(&rosterd), all);
    slapd.stop();
    slapd.limit(None);
    slapd.start();
    slapd.change(&directory().user("after", 70_000));
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
    assert_eq!(users(&rosterd), all + 1);
}

/// A base that was mistyped, a cache that was lost beside a directory that was: the back-end begins
/// anew and has nobody, and takes nobody away.
#[test]
fn a_back_end_that_begins_anew_with_nobody_loses_nobody() {
    let slapd = served();
    slapd.change("dn: ou=empty,dc=example,dc=com\nobjectClass: organizationalUnit\nou: empty\n\n");
    let corp = Domain::ldap("corp", &slapd);
    let mut rosterd = Rosterd::start(std::slice::from_ref(&corp));
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
    let all = users(&rosterd);
    let waits = |rosterd: &Rosterd| {
        wait_until(SOON, "removals wait", || {
            rosterd.held_removals("corp").is_ok_and(|held| held > u64::from(USERS))
        });
    };

    let mistyped = corp.clone().with("base", "\"ou=empty,dc=example,dc=com\"");
    rosterd.set_domains(std::slice::from_ref(&mistyped));
    rosterd.process().signal(Signal::HUP);
    waits(&rosterd);
    assert_eq!(users(&rosterd), all);
    // Nor after a restart of everything, with the cache gone as well.
    rosterd.stop();
    fs::remove_dir_all(rosterd.host().path("state/domains")).expect("remove the cache");
    rosterd.launch();
    waits(&rosterd);
    assert_eq!(users(&rosterd), all);

    // It was a mistake.
    rosterd.set_domains(std::slice::from_ref(&corp));
    rosterd.process().signal(Signal::HUP);
    wait_until(SOON, "nothing waits", || rosterd.held_removals("corp") == Ok(0));
    slapd.change(&directory().user("after", 70_000));
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
    assert_eq!(users(&rosterd), all + 1);

    // It is meant.
    rosterd.set_domains(&[mistyped]);
    rosterd.process().signal(Signal::HUP);
    waits(&rosterd);
    let confirmed = rosterd.roster(&["domain", "confirm", "corp"]);
    assert_eq!(confirmed.code, 0, "{}", confirmed.error());
    wait_until(SOON, "they are gone", || users(&rosterd) == 0);
    assert_eq!(rosterd.held_removals("corp"), Ok(0));
}

/// While it waits for the confirmation a publisher that began anew makes no snapshot of what the directory
/// has now. The host's own accounts count all the same.
#[test]
fn a_local_account_displaces_that_of_a_directory_whose_removals_wait_for_a_new_publisher() {
    let slapd = served();
    slapd.change(&directory().user("alice", 5001));
    slapd.change(&directory().group("wheel-corp", 6000, &["alice", "u0"]));
    let corp = Domain::ldap("corp", &slapd);
    let mut rosterd = Rosterd::start(std::slice::from_ref(&corp));
    rosterd.expect_mirror(&[Source::Server(&slapd)]);
    let all = users(&rosterd);

    // Whom the filter leaves out would go, and alice would stay.
    let narrow = corp.with("user_filter", "\"(&(objectClass=posixAccount)(uid=alice))\"");
    rosterd.set_domains(&[narrow]);
    rosterd.process().signal(Signal::HUP);
    let waits = |rosterd: &Rosterd| {
        wait_until(SOON, "removals wait", || {
            rosterd.held_removals("corp").is_ok_and(|held| held >= u64::from(USERS))
        });
    };
    waits(&rosterd);
    rosterd.kill_role("publisher");
    rosterd.wait_for_role("publisher");
    waits(&rosterd);
    wait_until(SOON, "it says what it waits for", || {
        let status = rosterd.status().unwrap_or_default();
        let waits_for = status["snapshot"]["waits_for"].as_str().unwrap_or_default();
        waits_for.contains("are confirmed: roster domain confirm corp")
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
    wait_until(SOON, "alice is local", || rosterd.getent("passwd", "alice").is_none());
    rosterd.expect("group", "wheel-corp", Some("wheel-corp:*:6000:u0"));
    assert_eq!(users(&rosterd), all - 1, "nobody else went");
    let places = rosterd.host().snapshot().with_file_name("roster.places");
    wait_until(SOON, "it is put down what lies where in it", || {
        let status = rosterd.status().unwrap_or_default();
        let places = fs::read_to_string(&places).expect("read");
        places.starts_with(&format!("{}\ncorp {} ", status["snapshot"]["generation"], all - 1))
    });
    // And for the next publisher.
    rosterd.kill_role("publisher");
    rosterd.wait_for_role("publisher");
    waits(&rosterd);
    assert_eq!(users(&rosterd), all - 1);
    assert_eq!(rosterd.getent("passwd", "alice"), None);

    let confirmed = rosterd.roster(&["domain", "confirm", "corp"]);
    assert_eq!(confirmed.code, 0, "{}", confirmed.error());
    wait_until(SOON, "they are gone", || users(&rosterd) == 0);
    rosterd.expect("group", "wheel-corp", Some("wheel-corp:*:6000:"));
    write(&accounts);
    rosterd.expect(
        "passwd",
        "alice",
        Some("alice:*:5001:5001:alice of dc=example,dc=com:/home/alice:/bin/sh"),
    );
    rosterd.expect("group", "wheel-corp", Some("wheel-corp:*:6000:alice"));
}
