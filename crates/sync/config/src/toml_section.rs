// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts TOML to checked values, table by table, with their positions.
//!
//! A [`TomlSection`] returns the value of a key or its default. After a mistake it continues with a harmless value, so
//! that one run finds all mistakes. `value_syntax` parses the contents of strings. `load`, `domain` and `access` select
//! the tables.

use crate::diagnostic::{SourceIndex, nearest, with_position};
use crate::explain::{EffectiveSetting, ValueOrigin};
use crate::keys::{self, ConfigKey, ConfigTable, Key, KeyDefault, ValueKind, keys_of};
use crate::{
    AllowedShells, ETC_SHELLS, LdapServer, ListenAddress, SEARCH_BASES_MAX, SearchBase,
    SearchScope, SecretFile, ldap_filter, search_bases, value_syntax,
};
use roster_messages::table::config as codes;
use roster_messages::{CodedError, Diagnostic, Severity};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value that was checked by the kind of its key.
#[derive(Clone, Debug)]
pub(crate) enum CheckedValue {
    Boolean(bool),
    Integer(u32),
    Share(f64),
    Duration(Duration),
    Text(String),
    Path(PathBuf),
    SecretFile(SecretFile),
    Texts(Vec<String>),
    Integers(Vec<u32>),
    Servers(Vec<LdapServer>),
    Bases(Vec<SearchBase>),
    Shells(AllowedShells),
    Listen(ListenAddress),
}

