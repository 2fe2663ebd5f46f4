//! Who may have how many connections. Everybody may connect, so a user has a share, and root a larger
//! one: all that root runs asks under one user id. A connection that has not asked yet is worth less
//! than a new one: when a share is used up, the oldest silent one of it is closed. Of a user's questions
//! a few are asked at a time and the others wait for their turn, or one user with slow questions would
//! keep all others waiting.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// Questions of one user that are asked at a time; a directory works on some 32.
const ASKED_MAX: usize = 8;
/// Of root.
const ASKED_OF_ROOT_MAX: usize = 64;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of one user.
    pub of_a_user: usize,
    /// Of root.
    pub of_root: usize,
    /// Of all.
    pub of_all: usize,
}

/// All connections.
pub struct Gate {
    limits: Limits,
    users: HashMap<u32, Connections>,
    all: usize,
    /// Places given so far.
    places: u64,
}

/// Those of one user.
struct Connections {
    /// As many as may be asking.
    turns: Arc<Semaphore>,
    count: usize,
    /// What ends those that have not asked yet, oldest first.
    silent: BTreeMap<u64, AbortHandle>,
}

impl Connections {
    fn of(uid: u32) -> Self {
        let most = if uid == 0 { ASKED_OF_ROOT_MAX } else { ASKED_MAX };
        Self { turns: Arc::new(Semaphore::new(most)), count: 0, silent: BTreeMap::new() }
    }
}

/// What is to be done about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Admit,
    /// After the oldest silent connection of that user was closed.
    Instead(u32),
    Refuse,
}

impl Gate {
    /// One through which nobody has come yet.
    #[must_use]
    pub fn new(limits: Limits) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { limits, users: HashMap::new(), all: 0, places: 0 }))
    }

    fn judge(&self, uid: u32) -> Verdict {
        let most = if uid == 0 { self.limits.of_root } else { self.limits.of_a_user };
        let own = self.users.get(&uid);
        let crowded = if own.is_some_and(|own| own.count >= most) {
            own.map(|own| (uid, own))
        } else if self.all >= self.limits.of_all {
            // Whoever has the most silent ones gives one of them.
            let users = self.users.iter().map(|(&uid, connections)| (uid, connections));
            users.max_by_key(|(_, connections)| connections.silent.len())
        } else {
            return Verdict::Admit;
        };
        match crowded {
            Some((uid, connections)) if !connections.silent.is_empty() => Verdict::Instead(uid),
            _ => Verdict::Refuse,
        }
    }

    fn enter(&mut self, uid: u32) -> (u64, Arc<Semaphore>) {
        self.places += 1;
        self.all += 1;
        let own = self.users.entry(uid).or_insert_with(|| Connections::of(uid));
        own.count += 1;
        (self.places, Arc::clone(&own.turns))
    }

    /// Takes the place of the oldest silent connection of a user, and gives what ends it.
    fn take_silent(&mut self, uid: u32) -> Option<AbortHandle> {
        let (_, task) = self.users.get_mut(&uid)?.silent.pop_first()?;
        self.leave(uid);
        Some(task)
    }

    /// Takes a connection off the list of the silent ones; `false` when it is not on it.
    fn is_silent_no_more(&mut self, uid: u32, place: u64) -> bool {
        self.users.get_mut(&uid).is_some_and(|own| own.silent.remove(&place).is_some())
    }

    fn leave(&mut self, uid: u32) {
        self.all -= 1;
        if let Some(connections) = self.users.get_mut(&uid) {
            connections.count -= 1;
            if connections.count == 0 {
                self.users.remove(&uid);
            }
        }
    }
}

/// Has `start` serve a new connection, in the place of a silent one if need be; `false` when there
/// is none either.
pub fn admit(
    gate: &Arc<Mutex<Gate>>,
    uid: u32,
    start: impl FnOnce(Admitted) -> AbortHandle,
) -> bool {
    let mut inside = lock(gate);
    let ended = match inside.judge(uid) {
        Verdict::Admit => None,
        Verdict::Instead(crowded) => inside.take_silent(crowded),
        Verdict::Refuse => return false,
    };
    let (place, turns) = inside.enter(uid);
    let task = start(Admitted { gate: Arc::clone(gate), uid, place, turns, has_asked: false });
    if let Some(own) = inside.users.get_mut(&uid) {
        own.silent.insert(place, task);
    }
    drop(inside);
    if let Some(task) = ended {
        task.abort();
    }
    true
}

fn lock(gate: &Mutex<Gate>) -> MutexGuard<'_, Gate> {
    gate.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection's place, given back however its task ends.
