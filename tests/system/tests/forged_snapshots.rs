// SPDX-License-Identifier: MIT OR Apache-2.0
//! A compromised publisher forges snapshots, with right checksums. The module neither crashes nor writes beyond a
//! buffer. It serves no id that the floor refuses, and `*` as the only password.

use roster_passwd_format::lines::{ParsedLine, shadow_line};
use roster_passwd_format::{Group, User};
use roster_snapshot::hash::{self, ChecksumIdentity, GidSum, NameSum};
use roster_snapshot::layout::{NameSlot, SectionId, SnapshotKind, flags};
use roster_snapshot_build::{DomainOptions, IncompleteFlags, MemberVisibility, SnapshotBuilder};
use roster_system_tests::rosterd::FIRST_ROLE_UID;
use roster_system_tests::test_host::ROSTER_NSSWITCH;
use roster_system_tests::{Corpus, NssCaller, TestHost, c_program, needs_root};
use std::fs::{self, Permissions};
use std::io::Cursor;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

/// Snapshots of a run, unless `ROSTER_FORGED` sets their number.
const CASES: u64 = 400;
const PUBLISHER: u32 = FIRST_ROLE_UID + 1;
const HASH: &str = "$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2/jctKu9YterLp8wwnSq.qc.eoxqOmSuNp2xS0ktL3nh/";

/// Ids at the floor's borders and others.
const IDS: [u32; 13] =
    [0, 1, 27, 100, 599, 999, 1000, 5000, 65_534, 65_535, 70_000, u32::MAX - 1, u32::MAX];
/// Short names, the longest of a slot, one of a long text, and invalid names.
const NAMES: [&str; 14] = [
    "Alice@corp",
    "HQ\\ALICE",
    "root",
    "alice",
    "bob",
    "local",
    "daemon",
    "fifteen-letters",
    "sixteen-letters-",
    "a-name-that-is-longer-than-any-slot-of-a-name-or-of-a-group",
    "+nis",
    "with:colon",
    "new\nline",
    "",
];

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A number that may be wrong in the place of `old`.
    fn number(&mut self, old: u64, file_bytes: u64) -> u64 {
        let any = self.next();
        let near =
            [old.wrapping_sub(1), old.wrapping_add(1), old.wrapping_mul(2), old ^ 1 << (any % 64)];
        let large = [u64::MAX, u64::MAX - 7, 1 << 63, 1 << 32, u64::from(u32::MAX), 0x7FFF_FFFF];
        let inside = [0, 1, file_bytes, file_bytes - 1, any % file_bytes, any % 64, any % 4096];
        let id = u64::from(self.pick(&IDS));
        let picked = [self.pick(&near), self.pick(&large), self.pick(&inside), id, any];
        self.pick(&picked)
    }
}

/// A sound file with hostile entries.
fn sound(dice: &mut Dice, kind: SnapshotKind) -> Vec<u8> {
    let mut builder = SnapshotBuilder::new(0).identity(dice.next());
    if kind == SnapshotKind::Shadow {
        for name in NAMES.iter().filter(|name| !name.is_empty()) {
            let line = format!("{}:{HASH}:1:2:3:4:5:6:7", name.replace([':', '\n'], "-"));
            let ParsedLine::Entry(entry) = shadow_line(line.as_bytes()) else { continue };
            builder.shadow(&entry).expect("it fits");
        }
    } else {
        fill(&mut builder, dice);
    }
    let mut file = Cursor::new(Vec::new());
    builder.finish(kind).expect("it fits").image.write(&mut file, 1).expect("write to memory");
    file.into_inner()
}

