//! Helper processes: who they are, what they are asked and what became of it. A helper that does not
//! answer in time is killed; one that nobody asks for a while ends.

use crate::host::{self, Answer};
use crate::protocol::Kind;
use crate::starter::{self, Starter};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Processes at once.
const HELPERS_MAX: usize = 4;
/// Different questions at once, and those of one user who is not root.
const QUESTIONS_MAX: usize = 1024;
const QUESTIONS_OF_A_USER: usize = 128;
/// Processes that one user who is not root may keep busy.
const HELPERS_OF_A_USER: usize = HELPERS_MAX / 2;
/// How long one question may take.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// How long a helper is kept that has nothing to do.
const IDLE: Duration = Duration::from_secs(60);

/// A question.
pub type Key = (Kind, Vec<u8>);

/// A question and the epoch that it was asked in: who asks after a change is not told what was before.
type Asking = (Key, u64);

struct Helper {
    process: starter::Helper,
    heard: Vec<u8>,
    /// The question, when it was put, and for whom.
    question: Option<(Asking, Instant, u32)>,
    idle_since: Instant,
    /// Whether it ends after the question that it has.
    is_last: bool,
}

/// Who waits for the answer to a question.
struct Asked {
    users: Vec<u32>,
    waiting: Vec<u64>,
    /// Whether a process has it.
    is_put: bool,
}

/// An answer, and who waits for it.
pub struct Done {
    /// The question.
    pub key: Key,
    /// What came of it.
    pub answer: Answer,
    /// Who waits.
    pub waiting: Vec<u64>,
    /// Whether nothing has changed since the question was put.
    pub is_fresh: bool,
}

/// Has a process's socket polled under its number.
pub type Poll<'a> = dyn Fn(u64, BorrowedFd<'_>) -> io::Result<()> + 'a;
/// Whether somebody still waits.
pub type Waits<'a> = dyn Fn(u64) -> bool + 'a;

/// All helpers.
pub struct Helpers {
    starter: Starter,
    services: [OsString; 3],
    /// By number, which tells the poll's events apart.
    running: HashMap<u64, Helper>,
    next_number: u64,
    /// Of each user who has asked, in turn, the questions in their order. One that several ask is in the queues of all.
    queues: VecDeque<(u32, VecDeque<Asking>)>,
    asked: HashMap<Asking, Asked>,
    epoch: u64,
    /// Questions that were put.
    pub questions: u64,
}

impl Helpers {
    /// Starts none yet.
    pub fn new(starter: Starter, services: [OsString; 3]) -> Self {
        Self {
            starter,
            services,
            running: HashMap::new(),
            next_number: 0,
            queues: VecDeque::new(),
            asked: HashMap::new(),
            epoch: 0,
            questions: 0,
        }
    }

    /// From now on other answers are possible; what is on its way is not kept.
    pub fn outdate(&mut self) {
        self.epoch += 1;
    }

    /// From now on there are other services: processes that know the old ones end when they are done.
    pub fn reconfigure(&mut self, services: [OsString; 3]) {
        self.outdate();
        if self.services != services {
            self.services = services;
            let idle = self.running.iter().filter(|(_, helper)| helper.question.is_none());
            let idle: Vec<u64> = idle.map(|(&number, _)| number).collect();
            idle.into_iter().for_each(|number| _ = self.end(number));
            self.running.values_mut().for_each(|helper| helper.is_last = true);
        }
    }

    /// Puts a question for somebody. False where there are too many.
    pub fn ask(&mut self, key: Key, token: u64, uid: u32) -> bool {
        let of_user = |asked: &Asked| asked.users.contains(&uid);
        let key = (key, self.epoch);
        let known = self.asked.get(&key);
        if known.is_none() && uid != 0 {
            let own = self.asked.values().filter(|asked| of_user(asked)).count();
            if self.asked.len() >= QUESTIONS_MAX || own >= QUESTIONS_OF_A_USER {
                return false;
            }
        }
        if !known.is_some_and(|asked| asked.is_put || of_user(asked)) {
            match self.queues.iter_mut().find(|(of, _)| *of == uid) {
                Some((_, own)) => own.push_back(key.clone()),
                None => self.queues.push_back((uid, VecDeque::from([key.clone()]))),
            }
        }
        let asked = self.asked.entry(key);
        let asked = asked.or_insert_with(|| Asked {
            users: Vec::new(),
            waiting: Vec::new(),
            is_put: false,
        });
        if !asked.users.contains(&uid) {
            asked.users.push(uid);
        }
        asked.waiting.push(token);
        true
    }

