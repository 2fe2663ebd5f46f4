// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[sssd]`, and the parts of `[nss]` and `[pam]` that become keys of the host.

use super::conf::{Services, SssdConf};
use super::section::{Conversion, Section};
use crate::ini;
use crate::plan::Outcome;
use crate::values::{list, quoted};

/// Limit of the domains of roster.toml.
const DOMAINS_MAX: usize = 32;

/// Returns the active domains in SSSD's order, with the name that each has in roster.toml.
pub(super) fn domains(
    conversion: &mut Conversion<'_>,
    main: &mut Section,
    conf: &mut SssdConf,
) -> Vec<(String, Section)> {
    let mut names: Vec<String> = Vec::new();
    let setting = main.take_setting("domains");
    if let Some(setting) = &setting {
        names.extend(ini::list(&setting.value).into_iter().map(str::to_owned));
        conversion.mapped("sssd", setting, "host.domains");
    }
    // `enabled` of a domain overrides the list.
    for section in conf.sections() {
        let Some(name) = section.name.strip_prefix("domain/").filter(|name| !name.contains('/'))
        else {
            continue;
        };
        let known = names.iter().position(|known| known.eq_ignore_ascii_case(name));
        match (section.peek("enabled").map(str::to_ascii_lowercase).as_deref(), known) {
            (Some("true"), None) => names.push(name.to_owned()),
            (Some("false"), Some(place)) => drop(names.remove(place)),
            _ => {}
        }
    }
    names.dedup_by(|later, earlier| later.eq_ignore_ascii_case(earlier));
    resolution_order(conversion, main, &mut names);
    if names.is_empty() {
        conversion.missing(
            main,
            "domains",
            "no domain is active",
            "Name at least one domain in `domains` of [sssd].",
        );
    }
    let mut found: Vec<(String, Section)> = Vec::new();
    for name in names {
        let Some(mut section) = conf.take_section(&format!("domain/{name}")) else {
            if let Some(setting) = &setting {
                let reason = format!("the domain {name:?} has no section [domain/{name}]");
                conversion.fail("sssd", setting, &reason, "Remove the name, or add the section.");
            }
            continue;
        };
        if let Some(enabled) = section.take_setting("enabled") {
            conversion.mapped(&section.name, &enabled, "host.domains");
        }
        found.push((name, section));
    }
    if found.len() > DOMAINS_MAX
        && let Some(setting) = &setting
    {
        conversion.fail(
            "sssd",
            setting,
            "the list has more than 32 domains",
            "Name at most 32 domains.",
        );
    }
    found
}

/// Moves the domains of `domain_resolution_order` to the front. The other domains keep their order.
fn resolution_order(conversion: &mut Conversion<'_>, main: &mut Section, names: &mut [String]) {
    let Some(setting) = main.take_setting("domain_resolution_order") else { return };
    let first = ini::list(&setting.value);
    let place = |name: &String| first.iter().position(|known| known.eq_ignore_ascii_case(name));
    names.sort_by_key(|name| place(name).unwrap_or(first.len()));
    conversion.mapped("sssd", &setting, "host.domains");
    conversion.plan.note(
        "With domain_resolution_order SSSD shows names as NAME@DOMAIN, and finds each listed domain by plain names. \
         In Roster `qualified_names` of a domain decides about both.",
    );
}

/// Converts the remaining settings of `[sssd]`, `[nss]` and `[pam]`.
pub(super) fn convert(
    conversion: &mut Conversion<'_>,
    main: &mut Section,
    services: &mut Services,
) {
    if let Some(setting) = main.take_setting("default_domain_suffix") {
        let name = setting.value.to_ascii_lowercase();
        if conversion.plan.domains.iter().any(|domain| domain.name == name) {
            conversion.plan.host.set("default_domain", quoted(&name));
            conversion.mapped("sssd", &setting, "host.default_domain");
        } else {
            let reason = "the domain is not converted";
            conversion.fail(
                "sssd",
                &setting,
                reason,
                "Name an active domain, or remove the setting.",
            );
        }
    }
    if let Some(setting) = main.take_setting("override_space") {
        let reason = "names with this character stand for names with spaces, also in access lists";
        let cure = "Write the names of access lists with spaces, and allow \" \" in \
                    `allowed_name_characters` of roster.toml.";
        conversion.stop("sssd", &setting, reason, cure);
    }
    trusted_users(conversion, &mut services.pam);
    for name in ["debug_level", "debug"] {
        if let Some(setting) = main.take_setting(name) {
            let note = "See `level` of [log] in roster.toml(5), and roster-log-level(1).";
            conversion.dropped("sssd", &setting, note);
        }
    }
}

fn trusted_users(conversion: &mut Conversion<'_>, pam: &mut Section) {
    let Some(setting) = pam.take_setting("pam_trusted_users") else { return };
    let names = ini::list(&setting.value);
    let is_name = |name: &&&str| **name != "root" && name.parse::<u32>().is_err();
    if names.iter().any(|name| name.eq_ignore_ascii_case("all")) {
        let note = "Roster trusts root only. Other programs ask about their own user.";
        return conversion.dropped("pam", &setting, note);
    }
    let users: Vec<&str> = names.iter().filter(is_name).copied().collect();
    if users.is_empty() {
        return conversion.dropped("pam", &setting, "Roster trusts root only, which is the same.");
    }
    conversion.plan.responder_pam.set("trusted_users", list(&users));
    conversion.mapped("pam", &setting, "responder.pam.trusted_users");
    if names.len() > users.len() + usize::from(names.contains(&"root")) {
        conversion
            .plan
            .note("pam_trusted_users has uids. Roster needs names: add them to trusted_users.");
    }
}

/// Refuses two sections that would become one domain, because their names differ by case only.
pub(super) fn check_names(conversion: &mut Conversion<'_>) {
    let domains: Vec<_> =
        conversion.plan.domains.iter().map(|one| (one.name.clone(), one.section.clone())).collect();
    for (place, (name, section)) in domains.iter().enumerate() {
        if domains[..place].iter().any(|(earlier, _)| earlier == name)
            && let Some(item) =
                conversion.plan.items.iter_mut().find(|item| item.section == *section)
        {
            item.outcome = Outcome::Stopped {
                reason: format!("two domains would have the name {name:?}"),
                cure: "Rename one of the domains.".to_owned(),
                can_be_waived: false,
            };
        }
    }
}
