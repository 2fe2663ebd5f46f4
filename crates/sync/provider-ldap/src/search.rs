// SPDX-License-Identifier: MIT OR Apache-2.0
//! The searches that mirror a domain, and the kind of each entry that they find. This module sends nothing: the tracks
//! in `track` do.

use crate::ber::BerError;
use crate::filter::EncodedFilter;
use crate::message::{RawEntry, Scope};
use crate::schema::AttributeMapping;
use crate::search_region::{SearchRegion, regions};
use roster_config::{AttributeNames, LdapConfig, MemberValues};
use roster_provider::SearchId;
use std::fmt::Write as _;

/// The kind of entries that a search returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchKind {
    /// Users.
    Users,
    /// Groups.
    Groups,
    /// Users and groups, distinguished by these object classes.
    Both {
        /// Class of users.
        users: String,
        /// Class of groups.
        groups: String,
    },
}

/// Object classes of container entries. If a container is renamed or moved, all entries below it get other names or
/// leave the base of the search, and no server sends changes for them. The mirror therefore follows containers as well.
/// Entries with attributes of a user or a group are excluded: only the configured filters select them.
const CONTAINER_CLASSES: [&str; 8] = [
    "organizationalUnit",
    "organization",
    "dcObject",
    "domain",
    "nsContainer",
    "container",
    "locality",
    "country",
];

/// Object classes of groups that define their members by a search. OpenLDAP's overlays dynlist and autogroup usually
/// have these.
pub(crate) const DYNAMIC_CLASSES: [&str; 2] = ["groupOfURLs", "labeledURIObject"];

