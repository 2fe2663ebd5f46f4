// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interprets a server's reply to a user's bind or to a change of password. Pure. `user_bind` sends the bind.
//!
//! Before a password is verified, all accounts give the same message to the user. Only the log and the result state
//! that an account is locked or disabled.

use crate::ad_sub_code::AdSubCode;
use crate::message::{LdapRequest, LdapResult, PolicyResponse, ResponseOperation, code, printable};
use roster_messages::table::login;
use roster_provider::authenticator::AuthOutcome;
use roster_provider::reason::Reason;
use roster_request::AuthResult;

/// Meaning of a server's reply.
#[derive(Debug)]
pub enum BindOutcome {
    /// The reply decides the login or the change of password.
    Decided(AuthOutcome),
    /// The server's password policy refuses the right password because it has expired, without grace logins. The
    /// outcome holds unless the password can be changed now.
    Expired(AuthOutcome),
    /// The server changes a password only together with the old one. The outcome holds if both were sent.
    OldPasswordRequired(AuthOutcome),
    /// The server refuses a change for another reason than its password policy, such as access control.
    ChangeForbidden(AuthOutcome),
    /// There is no entry of that DN, or a user cannot have it. A caller with a cached DN should search again.
    NoSuchEntry(String),
    /// The server cannot do this now. Another server may.
    TryAnotherServer(String),
}

/// Error numbers of the control of draft-behera-ldap-password-policy.
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

/// Shown to a user with the right password after it has expired.
const HAS_EXPIRED: &str = "Your password has expired. Ask an administrator for a new one.";
const MUST_CHANGE: &str = "Your password must be changed now.";

/// Interprets a response to a bind or a change of password. Returns `None` for a response of another type.
pub fn interpret_response(
    request: &LdapRequest<'_>,
    response: ResponseOperation<'_>,
    said: PolicyResponse,
) -> Option<BindOutcome> {
    match (request, response) {
        (LdapRequest::SimpleBind { .. }, ResponseOperation::BindDone(outcome)) => {
            Some(interpret_bind(outcome, said))
        }
        (LdapRequest::ModifyPassword { .. }, ResponseOperation::Extended(outcome, _))
        | (LdapRequest::Modify { .. }, ResponseOperation::ModifyDone(outcome)) => {
            Some(interpret_change(outcome, said))
        }
        _ => None,
    }
}

/// Interprets the reply to a bind.
fn interpret_bind(outcome: LdapResult<'_>, said: PolicyResponse) -> BindOutcome {
    let answer =
        |verdict| BindOutcome::Decided(AuthOutcome::with_reason(verdict, outcome.to_string()));
    match outcome.code {
        0 => match said.error {
            None | Some(policy::CHANGE_AFTER_RESET) => BindOutcome::Decided(success_outcome(said)),
            // The password policy overrides the success.
            Some(policy::PASSWORD_EXPIRED) => BindOutcome::Decided(expired_outcome(outcome)),
            Some(policy::ACCOUNT_LOCKED) => answer(AuthResult::Locked),
            Some(_) => answer(AuthResult::Denied),
        },
        // invalidCredentials. The additions of a policy or of Active Directory imply the right password, except for a
        // locked account.
        49 => match said.error {
            Some(policy::ACCOUNT_LOCKED) => answer(AuthResult::Locked),
            Some(policy::PASSWORD_EXPIRED) => BindOutcome::Expired(expired_outcome(outcome)),
            _ if said.has_expired => BindOutcome::Expired(expired_outcome(outcome)),
            _ => match AdSubCode::parse(outcome.message) {
                Some(sub_code) => BindOutcome::Decided(sub_code_outcome(sub_code, outcome)),
                None => BindOutcome::Decided(AuthOutcome::from_result(AuthResult::WrongPassword)),
            },
        },
        // inappropriateAuthentication: the entry has no password.
        48 => answer(AuthResult::WrongPassword),
        // noSuchObject, invalidDNSyntax, namingViolation.
        32 | 34 | 64 => BindOutcome::NoSuchEntry(outcome.to_string()),
        // constraintViolation: 389-ds, after too many failures.
        19 => answer(AuthResult::Locked),
        // unwillingToPerform: the server has the name and a password, and denies the login.
        53 => answer(classify_unwilling(outcome.message)),
        // busy, unavailable, and internal errors of the server: operationsError, other.
        51 | 52 | 1 | 80 => BindOutcome::TryAnotherServer(outcome.to_string()),
        // protocolError, authMethodNotSupported, strongerAuthRequired, referral, adminLimitExceeded,
        // unavailableCriticalExtension, confidentialityRequired, insufficientAccessRights, and all other codes.
        _ => BindOutcome::Decided(unexpected(outcome)),
    }
}

