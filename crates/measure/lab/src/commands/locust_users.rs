// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users of one class. A Locust master changes their number during the run, and `worker` receives the numbers.
//!
//! Users are in batches. A batch is a run with a capacity, of which some users are present. When all batches are full, a
//! batch as large as all before it starts. A thousand users that come one by one are a handful of runs.

use crate::args::CommonArgs;
use crate::coded::{Coded, describe};
use crate::fd_limit::FdReservation;
use crate::load_thread::{Engine, RequestNumbers, RunControl, RunSpec, ThreadShare};
use crate::locust::stats::{Tally, now};
use crate::preflight::RequestStyle;
use crate::report::{self, Warning};
use crate::runner::{RunResult, ThreadPlan, run_threads};
use crate::schedule::LoadModel;
use crate::server_usage::WatchedServer;
use anyhow::Result;
use parking_lot::{Condvar, Mutex, MutexGuard};
use roster_messages::table::lab;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Minimum capacity of the first batch.
const FIRST_BATCH_USERS: usize = 16;
/// Duration that no run reaches: the master ends it.
const UNTIL_STOPPED: Duration = Duration::from_secs(365 * 86_400);
/// Bits of a request number within a batch. No two workers or batches of a run share a request.
const NUMBER_BITS: u32 = 44;
/// Bits of a batch number within a worker.
const BATCH_BITS: u32 = 6;

/// The users of a class.
#[derive(Debug, Default)]
pub struct VirtualUsers {
    /// Index of the worker, which the master assigns.
    index: u64,
    shared: Mutex<UsersState>,
    users_changed: Condvar,
    stop: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct UsersState {
    wanted_users: usize,
    tally: Tally,
    /// The formatted error of a failed class.
    failed: Option<String>,
    warnings: Vec<Warning>,
    /// The watched server, and its processor time at the start of the run.
    server: Option<(WatchedServer, Duration)>,
}

/// The load of every batch.
pub struct WaveLoad<'a> {
    pub common: &'a CommonArgs,
    /// Number of threads of each batch.
    pub threads: usize,
    /// Whether all requests have the same bytes.
    pub same_bytes: bool,
}

/// A run with a capacity of users.
struct UserBatch {
    capacity: usize,
    present: Arc<AtomicUsize>,
}

impl VirtualUsers {
    /// Creates the users of a class at a worker with this index.
    pub fn new(index: u64, users: usize) -> Self {
        let shared = Mutex::new(UsersState { wanted_users: users, ..UsersState::default() });
        Self { index, shared, ..Self::default() }
    }

    pub fn set_users(&self, users: usize) {
        self.shared().wanted_users = users;
        self.users_changed.notify_all();
    }

