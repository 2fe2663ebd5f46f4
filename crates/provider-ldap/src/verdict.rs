//! What a server's answer to a user's bind, or to a change of password, says of the user. Pure.
//!
//! What is shown to a person who has not proven who they are is the same for everybody: that an account
//! is locked or disabled is in the log, and in the verdict.

use crate::message::{Operation, Outcome, PasswordPolicy, Request, printable};
use roster_provider::log_in::Answer;
use roster_wire::pam::Verdict;

/// What to make of a server's answer.
#[derive(Debug)]
pub enum Said {
    /// It is an answer.
    Answer(Answer),
    /// There is no entry of that DN, or none that anybody could be: whoever remembered it should look again.
    NoSuchEntry(String),
    /// The server cannot do this now; another may.
    NotNow(String),
}

/// Errors of the draft's control, by their numbers.
mod policy {
    pub const PASSWORD_EXPIRED: u32 = 0;
    pub const ACCOUNT_LOCKED: u32 = 1;
    pub const CHANGE_AFTER_RESET: u32 = 2;
    pub const MODIFICATION_NOT_ALLOWED: u32 = 3;
    pub const MUST_SUPPLY_OLD: u32 = 4;
    pub const INSUFFICIENT_QUALITY: u32 = 5;
    pub const TOO_SHORT: u32 = 6;
    pub const TOO_YOUNG: u32 = 7;
    pub const IN_HISTORY: u32 = 8;
    pub const TOO_LONG: u32 = 9;
}

/// Shown to who knows a password that will not do any more.
const HAS_EXPIRED: &str = "Your password has expired. Ask an administrator for a new one.";
const MUST_CHANGE: &str = "Your password must be changed now.";

/// What a response says to a bind or a change of password; nothing if it is no response to that.
pub fn of(request: &Request<'_>, response: Operation<'_>, said: PasswordPolicy) -> Option<Said> {
    match (request, response) {
        (Request::SimpleBind { .. }, Operation::BindDone(outcome)) => Some(of_bind(outcome, said)),
        (Request::ModifyPassword { .. }, Operation::Extended(outcome, _)) => {
            Some(of_change(outcome, said))
        }
        _ => None,
    }
}

/// Of a bind.
fn of_bind(outcome: Outcome<'_>, said: PasswordPolicy) -> Said {
    let answer = |verdict| Said::Answer(Answer::because(verdict, outcome.to_string()));
    match outcome.code {
        0 => match said.error {
            None | Some(policy::CHANGE_AFTER_RESET) => Said::Answer(of_success(said)),
            // A success that a policy takes back is none.
            Some(policy::PASSWORD_EXPIRED) => expired(outcome),
            Some(policy::ACCOUNT_LOCKED) => answer(Verdict::Locked),
            Some(_) => answer(Verdict::Denied),
        },
        // invalidCredentials; what a policy or Active Directory adds to it they say of right passwords, but
        // that an account is locked.
        49 => match said.error {
            Some(policy::ACCOUNT_LOCKED) => answer(Verdict::Locked),
            Some(policy::PASSWORD_EXPIRED) => expired(outcome),
            _ if said.has_expired => expired(outcome),
            _ => match active_directory(outcome.message) {
                Some(Verdict::PasswordExpired) => expired(outcome),
                Some(verdict) => answer(verdict),
                None => Said::Answer(Answer::of(Verdict::WrongPassword)),
            },
        },
        // inappropriateAuthentication: the entry has no password.
        48 => answer(Verdict::WrongPassword),
        // noSuchObject, invalidDNSyntax, namingViolation.
        32 | 34 | 64 => Said::NoSuchEntry(outcome.to_string()),
        // constraintViolation: 389-ds, after too many failures.
        19 => answer(Verdict::Locked),
        // unwillingToPerform: the server has the name and a password, and does not want this user in.
        53 => answer(unwilling(outcome.message)),
        // busy, unavailable, and faults of the server's own: operationsError, other.
        51 | 52 | 1 | 80 => Said::NotNow(outcome.to_string()),
        // protocolError, authMethodNotSupported, strongerAuthRequired, referral, adminLimitExceeded,
        // unavailableCriticalExtension, confidentialityRequired, insufficientAccessRights, and whatever else.
        _ => answer(Verdict::Misconfigured),
    }
}

