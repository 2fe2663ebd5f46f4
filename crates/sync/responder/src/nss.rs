// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves the NSS modules in programs, for domains that are not mirrored: one request a connection, in the format of
//! `docs/internals/wire-format.md`. Knows no users and talks to no directory. It queries the publisher unless a reply
//! is cached, and forwards the publisher's reply unchanged.
//!
//! All users may connect, so `connection_limits` bounds the connections of one user. A silent connection makes room for
//! a new one. `negative_cache` caches missing entries until the publisher or a backend reports that they may exist.
//! `large_reply_cache` caches large replies for a short time. Equal requests in flight share one call.
//!
//! The only timer removes large replies after 2 seconds.

mod large_reply_cache;
mod negative_cache;
mod reply_cache;

use super::accept_loop::serve_connections;
use super::client_connection::{ClientConnection, ClientListener, take_socket};
use super::connection_limits::{ConnectionLimits, ConnectionSlot};
use super::version_mismatch::VersionLog;
use futures_util::StreamExt;
use parking_lot::{Mutex, MutexGuard};
use reply_cache::{CachedReply, ReplyCache};
use roster_bus::bus_names::{BACKEND, PUBLISHER, RoleName};
use roster_bus::coalesce::{CallKey, Coalescer};
use roster_bus::interfaces::{LOOKUP_DEADLINE, PublisherProxy, lookup_number};
use roster_bus::zbus::proxy::CacheProperties;
use roster_bus::zbus::{self, MatchRule, MessageStream, message};
use roster_messages::{RequestNumber, log, table::daemon};
use roster_request::LookupKind;
use roster_role::error_code::WithCode;
use roster_role::launch::Launch;
use roster_role::sandbox::ResourceLimits;
use roster_role::usdt_probes::{self, ProbeOutcome};
use roster_role::{RoleContext, RoleProgram};
use roster_wire::{
    NssReply, NssReplyHeader, NssRequest, NssRequestHeader, REQUEST_BYTES_MAX,
    REQUEST_HEADER_BYTES, encode,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tracing::{debug, trace};

/// Connection limits. All services of root use one user id.
const LIMITS: ConnectionLimits = ConnectionLimits { per_user: 64, for_root: 512, total: 2048 };
/// Time limit of a request. The module sends it at once.
const REQUEST_WAIT: Duration = Duration::from_secs(2);
/// Time limit of the program's read of the reply. The module has given up by then.
const REPLY_WAIT: Duration = Duration::from_secs(3);
/// Different requests in flight to the publisher. `connection_limits` bounds the requests of one user.
const IN_FLIGHT_MAX: usize = 256;
/// Signals that may wait for their short processing.
const SIGNALS_MAX: NonZero<usize> = NonZero::new(256).unwrap();

/// Configuration of the NSS responder.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct NssRoleConfig {
    /// Lifetime of negative entries: the shortest of all on-demand domains.
    pub negative: Duration,
}

/// The role `responder:nss`.
pub struct NssRole;

impl RoleProgram for NssRole {
    type Config = NssRoleConfig;
    type Helper = ();

    const SERVES_PROGRAMS: bool = true;
    const LIMITS: ResourceLimits = ResourceLimits::SERVING;

    fn start_helper(_: &Launch<NssRoleConfig>) -> anyhow::Result<()> {
        Ok(())
    }

    async fn run(context: RoleContext<NssRoleConfig>, (): ()) -> anyhow::Result<()> {
        run(context).await
    }
}

