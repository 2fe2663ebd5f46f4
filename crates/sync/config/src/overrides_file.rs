// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file `overrides_file` of a domain: ownership, text and mistakes. `overrides` reads its tables.

use crate::config_files::TEXT_BYTES_MAX;
use crate::diagnostic::{SourceIndex, with_position};
use crate::domain::domain_path;
use crate::load::{ParsedConfig, parse_errors};
use crate::overrides::{LocalOverrides, OverrideReader, OverridesConfig};
use crate::ownership::check_ownership;
use crate::toml_section::LoadReport;
use crate::{DomainConfig, NameConfig};
use roster_messages::table::config as codes;
use roster_messages::{CodedError, Diagnostic, Severity};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use toml::de::DeTable;

/// Reads the file with overrides of a domain. Returns all overrides, with those of the configuration.
///
/// # Errors
/// All mistakes, by line, or the reason why the file cannot be read.
pub fn read_overrides_file(
    domain: &str,
    names: &NameConfig,
    overrides: &OverridesConfig,
) -> Result<LocalOverrides, Vec<Diagnostic>> {
    let Some(path) = &overrides.file else { return Ok(overrides.entries.clone()) };
    let whole =
        |error| vec![with_position(Severity::Error, (path.clone(), 0, 0), String::new(), error)];
    check_ownership(path).map_err(whole)?;
    let bytes = read_bytes(path).map_err(|error| {
        let text = format!("the file cannot be read: {error}");
        whole(CodedError::new(&codes::OVERRIDES_FILE_UNREADABLE, text))
    })?;
    if bytes.len() > TEXT_BYTES_MAX {
        let text = format!("this file has more than {TEXT_BYTES_MAX} bytes");
        return Err(whole(CodedError::new(&codes::CONFIG_TOO_LARGE, text)));
    }
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| whole(CodedError::new(&codes::CONFIG_NOT_UTF8, "is not text in UTF-8")))?;
    let found = parse_overrides(path, text, (domain, names), &overrides.entries)?;
    overrides.check_ids(&found).map_err(whole)?;
    Ok(found)
}

/// Reads a regular file. Another type of file, such as a pipe, might block.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("the path is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Parses the text of a file with overrides, of the domain with this name and these names of entries.
fn parse_overrides(
    path: &Path,
    text: &str,
    (domain, names): (&str, &NameConfig),
    configured: &LocalOverrides,
) -> Result<LocalOverrides, Vec<Diagnostic>> {
    let mut sources = SourceIndex::default();
    sources.add(path, text);
    let mut report = LoadReport::new(sources);
    let (table, errors) = DeTable::parse_recoverable(text);
    let has_table = parse_errors(&mut report, text, &errors, 0);
    let mut found = configured.clone();
    if has_table {
        let elsewhere = format!("{}.override", domain_path(domain));
        let mut reader = OverrideReader::new(&mut report, names, configured, &elsewhere);
        reader.read_tables(table.get_ref(), "");
        found = reader.found;
    }
    let mut problems = report.problems;
    problems.sort_by_key(|problem| (problem.line, problem.column));
    let is_valid = problems.iter().all(|problem| problem.severity < Severity::Error);
    if is_valid { Ok(found) } else { Err(problems) }
}

impl ParsedConfig {
    /// Returns the mistakes in the files with overrides. rosterd uses the configuration in spite of them, and serves the
    /// last valid overrides.
    #[must_use]
    pub fn check_overrides_files(&self) -> Vec<Diagnostic> {
        let problems = |domain: &DomainConfig| {
            read_overrides_file(&domain.name, &domain.names, &domain.local_overrides).err()
        };
        let found = self.config.domains.iter().filter_map(problems).flatten();
        found.map(|problem| Diagnostic { severity: Severity::Refusal, ..problem }).collect()
    }
}
