// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lint of the tree's structure. `make lint` runs it.
//!
//! | check | rejects |
//! |---|---|
//! | `arrows` | dependencies between crates that ARCHITECTURE.md does not allow, or that cross a border |
//! | `circles` | files of one crate that name each other in a circle |
//! | `sizes` | functions above 80 lines, structs above 15 fields |
//! | `names` | public types of one name in one plane, functions without an object, long test names |
//!
//! `baseline.toml` beside it lists the findings that the tree still has. `workspace` reads the tree, and
//! `modules` resolves paths for `circles`. The lint sees syntax alone: it expands no macros and infers no
//! types.
//!
//! usage: `roster-lint-structure [OPTIONS] [ROOT]`; `--help` lists the options

mod arrows;
mod baseline;
mod circles;
mod counts;
mod finding;
#[cfg(test)]
mod fixture;
mod items;
mod modules;
mod names;
mod planes;
mod sizes;
mod syntax;
mod workspace;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use baseline::Baseline;
use circles::Scope;
use counts::Counts;
use finding::{Finding, List};
use items::Items;
use names::File;
use workspace::{Package, Source, Workspace};

/// Check the structure of a Cargo workspace: crates, files, sizes and names.
///
/// Exit status: 0 without findings, 1 with findings, 2 on an error.
#[derive(Parser)]
#[command(name = "roster-lint-structure")]
struct Args {
    /// Root of the tree
    #[arg(default_value = ".")]
    root: PathBuf,
    /// Run this check only; may be repeated
    #[arg(long = "check", value_name = "NAME", value_enum)]
    checks: Vec<Check>,
    /// Count in circles the arrows to the files of the modules around a file too; ignores the baseline
    #[arg(long, conflicts_with = "write_baseline")]
    with_ancestors: bool,
    /// Print the counts as JSON instead of the findings
    #[arg(long, conflicts_with_all = ["checks", "write_baseline"])]
    json: bool,
    /// Rewrite the baseline, unless one of its lists would grow
    #[arg(long)]
    write_baseline: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Check {
    Arrows,
    Circles,
    Sizes,
    Names,
}

impl Check {
    /// The lists of the baseline with findings of the check.
    fn lists(self) -> &'static [List] {
        match self {
            Self::Arrows => &[],
            Self::Circles => &[List::Circles],
            Self::Sizes => &[List::Functions, List::Structs],
            Self::Names => &[List::Types, List::FunctionNames, List::TestNames],
        }
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("roster-lint-structure: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether nothing was rejected.
fn run(args: &Args) -> Result<bool, String> {
    let checks = if args.checks.is_empty() { Check::value_variants() } else { &args.checks };
    let scope = if args.with_ancestors { Scope::All } else { Scope::WithoutAncestors };
    let workspace = Workspace::read(&args.root)?;
    let needs_sources = checks.iter().any(|check| *check != Check::Arrows);
    let sources = if needs_sources { read_sources(&workspace)? } else { Vec::new() };
    let files = files(&sources);
    let mut findings = Vec::new();
    for check in checks {
        findings.extend(match check {
            Check::Arrows if args.json => Vec::new(),
            Check::Arrows => arrows::check(&workspace, &read(&workspace, arrows::ARCHITECTURE)?),
            Check::Circles => check_circles(&sources, scope),
            Check::Sizes => check_sizes(&files),
            Check::Names => names::check(&files),
        });
    }
    if args.json {
        let counts = Counts::new(&workspace, &files, &findings);
        println!("{}", serde_json::to_string_pretty(&counts).map_err(|e| e.to_string())?);
        return Ok(true);
    }
    let lists: Vec<List> = checks.iter().flat_map(|check| check.lists()).copied().collect();
    if args.write_baseline {
        return write_baseline(&workspace, &findings, &lists);
    }
    let baseline = if args.with_ancestors { None } else { read_baseline(&workspace)? };
    let rejected = baseline.unwrap_or_default().compare(findings, &lists);
    rejected.iter().for_each(|finding| eprint!("{}", finding.render()));
    Ok(rejected.is_empty())
}

fn check_circles(sources: &[(&Package, Vec<Source>)], scope: Scope) -> Vec<Finding> {
    let product = sources.iter().filter(|(package, _)| package.is_product());
    product.flat_map(|(package, sources)| circles::check(package, sources, scope)).collect()
}

fn check_sizes(files: &[File]) -> Vec<Finding> {
    let findings =
        files.iter().flat_map(|(package, file, items)| sizes::check(package, file, items));
    findings.collect()
}

fn read_sources(workspace: &Workspace) -> Result<Vec<(&Package, Vec<Source>)>, String> {
    let packages = workspace.packages.iter();
    packages.map(|package| Ok((package, package.sources(&workspace.root)?))).collect()
}

/// Each file once, with its package and items.
fn files<'a>(sources: &'a [(&'a Package, Vec<Source>)]) -> Vec<File<'a>> {
    let files = sources.iter().flat_map(|(package, sources)| {
        let own = sources.iter().filter(|source| package.owns(source));
        own.map(|source| (*package, source, Items::of_source(source)))
    });
    files.collect()
}

fn read(workspace: &Workspace, path: &str) -> Result<String, String> {
    std::fs::read_to_string(workspace.root.join(path)).map_err(|e| format!("{path}: {e}"))
}

/// The baseline of the tree; `None` if it has no such file.
fn read_baseline(workspace: &Workspace) -> Result<Option<Baseline>, String> {
    match std::fs::read_to_string(workspace.root.join(baseline::PATH)) {
        Ok(text) => Baseline::parse(&text).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", baseline::PATH)),
    }
}

/// Writes the baseline, unless a list would grow.
fn write_baseline(
    workspace: &Workspace,
    findings: &[Finding],
    lists: &[List],
) -> Result<bool, String> {
    let known = read_baseline(workspace)?;
    let mut baseline = known.unwrap_or_default();
    let sizes: Vec<usize> = lists.iter().map(|list| baseline.size(*list)).collect();
    let is_new = !workspace.root.join(baseline::PATH).exists();
    baseline.replace(findings, lists);
    let mut grows = false;
    for (list, before) in lists.iter().zip(sizes) {
        let (name, after) = (list.name(), baseline.size(*list));
        println!("{name}: {before} before, {after} now");
        if !is_new && after > before {
            eprintln!("{}:1: {name} would grow. Mend the new findings.", baseline::PATH);
            grows = true;
        }
    }
    if !grows {
        let path: &Path = &workspace.root.join(baseline::PATH);
        std::fs::write(path, baseline.render()).map_err(|e| format!("{}: {e}", baseline::PATH))?;
    }
    Ok(!grows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    /// Whether the lint accepts a tree with these options.
    fn accepts(fixture: &Fixture, options: &[&str]) -> bool {
        let root = fixture.root().to_str().unwrap();
        let args = ["lint", root, "--check", "names"].into_iter().chain(options.iter().copied());
        run(&Args::try_parse_from(args).unwrap()).unwrap()
    }

    #[test]
    fn baseline_written_once_only_shrinks() {
        let lib = "crates/sync/one/src/lib.rs";
        let fixture = Fixture::new(&[(lib, "fn ask() {} fn tell() {}")]);
        assert!(!accepts(&fixture, &[]));
        std::fs::create_dir_all(fixture.root().join("tests/lint-structure")).unwrap();
        fixture.depend("tests/lint-structure", "", &[]);
        fixture.write("tests/lint-structure/src/lib.rs", "");
        assert!(accepts(&fixture, &["--write-baseline"]));
        assert!(accepts(&fixture, &[]));

        fixture.write(lib, "fn ask() {}");
        assert!(!accepts(&fixture, &[]), "a stale entry");
        assert!(accepts(&fixture, &["--write-baseline"]));
        assert!(accepts(&fixture, &[]));

        fixture.write(lib, "fn ask() {} fn tell() {}");
        assert!(!accepts(&fixture, &["--write-baseline"]), "a longer list");
        assert!(!accepts(&fixture, &[]));
    }

    #[test]
    fn file_of_two_crates_counts_once() {
        let text = "#[path = \"../../../crates/sync/one/src/lib.rs\"] mod one;";
        let one = ("crates/sync/one/src/lib.rs", "fn ask() {}");
        let fixture = Fixture::new(&[one, ("tests/two/src/lib.rs", text)]);
        let workspace = fixture.workspace();
        let sources = read_sources(&workspace).unwrap();
        let found = names::check(&files(&sources));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, one.0);
    }

    #[test]
    fn unparsable_source_error_names_line() {
        let fixture = Fixture::new(&[("crates/sync/one/src/lib.rs", "\nfn (")]);
        let args = ["lint", fixture.root().to_str().unwrap()];
        let error = run(&Args::try_parse_from(args).unwrap()).unwrap_err();
        assert!(error.starts_with("crates/sync/one/src/lib.rs:2: "), "{error}");
    }
}
