//! Users of one class at the wish of a master: they come and go while the run is on.
//!
//! They come in waves. A wave is a run of its own with places for users, of whom as many are there as
//! are wished for; when its places are taken, a wave as large as all before it is begun. So a thousand
//! users who come one by one are a handful of runs.

use super::session::{Job, server};
use crate::limits::Descriptors;
use crate::locust::stats::{Tally, now};
use crate::probes::Manner;
use crate::report::{self, Warning};
use crate::run::{Crew, Outcome, carry_out};
use crate::schedule::Load;
use crate::server::Server;
use crate::worker::{Engine, Numbers, Reins, Seat, Stage};
use anyhow::Result;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Places of the first wave, unless more users come at once.
const PLACES: usize = 16;
/// Longer than any run: a master says when it is over.
const UNTIL_TOLD: Duration = Duration::from_secs(365 * 86_400);
/// Bits of a request's number that count within a wave, and waves of a worker: no two workers or waves
/// of a run have a request in common.
const NUMBER_BITS: u32 = 44;
const WAVE_BITS: u32 = 6;

/// The users of a class.
#[derive(Debug, Default)]
pub struct Crowd {
    /// Of the worker among those of its master.
    index: u64,
    shared: Mutex<Shared>,
    wished: Condvar,
    stop: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Shared {
    wish: usize,
    tally: Tally,
    failed: Option<String>,
    warnings: Vec<Warning>,
    /// Seconds on a processor that the server had used when the run began.
    server: Option<(Server, Duration)>,
}

/// A run with places for users.
struct Wave {
    places: usize,
    present: Arc<AtomicUsize>,
}

impl Crowd {
    /// Of nobody, at a worker with this place among its master's.
    pub fn new(index: u64, users: usize) -> Self {
        let shared = Mutex::new(Shared { wish: users, ..Shared::default() });
        Self { index, shared, ..Self::default() }
    }

    /// So many users are to be there.
    pub fn wish(&self, users: usize) {
        self.shared().wish = users;
        self.wished.notify_all();
    }

    /// Nobody is to begin anything any more.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // With the lock, lest it be between looking and waiting.
        drop(self.shared());
        self.wished.notify_all();
    }

    /// Users that are there.
    pub fn users(&self) -> usize {
        let shared = self.shared();
        let is_over = shared.failed.is_some() || self.stop.load(Ordering::Relaxed);
        if is_over { 0 } else { shared.wish }
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
            Server::Process(pid) => pid.to_string(),
            Server::Unit(name) => name,
        };
        Some((name, used))
    }

    /// It cannot go on.
    pub fn fail(&self, why: String) {
        self.shared().failed.get_or_insert(why);
        self.stop();
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for another wish than that; none when it is to end.
    fn next_wish(&self, than: usize) -> Option<usize> {
        let mut shared = self.shared();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            if shared.wish != than {
                return Some(shared.wish);
            }
            shared = self.wished.wait(shared).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes requests until it is stopped.
    pub fn serve<E: Engine + Send + 'static>(
        &self,
        job: &Job<'_>,
        make: &(impl Fn(Seat, Manner) -> Result<E> + Sync),
    ) -> Result<()> {
        let common = job.common;
        if let Some(server) = server(common.server_pid, common.server_unit.as_deref())? {
            let before = server.consumed()?.cpu;
            self.shared().server = Some((server, before));
        }
        let same_bytes = job.traits.repeats_bytes == Some(true);
        let manner = Manner { same_bytes, spares_ports: false };
        let threads = job.common.threads.map_or(job.threads, |threads| threads as usize);
        let make = |seat: Seat| make(seat, manner);
        thread::scope(|scope| {
            let (mut waves, mut wish): (Vec<Wave>, usize) = (Vec::new(), 0);
            let mut held = None;
            while let Some(next) = self.next_wish(wish) {
                wish = next;
                let there = waves.iter().map(|wave| wave.places).sum();
                let places = places_to_come(wish, there);
                let count = waves.len() + usize::from(places > 0);
                let threads_in_all = if E::BLOCKS { there + places } else { threads * count };
                // In the place of those for the last wish.
                drop(held.take());
                match Descriptors::take(wish, threads_in_all) {
                    Ok(all) => held = Some(all),
                    Err(error) => {
                        self.fail(format!("{error:#}"));
                        continue;
                    }
                }
                let missing = deal_out(wish, &waves);
                if missing == 0 {
                    continue;
                }
                let wave = Wave { places, present: Arc::new(AtomicUsize::new(missing)) };
                let stage = self.stage(waves.len(), job);
                let (crew, present) = (Crew { users: places, threads }, Arc::clone(&wave.present));
                waves.push(wave);
                let make = &make;
                let carry = move || {
                    let reins = Reins { stop: Arc::clone(&self.stop), present: Some(present) };
                    let look = |sight: &crate::run::Sight<'_>| self.heard(sight.latest);
                    match carry_out(stage, crew, None, reins, make, look) {
                        Ok(outcome) => self.ended(&outcome, places),
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

    fn stage(&self, wave: usize, job: &Job<'_>) -> Stage {
        let first = (self.index << WAVE_BITS | wave as u64) << NUMBER_BITS;
        Stage {
            load: Load::Closed { think: job.common.think },
            numbers: Numbers { first, ..Numbers::ALL },
            warm_up: Duration::ZERO,
            duration: UNTIL_TOLD,
            timeout: job.common.timeout,
        }
    }

    fn heard(&self, latest: &crate::recorder::Recorder) {
        self.shared().tally.add(latest, now());
    }

    fn ended(&self, outcome: &Outcome, users: usize) {
        let users = u32::try_from(users).unwrap_or(u32::MAX);
        report::add_worst(&mut self.shared().warnings, report::warnings(outcome, users));
    }
}

/// Of a wave to be begun: as many as all before it have; 0 if so many users find a place without.
fn places_to_come(users: usize, there: usize) -> usize {
    if users <= there { 0 } else { (users - there).max(there).max(PLACES) }
}

/// Gives users to the waves in their order: how many find no place.
fn deal_out(users: usize, waves: &[Wave]) -> usize {
    let mut left = users;
    for wave in waves {
        let here = left.min(wave.places);
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
        for (users, there, places) in
            [(0, 0, 0), (5, 0, PLACES), (100, 0, 100), (16, 16, 0), (17, 16, 16), (100, 32, 68)]
        {
            assert_eq!(places_to_come(users, there), places, "{users} {there}");
        }
    }

    #[test]
    fn users_take_the_places_of_the_first_waves_first() {
        let wave = |places| Wave { places, present: Arc::new(AtomicUsize::new(0)) };
        let waves = [wave(16), wave(16), wave(32)];
        for (users, expected, missing) in
            [(0, [0, 0, 0], 0), (20, [16, 4, 0], 0), (64, [16, 16, 32], 0), (70, [16, 16, 32], 6)]
        {
            assert_eq!(deal_out(users, &waves), missing);
            assert_eq!(waves.each_ref().map(|w| w.present.load(Ordering::Relaxed)), expected);
        }
    }
}
