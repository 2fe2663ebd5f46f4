//! The log record of a request: the client, the user, the origin and the result. Passwords are never logged. Unknown
//! names are not logged either, because they may be passwords. The origin is logged only if a program of root or of a
//! trusted user sends it.

use super::RequestScope;
use super::reply::PamReply;
use roster_request::{AuthRequestKind, AuthResult};
use roster_wire::pam::AuthRequest;
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
        let what = request_label(request.kind);
        match log_scope(*reach, request.kind, answer.result) {
            LogScope::All => info!(
                %user,
                service = %request.service.escape_ascii(),
                rhost = %request.remote_host.escape_ascii(),
                tty = %request.terminal.escape_ascii(),
                ruser = %request.remote_user.escape_ascii(),
                peer,
                outcome,
                offline,
                "{what}",
            ),
            LogScope::Own => info!(%user, peer, outcome, offline, "{what}"),
            LogScope::Debug => debug!(%user, peer, outcome, "{what}"),
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

/// Returns the name of a request kind.
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
}
