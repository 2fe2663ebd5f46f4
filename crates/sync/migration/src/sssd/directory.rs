// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers, TLS, bind, searches and attributes of an LDAP domain. Passwords of users are in `login`, and access rules
//! in `access`.

use super::conf::{HostFacts, Services};
use super::section::{Conversion, Section, Setting};
use crate::ini;
use crate::plan::{DomainPlan, Password};
use crate::values::{self, list, quoted, search_bases};

/// Directories with the authorities of a host, which Roster reads by default.
const HOST_AUTHORITIES: [&str; 4] =
    ["/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/tls", "/etc/openldap/certs"];

pub(super) fn convert(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    services: &mut Services,
    facts: &HostFacts,
) {
    servers(conversion, domain, section, facts);
    tls(conversion, domain, section);
    bind(conversion, domain, section, facts);
    searches(conversion, domain, section, services, &DirectoryDefaults::LDAP);
    schema(conversion, domain, section);
    attributes(conversion, domain, section);
    times(conversion, domain, section);
}

fn servers(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    facts: &HostFacts,
) {
    let name = section.name.clone();
    let mut uris: Vec<String> = Vec::new();
    let mut discovers = false;
    let first = section.take_setting("ldap_uri");
    discovers |= first.is_none();
    for setting in [first, section.take_setting("ldap_backup_uri")].into_iter().flatten() {
        for uri in ini::list(&setting.value) {
            if uri.eq_ignore_ascii_case("_srv_") {
                discovers = true;
            } else if !uris.iter().any(|known| known == uri) {
                uris.push(uri.to_owned());
            }
        }
        conversion.mapped(&name, &setting, format!("{name}.uris"));
    }
    if !uris.is_empty() {
        domain.keys.set("uris", list(&uris));
    }
    let found = section.take_setting("dns_discovery_domain");
    if !discovers {
        if let Some(setting) = found {
            conversion.dropped(&name, &setting, "`uris` lists the servers.");
        }
        return;
    }
    match (found, &facts.dns_domain) {
        (Some(setting), _) => {
            domain.keys.set("discover", quoted(setting.value.trim_end_matches('.')));
            conversion.mapped(&name, &setting, format!("{name}.discover"));
        }
        (None, Some(dns)) => domain.keys.set("discover", quoted(dns)),
        (None, None) => conversion.missing(
            section,
            "ldap_uri",
            "the DNS domain of service discovery is unknown",
            "Write dns_discovery_domain or ldap_uri.",
        ),
    }
}

/// Returns whether a connection of this domain may be without TLS: `ldap://` to another host, or a discovered server.
fn has_clear_server(domain: &DomainPlan) -> bool {
    domain.keys.get("uris").is_some_and(|uris| uris.to_ascii_lowercase().contains("\"ldap://"))
        || domain.keys.get("discover").is_some()
}

