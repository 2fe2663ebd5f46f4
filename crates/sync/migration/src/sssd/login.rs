// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passwords of a domain: method, Kerberos, cached credentials, password changes. The bind of the host itself is in
//! `directory`.

use super::conf::{HostFacts, Services};
use super::directory;
use super::section::{Conversion, Section, Setting};
use crate::ini;
use crate::krb5_conf::RealmServers;
use crate::plan::DomainPlan;
use crate::values::{list, quoted};

const DAY_S: u64 = 86_400;

pub(super) fn convert(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    services: &mut Services,
    facts: &HostFacts,
) {
    let name = section.name.clone();
    let setting = section.take_setting("auth_provider");
    let default = if domain.is_active_directory { "ad" } else { "ldap" };
    let method = setting.as_ref().map_or(default, |setting| &*setting.value).to_ascii_lowercase();
    // SSSD's provider for Active Directory logs in by Kerberos.
    let is_ad = domain.is_active_directory && method == "ad";
    let method = if is_ad { "krb5".to_owned() } else { method };
    if !matches!(&*method, "ldap" | "krb5" | "none") {
        if let Some(setting) = &setting {
            let reason = "Roster verifies passwords by LDAP or by Kerberos only";
            let cure = "Use auth_provider = ldap or krb5, or none with another PAM module.";
            conversion.fail(&name, setting, reason, cure);
        }
        return;
    }
    domain.keys.set("auth", quoted(&method));
    if let Some(setting) = &setting {
        conversion.mapped(&name, setting, format!("{name}.auth"));
    }
    match &*method {
        "krb5" => kerberos(conversion, domain, section, facts),
        "ldap" => password_change(conversion, domain, section),
        _ => {}
    }
    if method != "krb5" && domain.keys.get("bind") == Some("\"gssapi\"") {
        // The reader's ticket comes from these KDCs.
        realm_and_kdcs(conversion, domain, section, facts);
    }
    if method != "none" {
        offline(conversion, domain, section, &mut services.pam);
    }
    if let Some(setting) = section.take_setting("krb5_auth_timeout")
        && method == "krb5"
        && let Some(seconds) = conversion.number(&name, &setting)
    {
        domain.keys.set("auth_timeout", quoted(&format!("{}s", seconds.clamp(1, 60))));
        conversion.mapped(&name, &setting, format!("{name}.auth_timeout"));
    }
    if let Some(setting) = section.take_setting("chpass_provider") {
        if setting.value.eq_ignore_ascii_case("none") && method != "none" {
            let reason = "users could change their passwords through Roster, which SSSD refuses";
            let cure = "Forbid it in the directory or the KDC, or remove pam_roster.so from the `password` lines of \
                        PAM.";
            conversion.stop(&name, &setting, reason, cure);
        } else {
            let note = "Password changes use the method of `auth`.";
            conversion.dropped(&name, &setting, note);
        }
    }
}

fn password_change(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
) {
    let name = section.name.clone();
    if let Some(setting) = section.take_setting("ldap_pwmodify_mode") {
        let mode =
            if setting.value.eq_ignore_ascii_case("ldap_modify") { "modify" } else { "extended" };
        domain.keys.set("password_change", quoted(mode));
        conversion.mapped(&name, &setting, format!("{name}.password_change"));
    }
    if let Some(setting) = section.take_setting("ldap_chpass_update_last_change") {
        let wanted = conversion.flag(&name, &setting).unwrap_or(true);
        let value = if wanted { "auto" } else { "never" };
        domain.keys.set("update_shadow_last_change", quoted(value));
        conversion.mapped(&name, &setting, format!("{name}.update_shadow_last_change"));
    }
}

fn kerberos(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    facts: &HostFacts,
) {
    let name = section.name.clone();
    if !realm_and_kdcs(conversion, domain, section, facts) {
        return;
    }
    if let Some(setting) = section.take_setting("krb5_keytab") {
        directory::keytab(conversion, domain, &name, &setting);
    }
    validation(conversion, domain, section);
    tickets(conversion, domain, section, facts);
    principals(conversion, domain, section);
}

