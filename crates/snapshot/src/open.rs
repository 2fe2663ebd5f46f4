//! Opening: the header is read and checked, the rest is only cut into sections.

use crate::floor::{Floor, Limits};
use crate::hash::{self, Identity, Seed};
use crate::index::Index;
use crate::layout::{
    GroupSlot, HEADER_BYTES, Header, Kind, MAGIC, Membership, NameSlot, SectionEntry, SectionId,
    ShadowSlot, UserSlot, VERSION,
};
use crate::lists::Ids;
use core::ffi::CStr;
use core::fmt;
use core::mem::offset_of;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A view of a snapshot's bytes. Cheap to copy; see the crate's documentation for what it checks.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    pub(crate) limits: Limits,
    pub(crate) seed: Seed,
    pub(crate) identity: Identity,
    pub(crate) users: &'a [UserSlot],
    pub(crate) groups: &'a [GroupSlot],
    pub(crate) names: &'a [NameSlot],
    pub(crate) memberships: &'a [Membership],
    pub(crate) member_ids: Ids<'a>,
    pub(crate) group_ids: Ids<'a>,
    pub(crate) gids: &'a [U32],
    pub(crate) shadows: &'a [ShadowSlot],
    pub(crate) long_text: &'a [u8],
    pub(crate) by_user_name: Index<'a>,
    pub(crate) by_uid: Index<'a>,
    pub(crate) by_group_name: Index<'a>,
    pub(crate) by_gid: Index<'a>,
    pub(crate) by_member: Index<'a>,
    pub(crate) by_shadow_name: Index<'a>,
    responder: &'a [u8],
    bytes: &'a [u8],
    header: &'a Header,
}

/// Why bytes are not a snapshot of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// Shorter than a header.
    TooShort {
        /// Bytes there are.
        found: u64,
    },
    /// Not a snapshot at all.
    BadMagic,
    /// A snapshot of another version.
    BadVersion {
        /// The version it says.
        found: u32,
    },
    /// The header's checksum is wrong.
    DamagedHeader,
    /// Accounts where shadow entries were wanted, or the other way round, or neither.
    BadKind {
        /// What was wanted.
        expected: Kind,
        /// What the header says.
        found: u32,
    },
    /// The file is shorter or longer than its header says.
    BadLength {
        /// Bytes the header says.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// A section lies outside the file, has another record size than this version's, stands
    /// twice, or is not known.
    BadSection {
        /// Its number.
        id: u32,
    },
    /// The responder's path is not absolute, does not end, or has something behind its end.
    BadResponder,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { found } => {
                write!(f, "{found} bytes are too short for a snapshot: {HEADER_BYTES} is the least")
            }
            Self::BadMagic => {
                f.write_str("not a snapshot: it does not start with \"ROSTER\\r\\n\"")
            }
            Self::BadVersion { found } => write!(
                f,
                "snapshot format {found}, but this program reads format {VERSION}: \
                 compile it anew with the program of this version"
            ),
            Self::DamagedHeader => f.write_str("the header does not match its checksum"),
            Self::BadKind { expected, found } => {
                let name = match expected {
                    Kind::Accounts => "accounts",
                    Kind::Shadow => "shadow entries",
                };
                write!(f, "not a snapshot of {name} (kind {}, found {found})", *expected as u32)
            }
            Self::BadLength { expected, found } => {
                write!(f, "the header says {expected} bytes, the file has {found}: cut or appended")
            }
            Self::BadSection { id } => {
                write!(f, "section {id} is not known, stands twice or lies outside the file")
            }
            Self::BadResponder => {
                f.write_str("the path of the responder's socket is not absolute or does not end")
            }
        }
    }
}

impl core::error::Error for OpenError {}

/// A section, for people and tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Which one.
    pub id: SectionId,
    /// From the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Records.
    pub count: u64,
    /// Bytes of one record.
    pub record_bytes: u32,
}

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Length of the file.
    pub file_bytes: u64,
    /// Counts the publications.
    pub generation: u64,
    /// A uid or gid below this is damage.
    pub min_id: u32,
    /// Seed of the indices.
    pub seed: u64,
    /// Number of the file that enters the checksums of its records.
    pub identity: u64,
    /// Passwd entries.
    pub users: u32,
    /// Group entries.
    pub groups: u32,
    /// Names that are users or members.
    pub names: u32,
    /// Entries of all member lists together.
    pub memberships: u64,
    /// Shadow entries.
    pub shadows: u32,
}

