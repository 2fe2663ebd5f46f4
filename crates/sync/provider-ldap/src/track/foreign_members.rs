// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts the members of other domains in the groups of an Active Directory domain. A list names such a member by an
//! entry below `CN=ForeignSecurityPrincipals`, which has its SID and nothing else. No user of the domain has that DN.

use crate::dn;
use roster_provider::{EntryId, Member, SearchId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The container of entries for accounts of other domains, in canonical form.
const CONTAINER: &[u8] = b"cn=foreignsecurityprincipals,";

/// The counts of all groups, and their sum for the status.
#[derive(Default)]
pub(crate) struct ForeignMembers {
    groups: HashMap<(SearchId, EntryId), u64>,
    sum: Arc<AtomicU64>,
}

impl ForeignMembers {
    pub fn new(sum: Arc<AtomicU64>) -> Self {
        sum.store(0, Ordering::Relaxed);
        Self { groups: HashMap::new(), sum }
    }

    /// Counts the members of a group in its present state.
    pub fn note_group(&mut self, part: SearchId, id: EntryId, members: Option<&[Member<'_>]>) {
        let foreign = members.unwrap_or_default().iter().filter(|member| is_foreign(member));
        self.set(part, id, foreign.count() as u64);
    }

    /// Removes a group.
    pub fn remove(&mut self, part: SearchId, id: EntryId) {
        self.set(part, id, 0);
    }

    /// Removes the groups of a search before all its entries are listed again.
    pub fn remove_all(&mut self, part: SearchId) {
        let groups: Vec<EntryId> =
            self.groups.keys().filter(|(of, _)| *of == part).map(|(_, id)| *id).collect();
        groups.into_iter().for_each(|id| self.remove(part, id));
    }

    fn set(&mut self, part: SearchId, id: EntryId, count: u64) {
        let before = match count {
            0 => self.groups.remove(&(part, id)),
            _ => self.groups.insert((part, id), count),
        };
        let sum = self.sum.load(Ordering::Relaxed);
        self.sum.store(sum + count - before.unwrap_or_default(), Ordering::Relaxed);
    }
}

fn is_foreign(member: &Member<'_>) -> bool {
    let Member::Dn(name) = member else { return false };
    dn::parent(name).is_some_and(|container| container.starts_with(CONTAINER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    #[test]
    fn foreign_members_are_summed_over_groups() {
        let sum = Arc::new(AtomicU64::new(7));
        let mut foreign = ForeignMembers::new(Arc::clone(&sum));
        let dns = |names: &[&'static str]| -> Vec<Member<'static>> {
            let dn = |name: &&'static str| Member::Dn(Cow::Borrowed(name.as_bytes()));
            names.iter().map(dn).collect()
        };
        let own = "cn=alice,cn=users,dc=x";
        let other = "cn=s-1-5-21-1-2-3-500,cn=foreignsecurityprincipals,dc=x";
        let authenticated = "cn=s-1-5-11,cn=foreignsecurityprincipals,dc=x";
        let (part, [first, second]) = (SearchId(0), [1, 2].map(|number| EntryId([number; 16])));
        let mut count = |id, names: &[&'static str]| {
            foreign.note_group(part, id, Some(&dns(names)));
            sum.load(Ordering::Relaxed)
        };
        assert_eq!(count(first, &[own, other]), 1);
        assert_eq!(count(second, &[authenticated, own, other]), 3);
        assert_eq!(count(second, &[other]), 2);
        assert_eq!(count(first, &["cn=foreignsecurityprincipals,dc=x"]), 1);
        foreign.remove(part, second);
        foreign.remove(part, second);
        assert_eq!(sum.load(Ordering::Relaxed), 0);
    }
}
