//! Who is who, for log-ins: users by name, and who is in the groups that rules name.
//!
//! Follows the engine as a publisher does, by what changed since the last question, and keeps numbers
//! only: records and accounts are read where they lie. What cannot be told for certain, such as which of
//! two entries of one name somebody is, is not told.

use super::engine::{Engine, NoView};
use super::image::ImageError;
use roster_bus::exchange::{NO_REFERENCE, Record, Records};
use roster_config::Mode;
use roster_provider::access::Membership;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module.
pub struct People {
    engine: Arc<Engine>,
    mode: Mode,
    /// Whether rules name groups; else none is looked at.
    has_groups: bool,
    known: Mutex<Known>,
}

/// A user, as the back-end has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The entry.
    pub number: u32,
    gid: u32,
    references: [u32; 2],
    /// Numbers of the groups, where they were asked for.
    groups: Option<Vec<u32>>,
}

/// Why somebody's entry cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum Untold {
    /// Nothing is known of the domain, or what is known cannot be read.
    #[error(transparent)]
    NoView(#[from] NoView),
    /// What changed cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// There is nobody of that name and uid.
    #[error("the domain has no such user")]
    Nobody,
    /// There are several.
    #[error("the domain has several users of that name and uid")]
    Several,
    /// The process is about to end.
    #[error("the back-end ends")]
    Ending,
}

#[derive(Default)]
struct Known {
    sequence: u64,
    hasher: RandomState,
    /// Hashes of names and the numbers of who has them.
    names: BTreeSet<(u64, u32)>,
    users: HashMap<u32, u64>,
    groups: HashMap<u32, Group>,
    by_reference: HashMap<u32, u32>,
    /// By the names that were asked for.
    members: BTreeMap<String, Option<Arc<Members>>>,
    /// The state of the rejected entries that these go with.
    rejections: u64,
    /// Hashes of the names of users who were there and are gone.
    gone: HashSet<u64>,
}

struct Group {
    name: Box<[u8]>,
    gid: u32,
    reference: u32,
}

/// Everybody in a group, directly or through others.
#[derive(Default)]
struct Members {
    references: HashSet<u32>,
    /// Of the group and of those in it: who has one of them as the primary group is in it.
    gids: HashSet<u32>,
    /// Of them too.
    numbers: HashSet<u32>,
    /// Whether that is all of them.
    is_whole: bool,
}

impl People {
    /// Nobody is known yet.
    #[must_use]
    pub fn new(engine: Arc<Engine>, mode: Mode, has_groups: bool) -> Self {
        Self { engine, mode, has_groups, known: Mutex::default() }
    }

    /// The user of that name and uid.
    pub fn find(&self, name: &[u8], uid: u32) -> Result<Person, Untold> {
        let numbers: Vec<u32> = {
            let known = self.up_to_date()?;
            let hash = known.hasher.hash_one(name);
            known.names.range((hash, 0)..=(hash, u32::MAX)).map(|(_, number)| *number).collect()
        };
        let mut found = None;
        for number in numbers {
            let Some(records) = self.engine.record(number)? else { continue };
            if let Some(person) = read(&records, name, uid)
                && found.replace(person).is_some()
            {
                return Err(Untold::Several);
            }
        }
        found.ok_or(Untold::Nobody)
    }

    /// Whether there is exactly one user of that name and uid, in what is known now. `None` while nothing is:
    /// on demand nothing is known of a name that the directory was not asked for.
    #[must_use]
    pub fn has(&self, name: &[u8], uid: u32) -> Option<bool> {
        match self.find(name, uid) {
            Ok(_) => Some(true),
            Err(Untold::Nobody) if self.mode == Mode::OnDemand => {
                self.up_to_date().ok().filter(|known| known.has_heard_of(name)).map(|_| false)
            }
            Err(Untold::Nobody | Untold::Several) => Some(false),
            Err(Untold::NoView(_) | Untold::Image(_) | Untold::Ending) => None,
        }
    }

    /// What is known of a user's account, see `roster_provider::account`.
    pub fn account(&self, person: &Person) -> Result<Option<Vec<u8>>, Untold> {
        Ok(self.engine.account(person.number)?)
    }

    /// Whether somebody is in a group.
    #[must_use]
    pub fn membership(&self, person: &Person, group: &str) -> Membership {
        let Ok(members) = self.members(group) else { return Membership::Unknown };
        let Some(members) = members else { return Membership::NoSuchGroup };
        let listed = match self.mode {
            Mode::Replicate => {
                let mut references = person.references.iter().filter(|one| **one != NO_REFERENCE);
                references.any(|reference| members.references.contains(reference))
            }
            Mode::OnDemand => {
                let mut groups = person.groups.iter().flatten();
                groups.any(|number| members.numbers.contains(number))
            }
        };
        let is_known = match self.mode {
            Mode::Replicate => members.is_whole,
            Mode::OnDemand => person.groups.is_some(),
        };
        if listed || members.gids.contains(&person.gid) {
            Membership::Member
        } else if is_known {
            Membership::NotMember
        } else {
            Membership::Unknown
        }
    }

