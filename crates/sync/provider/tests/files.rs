// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `files` provider over real files.

use parking_lot::{Mutex, MutexGuard};
use roster_config::{FilesConfig, HomeShellOverrides};
use roster_messages::{Message, table::directory};
use roster_provider::files::FilesProvider;
use roster_provider::reason::Reason;
use roster_provider::stable_file::STABLE_FOR;
use roster_provider::{
    DirectoryEntry, EntryId, EntrySink, LookupQuery, Member, Provider, SearchId, SyncCookie,
    UnlistedEntries, UnreadableEntry,
};
use roster_system_tests::LoggedCodes;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;

/// The limit of a wait. It only ends a failing test.
const SOON: Duration = Duration::from_secs(60);

/// Records the reported entries.
#[derive(Default)]
struct Notes {
    known: Mutex<Known>,
    told: Notify,
}

#[derive(Default)]
struct Known {
    entries: BTreeMap<EntryId, String>,
    rejected: BTreeMap<String, &'static Message>,
    mentioned: Vec<EntryId>,
    online: Option<bool>,
    reason: String,
    code: &'static str,
    flushes: usize,
}

impl Notes {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    fn entries(&self) -> Vec<String> {
        let mut entries: Vec<_> = self.known().entries.values().cloned().collect();
        entries.sort();
        entries
    }

    /// Waits for a condition.
    async fn until(&self, what: &str, is_so: impl Fn(&Known) -> bool) {
        let waiting = async {
            while !is_so(&self.known()) {
                self.told.notified().await;
            }
        };
        let waited = tokio::time::timeout(SOON, waiting).await;
        assert!(waited.is_ok(), "not within {SOON:?}: {what}; {:?}", self.entries());
    }
}

impl EntrySink for Notes {
    fn online(&self, _server: &str, _passed_over: Option<&Reason>) {
        let mut known = self.known();
        (known.online, known.reason) = (Some(true), String::new());
    }

    fn offline(&self, reason: &Reason) {
        let mut known = self.known();
        (known.online, known.reason) = (Some(false), reason.text.clone());
        known.code = reason.message.code;
        self.told.notify_one();
    }

    fn refresh_began(&self, _part: SearchId) {
        self.known().mentioned.clear();
    }

    fn put(&self, part: SearchId, id: EntryId, entry: DirectoryEntry<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = match entry {
            DirectoryEntry::User(user) => format!(
                "user {} {} {} {} {}",
                text(&user.name),
                user.uid,
                user.gid,
                text(&user.dir),
                text(&user.shell)
            ),
            DirectoryEntry::Group(group) => {
                assert!(group.reference.is_empty(), "lists name no groups");
                let members = group.members.expect("known");
                let name = |member: &Member<'_>| match member {
                    Member::Name(name) => text(name),
                    Member::Dn(dn) => panic!("a file has no DNs: {dn:?}"),
                };
                let members: Vec<_> = members.iter().map(name).collect();
                format!(
                    "group {} {} {}",
                    text(&group.name),
                    group.gid.expect("a gid"),
                    members.join(",")
                )
            }
        };
        assert_eq!(line.starts_with("user"), part == SearchId(0));
        let mut known = self.known();
        known.mentioned.push(id);
        known.entries.insert(id, line);
    }

    fn present(&self, _part: SearchId, _id: EntryId) -> bool {
        false
    }

    fn removed(&self, _part: SearchId, _id: EntryId) {}

    fn rejected(&self, _part: SearchId, id: EntryId, rejected: &UnreadableEntry<'_>) {
        let UnreadableEntry { name, reason, .. } = *rejected;
        let mut known = self.known();
        known.mentioned.push(id);
        known.rejected.insert(name.to_owned(), reason.message);
    }

    fn refresh_ended(
        &self,
        part: SearchId,
        unmentioned: UnlistedEntries,
        cookie: Option<SyncCookie>,
    ) {
        assert_eq!((unmentioned, cookie), (UnlistedEntries::Removed, None));
        let mut known = self.known();
        let mentioned = std::mem::take(&mut known.mentioned);
        let kind = if part == SearchId(0) { "user" } else { "group" };
        known.entries.retain(|id, line| !line.starts_with(kind) || mentioned.contains(id));
    }

    fn cookie(&self, _part: SearchId, _cookie: SyncCookie) {}

    fn user_groups(&self, _user: EntryId, _groups: &[EntryId]) {}

    fn members_unknown(&self, _part: SearchId, _id: EntryId) {
        panic!("a file tells all members");
    }

    fn knows(&self, members: &[&Member<'_>]) -> Vec<bool> {
        vec![false; members.len()]
    }

    fn has_capacity(&self) -> bool {
        true
    }

    fn flush(&self) {
        self.known().flushes += 1;
        self.told.notify_one();
    }
}

