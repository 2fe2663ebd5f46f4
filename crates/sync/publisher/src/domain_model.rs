// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entries of each domain as its backend sent them, with the local overrides. This module accepts all of them: `roster_admission` and `merge`
//! decide which ones are served.

use super::local_overrides::DomainOverrides;
use super::memory_limit::{DOMAIN_BYTES_MAX, MemoryEstimate};
use super::model_entry::{ModelEntry, ModelGroup, ModelUser, NO_REFERENCES};
use roster_bus::domain_image::{
    self, IMAGE_BYTES_MAX, ImageDecodeError, ImageHeader, NO_REFERENCE, Record, Records,
};
use roster_config::PrivateGroups;
use roster_messages::{Message, table::daemon};
use std::array;
use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// Limit of the entry numbers and references of a domain. A hijacked backend could otherwise number an entry
/// 4,294,967,295 and make the publisher allocate that many slots.
pub const NUMBERS_MAX: u32 = 1 << 24;

/// Set in the number of a private group. The other bits are the number of its user. A private group therefore has a
/// lower priority than all groups of the directory.
const PRIVATE_GROUP: u32 = NUMBERS_MAX;

/// Reasons to reject an image. The domain is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageRejection {
    /// The bytes do not follow the format.
    #[error(transparent)]
    Malformed(#[from] ImageDecodeError),
    /// The image cannot be read, for this reason.
    #[error("{0}")]
    Unreadable(String),
    /// The image has too many bytes.
    #[error("the image has {0} bytes; the limit is {IMAGE_BYTES_MAX} bytes")]
    TooLong(u64),
    /// A number is out of bounds.
    #[error("the image has entry or reference {0}; the limit is {NUMBERS_MAX}")]
    Number(u32),
    /// The image starts from another state than the domain has.
    #[error("the image starts at change {since}, expected {here}")]
    Gap {
        /// The image's start.
        since: u64,
        /// The domain's state.
        here: u64,
    },
    /// A list has duplicates.
    #[error("the image has a list of {0} references; the limit is {NUMBERS_MAX}")]
    List(usize),
    /// The domain would need more memory than its limit.
    #[error("the domain needs more memory than the limit of {} MiB", DOMAIN_BYTES_MAX >> 20)]
    TooMuch,
}

impl ImageRejection {
    /// Returns the code.
    pub fn message(&self) -> &'static Message {
        match self {
            Self::TooLong(_) | Self::TooMuch => &daemon::DOMAIN_TOO_LARGE,
            Self::Malformed(_)
            | Self::Unreadable(_)
            | Self::Number(_)
            | Self::Gap { .. }
            | Self::List(_) => &daemon::UPDATE_REJECTED,
        }
    }
}

/// Entries that are copied together when one of them changes while others are being read.
const CHUNK: usize = 256;

/// The entries of a domain. A clone shares them, so the publisher can make a snapshot of one state while changes
/// arrive.
#[derive(Clone, Default)]
pub struct DomainModel {
    /// Whether the backend has sent anything yet.
    pub is_present: bool,
    /// Whether the model has all entries of the directory. False for a domain that is queried on demand.
    pub is_complete: bool,
    /// The backend process that sent the state.
    pub epoch: u64,
    /// Sequence number of the last change in this state.
    pub sequence: u64,
    overrides: Arc<DomainOverrides>,
    memory: MemoryEstimate,
    chunks: Vec<Arc<[ModelSlot; CHUNK]>>,
    /// By reference, one more than the number of the first entry with that reference; 0 if there is no entry.
    first_by_reference: Vec<u32>,
    /// Further entries of a reference: two users of one name, or an entry that is a user and a group.
    others_by_reference: HashMap<u32, BTreeSet<u32>>,
    /// By reference of an entry, the numbers of the groups that list it. Computed on the first use after a change.
    listed_by: OnceLock<Arc<HashMap<u32, Vec<u32>>>>,
    private: PrivateGroupIndex,
}

/// Data for private groups. Empty in a domain without private groups.
#[derive(Clone, Default)]
struct PrivateGroupIndex {
    kind: PrivateGroups,
    /// Number of the directory's groups with a gid, served or not.
    gids: Arc<HashMap<u32, u32>>,
    /// On demand: numbers of users for which the directory was queried for groups with the private group's name or gid.
    decided: Arc<HashSet<u32>>,
}

