//! Answers to look-ups that are ahead of what was fetched. They are in the model already; what is
//! fetched next may have been put together before them and would take it back for a moment. So they are
//! laid over it, until a state is fetched that has them.

use super::model::Domain;
use roster_bus::exchange::{Malformed, Record, Records};
use roster_bus::interfaces::MESSAGE_BYTES_MAX;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of answers that are kept, which is room for one at least. Of more the oldest go: what they told
/// may be asked for again.
const BYTES_MAX: u64 = MESSAGE_BYTES_MAX;

/// What a back-end found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The back-end process that its numbers are of.
    pub epoch: u64,
    /// The state that it is of.
    pub sequence: u64,
    /// The records; none when there is no such entry.
    pub records: Vec<u8>,
}

impl Found {
    fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.records.len()) as u64
    }
}

/// See the module.
#[derive(Default)]
pub struct Learnt {
    /// In the order of their states.
    answers: VecDeque<Arc<Found>>,
    bytes: u64,
}

impl Learnt {
    /// Adds an answer.
    pub fn add(&mut self, found: &Arc<Found>) {
        let place = self.answers.partition_point(|other| other.sequence <= found.sequence);
        let before = place.checked_sub(1).and_then(|place| self.answers.get(place));
        // Several who asked the same have it at once.
        if before.is_some_and(|before| Arc::ptr_eq(before, found)) {
            return;
        }
        self.bytes += found.bytes();
        self.answers.insert(place, Arc::clone(found));
        while self.bytes > BYTES_MAX
            && let Some(oldest) = self.answers.pop_front()
        {
            self.bytes -= oldest.bytes();
        }
    }

    /// Lays them over what was fetched, but for those that it has.
    pub fn lay_over(&mut self, fetched: &mut Domain) {
        let (epoch, sequence) = (fetched.epoch, fetched.sequence);
        self.answers.retain(|found| found.epoch == epoch && found.sequence > sequence);
        self.bytes = self.answers.iter().map(|found| found.bytes()).sum();
        if fetched.learn(self.records_after(sequence)).is_err() {
            *self = Self::default();
        }
    }

    /// The records of the answers after a state, the newest last.
    pub fn records_after(
        &self,
        sequence: u64,
    ) -> impl Iterator<Item = Result<Record<'_>, Malformed>> + Clone {
        let start = self.answers.partition_point(|found| found.sequence <= sequence);
        self.answers.range(start..).flat_map(|found| Records::bare(&found.records))
    }
}
