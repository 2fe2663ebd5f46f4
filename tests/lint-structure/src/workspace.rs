// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a workspace: the packages and dependencies that `cargo metadata` reports, and the sources of
//! each package. Judges nothing.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::syntax;

/// Target kinds of `cargo metadata` with test code only.
const TEST_TARGETS: [&str; 3] = ["bench", "example", "test"];

/// A workspace and its packages, sorted by directory.
pub struct Workspace {
    pub root: PathBuf,
    pub packages: Vec<Package>,
}

/// A package of the workspace.
pub struct Package {
    /// The name of its directory: the name of the crate in this lint's tables.
    pub name: String,
    /// The package's directory, from the root.
    pub directory: String,
    /// Dependencies on packages of the workspace.
    pub dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

/// A dependency on a package of the workspace.
pub struct Dependency {
    /// Directory name of the package that is named.
    pub name: String,
    /// The dependency's directory, from the root.
    pub directory: String,
    pub is_dev: bool,
    /// Line in Cargo.toml.
    pub line: usize,
}

/// A source file of a package.
pub struct Source {
    /// From the root.
    pub path: String,
    pub text: String,
    pub file: syn::File,
    /// Only tests reach the file.
    pub is_test: bool,
    /// The file is the root of a library or program.
    pub is_root: bool,
    /// Modules in separate files, by the names of the inline modules around them and their own name.
    pub modules: BTreeMap<Vec<String>, usize>,
}

struct Target {
    path: PathBuf,
    is_test: bool,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct MetadataPackage {
    manifest_path: PathBuf,
    dependencies: Vec<MetadataDependency>,
    targets: Vec<MetadataTarget>,
}

#[derive(Deserialize)]
struct MetadataDependency {
    name: String,
    kind: Option<String>,
    rename: Option<String>,
    path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct MetadataTarget {
    kind: Vec<String>,
    src_path: PathBuf,
}

impl Workspace {
    /// Runs `cargo metadata` in `root`. Needs no network and no Cargo.lock.
    pub fn read(root: &Path) -> Result<Self, String> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]);
        let done = cargo.current_dir(root).output().map_err(|e| format!("cargo metadata: {e}"))?;
        if !done.status.success() {
            return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&done.stderr)));
        }
        let metadata: Metadata =
            serde_json::from_slice(&done.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
        let root = metadata.workspace_root;
        let mut packages = Vec::new();
        for package in metadata.packages {
            packages.push(Package::new(&root, package)?);
        }
        packages.sort_by(|a, b| a.directory.cmp(&b.directory));
        Ok(Self { root, packages })
    }
}

impl Package {
    fn new(root: &Path, metadata: MetadataPackage) -> Result<Self, String> {
        let manifest = &metadata.manifest_path;
        let text = std::fs::read_to_string(manifest)
            .map_err(|e| format!("{}: {e}", manifest.display()))?;
        let directory = manifest.parent().unwrap_or(root);
        let dependencies = metadata.dependencies.into_iter().filter_map(|one| {
            let path = one.path?;
            let key = one.rename.unwrap_or(one.name);
            let is_dev = one.kind.as_deref() == Some("dev");
            Some(Dependency {
                name: directory_name(&path),
                directory: relative(root, &path),
                is_dev,
                line: line_of(&text, &key, is_dev),
            })
        });
        let targets = metadata.targets.into_iter().map(|target| Target {
            path: target.src_path,
            is_test: target.kind.iter().any(|kind| TEST_TARGETS.contains(&kind.as_str())),
        });
        Ok(Self {
            name: directory_name(directory),
            directory: relative(root, directory),
            dependencies: dependencies.collect(),
            targets: targets.collect(),
        })
    }

    /// Whether this is a crate of the product, and does not test or measure the tree.
    pub fn is_product(&self) -> bool {
        self.directory.starts_with("crates/")
    }

    /// Whether a source lies in the package. Others are judged with the package that they lie in.
    pub fn owns(&self, source: &Source) -> bool {
        Path::new(&source.path).starts_with(&self.directory)
    }

