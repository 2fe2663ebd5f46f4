//! Has a mirror read everything anew from time to time: nothing that a server does not tell lasts
//! for ever.

use super::engine::Engine;
use roster_provider::spread;
use std::future::pending;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The least of a pause, however short the drawn one is.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Calls `refresh` when everything was read last so long ago, give or take a fifth, as long as the
/// directory answers and nothing is being read. Never over; does nothing if `every` is zero.
pub async fn keep_reading(engine: &Engine, every: Duration, refresh: impl Fn()) {
    if every.is_zero() {
        pending::<()>().await;
    }
    let random = RandomState::new();
    let mut draws = 0_u64;
    let mut draw = || {
        draws += 1;
        spread::drawn(every, random.hash_one(draws) as u32).max(PAUSE_MIN)
    };
    let begun = Instant::now();
    let mut asked = None::<Instant>;
    sleep(draw()).await;
    loop {
        let read = engine.read_age().unwrap_or_else(|| begun.elapsed());
        let age = asked.map_or(read, |asked| read.min(asked.elapsed()));
        let left = spread::least(every).saturating_sub(age);
        if left.is_zero() && engine.is_at_rest() {
            refresh();
            asked = Some(Instant::now());
        } else {
            sleep(left + draw()).await;
        }
    }
}
