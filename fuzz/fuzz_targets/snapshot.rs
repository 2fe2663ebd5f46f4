// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens any bytes as a snapshot and makes every lookup: an answer or damage, never a crash. Built for fuzzing, the
//! reader takes every checksum for right, so that the bytes behind them are reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roster_passwd_format::lines::{ParsedLine, shadow_line};
use roster_passwd_format::{Group, User};
use roster_snapshot::layout::{COPY_SLACK, MAGIC, SnapshotKind};
use roster_snapshot::{EntryList, Floor, Gids, Snapshot};
use roster_snapshot_build::{DomainOptions, IncompleteFlags, MemberVisibility, SnapshotBuilder};
use std::io::Cursor;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Entries looked up by position.
const POSITIONS_MAX: u32 = 64;
/// Answers larger than this are not made.
const ANSWER_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    if input.starts_with(&MAGIC) {
        read(input);
    }
    for base in bases() {
        let mut bytes = base.clone();
        let (changes, cut) = input.as_chunks::<4>();
        for &[low, middle, high, value] in changes {
            let place = u32::from_le_bytes([low, middle, high, 0]) as usize % bytes.len();
            bytes[place] = value;
        }
        if let [_, low, high] = *cut {
            bytes.truncate(usize::from(u16::from_le_bytes([low, high])));
        }
        read(&bytes);
    }
});

const GAPS: IncompleteFlags = IncompleteFlags { responder_first: true, list_unknown: true };

/// Whole snapshots, for the fuzzer to change: four bytes of its input are a position and a value.
fn bases() -> &'static [Vec<u8>; 2] {
    static BASES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    BASES.get_or_init(|| {
        let long = [b'n'; 40];
        let user = |name, uid| User {
            name,
            passwd: Some(b"x"),
            uid,
            gid: 100,
            gecos: Some(b"GECOS"),
            dir: Some(b"/home"),
            shell: None,
        };
        let mut accounts = SnapshotBuilder::new(0);
        for (uid, name) in [&b"root"[..], b"alice", b"bob", &long].into_iter().enumerate() {
            accounts.set_any_case(uid % 2 == 1);
            accounts.user(&user(name, uid as u32), GAPS).unwrap();
        }
        for (gid, members) in [&[&b"alice"[..], b"bob", b"stranger"][..], &[b"root", &long], &[]]
            .into_iter()
            .enumerate()
        {
            let group = Group { name: &long[gid * 15..], passwd: Some(b"x"), gid: gid as u32 };
            accounts
                .group(&group, members.iter().copied(), MemberVisibility::GroupAndInitgroups, GAPS)
                .unwrap();
        }
        accounts.responder(b"/run/roster/nss").unwrap();
        let options = DomainOptions { short_name: "HQ", flags: 1 };
        accounts.domain("corp", &options, 4, 3).unwrap();
        let mut shadows = SnapshotBuilder::new(0);
        let ParsedLine::Entry(entry) = shadow_line(b"root:*:1:2:3:4:5:6:7") else { unreachable!() };
        shadows.shadow(&entry).unwrap();
        [(accounts, SnapshotKind::Accounts), (shadows, SnapshotKind::Shadow)].map(
            |(builder, kind)| {
                let mut file = Cursor::new(Vec::new());
                builder.finish(kind).unwrap().image.write(&mut file, 1).unwrap();
                file.into_inner()
            },
        )
    })
}

fn read(bytes: &[u8]) {
    for (kind, opened) in [
        (SnapshotKind::Accounts, Snapshot::open(bytes)),
        (SnapshotKind::Shadow, Snapshot::open_shadow(bytes)),
    ] {
        let Ok(snapshot) = opened else { continue };
        ask(&snapshot);
        let mut limited = snapshot;
        limited.set_floor(&Floor::default());
        ask(&limited);
        // Slow on a list that overlaps itself a thousand times, so only on small ones.
        if bytes.len() < 1 << 16 {
            let _ = roster_snapshot_build::verify::verify(bytes, kind);
            let _ = roster_snapshot_build::inspect::inspect(&snapshot);
        }
    }
}

fn ask(snapshot: &Snapshot<'_>) {
    for domain in snapshot.domains().into_iter().flatten().flatten() {
        assert!(domain.users.end <= snapshot.shape().users, "{domain:?}");
        assert!(domain.groups.end <= snapshot.shape().groups, "{domain:?}");
    }
    for list in [EntryList::Users, EntryList::Groups] {
        let mut position = 0;
        while let Ok(listed) = snapshot.listed_from(list, position) {
            assert!(position <= listed.start && listed.start < listed.end, "{listed:?}");
            if listed.end == u32::MAX {
                break;
            }
            position = listed.end;
        }
    }
    assert!(snapshot.responder().is_none_or(|path| path.starts_with(b"/") && !path.contains(&0)));
    for position in 0..POSITIONS_MAX {
        if let Ok(Some(user)) = snapshot.user(position) {
            let record = user.record();
            let _ = snapshot.user_by_name(record.name);
            if let Ok(Some(user)) = snapshot.user_by_uid(record.uid) {
                check(snapshot, &[user.uid, user.gid], user.record().passwd);
            }
            supplementary(snapshot, record.name);
        }
        if let Ok(Some(group)) = snapshot.group(position) {
            let _ = snapshot.group_by_name(group.record().name);
            if let Ok(Some(group)) = snapshot.group_by_gid(group.gid) {
                check(snapshot, &[group.gid], group.record().passwd);
            }
            members(&group);
        }
        if let Ok(Some(shadow)) = snapshot.shadow(position) {
            let _ = snapshot.shadow_by_name(shadow.record().name);
        }
        if let Ok(Some(name)) = snapshot.name(position) {
            supplementary(snapshot, name);
        }
    }
    for name in [
        &b""[..],
        b"a",
        b"root",
        b"a-name-of-more-than-fifteen-bytes",
        b"ALICE",
        b"hq\\Alice",
        b"BOB@corp",
    ] {
        let _ = snapshot.user_by_name(name);
        let _ = snapshot.group_by_name(name);
        let _ = snapshot.shadow_by_name(name);
        supplementary(snapshot, name);
    }
}

fn supplementary(snapshot: &Snapshot<'_>, name: &[u8]) {
    let _ = snapshot.supplementary(name);
    let Ok(Some(gids)) = snapshot.groups_of_user(name) else { return };
    copy_gids(&gids);
    let mut given = Vec::new();
    let _ = gids.each(|gid| given.push(gid));
    check(snapshot, &given, Some(b"*"));
}

/// No id and no password that the floor forbids is served.
fn check(snapshot: &Snapshot<'_>, ids: &[u32], password: Option<&[u8]>) {
    if snapshot.limits().has_floor() {
        assert!(ids.iter().all(|id| *id >= 1000 && ![65_534, 65_535, u32::MAX].contains(id)));
        assert_eq!(password, Some(&b"*"[..]));
    }
}

fn copy_gids(gids: &Gids<'_>) {
    if gids.len() < ANSWER_BYTES_MAX {
        let mut out = vec![MaybeUninit::uninit(); gids.len()];
        let _ = gids.copy(&mut out);
    }
}

fn members(group: &roster_snapshot::Group<'_>) {
    let members = &group.members;
    if members.bytes() < ANSWER_BYTES_MAX && members.len() < ANSWER_BYTES_MAX {
        let mut out = vec![MaybeUninit::uninit(); members.bytes() + COPY_SLACK];
        let mut places = vec![0; members.len()];
        let _ = members.copy(&mut out, &mut places, |rest| rest.len());
        let _ = members.verify();
        members.iter().for_each(drop);
    }
}
