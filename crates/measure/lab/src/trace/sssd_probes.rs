// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probes of SSSD, and the times of its backends from their events. SSSD has no number of a request in all probes:
//! each stage is joined by the common arguments of its begin and end, and reported separately. `collect` reads the
//! events, and `rosterd_probes` has the probes of rosterd.

use super::bpftrace_script::{EventTexts, Probe, ProbeEvent};
use super::{RequestStage, StageTimes};
use std::collections::{HashMap, VecDeque};

/// Provider of all probes.
pub const PROVIDER: &str = "sssd";
/// Libraries of a backend with probes.
pub const LIBRARIES: [&str; 2] = ["libsss_ldap_common.so", "libsss_util.so"];

const fn probe(name: &'static str, numbers: &'static [u8], texts: &'static [u8]) -> Probe {
    Probe { name, numbers, texts }
}

/// Probes to attach. Begin and end of a stage carry the same addresses in memory.
pub static PROBES: [Probe; 11] = [
    probe("dp_req_send", &[], &[1]),
    probe("dp_req_done", &[3], &[0]),
    probe("sdap_acct_req_send", &[0, 2], &[]),
    probe("sdap_acct_req_recv", &[0, 2], &[]),
    probe("sdap_get_generic_ext_send", &[0, 2], &[]),
    probe("sdap_get_generic_ext_recv", &[0, 2], &[]),
    probe("sdap_deref_search_send", &[0, 1], &[]),
    probe("sdap_deref_search_recv", &[0, 1], &[]),
    probe("sysdb_transaction_start", &[0], &[]),
    probe("sysdb_transaction_commit_after", &[0], &[]),
    probe("sysdb_transaction_cancel", &[0], &[]),
];

const REQUEST: usize = 0;
const ACCOUNT: usize = 1;
const DIRECTORY: usize = 2;
const CACHE: usize = 3;

/// Stages, each within those before it.
pub const STAGES: [RequestStage; 4] = [
    RequestStage { name: "request", meaning: "whole request of a responder, in the backend" },
    RequestStage {
        name: "LDAP provider",
        meaning: "lookup of users or groups, with all its searches",
    },
    RequestStage { name: "directory", meaning: "each search, from its start to its last entry" },
    RequestStage {
        name: "cache",
        meaning: "each transaction of the cache, from its begin to its commit",
    },
];

/// Open spans of one process.
#[derive(Default)]
struct OpenSpans {
    /// Begin times by the common arguments; the first to begin is the first to end.
    spans: HashMap<(usize, [u64; 2], u32), VecDeque<u64>>,
    /// Begin times of nested transactions.
    transactions: Vec<u64>,
}

/// Joins the events of backends. `domains` has their domains by process.
#[must_use]
pub fn join(
    events: &[ProbeEvent],
    texts: &EventTexts,
    domains: &HashMap<u32, String>,
) -> StageTimes {
    let mut events: Vec<&ProbeEvent> = events.iter().collect();
    // Events are in order only for each processor.
    events.sort_by_key(|event| event.at);
    let mut begun: HashMap<u32, OpenSpans> = HashMap::new();
    let mut joined = StageTimes::default();
    for event in events {
        let Some(domain) = domains.get(&event.pid) else { continue };
        add(&mut joined, begun.entry(event.pid).or_default(), event, (domain, texts));
    }
    let open = |begun: &OpenSpans| -> usize {
        let requests = begun.spans.iter().filter(|(key, _)| key.0 == REQUEST);
        requests.map(|(_, times)| times.len()).sum()
    };
    joined.unfinished += begun.values().map(open).sum::<usize>() as u64;
    joined
}

