//! From the tables to a [`Config`]: what follows from what, and which keys contradict each other.

use crate::explain::Setting;
use crate::keys::{self, DOMAINS_MAX, Table};
use crate::problem::{Problem, Severity, Wrong, nearest};
use crate::read::{Report, Section, Value, entry};
use crate::{
    Attributes, Bind, Config, Domain, Files, Host, Ldap, Log, Metrics, Mode, Overrides, Provider,
    Publisher, Schema, Search, Server,
};
use std::ops::Range;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A configuration in which everything holds, and what came up on the way.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// What the daemon runs by.
    pub config: Config,
    /// What is most likely not meant, by line.
    pub warnings: Vec<Problem>,
    /// Every key of every table in use, for [`explain`](crate::explain::explain).
    pub settings: Vec<Setting>,
}

/// Larger files are not read on: no configuration comes near it.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Of what is no TOML, the first so many are told: one quote too few may spoil every line behind it.
const SLIPS_MAX: usize = 20;

const TABLES: [&str; 5] = ["host", "domain", "publisher", "metrics", "log"];

/// Reads the text of a roster.toml. An error is every mistake in it, and the warnings, by line.
pub fn parse(text: &str) -> Result<Parsed, Vec<Problem>> {
    let mut report = Report::new(text);
    if text.len() > TEXT_BYTES_MAX {
        let wrong = Wrong::new(
            format!("this file has {} bytes", text.len()),
            "1 MiB is the most there may be",
        );
        report.push(Severity::Error, &(0..0), "", wrong);
        return Err(report.problems);
    }
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors.iter().take(SLIPS_MAX) {
        report.push(Severity::Error, &error.span().unwrap_or(0..0), "", no_toml(text, error));
    }
    // Behind a line that is no TOML, keys may seem to be missing or in another table. After a key
    // that is there twice all else still stands where it was meant to.
    if errors.iter().any(|error| error.message() != DUPLICATE_KEY) {
        return Err(sorted(report.problems));
    }
    let config = whole(&mut report, root.get_ref());
    let Report { problems, settings, .. } = report;
    let problems = sorted(problems);
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Err(problems);
    }
    Ok(Parsed { config, warnings: problems, settings })
}

const DUPLICATE_KEY: &str = "duplicate key";

/// What the parser says, and of the commonest slips what to write instead.
fn no_toml(text: &str, error: &toml::de::Error) -> Wrong {
    let message = error.message();
    if message == DUPLICATE_KEY {
        return Wrong::new("this key or table is there twice", "remove one of the two");
    }
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"/._:-=,%@".contains(&byte);
    match line.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
        Some((key, value)) if value.is_empty() || value.starts_with('#') => {
            Wrong::new(format!("{key} has no value"), "write one behind the =")
        }
        Some((key, value)) if value.bytes().all(is_bare) => {
            Wrong::new("text stands in quotes", format!("write {key} = \"{value}\""))
        }
        _ => Wrong { what: format!("is no TOML: {message}"), instead: None },
    }
}

fn sorted(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by_key(|problem| (problem.line, problem.column));
    problems
}

fn whole(report: &mut Report<'_>, root: &DeTable<'_>) -> Config {
    for (name, _) in root {
        let text = &**name.get_ref();
        if !TABLES.contains(&text) {
            let instead = match nearest(text, TABLES) {
                Some(near) => format!("did you mean [{near}]?"),
                None if keys::KEYS.iter().any(|key| key.name == text) => {
                    "put it below the table that it belongs to; roster.toml(5) lists all keys"
                        .to_owned()
                }
                None => "remove it; roster.toml(5) lists all tables".to_owned(),
            };
            let wrong = Wrong::new("is not a table of this file", instead);
            report.push(Severity::Error, &name.span(), text, wrong);
        }
    }
    let (host, names) = host(report, root);
    let domains = domains(report, root, &host, &names);
    warn_of_waiting(report, root, &domains);

    let mut section = Section::new(report, Table::Publisher, "publisher", entry(root, "publisher"));
    let publisher = Publisher { interval: section.take("interval") };
    section.refuse_strangers(None);

    let metrics = entry(root, "metrics").and_then(|found| {
        let mut section = Section::new(report, Table::Metrics, "metrics", Some(found));
        let listen = section.take_if("listen");
        section.refuse_strangers(None);
        listen.map(|listen| Metrics { listen })
    });

    let mut section = Section::new(report, Table::Log, "log", entry(root, "log"));
    let log = Log { level: section.take("level"), json: section.take("json") };
    section.refuse_strangers(None);

    Config { host, domains, publisher, metrics, log }
}

