// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes one login, or one change of a password: the requests to the KDC and their order. Runs in a dedicated
//! process, which ends with the reply. `server` starts the process and limits its time, and `libkrb5` makes the
//! exchanges.

use crate::libkrb5::{
    Ccache, ChangeReply, GrantedTicket, KerberosTicket, Keytab, LibraryContext, LibraryError,
    Principal, TicketOptions,
};
use roster_krb5_helper::ipc::{HelperOperation, HelperReply, HelperRequest, HelperSetup};
use roster_krb5_helper::kdc_errors::{
    KdcOutcome, error_message, fast_ticket_message, lacks_fast, login_outcome, probe_outcome,
    verification_outcome,
};
use roster_messages::{Message, table::login};
use std::ffi::{CStr, CString};
use std::time::Duration;
use zeroize::Zeroizing;

/// The service for password changes.
const CHANGEPW: &CStr = c"kadmin/changepw";
/// Lifetime of its tickets, which are used at once.
const CHANGEPW_LIFE: Duration = Duration::from_secs(5 * 60);

/// The context of a request.
pub struct AuthAttempt<'c> {
    pub context: &'c LibraryContext,
    pub setup: &'c HelperSetup,
    /// Keys of this host, which the KDC must know.
    pub keytab: Option<&'c Keytab<'c>>,
}

/// A refusal of a request.
struct AttemptRefusal {
    outcome: KdcOutcome,
    /// The row of the table. `None`: that of the outcome.
    message: Option<&'static Message>,
    user_text: String,
    detail: String,
}

/// The result of a password change.
enum PasswordChange<'c> {
    /// Refused before the start. The flag states whether a KDC that knows this host's key confirmed the refusal.
    NotStarted(AttemptRefusal, bool),
    /// The server did not confirm the change. The flag states whether the old password is still valid for certain.
    NotConfirmed(AttemptRefusal, bool),
    /// Done: the new password got a ticket.
    Verified(GrantedTicket<'c>),
    /// Reported as done, but the new password did not get a ticket.
    Unverified(AttemptRefusal),
}

impl AttemptRefusal {
    fn new(outcome: KdcOutcome, what: &str, error: &LibraryError) -> Self {
        let (message, detail) = (error_message(error.code), format!("{what}: {error}"));
        Self { outcome, message, user_text: String::new(), detail }
    }

    fn into_reply(self, id: u64) -> HelperReply {
        let Self { outcome, message, user_text, detail } = self;
        let message = message.or(outcome.message());
        HelperReply { user_text, message, ..HelperReply::from_outcome(id, outcome, detail) }
    }
}

impl<'c> AuthAttempt<'c> {
    /// Runs a request and returns the reply. `early` receives a preliminary reply, which counts if no final one
    /// follows.
    pub fn run(&self, request: &HelperRequest, early: &mut dyn FnMut(&HelperReply)) -> HelperReply {
        let client = if request.is_principal {
            self.context.parse_principal(&request.name)
        } else {
            self.context.user_principal(&request.name, &self.setup.realm.name)
        };
        let client = match client {
            Ok(client) => client,
            Err(error) => {
                let what = format!("invalid principal: {error}");
                return HelperReply::from_outcome(request.id, KdcOutcome::UnknownUser, what)
                    .with_message(&login::PRINCIPAL_INVALID);
            }
        };
        let done = match request.operation {
            HelperOperation::Probe => self.probe_kdc(&client, &request.password).map(|()| None),
            HelperOperation::Ticket => self.login(&client, &request.password).map(Some),
            HelperOperation::MayChange => {
                self.check_change_allowed(&client, &request.password).map(|()| None)
            }
            HelperOperation::Change => return self.change_reply(request, &client, early),
        };
        match done {
            Ok(granted) => self.success_reply(request, &client, granted.as_ref()),
            Err(refusal) => {
                let is_sure =
                    request.operation == HelperOperation::Ticket && self.is_sure(refusal.outcome);
                HelperReply { is_verified: is_sure, ..refusal.into_reply(request.id) }
            }
        }
    }

