//! The snapshot: a file of users and groups, and its reader.
//!
//! A [`Snapshot`] is a view of bytes, as a rule of a mapped file. Opening it reads the header
//! only; every offset, index and checksum after that is checked when it is used, so that any
//! bytes whatever give an answer or [`Damage`], never a panic, an endless loop or a read out of
//! bounds. Nothing here allocates, locks or calls the system. [`layout`] and
//! `docs/snapshot-format.md` describe the bytes; `roster-snapshot-build` writes them.

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

pub mod hash;
mod index;
pub mod layout;
mod lists;
mod open;
mod text;

pub use index::Index;
pub use lists::{Gids, Members};
pub use open::{OpenError, Section, Shape, Snapshot};
pub use text::Text;

use layout::{GroupSlot, NameSlot, SectionId, ShadowSlot, UserSlot, flags};
use roster_record as record;
use zerocopy::little_endian::I32;

/// The bytes contradict their checksum or themselves. It is never taken for absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage;

impl core::fmt::Display for Damage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the snapshot is damaged: a record does not match its checksum")
    }
}

impl core::error::Error for Damage {}

/// What a look-up gives: found, absent, or neither can be told.
pub type Found<T> = Result<Option<T>, Damage>;

/// A passwd entry inside a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Name, password, GECOS, home folder, shell.
    pub text: Text<'a, 5>,
}

impl<'a> User<'a> {
    /// The entry field by field.
    #[must_use]
    pub fn record(&self) -> record::User<'a> {
        let [name, passwd, gecos, dir, shell] = self.text.fields();
        let name = name.unwrap_or_default();
        record::User { name, passwd, uid: self.uid, gid: self.gid, gecos, dir, shell }
    }

    /// Whether the responder has to be asked before this record may be used: a domain that goes
    /// before this one's is asked on demand.
    #[inline]
    #[must_use]
    pub fn ask_first(&self) -> bool {
        self.text.has(flags::ASK_FIRST)
    }

    /// Whether its supplementary groups have to be asked for: those here are not all.
    #[inline]
    #[must_use]
    pub fn groups_unknown(&self) -> bool {
        self.text.has(flags::LIST_UNKNOWN)
    }

    /// Whether nobody has to be asked about the record.
    #[inline]
    #[must_use]
    pub fn is_sure(&self) -> bool {
        !self.ask_first()
    }

    /// Whether nobody has to be asked about its supplementary groups.
    #[inline]
    #[must_use]
    pub fn is_sure_of_groups(&self) -> bool {
        !self.text.has(flags::ASK_FIRST | flags::LIST_UNKNOWN)
    }

    /// Bytes of buffer that the NSS module asks of a caller for this answer.
    #[inline]
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.text.bytes().len()
    }
}

/// A group entry inside a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// Group id.
    pub gid: u32,
    /// Name, password.
    pub text: Text<'a, 2>,
    /// Member names in source order.
    pub members: Members<'a>,
}

impl<'a> Group<'a> {
    /// The entry field by field, without members.
    #[must_use]
    pub fn record(&self) -> record::Group<'a> {
        let [name, passwd] = self.text.fields();
        record::Group { name: name.unwrap_or_default(), passwd, gid: self.gid }
    }

    /// Whether the responder has to be asked before this record may be used: a domain that goes
    /// before this one's is asked on demand.
    #[inline]
    #[must_use]
    pub fn ask_first(&self) -> bool {
        self.text.has(flags::ASK_FIRST)
    }

    /// Whether its members have to be asked for: those here are not all.
    #[inline]
    #[must_use]
    pub fn members_unknown(&self) -> bool {
        self.text.has(flags::LIST_UNKNOWN)
    }

    /// Whether nobody has to be asked about the record and its members.
    #[inline]
    #[must_use]
    pub fn is_sure(&self) -> bool {
        !self.text.has(flags::ASK_FIRST | flags::LIST_UNKNOWN)
    }

    /// Bytes of pointer-aligned buffer that the NSS module asks of a caller for this answer: the
    /// array of pointers with its NULL, the strings, and the slack of [`Members::copy`].
    #[inline]
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        let pointers = self.members.len().saturating_add(1).saturating_mul(size_of::<usize>());
        let strings = self.members.bytes().saturating_add(self.text.bytes().len());
        pointers.saturating_add(strings).saturating_add(layout::COPY_SLACK)
    }
}

/// A shadow entry inside a shadow snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Shadow<'a> {
    slot: &'a ShadowSlot,
    /// Name, encrypted password.
    pub text: Text<'a, 2>,
}

