//! What one run's figures must be read with. Each check is a function; `CHECKS` has them in the order of their
//! warnings.

use super::{PORT_REMEDIES, Warning, milliseconds, ratio};
use crate::load_thread::ThreadUsage;
use crate::recorder::BATCHES;
use crate::request_error::RequestError;
use crate::runner::RunResult;
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
/// EADDRNOTAVAIL.
const NO_PORT_LEFT: i32 = 99;

const CHECKS: [fn(&MeasuredRun<'_>) -> Option<Warning>; 12] = [
    check_generator,
    check_processors,
    check_reachability,
    check_server,
    check_standstill,
    check_stuck_threads,
    check_lag,
    check_users,
    check_ports,
    check_datagrams,
    check_clocks,
    check_failures,
];

/// A run and the users that made its requests.
struct MeasuredRun<'r> {
    outcome: &'r RunResult,
    users: u32,
}

#[must_use]
pub fn check_run(outcome: &RunResult, users: u32) -> Vec<Warning> {
    let run = MeasuredRun { outcome, users };
    CHECKS.iter().filter_map(|check| check(&run)).collect()
}

impl MeasuredRun<'_> {
    /// The largest share of its time that a thread spent so.
    fn thread_share(&self, time: fn(&ThreadUsage) -> Duration) -> f64 {
        let threads = self.outcome.threads.iter().filter(|usage| !usage.wall.is_zero());
        let shares = threads.map(|usage| time(usage).as_secs_f64() / usage.wall.as_secs_f64());
        shares.fold(0.0, f64::max)
    }

    /// On a processor, or waiting for one.
    fn busy(&self) -> f64 {
        self.thread_share(|usage| usage.cpu + usage.queued)
    }

    /// Waiting for a processor.
    fn queued(&self) -> f64 {
        self.thread_share(|usage| usage.queued)
    }

    fn count_failures(&self, is_counted: impl Fn(&RequestError) -> bool) -> u64 {
        let failures = self.outcome.recorder.failures.iter();
        failures.filter(|(failure, _)| is_counted(failure)).map(|(_, count)| count).sum()
    }

    /// Requests that a KDC refused with that code.
    fn count_kerberos_errors(&self, wanted: u32) -> u64 {
        self.count_failures(
            |failure| matches!(failure, RequestError::ErrorCode("Kerberos", code, _) if *code == wanted),
        )
    }

    fn share(&self, requests: u64) -> f64 {
        ratio(requests, self.outcome.recorder.requests)
    }
}

fn check_generator(run: &MeasuredRun<'_>) -> Option<Warning> {
    let (busy, queued) = (run.busy(), run.queued());
    // Of next to no time nothing can be said.
    let is_measured = run.outcome.recorder.requests > 0;
    if busy < BUSY || run.outcome.blocks || !is_measured {
        return None;
    }
    let why = if queued > busy / 3.0 {
        format!(
            "it waited for a processor {:.0} % of the time, because others use this host's",
            queued * 100.0
        )
    } else {
        format!("its thread was busy {:.0} % of the time", busy * 100.0)
    };
    Some(Warning {
        kind: "generator",
        ratio: busy,
        text: format!(
            "the generator was the limit: {why}. The server may be able to do more, and latencies \
             hold waits of ours. Give it more --threads (now {}) and processors of its own.",
            run.outcome.threads.len()
        ),
    })
}

fn check_processors(run: &MeasuredRun<'_>) -> Option<Warning> {
    let queued = run.queued();
    (queued >= QUEUED && run.outcome.blocks).then(|| Warning {
        kind: "generator",
        ratio: queued,
        text: format!(
            "the processors were the limit: threads waited {:.0} % of the time for one, and this \
             is in the latencies. Each user is a thread: have no more --users than processors \
             (now {}), or keep others off them.",
            queued * 100.0,
            run.users
        ),
    })
}

fn check_reachability(run: &MeasuredRun<'_>) -> Option<Warning> {
    let paused = run.outcome.recorder.paused.as_secs_f64() / f64::from(run.users.max(1));
    let unreachable = paused / run.outcome.measured.as_secs_f64().max(1e-9);
    (unreachable > UNREACHABLE).then(|| Warning {
        kind: "unreachable",
        ratio: unreachable,
        text: format!(
            "for {:.0} % of the time users had nobody to talk to: a connection failed, and each waits a \
             moment before it tries again. So failures are few beside answers, and the rate is of both \
             times: look at the pieces of the run (batches) for the one and the other.",
            unreachable.min(1.0) * 100.0
        ),
    })
}

fn check_server(run: &MeasuredRun<'_>) -> Option<Warning> {
    run.outcome.server_is_gone.then(|| Warning {
        kind: "server",
        ratio: 1.0,
        text: "the server that was looked at has ended in the run, or another took its place: what it \
               cost is not known."
            .to_owned(),
    })
}

fn check_standstill(run: &MeasuredRun<'_>) -> Option<Warning> {
    let idle = idle_share(run.outcome)?;
    Some(Warning {
        kind: "standstill",
        ratio: idle,
        text: format!(
            "in {:.0} % of the measured time no answer came at all, in the rest many did. Something stood \
             still: the server, the network or this host. Users who wait ask nothing meanwhile, so that in \
             a closed loop percentiles hardly show it; look at the longest latency and at the pieces of \
             the run (batches), and load at a --rate to have it counted.",
            idle * 100.0
        ),
    })
}

fn check_stuck_threads(run: &MeasuredRun<'_>) -> Option<Warning> {
    let stuck = run.outcome.stuck_threads;
    (stuck > 0).then(|| Warning {
        kind: "hung",
        ratio: run.share(stuck as u64),
        text: format!(
            "{stuck} requests had not come back in the end, and hang still; they count as failed. What \
             they ask (a directory, a daemon) does not answer, and has no time limit of its own."
        ),
    })
}