    /// Makes the reply to a success, with a ticket if there is one. It is verified if the KDC has shown by this ticket
    /// that it knows this host's key. An unverified KDC may belong to an attacker.
    fn success_reply(
        &self,
        request: &HelperRequest,
        client: &Principal<'_>,
        granted: Option<&GrantedTicket<'_>>,
    ) -> HelperReply {
        HelperReply {
            is_verified: granted.is_some() && self.keytab.is_some(),
            password_expires: granted.map_or(0, |granted| granted.password_expires),
            ticket: granted.map(|granted| granted.tickets.to_file()).unwrap_or_default(),
            principal: client.text().unwrap_or_default(),
            ..HelperReply::from_outcome(request.id, KdcOutcome::Success, "")
        }
    }

    /// Makes the reply to a password change. Success is reported before any further exchange, which may exceed the
    /// deadline.
    fn change_reply(
        &self,
        request: &HelperRequest,
        client: &Principal<'_>,
        early: &mut dyn FnMut(&HelperReply),
    ) -> HelperReply {
        let unshown = || self.success_reply(request, client, None);
        let change = self.change(client, &request.password, &request.new_password, &mut || {
            early(&unshown());
        });
        match change {
            PasswordChange::NotStarted(refusal, is_sure) => HelperReply {
                is_surely_unchanged: true,
                is_verified: is_sure,
                ..refusal.into_reply(request.id)
            },
            PasswordChange::NotConfirmed(refusal, is_undone) => {
                HelperReply { is_surely_unchanged: is_undone, ..refusal.into_reply(request.id) }
            }
            PasswordChange::Verified(granted) => {
                self.success_reply(request, client, Some(&granted))
            }
            // A false KDC may have reported success.
            PasswordChange::Unverified(refusal) if refusal.outcome == KdcOutcome::NotVerified => {
                refusal.into_reply(request.id)
            }
            PasswordChange::Unverified(refusal) => HelperReply {
                detail: format!("the password was changed, but gets no ticket: {}", refusal.detail),
                ..unshown()
            },
        }
    }

    /// Whether a refusal is verified. Any host on the network can send a refusal. A KDC that issues a ticket for this
    /// host's key is genuine.
    fn is_sure(&self, outcome: KdcOutcome) -> bool {
        match outcome {
            // If there is a key, this outcome occurs only after verification.
            KdcOutcome::MustChange => self.keytab.is_some(),
            KdcOutcome::WrongPassword
            | KdcOutcome::UnknownUser
            | KdcOutcome::Locked
            | KdcOutcome::AccountExpired
            | KdcOutcome::Refused => matches!(self.armor(), Ok(Some(_))),
            _ => false,
        }
    }

    /// Whether any KDC replies.
    fn probe_kdc(&self, client: &Principal<'_>, password: &[u8]) -> Result<(), AttemptRefusal> {
        let wishes = TicketOptions::default();
        let granted = self.context.login(client, &password_cstring(password)?, None, &wishes, None);
        let refusal =
            |error: LibraryError| AttemptRefusal::new(probe_outcome(error.code), "the KDC", &error);
        granted.map(drop).map_err(refusal)
    }

