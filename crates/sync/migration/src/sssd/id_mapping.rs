// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ids that SSSD computes from SIDs: `ldap_id_mapping` and `ldap_idmap_*` of a domain with the schema of Active
//! Directory. Another schema has no counterpart in Roster, so that the table of settings stops the conversion.

use super::section::{Conversion, Section, Setting};
use crate::plan::DomainPlan;
use crate::values::quoted;

/// Settings with a number: SSSD's name, Roster's key, and the value without the setting.
const NUMBERS: [(&str, &str, u64); 3] = [
    ("ldap_idmap_range_min", "id_min", 200_000),
    ("ldap_idmap_range_max", "id_max", 2_000_200_000),
    ("ldap_idmap_range_size", "id_range", 200_000),
];

/// Secondary slices that SSSD computes in advance.
const HELPER_SLICES: u64 = 10;

const SLICES: &str = "Write id_slice as `roster domain compare-ids --with sssd` shows it, then name the setting in --without.";

/// Converts the settings of a domain with `ldap_schema = ad`.
pub(super) fn convert(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
) {
    let is_ad = section.peek("ldap_schema").is_some_and(|value| value.eq_ignore_ascii_case("ad"));
    if !is_ad {
        return;
    }
    let name = section.name.clone();
    let Some(setting) = section.take_setting("ldap_id_mapping") else { return };
    if conversion.flag(&name, &setting) != Some(true) {
        domain.keys.set("id_mapping", quoted("posix"));
        conversion.mapped(&name, &setting, format!("{name}.id_mapping"));
        return;
    }
    domain.keys.set("id_mapping", quoted("sid"));
    conversion.mapped(&name, &setting, format!("{name}.id_mapping"));
    range(conversion, domain, section);
    default_domain(conversion, domain, section);
    autorid(conversion, domain, section);
    helpers(conversion, section);
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
