// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the data for logins: accounts and group members.

use super::*;
use crate::user_index::UserIndex;
use roster_config::{ListNames, NameCase, NameConfig};
use roster_provider::access::{ListKind, Membership};
use roster_provider::account::{AccountFact, FactValue};

fn with_account<'a>(name: &'a str, expire: &'a str) -> DirectoryEntry<'a> {
    let DirectoryEntry::User(mut one) = user(name, uid_of(name)) else { unreachable!() };
    one.account.add(AccountFact::ExpireDay, expire.as_bytes().into());
    DirectoryEntry::User(one)
}

fn put(engine: &Engine, part: SearchId, name: &str, entry: DirectoryEntry<'_>) {
    engine.put(part, named(name), entry);
    engine.flush();
}

fn people(engine: &Arc<Engine>, mode: DomainMode) -> UserIndex {
    UserIndex::new(Arc::clone(engine), mode, true)
}

/// Returns the day on which the stored account expires.
fn expires(engine: &Arc<Engine>, name: &str) -> Option<String> {
    let people = people(engine, DomainMode::Replicate);
    let person = people.find(name.as_bytes(), uid_of(name)).ok()?;
    let bytes = people.account(&person).ok()??;
    let account = Account::from_bytes(&bytes)?;
    match account.value_of(AccountFact::ExpireDay) {
        FactValue::Single(day) => Some(String::from_utf8(day.to_vec()).ok()?),
        FactValue::Absent | FactValue::Several => None,
    }
}

#[test]
fn an_account_is_known_before_it_is_written_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(&engine, &["bob"], &[], "1");
    put(&engine, USERS, "alice", with_account("alice", "20000"));
    assert_eq!(expires(&engine, "alice").as_deref(), Some("20000"));
    end(engine);
    let engine = cached(folder.path(), DomainMode::Replicate);
    assert_eq!(expires(&engine, "alice").as_deref(), Some("20000"));
    put(&engine, USERS, "alice", with_account("alice", "20001"));
    assert_eq!(expires(&engine, "alice").as_deref(), Some("20001"));
    write(&engine);
    assert_eq!(expires(&engine, "alice").as_deref(), Some("20001"));
    engine.removed(USERS, named("alice"));
    engine.flush();
    assert_eq!(expires(&engine, "alice"), None);
    write(&engine);
    put(&engine, USERS, "alice", user("alice", uid_of("alice")));
    assert_eq!(expires(&engine, "alice"), None, "data of the former owner of the name is gone");
    end(engine);
}

#[test]
fn an_account_that_did_not_change_is_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(&engine, &[], &[], "1");
    put(&engine, USERS, "alice", with_account("alice", "20000"));
    end(engine);
    let engine = cached(folder.path(), DomainMode::Replicate);
    put(&engine, USERS, "alice", with_account("alice", "20000"));
    assert!(engine.unwritten_batches().1.iter().all(|batch| batch.visible_count() == 0));
    put(&engine, USERS, "alice", with_account("alice", "20001"));
    assert_eq!(
        engine.unwritten_batches().1.iter().map(|batch| batch.visible_count()).sum::<usize>(),
        1
    );
    end(engine);
}

#[test]
fn on_demand_an_account_stays_with_a_users_groups() {
    let folder = tempfile::tempdir().unwrap();
    let engine = cached(folder.path(), DomainMode::OnDemand);
    let tell = || {
        put(&engine, USERS, "alice", with_account("alice", "20000"));
        put(&engine, GROUPS, "staff", group("staff", 5000, None));
        engine.user_groups(named("alice"), &[named("staff")]);
        engine.flush();
    };
    tell();
    let sequence = engine.status().sequence;
    assert_eq!(expires(&engine, "alice").as_deref(), Some("20000"));
    tell();
    assert_eq!(engine.status().sequence, sequence, "an equal report changes nothing");
    let people = people(&engine, DomainMode::OnDemand);
    let alice = people.find(b"alice", uid_of("alice")).unwrap();
    assert_eq!(people.membership(&alice, ListKind::Allow, "staff"), Membership::Member);
    assert_eq!(people.membership(&alice, ListKind::Allow, "other"), Membership::NoSuchGroup);
    put(&engine, USERS, "bob", user("bob", uid_of("bob")));
    let bob = people.find(b"bob", uid_of("bob")).unwrap();
    assert_eq!(
        people.membership(&bob, ListKind::Allow, "staff"),
        Membership::Unknown,
        "nobody asked for them"
    );
    end(engine);
}

