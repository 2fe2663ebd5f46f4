// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection limits by user. All users may connect, so each user has a share. Root's share is larger, because all
//! services of root use one user id. A connection without a request yet is worth less than a new one: when a share is
//! used up, its oldest silent connection is closed. Only a few requests of one user are processed at a time. One user
//! with slow requests would otherwise delay all others. `accept_loop` applies them.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// Concurrent requests of one user; a directory works on some 32.
const USER_REQUESTS_MAX: usize = 8;
/// Concurrent requests of root.
const ROOT_REQUESTS_MAX: usize = 64;

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// For one user.
    pub per_user: usize,
    /// For root.
    pub for_root: usize,
    /// For all users together.
    pub total: usize,
}

/// All connections.
pub struct ConnectionTable {
    limits: ConnectionLimits,
    users: HashMap<u32, UserConnections>,
    all: usize,
    /// Slots assigned so far.
    slots_given: u64,
}

/// Connections of one user.
struct UserConnections {
    /// Permits for concurrent requests.
    request_slots: Arc<Semaphore>,
    count: usize,
    /// Handles that end connections without a request, oldest first.
    silent: BTreeMap<u64, AbortHandle>,
}

impl UserConnections {
    fn for_user(uid: u32) -> Self {
        let most = if uid == 0 { ROOT_REQUESTS_MAX } else { USER_REQUESTS_MAX };
        Self { request_slots: Arc::new(Semaphore::new(most)), count: 0, silent: BTreeMap::new() }
    }
}

/// Decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionDecision {
    Admit,
    /// After the oldest silent connection of that user is closed.
    Replace(u32),
    Refuse,
}

impl ConnectionTable {
    /// Makes a table without connections.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { limits, users: HashMap::new(), all: 0, slots_given: 0 }))
    }

    fn decide(&self, uid: u32) -> ConnectionDecision {
        let most = if uid == 0 { self.limits.for_root } else { self.limits.per_user };
        let own = self.users.get(&uid);
        let crowded = if own.is_some_and(|own| own.count >= most) {
            own.map(|own| (uid, own))
        } else if self.all >= self.limits.total {
            // The user with the most silent connections loses one.
            let users = self.users.iter().map(|(&uid, connections)| (uid, connections));
            users.max_by_key(|(_, connections)| connections.silent.len())
        } else {
            return ConnectionDecision::Admit;
        };
        match crowded {
            Some((uid, connections)) if !connections.silent.is_empty() => {
                ConnectionDecision::Replace(uid)
            }
            _ => ConnectionDecision::Refuse,
        }
    }

    fn add_connection(&mut self, uid: u32) -> (u64, Arc<Semaphore>) {
        self.slots_given += 1;
        self.all += 1;
        let own = self.users.entry(uid).or_insert_with(|| UserConnections::for_user(uid));
        own.count += 1;
        (self.slots_given, Arc::clone(&own.request_slots))
    }

    /// Removes the oldest silent connection of a user, and returns the handle that ends it.
    fn take_silent(&mut self, uid: u32) -> Option<AbortHandle> {
        let (_, task) = self.users.get_mut(&uid)?.silent.pop_first()?;
        self.remove_connection(uid);
        Some(task)
    }

    /// Removes a connection from the list of silent ones. Returns `false` if it is not in the list.
    fn end_silence(&mut self, uid: u32, place: u64) -> bool {
        self.users.get_mut(&uid).is_some_and(|own| own.silent.remove(&place).is_some())
    }

    fn remove_connection(&mut self, uid: u32) {
        self.all -= 1;
        if let Some(connections) = self.users.get_mut(&uid) {
            connections.count -= 1;
            if connections.count == 0 {
                self.users.remove(&uid);
            }
        }
    }
}

/// Calls `start` for a new connection, in place of a silent one if needed. Returns `false` if there is no silent one
/// either.
pub fn admit(
    gate: &Arc<Mutex<ConnectionTable>>,
    uid: u32,
    start: impl FnOnce(ConnectionSlot) -> AbortHandle,
) -> bool {
    let mut inside = gate.lock();
    let ended = match inside.decide(uid) {
        ConnectionDecision::Admit => None,
        ConnectionDecision::Replace(crowded) => inside.take_silent(crowded),
        ConnectionDecision::Refuse => return false,
    };
    let (place, turns) = inside.add_connection(uid);
    let task = start(ConnectionSlot {
        table: Arc::clone(gate),
        uid,
        number: place,
        request_slots: turns,
        has_requested: false,
    });
    if let Some(own) = inside.users.get_mut(&uid) {
        own.silent.insert(place, task);
    }
    drop(inside);
    if let Some(task) = ended {
        task.abort();
    }
    true
}

/// A connection's slot, released however its task ends.
pub struct ConnectionSlot {
    table: Arc<Mutex<ConnectionTable>>,
    uid: u32,
    number: u64,
    request_slots: Arc<Semaphore>,
    has_requested: bool,
}

