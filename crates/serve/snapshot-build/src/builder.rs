// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collects entries and builds a [`SnapshotImage`] from them.

use crate::image::{HeaderFields, SnapshotImage};
use crate::index::{IndexBuilder, ProbeTooLong};
use crate::invert_memberships::{InitgroupsLine, invert};
use crate::name_table::{NameTable, name_bytes};
use crate::parallel::{self, cut, threads};
use crate::string_slots;
use crate::too_large::TooLarge;
use roster_passwd_format::{Group, Shadow, User, is_nis};
use roster_snapshot::hash::{self, ChecksumIdentity, NameSum, Seed};
use roster_snapshot::layout::{
    Bucket, DOMAIN_NAME_BYTES, DomainOptionsSlot, DomainSlot, GroupSlot, LongText, NameSlot,
    RESPONDER_BYTES, SectionId, ShadowSlot, SnapshotKind, UserSlot, flags,
};
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, FromZeros};

/// Maximum number of seeds to try. One is enough, except for keys that were made to collide.
const SEEDS_MAX: u64 = 64;

/// Kinds of lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupKey {
    /// User by name.
    UserName,
    /// User by uid.
    Uid,
    /// Group by name.
    GroupName,
    /// Group by gid.
    Gid,
    /// Shadow entry by name.
    ShadowName,
}

/// An entry that enumeration returns, and that lookups by `key` do not find, because an earlier entry has the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The kind of lookup.
    pub key: LookupKey,
    /// Position of the entry.
    pub position: u32,
    /// Position of the entry that lookups find.
    pub first: u32,
}

/// Uses of a group line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberVisibility {
    /// The group lists the members, and initgroups counts the group for them. This is the normal case.
    GroupAndInitgroups,
    /// Only the group lists the members.
    GroupOnly,
}

/// Parts of a record that only the responder has. By default, a record is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IncompleteFlags {
    /// A higher-priority domain is queried on demand, and may have the same name or id.
    pub responder_first: bool,
    /// The snapshot lacks the groups of the user, or the members of the group.
    pub list_unknown: bool,
}

impl IncompleteFlags {
    fn flags(self) -> u8 {
        let ask_first = if self.responder_first { flags::RESPONDER_FIRST } else { 0 };
        let list_unknown = if self.list_unknown { flags::LIST_UNKNOWN } else { 0 };
        ask_first | list_unknown
    }
}

/// Options of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainOptions<'a> {
    /// Another name of the domain. Empty without one.
    pub short_name: &'a str,
    /// Bits of [`domain_flags`](roster_snapshot::layout::domain_flags).
    pub flags: u32,
}

/// Id of an added user, for member lists that are already resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberId(u32);

/// Result of [`SnapshotBuilder::finish`].
pub struct BuiltSnapshot {
    /// The snapshot image.
    pub image: SnapshotImage,
    /// Entries that lookups do not find.
    pub duplicates: Vec<Duplicate>,
}

/// Builds a snapshot from entries in source order.
pub struct SnapshotBuilder {
    min_id: u32,
    identity: ChecksumIdentity,
    responder: [u8; RESPONDER_BYTES],
    users: Vec<UserSlot>,
    groups: Vec<GroupSlot>,
    shadows: Vec<ShadowSlot>,
    names: NameTable,
    long_text: Vec<u8>,
    member_ids: Vec<U32>,
    /// Members of lines that only initgroups uses.
    initgroups_ids: Vec<U32>,
    lines: Vec<InitgroupsLine>,
    domains: Vec<DomainSlot>,
    domain_options: Vec<DomainOptionsSlot>,
    /// The flags of the entries that are added next.
    entry_flags: u8,
}

impl SnapshotBuilder {
    /// Creates an empty builder. Readers treat ids below `min_id` as damage.
    #[must_use]
    pub fn new(min_id: u32) -> Self {
        Self {
            min_id,
            identity: ChecksumIdentity(RandomState::new().hash_one(0)),
            responder: [0; RESPONDER_BYTES],
            users: Vec::new(),
            groups: Vec::new(),
            shadows: Vec::new(),
            names: NameTable::default(),
            long_text: Vec::new(),
            member_ids: Vec::new(),
            initgroups_ids: Vec::new(),
            lines: Vec::new(),
            domains: Vec::new(),
            domain_options: Vec::new(),
            entry_flags: 0,
        }
    }