#[test]
fn somebody_is_found_by_name_and_uid_and_never_one_of_two() {
    let engine = engine(DomainMode::Replicate);
    let people = people(&engine, DomainMode::Replicate);
    assert!(people.find(b"alice", uid_of("alice")).is_err(), "nothing is known yet");
    assert_eq!(people.has(b"alice", uid_of("alice")), None);
    refresh(&engine, &["alice"], &[], "1");
    assert!(people.find(b"alice", uid_of("alice")).is_ok());
    assert_eq!(people.has(b"alice", 1), Some(false));
    assert_eq!(people.has(b"bob", uid_of("bob")), Some(false));
    // Another entry with the same name and uid.
    engine.put(USERS, named("twin"), user("alice", uid_of("alice")));
    engine.flush();
    assert_eq!(people.has(b"alice", uid_of("alice")), Some(false));
    engine.put(USERS, named("twin"), user("alicia", uid_of("alice")));
    engine.flush();
    assert_eq!(people.has(b"alice", uid_of("alice")), Some(true));
    engine.removed(USERS, named("alice"));
    engine.flush();
    assert_eq!(people.has(b"alice", uid_of("alice")), Some(false));
}

#[test]
fn on_demand_names_never_asked_for_are_unknown() {
    let engine = engine(DomainMode::OnDemand);
    let people = people(&engine, DomainMode::OnDemand);
    let has = |name: &str| people.has(name.as_bytes(), uid_of(name));
    assert_eq!(has("alice"), None, "as after the cache was lost");
    put(&engine, USERS, "alice", user("alice", uid_of("alice")));
    assert_eq!((has("alice"), has("bob")), (Some(true), None));
    assert_eq!(people.has(b"alice", 1), Some(false), "it is another one");
    engine.removed(USERS, named("alice"));
    engine.flush();
    assert_eq!((has("alice"), has("bob")), (Some(false), None));
    put(&engine, USERS, "alice", user("alice", uid_of("alice")));
    assert_eq!(has("alice"), Some(true));
}

#[test]
fn members_are_those_of_groups_in_groups_and_of_the_primary_group() {
    let nested = |name: &'static str, gid: u32, members: &[&'static str]| {
        let members = members.iter().map(|name| dn(name)).collect();
        let (reference, name) = (name.as_bytes().into(), name.as_bytes().into());
        let gid = Some(gid);
        DirectoryEntry::Group(DirectoryGroup { name, gid, reference, members: Some(members) })
    };
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice", "bob", "carol"], &[], "1");
    let put = |name: &str, entry| put(&engine, GROUPS, name, entry);
    put("outer", nested("outer", 5000, &["inner", "carol"]));
    put("inner", nested("inner", 5001, &["alice", "outer"]));
    put("primary", nested("primary", 100, &[]));
    let people = people(&engine, DomainMode::Replicate);
    let is_in = |name: &str, group: &str| {
        let person = people.find(name.as_bytes(), uid_of(name)).unwrap();
        people.membership(&person, ListKind::Allow, group)
    };
    use Membership::{Member, NoSuchGroup, NotMember, Unknown};
    assert_eq!(is_in("alice", "outer"), Member);
    assert_eq!(is_in("carol", "outer"), Member);
    assert_eq!(is_in("carol", "inner"), Member, "they are in each other");
    assert_eq!(is_in("bob", "outer"), NotMember);
    assert_eq!(is_in("bob", "primary"), Member, "by the primary gid");
    assert_eq!(is_in("bob", "gone"), NoSuchGroup);
    put("inner", nested("inner", 5001, &["bob"]));
    assert_eq!((is_in("alice", "outer"), is_in("bob", "outer")), (NotMember, Member));
    put("inner", group("inner", 5001, None));
    assert_eq!(is_in("alice", "inner"), Unknown, "its members cannot be told");
}

