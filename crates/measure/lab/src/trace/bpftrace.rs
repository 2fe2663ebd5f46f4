// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bpftrace process: its output line by line with a deadline, and its end. `bpftrace_script` has its script.

use crate::coded::{Coded, coded};
use anyhow::Result;
use roster_messages::table::lab;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum number of unread lines. Above it bpftrace blocks, and counts the events that it loses.
const LINES_MAX: usize = 65_536;
/// Maximum number of bytes of its standard error.
const ERRORS_MAX: u64 = 64 << 10;
/// Pages of the kernel's event buffer for each processor.
const PAGES: &str = "1024";
/// Timeout of its end. For each probe the kernel waits for all processors, which takes seconds on a busy machine.
const END_WITHIN: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Message of bpftrace without consequences.
const HARMLESS_MESSAGE: &str = "couldn't set RLIMIT_MEMLOCK";

/// Results of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum OutputLine {
    Line(String),
    /// No line arrived in time.
    Timeout,
    /// The output ended.
    Closed,
}

/// The process, killed on drop.
#[derive(Debug)]
pub struct Bpftrace {
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

impl Bpftrace {
    /// Starts bpftrace in its own process group, so that Ctrl-C at the terminal does not end it.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new("bpftrace");
        command.args(arguments).env("BPFTRACE_PERF_RB_PAGES", PAGES).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (failed, text) = (&lab::BPFTRACE_FAILED, "bpftrace: cannot start");
        let mut child = match command.spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(coded(&lab::BPFTRACE_MISSING, "bpftrace: not in PATH"));
            }
            child => child.coded(failed, text)?,
        };
        let (sender, lines) = sync_channel(LINES_MAX);
        let written = child.stdout.take().coded(failed, text)?;
        thread::spawn(move || {
            let lines = BufReader::new(written).split(b'\n').map_while(Result::ok);
            let mut lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
            lines.try_for_each(|line| sender.send(line))
        });
        let complaints = child.stderr.take().coded(failed, text)?;
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            let mut complaints = complaints.take(ERRORS_MAX);
            let _ = complaints.read_to_end(&mut text);
            let _ = std::io::copy(&mut complaints.into_inner(), &mut std::io::sink());
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Self { child, lines, errors: Some(errors) })
    }

    /// Waits for the next line until a deadline.
    pub fn next(&self, until: Instant) -> OutputLine {
        match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => OutputLine::Line(line),
            Err(RecvTimeoutError::Timeout) => OutputLine::Timeout,
            Err(RecvTimeoutError::Disconnected) => OutputLine::Closed,
        }
    }

    /// Makes bpftrace write its buffered events and end.
    pub fn interrupt(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
    }

    /// Waits for its end. Returns the exit status, and the lines of its standard error.
    pub fn end(mut self) -> Result<(ExitStatus, Vec<String>)> {
        let (failed, text) = (&lab::BPFTRACE_FAILED, "bpftrace: cannot wait for its end");
        let deadline = Instant::now() + END_WITHIN;
        let status = loop {
            if let Some(status) = self.child.try_wait().coded(failed, text)? {
                break status;
            }
            if Instant::now() >= deadline {
                self.child.kill().coded(failed, "bpftrace: cannot be ended")?;
                break self.child.wait().coded(failed, text)?;
            }
            thread::sleep(POLL_INTERVAL);
        };
        let said = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        let lines = said.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.contains(HARMLESS_MESSAGE));
        Ok((status, lines.map(str::to_owned).collect()))
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
