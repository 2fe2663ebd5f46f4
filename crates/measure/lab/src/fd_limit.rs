// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limit of open files. A shell's default is about a thousand, and each user has a connection. This module raises
//! the soft limit only as far as needed, because measured commands inherit it. `run_load` decides how many are needed.

use crate::coded::{Coded, ensure_coded};
use crate::load_thread::Engine;
use crate::runner::ThreadPlan;
use anyhow::Result;
use parking_lot::Mutex;
use roster_messages::table::lab;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files for other purposes: libraries, reports, a watched server.
const SPARE_FDS: u64 = 64;
/// Files of a thread: an epoll with two timers, and two for the start of a process.
const FDS_PER_THREAD: u64 = 5;

/// Files that all active runs reserve.
static RESERVED: Mutex<u64> = Mutex::new(0);

/// Reserved files of a run, released on drop.
#[derive(Debug)]
pub struct FdReservation(u64);

impl FdReservation {
    /// Reserves the files of a run with this engine, besides all other runs of this process.
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
    ensure_coded!(
        limit.maximum.is_none_or(|maximum| maximum >= needed),
        FD_LIMIT,
        "{users} users: {needed} open files exceed the hard limit {}",
        limit.maximum.unwrap_or_default()
    );
    let text = format_args!("limit of open files: cannot be raised to {needed}");
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .coded(&lab::FD_LIMIT_NOT_RAISED, text)
}
