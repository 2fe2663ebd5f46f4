// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of uids and gids: attributes of the directory, or SIDs. Checks that domains share no mapped id.

use crate::keys::{self, ConfigTable, Key};
use crate::toml_section::{self, LoadReport, TomlSection, domain_path};
use crate::{DirectorySchema, DomainConfig, ProviderConfig};
use roster_messages::CodedError;
use roster_messages::table::config as codes;
use roster_sid::{IdRange, IdRangeError};
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

/// `id_mapping = …`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdMapping {
    /// The attributes of uid and gid.
    #[default]
    Posix,
    /// SIDs of Active Directory.
    Sid(SidMapping),
}

/// Keys of `id_mapping = "sid"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SidMapping {
    /// Lowest id.
    pub min: u32,
    /// End of the ids, which is above the highest one.
    pub max: u32,
    /// Ids of a slice.
    pub size: u32,
    /// The slice of the domain. `None`: the hash of its SID chooses.
    pub slice: Option<u32>,
    /// First and last ids of the slices of other domains.
    pub reserved: Vec<(u32, u32)>,
}

impl SidMapping {
    /// Returns the range of ids.
    ///
    /// # Errors
    ///
    /// The range has no slice. The parser accepts no such range.
    pub fn range(&self) -> Result<IdRange, IdRangeError> {
        IdRange::new(self.min, self.max, self.size)
    }

    /// Returns the first and the last id of the named slice.
    #[must_use]
    pub fn slice_ids(&self) -> Option<(u32, u32)> {
        self.range().ok()?.slice_ids(self.slice?)
    }

    /// Returns the first and the last id that an account may have.
    fn ids(&self) -> (u32, u32) {
        (self.min, self.max.saturating_sub(1))
    }
}

impl DomainConfig {
    /// Returns how SIDs become ids. `None`: the directory has the ids.
    #[must_use]
    pub fn sid_mapping(&self) -> Option<&SidMapping> {
        match &self.provider {
            ProviderConfig::Ldap(ldap) => match &ldap.id_mapping {
                IdMapping::Sid(mapping) => Some(mapping),
                IdMapping::Posix => None,
            },
            ProviderConfig::Files(_) => None,
        }
    }
}

/// Keys without an effect unless ids come from SIDs.
const SID_KEYS: [&Key<u32>; 4] =
    [&keys::LDAP_ID_MIN, &keys::LDAP_ID_MAX, &keys::LDAP_ID_RANGE, &keys::LDAP_ID_SLICE];

/// Reads the keys of a domain.
pub(crate) fn id_mapping(
    section: &mut TomlSection<'_, '_, '_, '_>,
    schema: DirectorySchema,
) -> IdMapping {
    let of_schema = if schema.maps_sids() { "sid" } else { "posix" };
    let mapping = section.value_or(&keys::LDAP_ID_MAPPING, of_schema.to_owned());
    if mapping == "sid" && !schema.is_active_directory() {
        let text = "id_mapping = \"sid\" requires schema = \"ad\"";
        let error = CodedError::new(&codes::ID_MAPPING_WITHOUT_AD, text);
        section.error(&keys::LDAP_ID_MAPPING, error);
    }
    let sid = SidMapping {
        min: section.value(&keys::LDAP_ID_MIN),
        max: section.value(&keys::LDAP_ID_MAX),
        size: section.value(&keys::LDAP_ID_RANGE),
        slice: section.optional_value(&keys::LDAP_ID_SLICE),
        reserved: Vec::new(),
    };
    if mapping != "sid" {
        for key in SID_KEYS {
            if section.has(key) {
                let text = "has no effect without id_mapping = \"sid\"";
                section.warning(key, CodedError::new(&codes::ID_MAPPING_KEY_UNUSED, text));
            }
        }
        return IdMapping::Posix;
    }
    // A value of 0 is a mistake that was reported before.
    let is_read = sid.min > 0 && sid.max > 0 && sid.size > 0;
    match (sid.range(), sid.slice) {
        (Err(error), _) if is_read => {
            let known = [&keys::LDAP_ID_RANGE, &keys::LDAP_ID_MAX, &keys::LDAP_ID_MIN];
            let key = known.into_iter().find(|key| section.has(key)).unwrap_or(&keys::LDAP_ID_MIN);
            let error = CodedError::new(&codes::ID_MAPPING_RANGE_EMPTY, error.to_string());
            section.error(key, error);
        }
        (Ok(range), Some(slice)) if slice >= range.slices() => {
            let last = range.slices() - 1;
            let text = format!("{slice} is above the last slice, {last}");
            section
                .error(&keys::LDAP_ID_SLICE, CodedError::new(&codes::ID_SLICE_ABOVE_RANGE, text));
        }
        _ => {}
    }
    IdMapping::Sid(sid)
}

