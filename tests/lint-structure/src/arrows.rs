// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check `arrows`: each dependency between crates of the workspace stands in the table of
//! ARCHITECTURE.md, and crosses no border of `planes`.
//!
//! The table has the columns of [`COLUMNS`], and names crates by their directories. Build-dependencies stand with the
//! dependencies.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::planes;
use crate::workspace::{Dependency, Package, Workspace};

/// The file with the table.
pub const ARCHITECTURE: &str = "ARCHITECTURE.md";

const COLUMNS: [&str; 5] = ["plane", "crate", "responsibility", "depends on", "dev-dependencies"];

/// The table of allowed arrows.
#[derive(Default)]
struct Table {
    /// Lines of the crates.
    crates: BTreeMap<String, usize>,
    /// From, to and whether it is a dev-dependency; with the line.
    arrows: BTreeMap<(String, String, bool), usize>,
}

/// The findings on a workspace, and on the text of ARCHITECTURE.md.
pub fn check(workspace: &Workspace, architecture: &str) -> Vec<Finding> {
    let mut findings = borders(workspace);
    match Table::parse(architecture) {
        Ok(table) => {
            findings.extend(missing(workspace, &table));
            findings.extend(stale(workspace, &table));
        }
        Err(finding) => findings.push(*finding),
    }
    findings
}

/// The dependencies of the product that cross a border.
pub fn borders(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        if package.is_product() && planes::group(&package.directory).is_none() {
            findings.push(Finding::new(
                manifest(package),
                1,
                format!("{} is in no plane", package.name),
                "Move it to crates/base, serve, sync, act or measure",
            ));
        }
        for one in package.dependencies.iter().filter(|one| !one.is_dev) {
            if let Some(reason) = planes::border(&package.directory, &one.directory) {
                findings.push(Finding::new(
                    manifest(package),
                    one.line,
                    format!("{} must not name {}: {reason}", package.name, one.name),
                    "Remove the dependency, or move what it needs to a crate that both may name",
                ));
            }
        }
    }
    findings
}

/// The number of dependencies of the product that cross a border between planes.
pub fn up(workspace: &Workspace) -> usize {
    let packages = workspace.packages.iter();
    let arrows = packages.flat_map(|from| from.dependencies.iter().map(move |to| (from, to)));
    let is_up = |from: &Package, to: &Dependency| {
        !to.is_dev && planes::plane_border(&from.directory, &to.directory).is_some()
    };
    arrows.filter(|(from, to)| is_up(from, to)).count()
}

/// Crates and dependencies that the table lacks.
fn missing(workspace: &Workspace, table: &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut names = BTreeSet::new();
    for package in &workspace.packages {
        if !names.insert(&package.name) {
            let message = format!("another crate has the directory name {}", package.name);
            findings.push(Finding::new(manifest(package), 1, message, "Rename one of them"));
        }
        if !table.crates.contains_key(&package.name) {
            let message = format!("the table of {ARCHITECTURE} lacks the crate {}", package.name);
            findings.push(Finding::new(manifest(package), 1, message, "Add a row"));
            continue;
        }
        for one in &package.dependencies {
            if !table.arrows.contains_key(&arrow(package, one)) {
                findings.push(Finding::new(
                    manifest(package),
                    one.line,
                    format!(
                        "{} names {} as a {}, which the table of {ARCHITECTURE} does not allow",
                        package.name,
                        one.name,
                        kind(one.is_dev)
                    ),
                    "Remove the dependency, or add it to the table",
                ));
            }
        }
    }
    findings
}

/// Entries of the table that no Cargo.toml has.
fn stale(workspace: &Workspace, table: &Table) -> Vec<Finding> {
    let crates: BTreeSet<&str> = workspace.packages.iter().map(|one| one.name.as_str()).collect();
    let packages = workspace.packages.iter();
    let arrows: BTreeSet<_> = packages
        .flat_map(|package| package.dependencies.iter().map(|one| arrow(package, one)))
        .collect();
    let mut findings = Vec::new();
    for (name, &line) in &table.crates {
        if !crates.contains(name.as_str()) {
            let message = format!("the workspace has no crate {name}");
            findings.push(Finding::new(ARCHITECTURE, line, message, "Remove the row"));
        }
    }
    for (key, &line) in &table.arrows {
        let (from, to, is_dev) = key;
        if crates.contains(from.as_str()) && !arrows.contains(key) {
            let message = format!("{from} has no {} {to}", kind(*is_dev));
            findings.push(Finding::new(ARCHITECTURE, line, message, "Remove the entry"));
        }
    }
    findings
}

impl Table {
    fn parse(text: &str) -> Result<Self, Box<Finding>> {
        let lines: Vec<&str> = text.lines().collect();
        let is_header = |line: &&str| cells(line).is_some_and(|cells| cells == COLUMNS);
        let found: Vec<usize> = (0..lines.len()).filter(|&at| is_header(&lines[at])).collect();
        let [header] = found[..] else {
            let message = format!(
                "found {} tables with the columns {}, expected 1",
                found.len(),
                COLUMNS.join(", ")
            );
            let fix = "Keep one table of allowed dependencies";
            return Err(Box::new(Finding::new(ARCHITECTURE, 1, message, fix)));
        };
        let mut table = Self::default();
        for (index, line) in lines.iter().enumerate().skip(header + 2) {
            let Some(cells) = cells(line) else { break };
            table.row(index + 1, &cells)?;
        }
        Ok(table)
    }

