// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the engine, with the calls of a provider, and with the images that the publisher reads.

mod absences;
mod auth;
mod bus;
mod limits;
mod nested_groups;
mod on_demand;

use super::cache_writer::{CacheWriter, ExistingCache};
use super::change_batch::ChangeBatch;
use super::engine::{Engine, EngineSettings, LoadedCache, PendingRereads};
use super::rejected::LISTED_MAX;
use roster_bus::domain_image::{COMPLETE, CURRENT, ImageHeader, NO_REFERENCE, Numbers, Record};
use roster_config::{
    AuthConfig, AuthMethod, DomainConfig, DomainMode, FilesConfig, HomeShellOverrides,
    ServingConfig, WhenAway,
};
use roster_domain_cache::{self as store, DomainCache, OpenedCache};
use roster_messages::CodedError;
use roster_messages::table::directory;
use roster_provider::account::Account;
use roster_provider::reason::Reason;
use roster_provider::{
    DirectoryEntry, DirectoryGroup, DirectoryUser, EntryId, EntrySink, KeySearchResult, Member,
    SearchId, SyncCookie, UnlistedEntries, UnreadableEntry,
};
use roster_system_tests::wait::SOON;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(super) const USERS: SearchId = SearchId(0);
pub(super) const GROUPS: SearchId = SearchId(1);

fn settings(mode: DomainMode) -> EngineSettings {
    EngineSettings {
        ignores_case: false,
        domain: "corp".into(),
        mode,
        mass_deletion: 0.5,
        has_dn_lists: true,
        has_name_lists: true,
        has_logins: true,
        states_removals: false,
    }
}

/// Makes an engine without a cache.
pub(super) fn engine(mode: DomainMode) -> Arc<Engine> {
    let engine = Engine::new(settings(mode), LoadedCache::default(), None, None);
    engine.set_parts(vec![USERS, GROUPS]);
    engine
}

/// Makes an engine that continues from the cache in a directory.
pub(super) fn cached(folder: &Path, mode: DomainMode) -> Arc<Engine> {
    let opened = store::open(folder, "corp", |store| LoadedCache::read(store, mode));
    let OpenedCache { cache: store, loaded, quarantined: set_aside } = opened.expect("a cache");
    assert_eq!(set_aside, None);
    let engine = Engine::new(settings(mode), loaded, Some(Arc::new(store)), None);
    engine.set_parts(vec![USERS, GROUPS]);
    engine
}

/// Writes the batches, as the writer does.
pub(super) fn write(engine: &Engine) {
    let (store, batches) = engine.unwritten_batches();
    write_batches(&store.expect("a cache"), &batches);
    engine.mark_written(&batches);
}

fn write_batches(store: &DomainCache, batches: &[Arc<ChangeBatch>]) {
    let written = store.write(|writer| batches.iter().try_for_each(|batch| batch.write(writer)));
    written.expect("written");
}

/// Ends the process regularly.
pub(super) fn end(engine: Arc<Engine>) {
    write(&engine);
    drop(engine.take_store());
    drop(engine);
}

fn id(number: u32) -> EntryId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    EntryId(id)
}

pub(super) fn user(name: &str, uid: u32) -> DirectoryEntry<'_> {
    let text = || Cow::Borrowed(&b""[..]);
    DirectoryEntry::User(DirectoryUser {
        name: name.as_bytes().into(),
        uid,
        gid: 100,
        gecos: text(),
        dir: text(),
        shell: text(),
        reference: name.as_bytes().into(),
        account: Account::default(),
    })
}

/// An unreadable entry other than a group.
pub(super) fn because(text: &str) -> Reason {
    Reason::new(&directory::ATTRIBUTE_MISSING, text)
}

pub(super) fn unreadable<'a>(name: &'a str, reason: &'a Reason) -> UnreadableEntry<'a> {
    UnreadableEntry { name, reference: b"", reason }
}

pub(super) fn group<'a>(
    name: &'a str,
    gid: u32,
    members: Option<&[&'a str]>,
) -> DirectoryEntry<'a> {
    DirectoryEntry::Group(DirectoryGroup {
        name: name.as_bytes().into(),
        gid: Some(gid),
        reference: Cow::Borrowed(b""),
        members: members.map(|all| all.iter().map(|name| dn(name)).collect()),
    })
}

/// A member by DN, which is as short as a name here.
pub(super) fn dn(dn: &str) -> Member<'_> {
    Member::Dn(dn.as_bytes().into())
}

/// A group that names these users by name and those entries by DN.
pub(super) fn mixed<'a>(name: &'a str, names: &[&'a str], dns: &[&'a str]) -> DirectoryEntry<'a> {
    let names = names.iter().map(|name| Member::Name(name.as_bytes().into()));
    let members = Some(names.chain(dns.iter().map(|name| dn(name))).collect());
    let (reference, gid) = (name.as_bytes().into(), Some(uid_of(name)));
    DirectoryEntry::Group(DirectoryGroup { name: name.as_bytes().into(), gid, reference, members })
}

fn cookie(value: &str) -> SyncCookie {
    SyncCookie { binding: "ldap://server".into(), value: value.into() }
}

/// A full refresh of users and groups.
pub(super) fn refresh(engine: &Engine, users: &[&str], groups: &[(&str, &[&str])], value: &str) {
    engine.refresh_began(USERS);
    for name in users {
        engine.put(USERS, named(name), user(name, uid_of(name)));
    }
    engine.refresh_ended(USERS, UnlistedEntries::Removed, Some(cookie(value)));
    engine.refresh_began(GROUPS);
    for (name, members) in groups {
        engine.put(GROUPS, named(name), group(name, 5000, Some(members)));
    }
    engine.refresh_ended(GROUPS, UnlistedEntries::Removed, Some(cookie(value)));
    engine.flush();
}

