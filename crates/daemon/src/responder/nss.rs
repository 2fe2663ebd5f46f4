//! Answers what the NSS modules in programs ask about domains that are not mirrored: one question a
//! connection, in the form of `docs/wire-format.md`. Knows no users and talks to no directory: what
//! it does not remember as absent it asks the publisher, whose reply is sent on as it is.
//!
//! Everybody may connect, so `gate` bounds what one user can hold, and who connects and says
//! nothing makes room for who does. `absent` remembers for a while what does not exist, until the
//! publisher or a back-end says that it may, and `large` for a moment what took long to put together.
//! Equal questions in flight are one.
//!
//! Timers: none but for large answers, which are forgotten after two seconds.

mod absent;
mod large;
mod remembered;

use super::connection::{Connection, Listener};
use super::gate::{self, Admitted, Gate, Limits};
use super::versions::Versions;
use crate::hops::{self, Outcome};
use crate::role::{self, Context};
use anyhow::Context as _;
use futures_util::StreamExt;
use remembered::{Memory, Remembered};
use roster_bus::coalesce::{Coalescer, Key};
use roster_bus::interfaces::{Kind, LOOK_UP_DEADLINE, PublisherProxy};
use roster_bus::names::{BACKEND, PUBLISHER, Role};
use roster_bus::zbus::proxy::CacheProperties;
use roster_bus::zbus::{self, MatchRule, MessageStream, message};
use roster_wire::{
    REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES, Reply, ReplyHeader, Request, RequestHeader, encode,
};
use std::io;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

/// Connections. All that root runs asks under one user id.
const LIMITS: Limits = Limits { of_a_user: 64, of_root: 512, of_all: 2048 };
/// How long a program may take to ask. The module asks at once.
const REQUEST_WAIT: Duration = Duration::from_secs(2);
/// How long it may take to fetch the answer; by then the module has given up.
const REPLY_WAIT: Duration = Duration::from_secs(3);
/// Different questions to the publisher at once; `gate` bounds those of one user.
const IN_FLIGHT_MAX: usize = 256;
/// After an error of accept(2), which is most likely a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Signals that may wait until they are looked at, which takes a moment.
const SIGNALS_MAX: NonZero<usize> = NonZero::new(256).unwrap();

/// Runs until the role is to stop.
///
/// # Errors
///
/// What keeps the role from its work; the monitor starts it again.
pub async fn run(mut context: Context<role::Nss>) -> anyhow::Result<()> {
    let socket = context.listener.take().context("the monitor gave no socket to listen at")?;
    let listener = Listener::new(socket).context("cannot listen at the socket given")?;
    let publisher = PublisherProxy::builder(&context.connection)
        .cache_properties(CacheProperties::No)
        .build()
        .await?;
    let responder = Arc::new(Responder {
        publisher,
        remembered: Mutex::new(Remembered::new(context.config.negative)),
        in_flight: Coalescer::new(IN_FLIGHT_MAX),
        versions: Versions::default(),
        uid: rustix::process::geteuid().as_raw(),
    });
    listen_for_news(&responder, &context.connection).await.context("cannot listen for signals")?;
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
    metrics::describe_counter!("roster_lookups_total", "Questions answered, by kind and result");
    metrics::describe_counter!(
        "roster_coalesced_requests_total",
        "Questions that waited for the answer to an equal one"
    );
    metrics::describe_counter!(
        "roster_negative_hits_total",
        "Questions about what was known not to exist"
    );
    metrics::describe_counter!(
        "roster_repeated_answers_total",
        "Questions answered with a large answer that was made a moment ago"
    );
    metrics::describe_counter!(
        "roster_refused_connections_total",
        "Connections closed at once, for their user had too many"
    );
    metrics::describe_histogram!("roster_lookup_seconds", "From a question to its answer");
}

