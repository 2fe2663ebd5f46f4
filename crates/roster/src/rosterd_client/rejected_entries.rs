// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches the rejected entries of a domain, page by page. The publisher and the backends keep the lists. `domain` and
//! `status_report` print them.

use super::{BusClient, call_error};
use anyhow::Result;
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{REJECTED_PER_REPLY_MAX, RejectedEntry};
use std::collections::HashMap;

/// Limit of the pages, for more entries than a snapshot can hold.
const PAGES_MAX: u32 = 10_000;

/// Fetches the entries of a domain that the publisher rejects.
pub async fn rejected_by_publisher(bus: &BusClient, name: &str) -> Result<Vec<RejectedEntry>> {
    let publisher = bus.publisher().await?;
    let page = async |from| {
        let page = publisher.rejected(name, from, REJECTED_PER_REPLY_MAX).await;
        page.map_err(|error| call_error(&RoleName::Publisher, &error).into())
    };
    all_pages(page).await
}

/// Fetches all pages of a list.
pub async fn all_pages(
    page: impl AsyncFn(u32) -> Result<Vec<RejectedEntry>>,
) -> Result<Vec<RejectedEntry>> {
    let mut entries = Vec::new();
    for _ in 0..PAGES_MAX {
        let from = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let next = page(from).await?;
        let last = next.len() < REJECTED_PER_REPLY_MAX as usize;
        entries.extend(next);
        if last {
            break;
        }
    }
    Ok(entries)
}

/// Groups entries by reason. The most frequent reason is first, and no group is empty.
pub fn by_reason(entries: &[RejectedEntry]) -> Vec<Vec<&RejectedEntry>> {
    let mut reasons: Vec<Vec<&RejectedEntry>> = Vec::new();
    let mut positions: HashMap<&str, usize> = HashMap::new();
    for entry in entries {
        let position = *positions.entry(&entry.reason).or_insert_with(|| {
            reasons.push(Vec::new());
            reasons.len() - 1
        });
        reasons[position].push(entry);
    }
    // The sort is stable: reasons with equal counts keep their order.
    reasons.sort_by_key(|entries| std::cmp::Reverse(entries.len()));
    reasons
}
