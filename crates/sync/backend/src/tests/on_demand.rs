// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of an engine and its fetcher in an on-demand domain.

use super::*;
use crate::on_demand_fetch::OnDemandFetcher;
use crate::testing::wait_until;
use parking_lot::Mutex;
use roster_bus::domain_image::{Record, Records};
use roster_bus::interfaces::TraceContext;
use roster_bus::interfaces::{BusError, CALL_DEADLINE};
use roster_provider::files::FilesProvider;
use roster_provider::{
    KeySearchResult, LookupError, LookupKeys, LookupQuery, LookupScope, Provider,
};
use roster_request::TrackingMethod;
use roster_role::usdt_probes::BackendProbe;
use roster_system_tests::LoggedCodes;
use roster_system_tests::wait::SOON;
use std::collections::BTreeSet;

pub(super) const INTERNAL_TRACE: TraceContext = TraceContext { request: 0, call: 0 };

/// Lifetime of a reply.
pub(super) const AGE: Duration = Duration::from_secs(300);

#[test]
fn only_what_was_asked_is_there_and_it_is_never_all() {
    let engine = engine(DomainMode::OnDemand);
    assert_eq!(fetched(&engine).entries.len(), 0, "served from the beginning");
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.flush();
    let known = fetched(&engine);
    assert_eq!(known.names(), ["alice"]);
    assert!(!known.complete);
}

#[test]
fn a_users_groups_do_not_touch_the_members_that_are_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::OnDemand);
    engine.put(GROUPS, named("staff"), group("staff", 5000, Some(&["bob"])));
    engine.put(GROUPS, named("other"), group("other", 5001, None));
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.put(GROUPS, named("staff"), group("staff", 5000, None));
    engine.user_groups(named("alice"), &[named("staff"), named("other")]);
    engine.flush();
    let check = |known: &Known| {
        assert_eq!(known.fact("staff").members.as_ref().map(Vec::len), Some(1));
        assert_eq!(known.fact("other").members, None);
        assert_eq!(known.fact("alice").groups.as_ref().map(Vec::len), Some(2));
    };
    check(&fetched(&engine));
    engine.put(USERS, named("alice"), user("alice", 1001));
    engine.flush();
    check(&fetched(&engine));
    end(engine);
    check(&fetched(&cached(folder.path(), DomainMode::OnDemand)));
}

/// A new filter may exclude them, and home directories may differ.
#[test]
fn on_demand_other_reading_expires_over_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let alice = LookupQuery::UserByName(b"alice".to_vec());
    let is_fresh = |engine: &Engine| engine.fresh_entry(&alice, AGE).is_some();
    let begun = |reading: &str| {
        let opened = store::open(folder.path(), "corp", |store| {
            LoadedCache::read(store, DomainMode::OnDemand)
        });
        let OpenedCache { cache: store, loaded, .. } = opened.expect("a cache");
        let engine =
            Engine::new(settings(DomainMode::OnDemand), loaded, Some(Arc::new(store)), None);
        engine.set_reading(reading);
        engine.set_parts(vec![USERS, GROUPS]);
        engine
    };
    let engine = begun("in one way");
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.flush();
    assert!(is_fresh(&engine));
    end(engine);
    let engine = begun("in one way");
    assert!(is_fresh(&engine));
    end(engine);
    let engine = begun("in another");
    assert!(!is_fresh(&engine));
    assert!(engine.cached_entry(&alice).is_some(), "for as long as the directory is away");
    end(engine);
    let engine = begun("in another");
    assert!(!is_fresh(&engine), "nobody asked meanwhile");
    engine.put(USERS, named("alice"), user("alice", 1000));
    assert!(is_fresh(&engine));
}

/// A group that others may list.
fn by_dn<'a>(name: &'a str, members: &[&'a str]) -> DirectoryEntry<'a> {
    let DirectoryEntry::Group(one) = group(name, uid_of(name), Some(members)) else {
        unreachable!()
    };
    DirectoryEntry::Group(DirectoryGroup { reference: name.as_bytes().into(), ..one })
}

#[test]
fn lookup_unknown_members_make_outer_groups_unknown() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::OnDemand);
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.put(GROUPS, named("inner"), by_dn("inner", &["alice"]));
    engine.put(GROUPS, named("middle"), by_dn("middle", &["inner", "outer"]));
    engine.put(GROUPS, named("outer"), by_dn("outer", &["middle"]));
    engine.put(GROUPS, named("other"), by_dn("other", &["alice"]));
    engine.flush();
    let mut known = fetched(&engine);
    let DirectoryEntry::Group(one) = by_dn("inner", &[]) else { unreachable!() };
    engine.put(
        GROUPS,
        named("inner"),
        DirectoryEntry::Group(DirectoryGroup { members: None, ..one }),
    );
    engine.members_unknown(GROUPS, named("inner"));
    engine.flush();
    let check = |known: &Known| {
        for name in ["inner", "middle", "outer"] {
            assert_eq!(known.fact(name).members, None, "{name}");
        }
        assert_eq!(known.fact("other").members.as_ref().map(Vec::len), Some(1));
    };
    assert!(!known.fetch(&engine), "a change");
    check(&known);
    assert_eq!(engine.cached_entry(&LookupQuery::GroupByName(b"outer".to_vec())), None);
    assert_eq!(engine.knows(&[&dn("middle")]), [false]);
    assert_eq!(engine.stale_entries(LookupScope::GroupsWithMembers, AGE), [], "nothing to confirm");
    end(engine);
    check(&fetched(&cached(folder.path(), DomainMode::OnDemand)));
}

