// SPDX-License-Identifier: MIT OR Apache-2.0
//! Owners of names, with the priority of domains for names, and with domains that ignore case.
//!
//! Entries have the same name if the names are equal, or if they differ by case and one of the domains ignores case. The
//! entry of the domain with the highest priority owns the name. Other domains' entries have it with their domain:
//! `alice@lab`.

use roster_admission::{DomainNames, Owner};
use roster_names::{fold, qualified_forms};
use std::borrow::Borrow;
use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// An entry: domain by position, and number. The smaller pair has the higher priority.
pub type EntryOwner = (usize, u32);

/// The domains of a host: their names, and their priority for names.
#[derive(Clone, Debug, Default)]
pub struct NameScheme {
    domains: Vec<DomainNames>,
    /// Priority by position of the domain, from 0.
    ranks: Vec<usize>,
    /// Position by priority.
    order: Vec<usize>,
    /// Whether any domain ignores case.
    any_case: bool,
}

impl NameScheme {
    /// Makes the scheme. Names of the default domain have the highest priority.
    #[must_use]
    pub fn new(domains: Vec<DomainNames>, default_domain: Option<&str>) -> Self {
        let first = domains.iter().position(|names| Some(names.domain()) == default_domain);
        let others = (0..domains.len()).filter(|position| Some(*position) != first);
        let order: Vec<usize> = first.into_iter().chain(others).collect();
        let mut ranks = vec![0; order.len()];
        order.iter().enumerate().for_each(|(rank, position)| ranks[*position] = rank);
        let any_case = domains.iter().any(DomainNames::ignores_case);
        Self { domains, ranks, order, any_case }
    }

    /// Returns the positions of the domains, highest priority for names first.
    pub fn by_priority(&self) -> impl Iterator<Item = usize> {
        self.order.iter().copied()
    }

    /// Returns the names of the domain at a position.
    #[must_use]
    pub fn names(&self, position: usize) -> &DomainNames {
        &self.domains[position]
    }

    /// Returns whether a domain has a higher priority for names than another one.
    #[must_use]
    pub fn precedes_by_name(&self, one: usize, other: usize) -> bool {
        self.ranks[one] < self.ranks[other]
    }

    /// Returns whether a domain has a higher priority than another one, for names or for ids.
    #[must_use]
    pub fn precedes(&self, one: usize, other: usize) -> bool {
        one < other || self.precedes_by_name(one, other)
    }

    /// Returns the readings of a name in the order in which they count. `None` is a name without a domain. A name with
    /// a domain first means an entry that has exactly this name.
    #[must_use]
    pub fn readings<'n>(&self, name: &'n [u8]) -> Vec<(Option<usize>, &'n [u8])> {
        let called = |domain: &[u8]| self.domains.iter().position(|names| names.is_called(domain));
        let forms = qualified_forms(name).into_iter().flatten();
        let with_domain: Vec<_> =
            forms.filter_map(|form| Some((called(form.domain)?, form.name))).collect();
        if with_domain.is_empty() {
            return vec![(None, name)];
        }
        let exactly = with_domain.iter().map(|(domain, _)| (Some(*domain), name));
        let alone = with_domain.iter().map(|(domain, alone)| (Some(*domain), *alone));
        exactly.chain(alone).collect()
    }

    /// Returns the key of an entry in the tables: the name that it has, unless an entry of another domain has it.
    fn ranked(&self, (position, number): EntryOwner) -> EntryOwner {
        (self.ranks[position], number)
    }

    fn position(&self, (rank, number): EntryOwner) -> EntryOwner {
        (self.order[rank], number)
    }
}

/// The right of an entry to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameClaim {
    /// The entry owns it.
    Owned,
    /// An entry of another domain owns it, so this one is served with its domain.
    WithDomain,
    /// An entry with precedence has it.
    Taken(Owner),
}

/// Owners of names of one kind. The tables have domains by their rank.
#[derive(Default)]
pub struct NameOwners {
    /// Entries of domains in which case counts.
    exact: OwnerTable<Box<[u8]>>,
    /// All entries by their folded names, if any domain ignores case.
    folded: OwnerTable<Box<[u8]>>,
}

impl NameOwners {
    pub fn with_capacity(capacity: usize, scheme: &NameScheme) -> Self {
        match scheme.any_case {
            true => {
                Self { exact: OwnerTable::default(), folded: OwnerTable::with_capacity(capacity) }
            }
            false => {
                Self { exact: OwnerTable::with_capacity(capacity), folded: OwnerTable::default() }
            }
        }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.folded.is_empty()
    }

    /// Adds an entry with its preferred name. Returns whether it is new.
    pub fn add(&mut self, scheme: &NameScheme, me: EntryOwner, name: &[u8]) -> bool {
        let is_new = scheme.any_case && self.folded.add((&*fold(name)).into(), scheme.ranked(me));
        match scheme.names(me.0).ignores_case() {
            true => is_new,
            false => self.exact.add(name.into(), scheme.ranked(me)),
        }
    }

