//! Programs that log people in, on the host of a [`Rosterd`] that is [installed](Rosterd::installed): with
//! an /etc/pam.d of the test's own, and the built `pam_roster.so` in its stacks.
//!
//! `pamtester` stands for any program. It asks for passwords on its standard input, one a line.

use crate::artifacts::pam_module;
use crate::host::{Output, run, tool};
use crate::rosterd::{Domain, Rosterd, SOON};
use crate::servers::{POLICY, Server, Setup, Slapd};
use crate::wait::wait_for;
use crate::{Directory, Schema};
use roster_wire::pam::{
    ANSWER_HEADER_BYTES, AnswerHeader, Kind, REQUEST_BYTES_MAX, Request, Verdict,
};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A stack that has this module alone, where a failure takes no longer than it takes.
pub const ALONE: &str = "auth required MODULE nodelay\naccount required MODULE\n\
                         password required MODULE nodelay\nsession required MODULE\n";

/// The password of everybody in [`people`].
pub const PASSWORD: &str = "correct horse";

/// The uid of the first of [`people`]; the others follow.
pub const FIRST: u32 = 20_000;

/// People who can log in, as LDIF, with the base.
#[must_use]
pub fn people(names: &[&str]) -> String {
    let directory = Directory::new(Schema::Rfc2307);
    let mut text = directory.tree();
    for (name, uid) in names.iter().zip(FIRST..) {
        let entry = directory.user(name, uid);
        let class = "objectClass: posixAccount\n";
        let more = format!("{class}objectClass: shadowAccount\nuserPassword: {PASSWORD}\n");
        text.push_str(&entry.replacen(class, &more, 1));
    }
    text
}

/// A server with [`people`] and a policy on passwords that says nothing yet.
///
/// # Panics
/// If it does not come up; so do the other functions of this file.
#[must_use]
pub fn directory(names: &[&str]) -> Slapd {
    let setup = Setup { policy: true, ..Setup::new(Schema::Rfc2307) };
    let slapd = Slapd::serving(setup, &people(names));
    slapd.change(&format!(
        "dn: {POLICY},{base}\nobjectClass: device\nobjectClass: pwdPolicy\ncn: policy\n\
         pwdAttribute: userPassword\n",
        base = slapd.base()
    ));
    slapd
}

/// Where programs log people in.
#[derive(Debug)]
pub struct Pam<'r> {
    rosterd: &'r Rosterd,
}

/// A running daemon with these domains and further tables of its configuration, [prepared](prepare) for log-ins.
#[must_use]
pub fn started(domains: &[Domain], tables: &str) -> Rosterd {
    let mut rosterd = Rosterd::installed(domains);
    rosterd.set_tables(tables);
    prepare(&rosterd);
    rosterd.launch();
    rosterd
}

/// A domain in which people log in by the directory, over a loopback address.
#[must_use]
pub fn domain<S: Server>(server: &S) -> Domain {
    Domain::ldap("corp", server).with("auth", "\"ldap\"")
}

/// The host restarts: the daemon and its caches begin anew, until they know that user again.
pub fn restart(rosterd: &mut Rosterd, user: &str) {
    rosterd.stop();
    rosterd.launch();
    wait_until_known(rosterd, user);
}

/// Waits until the daemon can tell whether that user may in.
pub fn wait_until_known(rosterd: &Rosterd, user: &str) {
    wait_for(SOON, || match rosterd.roster(&["access", user]) {
        told if matches!(told.code, 0 | 3) => Ok(()),
        told => Err(told.error()),
    });
}

/// Stops the server, until the daemon knows that it is away.
pub fn take_away<S: Server>(server: &mut S, rosterd: &Rosterd) {
    server.stop();
    rosterd.expect_of_domain("corp", "online", false);
}

