// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logins: authenticates users at the directory or KDC, or with cached credentials if that is unreachable, and checks
//! their access. The authenticator and [`OfflineAuth`] verify passwords; [`AccessControl`] decides about accounts. This
//! module sets the order of these steps. It never shares one result among several calls.

use super::access::AccessControl;
use super::offline_auth::OfflineAuth;
use roster_auth_krb5::Krb5Authenticator;
use roster_bus::interfaces::{AccessExplanation, AuthReply, BusError, LoginRequest};
use roster_bus::secret_pipe;
use roster_messages::{RequestNumber, log, table::login};
use roster_provider::authenticator::{AuthOutcome, Authenticator, LoginUser, NoAuthenticator};
use roster_provider::reason::Reason;
#[cfg(feature = "ldap")]
use roster_provider_ldap::BindAuthenticator;
use roster_request::{AuthResult, auth::SECRET_BYTES_MAX};
use roster_secret::Secret;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Without LDAP there are no binds.
#[cfg(not(feature = "ldap"))]
type BindAuthenticator = NoAuthenticator;

/// Concurrent password checks. Others wait.
const CONCURRENT_CHECKS_MAX: usize = 64;
/// Time to wait for a server that may be unreachable, if the user has cached credentials.
const SERVER_WAIT_SHORT: Duration = Duration::from_millis(800);
/// The same for a user without cached credentials.
const SERVER_WAIT: Duration = Duration::from_secs(4);

/// The login service of a domain.
pub struct LoginService<A> {
    authenticator: A,
    offline: Arc<OfflineAuth>,
    access: AccessControl,
    check_slots: Semaphore,
}

impl<A: Authenticator> LoginService<A> {
    /// Makes the login service of a domain.
    pub fn new(authenticator: A, offline: Arc<OfflineAuth>, access: AccessControl) -> Self {
        Self { authenticator, offline, access, check_slots: Semaphore::new(CONCURRENT_CHECKS_MAX) }
    }

    /// Checks the user's password.
    pub async fn authenticate(&self, who: &LoginRequest, password: &Secret) -> AuthOutcome {
        let _turn = self.check_slots.acquire().await;
        if who.is_decoy {
            self.simulate_wrong_password(who).await;
            return AuthOutcome::from_result(AuthResult::UnknownUser);
        }
        if let Some(refused) = reject_impossible_password(password) {
            self.simulate_wrong_password(who).await;
            return refused;
        }
        let person = to_person(who);
        let patience =
            if self.offline.has_credential(&person) { SERVER_WAIT_SHORT } else { SERVER_WAIT };
        let answer = self.authenticator.authenticate(&person, password, patience).await;
        let (result, is_unverified) = (answer.result.label(), answer.is_unverified);
        tracing::trace!(result, is_unverified, "the directory or the KDC decided");
        if answer.result == AuthResult::Unreachable {
            tracing::trace!("the cached credential decides");
            return self.offline.check_password(&person, password, answer).await;
        }
        if !answer.is_unverified {
            self.offline.record_result(&person, password, answer.result);
        }
        answer
    }

    /// Does the work of a check with a wrong password. The caller makes the duration equal.
    async fn simulate_wrong_password(&self, who: &LoginRequest) {
        if !self.authenticator.simulate_wrong_password().await {
            self.offline.simulate_wrong_password(&who.user).await;
        }
    }

    /// Whether the user may log in now.
    pub async fn check_account(&self, who: &LoginRequest) -> AuthOutcome {
        if who.is_decoy {
            return AuthOutcome::from_result(AuthResult::UnknownUser);
        }
        self.access.decide(who).await
    }

    /// Returns the access decision, rule by rule.
    pub async fn explain(&self, who: &LoginRequest) -> AccessExplanation {
        self.access.explain(who).await
    }

    /// Returns the user's ssh keys.
    pub async fn ssh_keys(&self, who: &LoginRequest) -> Result<Vec<String>, AuthOutcome> {
        if who.is_decoy {
            return Err(AuthOutcome::from_result(AuthResult::UnknownUser));
        }
        self.access.ssh_keys(who).await
    }

