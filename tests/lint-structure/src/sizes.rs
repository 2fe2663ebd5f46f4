// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check `sizes`: no function above 80 lines, no struct above 15 named fields. Tests and parsed
//! configuration are left out.

use crate::finding::{Finding, List};
use crate::items::Items;
use crate::workspace::{Package, Source};

/// From `fn` to the closing brace.
const FUNCTION_LINES_MAX: usize = 80;

const STRUCT_FIELDS_MAX: usize = 15;

/// The crate with structs of parsed configuration.
const CONFIGURATION: &str = "config";

/// A function or struct, with its size.
pub struct Sized {
    pub name: String,
    pub path: String,
    pub line: usize,
    pub size: usize,
}

/// The findings on a file.
pub fn check(package: &Package, source: &Source, items: &Items) -> Vec<Finding> {
    let functions = functions(package, source, items).into_iter();
    let functions = functions
        .filter(|one| one.size > FUNCTION_LINES_MAX)
        .map(|one| finding(one, List::Functions, "function", "lines", FUNCTION_LINES_MAX));
    let structs = structs(package, source, items).into_iter();
    let structs = structs
        .filter(|one| one.size > STRUCT_FIELDS_MAX)
        .map(|one| finding(one, List::Structs, "struct", "fields", STRUCT_FIELDS_MAX));
    functions.chain(structs).collect()
}

fn finding(one: Sized, list: List, kind: &str, unit: &str, max: usize) -> Finding {
    let Sized { name, path, line, size } = one;
    let message = format!("{kind} {name} has {size} {unit}, {max} at most are allowed");
    Finding::new(path, line, message, "Split it by responsibility").listed(list, name)
}

/// The functions of the product.
pub fn functions(package: &Package, source: &Source, items: &Items) -> Vec<Sized> {
    let functions = items.functions.iter().filter(|one| package.is_product() && !one.is_in_tests);
    let sized = functions.map(|one| Sized {
        name: one.qualified.clone(),
        path: source.path.clone(),
        line: one.line,
        size: one.lines,
    });
    sized.collect()
}

/// The structs of the product outside of parsed configuration.
pub fn structs(package: &Package, source: &Source, items: &Items) -> Vec<Sized> {
    let counts = package.is_product() && package.name != CONFIGURATION;
    let structs = items.types.iter().filter(|one| counts && !one.is_in_tests && !one.is_parsed);
    let sized = structs.map(|one| Sized {
        name: one.name.clone(),
        path: source.path.clone(),
        line: one.line,
        size: one.fields,
    });
    sized.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn found(text: &str) -> Vec<(usize, String)> {
        fixture::one_crate(&[("src/lib.rs", text)], |package, sources| {
            let found = check(package, &sources[0], &Items::of_source(&sources[0]));
            found.into_iter().map(|one| (one.line, one.key)).collect()
        })
    }

    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    // Why.\n".repeat(lines - 2))
    }

    fn fields(count: usize) -> String {
        (0..count).map(|index| format!("f{index}: u8, ")).collect()
    }

    #[test]
    fn function_above_80_lines_found() {
        let text = format!("struct A;\n/// Doc.\nimpl A {{\n{}}}", function("long", 81));
        assert_eq!(found(&text), [(4, "A::long".to_owned())]);
        assert_eq!(found(&function("short", 80)), []);
        let tests = format!("#[cfg(test)] mod tests {{ {} }}", function("long", 81));
        assert_eq!(found(&tests), []);
    }

    #[test]
    fn struct_above_15_fields_found() {
        let text = |before: &str, count| format!("{before} struct A {{ {} }}", fields(count));
        assert_eq!(found(&text("", 16)), [(1, "A".to_owned())]);
        assert_eq!(found(&text("", 15)), []);
        for derive in ["clap::Args", "Debug, Parser", "serde::Deserialize"] {
            assert_eq!(found(&text(&format!("#[derive({derive})]"), 16)), []);
        }
        assert_eq!(found(&text("#[derive(Serialize)]", 16)), [(1, "A".to_owned())]);
    }
}
