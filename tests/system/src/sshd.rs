//! A real sshd on loopback, on the host of a [`Rosterd`], and a real client of it.

use crate::host::{Output, run, tool};
use crate::rosterd::{Rosterd, SOON};
use crate::servers::{Process, free_port};
use crate::wait::wait_for;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What both kinds of log-in need of sshd_config(5).
const CONFIG: &str = "ListenAddress 127.0.0.1\nPidFile none\nUsePAM yes\nStrictModes no\nPrintMotd no\n\
                      UseDNS no\nAuthorizedKeysFile none\nLogLevel DEBUG1\n";

/// An sshd. Its user has to be one of the host, as [`crate::pam::prepare`] sees to.
#[derive(Debug)]
pub struct Sshd {
    process: Process,
    port: u16,
    folder: PathBuf,
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
        let mut keygen = Command::new(tool("ssh-keygen", "openssh-client"));
        let made = run(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&host_key));
        assert_eq!(made.code, 0, "ssh-keygen: {}", made.error());
        // ssh(1) has a program ask for passwords.
        let asks = folder.join("askpass");
        fs::write(&asks, "#!/bin/sh\nprintf '%s\\n' \"$PASSWORD_TO_TYPE\"\n").expect("askpass");
        fs::set_permissions(&asks, fs::Permissions::from_mode(0o755)).expect("chmod");
        let port = free_port();
        let config = folder.join("sshd_config");
        let text = format!("Port {port}\nHostKey {}\n{CONFIG}{lines}\n", host_key.display());
        fs::write(&config, text).expect("write sshd_config");

        let mut command = rosterd.inside(Path::new("sh"));
        // The folder that it confines itself to is in a /run that is the daemon's.
        let script = "mkdir -p -m 755 /run/sshd; exec \"$0\" -D -e -f \"$1\"";
        command.args(["-ec", script]).arg(tool("sshd", "openssh-server")).arg(config);
        let mut process = Process::start(&mut command, &folder.join("log"));
        wait_for(SOON, || {
            assert!(process.runs(), "sshd has ended: {}", process.log());
            let connected = std::net::TcpStream::connect(("127.0.0.1", port));
            connected.map(drop).map_err(|error| error.to_string())
        });
        Self { process, port, folder }
    }

    /// Runs a command of a user who types a password when asked in that way: `password` or
    /// `keyboard-interactive`.
    #[must_use]
    pub fn by_password(&self, user: &str, password: &str, way: &str, command: &str) -> Output {
        let mut ssh = Command::new(tool("ssh", "openssh-client"));
        ssh.env("SSH_ASKPASS", self.folder.join("askpass")).env("SSH_ASKPASS_REQUIRE", "force");
        ssh.env("PASSWORD_TO_TYPE", password);
        let way = format!("PreferredAuthentications={way}");
        self.run(ssh, user, &[&way, "NumberOfPasswordPrompts=1"], command)
    }

    /// Runs a command of a user who comes with a key.
    #[must_use]
    pub fn by_key(&self, user: &str, key: &Path, command: &str) -> Output {
        let mut ssh = Command::new(tool("ssh", "openssh-client"));
        ssh.arg("-i").arg(key);
        self.run(ssh, user, &["BatchMode=yes", "IdentitiesOnly=yes"], command)
    }

    fn run(&self, mut ssh: Command, user: &str, options: &[&str], command: &str) -> Output {
        ssh.args(["-F", "none", "-p", &self.port.to_string(), "-l", user]);
        let strangers = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"];
        for option in strangers.iter().chain(options).chain(&["LogLevel=ERROR"]) {
            ssh.args(["-o", option]);
        }
        run(ssh.args(["127.0.0.1", command]).stdin(Stdio::null()))
    }

    /// What it has said.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}