/// One connection from its first byte to its end.
async fn serve(
    uid: u32,
    connection: Connection,
    responder: &Arc<Responder>,
    mut admitted: Admitted,
) -> io::Result<()> {
    let mut room = [0; REQUEST_BYTES_MAX];
    let (connection, length) =
        timeout(REQUEST_WAIT, connection.question(&mut room, whole)).await??;
    if let Some(version) = roster_wire::other_version(&room[..length]) {
        responder.versions.note(version, uid);
    }
    let request = Request::read(&room[..length]).map_err(io::Error::other)?;
    admitted.has_asked();
    let hop = hops::Request::received(bus_kind(request.kind));
    let (outcome, answer) = responder.answer(&request, &hop, &admitted).await;
    let replied = timeout(REPLY_WAIT, connection.reply(&answer)).await;
    hop.answered(outcome);
    replied?
}

/// How long a request is of which so much has come.
fn whole(read: &[u8]) -> io::Result<usize> {
    if roster_wire::other_version(read).is_some() {
        return Ok(read.len());
    }
    let Some(header) = read.first_chunk() else { return Ok(REQUEST_HEADER_BYTES) };
    let header = RequestHeader::parse(header).map_err(io::Error::other)?;
    Ok(REQUEST_HEADER_BYTES + header.name_bytes())
}

/// A whole reply, shared by all who wait for it.
type Frame = Arc<[u8]>;

struct Responder {
    publisher: PublisherProxy<'static>,
    remembered: Mutex<Remembered>,
    in_flight: Coalescer<(u64, Frame)>,
    versions: Versions,
    uid: u32,
}

impl Responder {
    /// The reply to a question, whatever happens.
    async fn answer(
        self: &Arc<Self>,
        request: &Request<'_>,
        hop: &hops::Request,
        admitted: &Admitted,
    ) -> (Outcome, Frame) {
        let start = Instant::now();
        let answer = async {
            if let Some(frame) = self.recall(request) {
                return frame;
            }
            let _turn = admitted.turn().await;
            // It may have been found out meanwhile.
            match self.recall(request) {
                Some(frame) => frame,
                None => self.ask(request, hop).await,
            }
        };
        let late = |_| Arc::from(encode::UNAVAILABLE);
        let frame = timeout(LOOK_UP_DEADLINE, answer).await.unwrap_or_else(late);
        let outcome = match ReplyHeader::of_frame(&frame).map(|header| header.reply) {
            Ok(Reply::Absent) => Outcome::Absent,
            Ok(Reply::Unavailable) | Err(_) => Outcome::Unavailable,
            Ok(Reply::User { .. } | Reply::Group { .. } | Reply::Groups { .. }) => Outcome::Found,
        };
        let result = outcome.label();
        let kind = label(request.kind);
        metrics::counter!("roster_lookups_total", "kind" => kind, "result" => result).increment(1);
        metrics::histogram!("roster_lookup_seconds").record(start.elapsed().as_secs_f64());
        (outcome, frame)
    }

    fn recall(&self, request: &Request<'_>) -> Option<Frame> {
        let memory = self.remembered().answer(request, Instant::now())?;
        Some(match memory {
            Memory::Absent => {
                metrics::counter!("roster_negative_hits_total").increment(1);
                Arc::from(encode::ABSENT)
            }
            Memory::Large(frame) => {
                metrics::counter!("roster_repeated_answers_total").increment(1);
                frame
            }
        })
    }

