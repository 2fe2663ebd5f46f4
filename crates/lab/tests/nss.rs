//! Look-ups through the C library of this host, whose `files` know at least root.

mod common;

use common::{count, number, report};

fn look_up(lookup: &str, key: &str) -> (i32, serde_json::Value) {
    let brief = ["--duration", "200ms", "--warm-up", "50ms", "--users", "2"];
    report(&[&["nss", "--lookup", lookup, "--key", key][..], &brief].concat())
}

#[test]
fn who_is_there_is_found_by_name_and_id() {
    for (lookup, key) in [("passwd", "root"), ("passwd", "0"), ("group", "root"), ("group", "0")] {
        let (code, report) = look_up(lookup, key);
        assert_eq!((code, count(&report, "/failures")), (0, 0), "{lookup} {key}: {report}");
        assert!(count(&report, "/requests") > 0 && number(&report, "/latency_ms/p50") > 0.0);
        assert!(common::warnings(&report).is_empty(), "threads that work are no limit: {report}");
    }
}

#[test]
fn who_is_not_there_is_a_failure() {
    for lookup in ["passwd", "group", "initgroups"] {
        let (code, report) = look_up(lookup, "nobody-of-this-name{n}");
        let failures = count(&report, "/failures_by_kind/not found");
        assert!(code == 1 && failures > 0, "{lookup}: {report}");
        assert_eq!(failures, count(&report, "/requests"), "{lookup}: {report}");
    }
}
