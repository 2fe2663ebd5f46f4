// SPDX-License-Identifier: MIT OR Apache-2.0
//! Warnings about the figures of one run. Each check is a function; `CHECKS` has them in the order of their warnings.
//! The checks before a run are in [`preflight`](crate::preflight).

use super::{PORT_REMEDIES, Warning, milliseconds, ratio};
use crate::load_thread::ThreadUsage;
use crate::recorder::BATCHES;
use crate::request_error::{CodeSource, RequestError};
use crate::runner::RunResult;
use roster_messages::table::lab;
use std::time::Duration;

/// Minimum share of the time on or waiting for a processor at which a thread was the limit.
const BUSY: f64 = 0.9;
/// Maximum share of requests that waited for a free user without a warning.
const STARVED: f64 = 0.01;
/// Maximum share of the 99th percentile that the generator's own delay may have.
const LAG: f64 = 0.1;
/// Maximum share of the time that blocking threads may wait for a processor.
const QUEUED: f64 = 0.25;
/// Maximum share of the users' time with an unreachable server.
const UNREACHABLE: f64 = 0.01;
/// Minimum number of batches without a reply for a warning: a tenth.
const STALL_PIECES: usize = BATCHES / 10;
/// Minimum mean number of requests of the other batches.
const STALL_REQUESTS: u64 = 20;
/// Maximum delay of the generator without a warning.
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

/// A run and its number of users.
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
    /// Returns the largest share of its time that a thread spent on `time`.
    fn thread_share(&self, time: fn(&ThreadUsage) -> Duration) -> f64 {
        let threads = self.outcome.threads.iter().filter(|usage| !usage.wall.is_zero());
        let shares = threads.map(|usage| time(usage).as_secs_f64() / usage.wall.as_secs_f64());
        shares.fold(0.0, f64::max)
    }

    /// Returns the share of the time on a processor or waiting for one.
    fn busy(&self) -> f64 {
        self.thread_share(|usage| usage.cpu + usage.queued)
    }

    /// Returns the share of the time waiting for a processor.
    fn queued(&self) -> f64 {
        self.thread_share(|usage| usage.queued)
    }

    fn count_failures(&self, is_counted: impl Fn(&RequestError) -> bool) -> u64 {
        let failures = self.outcome.recorder.failures.iter();
        failures.filter(|(failure, _)| is_counted(failure)).map(|(_, count)| count).sum()
    }

    /// Returns the number of requests that the KDC rejected with that code.
    fn count_kerberos_errors(&self, wanted: u32) -> u64 {
        self.count_failures(|failure| {
            matches!(failure, RequestError::ErrorCode(CodeSource::Kerberos, code, _) if *code == wanted)
        })
    }

    fn share(&self, requests: u64) -> f64 {
        ratio(requests, self.outcome.recorder.requests)
    }
}

fn check_generator(run: &MeasuredRun<'_>) -> Option<Warning> {
    let (busy, queued) = (run.busy(), run.queued());
    // A run without requests has no load.
    let is_measured = run.outcome.recorder.requests > 0;
    if busy < BUSY || run.outcome.blocks || !is_measured {
        return None;
    }
    let why = if queued > busy / 3.0 {
        format!(
            "the thread waited for a processor {:.0} % of the time, because other programs used them",
            queued * 100.0
        )
    } else {
        format!("the thread was busy {:.0} % of the time", busy * 100.0)
    };
    Some(Warning {
        kind: "generator",
        message: &lab::GENERATOR_LIMIT,
        ratio: busy,
        text: format!(
            "the generator was the limit: {why}. The server may serve more, and latencies include delays of the \
             generator. Raise --threads (now {}), and run it on dedicated processors.",
            run.outcome.threads.len()
        ),
    })
}

