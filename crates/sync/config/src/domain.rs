// SPDX-License-Identifier: MIT OR Apache-2.0
//! One `[domain.NAME]`: derived values and contradictory keys.
//!
//! `toml_section` checks each value alone, and `access` reads the subtable of access rules.

use crate::access::{self, ListNames};
use crate::id_mapping;
use crate::keys::{self, ConfigKey, ConfigTable, Key, KeyDefault};
use crate::overrides;
use crate::toml_section::{self, LoadReport, TomlSection, domain_path};
use crate::value_syntax;
use crate::{
    AccessConfig, AttributeNames, AuthConfig, AuthMethod, BindMethod, ClientCertificateFiles,
    ControllerDiscovery, DirectorySchema, DomainConfig, DomainMode, FilesConfig, GssapiConfig,
    HomeShellOverrides, HostConfig, KdcValidation, Krb5Config, LdapConfig, LdapServer,
    MemberAttribute, MemberValues, NameCase, NameConfig, OfflineConfig, OverridesConfig,
    PasswordChangeConfig, PasswordOperation, PrivateGroups, ProviderConfig, SearchBase,
    SearchConfig, SecretFile, ServingConfig, ShellRules, WhenAway,
};
use roster_messages::CodedError;
use roster_messages::table::config as codes;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads `[domain.NAME]`.
pub(crate) fn domain<'d>(
    report: &mut LoadReport<'_>,
    host: &HostConfig,
    name: &str,
    found: (Range<usize>, &'d Spanned<DeValue<'d>>),
) -> DomainConfig {
    let path = domain_path(name);
    let mut section = TomlSection::new(report, ConfigTable::Domain, &path, Some(found));
    let provider: String = section.value(&keys::DOMAIN_PROVIDER);
    let mode: String = section.value(&keys::DOMAIN_MODE);
    let mode = if mode == "on-demand" { DomainMode::OnDemand } else { DomainMode::Replicate };
    let (min_id, max_id) = ids(&mut section, host);
    let binds_by_key = provider == "ldap" && section.has_text(&keys::LDAP_BIND, "gssapi");
    let (auth, gssapi) = auth(&mut section, &provider, binds_by_key);
    let binds = BindContext { as_users: auth.method == AuthMethod::Ldap, gssapi };
    let schema = DirectorySchema::from_section(&section);
    schema.check_domain(&mut section);
    let overrides = home_and_shell(&mut section, schema);
    let mut domain = DomainConfig {
        name: name.to_owned(),
        min_id,
        max_id,
        names: names(&mut section, mode, schema),
        mode,
        private_groups: private_groups(&mut section),
        serving: serving(&mut section, &overrides, schema),
        overrides,
        local_overrides: OverridesConfig::default(),
        mass_deletion: section.value(&keys::DOMAIN_MASS_DELETION),
        refresh: on_demand_duration(&mut section, mode, &keys::DOMAIN_REFRESH),
        negative: on_demand_duration(&mut section, mode, &keys::DOMAIN_NEGATIVE),
        when_away: when_away(&mut section, mode),
        provider: provider_of(&mut section, &provider, mode, host, binds),
        auth,
        access: AccessConfig::unconfigured(),
    };
    domain.local_overrides = OverridesConfig {
        entries: overrides::local_overrides(&mut section, &domain.names),
        file: section.optional_value(&keys::DOMAIN_OVERRIDES_FILE),
        refuses_ids: mode == DomainMode::OnDemand,
    };
    if let Err(error) = domain.local_overrides.check_ids(&domain.local_overrides.entries) {
        section.error(&keys::DOMAIN_MODE, error);
    }
    let found = section.subtable("access");
    let authenticates = domain.auth.method != AuthMethod::None;
    domain.access = access::access(&mut section, found, authenticates);
    domain.access = domain.access.normalised(&ListNames::new(name, &domain.names));
    access::check_provider(&mut section, &domain);
    access::check_primary_groups(&mut section, schema, &domain.access);
    id_mapping::check_admitted(&mut section, &domain);
    domain
}

fn names(
    section: &mut TomlSection<'_, '_, '_, '_>,
    mode: DomainMode,
    schema: DirectorySchema,
) -> NameConfig {
    let case = section.value_or(&keys::DOMAIN_CASE, schema.case().to_owned());
    let numeric = section.value(&keys::DOMAIN_NUMERIC_NAMES);
    if numeric && mode == DomainMode::OnDemand {
        let text = "requires mode = \"replicate\": ids that no program asked for are unknown";
        let error = CodedError::new(&codes::NUMERIC_NAMES_ON_DEMAND, text);
        section.error(&keys::DOMAIN_NUMERIC_NAMES, error);
    }
    let short_name: Option<String> = section.optional_value(&keys::DOMAIN_SHORT_NAME);
    section.note_unset(&keys::DOMAIN_SHORT_NAME);
    NameConfig {
        case: match case.as_str() {
            "insensitive" => NameCase::Insensitive,
            "preserving" => NameCase::Preserving,
            _ => NameCase::Sensitive,
        },
        short_name: short_name.unwrap_or_default(),
        qualified: section.value(&keys::DOMAIN_QUALIFIED_NAMES),
        numeric,
        spaces: schema.is_active_directory(),
    }
}

fn private_groups(section: &mut TomlSection<'_, '_, '_, '_>) -> PrivateGroups {
    let word: String = section.value(&keys::DOMAIN_PRIVATE_GROUPS);
    match word.as_str() {
        "always" => PrivateGroups::Always,
        "same-id" => PrivateGroups::SameId,
        _ => PrivateGroups::Off,
    }
}

/// Keys without an effect in a domain without password authentication.
const AUTH_KEYS: [&ConfigKey; 7] = [
    &keys::DOMAIN_AUTH_TIMEOUT.declared,
    &keys::DOMAIN_OFFLINE_CREDENTIALS.declared,
    &keys::DOMAIN_OFFLINE_LIFE.declared,
    &keys::DOMAIN_OFFLINE_FAILURES.declared,
    &keys::DOMAIN_OFFLINE_LOCKOUT.declared,
    &keys::DOMAIN_PASSWORD_HASH_TIME.declared,
    &keys::LDAP_ALLOW_CLEAR_USER_PASSWORDS.declared,
];

