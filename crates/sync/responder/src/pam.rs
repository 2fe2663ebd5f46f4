// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves PAM modules: one request a connection, in the format of `docs/internals/wire-format.md`. Knows neither users
//! nor passwords and talks to no directory. It asks the publisher for the user's domain, and that domain's backend for
//! the result.
//!
//! The kernel reports the uid of the client. Programs of root and of `trusted_users` may send requests about any user.
//! All other users may do so only about themselves, with a limit per minute. A request with a password is never joined
//! with another one, and never logged.
//!
//! The log has the service, the origin and the result of each request. The origin is logged only if a program of root
//! or of a trusted user sends it. Unknown names are not logged, because they may be passwords.
//!
//! All refusals take the same time, see `refusal_delay`. There are no other timers.

mod audit_log;
mod per_user_queue;
mod rate_limit;
mod recent_users;
mod refusal_delay;
mod reply;
mod user_cache;

use super::accept_loop::serve_connections;
use super::client_connection::{ClientConnection, ClientListener, take_socket};
use super::connection_limits::{ConnectionLimits, ConnectionSlot};
use super::version_mismatch::VersionLog;
use audit_log::{AuditRecord, request_label};
use futures_util::StreamExt;
use parking_lot::Mutex;
use per_user_queue::{QueueSlot, UserQueues};
use rate_limit::RateLimit;
use recent_users::RecentUsers;
use refusal_delay::RefusalDelay;
use reply::{PamReply, one_line};
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{
    BackendProxy, BusError, LOGIN_DEADLINE, LoginRequest, PublisherProxy, ServedUser,
};
use roster_bus::secret_pipe;
use roster_bus::zbus;
use roster_bus::zbus::proxy::CacheProperties;
use roster_messages::table::{daemon, login};
use roster_messages::{RequestNumber, log};
use roster_request::{AuthRequestKind, AuthResult, auth::BLOB_BYTES_MAX};
use roster_role::error_code::WithCode;
use roster_role::launch::Launch;
use roster_role::requests;
use roster_role::sandbox::ResourceLimits;
use roster_role::{RoleContext, RoleProgram};
use roster_secret::Secret;
use roster_wire::pam::{AuthRequest, AuthRequestHeader, REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, timeout};
use tracing::trace;
use user_cache::UserCache;

/// Connection limits. All services of root use one user id, and root's services make every login.
const LIMITS: ConnectionLimits = ConnectionLimits { per_user: 32, for_root: 2048, total: 4096 };
/// Time limit of a request. The module sends it at once.
const REQUEST_WAIT: Duration = Duration::from_secs(2);
/// Time limit of the program's read of the reply.
const REPLY_WAIT: Duration = Duration::from_secs(3);

/// Configuration of the PAM responder.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct PamRoleConfig {
    /// The domains in order of precedence.
    pub domains: Vec<LoginDomain>,
    /// Host users with permission to send requests about any user.
    pub trusted: Vec<u32>,
    /// Timeout of a program.
    pub timeout: Duration,
    /// Password attempts of an ordinary user in a minute.
    pub tries_per_minute: u32,
}

/// Login configuration of a domain.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct LoginDomain {
    /// The domain's name.
    pub name: String,
    /// Whether the domain authenticates its users.
    pub authenticates: bool,
}

/// The role `responder:pam`.
pub struct PamRole;

impl RoleProgram for PamRole {
    type Config = PamRoleConfig;
    type Helper = ();

    const CALL_DEADLINE: Duration = LOGIN_DEADLINE;
    const SERVES_PROGRAMS: bool = true;
    const LIMITS: ResourceLimits = ResourceLimits::SERVING;

    fn start_helper(_: &Launch<PamRoleConfig>) -> anyhow::Result<()> {
        Ok(())
    }

    async fn run(context: RoleContext<PamRoleConfig>, (): ()) -> anyhow::Result<()> {
        run(context).await
    }
}

