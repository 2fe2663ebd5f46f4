//! What the back-ends handed over, domain by domain, as they said it. No judgement here: see
//! `roster_admission` and `merge`.

use super::cost::{COST_MAX, Cost};
use roster_admission::{AsGroup, AsUser};
use roster_bus::exchange::{self, Header, Malformed, NO_REFERENCE, Record, Records};
use roster_record as record;
use std::array;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// Entries and references that a domain may have. A back-end that was taken over could otherwise
/// name an entry 4,294,967,295 and have the publisher make room for it.
pub const NUMBERS_MAX: u32 = 1 << 24;

/// References of an entry that no list holds.
pub const NO_REFERENCES: [u32; 2] = [NO_REFERENCE; 2];

/// Why an image was not taken. The domain is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The bytes make no sense.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It is not what is read at all, for this reason.
    #[error("{0}")]
    Unread(String),
    /// A number is beyond all bounds.
    #[error("it names entry or reference {0}, and there are at most {NUMBERS_MAX}")]
    Number(u32),
    /// It leads on from another state than the one that is here.
    #[error("it leads on from change {since} and change {here} is here")]
    Gap {
        /// The image's start.
        since: u64,
        /// The domain's state.
        here: u64,
    },
    /// A list has the same more than once.
    #[error("it has a list of {0}, and there are at most {NUMBERS_MAX} different ones")]
    List(usize),
    /// There is more of it than one domain may have.
    #[error(
        "a domain may take {} MiB of memory, and this one would take more: narrow down what it takes \
         in, with base or filter",
        COST_MAX >> 20
    )]
    TooMuch,
}

/// Entries that are copied together when one of them changes while the others are being read.
const CHUNK: usize = 256;

/// A domain's entries. A clone shares them with the original, so that a snapshot can be made from what
/// was here at one moment while changes go on arriving.
#[derive(Clone, Default)]
pub struct Domain {
    /// Whether anything was handed over yet.
    pub present: bool,
    /// Whether what is not here is not in the directory: always but where it is asked on demand.
    pub complete: bool,
    /// The back-end process that the state is of.
    pub epoch: u64,
    /// Its last change that is in here.
    pub sequence: u64,
    cost: Cost,
    chunks: Vec<Arc<[Slot; CHUNK]>>,
    /// By reference, one more than the number of the first entry that it leads to; 0 for none.
    referred: Vec<u32>,
    /// The further ones: two users of one name, or an entry that is a user and a group.
    also_referred: HashMap<u32, BTreeSet<u32>>,
    /// By reference of an entry, the numbers of the groups that list it. Made when somebody asks, until
    /// something changes.
    listed_by: OnceLock<Arc<HashMap<u32, Vec<u32>>>>,
}

#[derive(Clone, Default)]
enum Slot {
    #[default]
    Empty,
    User(Arc<User>),
    Group(Arc<Group>),
}

/// A user as the back-end said it.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// How member lists name it by DN, and by name.
    pub references: [u32; 2],
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// The user's groups by number, where it was asked for them.
    pub groups: Option<Box<[u32]>>,
    text: Box<[u8]>,
    ends: [u32; 3],
}

impl User {
    /// What a record says.
    pub fn new(user: &exchange::User<'_>) -> Self {
        let texts = [user.name, user.gecos, user.dir, user.shell];
        let mut ends = [0; 3];
        let mut end = 0;
        for (place, text) in ends.iter_mut().zip(texts) {
            end += text.len() as u32; // each is at most 65,535 long
            *place = end;
        }
        let exchange::User { reference, by_name, uid, gid, .. } = *user;
        let references = [reference, by_name];
        Self { references, uid, gid, groups: None, text: texts.concat().into(), ends }
    }

    /// Bytes of all texts.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    fn text(&self, from: u32, to: u32) -> &[u8] {
        &self.text[from as usize..to as usize]
    }

    /// Log-in name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.text(0, self.ends[0])
    }

    /// GECOS.
    #[must_use]
    pub fn gecos(&self) -> &[u8] {
        self.text(self.ends[0], self.ends[1])
    }

    /// Home folder.
    #[must_use]
    pub fn dir(&self) -> &[u8] {
        self.text(self.ends[1], self.ends[2])
    }

    /// Log-in shell.
    #[must_use]
    pub fn shell(&self) -> &[u8] {
        &self.text[self.ends[2] as usize..]
    }
}