/// Finds the reason in texts of 389-ds and of FreeIPA's plug-ins. Without a known text the result is still a denial,
/// which a cached password does not override.
fn classify_unwilling(message: &[u8]) -> AuthResult {
    if contains_word(message, b"inactivated") {
        AuthResult::Disabled
    } else if contains_word(message, b"too many failed logins")
        || contains_word(message, b"permanently locked")
    {
        AuthResult::Locked
    } else if contains_word(message, b"is expired") {
        AuthResult::AccountExpired
    } else {
        AuthResult::Denied
    }
}

/// Returns the outcome of a result code that neither accepts nor rejects the password.
fn unexpected(outcome: LdapResult<'_>) -> AuthOutcome {
    let reason = Reason::new(&login::BIND_CODE_UNEXPECTED, outcome.to_string());
    AuthOutcome::for_reason(AuthResult::Misconfigured, reason)
}

/// Returns the outcome of a bind that Active Directory refused. LDAP cannot change a password after a refused bind.
fn sub_code_outcome(sub_code: AdSubCode, outcome: LdapResult<'_>) -> AuthOutcome {
    let mut answer = AuthOutcome::with_reason(sub_code.result(), outcome.to_string());
    answer.message = sub_code.message();
    match sub_code.user_text() {
        Some(text) => answer.with_message(true, text),
        None => answer,
    }
}

fn expired_outcome(outcome: LdapResult<'_>) -> AuthOutcome {
    let answer = AuthOutcome::with_reason(AuthResult::PasswordExpired, outcome.to_string());
    answer.with_message(true, HAS_EXPIRED)
}

/// Returns the outcome of a right password that has expired and can be changed with the old one.
pub fn changeable_outcome(expired: AuthOutcome) -> AuthOutcome {
    let answer = AuthOutcome::with_reason(AuthResult::MustChange, expired.reason);
    answer.with_message(false, MUST_CHANGE)
}

/// Returns the outcome of a change of an expired password that the server refused. The user cannot repeat it.
pub fn refused_after_expiry(refused: AuthOutcome) -> AuthOutcome {
    let answer = AuthOutcome::with_reason(AuthResult::PasswordExpired, refused.reason);
    answer.with_message(true, HAS_EXPIRED)
}

fn success_outcome(said: PolicyResponse) -> AuthOutcome {
    if said.error == Some(policy::CHANGE_AFTER_RESET) || said.has_expired {
        return AuthOutcome::from_result(AuthResult::MustChange).with_message(false, MUST_CHANGE);
    }
    let answer = AuthOutcome::from_result(AuthResult::Success);
    match (said.grace, said.expires_in) {
        (Some(0), _) => answer.with_message(
            true,
            "Your password has expired. This is your last grace login. Change your password now.",
        ),
        (Some(left), _) => answer.with_message(
            true,
            format!(
                "Your password has expired. {} left. Change your password now.",
                grace_logins(left)
            ),
        ),
        // Some policies send the time from the first day on. A warning about a distant expiry would be noise.
        (None, Some(seconds)) if seconds <= WARNED_SECONDS => {
            answer.with_message(false, format!("Your password expires in {}.", time_left(seconds)))
        }
        (None, _) => answer,
    }
}

/// Two months. A server that warns has its own threshold.
const WARNED_SECONDS: u32 = 60 * 86_400;

fn grace_logins(count: u32) -> String {
    if count == 1 { "1 grace login".to_owned() } else { format!("{count} grace logins") }
}

/// Formats a time in its largest suitable unit.
fn time_left(seconds: u32) -> String {
    let (count, unit) = match seconds {
        ..120 => return "less than two minutes".to_owned(),
        120..7_200 => (seconds / 60, "minutes"),
        7_200..172_800 => (seconds / 3_600, "hours"),
        _ => (seconds / 86_400, "days"),
    };
    format!("{count} {unit}")
}

