//! What is logged of a request: who, where, and what came of it. Never a password, no name that nobody has, for
//! that may be one, and where from only if one of root's programs or of the trusted says so.

use super::Reach;
use super::answer::Answer;
use roster_wire::pam::{Kind, Request, Verdict};
use tracing::{debug, info};

/// What is logged of a request beside what it says and came to.
pub struct About {
    /// Who asks.
    pub peer: u32,
    /// For whom they may.
    pub reach: Reach,
    /// The name, if there is somebody of whom whoever asks may hear.
    pub user: Option<Vec<u8>>,
}

impl About {
    /// Writes the line.
    pub fn log(&self, request: &Request<'_>, answer: &Answer) {
        let Self { peer, reach, user } = self;
        let user = user.as_deref().unwrap_or(NOBODY).escape_ascii();
        let (outcome, offline) = (answer.verdict.label(), answer.is_offline);
        let what = label(request.kind);
        match said_in_the_log(*reach, request.kind, answer.verdict) {
            InLog::All => info!(
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
            InLog::Own => info!(%user, peer, outcome, offline, "{what}"),
            InLog::Debug => debug!(%user, peer, outcome, "{what}"),
        }
    }
}

/// In place of a name that is not served: people type passwords where names belong.
const NOBODY: &[u8] = b"(unknown)";

/// How much of a request is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InLog {
    All,
    /// Not where it comes from: who asks could say that it is from anywhere, and have others locked out.
    Own,
    /// Only where somebody looks for it.
    Debug,
}

fn said_in_the_log(reach: Reach, kind: Kind, verdict: Verdict) -> InLog {
    match (reach, kind, verdict) {
        (Reach::All, ..) => InLog::All,
        // Of these there may be any number.
        (Reach::Own(_), Kind::SshKeys, _) | (Reach::Own(_), _, Verdict::TooManyTries) => {
            InLog::Debug
        }
        (Reach::Own(_), ..) => InLog::Own,
    }
}

/// What was asked, in words.
pub fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Authenticate => "log-in",
        Kind::Account => "account",
        Kind::PrepareChange => "password change prepared",
        Kind::Change => "password change",
        Kind::SshKeys => "ssh keys",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_ask_for_themselves_alone_tells_the_log_no_origin_and_cannot_fill_it() {
        for verdict in Verdict::ALL {
            for kind in Kind::ALL {
                assert_eq!(said_in_the_log(Reach::All, kind, verdict), InLog::All);
                assert_ne!(said_in_the_log(Reach::Own(1), kind, verdict), InLog::All);
            }
        }
        let refused = said_in_the_log(Reach::Own(1), Kind::Account, Verdict::TooManyTries);
        assert_eq!(refused, InLog::Debug);
    }
}