/// A group as the back-end said it.
#[derive(Clone, PartialEq, Eq)]
pub struct Group {
    /// How member lists name it by DN.
    pub reference: u32,
    /// Group id.
    pub gid: u32,
    /// Group name.
    pub name: Box<[u8]>,
    /// References, where it was asked for them.
    pub members: Option<Box<[u32]>>,
}

impl Group {
    /// References of its members, as far as they are known.
    #[must_use]
    pub fn references(&self) -> &[u32] {
        self.members.as_deref().unwrap_or_default()
    }
}

impl AsUser for User {
    fn as_user(&self) -> record::User<'_> {
        record::User {
            name: self.name(),
            passwd: None,
            uid: self.uid,
            gid: self.gid,
            gecos: Some(self.gecos()),
            dir: Some(self.dir()),
            shell: Some(self.shell()),
        }
    }
}

impl AsGroup for Group {
    fn name(&self) -> &[u8] {
        &self.name
    }

    fn gid(&self) -> u32 {
        self.gid
    }
}

/// A user or a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A user.
    User(&'a User),
    /// A group.
    Group(&'a Group),
}

/// What becomes of the members that are known of a group when it comes without them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Untold {
    /// They are not known any more.
    Unknown,
    /// They stay.
    Stays,
}

/// What a back-end handed over, read and well formed.
pub enum Image<'a> {
    /// Everything.
    Full(Header, Domain),
    /// What changed.
    Changes(Header, Records<'a>),
}

impl<'a> Image<'a> {
    /// Reads it. Takes time in proportion to it.
    pub fn read(image: &'a [u8]) -> Result<Self, Refused> {
        let (header, records) = Header::parse(image)?;
        check(records.clone())?;
        if header.since != 0 {
            return Ok(Self::Changes(header, records));
        }
        let mut domain = Domain::default();
        for record in records.flatten() {
            domain.put(&record, Untold::Unknown);
            if domain.room() == 0 {
                return Err(Refused::TooMuch);
            }
        }
        domain.note(&header);
        Ok(Self::Full(header, domain))
    }

    /// Its header.
    #[must_use]
    pub fn header(&self) -> &Header {
        match self {
            Self::Full(header, _) | Self::Changes(header, _) => header,
        }
    }
}

impl Entry<'_> {
    /// A user's primary gid, or that of a group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        match self {
            Self::User(user) => user.gid,
            Self::Group(group) => group.gid,
        }
    }

    /// How member lists name it; [`NO_REFERENCE`] where they do not.
    #[must_use]
    pub fn references(&self) -> [u32; 2] {
        match self {
            Self::User(user) => user.references,
            Self::Group(group) => [group.reference, NO_REFERENCE],
        }
    }
}

impl Slot {
    fn entry(&self) -> Option<Entry<'_>> {
        match self {
            Self::Empty => None,
            Self::User(user) => Some(Entry::User(user)),
            Self::Group(group) => Some(Entry::Group(group)),
        }
    }
}

impl Domain {
    /// A domain that has handed nothing over yet.
    #[must_use]
    pub fn new(complete: bool) -> Self {
        Self { complete, ..Self::default() }
    }

    /// Takes changes in: all of them or, when they are refused, none. What changed is counted beside what
    /// it takes the place of, so that changes may be refused where an image of everything is not.
    pub fn apply(&mut self, header: &Header, records: Records<'_>) -> Result<(), Refused> {
        if header.epoch != self.epoch || header.since != self.sequence {
            let (since, here) = (header.since, self.sequence);
            return Err(Refused::Gap { since, here });
        }
        self.has_room_for(records.clone())?;
        for record in records.flatten() {
            self.put(&record, Untold::Unknown);
        }
        self.note(header);
        Ok(())
    }

    fn note(&mut self, header: &Header) {
        self.present = true;
        self.complete = header.flags & exchange::COMPLETE != 0;
        (self.epoch, self.sequence) = (header.epoch, header.sequence);
    }