fn fill(builder: &mut SnapshotBuilder, dice: &mut Dice) {
    let may_ask = dice.one_in(8);
    if may_ask {
        builder.responder(b"/run/roster/nss").expect("it fits");
    }
    let passwords = [Some("x"), Some("*"), Some("!"), Some(HASH), Some(""), None];
    let gaps = |dice: &mut Dice| IncompleteFlags {
        responder_first: may_ask && dice.one_in(4),
        list_unknown: may_ask && dice.one_in(4),
    };
    let users = 3 + dice.below(20);
    for i in 0..users {
        builder.set_any_case(dice.one_in(3));
        let user = User {
            name: dice.pick(&NAMES).as_bytes(),
            passwd: dice.pick(&passwords).map(str::as_bytes),
            uid: if dice.one_in(2) { 5000 + i as u32 } else { dice.pick(&IDS) },
            gid: if dice.one_in(2) { 5000 } else { dice.pick(&IDS) },
            gecos: dice.pick(&[Some(&b"GECOS"[..]), Some(b""), None, Some(&[b'g'; 200])]),
            dir: Some(b"/home"),
            shell: dice.pick(&[Some(&b"/bin/sh"[..]), None]),
        };
        builder.user(&user, gaps(dice)).expect("it fits");
    }
    let groups = 3 + dice.below(12);
    for i in 0..groups {
        builder.set_any_case(dice.one_in(3));
        let group = Group {
            name: dice.pick(&NAMES).as_bytes(),
            passwd: dice.pick(&passwords).map(str::as_bytes),
            gid: if dice.one_in(2) { 6000 + i as u32 } else { dice.pick(&IDS) },
        };
        let members: Vec<_> = (0..dice.below(9)).map(|_| dice.pick(&NAMES).as_bytes()).collect();
        let count_for =
            dice.pick(&[MemberVisibility::GroupAndInitgroups, MemberVisibility::GroupOnly]);
        builder.group(&group, members.into_iter(), count_for, gaps(dice)).expect("it fits");
    }
    for gid in IDS {
        let members = [dice.pick(&NAMES).as_bytes()];
        builder.initgroups_only(gid, members.into_iter()).expect("it fits");
    }
    let first = dice.below(users) as u32;
    let options = DomainOptions { short_name: "HQ", flags: dice.below(8) as u32 };
    builder.domain("corp", &options, first, groups as u32).expect("it fits");
    let rest = users as u32 - first;
    builder.domain("lab", &DomainOptions::default(), rest, 0).expect("it fits");
}

/// Places of the header.
mod header {
    pub(super) const SECTION_COUNT: usize = 52;
    pub(super) const IDENTITY: usize = 56;
    pub(super) const SECTIONS: usize = 64;
    pub(super) const RESPONDER: usize = 424;
    pub(super) const HASH: usize = 504;
    pub(super) const END: usize = 512;
}

/// A file and the content of its sections.
struct Forgery(Vec<u8>);

#[derive(Clone, Copy)]
struct Section {
    id: SectionId,
    offset: usize,
    record_bytes: usize,
    count: usize,
}

/// The indices.
const BUCKETS: [SectionId; 6] = [
    SectionId::ByUserName,
    SectionId::ByUid,
    SectionId::ByGroupName,
    SectionId::ByGid,
    SectionId::ByMember,
    SectionId::ByShadowName,
];

impl Forgery {
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0[at..at + N].try_into().expect("so many")
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.get(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.get(at))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The sections that lie in the file.
    fn sections(&self) -> Vec<Section> {
        let count = (self.u32(header::SECTION_COUNT) as usize).min(15);
        let entries = (0..count).map(|i| header::SECTIONS + 24 * i);
        entries
            .filter_map(|at| {
                let id = SectionId::ALL.into_iter().find(|id| *id as u32 == self.u32(at))?;
                let section = Section {
                    id,
                    offset: usize::try_from(self.u64(at + 8)).ok()?,
                    record_bytes: self.u32(at + 4) as usize,
                    count: usize::try_from(self.u64(at + 16)).ok()?,
                };
                let bytes = section.record_bytes.checked_mul(section.count)?;
                (section.offset.checked_add(bytes)? <= self.0.len()).then_some(section)
            })
            .collect()
    }

