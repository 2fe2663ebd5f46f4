// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookups of users and groups through the name service, directories included. A lookup cannot be cancelled and may
//! block without limit. Each one therefore has its own thread, and their number is limited. Callers wait for a limited
//! time. Concurrent lookups of one key share a thread. `connection` requests the lookups.

use crate::exec::{Account, Executor};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::ffi::CString;
use std::hash::Hash;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time for which a result is valid.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// Time for which a failure is valid.
const FAILURE_TTL: Duration = Duration::from_secs(1);
/// Limit of the wait for a result.
pub(super) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Limits of pending lookups of one kind: all, and those for the uids of one owner.
const PENDING_MAX: usize = 64;
const PENDING_PER_OWNER_MAX: usize = 8;
/// Limit of retained results of one kind.
const CACHED_MAX: usize = 4096;
/// Lookups of the C library need a large stack.
const STACK_BYTES: usize = 512 << 10;

/// The user of a client.
#[derive(Debug)]
pub(super) struct CallerAccount {
    pub(super) name: String,
    pub(super) gids: Vec<u32>,
}

/// The name service did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LookupUnavailable;

/// The lookups of the daemon, with their results.
pub(super) struct NssLookups {
    executor: Arc<Executor>,
    /// Root at the start of the daemon, so that a directory that does not answer never delays root.
    root_account: Option<Arc<Account>>,
    callers: Arc<LookupCache<u32, CallerAccount>>,
    groups: Arc<LookupCache<String, u32>>,
    accounts: Arc<LookupCache<String, Account>>,
}

impl NssLookups {
    pub(super) fn new(executor: Arc<Executor>) -> Self {
        let own = executor.lookup_own_account().ok().flatten().map(Arc::new);
        let (callers, groups, accounts) = Default::default();
        Self { executor, root_account: own, callers, groups, accounts }
    }

    /// Returns the user of a uid, counted for its owner. `None`: unknown uid.
    pub(super) fn lookup_caller(
        &self,
        uid: u32,
        person: u32,
    ) -> Result<Option<Arc<CallerAccount>>, LookupUnavailable> {
        match &self.root_account {
            Some(own) if uid == own.uid() => {
                let (name, gids) = (own.name.clone(), own.groups().to_vec());
                Ok(Some(Arc::new(CallerAccount { name, gids })))
            }
            _ => self.callers.lookup_for(Some(person), &uid, |&uid| query_caller(uid)),
        }
    }

    /// Returns the gid of a group. `None`: unknown group.
    pub(super) fn lookup_group(&self, name: &str) -> Result<Option<u32>, LookupUnavailable> {
        let ask = |name: &String| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()));
        self.groups.lookup(&name.to_owned(), ask).map(|gid| gid.map(|gid| *gid))
    }

    /// Returns the account of a user. `None`: unknown user.
    pub(super) fn lookup_account(
        &self,
        name: &str,
    ) -> Result<Option<Arc<Account>>, LookupUnavailable> {
        match &self.root_account {
            Some(own) if name == own.name => Ok(Some(Arc::clone(own))),
            _ => {
                let executor = Arc::clone(&self.executor);
                self.accounts.lookup(&name.to_owned(), move |name| executor.lookup_account(name))
            }
        }
    }
}

fn query_caller(uid: u32) -> io::Result<Option<CallerAccount>> {
    let Some(user) = User::from_uid(Uid::from_raw(uid))? else { return Ok(None) };
    let gids = getgrouplist(&CString::new(user.name.as_bytes())?, user.gid)?;
    let gids = gids.into_iter().map(Gid::as_raw).collect();
    Ok(Some(CallerAccount { name: user.name, gids }))
}

/// Lookups of one kind with their results.
struct LookupCache<K, V> {
    entries: Mutex<HashMap<K, LookupState<V>>>,
    changed: Condvar,
}

impl<K, V> Default for LookupCache<K, V> {
    fn default() -> Self {
        Self { entries: Mutex::default(), changed: Condvar::default() }
    }
}

enum LookupState<V> {
    /// A thread is looking the key up, counted for an owner if there is one.
    Pending(Option<u32>),
    /// A result, and the end of its validity.
    Cached(Instant, Result<Option<Arc<V>>, LookupUnavailable>),
}

impl<V> LookupState<V> {
    /// Returns the end of the validity. `None` for a pending lookup.
    fn valid_until(&self) -> Option<Instant> {
        match self {
            Self::Pending(_) => None,
            Self::Cached(until, _) => Some(*until),
        }
    }
}

impl<K, V> LookupCache<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Send + Sync + 'static,
{
    /// Looks a key up without an owner.
    fn lookup(
        self: &Arc<Self>,
        key: &K,
        ask: impl FnOnce(&K) -> io::Result<Option<V>> + Send + 'static,
    ) -> Result<Option<Arc<V>>, LookupUnavailable> {
        self.lookup_for(None, key, ask)
    }

