// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small trees for the tests of this lint.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use tempfile::TempDir;

use crate::workspace::{Package, Source, Workspace};

/// A workspace in a temporary directory, and its members.
pub struct Fixture {
    directory: TempDir,
    members: RefCell<BTreeSet<String>>,
}

impl Fixture {
    /// A workspace with these files. A directory with a `src/lib.rs` is a crate.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let fixture = Self { directory: tempfile::tempdir().unwrap(), members: RefCell::default() };
        for (path, text) in files {
            fixture.write(path, text);
            if let Some(directory) = path.strip_suffix("/src/lib.rs") {
                fixture.depend(directory, "", &[]);
            }
        }
        fixture
    }

    /// Writes the Cargo.toml of a member: the directories of its dependencies, or `dev-` or `build-`.
    pub fn depend(&self, directory: &str, kind: &str, dependencies: &[&str]) {
        let name = |directory: &str| format!("roster-{}", directory.rsplit('/').next().unwrap());
        let up = "../".repeat(directory.split('/').count());
        let list = |one: &&str| format!("{} = {{ path = \"{up}{one}\" }}\n", name(one));
        let list: String = dependencies.iter().map(list).collect();
        let name = name(directory);
        let text = format!("[package]\nname = \"{name}\"\n\n[{kind}dependencies]\n{list}");
        self.write(&format!("{directory}/Cargo.toml"), &text);
        self.members.borrow_mut().insert(directory.to_owned());
        let members: Vec<String> = self.members.borrow().iter().cloned().collect();
        let text = format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n");
        self.write("Cargo.toml", &text);
    }

    /// Writes a file.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The root of the tree.
    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    /// The tree as the lint reads it.
    pub fn workspace(&self) -> Workspace {
        Workspace::read(self.root()).unwrap()
    }
}

/// Calls `check` with the package of a tree of one crate, and its sources. Paths begin in the crate.
pub fn one_crate<T>(files: &[(&str, &str)], check: impl FnOnce(&Package, &[Source]) -> T) -> T {
    let fixture = Fixture::new(&[]);
    for (path, text) in files {
        fixture.write(&format!("crates/sync/one/{path}"), text);
    }
    fixture.depend("crates/sync/one", "", &[]);
    let workspace = fixture.workspace();
    let sources = workspace.packages[0].sources(&workspace.root).unwrap();
    check(&workspace.packages[0], &sources)
}