#[derive(Clone, Default)]
enum ModelSlot {
    #[default]
    Empty,
    User(Arc<ModelUser>),
    Group(Arc<ModelGroup>),
}

/// The treatment of the known members of a group when a record comes without members.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MissingMembers {
    /// The members are no longer known.
    Forget,
    /// The members stay.
    Keep,
}

/// A decoded and well-formed image from a backend.
pub enum DomainImage<'a> {
    /// Everything.
    Full(ImageHeader, DomainModel),
    /// Changes since an earlier state.
    Changes(ImageHeader, Records<'a>),
}

impl<'a> DomainImage<'a> {
    /// Decodes an image of a domain with this kind of private groups, in linear time.
    pub fn read(image: &'a [u8], private_groups: PrivateGroups) -> Result<Self, ImageRejection> {
        let (header, records) = ImageHeader::parse(image)?;
        check_records(records.clone())?;
        if header.since != 0 {
            return Ok(Self::Changes(header, records));
        }
        let mut domain = DomainModel::new(false, private_groups);
        for record in records.flatten() {
            domain.put(&record, MissingMembers::Forget);
            if domain.memory_left() == 0 {
                return Err(ImageRejection::TooMuch);
            }
        }
        domain.set_position(&header);
        Ok(Self::Full(header, domain))
    }

    /// Returns the header.
    #[must_use]
    pub fn header(&self) -> &ImageHeader {
        match self {
            Self::Full(header, _) | Self::Changes(header, _) => header,
        }
    }
}

impl ModelSlot {
    fn entry(&self) -> Option<ModelEntry<'_>> {
        match self {
            Self::Empty => None,
            Self::User(user) => Some(ModelEntry::User(user)),
            Self::Group(group) => Some(ModelEntry::Group(group)),
        }
    }
}

impl DomainModel {
    /// Returns a domain without entries.
    #[must_use]
    pub fn new(complete: bool, private_groups: PrivateGroups) -> Self {
        let private = PrivateGroupIndex { kind: private_groups, ..PrivateGroupIndex::default() };
        Self { is_complete: complete, private, ..Self::default() }
    }

    /// Applies all changes, or none if they are rejected. The memory check counts a new entry in addition to its old
    /// value. It may therefore reject changes that a full image would pass.
    pub fn apply(
        &mut self,
        header: &ImageHeader,
        records: Records<'_>,
    ) -> Result<(), ImageRejection> {
        if header.epoch != self.epoch || header.since != self.sequence {
            let (since, here) = (header.since, self.sequence);
            return Err(ImageRejection::Gap { since, here });
        }
        self.has_room_for(records.clone())?;
        for record in records.flatten() {
            self.put(&record, MissingMembers::Forget);
        }
        self.set_position(header);
        Ok(())
    }

    fn set_position(&mut self, header: &ImageHeader) {
        self.is_present = true;
        self.is_complete = header.flags & domain_image::COMPLETE != 0;
        (self.epoch, self.sequence) = (header.epoch, header.sequence);
    }

