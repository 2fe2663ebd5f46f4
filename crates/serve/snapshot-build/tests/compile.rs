// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiled entries equal the text, in its order.

use roster_messages::table::tools;
use roster_snapshot::Snapshot;
use roster_snapshot_build::compile::{self, CompiledImage, Remark};
use roster_snapshot_build::{LookupKey, publish};
use std::fmt::Write;
use std::path::PathBuf;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(passwd: &str, group: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        std::fs::write(folder.path("passwd"), passwd).unwrap();
        std::fs::write(folder.path("group"), group).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn compile(&self) -> CompiledImage {
        compile::accounts(&self.path("passwd"), &self.path("group"), &mut |_| {}).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        let compiled = self.compile();
        let rights = publish::FileRights { mode: 0o644, gid: None };
        publish::publish(&self.path("snap"), rights, |file, generation| {
            compiled.image.write(file, generation)
        })
        .unwrap();
        std::fs::read(self.path("snap")).unwrap()
    }
}

fn gids(snapshot: &Snapshot<'_>, name: &str) -> Vec<u32> {
    let mut list = Vec::new();
    if let Some(gids) = snapshot.supplementary(name.as_bytes()).unwrap() {
        gids.each(|gid| list.push(gid)).unwrap();
    }
    list
}

#[test]
fn the_first_of_several_entries_is_found_and_all_are_listed() {
    let folder = Folder::new("a:x:1:1:first::\na:x:2:1:second::\nb:x:1:1:third::\n", "g:x:1:\n");
    let bytes = folder.bytes();
    let snapshot = Snapshot::open(&bytes).unwrap();
    let gecos = |user: roster_snapshot::User<'_>| {
        String::from_utf8_lossy(user.record().gecos.unwrap()).into_owned()
    };
    assert_eq!(snapshot.user_by_name(b"a").unwrap().map(gecos).as_deref(), Some("first"));
    assert_eq!(snapshot.user_by_uid(1).unwrap().map(gecos).as_deref(), Some("first"));
    assert_eq!(snapshot.user_by_uid(2).unwrap().map(gecos).as_deref(), Some("second"));
    let listed: Vec<_> = (0..3).map(|at| gecos(snapshot.user(at).unwrap().unwrap())).collect();
    assert_eq!(listed, ["first", "second", "third"]);
    let report = folder.compile().report;
    let hidden = |key, line, by_line| compile::CompileNote {
        source: compile::TextSource::Passwd,
        line,
        remark: Remark::Hidden { key, by_line },
    };
    assert_eq!(report.notes, [hidden(LookupKey::UserName, 2, 1), hidden(LookupKey::Uid, 3, 1)]);
}

#[test]
fn groups_of_a_name_are_those_that_initgroups_counts() {
    let group = "one:x:1:a,a,b\n two:x:2:a\n#three:x:3:a\n+four:x:4:a\nfive:x:1:a\nsix:x:x:a\n";
    let folder = Folder::new("b:x:1:1:::\n", group);
    let bytes = folder.bytes();
    let snapshot = Snapshot::open(&bytes).unwrap();
    assert_eq!(gids(&snapshot, "a"), [1, 2, 3, 4, 1]);
    assert_eq!(gids(&snapshot, "b"), [1]);
    assert_eq!(gids(&snapshot, "c"), []);
    assert!(snapshot.group_by_name(b"two").unwrap().is_some());
    assert!(snapshot.group_by_name(b"#three").unwrap().is_none());
    assert!(snapshot.group_by_name(b"+four").unwrap().is_none());
    assert_eq!(snapshot.group(2).unwrap().unwrap().record().name, b"+four");
    let report = folder.compile().report;
    assert_eq!((report.groups, report.skipped, report.hidden), (4, 1, 1));
    let told: Vec<String> = report.notes.iter().map(|note| format!("{}", note.line)).collect();
    assert_eq!(told, ["3", "6", "5"]);
}

