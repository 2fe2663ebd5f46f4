// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes that a server does not report.

use roster_system_tests::rosterd::{OracleSource, SOON};
use roster_system_tests::{
    DirectoryServer, DomainTable, Ds389, LdifBuilder, Rosterd, Schema, Slapd, SlapdOptions,
    wait_until,
};
use std::thread::sleep;
use std::time::Duration;

/// A container of a class that the search cannot name comes into the base with entries in it.
#[test]
fn full_refresh_publishes_changed_entries() {
    let directory = LdifBuilder::new(Schema::Rfc2307);
    let far = "dn: l=far,dc=example,dc=com\nobjectClass: locality\nl: far\n\n";
    let mover = directory.user("mover", 4000).replace("ou=people,", "l=far,");
    let ldif = directory.populated(20, 5, 3);
    let slapd =
        Slapd::serving(SlapdOptions::new(Schema::Rfc2307), &format!("{ldif}\n{far}{mover}"));
    let domain = DomainTable::ldap("corp", &slapd)
        .with("user_base", "\"ou=people,dc=example,dc=com\"")
        .with("full_refresh_interval", "\"3s\"");
    let rosterd = Rosterd::start(&[domain]);
    wait_until(SOON, "it is mirrored", || rosterd.getent("passwd", "u1").is_some());
    let refreshed = || rosterd.domain("corp").ok()?["last_refresh_unix"].as_u64();
    let sequence = || rosterd.domain("corp").ok()?["sequence"].as_u64();
    wait_until(SOON, "it is current", || sequence() == Some(2) || sequence() == Some(1));
    let (first, before) = (sequence(), refreshed());
    wait_until(SOON, "it is read anew", || refreshed() > before);
    wait_until(SOON, "and again", || refreshed() > before.map(|unix| unix + 3));
    assert_eq!(sequence(), first, "nothing is another, and nothing is published");
    assert_eq!(rosterd.getent("passwd", "mover"), None);
    slapd.rename("l=far,dc=example,dc=com", "l=far", Some("ou=people,dc=example,dc=com"));
    wait_until(SOON, "who came is served", || rosterd.getent("passwd", "mover").is_some());
}

const BASE: &str = "dc=example,dc=com";
/// The backend's log line when it requests a re-read of lists.
const READ_ANEW: &str = "re-reading groups that may have changed";

fn log_debug(rosterd: &Rosterd) {
    let done = rosterd.roster(&["log-level", "debug"]);
    assert_eq!(done.code, 0, "{}", done.error());
}

/// Users in groups; the group `around` has nested groups.
fn served(refint: bool) -> (LdifBuilder, Slapd) {
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    let mut ldif = directory.populated(40, 5, 3);
    for (group, gid) in [("within", 7000), ("beside", 7001)] {
        let users: Vec<_> = (0..12).map(|i| format!("u{i}")).collect();
        ldif.push('\n');
        ldif.push_str(&directory.group(group, gid, &users));
    }
    ldif.push('\n');
    ldif.push_str(&directory.group_of_groups("around", 7002, &["u20"], &["within"]));
    let mut setup = SlapdOptions::new(Schema::Rfc2307bis);
    setup.refint = refint;
    (directory, Slapd::serving(setup, &ldif))
}

/// Waits until no list of the server names this DN any more.
fn wait_for_refint(slapd: &Slapd, dn: &str) {
    let named = || slapd.search(BASE, &format!("(member={dn})"), &["cn"]);
    wait_until(SOON, "the lists are mended", || !String::from_utf8_lossy(&named()).contains("cn:"));
}

#[test]
fn lists_that_a_server_mends_without_a_word_are_read_anew() {
    let (directory, slapd) = served(true);
    let mut rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    let user = |name: &str| directory.user_dn(name);
    let delete = |name: &str| {
        slapd.delete(&[user(name)]);
        wait_for_refint(&slapd, &user(name));
    };
    let rename = |dn: String, rdn: &str| {
        slapd.rename(&dn, rdn, None);
        wait_for_refint(&slapd, &dn);
    };

    log_debug(&rosterd);
    // Another user gets the DN, at once or after the lists were read.
    delete("u1");
    slapd.change(&directory.user("u1", 50_001));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    rosterd.expect_groups("u1", 50_001, &[50_001]);
    rename(user("u2"), "uid=v2");
    rename(directory.group_dn("within"), "cn=inside");
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);

    assert!(rosterd.log().contains(READ_ANEW), "{}", rosterd.log());

    // While no daemon follows.
    rosterd.stop();
    delete("u3");
    rename(user("u4"), "uid=v4");
    slapd.change(&directory.user("u3", 50_003));
    rosterd.launch();
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);

    // The backend has reported it, and has no time to read the lists.
    delete("u5");
    wait_until(SOON, "it is told", || rosterd.getent("passwd", "u5").is_none());
    rosterd.kill_role("backend:corp");
    rename(user("u6"), "uid=v6");
    rosterd.kill_role("backend:corp");
    slapd.change(&directory.user("u5", 50_005));
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
}

