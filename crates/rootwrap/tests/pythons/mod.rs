//! The Pythons of this machine, and programs that are run by them.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program that is ended where it would take for ever.
pub fn bounded(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300"]).arg(program);
    command
}

/// Runs it to its good end; what it wrote.
pub fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// A file beside the tests.
pub fn own(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file)
}

/// A Python that can import the original.
pub fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("ROSTER_OSLO_ROOTWRAP") {
        return python.into();
    }
    let binary = std::env::current_exe().unwrap();
    let target = binary.ancestors().nth(3).unwrap();
    let python = target.join("tools/oslo-rootwrap/bin/python");
    assert!(python.exists(), "{} is missing: run scripts/need test", python.display());
    python
}

/// Every Python that is here, by whatever way; the one of the tests at least.
pub fn pythons() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::env::var_os("PYENV_ROOT").map(|root| PathBuf::from(root).join("versions"));
    let versions = versions.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
    let versions = versions.flatten().map(|version| version.path().join("bin"));
    let folders = std::env::split_paths(&path).filter(|folder| !folder.ends_with("shims"));
    let of_folder =
        |folder: PathBuf| (6..=14).map(move |minor| folder.join(format!("python3.{minor}")));
    let found = folders.chain(versions).flat_map(of_folder).filter(|python| python.exists());
    std::iter::once(python()).chain(found).collect()
}

/// The second part of a Python's version.
pub fn minor(python: &Path) -> usize {
    let script = "import sys; print(sys.version_info[1])";
    run(bounded(python).args(["-c", script])).trim().parse().unwrap()
}

/// Whether this is root. Without, a test fails unless `ROSTER_SKIP_ROOT_TESTS=1` leaves it out.
pub fn needs_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let skip = std::env::var_os("ROSTER_SKIP_ROOT_TESTS").is_some_and(|value| value == "1");
    assert!(is_root || skip, "this test needs root; run as root, or set ROSTER_SKIP_ROOT_TESTS=1");
    is_root
}
