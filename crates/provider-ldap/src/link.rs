//! The connection of look-ups: many questions in flight at once, none waiting for the mirror.
//!
//! One task owns the connection and deals the answers out to who asked; a bounded number of
//! questions is in flight, more wait their turn. A server that closes an idle connection is nothing
//! special: the next question opens another.

use crate::connection::{Connection, Root};
use crate::error::Error;
use crate::filter::Filter;
use crate::message::{Operation, Request, Response, Scope, SearchRequest, code};
use crate::network::Network;
use crate::track::{PROBE_DEADLINE, PROBE_INTERVAL};
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Questions in flight on the connection; a server works on far fewer at once.
const IN_FLIGHT_MAX: usize = 32;
/// Questions that wait for a place.
const WAITING_MAX: usize = 256;
/// Entries that one question may bring.
const ENTRIES_MAX: usize = 10_000;

/// A question, with all that outlives who asked it.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub base: Arc<str>,
    pub scope: Scope,
    pub filter: Filter,
    pub attributes: Arc<[String]>,
}

/// The messages with the entries that answer a question.
pub(crate) type Answer = Vec<Vec<u8>>;

struct Ask {
    question: Question,
    reply: oneshot::Sender<Result<Answer, Error>>,
    within: Duration,
    deadline: Instant,
}

/// A connection that is open, or was until a moment ago.
#[derive(Clone)]
pub(crate) struct Open {
    asks: mpsc::Sender<Ask>,
    /// What its server can do.
    pub root: Root,
    /// Place of the server among the domain's.
    pub rank: usize,
    /// The server's URI.
    pub server: Arc<str>,
}

impl Open {
    /// Takes a connection over.
    pub fn over(connection: Connection, root: Root, rank: usize, server: &str) -> Self {
        let (asks, asked) = mpsc::channel(WAITING_MAX);
        tokio::spawn(serve(connection, asked));
        Self { asks, root, rank, server: server.into() }
    }

    /// Over when the connection is.
    pub async fn closed(&self) {
        self.asks.closed().await;
    }

    async fn ask(&self, question: Question, within: Duration) -> Result<Answer, Error> {
        let (reply, replied) = oneshot::channel();
        let silent = Error::Silent { what: "a look-up", deadline: within };
        let ask = Ask { question, reply, within, deadline: Instant::now() + within };
        let answer = async {
            if self.asks.send(ask).await.is_err() {
                return Err(Error::Closed);
            }
            replied.await.unwrap_or(Err(Error::Closed))
        };
        timeout(within, answer).await.unwrap_or(Err(silent))
    }
}

