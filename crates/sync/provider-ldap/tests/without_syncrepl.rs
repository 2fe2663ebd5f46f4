// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers without content synchronization.

mod common;

use common::{Book, Mirror, domain, keys, secrets};
use roster_messages::table::directory;
use roster_provider::{EntryId, Provider};
use roster_request::TrackingMethod;
use roster_system_tests::{DirectoryServer, LdifBuilder, Schema, Slapd, SlapdOptions};
use std::time::Duration;

const SCHEMA: Schema = Schema::Rfc2307bis;

#[test]
fn changes_are_polled_for_where_nothing_better_is_offered() {
    let directory = LdifBuilder::new(SCHEMA);
    let setup = SlapdOptions { syncprov: false, ..SlapdOptions::new(SCHEMA) };
    // More than a page of them.
    let slapd = Slapd::serving(setup, &directory.populated(600, 50, 10));
    for part_of_users in ["(objectClass=posixAccount)", "(&(objectClass=posixAccount)(uid=*))"] {
        let mut domain = domain(&slapd);
        keys(&mut domain).users.filter = part_of_users.to_owned();
        let mirror = Mirror::start(&domain, &secrets(None));
        mirror.until("all users", |book| book.users().len() >= 600 && book.groups().len() >= 50);
        assert_eq!(mirror.ldap.tracking_method(), Some(TrackingMethod::Polling));
        slapd.change(&directory.user("zoe", 9001));
        mirror.until("zoe", |book| book.users().contains_key("zoe"));
        slapd.set(&directory.user_dn("zoe"), "loginShell", &["/bin/zsh"]);
        mirror.until("her shell", |book| book.users()["zoe"].shell == "/bin/zsh");
        slapd.rename(&directory.user_dn("zoe"), "uid=zoey", None);
        mirror.until("zoe is zoey", |book| book.users().contains_key("zoey"));
        slapd.delete(&[directory.user_dn("zoey")]);
        mirror.until("a sweep finds her gone", |book| !book.users().contains_key("zoey"));
        assert!(mirror.book.users().len() >= 600, "and nobody else");
    }
}

#[test]
fn a_change_that_a_replica_brings_in_late_is_found_by_the_sweep() {
    let directory = LdifBuilder::new(SCHEMA);
    let setup = SlapdOptions { syncprov: false, ..SlapdOptions::new(SCHEMA) };
    let slapd = Slapd::serving(setup, &directory.populated(20, 5, 3));
    let mirror = Mirror::start(&domain(&slapd), &secrets(None));
    mirror.until("all users", |book| book.users().len() >= 20);
    assert_eq!(mirror.ldap.tracking_method(), Some(TrackingMethod::Polling));
    // Newer stamps are known, so no poll asks for this one.
    slapd.change_relaxed(&format!(
        "dn: {}\nchangetype: modify\nreplace: loginShell\nloginShell: /bin/late\n-\n\
         replace: modifyTimestamp\nmodifyTimestamp: 20200101000000Z\n-\n",
        directory.user_dn("u7")
    ));
    let late = slapd.search(slapd.base(), "(modifyTimestamp=20200101000000Z)", &["uid"]);
    assert!(String::from_utf8_lossy(&late).contains("uid: u7"), "stamped as it would be");
    mirror.until("her shell", |book| book.users()["u7"].shell == "/bin/late");
}

