// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resumption after a pause: from a cookie if the server accepts it, otherwise by a full refresh. The outcome is the
//! same.

mod common;

use common::{Book, Mirror, domain, secrets};
use roster_config::DomainConfig;
use roster_messages::table::directory;
use roster_provider::UnlistedEntries;
use roster_provider_ldap::ber::{MessageFrame, frame};
use roster_system_tests::{DirectoryServer, LdifBuilder, Schema, Slapd, SlapdOptions};
use std::sync::Arc;

const SCHEMA: Schema = Schema::Rfc2307bis;

fn three_users(session_log: u32) -> (LdifBuilder, Slapd) {
    let directory = LdifBuilder::new(SCHEMA);
    let ldif = directory.tree()
        + &directory.user("alice", 5001)
        + &directory.user("bob", 5002)
        + &directory.user("carol", 5003)
        + &directory.group("staff", 7001, &["alice", "bob"]);
    (directory, Slapd::serving(SlapdOptions { session_log, ..SlapdOptions::new(SCHEMA) }, &ldif))
}

/// Mirrors until the first refresh is complete, and stops.
fn mirrored(domain: &DomainConfig) -> Arc<Book> {
    let mirror = Mirror::start(domain, &secrets(None));
    mirror.until("three users and a cookie", |book| {
        book.users().len() == 3 && !book.cookies().is_empty()
    });
    mirror.stop()
}

fn names(book: &Book) -> Vec<String> {
    book.users().into_keys().collect()
}

#[test]
fn a_cookie_brings_what_changed_meanwhile_and_nothing_else() {
    for session_log in [10_000, 1] {
        let (directory, slapd) = three_users(session_log);
        let domain = domain(&slapd);
        let book = mirrored(&domain);
        let before = book.puts();
        slapd.delete(&[directory.user_dn("bob")]);
        slapd.change(&directory.user("dave", 5004));
        slapd.set(&directory.user_dn("alice"), "loginShell", &["/bin/zsh"]);
        let mirror = Mirror::resume(&domain, &secrets(None), book);
        mirror.until("the state of now", |book| {
            names(book) == ["alice", "carol", "dave"] && book.users()["alice"].shell == "/bin/zsh"
        });
        assert_eq!(mirror.book.ends().len(), 2);
        assert!(mirror.book.puts() - before <= 2, "only changed entries were sent");
    }
}

#[test]
fn a_cookie_that_the_server_cannot_read_means_everything_anew() {
    for value in [&b"nonsense"[..], b"", b"rid=000,csn=20010101000000.000000Z#000000#000#000000"] {
        let (directory, slapd) = three_users(10_000);
        let domain = domain(&slapd);
        let book = mirrored(&domain);
        slapd.delete(&[directory.user_dn("bob")]);
        slapd.change(&directory.user("dave", 5004));
        let mut cookies = book.cookies();
        assert_eq!(cookies.len(), 1);
        let (part, mut cookie) = cookies.remove(0);
        // A stored cookie is a length, the checkpoint with the server's cookie, and the containers. This replaces the
        // server's cookie.
        let length = usize::try_from(u32::from_le_bytes(cookie.value[..4].try_into().unwrap()));
        let folders = cookie.value.split_off(4 + length.unwrap());
        let inner = &cookie.value[4..];
        let Ok(MessageFrame::Whole(own)) = frame(inner, inner.len()) else {
            panic!("what the mirror keeps");
        };
        let inner = [&inner[..own], value].concat();
        let length = u32::try_from(inner.len()).unwrap().to_le_bytes();
        cookie.value = [&length[..], &inner, &folders].concat();
        roster_provider::EntrySink::cookie(&*book, part, cookie);
        roster_provider::EntrySink::flush(&*book);
        let mirror = Mirror::resume(&domain, &secrets(None), book);
        let text = String::from_utf8_lossy(value).into_owned();
        mirror.until(&format!("the state of now after cookie {text:?}"), |book| {
            names(book) == ["alice", "carol", "dave"]
        });
    }
}

#[test]
fn a_cookie_of_other_circumstances_is_not_used() {
    let (_, slapd) = three_users(10_000);
    let mut domain = domain(&slapd);
    let book = mirrored(&domain);
    common::keys(&mut domain).users.filter = "(&(objectClass=posixAccount)(!(uid=bob)))".to_owned();
    let mirror = Mirror::resume(&domain, &secrets(None), book);
    mirror.until("without bob", |book| names(book) == ["alice", "carol"]);
    assert!(mirror.book.ends().iter().all(|end| *end == UnlistedEntries::Missing));
}

