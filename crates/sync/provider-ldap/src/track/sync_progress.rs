// SPDX-License-Identifier: MIT OR Apache-2.0
//! The progress of content synchronization: the server's newest cookie, and the changes by which a resumption from it
//! is checked. The check itself is in `resume_check`, and the search in `syncrepl`.

use super::resume_check::{ResumeChecks, SyncCheckpoint};
use roster_provider::{EntryId, SyncCookie};

/// The server's newest cookie.
#[derive(Debug, Default)]
enum NewestCookie {
    #[default]
    None,
    /// The sink has it, or receives it at the end of the refresh.
    Reported(Vec<u8>),
    /// The sink receives it after all earlier entries are read.
    Pending(Vec<u8>),
}

/// The progress of one search.
pub(crate) struct SyncProgress {
    /// The binding of its cookies.
    pub binding: String,
    pub checks: ResumeChecks,
    checkpoint: SyncCheckpoint,
    cookie: NewestCookie,
}

impl SyncProgress {
    pub fn new(binding: String) -> Self {
        Self {
            binding,
            checks: ResumeChecks::default(),
            checkpoint: SyncCheckpoint::default(),
            cookie: NewestCookie::None,
        }
    }

    /// Continues from a stored cookie. Starts from the beginning without one, or if it is unreadable.
    pub fn resume_from(&mut self, kept: Option<&[u8]>) {
        let kept = kept.and_then(|kept| SyncCheckpoint::parse(kept).ok());
        (self.checkpoint, self.cookie) = match kept {
            Some((checkpoint, cookie)) => (checkpoint, NewestCookie::Reported(cookie.to_vec())),
            None => (SyncCheckpoint::default(), NewestCookie::None),
        };
        self.checks = ResumeChecks::from_checkpoint(&self.checkpoint);
    }

    /// Returns the newest cookie, as the server sent it.
    pub fn cookie(&self) -> Option<&[u8]> {
        match &self.cookie {
            NewestCookie::None => None,
            NewestCookie::Reported(cookie) | NewestCookie::Pending(cookie) => Some(cookie),
        }
    }

    /// Records a cookie of the server.
    pub fn set_cookie(&mut self, cookie: &[u8]) {
        self.cookie = NewestCookie::Pending(cookie.to_vec());
    }

    /// Returns whether the sink has to receive the newest cookie.
    pub fn is_cookie_pending(&self) -> bool {
        matches!(self.cookie, NewestCookie::Pending(_))
    }

    /// Records that the sink receives the newest cookie.
    pub fn mark_reported(&mut self) {
        self.cookie = match std::mem::take(&mut self.cookie) {
            NewestCookie::Pending(cookie) => NewestCookie::Reported(cookie),
            other => other,
        };
    }

    /// Returns the newest cookie in its stored form. `None` without a change by which it could be checked.
    pub fn bound_cookie(&self) -> Option<SyncCookie> {
        let value = self.checkpoint.encode_with_cookie(self.cookie()?)?;
        Some(SyncCookie { binding: self.binding.clone(), value })
    }

    /// Records a changed entry with its stamp.
    pub fn note_changed(&mut self, id: EntryId, stamp: &[u8], is_listing: bool) {
        self.checks.resolve_entry(id);
        self.checkpoint.changed(id, stamp, is_listing);
    }

    /// Records a removed entry.
    pub fn note_removed(&mut self, id: EntryId) {
        self.checks.resolve_entry(id);
        self.checkpoint.removed(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_cookie_kept_with_changes_resumes() {
        let mut progress = SyncProgress::new("server".to_owned());
        progress.set_cookie(b"csn=1");
        assert_eq!(progress.bound_cookie(), None, "no change to check it by");
        progress.note_changed(EntryId([1; 16]), b"20261122075601Z", false);
        assert!(progress.is_cookie_pending());
        progress.mark_reported();
        assert!(!progress.is_cookie_pending());
        let kept = progress.bound_cookie().expect("a change");
        progress.set_cookie(b"csn=2");
        progress.resume_from(Some(&kept.value));
        assert_eq!(progress.cookie(), Some(&b"csn=1"[..]));
        assert!(!progress.is_cookie_pending() && !progress.checks.is_empty());
        progress.resume_from(Some(b"csn=1"));
        assert!(progress.cookie().is_none() && progress.checks.is_empty());
    }
}
