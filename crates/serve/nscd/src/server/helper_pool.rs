// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pool of helper processes, their queries and the results. The pool kills a helper that exceeds its timeout, and
//! ends an idle one. `nss_helper` is the helper itself, and `starter` starts the processes.

use crate::nss_helper::{self, HelperReply};
use crate::protocol::MapLookupKind;
use crate::starter::{self, Starter};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

const HELPERS_MAX: usize = 4;
/// Maximum number of different queries, in total and for one user other than root.
const QUERIES_MAX: usize = 1024;
const QUERIES_PER_USER_MAX: usize = 128;
/// Maximum number of helpers that one user other than root may keep busy.
const HELPERS_PER_USER_MAX: usize = HELPERS_MAX / 2;
/// Timeout of a query.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// Time after which an idle helper ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A lookup for a helper.
pub type HelperQuery = (MapLookupKind, Vec<u8>);

/// A query with its epoch. A request after a change never shares a query from before it.
type EpochQuery = (HelperQuery, u64);

struct PooledHelper {
    process: starter::HelperProcess,
    received: Vec<u8>,
    /// The current query, its start, and the user.
    query: Option<(EpochQuery, Instant, u32)>,
    idle_since: Instant,
    /// Whether the helper ends after its current query.
    is_last: bool,
}

/// Users and connections that wait for a query.
struct PendingQuery {
    users: Vec<u32>,
    waiting: Vec<u64>,
    /// Whether a helper has the query.
    is_dispatched: bool,
}

/// The result of a query, with the waiting connections.
pub struct HelperResult {
    /// The query.
    pub query: HelperQuery,
    /// The reply of the helper.
    pub reply: HelperReply,
    /// Tokens of the waiting connections.
    pub waiting: Vec<u64>,
    /// Whether the sources have not changed since the query was queued.
    pub is_fresh: bool,
}

/// Registers the socket of a helper with epoll under its number.
pub type PollRegistration<'a> = dyn Fn(u64, BorrowedFd<'_>) -> io::Result<()> + 'a;
/// Returns whether a connection still waits.
pub type IsWaiting<'a> = dyn Fn(u64) -> bool + 'a;

/// All helpers.
pub struct HelperPool {
    starter: Starter,
    services: [OsString; 3],
    /// Running helpers by number, which identifies their events.
    running: HashMap<u64, PooledHelper>,
    next_number: u64,
    /// Queues by user, in turn. A query of several users is in the queue of each.
    queues: VecDeque<(u32, VecDeque<EpochQuery>)>,
    pending: HashMap<EpochQuery, PendingQuery>,
    epoch: u64,
    /// Number of queries sent to helpers.
    pub queries_sent: u64,
}

impl HelperPool {
    /// Creates an empty pool.
    pub fn new(starter: Starter, services: [OsString; 3]) -> Self {
        Self {
            starter,
            services,
            running: HashMap::new(),
            next_number: 0,
            queues: VecDeque::new(),
            pending: HashMap::new(),
            epoch: 0,
            queries_sent: 0,
        }
    }

    /// Starts a new epoch: results of earlier queries are not cached.
    pub fn advance_epoch(&mut self) {
        self.epoch += 1;
    }

    /// Changes the services. Helpers with the old services end after their current query.
    pub fn reconfigure(&mut self, services: [OsString; 3]) {
        self.advance_epoch();
        if self.services != services {
            self.services = services;
            let idle = self.running.iter().filter(|(_, helper)| helper.query.is_none());
            let idle: Vec<u64> = idle.map(|(&number, _)| number).collect();
            idle.into_iter().for_each(|number| _ = self.end_process(number));
            self.running.values_mut().for_each(|helper| helper.is_last = true);
        }
    }

    /// Queues a query. Returns false if there are too many.
    pub fn enqueue_query(&mut self, key: HelperQuery, token: u64, uid: u32) -> bool {
        let of_user = |asked: &PendingQuery| asked.users.contains(&uid);
        let key = (key, self.epoch);
        let known = self.pending.get(&key);
        if known.is_none() && uid != 0 {
            let own = self.pending.values().filter(|asked| of_user(asked)).count();
            if self.pending.len() >= QUERIES_MAX || own >= QUERIES_PER_USER_MAX {
                return false;
            }
        }
        if !known.is_some_and(|asked| asked.is_dispatched || of_user(asked)) {
            match self.queues.iter_mut().find(|(of, _)| *of == uid) {
                Some((_, own)) => own.push_back(key.clone()),
                None => self.queues.push_back((uid, VecDeque::from([key.clone()]))),
            }
        }
        let asked = self.pending.entry(key);
        let asked = asked.or_insert_with(|| PendingQuery {
            users: Vec::new(),
            waiting: Vec::new(),
            is_dispatched: false,
        });
        if !asked.users.contains(&uid) {
            asked.users.push(uid);
        }
        asked.waiting.push(token);
        true
    }

