//! Helper processes: who they are, what they are asked and what became of it. A helper that does not
//! answer in time is killed; one that nobody asks for a while ends.

use crate::host::{self, Answer};
use crate::protocol::Kind;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Processes at once.
const HELPERS_MAX: usize = 4;
/// Different questions at once, and those of one user who is not root.
const QUESTIONS_MAX: usize = 1024;
const QUESTIONS_OF_A_USER: usize = 128;
/// How long one question may take.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// How long a helper is kept that has nothing to do.
const IDLE: Duration = Duration::from_secs(60);

/// A question.
pub type Key = (Kind, Vec<u8>);

/// A question and the epoch that it was asked in: who asks after a change is not told what was before.
type Asking = (Key, u64);

/// The program that becomes a helper.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// What it is told before the services.
    pub arguments: Vec<OsString>,
}

struct Helper {
    child: Child,
    socket: UnixStream,
    heard: Vec<u8>,
    /// The question, and when it was put.
    question: Option<(Asking, Instant)>,
    idle_since: Instant,
    /// Whether it ends after the question that it has.
    is_last: bool,
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Who waits for the answer to a question.
struct Asked {
    users: Vec<u32>,
    waiting: Vec<u64>,
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

/// All helpers.
pub struct Helpers {
    program: Program,
    services: [OsString; 3],
    /// By number, which tells the poll's events apart.
    running: HashMap<u64, Helper>,
    next_number: u64,
    queue: VecDeque<Asking>,
    asked: HashMap<Asking, Asked>,
    epoch: u64,
    /// Questions that were put.
    pub questions: u64,
}

impl Helpers {
    /// Starts none yet.
    pub fn new(program: Program, services: [OsString; 3]) -> Self {
        Self {
            program,
            services,
            running: HashMap::new(),
            next_number: 0,
            queue: VecDeque::new(),
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
            self.running.retain(|_, helper| helper.question.is_some());
            self.running.values_mut().for_each(|helper| helper.is_last = true);
        }
    }

    /// Puts a question for somebody. False where there are too many.
    pub fn ask(&mut self, key: Key, token: u64, uid: u32) -> bool {
        let of_user = |asked: &Asked| asked.users.contains(&uid);
        let key = (key, self.epoch);
        if !self.asked.contains_key(&key) {
            let own = self.asked.values().filter(|asked| of_user(asked)).count();
            if self.asked.len() >= QUESTIONS_MAX || (uid != 0 && own >= QUESTIONS_OF_A_USER) {
                return false;
            }
            self.queue.push_back(key.clone());
        }
        let asked = self.asked.entry(key);
        let asked = asked.or_insert_with(|| Asked { users: Vec::new(), waiting: Vec::new() });
        if !asked.users.contains(&uid) {
            asked.users.push(uid);
        }
        asked.waiting.push(token);
        true
    }

    /// Hands questions to processes. `poll` is told of those that are started. Gives the questions that
    /// could not be put.
    pub fn dispatch(&mut self, now: Instant, poll: &Poll<'_>) -> Vec<Done> {
        let mut failed = Vec::new();
        while !self.queue.is_empty() {
            let idle = self.running.iter().find(|(_, helper)| helper.question.is_none());
            let number = match idle.map(|(&number, _)| number) {
                Some(number) => number,
                None if self.running.len() >= HELPERS_MAX => break,
                None => match self.start(now, poll) {
                    Ok(number) => number,
                    Err(_) => {
                        let Some(key) = self.queue.pop_front() else { break };
                        failed.extend(self.done(key, Answer::Unavailable));
                        continue;
                    }
                },
            };
            let Some(key) = self.queue.pop_front() else { break };
            let Some(helper) = self.running.get_mut(&number) else { break };
            self.questions += 1;
            // Into an empty socket: it has room.
            let (kind, name) = &key.0;
            if helper.socket.write_all(&host::question(*kind, name)).is_err() {
                self.running.remove(&number);
                failed.extend(self.done(key, Answer::Unavailable));
                continue;
            }
            helper.question = Some((key, now));
        }
        failed
    }

    fn start(&mut self, now: Instant, poll: &Poll<'_>) -> io::Result<u64> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&self.program.path);
        command.args(&self.program.arguments).args(&self.services);
        command.env_clear().current_dir("/");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        let child = command.spawn()?;
        self.next_number += 1;
        let (heard, question) = (Vec::new(), None);
        let helper =
            Helper { child, socket: ours, heard, question, idle_since: now, is_last: false };
        poll(self.next_number, helper.socket.as_fd())?;
        self.running.insert(self.next_number, helper);
        Ok(self.next_number)
    }

    /// Hears what a process says.
    pub fn hear(&mut self, number: u64, now: Instant) -> Option<Done> {
        let helper = self.running.get_mut(&number)?;
        let mut room = [0; 64 << 10];
        loop {
            match helper.socket.read(&mut room) {
                Ok(0) => return self.lost(number),
                Ok(bytes) => {
                    helper.heard.extend_from_slice(&room[..bytes]);
                    match host::answer(&helper.heard) {
                        Ok(None) => {}
                        Ok(Some(answer)) => {
                            helper.heard = Vec::new();
                            helper.idle_since = now;
                            let (key, _) = helper.question.take()?;
                            if helper.is_last {
                                self.running.remove(&number);
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
        let mut helper = self.running.remove(&number)?;
        let (key, _) = helper.question.take()?;
        self.done(key, Answer::Unavailable)
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
                Some((_, since)) => *since + ANSWER_WAIT,
                None => helper.idle_since + IDLE,
            };
            if due <= now {
                late.extend(self.lost(number));
                self.running.remove(&number);
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

    #[test]
    fn who_asks_after_a_change_is_not_told_what_was_asked_before() {
        let program = Program { path: "/bin/false".into(), arguments: Vec::new() };
        let mut helpers = Helpers::new(program, ["", "", ""].map(OsString::from));
        let key = (Kind::UserByName, b"alice".to_vec());
        assert!(helpers.ask(key.clone(), 1, 1000) && helpers.ask(key.clone(), 2, 1000));
        helpers.outdate();
        assert!(helpers.ask(key, 3, 1000));
        assert_eq!(helpers.queue.len(), 2, "it is asked again");
        let [before, after] = [0, 1].map(|number| helpers.queue[number].clone());
        let before = helpers.done(before, Answer::Absent).unwrap();
        assert_eq!((before.waiting, before.is_fresh), (vec![1, 2], false));
        let after = helpers.done(after, Answer::Absent).unwrap();
        assert_eq!((after.waiting, after.is_fresh), (vec![3], true));
    }
}
