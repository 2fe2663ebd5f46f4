// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of a publication for the status: served entries, and rejected entries with their reasons. `rejections` has
//! the rejected entries themselves.

use super::merge::MergedDomains;
use roster_admission::Refusal;
use roster_bus::interfaces::{PublishedDomain, RejectionCount};
use std::collections::HashMap;

/// Reasons that the status lists for one domain. All others share one line.
const REASONS_MAX: usize = 20;
/// Different ids that the status lists for one fault. With more ids it lists none.
const IDS_MAX: usize = 8;

/// Counts the served entries of each domain, and the rejected ones by reason.
#[must_use]
pub fn domain_counts(names: &[&str], merged: &MergedDomains<'_>) -> Vec<PublishedDomain> {
    let named =
        |name: &&str| PublishedDomain { domain: (*name).into(), ..PublishedDomain::default() };
    let mut counts: Vec<_> = names.iter().map(named).collect();
    merged.users.iter().for_each(|user| counts[user.domain].users += 1);
    for group in &merged.groups {
        let counts = &mut counts[group.domain];
        counts.groups += 1;
        counts.listed += group.entry.entry().references().len() as u64;
    }
    for (counts, refused) in counts.iter_mut().zip(&merged.rejected) {
        counts.refused = reasons(refused);
    }
    counts
}

/// Returns reasons with counts, most frequent first.
fn reasons(refused: &[(u32, Refusal)]) -> Vec<RejectionCount> {
    let mut refusals: HashMap<Refusal, u64> = HashMap::new();
    refused.iter().for_each(|(_, refusal)| *refusals.entry(*refusal).or_default() += 1);
    let mut faults: HashMap<String, Vec<(Refusal, u64)>> = HashMap::new();
    for (refusal, count) in refusals {
        faults.entry(refusal.without_id()).or_default().push((refusal, count));
    }
    let mut reasons = Vec::new();
    for (fault, refusals) in faults {
        let count = |(refusal, entries): &(Refusal, u64)| RejectionCount {
            reason: refusal.to_string(),
            code: refusal.message().code.to_owned(),
            fix: refusal.fix().unwrap_or_default(),
            entries: *entries,
        };
        if refusals.len() > IDS_MAX {
            let entries = refusals.iter().map(|(_, count)| count).sum();
            let code = refusals[0].0.message().code.to_owned();
            reasons.push(RejectionCount { reason: fault, code, fix: String::new(), entries });
        } else {
            reasons.extend(refusals.iter().map(count));
        }
    }
    reasons.sort_by(|a, b| b.entries.cmp(&a.entries).then_with(|| a.reason.cmp(&b.reason)));
    if reasons.len() > REASONS_MAX {
        let others = reasons.split_off(REASONS_MAX);
        let reason = format!("{} other reasons", others.len());
        let entries = others.iter().map(|other| other.entries).sum();
        reasons.push(RejectionCount { reason, entries, ..RejectionCount::default() });
    }
    reasons
}