    /// Returns the next query and its user. Users take turns, except users that keep too many helpers busy. Queries
    /// without a waiting connection are dropped.
    fn next(&mut self, waits: &IsWaiting<'_>) -> Option<(u32, EpochQuery)> {
        for _ in 0..self.queues.len() {
            let (uid, mut own) = self.queues.pop_front()?;
            let busy = self.running.values().filter_map(|helper| helper.query.as_ref());
            let is_busy =
                uid != 0 && busy.filter(|(.., of)| *of == uid).count() >= HELPERS_PER_USER_MAX;
            let mut next = None;
            while !is_busy && next.is_none() && !own.is_empty() {
                next = own.pop_front().filter(|asking| self.is_wanted(asking, waits));
            }
            if !own.is_empty() {
                self.queues.push_back((uid, own));
            }
            if let Some(asking) = next {
                return Some((uid, asking));
            }
        }
        None
    }

    fn is_wanted(&mut self, asking: &EpochQuery, waits: &IsWaiting<'_>) -> bool {
        let Some(asked) = self.pending.get_mut(asking).filter(|asked| !asked.is_dispatched) else {
            return false;
        };
        asked.waiting.retain(|&token| waits(token));
        let is_wanted = !asked.waiting.is_empty();
        if !is_wanted {
            self.pending.remove(asking);
        }
        is_wanted
    }

    /// Sends queries to helpers, and starts helpers as needed. Registers each new helper with `poll`. Returns the
    /// queries that failed.
    pub fn dispatch(
        &mut self,
        now: Instant,
        poll: &PollRegistration<'_>,
        waits: &IsWaiting<'_>,
    ) -> Vec<HelperResult> {
        let mut failed = Vec::new();
        loop {
            let idle = self.running.iter().find(|(_, helper)| helper.query.is_none());
            let idle = idle.map(|(&number, _)| number);
            if idle.is_none() && self.running.len() >= HELPERS_MAX {
                break;
            }
            let Some((uid, key)) = self.next(waits) else { break };
            let number = idle.map_or_else(|| self.start(now, poll), Ok);
            let Some((number, helper)) =
                number.ok().and_then(|number| Some((number, self.running.get_mut(&number)?)))
            else {
                failed.extend(self.complete(key, HelperReply::Unavailable));
                continue;
            };
            self.queries_sent += 1;
            // The socket contains at most the services, so it has space.
            let (kind, name) = &key.0;
            if helper.process.socket.write_all(&nss_helper::encode_query(*kind, name)).is_err() {
                self.end_process(number);
                failed.extend(self.complete(key, HelperReply::Unavailable));
                continue;
            }
            if let Some(asked) = self.pending.get_mut(&key) {
                asked.is_dispatched = true;
            }
            helper.query = Some((key, now, uid));
        }
        failed
    }

    fn start(&mut self, now: Instant, poll: &PollRegistration<'_>) -> io::Result<u64> {
        let mut process = self.starter.helper()?;
        process.socket.write_all(&nss_helper::encode_services(&self.services))?;
        self.next_number += 1;
        let (heard, question) = (Vec::new(), None);
        let helper = PooledHelper {
            process,
            received: heard,
            query: question,
            idle_since: now,
            is_last: false,
        };
        poll(self.next_number, helper.process.socket.as_fd())?;
        self.running.insert(self.next_number, helper);
        Ok(self.next_number)
    }

