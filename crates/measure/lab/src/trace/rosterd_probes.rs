// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probes of rosterd (docs/reference/probes.md), and the times of requests from their events. A request has the same
//! number in all processes, and so has each call of a backend and each query to a directory. `collect` reads the events.

use super::bpftrace_script::{EventTexts, Probe, ProbeEvent};
use super::{RequestStage, StageTimes};
use std::collections::{BTreeSet, HashMap};

const fn probe(name: &'static str, numbers: &'static [u8], texts: &'static [u8]) -> Probe {
    Probe { name, numbers, texts }
}

/// Provider of all probes.
pub const PROVIDER: &str = "roster";

pub static PROBES: [Probe; 12] = [
    probe("request_received", &[0, 1], &[]),
    probe("request_sent", &[0], &[]),
    probe("request_returned", &[0], &[]),
    probe("request_answered", &[0, 1, 2], &[]),
    probe("publisher_received", &[0], &[]),
    probe("publisher_answered", &[0], &[]),
    probe("call_sent", &[0, 1], &[3]),
    probe("call_returned", &[0, 1], &[]),
    probe("backend_received", &[0, 1], &[3, 4]),
    probe("backend_answered", &[0, 1], &[]),
    probe("directory_asked", &[0, 1, 2], &[3, 4]),
    probe("directory_answered", &[0, 1, 2], &[]),
];

const REQUEST: usize = 0;
const RESPONDER: usize = 1;
const TO_PUBLISHER: usize = 2;
const PUBLISHER: usize = 3;
const TO_BACKEND: usize = 4;
const BACKEND: usize = 5;
const DIRECTORY: usize = 6;
const FROM_BACKEND: usize = 7;
const FROM_PUBLISHER: usize = 8;
const UNSOLICITED: usize = 9;

/// Stages in the order of a request.
pub const STAGES: [RequestStage; 10] = [
    RequestStage { name: "request", meaning: "whole request, from its read to its reply" },
    RequestStage {
        name: "responder",
        meaning: "in the responder without its waits: queue, cache, write of the reply",
    },
    RequestStage { name: "bus to publisher", meaning: "from the responder to the publisher" },
    RequestStage {
        name: "publisher",
        meaning: "in the publisher without its waits: owner of a name, reply",
    },
    RequestStage { name: "bus to backend", meaning: "from the publisher to a backend" },
    RequestStage { name: "backend", meaning: "in a backend without its waits: cache, queue" },
    RequestStage {
        name: "directory",
        meaning: "each query to a directory, until its reply is processed",
    },
    RequestStage { name: "bus from backend", meaning: "reply from the backend to the publisher" },
    RequestStage {
        name: "bus from publisher",
        meaning: "reply from the publisher to the responder",
    },
    RequestStage {
        name: "unprompted",
        meaning: "queries to a directory without a request, which refresh cached replies",
    },
];

/// Kinds of requests by their number in probes.
const KINDS: [&str; 6] =
    ["user_by_name", "user_by_uid", "group_by_name", "group_by_gid", "groups_of", "several"];
const OUTCOMES: [&str; 4] = ["found", "absent", "unavailable", "left"];

fn name_of(names: &[&str], number: u64) -> String {
    let name = usize::try_from(number).ok().and_then(|number| names.get(number));
    name.map_or_else(|| number.to_string(), ToString::to_string)
}

/// Begin and end, as far as events exist.
#[derive(Clone, Copy, Default)]
struct Span {
    from: Option<u64>,
    to: Option<u64>,
}

impl Span {
    fn closed(self) -> Option<(u64, u64)> {
        self.from.zip(self.to)
    }
}

/// Returns the time between two events of different processes. They share a clock, but may read it in another order.
fn between(from: Option<u64>, to: Option<u64>) -> Option<u64> {
    from.zip(to).map(|(from, to)| to.saturating_sub(from))
}

/// Returns the time of a span outside of all others.
fn time_outside(of: (u64, u64), waits: impl Iterator<Item = (u64, u64)>) -> u64 {
    let (from, to) = of;
    let waits: BTreeSet<(u64, u64)> = waits.collect();
    let (mut at, mut own) = (from, 0);
    for (begin, end) in waits {
        own += begin.min(to).saturating_sub(at);
        at = at.max(end);
    }
    own + to.saturating_sub(at)
}

#[derive(Default)]
struct TracedRequest {
    whole: Span,
    publisher_call: Span,
    publisher: Span,
    kind: u64,
    outcome: u64,
    calls: Vec<u64>,
}