fn contains_word(message: &[u8], word: &[u8]) -> bool {
    message.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Interprets the reply to a change of password by a user that proved the present password.
fn interpret_change(outcome: LdapResult<'_>, said: PolicyResponse) -> BindOutcome {
    let refused = || {
        let why = policy_refusal(said.error);
        let own = printable(outcome.message);
        let text = match (why, own.as_str()) {
            (Some(why), "") => why.to_owned(),
            (Some(why), own) => format!("{why} ({own})"),
            (None, "") => "The new password is refused.".to_owned(),
            (None, own) => format!("The new password is refused: {own}"),
        };
        let answer = AuthOutcome::with_reason(AuthResult::NewPasswordRefused, outcome.to_string());
        let mut answer = answer.with_message(true, text);
        match (outcome.code, said.error) {
            (_, Some(policy::MUST_SUPPLY_OLD)) => BindOutcome::OldPasswordRequired(answer),
            (code::INSUFFICIENT_ACCESS, None) => {
                answer.message = Some(&login::PASSWORD_CHANGE_NO_ACCESS);
                BindOutcome::ChangeForbidden(answer)
            }
            (53, None) => BindOutcome::ChangeForbidden(answer),
            _ => BindOutcome::Decided(answer),
        }
    };
    match outcome.code {
        0 => BindOutcome::Decided(AuthOutcome::from_result(AuthResult::Success)),
        // The connection is bound as another user than expected, or the present password is wrong.
        49 => BindOutcome::Decided(AuthOutcome::with_reason(
            AuthResult::WrongPassword,
            outcome.to_string(),
        )),
        // constraintViolation, unwillingToPerform, insufficientAccessRights: refused by the policy or by access
        // control.
        19 | 53 | 50 => refused(),
        _ if said.error.is_some() => refused(),
        51 | 52 | 1 | 80 => BindOutcome::TryAnotherServer(outcome.to_string()),
        32 | 34 | 64 => BindOutcome::NoSuchEntry(outcome.to_string()),
        _ => BindOutcome::Decided(unexpected(outcome)),
    }
}

fn policy_refusal(error: Option<u32>) -> Option<&'static str> {
    Some(match error? {
        policy::MODIFICATION_NOT_ALLOWED => "You are not allowed to change your password.",
        policy::MUST_SUPPLY_OLD => "Enter your current password.",
        policy::INSUFFICIENT_QUALITY => "The new password is too simple.",
        policy::TOO_SHORT => "The new password is too short.",
        policy::TOO_YOUNG => "Your password was changed too recently.",
        policy::IN_HISTORY => "The new password was used before.",
        policy::TOO_LONG => "The new password is too long.",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: PolicyResponse =
        PolicyResponse { expires_in: None, grace: None, error: None, has_expired: false };

    fn bind(code: u32, message: &[u8], said: PolicyResponse) -> (Option<AuthResult>, Vec<String>) {
        match interpret_bind(LdapResult { code, message, referral: b"" }, said) {
            BindOutcome::Decided(answer)
            | BindOutcome::Expired(answer)
            | BindOutcome::OldPasswordRequired(answer)
            | BindOutcome::ChangeForbidden(answer) => {
                let messages = answer.messages.into_iter().map(|message| message.text);
                (Some(answer.result), messages.collect())
            }
            BindOutcome::NoSuchEntry(_) | BindOutcome::TryAnotherServer(_) => (None, Vec::new()),
        }
    }

    #[test]
    fn only_success_lets_in() {
        for code in 0..4200 {
            let (verdict, _) = bind(code, b"", NOTHING);
            assert_eq!(verdict == Some(AuthResult::Success), code == 0, "{code}");
        }
    }

    #[test]
    fn a_refusal_is_what_the_server_says_it_is() {
        let policy = |error| PolicyResponse { error: Some(error), ..NOTHING };
        let netscape = PolicyResponse { has_expired: true, ..NOTHING };
        let ad = |data: &str| {
            format!(
                "80090308: LdapErr: DSID-0C09041C, comment: AcceptSecurityContext error, data {data}, v4563"
            )
        };
        for (code, message, said, verdict) in [
            (49, String::new(), NOTHING, AuthResult::WrongPassword),
            (49, String::new(), policy(0), AuthResult::PasswordExpired),
            (49, String::new(), policy(1), AuthResult::Locked),
            (49, String::new(), netscape, AuthResult::PasswordExpired),
            (49, ad("52e"), NOTHING, AuthResult::WrongPassword),
            (49, ad("525"), NOTHING, AuthResult::WrongPassword),
            (49, ad("532"), NOTHING, AuthResult::PasswordExpired),
            (49, ad("533"), NOTHING, AuthResult::Disabled),
            (49, ad("701"), NOTHING, AuthResult::AccountExpired),
            (49, ad("775"), NOTHING, AuthResult::Locked),
            (49, ad("530"), NOTHING, AuthResult::Denied),
            (49, ad("531"), NOTHING, AuthResult::Denied),
            (49, ad("773"), NOTHING, AuthResult::PasswordExpired),
            (49, ad("999"), NOTHING, AuthResult::Denied),
            (49, ad("none"), NOTHING, AuthResult::WrongPassword),
            (19, "Exceed password retry limit.".into(), NOTHING, AuthResult::Locked),
            (53, "Account inactivated. Contact system".into(), NOTHING, AuthResult::Disabled),
            (53, "Too many failed logins.\n".into(), NOTHING, AuthResult::Locked),
            (53, "Entry permanently locked.\n".into(), NOTHING, AuthResult::Locked),
            (
                53,
                "Account (Kerberos principal) is expired".into(),
                NOTHING,
                AuthResult::AccountExpired,
            ),
            (53, "operation restricted".into(), NOTHING, AuthResult::Denied),
            (0, String::new(), policy(0), AuthResult::PasswordExpired),
            (0, String::new(), policy(1), AuthResult::Locked),
            (0, String::new(), policy(3), AuthResult::Denied),
            (0, String::new(), policy(77), AuthResult::Denied),
            (13, "confidentiality required".into(), NOTHING, AuthResult::Misconfigured),
            (10, String::new(), NOTHING, AuthResult::Misconfigured),
            (48, String::new(), NOTHING, AuthResult::WrongPassword),
        ] {
            let (found, _) = bind(code, message.as_bytes(), said);
            assert_eq!(found, Some(verdict), "{code} {message} {said:?}");
        }
    }

    #[test]
    fn what_is_shown_after_a_failure_does_not_tell_a_user_from_nobody() {
        for (code, said) in [
            (49, NOTHING),
            (49, PolicyResponse { error: Some(policy::ACCOUNT_LOCKED), ..NOTHING }),
            (19, NOTHING),
            (48, NOTHING),
        ] {
            assert!(bind(code, b"Exceed password retry limit.", said).1.is_empty());
        }
        assert!(bind(53, b"Account inactivated.", NOTHING).1.is_empty());
    }

    #[test]
    fn bind_sub_code_shown_with_right_password_only() {
        let shown = |data: &str| {
            let message = format!("comment: AcceptSecurityContext error, data {data}, v1db1");
            bind(49, message.as_bytes(), NOTHING).1.concat()
        };
        assert_eq!(shown("530"), "You may not log in at this time.");
        assert_eq!(shown("533"), "Your account is disabled. Ask an administrator.");
        for data in ["525", "52e", "775", "999"] {
            assert_eq!(shown(data), "", "{data}");
        }
    }

    #[test]
    fn an_answer_to_something_else_is_none_to_a_bind_or_a_change() {
        let bind = LdapRequest::SimpleBind { dn: "cn=a", password: b"b" };
        let change = LdapRequest::ModifyPassword { dn: "cn=a", old: b"b", new: b"c" };
        let done = LdapResult { code: 0, message: b"", referral: b"" };
        assert!(interpret_response(&bind, ResponseOperation::BindDone(done), NOTHING).is_some());
        assert!(
            interpret_response(&bind, ResponseOperation::Extended(done, None), NOTHING).is_none()
        );
        assert!(interpret_response(&bind, ResponseOperation::SearchDone(done), NOTHING).is_none());
        assert!(
            interpret_response(&change, ResponseOperation::Extended(done, None), NOTHING).is_some()
        );
        assert!(interpret_response(&change, ResponseOperation::BindDone(done), NOTHING).is_none());
        let modify = LdapRequest::Modify { dn: "cn=a", changes: &[] };
        assert!(
            interpret_response(&modify, ResponseOperation::ModifyDone(done), NOTHING).is_some()
        );
        for other in [ResponseOperation::Extended(done, None), ResponseOperation::BindDone(done)] {
            assert!(interpret_response(&modify, other, NOTHING).is_none());
        }
    }

    #[test]
    fn bind_expired_by_policy_is_right_password() {
        let draft = PolicyResponse { error: Some(policy::PASSWORD_EXPIRED), ..NOTHING };
        let netscape = PolicyResponse { has_expired: true, ..NOTHING };
        let refused = LdapResult { code: 49, message: b"", referral: b"" };
        for said in [draft, netscape] {
            let BindOutcome::Expired(answer) = interpret_bind(refused, said) else {
                panic!("{said:?}")
            };
            assert_eq!(answer.result, AuthResult::PasswordExpired);
            let offered = changeable_outcome(answer);
            assert_eq!(offered.result, AuthResult::MustChange);
            assert_eq!(offered.messages.len(), 1);
        }
        // A success and a wrong password offer no change. Active Directory lacks the feature.
        let ad = LdapResult {
            code: 49,
            message: b"comment: AcceptSecurityContext, data 532, v1",
            referral: b"",
        };
        let done = LdapResult { code: 0, message: b"", referral: b"" };
        for (outcome, said) in [(done, draft), (refused, NOTHING), (ad, NOTHING)] {
            assert!(matches!(interpret_bind(outcome, said), BindOutcome::Decided(_)));
        }
    }

    #[test]
    fn change_without_old_password_is_distinguished() {
        let outcome = LdapResult { code: 50, message: b"Must supply old password", referral: b"" };
        let said = PolicyResponse { error: Some(policy::MUST_SUPPLY_OLD), ..NOTHING };
        let BindOutcome::OldPasswordRequired(answer) = interpret_change(outcome, said) else {
            panic!("not distinguished")
        };
        assert_eq!(answer.result, AuthResult::NewPasswordRefused);
        assert_eq!(answer.message, None);
        let BindOutcome::ChangeForbidden(denied) = interpret_change(outcome, NOTHING) else {
            panic!("no answer")
        };
        assert_eq!(denied.message, Some(&login::PASSWORD_CHANGE_NO_ACCESS));
        let unwilling =
            LdapResult { code: 53, message: b"unwilling to verify old password", referral: b"" };
        assert!(matches!(interpret_change(unwilling, NOTHING), BindOutcome::ChangeForbidden(_)));
        let refused = refused_after_expiry(answer);
        assert_eq!(refused.result, AuthResult::PasswordExpired);
        assert!(refused.messages[0].text.contains("administrator"));
    }

    #[test]
    fn a_right_password_that_must_be_changed_is_no_success() {
        let reset = PolicyResponse { error: Some(policy::CHANGE_AFTER_RESET), ..NOTHING };
        let expired = PolicyResponse { has_expired: true, ..NOTHING };
        for said in [reset, expired] {
            assert_eq!(bind(0, b"", said).0, Some(AuthResult::MustChange));
        }
    }

    #[test]
    fn time_that_is_left_is_told_in_days() {
        let expires = |seconds| {
            bind(0, b"", PolicyResponse { expires_in: Some(seconds), ..NOTHING }).1.concat()
        };
        assert_eq!(expires(3 * 86_400 + 5), "Your password expires in 3 days.");
        assert_eq!(expires(86_400), "Your password expires in 24 hours.");
        assert_eq!(expires(600), "Your password expires in 10 minutes.");
        assert_eq!(expires(0), "Your password expires in less than two minutes.");
        assert_eq!(expires(365 * 86_400), "");
        let grace = |left| bind(0, b"", PolicyResponse { grace: Some(left), ..NOTHING });
        assert_eq!(grace(1).0, Some(AuthResult::Success));
        assert!(grace(1).1.concat().contains("1 grace login left"));
        assert!(grace(0).1.concat().contains("last grace login"));
    }

    #[test]
    fn a_refused_password_says_why_in_our_words_and_the_servers() {
        let outcome = LdapResult {
            code: 19,
            message: b"Password fails quality\nchecking policy",
            referral: b"",
        };
        let said = PolicyResponse { error: Some(policy::TOO_SHORT), ..NOTHING };
        let BindOutcome::Decided(answer) = interpret_change(outcome, said) else {
            panic!("no answer")
        };
        assert_eq!(answer.result, AuthResult::NewPasswordRefused);
        let text = &answer.messages[0].text;
        assert!(
            text.starts_with("The new password is too short. (Password fails quality"),
            "{text}"
        );
        assert!(!text.contains('\n'));
        let BindOutcome::Decided(answer) = interpret_change(outcome, NOTHING) else {
            panic!("no answer")
        };
        assert!(answer.messages[0].text.contains("refused: Password fails quality"));
    }

    #[test]
    fn only_success_is_a_change() {
        for code in 0..4200 {
            for error in [None, Some(2), Some(5)] {
                let said = PolicyResponse { error, ..NOTHING };
                let changed = matches!(
                    interpret_change(LdapResult { code, message: b"", referral: b"" }, said),
                    BindOutcome::Decided(AuthOutcome { result: AuthResult::Success, .. })
                );
                assert_eq!(changed, code == 0, "{code} {error:?}");
            }
        }
    }
}
