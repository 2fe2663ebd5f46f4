//! The connection of look-ups: many questions in flight at once, none waiting for the mirror.
//!
//! One task owns the connection and deals the answers out to who asked; a bounded number of
//! questions is in flight, more wait their turn. A server that closes an idle connection is nothing
//! special: the next question opens another.
//!
//! A question that takes long is its asker's misfortune alone: when nobody waits for it any more, or
//! its time is over, the server is told to stop, and the others go on. The server counts as gone only
//! when it leaves a probe unanswered too.
//!
//! A server that refuses a question may refuse that one only: it lacks an index, or somebody asked for
//! something strange. It is left for the next when it refuses plain questions as well.

use crate::connection::{Connection, Root};
use crate::error::Error;
use crate::filter::Filter;
use crate::message::{Operation, Request, Response, Scope, SearchRequest, code};
use crate::network::Network;
use crate::servers::Setbacks;
use crate::track::{PROBE_DEADLINE, PROBE_INTERVAL, queue_probe};
use roster_provider::Unanswered;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Questions in flight on the connection; a server works on far fewer at once.
const IN_FLIGHT_MAX: usize = 32;
/// Questions that wait for a place.
const WAITING_MAX: usize = 256;
/// Entries that one question may bring.
const ENTRIES_MAX: usize = 10_000;
/// Bytes of all answers that are on their way: 32 groups of 10,000 members by DN are 20 MiB.
const BYTES_MAX: usize = 64 << 20;
/// A server that answered a plain question counts as good for so long: strange questions may come in
/// any number.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// A question, with all that outlives who asked it.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub base: Arc<str>,
    pub scope: Scope,
    pub filter: Filter,
    pub attributes: Arc<[String]>,
    /// Entries that are enough; 0 asks for all.
    pub entries_max: u32,
}

/// The messages with the entries that answer a question.
pub(crate) type Answer = Vec<Vec<u8>>;

struct Ask {
    question: Question,
    reply: oneshot::Sender<Result<Answer, Error>>,
    deadline: Instant,
}

/// What is called to the task that owns the connection.
#[derive(Default)]
struct Calls {
    /// Somebody does not wait for an answer any more.
    left: Notify,
    /// The server may be gone.
    doubt: Notify,
    /// Why the connection ended, if the server fell silent.
    silent: OnceLock<String>,
    /// The server is left for another.
    useless: Notify,
    /// How the server did when it was tried last.
    trial: Mutex<Trial>,
}

#[derive(Default)]
enum Trial {
    #[default]
    Never,
    Good(Instant),
    Useless,
}

/// A connection that is open, or was until a moment ago.
#[derive(Clone)]
pub(crate) struct Open {
    asks: mpsc::Sender<Ask>,
    calls: Arc<Calls>,
    /// What its server can do.
    pub root: Root,
    /// The server's URI.
    pub server: Arc<str>,
    /// Why those before it were not taken.
    pub passed_over: Arc<str>,
}

/// Says that somebody left, when it is dropped.
struct Leaving<'a>(&'a Calls);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.left.notify_one();
    }
}

impl Open {
    /// Takes a connection over.
    pub fn over(connection: Connection, root: Root, server: &str, passed_over: &str) -> Self {
        let (asks, asked) = mpsc::channel(WAITING_MAX);
        let calls = Arc::new(Calls::default());
        let serving = Serving {
            connection,
            calls: Arc::clone(&calls),
            pending: HashMap::new(),
            bytes: 0,
            heard: Instant::now(),
            probe: None,
        };
        tokio::spawn(serving.run(asked));
        let (server, passed_over) = (server.into(), passed_over.into());
        Self { asks, calls, root, server, passed_over }
    }

    /// Over when the connection is, or its server was left; with the reason if that fell silent.
    pub async fn closed(&self) -> Option<String> {
        tokio::select! {
            () = self.asks.closed() => {}
            () = self.calls.useless.notified() => {}
        }
        self.calls.silent.get().map(|reason| format!("{}: {reason}", self.server))
    }

