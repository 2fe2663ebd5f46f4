//! What a server on this host costs: processor time and memory of its process or its systemd unit. On a
//! machine that is shared, the time per request is the figure that holds.

use anyhow::{Context, Result, ensure};
use nix::time::ClockId;
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchedServer {
    /// A process, with all its threads.
    Process(u32),
    /// A systemd unit, by its control group.
    Unit(String),
}

/// Up to a moment, or between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerUsage {
    /// Processor time.
    pub cpu: Duration,
    /// Resident memory, in bytes.
    pub memory: u64,
    /// What another one of the same name or number would not have: when a process began, the number of a folder.
    pub instance: u64,
}

impl ServerUsage {
    /// From an earlier moment to this one; none if it was another one then, or counts anew.
    #[must_use]
    pub fn since(self, before: Self) -> Option<Self> {
        let cpu = self.cpu.checked_sub(before.cpu).filter(|_| self.instance == before.instance)?;
        Some(Self { cpu, ..self })
    }
}

impl WatchedServer {
    /// What `--server-pid` or `--server-unit` names.
    pub fn from_options(pid: Option<u32>, unit: Option<&str>) -> Result<Option<Self>> {
        Ok(match (pid, unit) {
            (Some(pid), _) => Some(Self::Process(pid)),
            (None, Some(name)) => {
                ensure!(!name.contains('/') && name != "..", "--server-unit {name}: is no unit");
                let suffix = if name.contains('.') { "" } else { ".service" };
                Some(Self::Unit(format!("{name}{suffix}")))
            }
            (None, None) => None,
        })
    }

    /// What it has cost so far.
    pub fn consumed(&self) -> Result<ServerUsage> {
        match self {
            Self::Process(pid) => {
                let stat = format!("/proc/{pid}/stat");
                let text = fs::read_to_string(&stat)
                    .with_context(|| format!("--server-pid {pid}: cannot read {stat}"))?;
                let ProcessStat { state, start_ticks: began, memory } = ProcessStat::read(&text)
                    .with_context(|| format!("{stat} is not as expected"))?;
                // Until somebody has waited for it.
                ensure!(!matches!(state, "Z" | "X"), "--server-pid {pid}: it has ended");
                Ok(ServerUsage { cpu: processor_time(*pid)?, memory, instance: began })
            }
            Self::Unit(name) => {
                let folder = PathBuf::from("/sys/fs/cgroup/system.slice").join(name);
                let read = |file: &str| {
                    let path = folder.join(file);
                    fs::read_to_string(&path).with_context(|| {
                        format!("--server-unit {name}: cannot read {}", path.display())
                    })
                };
                let which = fs::metadata(&folder).map_or(0, |folder| folder.ino());
                from_cgroup(&read("cpu.stat")?, &read("memory.current")?, which)
                    .with_context(|| format!("the control group of {name} is not as expected"))
            }
        }
    }
}

/// To the nanosecond, unlike the ticks of /proc.
fn processor_time(pid: u32) -> Result<Duration> {
    let whose = || format!("--server-pid {pid}: its processor time cannot be read");
    let pid = Pid::from_raw(i32::try_from(pid).with_context(whose)?);
    Ok(ClockId::pid_cpu_clock_id(pid).and_then(ClockId::now).with_context(whose)?.into())
}

/// Of /proc/PID/stat.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat<'t> {
    /// A letter.
    state: &'t str,
    /// Ticks after the host's start.
    start_ticks: u64,
    /// Bytes that are resident.
    memory: u64,
}

impl<'t> ProcessStat<'t> {
    /// The name, in parentheses, may hold anything.
    fn read(stat: &'t str) -> Option<Self> {
        const BEGAN: usize = 19;
        const RESIDENT_PAGES: usize = 21;
        let (_, behind) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = behind.split_ascii_whitespace().collect();
        let pages: u64 = fields.get(RESIDENT_PAGES)?.parse().ok()?;
        Some(Self {
            state: fields[0],
            start_ticks: fields.get(BEGAN)?.parse().ok()?,
            memory: pages * rustix::param::page_size() as u64,
        })
    }
}

/// Of a control group's files.
fn from_cgroup(cpu: &str, memory: &str, which: u64) -> Option<ServerUsage> {
    let usage = cpu.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(ServerUsage {
        cpu: Duration::from_micros(usage.trim().parse().ok()?),
        memory: memory.trim().parse().ok()?,
        instance: which,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_system_tests::wait::{SOON, wait_until};
    use std::hint::black_box;

    #[test]
    fn a_process_of_any_name_is_read() {
        let stat =
            format!("7 (a) b (c) S {}", (1..=40).map(|n| format!("{n} ")).collect::<String>());
        let memory = 21 * rustix::param::page_size() as u64;
        assert_eq!(
            ProcessStat::read(&stat),
            Some(ProcessStat { state: "S", start_ticks: 19, memory })
        );
        assert_eq!(ProcessStat::read("7 (a"), None);
    }

    #[test]
    fn a_control_group_is_read() {
        let read =
            |cpu, which| from_cgroup(&format!("usage_usec {cpu}\nuser_usec 1\n"), "4096\n", which);
        let consumed = read(1500, 7).unwrap();
        assert_eq!(
            consumed,
            ServerUsage { cpu: Duration::from_micros(1500), memory: 4096, instance: 7 }
        );
        // One that was started again is another, and counts from the beginning.
        let later = |cpu, which| read(cpu, which).unwrap().since(consumed);
        assert_eq!(later(1700, 7).unwrap().cpu, Duration::from_micros(200));
        assert_eq!((later(1700, 8), later(1400, 7)), (None, None));
    }

    #[test]
    fn work_of_this_process_shows_in_its_own_figures() {
        let server = WatchedServer::Process(std::process::id());
        let before = server.consumed().unwrap();
        let mut sum = 0_u64;
        // Less than a tick.
        while server.consumed().unwrap().since(before).unwrap().cpu < Duration::from_millis(2) {
            sum = black_box((0..10_000).fold(sum, u64::wrapping_add));
        }
        let consumed = server.consumed().unwrap().cpu;
        let all = ClockId::CLOCK_PROCESS_CPUTIME_ID.now().unwrap();
        assert!(consumed <= Duration::from(all), "{consumed:?} of {all}");
        assert!(server.consumed().unwrap().memory > 1 << 20);
    }

    #[test]
    fn a_process_that_nobody_has_waited_for_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = || WatchedServer::Process(child.id()).consumed().is_err();
        wait_until(SOON, "the process has ended", ended);
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = WatchedServer::Process(u32::MAX).consumed().unwrap_err();
        assert!(format!("{error:#}").contains("--server-pid 4294967295"));
    }
}
