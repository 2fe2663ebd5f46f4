// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of `--json`: the structure of a tree, to compare it with another.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use syn::spanned::Spanned;

use crate::arrows;
use crate::finding::{Finding, List};
use crate::names::File;
use crate::sizes::{self, Sized};
use crate::syntax;
use crate::workspace::{Source, Workspace};

/// The figures of a tree. Tests and dev-dependencies count in the last two only.
#[derive(Serialize)]
pub struct Counts {
    pub crates: usize,
    pub code_lines: usize,
    pub largest_crate: Largest,
    pub longest_function: Largest,
    pub largest_struct: Largest,
    pub functions_too_long: usize,
    pub structs_too_large: usize,
    pub circles: usize,
    pub files_in_circles: usize,
    pub largest_circle: usize,
    pub arrows: usize,
    /// To a later plane, or to a forbidden one.
    pub arrows_up: usize,
    /// The same, and those across a border within a plane.
    pub arrows_across_borders: usize,
    /// Names of several public types, by plane.
    pub duplicate_types: BTreeMap<String, usize>,
    pub functions_without_object: usize,
    pub test_names_too_long: usize,
}

/// The largest thing of a kind: its size in lines, or fields.
#[derive(Default, Serialize)]
pub struct Largest {
    pub name: String,
    pub place: String,
    pub size: usize,
}

impl Counts {
    /// The figures of a workspace with these files and findings, without a baseline.
    pub fn new(workspace: &Workspace, files: &[File], findings: &[Finding]) -> Self {
        let of_list =
            |list: List| findings.iter().filter(move |finding| finding.list == Some(list));
        let circles: Vec<usize> =
            of_list(List::Circles).map(|circle| circle.key.split(' ').count()).collect();
        let functions = files
            .iter()
            .flat_map(|(package, source, items)| sizes::functions(package, source, items));
        let structs = files
            .iter()
            .flat_map(|(package, source, items)| sizes::structs(package, source, items));
        let lines = code_lines(files);
        let product = workspace.packages.iter().filter(|package| package.is_product());
        Self {
            crates: product.clone().count(),
            code_lines: lines.values().sum(),
            largest_crate: largest_crate(&lines),
            longest_function: largest(functions),
            largest_struct: largest(structs),
            functions_too_long: of_list(List::Functions).count(),
            structs_too_large: of_list(List::Structs).count(),
            circles: circles.len(),
            files_in_circles: circles.iter().sum(),
            largest_circle: circles.iter().copied().max().unwrap_or(0),
            arrows: product
                .flat_map(|package| &package.dependencies)
                .filter(|dependency| !dependency.is_dev)
                .count(),
            arrows_up: arrows::up(workspace),
            arrows_across_borders: arrows::borders(workspace).len(),
            duplicate_types: duplicate_types(of_list(List::Types)),
            functions_without_object: of_list(List::FunctionNames).count(),
            test_names_too_long: of_list(List::TestNames).count(),
        }
    }
}

fn duplicate_types<'a>(findings: impl Iterator<Item = &'a Finding>) -> BTreeMap<String, usize> {
    let names: BTreeSet<&str> = findings.map(|finding| finding.key.as_str()).collect();
    let mut counts = BTreeMap::new();
    for (plane, _) in names.into_iter().filter_map(|key| key.split_once(": ")) {
        *counts.entry(plane.to_owned()).or_default() += 1;
    }
    counts
}

fn largest(sized: impl Iterator<Item = Sized>) -> Largest {
    let found = sized.max_by_key(|one| one.size);
    found.map_or_else(Largest::default, |one| Largest {
        name: one.name,
        place: format!("{}:{}", one.path, one.line),
        size: one.size,
    })
}

fn largest_crate(lines: &BTreeMap<&str, usize>) -> Largest {
    let found = lines.iter().max_by_key(|(_, lines)| **lines);
    found.map_or_else(Largest::default, |(directory, lines)| Largest {
        name: directory.rsplit('/').next().unwrap_or_default().to_owned(),
        place: (*directory).to_owned(),
        size: *lines,
    })
}

/// Lines with code by the directory of the crate. Comments, docs and items for tests are left out.
fn code_lines<'a>(files: &'a [File]) -> BTreeMap<&'a str, usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (package, source, _) in files {
        if package.is_product() && !source.is_test {
            *counts.entry(&package.directory).or_default() += code_lines_of(source);
        }
    }
    counts
}

fn code_lines_of(source: &Source) -> usize {
    let items = source.file.items.iter();
    let tests = items.filter(|item| syntax::is_for_tests(syntax::attributes(item)));
    let tests: Vec<_> =
        tests.map(|item| item.span().start().line..=item.span().end().line).collect();
    let is_code = |(index, line): &(usize, &str)| {
        let line = line.trim();
        !line.is_empty()
            && !line.starts_with("//")
            && !tests.iter().any(|lines| lines.contains(&(index + 1)))
    };
    source.text.lines().enumerate().filter(is_code).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use crate::items::Items;

    #[test]
    fn code_lines_without_docs_and_tests() {
        let text = "//! Doc.\n\n// Comment.\n/// Doc.\n#[inline]\npub fn f() {\n    // Comment.\n    \
                    g(\"a\nb\");\n}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        let fixture = Fixture::new(&[("crates/sync/one/src/lib.rs", text)]);
        let workspace = fixture.workspace();
        let package = &workspace.packages[0];
        let sources = package.sources(&workspace.root).unwrap();
        let files = [(package, &sources[0], Items::of_source(&sources[0]))];
        let counts = Counts::new(&workspace, &files, &[]);
        assert_eq!((counts.code_lines, counts.largest_crate.size), (5, 5));
        assert_eq!(counts.longest_function.name, "one::f");
        assert_eq!(counts.longest_function.size, 5);
    }
}
