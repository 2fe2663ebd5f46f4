// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows the changes of a directory over one connection.
//!
//! A [`Track`] maintains the result of one search, or a part of it. [`track_factory`] selects the tracks by the
//! features of the server, and [`follow_loop`] runs them.
//!
//! | file | responsibility |
//! |---|---|
//! | [`syncrepl`] | content synchronization, with [`sync_progress`], [`resume_check`] and [`stamp_attribute`] |
//! | [`poll`] | persistent search with [`persistent_search_queue`], and polling by stamps or by an [`update_sequence`] |
//! | [`container_watch`] | checks the [`containers`] above the mirrored entries |
//! | [`key_reconciliation`] | finds the changes that a server does not report |
//! | [`targeted_reread`] | reads the single entries of [`reread_queue`] |
//! | [`dynamic_groups`] | reads groups with computed members |
//! | [`ranges`] | completes the lists of [`incomplete_groups`] |
//! | [`server_liveness`] | decides when a silent server counts as gone |
//!
//! The tracks of a domain share one [`TrackSink`]. Its parts:
//!
//! | file | responsibility |
//! |---|---|
//! | [`sink_adapter`] | maps entries to users and groups for the backend's sink |
//! | [`known_entries`] | containers and [duplicate keys](duplicate_uuid), per search |
//! | [`foreign_members`] | counts members of other domains |
//! | [`sync_cookies`] | cookies, by which the next connection resumes |
//! | [`track_signals`] | signals among the tracks |
//! | [`concurrent_reads`] | which changes are newer than a read in progress |

mod concurrent_reads;
mod container_watch;
mod containers;
mod duplicate_uuid;
mod dynamic_groups;
pub mod follow_loop;
pub mod foreign_members;
mod incomplete_groups;
mod key_reconciliation;
mod known_entries;
mod persistent_search_queue;
mod poll;
mod ranges;
pub mod reread_queue;
mod resume_check;
pub mod server_liveness;
pub mod sink_adapter;
mod stamp_attribute;
mod sync_cookies;
mod sync_progress;
mod syncrepl;
mod targeted_reread;
pub mod track_factory;
mod track_signals;
mod track_sink;
mod update_sequence;

use crate::connection::LdapConnection;
use crate::error::LdapError;
use crate::message::{LdapResponse, LdapResult};
use crate::search::MirrorSearch;
use containers::Containers;
use duplicate_uuid::LimitExceeded;
use resume_check::SyncCheckpoint;
use tokio::time::Instant;
pub(crate) use track_sink::TrackSink;

/// Maintains the result of one search, or a part of it.
pub(crate) trait Track: Send {
    /// Queues the requests that are due.
    fn act(&mut self, connection: &mut LdapConnection, sink: &mut TrackSink, now: Instant);

    /// Returns whether the track sent the request of this id.
    fn owns(&self, id: u32) -> bool;

    /// Handles a response to a request of this track.
    fn handle_response(
        &mut self,
        response: &LdapResponse<'_>,
        sink: &mut TrackSink,
    ) -> Result<(), LdapError>;

    /// Returns whether a response is due, so that silence is a failure.
    fn awaits(&self) -> bool;

    /// Returns whether the reported changes are complete and may be published.
    fn is_settled(&self) -> bool;

    /// Returns the time of the next action that needs no response.
    fn due(&self) -> Option<Instant> {
        None
    }
}

/// Parses a stored cookie and writes it again. Returns `None` for other bytes. The cache is checksummed, but outlives
/// versions. The fuzz target passes arbitrary bytes.
pub fn reencode_cookie(kept: &[u8]) -> Option<Vec<u8>> {
    let (cookie, mut containers) = Containers::decode_cookie(kept)?;
    match SyncCheckpoint::parse(&cookie) {
        Ok((checkpoint, cookie)) => {
            containers.encode_with_cookie(&checkpoint.encode_with_cookie(cookie)?)
        }
        Err(_) => containers.encode_with_cookie(&cookie),
    }
}

/// Returns the error of a search that ended too early.
fn search_failed(search: &MirrorSearch, outcome: LdapResult<'_>) -> LdapError {
    let (base, code) = (search.base.clone(), outcome.code);
    LdapError::Search { base, outcome: outcome.to_string(), code }
}

/// Returns whether a stamp is later than another one. A longer stamp is later (numbers). Otherwise the text decides
/// (times).
fn is_later(stamp: &[u8], than: &[u8]) -> bool {
    (stamp.len(), stamp) > (than.len(), than)
}

fn too_many_entries(
    search: &MirrorSearch,
    LimitExceeded { what, most }: LimitExceeded,
) -> LdapError {
    LdapError::TooManyEntries { base: search.base.clone(), what, most }
}

fn too_many_containers(search: &MirrorSearch) -> LdapError {
    LdapError::TooManyContainers { base: search.base.clone() }
}
