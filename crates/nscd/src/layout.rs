//! The bytes of a map: what glibc's client of nscd maps and reads. All integers are in the machine's
//! own byte order. `docs/nscd-map.md` is the prose of this module.

/// Version of the map, in its header.
pub const MAP_VERSION: i32 = 2;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 120;
/// The table of chains behind the header is rounded up to this.
pub const TABLE_ALIGN: usize = 16;
/// Entries of chains and what stands before a packet begin at multiples of this, or clients leave them.
pub const RECORD_ALIGN: usize = 8;
/// Ends a chain.
pub const END: u32 = u32::MAX;
/// Bytes of an entry of a chain.
pub const ENTRY_BYTES: usize = 32;
/// Bytes in front of a packet.
pub const PACKET_HEADER_BYTES: usize = 24;
/// A file ends where a page does, for clients unmap pages.
pub const PAGE_BYTES: usize = 4096;
/// What a client maps is lengthened by this to say that there is another.
pub const RAISE_BYTES: i32 = 16;
/// How often at the most. The last page has room for all of them, or clients would leave a page mapped.
pub const RAISES_MAX: usize = 16;
/// The most that the data of a map may be: its length is an `int`.
pub const DATA_BYTES_MAX: usize = i32::MAX as usize - PAGE_BYTES;

/// Places in the header.
pub mod header {
    /// [`MAP_VERSION`](super::MAP_VERSION).
    pub const VERSION: usize = 0;
    /// [`HEADER_BYTES`](super::HEADER_BYTES).
    pub const HEADER_SIZE: usize = 4;
    /// Odd while records move; another than before when they have.
    pub const GC_CYCLE: usize = 8;
    /// Whether clients need not look at the time.
    pub const CERTAINLY_RUNNING: usize = 12;
    /// When the server was last seen, in seconds since 1970, 64 bits.
    pub const TIMESTAMP: usize = 16;
    /// Chains.
    pub const MODULE: usize = 40;
    /// Bytes of data behind the table.
    pub const DATA_SIZE: usize = 44;
    /// Where the data is free.
    pub const FIRST_FREE: usize = 48;
    /// Entries.
    pub const ENTRIES: usize = 52;
    /// The most that there were.
    pub const ENTRIES_MAX: usize = 56;
}

/// Places in an entry of a chain.
pub mod entry {
    /// The kind of request, one byte.
    pub const KIND: usize = 0;
    /// Whether the record was made for this key, one byte.
    pub const FIRST: usize = 1;
    /// Bytes of the key, with its NUL.
    pub const KEY_BYTES: usize = 4;
    /// Where the key is.
    pub const KEY: usize = 8;
    /// The user who asked; nobody here.
    pub const OWNER: usize = 12;
    /// The next entry.
    pub const NEXT: usize = 16;
    /// The packet.
    pub const PACKET: usize = 20;
}

/// Places in what stands before a packet.
pub mod packet {
    /// Bytes of the record, this header included.
    pub const ALLOCATED: usize = 0;
    /// Bytes of the packet as a socket would send it; 0 sends clients to the name services.
    pub const SIZE: usize = 4;
    /// When it is over, in seconds since 1970, 64 bits. Clients do not look.
    pub const TIMEOUT: usize = 8;
    /// Whether it says that nobody is there, one byte.
    pub const ABSENT: usize = 16;
    /// Whether it may be used, one byte.
    pub const USABLE: usize = 18;
}

/// Rounds up.
#[must_use]
pub const fn rounded(bytes: usize, to: usize) -> usize {
    bytes.next_multiple_of(to)
}

/// Bytes of the table of that many chains.
#[must_use]
pub const fn table_bytes(module: usize) -> usize {
    rounded(module * 4, TABLE_ALIGN)
}

/// The hash of a key, NUL included.
#[must_use]
pub fn hash(key: &[u8]) -> u32 {
    key.iter().fold(0, |hash: u32, &byte| hash.wrapping_mul(65_599).wrapping_add(byte.into()))
}
