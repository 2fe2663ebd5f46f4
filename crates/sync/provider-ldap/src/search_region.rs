// SPDX-License-Identifier: MIT OR Apache-2.0
//! The regions of a directory that a domain's searches cover. A configured base is a DN with a scope. Bases may
//! overlap: the most specific region then has an entry, so that each entry belongs to one search. `search` has the
//! searches.
//!
//! The filter of a region also admits all entries that the bases around it admit there.

use crate::dn;
use crate::filter::EncodedFilter;
use crate::message::Scope;
use roster_config::{SearchBase, SearchScope};

/// A base DN in canonical form, and a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Extent {
    base: Vec<u8>,
    scope: SearchScope,
}

impl Extent {
    /// Returns whether the extent has this DN, which is in canonical form.
    fn has(&self, name: &[u8]) -> bool {
        match self.scope {
            SearchScope::Subtree => dn::is_within(name, &self.base),
            SearchScope::One => dn::parent(name) == Some(&*self.base),
            SearchScope::Base => name == self.base,
        }
    }

    /// Returns whether all DNs of the other extent are in this one.
    fn contains(&self, other: &Self) -> bool {
        match (self.scope, other.scope) {
            (SearchScope::Subtree, _) => self.has(&other.base),
            (SearchScope::One, SearchScope::One) => self.base == other.base,
            (_, SearchScope::Base) => self.has(&other.base),
            (SearchScope::One | SearchScope::Base, _) => false,
        }
    }

    /// Returns whether a common DN belongs to the other extent.
    fn yields_to(&self, other: &Self) -> bool {
        // A subtree that begins at an entry of a level has more than this entry.
        let begins_here = self.scope == SearchScope::One && self.has(&other.base);
        self != other && (self.contains(other) || begins_here)
    }
}

/// A region that one search covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SearchRegion {
    /// The base as configured.
    pub base: String,
    extent: Extent,
    /// Parts of it that other searches cover.
    excluded: Vec<Extent>,
    /// Further filters, of which an entry must match one. Empty if all entries count.
    filters: Vec<EncodedFilter>,
}

impl SearchRegion {
    /// Returns the scope for a request.
    pub fn scope(&self) -> Scope {
        match self.extent.scope {
            SearchScope::Base => Scope::Base,
            SearchScope::One => Scope::One,
            SearchScope::Subtree => Scope::Subtree,
        }
    }

    /// Returns the base in canonical form.
    pub fn canonical_base(&self) -> &[u8] {
        &self.extent.base
    }

    /// Returns whether an entry with this DN belongs to the region. The server returned it for a request with the base
    /// and the scope of the region.
    pub fn owns_found(&self, name: &[u8]) -> bool {
        self.excluded.is_empty() || !self.is_excluded(&dn::normalise(name))
    }

    /// Returns whether other regions have parts of it.
    pub fn has_exclusions(&self) -> bool {
        !self.excluded.is_empty()
    }

    /// Returns whether an entry with this DN, which is in canonical form, belongs to the region.
    pub fn owns(&self, name: &[u8]) -> bool {
        self.extent.has(name) && !self.is_excluded(name)
    }

    fn is_excluded(&self, name: &[u8]) -> bool {
        self.excluded.iter().any(|other| other.has(name))
    }

    /// Returns the filter of the region's entries, for entries of this filter.
    pub fn narrow(&self, filter: EncodedFilter) -> EncodedFilter {
        match &*self.filters {
            [] => filter,
            [one] => EncodedFilter::all([&filter, one]),
            several => EncodedFilter::all([&filter, &EncodedFilter::any(several)]),
        }
    }

    /// Returns a text of the parameters that a base and a filter do not show. Empty for a whole subtree.
    pub fn description(&self) -> String {
        match (self.extent.scope, &*self.excluded) {
            (SearchScope::Subtree, []) => String::new(),
            (scope, excluded) => format!(" scope {scope:?} without {excluded:?}"),
        }
    }
}