/// Keys without an effect if no credentials are cached.
const OFFLINE_KEYS: [&ConfigKey; 4] = [
    &keys::DOMAIN_OFFLINE_LIFE.declared,
    &keys::DOMAIN_OFFLINE_FAILURES.declared,
    &keys::DOMAIN_OFFLINE_LOCKOUT.declared,
    &keys::DOMAIN_PASSWORD_HASH_TIME.declared,
];

/// Effects of the keys of logins on binds.
struct BindContext {
    /// Users' passwords are checked by binds.
    as_users: bool,
    /// The realm of a bind by this host's key.
    gssapi: Option<GssapiConfig>,
}

fn auth(
    section: &mut TomlSection<'_, '_, '_, '_>,
    provider: &str,
    binds_by_key: bool,
) -> (AuthConfig, Option<GssapiConfig>) {
    let method: String = section.value(&keys::DOMAIN_AUTH);
    let method = match method.as_str() {
        "ldap" => AuthMethod::Ldap,
        "krb5" => AuthMethod::Krb5,
        _ => AuthMethod::None,
    };
    if method == AuthMethod::Ldap && provider == "files" {
        let text = "auth = \"ldap\" requires provider = \"ldap\"";
        let error = CodedError::new(&codes::LDAP_AUTH_WITHOUT_DIRECTORY, text);
        section.error(&keys::DOMAIN_AUTH, error);
    }
    if method == AuthMethod::None {
        for key in AUTH_KEYS {
            if section.has(key) {
                let text = "has no effect when auth = \"none\"";
                section.warning(key, CodedError::new(&codes::AUTH_KEY_UNUSED, text));
            }
        }
    }
    let timeout = section.value(&keys::DOMAIN_AUTH_TIMEOUT);
    let kept: bool = section.value(&keys::DOMAIN_OFFLINE_CREDENTIALS);
    if !kept {
        for key in OFFLINE_KEYS {
            if section.has(key) {
                let text = "has no effect because offline_credentials = false";
                section.warning(key, CodedError::new(&codes::OFFLINE_KEY_UNUSED, text));
            }
        }
    }
    let offline = OfflineConfig {
        life: section.value(&keys::DOMAIN_OFFLINE_LIFE),
        failures: section.value(&keys::DOMAIN_OFFLINE_FAILURES),
        lockout: section.value(&keys::DOMAIN_OFFLINE_LOCKOUT),
        hash_time: section.value(&keys::DOMAIN_PASSWORD_HASH_TIME),
    };
    let (krb5, gssapi) = krb5(section, method, binds_by_key);
    let krb5 = krb5.map(Box::new);
    let kept = kept && method != AuthMethod::None;
    (AuthConfig { method, timeout, offline: Some(offline).filter(|_| kept), krb5 }, gssapi)
}

/// Keys without an effect in a domain without Kerberos authentication.
const KRB5_KEYS: [&ConfigKey; 11] = [
    &keys::DOMAIN_KRB5_REALM.declared,
    &keys::DOMAIN_KRB5_KDCS.declared,
    &keys::DOMAIN_KRB5_KPASSWD.declared,
    &keys::DOMAIN_KRB5_DISCOVER.declared,
    &keys::DOMAIN_KRB5_KEYTAB.declared,
    &keys::DOMAIN_KRB5_VALIDATE.declared,
    &keys::DOMAIN_KRB5_FAST_PRINCIPAL.declared,
    &keys::DOMAIN_KRB5_CACHE.declared,
    &keys::DOMAIN_KRB5_LIFETIME.declared,
    &keys::DOMAIN_KRB5_RENEWABLE.declared,
    &keys::DOMAIN_KRB5_FORWARDABLE.declared,
];

/// Keys of Kerberos that a bind by this host's key uses, too.
const GSSAPI_KEYS: [&ConfigKey; 4] = [
    &keys::DOMAIN_KRB5_REALM.declared,
    &keys::DOMAIN_KRB5_KDCS.declared,
    &keys::DOMAIN_KRB5_DISCOVER.declared,
    &keys::DOMAIN_KRB5_KEYTAB.declared,
];

/// Reads the keys of Kerberos: for logins, and for a bind by this host's key.
fn krb5(
    section: &mut TomlSection<'_, '_, '_, '_>,
    method: AuthMethod,
    binds_by_key: bool,
) -> (Option<Krb5Config>, Option<GssapiConfig>) {
    let realm: Option<String> = section.optional_value(&keys::DOMAIN_KRB5_REALM);
    let validate: String = section.value(&keys::DOMAIN_KRB5_VALIDATE);
    let fast_principal: Option<String> = section.optional_value(&keys::DOMAIN_KRB5_FAST_PRINCIPAL);
    let cache: String = section.value(&keys::DOMAIN_KRB5_CACHE);
    let krb5 = Krb5Config {
        realm: realm.unwrap_or_default(),
        kdcs: section.value(&keys::DOMAIN_KRB5_KDCS),
        kpasswd: section.value(&keys::DOMAIN_KRB5_KPASSWD),
        discover: section.value(&keys::DOMAIN_KRB5_DISCOVER),
        keytab: section.value(&keys::DOMAIN_KRB5_KEYTAB),
        validate: match validate.as_str() {
            // FAST by this host's key is a proof of the KDC.
            _ if fast_principal.is_some() => KdcValidation::Required,
            "auto" => KdcValidation::Auto,
            "off" => KdcValidation::Off,
            _ => KdcValidation::Required,
        },
        fast_principal,
        cache: Some(cache).filter(|cache| cache != "none"),
        lifetime: section.value(&keys::DOMAIN_KRB5_LIFETIME),
        renewable: section.value(&keys::DOMAIN_KRB5_RENEWABLE),
        forwardable: section.value(&keys::DOMAIN_KRB5_FORWARDABLE),
    };
    section.note_unset(&keys::DOMAIN_KRB5_KPASSWD);
    let gssapi = binds_by_key.then(|| GssapiConfig {
        principal: None,
        realm: krb5.realm.clone(),
        kdcs: krb5.kdcs.clone(),
        discover: krb5.discover,
        keytab: krb5.keytab.clone(),
    });
    if method != AuthMethod::Krb5 {
        for key in KRB5_KEYS {
            if section.has(key) && !(binds_by_key && GSSAPI_KEYS.contains(&key)) {
                let text = "has no effect without auth = \"krb5\"";
                section.warning(key, CodedError::new(&codes::KRB5_KEY_UNUSED, text));
            }
        }
        if binds_by_key {
            check_gssapi_realm(section, &krb5);
        }
        return (None, gssapi);
    }
    if !section.has(&keys::DOMAIN_KRB5_REALM) {
        let text = "auth = \"krb5\" requires krb5_realm";
        section.error(&keys::DOMAIN_AUTH, CodedError::new(&codes::KRB5_REALM_MISSING, text));
    }
    let has_kdcs = section.has(&keys::DOMAIN_KRB5_KDCS);
    if !krb5.discover && (!has_kdcs || section.is_empty_list(&keys::DOMAIN_KRB5_KDCS)) {
        let key = if has_kdcs { &keys::DOMAIN_KRB5_KDCS.declared } else { &keys::DOMAIN_AUTH };
        let text = "auth = \"krb5\" requires krb5_kdcs or krb5_discover";
        section.error(key, CodedError::new(&codes::KRB5_KDC_MISSING, text));
    }
    warn_fast_principal(section, &krb5, &validate);
    (Some(krb5), gssapi)
}

