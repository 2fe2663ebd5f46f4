// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests of the package `python/` with the real daemon, under the supported versions of Python.

mod pythons;

use pythons::{bounded, minor, needs_root, python, pythons, run};
use std::path::Path;
use std::thread;

/// The oldest minor version of its pyproject.toml.
const OLDEST: usize = 9;

/// Runs some tests by pytest, or all.
fn pytest(interpreter: &Path, tests: &[&str]) {
    let pytest = python().ancestors().nth(3).unwrap().join("pytest");
    assert!(pytest.exists(), "{} is missing: run scripts/need test", pytest.display());
    let mut command = bounded(interpreter);
    command.args(["-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]).args(tests);
    command.env("PYTHONPATH", &pytest);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../python"));
    command.env("ROSTER_ROOTWRAP_DAEMON", env!("CARGO_BIN_EXE_roster-rootwrap-daemon"));
    let told = run(&mut command);
    assert!(told.contains(" passed"), "{}: {told}", interpreter.display());
}

#[test]
fn the_packages_own_tests_pass_under_every_python() {
    if !needs_root() {
        return;
    }
    thread::scope(|scope| {
        for python in pythons().into_iter().filter(|python| minor(python) >= OLDEST) {
            scope.spawn(move || pytest(&python, &[]));
        }
    });
}

#[test]
fn the_client_serves_green_threads() {
    if needs_root() {
        pytest(&python(), &["tests/eventlet_smoke.py"]);
    }
}
