// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-rootwrap-daemon --native` on a host, with users that only a directory's snapshot has, a
//! journal that a test reads, and `roster-exec` as any of its users.

use crate::artifacts::{exec_program, rootwrap_daemon_program};
use crate::control_group::remove_control_group;
use crate::corpus::Corpus;
use crate::test_host::{ProgramOutput, RECOMMENDED_NSSWITCH, TestHost, run};
use crate::wait::{SOON, wait_until};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

/// A user of the directory: alice is in ops, bob in no group, carol in db.
pub const ALICE: u32 = 51001;
/// See [`ALICE`].
pub const BOB: u32 = 51002;
/// See [`ALICE`].
pub const CAROL: u32 = 51003;

const PASSWD: &[u8] =
    b"alice:x:51001:51001::/home/alice:/bin/sh\nbob:x:51002:51002::/home/bob:/bin/sh\n\
                        carol:x:51003:51003::/home/carol:/bin/sh\n";
const GROUP: &[u8] = b"alice:x:51001:\nbob:x:51002:\ncarol:x:51003:\nops:x:51010:alice\n\
                       db:x:51011:carol\n";
const LOCAL_FILES: (&[u8], &[u8]) = (b"root:x:0:0:root:/root:/bin/sh\n", b"root:x:0:\n");
/// Mounts a test's journal at the daemon's path of it, then executes the program.
const JOURNAL_SCRIPT: &str = r#"mount -t tmpfs tmpfs /run
    mkdir -p /run/systemd/journal; touch /run/systemd/journal/socket
    mount --bind "$1" /run/systemd/journal/socket
    shift; exec "$@""#;
/// The daemon on its host.
#[derive(Debug)]
pub struct ExecHost {
    /// The host. All users can read its directory.
    pub host: TestHost,
    journal: UnixDatagram,
    daemon: Option<Child>,
}

/// The journal record of one command.
pub type JournalEntry = BTreeMap<String, String>;

impl ExecHost {
    /// Started with a policy.
    ///
    /// # Panics
    /// If it does not listen soon; so do the other functions of this file.
    #[must_use]
    pub fn start(policy: &str) -> Self {
        Self::start_under(policy, &[])
    }

    /// Started by another program, which is given the daemon's command line.
    #[must_use]
    pub fn start_under(policy: &str, by: &[&str]) -> Self {
        let mut exec = Self::prepare(policy);
        exec.launch(by);
        exec
    }

    /// Everything but the daemon.
    #[must_use]
    pub fn prepare(policy: &str) -> Self {
        let host = TestHost::new(
            &Corpus::new("", LOCAL_FILES.0, LOCAL_FILES.1, b""),
            RECOMMENDED_NSSWITCH,
        );
        host.publish(&Corpus::new("", PASSWD, GROUP, b""));
        let journal = UnixDatagram::bind(host.path("journal")).expect("bind the journal's socket");
        journal.set_read_timeout(Some(SOON)).expect("set a time");
        let client = host.path("roster-exec");
        fs::copy(exec_program(), &client).expect("copy roster-exec");
        fs::set_permissions(client, Permissions::from_mode(0o755)).expect("chmod");
        let exec = Self { host, journal, daemon: None };
        exec.write_policy(policy);
        exec
    }

    /// The policy's file.
    pub fn write_policy(&self, policy: &str) {
        let path = self.host.path("exec.toml");
        fs::write(&path, policy).expect("write the policy");
        fs::set_permissions(path, Permissions::from_mode(0o644)).expect("chmod");
    }

    /// The daemon's command line on its host.
    #[must_use]
    pub fn daemon_command(&self, by: &[&str]) -> Command {
        let mut command = self.host.command("sh");
        command.args(["-ec", JOURNAL_SCRIPT, "sh"]).arg(self.host.path("journal")).args(by);
        command.arg(rootwrap_daemon_program()).arg("--native");
        command.arg("--policy").arg(self.host.path("exec.toml"));
        command.arg("--socket").arg(self.socket());
        command
    }

