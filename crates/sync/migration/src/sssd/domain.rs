// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[domain/NAME]`: provider, names, ids, homes and shells. The rest of a domain is in `directory`, `login` and
//! `access`.

use super::conf::{HostFacts, Services};
use super::section::{Conversion, Section, Setting};
use super::{access, ad, directory, login};
use crate::ini;
use crate::plan::DomainPlan;
use crate::values::{home_template, list, quoted};

const UNSUPPORTED_PROVIDER: &str =
    "Keep SSSD on this host, or convert the domain to id_provider = ldap first.";

/// Converts a domain. Returns `None` if it needs none in roster.toml, or if it cannot be converted.
pub(super) fn convert(
    conversion: &mut Conversion<'_>,
    name: &str,
    section: &mut Section,
    services: &mut Services,
    facts: &HostFacts,
) -> Option<DomainPlan> {
    let provider = provider(conversion, section)?;
    let mut domain = DomainPlan {
        name: name.to_ascii_lowercase(),
        section: section.name.clone(),
        is_active_directory: provider == SourceProvider::ActiveDirectory,
        ..DomainPlan::default()
    };
    domain.keys.set("provider", quoted("ldap"));
    let ad = domain.is_active_directory.then(|| ad::ad_domain(conversion, section, facts));
    match &ad {
        Some(ad) => ad::convert(conversion, &mut domain, section, services, ad),
        None => directory::convert(conversion, &mut domain, section, services, facts),
    }
    let facts = ad.as_ref().map_or(facts, |ad| &ad.facts);
    names(conversion, &mut domain, section);
    ids(conversion, &mut domain, section);
    homes(conversion, &mut domain, section, services);
    shells(conversion, &mut domain, section, services);
    login::convert(conversion, &mut domain, section, services, facts);
    access::convert(conversion, &mut domain, section);
    if ad.is_some() {
        ad::rest(conversion, section);
    }
    Some(domain)
}

/// A provider of SSSD that can be converted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceProvider {
    Ldap,
    ActiveDirectory,
}

/// Returns the provider. `None` if the domain cannot be converted, or needs no domain in roster.toml.
fn provider(conversion: &mut Conversion<'_>, section: &mut Section) -> Option<SourceProvider> {
    let name = section.name.clone();
    if let Some(setting) = section.take_setting("domain_type") {
        if !setting.value.eq_ignore_ascii_case("posix") {
            let cure =
                "Keep SSSD for the applications of this domain, and remove it from `domains`.";
            let reason = "Roster has no domains for applications without uids";
            conversion.fail(&name, &setting, reason, cure);
            return None;
        }
        conversion.dropped(&name, &setting, "Every domain of Roster has uids and gids.");
    }
    let Some(setting) = section.take_setting("id_provider") else {
        let reason = "the domain has no provider";
        conversion.missing(section, "id_provider", reason, "Write id_provider = ldap.");
        return None;
    };
    let reason = match &*setting.value.to_ascii_lowercase() {
        "ldap" => {
            conversion.mapped(&name, &setting, format!("{name}.provider"));
            return Some(SourceProvider::Ldap);
        }
        "ad" => {
            conversion.mapped(&name, &setting, format!("{name}.provider"));
            return Some(SourceProvider::ActiveDirectory);
        }
        "files" => {
            files_domain(conversion, section, &setting);
            return None;
        }
        "ipa" => {
            "Roster does not read FreeIPA's HBAC rules, views and trusts, which decide about logins"
        }
        "proxy" => "Roster cannot ask another NSS module",
        "local" => "SSSD's local database has no counterpart",
        _ => "Roster has no such provider",
    };
    conversion.fail(&name, &setting, reason, UNSUPPORTED_PROVIDER);
    None
}

/// A domain of local accounts needs nothing, unless it decides about logins of local users.
fn files_domain(conversion: &mut Conversion<'_>, section: &mut Section, setting: &Setting) {
    let name = section.name.clone();
    for key in ["access_provider", "auth_provider", "passwd_files", "group_files"] {
        let Some(found) = section.take_setting(key) else { continue };
        if !matches!(&*found.value, "permit" | "none") {
            let reason =
                "local accounts depend on the setting, and Roster leaves them to other modules";
            conversion.stop(&name, &found, reason, "Restrict local accounts with pam_access(8).");
        }
    }
    conversion.dropped(&name, setting, "Local accounts need no domain: NSS `files` serves them.");
}

