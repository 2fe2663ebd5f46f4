// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the bytes of a map from snapshots. A plan first assigns the offset of every record. Threads, one per
//! processor, then write the records in parts to the caller's output. This module opens no file: `server::map_sources`
//! does. Later changes of a map are in `live_map`.
//!
//! The layout saves cache lines. A user's packet contains the name and lies between its two chain entries. Groups are
//! sorted by their first members. Their keys are apart from their members, which may be long.

use crate::layout::{
    DATA_BYTES_MAX, END, ENTRY_BYTES, HEADER_BYTES, MAP_VERSION, PACKET_HEADER_BYTES, PAGE_BYTES,
    RAISE_BYTES, RAISES_MAX, RECORD_ALIGN, hash, header, rounded, table_bytes,
};
use crate::nsswitch::ServiceStep;
use crate::protocol::{self, MapLookupKind, Table, fixed_bytes};
use roster_passwd_format::is_nis;
use roster_snapshot::{Damage, EntryStrings, Group, Snapshot, User};
use roster_snapshot_build::parallel;
use std::collections::HashSet;
use std::io;
use std::ops::Range;

/// Bytes of records that a thread makes before a write.
const STRETCH_BYTES: u64 = 1 << 20;
/// Marks an entry that is in no chain.
const UNLINKED: u32 = u32::MAX - 1;

/// A service in a map, with its accounts.
#[derive(Clone, Copy)]
pub struct ServiceLayer<'a> {
    /// Action after a result of this service.
    pub step: ServiceStep,
    /// The accounts of this service; `None` without its file.
    pub accounts: Option<Snapshot<'a>>,
}

/// Sources of a map.
#[derive(Clone, Copy)]
pub struct MapSources<'a> {
    /// Layers of users or groups, by precedence.
    pub entries: &'a [ServiceLayer<'a>],
    /// Layers of supplementary groups, by precedence.
    pub groups_of: &'a [ServiceLayer<'a>],
    /// Whether other services follow for supplementary groups.
    pub others_follow: bool,
}

/// Reasons that a map cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// A source is damaged.
    #[error("the snapshot is damaged")]
    Damaged,
    /// The map is too large for the client.
    #[error("{table} needs a map of {bytes} bytes, and clients read at most 2 GiB")]
    TooLarge {
        /// Name of the table.
        table: &'static str,
        /// Bytes needed.
        bytes: u64,
    },
    /// The output failed.
    #[error("cannot write a map")]
    Write(#[from] io::Error),
}

impl From<Damage> for MapError {
    fn from(_: Damage) -> Self {
        Self::Damaged
    }
}

/// Output of a map. Several threads write parts in any order.
pub trait MapOutput: Sync {
    /// Writes all bytes at `offset`.
    ///
    /// # Errors
    ///
    /// The output could not store all bytes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

impl MapOutput for std::fs::File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, offset)
    }
}

/// The plan of a map: sources and offsets.
pub struct MapPlan<'a> {
    table: Table,
    sources: MapSources<'a>,
    chains: HashChains,
    /// Users or groups, in the order of their offsets.
    records: Vec<LayerEntry>,
    /// Names with supplementary groups.
    lists: Vec<LayerEntry>,
    /// Offsets of chain entries and packets: first for `records`, then for `lists`.
    offsets: Vec<RecordOffsets>,
    data_bytes: usize,
    live: Range<usize>,
}

/// The position of an entry in a layer.
#[derive(Clone, Copy)]
struct LayerEntry {
    layer: u32,
    position: u32,
}

/// Offsets of three parts: the entry by name or of a list, the entry by id, and the packet.
#[derive(Clone, Copy)]
struct RecordOffsets {
    by_name: u32,
    by_id: u32,
    packet: u32,
}

/// Sizes of these parts in bytes. An entry by id and an entry of a list include the key after them.
#[derive(Clone, Copy, Default)]
struct RecordSizes {
    by_name: u32,
    by_id: u32,
    packet: u64,
}

