// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of the settings that no code converts: a note about Roster's behaviour, or a stop. Code for the other
//! settings is in `domain`, `directory`, `login` and `access`.
//!
//! A name may end with `*`, which stands for any rest. The first row that matches counts. A setting without a row stops
//! the conversion: a newer SSSD may restrict logins by it.

use super::section::{Conversion, Section, Setting};

/// The kind of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sssd,
    Nss,
    Pam,
    Domain,
}

/// The fate of a setting without code.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Roster needs no counterpart, or loses no restriction.
    Note(&'static str),
    /// The loss would open the host: reason and cure.
    Stop(&'static str, &'static str),
    /// The same, unless the value switches the feature off.
    StopUnlessOff(&'static str, &'static str),
}

use Fate::{Note, Stop, StopUnlessOff};

const CACHE: &str = "A mirror follows the directory, and has no timeout of entries.";
const IGNORED: &str = "SSSD ignores it in this section.";
const NO_TUNING: &str = "Roster needs no such tuning.";
const TIMES: &str = "Roster has its own timeouts: connect_timeout, search_timeout, auth_timeout.";
const SYSTEMD: &str = "systemd and rosterd supervise Roster's processes.";
const LOGS: &str = "See `level` of [log] in roster.toml(5), and roster-log-level(1).";
const TEXTS: &str = "Roster has its own texts.";
const OTHER_MAPS: &str =
    "Roster serves users and groups only. Keep `sss` on the other lines of nsswitch.conf.";
const SUDO: &str =
    "Roster reads no sudo rules. Keep `sss` on the sudoers line, or write rules in sudoers.";
const NOT_READ: &str = "Roster does not read this attribute.";
const OTHER_PROVIDER: &str = "It has no effect with id_provider = ldap.";
const SECOND_FACTOR: &str =
    "logins by smart card or passkey would end, and a rule that requires them would not hold";
const SECOND_FACTOR_CURE: &str =
    "Keep the method in another PAM module, then name the setting in --without.";
const SMART_CARDS: &str = "Roster has no smart cards. pam_cert_auth = true stops the conversion.";
const TRUST_IDS: &str = "SSSD keeps ids of trusted domains out of this range. It serves the ids of an LDAP domain outside \
                         of the range, too. See min_id and max_id.";
const ID_MAPPING: &str = "ids from SIDs have a counterpart with id_provider = ad only";
const ID_MAPPING_CURE: &str = "Write uidNumber and gidNumber to the directory, or keep SSSD.";

/// Settings of any section.
const COMMON: &[(&str, Fate)] = &[
    ("debug*", Note(LOGS)),
    ("timeout", Note(SYSTEMD)),
    ("command", Note(SYSTEMD)),
    ("reconnection_retries", Note(SYSTEMD)),
    ("fd_limit", Note(SYSTEMD)),
    ("client_idle_timeout", Note(NO_TUNING)),
    ("responder_idle_timeout", Note(NO_TUNING)),
    ("cache_first", Note(NO_TUNING)),
    ("offline_timeout*", Note("Roster tries an absent server again with growing pauses.")),
    ("description", Note("A comment.")),
    ("get_domains_timeout", Note(NO_TUNING)),
    ("core_dumpable", Note("Roster's processes with secrets write no core dumps.")),
    ("sbus_timeout", Note(IGNORED)),
];

const SSSD: &[(&str, Fate)] = &[
    ("config_file_version", Note("roster.toml has no version.")),
    (
        "services",
        Note("rosterd starts its responders as needed. For sudo, autofs, pac and ifp, keep SSSD."),
    ),
    ("re_expression", Note("Roster accepts NAME, NAME@DOMAIN and DOMAIN\\NAME.")),
    ("full_name_format", Note("Roster serves NAME@DOMAIN if names are qualified.")),
    ("try_inotify", Note("rosterd watches its files.")),
    ("monitor_resolv_conf", Note("Roster reads resolv.conf for each query.")),
    ("krb5_rcache_dir", Note(NO_TUNING)),
    ("user", Note("Each role of rosterd has its own user.")),
    ("enable_files_domain", Note("Local accounts need no domain: NSS `files` serves them.")),
    ("disable_netlink", Note(NO_TUNING)),
    ("implicit_pac_responder", Note("Roster reads no PAC.")),
    ("certificate_verification", Note(SMART_CARDS)),
    ("passkey_verification", Note("Roster has no passkeys.")),
    ("override_homedir", Note("SSSD reads it in [nss] and in domains only.")),
    ("entry_cache_*", Note(IGNORED)),
    ("enum_cache_timeout", Note(IGNORED)),
    ("cache_credentials", Note(IGNORED)),
    ("enumerate", Note(IGNORED)),
];

