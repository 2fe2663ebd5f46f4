// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists the probes of a file, and collects their events for a time. `rosterd_probes` and `sssd_probes` join the events.

use super::bpftrace::{Bpftrace, OutputLine};
use super::bpftrace_script::{self, EventTexts, Probe, ProbeEvent, ProbeTarget, READY};
use crate::coded::{bail_coded, ensure_coded};
use anyhow::Result;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of events, about 100 MB.
const EVENTS_MAX: usize = 2_000_000;
/// Timeout for the attachment of all probes.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Time for bpftrace to write its buffered events after the end.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);
/// Interval of checks of the clock and of Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Directory of a kernel with uprobes.
const UPROBES: &str = "/sys/bus/event_source/devices/uprobe";

/// The collected events.
#[derive(Debug, Default)]
pub struct TraceCapture {
    /// Events, unordered.
    pub events: Vec<ProbeEvent>,
    /// Texts of the events.
    pub texts: EventTexts,
    /// Number of events of other processes.
    pub others: u64,
    /// Number of events that bpftrace lost.
    pub lost: u64,
    /// Duration.
    pub seconds: f64,
    /// Whether Ctrl-C ended the trace.
    pub interrupted: bool,
    /// Whether the maximum number of events ended the trace.
    pub is_full: bool,
}

/// Checks that this user and this kernel can attach probes.
pub fn ensure_possible() -> Result<()> {
    ensure_coded!(
        rustix::process::geteuid().is_root(),
        TRACE_NEEDS_ROOT,
        "roster-lab trace: not started as root"
    );
    ensure_coded!(Path::new(UPROBES).exists(), NO_UPROBES, "{UPROBES}: does not exist");
    Ok(())
}

/// Returns the wanted probes that a file has.
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
            OutputLine::Timeout => bail_coded!(
                BPFTRACE_NO_LIST,
                "bpftrace: no list of the probes of {file} within {} s",
                READY_WITHIN.as_secs()
            ),
            OutputLine::Closed => break,
        }
    }
    // The exit code for a file without probes depends on the version, so it is ignored.
    bpftrace.end()?;
    Ok(wanted.iter().filter(|probe| names.contains(probe.name)).collect())
}

/// Collects events of processes that `belongs` accepts, for a time or until `stop` is set. `show` gets the elapsed time
/// and the number of events.
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
    ensure_coded!(
        status.success() || !collected.events.is_empty(),
        BPFTRACE_ENDED,
        "bpftrace: ended with {status}: {}",
        complaints.join("; ")
    );
    Ok(collected)
}

/// Waits until all probes are attached. Returns `None` if `stop` is set before.
fn wait_until_ready(bpftrace: Bpftrace, stop: &AtomicBool) -> Result<Option<Bpftrace>> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        match bpftrace.next(Instant::now() + POLL_INTERVAL) {
            OutputLine::Line(line) if line == READY => return Ok(Some(bpftrace)),
            OutputLine::Line(_) | OutputLine::Timeout => {}
            OutputLine::Closed => {
                let (status, complaints) = bpftrace.end()?;
                bail_coded!(
                    PROBES_NOT_ATTACHED,
                    "bpftrace: cannot attach the probes ({status}): {}",
                    complaints.join("; ")
                );
            }
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        ensure_coded!(
            Instant::now() < deadline,
            PROBES_TOO_SLOW,
            "bpftrace: probes not attached within {} s",
            READY_WITHIN.as_secs()
        );
    }
}