    fn row(&mut self, line: usize, cells: &[String]) -> Result<(), Box<Finding>> {
        let [_, name, _, dependencies, dev_dependencies] = cells else {
            let message =
                format!("the row has {} columns, expected {}", cells.len(), COLUMNS.len());
            let fix = "Escape or remove the other `|`";
            return Err(Box::new(Finding::new(ARCHITECTURE, line, message, fix)));
        };
        let [name] = &names(name)[..] else {
            let message = "the row does not name one crate".to_owned();
            let fix = "Name the crate by its directory";
            return Err(Box::new(Finding::new(ARCHITECTURE, line, message, fix)));
        };
        self.crates.insert(name.clone(), line);
        for (cell, is_dev) in [(dependencies, false), (dev_dependencies, true)] {
            for to in names(cell) {
                self.arrows.insert((name.clone(), to, is_dev), line);
            }
        }
        Ok(())
    }
}

/// The cells of a line of a table, in lower case.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.trim().to_lowercase()).collect())
}

/// The crates that a cell names, with or without backticks and directory; a dash names none.
fn names(cell: &str) -> Vec<String> {
    let parts = cell.split([',', ' ']).map(|part| part.trim_matches(['`', '/']));
    let names = parts.map(|part| part.rsplit('/').next().unwrap_or_default());
    names.filter(|name| name.contains(char::is_alphanumeric)).map(str::to_owned).collect()
}

fn arrow(package: &Package, dependency: &Dependency) -> (String, String, bool) {
    (package.name.clone(), dependency.name.clone(), dependency.is_dev)
}

fn kind(is_dev: bool) -> &'static str {
    if is_dev { "dev-dependency" } else { "dependency" }
}