    fn login(
        &self,
        client: &Principal<'_>,
        password: &[u8],
    ) -> Result<GrantedTicket<'c>, AttemptRefusal> {
        let wishes = self.ticket_options();
        let armor = if self.has_fast_principal() { self.armor()? } else { None };
        let text = password_cstring(password)?;
        let granted = self.context.login(client, &text, None, &wishes, armor.as_ref());
        match granted {
            Ok(mut granted) => {
                self.verify(&mut granted.tickets)?;
                Ok(granted)
            }
            Err(error) if login_outcome(error.code) == KdcOutcome::MustChange => {
                // A KDC reports this before it checks the password. A correct password gets a ticket only for the
                // change, which cannot verify the KDC by this host's key. That request is therefore armored with the
                // key.
                let armor = if armor.is_some() { armor } else { self.armor()? };
                self.changepw_ticket(client, password, armor.as_ref())?;
                Err(AttemptRefusal::new(KdcOutcome::MustChange, "the KDC", &error))
            }
            Err(error) => Err(AttemptRefusal::new(login_outcome(error.code), "the KDC", &error)),
        }
    }

    /// Verifies the KDC by this host's key. Without that, any host could take its place and issue tickets for a chosen
    /// password.
    fn verify(&self, tickets: &mut KerberosTicket<'_>) -> Result<(), AttemptRefusal> {
        let Some(keytab) = self.keytab else { return Ok(()) };
        let verified = tickets.verify(keytab);
        verified.map_err(|error| {
            let what = "the KDC could not be verified by this host's key";
            AttemptRefusal::new(verification_outcome(error.code), what, &error)
        })
    }

    /// Whether a principal was chosen, so that each exchange with a password needs its armor.
    fn has_fast_principal(&self) -> bool {
        !self.setup.fast_principal.is_empty()
    }

    fn armor(&self) -> Result<Option<Ccache<'c>>, AttemptRefusal> {
        let Some(keytab) = self.keytab else { return Ok(None) };
        let principal = &self.setup.fast_principal;
        if self.has_fast_principal() {
            return self.context.keytab_cache(principal, keytab).map(Some).map_err(|error| {
                let outcome = verification_outcome(error.code);
                let what = format!("no ticket of {principal} (krb5_fast_principal)");
                let message = fast_ticket_message(error.code).or(outcome.message());
                AttemptRefusal { message, ..AttemptRefusal::new(outcome, &what, &error) }
            });
        }
        let armor = self.context.fast_armor(keytab);
        armor.map(Some).map_err(|error| {
            let outcome = verification_outcome(error.code);
            AttemptRefusal::new(outcome, "the KDC issues no ticket for this host's key", &error)
        })
    }

    /// Returns a ticket for the password change.
    fn changepw_ticket(
        &self,
        client: &Principal<'_>,
        password: &[u8],
        armor: Option<&Ccache<'_>>,
    ) -> Result<KerberosTicket<'c>, AttemptRefusal> {
        self.request_changepw_ticket(client, &password_cstring(password)?, armor)
            .map_err(|error| changepw_refusal(&error))
    }

    /// Returns the same with armor, unless the KDC does not support it.
    fn armored_changepw_ticket(
        &self,
        client: &Principal<'_>,
        password: &[u8],
        armor: Option<&Ccache<'_>>,
    ) -> Result<KerberosTicket<'c>, AttemptRefusal> {
        let password = password_cstring(password)?;
        let asked = match self.request_changepw_ticket(client, &password, armor) {
            Err(error) if lacks_fast(error.code) && !self.has_fast_principal() => {
                self.request_changepw_ticket(client, &password, None)
            }
            asked => asked,
        };
        asked.map_err(|error| changepw_refusal(&error))
    }

    fn request_changepw_ticket(
        &self,
        client: &Principal<'_>,
        password: &CStr,
        armor: Option<&Ccache<'_>>,
    ) -> Result<KerberosTicket<'c>, LibraryError> {
        let wishes = TicketOptions { life: Some(CHANGEPW_LIFE), ..TicketOptions::default() };
        let granted = self.context.login(client, password, Some(CHANGEPW), &wishes, armor);
        granted.map(|granted| granted.tickets)
    }

    /// Checks whether the password can be changed with this one.
    fn check_change_allowed(
        &self,
        client: &Principal<'_>,
        password: &[u8],
    ) -> Result<(), AttemptRefusal> {
        let armor = self.armor()?;
        self.armored_changepw_ticket(client, password, armor.as_ref()).map(drop)
    }

    /// Changes the password. Calls `done` after a confirmed change, before its verification.
    fn change(
        &self,
        client: &Principal<'_>,
        old: &[u8],
        new: &[u8],
        done: &mut dyn FnMut(),
    ) -> PasswordChange<'c> {
        // A KDC that does not know this host's key gets no request.
        let armor = match self.armor() {
            Ok(armor) => armor,
            Err(refusal) => return PasswordChange::NotStarted(refusal, false),
        };
        let begun = password_cstring(new)
            .and_then(|new| Ok((new, self.armored_changepw_ticket(client, old, armor.as_ref())?)));
        let (password, mut tickets) = match begun {
            Ok(begun) => begun,
            Err(refusal) => return PasswordChange::NotStarted(refusal, armor.is_some()),
        };
        let refusal = match self.context.change_password(&mut tickets, &password) {
            Ok(ChangeReply::Done) => {
                done();
                return match self.login(client, new) {
                    Ok(granted) => PasswordChange::Verified(granted),
                    Err(refusal) => PasswordChange::Unverified(refusal),
                };
            }
            Ok(ChangeReply::Refused { code, why }) => {
                let detail = format!("the change of the password was refused ({code}): {why}");
                let outcome = change_outcome(code);
                let is_fault = matches!(outcome, KdcOutcome::Failed | KdcOutcome::Misconfigured);
                let message = is_fault.then_some(&login::KRB5_CHANGE_FAILED);
                AttemptRefusal { outcome, message, user_text: why, detail }
            }
            Err(error) => {
                let outcome = login_outcome(error.code);
                AttemptRefusal::new(outcome, "the password server", &error)
            }
        };
        // Any host can send a refusal, and suppress the confirmation.
        let is_undone = match self.login(client, old) {
            Ok(_) => true,
            Err(refusal) => refusal.outcome == KdcOutcome::MustChange,
        };
        PasswordChange::NotConfirmed(refusal, is_undone)
    }

    fn ticket_options(&self) -> TicketOptions {
        let seconds = |seconds: u32| match seconds {
            0 => None,
            seconds => Some(Duration::from_secs(seconds.into())),
        };
        TicketOptions {
            life: seconds(self.setup.life_seconds),
            renewable: seconds(self.setup.renewable_seconds),
            forwardable: self.setup.forwardable,
        }
    }
}