    /// Sets whether any spelling of a name finds the entries that are added from now on.
    pub fn set_any_case(&mut self, is_any_case: bool) {
        self.entry_flags = if is_any_case { flags::ANY_CASE } else { 0 };
    }

    /// Sets the identity, which is random by default. With equal entries it makes equal files. Files that replace each
    /// other at one path need different identities.
    #[must_use]
    pub fn identity(mut self, identity: u64) -> Self {
        self.identity = ChecksumIdentity(identity);
        self
    }

    /// Reserves memory for that many users, groups and members.
    pub fn reserve(&mut self, users: usize, groups: usize, members: usize) {
        self.users.reserve(users);
        self.names.reserve(users);
        self.groups.reserve(groups);
        self.lines.reserve(groups);
        self.member_ids.reserve(members);
    }

    /// Marks the snapshot as incomplete, and sets the absolute path of the responder's socket.
    pub fn responder(&mut self, path: &[u8]) -> Result<(), TooLarge> {
        if path.first() != Some(&b'/') || path.contains(&0) {
            return Err(TooLarge("a responder's path that is not absolute"));
        }
        if path.len() >= RESPONDER_BYTES {
            return Err(TooLarge("a responder's path of more than 79 bytes"));
        }
        self.responder = [0; RESPONDER_BYTES];
        self.responder[..path.len()].copy_from_slice(path);
        Ok(())
    }

    /// Adds a passwd entry. Callers add all users before the first group, so that a new member does not renumber them.
    /// Returns the id with which groups may list the user.
    pub fn user(&mut self, user: &User<'_>, gaps: IncompleteFlags) -> Result<MemberId, TooLarge> {
        let position = position(self.users.len())?;
        let mut slot = UserSlot::new_zeroed();
        let text = [Some(user.name), user.passwd, user.gecos, user.dir, user.shell];
        (slot.flags, slot.lens) =
            string_slots::write_text(text, &mut slot.text, &mut self.long_text)?;
        slot.flags |= gaps.flags() | self.entry_flags;
        slot.uid = U32::new(user.uid);
        slot.gid = U32::new(user.gid);
        slot.check = U32::new(self.identity.check(&slot, SectionId::Users, position));
        self.users.push(slot);
        Ok(MemberId(self.names.intern(user.name, &mut self.long_text)?))
    }