/// Settings by which a user's principal is not NAME@REALM.
fn principals(conversion: &mut Conversion<'_>, domain: &DomainPlan, section: &mut Section) {
    let name = section.name.clone();
    if let Some(setting) = section.take_setting("krb5_map_user") {
        let reason = "a user would log in with the principal of the user's own name, maybe of another person";
        let cure = "Rename the principals, or let another PAM module authenticate these users.";
        conversion.stop(&name, &setting, reason, cure);
    }
    match section.take_setting("ldap_user_principal") {
        Some(setting) if is_no_attribute(&setting.value) => {
            conversion.dropped(&name, &setting, "Roster uses the principal NAME@REALM.");
        }
        Some(setting) => {
            let reason = "Roster uses the principal NAME@REALM, which may belong to another person";
            let cure = "Check that each user's principal is NAME@REALM.";
            conversion.stop(&name, &setting, reason, cure);
        }
        None if domain.is_active_directory => conversion.plan.note(format!(
            "[{name}]: SSSD logs in with userPrincipalName. Roster uses sAMAccountName@REALM, which is a name of the \
             same user, unless another user has it as userPrincipalName."
        )),
        None => conversion.plan.note(format!(
            "[{name}]: SSSD uses the principal in krbPrincipalName if an entry has it. Roster uses NAME@REALM. Check \
             that each user's principal is NAME@REALM."
        )),
    }
}

/// Returns whether an attribute is the customary value by which SSSD finds no principal in an entry.
fn is_no_attribute(attribute: &str) -> bool {
    ["none", "nosuchattr", "nosuchattribute"].contains(&&*attribute.to_ascii_lowercase())
}

/// Sets the realm and its servers. Returns whether the realm is known.
fn realm_and_kdcs(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    facts: &HostFacts,
) -> bool {
    let name = section.name.clone();
    let sasl_realm = section.peek("ldap_sasl_realm").map(str::to_owned);
    let realm = match section.take_setting("krb5_realm") {
        Some(setting) => {
            conversion.mapped(&name, &setting, format!("{name}.krb5_realm"));
            Some(setting.value)
        }
        None => sasl_realm.or_else(|| facts.krb5.libdefaults.get("default_realm").cloned()),
    };
    let Some(realm) = realm else {
        let cure = "Write krb5_realm, or default_realm in krb5.conf.";
        conversion.missing(section, "krb5_realm", "the realm is unknown", cure);
        return false;
    };
    domain.keys.set("krb5_realm", quoted(&realm));
    let known = facts.krb5.realms.get(&realm).cloned().unwrap_or_default();
    kdcs(conversion, domain, section, &known);
    true
}

/// Returns whether a text of krb5.conf is a host with an optional port.
fn is_host(text: &&String) -> bool {
    !text.contains(['/', '@']) && !text.is_empty()
}

fn kdcs(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    known: &RealmServers,
) {
    let name = section.name.clone();
    let mut servers = [Vec::new(), Vec::new()];
    let mut discovers = false;
    for (kind, keys) in
        [(0, ["krb5_server", "krb5_backup_server"]), (1, ["krb5_kpasswd", "krb5_backup_kpasswd"])]
    {
        let target = ["krb5_kdcs", "krb5_kpasswd"][kind];
        for setting in keys.iter().filter_map(|key| section.take_setting(key)) {
            for host in ini::list(&setting.value) {
                if host.eq_ignore_ascii_case("_srv_") {
                    discovers = true;
                } else {
                    servers[kind].push(host.to_owned());
                }
            }
            conversion.mapped(&name, &setting, format!("{name}.{target}"));
        }
    }
    let [mut kdcs, mut kpasswd] = servers;
    if kdcs.is_empty() {
        kdcs.extend(known.kdcs.iter().filter(is_host).cloned());
        discovers |= kdcs.is_empty();
    }
    if kpasswd.is_empty() {
        kpasswd.extend(known.kpasswd.iter().filter(is_host).cloned());
    }
    if kpasswd.is_empty() && !known.admin.is_empty() {
        // The port of kadmind is not that of the password service.
        kpasswd
            .extend(known.admin.iter().filter(is_host).map(|host| without_port(host).to_owned()));
    }
    if !kdcs.is_empty() {
        domain.keys.set("krb5_kdcs", list(&kdcs));
    }
    if !kpasswd.is_empty() {
        domain.keys.set("krb5_kpasswd", list(&kpasswd));
    }
    if discovers {
        domain.keys.set("krb5_discover", "true".into());
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') && port.parse::<u16>().is_ok() => name,
        _ => host,
    }
}

