// SPDX-License-Identifier: MIT OR Apache-2.0
//! Confidence intervals of differences. This module makes no system calls. The parent module `compare` writes sentences
//! about them.
//!
//! A run has batches. Their means are nearly normal, and nearly independent if a batch is much longer than a request.
//! The logarithm of the ratio of two means has an interval with Student's quantile of Welch's degrees of freedom.

/// The 97.5th percentile of the normal distribution: 95 % lie within it on both sides.
const NORMAL: f64 = 1.959_964;
/// Minimum number of batches, or of runs, for a comparison.
pub const PIECES_MIN: usize = 5;

/// A ratio with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioInterval {
    /// The measured ratio.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl RatioInterval {
    /// Returns whether the interval excludes equality.
    #[must_use]
    pub fn is_sure(self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// Returns the mean, and the square of its relative standard error; `None` with too few values or a mean of zero.
fn mean(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < PIECES_MIN {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = squares / (count - 1.0) / count;
    (mean > 0.0).then(|| (mean, error / (mean * mean)))
}

/// Returns the ratio of the means, second to first.
#[must_use]
pub fn ratio(first: &[f64], second: &[f64]) -> Option<RatioInterval> {
    let ((a, error_a), (b, error_b)) = (mean(first)?, mean(second)?);
    let error = error_a + error_b;
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    let less = |values: &[f64]| values.len() as f64 - 1.0;
    let parts = error_a * error_a / less(first) + error_b * error_b / less(second);
    let freedom = if parts > 0.0 { error * error / parts } else { f64::INFINITY };
    let half = student(freedom) * error.sqrt();
    let middle = (b / a).ln();
    Some(RatioInterval { value: b / a, low: (middle - half).exp(), high: (middle + half).exp() })
}

/// Returns the mean, and half of its confidence interval.
#[must_use]
pub fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let (mean, error) = mean(values)?;
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    let freedom = values.len() as f64 - 1.0;
    Some((mean, student(freedom) * error.sqrt() * mean))
}

/// Returns Student's 97.5th percentile by the expansion around the normal one, exact to two digits from four degrees of
/// freedom on.
fn student(freedom: f64) -> f64 {
    let z = NORMAL;
    let (n, z3, z5, z7) = (freedom.max(4.0), z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * n)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * n * n)
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * n.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_percentile_is_that_of_tables() {
        for (freedom, expected) in
            [(4.0, 2.776), (5.0, 2.571), (10.0, 2.228), (38.0, 2.024), (1e9, 1.960)]
        {
            assert!((student(freedom) / expected - 1.0).abs() < 0.01, "{freedom}");
        }
    }

    /// Returns values around a mean, without a random number generator.
    fn around(mean: f64, spread: f64) -> Vec<f64> {
        (0..20).map(|at| mean + spread * f64::from(at * 7 % 20 - 10) / 10.0).collect()
    }

    #[test]
    fn a_difference_is_sure_when_it_is_larger_than_the_spread() {
        let clear = ratio(&around(100.0, 5.0), &around(110.0, 5.0)).unwrap();
        assert!(
            clear.is_sure() && clear.low < clear.value && clear.value < clear.high,
            "{clear:?}"
        );
        assert!((clear.value - 1.1).abs() < 0.01);
        let blurred = ratio(&around(100.0, 50.0), &around(101.0, 50.0)).unwrap();
        assert!(!blurred.is_sure(), "{blurred:?}");
        let same = ratio(&[5.0; 20], &[5.0; 20]).unwrap();
        assert!(!same.is_sure(), "{same:?}");
    }

    #[test]
    fn the_interval_holds_the_truth_nineteen_times_in_twenty() {
        // Sums of twelve values of a Lehmer generator are nearly normal.
        let mut state = 42_u64;
        let mut normal = || {
            let sum: f64 = (0..12)
                .map(|_| {
                    state = state * 48_271 % 0x7fff_ffff;
                    state as f64 / f64::from(0x7fff_ffff)
                })
                .sum();
            sum - 6.0
        };
        let mut held = 0;
        for _ in 0..2000 {
            let mut values =
                |mean: f64| (0..20).map(|_| mean + 10.0 * normal()).collect::<Vec<_>>();
            let ratio = ratio(&values(100.0), &values(103.0)).unwrap();
            held += u32::from(ratio.low <= 1.03 && 1.03 <= ratio.high);
        }
        assert!((1860..1940).contains(&held), "{held} of 2000");
    }

    #[test]
    fn too_few_pieces_say_nothing() {
        assert_eq!(ratio(&[1.0; 4], &[1.0; 20]), None);
        assert_eq!(ratio(&[0.0; 20], &[1.0; 20]), None);
        assert_eq!(spread(&[]), None);
    }
}
