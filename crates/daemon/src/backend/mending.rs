//! Has lists read anew that name who is gone, who goes by another name now, or who has come: a server may
//! have changed them and told nobody ([`doubts`](super::doubts)).

use super::engine::{Engine, InDoubt};
use roster_provider::Provider;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// The least between two looks into all lists, and between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// Looking takes at most one part of the time in so many.
const SHARE: u32 = 10;

/// Looks into the lists whenever it is time to, and while the directory answers. Never over.
pub async fn keep_mending<P: Provider>(engine: &Arc<Engine>, provider: &P) {
    let mut news = engine.news();
    loop {
        engine.lists_due().await;
        if news.wait_for(|news| news.online == Some(true)).await.is_err() {
            pending::<()>().await;
        }
        // What is being read comes with its lists, and is not to be cut short by a reading of everything.
        if !engine.is_at_rest() {
            sleep(PAUSE).await;
            continue;
        }
        let began = Instant::now();
        match in_doubt(engine).await {
            Ok(InDoubt::Groups(groups, named)) if groups.is_empty() && named.is_empty() => {}
            Ok(InDoubt::Groups(groups, named)) => {
                tracing::debug!(
                    groups = groups.len(),
                    of = named.len(),
                    "lists may have changed and are read anew"
                );
                provider.read_anew(&groups, &named);
            }
            Ok(InDoubt::Everything) => provider.refresh(),
            Err(error) => tracing::debug!("lists cannot be looked into now: {error}"),
        }
        sleep(PAUSE.max(began.elapsed() * SHARE)).await;
    }
}

async fn in_doubt(engine: &Arc<Engine>) -> anyhow::Result<InDoubt> {
    let lists = engine.lists()?;
    let found = spawn_blocking(move || lists.look()).await??;
    Ok(engine.looked(found))
}
