// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logins by Kerberos. The protocol is in a separate program, `roster-krb5`, which starts before the backend drops its
//! rights ([`Krb5HelperProcess`]). [`Krb5Authenticator`] sends passwords to it.
//!
//! [`BindHelperProcess`] starts the program for binds of an LDAP domain by this host's key.
//!
//! The program has a process for each login. This crate has the deadlines, the availability of KDCs, and the conversion
//! of outcomes to login results.
#![forbid(unsafe_code)]

mod helper;
mod kdc_availability;
mod kdc_selection;
mod operation_log;

pub use helper::{BindHelperProcess, Krb5HelperProcess};

use helper::HelperClient;
use kdc_selection::KdcSelection;
use roster_config::Krb5Config;
use roster_krb5_helper::ipc::{HelperOperation, HelperReply, HelperRequest};
use roster_krb5_helper::kdc_errors::KdcOutcome;
use roster_krb5_helper::realm::Realm;
use roster_krb5_helper::session_ticket::SessionTicket;
use roster_messages::{log, table::login};
use roster_provider::authenticator::{AuthOutcome, Authenticator, LoginUser};
use roster_provider::reason::Reason;
use roster_request::{AuthResult, auth::BLOB_BYTES_MAX};
use roster_secret::Secret;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Authenticates the users of a realm.
pub struct Krb5Authenticator {
    realm: Krb5Config,
    /// Time limit of an available KDC.
    timeout: Duration,
    servers: Arc<KdcSelection>,
}

/// A name that exists in no realm, for probes of KDCs.
const NONEXISTENT_USER: &str = "roster-nobody-by-that-name";
/// A KDC without a reply for this time may be unavailable, and the others are probed.
const REPLY_WAIT_MAX: Duration = Duration::from_millis(800);
/// A password that expires within this time causes a warning.
const EXPIRY_WARNING_WITHIN: Duration = Duration::from_secs(7 * 24 * 3600);

/// Converts the realm for `roster-krb5`.
fn realm(krb5: &Krb5Config) -> Realm {
    let Krb5Config { realm, kdcs, kpasswd, discover, .. } = krb5;
    Realm {
        name: realm.clone(),
        kdcs: kdcs.clone(),
        kpasswds: kpasswd.clone(),
        discover: *discover,
    }
}

impl Krb5Authenticator {
    /// Makes an authenticator with a running program, or with the reason why it does not run. `timeout` is the time
    /// limit of an available KDC.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    #[must_use]
    pub fn new(
        krb5: &Krb5Config,
        timeout: Duration,
        helper: Result<Krb5HelperProcess, Reason>,
    ) -> Self {
        Self {
            realm: krb5.clone(),
            timeout,
            servers: KdcSelection::new(HelperClient::new(helper), realm(krb5), timeout),
        }
    }

    /// Returns when the program has ended, without which logins are impossible.
    pub async fn ended(&self) {
        self.servers.ended().await;
    }

    /// Sends a request to the program. A KDC without a reply within `patience` may be unavailable.
    async fn send_request(
        &self,
        person: &LoginUser,
        want: HelperOperation,
        (password, new_password): (&[u8], &[u8]),
        (patience, deadline): (Duration, Duration),
    ) -> HelperReply {
        let Ok(name) = std::str::from_utf8(&person.name) else {
            let refused =
                HelperReply::from_outcome(0, KdcOutcome::UnknownUser, "the name is not UTF-8");
            return refused.with_message(&login::PRINCIPAL_INVALID);
        };
        let request = request(name, want, password, new_password, deadline);
        self.servers.send_request(request, patience.min(REPLY_WAIT_MAX)).await
    }

    fn auth_outcome(&self, person: &LoginUser, reply: HelperReply) -> AuthOutcome {
        let HelperReply {
            outcome,
            message,
            is_verified: is_sure,
            is_surely_unchanged: is_undone,
            user_text: words,
            detail,
            password_expires,
            ticket,
            ..
        } = reply;
        let verdict = auth_result(outcome);
        // roster-krb5 knows the keytab by its bytes only.
        let detail = match message == Some(&login::FAST_KEY_MISSING) {
            true => format!("{}: {detail}", self.realm.keytab),
            false => detail,
        };
        if verdict == AuthResult::Misconfigured {
            let cause = message.unwrap_or(&login::KDC_ERROR);
            log!(ERROR, cause, "Kerberos login: {detail}");
        }
        let mut answer = AuthOutcome::with_reason(verdict, detail);
        answer.message = message;
        answer.is_unverified = !is_sure;
        answer.is_surely_unchanged = is_undone;
        for line in words.lines().filter(|line| !line.trim().is_empty()) {
            answer = answer.with_message(outcome != KdcOutcome::Success, line.trim());
        }
        if verdict == AuthResult::Success
            && let Some(text) = expiry_warning(password_expires, SystemTime::now())
        {
            answer = answer.with_message(false, text);
        }
        if verdict == AuthResult::Success && !ticket.is_empty() {
            answer.blob = self.session_blob(person, ticket);
        }
        answer
    }

