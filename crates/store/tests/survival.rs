//! What a cache survives: kills, damage anywhere, a full disk. What may end the process happens in
//! a process of its own: this test program again, told by a variable what to do.

use roster_store::{
    FILE, Header, Key, Opened, Part, Rejection, Store, StoreError, Useless, open, opening_stopped,
};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const IDENTITY: &str = "corp ldap dc=example,dc=com";
const CHILD: &str = "ROSTER_STORE_TEST_CHILD";

/// What a process of its own is to do.
fn child(task: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "process_of_its_own", "--nocapture", "--quiet"]);
    command.env(CHILD, task).env("FOLDER", folder).stdin(Stdio::null());
    command
}

fn run(mut command: Command) -> Output {
    command.output().expect("started")
}

/// No test by itself: what the other tests start.
#[test]
fn process_of_its_own() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let folder = std::env::var_os("FOLDER").expect("a folder");
    let folder = Path::new(&folder);
    match task.as_str() {
        "write for ever" => {
            let store = opened(folder).store;
            let next = read(&store).expect("readable").cookie + 1;
            for cookie in next.. {
                write(&store, cookie).expect("written");
            }
        }
        "open and read" => {
            let opened = open(folder, IDENTITY, read).expect("a cache, if a fresh one");
            let set_aside = opened.set_aside.is_some();
            let entries = opened.loaded.entries;
            assert!(entries.is_empty() || entries.len() == ENTRIES as usize);
            assert!(set_aside == entries.is_empty(), "what is not whole is set aside");
            write(&opened.store, 1).expect("and it can be used");
        }
        "die while opening" => {
            let _ = open(folder, IDENTITY, |_| -> Result<(), StoreError> { std::process::abort() });
        }
        "fill the disk" => fill_the_disk(folder),
        other => panic!("{other}?"),
    }
}

const ENTRIES: u32 = 200;

struct All {
    entries: Vec<(Key, Header)>,
    records: Vec<(u32, Vec<u8>)>,
    cookie: u64,
}

fn read(store: &Store) -> Result<All, StoreError> {
    let reader = store.reader()?;
    let mut all = All { entries: Vec::new(), records: Vec::new(), cookie: 0 };
    reader.entries(|key, header| all.entries.push((key, header)))?;
    reader.records(|number, record| {
        all.records.push((number, record.to_vec()));
        ControlFlow::Continue(())
    })?;
    reader.parts(|_, part| {
        let value = part.cookie.expect("a cookie").1;
        all.cookie = u64::from_le_bytes(value.as_slice().try_into().expect("eight bytes"));
    })?;
    reader.references(|_, _| ())?;
    reader.rejected(|_, _| ())?;
    Ok(all)
}

fn opened(folder: &Path) -> Opened<()> {
    open(folder, IDENTITY, |_| Ok(())).expect("a cache")
}

fn key(number: u32) -> Key {
    let mut id = [7; 16];
    id[..4].copy_from_slice(&number.to_le_bytes());
    Key { part: 0, id }
}

/// Writes all entries with the cookie as their text, and the cookie.
fn write(store: &Store, cookie: u64) -> Result<(), StoreError> {
    store.write(|writer| {
        for number in 0..ENTRIES {
            let header = Header {
                number,
                kind: 0,
                list: 0,
                reference: 0,
                digest: cookie,
                seen_unix: 0,
                list_seen_unix: 0,
            };
            writer.put(key(number), header, &record(number, cookie))?;
            writer.reference(number, format!("cn={number}").as_bytes())?;
        }
        let cookie = Some(("ldap://server".into(), cookie.to_le_bytes().to_vec()));
        let (refreshed_unix, read_unix, held, doubts) = (1, 2, vec![[7; 16]], vec![8]);
        writer
            .part(0, &Part { complete: true, cookie, refreshed_unix, read_unix, held, doubts })?;
        let why = Rejection {
            name: "cn=x".into(),
            reference: b"cn=x".into(),
            reason: "no gidNumber".into(),
        };
        writer.rejected(key(ENTRIES), Some(&why))?;
        writer.next_number(ENTRIES)
    })
}

fn record(number: u32, cookie: u64) -> Vec<u8> {
    format!("{number} {cookie} ").repeat(30).into_bytes()
}

#[test]
fn what_is_written_is_there_after_closing() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened(folder.path()).store;
    write(&store, 5).expect("written");
    store
        .write(|writer| {
            writer.remove(key(1), 1)?;
            writer.rejected(key(ENTRIES), None)?;
            writer.retain_references(|number| number < 10)
        })
        .expect("written");
    drop(store);
    let Opened { store, loaded, set_aside } = open(folder.path(), IDENTITY, read).expect("a cache");
    assert_eq!((set_aside, loaded.cookie), (None, 5));
    assert_eq!(loaded.entries.len(), ENTRIES as usize - 1);
    assert!(!loaded.records.iter().any(|(number, _)| *number == 1));
    assert_eq!(loaded.records[1], (2, record(2, 5)));
    let reader = store.reader().expect("readable");
    let mut references = Vec::new();
    reader.references(|number, _| references.push(number)).expect("readable");
    reader.rejected(|key, _| panic!("{key:?} is not rejected any more")).expect("readable");
    assert_eq!(references, (0..10).collect::<Vec<_>>());
    assert_eq!(reader.next_number().expect("readable"), ENTRIES);
}

#[test]
fn nobody_else_may_read_it() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(opened(folder.path()));
    let metadata = fs::metadata(folder.path().join(FILE)).expect("the cache");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_transaction_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened(folder.path()).store;
    write(&store, 1).expect("written");
    let failed = store.write(|writer| {
        writer.remove(key(0), 0)?;
        Err(StoreError::InUse { path: "elsewhere".into() })
    });
    assert!(failed.is_err());
    assert_eq!(read(&store).expect("readable").entries.len(), ENTRIES as usize);
}