    /// Reads from a helper. Returns the result when it is complete.
    pub fn read_reply(&mut self, number: u64, now: Instant) -> Option<HelperResult> {
        let helper = self.running.get_mut(&number)?;
        let mut room = [0; 64 << 10];
        loop {
            match helper.process.socket.read(&mut room) {
                Ok(0) => return self.discard_process(number),
                Ok(bytes) => {
                    helper.received.extend_from_slice(&room[..bytes]);
                    match nss_helper::decode_reply(&helper.received) {
                        Ok(None) => {}
                        Ok(Some(answer)) => {
                            helper.received = Vec::new();
                            helper.idle_since = now;
                            let (key, ..) = helper.query.take()?;
                            if helper.is_last {
                                self.end_process(number);
                            }
                            return self.complete(key, answer);
                        }
                        Err(_) => return self.discard_process(number),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.discard_process(number),
            }
        }
    }

    /// Removes a helper that ended or has to end. Returns the result of its query.
    fn discard_process(&mut self, number: u64) -> Option<HelperResult> {
        let key = self.end_process(number)?;
        self.complete(key, HelperReply::Unavailable)
    }

    /// Ends a helper and returns its query.
    fn end_process(&mut self, number: u64) -> Option<EpochQuery> {
        let PooledHelper { query: question, .. } = self.running.remove(&number)?;
        question.map(|(key, ..)| key)
    }

    fn complete(&mut self, asking: EpochQuery, answer: HelperReply) -> Option<HelperResult> {
        let asked = self.pending.remove(&asking)?;
        let (key, epoch) = asking;
        let is_fresh = epoch == self.epoch;
        Some(HelperResult { query: key, reply: answer, waiting: asked.waiting, is_fresh })
    }

    /// Ends helpers that exceeded their timeout or are idle. Returns the failed queries and the next deadline.
    pub fn tick(&mut self, now: Instant) -> (Vec<HelperResult>, Option<Instant>) {
        let mut late = Vec::new();
        let mut next = None::<Instant>;
        let numbers: Vec<u64> = self.running.keys().copied().collect();
        for number in numbers {
            let Some(helper) = self.running.get(&number) else { continue };
            let due = match &helper.query {
                Some((_, since, _)) => *since + REPLY_TIMEOUT,
                None => helper.idle_since + IDLE_TIMEOUT,
            };
            if due <= now {
                late.extend(self.discard_process(number));
            } else {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        (late, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helpers() -> HelperPool {
        HelperPool::new(Starter::without_process(), ["", "", ""].map(OsString::from))
    }

    fn key(name: &str) -> HelperQuery {
        (MapLookupKind::UserByName, name.into())
    }

    #[test]
    fn who_asks_after_a_change_is_not_told_what_was_asked_before() {
        let mut helpers = helpers();
        assert!(
            helpers.enqueue_query(key("alice"), 1, 1000)
                && helpers.enqueue_query(key("alice"), 2, 1000)
        );
        helpers.advance_epoch();
        assert!(helpers.enqueue_query(key("alice"), 3, 1000));
        let [before, after] = [(); 2].map(|()| helpers.next(&|_| true).expect("asked again").1);
        assert!(helpers.next(&|_| true).is_none());
        let before = helpers.complete(before, HelperReply::Absent).unwrap();
        assert_eq!((before.waiting, before.is_fresh), (vec![1, 2], false));
        let after = helpers.complete(after, HelperReply::Absent).unwrap();
        assert_eq!((after.waiting, after.is_fresh), (vec![3], true));
    }

    #[test]
    fn users_take_turns_however_much_one_asks() {
        let mut helpers = helpers();
        for number in 0..100 {
            assert!(helpers.enqueue_query(key(&format!("many{number}")), number, 1000));
        }
        assert!(
            helpers.enqueue_query(key("one"), 200, 1001)
                && helpers.enqueue_query(key("many99"), 201, 1001)
        );
        assert!(helpers.enqueue_query(key("root's"), 202, 0));
        let mut next = || {
            let (uid, (key, _)) = helpers.next(&|token| token != 1)?;
            helpers.pending.get_mut(&(key.clone(), 0))?.is_dispatched = true;
            Some((uid, String::from_utf8(key.1).unwrap()))
        };
        let first: Vec<_> = std::iter::from_fn(&mut next).take(6).collect();
        let wanted =
            [(1000, "many0"), (1001, "one"), (0, "root's"), (1000, "many2"), (1001, "many99")];
        assert_eq!(
            first[..5],
            wanted.map(|(uid, name)| (uid, name.to_owned())),
            "nobody waits for 1"
        );
        assert_eq!(std::iter::from_fn(next).count(), 95, "99 has been asked already");
    }

    #[test]
    fn nobody_has_too_many_questions_and_root_has_always_room() {
        let mut helpers = helpers();
        let mut asked = 0;
        for uid in 1..20 {
            for number in 0..200 {
                asked +=
                    usize::from(helpers.enqueue_query(key(&format!("{uid}-{number}")), 1, uid));
            }
        }
        assert_eq!(asked, QUERIES_MAX);
        assert!(helpers.enqueue_query(key("root's"), 1, 0));
    }
}
