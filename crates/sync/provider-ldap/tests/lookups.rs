// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single lookups, answered by a real slapd.

mod common;

use common::{Mirror, address, domain, keys, secrets};
use roster_config::{DomainMode, NameCase};
use roster_messages::table::directory;
use roster_provider::{EntryId, KeySearchResult, LookupQuery, LookupScope, Provider, SearchId};
use roster_system_tests::servers::{Relay, ServerFault};
use roster_system_tests::{DirectoryServer, LdifBuilder, Schema, Slapd, SlapdOptions};
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn name(name: &str) -> Vec<u8> {
    name.as_bytes().to_vec()
}

fn ldif(schema: Schema) -> String {
    let directory = LdifBuilder::new(schema);
    directory.tree()
        + &directory.user("alice", 5001)
        + &directory.user("bob", 5002)
        + &directory.group("staff", 7001, &["alice", "bob"])
        + &directory.group("admins", 7002, &["alice"])
        + &directory.group("others", 7003, &["bob"])
}

fn asked(slapd: &Slapd) -> Mirror {
    let mut domain = domain(slapd);
    domain.mode = DomainMode::OnDemand;
    let mirror = Mirror::start(&domain, &secrets(None));
    mirror.until("online", |book| book.online().is_some());
    mirror
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn each_question_finds_what_it_asks_for_and_nothing_else() {
    for schema in [Schema::Rfc2307, Schema::Rfc2307bis] {
        let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif(schema));
        let mirror = asked(&slapd);
        assert_eq!(mirror.look_up(LookupQuery::UserByName(name("alice"))), Ok(true));
        assert_eq!(mirror.book.users().into_keys().collect::<Vec<_>>(), ["alice"]);
        assert_eq!(mirror.look_up(LookupQuery::UserByUid(5002)), Ok(true));
        assert!(mirror.book.users().contains_key("bob"));
        assert_eq!(mirror.look_up(LookupQuery::GroupByGid(7002)), Ok(true));
        assert_eq!(mirror.book.groups()["admins"], (7002, set(&["alice"])));
        assert_eq!(mirror.look_up(LookupQuery::UserByUid(1)), Ok(false));
        assert_eq!(mirror.look_up(LookupQuery::GroupByName(name("nothing"))), Ok(false));
    }
}

#[test]
fn groups_of_a_user_are_one_search_and_come_without_members() {
    let schema = Schema::Rfc2307;
    let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif(schema));
    let mut narrowed = domain(&slapd);
    narrowed.mode = DomainMode::OnDemand;
    keys(&mut narrowed).member_attributes.truncate(1);
    let mirror = Mirror::start(&narrowed, &secrets(None));
    mirror.until("online", |book| book.online().is_some());
    let before = slapd.searches();
    assert_eq!(mirror.look_up(LookupQuery::GroupsOf(name("alice"))), Ok(true));
    assert_eq!(slapd.searches() - before, 2, "the user and the groups");
    let mirror = asked(&slapd);
    let before = slapd.searches();
    assert_eq!(mirror.look_up(LookupQuery::GroupsOf(name("alice"))), Ok(true));
    assert_eq!(slapd.searches() - before, 3, "and the groups around these");
    assert_eq!(mirror.book.groups_found("alice"), Some(set(&["staff", "admins"])));
    assert!(mirror.book.groups()["staff"].1.is_empty());
    assert_eq!(mirror.look_up(LookupQuery::GroupsOf(name("nobody-here"))), Ok(false));
}

