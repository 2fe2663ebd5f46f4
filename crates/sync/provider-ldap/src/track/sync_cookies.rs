// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cookies of a domain's searches, with which the next connection resumes. `sync_progress` decides which cookie may
//! be stored.

use super::containers::Containers;
use super::known_entries::KnownEntries;
use roster_provider::{SearchId, SyncCookie};
use std::collections::HashMap;

/// The newest cookie of each search, as the server sent it.
#[derive(Debug, Default)]
pub(crate) struct SyncCookies {
    cookies: HashMap<SearchId, SyncCookie>,
}

impl SyncCookies {
    /// Parses stored cookies with their containers. An unreadable one is from another version: its search starts from
    /// the beginning.
    pub fn restore(kept: Vec<(SearchId, SyncCookie)>) -> (Self, KnownEntries) {
        let (mut cookies, mut known) = (Self::default(), KnownEntries::default());
        for (part, SyncCookie { binding, value }) in kept {
            if let Some((value, containers)) = Containers::decode_cookie(&value) {
                cookies.cookies.insert(part, SyncCookie { binding, value });
                known.restore_containers(part, containers);
            }
        }
        (cookies, known)
    }

    pub fn get(&self, part: SearchId) -> Option<&SyncCookie> {
        self.cookies.get(&part)
    }

    /// Returns the cookie of a search if it has this binding.
    pub fn bound_value(&self, part: SearchId, binding: &str) -> Option<&[u8]> {
        let cookie = self.get(part).filter(|cookie| cookie.binding == binding)?;
        Some(&cookie.value)
    }

    /// Sets or removes the cookie of a search.
    pub fn replace(&mut self, part: SearchId, cookie: Option<SyncCookie>) {
        match cookie {
            Some(cookie) => self.cookies.insert(part, cookie),
            None => self.cookies.remove(&part),
        };
    }

    /// Removes the cookie of a search, so that the search starts from the beginning.
    pub fn remove(&mut self, part: SearchId) {
        self.cookies.remove(&part);
    }

    /// Removes all cookies, so that every search starts from the beginning.
    pub fn clear(&mut self) {
        self.cookies.clear();
    }
}
