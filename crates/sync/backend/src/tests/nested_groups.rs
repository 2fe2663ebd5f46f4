// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of groups without gid, which only nest, and of entries that move from one search base to another.

use super::*;
use crate::user_index::UserIndex;
use roster_provider::LookupQuery;
use roster_provider::access::{ListKind, Membership};
use std::sync::Arc;

/// A group with members by DN. Without gid it only nests.
fn by_dn<'a>(name: &'a str, gid: Option<u32>, members: &[&'a str]) -> DirectoryEntry<'a> {
    DirectoryEntry::Group(DirectoryGroup {
        name: name.as_bytes().into(),
        gid,
        reference: name.as_bytes().into(),
        members: Some(members.iter().map(|name| dn(name)).collect()),
    })
}

fn put(engine: &Engine, name: &str, entry: DirectoryEntry<'_>) {
    engine.put(GROUPS, named(name), entry);
    engine.flush();
}

/// A mirror with alice and bob. Bob is in `outer` through `role`, which has no gid.
fn mirror(engine: &Arc<Engine>) {
    refresh(engine, &["alice", "bob"], &[], "1");
    put(engine, "outer", by_dn("outer", Some(5000), &["role", "alice"]));
    put(engine, "role", by_dn("role", None, &["bob"]));
}

fn membership(engine: &Arc<Engine>, name: &str, group: &str) -> Membership {
    let people = UserIndex::new(Arc::clone(engine), DomainMode::Replicate, true);
    let person = people.find(name.as_bytes(), uid_of(name)).expect("a user");
    let found = people.membership(&person, ListKind::Allow, group);
    assert_eq!(people.membership(&person, ListKind::Deny, group), found, "one group of the name");
    found
}

/// Returns the numbers of groups, nested groups and rejected entries.
fn counts(engine: &Engine) -> [u64; 3] {
    let status = engine.status();
    [status.groups, status.nested_groups, status.rejected]
}

#[test]
fn nested_group_is_counted_apart_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    mirror(&engine);
    assert_eq!(counts(&engine), [1, 1, 0]);
    let check = |engine: &Arc<Engine>| {
        assert_eq!(membership(engine, "bob", "outer"), Membership::Member);
        assert_eq!(membership(engine, "bob", "role"), Membership::Member, "a rule may name it");
        assert_eq!(membership(engine, "alice", "role"), Membership::NotMember);
    };
    check(&engine);
    end(engine);
    let engine = cached(folder.path(), DomainMode::Replicate);
    assert_eq!(counts(&engine), [1, 1, 0]);
    check(&engine);
    put(&engine, "role", by_dn("role", None, &["alice"]));
    assert_eq!(membership(&engine, "bob", "outer"), Membership::NotMember, "at once");
    assert_eq!(membership(&engine, "alice", "role"), Membership::Member);
    end(engine);
}

#[test]
fn nested_group_yields_its_name_to_gid() {
    let engine = engine(DomainMode::Replicate);
    mirror(&engine);
    put(&engine, "posix", by_dn("role", Some(5001), &["alice"]));
    assert_eq!(membership(&engine, "bob", "role"), Membership::NotMember);
    assert_eq!(membership(&engine, "alice", "role"), Membership::Member);
}

#[test]
fn nested_group_without_gid_has_no_primary_members() {
    let engine = engine(DomainMode::Replicate);
    mirror(&engine);
    // The users have the primary gid 100. A record without gid has 0 in its place.
    put(&engine, "empty", by_dn("empty", None, &[]));
    assert_eq!(membership(&engine, "alice", "empty"), Membership::NotMember);
}

#[test]
fn group_gains_and_loses_gid_changes_kind() {
    let engine = engine(DomainMode::Replicate);
    mirror(&engine);
    put(&engine, "role", by_dn("role", Some(5001), &["bob"]));
    assert_eq!(counts(&engine), [2, 0, 0]);
    assert_eq!(fetched(&engine).fact("role").id, 5001);
    put(&engine, "role", by_dn("role", None, &["bob"]));
    assert_eq!(counts(&engine), [1, 1, 0], "one of a few is believed at once");
    assert_eq!(membership(&engine, "bob", "outer"), Membership::Member);
    assert_eq!(engine.status().held_removals, 0);
}

