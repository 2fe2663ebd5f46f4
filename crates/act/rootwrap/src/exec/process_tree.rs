// SPDX-License-Identifier: MIT OR Apache-2.0
//! All processes of a command without a cgroup, by their parents in /proc. The first process adopts orphans of its
//! descendants, so no process leaves the tree while the first one exists. `cgroup` is the reliable way.

use super::signal;
use crate::evaluate::{KillRequest, ProcessIdentity};
use crate::host_facts::process_stat;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Limit of the search for processes that start during the kill.
const SEARCH_TIME: Duration = Duration::from_secs(1);
const SEARCH_PAUSE: Duration = Duration::from_millis(2);

/// Kills all descendants of a process, and stops the process itself. The caller has not waited for it, so its number
/// stays reserved.
pub fn kill_descendants(first: Pid) {
    let _ = kill_process(first, Signal::STOP);
    let until = Instant::now() + SEARCH_TIME;
    loop {
        let found = descendants(i64::from(first.as_raw_nonzero().get()));
        if found.is_empty() || Instant::now() >= until {
            return;
        }
        for process in found {
            // A process that has ended, or may not be signalled, is not an error.
            let _ = signal::try_send(KillRequest { process, signal: Signal::KILL.as_raw() });
        }
        sleep(SEARCH_PAUSE);
    }
}

/// Returns the living descendants.
fn descendants(first: i64) -> Vec<ProcessIdentity> {
    let mut children: HashMap<i64, Vec<(ProcessIdentity, bool)>> = HashMap::new();
    for pid in pids() {
        if let Some(stat) = process_stat(pid) {
            let process = ProcessIdentity { pid, started: stat.started };
            children.entry(stat.parent).or_default().push((process, !stat.has_ended));
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![first];
    // Each entry is removed, so the loop ends even if /proc changed during the read.
    while let Some(parent) = parents.pop() {
        for (process, lives) in children.remove(&parent).unwrap_or_default() {
            parents.push(process.pid);
            if lives {
                found.push(process);
            }
        }
    }
    found
}

fn pids() -> impl Iterator<Item = i64> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn descendants_in_sessions_of_their_own_are_killed_and_nobody_else() {
        let mut other = Command::new("sleep").arg("600").spawn().unwrap();
        let script = "setsid sh -c 'sleep 600 & echo $! $$; wait' & wait";
        let mut command = Command::new("sh");
        let mut first = command.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(first.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pids: Vec<i64> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        let found: Vec<i64> =
            descendants(i64::from(first.id())).iter().map(|process| process.pid).collect();
        assert!(pids.iter().all(|pid| found.contains(pid)), "{pids:?} in {found:?}");
        kill_descendants(Pid::from_child(&first));
        assert!(descendants(i64::from(first.id())).is_empty());
        assert!(first.try_wait().unwrap().is_none() && other.try_wait().unwrap().is_none());
        for mut process in [first, other] {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}
