// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real sshd on loopback, on the host of a [`Rosterd`], and a real client of it.

use crate::rosterd::{Rosterd, SOON};
use crate::servers::{ServerProcess, free_port};
use crate::test_host::{ProgramOutput, find_tool, run};
use crate::wait::wait_for;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Settings of sshd_config(5) for both kinds of login.
const CONFIG: &str = "ListenAddress 127.0.0.1\nPidFile none\nUsePAM yes\nStrictModes no\nPrintMotd no\n\
                      UseDNS no\nAuthorizedKeysFile none\nLogLevel DEBUG1\n";

/// An sshd. Its user has to exist on the host, as after [`crate::pam::prepare`].
#[derive(Debug)]
pub struct Sshd {
    process: ServerProcess,
    port: u16,
    dir: PathBuf,
}

impl Sshd {
    /// Starts one with further lines of sshd_config(5).
    ///
    /// # Panics
    /// If it does not listen soon; so do the other functions when a client cannot be run.
    #[must_use]
    pub fn start(rosterd: &Rosterd, lines: &str) -> Self {
        let folder = rosterd.host().path("sshd");
        fs::create_dir(&folder).expect("a folder for sshd");
        let host_key = folder.join("key");
        let mut keygen = Command::new(find_tool("ssh-keygen", "openssh-client"));
        let made = run(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&host_key));
        assert_eq!(made.code, 0, "ssh-keygen: {}", made.error());
        // ssh(1) runs a program that prints passwords.
        let asks = folder.join("askpass");
        fs::write(&asks, "#!/bin/sh\nprintf '%s\\n' \"$PASSWORD_TO_TYPE\"\n").expect("askpass");
        fs::set_permissions(&asks, fs::Permissions::from_mode(0o755)).expect("chmod");
        let port = free_port();
        let config = folder.join("sshd_config");
        let text = format!("Port {port}\nHostKey {}\n{CONFIG}{lines}\n", host_key.display());
        fs::write(&config, text).expect("write sshd_config");

        let mut command = rosterd.command_inside(Path::new("sh"));
        // The directory that it confines itself to is in the daemon's /run.
        let script = "mkdir -p -m 755 /run/sshd; exec \"$0\" -D -e -f \"$1\"";
        command.args(["-ec", script]).arg(find_tool("sshd", "openssh-server")).arg(config);
        let mut process = ServerProcess::start(&mut command, &folder.join("log"));
        wait_for(SOON, || {
            assert!(process.is_running(), "sshd has ended: {}", process.log());
            let connected = std::net::TcpStream::connect(("127.0.0.1", port));
            connected.map(drop).map_err(|error| error.to_string())
        });
        Self { process, port, dir: folder }
    }

    /// Runs a command of a user that types a password when asked in that way: `password` or `keyboard-interactive`.
    #[must_use]
    pub fn run_with_password(
        &self,
        user: &str,
        password: &str,
        way: &str,
        command: &str,
    ) -> ProgramOutput {
        let mut ssh = Command::new(find_tool("ssh", "openssh-client"));
        ssh.env("SSH_ASKPASS", self.dir.join("askpass")).env("SSH_ASKPASS_REQUIRE", "force");
        ssh.env("PASSWORD_TO_TYPE", password);
        let way = format!("PreferredAuthentications={way}");
        self.run(ssh, user, &[&way, "NumberOfPasswordPrompts=1"], command)
    }

    /// Runs a command of a user that logs in with a key.
    #[must_use]
    pub fn run_with_key(&self, user: &str, key: &Path, command: &str) -> ProgramOutput {
        let mut ssh = Command::new(find_tool("ssh", "openssh-client"));
        ssh.arg("-i").arg(key);
        self.run(ssh, user, &["BatchMode=yes", "IdentitiesOnly=yes"], command)
    }

    fn run(&self, mut ssh: Command, user: &str, options: &[&str], command: &str) -> ProgramOutput {
        ssh.args(["-F", "none", "-p", &self.port.to_string(), "-l", user]);
        let strangers = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"];
        for option in strangers.iter().chain(options).chain(&["LogLevel=ERROR"]) {
            ssh.args(["-o", option]);
        }
        run(ssh.args(["127.0.0.1", command]).stdin(Stdio::null()))
    }

    /// The server's log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}
