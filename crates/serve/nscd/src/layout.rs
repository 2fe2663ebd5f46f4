// SPDX-License-Identifier: MIT OR Apache-2.0
//! Byte layout of a map as glibc's nscd client maps and reads it. All integers have native byte order.
//! `docs/internals/nscd-map.md` describes the format. `map_builder` writes it, and `live_map` reads and changes it.

/// Version of the map format, in the header.
pub const MAP_VERSION: i32 = 2;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 120;
/// Alignment of the size of the chain table, which follows the header.
pub const TABLE_ALIGN: usize = 16;
/// Alignment of chain entries and packet headers. Clients reject a misaligned one.
pub const RECORD_ALIGN: usize = 8;
/// Marks the end of a chain.
pub const END: u32 = u32::MAX;
/// Size of a chain entry in bytes.
pub const ENTRY_BYTES: usize = 32;
/// Size of the header before a packet in bytes.
pub const PACKET_HEADER_BYTES: usize = 24;
/// Alignment of the length of a file, because clients unmap whole pages.
pub const PAGE_BYTES: usize = 4096;
/// Bytes that the server adds to the data size to announce a new map.
pub const RAISE_BYTES: i32 = 16;
/// Maximum number of such additions. All fit into the last page; clients would otherwise leave a page mapped.
pub const RAISES_MAX: usize = 16;
/// Maximum bytes of data in a map: its length is an `int`.
pub const DATA_BYTES_MAX: usize = i32::MAX as usize - PAGE_BYTES;

/// Offsets in the header.
pub mod header {
    /// [`MAP_VERSION`](super::MAP_VERSION).
    pub const VERSION: usize = 0;
    /// [`HEADER_BYTES`](super::HEADER_BYTES).
    pub const HEADER_SIZE: usize = 4;
    /// Counter that is odd while records move and has changed afterwards.
    pub const GC_CYCLE: usize = 8;
    /// Nonzero if clients need not check the timestamp.
    pub const CERTAINLY_RUNNING: usize = 12;
    /// Time of the last server update, in seconds since 1970, 64 bits.
    pub const TIMESTAMP: usize = 16;
    /// Number of chains.
    pub const MODULE: usize = 40;
    /// Bytes of data after the table.
    pub const DATA_SIZE: usize = 44;
    /// Offset of the free part of the data.
    pub const FIRST_FREE: usize = 48;
    /// Number of entries.
    pub const ENTRIES: usize = 52;
    /// Highest number of entries so far.
    pub const ENTRIES_MAX: usize = 56;
}

/// Offsets in a chain entry.
pub mod entry {
    /// Kind of request, one byte.
    pub const KIND: usize = 0;
    /// 1 if the record was made for this key, one byte.
    pub const FIRST: usize = 1;
    /// Length of the key with its NUL, in bytes.
    pub const KEY_BYTES: usize = 4;
    /// Offset of the key.
    pub const KEY: usize = 8;
    /// Uid of the requesting user; unused here.
    pub const OWNER: usize = 12;
    /// Offset of the next entry.
    pub const NEXT: usize = 16;
    /// Offset of the packet header.
    pub const PACKET: usize = 20;
}

/// Offsets in the header before a packet.
pub mod packet {
    /// Bytes of the record, including this header.
    pub const ALLOCATED: usize = 0;
    /// Bytes of the packet as sent over a socket. With 0, clients query the name services.
    pub const SIZE: usize = 4;
    /// Expiry in seconds since 1970, 64 bits. Clients ignore it.
    pub const TIMEOUT: usize = 8;
    /// 1 for a negative entry, one byte.
    pub const ABSENT: usize = 16;
    /// 1 if the record is valid, one byte.
    pub const USABLE: usize = 18;
}

/// Rounds `bytes` up to a multiple of `to`.
#[must_use]
pub const fn rounded(bytes: usize, to: usize) -> usize {
    bytes.next_multiple_of(to)
}

/// Returns the bytes of a table of `module` chains.
#[must_use]
pub const fn table_bytes(module: usize) -> usize {
    rounded(module * 4, TABLE_ALIGN)
}

/// Returns the hash of a key that includes its NUL.
#[must_use]
pub fn hash(key: &[u8]) -> u32 {
    key.iter().fold(0, |hash: u32, &byte| hash.wrapping_mul(65_599).wrapping_add(byte.into()))
}