async fn run(mut context: RoleContext<NssRoleConfig>) -> anyhow::Result<()> {
    let listener = take_socket(&mut context, ClientListener::new)?;
    let publisher = PublisherProxy::builder(&context.connection)
        .cache_properties(CacheProperties::No)
        .build()
        .await?;
    let responder = Arc::new(NssResponder {
        publisher,
        reply_cache: Mutex::new(ReplyCache::new(context.config.negative)),
        in_flight: Coalescer::new(IN_FLIGHT_MAX),
        version_log: VersionLog::default(),
        uid: rustix::process::geteuid().as_raw(),
    });
    follow_invalidations(&responder, &context.connection)
        .await
        .with_code(&daemon::RESPONDER_SIGNALS_MISSING, || "cannot receive signals of the bus")?;
    describe_metrics();
    context.announce_ready().await?;
    let serve = |uid, connection, slot| {
        let responder = Arc::clone(&responder);
        async move { serve(uid, connection, &responder, slot).await }
    };
    let accept = async || listener.accept().await;
    serve_connections(LIMITS, &mut context.shutdown, accept, serve).await;
    Ok(())
}

fn describe_metrics() {
    metrics::describe_counter!("roster_lookups_total", "Replies to programs, by kind and result");
    metrics::describe_counter!(
        "roster_coalesced_requests_total",
        "Requests that joined an equal request"
    );
    metrics::describe_counter!("roster_negative_hits_total", "Replies from the negative cache");
    metrics::describe_counter!(
        "roster_repeated_answers_total",
        "Replies from the cache of large replies"
    );
    metrics::describe_histogram!("roster_lookup_seconds", "Time from request to reply");
}

/// Serves one connection.
async fn serve(
    uid: u32,
    connection: ClientConnection,
    responder: &Arc<NssResponder>,
    mut admitted: ConnectionSlot,
) -> io::Result<()> {
    let mut room = [0; REQUEST_BYTES_MAX];
    let (connection, length) =
        timeout(REQUEST_WAIT, connection.read_request(&mut room, request_length)).await??;
    if let Some(version) = roster_wire::other_version(&room[..length]) {
        responder.version_log.note(version, uid);
    }
    let request = NssRequest::read(&room[..length]).map_err(io::Error::other)?;
    admitted.mark_requested();
    let hop = usdt_probes::RequestProbe::received(request.kind);
    let work = async {
        trace!(kind = label(request.kind), peer = uid, "request");
        responder.respond(&request, &hop, &admitted).await
    };
    let (outcome, answer) = RequestNumber(hop.number()).scope(work).await;
    let replied = timeout(REPLY_WAIT, connection.send_reply(&answer)).await;
    hop.answered(outcome);
    replied?
}

/// Returns the length of a request from its first bytes.
fn request_length(read: &[u8]) -> io::Result<usize> {
    if roster_wire::other_version(read).is_some() {
        return Ok(read.len());
    }
    let Some(header) = read.first_chunk() else { return Ok(REQUEST_HEADER_BYTES) };
    let header = NssRequestHeader::parse(header).map_err(io::Error::other)?;
    Ok(REQUEST_HEADER_BYTES + header.name_bytes())
}

/// Returns the result that a reply states.
fn frame_outcome(frame: &[u8]) -> ProbeOutcome {
    match NssReplyHeader::from_frame(frame).map(|header| header.reply) {
        Ok(NssReply::Absent) => ProbeOutcome::Absent,
        Ok(NssReply::Unavailable) | Err(_) => ProbeOutcome::Unavailable,
        Ok(NssReply::User { .. } | NssReply::Group { .. } | NssReply::Groups { .. }) => {
            ProbeOutcome::Found
        }
    }
}

/// A complete reply, shared by all requests that wait for it.
type ReplyFrame = Arc<[u8]>;

struct NssResponder {
    publisher: PublisherProxy<'static>,
    reply_cache: Mutex<ReplyCache>,
    in_flight: Coalescer<(u64, ReplyFrame)>,
    version_log: VersionLog,
    uid: u32,
}

