// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verifies users' passwords by binds, over dedicated connections. A bind changes the identity of a connection, so the
//! connections of the mirror and of lookups are never used for it.
//!
//! A few connections stay open between logins. If a server does not reply to a bind within the caller's `patience`, the
//! backend checks its liveness over another connection. A server that replies there gets more time. If no server
//! replies, all binds fail at once with that reason, and a task repeats the check until one replies.
//!
//! The unreachable state affects all users. It is therefore entered only if no server accepts a connection or replies
//! to a liveness check. One user's slow or deferred bind denies only that login. No user can block the directory for
//! others by a slow bind.
//!
//! After a bind with a password that must be changed, the change runs on the same connection without another bind. Each
//! bind would consume one of the grace logins of the policy. After the change, the day is written to
//! `shadowLastChange` over that connection.
//!
//! A server may refuse an expired password, and change it if the old one comes with it: over the same connection, or with
//! the rights of the reader. The reader's connection is then opened for this request alone. The request is sent only if
//! the server has just reported that password as expired, because some readers could change a password without the old
//! one.
//!
//! [`bind_result`] interprets the replies.

use crate::LdapProvider;
use crate::ber::BerError;
use crate::bind_result::{self, BindOutcome};
use crate::connection::{ConnectionSettings, LdapConnection};
use crate::error::{LdapError, join_reasons};
use crate::lookup::LoginEntry;
use crate::message::{
    AttributeChange, ChangeKind, LdapRequest, RequestControl, ResponseOperation, code,
};
use crate::server_selection::{ServerCandidate, ServerFailures, describe};
use parking_lot::Mutex;
use roster_config::{
    BindMethod, DomainConfig, DomainSecrets, LdapServer, PasswordChangeConfig, PasswordOperation,
    ProviderConfig as Configured,
};
use roster_messages::table::{directory, login};
use roster_messages::{RequestNumber, log};
use roster_provider::LookupError;
use roster_provider::access::today;
use roster_provider::authenticator::{AuthOutcome, Authenticator, LoginUser};
use roster_provider::reason::Reason;
use roster_request::AuthResult;
use roster_secret::Secret;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::trace;

/// Concurrent binds. A server hashes far fewer at once.
const BINDS_MAX: usize = 32;
/// Limit of idle connections …
const IDLE_MAX: usize = 16;
/// … and of their age. Expiry also lets a preferred server return.
const IDLE_LIFE: Duration = Duration::from_secs(300);
/// Delay before the next server is tried beside the first.
const STAGGER: Duration = Duration::from_millis(250);
/// A server without a reply for this time gets a liveness check.
const LIVENESS_CHECK_AFTER: Duration = Duration::from_millis(400);
/// Limit of servers that receive one password after failures of others.
const SERVERS_MAX: usize = 4;
/// Time for which a verified user may change the password without another bind. It covers the choice of a new password
/// and its entry, twice.
const VERIFIED_LIFE: Duration = Duration::from_secs(120);
/// Limit of verified users.
const VERIFIED_MAX: usize = 64;
/// A liveness check that failed within this time was refused, and delayed no login.
const REFUSED_WITHIN: Duration = Duration::from_millis(50);
/// Pause between liveness checks while no server is reachable: at first, and as long as they are refused …
const LIVENESS_CHECK_PAUSE: Duration = Duration::from_secs(1);
/// … and after a minute of checks without a reply.
const LIVENESS_CHECK_PAUSE_MAX: Duration = Duration::from_secs(5);
/// The attribute that a change by modification replaces.
const USER_PASSWORD: &str = "userPassword";
/// Time limit of the write of `shadowLastChange`. The user waits for it.
const CHANGE_DAY_WAIT: Duration = Duration::from_secs(2);
/// The day before which no clock is right, in days since 1970: 2024-10-04.
const EARLIEST_DAY: i64 = 20_000;
/// Number of unanswered liveness checks with the shorter pause.
const EAGER_LIVENESS_CHECKS: u32 = 60;

/// Binds as the users of one domain.
pub struct BindAuthenticator(Arc<BindPool>);

struct BindPool {
    ldap: Arc<LdapProvider>,
    settings: Arc<ConnectionSettings>,
    allow_clear: bool,
    timeout: Duration,
    password_change: PasswordChangeConfig,
    permits: Semaphore,
    idle: Mutex<Vec<PooledConnection>>,
    verified: Mutex<Vec<VerifiedUser>>,
    /// A server refused to write `shadowLastChange`, and the log has that.
    is_change_day_refused: AtomicBool,
    /// The reason that no server is reachable. `None` while one is.
    unreachable_reason: Mutex<Option<Reason>>,
    /// Servers with recent failures, which are tried after the others.
    server_failures: ServerFailures,
}

