// SPDX-License-Identifier: MIT OR Apache-2.0
//! The snapshot: a file of users and groups, and its reader.
//!
//! A [`Snapshot`] is a view of bytes, usually of a mapped file. Opening it reads only the header. The reader checks
//! every offset, index and checksum when it is used. Arbitrary bytes therefore give an answer or [`Damage`], but never
//! a panic, an endless loop or a read out of bounds. This crate does not allocate, lock or make system calls.
//! [`layout`] and `docs/reference/snapshot-format.md` describe the bytes; `roster-snapshot-build` writes them.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

mod domains;
pub mod floor;
#[cfg(test)]
mod golden;
pub mod hash;
mod header;
mod index;
pub mod layout;
mod listing;
mod member_lists;
mod spellings;
mod strings;

pub use domains::{Domain, Domains};
pub use floor::{Floor, IdLimits, ServedIds};
pub use header::{OpenError, SectionInfo, Snapshot, SnapshotSummary};
pub use index::Index;
pub use listing::EntryList;
pub use member_lists::{Gids, Members};
pub use strings::EntryStrings;

use layout::{GroupSlot, NameSlot, SectionId, ShadowSlot, UserSlot, flags};
use roster_passwd_format as record;
use zerocopy::little_endian::I32;

/// The bytes do not match their checksum or contradict each other. Damage never counts as a missing entry.
///
/// ```
/// use roster_snapshot::{Damage, Snapshot};
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let mut bytes = bytes.to_vec();
/// bytes[4096 + 20] ^= 1; // the first letter of "alice"
/// let snapshot = Snapshot::open(&bytes)?;
/// assert_eq!(snapshot.user_by_name(b"alice").unwrap_err(), Damage);
/// assert_eq!(snapshot.user_by_name(b"carol")?.unwrap().uid, 1002);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage;

impl core::fmt::Display for Damage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the snapshot is damaged: a record does not match its checksum")
    }
}

impl core::error::Error for Damage {}

/// Result of a lookup: found, missing, or unknown because of damage.
///
/// ```
/// use roster_snapshot::{Damage, LookupResult, Snapshot, User};
///
/// fn answer(result: LookupResult<User<'_>>) -> String {
///     match result {
///         Ok(Some(user)) => format!("uid {}", user.uid),
///         Ok(None) => "no such user".into(),
///         Err(Damage) => "input/output error".into(),
///     }
/// }
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let snapshot = Snapshot::open(bytes)?;
/// assert_eq!(answer(snapshot.user_by_name(b"alice")), "uid 1000");
/// assert_eq!(answer(snapshot.user_by_name(b"stranger")), "no such user");
/// # assert_eq!(answer(Err(Damage)), "input/output error");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type LookupResult<T> = Result<Option<T>, Damage>;

/// A passwd entry in a snapshot.
///
/// ```
/// use roster_snapshot::Snapshot;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let snapshot = Snapshot::open(bytes)?;
/// let carol = snapshot.user_by_name(b"carol")?.unwrap();
/// let record = carol.record();
/// assert_eq!((record.name, record.uid, record.gid), (&b"carol"[..], 1002, 100));
/// assert_eq!((record.dir, record.shell), (Some(&b"/home"[..]), None));
/// assert_eq!((carol.is_complete(), carol.has_complete_groups()), (true, false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    /// Uid.
    pub uid: u32,
    /// Primary gid.
    pub gid: u32,
    /// Name, password, GECOS, home directory, shell.
    pub text: EntryStrings<'a, 5>,
}

impl<'a> User<'a> {
    /// Returns whether any spelling of the name finds the entry.
    #[must_use]
    pub fn ignores_case(&self) -> bool {
        self.text.is_any_case()
    }

    /// Returns the fields of the entry.
    #[must_use]
    pub fn record(&self) -> record::User<'a> {
        let [name, passwd, gecos, dir, shell] = self.text.fields();
        let name = name.unwrap_or_default();
        record::User { name, passwd, uid: self.uid, gid: self.gid, gecos, dir, shell }
    }

    /// Returns whether the responder must be queried before this record may be used: a higher-priority domain is
    /// queried on demand.
    #[inline]
    #[must_use]
    pub fn needs_responder_first(&self) -> bool {
        self.text.has(flags::RESPONDER_FIRST)
    }

    /// Returns whether the snapshot lacks some of the supplementary groups.
    #[inline]
    #[must_use]
    pub fn groups_unknown(&self) -> bool {
        self.text.has(flags::LIST_UNKNOWN)
    }

    /// Returns whether the floor refuses the record. Lookups by key treat such a record as missing.
    #[inline]
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.text.is_refused()
    }

    /// Returns whether an enumeration returns the record.
    #[inline]
    #[must_use]
    pub fn is_listed(&self) -> bool {
        !self.needs_responder_first() && !self.is_refused()
    }

    /// Returns whether the record is usable without the responder.
    #[inline]
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.needs_responder_first()
    }

    /// Returns whether the supplementary groups are complete without the responder.
    #[inline]
    #[must_use]
    pub fn has_complete_groups(&self) -> bool {
        !self.text.has(flags::RESPONDER_FIRST | flags::LIST_UNKNOWN)
    }

    /// Returns the buffer size that the NSS module needs for this entry, in bytes.
    #[inline]
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.text.bytes().len()
    }
}

