// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory limit of a domain in the publisher. A hijacked backend could otherwise send users and memberships until the
//! memory of all domains is exhausted. `domain_model` rejects an image that exceeds it.

use super::model_entry::{ModelEntry, NO_REFERENCES};
use roster_bus::domain_image::{IMAGE_BYTES_MAX, NO_REFERENCE, Record};

/// Bytes of memory that a domain may use at the peak of a publication. The figures below were measured there. They
/// include the model, the merge, the image and the bytes of the file. Domains of 2 million users, of 60 million
/// memberships, or of 390 MB of text used 1.0 to 1.3 GiB. A full fetch uses another quarter of that for a moment.
pub const DOMAIN_BYTES_MAX: u64 = 1280 << 20;

/// A user without its text.
const USER_BYTES: u64 = 640;
/// A group without its name.
const GROUP_BYTES: u64 = 448;
/// A byte of text.
const BYTES_PER_TEXT_BYTE: u64 = 3;
/// A member of a group, also through a nested group.
pub const MEMBER_BYTES: u64 = 20;
/// One group of a user, if the groups were queried.
const USER_GROUP_BYTES: u64 = 28;
/// A number up to the highest of an entry, used or not.
const NUMBER_BYTES: u64 = 16;
/// A reference up to the highest of an entry, used or not.
const REFERENCE_BYTES: u64 = 12;

/// A large directory fits: a million users in 100,000 groups with 20 million memberships.
const _: () = assert!(
    1_000_000 * (USER_BYTES + 60 * BYTES_PER_TEXT_BYTE + NUMBER_BYTES + 2 * REFERENCE_BYTES)
        + 100_000 * (GROUP_BYTES + 10 * BYTES_PER_TEXT_BYTE + NUMBER_BYTES + REFERENCE_BYTES)
        + 20_000_000 * MEMBER_BYTES
        < DOMAIN_BYTES_MAX
);
/// Every image of a domain within the limit is shorter than the longest image. Text needs the most image bytes.
const _: () = assert!(DOMAIN_BYTES_MAX / BYTES_PER_TEXT_BYTE < IMAGE_BYTES_MAX);

/// Estimated memory of entries.
#[derive(Clone, Copy, Default)]
pub struct MemoryEstimate {
    entries: u64,
    numbers: u64,
    references: u64,
}

impl MemoryEstimate {
    /// Returns the bytes of all parts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.entries + self.numbers * NUMBER_BYTES + self.references * REFERENCE_BYTES
    }

    /// Adds a record of a new entry. `private_groups`: a user may have a private group.
    #[must_use]
    pub fn with(mut self, record: &Record<'_>, private_groups: bool) -> Self {
        let (number, references, cost) = match record {
            Record::User(user) => {
                let texts = [user.name, user.gecos, user.dir, user.shell];
                let text = texts.iter().map(|text| text.len()).sum();
                let private = if private_groups { group_bytes(user.name.len(), 0) } else { 0 };
                let cost = user_bytes(text, 0) + private;
                (user.number, [user.reference, user.by_name], cost)
            }
            Record::Group(group) => {
                let members = group.members.map_or(0, |members| members.len());
                (
                    group.number,
                    [group.reference, NO_REFERENCE],
                    group_bytes(group.name.len(), members),
                )
            }
            Record::GroupsOf { user, groups } => {
                (*user, NO_REFERENCES, groups.len() as u64 * USER_GROUP_BYTES)
            }
            Record::Removed { .. } => return self,
        };
        self.entries += cost;
        self.add_bounds(number, references);
        self
    }

    /// Replaces an entry with another.
    pub fn replace(
        &mut self,
        number: u32,
        old: Option<ModelEntry<'_>>,
        new: Option<ModelEntry<'_>>,
    ) {
        self.entries += new.map_or(0, entry_bytes);
        self.entries -= old.map_or(0, entry_bytes);
        if let Some(new) = new {
            self.add_bounds(number, new.references());
        }
    }

    fn add_bounds(&mut self, number: u32, references: [u32; 2]) {
        self.numbers = self.numbers.max(u64::from(number) + 1);
        for reference in references.into_iter().filter(|one| *one != NO_REFERENCE) {
            self.references = self.references.max(u64::from(reference) + 1);
        }
    }
}

fn entry_bytes(entry: ModelEntry<'_>) -> u64 {
    match entry {
        ModelEntry::User(user) => {
            let groups = user.groups.as_ref().map_or(0, |all| all.len());
            let private = user.private_group().map_or(0, |group| group_bytes(group.name.len(), 0));
            user_bytes(user.text_len(), groups) + private
        }
        ModelEntry::Group(group) => group_bytes(group.text_len(), group.references().len()),
    }
}

fn user_bytes(text: usize, groups: usize) -> u64 {
    USER_BYTES + text as u64 * BYTES_PER_TEXT_BYTE + groups as u64 * USER_GROUP_BYTES
}

fn group_bytes(text: usize, members: usize) -> u64 {
    GROUP_BYTES + text as u64 * BYTES_PER_TEXT_BYTE + members as u64 * MEMBER_BYTES
}
