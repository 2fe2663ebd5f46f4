//! Collects entries and turns them into an [`Image`].

use crate::image::Image;
use crate::index::{IndexBuilder, TooFar};
use crate::invert::{Line, invert};
use crate::names::{Names, name_bytes};
use crate::parallel::{self, cut, threads};
use crate::slots;
use roster_record::{Group, Shadow, User, is_nis};
use roster_snapshot::hash::{self, Identity, NameSum, Seed};
use roster_snapshot::layout::{
    Bucket, GroupSlot, Kind, LongText, NameSlot, RESPONDER_BYTES, SectionId, ShadowSlot, UserSlot,
    flags,
};
use std::hash::{BuildHasher, RandomState};
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, FromZeros};

/// Seeds tried before a builder gives up. One is enough unless keys were made to collide.
const SEEDS_MAX: u64 = 64;

/// Something exceeds what the format can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} does not fit into a snapshot")]
pub struct TooLarge(pub &'static str);

/// A kind of look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
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

/// An entry that enumeration shows and look-ups by `key` do not find, for an earlier entry has the
/// same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The look-up.
    pub key: Key,
    /// Position of the entry.
    pub position: u32,
    /// Position of the entry that is found instead.
    pub first: u32,
}

/// Who a group line counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// The group's answer shows them, and initgroups counts it for them: the usual.
    Both,
    /// Only the group's answer shows them.
    Shown,
}

/// What a record leaves open, for the responder to answer. None by default: all there is is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// A domain that goes before is asked on demand, and may have the same name or id.
    pub ask_first: bool,
    /// The groups of the user, or the members of the group, are not known here.
    pub list_unknown: bool,
}

impl Gaps {
    fn flags(self) -> u8 {
        let ask_first = if self.ask_first { flags::ASK_FIRST } else { 0 };
        let list_unknown = if self.list_unknown { flags::LIST_UNKNOWN } else { 0 };
        ask_first | list_unknown
    }
}

/// A user of a builder, for lists of members that were resolved beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberId(u32);

/// What [`Builder::finish`] gives.
pub struct Finished {
    /// The file to be.
    pub image: Image,
    /// Entries that look-ups do not reach.
    pub duplicates: Vec<Duplicate>,
}

/// Entries in source order on their way into a snapshot.
pub struct Builder {
    min_id: u32,
    identity: Identity,
    responder: [u8; RESPONDER_BYTES],
    users: Vec<UserSlot>,
    groups: Vec<GroupSlot>,
    shadows: Vec<ShadowSlot>,
    names: Names,
    long_text: Vec<u8>,
    member_ids: Vec<U32>,
    /// Members of lines that only initgroups sees.
    unseen_ids: Vec<U32>,
    lines: Vec<Line>,
}

