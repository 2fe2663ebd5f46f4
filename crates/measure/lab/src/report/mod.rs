// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports: figures of runs, and warnings about them. A report is written as [text], as JSON (its fields are the
//! structures of this module) and as percentiles for plotters. This module measures nothing.

pub mod run_warnings;
pub mod text;

use crate::recorder::{BATCHES, Batch, Recorder};
use crate::request_error::OTHER_KINDS;
use crate::runner::RunResult;
use hdrhistogram::Histogram;
use roster_messages::Message;
use roster_messages::table::lab;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

/// Percentiles of the curves.
const PERCENTILES: [f64; 26] = [
    0.0, 1.0, 5.0, 10.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5,
    95.0, 97.5, 99.0, 99.5, 99.75, 99.9, 99.95, 99.99, 99.999, 100.0,
];
/// Remedies for a lack of ports.
pub const PORT_REMEDIES: &str = "Connect from more addresses (--source), or close with a reset (--close \
                              reset), which the server sees as a broken connection.";

/// Percentiles in milliseconds from the intended start to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LatencyPercentiles {
    /// Maximum of half of the requests.
    pub p50: f64,
    /// Maximum of 90 % of the requests.
    pub p90: f64,
    /// Maximum of 99 % of the requests.
    pub p99: f64,
    /// Maximum of 99.9 % of the requests.
    pub p999: f64,
    /// Maximum of all requests.
    pub max: f64,
}

/// A warning about the figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Warning {
    /// Word for programs. A report keeps the worst warning of each kind.
    pub kind: &'static str,
    /// The row of the table of codes.
    #[serde(rename = "code", serialize_with = "serialize_code")]
    pub message: &'static Message,
    /// Severity: the quantity that the kind measures.
    pub ratio: f64,
    /// Consequence and remedy.
    pub text: String,
}

impl Warning {
    /// Formats the text with its code.
    #[must_use]
    pub fn with_code(&self) -> String {
        format!("{} [{}]", self.text, self.message.code)
    }
}

fn serialize_code<S: Serializer>(
    message: &&'static Message,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(message.code)
}

/// A comparison before a run, and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckFinding {
    /// Word for programs, the same as of the warning for this comparison.
    pub kind: &'static str,
    /// The compared loads.
    pub what: &'static str,
    /// Ratio of both sides; `None` if they could not be compared.
    pub ratio: Option<f64>,
    /// Figures of both sides, or the reason that they could not be compared.
    pub seen: String,
    /// Code of that reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
}

/// Figures of one run, or of several runs together.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunStats {
    /// Number of users, or maximum number of concurrent requests in an open loop.
    pub users: u32,
    /// The requested rate; `None` in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// Number of requests with an intended start in the measured time.
    pub requests: u64,
    pub failures: u64,
    /// Requests per second in the measured time, failed ones included. A request counts by its share in that time.
    pub rate: f64,
    /// Latencies from the intended start.
    pub latency_ms: LatencyPercentiles,
    /// Processor time of the generator in microseconds per request.
    pub client_cpu_us_per_op: f64,
    /// Processor time of a watched server in microseconds per request.
    pub server_cpu_us_per_op: Option<f64>,
    /// Resident memory of the server at the end.
    pub server_memory_bytes: Option<u64>,
    /// For commands: median time of a process that does nothing, at the same load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_ms: Option<f64>,
    pub failures_by_kind: BTreeMap<String, u64>,
    /// Codes of these kinds.
    #[serde(default)]
    pub failure_codes: BTreeMap<String, String>,
    pub warm_up_requests: u64,
    /// The whole distribution: percentiles and their milliseconds.
    pub percentiles_ms: Vec<(f64, f64)>,
    /// Batches of equal duration: requests per second, and the mean latency in milliseconds.
    pub batches: Vec<(f64, f64)>,
    /// Duration of the measured time.
    pub seconds: f64,
}