const NSS: &[(&str, Fate)] = &[
    ("enum_cache_timeout", Note(CACHE)),
    ("entry_cache_nowait_percentage", Note(CACHE)),
    ("entry_cache_*", Note(IGNORED)),
    ("enumerate", Note(IGNORED)),
    ("entry_negative_timeout", Note("A mirror knows all names. On demand, see negative_ttl.")),
    ("local_negative_timeout", Note("Roster reads local accounts itself.")),
    ("filter_users_in_groups", Note("Roster also hides hidden users in groups.")),
    ("memcache_*", Note("The snapshot takes the place of the memory cache.")),
    ("user_attributes", Note("Roster serves no further attributes over D-Bus.")),
    ("pwfield", Note("Programs read `*` as password.")),
];

const PAM: &[(&str, Fate)] = &[
    ("offline_credentials_expiration", Note("No domain of the result has cached credentials.")),
    ("offline_failed_login_*", Note("No domain of the result has cached credentials.")),
    ("pam_verbosity", Note(TEXTS)),
    ("pam_response_filter", Note("pam_roster sets KRB5CCNAME only.")),
    ("pam_id_timeout", Note(NO_TUNING)),
    ("pam_pwd_expiration_warning", Note("Logins warn as the server or shadowWarning says.")),
    (
        "pam_public_domains",
        Note("Untrusted programs ask about their own user only, which is stricter."),
    ),
    ("pam_account_expired_message", Note(TEXTS)),
    ("pam_account_locked_message", Note(TEXTS)),
    ("pam_cert_auth", StopUnlessOff(SECOND_FACTOR, SECOND_FACTOR_CURE)),
    ("pam_passkey_auth", StopUnlessOff(SECOND_FACTOR, SECOND_FACTOR_CURE)),
    ("passkey_*", Note("Roster has no passkeys.")),
    ("pam_cert_db_path", Note(SMART_CARDS)),
    ("pam_cert_verification", Note(SMART_CARDS)),
    ("pam_p11_*", Note(SMART_CARDS)),
    ("p11_*", Note(SMART_CARDS)),
    (
        "pam_app_services",
        Stop(
            "services with application domains would ask the domains of users",
            "Keep SSSD for these services.",
        ),
    ),
    ("pam_initgroups_scheme", Note("The snapshot is up to date at each login.")),
    ("pam_gssapi_services", Note("Roster has no login by an existing ticket.")),
    ("pam_gssapi_*", Note("Roster has no login by an existing ticket.")),
    ("pam_json_services", Note(TEXTS)),
];