fn validation(conversion: &mut Conversion<'_>, domain: &mut DomainPlan, section: &mut Section) {
    let name = section.name.clone();
    let mut value = match section.take_setting("krb5_validate") {
        Some(setting) => {
            conversion.mapped(&name, &setting, format!("{name}.krb5_validate"));
            if conversion.flag(&name, &setting) == Some(true) { "required" } else { "off" }
        }
        // SSSD's provider for Active Directory verifies KDCs by default.
        None if domain.is_active_directory => "required",
        None => "auto",
    };
    if fast_principal(conversion, domain, section) {
        value = "required";
    }
    if let Some(setting) = section.take_setting("krb5_use_fast") {
        if setting.value.eq_ignore_ascii_case("demand") {
            // FAST needs the keytab, and Roster uses it whenever there is one.
            value = "required";
            conversion.mapped(&name, &setting, format!("{name}.krb5_validate"));
        } else {
            conversion.dropped(
                &name,
                &setting,
                "Roster uses FAST as soon as the host has a keytab.",
            );
        }
    }
    domain.keys.set("krb5_validate", quoted(value));
    if value != "required" {
        conversion.plan.note(format!(
            "[{name}]: krb5_validate = \"{value}\", because SSSD does not verify KDCs by default. Set \"required\" as \
             soon as this host has a keytab."
        ));
    }
}

/// Converts the principal of FAST. Returns whether one is set and in use.
fn fast_principal(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
) -> bool {
    let name = section.name.clone();
    let mode = section.peek("krb5_use_fast").unwrap_or("never");
    let has_fast = ["try", "demand"].iter().any(|known| mode.eq_ignore_ascii_case(known));
    let Some(setting) = section.take_setting("krb5_fast_principal") else { return false };
    let note = match (has_fast, setting.value.is_empty()) {
        (true, false) => {
            domain.keys.set("krb5_fast_principal", quoted(&setting.value));
            conversion.mapped(&name, &setting, format!("{name}.krb5_fast_principal"));
            return true;
        }
        (true, true) => "Without a principal, FAST uses the first key that the KDC accepts.",
        (false, _) => "It counts with krb5_use_fast = try or demand only.",
    };
    conversion.dropped(&name, &setting, note);
    false
}

fn tickets(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    facts: &HostFacts,
) {
    let name = section.name.clone();
    let folder = section.take_setting("krb5_ccachedir");
    let template = section.take_setting("krb5_ccname_template");
    let default = facts.krb5.libdefaults.get("default_ccache_name");
    let text = template.as_ref().map(|setting| &setting.value).or(default);
    let directory = folder.as_ref().map_or("/tmp", |setting| &*setting.value);
    let cache = text.map(|text| cache_name(text, directory));
    match &cache {
        Some(Some(cache)) => domain.keys.set("krb5_cache", quoted(cache)),
        Some(None) => conversion.plan.note(format!(
            "[{name}]: the name of the credential cache has no counterpart. Tickets go to \
             FILE:/tmp/krb5cc_%{{uid}}_XXXXXX."
        )),
        None => {}
    }
    for setting in [&folder, &template].into_iter().flatten() {
        if matches!(cache, Some(None)) {
            let note = "Roster stores tickets in FILE:/tmp/krb5cc_%{uid}_XXXXXX.";
            conversion.dropped(&name, setting, note);
        } else {
            conversion.mapped(&name, setting, format!("{name}.krb5_cache"));
        }
    }
    for (setting, key, max) in [
        ("krb5_lifetime", "krb5_lifetime", 30 * DAY_S),
        ("krb5_renewable_lifetime", "krb5_renewable", 366 * DAY_S),
    ] {
        let Some(setting) = section.take_setting(setting) else { continue };
        match seconds(&setting.value) {
            Some(value) => {
                domain.keys.set(key, quoted(&format!("{}s", value.min(max))));
                conversion.mapped(&name, &setting, format!("{name}.{key}"));
            }
            None => conversion.dropped(
                &name,
                &setting,
                "The KDC decides, because the value is not a duration.",
            ),
        }
    }
    let forwardable = facts.krb5.libdefaults.get("forwardable");
    if forwardable.is_some_and(|value| matches!(&*value.to_ascii_lowercase(), "true" | "yes" | "1"))
    {
        domain.keys.set("krb5_forwardable", "true".into());
    }
}

