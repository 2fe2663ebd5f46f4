//! What each call of PAM does: who it is about, what is asked of the responder, what is shown, and what
//! the program is told.
#![forbid(unsafe_code)]

use crate::ask::{Answer, NoAnswer, ask};
use crate::codes::{self, Code};
use crate::handle::{Handle, Item, Priority, Style};
use crate::local::is_local;
use crate::options::{Credentials, Options};
use crate::tickets;
use core::ffi::CStr;
use roster_secret::Secret;
use roster_wire::pam::{
    Kind, Messages, ORIGIN_BYTES_MAX, Request, SECRET_BYTES_MAX, USER_BYTES_MAX, Verdict,
};

/// How long a failure takes, about: libpam draws up to a half more or less.
const FAILURE_MICROSECONDS: u32 = 2_000_000;
/// Tries at a new password that the directory takes.
const NEW_TRIES: usize = 3;
/// Noted from authentication until the account is looked at: the password is right and must be changed.
const MUST_CHANGE: &CStr = c"roster_must_change";

const PASSWORD: &CStr = c"Password: ";
const CURRENT: &CStr = c"Current password: ";
const NEW: &CStr = c"New password: ";
const RETYPE: &CStr = c"Retype new password: ";
const DIFFER: &[u8] = b"The two passwords differ.";
const UNCHANGED: &[u8] = b"The password is not changed.";
const AWAY: &[u8] = b"The directory cannot be asked now. Try again later.";

/// A user who may be a directory's.
pub struct Person<'h> {
    /// The call.
    pub handle: &'h Handle<'h>,
    options: &'h Options,
    /// As the program has it.
    pub name: &'h CStr,
}

/// Why a call is over before anybody was asked.
enum NotAsked {
    /// The user is the host's own.
    Local,
    /// Nobody can be called so, or the program does not say who it is about.
    Nobody(Code),
}

impl<'h> Person<'h> {
    fn of(handle: &'h Handle<'h>, options: &'h Options) -> Result<Self, NotAsked> {
        let name = handle.user().map_err(NotAsked::Nobody)?;
        let bytes = name.to_bytes();
        let is_possible = (1..=USER_BYTES_MAX).contains(&bytes.len())
            && !bytes.iter().any(|&byte| byte.is_ascii_control() || byte == b':' || byte == b'/');
        if !is_possible {
            return Err(NotAsked::Nobody(Code::USER_UNKNOWN));
        }
        if is_local(bytes) {
            return Err(NotAsked::Local);
        }
        let person = Self { handle, options, name };
        if options.has_strange {
            person.log(Priority::Error, c"an option is none of pam_roster's, see pam_roster(8)");
        }
        Ok(person)
    }

    /// A line in the log.
    pub fn log(&self, priority: Priority, text: &CStr) {
        if priority != Priority::Debug || self.options.debug {
            self.handle.log(priority, text, self.name);
        }
    }

    /// Asks the responder, and shows what it has to say; the verdict without an answer is that there is none.
    fn ask(&self, kind: Kind, secret: &[u8], new_secret: &[u8]) -> Verdict {
        let said = |item| self.handle.said(item, ORIGIN_BYTES_MAX);
        let request = Request {
            kind,
            user: self.name.to_bytes(),
            uid: self.handle.ids(self.name).map(|(uid, _)| uid),
            service: said(Item::Service),
            remote_host: said(Item::RemoteHost),
            terminal: said(Item::Terminal),
            remote_user: said(Item::RemoteUser),
            secret,
            new_secret,
        };
        let Answer { header, messages, blob } = match ask(&request) {
            Ok(answer) => answer,
            Err(why) => {
                self.log(Priority::Error, match why {
                    NoAnswer::Silent => c"rosterd does not answer at /run/roster/pam",
                    NoAnswer::OtherVersion => {
                        c"rosterd is of another version than this module: restart this program, and rosterd"
                    }
                });
                return Verdict::Unreachable;
            }
        };
        for message in Messages::new(messages.as_bytes()).take(header.messages) {
            let style = if message.is_error { Style::Error } else { Style::Info };
            self.show(style, message.text);
        }
        if header.is_offline {
            self.log(Priority::Debug, c"the directory is away, and what is kept was believed");
        }
        if header.verdict == Verdict::Success && !blob.is_empty() {
            tickets::bring(self, &blob);
        }
        header.verdict
    }

