//! What an engine and its asker promise of a directory that is asked on demand.

use super::*;
use crate::backend::asking::Asking;
use crate::hops::Place;
use crate::testing::SOON;
use roster_bus::exchange::{Record, Records};
use roster_bus::interfaces::Trace;
use roster_bus::interfaces::{CALL_DEADLINE, Error};
use roster_provider::files::FilesProvider;
use roster_provider::{Keys, LookUp, Looked, Of, Provider, Unanswered};
use std::collections::BTreeSet;
use std::sync::Mutex;

pub(super) const NOBODYS: Trace = Trace { request: 0, call: 0 };

/// How long an answer counts.
pub(super) const AGE: Duration = Duration::from_secs(300);

#[test]
fn only_what_was_asked_is_there_and_it_is_never_all() {
    let engine = engine(Mode::OnDemand);
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
    let engine = cached(folder.path(), Mode::OnDemand);
    engine.put(GROUPS, named("staff"), group("staff", 5000, Some(&["bob"])));
    engine.put(GROUPS, named("other"), group("other", 5001, None));
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.put(GROUPS, named("staff"), group("staff", 5000, None));
    engine.groups_of(named("alice"), &[named("staff"), named("other")]);
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
    check(&fetched(&cached(folder.path(), Mode::OnDemand)));
}

/// A new filter may leave them out, and homes may lie elsewhere.
#[test]
fn answers_that_were_read_in_another_way_are_asked_for_again_over_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let alice = LookUp::UserByName(b"alice".to_vec());
    let is_fresh = |engine: &Engine| engine.fresh(&alice, AGE).is_some();
    let begun = |reading: &str| {
        let opened =
            store::open(folder.path(), "corp", |store| Loaded::read(store, Mode::OnDemand));
        let Opened { store, loaded, .. } = opened.expect("a cache");
        let engine = Engine::new(settings(Mode::OnDemand), loaded, Some(Arc::new(store)), None);
        engine.read_by(reading);
        engine.begin(vec![USERS, GROUPS]);
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
    assert!(engine.found(&alice).is_some(), "for as long as the directory is away");
    end(engine);
    let engine = begun("in another");
    assert!(!is_fresh(&engine), "nobody asked meanwhile");
    engine.put(USERS, named("alice"), user("alice", 1000));
    assert!(is_fresh(&engine));
}

/// A group that others may list.
fn by_dn<'a>(name: &'a str, members: &[&'a str]) -> Entry<'a> {
    let Entry::Group(one) = group(name, uid_of(name), Some(members)) else { unreachable!() };
    Entry::Group(Group { reference: name.as_bytes().into(), ..one })
}

#[test]
fn members_that_cannot_be_told_any_more_are_not_known_nor_are_those_of_groups_around() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), Mode::OnDemand);
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.put(GROUPS, named("inner"), by_dn("inner", &["alice"]));
    engine.put(GROUPS, named("middle"), by_dn("middle", &["inner", "outer"]));
    engine.put(GROUPS, named("outer"), by_dn("outer", &["middle"]));
    engine.put(GROUPS, named("other"), by_dn("other", &["alice"]));
    engine.flush();
    let mut known = fetched(&engine);
    let Entry::Group(one) = by_dn("inner", &[]) else { unreachable!() };
    engine.put(GROUPS, named("inner"), Entry::Group(Group { members: None, ..one }));
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
    assert_eq!(engine.found(&LookUp::GroupByName(b"outer".to_vec())), None);
    assert_eq!(engine.knows(&[&dn("middle")]), [false]);
    assert_eq!(engine.stale(Of::GroupsWithMembers, AGE), [], "nothing to confirm");
    end(engine);
    check(&fetched(&cached(folder.path(), Mode::OnDemand)));
}

#[test]
fn an_answer_brings_the_records_that_it_speaks_of() {
    let engine = engine(Mode::OnDemand);
    let alice = || LookUp::GroupsOf(b"alice".to_vec());
    assert_eq!(engine.found(&alice()), None);
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.put(USERS, named("bob"), user("bob", 1001));
    engine.put(GROUPS, named("staff"), group("staff", 5000, Some(&["alice", "bob"])));
    engine.groups_of(named("alice"), &[named("staff")]);
    let learnt = |what: &LookUp| {
        let records = engine.found(what).expect("known").records;
        let mut known = Known::default();
        for record in Records::bare(&records) {
            known.learn(&record.expect("a record"));
        }
        known
    };
    assert_eq!(learnt(&alice()).names(), ["alice", "staff"]);
    assert_eq!(learnt(&LookUp::UserByUid(1001)).names(), ["bob"]);
    let staff = learnt(&LookUp::GroupByName(b"staff".to_vec()));
    assert_eq!(staff.names(), ["alice", "bob", "staff"]);
}