impl<'a> Snapshot<'a> {
    /// Opens a snapshot of users and groups. O(1): reads the header.
    pub fn open(bytes: &'a [u8]) -> Result<Self, OpenError> {
        Self::open_kind(bytes, Kind::Accounts)
    }

    /// Opens a snapshot of shadow entries. O(1): reads the header.
    pub fn open_shadow(bytes: &'a [u8]) -> Result<Self, OpenError> {
        Self::open_kind(bytes, Kind::Shadow)
    }

    fn open_kind(bytes: &'a [u8], expected: Kind) -> Result<Self, OpenError> {
        let found = bytes.len() as u64;
        let header = read_header(bytes)?;
        if header.kind.get() != expected as u32 {
            return Err(OpenError::BadKind { expected, found: header.kind.get() });
        }
        if header.file_bytes.get() != found {
            return Err(OpenError::BadLength { expected: header.file_bytes.get(), found });
        }
        let table = Table::new(bytes, header)?;
        let identity = Identity(header.identity.get());
        let index = |id| table.typed(id).map(|buckets| Index { id, identity, buckets });
        let names: &[NameSlot] = table.typed(SectionId::Names)?;
        let memberships: &[Membership] = table.typed(SectionId::Memberships)?;
        if names.len() != memberships.len() {
            return Err(OpenError::BadSection { id: SectionId::Memberships as u32 });
        }
        Ok(Self {
            limits: Limits::without_floor(header.min_id.get()),
            seed: Seed::new(header.seed.get()),
            identity,
            users: table.typed(SectionId::Users)?,
            groups: table.typed(SectionId::Groups)?,
            names,
            memberships,
            member_ids: table.ids(SectionId::MemberIds)?,
            group_ids: table.ids(SectionId::GroupIds)?,
            gids: table.typed(SectionId::Gids)?,
            shadows: table.typed(SectionId::Shadows)?,
            long_text: table.typed(SectionId::LongText)?,
            by_user_name: index(SectionId::ByUserName)?,
            by_uid: index(SectionId::ByUid)?,
            by_group_name: index(SectionId::ByGroupName)?,
            by_gid: index(SectionId::ByGid)?,
            by_member: index(SectionId::ByMember)?,
            by_shadow_name: index(SectionId::ByShadowName)?,
            responder: responder(header)?,
            bytes,
            header,
        })
    }

    /// The generation in the header that these bytes start with, of either kind and whatever
    /// follows; `None` when it is no header of ours.
    #[must_use]
    pub fn generation(bytes: &[u8]) -> Option<u64> {
        read_header(bytes).ok().map(|header| header.generation.get())
    }

    /// What the header says, and the counts of entries.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape {
            file_bytes: self.header.file_bytes.get(),
            generation: self.header.generation.get(),
            min_id: self.min_id(),
            seed: self.header.seed.get(),
            identity: self.header.identity.get(),
            users: count(self.users),
            groups: count(self.groups),
            names: count(self.names),
            memberships: self.member_ids.len() as u64,
            shadows: count(self.shadows),
        }
    }

    /// No uid of a user and no gid of a group is below this.
    #[inline]
    #[must_use]
    pub fn min_id(&self) -> u32 {
        self.limits.min_id
    }

    /// Serves ids of this floor only, and no password, from now on.
    pub fn set_floor(&mut self, floor: &Floor) {
        self.limits.set_floor(floor);
    }

    /// Which ids are served.
    #[inline]
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The absolute path of the socket at which to ask for what is not here; `None` when all there
    /// is is here.
    #[inline]
    #[must_use]
    pub fn responder(&self) -> Option<&'a [u8]> {
        (!self.responder.is_empty()).then_some(self.responder)
    }

    /// The sections that are there, in the order of the header.
    pub fn sections(&self) -> impl Iterator<Item = Section> {
        let entries = self.header.sections.iter().take(self.header.section_count.get() as usize);
        entries.filter_map(|entry| {
            Some(Section {
                id: section_id(entry.id.get())?,
                offset: entry.offset.get(),
                bytes: entry.count.get().saturating_mul(entry.record_bytes.get().into()),
                count: entry.count.get(),
                record_bytes: entry.record_bytes.get(),
            })
        })
    }

    /// Every index with what it points to, for verification and statistics.
    #[must_use]
    pub fn indices(&self) -> [Index<'a>; 6] {
        [
            self.by_user_name,
            self.by_uid,
            self.by_group_name,
            self.by_gid,
            self.by_member,
            self.by_shadow_name,
        ]
    }

    /// The name in that name slot; `None` past the last.
    pub fn name(&self, position: u32) -> crate::Found<&'a [u8]> {
        self.names.get(position as usize).map(|slot| self.name_of(slot)).transpose()
    }

    /// Whether all bytes after the header match the header's hash of them. Reads the whole file.
    #[must_use]
    pub fn content_matches(&self) -> bool {
        let content = self.bytes.get(HEADER_BYTES..).unwrap_or_default();
        hash::plain(content) == self.header.content_hash.get()
    }
}

