// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-krb5 serve` with the test as its backend.
#![allow(dead_code)] // each test uses some of it

use roster_krb5_helper::ipc::{
    HelperOperation, HelperReply, HelperRequest, HelperSetup, MessageBuffer,
};
use roster_krb5_helper::kdc_errors::KdcOutcome;
use roster_krb5_helper::realm::Realm;
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

/// The running program, with its socket.
pub struct Program {
    pub child: Child,
    pub socket: UnixStream,
    /// The sandbox in force, once it is ready.
    pub in_force: String,
    incoming: MessageBuffer,
    next: u64,
}

impl Program {
    /// Starts it.
    pub fn start(setup: &HelperSetup) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_roster-krb5")), setup)
    }

    /// Starts it by a command that executes it.
    pub fn start_by(mut command: Command, setup: &HelperSetup) -> Self {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let command = command.arg("serve").env_clear();
        let child = command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn().unwrap();
        let mut program = Self {
            child,
            socket,
            in_force: String::new(),
            incoming: MessageBuffer::default(),
            next: 1,
        };
        program.socket.set_read_timeout(Some(SOON)).unwrap();
        program.socket.write_all(&setup.encode()).unwrap();
        program
    }

    /// Starts it, and waits until it is ready.
    pub fn ready(setup: &HelperSetup) -> Self {
        Self::start(setup).get_ready()
    }

    /// Waits until the program is ready.
    pub fn get_ready(mut self) -> Self {
        let ready = self.reply();
        assert!(ready.id == 0 && ready.outcome == KdcOutcome::Success, "{}", ready.detail);
        self.in_force = ready.detail;
        self
    }

    /// Returns its processes for logins in progress.
    pub fn children(&self) -> Vec<String> {
        let pid = self.child.id();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        list.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    /// Sends a request with the time limit `time`. Returns its number.
    pub fn send(
        &mut self,
        want: HelperOperation,
        name: &str,
        password: &str,
        new: &str,
        time: Duration,
    ) -> u64 {
        let id = self.next;
        self.next += 1;
        let request = HelperRequest {
            id,
            deadline: time,
            operation: want,
            name: name.into(),
            is_principal: false,
            realm: None,
            password: Zeroizing::new(password.into()),
            new_password: Zeroizing::new(new.into()),
        };
        self.socket.write_all(&request.encode()).unwrap();
        id
    }

    /// Returns the next reply.
    pub fn reply(&mut self) -> HelperReply {
        loop {
            if let Some(message) = self.incoming.next_message().unwrap() {
                return HelperReply::decode(&message).unwrap();
            }
            let mut bytes = [0; 4096];
            let read = self.socket.read(&mut bytes).expect("a reply in time");
            assert!(read > 0, "the program has ended");
            self.incoming.push(&bytes[..read]);
        }
    }

    /// Sends a request and waits for its reply.
    pub fn exchange(
        &mut self,
        want: HelperOperation,
        name: &str,
        password: &str,
        new: &str,
    ) -> HelperReply {
        let id = self.send(want, name, password, new, SOON);
        let reply = self.reply();
        assert_eq!(reply.id, id);
        reply
    }
}

impl Program {
    /// Makes a login and checks its outcome.
    #[track_caller]
    pub fn expect(&mut self, name: &str, password: &str, outcome: KdcOutcome) -> HelperReply {
        let reply = self.exchange(HelperOperation::Ticket, name, password, "");
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

/// Returns the realm of a KDC.
pub fn realm(kdc: &Kdc) -> Realm {
    Realm {
        name: Kdc::REALM.into(),
        kdcs: vec![kdc.address()],
        kpasswds: vec![kdc.kpasswd_address()],
        discover: false,
    }
}

/// Makes the setup of the program.
pub fn setup(realm: &Realm, keytab: Option<&Path>) -> HelperSetup {
    let servers = realm.kdcs.iter().chain(&realm.kpasswds);
    HelperSetup {
        realm: realm.clone(),
        keytab: Zeroizing::new(keytab.map(|path| fs::read(path).unwrap()).unwrap_or_default()),
        fast_principal: String::new(),
        life_seconds: 3600,
        renewable_seconds: 7200,
        forwardable: false,
        ports: servers.map(|server| server.rsplit_once(':').unwrap().1.parse().unwrap()).collect(),
    }
}

/// Converts commands for kadmin.
pub fn commands(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}
