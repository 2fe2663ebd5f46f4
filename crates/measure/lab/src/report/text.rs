// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports as text for people. This module decides nothing: `run_warnings` and `preflight` do.

use super::{CheckReport, RunReport, RunStats, Warning};
use roster_messages::table::lab;
use std::io::{self, Write};

/// Writes the report of runs.
pub fn write(report: &RunReport, out: &mut dyn Write) -> io::Result<()> {
    if report.stages.is_empty() {
        write_single(&report.figures, out)?;
    } else {
        write_curve(&report.stages, out)?;
    }
    if let Some(knee) = report.knee {
        let bound = format!(
            "p99 {} and at most {:.1} % failures",
            milliseconds(knee.p99_ms),
            knee.failures * 100.0
        );
        match knee.rate {
            Some(rate) => writeln!(out, "\nknee: {} requests/s with {bound}", count(rate))?,
            None => writeln!(
                out,
                "\nknee: none; no rate of the search has {bound}. {} [{}]",
                lab::KNEE_NOT_FOUND.fix,
                lab::KNEE_NOT_FOUND.code
            )?,
        }
    }
    for (kind, number) in &report.figures.failures_by_kind {
        writeln!(out, "failed: {number} × {}", report.figures.with_code(kind))?;
    }
    write_warnings(&report.warnings, out)?;
    if report.interrupted {
        write_interrupted("the figures cover only the time until then", out)?;
    }
    Ok(())
}

fn write_warnings(warnings: &[Warning], out: &mut dyn Write) -> io::Result<()> {
    warnings.iter().try_for_each(|warning| writeln!(out, "! {}", warning.with_code()))
}

fn write_interrupted(consequence: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "! a signal stopped the run: {consequence}. [{}]", lab::RUN_INTERRUPTED.code)
}

/// Writes the report of checks.
pub fn write_checks(checks: &CheckReport, out: &mut dyn Write) -> io::Result<()> {
    for finding in &checks.probes {
        let ratio = finding.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let code = finding.code.map(|code| format!(" [{code}]")).unwrap_or_default();
        writeln!(out, "{:<38} {ratio:>8}  {}{code}", finding.what, finding.seen)?;
    }
    write_warnings(&checks.warnings, out)?;
    if checks.interrupted {
        write_interrupted("some comparisons are missing", out)
    } else if checks.warnings.is_empty() {
        writeln!(out, "no problems found.")
    } else {
        Ok(())
    }
}

fn write_single(figures: &RunStats, out: &mut dyn Write) -> io::Result<()> {
    let latency = figures.latency_ms;
    writeln!(
        out,
        "requests   {} in {:.2} s, {} failed ({} of the warm-up excluded)",
        figures.requests, figures.seconds, figures.failures, figures.warm_up_requests
    )?;
    write!(out, "rate       {}/s", count(figures.rate))?;
    match figures.offered {
        Some(offered) => writeln!(out, " of {} offered", count(offered))?,
        None => writeln!(out, " with {} users", figures.users)?,
    }
    if figures.requests == 0 {
        let begun = figures.warm_up_requests;
        let cause =
            if begun > 0 { "all requests began in the warm-up" } else { "no request began" };
        let message = &lab::NO_REQUEST_MEASURED;
        writeln!(out, "latency    n/a: {cause}. {} [{}]", message.fix, message.code)?;
    } else if latency.max == 0.0 {
        let code = lab::NO_REPLY_MEASURED.code;
        writeln!(out, "latency    n/a: no request was answered. [{code}]")?;
    } else {
        writeln!(
            out,
            "latency    p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
            milliseconds(latency.p50),
            milliseconds(latency.p90),
            milliseconds(latency.p99),
            milliseconds(latency.p999),
            milliseconds(latency.max)
        )?;
    }
    if let Some(startup) = figures.startup_ms {
        writeln!(
            out,
            "start-up   {} of the median: time of a process that does nothing",
            milliseconds(startup)
        )?;
    }
    write!(out, "processor  client {:.1} µs a request", figures.client_cpu_us_per_op)?;
    if let Some(server) = figures.server_cpu_us_per_op {
        write!(out, ", server {server:.1} µs")?;
    }
    if let Some(bytes) = figures.server_memory_bytes {
        write!(out, " and {} MiB", bytes >> 20)?;
    }
    writeln!(out)
}