    /// Returns the valid result. Without one, `ask` looks the key up.
    fn lookup_for(
        self: &Arc<Self>,
        person: Option<u32>,
        key: &K,
        ask: impl FnOnce(&K) -> io::Result<Option<V>> + Send + 'static,
    ) -> Result<Option<Arc<V>>, LookupUnavailable> {
        let began = Instant::now();
        let mut ask = Some(ask);
        let mut asked = self.entries();
        loop {
            match asked.get(key) {
                Some(LookupState::Cached(until, answer)) if began < *until => {
                    return answer.clone();
                }
                Some(LookupState::Pending(_)) => {
                    let left =
                        LOOKUP_TIMEOUT.checked_sub(began.elapsed()).ok_or(LookupUnavailable)?;
                    self.changed.wait_for(&mut asked, left);
                }
                _ => {
                    let ask = ask.take().ok_or(LookupUnavailable)?;
                    evict_older_half(&mut asked, began);
                    if !can_start_lookup(&asked, person) {
                        return Err(LookupUnavailable);
                    }
                    asked.insert(key.clone(), LookupState::Pending(person));
                    let (questions, question) = (Arc::clone(self), key.clone());
                    let thread = thread::Builder::new().stack_size(STACK_BYTES);
                    let asks = thread.name("names".into()).spawn(move || {
                        let answer = ask(&question);
                        questions.store_result(question, answer);
                    });
                    if asks.is_err() {
                        asked.remove(key);
                        return Err(LookupUnavailable);
                    }
                }
            }
        }
    }

    fn store_result(&self, key: K, answer: io::Result<Option<V>>) {
        let now = Instant::now();
        let state = match answer {
            Ok(answer) => LookupState::Cached(now + CACHE_TTL, Ok(answer.map(Arc::new))),
            Err(_) => LookupState::Cached(now + FAILURE_TTL, Err(LookupUnavailable)),
        };
        self.entries().insert(key, state);
        self.changed.notify_all();
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<K, LookupState<V>>> {
        self.entries.lock()
    }
}

/// Removes the older half of the results from a full table. An owner of thousands of uids then costs other callers at
/// most one lookup each. Pending lookups stay.
fn evict_older_half<K: Eq + Hash, V>(asked: &mut HashMap<K, LookupState<V>>, now: Instant) {
    if asked.len() >= CACHED_MAX {
        let mut times: Vec<Instant> = asked.values().filter_map(LookupState::valid_until).collect();
        times.sort_unstable();
        let middle = times.get(times.len() / 2).map_or(now, |&middle| middle.max(now));
        asked.retain(|_, state| state.valid_until().is_none_or(|until| middle < until));
    }
}

/// Returns true if the limits allow another lookup.
fn can_start_lookup<K, V>(asked: &HashMap<K, LookupState<V>>, person: Option<u32>) -> bool {
    let (mut open, mut of_person) = (0, 0);
    for state in asked.values() {
        if let LookupState::Pending(by) = state {
            open += 1;
            of_person += usize::from(person.is_some() && *by == person);
        }
    }
    open < PENDING_MAX && of_person < PENDING_PER_OWNER_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn one_question_is_asked_once_and_holds_up_no_other() {
        let questions: Arc<LookupCache<u32, u32>> = Arc::default();
        let (answer, answers) = mpsc::channel();
        let (began, begins) = mpsc::channel();
        let slow = Arc::clone(&questions);
        let first = thread::spawn(move || {
            slow.lookup(&1, move |_| {
                began.send(()).unwrap();
                Ok(answers.recv().ok())
            })
        });
        begins.recv().unwrap();
        let second = Arc::clone(&questions);
        let second = thread::spawn(move || second.lookup(&1, |_| panic!("asked twice")));
        assert_eq!(questions.lookup(&2, |_| Ok(Some(20))), Ok(Some(Arc::new(20))));
        assert_eq!(questions.lookup(&3, |_| Ok(None)), Ok(None));
        assert_eq!(
            questions.lookup(&4, |_| Err(io::ErrorKind::TimedOut.into())),
            Err(LookupUnavailable)
        );
        answer.send(10).unwrap();
        for thread in [first, second] {
            assert_eq!(thread.join().unwrap(), Ok(Some(Arc::new(10))));
        }
        assert_eq!(questions.lookup(&1, |_| panic!("known")), Ok(Some(Arc::new(10))));
    }

    #[test]
    fn questions_that_nobody_answers_are_bounded() {
        let questions: Arc<LookupCache<usize, u32>> = Arc::default();
        for key in 0..PENDING_MAX {
            questions.entries().insert(key, LookupState::Pending(None));
        }
        assert_eq!(questions.lookup(&PENDING_MAX, |_| Ok(Some(1))), Err(LookupUnavailable));
    }

    #[test]
    fn one_person_does_not_ask_all_of_them() {
        let questions: Arc<LookupCache<usize, u32>> = Arc::default();
        for key in 0..PENDING_PER_OWNER_MAX {
            questions.entries().insert(key, LookupState::Pending(Some(7)));
        }
        let answer =
            |person, key| questions.lookup_for(Some(person), &key, |_| Ok(Some(1))).is_ok();
        assert!(!answer(7, 100) && answer(8, 100) && answer(7, 100));
    }

    #[test]
    fn so_many_who_ask_keep_nobody_from_an_answer() {
        let questions: Arc<LookupCache<usize, u32>> = Arc::default();
        let now = Instant::now();
        for key in 0..CACHED_MAX {
            let until = now + CACHE_TTL + Duration::from_micros(key as u64);
            questions.entries().insert(key, LookupState::Cached(until, Ok(None)));
        }
        assert_eq!(questions.lookup(&CACHED_MAX, |_| Ok(Some(1))), Ok(Some(Arc::new(1))));
        assert!(questions.entries().len() <= CACHED_MAX / 2 + 1);
        assert_eq!(questions.lookup(&(CACHED_MAX - 1), |_| panic!("known")), Ok(None));
    }

    #[test]
    fn this_user_has_a_name_and_groups() {
        let uid = Uid::effective().as_raw();
        let caller = query_caller(uid).unwrap().unwrap();
        assert_eq!(caller.name, User::from_uid(Uid::effective()).unwrap().unwrap().name);
        assert!(!caller.gids.is_empty());
        assert!(query_caller(4_000_000_001).unwrap().is_none());
    }
}
