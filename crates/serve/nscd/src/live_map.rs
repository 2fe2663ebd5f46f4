// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on a map in use: lookups in the way of clients, and changes while clients read. `map_builder` makes the
//! map, and `dispatch` uses the operations.
//!
//! Records are only added, to the free part of the data. Expired records leave their chains. Their space is reused only
//! after clients were notified that all records moved.

use crate::layout::{
    END, ENTRY_BYTES, HEADER_BYTES, MAP_VERSION, PACKET_HEADER_BYTES, PAGE_BYTES, RAISE_BYTES,
    RECORD_ALIGN, entry, header, packet, rounded, table_bytes,
};
use crate::map_builder::{hash_with_nul, packet_header, push_entry};
use crate::protocol::MapLookupKind;
use crate::shared_memory::{MapMemory, SharedMapping};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::{Duration, Instant};

/// One record may use at most this fraction of the free part.
const RECORD_SHARE_DIVISOR: usize = 8;
/// After the free part was cleared, no record is added for this time: a client that was suspended during a lookup may
/// still read there. Each clearing also sends all clients to the socket for a moment.
const PAUSE_AFTER_EMPTY: Duration = Duration::from_secs(3);
/// Maximum number of added records in one chain. Any user can have keys added, and so select the chains that grow.
const ADDED_MAX: usize = 8;

/// Result of a lookup in a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapLookup {
    /// The complete reply.
    Answer(Vec<u8>),
    /// The map redirects the client to the name services.
    UseServices,
    /// The map does not contain the key.
    NotInMap,
}

/// Looks up a key in the way of clients.
#[must_use]
pub fn find(map: &(impl MapMemory + ?Sized), kind: MapLookupKind, key: &[u8]) -> MapLookup {
    search(map, kind, key).unwrap_or(MapLookup::NotInMap)
}

fn search(map: &(impl MapMemory + ?Sized), kind: MapLookupKind, key: &[u8]) -> Option<MapLookup> {
    let module = map.word(header::MODULE)? as usize;
    let data = HEADER_BYTES + table_bytes(module);
    let chain = hash_with_nul(key).checked_rem(module as u32)? as usize;
    let mut at = map.word(HEADER_BYTES + chain * 4)?;
    let mut key_there = vec![0; key.len() + 1];
    // Bounds the loop if the header is corrupt: a chain has at most this many links.
    for _ in 0..map.size() / ENTRY_BYTES {
        if at == END {
            break;
        }
        let start = data + at as usize;
        let mut kind_there = [0];
        map.read(start + entry::KIND, &mut kind_there)?;
        if kind_there == [kind as u8]
            && map.word(start + entry::KEY_BYTES)? as usize == key_there.len()
        {
            map.read(data + map.word(start + entry::KEY)? as usize, &mut key_there)?;
            if key_there.split_last() == Some((&0, key)) {
                let start = data + map.word(start + entry::PACKET)? as usize;
                let size = map.word(start + packet::SIZE)? as usize;
                let mut answer = vec![0; size.min(map.size())];
                map.read(start + PACKET_HEADER_BYTES, &mut answer)?;
                let said = if answer.is_empty() {
                    MapLookup::UseServices
                } else {
                    MapLookup::Answer(answer)
                };
                return Some(said);
            }
        }
        at = map.word(start + entry::NEXT)?;
    }
    None
}

/// Returns the bytes that a map needs, or `None` if `head` does not begin with a valid header.
#[must_use]
pub fn bytes_needed(head: &(impl MapMemory + ?Sized)) -> Option<usize> {
    let version = head.word(header::VERSION)?.cast_signed();
    let bytes = head.word(header::HEADER_SIZE)? as usize;
    let module = usize::try_from(head.word(header::MODULE)?.cast_signed()).ok()?;
    let data = usize::try_from(head.word(header::DATA_SIZE)?.cast_signed()).ok()?;
    let is_map = version == MAP_VERSION && bytes == HEADER_BYTES && module > 0;
    is_map.then(|| HEADER_BYTES + table_bytes(module) + data)
}

struct AddedRecord {
    place: u32,
    until: Instant,
}

/// A map that clients use.
pub struct LiveMap {
    shared: SharedMapping,
    free: Range<usize>,
    next: usize,
    records: HashMap<(MapLookupKind, Vec<u8>), AddedRecord>,
    expirations: BTreeMap<(Instant, u32), (MapLookupKind, Vec<u8>)>,
    emptied: Option<Instant>,
}

impl LiveMap {
    /// Creates a live map. `room` is the free part of its data.
    #[must_use]
    pub fn new(shared: SharedMapping, room: Range<usize>) -> Self {
        let next = room.start;
        Self {
            shared,
            free: room,
            next,
            records: HashMap::new(),
            expirations: BTreeMap::new(),
            emptied: None,
        }
    }

    /// Returns the mapping.
    #[must_use]
    pub fn map(&self) -> &SharedMapping {
        &self.shared
    }

    /// Returns the number of added records.
    #[must_use]
    pub fn added(&self) -> usize {
        self.records.len()
    }

    /// Sets the timestamp of the server to `now`, in seconds since 1970.
    pub fn touch(&mut self, now: i64) {
        self.shared.store_long(header::TIMESTAMP, now);
    }