#[test]
fn lists_that_name_somebody_who_was_renamed_are_not_known_nor_are_those_of_groups_around() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = cached(folder.path(), Mode::OnDemand);
    engine.put(USERS, id(1), user("alice", 1000));
    engine.put(USERS, id(2), user("bob", 1001));
    engine.put(GROUPS, named("staff"), by_dn("staff", &["alice"]));
    engine.put(GROUPS, named("all"), by_dn("all", &["bob", "staff"]));
    engine.put(GROUPS, named("others"), by_dn("others", &["bob"]));
    engine.groups_of(id(1), &[named("staff")]);
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
        assert_eq!(engine.found(&LookUp::GroupByName(name.into())), None, "{name}");
    }
    // Asked for again they are known, also where the directory left the old name in.
    engine.put(GROUPS, named("staff"), by_dn("staff", &["alicia", "alice"]));
    engine.put(GROUPS, named("all"), by_dn("all", &["bob", "staff"]));
    engine.put(USERS, id(1), user("alicia", 1001));
    assert!(engine.found(&LookUp::GroupByName(b"all".to_vec())).is_some());
    // The same of a group.
    let Entry::Group(staff) = by_dn("staff", &["alicia"]) else { unreachable!() };
    let renamed = Group { name: b"crew".into(), reference: b"crew".into(), ..staff };
    engine.put(GROUPS, named("staff"), Entry::Group(renamed));
    assert_eq!(engine.found(&LookUp::GroupByName(b"all".to_vec())), None);
    assert!(engine.found(&LookUp::GroupByName(b"crew".to_vec())).is_some());
    engine.flush();
    end(engine);
    let known = fetched(&cached(folder.path(), Mode::OnDemand));
    assert_eq!(known.fact("all").members, None);
    assert_eq!(known.fact("crew").members.as_ref().map(Vec::len), Some(1));
}

#[test]
fn renamed_user_leaves_lists_by_name_unknown() {
    let engine = engine(Mode::OnDemand);
    let Entry::User(alice) = user("alice", 1001) else { unreachable!() };
    engine.put(USERS, id(1), Entry::User(alice.clone()));
    engine.put(GROUPS, named("staff"), mixed("staff", &["alice"], &[]));
    engine.put(GROUPS, named("crew"), mixed("crew", &[], &["alice"]));
    engine.groups_of(id(1), &[named("staff"), named("crew")]);
    let by_name = Member::Name(b"alice".into());
    assert_eq!(engine.knows(&[&by_name, &dn("alice")]), [true; 2]);
    let found = |name: &str| engine.found(&LookUp::GroupByName(name.into())).is_some();
    assert!(found("staff") && found("crew"));

    // The DN stays, as it does where it begins with another attribute.
    engine.put(USERS, id(1), Entry::User(User { name: b"alicia".into(), ..alice }));
    assert_eq!(engine.knows(&[&by_name, &dn("alice")]), [false, true]);
    assert!(!found("staff") && found("crew"));
    assert_eq!(engine.found(&LookUp::GroupsOf(b"alicia".to_vec())), None);
}

#[test]
fn an_answer_is_of_a_state_that_can_be_fetched() {
    let engine = engine(Mode::OnDemand);
    let mut known = fetched(&engine);
    for uid in [1000, 1001] {
        engine.put(USERS, named("alice"), user("alice", uid));
        let before = known.sequence;
        for _ in 0..2 {
            // Reported, and not flushed yet.
            let answer = engine.found(&by_name("alice")).expect("known");
            assert_eq!(answer.sequence, before + 1);
        }
        assert!(!known.fetch(&engine) || before == 0);
        assert_eq!((known.sequence, known.fact("alice").id), (before + 1, uid));
        engine.flush();
        assert_eq!(engine.status().sequence, before + 1, "that was all");
    }
}