/// What the responder of a daemon that runs as it is prepared answers to a request.
///
/// # Errors
/// What went wrong instead.
pub fn verdict(
    rosterd: &Rosterd,
    kind: Kind,
    user: &str,
    password: &str,
) -> Result<Verdict, String> {
    let request = Request {
        kind,
        user: user.as_bytes(),
        uid: None,
        service: b"test",
        remote_host: b"",
        terminal: b"",
        remote_user: b"",
        secret: password.as_bytes(),
        new_secret: b"",
    };
    let (mut room, mut header) = ([0; REQUEST_BYTES_MAX], [0; ANSWER_HEADER_BYTES]);
    let asked = UnixStream::connect(rosterd.host().path("run/pam")).and_then(|mut stream| {
        stream.write_all(request.write(&mut room).expect("a request"))?;
        stream.read_exact(&mut header)
    });
    asked.map_err(|error| format!("{error}: {}", rosterd.log()))?;
    Ok(AnswerHeader::parse(&header).expect("an answer").verdict)
}

/// Sets a daemon that is not started yet up for log-ins: an /etc/pam.d with the service `alone`.
pub fn prepare(rosterd: &Rosterd) {
    let host = rosterd.host();
    fs::create_dir_all(host.path("pam.d")).expect("create pam.d");
    fs::copy(pam_module(), host.path("pam_roster.so")).expect("copy the module");
    // Which sshd goes by while it does not know who is there.
    let sshd = "sshd:x:102:65534::/run/sshd:/usr/sbin/nologin\n";
    let passwd = host.path("etc/passwd");
    let text = fs::read_to_string(&passwd).expect("read passwd");
    fs::write(&passwd, format!("{text}{sshd}")).expect("write passwd");
    let pam = Pam { rosterd };
    pam.service("alone", ALONE);
    // What nobody asked for lets nobody in.
    pam.service("other", "auth required pam_deny.so\naccount required pam_deny.so\n");
}

impl<'r> Pam<'r> {
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

    /// Writes the stack of a service, in which `MODULE` is where the module is.
    pub fn service(&self, name: &str, stack: &str) {
        let module = self.module();
        let text = stack.replace("MODULE", module.to_str().expect("a plain path"));
        fs::write(self.rosterd.host().path("pam.d").join(name), text).expect("write a stack");
    }

    /// Where the module is on the host.
    #[must_use]
    pub fn module(&self) -> PathBuf {
        self.rosterd.host().path("pam_roster.so")
    }

    /// A command in the mounts of the daemon, as root.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        self.rosterd.inside(Path::new(program))
    }

    /// What `pamtester` says of these operations, given these lines to read.
    #[must_use]
    pub fn test(&self, service: &str, user: &str, operations: &[&str], lines: &[&str]) -> Output {
        let mut command = self.command(tool("pamtester", "pamtester").to_str().expect("a path"));
        run(command.args([service, user]).args(operations).stdin(input(lines)))
    }

    /// The same by somebody else than root.
    #[must_use]
    pub fn test_as(&self, uid: u32, user: &str, operations: &[&str], lines: &[&str]) -> Output {
        let mut command = self.command("setpriv");
        let id = uid.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "pamtester"]);
        run(command.args(["alone", user]).args(operations).stdin(input(lines)))
    }

    /// What `pamtester` says of one password, in a word: `successfully authenticated`, or why not.
    #[must_use]
    pub fn authenticate(&self, user: &str, password: &str) -> String {
        said(&self.test("alone", user, &["authenticate"], &[password]))
    }

    /// The last words of the daemon's log about that user, once there are any with `outcome` in them.
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
pub fn input(lines: &[&str]) -> File {
    let mut text = String::new();
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    let mut file = tempfile::tempfile().expect("a file for input");
    file.write_all(text.as_bytes()).and_then(|()| file.rewind()).expect("write input");
    file
}

/// What `pamtester` says in the end.
#[must_use]
pub fn said(done: &Output) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), done.error());
    let words = ["pamtester: "];
    let last = text.lines().rfind(|line| words.iter().any(|word| line.contains(word)));
    last.unwrap_or(&text).trim_start_matches("pamtester: ").to_owned()
}
