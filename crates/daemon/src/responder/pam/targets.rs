//! Of the passwords that are tried for one user a few are asked about at a time. The others wait, in
//! nobody's way: a thousand guesses at alice's keep bob waiting for none of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Passwords of one user that are asked about at a time.
const AT_ONCE: usize = 4;

/// The users for whom something is asked now.
#[derive(Clone, Debug, Default)]
pub struct Targets(Arc<Mutex<HashMap<Vec<u8>, Arc<Semaphore>>>>);

impl Targets {
    /// Waits until something may be asked for that user; it is until what this gives is dropped.
    pub async fn turn(&self, user: &[u8]) -> Turn {
        let turns = Arc::clone(
            self.lock().entry(user.to_vec()).or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))),
        );
        let targets = self.clone();
        let mut turn =
            Turn { targets, user: user.to_vec(), turns: Arc::clone(&turns), permit: None };
        // It is never closed.
        turn.permit = turns.acquire_owned().await.ok();
        turn
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the few, or one who waits to be.
#[derive(Debug)]
pub struct Turn {
    targets: Targets,
    user: Vec<u8>,
    turns: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut targets = self.targets.lock();
        // What refers to it: the table, this, its permit; whoever else is here does, too.
        let own = 2 + usize::from(self.permit.is_some());
        if Arc::strong_count(&self.turns) == own {
            targets.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn guesses_at_one_user_wait_for_each_other_and_for_nobody_else() {
        let targets = Targets::default();
        let mut turns = Vec::new();
        for _ in 0..AT_ONCE {
            turns.push(targets.turn(b"alice").await);
        }
        assert!(timeout(SOON, targets.turn(b"alice")).await.is_err());
        assert!(timeout(SOON, targets.turn(b"bob")).await.is_ok());
        turns.pop();
        assert!(timeout(SOON, targets.turn(b"alice")).await.is_ok());
    }

    #[tokio::test]
    async fn nothing_is_kept_of_who_is_done() {
        let targets = Targets::default();
        let turns: Vec<_> = [targets.turn(b"alice").await, targets.turn(b"alice").await].into();
        assert_eq!(targets.lock().len(), 1);
        for _ in 0..3 {
            assert!(timeout(SOON, targets.turn(b"bob")).await.is_ok());
        }
        drop(turns);
        assert_eq!(targets.lock().len(), 0);
        let mut turns = Vec::new();
        for _ in 0..AT_ONCE {
            turns.push(targets.turn(b"alice").await);
        }
        assert!(timeout(SOON, targets.turn(b"alice")).await.is_err());
        drop(turns);
        assert_eq!(targets.lock().len(), 0);
    }
}
