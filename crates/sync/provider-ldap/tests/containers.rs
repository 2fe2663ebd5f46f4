// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers of the mirrored entries are renamed, moved, added or removed in a real slapd. The server reports a change
//! of the container at most.

mod common;

use common::{Book, Mirror, domain, keys, secrets};
use roster_config::{DomainConfig, SearchBase};
use roster_system_tests::servers::BASE;
use roster_system_tests::{DirectoryServer, LdifBuilder, Schema, Slapd, SlapdOptions};

const SCHEMA: Schema = Schema::Rfc2307bis;

fn people() -> String {
    format!("ou=people,{BASE}")
}

fn outside() -> String {
    format!("ou=outside,{BASE}")
}

fn folder(rdn: &str, class: &str, parent: &str) -> String {
    let (attribute, value) = rdn.split_once('=').unwrap();
    format!("dn: {rdn},{parent}\nobjectClass: {class}\n{attribute}: {value}\n\n")
}

fn user(name: &str, uid: u32, parent: &str) -> String {
    format!(
        "dn: uid={name},{parent}\nobjectClass: inetOrgPerson\nobjectClass: posixAccount\nuid: {name}\n\
         cn: {name}\nsn: {name}\nuidNumber: {uid}\ngidNumber: {uid}\nhomeDirectory: /home/{name}\n\n"
    )
}

/// `stay` in the base itself, and a user in each of these containers, `u0` in the first.
fn serving(session_log: u32, folders: &[(&str, &str)]) -> (Slapd, DomainConfig) {
    let mut ldif = LdifBuilder::new(SCHEMA).tree();
    ldif += &folder("ou=outside", "organizationalUnit", BASE);
    ldif += &user("stay", 5001, &people());
    for (uid, (rdn, class)) in (5002..).zip(folders) {
        ldif += &folder(rdn, class, &people());
        ldif += &user(&format!("u{}", uid - 5002), uid, &format!("{rdn},{}", people()));
    }
    let slapd = Slapd::serving(SlapdOptions { session_log, ..SlapdOptions::new(SCHEMA) }, &ldif);
    let mut domain = domain(&slapd);
    let keys = keys(&mut domain);
    keys.users.bases = vec![SearchBase::subtree(&people())];
    keys.groups.bases = vec![SearchBase::subtree(&people())];
    (slapd, domain)
}

fn names(book: &Book) -> Vec<String> {
    book.users().into_keys().collect()
}

#[test]
fn containers_entry_below_moved_container_is_removed() {
    for session_log in [10_000, 1] {
        let (slapd, domain) = serving(session_log, &[("ou=a", "organizationalUnit")]);
        let here = format!("ou=a,{}", people());
        let there = format!("ou=a,{}", outside());
        let mirror = Mirror::start(&domain, &secrets(None));
        mirror.until("both and a cookie", |book| {
            names(book) == ["stay", "u0"] && !book.cookies().is_empty()
        });
        let mirror = Mirror::resume(&domain, &secrets(None), mirror.stop());
        mirror.until("it was resumed", |book| book.ends().len() == 2);
        slapd.rename(&here, "ou=a", Some(&outside()));
        mirror.until("gone, though the connection began with a cookie", |book| {
            names(book) == ["stay"]
        });
        slapd.rename(&there, "ou=a", Some(&people()));
        mirror.until("back", |book| names(book) == ["stay", "u0"]);

        let book = mirror.stop();
        slapd.rename(&here, "ou=a", Some(&outside()));
        let mirror = Mirror::resume(&domain, &secrets(None), book);
        mirror.until("gone while nobody looked", |book| names(book) == ["stay"]);
        let book = mirror.stop();
        slapd.rename(&there, "ou=a", Some(&people()));
        let mirror = Mirror::resume(&domain, &secrets(None), book);
        mirror.until("back while nobody looked", |book| names(book) == ["stay", "u0"]);
        let book = mirror.stop();
        slapd.rename(&here, "ou=b", None);
        let mirror = Mirror::resume(&domain, &secrets(None), book);
        mirror.until("renamed while nobody looked", |book| {
            book.reference("u0").is_some_and(|dn| dn.contains("ou=b"))
        });
    }
}