    /// Returns the cached credentials.
    pub fn offline(&self) -> &OfflineAuth {
        &self.offline
    }

    /// Checks the old password before a change.
    pub async fn prepare_change(&self, who: &LoginRequest, password: &Secret) -> AuthOutcome {
        let _turn = self.check_slots.acquire().await;
        if who.is_decoy {
            self.authenticator.simulate_wrong_password().await;
            return AuthOutcome::from_result(AuthResult::UnknownUser);
        }
        if let Some(refused) = reject_impossible_password(password) {
            self.authenticator.simulate_wrong_password().await;
            return refused;
        }
        self.authenticator.prepare_change(&to_person(who), password).await
    }

    /// Changes the password.
    pub async fn change_password(
        &self,
        who: &LoginRequest,
        password: &Secret,
        new: &Secret,
    ) -> AuthOutcome {
        let _turn = self.check_slots.acquire().await;
        if who.is_decoy {
            self.authenticator.simulate_wrong_password().await;
            return AuthOutcome::from_result(AuthResult::UnknownUser);
        }
        if let Some(refused) = reject_impossible_password(password) {
            self.authenticator.simulate_wrong_password().await;
            return refused;
        }
        if let Some(refused) = reject_impossible_password(new) {
            let AuthOutcome { reason, message, .. } = refused;
            let rejected = AuthOutcome::with_reason(AuthResult::NewPasswordRefused, reason.clone());
            return AuthOutcome { message, ..rejected }
                .with_message(true, format!("The new password is rejected: {reason}."));
        }
        let person = to_person(who);
        let answer = self.authenticator.change(&person, password, new).await;
        match change_outcome(&answer) {
            PasswordChangeOutcome::Done => {
                self.offline.record_change(&person, new);
                self.access.note_password_change(who).await;
            }
            PasswordChangeOutcome::Unclear => {
                self.offline.record_possible_change(&person, password);
            }
            PasswordChangeOutcome::Rejected => {
                self.offline.record_result(&person, password, answer.result);
            }
            PasswordChangeOutcome::RejectedUnverified => {}
        }
        answer
    }
}

/// The result of a password change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PasswordChangeOutcome {
    /// The new password is valid.
    Done,
    /// The old password may no longer be valid.
    Unclear,
    /// The old password is still valid, and the directory gave the reason.
    Rejected,
    /// The old password is still valid, but the reply with the reason was not verified.
    RejectedUnverified,
}

fn change_outcome(answer: &AuthOutcome) -> PasswordChangeOutcome {
    match answer.result {
        AuthResult::Success if answer.is_unverified => PasswordChangeOutcome::Unclear,
        AuthResult::Success => PasswordChangeOutcome::Done,
        _ if answer.is_surely_unchanged && answer.is_unverified => {
            PasswordChangeOutcome::RejectedUnverified
        }
        _ if answer.is_surely_unchanged => PasswordChangeOutcome::Rejected,
        _ if answer.is_unverified => PasswordChangeOutcome::Unclear,
        AuthResult::Unreachable | AuthResult::Misconfigured => PasswordChangeOutcome::Unclear,
        _ => PasswordChangeOutcome::Rejected,
    }
}

/// The authenticator of a domain.
pub enum DomainAuthenticator {
    /// No authenticator.
    Disabled(NoAuthenticator),
    /// The directory, by binds as the user.
    #[cfg_attr(not(feature = "ldap"), expect(dead_code, reason = "no directory is bound to"))]
    Ldap(BindAuthenticator),
    /// The KDC of a realm.
    Krb5(Box<Krb5Authenticator>),
}

