// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service functions of PAM: each finds the user, queries the responder, shows messages, and returns a code.
//! `responder_client` sends the query, and `return_codes` maps the result to the code.
#![forbid(unsafe_code)]

use crate::options::{CredentialAction, ModuleOptions};
use crate::pam_handle::{CallHandle, LogPriority, MessageStyle, PamItem};
use crate::pam_user::{EarlyReturn, PamUser};
use crate::responder_client::{QueryError, ResponderReply, query};
use crate::return_codes::{self, PamCode};
use crate::session_ticket;
use core::ffi::CStr;
use roster_request::{
    AuthRequestKind, AuthResult,
    auth::{ORIGIN_BYTES_MAX, SECRET_BYTES_MAX},
};
use roster_secret::Secret;
use roster_wire::pam::{AuthMessages, AuthRequest};

/// Delay of a failure. libpam varies it by up to a half.
const FAILURE_MICROSECONDS: u32 = 2_000_000;
/// Attempts at a new password that the directory accepts.
const NEW_PASSWORD_ATTEMPTS: usize = 3;
/// Flag from authentication until account management: the password is correct and must be changed.
const MUST_CHANGE: &CStr = c"roster_must_change";

const PASSWORD: &CStr = c"Password: ";
const CURRENT: &CStr = c"Current password: ";
const NEW: &CStr = c"New password: ";
const RETYPE: &CStr = c"Retype new password: ";
const PASSWORDS_DIFFER: &[u8] = b"The two passwords differ.";
// The codes of texts in this crate are literals: the table of codes would make the module larger.
const UNCHANGED: &[u8] = b"Password unchanged.";
const UNREACHABLE: &[u8] = b"The directory server is not reachable. Try again later. [RST-6009]";

/// Queries the responder and shows its messages. Without a reply the result is `Unreachable`.
fn query_responder(
    person: &PamUser<'_>,
    kind: AuthRequestKind,
    secret: &[u8],
    new_secret: &[u8],
) -> AuthResult {
    let said = |item| person.handle.item_text(item, ORIGIN_BYTES_MAX);
    let request = AuthRequest {
        kind,
        user: person.name.to_bytes(),
        uid: person.handle.ids(person.name).map(|(uid, _)| uid),
        service: said(PamItem::Service),
        remote_host: said(PamItem::RemoteHost),
        terminal: said(PamItem::Terminal),
        remote_user: said(PamItem::RemoteUser),
        secret,
        new_secret,
        domains: person.options.domains.text(),
    };
    let ResponderReply { header, messages, blob } = match query(&request) {
        Ok(answer) => answer,
        Err(why) => {
            person.log(LogPriority::Error, match why {
                QueryError::NoReply => {
                    c"no reply from rosterd at /run/roster/pam. Check `systemctl status rosterd`. [RST-6020]"
                }
                QueryError::OtherVersion => {
                    c"rosterd has another protocol version. Restart this program and rosterd. [RST-6021]"
                }
            });
            return AuthResult::Unreachable;
        }
    };
    for message in AuthMessages::new(messages.as_bytes()).take(header.messages) {
        let style = if message.is_error { MessageStyle::Error } else { MessageStyle::Info };
        person.show(style, message.text);
    }
    if header.is_offline {
        person
            .log(LogPriority::Debug, c"offline login: the password was checked against the cache");
    }
    if header.result == AuthResult::Success && !blob.is_empty() {
        session_ticket::keep_ticket(person, &blob);
    }
    header.result
}

/// Checks a password. The responder receives only possible ones.
fn verify_password(person: &PamUser<'_>, password: &Secret) -> AuthResult {
    if !is_possible(password) {
        return AuthResult::WrongPassword;
    }
    query_responder(person, AuthRequestKind::Authenticate, password.as_bytes(), b"")
}

/// Rejects an empty or too long password: a directory would treat an empty one as no password, and report success.
fn is_possible(password: &Secret) -> bool {
    (1..=SECRET_BYTES_MAX).contains(&password.as_bytes().len())
}