    /// Adds a group entry with the names of its members.
    pub fn group<'m>(
        &mut self,
        group: &Group<'_>,
        members: impl Iterator<Item = &'m [u8]>,
        count_for: MemberVisibility,
        gaps: IncompleteFlags,
    ) -> Result<(), TooLarge> {
        let first = self.member_ids.len();
        for member in members {
            let number = self.names.intern(member, &mut self.long_text)?;
            self.member_ids.push(U32::new(number));
        }
        self.add_group(group, first, count_for, gaps)
    }

    /// Adds a group entry with users that were added earlier as members.
    pub fn group_with_ids(
        &mut self,
        group: &Group<'_>,
        members: &[MemberId],
        count_for: MemberVisibility,
        gaps: IncompleteFlags,
    ) -> Result<(), TooLarge> {
        let first = self.member_ids.len();
        self.member_ids.extend(members.iter().map(|&MemberId(number)| U32::new(number)));
        self.add_group(group, first, count_for, gaps)
    }

    /// Adds a group entry with the ids from `first` on as members. [`sum_members`] adds their sum and the checksum when
    /// all names are known.
    fn add_group(
        &mut self,
        group: &Group<'_>,
        first: usize,
        count_for: MemberVisibility,
        gaps: IncompleteFlags,
    ) -> Result<(), TooLarge> {
        position(self.groups.len())?;
        let mut slot = GroupSlot::new_zeroed();
        let text = [Some(group.name), group.passwd];
        (slot.flags, slot.lens) =
            string_slots::write_text(text, &mut slot.text, &mut self.long_text)?;
        slot.flags |= gaps.flags() | self.entry_flags;
        let count = u32::try_from(self.member_ids.len() - first)
            .map_err(|_| TooLarge("a group with 4,294,967,296 members"))?;
        slot.gid = U32::new(group.gid);
        slot.count = U32::new(count);
        slot.first = U64::new(first as u64);
        self.groups.push(slot);
        if count_for == MemberVisibility::GroupAndInitgroups {
            self.lines.push(InitgroupsLine {
                gid: group.gid,
                count,
                first: first as u64,
                initgroups_only: false,
            });
        }
        Ok(())
    }

    /// Adds a group line that lookups do not return, but initgroups counts.
    pub fn initgroups_only<'m>(
        &mut self,
        gid: u32,
        members: impl Iterator<Item = &'m [u8]>,
    ) -> Result<(), TooLarge> {
        let first = self.initgroups_ids.len();
        for member in members {
            let number = self.names.intern(member, &mut self.long_text)?;
            self.initgroups_ids.push(U32::new(number));
        }
        let count = u32::try_from(self.initgroups_ids.len() - first)
            .map_err(|_| TooLarge("a group line with 4,294,967,296 members"))?;
        self.lines.push(InitgroupsLine { gid, count, first: first as u64, initgroups_only: true });
        Ok(())
    }

    /// Assigns the next `users` and `groups` to this domain. The domains of a file together cover all of its entries,
    /// or the file names no domain.
    ///
    /// # Errors
    /// The name is empty, or a name has more than 64 bytes.
    pub fn domain(
        &mut self,
        name: &str,
        options: &DomainOptions<'_>,
        users: u32,
        groups: u32,
    ) -> Result<(), TooLarge> {
        let mut slot = DomainSlot::new_zeroed();
        slot.name_len = put_domain_name(&mut slot.name, name)?;
        if slot.name_len == 0 {
            return Err(DOMAIN_NAME);
        }
        (slot.users, slot.groups) = (U32::new(users), U32::new(groups));
        let position = position(self.domains.len())?;
        slot.check = U32::new(self.identity.check(&slot, SectionId::Domains, position));
        let mut option_slot = DomainOptionsSlot::new_zeroed();
        option_slot.short_name_len =
            put_domain_name(&mut option_slot.short_name, options.short_name)?;
        option_slot.flags = U32::new(options.flags);
        let check = self.identity.check(&option_slot, SectionId::DomainOptions, position);
        option_slot.check = U32::new(check);
        self.domains.push(slot);
        self.domain_options.push(option_slot);
        Ok(())
    }

    /// Adds a shadow entry.
    pub fn shadow(&mut self, shadow: &Shadow<'_>) -> Result<(), TooLarge> {
        let position = position(self.shadows.len())?;
        let mut slot = ShadowSlot::new_zeroed();
        let text = [Some(shadow.name), shadow.passwd];
        (slot.flags, slot.lens) =
            string_slots::write_text(text, &mut slot.text, &mut self.long_text)?;
        let Shadow { last_change, min, max, warn, inactive, expire, flag, .. } = *shadow;
        slot.days = [last_change, min, max, warn, inactive, expire].map(I32::new);
        slot.flag = U64::new(flag);
        slot.check = U32::new(self.identity.check(&slot, SectionId::Shadows, position));
        self.shadows.push(slot);
        Ok(())
    }

    /// Builds lists and indices.
    pub fn finish(self, kind: SnapshotKind) -> Result<BuiltSnapshot, TooLarge> {
        let Self {
            min_id,
            identity,
            responder,
            users,
            mut groups,
            shadows,
            names,
            long_text,
            member_ids,
            domains,
            mut domain_options,
            ..
        } = self;
        // Without options, readers skip the readings of names that need them.
        if domain_options.iter().all(|slot| slot.flags.get() == 0 && slot.short_name_len == 0) {
            domain_options.clear();
        }
        let names = names.into_slots();
        sum_members(&mut groups, identity, &member_ids, &names, &long_text)?;
        let member_ids_of = |line: &InitgroupsLine| {
            let ids = if line.initgroups_only { &self.initgroups_ids } else { &member_ids };
            &ids[line.first as usize..][..line.count as usize]
        };
        let (memberships, group_ids) = invert(&self.lines, member_ids_of, &names, identity)?;
        let gids: Vec<U32> = self.lines.iter().map(|line| U32::new(line.gid)).collect();
        drop((self.lines, self.initgroups_ids));
        for seed in 0..SEEDS_MAX {
            let sources = IndexSources {
                seed,
                identity,
                users: &users,
                groups: &groups,
                shadows: &shadows,
                names: &names,
                long_text: &long_text,
            };
            let Ok((indices, duplicates)) = sources.index() else { continue };
            let image = SnapshotImage {
                fields: HeaderFields { kind, min_id, seed, identity, responder },
                domains,
                domain_options,
                users,
                groups,
                shadows,
                names,
                memberships,
                member_ids,
                group_ids,
                gids,
                long_text,
                indices,
            };
            return Ok(BuiltSnapshot { image, duplicates });
        }
        Err(TooLarge("a set of keys that collide under every seed"))
    }
}

