//! What a run says: figures, and what to think of them. The same report is written as
//! [text], as JSON (its fields are this module's structures) and as percentiles for plotters.

pub mod text;

use crate::failure::Failure;
use crate::recorder::{BATCHES, Batch, Recorder};
use crate::run::Outcome;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

/// A thread that was on or waited for a processor for this share of the time was the limit.
const BUSY: f64 = 0.9;
/// The share of requests that may have waited for a free user before the report speaks of it.
const STARVED: f64 = 0.01;
/// The share of the latency's 99th percentile that the generator's own delay may make up.
const LAG: f64 = 0.1;
/// The share of the time that threads which block may wait for a processor.
const QUEUED: f64 = 0.25;
/// The share of the users' time that may go with a server that cannot be talked to.
const UNREACHABLE: f64 = 0.01;
/// Pieces of a run without an answer that the report speaks of: a tenth.
const STALL_PIECES: usize = BATCHES / 10;
/// Requests that a piece has which is not one of those.
const STALL_REQUESTS: u64 = 20;
/// Delays of the generator that are not worth a word.
const LAG_LEAST: Duration = Duration::from_micros(200);

/// KRB_AP_ERR_SKEW.
const CLOCK_SKEW: u32 = 37;
/// KRB_ERR_RESPONSE_TOO_BIG.
const TOO_BIG: u32 = 52;
/// Those of which a curve is drawn.
const PERCENTILES: [f64; 26] = [
    0.0, 1.0, 5.0, 10.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5,
    95.0, 97.5, 99.0, 99.5, 99.75, 99.9, 99.95, 99.99, 99.999, 100.0,
];
/// EADDRNOTAVAIL.
const NO_PORT_LEFT: i32 = 99;
/// What to do about it.
pub const PORT_CURES: &str = "Connect from more addresses (--source), or close with a reset (--close \
                              reset), which the server sees as a broken connection.";

/// Milliseconds from the intended start to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Latency {
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
pub struct Finding {
    /// A word for programs: that of the warning that it may become.
    pub kind: &'static str,
    /// What was compared.
    pub what: &'static str,
    /// How far the two are apart; none if they could not be compared.
    pub ratio: Option<f64>,
    /// What was seen.
    pub seen: String,
}

/// Figures of one run, or of several together.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Figures {
    /// Users, or the most requests at a time in an open loop.
    pub users: u32,
    /// The rate that was asked for; none in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// Requests that were meant to start in the measured time.
    pub requests: u64,
    /// Those that failed.
    pub failures: u64,
    /// Requests a second that the measured time saw, well or not: of each the share that lay within it.
    pub rate: f64,
    /// From the intended start.
    pub latency_ms: Latency,
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
    /// Failures by kind.
    pub failures_by_kind: BTreeMap<String, u64>,
    /// Requests of the warm-up.
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
    /// Its name.
    pub name: String,
    /// Name and release of its kernel.
    pub kernel: String,
    /// Its processor.
    pub processor: String,
    /// How many of them this program may use.
    pub processors: usize,
}