/// Returns whether an entry has one of these classes.
pub(crate) fn has_dynamic_class(entry: &RawEntry<'_>) -> Result<bool, BerError> {
    for class in entry.values("objectClass")? {
        let class = class?;
        if DYNAMIC_CLASSES.iter().any(|name| class.eq_ignore_ascii_case(name.as_bytes())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether an entry of a search is a user, a group, or both. A container is neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryKind {
    /// The entry is a user.
    pub user: bool,
    /// The entry is a group.
    pub group: bool,
}

/// One search of a mirror.
#[derive(Clone, Debug)]
pub struct MirrorSearch {
    /// The search's number.
    pub id: SearchId,
    /// The kind of entries.
    pub kind: SearchKind,
    /// The base.
    pub base: String,
    /// The scope.
    pub scope: Scope,
    /// The filter, as sent to the server.
    pub filter: EncodedFilter,
    /// The part of the filter that finds groups.
    pub groups: EncodedFilter,
    /// The filter names an attribute that the server computes. An entry may begin or cease to match without a change of
    /// the entry, and change notifications for it may be outdated.
    pub has_computed_attribute: bool,
    /// The requested attributes, without the attribute of the key.
    pub attributes: Vec<String>,
    /// A text of all parameters, which binds a cookie to the search.
    pub description: String,
    /// The part of the directory that the search covers.
    region: SearchRegion,
}

impl MirrorSearch {
    /// Returns whether the search may find users.
    #[must_use]
    pub fn has_users(&self) -> bool {
        self.kind != SearchKind::Groups
    }

    /// Returns whether the search may find groups.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        self.kind != SearchKind::Users
    }

    /// Returns the base in canonical form.
    #[must_use]
    pub fn normalised_base(&self) -> &[u8] {
        self.region.canonical_base()
    }

    /// Returns whether an entry with this DN belongs to the search. The server returned it for a request with the base
    /// and the scope of the search.
    #[must_use]
    pub fn owns_found(&self, name: &[u8]) -> bool {
        self.region.owns_found(name)
    }

    /// Returns whether an entry with this DN, which is in canonical form, belongs to the search.
    #[must_use]
    pub fn owns(&self, name: &[u8]) -> bool {
        self.region.owns(name)
    }

    /// Classifies an entry of this search. An entry without attributes of a user or a group is a container. It may have
    /// matched by a class that is derived from a container class, for example `dNSDomain` from `domain`.
    pub fn classify(
        &self,
        entry: &RawEntry<'_>,
        mapping: &AttributeMapping,
    ) -> Result<EntryKind, BerError> {
        let names = mapping.attributes();
        let has = |name| Ok::<bool, BerError>(entry.values(name)?.next().is_some());
        let (mut user, mut group, mut container, mut posix) = (false, false, false, false);
        for class in entry.values("objectClass")? {
            let class = class?;
            let is = |name: &str| class.eq_ignore_ascii_case(name.as_bytes());
            container |= CONTAINER_CLASSES.iter().any(|name| is(name));
            posix |= is("posixAccount") || is("posixGroup");
            if let SearchKind::Both { users, groups } = &self.kind {
                user |= is(users);
                group |= is(groups);
            }
        }
        if user || group {
            return Ok(EntryKind { user, group });
        }
        let (has_uid, has_gid) = (has(&names.user_uid)?, has(&names.group_gid)?);
        let has_name = self.has_users() && has(&names.user_name)?
            || self.has_groups() && has(&names.group_name)?;
        if (container || !has_name && !posix) && !has_uid && !has_gid {
            return Ok(EntryKind { user: false, group: false });
        }
        let user = match &self.kind {
            SearchKind::Users => true,
            SearchKind::Groups => false,
            // It matched by a class that is derived from one of the two. The uid decides.
            SearchKind::Both { .. } => has_uid,
        };
        Ok(EntryKind { user, group: !user })
    }
}

/// Returns a filter for containers that are neither users nor groups. The filter requires entries without uid and gid,
/// so a container class cannot bypass the configured filters.
fn container_filter(names: &AttributeNames) -> EncodedFilter {
    let classes =
        CONTAINER_CLASSES.map(|name| EncodedFilter::equals("objectClass", name.as_bytes()));
    let lacks = |name: &str| EncodedFilter::not(&EncodedFilter::present(name));
    EncodedFilter::all([
        &EncodedFilter::any(&classes),
        &lacks(&names.user_uid),
        &lacks(&names.group_gid),
    ])
}

/// Returns the filter of groups. With lists of DNs it also finds groups without gid, which only nest. It finds an entry
/// with a gid by the configured filter of groups alone.
pub(crate) fn group_filter(ldap: &LdapConfig) -> Result<EncodedFilter, String> {
    let parse = |text: &str| EncodedFilter::parse(text).map_err(|error| format!("group {error}"));
    let groups = parse(&ldap.groups.filter)?;
    if ldap.member_attributes.iter().all(|one| one.values == MemberValues::Names) {
        return Ok(groups);
    }
    let nested = parse(&ldap.nested_group_filter)?;
    let lacks_gid = EncodedFilter::not(&EncodedFilter::present(&ldap.attributes.group_gid));
    Ok(EncodedFilter::any([&groups, &EncodedFilter::all([&nested, &lacks_gid])]))
}

/// Returns the searches that mirror a domain. There is one search for each region. It finds users and groups if these
/// differ in object class and have the same regions, which gives one cookie and one order of events. Otherwise users and
/// groups have their own searches.
///
/// Users and groups of Active Directory differ in class with any filter.
pub fn mirror_searches(
    ldap: &LdapConfig,
    mapping: &AttributeMapping,
) -> Result<Vec<MirrorSearch>, String> {
    let names = &ldap.attributes;
    let parse = |what: &str, text: &str| {
        EncodedFilter::parse(text).map_err(|error| format!("{what} {error}"))
    };
    let users = parse("user", &ldap.users.filter)?;
    let group_class = parse("group", &ldap.groups.filter)?;
    let groups = group_filter(ldap)?;
    let user_attributes = mapping.user_attributes();
    let group_attributes = mapping.group_attributes(true);
    let user_regions = regions(&ldap.users.bases).map_err(|error| format!("user {error}"))?;
    let group_regions = regions(&ldap.groups.bases).map_err(|error| format!("group {error}"))?;
    let mut searches = SearchList { names, groups: &groups, searches: Vec::new() };
    let classes = match ldap.schema.is_active_directory() {
        true => (Some("user"), Some("group")),
        false => (users.class(), group_class.class()),
    };
    match classes {
        (Some(user_class), Some(group_class))
            if user_regions == group_regions && !user_class.eq_ignore_ascii_case(group_class) =>
        {
            let kind =
                SearchKind::Both { users: user_class.to_owned(), groups: group_class.to_owned() };
            let attributes = [&user_attributes[..], &group_attributes[..]].concat();
            searches.add(&kind, user_regions, &[&users, &groups], &attributes);
        }
        _ => {
            searches.add(&SearchKind::Users, user_regions, &[&users], &user_attributes);
            searches.add(&SearchKind::Groups, group_regions, &[&groups], &group_attributes);
        }
    }
    Ok(searches.searches)
}

/// The searches of a domain so far.
struct SearchList<'a> {
    names: &'a AttributeNames,
    /// The filter of groups.
    groups: &'a EncodedFilter,
    searches: Vec<MirrorSearch>,
}

impl SearchList<'_> {
    /// Adds a search of these filters for each region.
    fn add(
        &mut self,
        kind: &SearchKind,
        regions: Vec<SearchRegion>,
        filters: &[&EncodedFilter],
        attributes: &[String],
    ) {
        let class = "objectClass".to_owned();
        let containers = container_filter(self.names);
        let mut attributes: Vec<String> = attributes.iter().chain([&class]).cloned().collect();
        attributes.sort_unstable();
        attributes.dedup_by(|a, b| a.eq_ignore_ascii_case(b));
        for region in regions {
            let narrowed: Vec<EncodedFilter> =
                filters.iter().map(|&filter| region.narrow(filter.clone())).collect();
            let filter = EncodedFilter::any(narrowed.iter().chain([&containers]));
            let mut description = format!("{kind:?} base {:?} filter ", region.base);
            for octet in filter.encoded() {
                let _ = write!(description, "{octet:02x}");
            }
            let _ = write!(description, " attributes {}", attributes.join(" "));
            description += &region.description();
            self.searches.push(MirrorSearch {
                // The configuration has at most 16 bases.
                id: SearchId(u8::try_from(self.searches.len()).unwrap_or(u8::MAX)),
                kind: kind.clone(),
                base: region.base.clone(),
                scope: region.scope(),
                has_computed_attribute: filter.has_computed_attribute(),
                filter,
                groups: self.groups.clone(),
                attributes: attributes.clone(),
                description,
                region,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::testing::{entry, raw};
    use crate::schema::testing::mapping;
    use roster_config::{SearchBase, SearchScope};

    type Values<'a> = (&'a str, &'a [&'a [u8]]);

    const UID: Values<'_> = ("uidNumber", &[b"5001"]);
    const GID: Values<'_> = ("gidNumber", &[b"5000"]);

    fn class<'a>(values: &'a [&'a [u8]]) -> Values<'a> {
        ("objectClass", values)
    }

    fn whole_directory() -> SearchRegion {
        let whole =
            SearchBase { base: "dc=x".to_owned(), scope: SearchScope::Subtree, filter: None };
        regions(&[whole]).unwrap().remove(0)
    }

    #[test]
    fn an_entry_can_be_a_user_and_a_group() {
        let search = MirrorSearch {
            id: SearchId(0),
            kind: SearchKind::Both {
                users: "posixAccount".to_owned(),
                groups: "posixGroup".to_owned(),
            },
            base: String::new(),
            scope: Scope::Subtree,
            filter: EncodedFilter::present("objectClass"),
            groups: EncodedFilter::present("objectClass"),
            has_computed_attribute: false,
            attributes: Vec::new(),
            description: String::new(),
            region: whole_directory(),
        };
        let is = |attributes: &[Values<'_>]| {
            let message = entry("cn=x", attributes);
            search.classify(&raw(&message), &mapping(false)).unwrap()
        };
        assert_eq!(
            is(&[class(&[&b"top"[..], b"posixaccount"])]),
            EntryKind { user: true, group: false }
        );
        assert_eq!(is(&[class(&[b"posixGroup"])]), EntryKind { user: false, group: true });
        assert_eq!(
            is(&[class(&[&b"posixGroup"[..], b"posixAccount"])]),
            EntryKind { user: true, group: true }
        );
        assert_eq!(is(&[class(&[b"organizationalUnit"])]), EntryKind { user: false, group: false });
        assert_eq!(is(&[class(&[b"derived"]), UID]), EntryKind { user: true, group: false });
        assert_eq!(is(&[class(&[b"derived"]), GID]), EntryKind { user: false, group: true });
        let dns: Values<'_> = ("dc", &[b"host"]);
        assert_eq!(is(&[class(&[b"dNSDomain"]), dns]), EntryKind { user: false, group: false });
        let name: Values<'_> = ("cn", &[b"staff"]);
        let hidden = is(&[class(&[b"derived"]), name]);
        assert_eq!(hidden, EntryKind { user: false, group: true }, "its gid is missing");
    }
}
