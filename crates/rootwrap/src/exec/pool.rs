//! Stages of one kind that wait for a command: once one was needed the next is started ahead, when nobody
//! waits.

use super::cgroup::Cgroups;
use super::locked;
use super::stage::Ready;
use super::starters::Starters;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stages that wait.
const READY_MAX: usize = 2;

#[derive(Debug)]
pub(super) struct Pool {
    /// Whether they have process groups of their own.
    own_groups: bool,
    /// Where they have cgroups of their own, if they have.
    cgroups: Option<Cgroups>,
    /// Whether one was needed, so that more will be.
    is_wanted: AtomicBool,
    ready: Mutex<Vec<Ready>>,
}

impl Pool {
    pub(super) fn new(own_groups: bool, cgroups: Option<Cgroups>) -> Self {
        let ready = Mutex::default();
        Self { own_groups, cgroups, is_wanted: AtomicBool::new(false), ready }
    }

    /// One that waited, or one that is started now.
    pub(super) fn take(&self, starters: &Starters) -> io::Result<Ready> {
        self.is_wanted.store(true, Ordering::Relaxed);
        loop {
            let ready = locked(&self.ready).pop();
            let Some(mut stage) = ready else { return self.start(starters) };
            if stage.is_alive() {
                return Ok(stage);
            }
        }
    }

    /// Starts what the next command will need, if there was one.
    pub(super) fn make_ready(&self, starters: &Starters) {
        let lacks = || locked(&self.ready).len() < READY_MAX;
        if self.is_wanted.load(Ordering::Relaxed)
            && lacks()
            && let Ok(stage) = self.start(starters)
        {
            locked(&self.ready).push(stage);
        }
    }

    /// Ends those that wait.
    pub(super) fn end(&self) {
        let ready = std::mem::take(&mut *locked(&self.ready));
        ready.into_iter().for_each(Ready::end);
    }

    fn start(&self, starters: &Starters) -> io::Result<Ready> {
        Ready::new(starters, self.own_groups, self.cgroups.as_ref())
    }
}