/// An open connection and its server.
struct PooledConnection {
    connection: LdapConnection,
    server: LdapServer,
    last_used: Instant,
}

/// A user with a verified password.
struct VerifiedUser {
    user: LoginUser,
    password: Secret,
    bound: BoundUser,
    until: Instant,
}

/// The entry of a user, and a connection.
struct BoundUser {
    entry: LoginEntry,
    pooled: PooledConnection,
    /// The server refused the password because it has expired. The connection is then not bound, and otherwise bound as
    /// the user.
    has_expired: bool,
}

/// The reply to a bind.
struct BindReply {
    outcome: AuthOutcome,
    bound: BoundUser,
}

/// The reply to a change of a password.
enum ChangeReply {
    Outcome(AuthOutcome),
    /// The connection ended before the request.
    ConnectionLost,
}

/// The reason that no server decided a bind.
enum BindFailure {
    /// No server is reachable.
    Unreachable(Reason),
    /// The result is known without a reply.
    Answered(AuthOutcome),
}

impl BindFailure {
    /// A server is reachable and does not verify this password, so no cached credential may verify it either.
    fn unanswered(reason: Reason) -> Self {
        Self::Answered(AuthOutcome::for_reason(AuthResult::Misconfigured, reason))
    }

    fn into_outcome(self) -> AuthOutcome {
        match self {
            Self::Unreachable(reason) => AuthOutcome::for_reason(AuthResult::Unreachable, reason),
            Self::Answered(answer) => answer,
        }
    }
}

impl BindAuthenticator {
    /// Makes the authenticator of a domain. `ldap` finds the users' DNs. Connects to no server yet.
    ///
    /// # Errors
    ///
    /// `tls_ca` is unusable.
    pub fn new(
        domain: &DomainConfig,
        secrets: &DomainSecrets,
        ldap: Arc<LdapProvider>,
    ) -> Result<Self, String> {
        let Configured::Ldap(config) = &domain.provider else {
            return Err("the provider is not ldap".to_owned());
        };
        Ok(Self(Arc::new(BindPool {
            settings: Arc::new(ConnectionSettings::for_user_binds(config, secrets)?),
            allow_clear: config.allow_clear_user_passwords,
            timeout: domain.auth.timeout,
            password_change: config.password_change,
            permits: Semaphore::new(BINDS_MAX),
            idle: Mutex::default(),
            verified: Mutex::default(),
            is_change_day_refused: AtomicBool::new(false),
            unreachable_reason: Mutex::default(),
            server_failures: ServerFailures::new(config.fail_back),
            ldap,
        })))
    }
}

impl Authenticator for BindAuthenticator {
    async fn authenticate(
        &self,
        person: &LoginUser,
        password: &Secret,
        patience: Duration,
    ) -> AuthOutcome {
        let inner = &self.0;
        let _turn = inner.permits.acquire().await;
        match inner.bind(person, password, patience).await {
            Ok(BindReply { outcome: answer, bound }) => {
                match answer.result {
                    AuthResult::MustChange => inner.remember_verified(person, password, bound),
                    _ => inner.keep_idle(bound.pooled),
                }
                answer
            }
            Err(failure) => failure.into_outcome(),
        }
    }

    async fn simulate_wrong_password(&self) -> bool {
        let inner = &self.0;
        let _turn = inner.permits.acquire().await;
        inner.bind_nonexistent_user().await
    }

    async fn prepare_change(&self, person: &LoginUser, password: &Secret) -> AuthOutcome {
        let inner = &self.0;
        let _turn = inner.permits.acquire().await;
        if let Some(proven) = inner.take_verified(person, password) {
            inner.put_verified(proven);
            return AuthOutcome::from_result(AuthResult::Success);
        }
        match inner.verify(person, password).await {
            Ok(bound) => {
                inner.remember_verified(person, password, bound);
                AuthOutcome::from_result(AuthResult::Success)
            }
            Err(answer) => answer,
        }
    }

