// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to an NSS responder. `reply` has the other direction, and `pam` the requests of logins.

use crate::{Malformed, VERSION};
use roster_request::LookupKind;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a request.
pub(crate) const MAGIC: [u8; 4] = *b"RSTQ";
/// Maximum length of a name in a request. Longer names are never served.
pub const NAME_BYTES_MAX: usize = 1024;
/// Length of a request before the name.
pub const REQUEST_HEADER_BYTES: usize = size_of::<RawNssRequestHeader>();
/// Maximum length of a request.
pub const REQUEST_BYTES_MAX: usize = REQUEST_HEADER_BYTES + NAME_BYTES_MAX;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawNssRequestHeader {
    magic: [u8; 4],
    version: U16,
    kind: U16,
    id: U32,
    name_bytes: U32,
}

/// A request.
///
/// ```
/// use roster_request::LookupKind;
/// use roster_wire::{NssRequest, REQUEST_BYTES_MAX};
///
/// let request = NssRequest::by_name(LookupKind::UserByName, b"alice").unwrap();
/// let mut room = [0; REQUEST_BYTES_MAX];
/// let frame = request.write(&mut room);
/// assert_eq!(frame, b"RSTQ\x01\0\0\0\0\0\0\0\x05\0\0\0alice");
/// assert_eq!(NssRequest::read(frame), Ok(request));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NssRequest<'n> {
    /// Kind of the lookup.
    pub kind: LookupKind,
    /// The name, or empty.
    pub name: &'n [u8],
    /// The id, or 0.
    pub id: u32,
}

impl<'n> NssRequest<'n> {
    /// Creates a request by name. Returns `None` for a name that no entry can have.
    #[must_use]
    pub fn by_name(kind: LookupKind, name: &'n [u8]) -> Option<Self> {
        let possible = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        possible.then_some(Self { kind, name, id: 0 })
    }

    /// Creates a request by id.
    #[must_use]
    pub fn by_id(kind: LookupKind, id: u32) -> Self {
        Self { kind, name: &[], id }
    }

    /// Decodes a complete request.
    pub fn read(bytes: &'n [u8]) -> Result<Self, Malformed> {
        let (header, name) = bytes.split_first_chunk().ok_or(Malformed)?;
        NssRequestHeader::parse(header)?.with_name(name)
    }

    /// Encodes the request in `room`, ready to be sent at once. A name that is too long is truncated, and the responder
    /// rejects the request.
    pub fn write<'r>(&self, room: &'r mut [u8; REQUEST_BYTES_MAX]) -> &'r [u8] {
        let bytes = self.header().into_iter().chain(self.name.iter().copied());
        for (to, from) in room.iter_mut().zip(bytes) {
            *to = from;
        }
        room.get(..REQUEST_HEADER_BYTES.saturating_add(self.name.len())).unwrap_or(room)
    }

    /// Returns the header, which precedes the name.
    #[must_use]
    pub fn header(&self) -> [u8; REQUEST_HEADER_BYTES] {
        let header = RawNssRequestHeader {
            magic: MAGIC,
            version: U16::new(VERSION),
            kind: U16::new(self.kind as u16),
            id: U32::new(self.id),
            name_bytes: U32::new(self.name.len() as u32),
        };
        zerocopy::transmute!(header)
    }
}

/// The header of a request, without its name.
///
/// ```
/// use roster_request::LookupKind;
/// use roster_wire::{NssRequest, NssRequestHeader};
///
/// let request = NssRequest::by_name(LookupKind::GroupByName, b"staff").unwrap();
/// let header = NssRequestHeader::parse(&request.header())?;
/// assert_eq!(header.name_bytes(), 5);
/// assert_eq!(header.with_name(b"staff"), Ok(request));
/// # Ok::<(), roster_wire::Malformed>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NssRequestHeader {
    kind: LookupKind,
    id: u32,
    name_bytes: usize,
}

