// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts the text of files to a [`Config`], table by table. [`domain`](crate::domain) reads the tables of domains.
//! This module opens no file: [`ConfigFiles`] has the texts.

use crate::config_files::{ConfigFiles, TEXT_BYTES_MAX};
use crate::diagnostic::{SourceIndex, nearest, with_position};
use crate::domain::{HOST_ID_KEYS, check_away_ranges, check_ids, domain};
use crate::explain::{EffectiveSetting, ValueOrigin};
use crate::id_mapping::check_mapped_ids;
use crate::keys::{self, ConfigTable, DOMAINS_MAX};
use crate::merge::{merge_table, shift};
use crate::toml_section::{LoadReport, TomlSection, domain_path, entry, not_a_table};
use crate::{
    AdmissionExceptions, Config, DomainConfig, DomainMode, HostConfig, LogConfig, MetricsConfig,
    PamConfig, PublisherConfig,
};
use roster_messages::table::config as codes;
use roster_messages::{CodedError, Diagnostic, Severity};
use roster_names::equals_folded;
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
        error: CodedError,
    ) -> Diagnostic {
        let setting = self.settings.iter().find(|set| set.table == table && set.key == key);
        let (file, line) = match setting.map(|setting| &setting.origin) {
            Some(ValueOrigin::Line { file, line }) => (file, *line),
            _ => (&self.main, 1),
        };
        with_position(severity, (file.clone(), line, 0), format!("{table}.{key}"), error)
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
    // The main file has the first position, so a missing key is reported there, even if the file does not exist yet.
    let (mut main, others): (Vec<_>, Vec<_>) =
        texts.iter().copied().partition(|(path, _)| *path == files.main);
    if main.is_empty() {
        main.push((&*files.main, ""));
    }
    let added: Vec<_> = main
        .into_iter()
        .chain(others)
        .map(|(path, text)| (path, sources.add(path, text)))
        .collect();
    let mut report = LoadReport::new(sources);
    let mut root = DeTable::new();
    let mut conflicts = Vec::new();
    let mut is_toml = true;
    for &(path, text) in &texts {
        let found = added.iter().find(|(added, _)| *added == path);
        let offset = found.map_or(0, |&(_, offset)| offset);
        let (table, errors) = DeTable::parse_recoverable(text);
        is_toml &= parse_errors(&mut report, text, &errors, offset);
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
        let text = "is a table in one file and a value in another";
        report.error(&place, &name, CodedError::new(&codes::TABLE_CONFLICT, text));
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

/// Reports the syntax errors of a text. Returns whether its table is reliable all the same.
pub(crate) fn parse_errors(
    report: &mut LoadReport<'_>,
    text: &str,
    errors: &[toml::de::Error],
    offset: usize,
) -> bool {
    for error in errors.iter().take(SYNTAX_ERRORS_MAX) {
        let place = shift(&error.span().unwrap_or(0..0), offset);
        report.error(&place, "", syntax_error(text, error));
    }
    errors.iter().all(|error| error.message() == DUPLICATE_KEY)
}

/// Returns the texts of all files with their paths. Checks that they are UTF-8 and within the limit.
fn check_texts(files: &ConfigFiles) -> Result<Vec<(&Path, &str)>, Vec<Diagnostic>> {
    let mut texts = Vec::new();
    let mut problems = Vec::new();
    let mut bytes = 0;
    for file in &files.files {
        bytes += file.bytes.len();
        let diagnostic = |line, column, error| {
            let position = (file.path.clone(), line, column);
            with_position(Severity::Error, position, String::new(), error)
        };
        match std::str::from_utf8(&file.bytes) {
            _ if bytes > TEXT_BYTES_MAX => {
                let which = if texts.is_empty() { "has" } else { "and the files before it have" };
                let text = format!("this file {which} more than {TEXT_BYTES_MAX} bytes");
                let error = CodedError::new(&codes::CONFIG_TOO_LARGE, text);
                problems.push(diagnostic(1, 1, error));
                break;
            }
            Ok(text) => texts.push((&*file.path, text)),
            Err(error) => {
                let (line, column) = locate_non_text(&file.bytes, error.valid_up_to());
                let error = CodedError::new(&codes::CONFIG_NOT_UTF8, "is not text in UTF-8");
                problems.push(diagnostic(line, column, error));
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

/// The parser's message about a duplicate key. The parser has no other mark of the mistake.
const DUPLICATE_KEY: &str = "duplicate key";

/// Quotes that word processors and web pages produce.
const CURLY_QUOTES: [char; 6] =
    ['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}', '\u{201a}'];

/// Returns a fix for common mistakes, otherwise the parser's message.
fn syntax_error(text: &str, error: &toml::de::Error) -> CodedError {
    let message = error.message();
    if message == DUPLICATE_KEY {
        return CodedError::new(&codes::DUPLICATE_KEY, "this key or table is defined twice");
    }
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"/._:-=,%@".contains(&byte);
    match line.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
        Some((key, value)) if value.is_empty() || value.starts_with('#') => {
            CodedError::new(&codes::VALUE_MISSING, format!("{key} lacks a value"))
        }
        Some((key, value)) if value.bytes().all(is_bare) => {
            CodedError::new(&codes::UNQUOTED_STRING, format!("the value of {key} lacks quotes"))
                .fix(format!("Write {key} = \"{value}\"."))
        }
        Some((key, value)) if value.starts_with(CURLY_QUOTES) => {
            CodedError::new(&codes::CURLY_QUOTES, "curly quotes are not valid in TOML")
                .fix(format!("Write {key} = {}.", value.replace(CURLY_QUOTES, "\"")))
        }
        _ => CodedError::new(&codes::INVALID_TOML, format!("is not valid TOML: {message}")),
    }
}

fn read_config(report: &mut LoadReport<'_>, root: &DeTable<'_>) -> Config {
    for (name, _) in root {
        let text = &**name.get_ref();
        if !TABLES.contains(&text) {
            let unknown = CodedError::new(&codes::UNKNOWN_TABLE, "is not a table of roster.toml");
            let error = match nearest(text, TABLES) {
                Some(near) => unknown.fix(format!("Did you mean [{near}]?")),
                None if keys::KEYS.iter().any(|key| key.name == text) => {
                    CodedError::new(&codes::MISPLACED_KEY, "the key is above the first table")
                }
                None => unknown,
            };
            report.error(&name.span(), text, error);
        }
    }
    let (host, names) = host(report, root);
    let domains = domains(report, root, &host, &names);
    warn_slow_precedence(report, root, &domains);
    reject_shared_names(report, root, &domains);

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
            report.error(&place, "responder", not_a_table("responder.pam"));
            &nothing
        }),
    };
    for (key, _) in responders {
        let name = &**key.get_ref();
        if name != "pam" {
            let message = match name {
                "nscd" => &codes::NSCD_RESPONDER,
                _ => &codes::UNKNOWN_RESPONDER,
            };
            let error = CodedError::new(message, "is not a configurable responder");
            report.error(&key.span(), &format!("responder.{name}"), error);
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
        let error = CodedError::new(&codes::DOMAINS_EMPTY, "the list is empty");
        section.error(&keys::HOST_DOMAINS, error);
    }
    if let Some(first) = names.get(DOMAINS_MAX) {
        section.element_error(
            &keys::HOST_DOMAINS,
            |text| text == first,
            CodedError::new(
                &codes::TOO_MANY_DOMAINS,
                format!("the list has {} domains; the limit is {DOMAINS_MAX}", names.len()),
            ),
        );
    }
    let default_domain: Option<String> = section.optional_value(&keys::HOST_DEFAULT_DOMAIN);
    if let Some(domain) = default_domain.as_ref().filter(|domain| !names.contains(domain)) {
        let text = format!("{domain:?} is not in domains");
        let error = CodedError::new(&codes::DEFAULT_DOMAIN_UNKNOWN, text);
        section.error(&keys::HOST_DEFAULT_DOMAIN, error);
    }
    let host = HostConfig {
        default_domain,
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
            CodedError::new(
                &codes::TOO_MANY_LOCAL_GIDS,
                format!("has {below} gids below min_id; the limit is {GIDS_MAX}"),
            ),
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
            report.error(&place, "domain", not_a_table("domain.NAME"));
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
    check_away_ranges(report, tables, &domains);
    check_mapped_ids(report, tables, &mut domains);
    for (key, value) in tables {
        let name = &**key.get_ref();
        if names.iter().any(|used| used == name) {
            continue;
        }
        let path = domain_path(name);
        // `[domain]` with the keys of a domain directly below.
        if !matches!(value.get_ref(), DeValue::Table(_)) {
            let error = CodedError::new(&codes::DOMAIN_WITHOUT_NAME, "is directly below [domain]");
            report.error(&key.span(), &path, error);
            continue;
        }
        // Without any named domain, which was reported before, each table may be meant.
        if names.is_empty() {
            domain(report, host, name, (key.span(), value));
            continue;
        }
        let error = CodedError::new(&codes::DOMAIN_UNUSED, "is not used");
        report.push(Severity::Warning, &key.span(), &path, error);
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
    let fix = match nearest(name, unused) {
        Some(near) => format!("Did you mean \"{near}\"?"),
        None => format!("Add a table [{path}] with its provider."),
    };
    let error =
        CodedError::new(&codes::DOMAIN_TABLE_MISSING, format!("the table [{path}] is missing"));
    let mut section = TomlSection::new(report, ConfigTable::Host, "host", entry(root, "host"));
    section.element_error(&keys::HOST_DOMAINS, |text| text == name, error.fix(fix));
}

/// Rejects a short name that is a name or a short name of another domain: `CORP\\alice` must name one domain.
fn reject_shared_names(report: &mut LoadReport<'_>, root: &DeTable<'_>, domains: &[DomainConfig]) {
    for (position, domain) in domains.iter().enumerate() {
        let short_name = domain.names.short_name.as_bytes();
        let is_shared = |(other, known): &(usize, &DomainConfig)| {
            let names = [known.name.as_bytes(), known.names.short_name.as_bytes()];
            *other != position && names.iter().any(|name| equals_folded(name, short_name))
        };
        let shared = domains.iter().enumerate().find(is_shared).filter(|_| !short_name.is_empty());
        if let Some((_, other)) = shared {
            let text =
                format!("{:?} is a name of the domain {}", domain.names.short_name, other.name);
            let error = CodedError::new(&codes::SHORT_NAME_SHARED, text);
            let table = entry(root, "domain")
                .and_then(|(_, value)| entry(value.get_ref().as_table()?, &domain.name));
            let path = domain_path(&domain.name);
            let mut section = TomlSection::new(report, ConfigTable::Domain, &path, table);
            section.error(&keys::DOMAIN_SHORT_NAME, error);
        }
    }
}

/// Warns of mirrored domains after an on-demand one, because their lookups wait for it.
fn warn_slow_precedence(report: &mut LoadReport<'_>, root: &DeTable<'_>, domains: &[DomainConfig]) {
    let Some(first) = domains.iter().position(|domain| domain.mode == DomainMode::OnDemand) else {
        return;
    };
    let mut section = TomlSection::new(report, ConfigTable::Host, "host", entry(root, "host"));
    for domain in &domains[first + 1..] {
        if domain.mode == DomainMode::Replicate {
            let (name, queried) = (&domain.name, &domains[first].name);
            let text = format!(
                "{name} comes after the on-demand domain {queried}: every lookup queries {queried} first"
            );
            let fix =
                format!("Put {name} before {queried}, unless {queried} has to win name conflicts.");
            section.element_warning(
                &keys::HOST_DOMAINS,
                |text| text == name,
                CodedError::new(&codes::ON_DEMAND_PRECEDENCE, text).fix(fix),
            );
        }
    }
}