fn position(len: usize) -> Result<u32, TooLarge> {
    u32::try_from(len).map_err(|_| TooLarge("more than 4,294,967,295 entries"))
}

const DOMAIN_NAME: TooLarge = TooLarge("the name of a domain");

/// Writes the name of a domain, and returns its length.
fn put_domain_name(place: &mut [u8; DOMAIN_NAME_BYTES], name: &str) -> Result<u8, TooLarge> {
    let len = u8::try_from(name.len()).map_err(|_| DOMAIN_NAME)?;
    place.get_mut(..name.len()).ok_or(DOMAIN_NAME)?.copy_from_slice(name.as_bytes());
    Ok(len)
}

/// Sums the members of each group, and sets the checksum of its record.
fn sum_members(
    groups: &mut [GroupSlot],
    identity: ChecksumIdentity,
    member_ids: &[U32],
    names: &[NameSlot],
    long_text: &[u8],
) -> Result<(), TooLarge> {
    let sum = |(first, groups): (usize, &mut [GroupSlot])| {
        for (position, slot) in (first as u32..).zip(groups) {
            let ids = &member_ids[slot.first.get() as usize..][..slot.count.get() as usize];
            let (mut sum, mut bytes) = (NameSum::default(), 0);
            for id in ids {
                let name = &names[id.get() as usize];
                sum.add(u128::from_le_bytes(name.0));
                bytes += name_bytes(name, long_text).len() as u64 + 1;
            }
            slot.sum = U64::new(sum.finish());
            let bytes = u32::try_from(bytes);
            let too_long = |_| TooLarge("a group with 4 GiB of member names");
            slot.member_bytes = U32::new(bytes.map_err(too_long)?);
            slot.check = U32::new(identity.check(slot, SectionId::Groups, position));
        }
        Ok(())
    };
    let counts = groups.iter().map(|slot| slot.count.get().into());
    let ranges = cut(counts, threads());
    parallel::each(parallel::pieces(groups, ranges), sum).into_iter().collect()
}

struct IndexSources<'a> {
    seed: u64,
    identity: ChecksumIdentity,
    users: &'a [UserSlot],
    groups: &'a [GroupSlot],
    shadows: &'a [ShadowSlot],
    names: &'a [NameSlot],
    long_text: &'a [u8],
}

/// Index sections. Duplicates of a kind of lookup are reported; names of members are unique already.
const INDICES: [(SectionId, Option<LookupKey>); 6] = [
    (SectionId::ByUserName, Some(LookupKey::UserName)),
    (SectionId::ByUid, Some(LookupKey::Uid)),
    (SectionId::ByGroupName, Some(LookupKey::GroupName)),
    (SectionId::ByGid, Some(LookupKey::Gid)),
    (SectionId::ByShadowName, Some(LookupKey::ShadowName)),
    (SectionId::ByMember, None),
];

/// Positions omitted from an index, each with the earlier position of the same key.
type OmittedPositions = Vec<(u32, u32)>;

type Indices = Vec<(SectionId, Vec<Bucket>)>;

