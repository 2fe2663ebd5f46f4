// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cache of large replies. A program that reads a large group with a small buffer doubles the buffer until the group
//! fits, and each attempt is a request. A new reply for each attempt can take longer than the program waits. No clock
//! here: the time is an argument. `reply_cache` combines it with `negative_cache`.

use super::ReplyFrame;
use roster_bus::interfaces::MESSAGE_BYTES_MAX;
use roster_request::LookupKind;
use roster_wire::NssRequest;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Smaller replies fit at once, or soon, and are quickly made.
const LARGE_REPLY_BYTES: usize = 4096;
/// Lifetime of a reply. The next attempt follows at once.
pub(super) const LIFE: Duration = Duration::from_secs(2);
/// Bytes of all replies. At least one fits. Without space for another, all are dropped, which costs one query each.
#[allow(clippy::cast_possible_truncation)]
const BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize;

/// The key of a request: kind, name, id.
type ReplyKey = (LookupKind, Vec<u8>, u32);

/// Cache of large replies.
#[derive(Default)]
pub(super) struct LargeReplyCache {
    replies: HashMap<ReplyKey, (ReplyFrame, Instant)>,
    bytes: usize,
}

impl LargeReplyCache {
    /// Returns the cached reply to that request.
    pub(super) fn cached_reply(
        &self,
        request: &NssRequest<'_>,
        now: Instant,
    ) -> Option<ReplyFrame> {
        if self.replies.is_empty() {
            return None;
        }
        let (frame, until) = self.replies.get(&reply_key(request))?;
        (now < *until).then(|| ReplyFrame::clone(frame))
    }

    /// Stores a reply if it is large. Returns whether it is new, because several requests may get one reply at once.
    pub(super) fn note(
        &mut self,
        request: &NssRequest<'_>,
        frame: &ReplyFrame,
        now: Instant,
    ) -> bool {
        if !(LARGE_REPLY_BYTES..=BYTES_MAX).contains(&frame.len())
            || self.cached_reply(request, now).is_some()
        {
            return false;
        }
        self.forget_old(now);
        if self.bytes + frame.len() > BYTES_MAX {
            self.forget();
        }
        self.bytes += frame.len();
        self.replies.insert(reply_key(request), (ReplyFrame::clone(frame), now + LIFE));
        true
    }

    /// Releases the memory of expired replies.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.replies.retain(|_, (_, until)| now < *until);
        self.bytes = self.replies.values().map(|(frame, _)| frame.len()).sum();
        if self.replies.is_empty() {
            self.forget();
        }
    }

    /// Drops all replies, because any of them may be outdated: a changed user may be a member of any group.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

fn reply_key(request: &NssRequest<'_>) -> ReplyKey {
    (request.kind, request.name.to_vec(), request.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_gid(gid: u32) -> NssRequest<'static> {
        NssRequest::by_id(LookupKind::GroupByGid, gid)
    }

    fn frame(bytes: usize) -> ReplyFrame {
        vec![1; bytes].into()
    }

    #[test]
    fn large_reply_cache_expires_and_frees_memory() {
        let now = Instant::now();
        let mut large = LargeReplyCache::default();
        assert!(large.note(&by_gid(7000), &frame(LARGE_REPLY_BYTES), now));
        assert!(!large.note(&by_gid(7000), &frame(LARGE_REPLY_BYTES), now), "it is kept already");
        let last = now + LIFE - Duration::from_millis(1);
        assert_eq!(large.cached_reply(&by_gid(7000), last), Some(frame(LARGE_REPLY_BYTES)));
        assert_eq!(large.cached_reply(&by_gid(7000), now + LIFE), None);
        for other in [by_gid(7001), NssRequest::by_id(LookupKind::UserByUid, 7000)] {
            assert_eq!(large.cached_reply(&other, now), None, "{other:?}");
        }
        large.forget_old(now + LIFE);
        assert_eq!((large.replies.capacity(), large.bytes), (0, 0));
    }

    #[test]
    fn small_answers_are_not_kept() {
        let (now, mut large) = (Instant::now(), LargeReplyCache::default());
        assert!(!large.note(&by_gid(7000), &frame(LARGE_REPLY_BYTES - 1), now));
        assert_eq!(large.cached_reply(&by_gid(7000), now), None);
    }

    #[test]
    fn no_more_bytes_are_kept_than_there_is_room_for() {
        let (now, mut large) = (Instant::now(), LargeReplyCache::default());
        for gid in 0..100 {
            assert!(large.note(&by_gid(gid), &frame(BYTES_MAX / 5), now));
            let kept: usize = large.replies.values().map(|(frame, _)| frame.len()).sum();
            assert!(large.bytes == kept && kept <= BYTES_MAX, "{gid}: {kept}");
            assert_eq!(large.cached_reply(&by_gid(gid), now), Some(frame(BYTES_MAX / 5)));
        }
        assert!(!large.note(&by_gid(7000), &frame(BYTES_MAX + 1), now));
    }
}
