//! Counts of a publication for the status: served entries, and rejected entries with their reasons.

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
        if refusals.len() > IDS_MAX {
            reasons.push((fault, refusals.iter().map(|(_, count)| count).sum()));
        } else {
            reasons.extend(refusals.iter().map(|(refusal, count)| (refusal.to_string(), *count)));
        }
    }
    reasons.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    if reasons.len() > REASONS_MAX {
        let others = reasons.split_off(REASONS_MAX);
        let count = others.iter().map(|(_, count)| count).sum();
        reasons.push((format!("{} other reasons", others.len()), count));
    }
    let count = |(reason, entries)| RejectionCount { reason, entries, ..RejectionCount::default() };
    reasons.into_iter().map(count).collect()
}