/// A list may also name an entry that no domain serves, and the server changes that as silently.
#[test]
fn lists_of_who_comes_are_read_anew() {
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    let people = "ou=people,dc=example,dc=com";
    let user = |name: &str| directory.user_dn(name);
    let person = format!("dn: {}\nobjectClass: inetOrgPerson\nuid: p\ncn: p\nsn: p\n", user("p"));
    let off = |name: &str, uid| directory.user(name, uid).replace("/bin/sh", "/bin/false");
    let away = directory.user("away", 5003).replace("ou=people,", "ou=pending,");
    let admins = directory
        .group("admins", 7000, &["u1", "p", "off", "renamed", "away"])
        .replace("uid=away,ou=people,", "uid=away,ou=pending,");
    let pending =
        "dn: ou=pending,dc=example,dc=com\nobjectClass: organizationalUnit\nou: pending\n";
    let mut setup = SlapdOptions::new(Schema::Rfc2307bis);
    setup.refint = true;
    let before =
        [&*directory.populated(5, 2, 2), &person, &off("off", 5001), &off("renamed", 5002)];
    let ldif = [&before[..], &[pending, &away, &admins]].concat().join("\n");
    let slapd = Slapd::serving(setup, &ldif);
    let domain = DomainTable::ldap("corp", &slapd)
        .with("user_base", &format!("\"{people}\""))
        .with("user_filter", "\"(&(objectClass=posixAccount)(!(loginShell=/bin/false)))\"");
    let rosterd = Rosterd::start(&[domain]);
    let admins_are = |members: &str| {
        rosterd.expect("group", "admins", Some(&format!("admins:*:7000:{members}")));
    };
    admins_are("u1");

    // Removed from the list while they were not served; then other users get their names.
    for (name, uid) in [("p", 6000), ("off", 6001)] {
        slapd.delete(&[user(name)]);
        wait_for_refint(&slapd, &user(name));
        slapd.change(&directory.user(name, uid));
        rosterd.expect_groups(name, uid, &[uid]);
    }
    // Renamed in the list before they were served.
    slapd.rename(&user("renamed"), "uid=back", None);
    wait_for_refint(&slapd, &user("renamed"));
    slapd.set(&user("back"), "loginShell", &["/bin/sh"]);
    admins_are("u1,back");
    let dn = "uid=away,ou=pending,dc=example,dc=com";
    slapd.rename(dn, "uid=away", Some(people));
    wait_for_refint(&slapd, dn);
    admins_are("u1,back,away");
}

#[test]
fn lists_that_nobody_mends_stay_and_who_is_in_none_costs_no_search() {
    let (directory, slapd) = served(false);
    slapd.change(&directory.user("loner", 50_000));
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &slapd)]);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
    // Groups with members that a server computes are searched for two seconds after a connection was made.
    sleep(Duration::from_secs(3));
    let before = slapd.searches();
    slapd.delete(&[directory.user_dn("loner")]);
    wait_until(SOON, "it is told", || rosterd.getent("passwd", "loner").is_none());
    sleep(Duration::from_secs(3));
    assert_eq!(slapd.searches(), before);
    slapd.delete(&[directory.user_dn("u1")]);
    wait_until(SOON, "lists are read", || slapd.searches() > before);
    slapd.change(&directory.user("u1", 50_001));
    slapd.rename(&directory.user_dn("u2"), "uid=v2", None);
    rosterd.expect_mirror(&[OracleSource::Server(&slapd)]);
}

/// The Referential Integrity plug-in of 389 Directory Server reports the lists that it repairs.
#[test]
fn lists_that_389ds_mends_are_told_of() {
    let directory = LdifBuilder::new(Schema::Rfc2307bis);
    let server = Ds389::with_referential_integrity(&directory.populated(40, 5, 3));
    let rosterd = Rosterd::start(&[DomainTable::ldap("corp", &server)]);
    rosterd.expect_mirror(&[OracleSource::Server(&server)]);
    log_debug(&rosterd);
    let group = directory.group_dn("g1");
    server.set(&group, "member", &[&*directory.user_dn("u1"), &*directory.user_dn("u2")]);
    rosterd.expect_mirror(&[OracleSource::Server(&server)]);
    server.delete(&[directory.user_dn("u1")]);
    rosterd.expect_mirror(&[OracleSource::Server(&server)]);
    sleep(Duration::from_secs(3));
    assert!(!rosterd.log().contains(READ_ANEW), "{}", rosterd.log());
    server.change(&directory.user("u1", 50_001));
    server.rename(&directory.user_dn("u2"), "uid=v2", None);
    rosterd.expect_mirror(&[OracleSource::Server(&server)]);
}