/// Chains of entries, by the hash of the key. A record has two entries, by name and by id; a list has one.
struct HashChains {
    heads: Vec<u32>,
    next: Vec<u32>,
    hashes: Vec<u32>,
}

impl HashChains {
    fn new(entries: usize) -> Self {
        let heads = vec![END; module(entries)];
        Self { heads, next: vec![UNLINKED; entries], hashes: vec![0; entries] }
    }

    /// Inserts an entry into its chain, unless an equal entry is present.
    fn insert(
        &mut self,
        entry: usize,
        hash: u32,
        mut is_same: impl FnMut(usize) -> Result<bool, Damage>,
    ) -> Result<bool, Damage> {
        let head = hash as usize % self.heads.len();
        let mut at = self.heads[head];
        while at != END {
            if self.hashes[at as usize] == hash && is_same(at as usize)? {
                return Ok(false);
            }
            at = self.next[at as usize];
        }
        self.hashes[entry] = hash;
        self.next[entry] = self.heads[head];
        self.heads[head] = entry as u32;
        Ok(true)
    }

    fn is_linked(&self, entry: usize) -> bool {
        self.next[entry] != UNLINKED
    }
}

/// Returns the number of chains for that many entries: at least two per entry, so that most chains have one entry. It
/// is prime because the hash is simple.
fn module(entries: usize) -> usize {
    let is_prime =
        |n: usize| (3..).step_by(2).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    let least = (entries * 2).max(1021) | 1;
    (least..).step_by(2).find(|&n| is_prime(n)).unwrap_or(least)
}

impl<'a> MapPlan<'a> {
    /// Assigns all offsets. `live_bytes` stay free for records that are added later.
    ///
    /// # Errors
    ///
    /// A source is damaged, or the map exceeds the limit of clients.
    pub fn new(table: Table, sources: MapSources<'a>, live_bytes: usize) -> Result<Self, MapError> {
        let mut plan = Self {
            table,
            sources,
            chains: HashChains { heads: Vec::new(), next: Vec::new(), hashes: Vec::new() },
            records: records(table, sources.entries),
            lists: Vec::new(),
            offsets: Vec::new(),
            data_bytes: 0,
            live: 0..0,
        };
        if table == Table::Group {
            plan.lists = lists(sources)?;
        }
        let entries = plan.records.len() * 2 + plan.lists.len();
        // Entry numbers are below the reserved values.
        if entries as u64 >= u64::from(UNLINKED) {
            return Err(plan.too_large(entries as u64 * ENTRY_BYTES as u64));
        }
        plan.chains = HashChains::new(entries);
        plan.link()?;
        if table == Table::Group {
            plan.order()?;
        }
        plan.assign_offsets(live_bytes)?;
        Ok(plan)
    }

    fn too_large(&self, bytes: u64) -> MapError {
        MapError::TooLarge { table: self.table.name(), bytes }
    }

