// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that calls the module's functions directly and stays alive between publications. It observes status and
//! errno, which glibc hides, and changes that only a long-lived process sees.

use crate::artifacts::{c_program, library_dir};
use crate::test_host::find_tool;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The user of [`command_with_snapshot`] if the tests run as root.
const READER_UID: u32 = 12_321;

/// A program that reads the snapshot at `snapshot`, named by the environment. Programs of root ignore the variable, so
/// root's tests run the program as another user with root's right to read. The tree may lie in a directory that no
/// other user can enter.
#[must_use]
pub fn command_with_snapshot<S: AsRef<OsStr>>(program: S, snapshot: &Path) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new(find_tool("setpriv", "util-linux"));
        let id = [format!("--reuid={READER_UID}"), format!("--regid={READER_UID}")];
        command.args(id).args(["--clear-groups", "--inh-caps=+dac_read_search"]);
        command.arg("--ambient-caps=+dac_read_search").arg(program);
        command
    } else {
        Command::new(program)
    };
    command.env("LD_LIBRARY_PATH", library_dir()).env("ROSTER_SNAPSHOT", snapshot);
    command
}

/// The helper `nss_caller.c`, ready for commands.
pub struct NssCaller {
    child: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl NssCaller {
    /// A process that reads the snapshot at `snapshot`, named by the environment.
    ///
    /// # Panics
    /// If it cannot be started; so does [`NssCaller::send_command`].
    #[must_use]
    pub fn with_snapshot(snapshot: &Path) -> Self {
        Self::start(command_with_snapshot(c_program("nss_caller"), snapshot).arg("roster"))
    }

    /// The process of a prepared command.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("start {}: {e}", command.get_program().display()));
        let commands = child.stdin.take().expect("standard input was piped");
        let answers = BufReader::new(child.stdout.take().expect("standard output was piped"));
        Self { child, commands, replies: answers }
    }

    /// One command, and the line it answers; a helper that died answers "died: " and how.
    ///
    /// # Panics
    /// If the helper cannot be waited for.
    pub fn send_command(&mut self, command: &str) -> String {
        // A dead helper shows as an empty answer.
        let _ = self.commands.write_all(format!("{command}\n").as_bytes());
        self.read_line()
    }

    /// The next line that the helper prints.
    ///
    /// # Panics
    /// If the helper cannot be waited for.
    pub fn read_line(&mut self) -> String {
        let mut answer = Vec::new();
        let _ = self.replies.read_until(b'\n', &mut answer);
        if answer.pop() != Some(b'\n') {
            return format!("died: {}", self.child.wait().expect("wait for the helper"));
        }
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for NssCaller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
