// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of entries by a key that several entries may have: two users of one name, or two groups of one gid.
//! `on_demand_cache` has the entries.

use std::borrow::Borrow;
use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// The entries of each key. Nearly all keys have one entry.
pub struct KeyIndex<K> {
    /// The smallest number of each key.
    first: HashMap<K, u32>,
    /// The larger numbers. No set is empty.
    others: HashMap<K, BTreeSet<u32>>,
}

impl<K> Default for KeyIndex<K> {
    fn default() -> Self {
        Self { first: HashMap::new(), others: HashMap::new() }
    }
}

impl<K: Hash + Eq + Clone> KeyIndex<K> {
    /// Adds an entry to a key.
    pub fn add(&mut self, key: K, number: u32) {
        match self.first.entry(key) {
            Place::Vacant(place) => drop(place.insert(number)),
            Place::Occupied(place) if *place.get() == number => {}
            Place::Occupied(mut place) => {
                let others = self.others.entry(place.key().clone()).or_default();
                let first = place.get_mut();
                others.insert((*first).max(number));
                *first = (*first).min(number);
            }
        }
    }

    /// Removes an entry from a key.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, number: u32)
    where
        K: Borrow<Q>,
    {
        let Some(first) = self.first.get_mut(key) else { return };
        let mut others = self.others.get_mut(key);
        if *first != number {
            others.as_mut().map(|others| others.remove(&number));
        } else if let Some(next) = others.as_mut().and_then(|others| others.pop_first()) {
            *first = next;
        } else {
            self.first.remove(key);
        }
        if others.is_some_and(|others| others.is_empty()) {
            self.others.remove(key);
        }
    }

    /// Returns the entries of a key, smallest number first.
    pub fn entries<'i, Q: Hash + Eq + ?Sized>(
        &'i self,
        key: &Q,
    ) -> impl Iterator<Item = u32> + use<'i, K, Q>
    where
        K: Borrow<Q>,
    {
        let first = self.first.get(key);
        let others = first.and_then(|_| self.others.get(key));
        first.into_iter().chain(others.into_iter().flatten()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(index: &KeyIndex<&'static str>, key: &str) -> Vec<u32> {
        index.entries(key).collect()
    }

    #[test]
    fn key_index_lists_entries_in_order() {
        let mut index = KeyIndex::default();
        for number in [5, 3, 9, 3, 5] {
            index.add("alice", number);
        }
        index.add("bob", 4);
        assert_eq!(entries(&index, "alice"), [3, 5, 9]);
        for (number, left) in [(4, vec![3, 5, 9]), (3, vec![5, 9]), (9, vec![5]), (5, vec![])] {
            index.remove("alice", number);
            assert_eq!(entries(&index, "alice"), left);
        }
        assert_eq!(entries(&index, "bob"), [4]);
        index.remove("bob", 4);
        assert!(index.first.is_empty() && index.others.is_empty());
    }
}