/// Why, in the words of 389-ds and of FreeIPA's plug-ins for it. Without such words it is a refusal all the same,
/// which nothing that is kept of the password goes over.
fn unwilling(message: &[u8]) -> Verdict {
    if says(message, b"inactivated") {
        Verdict::Disabled
    } else if says(message, b"too many failed logins") || says(message, b"permanently locked") {
        Verdict::Locked
    } else if says(message, b"is expired") {
        Verdict::AccountExpired
    } else {
        Verdict::Denied
    }
}

fn expired(outcome: Outcome<'_>) -> Said {
    let answer = Answer::because(Verdict::PasswordExpired, outcome.to_string());
    Said::Answer(answer.telling(true, HAS_EXPIRED))
}

fn of_success(said: PasswordPolicy) -> Answer {
    if said.error == Some(policy::CHANGE_AFTER_RESET) || said.has_expired {
        return Answer::of(Verdict::MustChange).telling(false, MUST_CHANGE);
    }
    let answer = Answer::of(Verdict::Success);
    match (said.grace, said.expires_in) {
        (Some(0), _) => answer.telling(
            true,
            "Your password has expired, and this is the last time that it is taken. Change it now.",
        ),
        (Some(left), _) => answer.telling(
            true,
            format!("Your password has expired, and is taken {} more. Change it.", times(left)),
        ),
        // A policy may tell of it from the first day on: of what is far away nobody wants to hear each time.
        (None, Some(seconds)) if seconds <= WARNED_SECONDS => {
            answer.telling(false, format!("Your password expires in {}.", time_left(seconds)))
        }
        (None, _) => answer,
    }
}

