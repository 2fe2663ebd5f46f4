//! The values of the file of credentials, and their bytes.

use crate::bytes::Bytes;
use std::collections::BTreeMap;

/// Longest hash, with its parameters.
const HASH_BYTES_MAX: usize = 512;

/// What is kept of a user's password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Whose it is beside the name: who gets the name of somebody who has gone has another uid, or none
    /// of this.
    pub uid: u32,
    /// The hash with its parameters, as a PHC string.
    pub hash: String,
    /// When the directory found the password right last, in seconds since 1970.
    pub verified_unix: u64,
    /// Wrong passwords since.
    pub failures: u32,
    /// The time of the last of them.
    pub failed_unix: u64,
}

/// The latest time that was seen, so that a clock that is set back is noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Seconds since 1970.
    pub unix: u64,
    /// The boot in which that was, as the kernel names it.
    pub boot: [u8; 16],
    /// How long the host had been up, in seconds.
    pub up: u64,
    /// When the clock was moved last. Dates before it may be of another clock.
    pub moved_unix: u64,
}

/// What an access filter said of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The uid, as in [`Credential`].
    pub uid: u32,
    /// The filter's text.
    pub filter: String,
    /// Whether it found the user.
    pub matched: bool,
    /// When it said so, in seconds since 1970.
    pub asked_unix: u64,
}

/// How costly a hash is made, and what that was measured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Microseconds that were aimed at.
    pub aim_us: u64,
    /// KiB of memory.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
}

/// What one transaction changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Removes the credentials and matches of all users, before the rest is written.
    pub forgets_all: bool,
    /// By user; `None` removes the credential.
    pub credentials: BTreeMap<Vec<u8>, Option<Credential>>,
    /// By user; `None` removes the match.
    pub matches: BTreeMap<Vec<u8>, Option<Match>>,
    /// The latest time that was seen.
    pub mark: Option<Mark>,
    /// How costly hashes are made.
    pub measured: Option<Measured>,
}

impl Changes {
    /// Changes what is kept of one user's password.
    #[must_use]
    pub fn credential(user: &[u8], credential: Option<Credential>) -> Self {
        Self { credentials: BTreeMap::from([(user.to_vec(), credential)]), ..Self::default() }
    }

    /// Changes what an access filter said of one user.
    #[must_use]
    pub fn matched(user: &[u8], matched: Option<Match>) -> Self {
        Self { matches: BTreeMap::from([(user.to_vec(), matched)]), ..Self::default() }
    }

    /// Forgets all that is kept of one user.
    #[must_use]
    pub fn forget(user: &[u8]) -> Self {
        Self { matches: BTreeMap::from([(user.to_vec(), None)]), ..Self::credential(user, None) }
    }

    /// Adds changes that were made after these.
    pub fn add(&mut self, later: Self) {
        if later.forgets_all {
            self.forgets_all = true;
            self.credentials.clear();
            self.matches.clear();
        }
        self.credentials.extend(later.credentials);
        self.matches.extend(later.matches);
        self.mark = later.mark.or_else(|| self.mark.take());
        self.measured = later.measured.or(self.measured);
    }
}

impl Credential {
    /// uid, failures, the two times, the hash.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.uid.to_le_bytes());
        bytes.extend(self.failures.to_le_bytes());
        bytes.extend(self.verified_unix.to_le_bytes());
        bytes.extend(self.failed_unix.to_le_bytes());
        bytes.extend_from_slice(self.hash.as_bytes());
        bytes
    }

    /// Reads that; `None` for anything else.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = Bytes(bytes);
        let (uid, failures) = (rest.u32()?, rest.u32()?);
        let (verified_unix, failed_unix) = (rest.u64()?, rest.u64()?);
        let hash = std::str::from_utf8(rest.0).ok()?;
        if hash.is_empty() || hash.len() > HASH_BYTES_MAX {
            return None;
        }
        Some(Self { uid, hash: hash.to_owned(), verified_unix, failures, failed_unix })
    }
}

impl Match {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.matched.into()];
        bytes.extend(self.uid.to_le_bytes());
        bytes.extend(self.asked_unix.to_le_bytes());
        bytes.extend_from_slice(self.filter.as_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&matched, rest) = bytes.split_first()?;
        let mut rest = Bytes(rest);
        let (uid, asked_unix) = (rest.u32()?, rest.u64()?);
        let filter = std::str::from_utf8(rest.0).ok()?.to_owned();
        (matched <= 1).then_some(Self { uid, filter, matched: matched == 1, asked_unix })
    }
}

impl Mark {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.unix.to_le_bytes().to_vec();
        bytes.extend(self.up.to_le_bytes());
        bytes.extend(self.boot);
        bytes.extend(self.moved_unix.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = Bytes(bytes);
        let (unix, up) = (rest.u64()?, rest.u64()?);
        let (boot, rest) = rest.0.split_first_chunk()?;
        // Earlier builds wrote no time of a move.
        let moved_unix = match rest {
            [] => 0,
            rest => u64::from_le_bytes(rest.try_into().ok()?),
        };
        Some(Self { unix, up, boot: *boot, moved_unix })
    }
}

impl Measured {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.aim_us.to_le_bytes().to_vec();
        bytes.extend(self.memory_kib.to_le_bytes());
        bytes.extend(self.passes.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = Bytes(bytes);
        let (aim_us, memory_kib, passes) = (rest.u64()?, rest.u32()?, rest.u32()?);
        rest.0.is_empty().then_some(Self { aim_us, memory_kib, passes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_mark_of_earlier_builds_is_read() {
        let mark = Mark { unix: 1, boot: [2; 16], up: 3, moved_unix: 4 };
        let bytes = mark.to_bytes();
        assert_eq!(Mark::from_bytes(&bytes), Some(mark.clone()));
        assert_eq!(Mark::from_bytes(&bytes[..32]), Some(Mark { moved_unix: 0, ..mark }));
        for length in [0, 31, 33, 39] {
            assert_eq!(Mark::from_bytes(&bytes[..length]), None, "{length}");
        }
    }
}
