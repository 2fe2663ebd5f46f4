//! What a run says: figures, and what to think of them. The same report is written as
//! [text], as JSON (its fields are this module's structures) and as percentiles for plotters.

pub mod run_warnings;
pub mod text;

use crate::recorder::{BATCHES, Batch, Recorder};
use crate::runner::RunResult;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

/// Those of which a curve is drawn.
const PERCENTILES: [f64; 26] = [
    0.0, 1.0, 5.0, 10.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5,
    95.0, 97.5, 99.0, 99.5, 99.75, 99.9, 99.95, 99.99, 99.999, 100.0,
];
/// What to do where no port is left.
pub const PORT_REMEDIES: &str = "Connect from more addresses (--source), or close with a reset (--close \
                              reset), which the server sees as a broken connection.";

/// Milliseconds from the intended start to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LatencyPercentiles {
    /// Half of the requests took no longer.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// 999 of a thousand.
    pub p999: f64,
    /// None took longer.
    pub max: f64,
}

/// What to know before a figure is believed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Warning {
    /// A word for programs.
    pub kind: &'static str,
    /// How bad it is: what the word measures.
    pub ratio: f64,
    /// What it means and what to do.
    pub text: String,
}

/// A comparison that was made before a run, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckFinding {
    /// A word for programs: that of the warning that it may become.
    pub kind: &'static str,
    /// What was compared.
    pub what: &'static str,
    /// How far the two are apart; none if they could not be compared.
    pub ratio: Option<f64>,
    pub seen: String,
}

/// Figures of one run, or of several together.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunStats {
    /// Users, or the most requests at a time in an open loop.
    pub users: u32,
    /// The rate that was asked for; none in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// Requests that were meant to start in the measured time.
    pub requests: u64,
    pub failures: u64,
    /// Requests a second that the measured time saw, well or not: of each the share that lay within it.
    pub rate: f64,
    /// From the intended start.
    pub latency_ms: LatencyPercentiles,
    /// Processor time of the generator, microseconds a request.
    pub client_cpu_us_per_op: f64,
    /// Processor time of the server, if it was looked at.
    pub server_cpu_us_per_op: Option<f64>,
    /// Resident memory of the server at the end.
    pub server_memory_bytes: Option<u64>,
    /// Of commands: what the start and end of a process takes that does nothing, at the same load, at
    /// the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_ms: Option<f64>,
    pub failures_by_kind: BTreeMap<String, u64>,
    pub warm_up_requests: u64,
    /// All of the distribution: percentiles and their milliseconds.
    pub percentiles_ms: Vec<(f64, f64)>,
    /// The run in pieces of equal length: requests a second, and the mean latency in milliseconds.
    pub batches: Vec<(f64, f64)>,
    /// The time that the figures are of.
    pub seconds: f64,
}

/// Where figures come from.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    /// Of this program.
    pub version: &'static str,
    /// Name, kernel, processor, number of processors.
    pub host: Host,
    /// Seconds since 1970.
    pub time: u64,
    /// The options, secrets left out.
    pub plan: Value,
}

/// The machine that made the load.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Host {
    pub name: String,
    /// Name and release of its kernel.
    pub kernel: String,
    pub processor: String,
    /// How many of them this program may use.
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

/// The highest rate below the bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Knee {
    /// Requests a second; none if the bound never held.
    pub rate: Option<f64>,
    /// The bound on the 99th percentile.
    pub p99_ms: f64,
    /// The bound on the share of failures.
    pub failures: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// Of all runs together.
    #[serde(flatten)]
    pub figures: RunStats,
    /// What to know before the figures are believed.
    pub warnings: Vec<Warning>,
    /// What was compared before the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<CheckFinding>,
    /// Requests of those comparisons, which are in no figure.
    pub probe_requests: u64,
    /// Each run, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<RunStats>,
    /// Where there was a search for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knee: Option<Knee>,
    /// Somebody ended it before its time.
    pub interrupted: bool,
    /// Where the figures come from.
    pub origin: Origin,
}

/// What was found without a run.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// What was compared.
    pub probes: Vec<CheckFinding>,
    /// What to know before a run's figures are believed.
    pub warnings: Vec<Warning>,
    /// Somebody ended it before its time.
    pub interrupted: bool,
    /// Where this comes from.
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
        let mut by_kind: BTreeMap<String, u64> = recorder
            .failures
            .iter()
            .map(|(failure, &count)| (failure.to_string(), count))
            .collect();
        if recorder.other_failures > 0 {
            by_kind.insert("of other kinds".to_owned(), recorder.other_failures);
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
            warm_up_requests: recorder.warm_up,
            percentiles_ms: PERCENTILES.map(|percentile| (percentile, at(percentile))).to_vec(),
            batches: batches(outcome),
            seconds,
        }
    }
}

/// The pieces of a run; none of one that was not carried out to its end.
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

/// Adds warnings of another run: of each kind, the worst.
pub fn add_worst(known: &mut Vec<Warning>, others: Vec<Warning>) {
    for warning in others {
        match known.iter_mut().find(|other| other.kind == warning.kind) {
            Some(other) if other.ratio < warning.ratio => *other = warning,
            Some(_) => {}
            None => known.push(warning),
        }
    }
}

/// The percentile distribution as HdrHistogram writes it, in milliseconds.
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
    use super::run_warnings::tests::outcome;
    use super::*;

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
}