/// Warns of a FAST principal that no KDC of the configuration knows, and of a key that has no effect beside it.
fn warn_fast_principal(
    section: &mut TomlSection<'_, '_, '_, '_>,
    krb5: &Krb5Config,
    validate: &str,
) {
    let Some(principal) = &krb5.fast_principal else { return };
    if validate != "required" {
        let text = "has no effect because krb5_fast_principal requires the keytab";
        let error = CodedError::new(&codes::VALIDATION_IMPLIED, text);
        section.warning(&keys::DOMAIN_KRB5_VALIDATE, error);
    }
    // DNS may name the KDCs of another realm.
    let realm = principal.split_once('@').map(|(_, realm)| realm);
    if realm.is_some_and(|realm| realm != krb5.realm) && !krb5.discover {
        let text = format!(
            "logins fail: the realm of the principal is not krb5_realm ({}), and krb5_discover is false",
            krb5.realm
        );
        let error = CodedError::new(&codes::INVALID_PRINCIPAL, text);
        section.warning(&keys::DOMAIN_KRB5_FAST_PRINCIPAL, error);
    }
}

/// Checks the keys of the realm of a bind, in a domain without Kerberos logins.
fn check_gssapi_realm(section: &mut TomlSection<'_, '_, '_, '_>, krb5: &Krb5Config) {
    if !section.has(&keys::DOMAIN_KRB5_REALM) {
        let text = "bind = \"gssapi\" requires krb5_realm";
        section.error(&keys::LDAP_BIND, CodedError::new(&codes::BIND_REALM_MISSING, text));
    }
    let has_kdcs = section.has(&keys::DOMAIN_KRB5_KDCS);
    if !krb5.discover && (!has_kdcs || section.is_empty_list(&keys::DOMAIN_KRB5_KDCS)) {
        let key = if has_kdcs { &keys::DOMAIN_KRB5_KDCS.declared } else { &keys::LDAP_BIND };
        let text = "bind = \"gssapi\" requires krb5_kdcs or krb5_discover";
        section.error(key, CodedError::new(&codes::BIND_KDC_MISSING, text));
    }
}

fn ids(section: &mut TomlSection<'_, '_, '_, '_>, host: &HostConfig) -> (u32, u32) {
    let min_id = section.value_or(&keys::DOMAIN_MIN_ID, host.min_id);
    let max_id = section.value_or(&keys::DOMAIN_MAX_ID, host.max_id);
    if section.has(&keys::DOMAIN_MIN_ID) && min_id < host.min_id {
        let text = format!("{min_id} is below min_id in [host] ({})", host.min_id);
        let error = CodedError::new(&codes::IDS_BEYOND_HOST, text);
        section.error(&keys::DOMAIN_MIN_ID, error.fix("Raise it, or lower min_id in [host]."));
    }
    if section.has(&keys::DOMAIN_MAX_ID) && max_id > host.max_id && host.max_id > 0 {
        let text = format!("{max_id} is above max_id in [host] ({})", host.max_id);
        let error = CodedError::new(&codes::IDS_BEYOND_HOST, text);
        section.error(&keys::DOMAIN_MAX_ID, error.fix("Lower it, or raise max_id in [host]."));
    }
    if section.has(&keys::DOMAIN_MIN_ID) || section.has(&keys::DOMAIN_MAX_ID) {
        check_ids(section, DOMAIN_ID_KEYS, min_id, max_id);
    }
    (min_id, max_id)
}

/// The keys of the smallest and the largest id of a table.
type IdKeys = (&'static Key<u32>, &'static Key<u32>);

pub(crate) const HOST_ID_KEYS: IdKeys = (&keys::HOST_MIN_ID, &keys::HOST_MAX_ID);
const DOMAIN_ID_KEYS: IdKeys = (&keys::DOMAIN_MIN_ID, &keys::DOMAIN_MAX_ID);

/// A value of 0 is a mistake that was reported before.
pub(crate) fn check_ids(
    section: &mut TomlSection<'_, '_, '_, '_>,
    (min_key, max_key): IdKeys,
    min: u32,
    max: u32,
) {
    if min > max && max > 0 {
        let key = if section.has(max_key) { max_key } else { min_key };
        let text = format!("min_id ({min}) is larger than max_id ({max})");
        section.error(key, CodedError::new(&codes::ID_RANGE_EMPTY, text));
    }
}

