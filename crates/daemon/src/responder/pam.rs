//! Answers PAM modules: one request a connection, in the form of `docs/wire-format.md`. Knows neither
//! users nor passwords and talks to no directory: it asks the publisher whose user somebody is, and that
//! domain's back-end what a password is worth.
//!
//! Who asks is who the kernel says they are. Root's programs may ask for anybody, and so may those of
//! `trusted_users`; all others for themselves alone, so many times a minute. What carries a password is
//! never made one with another request, and never logged. What a user was tried for, where, and what
//! came of it is.
//!
//! Timers: none.

mod targets;
mod tries;

use super::connection::{Connection, Listener};
use super::gate::{self, Admitted, Gate, Limits};
use crate::role::{self, Context};
use anyhow::Context as _;
use roster_bus::interfaces::{
    BackendProxy, Error, FoundUser, LOG_IN_DEADLINE, LogIn, LogInAnswer, PublisherProxy,
};
use roster_bus::names::Role;
use roster_bus::secrets;
use roster_bus::zbus::proxy::CacheProperties;
use roster_secret::Secret;
use roster_wire::pam::{
    AnswerHeader, BLOB_BYTES_MAX, Kind, MESSAGES_MAX, REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES,
    Request, RequestHeader, Verdict, write_message,
};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use targets::Targets;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};
use tries::Tries;

/// Connections. All that root runs asks under one user id, and every log-in is one of root's.
const LIMITS: Limits = Limits { of_a_user: 32, of_root: 2048, of_all: 4096 };
/// How long a program may take to ask. The module asks at once.
const REQUEST_WAIT: Duration = Duration::from_secs(2);
/// How long it may take to fetch the answer.
const REPLY_WAIT: Duration = Duration::from_secs(3);
/// Questions for keys that a user other than root may put: sshd has one user put one for every connection.
const KEY_QUESTIONS_PER_MINUTE: u32 = 1200;
/// After an error of accept(2), which is most likely a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Runs until the role is to stop.
///
/// # Errors
///
/// What keeps the role from its work; the monitor starts it again.
pub async fn run(mut context: Context<role::Pam>) -> anyhow::Result<()> {
    let socket = context.listener.take().context("the monitor gave no socket to listen at")?;
    let listener = Listener::new(socket).context("cannot listen at the socket given")?;
    let responder = Arc::new(Responder::new(&context).await?);
    let gate = Gate::new(LIMITS);
    describe();
    context.ready().await?;
    loop {
        let accepted = tokio::select! {
            () = context.shutdown.wait() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        let (uid, connection) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!("cannot accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let responder = Arc::clone(&responder);
        let admitted = gate::admit(&gate, uid, |admitted| {
            tokio::spawn(async move {
                if let Err(error) = serve(uid, connection, &responder, admitted).await {
                    debug!(uid, "a connection ended early: {error}");
                }
            })
            .abort_handle()
        });
        if !admitted {
            metrics::counter!("roster_refused_connections_total").increment(1);
        }
    }
}

fn describe() {
    metrics::describe_counter!("roster_log_ins_total", "Requests of PAM, by kind and verdict");
    metrics::describe_counter!(
        "roster_refused_connections_total",
        "Connections closed at once, for their user had too many"
    );
    metrics::describe_histogram!("roster_log_in_seconds", "From a request of PAM to its answer");
}

/// One connection from its first byte to its end.
async fn serve(
    uid: u32,
    connection: Connection,
    responder: &Responder,
    mut admitted: Admitted,
) -> io::Result<()> {
    let mut room = Secret::with_room(REQUEST_BYTES_MAX).ok_or(io::ErrorKind::OutOfMemory)?;
    let question = connection.question(room.free_mut(), whole);
    let (connection, length) = timeout(REQUEST_WAIT, question).await??;
    room.advance(length);
    let request = Request::read(room.as_bytes()).map_err(io::Error::other)?;
    admitted.has_asked();
    let answer = responder.answer(uid, &request, &admitted).await;
    // The password is needed no more.
    drop(room);
    let mut told = answer.encode()?;
    let replied = timeout(REPLY_WAIT, connection.reply(told.as_bytes())).await;
    told.clear();
    replied?
}

/// How long a request is of which so much has come.
fn whole(read: &[u8]) -> io::Result<usize> {
    let Some(header) = read.first_chunk() else { return Ok(REQUEST_HEADER_BYTES) };
    let header = RequestHeader::parse(header).map_err(io::Error::other)?;
    Ok(REQUEST_HEADER_BYTES + header.bytes())
}

/// What a program is told.
struct Answer {
    verdict: Verdict,
    is_offline: bool,
    messages: Vec<(bool, String)>,
    blob: Option<Secret>,
}

impl Answer {
    fn of(verdict: Verdict) -> Self {
        Self { verdict, is_offline: false, messages: Vec::new(), blob: None }
    }

    /// A back-end's, which is believed in its verdict and not in its bytes.
    fn read(told: LogInAnswer) -> Self {
        let Some(verdict) = Verdict::from_number(told.verdict) else {
            warn!(verdict = told.verdict, "the back-end's verdict is none");
            return Self::of(Verdict::Misconfigured);
        };
        let blob = match told.blob.into_iter().next().map(|pipe| secrets::receive(&pipe)) {
            None => None,
            Some(Ok(mut blobs)) => {
                blobs.pop().filter(|blob| blob.as_bytes().len() <= BLOB_BYTES_MAX)
            }
            Some(Err(error)) => {
                warn!("what is to open the session did not come: {error}");
                None
            }
        };
        let messages = told.messages.into_iter().take(MESSAGES_MAX);
        let messages = messages.map(|(is_error, text)| (is_error, one_line(&text))).collect();
        Self { verdict, is_offline: told.is_offline, messages, blob }
    }

    fn encode(&self) -> io::Result<Secret> {
        let mut messages = Vec::new();
        for (is_error, text) in &self.messages {
            write_message(&mut messages, *is_error, text);
        }
        let blob = self.blob.as_ref().map_or(&[][..], Secret::as_bytes);
        let header = AnswerHeader {
            verdict: self.verdict,
            is_offline: self.is_offline,
            messages: self.messages.len(),
            messages_bytes: messages.len(),
            blob_bytes: blob.len(),
        };
        let header = header.encode();
        let room = header.len() + messages.len() + blob.len();
        let mut all = Secret::with_room(room).ok_or(io::ErrorKind::OutOfMemory)?;
        for piece in [&header[..], &messages, blob] {
            all.extend(piece).ok_or(io::ErrorKind::OutOfMemory)?;
        }
        Ok(all)
    }
}

/// A text for a terminal or a log: what would move the cursor or begin another line is not in it.
fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// What an application says of who logs in, for a log and for rules.
fn said(field: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(field))
}

/// Who may be asked for by somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Everybody.
    All,
    /// The user of this uid.
    Own(u32),
}

