//! Log-ins by Kerberos. Nothing here speaks Kerberos: a program that does, `roster-krb5`, is started
//! before the back-end gives up its rights ([`Helper`]), and [`Kerberos`] puts passwords to it.
//!
//! The program has a process for each log-in; here are the deadlines, what is known of whether any KDC
//! is there, and what outcomes mean to who logs in.
#![forbid(unsafe_code)]

mod helper;
mod presence;
mod servers;

pub use helper::Helper;

use helper::Line;
use roster_config::Krb5;
use roster_krb5::message::{Reply, Request, Want};
use roster_krb5::outcome::Outcome;
use roster_krb5::realm::Realm;
use roster_krb5::tickets::Tickets;
use roster_provider::log_in::{Answer, Authenticator, Person};
use roster_secret::Secret;
use roster_wire::pam::{BLOB_BYTES_MAX, Verdict};
use servers::Servers;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// A realm that is asked.
pub struct Kerberos {
    realm: Krb5,
    /// How long a KDC that is there may take.
    timeout: Duration,
    servers: Arc<Servers>,
}

/// Who nobody is: a name that no realm has, for when it matters only whether a KDC answers.
const NOBODY: &str = "roster-nobody-by-that-name";
/// One that was silent for so long may be away, and the others are looked at.
const PATIENCE_MAX: Duration = Duration::from_millis(800);
/// A password that expires within this time is told of.
const EXPIRY_TOLD_WITHIN: Duration = Duration::from_secs(7 * 24 * 3600);

/// The realm as `roster-krb5` is told of it.
fn realm(krb5: &Krb5) -> Realm {
    let Krb5 { realm, kdcs, kpasswd, discover, .. } = krb5;
    Realm {
        name: realm.clone(),
        kdcs: kdcs.clone(),
        kpasswds: kpasswd.clone(),
        discover: *discover,
    }
}

impl Kerberos {
    /// Asks by way of a program that was started before, or says why it could not be. `timeout` is how
    /// long a KDC that is there may take.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    #[must_use]
    pub fn new(krb5: &Krb5, timeout: Duration, helper: Result<Helper, String>) -> Self {
        Self {
            realm: krb5.clone(),
            timeout,
            servers: Servers::new(Line::new(helper), realm(krb5), timeout),
        }
    }

    /// Returns when the program has ended that log-ins need.
    pub async fn ended(&self) {
        self.servers.ended().await;
    }

    /// Puts a request to the program. A KDC that says nothing for as long as `patience` may be away.
    async fn ask(
        &self,
        person: &Person,
        want: Want,
        (password, new_password): (&[u8], &[u8]),
        (patience, deadline): (Duration, Duration),
    ) -> Reply {
        let Ok(name) = std::str::from_utf8(&person.name) else {
            return Reply::of(0, Outcome::UnknownUser, "the name is not UTF-8");
        };
        let request = request(name, want, password, new_password, deadline);
        self.servers.ask(request, patience.min(PATIENCE_MAX)).await
    }

    fn answer(&self, person: &Person, reply: Reply) -> Answer {
        let Reply { outcome, is_sure, is_undone, words, detail, password_expires, ticket, .. } =
            reply;
        let verdict = verdict(outcome);
        if verdict == Verdict::Misconfigured {
            tracing::error!("log-ins by Kerberos: {detail}");
        }
        let mut answer = Answer::because(verdict, detail);
        answer.is_hearsay = !is_sure;
        answer.is_undone = is_undone;
        for line in words.lines().filter(|line| !line.trim().is_empty()) {
            answer = answer.telling(outcome != Outcome::Success, line.trim());
        }
        if verdict == Verdict::Success
            && let Some(text) = expiry(password_expires, SystemTime::now())
        {
            answer = answer.telling(false, text);
        }
        if verdict == Verdict::Success && !ticket.is_empty() {
            answer.blob = self.blob(person, ticket);
        }
        answer
    }

