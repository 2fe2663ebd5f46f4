// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-lab trace`: selects the probes and the duration, and writes the report. [`trace`](crate::trace) reads the
//! probes.

use super::run_load::stop_on_signals;
use super::{FAILED, INTERRUPTED, print_error, print_failure, write_file};
use crate::args;
use crate::coded::{bail_coded, coded};
use crate::compare::{LoadedOrigin, ReportedWarning};
use crate::report::Host;
use crate::trace::bpftrace_script::ProbeTarget;
use crate::trace::collect::{TraceCapture, collect, ensure_possible, probes_of};
use crate::trace::processes::{self, RosterdProcesses};
use crate::trace::{StageTimes, TraceReport, html, rosterd_probes, rows, sssd_probes};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use roster_messages::Message;
use roster_messages::table::lab;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Traces, and writes the report.
pub fn run(args: &args::TraceArgs, plan: Value, out: &mut dyn Write) -> Result<u8> {
    ensure_possible()?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (collected, joined, pids) =
        if args.sssd { trace_sssd(args)? } else { trace_rosterd(args)? };
    if joined.times.is_empty() {
        print_failure(&no_events_error(args, &collected, &joined));
        return Ok(if collected.interrupted { INTERRUPTED } else { FAILED });
    }
    let origin = LoadedOrigin {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: Host::this(),
        time: began,
        plan,
    };
    let (of, hops): (_, &'static [_]) = if args.sssd {
        ("sssd", &sssd_probes::STAGES)
    } else {
        ("rosterd", &rosterd_probes::STAGES)
    };
    let (hops, meanings) = rows(hops, joined.times);
    let report = TraceReport {
        of,
        pids,
        requests: joined.requests,
        unfinished: joined.unfinished,
        kinds: joined.kinds,
        results: joined.results,
        hops,
        meanings,
        seconds: collected.seconds,
        events: collected.events.len(),
        lost_events: collected.lost,
        warnings: warnings(&collected),
        interrupted: collected.interrupted,
        origin,
    };
    write(args, &report, out)?;
    Ok(if report.interrupted { INTERRUPTED } else { 0 })
}

fn write(args: &args::TraceArgs, report: &TraceReport, out: &mut dyn Write) -> Result<()> {
    if let Some(path) = &args.html {
        write_file(path, html::html(report).as_bytes())?;
    }
    let json = || serde_json::to_string_pretty(report).map(|text| text + "\n");
    match &args.json {
        Some(path) if path.as_os_str() == "-" => return Ok(out.write_all(json()?.as_bytes())?),
        Some(path) => write_file(path, json()?.as_bytes())?,
        None => {}
    }
    Ok(report.write_text(out)?)
}

/// Returns the reason for a trace without requests.
fn no_events_error(
    args: &args::TraceArgs,
    collected: &TraceCapture,
    joined: &StageTimes,
) -> anyhow::Error {
    let seconds = collected.seconds;
    let (message, text) = if joined.unfinished > 0 {
        let text = format!("no complete request in {seconds:.1} s, {} in part", joined.unfinished);
        (&lab::TRACE_TOO_SHORT, text)
    } else if collected.others > 0 && collected.events.is_empty() {
        let text =
            format!("all {} events in {seconds:.1} s are of other processes", collected.others);
        (&lab::TRACE_OTHER_PID_NAMESPACE, text)
    } else if args.sssd {
        (&lab::TRACE_NO_REQUESTS_SSSD, format!("SSSD: no backend got a request in {seconds:.1} s"))
    } else {
        (&lab::TRACE_NO_REQUESTS, format!("rosterd: no request in {seconds:.1} s"))
    };
    coded(message, text)
}

fn warnings(collected: &TraceCapture) -> Vec<ReportedWarning> {
    let mut warnings = Vec::new();
    let mut warn = |kind: &str, message: &Message, text: String| {
        let code = Some(message.code.to_owned());
        warnings.push(ReportedWarning { kind: kind.to_owned(), code, text });
    };
    if collected.lost > 0 {
        warn(
            "lost",
            &lab::EVENTS_LOST,
            format!(
                "bpftrace lost {} events, because they arrived faster than it read them. Counts are too low, and some \
                 requests lack stages. Trace at a lower load.",
                collected.lost
            ),
        );
    }
    if collected.is_full {
        warn(
            "full",
            &lab::EVENTS_FULL,
            format!(
                "the trace ended after {:.1} s at the maximum number of events. Use a shorter --duration.",
                collected.seconds
            ),
        );
    }
    warnings
}