fn home_and_shell(
    section: &mut TomlSection<'_, '_, '_, '_>,
    schema: DirectorySchema,
) -> HomeShellOverrides {
    let has_home = section.has(&keys::DOMAIN_HOME) || section.has(&keys::DOMAIN_ALLOW_EMPTY_HOME);
    let home = schema.fallback_home().filter(|_| !has_home);
    let has_shell = section.has(&keys::DOMAIN_SHELL);
    let shell = schema.fallback_shell().filter(|_| !has_shell);
    let overrides = HomeShellOverrides {
        home: section.optional_value(&keys::DOMAIN_HOME),
        fallback_home: fallback(section, &keys::DOMAIN_FALLBACK_HOME, home),
        shell: section.optional_value(&keys::DOMAIN_SHELL),
        fallback_shell: fallback(section, &keys::DOMAIN_FALLBACK_SHELL, shell),
    };
    for (always, fallback) in [
        (&keys::DOMAIN_HOME, &keys::DOMAIN_FALLBACK_HOME),
        (&keys::DOMAIN_SHELL, &keys::DOMAIN_FALLBACK_SHELL),
    ] {
        if section.has(always) && section.has(fallback) {
            let text = format!("has no effect together with {}", always.name);
            section.warning(fallback, CodedError::new(&codes::FALLBACK_UNUSED, text));
        }
    }
    overrides
}

/// Reads a template, with the default of the schema.
fn fallback(
    section: &mut TomlSection<'_, '_, '_, '_>,
    key: &'static Key<String>,
    of_schema: Option<String>,
) -> Option<String> {
    if section.has(key) {
        return section.optional_value(key);
    }
    match of_schema {
        Some(template) => Some(section.value_or(key, template)),
        None => {
            section.note_unset(key);
            None
        }
    }
}

fn serving(
    section: &mut TomlSection<'_, '_, '_, '_>,
    overrides: &HomeShellOverrides,
    schema: DirectorySchema,
) -> ServingConfig {
    let empty_homes = section.value(&keys::DOMAIN_ALLOW_EMPTY_HOME);
    let has_home = match (&overrides.home, &overrides.fallback_home) {
        // A template that is the directory's value alone may be empty.
        (Some(home), _) => home.starts_with('/'),
        (None, fallback) => fallback.is_some(),
    };
    if empty_homes && has_home {
        let text = "has no effect together with home or fallback_home";
        let error = CodedError::new(&codes::EMPTY_HOME_UNUSED, text);
        section.warning(&keys::DOMAIN_ALLOW_EMPTY_HOME, error);
    }
    ServingConfig {
        enumerate: section.value_or(&keys::DOMAIN_ENUMERATE, true),
        empty_homes,
        nests_primary_groups: schema.is_active_directory(),
        shells: shells(section),
    }
}

fn shells(section: &mut TomlSection<'_, '_, '_, '_>) -> ShellRules {
    let replacement: String = section.value(&keys::DOMAIN_REPLACEMENT_SHELL);
    let unlisted = section.value_or(&keys::DOMAIN_UNLISTED_SHELL, replacement.clone());
    let allowed = section.optional_value(&keys::DOMAIN_ALLOWED_SHELLS).unwrap_or_default();
    let refused = section.value(&keys::DOMAIN_REFUSED_SHELLS);
    let rules = ShellRules { allowed, refused, replacement, unlisted };
    if !section.has(&keys::DOMAIN_ALLOWED_SHELLS) && section.has(&keys::DOMAIN_UNLISTED_SHELL) {
        let text = "has no effect without allowed_shells";
        let error = CodedError::new(&codes::REPLACEMENT_SHELL_UNUSED, text);
        section.warning(&keys::DOMAIN_UNLISTED_SHELL, error);
    }
    let has_rules =
        section.has(&keys::DOMAIN_ALLOWED_SHELLS) || section.has(&keys::DOMAIN_REFUSED_SHELLS);
    if !has_rules && section.has(&keys::DOMAIN_REPLACEMENT_SHELL) {
        let text = "has no effect without allowed_shells or refused_shells";
        let error = CodedError::new(&codes::REPLACEMENT_SHELL_UNUSED, text);
        section.warning(&keys::DOMAIN_REPLACEMENT_SHELL, error);
    }
    rules
}

/// Reads a key of domains in on-demand mode.
fn on_demand_duration(
    section: &mut TomlSection<'_, '_, '_, '_>,
    mode: DomainMode,
    key: &Key<Duration>,
) -> Duration {
    if mode == DomainMode::Replicate && section.has(key) {
        let text = "has no effect in a mirrored domain";
        section.warning(key, CodedError::new(&codes::ON_DEMAND_KEY_UNUSED, text));
    }
    section.value(key)
}

fn when_away(section: &mut TomlSection<'_, '_, '_, '_>, mode: DomainMode) -> WhenAway {
    let word: String = section.value(&keys::DOMAIN_WHEN_AWAY);
    if mode == DomainMode::Replicate && section.has(&keys::DOMAIN_WHEN_AWAY) {
        let text = "has no effect in a mirrored domain";
        let error = CodedError::new(&codes::ON_DEMAND_KEY_UNUSED, text);
        section.warning(&keys::DOMAIN_WHEN_AWAY, error);
        return WhenAway::Wait;
    }
    if word != "next" {
        return WhenAway::Wait;
    }
    if !section.has(&keys::DOMAIN_MIN_ID) || !section.has(&keys::DOMAIN_MAX_ID) {
        let text = "when_away = \"next\" requires min_id and max_id of this domain";
        let error = CodedError::new(&codes::AWAY_WITHOUT_ID_RANGE, text);
        section.error(&keys::DOMAIN_WHEN_AWAY, error);
    }
    WhenAway::Next
}

/// Checks that no other domain can have an id of a domain that is skipped while it is away.
pub(crate) fn check_away_ranges(
    report: &mut LoadReport<'_>,
    tables: &DeTable<'_>,
    domains: &[DomainConfig],
) {
    for domain in domains.iter().filter(|domain| domain.when_away == WhenAway::Next) {
        let shares = |other: &&DomainConfig| {
            other.name != domain.name
                && other.min_id <= domain.max_id
                && domain.min_id <= other.max_id
        };
        let Some(other) = domains.iter().find(shares) else { continue };
        let path = domain_path(&domain.name);
        let found = toml_section::entry(tables, &domain.name);
        let mut section = TomlSection::new(report, ConfigTable::Domain, &path, found);
        let text = format!(
            "when_away = \"next\": the ids {} to {} are also ids of domain {} ({} to {})",
            domain.min_id, domain.max_id, other.name, other.min_id, other.max_id
        );
        let error = CodedError::new(&codes::AWAY_ID_RANGE_SHARED, text);
        section.error(&keys::DOMAIN_WHEN_AWAY, error);
    }
}