#[test]
fn a_reader_sees_one_moment_whatever_is_written_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened(folder.path()).store;
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
    assert!(matches!(other, Err(StoreError::InUse { .. })));
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
        assert_eq!(opened.set_aside, None, "round {round}");
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
    let store = opened(folder.path()).store;
    write(&store, 1).expect("written");
    write(&store, 2).expect("written");
    drop(store);
    let file = folder.path().join(FILE);
    let good = fs::read(&file).expect("the cache");
    // Every part of the file is hit, headers more often: they are where a reader begins.
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

/// With that in the cache's place, the fourth opening at the latest is a good one.
fn survives(folder: &Path, bytes: &[u8], what: &str) {
    fs::write(folder.join(FILE), bytes).expect("written");
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
    let store = opened(folder.path()).store;
    write(&store, 1).expect("written");
    drop(store);
    let die = || assert!(!run(child("die while opening", folder.path())).status.success());
    die();
    die();
    let twice = opened(folder.path());
    assert_eq!(twice.set_aside, None, "two deaths may have been kills");
    drop(twice);
    for _ in 0..3 {
        die();
        die();
        // Whoever was told to stop says nothing against the file.
        opening_stopped(folder.path());
    }
    let stopped = opened(folder.path());
    assert_eq!(stopped.set_aside, None);
    drop(stopped);
    (0..3).for_each(|_| die());
    let set_aside = opened(folder.path()).set_aside.expect("set aside");
    assert_eq!(set_aside.was, Useless::Damaged);
    assert_eq!(set_aside.path, folder.path().join("cache.redb.damaged-1"));
    assert!(set_aside.reason.contains("ended with the process"), "{}", set_aside.reason);
    assert_eq!(opened(folder.path()).set_aside, None);
}

#[test]
fn the_cache_of_another_domain_is_not_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&opened(folder.path()).store, 1).expect("written");
    let other = open(folder.path(), "lab files", read).expect("a fresh one");
    assert_eq!(other.loaded.entries.len(), 0);
    let set_aside = other.set_aside.expect("set aside");
    assert_eq!(set_aside.was, Useless::Foreign);
    assert!(set_aside.reason.contains(IDENTITY), "{}", set_aside.reason);
    assert_eq!(set_aside.path, folder.path().join("cache.redb.other-1"));
    assert!(set_aside.path.exists());
}

/// Format 7 had no kinds of references.
#[test]
fn cache_of_older_format_is_set_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    write(&opened(folder.path()).store, 1).expect("written");
    let meta: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("meta");
    let database = redb::Database::open(folder.path().join(FILE)).expect("a database");
    let transaction = database.begin_write().expect("a transaction");
    let mut table = transaction.open_table(meta).expect("the table");
    table.insert("format", 7_u32.to_le_bytes().as_slice()).expect("written");
    drop(table);
    transaction.commit().expect("committed");
    drop(database);
    let fresh = open(folder.path(), IDENTITY, read).expect("a fresh one");
    assert_eq!(fresh.loaded.entries.len(), 0);
    let set_aside = fresh.set_aside.expect("set aside");
    assert_eq!(set_aside.was, Useless::Foreign);
    assert_eq!(set_aside.reason, "its format is 7, this program's is 8");
}

#[test]
fn what_the_reader_finds_wrong_is_set_aside_too_and_two_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    for round in 0..4_u64 {
        let store = opened(folder.path()).store;
        write(&store, round).expect("written");
        drop(store);
        let opened = open(folder.path(), IDENTITY, |store| {
            let all = read(store)?;
            if all.entries.is_empty() { Ok(()) } else { Err(store.damaged("it makes no sense")) }
        });
        let set_aside = opened.expect("a fresh one").set_aside.expect("set aside");
        assert_eq!(set_aside.reason, "it makes no sense");
    }
    let names = fs::read_dir(folder.path()).expect("a folder");
    let mut names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, [FILE, "cache.redb.damaged-1", "cache.redb.damaged-2"]);
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
    // What the store cannot take, so that there is room for another when it goes.
    let reserve = folder.join("reserve");
    fs::write(&reserve, vec![0; 3 << 20]).expect("room for it");
    let store = opened(folder).store;
    write(&store, 1).expect("written");
    let huge = vec![b'x'; 64 << 10];
    let full = store.write(|writer| {
        for number in 0..200 {
            let header = Header {
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
    assert!(matches!(full, StoreError::Io { .. }), "a full disk is no damage: {full}");
    drop(store);
    // Whatever else fills it up.
    let _ = fs::write(folder.join("filler"), vec![0; 8 << 20]);
    let again = open(folder, IDENTITY, read).expect("readable on a full disk");
    assert_eq!(again.set_aside, None);
    assert_eq!((again.loaded.entries.len(), again.loaded.cookie), (ENTRIES as usize, 1));
    let fresh = folder.join("fresh");
    fs::create_dir(&fresh).expect("a folder");
    for _ in 0..2 {
        let full = open(&fresh, IDENTITY, read).err().expect("there is no room");
        assert!(matches!(full, StoreError::Io { .. }), "{full}");
        assert!(!fresh.join(FILE).exists(), "half a cache is left");
    }
    fs::remove_file(folder.join("filler")).expect("room again");
    fs::remove_file(reserve).expect("more room");
    assert_eq!(open(&fresh, IDENTITY, read).expect("room").set_aside, None);
    drop(again);
    let store = opened(folder).store;
    write(&store, 3).expect("written, now that there is room");
    assert_eq!(read(&store).expect("readable").cookie, 3);
}