    /// Takes in what a look-up found. Whether anything is other than it was. Groups that come without
    /// their members are told as those of a user, which says nothing of their members.
    pub fn learn<'a>(
        &mut self,
        records: impl Iterator<Item = Result<Record<'a>, Malformed>> + Clone,
    ) -> Result<bool, Refused> {
        check(records.clone())?;
        self.has_room_for(records.clone())?;
        self.forget_lists(self.left_references(records.clone()));
        Ok(records
            .flatten()
            .fold(false, |changed, record| changed | self.put(&record, Untold::Stays)))
    }

    /// References by which entries are not named any more when all these records are taken in.
    fn left_references<'a>(
        &self,
        records: impl Iterator<Item = Result<Record<'a>, Malformed>>,
    ) -> Vec<u32> {
        let entries = records
            .flatten()
            .filter(|record| matches!(record, Record::User(_) | Record::Group(_)))
            .map(|record| (record_number(&record), record_references(&record)));
        // Of several the last counts.
        let named: HashMap<u32, [u32; 2]> = entries.collect();
        let left = named.into_iter().flat_map(|(number, now)| {
            let before = self.entry(number).map_or(NO_REFERENCES, |entry| entry.references());
            before.into_iter().filter(move |one| *one != NO_REFERENCE && !now.contains(one))
        });
        left.collect()
    }

    /// Who is in groups that list one of these is not known any more. The back-end says so too, with the
    /// next changes; until then their lists would be cut.
    fn forget_lists(&mut self, mut references: Vec<u32>) {
        if references.is_empty() {
            return;
        }
        references.sort_unstable();
        let is_one = |reference: &u32| references.binary_search(reference).is_ok();
        let groups = self.groups().filter(|(_, group)| group.references().iter().any(is_one));
        let groups: Vec<(u32, Group)> = groups
            .map(|(number, Group { reference, gid, name, .. })| {
                let (reference, gid) = (*reference, *gid);
                (number, Group { reference, gid, name: name.clone(), members: None })
            })
            .collect();
        for (number, group) in groups {
            self.set(number, Slot::Group(Arc::new(group)));
        }
    }

    /// Puts a user in whom the domain had.
    pub fn restore_user(&mut self, number: u32, user: User) {
        self.set(number, Slot::User(Arc::new(user)));
    }

    /// The same with a group.
    pub fn restore_group(&mut self, number: u32, group: Group) {
        self.set(number, Slot::Group(Arc::new(group)));
    }

    /// A copy with those entries only that have a gid, and users with this as the primary one.
    #[must_use]
    pub fn only(&self, gid_of: impl Fn(Entry<'_>) -> Option<u32>) -> Self {
        let mut copy = self.clone();
        for (number, entry) in self.entries() {
            match (entry, gid_of(entry)) {
                (_, None) => copy.set(number, Slot::Empty),
                (Entry::User(user), Some(gid)) if gid != user.gid => {
                    copy.set(number, Slot::User(Arc::new(User { gid, ..user.clone() })))
                }
                (_, Some(_)) => false,
            };
        }
        copy
    }

    /// What it may still cost.
    #[must_use]
    pub fn room(&self) -> u64 {
        COST_MAX.saturating_sub(self.cost.total())
    }

    fn has_room_for<'a>(
        &self,
        records: impl Iterator<Item = Result<Record<'a>, Malformed>>,
    ) -> Result<(), Refused> {
        let with = records.flatten().fold(self.cost, |cost, record| cost.with(&record));
        if with.total() < COST_MAX { Ok(()) } else { Err(Refused::TooMuch) }
    }

    /// Takes a record in. Whether the entry is other than it was.
    fn put(&mut self, record: &Record<'_>, untold: Untold) -> bool {
        self.made_of(record, untold).is_some_and(|new| self.set(record_number(record), new))
    }

    /// Whether the entry would be other than it is.
    #[must_use]
    pub fn is_changed_by(&self, record: &Record<'_>, untold: Untold) -> bool {
        let new = self.made_of(record, untold);
        new.is_some_and(|new| self.entry(record_number(record)) != new.entry())
    }

    /// What a record makes of the entry; `None` when it is for one that is not there.
    fn made_of(&self, record: &Record<'_>, untold: Untold) -> Option<Slot> {
        Some(match (record, self.entry(record_number(record))) {
            (Record::User(user), old) => {
                // Of another user who had the number nothing is kept.
                let groups = match old {
                    Some(Entry::User(old)) if old.references == record_references(record) => {
                        old.groups.clone()
                    }
                    _ => None,
                };
                Slot::User(Arc::new(User { groups, ..User::new(user) }))
            }
            (Record::Group(group), old) => {
                let told = group.members.map(|members| members.iter().collect());
                let members = told.or_else(|| match (untold, old) {
                    (Untold::Stays, Some(Entry::Group(old))) if *old.name == *group.name => {
                        old.members.clone()
                    }
                    _ => None,
                });
                let exchange::Group { reference, gid, name, .. } = *group;
                Slot::Group(Arc::new(Group { reference, gid, name: name.into(), members }))
            }
            (Record::GroupsOf { groups, .. }, Some(Entry::User(user))) => {
                let groups = Some(groups.iter().collect());
                Slot::User(Arc::new(User { groups, ..user.clone() }))
            }
            (Record::Gone { .. }, _) => Slot::Empty,
            (Record::GroupsOf { .. }, _) => return None,
        })
    }

    /// Whether the entry is other than it was.
    fn set(&mut self, number: u32, new: Slot) -> bool {
        if self.entry(number) == new.entry() {
            return false;
        }
        if matches!((self.entry(number), &new), (Some(Entry::Group(_)), _) | (_, Slot::Group(_))) {
            self.listed_by = OnceLock::new();
        }
        let mut cost = self.cost;
        cost.replace(number, self.entry(number), new.entry());
        self.cost = cost;
        self.refer(number, new.entry().map_or(NO_REFERENCES, |entry| entry.references()));
        *self.slot(number) = new;
        true
    }

    /// Has the entry's old references lead nowhere and its new ones to it.
    fn refer(&mut self, number: u32, new: [u32; 2]) {
        let old = self.entry(number).map_or(NO_REFERENCES, |entry| entry.references());
        if old == new {
            return;
        }
        self.listed_by = OnceLock::new();
        old.into_iter().for_each(|reference| self.refer_no_more(number, reference));
        new.into_iter().for_each(|reference| self.refer_to(number, reference));
    }

    fn refer_no_more(&mut self, number: u32, reference: u32) {
        let Some(place) = self.referred.get_mut(reference as usize) else { return };
        let others = self.also_referred.entry(reference).or_default();
        if *place == number + 1 {
            *place = others.pop_first().map_or(0, |other| other + 1);
        } else {
            others.remove(&number);
        }
        if others.is_empty() {
            self.also_referred.remove(&reference);
        }
    }

    fn refer_to(&mut self, number: u32, reference: u32) {
        if reference == NO_REFERENCE {
            return;
        }
        let place = reference as usize;
        if self.referred.len() <= place {
            self.referred.resize(place + 1, 0);
        }
        match &mut self.referred[place] {
            first @ 0 => *first = number + 1,
            first if *first == number + 1 => {}
            _ => drop(self.also_referred.entry(reference).or_default().insert(number)),
        }
    }

    /// Numbers of the entries that a reference leads to.
    pub fn referred(&self, reference: u32) -> impl Iterator<Item = u32> {
        let first = self.referred.get(reference as usize).and_then(|place| place.checked_sub(1));
        let others = first.and_then(|_| self.also_referred.get(&reference));
        first.into_iter().chain(others.into_iter().flatten().copied())
    }

    /// Whether all members of a group are known: its list, and those of the groups within it. A back-end
    /// hands a list over with what it names; a reference that leads nowhere is nobody.
    #[must_use]
    pub fn knows_members(&self, group: u32) -> bool {
        let (mut groups, mut seen, mut told) =
            (vec![group], HashSet::from([group]), HashSet::new());
        while let Some(number) = groups.pop() {
            let Some(Entry::Group(group)) = self.entry(number) else { continue };
            let Some(members) = &group.members else { return false };
            let references = members.iter().filter(|&&reference| told.insert(reference));
            let named = references.flat_map(|&reference| self.referred(reference));
            let is_group = |number: &u32| matches!(self.entry(*number), Some(Entry::Group(_)));
            groups.extend(named.filter(is_group).filter(|number| seen.insert(*number)));
        }
        true
    }

    /// Numbers of the groups that list an entry's reference. The first call after a change looks at all members.
    #[must_use]
    pub fn listed_by(&self, reference: u32) -> &[u32] {
        let lists = self.listed_by.get_or_init(|| {
            let mut lists: HashMap<u32, Vec<u32>> = HashMap::new();
            for (number, group) in self.groups() {
                let members = group.members.iter().flatten();
                for &member in members.filter(|&&member| self.referred(member).next().is_some()) {
                    lists.entry(member).or_default().push(number);
                }
            }
            Arc::new(lists)
        });
        lists.get(&reference).map_or(&[], Vec::as_slice)
    }

    fn slot(&mut self, number: u32) -> &mut Slot {
        let number = number as usize;
        let chunk = number / CHUNK;
        if self.chunks.len() <= chunk {
            let empty = Arc::new(array::from_fn(|_| Slot::Empty));
            self.chunks.resize(chunk + 1, empty);
        }
        &mut Arc::make_mut(&mut self.chunks[chunk])[number % CHUNK]
    }

    /// The entry of that number.
    #[must_use]
    pub fn entry(&self, number: u32) -> Option<Entry<'_>> {
        let number = number as usize;
        self.chunks.get(number / CHUNK)?[number % CHUNK].entry()
    }

    /// Entries in the order of their numbers.
    pub fn entries(&self) -> impl Iterator<Item = (u32, Entry<'_>)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        (0..).zip(slots).filter_map(|(number, slot)| Some((number, slot.entry()?)))
    }

    /// Users in the order of their numbers.
    pub fn users(&self) -> impl Iterator<Item = (u32, &User)> {
        self.entries().filter_map(|(number, entry)| match entry {
            Entry::User(user) => Some((number, user)),
            Entry::Group(_) => None,
        })
    }

    /// Groups in the order of their numbers.
    pub fn groups(&self) -> impl Iterator<Item = (u32, &Group)> {
        self.entries().filter_map(|(number, entry)| match entry {
            Entry::Group(group) => Some((number, group)),
            Entry::User(_) => None,
        })
    }

    /// One more than the largest reference that an entry has.
    #[must_use]
    pub fn references(&self) -> usize {
        self.referred.len()
    }
}