impl ConnectionSlot {
    /// Waits until the user may send another request. The permit ends with the returned value.
    pub(super) async fn request_slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.request_slots).acquire_owned().await.ok()
    }

    /// Protects the connection from eviction until it gets its reply.
    pub fn mark_requested(&mut self) {
        // A slot that was evicted meanwhile is not released twice.
        self.has_requested = self.table.lock().end_silence(self.uid, self.number);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut gate = self.table.lock();
        if self.has_requested || gate.end_silence(self.uid, self.number) {
            gate.remove_connection(self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    const OF_A_USER_MAX: usize = 64;
    const MAX: usize = 2048;
    const LIMITS: ConnectionLimits =
        ConnectionLimits { per_user: OF_A_USER_MAX, for_root: 512, total: MAX };
    const ALICE: u32 = 1000;
    const BOB: u32 = 1001;

    /// Connects. The connection stays silent, or sends a request and waits for its reply.
    fn connect(gate: &Arc<Mutex<ConnectionTable>>, uid: u32, asks: bool) -> bool {
        let (sender, receiver) = std::sync::mpsc::channel();
        let admitted = admit(gate, uid, |admitted| {
            let _ = sender.send(admitted);
            tokio::spawn(pending::<()>()).abort_handle()
        });
        let Ok(mut place) = receiver.try_recv() else { return admitted };
        if asks {
            place.mark_requested();
        }
        // The test's connections last as long as the test.
        std::mem::forget(place);
        admitted
    }

    fn counts(gate: &Arc<Mutex<ConnectionTable>>, uid: u32) -> (usize, usize) {
        gate.lock().users.get(&uid).map_or((0, 0), |user| (user.count, user.silent.len()))
    }

    #[tokio::test]
    async fn a_thousand_silent_connections_of_a_user_keep_nobody_out() {
        let gate = ConnectionTable::new(LIMITS);
        for _ in 0..1000 {
            assert!(connect(&gate, ALICE, false));
        }
        assert_eq!(counts(&gate, ALICE), (OF_A_USER_MAX, OF_A_USER_MAX));
        assert!(connect(&gate, ALICE, true));
        assert!(connect(&gate, BOB, true));
        assert_eq!(counts(&gate, ALICE), (OF_A_USER_MAX, OF_A_USER_MAX - 1));
    }

    #[tokio::test]
    async fn who_waits_for_an_answer_is_not_closed_for_another() {
        let gate = ConnectionTable::new(LIMITS);
        for _ in 0..OF_A_USER_MAX {
            assert!(connect(&gate, ALICE, true));
        }
        assert!(!connect(&gate, ALICE, true));
        assert!(connect(&gate, BOB, true));
        assert!(connect(&gate, 0, true));
    }

    #[tokio::test]
    async fn a_users_questions_wait_for_each_other_and_for_nobody_elses() {
        let gate = ConnectionTable::new(LIMITS);
        let place = |uid| {
            let (sender, receiver) = std::sync::mpsc::channel();
            assert!(admit(&gate, uid, |admitted| {
                let _ = sender.send(admitted);
                tokio::spawn(pending::<()>()).abort_handle()
            }));
            receiver.try_recv().expect("admitted")
        };
        let places: Vec<ConnectionSlot> = (0..=USER_REQUESTS_MAX).map(|_| place(ALICE)).collect();
        let mut turns = Vec::new();
        for place in &places[1..] {
            turns.push(place.request_slot().await);
        }
        let now =
            |place: &ConnectionSlot| Arc::clone(&place.request_slots).try_acquire_owned().is_ok();
        assert!(!now(&places[0]));
        assert!(now(&place(BOB)) && now(&place(0)));
        turns.pop();
        assert!(now(&places[0]));
    }

    #[tokio::test]
    async fn when_all_is_full_the_user_with_most_silent_connections_gives_one() {
        let gate = ConnectionTable::new(LIMITS);
        for uid in 1..=(MAX / OF_A_USER_MAX) as u32 {
            for _ in 0..OF_A_USER_MAX {
                assert!(connect(&gate, uid, uid > 1));
            }
        }
        assert!(connect(&gate, BOB, true));
        assert_eq!(counts(&gate, 1), (OF_A_USER_MAX - 1, OF_A_USER_MAX - 1));
        assert_eq!(gate.lock().all, MAX);
    }

    #[tokio::test]
    async fn every_place_is_given_back_once() {
        let gate = ConnectionTable::new(LIMITS);
        let (sender, receiver) = std::sync::mpsc::channel();
        for number in 0..2 * OF_A_USER_MAX {
            assert!(admit(&gate, ALICE, |mut admitted| {
                let sender = sender.clone();
                tokio::spawn(async move {
                    if number % 3 == 0 {
                        admitted.mark_requested();
                    }
                    let _ = sender.send(admitted);
                    pending::<()>().await;
                })
                .abort_handle()
            }));
            tokio::task::yield_now().await;
        }
        drop(receiver.try_iter().collect::<Vec<_>>());
        let gate = gate.lock();
        assert_eq!((gate.all, gate.users.len()), (0, 0));
    }
}
