//! Of the passwords that are tried for one user a few are asked about at a time. The others wait, in
//! nobody's way: a thousand guesses at alice's keep bob waiting for none of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Passwords of one user that are asked about at a time.
const AT_ONCE: usize = 4;

/// The users for whom something is asked now.
#[derive(Clone, Debug, Default)]
pub struct Targets(Arc<Mutex<HashMap<Vec<u8>, Target>>>);

#[derive(Debug)]
struct Target {
    turns: Arc<Semaphore>,
    /// Those who have a turn or wait for one. Counted under the lock, so that the last one to go knows it.
    count: usize,
}

impl Targets {
    /// Waits until something may be asked for that user; it is until what this gives is dropped.
    pub async fn turn(&self, user: &[u8]) -> Turn {
        let mut turn = Turn { targets: self.clone(), user: user.to_vec(), permit: None };
        let turns = {
            let mut targets = self.lock();
            let target = targets
                .entry(user.to_vec())
                .or_insert_with(|| Target { turns: Arc::new(Semaphore::new(AT_ONCE)), count: 0 });
            target.count += 1;
            Arc::clone(&target.turns)
        };
        // It is never closed.
        turn.permit = turns.acquire_owned().await.ok();
        turn
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Target>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the few, or one who waits to be.
#[derive(Debug)]
pub struct Turn {
    targets: Targets,
    user: Vec<u8>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut targets = self.targets.lock();
        if let Some(target) = targets.get_mut(&self.user) {
            target.count -= 1;
            if target.count == 0 {
                targets.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Whether that user has a turn without a wait.
    fn has_turn(targets: &Targets, user: &[u8]) -> bool {
        targets.turn(user).now_or_never().is_some()
    }

    #[tokio::test]
    async fn guesses_at_one_user_wait_for_each_other_and_for_nobody_else() {
        let targets = Targets::default();
        let mut turns = Vec::new();
        for _ in 0..AT_ONCE {
            turns.push(targets.turn(b"alice").await);
        }
        assert!(!has_turn(&targets, b"alice"));
        assert!(has_turn(&targets, b"bob"));
        turns.pop();
        assert!(has_turn(&targets, b"alice"));
    }

    #[tokio::test]
    async fn nothing_is_kept_of_who_is_done() {
        let targets = Targets::default();
        let turns: Vec<_> = [targets.turn(b"alice").await, targets.turn(b"alice").await].into();
        assert_eq!(targets.lock().len(), 1);
        for _ in 0..3 {
            assert!(has_turn(&targets, b"bob"));
        }
        drop(turns);
        assert_eq!(targets.lock().len(), 0);
        let mut turns = Vec::new();
        for _ in 0..AT_ONCE {
            turns.push(targets.turn(b"alice").await);
        }
        assert!(!has_turn(&targets, b"alice"));
        drop(turns);
        assert_eq!(targets.lock().len(), 0);
    }

    /// Those who leave at the same moment must not each take the other for somebody who stays.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nothing_is_kept_of_those_who_leave_together() {
        let targets = Targets::default();
        for _ in 0..500 {
            let four: Vec<_> = (0..AT_ONCE)
                .map(|_| {
                    let targets = targets.clone();
                    tokio::spawn(async move { drop(targets.turn(b"alice").await) })
                })
                .collect();
            for one in four {
                one.await.unwrap();
            }
            assert_eq!(targets.lock().len(), 0);
        }
    }
}
