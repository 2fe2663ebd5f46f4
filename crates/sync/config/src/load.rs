//! Converts the text of files to a [`Config`], table by table. [`domain`](crate::domain) has the largest one.

use crate::config_files::{ConfigFiles, TEXT_BYTES_MAX};
use crate::diagnostic::{ConfigProblem, Diagnostic, Severity, SourceIndex, nearest};
use crate::domain::{HOST_ID_KEYS, check_ids, domain, domain_path};
use crate::explain::{EffectiveSetting, ValueOrigin};
use crate::keys::{self, ConfigTable, DOMAINS_MAX};
use crate::merge::{merge_table, shift};
use crate::toml_section::{LoadReport, TomlSection, entry};
use crate::{
    AdmissionExceptions, Config, DomainConfig, DomainMode, HostConfig, LogConfig, MetricsConfig,
    PamConfig, PublisherConfig,
};
use roster_snapshot::floor::GIDS_MAX;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// A valid configuration and the findings of the parser.
#[derive(Clone, Debug)]
pub struct ParsedConfig {
    /// The configuration.
    pub config: Config,
    /// Probable mistakes, by line.
    pub warnings: Vec<Diagnostic>,
    /// Every key of every table in use, for [`explain`](crate::explain::explain).
    pub settings: Vec<EffectiveSetting>,
    /// The files, in order of increasing precedence.
    pub files: Vec<PathBuf>,
    /// The main file.
    main: PathBuf,
}

impl ParsedConfig {
    /// Returns a finding about the value of a key, with the line of the value.
    #[must_use]
    pub fn value_diagnostic(
        &self,
        severity: Severity,
        (table, key): (&str, &str),
        message: String,
        fix: Option<String>,
    ) -> Diagnostic {
        let setting = self.settings.iter().find(|set| set.table == table && set.key == key);
        let (file, line) = match setting.map(|setting| &setting.origin) {
            Some(ValueOrigin::Line { file, line }) => (file, *line),
            _ => (&self.main, 1),
        };
        let key = format!("{table}.{key}");
        Diagnostic { severity, file: file.clone(), line, column: 1, key, message, fix }
    }

    /// Sorts findings by file and line.
    pub fn sort(&self, problems: &mut [Diagnostic]) {
        sort(&self.files, problems);
    }
}

fn sort(files: &[PathBuf], problems: &mut [Diagnostic]) {
    let place = |problem: &Diagnostic| files.iter().position(|file| *file == problem.file);
    problems.sort_by_key(|problem| (place(problem), problem.line, problem.column));
}

/// Limit of the reported syntax errors. One missing quote may invalidate every line after it.
const SYNTAX_ERRORS_MAX: usize = 20;

const TABLES: [&str; 6] = ["host", "domain", "publisher", "responder", "metrics", "log"];

/// Parses one text as the whole configuration, with the name `roster.toml`. Errors are as for [`parse_files`].
pub fn parse(text: &str) -> Result<ParsedConfig, Vec<Diagnostic>> {
    parse_files(&ConfigFiles::from_text("roster.toml", text))
}

