//! What a domain had in the snapshot that was in place when this process began, as its entries: for a
//! domain of which nothing can be taken in, since it is beyond what one may cost. The others go on then,
//! with one exception. Names and ids that the domain has in entries which are not served are in no snapshot,
//! and are nobody's in domains behind it; so of these only those are served who were before.

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
    /// Who was served of the domains behind it.
    behind: HashSet<Identity>,
}

/// All by which an entry can lose to one of another domain: whether a user, name, id, primary gid.
type Identity = (bool, Box<[u8]>, u32, u32);

fn identity(entry: Entry<'_>) -> Identity {
    match entry {
        Entry::User(user) => (true, user.name().into(), user.uid, user.gid),
        Entry::Group(group) => (false, group.name.clone(), group.gid, group.gid),
    }
}

impl Restoring {
    /// Takes time in proportion to the domain's memberships and all entries behind it.
    pub fn make(&self) -> Result<Restored, Unusable> {
        let snapshot = Snapshot::open(&self.bytes)?;
        let mut numbers = HashMap::new();
        let mut domain = Domain::new(self.complete);
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
        Ok(Restored { domain, behind: self.behind(&snapshot)? })
    }

    fn behind(&self, snapshot: &Snapshot<'_>) -> Result<HashSet<Identity>, Damage> {
        let mut behind = HashSet::new();
        for position in self.users.end..snapshot.shape().users {
            let user = snapshot.user(position)?.ok_or(Damage)?;
            behind.insert(identity(Entry::User(&user_at(position, NO_REFERENCE, &user))));
        }
        for position in self.groups.end..snapshot.shape().groups {
            let group = snapshot.group(position)?.ok_or(Damage)?;
            behind.insert(identity(Entry::Group(&group_at(&group))));
        }
        Ok(behind)
    }
}

impl Restored {
    /// What of a domain behind this one may be served.
    #[must_use]
    pub fn let_by(&self, behind: &Domain) -> Domain {
        behind.only(|entry| self.behind.contains(&identity(entry)))
    }
}
