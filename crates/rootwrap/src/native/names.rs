//! Users and groups as the name service has them, directories included. A question to it cannot be given
//! up, and may take for ever: so each has a thread of its own, of which there is a bounded number; who
//! waits for the answer does so for a time. One question is asked once, whoever waits.

use crate::exec::{Account, Executor};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::hash::Hash;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// How long an answer counts.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// How long it counts that there was none.
const UNANSWERED_FOR: Duration = Duration::from_secs(1);
/// How long an answer is waited for.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Questions that are open, of one kind; and of them, those about the uids of one person.
const OPEN_MAX: usize = 64;
const OPEN_OF_PERSON_MAX: usize = 8;
/// Answers that are kept, of one kind.
const KNOWN_MAX: usize = 4096;
/// The C library's look-ups need the most.
const STACK_BYTES: usize = 512 << 10;

/// Somebody who asks for commands.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) name: String,
    pub(super) gids: Vec<u32>,
}

/// The name service did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unanswered;

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name service of this host does not answer; try again later")
    }
}

/// What is known of users and groups.
pub(super) struct Names {
    executor: Arc<Executor>,
    /// Root, as it was when the daemon started: a directory that does not answer is not in its way.
    own: Option<Arc<Account>>,
    callers: Arc<Questions<u32, Caller>>,
    groups: Arc<Questions<String, u32>>,
    accounts: Arc<Questions<String, Account>>,
}

impl Names {
    pub(super) fn new(executor: Arc<Executor>) -> Self {
        let own = executor.own_account().ok().flatten().map(Arc::new);
        let (callers, groups, accounts) = Default::default();
        Self { executor, own, callers, groups, accounts }
    }

    /// Who has a uid, which is a person's; `None` if nobody has.
    pub(super) fn caller(&self, uid: u32, person: u32) -> Result<Option<Arc<Caller>>, Unanswered> {
        match &self.own {
            Some(own) if uid == own.uid() => {
                let (name, gids) = (own.name.clone(), own.groups().to_vec());
                Ok(Some(Arc::new(Caller { name, gids })))
            }
            _ => self.callers.answer_to(Some(person), &uid, |&uid| look_up_caller(uid)),
        }
    }

    /// The gid of a group; `None` if there is no such group.
    pub(super) fn group(&self, name: &str) -> Result<Option<u32>, Unanswered> {
        let ask = |name: &String| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()));
        self.groups.answer(&name.to_owned(), ask).map(|gid| gid.map(|gid| *gid))
    }

    /// A user to run as; `None` if there is no such user.
    pub(super) fn account(&self, name: &str) -> Result<Option<Arc<Account>>, Unanswered> {
        match &self.own {
            Some(own) if name == own.name => Ok(Some(Arc::clone(own))),
            _ => {
                let executor = Arc::clone(&self.executor);
                self.accounts.answer(&name.to_owned(), move |name| executor.account(name))
            }
        }
    }
}

fn look_up_caller(uid: u32) -> io::Result<Option<Caller>> {
    let Some(user) = User::from_uid(Uid::from_raw(uid))? else { return Ok(None) };
    let gids = getgrouplist(&CString::new(user.name.as_bytes())?, user.gid)?;
    let gids = gids.into_iter().map(Gid::as_raw).collect();
    Ok(Some(Caller { name: user.name, gids }))
}

/// Questions of one kind, and their answers.
struct Questions<K, V> {
    asked: Mutex<HashMap<K, State<V>>>,
    answered: Condvar,
}

impl<K, V> Default for Questions<K, V> {
    fn default() -> Self {
        Self { asked: Mutex::default(), answered: Condvar::default() }
    }
}

enum State<V> {
    /// A thread asks, for a person if it is one's own matter.
    Open(Option<u32>),
    /// What counts, and until when.
    Known(Instant, Result<Option<Arc<V>>, Unanswered>),
}

impl<V> State<V> {
    /// Until when it counts; `None` while it is open.
    fn until(&self) -> Option<Instant> {
        match self {
            Self::Open(_) => None,
            Self::Known(until, _) => Some(*until),
        }
    }
}

impl<K, V> Questions<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Send + Sync + 'static,
{
    /// The same for nobody in particular.
    fn answer(
        self: &Arc<Self>,
        key: &K,
        ask: impl FnOnce(&K) -> io::Result<Option<V>> + Send + 'static,
    ) -> Result<Option<Arc<V>>, Unanswered> {
        self.answer_to(None, key, ask)
    }

    /// The answer that counts, which `ask` finds where there is none.
    fn answer_to(
        self: &Arc<Self>,
        person: Option<u32>,
        key: &K,
        ask: impl FnOnce(&K) -> io::Result<Option<V>> + Send + 'static,
    ) -> Result<Option<Arc<V>>, Unanswered> {
        let began = Instant::now();
        let mut ask = Some(ask);
        let mut asked = self.asked();
        loop {
            match asked.get(key) {
                Some(State::Known(until, answer)) if began < *until => return answer.clone(),
                Some(State::Open(_)) => {
                    let left = ANSWER_TIME.checked_sub(began.elapsed()).ok_or(Unanswered)?;
                    let waited = self.answered.wait_timeout(asked, left);
                    asked = waited.expect("a thread that panics ends the process").0;
                }
                _ => {
                    let ask = ask.take().ok_or(Unanswered)?;
                    make_room(&mut asked, began);
                    if !may_ask(&asked, person) {
                        return Err(Unanswered);
                    }
                    asked.insert(key.clone(), State::Open(person));
                    let (questions, question) = (Arc::clone(self), key.clone());
                    let thread = thread::Builder::new().stack_size(STACK_BYTES);
                    let asks = thread.name("names".into()).spawn(move || {
                        let answer = ask(&question);
                        questions.set(question, answer);
                    });
                    if asks.is_err() {
                        asked.remove(key);
                        return Err(Unanswered);
                    }
                }
            }
        }
    }

