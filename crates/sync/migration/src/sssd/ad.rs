// SPDX-License-Identifier: MIT OR Apache-2.0
//! A domain with `id_provider = ad`: controllers, bind, searches and access rules. Ids are in `id_mapping`. Names, homes
//! and logins are those of every domain (`domain`, `login`). Reads nothing from the directory, so it does not know which
//! group policies apply.

use super::conf::{HostFacts, Services};
use super::directory::{self, DirectoryDefaults};
use super::id_mapping;
use super::section::{Conversion, Section};
use crate::ini;
use crate::krb5_conf::RealmServers;
use crate::plan::DomainPlan;
use crate::values::{self, list, quoted};

/// The setting of the access control by group policies.
const GPO: &str = "ad_gpo_access_control";

/// Settings of the provider without a counterpart.
const DROPPED: [(&str, &str); 9] = [
    ("ad_hostname", "The keytab has the name of this host."),
    ("ad_enable_gc", "Roster reads the domain, and no global catalog."),
    ("ad_maximum_machine_account_password_age", RENEWAL),
    ("ad_machine_account_password_renewal_opts", RENEWAL),
    ("ad_update_samba_machine_account_password", RENEWAL),
    ("ad_enabled_domains", TRUSTS),
    ("ad_allow_remote_domain_local_groups", TRUSTS),
    ("ad_enable_dns_sites", NO_SITES),
    ("ad_site", NO_SITES),
];
const RENEWAL: &str =
    "Roster does not renew the password of this host. Run `adcli update` from a timer.";
const NO_SITES: &str = "Without a search for the controllers of a site it has no effect.";
const TRUSTS: &str = "Roster serves no users of trusted domains.";

/// The DNS domain, and the facts of the host with the Kerberos realm of the domain.
pub(super) struct AdDomain {
    dns: String,
    pub facts: HostFacts,
}

/// Reads the name of the domain. The provider of SSSD takes realm and KDCs from it, and not from krb5.conf.
pub(super) fn ad_domain(
    conversion: &mut Conversion<'_>,
    section: &mut Section,
    facts: &HostFacts,
) -> AdDomain {
    let name = section.name.clone();
    let dns = match section.take_setting("ad_domain") {
        Some(setting) => {
            conversion.mapped(&name, &setting, format!("{name}.discover"));
            setting.value
        }
        None => name.strip_prefix("domain/").unwrap_or(&name).to_owned(),
    };
    let dns = dns.trim_end_matches('.').to_ascii_lowercase();
    let mut facts = facts.clone();
    let realm = dns.to_ascii_uppercase();
    let listed = section.peek("ad_server").map(ini::list).unwrap_or_default();
    let hosts = listed.iter().filter(|host| !is_srv(host)).map(|host| (*host).to_owned());
    let kdcs: Vec<String> =
        if listed.iter().any(|host| is_srv(host)) { Vec::new() } else { hosts.collect() };
    facts.krb5.realms.insert(realm.clone(), RealmServers { kdcs, ..RealmServers::default() });
    facts.krb5.libdefaults.insert("default_realm".to_owned(), realm);
    AdDomain { dns, facts }
}

/// Converts the directory of a domain.
pub(super) fn convert(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    services: &mut Services,
    ad: &AdDomain,
) {
    let name = section.name.clone();
    domain.keys.set("schema", quoted("ad"));
    id_mapping::convert(conversion, domain, section);
    servers(conversion, domain, section, &ad.dns);
    directory::gssapi(conversion, domain, section);
    if let Some(setting) = section.take_setting("krb5_keytab") {
        directory::keytab(conversion, domain, &name, &setting);
    }
    if let Some(setting) = section.take_setting("ldap_sasl_mech") {
        conversion.mapped(&name, &setting, format!("{name}.bind"));
    }
    let parts: Vec<String> = ad.dns.split('.').map(|label| format!("dc={label}")).collect();
    domain.keys.set("base", quoted(&parts.join(",")));
    let defaults = DirectoryDefaults::of_active_directory(domain);
    directory::searches(conversion, domain, section, services, &defaults);
    if let Some(setting) = section.take_setting("ldap_group_member") {
        domain.keys.set("member_attributes", list(&[&*setting.value]));
        conversion.mapped(&name, &setting, format!("{name}.member_attributes"));
    }
    domain.keys.set("case", quoted("insensitive"));
    if let Some(setting) = section.take_setting("ldap_group_nesting_level") {
        conversion.dropped(&name, &setting, "Roster follows nested groups to any depth.");
    }
    directory::attributes(conversion, domain, section);
    directory::times(conversion, domain, section);
    for (setting, note) in DROPPED {
        if let Some(setting) = section.take_unused(setting) {
            conversion.dropped(&name, &setting, note);
        }
    }
    differences(conversion, section);
}

