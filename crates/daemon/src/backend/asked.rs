//! What was asked of a directory that is not mirrored: where the answers are by name, id and
//! reference, and when each was true last.

use super::entries::Kind;
use roster_bus::exchange::{NO_REFERENCE, Numbers, Record, Records, write_groups_of};
use roster_provider::LookUp;
use roster_store::Key;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Answers, by the number of their entry.
#[derive(Default)]
pub struct Asked {
    entries: HashMap<u32, Answer>,
    by_name: HashMap<(Kind, Box<[u8]>), u32>,
    by_id: HashMap<(Kind, u32), u32>,
    by_reference: HashMap<u32, u32>,
}

/// An entry that was asked for.
pub struct Answer {
    /// Its key.
    pub key: Key,
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: Box<[u8]>,
    /// uid or gid.
    pub id: u32,
    /// How member lists name it.
    pub reference: u32,
    /// Its record.
    pub record: Box<[u8]>,
    /// Numbers of a user's groups, if they were asked for.
    pub groups: Option<Box<[u32]>>,
    /// When the directory said so last, in seconds since 1970.
    pub seen_unix: u64,
}

impl Answer {
    /// Reads the records of one entry; `None` when they are not those of one.
    #[must_use]
    pub fn read(key: Key, seen_unix: u64, records: &[u8]) -> Option<Self> {
        let length = u32::from_le_bytes(*records.first_chunk()?) as usize;
        let (record, rest) = records.split_at_checked(length)?;
        let (kind, name, id, reference) = match Records::bare(record).next()?.ok()? {
            Record::User(user) => (Kind::User, user.name.into(), user.uid, user.reference),
            Record::Group(group) => (Kind::Group, group.name.into(), group.gid, group.reference),
            Record::Gone { .. } | Record::GroupsOf { .. } => return None,
        };
        let groups = match Records::bare(rest).next() {
            Some(Ok(Record::GroupsOf { groups, .. })) => Some(groups.iter().collect()),
            Some(_) => return None,
            None => None,
        };
        Some(Self { key, kind, name, id, reference, record: record.into(), groups, seen_unix })
    }

    /// Its record, and behind it that of a user's groups.
    #[must_use]
    pub fn records(&self) -> Vec<u8> {
        let mut records = self.record.to_vec();
        if let (Some(groups), Some(Ok(Record::User(user)))) =
            (&self.groups, Records::bare(&self.record).next())
        {
            // A list that is too long for a record leaves none: the groups are not known then.
            let _ = write_groups_of(&mut records, user.number, groups);
        }
        records
    }

    /// References of a group's members, if they were asked for.
    #[must_use]
    pub fn members(&self) -> Option<Numbers<'_>> {
        match Records::bare(&self.record).next() {
            Some(Ok(Record::Group(group))) => group.members,
            _ => None,
        }
    }

    /// What to ask the directory to hear this again.
    #[must_use]
    pub fn question(&self) -> LookUp {
        let name = self.name.to_vec();
        match self.kind {
            Kind::User if self.groups.is_some() => LookUp::GroupsOf(name),
            Kind::User => LookUp::UserByName(name),
            Kind::Group => LookUp::GroupByName(name),
        }
    }
}

impl Asked {
    /// The answer of that number.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&Answer> {
        self.entries.get(&number)
    }

    /// Puts an answer in the place of the one before.
    pub fn put(&mut self, number: u32, answer: Answer) {
        self.remove(number);
        self.by_name.insert((answer.kind, answer.name.clone()), number);
        self.by_id.insert((answer.kind, answer.id), number);
        if answer.reference != NO_REFERENCE {
            self.by_reference.insert(answer.reference, number);
        }
        self.entries.insert(number, answer);
    }

    /// The directory said the same again.
    pub fn seen(&mut self, number: u32, seen_unix: u64) {
        if let Some(answer) = self.entries.get_mut(&number) {
            answer.seen_unix = seen_unix;
        }
    }

    /// The user is in these groups; whether that is news.
    pub fn groups_of(&mut self, number: u32, groups: &[u32]) -> bool {
        let Some(answer) = self.entries.get_mut(&number) else { return false };
        let news = answer.groups.as_deref() != Some(groups);
        if news {
            answer.groups = Some(groups.into());
        }
        news
    }

    /// Forgets an answer.
    pub fn remove(&mut self, number: u32) {
        let Some(answer) = self.entries.remove(&number) else { return };
        let Answer { kind, name, id, reference, .. } = answer;
        forget(&mut self.by_name, &(kind, name), number);
        forget(&mut self.by_id, &(kind, id), number);
        forget(&mut self.by_reference, &reference, number);
    }

    /// The entry that a question is about.
    #[must_use]
    pub fn find(&self, what: &LookUp) -> Option<u32> {
        match what {
            LookUp::UserByName(name) | LookUp::GroupsOf(name) => self.named(Kind::User, name),
            LookUp::GroupByName(name) => self.named(Kind::Group, name),
            LookUp::UserByUid(uid) => self.by_id.get(&(Kind::User, *uid)).copied(),
            LookUp::GroupByGid(gid) => self.by_id.get(&(Kind::Group, *gid)).copied(),
        }
    }

    /// By exactly this name: that there is no ALICE says nothing about alice.
    fn named(&self, kind: Kind, name: &[u8]) -> Option<u32> {
        self.by_name.get(&(kind, name.into())).copied()
    }

    /// The entry and what its record speaks of: a user's groups; a group's members, through nested
    /// groups. Each once, however they are nested.
    #[must_use]
    pub fn with_related(&self, number: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::from([number]);
        let mut next = vec![number];
        while let Some(answer) = next.pop().and_then(|number| self.entries.get(&number)) {
            let members = answer.members().into_iter().flat_map(Numbers::iter);
            for member in members.filter_map(|reference| self.by_reference.get(&reference)) {
                if found.insert(*member) {
                    next.push(*member);
                }
            }
            found.extend(
                answer
                    .groups
                    .iter()
                    .flatten()
                    .filter(|&group| answer.kind == Kind::User && self.entries.contains_key(group)),
            );
        }
        found
    }

    /// Answers that were true last before that time, users first: asking for a user's groups
    /// confirms those as well.
    #[must_use]
    pub fn older_than(&self, unix: u64, kind: Kind) -> Vec<u32> {
        let old = |answer: &&Answer| answer.kind == kind && answer.seen_unix < unix;
        let mut numbers: Vec<u32> = self
            .entries
            .iter()
            .filter(|(_, answer)| old(answer))
            .map(|(&number, _)| number)
            .collect();
        numbers.sort_unstable();
        numbers
    }

    /// Everything was true long ago.
    pub fn expire(&mut self) {
        self.entries.values_mut().for_each(|answer| answer.seen_unix = 0);
    }
}

