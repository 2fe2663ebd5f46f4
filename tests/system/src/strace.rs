// SPDX-License-Identifier: MIT OR Apache-2.0
//! `strace` on processes that run: faults in their system calls, and a record of the calls.

use crate::servers::ServerProcess;
use crate::test_host::find_tool;
use crate::wait::{SOON, wait_until};
use rustix::process::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// A record is complete when it has not grown for so many checks: a second, in which the backend commits its cache
/// twice.
const QUIET_CHECKS: u32 = 100;
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A tracer. Dropping it sets the traced processes free.
#[derive(Debug)]
pub struct Strace {
    process: ServerProcess,
    record: PathBuf,
}

impl Strace {
    /// Attaches to all threads of `pids`. The record goes to the file `record`.
    ///
    /// # Panics
    /// If strace cannot attach; so do the other functions of this file.
    #[must_use]
    pub fn attach(pids: &[Pid], record: &Path, args: &[&str]) -> Self {
        let _ = fs::remove_file(record);
        let mut command = Command::new(find_tool("strace", "strace"));
        command.args(["-f", "-qq", "-o"]).arg(record).args(args);
        for pid in pids {
            command.args(["-p", &pid.to_string()]);
        }
        let mut process = ServerProcess::start(&mut command, &record.with_extension("errors"));
        let tracer = process.pid();
        wait_until(SOON, "strace has attached", || {
            assert!(process.is_running(), "strace: {}", process.log());
            pids.iter().all(|pid| is_traced(*pid, tracer))
        });
        Self { process, record: record.to_owned() }
    }

    /// The record so far.
    #[must_use]
    pub fn record(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.record).unwrap_or_default()).into_owned()
    }

    /// Whether a fault was injected.
    #[must_use]
    pub fn has_injected(&self) -> bool {
        self.record().contains("(INJECTED)")
    }

    /// Waits until the traced processes make no more of the recorded calls, or a fault was injected.
    pub fn wait_until_quiet(&self) {
        let (mut before, mut looks) = (self.length(), 0);
        while looks < QUIET_CHECKS && !self.has_injected() {
            sleep(CHECK_INTERVAL);
            let now = self.length();
            looks = if now == before { looks + 1 } else { 0 };
            before = now;
        }
    }

    /// Detaches, and returns the record.
    #[must_use]
    pub fn end(mut self) -> String {
        self.process.stop();
        self.record()
    }

    fn length(&self) -> u64 {
        fs::metadata(&self.record).map_or(0, |metadata| metadata.len())
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        self.process.stop();
    }
}

fn is_traced(pid: Pid, tracer: Pid) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let line = format!("TracerPid:\t{tracer}\n");
    tasks.flatten().all(|task| {
        // A thread may have ended since.
        fs::read_to_string(task.path().join("status")).map_or(true, |text| text.contains(&line))
    })
}
