//! At which hop requests spend their time, by the probes that services have: looked at with bpftrace, joined
//! request by request, told per hop and provider.
//!
//! | | |
//! |---|---|
//! | [`processes`] | whose probes |
//! | [`bpftrace_script`], [`bpftrace`], [`collect`] | from probes to events |
//! | [`rosterd_probes`], [`sssd_probes`] | which probes there are, and from events to times |
//! | here, [`html`] | from times to a report |

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

/// A part of a request's way.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RequestStage {
    pub name: &'static str,
    /// What of a request's time it is.
    pub meaning: &'static str,
}

/// What events tell, put together.
#[derive(Debug, Default)]
pub struct StageTimes {
    /// Requests that were seen from begin to end.
    pub requests: u64,
    /// Others.
    pub unfinished: u64,
    /// What they were for.
    pub kinds: BTreeMap<String, u64>,
    /// What came of them.
    pub results: BTreeMap<String, u64>,
    /// Nanoseconds, by the number of a hop and a domain with its provider, which is empty where there is none.
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

/// Of the percentiles of a hop, with the shortest and the longest.
const PERCENTILES: [f64; 9] = [0.0, 1.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 100.0];

/// A hop at one provider, or one that has none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageRow {
    /// Its name.
    pub hop: &'static str,
    /// Domain and provider.
    pub provider: Option<String>,
    /// How often it was passed.
    pub count: usize,
    /// How long it took, by percentile.
    pub percentiles_ms: Vec<(f64, f64)>,
}

impl StageRow {
    fn new(hop: &'static str, provider: &str, mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let provider = (!provider.is_empty()).then(|| provider.to_owned());
        let percentiles_ms = PERCENTILES.map(|at| (at, nearest(&times, at))).to_vec();
        Self { hop, provider, count: times.len(), percentiles_ms }
    }

    /// In milliseconds.
    #[must_use]
    pub fn percentile(&self, percentile: f64) -> f64 {
        let found = self.percentiles_ms.iter().find(|(at, _)| (at - percentile).abs() < 1e-9);
        found.map_or(0.0, |(_, value)| *value)
    }
}

/// The smallest time that so many of a hundred do not exceed, in milliseconds.
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

/// What was seen.
#[derive(Debug, Serialize)]
pub struct TraceReport {
    /// Whose requests: `rosterd` or `sssd`.
    pub of: &'static str,
    /// Its processes.
    pub pids: Vec<u32>,
    /// Requests that were seen from begin to end.
    pub requests: u64,
    /// Others: they began before, or did not end within the time.
    pub unfinished: u64,
    /// What they were for.
    pub kinds: BTreeMap<String, u64>,
    /// What came of them.
    pub results: BTreeMap<String, u64>,
    /// Hops in the order in which requests come by.
    pub hops: Vec<StageRow>,
    /// What hops mean.
    pub meanings: Vec<RequestStage>,
    /// How long probes were looked at.
    pub seconds: f64,
    /// Times that a probe was passed.
    pub events: usize,
    /// Those that could not be kept.
    pub lost_events: u64,
    /// What to know before the figures are believed.
    pub warnings: Vec<ReportedWarning>,
    /// Ended by Ctrl-C.
    pub interrupted: bool,
    /// Where the figures come from.
    pub origin: LoadedOrigin,
}

/// Hops as rows, and what each of them means.
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

/// `group_by_gid 2, user_by_name 17`.
fn counts(counts: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    words.join(", ")
}

impl TraceReport {
    /// What was seen in all, in a line or two.
    #[must_use]
    pub fn summary(&self) -> Vec<String> {
        let Self { of, requests, unfinished, seconds, .. } = self;
        let mut lines = vec![format!("{of}: {requests} requests in {seconds:.1} s")];
        if *unfinished > 0 {
            lines[0] += &format!(", and {unfinished} of which only the begin or the end was seen");
        }
        if !self.kinds.is_empty() {
            lines.push(format!("{}; {}", counts(&self.kinds), counts(&self.results)));
        }
        lines
    }

    /// Writes it for a terminal.
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
            "\n{:<hop$}  {:<place$} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "hop", "provider", "count", "p25", "median", "p75", "p99", "longest"
        )?;
        for row in &self.hops {
            let provider = row.provider.as_deref().unwrap_or("-");
            write!(out, "{:<hop$}  {provider:<place$} {:>8}", row.hop, row.count)?;
            for percentile in [25.0, 50.0, 75.0, 99.0, 100.0] {
                write!(out, " {:>9}", milliseconds(row.percentile(percentile)))?;
            }
            writeln!(out)?;
        }
        writeln!(out)?;
        for RequestStage { name, meaning } in &self.meanings {
            writeln!(out, "{name}: {meaning}")?;
        }
        for warning in &self.warnings {
            writeln!(out, "! {}", warning.text)?;
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