#[test]
fn whoever_comes_under_the_key_of_another_does_not_get_the_others_groups() {
    let engine = engine(Mode::OnDemand);
    engine.put(USERS, id(1), user("alice", 1000));
    engine.put(GROUPS, named("staff"), group("staff", 5000, None));
    engine.groups_of(id(1), &[named("staff")]);
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
    let engine = cached(folder.path(), Mode::OnDemand);
    engine.put(USERS, named("gone"), user("gone", 999));
    engine.put(GROUPS, named("other"), group("other", 5001, Some(&["alice"])));
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.put(GROUPS, named("staff"), group("staff", 5000, None));
    engine.groups_of(named("alice"), &[named("staff"), named("other")]);
    engine.removed(USERS, named("gone"));
    engine.flush();
    let before = fetched(&engine);
    write(&engine);
    let store = engine.take_store().expect("a cache");
    store.write(|writer| writer.next_number(9_000_000)).expect("written");
    drop((store, engine));
    let engine = cached(folder.path(), Mode::OnDemand);
    let known = fetched(&engine);
    assert_eq!(known.entries.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(known.fact("alice").groups, Some(vec![0, 2]));
    assert_eq!(known.fact("other"), before.fact("other"));
    // It is as it was: nothing changes when the directory says so again.
    engine.put(USERS, named("alice"), user("alice", 1000));
    engine.put(USERS, named("new"), user("new", 1001));
    engine.flush();
    assert_eq!(fetched(&engine).entries[&3].name, "new");
}

/// A domain that is asked, with files for a directory.
struct Directory {
    folder: tempfile::TempDir,
    engine: Arc<Engine>,
    asking: Asking<FilesProvider>,
}

impl Directory {
    fn new(mode: Mode) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (passwd, group) = (folder.path().join("passwd"), folder.path().join("group"));
        std::fs::write(&passwd, "alice:x:1000:100:::\n").expect("written");
        std::fs::write(&group, "staff:x:5000:alice\n").expect("written");
        let engine = engine(mode);
        let sink: Arc<dyn Sink> = Arc::clone(&engine) as _;
        let files = Files { passwd, group };
        let provider = FilesProvider::new("corp", files, Overrides::default(), sink);
        let asking = Asking::new(Arc::clone(&engine), Arc::new(provider), place(), mode, AGE);
        Self { folder, engine, asking }
    }

    async fn ask(&self, name: &str) -> Result<Vec<u8>, Error> {
        Ok(self.asking.look_up(NOBODYS, &LookUp::UserByName(name.into())).await?.records)
    }
}

#[tokio::test]
async fn an_absent_user_is_an_empty_answer_and_an_unreachable_directory_is_none() {
    let directory = Directory::new(Mode::OnDemand);
    assert!(!directory.ask("alice").await.expect("an answer").is_empty());
    assert!(directory.ask("nobody").await.expect("an answer").is_empty());
    let users = directory.folder.path().join("passwd");
    std::fs::remove_file(users).expect("removed");
    assert!(!directory.ask("alice").await.expect("what is known").is_empty());
    let unknown = directory.ask("nobody").await;
    assert!(matches!(unknown, Err(Error::Unavailable(_))), "broken never looks like absent");
}

#[tokio::test]
async fn expiring_asks_again_and_takes_nothing_while_the_directory_is_away() {
    let directory = Directory::new(Mode::OnDemand);
    directory.ask("alice").await.expect("an answer");
    let users = directory.folder.path().join("passwd");
    let alice = LookUp::UserByName(b"alice".to_vec());
    std::fs::remove_file(&users).expect("removed");
    let expired = directory.asking.expire(&alice).await;
    assert!(matches!(expired, Err(Error::Unavailable(_))));
    assert!(directory.engine.found(&alice).is_some());
    std::fs::write(&users, "").expect("written");
    directory.asking.expire(&alice).await.expect("an answer");
    assert_eq!(directory.engine.found(&alice), None);
}

#[tokio::test]
async fn a_mirror_is_not_asked() {
    let directory = Directory::new(Mode::Replicate);
    assert!(matches!(directory.ask("alice").await, Err(Error::Invalid(_))));
}

#[tokio::test]
async fn answers_are_asked_for_again_and_go_when_the_entry_does() {
    let directory = Directory::new(Mode::OnDemand);
    directory.ask("alice").await.expect("an answer");
    directory.engine.online("files", "");
    directory.asking.expire_all();
    std::fs::write(directory.folder.path().join("passwd"), "").expect("written");
    let alice = LookUp::UserByName(b"alice".to_vec());
    let gone = async {
        while directory.engine.found(&alice).is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = directory.asking.keep_fresh() => {}
        gone = tokio::time::timeout(SOON, gone) => gone.expect("asked again"),
    }
}

