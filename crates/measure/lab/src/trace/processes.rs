//! Whose probes are looked at: the processes of rosterd, or the back-ends of SSSD, by what /proc shows.

use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The executable of all of rosterd's processes.
const ROSTERD: &str = "rosterd";
/// That of SSSD's back-ends.
const SSSD_BACKEND: &str = "sssd_be";
/// What its kernel adds to the name of a file that was removed.
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

    /// The path by which a file of its mounts is reached from here.
    fn reachable_path(&self, path: &Path) -> Result<String> {
        let shown = path.display().to_string();
        ensure!(
            !shown.ends_with(DELETED),
            "process {} runs {}, which was replaced since: start it anew",
            self.pid,
            shown.trim_end_matches(DELETED)
        );
        let inside = format!("/proc/{}/root{shown}", self.pid);
        let id = |path: &str| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let theirs = id(&inside).with_context(|| format!("{inside}: is not there"))?;
        Ok(if id(&shown) == Some(theirs) { shown } else { inside })
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may have anything in it.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

fn processes_running(program: &str) -> Result<BTreeMap<u32, ProcessEntry>> {
    let folders = fs::read_dir("/proc").context("cannot read /proc")?;
    let pids = folders.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let processes = pids.filter_map(ProcessEntry::read).filter(|process| process.runs(program));
    Ok(processes.map(|process| (process.pid, process)).collect())
}

#[derive(Debug)]
pub struct RosterdProcesses {
    /// The monitor, which started the others.
    pub monitor: u32,
    /// The executable, by a path that is seen from here.
    pub file: String,
    known: HashMap<u32, bool>,
}

impl RosterdProcesses {
    /// The one that runs, or the one that this process is of.
    pub fn find(pid: Option<u32>) -> Result<Self> {
        let all = processes_running(ROSTERD)?;
        let is_monitor = |process: &&ProcessEntry| !all.contains_key(&process.parent);
        let monitor = match pid {
            Some(pid) => {
                let named = all
                    .get(&pid)
                    .with_context(|| format!("--pid {pid}: is no process of rosterd"))?;
                all.get(&named.parent).unwrap_or(named)
            }
            None => match all.values().filter(is_monitor).collect::<Vec<_>>().as_slice() {
                [] => bail!("no rosterd runs on this host"),
                [one] => *one,
                several => {
                    let pids: Vec<_> = several.iter().map(|one| one.pid.to_string()).collect();
                    bail!("several rosterd run: say which with --pid ({})", pids.join(", "))
                }
            },
        };
        let file = monitor.reachable_path(&monitor.exe)?;
        Ok(Self { monitor: monitor.pid, file, known: HashMap::from([(monitor.pid, true)]) })
    }

    /// Whether a process is of it; one that was started anew is too.
    pub fn has_process(&mut self, pid: u32) -> bool {
        let monitor = self.monitor;
        *self.known.entry(pid).or_insert_with(|| parent_of(pid) == Some(monitor))
    }
}

/// A back-end of SSSD.
#[derive(Debug)]
pub struct SssdBackend {
    /// Its process.
    pub pid: u32,
    pub domain: String,
    /// The program and the libraries that it runs of those that may have probes, by paths that are seen from here.
    pub files: Vec<String>,
}

/// The back-ends of SSSD that run, or the one that is named; each has its files of these names.
pub fn find_backends(pid: Option<u32>, libraries: &[&str]) -> Result<Vec<SssdBackend>> {
    let mut all = processes_running(SSSD_BACKEND)?;
    if let Some(pid) = pid {
        all.retain(|one, _| *one == pid);
        ensure!(!all.is_empty(), "--pid {pid}: is no back-end of SSSD ({SSSD_BACKEND})");
    }
    ensure!(
        !all.is_empty(),
        "no back-end of SSSD ({SSSD_BACKEND}) runs on this host: is sssd started?"
    );
    all.values().map(|process| read_backend(process, libraries)).collect()
}

fn read_backend(process: &ProcessEntry, libraries: &[&str]) -> Result<SssdBackend> {
    let pid = process.pid;
    let line = fs::read(format!("/proc/{pid}/cmdline"))
        .with_context(|| format!("cannot read the command line of process {pid}"))?;
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let behind = words.iter().position(|word| word == "--domain").and_then(|at| words.get(at + 1));
    let domain = behind.map_or_else(|| format!("pid {pid}"), ToString::to_string);
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))
        .with_context(|| format!("cannot read what process {pid} has mapped"))?;
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
