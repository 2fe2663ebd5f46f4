// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Samba AD DC, which is LDAP, Kerberos and DNS of one server, in a private network namespace: its ports are fixed.

use super::ServerProcess;
use crate::test_host::{find_tool, run};
use crate::wait::wait_until;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A domain controller of the realm LAB.TEST.
#[derive(Debug)]
pub struct Samba {
    process: Option<ServerProcess>,
    /// Options of each of its programs.
    options: Vec<String>,
    // Removed last.
    dir: TempDir,
}

impl Samba {
    /// The password of all users.
    pub const PASSWORD: &str = "Passw0rd-of-all";

    /// The base of all entries.
    pub const BASE: &str = "DC=lab,DC=test";
    /// The container of users and groups.
    pub const USERS: &str = "CN=Users,DC=lab,DC=test";

    /// A domain with the users `u0` to `u3`, served with these options beside the required ones.
    ///
    /// # Panics
    /// If it does not come up; so do the other functions when a command fails.
    #[must_use]
    pub fn start(services: &str, more: &[&str]) -> Self {
        let mut samba = Self::provision(services, more);
        // In its database, which needs no server.
        for number in 0..4 {
            samba.run_samba_tool(&["user", "create", &format!("u{number}"), Self::PASSWORD]);
        }
        samba.launch();
        samba
    }

    /// A domain without a server yet, with the users that each domain has.
    #[must_use]
    pub fn provision(services: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let options = [
            "interfaces=lo".to_owned(),
            "bind interfaces only=yes".to_owned(),
            format!("server services={services}"),
            // Simple binds without TLS.
            "ldap server require strong auth=no".to_owned(),
            "dns update command=/bin/true".to_owned(),
            "vfs objects=".to_owned(),
            "max log size=0".to_owned(),
            format!("pid directory={}", path("pid")),
            format!("ncalrpc dir={}", path("ncalrpc")),
        ];
        let options = options.into_iter().chain(more.iter().map(|&option| option.to_owned()));
        let options: Vec<_> = options.map(|option| format!("--option={option}")).collect();
        let mut provision = Command::new(find_tool("samba-tool", "samba-ad-dc"));
        provision.args(["domain", "provision", "--realm=LAB.TEST", "--domain=LAB"]);
        provision.args(["--server-role=dc", "--dns-backend=SAMBA_INTERNAL", "--host-name=dc"]);
        provision.args(["--host-ip=192.0.2.1", &format!("--adminpass={}", Self::PASSWORD)]);
        provision.arg(format!("--targetdir={}", path(""))).args(&options);
        succeed(&mut provision);
        fs::create_dir_all(path("pid")).expect("make a folder");
        Self { process: None, options, dir: folder }
    }

    /// Adds entries to the database of the stopped server. A field `password` makes a user that can log in.
    pub fn fill(&self, entries: &[Value]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/fill_samba.py");
        let json = self.path("entries.json");
        fs::write(&json, Value::from(entries).to_string()).expect("write the entries");
        // The interpreter of the package, not another one in PATH.
        let mut command = Command::new("/usr/bin/python3");
        command.arg(script).arg(self.path("etc/smb.conf")).arg(self.path("private/sam.ldb"));
        succeed(command.stdin(File::open(json).expect("open the entries")));
    }

    /// Starts the server, and waits until it answers.
    pub fn launch(&mut self) {
        let mut command = Command::new("unshare");
        // The second address is the one in its DNS.
        let start = "ip link set lo up && ip address add 192.0.2.1/32 dev lo && \
                     exec \"$0\" -i --no-process-group --debug-stdout \"$@\"";
        command.args(["--net", "sh", "-c", start]).arg(find_tool("samba", "samba-ad-dc"));
        // Not all of them stand in the file that provisioning wrote.
        command.arg("-s").arg(self.path("etc/smb.conf")).args(&self.options);
        self.process = Some(ServerProcess::start(&mut command, &self.path("said")));
        wait_until(Duration::from_secs(60), "Samba answers", || {
            assert!(self.process().is_running(), "Samba has ended: {}", self.log());
            ["389", "88"].iter().all(|port| self.is_listening(port))
        });
    }

    /// Ends the server.
    pub fn stop(&mut self) {
        if let Some(process) = &mut self.process {
            process.stop();
        }
    }

    /// Applies an LDIF, as the administrator.
    pub fn change(&self, ldif: &str) {
        let file = self.path("change.ldif");
        fs::write(&file, ldif).expect("write the LDIF");
        let mut command = self.command_inside("ldapmodify");
        succeed(command.args(Self::ADMIN_BIND).arg("-f").arg(file));
    }

    /// The output of ldapsearch, as the administrator.
    #[must_use]
    pub fn search(&self, arguments: &[&str]) -> String {
        let mut command = self.command_inside("ldapsearch");
        command.args(Self::ADMIN_BIND).args(["-LLL", "-o", "ldif-wrap=no", "-b", Self::BASE]);
        let done = run(command.args(arguments));
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.error());
        done.text()
    }

    const ADMIN_BIND: [&str; 7] = [
        "-x",
        "-H",
        "ldap://127.0.0.1",
        "-D",
        "CN=Administrator,CN=Users,DC=lab,DC=test",
        "-w",
        Self::PASSWORD,
    ];

    /// A command that executes another one in the network of the server, see `Rosterd::set_network`.
    #[must_use]
    pub fn network_command(&self) -> [String; 4] {
        let pid = self.process.as_ref().expect("it was started").pid().as_raw_nonzero();
        ["nsenter", "--net", "--target", &pid.to_string()].map(str::to_owned)
    }

    /// `samba-tool` on its database.
    pub fn run_samba_tool(&self, words: &[&str]) {
        let mut command = Command::new(find_tool("samba-tool", "samba-ad-dc"));
        command.args(words);
        if words.first() != Some(&"domain") {
            command.arg("-H").arg(self.path("private/sam.ldb"));
        }
        succeed(command.arg("-s").arg(self.path("etc/smb.conf")));
    }

    /// A file of its directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn process(&mut self) -> &mut ServerProcess {
        self.process.as_mut().expect("it was started")
    }

    /// The server's log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.as_ref().map(ServerProcess::log).unwrap_or_default()
    }

    /// A command in its network.
    #[must_use]
    pub fn command_inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.process.as_ref().expect("it was started").pid().as_raw_nonzero().to_string();
        command.args(["--net", "--target", &pid, program]);
        command
    }

    /// Whether the server listens at a port.
    #[must_use]
    pub fn is_listening(&self, port: &str) -> bool {
        let told = self.command_inside("ss").args(["-Hltn", &format!("sport = :{port}")]).output();
        told.is_ok_and(|told| !told.stdout.is_empty())
    }
}

impl Drop for Samba {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It ends its own processes.
            process.stop();
        }
    }
}

fn succeed(command: &mut Command) {
    let done = run(command);
    let said = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.code, 0, "{command:?}: {said}{}", done.error());
}