#[test]
fn an_answer_brings_the_records_that_it_speaks_of() {
    let engine = engine(DomainMode::OnDemand);
    let alice = || LookupQuery::GroupsOf(b"alice".to_vec());
    assert_eq!(engine.cached_entry(&alice()), None);
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.put(USERS, named("bob"), user("bob", 1001));
    engine.put(GROUPS, named("staff"), group("staff", 5000, Some(&["alice", "bob"])));
    engine.user_groups(named("alice"), &[named("staff")]);
    let learnt = |what: &LookupQuery| {
        let records = engine.cached_entry(what).expect("known").records;
        let mut known = Known::default();
        for record in Records::without_header(&records) {
            known.learn(&record.expect("a record"));
        }
        known
    };
    assert_eq!(learnt(&alice()).names(), ["alice", "staff"]);
    assert_eq!(learnt(&LookupQuery::UserByUid(1001)).names(), ["bob"]);
    let staff = learnt(&LookupQuery::GroupByName(b"staff".to_vec()));
    assert_eq!(staff.names(), ["alice", "bob", "staff"]);
}

#[test]
fn stale_lists_naming_renamed_user_are_unknown() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::OnDemand);
    engine.put(USERS, id(1), user("alice", 1000));
    engine.put(USERS, id(2), user("bob", 1001));
    engine.put(GROUPS, named("staff"), by_dn("staff", &["alice"]));
    engine.put(GROUPS, named("all"), by_dn("all", &["bob", "staff"]));
    engine.put(GROUPS, named("others"), by_dn("others", &["bob"]));
    engine.user_groups(id(1), &[named("staff")]);
    engine.flush();
    let mut known = fetched(&engine);
    engine.put(USERS, id(1), user("alicia", 1000));
    engine.flush();
    let check = |known: &Known| {
        let members = |name: &str| known.fact(name).members.as_ref().map(Vec::len);
        assert_eq!(["staff", "all", "others"].map(members), [None, None, Some(1)]);
        assert_eq!(known.fact("alicia").groups, None);
    };
    assert!(!known.fetch(&engine), "a change");
    check(&known);
    for name in ["staff", "all"] {
        assert_eq!(engine.cached_entry(&LookupQuery::GroupByName(name.into())), None, "{name}");
    }
    // After new queries they are known, also if the directory still lists the old name.
    engine.put(GROUPS, named("staff"), by_dn("staff", &["alicia", "alice"]));
    engine.put(GROUPS, named("all"), by_dn("all", &["bob", "staff"]));
    engine.put(USERS, id(1), user("alicia", 1001));
    assert!(engine.cached_entry(&LookupQuery::GroupByName(b"all".to_vec())).is_some());
    // The same for a group.
    let DirectoryEntry::Group(staff) = by_dn("staff", &["alicia"]) else { unreachable!() };
    let renamed = DirectoryGroup { name: b"crew".into(), reference: b"crew".into(), ..staff };
    engine.put(GROUPS, named("staff"), DirectoryEntry::Group(renamed));
    assert_eq!(engine.cached_entry(&LookupQuery::GroupByName(b"all".to_vec())), None);
    assert!(engine.cached_entry(&LookupQuery::GroupByName(b"crew".to_vec())).is_some());
    engine.flush();
    end(engine);
    let known = fetched(&cached(folder.path(), DomainMode::OnDemand));
    assert_eq!(known.fact("all").members, None);
    assert_eq!(known.fact("crew").members.as_ref().map(Vec::len), Some(1));
}

#[test]
fn renamed_user_leaves_lists_by_name_unknown() {
    let engine = engine(DomainMode::OnDemand);
    let DirectoryEntry::User(alice) = user("alice", 1001) else { unreachable!() };
    engine.put(USERS, id(1), DirectoryEntry::User(alice.clone()));
    engine.put(GROUPS, named("staff"), mixed("staff", &["alice"], &[]));
    engine.put(GROUPS, named("crew"), mixed("crew", &[], &["alice"]));
    engine.user_groups(id(1), &[named("staff"), named("crew")]);
    let by_name = Member::Name(b"alice".into());
    assert_eq!(engine.knows(&[&by_name, &dn("alice")]), [true; 2]);
    let found = |name: &str| engine.cached_entry(&LookupQuery::GroupByName(name.into())).is_some();
    assert!(found("staff") && found("crew"));

    // The DN stays, as if it started with another attribute.
    engine.put(
        USERS,
        id(1),
        DirectoryEntry::User(DirectoryUser { name: b"alicia".into(), ..alice }),
    );
    assert_eq!(engine.knows(&[&by_name, &dn("alice")]), [false, true]);
    assert!(!found("staff") && found("crew"));
    assert_eq!(engine.cached_entry(&LookupQuery::GroupsOf(b"alicia".to_vec())), None);
}

#[test]
fn an_answer_is_of_a_state_that_can_be_fetched() {
    let engine = engine(DomainMode::OnDemand);
    let mut known = fetched(&engine);
    for uid in [1000, 1001] {
        engine.put(USERS, named("alice"), user("alice", uid));
        let before = known.sequence;
        for _ in 0..2 {
            // Reported, and not flushed yet.
            let answer = engine.cached_entry(&by_name("alice")).expect("known");
            assert_eq!(answer.sequence, before + 1);
        }
        assert!(!known.fetch(&engine) || before == 0);
        assert_eq!((known.sequence, known.fact("alice").id), (before + 1, uid));
        engine.flush();
        assert_eq!(engine.status().sequence, before + 1, "that was all");
    }
}

