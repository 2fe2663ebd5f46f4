//! A map that is in use: finding what is in it as clients do, and what may be changed about it while
//! they read. Records are only ever added, in what was left free; they go out of their chains when
//! their time is over, and their place is used again only after clients were told that all moved.

use crate::layout::{
    END, ENTRY_BYTES, HEADER_BYTES, MAP_VERSION, PACKET_HEADER_BYTES, PAGE_BYTES, RAISE_BYTES,
    RECORD_ALIGN, entry, header, packet, rounded, table_bytes,
};
use crate::map::{hash_with_nul, packet_header, push_entry};
use crate::protocol::Kind;
use crate::shared::{Memory, Shared};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The largest part of the free room that one record may take.
const SHARE_MAX: usize = 8;
/// After the room was emptied nothing is added for that long: who was stopped in the middle of a look-up may
/// read there still. Also, all clients come by the socket for a moment each time.
const RESTS: Duration = Duration::from_secs(3);
/// Added records in one chain. Everybody may have keys added, and so choose whose look-ups pass them.
const ADDED_MAX: usize = 8;

/// What a map says of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// This is the answer, whole.
    Answer(Vec<u8>),
    /// The name services know.
    AskServices,
    /// Nothing.
    Nothing,
}

/// Looks a key up as clients do.
#[must_use]
pub fn find(map: &(impl Memory + ?Sized), kind: Kind, key: &[u8]) -> Said {
    search(map, kind, key).unwrap_or(Said::Nothing)
}

fn search(map: &(impl Memory + ?Sized), kind: Kind, key: &[u8]) -> Option<Said> {
    let module = map.word(header::MODULE)? as usize;
    let data = HEADER_BYTES + table_bytes(module);
    let chain = hash_with_nul(key).checked_rem(module as u32)? as usize;
    let mut at = map.word(HEADER_BYTES + chain * 4)?;
    let mut key_there = vec![0; key.len() + 1];
    // Whatever the header says: a chain has no more links than there are bytes for.
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
                let said = if answer.is_empty() { Said::AskServices } else { Said::Answer(answer) };
                return Some(said);
            }
        }
        at = map.word(start + entry::NEXT)?;
    }
    None
}

/// Whether the bytes begin as a map does; gives the bytes that it needs.
#[must_use]
pub fn needs(head: &(impl Memory + ?Sized)) -> Option<usize> {
    let version = head.word(header::VERSION)?.cast_signed();
    let bytes = head.word(header::HEADER_SIZE)? as usize;
    let module = usize::try_from(head.word(header::MODULE)?.cast_signed()).ok()?;
    let data = usize::try_from(head.word(header::DATA_SIZE)?.cast_signed()).ok()?;
    let is_map = version == MAP_VERSION && bytes == HEADER_BYTES && module > 0;
    is_map.then(|| HEADER_BYTES + table_bytes(module) + data)
}

struct Known {
    place: u32,
    until: Instant,
}

/// A map that clients use.
pub struct Live {
    shared: Shared,
    room: Range<usize>,
    next: usize,
    known: HashMap<(Kind, Vec<u8>), Known>,
    ends: BTreeMap<(Instant, u32), (Kind, Vec<u8>)>,
    emptied: Option<Instant>,
}

impl Live {
    /// A map of which that part of the data is free.
    #[must_use]
    pub fn new(shared: Shared, room: Range<usize>) -> Self {
        let next = room.start;
        Self { shared, room, next, known: HashMap::new(), ends: BTreeMap::new(), emptied: None }
    }

    /// The bytes.
    #[must_use]
    pub fn map(&self) -> &Shared {
        &self.shared
    }

    /// Records that were added and are still in.
    #[must_use]
    pub fn added(&self) -> usize {
        self.known.len()
    }

    /// Says that the server was there at that time, in seconds since 1970.
    pub fn touch(&mut self, now: i64) {
        self.shared.store_long(header::TIMESTAMP, now);
    }