/// A directory that is played: what it has, what it fails at, and what it was asked for.
pub(super) struct Played {
    pub(super) engine: Arc<Engine>,
    pub(super) users: Mutex<BTreeMap<String, u32>>,
    /// Users of which replies and listings say nothing, and searches by keys do.
    pub(super) unlisted: Mutex<BTreeSet<String>>,
    /// Whether the search base cannot be read.
    pub(super) is_baseless: Mutex<bool>,
    /// The keys that were looked for, those that must be there among them.
    pub(super) looked_for: Mutex<Vec<usize>>,
    /// Groups and their members.
    pub(super) groups: Mutex<BTreeMap<String, Vec<String>>>,
    failing: Mutex<BTreeSet<String>>,
    /// What there is never an answer about.
    silent: Mutex<BTreeSet<String>>,
    /// Groups whose members are too many to be told.
    vast: Mutex<BTreeSet<String>>,
    pub(super) unreachable: Mutex<bool>,
    refreshes: Mutex<u32>,
    asked: Mutex<Vec<(Option<Of>, Vec<String>)>>,
}

impl Played {
    pub(super) fn asking(users: impl IntoIterator<Item = String>) -> (Arc<Self>, Asking<Self>) {
        Self::asking_for(engine(Mode::OnDemand), Mode::OnDemand, users)
    }

    pub(super) fn asking_for(
        engine: Arc<Engine>,
        mode: Mode,
        users: impl IntoIterator<Item = String>,
    ) -> (Arc<Self>, Asking<Self>) {
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
            refreshes: Mutex::default(),
            asked: Mutex::default(),
        });
        let asking = Asking::new(engine, Arc::clone(&played), place(), mode, AGE);
        (played, asking)
    }

    /// The key of a user.
    pub(super) fn id(name: &str, uid: u32) -> EntryId {
        named(&format!("{name}-{uid}"))
    }

    fn tell_user(&self, name: &str) -> bool {
        !self.unlisted.lock().unwrap().contains(name) && self.put_user(name)
    }

    fn put_user(&self, name: &str) -> bool {
        let users = self.users.lock().unwrap();
        let Some(&uid) = users.get(name) else { return false };
        self.engine.put(USERS, Self::id(name, uid), user(name, uid));
        true
    }

    /// A mirror lists what the directory shows.
    pub(super) fn list_users(&self, cookie: Option<Cookie>) {
        self.engine.refresh_began(USERS);
        let names: Vec<String> = self.users.lock().unwrap().keys().cloned().collect();
        names.iter().for_each(|name| {
            self.tell_user(name);
        });
        self.engine.refresh_ended(USERS, Unmentioned::Missing, cookie);
        self.engine.flush();
    }

    fn tell_group(&self, name: &str, with_members: bool) -> bool {
        let groups = self.groups.lock().unwrap();
        let Some(members) = groups.get(name) else { return false };
        let members = all(members);
        let gid = 5000 + uid_of(name);
        let vast = self.vast.lock().unwrap().contains(name);
        let told = group(name, gid, (with_members && !vast).then_some(&members));
        self.engine.put(GROUPS, named(name), told);
        if with_members && vast {
            self.engine.members_unknown(GROUPS, named(name));
        }
        true
    }

    fn tell(&self, of: Of, name: &str) -> bool {
        let told = match of {
            Of::Users | Of::UsersWithGroups => self.tell_user(name),
            Of::Groups | Of::GroupsWithMembers => {
                self.tell_group(name, of == Of::GroupsWithMembers)
            }
        };
        if told && of == Of::UsersWithGroups {
            let groups = self.groups.lock().unwrap().clone();
            let of_user = groups.iter().filter(|(_, members)| members.iter().any(|m| m == name));
            let of_user: Vec<&String> = of_user.map(|(group, _)| group).collect();
            of_user.iter().for_each(|group| assert!(self.tell_group(group, false)));
            let ids: Vec<EntryId> = of_user.iter().map(|group| named(group)).collect();
            let uid = self.users.lock().unwrap()[name];
            self.engine.groups_of(Self::id(name, uid), &ids);
        }
        told
    }

    fn answer(&self, of: Option<Of>, names: &[String]) -> Result<(), Unanswered> {
        self.asked.lock().unwrap().push((of, names.to_vec()));
        if *self.unreachable.lock().unwrap() {
            return Err(Unanswered::Unreachable("it is away".into()));
        }
        let failing = self.failing.lock().unwrap();
        match names.iter().find(|name| failing.contains(*name)) {
            Some(name) => Err(Unanswered::Failed(format!("{name} is too much"))),
            None => Ok(()),
        }
    }

    fn questions(&self) -> Vec<(Option<Of>, Vec<String>)> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Provider for Played {
    fn parts(&self) -> Vec<Part> {
        vec![USERS, GROUPS]
    }

    fn reading(&self) -> String {
        String::new()
    }

    fn tracking(&self) -> Cow<'static, str> {
        "on demand".into()
    }

    async fn mirror(&self, _: Vec<(Part, Cookie)>) -> String {
        std::future::pending().await
    }

    async fn look_up(&self, what: &LookUp) -> Result<bool, Unanswered> {
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).expect("ASCII");
        let (of, name) = match what {
            LookUp::UserByName(name) => (Of::Users, text(name)),
            LookUp::GroupsOf(name) => (Of::UsersWithGroups, text(name)),
            LookUp::GroupByName(name) => (Of::GroupsWithMembers, text(name)),
            LookUp::GroupByGid(gid) => {
                let groups = self.groups.lock().unwrap();
                let found = groups.keys().find(|name| 5000 + uid_of(name) == *gid);
                (Of::GroupsWithMembers, found.cloned().unwrap_or_default())
            }
            LookUp::UserByUid(_) => unreachable!("not asked here"),
        };
        tokio::task::yield_now().await;
        self.answer(None, std::slice::from_ref(&name))?;
        Ok(self.tell(of, &name))
    }

    async fn look_up_all(&self, of: Of, keys: Keys<'_>) -> Result<(), Unanswered> {
        let text = |name: &Vec<u8>| String::from_utf8(name.clone()).expect("ASCII");
        let names: Vec<String> = match keys {
            Keys::Names(names) => names.iter().map(text).collect(),
            Keys::Ids(_) => unreachable!("not asked here"),
        };
        self.answer(Some(of), &names)?;
        if names.iter().any(|name| self.silent.lock().unwrap().contains(name)) {
            std::future::pending::<()>().await;
        }
        for name in &names {
            self.tell(of, name);
        }
        Ok(())
    }

    async fn look_for(
        &self,
        of: Of,
        missing: &[(Part, EntryId)],
        control: &[EntryId],
    ) -> Result<Looked, Unanswered> {
        if *self.unreachable.lock().unwrap() {
            return Err(Unanswered::Unreachable("it is away".into()));
        }
        self.looked_for.lock().unwrap().push(missing.len() + control.len());
        let users = self.users.lock().unwrap().clone();
        let groups = self.groups.lock().unwrap().clone();
        let all: BTreeMap<EntryId, &String> = match of {
            Of::Users | Of::UsersWithGroups => {
                users.iter().map(|(name, uid)| (Self::id(name, *uid), name)).collect()
            }
            Of::Groups | Of::GroupsWithMembers => {
                groups.keys().map(|name| (named(name), name)).collect()
            }
        };
        let ids = missing.iter().map(|(_, id)| id).chain(control);
        let found = ids.copied().filter(|id| all.contains_key(id)).collect();
        for (_, id) in missing {
            match (of, all.get(id)) {
                (Of::Users, Some(name)) => assert!(self.put_user(name)),
                (_, Some(name)) => assert!(self.tell_group(name, false)),
                (_, None) => {}
            }
        }
        self.engine.flush();
        let is_credible =
            !*self.is_baseless.lock().unwrap() && (!control.is_empty() || !all.is_empty());
        Ok(Looked { found, is_credible })
    }

    fn refresh(&self) {
        *self.refreshes.lock().unwrap() += 1;
    }
}

