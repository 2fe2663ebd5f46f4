// SPDX-License-Identifier: MIT OR Apache-2.0
//! The values of the file of credentials, and their encoding. This module opens no file: `file` does.

use crate::byte_reader::ByteReader;
use std::collections::BTreeMap;

/// Limit of the filter results of a user: one for each PAM service.
pub const MATCHES_PER_USER_MAX: usize = 8;
/// First byte of several filter results. A single one starts with 0 or 1.
const SEVERAL_MATCHES: u8 = 0xff;
/// Limit of a hash with its parameters.
const HASH_BYTES_MAX: usize = 512;

/// The cached credential of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCredential {
    /// The uid at the last login. A new user with the same name has another uid, and does not get this credential.
    pub uid: u32,
    /// The hash with its parameters, as a PHC string.
    pub hash: String,
    /// Time at which the directory last verified the password, in seconds since 1970.
    pub verified_unix: u64,
    /// Wrong passwords since then.
    pub failures: u32,
    /// Time of the last wrong password.
    pub failed_unix: u64,
}

/// The latest recorded time, which shows that the clock was set back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockMark {
    /// Seconds since 1970.
    pub unix: u64,
    /// The kernel's id of the boot at that time.
    pub boot: [u8; 16],
    /// Uptime of the host at that time, in seconds.
    pub uptime_secs: u64,
    /// Time at which the clock was last set. Earlier times may be from another clock.
    pub moved_unix: u64,
}

/// The result of an access filter for a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterMatch {
    /// The uid, as in [`StoredCredential`].
    pub uid: u32,
    /// The filter's text.
    pub filter: String,
    /// The filter matched the user.
    pub matched: bool,
    /// Time of the result, in seconds since 1970.
    pub queried_unix: u64,
}

/// The results of access filters for a user, each for another text of the filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterMatches(pub Vec<FilterMatch>);

/// Measured parameters of hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredHashParams {
    /// The target of the measurement, in microseconds.
    pub target_us: u64,
    /// KiB of memory.
    pub memory_kib: u32,
    /// Number of passes.
    pub passes: u32,
}

/// The changes of one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialChanges {
    /// Removes the credentials and matches of all users, before the rest is written.
    pub clears_all: bool,
    /// By user; `None` removes the credential.
    pub credentials: BTreeMap<Vec<u8>, Option<StoredCredential>>,
    /// By user; `None` removes the match.
    pub matches: BTreeMap<Vec<u8>, Option<FilterMatches>>,
    /// The latest recorded time.
    pub clock_mark: Option<ClockMark>,
    /// The parameters of hashes.
    pub measured_params: Option<MeasuredHashParams>,
}

impl CredentialChanges {
    /// Changes the cached credential of one user.
    #[must_use]
    pub fn credential(user: &[u8], credential: Option<StoredCredential>) -> Self {
        Self { credentials: BTreeMap::from([(user.to_vec(), credential)]), ..Self::default() }
    }

    /// Changes the results of access filters for one user.
    #[must_use]
    pub fn filter_matches(user: &[u8], matches: Option<FilterMatches>) -> Self {
        Self { matches: BTreeMap::from([(user.to_vec(), matches)]), ..Self::default() }
    }

    /// Removes all data of one user.
    #[must_use]
    pub fn forget(user: &[u8]) -> Self {
        Self { matches: BTreeMap::from([(user.to_vec(), None)]), ..Self::credential(user, None) }
    }

    /// Adds later changes to these.
    pub fn add(&mut self, later: Self) {
        if later.clears_all {
            self.clears_all = true;
            self.credentials.clear();
            self.matches.clear();
        }
        self.credentials.extend(later.credentials);
        self.matches.extend(later.matches);
        self.clock_mark = later.clock_mark.or_else(|| self.clock_mark.take());
        self.measured_params = later.measured_params.or(self.measured_params);
    }
}

impl StoredCredential {
    /// Encodes uid, failures, the two times, and the hash.
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

    /// Decodes bytes of `to_bytes`. Returns `None` for other bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = ByteReader(bytes);
        let (uid, failures) = (rest.u32()?, rest.u32()?);
        let (verified_unix, failed_unix) = (rest.u64()?, rest.u64()?);
        let hash = std::str::from_utf8(rest.0).ok()?;
        if hash.is_empty() || hash.len() > HASH_BYTES_MAX {
            return None;
        }
        Some(Self { uid, hash: hash.to_owned(), verified_unix, failures, failed_unix })
    }
}

impl FilterMatches {
    /// Returns the result of this text of a filter.
    #[must_use]
    pub fn find(&self, uid: u32, filter: &str) -> Option<&FilterMatch> {
        self.0.iter().find(|one| one.uid == uid && one.filter == filter)
    }

    /// Adds a result. Removes an earlier one of the same text, those of another uid, and the oldest beyond `limit`.
    #[must_use]
    pub fn with(mut self, added: FilterMatch, limit: usize) -> Self {
        self.0.retain(|one| one.uid == added.uid && one.filter != added.filter);
        self.0.sort_by_key(|one| one.queried_unix);
        let limit = limit.clamp(1, MATCHES_PER_USER_MAX);
        self.0.drain(..(self.0.len() + 1).saturating_sub(limit));
        self.0.push(added);
        self
    }

