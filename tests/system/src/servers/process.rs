//! A server process: its own pid, its log, and the signals that a test sends it.

use crate::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that is asked to end has this long.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// A child that stays until it is stopped or dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command that stays in the foreground; what it says goes to the file `log`.
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

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("look after the child").is_none()
    }

    /// Its exit code, if it has ended by itself.
    pub fn code(&mut self) -> Option<i32> {
        self.child.try_wait().expect("look after the child")?.code()
    }

    /// What it said so far.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Asks it to end and waits for that.
    pub fn stop(&mut self) {
        if self.runs() {
            self.signal(Signal::TERM);
            wait_until(STOP_WITHIN, "the server has ended", || !self.runs());
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGSTOP: its connections stay, nothing answers.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
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

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
