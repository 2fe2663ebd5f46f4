// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damage in any byte, and at any end of a file, is reported and never served.

use roster_messages::table::tools;
use roster_passwd_format::User;
use roster_snapshot::Snapshot;
use roster_snapshot::layout::SnapshotKind;
use roster_snapshot_build::{
    DomainOptions, IncompleteFlags, SnapshotBuilder, compile, publish, verify,
};
use std::collections::BTreeSet;
use std::io::Cursor;
use std::mem::MaybeUninit;
use std::path::Path;

const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/bash
alice:x:1000:1000:Alice,,,:/home/alice:/bin/zsh
bob:x:1001:1001::/home/bob:/bin/sh
carol:x:1002:1000:a name that is long enough to leave its slot for the place where long texts are, \
and some more of it:/home/carol:/bin/sh
+nis
";
const GROUP: &str = "\
root:x:0:
users:x:100:alice,bob,carol,stranger
a-group-with-a-name-that-is-too-long-for-its-slot:x:101:a-member-with-a-long-name,bob
wheel:x:10:alice
#old:x:77:bob
";
const SHADOW: &str = "root:*:19000:0:99999:7:::\nalice:$6$salt$hash:19001:0:99999:7:::\n";

fn accounts() -> Vec<u8> {
    accounts_of(PASSWD, GROUP)
}

fn accounts_of(passwd_text: &str, group_text: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (passwd, group) = (folder.path().join("passwd"), folder.path().join("group"));
    std::fs::write(&passwd, passwd_text).unwrap();
    std::fs::write(&group, group_text).unwrap();
    let compiled = compile::accounts(&passwd, &group, &mut |_| {}).unwrap();
    published(&folder.path().join("snap"), &compiled)
}

fn shadow() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("shadow");
    std::fs::write(&text, SHADOW).unwrap();
    published(&folder.path().join("snap"), &compile::shadow(&text, &mut |_| {}).unwrap())
}

fn published(path: &Path, compiled: &compile::CompiledImage) -> Vec<u8> {
    let rights = publish::FileRights { mode: 0o600, gid: None };
    publish::publish(path, rights, |file, generation| compiled.image.write(file, generation))
        .unwrap();
    std::fs::read(path).unwrap()
}

/// A reply as text, or damage.
type Answer = Result<Option<String>, roster_snapshot::Damage>;

/// Performs every lookup and enumeration that the sources suggest.
fn ask_everything(snapshot: &Snapshot<'_>) -> Vec<Answer> {
    let mut answers = Vec::new();
    let names =
        ["root", "alice", "bob", "carol", "stranger", "nobody", "a-member-with-a-long-name"];
    for name in names {
        answers.push(shown(snapshot.user_by_name(name.as_bytes()), roster_snapshot::User::record));
        answers.push(snapshot.supplementary(name.as_bytes()).and_then(|gids| {
            let Some(gids) = gids else { return Ok(None) };
            let mut list = Vec::new();
            gids.each(|gid| list.push(gid))?;
            Ok(Some(format!("{list:?}")))
        }));
        answers
            .push(shown(snapshot.shadow_by_name(name.as_bytes()), roster_snapshot::Shadow::record));
    }
    for id in [0, 10, 77, 100, 101, 1000, 1001, 1002, 5] {
        answers.push(shown(snapshot.user_by_uid(id), roster_snapshot::User::record));
        answers.push(group(snapshot.group_by_gid(id)));
    }
    for name in ["root", "users", "wheel", "a-group-with-a-name-that-is-too-long-for-its-slot", "x"]
    {
        answers.push(group(snapshot.group_by_name(name.as_bytes())));
    }
    for position in 0..6 {
        answers.push(shown(snapshot.user(position), roster_snapshot::User::record));
        answers.push(group(snapshot.group(position)));
        answers.push(shown(snapshot.shadow(position), roster_snapshot::Shadow::record));
    }
    answers
}

fn shown<T, R: std::fmt::Debug>(
    found: roster_snapshot::LookupResult<T>,
    show: impl Fn(&T) -> R,
) -> Answer {
    Ok(found?.map(|entry| format!("{:?}", show(&entry))))
}

fn group(found: roster_snapshot::LookupResult<roster_snapshot::Group<'_>>) -> Answer {
    let Some(group) = found? else { return Ok(None) };
    let room = group.members.bytes() + roster_snapshot::layout::COPY_SLACK;
    // A damaged length must not make the test allocate gigabytes.
    let mut text = vec![MaybeUninit::new(0); room.min(1 << 16)];
    let mut left = vec![0; group.members.len()];
    let all = text.len();
    group.members.copy(&mut text, &mut left, |rest| rest.len())?;
    let names: Result<Vec<_>, _> = group.members.iter().collect();
    let starts: Vec<usize> = left.iter().map(|left| all.min(room) - left).collect();
    Ok(Some(format!("{:?} {starts:?} {:?}", group.record(), names?)))
}

/// Opens a file of that kind and performs all lookups. Returns `None` if it does not open.
fn answers(bytes: &[u8], kind: SnapshotKind) -> Option<Vec<Answer>> {
    let snapshot = match kind {
        SnapshotKind::Accounts => Snapshot::open(bytes),
        SnapshotKind::Shadow => Snapshot::open_shadow(bytes),
    };
    snapshot.ok().map(|snapshot| ask_everything(&snapshot))
}

