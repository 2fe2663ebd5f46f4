//! What root may tell a server over the socket, as nscd's own administrators do.

use super::connections::State;
use super::programs::Peer;
use super::{Level, Server};
use crate::protocol::{Order, Table};
use std::time::{Duration, Instant};

/// How long root may wait for a new map.
const MAKING: Duration = Duration::from_secs(60);

impl Server {
    /// Does what it is told, if that one may tell.
    pub(super) fn obey(&mut self, token: u64, by: Peer, order: Order<'_>, now: Instant) {
        if by.uid != 0 && by.uid != self.options.administrator {
            match order {
                // An answer would be taken for figures.
                Order::Statistics => self.connections.close(token),
                Order::Invalidate(_) | Order::Shutdown => self.say_done(token, libc::EPERM),
            }
            return;
        }
        match order {
            Order::Statistics => {
                self.gather_figures();
                let text = self.figures.text() + &self.programs.text();
                self.connections.send(token, text.into_bytes());
            }
            Order::Invalidate(name) => match Table::of(name) {
                Some(table) => {
                    self.forget();
                    self.dirty.insert(table);
                    self.not_before = now;
                    // One that is being made may have read what was before.
                    let is_building = self.building.contains(&table);
                    let attempts = self.attempts[table as usize] + u64::from(is_building);
                    self.connections.wait(token, State::ForNewer(table, attempts), now + MAKING);
                }
                // Nothing is kept of the others.
                None => self.say_done(token, 0),
            },
            Order::Shutdown => {
                self.say(Level::Info, "ends: told to over the socket");
                self.say_done(token, 0);
                self.is_told_to_end = true;
            }
        }
    }

    /// Says what came of an order: nothing bad, or an errno.
    fn say_done(&mut self, token: u64, status: i32) {
        self.connections.send(token, status.to_ne_bytes().to_vec());
    }

    /// Tells those whose map was made, or could not be.
    pub(super) fn tell_done(&mut self) {
        let attempts = self.attempts;
        let done = self.connections.waiting(|state| match *state {
            State::ForNewer(table, before) if attempts[table as usize] > before => Some(table),
            _ => None,
        });
        for (token, table) in done {
            self.say_done(token, if self.failed.contains(&table) { libc::EIO } else { 0 });
        }
    }
}
