//! Answers PAM modules: one request a connection, in the form of `docs/wire-format.md`. Knows neither
//! users nor passwords and talks to no directory: it asks the publisher whose user somebody is, and that
//! domain's back-end what a password is worth.
//!
//! Who asks is who the kernel says they are. Root's programs may ask for anybody, and so may those of
//! `trusted_users`; all others for themselves alone, so many times a minute. What carries a password is
//! never made one with another request, and never logged. What a user was tried for, where, and what
//! came of it is; but where from only if one of root's programs or of the trusted says so, and no name that
//! nobody has, for that may be a password.
//!
//! What is refused is refused at the same time whoever it was, see `evenness`.
//!
//! Timers: none but for that.

mod about;
mod answer;
mod evenness;
mod found;
mod served;
mod targets;
mod tries;

use super::connection::{Connection, Listener};
use super::gate::{self, Admitted, Gate, Limits};
use super::versions::Versions;
use crate::role::{self, Context};
use about::{About, label};
use answer::{Answer, one_line};
use anyhow::Context as _;
use evenness::Evenness;
use found::Found;
use futures_util::StreamExt;
use roster_bus::interfaces::{
    BackendProxy, Error, FoundUser, LOG_IN_DEADLINE, LogIn, PublisherProxy,
};
use roster_bus::names::Role;
use roster_bus::secrets;
use roster_bus::zbus;
use roster_bus::zbus::proxy::CacheProperties;
use roster_secret::Secret;
use roster_wire::pam::{
    BLOB_BYTES_MAX, Kind, REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES, Request, RequestHeader, Verdict,
};
use served::Served;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use targets::{Targets, Turn};
use tokio::time::{sleep, sleep_until, timeout};
use tracing::{debug, warn};
use tries::Tries;

/// Connections. All that root runs asks under one user id, and every log-in is one of root's.
const LIMITS: Limits = Limits { of_a_user: 32, of_root: 2048, of_all: 4096 };
/// How long a program may take to ask. The module asks at once.
const REQUEST_WAIT: Duration = Duration::from_secs(2);
/// How long it may take to fetch the answer.
const REPLY_WAIT: Duration = Duration::from_secs(3);
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
    responder.listen_for_news().await.context("cannot listen for signals")?;
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
    if let Some(version) = roster_wire::other_version(room.as_bytes()) {
        responder.versions.note(version, uid);
        // The module knows by the header that it is not understood, and says so where it is.
        let told = Answer::of(Verdict::Unreachable).encode()?;
        return timeout(REPLY_WAIT, connection.reply(told.as_bytes())).await?;
    }
    let request = Request::read(room.as_bytes()).map_err(io::Error::other)?;
    admitted.has_asked();
    let (answer, about) = responder.answer(uid, &request, &admitted).await;
    let replied = match answer.encode() {
        Ok(told) => timeout(REPLY_WAIT, connection.reply(told.as_bytes())).await,
        Err(error) => Ok(Err(error)),
    };
    // Whether or not it arrived; the program need not wait for it.
    about.log(&request, &answer);
    replied?
}

/// How long a request is of which so much has come.
fn whole(read: &[u8]) -> io::Result<usize> {
    if roster_wire::other_version(read).is_some() {
        return Ok(read.len());
    }
    let Some(header) = read.first_chunk() else { return Ok(REQUEST_HEADER_BYTES) };
    let header = RequestHeader::parse(header).map_err(io::Error::other)?;
    Ok(REQUEST_HEADER_BYTES + header.bytes())
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
    /// Of questions without a password.
    account_tries: Mutex<Tries>,
    targets: Targets,
    served: Mutex<Served>,
    found: Arc<Mutex<Found>>,
    evenness: Mutex<Evenness>,
    versions: Versions,
}

/// An answer, and until when it is kept back.
struct Judged {
    answer: Answer,
    not_before: Option<Instant>,
    /// Whoever guesses at the same user waits until it is given.
    _at_user: Option<Turn>,
}