    /// Applies the result of a lookup. Returns whether anything changed. Groups that come without members are groups of
    /// a user. Their known members stay.
    pub fn apply_lookup<'a>(
        &mut self,
        records: impl Iterator<Item = Result<Record<'a>, ImageDecodeError>> + Clone,
    ) -> Result<bool, ImageRejection> {
        check_records(records.clone())?;
        self.has_room_for(records.clone())?;
        self.forget_lists(self.released_references(records.clone()));
        Ok(records
            .flatten()
            .fold(false, |changed, record| changed | self.put(&record, MissingMembers::Keep)))
    }

    /// Returns references that no entry has any more after these records.
    fn released_references<'a>(
        &self,
        records: impl Iterator<Item = Result<Record<'a>, ImageDecodeError>>,
    ) -> Vec<u32> {
        let entries = records
            .flatten()
            .filter(|record| matches!(record, Record::User(_) | Record::Group(_)))
            .map(|record| (record_number(&record), record_references(&record)));
        // The last record of an entry counts.
        let named: HashMap<u32, [u32; 2]> = entries.collect();
        let left = named.into_iter().flat_map(|(number, now)| {
            let before = self.entry(number).map_or(NO_REFERENCES, |entry| entry.references());
            before.into_iter().filter(move |one| *one != NO_REFERENCE && !now.contains(one))
        });
        left.collect()
    }

    /// Forgets the members of groups that list one of these references. The backend announces the same with its next
    /// changes. Until then their lists would be incomplete.
    fn forget_lists(&mut self, mut references: Vec<u32>) {
        if references.is_empty() {
            return;
        }
        references.sort_unstable();
        let is_one = |reference: &u32| references.binary_search(reference).is_ok();
        let groups = self.groups().filter(|(_, group)| group.references().iter().any(is_one));
        let groups: Vec<(u32, ModelGroup)> = groups
            .map(|(number, ModelGroup { reference, gid, name, native, .. })| {
                let (reference, gid, name, native) =
                    (*reference, *gid, name.clone(), native.clone());
                (number, ModelGroup { reference, gid, name, members: None, native })
            })
            .collect();
        for (number, group) in groups {
            self.set(number, ModelSlot::Group(Arc::new(group)));
        }
    }

    /// Returns the bytes of memory that the domain may still use.
    #[must_use]
    pub fn memory_left(&self) -> u64 {
        DOMAIN_BYTES_MAX.saturating_sub(self.memory.total())
    }

    fn has_room_for<'a>(
        &self,
        records: impl Iterator<Item = Result<Record<'a>, ImageDecodeError>>,
    ) -> Result<(), ImageRejection> {
        let private = self.private.kind != PrivateGroups::Off;
        let with = records.flatten().fold(self.memory, |cost, record| cost.with(&record, private));
        if with.total() < DOMAIN_BYTES_MAX { Ok(()) } else { Err(ImageRejection::TooMuch) }
    }

    /// Applies a record. Returns whether the entry changed.
    fn put(&mut self, record: &Record<'_>, untold: MissingMembers) -> bool {
        self.entry_from_record(record, untold)
            .is_some_and(|new| self.set(record_number(record), new))
    }

    /// Whether the record would change the entry.
    #[must_use]
    pub fn is_changed_by(&self, record: &Record<'_>, untold: MissingMembers) -> bool {
        let new = self.entry_from_record(record, untold);
        new.is_some_and(|new| self.entry(record_number(record)) != new.entry())
    }

    /// Returns the new value of the entry. `None` if the record is about a missing entry.
    fn entry_from_record(&self, record: &Record<'_>, untold: MissingMembers) -> Option<ModelSlot> {
        Some(match (record, self.entry(record_number(record))) {
            (Record::User(user), old) => {
                // The groups of another user with the same number do not carry over.
                let groups = match old {
                    Some(ModelEntry::User(old)) if old.references == record_references(record) => {
                        old.groups.clone()
                    }
                    _ => None,
                };
                let user = self.overrides.apply_to_user(ModelUser::new(user)).with_groups(groups);
                ModelSlot::User(Arc::new(user.with_private_group(self.private.kind)))
            }
            (Record::Group(group), old) => {
                let told = group.members.map(|members| members.iter().collect());
                let members = told.or_else(|| match (untold, old) {
                    (MissingMembers::Keep, Some(ModelEntry::Group(old)))
                        if *old.native_name() == *group.name =>
                    {
                        old.members.clone()
                    }
                    _ => None,
                });
                let domain_image::GroupRecord { reference, gid, name, .. } = *group;
                let name = name.into();
                let group = ModelGroup { reference, gid, name, members, native: None };
                ModelSlot::Group(Arc::new(self.overrides.apply_to_group(group)))
            }
            (Record::GroupsOf { groups, .. }, Some(ModelEntry::User(user))) => {
                let groups = Some(groups.iter().collect());
                ModelSlot::User(Arc::new(ModelUser::clone(user).with_groups(groups)))
            }
            (Record::Removed { .. }, _) => ModelSlot::Empty,
            (Record::GroupsOf { .. }, _) => return None,
        })
    }

    /// Returns the local overrides.
    #[must_use]
    pub fn overrides(&self) -> &Arc<DomainOverrides> {
        &self.overrides
    }

    /// Replaces the local overrides, and applies them to all entries.
    pub fn set_overrides(&mut self, overrides: &Arc<DomainOverrides>) {
        let before = std::mem::replace(&mut self.overrides, Arc::clone(overrides));
        if before.is_empty() && overrides.is_empty() {
            return;
        }
        let kind = self.private.kind;
        let changed: Vec<_> = self
            .entries()
            .filter_map(|(number, entry)| Some((number, overridden(entry, overrides, kind)?)))
            .collect();
        for (number, entry) in changed {
            self.set(number, entry);
        }
    }

    /// Returns the overrides that apply to no entry: the kind of entry, and the name in the directory.
    #[must_use]
    pub fn unused_overrides(&self) -> Vec<(&'static str, &[u8])> {
        if self.overrides.is_empty() || !self.is_present || !self.is_complete {
            return Vec::new();
        }
        let groups = self.groups().filter(|(_, group)| group.native_gid().is_some());
        self.overrides.unused(
            self.users().map(|(_, user)| user.native().name()),
            groups.map(|(_, group)| group.native_name()),
        )
    }

    /// Stores the entry. Returns whether it changed.
    fn set(&mut self, number: u32, new: ModelSlot) -> bool {
        if self.entry(number) == new.entry() {
            return false;
        }
        if matches!(
            (self.entry(number), &new),
            (Some(ModelEntry::Group(_)), _) | (_, ModelSlot::Group(_))
        ) {
            self.listed_by = OnceLock::new();
        }
        self.index_private_group(number, new.entry());
        let mut cost = self.memory;
        cost.replace(number, self.entry(number), new.entry());
        self.memory = cost;
        self.index_references(
            number,
            new.entry().map_or(NO_REFERENCES, |entry| entry.references()),
        );
        *self.slot(number) = new;
        true
    }

    /// Updates what private groups depend on, before an entry changes.
    fn index_private_group(&mut self, number: u32, new: Option<ModelEntry<'_>>) {
        if self.private.kind == PrivateGroups::Off {
            return;
        }
        let old = self.entry(number);
        let gid = |entry: Option<ModelEntry<'_>>| match entry {
            Some(ModelEntry::Group(group)) => group.gid,
            _ => None,
        };
        let gids = [gid(old), gid(new)];
        let has_same_group = match (old, new) {
            (Some(ModelEntry::User(old)), Some(ModelEntry::User(new))) => {
                old.private_group() == new.private_group()
            }
            _ => false,
        };
        if !has_same_group && self.private.decided.contains(&number) {
            Arc::make_mut(&mut self.private.decided).remove(&number);
        }
        if gids[0] == gids[1] {
            return;
        }
        let counts = Arc::make_mut(&mut self.private.gids);
        if let Some(new) = gids[1] {
            *counts.entry(new).or_default() += 1;
        }
        if let Some(old) = gids[0]
            && let Place::Occupied(mut count) = counts.entry(old)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Removes the entry's old references from the index and adds its new ones.
    fn index_references(&mut self, number: u32, new: [u32; 2]) {
        let old = self.entry(number).map_or(NO_REFERENCES, |entry| entry.references());
        if old == new {
            return;
        }
        self.listed_by = OnceLock::new();
        old.into_iter().for_each(|reference| self.unindex_reference(number, reference));
        new.into_iter().for_each(|reference| self.index_reference(number, reference));
    }

    fn unindex_reference(&mut self, number: u32, reference: u32) {
        let Some(place) = self.first_by_reference.get_mut(reference as usize) else { return };
        let others = self.others_by_reference.entry(reference).or_default();
        if *place == number + 1 {
            *place = others.pop_first().map_or(0, |other| other + 1);
        } else {
            others.remove(&number);
        }
        if others.is_empty() {
            self.others_by_reference.remove(&reference);
        }
    }

    fn index_reference(&mut self, number: u32, reference: u32) {
        if reference == NO_REFERENCE {
            return;
        }
        let place = reference as usize;
        if self.first_by_reference.len() <= place {
            self.first_by_reference.resize(place + 1, 0);
        }
        match &mut self.first_by_reference[place] {
            first @ 0 => *first = number + 1,
            first if *first == number + 1 => {}
            _ => drop(self.others_by_reference.entry(reference).or_default().insert(number)),
        }
    }

    /// Returns the numbers of the entries with that reference.
    pub fn entries_referred(&self, reference: u32) -> impl Iterator<Item = u32> {
        let first =
            self.first_by_reference.get(reference as usize).and_then(|place| place.checked_sub(1));
        let others = first.and_then(|_| self.others_by_reference.get(&reference));
        first.into_iter().chain(others.into_iter().flatten().copied())
    }

    /// Whether all members of a group are known: its list, and the lists of the groups within it. A backend sends a
    /// list together with the entries in it. A reference without an entry is therefore no obstacle.
    #[must_use]
    pub fn knows_members(&self, group: u32) -> bool {
        let (mut groups, mut seen, mut told) =
            (vec![group], HashSet::from([group]), HashSet::new());
        while let Some(number) = groups.pop() {
            let Some(ModelEntry::Group(group)) = self.entry(number) else { continue };
            let Some(members) = &group.members else { return false };
            let references = members.iter().filter(|&&reference| told.insert(reference));
            let named = references.flat_map(|&reference| self.entries_referred(reference));
            let is_group = |number: &u32| matches!(self.entry(*number), Some(ModelEntry::Group(_)));
            groups.extend(named.filter(is_group).filter(|number| seen.insert(*number)));
        }
        true
    }

    /// Returns numbers of the groups that list an entry's reference. The first call after a change reads all members.
    #[must_use]
    pub fn listed_by(&self, reference: u32) -> &[u32] {
        let lists = self.listed_by.get_or_init(|| {
            let mut lists: HashMap<u32, Vec<u32>> = HashMap::new();
            for (number, group) in self.groups() {
                let members = group.members.iter().flatten();
                for &member in
                    members.filter(|&&member| self.entries_referred(member).next().is_some())
                {
                    lists.entry(member).or_default().push(number);
                }
            }
            Arc::new(lists)
        });
        lists.get(&reference).map_or(&[], Vec::as_slice)
    }

    fn slot(&mut self, number: u32) -> &mut ModelSlot {
        let number = number as usize;
        let chunk = number / CHUNK;
        if self.chunks.len() <= chunk {
            let empty = Arc::new(array::from_fn(|_| ModelSlot::Empty));
            self.chunks.resize(chunk + 1, empty);
        }
        &mut Arc::make_mut(&mut self.chunks[chunk])[number % CHUNK]
    }

    /// Returns the entry of that number, which may be the number of a private group.
    #[must_use]
    pub fn entry(&self, number: u32) -> Option<ModelEntry<'_>> {
        if let Some(user) = private_group_owner(number) {
            return match self.entry(user)? {
                ModelEntry::User(user) => self.private_group(user).map(ModelEntry::Group),
                ModelEntry::Group(_) => None,
            };
        }
        let number = number as usize;
        self.chunks.get(number / CHUNK)?[number % CHUNK].entry()
    }

    /// Returns entries in the order of their numbers.
    pub fn entries(&self) -> impl Iterator<Item = (u32, ModelEntry<'_>)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        (0..).zip(slots).filter_map(|(number, slot)| Some((number, slot.entry()?)))
    }

    /// Returns users in the order of their numbers.
    pub fn users(&self) -> impl Iterator<Item = (u32, &ModelUser)> {
        self.entries().filter_map(|(number, entry)| match entry {
            ModelEntry::User(user) => Some((number, user)),
            ModelEntry::Group(_) => None,
        })
    }

    /// Returns groups in the order of their numbers.
    pub fn groups(&self) -> impl Iterator<Item = (u32, &ModelGroup)> {
        self.entries().filter_map(|(number, entry)| match entry {
            ModelEntry::Group(group) => Some((number, group)),
            ModelEntry::User(_) => None,
        })
    }

    /// Returns private groups with their numbers, in the order of their users.
    pub fn private_groups(&self) -> impl Iterator<Item = (u32, &ModelGroup)> {
        // Without private groups there is nothing to search for.
        let users = (self.private.kind != PrivateGroups::Off).then(|| self.users());
        users.into_iter().flatten().filter_map(|(number, user)| {
            Some((private_group_number(number), self.private_group(user)?))
        })
    }

    /// Returns the user's private group. With [`PrivateGroups::SameId`] a group of the directory replaces it.
    #[must_use]
    pub fn private_group<'a>(&self, user: &'a ModelUser) -> Option<&'a ModelGroup> {
        let is_replaced = self.private.kind == PrivateGroups::SameId && self.has_gid(user.uid);
        user.private_group().filter(|_| !is_replaced)
    }

    /// Returns the kind of private groups.
    #[must_use]
    pub fn private_group_kind(&self) -> PrivateGroups {
        self.private.kind
    }

    /// Whether the directory is known to have a group with this gid. Always false in a domain without private groups.
    #[must_use]
    pub fn has_gid(&self, gid: u32) -> bool {
        self.private.gids.contains_key(&gid)
    }

    /// Whether an entry may become another one when the directory is queried for groups with the name and gid of the
    /// private group.
    #[must_use]
    pub fn is_undecided(&self, number: u32) -> bool {
        let user = match (self.private.kind, private_group_owner(number)) {
            (PrivateGroups::Off, _) => return false,
            (_, Some(user)) => user,
            (PrivateGroups::Always, None) => number,
            (PrivateGroups::SameId, None) => return false,
        };
        let has_one =
            |entry| matches!(entry, Some(ModelEntry::User(user)) if user.private_group().is_some());
        !self.is_complete && has_one(self.entry(user)) && !self.private.decided.contains(&user)
    }

    /// Records that the directory was queried for groups with the name and gid of the entry's private group. Returns
    /// whether that is new.
    pub fn set_decided(&mut self, number: u32) -> bool {
        let is_new = self.is_undecided(number);
        if is_new {
            let user = private_group_owner(number).unwrap_or(number);
            Arc::make_mut(&mut self.private.decided).insert(user);
        }
        is_new
    }

    /// Returns one more than the largest reference of an entry.
    #[must_use]
    pub fn reference_count(&self) -> usize {
        self.first_by_reference.len()
    }
}

