//! What need not be asked again for a while: what does not exist, and answers that were long to make.
//! Both only as long as nothing was heard since they were asked for. No clock here: the time is an
//! argument.

use super::Frame;
use super::absent::Absent;
use super::large::Large;
use roster_wire::{Request, encode};
use std::time::{Duration, Instant};

/// See the module.
pub(super) struct Remembered {
    absent: Absent,
    large: Large,
    /// Counts what was heard of things that may be other than they were.
    news: u64,
}

/// What is remembered of a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// There is no such thing.
    Absent,
    /// There is, and this is the answer.
    Large(Frame),
}

impl Remembered {
    /// Believes for that long that something does not exist.
    pub(super) fn new(negative: Duration) -> Self {
        Self { absent: Absent::new(negative), large: Large::default(), news: 0 }
    }

    /// The answer, if nobody has to be asked.
    pub(super) fn answer(&self, request: &Request<'_>, now: Instant) -> Option<Memory> {
        if self.absent.knows(request, now) {
            return Some(Memory::Absent);
        }
        self.large.answer(request, now).map(Memory::Large)
    }

    /// To be given to [`Remembered::note`] with the answer to a question that is asked now.
    pub(super) fn news(&self) -> u64 {
        self.news
    }

    /// Remembers an answer that is worth it, unless something was heard since the question. Whether it
    /// takes memory that is to be given back.
    pub(super) fn note(
        &mut self,
        request: &Request<'_>,
        frame: &Frame,
        asked_at: u64,
        now: Instant,
    ) -> bool {
        if self.news != asked_at {
            return false;
        }
        if **frame == encode::ABSENT {
            self.absent.note(request, now);
            return false;
        }
        self.large.note(request, frame, now)
    }

    /// Gives back the memory of large answers whose time is over.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.large.forget_old(now);
    }

    /// That user may be another, or come to exist, under any uid.
    pub(super) fn forget_user(&mut self, name: &[u8]) {
        self.absent.forget_user(name);
        self.hear();
    }

    /// That group may be another, or come to exist, under any gid.
    pub(super) fn forget_group(&mut self, name: &[u8]) {
        self.absent.forget_group(name);
        self.hear();
    }

    /// Anything may be other than it was.
    pub(super) fn forget_all(&mut self) {
        self.absent.forget_all();
        self.hear();
    }

    /// Large answers name many, and any of these may be meant.
    fn hear(&mut self) {
        self.news += 1;
        self.large.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_wire::Kind;

    const LIFE: Duration = Duration::from_secs(15);

    fn request() -> Request<'static> {
        Request::by_id(Kind::GroupByGid, 7000)
    }

    /// An answer that nobody is there, and a large one.
    fn answers() -> [(Frame, Memory); 2] {
        let large: Frame = vec![1; 1 << 20].into();
        [(Frame::from(encode::ABSENT), Memory::Absent), (large.clone(), Memory::Large(large))]
    }

    type Hear = fn(&mut Remembered);

    /// That something is not there says nothing of others; a large answer may name anybody.
    const NEWS: [(Hear, bool); 3] = [
        (Remembered::forget_all, true),
        (|known| known.forget_group(b"staff"), true),
        (|known| known.forget_user(b"alice"), false),
    ];

    #[test]
    fn an_answer_is_remembered_until_something_is_heard() {
        let now = Instant::now();
        for (frame, memory) in answers() {
            for (hear, forgets_absent) in NEWS {
                let mut known = Remembered::new(LIFE);
                known.note(&request(), &frame, known.news(), now);
                assert_eq!(known.answer(&request(), now).as_ref(), Some(&memory));
                hear(&mut known);
                let stays = memory == Memory::Absent && !forgets_absent;
                assert_eq!(known.answer(&request(), now).is_some(), stays, "{memory:?}");
            }
        }
    }

    #[test]
    fn an_answer_older_than_news_is_not_remembered() {
        let now = Instant::now();
        for (frame, _) in answers() {
            for (hear, _) in NEWS {
                let mut known = Remembered::new(LIFE);
                let asked_at = known.news();
                hear(&mut known);
                assert!(!known.note(&request(), &frame, asked_at, now));
                assert_eq!(known.answer(&request(), now), None);
            }
        }
    }
}
