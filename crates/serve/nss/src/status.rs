// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outcomes of a lookup, and their NSS statuses. `exports` returns them to glibc.

use libc::c_int;
use roster_snapshot::Damage;
use roster_wire::Malformed;

/// `enum nss_status`. Any other value makes glibc abort the process.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum NssStatus {
    TryAgain = -2,
    Unavailable = -1,
    NotFound = 0,
    Success = 1,
}

/// Reasons for a lookup without an entry. Callers distinguish a missing entry, corrupt data and a small buffer.
#[derive(Clone, Copy)]
pub enum Miss {
    /// The entry does not exist.
    Absent,
    /// The snapshot is incomplete, so the responder must be queried.
    NeedsResponder,
    /// The caller's buffer is too small. glibc repeats the call with a larger one.
    BufferTooSmall,
    /// The C library has no memory.
    NoMemory,
    /// The snapshot is unreadable or damaged, or the responder does not reply. The value is the errno.
    Unavailable(c_int),
}

impl From<Damage> for Miss {
    fn from(Damage: Damage) -> Self {
        Self::Unavailable(libc::EIO)
    }
}

impl From<Malformed> for Miss {
    fn from(Malformed: Malformed) -> Self {
        Self::Unavailable(libc::EIO)
    }
}

/// Returns the status for glibc, and an errno that is set unless the lookup succeeded.
pub fn to_nss_status(outcome: Result<(), Miss>) -> (NssStatus, Option<c_int>) {
    match outcome {
        Ok(()) => (NssStatus::Success, None),
        Err(Miss::Absent) => (NssStatus::NotFound, Some(libc::ENOENT)),
        Err(Miss::NeedsResponder) => (NssStatus::Unavailable, Some(libc::EAGAIN)),
        Err(Miss::BufferTooSmall) => (NssStatus::TryAgain, Some(libc::ERANGE)),
        Err(Miss::NoMemory) => (NssStatus::TryAgain, Some(libc::ENOMEM)),
        Err(Miss::Unavailable(error)) => (NssStatus::Unavailable, Some(error)),
    }
}
