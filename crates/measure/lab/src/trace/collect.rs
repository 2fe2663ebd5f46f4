//! From probes to events: which probes a file has, and what passes them for a time.

use super::bpftrace::{Bpftrace, OutputLine};
use super::bpftrace_script::{self, EventTexts, Probe, ProbeEvent, ProbeTarget, READY};
use anyhow::{Result, bail, ensure};
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Events that are kept, which are about 100 MB.
const EVENTS_MAX: usize = 2_000_000;
/// Until all probes are looked at.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Told to end, bpftrace writes what it has within this time.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at the clock and at Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Where the kernel shows that it has uprobes.
const UPROBES: &str = "/sys/bus/event_source/devices/uprobe";

/// What was seen.
#[derive(Debug, Default)]
pub struct TraceCapture {
    /// In no order.
    pub events: Vec<ProbeEvent>,
    /// What they say in words.
    pub texts: EventTexts,
    /// Events of other processes.
    pub others: u64,
    /// Events that bpftrace could not keep.
    pub lost: u64,
    /// For how long.
    pub seconds: f64,
    /// Ended by Ctrl-C.
    pub interrupted: bool,
    /// Ended since there were more events than are kept.
    pub is_full: bool,
}

/// Whether this user may look at probes, and this kernel lets anybody.
pub fn ensure_possible() -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "only root may look at probes of processes: run it with sudo"
    );
    ensure!(
        Path::new(UPROBES).exists(),
        "this kernel has no uprobes ({UPROBES} is not there): it takes one with CONFIG_UPROBE_EVENTS \
         and CONFIG_BPF_EVENTS, as distributions have"
    );
    Ok(())
}

/// Those of the probes that a file has.
pub fn probes_of(
    file: &str,
    provider: &str,
    wanted: &'static [Probe],
) -> Result<Vec<&'static Probe>> {
    bpftrace_script::ensure_plain(file)?;
    let bpftrace = Bpftrace::start(&["-l", &format!("usdt:{file}:{provider}:*")])?;
    let deadline = Instant::now() + READY_WITHIN;
    let mut names = HashSet::new();
    loop {
        match bpftrace.next(deadline) {
            OutputLine::Line(line) => names.extend(line.rsplit(':').next().map(str::to_owned)),
            OutputLine::Timeout => bail!("bpftrace does not say which probes {file} has"),
            OutputLine::Closed => break,
        }
    }
    // That there are none is no failure to it, or is, by version.
    bpftrace.end()?;
    Ok(wanted.iter().filter(|probe| names.contains(probe.name)).collect())
}

/// Looks at probes for a time, or until it is told to stop. Events count whose process `belongs`; `show` is
/// told how long it has gone on and how many there were.
pub fn collect(
    targets: &[ProbeTarget],
    duration: Duration,
    stop: &AtomicBool,
    mut belongs: impl FnMut(u32) -> bool,
    mut show: impl FnMut(Duration, usize),
) -> Result<TraceCapture> {
    let bound = (duration + READY_WITHIN + DRAIN_WITHIN).as_secs() + 1;
    let bpftrace = Bpftrace::start(&["-q", "-e", &bpftrace_script::script(targets, bound)])?;
    let Some(bpftrace) = wait_until_ready(bpftrace, stop)? else {
        return Ok(TraceCapture { interrupted: true, ..TraceCapture::default() });
    };
    let probes: Vec<_> = targets.iter().flat_map(|target| target.probes.iter().copied()).collect();
    let began = Instant::now();
    let mut collected = TraceCapture::default();
    let mut take = |collected: &mut TraceCapture, line: &str| {
        collected.lost += bpftrace_script::lost_events(line).unwrap_or_default();
        let event = bpftrace_script::parse_event(line, &probes, &mut collected.texts);
        match event {
            Some(event) if belongs(event.pid) => collected.events.push(event),
            Some(_) => collected.others += 1,
            None => {}
        }
    };
    loop {
        let elapsed = began.elapsed();
        show(elapsed, collected.events.len());
        collected.interrupted = stop.load(Ordering::Relaxed);
        collected.is_full = collected.events.len() >= EVENTS_MAX;
        if elapsed >= duration || collected.interrupted || collected.is_full {
            break;
        }
        let until = Instant::now() + POLL_INTERVAL.min(duration - elapsed);
        while let OutputLine::Line(line) = bpftrace.next(until) {
            take(&mut collected, &line);
            if Instant::now() >= until || collected.events.len() >= EVENTS_MAX {
                break;
            }
        }
    }
    collected.seconds = began.elapsed().as_secs_f64();
    bpftrace.interrupt();
    let rest = Instant::now() + DRAIN_WITHIN;
    while let OutputLine::Line(line) = bpftrace.next(rest) {
        take(&mut collected, &line);
    }
    let (status, complaints) = bpftrace.end()?;
    collected.lost +=
        complaints.iter().filter_map(|line| bpftrace_script::lost_events(line)).sum::<u64>();
    ensure!(
        status.success() || !collected.events.is_empty(),
        "bpftrace ended with {status}: {}",
        complaints.join("; ")
    );
    Ok(collected)
}

/// Waits until all probes are looked at; none if that was given up.
fn wait_until_ready(bpftrace: Bpftrace, stop: &AtomicBool) -> Result<Option<Bpftrace>> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        match bpftrace.next(Instant::now() + POLL_INTERVAL) {
            OutputLine::Line(line) if line == READY => return Ok(Some(bpftrace)),
            OutputLine::Line(_) | OutputLine::Timeout => {}
            OutputLine::Closed => {
                let (status, complaints) = bpftrace.end()?;
                bail!("bpftrace cannot look at the probes ({status}): {}", complaints.join("; "));
            }
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        ensure!(
            Instant::now() < deadline,
            "bpftrace did not look at the probes within {} s",
            READY_WITHIN.as_secs()
        );
    }
}