    /// The next question, and whose turn it is: one of each user who does not keep too many processes busy already.
    /// What nobody waits for any more is not asked.
    fn next(&mut self, waits: &Waits<'_>) -> Option<(u32, Asking)> {
        for _ in 0..self.queues.len() {
            let (uid, mut own) = self.queues.pop_front()?;
            let busy = self.running.values().filter_map(|helper| helper.question.as_ref());
            let is_busy =
                uid != 0 && busy.filter(|(.., of)| *of == uid).count() >= HELPERS_OF_A_USER;
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

    fn is_wanted(&mut self, asking: &Asking, waits: &Waits<'_>) -> bool {
        let Some(asked) = self.asked.get_mut(asking).filter(|asked| !asked.is_put) else {
            return false;
        };
        asked.waiting.retain(|&token| waits(token));
        let is_wanted = !asked.waiting.is_empty();
        if !is_wanted {
            self.asked.remove(asking);
        }
        is_wanted
    }

    /// Hands questions to processes. `poll` is told of those that are started. Gives the questions that
    /// could not be put.
    pub fn dispatch(&mut self, now: Instant, poll: &Poll<'_>, waits: &Waits<'_>) -> Vec<Done> {
        let mut failed = Vec::new();
        loop {
            let idle = self.running.iter().find(|(_, helper)| helper.question.is_none());
            let idle = idle.map(|(&number, _)| number);
            if idle.is_none() && self.running.len() >= HELPERS_MAX {
                break;
            }
            let Some((uid, key)) = self.next(waits) else { break };
            let number = idle.map_or_else(|| self.start(now, poll), Ok);
            let Some((number, helper)) =
                number.ok().and_then(|number| Some((number, self.running.get_mut(&number)?)))
            else {
                failed.extend(self.done(key, Answer::Unavailable));
                continue;
            };
            self.questions += 1;
            // Into a socket that has nothing but the services: it has room.
            let (kind, name) = &key.0;
            if helper.process.socket.write_all(&host::question(*kind, name)).is_err() {
                self.end(number);
                failed.extend(self.done(key, Answer::Unavailable));
                continue;
            }
            if let Some(asked) = self.asked.get_mut(&key) {
                asked.is_put = true;
            }
            helper.question = Some((key, now, uid));
        }
        failed
    }

    fn start(&mut self, now: Instant, poll: &Poll<'_>) -> io::Result<u64> {
        let mut process = self.starter.helper()?;
        process.socket.write_all(&host::services(&self.services))?;
        self.next_number += 1;
        let (heard, question) = (Vec::new(), None);
        let helper = Helper { process, heard, question, idle_since: now, is_last: false };
        poll(self.next_number, helper.process.socket.as_fd())?;
        self.running.insert(self.next_number, helper);
        Ok(self.next_number)
    }

    /// Hears what a process says.
    pub fn hear(&mut self, number: u64, now: Instant) -> Option<Done> {
        let helper = self.running.get_mut(&number)?;
        let mut room = [0; 64 << 10];
        loop {
            match helper.process.socket.read(&mut room) {
                Ok(0) => return self.lost(number),
                Ok(bytes) => {
                    helper.heard.extend_from_slice(&room[..bytes]);
                    match host::answer(&helper.heard) {
                        Ok(None) => {}
                        Ok(Some(answer)) => {
                            helper.heard = Vec::new();
                            helper.idle_since = now;
                            let (key, ..) = helper.question.take()?;
                            if helper.is_last {
                                self.end(number);
                            }
                            return self.done(key, answer);
                        }
                        Err(_) => return self.lost(number),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.lost(number),
            }
        }
    }

    /// A process that ended, or that has to.
    fn lost(&mut self, number: u64) -> Option<Done> {
        let key = self.end(number)?;
        self.done(key, Answer::Unavailable)
    }

    /// Ends a process. Gives the question that it had.
    fn end(&mut self, number: u64) -> Option<Asking> {
        let Helper { question, .. } = self.running.remove(&number)?;
        question.map(|(key, ..)| key)
    }

    fn done(&mut self, asking: Asking, answer: Answer) -> Option<Done> {
        let asked = self.asked.remove(&asking)?;
        let (key, epoch) = asking;
        let is_fresh = epoch == self.epoch;
        Some(Done { key, answer, waiting: asked.waiting, is_fresh })
    }

    /// Ends what takes too long and what is not needed. Gives who waited in vain, and when there is
    /// more to do.
    pub fn tick(&mut self, now: Instant) -> (Vec<Done>, Option<Instant>) {
        let mut late = Vec::new();
        let mut next = None::<Instant>;
        let numbers: Vec<u64> = self.running.keys().copied().collect();
        for number in numbers {
            let Some(helper) = self.running.get(&number) else { continue };
            let due = match &helper.question {
                Some((_, since, _)) => *since + ANSWER_WAIT,
                None => helper.idle_since + IDLE,
            };
            if due <= now {
                late.extend(self.lost(number));
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

    fn helpers() -> Helpers {
        Helpers::new(Starter::without_process(), ["", "", ""].map(OsString::from))
    }

    fn key(name: &str) -> Key {
        (Kind::UserByName, name.into())
    }

    #[test]
    fn who_asks_after_a_change_is_not_told_what_was_asked_before() {
        let mut helpers = helpers();
        assert!(helpers.ask(key("alice"), 1, 1000) && helpers.ask(key("alice"), 2, 1000));
        helpers.outdate();
        assert!(helpers.ask(key("alice"), 3, 1000));
        let [before, after] = [(); 2].map(|()| helpers.next(&|_| true).expect("asked again").1);
        assert!(helpers.next(&|_| true).is_none());
        let before = helpers.done(before, Answer::Absent).unwrap();
        assert_eq!((before.waiting, before.is_fresh), (vec![1, 2], false));
        let after = helpers.done(after, Answer::Absent).unwrap();
        assert_eq!((after.waiting, after.is_fresh), (vec![3], true));
    }

    #[test]
    fn users_take_turns_however_much_one_asks() {
        let mut helpers = helpers();
        for number in 0..100 {
            assert!(helpers.ask(key(&format!("many{number}")), number, 1000));
        }
        assert!(helpers.ask(key("one"), 200, 1001) && helpers.ask(key("many99"), 201, 1001));
        assert!(helpers.ask(key("root's"), 202, 0));
        let mut next = || {
            let (uid, (key, _)) = helpers.next(&|token| token != 1)?;
            helpers.asked.get_mut(&(key.clone(), 0))?.is_put = true;
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
                asked += usize::from(helpers.ask(key(&format!("{uid}-{number}")), 1, uid));
            }
        }
        assert_eq!(asked, QUESTIONS_MAX);
        assert!(helpers.ask(key("root's"), 1, 0));
    }
}