async fn run(mut context: RoleContext<PamRoleConfig>) -> anyhow::Result<()> {
    let listener = take_socket(&mut context, ClientListener::new)?;
    let responder = Arc::new(PamResponder::new(&context).await?);
    let followed = responder.follow_invalidations().await;
    followed
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
    metrics::describe_counter!("roster_log_ins_total", "PAM requests, by kind and verdict");
    metrics::describe_histogram!("roster_log_in_seconds", "Time from a PAM request to its reply");
}

/// Serves one connection.
async fn serve(
    uid: u32,
    connection: ClientConnection,
    responder: &PamResponder,
    mut admitted: ConnectionSlot,
) -> io::Result<()> {
    let mut room = Secret::with_capacity(REQUEST_BYTES_MAX).ok_or(io::ErrorKind::OutOfMemory)?;
    let question = connection.read_request(room.spare_mut(), request_length);
    let (connection, length) = timeout(REQUEST_WAIT, question).await??;
    room.advance(length);
    if let Some(version) = roster_wire::other_version(room.as_bytes()) {
        responder.version_log.note(version, uid);
        // The module detects the other version by the header, and reports it.
        let told = PamReply::from_result(AuthResult::Unreachable).encode()?;
        return timeout(REPLY_WAIT, connection.send_reply(told.as_bytes())).await?;
    }
    let request = AuthRequest::read(room.as_bytes()).map_err(io::Error::other)?;
    admitted.mark_requested();
    let work = async {
        trace!(kind = request_label(request.kind), peer = uid, "request");
        let (answer, about) = responder.respond(uid, &request, &admitted).await;
        let replied = match answer.encode() {
            Ok(told) => timeout(REPLY_WAIT, connection.send_reply(told.as_bytes())).await,
            Err(error) => Ok(Err(error)),
        };
        // Logged whether or not it arrived; the program need not wait for it.
        about.log(&request, &answer);
        replied?
    };
    requests::next_number().scope(work).await
}

/// Returns the length of a request from its first bytes.
fn request_length(read: &[u8]) -> io::Result<usize> {
    if roster_wire::other_version(read).is_some() {
        return Ok(read.len());
    }
    let Some(header) = read.first_chunk() else { return Ok(REQUEST_HEADER_BYTES) };
    let header = AuthRequestHeader::parse(header).map_err(io::Error::other)?;
    Ok(REQUEST_HEADER_BYTES + header.bytes())
}

/// Makes a field of an application printable, for a log and for rules.
fn printable_field(field: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(field))
}

/// The users that a client may send requests about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestScope {
    /// All users.
    All,
    /// The user of this uid.
    Own(u32),
}

impl RequestScope {
    fn from_peer(peer: u32, trusted: &[u32]) -> Self {
        if peer == 0 || trusted.contains(&peer) { Self::All } else { Self::Own(peer) }
    }

    /// Whether the client may send requests about the user that is served under a name. A client with access only to
    /// itself does not learn whether other users exist.
    fn covers(self, found: &ServedUser) -> bool {
        match self {
            Self::All => true,
            Self::Own(uid) => !found.domain.is_empty() && found.uid == uid,
        }
    }
}

struct PamResponder {
    publisher: PublisherProxy<'static>,
    backends: HashMap<String, BackendProxy<'static>>,
    /// The names of all domains.
    domains: Vec<String>,
    /// The first domain with authentication. A decoy has the cost of a wrong password there.
    decoy: Option<String>,
    trusted: Vec<u32>,
    timeout: Duration,
    password_limit: Mutex<RateLimit>,
    /// Limit of requests without a password.
    account_limit: Mutex<RateLimit>,
    user_queues: UserQueues,
    recent_users: Mutex<RecentUsers>,
    user_cache: Arc<Mutex<UserCache>>,
    refusal_delay: Mutex<RefusalDelay>,
    version_log: VersionLog,
}