fn host(report: &mut Report<'_>, root: &DeTable<'_>) -> (Host, Vec<String>) {
    let found = entry(root, "host");
    let mut section = Section::new(report, Table::Host, "host", found);
    let names: Vec<String> = section.take("domains");
    if is_empty_list(&section, "domains") {
        section.wrong(
            "domains",
            "names no domain, so there is nothing to serve",
            "name one, and describe it in a table [domain.NAME]",
        );
    }
    if names.len() > DOMAINS_MAX {
        section.wrong_at(
            "domains",
            DOMAINS_MAX,
            format!("{} domains are more than there can be", names.len()),
            format!("name {DOMAINS_MAX} at the most"),
        );
    }
    let host = Host {
        min_id: section.take("min_id"),
        max_id: section.take("max_id"),
        allowed_local_gids: section.take("allowed_local_gids"),
        passwd: section.take("passwd"),
        group: section.take("group"),
    };
    check_ids(&mut section, host.min_id, host.max_id);
    section.refuse_strangers(None);
    (host, names)
}

/// A value with a mistake is 0, and was complained of.
fn check_ids(section: &mut Section<'_, '_, '_, '_>, min: u32, max: u32) {
    if min > max && max > 0 {
        let name = if section.has("max_id") { "max_id" } else { "min_id" };
        section.wrong(
            name,
            format!("no id is at least min_id ({min}) and at most max_id ({max})"),
            "make max_id the larger one",
        );
    }
}

fn domains(
    report: &mut Report<'_>,
    root: &DeTable<'_>,
    host: &Host,
    names: &[String],
) -> Vec<Domain> {
    let nothing = DeTable::new();
    let tables = match entry(root, "domain") {
        None => &nothing,
        Some((place, value)) => value.get_ref().as_table().unwrap_or_else(|| {
            let wrong = Wrong::new("must be tables", "write [domain.NAME], and its keys below");
            report.push(Severity::Error, &place, "domain", wrong);
            &nothing
        }),
    };
    let mut domains = Vec::new();
    for (at, name) in names.iter().enumerate() {
        match entry(tables, name) {
            Some(found) => domains.push(domain(report, host, name, found)),
            None => missing(report, root, tables, at, name, names),
        }
    }
    for (key, value) in tables {
        let name = &**key.get_ref();
        if names.iter().any(|used| used == name) {
            continue;
        }
        let path = domain_path(name);
        // `[domain]` with the keys of one right below.
        if !matches!(value.get_ref(), DeValue::Table(_)) {
            let wrong =
                Wrong::new("stands under [domain]", "write [domain.NAME], and keys below it");
            report.push(Severity::Error, &key.span(), &path, wrong);
            continue;
        }
        // Where no domain is named at all, which was complained of, each may be meant.
        if names.is_empty() {
            domain(report, host, name, (key.span(), value));
            continue;
        }
        let wrong = Wrong::new("is not used", "name it in domains of [host], or remove this table");
        report.push(Severity::Warning, &key.span(), &path, wrong);
        // What is wrong with it will matter on the day it is named.
        let (problems, settings) = (report.problems.len(), report.settings.len());
        domain(report, host, name, (key.span(), value));
        report.settings.truncate(settings);
        for problem in &mut report.problems[problems..] {
            problem.severity = Severity::Warning;
        }
    }
    domains
}

fn missing(
    report: &mut Report<'_>,
    root: &DeTable<'_>,
    tables: &DeTable<'_>,
    at: usize,
    name: &str,
    names: &[String],
) {
    let others = tables.iter().map(|(key, _)| &**key.get_ref());
    let unused = others.filter(|other| !names.iter().any(|name| name == other));
    let path = domain_path(name);
    let instead = match nearest(name, unused) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("add a table [{path}] with its provider"),
    };
    let mut section = Section::new(report, Table::Host, "host", entry(root, "host"));
    section.wrong_at("domains", at, format!("there is no table [{path}]"), instead);
}