    /// Removes an entry. Returns whether it was there.
    pub fn remove(&mut self, scheme: &NameScheme, me: EntryOwner, name: &[u8]) -> bool {
        let was_there = scheme.any_case && self.folded.remove(&*fold(name), scheme.ranked(me));
        match scheme.names(me.0).ignores_case() {
            true => was_there,
            false => self.exact.remove(name, scheme.ranked(me)),
        }
    }

    /// Returns the first entry of a domain that has a name. `any_case` compares as a domain that ignores case.
    fn first_of_domain(
        &self,
        scheme: &NameScheme,
        position: usize,
        name: &[u8],
        any_case: bool,
    ) -> Option<EntryOwner> {
        let rank = scheme.ranks[position];
        let first = match any_case || scheme.names(position).ignores_case() {
            true => self.folded.first_from(&*fold(name), (rank, 0)),
            false => self.exact.first_from(name, (rank, 0)),
        };
        first.filter(|(owner, _)| *owner == rank).map(|owner| scheme.position(owner))
    }

    /// Returns the right of an entry to its preferred name.
    pub fn claim(&self, scheme: &NameScheme, me: EntryOwner, name: &[u8]) -> NameClaim {
        let mine = scheme.ranked(me);
        let first = match scheme.any_case {
            true => self.folded.first(&*fold(name)),
            false => self.exact.first(name),
        };
        if first.is_none_or(|first| first == mine) {
            return NameClaim::Owned;
        }
        let any_case = scheme.names(me.0).ignores_case();
        let of_domain = |position| self.first_of_domain(scheme, position, name, any_case);
        if of_domain(me.0).is_some_and(|(_, number)| number < me.1) {
            return NameClaim::Taken(Owner::SameDomain);
        }
        let mut before = scheme.by_priority().take(mine.0);
        match before.any(|position| of_domain(position).is_some()) {
            true => NameClaim::WithDomain,
            false => NameClaim::Owned,
        }
    }

    /// Returns the entry of a domain with that name, without or with the domain: of several, the first.
    #[must_use]
    pub fn in_domain(
        &self,
        scheme: &NameScheme,
        position: usize,
        name: &[u8],
    ) -> Option<EntryOwner> {
        self.first_of_domain(scheme, position, &scheme.names(position).requested(name), false)
    }

    /// Returns the entry that owns a name without a domain.
    #[must_use]
    pub fn owner(&self, scheme: &NameScheme, name: &[u8]) -> Option<EntryOwner> {
        let unqualified = |position: &usize| !scheme.names(*position).is_qualified();
        let mut domains = scheme.by_priority().filter(unqualified);
        domains.find_map(|position| self.first_of_domain(scheme, position, name, false))
    }
}

/// The owners of each name, or of each id. Nearly all keys have one owner.
#[derive(Default)]
pub struct OwnerTable<K> {
    first: HashMap<K, EntryOwner>,
    /// Owners behind the first one.
    others: HashMap<K, BTreeSet<EntryOwner>>,
}

impl<K: Hash + Eq + Clone> OwnerTable<K> {
    pub fn with_capacity(capacity: usize) -> Self {
        Self { first: HashMap::with_capacity(capacity), others: HashMap::new() }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.others.is_empty()
    }

    pub fn first<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<EntryOwner>
    where
        K: Borrow<Q>,
    {
        self.first.get(key).copied()
    }

    /// Returns the first owner that is not before `from`.
    fn first_from<Q: Hash + Eq + ?Sized>(&self, key: &Q, from: EntryOwner) -> Option<EntryOwner>
    where
        K: Borrow<Q>,
    {
        let first = self.first(key)?;
        if first >= from {
            return Some(first);
        }
        self.others.get(key)?.range(from..).next().copied()
    }

    /// Adds an owner. Returns whether it is new.
    pub fn add(&mut self, key: K, me: EntryOwner) -> bool {
        match self.first.entry(key) {
            Place::Vacant(place) => {
                place.insert(me);
                true
            }
            Place::Occupied(place) if *place.get() == me => false,
            Place::Occupied(mut place) => {
                let others = self.others.entry(place.key().clone()).or_default();
                let first = place.get_mut();
                if me < *first {
                    others.insert(std::mem::replace(first, me))
                } else {
                    others.insert(me)
                }
            }
        }
    }

