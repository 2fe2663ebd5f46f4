// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dispatches requests. The map answers, or a helper, or the client is redirected to its name services. `connections`
//! receives requests and sends replies.

use super::connections::{ConnectionState, REPLY_TIMEOUT};
use super::helper_pool::HelperResult;
use super::unmapped_clients::{PeerCredentials, UnmappedUse, name_of};
use super::{HELPERS, Server, add, socket};
use crate::live_map::{MapLookup, find};
use crate::nss_helper::HelperReply;
use crate::protocol::{self, MapLookupKind, NscdRequest, ParsedRequest, Table};
use roster_messages::table::tools;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// Programs that serve name services, by their kernel names. During a lookup such a program may not answer a helper,
/// which would time out. These programs exclude their own service in their own lookups. A process with a forged name is
/// only redirected to its name services.
const PROVIDERS: [&str; 9] = [
    "systemd-homed",
    "systemd-userdbd",
    "systemd-userwor",
    "systemd-machine",
    "sssd",
    "sssd_be",
    "sssd_nss",
    "winbindd",
    "nslcd",
];

impl Server {
    /// Continues a connection after an event.
    pub(super) fn handle_readable(&mut self, token: u64, now: Instant) {
        let Some(heard) = self.connections.read_request(token) else { return };
        match protocol::parse(&heard.bytes) {
            ParsedRequest::Complete(request) => {
                self.dispatch_request(token, heard.peer, request, now);
            }
            ParsedRequest::Incomplete if heard.is_open => {
                self.connections.keep_partial(token, heard.bytes);
            }
            ParsedRequest::Incomplete | ParsedRequest::Invalid => self.connections.abort(token),
        }
    }

    fn dispatch_request(
        &mut self,
        token: u64,
        by: PeerCredentials,
        request: NscdRequest<'_>,
        now: Instant,
    ) {
        match request {
            NscdRequest::Lookup(kind, key) => self.lookup(token, by, kind, key, now),
            NscdRequest::Map(table, key) => self.send_map(token, table, key),
            NscdRequest::NotServed([]) => self.connections.close(token),
            NscdRequest::NotServed(integers) => {
                self.connections.send(token, protocol::bytes(integers));
            }
            NscdRequest::Admin(order) => self.handle_admin_request(token, by, order, now),
        }
    }

    fn lookup(
        &mut self,
        token: u64,
        by: PeerCredentials,
        kind: MapLookupKind,
        key: &[u8],
        now: Instant,
    ) {
        let maps = self.maps(kind.table());
        let said = maps.current.as_ref().map(|current| find(current.live.map(), kind, key));
        match said {
            Some(MapLookup::Answer(answer)) => {
                self.unmapped_clients.record_use(by, UnmappedUse::SocketLookup, name_of);
                self.send_reply(token, kind, answer.into());
                return;
            }
            // The server has no map of this table.
            None if self.tables.has_failed(kind.table()) => {
                self.unmapped_clients.record_use(by, UnmappedUse::SentToServices, name_of);
                self.connections.send(token, protocol::not_served(kind));
                return;
            }
            Some(MapLookup::UseServices | MapLookup::NotInMap) | None => {}
        }
        let Ok(lines) = &self.sources.lines else {
            return self.connections.send(token, protocol::not_served(kind));
        };
        let services = match kind {
            MapLookupKind::UserByName | MapLookupKind::UserByUid => &lines.passwd,
            MapLookupKind::GroupByName | MapLookupKind::GroupByGid => &lines.group,
            MapLookupKind::GroupsOf => &lines.initgroups,
        };
        // A line without services finds no entry.
        if services.text.is_empty() || (kind.is_by_id() && protocol::id(key).is_none()) {
            self.connections.send(token, protocol::absent(kind));
        } else if name_of(by.pid).is_some_and(|name| PROVIDERS.contains(&&*name)) {
            self.connections.send(token, protocol::not_served(kind));
        } else if self.helpers.enqueue_query((kind, key.to_vec()), token, by.uid) {
            self.connections.wait(
                token,
                ConnectionState::WaitingForHelper(kind),
                now + REPLY_TIMEOUT,
            );
        } else {
            self.unmapped_clients.record_use(by, UnmappedUse::SentToServices, name_of);
            self.connections.send(token, protocol::not_served(kind));
        }
    }

