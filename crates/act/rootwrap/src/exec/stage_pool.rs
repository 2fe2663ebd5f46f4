// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pool of waiting stages of one kind. After the first use it starts the next stage ahead, while no client waits.
//! `setuid_stage` is the process itself.

use super::cgroup::Cgroups;
use super::setuid_stage::ReadyStage;
use super::spawn_threads::Spawner;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Limit of waiting stages.
const READY_MAX: usize = 2;

#[derive(Debug)]
pub(super) struct StagePool {
    /// True if stages lead process groups.
    own_groups: bool,
    /// The directory of their cgroups, if they have them.
    cgroups: Option<Cgroups>,
    /// True after the first use.
    was_needed: AtomicBool,
    ready: Mutex<Vec<ReadyStage>>,
}

impl StagePool {
    pub(super) fn new(own_groups: bool, cgroups: Option<Cgroups>) -> Self {
        let ready = Mutex::default();
        Self { own_groups, cgroups, was_needed: AtomicBool::new(false), ready }
    }

    /// Returns a waiting stage, or starts one.
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

    /// Starts a stage ahead if one was used before.
    pub(super) fn prestart(&self, starters: &Spawner) {
        let lacks = || self.ready.lock().len() < READY_MAX;
        if self.was_needed.load(Ordering::Relaxed)
            && lacks()
            && let Ok(stage) = self.start(starters)
        {
            self.ready.lock().push(stage);
        }
    }

    /// Ends all waiting stages.
    pub(super) fn end_stages(&self) {
        let ready = std::mem::take(&mut *self.ready.lock());
        ready.into_iter().for_each(ReadyStage::end);
    }

    fn start(&self, starters: &Spawner) -> io::Result<ReadyStage> {
        ReadyStage::new(starters, self.own_groups, self.cgroups.as_ref())
    }
}