fn names(conversion: &mut Conversion<'_>, domain: &mut DomainPlan, section: &mut Section) {
    let name = section.name.clone();
    if roster_config_name(&domain.name).is_none() {
        let setting = Setting {
            name: "domains".into(),
            value: domain.name.clone(),
            origin: section.origin(),
        };
        let reason =
            "the name of the domain has other characters than letters, digits, `.`, `_` and `-`";
        conversion.fail(&name, &setting, reason, "Rename the domain in sssd.conf first.");
    }
    if let Some(setting) = section.take_setting("case_sensitive") {
        let case = match &*setting.value.to_ascii_lowercase() {
            "true" => Some("sensitive"),
            "false" => Some("insensitive"),
            "preserving" => Some("preserving"),
            _ => None,
        };
        match case {
            Some(case) => {
                domain.keys.set("case", quoted(case));
                conversion.mapped(&name, &setting, format!("{name}.case"));
            }
            None => {
                let reason = "the value differs from true, false and preserving";
                conversion.fail(&name, &setting, reason, "Correct the value.");
            }
        }
    }
    let mut qualified = false;
    if let Some(setting) = section.take_setting("use_fully_qualified_names") {
        qualified = conversion.flag(&name, &setting).unwrap_or(false);
        domain.keys.set("qualified_names", qualified.to_string());
        conversion.mapped(&name, &setting, format!("{name}.qualified_names"));
    }
    if let Some(setting) = section.take_setting("full_name_format") {
        if qualified && setting.value != "%1$s@%2$s" {
            let reason = "names would get another form, also in access lists and in other programs";
            let cure = "Roster serves NAME@DOMAIN: adapt the programs, then name the setting in --without.";
            conversion.stop(&name, &setting, reason, cure);
        } else {
            conversion.dropped(
                &name,
                &setting,
                "Roster serves NAME@DOMAIN if names are qualified.",
            );
        }
    }
    private_groups(conversion, domain, section);
    if let Some(setting) = section.take_setting("override_gid") {
        let reason = "every user would get the primary gid of the directory instead";
        let cure = "Correct gidNumber in the directory.";
        conversion.stop(&name, &setting, reason, cure);
    }
    // SSSD lists users only if `enumerate` is set.
    let listed = match section.take_setting("enumerate") {
        Some(setting) => {
            conversion.mapped(&name, &setting, format!("{name}.enumerate"));
            conversion.flag(&name, &setting).unwrap_or(false)
        }
        None => false,
    };
    domain.keys.set("enumerate", listed.to_string());
}

fn private_groups(conversion: &mut Conversion<'_>, domain: &mut DomainPlan, section: &mut Section) {
    let Some(setting) = section.take_setting("auto_private_groups") else { return };
    let name = &section.name;
    let kind = match &*setting.value.to_ascii_lowercase() {
        "true" => "always",
        "hybrid" => "same-id",
        "false" => "off",
        _ => {
            let reason = "the value is unknown, and primary groups could change";
            return conversion.stop(name, &setting, reason, "Write true, hybrid or false.");
        }
    };
    if domain.is_active_directory && kind != "off" {
        if kind == "same-id" && domain.keys.get("id_mapping") == Some("\"sid\"") {
            let note = "A user and a group never have the same id, because ids come from SIDs.";
            conversion.dropped(name, &setting, note);
        } else {
            let reason = "Roster has no private groups with Active Directory, so that primary groups would change";
            let cure = "Compare the primary groups with `roster domain compare-ids` first.";
            conversion.stop(name, &setting, reason, cure);
        }
        return;
    }
    domain.keys.set("private_groups", quoted(kind));
    conversion.mapped(name, &setting, format!("{name}.private_groups"));
}

/// Returns the name if roster.toml accepts it.
fn roster_config_name(name: &str) -> Option<&str> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let valid = name.len() <= 64
        && name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || b"._-".contains(&byte));
    valid.then_some(name)
}

/// Smallest id of a host by default.
const MIN_ID: u64 = 1000;
/// Largest id.
const MAX_ID: u64 = 4_294_967_294;

