//! The one program of Roster that is linked with libkrb5. People do not call it: a back-end starts
//! `roster-krb5 serve` ([`serve`]), the PAM module `roster-krb5 session …` ([`session`]).
//!
//! It reads no configuration, of its own or of Kerberos, and takes nothing from the environment. Callers
//! hand it fields, of which it builds libkrb5's configuration ([`profile`]). It has one thread.

mod account;
mod attempt;
mod confine;
mod library;
mod memory;
mod process;
mod profile;
mod serve;
mod session;
mod sys;

use std::process::ExitCode;

/// Who called wrongly; of sysexits.h.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    process::clear_environment();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match *words {
        ["serve"] => serve::serve(),
        ["session", "store", uid, gid] => session::store(uid, gid),
        ["session", "refresh", uid, gid, name] => session::refresh(uid, gid, name),
        ["session", "delete", uid, gid, name] => session::delete(uid, gid, name),
        _ => {
            eprintln!("roster-krb5: this program is started by rosterd and by pam_roster");
            return ExitCode::from(USAGE);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("roster-krb5: {error}");
            ExitCode::FAILURE
        }
    }
}
