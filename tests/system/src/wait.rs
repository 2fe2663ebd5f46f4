// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for events of other processes, with a limit.
//!
//! A limit ends only a test that would fail. Tests assert on outcomes, never on times: see `tests/lint-clocks`.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// The limit of a wait for anything that takes a moment on a quiet machine.
pub const SOON: Duration = Duration::from_secs(60);

/// Between two looks: short against the awaited event, long against the cost of a look.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `look` returns a value.
///
/// # Panics
/// After `deadline`, with the last reason that `look` gave.
#[track_caller]
pub fn wait_for<T>(deadline: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(reason) if start.elapsed() >= deadline => {
                panic!("not within {deadline:?}: {reason}")
            }
            Err(_) => sleep(CHECK_INTERVAL),
        }
    }
}

/// Waits until `condition` holds.
///
/// # Panics
/// After `deadline`.
#[track_caller]
pub fn wait_until(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(deadline, || condition().then_some(()).ok_or_else(|| what.to_owned()));
}