    /// Returns the length of the file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let used = HEADER_BYTES + table_bytes(self.chains.heads.len()) + self.data_bytes;
        rounded(used, PAGE_BYTES) as u64
    }

    /// Returns the number of users or groups.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.records.len()
    }

    /// Returns the free range, relative to the start of the data.
    #[must_use]
    pub fn live(&self) -> Range<usize> {
        self.live.clone()
    }

    fn user(&self, record: LayerEntry) -> Result<User<'a>, Damage> {
        let accounts = self.accounts(record)?;
        accounts.user(record.position)?.ok_or(Damage)
    }

    fn group(&self, record: LayerEntry) -> Result<Group<'a>, Damage> {
        let accounts = self.accounts(record)?;
        accounts.group(record.position)?.ok_or(Damage)
    }

    fn accounts(&self, record: LayerEntry) -> Result<Snapshot<'a>, Damage> {
        self.sources.entries[record.layer as usize].accounts.ok_or(Damage)
    }

    /// Returns the name and id of a user or group. Returns `None` if the floor refuses the record, as in the module.
    fn served_keys(&self, record: LayerEntry) -> Result<Option<(&'a [u8], u32)>, Damage> {
        let refused = match self.table {
            Table::Passwd => self.user(record)?.is_refused(),
            Table::Group => self.group(record)?.is_refused(),
        };
        Ok(if refused { None } else { Some(self.keys(record)?) })
    }

    /// Returns the name and id of a user or group.
    fn keys(&self, record: LayerEntry) -> Result<(&'a [u8], u32), Damage> {
        Ok(match self.table {
            Table::Passwd => {
                let user = self.user(record)?;
                (name_of(user.text.fields()), user.uid)
            }
            Table::Group => {
                let group = self.group(record)?;
                (name_of(group.text.fields()), group.gid)
            }
        })
    }

    fn is_final(&self, record: LayerEntry, is_sure: bool) -> bool {
        is_sure && self.sources.entries[record.layer as usize].step.found_is_final
    }

    /// Inserts every key into its chain. Only the first record of a key is linked.
    fn link(&mut self) -> Result<(), MapError> {
        let mut chains = std::mem::replace(
            &mut self.chains,
            HashChains { heads: Vec::new(), next: Vec::new(), hashes: Vec::new() },
        );
        let mut text = Digits::default();
        for (number, &record) in self.records.iter().enumerate() {
            let Some((name, id)) = self.served_keys(record)? else { continue };
            // Neither `files` nor the module serves NIS entries.
            if is_nis(name) {
                continue;
            }
            let entry = number * 2;
            let hash_of_name = hash_with_nul(name);
            chains.insert(entry, hash_of_name, |other| {
                Ok(self.is_by_name(other) && self.keys(self.records[other / 2])?.0 == name)
            })?;
            let hash_of_id = hash_with_nul(text.format_id(id));
            chains.insert(entry + 1, hash_of_id, |other| {
                let is_id = other < self.records.len() * 2 && other % 2 == 1;
                Ok(is_id && self.keys(self.records[other / 2])?.1 == id)
            })?;
        }
        for (number, &list) in self.lists.iter().enumerate() {
            let name = self.list_name(list)?;
            // All names of lists differ already.
            chains.insert(self.records.len() * 2 + number, hash_with_nul(name), |_| Ok(false))?;
        }
        self.chains = chains;
        Ok(())
    }

    fn is_by_name(&self, entry: usize) -> bool {
        entry < self.records.len() * 2 && entry.is_multiple_of(2)
    }

    fn list_name(&self, list: LayerEntry) -> Result<&'a [u8], Damage> {
        let accounts = self.sources.groups_of[list.layer as usize].accounts.ok_or(Damage)?;
        Ok(accounts.supplementary_at(list.position)?.ok_or(Damage)?.0)
    }

    /// Sorts groups by their first members, and renumbers their chain entries.
    fn order(&mut self) -> Result<(), MapError> {
        let mut order = Vec::with_capacity(self.records.len());
        for (number, &record) in self.records.iter().enumerate() {
            let first = self.group(record)?.members.first_number();
            order.push((record.layer, first, number as u32));
        }
        order.sort_unstable();
        let mut new_number = vec![0_u32; order.len()];
        for (new, &(_, _, old)) in order.iter().enumerate() {
            new_number[old as usize] = new as u32;
        }
        self.records = order.iter().map(|&(_, _, old)| self.records[old as usize]).collect();
        let ends = self.records.len() as u32 * 2;
        let renumbered = |entry: u32| match entry {
            END | UNLINKED => entry,
            entry if entry < ends => new_number[entry as usize / 2] * 2 + entry % 2,
            entry => entry,
        };
        let old = std::mem::take(&mut self.chains.next);
        let mut next = vec![UNLINKED; old.len()];
        for (entry, &behind) in old.iter().enumerate() {
            next[renumbered(entry as u32) as usize] = renumbered(behind);
        }
        self.chains.next = next;
        self.chains.heads.iter_mut().for_each(|head| *head = renumbered(*head));
        Ok(())
    }

    fn assign_offsets(&mut self, live_bytes: usize) -> Result<(), MapError> {
        self.chains.hashes = Vec::new();
        let mut places = Vec::with_capacity(self.records.len() + self.lists.len());
        // Users are contiguous; the packets of groups lie apart from their entries.
        let (mut near, mut packets) = (0_u64, 0_u64);
        let apart = self.table == Table::Group;
        for number in 0..self.records.len() + self.lists.len() {
            let RecordSizes { by_name, by_id, packet } = self.sizes(number)?;
            let between = if apart { 0 } else { packet };
            let by_id_start = near + u64::from(by_name) + between;
            let packet_start = if apart { packets } else { near + u64::from(by_name) };
            // Truncated offsets are never used: a map of that size is rejected below.
            let cut = |place: u64| place as u32;
            places.push(RecordOffsets {
                by_name: cut(near),
                by_id: cut(by_id_start),
                packet: cut(packet_start),
            });
            near = by_id_start + u64::from(by_id);
            packets += packet;
        }
        let mut end = if apart { near + packets } else { near };
        let live_start = end;
        end += rounded(live_bytes, RECORD_ALIGN) as u64;
        // The data ends early enough for all announcements to fit into the last page.
        let before = (HEADER_BYTES + table_bytes(self.chains.heads.len())) as u64;
        let room = (RAISE_BYTES as usize * (RAISES_MAX + 1)) as u64;
        let last = (before + end + room).next_multiple_of(PAGE_BYTES as u64);
        end = last - room - before;
        if end > DATA_BYTES_MAX as u64 {
            return Err(self.too_large(last));
        }
        if apart {
            places.iter_mut().for_each(|place| place.packet += near as u32);
        }
        self.offsets = places;
        self.data_bytes = end as usize;
        self.live = live_start as usize..end as usize;
        Ok(())
    }

    fn sizes(&self, number: usize) -> Result<RecordSizes, MapError> {
        let with_key = |key: usize| rounded(ENTRY_BYTES + key + 1, RECORD_ALIGN) as u32;
        let of_packet = |bytes| rounded(PACKET_HEADER_BYTES + bytes, RECORD_ALIGN) as u64;
        if let Some(list) = number.checked_sub(self.records.len()) {
            let name = self.list_name(self.lists[list])?;
            let gids = self.gids(name)?.map_or(0, |gids| gids.len());
            let packet = of_packet(fixed_bytes(MapLookupKind::GroupsOf) + gids * 4);
            return Ok(RecordSizes { by_name: with_key(name.len()), by_id: 0, packet });
        }
        let record = self.records[number];
        let [by_name, by_id] = [number * 2, number * 2 + 1].map(|e| self.chains.is_linked(e));
        if !by_name && !by_id {
            return Ok(RecordSizes::default());
        }
        let (id, packet) = match self.table {
            Table::Passwd => {
                let user = self.user(record)?;
                (user.uid, fixed_bytes(MapLookupKind::UserByName) + text_bytes(&user.text))
            }
            Table::Group => {
                let group = self.group(record)?;
                let lengths = group.members.len() * 4;
                let strings = text_bytes(&group.text) + group.members.bytes();
                (group.gid, fixed_bytes(MapLookupKind::GroupByName) + lengths + strings)
            }
        };
        Ok(RecordSizes {
            by_name: if by_name { ENTRY_BYTES as u32 } else { 0 },
            by_id: if by_id { with_key(Digits::default().format_id(id).len()) } else { 0 },
            packet: of_packet(packet),
        })
    }

    /// Returns all groups of a name, or `None` if other services may add groups.
    fn gids(&self, name: &[u8]) -> Result<Option<Vec<u32>>, Damage> {
        groups_of(self.sources, name)
    }

    /// Writes the file: records, table, header and the free part. Zeros fill the free part, because a reader of a hole
    /// may find no memory for the page. `now` is in seconds since 1970.
    ///
    /// # Errors
    ///
    /// A source is damaged, or the output fails.
    pub fn write(&self, now: i64, out: &dyn MapOutput) -> Result<(), MapError> {
        let data = (HEADER_BYTES + table_bytes(self.chains.heads.len())) as u64;
        let count = self.offsets.len();
        let end_of = |number: usize| self.offsets.get(number + 1).map(|next| next.packet);
        let weights = (0..count).map(|number| {
            let next = end_of(number).unwrap_or(self.live.start as u32);
            u64::from(next - self.offsets[number].packet) + 64
        });
        let bytes: u64 = weights.clone().sum();
        // `cut` needs the length.
        let weights: Vec<u64> = weights.collect();
        let parts = (bytes / STRETCH_BYTES + 1) as usize;
        let stretches = parallel::cut(weights.iter().copied(), parts);
        let written = parallel::each(stretches, |stretch| self.write_stretch(stretch, data, out));
        written.into_iter().collect::<Result<(), _>>()?;
        let behind = self.file_bytes() - data - self.live.start as u64;
        fill(out, data + self.live.start as u64, behind)?;
        self.write_table(out)?;
        out.write_at(&self.header(now), 0)?;
        Ok(())
    }

    fn write_stretch(
        &self,
        stretch: Range<usize>,
        data: u64,
        out: &dyn MapOutput,
    ) -> Result<(), MapError> {
        let Some(first) = self.offsets.get(stretch.start) else { return Ok(()) };
        let apart = self.table == Table::Group;
        let mut near = Vec::new();
        let mut packets = Vec::new();
        for number in stretch {
            self.push_by_name(number, &mut near)?;
            self.push_packet(number, if apart { &mut packets } else { &mut near })?;
            self.push_by_id(number, &mut near)?;
        }
        out.write_at(&near, data + u64::from(first.by_name))?;
        if apart {
            out.write_at(&packets, data + u64::from(first.packet))?;
        }
        Ok(())
    }

    /// Returns the offset of a chain entry in the data.
    fn offset_of(&self, entry: u32) -> u32 {
        let ends = self.records.len() as u32 * 2;
        match entry {
            END => END,
            entry if entry < ends && entry % 2 == 1 => self.offsets[entry as usize / 2].by_id,
            entry if entry < ends => self.offsets[entry as usize / 2].by_name,
            entry => self.offsets[self.records.len() + (entry - ends) as usize].by_name,
        }
    }

    /// Appends the entry of a user or group by name; its key is in the packet. A list has its own key.
    fn push_by_name(&self, number: usize, out: &mut Vec<u8>) -> Result<(), MapError> {
        let RecordOffsets { by_name: start, packet, .. } = self.offsets[number];
        if let Some(list) = number.checked_sub(self.records.len()) {
            let name = self.list_name(self.lists[list])?;
            let next = self.offset_of(self.chains.next[self.records.len() * 2 + list]);
            let place = [start + ENTRY_BYTES as u32, next, packet];
            push_entry(out, MapLookupKind::GroupsOf, true, name.len() + 1, place);
            push_key(out, name);
        } else if self.chains.is_linked(number * 2) {
            let record = self.records[number];
            let kind = match self.table {
                Table::Passwd => MapLookupKind::UserByName,
                Table::Group => MapLookupKind::GroupByName,
            };
            let before = PACKET_HEADER_BYTES + fixed_bytes(kind) + self.lengths_bytes(record)?;
            let next = self.offset_of(self.chains.next[number * 2]);
            let place = [packet + before as u32, next, packet];
            push_entry(out, kind, true, self.keys(record)?.0.len() + 1, place);
        }
        Ok(())
    }

    /// Appends the entry of a user or group by id, with its key.
    fn push_by_id(&self, number: usize, out: &mut Vec<u8>) -> Result<(), MapError> {
        if number >= self.records.len() || !self.chains.is_linked(number * 2 + 1) {
            return Ok(());
        }
        let kind = match self.table {
            Table::Passwd => MapLookupKind::UserByUid,
            Table::Group => MapLookupKind::GroupByGid,
        };
        let RecordOffsets { by_id: start, packet, .. } = self.offsets[number];
        let mut digits = Digits::default();
        let digits = digits.format_id(self.keys(self.records[number])?.1);
        let next = self.offset_of(self.chains.next[number * 2 + 1]);
        let is_first = !self.chains.is_linked(number * 2);
        let place = [start + ENTRY_BYTES as u32, next, packet];
        push_entry(out, kind, is_first, digits.len() + 1, place);
        push_key(out, digits);
        Ok(())
    }

    /// Returns the bytes between the fixed part of a packet and its name.
    fn lengths_bytes(&self, record: LayerEntry) -> Result<usize, Damage> {
        Ok(match self.table {
            Table::Passwd => 0,
            Table::Group => self.group(record)?.members.len() * 4,
        })
    }

    fn push_packet(&self, number: usize, out: &mut Vec<u8>) -> Result<(), MapError> {
        let before = out.len();
        let mut is_final = true;
        if let Some(list) = number.checked_sub(self.records.len()) {
            out.resize(before + PACKET_HEADER_BYTES, 0);
            let name = self.list_name(self.lists[list])?;
            let gids = self.gids(name)?.unwrap_or_default();
            out.extend(protocol::groups(&gids));
        } else {
            if !(self.chains.is_linked(number * 2) || self.chains.is_linked(number * 2 + 1)) {
                return Ok(());
            }
            out.resize(before + PACKET_HEADER_BYTES, 0);
            let record = self.records[number];
            match self.table {
                Table::Passwd => {
                    let user = self.user(record)?;
                    is_final = self.is_final(record, user.is_complete());
                    push_user(out, &user);
                }
                Table::Group => {
                    let group = self.group(record)?;
                    is_final = self.is_final(record, group.is_complete());
                    push_group(out, &group)?;
                }
            }
        }
        let packet = out.len() - before - PACKET_HEADER_BYTES;
        out.resize(before + rounded(out.len() - before, RECORD_ALIGN), 0);
        let size = if is_final { packet } else { 0 };
        let allocated = out.len() - before;
        let head = packet_header(allocated, size, i64::MAX, false);
        out[before..before + PACKET_HEADER_BYTES].copy_from_slice(&head);
        Ok(())
    }

    fn write_table(&self, out: &dyn MapOutput) -> io::Result<()> {
        let chains = self.chains.heads.len();
        let mut table = Vec::with_capacity(table_bytes(chains));
        for &head in &self.chains.heads {
            table.extend(self.offset_of(head).to_ne_bytes());
        }
        table.resize(table_bytes(chains), 0xff);
        out.write_at(&table, HEADER_BYTES as u64)
    }

    fn header(&self, now: i64) -> [u8; HEADER_BYTES] {
        let linked = self.chains.next.iter().filter(|&&next| next != UNLINKED).count();
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |place: usize, value: usize| {
            let value = protocol::length(value);
            bytes[place..place + 4].copy_from_slice(&value.to_ne_bytes());
        };
        put(header::VERSION, MAP_VERSION as usize);
        put(header::HEADER_SIZE, HEADER_BYTES);
        put(header::MODULE, self.chains.heads.len());
        put(header::DATA_SIZE, self.data_bytes);
        put(header::FIRST_FREE, self.live.start);
        put(header::ENTRIES, linked);
        put(header::ENTRIES_MAX, linked);
        bytes[header::TIMESTAMP..header::TIMESTAMP + 8].copy_from_slice(&now.to_ne_bytes());
        bytes
    }
}

