// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a snapshot: reads and checks the header, and splits the rest into sections. This module reads no record:
//! `index`, `strings` and `member_lists` do.

use crate::domains::Domains;
use crate::floor::{Floor, IdLimits};
use crate::hash::{self, ChecksumIdentity, Seed};
use crate::index::Index;
use crate::layout::{
    DomainOptionsSlot, DomainSlot, GroupSlot, HEADER_BYTES, MAGIC, Membership, NameSlot,
    SectionEntry, SectionId, ShadowSlot, SnapshotHeader, SnapshotKind, UserSlot, VERSION,
};
use crate::member_lists::PackedIds;
use core::ffi::CStr;
use core::fmt;
use core::mem::offset_of;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A view of a snapshot's bytes. A copy is cheap. The crate documentation lists its checks.
///
/// ```
/// use roster_snapshot::Snapshot;
///
/// let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let snapshot = Snapshot::open(bytes)?;
/// let alice = snapshot.user_by_name(b"alice")?.unwrap();
/// assert_eq!((alice.uid, alice.gid), (1000, 100));
/// assert_eq!(snapshot.group_by_gid(10)?.unwrap().record().name, b"staff");
/// assert!(snapshot.user_by_uid(4711)?.is_none());
/// assert_eq!(snapshot.responder(), Some(&b"/run/roster/nss"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    pub(crate) limits: IdLimits,
    pub(crate) seed: Seed,
    pub(crate) identity: ChecksumIdentity,
    pub(crate) users: &'a [UserSlot],
    pub(crate) groups: &'a [GroupSlot],
    pub(crate) names: &'a [NameSlot],
    pub(crate) memberships: &'a [Membership],
    pub(crate) member_ids: PackedIds<'a>,
    pub(crate) group_ids: PackedIds<'a>,
    pub(crate) gids: &'a [U32],
    pub(crate) shadows: &'a [ShadowSlot],
    pub(crate) long_text: &'a [u8],
    pub(crate) by_user_name: Index<'a>,
    pub(crate) by_uid: Index<'a>,
    pub(crate) by_group_name: Index<'a>,
    pub(crate) by_gid: Index<'a>,
    pub(crate) by_member: Index<'a>,
    pub(crate) by_shadow_name: Index<'a>,
    /// Whether the file names its domains, so that names may include them.
    pub(crate) has_domains: bool,
    /// Whether domains have options, so that other spellings may find entries.
    pub(crate) has_domain_options: bool,
    responder: &'a [u8],
    bytes: &'a [u8],
    header: &'a SnapshotHeader,
}

/// Reasons that bytes are not a valid snapshot.
///
/// ```
/// use roster_snapshot::{OpenError, Snapshot};
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let error = Snapshot::open(&bytes[..6000]).unwrap_err();
/// assert_eq!(error, OpenError::BadLength { expected: 6336, found: 6000 });
/// assert_eq!(error.to_string(), "the header says 6336 bytes, the file has 6000: cut or appended");
/// assert_eq!(Snapshot::open(&[0; 512]).unwrap_err(), OpenError::BadMagic);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// Shorter than a header.
    TooShort {
        /// Length of the bytes.
        found: u64,
    },
    /// The bytes are not a snapshot.
    BadMagic,
    /// The snapshot has another version.
    BadVersion {
        /// Version in the header.
        found: u32,
    },
    /// The header's checksum is wrong.
    DamagedHeader,
    /// The file has another kind than the caller requested, or an unknown kind.
    BadKind {
        /// The kind that the caller asked for.
        expected: SnapshotKind,
        /// The kind in the header.
        found: u32,
    },
    /// The file is shorter or longer than its header says.
    BadLength {
        /// Length in the header.
        expected: u64,
        /// Length of the bytes.
        found: u64,
    },
    /// The file needs a reader that knows a later change of the format.
    UnknownFeatures {
        /// The bits unknown to this reader.
        bits: u32,
    },
    /// A section is outside the file, has a record size of another version, or occurs twice.
    BadSection {
        /// Number of the section.
        id: u32,
    },
    /// The responder's path is not absolute, has no NUL, or has other bytes after it.
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
                 compile it again with the program of this version"
            ),
            Self::DamagedHeader => f.write_str("the header does not match its checksum"),
            Self::BadKind { expected, found } => {
                let name = match expected {
                    SnapshotKind::Accounts => "accounts",
                    SnapshotKind::Shadow => "shadow entries",
                };
                write!(f, "not a snapshot of {name} (kind {}, found {found})", *expected as u32)
            }
            Self::BadLength { expected, found } => {
                write!(f, "the header says {expected} bytes, the file has {found}: cut or appended")
            }
            Self::UnknownFeatures { bits } => write!(
                f,
                "the file needs a later reader (features {bits:#06x}): \
                 update this program, or compile the file with the program of this version"
            ),
            Self::BadSection { id } => {
                write!(
                    f,
                    "section {id} stands twice, lies outside the file or has a wrong record size"
                )
            }
            Self::BadResponder => {
                f.write_str("the path of the responder's socket is not absolute or does not end")
            }
        }
    }
}

