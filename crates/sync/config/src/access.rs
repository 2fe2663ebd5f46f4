// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[domain.NAME.access]` and its subtables: the users of a domain that may log in to this host.
//!
//! This module reads the rules and reports contradictions. The backend applies them.

use crate::filter_template;
use crate::keys::{self, ConfigTable, Key};
use crate::schema_defaults::DirectorySchema;
use crate::toml_section::{TomlSection, entry};
use crate::{AccessConfig, AccessLists, AccountCheck, DomainConfig, NameConfig, ProviderConfig};
use roster_messages::CodedError;
use roster_messages::table::config as codes;
use roster_names::{compose, equals_folded, fold, qualified_forms};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::DeValue;

impl AccountCheck {
    /// All checks, in the order in which they run.
    pub const ALL: [Self; 8] = [
        Self::ShadowExpire,
        Self::PasswordAge,
        Self::PasswordPolicy,
        Self::AccountLock,
        Self::ActiveDirectory,
        Self::Host,
        Self::AuthorizedService,
        Self::RemoteHost,
    ];
    /// Names of the checks in the configuration.
    pub const NAMES: [&'static str; 8] = [
        "shadow-expire",
        "password-age",
        "password-policy",
        "account-lock",
        "active-directory",
        "host",
        "authorized-service",
        "rhost",
    ];
    /// The checks without a configuration.
    pub const DEFAULT: [Self; 4] =
        [Self::ShadowExpire, Self::PasswordPolicy, Self::AccountLock, Self::ActiveDirectory];

    fn from_name(name: &str) -> Option<Self> {
        let place = Self::NAMES.iter().position(|known| *known == name)?;
        Self::ALL.get(place).copied()
    }
}

type TableEntry<'d> = Option<(Range<usize>, &'d Spanned<DeValue<'d>>)>;

/// Reads the table. A missing table has the defaults.
pub(crate) fn access<'d>(
    section: &mut TomlSection<'_, '_, '_, '_>,
    found: TableEntry<'d>,
    authenticates: bool,
) -> AccessConfig {
    let path = section.key_path("access");
    let services =
        found.as_ref().and_then(|(_, value)| entry(value.get_ref().as_table()?, "service"));
    let mut section = TomlSection::new(section.report, ConfigTable::Access, &path, found);
    let checks: Vec<String> = section.value(&keys::ACCESS_ACCOUNT_CHECKS);
    let access = AccessConfig {
        enabled: authenticates,
        lists: lists(&mut section, &ACCESS_LISTS),
        filter: section.optional_value(&keys::ACCESS_FILTER),
        account_checks: AccountCheck::ALL
            .into_iter()
            .filter(|check| checks.iter().any(|name| AccountCheck::from_name(name) == Some(*check)))
            .collect(),
        temporary_lock: section.value(&keys::ACCESS_TEMPORARY_LOCK),
        ssh_key_options: section.value(&keys::ACCESS_SSH_KEY_OPTIONS),
        ssh_keys_of_denied: section.value(&keys::ACCESS_SSH_KEYS_OF_DENIED),
        services: BTreeMap::new(),
    };
    let has_rules =
        access.filter.is_some() || access.lists != AccessLists::default() || services.is_some();
    let enabled = section.value_or(&keys::ACCESS_ENABLED, authenticates || has_rules);
    section.reject_unknown_keys(None);
    let services = services.map_or_else(BTreeMap::new, |found| service_lists(&mut section, found));
    let access = AccessConfig { services, enabled, ..access };
    if !access.enabled && (authenticates || has_rules) {
        let text = "enabled = false disables the access rules or auth of this domain";
        let error = CodedError::new(&codes::ACCESS_DISABLED_WITH_RULES, text);
        section.error(&keys::ACCESS_ENABLED, error);
    }
    access
}