#[derive(Default)]
struct BackendCall {
    sent: Span,
    backend: Span,
    domain: Option<String>,
    queries: Vec<u64>,
}

#[derive(Default)]
struct DirectoryQuery {
    span: Span,
    domain: Option<String>,
}

/// Events by number of request, call and query.
#[derive(Default)]
struct EventIndex {
    requests: HashMap<u64, TracedRequest>,
    calls: HashMap<u64, BackendCall>,
    queries: HashMap<u64, DirectoryQuery>,
    unsolicited: Vec<u64>,
}

impl EventIndex {
    fn add_event(&mut self, event: &ProbeEvent, texts: &EventTexts) {
        let [number, second, third, _] = event.numbers;
        let at = Some(event.at);
        let place = || {
            let [domain, provider] = event.texts.map(|text| texts.get(text));
            Some(format!("{domain} ({provider})"))
        };
        if event.probe.starts_with("directory") {
            let question = self.queries.entry(third).or_default();
            if event.probe == "directory_answered" {
                question.span.to = at;
                return;
            }
            question.span.from = at;
            question.domain = place();
            match second {
                0 => self.unsolicited.push(third),
                call => self.calls.entry(call).or_default().queries.push(third),
            }
            return;
        }
        let request = self.requests.entry(number).or_default();
        let call = self.calls.entry(second);
        match event.probe {
            "request_received" => (request.whole.from, request.kind) = (at, second),
            "request_answered" => {
                (request.whole.to, request.kind, request.outcome) = (at, second, third);
            }
            "request_sent" => request.publisher_call.from = at,
            "request_returned" => request.publisher_call.to = at,
            "publisher_received" => request.publisher.from = at,
            "publisher_answered" => request.publisher.to = at,
            "call_sent" => {
                request.calls.push(second);
                call.or_default().sent.from = at;
            }
            "call_returned" => call.or_default().sent.to = at,
            "backend_received" => {
                let call = call.or_default();
                call.backend.from = at;
                call.domain = place();
            }
            "backend_answered" => call.or_default().backend.to = at,
            _ => {}
        }
    }

    fn known_calls<'a>(&'a self, calls: &'a [u64]) -> impl Iterator<Item = &'a BackendCall> {
        calls.iter().filter_map(|call| self.calls.get(call))
    }
}

/// Joins the events of complete requests. A request that waited for the reply to an equal request has no further
/// stages.
#[must_use]
pub fn join(events: &[ProbeEvent], texts: &EventTexts) -> StageTimes {
    let mut seen = EventIndex::default();
    for event in events {
        seen.add_event(event, texts);
    }
    let mut joined = StageTimes::default();
    for request in seen.requests.values() {
        let Some(whole) = request.whole.closed() else {
            joined.unfinished += 1;
            continue;
        };
        joined.requests += 1;
        *joined.kinds.entry(name_of(&KINDS, request.kind)).or_default() += 1;
        *joined.results.entry(name_of(&OUTCOMES, request.outcome)).or_default() += 1;
        add_request(&mut joined, request, whole, &seen);
        for call in seen.known_calls(&request.calls) {
            add_call(&mut joined, call, &seen);
        }
    }
    for question in seen.unsolicited.iter().filter_map(|number| seen.queries.get(number)) {
        joined.add(
            UNSOLICITED,
            question.domain.as_deref(),
            between(question.span.from, question.span.to),
        );
    }
    joined
}

fn add_request(
    joined: &mut StageTimes,
    request: &TracedRequest,
    whole: (u64, u64),
    seen: &EventIndex,
) {
    let TracedRequest { publisher_call: asked, publisher, .. } = request;
    joined.add(REQUEST, None, Some(whole.1.saturating_sub(whole.0)));
    joined.add(RESPONDER, None, Some(time_outside(whole, asked.closed().into_iter())));
    joined.add(TO_PUBLISHER, None, between(asked.from, publisher.from));
    joined.add(FROM_PUBLISHER, None, between(publisher.to, asked.to));
    let calls = seen.known_calls(&request.calls).filter_map(|call| call.sent.closed());
    joined.add(PUBLISHER, None, publisher.closed().map(|span| time_outside(span, calls)));
}