fn provider_of(
    section: &mut TomlSection<'_, '_, '_, '_>,
    provider: &str,
    mode: DomainMode,
    host: &HostConfig,
    binds: BindContext,
) -> ProviderConfig {
    match provider {
        "files" => {
            section.reject_unknown_keys(Some("files"));
            if mode == DomainMode::OnDemand {
                let text = "the files provider always mirrors its files";
                section.error(&keys::DOMAIN_MODE, CodedError::new(&codes::ON_DEMAND_FILES, text));
            }
            ProviderConfig::Files(files(section, host))
        }
        "ldap" => {
            section.reject_unknown_keys(Some("ldap"));
            ProviderConfig::Ldap(Box::new(ldap(section, binds)))
        }
        // An unknown provider was reported before. The placeholder requires no keys.
        _ => {
            section.reject_unknown_keys(None);
            ProviderConfig::Files(FilesConfig { passwd: PathBuf::new(), group: PathBuf::new() })
        }
    }
}

fn files(section: &mut TomlSection<'_, '_, '_, '_>, host: &HostConfig) -> FilesConfig {
    let files = FilesConfig {
        passwd: section.value(&keys::FILES_PASSWD),
        group: section.value(&keys::FILES_GROUP),
    };
    let (passwd, group) = (&files.passwd, &files.group);
    if passwd == group && section.has(&keys::FILES_PASSWD) && passwd.has_root() {
        let error = CodedError::new(&codes::SAME_SOURCE_FILE, "is the same file as passwd");
        section.error(&keys::FILES_GROUP, error);
    }
    for (key, own, host) in
        [(&keys::FILES_PASSWD, passwd, &host.passwd), (&keys::FILES_GROUP, group, &host.group)]
    {
        if own == host && own.has_root() {
            let text = "is the host's own file; every entry would conflict with a local account";
            section.error(key, CodedError::new(&codes::HOST_SOURCE_FILE, text));
        }
    }
    files
}

fn ldap(section: &mut TomlSection<'_, '_, '_, '_>, binds: BindContext) -> LdapConfig {
    let (servers, discover) = servers(section);
    let controllers = controllers(section);
    let bases: Vec<SearchBase> = section.value(&keys::LDAP_BASE);
    let schema = DirectorySchema::from_section(section);
    let member_attributes = member_attributes(section, schema);
    let id_mapping = id_mapping::id_mapping(section, schema);
    let mut search =
        |base_key: &Key<Vec<SearchBase>>, filter_key: &Key<String>, filter: String| SearchConfig {
            bases: section.value_or(base_key, bases.clone()),
            filter: section.value_or(filter_key, filter),
        };
    let users = search(&keys::LDAP_USER_BASE, &keys::LDAP_USER_FILTER, schema.user_filter());
    let groups = search(&keys::LDAP_GROUP_BASE, &keys::LDAP_GROUP_FILTER, schema.group_filter());
    let start_tls: bool = section.value(&keys::LDAP_START_TLS);
    let client_certificate = client_certificate(section);
    let network = BindNetwork {
        servers: &servers,
        discover: discover.is_some(),
        start_tls,
        has_certificate: client_certificate.is_some(),
    };
    let bind = bind(section, &network, binds.gssapi);
    let tls_ca: Option<PathBuf> = section.optional_value(&keys::LDAP_TLS_CA);
    section.note_unset(&keys::LDAP_TLS_CA);
    let allow_clear_password: bool = section.value(&keys::LDAP_ALLOW_CLEAR_PASSWORD);
    let allow_clear_identities: bool = section.value(&keys::LDAP_ALLOW_CLEAR_IDENTITIES);
    let allow_clear_user_passwords: bool = section.value(&keys::LDAP_ALLOW_CLEAR_USER_PASSWORDS);
    let transport = transport(section, &servers, discover.is_some(), start_tls);
    if let (true, false, Some(server)) =
        (binds.as_users, allow_clear_user_passwords, &transport.without_tls)
    {
        let text = format!("passwords of users would be sent to {server} unencrypted");
        section.error(&keys::DOMAIN_AUTH, CodedError::new(&codes::CLEAR_USER_PASSWORDS, text));
    }
    // A bind by this host's key encrypts the connection.
    if !start_tls && !matches!(bind, BindMethod::Gssapi(_)) {
        check_clear_identities(section, &servers, discover.is_some(), allow_clear_identities);
    }
    let in_clear = matches!(bind, BindMethod::Simple { .. }) && !allow_clear_password;
    if let (true, Some(server)) = (in_clear, transport.without_tls) {
        let text = format!("the bind password would be sent to {server} unencrypted");
        let error = CodedError::new(&codes::CLEAR_BIND_PASSWORD, text);
        section.error(&keys::LDAP_BIND_PASSWORD_FILE, error);
    }
    LdapConfig {
        schema,
        member_range: section.value(&keys::LDAP_MEMBER_RANGE),
        page_size: section.value(&keys::LDAP_PAGE_SIZE),
        connect_timeout: section.value(&keys::LDAP_CONNECT_TIMEOUT),
        search_timeout: section.value(&keys::LDAP_SEARCH_TIMEOUT),
        poll: section.value_or(&keys::LDAP_POLL, schema.poll_interval()),
        sweep: section.value_or(&keys::LDAP_SWEEP, schema.reconcile_interval()),
        full_refresh: section.value(&keys::LDAP_FULL_REFRESH),
        fail_back: section.value(&keys::LDAP_FAIL_BACK),
        message_bytes_max: section.value(&keys::LDAP_MESSAGE_BYTES_MAX),
        attributes: attributes(section, schema),
        servers,
        discover,
        controllers,
        bases,
        users,
        groups,
        nested_group_filter: section
            .value_or(&keys::LDAP_NESTED_GROUP_FILTER, schema.nested_group_filter()),
        member_attributes,
        id_mapping,
        bind,
        start_tls,
        tls_ca,
        client_certificate,
        allow_clear_password,
        allow_clear_identities,
        allow_clear_user_passwords,
        password_change: password_change(section, binds.as_users),
    }
}