fn manifest(package: &Package) -> String {
    format!("{}/Cargo.toml", package.directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    /// The crates of the workspace, in the order in which a crate may name those before it.
    /// The crates of the workspace by plane.
    const CRATES: [(&str, &str); 7] = [
        ("base", "cli-docs fd-passing module-sys passwd-format sandbox secret"),
        ("serve", "nscd nss snapshot snapshot-build wire"),
        (
            "sync",
            "auth-krb5 backend bus config domain-cache krb5-helper pam provider provider-ldap \
             publisher responder role rosterd",
        ),
        ("act", "exec rootwrap"),
        ("measure", "lab"),
        ("roster", "roster"),
        ("tests", "system"),
    ];

    /// A crate of each plane, and a crate of each plane that it must not name.
    const CLOSED: [(&str, &str); 5] = [
        ("secret", "wire bus exec lab roster system"),
        ("wire", "bus exec lab roster system"),
        ("bus", "exec lab roster system"),
        ("exec", "bus lab roster system"),
        ("lab", "wire bus exec roster system"),
    ];

    const CLOSED_IN_SYNC: [(&str, &str); 6] = [
        ("responder", "provider provider-ldap auth-krb5 domain-cache"),
        ("backend", "snapshot snapshot-build"),
        ("provider", "wire"),
        ("provider-ldap", "wire"),
        ("auth-krb5", "wire"),
        ("publisher", "provider-ldap domain-cache"),
    ];

    const OPEN: [(&str, &str); 8] = [
        ("wire", "secret nss"),
        ("bus", "secret wire provider"),
        ("publisher", "provider snapshot-build wire"),
        ("backend", "provider-ldap auth-krb5 domain-cache"),
        ("exec", "secret wire rootwrap"),
        ("lab", "secret"),
        ("roster", "secret wire bus exec lab system"),
        ("system", "secret wire bus exec lab roster"),
    ];

    fn directory(name: &str) -> String {
        let is_plane = |names: &str| names.split_whitespace().any(|one| one == name);
        let (plane, _) = CRATES.iter().find(|(_, names)| is_plane(names)).unwrap();
        match *plane {
            "roster" => "crates/roster".to_owned(),
            "tests" => format!("tests/{name}"),
            _ => format!("crates/{plane}/{name}"),
        }
    }

    /// A workspace of all crates without dependencies.
    fn tree() -> Fixture {
        let fixture = Fixture::new(&[]);
        for name in CRATES.iter().flat_map(|(_, names)| names.split_whitespace()) {
            fixture.write(&format!("{}/src/lib.rs", directory(name)), "");
            fixture.depend(&directory(name), "", &[]);
        }
        fixture
    }

    /// A table of all crates that allows these arrows.
    fn table(arrows: &[(&str, &str)], dev_arrows: &[(&str, &str)]) -> String {
        let cell = |arrows: &[(&str, &str)], from: &str| {
            let to: Vec<String> = arrows
                .iter()
                .filter(|(one, _)| *one == from)
                .map(|(_, to)| format!("`{to}`"))
                .collect();
            if to.is_empty() { "\u{2013}".to_owned() } else { to.join(", ") }
        };
        let mut text =
            "# Map\n\n| Plane | Crate | Responsibility | Depends on | Dev-dependencies |\n\
             |---|---|---|---|---|\n"
                .to_owned();
        for one in CRATES.iter().flat_map(|(_, names)| names.split_whitespace()) {
            let (normal, dev) = (cell(arrows, one), cell(dev_arrows, one));
            text.push_str(&format!("| | `{one}` | | {normal} | {dev} |\n"));
        }
        text + "\nMore.\n"
    }

    /// The findings on a dependency that the table allows.
    fn found(fixture: &Fixture, from: &str, to: &str) -> Vec<String> {
        fixture.depend(&directory(from), "", &[&directory(to)]);
        let findings = check(&fixture.workspace(), &table(&[(from, to)], &[]));
        fixture.depend(&directory(from), "", &[]);
        findings.iter().map(Finding::render).collect()
    }

    fn assert_closed(borders: &[(&str, &str)]) {
        let fixture = tree();
        for (from, closed) in borders {
            for to in closed.split_whitespace() {
                let found = found(&fixture, from, to);
                assert_eq!(found.len(), 1, "{from} to {to}: {found:?}");
                let place = format!("{}/Cargo.toml:5", directory(from));
                let begin = format!("{place}: {from} must not name {to}: ");
                assert!(found[0].starts_with(&begin), "{found:?}");
            }
        }
    }

    #[test]
    fn border_of_each_plane_rejects_dependency() {
        assert_closed(&CLOSED);
    }

    #[test]
    fn border_within_sync_rejects_dependency() {
        assert_closed(&CLOSED_IN_SYNC);
    }

    #[test]
    fn border_open_accepts_dependency() {
        let fixture = tree();
        for (from, open) in OPEN {
            for to in open.split_whitespace() {
                assert!(found(&fixture, from, to).is_empty(), "{from} to {to}");
            }
        }
    }

    #[test]
    fn border_accepts_dev_dependency_of_table() {
        let fixture = tree();
        fixture.depend(&directory("bus"), "dev-", &[&directory("lab")]);
        assert!(check(&fixture.workspace(), &table(&[], &[("bus", "lab")])).is_empty());
    }

    #[test]
    fn crate_in_no_plane_rejects() {
        let fixture = Fixture::new(&[("crates/fleet/src/lib.rs", "")]);
        let found = borders(&fixture.workspace());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].message, "fleet is in no plane");
    }

    #[test]
    fn table_without_arrow_or_crate_rejects() {
        let fixture = tree();
        fixture.depend("crates/serve/nss", "build-", &["crates/base/secret"]);
        fixture.depend("crates/sync/bus", "dev-", &["crates/base/secret"]);
        let workspace = fixture.workspace();
        let allowed = table(&[("nss", "secret")], &[("bus", "secret")]);
        assert!(check(&workspace, &allowed).is_empty());

        // The columns stand for themselves alone.
        let swapped = table(&[("bus", "secret")], &[("nss", "secret")]);
        let found = check(&workspace, &swapped);
        let places: Vec<(&str, usize)> =
            found.iter().map(|one| (one.path.as_str(), one.line)).collect();
        let manifests = [("crates/serve/nss/Cargo.toml", 5), ("crates/sync/bus/Cargo.toml", 5)];
        assert_eq!(places[..2], manifests);
        assert_eq!(places[2..], [(ARCHITECTURE, 18), (ARCHITECTURE, 12)]);

        let shorter = allowed.replace("| | `rosterd` | | \u{2013} | \u{2013} |\n", "");
        let found = check(&workspace, &shorter);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].message, "the table of ARCHITECTURE.md lacks the crate rosterd");
    }

    #[test]
    fn table_with_unknown_crate_rejects() {
        let text = table(&[], &[]).replace("| `lab` |", "| `labs` |");
        let found: Vec<String> =
            check(&tree().workspace(), &text).into_iter().map(|one| one.message).collect();
        let wanted =
            ["the table of ARCHITECTURE.md lacks the crate lab", "the workspace has no crate labs"];
        assert_eq!(found, wanted);
    }

    #[test]
    fn crates_of_one_name_reject() {
        let fixture = tree();
        fixture.write("tests/bus/src/lib.rs", "");
        fixture.depend("tests/bus", "", &[]);
        fixture.write("tests/bus/Cargo.toml", "[package]\nname = \"bus-tests\"\n");
        let found = check(&fixture.workspace(), &table(&[], &[]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].message, "another crate has the directory name bus");
    }

    #[test]
    fn table_missing_or_twice_rejects() {
        let workspace = tree().workspace();
        let table = table(&[], &[]);
        for (text, count) in [("", 0), (&(table.clone() + &table) as &str, 2)] {
            let found = check(&workspace, text);
            assert_eq!(found.len(), 1);
            assert!(found[0].message.starts_with(&format!("found {count} tables ")));
        }
    }
}
