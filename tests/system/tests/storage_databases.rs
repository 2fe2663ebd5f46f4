// SPDX-License-Identifier: MIT OR Apache-2.0
//! Databases that are damaged, lost, older or another's, while the directory is away. No lookup is wrong, no user is
//! allowed wrongly, and no cached password is lost.
//!
//! `ROSTER_STORAGE=all` tries damage all over each file; otherwise some of it is tried.

use roster_request::AuthResult;
use roster_system_tests::crash::FileMap;
use roster_system_tests::pam::PASSWORD;
use roster_system_tests::tally::{Tally, sample_cases};
use roster_system_tests::{DirectoryServer, OfflineFixture, Rosterd, needs_root};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::thread::{scope, sleep};
use std::time::Duration;

const USERS: [&str; 3] = ["alice", "bob", "carol"];
/// Alice's present password.
const NEW_PASSWORD: &str = "battery staple";
/// Alice's password on another host, and in another domain.
const FOREIGN_PASSWORD: &str = "of another host";
const PAGE_BYTES: usize = 4096;
/// Bits that are flipped all over a file.
const FLIPS: usize = 24;
/// No role of a host runs as this user.
const STRANGER: u32 = 12_345;
const LOOKS_MAX: u32 = 2000;

const FILES: [&str; 5] = [
    "domains/corp/credentials.redb",
    "domains/corp/credentials-copy.redb",
    "domains/corp/credentials.id",
    "domains/corp/cache.redb",
    "snap/roster.v3.snap",
];

/// A kind of damage to a file.
enum Damage {
    Removed,
    Bytes(Vec<u8>),
    Owner(u32),
}

/// Files of one host at several times, and of others.
struct Saved {
    now: FileMap,
    older: FileMap,
    foreign: Vec<(&'static str, FileMap)>,
}

fn read(state: &Path) -> FileMap {
    let mut files = FileMap::new();
    let mut folders = vec![state.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("list").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                let name = path.strip_prefix(state).expect("below").to_owned();
                files.insert(name, fs::read(path).expect("read"));
            }
        }
    }
    files
}

/// Puts files back, with the owner of the state directory.
fn put(state: &Path, files: &FileMap) {
    for name in read(state).keys().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(state.join(name)).expect("remove");
    }
    let owner = fs::metadata(state).expect("a folder").uid();
    for (name, bytes) in files {
        let path = state.join(name);
        fs::write(&path, bytes).expect("write");
        chown(&path, Some(owner), None).expect("chown");
    }
}

/// Two users have cached passwords, one of which was changed; the third user's are deleted.
fn prepare(kept: &mut OfflineFixture) -> Saved {
    let state = kept.rosterd.host().state_dir();
    let older = {
        kept.rosterd.stop();
        let files = read(&state);
        kept.launch();
        files
    };
    kept.set_attribute("alice", "userPassword", NEW_PASSWORD);
    kept.login("alice", NEW_PASSWORD);
    kept.rosterd.expect("passwd", "carol", Some(&kept.passwd_line("carol", "/bin/sh")));
    let told = kept.rosterd.roster(&["cache", "expire", "--credentials", "--user", "carol"]);
    assert_eq!(told.code, 0, "{}", told.error());
    kept.rosterd.stop();
    let now = read(&state);

    kept.set_attribute("alice", "userPassword", FOREIGN_PASSWORD);
    let foreign = [("another host's", "corp"), ("another domain's", "lab")].map(|(whose, name)| {
        let other = Rosterd::prepared(&[OfflineFixture::domain(&kept.slapd).renamed(name)]);
        let own = std::mem::replace(&mut kept.rosterd, other);
        kept.rosterd.launch();
        kept.login("alice", FOREIGN_PASSWORD);
        kept.rosterd.stop();
        let files = read(&kept.rosterd.host().state_dir());
        kept.rosterd = own;
        let renamed =
            |path: PathBuf| PathBuf::from(path.to_string_lossy().replace("/lab/", "/corp/"));
        (whose, files.into_iter().map(|(path, bytes)| (renamed(path), bytes)).collect())
    });
    kept.slapd.stop();
    Saved { now, older, foreign: foreign.into() }
}