impl Reach {
    fn of(peer: u32, trusted: &[u32]) -> Self {
        if peer == 0 || trusted.contains(&peer) { Self::All } else { Self::Own(peer) }
    }

    /// Whether whoever is served under a name may be asked for. Somebody who may ask for themselves alone is
    /// not told whether others are there.
    fn has(self, found: &FoundUser) -> bool {
        match self {
            Self::All => true,
            Self::Own(uid) => !found.domain.is_empty() && found.uid == uid,
        }
    }
}

struct Responder {
    publisher: PublisherProxy<'static>,
    back_ends: HashMap<String, BackendProxy<'static>>,
    /// The first domain in which somebody knows passwords: a decoy costs there what a wrong one does.
    decoy: Option<String>,
    trusted: Vec<u32>,
    timeout: Duration,
    tries: Mutex<Tries>,
    key_questions: Mutex<Tries>,
    targets: Targets,
}

impl Responder {
    async fn new(context: &Context<role::Pam>) -> anyhow::Result<Self> {
        let publisher = PublisherProxy::builder(&context.connection)
            .cache_properties(CacheProperties::No)
            .build()
            .await?;
        let mut back_ends = HashMap::new();
        for domain in &context.config.domains {
            let role = Role::Backend(domain.name.clone());
            let proxy = BackendProxy::builder(&context.connection)
                .destination(role.bus_name())
                .path(role.path())
                .cache_properties(CacheProperties::No)
                .build()
                .await?;
            back_ends.insert(domain.name.clone(), proxy);
        }
        let decoy = context.config.domains.iter().find(|domain| domain.authenticates);
        Ok(Self {
            publisher,
            back_ends,
            decoy: decoy.map(|domain| domain.name.clone()),
            trusted: context.config.trusted.clone(),
            timeout: context.config.timeout.min(LOG_IN_DEADLINE),
            tries: Mutex::new(Tries::new(context.config.tries_per_minute)),
            key_questions: Mutex::new(Tries::new(KEY_QUESTIONS_PER_MINUTE)),
            targets: Targets::default(),
        })
    }

