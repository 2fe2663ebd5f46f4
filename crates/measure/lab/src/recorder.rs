// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurements: counts, latencies, and the delay of the generator itself. `report` converts them to figures.
//!
//! Each thread has a [`RecorderSlot`] and fills its [`Recorder`]. The collector takes it a few times per second, and the
//! thread begins another one. So every request is in exactly one recorder, and the figures of a thread remain available
//! even if its next request does not return.

use crate::request_error::RequestError;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::mem;
use std::time::{Duration, Instant};

/// Maximum latency in nanoseconds, a day. A longer one counts as a day.
const LATENCY_MAX: u64 = 24 * 3600 * 1_000_000_000;
/// Significant digits of latencies: a percentile has an error of at most 0.1 %.
const DIGITS: u8 = 3;
/// Maximum number of distinguished kinds of failures, because a hostile server may invent any number.
const KINDS_MAX: usize = 64;

/// Number of batches of equal duration in a run. Their spread gives the confidence of its figures: fewer have too little
/// data, and more depend on each other.
pub const BATCHES: usize = 20;

/// A batch of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Number of requests that ended in it, failed ones included.
    pub requests: u64,
    /// Number of latencies.
    pub latencies: u64,
    /// Sum of latencies.
    pub sum: Duration,
}

/// The place in which a thread records.
#[derive(Debug, Default)]
pub struct RecorderSlot {
    recorder: Mutex<Recorder>,
}

impl RecorderSlot {
    /// Changes the recorder under its lock.
    pub fn update<R>(&self, note: impl FnOnce(&mut Recorder) -> R) -> R {
        note(&mut self.recorder.lock())
    }

    /// Takes the figures since the last call.
    pub fn take_recorder(&self) -> Recorder {
        // The new recorder is created without the lock, because the thread may wait for it.
        let mut fresh = Recorder::default();
        self.update(|recorder| mem::swap(recorder, &mut fresh));
        fresh
    }
}

/// Measurements that can be added.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// Number of ended requests, failed ones included, without those of the warm-up.
    pub requests: u64,
    /// Number of requests in the measured time. Each request counts by its share in that time, so the rate is correct even
    /// if a request takes as long as the run.
    pub requests_in_window: f64,
    /// Number of failures by kind.
    pub failures: BTreeMap<RequestError, u64>,
    /// Total time of users in pauses because of an unreachable server.
    pub paused: Duration,
    /// Number of failures beyond the distinguished kinds.
    pub other_failures: u64,
    /// Number of requests of the warm-up.
    pub warm_up: u64,
    /// Latencies from the intended start to the end.
    pub latency: Histogram<u64>,
    /// Delays of the generator, from the possible to the actual start.
    pub lag: Histogram<u64>,
    /// Number of requests that were due before a user was free.
    pub starved: u64,
    /// Batches in the order of time.
    pub batches: [Batch; BATCHES],
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            requests: 0,
            requests_in_window: 0.0,
            failures: BTreeMap::new(),
            paused: Duration::ZERO,
            other_failures: 0,
            warm_up: 0,
            latency: histogram(DIGITS),
            lag: histogram(1),
            starved: 0,
            batches: [Batch::default(); BATCHES],
        }
    }
}

#[expect(clippy::expect_used, reason = "constant bounds that the library takes")]
fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX, digits).expect("bounds and digits are valid")
}

impl Recorder {
    /// Records a request that ended in a batch.
    pub fn record_in(&mut self, batch: usize, latency: Option<Duration>) {
        let Some(batch) = self.batches.get_mut(batch) else { return };
        batch.requests += 1;
        if let Some(latency) = latency {
            batch.latencies += 1;
            batch.sum += latency;
        }
    }

    pub fn record(&mut self, intended: Instant, ended: Instant, result: Result<(), RequestError>) {
        self.requests += 1;
        if result.as_ref().err().is_none_or(RequestError::has_latency) {
            self.latency.saturating_record(nanoseconds(ended.duration_since(intended)));
        }
        if let Err(failure) = result {
            if self.failures.len() < KINDS_MAX || self.failures.contains_key(&failure) {
                *self.failures.entry(failure).or_default() += 1;
            } else {
                self.other_failures += 1;
            }
        }
    }