    /// Everybody in the groups of that name; none when there is no such group.
    fn members(&self, group: &str) -> Result<Option<Arc<Members>>, Untold> {
        let mut known = self.up_to_date()?;
        if let Some(members) = known.members.get(group) {
            return Ok(members.clone());
        }
        let members = known.expand(&self.engine, self.mode, group.as_bytes())?.map(Arc::new);
        known.members.insert(group.to_owned(), members.clone());
        Ok(members)
    }

    /// Takes in what changed, and who is in these groups. That may be a whole domain.
    pub fn prepare(&self, groups: &[String]) {
        for group in groups {
            // What cannot be told is found out by who asks.
            let _ = self.members(group);
        }
    }

    /// Whether questions about users and these groups are answered in a moment: nothing has changed since they
    /// were [prepared](Self::prepare).
    #[must_use]
    pub fn is_at_hand(&self, groups: &[String]) -> bool {
        // Who has it is taking in what changed.
        let Ok(known) = self.known.try_lock() else { return false };
        self.engine.is_at(known.sequence)
            && self.engine.rejection_changes() == known.rejections
            && groups.iter().all(|group| known.members.contains_key(group))
    }

    /// What is known, with everything that changed since the last question.
    fn up_to_date(&self) -> Result<MutexGuard<'_, Known>, Untold> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let rejections = self.engine.rejection_changes();
        if rejections != known.rejections {
            known.members.clear();
            known.rejections = rejections;
        }
        let Some(view) = self.engine.changes(known.sequence)? else { return Ok(known) };
        if view.header.since == 0 {
            *known = Known { rejections, ..Known::default() };
        }
        let mut of_groups = false;
        view.records(|number, records| {
            of_groups |= known.take(number, records, self.has_groups);
            Ok(())
        })?;
        if of_groups {
            known.members.clear();
        }
        known.sequence = view.header.sequence;
        Ok(known)
    }
}

impl Known {
    /// Whether a user of that name is or was there.
    fn has_heard_of(&self, name: &[u8]) -> bool {
        let hash = self.hasher.hash_one(name);
        let mut named = self.names.range((hash, 0)..=(hash, u32::MAX));
        named.next().is_some() || self.gone.contains(&hash)
    }

    /// Takes in what an entry is now; whether it was or is a group.
    fn take(&mut self, number: u32, records: Option<&[u8]>, with_groups: bool) -> bool {
        if let Some(hash) = self.users.remove(&number) {
            self.names.remove(&(hash, number));
            self.gone.insert(hash);
        }
        let mut of_groups = false;
        if let Some(group) = self.groups.remove(&number) {
            of_groups = true;
            if self.by_reference.get(&group.reference) == Some(&number) {
                self.by_reference.remove(&group.reference);
            }
        }
        match records.and_then(|records| Records::bare(records).next()) {
            Some(Ok(Record::User(user))) => {
                let hash = self.hasher.hash_one(user.name);
                self.gone.remove(&hash);
                self.users.insert(number, hash);
                self.names.insert((hash, number));
            }
            Some(Ok(Record::Group(group))) if with_groups => {
                of_groups = true;
                if group.reference != NO_REFERENCE {
                    self.by_reference.insert(group.reference, number);
                }
                let (name, gid, reference) = (group.name.into(), group.gid, group.reference);
                self.groups.insert(number, Group { name, gid, reference });
            }
            _ => {}
        }
        of_groups
    }

    /// Everybody in the groups of that name; none when there is no such group.
    fn expand(&self, engine: &Engine, mode: Mode, name: &[u8]) -> Result<Option<Members>, NoView> {
        let named = self.groups.iter().filter(|(_, group)| *group.name == *name);
        let mut next: Vec<u32> = named.map(|(number, _)| *number).collect();
        if next.is_empty() {
            return Ok(None);
        }
        // What is in a group that cannot be read is not known, nor in those around it.
        let unreadable = engine.unreadable_groups();
        let is_whole = next.len() == 1 && (unreadable.is_some() || mode == Mode::OnDemand);
        let unreadable = unreadable.unwrap_or_default();
        let mut members = Members { is_whole, ..Members::default() };
        while let Some(number) = next.pop() {
            let Some(group) = self.groups.get(&number) else { continue };
            if !members.numbers.insert(number) {
                continue;
            }
            members.gids.insert(group.gid);
            // On demand a user's groups are known with those around them, and no group's members need be.
            if mode == Mode::OnDemand {
                continue;
            }
            let records = engine.record(number)?.unwrap_or_default();
            let Some(Ok(Record::Group(record))) = Records::bare(&records).next() else {
                members.is_whole = false;
                continue;
            };
            match record.members {
                Some(list) => {
                    for reference in list.iter() {
                        members.references.insert(reference);
                        members.is_whole &= !unreadable.contains(&reference);
                        next.extend(self.by_reference.get(&reference));
                    }
                }
                None => members.is_whole = false,
            }
        }
        Ok(Some(members))
    }
}

/// The user of some records, if it has that name and uid.
fn read(records: &[u8], name: &[u8], uid: u32) -> Option<Person> {
    let mut records = Records::bare(records);
    let user = match records.next()?.ok()? {
        Record::User(user) if user.name == name && user.uid == uid => user,
        _ => return None,
    };
    let groups = match records.next() {
        Some(Ok(Record::GroupsOf { groups, .. })) => Some(groups.iter().collect()),
        _ => None,
    };
    let references = [user.reference, user.by_name];
    Some(Person { number: user.number, gid: user.gid, references, groups })
}