#[test]
fn users_of_one_uuid_are_polled_as_others_are_and_one_is_served() {
    const OLD: u32 = 50;
    let directory = LdifBuilder::new(SCHEMA);
    let made = |name: &str, uid: u32, uuid: u32, year: u32| {
        let stamp = format!("{year}0101000000Z");
        let kept = format!(
            "entryUUID: 00000000-0000-4000-8000-{uuid:012}\ncreateTimestamp: {stamp}\n\
             modifyTimestamp: {stamp}\n\n"
        );
        directory.user(name, uid).trim_end().to_owned() + "\n" + &kept
    };
    let old: String = (0..OLD).map(|n| made(&format!("u{n}"), 6000 + n, n, 2019)).collect();
    let ldif = directory.tree()
        + &old
        + &made("alice", 5001, 1000, 2020)
        + &made("bob", 5002, 1000, 2021)
        + &made("carol", 5003, 1001, 2022);
    let setup = SlapdOptions { syncprov: false, ..SlapdOptions::new(SCHEMA) };
    let slapd = Slapd::serving(setup, &ldif);
    let mirror = Mirror::start(&domain(&slapd), &secrets(None));
    let twin_is_told = |book: &Book, name: &str| {
        let rejected = book.rejected();
        rejected.len() == 1 && rejected.contains_key(&directory.user_dn(name))
    };
    mirror.until("all but one", |book| {
        book.users().contains_key("alice") && twin_is_told(book, "bob")
    });
    assert_eq!(mirror.ldap.tracking_method(), Some(TrackingMethod::Polling));
    let sweeps = |count: usize| {
        let before = mirror.book.ends().len();
        mirror.until("sweeps", |book| book.ends().len() >= before + count);
    };
    sweeps(1);
    let before = mirror.book.puts();
    sweeps(3);
    let listed = mirror.book.puts() - before;
    assert!(listed < OLD as usize, "the newest at each poll, never all: {listed}");
    assert!(twin_is_told(&mirror.book, "bob") && !mirror.book.users().contains_key("bob"));

    slapd.set(&directory.user_dn("bob"), "loginShell", &["/bin/zsh"]);
    sweeps(2);
    assert_eq!(mirror.book.users()["alice"].uid, 5001);
    assert!(twin_is_told(&mirror.book, "bob"));

    slapd.delete(&[directory.user_dn("alice")]);
    mirror.until("the other in her place", |book| {
        book.users().get("bob").is_some_and(|bob| bob.shell == "/bin/zsh")
            && !book.users().contains_key("alice")
    });
    assert!(mirror.book.rejected().is_empty());
}

/// An attribute that the site defines has keys in any spelling.
#[test]
fn groups_are_read_anew_by_a_key_in_any_spelling() {
    let directory = LdifBuilder::new(SCHEMA);
    let setup = SlapdOptions { syncprov: false, ..SlapdOptions::new(SCHEMA) };
    let keyed = |entry: String, key: &str| {
        entry.replacen("objectClass:", &format!("description: {key}\nobjectClass:"), 1)
    };
    let spellings = [
        "{01234567-89AB-CDEF-0123-000000000001}",
        "0123456789abcdef0123000000000002",
        "0123456789ab-CDEF-0123-000000000003",
    ];
    let mut ldif = String::new();
    for (entry, spelling) in directory.tree().split_inclusive("\n\n").zip(4..) {
        ldif += &keyed(entry.to_owned(), &format!("01234567-89ab-cdef-0123-{spelling:012}"));
    }
    ldif += &keyed(directory.user("alice", 9001), "01234567-89ab-cdef-0123-00000000000a");
    for (number, spelling) in spellings.iter().enumerate() {
        let gid = 8000 + u32::try_from(number).unwrap();
        ldif += &keyed(directory.group::<&str>(&format!("g{number}"), gid, &[]), spelling);
    }
    let slapd = Slapd::serving(setup, &ldif);
    let mut domain = domain(&slapd);
    keys(&mut domain).attributes.uuid = Some("description".to_owned());
    // The poll is too late to read these changes.
    keys(&mut domain).poll = Duration::from_secs(3600);
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("all groups", |book| book.groups().len() == spellings.len());
    for number in 0..spellings.len() {
        let name = format!("g{number}");
        slapd.change(&directory.membership(&name, "alice", true));
        let id = mirror.book.id(&name).expect("it is there");
        mirror.ldap.reread_groups(&[(mirror.ldap.parts()[0], id)], &[]);
        mirror.until("her group", |book| book.groups()[&name].1.contains("alice"));
    }
    // A key that no entry has, as of a server without an index for the attribute.
    mirror.ldap.reread_groups(&[(mirror.ldap.parts()[0], EntryId([9; 16]))], &[]);
    let missing = directory::ENTRY_INDEX_MISSING.code;
    mirror.until("it is logged", |_| mirror.logged.has(missing));
}