impl<'a> IndexSources<'a> {
    fn index(&self) -> Result<(Indices, Vec<Duplicate>), ProbeTooLong> {
        let made = parallel::each(INDICES.to_vec(), |(id, _)| self.index_of(id));
        let (mut indices, mut duplicates) = (Vec::new(), Vec::new());
        for ((id, key), made) in INDICES.into_iter().zip(made) {
            let (buckets, left_out) = made?;
            indices.push((id, buckets));
            for (key, (position, first)) in key.into_iter().cycle().zip(left_out) {
                duplicates.push(Duplicate { key, position, first });
            }
        }
        Ok((indices, duplicates))
    }

    fn index_of(&self, id: SectionId) -> Result<(Vec<Bucket>, OmittedPositions), ProbeTooLong> {
        let seed = Seed::new(self.seed);
        let user_name = |slot: &'a UserSlot| self.first_text(slot.flags, slot.lens[0], &slot.text);
        let group_name =
            |slot: &'a GroupSlot| self.first_text(slot.flags, slot.lens[0], &slot.text);
        let shadow_name =
            |slot: &'a ShadowSlot| self.first_text(slot.flags, slot.lens[0], &slot.text);
        // An entry that any spelling finds has its folded name as the key.
        let by_text = |name: &'a [u8], slot_flags: u8| {
            let name = match slot_flags & flags::ANY_CASE {
                0 => Cow::Borrowed(name),
                _ => roster_names::fold(name),
            };
            (!is_nis(&name)).then(|| (hash::bytes(&name, seed), name))
        };
        let by_id =
            |name: &[u8], id: U32| (!is_nis(name)).then(|| (hash::id(id.get(), seed), id.get()));
        match id {
            SectionId::ByUserName => {
                index(id, self.identity, self.users, |slot| by_text(user_name(slot), slot.flags))
            }
            SectionId::ByUid => {
                index(id, self.identity, self.users, |slot| by_id(user_name(slot), slot.uid))
            }
            SectionId::ByGroupName => {
                index(id, self.identity, self.groups, |slot| by_text(group_name(slot), slot.flags))
            }
            SectionId::ByGid => {
                index(id, self.identity, self.groups, |slot| by_id(group_name(slot), slot.gid))
            }
            SectionId::ByShadowName => {
                index(id, self.identity, self.shadows, |slot| by_text(shadow_name(slot), 0))
            }
            // initgroups finds even names of NIS lines.
            _ => index(id, self.identity, self.names, |slot| {
                let name = name_bytes(slot, self.long_text);
                Some((hash::bytes(name, seed), name))
            }),
        }
    }

    fn first_text(&self, slot_flags: u8, len: u8, slot_text: &'a [u8]) -> &'a [u8] {
        if slot_flags & flags::LONG == 0 {
            return &slot_text[..usize::from(len)];
        }
        let parts = LongText::ref_from_prefix(slot_text);
        let Some((place, lens)) = parts.ok() else { unreachable!("slots have room for it") };
        let [a, b, c, d, ..] = *lens else { unreachable!("a long text has a first length") };
        &self.long_text[place.offset.get() as usize..][..u32::from_le_bytes([a, b, c, d]) as usize]
    }
}

/// Builds one index over `records`. `key` returns the hash and key of a record, or `None` if lookups must not find it.
/// Also returns the positions that an earlier equal key displaces, each with that key's position.
fn index<'a, T, K: PartialEq>(
    section: SectionId,
    identity: ChecksumIdentity,
    records: &'a [T],
    key: impl Fn(&'a T) -> Option<(u64, K)>,
) -> Result<(Vec<Bucket>, OmittedPositions), ProbeTooLong> {
    let mut index = IndexBuilder::new(section, identity, records.len());
    let mut duplicates = Vec::new();
    for (position, record) in (0..).zip(records) {
        let Some((key_hash, wanted)) = key(record) else { continue };
        let same = |earlier: u32| {
            key(&records[earlier as usize]).is_some_and(|(_, earlier)| earlier == wanted)
        };
        if let Some(first) = index.insert(key_hash, position, same)? {
            duplicates.push((position, first));
        }
    }
    Ok((index.finish(), duplicates))
}