    /// Sends queued queries to helpers.
    pub(super) fn dispatch(&mut self, now: Instant) {
        let poll = &self.poll;
        let add = |number: u64, socket: BorrowedFd<'_>| add(poll, socket, HELPERS + number);
        let connections = &self.connections;
        let waits = |token| connections.peer(token).is_some();
        let failed = self.helpers.dispatch(now, &add, &waits);
        failed.into_iter().for_each(|done| self.handle_helper_result(done, now));
    }

    /// Sends the result of a helper to the waiting clients, and adds it to the map.
    pub(super) fn handle_helper_result(&mut self, done: HelperResult, now: Instant) {
        let HelperResult { query: (kind, key), reply: answer, waiting, is_fresh } = done;
        let (positive, negative) = (self.options.positive_ttl, self.options.negative_ttl);
        let (answer, keep) = match answer {
            HelperReply::Found(packet) => (packet, Some((false, positive))),
            HelperReply::Absent => (protocol::absent(kind), Some((true, negative))),
            HelperReply::Unavailable => (protocol::not_served(kind), None),
        };
        if let (Some((absent, life)), true) = (keep, is_fresh)
            && let Some(current) = &mut self.maps(kind.table()).current
            && find(current.live.map(), kind, &key) == MapLookup::NotInMap
        {
            current.live.add(kind, &key, &answer, absent, now, life);
        }
        let answer = Arc::<[u8]>::from(answer);
        for token in waiting {
            self.send_reply(token, kind, Arc::clone(&answer));
        }
    }

    /// Sends a reply. If the user has too many unread replies, redirects the client to the name services.
    fn send_reply(&mut self, token: u64, kind: MapLookupKind, answer: Arc<[u8]>) {
        let Some((_, by)) = self.connections.peer(token) else { return };
        if self.connections.can_receive_reply(by.uid, answer.len()) {
            self.connections.send(token, answer);
        } else {
            self.unmapped_clients.record_use(by, UnmappedUse::SentToServices, name_of);
            self.connections.send(token, protocol::not_served(kind));
        }
    }

    fn send_map(&mut self, token: u64, table: Table, key: &[u8]) {
        if self.maps(table).current.is_none() && !self.tables.has_failed(table) {
            let until = Instant::now() + REPLY_TIMEOUT;
            self.connections.wait(
                token,
                ConnectionState::WaitingForMap(table, key.to_vec()),
                until,
            );
            return;
        }
        let maps = &mut self.tables.get_mut(table).maps;
        let Some((client, by)) = self.connections.peer(token) else { return };
        if let Some(current) = &mut maps.current {
            // The client compares the timestamp with its clock, which may have been set.
            current.touch();
            if self.connections.can_receive_map(by.uid) {
                match socket::send_map(client, key, current.bytes, current.readable.as_fd()) {
                    Ok(()) => {
                        self.statistics.maps_sent += 1;
                        self.unmapped_clients.record_map(by);
                        self.connections.mark_handed_over(token, Instant::now());
                        return;
                    }
                    Err(error) if self.handover_error != Some(error.kind()) => {
                        self.handover_error = Some(error.kind());
                        let text = format!("{}: cannot send a map: {error}", table.name());
                        self.log_fault(&tools::NSCD_MAP_NOT_SENT, &text);
                    }
                    Err(_) => {}
                }
            }
        }
        self.unmapped_clients.record_use(by, UnmappedUse::SentToServices, name_of);
        self.connections.close(token);
    }

    /// Serves clients that waited for the first map of a table.
    pub(super) fn serve_waiting(&mut self) {
        let waiting = self.connections.waiting(|state| match state {
            ConnectionState::WaitingForMap(table, key) => Some((*table, key.clone())),
            _ => None,
        });
        waiting.into_iter().for_each(|(token, (table, key))| self.send_map(token, table, &key));
    }
}