impl LoginService<DomainAuthenticator> {
    /// Returns once logins cannot continue without a restart of the role.
    pub async fn wait_until_unusable(&self) {
        match &self.authenticator {
            DomainAuthenticator::Krb5(kerberos) => kerberos.ended().await,
            DomainAuthenticator::Disabled(_) | DomainAuthenticator::Ldap(_) => {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Authenticator for DomainAuthenticator {
    async fn authenticate(
        &self,
        person: &LoginUser,
        password: &Secret,
        patience: Duration,
    ) -> AuthOutcome {
        match self {
            Self::Disabled(nobody) => nobody.authenticate(person, password, patience).await,
            Self::Ldap(binds) => binds.authenticate(person, password, patience).await,
            Self::Krb5(kerberos) => kerberos.authenticate(person, password, patience).await,
        }
    }

    async fn simulate_wrong_password(&self) -> bool {
        match self {
            Self::Disabled(nobody) => nobody.simulate_wrong_password().await,
            Self::Ldap(binds) => binds.simulate_wrong_password().await,
            Self::Krb5(kerberos) => kerberos.simulate_wrong_password().await,
        }
    }

    async fn prepare_change(&self, person: &LoginUser, password: &Secret) -> AuthOutcome {
        match self {
            Self::Disabled(nobody) => nobody.prepare_change(person, password).await,
            Self::Ldap(binds) => binds.prepare_change(person, password).await,
            Self::Krb5(kerberos) => kerberos.prepare_change(person, password).await,
        }
    }

    async fn change(&self, person: &LoginUser, password: &Secret, new: &Secret) -> AuthOutcome {
        match self {
            Self::Disabled(nobody) => nobody.change(person, password, new).await,
            Self::Ldap(binds) => binds.change(person, password, new).await,
            Self::Krb5(kerberos) => kerberos.change(person, password, new).await,
        }
    }
}

/// Converts a result for the bus. The reason goes only to the log here. The caller gets the result and the messages.
pub fn to_bus_reply(
    who: &LoginRequest,
    what: &'static str,
    answer: AuthOutcome,
) -> Result<AuthReply, BusError> {
    let code = answer.message().map_or("", |message| message.code);
    if !answer.reason.is_empty() {
        log_refusal(who, what, &answer);
    }
    let AuthOutcome { result: verdict, messages, blob, is_offline, .. } = answer;
    let blob = blob.map(|blob| secret_pipe::send(&[blob.as_bytes()])).transpose();
    let blob = blob.map_err(|error| BusError::Unavailable(format!("no pipe: {error}")))?;
    Ok(AuthReply {
        verdict: verdict as u16,
        is_offline,
        code: code.to_owned(),
        messages: messages.into_iter().map(|message| (message.is_error, message.text)).collect(),
        blob: blob.into_iter().map(Into::into).collect(),
    })
}

/// Logs the reason of an outcome, with its code for a refusal. The reply does not wait for the log line.
pub fn log_refusal(who: &LoginRequest, what: &'static str, answer: &AuthOutcome) {
    let LoginRequest { user, service, .. } = who.clone();
    let (outcome, message, reason) =
        (answer.result.label(), answer.message(), answer.reason.clone());
    let line = async move {
        let user = user.escape_ascii();
        match message {
            Some(message) => log!(INFO, message, %user, service, outcome, "{what}: {reason}"),
            None => tracing::info!(%user, service, outcome, "{what}: {reason}"),
        }
    };
    tokio::spawn(RequestNumber::current().scope(line));
}

fn to_person(who: &LoginRequest) -> LoginUser {
    LoginUser { name: who.user.clone(), uid: who.uid, host_uid: who.host_uid }
}

/// Rejects impossible passwords. A server treats an empty one as an anonymous bind and reports success. Its treatment
/// of a NUL is undefined.
fn reject_impossible_password(password: &Secret) -> Option<AuthOutcome> {
    let bytes = password.as_bytes();
    let why = match bytes {
        [] => "the password is empty",
        _ if bytes.contains(&0) => "the password contains a NUL",
        _ if bytes.len() > SECRET_BYTES_MAX => "the password is too long",
        _ => return None,
    };
    let reason = Reason::new(&login::PASSWORD_IMPOSSIBLE, why);
    Some(AuthOutcome::for_reason(AuthResult::WrongPassword, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::wait_until;
    use crate::tests::{engine, refresh, uid_of};
    use crate::user_index::UserIndex;
    use parking_lot::Mutex;
    use roster_config::{DomainMode, OfflineConfig as Settings};
    use std::sync::atomic::{AtomicBool, Ordering};
    use tempfile::TempDir;
    use tokio::time::{Instant, sleep};

    /// Accepts everything, and records the calls.
    #[derive(Default)]
    struct AcceptingAuthenticator(Mutex<Vec<&'static str>>);

    impl AcceptingAuthenticator {
        fn note(&self, what: &'static str) {
            self.0.lock().push(what);
        }
    }

    impl Authenticator for AcceptingAuthenticator {
        async fn authenticate(&self, _: &LoginUser, _: &Secret, _: Duration) -> AuthOutcome {
            self.note("authenticate");
            AuthOutcome::from_result(AuthResult::Success)
        }

        async fn simulate_wrong_password(&self) -> bool {
            self.note("pretend");
            true
        }

        async fn prepare_change(&self, _: &LoginUser, _: &Secret) -> AuthOutcome {
            self.note("prepare");
            AuthOutcome::from_result(AuthResult::Success)
        }

        async fn change(&self, _: &LoginUser, _: &Secret, _: &Secret) -> AuthOutcome {
            self.note("change");
            AuthOutcome::from_result(AuthResult::Success)
        }
    }

    fn log_ins() -> LoginService<AcceptingAuthenticator> {
        LoginService::new(
            AcceptingAuthenticator::default(),
            Arc::new(OfflineAuth::disabled()),
            AccessControl::Open,
        )
    }

    fn secret(bytes: &[u8]) -> Secret {
        Secret::copy_of(bytes).expect("memory")
    }

    #[tokio::test]
    async fn an_impossible_password_is_wrong_and_shown_to_nobody() {
        let log_ins = log_ins();
        let (who, good) = (LoginRequest::default(), secret(b"good"));
        for bad in [&b""[..], b"a\0b", &[b'x'; SECRET_BYTES_MAX + 1]] {
            let bad = secret(bad);
            for answer in [
                log_ins.authenticate(&who, &bad).await,
                log_ins.prepare_change(&who, &bad).await,
                log_ins.change_password(&who, &bad, &good).await,
            ] {
                assert_eq!(answer.result, AuthResult::WrongPassword);
            }
            let answer = log_ins.change_password(&who, &good, &bad).await;
            assert_eq!(answer.result, AuthResult::NewPasswordRefused);
            assert_eq!(answer.messages.len(), 1);
        }
        let asked = log_ins.authenticator.0.lock();
        assert!(asked.iter().all(|what| *what == "pretend"), "{asked:?}");
    }

    #[tokio::test]
    async fn nobody_is_let_in_under_a_name_that_is_not_served() {
        let log_ins = log_ins();
        let who = LoginRequest { is_decoy: true, ..LoginRequest::default() };
        let good = secret(b"good");
        for answer in [
            log_ins.authenticate(&who, &good).await,
            log_ins.check_account(&who).await,
            log_ins.prepare_change(&who, &good).await,
            log_ins.change_password(&who, &good, &good).await,
        ] {
            assert_eq!(answer.result, AuthResult::UnknownUser);
        }
        let asked = log_ins.authenticator.0.lock();
        assert_eq!(*asked, ["pretend"; 3]);
    }

    /// An unreachable directory, except for the results that a test sets.
    #[derive(Default)]
    struct UnreachableAuthenticator {
        log_in: Mutex<Option<AuthResult>>,
        change: Mutex<Option<AuthResult>>,
        /// As for a KDC that has not proved to know a key of this host.
        is_unverified: AtomicBool,
    }

    impl Authenticator for UnreachableAuthenticator {
        async fn authenticate(&self, _: &LoginUser, _: &Secret, _: Duration) -> AuthOutcome {
            let verdict = self.log_in.lock().unwrap_or(AuthResult::Unreachable);
            let is_hearsay = self.is_unverified.load(Ordering::Relaxed);
            AuthOutcome { is_unverified: is_hearsay, ..AuthOutcome::from_result(verdict) }
        }

        async fn simulate_wrong_password(&self) -> bool {
            self.log_in.lock().is_some()
        }

        async fn prepare_change(&self, _: &LoginUser, _: &Secret) -> AuthOutcome {
            AuthOutcome::from_result(AuthResult::Success)
        }

        async fn change(&self, _: &LoginUser, _: &Secret, _: &Secret) -> AuthOutcome {
            AuthOutcome::from_result(self.change.lock().unwrap_or(AuthResult::Unreachable))
        }
    }

    /// The login service of a domain with alice, bob and carol, and with cached credentials.
    struct TestLogin {
        log_ins: LoginService<UnreachableAuthenticator>,
        _folder: TempDir,
    }

    impl TestLogin {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let engine = engine(DomainMode::Replicate);
            refresh(&engine, &["alice", "bob", "carol"], &[], "1");
            let settings = Settings {
                life: Duration::from_secs(86_400),
                failures: 9,
                lockout: Duration::from_secs(3600),
                hash_time: Duration::from_millis(10),
            };
            let people = Arc::new(UserIndex::new(engine, DomainMode::Replicate, false));
            let offline = Arc::new(OfflineAuth::open(folder.path(), Some(settings), people, None));
            let log_ins = LoginService::new(
                UnreachableAuthenticator::default(),
                offline,
                AccessControl::Open,
            );
            Self { log_ins, _folder: folder }
        }

        /// Logs in while the directory replies, and waits until the credentials are cached.
        async fn log_in(&self, name: &str, password: &Secret) {
            self.answers_log_ins(Some(AuthResult::Success));
            let who = who(name);
            assert_eq!(self.log_ins.authenticate(&who, password).await.result, AuthResult::Success);
            self.wait_until_kept(name, true).await;
            self.answers_log_ins(None);
        }

        fn answers_log_ins(&self, verdict: Option<AuthResult>) {
            *self.log_ins.authenticator.log_in.lock() = verdict;
        }

        async fn wait_until_kept(&self, name: &str, is_kept: bool) {
            let person = to_person(&who(name));
            wait_until("kept or forgotten", || {
                self.log_ins.offline.has_credential(&person) == is_kept
            })
            .await;
        }
    }

    fn who(name: &str) -> LoginRequest {
        LoginRequest {
            user: name.as_bytes().to_vec(),
            uid: uid_of(name),
            ..LoginRequest::default()
        }
    }

    #[tokio::test]
    async fn offline_password_unconfirmed_change_is_not_kept() {
        let host = TestLogin::new();
        let (old, new) = (secret(b"old"), secret(b"new"));
        for verdict in [AuthResult::Unreachable, AuthResult::Misconfigured] {
            host.log_in("alice", &old).await;
            *host.log_ins.authenticator.change.lock() = Some(verdict);
            assert_eq!(
                host.log_ins.change_password(&who("alice"), &old, &new).await.result,
                verdict
            );
            host.wait_until_kept("alice", false).await;
        }
        // A change that certainly failed leaves the cached credentials.
        host.log_in("alice", &old).await;
        let refused = AuthResult::NewPasswordRefused;
        *host.log_ins.authenticator.change.lock() = Some(refused);
        assert_eq!(host.log_ins.change_password(&who("alice"), &old, &new).await.result, refused);
        sleep(Duration::from_millis(50)).await;
        assert_eq!(
            host.log_ins.authenticate(&who("alice"), &old).await.result,
            AuthResult::Success
        );
    }

    #[tokio::test]
    async fn log_in_unverified_success_keeps_nothing() {
        let host = TestLogin::new();
        let (good, forged) = (secret(b"good"), secret(b"forged"));
        host.log_in("alice", &good).await;
        let unverified = &host.log_ins.authenticator.is_unverified;
        unverified.store(true, Ordering::Relaxed);
        host.answers_log_ins(Some(AuthResult::Success));
        for name in ["alice", "bob"] {
            let answer = host.log_ins.authenticate(&who(name), &forged).await;
            assert_eq!(answer.result, AuthResult::Success);
        }
        unverified.store(false, Ordering::Relaxed);
        // Before a later password is cached, these would have been.
        host.log_in("carol", &good).await;
        for (name, password, verdict) in [
            ("alice", &forged, AuthResult::WrongPassword),
            ("alice", &good, AuthResult::Success),
            ("bob", &forged, AuthResult::Unreachable),
        ] {
            let answer = host.log_ins.authenticate(&who(name), password).await;
            assert_eq!(answer.result, verdict, "{name}");
        }
    }

    #[test]
    fn a_change_is_undone_only_where_that_is_sure() {
        for verdict in AuthResult::ALL {
            let became = |is_hearsay, is_undone| {
                change_outcome(&AuthOutcome {
                    is_unverified: is_hearsay,
                    is_surely_unchanged: is_undone,
                    ..AuthOutcome::from_result(verdict)
                })
            };
            let is_unclear = matches!(verdict, AuthResult::Unreachable | AuthResult::Misconfigured);
            let (plain, said, undone) = match verdict {
                AuthResult::Success => (
                    PasswordChangeOutcome::Done,
                    PasswordChangeOutcome::Unclear,
                    PasswordChangeOutcome::Done,
                ),
                _ if is_unclear => (
                    PasswordChangeOutcome::Unclear,
                    PasswordChangeOutcome::Unclear,
                    PasswordChangeOutcome::Rejected,
                ),
                _ => (
                    PasswordChangeOutcome::Rejected,
                    PasswordChangeOutcome::Unclear,
                    PasswordChangeOutcome::Rejected,
                ),
            };
            assert_eq!(became(false, false), plain, "{verdict:?}");
            assert_eq!(became(true, false), said, "{verdict:?}");
            assert_eq!(became(false, true), undone, "{verdict:?}");
            if verdict != AuthResult::Success {
                assert_eq!(
                    became(true, true),
                    PasswordChangeOutcome::RejectedUnverified,
                    "{verdict:?}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn log_in_offline_refusals_take_equally_long() {
        let host = TestLogin::new();
        let (good, bad) = (secret(b"good"), secret(b"bad"));
        host.log_in("alice", &good).await;
        // The clock is simulated: it advances only while the program sleeps.
        let mut took = Vec::new();
        let nobody = LoginRequest { is_decoy: true, ..who("mallory") };
        for (who, verdict) in [
            (who("alice"), AuthResult::WrongPassword),
            (who("bob"), AuthResult::Unreachable),
            (nobody, AuthResult::UnknownUser),
        ] {
            let start = Instant::now();
            assert_eq!(host.log_ins.authenticate(&who, &bad).await.result, verdict);
            took.push(start.elapsed());
        }
        assert!(took[0] >= Duration::from_millis(500), "{took:?}");
        assert_eq!(took, [took[0]; 3]);
        // A refusal by the directory adds no sleep.
        host.answers_log_ins(Some(AuthResult::WrongPassword));
        let start = Instant::now();
        let nobody = LoginRequest { is_decoy: true, ..who("mallory") };
        host.log_ins.authenticate(&nobody, &bad).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[test]
    fn login_impossible_password_has_code() {
        let long = vec![b'a'; SECRET_BYTES_MAX + 1];
        for password in [&b""[..], b"a\0b", &long] {
            // Longer ones cannot even be copied.
            let Some(password) = Secret::copy_of(password) else { continue };
            let refused = reject_impossible_password(&password).expect("impossible");
            assert_eq!(refused.message, Some(&login::PASSWORD_IMPOSSIBLE));
        }
    }
}
