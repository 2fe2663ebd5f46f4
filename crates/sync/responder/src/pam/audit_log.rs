// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log record of a request: the kind, the client, the user, the origin and the result. Passwords are never logged.
//! Unknown names are not logged either, because they may be passwords. The origin is logged only if a program of root
//! or of a trusted user sends it. `reply` has the result.

use super::RequestScope;
use super::reply::PamReply;
use roster_messages::{Message, log, login_refusal};
use roster_request::{AuthRequestKind, AuthResult};
use roster_wire::pam::AuthRequest;
use std::fmt::Display;
use tracing::{debug, info};

/// Facts for the log in addition to request and reply.
pub struct AuditRecord {
    /// The uid of the client.
    pub peer: u32,
    /// The users that the client may send requests about.
    pub scope: RequestScope,
    /// The name, if the user is served and the client may know that.
    pub user: Option<Vec<u8>>,
}

impl AuditRecord {
    /// Writes the line.
    pub fn log(&self, request: &AuthRequest<'_>, answer: &PamReply) {
        let Self { peer, scope: reach, user } = self;
        let user = user.as_deref().unwrap_or(UNKNOWN_NAME).escape_ascii();
        let (outcome, offline) = (answer.result.label(), answer.is_offline);
        let text = record_text(&user, request.kind, answer.result);
        let label = request_label(request.kind);
        let service = request.service.escape_ascii();
        let rhost = request.remote_host.escape_ascii();
        let tty = request.terminal.escape_ascii();
        let ruser = request.remote_user.escape_ascii();
        match (log_scope(*reach, request.kind, answer.result), refusal_code(answer)) {
            (LogScope::All, Some(message)) => log!(
                INFO,
                message,
                kind = label,
                %user,
                %service,
                %rhost,
                %tty,
                %ruser,
                peer,
                outcome,
                offline,
                "{text}",
            ),
            (LogScope::All, None) => info!(
                kind = label,
                %user,
                %service,
                %rhost,
                %tty,
                %ruser,
                peer,
                outcome,
                offline,
                "{text}",
            ),
            (LogScope::Own, Some(message)) => {
                log!(INFO, message, kind = label, %user, peer, outcome, offline, "{text}");
            }
            (LogScope::Own, None) => {
                info!(kind = label, %user, peer, outcome, offline, "{text}");
            }
            (LogScope::Debug, _) => debug!(kind = label, %user, peer, outcome, "{text}"),
        }
    }
}

/// Stands for a name that is not served: people type passwords where names belong.
const UNKNOWN_NAME: &[u8] = b"(unknown)";

/// The amount of detail in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogScope {
    All,
    /// Without the origin. An ordinary client could claim any origin, and cause a lockout of others.
    Own,
    /// Only in the debug log.
    Debug,
}

fn log_scope(reach: RequestScope, kind: AuthRequestKind, verdict: AuthResult) -> LogScope {
    match (reach, kind, verdict) {
        (RequestScope::All, ..) => LogScope::All,
        // There may be any number of these.
        (RequestScope::Own(_), AuthRequestKind::SshKeys, _)
        | (RequestScope::Own(_), _, AuthResult::TooManyAttempts) => LogScope::Debug,
        (RequestScope::Own(_), ..) => LogScope::Own,
    }
}

/// Returns the text of a record, such as `alice: login refused: account expired`.
fn record_text(user: &impl Display, kind: AuthRequestKind, result: AuthResult) -> String {
    let what = match kind {
        AuthRequestKind::Authenticate => "login",
        AuthRequestKind::Account => "account check",
        AuthRequestKind::PrepareChange => "check before password change",
        AuthRequestKind::Change => "password change",
        AuthRequestKind::SshKeys => "SSH keys",
    };
    let result = match result {
        AuthResult::Success => return format!("{user}: {what} accepted"),
        AuthResult::NotHandled => return format!("{user}: {what} left to other PAM modules"),
        AuthResult::WrongPassword => "wrong password",
        AuthResult::UnknownUser => "unknown user",
        AuthResult::MustChange => "password must be changed",
        AuthResult::PasswordExpired => "password expired",
        AuthResult::AccountExpired => "account expired",
        AuthResult::Locked => "account locked",
        AuthResult::Disabled => "account disabled",
        AuthResult::Denied => "denied",
        AuthResult::Unreachable => "directory unreachable",
        AuthResult::Misconfigured => "rejected by the directory or the configuration",
        AuthResult::TooManyAttempts => "too many attempts",
        AuthResult::NotPermitted => "the calling user may not ask about this user",
        AuthResult::NewPasswordRefused => "new password rejected",
    };
    format!("{user}: {what} refused: {result}")
}