/// Reads the tables below `service`.
fn service_lists(
    section: &mut TomlSection<'_, '_, '_, '_>,
    (place, value): (Range<usize>, &Spanned<DeValue<'_>>),
) -> BTreeMap<String, AccessLists> {
    let path = section.key_path("service");
    // A mistake such as service = "sshd" is reported as for any table.
    drop(TomlSection::new(section.report, ConfigTable::Service, &path, Some((place, value))));
    let mut services = BTreeMap::new();
    for (key, value) in value.get_ref().as_table().into_iter().flatten() {
        let name = &**key.get_ref();
        let quoted = crate::toml_section::bare_or_quoted(name);
        let path = format!("{path}.{quoted}");
        let found = Some((key.span(), value));
        let mut section = TomlSection::new(section.report, ConfigTable::Service, &path, found);
        let of_service = lists(&mut section, &SERVICE_LISTS);
        section.reject_unknown_keys(None);
        services.insert(name.to_owned(), of_service);
    }
    services
}

/// The keys of a table with lists of users and groups.
struct ListKeys {
    allowed_users: &'static Key<Vec<String>>,
    allowed_groups: &'static Key<Vec<String>>,
    denied_users: &'static Key<Vec<String>>,
    denied_groups: &'static Key<Vec<String>>,
}

const ACCESS_LISTS: ListKeys = ListKeys {
    allowed_users: &keys::ACCESS_ALLOWED_USERS,
    allowed_groups: &keys::ACCESS_ALLOWED_GROUPS,
    denied_users: &keys::ACCESS_DENIED_USERS,
    denied_groups: &keys::ACCESS_DENIED_GROUPS,
};

const SERVICE_LISTS: ListKeys = ListKeys {
    allowed_users: &keys::SERVICE_ALLOWED_USERS,
    allowed_groups: &keys::SERVICE_ALLOWED_GROUPS,
    denied_users: &keys::SERVICE_DENIED_USERS,
    denied_groups: &keys::SERVICE_DENIED_GROUPS,
};

fn lists(section: &mut TomlSection<'_, '_, '_, '_>, keys: &ListKeys) -> AccessLists {
    let lists = AccessLists {
        allowed_users: section.optional_value(keys.allowed_users),
        allowed_groups: section.optional_value(keys.allowed_groups),
        denied_users: section.optional_value(keys.denied_users),
        denied_groups: section.optional_value(keys.denied_groups),
    };
    let is_empty = |names: &Option<Vec<String>>| names.as_ref().is_some_and(Vec::is_empty);
    let empty = match (&lists.allowed_users, &lists.allowed_groups) {
        (Some(users), None) if users.is_empty() => Some(keys.allowed_users),
        (_, Some(groups)) if groups.is_empty() => {
            lists.allowed_users.as_ref().is_none_or(Vec::is_empty).then_some(keys.allowed_groups)
        }
        _ => None,
    };
    if let Some(key) = empty.filter(|key| section.has(key)) {
        let text = "is empty and denies all users";
        section.warning(key, CodedError::new(&codes::ALLOW_LIST_EMPTY, text));
    }
    for (key, list) in
        [(keys.denied_users, &lists.denied_users), (keys.denied_groups, &lists.denied_groups)]
    {
        if is_empty(list) {
            let text = "is empty and denies no user";
            section.warning(key, CodedError::new(&codes::DENY_LIST_EMPTY, text));
        }
    }
    lists
}

/// Checks of attributes that entries of text files do not have. They would deny every user.
const LDAP_CHECKS: [AccountCheck; 3] =
    [AccountCheck::Host, AccountCheck::AuthorizedService, AccountCheck::RemoteHost];

/// Reports access keys that have no effect with the domain's provider.
pub(crate) fn check_provider(section: &mut TomlSection<'_, '_, '_, '_>, domain: &DomainConfig) {
    if !matches!(domain.provider, ProviderConfig::Files(_)) {
        return;
    }
    if domain.access.filter.is_some() {
        let text = "filter requires provider = \"ldap\", and this domain has provider = \"files\"";
        let error = CodedError::new(&codes::ACCESS_FILTER_WITHOUT_DIRECTORY, text);
        section.subtable_error("access", error);
    }
    if domain.access.account_checks.iter().any(|check| LDAP_CHECKS.contains(check)) {
        let text = "host, authorized-service and rhost require provider = \"ldap\"";
        let error = CodedError::new(&codes::ACCOUNT_CHECK_WITHOUT_DIRECTORY, text);
        section.subtable_error("access", error);
    }
}

/// Warns of denied groups if the backend does not read primary groups of Active Directory.
pub(crate) fn check_primary_groups(
    section: &mut TomlSection<'_, '_, '_, '_>,
    schema: DirectorySchema,
    access: &AccessConfig,
) {
    let mut tables = std::iter::once(&access.lists).chain(access.services.values());
    let denies_groups =
        tables.any(|lists| lists.denied_groups.as_ref().is_some_and(|names| !names.is_empty()));
    if schema == DirectorySchema::ActiveDirectoryPosix && denies_groups {
        let text = "denied_groups ignores primary groups of Active Directory";
        let error = CodedError::new(&codes::AD_DENIED_PRIMARY_GROUPS, text);
        section.warning(&keys::LDAP_ID_MAPPING, error);
    }
}

impl AccessConfig {
    /// Returns the rules without a configuration: the default account checks, and no lists.
    #[must_use]
    pub fn unconfigured() -> Self {
        Self { account_checks: AccountCheck::DEFAULT.to_vec(), ..Self::default() }
    }

    /// Returns whether a rule depends on the names of this host.
    #[must_use]
    pub fn needs_host_names(&self) -> bool {
        let has_template = |filter: &String| filter_template::names_host(filter);
        self.account_checks.contains(&AccountCheck::Host)
            || self.filter.as_ref().is_some_and(has_template)
    }

    /// Returns all groups in the rules.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        let lists = std::iter::once(&self.lists).chain(self.services.values());
        let groups = lists.flat_map(|lists| [&lists.allowed_groups, &lists.denied_groups]);
        groups.flatten().flatten().map(String::as_str)
    }

    /// Converts names to the form in which the domain compares them.
    #[must_use]
    pub(crate) fn normalised(mut self, names: &ListNames) -> Self {
        for lists in std::iter::once(&mut self.lists).chain(self.services.values_mut()) {
            let all = [
                &mut lists.allowed_users,
                &mut lists.allowed_groups,
                &mut lists.denied_users,
                &mut lists.denied_groups,
            ];
            for name in all.into_iter().flatten().flatten() {
                *name = text(&names.rule_form(name.as_bytes()));
            }
        }
        self
    }
}

