// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intended start times of requests. This module reads no clock and starts no request; [`load_thread`](crate::load_thread)
//! does.
//!
//! In a closed loop each user waits for its reply, thinks, and makes the next request. It cannot offer more than the
//! server accepts, so it hides the waits of further users. In an open loop arrivals do not depend on replies. A latency
//! from such a time includes the wait before the request was sent.

use std::str::FromStr;
use std::time::Duration;

/// Maximum rate, above the limit of any machine.
const RATE_MAX: f64 = 1e8;
/// Maximum number of rates.
const STEPS_MAX: usize = 100;

/// Arrival of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadModel {
    /// Each user makes its next request after the reply to the last.
    Closed {
        /// Time between a reply and the next request.
        think: Duration,
    },
    /// Requests arrive by a schedule.
    Open(RateSchedule),
}

/// Arrivals at even intervals: at a constant rate, or at one that changes evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSchedule {
    /// Requests per second in the warm-up and at the start.
    pub from: f64,
    /// Requests per second at the end.
    pub to: f64,
    /// Duration that the figures exclude.
    pub warm_up: Duration,
    /// Duration of the change of the rate.
    pub over: Duration,
}

impl RateSchedule {
    /// Returns the time of the arrival with this number, from 0; `None` if the rate falls to zero before.
    #[must_use]
    pub fn due(&self, number: u64) -> Option<Duration> {
        #[expect(clippy::cast_precision_loss, reason = "no run has 2^53 requests")]
        let number = number as f64;
        let warm_up = self.warm_up.as_secs_f64();
        let behind = number - self.from * warm_up;
        let seconds = if behind <= 0.0 {
            number / self.from
        } else {
            // The equation is from · t + (to − from) / (2 · over) · t² = behind. This form of its solution avoids
            // cancellation at nearly constant rates.
            let slope = (self.to - self.from) / self.over.as_secs_f64();
            let square = self.from * self.from + 2.0 * slope * behind;
            warm_up + 2.0 * behind / (self.from + square.sqrt())
        };
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// Value of `--rate`.
#[derive(Clone, Debug, PartialEq)]
pub enum RateSpec {
    /// A run for each rate.
    Steps(Vec<f64>),
    /// A run with a rate that changes from the first to the second: `A..B`.
    Ramp(f64, f64),
}

impl FromStr for RateSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = |text: &str| match text.trim().parse::<f64>() {
            Ok(rate) if rate > 0.0 && rate <= RATE_MAX => Ok(rate),
            _ => Err(format!("{text:?} is not a rate. Write requests per second, above 0.")),
        };
        if let Some((from, to)) = text.split_once("..") {
            return Ok(Self::Ramp(rate(from)?, rate(to)?));
        }
        let steps = text.split(',').map(rate).collect::<Result<Vec<_>, _>>()?;
        if steps.len() > STEPS_MAX {
            return Err(format!("more than {STEPS_MAX} rates"));
        }
        Ok(Self::Steps(steps))
    }
}

/// Search for the knee, the highest rate within a bound.
pub mod knee {
    /// Maximum number of runs, enough for a search between 1 and 10 million requests per second.
    const TRIES_MAX: usize = 60;
    /// Factor between two rates within the bound.
    const RAISE: f64 = 1.5;
    /// Maximum ratio of the best and the next failed rate at the end of the search.
    const CLOSE: f64 = 1.05;
    /// Minimum share of the first rate.
    const LEAST: f64 = 1.0 / 64.0;

    /// A run at a rate.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct RateTrial {
        /// Requests per second.
        pub rate: f64,
        /// Whether the run was within the bound.
        pub within_bound: bool,
    }

    /// Returns the highest rate within the bound.
    #[must_use]
    pub fn best_rate(tries: &[RateTrial]) -> Option<f64> {
        let held = tries.iter().filter(|one| one.within_bound).map(|one| one.rate);
        held.fold(None, |best, rate| Some(best.map_or(rate, |best: f64| best.max(rate))))
    }

    /// Returns the next rate, at first `first`; `None` at the end of the search.
    #[must_use]
    pub fn next_rate(first: f64, tries: &[RateTrial]) -> Option<f64> {
        if tries.len() >= TRIES_MAX {
            return None;
        }
        let broke =
            tries.iter().filter(|one| !one.within_bound).map(|one| one.rate).reduce(f64::min);
        match (best_rate(tries), broke) {
            (None, None) => Some(first),
            (Some(held), None) => Some(held * RAISE),
            (None, Some(broke)) => (broke > first * LEAST).then_some(broke / 2.0),
            (Some(held), Some(broke)) => {
                (broke > held * CLOSE).then_some(f64::midpoint(held, broke))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::knee::RateTrial;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pace(from: f64, to: f64, warm_up: Duration) -> RateSchedule {
        RateSchedule { from, to, warm_up, over: 10 * SECOND }
    }

    #[test]
    fn a_constant_rate_has_even_distances() {
        let pace = pace(1000.0, 1000.0, 2 * SECOND);
        for number in [0, 1, 1999, 2000, 2001, 11_999] {
            let due = pace.due(number).unwrap().as_secs_f64();
            assert!((due - number as f64 / 1000.0).abs() < 1e-6, "{number}: {due}");
        }
    }

    #[test]
    fn a_ramp_ends_at_its_last_rate_having_sent_the_mean() {
        let pace = pace(100.0, 300.0, SECOND);
        // The warm-up has 100 arrivals, and the following 10 s have a mean rate of 200.
        let end = pace.due(2100).unwrap().as_secs_f64();
        assert!((end - 11.0).abs() < 1e-6, "{end}");
        let last = end - pace.due(2099).unwrap().as_secs_f64();
        assert!((1.0 / last - 300.0).abs() < 0.5, "{last}");
    }

    #[test]
    fn a_rate_that_falls_to_nothing_brings_no_more_arrivals() {
        let pace = pace(100.0, 1e-9, Duration::ZERO);
        assert!(pace.due(499).is_some());
        assert!(pace.due(700).is_none());
    }

    #[test]
    fn rates_are_read_or_refused() {
        assert_eq!("5".parse(), Ok(RateSpec::Steps(vec![5.0])));
        assert_eq!("1,2.5".parse(), Ok(RateSpec::Steps(vec![1.0, 2.5])));
        assert_eq!("10..20".parse(), Ok(RateSpec::Ramp(10.0, 20.0)));
        for text in ["", "0", "-1", "x", "1,", "1..", "inf", "nan", "1e9"] {
            assert!(text.parse::<RateSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_search_for_the_knee_ends_close_to_it() {
        for (first, knee) in [(100.0, 7321.0), (100.0, 3.0), (1.0, 9e6), (50.0, 50.0)] {
            let mut tries = Vec::new();
            while let Some(rate) = knee::next_rate(first, &tries) {
                tries.push(RateTrial { rate, within_bound: rate <= knee });
            }
            let found = knee::best_rate(&tries).unwrap();
            assert!(found <= knee && knee <= found * 1.05, "{knee}: {found}");
            assert!(tries.len() < 60, "{}", tries.len());
        }
    }

    #[test]
    fn a_server_that_never_holds_has_no_knee_and_the_search_ends() {
        let mut tries = Vec::new();
        while let Some(rate) = knee::next_rate(64.0, &tries) {
            tries.push(RateTrial { rate, within_bound: false });
        }
        assert_eq!(knee::best_rate(&tries), None);
        assert_eq!(tries.len(), 7);
    }
}
