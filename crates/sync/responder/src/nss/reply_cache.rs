// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cache of replies: missing entries, and large replies. A reply is stored only without a change signal since its
//! request. No clock here: the time is an argument. `negative_cache` and `large_reply_cache` have the two kinds.

use super::ReplyFrame;
use super::large_reply_cache::LargeReplyCache;
use super::negative_cache::NegativeCache;
use roster_wire::{NssRequest, encode};
use std::time::{Duration, Instant};

/// Cache of replies.
pub(super) struct ReplyCache {
    negative: NegativeCache,
    large: LargeReplyCache,
    /// Counts signals about changed entries.
    change_count: u64,
}

/// A cached result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CachedReply {
    /// There is no such entry.
    Absent,
    /// There is one, and this is the reply.
    Large(ReplyFrame),
}

impl ReplyCache {
    /// Makes a cache with that lifetime of missing entries.
    pub(super) fn new(negative: Duration) -> Self {
        Self {
            negative: NegativeCache::new(negative),
            large: LargeReplyCache::default(),
            change_count: 0,
        }
    }

    /// Returns the cached reply, if there is one.
    pub(super) fn cached_reply(
        &self,
        request: &NssRequest<'_>,
        now: Instant,
    ) -> Option<CachedReply> {
        if self.negative.knows(request, now) {
            return Some(CachedReply::Absent);
        }
        self.large.cached_reply(request, now).map(CachedReply::Large)
    }

    /// Returns the change count at the time of a request, for [`ReplyCache::note`].
    pub(super) fn change_count(&self) -> u64 {
        self.change_count
    }

    /// Stores a reply that is worth it, unless a change was signalled since the request. Returns whether it uses memory
    /// that has to be released later.
    pub(super) fn note(
        &mut self,
        request: &NssRequest<'_>,
        frame: &ReplyFrame,
        asked_at: u64,
        now: Instant,
    ) -> bool {
        if self.change_count != asked_at {
            return false;
        }
        if **frame == encode::ABSENT {
            self.negative.note(request, now);
            return false;
        }
        self.large.note(request, frame, now)
    }

    /// Releases the memory of expired large replies.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.large.forget_old(now);
    }

    /// Drops data of a user that may have changed or be new, under any uid.
    pub(super) fn forget_user(&mut self, name: &[u8]) {
        self.negative.forget_user(name);
        self.note_change();
    }

    /// Drops data of a group that may have changed or be new, under any gid.
    pub(super) fn forget_group(&mut self, name: &[u8]) {
        self.negative.forget_group(name);
        self.note_change();
    }

    /// Drops everything.
    pub(super) fn forget_all(&mut self) {
        self.negative.forget_all();
        self.note_change();
    }

    /// Large replies contain many names, and any of them may have changed.
    fn note_change(&mut self) {
        self.change_count += 1;
        self.large.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_request::LookupKind;

    const LIFE: Duration = Duration::from_secs(15);

    fn request() -> NssRequest<'static> {
        NssRequest::by_id(LookupKind::GroupByGid, 7000)
    }

    /// Returns an "absent" reply, and a large one.
    fn answers() -> [(ReplyFrame, CachedReply); 2] {
        let large: ReplyFrame = vec![1; 1 << 20].into();
        [
            (ReplyFrame::from(encode::ABSENT), CachedReply::Absent),
            (large.clone(), CachedReply::Large(large)),
        ]
    }

    type ForgetFn = fn(&mut ReplyCache);

    /// A change of one entry leaves other missing entries, but not large replies, which may contain any name.
    const NEWS: [(ForgetFn, bool); 3] = [
        (ReplyCache::forget_all, true),
        (|known| known.forget_group(b"staff"), true),
        (|known| known.forget_user(b"alice"), false),
    ];

    #[test]
    fn an_answer_is_remembered_until_something_is_heard() {
        let now = Instant::now();
        for (frame, memory) in answers() {
            for (hear, forgets_absent) in NEWS {
                let mut known = ReplyCache::new(LIFE);
                known.note(&request(), &frame, known.change_count(), now);
                assert_eq!(known.cached_reply(&request(), now).as_ref(), Some(&memory));
                hear(&mut known);
                let stays = memory == CachedReply::Absent && !forgets_absent;
                assert_eq!(known.cached_reply(&request(), now).is_some(), stays, "{memory:?}");
            }
        }
    }

    #[test]
    fn an_answer_older_than_news_is_not_remembered() {
        let now = Instant::now();
        for (frame, _) in answers() {
            for (hear, _) in NEWS {
                let mut known = ReplyCache::new(LIFE);
                let asked_at = known.change_count();
                hear(&mut known);
                assert!(!known.note(&request(), &frame, asked_at, now));
                assert_eq!(known.cached_reply(&request(), now), None);
            }
        }
    }
}