/// Notes the behaviour that differs in each domain.
fn differences(conversion: &mut Conversion<'_>, section: &Section) {
    let updates_dns = section.peek("dyndns_update");
    if !updates_dns.is_some_and(|value| value.eq_ignore_ascii_case("false")) {
        conversion.plan.note(format!(
            "[{0}]: SSSD updates the DNS record of this host by default. Roster does not update DNS.",
            section.name
        ));
    }
    for text in [
        "SSSD also serves users and groups of trusted domains. Roster serves this domain only.",
        "SSSD also serves the accounts of computers. Roster serves the accounts of people and services only.",
        "without gecos, SSSD serves the attribute `name`. Roster serves displayName if the user has one.",
        "SSSD finds the NetBIOS name of the domain. Set short_name if programs use CORP\\alice.",
        "SSSD renews the password of this host. Run `adcli update` from a timer instead.",
    ] {
        conversion.plan.note(format!("[{}]: {text}", section.name));
    }
}

fn is_srv(host: &str) -> bool {
    host.eq_ignore_ascii_case("_srv_")
}

fn servers(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    dns: &str,
) {
    let name = section.name.clone();
    let ldaps = section.take_setting("ad_use_ldaps");
    let is_ldaps =
        ldaps.as_ref().and_then(|setting| conversion.flag(&name, setting)).unwrap_or(false);
    let scheme = if is_ldaps { "ldaps" } else { "ldap" };
    let first = section.take_setting("ad_server");
    let mut discovers = first.is_none();
    let mut uris: Vec<String> = Vec::new();
    for setting in [first, section.take_setting("ad_backup_server")].into_iter().flatten() {
        for host in ini::list(&setting.value) {
            let uri = format!("{scheme}://{host}");
            if is_srv(host) {
                discovers = true;
            } else if !uris.contains(&uri) {
                uris.push(uri);
            }
        }
        conversion.mapped(&name, &setting, format!("{name}.uris"));
    }
    if !uris.is_empty() {
        domain.keys.set("uris", list(&uris));
    }
    match &ldaps {
        Some(setting) if is_ldaps && discovers => {
            let reason =
                "Roster uses controllers of DNS as ldap://, which the bind by Kerberos encrypts";
            let cure = "Remove ad_use_ldaps, or list the controllers in ad_server.";
            conversion.fail(&name, setting, reason, cure);
        }
        Some(setting) => conversion.mapped(&name, setting, format!("{name}.uris")),
        None => {}
    }
    if discovers {
        discovery(conversion, domain, section, dns);
    } else if let Some(setting) = section.take_setting("dns_discovery_domain") {
        conversion.dropped(&name, &setting, "`uris` lists the servers.");
    }
    check_clear_passwords(conversion, section, is_ldaps && !discovers);
}

/// A bind as the user needs TLS. SSSD uses StartTLS for it, beside the encryption by Kerberos of its own bind.
fn check_clear_passwords(conversion: &mut Conversion<'_>, section: &mut Section, has_tls: bool) {
    let Some(setting) = section.take_setting("auth_provider") else { return };
    if setting.value.eq_ignore_ascii_case("ldap") && !has_tls {
        let reason =
            "Roster has no StartTLS for logins alone, beside a bind that Kerberos encrypts";
        let cure = "Remove auth_provider, so that logins use Kerberos, or write ad_use_ldaps with ad_server.";
        conversion.fail(&section.name, &setting, reason, cure);
    }
}