/// The entry that a record is about.
pub fn record_number(record: &Record<'_>) -> u32 {
    match record {
        Record::User(user) => user.number,
        Record::Group(group) => group.number,
        Record::Gone { number } | Record::GroupsOf { user: number, .. } => *number,
    }
}

fn record_references(record: &Record<'_>) -> [u32; 2] {
    match record {
        Record::User(user) => [user.reference, user.by_name],
        Record::Group(group) => [group.reference, NO_REFERENCE],
        Record::Gone { .. } | Record::GroupsOf { .. } => NO_REFERENCES,
    }
}

/// How long its list is.
fn record_list(record: &Record<'_>) -> usize {
    match record {
        Record::Group(group) => group.members.map_or(0, |members| members.len()),
        Record::GroupsOf { groups, .. } => groups.len(),
        Record::User(_) | Record::Gone { .. } => 0,
    }
}

/// Reads all of it once, so that what is refused changes nothing.
fn check<'a>(records: impl Iterator<Item = Result<Record<'a>, Malformed>>) -> Result<(), Refused> {
    for record in records {
        let record = record?;
        for number in record_references(&record).into_iter().chain([record_number(&record)]) {
            if number >= NUMBERS_MAX && number != NO_REFERENCE {
                return Err(Refused::Number(number));
            }
        }
        if record_number(&record) == NO_REFERENCE {
            return Err(Refused::Number(NO_REFERENCE));
        }
        let list = record_list(&record);
        if list > NUMBERS_MAX as usize {
            return Err(Refused::List(list));
        }
    }
    Ok(())
}
