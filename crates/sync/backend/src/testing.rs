// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits of the unit tests. Tests assert on outcomes, never on times.

use roster_system_tests::wait::SOON;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a condition holds.
///
/// # Panics
/// After [`SOON`].
pub async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let held = async {
        while !condition() {
            sleep(PAUSE).await;
        }
    };
    assert!(timeout(SOON, held).await.is_ok(), "not within {SOON:?}: {what}");
}