impl core::error::Error for OpenError {}

/// Description of a section, for people and tools.
///
/// ```
/// use roster_snapshot::Snapshot;
/// use roster_snapshot::layout::SectionId;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let snapshot = Snapshot::open(bytes)?;
/// let users = snapshot.sections().find(|section| section.id == SectionId::Users).unwrap();
/// assert_eq!((users.count, users.record_bytes), (5, 128));
/// assert_eq!((users.offset, users.bytes), (4096, 640));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionInfo {
    /// Number of the section.
    pub id: SectionId,
    /// Offset from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Number of records.
    pub count: u64,
    /// Bytes of one record.
    pub record_bytes: u32,
}

/// Values of the header, and counts.
///
/// ```
/// use roster_snapshot::Snapshot;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let shape = Snapshot::open(bytes)?.shape();
/// assert_eq!(shape.file_bytes, bytes.len() as u64);
/// assert_eq!((shape.generation, shape.min_id), (7, 10));
/// assert_eq!((shape.users, shape.groups, shape.memberships), (5, 4, 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotSummary {
    /// Length of the file.
    pub file_bytes: u64,
    /// Number of publications.
    pub generation: u64,
    /// A uid or gid below this is damage.
    pub min_id: u32,
    /// Seed of the indices.
    pub seed: u64,
    /// Identity of the file, which is part of its record checksums.
    pub identity: u64,
    /// Number of passwd entries.
    pub users: u32,
    /// Number of group entries.
    pub groups: u32,
    /// Number of names of users and members.
    pub names: u32,
    /// Number of members in all groups.
    pub memberships: u64,
    /// Number of shadow entries.
    pub shadows: u32,
}

impl<'a> Snapshot<'a> {
    /// Opens a snapshot of users and groups. O(1): reads only the header.
    pub fn open(bytes: &'a [u8]) -> Result<Self, OpenError> {
        Self::open_kind(bytes, SnapshotKind::Accounts)
    }

    /// Opens a snapshot of shadow entries. O(1): reads only the header.
    pub fn open_shadow(bytes: &'a [u8]) -> Result<Self, OpenError> {
        Self::open_kind(bytes, SnapshotKind::Shadow)
    }

    fn open_kind(bytes: &'a [u8], expected: SnapshotKind) -> Result<Self, OpenError> {
        let found = bytes.len() as u64;
        let header = read_header(bytes)?;
        if header.kind.get() != expected as u32 {
            return Err(refused_kind(header.kind.get(), expected));
        }
        if header.file_bytes.get() != found {
            return Err(OpenError::BadLength { expected: header.file_bytes.get(), found });
        }
        let table = SectionTable::new(bytes, header)?;
        let identity = ChecksumIdentity(header.identity.get());
        let index = |id| table.typed(id).map(|buckets| Index { id, identity, buckets });
        let names: &[NameSlot] = table.typed(SectionId::Names)?;
        let memberships: &[Membership] = table.typed(SectionId::Memberships)?;
        if names.len() != memberships.len() {
            return Err(OpenError::BadSection { id: SectionId::Memberships as u32 });
        }
        Ok(Self {
            limits: IdLimits::without_floor(header.min_id.get()),
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
            has_domains: table.has_domains,
            has_domain_options: table.has_domain_options,
            responder: responder(header)?,
            bytes,
            header,
        })
    }