/// Returns the code of a refusal: the backend's, which is more specific, or that of the result. `None` for another
/// result.
fn refusal_code(answer: &PamReply) -> Option<&'static Message> {
    let by_result = login_refusal(answer.result)?;
    Some(answer.code.unwrap_or(by_result))
}

/// Returns the label of a request kind in logs and counters.
pub fn request_label(kind: AuthRequestKind) -> &'static str {
    match kind {
        AuthRequestKind::Authenticate => "log-in",
        AuthRequestKind::Account => "account",
        AuthRequestKind::PrepareChange => "password change prepared",
        AuthRequestKind::Change => "password change",
        AuthRequestKind::SshKeys => "ssh keys",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_messages::table::login;
    use roster_system_tests::logged_codes::logged_codes;

    #[test]
    fn pam_unprivileged_caller_cannot_fill_log() {
        for verdict in AuthResult::ALL {
            for kind in AuthRequestKind::ALL {
                assert_eq!(log_scope(RequestScope::All, kind, verdict), LogScope::All);
                assert_ne!(log_scope(RequestScope::Own(1), kind, verdict), LogScope::All);
            }
        }
        let refused =
            log_scope(RequestScope::Own(1), AuthRequestKind::Account, AuthResult::TooManyAttempts);
        assert_eq!(refused, LogScope::Debug);
    }

    #[test]
    fn pam_record_text_says_what_was_refused() {
        let text = |kind, result| record_text(&"alice", kind, result);
        assert_eq!(
            text(AuthRequestKind::Authenticate, AuthResult::AccountExpired),
            "alice: login refused: account expired"
        );
        assert_eq!(
            text(AuthRequestKind::Change, AuthResult::Success),
            "alice: password change accepted"
        );
        for result in AuthResult::ALL {
            let text = text(AuthRequestKind::Account, result);
            let code = refusal_code(&PamReply::from_result(result));
            assert_eq!(text.contains(" refused: "), code.is_some(), "{text}");
        }
    }

    #[test]
    fn pam_refusal_is_logged_with_code() {
        let request = AuthRequest {
            kind: AuthRequestKind::Authenticate,
            user: b"alice",
            uid: None,
            service: b"sshd",
            remote_host: b"",
            terminal: b"",
            remote_user: b"",
            secret: b"",
            new_secret: b"",
            domains: b"",
        };
        for (result, message) in [
            (AuthResult::Success, None),
            (AuthResult::NotHandled, None),
            (AuthResult::WrongPassword, Some(&login::WRONG_PASSWORD)),
            (AuthResult::UnknownUser, Some(&login::UNKNOWN_USER)),
            (AuthResult::MustChange, Some(&login::PASSWORD_MUST_CHANGE)),
            (AuthResult::PasswordExpired, Some(&login::PASSWORD_EXPIRED)),
            (AuthResult::AccountExpired, Some(&login::ACCOUNT_EXPIRED)),
            (AuthResult::Locked, Some(&login::ACCOUNT_LOCKED)),
            (AuthResult::Disabled, Some(&login::ACCOUNT_DISABLED)),
            (AuthResult::Denied, Some(&login::DENIED)),
            (AuthResult::Unreachable, Some(&login::DIRECTORY_UNREACHABLE)),
            (AuthResult::Misconfigured, Some(&login::REJECTED_BY_DIRECTORY)),
            (AuthResult::TooManyAttempts, Some(&login::TOO_MANY_ATTEMPTS)),
            (AuthResult::NotPermitted, Some(&login::CALLER_NOT_PERMITTED)),
            (AuthResult::NewPasswordRefused, Some(&login::NEW_PASSWORD_REJECTED)),
        ] {
            let user = Some(b"alice".to_vec());
            let record = AuditRecord { peer: 0, scope: RequestScope::All, user };
            let logged = logged_codes(|| record.log(&request, &PamReply::from_result(result)));
            assert_eq!(logged, Vec::from_iter(message), "{result:?}");
        }
    }

    #[test]
    fn pam_module_codes_are_in_table() {
        let sources = [
            include_str!("../../../pam/src/pam_user.rs"),
            include_str!("../../../pam/src/service_functions.rs"),
            include_str!("../../../pam/src/session_ticket.rs"),
        ];
        let codes = sources.iter().flat_map(|source| source.split("[RST-").skip(1));
        let codes: Vec<_> = codes.filter_map(|rest| rest.get(..4)).collect();
        assert_eq!(codes.len(), 7, "{codes:?}");
        assert!(codes.iter().all(|code| roster_messages::find(code).is_some()), "{codes:?}");
    }
}