fn merge_code(of: Result<PamCode, PamCode>) -> PamCode {
    of.unwrap_or_else(|code| code)
}

/// Authenticates the user.
pub fn authenticate(handle: &CallHandle<'_>, options: &ModuleOptions) -> PamCode {
    let person = match PamUser::from_handle(handle, options) {
        Ok(person) => person,
        Err(EarlyReturn::Local) => return PamCode::USER_UNKNOWN,
        Err(EarlyReturn::UnknownUser(code)) => return code,
    };
    if !options.no_delay {
        handle.delay_failure(FAILURE_MICROSECONDS);
    }
    let code = merge_code(authenticate_user(&person).map(|verdict| {
        let must_change = verdict == AuthResult::MustChange;
        handle.set_flag(MUST_CHANGE, must_change);
        if must_change && options.must_change_fails {
            return PamCode::AUTH_ERR;
        }
        return_codes::authentication_code(verdict)
    }));
    if code == PamCode::SUCCESS {
        person.use_canonical_name();
    }
    code
}

fn authenticate_user(person: &PamUser<'_>) -> Result<AuthResult, PamCode> {
    let PamUser { handle, options, .. } = person;
    if options.use_first_pass || options.try_first_pass {
        let given = handle.password(PamItem::Password);
        let verdict = given.map(|given| verify_password(person, &given));
        match verdict {
            Some(AuthResult::WrongPassword) if !options.use_first_pass => {}
            Some(verdict) => return Ok(verdict),
            None if options.use_first_pass => return Err(PamCode::AUTH_ERR),
            None => {}
        }
    }
    let text = options.prompt.as_ref().map_or(PASSWORD, |prompt| prompt.text());
    let password = handle.prompt(text)?;
    let verdict = verify_password(person, &password);
    if options.forward_pass {
        handle.set_password(PamItem::Password, &password)?;
    }
    Ok(verdict)
}

/// Sets the user's credentials: the session ticket of the login.
pub fn set_credentials(handle: &CallHandle<'_>, options: &ModuleOptions) -> PamCode {
    let act = match options.credentials {
        CredentialAction::Establish => session_ticket::establish,
        CredentialAction::Refresh => session_ticket::refresh,
        CredentialAction::Delete => session_ticket::remove,
    };
    with_pam_user(handle, options, |person| {
        act(&person);
        person.use_canonical_name();
    })
}

/// Opens the session. The program may not have called for credentials before. It may also have authenticated in another
/// process, as sshd does, so that this process has the name as the user typed it.
pub fn open_session(handle: &CallHandle<'_>, options: &ModuleOptions) -> PamCode {
    with_pam_user(handle, options, |person| {
        session_ticket::establish(&person);
        person.use_canonical_name();
    })
}

/// Closes the session.
pub fn close_session(handle: &CallHandle<'_>, options: &ModuleOptions) -> PamCode {
    with_pam_user(handle, options, |person| session_ticket::remove(&person))
}