impl Host {
    /// This one.
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

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of all runs together.
    #[serde(flatten)]
    pub figures: Figures,
    /// What to know before the figures are believed.
    pub warnings: Vec<Warning>,
    /// What was compared before the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Finding>,
    /// Requests of those comparisons, which are in no figure.
    pub probe_requests: u64,
    /// Each run, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Figures>,
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
pub struct Checks {
    /// What was compared.
    pub probes: Vec<Finding>,
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

impl Figures {
    /// Of one run.
    #[must_use]
    pub fn of(outcome: &Outcome, users: u32, offered: Option<f64>) -> Self {
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
            latency_ms: Latency {
                p50: at(50.0),
                p90: at(90.0),
                p99: at(99.0),
                p999: at(99.9),
                max: milliseconds(recorder.max()),
            },
            client_cpu_us_per_op: microseconds_each(cpu, recorder.served),
            server_cpu_us_per_op: server
                .map(|server| microseconds_each(server.cpu, recorder.served)),
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
fn batches(outcome: &Outcome) -> Vec<(f64, f64)> {
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

/// What one run's figures must be read with.
#[must_use]
pub fn warnings(outcome: &Outcome, users: u32) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let recorder = &outcome.recorder;
    let threads = outcome.threads.len();
    let share = |time: fn(&crate::worker::Cost) -> Duration| {
        let shares = outcome.threads.iter().filter(|cost| !cost.wall.is_zero());
        shares.map(|cost| time(cost).as_secs_f64() / cost.wall.as_secs_f64()).fold(0.0, f64::max)
    };
    let busy = share(|cost| cost.cpu + cost.queued);
    let queued = share(|cost| cost.queued);
    // Of next to no time nothing can be said.
    let is_measured = recorder.requests > 0;
    if busy >= BUSY && !outcome.blocks && is_measured {
        let why = if queued > busy / 3.0 {
            format!(
                "it waited for a processor {:.0} % of the time, because others use this host's",
                queued * 100.0
            )
        } else {
            format!("its thread was busy {:.0} % of the time", busy * 100.0)
        };
        warnings.push(Warning {
            kind: "generator",
            ratio: busy,
            text: format!(
                "the generator was the limit: {why}. The server may be able to do more, and latencies \
                 hold waits of ours. Give it more --threads (now {threads}) and processors of its own."
            ),
        });
    }
    if queued >= QUEUED && outcome.blocks {
        warnings.push(Warning {
            kind: "generator",
            ratio: queued,
            text: format!(
                "the processors were the limit: threads waited {:.0} % of the time for one, and this \
                 is in the latencies. Each user is a thread: have no more --users than processors \
                 (now {users}), or keep others off them.",
                queued * 100.0
            ),
        });
    }
    let paused = recorder.paused.as_secs_f64() / f64::from(users.max(1));
    let unreachable = paused / outcome.measured.as_secs_f64().max(1e-9);
    if unreachable > UNREACHABLE {
        warnings.push(Warning {
            kind: "unreachable",
            ratio: unreachable,
            text: format!(
                "for {:.0} % of the time users had nobody to talk to: a connection failed, and each waits a \
                 moment before it tries again. So failures are few beside answers, and the rate is of both \
                 times: look at the pieces of the run (batches) for the one and the other.",
                unreachable.min(1.0) * 100.0
            ),
        });
    }
    if outcome.server_is_gone {
        warnings.push(Warning {
            kind: "server",
            ratio: 1.0,
            text: "the server that was looked at has ended in the run, or another took its place: what it \
                   cost is not known."
                .to_owned(),
        });
    }
    if let Some(idle) = stalled(outcome) {
        warnings.push(Warning {
            kind: "standstill",
            ratio: idle,
            text: format!(
                "in {:.0} % of the measured time no answer came at all, in the rest many did. Something stood \
                 still: the server, the network or this host. Users who wait ask nothing meanwhile, so that in \
                 a closed loop percentiles hardly show it; look at the longest latency and at the pieces of \
                 the run (batches), and load at a --rate to have it counted.",
                idle * 100.0
            ),
        });
    }
    if outcome.left > 0 {
        warnings.push(Warning {
            kind: "hung",
            ratio: ratio(outcome.left as u64, recorder.requests),
            text: format!(
                "{} requests had not come back in the end, and hang still; they count as failed. What \
                 they ask (a directory, a daemon) does not answer, and has no time limit of its own.",
                outcome.left
            ),
        });
    }
    let lag = Duration::from_nanos(recorder.lag.value_at_percentile(99.0));
    let p99 = recorder.percentile(99.0);
    if lag > LAG_LEAST && lag > p99.mul_f64(LAG) && busy < BUSY && !outcome.blocks {
        warnings.push(Warning {
            kind: "lag",
            ratio: lag.as_secs_f64() / p99.as_secs_f64(),
            text: format!(
                "the generator sent one request in a hundred {:.2} ms late or more, and this is in the \
                 99th percentile of {:.2} ms. Something else took its processor: see to it that none \
                 does, or read the high percentiles as upper bounds.",
                milliseconds(lag),
                milliseconds(p99)
            ),
        });
    }
    let starved = ratio(recorder.starved, recorder.requests);
    if starved > STARVED {
        warnings.push(Warning {
            kind: "users",
            ratio: starved,
            text: format!(
                "{:.0} % of the requests were due while all {users} users waited for answers. Their \
                 wait is counted, and is a part of the latencies. If the server was not at its limit, \
                 allow more at a time with --users.",
                starved * 100.0
            ),
        });
    }
    let without_port = recorder
        .failures
        .iter()
        .filter(|(failure, _)| matches!(failure, Failure::System(_, NO_PORT_LEFT)))
        .map(|(_, count)| count)
        .sum();
    if without_port > 0 {
        warnings.push(Warning {
            kind: "ports",
            ratio: ratio(without_port, recorder.requests),
            text: format!(
                "{without_port} requests failed because no port of ours was left: what was measured is \
                 how soon ports become free. {PORT_CURES}"
            ),
        });
    }
    let refused_with = |wanted: u32| -> u64 {
        let of_kind = recorder.failures.iter().filter(|(failure, _)| {
            matches!(failure, Failure::Answered("Kerberos", code, _) if *code == wanted)
        });
        of_kind.map(|(_, count)| count).sum()
    };
    let too_big = refused_with(TOO_BIG);
    if too_big > 0 {
        warnings.push(Warning {
            kind: "datagram",
            ratio: ratio(too_big, recorder.requests),
            text: format!(
                "{too_big} answers were too big for a datagram, so the KDC asked to be asked over TCP, as \
                 clients then do: what was measured is that request. Run again with --protocol tcp."
            ),
        });
    }
    let skewed = refused_with(CLOCK_SKEW);
    if skewed > 0 {
        warnings.push(Warning {
            kind: "clock",
            ratio: ratio(skewed, recorder.requests),
            text: format!(
                "{skewed} requests were refused because this host's clock and the KDC's are too far \
                 apart (five minutes, unless it is set otherwise): what was measured is how soon it \
                 refuses. Set the clocks, then run again."
            ),
        });
    }
    let failed = ratio(recorder.failed(), recorder.requests);
    if failed > 0.0 {
        let kinds = recorder.failures.iter().max_by_key(|(_, count)| **count);
        let most = kinds.map(|(failure, _)| failure.to_string()).unwrap_or_default();
        warnings.push(Warning {
            kind: "failures",
            ratio: failed,
            text: format!(
                "{} of {} requests failed, most with: {most}. Rate and latencies are of all that were \
                 answered, well or not, and of those that timed out.",
                recorder.failed(),
                recorder.requests
            ),
        });
    }
    warnings
}

/// The share of a run's pieces in which nothing was answered, if that is no wonder of so many requests.
fn stalled(outcome: &Outcome) -> Option<f64> {
    if outcome.planned.is_zero() {
        return None;
    }
    let counts = outcome.recorder.batches.map(|batch| batch.requests);
    // Of a run that was stopped, those that were.
    let until = counts.iter().rposition(|&count| count > 0)? + 1;
    let idle = counts[..until].iter().filter(|&&count| count == 0).count();
    let busy = (until - idle) as u64;
    let is_many = counts.iter().sum::<u64>() >= STALL_REQUESTS * busy;
    (idle >= STALL_PIECES && is_many).then(|| ratio(idle as u64, until as u64))
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
    use super::*;
    use crate::worker::Cost;
    use std::time::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    fn outcome(busy: f64, queued: f64) -> Outcome {
        let mut recorder = Recorder::default();
        let start = Instant::now();
        for number in 1..=1000 {
            recorder.record(start, start + Duration::from_micros(number * 10), Ok(()));
        }
        let cost = Cost { cpu: SECOND.mul_f64(busy), queued: SECOND.mul_f64(queued), wall: SECOND };
        recorder.served = 1000.0;
        Outcome { recorder, measured: SECOND, threads: vec![cost], ..Outcome::default() }
    }

    fn kinds(outcome: &Outcome) -> Vec<&'static str> {
        warnings(outcome, 4).iter().map(|warning| warning.kind).collect()
    }

    #[test]
    fn a_run_with_time_to_spare_is_not_warned_about() {
        assert!(kinds(&outcome(0.5, 0.01)).is_empty());
    }

    #[test]
    fn a_generator_at_its_limit_says_whether_others_took_its_processor() {
        let alone = warnings(&outcome(0.97, 0.01), 4);
        assert!(alone[0].kind == "generator" && alone[0].text.contains("was busy"), "{alone:?}");
        let crowded = warnings(&outcome(0.5, 0.45), 4);
        assert!(crowded[0].text.contains("waited for a processor 45 %"), "{crowded:?}");
    }

    #[test]
    fn threads_that_are_busy_with_the_requests_themselves_are_no_limit_but_too_many_are() {
        assert!(kinds(&Outcome { blocks: true, ..outcome(1.0, 0.0) }).is_empty());
        assert_eq!(kinds(&Outcome { blocks: true, ..outcome(0.2, 0.8) }), ["generator"]);
        assert_eq!(kinds(&Outcome { blocks: true, left: 1, ..outcome(0.2, 0.0) }), ["hung"]);
    }

    #[test]
    fn late_starts_missing_users_and_failures_are_each_told() {
        let mut late = outcome(0.5, 0.0);
        (0..1000).for_each(|_| late.recorder.record_lag(Duration::from_millis(5)));
        assert_eq!(kinds(&late), ["lag"]);
        let mut starved = outcome(0.5, 0.0);
        starved.recorder.starved = 500;
        assert_eq!(kinds(&starved), ["users"]);
        let mut failing = outcome(0.5, 0.0);
        let now = Instant::now();
        failing.recorder.record(now, now, Err(Failure::TimedOut));
        assert_eq!(kinds(&failing), ["failures"]);
    }

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