impl NssResponder {
    /// Returns the reply to a request, or an error reply.
    async fn respond(
        self: &Arc<Self>,
        request: &NssRequest<'_>,
        hop: &usdt_probes::RequestProbe,
        admitted: &ConnectionSlot,
    ) -> (ProbeOutcome, ReplyFrame) {
        let start = Instant::now();
        let answer = async {
            if let Some(frame) = self.cached_reply(request) {
                trace!(kind = label(request.kind), "the reply is cached");
                return frame;
            }
            let _turn = admitted.request_slot().await;
            // Another request may have filled the cache meanwhile.
            match self.cached_reply(request) {
                Some(frame) => frame,
                None => {
                    let frame = self.query_publisher(request, hop).await;
                    let (kind, result) = (label(request.kind), frame_outcome(&frame).label());
                    // People type passwords where names belong.
                    let is_found = frame_outcome(&frame) == ProbeOutcome::Found;
                    let name = if is_found { request.name } else { &b"(unknown)"[..] };
                    let (name, ms) = (name.escape_ascii(), start.elapsed().as_millis());
                    debug!(kind, %name, id = request.id, result, ms, "lookup");
                    frame
                }
            }
        };
        let late = |_| Arc::from(encode::UNAVAILABLE);
        let frame = timeout(LOOKUP_DEADLINE, answer).await.unwrap_or_else(late);
        let outcome = frame_outcome(&frame);
        let result = outcome.label();
        let kind = label(request.kind);
        metrics::counter!("roster_lookups_total", "kind" => kind, "result" => result).increment(1);
        metrics::histogram!("roster_lookup_seconds").record(start.elapsed().as_secs_f64());
        (outcome, frame)
    }

    fn cached_reply(&self, request: &NssRequest<'_>) -> Option<ReplyFrame> {
        let memory = self.lock_reply_cache().cached_reply(request, Instant::now())?;
        Some(match memory {
            CachedReply::Absent => {
                metrics::counter!("roster_negative_hits_total").increment(1);
                Arc::from(encode::ABSENT)
            }
            CachedReply::Large(frame) => {
                metrics::counter!("roster_repeated_answers_total").increment(1);
                frame
            }
        })
    }

    /// Queries the publisher, or joins an equal call in flight.
    async fn query_publisher(
        self: &Arc<Self>,
        request: &NssRequest<'_>,
        hop: &usdt_probes::RequestProbe,
    ) -> ReplyFrame {
        let NssRequest { kind, name, id } = *request;
        let key = CallKey {
            uid: self.uid,
            message: "call",
            destination: RoleName::Publisher.bus_name(),
            member: "org.roster.Publisher1.LookUp",
            path: RoleName::Publisher.path(),
            args: [&[kind as u8][..], &id.to_le_bytes(), name].concat(),
        };
        debug_assert!(key.member.starts_with(PUBLISHER));
        let joined = |joined| {
            if joined {
                trace!("joins an equal call to the publisher");
                metrics::counter!("roster_coalesced_requests_total").increment(1);
            }
        };
        // An entry that was reported after the call began may exist, even if the reply is older.
        let news = self.lock_reply_cache().change_count();
        let (publisher, name) = (self.publisher.clone(), name.to_vec());
        let number = hop.number();
        let call = || {
            RequestNumber(number).scope(async move {
                let call = publisher.look_up(number, lookup_number(kind), &name, id);
                match timeout(LOOKUP_DEADLINE, call).await {
                    Ok(Ok(frame)) if NssReplyHeader::from_frame(&frame).is_ok() => {
                        ReplyFrame::from(frame)
                    }
                    Ok(Ok(_)) => {
                        log!(
                            WARN,
                            &daemon::PUBLISHER_REPLY_MALFORMED,
                            "malformed reply from the publisher"
                        );
                        Arc::from(encode::UNAVAILABLE)
                    }
                    Ok(Err(error)) => {
                        debug!(?kind, id, "not answered: {error}");
                        Arc::from(encode::UNAVAILABLE)
                    }
                    Err(_) => {
                        debug!(?kind, id, "not answered in time");
                        Arc::from(encode::UNAVAILABLE)
                    }
                }
            })
        };
        hop.sent();
        let answered = self.in_flight.request_or_join_with_count(news, key, joined, call).await;
        hop.returned();
        let (asked_at, frame) = answered.unwrap_or_else(|busy| {
            debug!("{busy}");
            (news, Arc::from(encode::UNAVAILABLE))
        });
        if self.lock_reply_cache().note(request, &frame, asked_at, Instant::now()) {
            let responder = Arc::clone(self);
            tokio::spawn(async move {
                sleep(large_reply_cache::LIFE).await;
                responder.lock_reply_cache().forget_old(Instant::now());
            });
        }
        frame
    }

