// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the pair of files.

use super::*;
use roster_messages::table::directory;

fn credential(failures: u32) -> StoredCredential {
    let hash = "$argon2id$".to_owned();
    StoredCredential { uid: 1, hash, verified_unix: 5, failures, failed_unix: 6 }
}

fn opened(folder: &Path) -> OpenedCredentials {
    CredentialFiles::open(folder).expect("files of credentials")
}

fn matched(matched: bool) -> FilterMatches {
    FilterMatches(vec![FilterMatch {
        uid: 1,
        filter: "(a=b)".to_owned(),
        matched,
        queried_unix: 7,
    }])
}

#[test]
fn credentials_changes_are_one_transaction() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = opened(folder.path()).credentials;
    let mut changes = CredentialChanges::credential(b"alice", Some(credential(1)));
    changes.add(CredentialChanges::filter_matches(b"alice", Some(matched(true))));
    changes.add(CredentialChanges::credential(b"bob", Some(credential(2))));
    changes.clock_mark = Some(ClockMark { unix: 9, ..ClockMark::default() });
    file.write(&changes).expect("written");
    drop(file);
    let file = opened(folder.path()).credentials;
    assert_eq!(file.get(b"alice").expect("read"), Some(credential(1)));
    assert_eq!(file.filter_matches_of(b"alice").expect("read"), Some(matched(true)));
    assert_eq!((file.list().expect("read").len(), file.clock_mark().expect("read").unix), (2, 9));
    file.write(&CredentialChanges::credential(b"alice", None)).expect("written");
    assert_eq!(file.get(b"alice").expect("read"), None);
    assert_eq!(file.filter_matches().expect("read").len(), 1, "it stays");
    file.write(&CredentialChanges::forget(b"alice")).expect("written");
    assert_eq!(file.filter_matches().expect("read"), []);
}

#[test]
fn credentials_later_changes_replace_earlier_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = opened(folder.path()).credentials;
    file.write(&CredentialChanges::credential(b"carol", Some(credential(3)))).expect("written");
    let mut changes = CredentialChanges::credential(b"alice", Some(credential(1)));
    changes.add(CredentialChanges::credential(b"alice", None));
    changes.add(CredentialChanges { clears_all: true, ..CredentialChanges::default() });
    changes.add(CredentialChanges::credential(b"bob", Some(credential(2))));
    changes.add(CredentialChanges {
        clock_mark: Some(ClockMark::default()),
        ..CredentialChanges::default()
    });
    changes.add(CredentialChanges::default());
    assert!(changes.clock_mark.is_some());
    file.write(&changes).expect("written");
    assert_eq!(file.list().expect("read"), [(b"bob".to_vec(), credential(2))]);
}

/// Makes a directory in which alice was removed and bob is cached, and an earlier copy of it.
fn kept() -> (tempfile::TempDir, tempfile::TempDir) {
    let (folder, earlier) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = opened(folder.path()).credentials;
    file.write(&CredentialChanges::credential(b"alice", Some(credential(1)))).expect("written");
    drop(file);
    for name in [CREDENTIALS_FILE, COPY_FILE, IDENTITY_FILE] {
        fs::copy(folder.path().join(name), earlier.path().join(name)).expect("copied");
    }
    let file = opened(folder.path()).credentials;
    file.write(&CredentialChanges::credential(b"bob", Some(credential(2)))).expect("written");
    file.write(&CredentialChanges::forget(b"alice")).expect("written");
    (folder, earlier)
}

/// Checks that both files have bob only, independent of which one is in use.
#[track_caller]
fn assert_kept(folder: &Path, what: &str) {
    let users = |folder: &Path| opened(folder).credentials.list().expect("readable");
    assert_eq!(users(folder), [(b"bob".to_vec(), credential(2))], "{what}");
    for lost in [CREDENTIALS_FILE, COPY_FILE] {
        fs::remove_file(folder.join(lost)).expect("both are there");
        assert_eq!(
            users(folder),
            [(b"bob".to_vec(), credential(2))],
            "{what}, then {lost} is lost"
        );
    }
}

#[test]
fn credentials_one_bad_file_is_made_again() {
    type Damage = fn(&Path, &Path);
    let damages: [(&str, Damage); 6] = [
        ("gone", |file, _| fs::remove_file(file).unwrap()),
        ("empty", |file, _| fs::write(file, "").unwrap()),
        ("garbage", |file, _| fs::write(file, [7; 9000]).unwrap()),
        ("cut", |file, _| {
            let bytes = fs::read(file).unwrap();
            fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("older", |file, earlier| {
            fs::copy(earlier.join(file.file_name().unwrap()), file).map(drop).unwrap();
        }),
        ("another's", |file, _| {
            let other = tempfile::tempdir().unwrap();
            let credentials = opened(other.path()).credentials;
            for _ in 0..9 {
                let carol = CredentialChanges::credential(b"carol", Some(credential(1)));
                credentials.write(&carol).expect("written");
            }
            drop(credentials);
            fs::copy(other.path().join(CREDENTIALS_FILE), file).map(drop).unwrap();
        }),
    ];
    for (what, damage) in damages {
        for name in [CREDENTIALS_FILE, COPY_FILE] {
            let (folder, earlier) = kept();
            damage(&folder.path().join(name), earlier.path());
            assert!(!opened(folder.path()).is_lost, "{what}");
            assert_kept(folder.path(), &format!("{name} is {what}"));
        }
    }
}

#[test]
fn credentials_damaged_identity_is_written_again() {
    for text in [None, Some(""), Some("00000000000000000000000000000000\n")] {
        let (folder, _) = kept();
        let identity = folder.path().join(IDENTITY_FILE);
        let before = fs::read(&identity).expect("an identity");
        match text {
            Some(text) => fs::write(&identity, text).expect("written"),
            None => fs::remove_file(&identity).expect("removed"),
        }
        assert_kept(folder.path(), &format!("{text:?}"));
        assert_eq!(fs::read(&identity).expect("an identity"), before, "{text:?}");
    }
}

#[test]
fn credentials_of_another_pair_do_not_count() {
    let (folder, _) = kept();
    let (other, _) = kept();
    for name in [CREDENTIALS_FILE, COPY_FILE] {
        fs::remove_file(folder.path().join(name)).expect("removed");
    }
    fs::copy(other.path().join(COPY_FILE), folder.path().join(COPY_FILE)).expect("copied");
    let found = opened(folder.path());
    assert_eq!(found.quarantined.len(), 1);
    assert_eq!(found.quarantined[0].fault, FileFault::Foreign);
    assert!(found.is_lost);
    assert_eq!(found.credentials.list().expect("readable"), []);
}

#[test]
fn credentials_copy_that_misses_change_is_removed() {
    let (folder, _) = kept();
    let mut file = opened(folder.path()).credentials;
    file.copy = Err(CacheError::damaged(&file.copy_path, "a test"));
    assert!(file.missing_copy_reason().contains("a test"), "{}", file.missing_copy_reason());
    let error = file.write(&CredentialChanges::forget(b"bob")).expect_err("one copy is missing");
    assert_eq!(error.message(), &directory::CACHE_CLOSED, "{error}");
    drop(file);
    assert!(!folder.path().join(COPY_FILE).exists(), "it would bring bob back");
    let file = opened(folder.path()).credentials;
    assert_eq!(
        (file.list().expect("readable"), file.missing_copy_reason()),
        (Vec::new(), String::new())
    );
}