pub(super) fn named(name: &str) -> EntryId {
    let mut id = [b' '; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    EntryId(id)
}

pub(super) fn uid_of(name: &str) -> u32 {
    1000 + name.bytes().map(u32::from).sum::<u32>()
}

fn names(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| format!("user{number}")).collect()
}

fn all(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// State of a publisher.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    epoch: u64,
    sequence: u64,
    complete: bool,
    current: bool,
    entries: BTreeMap<u32, Fact>,
}

#[derive(Clone, Debug, PartialEq)]
struct Fact {
    name: String,
    id: u32,
    reference: u32,
    by_name: u32,
    members: Option<Vec<u32>>,
    groups: Option<Vec<u32>>,
}

impl Known {
    /// Fetches the changes up to now. Returns whether the image had everything.
    fn fetch(&mut self, engine: &Engine) -> bool {
        let view = engine.view(self.epoch, self.sequence).expect("something to fetch");
        let mut file = File::from(view.write().expect("an image"));
        let mut image = Vec::new();
        file.rewind().expect("a file");
        file.read_to_end(&mut image).expect("readable");
        let (header, records) = ImageHeader::parse(&image).expect("an image");
        if header.since == 0 {
            self.entries.clear();
        } else {
            assert_eq!((header.epoch, header.since), (self.epoch, self.sequence));
        }
        (self.epoch, self.sequence) = (header.epoch, header.sequence);
        self.complete = header.flags & COMPLETE != 0;
        self.current = header.flags & CURRENT != 0;
        records.for_each(|record| self.learn(&record.expect("a record")));
        header.since == 0
    }

    fn learn(&mut self, record: &Record<'_>) {
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).expect("UTF-8");
        let list = |numbers: Numbers<'_>| numbers.iter().collect::<Vec<_>>();
        let (number, fact) = match record {
            Record::User(user) => {
                let (name, id, reference) = (text(user.name), user.uid, user.reference);
                let by_name = user.by_name;
                (user.number, Fact { name, id, reference, by_name, members: None, groups: None })
            }
            Record::Group(group) => {
                let (name, id, reference) =
                    (text(group.name), group.gid.unwrap_or_default(), group.reference);
                let members = group.members.map(list);
                let by_name = NO_REFERENCE;
                (group.number, Fact { name, id, reference, by_name, members, groups: None })
            }
            Record::Removed { number } => {
                self.entries.remove(number);
                return;
            }
            Record::GroupsOf { user, groups } => {
                self.entries.get_mut(user).expect("a user").groups = Some(list(*groups));
                return;
            }
        };
        self.entries.insert(number, fact);
    }

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.entries.values().map(|fact| fact.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    fn fact(&self, name: &str) -> &Fact {
        self.entries.values().find(|fact| fact.name == name).expect(name)
    }
}

fn fetched(engine: &Engine) -> Known {
    let mut known = Known::default();
    assert!(known.fetch(engine), "everything");
    known
}

#[test]
fn nothing_is_served_before_every_part_was_enumerated_whole() {
    let engine = engine(DomainMode::Replicate);
    engine.refresh_began(USERS);
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.flush();
    assert!(engine.view(0, 0).is_err(), "in the middle of the first refresh");
    engine.refresh_ended(USERS, UnlistedEntries::Removed, None);
    engine.flush();
    assert!(engine.view(0, 0).is_err(), "users without their groups");
    assert_eq!(engine.subscribe().borrow().sequence, 0);
    engine.refresh_began(GROUPS);
    engine.refresh_ended(GROUPS, UnlistedEntries::Removed, None);
    assert!(engine.view(0, 0).is_err(), "not flushed");
    engine.flush();
    assert_eq!(engine.subscribe().borrow().sequence, 1);
    let known = fetched(&engine);
    assert_eq!(known.names(), ["alice"]);
    assert!(known.complete);
}

#[test]
fn a_first_refresh_that_only_lists_changes_makes_nothing_whole() {
    let engine = engine(DomainMode::Replicate);
    for part in [USERS, GROUPS] {
        engine.refresh_began(part);
        engine.refresh_ended(part, UnlistedEntries::Unchanged, None);
    }
    engine.flush();
    assert!(engine.view(0, 0).is_err());
}

#[test]
fn a_change_becomes_visible_with_the_flush_and_not_before() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice"], &[], "1");
    let mut known = fetched(&engine);
    engine.put(USERS, named("bob"), user("bob", 1001));
    assert_eq!(fetched(&engine), known);
    engine.flush();
    assert_eq!(engine.subscribe().borrow().sequence, known.sequence + 1);
    assert!(!known.fetch(&engine), "a change is enough");
    assert_eq!(known.names(), ["alice", "bob"]);
}

#[test]
fn an_unchanged_entry_is_no_change() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice"], &[("staff", &["alice"])], "1");
    let before = fetched(&engine);
    refresh(&engine, &["alice"], &[("staff", &["alice"])], "2");
    assert_eq!(fetched(&engine), before);
    assert_eq!(engine.status().last_change_unix, 0);
}

#[test]
fn members_and_users_meet_in_their_references() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice"], &[("staff", &["alice", "nobody"])], "1");
    let known = fetched(&engine);
    let members = known.fact("staff").members.clone().expect("known");
    assert_eq!(members[0], known.fact("alice").reference);
    assert_eq!(members.len(), 2);
    assert_ne!(members[1], members[0]);
}