struct Source {
    folder: tempfile::TempDir,
    notes: Arc<Notes>,
    provider: Arc<FilesProvider>,
}

impl Source {
    fn new(passwd: &str, group: &str) -> Self {
        Self::with(passwd, group, HomeShellOverrides::default())
    }

    fn with(passwd: &str, group: &str, overrides: HomeShellOverrides) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let files = FilesConfig {
            passwd: folder.path().join("passwd"),
            group: folder.path().join("group"),
        };
        fs::write(&files.passwd, passwd).expect("written");
        fs::write(&files.group, group).expect("written");
        let notes = Arc::new(Notes::default());
        let sink: Arc<dyn EntrySink> = Arc::clone(&notes) as _;
        let provider = Arc::new(FilesProvider::new("lab", files, overrides, sink));
        Self { folder, notes, provider }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Whether a file that was written at that time may count as complete now. On a stalled machine the provider may
    /// read it, and the test proves nothing. The clock is that of the file system.
    fn may_have_settled(&self, written: SystemTime) -> bool {
        fs::write(self.path("now"), "now").expect("written");
        let passed = changed(&self.path("now")).duration_since(written);
        // Half, because times of files are inexact.
        passed.is_ok_and(|passed| passed >= STABLE_FOR / 2)
    }

    /// Mirrors until the test ends.
    async fn mirror(&self) {
        let provider = Arc::clone(&self.provider);
        tokio::spawn(async move { provider.mirror(Vec::new()).await });
        self.notes
            .until("the first report", |known| known.flushes == 1 || known.online == Some(false))
            .await;
    }
}

fn changed(path: &Path) -> SystemTime {
    path.metadata().and_then(|found| found.modified()).expect("a time")
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("written");
    fs::rename(new, path).expect("renamed");
}

/// Writes [`PASSWD`] in place up to a part of its last line. Returns a function that writes the rest and more.
fn begin_to_write(path: &Path) -> impl FnOnce(&str) + use<> {
    let (begin, rest) = PASSWD.split_at(58);
    let mut file = fs::File::create(path).expect("emptied");
    file.write_all(begin.as_bytes()).expect("written in part");
    move |more| file.write_all(format!("{rest}{more}").as_bytes()).expect("written to the end")
}

const PASSWD: &str = "alice:secret:1000:100:Alice:/home/alice:/bin/sh\nbob:x:1001:100:::\n";
const GROUP: &str = "staff:x:5000:alice,bob\nempty:x:5001:\n";

#[tokio::test]
async fn everything_that_files_would_serve_is_reported() {
    let source = Source::new(PASSWD, GROUP);
    source.mirror().await;
    let expected = [
        "group empty 5001 ",
        "group staff 5000 alice,bob",
        "user alice 1000 100 /home/alice /bin/sh",
        "user bob 1001 100  ",
    ];
    assert_eq!(source.notes.entries(), expected);
    assert_eq!(source.notes.known().online, Some(true));
}

