//! Times that are a fifth more or less than configured: hosts that were started together, or whose server
//! is back, are not to come to it together ever after. No clock and no chance here: what was drawn is an
//! argument.

use std::time::Duration;

/// The shortest of these times.
#[must_use]
pub fn least(every: Duration) -> Duration {
    every * 4 / 5
}

/// What comes on top of it, for a number that was drawn.
#[must_use]
pub fn drawn(every: Duration, random: u32) -> Duration {
    (every * 2 / 5).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_at_the_most_a_fifth_more_or_less() {
        let every = Duration::from_secs(1000);
        let time = |random| least(every) + drawn(every, random);
        assert_eq!([0, u32::MAX].map(time), [800, 1200].map(Duration::from_secs));
        assert_eq!(least(Duration::ZERO) + drawn(Duration::ZERO, u32::MAX), Duration::ZERO);
    }
}