const DOMAIN: &[(&str, Fate)] = &[
    ("passwd_files", Note(OTHER_PROVIDER)),
    ("group_files", Note(OTHER_PROVIDER)),
    ("fallback_to_nss", Note(OTHER_PROVIDER)),
    ("pam_gssapi_*", Note("Roster has no login by an existing ticket.")),
    ("ad_*", Note(OTHER_PROVIDER)),
    ("ipa_*", Note(OTHER_PROVIDER)),
    ("dyndns_*", Note("Roster does not update DNS.")),
    ("proxy_*", Note(OTHER_PROVIDER)),
    ("idp_*", Note(OTHER_PROVIDER)),
    ("selinux_provider", Note("Roster sets no SELinux users. FreeIPA only.")),
    ("subdomains_provider", Note("An LDAP domain has no subdomains.")),
    ("subdomain_*", Note("An LDAP domain has no subdomains.")),
    ("hostid_provider", Note("Roster serves no ssh host keys.")),
    ("session_provider", Note("Roster reads no desktop profiles.")),
    ("sudo_provider", Note(SUDO)),
    ("autofs_provider", Note(OTHER_MAPS)),
    ("resolver_provider", Note(OTHER_MAPS)),
    ("local_auth_policy", StopUnlessOff(SECOND_FACTOR, SECOND_FACTOR_CURE)),
    ("realmd_tags", Note("A comment of realmd.")),
    ("entry_cache_*", Note(CACHE)),
    ("refresh_expired_interval*", Note(CACHE)),
    ("account_cache_expiration", Note("A mirror keeps no users that left the directory.")),
    ("cached_auth_timeout", Note("Roster asks the server at each login.")),
    ("cache_credentials_minimal_first_factor_length", Note("Roster has one factor.")),
    ("pwd_expiration_warning", Note("Logins warn as the server or shadowWarning says.")),
    ("ignore_group_members", Note("A mirror lists members without a cost for logins.")),
    ("re_expression", Note("Roster accepts NAME, NAME@DOMAIN and DOMAIN\\NAME.")),
    ("lookup_family_order", Note("Roster tries IPv6 and IPv4 addresses.")),
    ("dns_resolver_*", Note(TIMES)),
    ("failover_primary_timeout", Note("See failback_interval.")),
    ("wildcard_limit", Note("Roster has no wildcard lookups.")),
    ("ldap_id_mapping", StopUnlessOff(ID_MAPPING, ID_MAPPING_CURE)),
    ("ldap_idmap_*", Note("It counts with ldap_id_mapping = true only.")),
    ("ldap_min_id", Note(TRUST_IDS)),
    ("ldap_max_id", Note(TRUST_IDS)),
    ("ldap_use_tokengroups", Note("Active Directory only.")),
    ("ldap_disable_*", Note("Roster uses pages and ranges as the server offers them.")),
    (
        "ldap_rfc2307_fallback_to_local_users",
        StopUnlessOff(
            "local users would lose the groups that the directory gives them",
            "Add the local users to /etc/group.",
        ),
    ),
    ("ldap_deref*", Note(NO_TUNING)),
    ("ldap_ignore_unreadable_references", Note("Roster leaves out members that it cannot read.")),
    ("ldap_force_upper_case_realm", Note("Roster uses the realm of krb5_realm.")),
    ("ldap_referrals", Note("Roster does not follow referrals. roster status warns of them.")),
    (
        "ldap_dns_service_name",
        StopUnlessOff(
            "`discover` asks for the service ldap only, so that other servers would be used",
            "List the servers in ldap_uri.",
        ),
    ),
    ("ldap_chpass_*", Note("Passwords are changed on the servers of `uris`.")),
    ("ldap_ppolicy_pwd_change_threshold", Note("Roster shows the server's warnings.")),
    ("ldap_sasl_*", Note("The layer follows from TLS, and names are not looked up backwards.")),
    ("ldap_krb5_*", Note("Roster gets the host's ticket itself.")),
    (
        "ldap_tls_cipher_suite",
        Note("Roster accepts TLS 1.2 and 1.3 with the ciphers of rustls, which is stricter."),
    ),
    ("ldap_opt_timeout", Note(TIMES)),
    ("ldap_offline_timeout", Note(TIMES)),
    ("ldap_enumeration_*", Note(CACHE)),
    ("ldap_purge_cache_*", Note(CACHE)),
    ("ldap_connection_*", Note("A mirror keeps one connection.")),
    ("ldap_library_debug_level", Note(LOGS)),
    ("ldap_read_rootdse", Note("Roster reads the root DSE after the bind.")),
    ("ldap_pwdlockout_dn", Note("See lockout_duration in [domain.NAME.access].")),
    ("ldap_auto_reconnect", Note("Roster reconnects.")),
    ("ldap_use_ppolicy", Note("Roster requests the password policy at each bind.")),
    ("ldap_netgroup_*", Note(OTHER_MAPS)),
    ("ldap_service_*", Note(OTHER_MAPS)),
    ("ldap_iphost_*", Note(OTHER_MAPS)),
    ("ldap_ipnetwork_*", Note(OTHER_MAPS)),
    ("ldap_autofs_*", Note(OTHER_MAPS)),
    ("ldap_sudo*", Note(SUDO)),
    ("ldap_host_*", Note("Roster reads no host entries.")),
    ("ldap_subuid_*", Note("Roster serves no subordinate ids.")),
    ("ldap_subgid_*", Note("Roster serves no subordinate ids.")),
    (
        "ldap_user_nds_*",
        Note("Novell's attributes count with ldap_account_expire_policy = nds only."),
    ),
    ("ldap_user_krb_*", Note("They count with ldap_pwd_policy = mit_kerberos only.")),
    ("ldap_user_shadow_min", Note("The server decides how soon a password may change.")),
    ("ldap_user_principal", Note("Logins by LDAP use no principal.")),
    ("ldap_user_passkey", Note(NOT_READ)),
    ("ldap_user_*", Note(NOT_READ)),
    ("ldap_group_*", Note(NOT_READ)),
    ("ldap_entry_*", Note(NOT_READ)),
    ("ldap_rootdse_*", Note(NOT_READ)),
    ("ldap_pwmodify_mode", Note("It counts with auth_provider = ldap only.")),
    ("krb5_fast_*", Note("FAST uses a key of krb5_keytab.")),
    ("krb5_canonicalize", Note("Roster uses NAME@REALM as principal.")),
    ("krb5_use_enterprise_principal", Note("Roster uses NAME@REALM as principal.")),
    ("krb5_use_subdomain_realm", Note("An LDAP domain has no subdomains.")),
    (
        "krb5_renew_interval",
        Note("Tickets are renewed at half of their life while the session lasts."),
    ),
    (
        "krb5_store_password_if_offline",
        Note("Roster stores no password. Run kinit after an offline login."),
    ),
    ("krb5_use_kdcinfo", Note("Roster writes no kdcinfo files. kinit reads /etc/krb5.conf.")),
    ("krb5_kdcinfo_lookahead", Note("Roster writes no kdcinfo files.")),
    ("krb5_confd_path", Note("Roster writes no parts of krb5.conf.")),
    ("krb5_kdcip", Stop("the KDC of this old setting would not be used", "Write krb5_server.")),
    ("krb5_map_user", Note("It counts with auth_provider = krb5 only.")),
    ("krb5_*", Note("It counts with auth_provider = krb5 only.")),
];