/// Returns all groups of a name, or `None` if another service may add groups.
fn groups_of(sources: MapSources<'_>, name: &[u8]) -> Result<Option<Vec<u32>>, Damage> {
    let mut all: Vec<u32> = Vec::new();
    for ServiceLayer { step, accounts } in sources.groups_of {
        let mut own = Vec::new();
        if let Some(accounts) = accounts {
            if accounts.responder().is_some() {
                // A user that is missing in an incomplete snapshot may exist in the directory.
                let user = accounts.user_by_name(name)?;
                let is_sure = user.is_some_and(|user| user.has_complete_groups());
                if !is_sure {
                    return Ok(None);
                }
            }
            if let Some(gids) = accounts.supplementary(name)? {
                gids.each(|gid| own.push(gid))?;
            }
        }
        // A service without its file returns "unavailable", which `[NOTFOUND=return]` does not match.
        let absent_is_final = step.ends_without(accounts.is_some());
        let found = !own.is_empty();
        // Joins replies as glibc does: each service keeps its own duplicates. The last group of a service replaces a
        // group that is already known.
        let known: HashSet<u32> = all.iter().copied().collect();
        let mut at = 0;
        while at < own.len() {
            if known.contains(&own[at]) {
                own.swap_remove(at);
            } else {
                at += 1;
            }
        }
        all.append(&mut own);
        if if found { step.found_is_final } else { absent_is_final } {
            return Ok(Some(all));
        }
    }
    Ok((!sources.others_follow).then_some(all))
}

