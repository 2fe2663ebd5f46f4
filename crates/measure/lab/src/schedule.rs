//! When requests are meant to start. Pure: reads no clock and starts nothing; that is
//! [`load_thread`](crate::load_thread).
//!
//! A closed loop has users who each wait for their answer, think, and ask again; it cannot offer more
//! than the server takes, and so hides what others would have waited. An open loop has arrivals at
//! times that nobody's waiting moves; a latency counted from such a time holds the whole wait, also
//! that before the request could be sent.

use std::str::FromStr;
use std::time::Duration;

/// Requests a second that one machine will never reach.
const RATE_MAX: f64 = 1e8;
/// Steps of a curve.
const STEPS_MAX: usize = 100;

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadModel {
    /// Each user's next request, so long after the answer to the last.
    Closed {
        /// Between an answer and the next request.
        think: Duration,
    },
    /// At times of their own.
    Open(RateSchedule),
}

/// Arrivals at even distances: at one rate, or at one that rises or falls evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateSchedule {
    /// Requests a second while warming up and at first.
    pub from: f64,
    /// Requests a second at the end.
    pub to: f64,
    /// The time that is left out of the figures.
    pub warm_up: Duration,
    /// The time in which the rate goes from the one to the other.
    pub over: Duration,
}

impl RateSchedule {
    /// When the arrival of this number, counted from 0, is due; none if the rate falls to nothing
    /// before.
    #[must_use]
    pub fn due(&self, number: u64) -> Option<Duration> {
        #[expect(clippy::cast_precision_loss, reason = "nobody makes 2^53 requests")]
        let number = number as f64;
        let warm_up = self.warm_up.as_secs_f64();
        let behind = number - self.from * warm_up;
        let seconds = if behind <= 0.0 {
            number / self.from
        } else {
            // from · t + (to − from) / (2 · over) · t² = behind, solved in the form that does not
            // cancel out where the rate hardly changes.
            let slope = (self.to - self.from) / self.over.as_secs_f64();
            let square = self.from * self.from + 2.0 * slope * behind;
            warm_up + 2.0 * behind / (self.from + square.sqrt())
        };
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// `--rate`.
#[derive(Clone, Debug, PartialEq)]
pub enum RateSpec {
    /// One rate after the other, each in a run of its own.
    Steps(Vec<f64>),
    /// `A..B`: from the one to the other within one run.
    Ramp(f64, f64),
}

impl FromStr for RateSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = |text: &str| match text.trim().parse::<f64>() {
            Ok(rate) if rate > 0.0 && rate <= RATE_MAX => Ok(rate),
            _ => Err(format!("{text:?} is no rate: write requests a second, above 0")),
        };
        if let Some((from, to)) = text.split_once("..") {
            return Ok(Self::Ramp(rate(from)?, rate(to)?));
        }
        let steps = text.split(',').map(rate).collect::<Result<Vec<_>, _>>()?;
        if steps.len() > STEPS_MAX {
            return Err(format!("more than {STEPS_MAX} steps"));
        }
        Ok(Self::Steps(steps))
    }
}

/// Where the knee is looked for.
pub mod knee {
    /// Runs that are made at the most: from 1 to 10 million requests a second by halves, and back.
    const TRIES_MAX: usize = 60;
    /// Between two tries that both held.
    const RAISE: f64 = 1.5;
    /// The knee is known when what held and what broke are no further apart.
    const CLOSE: f64 = 1.05;
    /// Below this share of the first rate nothing is tried.
    const LEAST: f64 = 1.0 / 64.0;

    /// A run at a rate.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct RateTrial {
        /// Requests a second.
        pub rate: f64,
        /// Whether the bound held.
        pub within_bound: bool,
    }

    /// The highest rate that held.
    #[must_use]
    pub fn best_rate(tries: &[RateTrial]) -> Option<f64> {
        let held = tries.iter().filter(|one| one.within_bound).map(|one| one.rate);
        held.fold(None, |best, rate| Some(best.map_or(rate, |best: f64| best.max(rate))))
    }

    /// The rate to try next, beginning with `first`; none when the knee is known or there is none.
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
        // 100 while warming up, then 200 a second in the mean, for 10 s.
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
