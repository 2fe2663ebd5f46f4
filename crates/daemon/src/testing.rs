//! Waits of the unit tests of this crate. Tests assert on outcomes, never on times.

use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The limit of a wait: it only ends a test that waits in vain.
pub const SOON: Duration = Duration::from_secs(60);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a condition holds.
///
/// # Panics
/// After [`SOON`].
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let held = async {
        while !condition() {
            sleep(PAUSE).await;
        }
    };
    assert!(timeout(SOON, held).await.is_ok(), "not within {SOON:?}: {what}");
}