fn add(
    joined: &mut StageTimes,
    begun: &mut OpenSpans,
    event: &ProbeEvent,
    (domain, texts): (&str, &EventTexts),
) {
    let [first, second, ..] = event.numbers;
    let both = [first, second];
    let (hop, key, is_begin) = match event.probe {
        "dp_req_send" => (REQUEST, ([0; 2], event.texts[0]), true),
        "dp_req_done" => (REQUEST, ([0; 2], event.texts[0]), false),
        "sdap_acct_req_send" => (ACCOUNT, (both, 0), true),
        "sdap_acct_req_recv" => (ACCOUNT, (both, 0), false),
        "sdap_get_generic_ext_send" => (DIRECTORY, (both, 0), true),
        "sdap_get_generic_ext_recv" => (DIRECTORY, (both, 0), false),
        "sdap_deref_search_send" => (DIRECTORY, (both, 1), true),
        "sdap_deref_search_recv" => (DIRECTORY, (both, 1), false),
        "sysdb_transaction_start" => return begun.transactions.push(event.at),
        _ => {
            // A nested transaction is a part of the outer one.
            if let (Some(from), true) = (begun.transactions.pop(), begun.transactions.is_empty()) {
                joined.add(CACHE, Some(domain), Some(event.at - from));
            }
            return;
        }
    };
    let spans = begun.spans.entry((hop, key.0, key.1)).or_default();
    if is_begin {
        return spans.push_back(event.at);
    }
    let from = spans.pop_front();
    joined.add(hop, Some(domain), from.map(|from| event.at - from));
    if hop != REQUEST {
        return;
    }
    if from.is_none() {
        joined.unfinished += 1;
        return;
    }
    joined.requests += 1;
    // The text is the kind with a number, such as `Account #17`.
    let name = texts.get(event.texts[0]);
    let kind = name.split('#').next().unwrap_or(name).trim();
    *joined.kinds.entry(kind.to_owned()).or_default() += 1;
    let result = if first == 0 { "answered" } else { "failed" };
    *joined.results.entry(result.to_owned()).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::super::bpftrace_script;
    use super::*;

    fn joined(lines: &[&str]) -> StageTimes {
        let probes: Vec<&'static Probe> = PROBES.iter().collect();
        let mut texts = EventTexts::default();
        let events: Vec<ProbeEvent> = lines
            .iter()
            .map(|line| {
                bpftrace_script::parse_event(&line.replace('|', "\t"), &probes, &mut texts)
                    .expect(line)
            })
            .collect();
        join(&events, &texts, &HashMap::from([(1, "corp".to_owned())]))
    }

    fn times(joined: &StageTimes, hop: usize) -> Vec<u64> {
        joined.times.get(&(hop, "corp".to_owned())).cloned().unwrap_or_default()
    }

    #[test]
    fn begin_and_end_are_joined_by_what_they_have_in_common() {
        let joined = joined(&[
            "dp_req_send|1|0|Account #1",
            "dp_req_send|1|5|Account #2",
            "sdap_acct_req_send|1|10|1|64",
            "sdap_get_generic_ext_send|1|20|8|9",
            "sdap_get_generic_ext_send|1|25|8|11",
            "sdap_get_generic_ext_recv|1|125|8|11",
            "sdap_get_generic_ext_recv|1|220|8|9",
            "sdap_acct_req_recv|1|310|1|64",
            "dp_req_done|1|405|3|Account #2",
            "dp_req_done|1|1000|0|Account #1",
            "dp_req_done|2|1000|0|Account #1",
            "dp_req_send|1|1001|Account #3",
        ]);
        assert_eq!((joined.requests, joined.unfinished), (2, 1));
        assert_eq!(joined.kinds["Account"], 2);
        assert_eq!((joined.results["answered"], joined.results["failed"]), (1, 1));
        assert_eq!(times(&joined, REQUEST), [400, 1000]);
        assert_eq!(times(&joined, ACCOUNT), [300]);
        assert_eq!(times(&joined, DIRECTORY), [100, 200]);
    }

    #[test]
    fn transactions_within_each_other_are_one() {
        let joined = joined(&[
            "sysdb_transaction_start|1|0|0",
            "sysdb_transaction_start|1|10|1",
            "sysdb_transaction_commit_after|1|20|1",
            "sysdb_transaction_commit_after|1|30|0",
            "sysdb_transaction_start|1|50|0",
            "sysdb_transaction_cancel|1|60|0",
        ]);
        assert_eq!(times(&joined, CACHE), [30, 10]);
    }
}
