//! Whether any KDC is there, by what became of the last requests.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// One that answered within this time is taken to be there still.
const LATELY: Duration = Duration::from_secs(60);

/// What is known.
#[derive(Default)]
pub struct Presence(Mutex<State>);

#[derive(Default)]
struct State {
    answered: Option<Instant>,
    away_since: Option<Instant>,
}

impl Presence {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how long none has answered; none while one may.
    pub fn away(&self) -> Option<Duration> {
        self.state().away_since.map(|since| since.elapsed())
    }

    /// None has answered. Whether that is news.
    pub fn is_away_now(&self) -> bool {
        let mut state = self.state();
        state.answered = None;
        if state.away_since.is_some() {
            return false;
        }
        state.away_since = Some(Instant::now());
        true
    }

    /// One has.
    pub fn has_answered(&self) {
        *self.state() = State { answered: Some(Instant::now()), away_since: None };
    }

    /// Whether one has since then.
    pub fn answered_since(&self, then: Instant) -> bool {
        self.state().answered.is_some_and(|at| at >= then)
    }

    /// Whether one has a short while ago.
    pub fn answered_lately(&self) -> bool {
        self.state().answered.is_some_and(|at| at.elapsed() < LATELY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_is_away_is_so_until_it_answers() {
        let presence = Presence::default();
        assert_eq!(presence.away(), None);
        presence.has_answered();
        assert!(presence.answered_lately());
        tokio::time::advance(LATELY).await;
        assert!(!presence.answered_lately());
        assert!(presence.is_away_now(), "the first is news");
        assert!(!presence.is_away_now());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(presence.away(), Some(Duration::from_secs(5)));
        presence.has_answered();
        assert_eq!(presence.away(), None);
    }
}