    async fn change(&self, person: &LoginUser, password: &Secret, new: &Secret) -> AuthOutcome {
        let inner = &self.0;
        let _turn = inner.permits.acquire().await;
        // The connection of a verified user may have ended since.
        for _ in 0..2 {
            let proven = inner.take_verified(person, password);
            let was_proven = proven.is_some();
            let bound = match proven {
                Some(proven) => proven.bound,
                None => match inner.verify(person, password).await {
                    Ok(bound) => bound,
                    Err(answer) => return answer,
                },
            };
            let reply = if bound.has_expired {
                inner.change_expired(person, password, new, bound).await
            } else {
                inner.change_as_user(person, password, new, bound, was_proven).await
            };
            if let ChangeReply::Outcome(answer) = reply {
                return answer;
            }
        }
        let reason = Reason::new(&directory::CONNECTION_LOST, "the server closes each connection");
        AuthOutcome::for_reason(AuthResult::Unreachable, reason)
    }
}

/// Returns the outcome of a change.
fn change_outcome(said: Result<BindOutcome, LdapError>, server: &LdapServer) -> AuthOutcome {
    match said {
        Ok(
            BindOutcome::Decided(answer)
            | BindOutcome::Expired(answer)
            | BindOutcome::OldPasswordRequired(answer)
            | BindOutcome::ChangeForbidden(answer),
        ) => answer,
        Ok(BindOutcome::NoSuchEntry(reason)) => {
            AuthOutcome::with_reason(AuthResult::UnknownUser, reason)
        }
        Ok(BindOutcome::TryAnotherServer(reason)) => {
            AuthOutcome::for_reason(AuthResult::Unreachable, undecided(reason))
        }
        // The server may have changed the password. The next attempt shows it.
        Err(error) => {
            AuthOutcome::for_reason(AuthResult::Unreachable, error.reason(&describe(server)))
        }
    }
}

/// Returns whether the server refuses any change, independent of the new password.
fn is_forbidden(said: &Result<BindOutcome, LdapError>) -> bool {
    match said {
        Ok(BindOutcome::ChangeForbidden(_)) => true,
        Ok(BindOutcome::Decided(answer)) => answer.result == AuthResult::Misconfigured,
        _ => false,
    }
}

/// Sends a modification. Returns the result if the server refuses it.
async fn write_attribute(
    connection: &mut LdapConnection,
    request: &LdapRequest<'_>,
) -> Result<Option<String>, LdapError> {
    match connection.exchange(request, &[]).await?.operation {
        ResponseOperation::ModifyDone(result) => {
            Ok((result.code != code::SUCCESS).then(|| result.to_string()))
        }
        _ => Err(BerError("a reply to another request").into()),
    }
}

/// Returns the reason of a server that accepts and rejects nothing.
fn undecided(text: impl Into<String>) -> Reason {
    Reason::new(&login::BIND_UNDECIDED, text)
}

/// Returns whether the connection ended while it was idle.
fn is_stale_connection(error: &LdapError) -> bool {
    matches!(
        error,
        LdapError::Closed
            | LdapError::ClosedBeforeReply
            | LdapError::Io(_)
            | LdapError::Disconnected(_)
    )
}

impl BindPool {
    /// Binds as the user at the first server that replies.
    async fn bind(
        self: &Arc<Self>,
        person: &LoginUser,
        password: &Secret,
        patience: Duration,
    ) -> Result<BindReply, BindFailure> {
        if let Some(reason) = self.unreachable_reason.lock().clone() {
            return Err(BindFailure::Unreachable(reason));
        }
        let bound = self.find_and_bind(person, password, patience).await;
        if let Err(failure) = &bound {
            self.note_failure(failure);
        }
        bound
    }

    fn note_failure(self: &Arc<Self>, failure: &BindFailure) {
        if let BindFailure::Unreachable(reason) = failure {
            self.mark_unreachable(reason);
        }
    }

    /// Binds as the user for a change of the password.
    async fn verify(
        self: &Arc<Self>,
        person: &LoginUser,
        password: &Secret,
    ) -> Result<BoundUser, AuthOutcome> {
        match self.bind(person, password, self.timeout).await {
            Ok(BindReply { outcome: answer, bound }) => match answer.result {
                AuthResult::Success | AuthResult::MustChange => Ok(bound),
                _ => {
                    self.keep_idle(bound.pooled);
                    Err(answer)
                }
            },
            Err(failure) => Err(failure.into_outcome()),
        }
    }

    /// Changes the password over the user's own connection.
    async fn change_as_user(
        self: &Arc<Self>,
        person: &LoginUser,
        old: &Secret,
        new: &Secret,
        mut bound: BoundUser,
        may_be_stale: bool,
    ) -> ChangeReply {
        let BoundUser { entry, pooled, .. } = &mut bound;
        let said = self.send_change(pooled, &entry.dn, old.as_bytes(), new.as_bytes()).await;
        let answer = match said {
            Err(error) if may_be_stale && is_stale_connection(&error) => {
                return ChangeReply::ConnectionLost;
            }
            said => change_outcome(said, &pooled.server),
        };
        match answer.result {
            AuthResult::NewPasswordRefused => self.remember_verified(person, old, bound),
            AuthResult::Success => self.finish_change(bound).await,
            AuthResult::Unreachable | AuthResult::UnknownUser => {}
            _ => self.keep_idle(bound.pooled),
        }
        ChangeReply::Outcome(answer)
    }