    /// The answer to a request, whatever happens, and a line in the log.
    async fn answer(&self, peer: u32, request: &Request<'_>, admitted: &Admitted) -> Answer {
        let start = Instant::now();
        let answer = timeout(self.timeout, self.judge(peer, request, admitted)).await;
        let answer = answer.unwrap_or_else(|_| Answer::of(Verdict::Unreachable));
        let outcome = answer.verdict.label();
        let what = label(request.kind);
        metrics::counter!("roster_log_ins_total", "kind" => what, "verdict" => outcome)
            .increment(1);
        metrics::histogram!("roster_log_in_seconds").record(start.elapsed().as_secs_f64());
        info!(
            user = %request.user.escape_ascii(),
            service = %request.service.escape_ascii(),
            rhost = %request.remote_host.escape_ascii(),
            tty = %request.terminal.escape_ascii(),
            ruser = %request.remote_user.escape_ascii(),
            peer,
            outcome,
            offline = answer.is_offline,
            "{what}",
        );
        answer
    }

    async fn judge(&self, peer: u32, request: &Request<'_>, admitted: &Admitted) -> Answer {
        let reach = Reach::of(peer, &self.trusted);
        if request.kind == Kind::SshKeys {
            return self.ssh_keys(peer, request, admitted).await;
        }
        if request.kind != Kind::Account && reach == Reach::Own(peer) && !self.may_try(peer) {
            return Answer::of(Verdict::TooManyTries);
        }
        // Who waits for a turn at a user takes none of those that others wait for.
        let _at_user = self.targets.turn(request.user).await;
        let _turn = admitted.turn().await;
        let found = match self.publisher.find_user(0, request.user).await {
            Ok(found) => found,
            Err(error) => {
                warn!(user = %request.user.escape_ascii(), "whose user it is cannot be told: {error}");
                return Answer::of(Verdict::Unreachable);
            }
        };
        if !reach.has(&found) {
            return Answer::of(Verdict::NotPermitted);
        }
        let is_decoy = found.domain.is_empty();
        let domain = if is_decoy { self.decoy.as_ref() } else { Some(&found.domain) };
        let back_end = domain.and_then(|domain| self.back_ends.get(domain));
        let answer = match back_end {
            // Nobody is asked about an account that is not there.
            Some(_) if is_decoy && request.kind == Kind::Account => return unknown(),
            Some(back_end) => {
                let user = if is_decoy { request.user.to_vec() } else { found.name };
                let who = LogIn {
                    user,
                    uid: found.uid,
                    service: said(request.service),
                    remote_host: said(request.remote_host),
                    terminal: said(request.terminal),
                    is_decoy,
                };
                ask(back_end, &who, request).await
            }
            None if is_decoy => return unknown(),
            None => return Answer::of(Verdict::Unreachable),
        };
        match answer {
            _ if is_decoy => unknown(),
            // A credential cache is the user's own, and for who opens sessions.
            Ok(answer) if peer != 0 && peer != found.uid => Answer { blob: None, ..answer },
            Ok(answer) => answer,
            Err(error) => {
                warn!(user = %request.user.escape_ascii(), "the back-end gives no answer: {error}");
                Answer::of(Verdict::Unreachable)
            }
        }
    }

