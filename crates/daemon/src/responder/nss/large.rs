//! Large answers, kept for a moment: whoever looks a large group up with a small buffer comes again with
//! one twice as large until it fits, and each of these tries is a question. To make the answer anew each
//! time can take longer than a program waits. No clock here: the time is an argument.

use super::Frame;
use roster_bus::interfaces::MESSAGE_BYTES_MAX;
use roster_wire::{Kind, Request};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Smaller ones fit at once, or soon, and are soon made.
const LARGE_BYTES: usize = 4096;
/// How long they are kept; the next try follows at once.
pub(super) const LIFE: Duration = Duration::from_secs(2);
/// Bytes of all of them, which is room for one at least. When there is none left all are forgotten, which
/// costs a question each.
#[allow(clippy::cast_possible_truncation)]
const BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize;

/// What was asked for: kind, name, id.
type Question = (Kind, Vec<u8>, u32);

/// See the module.
#[derive(Default)]
pub(super) struct Large {
    answers: HashMap<Question, (Frame, Instant)>,
    bytes: usize,
}

impl Large {
    /// The answer that was given to that a moment ago.
    pub(super) fn answer(&self, request: &Request<'_>, now: Instant) -> Option<Frame> {
        if self.answers.is_empty() {
            return None;
        }
        let (frame, until) = self.answers.get(&question(request))?;
        (now < *until).then(|| Frame::clone(frame))
    }

    /// Keeps an answer if it is large. Whether it does from now on, for several who wait for one answer
    /// have it at once.
    pub(super) fn note(&mut self, request: &Request<'_>, frame: &Frame, now: Instant) -> bool {
        if !(LARGE_BYTES..=BYTES_MAX).contains(&frame.len()) || self.answer(request, now).is_some()
        {
            return false;
        }
        self.forget_old(now);
        if self.bytes + frame.len() > BYTES_MAX {
            self.forget();
        }
        self.bytes += frame.len();
        self.answers.insert(question(request), (Frame::clone(frame), now + LIFE));
        true
    }

    /// Gives back the memory of those whose time is over.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.answers.retain(|_, (_, until)| now < *until);
        self.bytes = self.answers.values().map(|(frame, _)| frame.len()).sum();
        if self.answers.is_empty() {
            self.forget();
        }
    }

    /// Any of them may be another now: of a group that is told so may be who is in it.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

fn question(request: &Request<'_>) -> Question {
    (request.kind, request.name.to_vec(), request.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_gid(gid: u32) -> Request<'static> {
        Request::by_id(Kind::GroupByGid, gid)
    }

    fn frame(bytes: usize) -> Frame {
        vec![1; bytes].into()
    }

    #[test]
    fn a_large_answer_is_known_until_its_time_is_over_and_then_takes_no_memory() {
        let now = Instant::now();
        let mut large = Large::default();
        assert!(large.note(&by_gid(7000), &frame(LARGE_BYTES), now));
        assert!(!large.note(&by_gid(7000), &frame(LARGE_BYTES), now), "it is kept already");
        let last = now + LIFE - Duration::from_millis(1);
        assert_eq!(large.answer(&by_gid(7000), last), Some(frame(LARGE_BYTES)));
        assert_eq!(large.answer(&by_gid(7000), now + LIFE), None);
        for other in [by_gid(7001), Request::by_id(Kind::UserByUid, 7000)] {
            assert_eq!(large.answer(&other, now), None, "{other:?}");
        }
        large.forget_old(now + LIFE);
        assert_eq!((large.answers.capacity(), large.bytes), (0, 0));
    }

    #[test]
    fn small_answers_are_not_kept() {
        let (now, mut large) = (Instant::now(), Large::default());
        assert!(!large.note(&by_gid(7000), &frame(LARGE_BYTES - 1), now));
        assert_eq!(large.answer(&by_gid(7000), now), None);
    }

    #[test]
    fn no_more_bytes_are_kept_than_there_is_room_for() {
        let (now, mut large) = (Instant::now(), Large::default());
        for gid in 0..100 {
            assert!(large.note(&by_gid(gid), &frame(BYTES_MAX / 5), now));
            let kept: usize = large.answers.values().map(|(frame, _)| frame.len()).sum();
            assert!(large.bytes == kept && kept <= BYTES_MAX, "{gid}: {kept}");
            assert_eq!(large.answer(&by_gid(gid), now), Some(frame(BYTES_MAX / 5)));
        }
        assert!(!large.note(&by_gid(7000), &frame(BYTES_MAX + 1), now));
    }
}