fn ids(conversion: &mut Conversion<'_>, domain: &mut DomainPlan, section: &mut Section) {
    let name = section.name.clone();
    let mut min = MIN_ID;
    if let Some(setting) = section.take_setting("min_id")
        && let Some(value) = conversion.number(&name, &setting)
    {
        // SSSD's smallest useful value is 1, and Roster never serves 0.
        min = value.clamp(1, MAX_ID);
        conversion.mapped(&name, &setting, format!("{name}.min_id"));
        domain.keys.set("min_id", min.to_string());
    }
    if let Some(setting) = section.take_setting("max_id")
        && let Some(value) = conversion.number(&name, &setting)
    {
        if value == 0 {
            conversion.dropped(&name, &setting, "0 means no limit, which is Roster's default.");
        } else if value < min {
            let reason = "the value is below min_id, so that no entry would be served";
            conversion.fail(&name, &setting, reason, "Correct min_id or max_id.");
        } else {
            domain.keys.set("max_id", value.min(MAX_ID).to_string());
            conversion.mapped(&name, &setting, format!("{name}.max_id"));
        }
    }
    // The host's minimum is the smallest one of its domains.
    let host: u64 =
        conversion.plan.host.get("min_id").and_then(|id| id.parse().ok()).unwrap_or(MIN_ID);
    if min < host {
        conversion.plan.host.set("min_id", min.to_string());
        conversion.plan.note(format!(
            "min_id = {min} accepts ids below 1000. Compare them with the system accounts of this host."
        ));
    }
    if domain.keys.get("min_id").is_none() {
        // Another domain may lower the host's minimum.
        domain.keys.set("min_id", MIN_ID.to_string());
    }
}

/// Takes a setting of the domain, or of `[nss]`. The domain's setting wins.
fn inherited(
    section: &mut Section,
    services: &mut Services,
    key: &str,
) -> Option<(String, Setting)> {
    let of_service = services.nss.take_setting(key).map(|setting| ("nss".to_owned(), setting));
    let of_domain = section.take_setting(key).map(|setting| (section.name.clone(), setting));
    of_domain.or(of_service)
}

fn homes(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    services: &mut Services,
) {
    let substring = inherited(section, services, "homedir_substring");
    if let Some((owner, setting)) = &substring {
        conversion.dropped(owner, setting, "%H in templates is replaced by this text.");
    }
    let substring = substring.as_ref().map(|(_, setting)| &*setting.value);
    for (key, target) in [("override_homedir", "home"), ("fallback_homedir", "fallback_home")] {
        let found = match (domain.is_active_directory, target) {
            (true, "fallback_home") => ad_fallback_home(conversion, domain, section, services),
            _ => inherited(section, services, key),
        };
        let Some((owner, setting)) = found else { continue };
        if setting.value.is_empty() {
            conversion.dropped(&owner, &setting, "An empty template has no effect.");
            continue;
        }
        match home_template(&setting.value, substring) {
            Ok(template) => {
                let template = match target {
                    "fallback_home" => without_original(&template),
                    _ => template,
                };
                let key = if template.is_empty() { "allow_empty_home" } else { target };
                if !template.is_empty() {
                    domain.keys.set(target, quoted(&template));
                }
                conversion.mapped(&owner, &setting, format!("{}.{key}", section.name));
            }
            Err(sequence) => {
                let reason = format!("{sequence} has no counterpart, and homes would change");
                let cure = format!("Replace {sequence} in the template.");
                conversion.stop(&owner, &setting, &reason, &cure);
            }
        }
    }
    if domain.keys.get("fallback_home").is_none() && domain.keys.get("home").is_none() {
        // SSSD serves users without a home.
        domain.keys.set("allow_empty_home", "true".to_owned());
    } else if domain.keys.get("home").is_some() && domain.keys.get("fallback_home").is_some() {
        // The override wins in both.
        domain.keys.remove("fallback_home");
    }
}

/// Homes of users without one, in a domain with `id_provider = ad`.
pub(crate) const AD_FALLBACK_HOME: &str = "/home/%d/%u";

/// Takes the setting of the domain. Its default wins over the setting of `[nss]` (since SSSD 2.1).
fn ad_fallback_home(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    services: &mut Services,
) -> Option<(String, Setting)> {
    let setting = section.take_setting("fallback_homedir");
    if let Some(unused) = services.nss.take_setting("fallback_homedir") {
        let note = "A domain of Active Directory has its own template, by default /home/%d/%u.";
        conversion.dropped("nss", &unused, note);
    }
    if setting.is_none() {
        domain.keys.set("fallback_home", quoted(AD_FALLBACK_HOME));
    }
    setting.map(|setting| (section.name.clone(), setting))
}