    /// Returns the generation in a header of either kind, without a check of the bytes after it. Returns `None` for an
    /// invalid header.
    #[must_use]
    pub fn generation(bytes: &[u8]) -> Option<u64> {
        read_header(bytes).ok().map(|header| header.generation.get())
    }

    /// Returns the values of the header, and the counts of entries.
    #[must_use]
    pub fn shape(&self) -> SnapshotSummary {
        SnapshotSummary {
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

    /// Returns the minimum uid of users and gid of groups.
    #[inline]
    #[must_use]
    pub fn min_id(&self) -> u32 {
        self.limits.min_id
    }

    /// Applies a floor: only its ids are served, and no password.
    pub fn set_floor(&mut self, floor: &Floor) {
        self.limits.set_floor(floor);
    }

    /// Returns the ids that are served.
    #[inline]
    #[must_use]
    pub fn limits(&self) -> &IdLimits {
        &self.limits
    }

    /// Returns the absolute path of the responder's socket; `None` if the snapshot is complete.
    #[inline]
    #[must_use]
    pub fn responder(&self) -> Option<&'a [u8]> {
        (!self.responder.is_empty()).then_some(self.responder)
    }

    /// Returns the sections in the order of the header.
    pub fn sections(&self) -> impl Iterator<Item = SectionInfo> {
        self.entries().filter_map(|entry| {
            Some(SectionInfo {
                id: section_id(entry.id.get())?,
                offset: entry.offset.get(),
                bytes: entry.count.get().saturating_mul(entry.record_bytes.get().into()),
                count: entry.count.get(),
                record_bytes: entry.record_bytes.get(),
            })
        })
    }

    /// Returns the domains with the positions of their entries, in the order of the file. The result is empty for a
    /// file without domains. The last item is an error if the domains do not cover all users and groups.
    #[inline(never)] // one copy in the module
    pub fn domains(&self) -> Result<Domains<'a>, OpenError> {
        let slots = self.rare_section(SectionId::Domains, size_of::<DomainSlot>())?;
        let slots = <[DomainSlot]>::ref_from_bytes(slots).unwrap_or_default();
        let options =
            self.rare_section(SectionId::DomainOptions, size_of::<DomainOptionsSlot>())?;
        let options = <[DomainOptionsSlot]>::ref_from_bytes(options).unwrap_or_default();
        if !options.is_empty() && options.len() != slots.len() {
            return Err(OpenError::BadSection { id: SectionId::DomainOptions as u32 });
        }
        Ok(Domains::new(slots, options, self.identity, [count(self.users), count(self.groups)]))
    }

    /// Returns the bytes of a section that most lookups do not read, with records of that length. Returns an empty slice
    /// without the section.
    #[inline(never)] // one copy in the module
    fn rare_section(&self, id: SectionId, record_bytes: usize) -> Result<&'a [u8], OpenError> {
        let bad = OpenError::BadSection { id: id as u32 };
        let mut found = None;
        for entry in self.entries().filter(|entry| entry.id.get() == id as u32) {
            let is_whole = entry.record_bytes.get() as usize == record_bytes;
            if !is_whole || found.replace(entry).is_some() {
                return Err(bad);
            }
        }
        match found {
            None => Ok(&[]),
            Some(entry) => cut(self.bytes, entry).ok_or(bad),
        }
    }

    fn entries(&self) -> impl Iterator<Item = &'a SectionEntry> {
        self.header.sections.iter().take(self.header.section_count.get() as usize)
    }

    /// Returns every index with its section, for verification and statistics.
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

    /// Returns the name in a name slot; `None` after the last slot.
    pub fn name(&self, position: u32) -> crate::LookupResult<&'a [u8]> {
        self.names.get(position as usize).map(|slot| self.name_of(slot)).transpose()
    }

    /// Returns whether all bytes after the header match the hash in the header. Reads the whole file.
    #[must_use]
    pub fn content_matches(&self) -> bool {
        let content = self.bytes.get(HEADER_BYTES..).unwrap_or_default();
        hash::plain(content) == self.header.content_hash.get()
    }
}

