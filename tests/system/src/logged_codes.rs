// SPDX-License-Identifier: MIT OR Apache-2.0
//! Codes of log events, for tests of conditions that are only logged.

use roster_messages::Message;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

/// The codes that some threads have logged since [`collect`](Self::collect).
#[derive(Clone, Default)]
pub struct LoggedCodes(Arc<Mutex<Vec<String>>>);

impl LoggedCodes {
    /// Collects the codes of this thread as long as the guard lives.
    #[must_use]
    pub fn collect(&self) -> DefaultGuard {
        tracing::subscriber::set_default(self.clone())
    }

    /// Whether this code was logged.
    #[must_use]
    pub fn has(&self, code: &str) -> bool {
        self.codes().iter().any(|one| one == code)
    }

    /// Returns the codes in order.
    #[must_use]
    pub fn codes(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs `work`. Returns the codes of the events that this thread logs meanwhile, and the result.
pub fn with_logged_codes<T>(work: impl FnOnce() -> T) -> (Vec<&'static Message>, T) {
    let logged = LoggedCodes::default();
    let result = tracing::subscriber::with_default(logged.clone(), work);
    let codes = logged.codes();
    (codes.iter().filter_map(|code| roster_messages::find(code)).collect(), result)
}

/// Runs `work` and returns the codes of the events that this thread logs meanwhile.
pub fn logged_codes(work: impl FnOnce()) -> Vec<&'static Message> {
    with_logged_codes(work).0
}

impl Visit for LoggedCodes {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "code" {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

impl Subscriber for LoggedCodes {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