#[test]
fn groups_reused_key_gets_no_old_groups() {
    let engine = engine(DomainMode::OnDemand);
    engine.put(USERS, id(1), user("alice", 1000));
    engine.put(GROUPS, named("staff"), group("staff", 5000, None));
    engine.user_groups(id(1), &[named("staff")]);
    engine.put(USERS, id(1), user("bob", 1001));
    engine.put(GROUPS, named("staff"), group("staff", 5000, Some(&["alice"])));
    engine.put(GROUPS, named("staff"), group("wheel", 5001, None));
    engine.flush();
    let known = fetched(&engine);
    assert_eq!(known.fact("bob").groups, None);
    assert_eq!(known.fact("wheel").members, None);
}

#[test]
fn a_cache_whose_numbers_are_mostly_nobodys_is_renumbered() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), DomainMode::OnDemand);
    engine.put(USERS, named("gone"), user("gone", 999));
    engine.put(GROUPS, named("other"), group("other", 5001, Some(&["alice"])));
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.put(GROUPS, named("staff"), group("staff", 5000, None));
    engine.user_groups(named("alice"), &[named("staff"), named("other")]);
    engine.removed(USERS, named("gone"));
    engine.flush();
    let before = fetched(&engine);
    write(&engine);
    let store = engine.take_store().expect("a cache");
    store.write(|writer| writer.set_next_number(9_000_000)).expect("written");
    drop((store, engine));
    let engine = cached(folder.path(), DomainMode::OnDemand);
    let known = fetched(&engine);
    assert_eq!(known.entries.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(known.fact("alice").groups, Some(vec![0, 2]));
    assert_eq!(known.fact("other"), before.fact("other"));
    // Unchanged: the same report again changes nothing.
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.put(USERS, named("new"), user("new", 1001));
    engine.flush();
    assert_eq!(fetched(&engine).entries[&3].name, "new");
}

/// An on-demand domain with files as its directory.
struct Directory {
    folder: tempfile::TempDir,
    engine: Arc<Engine>,
    asking: OnDemandFetcher<FilesProvider>,
}

impl Directory {
    fn new(mode: DomainMode) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (passwd, group) = (folder.path().join("passwd"), folder.path().join("group"));
        std::fs::write(&passwd, "alice:x:1000:100:::\n").expect("written");
        std::fs::write(&group, "staff:x:5000:alice\n").expect("written");
        let engine = engine(mode);
        let sink: Arc<dyn EntrySink> = Arc::clone(&engine) as _;
        let files = FilesConfig { passwd, group };
        let provider = FilesProvider::new("corp", files, HomeShellOverrides::default(), sink);
        let asking =
            OnDemandFetcher::new(Arc::clone(&engine), Arc::new(provider), place(), mode, AGE);
        Self { folder, engine, asking }
    }

    async fn lookup_records(&self, name: &str) -> Result<Vec<u8>, BusError> {
        Ok(self.asking.lookup(INTERNAL_TRACE, &LookupQuery::UserByName(name.into())).await?.records)
    }
}

#[tokio::test]
async fn lookup_absent_is_empty_unreachable_is_error() {
    let directory = Directory::new(DomainMode::OnDemand);
    assert!(!directory.lookup_records("alice").await.expect("an answer").is_empty());
    assert!(directory.lookup_records("nobody").await.expect("an answer").is_empty());
    let users = directory.folder.path().join("passwd");
    std::fs::remove_file(users).expect("removed");
    assert!(!directory.lookup_records("alice").await.expect("what is known").is_empty());
    let unknown = directory.lookup_records("nobody").await;
    assert!(matches!(unknown, Err(BusError::Away(_))), "broken never looks like absent");
}

#[tokio::test]
async fn expiring_asks_again_and_takes_nothing_while_the_directory_is_away() {
    let directory = Directory::new(DomainMode::OnDemand);
    directory.lookup_records("alice").await.expect("an answer");
    let users = directory.folder.path().join("passwd");
    let alice = LookupQuery::UserByName(b"alice".to_vec());
    std::fs::remove_file(&users).expect("removed");
    let expired = directory.asking.expire(&alice).await;
    assert!(matches!(expired, Err(BusError::Unavailable(_))));
    assert!(directory.engine.cached_entry(&alice).is_some());
    std::fs::write(&users, "").expect("written");
    directory.asking.expire(&alice).await.expect("an answer");
    assert_eq!(directory.engine.cached_entry(&alice), None);
}

#[tokio::test]
async fn mirror_ended_by_provider_is_logged() {
    let (played, _asking) = Played::asking(names(0..1));
    *played.mirror_end.lock() = Some(because("the provider gave up"));
    let logged = LoggedCodes::default();
    let _collecting = logged.collect();
    tokio::select! {
        () = crate::keep_mirroring(&played.engine, played.as_ref()) => panic!("it never ends"),
        () = wait_until("it is logged", || logged.has(directory::FOLLOWING_ENDED.code)) => {}
    }
    let status = played.engine.subscribe().borrow().clone();
    assert_eq!(status.online, Some(false));
    assert_eq!(status.reason, Some(because("the provider gave up")));
}

