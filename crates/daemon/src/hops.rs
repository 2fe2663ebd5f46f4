//! Probes at each hop of a request, for tracers as `roster-lab trace`: what each is called and what it carries
//! is said in docs/probes.md. Where nobody looks, a probe is one instruction that does nothing; so what it carries
//! is numbers and texts that are there anyway.
//!
//! Knows nothing of what is asked but its kind: names and ids are nobody's business but who asks for them.

use probe::probe;
use roster_bus::interfaces::{Kind, Trace};
use std::ffi::{CStr, CString};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a question is for: a [`Kind`] by its number, or one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What(u32);

impl What {
    /// Several questions in one call.
    pub const SEVERAL: Self = Self(5);

    /// One question.
    pub fn of(kind: Kind) -> Self {
        Self(kind as u32)
    }
}

/// What came of it, by its number in probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Outcome {
    Found,
    Absent,
    /// It could not be told.
    Unavailable,
    /// Nobody waited for it any more.
    Left,
}

impl Outcome {
    /// Of an answer.
    pub fn of<T, E>(answer: &Result<T, E>, is_found: impl FnOnce(&T) -> bool) -> Self {
        match answer {
            Ok(answer) if is_found(answer) => Self::Found,
            Ok(_) => Self::Absent,
            Err(_) => Self::Unavailable,
        }
    }

    /// As counters have it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Absent => "absent",
            Self::Unavailable => "unavailable",
            Self::Left => "left",
        }
    }
}

/// A number that no other request or call has, in any process of the daemon that runs.
pub fn number() -> u64 {
    static LAST: LazyLock<AtomicU64> =
        LazyLock::new(|| AtomicU64::new(u64::from(std::process::id()) << 32));
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A request of a program in the hands of a responder; what it was answered is told when it is dropped.
pub struct Request {
    number: u64,
    kind: Kind,
    outcome: Outcome,
}

impl Request {
    /// It has been read.
    pub fn received(kind: Kind) -> Self {
        let number = number();
        probe!(roster, request_received, number, kind);
        Self { number, kind, outcome: Outcome::Left }
    }

    /// By which the other roles know it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The publisher is asked, by this request or by an equal one.
    pub fn sent(&self) {
        probe!(roster, request_sent, self.number);
    }

    /// It answered.
    pub fn returned(&self) {
        probe!(roster, request_returned, self.number);
    }

    /// The program has its answer.
    pub fn answered(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        probe!(roster, request_answered, self.number, self.kind, self.outcome);
    }
}

/// The publisher begins with a request.
pub fn publisher_received(request: u64, kind: Kind) {
    probe!(roster, publisher_received, request, kind);
}

/// The publisher is done with it.
pub fn publisher_answered(request: u64, kind: Kind, outcome: Outcome) {
    probe!(roster, publisher_answered, request, kind, outcome);
}

/// A back-end is asked, by this call or by an equal one.
pub fn call_sent(trace: Trace, what: What, domain: &CStr) {
    let Trace { request, call } = trace;
    probe!(roster, call_sent, request, call, what.0, domain.as_ptr());
}

/// It answered.
pub fn call_returned(trace: Trace, outcome: Outcome) {
    let Trace { request, call } = trace;
    probe!(roster, call_returned, request, call, outcome);
}

/// A text as tracers read it.
pub fn text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// A back-end.
pub struct Place {
    domain: CString,
    provider: CString,
}

impl Place {
    /// Of a domain, by the provider's name in the configuration.
    pub fn new(domain: &str, provider: &str) -> Self {
        Self { domain: text(domain), provider: text(provider) }
    }

    /// It begins with a call.
    pub fn received(&self, trace: Trace, what: What) {
        let Trace { request, call } = trace;
        let (domain, provider) = (self.domain.as_ptr(), self.provider.as_ptr());
        probe!(roster, backend_received, request, call, what.0, domain, provider);
    }

    /// It is done with it.
    pub fn answered(&self, trace: Trace, outcome: Outcome) {
        let Trace { request, call } = trace;
        probe!(roster, backend_answered, request, call, outcome);
    }

    /// It asks its directory, for a call or of its own accord. Whoever does not wait for the answer drops what
    /// this gives.
    pub fn asks(&self, trace: Trace) -> Question {
        let number = number();
        let Trace { request, call } = trace;
        let (domain, provider) = (self.domain.as_ptr(), self.provider.as_ptr());
        probe!(roster, directory_asked, request, call, number, domain, provider);
        Question { trace, number, outcome: Outcome::Left }
    }
}

/// What a directory was asked; what it said is told when this is dropped.
pub struct Question {
    trace: Trace,
    number: u64,
    outcome: Outcome,
}

impl Question {
    /// It answered.
    pub fn answered(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let Trace { request, call } = self.trace;
        probe!(roster, directory_answered, request, call, self.number, self.outcome);
    }
}
