// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server process: its own pid, its log, and the signals that a test sends it.

use crate::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The time in which a process has to end on request.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// A child that stays until it is stopped or dropped.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts a command that stays in the foreground; its output goes to the file `log`.
    ///
    /// # Panics
    /// If it cannot be started; so do the other functions when a signal cannot be sent.
    #[must_use]
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("open the log");
        let errors = file.try_clone().expect("the same file for errors");
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|e| panic!("start {}: {e}", command.get_program().display()));
        Self { child, log: log.to_owned() }
    }

    /// The process's process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether the process runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("look after the child").is_none()
    }

    /// The process's exit code, if it has ended.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().expect("look after the child")?.code()
    }

    /// The process's output so far.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Terminates it and waits for its end.
    pub fn stop(&mut self) {
        if self.is_running() {
            self.signal(Signal::TERM);
            wait_until(STOP_WITHIN, "the server has ended", || !self.is_running());
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGSTOP: its connections stay, nothing answers. Returns once every thread has stopped.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        wait_until(STOP_WITHIN, "the server has stopped", || self.is_frozen());
    }

    fn is_frozen(&self) -> bool {
        let threads = format!("/proc/{}/task", self.pid().as_raw_nonzero());
        let threads = fs::read_dir(threads).expect("list the threads of an own child");
        threads.flatten().all(|thread| {
            // The state follows the name in parentheses. An ended thread has no state.
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Any other signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("send a signal to an own child");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