fn read_header(bytes: &[u8]) -> Result<&Header, OpenError> {
    let found = bytes.len() as u64;
    let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| OpenError::TooShort { found })?;
    if header.magic != MAGIC {
        return Err(OpenError::BadMagic);
    }
    if header.version.get() != VERSION {
        return Err(OpenError::BadVersion { found: header.version.get() });
    }
    let hashed = bytes.get(..offset_of!(Header, header_hash)).unwrap_or_default();
    if !hash::agrees(header.header_hash.get(), hash::plain(hashed)) {
        return Err(OpenError::DamagedHeader);
    }
    Ok(header)
}

/// The responder's path without what fills it up.
fn responder(header: &Header) -> Result<&[u8], OpenError> {
    let path =
        CStr::from_bytes_until_nul(&header.responder).map_err(|_| OpenError::BadResponder)?;
    let path = path.to_bytes();
    let rest = header.responder.get(path.len()..).unwrap_or_default();
    let is_absolute = path.first().is_none_or(|&byte| byte == b'/');
    if is_absolute && rest.iter().all(|&byte| byte == 0) {
        Ok(path)
    } else {
        Err(OpenError::BadResponder)
    }
}

fn count<T>(records: &[T]) -> u32 {
    u32::try_from(records.len()).unwrap_or(u32::MAX)
}

fn section_id(id: u32) -> Option<SectionId> {
    SectionId::ALL.into_iter().find(|&known| known as u32 == id)
}

/// Sections by number, bounds checked.
struct Table<'a> {
    by_id: [Option<(&'a SectionEntry, &'a [u8])>; NUMBERS],
}

/// Places for all numbers of sections, which count from 1.
const NUMBERS: usize = SectionId::ALL.len() + 1;

impl<'a> Table<'a> {
    fn new(bytes: &'a [u8], header: &'a Header) -> Result<Self, OpenError> {
        let mut by_id = [None; NUMBERS];
        let in_use = header.sections.get(..header.section_count.get() as usize);
        for entry in in_use.ok_or(OpenError::BadSection { id: 0 })? {
            let bad = OpenError::BadSection { id: entry.id.get() };
            let id = section_id(entry.id.get()).ok_or(bad)?;
            let place = by_id.get_mut(id as usize).ok_or(bad)?;
            if place.is_some() {
                return Err(bad);
            }
            *place = Some((entry, cut(bytes, entry).ok_or(bad)?));
        }
        Ok(Self { by_id })
    }

    /// The records of a section; none where it is not there.
    fn typed<T: FromBytes + Immutable + KnownLayout>(
        &self,
        id: SectionId,
    ) -> Result<&'a [T], OpenError> {
        // Whole records, so that this cannot fail.
        Ok(<[T]>::ref_from_bytes(self.bytes(id, size_of::<T>())?).unwrap_or_default())
    }

    /// The bytes of a section of records of that length.
    #[inline(never)]
    fn bytes(&self, id: SectionId, record_bytes: usize) -> Result<&'a [u8], OpenError> {
        match self.by_id.get(id as usize).copied().flatten() {
            None => Ok(&[]),
            Some((entry, bytes)) if entry.record_bytes.get() as usize == record_bytes => Ok(bytes),
            Some(_) => Err(OpenError::BadSection { id: id as u32 }),
        }
    }

    fn ids(&self, id: SectionId) -> Result<Ids<'a>, OpenError> {
        match self.by_id.get(id as usize).copied().flatten() {
            Some((entry, _)) if entry.record_bytes.get() == 2 => {
                self.typed::<U16>(id).map(Ids::Narrow)
            }
            _ => self.typed::<U32>(id).map(Ids::Wide),
        }
    }
}