/// How look-ups come to a connection.
pub(crate) struct Link {
    state: Mutex<State>,
    search_timeout: Duration,
    /// Whether somebody else tries again after a failure, so that a question need not.
    is_tended: bool,
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
    pub fn new(search_timeout: Duration, is_tended: bool) -> Self {
        Self { state: Mutex::new(State::Idle), search_timeout, is_tended }
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

    async fn failed(&self, open: &Open, error: &Error) {
        let mut state = self.state.lock().await;
        if let State::Open(present) = &*state
            && present.asks.same_channel(&open.asks)
        {
            *state = State::Offline(format!("{}: {error}", open.server), Instant::now());
        }
    }

    /// Asks the server from time to time whether it is there; over with the reason when it is not.
    pub async fn probe(&self, open: &Open, network: &Network) -> String {
        loop {
            tokio::select! {
                () = sleep(PROBE_INTERVAL) => {}
                () = network.changed() => {}
            }
            let question = Question {
                base: "".into(),
                scope: Scope::Base,
                filter: Filter::present("objectClass"),
                attributes: ["1.1".to_owned()].into(),
            };
            if let Err(error) = open.ask(question, PROBE_DEADLINE).await {
                self.failed(open, &error).await;
                return format!("{}: {error}", open.server);
            }
        }
    }

    /// Asks over a connection that is open, and once more over a new one if the old one turns out
    /// to be closed. `Err` is that no server answers.
    pub async fn ask<F>(
        &self,
        open: &mut Open,
        question: Question,
        connect: impl FnOnce() -> F,
    ) -> Result<Answer, String>
    where
        F: Future<Output = Result<Open, String>>,
    {
        match open.ask(question.clone(), self.search_timeout).await {
            Err(Error::Closed | Error::Io(_) | Error::Disconnected(_)) => {
                *open = self.open(false, connect).await?;
                let answer = open.ask(question, self.search_timeout).await;
                self.judge(open, answer).await
            }
            answer => self.judge(open, answer).await,
        }
    }

    async fn judge(&self, open: &Open, answer: Result<Answer, Error>) -> Result<Answer, String> {
        if let Err(error) = &answer
            && !matches!(error, Error::Search { .. } | Error::TooMany(_))
        {
            self.failed(open, error).await;
        }
        answer.map_err(|error| format!("{}: {error}", open.server))
    }
}

struct Pending {
    answer: Answer,
    base: Arc<str>,
    reply: oneshot::Sender<Result<Answer, Error>>,
    within: Duration,
    deadline: Instant,
}

/// Serves questions until the connection fails or nobody can ask any more.
async fn serve(mut connection: Connection, mut asked: mpsc::Receiver<Ask>) {
    let mut pending: HashMap<u32, Pending> = HashMap::new();
    let mut is_asked = true;
    while is_asked || !pending.is_empty() {
        let deadline = pending.values().map(|one| one.deadline).min();
        tokio::select! {
            ask = asked.recv(), if is_asked && pending.len() < IN_FLIGHT_MAX => {
                let Some(Ask { question, reply, within, deadline }) = ask else {
                    is_asked = false;
                    continue;
                };
                if reply.is_closed() {
                    continue;
                }
                let attributes: Vec<&str> = question.attributes.iter().map(String::as_str).collect();
                let request = Request::Search(SearchRequest {
                    base: &question.base,
                    scope: question.scope,
                    filter: &question.filter,
                    attributes: &attributes,
                    entries_max: 0,
                });
                let id = connection.queue(&request, &[]);
                let base = question.base;
                pending.insert(id, Pending { answer: Vec::new(), base, reply, within, deadline });
                if connection.flush().await.is_err() {
                    return;
                }
            }
            ready = connection.ready() => {
                if ready.is_err() || deal(&mut connection, &mut pending).is_err() {
                    // Those who wait see their channel end, and may ask again elsewhere.
                    return;
                }
            }
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                // A server that does not answer one question is not worth asking others.
                for (_, one) in pending.drain() {
                    let deadline = one.within;
                    let _ = one.reply.send(Err(Error::Silent { what: "a look-up", deadline }));
                }
                return;
            }
        }
    }
    connection.close().await;
}

fn deal(connection: &mut Connection, pending: &mut HashMap<u32, Pending>) -> Result<(), Error> {
    let message = connection.take_bytes()?;
    let response = Response::parse(message)?;
    match response.operation {
        Operation::Entry(_) => {
            if let Some(one) = pending.get_mut(&response.id) {
                one.answer.push(message.to_vec());
                if one.answer.len() > ENTRIES_MAX
                    && let Some(one) = pending.remove(&response.id)
                {
                    let _ = one.reply.send(Err(Error::TooMany(ENTRIES_MAX)));
                    let abandon = Request::Abandon(response.id);
                    connection.queue(&abandon, &[]);
                }
            }
        }
        Operation::SearchDone(outcome) => {
            if let Some(one) = pending.remove(&response.id) {
                let result = match outcome.code {
                    code::SUCCESS => Ok(one.answer),
                    _ => Err(Error::Search {
                        base: one.base.to_string(),
                        outcome: outcome.to_string(),
                        code: outcome.code,
                    }),
                };
                let _ = one.reply.send(result);
            }
        }
        Operation::Extended(outcome, _) if response.id == 0 => {
            return Err(Error::Disconnected(outcome.to_string()));
        }
        _ => {}
    }
    Ok(())
}