    /// Encodes one result as such, and several with their lengths.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        if let [one] = &self.0[..] {
            return one.to_bytes();
        }
        let mut bytes = vec![SEVERAL_MATCHES];
        for one in &self.0 {
            let one = one.to_bytes();
            bytes.extend(u32::try_from(one.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend(one);
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let Some(rest) = bytes.strip_prefix(&[SEVERAL_MATCHES]) else {
            return FilterMatch::from_bytes(bytes).map(|one| Self(vec![one]));
        };
        let mut all = Vec::new();
        let mut rest = ByteReader(rest);
        while !rest.0.is_empty() {
            let length = usize::try_from(rest.u32()?).ok()?;
            let (one, after) = rest.0.split_at_checked(length)?;
            rest = ByteReader(after);
            all.push(FilterMatch::from_bytes(one)?);
        }
        (all.len() <= MATCHES_PER_USER_MAX).then_some(Self(all))
    }
}

impl FilterMatch {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.matched.into()];
        bytes.extend(self.uid.to_le_bytes());
        bytes.extend(self.queried_unix.to_le_bytes());
        bytes.extend_from_slice(self.filter.as_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&matched, rest) = bytes.split_first()?;
        let mut rest = ByteReader(rest);
        let (uid, asked_unix) = (rest.u32()?, rest.u64()?);
        let filter = std::str::from_utf8(rest.0).ok()?.to_owned();
        (matched <= 1).then_some(Self {
            uid,
            filter,
            matched: matched == 1,
            queried_unix: asked_unix,
        })
    }
}

impl ClockMark {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.unix.to_le_bytes().to_vec();
        bytes.extend(self.uptime_secs.to_le_bytes());
        bytes.extend(self.boot);
        bytes.extend(self.moved_unix.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = ByteReader(bytes);
        let (unix, up) = (rest.u64()?, rest.u64()?);
        let (boot, rest) = rest.0.split_first_chunk()?;
        // Earlier builds did not store the time of a clock change.
        let moved_unix = match rest {
            [] => 0,
            rest => u64::from_le_bytes(rest.try_into().ok()?),
        };
        Some(Self { unix, uptime_secs: up, boot: *boot, moved_unix })
    }
}

impl MeasuredHashParams {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.target_us.to_le_bytes().to_vec();
        bytes.extend(self.memory_kib.to_le_bytes());
        bytes.extend(self.passes.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = ByteReader(bytes);
        let (aim_us, memory_kib, passes) = (rest.u64()?, rest.u32()?, rest.u32()?);
        rest.0.is_empty().then_some(Self { target_us: aim_us, memory_kib, passes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn match_of(filter: &str, queried_unix: u64) -> FilterMatch {
        FilterMatch { uid: 1, filter: filter.to_owned(), matched: true, queried_unix }
    }

    #[test]
    fn filter_matches_are_read_as_written() {
        let one = match_of("(a=b)", 7);
        assert_eq!(FilterMatches::from_bytes(&one.to_bytes()), Some(FilterMatches(vec![one])));
        for count in 0..=MATCHES_PER_USER_MAX {
            let all = (0..count).map(|number| match_of(&format!("(a={number})"), 7)).collect();
            let all = FilterMatches(all);
            let bytes = all.to_bytes();
            assert_eq!(FilterMatches::from_bytes(&bytes), Some(all), "{count}");
            if count > 1 {
                assert_eq!(FilterMatches::from_bytes(&bytes[..bytes.len() - 1]), None, "{count}");
            }
        }
        let many = (0..=MATCHES_PER_USER_MAX).map(|_| match_of("(a=b)", 7)).collect();
        assert_eq!(FilterMatches::from_bytes(&FilterMatches(many).to_bytes()), None);
        assert_eq!(FilterMatches::from_bytes(&[2, 0, 0]), None);
    }

    #[test]
    fn filter_matches_keep_latest_of_each_text() {
        let mut all = FilterMatches::default();
        for number in 0..20 {
            all = all.with(match_of(&format!("(a={number})"), number), MATCHES_PER_USER_MAX);
        }
        assert_eq!(all.0.len(), MATCHES_PER_USER_MAX);
        assert!(all.find(1, "(a=12)").is_some() && all.find(1, "(a=11)").is_none());
        assert!(all.find(2, "(a=12)").is_none());
        all = all.with(match_of("(a=12)", 99), MATCHES_PER_USER_MAX);
        assert_eq!(all.find(1, "(a=12)").map(|one| one.queried_unix), Some(99));
        assert_eq!(all.0.len(), MATCHES_PER_USER_MAX);
        let other = FilterMatch { uid: 2, ..match_of("(a=12)", 100) };
        assert_eq!(all.clone().with(other.clone(), MATCHES_PER_USER_MAX).0, [other]);
        assert_eq!(all.with(match_of("(b=c)", 100), 1).0, [match_of("(b=c)", 100)]);
    }

    #[test]
    fn credentials_mark_of_earlier_builds_is_read() {
        let mark = ClockMark { unix: 1, boot: [2; 16], uptime_secs: 3, moved_unix: 4 };
        let bytes = mark.to_bytes();
        assert_eq!(ClockMark::from_bytes(&bytes), Some(mark.clone()));
        assert_eq!(ClockMark::from_bytes(&bytes[..32]), Some(ClockMark { moved_unix: 0, ..mark }));
        for length in [0, 31, 33, 39] {
            assert_eq!(ClockMark::from_bytes(&bytes[..length]), None, "{length}");
        }
    }
}