#[test]
fn groups_in_groups_are_followed_and_circles_end() {
    let schema = Schema::Rfc2307bis;
    let directory = LdifBuilder::new(schema);
    let none: [&str; 0] = [];
    let ldif = ldif(schema)
        + &directory.group_of_groups("outer", 7010, &none, &["staff"])
        + &directory.group_of_groups("loopa", 7011, &none, &["outer", "loopb"])
        + &directory.group_of_groups("loopb", 7012, &none, &["loopa"]);
    let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif);
    let mirror = asked(&slapd);
    assert_eq!(mirror.look_up(LookupQuery::GroupsOf(name("alice"))), Ok(true));
    let all = set(&["staff", "admins", "outer", "loopa", "loopb"]);
    assert_eq!(mirror.book.groups_found("alice"), Some(all));
    let mirror = asked(&slapd);
    assert_eq!(mirror.look_up(LookupQuery::GroupByName(name("loopa"))), Ok(true));
    let users: Vec<String> = mirror.book.users().into_keys().collect();
    assert_eq!(users, ["alice", "bob"], "the members' members can be named");
}

#[test]
fn a_name_is_a_name_and_not_a_filter() {
    let schema = Schema::Rfc2307;
    let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif(schema));
    let mirror = asked(&slapd);
    for hostile in ["*", "alice)(uid=*", "al*", "a\\6cice", "alice\0", "", "ALICE ", "(", "\u{e9}"]
    {
        assert_eq!(
            mirror.look_up(LookupQuery::UserByName(name(hostile))),
            Ok(false),
            "{hostile:?}"
        );
    }
    assert_eq!(mirror.look_up(LookupQuery::UserByName(b"\xff\xfe".to_vec())), Ok(false));
    assert_eq!(mirror.look_up(LookupQuery::UserByName(name("Alice"))), Ok(true), "case is ignored");
    assert!(mirror.book.users().contains_key("alice"));
}

#[test]
fn case_counts_where_it_is_configured_to() {
    let schema = Schema::Rfc2307;
    let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif(schema));
    let mut domain = domain(&slapd);
    domain.mode = DomainMode::OnDemand;
    domain.names.case = NameCase::Sensitive;
    let mirror = Mirror::start(&domain, &secrets(None));
    assert_eq!(mirror.look_up(LookupQuery::UserByName(name("Alice"))), Ok(false));
    assert_eq!(mirror.look_up(LookupQuery::UserByName(name("alice"))), Ok(true));
}

#[test]
fn lookup_server_down_fails_without_a_timeout() {
    let schema = Schema::Rfc2307;
    let mut slapd = Slapd::serving(SlapdOptions::new(schema), &ldif(schema));
    let mut domain = domain(&slapd);
    domain.mode = DomainMode::OnDemand;
    // A lookup that waited for one of these would fail this test.
    (keys(&mut domain).connect_timeout, keys(&mut domain).search_timeout) = (HOUR, HOUR);
    let mirror = Mirror::start(&domain, &secrets(None));
    assert_eq!(mirror.look_up(LookupQuery::UserByName(name("alice"))), Ok(true));
    slapd.stop();
    mirror.until("offline", |book| book.offline().is_some());
    let reason = mirror.look_up(LookupQuery::UserByName(name("bob"))).unwrap_err();
    assert!(reason.contains(&slapd.uri()), "{reason}");
    slapd.start();
    mirror.until("online", |book| book.online().is_some());
    assert_eq!(mirror.look_up(LookupQuery::UserByName(name("bob"))), Ok(true));
}

#[test]
fn a_connection_that_the_server_closed_is_opened_again_unnoticed() {
    let schema = Schema::Rfc2307;
    let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif(schema));
    let relay = Relay::to(slapd.port());
    let mut domain = domain(&slapd);
    keys(&mut domain).servers = vec![address(&relay.uri())];
    // In a mirrored domain no task supervises the connection of lookups.
    let mirror = Mirror::start(&domain, &secrets(None));
    for _ in 0..3 {
        assert_eq!(mirror.look_up(LookupQuery::UserByName(name("alice"))), Ok(true));
        relay.resume_traffic(); // ends every connection
    }
}