#[tokio::test]
async fn a_mirror_is_not_asked() {
    let directory = Directory::new(DomainMode::Replicate);
    assert!(matches!(directory.lookup_records("alice").await, Err(BusError::Invalid(_))));
}

#[tokio::test]
async fn answers_are_asked_for_again_and_go_when_the_entry_does() {
    let directory = Directory::new(DomainMode::OnDemand);
    directory.lookup_records("alice").await.expect("an answer");
    directory.engine.online("files", None);
    directory.asking.expire_all();
    std::fs::write(directory.folder.path().join("passwd"), "").expect("written");
    let alice = LookupQuery::UserByName(b"alice".to_vec());
    let gone = async {
        while directory.engine.cached_entry(&alice).is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = directory.asking.keep_fresh() => {}
        gone = tokio::time::timeout(SOON, gone) => gone.expect("asked again"),
    }
}

/// A simulated directory: its entries, its faults, and a record of the queries.
pub(super) struct Played {
    pub(super) engine: Arc<Engine>,
    pub(super) users: Mutex<BTreeMap<String, u32>>,
    /// Users that replies and listings omit, and key searches find.
    pub(super) unlisted: Mutex<BTreeSet<String>>,
    /// Whether the search base cannot be read.
    pub(super) is_baseless: Mutex<bool>,
    /// Number of keys in each search, control entries included.
    pub(super) looked_for: Mutex<Vec<usize>>,
    /// Groups and their members.
    pub(super) groups: Mutex<BTreeMap<String, Vec<String>>>,
    failing: Mutex<BTreeSet<String>>,
    /// Names that never get a reply.
    silent: Mutex<BTreeSet<String>>,
    /// Groups with too many members for a reply.
    vast: Mutex<BTreeSet<String>>,
    pub(super) unreachable: Mutex<bool>,
    /// The reason for which the mirror ends.
    mirror_end: Mutex<Option<Reason>>,
    refreshes: Mutex<u32>,
    asked: Mutex<Vec<(Option<LookupScope>, Vec<String>)>>,
}

impl Played {
    pub(super) fn asking(
        users: impl IntoIterator<Item = String>,
    ) -> (Arc<Self>, OnDemandFetcher<Self>) {
        Self::asking_for(engine(DomainMode::OnDemand), DomainMode::OnDemand, users)
    }

    pub(super) fn asking_for(
        engine: Arc<Engine>,
        mode: DomainMode,
        users: impl IntoIterator<Item = String>,
    ) -> (Arc<Self>, OnDemandFetcher<Self>) {
        let played = Arc::new(Self {
            engine: Arc::clone(&engine),
            users: Mutex::new(users.into_iter().zip(1000..).collect()),
            unlisted: Mutex::default(),
            is_baseless: Mutex::default(),
            looked_for: Mutex::default(),
            groups: Mutex::default(),
            failing: Mutex::default(),
            silent: Mutex::default(),
            vast: Mutex::default(),
            unreachable: Mutex::new(false),
            mirror_end: Mutex::default(),
            refreshes: Mutex::default(),
            asked: Mutex::default(),
        });
        let asking = OnDemandFetcher::new(engine, Arc::clone(&played), place(), mode, AGE);
        (played, asking)
    }

    /// Returns the key of a user.
    pub(super) fn id(name: &str, uid: u32) -> EntryId {
        named(&format!("{name}-{uid}"))
    }

    fn report_user(&self, name: &str) -> bool {
        !self.unlisted.lock().contains(name) && self.put_user(name)
    }

    fn put_user(&self, name: &str) -> bool {
        let users = self.users.lock();
        let Some(&uid) = users.get(name) else { return false };
        self.engine.put(USERS, Self::id(name, uid), user(name, uid));
        true
    }

    /// Lists the users that the directory shows, as a mirror does.
    pub(super) fn list_users(&self, cookie: Option<SyncCookie>) {
        self.engine.refresh_began(USERS);
        let names: Vec<String> = self.users.lock().keys().cloned().collect();
        names.iter().for_each(|name| {
            self.report_user(name);
        });
        self.engine.refresh_ended(USERS, UnlistedEntries::Missing, cookie);
        self.engine.flush();
    }

    fn report_group(&self, name: &str, with_members: bool) -> bool {
        let groups = self.groups.lock();
        let Some(members) = groups.get(name) else { return false };
        let members = all(members);
        let gid = 5000 + uid_of(name);
        let vast = self.vast.lock().contains(name);
        let told = group(name, gid, (with_members && !vast).then_some(&members));
        self.engine.put(GROUPS, named(name), told);
        if with_members && vast {
            self.engine.members_unknown(GROUPS, named(name));
        }
        true
    }

    fn report_entry(&self, of: LookupScope, name: &str) -> bool {
        let told = match of {
            LookupScope::Users | LookupScope::UsersWithGroups => self.report_user(name),
            LookupScope::Groups | LookupScope::GroupsWithMembers => {
                self.report_group(name, of == LookupScope::GroupsWithMembers)
            }
        };
        if told && of == LookupScope::UsersWithGroups {
            let groups = self.groups.lock().clone();
            let of_user = groups.iter().filter(|(_, members)| members.iter().any(|m| m == name));
            let of_user: Vec<&String> = of_user.map(|(group, _)| group).collect();
            of_user.iter().for_each(|group| assert!(self.report_group(group, false)));
            let ids: Vec<EntryId> = of_user.iter().map(|group| named(group)).collect();
            let uid = self.users.lock()[name];
            self.engine.user_groups(Self::id(name, uid), &ids);
        }
        told
    }

