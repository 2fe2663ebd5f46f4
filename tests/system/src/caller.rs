//! A process that calls the module's functions directly and stays alive between publications: sees
//! status and errno, which glibc hides, and what a long-lived process sees.

use crate::artifacts::{c_program, library_folder};
use crate::host::tool;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The user of [`reading`] where the tests run as root.
const READER: u32 = 12_321;

/// A program that reads the snapshot at `snapshot`, named by the environment. Programs of root's ignore it, so
/// root's tests run the program as another user, who may read as root may: the tree may lie where no other user
/// can go.
#[must_use]
pub fn reading<S: AsRef<OsStr>>(program: S, snapshot: &Path) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new(tool("setpriv", "util-linux"));
        let id = [format!("--reuid={READER}"), format!("--regid={READER}")];
        command.args(id).args(["--clear-groups", "--inh-caps=+dac_read_search"]);
        command.arg("--ambient-caps=+dac_read_search").arg(program);
        command
    } else {
        Command::new(program)
    };
    command.env("LD_LIBRARY_PATH", library_folder()).env("ROSTER_SNAPSHOT", snapshot);
    command
}

/// The helper `caller.c`, ready for commands.
pub struct Caller {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Caller {
    /// A process that reads the snapshot at `snapshot`, named by the environment.
    ///
    /// # Panics
    /// If it cannot be started; so does [`Caller::say`].
    #[must_use]
    pub fn reading(snapshot: &Path) -> Self {
        Self::start(reading(c_program("caller"), snapshot).arg("roster"))
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
        Self { child, commands, answers }
    }

    /// One command, and the line it answers; a helper that died answers "died: " and how.
    ///
    /// # Panics
    /// If the helper cannot be waited for.
    pub fn say(&mut self, command: &str) -> String {
        // A dead helper shows as an empty answer.
        let _ = self.commands.write_all(format!("{command}\n").as_bytes());
        self.hear()
    }

    /// The next line that the helper prints.
    ///
    /// # Panics
    /// If the helper cannot be waited for.
    pub fn hear(&mut self) -> String {
        let mut answer = Vec::new();
        let _ = self.answers.read_until(b'\n', &mut answer);
        if answer.pop() != Some(b'\n') {
            return format!("died: {}", self.child.wait().expect("wait for the helper"));
        }
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
