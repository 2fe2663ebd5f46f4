// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of the daemon. `audit_record` writes their values into the record of a command's end.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter. A [`CounterGuard`] decrements it when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Increments the counter until the guard is dropped.
    pub(super) fn hold(&self) -> CounterGuard<'_> {
        self.add();
        CounterGuard(self)
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub(super) struct CounterGuard<'c>(&'c Counter);

impl Drop for CounterGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counters since the start of the daemon.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) running: Counter,
    pub(super) connections: Counter,
    pub(super) evicted: Counter,
    pub(super) malformed: Counter,
    pub(super) records_dropped: Counter,
}

/// Fields of the journal with their values.
pub(super) type CounterFields = [(&'static str, u64); 5];

impl Counters {
    pub(super) fn fields(&self) -> CounterFields {
        [
            ("ROSTER_RUNNING", self.running.get()),
            ("ROSTER_CONNECTIONS", self.connections.get()),
            ("ROSTER_CONNECTIONS_EVICTED", self.evicted.get()),
            ("ROSTER_CONNECTIONS_MALFORMED", self.malformed.get()),
            ("ROSTER_RECORDS_DROPPED", self.records_dropped.get()),
        ]
    }
}