#[test]
fn groups_with_both_kinds_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(&engine, &["alice", "bob"], &[("staff", &["alice"])], "1");
    assert_eq!(engine.status().mixed_groups, 0, "all by DN");
    engine.put(GROUPS, named("crew"), mixed("crew", &["alice", "bob"], &["alice"]));
    engine.put(GROUPS, named("few"), mixed("few", &["bob"], &[]));
    engine.flush();
    assert_eq!(engine.status().mixed_groups, 1);
    let known = fetched(&engine);
    let alice = known.fact("alice");
    let crew = known.fact("crew").members.clone().expect("known");
    assert_eq!(crew, [alice.by_name, known.fact("bob").by_name, alice.reference]);
    end(engine);

    let engine = cached(folder.path(), DomainMode::Replicate);
    assert_eq!(engine.status().mixed_groups, 1, "out of the cache");
    engine.put(GROUPS, named("crew"), mixed("crew", &[], &["alice"]));
    assert_eq!(engine.status().mixed_groups, 0);
    engine.put(GROUPS, named("few"), mixed("few", &["bob"], &["alice"]));
    assert_eq!(engine.status().mixed_groups, 1);
    engine.removed(GROUPS, named("few"));
    assert_eq!(engine.status().mixed_groups, 0);
}

#[test]
fn engine_refresh_removes_unlisted_keeps_present() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice", "bob", "carol"], &[], "1");
    engine.refresh_began(USERS);
    engine.put(USERS, named("alice"), user("alice", uid_of("alice")));
    engine.present(USERS, named("bob"));
    engine.refresh_ended(USERS, UnlistedEntries::Removed, None);
    engine.flush();
    assert_eq!(fetched(&engine).names(), ["alice", "bob"]);
}

#[test]
fn what_a_refresh_of_changes_does_not_mention_stays() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice", "bob"], &[], "1");
    engine.refresh_began(USERS);
    engine.removed(USERS, named("bob"));
    engine.refresh_ended(USERS, UnlistedEntries::Unchanged, None);
    engine.flush();
    assert_eq!(fetched(&engine).names(), ["alice"]);
}

#[test]
fn a_refresh_that_fails_midway_removes_nothing() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice", "bob"], &[], "1");
    engine.refresh_began(USERS);
    engine.put(USERS, named("carol"), user("carol", 1003));
    engine.offline(&because("the connection broke"));
    engine.flush();
    assert_eq!(fetched(&engine).names(), ["alice", "bob", "carol"]);
    engine.refresh_began(USERS);
    engine.present(USERS, named("alice"));
    engine.present(USERS, named("bob"));
    engine.refresh_ended(USERS, UnlistedEntries::Removed, None);
    engine.flush();
    assert_eq!(fetched(&engine).names(), ["alice", "bob"], "what the void refresh saw is gone");
}

#[test]
fn one_part_never_removes_the_entries_of_another() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice"], &[("staff", &[])], "1");
    engine.refresh_began(USERS);
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.refresh_ended(USERS, UnlistedEntries::Removed, None);
    engine.removed(USERS, named("staff"));
    engine.flush();
    assert_eq!(fetched(&engine).names(), ["alice", "staff"]);
}

#[test]
fn a_renamed_entry_keeps_its_number() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice", "bob"], &[], "1");
    let mut known = fetched(&engine);
    let number = *known.entries.iter().find(|(_, fact)| fact.name == "alice").expect("alice").0;
    engine.put(USERS, named("alice"), user("alicia", 1000));
    engine.flush();
    known.fetch(&engine);
    assert_eq!(known.entries[&number].name, "alicia");
    assert_eq!(known.names(), ["alicia", "bob"]);
}

#[test]
fn numbers_references_and_cookies_outlive_a_restart_and_are_served_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(&engine, &["alice", "bob"], &[("staff", &["bob", "nobody"])], "7");
    let before = fetched(&engine);
    end(engine);
    let engine = cached(folder.path(), DomainMode::Replicate);
    assert_eq!(engine.subscribe().borrow().sequence, 1, "told before any directory answers");
    let after = fetched(&engine);
    assert_eq!(after.entries, before.entries);
    assert_ne!(after.epoch, before.epoch);
    assert_eq!(engine.cookies(), [(USERS, cookie("7")), (GROUPS, cookie("7"))]);
    refresh(&engine, &["alice", "bob", "carol"], &[("staff", &["bob", "nobody"])], "8");
    let later = fetched(&engine);
    assert_eq!(later.fact("staff"), before.fact("staff"));
    let number = |known: &Known, name: &str| {
        *known.entries.iter().find(|(_, fact)| fact.name == name).expect(name).0
    };
    assert!(number(&later, "carol") > number(&before, "staff"), "a number of its own");
}

#[test]
fn an_image_says_whether_the_directory_was_heard_since_the_process_began() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(&engine, &["alice"], &[("staff", &[])], "1");
    assert!(fetched(&engine).current);
    end(engine);
    let engine = cached(folder.path(), DomainMode::Replicate);
    let mut known = fetched(&engine);
    assert!(!known.current, "nothing was heard yet");
    engine.refresh_began(USERS);
    engine.refresh_ended(USERS, UnlistedEntries::Unchanged, Some(cookie("1")));
    engine.flush();
    assert!(!fetched(&engine).current, "groups may have changed");
    engine.refresh_began(GROUPS);
    engine.refresh_ended(GROUPS, UnlistedEntries::Unchanged, Some(cookie("1")));
    engine.flush();
    let sequence = engine.subscribe().borrow().sequence;
    assert_eq!(sequence, known.sequence + 1, "told, though nothing else changed");
    assert!(!known.fetch(&engine));
    assert!(known.current);
    engine.put(USERS, named("bob"), user("bob", 1));
    engine.flush();
    known.fetch(&engine);
    assert_eq!(known.names(), ["alice", "bob", "staff"]);
}