/// The form in which a domain compares names of its entries with those in its access rules.
#[derive(Clone, Debug, Default)]
pub struct ListNames {
    domain: String,
    names: NameConfig,
}

impl ListNames {
    /// Makes the form of a domain.
    #[must_use]
    pub fn new(domain: &str, names: &NameConfig) -> Self {
        Self { domain: domain.to_owned(), names: names.clone() }
    }

    /// Returns a name of a rule without its own domain, and folded if the domain ignores case. In rules of the domain
    /// `corp`, `alice@corp` and `alice` are equal.
    #[must_use]
    pub fn rule_form<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        let is_own = |called: &[u8]| {
            [&self.domain, &self.names.short_name]
                .iter()
                .any(|own| !own.is_empty() && equals_folded(own.as_bytes(), called))
        };
        let forms = qualified_forms(name).into_iter().flatten();
        let alone = forms.filter(|form| is_own(form.domain)).map(|form| form.name).next();
        self.entry_form(alone.unwrap_or(name))
    }

    /// Returns the name of an entry, folded if the domain ignores case. A rule for `alice` does not mean an entry that
    /// the directory calls `alice@corp`.
    #[must_use]
    pub fn entry_form<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        match self.names.case.ignores_case() {
            true => Cow::Owned(fold(&compose(name)).into_owned()),
            false => Cow::Borrowed(name),
        }
    }

    /// Returns the same as text.
    #[must_use]
    pub fn entry_text(&self, name: &[u8]) -> String {
        text(&self.entry_form(name))
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
