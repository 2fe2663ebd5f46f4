//! Says that modules of another version ask. A program keeps the module that it has loaded, and packages are
//! replaced one after the other, so it happens; and it must not fill the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::warn;

/// Between two lines about it.
const PAUSE: Duration = Duration::from_secs(60);

/// When it was said last.
#[derive(Debug, Default)]
pub struct Versions(Mutex<Option<Instant>>);

impl Versions {
    /// A program of that user has a module that speaks that version of the protocol.
    pub fn note(&self, version: u16, uid: u32) {
        if self.is_to_be_said(Instant::now()) {
            warn!(
                uid,
                "a program has a module that speaks version {version} of the protocol, and this is rosterd {}, \
                 which speaks version {}: it is told nothing; restart programs that began before the module was \
                 replaced, and rosterd if it did",
                env!("CARGO_PKG_VERSION"),
                roster_wire::VERSION,
            );
        }
    }

    fn is_to_be_said(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let (versions, start) = (Versions::default(), Instant::now());
        assert!(versions.is_to_be_said(start));
        assert!(!versions.is_to_be_said(start + PAUSE / 2));
        assert!(versions.is_to_be_said(start + PAUSE));
    }
}
