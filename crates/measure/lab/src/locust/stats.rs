// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a worker in the format of Locust masters: counts since the last report, a histogram of latencies in
//! milliseconds, and requests by second. `recorder` measures.
//!
//! Locust's own workers round latencies below 100 ms to whole milliseconds. This worker rounds to three significant
//! digits, which masters accept.

use super::message;
use crate::recorder::Recorder;
use crate::request_error::OTHER_KINDS;
use anyhow::Result;
use roster_messages::table::lab;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Requests of one kind, since the last report.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    recorder: Recorder,
    requests_by_second: BTreeMap<u64, u64>,
    failures_by_second: BTreeMap<u64, u64>,
    last: Option<f64>,
}

impl Tally {
    /// Adds figures up to this time.
    pub fn add(&mut self, latest: &Recorder, time: f64) {
        if latest.requests == 0 {
            return;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole seconds"
        )]
        let second = time as u64;
        *self.requests_by_second.entry(second).or_default() += latest.requests;
        if latest.failed() > 0 {
            *self.failures_by_second.entry(second).or_default() += latest.failed();
        }
        self.last = Some(time);
        self.recorder.add(latest.clone());
    }

    /// Returns the number of requests.
    pub fn requests(&self) -> u64 {
        self.recorder.requests
    }

    /// Adds the figures of another kind.
    fn merge(&mut self, other: &Self) {
        self.recorder.add(other.recorder.clone());
        for (sum, by_second) in [
            (&mut self.requests_by_second, &other.requests_by_second),
            (&mut self.failures_by_second, &other.failures_by_second),
        ] {
            for (second, count) in by_second {
                *sum.entry(*second).or_default() += count;
            }
        }
        self.last = match (self.last, other.last) {
            (Some(ours), Some(theirs)) => Some(ours.max(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
    }

    fn entry<'t>(&'t self, kind: &'t StatsKey, start: f64) -> StatsEntry<'t> {
        let latency = &self.recorder.latency;
        #[expect(clippy::cast_precision_loss, reason = "a run has fewer than 2^53 requests")]
        let sum = latency.mean() * latency.len() as f64 * MILLISECONDS;
        StatsEntry {
            name: &kind.name,
            method: &kind.method,
            last_request_timestamp: self.last,
            start_time: start,
            num_requests: self.recorder.requests,
            num_none_requests: self.recorder.requests.saturating_sub(latency.len()),
            num_failures: self.recorder.failed(),
            total_response_time: sum,
            max_response_time: three_digits(latency.max()),
            min_response_time: (!latency.is_empty()).then(|| three_digits(latency.min())),
            total_content_length: 0,
            response_times: LatencyCounts(self.latencies()),
            num_reqs_per_sec: &self.requests_by_second,
            num_fail_per_sec: &self.failures_by_second,
        }
    }

    fn latencies(&self) -> Vec<(f64, u64)> {
        let mut all: Vec<(f64, u64)> = Vec::new();
        for step in self.recorder.latency.iter_recorded() {
            let value = three_digits(step.value_iterated_to());
            match all.last_mut() {
                #[expect(clippy::float_cmp, reason = "both were rounded in the same way")]
                Some((last, count)) if *last == value => *count += step.count_at_value(),
                _ => all.push((value, step.count_at_value())),
            }
        }
        all
    }

    fn errors(&self, kind: &StatsKey) -> impl Iterator<Item = (String, ErrorEntry)> {
        let failures = self.recorder.failures.iter();
        let known = failures
            .map(|(failure, count)| (format!("{failure} [{}]", failure.message().code), *count));
        let others = (self.recorder.other_failures > 0).then(|| {
            let text = format!("{OTHER_KINDS} [{}]", lab::OTHER_FAILURES.code);
            (text, self.recorder.other_failures)
        });
        let seen = self.last;
        known.chain(others).map(move |(error, occurrences)| {
            let StatsKey { name, method } = kind.clone();
            let failed =
                ErrorEntry { name, method, error, occurrences, first_seen: seen, last_seen: seen };
            (format!("{}.{}.{}", failed.method, failed.name, failed.error), failed)
        })
    }
}

/// Factor from nanoseconds to milliseconds.
const MILLISECONDS: f64 = 1e-6;

/// Converts a latency to milliseconds, rounded to three significant digits.
fn three_digits(nanoseconds: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "three digits")]
    let value = nanoseconds as f64 * MILLISECONDS;
    // The text form makes the number equal to its decimal digits.
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// Key of Locust's list of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsKey {
    /// Class of users.
    pub name: String,
    /// Kind of requests.
    pub method: String,
}

#[derive(Debug, Serialize)]
struct StatsEntry<'t> {
    name: &'t str,
    method: &'t str,
    last_request_timestamp: Option<f64>,
    start_time: f64,
    num_requests: u64,
    num_none_requests: u64,
    num_failures: u64,
    total_response_time: f64,
    max_response_time: f64,
    min_response_time: Option<f64>,
    total_content_length: u64,
    response_times: LatencyCounts,
    num_reqs_per_sec: &'t BTreeMap<u64, u64>,
    num_fail_per_sec: &'t BTreeMap<u64, u64>,
}