pub struct Admitted {
    gate: Arc<Mutex<Gate>>,
    uid: u32,
    place: u64,
    turns: Arc<Semaphore>,
    has_asked: bool,
}

impl Admitted {
    /// Waits until another question of the user may be asked; it is until this is dropped.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turns).acquire_owned().await.ok()
    }

    /// From now on it stays until it is answered.
    pub fn has_asked(&mut self) {
        // A place that was taken meanwhile is not given back twice.
        self.has_asked = lock(&self.gate).is_silent_no_more(self.uid, self.place);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut gate = lock(&self.gate);
        if self.has_asked || gate.is_silent_no_more(self.uid, self.place) {
            gate.leave(self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    const OF_A_USER_MAX: usize = 64;
    const MAX: usize = 2048;
    const LIMITS: Limits = Limits { of_a_user: OF_A_USER_MAX, of_root: 512, of_all: MAX };
    const ALICE: u32 = 1000;
    const BOB: u32 = 1001;

    /// Connects; the connection says nothing, or asks and waits for its answer.
    fn connect(gate: &Arc<Mutex<Gate>>, uid: u32, asks: bool) -> bool {
        let (sender, receiver) = std::sync::mpsc::channel();
        let admitted = admit(gate, uid, |admitted| {
            let _ = sender.send(admitted);
            tokio::spawn(pending::<()>()).abort_handle()
        });
        let Ok(mut place) = receiver.try_recv() else { return admitted };
        if asks {
            place.has_asked();
        }
        // The test's connections last as long as the test.
        std::mem::forget(place);
        admitted
    }

    fn counts(gate: &Arc<Mutex<Gate>>, uid: u32) -> (usize, usize) {
        lock(gate).users.get(&uid).map_or((0, 0), |user| (user.count, user.silent.len()))
    }

    #[tokio::test]
    async fn a_thousand_silent_connections_of_a_user_keep_nobody_out() {
        let gate = Gate::new(LIMITS);
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
        let gate = Gate::new(LIMITS);
        for _ in 0..OF_A_USER_MAX {
            assert!(connect(&gate, ALICE, true));
        }
        assert!(!connect(&gate, ALICE, true));
        assert!(connect(&gate, BOB, true));
        assert!(connect(&gate, 0, true));
    }

    #[tokio::test]
    async fn a_users_questions_wait_for_each_other_and_for_nobody_elses() {
        let gate = Gate::new(LIMITS);
        let place = |uid| {
            let (sender, receiver) = std::sync::mpsc::channel();
            assert!(admit(&gate, uid, |admitted| {
                let _ = sender.send(admitted);
                tokio::spawn(pending::<()>()).abort_handle()
            }));
            receiver.try_recv().expect("admitted")
        };
        let places: Vec<Admitted> = (0..=ASKED_MAX).map(|_| place(ALICE)).collect();
        let mut turns = Vec::new();
        for place in &places[1..] {
            turns.push(place.turn().await);
        }
        let now = |place: &Admitted| Arc::clone(&place.turns).try_acquire_owned().is_ok();
        assert!(!now(&places[0]));
        assert!(now(&place(BOB)) && now(&place(0)));
        turns.pop();
        assert!(now(&places[0]));
    }

    #[tokio::test]
    async fn when_all_is_full_the_user_with_most_silent_connections_gives_one() {
        let gate = Gate::new(LIMITS);
        for uid in 1..=(MAX / OF_A_USER_MAX) as u32 {
            for _ in 0..OF_A_USER_MAX {
                assert!(connect(&gate, uid, uid > 1));
            }
        }
        assert!(connect(&gate, BOB, true));
        assert_eq!(counts(&gate, 1), (OF_A_USER_MAX - 1, OF_A_USER_MAX - 1));
        assert_eq!(lock(&gate).all, MAX);
    }

    #[tokio::test]
    async fn every_place_is_given_back_once() {
        let gate = Gate::new(LIMITS);
        let (sender, receiver) = std::sync::mpsc::channel();
        for number in 0..2 * OF_A_USER_MAX {
            assert!(admit(&gate, ALICE, |mut admitted| {
                let sender = sender.clone();
                tokio::spawn(async move {
                    if number % 3 == 0 {
                        admitted.has_asked();
                    }
                    let _ = sender.send(admitted);
                    pending::<()>().await;
                })
                .abort_handle()
            }));
            tokio::task::yield_now().await;
        }
        drop(receiver.try_iter().collect::<Vec<_>>());
        let gate = lock(&gate);
        assert_eq!((gate.all, gate.users.len()), (0, 0));
    }
}