fn refused_kind(kind: u32, expected: SnapshotKind) -> OpenError {
    let (found, bits) = (kind & u32::from(u16::MAX), kind >> u16::BITS);
    if found == expected as u32 {
        OpenError::UnknownFeatures { bits }
    } else {
        OpenError::BadKind { expected, found }
    }
}

fn read_header(bytes: &[u8]) -> Result<&SnapshotHeader, OpenError> {
    let found = bytes.len() as u64;
    let (header, _) =
        SnapshotHeader::ref_from_prefix(bytes).map_err(|_| OpenError::TooShort { found })?;
    if header.magic != MAGIC {
        return Err(OpenError::BadMagic);
    }
    if header.version.get() != VERSION {
        return Err(OpenError::BadVersion { found: header.version.get() });
    }
    let hashed = bytes.get(..offset_of!(SnapshotHeader, header_hash)).unwrap_or_default();
    if !hash::agrees(header.header_hash.get(), hash::plain(hashed)) {
        return Err(OpenError::DamagedHeader);
    }
    Ok(header)
}

/// Returns the responder's path without its padding.
fn responder(header: &SnapshotHeader) -> Result<&[u8], OpenError> {
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

/// Sections that lookups read, by number, with checked bounds.
struct SectionTable<'a> {
    by_id: [Option<(&'a SectionEntry, &'a [u8])>; NUMBERS],
    has_domains: bool,
    has_domain_options: bool,
}

/// Size of the table of sections that lookups read. Their numbers count from 1.
const NUMBERS: usize = SectionId::ByShadowName as usize + 1;

impl<'a> SectionTable<'a> {
    fn new(bytes: &'a [u8], header: &'a SnapshotHeader) -> Result<Self, OpenError> {
        let mut by_id = [None; NUMBERS];
        let (mut has_domains, mut has_domain_options) = (false, false);
        let in_use = header.sections.get(..header.section_count.get() as usize);
        for entry in in_use.ok_or(OpenError::BadSection { id: 0 })? {
            let bad = OpenError::BadSection { id: entry.id.get() };
            let content = cut(bytes, entry).ok_or(bad)?;
            has_domains |= entry.id.get() == SectionId::Domains as u32;
            has_domain_options |= entry.id.get() == SectionId::DomainOptions as u32;
            // A later writer may add sections. This reader skips them.
            let Some(place) = by_id.get_mut(entry.id.get() as usize) else { continue };
            if place.is_some() {
                return Err(bad);
            }
            *place = Some((entry, content));
        }
        Ok(Self { by_id, has_domains, has_domain_options })
    }

