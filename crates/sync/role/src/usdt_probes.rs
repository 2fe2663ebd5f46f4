// SPDX-License-Identifier: MIT OR Apache-2.0
//! USDT probes at each stage of a request, for tracers such as `roster-lab trace`. docs/reference/probes.md lists their
//! names and arguments. Without a tracer a probe is one `nop` instruction. Its arguments are therefore only numbers and
//! texts that exist anyway.
//!
//! Probes have only the kind of a request. Its names and ids stay private.

use probe::probe;
use roster_bus::interfaces::TraceContext;
use roster_request::LookupKind;
use std::ffi::{CStr, CString};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kind of a query: a [`LookupKind`] by its number, or one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKind(u32);

impl CallKind {
    /// Several queries in one call.
    pub const SEVERAL: Self = Self(5);

    /// Converts the kind of a single query.
    pub fn from_kind(kind: LookupKind) -> Self {
        Self(kind as u32)
    }
}

/// The result of a request, with its number in probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ProbeOutcome {
    /// There is an entry.
    Found,
    /// There is none.
    Absent,
    /// The result is unknown.
    Unavailable,
    /// The caller no longer waits for the result.
    Abandoned,
}

impl ProbeOutcome {
    /// Converts a result.
    pub fn from_result<T, E>(answer: &Result<T, E>, is_found: impl FnOnce(&T) -> bool) -> Self {
        match answer {
            Ok(answer) if is_found(answer) => Self::Found,
            Ok(_) => Self::Absent,
            Err(_) => Self::Unavailable,
        }
    }

    /// Returns the label in counters.
    pub fn label(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Absent => "absent",
            Self::Unavailable => "unavailable",
            Self::Abandoned => "left",
        }
    }
}

/// Returns a number that is unique among requests and calls, in all processes of the running daemon.
pub fn next_trace_number() -> u64 {
    static LAST: LazyLock<AtomicU64> =
        LazyLock::new(|| AtomicU64::new(u64::from(std::process::id()) << 32));
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A request of a program in a responder. The drop reports the result.
pub struct RequestProbe {
    number: u64,
    kind: LookupKind,
    outcome: ProbeOutcome,
}

impl RequestProbe {
    /// Reports that the request was read.
    pub fn received(kind: LookupKind) -> Self {
        let number = next_trace_number();
        probe!(roster, request_received, number, kind);
        Self { number, kind, outcome: ProbeOutcome::Abandoned }
    }

    /// Returns the number by which other roles know the request.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Reports a call to the publisher, for this request or an equal one.
    pub fn sent(&self) {
        probe!(roster, request_sent, self.number);
    }

    /// Reports the publisher's reply.
    pub fn returned(&self) {
        probe!(roster, request_returned, self.number);
    }

    /// Sets the result of the request.
    pub fn answered(mut self, outcome: ProbeOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for RequestProbe {
    fn drop(&mut self) {
        probe!(roster, request_answered, self.number, self.kind, self.outcome);
    }
}

/// Reports that the publisher starts with a request.
pub fn publisher_received(request: u64, kind: LookupKind) {
    probe!(roster, publisher_received, request, kind);
}

/// Reports that the publisher has finished a request.
pub fn publisher_answered(request: u64, kind: LookupKind, outcome: ProbeOutcome) {
    probe!(roster, publisher_answered, request, kind, outcome);
}

/// Reports a call to a backend, by this request or an equal one.
pub fn call_sent(trace: TraceContext, what: CallKind, domain: &CStr) {
    let TraceContext { request, call } = trace;
    probe!(roster, call_sent, request, call, what.0, domain.as_ptr());
}

/// Reports the backend's reply.
pub fn call_returned(trace: TraceContext, outcome: ProbeOutcome) {
    let TraceContext { request, call } = trace;
    probe!(roster, call_returned, request, call, outcome);
}

/// Converts a text for tracers.
pub fn probe_text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// Probes of a backend.
pub struct BackendProbe {
    domain: CString,
    provider: CString,
}

impl BackendProbe {
    /// Makes the probes of a domain, with the provider's name in the configuration.
    pub fn new(domain: &str, provider: &str) -> Self {
        Self { domain: probe_text(domain), provider: probe_text(provider) }
    }

    /// Reports that the backend starts with a call.
    pub fn received(&self, trace: TraceContext, what: CallKind) {
        let TraceContext { request, call } = trace;
        let (domain, provider) = (self.domain.as_ptr(), self.provider.as_ptr());
        probe!(roster, backend_received, request, call, what.0, domain, provider);
    }

    /// Reports that the backend has finished a call.
    pub fn answered(&self, trace: TraceContext, outcome: ProbeOutcome) {
        let TraceContext { request, call } = trace;
        probe!(roster, backend_answered, request, call, outcome);
    }

    /// Reports a query to the directory, for a call or a refresh. A dropped result reports an abandoned query.
    pub fn directory_asked(&self, trace: TraceContext) -> DirectoryProbe {
        let number = next_trace_number();
        let TraceContext { request, call } = trace;
        let (domain, provider) = (self.domain.as_ptr(), self.provider.as_ptr());
        probe!(roster, directory_asked, request, call, number, domain, provider);
        DirectoryProbe { trace, number, outcome: ProbeOutcome::Abandoned }
    }
}

/// A query to a directory. The drop reports the result.
pub struct DirectoryProbe {
    trace: TraceContext,
    number: u64,
    outcome: ProbeOutcome,
}

impl DirectoryProbe {
    /// Sets the result of the query.
    pub fn answered(mut self, outcome: ProbeOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for DirectoryProbe {
    fn drop(&mut self) {
        let TraceContext { request, call } = self.trace;
        probe!(roster, directory_answered, request, call, self.number, self.outcome);
    }
}