pub(super) fn by_name(name: &str) -> LookUp {
    LookUp::UserByName(name.into())
}

/// Has all these users asked for, and what was asked forgotten.
pub(super) async fn ask_for(played: &Played, asking: &Asking<Played>, names: &[String]) {
    for name in names {
        assert!(
            !asking.look_up(NOBODYS, &by_name(name)).await.expect("an answer").records.is_empty(),
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
    played.engine.expire();
    asking.refresh(AGE).await;
    let questions = played.questions();
    assert_eq!(questions.len(), 3);
    assert!(questions.iter().all(|(of, _)| *of == Some(Of::Users)));
    assert_eq!(questions.iter().map(|(_, names)| names.len()).sum::<usize>(), 250);
    asking.refresh(AGE).await;
    assert_eq!(played.questions(), [], "all of it is young again");
}

fn all_named(names: &[String]) -> Vec<LookUp> {
    names.iter().map(|name| by_name(name)).collect()
}

/// Who is told.
fn told(records: &[u8]) -> BTreeSet<String> {
    let name = |record| match record {
        Ok(Record::User(user)) => String::from_utf8_lossy(user.name).into_owned(),
        other => panic!("users alone were asked for: {other:?}"),
    };
    Records::bare(records).map(name).collect()
}

#[tokio::test]
async fn entries_are_asked_for_together_and_only_those_of_which_nothing_was_said_lately() {
    let users = names(0..150);
    let (played, asking) = Played::asking(users.clone());
    ask_for(&played, &asking, &users[..10]).await;
    // A user's groups would be told to who asks for the user alone.
    asking.look_up(NOBODYS, &LookUp::GroupsOf(b"user3".to_vec())).await.expect("an answer");
    played.questions();
    let what = all_named(&names(0..400));
    let answer = asking.look_up_all(NOBODYS, &what).await.expect("an answer");
    assert_eq!(told(&answer.records), users.iter().cloned().collect());
    let questions = played.questions();
    assert_eq!(questions.len(), 4, "390 by the hundred");
    assert!(questions.iter().all(|(of, _)| *of == Some(Of::Users)));
    assert_eq!(questions.iter().map(|(_, names)| names.len()).sum::<usize>(), 390);
}

#[tokio::test]
async fn of_entries_that_are_asked_for_together_all_are_told_or_it_is_an_error() {
    let users = names(0..100);
    let (played, asking) = Played::asking(users.clone());
    played.failing.lock().unwrap().insert("user17".to_owned());
    let what = all_named(&users);
    assert!(asking.look_up_all(NOBODYS, &what).await.is_err(), "of user17 nothing is known");
    let others: Vec<LookUp> =
        what.iter().filter(|one| **one != by_name("user17")).cloned().collect();
    assert!(asking.look_up_all(NOBODYS, &others).await.is_ok());
    played.failing.lock().unwrap().clear();
    assert!(asking.look_up_all(NOBODYS, &what).await.is_ok());
    // While nobody answers, what is known is told, and of nobody that there is no such user.
    *played.unreachable.lock().unwrap() = true;
    played.engine.expire();
    let answer = asking.look_up_all(NOBODYS, &what).await.expect("what is known");
    assert_eq!(told(&answer.records), users.into_iter().collect());
    assert!(asking.look_up_all(NOBODYS, &all_named(&names(99..101))).await.is_err());
}

#[tokio::test]
async fn what_is_known_and_young_is_not_asked_for() {
    let (played, asking) = Played::asking(names(0..1));
    ask_for(&played, &asking, &names(0..1)).await;
    ask_for(&played, &asking, &names(0..1)).await;
    assert!(
        !asking.look_up(NOBODYS, &by_name("user0")).await.expect("an answer").records.is_empty()
    );
    assert_eq!(played.questions(), []);
}

#[tokio::test]
async fn a_members_list_is_asked_for_again_although_the_groups_of_a_member_were() {
    let (played, asking) = Played::asking(names(0..2));
    let staff = || LookUp::GroupByName(b"staff".to_vec());
    played.groups.lock().unwrap().insert("staff".into(), names(0..1));
    asking.look_up(NOBODYS, &staff()).await.expect("an answer");
    asking.look_up(NOBODYS, &LookUp::GroupsOf(b"user0".to_vec())).await.expect("an answer");
    played.engine.expire();
    played.groups.lock().unwrap().insert("staff".into(), names(0..2));
    // Speaks of the group, and not of its members.
    asking.look_up(NOBODYS, &LookUp::GroupsOf(b"user0".to_vec())).await.expect("an answer");
    played.questions();
    asking.refresh(AGE).await;
    assert_eq!(played.questions(), [(Some(Of::GroupsWithMembers), vec!["staff".to_owned()])]);
    assert_eq!(fetched(&played.engine).fact("staff").members.as_ref().map(Vec::len), Some(2));
}

#[tokio::test]
async fn an_entry_that_always_fails_holds_up_no_other_and_is_left_alone() {
    let users = names(0..3);
    let (played, asking) = Played::asking(users.clone());
    ask_for(&played, &asking, &users).await;
    played.failing.lock().unwrap().insert("user1".into());
    played.engine.expire();
    asking.refresh(AGE).await;
    played.questions();
    assert_eq!(played.engine.stale(Of::Users, AGE).len(), 1, "the others are young");
    asking.refresh(AGE).await;
    assert_eq!(played.questions(), [], "it has time");
    // It is an old truth, and none that is worth nothing.
    assert!(
        !asking
            .look_up(NOBODYS, &by_name("user1"))
            .await
            .expect("what is known")
            .records
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn what_there_is_no_answer_about_is_found_in_a_few_questions_and_holds_up_no_other() {
    let users = names(0..300);
    let (played, asking) = Played::asking(users.clone());
    ask_for(&played, &asking, &users).await;
    played.silent.lock().unwrap().extend(["user0".to_owned(), "user299".to_owned()]);
    played.engine.expire();
    let began = tokio::time::Instant::now();
    asking.refresh(AGE).await;
    let stale = played.engine.stale(Of::Users, AGE);
    assert_eq!(stale.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 299]);
    assert!(began.elapsed() < 9 * CALL_DEADLINE, "{:?}", began.elapsed());
    let questions = played.questions().len();
    assert!(questions < 35, "{questions} questions for two in 300 without an answer");
    asking.refresh(AGE).await;
    assert_eq!(played.questions(), [], "they have time");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_too_slow_for_all_of_a_batch_is_asked_for_others() {
    let users = names(0..600);
    let (played, asking) = Played::asking(users.clone());
    ask_for(&played, &asking, &users).await;
    played.silent.lock().unwrap().extend(names(0..400));
    played.engine.expire();
    let began = tokio::time::Instant::now();
    asking.refresh(AGE).await;
    assert!(began.elapsed() <= 11 * CALL_DEADLINE, "{:?}", began.elapsed());
    assert_eq!(played.engine.stale(Of::Users, AGE).len(), 400, "the others are young");
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
            played.engine.offline("it is away");
            played.failing.lock().unwrap().insert("user1".into());
            played.engine.expire();
            asking.refresh(AGE).await;
            played.failing.lock().unwrap().clear();
            asking.refresh(AGE).await;
            assert_eq!(played.engine.stale(Of::Users, AGE).len(), 1, "it is left alone");
            played.engine.online(server, "");
            while !played.engine.stale(Of::Users, AGE).is_empty() {
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
    *played.unreachable.lock().unwrap() = true;
    played.engine.expire();
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
    let all = std::mem::take(&mut *played.users.lock().unwrap());
    played.engine.expire();
    asking.refresh(AGE).await;
    assert_eq!(fetched(&played.engine).entries.len(), 100);
    assert_eq!(played.engine.status().held_removals, 100);
    *played.users.lock().unwrap() = all;
    asking.refresh(AGE).await;
    assert_eq!(played.engine.status().held_removals, 0, "they are back");
    // Nor one that has a few of them.
    *played.users.lock().unwrap() = stay;
    played.engine.expire();
    asking.refresh(AGE).await;
    assert_eq!(fetched(&played.engine).entries.len(), 100);
    assert_eq!(played.engine.status().held_removals, 99);
}

#[tokio::test]
async fn who_was_made_anew_under_the_old_name_takes_the_place_of_the_old() {
    let (played, asking) = Played::asking(["alice".to_owned()]);
    ask_for(&played, &asking, &["alice".to_owned()]).await;
    played.users.lock().unwrap().insert("alice".into(), 2000);
    played.engine.expire();
    asking.refresh(AGE).await;
    assert_eq!(fetched(&played.engine).names(), ["alice"], "and there is one");
    assert!(played.engine.found(&LookUp::UserByUid(2000)).is_some());
}

#[tokio::test]
async fn expiring_a_user_asks_for_the_groups_that_are_known_too() {
    let (played, asking) = Played::asking(["alice".to_owned()]);
    asking.look_up(NOBODYS, &LookUp::GroupsOf(b"alice".to_vec())).await.expect("an answer");
    played.groups.lock().unwrap().insert("staff".into(), vec!["alice".into()]);
    asking.expire(&by_name("alice")).await.expect("an answer");
    assert_eq!(fetched(&played.engine).fact("alice").groups.as_ref().map(Vec::len), Some(1));
}

#[tokio::test]
async fn of_a_mirror_no_single_entry_is_asked_for_again() {
    let (played, _) = Played::asking(names(0..1));
    let engine = Arc::clone(&played.engine);
    let asking = Asking::new(engine, Arc::clone(&played), place(), Mode::Replicate, AGE);
    asking.expire(&LookUp::GroupByName(b"staff".to_vec())).await.expect("made anew");
    assert_eq!((played.questions(), *played.refreshes.lock().unwrap()), (vec![], 1));
}

#[tokio::test]
async fn who_lists_a_users_groups_has_them_fetched_in_a_few_questions() {
    let (played, asking) = Played::asking(["big".to_owned()]);
    let groups: BTreeMap<String, Vec<String>> =
        (0..500).map(|number| (format!("{number:03}group"), vec!["big".to_owned()])).collect();
    *played.groups.lock().unwrap() = groups.clone();
    asking.look_up(NOBODYS, &LookUp::GroupsOf(b"big".to_vec())).await.expect("an answer");
    played.questions();
    for name in groups.keys() {
        let answer = asking.look_up(NOBODYS, &LookUp::GroupByName(name.as_str().into())).await;
        assert!(!answer.expect("an answer").records.is_empty(), "{name}");
    }
    let questions = played.questions().len();
    assert!(questions <= 12, "{questions} questions for 500 groups");
}

#[tokio::test]
async fn a_group_whose_members_cannot_be_told_is_no_group_without_members() {
    let (played, asking) = Played::asking(["big".to_owned()]);
    for name in ["small", "vast"] {
        played.groups.lock().unwrap().insert(name.into(), vec!["big".into()]);
    }
    asking.look_up(NOBODYS, &LookUp::GroupsOf(b"big".to_vec())).await.expect("an answer");
    played.failing.lock().unwrap().insert("vast".into());
    let vast = asking.look_up(NOBODYS, &LookUp::GroupByName(b"vast".to_vec())).await;
    assert!(matches!(vast, Err(Error::Unavailable(_))), "{vast:?}");
    let small = asking.look_up(NOBODYS, &LookUp::GroupByName(b"small".to_vec())).await;
    assert!(!small.expect("an answer").records.is_empty());
}

#[tokio::test]
async fn a_group_that_grew_beyond_what_is_told_is_not_asked_for_all_the_time() {
    let (played, asking) = Played::asking(names(0..3));
    for name in ["staff", "vast"] {
        played.groups.lock().unwrap().insert(name.into(), names(0..1));
        asking.look_up(NOBODYS, &LookUp::GroupByName(name.into())).await.expect("an answer");
    }
    played.vast.lock().unwrap().insert("vast".into());
    played.engine.expire();
    asking.refresh(AGE).await;
    played.questions();
    asking.refresh(AGE).await;
    assert_eq!(played.questions(), []);
    assert_eq!(fetched(&played.engine).fact("vast").members, None, "who left it is not in it");
    played.failing.lock().unwrap().insert("vast".into());
    let vast = asking.look_up(NOBODYS, &LookUp::GroupByName(b"vast".to_vec())).await;
    assert!(matches!(vast, Err(Error::Unavailable(_))), "{vast:?}");
    played.questions();
    // Nor with every other group of a user.
    played.groups.lock().unwrap().insert("huge".into(), names(2..3));
    played.groups.lock().unwrap().insert("small".into(), names(2..3));
    played.vast.lock().unwrap().insert("huge".into());
    asking.look_up(NOBODYS, &LookUp::GroupsOf(b"user2".to_vec())).await.expect("an answer");
    played.questions();
    asking.look_up(NOBODYS, &LookUp::GroupByName(b"small".to_vec())).await.expect("an answer");
    let both = vec!["small".to_owned(), "huge".to_owned()];
    assert_eq!(played.questions(), [(Some(Of::GroupsWithMembers), both)]);
    played.groups.lock().unwrap().insert("tiny".into(), names(2..3));
    asking.expire(&by_name("user2")).await.expect("an answer");
    played.questions();
    asking.look_up(NOBODYS, &LookUp::GroupByName(b"tiny".to_vec())).await.expect("an answer");
    assert_eq!(played.questions(), [(None, vec!["tiny".to_owned()])]);
}

#[tokio::test]
async fn an_answer_that_the_bus_would_not_take_is_none() {
    let (played, asking) = Played::asking([]);
    let gecos = vec![b'x'; 60_000];
    let members = names(0..150);
    for name in &members {
        let Entry::User(one) = user(name, 1000) else { unreachable!() };
        let long = Entry::User(User { gecos: Cow::Borrowed(&gecos), ..one });
        played.engine.put(USERS, named(name), long);
    }
    played.engine.put(GROUPS, named("staff"), group("staff", 5000, Some(&all(&members))));
    let answer = asking.look_up(NOBODYS, &LookUp::GroupByGid(5000)).await;
    assert!(matches!(answer, Err(Error::Unavailable(_))));
    assert!(asking.look_up(NOBODYS, &by_name("user7")).await.is_ok());
}

#[tokio::test]
async fn more_questions_than_may_be_under_way_wait_for_their_turn() {
    let users = names(0..300);
    let (_played, asking) = Played::asking(users.clone());
    let questions =
        users.iter().map(|name| async { asking.look_up(NOBODYS, &by_name(name)).await });
    let answers = futures_util::future::join_all(questions).await;
    assert!(answers.iter().all(Result::is_ok));
}

fn place() -> Arc<Place> {
    Arc::new(Place::new("corp", "ldap"))
}
