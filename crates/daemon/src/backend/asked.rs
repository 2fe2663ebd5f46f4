//! What was asked of a directory that is not mirrored: where the answers are by name, id and
//! reference, and when each was true last.

use super::entries::Kind;
use roster_bus::exchange::{
    Group, NO_REFERENCE, Numbers, Record, Records, write_group, write_groups_of,
};
use roster_provider::{LookUp, Of};
use roster_store::Key;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;

/// Answers, by the number of their entry.
#[derive(Default)]
pub struct Asked {
    /// Inquiries so far.
    inquiries: u64,
    entries: HashMap<u32, Answer>,
    by_name: HashMap<(Kind, Box<[u8]>), u32>,
    by_id: HashMap<(Kind, u32), u32>,
    /// Of one reference there may be a user and a group: one entry that is both.
    by_reference: HashMap<(Kind, u32), u32>,
    /// By group, the users who were found to be in it.
    users_of: HashMap<u32, BTreeSet<u32>>,
}

/// When the directory said so last, in seconds since 1970. What one question brings of an entry is not
/// always all that is known of it: a user's groups come without their members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// That the entry is as it is.
    pub entry: u64,
    /// That these are a group's members, or a user's groups.
    pub list: u64,
}

/// Whether something was said within a time that is not over, or not by this clock: one that was set
/// back must not make old answers young.
fn is_fresh(said: u64, since: u64, now: u64) -> bool {
    (since..=now).contains(&said)
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
    /// How member lists name it by DN.
    pub reference: u32,
    /// How they name a user by name.
    pub by_name: u32,
    /// Its record.
    pub record: Box<[u8]>,
    /// Numbers of a user's groups, if they were asked for.
    pub groups: Option<Box<[u32]>>,
    /// When the directory said so last.
    pub seen: Seen,
    /// How many inquiries there were when it did.
    told: u64,
}

impl Answer {
    /// Reads the records of one entry; `None` when they are not those of one.
    #[must_use]
    pub fn read(key: Key, seen: Seen, records: &[u8]) -> Option<Self> {
        let length = u32::from_le_bytes(*records.first_chunk()?) as usize;
        let (record, rest) = records.split_at_checked(length)?;
        let (kind, name, id, reference, by_name) = match Records::bare(record).next()?.ok()? {
            Record::User(user) => {
                (Kind::User, user.name.into(), user.uid, user.reference, user.by_name)
            }
            Record::Group(group) => {
                (Kind::Group, group.name.into(), group.gid, group.reference, NO_REFERENCE)
            }
            Record::Gone { .. } | Record::GroupsOf { .. } => return None,
        };
        let groups = match Records::bare(rest).next() {
            Some(Ok(Record::GroupsOf { groups, .. })) => Some(groups.iter().collect()),
            Some(_) => return None,
            None => None,
        };
        let record = record.into();
        Some(Self { key, kind, name, id, reference, by_name, record, groups, seen, told: 0 })
    }

