//! A domain that is asked on demand: puts questions to the provider, and asks again what was asked
//! before, so that the answers that are kept stay true.

use super::engine::{Engine, unix_now};
use super::entries::Kind;
use roster_bus::interfaces::{CALL_DEADLINE, Error};
use roster_config::Mode;
use roster_provider::{LookUp, Provider, Sink, Unreachable};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Questions of others at a time. Equal ones came together before they came here.
const QUESTIONS_MAX: usize = 64;
/// Questions of our own at a time, for answers that may have changed.
const REFRESHES_MAX: usize = 8;
/// Into how many rounds one refresh of all answers is spread.
const ROUNDS: u32 = 10;

/// See the module.
pub struct Asking<P> {
    engine: Arc<Engine>,
    provider: Arc<P>,
    mode: Mode,
    permits: Semaphore,
    expired: Notify,
}

impl<P: Provider + 'static> Asking<P> {
    /// Asks this provider, which reports into that engine.
    pub fn new(engine: Arc<Engine>, provider: Arc<P>, mode: Mode) -> Self {
        let permits = Semaphore::new(QUESTIONS_MAX);
        Self { engine, provider, mode, permits, expired: Notify::new() }
    }

    /// The records that answer the question; none when the directory has no such entry. While it
    /// does not answer, what is known of the entry.
    pub async fn look_up(&self, what: &LookUp) -> Result<Vec<u8>, Error> {
        if self.mode == Mode::Replicate {
            let text = "the domain is mirrored, there is nothing beyond what can be fetched";
            return Err(Error::Invalid(text.into()));
        }
        let Ok(_permit) = self.permits.try_acquire() else {
            metrics::counter!("roster_directory_lookups_total", "result" => "busy").increment(1);
            return Err(Error::Busy(format!("{QUESTIONS_MAX} look-ups are under way")));
        };
        let (result, answer) = match ask(&self.engine, &*self.provider, what).await {
            Ok(true) => ("found", Ok(self.engine.found(what).unwrap_or_default())),
            Ok(false) => ("absent", Ok(Vec::new())),
            Err(Unreachable(reason)) => match self.engine.found(what) {
                Some(records) => ("stale", Ok(records)),
                None => ("unreachable", Err(Error::Unavailable(reason))),
            },
        };
        metrics::counter!("roster_directory_lookups_total", "result" => result).increment(1);
        answer
    }

    /// Asks for a user or a group anew, whatever is known. What the directory does not say stays as
    /// it is: while it is away, there is nothing better.
    pub async fn expire(&self, what: &LookUp) -> Result<(), Error> {
        match ask(&self.engine, &*self.provider, what).await {
            Ok(found) => {
                if !found && self.mode == Mode::Replicate {
                    // Which entry it was is not known by name here.
                    self.provider.refresh();
                }
                Ok(())
            }
            Err(Unreachable(reason)) => Err(Error::Unavailable(format!(
                "the directory does not answer, what is known of it stays: {reason}"
            ))),
        }
    }

    /// Asks for everything anew.
    pub fn expire_all(&self) {
        self.engine.expire();
        self.expired.notify_one();
        self.provider.refresh();
    }

    /// Asks again what was answered longer ago than `every`, a part of it at a time, for as long as
    /// it is polled.
    pub async fn keep_fresh(&self, every: Duration) {
        let round = (every / ROUNDS).max(Duration::from_secs(1));
        loop {
            tokio::select! {
                () = sleep(round) => {}
                () = self.expired.notified() => {}
            }
            // Users first: asking for a user's groups confirms these as well.
            for kind in Kind::ALL {
                if self.engine.news().borrow().online != Some(true) {
                    break;
                }
                let before = unix_now().saturating_sub(every.saturating_sub(round).as_secs());
                self.ask_again(self.engine.older_than(before, kind)).await;
            }
        }
    }

    async fn ask_again(&self, questions: Vec<LookUp>) {
        let mut asked = JoinSet::new();
        for what in questions {
            if asked.len() >= REFRESHES_MAX && !matches!(asked.join_next().await, Some(Ok(true))) {
                return;
            }
            let (engine, provider) = (Arc::clone(&self.engine), Arc::clone(&self.provider));
            asked.spawn(async move { ask(&engine, &*provider, &what).await.is_ok() });
        }
        while asked.join_next().await.is_some() {}
    }
}

async fn ask<P: Provider>(
    engine: &Engine,
    provider: &P,
    what: &LookUp,
) -> Result<bool, Unreachable> {
    let asked = timeout(CALL_DEADLINE, provider.look_up(what)).await;
    let found = asked.unwrap_or_else(|_| Err(Unreachable("it did not answer in time".into())))?;
    if !found {
        engine.not_found(what);
    }
    engine.flush();
    Ok(found)
}