impl Builder {
    /// An empty snapshot, whose readers will take ids below `min_id` for damage.
    #[must_use]
    pub fn new(min_id: u32) -> Self {
        Self {
            min_id,
            identity: Identity(RandomState::new().hash_one(0)),
            responder: [0; RESPONDER_BYTES],
            users: Vec::new(),
            groups: Vec::new(),
            shadows: Vec::new(),
            names: Names::default(),
            long_text: Vec::new(),
            member_ids: Vec::new(),
            unseen_ids: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Makes a file with that identity instead of a random one, so that equal entries make equal files. Two
    /// files that take turns in one place need different ones.
    #[must_use]
    pub fn identity(mut self, identity: u64) -> Self {
        self.identity = Identity(identity);
        self
    }

    /// Makes room for so many users, groups and members.
    pub fn reserve(&mut self, users: usize, groups: usize, members: usize) {
        self.users.reserve(users);
        self.names.reserve(users);
        self.groups.reserve(groups);
        self.lines.reserve(groups);
        self.member_ids.reserve(members);
    }

    /// Says that there is more than is here, and the absolute path of the socket at which to ask.
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

    /// Adds a passwd entry. All of them come before the first group, so that a new member does
    /// not renumber the users. Gives the id by which groups may list the user.
    pub fn user(&mut self, user: &User<'_>, gaps: Gaps) -> Result<MemberId, TooLarge> {
        let position = position(self.users.len())?;
        let mut slot = UserSlot::new_zeroed();
        let text = [Some(user.name), user.passwd, user.gecos, user.dir, user.shell];
        (slot.flags, slot.lens) = slots::write_text(text, &mut slot.text, &mut self.long_text)?;
        slot.flags |= gaps.flags();
        slot.uid = U32::new(user.uid);
        slot.gid = U32::new(user.gid);
        slot.check = U32::new(self.identity.check(&slot, SectionId::Users, position));
        self.users.push(slot);
        Ok(MemberId(self.names.know(user.name, &mut self.long_text)?))
    }

    /// Adds a group entry with its members by name.
    pub fn group<'m>(
        &mut self,
        group: &Group<'_>,
        members: impl Iterator<Item = &'m [u8]>,
        count_for: Members,
        gaps: Gaps,
    ) -> Result<(), TooLarge> {
        let first = self.member_ids.len();
        for member in members {
            let number = self.names.know(member, &mut self.long_text)?;
            self.member_ids.push(U32::new(number));
        }
        self.add_group(group, first, count_for, gaps)
    }

    /// Adds a group entry whose members are users that were added before.
    pub fn group_of(
        &mut self,
        group: &Group<'_>,
        members: &[MemberId],
        count_for: Members,
        gaps: Gaps,
    ) -> Result<(), TooLarge> {
        let first = self.member_ids.len();
        self.member_ids.extend(members.iter().map(|&MemberId(number)| U32::new(number)));
        self.add_group(group, first, count_for, gaps)
    }

    /// Adds a group entry whose members are the ids from `first` on. Their sum and the record's checksum
    /// come when all names are known.
    fn add_group(
        &mut self,
        group: &Group<'_>,
        first: usize,
        count_for: Members,
        gaps: Gaps,
    ) -> Result<(), TooLarge> {
        position(self.groups.len())?;
        let mut slot = GroupSlot::new_zeroed();
        let text = [Some(group.name), group.passwd];
        (slot.flags, slot.lens) = slots::write_text(text, &mut slot.text, &mut self.long_text)?;
        slot.flags |= gaps.flags();
        let count = u32::try_from(self.member_ids.len() - first)
            .map_err(|_| TooLarge("a group with 4,294,967,296 members"))?;
        slot.gid = U32::new(group.gid);
        slot.count = U32::new(count);
        slot.first = U64::new(first as u64);
        self.groups.push(slot);
        if count_for == Members::Both {
            self.lines.push(Line { gid: group.gid, count, first: first as u64, unseen: false });
        }
        Ok(())
    }

    /// Adds a group line that no look-up shows and that initgroups counts all the same.
    pub fn initgroups_only<'m>(
        &mut self,
        gid: u32,
        members: impl Iterator<Item = &'m [u8]>,
    ) -> Result<(), TooLarge> {
        let first = self.unseen_ids.len();
        for member in members {
            let number = self.names.know(member, &mut self.long_text)?;
            self.unseen_ids.push(U32::new(number));
        }
        let count = u32::try_from(self.unseen_ids.len() - first)
            .map_err(|_| TooLarge("a group line with 4,294,967,296 members"))?;
        self.lines.push(Line { gid, count, first: first as u64, unseen: true });
        Ok(())
    }

    /// Adds a shadow entry.
    pub fn shadow(&mut self, shadow: &Shadow<'_>) -> Result<(), TooLarge> {
        let position = position(self.shadows.len())?;
        let mut slot = ShadowSlot::new_zeroed();
        let text = [Some(shadow.name), shadow.passwd];
        (slot.flags, slot.lens) = slots::write_text(text, &mut slot.text, &mut self.long_text)?;
        let Shadow { last_change, min, max, warn, inactive, expire, flag, .. } = *shadow;
        slot.days = [last_change, min, max, warn, inactive, expire].map(I32::new);
        slot.flag = U64::new(flag);
        slot.check = U32::new(self.identity.check(&slot, SectionId::Shadows, position));
        self.shadows.push(slot);
        Ok(())
    }