#[test]
fn resume_new_mapping_applies_to_known_entries() {
    let (_directory, slapd) = three_users(10_000);
    let mut domain = domain(&slapd);
    let book = mirrored(&domain);
    domain.overrides.shell = Some("/bin/zsh".into());
    let mirror = Mirror::resume(&domain, &secrets(None), book);
    mirror.until("the new shell", |book| {
        book.users().values().all(|person| person.shell == "/bin/zsh")
    });
    let book = mirror.stop();
    let before = book.puts();
    let mirror = Mirror::resume(&domain, &secrets(None), book);
    mirror.until("a third refresh", |book| book.ends().len() == 3);
    assert_eq!(mirror.book.puts(), before, "nothing changed this time");
}

#[test]
fn a_server_with_an_older_database_is_mirrored_as_it_is() {
    let (directory, mut slapd) = three_users(10_000);
    slapd.stop();
    let saved = slapd.save();
    slapd.start();
    let mirror = Mirror::start(&domain(&slapd), &secrets(None));
    mirror.until("three users", |book| book.users().len() == 3);
    slapd.delete(&[directory.user_dn("bob")]);
    slapd.change(&directory.user("dave", 5004));
    mirror.until("dave, not bob", |book| names(book) == ["alice", "carol", "dave"]);
    slapd.stop();
    slapd.restore(&saved);
    slapd.start();
    mirror.until("as it was saved", |book| names(book) == ["alice", "bob", "carol"]);
}

/// After a write to the restored server, the cookie is in its past again.
#[test]
fn what_a_restored_server_has_lost_is_found_out_though_it_goes_on() {
    type Change = fn(&Slapd, &LdifBuilder);
    let lost: [(&str, Change); 4] = [
        ("an addition", |slapd, of| slapd.change(&of.user("mallory", 5066))),
        ("a removal", |slapd, of| slapd.delete(&[of.user_dn("bob")])),
        ("a membership", |slapd, of| slapd.change(&of.membership("staff", "carol", true))),
        ("a name", |slapd, of| slapd.rename(&of.user_dn("carol"), "uid=caroline", None)),
    ];
    for (what, change) in lost {
        for session_log in [10_000, 1] {
            let (directory, mut slapd) = three_users(session_log);
            let domain = domain(&slapd);
            slapd.stop();
            let saved = slapd.save();
            slapd.start();
            let mirror = Mirror::start(&domain, &secrets(None));
            mirror.until("three users", |book| book.users().len() == 3);
            change(&slapd, &directory);
            slapd.set(&directory.user_dn("alice"), "loginShell", &["/bin/zsh"]);
            mirror.until("the last change", |book| book.users()["alice"].shell == "/bin/zsh");
            let book = mirror.stop();
            slapd.stop();
            slapd.restore(&saved);
            slapd.start();
            slapd.change(&directory.user("dave", 5004));
            slapd.set(&directory.user_dn("alice"), "loginShell", &["/bin/dash"]);
            let mirror = Mirror::resume(&domain, &secrets(None), book);
            mirror.until(&format!("without {what}, session log {session_log}"), |book| {
                names(book) == ["alice", "bob", "carol", "dave"]
                    && book.groups()["staff"].1.iter().eq(["alice", "bob"])
                    && book.users()["alice"].shell == "/bin/dash"
            });
            // With a short log the server lists everything, which may bring the same state without a comparison.
            let is_logged = mirror.logged.has(directory::SERVER_DATA_OLDER.code);
            assert!(is_logged || session_log == 1, "{what}: {:?}", mirror.logged.codes());
        }
    }
}

#[test]
fn a_refresh_asked_for_lists_everything_again() {
    let (_, slapd) = three_users(10_000);
    let mirror = Mirror::start(&domain(&slapd), &secrets(None));
    mirror.until("three users", |book| book.users().len() == 3);
    let before = mirror.book.puts();
    roster_provider::Provider::refresh(&*mirror.ldap);
    mirror.until("all four entries again", |book| book.puts() == before + 4);
    mirror.until("the end of it", |book| book.ends() == [UnlistedEntries::Missing; 2]);
}
