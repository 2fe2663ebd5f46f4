// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protects the memory of this program's processes, which has passwords and session keys. It is not part of core dumps
//! and not swapped, and other processes of the same user cannot read it. `sandbox` restricts the process otherwise.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{CapabilitySet, capabilities};
use std::io;

/// Largest memory of a process here. If the limit is lower, nothing is locked: later allocations would fail.
const BYTES_MAX: u64 = 16 << 20;

/// Hides it from core dumps and from other processes, for this process and its children.
pub fn hide() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(())
}

/// Locks it, for this process only: children start without a lock. Returns the result as text.
pub fn lock() -> String {
    match try_to_lock() {
        Ok(()) => "locked memory".to_owned(),
        Err(error) => format!("no locked memory ({error})"),
    }
}

fn try_to_lock() -> io::Result<()> {
    let limit = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let is_unlimited = capabilities(None)?.effective.contains(CapabilitySet::IPC_LOCK);
    if !is_unlimited && limit.maximum.is_some_and(|bytes| bytes < BYTES_MAX) {
        return Err(io::Error::other("RLIMIT_MEMLOCK is too low"));
    }
    // Unused pages are not loaded for it.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    Ok(mlockall(flags)?)
}