    /// Builds lists and indices.
    pub fn finish(self, kind: Kind) -> Result<Finished, TooLarge> {
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
            ..
        } = self;
        let names = names.into_slots();
        sum_members(&mut groups, identity, &member_ids, &names, &long_text)?;
        let member_ids_of = |line: &Line| {
            let ids = if line.unseen { &self.unseen_ids } else { &member_ids };
            &ids[line.first as usize..][..line.count as usize]
        };
        let (memberships, group_ids) = invert(&self.lines, member_ids_of, &names, identity)?;
        let gids: Vec<U32> = self.lines.iter().map(|line| U32::new(line.gid)).collect();
        drop((self.lines, self.unseen_ids));
        for seed in 0..SEEDS_MAX {
            let sources = Sources {
                seed,
                identity,
                users: &users,
                groups: &groups,
                shadows: &shadows,
                names: &names,
                long_text: &long_text,
            };
            let Ok((indices, duplicates)) = sources.index() else { continue };
            let image = Image {
                kind,
                min_id,
                seed,
                identity,
                responder,
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
            return Ok(Finished { image, duplicates });
        }
        Err(TooLarge("a set of keys that collide under every seed"))
    }
}

fn position(len: usize) -> Result<u32, TooLarge> {
    u32::try_from(len).map_err(|_| TooLarge("more than 4,294,967,295 entries"))
}

/// Sums the members of each group up, and gives its record the checksum that it is served with.
fn sum_members(
    groups: &mut [GroupSlot],
    identity: Identity,
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

/// What indices are built from.
struct Sources<'a> {
    seed: u64,
    identity: Identity,
    users: &'a [UserSlot],
    groups: &'a [GroupSlot],
    shadows: &'a [ShadowSlot],
    names: &'a [NameSlot],
    long_text: &'a [u8],
}

/// The sections, and what look-up each is for, if entries of one key are told as duplicates: names of
/// members are distinct already.
const INDICES: [(SectionId, Option<Key>); 6] = [
    (SectionId::ByUserName, Some(Key::UserName)),
    (SectionId::ByUid, Some(Key::Uid)),
    (SectionId::ByGroupName, Some(Key::GroupName)),
    (SectionId::ByGid, Some(Key::Gid)),
    (SectionId::ByShadowName, Some(Key::ShadowName)),
    (SectionId::ByMember, None),
];

/// Positions left out of an index, each with the earlier position of the same key.
type LeftOut = Vec<(u32, u32)>;

type Indices = Vec<(SectionId, Vec<Bucket>)>;

impl<'a> Sources<'a> {
    fn index(&self) -> Result<(Indices, Vec<Duplicate>), TooFar> {
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

    fn index_of(&self, id: SectionId) -> Result<(Vec<Bucket>, LeftOut), TooFar> {
        let seed = Seed::new(self.seed);
        let user_name = |slot: &'a UserSlot| self.first_text(slot.flags, slot.lens[0], &slot.text);
        let group_name =
            |slot: &'a GroupSlot| self.first_text(slot.flags, slot.lens[0], &slot.text);
        let shadow_name =
            |slot: &'a ShadowSlot| self.first_text(slot.flags, slot.lens[0], &slot.text);
        let by_text = |name: &'a [u8]| (!is_nis(name)).then(|| (hash::bytes(name, seed), name));
        let by_id =
            |name: &[u8], id: U32| (!is_nis(name)).then(|| (hash::id(id.get(), seed), id.get()));
        match id {
            SectionId::ByUserName => {
                index(id, self.identity, self.users, |slot| by_text(user_name(slot)))
            }
            SectionId::ByUid => {
                index(id, self.identity, self.users, |slot| by_id(user_name(slot), slot.uid))
            }
            SectionId::ByGroupName => {
                index(id, self.identity, self.groups, |slot| by_text(group_name(slot)))
            }
            SectionId::ByGid => {
                index(id, self.identity, self.groups, |slot| by_id(group_name(slot), slot.gid))
            }
            SectionId::ByShadowName => {
                index(id, self.identity, self.shadows, |slot| by_text(shadow_name(slot)))
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

/// One index over `records`: `key` gives a record's hash and key, or nothing when look-ups are not
/// to find it. Beside it the positions left out for an earlier equal key, and that one's.
fn index<'a, T, K: PartialEq>(
    section: SectionId,
    identity: Identity,
    records: &'a [T],
    key: impl Fn(&'a T) -> Option<(u64, K)>,
) -> Result<(Vec<Bucket>, LeftOut), TooFar> {
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
