// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the tree and picks out the test code: whole files, or the `#[cfg(test)]` items and `#[test]`
//! functions of a file. Judges nothing; `clocks` does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Item, Meta};

/// The test code of one file.
pub struct Source {
    /// From the root of the tree.
    pub path: String,
    pub items: Vec<Item>,
}

impl Source {
    /// The package that the file belongs to, such as `crates/base/secret` or `tests/system`.
    pub fn package(&self) -> &str {
        let ends = ["/src/", "/tests/"].into_iter().filter_map(|part| self.path.find(part));
        &self.path[..ends.min().unwrap_or(self.path.len())]
    }
}

/// The test code of all `.rs` files below `roots`.
pub fn read_tree(root: &Path, roots: &[&str]) -> Result<Vec<Source>, String> {
    let mut files = Vec::new();
    for directory in roots {
        list(&root.join(directory), &mut files)?;
    }
    files.sort();
    let mut parsed = BTreeMap::new();
    for file in files {
        let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        // The tests of this lint are made of findings.
        if path.starts_with("tests/lint-clocks/") {
            continue;
        }
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{path}: {e}"))?;
        let tree =
            syn::parse_file(&text).map_err(|e| format!("{path}:{}: {e}", e.span().start().line))?;
        parsed.insert(path, tree);
    }
    Ok(pick(parsed))
}

fn list(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    if !directory.exists() {
        return Ok(());
    }
    let told = |e: std::io::Error| format!("{}: {e}", directory.display());
    for entry in std::fs::read_dir(directory).map_err(told)? {
        let path = entry.map_err(told)?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The test code of parsed files by path.
pub fn pick(mut parsed: BTreeMap<String, syn::File>) -> Vec<Source> {
    let mut whole: BTreeSet<String> =
        parsed.keys().filter(|path| is_test_file(path)).cloned().collect();
    // Modules that a file declares for tests only are test code in whole, with their own modules.
    let mut queue = Vec::new();
    for (path, tree) in &parsed {
        let all = whole.contains(path);
        for name in declared_modules(&tree.items, all) {
            queue.push((path.clone(), name));
        }
    }
    while let Some((parent, name)) = queue.pop() {
        for path in module_paths(&parent, &name) {
            if let Some(tree) = parsed.get(&path)
                && whole.insert(path.clone())
            {
                let names = declared_modules(&tree.items, true);
                queue.extend(names.into_iter().map(|name| (path.clone(), name)));
            }
        }
    }
    let mut sources = Vec::new();
    while let Some((path, tree)) = parsed.pop_first() {
        let all = whole.contains(&path);
        let items: Vec<Item> =
            if all { tree.items } else { tree.items.into_iter().filter(is_test_item).collect() };
        if !items.is_empty() {
            sources.push(Source { path, items });
        }
    }
    sources
}

/// Integration tests, and the harness and tests of `tests/`.
fn is_test_file(path: &str) -> bool {
    let package_part = path.split('/').find(|part| ["src", "tests"].contains(part));
    path.starts_with("tests/") || package_part == Some("tests")
}

/// Names of modules in separate files: all of them, or those for tests only.
fn declared_modules(items: &[Item], all: bool) -> Vec<String> {
    let modules = items.iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() => Some(module),
        _ => None,
    });
    let wanted = modules.filter(|module| all || is_for_tests(&module.attrs));
    wanted.map(|module| module.ident.to_string()).collect()
}

/// Possible paths of a module that the file `parent` declares.
fn module_paths(parent: &str, name: &str) -> [String; 2] {
    let (directory, file) = parent.rsplit_once('/').unwrap_or(("", parent));
    let stem = file.trim_end_matches(".rs");
    let base = match stem {
        "mod" | "lib" | "main" => directory.to_owned(),
        _ => format!("{directory}/{stem}"),
    };
    [format!("{base}/{name}.rs"), format!("{base}/{name}/mod.rs")]
}

fn is_test_item(item: &Item) -> bool {
    match item {
        Item::Const(item) => is_for_tests(&item.attrs),
        Item::Fn(item) => is_for_tests(&item.attrs),
        Item::Impl(item) => is_for_tests(&item.attrs),
        Item::Mod(item) => is_for_tests(&item.attrs),
        _ => false,
    }
}

/// `#[test]`, `#[tokio::test]`, or a `#[cfg]` that names `test`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.segments.last().is_some_and(|last| last.ident == "test") {
            return true;
        }
        path.is_ident("cfg")
            && matches!(&attribute.meta, Meta::List(list) if names_test(list.tokens.clone()))
    })
}

/// Whether a `cfg` predicate names `test` outside of `not(…)`.
fn names_test(predicate: TokenStream) -> bool {
    let mut negated = false;
    for token in predicate {
        let found = match &token {
            TokenTree::Ident(name) => name == "test",
            TokenTree::Group(group) => !negated && names_test(group.stream()),
            _ => false,
        };
        if found {
            return true;
        }
        negated = matches!(token, TokenTree::Ident(name) if name == "not");
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions of the test code of these files, as `FILE: FUNCTION`.
    fn picked(files: &[(&str, &str)]) -> Vec<String> {
        let parse = |text: &str| syn::parse_file(text).expect("Rust");
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), parse(text)));
        let mut names = Vec::new();
        for source in pick(files.collect()) {
            functions(&source.items, &mut |name| names.push(format!("{}: {name}", source.path)));
        }
        names
    }

    fn functions(items: &[Item], note: &mut impl FnMut(String)) {
        for item in items {
            match item {
                Item::Fn(item) => note(item.sig.ident.to_string()),
                Item::Mod(item) => {
                    item.content.iter().for_each(|(_, items)| functions(items, note));
                }
                _ => {}
            }
        }
    }

    #[test]
    fn source_integration_tests_count_whole() {
        for path in
            ["crates/one/tests/it.rs", "crates/one/tests/common/mod.rs", "tests/system/src/a.rs"]
        {
            assert_eq!(picked(&[(path, "fn a() {}")]), [format!("{path}: a")]);
        }
        assert_eq!(picked(&[("crates/one/src/lib.rs", "fn a() {}")]), Vec::<String>::new());
    }

    #[test]
    fn source_unit_tests_count_by_attribute() {
        let text = "fn a() {} #[cfg(test)] mod tests { fn b() {} } #[test] fn c() {} \
                    #[tokio::test] async fn d() {} #[cfg(all(test, unix))] fn e() {} \
                    #[cfg(not(test))] fn f() {}";
        let found = picked(&[("crates/one/src/lib.rs", text)]);
        assert_eq!(
            found,
            ["b", "c", "d", "e"].map(|name| format!("crates/one/src/lib.rs: {name}"))
        );
    }

    #[test]
    fn source_modules_for_tests_count_whole() {
        let found = picked(&[
            ("crates/one/src/lib.rs", "#[cfg(test)] mod tests; mod other;"),
            ("crates/one/src/tests.rs", "mod deep; fn a() {}"),
            ("crates/one/src/tests/deep.rs", "fn b() {}"),
            ("crates/one/src/other.rs", "fn c() {}"),
            ("crates/one/src/two/mod.rs", "#[cfg(test)] mod more;"),
            ("crates/one/src/two/more/mod.rs", "fn d() {}"),
        ]);
        let wanted = ["tests.rs: a", "tests/deep.rs: b", "two/more/mod.rs: d"];
        assert_eq!(found, wanted.map(|name| format!("crates/one/src/{name}")));
    }
}