    /// Removes an owner. Returns whether there was one.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, me: EntryOwner) -> bool
    where
        K: Borrow<Q>,
    {
        let Some(first) = self.first.get_mut(key) else { return false };
        let Some(others) = self.others.get_mut(key) else {
            let is_me = *first == me;
            if is_me {
                self.first.remove(key);
            }
            return is_me;
        };
        let was_down = if *first == me {
            // Empty sets are removed.
            *first = others.pop_first().unwrap_or(me);
            true
        } else {
            others.remove(&me)
        };
        if others.is_empty() {
            self.others.remove(key);
        }
        was_down
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_config::{NameCase, NameConfig};

    fn scheme(domains: &[(&str, NameCase, bool)], default_domain: Option<&str>) -> NameScheme {
        let all = domains.iter().map(|(name, ..)| (*name, ""));
        let names = domains.iter().map(|&(name, case, qualified)| {
            let config = NameConfig { case, qualified, ..NameConfig::default() };
            DomainNames::new(name, &config, all.clone())
        });
        NameScheme::new(names.collect(), default_domain)
    }

    fn owners(scheme: &NameScheme, entries: &[(EntryOwner, &str)]) -> NameOwners {
        let mut owners = NameOwners::with_capacity(0, scheme);
        for (owner, name) in entries {
            let name = scheme.names(owner.0).preferred(name.as_bytes()).into_owned();
            assert!(owners.add(scheme, *owner, &name));
            assert!(!owners.add(scheme, *owner, &name), "it is known");
        }
        owners
    }

    #[test]
    fn name_claims_compare_as_either_domain() {
        use NameCase::{Preserving, Sensitive};
        let scheme = scheme(&[("corp", Sensitive, false), ("lab", Preserving, false)], None);
        let entries = [((0, 1), "Alice"), ((0, 2), "alice"), ((1, 1), "ALICE"), ((1, 2), "aLICE")];
        let mut names = owners(&scheme, &entries);
        let claim =
            |names: &NameOwners, owner, name: &str| names.claim(&scheme, owner, name.as_bytes());
        // Case counts within corp, and not between the domains.
        assert_eq!(claim(&names, (0, 1), "Alice"), NameClaim::Owned);
        assert_eq!(claim(&names, (0, 2), "alice"), NameClaim::Owned);
        assert_eq!(claim(&names, (1, 1), "ALICE"), NameClaim::WithDomain);
        assert_eq!(claim(&names, (1, 2), "aLICE"), NameClaim::Taken(Owner::SameDomain));
        assert_eq!(names.owner(&scheme, b"Alice"), Some((0, 1)));
        assert_eq!(names.owner(&scheme, b"ALICE"), Some((1, 1)), "it is served with its domain");
        assert_eq!(names.in_domain(&scheme, 1, b"alice"), Some((1, 1)));
        assert_eq!(names.in_domain(&scheme, 0, b"ALICE"), None);
        let zoe = ((1, 3), "zoe\u{308}");
        assert!(names.add(&scheme, zoe.0, &scheme.names(1).preferred(zoe.1.as_bytes())));
        assert_eq!(names.in_domain(&scheme, 1, "ZO\u{cb}".as_bytes()), Some(zoe.0));
        let decomposed = zoe.1.as_bytes();
        assert_eq!(names.in_domain(&scheme, 1, decomposed), None, "as readers of the snapshot");
        assert!(names.remove(&scheme, zoe.0, &scheme.names(1).preferred(decomposed)));
        for (owner, name) in entries.into_iter().take(2) {
            assert!(names.remove(&scheme, owner, name.as_bytes()));
        }
        assert_eq!(claim(&names, (1, 1), "ALICE"), NameClaim::Owned);
        for (owner, name) in entries.into_iter().skip(2) {
            assert!(names.remove(&scheme, owner, name.as_bytes()));
        }
        assert!(names.is_empty());
    }

    #[test]
    fn name_claims_follow_default_domain() {
        use NameCase::Sensitive;
        let domains =
            [("corp", Sensitive, false), ("lab", Sensitive, false), ("hq", Sensitive, true)];
        let scheme = scheme(&domains, Some("lab"));
        let names = owners(&scheme, &[((0, 1), "bob"), ((1, 1), "bob"), ((2, 1), "bob")]);
        assert_eq!(names.claim(&scheme, (0, 1), b"bob"), NameClaim::WithDomain);
        assert_eq!(names.claim(&scheme, (1, 1), b"bob"), NameClaim::Owned);
        assert_eq!(names.claim(&scheme, (2, 1), b"bob@hq"), NameClaim::Owned);
        assert_eq!(names.owner(&scheme, b"bob"), Some((1, 1)));
        assert_eq!(names.in_domain(&scheme, 2, b"bob"), Some((2, 1)));
        assert!(scheme.precedes(1, 0) && scheme.precedes(0, 1), "by name, and by id");
        assert!(!scheme.precedes(2, 0));
    }

    #[test]
    fn readings_name_configured_domains_only() {
        use NameCase::Sensitive;
        let scheme = scheme(&[("corp", Sensitive, false), ("lab", Sensitive, false)], None);
        let plain = |name: &'static [u8]| vec![(None, name)];
        assert_eq!(scheme.readings(b"alice"), plain(b"alice"));
        assert_eq!(scheme.readings(b"alice@example.com"), plain(b"alice@example.com"));
        let lab: Vec<(Option<usize>, &[u8])> = vec![(Some(1), b"alice@LAB"), (Some(1), b"alice")];
        assert_eq!(scheme.readings(b"alice@LAB"), lab);
        let both = scheme.readings(b"corp\\alice@lab");
        let domains: Vec<_> = both.iter().map(|(domain, _)| domain.unwrap()).collect();
        assert_eq!(domains, [1, 0, 1, 0]);
    }
}
