// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refreshes a mirror completely from time to time. The refresh finds changes that a server did not report. The
//! provider reads the directory, and `engine` compares.

use super::engine::Engine;
use roster_provider::jitter;
use std::future::pending;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Shortest pause.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Calls `refresh` when the last full read is older than `every`, plus or minus a fifth, while the directory is
/// reachable and idle. Runs forever. Does nothing if `every` is zero.
pub async fn keep_refreshing(engine: &Engine, every: Duration, refresh: impl Fn()) {
    if every.is_zero() {
        pending::<()>().await;
    }
    let random = RandomState::new();
    let mut draws = 0_u64;
    let mut draw = || {
        draws += 1;
        jitter::jitter(every, random.hash_one(draws) as u32).max(PAUSE_MIN)
    };
    let begun = Instant::now();
    let mut asked = None::<Instant>;
    sleep(draw()).await;
    loop {
        let read = engine.read_age().unwrap_or_else(|| begun.elapsed());
        let age = asked.map_or(read, |asked| read.min(asked.elapsed()));
        let left = jitter::shortest(every).saturating_sub(age);
        if left.is_zero() && engine.is_idle() {
            refresh();
            asked = Some(Instant::now());
        } else {
            sleep(left + draw()).await;
        }
    }
}