/// Writes a line for each run.
fn write_curve(stages: &[RunStats], out: &mut dyn Write) -> io::Result<()> {
    let is_open = stages.iter().any(|stage| stage.offered.is_some());
    let first = if is_open { "offered/s" } else { "users" };
    let starts = stages.iter().any(|stage| stage.startup_ms.is_some());
    let is_watched = stages.iter().any(|stage| stage.server_cpu_us_per_op.is_some());
    writeln!(
        out,
        "{first:>9} {:>7} {:>6} {:>8} {:>8} {:>8} {:>8} {:>9}{}{}",
        "rate/s",
        "failed",
        "p50",
        "p90",
        "p99",
        "max",
        "client µs",
        if is_watched { " server µs" } else { "" },
        if starts { "  start-up" } else { "" }
    )?;
    for stage in stages {
        let given = stage.offered.map_or_else(|| stage.users.to_string(), count);
        let latency = stage.latency_ms;
        writeln!(
            out,
            "{given:>9} {:>7} {:>6} {:>8} {:>8} {:>8} {:>8} {:>9.1}{}{}",
            count(stage.rate),
            stage.failures,
            milliseconds(latency.p50),
            milliseconds(latency.p90),
            milliseconds(latency.p99),
            milliseconds(latency.max),
            stage.client_cpu_us_per_op,
            server_column(stage, is_watched),
            stage
                .startup_ms
                .map_or(String::new(), |startup| format!(" {:>9}", milliseconds(startup))),
        )?;
    }
    Ok(())
}

/// Formats the column of the server's processor time, which is empty if no run has it.
pub fn server_column(run: &RunStats, is_watched: bool) -> String {
    let time = run.server_cpu_us_per_op.map_or("-".to_owned(), |server| format!("{server:.1}"));
    if is_watched { format!(" {time:>9}") } else { String::new() }
}

/// Formats a number with a digit after the point if it is small.
fn count(number: f64) -> String {
    if number < 100.0 { format!("{number:.1}") } else { format!("{number:.0}") }
}

/// Formats a time in a suitable unit.
pub fn milliseconds(milliseconds: f64) -> String {
    match milliseconds {
        below if below < 1.0 => format!("{:.0} µs", below * 1e3),
        below if below < 100.0 => format!("{below:.2} ms"),
        below if below < 1000.0 => format!("{below:.0} ms"),
        _ => format!("{:.2} s", milliseconds / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Host, Knee, Origin};
    use crate::request_error::RequestError;
    use crate::runner::RunResult;
    use serde_json::Value;
    use std::time::Instant;

    fn report(outcome: &RunResult) -> RunReport {
        let origin = Origin { version: "1", host: Host::this(), time: 0, plan: Value::Null };
        RunReport {
            figures: RunStats::from_result(outcome, 1, None),
            warnings: Vec::new(),
            probes: Vec::new(),
            probe_requests: 0,
            stages: Vec::new(),
            knee: None,
            interrupted: outcome.interrupted,
            origin,
        }
    }

    #[test]
    fn report_text_missing_figures_have_codes() {
        let none = RunResult::default();
        let mut closed = RunResult::default();
        let now = Instant::now();
        closed.recorder.record(now, now, Err(RequestError::Closed));
        let knee =
            Knee { rate: None, p99_ms: 5.0, failures: 0.01, code: Some(lab::KNEE_NOT_FOUND.code) };
        let interrupted = RunResult { interrupted: true, ..RunResult::default() };
        for (report, message) in [
            (report(&none), &lab::NO_REQUEST_MEASURED),
            (report(&closed), &lab::NO_REPLY_MEASURED),
            (report(&interrupted), &lab::RUN_INTERRUPTED),
            (RunReport { knee: Some(knee), ..report(&none) }, &lab::KNEE_NOT_FOUND),
        ] {
            let mut text = Vec::new();
            write(&report, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains(&format!("[{}]", message.code)), "{message}: {text}");
        }
    }
}
