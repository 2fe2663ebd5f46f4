//! What the back-ends handed over, domain by domain, as they said it. No judgement here: see
//! `admit` and `merge`.

use roster_bus::exchange::{self, Header, Malformed, NO_REFERENCE, Record, Records};

/// Entries and references that a domain may have. A back-end that was taken over could otherwise
/// name an entry 4,294,967,295 and have the publisher make room for it.
pub const NUMBERS_MAX: u32 = 1 << 24;

/// Why an image was not taken. The domain is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The bytes make no sense.
    #[error(transparent)]
    Malformed(#[from] Malformed),
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
}

/// A domain's entries.
#[derive(Default)]
pub struct Domain {
    /// Whether anything was handed over yet.
    pub present: bool,
    /// Whether what is not here is not in the directory: always but where it is asked on demand.
    pub complete: bool,
    /// The back-end process that the state is of.
    pub epoch: u64,
    /// Its last change that is in here.
    pub sequence: u64,
    slots: Vec<Slot>,
    /// By reference, one more than the number of the entry that it leads to; 0 for none.
    referred: Vec<u32>,
}

#[derive(Default)]
enum Slot {
    #[default]
    Empty,
    User(Box<User>),
    Group(Box<Group>),
}

/// A user as the back-end said it.
pub struct User {
    /// How member lists name it.
    pub reference: u32,
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
    fn new(user: &exchange::User<'_>) -> Self {
        let texts = [user.name, user.gecos, user.dir, user.shell];
        let mut ends = [0; 3];
        let mut end = 0;
        for (place, text) in ends.iter_mut().zip(texts) {
            end += text.len() as u32; // each is at most 65,535 long
            *place = end;
        }
        let exchange::User { reference, uid, gid, .. } = *user;
        Self { reference, uid, gid, groups: None, text: texts.concat().into(), ends }
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
pub struct Group {
    /// How member lists name it.
    pub reference: u32,
    /// Group id.
    pub gid: u32,
    /// Group name.
    pub name: Box<[u8]>,
    /// References, where it was asked for them.
    pub members: Option<Box<[u32]>>,
}

/// A user or a group.
#[derive(Clone, Copy)]
pub enum Entry<'a> {
    /// A user.
    User(&'a User),
    /// A group.
    Group(&'a Group),
}

impl Domain {
    /// A domain that has handed nothing over yet.
    #[must_use]
    pub fn new(complete: bool) -> Self {
        Self { complete, ..Self::default() }
    }

    /// Takes an image in: all of it or, when it is refused, nothing.
    pub fn apply(&mut self, image: &[u8]) -> Result<(), Refused> {
        let (header, records) = Header::parse(image)?;
        let full = header.since == 0;
        if !full && (header.epoch != self.epoch || header.since != self.sequence) {
            let (since, here) = (header.since, self.sequence);
            return Err(Refused::Gap { since, here });
        }
        check(records.clone())?;
        if full {
            (self.slots, self.referred) = (Vec::new(), Vec::new());
        }
        records.flatten().for_each(|record| self.put(&record));
        self.present = true;
        self.complete = header.flags & exchange::COMPLETE != 0;
        (self.epoch, self.sequence) = (header.epoch, header.sequence);
        Ok(())
    }

    /// Takes in what a look-up found; gives the numbers of its users and groups.
    pub fn learn(&mut self, records: &[u8]) -> Result<Vec<u32>, Refused> {
        let records = Records::bare(records);
        check(records.clone())?;
        let mut numbers = Vec::new();
        for record in records.flatten() {
            self.put(&record);
            match record {
                Record::User(exchange::User { number, .. })
                | Record::Group(exchange::Group { number, .. }) => numbers.push(number),
                Record::Gone { .. } | Record::GroupsOf { .. } => {}
            }
        }
        Ok(numbers)
    }

    fn put(&mut self, record: &Record<'_>) {
        if !matches!(record, Record::GroupsOf { .. }) {
            self.refer(record);
        }
        match record {
            Record::User(user) => {
                // Of another user who had the number nothing is kept.
                let groups = match self.slot(user.number) {
                    Slot::User(old) if old.reference == user.reference => old.groups.take(),
                    _ => None,
                };
                *self.slot(user.number) = Slot::User(Box::new(User { groups, ..User::new(user) }));
            }
            Record::Group(group) => {
                let members = match (group.members, self.slot(group.number)) {
                    (Some(members), _) => Some(members.iter().collect()),
                    (None, Slot::Group(old)) if *old.name == *group.name => old.members.take(),
                    (None, _) => None,
                };
                let exchange::Group { reference, gid, name, .. } = *group;
                let group = Group { reference, gid, name: name.into(), members };
                let number = record_number(record);
                *self.slot(number) = Slot::Group(Box::new(group));
            }
            Record::Gone { number } => *self.slot(*number) = Slot::Empty,
            Record::GroupsOf { user, groups } => {
                if let Slot::User(user) = self.slot(*user) {
                    user.groups = Some(groups.iter().collect());
                }
            }
        }
    }

    /// Has the entry's old reference lead nowhere and its new one to it.
    fn refer(&mut self, record: &Record<'_>) {
        let (number, new) = (record_number(record), record_reference(record));
        let old = self.entry(number).map_or(NO_REFERENCE, |entry| match entry {
            Entry::User(user) => user.reference,
            Entry::Group(group) => group.reference,
        });
        if old == new {
            return;
        }
        if self.referred(old) == Some(number) {
            self.referred[old as usize] = 0;
        }
        if new != NO_REFERENCE {
            let new = new as usize;
            if self.referred.len() <= new {
                self.referred.resize(new + 1, 0);
            }
            self.referred[new] = number + 1;
        }
    }

    /// The number of the entry that a reference leads to.
    #[must_use]
    pub fn referred(&self, reference: u32) -> Option<u32> {
        self.referred.get(reference as usize)?.checked_sub(1)
    }

    fn slot(&mut self, number: u32) -> &mut Slot {
        let number = number as usize;
        if self.slots.len() <= number {
            self.slots.resize_with(number + 1, Slot::default);
        }
        &mut self.slots[number]
    }

    /// The entry of that number.
    #[must_use]
    pub fn entry(&self, number: u32) -> Option<Entry<'_>> {
        match self.slots.get(number as usize)? {
            Slot::Empty => None,
            Slot::User(user) => Some(Entry::User(user)),
            Slot::Group(group) => Some(Entry::Group(group)),
        }
    }

    /// Users in the order of their numbers.
    pub fn users(&self) -> impl Iterator<Item = (u32, &User)> {
        (0..).zip(&self.slots).filter_map(|(number, slot)| match slot {
            Slot::User(user) => Some((number, &**user)),
            _ => None,
        })
    }

    /// Groups in the order of their numbers.
    pub fn groups(&self) -> impl Iterator<Item = (u32, &Group)> {
        (0..).zip(&self.slots).filter_map(|(number, slot)| match slot {
            Slot::Group(group) => Some((number, &**group)),
            _ => None,
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

fn record_reference(record: &Record<'_>) -> u32 {
    match record {
        Record::User(user) => user.reference,
        Record::Group(group) => group.reference,
        Record::Gone { .. } | Record::GroupsOf { .. } => NO_REFERENCE,
    }
}

/// Reads all of it once, so that what is refused changes nothing.
fn check(records: Records<'_>) -> Result<(), Refused> {
    for record in records {
        let record = record?;
        for number in [record_number(&record), record_reference(&record)] {
            if number >= NUMBERS_MAX && number != NO_REFERENCE {
                return Err(Refused::Number(number));
            }
        }
        if record_number(&record) == NO_REFERENCE {
            return Err(Refused::Number(NO_REFERENCE));
        }
    }
    Ok(())
}
