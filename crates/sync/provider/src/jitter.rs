// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intervals with a random deviation of up to a fifth. They prevent simultaneous requests of hosts that started
//! together or lost a server together. The random number is an argument.

use std::time::Duration;

/// Returns the shortest such interval.
#[must_use]
pub fn shortest(every: Duration) -> Duration {
    every * 4 / 5
}

/// Returns the addition to the shortest interval for a random number.
#[must_use]
pub fn jitter(every: Duration, random: u32) -> Duration {
    (every * 2 / 5).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_at_the_most_a_fifth_more_or_less() {
        let every = Duration::from_secs(1000);
        let time = |random| shortest(every) + jitter(every, random);
        assert_eq!([0, u32::MAX].map(time), [800, 1200].map(Duration::from_secs));
        assert_eq!(shortest(Duration::ZERO) + jitter(Duration::ZERO, u32::MAX), Duration::ZERO);
    }
}
