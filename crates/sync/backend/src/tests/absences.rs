// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of entries that a listing or a reply lacked, and of replies that are durable before they are sent.

use super::on_demand::{AGE, INTERNAL_TRACE, Played, ask_for, by_name};
use super::*;
use crate::on_demand_fetch::OnDemandFetcher;
use roster_provider::LookupQuery;
use std::collections::BTreeSet;

/// A mirror with so many users, and a group.
fn mirror(users: u32) -> (Arc<Played>, OnDemandFetcher<Played>) {
    let (played, asking) =
        Played::asking_for(engine(DomainMode::Replicate), DomainMode::Replicate, names(0..users));
    played.engine.refresh_began(GROUPS);
    played.engine.put(GROUPS, named("staff"), group("staff", 5000, Some(&[])));
    played.engine.refresh_ended(GROUPS, UnlistedEntries::Missing, Some(cookie("1")));
    played.list_users(Some(cookie("1")));
    (played, asking)
}

fn users(played: &Played) -> u64 {
    played.engine.status().users
}

fn held(played: &Played) -> u64 {
    played.engine.status().held_removals
}

/// Removes users from the directory.
fn remove_users(played: &Played, range: std::ops::Range<u32>) -> BTreeMap<String, u32> {
    let taken = names(range);
    let mut users = played.users.lock();
    taken.into_iter().filter_map(|name| users.remove(&name).map(|uid| (name, uid))).collect()
}

fn cookie_of_users(played: &Played) -> Option<SyncCookie> {
    let cookies = played.engine.cookies();
    cookies.into_iter().find(|(part, _)| *part == USERS).map(|(_, cookie)| cookie)
}

#[tokio::test]
async fn listing_lacks_users_found_by_key_stay() {
    let (played, asking) = mirror(200);
    *played.unlisted.lock() = names(0..50).into_iter().collect();
    played.list_users(Some(cookie("2")));
    assert_eq!(users(&played), 200, "before any search");
    assert_eq!(cookie_of_users(&played), Some(cookie("1")), "waits for the search");
    asking.absences().check_once().await.expect("a reply");
    assert_eq!((users(&played), held(&played)), (200, 0));
    assert_eq!(cookie_of_users(&played), Some(cookie("2")));
    assert!(!played.engine.has_missing());
}

#[tokio::test]
async fn listing_and_key_search_lack_few_removed() {
    let (played, asking) = mirror(200);
    remove_users(&played, 0..4);
    played.list_users(None);
    asking.absences().check_once().await.expect("a reply");
    assert_eq!((users(&played), held(&played)), (196, 0));
    assert_eq!(*played.looked_for.lock(), [100], "with others that must be there");
    assert_eq!(cookie_of_users(&played), None, "what the listing said of it counts now");
    // The fifth within ten minutes.
    remove_users(&played, 4..5);
    played.list_users(None);
    asking.absences().check_once().await.expect("a reply");
    assert_eq!((users(&played), held(&played)), (196, 1));
}

#[tokio::test]
async fn quarter_hidden_everywhere_held_until_return() {
    let (played, asking) = mirror(200);
    let taken = remove_users(&played, 0..50);
    played.list_users(Some(cookie("2")));
    asking.absences().check_once().await.expect("a reply");
    assert_eq!((users(&played), held(&played)), (200, 50));
    assert_eq!(cookie_of_users(&played), Some(cookie("1")));
    played.users.lock().extend(taken);
    asking.absences().recheck_held().await.expect("a reply");
    assert_eq!((users(&played), held(&played)), (200, 0));
    assert_eq!(cookie_of_users(&played), Some(cookie("2")));
}

#[tokio::test]
async fn control_or_base_missing_holds_one_entry() {
    for is_baseless in [true, false] {
        let (played, asking) = mirror(20);
        remove_users(&played, 0..1);
        played.list_users(None);
        *played.is_baseless.lock() = is_baseless;
        if !is_baseless {
            // Listed a moment ago, and no longer found.
            remove_users(&played, 1..20);
        }
        asking.absences().check_once().await.expect("a reply");
        assert_eq!((users(&played), held(&played)), (20, 1), "{is_baseless}");
    }
}

#[tokio::test]
async fn hidden_control_entries_count_as_missing() {
    let (played, asking) = mirror(100);
    remove_users(&played, 0..1);
    played.list_users(None);
    // Half of the other users are hidden since then, so a single removal counts as many.
    remove_users(&played, 1..50);
    asking.absences().check_once().await.expect("a reply");
    assert_eq!((users(&played), held(&played)), (100, 1));
}

#[tokio::test]
async fn empty_success_to_everything_removes_nobody() {
    let (played, asking) = mirror(20);
    let all = std::mem::take(&mut *played.users.lock());
    played.list_users(None);
    asking.absences().check_once().await.expect("a reply");
    assert_eq!((users(&played), held(&played)), (20, 20));
    *played.users.lock() = all;
    played.list_users(None);
    assert_eq!((users(&played), held(&played)), (20, 0));
}