/// A group entry in a snapshot.
///
/// ```
/// use roster_snapshot::Snapshot;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let snapshot = Snapshot::open(bytes)?;
/// let staff = snapshot.group_by_name(b"staff")?.unwrap();
/// assert_eq!((staff.gid, staff.record().passwd), (10, Some(&b"*"[..])));
/// assert_eq!((staff.members.len(), staff.is_complete()), (4, true));
/// let both = snapshot.group_by_name(b"both")?.unwrap();
/// assert_eq!((both.needs_responder_first(), both.members_unknown()), (true, true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// Gid.
    pub gid: u32,
    /// Name, password.
    pub text: EntryStrings<'a, 2>,
    /// Member names in source order.
    pub members: Members<'a>,
}

impl<'a> Group<'a> {
    /// Returns whether any spelling of the name finds the entry.
    #[must_use]
    pub fn ignores_case(&self) -> bool {
        self.text.is_any_case()
    }

    /// Returns the fields of the entry, without members.
    #[must_use]
    pub fn record(&self) -> record::Group<'a> {
        let [name, passwd] = self.text.fields();
        record::Group { name: name.unwrap_or_default(), passwd, gid: self.gid }
    }

    /// Returns whether the responder must be queried before this record may be used: a higher-priority domain is
    /// queried on demand.
    #[inline]
    #[must_use]
    pub fn needs_responder_first(&self) -> bool {
        self.text.has(flags::RESPONDER_FIRST)
    }

    /// Returns whether the floor refuses the record. Lookups by key treat such a record as missing.
    #[inline]
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.text.is_refused()
    }

    /// Returns whether an enumeration returns the record.
    #[inline]
    #[must_use]
    pub fn is_listed(&self) -> bool {
        !self.needs_responder_first() && !self.is_refused()
    }

    /// Returns whether the snapshot lacks some of the members.
    #[inline]
    #[must_use]
    pub fn members_unknown(&self) -> bool {
        self.text.has(flags::LIST_UNKNOWN)
    }

    /// Returns whether the record and its members are usable without the responder.
    #[inline]
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.text.has(flags::RESPONDER_FIRST | flags::LIST_UNKNOWN)
    }

    /// Returns the size of the pointer-aligned buffer that the NSS module needs for this entry, in bytes. It holds the
    /// array of pointers with its NULL, the strings, and the slack of [`Members::copy`].
    #[inline]
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        let pointers = self.members.len().saturating_add(1).saturating_mul(size_of::<usize>());
        let strings = self.members.bytes().saturating_add(self.text.bytes().len());
        pointers.saturating_add(strings).saturating_add(layout::COPY_SLACK)
    }
}

/// A shadow entry in a shadow snapshot.
///
/// ```
/// use roster_snapshot::Snapshot;
///
/// let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/shadow.snap"));
/// let snapshot = Snapshot::open_shadow(bytes)?;
/// let alice = snapshot.shadow_by_name(b"alice")?.unwrap().record();
/// assert_eq!((alice.name, alice.passwd), (&b"alice"[..], Some(&b"*"[..])));
/// assert_eq!((alice.last_change, alice.max, alice.expire), (19000, 99999, 20000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Shadow<'a> {
    slot: &'a ShadowSlot,
    /// Name, encrypted password.
    pub text: EntryStrings<'a, 2>,
}

impl<'a> Shadow<'a> {
    /// Returns the fields of the entry.
    #[must_use]
    pub fn record(&self) -> record::Shadow<'a> {
        let [name, passwd] = self.text.fields();
        let [last_change, min, max, warn, inactive, expire] = self.slot.days.map(I32::get);
        let name = name.unwrap_or_default();
        let flag = self.slot.flag.get();
        record::Shadow { name, passwd, last_change, min, max, warn, inactive, expire, flag }
    }
}

