// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wall clock, in seconds since 1970. Durations are measured by `Instant`, which callers pass to pure functions.

use std::time::{SystemTime, UNIX_EPOCH};

/// Converts a time to seconds since 1970, 0 before that.
#[must_use]
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the present time, in seconds since 1970.
#[must_use]
pub fn unix_now() -> u64 {
    unix_seconds(SystemTime::now())
}

/// Returns the present time, in milliseconds since 1970.
#[must_use]
pub fn unix_now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