#[test]
fn a_first_refresh_that_was_interrupted_leaves_nothing_that_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    engine.refresh_began(USERS);
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.flush();
    end(engine);
    let engine = cached(folder.path(), DomainMode::Replicate);
    assert!(engine.view(0, 0).is_err());
    assert_eq!(engine.cookies(), []);
    refresh(&engine, &["bob"], &[], "1");
    assert_eq!(fetched(&engine).names(), ["bob"], "what is gone since is not served either");
}

#[test]
fn what_was_not_written_is_lost_together_with_its_cookie() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(&engine, &["alice"], &[], "1");
    write(&engine);
    engine.put(USERS, named("bob"), user("bob", 1001));
    engine.cookie(USERS, cookie("2"));
    engine.flush();
    drop(engine.take_store());
    let engine = cached(folder.path(), DomainMode::Replicate);
    assert_eq!(fetched(&engine).names(), ["alice"]);
    assert_eq!(engine.cookies()[0], (USERS, cookie("1")));
}

#[test]
fn an_image_is_the_same_whatever_part_of_it_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(&engine, &["alice", "bob", "carol"], &[("staff", &["bob"])], "1");
    write(&engine);
    engine.removed(USERS, named("bob"));
    engine.put(USERS, named("dave"), user("dave", 1));
    engine.put(USERS, named("alice"), user("alicia", 1000));
    engine.flush();
    let before = fetched(&engine);
    assert_eq!(before.names(), ["alicia", "carol", "dave", "staff"]);
    let (store, batches) = engine.unwritten_batches();
    write_batches(&store.expect("a cache"), &batches);
    assert_eq!(fetched(&engine), before, "written, and not yet known to be");
    engine.mark_written(&batches);
    assert_eq!(fetched(&engine), before);
}

#[test]
fn a_view_is_of_one_moment_whatever_is_written_before_it_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(&engine, &["alice"], &[], "1");
    write(&engine);
    let view = engine.view(0, 0).expect("a view");
    engine.put(USERS, named("bob"), user("bob", 1001));
    engine.flush();
    write(&engine);
    let mut file = File::from(view.write().expect("an image"));
    let mut image = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut image)).expect("readable");
    let (header, _) = ImageHeader::parse(&image).expect("an image");
    assert_eq!((header.sequence, header.records), (1, 1));
}

#[test]
fn without_a_disk_the_domain_goes_on_from_memory() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice"], &[], "0");
    for round in 0..1000 {
        engine.put(USERS, named("bob"), user("bob", round));
        engine.cookie(USERS, cookie(&round.to_string()));
        engine.flush();
    }
    engine.removed(USERS, named("alice"));
    engine.flush();
    let known = fetched(&engine);
    assert_eq!(known.names(), ["bob"]);
    assert_eq!(known.fact("bob").id, 999);
    assert!(engine.unwritten_batches().1.len() <= 300, "what waits for a disk is bounded");
}

#[test]
fn what_waited_for_the_disk_is_all_there_when_it_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice"], &[("staff", &["alice", "bob"])], "0");
    for round in 0..1000 {
        engine.removed(USERS, named("bob"));
        engine.put(USERS, named("bob"), user("bob", round));
        engine.cookie(USERS, cookie(&round.to_string()));
        engine.flush();
    }
    let before = fetched(&engine);
    let opened = store::open(folder.path(), "corp", |_| Ok(())).expect("a cache");
    engine.set_store(Arc::new(opened.cache));
    end(engine);
    let engine = cached(folder.path(), DomainMode::Replicate);
    assert_eq!(fetched(&engine).entries, before.entries);
    assert_eq!(engine.cookies()[0], (USERS, cookie("999")));
}

#[test]
fn a_publisher_that_is_far_behind_gets_everything() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice"], &[], "1");
    let mut known = fetched(&engine);
    let many: Vec<String> = (0..10_000).map(|number| format!("member{number}")).collect();
    for round in 0..400 {
        engine.put(GROUPS, named("staff"), group("staff", round, Some(&all(&many))));
        engine.flush();
    }
    assert!(known.fetch(&engine), "16 MB of changes are not kept");
    assert_eq!(known.fact("staff").id, 399);
    engine.put(GROUPS, named("staff"), group("staff", 1, Some(&[])));
    engine.flush();
    assert!(!known.fetch(&engine));
    assert!(!known.fetch(&engine), "nothing new is a change of nothing");
}

#[test]
fn changes_lead_to_what_everything_is_whatever_happens() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    let crowd = names(0..60);
    refresh(&engine, &all(&crowd), &[("staff", &["user1", "user2"])], "0");
    let mut follower = fetched(&engine);
    let mut random = 1_u64;
    for _ in 0..500 {
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..next(6) {
            let name = &crowd[next(60) as usize];
            match next(6) {
                0 => engine.removed(USERS, named(name)),
                1 => engine.rejected(USERS, named(name), &unreadable(name, &because("no uid"))),
                2 => engine.put(GROUPS, named("staff"), group("staff", 1, Some(&[name]))),
                _ => engine.put(USERS, named(name), user(name, next(3) as u32)),
            }
        }
        engine.flush();
        if next(3) == 0 {
            write(&engine);
        }
        if next(4) == 0 {
            follower.fetch(&engine);
            assert_eq!(follower, fetched(&engine));
        }
    }
    follower.fetch(&engine);
    end(engine);
    let entries = fetched(&cached(folder.path(), DomainMode::Replicate)).entries;
    assert_eq!(entries, follower.entries, "and the cache says the same");
}