    fn answer(&self, of: Option<LookupScope>, names: &[String]) -> Result<(), LookupError> {
        self.asked.lock().push((of, names.to_vec()));
        if *self.unreachable.lock() {
            return Err(LookupError::Unreachable(because("it is away")));
        }
        let failing = self.failing.lock();
        match names.iter().find(|name| failing.contains(*name)) {
            Some(name) => Err(LookupError::Failed(because(&format!("{name} is too much")))),
            None => Ok(()),
        }
    }

    fn questions(&self) -> Vec<(Option<LookupScope>, Vec<String>)> {
        std::mem::take(&mut self.asked.lock())
    }
}

impl Provider for Played {
    fn parts(&self) -> Vec<SearchId> {
        vec![USERS, GROUPS]
    }

    fn source_fingerprint(&self) -> String {
        String::new()
    }

    fn tracking_method(&self) -> Option<TrackingMethod> {
        Some(TrackingMethod::OnDemand)
    }

    async fn mirror(&self, _: Vec<(SearchId, SyncCookie)>) -> Reason {
        let end = self.mirror_end.lock().clone();
        match end {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    async fn lookup(&self, what: &LookupQuery) -> Result<bool, LookupError> {
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).expect("ASCII");
        let (of, name) = match what {
            LookupQuery::UserByName(name) => (LookupScope::Users, text(name)),
            LookupQuery::GroupsOf(name) => (LookupScope::UsersWithGroups, text(name)),
            LookupQuery::GroupByName(name) => (LookupScope::GroupsWithMembers, text(name)),
            LookupQuery::GroupByGid(gid) => {
                let groups = self.groups.lock();
                let found = groups.keys().find(|name| 5000 + uid_of(name) == *gid);
                (LookupScope::GroupsWithMembers, found.cloned().unwrap_or_default())
            }
            LookupQuery::UserByUid(_) => unreachable!("not asked here"),
        };
        tokio::task::yield_now().await;
        self.answer(None, std::slice::from_ref(&name))?;
        Ok(self.report_entry(of, &name))
    }

    async fn lookup_all(&self, of: LookupScope, keys: LookupKeys<'_>) -> Result<(), LookupError> {
        let text = |name: &Vec<u8>| String::from_utf8(name.clone()).expect("ASCII");
        let names: Vec<String> = match keys {
            LookupKeys::Names(names) => names.iter().map(text).collect(),
            LookupKeys::Ids(_) => unreachable!("not asked here"),
        };
        self.answer(Some(of), &names)?;
        if names.iter().any(|name| self.silent.lock().contains(name)) {
            std::future::pending::<()>().await;
        }
        for name in &names {
            self.report_entry(of, name);
        }
        Ok(())
    }

    async fn search_keys(
        &self,
        of: LookupScope,
        missing: &[(SearchId, EntryId)],
        control: &[EntryId],
    ) -> Result<KeySearchResult, LookupError> {
        if *self.unreachable.lock() {
            return Err(LookupError::Unreachable(because("it is away")));
        }
        self.looked_for.lock().push(missing.len() + control.len());
        let users = self.users.lock().clone();
        let groups = self.groups.lock().clone();
        let all: BTreeMap<EntryId, &String> = match of {
            LookupScope::Users | LookupScope::UsersWithGroups => {
                users.iter().map(|(name, uid)| (Self::id(name, *uid), name)).collect()
            }
            LookupScope::Groups | LookupScope::GroupsWithMembers => {
                groups.keys().map(|name| (named(name), name)).collect()
            }
        };
        let ids = missing.iter().map(|(_, id)| id).chain(control);
        let found = ids.copied().filter(|id| all.contains_key(id)).collect();
        for (_, id) in missing {
            match (of, all.get(id)) {
                (LookupScope::Users, Some(name)) => assert!(self.put_user(name)),
                (_, Some(name)) => assert!(self.report_group(name, false)),
                (_, None) => {}
            }
        }
        self.engine.flush();
        let is_credible = !*self.is_baseless.lock() && (!control.is_empty() || !all.is_empty());
        Ok(KeySearchResult { found, is_credible })
    }

    fn refresh(&self) {
        *self.refreshes.lock() += 1;
    }
}

pub(super) fn by_name(name: &str) -> LookupQuery {
    LookupQuery::UserByName(name.into())
}

/// Queries all these users, and clears the record of queries.
pub(super) async fn ask_for(played: &Played, asking: &OnDemandFetcher<Played>, names: &[String]) {
    for name in names {
        assert!(
            !asking
                .lookup(INTERNAL_TRACE, &by_name(name))
                .await
                .expect("an answer")
                .records
                .is_empty(),
            "{name}"
        );
    }
    played.questions();
}

#[tokio::test]
async fn what_is_old_is_asked_for_by_the_hundred() {
    let users = names(0..250);
    let (played, asking) = Played::asking(users.clone());
    ask_for(&played, &asking, &users).await;
    asking.refresh(AGE).await;
    assert_eq!(played.questions(), [], "all of it is young");
    played.engine.expire_all();
    asking.refresh(AGE).await;
    let questions = played.questions();
    assert_eq!(questions.len(), 3);
    assert!(questions.iter().all(|(of, _)| *of == Some(LookupScope::Users)));
    assert_eq!(questions.iter().map(|(_, names)| names.len()).sum::<usize>(), 250);
    asking.refresh(AGE).await;
    assert_eq!(played.questions(), [], "all of it is young again");
}

fn all_named(names: &[String]) -> Vec<LookupQuery> {
    names.iter().map(|name| by_name(name)).collect()
}

/// Returns the names of the users in the records.
fn user_names(records: &[u8]) -> BTreeSet<String> {
    let name = |record| match record {
        Ok(Record::User(user)) => String::from_utf8_lossy(user.name).into_owned(),
        other => panic!("users alone were asked for: {other:?}"),
    };
    Records::without_header(records).map(name).collect()
}

#[tokio::test]
async fn on_demand_refresh_batches_unseen_entries_only() {
    let users = names(0..150);
    let (played, asking) = Played::asking(users.clone());
    ask_for(&played, &asking, &users[..10]).await;
    // A query for the user alone would return the groups, too.
    asking
        .lookup(INTERNAL_TRACE, &LookupQuery::GroupsOf(b"user3".to_vec()))
        .await
        .expect("an answer");
    played.questions();
    let what = all_named(&names(0..400));
    let answer = asking.lookup_all(INTERNAL_TRACE, &what).await.expect("an answer");
    assert_eq!(user_names(&answer.records), users.iter().cloned().collect());
    let questions = played.questions();
    assert_eq!(questions.len(), 4, "390 by the hundred");
    assert!(questions.iter().all(|(of, _)| *of == Some(LookupScope::Users)));
    assert_eq!(questions.iter().map(|(_, names)| names.len()).sum::<usize>(), 390);
}

#[tokio::test]
async fn lookup_batch_reports_all_or_fails() {
    let users = names(0..100);
    let (played, asking) = Played::asking(users.clone());
    played.failing.lock().insert("user17".to_owned());
    let what = all_named(&users);
    assert!(asking.lookup_all(INTERNAL_TRACE, &what).await.is_err(), "of user17 nothing is known");
    let others: Vec<LookupQuery> =
        what.iter().filter(|one| **one != by_name("user17")).cloned().collect();
    assert!(asking.lookup_all(INTERNAL_TRACE, &others).await.is_ok());
    played.failing.lock().clear();
    assert!(asking.lookup_all(INTERNAL_TRACE, &what).await.is_ok());
    // While the directory is unreachable, cached entries are returned. An unknown user cannot be reported as absent.
    *played.unreachable.lock() = true;
    played.engine.expire_all();
    let answer = asking.lookup_all(INTERNAL_TRACE, &what).await.expect("what is known");
    assert_eq!(user_names(&answer.records), users.into_iter().collect());
    assert!(asking.lookup_all(INTERNAL_TRACE, &all_named(&names(99..101))).await.is_err());
}

#[tokio::test]
async fn what_is_known_and_young_is_not_asked_for() {
    let (played, asking) = Played::asking(names(0..1));
    ask_for(&played, &asking, &names(0..1)).await;
    ask_for(&played, &asking, &names(0..1)).await;
    assert!(
        !asking
            .lookup(INTERNAL_TRACE, &by_name("user0"))
            .await
            .expect("an answer")
            .records
            .is_empty()
    );
    assert_eq!(played.questions(), []);
}

#[tokio::test]
async fn on_demand_member_list_is_requested_again() {
    let (played, asking) = Played::asking(names(0..2));
    let staff = || LookupQuery::GroupByName(b"staff".to_vec());
    played.groups.lock().insert("staff".into(), names(0..1));
    asking.lookup(INTERNAL_TRACE, &staff()).await.expect("an answer");
    asking
        .lookup(INTERNAL_TRACE, &LookupQuery::GroupsOf(b"user0".to_vec()))
        .await
        .expect("an answer");
    played.engine.expire_all();
    played.groups.lock().insert("staff".into(), names(0..2));
    // Reports the group without its members.
    asking
        .lookup(INTERNAL_TRACE, &LookupQuery::GroupsOf(b"user0".to_vec()))
        .await
        .expect("an answer");
    played.questions();
    asking.refresh(AGE).await;
    assert_eq!(
        played.questions(),
        [(Some(LookupScope::GroupsWithMembers), vec!["staff".to_owned()])]
    );
    assert_eq!(fetched(&played.engine).fact("staff").members.as_ref().map(Vec::len), Some(2));
}

#[tokio::test]
async fn an_entry_that_always_fails_holds_up_no_other_and_is_left_alone() {
    let users = names(0..3);
    let (played, asking) = Played::asking(users.clone());
    ask_for(&played, &asking, &users).await;
    played.failing.lock().insert("user1".into());
    played.engine.expire_all();
    asking.refresh(AGE).await;
    played.questions();
    assert_eq!(
        played.engine.stale_entries(LookupScope::Users, AGE).len(),
        1,
        "the others are young"
    );
    asking.refresh(AGE).await;
    assert_eq!(played.questions(), [], "it has time");
    // Old data is still better than none.
    assert!(
        !asking
            .lookup(INTERNAL_TRACE, &by_name("user1"))
            .await
            .expect("what is known")
            .records
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn on_demand_unanswerable_query_is_isolated_quickly() {
    let users = names(0..300);
    let (played, asking) = Played::asking(users.clone());
    ask_for(&played, &asking, &users).await;
    played.silent.lock().extend(["user0".to_owned(), "user299".to_owned()]);
    played.engine.expire_all();
    let began = tokio::time::Instant::now();
    asking.refresh(AGE).await;
    let stale = played.engine.stale_entries(LookupScope::Users, AGE);
    assert_eq!(stale.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 299]);
    assert!(began.elapsed() < 9 * CALL_DEADLINE, "{:?}", began.elapsed());
    let questions = played.questions().len();
    assert!(questions < 35, "{questions} questions for two in 300 without an answer");
    asking.refresh(AGE).await;
    assert_eq!(played.questions(), [], "they have time");
}

#[tokio::test(start_paused = true)]
async fn lookup_slow_server_gets_smaller_batches() {
    let users = names(0..600);
    let (played, asking) = Played::asking(users.clone());
    ask_for(&played, &asking, &users).await;
    played.silent.lock().extend(names(0..400));
    played.engine.expire_all();
    let began = tokio::time::Instant::now();
    asking.refresh(AGE).await;
    assert!(began.elapsed() <= 11 * CALL_DEADLINE, "{:?}", began.elapsed());
    assert_eq!(
        played.engine.stale_entries(LookupScope::Users, AGE).len(),
        400,
        "the others are young"
    );
    assert_eq!(fetched(&played.engine).entries.len(), 600, "nobody is gone");
}

#[tokio::test]
async fn an_entry_that_failed_is_asked_for_again_when_a_server_is_back() {
    let users = names(0..3);
    let (played, asking) = Played::asking(users.clone());
    ask_for(&played, &asking, &users).await;
    let again = async {
        tokio::task::yield_now().await;
        for server in ["one", "another"] {
            played.engine.offline(&because("it is away"));
            played.failing.lock().insert("user1".into());
            played.engine.expire_all();
            asking.refresh(AGE).await;
            played.failing.lock().clear();
            asking.refresh(AGE).await;
            assert_eq!(
                played.engine.stale_entries(LookupScope::Users, AGE).len(),
                1,
                "it is left alone"
            );
            played.engine.online(server, None);
            while !played.engine.stale_entries(LookupScope::Users, AGE).is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
                asking.refresh(AGE).await;
            }
        }
    };
    tokio::select! {
        () = asking.keep_fresh() => {}
        again = tokio::time::timeout(SOON, again) => again.expect("asked again"),
    }
}

#[tokio::test]
async fn a_server_that_is_away_ends_a_refresh() {
    let users = names(0..1000);
    let (played, asking) = Played::asking(users.clone());
    ask_for(&played, &asking, &users).await;
    *played.unreachable.lock() = true;
    played.engine.expire_all();
    asking.refresh(AGE).await;
    assert_eq!(played.questions().len(), 1);
    assert_eq!(fetched(&played.engine).entries.len(), 1000);
}

#[tokio::test]
async fn a_directory_that_was_emptied_empties_nothing() {
    let users = names(0..100);
    let (played, asking) = Played::asking(users.clone());
    ask_for(&played, &asking, &users).await;
    let stay: BTreeMap<_, _> = [("user7".to_owned(), 1007)].into();
    let all = std::mem::take(&mut *played.users.lock());
    played.engine.expire_all();
    asking.refresh(AGE).await;
    assert_eq!(fetched(&played.engine).entries.len(), 100);
    assert_eq!(played.engine.status().held_removals, 100);
    *played.users.lock() = all;
    asking.refresh(AGE).await;
    assert_eq!(played.engine.status().held_removals, 0, "they are back");
    // A directory with only a few of them is not credible either.
    *played.users.lock() = stay;
    played.engine.expire_all();
    asking.refresh(AGE).await;
    assert_eq!(fetched(&played.engine).entries.len(), 100);
    assert_eq!(played.engine.status().held_removals, 99);
}

#[tokio::test]
async fn on_demand_recreated_user_replaces_the_old() {
    let (played, asking) = Played::asking(["alice".to_owned()]);
    ask_for(&played, &asking, &["alice".to_owned()]).await;
    played.users.lock().insert("alice".into(), 2000);
    played.engine.expire_all();
    asking.refresh(AGE).await;
    assert_eq!(fetched(&played.engine).names(), ["alice"], "and there is one");
    assert!(played.engine.cached_entry(&LookupQuery::UserByUid(2000)).is_some());
}

#[tokio::test]
async fn expiring_a_user_asks_for_the_groups_that_are_known_too() {
    let (played, asking) = Played::asking(["alice".to_owned()]);
    asking
        .lookup(INTERNAL_TRACE, &LookupQuery::GroupsOf(b"alice".to_vec()))
        .await
        .expect("an answer");
    played.groups.lock().insert("staff".into(), vec!["alice".into()]);
    asking.expire(&by_name("alice")).await.expect("an answer");
    assert_eq!(fetched(&played.engine).fact("alice").groups.as_ref().map(Vec::len), Some(1));
}

#[tokio::test]
async fn of_a_mirror_no_single_entry_is_asked_for_again() {
    let (played, _) = Played::asking(names(0..1));
    let engine = Arc::clone(&played.engine);
    let asking =
        OnDemandFetcher::new(engine, Arc::clone(&played), place(), DomainMode::Replicate, AGE);
    asking.expire(&LookupQuery::GroupByName(b"staff".to_vec())).await.expect("made anew");
    assert_eq!((played.questions(), *played.refreshes.lock()), (vec![], 1));
}

#[tokio::test]
async fn who_lists_a_users_groups_has_them_fetched_in_a_few_questions() {
    let (played, asking) = Played::asking(["big".to_owned()]);
    let groups: BTreeMap<String, Vec<String>> =
        (0..500).map(|number| (format!("{number:03}group"), vec!["big".to_owned()])).collect();
    *played.groups.lock() = groups.clone();
    asking
        .lookup(INTERNAL_TRACE, &LookupQuery::GroupsOf(b"big".to_vec()))
        .await
        .expect("an answer");
    played.questions();
    for name in groups.keys() {
        let answer =
            asking.lookup(INTERNAL_TRACE, &LookupQuery::GroupByName(name.as_str().into())).await;
        assert!(!answer.expect("an answer").records.is_empty(), "{name}");
    }
    let questions = played.questions().len();
    assert!(questions <= 12, "{questions} questions for 500 groups");
}

#[tokio::test]
async fn a_group_whose_members_cannot_be_told_is_no_group_without_members() {
    let (played, asking) = Played::asking(["big".to_owned()]);
    for name in ["small", "vast"] {
        played.groups.lock().insert(name.into(), vec!["big".into()]);
    }
    asking
        .lookup(INTERNAL_TRACE, &LookupQuery::GroupsOf(b"big".to_vec()))
        .await
        .expect("an answer");
    let vast = LookupQuery::GroupByName(b"vast".to_vec());
    played.vast.lock().insert("vast".into());
    let Err(BusError::Unavailable(text)) = asking.lookup(INTERNAL_TRACE, &vast).await else {
        panic!("its members are unknown")
    };
    assert!(text.contains(directory::ENTRY_CHANGED_DURING_LOOKUP.code), "{text}");
    played.failing.lock().insert("vast".into());
    let vast = asking.lookup(INTERNAL_TRACE, &vast).await;
    assert!(matches!(vast, Err(BusError::Unavailable(_))), "{vast:?}");
    let small = asking.lookup(INTERNAL_TRACE, &LookupQuery::GroupByName(b"small".to_vec())).await;
    assert!(!small.expect("an answer").records.is_empty());
}

#[tokio::test]
async fn on_demand_too_large_group_is_not_repeated() {
    let (played, asking) = Played::asking(names(0..3));
    for name in ["staff", "vast"] {
        played.groups.lock().insert(name.into(), names(0..1));
        asking
            .lookup(INTERNAL_TRACE, &LookupQuery::GroupByName(name.into()))
            .await
            .expect("an answer");
    }
    played.vast.lock().insert("vast".into());
    played.engine.expire_all();
    asking.refresh(AGE).await;
    played.questions();
    asking.refresh(AGE).await;
    assert_eq!(played.questions(), []);
    assert_eq!(fetched(&played.engine).fact("vast").members, None, "who left it is not in it");
    played.failing.lock().insert("vast".into());
    let vast = asking.lookup(INTERNAL_TRACE, &LookupQuery::GroupByName(b"vast".to_vec())).await;
    assert!(matches!(vast, Err(BusError::Unavailable(_))), "{vast:?}");
    played.questions();
    // The same holds for a query with all other groups of a user.
    played.groups.lock().insert("huge".into(), names(2..3));
    played.groups.lock().insert("small".into(), names(2..3));
    played.vast.lock().insert("huge".into());
    asking
        .lookup(INTERNAL_TRACE, &LookupQuery::GroupsOf(b"user2".to_vec()))
        .await
        .expect("an answer");
    played.questions();
    asking
        .lookup(INTERNAL_TRACE, &LookupQuery::GroupByName(b"small".to_vec()))
        .await
        .expect("an answer");
    let both = vec!["small".to_owned(), "huge".to_owned()];
    assert_eq!(played.questions(), [(Some(LookupScope::GroupsWithMembers), both)]);
    played.groups.lock().insert("tiny".into(), names(2..3));
    asking.expire(&by_name("user2")).await.expect("an answer");
    played.questions();
    asking
        .lookup(INTERNAL_TRACE, &LookupQuery::GroupByName(b"tiny".to_vec()))
        .await
        .expect("an answer");
    assert_eq!(played.questions(), [(None, vec!["tiny".to_owned()])]);
}

#[tokio::test]
async fn an_answer_that_the_bus_would_not_take_is_none() {
    let (played, asking) = Played::asking([]);
    let gecos = vec![b'x'; 60_000];
    let members = names(0..150);
    for name in &members {
        let DirectoryEntry::User(one) = user(name, 1000) else { unreachable!() };
        let long = DirectoryEntry::User(DirectoryUser { gecos: Cow::Borrowed(&gecos), ..one });
        played.engine.put(USERS, named(name), long);
    }
    played.engine.put(GROUPS, named("staff"), group("staff", 5000, Some(&all(&members))));
    let answer = asking.lookup(INTERNAL_TRACE, &LookupQuery::GroupByGid(5000)).await;
    assert!(matches!(answer, Err(BusError::Unavailable(_))));
    assert!(asking.lookup(INTERNAL_TRACE, &by_name("user7")).await.is_ok());
}

#[tokio::test]
async fn more_questions_than_may_be_under_way_wait_for_their_turn() {
    let users = names(0..300);
    let (_played, asking) = Played::asking(users.clone());
    let questions =
        users.iter().map(|name| async { asking.lookup(INTERNAL_TRACE, &by_name(name)).await });
    let answers = futures_util::future::join_all(questions).await;
    assert!(answers.iter().all(Result::is_ok));
}

fn place() -> Arc<BackendProbe> {
    Arc::new(BackendProbe::new("corp", "ldap"))
}