type TraceResult = (TraceCapture, StageTimes, Vec<u32>);

fn trace_rosterd(args: &args::TraceArgs) -> Result<TraceResult> {
    let mut rosterd = RosterdProcesses::find(args.pid)?;
    let (monitor, file) = (rosterd.monitor, rosterd.file.clone());
    let probes = probes_of(&file, rosterd_probes::PROVIDER, &rosterd_probes::PROBES)?;
    if probes.len() < rosterd_probes::PROBES.len() {
        bail_coded!(
            ROSTERD_PROBES_MISSING,
            "{file} (process {monitor}): {} of {} probes of roster-lab {}",
            probes.len(),
            rosterd_probes::PROBES.len(),
            env!("CARGO_PKG_VERSION")
        );
    }
    let target = ProbeTarget { file, provider: rosterd_probes::PROVIDER, probes };
    let mut pids = BTreeSet::from([monitor]);
    let collected = collect_with_progress(args, "rosterd", &[target], |pid| {
        let is_ours = rosterd.has_process(pid);
        if is_ours {
            pids.insert(pid);
        }
        is_ours
    })?;
    let joined = rosterd_probes::join(&collected.events, &collected.texts);
    Ok((collected, joined, pids.into_iter().collect()))
}

fn trace_sssd(args: &args::TraceArgs) -> Result<TraceResult> {
    let back_ends = processes::find_backends(args.pid, &sssd_probes::LIBRARIES)?;
    let files: BTreeSet<&String> = back_ends.iter().flat_map(|one| &one.files).collect();
    let mut targets = Vec::new();
    for file in &files {
        let probes = probes_of(file, sssd_probes::PROVIDER, &sssd_probes::PROBES)?;
        if !probes.is_empty() {
            targets.push(ProbeTarget {
                file: (*file).clone(),
                provider: sssd_probes::PROVIDER,
                probes,
            });
        }
    }
    if targets.is_empty() {
        let files: Vec<&str> = files.iter().map(|file| file.as_str()).collect();
        bail_coded!(SSSD_PROBES_MISSING, "SSSD: no probes in {}", files.join(", "));
    }
    let domains: HashMap<u32, String> =
        back_ends.iter().map(|one| (one.pid, one.domain.clone())).collect();
    let collected =
        collect_with_progress(args, "sssd", &targets, |pid| domains.contains_key(&pid))?;
    let joined = sssd_probes::join(&collected.events, &collected.texts, &domains);
    Ok((collected, joined, back_ends.iter().map(|one| one.pid).collect()))
}

/// Collects events with a progress bar.
fn collect_with_progress(
    args: &args::TraceArgs,
    what: &str,
    targets: &[ProbeTarget],
    belongs: impl FnMut(u32) -> bool,
) -> Result<TraceCapture> {
    let stop = stop_on_signals()?;
    let target =
        if args.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let bar = ProgressBar::with_draw_target(Some(millis(args.duration)), target);
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3} % {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(what.to_owned());
    bar.set_message("attaching probes");
    bar.tick();
    let mut is_told = args.quiet;
    let collected = collect(targets, args.duration, &stop, belongs, |elapsed, events| {
        if !std::mem::replace(&mut is_told, true) {
            let seconds = args.duration.as_secs_f64();
            let text = format!("tracing {what} for {seconds} s; Ctrl-C ends it with a report");
            bar.suspend(|| print_error(&text));
        }
        bar.set_position(millis(elapsed));
        bar.set_message(format!("{events} events"));
    });
    bar.finish_and_clear();
    collected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_incomplete_events_are_told() {
        let codes = |capture: &TraceCapture| -> Vec<_> {
            warnings(capture).into_iter().filter_map(|warning| warning.code).collect()
        };
        assert!(codes(&TraceCapture::default()).is_empty());
        let capture = TraceCapture { lost: 5, is_full: true, ..TraceCapture::default() };
        assert_eq!(codes(&capture), [lab::EVENTS_LOST.code, lab::EVENTS_FULL.code]);
    }
}
