//! Open files: a shell's usual bound is a thousand, and each user has a connection. The bound is raised
//! when more are needed and no further, because commands that are measured inherit it.

use crate::load_thread::Engine;
use crate::runner::ThreadPlan;
use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What nobody takes: libraries, reports, a server's figures.
const SPARE_FDS: u64 = 64;
/// An epoll with two timers, and what the start of a process takes for a moment.
const FDS_PER_THREAD: u64 = 5;

/// Taken by all runs that are on.
static RESERVED: Mutex<u64> = Mutex::new(0);

/// Open files of a run, given back when dropped.
#[derive(Debug)]
pub struct FdReservation(u64);

impl FdReservation {
    /// For a run with such engines, beside all other runs of this process.
    pub fn for_run<E: Engine>(crew: ThreadPlan) -> Result<Self> {
        Self::reserve(crew.users, if E::BLOCKS { crew.users } else { crew.threads })
    }

    pub fn reserve(users: usize, threads: usize) -> Result<Self> {
        let mut taken = RESERVED.lock();
        let here = users as u64 + threads as u64 * FDS_PER_THREAD;
        raise_limit(users, *taken + here + SPARE_FDS)?;
        *taken += here;
        Ok(Self(here))
    }
}

impl Drop for FdReservation {
    fn drop(&mut self) {
        let mut taken = RESERVED.lock();
        *taken = taken.saturating_sub(self.0);
    }
}

fn raise_limit(users: usize, needed: u64) -> Result<()> {
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