/// A disk that loses a write, or a file system that reuses a block.
#[test]
fn block_of_older_file_answers_as_damage() {
    let older = accounts_of(
        &PASSWD.replace(":1000:", ":5000:").replace("bob:x:1001", "rob:x:1002"),
        &GROUP.replace("bob", "rob").replace(":101:", ":110:"),
    );
    let newer = accounts();
    let expected = answers(&newer, SnapshotKind::Accounts).unwrap();
    assert_eq!(older.len(), newer.len(), "the blocks are in the same places");
    let mut damaged = 0;
    for block_bytes in [64, 512, 4096] {
        for start in (0..newer.len()).step_by(block_bytes) {
            let end = newer.len().min(start + block_bytes);
            let mut mixed = newer.clone();
            mixed[start..end].copy_from_slice(&older[start..end]);
            if mixed == newer {
                continue;
            }
            assert!(
                verify::verify(&mixed, SnapshotKind::Accounts).is_err(),
                "{block_bytes} at {start}"
            );
            for (found, expected) in
                answers(&mixed, SnapshotKind::Accounts).unwrap_or_default().iter().zip(&expected)
            {
                assert!(found.is_err() || found == expected, "{block_bytes} at {start}: {found:?}");
                damaged += u32::from(found.is_err());
            }
        }
    }
    assert!(damaged > 0);
}

#[test]
fn whole_files_verify_and_answer() {
    for (bytes, kind) in [(accounts(), SnapshotKind::Accounts), (shadow(), SnapshotKind::Shadow)] {
        verify::verify(&bytes, kind).unwrap();
        assert!(answers(&bytes, kind).unwrap().iter().all(Result::is_ok));
    }
}

#[test]
fn a_changed_byte_is_never_served() {
    let mut codes = BTreeSet::new();
    for (whole, kind) in [(accounts(), SnapshotKind::Accounts), (shadow(), SnapshotKind::Shadow)] {
        let expected = answers(&whole, kind).unwrap();
        let mut bytes = whole.clone();
        for place in 0..whole.len() {
            for change in [1, 0x80, 0xff, whole[place]] {
                bytes[place] ^= change;
                if bytes[place] != whole[place] {
                    let error = verify::verify(&bytes, kind)
                        .expect_err(&format!("byte {place} ^ {change} is verified"));
                    codes.insert(error.message().code);
                    for (found, expected) in answers(&bytes, kind).iter().flatten().zip(&expected) {
                        assert!(
                            found.is_err() || found == expected,
                            "byte {place} ^ {change}: {found:?} in place of {expected:?}"
                        );
                    }
                }
                bytes[place] = whole[place];
            }
        }
    }
    let all = [
        &tools::VERIFY_FORMAT,
        &tools::VERIFY_RECORD,
        &tools::VERIFY_CONTENT,
        &tools::VERIFY_INDEX,
    ];
    assert_eq!(codes, all.into_iter().map(|message| message.code).collect());
}

#[test]
fn domains_that_lack_entries_are_damage() {
    let domains = |users| {
        let mut builder = SnapshotBuilder::new(0);
        for (name, uid) in [(&b"a"[..], 1), (b"b", 2)] {
            let user =
                User { name, passwd: None, uid, gid: 1, gecos: None, dir: None, shell: None };
            builder.user(&user, IncompleteFlags::default()).unwrap();
        }
        builder.domain("corp", &DomainOptions::default(), users, 0).unwrap();
        let mut file = Cursor::new(Vec::new());
        builder.finish(SnapshotKind::Accounts).unwrap().image.write(&mut file, 1).unwrap();
        verify::verify(&file.into_inner(), SnapshotKind::Accounts)
    };
    assert!(domains(2).is_ok());
    for users in [0, 1, 3] {
        assert_eq!(domains(users).unwrap_err().message(), &tools::VERIFY_DOMAINS, "{users}");
    }
}

#[test]
fn a_cut_file_does_not_open() {
    for (whole, kind) in [(accounts(), SnapshotKind::Accounts), (shadow(), SnapshotKind::Shadow)] {
        for len in 0..whole.len() {
            assert!(answers(&whole[..len], kind).is_none(), "{len} bytes");
            assert!(verify::verify(&whole[..len], kind).is_err(), "{len} bytes");
        }
        let longer = [&whole[..], &[0]].concat();
        assert!(answers(&longer, kind).is_none());
    }
}

#[test]
fn one_kind_is_not_taken_for_the_other() {
    assert!(answers(&accounts(), SnapshotKind::Shadow).is_none());
    assert!(answers(&shadow(), SnapshotKind::Accounts).is_none());
}

#[test]
fn swapped_records_are_damage() {
    let whole = accounts();
    let users = Snapshot::open(&whole)
        .unwrap()
        .sections()
        .find(|section| section.id == roster_snapshot::layout::SectionId::Users)
        .unwrap();
    let (start, size) = (users.offset as usize, users.record_bytes as usize);
    let mut bytes = whole.clone();
    bytes[start..start + size].copy_from_slice(&whole[start + size..start + 2 * size]);
    let snapshot = Snapshot::open(&bytes).unwrap();
    assert!(snapshot.user_by_name(b"root").is_err());
    assert!(snapshot.user(0).is_err());
    assert!(snapshot.user_by_name(b"alice").unwrap().is_some());
}