#[tokio::test]
async fn what_files_would_pass_over_is_named_with_file_and_line() {
    let passwd =
        "# people\nalice:x:1000:100:::\n\nbroken:x:abc:100:::\nalice:x:1001:100:::\n+nis\n";
    let source = Source::new(passwd, "g\n");
    source.mirror().await;
    let known = source.notes.known();
    assert_eq!(known.entries.len(), 1);
    let place = |name: &str, line: u32| format!("{}:{line}", source.path(name).display());
    let rejected: Vec<_> = known.rejected.iter().map(|(name, why)| (name.clone(), *why)).collect();
    let expected = [
        (place("group", 1), &directory::LINE_MALFORMED),
        (place("passwd", 4), &directory::LINE_MALFORMED),
        (place("passwd", 5), &directory::LINE_DUPLICATE),
        (place("passwd", 6), &directory::LINE_NIS),
    ];
    assert_eq!(rejected, expected);
}

#[tokio::test]
async fn an_entry_keeps_its_id_while_it_keeps_its_name() {
    let source = Source::new(PASSWD, "alice:x:1:\n");
    source.mirror().await;
    let before: Vec<EntryId> = source.notes.known().entries.keys().copied().collect();
    assert_eq!(before.len(), 3, "a user and a group of one name are two");
    replace(&source.path("passwd"), "new:x:1:1:::\nbob:x:7:7:::\nalice:x:8:8:::\n");
    source.notes.until("the new file", |known| known.entries.len() == 4).await;
    let after = source.notes.known();
    assert!(before.iter().all(|id| after.entries.contains_key(id)));
}

#[tokio::test]
async fn a_change_is_seen_however_it_is_written() {
    let source = Source::new(PASSWD, GROUP);
    source.mirror().await;
    let has = |name: &'static str| {
        move |known: &Known| known.entries.values().any(|line| line.contains(name))
    };
    replace(&source.path("passwd"), "carol:x:1002:100:::\n");
    source.notes.until("a file in its place", has("user carol")).await;
    source.notes.until("who is not there any more", |known| !has("user alice")(known)).await;
    fs::write(source.path("group"), "wheel:x:5002:carol\n").expect("written");
    source.notes.until("a file written in place", has("wheel")).await;
    let target = source.path("elsewhere");
    fs::write(&target, "dave:x:1003:100:::\n").expect("written");
    fs::remove_file(source.path("passwd")).expect("removed");
    std::os::unix::fs::symlink(&target, source.path("passwd")).expect("a link");
    source.notes.until("a link", has("dave")).await;
    replace(&target, "erin:x:1004:100:::\n");
    source.notes.until("the file behind the link", has("erin")).await;
}

#[tokio::test]
async fn a_file_that_is_being_written_is_not_read_half_way() {
    let lines = |gids: std::ops::Range<u32>| -> String {
        gids.map(|gid| format!("group{gid}:x:{gid}:u2,u12,u{gid}\n")).collect()
    };
    let (old, text) = (lines(5000..5020), lines(6000..6020));
    let source = loop {
        let source = Source::new(PASSWD, &old);
        source.mirror().await;
        let before = source.notes.entries();
        // Written in place, in pieces that end anywhere in a line.
        let mut file = fs::File::create(source.path("group")).expect("emptied");
        let mut is_settled = false;
        for piece in text.as_bytes().chunks(31) {
            file.write_all(piece).expect("written");
            let written = changed(&source.path("group"));
            tokio::time::sleep(Duration::from_millis(60)).await;
            let entries = source.notes.entries();
            is_settled |= source.may_have_settled(written);
            assert!(is_settled || entries == before, "{entries:?}");
        }
        if !is_settled {
            break source;
        }
    };
    source
        .notes
        .until("all of it", |known| !known.entries.values().any(|line| line.contains(" 5000 ")))
        .await;
    let mut after = source.notes.entries();
    after.retain(|line| line.starts_with("group"));
    let expected: Vec<_> =
        (6000..6020).map(|gid| format!("group group{gid} {gid} u2,u12,u{gid}")).collect();
    assert_eq!(after, expected);
}

