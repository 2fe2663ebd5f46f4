//! Waiting with a deadline for what other processes do.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks: short against what is waited for, long against what a look costs.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until `look` gives something, and returns it with the time that this took.
///
/// # Panics
/// When `deadline` has passed, with the last reason that `look` gave.
#[track_caller]
pub fn wait_for<T>(
    deadline: Duration,
    mut look: impl FnMut() -> Result<T, String>,
) -> (T, Duration) {
    let start = Instant::now();
    loop {
        match look() {
            Ok(found) => return (found, start.elapsed()),
            Err(reason) if start.elapsed() >= deadline => {
                panic!("not within {deadline:?}: {reason}")
            }
            Err(_) => sleep(LOOK_EVERY),
        }
    }
}

/// Waits until `condition` holds, and returns how long that took.
///
/// # Panics
/// When `deadline` has passed.
#[track_caller]
pub fn wait_until(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    wait_for(deadline, || condition().then_some(()).ok_or_else(|| what.to_owned())).1
}