/// A publisher serves the group that was known first, and rejects the other one by name.
#[test]
fn members_of_doubled_group_allowed_by_first() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice", "bob", "carol"], &[], "1");
    put(&engine, GROUPS, "first", group("ops", 5000, Some(&["alice"])));
    put(&engine, GROUPS, "second", group("ops", 5001, Some(&["bob"])));
    put(&engine, GROUPS, "spelling", group("OPS", 5002, Some(&["carol"])));
    let config = NameConfig { case: NameCase::Preserving, ..NameConfig::default() };
    for (names, others) in [(NameConfig::default(), vec!["bob"]), (config, vec!["bob", "carol"])] {
        let people = people(&engine, DomainMode::Replicate);
        let people = people.with_names(ListNames::new("corp", &names));
        let is_in = |list, name: &str| {
            let person = people.find(name.as_bytes(), uid_of(name)).unwrap();
            people.membership(&person, list, "ops")
        };
        assert_eq!(is_in(ListKind::Allow, "alice"), Membership::Member);
        assert_eq!(is_in(ListKind::Deny, "alice"), Membership::Member);
        for name in others {
            assert_eq!(is_in(ListKind::Allow, name), Membership::NotMember, "{name}");
            assert_eq!(is_in(ListKind::Deny, name), Membership::Member, "{name}");
        }
    }
}

/// On demand the group that was known first may be the one of an attacker.
#[test]
fn members_of_doubled_group_ambiguous_on_demand() {
    let engine = engine(DomainMode::OnDemand);
    for (name, gid) in [("alice", 5000), ("bob", 5001)] {
        put(&engine, USERS, name, user(name, uid_of(name)));
        put(&engine, GROUPS, name, group("ops", gid, None));
        engine.user_groups(named(name), &[named(name)]);
    }
    engine.flush();
    let people = people(&engine, DomainMode::OnDemand);
    for name in ["alice", "bob"] {
        let person = people.find(name.as_bytes(), uid_of(name)).unwrap();
        let is_in = |list| people.membership(&person, list, "ops");
        assert_eq!(is_in(ListKind::Allow), Membership::Ambiguous, "{name}");
        assert_eq!(is_in(ListKind::Deny), Membership::Member, "{name}");
    }
}

#[test]
fn members_by_name_count_through_nested_groups() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice", "bob"], &[], "1");
    put(&engine, GROUPS, "outer", mixed("outer", &[], &["inner"]));
    put(&engine, GROUPS, "inner", mixed("inner", &["alice"], &[]));
    let people = people(&engine, DomainMode::Replicate);
    let is_in = |name: &str| {
        let person = people.find(name.as_bytes(), uid_of(name)).unwrap();
        people.membership(&person, ListKind::Allow, "outer")
    };
    assert_eq!((is_in("alice"), is_in("bob")), (Membership::Member, Membership::NotMember));
}

