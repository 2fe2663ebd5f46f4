//! `roster-lab trace`: whose probes, for how long, and where the report goes.

use super::run_load::stop_on_signals;
use super::{FAILED, INTERRUPTED, print_error};
use crate::args;
use crate::compare::{LoadedOrigin, ReportedWarning};
use crate::report::Host;
use crate::trace::bpftrace_script::ProbeTarget;
use crate::trace::collect::{TraceCapture, collect, ensure_possible, probes_of};
use crate::trace::processes::{self, RosterdProcesses};
use crate::trace::{StageTimes, TraceReport, html, rosterd_probes, rows, sssd_probes};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is done.
pub fn run(args: &args::TraceArgs, plan: Value, out: &mut dyn Write) -> Result<u8> {
    ensure_possible()?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (collected, joined, pids) =
        if args.sssd { trace_sssd(args)? } else { trace_rosterd(args)? };
    if joined.times.is_empty() {
        print_error(&no_events_reason(args, &collected, &joined));
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
    let write = |path: &Path, text: String| {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &args.html {
        write(path, html::html(report))?;
    }
    let json = || serde_json::to_string_pretty(report).map(|text| text + "\n");
    match &args.json {
        Some(path) if path.as_os_str() == "-" => return Ok(out.write_all(json()?.as_bytes())?),
        Some(path) => write(path, json()?)?,
        None => {}
    }
    Ok(report.write_text(out)?)
}

/// Why there is nothing to tell.
fn no_events_reason(
    args: &args::TraceArgs,
    collected: &TraceCapture,
    joined: &StageTimes,
) -> String {
    let seconds = collected.seconds;
    if joined.unfinished > 0 {
        return format!(
            "roster-lab: in {seconds:.1} s no request was seen from its begin to its end, and {} in part: \
             make --duration longer",
            joined.unfinished
        );
    }
    if collected.others > 0 && collected.events.is_empty() {
        return format!(
            "roster-lab: in {seconds:.1} s all {} events were of other processes than these; if this is a container, \
             run it on the host, whose numbers of processes bpftrace sees",
            collected.others
        );
    }
    match args.sssd {
        true => format!(
            "roster-lab: nobody asked SSSD's back-ends anything in {seconds:.1} s; what its caches have it \
             answers without them (sss_cache -E has them asked again)"
        ),
        false => format!(
            "roster-lab: nobody asked rosterd anything in {seconds:.1} s; programs do only where the snapshot \
             leaves something open, that is of domains with mode = \"on-demand\""
        ),
    }
}

fn warnings(collected: &TraceCapture) -> Vec<ReportedWarning> {
    let mut warnings = Vec::new();
    let mut warn = |kind: &str, text: String| {
        warnings.push(ReportedWarning { kind: kind.to_owned(), text });
    };
    if collected.lost > 0 {
        warn(
            "lost",
            format!(
                "{} events came faster than bpftrace took them, so counts are too low and some requests lack \
                 hops: trace at a lower load",
                collected.lost
            ),
        );
    }
    if collected.is_full {
        warn(
            "full",
            format!("it ended after {:.1} s, with as many events as are kept", collected.seconds),
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
        bail!(
            "{file} (process {monitor}) has {} of rosterd's probes: take a rosterd of this program's version, \
             {}, whose notes were not stripped",
            if probes.is_empty() { "none" } else { "not all" },
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
        bail!(
            "this SSSD has no probes ({}): it was built without them (--enable-systemtap)",
            files.join(", ")
        );
    }
    let domains: HashMap<u32, String> =
        back_ends.iter().map(|one| (one.pid, one.domain.clone())).collect();
    let collected =
        collect_with_progress(args, "sssd", &targets, |pid| domains.contains_key(&pid))?;
    let joined = sssd_probes::join(&collected.events, &collected.texts, &domains);
    Ok((collected, joined, back_ends.iter().map(|one| one.pid).collect()))
}

/// Collects, with a bar that shows how it goes.
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
    bar.set_message("putting probes in place");
    bar.tick();
    let mut is_told = args.quiet;
    let collected = collect(targets, args.duration, &stop, belongs, |elapsed, events| {
        if !std::mem::replace(&mut is_told, true) {
            let seconds = args.duration.as_secs_f64();
            let text = format!("looking at {what} for {seconds} s; Ctrl-C ends it with a report");
            bar.suspend(|| print_error(&text));
        }
        bar.set_position(millis(elapsed));
        bar.set_message(format!("{events} events"));
    });
    bar.finish_and_clear();
    collected
}