    fn section(&self, id: SectionId) -> Option<Section> {
        self.sections().into_iter().find(|section| section.id == id)
    }

    /// Changes one thing.
    fn change(&mut self, dice: &mut Dice) {
        let sections = self.sections();
        let (at, bytes) = if sections.is_empty() || dice.one_in(8) {
            let entry = header::SECTIONS + 24 * dice.below(15);
            let path = header::RESPONDER + dice.below(80);
            dice.pick(&[
                (16, 8),
                (32, 8),
                (48, 4),
                (header::SECTION_COUNT, 4),
                (entry, 4),
                (entry + 4, 4),
                (entry + 8, 8),
                (entry + 16, 8),
                (path, 1),
            ])
        } else {
            let section = dice.pick(&sections);
            if section.count == 0 {
                return;
            }
            let at = section.offset + section.record_bytes * dice.below(section.count);
            let (field, bytes) = self.field(section, dice);
            (at + field, bytes)
        };
        if at + bytes > self.0.len() {
            return;
        }
        let mut old = [0; 8];
        old[..bytes].copy_from_slice(&self.0[at..at + bytes]);
        let number = dice.number(u64::from_le_bytes(old), self.0.len() as u64);
        self.put(at, &number.to_le_bytes()[..bytes]);
    }

    /// A field of a record, and its length.
    fn field(&self, section: Section, dice: &mut Dice) -> (usize, usize) {
        // A forged section may have records that are too short for their fields.
        let text = |from: usize, dice: &mut Dice| {
            (from + dice.below(section.record_bytes.saturating_sub(from).max(1)), 1)
        };
        match section.id {
            SectionId::Users => {
                let lens = (13 + dice.below(5), 1);
                let long = dice.pick(&[(20, 8), (36, 4), (40, 4), (44, 4), (52, 4)]);
                let text = text(20, dice);
                dice.pick(&[(4, 4), (8, 4), (12, 1), lens, long, text])
            }
            SectionId::Groups => {
                let lens = (9 + dice.below(2), 1);
                let long = dice.pick(&[(36, 8), (52, 4), (56, 4)]);
                let text = text(36, dice);
                dice.pick(&[(4, 4), (8, 1), lens, (12, 4), (16, 8), (32, 4), long, text])
            }
            SectionId::Names => {
                let text = text(0, dice);
                dice.pick(&[(15, 1), (0, 8), (8, 2), text])
            }
            SectionId::Memberships => dice.pick(&[(4, 4), (8, 8)]),
            SectionId::Shadows => {
                let text = text(40, dice);
                dice.pick(&[(4, 1), (5, 1), (6, 1), (40, 8), (56, 4), (60, 4), text])
            }
            SectionId::MemberIds | SectionId::GroupIds | SectionId::Gids => {
                (0, section.record_bytes.min(4))
            }
            SectionId::LongText => (0, 1),
            SectionId::Domains => dice.pick(&[(4, 4), (8, 4), (12, 1)]),
            SectionId::DomainOptions => dice.pick(&[(4, 4), (8, 1), (16, 8)]),
            _ => {
                let entry = dice.below(10);
                dice.pick(&[(4 + 2 * entry, 2), (24 + 4 * entry, 4)])
            }
        }
    }

    /// Position and place of each record, if the section's records have that length.
    fn places(&self, id: SectionId, record_bytes: usize) -> Vec<(u32, usize)> {
        let Some(section) = self.section(id).filter(|one| one.record_bytes == record_bytes) else {
            return Vec::new();
        };
        let places = (0..section.count).map(|i| section.offset + i * record_bytes);
        (0_u32..).zip(places).collect()
    }

    /// The numbers of a list, if it lies in its section.
    fn list(&self, id: SectionId, first: u64, count: u32) -> Option<Vec<usize>> {
        let section = self.section(id)?;
        let first = usize::try_from(first).ok()?;
        let end = first.checked_add(count as usize)?;
        let at = |i: usize| section.offset + i * section.record_bytes;
        let number = |i: usize| match section.record_bytes {
            2 => Some(usize::from(u16::from_le_bytes(self.get(at(i))))),
            4 => Some(self.u32(at(i)) as usize),
            _ => None,
        };
        if end > section.count { None } else { (first..end).map(number).collect() }
    }