/// As a person writes the table.
pub(crate) fn domain_path(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !name.is_empty() && name.bytes().all(bare) {
        format!("domain.{name}")
    } else {
        format!("domain.{name:?}")
    }
}

fn domain<'d>(
    report: &mut Report<'_>,
    host: &Host,
    name: &str,
    found: (Range<usize>, &'d Spanned<DeValue<'d>>),
) -> Domain {
    let path = domain_path(name);
    let mut section = Section::new(report, Table::Domain, &path, Some(found));
    let provider: String = section.take("provider");
    let mode: String = section.take("mode");
    let mode = if mode == "on-demand" { Mode::OnDemand } else { Mode::Replicate };
    let min_id = section.take_or("min_id", host.min_id, Value::Integer);
    let max_id = section.take_or("max_id", host.max_id, Value::Integer);
    if section.has("min_id") && min_id < host.min_id {
        section.wrong(
            "min_id",
            format!(
                "{min_id} is below min_id of [host], {}, which holds for every domain",
                host.min_id
            ),
            "lower that one",
        );
    }
    if section.has("max_id") && max_id > host.max_id && host.max_id > 0 {
        section.wrong(
            "max_id",
            format!(
                "{max_id} is above max_id of [host], {}, which holds for every domain",
                host.max_id
            ),
            "raise that one",
        );
    }
    if section.has("min_id") || section.has("max_id") {
        check_ids(&mut section, min_id, max_id);
    }
    let overrides = Overrides {
        home: section.take_if("home"),
        fallback_home: section.take_if("fallback_home"),
        shell: section.take_if("shell"),
        fallback_shell: section.take_if("fallback_shell"),
    };
    for (always, fallback) in [("home", "fallback_home"), ("shell", "fallback_shell")] {
        if section.has(always) && section.has(fallback) {
            section.warn(
                fallback,
                format!("has no effect beside {always}"),
                "remove one of the two",
            );
        }
    }
    let mass_deletion = section.take("mass_deletion");
    let (refresh, negative) = (section.take("refresh"), section.take("negative"));
    for name in ["refresh", "negative"] {
        if mode == Mode::Replicate && section.has(name) {
            section.warn(
                name,
                "has no effect on a domain that is mirrored",
                "remove it, or set mode = \"on-demand\"",
            );
        }
    }
    let provider = match &*provider {
        "files" => {
            section.refuse_strangers(Some("files"));
            if mode == Mode::OnDemand {
                section.wrong("mode", "text is always mirrored", "remove it");
            }
            Provider::Files(files(&mut section, host))
        }
        "ldap" => {
            section.refuse_strangers(Some("ldap"));
            Provider::Ldap(Box::new(ldap(&mut section)))
        }
        // A mistake, which was complained of; it stands for no provider, and asks for no keys.
        _ => {
            section.refuse_strangers(None);
            Provider::Files(Files { passwd: PathBuf::new(), group: PathBuf::new() })
        }
    };
    Domain {
        name: name.to_owned(),
        min_id,
        max_id,
        mode,
        overrides,
        mass_deletion,
        refresh,
        negative,
        provider,
    }
}

fn files(section: &mut Section<'_, '_, '_, '_>, host: &Host) -> Files {
    let files = Files { passwd: section.take("passwd"), group: section.take("group") };
    let (passwd, group) = (&files.passwd, &files.group);
    if passwd == group && section.has("passwd") && passwd.has_root() {
        section.wrong("group", "is the same file as passwd", "name the one with groups");
    }
    for (name, own, host) in [("passwd", passwd, &host.passwd), ("group", group, &host.group)] {
        if own == host && own.has_root() {
            section.wrong(
                name,
                "is the host's own file, with which every entry would clash",
                "name another one; local accounts need no domain",
            );
        }
    }
    files
}

