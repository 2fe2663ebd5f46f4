// SPDX-License-Identifier: MIT OR Apache-2.0
//! Update sequence numbers of Active Directory. Each change of an entry gets the next number of its server, in
//! `uSNChanged`. The root DSE shows the highest one. This module only compares numbers: tracks of the parent module
//! send the searches.
//!
//! The number is read before entries are. A change during a listing has a higher number, so the next poll requests it.
//! Numbers are of one server. A new connection therefore begins with a full listing. If the highest number falls, the
//! server has an older state, and a full listing follows, too.

use crate::connection::LdapConnection;
use crate::error::LdapError;
use crate::filter::EncodedFilter;
use crate::message::{LdapRequest, RawEntry, Scope, SearchRequest};
use crate::schema::CHANGE_NUMBER;
use roster_provider::jitter;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The attribute of the root DSE with the highest number.
const HIGHEST_NUMBER: &str = "highestCommittedUSN";

/// The changes since the last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewChanges {
    /// No entry has changed.
    None,
    /// Some entries have a higher number than before.
    Some,
    /// The server has an older state than before.
    Unknown,
}

/// The numbers of one server.
pub(crate) struct UpdateSequence {
    interval: Duration,
    /// The highest number before the last complete listing or poll.
    since: u64,
    /// The highest number before the one in progress.
    next: Option<u64>,
    random: RandomState,
    draws: u64,
}

impl UpdateSequence {
    pub fn new(interval: Duration) -> Self {
        Self { interval, since: 0, next: None, random: RandomState::new(), draws: 0 }
    }

    /// Requests the highest number. Returns the id of the request.
    pub fn request_number(&mut self, connection: &mut LdapConnection) -> u32 {
        self.next = None;
        let request = SearchRequest {
            base: "",
            scope: Scope::Base,
            filter: &EncodedFilter::present("objectClass"),
            attributes: &[HIGHEST_NUMBER],
            entries_max: 0,
        };
        connection.queue(&LdapRequest::Search(request), &[])
    }

    /// Reads the highest number from the root DSE.
    pub fn read_number(&mut self, root: &RawEntry<'_>) -> Result<(), LdapError> {
        let value = root.values(HIGHEST_NUMBER)?.next().transpose()?;
        self.next = value.and_then(parse_number);
        Ok(())
    }

    /// Returns the changes since the last read. `None` if the root DSE has no number.
    pub fn new_changes(&self) -> Option<NewChanges> {
        let next = self.next?;
        Some(match next.cmp(&self.since) {
            std::cmp::Ordering::Less => NewChanges::Unknown,
            std::cmp::Ordering::Equal => NewChanges::None,
            std::cmp::Ordering::Greater => NewChanges::Some,
        })
    }

    /// Returns the filter of entries that have changed since the last read.
    pub fn changed(&self) -> EncodedFilter {
        let first = self.since.saturating_add(1).to_string();
        EncodedFilter::at_least(CHANGE_NUMBER, first.as_bytes())
    }

    /// Returns whether the next poll requests an entry with this number.
    pub fn covers(&self, number: &[u8]) -> bool {
        parse_number(number).is_some_and(|number| number > self.since)
    }

    /// Ends a listing of all or of the changed entries.
    pub fn end_read(&mut self) {
        self.since = self.next.unwrap_or(self.since);
    }

    /// Returns the pause before the next poll, with a random deviation of up to a fifth.
    pub fn pause(&mut self) -> Duration {
        self.draws += 1;
        let random = (self.random.hash_one(self.draws) >> 32) as u32;
        jitter::shortest(self.interval) + jitter::jitter(self.interval, random)
    }
}

fn parse_number(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::testing::{entry, raw};

    fn root(sequence: &mut UpdateSequence, number: &[u8]) -> Option<NewChanges> {
        let message = entry("", &[("highestCommittedUSN", &[number])]);
        sequence.read_number(&raw(&message)).expect("an entry");
        sequence.new_changes()
    }

    #[test]
    fn update_sequence_requests_later_numbers() {
        let mut sequence = UpdateSequence::new(Duration::from_secs(1));
        assert_eq!(sequence.new_changes(), None);
        assert_eq!(root(&mut sequence, b"4100"), Some(NewChanges::Some));
        sequence.end_read();
        assert_eq!(root(&mut sequence, b"4100"), Some(NewChanges::None));
        assert_eq!(root(&mut sequence, b"4102"), Some(NewChanges::Some));
        assert_eq!(
            sequence.changed().encoded(),
            EncodedFilter::at_least("uSNChanged", b"4101").encoded()
        );
        assert!(sequence.covers(b"4101") && !sequence.covers(b"4100") && !sequence.covers(b""));
        sequence.end_read();
        assert_eq!(root(&mut sequence, b"4101"), Some(NewChanges::Unknown));
    }

    #[test]
    fn update_sequence_other_values_have_no_number() {
        let mut sequence = UpdateSequence::new(Duration::from_secs(1));
        for value in [&b""[..], b"-1", b"+1", b"1 ", b"0x1", b"18446744073709551616"] {
            assert_eq!(root(&mut sequence, value), None, "{}", value.escape_ascii());
        }
        assert_eq!(root(&mut sequence, b"18446744073709551615"), Some(NewChanges::Some));
    }

    #[test]
    fn update_sequence_pauses_vary_by_fifth() {
        let mut sequence = UpdateSequence::new(Duration::from_secs(10));
        let pauses: Vec<Duration> = (0..100).map(|_| sequence.pause()).collect();
        let bounds = Duration::from_secs(8)..=Duration::from_secs(12);
        assert!(pauses.iter().all(|pause| bounds.contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }
}
