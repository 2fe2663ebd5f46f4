//! What it takes to log people in: an [`Authenticator`] puts a password to the directory, or to
//! whoever else knows it. What is done when nobody can be asked, and who may in at all, is not
//! decided here.

use roster_secret::Secret;
use roster_wire::pam::{MESSAGES_MAX, Verdict};
use std::future::Future;
use std::time::Duration;

/// Who logs in, as served on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// Log-in name.
    pub name: Vec<u8>,
    /// User id. Who has the name in the directory under another is somebody else, and is refused.
    pub uid: u32,
}

/// Something to show to whoever logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether it says that something went wrong.
    pub is_error: bool,
    /// One line.
    pub text: String,
}

/// What came of it, whoever decided.
#[derive(Debug)]
pub struct Answer {
    /// The decision.
    pub verdict: Verdict,
    /// To show to the person; nothing that tells more than the verdict to who has not proven who they are.
    pub messages: Vec<Message>,
    /// For the log: why, in one line; empty when the verdict says it all.
    pub reason: String,
    /// What opens the person's session: a credential cache. Only with [`Verdict::Success`] and
    /// [`Verdict::MustChange`].
    pub blob: Option<Secret>,
    /// Whether the directory was away, and what is kept on this host was believed.
    pub is_offline: bool,
    /// Whether any host of the network may have sent it. The verdict holds for this request, and neither keeps
    /// a password for offline logins nor forgets one. Of a change that was done: nothing has shown that the
    /// new password is the right one, so it is not kept.
    pub is_hearsay: bool,
    /// Of a change that is no success: whether it was surely not done. Otherwise the verdict tells.
    pub is_undone: bool,
}

impl Answer {
    /// A verdict without more.
    #[must_use]
    pub fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            messages: Vec::new(),
            reason: String::new(),
            blob: None,
            is_offline: false,
            is_hearsay: false,
            is_undone: false,
        }
    }

    /// The same with a reason for the log.
    #[must_use]
    pub fn because(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..Self::of(verdict) }
    }

    /// The same with one more message, of those that there is room for.
    #[must_use]
    pub fn telling(mut self, is_error: bool, text: impl Into<String>) -> Self {
        if self.messages.len() < MESSAGES_MAX {
            self.messages.push(Message { is_error, text: text.into() });
        }
        self
    }
}

/// Puts passwords to who knows them. Passwords that come here are not empty, have no NUL and are at most
/// `roster_wire::pam::SECRET_BYTES_MAX` long.
pub trait Authenticator: Send + Sync {
    /// Whether the password is the person's. [`Verdict::Unreachable`] when nobody who knows has answered; that
    /// none will be, for they are known to be away, is said at once.
    ///
    /// `patience` is how long whoever asks waits for a sign of life from a server that may be away: short
    /// where there is something to go by without it. A server that is known to be there is waited for as long
    /// as the configuration says.
    fn authenticate(
        &self,
        person: &Person,
        password: &Secret,
        patience: Duration,
    ) -> impl Future<Output = Answer> + Send;

    /// Does what [`authenticate`](Self::authenticate) does for a wrong password, for somebody who does not
    /// exist. Whether somebody who knows passwords has answered.
    fn pretend(&self) -> impl Future<Output = bool> + Send;

    /// Whether the person may change the password, whose present one is this. Changes nothing.
    fn prepare_change(
        &self,
        person: &Person,
        password: &Secret,
    ) -> impl Future<Output = Answer> + Send;

    /// Changes the password.
    fn change(
        &self,
        person: &Person,
        password: &Secret,
        new: &Secret,
    ) -> impl Future<Output = Answer> + Send;
}

/// Of a domain that authenticates nobody.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Authenticator for Nobody {
    async fn authenticate(&self, _: &Person, _: &Secret, _: Duration) -> Answer {
        Answer::of(Verdict::NotOurs)
    }

    async fn pretend(&self) -> bool {
        true
    }

    async fn prepare_change(&self, _: &Person, _: &Secret) -> Answer {
        Answer::of(Verdict::NotOurs)
    }

    async fn change(&self, _: &Person, _: &Secret, _: &Secret) -> Answer {
        Answer::of(Verdict::NotOurs)
    }
}