    fn show(&self, style: Style, text: &[u8]) {
        let is_unwanted = self.options.quiet && style == Style::Info;
        if !self.options.is_silent && !is_unwanted {
            self.handle.show(style, text);
        }
    }

    /// A password, as far as one can be somebody's.
    fn authenticate(&self, password: &Secret) -> Verdict {
        if !is_possible(password) {
            return Verdict::WrongPassword;
        }
        self.ask(Kind::Authenticate, password.as_bytes(), b"")
    }
}

/// An empty password is nobody's: a directory would take it for no password at all, and say yes.
fn is_possible(password: &Secret) -> bool {
    (1..=SECRET_BYTES_MAX).contains(&password.as_bytes().len())
}

fn code(of: Result<Code, Code>) -> Code {
    of.unwrap_or_else(|code| code)
}

/// Whether who is there is the user.
pub fn authenticate(handle: &Handle<'_>, options: &Options) -> Code {
    let person = match Person::of(handle, options) {
        Ok(person) => person,
        Err(NotAsked::Local) => return Code::USER_UNKNOWN,
        Err(NotAsked::Nobody(code)) => return code,
    };
    if !options.no_delay {
        handle.delay_failure(FAILURE_MICROSECONDS);
    }
    code(proven(&person).map(|verdict| {
        let must_change = verdict == Verdict::MustChange;
        handle.note(MUST_CHANGE, must_change);
        if must_change && options.must_change_fails {
            return Code::AUTH_ERR;
        }
        codes::of_authentication(verdict)
    }))
}

fn proven(person: &Person<'_>) -> Result<Verdict, Code> {
    let Person { handle, options, .. } = person;
    if options.use_first_pass || options.try_first_pass {
        let given = handle.password(Item::Password);
        let verdict = given.map(|given| person.authenticate(&given));
        match verdict {
            Some(Verdict::WrongPassword) if !options.use_first_pass => {}
            Some(verdict) => return Ok(verdict),
            None if options.use_first_pass => return Err(Code::AUTH_ERR),
            None => {}
        }
    }
    let password = handle.prompt(PASSWORD)?;
    let verdict = person.authenticate(&password);
    if options.forward_pass {
        handle.set_password(Item::Password, &password)?;
    }
    Ok(verdict)
}

/// What the user may have from now on: the ticket that the log-in brought.
pub fn set_credentials(handle: &Handle<'_>, options: &Options) -> Code {
    let act = match options.credentials {
        Credentials::Establish => tickets::establish,
        Credentials::Refresh => tickets::refresh,
        Credentials::Delete => tickets::remove,
    };
    of_a_person(handle, options, act)
}

/// The user comes in: a program may have left out to ask for credentials.
pub fn open_session(handle: &Handle<'_>, options: &Options) -> Code {
    of_a_person(handle, options, tickets::establish)
}

/// The user leaves.
pub fn close_session(handle: &Handle<'_>, options: &Options) -> Code {
    of_a_person(handle, options, tickets::remove)
}

/// A session does without what could not be had: that is in the log.
fn of_a_person(handle: &Handle<'_>, options: &Options, act: fn(&Person<'_>)) -> Code {
    match Person::of(handle, options) {
        Ok(person) => {
            act(&person);
            Code::SUCCESS
        }
        Err(NotAsked::Local) => Code::IGNORE,
        Err(NotAsked::Nobody(code)) => code,
    }
}