impl<'a> Snapshot<'a> {
    /// Returns the user with that name. Without an entry of exactly that name, the name may include a domain, or be
    /// another spelling of a name in a domain that ignores case.
    pub fn user_by_name(&self, name: &[u8]) -> LookupResult<User<'a>> {
        match self.user_by_exact_name(name)? {
            None => self.user_by_other_name(name),
            found => Ok(found),
        }
    }

    /// Returns the user with exactly that name. Names of domains that ignore case are not found by it.
    #[inline]
    pub fn user_by_exact_name(&self, name: &[u8]) -> LookupResult<User<'a>> {
        self.by_user_name.find(hash::bytes(name, self.seed), |position| {
            let user = self.user_of(position)?;
            Ok((user.text.is_first(name) && !user.is_refused()).then_some(user))
        })
    }

    /// Returns the user with that uid.
    #[inline]
    pub fn user_by_uid(&self, uid: u32) -> LookupResult<User<'a>> {
        self.by_uid.find(hash::id(uid, self.seed), |position| {
            let user = self.user_of(position)?;
            Ok((user.uid == uid && !user.is_refused()).then_some(user))
        })
    }

    /// Returns the user at that position of the source, from 0, even if the floor refuses it. Returns `None` after the
    /// last user.
    pub fn user(&self, position: u32) -> LookupResult<User<'a>> {
        at(self.users, position, |_| self.user_of(position))
    }

    /// Returns the group with that name, by the same rules as [`Snapshot::user_by_name`].
    pub fn group_by_name(&self, name: &[u8]) -> LookupResult<Group<'a>> {
        match self.group_by_exact_name(name)? {
            None => self.group_by_other_name(name),
            found => Ok(found),
        }
    }

    /// Returns the group with exactly that name. Names of domains that ignore case are not found by it.
    #[inline]
    pub fn group_by_exact_name(&self, name: &[u8]) -> LookupResult<Group<'a>> {
        self.by_group_name.find(hash::bytes(name, self.seed), |position| {
            let group = self.group_of(position)?;
            Ok((group.text.is_first(name) && !group.is_refused()).then_some(group))
        })
    }

    /// Returns the group with that gid.
    #[inline]
    pub fn group_by_gid(&self, gid: u32) -> LookupResult<Group<'a>> {
        self.by_gid.find(hash::id(gid, self.seed), |position| {
            let group = self.group_of(position)?;
            Ok((group.gid == gid && !group.is_refused()).then_some(group))
        })
    }

    /// Returns the group at that position of the source, from 0, even if the floor refuses it. Returns `None` after the
    /// last group.
    pub fn group(&self, position: u32) -> LookupResult<Group<'a>> {
        at(self.groups, position, |_| self.group_of(position))
    }

    /// Returns the gids of all group lines with this member, in source order, including duplicates. Members need not be
    /// users.
    #[inline]
    pub fn supplementary(&self, member: &[u8]) -> LookupResult<Gids<'a>> {
        self.by_member.find(hash::bytes(member, self.seed), |position| {
            let slot = self.names.get(position as usize).ok_or(Damage)?;
            let membership = self.memberships.get(position as usize).ok_or(Damage)?;
            let check =
                self.identity.check_with_name(membership, slot, SectionId::Memberships, position);
            if !hash::agrees(membership.check.get(), check) {
                return Err(Damage);
            }
            if self.name_of(slot)? != member {
                return Ok(None);
            }
            let ids = self.group_ids.range(membership.first.get(), membership.count.get())?;
            Ok(Some(Gids {
                ids,
                gids: self.gids,
                sum: membership.sum.get(),
                served: self.limits.ids(),
            }))
        })
    }

    /// Returns the gids of the groups of a user. The name may be any name that finds the user.
    #[inline]
    pub fn groups_of_user(&self, name: &[u8]) -> LookupResult<Gids<'a>> {
        match self.supplementary(name) {
            Ok(None) => self.groups_by_other_name(name),
            found => found,
        }
    }

    /// Returns the name in a name slot, with the gids of all group lines with that name. Returns `None` after the last
    /// slot.
    pub fn supplementary_at(&self, position: u32) -> LookupResult<(&'a [u8], Gids<'a>)> {
        at(self.names, position, |slot| {
            let membership = self.memberships.get(position as usize).ok_or(Damage)?;
            let check =
                self.identity.check_with_name(membership, slot, SectionId::Memberships, position);
            if !hash::agrees(membership.check.get(), check) {
                return Err(Damage);
            }
            let ids = self.group_ids.range(membership.first.get(), membership.count.get())?;
            Ok((
                self.name_of(slot)?,
                Gids { ids, gids: self.gids, sum: membership.sum.get(), served: self.limits.ids() },
            ))
        })
    }

    /// Returns the shadow entry with that name, in a shadow snapshot.
    pub fn shadow_by_name(&self, name: &[u8]) -> LookupResult<Shadow<'a>> {
        self.by_shadow_name.find(hash::bytes(name, self.seed), |position| {
            let shadow = self.shadow_of(position)?;
            Ok((shadow.text.is_first(name)).then_some(shadow))
        })
    }

    /// Returns the shadow entry at that position of the source, from 0; `None` after the last entry.
    pub fn shadow(&self, position: u32) -> LookupResult<Shadow<'a>> {
        at(self.shadows, position, |_| self.shadow_of(position))
    }

    // One copy for lookups and enumeration: every process loads the module.
    #[inline(never)]
    fn user_of(&self, position: u32) -> Result<User<'a>, Damage> {
        let slot: &UserSlot = self.users.get(position as usize).ok_or(Damage)?;
        let (uid, gid) = (slot.uid.get(), slot.gid.get());
        let check = self.identity.check(slot, SectionId::Users, position);
        if !hash::agrees(slot.check.get(), check) || uid < self.limits.min_id {
            return Err(Damage);
        }
        let limits = self.limits.flags(|limits| limits.ids().has(uid) && limits.has_primary(gid));
        let text = EntryStrings::resolve_limited(
            slot.flags,
            limits,
            slot.lens,
            &slot.text,
            self.long_text,
        )?;
        Ok(User { uid, gid, text })
    }

    #[inline(never)]
    fn group_of(&self, position: u32) -> Result<Group<'a>, Damage> {
        let slot: &GroupSlot = self.groups.get(position as usize).ok_or(Damage)?;
        let gid = slot.gid.get();
        let check = self.identity.check(slot, SectionId::Groups, position);
        if !hash::agrees(slot.check.get(), check) || gid < self.limits.min_id {
            return Err(Damage);
        }
        let limits = self.limits.flags(|limits| limits.ids().has(gid));
        let text = EntryStrings::resolve_limited(
            slot.flags,
            limits,
            slot.lens,
            &slot.text,
            self.long_text,
        )?;
        let members = Members {
            ids: self.member_ids.range(slot.first.get(), slot.count.get())?,
            names: self.names,
            long_text: self.long_text,
            bytes: slot.member_bytes.get(),
            sum: slot.sum.get(),
        };
        Ok(Group { gid, text, members })
    }

    fn shadow_of(&self, position: u32) -> Result<Shadow<'a>, Damage> {
        let slot = self.shadows.get(position as usize).ok_or(Damage)?;
        if !hash::agrees(slot.check.get(), self.identity.check(slot, SectionId::Shadows, position))
        {
            return Err(Damage);
        }
        let text = EntryStrings::resolve(slot.flags, slot.lens, &slot.text, self.long_text)?;
        Ok(Shadow { slot, text })
    }

    fn name_of(&self, slot: &'a NameSlot) -> Result<&'a [u8], Damage> {
        member_lists::name(slot, self.long_text)
    }
}

