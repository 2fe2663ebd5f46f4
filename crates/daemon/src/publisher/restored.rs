//! What a domain had in the snapshot that was in place when this process began, as its entries: for a
//! domain of which nothing can be taken in, since it is beyond what one may cost. The others go on then,
//! with one exception. Names and ids that a mirrored domain has in entries which are not served are in no
//! snapshot, and are nobody's in domains behind it; so of these only those are served who were before. One
//! that is asked on demand is asked about them as always.

use super::kept::{Unusable, group_at, user_at};
use super::model::{Domain, Entry, Group};
use roster_bus::exchange::NO_REFERENCE;
use roster_snapshot::{Damage, Snapshot};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// A snapshot, and where in it the domain's entries lie.
pub struct Restoring {
    /// Its bytes.
    pub bytes: Arc<Vec<u8>>,
    /// Positions of its users.
    pub users: Range<u32>,
    /// Positions of its groups.
    pub groups: Range<u32>,
    /// Whether it is mirrored.
    pub complete: bool,
}

/// What a domain had.
pub struct Restored {
    /// Its entries, numbered anew.
    pub domain: Domain,
    /// Who was served of the domains behind it, where it is mirrored.
    pub behind: Option<Behind>,
}

/// Who was served behind a mirrored domain: so it has none of these names and ids.
#[derive(Default)]
pub struct Behind {
    /// By name, uid and primary gid.
    users: HashMap<Box<[u8]>, (u32, u32)>,
    /// By name, gid.
    groups: HashMap<Box<[u8]>, u32>,
    /// Gids of which it is known whether they are the domain's: of these users and groups, and of its own groups.
    gids: HashSet<u32>,
}

impl Restoring {
    /// Takes time in proportion to the domain's memberships and all entries behind it.
    pub fn make(&self) -> Result<Restored, Unusable> {
        let snapshot = Snapshot::open(&self.bytes)?;
        let mut numbers = HashMap::new();
        let mut domain = Domain::new(self.complete);
        // Also if nobody was served of it.
        domain.present = true;
        for (number, position) in (0..).zip(self.users.clone()) {
            let found = snapshot.user(position)?.ok_or(Damage)?;
            if found.ask_first() || self.complete && found.groups_unknown() {
                return Err(Unusable::LeftOpen);
            }
            numbers.insert(found.record().name, number);
            domain.restore_user(number, user_at(number, number, &found));
        }
        let first = self.users.end - self.users.start;
        for (number, position) in (first..).zip(self.groups.clone()) {
            let found = snapshot.group(position)?.ok_or(Damage)?;
            if found.ask_first() || self.complete && found.members_unknown() {
                return Err(Unusable::LeftOpen);
            }
            let mut group = Group { reference: number, ..group_at(&found) };
            if !found.members_unknown() {
                found.members.verify()?;
                let names = found.members.iter().collect::<Result<Vec<_>, _>>()?;
                group.members =
                    Some(names.iter().filter_map(|name| numbers.get(name).copied()).collect());
            }
            domain.restore_group(number, group);
        }
        if !self.complete {
            return Ok(Restored { domain, behind: None });
        }
        let mut behind = self.behind(&snapshot)?;
        behind.gids.extend(domain.groups().map(|(_, group)| group.gid));
        Ok(Restored { domain, behind: Some(behind) })
    }

    fn behind(&self, snapshot: &Snapshot<'_>) -> Result<Behind, Damage> {
        let mut behind = Behind::default();
        for position in self.users.end..snapshot.shape().users {
            let user = snapshot.user(position)?.ok_or(Damage)?;
            behind.add(Entry::User(&user_at(position, NO_REFERENCE, &user)));
        }
        for position in self.groups.end..snapshot.shape().groups {
            let group = snapshot.group(position)?.ok_or(Damage)?;
            behind.add(Entry::Group(&group_at(&group)));
        }
        Ok(behind)
    }
}

impl Behind {
    fn add(&mut self, entry: Entry<'_>) {
        match entry {
            Entry::User(user) => {
                self.users.insert(user.name().into(), (user.uid, user.gid));
                self.gids.insert(user.gid);
            }
            Entry::Group(group) => {
                self.groups.insert(group.name.clone(), group.gid);
                self.gids.insert(group.gid);
            }
        }
    }

    /// The gid with which an entry behind may be served: a user keeps the primary gid that it had instead of
    /// one that may be the domain's. None for who is new.
    #[must_use]
    pub fn gid_of(&self, entry: Entry<'_>) -> Option<u32> {
        match entry {
            Entry::User(user) => {
                let (uid, gid) = *self.users.get(user.name())?;
                let gid = if self.gids.contains(&user.gid) { user.gid } else { gid };
                (uid == user.uid).then_some(gid)
            }
            Entry::Group(group) => {
                (self.groups.get(&group.name) == Some(&group.gid)).then_some(group.gid)
            }
        }
    }
}
