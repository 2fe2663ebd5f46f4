// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ids that SSSD computes from SIDs: `ldap_id_mapping` and `ldap_idmap_*` of a domain with `id_provider = ad`. In a domain
//! of another provider the table of settings stops the conversion.

use super::section::{Conversion, Section, Setting};
use crate::plan::{DomainPlan, Item};
use crate::values::quoted;

/// The setting that chooses the source of ids.
const ID_MAPPING: &str = "ldap_id_mapping";

/// Settings with a number: SSSD's name, Roster's key, and the value without the setting.
const NUMBERS: [(&str, &str, u64); 3] = [
    ("ldap_idmap_range_min", "id_min", 200_000),
    ("ldap_idmap_range_max", "id_max", 2_000_200_000),
    ("ldap_idmap_range_size", "id_range", 200_000),
];

/// Secondary slices that SSSD computes in advance.
const HELPER_SLICES: u64 = 10;

const SLICES: &str = "Write id_slice as `roster domain compare-ids --with sssd` shows it, then name the setting in --without.";

/// Converts the settings of a domain with `id_provider = ad`. SSSD computes ids from SIDs by default.
pub(super) fn convert(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
) {
    let name = section.name.clone();
    let setting = section.take_setting(ID_MAPPING);
    let is_mapped =
        setting.as_ref().is_none_or(|setting| conversion.flag(&name, setting) != Some(false));
    let setting = setting.unwrap_or_else(|| section.default_setting(ID_MAPPING, "true"));
    conversion.mapped(&name, &setting, format!("{name}.id_mapping"));
    if !is_mapped {
        domain.keys.set("id_mapping", quoted("posix"));
        return;
    }
    domain.keys.set("id_mapping", quoted("sid"));
    range(conversion, domain, section);
    default_domain(conversion, domain, section);
    autorid(conversion, domain, section);
    helpers(conversion, section);
    conversion.plan.note(format!(
        "[{name}]: ids come from SIDs. Before rosterd starts, run `roster domain compare-ids {} --with sssd`, and write \
         the id_slice that it shows.",
        domain.name
    ));
}

/// Stops if two domains would share ids. The slices that SSSD gave are in its cache, not in its configuration.
pub(super) fn check_slices(conversion: &mut Conversion<'_>) {
    let domains: Vec<MappedDomain> =
        conversion.plan.domains.iter().filter_map(MappedDomain::of_plan).collect();
    for (place, domain) in domains.iter().enumerate() {
        let Some(other) = domains[..place].iter().find(|other| domain.may_share_ids(other)) else {
            continue;
        };
        let items = &conversion.plan.items;
        let is_own = |item: &&Item| item.section == domain.section && item.setting == ID_MAPPING;
        let Some(item) = items.iter().find(is_own) else { continue };
        let setting = Setting {
            name: item.setting.clone(),
            value: item.value.clone(),
            origin: item.origin.clone(),
        };
        let reason = format!(
            "[{}] has the same range of ids, and sssd.conf does not show which slices SSSD gave to the two domains",
            other.section
        );
        let cure = "Convert with one of the domains in `domains`, then add the other one to roster.toml. Write in both \
                    the id_slice that `roster domain compare-ids --with sssd` shows.";
        conversion.fail(&domain.section, &setting, &reason, cure);
    }
}

/// The ids of a domain with ids from SIDs.
struct MappedDomain {
    section: String,
    min: u64,
    max: u64,
    size: u64,
    slice: Option<u64>,
}

impl MappedDomain {
    fn of_plan(domain: &DomainPlan) -> Option<Self> {
        if domain.keys.get("id_mapping") != Some("\"sid\"") {
            return None;
        }
        let number = |key: &str| domain.keys.get(key).and_then(|value| value.parse().ok());
        let [min, max, size] = NUMBERS.map(|(_, key, default)| number(key).unwrap_or(default));
        let section = domain.section.clone();
        Some(Self { section, min, max, size, slice: number("id_slice") })
    }

