// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of a campaign: all attempts, and the failures by their kind. All of it is tried before the test fails.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Failures that a test names when it ends.
const NAMED_MAX: usize = 20;

/// Whether campaigns run whole, as `ROSTER_STORAGE=all` has it, and not as samples.
#[must_use]
pub fn is_full_campaign() -> bool {
    std::env::var_os("ROSTER_STORAGE").is_some_and(|value| value == "all")
}

/// Every case of a whole campaign, or about `sample` of them, evenly.
#[must_use]
pub fn sample_cases<T>(cases: Vec<T>, sample: usize) -> Vec<T> {
    let step = if is_full_campaign() { 1 } else { cases.len().div_ceil(sample.max(1)).max(1) };
    cases.into_iter().step_by(step).collect()
}

/// The counts of one campaign.
#[derive(Debug)]
pub struct Tally {
    campaign: &'static str,
    counts: BTreeMap<&'static str, u64>,
    failures: Vec<String>,
}

impl Tally {
    /// With each of these kinds of failures at zero.
    #[must_use]
    pub fn for_campaign(campaign: &'static str, kinds: &[&'static str]) -> Self {
        let counts = kinds.iter().map(|kind| (*kind, 0)).collect();
        Self { campaign, counts, failures: Vec::new() }
    }

    /// Counts a case, or anything else beside failures.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Counts a failure of this kind.
    pub fn fail(&mut self, kind: &'static str, what: &str) {
        self.count(kind);
        eprintln!("{}: {kind}: {what}", self.campaign);
        self.failures.push(format!("{kind}: {what}"));
    }

    /// Counts a failure unless `holds`.
    pub fn check(&mut self, holds: bool, kind: &'static str, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(kind, &what());
        }
    }

    /// Prints the counts in one line, which `scripts/test-long` reads.
    ///
    /// # Panics
    /// If there were failures, or fewer than `least` of `what`.
    pub fn finish(self, what: &str, least: u64) {
        let mut row = Map::new();
        row.insert("test".to_owned(), Value::from(self.campaign));
        row.extend(
            self.counts.iter().map(|(name, count)| ((*name).to_owned(), Value::from(*count))),
        );
        println!("tally: {}", Value::Object(row));
        let shown = &self.failures[..self.failures.len().min(NAMED_MAX)];
        assert!(shown.is_empty(), "{} failures:\n{}", self.failures.len(), shown.join("\n"));
        let tried = self.counts.get(what).copied().unwrap_or_default();
        assert!(
            tried >= least,
            "only {tried} {what}: the campaign did not reach what it is to try"
        );
    }
}