impl CheckedValue {
    /// Returns the value in TOML.
    pub fn to_toml(&self) -> String {
        let list = |items: Vec<String>| format!("[{}]", items.join(", "));
        match self {
            Self::Boolean(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Share(value) => value.to_string(),
            Self::Duration(value) => format!("\"{}\"", keys::duration(*value)),
            Self::Text(value) => string(value),
            Self::Path(value) => string(&value.to_string_lossy()),
            Self::SecretFile(value) => string(&value.to_string()),
            Self::Texts(values) => list(values.iter().map(|value| string(value)).collect()),
            Self::Integers(values) => list(values.iter().map(ToString::to_string).collect()),
            Self::Servers(values) => {
                list(values.iter().map(|value| string(&value.to_string())).collect())
            }
            Self::Bases(values) => search_bases::value(values),
            Self::Shells(AllowedShells::Any) => "[]".to_owned(),
            Self::Shells(AllowedShells::EtcShells) => string(ETC_SHELLS),
            Self::Shells(AllowedShells::Listed(shells)) => {
                list(shells.iter().map(|shell| string(shell)).collect())
            }
            Self::Listen(ListenAddress::Unix(path)) => string(&format!("unix:{}", path.display())),
            Self::Listen(ListenAddress::Tcp(address)) => string(&address.to_string()),
        }
    }
}

/// Formats a string in TOML.
fn string(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A type of values.
pub(crate) trait FromValue: Sized + Into<CheckedValue> {
    fn from_value(value: CheckedValue) -> Option<Self>;
}

macro_rules! values {
    ($($variant:ident: $type:ty;)*) => {$(
        impl FromValue for $type {
            fn from_value(value: CheckedValue) -> Option<Self> {
                match value {
                    CheckedValue::$variant(value) => Some(value),
                    _ => None,
                }
            }
        }

        impl From<$type> for CheckedValue {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}

values! {
    Boolean: bool;
    Integer: u32;
    Share: f64;
    Duration: Duration;
    Text: String;
    Path: PathBuf;
    SecretFile: SecretFile;
    Texts: Vec<String>;
    Integers: Vec<u32>;
    Servers: Vec<LdapServer>;
    Bases: Vec<SearchBase>;
    Shells: AllowedShells;
    Listen: ListenAddress;
}

/// The results so far.
pub(crate) struct LoadReport<'t> {
    sources: SourceIndex<'t>,
    pub problems: Vec<Diagnostic>,
    pub settings: Vec<EffectiveSetting>,
}

impl<'t> LoadReport<'t> {
    pub fn new(sources: SourceIndex<'t>) -> Self {
        Self { sources, problems: Vec::new(), settings: Vec::new() }
    }

    pub fn error(&mut self, place: &Range<usize>, key: &str, error: CodedError) {
        self.push(Severity::Error, place, key, error);
    }

    pub fn push(&mut self, severity: Severity, place: &Range<usize>, key: &str, error: CodedError) {
        let (file, line, column) = self.sources.locate(place);
        let position = (file.to_owned(), line, column);
        self.problems.push(with_position(severity, position, key.to_owned(), error));
    }

    fn origin(&self, place: &Range<usize>) -> ValueOrigin {
        let (file, line, _) = self.sources.locate(place);
        ValueOrigin::Line { file: file.to_owned(), line }
    }
}

/// The position of a name, and its value.
pub(crate) type TableEntry<'d, 'i> = (Range<usize>, &'d Spanned<DeValue<'i>>);

/// Returns the entry of a name.
pub(crate) fn entry<'d, 'i>(table: &'d DeTable<'i>, name: &str) -> Option<TableEntry<'d, 'i>> {
    let found = table.iter().find(|(key, _)| key.get_ref() == name);
    found.map(|(key, value)| (key.span(), value))
}

/// Returns the path of a domain's table, as written between brackets.
pub(crate) fn domain_path(name: &str) -> String {
    format!("domain.{}", bare_or_quoted(name))
}

/// A table that is being read.
pub(crate) struct TomlSection<'d, 'i, 'r, 't> {
    pub report: &'r mut LoadReport<'t>,
    kind: ConfigTable,
    /// Path such as `domain.corp`.
    path: String,
    table: Option<&'d DeTable<'i>>,
    /// Position of the table, if it exists.
    span: Range<usize>,
}

impl<'d, 'i, 'r, 't> TomlSection<'d, 'i, 'r, 't> {
    /// Makes a section of the table in `found`. Without one, all keys have their defaults.
    pub fn new(
        report: &'r mut LoadReport<'t>,
        kind: ConfigTable,
        path: &str,
        found: Option<TableEntry<'d, 'i>>,
    ) -> Self {
        let place = found.as_ref().map_or(0..0, |(place, _)| place.clone());
        let table = found.and_then(|(place, value)| {
            let table = value.get_ref().as_table();
            if table.is_none() {
                report.error(&place, path, not_a_table(path));
            }
            table
        });
        Self { report, kind, path: path.to_owned(), table, span: place }
    }

    /// Returns the entry of a key or subtable in the file.
    fn entry(&self, name: &str) -> Option<TableEntry<'d, 'i>> {
        self.table.and_then(|table| entry(table, name))
    }

    /// Returns whether the file has the table without keys.
    pub fn is_empty(&self) -> bool {
        self.table.is_some_and(toml::map::Map::is_empty)
    }

    /// Returns a subtable, which is read separately.
    pub fn subtable(&self, name: &str) -> Option<TableEntry<'d, 'i>> {
        self.entry(name)
    }

    fn value_of(&self, key: &ConfigKey) -> Option<&'d Spanned<DeValue<'i>>> {
        debug_assert_eq!(key.table, self.kind, "{} is a key of another table", key.name);
        self.entry(key.name).map(|(_, value)| value)
    }

    /// Returns whether the file has the key.
    pub fn has(&self, key: &ConfigKey) -> bool {
        self.value_of(key).is_some()
    }

    /// Returns whether the file has the key with this text.
    pub fn has_text(&self, key: &ConfigKey, text: &str) -> bool {
        self.value_of(key).and_then(|value| value.get_ref().as_str()) == Some(text)
    }

    /// Returns whether the file has the key with an empty list.
    pub fn is_empty_list(&self, key: &ConfigKey) -> bool {
        let list = self.value_of(key).and_then(|value| value.get_ref().as_array());
        list.is_some_and(|list| list.is_empty())
    }

    /// Returns the position of a key or table, or of the table that lacks it.
    fn span_of(&self, name: &str) -> Range<usize> {
        self.entry(name).map_or_else(|| self.span.clone(), |(_, value)| value.span())
    }

    /// Returns file and line of a key, or of the table that lacks it, as in messages.
    pub fn position(&self, key: &ConfigKey) -> String {
        let (file, line, _) = self.report.sources.locate(&self.span_of(key.name));
        format!("{}:{line}", file.display())
    }

    /// Returns the position of the first list element that `is` accepts. It compares texts, because invalid elements
    /// are not among the values.
    fn element_span(&self, key: &ConfigKey, is: impl Fn(&str) -> bool) -> Range<usize> {
        let list = self.value_of(key).and_then(|value| value.get_ref().as_array());
        let elements = list.into_iter().flat_map(|list| list.iter());
        let mut known = elements.filter(|element| element.get_ref().as_str().is_some_and(&is));
        known.next().map_or_else(|| self.span_of(key.name), Spanned::span)
    }

    /// Returns a path such as `domain.corp.schema`.
    pub fn key_path(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// Records a mistake at a key.
    pub fn error(&mut self, key: &ConfigKey, error: CodedError) {
        self.subtable_error(key.name, error);
    }

    /// Records a mistake at a subtable.
    pub fn subtable_error(&mut self, name: &str, error: CodedError) {
        self.record(Severity::Error, &self.span_of(name), name, error);
    }

    /// Records a mistake at the list element that `is` accepts.
    pub fn element_error(&mut self, key: &ConfigKey, is: impl Fn(&str) -> bool, error: CodedError) {
        self.record(Severity::Error, &self.element_span(key, is), key.name, error);
    }

    /// Records a probable mistake at a key.
    pub fn warning(&mut self, key: &ConfigKey, error: CodedError) {
        self.record(Severity::Warning, &self.span_of(key.name), key.name, error);
    }

    /// Records a probable mistake at a list element.
    pub fn element_warning(
        &mut self,
        key: &ConfigKey,
        is: impl Fn(&str) -> bool,
        error: CodedError,
    ) {
        self.record(Severity::Warning, &self.element_span(key, is), key.name, error);
    }

    fn record(&mut self, severity: Severity, place: &Range<usize>, name: &str, error: CodedError) {
        self.report.push(severity, place, &self.key_path(name), error);
    }

    /// Returns the value of a key or its default. `None` without a default, or after a mistake.
    pub fn optional_value<T: FromValue>(&mut self, key: &Key<T>) -> Option<T> {
        let value = match (self.entry(key.name), key.default) {
            (Some((place, value)), _) => {
                let read = self.read(key, value)?;
                let origin = self.report.origin(&place);
                self.set(key, Some(read.to_toml()), origin);
                read
            }
            (None, KeyDefault::Value(default)) => {
                let read = DeValue::parse(default).ok().and_then(|value| self.read(key, &value))?;
                self.set(key, Some(read.to_toml()), ValueOrigin::Default);
                read
            }
            (None, KeyDefault::Required) => {
                let fix = format!("Add it to [{}]: {}.", self.path, example(key));
                self.error(key, CodedError::new(&codes::KEY_MISSING, "is missing").fix(fix));
                return None;
            }
            (None, KeyDefault::Follows(_)) => return None,
            (None, KeyDefault::Absent) => {
                self.set(key, None, ValueOrigin::Default);
                return None;
            }
        };
        T::from_value(value)
    }

    /// Returns the value of a key. Empty without one.
    pub fn value<T: FromValue + Default>(&mut self, key: &Key<T>) -> T {
        self.optional_value(key).unwrap_or_default()
    }

    /// Returns the value of a key with a derived default.
    pub fn value_or<T: FromValue + Clone>(&mut self, key: &Key<T>, fallback: T) -> T {
        if let Some(value) = self.optional_value(key) {
            return value;
        }
        // An invalid value has no fallback, but must not end the run.
        if let (KeyDefault::Follows(how), false) = (key.default, self.has(key)) {
            let shown = fallback.clone().into().to_toml();
            self.set(key, Some(shown), ValueOrigin::Follows(how));
        }
        fallback
    }

    /// Records that a key with a derived default is not set.
    pub fn note_unset(&mut self, key: &ConfigKey) {
        if let (KeyDefault::Follows(how), false) = (key.default, self.has(key)) {
            self.set(key, None, ValueOrigin::Follows(how));
        }
    }

    fn set(&mut self, key: &ConfigKey, value: Option<String>, origin: ValueOrigin) {
        let table = self.path.clone();
        self.report.settings.push(EffectiveSetting { table, key: key.name, value, origin });
    }

    /// Checks a value by the kind of its key, and records its mistakes.
    fn read(&mut self, key: &ConfigKey, value: &Spanned<DeValue<'i>>) -> Option<CheckedValue> {
        let mut errors = Vec::new();
        let read = match key.kind {
            ValueKind::Bases => read_bases(key.name, value, &mut errors),
            kind => read(kind, value, &mut errors),
        };
        let path = self.key_path(key.name);
        for (place, error) in errors {
            self.report.error(&place, &path, error);
        }
        read
    }

    /// Records unknown keys. `provider` is the domain's provider, if known.
    pub fn reject_unknown_keys(&mut self, provider: Option<&str>) {
        for (name, value) in self.table.into_iter().flatten() {
            let (name, place) = (&**name.get_ref(), name.span());
            let known = keys_of(self.kind).find(|key| key.name == name);
            let error = match known {
                Some(key) if provider.is_none() || key.provider.is_none() => continue,
                Some(key) if key.provider == provider => continue,
                Some(key) => other_provider(key.provider, provider),
                // The table of attributes, which is read separately.
                None if self.kind == ConfigTable::Domain && name == "attributes" => {
                    match provider {
                        Some("files") => other_provider(Some("ldap"), provider),
                        _ => continue,
                    }
                }
                // The tables of access rules are read separately, too.
                None if self.kind == ConfigTable::Domain && name == "access" => continue,
                // So are the overrides.
                None if self.kind == ConfigTable::Domain && name == "override" => continue,
                None if self.kind == ConfigTable::Access && name == "service" => continue,
                None if self.kind == ConfigTable::Domain && name == "case_sensitive" => {
                    replaced_case_key(value.get_ref())
                }
                None => unknown_key(self.kind, name),
            };
            let path = self.key_path(name);
            self.report.error(&place, &path, error);
        }
    }
}

/// Returns the error about a name that must be the table at `path`.
pub(crate) fn not_a_table(path: &str) -> CodedError {
    CodedError::new(&codes::NOT_A_TABLE, "must be a table")
        .fix(format!("Write [{path}], and its keys below."))
}

/// Returns the error about the key that `case` replaced.
fn replaced_case_key(value: &DeValue<'_>) -> CodedError {
    let case = match value {
        DeValue::Boolean(false) => "insensitive",
        _ => "sensitive",
    };
    CodedError::new(&codes::CASE_KEY_REPLACED, "the key is now called case")
        .fix(format!("Write case = \"{case}\"."))
}

fn other_provider(of_key: Option<&str>, of_domain: Option<&str>) -> CodedError {
    let (of_key, of_domain) = (of_key.unwrap_or_default(), of_domain.unwrap_or_default());
    CodedError::new(
        &codes::KEY_OF_OTHER_PROVIDER,
        format!("requires provider = {of_key:?}, and this domain has provider = {of_domain:?}"),
    )
}

/// Keys of other programs' configurations, and the corresponding key.
const FOREIGN_KEYS: &[(&str, &str)] = &[
    ("id_provider", "provider"),
    ("ldap_uri", "uris"),
    ("server", "uris"),
    ("servers", "uris"),
    ("host", "uris"),
    ("ldap_backup_uri", "uris"),
    ("ldap_search_base", "base"),
    ("search_base", "base"),
    ("base_dn", "base"),
    ("ldap_user_search_base", "user_base"),
    ("ldap_group_search_base", "group_base"),
    ("ldap_schema", "schema"),
    ("ldap_default_bind_dn", "bind_dn"),
    ("binddn", "bind_dn"),
    ("ldap_tls_cacert", "tls_ca"),
    ("tls_cacertfile", "tls_ca"),
    ("tls_cacert", "tls_ca"),
    ("ca_file", "tls_ca"),
    ("ldap_id_use_start_tls", "start_tls"),
    ("ldap_tls_cert", "tls_cert"),
    ("ldap_tls_key", "tls_key"),
    ("ldap_sasl_authid", "bind_principal"),
    ("ldap_krb5_keytab", "krb5_keytab"),
    ("override_homedir", "home"),
    ("override_shell", "shell"),
    ("default_shell", "fallback_shell"),
    ("fallback_homedir", "fallback_home"),
    ("vetoed_shells", "refused_shells"),
    ("shell_fallback", "replacement_shell"),
    ("ldap_network_timeout", "connect_timeout"),
    ("ldap_search_timeout", "search_timeout"),
    ("entry_negative_timeout", "negative_ttl"),
    ("ldap_page_size", "page_size"),
    ("ldap_sasl_mech", "bind"),
    ("sasl", "bind"),
    ("ldap_user_name", "user_name"),
    ("ldap_user_uid_number", "user_uid"),
    ("ldap_user_gid_number", "user_gid"),
    ("ldap_user_home_directory", "user_home"),
    ("ldap_user_shell", "user_shell"),
    ("ldap_group_name", "group_name"),
    ("ldap_group_gid_number", "group_gid"),
    ("ldap_group_member", "member_attributes"),
    ("group_member", "member_attributes"),
    ("krb5_server", "krb5_kdcs"),
    ("krb5_backup_server", "krb5_kdcs"),
    ("krb5_ccname_template", "krb5_cache"),
    ("krb5_ccachedir", "krb5_cache"),
    ("krb5_store_password_if_offline", "offline_credentials"),
    ("krb5_renewable_lifetime", "krb5_renewable"),
    ("ldap_id_mapping", "id_mapping"),
    ("ldap_idmap_range_min", "id_min"),
    ("ldap_idmap_range_max", "id_max"),
    ("ldap_idmap_range_size", "id_range"),
    ("debug_level", "level"),
    ("simple_allow_users", "allowed_users"),
    ("simple_allow_groups", "allowed_groups"),
    ("simple_deny_users", "denied_users"),
    ("simple_deny_groups", "denied_groups"),
    ("ldap_access_filter", "filter"),
    ("ldap_user_ssh_public_key", "ssh_key"),
];

/// Returns the error about a key that does not exist.
fn unknown_key(table: ConfigTable, name: &str) -> CodedError {
    if ["bind_password", "bindpw", "password", "ldap_default_authtok"].contains(&name) {
        let text = "passwords are not allowed in this world-readable file";
        return CodedError::new(&codes::PASSWORD_IN_FILE, text);
    }
    let text = "is not a key of this table";
    let unknown = CodedError::new(&codes::UNKNOWN_KEY, text);
    let here = |name: &str| keys_of(table).any(|key| key.name == name);
    let renamed = FOREIGN_KEYS.iter().find(|(theirs, ours)| *theirs == name && here(ours));
    let near = renamed.map(|&(_, ours)| ours);
    if let Some(near) = near.or_else(|| nearest(name, keys_of(table).map(|key| key.name))) {
        return unknown.fix(format!("Did you mean {near}?"));
    }
    let ours =
        FOREIGN_KEYS.iter().find(|(theirs, _)| *theirs == name).map_or(name, |(_, ours)| ours);
    let homes: Vec<_> =
        keys::KEYS.iter().filter(|key| key.name == ours).map(|key| key.table.header()).collect();
    match homes.first() {
        Some(home) if ours == name => {
            CodedError::new(&codes::MISPLACED_KEY, text).fix(format!("Move it to {home}."))
        }
        Some(home) => unknown.fix(format!("Did you mean {ours}, under {home}?")),
        None => unknown,
    }
}

/// Returns an example of a missing key.
fn example(key: &ConfigKey) -> String {
    let value = match (key.kind, key.name) {
        (ValueKind::Choice { of, .. }, _) => return choices(key.name, of),
        (ValueKind::Domains, _) => "[\"corp\"]",
        (ValueKind::Domain, _) => "\"corp\"",
        (ValueKind::ShortName, _) => "\"CORP\"",
        (ValueKind::Dn | ValueKind::Bases, _) => "\"dc=example,dc=com\"",
        (ValueKind::Uris, _) => "[\"ldaps://ldap1.example.com\"]",
        (ValueKind::Listen, _) => "\"unix:/run/roster/metrics\"",
        (ValueKind::Path, name) => return format!("{name} = \"/path/{name}\""),
        _ => "…",
    };
    format!("{} = {value}", key.name)
}

fn choices(name: &str, of: &[&str]) -> String {
    let lines: Vec<_> = of.iter().map(|word| format!("{name} = \"{word}\"")).collect();
    lines.join(" or ")
}

type ElementErrors = Vec<(Range<usize>, CodedError)>;

fn read(
    kind: ValueKind,
    value: &Spanned<DeValue<'_>>,
    errors: &mut ElementErrors,
) -> Option<CheckedValue> {
    match kind {
        ValueKind::Uris => {
            let servers =
                read_elements(value, "URIs", errors, |value| value_syntax::server(text(value)?))?;
            return Some(CheckedValue::Servers(servers));
        }
        ValueKind::Domains => {
            let names = read_texts(value, "names", errors, value_syntax::domain_name)?;
            return Some(CheckedValue::Texts(names));
        }
        ValueKind::Names => {
            let names = read_texts(value, "names", errors, value_syntax::entry_name)?;
            return Some(CheckedValue::Texts(names));
        }
        ValueKind::Attributes => {
            let names = read_texts(value, "attributes", errors, value_syntax::canonical_attribute)?;
            return Some(CheckedValue::Texts(names));
        }
        ValueKind::Shells => {
            let shells = read_texts(value, "paths", errors, value_syntax::shell)?;
            return Some(CheckedValue::Texts(shells));
        }
        ValueKind::AllowedShells if value.get_ref().as_str() == Some(ETC_SHELLS) => {
            return Some(CheckedValue::Shells(AllowedShells::EtcShells));
        }
        ValueKind::AllowedShells => {
            let shells = read_texts(value, "paths", errors, value_syntax::shell)?;
            return Some(CheckedValue::Shells(AllowedShells::Listed(shells)));
        }
        ValueKind::Choices { noun, of } => {
            let words = read_elements(value, "words", errors, |value| choice(value, noun, of))?;
            return Some(CheckedValue::Texts(words));
        }
        ValueKind::KeyOptions => {
            let options = read_texts(value, "options", errors, value_syntax::key_option)?;
            return Some(CheckedValue::Texts(options));
        }
        ValueKind::Users => {
            let names = read_texts(value, "names", errors, value_syntax::user_name)?;
            return Some(CheckedValue::Texts(names));
        }
        ValueKind::Hosts { port } => {
            let hosts = read_elements(value, "hosts", errors, |value| {
                value_syntax::host(text(value)?, port)
            })?;
            return Some(CheckedValue::Texts(hosts));
        }
        ValueKind::Gids => {
            let gids = read_elements(value, "gids", errors, |value| {
                let gid = integer(value, 0, u32::MAX)?;
                if keys::RESERVED_IDS.contains(&gid) {
                    let text = format!("gid {gid} is reserved");
                    return Err(CodedError::new(&codes::RESERVED_GID, text));
                }
                Ok(gid)
            })?;
            return Some(CheckedValue::Integers(gids));
        }
        _ => {}
    }
    match read_single(kind, value.get_ref()) {
        Ok(read) => Some(read),
        Err(error) => {
            errors.push((value.span(), error));
            None
        }
    }
}

/// Reads a list of texts that `check` accepts.
fn read_texts(
    value: &Spanned<DeValue<'_>>,
    noun: &str,
    errors: &mut ElementErrors,
    check: fn(&str) -> Result<(), CodedError>,
) -> Option<Vec<String>> {
    read_elements(value, noun, errors, |value| {
        let text = text(value)?;
        check(text).map(|()| text.to_owned())
    })
}

/// Reads a DN, or a list of bases, as the value of the key of this name.
fn read_bases(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    errors: &mut ElementErrors,
) -> Option<CheckedValue> {
    if let DeValue::String(text) = value.get_ref() {
        return match search_bases::base_dn(text, &format!("{key} = ")) {
            Ok(()) => Some(CheckedValue::Bases(vec![SearchBase::subtree(text)])),
            Err(error) => {
                errors.push((value.span(), error));
                None
            }
        };
    }
    if value.get_ref().as_array().is_none() {
        let error = wrong_type("a DN, or a list of bases", value.get_ref());
        let error = error.fix(format!("Write {key} = \"ou=people,dc=example,dc=com\"."));
        errors.push((value.span(), error));
        return None;
    }
    let bases = read_elements(value, "bases", errors, read_base)?;
    let count = value.get_ref().as_array().map_or(0, |list| list.len());
    if !(1..=SEARCH_BASES_MAX).contains(&count) {
        let text = format!("the list has {count} bases");
        errors.push((value.span(), CodedError::new(&codes::BASES_COUNT, text)));
    }
    Some(CheckedValue::Bases(bases))
}

/// Reads an element of a list of bases: a DN, or a table with `base`, `scope` and `filter`.
fn read_base(value: &DeValue<'_>) -> Result<SearchBase, CodedError> {
    let Some(table) = value.as_table() else {
        let text = text(value)?;
        search_bases::base_dn(text, "")?;
        return Ok(SearchBase::subtree(text));
    };
    let mut base = SearchBase::subtree("");
    for (name, value) in table {
        let value = value.get_ref();
        match &**name.get_ref() {
            "base" => text(value)?.clone_into(&mut base.base),
            "scope" => {
                base.scope = SearchScope::from_word(&choice(value, "scope", &SearchScope::WORDS)?);
            }
            "filter" => {
                let filter = text(value)?;
                ldap_filter::check_filter(filter)?;
                base.filter = Some(filter.to_owned());
            }
            other => {
                let text = format!("{other:?} is not a key of a search base");
                let error = CodedError::new(&codes::UNKNOWN_KEY, text);
                return Err(error.fix("Write base, scope and filter only."));
            }
        }
    }
    value_syntax::dn(&base.base)?;
    Ok(base)
}

/// Returns the valid elements of a list. Records duplicates.
fn read_elements<T: PartialEq>(
    value: &Spanned<DeValue<'_>>,
    noun: &str,
    errors: &mut ElementErrors,
    read: impl Fn(&DeValue<'_>) -> Result<T, CodedError>,
) -> Option<Vec<T>> {
    let Some(list) = value.get_ref().as_array() else {
        // The most common mistake is one value without brackets.
        let error = wrong_type(&format!("a list of {noun}"), value.get_ref());
        let error = match value.get_ref() {
            single @ DeValue::String(_) => error.fix(format!("Write [{}].", as_written(single))),
            // Only a list of gids has numbers.
            single @ DeValue::Integer(_) if noun == "gids" => {
                error.fix(format!("Write [{}].", as_written(single)))
            }
            _ => error,
        };
        errors.push((value.span(), error));
        return None;
    };
    let mut elements = Vec::new();
    for element in list.iter() {
        match read(element.get_ref()) {
            Ok(read) if elements.contains(&read) => {
                let text = format!("the list contains {} twice", as_written(element.get_ref()));
                errors.push((element.span(), CodedError::new(&codes::DUPLICATE_ELEMENT, text)));
            }
            Ok(read) => elements.push(read),
            Err(error) => errors.push((element.span(), error)),
        }
    }
    Some(elements)
}

fn read_single(kind: ValueKind, value: &DeValue<'_>) -> Result<CheckedValue, CodedError> {
    Ok(match kind {
        ValueKind::Boolean => match value {
            DeValue::Boolean(value) => CheckedValue::Boolean(*value),
            DeValue::String(text) if matches!(&**text, "true" | "false") => {
                return Err(quoted_value("true or false", text));
            }
            other => return Err(wrong_type("true or false", other)),
        },
        ValueKind::Integer { min, max } => CheckedValue::Integer(integer(value, min, max)?),
        ValueKind::Share => {
            let share = match value {
                DeValue::Float(number) => number.as_str().parse().ok(),
                DeValue::Integer(number) => number.as_str().parse().ok(),
                other => return Err(wrong_type("a number from 0 to 1", other)),
            };
            match share.filter(|share| (0.0..=1.0).contains(share)) {
                Some(share) => CheckedValue::Share(share),
                None => {
                    return Err(
                        out_of_range(value).fix("Write a fraction from 0 to 1, such as 0.5.")
                    );
                }
            }
        }
        ValueKind::Duration { min, max } => CheckedValue::Duration(match value {
            DeValue::String(text) => value_syntax::duration(text, min, max)?,
            DeValue::Integer(_) => {
                let seconds = integer(value, 0, u32::MAX)?;
                value_syntax::within(Duration::from_secs(seconds.into()), min, max)?
            }
            other => return Err(wrong_type("a duration such as \"30s\"", other)),
        }),
        ValueKind::Choice { noun, of } => CheckedValue::Text(choice(value, noun, of)?),
        ValueKind::Path => CheckedValue::Path(value_syntax::path(text(value)?)?),
        ValueKind::SecretFile => CheckedValue::SecretFile(value_syntax::secret_file(text(value)?)?),
        ValueKind::Template { letters } => {
            checked(value, |text| value_syntax::template(text, letters))?
        }
        ValueKind::Shell => checked(value, value_syntax::shell)?,
        ValueKind::Text => CheckedValue::Text(text(value)?.to_owned()),
        ValueKind::Domain => checked(value, value_syntax::domain_name)?,
        ValueKind::ShortName => checked(value, value_syntax::short_name)?,
        ValueKind::Dn => checked(value, value_syntax::dn)?,
        ValueKind::Filter => checked(value, ldap_filter::check_filter)?,
        ValueKind::FilterTemplate => checked(value, crate::filter_template::check)?,
        ValueKind::Attribute => checked(value, value_syntax::canonical_attribute)?,
        ValueKind::DnsDomain => CheckedValue::Text(value_syntax::dns_name(text(value)?)?),
        ValueKind::Realm => checked(value, value_syntax::realm)?,
        ValueKind::Principal => checked(value, value_syntax::principal)?,
        ValueKind::Cache => checked(value, value_syntax::cache)?,
        ValueKind::Characters => checked(value, value_syntax::name_characters)?,
        ValueKind::Listen => CheckedValue::Listen(value_syntax::listen(text(value)?)?),
        ValueKind::Uris
        | ValueKind::Bases
        | ValueKind::Domains
        | ValueKind::Users
        | ValueKind::Hosts { .. }
        | ValueKind::Names
        | ValueKind::Shells
        | ValueKind::AllowedShells
        | ValueKind::Attributes
        | ValueKind::Choices { .. }
        | ValueKind::KeyOptions
        | ValueKind::Gids => return Err(wrong_type("a list", value)),
    })
}

/// Checks that a text is one of the choices.
fn choice(value: &DeValue<'_>, noun: &str, of: &[&str]) -> Result<String, CodedError> {
    let text = text(value)?;
    if of.contains(&text) {
        return Ok(text.to_owned());
    }
    let fix = match nearest(text, of.iter().copied()) {
        Some(near) => format!("Did you mean \"{near}\"?"),
        None => format!("Write {}.", keys::quoted(of)),
    };
    Err(CodedError::new(&codes::UNKNOWN_VALUE, format!("unknown {noun} {text:?}")).fix(fix))
}

fn checked(
    value: &DeValue<'_>,
    check: impl Fn(&str) -> Result<(), CodedError>,
) -> Result<CheckedValue, CodedError> {
    let text = text(value)?;
    check(text).map(|()| CheckedValue::Text(text.to_owned()))
}

fn text<'v>(value: &'v DeValue<'_>) -> Result<&'v str, CodedError> {
    value.as_str().ok_or_else(|| {
        let error = wrong_type("a string", value);
        match value {
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
                error.fix(format!("Write \"{}\".", as_written(value)))
            }
            _ => error,
        }
    })
}

fn integer(value: &DeValue<'_>, min: u32, max: u32) -> Result<u32, CodedError> {
    let number = match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
        DeValue::String(text) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
            return Err(quoted_value("a number", text));
        }
        other => return Err(wrong_type("a whole number", other)),
    };
    let within = number.and_then(|number| u32::try_from(number).ok());
    within
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| out_of_range(value).fix(format!("Write a number from {min} to {max}.")))
}

fn out_of_range(value: &DeValue<'_>) -> CodedError {
    CodedError::new(&codes::OUT_OF_RANGE, format!("{} is out of range", as_written(value)))
}

/// Returns the error about a string that would be valid without its quotes.
fn quoted_value(wanted: &str, text: &str) -> CodedError {
    CodedError::new(&codes::WRONG_TYPE, format!("must be {wanted} without quotes"))
        .fix(format!("Write {text}."))
}

fn wrong_type(wanted: &str, found: &DeValue<'_>) -> CodedError {
    let found = match found {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    CodedError::new(&codes::WRONG_TYPE, format!("must be {wanted}, and is {found}"))
}

/// Formats a value for messages.
fn as_written(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => string(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        other => other.type_str().to_owned(),
    }
}

/// Returns a key, in quotes if necessary.
pub(crate) fn bare_or_quoted(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !name.is_empty() && name.bytes().all(bare) { name.to_owned() } else { format!("{name:?}") }
}