/// Gives each setting of a section a fate that no code handled.
pub(super) fn rest(conversion: &mut Conversion<'_>, section: &Section, kind: Kind) {
    let table = match kind {
        Kind::Sssd => SSSD,
        Kind::Nss => NSS,
        Kind::Pam => PAM,
        Kind::Domain => DOMAIN,
    };
    for setting in section.rest() {
        if kind == Kind::Domain && is_known_without_effect(conversion, section, &setting) {
            continue;
        }
        decide(conversion, &section.name, &setting, &[table, COMMON]);
    }
}

/// A section that was not converted for another reason needs no further messages.
fn is_known_without_effect(
    conversion: &mut Conversion<'_>,
    section: &Section,
    setting: &Setting,
) -> bool {
    let is_converted = conversion.plan.domains.iter().any(|domain| domain.section == section.name);
    if !is_converted {
        let note = "The domain is not part of the result.";
        conversion.dropped(&section.name, &setting.without_value(), note);
    }
    !is_converted
}

fn decide(
    conversion: &mut Conversion<'_>,
    section: &str,
    setting: &Setting,
    tables: &[&[(&str, Fate)]],
) {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(prefix) => setting.name.starts_with(prefix),
        None => setting.name == pattern,
    };
    let is_off = matches!(
        &*setting.value.to_ascii_lowercase(),
        "false" | "none" | "0" | "no" | "match" | ""
    );
    let found = tables.iter().flat_map(|table| table.iter()).find(|(pattern, _)| matches(pattern));
    match found.map(|(_, fate)| *fate) {
        Some(Note(note)) => conversion.dropped(section, setting, note),
        Some(Stop(reason, cure)) => conversion.stop(section, setting, reason, cure),
        Some(StopUnlessOff(..)) if is_off => {
            conversion.dropped(section, setting, "It is off, and Roster has no counterpart.");
        }
        Some(StopUnlessOff(reason, cure)) => conversion.stop(section, setting, reason, cure),
        None => {
            let reason = "migrate-config does not know it, and it may restrict logins";
            let cure = "Correct its name, or check its manual page and name it in --without.";
            conversion.stop(section, &setting.without_value(), reason, cure);
        }
    }
}

/// Handles a section of another service, or of a domain that is not active.
pub(super) fn other_section(conversion: &mut Conversion<'_>, section: &Section) {
    let name = &*section.name;
    let mut is_known = true;
    let note = match name.split('/').next().unwrap_or(name) {
        "ssh" => "roster ssh-keys serves users' keys. It serves no host keys.",
        "sudo" => SUDO,
        "autofs" => OTHER_MAPS,
        "pac" => "Roster reads no PAC.",
        "ifp" => "Roster has no D-Bus interface for programs.",
        "kcm" | "secrets" => "sssd-kcm can stay for krb5_cache = \"KCM:\".",
        "certmap" => "Roster has no smart cards.",
        "prompting" => TEXTS,
        "session_recording" => {
            "Roster records no sessions: set the shell of tlog in the directory."
        }
        other => {
            is_known = false;
            match other {
                "domain" if name.matches('/').count() > 1 => "An LDAP domain has no subdomains.",
                "domain" => "The domain is not active in SSSD.",
                "application" => "Roster has no domains for applications.",
                _ => "Roster has no such service.",
            }
        }
    };
    for setting in section.rest() {
        let is_recording =
            name == "session_recording" && setting.name == "scope" && setting.value != "none";
        if is_recording {
            let cure =
                "Set the shell of tlog in the directory, then name the setting in --without.";
            conversion.stop(name, &setting, "sessions would not be recorded any more", cure);
        } else if is_known {
            conversion.dropped(name, &setting, note);
        } else {
            conversion.dropped(name, &setting.without_value(), note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_rows_are_reachable() {
        for table in [SSSD, NSS, PAM, DOMAIN, COMMON] {
            for (place, (pattern, _)) in table.iter().enumerate() {
                let hides = |earlier: &str| match earlier.strip_suffix('*') {
                    Some(prefix) => pattern.starts_with(prefix),
                    None => earlier == *pattern,
                };
                let hidden = table[..place].iter().find(|(earlier, _)| hides(earlier));
                assert!(hidden.is_none(), "{pattern} is hidden by {hidden:?}");
            }
        }
    }
}