/// Parses a configuration. Tables of several files are merged, and any other value of a later file replaces an earlier
/// one. An error has all mistakes and warnings, by file and line.
pub fn parse_files(files: &ConfigFiles) -> Result<ParsedConfig, Vec<Diagnostic>> {
    let texts = check_texts(files)?;
    let mut sources = SourceIndex::default();
    // The main file has the first position, so a missing key is reported there.
    let (main, others): (Vec<_>, Vec<_>) = texts.iter().partition(|(path, _)| *path == files.main);
    let added: Vec<_> = main
        .into_iter()
        .chain(others)
        .map(|&(path, text)| (path, sources.add(path, text)))
        .collect();
    let mut report = LoadReport::new(sources);
    let mut root = DeTable::new();
    let mut conflicts = Vec::new();
    let mut is_toml = true;
    for &(path, text) in &texts {
        let found = added.iter().find(|(added, _)| *added == path);
        let offset = found.map_or(0, |&(_, offset)| offset);
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors.iter().take(SYNTAX_ERRORS_MAX) {
            let place = shift(&error.span().unwrap_or(0..0), offset);
            report.push(Severity::Error, &place, "", syntax_error(text, error));
        }
        is_toml &= errors.iter().all(|error| error.message() == DUPLICATE_KEY);
        if is_toml {
            merge_table(&mut root, table.into_inner(), offset, &mut conflicts);
        }
    }
    let paths: Vec<PathBuf> = files.paths().map(Path::to_owned).collect();
    // After a syntax error, keys may seem to be missing or in another table. After a duplicate key, the rest is still
    // reliable.
    if !is_toml {
        sort(&paths, &mut report.problems);
        return Err(report.problems);
    }
    for (place, name) in conflicts {
        let wrong = ConfigProblem::new(
            "is a table in one file and a value in another",
            "write it alike in both",
        );
        report.push(Severity::Error, &place, &name, wrong);
    }
    let config = read_config(&mut report, &root);
    let LoadReport { mut problems, settings, .. } = report;
    sort(&paths, &mut problems);
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Err(problems);
    }
    let main = files.main.clone();
    Ok(ParsedConfig { config, warnings: problems, settings, files: paths, main })
}

/// Returns the texts of all files with their paths. Checks that they are UTF-8 and within the limit.
fn check_texts(files: &ConfigFiles) -> Result<Vec<(&Path, &str)>, Vec<Diagnostic>> {
    let mut texts = Vec::new();
    let mut problems = Vec::new();
    let mut bytes = 0;
    for file in &files.files {
        bytes += file.bytes.len();
        let problem = |line, column, message: String, fix: &str| {
            let problem = ConfigProblem::new(message, fix);
            Diagnostic { line, column, ..Diagnostic::of_file(Severity::Error, &file.path, problem) }
        };
        match std::str::from_utf8(&file.bytes) {
            _ if bytes > TEXT_BYTES_MAX => {
                let which = if texts.is_empty() { "has" } else { "and those before it have" };
                let what = format!("this file {which} more than {TEXT_BYTES_MAX} bytes");
                problems.push(problem(1, 1, what, "1 MiB is the most there may be"));
                break;
            }
            Ok(text) => texts.push((&*file.path, text)),
            Err(error) => {
                let (line, column) = locate_non_text(&file.bytes, error.valid_up_to());
                let what = "is not text in UTF-8".to_owned();
                problems.push(problem(line, column, what, "save the file as UTF-8"));
            }
        }
    }
    if problems.is_empty() { Ok(texts) } else { Err(problems) }
}

/// Returns line and column of bytes after valid text that are not UTF-8.
fn locate_non_text(bytes: &[u8], at: usize) -> (usize, usize) {
    let before = String::from_utf8_lossy(bytes.get(..at).unwrap_or_default());
    let line = before.split('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

const DUPLICATE_KEY: &str = "duplicate key";

/// Quotes that word processors and web pages produce.
const CURLY_QUOTES: [char; 6] =
    ['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}', '\u{201a}'];

/// Returns the parser's message, or a fix for common mistakes.
fn syntax_error(text: &str, error: &toml::de::Error) -> ConfigProblem {
    let message = error.message();
    if message == DUPLICATE_KEY {
        return ConfigProblem::new("this key or table is there twice", "remove one of the two");
    }
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"/._:-=,%@".contains(&byte);
    match line.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
        Some((key, value)) if value.is_empty() || value.starts_with('#') => {
            ConfigProblem::new(format!("{key} has no value"), "write one behind the =")
        }
        Some((key, value)) if value.bytes().all(is_bare) => {
            ConfigProblem::new("text stands in quotes", format!("write {key} = \"{value}\""))
        }
        Some((key, value)) if value.starts_with(CURLY_QUOTES) => ConfigProblem::new(
            "these quotes are those of printed text",
            format!("write it in straight ones: {key} = {}", value.replace(CURLY_QUOTES, "\"")),
        ),
        _ => ConfigProblem { message: format!("is no TOML: {message}"), fix: None },
    }
}

fn read_config(report: &mut LoadReport<'_>, root: &DeTable<'_>) -> Config {
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
            let wrong = ConfigProblem::new("is not a table of this file", instead);
            report.push(Severity::Error, &name.span(), text, wrong);
        }
    }
    let (host, names) = host(report, root);
    let domains = domains(report, root, &host, &names);
    warn_slow_precedence(report, root, &domains);

    let mut section =
        TomlSection::new(report, ConfigTable::Publisher, "publisher", entry(root, "publisher"));
    let publisher = PublisherConfig { interval: section.value(&keys::PUBLISHER_INTERVAL) };
    section.reject_unknown_keys(None);

    let pam = pam(report, root, &domains);

    let metrics = entry(root, "metrics").and_then(|found| {
        let mut section = TomlSection::new(report, ConfigTable::Metrics, "metrics", Some(found));
        let listen = section.optional_value(&keys::METRICS_LISTEN);
        section.reject_unknown_keys(None);
        listen.map(|listen| MetricsConfig { listen })
    });

    let mut section = TomlSection::new(report, ConfigTable::Log, "log", entry(root, "log"));
    let log =
        LogConfig { level: section.value(&keys::LOG_LEVEL), json: section.value(&keys::LOG_JSON) };
    section.reject_unknown_keys(None);

    Config { host, domains, publisher, pam, metrics, log }
}