    /// Adds an answer for a while. Says whether there was room.
    pub fn add(
        &mut self,
        kind: Kind,
        key: &[u8],
        answer: &[u8],
        absent: bool,
        now: Instant,
        life: Duration,
    ) -> bool {
        self.remove(kind, key);
        let key_bytes = rounded(ENTRY_BYTES + key.len() + 1, RECORD_ALIGN);
        let bytes = rounded(key_bytes + PACKET_HEADER_BYTES + answer.len(), RECORD_ALIGN);
        if life.is_zero() || bytes > self.room.len() / SHARE_MAX {
            return false;
        }
        if self.emptied.is_some_and(|last| now < last + RESTS) {
            return false;
        }
        if self.next + bytes > self.room.end {
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
        self.known.insert((kind, key.to_vec()), Known { place, until });
        self.ends.insert((until, place), (kind, key.to_vec()));
        true
    }

    /// Takes out what is over. Gives when the next one is.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        while let Some((&(until, _), (kind, key))) = self.ends.first_key_value() {
            if until > now {
                return Some(until);
            }
            let (kind, key) = (*kind, key.clone());
            self.remove(kind, &key);
        }
        None
    }

    /// Takes out all that was added, and has clients that are reading right now start again.
    pub fn empty(&mut self, now: Instant) {
        self.emptied = Some(now);
        let cycle = self.shared.word(header::GC_CYCLE).unwrap_or_default() & !1;
        self.shared.store(header::GC_CYCLE, cycle.wrapping_add(1));
        for (kind, key) in self.known.keys().cloned().collect::<Vec<_>>() {
            self.remove(kind, &key);
        }
        self.next = self.room.start;
        self.shared.store(header::GC_CYCLE, cycle.wrapping_add(2));
    }

    /// Where the data begins, and the head of a key's chain.
    fn head(&self, key: &[u8]) -> Option<(usize, usize)> {
        let module = self.shared.word(header::MODULE)?;
        let chain = hash_with_nul(key).checked_rem(module)? as usize;
        Some((HEADER_BYTES + table_bytes(module as usize), HEADER_BYTES + chain * 4))
    }

    /// The link at the end of a chain, behind what the map began with; none where the chain has enough.
    fn end(&self, data: usize, head: usize) -> Option<usize> {
        let (mut link, mut added) = (head, 0);
        for _ in 0..self.links_max() {
            let at = self.shared.word(link)?;
            if at == END {
                return Some(link);
            }
            added += usize::from(self.room.contains(&(at as usize)));
            if added >= ADDED_MAX {
                return None;
            }
            link = data + at as usize + entry::NEXT;
        }
        None
    }

    /// More links no chain has.
    fn links_max(&self) -> usize {
        self.shared.word(header::DATA_SIZE).unwrap_or_default() as usize / ENTRY_BYTES
    }

    /// Takes a record out of its chain. Who stands on it goes on from there.
    fn remove(&mut self, kind: Kind, key: &[u8]) {
        let Some(known) = self.known.remove(&(kind, key.to_vec())) else { return };
        self.ends.remove(&(known.until, known.place));
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

    /// The mapping alone.
    #[must_use]
    pub fn into_map(self) -> Shared {
        self.shared
    }
}

/// Tells clients that there is another map: what they mapped has become longer than it was. False
/// when the last page is full.
pub fn raise(map: &mut Shared) -> bool {
    let Some(data) = map.word(header::DATA_SIZE) else { return false };
    let longer = data.wrapping_add(RAISE_BYTES.cast_unsigned());
    let Some(needed) = needs(map) else { return false };
    let page = rounded(needed, PAGE_BYTES);
    if needed + RAISE_BYTES as usize > page {
        return false;
    }
    map.store(header::DATA_SIZE, longer);
    true
}

/// Has every client that is reading there start again, and ask by the socket: as if records moved, which
/// never ends.
pub fn close(map: &mut Shared) {
    let cycle = map.word(header::GC_CYCLE).unwrap_or_default();
    map.store(header::GC_CYCLE, cycle | 1);
}

/// Has every client look for another map at its next look-up.
pub fn outdate(map: &mut Shared) {
    map.store_long(header::TIMESTAMP, 0);
}
