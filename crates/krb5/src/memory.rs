//! The memory of this program's processes, through which passwords and session keys pass: it is in no core dump, no
//! other process of the same user reads it, and none of it is swapped.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{CapabilitySet, capabilities};
use std::io;

/// What a process here may grow to. Where less may be locked nothing is: what came later would be refused.
const BYTES_MAX: u64 = 16 << 20;

/// Hides it from core dumps and from other processes, for this process and those that it makes.
pub fn hide() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(())
}

/// Locks it, for this process alone: one that it makes starts without. Gives what is in force, in words.
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
    // Pages that nobody uses are not read for it.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    Ok(mlockall(flags)?)
}