#[inline]
fn at<'a, T, R>(
    slots: &'a [T],
    position: u32,
    read: impl FnOnce(&'a T) -> Result<R, Damage>,
) -> LookupResult<R> {
    slots.get(position as usize).map(read).transpose()
}

/// Returns whether the text of the entry is outside its slot.
#[inline]
fn is_long(slot_flags: u8) -> bool {
    slot_flags & flags::LONG != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{ACCOUNTS, SHADOW, with_flipped_bit, with_record, with_wide_ids};
    use crate::layout::{Bucket, Membership};
    use core::mem::MaybeUninit;
    use zerocopy::little_endian::{U32, U64};
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    const LONG_GECOS: &[u8] = &[b'g'; 120];

    fn accounts() -> Snapshot<'static> {
        Snapshot::open(ACCOUNTS).unwrap()
    }

    fn user(
        name: &'static [u8],
        uid: u32,
        gecos: Option<&'static [u8]>,
        shell: Option<&'static [u8]>,
    ) -> record::User<'static> {
        let (passwd, dir) = (Some(&b"x"[..]), Some(&b"/home"[..]));
        record::User { name, passwd, uid, gid: 100, gecos, dir, shell }
    }

    /// The users of the file, each with its two flags: responder first, and groups unknown.
    fn users() -> [(record::User<'static>, bool, bool); 5] {
        let (empty, shell) = (Some(&b""[..]), Some(&b"/bin/sh"[..]));
        [
            (user(b"alice", 1000, Some(b"Alice"), shell), false, false),
            (user(b"bob", 10, None, None), true, false),
            (user(b"carol", 1002, Some(LONG_GECOS), None), false, true),
            (user(b"fifteen-letters", 1003, empty, shell), true, true),
            (user(b"sixteen-letters!", u32::MAX, empty, empty), false, false),
        ]
    }

    #[test]
    fn users_found_by_name_id_position() {
        let snapshot = accounts();
        for (position, (expected, ask_first, groups_unknown)) in (0..).zip(users()) {
            for found in [
                snapshot.user_by_name(expected.name),
                snapshot.user_by_uid(expected.uid),
                snapshot.user(position),
            ] {
                let found = found.unwrap().unwrap();
                assert_eq!(found.record(), expected);
                assert_eq!(
                    (found.needs_responder_first(), found.is_complete()),
                    (ask_first, !ask_first)
                );
                assert_eq!(found.groups_unknown(), groups_unknown);
                assert_eq!(found.has_complete_groups(), !ask_first && !groups_unknown);
                let fields = [expected.passwd, expected.gecos, expected.dir, expected.shell];
                let bytes = fields.iter().map(|field| field.unwrap_or_default().len() + 1);
                assert_eq!(found.buffer_bytes(), expected.name.len() + 1 + bytes.sum::<usize>());
            }
        }
        for absent in [&b""[..], b"alic", b"alice2", b"stranger", b"staff"] {
            assert!(snapshot.user_by_name(absent).unwrap().is_none());
        }
        assert!(snapshot.user_by_uid(100).unwrap().is_none());
        assert!(snapshot.user(5).unwrap().is_none());
        assert!(snapshot.user(u32::MAX).unwrap().is_none());
    }

    type Named = (&'static [u8], u32, Option<&'static [u8]>, bool, bool);

    /// Name, gid, password, responder first, members unknown; and the members.
    fn groups() -> [(Named, Vec<&'static [u8]>); 4] {
        let star = Some(&b"*"[..]);
        [
            (
                (b"staff", 10, star, false, false),
                vec![b"alice", b"bob", b"fifteen-letters", b"alice"],
            ),
            ((b"empty", 100, None, true, false), vec![]),
            ((LONG_GECOS, 101, star, false, true), vec![b"sixteen-letters!", b"bob", b"stranger"]),
            ((b"both", u32::MAX, star, true, true), vec![b"bob"]),
        ]
    }

    /// Returns the names of a list, and their offsets in a copy of it.
    fn listed<'a>(members: &Members<'a>) -> Result<(Vec<&'a [u8]>, Vec<usize>), Damage> {
        let room = members.bytes() + layout::COPY_SLACK;
        let (mut out, mut places) = (vec![MaybeUninit::new(0); room], vec![0; members.len()]);
        members.copy(&mut out, &mut places, |rest| room - rest.len())?;
        Ok((members.iter().collect::<Result<_, _>>()?, places))
    }

    fn assert_groups(snapshot: &Snapshot<'_>) {
        for (position, ((name, gid, passwd, ask_first, unknown), names)) in (0..).zip(groups()) {
            for found in
                [snapshot.group_by_name(name), snapshot.group_by_gid(gid), snapshot.group(position)]
            {
                let found = found.unwrap().unwrap();
                assert_eq!(found.record(), record::Group { name, passwd, gid });
                assert_eq!(
                    (found.needs_responder_first(), found.members_unknown()),
                    (ask_first, unknown)
                );
                assert_eq!(found.is_complete(), !ask_first && !unknown);
                let (listed, starts) = listed(&found.members).unwrap();
                assert_eq!(listed, names);
                let ends = names.iter().scan(0, |end, name| {
                    let start = *end;
                    *end += name.len() + 1;
                    Some(start)
                });
                assert_eq!(starts, ends.collect::<Vec<_>>());
                let strings = name.len() + 1 + passwd.unwrap_or_default().len() + 1;
                let pointers = (names.len() + 1) * size_of::<usize>();
                let bytes = pointers + strings + found.members.bytes() + layout::COPY_SLACK;
                assert_eq!(found.buffer_bytes(), bytes);
            }
        }
    }

    #[test]
    fn groups_found_by_name_id_position() {
        let snapshot = accounts();
        assert_groups(&snapshot);
        assert!(snapshot.group_by_name(b"alice").unwrap().is_none());
        // Only initgroups uses the line with this gid.
        assert!(snapshot.group_by_gid(77).unwrap().is_none());
        assert!(snapshot.group(4).unwrap().is_none());
    }

    fn gids(found: LookupResult<Gids<'_>>) -> Option<Vec<u32>> {
        let found = found.unwrap()?;
        let mut list = Vec::new();
        found.each(|gid| list.push(gid)).unwrap();
        assert_eq!((found.len(), found.is_empty()), (list.len(), list.is_empty()));
        Some(list)
    }

    /// Every name of the file, with the groups that initgroups counts.
    fn memberships() -> [(&'static [u8], Vec<u32>); 6] {
        [
            (b"alice", vec![10]),
            (b"bob", vec![10, 101, u32::MAX, 77]),
            (b"carol", vec![]),
            (b"fifteen-letters", vec![10]),
            (b"sixteen-letters!", vec![101]),
            (b"stranger", vec![101]),
        ]
    }

    fn assert_memberships(snapshot: &Snapshot<'_>) {
        for (position, (name, expected)) in (0..).zip(memberships()) {
            assert_eq!(gids(snapshot.supplementary(name)), Some(expected.clone()));
            let (found, list) = snapshot.supplementary_at(position).unwrap().unwrap();
            assert_eq!((found, gids(Ok(Some(list)))), (name, Some(expected)));
            assert_eq!(snapshot.name(position), Ok(Some(name)));
        }
    }

    #[test]
    fn memberships_found_by_name_position() {
        let snapshot = accounts();
        assert_memberships(&snapshot);
        assert_eq!(gids(snapshot.supplementary(b"nobody")), None);
        assert!(snapshot.supplementary_at(6).unwrap().is_none());
        assert_eq!(snapshot.name(6), Ok(None));
    }

    #[test]
    fn lists_of_four_byte_numbers_read_alike() {
        let file = with_wide_ids(ACCOUNTS);
        let snapshot = Snapshot::open(&file).unwrap();
        assert_groups(&snapshot);
        assert_memberships(&snapshot);
    }

    #[test]
    fn shadow_found_by_name_position() {
        let snapshot = Snapshot::open_shadow(SHADOW).unwrap();
        let long = &[b'h'; 120];
        let entries = [(&b"alice"[..], &b"*"[..], 19000, u64::MAX), (b"carol", long, -1, 3)];
        for (position, (name, passwd, last_change, flag)) in (0..).zip(entries) {
            let expected = record::Shadow {
                name,
                passwd: Some(passwd),
                last_change,
                min: 1,
                max: 99999,
                warn: 7,
                inactive: 30,
                expire: 20000,
                flag,
            };
            for found in [snapshot.shadow_by_name(name), snapshot.shadow(position)] {
                assert_eq!(found.unwrap().unwrap().record(), expected);
            }
        }
        assert!(snapshot.shadow_by_name(b"bob").unwrap().is_none());
        assert!(snapshot.shadow(2).unwrap().is_none());
    }

    #[test]
    fn record_other_than_checksum_is_damage() {
        let file = with_flipped_bit::<UserSlot>(ACCOUNTS, SectionId::Users, 0);
        let snapshot = Snapshot::open(&file).unwrap();
        assert_eq!(snapshot.user(0).map(drop_found), Err(Damage));
        assert_eq!(snapshot.user_by_name(b"alice").map(drop_found), Err(Damage));
        assert_eq!(snapshot.user_by_uid(1000).map(drop_found), Err(Damage));
        assert!(snapshot.user(1).is_ok());

        let file = with_flipped_bit::<GroupSlot>(ACCOUNTS, SectionId::Groups, 0);
        let snapshot = Snapshot::open(&file).unwrap();
        assert_eq!(snapshot.group(0).map(drop_found), Err(Damage));
        assert_eq!(snapshot.group_by_name(b"staff").map(drop_found), Err(Damage));
        assert_eq!(snapshot.group_by_gid(10).map(drop_found), Err(Damage));
        assert!(snapshot.group(1).is_ok());

        let file = with_flipped_bit::<Membership>(ACCOUNTS, SectionId::Memberships, 1);
        let snapshot = Snapshot::open(&file).unwrap();
        assert_eq!(snapshot.supplementary(b"bob").map(drop_found), Err(Damage));
        assert_eq!(snapshot.supplementary_at(1).map(drop_found), Err(Damage));
        assert!(snapshot.supplementary_at(0).is_ok());

        let file = with_flipped_bit::<ShadowSlot>(SHADOW, SectionId::Shadows, 0);
        let snapshot = Snapshot::open_shadow(&file).unwrap();
        assert_eq!(snapshot.shadow(0).map(drop_found), Err(Damage));
        assert_eq!(snapshot.shadow_by_name(b"alice").map(drop_found), Err(Damage));
        assert!(snapshot.shadow(1).is_ok());
    }

    fn drop_found<T>(found: Option<T>) -> Option<()> {
        found.map(drop)
    }

    /// The ids of bob and staff equal the minimum in the header.
    #[test]
    fn id_below_minimum_is_damage() {
        assert_eq!(accounts().min_id(), 10);
        let file = with_record(ACCOUNTS, SectionId::Users, 1, |slot: &mut UserSlot| {
            slot.uid = U32::new(9);
        });
        let snapshot = Snapshot::open(&file).unwrap();
        assert_eq!(snapshot.user(1).map(drop_found), Err(Damage));
        let file = with_record(ACCOUNTS, SectionId::Groups, 0, |slot: &mut GroupSlot| {
            slot.gid = U32::new(9);
        });
        let snapshot = Snapshot::open(&file).unwrap();
        assert_eq!(snapshot.group(0).map(drop_found), Err(Damage));
    }

    fn with_floor(min_id: u32, gids: &[u32]) -> Snapshot<'static> {
        let mut snapshot = accounts();
        snapshot.set_floor(&Floor::new(min_id, gids.iter().copied()).unwrap());
        snapshot
    }

    /// Returns the users that each key finds, and compares them with the enumeration.
    fn served_users(snapshot: &Snapshot<'_>) -> Vec<&'static [u8]> {
        let mut served = Vec::new();
        for (position, (expected, ..)) in (0..).zip(users()) {
            let by_name = snapshot.user_by_name(expected.name).unwrap();
            let by_uid = snapshot.user_by_uid(expected.uid).unwrap();
            let listed = snapshot.user(position).unwrap().unwrap();
            assert_eq!(by_name.is_some(), !listed.is_refused());
            assert_eq!(by_uid.is_some(), !listed.is_refused());
            assert_eq!(listed.is_listed(), !listed.is_refused() && !listed.needs_responder_first());
            if let Some(user) = by_name {
                assert_eq!(user.record(), record::User { passwd: Some(b"*"), ..expected });
                served.push(expected.name);
            }
        }
        served
    }

    #[test]
    fn users_below_floor_are_absent() {
        let most = [&b"alice"[..], b"carol", b"fifteen-letters"];
        assert_eq!(served_users(&with_floor(1000, &[100])), most);
        assert_eq!(served_users(&with_floor(1000, &[99, 100, 101])), most);
        assert_eq!(served_users(&with_floor(100, &[])), most);
        assert_eq!(served_users(&with_floor(1001, &[100])), most[1..]);
        assert_eq!(served_users(&with_floor(10, &[])), [&b"alice"[..], b"bob", b"carol", most[2]]);
        let none: [&[u8]; 0] = [];
        assert_eq!(served_users(&with_floor(1000, &[])), none);
        assert_eq!(served_users(&with_floor(101, &[99])), none);
    }

    #[test]
    fn groups_below_floor_are_absent() {
        for (min_id, expected) in
            [(1, 0..3), (10, 0..3), (11, 1..3), (100, 1..3), (101, 2..3), (102, 3..3)]
        {
            // Listed primary gids have no effect on groups.
            let snapshot = with_floor(min_id, &[1, 10, 100]);
            for (position, ((name, gid, passwd, ask_first, _), _)) in (0..).zip(groups()) {
                let found = snapshot.group_by_name(name).unwrap();
                let listed = snapshot.group(position).unwrap().unwrap();
                // One group has no password that `*` could replace.
                let is_served = expected.contains(&position) && passwd.is_some();
                assert_eq!(found.is_some(), is_served, "{min_id} {gid}");
                assert_eq!(snapshot.group_by_gid(gid).unwrap().is_some(), is_served);
                assert_eq!(
                    (listed.is_refused(), listed.is_listed()),
                    (!is_served, is_served && !ask_first)
                );
                if let Some(group) = found {
                    assert_eq!(group.record(), record::Group { name, passwd, gid });
                }
            }
        }
    }

    #[test]
    fn gids_below_floor_are_left_out() {
        for min_id in [1, 50, 100, 102, 1000] {
            let snapshot = with_floor(min_id, &[10, 77]);
            for name in [&b"alice"[..], b"bob", b"stranger"] {
                let all = accounts().supplementary(name).unwrap().unwrap();
                let found = snapshot.supplementary(name).unwrap().unwrap();
                let (mut expected, mut given) = (Vec::new(), Vec::new());
                all.each(|gid| expected.push(gid)).unwrap();
                expected.retain(|&gid| gid >= min_id && gid != u32::MAX);
                found.each(|gid| given.push(gid)).unwrap();
                assert_eq!(given, expected, "{min_id}");
                assert_eq!(found.len(), all.len());
                assert_eq!([0, min_id].map(|gid| found.served().has(gid)), [false, true]);
            }
        }
    }

    #[test]
    fn index_entry_of_missing_record_is_damage() {
        let astray = |section| {
            with_record(ACCOUNTS, section, 0, |bucket: &mut Bucket| {
                bucket.positions = [U32::new(99); layout::BUCKET_KEYS];
            })
        };
        let file = astray(SectionId::ByUserName);
        let snapshot = Snapshot::open(&file).unwrap();
        assert_eq!(snapshot.user_by_name(b"alice").map(drop_found), Err(Damage));
        assert!(snapshot.user_by_uid(1000).is_ok());
        let file = astray(SectionId::ByGid);
        let snapshot = Snapshot::open(&file).unwrap();
        assert_eq!(snapshot.group_by_gid(10).map(drop_found), Err(Damage));
        let file = astray(SectionId::ByMember);
        let snapshot = Snapshot::open(&file).unwrap();
        assert_eq!(snapshot.supplementary(b"bob").map(drop_found), Err(Damage));
    }

    /// Two keys may have the same fingerprint: the record decides.
    #[test]
    fn index_entry_of_other_record_is_absence() {
        let astray = |file, section, position| {
            with_record(file, section, 0, |bucket: &mut Bucket| {
                bucket.positions = [U32::new(position); layout::BUCKET_KEYS];
            })
        };
        let file = astray(ACCOUNTS, SectionId::ByUserName, 1);
        let snapshot = Snapshot::open(&file).unwrap();
        assert!(snapshot.user_by_name(b"alice").unwrap().is_none());
        let file = astray(ACCOUNTS, SectionId::ByUid, 1);
        assert!(Snapshot::open(&file).unwrap().user_by_uid(1000).unwrap().is_none());
        let file = astray(ACCOUNTS, SectionId::ByGroupName, 1);
        assert!(Snapshot::open(&file).unwrap().group_by_name(b"staff").unwrap().is_none());
        let file = astray(ACCOUNTS, SectionId::ByGid, 1);
        assert!(Snapshot::open(&file).unwrap().group_by_gid(10).unwrap().is_none());
        let file = astray(ACCOUNTS, SectionId::ByMember, 0);
        assert!(Snapshot::open(&file).unwrap().supplementary(b"bob").unwrap().is_none());
        let file = astray(SHADOW, SectionId::ByShadowName, 1);
        let snapshot = Snapshot::open_shadow(&file).unwrap();
        assert!(snapshot.shadow_by_name(b"alice").unwrap().is_none());
    }

    #[test]
    fn list_outside_its_section_is_damage() {
        for (first, count) in [(0, 99), (99, 1), (u64::MAX, 1), (0, u32::MAX)] {
            let file = with_record(ACCOUNTS, SectionId::Groups, 0, |slot: &mut GroupSlot| {
                (slot.first, slot.count) = (U64::new(first), U32::new(count));
            });
            let snapshot = Snapshot::open(&file).unwrap();
            assert_eq!(snapshot.group(0).map(drop_found), Err(Damage));
            let change = |slot: &mut Membership| {
                (slot.first, slot.count) = (U64::new(first), U32::new(count));
            };
            let file = with_record(ACCOUNTS, SectionId::Memberships, 1, change);
            let snapshot = Snapshot::open(&file).unwrap();
            assert_eq!(snapshot.supplementary(b"bob").map(drop_found), Err(Damage));
            assert_eq!(snapshot.supplementary_at(1).map(drop_found), Err(Damage));
        }
    }

    #[test]
    fn list_of_other_members_is_damage() {
        let file = with_record(ACCOUNTS, SectionId::Groups, 0, |slot: &mut GroupSlot| {
            slot.first = U64::new(1);
        });
        let members = Snapshot::open(&file).unwrap().group(0).unwrap().unwrap().members;
        assert_eq!((members.verify(), listed(&members)), (Err(Damage), Err(Damage)));
    }

    #[test]
    fn damage_reads_as_sentence() {
        let text = "the snapshot is damaged: a record does not match its checksum";
        assert_eq!(std::format!("{Damage}"), text);
    }
}