    /// Keys are told to everybody: sshd(8) has somebody ask who is nobody else.
    async fn ssh_keys(&self, peer: u32, request: &Request<'_>, admitted: &Admitted) -> Answer {
        if peer != 0 && !may(&self.key_questions, peer) {
            return Answer::of(Verdict::TooManyTries);
        }
        let _turn = admitted.turn().await;
        let found = match self.publisher.find_user(0, request.user).await {
            Ok(found) if found.domain.is_empty() => return unknown(),
            Ok(found) => found,
            Err(error) => {
                warn!(user = %request.user.escape_ascii(), "whose user it is cannot be told: {error}");
                return Answer::of(Verdict::Unreachable);
            }
        };
        let Some(back_end) = self.back_ends.get(&found.domain) else {
            return Answer::of(Verdict::Unreachable);
        };
        let who = LogIn { user: found.name, uid: found.uid, ..LogIn::default() };
        match back_end.ssh_keys(&who).await {
            Ok(keys) => {
                let mut answer = Answer::of(Verdict::Success);
                let mut blob = Secret::with_room(BLOB_BYTES_MAX);
                for key in &keys {
                    let line = format!("{}\n", one_line(key));
                    // A key that there is no room for is left out whole.
                    if blob.as_mut().and_then(|blob| blob.extend(line.as_bytes())).is_none() {
                        warn!(user = %request.user.escape_ascii(), "a key is left out: there is no room for it");
                    }
                }
                answer.blob = blob;
                answer
            }
            Err(error) => {
                warn!(user = %request.user.escape_ascii(), "the back-end gives no keys: {error}");
                Answer::of(Verdict::Unreachable)
            }
        }
    }

    fn may_try(&self, uid: u32) -> bool {
        may(&self.tries, uid)
    }
}

fn may(tries: &Mutex<Tries>, uid: u32) -> bool {
    tries.lock().unwrap_or_else(PoisonError::into_inner).may_try(uid, Instant::now())
}

fn unknown() -> Answer {
    Answer::of(Verdict::UnknownUser)
}

async fn ask(
    back_end: &BackendProxy<'static>,
    who: &LogIn,
    request: &Request<'_>,
) -> Result<Answer, Error> {
    let pipe = |secrets: &[&[u8]]| {
        let pipe = secrets::send(secrets);
        pipe.map(Into::into).map_err(|error| Error::Unavailable(format!("no pipe: {error}")))
    };
    let told = match request.kind {
        Kind::Authenticate => back_end.authenticate(who, pipe(&[request.secret])?).await,
        // Keys are not asked for here.
        Kind::Account | Kind::SshKeys => back_end.account(who).await,
        Kind::PrepareChange => back_end.change_password(who, pipe(&[request.secret])?).await,
        Kind::Change => {
            back_end.change_password(who, pipe(&[request.secret, request.new_secret])?).await
        }
    };
    told.map(Answer::read)
}

fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Authenticate => "log-in",
        Kind::Account => "account",
        Kind::PrepareChange => "password change prepared",
        Kind::Change => "password change",
        Kind::SshKeys => "ssh keys",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(domain: &str, uid: u32) -> FoundUser {
        FoundUser { domain: domain.into(), name: b"alice".to_vec(), uid }
    }

    #[test]
    fn root_and_the_trusted_ask_for_everybody_and_others_for_themselves() {
        let (alice, nobody) = (found("corp", 2000), FoundUser::default());
        for peer in [0, 33] {
            assert!(Reach::of(peer, &[33]).has(&alice) && Reach::of(peer, &[33]).has(&nobody));
        }
        assert!(Reach::of(2000, &[33]).has(&alice));
        for peer in [33, 2001, u32::MAX] {
            assert!(!Reach::of(peer, &[]).has(&alice));
        }
        // The uid of a name that is not served is 0 here, and nobody's.
        assert!(!Reach::of(1, &[]).has(&nobody) && !Reach::Own(0).has(&nobody));
    }

    #[test]
    fn a_verdict_that_there_is_not_lets_nobody_in() {
        let told = |verdict| LogInAnswer {
            verdict,
            is_offline: false,
            messages: Vec::new(),
            blob: Vec::new(),
        };
        assert_eq!(Answer::read(told(0)).verdict, Verdict::Success);
        for verdict in [15, 256, u16::MAX] {
            assert_eq!(Answer::read(told(verdict)).verdict, Verdict::Misconfigured);
        }
    }

    #[test]
    fn what_is_shown_is_one_line_each_and_bounded() {
        let message = (false, "one\r\n\x1b[2Jtwo".to_owned());
        let told = LogInAnswer {
            verdict: 1,
            is_offline: false,
            messages: vec![message; 100],
            blob: Vec::new(),
        };
        let answer = Answer::read(told);
        assert_eq!(answer.messages.len(), MESSAGES_MAX);
        assert_eq!(answer.messages[0].1, "one    [2Jtwo".replace("    ", "   "));
        assert!(answer.encode().is_ok());
    }
}
