// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache survives kills, damage at any position, and a full disk. Actions that may end the process run in a child
//! process: this test program with a variable that names the task.

use roster_domain_cache::{
    CACHE_FILE, CacheError, DomainCache, EntryHeader, EntryKey, FileFault, OpenedCache, Rejection,
    SearchProgress, clear_opening_marker, open,
};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const IDENTITY: &str = "corp ldap dc=example,dc=com";
const CHILD: &str = "ROSTER_STORE_TEST_CHILD";

/// Returns the command of a child process with this task.
fn child(task: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "process_of_its_own", "--nocapture", "--quiet"]);
    command.env(CHILD, task).env("FOLDER", folder).stdin(Stdio::null());
    command
}

fn run(mut command: Command) -> Output {
    command.output().expect("started")
}

/// Not a test: the child process of the other tests.
#[test]
fn process_of_its_own() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let folder = std::env::var_os("FOLDER").expect("a folder");
    let folder = Path::new(&folder);
    match task.as_str() {
        "write for ever" => {
            let store = opened(folder).cache;
            let next = read(&store).expect("readable").cookie + 1;
            for cookie in next.. {
                write(&store, cookie).expect("written");
            }
        }
        "open and read" => {
            let opened = open(folder, IDENTITY, read).expect("a cache, if a fresh one");
            let set_aside = opened.quarantined.is_some();
            let entries = opened.loaded.entries;
            assert!(entries.is_empty() || entries.len() == ENTRIES as usize);
            assert!(set_aside == entries.is_empty(), "what is not whole is set aside");
            write(&opened.cache, 1).expect("and it can be used");
        }
        "die while opening" => {
            let _ = open(folder, IDENTITY, |_| -> Result<(), CacheError> { std::process::abort() });
        }
        "fill the disk" => fill_the_disk(folder),
        other => panic!("{other}?"),
    }
}

const ENTRIES: u32 = 200;

struct All {
    entries: Vec<(EntryKey, EntryHeader)>,
    records: Vec<(u32, Vec<u8>)>,
    cookie: u64,
}

fn read(store: &DomainCache) -> Result<All, CacheError> {
    let reader = store.reader()?;
    let mut all = All { entries: Vec::new(), records: Vec::new(), cookie: 0 };
    reader.entries(|key, header| all.entries.push((key, header)))?;
    reader.records(|number, record| {
        all.records.push((number, record.to_vec()));
        ControlFlow::Continue(())
    })?;
    reader.search_progress(|_, part| {
        let value = part.cookie.expect("a cookie").1;
        all.cookie = u64::from_le_bytes(value.as_slice().try_into().expect("eight bytes"));
    })?;
    reader.references(|_, _| ())?;
    reader.rejections(|_, _| ())?;
    Ok(all)
}

fn opened(folder: &Path) -> OpenedCache<()> {
    open(folder, IDENTITY, |_| Ok(())).expect("a cache")
}

fn key(number: u32) -> EntryKey {
    let mut id = [7; 16];
    id[..4].copy_from_slice(&number.to_le_bytes());
    EntryKey { search: 0, id }
}

/// Writes all entries with the cookie as their text, and the cookie.
fn write(store: &DomainCache, cookie: u64) -> Result<(), CacheError> {
    store.write(|writer| {
        for number in 0..ENTRIES {
            let header = EntryHeader {
                number,
                kind: 0,
                list: 0,
                reference: 0,
                digest: cookie,
                seen_unix: 0,
                list_seen_unix: 0,
            };
            writer.put(key(number), header, &record(number, cookie))?;
            writer.set_reference(number, format!("cn={number}").as_bytes())?;
        }
        let cookie = Some(("ldap://server".into(), cookie.to_le_bytes().to_vec()));
        let (refreshed_unix, read_unix, held, doubts) = (1, 2, vec![[7; 16]], vec![8]);
        writer.set_search_progress(
            0,
            &SearchProgress {
                complete: true,
                cookie,
                refreshed_unix,
                read_unix,
                pending_removals: held,
                stale_references: doubts,
            },
        )?;
        let why = Rejection {
            name: "cn=x".into(),
            reference: b"cn=x".into(),
            code: roster_messages::table::directory::ATTRIBUTE_MISSING.code.into(),
            reason: "no gidNumber".into(),
        };
        writer.set_rejection(key(ENTRIES), Some(&why))?;
        writer.set_next_number(ENTRIES)
    })
}

fn record(number: u32, cookie: u64) -> Vec<u8> {
    format!("{number} {cookie} ").repeat(30).into_bytes()
}