fn add_call(joined: &mut StageTimes, call: &BackendCall, seen: &EventIndex) {
    let BackendCall { sent, backend: back_end, .. } = call;
    let place = call.domain.as_deref();
    let questions = call.queries.iter().filter_map(|number| seen.queries.get(number));
    let spans = questions.clone().filter_map(|question| question.span.closed());
    joined.add(TO_BACKEND, place, between(sent.from, back_end.from));
    joined.add(BACKEND, place, back_end.closed().map(|span| time_outside(span, spans)));
    joined.add(FROM_BACKEND, place, between(back_end.to, sent.to));
    for question in questions {
        joined.add(
            DIRECTORY,
            question.domain.as_deref(),
            between(question.span.from, question.span.to),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::bpftrace_script;
    use super::*;

    /// Joins events from lines without their process: name, time, values.
    fn joined(lines: &str) -> StageTimes {
        let probes: Vec<&'static Probe> = PROBES.iter().collect();
        let mut texts = EventTexts::default();
        let events: Vec<ProbeEvent> = lines
            .lines()
            .map(|line| {
                let (name, rest) = line.trim().split_once(' ').unwrap();
                let line = format!("{name}\t1\t{}", rest.replace(' ', "\t"));
                bpftrace_script::parse_event(&line, &probes, &mut texts)
                    .unwrap_or_else(|| panic!("{line}"))
            })
            .collect();
        join(&events, &texts)
    }

    fn times(joined: &StageTimes, hop: usize, place: &str) -> Vec<u64> {
        joined.times.get(&(hop, place.to_owned())).cloned().unwrap_or_default()
    }

    const ONE: &str = "request_received 0 7 0
        request_sent 10 7
        publisher_received 30 7
        call_sent 60 7 8 corp
        backend_received 100 7 8 corp ldap
        directory_asked 150 7 8 9 corp ldap
        directory_answered 1150 7 8 9
        backend_answered 1210 7 8
        call_returned 1280 7 8
        publisher_answered 1360 7
        request_returned 1450 7
        request_answered 1550 7 0 0";

    #[test]
    fn the_hops_of_a_request_are_all_of_its_time() {
        let joined = joined(ONE);
        assert_eq!((joined.requests, joined.unfinished), (1, 0));
        assert_eq!(joined.kinds["user_by_name"], 1);
        assert_eq!(joined.results["found"], 1);
        let corp = "corp (ldap)";
        let wanted = [
            (REQUEST, "", 1550),
            (RESPONDER, "", 110),
            (TO_PUBLISHER, "", 20),
            (PUBLISHER, "", 110),
            (TO_BACKEND, corp, 40),
            (BACKEND, corp, 110),
            (DIRECTORY, corp, 1000),
            (FROM_BACKEND, corp, 70),
            (FROM_PUBLISHER, "", 90),
        ];
        for (hop, place, time) in wanted {
            assert_eq!(times(&joined, hop, place), [time], "{}", STAGES[hop].name);
        }
        let parts: u64 = wanted[1..].iter().map(|(.., time)| time).sum();
        assert_eq!(parts, 1550);
    }

    #[test]
    fn events_of_different_processes_may_come_in_any_order() {
        let backwards: Vec<&str> = ONE.lines().rev().collect();
        assert_eq!(joined(&backwards.join("\n")).times, joined(ONE).times);
    }

    #[test]
    fn calls_that_overlap_are_waited_for_once() {
        let joined = joined(
            "request_received 0 7 2
             request_sent 0 7
             publisher_received 0 7
             call_sent 100 7 8 corp
             call_sent 150 7 9 lab
             call_returned 300 7 8
             call_returned 400 7 9
             publisher_answered 1000 7
             request_returned 1000 7
             request_answered 1000 7 2 1",
        );
        assert_eq!(times(&joined, PUBLISHER, ""), [700]);
    }

    #[test]
    fn who_waits_for_an_equal_request_has_no_hops_behind() {
        let joined = joined(
            "request_received 0 7 0\nrequest_sent 1 7\nrequest_returned 9 7\nrequest_answered 10 7 0 0",
        );
        assert_eq!(times(&joined, RESPONDER, ""), [2]);
        assert_eq!(joined.times.len(), 2);
    }

    #[test]
    fn what_was_not_seen_whole_is_counted_apart() {
        let joined = joined("request_received 0 7 0\nrequest_answered 10 6 0 0\nrequest_sent 5 5");
        assert_eq!((joined.requests, joined.unfinished), (0, 3));
        assert!(joined.times.is_empty());
    }

    #[test]
    fn questions_of_nobody_are_no_requests() {
        let joined = joined("directory_asked 0 0 0 9 corp ldap\ndirectory_answered 70 0 0 9");
        assert_eq!((joined.requests, joined.unfinished), (0, 0));
        assert_eq!(times(&joined, UNSOLICITED, "corp (ldap)"), [70]);
    }
}