/// Reads `[responder.pam]`. A domain with logins enables it by default.
fn pam(
    report: &mut LoadReport<'_>,
    root: &DeTable<'_>,
    domains: &[DomainConfig],
) -> Option<PamConfig> {
    let nothing = DeTable::new();
    let responders = match entry(root, "responder") {
        None => &nothing,
        Some((place, value)) => value.get_ref().as_table().unwrap_or_else(|| {
            let wrong =
                ConfigProblem::new("must be tables", "write [responder.pam], and its keys below");
            report.push(Severity::Error, &place, "responder", wrong);
            &nothing
        }),
    };
    for (key, _) in responders {
        let name = &**key.get_ref();
        if name != "pam" {
            let fix = match name {
                "nscd" => "take it out, and enable roster-nscd.socket instead",
                _ => "write [responder.pam]",
            };
            let wrong = ConfigProblem::new("is no responder with keys of its own", fix);
            report.push(Severity::Error, &key.span(), &format!("responder.{name}"), wrong);
        }
    }
    let is_asked = domains.iter().any(DomainConfig::has_logins);
    let found = entry(responders, "pam");
    if found.is_none() && !is_asked {
        return None;
    }
    let mut section = TomlSection::new(report, ConfigTable::ResponderPam, "responder.pam", found);
    let enabled = section.value_or(&keys::PAM_ENABLED, is_asked);
    let pam = PamConfig {
        trusted_users: section.value(&keys::PAM_TRUSTED_USERS),
        timeout: section.value(&keys::PAM_TIMEOUT),
        tries_per_minute: section.value(&keys::PAM_TRIES_PER_MINUTE),
    };
    section.reject_unknown_keys(None);
    enabled.then_some(pam)
}