#[test]
fn what_is_written_is_there_after_closing() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened(folder.path()).cache;
    write(&store, 5).expect("written");
    store
        .write(|writer| {
            writer.remove(key(1), 1)?;
            writer.set_rejection(key(ENTRIES), None)?;
            writer.retain_references(|number| number < 10)
        })
        .expect("written");
    drop(store);
    let OpenedCache { cache: store, loaded, quarantined: set_aside } =
        open(folder.path(), IDENTITY, read).expect("a cache");
    assert_eq!((set_aside, loaded.cookie), (None, 5));
    assert_eq!(loaded.entries.len(), ENTRIES as usize - 1);
    assert!(!loaded.records.iter().any(|(number, _)| *number == 1));
    assert_eq!(loaded.records[1], (2, record(2, 5)));
    let reader = store.reader().expect("readable");
    let mut references = Vec::new();
    reader.references(|number, _| references.push(number)).expect("readable");
    reader.rejections(|key, _| panic!("{key:?} is not rejected any more")).expect("readable");
    assert_eq!(references, (0..10).collect::<Vec<_>>());
    assert_eq!(reader.next_number().expect("readable"), ENTRIES);
}

#[test]
fn nobody_else_may_read_it() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(opened(folder.path()));
    let metadata = fs::metadata(folder.path().join(CACHE_FILE)).expect("the cache");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_transaction_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened(folder.path()).cache;
    write(&store, 1).expect("written");
    let failed = store.write(|writer| {
        writer.remove(key(0), 0)?;
        Err(CacheError::InUse { path: "elsewhere".into() })
    });
    assert!(failed.is_err());
    assert_eq!(read(&store).expect("readable").entries.len(), ENTRIES as usize);
}

#[test]
fn a_reader_sees_one_moment_whatever_is_written_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened(folder.path()).cache;
    write(&store, 1).expect("written");
    let reader = store.reader().expect("readable");
    write(&store, 2).expect("written");
    assert_eq!(reader.record(3).expect("readable"), Some(record(3, 1)));
    assert_eq!(store.reader().and_then(|it| it.record(3)).expect("readable"), Some(record(3, 2)));
}

#[test]
fn two_processes_never_have_it_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let _one = opened(folder.path());
    let other = open(folder.path(), IDENTITY, |_| Ok(()));
    assert!(matches!(other, Err(CacheError::InUse { .. })));
}

#[test]
fn a_kill_at_any_moment_leaves_entries_and_cookie_of_one_transaction() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut before = 0;
    for round in 0..12 {
        let mut writer = child("write for ever", folder.path()).spawn().expect("started");
        std::thread::sleep(Duration::from_millis(150 + 13 * round));
        writer.kill().expect("killed");
        writer.wait().expect("ended");
        let opened = open(folder.path(), IDENTITY, read).expect("a cache");
        assert_eq!(opened.quarantined, None, "round {round}");
        let All { entries, records, cookie } = opened.loaded;
        assert!(cookie >= before, "round {round}: cookie {cookie} after {before}");
        before = cookie;
        assert!(entries.iter().all(|(_, header)| header.digest == cookie), "round {round}");
        let whole = |(number, text): &(u32, Vec<u8>)| *text == record(*number, cookie);
        assert!(records.iter().all(whole), "round {round}");
    }
    assert!(before > 0, "something was written");
}

#[test]
fn damage_anywhere_is_found_set_aside_and_never_a_crash_for_long() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened(folder.path()).cache;
    write(&store, 1).expect("written");
    write(&store, 2).expect("written");
    drop(store);
    let file = folder.path().join(CACHE_FILE);
    let good = fs::read(&file).expect("the cache");
    // Damages are spread over the whole file. Headers have more of them, because a reader starts there.
    let spread = (0..24).map(|step| good.len() / 24 * step);
    let places: Vec<usize> = (0..320).step_by(16).chain(spread).collect();
    for place in places {
        let mut bad = good.clone();
        let length = bad.len();
        for byte in &mut bad[place..(place + 8).min(length)] {
            *byte ^= 0xa5;
        }
        survives(folder.path(), &bad, &format!("damage at byte {place}"));
    }
    for length in [1, 100, 4096, good.len() / 2, good.len() - 1] {
        survives(folder.path(), &good[..length], &format!("cut at byte {length}"));
    }
    survives(folder.path(), &[0; 8192], "zeros");
    survives(folder.path(), b"root:x:0:0:root:/root:/bin/sh\n", "another file");
}

