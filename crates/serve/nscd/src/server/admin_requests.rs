// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admin requests over the socket, as nscd supports them: statistics, invalidation and shutdown. `statistics` has the
//! text, and `map_rebuild` does the work of an invalidation.

use super::Server;
use super::connections::ConnectionState;
use super::unmapped_clients::PeerCredentials;
use crate::protocol::{AdminRequest, Table};
use std::time::{Duration, Instant};

/// Time limit of an invalidation that waits for the new map.
const REBUILD_TIMEOUT: Duration = Duration::from_secs(60);

impl Server {
    /// Handles an admin request of root or of the administrator; rejects all others.
    pub(super) fn handle_admin_request(
        &mut self,
        token: u64,
        by: PeerCredentials,
        order: AdminRequest<'_>,
        now: Instant,
    ) {
        if by.uid != 0 && by.uid != self.options.administrator {
            match order {
                // A client would take any reply for statistics.
                AdminRequest::Statistics => self.connections.close(token),
                AdminRequest::Invalidate(_) | AdminRequest::Shutdown => {
                    self.send_status(token, libc::EPERM);
                }
            }
            return;
        }
        match order {
            AdminRequest::Statistics => {
                self.collect_statistics();
                let text = self.statistics.text() + &self.unmapped_clients.text();
                self.connections.send(token, text.into_bytes());
            }
            AdminRequest::Invalidate(name) => match Table::from_name(name) {
                Some(table) => {
                    self.invalidate_added();
                    self.rebuild.dirty.insert(table);
                    self.rebuild.not_before = now;
                    // A build in progress may have read the old files.
                    let is_building = self.rebuild.building.contains(&table);
                    let attempts = self.tables.get(table).attempts + u64::from(is_building);
                    self.connections.wait(
                        token,
                        ConnectionState::WaitingForRebuild(table, attempts),
                        now + REBUILD_TIMEOUT,
                    );
                }
                // Other databases have no map.
                None => self.send_status(token, 0),
            },
            AdminRequest::Shutdown => {
                self.log("stopped by a request over the socket");
                self.send_status(token, 0);
                self.is_shutting_down = true;
            }
        }
    }

    /// Sends the status of a request: 0 or an errno.
    fn send_status(&mut self, token: u64, status: i32) {
        self.connections.send(token, status.to_ne_bytes().to_vec());
    }

    /// Replies to invalidations after their rebuild has finished or failed.
    pub(super) fn finish_admin_requests(&mut self) {
        let tables = &self.tables;
        let done = self.connections.waiting(|state| match *state {
            ConnectionState::WaitingForRebuild(table, before)
                if tables.get(table).attempts > before =>
            {
                Some(table)
            }
            _ => None,
        });
        for (token, table) in done {
            self.send_status(token, if self.tables.has_failed(table) { libc::EIO } else { 0 });
        }
    }
}
