//! A report as a person reads it.

use super::{CheckReport, RunReport, RunStats, Warning};
use std::io::{self, Write};

/// Writes the whole of it.
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
            None => writeln!(out, "\nknee: none; no rate that was tried has {bound}")?,
        }
    }
    for (kind, number) in &report.figures.failures_by_kind {
        writeln!(out, "failed: {number} × {kind}")?;
    }
    write_warnings(&report.warnings, out)?;
    if report.interrupted {
        writeln!(out, "! ended before its time: the figures are of what ran until then.")?;
    }
    Ok(())
}

fn write_warnings(warnings: &[Warning], out: &mut dyn Write) -> io::Result<()> {
    warnings.iter().try_for_each(|warning| writeln!(out, "! {}", warning.text))
}

/// Writes what was found without a run.
pub fn write_checks(checks: &CheckReport, out: &mut dyn Write) -> io::Result<()> {
    for finding in &checks.probes {
        let ratio = finding.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        writeln!(out, "{:<38} {ratio:>8}  {}", finding.what, finding.seen)?;
    }
    write_warnings(&checks.warnings, out)?;
    if checks.interrupted {
        writeln!(out, "! ended before its time: not all was compared.")
    } else if checks.warnings.is_empty() {
        writeln!(
            out,
            "nothing was found that would make the figures of a run other than they seem."
        )
    } else {
        Ok(())
    }
}

fn write_single(figures: &RunStats, out: &mut dyn Write) -> io::Result<()> {
    let latency = figures.latency_ms;
    writeln!(
        out,
        "requests   {} in {:.2} s, {} failed ({} of the warm-up left out)",
        figures.requests, figures.seconds, figures.failures, figures.warm_up_requests
    )?;
    write!(out, "rate       {}/s", count(figures.rate))?;
    match figures.offered {
        Some(offered) => writeln!(out, " of {} offered", count(offered))?,
        None => writeln!(out, " with {} users", figures.users)?,
    }
    if figures.requests == 0 {
        let begun = figures.warm_up_requests;
        let why = if begun > 0 { "all began in the warm-up" } else { "none began" };
        writeln!(out, "latency    of no request: {why}; make --duration longer than one takes")?;
    } else if latency.max == 0.0 {
        writeln!(out, "latency    of no request: none was answered")?;
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
            "start-up   {} of the median: what a process takes that does nothing",
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

/// A line for each run.
fn write_curve(stages: &[RunStats], out: &mut dyn Write) -> io::Result<()> {
    let is_open = stages.iter().any(|stage| stage.offered.is_some());
    let first = if is_open { "offered/s" } else { "users" };
    let starts = stages.iter().any(|stage| stage.startup_ms.is_some());
    writeln!(
        out,
        "{first:>10} {:>10} {:>8} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9}{}",
        "rate/s",
        "failed",
        "p50",
        "p90",
        "p99",
        "max",
        "client µs",
        "server µs",
        if starts { "   start-up" } else { "" }
    )?;
    for stage in stages {
        let given = stage.offered.map_or_else(|| stage.users.to_string(), count);
        let latency = stage.latency_ms;
        writeln!(
            out,
            "{given:>10} {:>10} {:>8} {:>10} {:>10} {:>10} {:>10} {:>9.1} {:>9}{}",
            count(stage.rate),
            stage.failures,
            milliseconds(latency.p50),
            milliseconds(latency.p90),
            milliseconds(latency.p99),
            milliseconds(latency.max),
            stage.client_cpu_us_per_op,
            stage.server_cpu_us_per_op.map_or("-".to_owned(), |server| format!("{server:.1}")),
            stage
                .startup_ms
                .map_or(String::new(), |startup| format!(" {:>10}", milliseconds(startup))),
        )?;
    }
    Ok(())
}

/// With as many digits as tell two apart.
fn count(number: f64) -> String {
    if number < 100.0 { format!("{number:.1}") } else { format!("{number:.0}") }
}

/// In the unit that fits.
pub fn milliseconds(milliseconds: f64) -> String {
    match milliseconds {
        below if below < 1.0 => format!("{:.0} µs", below * 1e3),
        below if below < 100.0 => format!("{below:.2} ms"),
        below if below < 1000.0 => format!("{below:.0} ms"),
        _ => format!("{:.2} s", milliseconds / 1e3),
    }
}
