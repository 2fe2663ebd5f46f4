// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the built program in a temporary directory. The tests check its output.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A temporary directory in which the program runs.
pub struct Bench {
    folder: tempfile::TempDir,
}

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Bench {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns the names in the directory, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Runs `roster` with the words of a text as arguments.
    pub fn roster(&self, words: &str) -> Run {
        self.roster_with(&words.split_whitespace().collect::<Vec<_>>())
    }

    pub fn roster_with(&self, arguments: &[impl AsRef<OsStr>]) -> Run {
        Run::from_command(self.command().args(arguments))
    }

    /// Returns the program, prepared to run in the directory.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roster"));
        command.current_dir(self.folder()).env_remove("ROSTER_SNAPSHOT");
        command
    }
}

impl Run {
    pub fn from_command(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }
}
