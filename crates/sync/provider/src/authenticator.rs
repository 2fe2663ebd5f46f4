// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of logins: an [`Authenticator`] verifies a password at the directory or at a KDC. It decides neither
//! about offline logins nor about access rules.

use crate::reason::Reason;
use roster_messages::{Message, login_refusal};
use roster_request::{AuthResult, auth::MESSAGES_MAX};
use roster_secret::Secret;
use std::future::Future;
use std::time::Duration;

/// The user of a login, as served on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginUser {
    /// Login name in the directory.
    pub name: Vec<u8>,
    /// User id in the directory. If the name has another uid in the directory, it is another user, and the login is denied.
    pub uid: u32,
    /// User id on this host, which owns files of the session.
    pub host_uid: u32,
}

/// A message for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginMessage {
    /// The message reports an error.
    pub is_error: bool,
    /// One line of text.
    pub text: String,
}

/// The result of a login or of a change of password, from any authenticator.
#[derive(Debug)]
pub struct AuthOutcome {
    /// The decision.
    pub result: AuthResult,
    /// Messages for the user. Before the password is verified, they state no more than the result.
    pub messages: Vec<LoginMessage>,
    /// The row of the table for the reason. `None`: that of the result, see [`message`](Self::message).
    pub message: Option<&'static Message>,
    /// The reason for the log, in one line. Empty if the result is sufficient.
    pub reason: String,
    /// Data for the user's session: a credential cache. Only with [`AuthResult::Success`] and
    /// [`AuthResult::MustChange`].
    pub blob: Option<Secret>,
    /// The directory was unreachable, and a cached credential decided.
    pub is_offline: bool,
    /// Any host of the network may have sent the result. It holds for this request only, and neither caches a password
    /// for offline logins nor removes one. After a change of password, nothing proves the new password, so it is not
    /// cached.
    pub is_unverified: bool,
    /// For a failed change: the password is certainly unchanged. If false, the result decides.
    pub is_surely_unchanged: bool,
}

impl AuthOutcome {
    /// Returns an outcome with this result only.
    #[must_use]
    pub fn from_result(verdict: AuthResult) -> Self {
        Self {
            result: verdict,
            messages: Vec::new(),
            message: None,
            reason: String::new(),
            blob: None,
            is_offline: false,
            is_unverified: false,
            is_surely_unchanged: false,
        }
    }

    /// Returns an outcome with a reason for the log and the code of the result.
    #[must_use]
    pub fn with_reason(verdict: AuthResult, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..Self::from_result(verdict) }
    }

    /// Returns an outcome with a coded reason for the log.
    #[must_use]
    pub fn for_reason(verdict: AuthResult, reason: Reason) -> Self {
        let Reason { message, text } = reason;
        Self { message: Some(message), ..Self::with_reason(verdict, text) }
    }

    /// Returns the row of the table for a refusal. `None` for a success.
    #[must_use]
    pub fn message(&self) -> Option<&'static Message> {
        let by_result = login_refusal(self.result)?;
        Some(self.message.unwrap_or(by_result))
    }

    /// Adds a message, up to the limit.
    #[must_use]
    pub fn with_message(mut self, is_error: bool, text: impl Into<String>) -> Self {
        if self.messages.len() < MESSAGES_MAX {
            self.messages.push(LoginMessage { is_error, text: text.into() });
        }
        self
    }
}

/// Verifies passwords. The passwords are not empty, have no NUL and at most `roster_request::auth::SECRET_BYTES_MAX`
/// bytes.
pub trait Authenticator: Send + Sync {
    /// Verifies the password of a user. Returns [`AuthResult::Unreachable`] if no server replied, and immediately if
    /// all are known to be unreachable.
    ///
    /// `patience` limits the wait for the first reply of a server that may be down. It is short if the host has a
    /// cached credential. A server that replies gets the configured timeout.
    fn authenticate(
        &self,
        person: &LoginUser,
        password: &Secret,
        patience: Duration,
    ) -> impl Future<Output = AuthOutcome> + Send;

    /// Does the same work as [`authenticate`](Self::authenticate) with a wrong password, for a user that does not
    /// exist. Returns whether a server has replied.
    fn simulate_wrong_password(&self) -> impl Future<Output = bool> + Send;

    /// Verifies the present password and returns whether the user may change it. Changes nothing.
    fn prepare_change(
        &self,
        person: &LoginUser,
        password: &Secret,
    ) -> impl Future<Output = AuthOutcome> + Send;

    /// Changes the password.
    fn change(
        &self,
        person: &LoginUser,
        password: &Secret,
        new: &Secret,
    ) -> impl Future<Output = AuthOutcome> + Send;
}

/// The authenticator of a domain without logins.
#[derive(Clone, Copy, Debug)]
pub struct NoAuthenticator;

impl Authenticator for NoAuthenticator {
    async fn authenticate(&self, _: &LoginUser, _: &Secret, _: Duration) -> AuthOutcome {
        AuthOutcome::from_result(AuthResult::NotHandled)
    }

    async fn simulate_wrong_password(&self) -> bool {
        true
    }

    async fn prepare_change(&self, _: &LoginUser, _: &Secret) -> AuthOutcome {
        AuthOutcome::from_result(AuthResult::NotHandled)
    }

    async fn change(&self, _: &LoginUser, _: &Secret, _: &Secret) -> AuthOutcome {
        AuthOutcome::from_result(AuthResult::NotHandled)
    }
}