fn ldap(section: &mut Section<'_, '_, '_, '_>) -> Ldap {
    let servers: Vec<Server> = section.take("uris");
    let discover: Option<String> = section.take_if("discover");
    section.note_unset("uris");
    if !section.has("uris") && !section.has("discover") {
        section.wrong(
            "uris",
            "is missing",
            "name servers, uris = [\"ldaps://ldap1.example.com\"], or find them by DNS, \
             discover = \"example.com\"",
        );
    } else if is_empty_list(section, "uris") {
        section.wrong("uris", "names no server", "name one, or remove it and set discover");
    }
    let base: String = section.take("base");
    let schema: String = section.take("schema");
    let schema = if schema == "rfc2307bis" { Schema::Rfc2307bis } else { Schema::Rfc2307 };
    let mut search = |base_key, filter_key| Search {
        base: section.take_or(base_key, base.clone(), Value::Text),
        filter: section.take(filter_key),
    };
    let users = search("user_base", "user_filter");
    let groups = search("group_base", "group_filter");
    let case_sensitive = section.take("case_sensitive");
    let bind = bind(section, &servers, discover.is_some());
    let start_tls: bool = section.take("start_tls");
    let tls_ca: Option<PathBuf> = section.take_if("tls_ca");
    section.note_unset("tls_ca");
    let allow_clear_password = section.take("allow_clear_password");
    let clear = transport(section, &servers, discover.is_some(), start_tls);
    if tls_ca.is_some() && !clear.tls {
        section.warn(
            "tls_ca",
            "has no effect without TLS",
            "use ldaps:// in uris, or set start_tls = true",
        );
    }
    if let (Some(server), Bind::Simple { .. }, false) =
        (&clear.without_tls, &bind, allow_clear_password)
    {
        section.wrong(
            "bind_password_file",
            format!("the password would travel to {server} for everybody on the way to read"),
            "use ldaps:// in uris or start_tls = true; if the network is to be trusted, \
             allow_clear_password = true",
        );
    }
    Ldap {
        page_size: section.take("page_size"),
        connect_timeout: section.take("connect_timeout"),
        search_timeout: section.take("search_timeout"),
        poll: section.take("poll"),
        fail_back: section.take("fail_back"),
        message_bytes_max: section.take("message_bytes_max"),
        attributes: attributes(section, schema),
        servers,
        discover,
        base,
        users,
        groups,
        schema,
        case_sensitive,
        bind,
        start_tls,
        tls_ca,
        allow_clear_password,
    }
}

fn is_empty_list(section: &Section<'_, '_, '_, '_>, name: &str) -> bool {
    section
        .entry(name)
        .and_then(|(_, value)| value.get_ref().as_array())
        .is_some_and(|list| list.is_empty())
}

fn bind(section: &mut Section<'_, '_, '_, '_>, servers: &[Server], discover: bool) -> Bind {
    let fallback = if section.has("bind_dn") { "simple" } else { "anonymous" };
    let bind = section.take_or("bind", fallback.to_owned(), Value::Text);
    let dn: Option<String> = section.take_if("bind_dn");
    let password_file: Option<PathBuf> = section.take_if("bind_password_file");
    match &*bind {
        "simple" => {
            if !section.has("bind_dn") {
                section.wrong("bind", "a simple bind needs a DN", "add bind_dn = \"cn=…\"");
            }
            if !section.has("bind_password_file") {
                let place = if section.has("bind_dn") { "bind_dn" } else { "bind" };
                section.wrong(
                    place,
                    "a simple bind needs a password",
                    "put it into a file with mode 0600, and name that in bind_password_file",
                );
            }
            Bind::Simple {
                dn: dn.unwrap_or_default(),
                password_file: password_file.unwrap_or_default(),
            }
        }
        "external" => {
            for (at, server) in servers.iter().enumerate() {
                if !matches!(server, Server::Ldapi { .. }) {
                    section.wrong_at(
                        "uris",
                        at,
                        format!("{server} does not know the uid that bind = \"external\" goes by"),
                        "use ldapi://, or bind_dn and bind_password_file",
                    );
                }
            }
            if discover {
                section.wrong(
                    "discover",
                    "bind = \"external\" is for ldapi://, which is not found by DNS",
                    "remove one of the two",
                );
            }
            superfluous(section, "external");
            Bind::External
        }
        _ => {
            if section.has("bind") {
                superfluous(section, "anonymous");
            } else if section.has("bind_password_file") {
                section.wrong(
                    "bind_password_file",
                    "a password without a name",
                    "add bind_dn, or remove it",
                );
            }
            Bind::Anonymous
        }
    }
}