    /// How member lists name it, in each of the ways; [`NO_REFERENCE`] where they do not.
    #[must_use]
    pub fn references(&self) -> [u32; 2] {
        [self.reference, self.by_name]
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

    /// Appends the record of the entry alone: a group's as one whose members are not known.
    pub fn write_bare(&self, out: &mut Vec<u8>) {
        match self.kind {
            Kind::User => out.extend_from_slice(&self.record),
            Kind::Group => self.write_without_members(out),
        }
    }

    /// Appends the record of a group as one whose members are not known.
    pub fn write_without_members(&self, out: &mut Vec<u8>) {
        if let Some(Ok(Record::Group(group))) = Records::bare(&self.record).next() {
            let Group { number, reference, gid, name, .. } = group;
            let written = write_group(out, number, reference, gid, name, None);
            debug_assert!(written.is_ok(), "shorter than the record that it was");
        }
    }

    /// Whether the list that belongs to it was asked for.
    #[must_use]
    pub fn has_list(&self) -> bool {
        match self.kind {
            Kind::User => self.groups.is_some(),
            Kind::Group => self.members().is_some(),
        }
    }

    /// What to ask for to hear again what was said before that time; `None` when nothing was.
    #[must_use]
    pub fn stale(&self, since: u64, now: u64) -> Option<Of> {
        let is_old = |said| !is_fresh(said, since, now);
        let old_list = self.has_list() && is_old(self.seen.list);
        match self.kind {
            Kind::User if old_list => Some(Of::UsersWithGroups),
            Kind::Group if old_list => Some(Of::GroupsWithMembers),
            Kind::User if is_old(self.seen.entry) => Some(Of::Users),
            Kind::Group if is_old(self.seen.entry) => Some(Of::Groups),
            _ => None,
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
        let answer = Answer { told: self.inquiries, ..answer };
        self.remove(number);
        self.by_name.insert((answer.kind, answer.name.clone()), number);
        self.by_id.insert((answer.kind, answer.id), number);
        for reference in answer.references().into_iter().filter(|one| *one != NO_REFERENCE) {
            self.by_reference.insert((answer.kind, reference), number);
        }
        self.note_groups(number, &answer.groups);
        self.entries.insert(number, answer);
    }

    /// The directory said the same again.
    pub fn seen(&mut self, number: u32, seen: Seen) {
        if let Some(answer) = self.entries.get_mut(&number) {
            answer.seen = seen;
            answer.told = self.inquiries;
        }
    }

    /// The list that belongs to an entry is to be asked for again.
    pub fn list_is_old(&mut self, number: u32) {
        if let Some(answer) = self.entries.get_mut(&number) {
            answer.seen.list = 0;
        }
    }

    /// The directory is asked; what it speaks of from now on is told.
    pub fn inquire(&mut self) -> u64 {
        self.inquiries += 1;
        self.inquiries
    }

    /// Whether the directory has spoken of the entry since that inquiry.
    #[must_use]
    pub fn was_told(&self, number: u32, inquiry: u64) -> bool {
        self.entries.get(&number).is_some_and(|answer| answer.told >= inquiry)
    }

    /// The user was said at this time to be in these groups; whether that is news.
    pub fn groups_of(&mut self, number: u32, groups: &[u32], now: u64) -> bool {
        let Some(answer) = self.entries.get_mut(&number) else { return false };
        answer.seen.list = now;
        if answer.groups.as_deref() == Some(groups) {
            return false;
        }
        let before = answer.groups.replace(groups.into());
        self.forget_groups(number, &before);
        self.note_groups(number, &Some(groups.into()));
        true
    }

    fn note_groups(&mut self, user: u32, groups: &Option<Box<[u32]>>) {
        for group in groups.iter().flatten() {
            self.users_of.entry(*group).or_default().insert(user);
        }
    }

    fn forget_groups(&mut self, user: u32, groups: &Option<Box<[u32]>>) {
        for group in groups.iter().flatten() {
            if let Some(users) = self.users_of.get_mut(group) {
                users.remove(&user);
                if users.is_empty() {
                    self.users_of.remove(group);
                }
            }
        }
    }

    /// Forgets an answer.
    pub fn remove(&mut self, number: u32) {
        let Some(answer) = self.entries.remove(&number) else { return };
        let references = answer.references();
        let Answer { kind, name, id, groups, .. } = answer;
        self.forget_groups(number, &groups);
        forget(&mut self.by_name, &(kind, name), number);
        forget(&mut self.by_id, &(kind, id), number);
        for reference in references {
            forget(&mut self.by_reference, &(kind, reference), number);
        }
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

    /// The answer to a question, if all that it is for is known, and was said not before that time.
    #[must_use]
    pub fn fresh(&self, what: &LookUp, since: u64, now: u64) -> Option<u32> {
        let number = self.find(what)?;
        let answer = self.entries.get(&number)?;
        let fits = !wants_list(what)
            || is_fresh(answer.seen.list, since, now) && self.has_whole_list(number);
        (fits && is_fresh(answer.seen.entry, since, now)).then_some(number)
    }

    /// Whether the entry that a question is about was told not before that time, whatever of its list.
    #[must_use]
    pub fn is_told(&self, what: &LookUp, since: u64, now: u64) -> bool {
        let answer = self.find(what).and_then(|number| self.entries.get(&number));
        answer.is_some_and(|answer| is_fresh(answer.seen.entry, since, now))
    }

    /// The answer to a question, if all that it is for is known.
    #[must_use]
    pub fn whole(&self, what: &LookUp) -> Option<u32> {
        self.fresh(what, 0, u64::MAX)
    }

    /// Of each entry that member lists name so, whether these can be told: it is known, a group with its
    /// members. Each group is gone through once, however many of them it is in.
    #[must_use]
    pub fn refer(&self, references: &[u32]) -> Vec<bool> {
        let untold = self.untold(references);
        let refers = |&reference: &u32| {
            let mut known = self.referred(reference).peekable();
            known.peek().is_some() && known.all(|number| !untold.contains(&number))
        };
        references.iter().map(refers).collect()
    }

    /// Of the groups that references lead to, and of all in these, those whose members are not all known:
    /// the ones without a list, and whatever they are in.
    fn untold(&self, references: &[u32]) -> HashSet<u32> {
        let groups = |references: &mut dyn Iterator<Item = u32>| -> Vec<u32> {
            let referred = references.flat_map(|reference| self.referred(reference));
            referred.filter(|&number| !self.is_user(number)).collect()
        };
        let mut next = groups(&mut references.iter().copied());
        let mut found: HashSet<u32> = next.iter().copied().collect();
        let mut around: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut without = Vec::new();
        while let Some(group) = next.pop() {
            let Some(members) = self.entries.get(&group).and_then(Answer::members) else {
                without.push(group);
                continue;
            };
            for inner in groups(&mut members.iter()) {
                around.entry(inner).or_default().push(group);
                if found.insert(inner) {
                    next.push(inner);
                }
            }
        }
        let mut untold = HashSet::new();
        while let Some(group) = without.pop() {
            if untold.insert(group) {
                without.extend(around.remove(&group).unwrap_or_default());
            }
        }
        untold
    }

    /// Whether the list that belongs to an entry is known, a group's through nested groups.
    fn has_whole_list(&self, number: u32) -> bool {
        if self.is_user(number) { self.has_list(number) } else { self.is_whole(number) }
    }

    /// Whether all members of a group are known: its list, and those of the groups in it.
    fn is_whole(&self, group: u32) -> bool {
        self.within(group).into_iter().all(|number| self.is_user(number) || self.has_list(number))
    }

    fn is_user(&self, number: u32) -> bool {
        self.entries.get(&number).is_some_and(|answer| answer.kind == Kind::User)
    }

    fn has_list(&self, number: u32) -> bool {
        self.entries.get(&number).is_some_and(Answer::has_list)
    }

    /// The entries that a member list names so: none, one, or a user and a group.
    fn referred(&self, reference: u32) -> impl Iterator<Item = u32> {
        #[cfg(test)]
        tests::LOOKED_UP.with(|count| count.set(count.get() + 1));
        let kinds = Kind::ALL.into_iter();
        kinds.filter_map(move |kind| self.by_reference.get(&(kind, reference)).copied())
    }

    /// A group and others that were found with it as groups of one user, as far as nobody has asked
    /// for their members yet.
    #[must_use]
    pub fn found_with(&self, group: u32) -> BTreeSet<u32> {
        let users = self.users_of.get(&group).into_iter().flatten();
        let users = users.filter_map(|user| self.entries.get(user));
        let groups = users.flat_map(|user| user.groups.iter().flatten().copied());
        let groups = groups.chain([group]).filter(|group| self.entries.contains_key(group));
        groups.filter(|&group| !self.has_list(group)).collect()
    }

    /// The records that answer a question about an entry. Whatever a list among them names is among
    /// them too, or is nobody: whoever takes them in can tell every list whole. So a user's groups
    /// come without their members, who may be many, and a group's members without their groups.
    #[must_use]
    pub fn records(&self, number: u32) -> Vec<u8> {
        let Some(answer) = self.entries.get(&number) else { return Vec::new() };
        match answer.kind {
            Kind::User => {
                let mut records = answer.records();
                let groups = answer.groups.iter().flatten();
                for group in groups.filter_map(|group| self.entries.get(group)) {
                    group.write_without_members(&mut records);
                }
                records
            }
            Kind::Group => {
                let all = self.within(number).into_iter();
                all.filter_map(|number| self.entries.get(&number))
                    .flat_map(|answer| answer.record.iter().copied())
                    .collect()
            }
        }
    }

    /// A group and its members, through nested groups. Each once, however they are nested.
    fn within(&self, group: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::from([group]);
        let mut next = vec![group];
        while let Some(answer) = next.pop().and_then(|number| self.entries.get(&number)) {
            let members = answer.members().into_iter().flat_map(Numbers::iter);
            for member in members.flat_map(|reference| self.referred(reference)) {
                if found.insert(member) {
                    next.push(member);
                }
            }
        }
        found
    }

    /// Groups with their members known that have what a reference leads to: those that list it, those
    /// that list these. Each once, however they are nested.
    #[must_use]
    pub fn lists_through(&self, reference: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut next = vec![reference];
        while let Some(reference) = next.pop() {
            if reference == NO_REFERENCE {
                continue;
            }
            let lists = |answer: &Answer| {
                answer.members().is_some_and(|all| all.iter().any(|one| one == reference))
            };
            for (&number, group) in self.entries.iter().filter(|(_, answer)| lists(answer)) {
                if found.insert(number) {
                    next.push(group.reference);
                }
            }
        }
        found
    }

    /// What is to be asked for in that way, to hear again what was said before that time.
    #[must_use]
    pub fn stale(&self, of: Of, since: u64, now: u64) -> Vec<u32> {
        let is_due = |answer: &Answer| answer.stale(since, now) == Some(of);
        let due = self.entries.iter().filter(|(_, answer)| is_due(answer));
        let mut numbers: Vec<u32> = due.map(|(&number, _)| number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Everything was true long ago.
    pub fn expire(&mut self) {
        self.entries.values_mut().for_each(|answer| answer.seen = Seen::default());
    }
}

/// Whether a question is for a list beside the entry.
fn wants_list(what: &LookUp) -> bool {
    match what {
        LookUp::UserByName(_) | LookUp::UserByUid(_) => false,
        LookUp::GroupByName(_) | LookUp::GroupByGid(_) | LookUp::GroupsOf(_) => true,
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
    use std::cell::Cell;

    fn user(number: u32, name: &str, uid: u32, reference: u32) -> Answer {
        let mut record = Vec::new();
        let [name, none] = [name.as_bytes(), b""];
        let user = exchange::User {
            number,
            reference,
            by_name: NO_REFERENCE,
            uid,
            gid: 100,
            name,
            gecos: none,
            dir: none,
            shell: none,
        };
        exchange::write_user(&mut record, &user).expect("fits");
        Answer::read(KEY, SEEN, &record).expect("a user")
    }

    fn group(number: u32, name: &str, reference: u32, members: &[u32]) -> Answer {
        group_of(number, name, reference, Some(members))
    }

    fn unasked(number: u32, name: &str, reference: u32) -> Answer {
        group_of(number, name, reference, None)
    }

    fn group_of(number: u32, name: &str, reference: u32, members: Option<&[u32]>) -> Answer {
        let mut record = Vec::new();
        let name = name.as_bytes();
        write_group(&mut record, number, reference, 500, name, members).expect("fits");
        Answer::read(KEY, SEEN, &record).expect("a group")
    }

    /// Whose records they are, one after the other.
    fn numbers(records: &[u8]) -> Vec<u32> {
        let number = |record| match record {
            Record::User(user) => user.number,
            Record::Group(group) => group.number,
            Record::Gone { number } | Record::GroupsOf { user: number, .. } => number,
        };
        Records::bare(records).map(|record| number(record.expect("a record"))).collect()
    }

    /// Every entry that a list in there names is in there, a group with its own list.
    #[track_caller]
    fn assert_closed(records: &[u8]) {
        let all = || Records::bare(records).map(|record| record.expect("a record"));
        let (mut told, mut known, mut named, mut groups) = (vec![], vec![], vec![], vec![]);
        for record in all() {
            match record {
                Record::User(user) => told.push(user.reference),
                Record::Group(Group { reference, number, members, .. }) => {
                    known.push(number);
                    let Some(members) = members else { continue };
                    told.push(reference);
                    named.extend(members.iter());
                }
                Record::GroupsOf { groups: all, .. } => groups.extend(all.iter()),
                Record::Gone { .. } => {}
            }
        }
        assert!(named.iter().all(|reference| told.contains(reference)), "{named:?} {told:?}");
        assert!(groups.iter().all(|group| known.contains(group)), "{groups:?} {known:?}");
    }

    const KEY: Key = Key { part: 0, id: [0; 16] };
    const SEEN: Seen = Seen { entry: 100, list: 100 };

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
    fn of_two_ages_the_older_decides_what_is_asked_for() {
        let now = 1000;
        for (entry, list, wanted) in [
            (900, 900, None),
            (100, 900, Some(Of::Groups)),
            (900, 100, Some(Of::GroupsWithMembers)),
            (100, 100, Some(Of::GroupsWithMembers)),
        ] {
            let staff = Answer { seen: Seen { entry, list }, ..group(1, "staff", 20, &[10]) };
            assert_eq!(staff.stale(500, now), wanted, "{entry} {list}");
        }
        let alice = Answer { seen: Seen { entry: 900, list: 0 }, ..user(2, "alice", 1000, 10) };
        assert_eq!(alice.stale(500, now), None, "nobody asked for her groups");
        let alice = Answer { groups: Some([1].into()), ..alice };
        assert_eq!(alice.stale(500, now), Some(Of::UsersWithGroups));
    }

    #[test]
    fn what_was_said_in_the_future_of_a_clock_that_was_set_back_is_old() {
        let alice = Answer { seen: Seen { entry: 5000, list: 0 }, ..user(1, "alice", 1000, 10) };
        assert_eq!(alice.stale(500, 1000), Some(Of::Users));
        let mut asked = Asked::default();
        asked.put(1, alice);
        assert_eq!(asked.fresh(&by_name("alice"), 500, 1000), None);
        assert_eq!(asked.fresh(&by_name("alice"), 4500, 5000), Some(1));
    }

    #[test]
    fn groups_of_one_user_are_found_with_each_other_until_their_members_are_known() {
        let mut asked = Asked::default();
        asked.put(1, user(1, "alice", 1000, 10));
        asked.put(2, unasked(2, "a", 2));
        asked.put(3, unasked(3, "b", 3));
        asked.put(4, group(4, "c", 22, &[10]));
        asked.put(5, unasked(5, "others", 5));
        asked.groups_of(1, &[2, 3, 4], 100);
        assert_eq!(asked.found_with(2), BTreeSet::from([2, 3]));
        assert_eq!(asked.found_with(5), BTreeSet::from([5]));
        asked.groups_of(1, &[2, 4, 5], 100);
        assert_eq!(asked.found_with(3), BTreeSet::from([3]));
        assert_eq!(asked.found_with(5), BTreeSet::from([2, 5]));
        asked.remove(1);
        assert_eq!(asked.found_with(5), BTreeSet::from([5]));
    }

    #[test]
    fn nested_groups_in_a_circle_end() {
        let mut asked = Asked::default();
        asked.put(1, user(1, "alice", 1000, 10));
        asked.put(2, group(2, "a", 20, &[21]));
        asked.put(3, group(3, "b", 21, &[20, 10, 99]));
        assert_eq!(numbers(&asked.records(2)), [1, 2, 3]);
        assert_eq!(asked.whole(&LookUp::GroupByName(b"a".to_vec())), Some(2));
    }

    #[test]
    fn what_a_list_of_an_answer_names_is_in_the_answer() {
        let mut asked = Asked::default();
        asked.put(1, user(1, "alice", 1000, 10));
        asked.put(2, user(2, "bob", 1001, 11));
        asked.put(3, group(3, "staff", 20, &[10, 11]));
        asked.put(4, group(4, "all", 21, &[20]));
        assert!(asked.groups_of(1, &[3, 4], 100));
        assert!(!asked.groups_of(1, &[3, 4], 100));
        for number in 1..=4 {
            assert_closed(&asked.records(number));
        }
        assert_eq!(numbers(&asked.records(1)), [1, 1, 3, 4]);
        assert_eq!(numbers(&asked.records(4)), [1, 2, 3, 4]);
    }

    #[test]
    fn a_group_is_not_known_whole_as_long_as_one_in_it_is_not() {
        let mut asked = Asked::default();
        asked.put(1, group(1, "outer", 20, &[21, 99]));
        asked.put(2, group(2, "middle", 21, &[22]));
        asked.put(3, unasked(3, "inner", 22));
        let whole = |asked: &Asked, name: &str| asked.whole(&LookUp::GroupByName(name.into()));
        for name in ["outer", "middle", "inner"] {
            assert_eq!(whole(&asked, name), None, "{name}");
        }
        assert_eq!(asked.refer(&[20, 21, 22, 99]), [false; 4]);
        asked.put(3, group(3, "inner", 22, &[]));
        for (number, name) in [(1, "outer"), (2, "middle"), (3, "inner")] {
            assert_eq!(whole(&asked, name), Some(number));
        }
        assert_eq!(asked.refer(&[20, 21, 22, 99]), [true, true, true, false]);
    }

    #[test]
    fn an_entry_that_is_a_user_and_a_group_is_both_to_a_member_list() {
        let mut asked = Asked::default();
        asked.put(1, user(1, "alice", 1000, 10));
        asked.put(2, unasked(2, "alice", 10));
        asked.put(3, group(3, "staff", 20, &[10]));
        assert_eq!(asked.refer(&[10]), [false]);
        assert_eq!(asked.whole(&LookUp::GroupByName(b"staff".to_vec())), None);
        asked.put(2, group(2, "alice", 10, &[10]));
        assert_eq!(numbers(&asked.records(3)), [1, 2, 3]);
        asked.remove(2);
        assert_eq!(asked.refer(&[10]), [true], "she is still a user");
    }

    thread_local! {
        /// References that this thread looked up.
        pub static LOOKED_UP: Cell<usize> = const { Cell::new(0) };
    }

    /// Each group is in the next one. A walk below each of them would look up 200 million references.
    #[test]
    fn asked_nested_groups_are_each_walked_once() {
        const DEEP: u32 = 20_000;
        let mut asked = Asked::default();
        for number in 1..DEEP {
            asked.put(number, group(number, &format!("g{number}"), number, &[number + 1]));
        }
        asked.put(DEEP, group(DEEP, "last", DEEP, &[1]));
        let all: Vec<u32> = (1..=DEEP).collect();
        LOOKED_UP.set(0);
        assert!(asked.refer(&all).into_iter().all(|is_known| is_known));
        // Each reference is looked up as asked for, as a member, and for the reply.
        assert_eq!(LOOKED_UP.take(), 3 * all.len());
        asked.put(DEEP, unasked(DEEP, "last", DEEP));
        assert!(!asked.refer(&all).into_iter().any(|is_known| is_known));
        assert_eq!(LOOKED_UP.take(), 3 * all.len() - 1, "the last group has no members now");
    }
}