/// Continues a session without its ticket after a failure, which is in the log.
fn with_pam_user(
    handle: &CallHandle<'_>,
    options: &ModuleOptions,
    act: impl FnOnce(PamUser<'_>),
) -> PamCode {
    match PamUser::from_handle(handle, options) {
        Ok(person) => {
            act(person);
            PamCode::SUCCESS
        }
        Err(EarlyReturn::Local) => PamCode::IGNORE,
        Err(EarlyReturn::UnknownUser(code)) => code,
    }
}

/// Checks whether the user may log in now.
pub fn account(handle: &CallHandle<'_>, options: &ModuleOptions) -> PamCode {
    let person = match PamUser::from_handle(handle, options) {
        Ok(person) => person,
        Err(EarlyReturn::Local) => return PamCode::IGNORE,
        Err(EarlyReturn::UnknownUser(code)) => return code,
    };
    let code =
        return_codes::account_code(query_responder(&person, AuthRequestKind::Account, b"", b""));
    if code == PamCode::SUCCESS {
        // A login by ssh key has no authentication in PAM.
        person.use_canonical_name();
    }
    match code {
        PamCode::SUCCESS if handle.has_flag(MUST_CHANGE) => PamCode::NEW_AUTHTOK_REQD,
        code => code,
    }
}

/// Changes the password: the first call checks whether that is possible, the second one changes it.
pub fn change_password(handle: &CallHandle<'_>, options: &ModuleOptions) -> PamCode {
    let person = match PamUser::from_handle(handle, options) {
        Ok(person) => person,
        Err(EarlyReturn::Local) => return PamCode::USER_UNKNOWN,
        Err(EarlyReturn::UnknownUser(code)) => return code,
    };
    if options.prepares {
        return merge_code(prepare_change(&person));
    }
    if options.updates { merge_code(apply_change(&person)) } else { PamCode::SYSTEM_ERR }
}

fn prepare_change(person: &PamUser<'_>) -> Result<PamCode, PamCode> {
    let PamUser { handle, options, .. } = person;
    let given = if options.use_first_pass || options.try_first_pass {
        handle.password(PamItem::OldPassword)
    } else {
        None
    };
    let old = match given {
        Some(given) => given,
        None if options.use_first_pass => return Err(PamCode::AUTHTOK_RECOVERY_ERR),
        None => handle.prompt(CURRENT)?,
    };
    if !options.no_delay {
        handle.delay_failure(FAILURE_MICROSECONDS);
    }
    if !is_possible(&old) {
        return Err(PamCode::AUTH_ERR);
    }
    let verdict = query_responder(person, AuthRequestKind::PrepareChange, old.as_bytes(), b"");
    if verdict == AuthResult::Unreachable {
        person.show(MessageStyle::Error, UNREACHABLE);
    }
    let code = return_codes::preparation_code(verdict);
    if code == PamCode::SUCCESS {
        // The second call reads it from there.
        handle.set_password(PamItem::OldPassword, &old)?;
    }
    Ok(code)
}

fn apply_change(person: &PamUser<'_>) -> Result<PamCode, PamCode> {
    let PamUser { handle, options, .. } = person;
    let old = handle.password(PamItem::OldPassword).ok_or(PamCode::AUTHTOK_RECOVERY_ERR)?;
    let takes_given = options.use_authtok || options.use_first_pass || options.try_first_pass;
    let given = if takes_given { handle.password(PamItem::Password) } else { None };
    if let Some(new) = given {
        let verdict = send_change(person, &old, &new);
        return Ok(return_codes::change_code(verdict));
    }
    if options.use_authtok || options.use_first_pass {
        return Err(PamCode::AUTHTOK_ERR);
    }
    for _ in 0..NEW_PASSWORD_ATTEMPTS {
        let new = handle.prompt(NEW)?;
        if new.is_empty() {
            // As in other modules, an empty reply cancels the change.
            break;
        }
        if !handle.prompt(RETYPE)?.equals(new.as_bytes()) {
            person.show(MessageStyle::Error, PASSWORDS_DIFFER);
            continue;
        }
        match send_change(person, &old, &new) {
            AuthResult::NewPasswordRefused => {}
            verdict => {
                if verdict == AuthResult::Success {
                    handle.set_password(PamItem::Password, &new)?;
                }
                return Ok(return_codes::change_code(verdict));
            }
        }
    }
    person.show(MessageStyle::Error, UNCHANGED);
    Err(PamCode::AUTHTOK_ERR)
}

fn send_change(person: &PamUser<'_>, old: &Secret, new: &Secret) -> AuthResult {
    if !is_possible(new) {
        return AuthResult::NewPasswordRefused;
    }
    let verdict = query_responder(person, AuthRequestKind::Change, old.as_bytes(), new.as_bytes());
    match verdict {
        AuthResult::Success => person.handle.set_flag(MUST_CHANGE, false),
        AuthResult::Unreachable => person.show(MessageStyle::Error, UNREACHABLE),
        _ => {}
    }
    verdict
}