/// Returns the number of a user's private group.
#[must_use]
pub fn private_group_number(user: u32) -> u32 {
    user | PRIVATE_GROUP
}

/// Returns the number of the user that a private group belongs to. `None` for the number of another entry.
#[must_use]
pub fn private_group_owner(number: u32) -> Option<u32> {
    let user = number ^ PRIVATE_GROUP;
    (user < PRIVATE_GROUP).then_some(user)
}

/// Returns an entry with other overrides. `None` if that changes nothing.
fn overridden(
    entry: ModelEntry<'_>,
    overrides: &DomainOverrides,
    kind: PrivateGroups,
) -> Option<ModelSlot> {
    match entry {
        ModelEntry::User(user) => {
            let native = user.native().clone().with_groups(None);
            let new = overrides.apply_to_user(native).with_groups(user.groups.clone());
            let new = new.with_private_group(kind);
            (new != *user).then(|| ModelSlot::User(Arc::new(new)))
        }
        ModelEntry::Group(group) => {
            let ModelGroup { reference, members, .. } = group.clone();
            let (name, gid) = (group.native_name().into(), group.native_gid());
            let native = ModelGroup { reference, gid, name, members, native: None };
            let new = overrides.apply_to_group(native);
            (new != *group).then(|| ModelSlot::Group(Arc::new(new)))
        }
    }
}

