// SPDX-License-Identifier: MIT OR Apache-2.0
//! A failed publication leaves the old file, and no other.

use roster_snapshot_build::publish::{FileRights, publish};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const RIGHTS: FileRights = FileRights { mode: 0o640, gid: None };

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn write(text: &'static str) -> impl FnOnce(&mut fs::File, u64) -> io::Result<u64> {
    move |file, _| file.write_all(text.as_bytes()).map(|()| text.len() as u64)
}

#[test]
fn the_file_has_its_rights_whatever_the_umask_and_replaces_by_rename() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snap");
    publish(&path, RIGHTS, write("one")).unwrap();
    let first = fs::metadata(&path).unwrap();
    assert_eq!(first.permissions().mode() & 0o7777, 0o640);
    let held = fs::File::open(&path).unwrap();
    publish(&path, RIGHTS, write("two")).unwrap();
    assert_ne!(fs::metadata(&path).unwrap().ino(), first.ino());
    assert_eq!(io::read_to_string(held).unwrap(), "one");
    assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    assert_eq!(names(folder.path()), ["snap"]);
}

#[test]
fn a_failed_write_leaves_the_old_file_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snap");
    publish(&path, RIGHTS, write("old")).unwrap();
    let error = publish(&path, RIGHTS, |file, _| {
        file.write_all(b"half of the n")?;
        Err(io::Error::from(io::ErrorKind::StorageFull))
    })
    .unwrap_err();
    assert_eq!(error.action, "write");
    assert!(error.path.ends_with(".snap.new"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(names(folder.path()), ["snap"]);
}

#[test]
fn what_an_interrupted_publication_left_is_used_up_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snap");
    fs::write(folder.path().join(".snap.new"), "left behind").unwrap();
    publish(&path, RIGHTS, write("new")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(names(folder.path()), ["snap"]);
}

#[test]
fn a_link_in_the_temp_files_place_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, folder.path().join(".snap.new")).unwrap();
    publish(&folder.path().join("snap"), RIGHTS, write("new")).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn who_can_only_read_the_folder_cannot_hold_a_publication_up() {
    let folder = tempfile::tempdir().unwrap();
    let held = fs::File::open(folder.path()).unwrap();
    held.lock().unwrap();
    publish(&folder.path().join("snap"), RIGHTS, write("new")).unwrap();
}

#[test]
fn publications_of_one_name_come_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snap");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    publish(&path, RIGHTS, |file, _| {
                        file.write_all(b"half ")?;
                        std::thread::yield_now();
                        file.write_all(b"whole").map(|()| 10)
                    })
                    .unwrap();
                    assert_eq!(fs::read_to_string(&path).unwrap(), "half whole");
                }
            });
        }
    });
    assert_eq!(names(folder.path()), ["snap"]);
}

#[test]
fn what_is_no_file_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, link, inner) =
        (folder.path().join("pipe"), folder.path().join("link"), folder.path().join("folder"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink("elsewhere", &link).unwrap();
    fs::create_dir(&inner).unwrap();
    for path in [&pipe, &link, &inner, &inner.join("..")] {
        let error = publish(path, RIGHTS, write("new")).unwrap_err();
        assert_eq!(error.action, "replace", "{}", path.display());
    }
    assert_eq!(names(folder.path()), ["folder", "link", "pipe"]);
}

#[test]
fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = publish(&folder.path().join("no/snap"), RIGHTS, write("x")).unwrap_err();
    assert!(error.to_string().contains("open the directory"), "{error}");
    assert!(error.path.ends_with("no"));
}