fn superfluous(section: &mut Section<'_, '_, '_, '_>, bind: &str) {
    for name in ["bind_dn", "bind_password_file"] {
        if section.has(name) {
            section.wrong(
                name,
                format!("contradicts bind = \"{bind}\""),
                "remove it, or set bind = \"simple\"",
            );
        }
    }
}

/// What TLS covers.
struct Transport {
    /// Some of it.
    tls: bool,
    /// One that it does not.
    without_tls: Option<String>,
}

fn transport(
    section: &mut Section<'_, '_, '_, '_>,
    servers: &[Server],
    discover: bool,
    start_tls: bool,
) -> Transport {
    let mut found = Transport { tls: start_tls, without_tls: None };
    for (at, server) in servers.iter().enumerate() {
        match server {
            Server::Ldaps { .. } if start_tls => section.wrong_at(
                "uris",
                at,
                format!("{server} has TLS from the start, and start_tls is for ldap://"),
                "write ldap:// here, or remove start_tls",
            ),
            Server::Ldaps { .. } => found.tls = true,
            Server::Ldap { .. } if !start_tls => found.without_tls = Some(server.to_string()),
            Server::Ldapi { .. } if start_tls => section.warn_at(
                "uris",
                at,
                "start_tls has no effect on a socket of this host",
                "remove it if there are no other servers",
            ),
            Server::Ldap { .. } | Server::Ldapi { .. } => {}
        }
    }
    if discover && !start_tls {
        found.without_tls = Some("servers that DNS names".to_owned());
    }
    found
}

fn attributes(section: &mut Section<'_, '_, '_, '_>, schema: Schema) -> Attributes {
    let path = section.path_of("attributes");
    let found = section.entry("attributes");
    let mut section = Section::new(section.report, Table::Attributes, &path, found);
    let mut name = |key: &str| section.take::<String>(key).to_ascii_lowercase();
    let (user_name, user_uid, user_gid) = (name("user_name"), name("user_uid"), name("user_gid"));
    let (user_gecos, user_home) = (name("user_gecos"), name("user_home"));
    let (user_shell, group_name) = (name("user_shell"), name("group_name"));
    let group_gid = name("group_gid");
    let member = match schema {
        Schema::Rfc2307 => "memberUid",
        Schema::Rfc2307bis => "member",
    };
    let group_member = section.take_or("group_member", member.to_owned(), Value::Text);
    let uuid: Option<String> = section.take_if("uuid");
    section.note_unset("uuid");
    section.refuse_strangers(Some("ldap"));
    Attributes {
        user_name,
        user_uid,
        user_gid,
        user_gecos,
        user_home,
        user_shell,
        group_name,
        group_gid,
        group_member: group_member.to_ascii_lowercase(),
        uuid: uuid.map(|uuid| uuid.to_ascii_lowercase()),
    }
}

/// Names that an earlier domain does not know at once hold up those of later ones.
fn warn_of_waiting(report: &mut Report<'_>, root: &DeTable<'_>, domains: &[Domain]) {
    let Some(first) = domains.iter().position(|domain| domain.mode == Mode::OnDemand) else {
        return;
    };
    let mut section = Section::new(report, Table::Host, "host", entry(root, "host"));
    for (at, domain) in domains.iter().enumerate().skip(first + 1) {
        if domain.mode == Mode::Replicate {
            let asked = &domains[first].name;
            section.warn_at(
                "domains",
                at,
                format!(
                    "{} comes after {asked}, which is asked on demand: its names are looked for there \
                     first, and its users wait for the answer",
                    domain.name
                ),
                format!("put {} before {asked} unless {asked}'s users are to win", domain.name),
            );
        }
    }
}
