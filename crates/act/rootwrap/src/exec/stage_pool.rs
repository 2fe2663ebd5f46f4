//! Stages of one kind that wait for a command: once one was needed the next is started ahead, when nobody
//! waits.

use super::cgroup::Cgroups;
use super::setuid_stage::ReadyStage;
use super::spawn_threads::Spawner;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stages that wait.
const READY_MAX: usize = 2;

#[derive(Debug)]
pub(super) struct StagePool {
    /// Whether they have process groups of their own.
    own_groups: bool,
    /// Where they have cgroups of their own, if they have.
    cgroups: Option<Cgroups>,
    /// Whether one was needed, so that more will be.
    was_needed: AtomicBool,
    ready: Mutex<Vec<ReadyStage>>,
}

impl StagePool {
    pub(super) fn new(own_groups: bool, cgroups: Option<Cgroups>) -> Self {
        let ready = Mutex::default();
        Self { own_groups, cgroups, was_needed: AtomicBool::new(false), ready }
    }

    /// One that waited, or one that is started now.
    pub(super) fn take_stage(&self, starters: &Spawner) -> io::Result<ReadyStage> {
        self.was_needed.store(true, Ordering::Relaxed);
        loop {
            let ready = self.ready.lock().pop();
            let Some(mut stage) = ready else { return self.start(starters) };
            if stage.is_alive() {
                return Ok(stage);
            }
        }
    }

    /// Starts what the next command will need, if there was one.
    pub(super) fn prestart(&self, starters: &Spawner) {
        let lacks = || self.ready.lock().len() < READY_MAX;
        if self.was_needed.load(Ordering::Relaxed)
            && lacks()
            && let Ok(stage) = self.start(starters)
        {
            self.ready.lock().push(stage);
        }
    }

    /// Ends those that wait.
    pub(super) fn end_stages(&self) {
        let ready = std::mem::take(&mut *self.ready.lock());
        ready.into_iter().for_each(ReadyStage::end);
    }

    fn start(&self, starters: &Spawner) -> io::Result<ReadyStage> {
        ReadyStage::new(starters, self.own_groups, self.cgroups.as_ref())
    }
}