fn discovery(
    conversion: &mut Conversion<'_>,
    domain: &mut DomainPlan,
    section: &mut Section,
    dns: &str,
) {
    let name = section.name.clone();
    domain.keys.set("discover", quoted(dns));
    if let Some(setting) = section.take_setting("dns_discovery_domain") {
        if setting.value.trim_end_matches('.').eq_ignore_ascii_case(dns) {
            conversion.mapped(&name, &setting, format!("{name}.discover"));
        } else {
            let reason = "Roster asks the DNS domain of Active Directory for controllers";
            conversion.fail(&name, &setting, reason, "Write the controllers into ad_server.");
        }
    }
    let sites = section.take_setting("ad_enable_dns_sites");
    let has_sites =
        sites.as_ref().and_then(|setting| conversion.flag(&name, setting)).unwrap_or(true);
    if let Some(setting) = &sites {
        conversion.mapped(&name, setting, format!("{name}.discover_controllers"));
    }
    if !has_sites {
        return;
    }
    domain.keys.set("discover_controllers", "true".into());
    if let Some(setting) = section.take_setting("ad_site") {
        domain.keys.set("site", quoted(&setting.value));
        conversion.mapped(&name, &setting, format!("{name}.site"));
    }
}

/// Converts `access_provider = ad`. Returns the filter of allowed users.
pub(super) fn access(conversion: &mut Conversion<'_>, section: &mut Section) -> Option<String> {
    let name = section.name.clone();
    group_policies(conversion, section);
    let setting = section.take_setting("ad_access_filter")?;
    if setting.value.is_empty() {
        conversion.dropped(&name, &setting, "An empty filter admits all users, as in SSSD.");
        return None;
    }
    // A prefix DOM:, FOREST: or the name of a domain selects a domain, and `?` separates several filters.
    if setting.value.contains('?') || !setting.value.trim_start().starts_with('(') {
        let reason = "the filter depends on the domain of the user";
        let cure = "Write one filter in parentheses, without DOM:, FOREST: and question marks.";
        conversion.stop(&name, &setting, reason, cure);
        return None;
    }
    let filter = values::filter(&setting.value);
    let filter = conversion.filter(&name, &setting, &filter)?;
    conversion.mapped(&name, &setting, format!("{name}.access.filter"));
    Some(filter)
}

/// SSSD applies group policies by default, so their loss would open the host.
fn group_policies(conversion: &mut Conversion<'_>, section: &mut Section) {
    let name = section.name.clone();
    let setting = section.take_setting(GPO);
    let setting = setting.unwrap_or_else(|| section.default_setting(GPO, "enforcing"));
    match &*setting.value.to_ascii_lowercase() {
        "disabled" => {
            conversion.dropped(&name, &setting, "Roster reads no group policies.");
        }
        "permissive" => {
            let note = "SSSD only logs the logins that a group policy would deny.";
            conversion.dropped(&name, &setting, note);
        }
        _ => conversion.stop_for_group_policies(
            &name,
            &setting,
            "a group policy may deny logins to this host, and Roster reads none; migrate-config does not read \
             gPLink, so it does not know whether a policy is linked",
            "Write the groups of the logon rights into simple_allow_groups or [domain.NAME.access], then run the \
             command with --ignore-gpo.",
        ),
    }
}

/// Settings of the provider that have no effect here, because another rule decided, or that are not known.
pub(super) fn rest(conversion: &mut Conversion<'_>, section: &mut Section) {
    let name = section.name.clone();
    for setting in section.rest() {
        if !setting.name.starts_with("ad_") {
            continue;
        }
        section.take_setting(&setting.name);
        if setting.name.starts_with("ad_gpo_") || setting.name == "ad_access_filter" {
            let note = match section.peek("access_provider") {
                Some("ad") => "It belongs to the rules for group policies.",
                _ => "It has no effect in SSSD without access_provider = ad.",
            };
            conversion.dropped(&name, &setting, note);
        } else {
            let reason = "migrate-config does not know it, and it may restrict logins";
            let cure = "Correct its name, or check sssd-ad(5) and name it in --without.";
            conversion.stop(&name, &setting.without_value(), reason, cure);
        }
    }
}