/// Parses a duration: a number with an optional unit.
fn seconds(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => DAY_S,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Converts the name of a credential cache. `None` without a counterpart.
fn cache_name(text: &str, directory: &str) -> Option<String> {
    let text = text.replace("%U", "%{uid}").replace("%d", directory);
    if text.replace("%{uid}", "").contains(['%', '{', '}']) {
        return None;
    }
    if text.starts_with("KCM:") {
        return Some("KCM:".to_owned());
    }
    if text.starts_with("KEYRING:persistent:") {
        return Some("KEYRING:persistent:%{uid}".to_owned());
    }
    let text = if text.starts_with('/') { format!("FILE:{text}") } else { text };
    match text.split_once(':')? {
        ("FILE", path) if path.starts_with('/') && path.ends_with("XXXXXX") => Some(text),
        ("FILE", path) if path.starts_with('/') => Some(format!("{text}_XXXXXX")),
        ("DIR", path) if path.starts_with('/') => Some(text),
        _ => None,
    }
}

fn offline(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    pam: &mut Section,
) {
    let name = section.name.clone();
    let kept = match section.take_setting("cache_credentials") {
        Some(setting) => {
            conversion.mapped(&name, &setting, format!("{name}.offline_credentials"));
            conversion.flag(&name, &setting).unwrap_or(false)
        }
        // SSSD's default differs from Roster's.
        None => false,
    };
    domain.keys.set("offline_credentials", kept.to_string());
    // SSSD forgets a user that did not log in for so many days, and the password with it.
    let forgotten = section.take_setting("account_cache_expiration");
    let days = forgotten.as_ref().and_then(|setting| conversion.number(&name, setting));
    let days_max = days.filter(|days| (1..=366).contains(days)).unwrap_or(366);
    if let Some(setting) = &forgotten {
        conversion.mapped(&name, setting, format!("{name}.offline_credentials_expiration"));
    }
    let settings: Vec<(&str, Option<Setting>)> = [
        "offline_credentials_expiration",
        "offline_failed_login_attempts",
        "offline_failed_login_delay",
    ]
    .map(|key| (key, pam.take_setting(key)))
    .into();
    for (key, setting) in settings {
        let Some(setting) = setting else {
            // By default SSSD limits neither days nor attempts.
            match key {
                "offline_credentials_expiration" if kept => {
                    domain.keys.set(key, quoted(&format!("{days_max}d")));
                    conversion.plan.note(format!(
                        "[{name}]: cached passwords expire after {days_max} days. SSSD has no limit by default."
                    ));
                }
                _ => {}
            }
            continue;
        };
        if !kept {
            conversion.dropped("pam", &setting, "A domain without cached credentials needs none.");
            continue;
        }
        let Some(value) = conversion.number("pam", &setting) else { continue };
        let text = match (key, value) {
            ("offline_credentials_expiration", 0) => quoted(&format!("{days_max}d")),
            ("offline_credentials_expiration", days) => quoted(&format!("{}d", days.min(days_max))),
            ("offline_failed_login_attempts", 0) => "1000".to_owned(),
            ("offline_failed_login_attempts", count) => count.min(1000).to_string(),
            // Only a login with the directory ends the lock.
            (_, 0) => quoted("30d"),
            (_, minutes) => quoted(&format!("{}m", minutes.min(30 * 24 * 60))),
        };
        domain.keys.set(key, text);
        conversion.mapped("pam", &setting, format!("{name}.{key}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_name_of_sssd_converts_or_is_refused() {
        for (text, expected) in [
            ("FILE:%d/krb5cc_%U_XXXXXX", Some("FILE:/tmp/krb5cc_%{uid}_XXXXXX")),
            ("FILE:/tmp/krb5cc_%{uid}", Some("FILE:/tmp/krb5cc_%{uid}_XXXXXX")),
            ("/tmp/cc_%U", Some("FILE:/tmp/cc_%{uid}_XXXXXX")),
            ("KEYRING:persistent:%U", Some("KEYRING:persistent:%{uid}")),
            ("KCM:%{uid}", Some("KCM:")),
            ("DIR:/run/user/%U/krb5cc", Some("DIR:/run/user/%{uid}/krb5cc")),
            ("FILE:/tmp/krb5cc_%u", None),
            ("MEMORY:x", None),
        ] {
            assert_eq!(cache_name(text, "/tmp").as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn admin_server_loses_its_port() {
        for (host, name) in
            [("adm:749", "adm"), ("adm", "adm"), ("::1", "::1"), ("[::1]:749", "[::1]:749")]
        {
            assert_eq!(without_port(host), name);
        }
        assert_eq!((seconds("10h"), seconds("90"), seconds("x")), (Some(36_000), Some(90), None));
    }
}
