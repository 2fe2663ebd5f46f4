// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check `names`: no two public types of one name in one plane, no function with a verb alone as its
//! name, no test name above eight words.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::{Finding, List};
use crate::items::{Function, Items};
use crate::planes;
use crate::workspace::{Package, Source};

/// Names that do not describe their object.
const BANNED: [&str; 6] = ["of", "take", "tell", "hear", "told", "ask"];

const TEST_WORDS_MAX: usize = 8;

/// A file with its package and its items.
pub type File<'a> = (&'a Package, &'a Source, Items);

/// The findings on all files of a workspace.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = types(files);
    let traits: BTreeSet<&str> = files
        .iter()
        .flat_map(|(.., items)| &items.types)
        .filter(|one| one.is_trait)
        .map(|one| one.name.as_str())
        .collect();
    for (_, source, items) in files {
        for function in &items.functions {
            findings.extend(banned(source, function, &traits));
            findings.extend(long(source, function));
        }
    }
    findings
}

fn types(files: &[File]) -> Vec<Finding> {
    let mut known: BTreeMap<(&str, &str), Vec<(&str, usize)>> = BTreeMap::new();
    for (package, source, items) in files {
        let Some(plane) = planes::group(&package.directory) else { continue };
        for one in items.types.iter().filter(|one| one.is_public && !one.is_in_tests) {
            known.entry((plane, &one.name)).or_default().push((&source.path, one.line));
        }
    }
    let mut findings = Vec::new();
    for ((plane, name), places) in known {
        let (first, first_line) = places[0];
        findings.extend(places[1..].iter().map(|&(path, line)| {
            let message =
                format!("plane {plane} has another public {name} at {first}:{first_line}");
            Finding::new(path, line, message, "Use one type, or name each by its purpose")
                .listed(List::Types, format!("{plane}: {name}"))
        }));
    }
    findings
}

/// Foreign traits dictate the names of their functions.
fn banned(source: &Source, function: &Function, traits: &BTreeSet<&str>) -> Option<Finding> {
    let is_foreign =
        function.implemented.as_ref().is_some_and(|name| !traits.contains(name.as_str()));
    (BANNED.contains(&function.name.as_str()) && !is_foreign).then(|| {
        let message = format!("function {} has a name without an object", function.qualified);
        Finding::new(&source.path, function.line, message, "Add the object to the name")
            .listed(List::FunctionNames, function.qualified.clone())
    })
}

fn long(source: &Source, function: &Function) -> Option<Finding> {
    let words = function.name.split('_').filter(|word| !word.is_empty()).count();
    (function.is_test && words > TEST_WORDS_MAX).then(|| {
        let name = &function.name;
        let message =
            format!("test {name} has {words} words, {TEST_WORDS_MAX} at most are allowed");
        Finding::new(&source.path, function.line, message, "Name it area_condition_result")
            .listed(List::TestNames, name.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    /// The findings on a tree, as `FILE:LINE: ENTRY`.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let workspace = Fixture::new(files);
        let (workspace, _tree) = (workspace.workspace(), workspace);
        let read = |package: &Package| package.sources(&workspace.root).unwrap();
        let sources: Vec<_> = workspace.packages.iter().map(|one| (one, read(one))).collect();
        let files = sources.iter().flat_map(|(package, sources)| {
            sources.iter().map(|source| (*package, source, Items::of_source(source)))
        });
        let found = check(&files.collect::<Vec<_>>());
        found.iter().map(|one| format!("{}:{}: {}", one.path, one.line, one.key)).collect()
    }

    const SYNC: &str = "crates/sync/one/src/lib.rs";

    #[test]
    fn types_of_one_name_in_plane_found() {
        let files = [
            (SYNC, "pub struct Answer; mod inner {\npub enum Answer {} }"),
            ("crates/sync/two/src/lib.rs", "pub trait Answer {} pub struct Other;"),
            ("crates/serve/three/src/lib.rs", "pub struct Other;"),
            ("crates/roster/src/lib.rs", "pub struct Other;"),
        ];
        let wanted = [
            "crates/sync/one/src/lib.rs:2: sync: Answer",
            "crates/sync/two/src/lib.rs:1: sync: Answer",
        ];
        assert_eq!(found(&files), wanted);
    }

    #[test]
    fn types_private_or_for_tests_accepted() {
        let text = "pub struct Answer; mod inner { struct Answer; pub(crate) type Answer = u8; } \
                    #[cfg(test)] pub mod tests { pub struct Answer; }";
        assert!(found(&[(SYNC, text)]).is_empty());
    }

    #[test]
    fn functions_without_object_found() {
        let text = "trait Own { fn ask(); }\nimpl Own for A { fn ask() {} }\n\
                    impl Foreign for A { fn take() {} fn tell_user() {} }\n\
                    mod inner { fn told() {} }\nfn of() {}";
        let wanted = ["1: Own::ask", "2: A::ask", "4: inner::told", "5: one::of"];
        assert_eq!(found(&[(SYNC, text)]), wanted.map(|one| format!("{SYNC}:{one}")));
    }

    #[test]
    fn tests_above_eight_words_found() {
        let text = "#[test] fn a_b_c_d_e_f_g_h() {}\n#[tokio::test] async fn a_b_c_d_e_f_g_h_i() {}\n\
                    fn a_b_c_d_e_f_g_h_i_j() {}";
        let files = [(SYNC, ""), ("crates/sync/one/tests/it.rs", text)];
        assert_eq!(found(&files), ["crates/sync/one/tests/it.rs:2: a_b_c_d_e_f_g_h_i"]);
    }
}