#[test]
fn many_entries_are_asked_for_in_one_search() {
    for schema in [Schema::Rfc2307, Schema::Rfc2307bis] {
        let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif(schema));
        let mirror = asked(&slapd);
        let before = slapd.searches();
        assert_eq!(
            mirror.look_up_all(LookupScope::Users, &["alice", "nobody-here", "bob"]),
            Ok(())
        );
        assert_eq!(slapd.searches() - before, 1);
        assert_eq!(mirror.book.users().into_keys().collect::<Vec<_>>(), ["alice", "bob"]);
        let before = slapd.searches();
        let groups = ["staff", "admins", "others"];
        assert_eq!(mirror.look_up_all(LookupScope::GroupsWithMembers, &groups), Ok(()));
        assert_eq!(slapd.searches() - before, 1, "all their members are known");
        assert_eq!(mirror.book.groups()["staff"], (7001, set(&["alice", "bob"])));
        assert_eq!(mirror.look_up_all(LookupScope::UsersWithGroups, &["alice", "bob"]), Ok(()));
        assert_eq!(mirror.book.groups_found("bob"), Some(set(&["staff", "others"])));
        assert_eq!(mirror.book.groups_found("alice"), Some(set(&["staff", "admins"])));
    }
}

#[test]
fn many_ids_are_asked_for_in_one_search() {
    let schema = Schema::Rfc2307;
    let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif(schema));
    let mirror = asked(&slapd);
    let before = slapd.searches();
    assert_eq!(mirror.look_up_ids(LookupScope::Users, &[5001, 9999, 5002]), Ok(()));
    assert_eq!(mirror.look_up_ids(LookupScope::Groups, &[7002, 7003, 9999]), Ok(()));
    assert_eq!(slapd.searches() - before, 2);
    assert_eq!(mirror.book.users().into_keys().collect::<Vec<_>>(), ["alice", "bob"]);
    assert_eq!(mirror.book.groups().into_keys().collect::<Vec<_>>(), ["admins", "others"]);
}

#[test]
fn a_group_with_too_many_members_is_never_cut() {
    let schema = Schema::Rfc2307;
    let members: Vec<String> = (0..=10_000).map(|number| format!("m{number}")).collect();
    let ldif = ldif(schema)
        + &LdifBuilder::new(schema).group("vast", 7100, &members)
        + &LdifBuilder::new(schema).group("large", 7101, &members[..500]);
    let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif);
    let mirror = asked(&slapd);
    let reason = mirror.look_up(LookupQuery::GroupByGid(7100)).unwrap_err();
    assert!(
        reason.contains("10001 members") && reason.contains(directory::GROUP_TOO_LARGE.code),
        "{reason}"
    );
    assert!(!mirror.book.members_known("vast"));
    assert!(mirror.book.members_taken_back("vast"), "said although there is no answer");
    assert_eq!(
        mirror.look_up_all(LookupScope::GroupsWithMembers, &["vast", "large", "staff"]),
        Ok(())
    );
    assert!(!mirror.book.members_known("vast"));
    assert!(!mirror.book.members_taken_back("large"));
    assert!(mirror.book.members_known("large") && mirror.book.members_known("staff"));
    assert_eq!(
        mirror.look_up(LookupQuery::GroupsOf(name("m7"))),
        Ok(false),
        "there is no such user"
    );
}

#[test]
fn a_group_around_one_with_too_many_members_is_told_without_any() {
    let schema = Schema::Rfc2307bis;
    let directory = LdifBuilder::new(schema);
    let members: Vec<String> = (0..=10_000).map(|number| format!("m{number}")).collect();
    let ldif = ldif(schema)
        + &directory.group("vast", 7100, &members)
        + &directory.group_of_groups("around", 7101, &["alice"], &["vast"]);
    let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif);
    let mirror = asked(&slapd);
    let reason = mirror.look_up(LookupQuery::GroupByGid(7101)).unwrap_err();
    assert!(reason.contains("more than 10000 members"), "{reason}");
    assert!(mirror.book.members_taken_back("around"));
    assert!(mirror.look_up_all(LookupScope::GroupsWithMembers, &["around", "staff"]).is_err());
    assert_eq!(mirror.look_up_all(LookupScope::GroupsWithMembers, &["around"]), Ok(()));
    assert_eq!(mirror.look_up_all(LookupScope::GroupsWithMembers, &["staff"]), Ok(()));
    assert!(mirror.book.members_known("staff"));
}

