// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only program of Roster that is linked with libkrb5. People do not call it: a backend starts `roster-krb5 serve`
//! ([`server`]) and `roster-krb5 bind` ([`bind_server`]), the PAM module `roster-krb5 session …` ([`session_ccache`]).
//!
//! It reads no configuration of Roster or of Kerberos, and nothing from the environment. Callers send fields, and the
//! program builds libkrb5's configuration from them ([`krb5_conf`]). It has one thread.

mod account;
mod auth_request;
mod bind_exchange;
mod bind_server;
mod ffi;
mod fork;
mod gss;
mod gss_ffi;
mod krb5_conf;
mod libkrb5;
mod memory_lock;
mod sandbox;
mod seal_relay;
mod server;
mod session_ccache;

use roster_messages::{CodedError, Message, table::login};
use std::error::Error;
use std::io;
use std::process::ExitCode;

/// Exit status of a wrong command line, from sysexits.h.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    fork::clear_environment();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (done, default) = match *words {
        ["serve"] => (server::serve(), &login::KRB5_SERVE_FAILED),
        ["bind"] => (bind_server::serve(), &login::KRB5_BIND_FAILED),
        ["session", ref operation @ ..] => {
            // They belong to the program of the login.
            fork::close_inherited();
            let done = match *operation {
                ["store", uid, gid] => session_ccache::store(uid, gid),
                ["refresh", uid, gid, name] => session_ccache::refresh(uid, gid, name),
                ["delete", uid, gid, name] => session_ccache::delete(uid, gid, name),
                _ => return usage(),
            };
            (done, &login::KRB5_SESSION_FAILED)
        }
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("roster-krb5: {}", with_code(error, default));
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    let text = "rosterd and pam_roster start this program";
    eprintln!("roster-krb5: {}", CodedError::new(&login::KRB5_USAGE, text));
    ExitCode::from(USAGE)
}

/// Returns the error, with the default code if it has none.
fn with_code(error: io::Error, default: &'static Message) -> io::Error {
    let has_code = error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<CodedError>);
    if has_code { error } else { coded(default, error.to_string()) }
}

/// Returns an error with a code.
fn coded(message: &'static Message, text: impl Into<String>) -> io::Error {
    io::Error::other(CodedError::new(message, text))
}