/// Removes the directory's home from a template. It is empty for users that get a fallback.
fn without_original(template: &str) -> String {
    let parts: Vec<_> =
        template.split("%%").map(|part| part.replace("%o", "").replace("%h", "")).collect();
    parts.join("%%")
}

fn shells(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    services: &mut Services,
) {
    let name = section.name.clone();
    for (key, target) in [("override_shell", "shell"), ("default_shell", "fallback_shell")] {
        let Some((owner, setting)) = inherited(section, services, key) else { continue };
        domain.keys.set(target, quoted(&setting.value.replace('%', "%%")));
        conversion.mapped(&owner, &setting, format!("{name}.{target}"));
    }
    if domain.keys.get("shell").is_some() {
        domain.keys.remove("fallback_shell");
    } else if domain.is_active_directory && domain.keys.get("fallback_shell").is_none() {
        // SSSD serves an empty field, which programs read as this shell.
        domain.keys.set("fallback_shell", quoted(EMPTY_SHELL));
    }
    let [vetoed, allowed, fallback] = ["vetoed_shells", "allowed_shells", "shell_fallback"]
        .map(|key| inherited(section, services, key));
    if domain.keys.get("shell").is_some() {
        for (owner, setting) in [vetoed, allowed, fallback].into_iter().flatten() {
            conversion.dropped(&owner, &setting, "SSSD serves override_shell without this check.");
        }
        return;
    }
    allowed_shells(conversion, domain, ShellSettings { vetoed, allowed, fallback });
}

/// The shell of an empty field (passwd(5)).
pub(crate) const EMPTY_SHELL: &str = "/bin/sh";

/// The settings of SSSD about shells, each with its section.
struct ShellSettings {
    vetoed: Option<(String, Setting)>,
    allowed: Option<(String, Setting)>,
    fallback: Option<(String, Setting)>,
}

/// The shell that SSSD serves instead of a vetoed one, unless `shell_fallback` names another.
pub(crate) const SHELL_FALLBACK: &str = "/bin/sh";
/// The shell that SSSD serves instead of one that the host lacks.
pub(crate) const NOLOGIN_SHELL: &str = "/sbin/nologin";

/// SSSD serves a shell of /etc/shells, replaces a vetoed one and one of `allowed_shells` that is missing there, and
/// serves nologin for any other.
fn allowed_shells(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    settings: ShellSettings,
) {
    let ShellSettings { vetoed, allowed, fallback } = settings;
    let name = domain.section.clone();
    let is_any = |(_, setting): &(String, Setting)| ini::list(&setting.value).contains(&"*");
    let allows_any = allowed.as_ref().is_some_and(is_any);
    let has_rules = vetoed.is_some() || allowed.is_some();
    if let Some((owner, setting)) = &vetoed {
        domain.keys.set("refused_shells", list(&ini::list(&setting.value)));
        conversion.mapped(owner, setting, format!("{name}.refused_shells"));
    }
    if let Some((owner, setting)) = &allowed {
        conversion.mapped(owner, setting, format!("{name}.allowed_shells"));
    }
    // Without both settings SSSD serves any shell.
    if has_rules {
        domain.keys.set("allowed_shells", quoted("/etc/shells"));
    }
    let uses_fallback = vetoed.is_some() || allows_any;
    let shell = fallback.as_ref().map_or(SHELL_FALLBACK, |(_, setting)| &*setting.value);
    if uses_fallback {
        domain.keys.set("replacement_shell", quoted(shell));
    }
    if has_rules && !allows_any {
        let key = if uses_fallback { "unlisted_shell" } else { "replacement_shell" };
        domain.keys.set(key, quoted(NOLOGIN_SHELL));
    }
    match &fallback {
        Some((owner, setting)) if uses_fallback => {
            conversion.mapped(owner, setting, format!("{name}.replacement_shell"));
        }
        Some((owner, setting)) => {
            let note = "Only a shell of allowed_shells that /etc/shells lacks would have it. Roster serves nologin.";
            conversion.dropped(owner, setting, note);
        }
        None => {}
    }
    if allowed.is_some() && !allows_any {
        conversion.plan.note(
            "SSSD replaces a shell of allowed_shells that /etc/shells lacks by shell_fallback, and other shells that the \
             file lacks by nologin. Roster replaces both by nologin.",
        );
    }
}