    fn lock_reply_cache(&self) -> MutexGuard<'_, ReplyCache> {
        self.reply_cache.lock()
    }
}

/// Drops cached replies after signals. Each stream has a dedicated task, so that it never fills up and blocks the
/// connection.
async fn follow_invalidations(
    responder: &Arc<NssResponder>,
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
    // A new publisher may have missed entries that appeared before its start.
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
    responder: &Arc<NssResponder>,
    mut signals: S,
    act: impl Fn(&mut ReplyCache, S::Item) + Send + 'static,
) where
    S: StreamExt + Send + Unpin + 'static,
    S::Item: Send,
{
    let responder = Arc::clone(responder);
    tokio::spawn(async move {
        while let Some(signal) = signals.next().await {
            act(&mut responder.lock_reply_cache(), signal);
        }
    });
}

fn label(kind: LookupKind) -> &'static str {
    match kind {
        LookupKind::UserByName => "user_by_name",
        LookupKind::UserByUid => "user_by_uid",
        LookupKind::GroupByName => "group_by_name",
        LookupKind::GroupByGid => "group_by_gid",
        LookupKind::GroupsOf => "groups_of",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_messages::CodedError;
    use roster_role::Shutdown;
    use roster_role::testing::{TestBus, block_on};
    use roster_system_tests::logged_codes::with_logged_codes;
    use std::os::unix::net::UnixListener;

    #[tokio::test]
    async fn nss_without_signals_does_not_serve() {
        let folder = tempfile::tempdir().expect("a directory");
        let bus = TestBus::start(folder.path(), TestBus::NO_SIGNALS);
        let listener = UnixListener::bind(folder.path().join("nss")).expect("bind");
        let error = run(RoleContext {
            role: RoleName::Responder("nss".into()),
            config: NssRoleConfig { negative: Duration::ZERO },
            state_dir: "/".into(),
            run_dir: "/".into(),
            connection: bus.connect().await,
            listener: Some(listener.into()),
            shutdown: Shutdown::new().1,
        });
        let error = error.await.expect_err("no signals").downcast::<CodedError>().expect("a code");
        assert_eq!(error.message, &daemon::RESPONDER_SIGNALS_MISSING);
    }

    /// A publisher of another version.
    struct OtherPublisher;

    #[zbus::interface(name = "org.roster.Publisher1")]
    impl OtherPublisher {
        fn look_up(&self, _request: u64, _kind: u32, _name: Vec<u8>, _id: u32) -> Vec<u8> {
            b"another format".to_vec()
        }
    }

    #[test]
    fn nss_malformed_publisher_reply_is_logged() {
        let folder = tempfile::tempdir().expect("a directory");
        let bus = TestBus::start(folder.path(), TestBus::OPEN);
        let asked = async {
            let (connection, publisher) = (bus.connect().await, bus.connect().await);
            publisher.object_server().at(RoleName::Publisher.path(), OtherPublisher).await?;
            publisher.request_name(RoleName::Publisher.bus_name()).await?;
            let responder = Arc::new(NssResponder {
                publisher: PublisherProxy::new(&connection).await?,
                reply_cache: Mutex::new(ReplyCache::new(Duration::ZERO)),
                in_flight: Coalescer::new(IN_FLIGHT_MAX),
                version_log: VersionLog::default(),
                uid: 0,
            });
            let request = NssRequest { kind: LookupKind::UserByName, name: b"alice", id: 0 };
            let probe = usdt_probes::RequestProbe::received(request.kind);
            zbus::Result::Ok(responder.query_publisher(&request, &probe).await)
        };
        let (logged, frame) = with_logged_codes(|| block_on(asked).expect("a bus"));
        assert_eq!(logged, [&daemon::PUBLISHER_REPLY_MALFORMED]);
        assert_eq!(&*frame, encode::UNAVAILABLE);
    }
}
