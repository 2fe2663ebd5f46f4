// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the processes with probes in /proc: those of rosterd, or the backends of SSSD. `collect` attaches the probes.

use crate::coded::{Coded, bail_coded, ensure_coded};
use anyhow::Result;
use roster_messages::table::lab;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Executable of rosterd's processes.
const ROSTERD: &str = "rosterd";
/// Executable of SSSD's backends.
const SSSD_BACKEND: &str = "sssd_be";
/// Suffix of the kernel for the name of a deleted file.
const DELETED: &str = " (deleted)";

#[derive(Clone, Debug)]
struct ProcessEntry {
    pid: u32,
    parent: u32,
    exe: PathBuf,
}

impl ProcessEntry {
    fn read(pid: u32) -> Option<Self> {
        let exe = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        Some(Self { pid, parent: parent_of(pid)?, exe })
    }

    fn runs(&self, program: &str) -> bool {
        let name = self.exe.file_name().unwrap_or_default().to_string_lossy();
        name.trim_end_matches(DELETED) == program
    }

    /// Returns the path of a file of the process's mount namespace, as this process reaches it.
    fn reachable_path(&self, path: &Path) -> Result<String> {
        let shown = path.display().to_string();
        ensure_coded!(
            !shown.ends_with(DELETED),
            EXECUTABLE_REPLACED,
            "process {}: {} was replaced since its start",
            self.pid,
            shown.trim_end_matches(DELETED)
        );
        let inside = format!("/proc/{}/root{shown}", self.pid);
        let id = |path: &str| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let text = format_args!("{inside}: cannot be opened");
        let theirs = id(&inside).coded(&lab::EXECUTABLE_UNREACHABLE, text)?;
        Ok(if id(&shown) == Some(theirs) { shown } else { inside })
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain any bytes.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

fn processes_running(program: &str) -> Result<BTreeMap<u32, ProcessEntry>> {
    let folders = fs::read_dir("/proc").coded(&lab::FILE_UNREADABLE, "/proc: cannot be read")?;
    let pids = folders.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let processes = pids.filter_map(ProcessEntry::read).filter(|process| process.runs(program));
    Ok(processes.map(|process| (process.pid, process)).collect())
}

#[derive(Debug)]
pub struct RosterdProcesses {
    /// The monitor, the parent of the other processes.
    pub monitor: u32,
    /// Path of the executable, as this process reaches it.
    pub file: String,
    known: HashMap<u32, bool>,
}

impl RosterdProcesses {
    /// Finds the running rosterd, or the one with this process.
    pub fn find(pid: Option<u32>) -> Result<Self> {
        let all = processes_running(ROSTERD)?;
        let is_monitor = |process: &&ProcessEntry| !all.contains_key(&process.parent);
        let monitor = match pid {
            Some(pid) => {
                let text = format_args!("--pid {pid}: not a process of rosterd");
                let named = all.get(&pid).coded(&lab::ROSTERD_PID_UNKNOWN, text)?;
                all.get(&named.parent).unwrap_or(named)
            }
            None => match all.values().filter(is_monitor).collect::<Vec<_>>().as_slice() {
                [] => bail_coded!(ROSTERD_NOT_RUNNING, "rosterd: no process on this host"),
                [one] => *one,
                several => {
                    let pids: Vec<_> = several.iter().map(|one| one.pid.to_string()).collect();
                    bail_coded!(
                        ROSTERD_SEVERAL,
                        "rosterd: several monitors run: processes {}",
                        pids.join(", ")
                    )
                }
            },
        };
        let file = monitor.reachable_path(&monitor.exe)?;
        Ok(Self { monitor: monitor.pid, file, known: HashMap::from([(monitor.pid, true)]) })
    }

    /// Returns whether a process belongs to this rosterd, also one that was restarted.
    pub fn has_process(&mut self, pid: u32) -> bool {
        let monitor = self.monitor;
        *self.known.entry(pid).or_insert_with(|| parent_of(pid) == Some(monitor))
    }
}

/// A backend of SSSD.
#[derive(Debug)]
pub struct SssdBackend {
    /// The backend's process.
    pub pid: u32,
    pub domain: String,
    /// Paths of the program and of its libraries with probes, as this process reaches them.
    pub files: Vec<String>,
}

/// Finds the running backends of SSSD, or the one with this process, with their files of these names.
pub fn find_backends(pid: Option<u32>, libraries: &[&str]) -> Result<Vec<SssdBackend>> {
    let mut all = processes_running(SSSD_BACKEND)?;
    if let Some(pid) = pid {
        all.retain(|one, _| *one == pid);
        ensure_coded!(
            !all.is_empty(),
            SSSD_PID_UNKNOWN,
            "--pid {pid}: not a backend of SSSD ({SSSD_BACKEND})"
        );
    }
    ensure_coded!(!all.is_empty(), SSSD_NOT_RUNNING, "{SSSD_BACKEND}: no process on this host");
    all.values().map(|process| read_backend(process, libraries)).collect()
}

fn read_backend(process: &ProcessEntry, libraries: &[&str]) -> Result<SssdBackend> {
    let pid = process.pid;
    let [cmdline, maps] = ["cmdline", "maps"].map(|name| format!("/proc/{pid}/{name}"));
    let unreadable = |path: &str| format!("{path}: cannot be read");
    let line = fs::read(&cmdline).coded(&lab::FILE_UNREADABLE, unreadable(&cmdline))?;
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let behind = words.iter().position(|word| word == "--domain").and_then(|at| words.get(at + 1));
    let domain = behind.map_or_else(|| format!("pid {pid}"), ToString::to_string);
    let maps = fs::read_to_string(&maps).coded(&lab::FILE_UNREADABLE, unreadable(&maps))?;
    let mut files = vec![process.reachable_path(&process.exe)?];
    for library in libraries {
        let path = maps.lines().find_map(|line| {
            let path = Path::new(line.get(line.find('/')?..)?);
            let name = path.file_name()?.to_str()?;
            name.trim_end_matches(DELETED).starts_with(library).then(|| path.to_owned())
        });
        files.extend(path.map(|path| process.reachable_path(&path)).transpose()?);
    }
    Ok(SssdBackend { pid, domain, files })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_unusable_executable_has_code() {
        let pid = std::process::id();
        let process = ProcessEntry { pid, parent: 1, exe: PathBuf::new() };
        for (path, message) in [
            ("/usr/sbin/rosterd (deleted)", &lab::EXECUTABLE_REPLACED),
            ("/no/such/rosterd", &lab::EXECUTABLE_UNREACHABLE),
        ] {
            let error = process.reachable_path(Path::new(path)).unwrap_err().to_string();
            assert!(error.ends_with(&format!("[{}]", message.code)), "{error}");
        }
    }
}
