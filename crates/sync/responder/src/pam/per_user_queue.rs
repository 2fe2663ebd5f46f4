// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits the concurrent password checks of one user. The others wait without effect on other users: a thousand guesses
//! at alice's password do not delay bob. `rate_limit` limits the number of attempts.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Concurrent password checks of one user.
const PER_USER_MAX: usize = 4;

/// The users with requests in progress.
#[derive(Clone, Debug, Default)]
pub struct UserQueues(Arc<Mutex<HashMap<Vec<u8>, UserQueue>>>);

#[derive(Debug)]
struct UserQueue {
    slots: Arc<Semaphore>,
    /// Requests that run or wait. Counted under the lock, so that the last one removes the queue.
    count: usize,
}

impl UserQueues {
    /// Waits until a request about that user may run. It holds the slot until the returned value is dropped.
    pub async fn wait_for_slot(&self, user: &[u8]) -> QueueSlot {
        let mut turn = QueueSlot { queues: self.clone(), user: user.to_vec(), permit: None };
        let turns = {
            let mut targets = self.lock();
            let target = targets.entry(user.to_vec()).or_insert_with(|| UserQueue {
                slots: Arc::new(Semaphore::new(PER_USER_MAX)),
                count: 0,
            });
            target.count += 1;
            Arc::clone(&target.slots)
        };
        // It is never closed.
        turn.permit = turns.acquire_owned().await.ok();
        turn
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, UserQueue>> {
        self.0.lock()
    }
}

/// A running request, or a waiting one.
#[derive(Debug)]
pub struct QueueSlot {
    queues: UserQueues,
    user: Vec<u8>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut targets = self.queues.lock();
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

    /// Whether that user has a free slot.
    fn has_turn(targets: &UserQueues, user: &[u8]) -> bool {
        targets.wait_for_slot(user).now_or_never().is_some()
    }

    #[tokio::test]
    async fn guesses_at_one_user_wait_for_each_other_and_for_nobody_else() {
        let targets = UserQueues::default();
        let mut turns = Vec::new();
        for _ in 0..PER_USER_MAX {
            turns.push(targets.wait_for_slot(b"alice").await);
        }
        assert!(!has_turn(&targets, b"alice"));
        assert!(has_turn(&targets, b"bob"));
        turns.pop();
        assert!(has_turn(&targets, b"alice"));
    }

    #[tokio::test]
    async fn nothing_is_kept_of_who_is_done() {
        let targets = UserQueues::default();
        let turns: Vec<_> =
            [targets.wait_for_slot(b"alice").await, targets.wait_for_slot(b"alice").await].into();
        assert_eq!(targets.lock().len(), 1);
        for _ in 0..3 {
            assert!(has_turn(&targets, b"bob"));
        }
        drop(turns);
        assert_eq!(targets.lock().len(), 0);
        let mut turns = Vec::new();
        for _ in 0..PER_USER_MAX {
            turns.push(targets.wait_for_slot(b"alice").await);
        }
        assert!(!has_turn(&targets, b"alice"));
        drop(turns);
        assert_eq!(targets.lock().len(), 0);
    }

    /// Requests that end at the same moment must not each mistake the other for a remaining one.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nothing_is_kept_of_those_who_leave_together() {
        let targets = UserQueues::default();
        for _ in 0..500 {
            let four: Vec<_> = (0..PER_USER_MAX)
                .map(|_| {
                    let targets = targets.clone();
                    tokio::spawn(async move { drop(targets.wait_for_slot(b"alice").await) })
                })
                .collect();
            for one in four {
                one.await.unwrap();
            }
            assert_eq!(targets.lock().len(), 0);
        }
    }
}