fn check_processors(run: &MeasuredRun<'_>) -> Option<Warning> {
    let queued = run.queued();
    (queued >= QUEUED && run.outcome.blocks).then(|| Warning {
        kind: "generator",
        message: &lab::PROCESSORS_LIMIT,
        ratio: queued,
        text: format!(
            "the processors were the limit: threads waited for one {:.0} % of the time, and latencies include this. \
             Each user is a thread. Use at most as many --users as processors (now {}), or stop other programs.",
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
        message: &lab::SERVER_UNREACHABLE,
        ratio: unreachable,
        text: format!(
            "the server was unreachable for {:.0} % of the run. Users wait 100 ms after a failed connection, so \
             failures are few beside replies, and the rate covers both states. Read the batches of the report.",
            unreachable.min(1.0) * 100.0
        ),
    })
}

fn check_server(run: &MeasuredRun<'_>) -> Option<Warning> {
    run.outcome.server_is_gone.then(|| Warning {
        kind: "server",
        message: &lab::SERVER_RESTARTED,
        ratio: 1.0,
        text: "the watched server ended or restarted during the run. The report has no cost of the server. Repeat \
               the run."
            .to_owned(),
    })
}

fn check_standstill(run: &MeasuredRun<'_>) -> Option<Warning> {
    let idle = idle_share(run.outcome)?;
    Some(Warning {
        kind: "standstill",
        message: &lab::STANDSTILL,
        ratio: idle,
        text: format!(
            "no reply arrived for {:.0} % of the measured time, and many arrived in the rest. The server, the \
             network or this host stood still. In a closed loop waiting users make no requests, so percentiles \
             hardly show this. Read the longest latency and the batches, and run with --rate.",
            idle * 100.0
        ),
    })
}

fn check_stuck_threads(run: &MeasuredRun<'_>) -> Option<Warning> {
    let stuck = run.outcome.stuck_threads;
    (stuck > 0).then(|| Warning {
        kind: "hung",
        message: &lab::REQUESTS_HUNG,
        ratio: run.share(stuck as u64),
        text: format!(
            "{stuck} requests did not return until the end, and count as failed. Their directory or daemon does not \
             reply, and they have no timeout. Check the name service or PAM module."
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
        message: &lab::GENERATOR_LATE,
        ratio: lag.as_secs_f64() / p99.as_secs_f64(),
        text: format!(
            "the generator sent 1 % of the requests at least {:.2} ms late, and the 99th percentile of {:.2} ms \
             includes this. Another program took its processor. Stop other programs, or read the high percentiles \
             as upper bounds.",
            milliseconds(lag),
            milliseconds(p99)
        ),
    })
}

fn check_users(run: &MeasuredRun<'_>) -> Option<Warning> {
    let starved = run.share(run.outcome.recorder.starved);
    (starved > STARVED).then(|| Warning {
        kind: "users",
        message: &lab::USERS_BUSY,
        ratio: starved,
        text: format!(
            "{:.0} % of the requests were due while all {} users waited for replies. Latencies include that wait. \
             If the server was not at its limit, raise --users.",
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
        message: &lab::PORTS_EXHAUSTED,
        ratio: run.share(without_port),
        text: format!(
            "{without_port} requests failed because this host had no free port. The run measured how fast ports \
             become free. {PORT_REMEDIES}"
        ),
    })
}

fn check_datagrams(run: &MeasuredRun<'_>) -> Option<Warning> {
    let too_big = run.count_kerberos_errors(TOO_BIG);
    (too_big > 0).then(|| Warning {
        kind: "datagram",
        message: &lab::KDC_REPLY_TOO_BIG,
        ratio: run.share(too_big),
        text: format!(
            "{too_big} replies do not fit into a datagram, and the KDC requested TCP. The run measured only that \
             request. Repeat the run with --protocol tcp."
        ),
    })
}

fn check_clocks(run: &MeasuredRun<'_>) -> Option<Warning> {
    let skewed = run.count_kerberos_errors(CLOCK_SKEW);
    (skewed > 0).then(|| Warning {
        kind: "clock",
        message: &lab::KDC_CLOCK_SKEW,
        ratio: run.share(skewed),
        text: format!(
            "the KDC rejected {skewed} requests because its clock and this host's differ by more than its limit \
             (default: five minutes). The run measured how fast it rejects. Synchronize the clocks, then repeat the \
             run."
        ),
    })
}

fn check_failures(run: &MeasuredRun<'_>) -> Option<Warning> {
    let recorder = &run.outcome.recorder;
    let failed = run.share(recorder.failed());
    (failed > 0.0).then(|| {
        let kinds = recorder.failures.iter().max_by_key(|(_, count)| **count);
        let most = kinds
            .map(|(failure, _)| format!("{failure} [{}]", failure.message().code))
            .unwrap_or_default();
        Warning {
            kind: "failures",
            message: &lab::REQUESTS_FAILED,
            ratio: failed,
            text: format!(
                "{} of {} requests failed, most with: {most}. Rate and latencies cover all replies, and requests \
                 that timed out.",
                recorder.failed(),
                recorder.requests
            ),
        }
    })
}

/// Returns the share of batches without a reply, if the other batches have many.
fn idle_share(outcome: &RunResult) -> Option<f64> {
    if outcome.planned.is_zero() {
        return None;
    }
    let counts = outcome.recorder.batches.map(|batch| batch.requests);
    // A stopped run has only the batches until then.
    let until = counts.iter().rposition(|&count| count > 0)? + 1;
    let idle = counts[..until].iter().filter(|&&count| count == 0).count();
    let busy = (until - idle) as u64;
    let is_many = counts.iter().sum::<u64>() >= STALL_REQUESTS * busy;
    (idle >= STALL_PIECES && is_many).then(|| ratio(idle as u64, until as u64))
}

/// Returns a run of a thousand requests, and of a thread with these shares of its time.
#[cfg(test)]
pub(super) fn outcome(busy: f64, queued: f64) -> RunResult {
    use crate::recorder::Recorder;
    use std::time::Instant;
    const SECOND: Duration = Duration::from_secs(1);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_error::SystemCall;
    use std::time::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    fn kinds(outcome: &RunResult) -> Vec<&'static str> {
        check_run(outcome, 4).iter().map(|warning| warning.kind).collect()
    }

    #[test]
    fn run_warnings_idle_generator_none() {
        assert!(kinds(&outcome(0.5, 0.01)).is_empty());
    }

    #[test]
    fn run_warnings_generator_limit_names_cause() {
        let alone = check_run(&outcome(0.97, 0.01), 4);
        assert_eq!(alone[0].message, &lab::GENERATOR_LIMIT);
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
    fn run_warnings_lag_users_failures_each_reported() {
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

    #[test]
    fn run_warnings_each_condition_has_code() {
        let now = Instant::now();
        let failing = |failure: RequestError| {
            let mut failing = outcome(0.5, 0.0);
            failing.recorder.record(now, now, Err(failure));
            failing
        };
        let kerberos =
            |code| failing(RequestError::ErrorCode(CodeSource::Kerberos, code, "".into()));
        let mut paused = outcome(0.5, 0.0);
        paused.recorder.paused = SECOND;
        let mut late = outcome(0.5, 0.0);
        (0..1000).for_each(|_| late.recorder.record_lag(Duration::from_millis(5)));
        let mut starved = outcome(0.5, 0.0);
        starved.recorder.starved = 500;
        let mut idle = RunResult { planned: SECOND, ..outcome(0.5, 0.0) };
        for number in 0..1000 {
            idle.recorder.record_in(if number < 500 { 0 } else { BATCHES - 1 }, None);
        }
        let no_port = RequestError::System(SystemCall::Connect, NO_PORT_LEFT);
        for (run, message) in [
            (outcome(0.97, 0.01), &lab::GENERATOR_LIMIT),
            (RunResult { blocks: true, ..outcome(0.2, 0.8) }, &lab::PROCESSORS_LIMIT),
            (paused, &lab::SERVER_UNREACHABLE),
            (RunResult { server_is_gone: true, ..outcome(0.5, 0.0) }, &lab::SERVER_RESTARTED),
            (idle, &lab::STANDSTILL),
            (RunResult { stuck_threads: 1, ..outcome(0.2, 0.0) }, &lab::REQUESTS_HUNG),
            (late, &lab::GENERATOR_LATE),
            (starved, &lab::USERS_BUSY),
            (failing(no_port), &lab::PORTS_EXHAUSTED),
            (kerberos(TOO_BIG), &lab::KDC_REPLY_TOO_BIG),
            (kerberos(CLOCK_SKEW), &lab::KDC_CLOCK_SKEW),
            (failing(RequestError::TimedOut), &lab::REQUESTS_FAILED),
        ] {
            let warnings = check_run(&run, 4);
            assert_eq!(warnings.first().map(|one| one.message), Some(message), "{warnings:?}");
        }
    }
}