#[test]
fn folders_of_any_class_count_and_users_with_others_below() {
    let (slapd, domain) =
        serving(10_000, &[("cn=roles", "organizationalRole"), ("cn=app", "applicationProcess")]);
    let above = format!("uid=stay,{}", people());
    slapd.change(&user("kid", 5010, &above));
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("everybody", |book| names(book) == ["kid", "stay", "u0", "u1"]);
    slapd.rename(&format!("cn=roles,{}", people()), "cn=roles", Some(&outside()));
    mirror.until("a role is gone", |book| names(book) == ["kid", "stay", "u1"]);
    slapd.rename(&format!("cn=app,{}", people()), "cn=program", None);
    mirror.until("a process is renamed", |book| {
        book.reference("u1").is_some_and(|dn| dn.contains("cn=program"))
    });
    slapd.rename(&above, "uid=stays", None);
    mirror.until("a user is renamed", |book| {
        book.reference("kid").is_some_and(|dn| dn.contains("uid=stays"))
    });
    slapd.rename(&format!("uid=stays,{}", people()), "uid=stays", Some(&outside()));
    mirror.until("a user is gone", |book| names(book) == ["u1"]);
}

#[test]
fn a_folder_without_entries_is_no_reason_to_read_everything() {
    let (slapd, domain) = serving(10_000, &[("ou=a", "organizationalUnit")]);
    let new = format!("ou=new,{}", people());
    let add = folder("ou=new", "organizationalUnit", &people());
    let seen = |mirror: &Mirror, name: &str, uid| {
        slapd.change(&user(name, uid, &people()));
        mirror.until(name, |book| book.users().contains_key(name));
    };
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("both", |book| names(book) == ["stay", "u0"]);
    slapd.change(&add);
    slapd.set(&new, "description", &["described"]);
    slapd.delete(std::slice::from_ref(&new));
    seen(&mirror, "first", 5020);
    assert_eq!(mirror.book.ends().len(), 1, "everything was read once");

    let mirror = Mirror::resume(&domain, &secrets(None), mirror.stop());
    mirror.until("it was resumed", |book| book.ends().len() == 2);
    slapd.change(&add);
    slapd.set(&format!("ou=a,{}", people()), "description", &["described"]);
    slapd.rename(&new, "ou=newer", None);
    slapd.delete(&[format!("ou=newer,{}", people())]);
    seen(&mirror, "second", 5021);
    assert_eq!(mirror.book.ends().len(), 2, "nor since");

    // A container that arrives with an entry is read alone.
    slapd.change(&folder("ou=full", "organizationalUnit", &outside()));
    slapd.change(&folder("ou=deep", "organizationalUnit", &format!("ou=full,{}", outside())));
    slapd.change(&user("inside", 5030, &format!("ou=deep,ou=full,{}", outside())));
    slapd.rename(&format!("ou=full,{}", outside()), "ou=full", Some(&people()));
    mirror.until("inside", |book| book.users().contains_key("inside"));
    seen(&mirror, "third", 5022);
    assert_eq!(mirror.book.ends().len(), 2);
    slapd.rename(&format!("ou=deep,ou=full,{}", people()), "ou=deeper", None);
    mirror.until("inside has moved", |book| {
        book.reference("inside").is_some_and(|dn| dn.contains("ou=deeper"))
    });
}

#[test]
fn entries_of_a_class_derived_from_a_containers_are_not_rejected() {
    let (_slapd, domain) = serving(10_000, &[("dc=host", "dNSDomain")]);
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("both", |book| names(book) == ["stay", "u0"]);
    assert_eq!(mirror.book.rejected(), [].into());
}