fn host(report: &mut LoadReport<'_>, root: &DeTable<'_>) -> (HostConfig, Vec<String>) {
    let found = entry(root, "host");
    let mut section = TomlSection::new(report, ConfigTable::Host, "host", found);
    let names: Vec<String> = section.value(&keys::HOST_DOMAINS);
    if section.is_empty_list(&keys::HOST_DOMAINS) {
        section.error(
            &keys::HOST_DOMAINS,
            "names no domain, so there is nothing to serve",
            "name one, and describe it in a table [domain.NAME]",
        );
    }
    if let Some(first) = names.get(DOMAINS_MAX) {
        section.element_error(
            &keys::HOST_DOMAINS,
            |text| text == first,
            format!("{} domains are more than there can be", names.len()),
            format!("name {DOMAINS_MAX} at the most"),
        );
    }
    let host = HostConfig {
        min_id: section.value(&keys::HOST_MIN_ID),
        max_id: section.value(&keys::HOST_MAX_ID),
        allowed_local_gids: section.value(&keys::HOST_ALLOWED_LOCAL_GIDS),
        exceptions: AdmissionExceptions {
            unnamed_gids: section.value(&keys::HOST_ALLOWED_UNNAMED_GIDS),
            subordinate_ids: section.value(&keys::HOST_ALLOW_SUBORDINATE_IDS),
            names: section.value(&keys::HOST_ALLOWED_NAMES),
            name_characters: section.value(&keys::HOST_ALLOWED_NAME_CHARACTERS),
        },
        passwd: section.value(&keys::HOST_PASSWD),
        group: section.value(&keys::HOST_GROUP),
        subuid: section.value(&keys::HOST_SUBUID),
        subgid: section.value(&keys::HOST_SUBGID),
    };
    check_ids(&mut section, HOST_ID_KEYS, host.min_id, host.max_id);
    let below = host.allowed_gids_below().count();
    if below > GIDS_MAX {
        section.error(
            &keys::HOST_ALLOWED_LOCAL_GIDS,
            format!("has {below} gids below min_id, and there is room for {GIDS_MAX}"),
            "remove some, or lower min_id",
        );
    }
    section.reject_unknown_keys(None);
    (host, names)
}

fn domains(
    report: &mut LoadReport<'_>,
    root: &DeTable<'_>,
    host: &HostConfig,
    names: &[String],
) -> Vec<DomainConfig> {
    let nothing = DeTable::new();
    let tables = match entry(root, "domain") {
        None => &nothing,
        Some((place, value)) => value.get_ref().as_table().unwrap_or_else(|| {
            let wrong =
                ConfigProblem::new("must be tables", "write [domain.NAME], and its keys below");
            report.push(Severity::Error, &place, "domain", wrong);
            &nothing
        }),
    };
    let mut domains = Vec::new();
    for name in names {
        match entry(tables, name) {
            Some(found) => domains.push(domain(report, host, name, found)),
            None => report_missing_table(report, root, tables, name, names),
        }
    }
    for (key, value) in tables {
        let name = &**key.get_ref();
        if names.iter().any(|used| used == name) {
            continue;
        }
        let path = domain_path(name);
        // `[domain]` with the keys of a domain directly below.
        if !matches!(value.get_ref(), DeValue::Table(_)) {
            let wrong = ConfigProblem::new(
                "stands under [domain]",
                "write [domain.NAME], and keys below it",
            );
            report.push(Severity::Error, &key.span(), &path, wrong);
            continue;
        }
        // Without any named domain, which was reported before, each table may be meant.
        if names.is_empty() {
            domain(report, host, name, (key.span(), value));
            continue;
        }
        let wrong =
            ConfigProblem::new("is not used", "name it in domains of [host], or remove this table");
        report.push(Severity::Warning, &key.span(), &path, wrong);
        // Its mistakes become relevant when the domain is named.
        let (problems, settings) = (report.problems.len(), report.settings.len());
        domain(report, host, name, (key.span(), value));
        report.settings.truncate(settings);
        for problem in &mut report.problems[problems..] {
            problem.severity = Severity::Warning;
        }
    }
    domains
}

fn report_missing_table(
    report: &mut LoadReport<'_>,
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
    let mut section = TomlSection::new(report, ConfigTable::Host, "host", entry(root, "host"));
    section.element_error(
        &keys::HOST_DOMAINS,
        |text| text == name,
        format!("there is no table [{path}]"),
        instead,
    );
}

/// Warns of mirrored domains after an on-demand one, because their lookups wait for it.
fn warn_slow_precedence(report: &mut LoadReport<'_>, root: &DeTable<'_>, domains: &[DomainConfig]) {
    let Some(first) = domains.iter().position(|domain| domain.mode == DomainMode::OnDemand) else {
        return;
    };
    let mut section = TomlSection::new(report, ConfigTable::Host, "host", entry(root, "host"));
    for domain in &domains[first + 1..] {
        if domain.mode == DomainMode::Replicate {
            let asked = &domains[first].name;
            section.element_warning(
                &keys::HOST_DOMAINS,
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