fn records(table: Table, layers: &[ServiceLayer<'_>]) -> Vec<LayerEntry> {
    let mut records = Vec::new();
    for (layer, ServiceLayer { accounts, step }) in layers.iter().enumerate() {
        if let Some(accounts) = accounts {
            let shape = accounts.shape();
            let count = match table {
                Table::Passwd => shape.users,
                Table::Group => shape.groups,
            };
            let layer = layer as u32;
            records.extend((0..count).map(|position| LayerEntry { layer, position }));
        }
        if step.ends_without(accounts.is_some()) {
            break;
        }
    }
    records
}

/// Returns the names with known groups, each once.
fn lists(sources: MapSources<'_>) -> Result<Vec<LayerEntry>, MapError> {
    let mut lists = Vec::new();
    let mut seen: Vec<Snapshot<'_>> = Vec::new();
    for (layer, ServiceLayer { accounts, .. }) in sources.groups_of.iter().enumerate() {
        let Some(accounts) = accounts else { continue };
        for position in 0..accounts.shape().names {
            let (name, _) = accounts.supplementary_at(position)?.ok_or(Damage)?;
            let mut known = false;
            for other in &seen {
                known |= other.supplementary(name)?.is_some();
            }
            if known || has_other_services(sources, name)? {
                continue;
            }
            lists.push(LayerEntry { layer: layer as u32, position });
        }
        seen.push(*accounts);
    }
    Ok(lists)
}

/// Returns whether another service may add groups to a name.
fn has_other_services(sources: MapSources<'_>, name: &[u8]) -> Result<bool, Damage> {
    // Skips the check if no source is incomplete and no other service follows.
    let incomplete =
        |layer: &ServiceLayer<'_>| layer.accounts.is_some_and(|a| a.responder().is_some());
    if !sources.others_follow && !sources.groups_of.iter().any(incomplete) {
        return Ok(false);
    }
    Ok(groups_of(sources, name)?.is_none())
}

fn name_of<const N: usize>(fields: [Option<&[u8]>; N]) -> &[u8] {
    fields.first().copied().flatten().unwrap_or_default()
}

/// Returns the length of each string with its NUL, as programs read it.
fn lengths<const N: usize>(text: &EntryStrings<'_, N>) -> [usize; N] {
    text.fields().map(|field| field.map_or(0, <[u8]>::len) + 1)
}

fn text_bytes<const N: usize>(text: &EntryStrings<'_, N>) -> usize {
    lengths(text).iter().sum()
}

fn push_text<const N: usize>(out: &mut Vec<u8>, text: &EntryStrings<'_, N>) {
    for field in text.fields() {
        out.extend_from_slice(field.unwrap_or_default());
        out.push(0);
    }
}

fn push_user(out: &mut Vec<u8>, user: &User<'_>) {
    protocol::push_user_header(out, user.uid, user.gid, lengths(&user.text));
    push_text(out, &user.text);
}

fn push_group(out: &mut Vec<u8>, group: &Group<'_>) -> Result<(), Damage> {
    let [name, passwd] = lengths(&group.text);
    let members = &group.members;
    members.verify()?;
    protocol::push_group_header(out, group.gid, name, passwd, members.len());
    let mut place = out.len();
    out.resize(place + members.len() * 4, 0);
    push_text(out, &group.text);
    for member in members.iter() {
        let member = member?;
        let length = protocol::length(member.len() + 1);
        out[place..place + 4].copy_from_slice(&length.to_ne_bytes());
        place += 4;
        out.extend_from_slice(member);
        out.push(0);
    }
    Ok(())
}

/// Appends a chain entry with the offsets of its key, the next entry and the packet.
pub(crate) fn push_entry(
    out: &mut Vec<u8>,
    kind: MapLookupKind,
    first: bool,
    key_bytes: usize,
    [key, next, packet]: [u32; 3],
) {
    let no_owner = u32::MAX;
    out.extend([kind as u8, u8::from(first), 0, 0]);
    out.extend(protocol::length(key_bytes).to_ne_bytes());
    for value in [key, no_owner, next, packet, 0, 0] {
        out.extend(value.to_ne_bytes());
    }
}

/// Appends a key after its entry.
fn push_key(out: &mut Vec<u8>, key: &[u8]) {
    let before = out.len();
    out.extend_from_slice(key);
    out.resize(before + rounded(key.len() + 1, RECORD_ALIGN), 0);
}

pub(crate) fn packet_header(
    allocated: usize,
    size: usize,
    timeout: i64,
    absent: bool,
) -> [u8; PACKET_HEADER_BYTES] {
    let mut bytes = [0; PACKET_HEADER_BYTES];
    bytes[0..4].copy_from_slice(&protocol::length(allocated).to_ne_bytes());
    bytes[4..8].copy_from_slice(&protocol::length(size).to_ne_bytes());
    bytes[8..16].copy_from_slice(&timeout.to_ne_bytes());
    bytes[16] = u8::from(absent);
    bytes[18] = 1;
    bytes
}

fn fill(out: &dyn MapOutput, mut offset: u64, mut bytes: u64) -> io::Result<()> {
    let zeros = vec![0; (bytes as usize).min(STRETCH_BYTES as usize)];
    while bytes > 0 {
        let some = &zeros[..(bytes as usize).min(zeros.len())];
        out.write_at(some, offset)?;
        offset += some.len() as u64;
        bytes -= some.len() as u64;
    }
    Ok(())
}

pub(crate) fn hash_with_nul(key: &[u8]) -> u32 {
    hash(key).wrapping_mul(65_599)
}

/// Formats an id without an allocation; a map can have millions.
#[derive(Default)]
struct Digits([u8; 10]);

impl Digits {
    fn format_id(&mut self, mut id: u32) -> &[u8] {
        let mut start = self.0.len();
        loop {
            start -= 1;
            self.0[start] = b'0' + (id % 10) as u8;
            id /= 10;
            if id == 0 {
                return &self.0[start..];
            }
        }
    }
}
