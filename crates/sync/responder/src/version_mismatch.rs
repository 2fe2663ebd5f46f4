// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logs requests of modules with another protocol version. A program retains its loaded module, and packages are
//! replaced one after the other, so this happens. It must not fill the log. `roster-wire` has the versions.

use parking_lot::Mutex;
use roster_messages::{log, table::daemon};
use std::time::{Duration, Instant};

/// Shortest time between two lines.
const PAUSE: Duration = Duration::from_secs(60);

/// Time of the last line.
#[derive(Debug, Default)]
pub struct VersionLog(Mutex<Option<Instant>>);

impl VersionLog {
    /// Records a request with that protocol version from a program of that user.
    pub fn note(&self, version: u16, uid: u32) {
        if self.is_log_due(Instant::now()) {
            log!(
                WARN,
                &daemon::MODULE_VERSION_MISMATCH,
                uid,
                "protocol version mismatch: a program of uid {uid} uses version {version}, rosterd {} uses {}",
                env!("CARGO_PKG_VERSION"),
                roster_wire::VERSION,
            );
        }
    }

    fn is_log_due(&self, now: Instant) -> bool {
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_once_and_then_once_a_minute() {
        let (versions, start) = (VersionLog::default(), Instant::now());
        assert!(versions.is_log_due(start));
        assert!(!versions.is_log_due(start + PAUSE / 2));
        assert!(versions.is_log_due(start + PAUSE));
    }
}