    /// Stops all users after their current request.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // The lock excludes a thread between its check and its wait.
        drop(self.shared());
        self.users_changed.notify_all();
    }

    pub fn users(&self) -> usize {
        let shared = self.shared();
        let is_over = shared.failed.is_some() || self.stop.load(Ordering::Relaxed);
        if is_over { 0 } else { shared.wanted_users }
    }

    /// Takes the figures since the last call.
    pub fn take_tally(&self) -> Tally {
        std::mem::take(&mut self.shared().tally)
    }

    /// Returns the error of a failed class.
    pub fn failure(&self) -> Option<String> {
        self.shared().failed.clone()
    }

    /// Returns the warnings about finished batches.
    pub fn warnings(&self) -> Vec<Warning> {
        self.shared().warnings.clone()
    }

    /// Returns the name of the watched server, and its processor time since the start.
    pub fn server_cpu(&self) -> Option<(String, Duration)> {
        let (server, before) = self.shared().server.clone()?;
        let used = server.consumed().ok()?.cpu.saturating_sub(before);
        let name = match server {
            WatchedServer::Process(pid) => pid.to_string(),
            WatchedServer::Unit(name) => name,
        };
        Some((name, used))
    }

    /// Fails the class with a formatted error.
    pub fn fail(&self, why: String) {
        self.shared().failed.get_or_insert(why);
        self.stop();
    }

    fn shared(&self) -> MutexGuard<'_, UsersState> {
        self.shared.lock()
    }

    /// Waits for another number of users than this one. Returns `None` when the class stops.
    fn next_user_count(&self, than: usize) -> Option<usize> {
        let mut shared = self.shared();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            if shared.wanted_users != than {
                return Some(shared.wanted_users);
            }
            self.users_changed.wait(&mut shared);
        }
    }

    /// Makes requests until it is stopped.
    pub fn serve<E: Engine + Send + 'static>(
        &self,
        load: &WaveLoad<'_>,
        make: &(impl Fn(ThreadShare, RequestStyle) -> Result<E> + Sync),
    ) -> Result<()> {
        let common = load.common;
        if let Some(server) =
            WatchedServer::from_options(common.server_pid, common.server_unit.as_deref())?
        {
            let before = server.consumed()?.cpu;
            self.shared().server = Some((server, before));
        }
        let manner = RequestStyle { same_bytes: load.same_bytes, saves_ports: false };
        let threads = load.threads;
        let make = |seat: ThreadShare| make(seat, manner);
        thread::scope(|scope| {
            let (mut waves, mut wish): (Vec<UserBatch>, usize) = (Vec::new(), 0);
            let mut held = None;
            while let Some(next) = self.next_user_count(wish) {
                wish = next;
                let there = waves.iter().map(|wave| wave.capacity).sum();
                let places = next_batch_size(wish, there);
                let count = waves.len() + usize::from(places > 0);
                let threads_in_all = if E::BLOCKS { there + places } else { threads * count };
                // The new reservation replaces the last one.
                drop(held.take());
                match FdReservation::reserve(wish, threads_in_all) {
                    Ok(all) => held = Some(all),
                    Err(error) => {
                        self.fail(describe(&error));
                        continue;
                    }
                }
                let missing = distribute_users(wish, &waves);
                if missing == 0 {
                    continue;
                }
                let wave =
                    UserBatch { capacity: places, present: Arc::new(AtomicUsize::new(missing)) };
                let stage = self.run_spec(waves.len(), load);
                let (crew, present) =
                    (ThreadPlan { users: places, threads }, Arc::clone(&wave.present));
                waves.push(wave);
                let make = &make;
                let carry = move || {
                    let reins = RunControl { stop: Arc::clone(&self.stop), present: Some(present) };
                    let look =
                        |sight: &crate::runner::RunProgress<'_>| self.add_latest(sight.latest);
                    match run_threads(stage, crew, None, reins, make, look) {
                        Ok(outcome) => self.add_result(&outcome, places),
                        Err(error) => self.fail(describe(&error)),
                    }
                };
                let spawned = thread::Builder::new().name("wave".to_owned());
                let spawned = spawned.spawn_scoped(scope, carry);
                if let Err(error) = spawned.coded(&lab::THREAD_NOT_STARTED, "thread: cannot start")
                {
                    self.fail(describe(&error));
                }
            }
        });
        Ok(())
    }

    fn run_spec(&self, wave: usize, load: &WaveLoad<'_>) -> RunSpec {
        let first = (self.index << BATCH_BITS | wave as u64) << NUMBER_BITS;
        RunSpec {
            load: LoadModel::Closed { think: load.common.think },
            numbers: RequestNumbers { first, ..RequestNumbers::ALL },
            warm_up: Duration::ZERO,
            duration: UNTIL_STOPPED,
            timeout: load.common.timeout,
        }
    }

    fn add_latest(&self, latest: &crate::recorder::Recorder) {
        self.shared().tally.add(latest, now());
    }

    fn add_result(&self, outcome: &RunResult, users: usize) {
        let users = u32::try_from(users).unwrap_or(u32::MAX);
        report::add_worst(
            &mut self.shared().warnings,
            report::run_warnings::check_run(outcome, users),
        );
    }
}

/// Returns the capacity of a new batch: as large as all before it, or 0 if they have space for all users.
fn next_batch_size(users: usize, there: usize) -> usize {
    if users <= there { 0 } else { (users - there).max(there).max(FIRST_BATCH_USERS) }
}

/// Distributes users over the batches in their order. Returns the number of users without a place.
fn distribute_users(users: usize, waves: &[UserBatch]) -> usize {
    let mut left = users;
    for wave in waves {
        let here = left.min(wave.capacity);
        wave.present.store(here, Ordering::Relaxed);
        left -= here;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locust_batch_doubles_capacity() {
        for (users, there, places) in [
            (0, 0, 0),
            (5, 0, FIRST_BATCH_USERS),
            (100, 0, 100),
            (16, 16, 0),
            (17, 16, 16),
            (100, 32, 68),
        ] {
            assert_eq!(next_batch_size(users, there), places, "{users} {there}");
        }
    }

    #[test]
    fn locust_users_fill_first_batches_first() {
        let wave = |places| UserBatch { capacity: places, present: Arc::new(AtomicUsize::new(0)) };
        let waves = [wave(16), wave(16), wave(32)];
        for (users, expected, missing) in
            [(0, [0, 0, 0], 0), (20, [16, 4, 0], 0), (64, [16, 16, 32], 0), (70, [16, 16, 32], 6)]
        {
            assert_eq!(distribute_users(users, &waves), missing);
            assert_eq!(waves.each_ref().map(|w| w.present.load(Ordering::Relaxed)), expected);
        }
    }
}