fn tls(conversion: &mut Conversion<'_>, domain: &mut DomainPlan, section: &mut Section) {
    let name = section.name.clone();
    let mut start_tls = false;
    if let Some(setting) = section.take_setting("ldap_id_use_start_tls") {
        start_tls = conversion.flag(&name, &setting).unwrap_or(false);
        conversion.mapped(&name, &setting, format!("{name}.start_tls"));
    }
    // SSSD always uses StartTLS for a password. Roster has one setting for all connections.
    let is_ldap_auth = section.peek("auth_provider").unwrap_or("ldap").eq_ignore_ascii_case("ldap");
    let never = section.peek("ldap_auth_disable_tls_never_use_in_production");
    let has_clear_passwords = never.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    if let Some(setting) = section.take_setting("ldap_auth_disable_tls_never_use_in_production") {
        conversion.mapped(&name, &setting, format!("{name}.allow_clear_user_passwords"));
    }
    let has_clear = has_clear_server(domain);
    if has_clear && is_ldap_auth && !has_clear_passwords && !start_tls {
        start_tls = true;
        conversion.plan.note(format!(
            "[{name}]: start_tls also protects lookups. SSSD used StartTLS for passwords only."
        ));
    }
    let mixed = domain.keys.get("uris").is_some_and(|uris| uris.contains("\"ldaps://"));
    if has_clear && start_tls && mixed {
        let setting = Setting {
            name: "ldap_uri".into(),
            value: "ldap:// and ldaps://".into(),
            origin: section.origin(),
        };
        let reason = "start_tls cannot be used together with ldaps:// in one domain";
        conversion.fail(
            &name,
            &setting,
            reason,
            "Write ldaps:// for all servers, or ldap:// for all.",
        );
    }
    if has_clear && start_tls {
        domain.keys.set("start_tls", "true".into());
    } else if has_clear {
        let has_seal = section.peek("ldap_sasl_mech").is_some_and(is_gssapi);
        if !has_seal {
            domain.keys.set("allow_clear_identities", "true".into());
            conversion.plan.note(format!(
                "[{name}]: users and groups cross the network without TLS, as with SSSD. Prefer ldaps:// or start_tls."
            ));
        }
        if section.peek("ldap_default_authtok").is_some() {
            domain.keys.set("allow_clear_password", "true".into());
        }
        if is_ldap_auth && has_clear_passwords {
            domain.keys.set("allow_clear_user_passwords", "true".into());
        }
    }
    authorities(conversion, domain, section);
    for (key, target) in [("ldap_tls_cert", "tls_cert"), ("ldap_tls_key", "tls_key")] {
        if let Some(setting) = section.take_setting(key) {
            domain.keys.set(target, quoted(&setting.value));
            conversion.mapped(&name, &setting, format!("{name}.{target}"));
        }
    }
}

fn authorities(conversion: &mut Conversion<'_>, domain: &mut DomainPlan, section: &mut Section) {
    let name = section.name.clone();
    let file = section.take_setting("ldap_tls_cacert");
    if let Some(setting) = &file {
        domain.keys.set("tls_ca", quoted(&setting.value));
        conversion.mapped(&name, setting, format!("{name}.tls_ca"));
    }
    let has_directory = section.peek("ldap_tls_cacertdir").is_some();
    let has_tls = domain.keys.get("start_tls").is_some()
        || domain.keys.get("uris").is_some_and(|uris| uris.contains("\"ldaps://"));
    if has_tls && file.is_none() && !has_directory {
        conversion.plan.note(format!(
            "[{name}]: without ldap_tls_cacert SSSD trusts the TLS_CACERT of ldap.conf, and Roster trusts the host's \
             authorities. Set tls_ca."
        ));
    }
    if let Some(setting) = section.take_setting("ldap_tls_cacertdir") {
        let is_host = HOST_AUTHORITIES.contains(&setting.value.trim_end_matches('/'));
        if is_host && file.is_none() {
            conversion.dropped(
                &name,
                &setting,
                "Roster uses the host's own authorities by default.",
            );
        } else {
            let reason = "Roster would trust other authorities than those of the directory";
            let cure = "Concatenate its certificates into one file, name the file in ldap_tls_cacert, and \
                        remove the setting.";
            conversion.stop(&name, &setting, reason, cure);
        }
    }
    if let Some(setting) = section.take_setting("ldap_tls_reqcert") {
        let note = match &*setting.value.to_ascii_lowercase() {
            "demand" | "hard" => "Roster always checks certificates.",
            _ => {
                conversion.plan.note(format!(
                    "[{name}]: Roster always checks the servers' certificates. Set tls_ca, and check the names in \
                     the certificates."
                ));
                "Roster always checks certificates, which is stricter."
            }
        };
        conversion.dropped(&name, &setting, note);
    }
}

fn is_gssapi(mechanism: &str) -> bool {
    matches!(&*mechanism.to_ascii_uppercase(), "GSSAPI" | "GSS-SPNEGO")
}

