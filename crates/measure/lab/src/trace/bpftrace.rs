//! The process of bpftrace: what it writes, line by line, with a deadline; and its end.

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Lines that wait to be read; beyond, bpftrace waits, and says what it loses by that.
const LINES_MAX: usize = 65_536;
/// Of what it complains about.
const ERRORS_MAX: u64 = 64 << 10;
/// Pages for each processor in which the kernel keeps events until bpftrace takes them.
const PAGES: &str = "1024";
/// Told to end, it has this long: for each probe the kernel waits until no processor uses it, seconds on a busy machine.
const END_WITHIN: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// What it says whether anything is wrong or not.
const HARMLESS_MESSAGE: &str = "couldn't set RLIMIT_MEMLOCK";

/// What came next.
#[derive(Debug, PartialEq, Eq)]
pub enum OutputLine {
    Line(String),
    /// Nothing in time.
    Timeout,
    /// Its end.
    Closed,
}

/// The process, which does not outlive this.
#[derive(Debug)]
pub struct Bpftrace {
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

impl Bpftrace {
    /// Starts it. Ctrl-C at the terminal is not meant for it.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new("bpftrace");
        command.args(arguments).env("BPFTRACE_PERF_RB_PAGES", PAGES).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow!(
                "there is no bpftrace, which looks at the probes: install the package bpftrace \
                 (apt install bpftrace, dnf install bpftrace)"
            ),
            _ => anyhow!(error).context("cannot start bpftrace"),
        })?;
        let (sender, lines) = sync_channel(LINES_MAX);
        let written = child.stdout.take().context("bpftrace has no output")?;
        thread::spawn(move || {
            let lines = BufReader::new(written).split(b'\n').map_while(Result::ok);
            let mut lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
            lines.try_for_each(|line| sender.send(line))
        });
        let complaints = child.stderr.take().context("bpftrace has no errors")?;
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            let mut complaints = complaints.take(ERRORS_MAX);
            let _ = complaints.read_to_end(&mut text);
            let _ = std::io::copy(&mut complaints.into_inner(), &mut std::io::sink());
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Self { child, lines, errors: Some(errors) })
    }

    /// The next line, if one comes until then.
    pub fn next(&self, until: Instant) -> OutputLine {
        match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => OutputLine::Line(line),
            Err(RecvTimeoutError::Timeout) => OutputLine::Timeout,
            Err(RecvTimeoutError::Disconnected) => OutputLine::Closed,
        }
    }

    /// It is to write what it still has, and end.
    pub fn interrupt(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
    }

    /// How it ended, and what it complained about.
    pub fn end(mut self) -> Result<(ExitStatus, Vec<String>)> {
        let deadline = Instant::now() + END_WITHIN;
        let status = loop {
            if let Some(status) = self.child.try_wait().context("cannot wait for bpftrace")? {
                break status;
            }
            if Instant::now() >= deadline {
                self.child.kill().context("cannot end bpftrace")?;
                break self.child.wait().context("cannot wait for bpftrace")?;
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