#[tokio::test]
async fn unreachable_directory_decides_nothing() {
    let (played, asking) = mirror(20);
    remove_users(&played, 0..1);
    played.list_users(None);
    *played.unreachable.lock() = true;
    asking.absences().check_once().await.expect_err("no reply");
    assert_eq!((users(&played), held(&played)), (20, 0));
    assert!(played.engine.has_missing());
    *played.unreachable.lock() = false;
    played.engine.online("ldap://server", None);
    let gone = async {
        while users(&played) == 20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let absences = asking.absences();
    tokio::select! {
        () = absences.keep_checking() => {}
        gone = tokio::time::timeout(SOON, gone) => gone.expect("it is looked for again"),
    }
}

#[tokio::test]
async fn confirm_keeps_entries_that_returned() {
    let (played, asking) = mirror(200);
    let mut taken = remove_users(&played, 0..120);
    played.list_users(None);
    asking.absences().check_once().await.expect("a reply");
    assert_eq!(held(&played), 120);
    taken.retain(|name, _| name != "user7");
    played.users.lock().extend(taken);
    assert_eq!(asking.absences().confirm().await, Ok((1, 119)));
    assert_eq!((users(&played), held(&played)), (199, 0));
    assert_eq!(asking.absences().confirm().await, Ok((0, 0)));
}

#[tokio::test]
async fn confirm_without_reply_removes_nobody() {
    let (played, asking) = mirror(20);
    remove_users(&played, 0..10);
    played.list_users(None);
    asking.absences().check_once().await.expect("a reply");
    *played.unreachable.lock() = true;
    assert!(asking.absences().confirm().await.is_err());
    *played.unreachable.lock() = false;
    // All users that were listed a moment ago are hidden now.
    remove_users(&played, 10..20);
    let refused = asking.absences().confirm().await.expect_err("not credible").into_reason();
    assert!(refused.text.contains("10 listed users"), "{refused}");
    assert_eq!(refused.message, &directory::KEY_SEARCH_NOT_CREDIBLE);
    assert_eq!((users(&played), held(&played)), (20, 10));
}

#[tokio::test]
async fn named_deletions_need_no_search() {
    let (played, _) = mirror(20);
    let name = |number: u32| Played::id(&format!("user{number}"), uid(&played, number));
    let ids: Vec<EntryId> = (0..9).map(name).collect();
    ids.into_iter().for_each(|id| played.engine.removed(USERS, id));
    played.engine.flush();
    assert_eq!((users(&played), held(&played)), (11, 0), "more than 2 % go");
}

fn uid(played: &Played, number: u32) -> u32 {
    played.users.lock()[&format!("user{number}")]
}

#[tokio::test]
async fn on_demand_leavers_beyond_three_are_served() {
    let crowd = names(0..20);
    let (played, asking) = Played::asking(crowd.clone());
    ask_for(&played, &asking, &crowd).await;
    played.engine.expire_all();
    let mut answers = Vec::new();
    for (number, name) in (0..).zip(names(0..5)) {
        remove_users(&played, number..number + 1);
        let found = asking.lookup(INTERNAL_TRACE, &by_name(&name)).await.expect("an answer");
        answers.push(!found.records.is_empty());
    }
    assert_eq!(answers, [false, false, false, true, true]);
    assert_eq!((users(&played), held(&played)), (17, 2));
}

#[tokio::test]
async fn on_demand_reply_lacks_user_found_by_key() {
    let (played, asking) = Played::asking(names(0..20));
    ask_for(&played, &asking, &names(0..20)).await;
    *played.unlisted.lock() = names(0..12).into_iter().collect::<BTreeSet<_>>();
    played.engine.expire_all();
    asking.refresh(AGE).await;
    assert_eq!((users(&played), held(&played)), (20, 0));
    let user3 = asking.lookup(INTERNAL_TRACE, &by_name("user3")).await.expect("an answer");
    assert!(!user3.records.is_empty());
}

#[tokio::test]
async fn on_demand_hidden_groups_are_served() {
    let (played, asking) = Played::asking(["alice".to_owned()]);
    let groups = (0..6).map(|number| (format!("group{number}"), vec!["alice".to_owned()]));
    *played.groups.lock() = groups.collect();
    let groups_of = LookupQuery::GroupsOf(b"alice".to_vec());
    asking.lookup(INTERNAL_TRACE, &groups_of).await.expect("an answer");
    for number in 0..6 {
        let group = LookupQuery::GroupByName(format!("group{number}").into());
        asking.lookup(INTERNAL_TRACE, &group).await.expect("an answer");
    }
    played.groups.lock().clear();
    played.engine.expire_all();
    asking.refresh(AGE).await;
    asking.refresh(AGE).await;
    let known = fetched(&played.engine);
    assert_eq!(known.entries.len(), 7);
    let group = LookupQuery::GroupByName(b"group3".to_vec());
    assert!(!asking.lookup(INTERNAL_TRACE, &group).await.expect("kept").records.is_empty());
}

/// Returns the number of alice's known groups.
fn groups_of_alice(played: &Played) -> usize {
    fetched(&played.engine).fact("alice").groups.as_ref().map_or(0, Vec::len)
}

/// Puts alice in six groups, with old replies.
async fn alice_in_groups() -> (Arc<Played>, OnDemandFetcher<Played>, LookupQuery) {
    let (played, asking) = Played::asking(["alice".to_owned()]);
    let groups = (0..6).map(|number| (format!("group{number}"), vec!["alice".to_owned()]));
    *played.groups.lock() = groups.collect();
    let groups_of = LookupQuery::GroupsOf(b"alice".to_vec());
    asking.lookup(INTERNAL_TRACE, &groups_of).await.expect("an answer");
    assert_eq!(groups_of_alice(&played), 6);
    played.engine.expire_all();
    (played, asking, groups_of)
}

#[tokio::test]
async fn on_demand_hidden_groups_keep_their_users() {
    let (played, asking, groups_of) = alice_in_groups().await;
    let hidden = std::mem::take(&mut *played.groups.lock());
    for _ in 0..3 {
        asking.lookup(INTERNAL_TRACE, &groups_of).await.expect("an answer");
        assert_eq!((groups_of_alice(&played), held(&played)), (6, 6));
        asking.refresh(AGE).await;
        played.engine.expire_all();
    }
    *played.groups.lock() = hidden;
    asking.absences().recheck_held().await.expect("a reply");
    assert_eq!((groups_of_alice(&played), held(&played)), (6, 0));
    asking.lookup(INTERNAL_TRACE, &groups_of).await.expect("an answer");
    assert_eq!(groups_of_alice(&played), 6);
}

#[tokio::test]
async fn on_demand_ended_memberships_gone_with_one_answer() {
    let (played, asking, groups_of) = alice_in_groups().await;
    let leave = |number: u32| {
        let mut groups = played.groups.lock();
        groups.get_mut(&format!("group{number}")).expect("a group").clear();
    };
    leave(3);
    asking.lookup(INTERNAL_TRACE, &groups_of).await.expect("an answer");
    assert_eq!((groups_of_alice(&played), held(&played)), (5, 0));
    leave(4);
    played.engine.expire_all();
    asking.refresh(AGE).await;
    asking.refresh(AGE).await;
    assert_eq!((groups_of_alice(&played), held(&played)), (4, 0), "by refreshes");
}

/// A user may be in one group through the other.
#[tokio::test]
async fn on_demand_hidden_group_keeps_groups_around_it() {
    let (played, asking, groups_of) = alice_in_groups().await;
    {
        let mut groups = played.groups.lock();
        (0..4).for_each(|number| drop(groups.remove(&format!("group{number}"))));
        groups.get_mut("group5").expect("a group").clear();
    }
    for _ in 0..3 {
        asking.lookup(INTERNAL_TRACE, &groups_of).await.expect("an answer");
        assert_eq!((groups_of_alice(&played), held(&played)), (6, 4));
        played.engine.expire_all();
    }
}

/// Returns the names in the cache after a kill at this moment.
fn names_in_cache(folder: &Path) -> Vec<String> {
    let copy = tempfile::tempdir().expect("a folder");
    std::fs::copy(folder.join(store::CACHE_FILE), copy.path().join(store::CACHE_FILE))
        .expect("copied");
    let known = fetched(&cached(copy.path(), DomainMode::OnDemand));
    known.names().into_iter().map(str::to_owned).collect()
}

/// Makes the writer for an on-demand cache in that directory.
fn cache_of_answers(folder: &Path) -> CacheWriter {
    cache_in(folder, DomainMode::OnDemand)
}

#[tokio::test]
async fn on_demand_reply_waits_for_the_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::OnDemand);
    let (_stop, shutdown) = roster_role::Shutdown::new();
    let cache = cache_of_answers(folder.path());
    let asked = async {
        for (number, name) in ["alice", "bob", "carol"].into_iter().enumerate() {
            engine.put(USERS, named(name), user(name, uid_of(name)));
            engine.flush();
            engine.wait_until_committed().await;
            assert_eq!(names_in_cache(folder.path()).len(), number + 1, "{name}");
        }
        // Concurrent replies share one transaction.
        let others = names(0..20).into_iter().map(|name| {
            let engine = &engine;
            async move {
                engine.put(USERS, named(&name), user(&name, uid_of(&name)));
                engine.flush();
                engine.wait_until_committed().await;
            }
        });
        futures_util::future::join_all(others).await;
        assert_eq!(names_in_cache(folder.path()).len(), 23);
    };
    tokio::select! {
        ended = cache.write_behind(&engine, shutdown) => panic!("the writer ended: {ended:?}"),
        asked = tokio::time::timeout(SOON, asked) => asked.expect("in time"),
    }
}

#[tokio::test]
async fn failing_disk_holds_up_no_reply() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::OnDemand);
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.flush();
    let failing = async {
        tokio::task::yield_now().await;
        engine.set_cache_error(because("the disk is full"));
    };
    tokio::join!(engine.wait_until_committed(), failing);
    engine.wait_until_committed().await;
    assert_eq!(engine.status().cache_error, "the disk is full");
    assert!(engine.cached_entry(&by_name("alice")).is_some());
}
