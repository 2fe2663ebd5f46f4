//! Open files: a shell's usual bound is a thousand, and each user has a connection. The bound is raised
//! when more are needed and no further, because commands that are measured inherit it.

use crate::run::Crew;
use crate::worker::Engine;
use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What nobody takes: libraries, reports, a server's figures.
const SPARE: u64 = 64;
/// An epoll with two timers, and what the start of a process takes for a moment.
const OF_THREAD: u64 = 5;

/// Taken by all runs that are on.
static TAKEN: Mutex<u64> = Mutex::new(0);

/// Open files of a run, given back when dropped.
#[derive(Debug)]
pub struct Descriptors(u64);

impl Descriptors {
    /// For a run with such engines, beside all other runs of this process.
    pub fn of<E: Engine>(crew: Crew) -> Result<Self> {
        Self::take(crew.users, if E::BLOCKS { crew.users } else { crew.threads })
    }

    /// For so many users and threads.
    pub fn take(users: usize, threads: usize) -> Result<Self> {
        let mut taken = taken();
        let here = users as u64 + threads as u64 * OF_THREAD;
        allow(users, *taken + here + SPARE)?;
        *taken += here;
        Ok(Self(here))
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let mut taken = taken();
        *taken = taken.saturating_sub(self.0);
    }
}

fn taken() -> MutexGuard<'static, u64> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn allow(users: usize, needed: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= needed),
        "with {users} users this process needs {needed} open files, and may have {}: raise the limit \
         (ulimit -Hn {needed})",
        limit.maximum.unwrap_or_default()
    );
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .with_context(|| format!("cannot allow {needed} open files"))
}
