// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster inspect` and `roster verify`: shows the content of a snapshot, and checks all of it. `roster-snapshot-build`
//! counts and verifies; this module formats.

use crate::output::{bytes, count, count_with_noun, lossy, print_error, printable};
use crate::snapshot_file;
use anyhow::Result;
use roster_snapshot::layout::{SnapshotKind, VERSION};
use roster_snapshot::{SectionInfo, Snapshot, SnapshotSummary};
use roster_snapshot_build::inspect::{self, Inspection};
use roster_snapshot_build::verify;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// Prints the counts and sections of a snapshot.
pub fn inspect(path: &Path, json: bool, out: &mut dyn Write) -> Result<()> {
    let bytes = snapshot_file::read(path)?;
    let (kind, opened) = match kind(&bytes) {
        SnapshotKind::Accounts => ("accounts", Snapshot::open(&bytes)),
        SnapshotKind::Shadow => ("shadow", Snapshot::open_shadow(&bytes)),
    };
    let snapshot = opened.map_err(|error| snapshot_file::invalid(path, &error))?;
    let found =
        inspect::inspect(&snapshot).map_err(|error| snapshot_file::invalid(path, &error))?;
    if json {
        writeln!(out, "{:#}", as_json(path, kind, &found))?;
    } else {
        out.write_all(as_text(path, kind, &found).as_bytes())?;
    }
    Ok(())
}

/// Verifies a snapshot. Returns whether it is valid.
pub fn verify(path: &Path, json: bool, out: &mut dyn Write) -> Result<bool> {
    let bytes = snapshot_file::read(path)?;
    let result = verify::verify(&bytes, kind(&bytes));
    let result = result.map_err(|error| snapshot_file::invalid(path, &error));
    match (&result, json) {
        (Ok(shape), true) => {
            let report = json!({"file": lossy(path), "ok": true, "generation": shape.generation});
            writeln!(out, "{report:#}")?;
        }
        (Err(error), true) => {
            let report = json!({
                "file": lossy(path),
                "ok": false,
                "error": error.text,
                "code": error.message.code,
            });
            writeln!(out, "{report:#}")?;
        }
        (Ok(shape), false) => {
            let generation = shape.generation;
            writeln!(out, "{}: valid, generation {generation}, {}", path.display(), holds(shape))?;
        }
        (Err(error), false) => print_error(error),
    }
    Ok(result.is_ok())
}

/// Returns the kind of a snapshot. Any other file counts as accounts, and then fails the checks.
fn kind(bytes: &[u8]) -> SnapshotKind {
    snapshot_file::kind(bytes).unwrap_or(SnapshotKind::Accounts)
}

fn holds(shape: &SnapshotSummary) -> String {
    match (shape.users, shape.groups, shape.shadows) {
        (0, 0, shadows @ 1..) => count_with_noun(shadows.into(), "shadow entry"),
        (users, groups, _) => {
            format!(
                "{}, {}",
                count_with_noun(users.into(), "user"),
                count_with_noun(groups.into(), "group")
            )
        }
    }
}

fn as_text(path: &Path, kind: &str, found: &Inspection<'_>) -> String {
    let shape = &found.shape;
    let mut text = format!(
        "{}: {kind}, format version {VERSION}, generation {}, {}\n\n",
        path.display(),
        shape.generation,
        bytes(shape.file_bytes)
    );
    let mut row = |name: &str, value: &str| text += &format!("{name:<18}{value}\n");
    if kind == "shadow" {
        row("shadow entries", &count(shape.shadows.into()));
    } else {
        row("users", &count(shape.users.into()));
        row("groups", &count(shape.groups.into()));
        row("memberships", &count(shape.memberships));
        row("names", &count(shape.names.into()));
        if shape.min_id > 0 {
            row("least id", &shape.min_id.to_string());
        }
        row("distinct shells", &count(found.distinct_shells));
        let superlative = |found: &Option<(Vec<u8>, u64)>, what| match found {
            Some((name, size)) => {
                format!(
                    "{}, {}",
                    printable(&String::from_utf8_lossy(name)),
                    count_with_noun(*size, what)
                )
            }
            None => "none".to_owned(),
        };
        row("largest group", &superlative(&found.largest_group, "member"));
        row("most groups", &superlative(&found.most_groups, "group"));
        row("buffer, getpw", &bytes(found.user_buffer_bytes));
        row("buffer, getgr", &bytes(found.group_buffer_bytes));
    }
    if !found.domains.is_empty() {
        text += &format!("\n{:<18}{:>12}{:>14}\n", "domain", "users", "groups");
    }
    for domain in &found.domains {
        let name = printable(&String::from_utf8_lossy(domain.name));
        let [users, groups] =
            [&domain.users, &domain.groups].map(|range| count(range.len() as u64));
        text += &format!("{name:<18}{users:>12}{groups:>14}\n");
    }
    text += &format!("\n{:<18}{:>12}{:>14}{:>14}\n", "section", "offset", "records", "size");
    for section in &found.sections {
        let SectionInfo { id, offset, count: records, .. } = section;
        let name = section_name(&format!("{id:?}"), " ");
        let (records, size) = (count(*records), bytes(section.bytes));
        text += &format!("{name:<18}{:>12}{records:>14}{size:>14}\n", count(*offset));
    }
    text
}

fn as_json(path: &Path, kind: &str, found: &Inspection<'_>) -> Value {
    let shape = &found.shape;
    let superlative = |found: &Option<(Vec<u8>, u64)>| {
        found
            .as_ref()
            .map(|(name, size)| json!({"name": String::from_utf8_lossy(name), "size": size}))
    };
    let sections: Vec<Value> = found
        .sections
        .iter()
        .map(|section| {
            json!({
                "name": section_name(&format!("{:?}", section.id), "_"),
                "offset": section.offset,
                "bytes": section.bytes,
                "records": section.count,
                "record_bytes": section.record_bytes,
            })
        })
        .collect();
    let domains: Vec<Value> = found
        .domains
        .iter()
        .map(|domain| {
            let name = String::from_utf8_lossy(domain.name);
            json!({"name": name, "users": domain.users.len(), "groups": domain.groups.len()})
        })
        .collect();
    json!({
        "file": lossy(path),
        "kind": kind,
        "version": VERSION,
        "domains": domains,
        "distinct_shells": found.distinct_shells,
        "generation": shape.generation,
        "bytes": shape.file_bytes,
        "min_id": shape.min_id,
        "users": shape.users,
        "groups": shape.groups,
        "names": shape.names,
        "memberships": shape.memberships,
        "shadows": shape.shadows,
        "largest_group": superlative(&found.largest_group),
        "most_groups": superlative(&found.most_groups),
        "getpw_buffer_bytes": found.user_buffer_bytes,
        "getgr_buffer_bytes": found.group_buffer_bytes,
        "sections": sections,
    })
}

/// Formats `ByUserName` as `by user name`.
fn section_name(variant: &str, separator: &str) -> String {
    let mut name = String::new();
    for (at, letter) in variant.chars().enumerate() {
        if letter.is_ascii_uppercase() && at > 0 {
            name += separator;
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_readable_names() {
        assert_eq!(section_name("ByUserName", " "), "by user name");
        assert_eq!(section_name("Users", "_"), "users");
    }
}