    /// Returns the ticket for the user's session; `None` if the configuration stores none.
    fn session_blob(&self, person: &LoginUser, file: Zeroizing<Vec<u8>>) -> Option<Secret> {
        let cache = self.realm.cache.as_ref()?;
        let tickets = SessionTicket {
            cache: cache.replace("%{uid}", &person.host_uid.to_string()),
            realm: realm(&self.realm),
            renew: !self.realm.renewable.is_zero(),
            file,
        };
        let bytes = tickets.encode();
        if bytes.len() > BLOB_BYTES_MAX {
            log!(
                WARN,
                &login::TICKET_TOO_LARGE,
                "the ticket has {} bytes; the session starts without it",
                bytes.len()
            );
            return None;
        }
        Secret::copy_of(&bytes)
    }
}

fn request(
    name: &str,
    want: HelperOperation,
    password: &[u8],
    new_password: &[u8],
    deadline: Duration,
) -> HelperRequest {
    HelperRequest {
        id: 0,
        deadline,
        operation: want,
        name: name.to_owned(),
        is_principal: false,
        realm: None,
        password: Zeroizing::new(password.to_vec()),
        new_password: Zeroizing::new(new_password.to_vec()),
    }
}

impl Authenticator for Krb5Authenticator {
    async fn authenticate(
        &self,
        person: &LoginUser,
        password: &Secret,
        patience: Duration,
    ) -> AuthOutcome {
        let words = (password.as_bytes(), &b""[..]);
        let reply = self
            .send_request(person, HelperOperation::Ticket, words, (patience, self.timeout))
            .await;
        self.auth_outcome(person, reply)
    }

    async fn simulate_wrong_password(&self) -> bool {
        let nobody = LoginUser { name: NONEXISTENT_USER.into(), uid: u32::MAX, host_uid: u32::MAX };
        let words = (&b"none"[..], &b""[..]);
        let reply = self
            .send_request(&nobody, HelperOperation::Probe, words, (self.timeout, self.timeout))
            .await;
        auth_result(reply.outcome) != AuthResult::Unreachable
    }

    async fn prepare_change(&self, person: &LoginUser, password: &Secret) -> AuthOutcome {
        let words = (password.as_bytes(), &b""[..]);
        let reply = self
            .send_request(person, HelperOperation::MayChange, words, (self.timeout, self.timeout))
            .await;
        self.auth_outcome(person, reply)
    }

    async fn change(&self, person: &LoginUser, password: &Secret, new: &Secret) -> AuthOutcome {
        let words = (password.as_bytes(), new.as_bytes());
        // As many exchanges as three logins have.
        let limits = (self.timeout, self.timeout * 3);
        let reply = self.send_request(person, HelperOperation::Change, words, limits).await;
        self.auth_outcome(person, reply)
    }
}

/// Converts an outcome to a login result. Unknown outcomes never count as an unreachable server: cached credentials
/// must not be used then.
fn auth_result(outcome: KdcOutcome) -> AuthResult {
    match outcome {
        KdcOutcome::Success => AuthResult::Success,
        KdcOutcome::WrongPassword => AuthResult::WrongPassword,
        KdcOutcome::UnknownUser => AuthResult::UnknownUser,
        KdcOutcome::MustChange => AuthResult::MustChange,
        KdcOutcome::Locked => AuthResult::Locked,
        KdcOutcome::AccountExpired => AuthResult::AccountExpired,
        KdcOutcome::Refused => AuthResult::Denied,
        KdcOutcome::NewPasswordRefused => AuthResult::NewPasswordRefused,
        KdcOutcome::Unreachable => AuthResult::Unreachable,
        KdcOutcome::Misconfigured | KdcOutcome::NotVerified | KdcOutcome::Failed => {
            AuthResult::Misconfigured
        }
    }
}

/// Returns the warning about a password that expires at that second since 1970.
fn expiry_warning(at: u32, now: SystemTime) -> Option<String> {
    if at == 0 {
        return None;
    }
    let at = UNIX_EPOCH + Duration::from_secs(at.into());
    let left = at.duration_since(now).ok().filter(|left| *left <= EXPIRY_WARNING_WITHIN)?;
    let hours = left.as_secs() / 3600;
    Some(match hours {
        0 => "Your password will expire within an hour.".to_owned(),
        1..48 => format!("Your password will expire in {} hours.", hours.max(2)),
        hours => format!("Your password will expire in {} days.", hours / 24),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_success_is_one() {
        for outcome in (0..=u8::MAX).filter_map(KdcOutcome::from_code) {
            let is_success = auth_result(outcome) == AuthResult::Success;
            assert_eq!(is_success, outcome == KdcOutcome::Success, "{outcome:?}");
            let is_away = auth_result(outcome) == AuthResult::Unreachable;
            assert_eq!(is_away, outcome == KdcOutcome::Unreachable, "{outcome:?}");
        }
    }

    #[test]
    fn a_password_is_told_of_in_its_last_week() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let said = |after: u32| expiry_warning(1_000_000 + after, now);
        assert_eq!(expiry_warning(0, now), None);
        assert_eq!(expiry_warning(999_999, now), None);
        assert_eq!(said(8 * 86_400), None);
        assert_eq!(said(3 * 86_400).unwrap(), "Your password will expire in 3 days.");
        assert_eq!(said(5 * 3600).unwrap(), "Your password will expire in 5 hours.");
        assert_eq!(said(60).unwrap(), "Your password will expire within an hour.");
    }
}