/// Returns the regions of these bases, without overlaps, in the order of the bases.
pub(crate) fn regions(bases: &[SearchBase]) -> Result<Vec<SearchRegion>, String> {
    let mut parsed = Vec::with_capacity(bases.len());
    for SearchBase { base, scope, filter } in bases {
        let extent = Extent { base: dn::normalise(base.as_bytes()).into_owned(), scope: *scope };
        let filter = filter.as_deref().map(EncodedFilter::parse).transpose()?;
        parsed.push((base, extent, filter));
    }
    let filters_at = |extent: &Extent| {
        let around = parsed.iter().filter(|(_, other, _)| other.contains(extent));
        let filters: Option<Vec<&EncodedFilter>> =
            around.map(|(_, _, filter)| filter.as_ref()).collect();
        let mut filters: Vec<EncodedFilter> =
            filters.unwrap_or_default().into_iter().cloned().collect();
        filters.sort_by(|a, b| a.encoded().cmp(b.encoded()));
        filters.dedup();
        filters
    };
    let mut found: Vec<SearchRegion> = Vec::new();
    for (base, extent, _) in &parsed {
        let filters = filters_at(extent);
        let is_covered = parsed.iter().any(|(_, other, _)| {
            other != extent && other.contains(extent) && filters_at(other) == filters
        });
        if !is_covered && found.iter().all(|region| region.extent != *extent) {
            let (base, extent) = ((*base).clone(), extent.clone());
            found.push(SearchRegion { base, extent, excluded: Vec::new(), filters });
        }
    }
    let extents: Vec<Extent> = found.iter().map(|region| region.extent.clone()).collect();
    for region in &mut found {
        let others = extents.iter().filter(|other| region.extent.yields_to(other));
        region.excluded = others.cloned().collect();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(base: &str, scope: SearchScope, filter: Option<&str>) -> SearchBase {
        SearchBase { base: base.to_owned(), scope, filter: filter.map(ToOwned::to_owned) }
    }

    fn subtree(dn: &str) -> SearchBase {
        base(dn, SearchScope::Subtree, None)
    }

    /// Returns the bases of the regions that own a DN.
    fn owners<'r>(regions: &'r [SearchRegion], name: &str) -> Vec<&'r str> {
        let owners = regions.iter().filter(|region| region.owns(name.as_bytes()));
        owners.map(|region| &*region.base).collect()
    }

    #[test]
    fn regions_redundant_base_is_dropped() {
        let found = regions(&[subtree("ou=people,dc=x"), subtree("DC=x"), subtree("dc=x")]);
        let found = found.unwrap();
        assert_eq!(owners(&found, "uid=a,ou=people,dc=x"), ["DC=x"]);
        assert_eq!((found.len(), &*found[0].description()), (1, ""));
        assert!(found[0].excluded.is_empty() && found[0].owns_found(b"any"));
    }

    #[test]
    fn regions_overlap_has_one_owner() {
        let filter = Some("(a=b)");
        let found = regions(&[
            base("dc=x", SearchScope::Subtree, filter),
            subtree("ou=people,dc=x"),
            base("ou=staff,dc=x", SearchScope::One, Some("(c=d)")),
        ]);
        let found = found.unwrap();
        assert_eq!(owners(&found, "uid=a,ou=people,dc=x"), ["ou=people,dc=x"]);
        assert_eq!(owners(&found, "ou=people,dc=x"), ["ou=people,dc=x"]);
        assert_eq!(owners(&found, "uid=a,ou=staff,dc=x"), ["ou=staff,dc=x"]);
        for name in ["ou=staff,dc=x", "uid=a,ou=deep,ou=staff,dc=x", "uid=a,dc=x", "dc=x"] {
            assert_eq!(owners(&found, name), ["dc=x"], "{name}");
        }
        assert_eq!(owners(&found, "uid=a,dc=y"), Vec::<&str>::new());
        assert!(!found[0].owns_found(b"uid=A, ou=People, dc=X"));
        assert!(found[1].filters.is_empty(), "all people count");
        assert_eq!(found[2].filters.len(), 2, "by its own filter, or by the outer one");
    }

    #[test]
    fn regions_level_yields_to_subtree_below() {
        let level = base("dc=x", SearchScope::One, None);
        let found = regions(&[level.clone(), subtree("ou=people,dc=x")]).unwrap();
        assert_eq!(owners(&found, "ou=people,dc=x"), ["ou=people,dc=x"]);
        assert_eq!(owners(&found, "uid=a,dc=x"), ["dc=x"]);
        assert_eq!(owners(&found, "uid=a,ou=other,dc=x"), Vec::<&str>::new());
        let found = regions(&[level, base("uid=a,dc=x", SearchScope::Base, None)]).unwrap();
        assert_eq!(found.len(), 1, "the level has it");
    }

    #[test]
    fn regions_filters_of_one_base_add_up() {
        let found = regions(&[
            base("dc=x", SearchScope::Subtree, Some("(a=b)")),
            base("dc=x", SearchScope::Subtree, Some("(c=d)")),
        ]);
        let found = found.unwrap();
        assert_eq!((found.len(), found[0].filters.len()), (1, 2));
        let class = EncodedFilter::equals("objectClass", b"posixAccount");
        let [a, c] =
            [("a", b"b"), ("c", b"d")].map(|(name, value)| EncodedFilter::equals(name, value));
        let wanted = EncodedFilter::all([&class, &EncodedFilter::any([&a, &c])]);
        assert_eq!(found[0].narrow(class.clone()), wanted);
        assert_eq!(regions(&[subtree("dc=x")]).unwrap()[0].narrow(class.clone()), class);
    }
}