    /// Starts the daemon, and waits until it listens.
    pub fn launch(&mut self, by: &[&str]) {
        let log = File::options().append(true).create(true).open(self.host.path("log"));
        let mut command = self.daemon_command(by);
        self.daemon = Some(command.stderr(log.expect("open the log")).spawn().expect("start it"));
        wait_until(SOON, "the daemon listens", || UnixStream::connect(self.socket()).is_ok());
    }

    /// The path of its socket, in directories that it makes.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.host.path("run/roster/exec")
    }

    /// The daemon's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("it was started").id()
    }

    /// Sends the daemon a signal.
    pub fn signal(&self, name: &str) {
        let done = run(Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()));
        assert_eq!(done.code, 0, "{}", done.error());
    }

    /// The daemon's exit code, once it has ended.
    pub fn wait(&mut self) -> Option<i32> {
        self.daemon.take().expect("it was started").wait().expect("wait for it").code()
    }

    /// The daemon's standard error.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.host.path("log")).unwrap_or_default()
    }

    /// The directory of its cgroups, as its log reports it, if it has any.
    #[must_use]
    pub fn cgroup_dir(&self) -> Option<PathBuf> {
        let log = self.log();
        let line = log.lines().rfind(|line| line.contains("have cgroups in "))?;
        Some(line.rsplit("have cgroups in ").next()?.into())
    }

    /// Removes cgroups that a killed daemon has left. The next daemon in the same cgroup would do it.
    fn remove_cgroups(&self) {
        if let Some(folder) = self.cgroup_dir() {
            remove_control_group(&folder);
        }
    }

    /// A program as a user on the host; 0 is root.
    #[must_use]
    pub fn as_user(&self, uid: u32, program: &str) -> Command {
        let mut command = self.host.command("setpriv");
        command.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}"));
        command.args(["--clear-groups", program]);
        command
    }

    /// `roster-exec` as that user.
    #[must_use]
    pub fn client(&self, uid: u32, args: &[&str]) -> Command {
        let mut command = self.as_user(uid, self.host.path("roster-exec").to_str().expect("UTF-8"));
        command.arg("--socket").arg(self.socket()).args(args);
        command
    }

    /// The same, to its end.
    pub fn run(&self, uid: u32, args: &[&str]) -> ProgramOutput {
        run(&mut self.client(uid, args))
    }

    /// The next record of a command's end.
    pub fn next_end_record(&self) -> JournalEntry {
        loop {
            let record = self.next_record();
            if record.get("ROSTER_EVENT").is_none_or(|event| event == "end") {
                return record;
            }
        }
    }

    /// The next record.
    pub fn next_record(&self) -> JournalEntry {
        let mut entry = vec![0; 1 << 18];
        let count = self.journal.recv(&mut entry).expect("a record comes");
        fields(&entry[..count])
    }

    /// Receives records until none comes for a second. The daemon retains a record for that long if the journal has no
    /// room for it.
    pub fn records_until_quiet(&self) -> Vec<JournalEntry> {
        let mut entry = vec![0; 1 << 18];
        let mut records = Vec::new();
        self.journal.set_read_timeout(Some(Duration::from_secs(1))).expect("set a time");
        while let Ok(count) = self.journal.recv(&mut entry) {
            records.push(fields(&entry[..count]));
        }
        self.journal.set_read_timeout(Some(SOON)).expect("set a time");
        records
    }
}

impl Drop for ExecHost {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.kill();
            let _ = daemon.wait();
            self.remove_cgroups();
        }
    }
}

/// An entry as journald reads it.
fn fields(mut entry: &[u8]) -> JournalEntry {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut fields = JournalEntry::new();
    while let Some(end) = entry.iter().position(|&byte| byte == b'\n') {
        let line = &entry[..end];
        entry = &entry[end + 1..];
        let (name, value) = match line.iter().position(|&byte| byte == b'=') {
            Some(at) => (text(&line[..at]), text(&line[at + 1..])),
            None => {
                let (length, rest) = entry.split_first_chunk().expect("a length");
                let (value, rest) =
                    rest.split_at(usize::try_from(u64::from_le_bytes(*length)).expect("short"));
                entry = &rest[1..];
                (text(line), text(value))
            }
        };
        assert!(fields.insert(name.clone(), value).is_none(), "{name} twice");
    }
    fields
}