fn is_base(dn: &str) -> bool {
    dn == "dc=example,dc=com"
}

fn is_any(dn: &str) -> bool {
    !dn.is_empty()
}

#[test]
fn key_search_finds_entries_in_both_modes() {
    for schema in [Schema::Rfc2307, Schema::Rfc2307bis] {
        let directory = LdifBuilder::new(schema);
        for mode in [DomainMode::Replicate, DomainMode::OnDemand] {
            let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif(schema));
            let relay = Relay::to(slapd.port());
            let mut domain = domain(&slapd);
            domain.mode = mode;
            keys(&mut domain).servers = vec![address(&relay.uri())];
            let mirror = Mirror::start(&domain, &secrets(None));
            mirror.until("online", |book| book.online().is_some());
            if mode == DomainMode::OnDemand {
                mirror.look_up_all(LookupScope::Users, &["alice", "bob"]).expect("a reply");
                mirror.look_up_all(LookupScope::Groups, &["staff", "admins"]).expect("a reply");
            }
            let id = |name: &str| {
                mirror.until(name, |book| book.id(name).is_some());
                mirror.book.id(name).expect("known")
            };
            let [alice, bob, staff, admins] = ["alice", "bob", "staff", "admins"].map(id);
            let look = |of, missing: EntryId, control: Option<EntryId>| {
                let (missing, control) = (vec![(SearchId(0), missing)], Vec::from_iter(control));
                let looked = mirror.run_query(move |ldap| async move {
                    ldap.search_keys(of, &missing, &control).await
                });
                let KeySearchResult { found, is_credible } = looked.expect("a reply");
                (found, is_credible)
            };
            let both = |one, other| (HashSet::from([one, other]), true);
            assert_eq!(look(LookupScope::Users, alice, Some(bob)), both(alice, bob));
            assert_eq!(look(LookupScope::Groups, staff, Some(admins)), both(staff, admins));
            // A user's key does not find a group.
            assert_eq!(look(LookupScope::Groups, alice, None), (HashSet::new(), true));
            slapd.delete(&[directory.user_dn("alice")]);
            assert_eq!(look(LookupScope::Users, alice, Some(bob)), (HashSet::from([bob]), true));
            assert_eq!(
                look(LookupScope::Users, alice, None),
                (HashSet::new(), true),
                "it shows bob"
            );
            relay.set_fault(ServerFault::Hides(is_base, true));
            assert_eq!(look(LookupScope::Users, alice, Some(bob)), (HashSet::from([bob]), false));
            relay.set_fault(ServerFault::Hides(is_any, true));
            assert_eq!(look(LookupScope::Users, alice, None), (HashSet::new(), false));
            relay.clear_fault();
            slapd.delete(&[directory.user_dn("bob")]);
            assert_eq!(
                look(LookupScope::Users, bob, None),
                (HashSet::new(), false),
                "no user is left"
            );
        }
    }
}

#[test]
fn key_search_reports_renamed_user() {
    let schema = Schema::Rfc2307;
    let slapd = Slapd::serving(SlapdOptions::new(schema), &ldif(schema));
    let mirror = asked(&slapd);
    assert_eq!(mirror.look_up(LookupQuery::UserByName(name("alice"))), Ok(true));
    let alice = mirror.book.id("alice").expect("known");
    slapd.rename(&LdifBuilder::new(schema).user_dn("alice"), "uid=alicia", None);
    assert_eq!(mirror.look_up(LookupQuery::UserByName(name("alice"))), Ok(false));
    let looked = mirror.run_query(move |ldap| async move {
        ldap.search_keys(LookupScope::Users, &[(SearchId(0), alice)], &[]).await
    });
    assert_eq!(looked.expect("a reply").found, HashSet::from([alice]));
    assert_eq!(mirror.book.id("alicia"), Some(alice));
}
