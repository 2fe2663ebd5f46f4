//! From a file's text to a [`Config`], table by table; [`domain`](crate::domain) has the largest.

use crate::domain::{check_ids, domain, domain_path};
use crate::explain::Setting;
use crate::keys::{self, DOMAINS_MAX, Table};
use crate::problem::{Problem, Severity, Wrong, nearest};
use crate::read::{Report, Section, Value, entry};
use crate::{Config, Domain, Exceptions, Host, Log, Metrics, Mode, Nscd, Pam, Publisher};
use roster_snapshot::floor::GIDS_MAX;
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

const TABLES: [&str; 6] = ["host", "domain", "publisher", "responder", "metrics", "log"];
/// Tables below `[responder]`.
const RESPONDERS: [&str; 2] = ["pam", "nscd"];

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

/// What word processors and web pages make of quotes.
const CURLY: [char; 6] = ['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}', '\u{201a}'];

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
        Some((key, value)) if value.starts_with(CURLY) => Wrong::new(
            "these quotes are those of printed text",
            format!("write it in straight ones: {key} = {}", value.replace(CURLY, "\"")),
        ),
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

    let pam = pam(report, root, &domains);

    let metrics = entry(root, "metrics").and_then(|found| {
        let mut section = Section::new(report, Table::Metrics, "metrics", Some(found));
        let listen = section.take_if("listen");
        section.refuse_strangers(None);
        listen.map(|listen| Metrics { listen })
    });

    let nscd = nscd(report, root);

    let mut section = Section::new(report, Table::Log, "log", entry(root, "log"));
    let log = Log { level: section.take("level"), json: section.take("json") };
    section.refuse_strangers(None);

    Config { host, domains, publisher, pam, metrics, nscd, log }
}

/// `[responder.nscd]`. That `responder` is a table, and of which tables, is seen to by [`pam`].
fn nscd(report: &mut Report<'_>, root: &DeTable<'_>) -> Option<Nscd> {
    let (_, responders) = entry(root, "responder")?;
    let found = Some(entry(responders.get_ref().as_table()?, "nscd")?);
    let mut section = Section::new(report, Table::Nscd, "responder.nscd", found);
    let nscd = Nscd {
        socket: section.take("socket"),
        nsswitch: section.take("nsswitch"),
        positive: section.take("positive"),
        negative: section.take("negative"),
    };
    let enabled: bool = section.take("enabled");
    section.refuse_strangers(None);
    enabled.then_some(nscd)
}

/// `[responder.pam]`, which is there by itself where a domain asks anybody about passwords.
fn pam(report: &mut Report<'_>, root: &DeTable<'_>, domains: &[Domain]) -> Option<Pam> {
    let nothing = DeTable::new();
    let responders = match entry(root, "responder") {
        None => &nothing,
        Some((place, value)) => value.get_ref().as_table().unwrap_or_else(|| {
            let wrong = Wrong::new("must be tables", "write [responder.pam], and its keys below");
            report.push(Severity::Error, &place, "responder", wrong);
            &nothing
        }),
    };
    for (key, _) in responders {
        let name = &**key.get_ref();
        if !RESPONDERS.contains(&name) {
            let wrong = Wrong::new(
                "is no responder with keys of its own",
                "write [responder.pam] or [responder.nscd]",
            );
            report.push(Severity::Error, &key.span(), &format!("responder.{name}"), wrong);
        }
    }
    let is_asked = domains.iter().any(Domain::has_log_ins);
    let found = entry(responders, "pam");
    if found.is_none() && !is_asked {
        return None;
    }
    let mut section = Section::new(report, Table::ResponderPam, "responder.pam", found);
    let enabled = section.take_or("enabled", is_asked, Value::Boolean);
    let pam = Pam {
        trusted_users: section.take("trusted_users"),
        timeout: section.take("timeout"),
        tries_per_minute: section.take("tries_per_minute"),
    };
    section.refuse_strangers(None);
    enabled.then_some(pam)
}

fn host(report: &mut Report<'_>, root: &DeTable<'_>) -> (Host, Vec<String>) {
    let found = entry(root, "host");
    let mut section = Section::new(report, Table::Host, "host", found);
    let names: Vec<String> = section.take("domains");
    if section.is_empty_list("domains") {
        section.wrong(
            "domains",
            "names no domain, so there is nothing to serve",
            "name one, and describe it in a table [domain.NAME]",
        );
    }
    if let Some(first) = names.get(DOMAINS_MAX) {
        section.wrong_at(
            "domains",
            |text| text == first,
            format!("{} domains are more than there can be", names.len()),
            format!("name {DOMAINS_MAX} at the most"),
        );
    }
    let host = Host {
        min_id: section.take("min_id"),
        max_id: section.take("max_id"),
        allowed_local_gids: section.take("allowed_local_gids"),
        exceptions: Exceptions {
            unnamed_gids: section.take("allowed_unnamed_gids"),
            subordinate_ids: section.take("allow_subordinate_ids"),
            names: section.take("allowed_names"),
            name_characters: section.take("allowed_name_characters"),
        },
        passwd: section.take("passwd"),
        group: section.take("group"),
        subuid: section.take("subuid"),
        subgid: section.take("subgid"),
    };
    check_ids(&mut section, host.min_id, host.max_id);
    let below = host.gids_below().count();
    if below > GIDS_MAX {
        section.wrong(
            "allowed_local_gids",
            format!("has {below} gids below min_id, and there is room for {GIDS_MAX}"),
            "remove some, or lower min_id",
        );
    }
    section.refuse_strangers(None);
    (host, names)
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
    for name in names {
        match entry(tables, name) {
            Some(found) => domains.push(domain(report, host, name, found)),
            None => missing(report, root, tables, name, names),
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
    section.wrong_at(
        "domains",
        |text| text == name,
        format!("there is no table [{path}]"),
        instead,
    );
}

/// Names that an earlier domain does not know at once hold up those of later ones.
fn warn_of_waiting(report: &mut Report<'_>, root: &DeTable<'_>, domains: &[Domain]) {
    let Some(first) = domains.iter().position(|domain| domain.mode == Mode::OnDemand) else {
        return;
    };
    let mut section = Section::new(report, Table::Host, "host", entry(root, "host"));
    for domain in &domains[first + 1..] {
        if domain.mode == Mode::Replicate {
            let asked = &domains[first].name;
            section.warn_at(
                "domains",
                |text| text == domain.name,
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