/// Checks that the domain's own limits admit the mapped ids.
pub(crate) fn check_admitted(section: &mut TomlSection<'_, '_, '_, '_>, domain: &DomainConfig) {
    let Some(mapping) = domain.sid_mapping().filter(|mapping| mapping.range().is_ok()) else {
        return;
    };
    let (key, (first, last)) = match mapping.slice_ids() {
        Some(ids) => (&keys::LDAP_ID_SLICE.declared, ids),
        None => (mapping_key(section), mapping.ids()),
    };
    if domain.min_id > first || domain.max_id < last {
        let text = format!(
            "the ids {first} to {last} are not all within min_id and max_id of the domain ({} to {})",
            domain.min_id, domain.max_id
        );
        section.warning(key, CodedError::new(&codes::MAPPED_IDS_REJECTED, text));
    }
}

/// Returns the key to which a finding about the whole range belongs.
fn mapping_key(section: &TomlSection<'_, '_, '_, '_>) -> &'static keys::ConfigKey {
    if section.has(&keys::LDAP_ID_MIN) {
        &keys::LDAP_ID_MIN.declared
    } else {
        &keys::LDAP_ID_MAPPING.declared
    }
}

fn overlap((first, last): (u32, u32), (other_first, other_last): (u32, u32)) -> bool {
    first <= other_last && other_first <= last
}

/// Checks that mapped ids belong to one domain, and gives each domain the slices of the others.
pub(crate) fn check_mapped_ids(
    report: &mut LoadReport<'_>,
    tables: &DeTable<'_>,
    domains: &mut [DomainConfig],
) {
    for place in 0..domains.len() {
        let (before, from) = domains.split_at_mut(place);
        let Some((domain, after)) = from.split_first_mut() else { break };
        let Some(mapping) = domain.sid_mapping().cloned() else { continue };
        let mut reserved = Vec::new();
        for (is_before, other) in
            before.iter().map(|other| (true, other)).chain(after.iter().map(|other| (false, other)))
        {
            let found = toml_section::entry(tables, &domain.name);
            let path = domain_path(&domain.name);
            let mut section = TomlSection::new(report, ConfigTable::Domain, &path, found);
            match other.sid_mapping() {
                Some(theirs) => {
                    // A pair is reported once, at its second domain.
                    if is_before {
                        check_slices(&mut section, tables, &mapping, (other, theirs));
                    }
                    reserved.extend(theirs.slice_ids());
                }
                None => check_other_ids(&mut section, &mapping, other),
            }
        }
        if let ProviderConfig::Ldap(ldap) = &mut domain.provider
            && let IdMapping::Sid(mapping) = &mut ldap.id_mapping
        {
            mapping.reserved = reserved;
        }
    }
}

/// Checks two domains with ids from SIDs.
fn check_slices(
    section: &mut TomlSection<'_, '_, '_, '_>,
    tables: &DeTable<'_>,
    mapping: &SidMapping,
    (other, theirs): (&DomainConfig, &SidMapping),
) {
    if !overlap(mapping.ids(), theirs.ids()) {
        return;
    }
    let path = domain_path(&other.name);
    let (key, is_own) = match (mapping.slice, theirs.slice) {
        (Some(_), None) => (&keys::LDAP_ID_MAPPING.declared, false),
        _ => (&keys::LDAP_ID_SLICE.declared, true),
    };
    let found = toml_section::entry(tables, &other.name);
    let other_section = TomlSection::new(section.report, ConfigTable::Domain, &path, found);
    let their_line = other_section.position(&keys::LDAP_ID_SLICE);
    match (mapping.slice_ids(), theirs.slice_ids()) {
        (Some(ours), Some(ids)) if overlap(ours, ids) => {
            let text = format!(
                "the ids {} to {} are also in the slice of domain {} ({their_line}: id_slice = {}, ids {} to {})",
                ours.0,
                ours.1,
                other.name,
                theirs.slice.unwrap_or_default(),
                ids.0,
                ids.1
            );
            section.error(key, CodedError::new(&codes::ID_SLICES_OVERLAP, text));
        }
        (Some(_), Some(_)) => {}
        _ => {
            let missing = if is_own { "this domain" } else { &*other.name };
            let text = format!(
                "{missing} has no id_slice, and shares the ids {} to {} with domain {} ({their_line})",
                mapping.min.max(theirs.min),
                mapping.max.min(theirs.max).saturating_sub(1),
                other.name
            );
            section.error(key, CodedError::new(&codes::ID_SLICE_MISSING, text));
        }
    }
}

/// Checks a domain with ids of its directory, which could have a mapped id.
fn check_other_ids(
    section: &mut TomlSection<'_, '_, '_, '_>,
    mapping: &SidMapping,
    other: &DomainConfig,
) {
    if overlap(mapping.ids(), (other.min_id, other.max_id)) {
        let (first, last) = mapping.ids();
        let text = format!(
            "domain {} may have ids from {} to {}, and the ids {first} to {last} belong to SIDs of this domain",
            other.name, other.min_id, other.max_id
        );
        let key = mapping_key(section);
        section.warning(key, CodedError::new(&codes::MAPPED_IDS_SHARED, text));
    }
}