fn damages(saved: &Saved, file: &str) -> Vec<(String, Damage)> {
    let file = Path::new(file);
    let whole = &saved.now[file];
    let mut damages = vec![
        ("removed".to_owned(), Damage::Removed),
        ("garbage".to_owned(), Damage::Bytes(vec![0x5a; whole.len()])),
        ("of a stranger".to_owned(), Damage::Owner(STRANGER)),
    ];
    let older = saved.older.get(file).cloned().unwrap_or_default();
    damages.push(("older".to_owned(), Damage::Bytes(older.clone())));
    for (whose, files) in &saved.foreign {
        damages.extend(
            files.get(file).map(|bytes| ((*whose).to_owned(), Damage::Bytes(bytes.clone()))),
        );
    }
    let lengths = [0, 1, 512, PAGE_BYTES, whole.len() / 2, whole.len() - 1];
    for length in lengths.into_iter().filter(|length| *length < whole.len()) {
        damages.push((format!("cut to {length}"), Damage::Bytes(whole[..length].to_vec())));
    }
    // Pages that hold something.
    for (number, page) in whole.chunks(PAGE_BYTES).enumerate() {
        if page.iter().all(|byte| *byte == 0) {
            continue;
        }
        let (start, end) = (number * PAGE_BYTES, number * PAGE_BYTES + page.len());
        let mut bytes = whole.clone();
        bytes[start..end].fill(0);
        damages.push((format!("page {number} zero"), Damage::Bytes(bytes)));
        if let Some(stale) = older.get(start..end).filter(|stale| *stale != page) {
            let mut bytes = whole.clone();
            bytes[start..end].copy_from_slice(stale);
            damages.push((format!("page {number} stale"), Damage::Bytes(bytes)));
        }
    }
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    for at in used.iter().step_by(used.len().div_ceil(FLIPS).max(1)) {
        let mut bytes = whole.clone();
        bytes[*at] ^= 0x10;
        damages.push((format!("bit at {at}"), Damage::Bytes(bytes)));
    }
    damages
}

/// Whether the condition holds after some time.
fn eventually(mut look: impl FnMut() -> bool) -> bool {
    (0..LOOKS_MAX).any(|_| {
        let is_so = look();
        if !is_so {
            sleep(Duration::from_millis(10));
        }
        is_so
    })
}

/// Whether a daemon that starts without its directory answers right.
fn check(kept: &mut OfflineFixture, what: &str, tally: &mut Tally) {
    kept.launch();
    for user in USERS {
        let right = kept.passwd_line(user, "/bin/sh");
        let is_served = eventually(|| {
            let found = kept.rosterd.getent("passwd", user);
            let is_wrong = found.as_ref().is_some_and(|found| *found != right);
            tally.check(!is_wrong, "wrong", || format!("{what}: {found:?}"));
            found.is_some()
        });
        tally.check(is_served, "wrong", || format!("{what}: {user} is missing: {}", kept.log()));
    }
    let tries =
        [("alice", PASSWORD), ("alice", FOREIGN_PASSWORD), ("bob", "a guess"), ("carol", PASSWORD)];
    let said = scope(|scope| {
        let asked = tries
            .map(|(user, password)| scope.spawn(|| kept.auth_result_when_known(user, password)));
        asked.map(|said| said.join().expect("an answer"))
    });
    for ((user, password), said) in tries.into_iter().zip(said) {
        tally.check(said != AuthResult::Success, "let in wrongly", || {
            format!("{what}: {user}, {password}: {}", kept.log())
        });
    }
    for (user, password) in [("alice", NEW_PASSWORD), ("bob", PASSWORD)] {
        let said = kept.auth_result_when_known(user, password);
        tally.check(said == AuthResult::Success, "kept passwords lost", || {
            format!("{what}: {user}: {said:?}: {}", kept.log())
        });
    }
    kept.rosterd.stop();
}

#[test]
fn databases_damaged_or_lost_serve_right_answers() {
    if !needs_root() {
        return;
    }
    let kinds = ["wrong", "let in wrongly", "kept passwords lost"];
    let mut tally = Tally::for_campaign("databases, directory away", &kinds);
    let mut kept = OfflineFixture::started(&USERS);
    let saved = prepare(&mut kept);
    let state = kept.rosterd.host().state_dir();
    // Older installations have one file of credentials.
    for file in FILES.into_iter().filter(|file| saved.now.contains_key(Path::new(file))) {
        let path = state.join(file);
        for (what, damage) in sample_cases(damages(&saved, file), 2) {
            put(&state, &saved.now);
            match damage {
                Damage::Removed => fs::remove_file(&path).expect("remove"),
                Damage::Bytes(bytes) => fs::write(&path, bytes).expect("write"),
                Damage::Owner(uid) => chown(&path, Some(uid), None).expect("chown"),
            }
            tally.count("damages");
            check(&mut kept, &format!("{file} {what}"), &mut tally);
        }
    }
    tally.finish("damages", 9);
}