fn cut<'a>(bytes: &'a [u8], entry: &SectionEntry) -> Option<&'a [u8]> {
    let len = entry.count.get().checked_mul(entry.record_bytes.get().into())?;
    let start = usize::try_from(entry.offset.get()).ok()?;
    bytes.get(start..)?.get(..usize::try_from(len).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{ACCOUNTS, SHADOW, with_header, with_wide_ids};
    use crate::layout::{RESPONDER_BYTES, SECTIONS_START};
    use zerocopy::little_endian::U64;
    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    /// What comes of a file whose header was changed, with the checksum of the header right.
    fn opened(change: impl FnOnce(&mut Header)) -> Result<(), OpenError> {
        Snapshot::open(&with_header(ACCOUNTS, change)).map(drop)
    }

    /// The place of a section in the table.
    fn place(header: &Header, id: SectionId) -> usize {
        header.sections.iter().position(|entry| entry.id.get() == id as u32).unwrap()
    }

    fn bad(id: SectionId) -> Result<(), OpenError> {
        Err(OpenError::BadSection { id: id as u32 })
    }

    #[test]
    fn open_file_says_what_is_in_it() {
        let snapshot = Snapshot::open(ACCOUNTS).unwrap();
        let shape = Shape {
            file_bytes: ACCOUNTS.len() as u64,
            generation: 7,
            min_id: 10,
            seed: 0,
            identity: 0x0123_4567_89AB_CDEF,
            users: 5,
            groups: 4,
            names: 6,
            memberships: 8,
            shadows: 0,
        };
        assert_eq!(snapshot.shape(), shape);
        assert_eq!(snapshot.min_id(), 10);
        assert_eq!(snapshot.responder(), Some(&b"/run/roster/nss"[..]));
        assert!(snapshot.content_matches());
        let shadow = Snapshot::open_shadow(SHADOW).unwrap();
        assert_eq!((shadow.shape().shadows, shadow.shape().users), (2, 0));
        assert_eq!((shadow.min_id(), shadow.responder()), (0, None));
        assert!(shadow.content_matches());
    }

    #[test]
    fn generation_read_from_header_alone() {
        assert_eq!(Snapshot::generation(ACCOUNTS), Some(7));
        assert_eq!(Snapshot::generation(SHADOW), Some(7));
        assert_eq!(Snapshot::generation(&ACCOUNTS[..HEADER_BYTES]), Some(7));
        assert_eq!(Snapshot::generation(&ACCOUNTS[..HEADER_BYTES - 1]), None);
        let file = with_header(ACCOUNTS, |header| header.generation = U64::new(u64::MAX));
        assert_eq!(Snapshot::generation(&file), Some(u64::MAX));
        let file = with_header(ACCOUNTS, |header| header.magic[0] = b'r');
        assert_eq!(Snapshot::generation(&file), None);
    }

    #[test]
    fn sections_listed_in_order_of_header() {
        let snapshot = Snapshot::open(ACCOUNTS).unwrap();
        let sections: Vec<_> = snapshot.sections().collect();
        let found: Vec<_> = sections.iter().map(|section| section.id).collect();
        assert_eq!(
            found,
            [
                SectionId::Users,
                SectionId::Groups,
                SectionId::Names,
                SectionId::Memberships,
                SectionId::Gids,
                SectionId::ByUserName,
                SectionId::ByUid,
                SectionId::ByGroupName,
                SectionId::ByGid,
                SectionId::ByMember,
                SectionId::LongText,
                SectionId::MemberIds,
                SectionId::GroupIds,
            ]
        );
        let users = sections[0];
        assert_eq!((users.offset, users.bytes), (SECTIONS_START, 5 * 128));
        assert_eq!((users.count, users.record_bytes), (5, 128));
        assert!(sections.iter().all(|section| {
            section.bytes == section.count * u64::from(section.record_bytes) && section.bytes > 0
        }));
        let indices = snapshot.indices().map(|index| index.id());
        assert_eq!(
            indices,
            [
                SectionId::ByUserName,
                SectionId::ByUid,
                SectionId::ByGroupName,
                SectionId::ByGid,
                SectionId::ByMember,
                SectionId::ByShadowName,
            ]
        );
    }

    #[test]
    fn changed_content_noticed_by_whole_check() {
        for place in [HEADER_BYTES, ACCOUNTS.len() - 1] {
            let mut bytes = ACCOUNTS.to_vec();
            bytes[place] ^= 1;
            assert!(!Snapshot::open(&bytes).unwrap().content_matches(), "byte {place}");
        }
    }

    #[test]
    fn header_that_is_wrong_refused_with_reason() {
        assert_eq!(opened(|_| {}), Ok(()));
        assert_eq!(opened(|header| header.magic[7] = b'\r'), Err(OpenError::BadMagic));
        for found in [1, 2, 4] {
            let opened = opened(|header| header.version = U32::new(found));
            assert_eq!(opened, Err(OpenError::BadVersion { found }));
        }
        for found in [0, 2, 3] {
            let opened = opened(|header| header.kind = U32::new(found));
            assert_eq!(opened, Err(OpenError::BadKind { expected: Kind::Accounts, found }));
        }
        let expected = Kind::Shadow;
        let shadow = Snapshot::open_shadow(ACCOUNTS).map(drop);
        assert_eq!(shadow, Err(OpenError::BadKind { expected, found: 1 }));
        let found = ACCOUNTS.len() as u64;
        for expected in [found - 1, found + 1] {
            let opened = opened(|header| header.file_bytes = U64::new(expected));
            assert_eq!(opened, Err(OpenError::BadLength { expected, found }));
        }
        let short = Snapshot::open(&ACCOUNTS[..HEADER_BYTES - 1]).map(drop);
        assert_eq!(short, Err(OpenError::TooShort { found: 511 }));
        let cut = Snapshot::open(&ACCOUNTS[..HEADER_BYTES]).map(drop);
        assert_eq!(cut, Err(OpenError::BadLength { expected: found, found: 512 }));
    }

    #[test]
    fn header_other_than_checksum_refused() {
        // Behind magic and version, which are looked at first; the checksum itself is at the end.
        for place in 12..HEADER_BYTES {
            let mut bytes = ACCOUNTS.to_vec();
            bytes[place] ^= 1;
            let opened = Snapshot::open(&bytes).map(drop);
            assert_eq!(opened, Err(OpenError::DamagedHeader), "byte {place}");
        }
    }

    #[test]
    fn section_unknown_or_twice_refused() {
        for unknown in [0, 16, 99, u32::MAX] {
            let opened = opened(|header| header.sections[0].id = U32::new(unknown));
            assert_eq!(opened, Err(OpenError::BadSection { id: unknown }));
        }
        let twice = opened(|header| header.sections[1] = header.sections[0]);
        assert_eq!(twice, bad(SectionId::Users));
        // 13 are in use; the entries behind them are zeros, and 17 are more than there are.
        let more = opened(|header| header.section_count = U32::new(14));
        assert_eq!(more, Err(OpenError::BadSection { id: 0 }));
        for count in [17, u32::MAX] {
            let most = opened(|header| header.section_count = U32::new(count));
            assert_eq!(most, Err(OpenError::BadSection { id: 0 }));
        }
    }

    #[test]
    fn section_outside_file_refused() {
        for id in [SectionId::Users, SectionId::LongText, SectionId::GroupIds] {
            let changed = |change: fn(&mut SectionEntry)| {
                opened(|header| {
                    let place = place(header, id);
                    change(&mut header.sections[place]);
                })
            };
            let end = |entry: &mut SectionEntry| entry.offset = U64::new(ACCOUNTS.len() as u64);
            assert_eq!(changed(end), bad(id));
            assert_eq!(changed(|entry| entry.offset = U64::new(u64::MAX)), bad(id));
            assert_eq!(changed(|entry| entry.count = U64::new(1 << 20)), bad(id));
            assert_eq!(changed(|entry| entry.count = U64::new(u64::MAX)), bad(id));
            // 2^63 records of an even size are 0 bytes modulo 2^64.
            assert_eq!(
                changed(|entry| {
                    entry.count = U64::new(1 << 63);
                    entry.record_bytes = U32::new(128);
                }),
                bad(id)
            );
        }
    }

    #[test]
    fn section_of_other_record_size_refused() {
        for (id, sizes) in [
            (SectionId::Users, &[0, 1, 64, 127, 129, 256][..]),
            (SectionId::Gids, &[2, 8]),
            (SectionId::LongText, &[2]),
            (SectionId::ByUid, &[32, 128]),
            (SectionId::MemberIds, &[0, 1, 3, 8]),
            (SectionId::GroupIds, &[0, 1, 3, 8]),
        ] {
            for &size in sizes {
                let opened = opened(|header| {
                    let place = place(header, id);
                    header.sections[place].record_bytes = U32::new(size);
                    header.sections[place].count = U64::new(1);
                });
                assert_eq!(opened, bad(id), "{size}");
            }
        }
        // The same bytes, read as twice as many records of half the size.
        let halved = opened(|header| {
            let entry = &mut header.sections[place(header, SectionId::Users)];
            (entry.record_bytes, entry.count) = (U32::new(64), U64::new(10));
        });
        assert_eq!(halved, bad(SectionId::Users));
    }

    #[test]
    fn names_without_memberships_refused() {
        for id in [SectionId::Names, SectionId::Memberships] {
            let opened = opened(|header| {
                let place = place(header, id);
                header.sections[place].count -= 1;
            });
            assert_eq!(opened, bad(SectionId::Memberships));
        }
    }

    #[test]
    fn numbers_of_two_or_four_bytes_open() {
        let file = with_wide_ids(ACCOUNTS);
        let snapshot = Snapshot::open(&file).unwrap();
        assert_eq!(snapshot.shape().memberships, 8);
        let wide = snapshot.sections().filter(|section| section.record_bytes == 4);
        assert_eq!(wide.count(), 3);
    }

    #[test]
    fn responder_absolute_path_or_nothing() {
        let with_path = |path: &[u8]| {
            let mut room = [0; RESPONDER_BYTES];
            room[..path.len()].copy_from_slice(path);
            let file = with_header(ACCOUNTS, |header| header.responder = room);
            Snapshot::open(&file).map(|snapshot| snapshot.responder().map(<[u8]>::to_vec))
        };
        assert_eq!(with_path(b""), Ok(None));
        for path in [&b"/"[..], b"/run/x", &[b'/'; RESPONDER_BYTES - 1]] {
            assert_eq!(with_path(path), Ok(Some(path.to_vec())));
        }
        for path in [&b"run/x"[..], b"\0/run/x", b"/run\0x", &[b'/'; RESPONDER_BYTES]] {
            assert_eq!(with_path(path), Err(OpenError::BadResponder), "{}", path.escape_ascii());
        }
    }

    #[test]
    fn open_errors_say_what_is_wrong() {
        let (accounts, shadow) = (Kind::Accounts, Kind::Shadow);
        for (error, text) in [
            (
                OpenError::TooShort { found: 3 },
                "3 bytes are too short for a snapshot: 512 is the least",
            ),
            (OpenError::BadMagic, "not a snapshot: it does not start with \"ROSTER\\r\\n\""),
            (
                OpenError::BadVersion { found: 1 },
                "snapshot format 1, but this program reads format 3: \
                 compile it anew with the program of this version",
            ),
            (OpenError::DamagedHeader, "the header does not match its checksum"),
            (
                OpenError::BadKind { expected: accounts, found: 2 },
                "not a snapshot of accounts (kind 1, found 2)",
            ),
            (
                OpenError::BadKind { expected: shadow, found: 1 },
                "not a snapshot of shadow entries (kind 2, found 1)",
            ),
            (
                OpenError::BadLength { expected: 8, found: 9 },
                "the header says 8 bytes, the file has 9: cut or appended",
            ),
            (
                OpenError::BadSection { id: 4 },
                "section 4 is not known, stands twice or lies outside the file",
            ),
            (
                OpenError::BadResponder,
                "the path of the responder's socket is not absolute or does not end",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }
}