/// A map with floating-point keys.
#[derive(Debug)]
struct LatencyCounts(Vec<(f64, u64)>);

impl Serialize for LatencyCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (latency, count) in &self.0 {
            map.serialize_entry(latency, count)?;
        }
        map.end()
    }
}

#[derive(Debug, Serialize)]
struct ErrorEntry {
    name: String,
    method: String,
    error: String,
    occurrences: u64,
    first_seen: Option<f64>,
    last_seen: Option<f64>,
}

/// Additional figures for `roster_locust`. Other masters ignore them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExtraStats {
    /// Warnings about the figures: class of users, kind, text and code.
    pub warnings: Vec<(String, &'static str, String, &'static str)>,
    /// Class, name and processor time in seconds of each watched server.
    pub server_cpu: Vec<(String, String, f64)>,
    /// Processor time of this program in seconds.
    pub client_cpu: f64,
    /// Name of this host.
    pub host: String,
}

/// The message `stats`.
#[derive(Debug, Serialize)]
struct StatsMessage<'t> {
    stats: Vec<StatsEntry<'t>>,
    stats_total: StatsEntry<'t>,
    errors: BTreeMap<String, ErrorEntry>,
    user_classes_count: &'t BTreeMap<String, usize>,
    user_count: usize,
    roster_lab: &'t ExtraStats,
}

/// Encodes the message `stats` with the figures since the last one, for a run that began at `start`.
pub fn pack(
    node: &str,
    tallies: &[(StatsKey, Tally)],
    start: f64,
    users: &BTreeMap<String, usize>,
    beyond: &ExtraStats,
) -> Result<Vec<u8>> {
    let everything = StatsKey { name: "Aggregated".to_owned(), method: String::new() };
    let mut total = Tally::default();
    tallies.iter().for_each(|(_, tally)| total.merge(tally));
    let some = || tallies.iter().filter(|(_, tally)| tally.requests() > 0);
    let report = StatsMessage {
        stats: some().map(|(kind, tally)| tally.entry(kind, start)).collect(),
        stats_total: total.entry(&everything, start),
        errors: some().flat_map(|(kind, tally)| tally.errors(kind)).collect(),
        user_classes_count: users,
        user_count: users.values().sum(),
        roster_lab: beyond,
    };
    message::pack("stats", &report, node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_error::{RequestError, SystemCall};
    use std::time::{Duration, Instant};

    fn tally(latencies_us: &[u64]) -> Tally {
        let start = Instant::now();
        let mut recorder = Recorder::default();
        for &latency in latencies_us {
            recorder.record(start, start + Duration::from_micros(latency), Ok(()));
        }
        let mut tally = Tally::default();
        tally.add(&recorder, 100.25);
        tally
    }

    #[test]
    fn latencies_have_three_digits_whatever_their_size() {
        for (nanoseconds, expected) in
            [(0, 0.0), (999, 0.000_999), (123_456, 0.123), (1_999_999, 2.0), (123_456_789, 123.0)]
        {
            assert!((three_digits(nanoseconds) - expected).abs() < 1e-12, "{nanoseconds}");
        }
        let tally = tally(&[123, 123, 45_600]);
        assert_eq!(tally.latencies(), [(0.123, 2), (45.6, 1)]);
    }

    #[test]
    fn a_report_counts_every_request_once_and_refused_connections_have_no_latency() {
        let mut bind = tally(&[200, 300]);
        let start = Instant::now();
        let mut refused = Recorder::default();
        refused.record(start, start, Err(RequestError::System(SystemCall::Connect, 111)));
        bind.add(&refused, 101.5);
        let kind = |name: &str| StatsKey { name: name.to_owned(), method: "LDAP bind".to_owned() };
        let all = [(kind("A"), bind), (kind("B"), tally(&[400])), (kind("C"), Tally::default())];
        let users = BTreeMap::from([("A".to_owned(), 2), ("B".to_owned(), 1)]);
        let bytes = pack("me", &all, 99.0, &users, &ExtraStats::default()).unwrap();
        // The keys of latencies are numbers, which JSON does not support.
        let read: rmpv::Value = rmp_serde::from_slice(&bytes).unwrap();
        let text = read.to_string();
        let error = format!(
            r#""error": "connect: Connection refused (os error 111) [{}]", "occurrences": 1"#,
            lab::CONNECT_FAILED.code
        );
        for part in [
            &error,
            r#""num_requests": 4, "num_none_requests": 1, "num_failures": 1"#,
            r#""num_reqs_per_sec": {100: 3, 101: 1}, "num_fail_per_sec": {101: 1}"#,
            r#""user_count": 3"#,
            "{0.2: 1, 0.3: 1}",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("\"C\""), "an idle class is not listed: {text}");
    }
}