    /// A piece of the long text.
    fn long_text(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        let section = self.section(SectionId::LongText)?;
        let text = self.0.get(section.offset..section.offset + section.count)?;
        let start = usize::try_from(offset).ok()?;
        text.get(start..)?.get(..usize::try_from(bytes).ok()?)
    }

    /// Makes the checksum of long strings right. A slot's text has their position.
    fn seal_long(&mut self, slot_flags: u8, text: usize, strings: usize) {
        if slot_flags & flags::LONG != 0 {
            let lens = (0..strings).map(|i| u64::from(self.u32(text + 16 + 4 * i)) + 1);
            let bytes = lens.sum();
            if let Some(long) = self.long_text(self.u64(text), bytes) {
                let hash = hash::plain(long);
                self.put(text + 8, &hash.to_le_bytes());
            }
        }
    }

    /// Makes every checksum right, and with `counts` the bytes of the members' names, too.
    fn seal(&mut self, counts: bool) {
        let identity = ChecksumIdentity(self.u64(header::IDENTITY));
        for (_, at) in self.places(SectionId::Names, 16) {
            let len =
                u64::from(u32::from_le_bytes([self.0[at + 8], self.0[at + 9], self.0[at + 10], 0]));
            if self.0[at + 15] == 255
                && let Some(name) = self.long_text(self.u64(at), len)
            {
                let hash = hash::plain(name) as u32;
                self.put(at + 11, &hash.to_le_bytes());
            }
        }
        let names = self.places(SectionId::Names, 16);
        for (position, at) in self.places(SectionId::Users, 128) {
            self.seal_long(self.0[at + 12], at + 20, 5);
            let check = identity.check(&self.get::<128>(at), SectionId::Users, position);
            self.put(at, &check.to_le_bytes());
        }
        for (position, at) in self.places(SectionId::Groups, 64) {
            self.seal_long(self.0[at + 8], at + 36, 2);
            let list = self.list(SectionId::MemberIds, self.u64(at + 16), self.u32(at + 12));
            let (mut sum, mut bytes) = (NameSum::default(), 0);
            for member in list.unwrap_or_default() {
                let Some((_, name)) = names.get(member) else { continue };
                let slot = self.get::<16>(*name);
                sum.add(u128::from_le_bytes(slot));
                bytes += match slot[15] {
                    255 => u32::from_le_bytes([slot[8], slot[9], slot[10], 0]) + 1,
                    less => 16_u32.saturating_sub(u32::from(less)),
                };
            }
            self.put(at + 24, &sum.finish().to_le_bytes());
            if counts {
                self.put(at + 32, &bytes.to_le_bytes());
            }
            let check = identity.check(&self.get::<64>(at), SectionId::Groups, position);
            self.put(at, &check.to_le_bytes());
        }
        let gids = self.places(SectionId::Gids, 4);
        for (position, at) in self.places(SectionId::Memberships, 24) {
            let list = self.list(SectionId::GroupIds, self.u64(at + 8), self.u32(at + 4));
            let mut sum = GidSum::default();
            for (_, gid) in list.unwrap_or_default().into_iter().filter_map(|i| gids.get(i)) {
                sum.add(self.u32(*gid));
            }
            self.put(at + 16, &sum.finish().to_le_bytes());
            if let Some((_, name)) = names.get(position as usize) {
                let (record, name) = (self.get::<24>(at), NameSlot(self.get(*name)));
                let check =
                    identity.check_with_name(&record, &name, SectionId::Memberships, position);
                self.put(at, &check.to_le_bytes());
            }
        }
        for (position, at) in self.places(SectionId::Shadows, 128) {
            self.seal_long(self.0[at + 4], at + 40, 2);
            let check = identity.check(&self.get::<128>(at), SectionId::Shadows, position);
            self.put(at, &check.to_le_bytes());
        }
        for id in BUCKETS {
            for (position, at) in self.places(id, 64) {
                let check = identity.check(&self.get::<64>(at), id, position);
                self.put(at, &check.to_le_bytes());
            }
        }
        for (position, at) in self.places(SectionId::Domains, 80) {
            let check = identity.check(&self.get::<80>(at), SectionId::Domains, position);
            self.put(at, &check.to_le_bytes());
        }
        for (position, at) in self.places(SectionId::DomainOptions, 80) {
            let check = identity.check(&self.get::<80>(at), SectionId::DomainOptions, position);
            self.put(at, &check.to_le_bytes());
        }
        let hash = hash::plain(&self.0[header::END..]);
        self.put(40, &hash.to_le_bytes());
        let hash = hash::plain(&self.0[..header::HASH]);
        self.put(header::HASH, &hash.to_le_bytes());
    }
}