    /// Returns the records of a section; an empty slice if the section is missing.
    fn typed<T: FromBytes + Immutable + KnownLayout>(
        &self,
        id: SectionId,
    ) -> Result<&'a [T], OpenError> {
        // The bytes are whole records, so this cannot fail.
        Ok(<[T]>::ref_from_bytes(self.bytes(id, size_of::<T>())?).unwrap_or_default())
    }

    /// Returns the bytes of a section with records of that length.
    #[inline(never)]
    fn bytes(&self, id: SectionId, record_bytes: usize) -> Result<&'a [u8], OpenError> {
        match self.by_id.get(id as usize).copied().flatten() {
            None => Ok(&[]),
            Some((entry, bytes)) if entry.record_bytes.get() as usize == record_bytes => Ok(bytes),
            Some(_) => Err(OpenError::BadSection { id: id as u32 }),
        }
    }

    fn ids(&self, id: SectionId) -> Result<PackedIds<'a>, OpenError> {
        match self.by_id.get(id as usize).copied().flatten() {
            Some((entry, _)) if entry.record_bytes.get() == 2 => {
                self.typed::<U16>(id).map(PackedIds::Narrow)
            }
            _ => self.typed::<U32>(id).map(PackedIds::Wide),
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

    /// Opens a file with a modified header and its correct checksum.
    fn opened(change: impl FnOnce(&mut SnapshotHeader)) -> Result<(), OpenError> {
        Snapshot::open(&with_header(ACCOUNTS, change)).map(drop)
    }

    /// Returns the index of a section in the table.
    fn place(header: &SnapshotHeader, id: SectionId) -> usize {
        header.sections.iter().position(|entry| entry.id.get() == id as u32).unwrap()
    }

    fn bad(id: SectionId) -> Result<(), OpenError> {
        Err(OpenError::BadSection { id: id as u32 })
    }

    #[test]
    fn open_file_says_what_is_in_it() {
        let snapshot = Snapshot::open(ACCOUNTS).unwrap();
        let shape = SnapshotSummary {
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
                SectionId::Domains,
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
            assert_eq!(opened, Err(OpenError::BadKind { expected: SnapshotKind::Accounts, found }));
        }
        for bits in [1, 1 << 15, u32::from(u16::MAX)] {
            let opened = opened(|header| header.kind |= U32::new(bits << 16));
            assert_eq!(opened, Err(OpenError::UnknownFeatures { bits }));
        }
        let expected = SnapshotKind::Shadow;
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
        // After magic and version, which are checked first. The checksum is at the end.
        for place in 12..HEADER_BYTES {
            let mut bytes = ACCOUNTS.to_vec();
            bytes[place] ^= 1;
            let opened = Snapshot::open(&bytes).map(drop);
            assert_eq!(opened, Err(OpenError::DamagedHeader), "byte {place}");
        }
    }

    #[test]
    fn section_unknown_skipped_twice_refused() {
        let long_text = |header: &SnapshotHeader| place(header, SectionId::LongText);
        for unknown in [18, 99, u32::MAX] {
            let renumber = |header: &mut SnapshotHeader| {
                let place = long_text(header);
                header.sections[place].id = U32::new(unknown);
                header.sections[place].record_bytes = U32::new(1);
            };
            let file = with_header(ACCOUNTS, renumber);
            let snapshot = Snapshot::open(&file).unwrap();
            assert_eq!(snapshot.sections().count(), 13, "section {unknown} is left out");
            assert!(snapshot.user_by_name(b"alice").unwrap().is_some());
            let outside = |header: &mut SnapshotHeader| {
                renumber(header);
                let place = header.sections.iter().position(|entry| entry.id.get() == unknown);
                header.sections[place.unwrap()].offset = U64::new(u64::MAX);
            };
            assert_eq!(opened(outside), Err(OpenError::BadSection { id: unknown }));
        }
        let twice = opened(|header| header.sections[1] = header.sections[0]);
        assert_eq!(twice, bad(SectionId::Users));
        // 14 entries are used. The next one is zeros, and 17 exceed the table.
        assert_eq!(opened(|header| header.section_count = U32::new(15)), Ok(()));
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
            // 2^63 records of an even size have 0 bytes modulo 2^64.
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
        // The same bytes, as twice as many records of half the size.
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
        let (accounts, shadow) = (SnapshotKind::Accounts, SnapshotKind::Shadow);
        for (error, text) in [
            (
                OpenError::TooShort { found: 3 },
                "3 bytes are too short for a snapshot: 512 is the least",
            ),
            (OpenError::BadMagic, "not a snapshot: it does not start with \"ROSTER\\r\\n\""),
            (
                OpenError::BadVersion { found: 1 },
                "snapshot format 1, but this program reads format 3: \
                 compile it again with the program of this version",
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
                "section 4 stands twice, lies outside the file or has a wrong record size",
            ),
            (
                OpenError::UnknownFeatures { bits: 2 },
                "the file needs a later reader (features 0x0002): \
                 update this program, or compile the file with the program of this version",
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
