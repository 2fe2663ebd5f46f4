// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs work in several threads if the host has several processors. There is no pool: threads live as long as the work.
//! If no thread can be started, the calling thread does all the work. `builder` and `invert_memberships` cut the work.

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Builder};

/// More threads gain little: one thread writes the file, and each thread has private tables.
const THREADS_MAX: usize = 8;

/// Returns the number of processors at the first call, at most 8.
#[must_use]
pub fn threads() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX))
}

/// Splits items into at most `parts` ranges of about equal weight. Returns at least one range. `weights` has one value
/// for each item.
#[must_use]
pub fn cut(weights: impl ExactSizeIterator<Item = u64> + Clone, parts: usize) -> Vec<Range<usize>> {
    let whole: u64 = weights.clone().sum();
    let items = weights.len();
    let mut ranges = Vec::with_capacity(parts);
    let (mut start, mut weight) = (0, 0);
    for (item, own) in weights.enumerate() {
        weight += own;
        let due = u128::from(whole) * (ranges.len() as u128 + 1) / parts.max(1) as u128;
        if ranges.len() + 1 < parts && u128::from(weight) >= due {
            ranges.push(start..item + 1);
            start = item + 1;
        }
    }
    if start < items || ranges.is_empty() {
        ranges.push(start..items);
    }
    ranges
}

/// Splits the slice into adjacent pieces, each with the position of its first item.
pub fn pieces<T>(mut slice: &mut [T], ranges: Vec<Range<usize>>) -> Vec<(usize, &mut [T])> {
    let cut_off = |range: Range<usize>| {
        let piece;
        (piece, slice) = std::mem::take(&mut slice).split_at_mut(range.len());
        (range.start, piece)
    };
    ranges.into_iter().map(cut_off).collect()
}

/// Applies `work` to each item, and returns the results in the order of the items.
pub fn each<I: Send, T: Send>(items: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    let others = items.len().min(threads()).saturating_sub(1);
    let queue = Mutex::new(items.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work_off = || {
        let mut done = Vec::new();
        while let Some((place, item)) = next() {
            done.push((place, work(item)));
        }
        done
    };
    let mut done = thread::scope(|scope| {
        let start = |_| Builder::new().spawn_scoped(scope, work_off).ok();
        let others: Vec<_> = (0..others).map_while(start).collect();
        let mut done = work_off();
        for other in others {
            let other = other.join();
            done.extend(other.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|&(place, _)| place);
    done.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_every_item_once_and_weigh_the_same() {
        type Case = (&'static [u64], usize, &'static [(usize, usize)]);
        let cuts: [Case; 7] = [
            (&[], 3, &[(0, 0)]),
            (&[1], 3, &[(0, 1)]),
            (&[1; 9], 3, &[(0, 3), (3, 6), (6, 9)]),
            (&[0; 4], 1, &[(0, 4)]),
            (&[0, 0, 90, 1, 1], 2, &[(0, 3), (3, 5)]),
            (&[1, 1, 90], 2, &[(0, 3)]),
            (&[u64::MAX / 2, u64::MAX / 2], 2, &[(0, 1), (1, 2)]),
        ];
        for (weights, parts, expected) in cuts {
            let ranges = cut(weights.iter().copied(), parts).into_iter();
            let found: Vec<_> = ranges.map(|range| (range.start, range.end)).collect();
            assert_eq!(found, expected, "{weights:?}");
        }
        for parts in 1..10 {
            for items in 0..50_usize {
                let ranges = cut((0..items).map(|item| item as u64 % 7), parts);
                assert!(ranges.len() <= parts);
                assert_eq!(
                    ranges.into_iter().flatten().collect::<Vec<_>>(),
                    Vec::from_iter(0..items)
                );
            }
        }
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let squares = each((0..1000_u64).collect(), |item| item * item);
        assert!(squares.iter().zip(0..).all(|(&square, item)| square == item * item));
        assert_eq!(each(Vec::<u8>::new(), |item| item), []);
    }
}
