// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Samba AD DC, which is LDAP, Kerberos and DNS of one server, in a private network namespace: its ports are fixed.

use super::ServerProcess;
use crate::test_host::{find_tool, run};
use crate::wait::wait_until;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A domain controller of the realm LAB.TEST.
#[derive(Debug)]
pub struct Samba {
    process: Option<ServerProcess>,
    // Removed last.
    dir: TempDir,
}

impl Samba {
    /// The password of all users.
    pub const PASSWORD: &str = "Passw0rd-of-all";

    /// A domain with the users `u0` to `u3`, served with these options beside the required ones.
    ///
    /// # Panics
    /// If it does not come up; so do the other functions when a command fails.
    #[must_use]
    pub fn start(services: &str, more: &[&str]) -> Self {
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
        let mut command = Command::new("unshare");
        // The second address is the one in its DNS.
        let start = "ip link set lo up && ip address add 192.0.2.1/32 dev lo && \
                     exec \"$0\" -i --no-process-group --debug-stdout \"$@\"";
        command.args(["--net", "sh", "-c", start]).arg(find_tool("samba", "samba-ad-dc"));
        // Not all of them stand in the file that provisioning wrote.
        command.arg("-s").arg(path("etc/smb.conf")).args(&options);
        let mut samba = Self { process: None, dir: folder };
        // In its database, which needs no server.
        for number in 0..4 {
            samba.run_samba_tool(&["user", "create", &format!("u{number}"), Self::PASSWORD]);
        }
        samba.process = Some(ServerProcess::start(&mut command, &samba.path("said")));
        wait_until(Duration::from_secs(60), "Samba answers", || {
            assert!(samba.process().is_running(), "Samba has ended: {}", samba.log());
            ["389", "88"].iter().all(|port| samba.is_listening(port))
        });
        samba
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
