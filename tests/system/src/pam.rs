// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that log users in, on the host of a [`Rosterd`] that is [installed](Rosterd::installed): with a private
//! /etc/pam.d, and the built `pam_roster.so` in its stacks.
//!
//! `pamtester` stands for any program. It asks for passwords on its standard input, one a line.

use crate::artifacts::pam_module;
use crate::rosterd::{DomainTable, Rosterd, SOON};
use crate::servers::{DirectoryServer, POLICY_RDN, Slapd, SlapdOptions};
use crate::test_host::{ProgramOutput, find_tool, run};
use crate::wait::wait_for;
use crate::{LdifBuilder, Schema};
use roster_request::{AuthRequestKind, AuthResult};
use roster_wire::pam::{AuthRequest, AuthResponseHeader, REQUEST_BYTES_MAX, RESPONSE_HEADER_BYTES};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A stack that has this module alone, without a delay after failures.
pub const ROSTER_ONLY_STACK: &str = "auth required MODULE nodelay\naccount required MODULE\n\
                         password required MODULE nodelay\nsession required MODULE\n";

/// The password of all users in [`login_users_ldif`].
pub const PASSWORD: &str = "correct horse";

/// The uid of the first of [`login_users_ldif`]; the others follow.
pub const FIRST_LOGIN_UID: u32 = 20_000;

/// Users that can log in, as LDIF, with the base.
#[must_use]
pub fn login_users_ldif(names: &[&str]) -> String {
    let directory = LdifBuilder::new(Schema::Rfc2307);
    let mut text = directory.tree();
    for (name, uid) in names.iter().zip(FIRST_LOGIN_UID..) {
        let entry = directory.user(name, uid);
        let class = "objectClass: posixAccount\n";
        let more = format!("{class}objectClass: shadowAccount\nuserPassword: {PASSWORD}\n");
        text.push_str(&entry.replacen(class, &more, 1));
    }
    text
}

/// A server with [`login_users_ldif`] and an empty password policy.
///
/// # Panics
/// If it does not come up; so do the other functions of this file.
#[must_use]
pub fn slapd_with_users(names: &[&str]) -> Slapd {
    let setup = SlapdOptions { policy: true, ..SlapdOptions::new(Schema::Rfc2307) };
    let slapd = Slapd::serving(setup, &login_users_ldif(names));
    slapd.change(&format!(
        "dn: {POLICY_RDN},{base}\nobjectClass: device\nobjectClass: pwdPolicy\ncn: policy\n\
         pwdAttribute: userPassword\n",
        base = slapd.base()
    ));
    slapd
}

/// A host for programs that log users in.
#[derive(Debug)]
pub struct PamHost<'r> {
    rosterd: &'r Rosterd,
}

/// A running daemon with these domains and further tables of its configuration, [prepared](prepare) for logins.
#[must_use]
pub fn start_daemon(domains: &[DomainTable], tables: &str) -> Rosterd {
    let mut rosterd = Rosterd::installed(domains);
    rosterd.set_tables(tables);
    prepare(&rosterd);
    rosterd.launch();
    rosterd
}

/// A domain in which users log in by the directory, over a loopback address.
#[must_use]
pub fn domain<S: DirectoryServer>(server: &S) -> DomainTable {
    DomainTable::ldap("corp", server).with("auth", "\"ldap\"")
}

/// Restarts the host: the daemon and its caches begin again, until they know that user again.
pub fn restart(rosterd: &mut Rosterd, user: &str) {
    rosterd.stop();
    rosterd.launch();
    wait_until_user_known(rosterd, user);
}

/// Waits until the daemon can tell whether that user may in.
pub fn wait_until_user_known(rosterd: &Rosterd, user: &str) {
    wait_for(SOON, || match rosterd.roster(&["access", user]) {
        told if matches!(told.code, 0 | 3) => Ok(()),
        told => Err(told.error()),
    });
}

/// Stops the server, until the daemon knows that it is away.
pub fn stop_server<S: DirectoryServer>(server: &mut S, rosterd: &Rosterd) {
    server.stop();
    rosterd.expect_domain_status("corp", "online", false);
}

/// The responder's result for a request, of a prepared daemon that runs.
///
/// # Errors
/// The failure instead of a result.
pub fn auth_result(
    rosterd: &Rosterd,
    kind: AuthRequestKind,
    user: &str,
    password: &str,
) -> Result<AuthResult, String> {
    let request = AuthRequest {
        kind,
        user: user.as_bytes(),
        uid: None,
        service: b"test",
        remote_host: b"",
        terminal: b"",
        remote_user: b"",
        secret: password.as_bytes(),
        new_secret: b"",
        domains: b"",
    };
    let (mut room, mut header) = ([0; REQUEST_BYTES_MAX], [0; RESPONSE_HEADER_BYTES]);
    let asked = UnixStream::connect(rosterd.host().path("run/pam")).and_then(|mut stream| {
        stream.write_all(request.write(&mut room).expect("a request"))?;
        stream.read_exact(&mut header)
    });
    asked.map_err(|error| format!("{error}: {}", rosterd.log()))?;
    Ok(AuthResponseHeader::parse(&header).expect("an answer").result)
}

