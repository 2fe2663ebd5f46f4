//! The package `python/` with the real daemon: its own tests, under every Python that it is for.

mod pythons;

use pythons::{bounded, minor, needs_root, python, pythons, run};
use std::path::Path;
use std::thread;

/// The oldest 3.x of its pyproject.toml.
const OLDEST: usize = 9;

#[test]
fn the_packages_own_tests_pass_under_every_python() {
    if !needs_root() {
        return;
    }
    let pytest = python().ancestors().nth(3).unwrap().join("pytest");
    assert!(pytest.exists(), "{} is missing: run scripts/need test", pytest.display());
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    thread::scope(|scope| {
        for python in pythons().into_iter().filter(|python| minor(python) >= OLDEST) {
            let (pytest, package) = (pytest.clone(), package.clone());
            scope.spawn(move || {
                let mut command = bounded(&python);
                command.args(["-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]);
                command.env("PYTHONPATH", &pytest).current_dir(&package);
                command.env("ROSTER_ROOTWRAP_DAEMON", env!("CARGO_BIN_EXE_roster-rootwrap-daemon"));
                let told = run(&mut command);
                assert!(told.contains(" passed"), "{}: {told}", python.display());
            });
        }
    });
}