/// Checks that the fourth opening of such a file at the latest succeeds.
fn survives(folder: &Path, bytes: &[u8], what: &str) {
    fs::write(folder.join(CACHE_FILE), bytes).expect("written");
    for attempt in 1..=4 {
        let output = run(child("open and read", folder));
        if output.status.success() {
            return;
        }
        assert!(attempt < 4, "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_file_that_kills_who_opens_it_is_set_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened(folder.path()).cache;
    write(&store, 1).expect("written");
    drop(store);
    let die = || assert!(!run(child("die while opening", folder.path())).status.success());
    die();
    die();
    let twice = opened(folder.path());
    assert_eq!(twice.quarantined, None, "two deaths may have been kills");
    drop(twice);
    for _ in 0..3 {
        die();
        die();
        // A stopped process is not evidence against the file.
        clear_opening_marker(folder.path());
    }
    let stopped = opened(folder.path());
    assert_eq!(stopped.quarantined, None);
    drop(stopped);
    (0..3).for_each(|_| die());
    let set_aside = opened(folder.path()).quarantined.expect("set aside");
    assert_eq!(set_aside.fault, FileFault::Damaged);
    assert_eq!(set_aside.path, folder.path().join("cache.redb.damaged-1"));
    assert!(set_aside.reason.contains("the process ended during"), "{}", set_aside.reason);
    assert_eq!(opened(folder.path()).quarantined, None);
}

#[test]
fn the_cache_of_another_domain_is_not_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&opened(folder.path()).cache, 1).expect("written");
    let other = open(folder.path(), "lab files", read).expect("a fresh one");
    assert_eq!(other.loaded.entries.len(), 0);
    let set_aside = other.quarantined.expect("set aside");
    assert_eq!(set_aside.fault, FileFault::Foreign);
    assert!(set_aside.reason.contains(IDENTITY), "{}", set_aside.reason);
    assert_eq!(set_aside.path, folder.path().join("cache.redb.other-1"));
    assert!(set_aside.path.exists());
}

/// Format 7 had no kinds of references.
#[test]
fn cache_of_older_format_is_set_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&opened(folder.path()).cache, 1).expect("written");
    let meta: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("meta");
    let database = redb::Database::open(folder.path().join(CACHE_FILE)).expect("a database");
    let transaction = database.begin_write().expect("a transaction");
    let mut table = transaction.open_table(meta).expect("the table");
    table.insert("format", 7_u32.to_le_bytes().as_slice()).expect("written");
    drop(table);
    transaction.commit().expect("committed");
    drop(database);
    let fresh = open(folder.path(), IDENTITY, read).expect("a fresh one");
    assert_eq!(fresh.loaded.entries.len(), 0);
    let set_aside = fresh.quarantined.expect("set aside");
    assert_eq!(set_aside.fault, FileFault::Foreign);
    assert_eq!(set_aside.reason, "the format is 7; this version uses 9");
}

#[test]
fn what_the_reader_finds_wrong_is_set_aside_too_and_two_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    for round in 0..4_u64 {
        let store = opened(folder.path()).cache;
        write(&store, round).expect("written");
        drop(store);
        let opened = open(folder.path(), IDENTITY, |store| {
            let all = read(store)?;
            if all.entries.is_empty() { Ok(()) } else { Err(store.damaged("it makes no sense")) }
        });
        let set_aside = opened.expect("a fresh one").quarantined.expect("set aside");
        assert_eq!(set_aside.reason, "it makes no sense");
    }
    let names = fs::read_dir(folder.path()).expect("a folder");
    let mut names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, [CACHE_FILE, "cache.redb.damaged-1", "cache.redb.damaged-2"]);
}

#[test]
fn on_a_full_disk_a_write_fails_and_what_was_there_stays_readable() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("unshare");
    let inner = child("fill the disk", folder.path());
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    command.arg("mount -t tmpfs -o size=8m tmpfs \"$FOLDER\" && exec \"$0\" \"$@\"");
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        command.env(name, value.expect("set"));
    }
    let output = run(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn fill_the_disk(folder: &Path) {
    // A reserve, which is removed later to make space.
    let reserve = folder.join("reserve");
    fs::write(&reserve, vec![0; 3 << 20]).expect("room for it");
    let store = opened(folder).cache;
    write(&store, 1).expect("written");
    let huge = vec![b'x'; 64 << 10];
    let full = store.write(|writer| {
        for number in 0..200 {
            let header = EntryHeader {
                number,
                kind: 0,
                list: 0,
                reference: 0,
                digest: 2,
                seen_unix: 0,
                list_seen_unix: 0,
            };
            writer.put(key(number), header, &huge)?;
        }
        Ok(())
    });
    let full = full.expect_err("a disk of 8 MiB takes no 12 MiB");
    assert!(matches!(full, CacheError::Io { .. }), "a full disk is not damage: {full}");
    drop(store);
    // Fills the rest of the disk.
    let _ = fs::write(folder.join("filler"), vec![0; 8 << 20]);
    let again = open(folder, IDENTITY, read).expect("readable on a full disk");
    assert_eq!(again.quarantined, None);
    assert_eq!((again.loaded.entries.len(), again.loaded.cookie), (ENTRIES as usize, 1));
    let fresh = folder.join("fresh");
    fs::create_dir(&fresh).expect("a folder");
    for _ in 0..2 {
        let full = open(&fresh, IDENTITY, read).err().expect("there is no room");
        assert!(matches!(full, CacheError::Io { .. }), "{full}");
        assert!(!fresh.join(CACHE_FILE).exists(), "half a cache is left");
    }
    fs::remove_file(folder.join("filler")).expect("room again");
    fs::remove_file(reserve).expect("more room");
    assert_eq!(open(&fresh, IDENTITY, read).expect("room").quarantined, None);
    drop(again);
    let store = opened(folder).cache;
    write(&store, 3).expect("written, now that there is room");
    assert_eq!(read(&store).expect("readable").cookie, 3);
}
