//! Outcomes of a look-up, and what glibc is told of them.

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

/// Why there is no answer. Absent, broken and too small are different things to a caller.
#[derive(Clone, Copy)]
pub enum Miss {
    /// There is no such entry.
    Absent,
    /// The snapshot does not say: the responder is to be asked.
    LeftOpen,
    /// The caller's buffer is too small; it will come again with a larger one.
    BufferTooSmall,
    /// The C library has no memory.
    NoMemory,
    /// No snapshot can be read, or it is damaged, or the responder does not answer: the error number
    /// to tell.
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

/// What glibc is told: a status, and an error number that is never 0 without success.
pub fn told(outcome: Result<(), Miss>) -> (NssStatus, Option<c_int>) {
    match outcome {
        Ok(()) => (NssStatus::Success, None),
        Err(Miss::Absent) => (NssStatus::NotFound, Some(libc::ENOENT)),
        Err(Miss::LeftOpen) => (NssStatus::Unavailable, Some(libc::EAGAIN)),
        Err(Miss::BufferTooSmall) => (NssStatus::TryAgain, Some(libc::ERANGE)),
        Err(Miss::NoMemory) => (NssStatus::TryAgain, Some(libc::ENOMEM)),
        Err(Miss::Unavailable(error)) => (NssStatus::Unavailable, Some(error)),
    }
}