    /// Parses the files that the package's targets reach by `mod`. Files of the product come first:
    /// a file that tests reach as well stays one of them.
    pub fn sources(&self, root: &Path) -> Result<Vec<Source>, String> {
        let mut loader = Loader { root, sources: Vec::new(), known: BTreeMap::new() };
        let is_test = !self.is_product();
        let mut deferred = Vec::new();
        for target in self.targets.iter().filter(|target| !target.is_test) {
            loader.load(&target.path, Place { is_root: true, is_test }, &mut deferred)?;
        }
        let place = Place { is_root: true, is_test: true };
        for target in self.targets.iter().filter(|target| target.is_test) {
            loader.load(&target.path, place, &mut Vec::new())?;
        }
        for Deferred { parent, name, path } in deferred {
            let place = Place { is_root: false, is_test: true };
            let child = loader.load(&path, place, &mut Vec::new())?;
            loader.sources[parent].modules.insert(name, child);
        }
        Ok(loader.sources)
    }
}

#[derive(Clone, Copy)]
struct Place {
    is_root: bool,
    is_test: bool,
}

/// A module for tests in a separate file.
struct Deferred {
    parent: usize,
    name: Vec<String>,
    path: PathBuf,
}

struct Loader<'a> {
    root: &'a Path,
    sources: Vec<Source>,
    known: BTreeMap<PathBuf, usize>,
}

impl Loader<'_> {
    fn load(
        &mut self,
        path: &Path,
        place: Place,
        deferred: &mut Vec<Deferred>,
    ) -> Result<usize, String> {
        if let Some(&known) = self.known.get(path) {
            return Ok(known);
        }
        let name = relative(self.root, path);
        let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
        let file =
            syn::parse_file(&text).map_err(|e| format!("{name}:{}: {e}", e.span().start().line))?;
        let mut declared = Vec::new();
        declarations(&file.items, &mut Vec::new(), place.is_test, &mut declared);
        let index = self.sources.len();
        self.known.insert(path.to_owned(), index);
        let Place { is_root, is_test } = place;
        let modules = BTreeMap::new();
        self.sources.push(Source { path: name, text, file, is_test, is_root, modules });
        for Declaration { name, is_test, attribute } in declared {
            let path = module_file(path, is_root, &name, attribute.as_deref())?;
            if is_test && !place.is_test {
                deferred.push(Deferred { parent: index, name, path });
                continue;
            }
            let child = self.load(&path, Place { is_root: false, is_test }, deferred)?;
            self.sources[index].modules.insert(name, child);
        }
        Ok(index)
    }
}

/// `mod name;`
struct Declaration {
    name: Vec<String>,
    is_test: bool,
    /// The value of `#[path]`.
    attribute: Option<String>,
}

fn declarations(
    items: &[syn::Item],
    around: &mut Vec<String>,
    is_test: bool,
    found: &mut Vec<Declaration>,
) {
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        let is_test = is_test || syntax::is_for_tests(&module.attrs);
        around.push(module.ident.to_string());
        match &module.content {
            Some((_, items)) => declarations(items, around, is_test, found),
            None => found.push(Declaration {
                name: around.clone(),
                is_test,
                attribute: syntax::path_attribute(&module.attrs),
            }),
        }
        around.pop();
    }
}

/// The file of a module that `parent` declares.
fn module_file(
    parent: &Path,
    is_root: bool,
    name: &[String],
    attribute: Option<&str>,
) -> Result<PathBuf, String> {
    let directory = parent.parent().unwrap_or(Path::new(""));
    if let Some(attribute) = attribute {
        return Ok(without_parents(&directory.join(attribute)));
    }
    let is_mod = parent.file_name().is_some_and(|file| file == "mod.rs");
    let mut path = if is_root || is_mod { directory.to_owned() } else { parent.with_extension("") };
    path.extend(name);
    let candidates = [path.with_extension("rs"), path.join("mod.rs")];
    let found = candidates.into_iter().find(|file| file.is_file());
    found.ok_or_else(|| format!("{}: module {} has no file", parent.display(), name.join("::")))
}

/// A path without `..`, so that a file has one name.
fn without_parents(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(found.pop()),
            other => found.push(other),
        }
    }
    found
}

fn directory_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

/// The line of a Cargo.toml that declares a dependency; 1 if it is not found.
fn line_of(manifest: &str, key: &str, is_dev: bool) -> usize {
    let mut in_section = false;
    for (index, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            let is_dependencies = line.contains("dependencies");
            in_section = is_dependencies && line.contains("dev-dependencies") == is_dev;
        }
        let rest = line.strip_prefix(key).unwrap_or_default();
        if in_section && rest.starts_with(['.', ' ', '=']) {
            return index + 1;
        }
    }
    1
}