/// Keys without an effect if users are not authenticated by binds.
const PASSWORD_CHANGE_KEYS: [&ConfigKey; 3] = [
    &keys::LDAP_PASSWORD_CHANGE.declared,
    &keys::LDAP_CHANGE_EXPIRED_PASSWORD.declared,
    &keys::LDAP_UPDATE_SHADOW_LAST_CHANGE.declared,
];

fn password_change(
    section: &mut TomlSection<'_, '_, '_, '_>,
    binds_as_users: bool,
) -> PasswordChangeConfig {
    let operation: String = section.value(&keys::LDAP_PASSWORD_CHANGE);
    let shadow: String = section.value(&keys::LDAP_UPDATE_SHADOW_LAST_CHANGE);
    let change = PasswordChangeConfig {
        operation: match operation.as_str() {
            "modify" => PasswordOperation::Modify,
            _ => PasswordOperation::Extended,
        },
        after_expiry: section.value(&keys::LDAP_CHANGE_EXPIRED_PASSWORD),
        writes_shadow_day: shadow != "never",
    };
    if change.after_expiry && change.operation == PasswordOperation::Modify {
        let text = "change_expired_password requires password_change = \"extended\"";
        let error = CodedError::new(&codes::EXPIRED_CHANGE_BY_MODIFY, text);
        section.error(&keys::LDAP_CHANGE_EXPIRED_PASSWORD, error);
    }
    if !binds_as_users {
        for key in PASSWORD_CHANGE_KEYS {
            if section.has(key) {
                let text = "has no effect without auth = \"ldap\"";
                section.warning(key, CodedError::new(&codes::LDAP_AUTH_KEY_UNUSED, text));
            }
        }
    }
    change
}

/// Without TLS, each router on the path to a server can change the users and groups of this host.
fn check_clear_identities(
    section: &mut TomlSection<'_, '_, '_, '_>,
    servers: &[LdapServer],
    discover: bool,
    is_allowed: bool,
) {
    let message = match is_allowed {
        true => &codes::CLEAR_IDENTITIES_ALLOWED,
        false => &codes::CLEAR_IDENTITIES,
    };
    let error = |server: &str| {
        let attack = "a network attacker can alter users and groups";
        CodedError::new(message, format!("unencrypted connection to {server}: {attack}"))
    };
    for server in servers {
        if matches!(server, LdapServer::Ldap { .. }) && !server.is_this_host() {
            let error = error(&server.to_string());
            match is_allowed {
                true => section.element_warning(&keys::LDAP_URIS, is_server(server), error),
                false => section.element_error(&keys::LDAP_URIS, is_server(server), error),
            }
        }
    }
    if discover {
        let error = error(DISCOVERED_SERVERS);
        match is_allowed {
            true => section.warning(&keys::LDAP_DISCOVER, error.fix("Set start_tls = true.")),
            false => section.error(
                &keys::LDAP_DISCOVER,
                error.fix(
                    "Set start_tls = true. In a trusted network, set allow_clear_identities = true.",
                ),
            ),
        }
    }
}

/// Servers from SRV records in messages.
const DISCOVERED_SERVERS: &str = "servers from DNS";

/// Returns whether a text of `uris` is the URI of a server.
fn is_server(server: &LdapServer) -> impl Fn(&str) -> bool {
    move |text| value_syntax::server(text).is_ok_and(|found| found == *server)
}

fn servers(section: &mut TomlSection<'_, '_, '_, '_>) -> (Vec<LdapServer>, Option<String>) {
    let servers = section.value(&keys::LDAP_URIS);
    let discover = section.optional_value(&keys::LDAP_DISCOVER);
    section.note_unset(&keys::LDAP_URIS);
    if !section.has(&keys::LDAP_URIS) && !section.has(&keys::LDAP_DISCOVER) {
        let error = CodedError::new(&codes::LDAP_SERVER_MISSING, "is missing");
        section.error(&keys::LDAP_URIS, error);
    } else if section.is_empty_list(&keys::LDAP_URIS) {
        section.error(&keys::LDAP_URIS, CodedError::new(&codes::URIS_EMPTY, "the list is empty"));
    }
    (servers, discover)
}

/// Reads the keys about controllers of Active Directory.
fn controllers(section: &mut TomlSection<'_, '_, '_, '_>) -> Option<ControllerDiscovery> {
    let is_wanted: bool = section.value(&keys::LDAP_DISCOVER_CONTROLLERS);
    let site: Option<String> = section.optional_value(&keys::LDAP_SITE);
    section.note_unset(&keys::LDAP_SITE);
    if is_wanted && !section.has(&keys::LDAP_DISCOVER) {
        let error = CodedError::new(&codes::CONTROLLERS_WITHOUT_DOMAIN, "requires discover");
        section.error(&keys::LDAP_DISCOVER_CONTROLLERS, error);
    }
    if !is_wanted && section.has(&keys::LDAP_SITE) {
        let text = "requires discover_controllers = true";
        section.error(&keys::LDAP_SITE, CodedError::new(&codes::SITE_UNUSED, text));
    }
    is_wanted.then_some(ControllerDiscovery { site })
}

/// The ways to the servers, as far as the bind depends on them.
struct BindNetwork<'s> {
    servers: &'s [LdapServer],
    discover: bool,
    start_tls: bool,
    has_certificate: bool,
}

