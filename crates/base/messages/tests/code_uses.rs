// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each row of the table is printed by a program, and each code in the sources has a row.
//!
//! `untested.txt` lists the codes that no test names. The list may only shrink: a new code needs a test, or a line with
//! the reason why no test can trigger it.

use roster_messages::all;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("the tree")
}

/// Adds the files below a directory.
fn add_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("the directory can be read") {
        let path = entry.expect("its entries too").path();
        if path.is_dir() {
            add_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// The names of the rows with their codes, out of the sources of the table.
fn names() -> BTreeMap<String, String> {
    let mut files = Vec::new();
    add_files(&root().join("crates/base/messages/src/table"), &mut files);
    let mut names = BTreeMap::new();
    for file in files {
        let area = file.file_stem().expect("a name").to_string_lossy().into_owned();
        for line in fs::read_to_string(&file).expect("text").lines() {
            let row = line.trim().split_once(" = ").filter(|(name, _)| {
                name.bytes()
                    .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
            });
            if let Some((name, rest)) = row {
                names.insert(format!("{area}::{name}"), format!("RST-{}", &rest[..4]));
            }
        }
    }
    names
}

/// The codes that a text names, either by number or by the name of their row.
fn codes_in(text: &str, names: &BTreeMap<String, String>) -> BTreeSet<String> {
    let literals = text.match_indices("RST-").filter_map(|(at, _)| {
        let number = text.get(at + 4..at + 8)?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| format!("RST-{number}"))
    });
    let words: BTreeSet<&str> = text
        .split(|char: char| !(char.is_ascii_alphanumeric() || char == '_'))
        .filter(|word| word.len() > 2 && !word.bytes().any(|byte| byte.is_ascii_lowercase()))
        .collect();
    let areas: BTreeSet<&str> =
        text.split(|char: char| !(char.is_ascii_lowercase() || char == '_')).collect();
    let named = names.iter().filter(|(name, _)| {
        name.split_once("::").is_some_and(|(area, row)| words.contains(row) && areas.contains(area))
    });
    literals.chain(named.map(|(_, code)| code.clone())).collect()
}

/// The codes that programs name, and the codes that tests name.
fn uses() -> (BTreeSet<String>, BTreeSet<String>) {
    let names = names();
    assert_eq!(names.len(), all().count(), "the names can be read from the table");
    let mut files = Vec::new();
    for folder in ["crates", "python", "tests/system"] {
        add_files(&root().join(folder), &mut files);
    }
    let (mut printed, mut tested) = (BTreeSet::new(), BTreeSet::new());
    for file in files {
        let is_table = file.components().any(|part| part.as_os_str() == "messages")
            && !file.ends_with("login_refusal.rs");
        if is_table || !file.extension().is_some_and(|kind| kind == "rs" || kind == "py") {
            continue;
        }
        let Ok(text) = fs::read_to_string(&file) else { continue };
        // Macros of the lab look rows up in its table, which a file then does not name.
        let area =
            if file.components().any(|part| part.as_os_str() == "lab") { "lab " } else { "" };
        let is_test = file.with_extension("").components().any(|part| part.as_os_str() == "tests");
        let start =
            if is_test { 0 } else { text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len()) };
        printed.extend(codes_in(&format!("{area}{}", &text[..start]), &names));
        tested.extend(codes_in(&format!("{area}{}", &text[start..]), &names));
    }
    (printed, tested)
}

fn all_codes() -> BTreeSet<String> {
    all().map(|message| message.code.to_owned()).collect()
}

#[test]
fn table_equals_codes_in_sources() {
    // Tests may make codes up.
    let (printed, _) = uses();
    let unused: Vec<_> = all_codes().difference(&printed).cloned().collect();
    assert!(unused.is_empty(), "rows that no program prints: {unused:?}");
    let unknown: Vec<_> = printed.difference(&all_codes()).cloned().collect();
    assert!(unknown.is_empty(), "codes without a row: {unknown:?}");
}

#[test]
fn untested_codes_are_listed() {
    let (_, tested) = uses();
    let lines = include_str!("untested.txt").lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<(&str, &str)> =
        lines.map(|line| line.split_once(' ').expect("a code and a reason")).collect();
    let listed: BTreeSet<String> = rows.iter().map(|(code, _)| (*code).to_owned()).collect();
    let untested: BTreeSet<_> = all_codes().difference(&tested).cloned().collect();
    let missing: Vec<_> = untested.difference(&listed).collect();
    assert!(missing.is_empty(), "codes without a test: {missing:?}. Name each in a test");
    let stale: Vec<_> = listed.difference(&untested).collect();
    assert!(
        stale.is_empty(),
        "codes with a test, or without a row: {stale:?}. Remove them from untested.txt"
    );
}