/// Takes a way to an entry away, unless it leads to another by now.
fn forget<K: Hash + Eq>(ways: &mut HashMap<K, u32>, key: &K, number: u32) {
    if ways.get(key) == Some(&number) {
        ways.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_bus::exchange;

    fn user(number: u32, name: &str, uid: u32, reference: u32) -> Answer {
        let mut record = Vec::new();
        let [name, none] = [name.as_bytes(), b""];
        let user = exchange::User {
            number,
            reference,
            uid,
            gid: 100,
            name,
            gecos: none,
            dir: none,
            shell: none,
        };
        exchange::write_user(&mut record, &user).expect("fits");
        Answer::read(KEY, 100, &record).expect("a user")
    }

    fn group(number: u32, name: &str, reference: u32, members: &[u32]) -> Answer {
        let mut record = Vec::new();
        let name = name.as_bytes();
        exchange::write_group(&mut record, number, reference, 500, name, Some(members))
            .expect("fits");
        Answer::read(KEY, 100, &record).expect("a group")
    }

    const KEY: Key = Key { part: 0, id: [0; 16] };

    fn by_name(name: &str) -> LookUp {
        LookUp::UserByName(name.into())
    }

    #[test]
    fn a_renamed_user_is_found_by_the_new_name_only() {
        let mut asked = Asked::default();
        asked.put(1, user(1, "alice", 1000, 0));
        asked.put(1, user(1, "alicia", 1000, 0));
        assert_eq!(asked.find(&by_name("alice")), None);
        assert_eq!(asked.find(&by_name("alicia")), Some(1));
        assert_eq!(asked.find(&LookUp::UserByUid(1000)), Some(1));
    }

    #[test]
    fn a_name_that_went_to_another_entry_stays_with_it() {
        let mut asked = Asked::default();
        asked.put(1, user(1, "alice", 1000, 0));
        asked.put(2, user(2, "alice", 1001, 1));
        asked.remove(1);
        assert_eq!(asked.find(&by_name("alice")), Some(2));
        assert_eq!(asked.find(&LookUp::UserByUid(1000)), None);
    }

    #[test]
    fn a_name_is_found_as_it_is_spelt_and_not_otherwise() {
        let mut asked = Asked::default();
        asked.put(1, user(1, "alice", 1000, 0));
        assert_eq!(asked.find(&by_name("alice")), Some(1));
        assert_eq!(asked.find(&by_name("Alice")), None);
    }

    #[test]
    fn nested_groups_in_a_circle_end() {
        let mut asked = Asked::default();
        asked.put(1, user(1, "alice", 1000, 10));
        asked.put(2, group(2, "a", 20, &[21]));
        asked.put(3, group(3, "b", 21, &[20, 10, 99]));
        assert_eq!(asked.with_related(2), BTreeSet::from([1, 2, 3]));
    }

    #[test]
    fn a_users_groups_come_without_their_members() {
        let mut asked = Asked::default();
        asked.put(1, user(1, "alice", 1000, 10));
        asked.put(2, user(2, "bob", 1001, 11));
        asked.put(3, group(3, "staff", 20, &[10, 11]));
        assert!(asked.groups_of(1, &[3]));
        assert!(!asked.groups_of(1, &[3]));
        assert_eq!(asked.with_related(1), BTreeSet::from([1, 3]));
    }
}