impl From<Answer> for Judged {
    fn from(answer: Answer) -> Self {
        Self { answer, not_before: None, _at_user: None }
    }
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
        let domains = context.config.domains.iter().filter(|domain| domain.authenticates);
        let mut domains = domains.map(|domain| domain.name.clone());
        let evenness = Evenness::new(domains.clone());
        Ok(Self {
            publisher,
            back_ends,
            decoy: domains.next(),
            trusted: context.config.trusted.clone(),
            timeout: context.config.timeout.min(LOG_IN_DEADLINE),
            tries: Mutex::new(Tries::new(context.config.tries_per_minute)),
            account_tries: Mutex::new(Tries::new(context.config.tries_per_minute)),
            targets: Targets::default(),
            served: Mutex::default(),
            found: Arc::default(),
            evenness: Mutex::new(evenness),
            versions: Versions::default(),
        })
    }

    /// The answer to a request, whatever happens, and what is to be logged of it.
    async fn answer(
        &self,
        peer: u32,
        request: &Request<'_>,
        admitted: &Admitted,
    ) -> (Answer, About) {
        let start = Instant::now();
        let reach = Reach::of(peer, &self.trusted);
        let mut user = None;
        let judged = timeout(self.timeout, self.judge(reach, peer, request, admitted, &mut user));
        let judged = judged.await.unwrap_or_else(|_| Answer::of(Verdict::Unreachable).into());
        if let Some(not_before) = judged.not_before {
            sleep_until(not_before.into()).await;
        }
        let answer = judged.answer;
        let (kind, verdict) = (label(request.kind), answer.verdict.label());
        metrics::counter!("roster_log_ins_total", "kind" => kind, "verdict" => verdict)
            .increment(1);
        metrics::histogram!("roster_log_in_seconds").record(start.elapsed().as_secs_f64());
        (answer, About { peer, reach, user })
    }

    /// Whose user it is.
    async fn find(&self, name: &[u8]) -> Option<FoundUser> {
        let now = Instant::now();
        let (known, news) = {
            let found = lock(&self.found);
            (found.user(name, now), found.news())
        };
        if let Some(found) = known {
            lock(&self.served).note(name, found.uid, now);
            return Some(found);
        }
        match self.publisher.find_user(0, name).await {
            Ok(found) => {
                let now = Instant::now();
                if !found.domain.is_empty() {
                    lock(&self.served).note(name, found.uid, now);
                    lock(&self.found).note(name, &found, news, now);
                }
                Some(found)
            }
            Err(error) => {
                warn!("whose user somebody is cannot be told: {error}");
                None
            }
        }
    }

    /// What is to be said; `known` is the name if there is somebody of whom whoever asks may hear.
    async fn judge(
        &self,
        reach: Reach,
        peer: u32,
        request: &Request<'_>,
        admitted: &Admitted,
        known: &mut Option<Vec<u8>>,
    ) -> Judged {
        if request.kind == Kind::SshKeys {
            return self.ssh_keys(request, admitted, known).await.into();
        }
        if reach == Reach::Own(peer) {
            let is_account = request.kind == Kind::Account;
            let tries = if is_account { &self.account_tries } else { &self.tries };
            if !lock(tries).may_try(peer, Instant::now()) {
                return Answer::of(Verdict::TooManyTries).into();
            }
        }
        let mut turn = admitted.turn().await;
        let begun = Instant::now();
        let found = self.find(request.user).await;
        let finding = begun.elapsed();
        let is_told = found.is_some();
        // Somebody of whom it cannot be told whose user he is takes as long as others.
        let found = found.unwrap_or_default();
        if !is_told && (!has_password(request.kind) || reach != Reach::All) {
            return Answer::of(Verdict::Unreachable).into();
        }
        // Of nobody's account whoever asks as that one is told what root's programs are: it is not ours.
        let is_own_elsewhere = found.domain.is_empty()
            && request.kind == Kind::Account
            && request.uid.is_some_and(|uid| reach == Reach::Own(uid));
        if is_own_elsewhere {
            return self.asked(peer, request, found).await.into();
        }
        if !reach.has(&found) {
            return Answer::of(Verdict::NotPermitted).into();
        }
        if !found.domain.is_empty() {
            *known = Some(request.user.to_vec());
        }
        if is_somebody_else(request.uid, &found) {
            warn!(
                user = %request.user.escape_ascii(),
                uid = found.uid,
                "the user has another uid in the program that asks: something else serves the name, too",
            );
            return Answer::of(Verdict::Denied).into();
        }
        if !has_password(request.kind) {
            return self.asked(peer, request, found).await.into();
        }
        // Who waits for a turn at a user takes none of those that others wait for.
        drop(turn);
        let target = if found.domain.is_empty() { request.user } else { &found.name };
        let at_user = self.targets.turn(target).await;
        turn = admitted.turn().await;
        // Waiting for turns is not in it.
        let begun = Instant::now().checked_sub(finding).unwrap_or_else(Instant::now);
        let (domain, uid) = (found.domain.clone(), found.uid);
        let answer = match self.asked(peer, request, found).await {
            answer if is_told => answer,
            _ => Answer::of(Verdict::Unreachable),
        };
        drop(turn);
        let mut evenness = lock(&self.evenness);
        let is_yes = matches!(answer.verdict, Verdict::Success | Verdict::MustChange);
        let not_before = (!is_yes).then(|| begun + evenness.least());
        // Nobody has put an empty one to a server.
        let was_put = !request.secret.is_empty() && !answer.is_offline;
        if answer.verdict == Verdict::WrongPassword && was_put {
            evenness.note(&domain, uid, begun.elapsed());
        }
        drop(evenness);
        Judged { answer, not_before, _at_user: Some(at_user) }
    }

    /// Forgets whose user somebody was when that may be otherwise. Each stream has a task that does nothing
    /// else, so that none ever fills up and holds the connection back.
    async fn listen_for_news(&self) -> zbus::Result<()> {
        let publisher = &self.publisher;
        let users = publisher.receive_invalidate_user().await?;
        self.follow(users, |found, signal| match signal.args() {
            Ok(args) => found.forget(args.name()),
            Err(_) => found.forget_all(),
        });
        let all = publisher.receive_invalidate_all().await?;
        self.follow(all, |found, _| found.forget_all());
        let published = publisher.receive_snapshot_published().await?;
        self.follow(published, |found, _| found.forget_all());
        let owners = publisher.inner().receive_owner_changed().await?;
        self.follow(owners, |found, _| found.forget_all());
        Ok(())
    }

    fn follow<S>(&self, mut signals: S, act: impl Fn(&mut Found, S::Item) + Send + 'static)
    where
        S: StreamExt + Send + Unpin + 'static,
        S::Item: Send,
    {
        let found = Arc::clone(&self.found);
        tokio::spawn(async move {
            while let Some(signal) = signals.next().await {
                act(&mut lock(&found), signal);
            }
        });
    }

    async fn asked(&self, peer: u32, request: &Request<'_>, found: FoundUser) -> Answer {
        let is_decoy = found.domain.is_empty();
        let domain = if is_decoy { self.decoy.as_ref() } else { Some(&found.domain) };
        let back_end = domain.and_then(|domain| self.back_ends.get(domain));
        let answer = match back_end {
            // Nobody is asked about an account that is not there.
            _ if is_decoy && request.kind == Kind::Account => {
                let was = lock(&self.served).was(request.user, request.uid, Instant::now());
                return Answer::of(of_a_decoy(was));
            }
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
            Ok(answer) => {
                let blob = answer.blob.filter(|_| peer == 0 || peer == found.uid);
                let verdict = of_somebody(request.kind, answer.verdict);
                Answer { verdict, blob, ..answer }
            }
            Err(error) => {
                warn!(user = %request.user.escape_ascii(), "the back-end gives no answer: {error}");
                Answer::of(Verdict::Unreachable)
            }
        }
    }

    /// Keys are told to everybody: sshd(8) has somebody ask who is nobody else, for every connection from
    /// anywhere. So there are no tries to use up, which strangers could do; the gate bounds it.
    async fn ssh_keys(
        &self,
        request: &Request<'_>,
        admitted: &Admitted,
        known: &mut Option<Vec<u8>>,
    ) -> Answer {
        let _turn = admitted.turn().await;
        let found = match self.find(request.user).await {
            None => return Answer::of(Verdict::Unreachable),
            Some(found) if found.domain.is_empty() => return unknown(),
            Some(found) => found,
        };
        *known = Some(request.user.to_vec());
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
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_password(kind: Kind) -> bool {
    match kind {
        Kind::Authenticate | Kind::PrepareChange | Kind::Change => true,
        Kind::Account | Kind::SshKeys => false,
    }
}

/// Whether the program would let in another than who is judged here.
fn is_somebody_else(uid: Option<u32>, found: &FoundUser) -> bool {
    !found.domain.is_empty() && uid.is_some_and(|uid| uid != found.uid)
}

/// Of an account that is not served. Stacks leave who is unknown to others, and nobody else knows somebody
/// who was served lately.
fn of_a_decoy(was_served: bool) -> Verdict {
    if was_served { Verdict::Denied } else { Verdict::UnknownUser }
}

/// What a back-end's verdict is for somebody who is served: nobody else decides about them, not even when
/// the directory has just lost them.
fn of_somebody(kind: Kind, verdict: Verdict) -> Verdict {
    match (kind, verdict) {
        (Kind::Account, Verdict::UnknownUser) => Verdict::Denied,
        (_, verdict) => verdict,
    }
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
    fn who_is_judged_is_who_is_let_in() {
        let alice = found("corp", 2000);
        assert!(!is_somebody_else(Some(2000), &alice));
        assert!(is_somebody_else(Some(1000), &alice) && is_somebody_else(Some(0), &alice));
        assert!(!is_somebody_else(None, &alice), "the program knows no uid");
        assert!(!is_somebody_else(Some(1000), &FoundUser::default()), "others serve the name");
    }

    #[test]
    fn an_account_that_the_directory_has_lost_is_left_to_nobody_else() {
        assert_eq!(of_somebody(Kind::Account, Verdict::UnknownUser), Verdict::Denied);
        assert_eq!(of_somebody(Kind::Account, Verdict::NotOurs), Verdict::NotOurs);
        assert_eq!(of_somebody(Kind::Authenticate, Verdict::UnknownUser), Verdict::UnknownUser);
        assert_eq!(of_a_decoy(true), Verdict::Denied);
        assert_eq!(of_a_decoy(false), Verdict::UnknownUser);
    }
}