/// Returns the number of the entry that a record is about.
pub fn record_number(record: &Record<'_>) -> u32 {
    match record {
        Record::User(user) => user.number,
        Record::Group(group) => group.number,
        Record::Removed { number } | Record::GroupsOf { user: number, .. } => *number,
    }
}

fn record_references(record: &Record<'_>) -> [u32; 2] {
    match record {
        Record::User(user) => [user.reference, user.by_name],
        Record::Group(group) => [group.reference, NO_REFERENCE],
        Record::Removed { .. } | Record::GroupsOf { .. } => NO_REFERENCES,
    }
}

/// Returns the length of the record's list.
fn record_list(record: &Record<'_>) -> usize {
    match record {
        Record::Group(group) => group.members.map_or(0, |members| members.len()),
        Record::GroupsOf { groups, .. } => groups.len(),
        Record::User(_) | Record::Removed { .. } => 0,
    }
}

/// Reads all records once, so that a rejected image changes nothing.
fn check_records<'a>(
    records: impl Iterator<Item = Result<Record<'a>, ImageDecodeError>>,
) -> Result<(), ImageRejection> {
    for record in records {
        let record = record?;
        for number in record_references(&record).into_iter().chain([record_number(&record)]) {
            if number >= NUMBERS_MAX && number != NO_REFERENCE {
                return Err(ImageRejection::Number(number));
            }
        }
        if record_number(&record) == NO_REFERENCE {
            return Err(ImageRejection::Number(NO_REFERENCE));
        }
        // Larger numbers are those of private groups.
        if let Record::GroupsOf { groups, .. } = &record
            && let Some(number) = groups.iter().find(|number| *number >= NUMBERS_MAX)
        {
            return Err(ImageRejection::Number(number));
        }
        let list = record_list(&record);
        if list > NUMBERS_MAX as usize {
            return Err(ImageRejection::List(list));
        }
    }
    Ok(())
}