impl<'a> Shadow<'a> {
    /// The entry field by field.
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
    /// The user of that name.
    #[inline]
    pub fn user_by_name(&self, name: &[u8]) -> Found<User<'a>> {
        self.by_user_name.find(hash::bytes(name, self.seed), |position| {
            let user = self.user_of(position)?;
            Ok((user.text.is_first(name)).then_some(user))
        })
    }

    /// The user of that id.
    #[inline]
    pub fn user_by_uid(&self, uid: u32) -> Found<User<'a>> {
        self.by_uid.find(hash::id(uid, self.seed), |position| {
            let user = self.user_of(position)?;
            Ok((user.uid == uid).then_some(user))
        })
    }

    /// The entry at that position of the source, from 0; `None` past the last.
    pub fn user(&self, position: u32) -> Found<User<'a>> {
        at(self.users, position, |_| self.user_of(position))
    }

    /// The group of that name.
    #[inline]
    pub fn group_by_name(&self, name: &[u8]) -> Found<Group<'a>> {
        self.by_group_name.find(hash::bytes(name, self.seed), |position| {
            let group = self.group_of(position)?;
            Ok((group.text.is_first(name)).then_some(group))
        })
    }

    /// The group of that id.
    #[inline]
    pub fn group_by_gid(&self, gid: u32) -> Found<Group<'a>> {
        self.by_gid.find(hash::id(gid, self.seed), |position| {
            let group = self.group_of(position)?;
            Ok((group.gid == gid).then_some(group))
        })
    }

    /// The entry at that position of the source, from 0; `None` past the last.
    pub fn group(&self, position: u32) -> Found<Group<'a>> {
        at(self.groups, position, |_| self.group_of(position))
    }

    /// The gid of every group line that names this member, in source order, duplicates included;
    /// members that are no user have theirs too.
    #[inline]
    pub fn supplementary(&self, member: &[u8]) -> Found<Gids<'a>> {
        self.by_member.find(hash::bytes(member, self.seed), |position| {
            let slot = self.names.get(position as usize).ok_or(Damage)?;
            let membership = self.memberships.get(position as usize).ok_or(Damage)?;
            let check = hash::check_with_name(membership, slot, SectionId::Memberships, position);
            if !hash::agrees(membership.check.get(), check) {
                return Err(Damage);
            }
            if self.name_of(slot)? != member {
                return Ok(None);
            }
            let ids = self.group_ids.range(membership.first.get(), membership.count.get())?;
            Ok(Some(Gids { ids, gids: self.gids, sum: membership.sum.get() }))
        })
    }

    /// The name in that name slot with the gid of every group line that names it; `None` past the
    /// last.
    pub fn supplementary_at(&self, position: u32) -> Found<(&'a [u8], Gids<'a>)> {
        at(self.names, position, |slot| {
            let membership = self.memberships.get(position as usize).ok_or(Damage)?;
            let check = hash::check_with_name(membership, slot, SectionId::Memberships, position);
            if !hash::agrees(membership.check.get(), check) {
                return Err(Damage);
            }
            let ids = self.group_ids.range(membership.first.get(), membership.count.get())?;
            Ok((self.name_of(slot)?, Gids { ids, gids: self.gids, sum: membership.sum.get() }))
        })
    }

    /// The shadow entry of that name, in a shadow snapshot.
    pub fn shadow_by_name(&self, name: &[u8]) -> Found<Shadow<'a>> {
        self.by_shadow_name.find(hash::bytes(name, self.seed), |position| {
            let shadow = self.shadow_of(position)?;
            Ok((shadow.text.is_first(name)).then_some(shadow))
        })
    }

    /// The shadow entry at that position of the source, from 0; `None` past the last.
    pub fn shadow(&self, position: u32) -> Found<Shadow<'a>> {
        at(self.shadows, position, |_| self.shadow_of(position))
    }

    #[inline]
    fn user_of(&self, position: u32) -> Result<User<'a>, Damage> {
        let slot: &UserSlot = self.users.get(position as usize).ok_or(Damage)?;
        let (uid, gid) = (slot.uid.get(), slot.gid.get());
        let check = hash::check(slot, SectionId::Users, position);
        if !hash::agrees(slot.check.get(), check) || uid < self.min_id {
            return Err(Damage);
        }
        let text = Text::resolve(slot.flags, slot.lens, &slot.text, self.long_text)?;
        Ok(User { uid, gid, text })
    }

    #[inline]
    fn group_of(&self, position: u32) -> Result<Group<'a>, Damage> {
        let slot: &GroupSlot = self.groups.get(position as usize).ok_or(Damage)?;
        let gid = slot.gid.get();
        let check = hash::check(slot, SectionId::Groups, position);
        if !hash::agrees(slot.check.get(), check) || gid < self.min_id {
            return Err(Damage);
        }
        let text = Text::resolve(slot.flags, slot.lens, &slot.text, self.long_text)?;
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
        if !hash::agrees(slot.check.get(), hash::check(slot, SectionId::Shadows, position)) {
            return Err(Damage);
        }
        let text = Text::resolve(slot.flags, slot.lens, &slot.text, self.long_text)?;
        Ok(Shadow { slot, text })
    }

    fn name_of(&self, slot: &'a NameSlot) -> Result<&'a [u8], Damage> {
        lists::name(slot, self.long_text)
    }
}

#[inline]
fn at<'a, T, R>(
    slots: &'a [T],
    position: u32,
    read: impl FnOnce(&'a T) -> Result<R, Damage>,
) -> Found<R> {
    slots.get(position as usize).map(read).transpose()
}

/// Whether the entry's text lives outside its slot.
#[inline]
fn is_long(slot_flags: u8) -> bool {
    slot_flags & flags::LONG != 0
}