fn bind(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    facts: &HostFacts,
) {
    let name = section.name.clone();
    let mechanism = section.take_setting("ldap_sasl_mech");
    match mechanism.as_ref().map(|setting| setting.value.to_ascii_uppercase()).as_deref() {
        Some("GSSAPI" | "GSS-SPNEGO") => gssapi(conversion, domain, section),
        Some("EXTERNAL") => domain.keys.set("bind", quoted("external")),
        Some(_) => {
            if let Some(setting) = &mechanism {
                let reason = "Roster binds by GSSAPI, by EXTERNAL or with a password";
                conversion.fail(&name, setting, reason, "Use one of them.");
            }
            return;
        }
        None => simple_bind(conversion, domain, section, facts),
    }
    if let Some(setting) = &mechanism {
        conversion.mapped(&name, setting, format!("{name}.bind"));
    }
    for key in ["ldap_default_bind_dn", "ldap_default_authtok", "ldap_default_authtok_type"] {
        if mechanism.is_some()
            && let Some(setting) = section.take_setting(key)
        {
            conversion.dropped(&name, &setting, "The SASL bind replaces it, as in SSSD.");
        }
    }
}

pub(super) fn gssapi(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
) {
    let name = section.name.clone();
    domain.keys.set("bind", quoted("gssapi"));
    let realm = section.take_setting("ldap_sasl_realm");
    if let Some(setting) = section.take_setting("ldap_sasl_authid") {
        let principal = match &realm {
            Some(realm) if !setting.value.contains('@') => {
                format!("{}@{}", setting.value, realm.value)
            }
            _ => setting.value.clone(),
        };
        domain.keys.set("bind_principal", quoted(&principal));
        conversion.mapped(&name, &setting, format!("{name}.bind_principal"));
    }
    if let Some(setting) = realm {
        conversion.mapped(&name, &setting, format!("{name}.bind_principal"));
    }
    if let Some(setting) = section.take_setting("ldap_krb5_keytab") {
        keytab(conversion, domain, &name, &setting);
    }
}

/// Sets the keytab of the domain, which has one.
pub(super) fn keytab(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    name: &str,
    setting: &Setting,
) {
    let path = quoted(setting.value.strip_prefix("FILE:").unwrap_or(&setting.value));
    match domain.keys.get("krb5_keytab") {
        Some(known) if known != path => {
            let reason = "the domain has another keytab for its other Kerberos work";
            conversion.fail(name, setting, reason, "Put the keys into one keytab.");
        }
        _ => {
            domain.keys.set("krb5_keytab", path);
            conversion.mapped(name, setting, format!("{name}.krb5_keytab"));
        }
    }
}

fn simple_bind(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    facts: &HostFacts,
) {
    let name = section.name.clone();
    let dn = section.take_setting("ldap_default_bind_dn");
    let token = section.take_setting("ldap_default_authtok");
    if let Some(setting) = section.take_setting("ldap_default_authtok_type") {
        if !setting.value.eq_ignore_ascii_case("password") {
            let reason = "the password is obfuscated, and SSSD's obfuscation has no counterpart";
            let cure = "Write the password in plain text into ldap_default_authtok, with \
                        ldap_default_authtok_type = password.";
            conversion.fail(&name, &setting, reason, cure);
            return;
        }
        conversion.mapped(&name, &setting, format!("{name}.bind_password_file"));
    }
    match (dn, token) {
        (Some(dn), Some(token)) => {
            domain.keys.set("bind_dn", quoted(&dn.value));
            let file = facts.password_directory.join(format!("{}.password", domain.name));
            domain.keys.set("bind_password_file", quoted(&file.display().to_string()));
            domain.password = Some(Password::new(&token.value));
            conversion.mapped(&name, &dn, format!("{name}.bind_dn"));
            conversion.mapped(&name, &token, format!("{name}.bind_password_file"));
        }
        (Some(dn), None) => {
            let reason = "the password is missing, and Roster does not bind without one";
            let cure = "Write ldap_default_authtok, or remove the DN for anonymous searches.";
            conversion.fail(&name, &dn, reason, cure);
        }
        (None, Some(token)) => {
            conversion.dropped(&name, &token, "Without ldap_default_bind_dn it has no effect.");
        }
        (None, None) => {}
    }
}

/// Searches of SSSD without settings.
pub(super) struct DirectoryDefaults {
    /// Filters and attributes with the names, of users and of groups.
    kinds: [(&'static [&'static str], &'static str); 2],
}

impl DirectoryDefaults {
    pub(super) const LDAP: Self = Self {
        kinds: [(&["(objectClass=posixAccount)"], "uid"), (&["(objectClass=posixGroup)"], "cn")],
    };