fn check_lag(run: &MeasuredRun<'_>) -> Option<Warning> {
    let recorder = &run.outcome.recorder;
    let lag = Duration::from_nanos(recorder.lag.value_at_percentile(99.0));
    let p99 = recorder.percentile(99.0);
    let is_late = lag > LAG_LEAST && lag > p99.mul_f64(LAG);
    (is_late && run.busy() < BUSY && !run.outcome.blocks).then(|| Warning {
        kind: "lag",
        ratio: lag.as_secs_f64() / p99.as_secs_f64(),
        text: format!(
            "the generator sent one request in a hundred {:.2} ms late or more, and this is in the \
             99th percentile of {:.2} ms. Something else took its processor: see to it that none \
             does, or read the high percentiles as upper bounds.",
            milliseconds(lag),
            milliseconds(p99)
        ),
    })
}

fn check_users(run: &MeasuredRun<'_>) -> Option<Warning> {
    let starved = run.share(run.outcome.recorder.starved);
    (starved > STARVED).then(|| Warning {
        kind: "users",
        ratio: starved,
        text: format!(
            "{:.0} % of the requests were due while all {} users waited for answers. Their \
             wait is counted, and is a part of the latencies. If the server was not at its limit, \
             allow more at a time with --users.",
            starved * 100.0,
            run.users
        ),
    })
}

fn check_ports(run: &MeasuredRun<'_>) -> Option<Warning> {
    let without_port =
        run.count_failures(|failure| matches!(failure, RequestError::System(_, NO_PORT_LEFT)));
    (without_port > 0).then(|| Warning {
        kind: "ports",
        ratio: run.share(without_port),
        text: format!(
            "{without_port} requests failed because no port of ours was left: what was measured is \
             how soon ports become free. {PORT_REMEDIES}"
        ),
    })
}

fn check_datagrams(run: &MeasuredRun<'_>) -> Option<Warning> {
    let too_big = run.count_kerberos_errors(TOO_BIG);
    (too_big > 0).then(|| Warning {
        kind: "datagram",
        ratio: run.share(too_big),
        text: format!(
            "{too_big} answers were too big for a datagram, so the KDC asked to be asked over TCP, as \
             clients then do: what was measured is that request. Run again with --protocol tcp."
        ),
    })
}

fn check_clocks(run: &MeasuredRun<'_>) -> Option<Warning> {
    let skewed = run.count_kerberos_errors(CLOCK_SKEW);
    (skewed > 0).then(|| Warning {
        kind: "clock",
        ratio: run.share(skewed),
        text: format!(
            "{skewed} requests were refused because this host's clock and the KDC's are too far \
             apart (five minutes, unless it is set otherwise): what was measured is how soon it \
             refuses. Set the clocks, then run again."
        ),
    })
}

fn check_failures(run: &MeasuredRun<'_>) -> Option<Warning> {
    let recorder = &run.outcome.recorder;
    let failed = run.share(recorder.failed());
    (failed > 0.0).then(|| {
        let kinds = recorder.failures.iter().max_by_key(|(_, count)| **count);
        let most = kinds.map(|(failure, _)| failure.to_string()).unwrap_or_default();
        Warning {
            kind: "failures",
            ratio: failed,
            text: format!(
                "{} of {} requests failed, most with: {most}. Rate and latencies are of all that were \
                 answered, well or not, and of those that timed out.",
                recorder.failed(),
                recorder.requests
            ),
        }
    })
}

/// The share of a run's pieces in which nothing was answered, if that is no wonder of so many requests.
fn idle_share(outcome: &RunResult) -> Option<f64> {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::recorder::Recorder;
    use std::time::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    pub fn outcome(busy: f64, queued: f64) -> RunResult {
        let mut recorder = Recorder::default();
        let start = Instant::now();
        for number in 1..=1000 {
            recorder.record(start, start + Duration::from_micros(number * 10), Ok(()));
        }
        let cost =
            ThreadUsage { cpu: SECOND.mul_f64(busy), queued: SECOND.mul_f64(queued), wall: SECOND };
        recorder.requests_in_window = 1000.0;
        RunResult { recorder, measured: SECOND, threads: vec![cost], ..RunResult::default() }
    }

    fn kinds(outcome: &RunResult) -> Vec<&'static str> {
        check_run(outcome, 4).iter().map(|warning| warning.kind).collect()
    }

    #[test]
    fn a_run_with_time_to_spare_is_not_warned_about() {
        assert!(kinds(&outcome(0.5, 0.01)).is_empty());
    }

    #[test]
    fn a_generator_at_its_limit_says_whether_others_took_its_processor() {
        let alone = check_run(&outcome(0.97, 0.01), 4);
        assert!(alone[0].kind == "generator" && alone[0].text.contains("was busy"), "{alone:?}");
        let crowded = check_run(&outcome(0.5, 0.45), 4);
        assert!(crowded[0].text.contains("waited for a processor 45 %"), "{crowded:?}");
    }

    #[test]
    fn lab_thread_limit_ignores_requesting_threads() {
        assert!(kinds(&RunResult { blocks: true, ..outcome(1.0, 0.0) }).is_empty());
        assert_eq!(kinds(&RunResult { blocks: true, ..outcome(0.2, 0.8) }), ["generator"]);
        assert_eq!(
            kinds(&RunResult { blocks: true, stuck_threads: 1, ..outcome(0.2, 0.0) }),
            ["hung"]
        );
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
        failing.recorder.record(now, now, Err(RequestError::TimedOut));
        assert_eq!(kinds(&failing), ["failures"]);
    }
}