    /// Sends a change in the configured way. The connection is bound as the user, which proves the old password.
    async fn send_change(
        &self,
        pooled: &mut PooledConnection,
        dn: &str,
        old: &[u8],
        new: &[u8],
    ) -> Result<BindOutcome, LdapError> {
        let change = |kind, value| AttributeChange { kind, attribute: USER_PASSWORD, value };
        if self.password_change.operation == PasswordOperation::Extended {
            let request = LdapRequest::ModifyPassword { dn, old, new };
            return self.send_request(pooled, &request, self.timeout).await;
        }
        // A value to delete must equal the stored one, which is a hash. Only a server with a policy compares it as a
        // password, so the old password is left out unless the server requires it.
        let changes = [change(ChangeKind::Replace, new)];
        let request = LdapRequest::Modify { dn, changes: &changes };
        let said = self.send_request(pooled, &request, self.timeout).await?;
        if !matches!(said, BindOutcome::OldPasswordRequired(_)) {
            return Ok(said);
        }
        let changes = [change(ChangeKind::Delete, old), change(ChangeKind::Add, new)];
        self.send_request(pooled, &LdapRequest::Modify { dn, changes: &changes }, self.timeout)
            .await
    }

    /// Changes a password that the server refuses because it has expired. Some servers accept that over the connection of
    /// the refused bind, others from the reader. Then binds with the new password.
    async fn change_expired(
        self: &Arc<Self>,
        person: &LoginUser,
        old: &Secret,
        new: &Secret,
        mut bound: BoundUser,
    ) -> ChangeReply {
        let BoundUser { entry, pooled, .. } = &mut bound;
        let dn = &entry.dn;
        let request = LdapRequest::ModifyPassword { dn, old: old.as_bytes(), new: new.as_bytes() };
        let mut said = self.send_request(pooled, &request, self.timeout).await;
        if is_forbidden(&said)
            && let Ok(Some(mut reader)) = self.connect_reader(&pooled.server).await
        {
            said = self.send_request(&mut reader, &request, self.timeout).await;
        }
        let is_refused = is_forbidden(&said);
        let answer = change_outcome(said, &pooled.server);
        let answer = if is_refused {
            log!(
                WARN,
                &login::EXPIRED_CHANGE_REFUSED,
                server = describe(&pooled.server),
                "the server refuses to change an expired password: {}",
                answer.reason
            );
            bind_result::refused_after_expiry(answer)
        } else {
            answer
        };
        match answer.result {
            AuthResult::NewPasswordRefused => self.remember_verified(person, old, bound),
            AuthResult::Success => {
                let request = LdapRequest::SimpleBind { dn, password: new.as_bytes() };
                let said = self.send_request(pooled, &request, self.timeout).await;
                // The change counts, even if the server does not accept the new password yet.
                if let Ok(BindOutcome::Decided(AuthOutcome {
                    result: AuthResult::Success, ..
                })) = said
                {
                    self.finish_change(bound).await;
                }
            }
            AuthResult::Unreachable | AuthResult::UnknownUser => {}
            _ => self.keep_idle(bound.pooled),
        }
        ChangeReply::Outcome(answer)
    }

    /// Opens a connection that is bound as the reader. `None` if the reader is anonymous, as any unbound connection.
    async fn connect_reader(
        &self,
        server: &LdapServer,
    ) -> Result<Option<PooledConnection>, LdapError> {
        if self.ldap.config.bind == BindMethod::Anonymous {
            return Ok(None);
        }
        let connection = LdapConnection::connect(server, &self.ldap.settings).await?;
        let server = server.clone();
        Ok(Some(PooledConnection { connection, server, last_used: Instant::now() }))
    }

