//! The entries of a domain that are rejected, page by page.

use super::{BusClient, call_error};
use anyhow::Result;
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{REJECTED_PER_REPLY_MAX, RejectedEntry};

/// Pages of rejected entries that are fetched: more than a snapshot has room for.
const PAGES_MAX: u32 = 10_000;

/// The entries of a domain that the publisher rejects.
pub async fn rejected_by_publisher(bus: &BusClient, name: &str) -> Result<Vec<RejectedEntry>> {
    let publisher = bus.publisher().await?;
    let page = async |from| {
        let page = publisher.rejected(name, from, REJECTED_PER_REPLY_MAX).await;
        page.map_err(|error| call_error(&RoleName::Publisher, &error))
    };
    all_pages(page).await
}

/// All pages of a list.
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
