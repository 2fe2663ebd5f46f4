//! Users of one class at the wish of a master: they come and go while the run is on.
//!
//! They come in waves. A wave is a run of its own with places for users, of whom as many are there as
//! are wished for; when its places are taken, a wave as large as all before it is begun. So a thousand
//! users who come one by one are a handful of runs.

use crate::args::CommonArgs;
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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Places of the first wave, unless more users come at once.
const FIRST_BATCH_USERS: usize = 16;
/// Longer than any run: a master says when it is over.
const UNTIL_STOPPED: Duration = Duration::from_secs(365 * 86_400);
/// Bits of a request's number that count within a wave, and waves of a worker: no two workers or waves
/// of a run have a request in common.
const NUMBER_BITS: u32 = 44;
const BATCH_BITS: u32 = 6;

/// The users of a class.
#[derive(Debug, Default)]
pub struct VirtualUsers {
    /// Of the worker among those of its master.
    index: u64,
    shared: Mutex<UsersState>,
    users_changed: Condvar,
    stop: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct UsersState {
    wanted_users: usize,
    tally: Tally,
    failed: Option<String>,
    warnings: Vec<Warning>,
    /// Seconds on a processor that the server had used when the run began.
    server: Option<(WatchedServer, Duration)>,
}

/// What every wave does.
pub struct WaveLoad<'a> {
    pub common: &'a CommonArgs,
    /// Of each wave.
    pub threads: usize,
    /// Whether all requests are of the same bytes.
    pub same_bytes: bool,
}

/// A run with places for users.
struct UserBatch {
    capacity: usize,
    present: Arc<AtomicUsize>,
}

impl VirtualUsers {
    /// Of nobody, at a worker with this place among its master's.
    pub fn new(index: u64, users: usize) -> Self {
        let shared = Mutex::new(UsersState { wanted_users: users, ..UsersState::default() });
        Self { index, shared, ..Self::default() }
    }

    pub fn set_users(&self, users: usize) {
        self.shared().wanted_users = users;
        self.users_changed.notify_all();
    }

    /// Nobody is to begin anything any more.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // With the lock, lest it be between looking and waiting.
        drop(self.shared());
        self.users_changed.notify_all();
    }

    pub fn users(&self) -> usize {
        let shared = self.shared();
        let is_over = shared.failed.is_some() || self.stop.load(Ordering::Relaxed);
        if is_over { 0 } else { shared.wanted_users }
    }

    /// What was measured since this was asked last.
    pub fn take_tally(&self) -> Tally {
        std::mem::take(&mut self.shared().tally)
    }

    /// Why it cannot go on.
    pub fn failure(&self) -> Option<String> {
        self.shared().failed.clone()
    }

    /// What to know before the figures are believed; known when it has ended.
    pub fn warnings(&self) -> Vec<Warning> {
        self.shared().warnings.clone()
    }

    /// What is looked at, and the processor time that it used since the beginning.
    pub fn server_cpu(&self) -> Option<(String, Duration)> {
        let (server, before) = self.shared().server.clone()?;
        let used = server.consumed().ok()?.cpu.saturating_sub(before);
        let name = match server {
            WatchedServer::Process(pid) => pid.to_string(),
            WatchedServer::Unit(name) => name,
        };
        Some((name, used))
    }

    /// It cannot go on.
    pub fn fail(&self, why: String) {
        self.shared().failed.get_or_insert(why);
        self.stop();
    }

    fn shared(&self) -> MutexGuard<'_, UsersState> {
        self.shared.lock()
    }

    /// Waits for another wish than that; none when it is to end.
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
                // In the place of those for the last wish.
                drop(held.take());
                match FdReservation::reserve(wish, threads_in_all) {
                    Ok(all) => held = Some(all),
                    Err(error) => {
                        self.fail(format!("{error:#}"));
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
                        Err(error) => self.fail(format!("{error:#}")),
                    }
                };
                let spawned = thread::Builder::new().name("wave".to_owned());
                if let Err(error) = spawned.spawn_scoped(scope, carry) {
                    self.fail(format!("cannot start a thread: {error}"));
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

/// Of a wave to be begun: as many as all before it have; 0 if so many users find a place without.
fn next_batch_size(users: usize, there: usize) -> usize {
    if users <= there { 0 } else { (users - there).max(there).max(FIRST_BATCH_USERS) }
}

/// Gives users to the waves in their order: how many find no place.
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
    fn a_wave_has_as_many_places_as_those_before_it() {
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
    fn users_take_the_places_of_the_first_waves_first() {
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
