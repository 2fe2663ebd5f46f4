// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of requests by stage and provider, from the USDT probes of a service. bpftrace reads the probes, and events are
//! joined by request. This module changes no service.
//!
//! | | |
//! |---|---|
//! | [`processes`] | processes with probes |
//! | [`bpftrace_script`], [`bpftrace`], [`collect`] | from probes to events |
//! | [`rosterd_probes`], [`sssd_probes`] | lists of probes, and from events to times |
//! | this module, [`html`] | from times to a report |

pub mod bpftrace;
pub mod bpftrace_script;
pub mod collect;
pub mod html;
pub mod processes;
pub mod rosterd_probes;
pub mod sssd_probes;

use crate::compare::{LoadedOrigin, ReportedWarning};
use crate::report::text::milliseconds;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A stage of a request.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RequestStage {
    pub name: &'static str,
    /// Description of the stage.
    pub meaning: &'static str,
}

/// Figures from joined events.
#[derive(Debug, Default)]
pub struct StageTimes {
    /// Number of complete requests.
    pub requests: u64,
    /// Number of incomplete requests.
    pub unfinished: u64,
    /// Number of requests by kind.
    pub kinds: BTreeMap<String, u64>,
    /// Number of requests by result.
    pub results: BTreeMap<String, u64>,
    /// Nanoseconds by number of the stage, and by domain with provider. The latter may be empty.
    pub times: BTreeMap<(usize, String), Vec<u64>>,
}

impl StageTimes {
    fn add(&mut self, hop: usize, place: Option<&str>, time: Option<u64>) {
        if let Some(time) = time {
            let place = place.unwrap_or_default().to_owned();
            self.times.entry((hop, place)).or_default().push(time);
        }
    }
}

/// Percentiles of a stage, with minimum and maximum.
const PERCENTILES: [f64; 9] = [0.0, 1.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 100.0];

/// Figures of a stage at one provider, or of a stage without one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageRow {
    /// Name of the stage.
    pub hop: &'static str,
    /// Domain and provider.
    pub provider: Option<String>,
    /// Number of times.
    pub count: usize,
    /// Percentiles of the times in milliseconds.
    pub percentiles_ms: Vec<(f64, f64)>,
}

impl StageRow {
    fn new(hop: &'static str, provider: &str, mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let provider = (!provider.is_empty()).then(|| provider.to_owned());
        let percentiles_ms = PERCENTILES.map(|at| (at, nearest(&times, at))).to_vec();
        Self { hop, provider, count: times.len(), percentiles_ms }
    }

    /// Returns a percentile in milliseconds.
    #[must_use]
    pub fn percentile(&self, percentile: f64) -> f64 {
        let found = self.percentiles_ms.iter().find(|(at, _)| (at - percentile).abs() < 1e-9);
        found.map_or(0.0, |(_, value)| *value)
    }
}

/// Returns a percentile of sorted times in milliseconds, by the nearest rank.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "millions of times, of less than a day"
)]
fn nearest(sorted: &[u64], percentile: f64) -> f64 {
    let rank = (percentile / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).map_or(0.0, |time| *time as f64 / 1e6)
}

/// The report of a trace.
#[derive(Debug, Serialize)]
pub struct TraceReport {
    /// The traced service: `rosterd` or `sssd`.
    pub of: &'static str,
    /// The service's processes.
    pub pids: Vec<u32>,
    /// Number of complete requests.
    pub requests: u64,
    /// Number of requests that began before or ended after the trace.
    pub unfinished: u64,
    /// Number of requests by kind.
    pub kinds: BTreeMap<String, u64>,
    /// Number of requests by result.
    pub results: BTreeMap<String, u64>,
    /// Stages in the order of a request.
    pub hops: Vec<StageRow>,
    /// Descriptions of the stages.
    pub meanings: Vec<RequestStage>,
    /// Duration of the trace.
    pub seconds: f64,
    /// Number of events.
    pub events: usize,
    /// Number of lost events.
    pub lost_events: u64,
    /// Warnings about the figures.
    pub warnings: Vec<ReportedWarning>,
    /// Whether Ctrl-C ended the trace.
    pub interrupted: bool,
    /// Origin of the figures.
    pub origin: LoadedOrigin,
}

/// Returns stages as rows, and the descriptions of these stages.
#[must_use]
pub fn rows(
    hops: &'static [RequestStage],
    times: BTreeMap<(usize, String), Vec<u64>>,
) -> (Vec<StageRow>, Vec<RequestStage>) {
    let rows: Vec<StageRow> = times
        .into_iter()
        .filter_map(|((hop, place), times)| Some(StageRow::new(hops.get(hop)?.name, &place, times)))
        .collect();
    let seen = hops.iter().filter(|hop| rows.iter().any(|row| row.hop == hop.name));
    let meanings = seen.copied().collect();
    (rows, meanings)
}

/// Formats counts: `group_by_gid 2, user_by_name 17`.
fn counts(counts: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    words.join(", ")
}

impl TraceReport {
    /// Returns the totals in one or two lines.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let Self { of, requests, unfinished, seconds, .. } = self;
        let mut lines = vec![format!("{of}: {requests} requests in {seconds:.1} s")];
        if *unfinished > 0 {
            lines[0] += &format!(", and {unfinished} incomplete ones");
        }
        if !self.kinds.is_empty() {
            lines.push(format!("{}; {}", counts(&self.kinds), counts(&self.results)));
        }
        lines
    }

    /// Writes the report for a terminal.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for line in self.summary() {
            writeln!(out, "{line}")?;
        }
        let widest =
            |of: &dyn Fn(&StageRow) -> usize| self.hops.iter().map(of).max().unwrap_or_default();
        let hop = widest(&|row| row.hop.len()).max(8);
        let place = widest(&|row| row.provider.as_deref().map_or(0, |place| place.chars().count()));
        let place = place.clamp(8, 40);
        writeln!(
            out,
            "\n{:<hop$}  {:<place$} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "hop", "provider", "count", "p25", "median", "p75", "p99", "longest"
        )?;
        for row in &self.hops {
            let provider = row.provider.as_deref().unwrap_or("-");
            write!(out, "{:<hop$}  {provider:<place$} {:>6}", row.hop, row.count)?;
            for percentile in [25.0, 50.0, 75.0, 99.0, 100.0] {
                write!(out, " {:>8}", milliseconds(row.percentile(percentile)))?;
            }
            writeln!(out)?;
        }
        writeln!(out)?;
        for RequestStage { name, meaning } in &self.meanings {
            writeln!(out, "{name}: {meaning}")?;
        }
        for warning in &self.warnings {
            writeln!(out, "! {}", warning.with_code())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_seen() {
        let times: Vec<u64> = (1..=100).map(|time| time * 1_000_000).collect();
        let row = StageRow::new("directory", "corp (ldap)", times.into_iter().rev().collect());
        let at = [0.0, 1.0, 25.0, 50.0, 75.0, 99.0, 100.0].map(|at| row.percentile(at));
        assert_eq!(at, [1.0, 1.0, 25.0, 50.0, 75.0, 99.0, 100.0]);
        assert_eq!(StageRow::new("directory", "", vec![7_000_000]).percentile(1.0), 7.0);
    }
}