    /// The ticket for the user's session; none where it is not kept.
    fn blob(&self, person: &Person, file: Zeroizing<Vec<u8>>) -> Option<Secret> {
        let cache = self.realm.cache.as_ref()?;
        let tickets = Tickets {
            cache: cache.replace("%{uid}", &person.uid.to_string()),
            realm: realm(&self.realm),
            renew: !self.realm.renewable.is_zero(),
            file,
        };
        let bytes = tickets.encode();
        if bytes.len() > BLOB_BYTES_MAX {
            tracing::warn!(
                "a ticket of {} bytes has no room on its way to the session, which has none",
                bytes.len()
            );
            return None;
        }
        Secret::copy_of(&bytes)
    }
}

fn request(
    name: &str,
    want: Want,
    password: &[u8],
    new_password: &[u8],
    deadline: Duration,
) -> Request {
    Request {
        id: 0,
        deadline,
        want,
        name: name.to_owned(),
        is_principal: false,
        realm: None,
        password: Zeroizing::new(password.to_vec()),
        new_password: Zeroizing::new(new_password.to_vec()),
    }
}

impl Authenticator for Kerberos {
    async fn authenticate(&self, person: &Person, password: &Secret, patience: Duration) -> Answer {
        let words = (password.as_bytes(), &b""[..]);
        let reply = self.ask(person, Want::Ticket, words, (patience, self.timeout)).await;
        self.answer(person, reply)
    }

    async fn pretend(&self) -> bool {
        let nobody = Person { name: NOBODY.into(), uid: u32::MAX };
        let words = (&b"none"[..], &b""[..]);
        let reply = self.ask(&nobody, Want::Presence, words, (self.timeout, self.timeout)).await;
        verdict(reply.outcome) != Verdict::Unreachable
    }

    async fn prepare_change(&self, person: &Person, password: &Secret) -> Answer {
        let words = (password.as_bytes(), &b""[..]);
        let reply = self.ask(person, Want::MayChange, words, (self.timeout, self.timeout)).await;
        self.answer(person, reply)
    }

    async fn change(&self, person: &Person, password: &Secret, new: &Secret) -> Answer {
        let words = (password.as_bytes(), new.as_bytes());
        // As many exchanges as three log-ins have.
        let limits = (self.timeout, self.timeout * 3);
        let reply = self.ask(person, Want::Change, words, limits).await;
        self.answer(person, reply)
    }
}

/// What an outcome is to who logs in. What has no name is never taken for a server that is away: an
/// old password must not be believed then.
fn verdict(outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::Success => Verdict::Success,
        Outcome::WrongPassword => Verdict::WrongPassword,
        Outcome::UnknownUser => Verdict::UnknownUser,
        Outcome::MustChange => Verdict::MustChange,
        Outcome::Locked => Verdict::Locked,
        Outcome::AccountExpired => Verdict::AccountExpired,
        Outcome::Refused => Verdict::Denied,
        Outcome::NewPasswordRefused => Verdict::NewPasswordRefused,
        Outcome::Unreachable => Verdict::Unreachable,
        Outcome::Misconfigured | Outcome::NotVerified | Outcome::Failed => Verdict::Misconfigured,
    }
}

/// What to say of a password that will have expired at that second since 1970.
fn expiry(at: u32, now: SystemTime) -> Option<String> {
    if at == 0 {
        return None;
    }
    let at = UNIX_EPOCH + Duration::from_secs(at.into());
    let left = at.duration_since(now).ok().filter(|left| *left <= EXPIRY_TOLD_WITHIN)?;
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
        for outcome in (0..=u8::MAX).filter_map(Outcome::of_code) {
            let is_success = verdict(outcome) == Verdict::Success;
            assert_eq!(is_success, outcome == Outcome::Success, "{outcome:?}");
            let is_away = verdict(outcome) == Verdict::Unreachable;
            assert_eq!(is_away, outcome == Outcome::Unreachable, "{outcome:?}");
        }
    }

    #[test]
    fn a_password_is_told_of_in_its_last_week() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let said = |after: u32| expiry(1_000_000 + after, now);
        assert_eq!(expiry(0, now), None);
        assert_eq!(expiry(999_999, now), None);
        assert_eq!(said(8 * 86_400), None);
        assert_eq!(said(3 * 86_400).unwrap(), "Your password will expire in 3 days.");
        assert_eq!(said(5 * 3600).unwrap(), "Your password will expire in 5 hours.");
        assert_eq!(said(60).unwrap(), "Your password will expire within an hour.");
    }
}
