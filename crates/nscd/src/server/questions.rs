//! What is asked, and who answers: the map, a helper, or nobody here.

use super::connections::{ANSWERING, State};
use super::helpers::Done;
use super::programs::{Did, Peer, name_of};
use super::{HELPERS, Level, Server, add, socket};
use crate::host::Answer;
use crate::live::{Said, find};
use crate::protocol::{self, Kind, Parsed, Request, Table};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// Programs that serve name services, by what the kernel keeps of their names. While one of them looks somebody up,
/// it may not answer the helper, which would wait for it in vain; by themselves they know to leave
/// themselves out. Who takes such a name is sent to its name services, and that is all.
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
    /// Goes on with a connection.
    pub(super) fn served(&mut self, token: u64, now: Instant) {
        let Some(heard) = self.connections.hear(token) else { return };
        match protocol::parse(&heard.bytes) {
            Parsed::Whole(request) => self.answer(token, heard.peer, request, now),
            Parsed::More if heard.is_open => self.connections.keep(token, heard.bytes),
            Parsed::More | Parsed::Wrong => self.connections.drop(token),
        }
    }

    fn answer(&mut self, token: u64, by: Peer, request: Request<'_>, now: Instant) {
        match request {
            Request::LookUp(kind, key) => self.look_up(token, by, kind, key, now),
            Request::Map(table, key) => self.hand_over(token, table, key),
            Request::NotServed([]) => self.connections.close(token),
            Request::NotServed(integers) => self.connections.send(token, protocol::bytes(integers)),
            Request::Order(order) => self.obey(token, by, order, now),
        }
    }

    fn look_up(&mut self, token: u64, by: Peer, kind: Kind, key: &[u8], now: Instant) {
        let maps = self.maps(kind.table());
        let said = maps.current.as_ref().map(|current| find(current.live.map(), kind, key));
        match said {
            Some(Said::Answer(answer)) => {
                self.programs.note(by, Did::Asked, name_of);
                self.tell(token, kind, answer.into());
                return;
            }
            // Nothing of this table is served here.
            None if self.failed.contains(&kind.table()) => {
                self.programs.note(by, Did::WasSentAway, name_of);
                self.connections.send(token, protocol::not_served(kind));
                return;
            }
            Some(Said::AskServices | Said::Nothing) | None => {}
        }
        let Ok(lines) = &self.lines else {
            return self.connections.send(token, protocol::not_served(kind));
        };
        let services = match kind {
            Kind::UserByName | Kind::UserByUid => &lines.passwd,
            Kind::GroupByName | Kind::GroupByGid => &lines.group,
            Kind::GroupsOf => &lines.initgroups,
        };
        // A line that names no service finds nobody.
        if services.text.is_empty() || (kind.is_by_id() && protocol::id(key).is_none()) {
            self.connections.send(token, protocol::absent(kind));
        } else if name_of(by.pid).is_some_and(|name| PROVIDERS.contains(&&*name)) {
            self.connections.send(token, protocol::not_served(kind));
        } else if self.helpers.ask((kind, key.to_vec()), token, by.uid) {
            self.connections.wait(token, State::Waiting(kind), now + ANSWERING);
        } else {
            self.programs.note(by, Did::WasSentAway, name_of);
            self.connections.send(token, protocol::not_served(kind));
        }
    }

    /// Has helpers go on with what they are to ask.
    pub(super) fn dispatch(&mut self, now: Instant) {
        let poll = &self.poll;
        let add = |number: u64, socket: BorrowedFd<'_>| add(poll, socket, HELPERS + number);
        let connections = &self.connections;
        let waits = |token| connections.peer(token).is_some();
        let failed = self.helpers.dispatch(now, &add, &waits);
        failed.into_iter().for_each(|done| self.helped(done, now));
    }

    /// Tells those who waited what a helper found out, and the map.
    pub(super) fn helped(&mut self, done: Done, now: Instant) {
        let Done { key: (kind, key), answer, waiting, is_fresh } = done;
        let (positive, negative) = (self.options.positive, self.options.negative);
        let (answer, keep) = match answer {
            Answer::Found(packet) => (packet, Some((false, positive))),
            Answer::Absent => (protocol::absent(kind), Some((true, negative))),
            Answer::Unavailable => (protocol::not_served(kind), None),
        };
        if let (Some((absent, life)), true) = (keep, is_fresh)
            && let Some(current) = &mut self.maps(kind.table()).current
            && find(current.live.map(), kind, &key) == Said::Nothing
        {
            current.live.add(kind, &key, &answer, absent, now, life);
        }
        let answer = Arc::<[u8]>::from(answer);
        for token in waiting {
            self.tell(token, kind, Arc::clone(&answer));
        }
    }

    /// Sends an answer, or its user to the name services, who has others that he does not read.
    fn tell(&mut self, token: u64, kind: Kind, answer: Arc<[u8]>) {
        let Some((_, by)) = self.connections.peer(token) else { return };
        if self.connections.has_room_for(by.uid, answer.len()) {
            self.connections.send(token, answer);
        } else {
            self.programs.note(by, Did::WasSentAway, name_of);
            self.connections.send(token, protocol::not_served(kind));
        }
    }

    fn hand_over(&mut self, token: u64, table: Table, key: &[u8]) {
        if self.maps(table).current.is_none() && !self.failed.contains(&table) {
            let until = Instant::now() + ANSWERING;
            self.connections.wait(token, State::ForMap(table, key.to_vec()), until);
            return;
        }
        let maps = match table {
            Table::Passwd => &mut self.passwd,
            Table::Group => &mut self.group,
        };
        let Some((client, by)) = self.connections.peer(token) else { return };
        if let Some(current) = &mut maps.current {
            // The client compares it with its clock, which may have been set.
            current.touch();
            if self.connections.may_be_handed(by.uid) {
                match socket::hand_over(client, key, current.bytes, current.readable.as_fd()) {
                    Ok(()) => {
                        self.figures.handed_out += 1;
                        self.programs.was_handed(by);
                        self.connections.was_handed(token, Instant::now());
                        return;
                    }
                    Err(error) if self.refused != Some(error.kind()) => {
                        self.refused = Some(error.kind());
                        self.say(Level::Warning, &format!("cannot hand a map over: {error}"));
                    }
                    Err(_) => {}
                }
            }
        }
        self.programs.note(by, Did::WasSentAway, name_of);
        self.connections.close(token);
    }

    /// Serves those who waited for the first map of a table.
    pub(super) fn serve_waiting(&mut self) {
        let waiting = self.connections.waiting(|state| match state {
            State::ForMap(table, key) => Some((*table, key.clone())),
            _ => None,
        });
        waiting.into_iter().for_each(|(token, (table, key))| self.hand_over(token, table, &key));
    }
}