    /// Records a delay of the generator.
    pub fn record_lag(&mut self, lag: Duration) {
        self.lag.saturating_record(nanoseconds(lag));
    }

    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failures.values().sum::<u64>() + self.other_failures
    }

    /// Adds another recorder.
    pub fn add(&mut self, other: Self) {
        if other.is_blank() {
            return;
        }
        self.requests += other.requests;
        self.requests_in_window += other.requests_in_window;
        self.paused += other.paused;
        self.warm_up += other.warm_up;
        self.starved += other.starved;
        self.other_failures += other.other_failures;
        for (sum, batch) in self.batches.iter_mut().zip(other.batches) {
            sum.requests += batch.requests;
            sum.latencies += batch.latencies;
            sum.sum += batch.sum;
        }
        for (failure, count) in other.failures {
            if self.failures.len() < KINDS_MAX || self.failures.contains_key(&failure) {
                *self.failures.entry(failure).or_default() += count;
            } else {
                self.other_failures += count;
            }
        }
        // Both histograms have the same bounds, so the sum is complete.
        let _ = self.latency.add(&other.latency);
        let _ = self.lag.add(&other.lag);
    }

    /// Returns whether the recorder is empty.
    fn is_blank(&self) -> bool {
        let Self { requests, warm_up, starved, requests_in_window: served, paused, .. } = self;
        (requests, warm_up, starved) == (&0, &0, &0)
            && *served == 0.0
            && paused.is_zero()
            && self.lag.is_empty()
    }

    /// Returns a percentile of the latencies; zero without any.
    #[must_use]
    pub fn percentile(&self, percentile: f64) -> Duration {
        Duration::from_nanos(self.latency.value_at_percentile(percentile))
    }

    /// Returns the longest latency.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.latency.max())
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_error::SystemCall;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn percentiles_are_within_a_tenth_of_a_percent() {
        let mut recorder = Recorder::default();
        let start = Instant::now();
        for number in 1..=10_000_u32 {
            recorder.record(start, start + MILLISECOND * number / 10, Ok(()));
        }
        for (percentile, expected) in [(50.0, 500.0), (90.0, 900.0), (99.0, 990.0), (99.9, 999.0)] {
            let found = recorder.percentile(percentile).as_secs_f64() * 1e3;
            assert!((found / expected - 1.0).abs() < 0.001, "p{percentile}: {found}");
        }
    }

    #[test]
    fn what_several_threads_measured_adds_up() {
        let start = Instant::now();
        let mut sum = Recorder::default();
        for number in 1..=3 {
            let mut one = Recorder::default();
            one.record(start, start + MILLISECOND * number, Ok(()));
            one.record(start, start + 5 * MILLISECOND, Err(RequestError::TimedOut));
            one.warm_up = 2;
            sum.add(one);
            // A pause is recorded after its request, and may be alone in a recorder.
            sum.add(Recorder { paused: MILLISECOND, ..Recorder::default() });
        }
        assert_eq!(sum.paused, 3 * MILLISECOND);
        assert_eq!((sum.requests, sum.failed(), sum.warm_up), (6, 3, 6));
        assert_eq!(sum.failures, BTreeMap::from([(RequestError::TimedOut, 3)]));
        assert_eq!(sum.latency.len(), 6);
    }

    #[test]
    fn recorder_timeout_has_latency_refusal_has_none() {
        let start = Instant::now();
        let mut recorder = Recorder::default();
        recorder.record(start, start + 10 * MILLISECOND, Err(RequestError::TimedOut));
        recorder.record(start, start, Err(RequestError::System(SystemCall::Connect, 111)));
        assert_eq!((recorder.requests, recorder.failed()), (2, 2));
        assert_eq!(recorder.latency.len(), 1);
        assert!(recorder.percentile(50.0) >= 10 * MILLISECOND);
    }

    #[test]
    fn failures_of_any_number_of_kinds_are_all_counted_in_bounded_memory() {
        let start = Instant::now();
        let mut recorder = Recorder::default();
        for code in 0..1000 {
            recorder.record(start, start, Err(RequestError::Exited(code)));
        }
        assert_eq!(recorder.failures.len(), KINDS_MAX);
        assert_eq!(recorder.failed(), 1000);
    }
}