fn bind(
    section: &mut TomlSection<'_, '_, '_, '_>,
    network: &BindNetwork<'_>,
    gssapi: Option<GssapiConfig>,
) -> BindMethod {
    let fallback = if section.has(&keys::LDAP_BIND_DN) { "simple" } else { "anonymous" };
    let bind = section.value_or(&keys::LDAP_BIND, fallback.to_owned());
    let dn: Option<String> = section.optional_value(&keys::LDAP_BIND_DN);
    let password_file: Option<SecretFile> = section.optional_value(&keys::LDAP_BIND_PASSWORD_FILE);
    let principal: Option<String> = section.optional_value(&keys::LDAP_BIND_PRINCIPAL);
    if section.has(&keys::LDAP_BIND_PRINCIPAL) && gssapi.is_none() {
        let error = CodedError::new(&codes::BIND_PRINCIPAL_UNUSED, "requires bind = \"gssapi\"");
        section.error(&keys::LDAP_BIND_PRINCIPAL, error);
    }
    match (&*bind, gssapi) {
        ("gssapi", Some(gssapi)) => gssapi_bind(section, network, gssapi, principal),
        ("simple", _) => {
            if !section.has(&keys::LDAP_BIND_DN) {
                let error = CodedError::new(&codes::BIND_DN_MISSING, "a simple bind requires a DN");
                section.error(&keys::LDAP_BIND, error);
            }
            if !section.has(&keys::LDAP_BIND_PASSWORD_FILE) {
                let place = if section.has(&keys::LDAP_BIND_DN) {
                    &keys::LDAP_BIND_DN
                } else {
                    &keys::LDAP_BIND
                };
                let text = "a simple bind requires a password";
                section.error(place, CodedError::new(&codes::BIND_PASSWORD_MISSING, text));
            }
            BindMethod::Simple {
                dn: dn.unwrap_or_default(),
                password_file: password_file.unwrap_or_default(),
            }
        }
        ("external", _) => {
            check_external(section, network);
            warn_unused_bind_keys(section, "external");
            BindMethod::External
        }
        _ => {
            if section.has(&keys::LDAP_BIND) {
                warn_unused_bind_keys(section, "anonymous");
            } else if section.has(&keys::LDAP_BIND_PASSWORD_FILE) {
                let text = "is set without bind_dn";
                let error = CodedError::new(&codes::BIND_PASSWORD_WITHOUT_DN, text);
                section.error(&keys::LDAP_BIND_PASSWORD_FILE, error);
            }
            BindMethod::Anonymous
        }
    }
}

/// Checks that each server learns an identity: from a socket of this host, or by a certificate.
fn check_external(section: &mut TomlSection<'_, '_, '_, '_>, network: &BindNetwork<'_>) {
    let defect = |is_tls: bool, server: &str| match (is_tls, network.has_certificate) {
        (true, true) => None,
        (true, false) => {
            let text = format!("bind = \"external\" requires tls_cert for {server}");
            Some(CodedError::new(&codes::BIND_EXTERNAL_WITHOUT_CERTIFICATE, text))
        }
        (false, _) => {
            let text = format!(
                "bind = \"external\" requires ldapi:// or TLS; {server} is a connection without TLS"
            );
            Some(CodedError::new(&codes::BIND_EXTERNAL_WITHOUT_SOCKET, text))
        }
    };
    for server in network.servers {
        let is_tls = match server {
            LdapServer::Ldapi { .. } => continue,
            LdapServer::Ldaps { .. } => true,
            LdapServer::Ldap { .. } => network.start_tls,
        };
        if let Some(error) = defect(is_tls, &server.to_string()) {
            section.element_error(&keys::LDAP_URIS, is_server(server), error);
        }
    }
    if network.discover
        && let Some(error) = defect(network.start_tls, "a server from DNS")
    {
        section.error(&keys::LDAP_DISCOVER, error);
    }
}

/// Completes the bind by this host's key.
fn gssapi_bind(
    section: &mut TomlSection<'_, '_, '_, '_>,
    network: &BindNetwork<'_>,
    gssapi: GssapiConfig,
    principal: Option<String>,
) -> BindMethod {
    for server in network.servers {
        if matches!(server, LdapServer::Ldapi { .. }) {
            let text = format!("bind = \"gssapi\" requires a host name; {server} has none");
            let error = CodedError::new(&codes::BIND_GSSAPI_ON_SOCKET, text);
            section.element_error(&keys::LDAP_URIS, is_server(server), error);
        }
    }
    let realm = principal.as_deref().and_then(|text| Some(text.split_once('@')?.1));
    if realm.is_some_and(|realm| realm != gssapi.realm) {
        let text = format!("the realm of the principal is not krb5_realm ({})", gssapi.realm);
        let error = CodedError::new(&codes::INVALID_PRINCIPAL, text);
        section.error(&keys::LDAP_BIND_PRINCIPAL, error);
    }
    warn_unused_bind_keys(section, "gssapi");
    BindMethod::Gssapi(Box::new(GssapiConfig { principal, ..gssapi }))
}

/// Reads the files of a client certificate.
fn client_certificate(section: &mut TomlSection<'_, '_, '_, '_>) -> Option<ClientCertificateFiles> {
    let certificate: Option<PathBuf> = section.optional_value(&keys::LDAP_TLS_CERT);
    let key: Option<SecretFile> = section.optional_value(&keys::LDAP_TLS_KEY);
    let (has_certificate, has_key) =
        (section.has(&keys::LDAP_TLS_CERT), section.has(&keys::LDAP_TLS_KEY));
    if has_certificate != has_key {
        let (key, other): (&ConfigKey, _) = match has_certificate {
            true => (&keys::LDAP_TLS_CERT, "tls_key"),
            false => (&keys::LDAP_TLS_KEY, "tls_cert"),
        };
        let error = CodedError::new(&codes::TLS_CERT_INCOMPLETE, format!("requires {other}"));
        section.error(key, error);
    }
    Some(ClientCertificateFiles { certificate: certificate?, key: key? })
}

fn warn_unused_bind_keys(section: &mut TomlSection<'_, '_, '_, '_>, bind: &str) {
    for key in [&keys::LDAP_BIND_DN.declared, &keys::LDAP_BIND_PASSWORD_FILE.declared] {
        if section.has(key) {
            let text = format!("contradicts bind = \"{bind}\"");
            section.error(key, CodedError::new(&codes::BIND_KEY_CONFLICT, text));
        }
    }
}

/// The servers with and without TLS.
struct TlsCoverage {
    /// At least one server uses TLS.
    tls: bool,
    /// A server without TLS.
    without_tls: Option<String>,
}