/// An access rule that hides gidNumber must not remove all groups.
#[test]
fn groups_lose_gids_at_once_are_held() {
    let engine = engine(DomainMode::Replicate);
    let groups = names(0..20);
    refresh(&engine, &["alice"], &[], "1");
    for name in &groups {
        put(&engine, name, by_dn(name, Some(uid_of(name)), &["alice"]));
    }
    for name in &groups {
        engine.put(GROUPS, named(name), by_dn(name, None, &[]));
    }
    engine.flush();
    assert_eq!(counts(&engine), [20, 0, 20]);
    assert_eq!(engine.status().held_removals, 20);
    let reported = engine.rejections(0, 1);
    assert_eq!(reported[0].code, directory::GID_LOST.code);
    assert_eq!(membership(&engine, "alice", &groups[3]), Membership::Member);
    // One is shown again. The others are meant.
    put(&engine, &groups[0], by_dn(&groups[0], Some(6000), &["alice"]));
    assert_eq!((counts(&engine), engine.status().held_removals), ([20, 0, 19], 19));
    let (gone, unreadable) = engine.confirm_removals(&[]);
    assert_eq!((gone, unreadable.len()), (19, 19), "each is read again");
    for name in &groups[1..] {
        engine.put(GROUPS, named(name), by_dn(name, None, &[]));
    }
    engine.flush();
    assert_eq!((counts(&engine), engine.status().held_removals), ([1, 19, 0], 0));
}

#[test]
fn lost_gid_shown_again_before_flush_changes_nothing() {
    let engine = engine(DomainMode::Replicate);
    mirror(&engine);
    engine.put(GROUPS, named("outer"), by_dn("outer", None, &[]));
    put(&engine, "outer", by_dn("outer", Some(5000), &["role", "alice"]));
    assert_eq!(counts(&engine), [1, 1, 0]);
    assert_eq!(membership(&engine, "bob", "outer"), Membership::Member);
}

#[test]
fn nested_group_on_demand_answers_no_query() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::OnDemand);
    engine.put(USERS, named("bob"), user("bob", 1001));
    engine.put(GROUPS, named("outer"), by_dn("outer", Some(5000), &["role"]));
    engine.put(GROUPS, named("role"), by_dn("role", None, &["bob"]));
    engine.user_groups(named("bob"), &[named("outer"), named("role")]);
    engine.flush();
    let check = |engine: &Arc<Engine>| {
        let by_name = |name: &str| LookupQuery::GroupByName(name.as_bytes().to_vec());
        assert!(engine.cached_entry(&by_name("outer")).is_some(), "with the members of role");
        assert_eq!(engine.cached_entry(&by_name("role")), None);
        assert!(!engine.has_entry(&by_name("role")));
        assert_eq!(engine.cached_entry(&LookupQuery::GroupByGid(0)), None);
        assert_eq!(engine.cached_entry(&LookupQuery::GroupByGid(u32::MAX)), None);
        let people = UserIndex::new(Arc::clone(engine), DomainMode::OnDemand, true);
        let bob = people.find(b"bob", 1001).expect("a user");
        assert_eq!(people.membership(&bob, ListKind::Allow, "role"), Membership::Member);
        assert_eq!(people.membership(&bob, ListKind::Allow, "other"), Membership::NoSuchGroup);
    };
    check(&engine);
    assert!(engine.sibling_groups(&LookupQuery::GroupByName(b"role".to_vec())).is_empty());
    end(engine);
    check(&cached(folder.path(), DomainMode::OnDemand));
}

#[test]
fn entry_moved_to_another_search_is_served_once() {
    const OTHERS: SearchId = SearchId(2);
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(&engine, &["alice", "bob"], &[("staff", &["alice"])], "1");
    let mut known = fetched(&engine);
    // The search of the new base reports the entry before the search of the old one reports its absence.
    engine.put(OTHERS, named("alice"), user("alice", 4711));
    engine.flush();
    assert!(!known.fetch(&engine));
    assert_eq!(known.names(), ["alice", "bob", "staff"]);
    assert_eq!(known.fact("alice").id, 4711);
    engine.removed(USERS, named("alice"));
    engine.missing(USERS, named("alice"));
    engine.flush();
    assert!(!engine.has_missing());
    assert_eq!((engine.status().users, engine.status().held_removals), (2, 0));
    end(engine);
    let known = fetched(&cached(folder.path(), DomainMode::Replicate));
    assert_eq!(known.names(), ["alice", "bob", "staff"]);
    assert_eq!(known.fact("alice").id, 4711);
}