/// Prepares a daemon that is not started yet for logins: an /etc/pam.d with the service `alone`.
pub fn prepare(rosterd: &Rosterd) {
    let host = rosterd.host();
    fs::create_dir_all(host.path("pam.d")).expect("create pam.d");
    fs::copy(pam_module(), host.path("pam_roster.so")).expect("copy the module");
    // The account that sshd uses before it knows the user.
    let sshd = "sshd:x:102:65534::/run/sshd:/usr/sbin/nologin\n";
    let passwd = host.path("etc/passwd");
    let text = fs::read_to_string(&passwd).expect("read passwd");
    fs::write(&passwd, format!("{text}{sshd}")).expect("write passwd");
    let pam = PamHost { rosterd };
    pam.service("alone", ROSTER_ONLY_STACK);
    // Services without a stack deny every user.
    pam.service("other", "auth required pam_deny.so\naccount required pam_deny.so\n");
}

impl<'r> PamHost<'r> {
    /// On a daemon that was [prepared](prepare) and runs, once it serves that user.
    #[must_use]
    pub fn on(rosterd: &'r Rosterd, user: &str) -> Self {
        let pam = Self { rosterd };
        wait_for(SOON, || {
            let done = run(pam.command("getent").args(["passwd", user]));
            if done.code == 0 {
                Ok(())
            } else {
                Err(format!("{user} is not served: {}", rosterd.log()))
            }
        });
        pam
    }

    /// Writes the stack of a service. `MODULE` in it stands for the path of the module.
    pub fn service(&self, name: &str, stack: &str) {
        let module = self.module_path();
        let text = stack.replace("MODULE", module.to_str().expect("a plain path"));
        fs::write(self.rosterd.host().path("pam.d").join(name), text).expect("write a stack");
    }

    /// The path of the module on the host.
    #[must_use]
    pub fn module_path(&self) -> PathBuf {
        self.rosterd.host().path("pam_roster.so")
    }

    /// A command in the mounts of the daemon, as root.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        self.rosterd.command_inside(Path::new(program))
    }

    /// The output of `pamtester` for these operations, given these lines to read.
    #[must_use]
    pub fn run_pamtester(
        &self,
        service: &str,
        user: &str,
        operations: &[&str],
        lines: &[&str],
    ) -> ProgramOutput {
        let mut command =
            self.command(find_tool("pamtester", "pamtester").to_str().expect("a path"));
        run(command.args([service, user]).args(operations).stdin(stdin_with_lines(lines)))
    }

    /// Runs it as another user than root.
    #[must_use]
    pub fn run_pamtester_as(
        &self,
        uid: u32,
        user: &str,
        operations: &[&str],
        lines: &[&str],
    ) -> ProgramOutput {
        let mut command = self.command("setpriv");
        let id = uid.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "pamtester"]);
        run(command.args(["alone", user]).args(operations).stdin(stdin_with_lines(lines)))
    }

    /// The last message of `pamtester` on one password: `successfully authenticated`, or why not.
    #[must_use]
    pub fn authenticate(&self, user: &str, password: &str) -> String {
        last_message(&self.run_pamtester("alone", user, &["authenticate"], &[password]))
    }

    /// The newest line of the daemon's log about that user, once there is one with `outcome`.
    #[track_caller]
    pub fn expect_logged(&self, user: &str, outcome: &str) -> String {
        wait_for(SOON, || {
            let log = self.rosterd.log();
            let found =
                log.lines().rev().find(|line| line.contains(user) && line.contains(outcome));
            found
                .map(str::to_owned)
                .ok_or_else(|| format!("nothing of {user} and {outcome}: {log}"))
        })
    }
}

/// Lines for a program to read.
#[must_use]
pub fn stdin_with_lines(lines: &[&str]) -> File {
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    let mut file = tempfile::tempfile().expect("a file for input");
    file.write_all(text.as_bytes()).and_then(|()| file.rewind()).expect("write input");
    file
}

/// The last message of `pamtester`.
#[must_use]
pub fn last_message(done: &ProgramOutput) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), done.error());
    let words = ["pamtester: "];
    let last = text.lines().rfind(|line| words.iter().any(|word| line.contains(word)));
    last.unwrap_or(&text).trim_start_matches("pamtester: ").to_owned()
}