    fn set(&self, key: K, answer: io::Result<Option<V>>) {
        let now = Instant::now();
        let state = match answer {
            Ok(answer) => State::Known(now + KNOWN_FOR, Ok(answer.map(Arc::new))),
            Err(_) => State::Known(now + UNANSWERED_FOR, Err(Unanswered)),
        };
        self.asked().insert(key, state);
        self.answered.notify_all();
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<K, State<V>>> {
        self.asked.lock().expect("a thread that panics ends the process")
    }
}

/// Somebody with thousands of uids costs the others a question each, and no more: when it is full, the older half of
/// the answers goes. The younger ones are still waited for.
fn make_room<K: Eq + Hash, V>(asked: &mut HashMap<K, State<V>>, now: Instant) {
    if asked.len() >= KNOWN_MAX {
        let mut times: Vec<Instant> = asked.values().filter_map(State::until).collect();
        times.sort_unstable();
        let middle = times.get(times.len() / 2).map_or(now, |&middle| middle.max(now));
        asked.retain(|_, state| state.until().is_none_or(|until| middle < until));
    }
}

/// Whether there are few enough questions, of all and of a person.
fn may_ask<K, V>(asked: &HashMap<K, State<V>>, person: Option<u32>) -> bool {
    let (mut open, mut of_person) = (0, 0);
    for state in asked.values() {
        if let State::Open(by) = state {
            open += 1;
            of_person += usize::from(person.is_some() && *by == person);
        }
    }
    open < OPEN_MAX && of_person < OPEN_OF_PERSON_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn one_question_is_asked_once_and_holds_up_no_other() {
        let questions: Arc<Questions<u32, u32>> = Arc::default();
        let (answer, answers) = mpsc::channel();
        let (began, begins) = mpsc::channel();
        let slow = Arc::clone(&questions);
        let first = thread::spawn(move || {
            slow.answer(&1, move |_| {
                began.send(()).unwrap();
                Ok(answers.recv().ok())
            })
        });
        begins.recv().unwrap();
        let second = Arc::clone(&questions);
        let second = thread::spawn(move || second.answer(&1, |_| panic!("asked twice")));
        assert_eq!(questions.answer(&2, |_| Ok(Some(20))), Ok(Some(Arc::new(20))));
        assert_eq!(questions.answer(&3, |_| Ok(None)), Ok(None));
        assert_eq!(questions.answer(&4, |_| Err(io::ErrorKind::TimedOut.into())), Err(Unanswered));
        answer.send(10).unwrap();
        for thread in [first, second] {
            assert_eq!(thread.join().unwrap(), Ok(Some(Arc::new(10))));
        }
        assert_eq!(questions.answer(&1, |_| panic!("known")), Ok(Some(Arc::new(10))));
    }

    #[test]
    fn questions_that_nobody_answers_are_bounded() {
        let questions: Arc<Questions<usize, u32>> = Arc::default();
        for key in 0..OPEN_MAX {
            questions.asked().insert(key, State::Open(None));
        }
        assert_eq!(questions.answer(&OPEN_MAX, |_| Ok(Some(1))), Err(Unanswered));
    }

    #[test]
    fn one_person_does_not_ask_all_of_them() {
        let questions: Arc<Questions<usize, u32>> = Arc::default();
        for key in 0..OPEN_OF_PERSON_MAX {
            questions.asked().insert(key, State::Open(Some(7)));
        }
        let answer = |person, key| questions.answer_to(Some(person), &key, |_| Ok(Some(1))).is_ok();
        assert!(!answer(7, 100) && answer(8, 100) && answer(7, 100));
    }

    #[test]
    fn so_many_who_ask_keep_nobody_from_an_answer() {
        let questions: Arc<Questions<usize, u32>> = Arc::default();
        let now = Instant::now();
        for key in 0..KNOWN_MAX {
            let until = now + KNOWN_FOR + Duration::from_micros(key as u64);
            questions.asked().insert(key, State::Known(until, Ok(None)));
        }
        assert_eq!(questions.answer(&KNOWN_MAX, |_| Ok(Some(1))), Ok(Some(Arc::new(1))));
        assert!(questions.asked().len() <= KNOWN_MAX / 2 + 1);
        assert_eq!(questions.answer(&(KNOWN_MAX - 1), |_| panic!("known")), Ok(None));
    }

    #[test]
    fn this_user_has_a_name_and_groups() {
        let uid = Uid::effective().as_raw();
        let caller = look_up_caller(uid).unwrap().unwrap();
        assert_eq!(caller.name, User::from_uid(Uid::effective()).unwrap().unwrap().name);
        assert!(!caller.gids.is_empty());
        assert!(look_up_caller(4_000_000_001).unwrap().is_none());
    }
}