    /// Returns the filters of `schema = "ad"`, in parts.
    pub(super) fn of_active_directory(domain: &DomainPlan) -> Self {
        let [users, groups] = match has_ids_from_sids(domain) {
            true => [&AD_USERS[..2], &AD_GROUPS[..3]],
            false => [&AD_USERS[..], &AD_GROUPS[..]],
        };
        Self { kinds: [(users, "sAMAccountName"), (groups, "sAMAccountName")] }
    }
}

/// Accounts of people and services. The last part finds users with POSIX attributes.
const AD_USERS: [&str; 3] = ["(objectClass=user)", "(sAMAccountType=805306368)", "(uidNumber=*)"];
/// Security groups of the domain. The last part finds groups with POSIX attributes.
const AD_GROUPS: [&str; 4] = [
    "(objectClass=group)",
    "(|(sAMAccountType=268435456)(sAMAccountType=536870912))",
    "(!(groupType=-2147483643))",
    "(gidNumber=*)",
];

/// Returns whether ids come from SIDs. Attributes with ids have no effect then.
fn has_ids_from_sids(domain: &DomainPlan) -> bool {
    domain.keys.get("id_mapping") == Some("\"sid\"")
}

/// Converts bases and filters. A base that is set before is the default.
pub(super) fn searches(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    services: &mut Services,
    defaults: &DirectoryDefaults,
) {
    let name = section.name.clone();
    for (key, target) in [
        ("ldap_search_base", "base"),
        ("ldap_user_search_base", "user_base"),
        ("ldap_group_search_base", "group_base"),
    ] {
        let Some(setting) = section.take_setting(key) else { continue };
        match search_bases(&setting.value) {
            Ok(bases) => {
                domain.keys.set(target, values::bases(&bases));
                conversion.mapped(&name, &setting, format!("{name}.{target}"));
            }
            Err(defect) => {
                let reason = format!("its value {defect}");
                conversion.fail(&name, &setting, &reason, "Write BASE or BASE?SCOPE?FILTER.");
            }
        }
    }
    if domain.keys.get("base").is_none() {
        // The bases of users and groups may suffice.
        match (domain.keys.get("user_base"), domain.keys.get("group_base")) {
            (Some(users), Some(_)) if !users.starts_with('[') => {
                let users = users.to_owned();
                domain.keys.set("base", users);
            }
            _ => conversion.missing(
                section,
                "ldap_search_base",
                "SSSD asks the server for it, and Roster needs it",
                "Write ldap_search_base, for example the namingContexts of the server.",
            ),
        }
    }
    filters(conversion, domain, section, services, defaults);
}

/// Makes the filters of users and groups from object classes and hidden names.
fn filters(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    services: &mut Services,
    defaults: &DirectoryDefaults,
) {
    let name = section.name.clone();
    let [(users, user_name), (groups, group_name)] = defaults.kinds;
    let rows = [
        (
            "ldap_user_object_class",
            "filter_users",
            "ldap_user_name",
            "user_filter",
            "ldap_user_search_filter",
        ),
        (
            "ldap_group_object_class",
            "filter_groups",
            "ldap_group_name",
            "group_filter",
            "ldap_group_search_filter",
        ),
    ];
    for (row, (default, attribute)) in
        rows.into_iter().zip([(users, user_name), (groups, group_name)])
    {
        let (class, hidden, attribute_setting, target, old) = row;
        let attribute = section.peek(attribute_setting).unwrap_or(attribute).to_owned();
        let mut filters: Vec<String> = default.iter().map(|&filter| filter.to_owned()).collect();
        if let Some(setting) = section.take_setting(class) {
            filters[0] = format!("(objectClass={})", values::filter_value(&setting.value));
            conversion.mapped(&name, &setting, format!("{name}.{target}"));
        }
        if let Some(setting) = section.take_setting(old)
            && let Some(filter) = conversion.filter(&name, &setting, &setting.value)
        {
            filters.push(filter);
            conversion.mapped(&name, &setting, format!("{name}.{target}"));
        }
        let owners = [
            ("nss".to_owned(), services.nss.take_setting(hidden)),
            (name.clone(), section.take_setting(hidden)),
        ];
        for (owner, setting) in owners {
            let Some(setting) = setting else { continue };
            filters.extend(
                hidden_names(domain, &setting)
                    .iter()
                    .map(|hidden| format!("(!({attribute}={}))", values::filter_value(hidden))),
            );
            conversion.mapped(&owner, &setting, format!("{name}.{target}"));
        }
        if filters != default {
            domain.keys.set(target, quoted(&values::all_of(&filters)));
        }
    }
}

/// Returns the names of `filter_users` or `filter_groups` that concern a domain. Roster never serves root.
fn hidden_names(domain: &DomainPlan, setting: &Setting) -> Vec<String> {
    let mut names = Vec::new();
    for name in ini::list(&setting.value) {
        let name = match name.rsplit_once('@') {
            Some((name, of)) if of.eq_ignore_ascii_case(&domain.name) => name,
            // A name with another domain, or a name that has an at sign itself. Hiding more is safe.
            _ => name,
        };
        if name != "root" && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn schema(conversion: &mut Conversion<'_>, domain: &mut DomainPlan, section: &mut Section) {
    let name = section.name.clone();
    let setting = section.take_setting("ldap_schema");
    let value = setting.as_ref().map_or("rfc2307", |setting| &*setting.value).to_ascii_lowercase();
    let (schema, member) = match &*value {
        "rfc2307" => ("rfc2307", "memberUid"),
        "rfc2307bis" => ("rfc2307bis", "member"),
        "ipa" => {
            domain.attributes.set("ssh_key", quoted("ipaSshPubKey"));
            ("rfc2307bis", "member")
        }
        _ => {
            if let Some(setting) = &setting {
                let reason =
                    "the schema of Active Directory is converted with id_provider = ad only";
                let cure = "Convert it to id_provider = ad, or write the domain as docs/how-to/active-directory.md shows.";
                conversion.fail(&name, setting, reason, cure);
            }
            return;
        }
    };
    if let Some(setting) = &setting {
        conversion.mapped(&name, setting, format!("{name}.schema"));
    }
    let mut member = member.to_owned();
    if let Some(setting) = section.take_setting("ldap_group_member") {
        conversion.mapped(&name, &setting, format!("{name}.member_attributes"));
        member = setting.value;
    }
    domain.keys.set("schema", quoted(schema));
    // Without the key Roster also reads other attributes with members.
    domain.keys.set("member_attributes", list(&[member]));
    nesting(conversion, domain, section);
}

/// Levels of nested groups that SSSD follows without a setting.
const NESTING_LEVELS: u64 = 2;

/// SSSD limits the levels of nested groups. Roster has no limit, so that a group may have more members.
fn nesting(conversion: &mut Conversion<'_>, domain: &DomainPlan, section: &mut Section) {
    let name = section.name.clone();
    let setting = section.take_setting("ldap_group_nesting_level");
    if !has_nested_groups(domain) {
        if let Some(setting) = &setting {
            conversion.dropped(&name, setting, "The members are names, so that no group nests.");
        }
        return;
    }
    let admits = admits_groups(section);
    let mut levels = NESTING_LEVELS;
    if let Some(setting) = &setting {
        let Some(number) = conversion.number(&name, setting) else { return };
        levels = number;
        if admits {
            let reason = "Roster follows all levels, so allowed_groups would also admit members of deeper groups";
            let cure = "Check that the members of all nested groups may log in.";
            conversion.stop(&name, setting, reason, cure);
        } else if levels == 0 {
            let reason = "Roster follows nested groups, so groups would get more members";
            let cure = "Compare the groups with `roster domain compare-ids` first.";
            conversion.stop(&name, setting, reason, cure);
        } else {
            conversion.dropped(&name, setting, "Roster follows nested groups to any depth.");
        }
    }
    let levels = match levels {
        1 => "1 level".to_owned(),
        levels => format!("{levels} levels"),
    };
    let difference =
        format!("[{name}]: SSSD follows {levels} of nested groups, and Roster follows all.");
    if admits {
        let text = "allowed_groups also admits the members of deeper groups.";
        conversion.plan.note(format!("{difference} {text}"));
    } else if setting.is_some() {
        conversion.plan.note(format!("{difference} Groups may have more members."));
    }
}

/// Returns whether Roster reads members as DNs, which may be groups.
fn has_nested_groups(domain: &DomainPlan) -> bool {
    let attributes = domain.keys.get("member_attributes").unwrap_or("").to_ascii_lowercase();
    match &*attributes {
        "[\"memberuid\"]" => false,
        "[\"member\"]" | "[\"uniquemember\"]" => true,
        _ => domain.keys.get("schema") != Some("\"rfc2307\""),
    }
}

/// Returns whether an access rule of SSSD admits the members of groups.
fn admits_groups(section: &Section) -> bool {
    let is_simple =
        section.peek("access_provider").is_some_and(|name| name.eq_ignore_ascii_case("simple"));
    is_simple && section.peek("simple_allow_groups").is_some_and(|list| !ini::list(list).is_empty())
}

/// Names of attributes: SSSD's setting and Roster's key.
const ATTRIBUTES: [(&str, &str); 24] = [
    ("ldap_user_name", "user_name"),
    ("ldap_user_uid_number", "user_uid"),
    ("ldap_user_gid_number", "user_gid"),
    ("ldap_user_gecos", "user_gecos"),
    ("ldap_user_home_directory", "user_home"),
    ("ldap_user_shell", "user_shell"),
    ("ldap_group_name", "group_name"),
    ("ldap_group_gid_number", "group_gid"),
    ("ldap_user_uuid", "uuid"),
    ("ldap_group_uuid", "uuid"),
    ("ldap_user_ssh_public_key", "ssh_key"),
    ("ldap_user_shadow_last_change", "shadow_last_change"),
    ("ldap_user_shadow_max", "shadow_max"),
    ("ldap_user_shadow_warning", "shadow_warning"),
    ("ldap_user_shadow_inactive", "shadow_inactive"),
    ("ldap_user_shadow_expire", "shadow_expire"),
    ("ldap_ns_account_lock", "account_lock"),
    ("ldap_user_ns_account_lock", "account_lock"),
    ("ldap_user_ad_account_expires", "account_expires"),
    ("ldap_user_ad_user_account_control", "account_control"),
    ("ldap_user_authorized_service", "authorized_service"),
    ("ldap_user_authorized_host", "host"),
    ("ldap_user_authorized_rhost", "rhost"),
    ("ldap_pwdlockout_attr", "locked_time"),
];

/// Attributes with ids.
const ID_ATTRIBUTES: [&str; 3] = ["user_uid", "user_gid", "group_gid"];

pub(super) fn attributes(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
) {
    let name = section.name.clone();
    for (setting, key) in ATTRIBUTES {
        let Some(setting) = section.take_setting(setting) else { continue };
        if has_ids_from_sids(domain) && ID_ATTRIBUTES.contains(&key) {
            conversion.dropped(&name, &setting, "With ids from SIDs it has no effect.");
            continue;
        }
        let value = quoted(&setting.value);
        let conflict = domain.attributes.get(key).is_some_and(|known| *known != value);
        if conflict && key == "uuid" {
            let reason = "users and groups have different keys, and Roster has one for both";
            conversion.fail(&name, &setting, reason, "Remove both settings.");
            continue;
        }
        domain.attributes.set(key, value);
        conversion.mapped(&name, &setting, format!("{name}.attributes.{key}"));
    }
}

pub(super) fn times(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
) {
    let name = section.name.clone();
    for (setting, key, min, max) in [
        ("ldap_network_timeout", "connect_timeout", 1, 300),
        ("ldap_search_timeout", "search_timeout", 1, 3600),
        ("ldap_page_size", "page_size", 1, 1_000_000),
    ] {
        let Some(setting) = section.take_setting(setting) else { continue };
        let Some(value) = conversion.number(&name, &setting) else { continue };
        let value = value.clamp(min, max);
        let text =
            if key == "page_size" { value.to_string() } else { quoted(&format!("{value}s")) };
        domain.keys.set(key, text);
        conversion.mapped(&name, &setting, format!("{name}.{key}"));
    }
}