/// Two months: a server that warns says when it begins to.
const WARNED_SECONDS: u32 = 60 * 86_400;

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// In days, or what is left of the last.
fn time_left(seconds: u32) -> String {
    let (count, unit) = match seconds {
        ..120 => return "less than two minutes".to_owned(),
        120..7_200 => (seconds / 60, "minutes"),
        7_200..172_800 => (seconds / 3_600, "hours"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{count} {unit}")
}

/// What Active Directory writes into the message of invalidCredentials: "…, data 775, …".
fn active_directory(message: &[u8]) -> Option<Verdict> {
    let text = std::str::from_utf8(message).ok()?;
    let (_, data) = text.split_once(", data ")?;
    let number = data.split([',', ' ', '\0']).next()?;
    Some(match number {
        // No such user; wrong password.
        "525" | "52e" => Verdict::WrongPassword,
        // Not at this time; not at this place.
        "530" | "531" => Verdict::Denied,
        "532" => Verdict::PasswordExpired,
        "533" => Verdict::Disabled,
        "701" => Verdict::AccountExpired,
        // It must be changed, which by LDAP it cannot be: this bind has failed.
        "773" => Verdict::PasswordExpired,
        "775" => Verdict::Locked,
        _ => return None,
    })
}

fn says(message: &[u8], word: &[u8]) -> bool {
    message.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Of a change of password by who has proven that they know the present one.
fn of_change(outcome: Outcome<'_>, said: PasswordPolicy) -> Said {
    let refused = || {
        let why = why_refused(said.error);
        let own = printable(outcome.message);
        let text = match (why, own.as_str()) {
            (Some(why), "") => why.to_owned(),
            (Some(why), own) => format!("{why} ({own})"),
            (None, "") => "The new password is refused.".to_owned(),
            (None, own) => format!("The new password is refused: {own}"),
        };
        let answer = Answer::because(Verdict::NewPasswordRefused, outcome.to_string());
        Said::Answer(answer.telling(true, text))
    };
    match outcome.code {
        0 => Said::Answer(Answer::of(Verdict::Success)),
        // The connection's user is another than was thought, or the present password is not that.
        49 => Said::Answer(Answer::because(Verdict::WrongPassword, outcome.to_string())),
        // constraintViolation, unwillingToPerform, insufficientAccessRights: the policy, or who may change what.
        19 | 53 | 50 => refused(),
        _ if said.error.is_some() => refused(),
        51 | 52 | 1 | 80 => Said::NotNow(outcome.to_string()),
        32 | 34 | 64 => Said::NoSuchEntry(outcome.to_string()),
        _ => Said::Answer(Answer::because(Verdict::Misconfigured, outcome.to_string())),
    }
}

fn why_refused(error: Option<u32>) -> Option<&'static str> {
    Some(match error? {
        policy::MODIFICATION_NOT_ALLOWED => "Your password may not be changed by yourself.",
        policy::MUST_SUPPLY_OLD => "The present password has to be given.",
        policy::INSUFFICIENT_QUALITY => "The new password is too simple.",
        policy::TOO_SHORT => "The new password is too short.",
        policy::TOO_YOUNG => "The present password is too new to be changed again.",
        policy::IN_HISTORY => "The new password was used before.",
        policy::TOO_LONG => "The new password is too long.",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: PasswordPolicy =
        PasswordPolicy { expires_in: None, grace: None, error: None, has_expired: false };

    fn bind(code: u32, message: &[u8], said: PasswordPolicy) -> (Option<Verdict>, Vec<String>) {
        match of_bind(Outcome { code, message }, said) {
            Said::Answer(answer) => {
                let messages = answer.messages.into_iter().map(|message| message.text);
                (Some(answer.verdict), messages.collect())
            }
            Said::NoSuchEntry(_) | Said::NotNow(_) => (None, Vec::new()),
        }
    }

    #[test]
    fn only_success_lets_in() {
        for code in 0..4200 {
            let (verdict, _) = bind(code, b"", NOTHING);
            assert_eq!(verdict == Some(Verdict::Success), code == 0, "{code}");
        }
    }

    #[test]
    fn a_refusal_is_what_the_server_says_it_is() {
        let policy = |error| PasswordPolicy { error: Some(error), ..NOTHING };
        let netscape = PasswordPolicy { has_expired: true, ..NOTHING };
        let ad = |data: &str| {
            format!(
                "80090308: LdapErr: DSID-0C09041C, comment: AcceptSecurityContext error, data {data}, v4563"
            )
        };
        for (code, message, said, verdict) in [
            (49, String::new(), NOTHING, Verdict::WrongPassword),
            (49, String::new(), policy(0), Verdict::PasswordExpired),
            (49, String::new(), policy(1), Verdict::Locked),
            (49, String::new(), netscape, Verdict::PasswordExpired),
            (49, ad("52e"), NOTHING, Verdict::WrongPassword),
            (49, ad("525"), NOTHING, Verdict::WrongPassword),
            (49, ad("532"), NOTHING, Verdict::PasswordExpired),
            (49, ad("533"), NOTHING, Verdict::Disabled),
            (49, ad("701"), NOTHING, Verdict::AccountExpired),
            (49, ad("775"), NOTHING, Verdict::Locked),
            (49, ad("999"), NOTHING, Verdict::WrongPassword),
            (19, "Exceed password retry limit.".into(), NOTHING, Verdict::Locked),
            (53, "Account inactivated. Contact system".into(), NOTHING, Verdict::Disabled),
            (53, "Too many failed logins.\n".into(), NOTHING, Verdict::Locked),
            (53, "Entry permanently locked.\n".into(), NOTHING, Verdict::Locked),
            (
                53,
                "Account (Kerberos principal) is expired".into(),
                NOTHING,
                Verdict::AccountExpired,
            ),
            (53, "operation restricted".into(), NOTHING, Verdict::Denied),
            (0, String::new(), policy(0), Verdict::PasswordExpired),
            (0, String::new(), policy(1), Verdict::Locked),
            (0, String::new(), policy(3), Verdict::Denied),
            (0, String::new(), policy(77), Verdict::Denied),
            (13, "confidentiality required".into(), NOTHING, Verdict::Misconfigured),
            (10, String::new(), NOTHING, Verdict::Misconfigured),
            (48, String::new(), NOTHING, Verdict::WrongPassword),
        ] {
            let (found, _) = bind(code, message.as_bytes(), said);
            assert_eq!(found, Some(verdict), "{code} {message} {said:?}");
        }
    }

    #[test]
    fn what_is_shown_after_a_failure_does_not_tell_a_user_from_nobody() {
        for (code, said) in [
            (49, NOTHING),
            (49, PasswordPolicy { error: Some(policy::ACCOUNT_LOCKED), ..NOTHING }),
            (19, NOTHING),
            (48, NOTHING),
        ] {
            assert!(bind(code, b"Exceed password retry limit.", said).1.is_empty());
        }
        assert!(bind(53, b"Account inactivated.", NOTHING).1.is_empty());
    }

    #[test]
    fn an_answer_to_something_else_is_none_to_a_bind_or_a_change() {
        let bind = Request::SimpleBind { dn: "cn=a", password: b"b" };
        let change = Request::ModifyPassword { dn: "cn=a", old: b"b", new: b"c" };
        let done = Outcome { code: 0, message: b"" };
        assert!(of(&bind, Operation::BindDone(done), NOTHING).is_some());
        assert!(of(&bind, Operation::Extended(done, None), NOTHING).is_none());
        assert!(of(&bind, Operation::SearchDone(done), NOTHING).is_none());
        assert!(of(&change, Operation::Extended(done, None), NOTHING).is_some());
        assert!(of(&change, Operation::BindDone(done), NOTHING).is_none());
    }

    #[test]
    fn a_right_password_that_must_be_changed_is_no_success() {
        let reset = PasswordPolicy { error: Some(policy::CHANGE_AFTER_RESET), ..NOTHING };
        let expired = PasswordPolicy { has_expired: true, ..NOTHING };
        for said in [reset, expired] {
            assert_eq!(bind(0, b"", said).0, Some(Verdict::MustChange));
        }
    }

    #[test]
    fn time_that_is_left_is_told_in_days() {
        let expires = |seconds| {
            bind(0, b"", PasswordPolicy { expires_in: Some(seconds), ..NOTHING }).1.concat()
        };
        assert_eq!(expires(3 * 86_400 + 5), "Your password expires in 3 days.");
        assert_eq!(expires(86_400), "Your password expires in 24 hours.");
        assert_eq!(expires(600), "Your password expires in 10 minutes.");
        assert_eq!(expires(0), "Your password expires in less than two minutes.");
        assert_eq!(expires(365 * 86_400), "");
        let grace = |left| bind(0, b"", PasswordPolicy { grace: Some(left), ..NOTHING });
        assert_eq!(grace(1).0, Some(Verdict::Success));
        assert!(grace(1).1.concat().contains("once more"));
        assert!(grace(0).1.concat().contains("last time"));
    }

    #[test]
    fn a_refused_password_says_why_in_our_words_and_the_servers() {
        let outcome = Outcome { code: 19, message: b"Password fails quality\nchecking policy" };
        let said = PasswordPolicy { error: Some(policy::TOO_SHORT), ..NOTHING };
        let Said::Answer(answer) = of_change(outcome, said) else { panic!("no answer") };
        assert_eq!(answer.verdict, Verdict::NewPasswordRefused);
        let text = &answer.messages[0].text;
        assert!(
            text.starts_with("The new password is too short. (Password fails quality"),
            "{text}"
        );
        assert!(!text.contains('\n'));
        let Said::Answer(answer) = of_change(outcome, NOTHING) else { panic!("no answer") };
        assert!(answer.messages[0].text.contains("refused: Password fails quality"));
    }

    #[test]
    fn only_success_is_a_change() {
        for code in 0..4200 {
            for error in [None, Some(2), Some(5)] {
                let said = PasswordPolicy { error, ..NOTHING };
                let changed = matches!(
                    of_change(Outcome { code, message: b"" }, said),
                    Said::Answer(Answer { verdict: Verdict::Success, .. })
                );
                assert_eq!(changed, code == 0, "{code} {error:?}");
            }
        }
    }
}