#[test]
fn a_rejected_entry_is_not_served_until_it_can_be_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(&engine, &["alice", "bob"], &[], "1");
    engine.rejected(
        USERS,
        named("bob"),
        &unreadable("uid=bob,dc=corp", &because("it has two uidNumbers")),
    );
    engine.flush();
    assert_eq!(fetched(&engine).names(), ["alice"]);
    end(engine);
    let engine = cached(folder.path(), DomainMode::Replicate);
    let rejected = engine.rejections(0, 10);
    assert_eq!(rejected.len(), 1, "after a restart as well");
    assert_eq!(rejected[0].name, "uid=bob,dc=corp");
    assert_eq!(rejected[0].reason, "it has two uidNumbers");
    assert_eq!(rejected[0].code, directory::ATTRIBUTE_MISSING.code);
    engine.put(USERS, named("bob"), user("bob", 1001));
    engine.flush();
    assert_eq!(fetched(&engine).names(), ["alice", "bob"]);
    assert_eq!(engine.status().rejected, 0);
    end(engine);
    assert_eq!(cached(folder.path(), DomainMode::Replicate).status().rejected, 0);
}

#[test]
fn rejected_entries_are_listed_page_by_page_within_bounds() {
    let engine = engine(DomainMode::Replicate);
    engine.refresh_began(USERS);
    for number in 0..LISTED_MAX as u32 + 10 {
        engine.rejected(
            USERS,
            id(number),
            &unreadable(&format!("entry {number}"), &because("no uid")),
        );
    }
    engine.refresh_ended(USERS, UnlistedEntries::Removed, None);
    assert_eq!(engine.status().rejected, LISTED_MAX as u64 + 10);
    assert_eq!(engine.rejections(5, 2)[0].name, "entry 5");
    assert_eq!(engine.rejections(5, 2).len(), 2);
    assert_eq!(engine.rejections(LISTED_MAX as u32, 10).len(), 0);
    engine.refresh_began(USERS);
    engine.refresh_ended(USERS, UnlistedEntries::Removed, None);
    assert_eq!(engine.status().rejected, 0);
}

#[test]
fn a_text_that_no_record_holds_is_a_reason_to_reject() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice"], &[], "1");
    let long = "x".repeat(70_000);
    engine.put(USERS, named("alice"), user(&long, 1000));
    engine.flush();
    assert_eq!(fetched(&engine).names(), [""; 0]);
    let rejected = &engine.rejections(0, 1)[0];
    assert_eq!(rejected.reason, "a text of a user is too long");
    assert_eq!(rejected.code, directory::FIELD_TOO_LONG.code);
}

#[test]
fn a_mass_deletion_waits_and_the_rest_of_the_refresh_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    let crowd = names(0..100);
    refresh(&engine, &all(&crowd), &[("staff", &[])], "1");
    refresh(&engine, &["user7", "new"], &[("staff", &["new"])], "2");
    let known = fetched(&engine);
    assert_eq!(known.entries.len(), 102, "nobody went, somebody came");
    assert_eq!(known.fact("staff").members.as_ref().map(Vec::len), Some(1));
    assert_eq!(engine.status().held_removals, 99);
    end(engine);
    let engine = cached(folder.path(), DomainMode::Replicate);
    let cookies = engine.cookies();
    assert_eq!(cookies, [(USERS, cookie("1")), (GROUPS, cookie("2"))].to_vec());
    assert_eq!(fetched(&engine).entries.len(), 102);
}

#[test]
fn a_confirmation_lets_held_removals_go_and_the_cookie_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    let crowd = names(0..100);
    refresh(&engine, &all(&crowd), &[], "1");
    refresh(&engine, &["user7"], &[], "2");
    let mut known = fetched(&engine);
    assert_eq!(confirm_all(&engine), 99);
    known.fetch(&engine);
    assert_eq!(known.names(), ["user7"]);
    assert_eq!(engine.status().held_removals, 0);
    assert_eq!(confirm_all(&engine), 0);
    end(engine);
    let engine = cached(folder.path(), DomainMode::Replicate);
    assert_eq!(engine.cookies()[0], (USERS, cookie("2")));
    assert_eq!(fetched(&engine).names(), ["user7"]);
}

/// Approves all held removals, with no entry found.
fn confirm_all(engine: &Engine) -> u64 {
    let none = KeySearchResult::default();
    let chunks = engine.held_searches();
    let absent: Vec<_> = chunks.iter().flat_map(|chunk| chunk.absent_keys(&none)).collect();
    engine.confirm_removals(&absent).0
}

#[test]
fn a_held_entry_that_the_directory_has_again_stays_for_good() {
    let engine = engine(DomainMode::Replicate);
    let crowd = names(0..100);
    refresh(&engine, &all(&crowd), &[], "1");
    refresh(&engine, &[], &[], "2");
    assert_eq!(engine.status().held_removals, 100);
    refresh(&engine, &all(&crowd), &[], "3");
    assert_eq!(engine.status().held_removals, 0);
    assert_eq!(confirm_all(&engine), 0);
    assert_eq!(fetched(&engine).entries.len(), 100);
    assert_eq!(engine.cookies()[0], (USERS, cookie("3")), "nothing waits any more");
}

