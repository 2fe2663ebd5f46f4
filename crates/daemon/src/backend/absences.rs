//! Decides about entries that a listing or a reply lacked: searches for them by their keys, together
//! with entries of the same kind that must be there. A missing entry goes only if such a reply is
//! credible and lacks it too, and only a few go without a confirmation ([`deletion`](super::deletion)).
//!
//! Looks again every minute at entries whose removal waits for a confirmation, so that those that the
//! directory has again do not wait any more. Lists them once more before a confirmation removes them.

use super::engine::{Absent, Chunk, Engine};
use super::entries::Kind;
use roster_provider::{Looked, Of, Provider, Unanswered};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// The first pause after a search that decided nothing, which doubles up to the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause, and the time between two looks at entries that wait for a confirmation.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long one search may take, whatever the search timeout of the domain is.
const SEARCH_MAX: Duration = Duration::from_secs(120);

/// See the module.
pub struct Absences<P> {
    engine: Arc<Engine>,
    provider: Arc<P>,
    /// One at a time searches: the others find it decided.
    turn: Mutex<()>,
}

fn of(kind: Kind) -> Of {
    match kind {
        Kind::User => Of::Users,
        Kind::Group => Of::Groups,
    }
}

impl<P: Provider> Absences<P> {
    /// Decides about the entries of this engine by this provider.
    pub fn new(engine: Arc<Engine>, provider: Arc<P>) -> Self {
        Self { engine, provider, turn: Mutex::default() }
    }

    async fn look_for(&self, chunk: &Chunk) -> Result<Looked, Unanswered> {
        let looked = self.provider.look_for(of(chunk.kind), &chunk.missing, &chunk.control);
        let late = |_| Err(Unanswered::Failed("the directory did not answer in time".into()));
        timeout(SEARCH_MAX, looked).await.unwrap_or_else(late)
    }

    /// Searches for all missing entries once, and removes or holds those that are not there. An error
    /// decides nothing: the entries stay missing, and are served.
    pub async fn check(&self) -> Result<(), Unanswered> {
        let _turn = self.turn.lock().await;
        let mut kinds = Kind::ALL.map(|_| Absent { is_credible: true, ..Absent::default() });
        for chunk in self.engine.missing_chunks() {
            let looked = self.look_for(&chunk).await?;
            let absent = &mut kinds[chunk.kind as usize];
            absent.keys.extend(chunk.absent(&looked));
            absent.hidden += chunk.control_absent(&looked);
            absent.is_credible &= chunk.is_credible(&looked);
        }
        // Of all searches together: a directory that hides a part of its entries hides a few of each.
        for kind in Kind::ALL {
            self.engine.settle_missing(kind, &kinds[kind as usize]);
        }
        Ok(())
    }

    /// Searches for entries whose removal waits for a confirmation, as long as some are found.
    pub async fn look_again(&self) -> Result<(), Unanswered> {
        let _turn = self.turn.lock().await;
        for chunk in self.engine.held_chunks() {
            if self.look_for(&chunk).await?.found.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Never over.
    pub async fn keep_checking(&self) {
        tokio::join!(self.check_missing(), self.look_again_at_held());
    }

    async fn check_missing(&self) {
        let mut pause = PAUSE_MIN;
        loop {
            self.engine.something_missing().await;
            self.online().await;
            if let Err(error) = self.check().await {
                tracing::debug!("missing entries are served, and looked for again: {error}");
            }
            // Those that were found are missing until a mirror has read them.
            if self.engine.has_missing() {
                sleep(pause).await;
                pause = (2 * pause).min(PAUSE_MAX);
            } else {
                pause = PAUSE_MIN;
            }
        }
    }

    async fn look_again_at_held(&self) {
        loop {
            sleep(PAUSE_MAX).await;
            self.online().await;
            if let Err(error) = self.look_again().await {
                tracing::debug!(
                    "entries that wait for a confirmation cannot be looked for: {error}"
                );
            }
        }
    }

    async fn online(&self) {
        let mut news = self.engine.news();
        // The engine outlives this.
        let _ = news.wait_for(|news| news.online == Some(true)).await;
    }

    /// Lists the entries whose removal waits once more, and removes those that are still not there.
    /// Gives their number, and that of the entries that stay.
    pub async fn confirm(&self) -> Result<(u64, u64), Unanswered> {
        let _turn = self.turn.lock().await;
        let (mut held, mut absent) = (0, Vec::new());
        for chunk in self.engine.held_chunks() {
            let looked = self.look_for(&chunk).await?;
            let hidden = chunk.control_absent(&looked);
            if hidden > 0 && hidden == chunk.control.len() as u64 {
                return Err(Unanswered::Failed(format!(
                    "the directory does not find {hidden} other {}s by their keys either, which it \
                     listed",
                    chunk.kind.name()
                )));
            }
            held += chunk.missing.len() as u64;
            absent.extend(chunk.absent(&looked));
        }
        let gone = self.engine.confirm(&absent);
        Ok((gone, held.saturating_sub(gone)))
    }
}