    /// Adds a reply for the time `life`. Returns whether it was added.
    pub fn add(
        &mut self,
        kind: MapLookupKind,
        key: &[u8],
        answer: &[u8],
        absent: bool,
        now: Instant,
        life: Duration,
    ) -> bool {
        self.remove(kind, key);
        let key_bytes = rounded(ENTRY_BYTES + key.len() + 1, RECORD_ALIGN);
        let bytes = rounded(key_bytes + PACKET_HEADER_BYTES + answer.len(), RECORD_ALIGN);
        if life.is_zero() || bytes > self.free.len() / RECORD_SHARE_DIVISOR {
            return false;
        }
        if self.emptied.is_some_and(|last| now < last + PAUSE_AFTER_EMPTY) {
            return false;
        }
        if self.next + bytes > self.free.end {
            self.empty(now);
            return false;
        }
        let place = self.next as u32;
        let Some((data, head)) = self.head(key) else { return false };
        let Some(end) = self.end(data, head) else { return false };
        let mut record = Vec::with_capacity(bytes);
        let packet_at = place + key_bytes as u32;
        push_entry(
            &mut record,
            kind,
            true,
            key.len() + 1,
            [place + ENTRY_BYTES as u32, END, packet_at],
        );
        record.extend_from_slice(key);
        record.resize(key_bytes, 0);
        let allocated = bytes - key_bytes;
        record.extend(packet_header(allocated, answer.len(), i64::MAX, absent));
        record.extend_from_slice(answer);
        if self.shared.write(data + self.next, &record).is_none() {
            return false;
        }
        self.shared.store(end, place);
        self.next += bytes;
        let until = now + life;
        self.records.insert((kind, key.to_vec()), AddedRecord { place, until });
        self.expirations.insert((until, place), (kind, key.to_vec()));
        true
    }

    /// Removes expired records. Returns the time of the next expiry.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        while let Some((&(until, _), (kind, key))) = self.expirations.first_key_value() {
            if until > now {
                return Some(until);
            }
            let (kind, key) = (*kind, key.clone());
            self.remove(kind, &key);
        }
        None
    }

    /// Removes all added records, and makes clients that are reading start again.
    pub fn empty(&mut self, now: Instant) {
        self.emptied = Some(now);
        let cycle = self.shared.word(header::GC_CYCLE).unwrap_or_default() & !1;
        self.shared.store(header::GC_CYCLE, cycle.wrapping_add(1));
        for (kind, key) in self.records.keys().cloned().collect::<Vec<_>>() {
            self.remove(kind, &key);
        }
        self.next = self.free.start;
        self.shared.store(header::GC_CYCLE, cycle.wrapping_add(2));
    }

    /// Returns the offset of the data, and of the head of a key's chain.
    fn head(&self, key: &[u8]) -> Option<(usize, usize)> {
        let module = self.shared.word(header::MODULE)?;
        let chain = hash_with_nul(key).checked_rem(module)? as usize;
        Some((HEADER_BYTES + table_bytes(module as usize), HEADER_BYTES + chain * 4))
    }

    /// Returns the link at the end of a chain, after the prebuilt records. Returns `None` if the chain has enough added
    /// records.
    fn end(&self, data: usize, head: usize) -> Option<usize> {
        let (mut link, mut added) = (head, 0);
        for _ in 0..self.links_max() {
            let at = self.shared.word(link)?;
            if at == END {
                return Some(link);
            }
            added += usize::from(self.free.contains(&(at as usize)));
            if added >= ADDED_MAX {
                return None;
            }
            link = data + at as usize + entry::NEXT;
        }
        None
    }

    /// Returns an upper bound of the links in a chain.
    fn links_max(&self) -> usize {
        self.shared.word(header::DATA_SIZE).unwrap_or_default() as usize / ENTRY_BYTES
    }

    /// Unlinks a record from its chain. A client that is reading it continues with the next record.
    fn remove(&mut self, kind: MapLookupKind, key: &[u8]) {
        let Some(known) = self.records.remove(&(kind, key.to_vec())) else { return };
        self.expirations.remove(&(known.until, known.place));
        let Some((data, mut link)) = self.head(key) else { return };
        for _ in 0..self.links_max() {
            match self.shared.word(link) {
                Some(at) if at == known.place => {
                    let behind = self.shared.word(data + at as usize + entry::NEXT);
                    self.shared.store(link, behind.unwrap_or(END));
                    return;
                }
                Some(END) | None => return,
                Some(at) => link = data + at as usize + entry::NEXT,
            }
        }
    }

    /// Consumes the map and returns its mapping.
    #[must_use]
    pub fn into_map(self) -> SharedMapping {
        self.shared
    }
}

/// Notifies clients of a new map: the header's data size grows beyond their mapping. Returns false if the last page is
/// full.
pub fn announce_replacement(map: &mut SharedMapping) -> bool {
    let Some(data) = map.word(header::DATA_SIZE) else { return false };
    let longer = data.wrapping_add(RAISE_BYTES.cast_unsigned());
    let Some(needed) = bytes_needed(map) else { return false };
    let page = rounded(needed, PAGE_BYTES);
    if needed + RAISE_BYTES as usize > page {
        return false;
    }
    map.store(header::DATA_SIZE, longer);
    true
}

/// Makes all clients restart their lookup and use the socket: the map claims that records move, without an end.
pub fn close(map: &mut SharedMapping) {
    let cycle = map.word(header::GC_CYCLE).unwrap_or_default();
    map.store(header::GC_CYCLE, cycle | 1);
}

/// Makes each client look for a new map at its next lookup.
pub fn mark_outdated(map: &mut SharedMapping) {
    map.store_long(header::TIMESTAMP, 0);
}
