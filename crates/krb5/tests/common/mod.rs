//! `roster-krb5 serve` as a back-end has it.
#![allow(dead_code)] // each test uses some of it

use roster_krb5::message::{Incoming, Reply, Request, Setup, Want};
use roster_krb5::outcome::Outcome;
use roster_krb5::realm::Realm;
use roster_system_tests::servers::Kdc;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use zeroize::Zeroizing;

pub use roster_system_tests::wait::SOON;

/// The program, as a back-end has it.
pub struct Program {
    pub child: Child,
    pub socket: UnixStream,
    /// What it has given up, once it is ready.
    pub in_force: String,
    incoming: Incoming,
    next: u64,
}

impl Program {
    /// Starts it.
    pub fn start(setup: &Setup) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_roster-krb5")), setup)
    }

    /// Starts it by a command that becomes it.
    pub fn start_by(mut command: Command, setup: &Setup) -> Self {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let command = command.arg("serve").env_clear();
        let child = command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn().unwrap();
        let mut program =
            Self { child, socket, in_force: String::new(), incoming: Incoming::default(), next: 1 };
        program.socket.set_read_timeout(Some(SOON)).unwrap();
        program.socket.write_all(&setup.encode()).unwrap();
        program
    }

    /// One that is ready.
    pub fn ready(setup: &Setup) -> Self {
        Self::start(setup).get_ready()
    }

    /// The same of one that was started.
    pub fn get_ready(mut self) -> Self {
        let ready = self.reply();
        assert!(ready.id == 0 && ready.outcome == Outcome::Success, "{}", ready.detail);
        self.in_force = ready.detail;
        self
    }

    /// Its processes for log-ins under way.
    pub fn children(&self) -> Vec<String> {
        let pid = self.child.id();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        list.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    /// Sends a request that the program gives up after `time`; returns its number.
    pub fn send(
        &mut self,
        want: Want,
        name: &str,
        password: &str,
        new: &str,
        time: Duration,
    ) -> u64 {
        let id = self.next;
        self.next += 1;
        let request = Request {
            id,
            deadline: time,
            want,
            name: name.into(),
            is_principal: false,
            realm: None,
            password: Zeroizing::new(password.into()),
            new_password: Zeroizing::new(new.into()),
        };
        self.socket.write_all(&request.encode()).unwrap();
        id
    }

    /// The next reply.
    pub fn reply(&mut self) -> Reply {
        loop {
            if let Some(message) = self.incoming.message().unwrap() {
                return Reply::decode(&message).unwrap();
            }
            let mut bytes = [0; 4096];
            let read = self.socket.read(&mut bytes).expect("a reply in time");
            assert!(read > 0, "the program has ended");
            self.incoming.push(&bytes[..read]);
        }
    }

    /// Puts a request and waits for its reply.
    pub fn ask(&mut self, want: Want, name: &str, password: &str, new: &str) -> Reply {
        let id = self.send(want, name, password, new, SOON);
        let reply = self.reply();
        assert_eq!(reply.id, id);
        reply
    }
}

impl Program {
    /// A log-in, and what becomes of it.
    #[track_caller]
    pub fn expect(&mut self, name: &str, password: &str, outcome: Outcome) -> Reply {
        let reply = self.ask(Want::Ticket, name, password, "");
        assert_eq!(reply.outcome, outcome, "{name}: {}", reply.detail);
        reply
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The realm of a KDC.
pub fn realm(kdc: &Kdc) -> Realm {
    Realm {
        name: Kdc::REALM.into(),
        kdcs: vec![kdc.address()],
        kpasswds: vec![kdc.kpasswd_address()],
        discover: false,
    }
}

/// What to go by.
pub fn setup(realm: &Realm, keytab: Option<&Path>) -> Setup {
    let servers = realm.kdcs.iter().chain(&realm.kpasswds);
    Setup {
        realm: realm.clone(),
        keytab: Zeroizing::new(keytab.map(|path| fs::read(path).unwrap()).unwrap_or_default()),
        life_seconds: 3600,
        renewable_seconds: 7200,
        forwardable: false,
        ports: servers.map(|server| server.rsplit_once(':').unwrap().1.parse().unwrap()).collect(),
    }
}

/// Commands of kadmin.
pub fn commands(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}