#[test]
fn deletions_one_by_one_are_held_as_well() {
    let engine = engine(DomainMode::Replicate);
    let crowd = names(0..100);
    refresh(&engine, &all(&crowd), &[], "1");
    for name in &crowd {
        engine.removed(USERS, named(name));
        engine.flush();
    }
    assert_eq!(fetched(&engine).entries.len(), 50);
    assert_eq!(engine.status().held_removals, 50);
}

#[test]
fn all_users_are_a_mass_however_many_groups_there_are() {
    let engine = engine(DomainMode::Replicate);
    let crowd = names(0..20);
    let groups: Vec<String> = (0..1000).map(|number| format!("group{number}")).collect();
    let groups: Vec<(&str, &[&str])> = groups.iter().map(|name| (name.as_str(), &[][..])).collect();
    refresh(&engine, &all(&crowd), &groups, "1");
    refresh(&engine, &[], &groups, "2");
    assert_eq!(fetched(&engine).entries.len(), 1020);
}

/// A refresh in which these users are unreadable, and the others unchanged.
fn refresh_hiding(engine: &Engine, users: &[String], hidden: usize) {
    engine.refresh_began(USERS);
    for (number, name) in users.iter().enumerate() {
        match number < hidden {
            true => {
                engine.rejected(
                    USERS,
                    named(name),
                    &unreadable(name, &because("it has no uidNumber")),
                );
            }
            false => assert!(engine.present(USERS, named(name))),
        }
    }
    engine.refresh_ended(USERS, UnlistedEntries::Removed, None);
    engine.flush();
}

#[test]
fn many_unreadable_entries_are_all_held() {
    for (users, hidden, held) in [(100, 100, 100), (200, 50, 50), (200, 4, 0), (5, 5, 5), (5, 3, 0)]
    {
        let engine = engine(DomainMode::Replicate);
        let crowd = names(0..users);
        refresh(&engine, &all(&crowd), &[], "1");
        refresh_hiding(&engine, &crowd, hidden);
        let served = fetched(&engine).entries.len();
        let gone = if held == 0 { hidden } else { 0 };
        assert_eq!(served, users as usize - gone, "{hidden} of {users}");
        let status = engine.status();
        assert_eq!((status.held_removals, status.rejected), (held, hidden as u64));
    }
}

#[test]
fn unreadable_entries_wait_through_restarts_and_listings() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = cached(folder.path(), DomainMode::Replicate);
    let crowd = names(0..20);
    refresh(&first, &all(&crowd), &[], "1");
    refresh_hiding(&first, &crowd, 10);
    end(first);
    let engine = cached(folder.path(), DomainMode::Replicate);
    assert_eq!(engine.status().held_removals, 10);
    // A listing of the keys shows them.
    crowd.iter().for_each(|name| assert!(engine.present(USERS, named(name))));
    engine.flush();
    assert_eq!(engine.status().held_removals, 10);
    engine.put(USERS, named("user3"), user("user3", 1003));
    engine.flush();
    assert_eq!(engine.status().held_removals, 9);
    assert_eq!(engine.confirm_removals(&[]).0, 9, "though the directory has them");
    let status = engine.status();
    assert_eq!((status.users, status.held_removals, status.rejected), (11, 0, 9));
    end(engine);
}

#[test]
fn text_files_unreadable_lines_go_below_mass_deletion() {
    let settings = EngineSettings { states_removals: true, ..settings(DomainMode::Replicate) };
    let engine = Engine::new(settings, LoadedCache::default(), None, None);
    engine.set_parts(vec![USERS, GROUPS]);
    let crowd = names(0..100);
    refresh(&engine, &all(&crowd), &[], "1");
    refresh_hiding(&engine, &crowd, 40);
    assert_eq!(fetched(&engine).entries.len(), 60);
    assert_eq!(engine.status().held_removals, 0);
}

#[test]
fn online_and_offline_are_told_when_they_change() {
    let engine = engine(DomainMode::Replicate);
    let mut news = engine.subscribe();
    news.mark_unchanged();
    engine.online("ldap://one", None);
    assert!(news.has_changed().expect("open"));
    assert_eq!(news.borrow_and_update().online, Some(true));
    engine.online("ldap://one", None);
    assert!(!news.has_changed().expect("open"), "nothing new");
    engine.online("ldap://two", Some(&because("ldap://one: refused")));
    let status = engine.status();
    assert_eq!((status.online, status.reason.as_str()), (true, "ldap://one: refused"));
    engine.online("ldap://one", None);
    assert_eq!(engine.status().reason, "");
    engine.offline(&because("refused"));
    engine.offline(&because("refused"));
    let status = engine.status();
    assert_eq!((status.online, status.reason.as_str()), (false, "refused"));
    assert_eq!(status.reason_code, directory::ATTRIBUTE_MISSING.code);
    assert_eq!(status.server, "ldap://one", "the last one");
}

#[test]
fn a_provider_waits_for_a_slow_disk_and_for_none_that_is_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    engine.refresh_began(USERS);
    let gecos = vec![b'x'; 60_000];
    let put = |number| {
        let DirectoryEntry::User(one) = user("somebody", number) else { unreachable!() };
        engine.put(
            USERS,
            id(number),
            DirectoryEntry::User(DirectoryUser { gecos: Cow::Borrowed(&gecos), ..one }),
        );
    };
    let told = (0..2_000).find(|number| {
        put(*number);
        !engine.has_capacity()
    });
    let told = told.expect("an end before 120 MB");
    write(&engine);
    assert!(engine.has_capacity());
    let store = engine.take_store().expect("a cache");
    engine.set_cache_error(because("the disk is full"));
    (told + 1..2 * told + 10).for_each(put);
    assert!(engine.has_capacity());
    engine.set_store(store);
    assert!(engine.has_capacity(), "it is open for reading, and nothing was written yet");
    engine.mark_written(&[]);
    assert!(!engine.has_capacity(), "the disk takes it again");
}