    /// Writes the day of a password change to `shadowLastChange`, over the user's own connection, and keeps the
    /// connection. A failure does not concern the change.
    async fn finish_change(&self, bound: BoundUser) {
        let BoundUser { entry, mut pooled, .. } = bound;
        let day =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| today(now.as_secs()));
        let is_wanted = self.password_change.writes_shadow_day && entry.has_change_day;
        if !is_wanted || day < EARLIEST_DAY {
            return self.keep_idle(pooled);
        }
        let attribute = self.ldap.config.attributes.shadow_last_change.as_str();
        let value = day.to_string();
        let kind = ChangeKind::Replace;
        let changes = [AttributeChange { kind, attribute, value: value.as_bytes() }];
        let request = LdapRequest::Modify { dn: &entry.dn, changes: &changes };
        let written = timeout(CHANGE_DAY_WAIT, write_attribute(&mut pooled.connection, &request));
        let (refusal, is_usable) = match written.await {
            Ok(Ok(None)) => (None, true),
            Ok(Ok(Some(refusal))) => (Some(refusal), true),
            Ok(Err(error)) => (Some(error.to_string()), false),
            Err(_) => (Some("no reply".to_owned()), false),
        };
        if let Some(refusal) = refusal
            && !self.is_change_day_refused.swap(true, Relaxed)
        {
            log!(
                WARN,
                &login::CHANGE_DAY_NOT_WRITTEN,
                server = describe(&pooled.server),
                "{attribute} was not written after a password change: {refusal}"
            );
        }
        if is_usable {
            self.keep_idle(pooled);
        }
    }

    /// Finds the DN of the user and binds. The DN is looked up each time, because another user may have the name or the
    /// DN since.
    async fn find_and_bind(
        self: &Arc<Self>,
        person: &LoginUser,
        password: &Secret,
        patience: Duration,
    ) -> Result<BindReply, BindFailure> {
        let entry = self.find_entry(person, patience).await?;
        let (warm, said) = self.bind_anywhere(&entry.dn, password, patience).await?;
        let reply = |outcome, has_expired, pooled| {
            Ok(BindReply { outcome, bound: BoundUser { entry, pooled, has_expired } })
        };
        match said {
            BindOutcome::Expired(answer) if self.password_change.after_expiry => {
                reply(bind_result::changeable_outcome(answer), true, warm)
            }
            BindOutcome::Decided(answer)
            | BindOutcome::Expired(answer)
            | BindOutcome::OldPasswordRequired(answer)
            | BindOutcome::ChangeForbidden(answer) => reply(answer, false, warm),
            // The entry was removed after the lookup.
            BindOutcome::NoSuchEntry(reason) => {
                self.keep_idle(warm);
                Err(BindFailure::Answered(AuthOutcome::with_reason(
                    AuthResult::UnknownUser,
                    reason,
                )))
            }
            BindOutcome::TryAnotherServer(reason) => {
                Err(BindFailure::unanswered(undecided(reason)))
            }
        }
    }

    /// Returns the present entry of the user in the directory.
    async fn find_entry(
        &self,
        person: &LoginUser,
        patience: Duration,
    ) -> Result<LoginEntry, BindFailure> {
        let found = self.lookup_user(&person.name, patience).await?;
        let unknown = |message, text: String| {
            let reason = Reason::new(message, text);
            Err(BindFailure::Answered(AuthOutcome::for_reason(AuthResult::UnknownUser, reason)))
        };
        match found {
            Ok(Some(entry)) if entry.uid == person.uid && !entry.dn.is_empty() => Ok(entry),
            Ok(Some(LoginEntry { dn, uid, .. })) => {
                let text = format!("{dn} has uid {uid}; this host serves uid {}", person.uid);
                unknown(&login::DIRECTORY_UID_MISMATCH, text)
            }
            Ok(None) => {
                unknown(&login::UNKNOWN_USER, "the directory has no user of this name".to_owned())
            }
            Err(error) => Err(BindFailure::unanswered(error.into_reason())),
        }
    }

    /// Looks a name up. If the server of the lookups is silent and another one replies, repeats the lookup there.
    async fn lookup_user(
        &self,
        name: &[u8],
        patience: Duration,
    ) -> Result<Result<Option<LoginEntry>, LookupError>, BindFailure> {
        let failure = |error: LdapError| {
            let reason = Reason::new(error.message(), error.to_string());
            match error {
                LdapError::BusyServer { .. } => BindFailure::unanswered(reason),
                _ => BindFailure::Unreachable(reason),
            }
        };
        let asked = async {
            tokio::select! {
                found = self.ldap.find_user(name) => found,
                () = self.leave_silent_server(patience) => self.ldap.find_user(name).await,
            }
        };
        let found = self.wait_while_alive(None, patience, asked).await.map_err(failure)?;
        let Err(LookupError::Unreachable(reason)) = found else { return Ok(found) };
        if timeout(patience / 2, self.check_liveness(None)).await != Ok(true) {
            return Err(BindFailure::Unreachable(reason));
        }
        let again = async {
            self.ldap.reconnect_lookups().await;
            self.ldap.find_user(name).await
        };
        self.wait_while_alive(None, patience, again).await.map_err(failure)
    }

    /// Moves the lookups to another server if their server is silent and another one replies. Returns after that.
    async fn leave_silent_server(&self, patience: Duration) {
        sleep(LIVENESS_CHECK_AFTER.min(patience / 2)).await;
        if let Some(open) = self.ldap.lookup_connector.present() {
            let all = self.ldap.servers.list().await;
            let its = all.into_iter().find(|one| describe(&one.server) == *open.server);
            if let Some(ServerCandidate { server, .. }) = its
                && timeout(patience / 2, self.check_liveness(Some(&server))).await != Ok(true)
                && timeout(patience / 2, self.check_liveness(None)).await == Ok(true)
            {
                self.note_server_failure(&server);
                self.ldap.lookup_connector.leave_silent(&open).await;
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Records that the server is unusable, and closes idle connections to it.
    fn note_server_failure(&self, server: &LdapServer) {
        self.server_failures.add(&describe(server), Instant::now());
        self.idle.lock().retain(|idle| idle.server != *server);
    }

    /// Binds at one server after the other, until one replies.
    async fn bind_anywhere(
        self: &Arc<Self>,
        dn: &str,
        password: &Secret,
        patience: Duration,
    ) -> Result<(PooledConnection, BindOutcome), BindFailure> {
        let mut reasons: Vec<Reason> = Vec::new();
        let mut passed_over: Vec<LdapServer> = Vec::new();
        let mut is_there = false;
        for _ in 0..SERVERS_MAX + IDLE_MAX {
            let kept = self.take_idle(&passed_over);
            let was_kept = kept.is_some();
            let mut warm = match kept {
                Some(warm) => warm,
                None if passed_over.len() >= SERVERS_MAX => break,
                None => match self.connect(&passed_over, patience).await {
                    Ok(warm) => warm,
                    Err(reason) => {
                        reasons.extend(reason);
                        break;
                    }
                },
            };
            if !self.allow_clear && !self.settings.is_private(&warm.server) {
                let text = "user passwords would cross the network unencrypted";
                let reason = Reason::new(&login::USER_PASSWORD_UNENCRYPTED, text);
                return Err(BindFailure::unanswered(reason.for_object(describe(&warm.server))));
            }
            let request = LdapRequest::SimpleBind { dn, password: password.as_bytes() };
            match self.send_request(&mut warm, &request, patience).await {
                Ok(BindOutcome::TryAnotherServer(reason)) => {
                    reasons.push(undecided(reason).for_object(describe(&warm.server)));
                    passed_over.push(warm.server);
                    is_there = true;
                }
                Ok(said) => return Ok((warm, said)),
                Err(error) if was_kept && is_stale_connection(&error) => {}
                Err(error) => {
                    reasons.push(error.reason(&describe(&warm.server)));
                    let answers = match error {
                        LdapError::BusyServer { .. } => true,
                        LdapError::NoReply { .. } => false,
                        // The server may have closed the connection because of this bind.
                        _ => {
                            timeout(patience / 2, self.check_liveness(Some(&warm.server))).await
                                == Ok(true)
                        }
                    };
                    is_there |= answers;
                    if !answers {
                        self.note_server_failure(&warm.server);
                    }
                    passed_over.push(warm.server);
                }
            }
        }
        let reason = join_reasons(&reasons).unwrap_or_else(|| undecided("no further server"));
        Err(if is_there {
            BindFailure::unanswered(reason)
        } else {
            BindFailure::Unreachable(reason)
        })
    }

    /// Sends a request over one connection, and interprets the reply.
    async fn send_request(
        &self,
        warm: &mut PooledConnection,
        request: &LdapRequest<'_>,
        patience: Duration,
    ) -> Result<BindOutcome, LdapError> {
        let PooledConnection { connection, server, last_used: used } = warm;
        let asked = async {
            let response = connection.exchange(request, &[RequestControl::PasswordPolicy]).await?;
            let policy = response.controls.password_policy()?;
            bind_result::interpret_response(request, response.operation, policy)
                .ok_or(BerError("a reply to another request").into())
        };
        let said = self.wait_while_alive(Some(server), patience, asked).await?;
        *used = Instant::now();
        if said.is_ok() {
            self.server_failures.remove(&describe(server));
        }
        said
    }

    /// Waits for a reply as long as liveness checks succeed, at most for the configured timeout. Without `server`, any
    /// server may answer the check. Fails with [`LdapError::NoReply`] if a check fails, and with
    /// [`LdapError::BusyServer`] if checks succeeded until the timeout.
    async fn wait_while_alive<T>(
        &self,
        server: Option<&LdapServer>,
        patience: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, LdapError> {
        let deadline = self.timeout;
        let what = "a login";
        let has_answered = AtomicBool::new(false);
        let waited = async {
            let mut work = pin!(work);
            let mut pause = LIVENESS_CHECK_AFTER.min(patience / 2);
            loop {
                tokio::select! {
                    done = &mut work => return Ok(done),
                    () = sleep(pause) => {}
                }
                let knock = timeout(patience / 2, self.check_liveness(server));
                tokio::select! {
                    done = &mut work => return Ok(done),
                    answered = knock => {
                        if answered != Ok(true) {
                            return Err(LdapError::NoReply { what, deadline: patience });
                        }
                    }
                }
                has_answered.store(true, Relaxed);
                // The server is working, so the next check may be later.
                pause = (pause * 2).max(Duration::from_millis(100));
            }
        };
        match timeout(deadline, waited).await {
            Ok(waited) => waited,
            Err(_) if has_answered.load(Relaxed) => Err(LdapError::BusyServer { what, deadline }),
            Err(_) => Err(LdapError::NoReply { what, deadline }),
        }
    }

    /// Returns whether a server replies over a new connection, which then becomes idle. Without `server`, checks all at
    /// once until one replies.
    async fn check_liveness(&self, server: Option<&LdapServer>) -> bool {
        let servers = match server {
            Some(server) => vec![server.clone()],
            None => self.candidates(&[]).await.into_iter().map(|one| one.server).collect(),
        };
        let mut knocks = JoinSet::new();
        for server in servers {
            let settings = Arc::clone(&self.settings);
            let knock = async move {
                let mut connection = LdapConnection::connect(&server, &settings).await.ok()?;
                let used = Instant::now();
                connection.is_responsive().await.then_some(PooledConnection {
                    connection,
                    server,
                    last_used: used,
                })
            };
            knocks.spawn(RequestNumber::current().scope(knock));
        }
        while let Some(knock) = knocks.join_next().await {
            if let Ok(Some(warm)) = knock {
                self.keep_idle(warm);
                return true;
            }
        }
        false
    }

    /// Returns the servers to try. Servers with recent failures are last.
    async fn candidates(&self, passed_over: &[LdapServer]) -> Vec<ServerCandidate> {
        let mut candidates: Vec<ServerCandidate> = self.ldap.servers.list().await;
        candidates.retain(|one| !passed_over.contains(&one.server));
        let now = Instant::now();
        candidates.sort_by_key(|one| !self.server_failures.may_retry(&describe(&one.server), now));
        candidates.truncate(SERVERS_MAX);
        for ServerCandidate { server, .. } in &candidates {
            trace!(server = describe(server), "candidate for a bind");
        }
        candidates
    }

    /// Connects to a server that is not in `passed_over`, and uses the first connection. A silent server delays the
    /// next attempt only by [`STAGGER`].
    async fn connect(
        &self,
        passed_over: &[LdapServer],
        patience: Duration,
    ) -> Result<PooledConnection, Vec<Reason>> {
        let candidates = self.candidates(passed_over).await;
        let setbacks = &self.server_failures;
        if candidates.is_empty() {
            let none = || self.ldap.servers.no_servers_reason();
            return Err(if passed_over.is_empty() { vec![none()] } else { Vec::new() });
        }
        let mut rest = candidates.into_iter().peekable();
        let mut reasons = Vec::new();
        let race = async {
            let mut tries = JoinSet::new();
            loop {
                if let Some(ServerCandidate { server, .. }) = rest.next() {
                    let settings = Arc::clone(&self.settings);
                    let connect = async move {
                        let connection = LdapConnection::connect(&server, &settings).await;
                        (server, connection)
                    };
                    tries.spawn(RequestNumber::current().scope(connect));
                }
                let is_last = rest.peek().is_none();
                tokio::select! {
                    tried = tries.join_next() => match tried {
                        Some(Ok((server, Ok(connection)))) => {
                            return Some(PooledConnection { connection, server, last_used: Instant::now() });
                        }
                        Some(Ok((server, Err(error)))) => {
                            let server = describe(&server);
                            setbacks.add(&server, Instant::now());
                            reasons.push(error.reason(&server));
                        }
                        Some(Err(_)) => {}
                        None if is_last => return None,
                        None => {}
                    },
                    () = sleep(STAGGER), if !is_last => {}
                }
            }
        };
        match timeout(patience, race).await {
            Ok(Some(warm)) => Ok(warm),
            Ok(None) => Err(reasons),
            Err(_) => {
                let text = format!("no server replies within {} s", patience.as_secs_f32());
                reasons.push(Reason::new(&directory::NO_REPLY, text));
                Err(reasons)
            }
        }
    }

    /// Does the same work as a login with a wrong password, for a user that does not exist. Returns whether a server
    /// was reachable.
    async fn bind_nonexistent_user(self: &Arc<Self>) -> bool {
        const NOBODY: &[u8] = b"roster-nobody-at-all";
        if self.unreachable_reason.lock().is_some() {
            return false;
        }
        let Some(password) = Secret::copy_of(NOBODY) else { return true };
        let base = self.ldap.config.users.bases.first().map_or("", |base| &base.base);
        let dn = format!("cn={},{base}", String::from_utf8_lossy(NOBODY));
        let bound = async {
            // The user does not exist, so the result has no use.
            let _ = self.lookup_user(NOBODY, self.timeout).await?;
            self.bind_anywhere(&dn, &password, self.timeout).await
        };
        match bound.await {
            Ok((warm, _)) => {
                self.keep_idle(warm);
                true
            }
            Err(failure) => {
                self.note_failure(&failure);
                matches!(failure, BindFailure::Answered(_))
            }
        }
    }

    /// Returns the idle connection that was used last.
    fn take_idle(&self, passed_over: &[LdapServer]) -> Option<PooledConnection> {
        let now = Instant::now();
        let mut idle = self.idle.lock();
        idle.retain(|warm| now.duration_since(warm.last_used) < IDLE_LIFE);
        let place = idle.iter().rposition(|warm| !passed_over.contains(&warm.server))?;
        Some(idle.remove(place))
    }

    fn keep_idle(&self, warm: PooledConnection) {
        let mut idle = self.idle.lock();
        if idle.len() >= IDLE_MAX {
            idle.remove(0);
        }
        idle.push(warm);
    }

    fn remember_verified(
        self: &Arc<Self>,
        person: &LoginUser,
        password: &Secret,
        bound: BoundUser,
    ) {
        let Some(password) = Secret::copy_of(password.as_bytes()) else {
            return self.keep_idle(bound.pooled);
        };
        let until = Instant::now() + VERIFIED_LIFE;
        self.put_verified(VerifiedUser { user: person.clone(), password, bound, until });
        // Removes the password on time, also if no other login comes.
        let inner = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep_until(until).await;
            if let Some(inner) = inner.upgrade() {
                inner.drop_expired_verified();
            }
        });
    }

    fn drop_expired_verified(&self) {
        let now = Instant::now();
        self.verified.lock().retain(|proven| now < proven.until);
    }

    fn put_verified(&self, proven: VerifiedUser) {
        let mut all = self.verified.lock();
        all.retain(|other| other.user != proven.user);
        if all.len() >= VERIFIED_MAX {
            all.remove(0);
        }
        all.push(proven);
    }

    fn take_verified(&self, person: &LoginUser, password: &Secret) -> Option<VerifiedUser> {
        self.drop_expired_verified();
        let mut all = self.verified.lock();
        let is_it =
            |one: &VerifiedUser| one.user == *person && one.password.equals(password.as_bytes());
        let place = all.iter().position(is_it)?;
        Some(all.remove(place))
    }

    /// Records that no server is reachable. Binds then fail at once, until a server replies to a liveness check.
    fn mark_unreachable(self: &Arc<Self>, reason: &Reason) {
        let mut away = self.unreachable_reason.lock();
        if away.is_none() {
            log!(
                WARN,
                &login::PASSWORD_CHECKS_OFFLINE,
                "password authentication offline: {}",
                reason.with_code()
            );
            self.idle.lock().clear();
            tokio::spawn(check_until_alive(Arc::downgrade(self)));
        }
        *away = Some(reason.clone());
    }
}

async fn check_until_alive(inner: Weak<BindPool>) {
    let mut silent = 0;
    loop {
        sleep(if silent < EAGER_LIVENESS_CHECKS {
            LIVENESS_CHECK_PAUSE
        } else {
            LIVENESS_CHECK_PAUSE_MAX
        })
        .await;
        let Some(inner) = inner.upgrade() else { return };
        let begun = Instant::now();
        if timeout(inner.timeout, inner.check_liveness(None)).await == Ok(true) {
            *inner.unreachable_reason.lock() = None;
            tracing::info!("password authentication online again");
            return;
        }
        silent += u32::from(begun.elapsed() > REFUSED_WITHIN);
    }
}