/// The origin of figures.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    /// Version of roster-lab.
    pub version: &'static str,
    /// The machine that made the load.
    pub host: Host,
    /// Seconds since 1970.
    pub time: u64,
    /// The options without secrets.
    pub plan: Value,
}

/// The machine that made the load.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Host {
    pub name: String,
    /// Name and release of its kernel.
    pub kernel: String,
    pub processor: String,
    /// Number of processors that this program may use.
    pub processors: usize,
}

impl Host {
    #[must_use]
    pub fn this() -> Self {
        let uname = rustix::system::uname();
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = text.lines().find_map(|line| line.strip_prefix("model name"));
        let model = model.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
        Self {
            name: uname.nodename().to_string_lossy().into_owned(),
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            processor: model.unwrap_or(std::env::consts::ARCH).to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The highest rate within the bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Knee {
    /// Requests per second; `None` if no rate was within the bound.
    pub rate: Option<f64>,
    /// Maximum of the 99th percentile.
    pub p99_ms: f64,
    /// Maximum share of failures.
    pub failures: f64,
    /// Code of a search without a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// Figures of all runs together.
    #[serde(flatten)]
    pub figures: RunStats,
    /// Warnings about the figures.
    pub warnings: Vec<Warning>,
    /// Results of the pre-run checks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<CheckFinding>,
    /// Number of requests of those checks, which no figure includes.
    pub probe_requests: u64,
    /// Figures of each run, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<RunStats>,
    /// Result of a search for the knee.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knee: Option<Knee>,
    /// Whether a signal stopped the run.
    pub interrupted: bool,
    /// Origin of the figures.
    pub origin: Origin,
}

/// The report of `roster-lab check`.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// Results of the checks.
    pub probes: Vec<CheckFinding>,
    /// Warnings about the figures of a run.
    pub warnings: Vec<Warning>,
    /// Whether a signal stopped the checks.
    pub interrupted: bool,
    /// Origin of the results.
    pub origin: Origin,
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn microseconds_each(time: Duration, requests: f64) -> f64 {
    time.as_secs_f64() * 1e6 / requests.max(1.0)
}

impl RunStats {
    #[must_use]
    pub fn from_result(outcome: &RunResult, users: u32, offered: Option<f64>) -> Self {
        let recorder = &outcome.recorder;
        let at = |percentile| milliseconds(recorder.percentile(percentile));
        let cpu: Duration = outcome.threads.iter().map(|cost| cost.cpu).sum();
        let seconds = outcome.measured.as_secs_f64();
        let (mut by_kind, mut codes) = (BTreeMap::new(), BTreeMap::new());
        for (failure, &count) in &recorder.failures {
            codes.insert(failure.to_string(), failure.message().code.to_owned());
            by_kind.insert(failure.to_string(), count);
        }
        if recorder.other_failures > 0 {
            codes.insert(OTHER_KINDS.to_owned(), lab::OTHER_FAILURES.code.to_owned());
            by_kind.insert(OTHER_KINDS.to_owned(), recorder.other_failures);
        }
        let server = outcome.server;
        Self {
            users,
            offered,
            requests: recorder.requests,
            failures: recorder.failed(),
            rate: outcome.rate(),
            latency_ms: LatencyPercentiles {
                p50: at(50.0),
                p90: at(90.0),
                p99: at(99.0),
                p999: at(99.9),
                max: milliseconds(recorder.max()),
            },
            client_cpu_us_per_op: microseconds_each(cpu, recorder.requests_in_window),
            server_cpu_us_per_op: server
                .map(|server| microseconds_each(server.cpu, recorder.requests_in_window)),
            server_memory_bytes: server.map(|server| server.memory),
            startup_ms: None,
            failures_by_kind: by_kind,
            failure_codes: codes,
            warm_up_requests: recorder.warm_up,
            percentiles_ms: PERCENTILES.map(|percentile| (percentile, at(percentile))).to_vec(),
            batches: batches(outcome),
            seconds,
        }
    }
}

impl RunStats {
    /// Formats a kind of failure with its code. A report of an older version has no codes.
    #[must_use]
    pub fn with_code(&self, kind: &str) -> String {
        let code = self.failure_codes.get(kind).map(|code| format!(" [{code}]"));
        format!("{kind}{}", code.unwrap_or_default())
    }
}

/// Returns the batches of a complete run. Returns an empty list for an interrupted run.
fn batches(outcome: &RunResult) -> Vec<(f64, f64)> {
    if outcome.interrupted || outcome.planned.is_zero() {
        return Vec::new();
    }
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let piece = outcome.planned.as_secs_f64() / BATCHES as f64;
    let each = |batch: &Batch| {
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let (requests, latencies) = (batch.requests as f64, batch.latencies.max(1) as f64);
        (requests / piece.max(1e-9), milliseconds(batch.sum) / latencies)
    };
    outcome.recorder.batches.iter().map(each).collect()
}

/// Adds warnings of another run, and keeps the worst of each kind.
pub fn add_worst(known: &mut Vec<Warning>, others: Vec<Warning>) {
    for warning in others {
        match known.iter_mut().find(|other| other.kind == warning.kind) {
            Some(other) if other.ratio < warning.ratio => *other = warning,
            Some(_) => {}
            None => known.push(warning),
        }
    }
}

/// Writes the percentile distribution in the format of HdrHistogram, in milliseconds.
pub fn write_percentiles(recorder: &Recorder, out: &mut dyn Write) -> io::Result<()> {
    const TICKS_PER_HALF_DISTANCE: u32 = 5;
    const NANOSECONDS: f64 = 1e6;
    let latency: &Histogram<u64> = &recorder.latency;
    writeln!(out, "       Value     Percentile TotalCount 1/(1-Percentile)\n")?;
    let mut count = 0;
    for step in latency.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        count += step.count_since_last_iteration();
        #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
        let value = step.value_iterated_to() as f64 / NANOSECONDS;
        let quantile = step.quantile_iterated_to();
        write!(out, "{value:12.6} {quantile:2.12} {count:10}")?;
        if quantile < 1.0 {
            writeln!(out, " {:14.2}", 1.0 / (1.0 - quantile))?;
        } else {
            writeln!(out)?;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    let max = latency.max() as f64 / NANOSECONDS;
    writeln!(
        out,
        "#[Mean    = {:12.6}, StdDeviation   = {:12.6}]\n#[Max     = {max:12.6}, Total count    = {:12}]\n\
         #[Buckets = {:12}, SubBuckets     = {:12}]",
        latency.mean() / NANOSECONDS,
        latency.stdev() / NANOSECONDS,
        latency.len(),
        latency.buckets(),
        2048,
    )
}

#[cfg(test)]
mod tests {
    use super::run_warnings::outcome;
    use super::*;
    use crate::request_error::RequestError;

    #[test]
    fn percentiles_for_plotters_end_with_all_requests() {
        let mut text = Vec::new();
        write_percentiles(&outcome(0.1, 0.0).recorder, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let last = text.lines().rfind(|line| line.contains("1.000000000000")).unwrap();
        let fields: Vec<&str> = last.split_whitespace().collect();
        let value: f64 = fields[0].parse().unwrap();
        assert!((value / 10.0 - 1.0).abs() < 0.001 && fields[2] == "1000", "{last}");
        assert!(text.contains("Total count    =         1000]"), "{text}");
    }

    #[test]
    fn report_counts_further_errors_with_code() {
        let mut outcome = RunResult::default();
        let now = std::time::Instant::now();
        for code in 0..1000 {
            outcome.recorder.record(now, now, Err(RequestError::Exited(code)));
        }
        let figures = RunStats::from_result(&outcome, 1, None);
        assert_eq!(figures.failure_codes["exit code 0"], lab::COMMAND_EXITED.code);
        assert_eq!(figures.failure_codes[OTHER_KINDS], lab::OTHER_FAILURES.code);
        assert_eq!(figures.failures_by_kind.values().sum::<u64>(), 1000);
    }
}