/// Makes the writer for the cache in that directory.
fn cache(folder: &Path) -> CacheWriter {
    cache_in(folder, DomainMode::Replicate)
}

fn cache_in(folder: &Path, mode: DomainMode) -> CacheWriter {
    let files = FilesConfig { passwd: "/passwd".into(), group: "/group".into() };
    let domain = DomainConfig {
        names: roster_config::NameConfig::default(),
        name: "corp".into(),
        min_id: 1000,
        max_id: 60_000,
        mode,
        private_groups: roster_config::PrivateGroups::Off,
        overrides: HomeShellOverrides::default(),
        serving: ServingConfig::default(),
        local_overrides: roster_config::OverridesConfig::default(),
        mass_deletion: 0.5,
        refresh: Duration::from_secs(300),
        negative: Duration::from_secs(15),
        when_away: WhenAway::Wait,
        provider: roster_config::ProviderConfig::Files(files),
        auth: AuthConfig {
            method: AuthMethod::None,
            timeout: Duration::ZERO,
            offline: None,
            krb5: None,
        },
        access: roster_config::AccessConfig::unconfigured(),
    };
    CacheWriter::new(folder.to_owned(), &domain)
}

async fn begun(cache: &CacheWriter) -> Arc<Engine> {
    let ExistingCache { store, loaded, fault: why } = cache.open().await.expect("begun");
    let engine = Engine::new(settings(DomainMode::Replicate), loaded, store, why);
    engine.set_parts(vec![USERS, GROUPS]);
    engine
}

/// Runs the writer until the condition holds.
async fn write_until(cache: &CacheWriter, engine: &Engine, is_so: impl Fn() -> bool) {
    let (_stop, shutdown) = roster_role::Shutdown::new();
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        ended = cache.write_behind(engine, shutdown) => panic!("the writer ended: {ended:?}"),
        waited = tokio::time::timeout(SOON, waited) => waited.expect("in time"),
    }
}

#[tokio::test]
async fn a_cache_that_cannot_be_opened_is_written_when_it_can() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("not there yet");
    let cache = cache(&folder);
    let engine = begun(&cache).await;
    assert!(engine.status().cache_error.contains("not there yet"), "said aloud");
    refresh(&engine, &["alice"], &[], "1");
    let before = fetched(&engine);
    let lost = cache.close(&engine).await.expect_err("alice is not written");
    let code = lost.downcast_ref::<CodedError>().map(|error| error.message);
    assert_eq!(code, Some(&directory::CACHE_NOT_CLOSED));
    write_until(&cache, &engine, || engine.status().cache_error.contains("No such file")).await;
    assert_eq!(fetched(&engine), before);
    std::fs::create_dir(&folder).expect("made");
    write_until(&cache, &engine, || engine.unwritten_batches().1.is_empty()).await;
    assert_eq!(engine.status().cache_error, "", "it is open now");
    assert_eq!(fetched(&engine), before);
    cache.close(&engine).await.expect("closed");
    let engine = begun(&cache).await;
    assert_eq!(fetched(&engine).entries, before.entries);
}

#[tokio::test]
async fn a_cache_that_comes_back_after_all_is_begun_with_anew() {
    let parent = tempfile::tempdir().expect("a folder");
    let (here, away) = (parent.path().join("here"), parent.path().join("away"));
    std::fs::create_dir(&here).expect("made");
    let cache = cache(&here);
    let engine = begun(&cache).await;
    refresh(&engine, &["alice"], &[], "1");
    cache.close(&engine).await.expect("closed");
    std::fs::rename(&here, &away).expect("renamed");
    let engine = begun(&cache).await;
    assert!(engine.view(0, 0).is_err(), "nothing is known, and the directory does not answer");
    std::fs::rename(&away, &here).expect("renamed");
    let (_stop, shutdown) = roster_role::Shutdown::new();
    let ended = cache.write_behind(&engine, shutdown).await;
    let ended = ended.expect_err("the process ends and begins with what is there");
    let code = ended.downcast_ref::<CodedError>().map(|error| error.message);
    assert_eq!(code, Some(&directory::CACHE_BECAME_READABLE));
    cache.close(&engine).await.expect("closed");
    let engine = begun(&cache).await;
    assert_eq!(fetched(&engine).names(), ["alice"]);
}

#[tokio::test]
async fn cache_replaced_by_empty_is_not_old() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = cache(folder.path());
    let engine = begun(&cache).await;
    refresh(&engine, &["alice"], &[], "1");
    write_until(&cache, &engine, || engine.unwritten_batches().1.is_empty()).await;
    engine.set_cache_error(because("the disk is full"));
    std::fs::remove_file(folder.path().join(store::CACHE_FILE)).expect("removed");
    let (_stop, shutdown) = roster_role::Shutdown::new();
    assert!(cache.write_behind(&engine, shutdown).await.is_err());
}

#[tokio::test]
async fn a_damaged_cache_is_said_aloud_for_as_long_as_the_process_lives() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(store::CACHE_FILE), "this is no cache").expect("written");
    let cache = cache(folder.path());
    let engine = begun(&cache).await;
    refresh(&engine, &["alice"], &[], "1");
    write_until(&cache, &engine, || engine.unwritten_batches().1.is_empty()).await;
    assert!(engine.status().cache_error.contains("cache.redb.damaged-1"));
    assert_eq!(engine.status().cache_code, directory::CACHE_DAMAGED.code);
}