#[test]
fn membership_through_an_unreadable_group_is_unknown() {
    let named_group = |name: &'static str, members: &[&'static str]| {
        let members = members.iter().map(|name| dn(name)).collect();
        let (reference, name) = (name.as_bytes().into(), name.as_bytes().into());
        let gid = Some(5000);
        DirectoryEntry::Group(DirectoryGroup { name, gid, reference, members: Some(members) })
    };
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(&engine, &["alice", "bob"], &[], "1");
    put(&engine, GROUPS, "outer", named_group("outer", &["inner", "alice"]));
    let is_in = |people: &UserIndex, name: &str, group: &str| {
        let person = people.find(name.as_bytes(), uid_of(name)).unwrap();
        people.membership(&person, ListKind::Allow, group)
    };
    let followed = people(&engine, DomainMode::Replicate);
    assert_eq!(is_in(&followed, "bob", "outer"), Membership::NotMember, "inner is not there");
    assert!(followed.is_ready(&["outer".to_owned()]));

    // The directory has it now, and no served entry has changed.
    let part = because("a part of the list");
    let cut = UnreadableEntry { name: "cn=inner", reference: b"inner", reason: &part };
    engine.rejected(GROUPS, named("inner"), &cut);
    engine.flush();
    assert!(!followed.is_ready(&["outer".to_owned()]));
    assert_eq!(is_in(&followed, "bob", "outer"), Membership::Unknown);
    assert_eq!(is_in(&followed, "alice", "outer"), Membership::Member, "named by outer itself");
    end(engine);

    let engine = cached(folder.path(), DomainMode::Replicate);
    let after_restart = people(&engine, DomainMode::Replicate);
    assert_eq!(is_in(&after_restart, "bob", "outer"), Membership::Unknown);
    put(&engine, GROUPS, "inner", named_group("inner", &[]));
    assert_eq!(is_in(&after_restart, "bob", "outer"), Membership::NotMember);
    end(engine);
}

/// The removal of the group waits, because many groups are unreadable. Its present list is unknown.
#[test]
fn membership_in_held_unreadable_group_is_unknown() {
    let engine = engine(DomainMode::Replicate);
    let groups = names(0..20);
    let lists: Vec<(&str, &[&str])> = groups.iter().map(|name| (&**name, &["alice"][..])).collect();
    refresh(&engine, &["alice", "bob"], &lists, "1");
    let people = people(&engine, DomainMode::Replicate);
    let is_in = |name: &str| {
        let person = people.find(name.as_bytes(), uid_of(name)).unwrap();
        people.membership(&person, ListKind::Allow, "user7")
    };
    assert_eq!((is_in("alice"), is_in("bob")), (Membership::Member, Membership::NotMember));
    for name in &groups {
        engine.rejected(GROUPS, named(name), &unreadable(name, &because("member;x-part")));
    }
    engine.flush();
    assert_eq!(fetched(&engine).entries.len(), 22, "all are served");
    assert_eq!((is_in("alice"), is_in("bob")), (Membership::Member, Membership::Unknown));
}

/// A rule for `ops` does not mean the group that the directory calls `ops@corp`.
#[test]
fn members_of_group_with_domain_not_allowed() {
    for mode in [DomainMode::Replicate, DomainMode::OnDemand] {
        let engine = engine(mode);
        refresh(&engine, &["alice", "bob"], &[], "1");
        for (name, called) in [("alice", "ops"), ("bob", "ops@Corp")] {
            put(&engine, GROUPS, name, group(called, 5000, Some(&[name])));
            if mode == DomainMode::OnDemand {
                engine.user_groups(named(name), &[named(name)]);
            }
        }
        engine.flush();
        for case in [NameCase::Sensitive, NameCase::Preserving] {
            let config = NameConfig { case, ..NameConfig::default() };
            let people = UserIndex::new(Arc::clone(&engine), mode, true);
            let people = people.with_names(ListNames::new("corp", &config));
            assert_eq!(people.rule_name(b"bob@corp"), "bob@corp");
            let is_in = |list, name: &str| {
                let person = people.find(name.as_bytes(), uid_of(name)).unwrap();
                people.membership(&person, list, "ops")
            };
            assert_eq!(is_in(ListKind::Allow, "alice"), Membership::Member);
            assert_eq!(is_in(ListKind::Allow, "bob"), Membership::NotMember);
            assert_eq!(is_in(ListKind::Deny, "bob"), Membership::Member, "as before");
        }
    }
}