/// Whether the user may in now.
pub fn account(handle: &Handle<'_>, options: &Options) -> Code {
    let person = match Person::of(handle, options) {
        Ok(person) => person,
        Err(NotAsked::Local) => return Code::IGNORE,
        Err(NotAsked::Nobody(code)) => return code,
    };
    let code = codes::of_account(person.ask(Kind::Account, b"", b""));
    match code {
        Code::SUCCESS if handle.is_noted(MUST_CHANGE) => Code::NEW_AUTHTOK_REQD,
        code => code,
    }
}

/// Another password: first whether that is to be had, then the change.
pub fn change_password(handle: &Handle<'_>, options: &Options) -> Code {
    let person = match Person::of(handle, options) {
        Ok(person) => person,
        Err(NotAsked::Local) => return Code::USER_UNKNOWN,
        Err(NotAsked::Nobody(code)) => return code,
    };
    if options.prepares {
        return code(prepare(&person));
    }
    if options.updates { code(update(&person)) } else { Code::SYSTEM_ERR }
}

fn prepare(person: &Person<'_>) -> Result<Code, Code> {
    let Person { handle, options, .. } = person;
    let given = if options.use_first_pass || options.try_first_pass {
        handle.password(Item::OldPassword)
    } else {
        None
    };
    let old = match given {
        Some(given) => given,
        None if options.use_first_pass => return Err(Code::AUTHTOK_RECOVERY_ERR),
        None => handle.prompt(CURRENT)?,
    };
    if !options.no_delay {
        handle.delay_failure(FAILURE_MICROSECONDS);
    }
    if !is_possible(&old) {
        return Err(Code::AUTH_ERR);
    }
    let verdict = person.ask(Kind::PrepareChange, old.as_bytes(), b"");
    if verdict == Verdict::Unreachable {
        person.show(Style::Error, AWAY);
    }
    let code = codes::of_preparation(verdict);
    if code == Code::SUCCESS {
        // The second call knows it by that.
        handle.set_password(Item::OldPassword, &old)?;
    }
    Ok(code)
}

fn update(person: &Person<'_>) -> Result<Code, Code> {
    let Person { handle, options, .. } = person;
    let old = handle.password(Item::OldPassword).ok_or(Code::AUTHTOK_RECOVERY_ERR)?;
    let takes_given = options.use_authtok || options.use_first_pass || options.try_first_pass;
    let given = if takes_given { handle.password(Item::Password) } else { None };
    if let Some(new) = given {
        let verdict = change(person, &old, &new);
        return Ok(codes::of_change(verdict));
    }
    if options.use_authtok || options.use_first_pass {
        return Err(Code::AUTHTOK_ERR);
    }
    for _ in 0..NEW_TRIES {
        let new = handle.prompt(NEW)?;
        if new.is_empty() {
            // As everywhere: who has thought better of it presses return.
            break;
        }
        if !handle.prompt(RETYPE)?.equals(new.as_bytes()) {
            person.show(Style::Error, DIFFER);
            continue;
        }
        match change(person, &old, &new) {
            Verdict::NewPasswordRefused => {}
            verdict => {
                if verdict == Verdict::Success {
                    handle.set_password(Item::Password, &new)?;
                }
                return Ok(codes::of_change(verdict));
            }
        }
    }
    person.show(Style::Error, UNCHANGED);
    Err(Code::AUTHTOK_ERR)
}

fn change(person: &Person<'_>, old: &Secret, new: &Secret) -> Verdict {
    if !is_possible(new) {
        return Verdict::NewPasswordRefused;
    }
    let verdict = person.ask(Kind::Change, old.as_bytes(), new.as_bytes());
    match verdict {
        Verdict::Success => person.handle.note(MUST_CHANGE, false),
        Verdict::Unreachable => person.show(Style::Error, AWAY),
        _ => {}
    }
    verdict
}
