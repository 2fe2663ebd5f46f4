// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups without gidNumber in a real slapd: they nest, with each way of tracking and on demand.

mod common;

use common::{Book, Mirror, domain, keys, secrets};
use roster_config::{DomainConfig, DomainMode};
use roster_provider::{LookupQuery, Provider};
use roster_request::TrackingMethod;
use roster_system_tests::servers::BASE;
use roster_system_tests::{DirectoryServer, Ds389, LdifBuilder, Schema, Slapd, SlapdOptions};
use std::collections::BTreeSet;

const SCHEMA: Schema = Schema::Rfc2307bis;

fn directory() -> LdifBuilder {
    LdifBuilder::new(SCHEMA)
}

/// A group without gidNumber, with members by DN.
fn role(name: &str, members: &[String]) -> String {
    let members: String = members.iter().map(|dn| format!("member: {dn}\n")).collect();
    let dn = directory().group_dn(name);
    format!("dn: {dn}\nobjectClass: groupOfNames\ncn: {name}\n{members}\n")
}

fn ldif() -> String {
    let directory = directory();
    let none: [&str; 0] = [];
    let mut ldif = directory.tree()
        + &directory.user("alice", 5001)
        + &directory.user("bob", 5002)
        + &directory.group_of_groups("outer", 7001, &none, &["role"])
        + &role("role", &[directory.user_dn("alice"), directory.group_dn("level1")]);
    for level in 1..12 {
        let next = directory.group_dn(&format!("level{}", level + 1));
        ldif += &role(&format!("level{level}"), &[next]);
    }
    // The last level also closes a circle.
    ldif + &role("level12", &[directory.user_dn("bob"), directory.group_dn("role")])
}

