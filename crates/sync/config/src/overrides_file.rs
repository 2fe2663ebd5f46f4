// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file `overrides_file` of a domain: ownership, text and mistakes. `overrides` reads its tables.

use crate::config_files::TEXT_BYTES_MAX;
use crate::diagnostic::{SourceIndex, with_position};
use crate::load::{ParsedConfig, parse_errors};
use crate::overrides::{LocalOverrides, OverrideReader, OverridesConfig};
use crate::ownership::check_opened_file;
use crate::toml_section::{LoadReport, bare_or_quoted, domain_path};
use crate::{DomainConfig, NameConfig};
use roster_messages::table::config as codes;
use roster_messages::{CodedError, Diagnostic, Severity};
use rustix::fs::OFlags;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
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
    let failed = |error: io::Error| {
        let text = format!("the file cannot be read: {error}");
        whole(CodedError::new(&codes::OVERRIDES_FILE_UNREADABLE, text))
    };
    let (file, metadata) = open_regular(path).map_err(failed)?;
    check_opened_file(path, &metadata).map_err(whole)?;
    let bytes = read_bytes(file).map_err(failed)?;
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

/// Opens a regular file without a wait for the writer of a pipe.
fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok((file, metadata)),
        false => Err(io::Error::other("the path is not a regular file")),
    }
}

fn read_bytes(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
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
    /// Returns the mistakes in overrides and their files that depend on other keys or on files. rosterd uses the
    /// configuration in spite of them, and serves the last valid overrides.
    #[must_use]
    pub fn check_overrides(&self) -> Vec<Diagnostic> {
        let problems = |domain: &DomainConfig| match read_overrides_file(
            &domain.name,
            &domain.names,
            &domain.local_overrides,
        ) {
            Ok(overrides) => self.check_rule_names(domain, &overrides),
            Err(problems) => {
                let refused = |problem| Diagnostic { severity: Severity::Refusal, ..problem };
                problems.into_iter().map(refused).collect()
            }
        };
        self.config.domains.iter().flat_map(problems).collect()
    }

    /// Reports names in access rules that an override replaces. Such a name allows no login.
    fn check_rule_names(
        &self,
        domain: &DomainConfig,
        overrides: &LocalOverrides,
    ) -> Vec<Diagnostic> {
        let access = format!("{}.access", domain_path(&domain.name));
        let services = domain.access.services.iter().map(|(service, lists)| {
            (format!("{access}.service.{}", bare_or_quoted(service)), lists)
        });
        let replaced = |is_user| overrides.replaced_names(&domain.names, is_user);
        let (users, groups) = (replaced(true), replaced(false));
        let tables = std::iter::once((access.clone(), &domain.access.lists)).chain(services);
        let mut problems = Vec::new();
        for (table, lists) in tables {
            for (key, replaced, names) in [
                ("allowed_users", &users, &lists.allowed_users),
                ("allowed_groups", &groups, &lists.allowed_groups),
                ("denied_users", &users, &lists.denied_users),
                ("denied_groups", &groups, &lists.denied_groups),
            ] {
                for name in names.iter().flatten() {
                    // Lists of rules have the same form as keys of overrides.
                    let Some(given) = replaced.get(&**name) else { continue };
                    let text = format!("an override gives the entry {name:?} the name {given:?}");
                    let error = CodedError::new(&codes::HIDDEN_NAME_IN_RULE, text);
                    let place = (&*table, key);
                    problems.push(self.value_diagnostic(Severity::Warning, place, error));
                }
            }
        }
        problems
    }
}