fn transport(
    section: &mut TomlSection<'_, '_, '_, '_>,
    servers: &[LdapServer],
    discover: bool,
    start_tls: bool,
) -> TlsCoverage {
    let mut found = TlsCoverage { tls: start_tls, without_tls: None };
    for server in servers {
        match server {
            LdapServer::Ldaps { .. } if start_tls => section.element_error(
                &keys::LDAP_URIS,
                is_server(server),
                CodedError::new(
                    &codes::START_TLS_WITH_LDAPS,
                    format!("{server} uses TLS from the start, and start_tls requires ldap://"),
                ),
            ),
            LdapServer::Ldaps { .. } => found.tls = true,
            LdapServer::Ldap { .. } if !start_tls && !server.is_this_host() => {
                found.without_tls = Some(server.to_string());
            }
            LdapServer::Ldapi { .. } if start_tls => section.element_warning(
                &keys::LDAP_URIS,
                is_server(server),
                CodedError::new(
                    &codes::START_TLS_ON_SOCKET,
                    "start_tls has no effect on a socket of this host",
                ),
            ),
            LdapServer::Ldap { .. } | LdapServer::Ldapi { .. } => {}
        }
    }
    if discover && !start_tls {
        found.without_tls = Some(DISCOVERED_SERVERS.to_owned());
    }
    if section.has(&keys::LDAP_TLS_CA) && !found.tls {
        let error = CodedError::new(&codes::TLS_CA_UNUSED, "has no effect without TLS");
        section.warning(&keys::LDAP_TLS_CA, error);
    }
    if section.has(&keys::LDAP_TLS_CERT) && !found.tls {
        let error = CodedError::new(&codes::TLS_CERT_UNUSED, "has no effect without TLS");
        section.warning(&keys::LDAP_TLS_CERT, error);
    }
    found
}

/// Reads the member attributes. The common ones imply how they name members, independent of the schema.
fn member_attributes(
    section: &mut TomlSection<'_, '_, '_, '_>,
    schema: DirectorySchema,
) -> Vec<MemberAttribute> {
    let form: String = section.value(&keys::LDAP_SCHEMA);
    let names = section.value_or(&keys::LDAP_MEMBER_ATTRIBUTES, schema.member_attributes());
    if section.is_empty_list(&keys::LDAP_MEMBER_ATTRIBUTES) {
        let text = "the list is empty, so no group would have members";
        let error = CodedError::new(&codes::MEMBER_ATTRIBUTES_EMPTY, text);
        section.error(&keys::LDAP_MEMBER_ATTRIBUTES, error);
    }
    let others = if form == "rfc2307" { MemberValues::Names } else { MemberValues::Dns };
    let mut attributes: Vec<MemberAttribute> = Vec::new();
    for name in names.iter().map(|name| name.to_ascii_lowercase()) {
        let values = match name.as_str() {
            "memberuid" => MemberValues::Names,
            "member" => MemberValues::Dns,
            "uniquemember" => MemberValues::DnsWithUids,
            _ => others,
        };
        if attributes.iter().all(|other| other.name != name) {
            attributes.push(MemberAttribute { name, values });
        }
    }
    attributes
}

fn attributes(
    section: &mut TomlSection<'_, '_, '_, '_>,
    schema: DirectorySchema,
) -> AttributeNames {
    let path = section.key_path("attributes");
    let found = section.subtable("attributes");
    let mut section = TomlSection::new(section.report, ConfigTable::Attributes, &path, found);
    schema.check_attributes(&mut section);
    let mut name = |key: &Key<String>| match key.default {
        KeyDefault::Follows(_) => section.value_or(key, schema.attribute(key)).to_ascii_lowercase(),
        _ => section.value(key).to_ascii_lowercase(),
    };
    let mut names = AttributeNames {
        user_name: name(&keys::ATTRIBUTE_USER_NAME),
        user_uid: name(&keys::ATTRIBUTE_USER_UID),
        user_gid: name(&keys::ATTRIBUTE_USER_GID),
        user_gecos: name(&keys::ATTRIBUTE_USER_GECOS),
        user_home: name(&keys::ATTRIBUTE_USER_HOME),
        user_shell: name(&keys::ATTRIBUTE_USER_SHELL),
        group_name: name(&keys::ATTRIBUTE_GROUP_NAME),
        group_gid: name(&keys::ATTRIBUTE_GROUP_GID),
        ssh_key: name(&keys::ATTRIBUTE_SSH_KEY),
        shadow_last_change: name(&keys::ATTRIBUTE_SHADOW_LAST_CHANGE),
        shadow_max: name(&keys::ATTRIBUTE_SHADOW_MAX),
        shadow_warning: name(&keys::ATTRIBUTE_SHADOW_WARNING),
        shadow_inactive: name(&keys::ATTRIBUTE_SHADOW_INACTIVE),
        shadow_expire: name(&keys::ATTRIBUTE_SHADOW_EXPIRE),
        locked_time: name(&keys::ATTRIBUTE_LOCKED_TIME),
        password_reset: name(&keys::ATTRIBUTE_PASSWORD_RESET),
        account_lock: name(&keys::ATTRIBUTE_ACCOUNT_LOCK),
        role: name(&keys::ATTRIBUTE_ROLE),
        account_control: name(&keys::ATTRIBUTE_ACCOUNT_CONTROL),
        account_expires: name(&keys::ATTRIBUTE_ACCOUNT_EXPIRES),
        account_control_computed: name(&keys::ATTRIBUTE_ACCOUNT_CONTROL_COMPUTED),
        lockout_time: name(&keys::ATTRIBUTE_LOCKOUT_TIME),
        host: name(&keys::ATTRIBUTE_HOST),
        authorized_service: name(&keys::ATTRIBUTE_AUTHORIZED_SERVICE),
        rhost: name(&keys::ATTRIBUTE_RHOST),
        uuid: None,
    };
    let uuid: Option<String> = section.optional_value(&keys::ATTRIBUTE_UUID);
    section.note_unset(&keys::ATTRIBUTE_UUID);
    names.uuid = uuid.map(|uuid| uuid.to_ascii_lowercase());
    section.reject_unknown_keys(Some("ldap"));
    names
}