/// A reply, and the earliest time to send it.
struct DelayedReply {
    reply: PamReply,
    not_before: Option<Instant>,
    /// Other guesses at the same user wait until the reply is sent.
    _at_user: Option<QueueSlot>,
}

impl From<PamReply> for DelayedReply {
    fn from(answer: PamReply) -> Self {
        Self { reply: answer, not_before: None, _at_user: None }
    }
}

impl PamResponder {
    async fn new(context: &RoleContext<PamRoleConfig>) -> anyhow::Result<Self> {
        let publisher = PublisherProxy::builder(&context.connection)
            .cache_properties(CacheProperties::No)
            .build()
            .await?;
        let mut back_ends = HashMap::new();
        for domain in &context.config.domains {
            let role = RoleName::Backend(domain.name.clone());
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
        let evenness = RefusalDelay::new(domains.clone());
        Ok(Self {
            publisher,
            domains: context.config.domains.iter().map(|domain| domain.name.clone()).collect(),
            backends: back_ends,
            decoy: domains.next(),
            trusted: context.config.trusted.clone(),
            timeout: context.config.timeout.min(LOGIN_DEADLINE),
            password_limit: Mutex::new(RateLimit::new(context.config.tries_per_minute)),
            account_limit: Mutex::new(RateLimit::new(context.config.tries_per_minute)),
            user_queues: UserQueues::default(),
            recent_users: Mutex::default(),
            user_cache: Arc::default(),
            refusal_delay: Mutex::new(evenness),
            version_log: VersionLog::default(),
        })
    }

    /// Returns the reply to a request, and its log record.
    async fn respond(
        &self,
        peer: u32,
        request: &AuthRequest<'_>,
        admitted: &ConnectionSlot,
    ) -> (PamReply, AuditRecord) {
        let start = Instant::now();
        let reach = RequestScope::from_peer(peer, &self.trusted);
        let mut user = None;
        let judged =
            timeout(self.timeout, self.evaluate(reach, peer, request, admitted, &mut user));
        let judged =
            judged.await.unwrap_or_else(|_| PamReply::from_result(AuthResult::Unreachable).into());
        if let Some(not_before) = judged.not_before {
            sleep_until(not_before.into()).await;
        }
        let answer = judged.reply;
        let (kind, verdict) = (request_label(request.kind), answer.result.label());
        metrics::counter!("roster_log_ins_total", "kind" => kind, "verdict" => verdict)
            .increment(1);
        metrics::histogram!("roster_log_in_seconds").record(start.elapsed().as_secs_f64());
        (answer, AuditRecord { peer, scope: reach, user })
    }

    /// Returns the domain and the uid of a user. `None` if the publisher does not reply.
    async fn find_user(&self, name: &[u8]) -> Option<ServedUser> {
        let now = Instant::now();
        let (known, news) = {
            let found = self.user_cache.lock();
            (found.user(name, now), found.change_count())
        };
        if let Some(found) = known {
            trace!(domain = found.domain, uid = found.uid, "the user's domain is cached");
            self.recent_users.lock().note(name, found.uid, now);
            return Some(found);
        }
        match self.publisher.find_user(RequestNumber::current().0, name).await {
            Ok(found) => {
                let now = Instant::now();
                trace!(
                    domain = found.domain,
                    uid = found.uid,
                    "the publisher named the user's domain"
                );
                if !found.domain.is_empty() {
                    self.recent_users.lock().note(name, found.uid, now);
                    self.user_cache.lock().note(name, &found, news, now);
                }
                Some(found)
            }
            Err(error) => {
                let text = "cannot determine which domain serves the user";
                log!(WARN, &login::USER_DOMAIN_UNKNOWN, "{text}: {error}");
                None
            }
        }
    }

    /// Evaluates a request. Sets `known` to the name if the user is served and the client may know that.
    async fn evaluate(
        &self,
        reach: RequestScope,
        peer: u32,
        request: &AuthRequest<'_>,
        admitted: &ConnectionSlot,
        known: &mut Option<Vec<u8>>,
    ) -> DelayedReply {
        if request.kind == AuthRequestKind::SshKeys {
            return self.ssh_keys(request, admitted, known).await.into();
        }
        if reach == RequestScope::Own(peer) {
            let is_account = request.kind == AuthRequestKind::Account;
            let tries = if is_account { &self.account_limit } else { &self.password_limit };
            if !tries.lock().may_try(peer, Instant::now()) {
                return PamReply::from_result(AuthResult::TooManyAttempts).into();
            }
        }
        let mut turn = admitted.request_slot().await;
        let begun = Instant::now();
        let found = self.find_user(request.user).await;
        let finding = begun.elapsed();
        let is_told = found.is_some();
        // If the domain is unknown, the request takes as long as others.
        let found = found.unwrap_or_default();
        if !is_told && (!has_password(request.kind) || reach != RequestScope::All) {
            return PamReply::from_result(AuthResult::Unreachable).into();
        }
        // An ordinary user without a Roster account gets the same reply about itself as root's programs do: Roster does
        // not handle it.
        let is_own_elsewhere = found.domain.is_empty()
            && request.kind == AuthRequestKind::Account
            && request.uid.is_some_and(|uid| reach == RequestScope::Own(uid));
        if is_own_elsewhere {
            return self.query_backend(peer, request, found).await.into();
        }
        if !reach.covers(&found) {
            return PamReply::from_result(AuthResult::NotPermitted).into();
        }
        let found = match self.accept_user(request, found, known) {
            Ok(found) => found,
            Err(refusal) => return refusal.into(),
        };
        if !has_password(request.kind) {
            return self.query_backend(peer, request, found).await.into();
        }
        // A request that waits for its user's queue must not occupy a slot.
        drop(turn);
        let target = if found.domain.is_empty() { request.user } else { &found.name };
        let at_user = self.user_queues.wait_for_slot(target).await;
        turn = admitted.request_slot().await;
        // The time in queues does not count.
        let begun = Instant::now().checked_sub(finding).unwrap_or_else(Instant::now);
        let (domain, uid) = (found.domain.clone(), found.uid);
        let answer = match self.query_backend(peer, request, found).await {
            answer if is_told => answer,
            _ => PamReply::from_result(AuthResult::Unreachable),
        };
        drop(turn);
        let mut evenness = self.refusal_delay.lock();
        let is_yes = matches!(answer.result, AuthResult::Success | AuthResult::MustChange);
        let not_before = (!is_yes).then(|| begun + evenness.minimum());
        // No server has received an empty password.
        let was_put = !request.secret.is_empty() && !answer.is_offline;
        if answer.result == AuthResult::WrongPassword && was_put {
            evenness.note(&domain, uid, begun.elapsed());
        }
        drop(evenness);
        DelayedReply { reply: answer, not_before, _at_user: Some(at_user) }
    }

    /// Returns the user of a request, or an unknown user in place of one of a domain that the request excludes. Sets
    /// `known` to the name if the user is served.
    fn accept_user(
        &self,
        request: &AuthRequest<'_>,
        found: ServedUser,
        known: &mut Option<Vec<u8>>,
    ) -> Result<ServedUser, PamReply> {
        let found = match self.is_wanted(request, &found) {
            true => found,
            // No other module may accept the account of a user that the stack excludes.
            false if !has_password(request.kind) => {
                return Err(PamReply::from_result(AuthResult::Denied));
            }
            // The reply takes as long as that about an unknown user.
            false => ServedUser::default(),
        };
        if !found.domain.is_empty() {
            *known = Some(request.user.to_vec());
        }
        if is_other_user(request.uid, &found) {
            let user = request.user.escape_ascii();
            log!(
                WARN,
                &login::UID_MISMATCH,
                %user,
                uid = found.uid,
                "{user}: login refused: the calling program resolves the name to another uid"
            );
            return Err(PamReply::from_result(AuthResult::Denied));
        }
        Ok(found)
    }

    /// Whether the domains of a request include the user's domain. An unknown domain includes no user.
    fn is_wanted(&self, request: &AuthRequest<'_>, found: &ServedUser) -> bool {
        if request.domains.is_empty() {
            return true;
        }
        let names = || request.domains.split(|byte| *byte == b',');
        let is_known = |name: &[u8]| self.domains.iter().any(|known| known.as_bytes() == name);
        if let Some(unknown) = names().find(|name| !is_known(name)) {
            let (unknown, service) = (unknown.escape_ascii(), request.service.escape_ascii());
            log!(
                ERROR,
                &login::PAM_DOMAIN_UNKNOWN,
                %service,
                "{service}: domains= of pam_roster names the domain \"{unknown}\", which is not configured"
            );
            return false;
        }
        found.domain.is_empty() || names().any(|name| name == found.domain.as_bytes())
    }

    /// Drops cached users after signals. Each stream has a dedicated task, so that it never fills up and blocks the
    /// connection.
    async fn follow_invalidations(&self) -> zbus::Result<()> {
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

    fn follow<S>(&self, mut signals: S, act: impl Fn(&mut UserCache, S::Item) + Send + 'static)
    where
        S: StreamExt + Send + Unpin + 'static,
        S::Item: Send,
    {
        let found = Arc::clone(&self.user_cache);
        tokio::spawn(async move {
            while let Some(signal) = signals.next().await {
                act(&mut found.lock(), signal);
            }
        });
    }

    async fn query_backend(
        &self,
        peer: u32,
        request: &AuthRequest<'_>,
        found: ServedUser,
    ) -> PamReply {
        let is_decoy = found.domain.is_empty();
        let domain = if is_decoy { self.decoy.as_ref() } else { Some(&found.domain) };
        let back_end = domain.and_then(|domain| self.backends.get(domain));
        let answer = match back_end {
            // No backend is queried about an unknown account.
            _ if is_decoy && request.kind == AuthRequestKind::Account => {
                let was =
                    self.recent_users.lock().was_served(request.user, request.uid, Instant::now());
                return PamReply::from_result(decoy_result(was));
            }
            Some(back_end) => {
                let user = if is_decoy { request.user.to_vec() } else { found.directory_name };
                let who = LoginRequest {
                    user,
                    uid: found.directory_uid,
                    host_uid: found.uid,
                    host_user: found.name,
                    rule_groups: found.rule_groups,
                    service: printable_field(request.service),
                    remote_host: printable_field(request.remote_host),
                    terminal: printable_field(request.terminal),
                    is_decoy,
                    request: RequestNumber::current().0,
                };
                trace!(domain = domain.map_or("", String::as_str), is_decoy, "calling the backend");
                call_backend(back_end, &who, request).await
            }
            None if is_decoy => return unknown_user_reply(),
            None => return PamReply::from_result(AuthResult::Unreachable),
        };
        match answer {
            _ if is_decoy => unknown_user_reply(),
            // A credential cache is only for the user, and for programs that open sessions.
            Ok(answer) => {
                let blob = answer.blob.filter(|_| peer == 0 || peer == found.uid);
                let verdict = served_result(request.kind, answer.result);
                PamReply { result: verdict, blob, ..answer }
            }
            Err(error) => {
                let user = request.user.escape_ascii();
                log!(WARN, &login::BACKEND_NO_REPLY, %user, "{user}: no reply from the backend: {error}");
                PamReply::from_result(AuthResult::Unreachable)
            }
        }
    }

    /// Returns ssh keys to any client. sshd(8) runs its query as an unprivileged user, for every connection from
    /// anywhere. A rate limit could therefore be used up by strangers. `connection_limits` bounds the requests.
    async fn ssh_keys(
        &self,
        request: &AuthRequest<'_>,
        admitted: &ConnectionSlot,
        known: &mut Option<Vec<u8>>,
    ) -> PamReply {
        let _turn = admitted.request_slot().await;
        let found = match self.find_user(request.user).await {
            None => return PamReply::from_result(AuthResult::Unreachable),
            Some(found) if found.domain.is_empty() => return unknown_user_reply(),
            Some(found) => found,
        };
        *known = Some(request.user.to_vec());
        let Some(back_end) = self.backends.get(&found.domain) else {
            return PamReply::from_result(AuthResult::Unreachable);
        };
        let request_number = RequestNumber::current().0;
        let who = LoginRequest {
            user: found.directory_name,
            uid: found.directory_uid,
            host_uid: found.uid,
            host_user: found.name,
            rule_groups: found.rule_groups,
            request: request_number,
            ..LoginRequest::default()
        };
        match back_end.ssh_keys(&who).await {
            Ok(keys) => {
                let mut answer = PamReply::from_result(AuthResult::Success);
                let mut blob = Secret::with_capacity(BLOB_BYTES_MAX);
                for key in &keys {
                    let line = format!("{}\n", one_line(key));
                    // A key that does not fit is omitted completely.
                    if blob.as_mut().and_then(|blob| blob.extend(line.as_bytes())).is_none() {
                        let user = request.user.escape_ascii();
                        log!(
                            WARN,
                            &login::SSH_KEYS_TOO_LARGE,
                            %user,
                            "{user}: an SSH key is left out: the keys exceed {BLOB_BYTES_MAX} bytes"
                        );
                    }
                }
                answer.blob = blob;
                answer
            }
            Err(error) => {
                let user = request.user.escape_ascii();
                log!(WARN, &login::BACKEND_NO_REPLY, %user, "{user}: no SSH keys from the backend: {error}");
                PamReply::from_result(AuthResult::Unreachable)
            }
        }
    }
}

fn has_password(kind: AuthRequestKind) -> bool {
    match kind {
        AuthRequestKind::Authenticate
        | AuthRequestKind::PrepareChange
        | AuthRequestKind::Change => true,
        AuthRequestKind::Account | AuthRequestKind::SshKeys => false,
    }
}

/// Whether the uid in the program differs from the uid of the user that Roster serves.
fn is_other_user(uid: Option<u32>, found: &ServedUser) -> bool {
    !found.domain.is_empty() && uid.is_some_and(|uid| uid != found.uid)
}

/// Returns the result for an account that is not served. PAM stacks may leave an unknown user to other modules. No
/// other module knows a user that Roster served recently.
fn decoy_result(was_served: bool) -> AuthResult {
    if was_served { AuthResult::Denied } else { AuthResult::UnknownUser }
}

/// Converts a backend's result for a served user. No other module decides about that user, even if the directory has
/// just removed it.
fn served_result(kind: AuthRequestKind, verdict: AuthResult) -> AuthResult {
    match (kind, verdict) {
        (AuthRequestKind::Account, AuthResult::UnknownUser) => AuthResult::Denied,
        (_, verdict) => verdict,
    }
}

fn unknown_user_reply() -> PamReply {
    PamReply::from_result(AuthResult::UnknownUser)
}

async fn call_backend(
    back_end: &BackendProxy<'static>,
    who: &LoginRequest,
    request: &AuthRequest<'_>,
) -> Result<PamReply, BusError> {
    let pipe = |secrets: &[&[u8]]| {
        let pipe = secret_pipe::send(secrets);
        pipe.map(Into::into).map_err(|error| BusError::Unavailable(format!("no pipe: {error}")))
    };
    let told = match request.kind {
        AuthRequestKind::Authenticate => back_end.authenticate(who, pipe(&[request.secret])?).await,
        // `ssh_keys` handles requests for keys.
        AuthRequestKind::Account | AuthRequestKind::SshKeys => back_end.account(who).await,
        AuthRequestKind::PrepareChange => {
            back_end.change_password(who, pipe(&[request.secret])?).await
        }
        AuthRequestKind::Change => {
            back_end.change_password(who, pipe(&[request.secret, request.new_secret])?).await
        }
    };
    told.map(PamReply::from_backend)
}

#[cfg(test)]
mod tests {
    use super::super::connection_limits::{ConnectionTable, admit};
    use super::*;
    use roster_messages::CodedError;
    use roster_role::Shutdown;
    use roster_role::testing::{TestBus, block_on};
    use roster_system_tests::logged_codes::with_logged_codes;
    use std::future::pending;
    use std::os::unix::net::UnixListener;

    fn found(domain: &str, uid: u32) -> ServedUser {
        ServedUser {
            domain: domain.into(),
            name: b"alice".to_vec(),
            uid,
            directory_name: b"alice".to_vec(),
            directory_uid: uid,
            rule_groups: Vec::new(),
        }
    }

    #[test]
    fn root_and_the_trusted_ask_for_everybody_and_others_for_themselves() {
        let (alice, nobody) = (found("corp", 2000), ServedUser::default());
        for peer in [0, 33] {
            assert!(
                RequestScope::from_peer(peer, &[33]).covers(&alice)
                    && RequestScope::from_peer(peer, &[33]).covers(&nobody)
            );
        }
        assert!(RequestScope::from_peer(2000, &[33]).covers(&alice));
        for peer in [33, 2001, u32::MAX] {
            assert!(!RequestScope::from_peer(peer, &[]).covers(&alice));
        }
        // A name that is not served has uid 0 here, which belongs to no served user.
        assert!(
            !RequestScope::from_peer(1, &[]).covers(&nobody)
                && !RequestScope::Own(0).covers(&nobody)
        );
    }

    #[test]
    fn who_is_judged_is_who_is_let_in() {
        let alice = found("corp", 2000);
        assert!(!is_other_user(Some(2000), &alice));
        assert!(is_other_user(Some(1000), &alice) && is_other_user(Some(0), &alice));
        assert!(!is_other_user(None, &alice), "the program knows no uid");
        assert!(!is_other_user(Some(1000), &ServedUser::default()), "others serve the name");
    }

    /// A backend that replies only about SSH keys. Together they are too long.
    struct KeysOnly;

    #[zbus::interface(name = "org.roster.Backend1")]
    impl KeysOnly {
        fn ssh_keys(&self, who: LoginRequest) -> Vec<String> {
            let LoginRequest { service, .. } = who;
            vec!["ssh-ed25519 AAAA".into(), "k".repeat(BLOB_BYTES_MAX), service]
        }
    }

    /// Returns the context of a responder for two domains.
    async fn context(bus: &TestBus) -> RoleContext<PamRoleConfig> {
        let domain = |name: &str| LoginDomain { name: name.into(), authenticates: true };
        let config = PamRoleConfig {
            domains: vec![domain("corp"), domain("lost")],
            trusted: Vec::new(),
            timeout: LOGIN_DEADLINE,
            tries_per_minute: 10,
        };
        RoleContext {
            role: RoleName::Responder("pam".into()),
            config,
            state_dir: "/".into(),
            run_dir: "/".into(),
            connection: bus.connect().await,
            listener: None,
            shutdown: Shutdown::new().1,
        }
    }

    #[tokio::test]
    async fn pam_without_signals_does_not_serve() {
        let folder = tempfile::tempdir().expect("a directory");
        let bus = TestBus::start(folder.path(), TestBus::NO_SIGNALS);
        let mut context = context(&bus).await;
        let listener = UnixListener::bind(folder.path().join("pam")).expect("bind");
        context.listener = Some(listener.into());
        let error = run(context).await.expect_err("no signals");
        let error = error.downcast::<CodedError>().expect("a code");
        assert_eq!(error.message, &daemon::RESPONDER_SIGNALS_MISSING);
    }

    #[test]
    fn pam_request_without_full_reply_is_logged() {
        use AuthRequestKind::{Account, SshKeys};
        let noted = Instant::now();
        let folder = tempfile::tempdir().expect("a directory");
        let bus = TestBus::start(folder.path(), TestBus::OPEN);
        for (user, kind, uid, message, result) in [
            ("unknown", Account, None, &login::USER_DOMAIN_UNKNOWN, AuthResult::Unreachable),
            ("corp", Account, Some(1000), &login::UID_MISMATCH, AuthResult::Denied),
            ("lost", Account, None, &login::BACKEND_NO_REPLY, AuthResult::Unreachable),
            ("lost", SshKeys, None, &login::BACKEND_NO_REPLY, AuthResult::Unreachable),
            ("corp", SshKeys, None, &login::SSH_KEYS_TOO_LARGE, AuthResult::Success),
        ] {
            let asked = async {
                let context = context(&bus).await;
                let (backend, role) = (bus.connect().await, RoleName::Backend("corp".into()));
                backend.object_server().at(role.path(), KeysOnly).await.expect("an object");
                backend.request_name(role.bus_name()).await.expect("the name");
                let responder = PamResponder::new(&context).await.expect("proxies");
                // Each domain serves a user of its name.
                for domain in ["corp", "lost"] {
                    let user = found(domain, 2000);
                    responder.user_cache.lock().note(domain.as_bytes(), &user, 0, noted);
                }
                let request = AuthRequest {
                    kind,
                    user: user.as_bytes(),
                    uid,
                    service: b"sshd",
                    remote_host: b"",
                    terminal: b"",
                    remote_user: b"",
                    secret: b"",
                    new_secret: b"",
                    domains: b"",
                };
                let (sender, receiver) = std::sync::mpsc::channel();
                admit(&ConnectionTable::new(LIMITS), 0, |slot| {
                    let _ = sender.send(slot);
                    tokio::spawn(pending::<()>()).abort_handle()
                });
                let slot = receiver.try_recv().expect("admitted");
                responder.respond(0, &request, &slot).await.0.result
            };
            let logged = with_logged_codes(|| block_on(asked));
            assert_eq!(logged, (vec![message], result), "{user} {kind:?}");
        }
    }

    #[test]
    fn pam_domains_of_request_select_users() {
        let noted = Instant::now();
        let folder = tempfile::tempdir().expect("a directory");
        let bus = TestBus::start(folder.path(), TestBus::OPEN);
        let request = |domains| AuthRequest {
            kind: AuthRequestKind::Account,
            user: b"corp",
            uid: None,
            service: b"sshd",
            remote_host: b"",
            terminal: b"",
            remote_user: b"",
            secret: b"",
            new_secret: b"",
            domains,
        };
        let asked = async {
            let responder = PamResponder::new(&context(&bus).await).await.expect("proxies");
            responder.user_cache.lock().note(b"corp", &found("corp", 2000), 0, noted);
            let user = found("corp", 2000);
            [&b""[..], b"corp", b"lost,corp", b"lost", b"corp,none", b"none", b",", b"corp,"]
                .map(|domains| responder.is_wanted(&request(domains), &user))
        };
        let (logged, wanted) = with_logged_codes(|| block_on(asked));
        assert_eq!(wanted, [true, true, true, false, false, false, false, false]);
        assert_eq!(logged, [&login::PAM_DOMAIN_UNKNOWN; 4]);
    }

    #[test]
    fn an_account_that_the_directory_has_lost_is_left_to_nobody_else() {
        assert_eq!(
            served_result(AuthRequestKind::Account, AuthResult::UnknownUser),
            AuthResult::Denied
        );
        assert_eq!(
            served_result(AuthRequestKind::Account, AuthResult::NotHandled),
            AuthResult::NotHandled
        );
        assert_eq!(
            served_result(AuthRequestKind::Authenticate, AuthResult::UnknownUser),
            AuthResult::UnknownUser
        );
        assert_eq!(decoy_result(true), AuthResult::Denied);
        assert_eq!(decoy_result(false), AuthResult::UnknownUser);
    }
}