/// Makes the refusal after a failed request for a change ticket.
fn changepw_refusal(error: &LibraryError) -> AttemptRefusal {
    let outcome = match login_outcome(error.code) {
        // The password cannot even be changed.
        KdcOutcome::MustChange => KdcOutcome::Refused,
        outcome => outcome,
    };
    AttemptRefusal::new(outcome, "the KDC, for a ticket to change the password", error)
}

/// Converts the code of a password server, see RFC 3244.
fn change_outcome(code: i32) -> KdcOutcome {
    match code {
        // A failure of the server, which may be temporary.
        2 => KdcOutcome::Failed,
        3 => KdcOutcome::WrongPassword,
        4 => KdcOutcome::NewPasswordRefused,
        5 | 7 => KdcOutcome::Refused,
        1 | 6 => KdcOutcome::Misconfigured,
        _ => KdcOutcome::Failed,
    }
}

/// Converts a password for C. The decoder has already rejected passwords with a NUL.
fn password_cstring(password: &[u8]) -> Result<Zeroizing<CString>, AttemptRefusal> {
    CString::new(password).map(Zeroizing::new).map_err(|_| AttemptRefusal {
        outcome: KdcOutcome::Failed,
        message: Some(&login::PASSWORD_IMPOSSIBLE),
        user_text: String::new(),
        detail: "the password contains a NUL".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn krb5_password_with_nul_has_code() {
        let refusal = password_cstring(b"a\0b").expect_err("no password of C");
        assert_eq!(refusal.message, Some(&login::PASSWORD_IMPOSSIBLE));
    }
}