#[tokio::test]
async fn cache_of_other_configuration_is_reported_not_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = roster_domain_cache::open(folder.path(), "corp mirror of another base", |_| Ok(()));
    drop(other.map(|opened| opened.cache).expect("a cache"));
    let cache = cache(folder.path());
    let engine = begun(&cache).await;
    let told = engine.status().cache_error;
    assert!(told.contains("another configuration"), "{told}");
    assert_eq!(engine.status().cache_code, directory::CACHE_FOREIGN.code);
    refresh(&engine, &["alice"], &[], "1");
    assert_eq!(engine.status().cache_error, "");
}

/// A key reconciliation does not count as a read: unreported changes are in the entries.
#[test]
fn engine_full_refresh_alone_counts_as_reading() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    assert!(!engine.is_idle(), "no server has answered");
    engine.online("ldap://server", None);
    engine.put(USERS, named("alice"), user("alice", 1001));
    engine.refresh_began(USERS);
    assert!(!engine.is_idle());
    assert!(engine.present(USERS, named("alice")));
    engine.refresh_ended(USERS, UnlistedEntries::Removed, None);
    assert!(engine.is_idle());
    assert_eq!(engine.read_age(), None);
    refresh(&engine, &["alice"], &[], "one");
    assert!(engine.read_age().is_some());
    end(engine);
    let engine = cached(folder.path(), DomainMode::Replicate);
    assert!(engine.read_age().is_some(), "a restart does not forget it");
}

#[test]
fn a_reading_that_is_to_come_by_the_clock_counts_as_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(&engine, &["alice"], &[], "one");
    write(&engine);
    let (store, _) = engine.unwritten_batches();
    let tomorrow = roster_role::clock::unix_now() + 86_400;
    let part = |read_unix| store::SearchProgress {
        complete: true,
        read_unix,
        ..store::SearchProgress::default()
    };
    let store = store.expect("a cache");
    for parts in [USERS, GROUPS] {
        store
            .write(|writer| writer.set_search_progress(parts.0, &part(tomorrow)))
            .expect("written");
    }
    drop(store);
    end(engine);
    let engine = cached(folder.path(), DomainMode::Replicate);
    assert_eq!(engine.read_age(), None, "the clock was ahead");
}

/// Servers fix lists silently after a listed entry is deleted.
#[tokio::test]
async fn groups_that_name_who_left_are_in_doubt_over_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::Replicate);
    refresh(
        &engine,
        &["alice", "bob", "carol"],
        &[("staff", &["alice", "bob"]), ("ops", &["bob"]), ("few", &["carol"])],
        "one",
    );
    let DirectoryEntry::User(carol) = user("carol", uid_of("carol")) else { unreachable!() };
    let shell = Cow::Borrowed(&b"/bin/sh"[..]);
    engine.put(
        USERS,
        named("carol"),
        DirectoryEntry::User(DirectoryUser { shell, ..carol.clone() }),
    );
    engine.removed(USERS, named("alice"));
    engine.flush();
    end(engine);

    let engine = cached(folder.path(), DomainMode::Replicate);
    engine.wait_for_list_scan().await;
    // After a restart a released reference may also be a taken one.
    let alice = vec![b"alice".to_vec()];
    assert_eq!(in_doubt(&engine), PendingRereads::Groups(vec![(GROUPS, named("staff"))], alice));
    assert_eq!(in_doubt(&engine), PendingRereads::Groups(vec![], vec![]), "not again at once");

    let reference = Cow::Borrowed(&b"caroline"[..]);
    engine.put(USERS, named("carol"), DirectoryEntry::User(DirectoryUser { reference, ..carol }));
    engine.put(GROUPS, named("staff"), group("staff", 5000, Some(&["bob"])));
    engine.flush();
    engine.wait_for_list_scan().await;
    let caroline = vec![b"caroline".to_vec()];
    assert_eq!(in_doubt(&engine), PendingRereads::Groups(vec![], caroline), "at once, of who came");
    engine.put(GROUPS, named("ops"), group("ops", 5001, Some(&["bob", "dora"])));
    engine.put(USERS, named("dora"), user("dora", uid_of("carol") + 1));
    engine.flush();
    engine.wait_for_list_scan().await;
    let dora = vec![b"dora".to_vec()];
    assert_eq!(in_doubt(&engine), PendingRereads::Groups(vec![(GROUPS, named("ops"))], dora));
}

#[tokio::test]
async fn doubts_without_dn_lists_ask_nothing() {
    let engine = engine(DomainMode::Replicate);
    refresh(&engine, &["alice", "bob"], &[], "one");
    engine.put(GROUPS, named("staff"), mixed("staff", &["alice"], &[]));
    engine.removed(USERS, named("alice"));
    engine.put(USERS, named("carol"), user("carol", uid_of("carol")));
    engine.flush();
    engine.wait_for_list_scan().await;
    assert_eq!(in_doubt(&engine), PendingRereads::Groups(vec![], vec![]));
    engine.put(GROUPS, named("staff"), mixed("staff", &["alice"], &["bob"]));
    engine.put(USERS, named("dora"), user("dora", uid_of("dora")));
    engine.flush();
    engine.wait_for_list_scan().await;
    assert_eq!(in_doubt(&engine), PendingRereads::Groups(vec![], vec![b"dora".to_vec()]));
}

fn in_doubt(engine: &Engine) -> PendingRereads {
    engine.finish_list_scan(engine.list_scan_job().expect("lists").scan().expect("readable"))
}
