// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of local accounts, exact and in any spelling. `locals` has their ids.

use crate::domain_names::DomainNames;
use roster_names::{fold, qualified_forms};
use std::collections::HashSet;

/// A set of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSet {
    exact: HashSet<Vec<u8>>,
    folded: HashSet<Vec<u8>>,
    /// Names that may include a domain. Hardly any host has one.
    with_domain: HashSet<Vec<u8>>,
}

impl NameSet {
    /// Adds a name.
    pub fn insert(&mut self, name: Vec<u8>) {
        self.folded.insert(fold(&name).into_owned());
        if qualified_forms(&name).iter().any(Option::is_some) {
            self.with_domain.insert(name.clone());
        }
        self.exact.insert(name);
    }

    /// Returns whether the set has exactly this name.
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.exact.contains(name)
    }

    /// Returns whether a name of the set finds an entry of a domain: by the name itself, as the domain compares names,
    /// or by the name with the domain. `base` is the name of the entry without the domain.
    #[must_use]
    pub fn finds(&self, base: &[u8], served: &[u8], names: &DomainNames) -> bool {
        let is_served = match names.ignores_case() {
            true => self.folded.contains(&*fold(served)),
            false => self.exact.contains(served),
        };
        is_served
            || self.with_domain.iter().any(|name| {
                let mut forms = qualified_forms(name).into_iter().flatten();
                forms.any(|form| names.is_called(form.domain) && names.matches(base, form.name))
            })
    }

    /// Returns whether `other` has all names of this set.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.exact.is_subset(&other.exact)
    }

    /// Adds the names of `other`.
    pub fn add(&mut self, other: Self) {
        self.exact.extend(other.exact);
        self.folded.extend(other.folded);
        self.with_domain.extend(other.with_domain);
    }
}

impl FromIterator<Vec<u8>> for NameSet {
    fn from_iter<I: IntoIterator<Item = Vec<u8>>>(names: I) -> Self {
        let mut set = Self::default();
        names.into_iter().for_each(|name| set.insert(name));
        set
    }
}

impl<const N: usize> From<[Vec<u8>; N]> for NameSet {
    fn from(names: [Vec<u8>; N]) -> Self {
        names.into_iter().collect()
    }
}
