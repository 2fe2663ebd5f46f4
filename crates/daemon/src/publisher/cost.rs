//! What a domain may cost the publisher. A back-end that was taken over could otherwise name people and
//! memberships until there is no memory for anybody's domain.

use super::model::{Entry, NO_REFERENCES};
use roster_bus::exchange::{IMAGE_BYTES_MAX, NO_REFERENCE, Record};

/// Bytes of memory that a domain may take at the peak of a publication. The figures below are what was
/// measured there, with the model, the merge, the image and the file's bytes together: domains of 2 million
/// users, of 60 million memberships, or of 390 MB of text took 1.0 to 1.3 GiB. A quarter of that comes on
/// top for the moment in which everything is fetched anew.
pub const COST_MAX: u64 = 1280 << 20;

/// A user without its text.
const USER: u64 = 640;
/// A group without its name.
const GROUP: u64 = 448;
/// A byte of text.
const TEXT: u64 = 3;
/// A member of a group, also one by a group within it.
pub const MEMBER: u64 = 20;
/// A group of a user's, where it was asked for.
const GROUP_OF_USER: u64 = 28;
/// A number up to the highest of an entry, used or not.
const NUMBER: u64 = 16;
/// A reference up to the highest of an entry, used or not.
const REFERENCE: u64 = 12;

/// A large directory fits: a million users in 100,000 groups with 20 million memberships.
const _: () = assert!(
    1_000_000 * (USER + 60 * TEXT + NUMBER + 2 * REFERENCE)
        + 100_000 * (GROUP + 10 * TEXT + NUMBER + REFERENCE)
        + 20_000_000 * MEMBER
        < COST_MAX
);
/// And every image of a domain that fits is read: text takes the most of it.
const _: () = assert!(COST_MAX / TEXT < IMAGE_BYTES_MAX);

/// What entries cost.
#[derive(Clone, Copy, Default)]
pub struct Cost {
    entries: u64,
    numbers: u64,
    references: u64,
}

impl Cost {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.entries + self.numbers * NUMBER + self.references * REFERENCE
    }

    /// Adds a record, as that of an entry that is not there yet.
    #[must_use]
    pub fn with(mut self, record: &Record<'_>) -> Self {
        let (number, references, cost) = match record {
            Record::User(user) => {
                let texts = [user.name, user.gecos, user.dir, user.shell];
                let text = texts.iter().map(|text| text.len()).sum();
                (user.number, [user.reference, user.by_name], of_user(text, 0))
            }
            Record::Group(group) => {
                let members = group.members.map_or(0, |members| members.len());
                (group.number, [group.reference, NO_REFERENCE], of_group(group.name.len(), members))
            }
            Record::GroupsOf { user, groups } => {
                (*user, NO_REFERENCES, groups.len() as u64 * GROUP_OF_USER)
            }
            Record::Gone { .. } => return self,
        };
        self.entries += cost;
        self.note(number, references);
        self
    }

    /// Puts an entry in the place of another.
    pub fn replace(&mut self, number: u32, old: Option<Entry<'_>>, new: Option<Entry<'_>>) {
        self.entries += new.map_or(0, of_entry);
        self.entries -= old.map_or(0, of_entry);
        if let Some(new) = new {
            self.note(number, new.references());
        }
    }

    fn note(&mut self, number: u32, references: [u32; 2]) {
        self.numbers = self.numbers.max(u64::from(number) + 1);
        for reference in references.into_iter().filter(|one| *one != NO_REFERENCE) {
            self.references = self.references.max(u64::from(reference) + 1);
        }
    }
}

fn of_entry(entry: Entry<'_>) -> u64 {
    match entry {
        Entry::User(user) => {
            of_user(user.text_len(), user.groups.as_ref().map_or(0, |all| all.len()))
        }
        Entry::Group(group) => of_group(group.name.len(), group.references().len()),
    }
}

fn of_user(text: usize, groups: usize) -> u64 {
    USER + text as u64 * TEXT + groups as u64 * GROUP_OF_USER
}

fn of_group(text: usize, members: usize) -> u64 {
    GROUP + text as u64 * TEXT + members as u64 * MEMBER
}
