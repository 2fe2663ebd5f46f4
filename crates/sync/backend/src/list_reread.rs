// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads lists again that name a removed, renamed or new entry. A server may have changed them without a report
//! ([`stale_references`](super::stale_references)).

use super::engine::{Engine, PendingRereads};
use roster_provider::Provider;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Shortest time between two scans of all lists, and between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// A scan takes at most this fraction of the time.
const SCAN_TIME_DIVISOR: u32 = 10;

/// Scans the lists when that is due and the directory is reachable. Runs forever.
pub async fn keep_rereading<P: Provider>(engine: &Arc<Engine>, provider: &P) {
    let mut news = engine.subscribe();
    loop {
        engine.wait_for_list_scan().await;
        if news.wait_for(|news| news.online == Some(true)).await.is_err() {
            pending::<()>().await;
        }
        // A refresh in progress brings its lists, and a full read must not interrupt it.
        if !engine.is_idle() {
            sleep(PAUSE).await;
            continue;
        }
        let began = Instant::now();
        match pending_rereads(engine).await {
            Ok(PendingRereads::Groups(groups, named)) if groups.is_empty() && named.is_empty() => {}
            Ok(PendingRereads::Groups(groups, named)) => {
                tracing::debug!(
                    groups = groups.len(),
                    of = named.len(),
                    "re-reading groups that may have changed"
                );
                provider.reread_groups(&groups, &named);
            }
            Ok(PendingRereads::Everything) => provider.refresh(),
            Err(error) => tracing::debug!("lists cannot be looked into now: {error}"),
        }
        sleep(PAUSE.max(began.elapsed() * SCAN_TIME_DIVISOR)).await;
    }
}

async fn pending_rereads(engine: &Arc<Engine>) -> anyhow::Result<PendingRereads> {
    let lists = engine.list_scan_job()?;
    let found = spawn_blocking(move || lists.scan()).await??;
    Ok(engine.finish_list_scan(found))
}