    /// Returns whether the domains may have the same ids. Two slices are compared, otherwise the whole ranges.
    fn may_share_ids(&self, other: &Self) -> bool {
        let slice_ids = |domain: &Self, slice: u64| {
            let first = domain.min.saturating_add(slice.saturating_mul(domain.size));
            (first, first.saturating_add(domain.size))
        };
        let ((first, end), (other_first, other_end)) = match (self.slice, other.slice) {
            (Some(slice), Some(other_slice)) => {
                (slice_ids(self, slice), slice_ids(other, other_slice))
            }
            _ => ((self.min, self.max), (other.min, other.max)),
        };
        first < other_end && other_first < end
    }
}

fn range(conversion: &mut Conversion<'_>, domain: &mut DomainPlan, section: &mut Section) {
    let name = section.name.clone();
    let mut values = [0; 3];
    for (value, (setting, key, default)) in values.iter_mut().zip(NUMBERS) {
        *value = default;
        let Some(setting) = section.take_setting(setting) else { continue };
        let Some(number) = conversion.number(&name, &setting) else { continue };
        *value = number;
        domain.keys.set(key, number.to_string());
        conversion.mapped(&name, &setting, format!("{name}.{key}"));
        if number == 0
            || u32::try_from(number).is_err()
            || (key == "id_range" && !(1000..=429_496_729).contains(&number))
        {
            let reason = "the value is outside of the values of Roster's key";
            conversion.fail(&name, &setting, reason, "Keep SSSD on this host.");
        }
    }
    let [min, max, size] = values;
    if max.saturating_sub(min) < size {
        let setting = Setting {
            name: "ldap_idmap_range_size".into(),
            value: size.to_string(),
            origin: section.origin(),
        };
        let reason = "the range of ids has no slice of this size";
        conversion.fail(&name, &setting, reason, "Correct ldap_idmap_range_*.");
    }
}

fn default_domain(conversion: &mut Conversion<'_>, domain: &mut DomainPlan, section: &mut Section) {
    let name = section.name.clone();
    if let Some(setting) = section.take_setting("ldap_idmap_default_domain_sid") {
        domain.keys.set("id_slice", "0".into());
        conversion.mapped(&name, &setting, format!("{name}.id_slice"));
        conversion.plan.note(format!(
            "[{name}]: id_slice = 0 holds for the domain with the SID {}. Check that it is this domain.",
            setting.value
        ));
    }
    if let Some(setting) = section.take_setting("ldap_idmap_default_domain") {
        conversion.dropped(&name, &setting, "The name has no effect on ids.");
    }
}

/// With this setting SSSD gives slices in the order in which it met the domains.
fn autorid(conversion: &mut Conversion<'_>, domain: &DomainPlan, section: &mut Section) {
    let name = section.name.clone();
    let Some(setting) = section.take_setting("ldap_idmap_autorid_compat") else { return };
    if conversion.flag(&name, &setting) != Some(true) {
        conversion.dropped(&name, &setting, "It is off, as in Roster.");
    } else if domain.keys.get("id_slice").is_some() {
        conversion.mapped(&name, &setting, format!("{name}.id_slice"));
        conversion.plan.note(format!(
            "[{name}]: with ldap_idmap_autorid_compat, SSSD gives accounts with a RID of id_range or more other ids than \
             Roster. Compare them with `roster domain compare-ids --with sssd`."
        ));
    } else {
        let reason = "SSSD numbers the slices in the order in which it met the domains";
        conversion.stop(&name, &setting, reason, SLICES);
    }
}

fn helpers(conversion: &mut Conversion<'_>, section: &mut Section) {
    let name = section.name.clone();
    let Some(setting) = section.take_setting("ldap_idmap_helper_table_size") else { return };
    let Some(number) = conversion.number(&name, &setting) else { return };
    let note = match number {
        0 => {
            conversion.plan.note(format!(
                "[{name}]: SSSD has no ids for accounts with a RID of id_range or more. Roster serves them."
            ));
            "Roster serves accounts with higher RIDs, too."
        }
        HELPER_SLICES => "Roster has the same number.",
        _ => "The number matters only if two slices meet. Roster then gives no ids.",
    };
    conversion.dropped(&name, &setting, note);
}