#[tokio::test]
async fn files_emptied_file_is_not_believed() {
    let round = |round: u64| async move {
        let source = Source::new(PASSWD, GROUP);
        source.mirror().await;
        let before = source.notes.entries();
        // The replacement is reported 20 ms later. Then both files are read.
        replace(&source.path("group"), GROUP);
        tokio::time::sleep(Duration::from_micros(15_000 + 200 * round)).await;
        fs::write(source.path("passwd"), &PASSWD[..58]).expect("written in part");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(source.notes.entries(), before, "round {round}");
    };
    let rounds: tokio::task::JoinSet<()> = (0..60).map(round).collect();
    rounds.join_all().await;
}

#[tokio::test]
async fn files_new_file_is_not_read_halfway() {
    let (source, rest) = loop {
        let source = Source::new(PASSWD, GROUP);
        source.mirror().await;
        let before = source.notes.entries();
        replace(&source.path("passwd"), PASSWD);
        let rest = begin_to_write(&source.path("passwd"));
        let written = changed(&source.path("passwd"));
        tokio::time::sleep(STABLE_FOR / 4).await;
        let entries = source.notes.entries();
        if !source.may_have_settled(written) {
            assert_eq!(entries, before);
            break (source, rest);
        }
    };
    rest("carol:x:1002:100:::\n");
    let has_carol = |known: &Known| known.entries.values().any(|line| line.contains("carol"));
    source.notes.until("all of it", has_carol).await;
}

#[tokio::test]
async fn files_being_written_are_not_believed() {
    let (source, rest) = loop {
        let source = Source::new(PASSWD, GROUP);
        source.mirror().await;
        let before = source.notes.entries();
        fs::rename(source.path("group"), source.path("away")).expect("renamed");
        source.notes.until("offline", |known| known.online == Some(false)).await;
        let rest = begin_to_write(&source.path("passwd"));
        let written = changed(&source.path("passwd"));
        tokio::time::sleep(STABLE_FOR / 8).await;
        fs::rename(source.path("away"), source.path("group")).expect("renamed");
        tokio::time::sleep(STABLE_FOR / 4).await;
        let entries = source.notes.entries();
        if !source.may_have_settled(written) {
            assert_eq!(entries, before);
            break (source, rest);
        }
    };
    rest("carol:x:1002:100:::\n");
    let has_carol = |known: &Known| known.entries.values().any(|line| line.contains("carol"));
    source.notes.until("all of it", has_carol).await;
}

#[tokio::test]
async fn files_line_without_end_is_not_believed() {
    let source = Source::new(PASSWD, GROUP);
    source.mirror().await;
    let before = source.notes.entries();
    let mut file = fs::File::create(source.path("group")).expect("emptied");
    file.write_all(b"staff:x:60012:u1").expect("written");
    tokio::time::sleep(2 * STABLE_FOR).await;
    assert_eq!(source.notes.entries(), before);
    file.write_all(b"2,bob").expect("written");
    drop(file);
    let has_end =
        |known: &Known| known.entries.values().any(|line| line == "group staff 60012 u12,bob");
    source.notes.until("a file that ends so", has_end).await;
}

#[tokio::test]
async fn what_a_file_holds_is_believed_though_it_is_touched_all_the_time() {
    let source = Source::new(PASSWD, GROUP);
    source.mirror().await;
    fs::write(source.path("passwd"), "carol:x:1002:100:::\n").expect("written");
    let touched = source.path("passwd");
    let touching = tokio::spawn(async move {
        loop {
            tokio::time::sleep(STABLE_FOR / 3).await;
            fs::File::options()
                .append(true)
                .open(&touched)
                .and_then(|file| file.set_len(20))
                .expect("touched");
        }
    });
    let has_carol = |known: &Known| known.entries.values().any(|line| line.contains("carol"));
    source.notes.until("the same text for a while", has_carol).await;
    touching.abort();
}