fn forged(dice: &mut Dice, kind: SnapshotKind) -> Vec<u8> {
    let mut forgery = Forgery(sound(dice, kind));
    for _ in 0..dice.below(5) {
        forgery.change(dice);
    }
    forgery.seal(dice.one_in(2));
    forgery.0
}

fn write(file: &Path, bytes: &[u8], owner: u32) {
    let fresh = file.with_extension("fresh");
    fs::write(&fresh, bytes).expect("write a snapshot");
    fs::set_permissions(&fresh, Permissions::from_mode(0o644)).expect("chmod");
    chown(&fresh, Some(owner), None).expect("chown");
    fs::rename(&fresh, file).expect("put it in place");
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

#[test]
fn module_survives_forged_snapshots_floor_holds() {
    if !needs_root() {
        return;
    }
    let local = Corpus::new("", b"root:x:0:0::/root:/bin/sh\n", b"root:x:0:\n", b"");
    let host = TestHost::in_memory(&local, ROSTER_NSSWITCH);
    let mut asking = NssCaller::start(host.command(c_program("forged")).arg("roster"));
    let names = NAMES.iter().filter(|name| !name.is_empty() && !name.contains('\n'));
    let words: Vec<String> =
        names.map(|name| (*name).to_owned()).chain(IDS.iter().map(u32::to_string)).collect();
    let words = words.join(" ");
    let (first, cases) = (number("ROSTER_SEED", 1), number("ROSTER_FORGED", CASES));
    let (mut served, mut empty) = ([0_u64; 4], 0);
    for seed in first..first + cases {
        let mut dice = Dice(seed);
        // Root owns one snapshot in four. The module reads password hashes there and applies no floor.
        let owner = if dice.one_in(4) { 0 } else { PUBLISHER };
        chown(host.snapshots_dir(), Some(owner), None).expect("chown");
        write(&host.snapshot_path(), &forged(&mut dice, SnapshotKind::Accounts), owner);
        write(&host.shadow_snapshot_path(), &forged(&mut dice, SnapshotKind::Shadow), owner);
        let said = asking.send_command(&format!("{seed} {} {words}", u8::from(owner != 0)));
        let counts = said.strip_prefix("served ");
        let counts =
            counts.unwrap_or_else(|| panic!("{said}: again: ROSTER_SEED={seed} ROSTER_FORGED=1"));
        let counts: Vec<u64> =
            counts.split(' ').map(|count| count.parse().expect("a count")).collect();
        empty += u64::from(counts.iter().all(|count| *count == 0));
        served.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
    }
    println!(
        "{cases} forged snapshots: 0 crashes, 0 writes outside of a buffer, 0 answers that the floor forbids; \
         served users, groups, gids, shadow entries: {served:?}; {empty} snapshots served nothing"
    );
    // Most forgeries get past the first checks.
    assert!(cases == 1 || 2 * empty < cases && served.iter().all(|count| *count > 0), "{served:?}");
}
