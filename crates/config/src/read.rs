//! From TOML to checked values, table by table, with the place of everything.
//!
//! A [`Section`] gives the value of a key, or its default, and goes on after a mistake with a
//! harmless value in its place, so that one reading finds all mistakes.

use crate::explain::{Origin, Setting};
use crate::keys::{self, Key, Kind, Table, Unset, keys_of};
use crate::problem::{Lines, Problem, Severity, Wrong, nearest};
use crate::{Listen, Server, syntax};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value that was checked by its key's kind.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Boolean(bool),
    Integer(u32),
    Share(f64),
    Duration(Duration),
    Text(String),
    Texts(Vec<String>),
    Integers(Vec<u32>),
    Servers(Vec<Server>),
    Listen(Listen),
}

impl Value {
    /// As it would be written in the file.
    pub fn to_toml(&self) -> String {
        let list = |items: Vec<String>| format!("[{}]", items.join(", "));
        match self {
            Self::Boolean(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Share(value) => value.to_string(),
            Self::Duration(value) => format!("\"{}\"", keys::duration(*value)),
            Self::Text(value) => string(value),
            Self::Texts(values) => list(values.iter().map(|value| string(value)).collect()),
            Self::Integers(values) => list(values.iter().map(ToString::to_string).collect()),
            Self::Servers(values) => {
                list(values.iter().map(|value| string(&value.to_string())).collect())
            }
            Self::Listen(Listen::Unix(path)) => string(&format!("unix:{}", path.display())),
            Self::Listen(Listen::Tcp(address)) => string(&address.to_string()),
        }
    }
}

/// A string in TOML.
fn string(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A type that values of some kind have.
pub(crate) trait Of: Sized {
    fn of(value: Value) -> Option<Self>;
}

macro_rules! values {
    ($($variant:ident: $type:ty;)*) => {$(
        impl Of for $type {
            fn of(value: Value) -> Option<Self> {
                match value {
                    Value::$variant(value) => Some(value),
                    _ => None,
                }
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
    Texts: Vec<String>;
    Integers: Vec<u32>;
    Servers: Vec<Server>;
    Listen: Listen;
}

impl Of for PathBuf {
    fn of(value: Value) -> Option<Self> {
        String::of(value).map(Self::from)
    }
}

/// What was found out so far.
pub(crate) struct Report<'t> {
    lines: Lines<'t>,
    pub problems: Vec<Problem>,
    pub settings: Vec<Setting>,
}

impl<'t> Report<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { lines: Lines::of(text), problems: Vec::new(), settings: Vec::new() }
    }

    pub fn push(&mut self, severity: Severity, place: &Range<usize>, key: &str, wrong: Wrong) {
        let (line, column) = self.lines.locate(place);
        let Wrong { what, instead } = wrong;
        self.problems.push(Problem { severity, line, column, key: key.to_owned(), what, instead });
    }

    fn line(&self, place: &Range<usize>) -> usize {
        self.lines.locate(place).0
    }
}

/// The value of a name, with the place of the name.
pub(crate) fn entry<'d, 'i>(
    table: &'d DeTable<'i>,
    name: &str,
) -> Option<(Range<usize>, &'d Spanned<DeValue<'i>>)> {
    let found = table.iter().find(|(key, _)| key.get_ref() == name);
    found.map(|(key, value)| (key.span(), value))
}

/// One table, being read.
pub(crate) struct Section<'d, 'i, 'r, 't> {
    pub report: &'r mut Report<'t>,
    kind: Table,
    /// As in `domain.corp`.
    path: String,
    table: Option<&'d DeTable<'i>>,
    /// Where the table begins, or would.
    place: Range<usize>,
}

impl<'d, 'i, 'r, 't> Section<'d, 'i, 'r, 't> {
    /// Of the table that `value` should be; all defaults where there is none.
    pub fn new(
        report: &'r mut Report<'t>,
        kind: Table,
        path: &str,
        found: Option<(Range<usize>, &'d Spanned<DeValue<'i>>)>,
    ) -> Self {
        let place = found.as_ref().map_or(0..0, |(place, _)| place.clone());
        let table = found.and_then(|(place, value)| {
            let table = value.get_ref().as_table();
            if table.is_none() {
                let wrong =
                    Wrong::new("must be a table", format!("write [{path}], and its keys below"));
                report.push(Severity::Error, &place, path, wrong);
            }
            table
        });
        Self { report, kind, path: path.to_owned(), table, place }
    }

    /// The entry of a key as it stands in the file.
    pub fn entry(&self, name: &str) -> Option<(Range<usize>, &'d Spanned<DeValue<'i>>)> {
        self.table.and_then(|table| entry(table, name))
    }

    /// Whether a key stands in the file.
    pub fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// Whether a key stands in the file with a list in which there is nothing.
    pub fn is_empty_list(&self, name: &str) -> bool {
        let list = self.entry(name).and_then(|(_, value)| value.get_ref().as_array());
        list.is_some_and(|list| list.is_empty())
    }

    /// Where a key stands, or the table that lacks it.
    fn place(&self, name: &str) -> Range<usize> {
        self.entry(name).map_or_else(|| self.place.clone(), |(_, value)| value.span())
    }

    /// Where the element of a list stands that `is` knows. By what it says: those with mistakes are not
    /// among the values.
    fn element_place(&self, name: &str, is: impl Fn(&str) -> bool) -> Range<usize> {
        let list = self.entry(name).and_then(|(_, value)| value.get_ref().as_array());
        let elements = list.into_iter().flat_map(|list| list.iter());
        let mut known = elements.filter(|element| element.get_ref().as_str().is_some_and(&is));
        known.next().map_or_else(|| self.place(name), Spanned::span)
    }

    /// As in `domain.corp.schema`.
    pub fn path_of(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// Records a mistake at a key.
    pub fn wrong(&mut self, name: &str, what: impl Into<String>, instead: impl Into<String>) {
        self.tell(Severity::Error, &self.place(name), name, Wrong::new(what, instead));
    }

    /// Records a mistake at the element of a list that `is` knows.
    pub fn wrong_at(
        &mut self,
        name: &str,
        is: impl Fn(&str) -> bool,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) {
        self.tell(Severity::Error, &self.element_place(name, is), name, Wrong::new(what, instead));
    }

    /// Records what is most likely not meant.
    pub fn warn(&mut self, name: &str, what: impl Into<String>, instead: impl Into<String>) {
        self.tell(Severity::Warning, &self.place(name), name, Wrong::new(what, instead));
    }

    /// The same at an element of a list.
    pub fn warn_at(
        &mut self,
        name: &str,
        is: impl Fn(&str) -> bool,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) {
        self.tell(
            Severity::Warning,
            &self.element_place(name, is),
            name,
            Wrong::new(what, instead),
        );
    }

    fn tell(&mut self, severity: Severity, place: &Range<usize>, name: &str, wrong: Wrong) {
        self.report.push(severity, place, &self.path_of(name), wrong);
    }

    /// The value of a key or its default; none where it has no default, or a mistake.
    pub fn take_if<T: Of>(&mut self, name: &str) -> Option<T> {
        let key = self.key(name)?;
        let value = match (self.entry(name), key.unset) {
            (Some((place, value)), _) => {
                let read = self.read(key, value)?;
                let origin = Origin::Line(self.report.line(&place));
                self.set(key, Some(read.to_toml()), origin);
                read
            }
            (None, Unset::Is(default)) => {
                let read = DeValue::parse(default).ok().and_then(|value| self.read(key, &value))?;
                self.set(key, Some(read.to_toml()), Origin::Default);
                read
            }
            (None, Unset::Required) => {
                let instead = format!("add it to [{}]: {}", self.path, example(key));
                self.wrong(name, "is missing", instead);
                return None;
            }
            (None, Unset::Follows(_)) => return None,
            (None, Unset::Nothing) => {
                self.set(key, None, Origin::Default);
                return None;
            }
        };
        T::of(value)
    }

    /// The same with an empty value in place of none.
    pub fn take<T: Of + Default>(&mut self, name: &str) -> T {
        self.take_if(name).unwrap_or_default()
    }

    /// The value of a key whose default follows from others.
    pub fn take_or<T: Of + Clone>(
        &mut self,
        name: &str,
        fallback: T,
        show: impl Fn(T) -> Value,
    ) -> T {
        match (self.take_if(name), self.key(name)) {
            (Some(value), _) => value,
            (None, Some(key)) => {
                // One with a mistake does not fall back, but must not stop the reading either.
                if let (Unset::Follows(how), false) = (key.unset, self.has(name)) {
                    self.set(key, Some(show(fallback.clone()).to_toml()), Origin::Follows(how));
                }
                fallback
            }
            (None, None) => fallback,
        }
    }

    /// Notes that a key which follows from others is not set at all.
    pub fn note_unset(&mut self, name: &str) {
        if let (Some(key), false) = (self.key(name), self.has(name)) {
            let Unset::Follows(how) = key.unset else { return };
            self.set(key, None, Origin::Follows(how));
        }
    }

    fn set(&mut self, key: &Key, value: Option<String>, origin: Origin) {
        let table = self.path.clone();
        self.report.settings.push(Setting { table, key: key.name, value, origin });
    }

    fn key(&self, name: &str) -> Option<&'static Key> {
        keys_of(self.kind).find(|key| key.name == name)
    }

    /// Checks a value by its key's kind, and records what is wrong with it.
    fn read(&mut self, key: &Key, value: &Spanned<DeValue<'i>>) -> Option<Value> {
        let mut wrongs = Vec::new();
        let read = read(key.kind, value, &mut wrongs);
        let path = self.path_of(key.name);
        for (place, wrong) in wrongs {
            self.report.push(Severity::Error, &place, &path, wrong);
        }
        read
    }

    /// Records keys that mean nothing here. `provider` is that of the domain, where it is known.
    pub fn refuse_strangers(&mut self, provider: Option<&str>) {
        for (name, _) in self.table.into_iter().flatten() {
            let (name, place) = (&**name.get_ref(), name.span());
            let known = keys_of(self.kind).find(|key| key.name == name);
            let wrong = match known {
                Some(key) if provider.is_none() || key.provider.is_none() => continue,
                Some(key) if key.provider == provider => continue,
                Some(key) => Wrong::new(
                    format!(
                        "is for provider = {:?}, and this domain's is {:?}",
                        key.provider.unwrap_or_default(),
                        provider.unwrap_or_default()
                    ),
                    "remove it",
                ),
                // The table of attributes, which is read on its own.
                None if self.kind == Table::Domain && name == "attributes" => {
                    if provider == Some("files") {
                        Wrong::new("is for provider = \"ldap\" only", "remove it")
                    } else {
                        continue;
                    }
                }
                // Those of access are read on their own, too.
                None if self.kind == Table::Domain && name == "access" => continue,
                None if self.kind == Table::Access && name == "service" => continue,
                None => stranger(self.kind, name),
            };
            let path = self.path_of(name);
            self.report.push(Severity::Error, &place, &path, wrong);
        }
    }
}

/// Keys of other programs' configurations, and what ours is.
const ELSEWHERE: &[(&str, &str)] = &[
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
    ("enumerate", "mode"),
    ("override_homedir", "home"),
    ("override_shell", "shell"),
    ("default_shell", "fallback_shell"),
    ("fallback_homedir", "fallback_home"),
    ("ldap_network_timeout", "connect_timeout"),
    ("ldap_search_timeout", "search_timeout"),
    ("entry_negative_timeout", "negative"),
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
    ("debug_level", "level"),
    ("simple_allow_users", "allowed_users"),
    ("simple_allow_groups", "allowed_groups"),
    ("simple_deny_users", "denied_users"),
    ("simple_deny_groups", "denied_groups"),
    ("ldap_access_filter", "filter"),
    ("ldap_user_ssh_public_key", "ssh_key"),
];

/// What to say of a key that does not exist.
fn stranger(table: Table, name: &str) -> Wrong {
    if ["bind_password", "bindpw", "password", "ldap_default_authtok"].contains(&name) {
        return Wrong::new(
            "passwords do not stand in this file, which everybody may read",
            "put it into a file with mode 0600, and name that file in bind_password_file",
        );
    }
    let what = "is not a key of this table".to_owned();
    let here = |name: &str| keys_of(table).any(|key| key.name == name);
    let renamed = ELSEWHERE.iter().find(|(theirs, ours)| *theirs == name && here(ours));
    let near = renamed.map(|&(_, ours)| ours);
    if let Some(near) = near.or_else(|| nearest(name, keys_of(table).map(|key| key.name))) {
        return Wrong::new(what, format!("did you mean {near}?"));
    }
    let ours = ELSEWHERE.iter().find(|(theirs, _)| *theirs == name).map_or(name, |(_, ours)| ours);
    let homes: Vec<_> =
        keys::KEYS.iter().filter(|key| key.name == ours).map(|key| key.table.header()).collect();
    match homes.first() {
        Some(home) if ours == name => Wrong::new(what, format!("it belongs under {home}")),
        Some(home) => Wrong::new(what, format!("did you mean {ours}, under {home}?")),
        None => Wrong::new(what, "remove it; roster.toml(5) lists all keys"),
    }
}

/// What a missing key may look like.
fn example(key: &Key) -> String {
    let value = match (key.kind, key.name) {
        (Kind::Choice { of, .. }, _) => return choices(key.name, of),
        (Kind::Domains, _) => "[\"corp\"]",
        (Kind::Dn, _) => "\"dc=example,dc=com\"",
        (Kind::Uris, _) => "[\"ldaps://ldap1.example.com\"]",
        (Kind::Listen, _) => "\"unix:/run/roster/metrics\"",
        (Kind::Path, name) => return format!("{name} = \"/path/{name}\""),
        _ => "…",
    };
    format!("{} = {value}", key.name)
}

fn choices(name: &str, of: &[&str]) -> String {
    let lines: Vec<_> = of.iter().map(|word| format!("{name} = \"{word}\"")).collect();
    lines.join(" or ")
}

type Wrongs = Vec<(Range<usize>, Wrong)>;

fn read(kind: Kind, value: &Spanned<DeValue<'_>>, wrongs: &mut Wrongs) -> Option<Value> {
    match kind {
        Kind::Uris => {
            let servers = elements(value, "URIs", wrongs, |value| syntax::server(text(value)?))?;
            return Some(Value::Servers(servers));
        }
        Kind::Domains => {
            let names = elements(value, "names", wrongs, |value| {
                let name = text(value)?;
                syntax::domain_name(name).map(|()| name.to_owned())
            })?;
            return Some(Value::Texts(names));
        }
        Kind::Names => {
            let names = elements(value, "names", wrongs, |value| {
                let name = text(value)?;
                syntax::entry_name(name).map(|()| name.to_owned())
            })?;
            return Some(Value::Texts(names));
        }
        Kind::Attributes => {
            let names = elements(value, "attributes", wrongs, |value| {
                let name = text(value)?;
                syntax::answered_attribute(name).map(|()| name.to_owned())
            })?;
            return Some(Value::Texts(names));
        }
        Kind::Choices { noun, of } => {
            let words = elements(value, "words", wrongs, |value| choice(value, noun, of))?;
            return Some(Value::Texts(words));
        }
        Kind::KeyOptions => {
            let options = elements(value, "options", wrongs, |value| {
                let option = text(value)?;
                syntax::key_option(option).map(|()| option.to_owned())
            })?;
            return Some(Value::Texts(options));
        }
        Kind::Users => {
            let names = elements(value, "names", wrongs, |value| {
                let name = text(value)?;
                syntax::user_name(name).map(|()| name.to_owned())
            })?;
            return Some(Value::Texts(names));
        }
        Kind::Hosts { port } => {
            let hosts = elements(value, "hosts", wrongs, |value| syntax::host(text(value)?, port))?;
            return Some(Value::Texts(hosts));
        }
        Kind::Gids => {
            let gids = elements(value, "gids", wrongs, |value| {
                let gid = integer(value, 0, u32::MAX)?;
                if keys::RESERVED_IDS.contains(&gid) {
                    return Err(Wrong::new(
                        format!("{gid} is never served from a directory"),
                        "remove it",
                    ));
                }
                Ok(gid)
            })?;
            return Some(Value::Integers(gids));
        }
        _ => {}
    }
    match single(kind, value.get_ref()) {
        Ok(read) => Some(read),
        Err(wrong) => {
            wrongs.push((value.span(), wrong));
            None
        }
    }
}

/// The elements of a list that are well; none may be there twice.
fn elements<T: PartialEq>(
    value: &Spanned<DeValue<'_>>,
    noun: &str,
    wrongs: &mut Wrongs,
    read: impl Fn(&DeValue<'_>) -> Result<T, Wrong>,
) -> Option<Vec<T>> {
    let Some(list) = value.get_ref().as_array() else {
        // The commonest slip is one value without its brackets.
        let wrong = match value.get_ref() {
            single @ (DeValue::String(_) | DeValue::Integer(_)) => Wrong::new(
                format!("must be a list of {noun}"),
                format!("write [{}]", shown(single)),
            ),
            other => must_be(&format!("a list of {noun}"), other),
        };
        wrongs.push((value.span(), wrong));
        return None;
    };
    let mut elements = Vec::new();
    for element in list.iter() {
        match read(element.get_ref()) {
            Ok(read) if elements.contains(&read) => wrongs.push((
                element.span(),
                Wrong::new(format!("{} is there twice", shown(element.get_ref())), "remove one"),
            )),
            Ok(read) => elements.push(read),
            Err(wrong) => wrongs.push((element.span(), wrong)),
        }
    }
    Some(elements)
}

fn single(kind: Kind, value: &DeValue<'_>) -> Result<Value, Wrong> {
    Ok(match kind {
        Kind::Boolean => match value {
            DeValue::Boolean(value) => Value::Boolean(*value),
            DeValue::String(text) if matches!(&**text, "true" | "false") => {
                return Err(Wrong::new(
                    "must be true or false without quotes",
                    format!("write {text}"),
                ));
            }
            other => return Err(must_be("true or false", other)),
        },
        Kind::Integer { min, max } => Value::Integer(integer(value, min, max)?),
        Kind::Share => {
            let share = match value {
                DeValue::Float(number) => number.as_str().parse().ok(),
                DeValue::Integer(number) => number.as_str().parse().ok(),
                other => return Err(must_be("a number from 0 to 1", other)),
            };
            match share.filter(|share| (0.0..=1.0).contains(share)) {
                Some(share) => Value::Share(share),
                None => {
                    return Err(Wrong::new(
                        format!("{} is not from 0 to 1", shown(value)),
                        "write a share such as 0.5, which is half of the domain",
                    ));
                }
            }
        }
        Kind::Duration { min, max } => Value::Duration(match value {
            DeValue::String(text) => syntax::duration(text, min, max)?,
            DeValue::Integer(_) => {
                let seconds = integer(value, 0, u32::MAX)?;
                syntax::within(Duration::from_secs(seconds.into()), min, max)?
            }
            other => return Err(must_be("a duration such as \"30s\"", other)),
        }),
        Kind::Choice { noun, of } => Value::Text(choice(value, noun, of)?),
        Kind::Path => {
            let text = text(value)?;
            syntax::path(text)?;
            Value::Text(text.to_owned())
        }
        Kind::Template { original } => checked(value, |text| syntax::template(text, original))?,
        Kind::Dn => checked(value, syntax::dn)?,
        Kind::Filter => checked(value, syntax::filter)?,
        Kind::Attribute => checked(value, syntax::answered_attribute)?,
        Kind::DnsDomain => Value::Text(syntax::dns_name(text(value)?)?),
        Kind::Realm => checked(value, syntax::realm)?,
        Kind::Cache => checked(value, syntax::cache)?,
        Kind::Characters => checked(value, syntax::name_characters)?,
        Kind::Listen => Value::Listen(syntax::listen(text(value)?)?),
        Kind::Uris
        | Kind::Domains
        | Kind::Users
        | Kind::Hosts { .. }
        | Kind::Names
        | Kind::Attributes
        | Kind::Choices { .. }
        | Kind::KeyOptions
        | Kind::Gids => return Err(must_be("a list", value)),
    })
}

/// One of some words.
fn choice(value: &DeValue<'_>, noun: &str, of: &[&str]) -> Result<String, Wrong> {
    let text = text(value)?;
    if of.contains(&text) {
        return Ok(text.to_owned());
    }
    let instead = match nearest(text, of.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("write {}", keys::quoted(of)),
    };
    Err(Wrong::new(format!("{text:?} is not a {noun}"), instead))
}

fn checked(value: &DeValue<'_>, check: impl Fn(&str) -> Result<(), Wrong>) -> Result<Value, Wrong> {
    let text = text(value)?;
    check(text).map(|()| Value::Text(text.to_owned()))
}

fn text<'v>(value: &'v DeValue<'_>) -> Result<&'v str, Wrong> {
    value.as_str().ok_or_else(|| match value {
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
            Wrong::new("must be a string", format!("write \"{}\"", shown(value)))
        }
        other => must_be("a string", other),
    })
}

fn integer(value: &DeValue<'_>, min: u32, max: u32) -> Result<u32, Wrong> {
    let number = match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
        DeValue::String(text) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
            return Err(Wrong::new("must be a number without quotes", format!("write {text}")));
        }
        other => return Err(must_be("a whole number", other)),
    };
    let within = number.and_then(|number| u32::try_from(number).ok());
    within.filter(|number| (min..=max).contains(number)).ok_or_else(|| {
        Wrong::new(format!("{} is out of range", shown(value)), format!("write {min} to {max}"))
    })
}

fn must_be(wanted: &str, found: &DeValue<'_>) -> Wrong {
    let found = match found {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    Wrong { what: format!("must be {wanted}, and is {found}"), instead: None }
}

/// A value as it was written, for messages.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => string(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        other => other.type_str().to_owned(),
    }
}
