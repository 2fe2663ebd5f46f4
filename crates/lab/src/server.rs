//! What a server on this host costs: processor time and memory of its process or its systemd unit. On a
//! machine that is shared, the time per request is the figure that holds.

use anyhow::{Context, Result};
use nix::time::ClockId;
use nix::unistd::Pid;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// A process, with all its threads.
    Process(u32),
    /// A systemd unit, by its control group.
    Unit(String),
}

/// Up to a moment, or between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// Processor time.
    pub cpu: Duration,
    /// Resident memory, in bytes.
    pub memory: u64,
}

impl Consumed {
    /// From an earlier moment to this one.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(before.cpu), ..self }
    }
}

impl Server {
    /// What it has cost so far.
    pub fn consumed(&self) -> Result<Consumed> {
        match self {
            Self::Process(pid) => {
                let stat = format!("/proc/{pid}/stat");
                let text = fs::read_to_string(&stat)
                    .with_context(|| format!("--server-pid {pid}: cannot read {stat}"))?;
                let memory =
                    resident(&text).with_context(|| format!("{stat} is not as expected"))?;
                Ok(Consumed { cpu: processor_time(*pid)?, memory })
            }
            Self::Unit(name) => {
                let folder = PathBuf::from("/sys/fs/cgroup/system.slice").join(name);
                let read = |file: &str| {
                    let path = folder.join(file);
                    fs::read_to_string(&path).with_context(|| {
                        format!("--server-unit {name}: cannot read {}", path.display())
                    })
                };
                of_group(&read("cpu.stat")?, &read("memory.current")?)
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

/// Of /proc/PID/stat, in bytes. The name, in parentheses, may hold anything.
fn resident(stat: &str) -> Option<u64> {
    const RESIDENT_PAGES: usize = 21;
    let (_, behind) = stat.rsplit_once(") ")?;
    let pages: u64 = behind.split_ascii_whitespace().nth(RESIDENT_PAGES)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Of a control group's files.
fn of_group(cpu: &str, memory: &str) -> Option<Consumed> {
    let usage = cpu.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(Consumed {
        cpu: Duration::from_micros(usage.trim().parse().ok()?),
        memory: memory.trim().parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::time::Instant;

    #[test]
    fn a_process_of_any_name_is_read() {
        let stat =
            format!("7 (a) b (c) S {}", (1..=40).map(|n| format!("{n} ")).collect::<String>());
        assert_eq!(resident(&stat), Some(21 * rustix::param::page_size() as u64));
        assert_eq!(resident("7 (a"), None);
    }

    #[test]
    fn a_control_group_is_read() {
        let consumed = of_group("usage_usec 1500\nuser_usec 1\n", "4096\n").unwrap();
        assert_eq!(consumed, Consumed { cpu: Duration::from_micros(1500), memory: 4096 });
    }

    #[test]
    fn work_of_this_process_shows_in_its_own_figures() {
        let server = Server::Process(std::process::id());
        let before = server.consumed().unwrap();
        let (start, mut sum) = (Instant::now(), 0_u64);
        // Less than a tick.
        while server.consumed().unwrap().since(before).cpu < Duration::from_millis(2) {
            sum = black_box((0..10_000).fold(sum, u64::wrapping_add));
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        assert!(server.consumed().unwrap().since(before).cpu < Duration::from_secs(60));
        assert!(server.consumed().unwrap().memory > 1 << 20);
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = Server::Process(u32::MAX).consumed().unwrap_err();
        assert!(format!("{error:#}").contains("--server-pid 4294967295"));
    }
}