/// glibc 2.36 would return gid 4299 for this line.
#[test]
fn a_last_line_that_files_garbles_is_read_as_it_stands_and_named() {
    let folder = Folder::new("", "a:x:1:\n g:x:429");
    let bytes = folder.bytes();
    assert!(Snapshot::open(&bytes).unwrap().group_by_gid(429).unwrap().is_some());
    let notes = folder.compile().report.notes;
    assert_eq!(notes.iter().map(|note| note.remark).collect::<Vec<_>>(), [Remark::Garbled]);
    assert!(Folder::new("", "g:x:429").compile().report.notes.is_empty());
}

#[test]
fn more_names_than_two_bytes_can_number() {
    let (mut passwd, mut group) = (String::new(), String::from("all:x:1:"));
    for user in 0..70_000 {
        writeln!(passwd, "user{user}:x:{user}:1:::").unwrap();
        write!(group, "user{user},").unwrap();
    }
    writeln!(group, "\nsome:x:2:user69999,user0,a-name-that-is-longer-than-a-slot").unwrap();
    let bytes = Folder::new(&passwd, &group).bytes();
    let snapshot = Snapshot::open(&bytes).unwrap();
    let all = snapshot.group_by_gid(1).unwrap().unwrap().members;
    assert_eq!(all.len(), 70_000);
    for (at, name) in all.iter().enumerate() {
        assert_eq!(name.unwrap(), format!("user{at}").as_bytes());
    }
    let some = snapshot.group_by_gid(2).unwrap().unwrap().members;
    let names: Vec<_> = some.iter().map(Result::unwrap).collect();
    assert_eq!(names, [&b"user69999"[..], b"user0", b"a-name-that-is-longer-than-a-slot"]);
    assert_eq!(gids(&snapshot, "user69999"), [1, 2]);
    assert_eq!(gids(&snapshot, "a-name-that-is-longer-than-a-slot"), [2]);
    roster_snapshot_build::verify::verify(&bytes, roster_snapshot::layout::SnapshotKind::Accounts)
        .unwrap();
}

/// All names with the factor of seed 0 as their second half have the same hash under it.
#[test]
fn names_made_to_collide_are_found_under_another_seed() {
    let factor = {
        use roster_snapshot::hash::{K, fold};
        fold(K[2], K[3]).to_le_bytes()
    };
    assert!(!factor.iter().any(|byte| b":\n\0".contains(byte)), "a name can hold it");
    let folder = Folder::new("", "");
    let mut passwd = Vec::new();
    for user in 0..400_u32 {
        passwd.extend(format!("u{user:07}").bytes().chain(factor));
        passwd.extend(format!(":x:{user}:1:::\n").bytes());
    }
    std::fs::write(folder.path("passwd"), &passwd).unwrap();
    let bytes = folder.bytes();
    let snapshot = Snapshot::open(&bytes).unwrap();
    assert_ne!(snapshot.shape().seed, 0);
    let name = [&b"u0000123"[..], &factor].concat();
    assert_eq!(snapshot.user_by_name(&name).unwrap().unwrap().uid, 123);
}

#[test]
fn compile_again_gives_generation_and_identity() {
    let folder = Folder::new("a:x:1:1:::\n", "g:x:1:a\n");
    let files = [folder.bytes(), folder.bytes()];
    let [first, second] = files.each_ref().map(|file| Snapshot::open(file).unwrap());
    assert_eq!((first.shape().generation, second.shape().generation), (1, 2));
    assert_ne!(first.shape().identity, second.shape().identity);
    for snapshot in [first, second] {
        assert_eq!(snapshot.user_by_uid(1).unwrap().unwrap().record().name, b"a");
    }
}

#[test]
fn compile_unusable_source_has_code() {
    let folder = Folder::new("a:x:1:1:::\n", "g:x:1:");
    let compile = |group: &str| {
        let made = compile::accounts(&folder.path("passwd"), &folder.path(group), &mut |_| {});
        made.err().expect("not compiled").message()
    };
    assert_eq!(compile("none"), &tools::COMPILE_SOURCE_UNREADABLE);
    std::fs::write(folder.path("group"), format!("g:x:1:{}\n", "m".repeat(16 << 20))).unwrap();
    assert_eq!(compile("group"), &tools::COMPILE_ENTRY_TOO_LARGE);
}