#[tokio::test(start_paused = true)]
async fn files_written_for_a_minute_are_logged() {
    let source = Source::new(PASSWD, GROUP);
    let logged = LoggedCodes::default();
    let _collecting = logged.collect();
    let writing = async {
        let mut file = fs::File::options().append(true).open(source.path("group")).expect("open");
        while !logged.has(directory::FILES_NEVER_STABLE.code) {
            file.write_all(b"more:x:5002:\n").expect("written");
            tokio::time::sleep(STABLE_FOR / 4).await;
        }
    };
    tokio::select! {
        reason = source.provider.mirror(Vec::new()) => panic!("it never ends: {reason}"),
        () = writing => {}
    }
}

#[tokio::test]
async fn a_file_that_is_gone_removes_nobody_and_comes_back() {
    let source = Source::new(PASSWD, GROUP);
    source.mirror().await;
    let before = source.notes.entries();
    fs::rename(source.path("group"), source.path("away")).expect("renamed");
    source.notes.until("offline", |known| known.online == Some(false)).await;
    let group = source.path("group").display().to_string();
    assert!(source.notes.known().reason.contains(&group), "{}", source.notes.known().reason);
    assert_eq!(source.notes.known().code, directory::FILE_UNREADABLE.code);
    assert_eq!(source.notes.entries(), before);
    fs::rename(source.path("away"), source.path("group")).expect("renamed");
    source.notes.until("online", |known| known.online == Some(true)).await;
    source.notes.until("reported", |known| known.flushes >= 2).await;
    assert_eq!(source.notes.entries(), before);
}

#[tokio::test]
async fn a_folder_in_the_files_place_is_a_reason_and_no_end() {
    let source = Source::new(PASSWD, GROUP);
    fs::remove_file(source.path("passwd")).expect("removed");
    fs::create_dir(source.path("passwd")).expect("made");
    source.mirror().await;
    assert_eq!(source.notes.known().online, Some(false));
    assert!(source.notes.known().entries.is_empty());
}

#[tokio::test]
async fn files_too_large_has_code() {
    let source = Source::new(PASSWD, GROUP);
    let file = fs::File::options().write(true).open(source.path("passwd")).expect("opened");
    // Without blocks on the disk.
    file.set_len((256 << 20) + 1).expect("extended");
    source.mirror().await;
    assert_eq!(source.notes.known().code, directory::FILE_TOO_LARGE.code);
}

#[tokio::test]
async fn homes_and_shells_are_the_configurations() {
    let overrides = HomeShellOverrides {
        home: Some("/home/%d/%u".into()),
        fallback_shell: Some("/bin/bash".into()),
        ..HomeShellOverrides::default()
    };
    let source = Source::with(PASSWD, "", overrides);
    source.mirror().await;
    let expected = [
        "user alice 1000 100 /home/lab/alice /bin/sh",
        "user bob 1001 100 /home/lab/bob /bin/bash",
    ];
    assert_eq!(source.notes.entries(), expected);
}

#[tokio::test]
async fn asked_it_reads_again_and_knows_who_is_there() {
    let source = Source::new(PASSWD, GROUP);
    let ask = |what| {
        let provider = Arc::clone(&source.provider);
        async move { provider.lookup(&what).await.expect("readable") }
    };
    assert!(ask(LookupQuery::UserByName(b"alice".to_vec())).await);
    assert!(ask(LookupQuery::UserByUid(1001)).await);
    assert!(ask(LookupQuery::GroupsOf(b"bob".to_vec())).await);
    assert!(ask(LookupQuery::GroupByGid(5001)).await);
    assert!(!ask(LookupQuery::GroupByName(b"alice".to_vec())).await);
    assert!(!ask(LookupQuery::UserByUid(5000)).await);
    assert_eq!(source.notes.entries().len(), 4);
}