    async fn ask(&self, question: Question, within: Duration) -> Result<Answer, Error> {
        let slow = Error::Slow { deadline: within };
        // Dropped after the channel on which the answer would come.
        let _leaving = Leaving(&self.calls);
        let (reply, replied) = oneshot::channel();
        let ask = Ask { question, reply, deadline: Instant::now() + within };
        let answer = async {
            if self.asks.send(ask).await.is_err() {
                return Err(Error::Closed);
            }
            replied.await.unwrap_or(Err(Error::Closed))
        };
        timeout(within, answer).await.unwrap_or(Err(slow))
    }
}

/// How look-ups come to a connection.
pub(crate) struct Link {
    state: Mutex<State>,
    search_timeout: Duration,
    /// Whether somebody else tries again after a failure, so that a question need not.
    is_tended: bool,
    /// Plain questions. A server is of use if it answers one of them: where one fails everywhere, for
    /// its base is not there, others may be served.
    plain: Vec<Question>,
    setbacks: Arc<Setbacks>,
}

enum State {
    /// Nobody asked yet, or the connection ended as connections do.
    Idle,
    Open(Open),
    /// No server answered, at this time.
    Offline(String, Instant),
}

/// When nobody tends the link, a question tries again after so long.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Link {
    pub fn new(
        search_timeout: Duration,
        is_tended: bool,
        plain: Vec<Question>,
        setbacks: Arc<Setbacks>,
    ) -> Self {
        Self { state: Mutex::new(State::Idle), search_timeout, is_tended, plain, setbacks }
    }

    /// Whether the server answers plain questions. One that meets a limit of its has an answer.
    pub async fn try_out(&self, open: &Open) -> Result<(), Error> {
        let mut outcome = Ok(());
        for question in &self.plain {
            match open.ask(question.clone(), self.search_timeout).await {
                Err(error) if error.casts_doubt() => outcome = Err(error),
                Ok(_) | Err(Error::Search { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        outcome
    }

    /// Tries a server out that failed a question; whether it is left. One at a time does that, for
    /// all whose questions failed.
    async fn leaves(&self, open: &Open) -> bool {
        let mut trial = open.calls.trial.lock().await;
        match *trial {
            Trial::Useless => return true,
            Trial::Good(since) if since.elapsed() < GOOD_FOR => return false,
            _ => {}
        }
        let Err(error) = self.try_out(open).await else {
            *trial = Trial::Good(Instant::now());
            return false;
        };
        // Whoever asks may give up here: then the next tries it out.
        self.set(open, State::Idle).await;
        *trial = Trial::Useless;
        self.setbacks.note(&open.server, Instant::now());
        tracing::warn!(server = %open.server, %error, "the server answers no look-ups and is left");
        open.calls.useless.notify_one();
        true
    }

    /// The open connection; opens one with `connect` if that seems worth trying, or at any rate if
    /// `insist`.
    pub async fn open<F>(&self, insist: bool, connect: impl FnOnce() -> F) -> Result<Open, String>
    where
        F: Future<Output = Result<Open, String>>,
    {
        // Held while connecting: who comes meanwhile gets the same connection.
        let mut state = self.state.lock().await;
        match &*state {
            State::Open(open) if !open.asks.is_closed() => return Ok(open.clone()),
            State::Offline(reason, since)
                if !insist && (self.is_tended || since.elapsed() < RETRY_AFTER) =>
            {
                return Err(reason.clone());
            }
            _ => {}
        }
        match connect().await {
            Ok(open) => {
                *state = State::Open(open.clone());
                Ok(open)
            }
            Err(reason) => {
                *state = State::Offline(reason.clone(), Instant::now());
                Err(reason)
            }
        }
    }

    /// Lets go of the connection; questions in flight are still answered.
    pub async fn drop_connection(&self) {
        let mut state = self.state.lock().await;
        if let State::Open(_) = *state {
            *state = State::Idle;
        }
    }

    /// The open connection, if nobody is about to change it.
    pub fn present(&self) -> Option<Open> {
        match &*self.state.try_lock().ok()? {
            State::Open(open) if !open.asks.is_closed() => Some(open.clone()),
            _ => None,
        }
    }

    /// Leaves a server that was found silent while another is not.
    pub async fn leave_silent(&self, open: &Open) {
        self.set(open, State::Idle).await;
        self.setbacks.note(&open.server, Instant::now());
        tracing::warn!(server = %open.server, "the server is silent and is left");
        open.calls.useless.notify_one();
    }

    async fn failed(&self, open: &Open, reason: String) {
        self.set(open, State::Offline(reason, Instant::now())).await;
    }

    /// What becomes of a connection, unless there is another already.
    async fn set(&self, open: &Open, next: State) {
        let mut state = self.state.lock().await;
        if let State::Open(present) = &*state
            && present.asks.same_channel(&open.asks)
        {
            *state = next;
        }
    }

    /// Has the server asked from time to time whether it is there. Over when the connection is; with
    /// the reason if the server is not.
    pub async fn watch(&self, open: &Open, network: &Network) -> Option<String> {
        let doubts = async {
            loop {
                tokio::select! {
                    () = sleep(PROBE_INTERVAL) => {}
                    () = network.changed() => {}
                }
                open.calls.doubt.notify_one();
            }
        };
        let reason = tokio::select! {
            reason = open.closed() => reason,
            () = doubts => None,
        };
        if let Some(reason) = &reason {
            self.failed(open, reason.clone()).await;
        }
        reason
    }

    /// Asks over a connection that is open, and once more over a new one if the old one turns out
    /// to be closed, or its server to be of no use.
    pub async fn ask<F>(
        &self,
        open: &mut Open,
        question: Question,
        connect: impl FnOnce() -> F,
    ) -> Result<Answer, Unanswered>
    where
        F: Future<Output = Result<Open, String>>,
    {
        let mut answer = open.ask(question.clone(), self.search_timeout).await;
        let is_over = match &answer {
            Err(Error::Closed | Error::Io(_) | Error::Disconnected(_)) => true,
            Err(error) if error.casts_doubt() => self.leaves(open).await,
            _ => false,
        };
        if is_over {
            *open = self.open(false, connect).await.map_err(Unanswered::Unreachable)?;
            answer = open.ask(question, self.search_timeout).await;
        }
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let reason = format!("{}: {error}", open.server);
        if error.is_of_the_question() {
            return Err(Unanswered::Failed(reason));
        }
        self.failed(open, reason.clone()).await;
        Err(Unanswered::Unreachable(reason))
    }
}

struct Pending {
    answer: Answer,
    /// A part of the answer is enough.
    is_sample: bool,
    bytes: usize,
    base: Arc<str>,
    reply: oneshot::Sender<Result<Answer, Error>>,
    sent: Instant,
    deadline: Instant,
}

/// The task that owns a connection.
struct Serving {
    connection: Connection,
    calls: Arc<Calls>,
    pending: HashMap<u32, Pending>,
    /// Of the answers in `pending`.
    bytes: usize,
    /// When anything came last.
    heard: Instant,
    /// When the server has to have said something.
    probe: Option<Instant>,
}

impl Serving {
    /// Serves questions until the connection fails or nobody can ask any more.
    async fn run(mut self, mut asked: mpsc::Receiver<Ask>) {
        let mut is_asked = true;
        let calls = Arc::clone(&self.calls);
        while is_asked || !self.pending.is_empty() {
            let deadlines = self.pending.values().map(|one| one.deadline);
            let deadline = deadlines.chain(self.probe).min();
            tokio::select! {
                ask = asked.recv(), if is_asked && self.pending.len() < IN_FLIGHT_MAX => match ask {
                    Some(ask) => self.send(ask),
                    None => is_asked = false,
                },
                ready = self.connection.ready() => {
                    self.heard = Instant::now();
                    self.probe = None;
                    if ready.is_err() || self.deal().is_err() {
                        // Those who wait see their channel end, and may ask again elsewhere.
                        return;
                    }
                }
                () = calls.left.notified() => self.let_go(|one| one.reply.is_closed()),
                () = calls.doubt.notified() => self.doubt(),
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    let now = Instant::now();
                    if self.probe.is_some_and(|due| due <= now) {
                        return self.fall_silent();
                    }
                    self.let_go(|one| one.deadline <= now);
                }
            }
            if self.connection.flush().await.is_err() {
                return;
            }
        }
        self.connection.close().await;
    }

    fn send(&mut self, ask: Ask) {
        let Ask { question, reply, deadline } = ask;
        if reply.is_closed() {
            return;
        }
        let attributes: Vec<&str> = question.attributes.iter().map(String::as_str).collect();
        let request = Request::Search(SearchRequest {
            base: &question.base,
            scope: question.scope,
            filter: &question.filter,
            attributes: &attributes,
            entries_max: question.entries_max,
        });
        let id = self.connection.queue(&request, &[]);
        let (answer, base, sent) = (Answer::new(), question.base, Instant::now());
        let is_sample = question.entries_max > 0;
        let pending = Pending { answer, is_sample, bytes: 0, base, reply, sent, deadline };
        self.pending.insert(id, pending);
    }

    /// Lets go of questions whose answers are of no use any more. If the server has said nothing since
    /// one of them was sent, there may be no server.
    fn let_go(&mut self, is_over: impl Fn(&Pending) -> bool) {
        let over = self.pending.iter().filter(|(_, one)| is_over(one));
        let over: Vec<(u32, Instant)> = over.map(|(&id, one)| (id, one.sent)).collect();
        for &(id, _) in &over {
            self.abandon(id);
        }
        if over.iter().any(|&(_, sent)| sent > self.heard) {
            self.doubt();
        }
    }

    fn abandon(&mut self, id: u32) -> Option<Pending> {
        let one = self.pending.remove(&id)?;
        self.bytes -= one.bytes;
        self.connection.queue(&Request::Abandon(id), &[]);
        Some(one)
    }

    /// Asks the server whether it is there.
    fn doubt(&mut self) {
        if self.probe.is_none() {
            queue_probe(&mut self.connection);
            self.probe = Some(Instant::now() + PROBE_DEADLINE);
        }
    }

    fn fall_silent(mut self) {
        let silent = || Error::Silent { what: "a probe", deadline: PROBE_DEADLINE };
        let _ = self.calls.silent.set(silent().to_string());
        for (_, one) in self.pending.drain() {
            let _ = one.reply.send(Err(silent()));
        }
    }

    fn deal(&mut self) -> Result<(), Error> {
        let message = self.connection.take_bytes()?;
        let response = Response::parse(message)?;
        match response.operation {
            Operation::Entry(_) => {
                let Some(one) = self.pending.get_mut(&response.id) else { return Ok(()) };
                one.answer.push(message.to_vec());
                one.bytes += message.len();
                self.bytes += message.len();
                if one.answer.len() > ENTRIES_MAX {
                    let id = response.id;
                    self.refuse(id, Error::TooMany(ENTRIES_MAX));
                } else if self.bytes > BYTES_MAX {
                    self.refuse_largest();
                }
            }
            Operation::SearchDone(outcome) => {
                let Some(one) = self.pending.remove(&response.id) else { return Ok(()) };
                self.bytes -= one.bytes;
                let result = match outcome.code {
                    code::SUCCESS => Ok(one.answer),
                    code::SIZE_LIMIT if one.is_sample && !one.answer.is_empty() => Ok(one.answer),
                    _ => Err(Error::Search {
                        base: one.base.to_string(),
                        outcome: outcome.to_string(),
                        code: outcome.code,
                    }),
                };
                let _ = one.reply.send(result);
            }
            Operation::Extended(outcome, _) if response.id == 0 => {
                return Err(Error::Disconnected(outcome.to_string()));
            }
            _ => {}
        }
        Ok(())
    }

    fn refuse_largest(&mut self) {
        let largest = self.pending.iter().max_by_key(|(_, one)| one.bytes).map(|(&id, _)| id);
        if let Some(id) = largest {
            self.refuse(id, Error::TooLarge(BYTES_MAX));
        }
    }

    fn refuse(&mut self, id: u32, error: Error) {
        if let Some(one) = self.abandon(id) {
            let _ = one.reply.send(Err(error));
        }
    }
}
