// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processor time and memory of a server on this host, by its process or its systemd unit. On a shared machine the
//! processor time per request is the reliable figure. Servers of other hosts are not watched. `report` prints them.

use crate::coded::{Coded, ensure_coded};
use anyhow::Result;
use nix::time::ClockId;
use nix::unistd::Pid;
use roster_messages::table::lab;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// The watched server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchedServer {
    /// A process, with all its threads.
    Process(u32),
    /// A systemd unit, by its control group.
    Unit(String),
}

/// Usage up to a moment, or between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerUsage {
    /// Processor time.
    pub cpu: Duration,
    /// Resident memory, in bytes.
    pub memory: u64,
    /// Identity of the instance: start of the process, or inode of the control group.
    pub instance: u64,
}

impl ServerUsage {
    /// Returns the usage since an earlier moment; `None` if the server restarted.
    #[must_use]
    pub fn since(self, before: Self) -> Option<Self> {
        let cpu = self.cpu.checked_sub(before.cpu).filter(|_| self.instance == before.instance)?;
        Some(Self { cpu, ..self })
    }
}

impl WatchedServer {
    /// Returns the server of `--server-pid` or `--server-unit`.
    pub fn from_options(pid: Option<u32>, unit: Option<&str>) -> Result<Option<Self>> {
        Ok(match (pid, unit) {
            (Some(pid), _) => Some(Self::Process(pid)),
            (None, Some(name)) => {
                ensure_coded!(
                    !name.contains('/') && name != "..",
                    UNIT_NAME_INVALID,
                    "--server-unit {name}: not the name of a unit"
                );
                let suffix = if name.contains('.') { "" } else { ".service" };
                Some(Self::Unit(format!("{name}{suffix}")))
            }
            (None, None) => None,
        })
    }

    /// Reads the usage so far.
    pub fn consumed(&self) -> Result<ServerUsage> {
        match self {
            Self::Process(pid) => {
                let stat = format!("/proc/{pid}/stat");
                let unreadable = format_args!("--server-pid {pid}: {stat} cannot be read");
                let text = fs::read_to_string(&stat).coded(&lab::SERVER_PID_UNKNOWN, unreadable)?;
                let invalid = format_args!("{stat}: unexpected format");
                let ProcessStat { state, start_ticks: began, memory } =
                    ProcessStat::read(&text).coded(&lab::KERNEL_FILE_FORMAT, invalid)?;
                // A zombie exists until its parent waits for it.
                ensure_coded!(
                    !matches!(state, "Z" | "X"),
                    SERVER_PID_ENDED,
                    "--server-pid {pid}: the process has ended"
                );
                Ok(ServerUsage { cpu: processor_time(*pid)?, memory, instance: began })
            }
            Self::Unit(name) => {
                let folder = PathBuf::from("/sys/fs/cgroup/system.slice").join(name);
                let read = |file: &str| {
                    let path = folder.join(file);
                    let text =
                        format_args!("--server-unit {name}: {} cannot be read", path.display());
                    fs::read_to_string(&path).coded(&lab::UNIT_UNREADABLE, text)
                };
                let which = fs::metadata(&folder).map_or(0, |folder| folder.ino());
                let invalid = format_args!("{}: unexpected format", folder.display());
                from_cgroup(&read("cpu.stat")?, &read("memory.current")?, which)
                    .coded(&lab::KERNEL_FILE_FORMAT, invalid)
            }
        }
    }
}

/// Reads the processor time in nanoseconds. /proc has only clock ticks.
fn processor_time(pid: u32) -> Result<Duration> {
    let (message, text) =
        (&lab::SERVER_CPU_UNREADABLE, format!("--server-pid {pid}: no processor time"));
    let pid = Pid::from_raw(i32::try_from(pid).coded(message, &text)?);
    Ok(ClockId::pid_cpu_clock_id(pid).and_then(ClockId::now).coded(message, &text)?.into())
}

/// Fields of /proc/PID/stat.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat<'t> {
    /// State letter.
    state: &'t str,
    /// Start of the process in ticks after boot.
    start_ticks: u64,
    /// Resident bytes.
    memory: u64,
}

impl<'t> ProcessStat<'t> {
    /// Parses the line. The name in parentheses may contain any bytes.
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

/// Parses the files of a control group.
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
        // A restarted unit is another instance, and counts from zero.
        let later = |cpu, which| read(cpu, which).unwrap().since(consumed);
        assert_eq!(later(1700, 7).unwrap().cpu, Duration::from_micros(200));
        assert_eq!((later(1700, 8), later(1400, 7)), (None, None));
    }

    #[test]
    fn work_of_this_process_shows_in_its_own_figures() {
        let server = WatchedServer::Process(std::process::id());
        let before = server.consumed().unwrap();
        let mut sum = 0_u64;
        // The usage is less than a clock tick.
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
        let consumed = || WatchedServer::Process(child.id()).consumed();
        wait_until(SOON, "the process has ended", || consumed().is_err());
        let text = crate::coded::describe(&consumed().unwrap_err());
        assert!(text.ends_with(&format!("[{}]", lab::SERVER_PID_ENDED.code)), "{text}");
        child.wait().unwrap();
    }

    #[test]
    fn server_usage_missing_clock_has_code() {
        // The first is above the maximum of the kernel.
        for pid in [(1 << 22) + 1, u32::MAX] {
            let text = crate::coded::describe(&processor_time(pid).unwrap_err());
            assert!(text.ends_with(&format!("[{}]", lab::SERVER_CPU_UNREADABLE.code)), "{text}");
        }
    }

    #[test]
    fn server_usage_missing_process_named() {
        let text =
            crate::coded::describe(&WatchedServer::Process(u32::MAX).consumed().unwrap_err());
        assert!(text.contains("--server-pid 4294967295"), "{text}");
        assert!(text.ends_with(&format!("[{}]", lab::SERVER_PID_UNKNOWN.code)), "{text}");
    }
}