impl NssRequestHeader {
    /// Decodes and checks a header.
    pub fn parse(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<Self, Malformed> {
        let header = RawNssRequestHeader::ref_from_bytes(bytes).map_err(|_| Malformed)?;
        if header.magic != MAGIC || header.version.get() != VERSION {
            return Err(Malformed);
        }
        let kind = LookupKind::from_number(header.kind.get()).ok_or(Malformed)?;
        let (id, name_bytes) = (header.id.get(), header.name_bytes.get() as usize);
        let is_whole = if kind.is_by_name() {
            id == 0 && (1..=NAME_BYTES_MAX).contains(&name_bytes)
        } else {
            name_bytes == 0
        };
        if is_whole { Ok(Self { kind, id, name_bytes }) } else { Err(Malformed) }
    }

    /// Returns the length of the name that follows, at most [`NAME_BYTES_MAX`].
    #[must_use]
    pub fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    /// Returns the request with its name.
    pub fn with_name<'n>(&self, name: &'n [u8]) -> Result<NssRequest<'n>, Malformed> {
        if name.len() != self.name_bytes || name.contains(&0) {
            return Err(Malformed);
        }
        Ok(NssRequest { kind: self.kind, name, id: self.id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed<'n>(header: &[u8; REQUEST_HEADER_BYTES], name: &'n [u8]) -> Option<NssRequest<'n>> {
        NssRequestHeader::parse(header).ok()?.with_name(name).ok()
    }

    #[test]
    fn what_was_asked_is_what_arrives() {
        for kind in (0..5).filter_map(LookupKind::from_number) {
            let request = if kind.is_by_name() {
                NssRequest::by_name(kind, b"alice").unwrap()
            } else {
                NssRequest::by_id(kind, 4_000_000_000)
            };
            assert_eq!(parsed(&request.header(), request.name), Some(request));
            let mut room = [0xff; REQUEST_BYTES_MAX];
            let written = request.write(&mut room);
            assert_eq!(written, [&request.header()[..], request.name].concat());
            assert_eq!(NssRequest::read(written), Ok(request));
        }
    }

    #[test]
    fn kind_numbers_are_those_of_page() {
        let kinds = [
            (LookupKind::UserByName, true),
            (LookupKind::UserByUid, false),
            (LookupKind::GroupByName, true),
            (LookupKind::GroupByGid, false),
            (LookupKind::GroupsOf, true),
        ];
        for (number, (kind, is_by_name)) in (0..).zip(kinds) {
            assert_eq!(LookupKind::from_number(number), Some(kind));
            assert_eq!((kind as u16, kind.is_by_name()), (number, is_by_name));
        }
        assert!((5..=u16::MAX).all(|number| LookupKind::from_number(number).is_none()));
    }

    #[test]
    fn header_name_length_within_limit() {
        let header = |kind: u8, name_bytes: u32| {
            let mut header = [0; REQUEST_HEADER_BYTES];
            header[..8].copy_from_slice(&[b'R', b'S', b'T', b'Q', 1, 0, kind, 0]);
            header[12..].copy_from_slice(&name_bytes.to_le_bytes());
            NssRequestHeader::parse(&header).map(|header| header.name_bytes())
        };
        assert_eq!(header(0, 1), Ok(1));
        assert_eq!(header(0, 5), Ok(5));
        assert_eq!(header(0, NAME_BYTES_MAX as u32), Ok(NAME_BYTES_MAX));
        assert_eq!(header(0, 0), Err(Malformed));
        assert_eq!(header(0, NAME_BYTES_MAX as u32 + 1), Err(Malformed));
        assert_eq!(header(0, u32::MAX), Err(Malformed));
        assert_eq!(header(1, 0), Ok(0));
        assert_eq!(header(1, 1), Err(Malformed));
        assert_eq!((REQUEST_HEADER_BYTES, REQUEST_BYTES_MAX), (16, 16 + 1024));
    }

    #[test]
    fn a_name_that_nothing_can_have_is_not_asked_for() {
        let longest = [b'n'; NAME_BYTES_MAX];
        assert!(NssRequest::by_name(LookupKind::UserByName, &longest).is_some());
        assert_eq!(NssRequest::by_name(LookupKind::UserByName, &[b'n'; NAME_BYTES_MAX + 1]), None);
        assert_eq!(NssRequest::by_name(LookupKind::UserByName, b""), None);
    }

    #[test]
    fn a_header_with_anything_wrong_is_refused() {
        let right = NssRequest::by_name(LookupKind::GroupsOf, b"alice").unwrap().header();
        assert!(parsed(&right, b"alice").is_some());
        for (place, value) in [(0, b'r'), (4, 2), (5, 1), (6, 5), (7, 1), (8, 1), (12, 0), (13, 5)]
        {
            let mut wrong = right;
            wrong[place] = value;
            assert_eq!(parsed(&wrong, b"alice"), None, "byte {place}");
        }
        let mut named_id = NssRequest::by_id(LookupKind::UserByUid, 7).header();
        named_id[12] = 5;
        assert_eq!(parsed(&named_id, b"alice"), None);
        assert_eq!(parsed(&right, b"alic"), None);
        assert_eq!(parsed(&right, b"al\0ce"), None);
    }
}