fn slapd(syncprov: bool) -> Slapd {
    Slapd::serving(SlapdOptions { syncprov, ..SlapdOptions::new(SCHEMA) }, &ldif())
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Returns the gid and the members of a group. The gid of a group without one is 0.
fn group(book: &Book, name: &str) -> Option<(u32, BTreeSet<String>)> {
    book.groups().get(name).cloned()
}

fn is_whole(book: &Book) -> bool {
    book.groups().len() == 14
}

/// Changes groups without gid at the server, and expects each change in the mirror.
fn changes_are_seen(slapd: &impl DirectoryServer, mirror: &Mirror) {
    let directory = directory();
    mirror.until("14 groups", is_whole);
    assert_eq!(mirror.book.rejected(), [].into());
    assert_eq!(group(&mirror.book, "outer"), Some((7001, set(&["role"]))));
    assert_eq!(group(&mirror.book, "role"), Some((0, set(&["alice", "level1"]))));
    slapd.change(&directory.membership("role", "bob", true));
    mirror.until("bob in role", |book| {
        group(book, "role").is_some_and(|(_, members)| members.contains("bob"))
    });
    slapd.rename(&directory.group_dn("role"), "cn=duty", None);
    mirror.until("role is duty", |book| {
        group(book, "duty").is_some() && group(book, "role").is_none()
    });
    slapd.set(&directory.group_dn("outer"), "member", &[&directory.group_dn("duty")]);
    mirror.until("outer has it", |book| group(book, "outer") == Some((7001, set(&["duty"]))));
    slapd.delete(&[directory.group_dn("level12")]);
    mirror.until("level12 is gone", |book| group(book, "level12").is_none());
    let gid = |verb: &str, value: &str| {
        let dn = directory.group_dn("duty");
        format!(
            "dn: {dn}\nchangetype: modify\n{verb}: objectClass\nobjectClass: posixGroup\n-\n\
             {verb}: gidNumber\n{value}-\n\n"
        )
    };
    slapd.change(&gid("add", "gidNumber: 7009\n"));
    mirror.until("duty has a gid", |book| group(book, "duty").is_some_and(|(gid, _)| gid == 7009));
    slapd.change(&gid("delete", ""));
    mirror.until("and none again", |book| group(book, "duty").is_some_and(|(gid, _)| gid == 0));
}

#[test]
fn nested_groups_are_followed_by_syncrepl_and_polls() {
    for syncprov in [true, false] {
        let slapd = slapd(syncprov);
        let mut domain = domain(&slapd);
        // With another filter of users, groups have a separate search.
        let filters = ["(objectClass=posixAccount)", "(&(objectClass=posixAccount)(uid=*))"];
        keys(&mut domain).users.filter = filters[usize::from(!syncprov)].to_owned();
        changes_are_seen(&slapd, &Mirror::start(&domain, &secrets(None)));
    }
}

#[test]
fn nested_groups_are_followed_in_389_ds() {
    for (server, method) in [
        (common::without_synchronization(&ldif()), TrackingMethod::PersistentSearch),
        (Ds389::serving(&ldif()), TrackingMethod::Syncrepl),
    ] {
        let mirror = Mirror::start(&domain(&server), &secrets(None));
        changes_are_seen(&server, &mirror);
        assert_eq!(mirror.ldap.tracking_method(), Some(method));
    }
}

#[test]
fn nested_groups_of_container_move_with_it() {
    let slapd = slapd(true);
    let mirror = Mirror::start(&domain(&slapd), &secrets(None));
    mirror.until("14 groups", is_whole);
    slapd.rename(&format!("ou=groups,{BASE}"), "ou=teams", None);
    let moved = format!("cn=role,ou=teams,{BASE}");
    slapd.set(&format!("cn=outer,ou=teams,{BASE}"), "member", &[&moved]);
    mirror.until("outer names role at its new place", |book| {
        group(book, "outer") == Some((7001, set(&["role"])))
    });
}

#[test]
fn nested_groups_resume_from_cookie() {
    let slapd = slapd(true);
    let domain = domain(&slapd);
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("14 groups", is_whole);
    let book = mirror.stop();
    slapd.change(&directory().membership("role", "bob", true));
    let mirror = Mirror::resume(&domain, &secrets(None), book);
    mirror.until("bob in role", |book| {
        group(book, "role").is_some_and(|(_, members)| members.contains("bob"))
    });
    assert!(is_whole(&mirror.book));
}

/// An entry with a gidNumber is selected by the filter of groups alone.
#[test]
fn nested_filter_serves_no_group_with_gid() {
    let slapd = slapd(true);
    let mut domain = domain(&slapd);
    keys(&mut domain).groups.filter = "(&(objectClass=posixGroup)(cn=o*))".to_owned();
    keys(&mut domain).nested_group_filter = "(objectClass=*)".to_owned();
    slapd.change(&directory().group("hidden", 7002, &["alice"]));
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("outer and role", |book| {
        group(book, "outer").is_some() && group(book, "role").is_some()
    });
    assert_eq!(group(&mirror.book, "hidden"), None);
}

fn asked(slapd: &Slapd) -> Mirror {
    let domain = DomainConfig { mode: DomainMode::OnDemand, ..domain(slapd) };
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("online", |book| book.online().is_some());
    mirror
}

#[test]
fn nested_groups_on_demand_complete_lists() {
    let slapd = slapd(true);
    let mirror = asked(&slapd);
    assert_eq!(mirror.look_up(LookupQuery::GroupByName(b"outer".to_vec())), Ok(true));
    assert_eq!(mirror.book.users().into_keys().collect::<Vec<_>>(), ["alice", "bob"]);
    assert!(is_whole(&mirror.book), "each level is known");
    let mirror = asked(&slapd);
    assert_eq!(mirror.look_up(LookupQuery::GroupsOf(b"bob".to_vec())), Ok(true));
    let groups = mirror.book.groups_found("bob").expect("known");
    assert_eq!((groups.len(), groups.contains("outer"), groups.contains("role")), (14, true, true));
}