    /// Asks the publisher, or waits with those who did.
    async fn ask(self: &Arc<Self>, request: &Request<'_>, hop: &hops::Request) -> Frame {
        let Request { kind, name, id } = *request;
        let key = Key {
            uid: self.uid,
            message: "call",
            destination: Role::Publisher.bus_name(),
            member: "org.roster.Publisher1.LookUp",
            path: Role::Publisher.path(),
            args: [&[kind as u8][..], &id.to_le_bytes(), name].concat(),
        };
        debug_assert!(key.member.starts_with(PUBLISHER));
        let joined = |joined| {
            if joined {
                metrics::counter!("roster_coalesced_requests_total").increment(1);
            }
        };
        // What was said to exist since the publisher was asked does, even if its answer is older.
        let news = self.remembered().news();
        let (publisher, name) = (self.publisher.clone(), name.to_vec());
        let number = hop.number();
        let call = || async move {
            let call = publisher.look_up(number, bus_kind(kind), &name, id);
            match timeout(LOOK_UP_DEADLINE, call).await {
                Ok(Ok(frame)) if ReplyHeader::of_frame(&frame).is_ok() => Frame::from(frame),
                Ok(Ok(_)) => {
                    warn!("the publisher's answer is no reply; both are of one version, or should");
                    Arc::from(encode::UNAVAILABLE)
                }
                Ok(Err(error)) => {
                    debug!(?kind, name = %name.escape_ascii(), id, "not answered: {error}");
                    Arc::from(encode::UNAVAILABLE)
                }
                Err(_) => {
                    debug!(?kind, name = %name.escape_ascii(), id, "not answered in time");
                    Arc::from(encode::UNAVAILABLE)
                }
            }
        };
        hop.sent();
        let answered = self.in_flight.ask_after(news, key, joined, call).await;
        hop.returned();
        let (asked_at, frame) = answered.unwrap_or_else(|busy| {
            debug!("{busy}");
            (news, Arc::from(encode::UNAVAILABLE))
        });
        if self.remembered().note(request, &frame, asked_at, Instant::now()) {
            let responder = Arc::clone(self);
            tokio::spawn(async move {
                sleep(large::LIFE).await;
                responder.remembered().forget_old(Instant::now());
            });
        }
        frame
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets what others say may exist. Each stream has a task that does nothing else, so that none
/// ever fills up and holds the connection back.
async fn listen_for_news(
    responder: &Arc<Responder>,
    connection: &zbus::Connection,
) -> zbus::Result<()> {
    let publisher = &responder.publisher;
    let users = publisher.receive_invalidate_user().await?;
    follow(responder, users, |known, signal| match signal.args() {
        Ok(args) => known.forget_user(args.name()),
        Err(_) => known.forget_all(),
    });
    let groups = publisher.receive_invalidate_group().await?;
    follow(responder, groups, |known, signal| match signal.args() {
        Ok(args) => known.forget_group(args.name()),
        Err(_) => known.forget_all(),
    });
    let all = publisher.receive_invalidate_all().await?;
    follow(responder, all, |known, _| known.forget_all());
    // Another publisher may have missed what came to exist between its predecessor and itself.
    let owners = publisher.inner().receive_owner_changed().await?;
    follow(responder, owners, |known, _| known.forget_all());
    let online = MatchRule::builder()
        .msg_type(message::Type::Signal)
        .interface(BACKEND)
        .member("DomainOnline")
        .build()?;
    let online = MessageStream::for_match_rule(online, connection, Some(SIGNALS_MAX)).await?;
    follow(responder, online, |known, _| known.forget_all());
    Ok(())
}

fn follow<S>(
    responder: &Arc<Responder>,
    mut signals: S,
    act: impl Fn(&mut Remembered, S::Item) + Send + 'static,
) where
    S: StreamExt + Send + Unpin + 'static,
    S::Item: Send,
{
    let responder = Arc::clone(responder);
    tokio::spawn(async move {
        while let Some(signal) = signals.next().await {
            act(&mut responder.remembered(), signal);
        }
    });
}

fn bus_kind(kind: roster_wire::Kind) -> Kind {
    match kind {
        roster_wire::Kind::UserByName => Kind::UserByName,
        roster_wire::Kind::UserByUid => Kind::UserByUid,
        roster_wire::Kind::GroupByName => Kind::GroupByName,
        roster_wire::Kind::GroupByGid => Kind::GroupByGid,
        roster_wire::Kind::GroupsOf => Kind::GroupsOf,
    }
}

fn label(kind: roster_wire::Kind) -> &'static str {
    match kind {
        roster_wire::Kind::UserByName => "user_by_name",
        roster_wire::Kind::UserByUid => "user_by_uid",
        roster_wire::Kind::GroupByName => "group_by_name",
        roster_wire::Kind::GroupByGid => "group_by_gid",
        roster_wire::Kind::GroupsOf => "groups_of",
    }
}
