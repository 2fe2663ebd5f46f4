// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries of an on-demand domain for groups that replace private groups, or that reject their users. `on_demand` has
//! the lookups of programs.
//!
//! A lookup does the same for its entry. These queries are for users that came with other entries, and for groups that
//! the directory got later. A mirrored domain needs none.

use super::PublisherTasks;
use super::name_owners::EntryOwner;
use super::on_demand::{LookupRequest, LookupSource, RequestLookup};
use super::state::PublisherState;
use roster_role::requests;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::debug;

/// Interval between two searches for users without an answer.
const PAUSE: Duration = Duration::from_secs(5);
/// Users in one call to the backend, with two queries for each.
const USERS_PER_CALL: usize = 100;

/// Queries one domain now and then, until the role ends. `refresh`: interval at which all users are queried again.
pub(super) async fn keep_checking(hub: Arc<PublisherTasks>, domain: usize, refresh: Duration) {
    let mut checked: Option<Instant> = None;
    loop {
        tokio::time::sleep(PAUSE.min(refresh)).await;
        let started = Instant::now();
        let is_due = checked.is_none_or(|checked| started.duration_since(checked) >= refresh);
        let users = hub.state.read().await.users_to_check(domain, is_due);
        if users.is_empty() {
            continue;
        }
        let number = requests::next_number();
        let lookup = RequestLookup { tasks: &hub, request: number.0 };
        let is_whole = number.scope(check_users(&lookup, &users)).await;
        if is_whole && is_due {
            checked = Some(started);
        }
    }
}

/// Queries for the groups of these users. Returns `false` if the domain did not answer.
async fn check_users(lookup: &impl LookupSource, users: &[EntryOwner]) -> bool {
    for users in users.chunks(USERS_PER_CALL) {
        let queries: Vec<(EntryOwner, Vec<LookupRequest>)> = {
            let state = lookup.state().read().await;
            let queries = |user: &EntryOwner| (*user, state.private_group_requests(*user));
            users.iter().map(queries).collect()
        };
        let asked: Vec<&LookupRequest> = queries.iter().flat_map(|(_, asked)| asked).collect();
        let Some((domain, _)) = users.first() else { continue };
        match lookup.query_if_online(*domain, &asked).await {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                debug!("groups of private groups were not queried: {}", error.0);
                return false;
            }
        }
        let is_new = note_decided(&mut *lookup.state().write().await, &queries);
        if is_new {
            lookup.schedule_snapshot();
        }
    }
    true
}

fn note_decided(state: &mut PublisherState, queries: &[(EntryOwner, Vec<LookupRequest>)]) -> bool {
    let decided = queries.iter().map(|(user, asked)| state.set_decided(*user, asked));
    decided.fold(false, |any, is_new| any | is_new)
}
