//! The only program of Roster that is linked with libkrb5. People do not call it: a backend starts `roster-krb5 serve`
//! ([`server`]), the PAM module `roster-krb5 session …` ([`session_ccache`]).
//!
//! It reads no configuration of Roster or of Kerberos, and nothing from the environment. Callers send fields, and the
//! program builds libkrb5's configuration from them ([`krb5_conf`]). It has one thread.

mod account;
mod auth_request;
mod ffi;
mod fork;
mod krb5_conf;
mod libkrb5;
mod memory_lock;
mod sandbox;
mod server;
mod session_ccache;

use std::process::ExitCode;

/// Exit status of a wrong command line, from sysexits.h.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    fork::clear_environment();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match *words {
        ["serve"] => server::serve(),
        ["session", "store", uid, gid] => session_ccache::store(uid, gid),
        ["session", "refresh", uid, gid, name] => session_ccache::refresh(uid, gid, name),
        ["session", "delete", uid, gid, name] => session_ccache::delete(uid, gid, name),
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
