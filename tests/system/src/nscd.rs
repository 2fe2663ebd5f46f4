// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running `roster nscd` on a pretend [`TestHost`], and its client programs.

use crate::artifacts::roster_program;
use crate::corpus::Corpus;
use crate::nss_caller::NssCaller;
use crate::servers::ServerProcess;
use crate::test_host::{ProgramOutput, TestHost, find_tool, run};
use crate::wait::wait_until;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lines of nsswitch.conf(5) with the snapshot as the only source.
pub const SNAPSHOT_ONLY: &str = "passwd: roster\ngroup: roster\ninitgroups: roster\n";

/// The users and groups of a generation for `c/threads.c`: each answer names it in several places.
#[must_use]
pub fn generation(number: usize) -> Corpus {
    let (mut passwd, mut group) = (String::new(), String::new());
    let members: Vec<_> = (0..50).map(|i| format!("m{number}.{i}")).collect();
    let members = members.join(",");
    for i in 0..10 {
        let gid = 1_000_000 + number;
        let id = 1000 + i;
        let _ = writeln!(passwd, "u{i}:x:{id}:{gid}:generation {number}:/home/{number}:/bin/sh");
        let _ = writeln!(group, "g{i}:{number}:{}:{members}", 5000 + i);
    }
    for i in 0..10 {
        let gid = 10_000_000 + number * 100 + i;
        let _ = writeln!(group, "s{i}:x:{gid}:u0,u1,u2,u3,u4,u5,u6,u7,u8,u9");
    }
    Corpus::new("", passwd.as_bytes(), group.as_bytes(), b"")
}

pub use crate::wait::SOON;

/// A server of maps and its host. Dropping it ends the server; in a test that fails it shows the log.
#[derive(Debug)]
pub struct NscdServer {
    process: Option<ServerProcess>,
    arguments: Vec<String>,
    /// A line of shell that runs before it, in its mounts.
    setup_line: String,
    // Removed last.
    host: TestHost,
}

impl NscdServer {
    /// A server on that host, with maps that are ready.
    ///
    /// # Panics
    /// If it does not come up; so do the other functions of this file.
    #[must_use]
    pub fn start(host: TestHost) -> Self {
        let mut responder = Self::prepared(host, &[]);
        responder.launch();
        responder
    }

    /// The same, not started, with more arguments.
    #[must_use]
    pub fn prepared(host: TestHost, arguments: &[&str]) -> Self {
        for (name, mode) in [("nscd", 0o755), ("maps", 0o700)] {
            fs::create_dir_all(host.path(name)).expect("create a folder");
            fs::set_permissions(host.path(name), fs::Permissions::from_mode(mode)).expect("chmod");
        }
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self { process: None, arguments, setup_line: String::new(), host }
    }

    /// Has a line of shell run before the server, in its mounts.
    pub fn run_before(&mut self, line: &str) {
        line.clone_into(&mut self.setup_line);
    }

    /// Starts it, and waits until its maps are there.
    pub fn launch(&mut self) {
        let log = self.host.path("log");
        let mut command = self.command();
        self.process = Some(ServerProcess::start(&mut command, &log));
        wait_until(SOON, "both maps are served", || {
            let figures = self.statistics();
            figures.contains("passwd: ") && figures.matches("entries in a map").count() == 2
        });
    }

    /// The command of the server, which watches the files of the host itself.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = self.host.command("sh");
        command.args(["-ec", &format!("{}\nexec \"$@\"", self.setup_line), "server"]);
        command.arg(roster_program()).arg("nscd").arg("--maps").arg(self.host.path("maps"));
        for name in ["passwd", "group", "nsswitch.conf"] {
            let option = format!("--{}", name.trim_end_matches(".conf"));
            command.arg(option).arg(self.host.path("etc").join(name));
        }
        command.arg("--snapshot").arg(self.host.snapshot_path()).args(&self.arguments);
        command
    }

    /// Starts it and waits for nothing.
    pub fn launch_only(&mut self) {
        let mut command = self.command();
        self.process = Some(ServerProcess::start(&mut command, &self.host.path("log")));
    }

    /// The next server on the same host, which has ended, with these arguments instead.
    #[must_use]
    pub fn restart_with(mut self, arguments: &[&str]) -> Self {
        self.process = None;
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self.launch();
        self
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &TestHost {
        &self.host
    }

    /// The server's process.
    pub fn process(&mut self) -> &mut ServerProcess {
        self.process.as_mut().expect("the server was started")
    }

    /// The output of `roster nscd` with these arguments, as a user that the server allows to make admin requests.
    #[must_use]
    pub fn admin_request(&self, arguments: &[&str]) -> ProgramOutput {
        run(self.host.command(roster_program()).arg("nscd").args(arguments))
    }

    /// The server's statistics.
    #[must_use]
    pub fn statistics(&self) -> String {
        String::from_utf8_lossy(&self.admin_request(&["--statistics"]).stdout).into_owned()
    }

    /// The number in front of this text in the statistics.
    #[must_use]
    pub fn statistic(&self, words: &str) -> u64 {
        let figures = self.statistics();
        let number = figures.split(words).next().and_then(|text| text.split_whitespace().last());
        number
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{words}: {figures}"))
    }

    /// The path of the server's socket, seen from outside of the host.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.host.path("nscd/socket")
    }

    /// Rewrites one of the host's files in place, so that programs on the host see the new text, too.
    pub fn rewrite(&self, name: &str, text: &str) {
        fs::write(self.host.path("etc").join(name), text).expect("write a file of the host");
    }
}

impl Drop for NscdServer {
    fn drop(&mut self) {
        if let Some(process) = &self.process
            && std::thread::panicking()
        {
            eprintln!("the server said:\n{}", process.log());
        }
    }
}

/// A program that looks names up on command, see `c/lookup_stdin.c`.
pub struct LookupProgram(NssCaller);

impl LookupProgram {
    /// Starts the program on a host.
    #[must_use]
    pub fn on(host: &TestHost, program: &Path) -> Self {
        Self(NssCaller::start(&mut host.command(program)))
    }

    /// Starts the program under strace(1), with a record of its waits.
    #[must_use]
    pub fn with_strace(host: &TestHost, program: &Path) -> (Self, PollRecord) {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("waits-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let waits = PollRecord(host.path(&name));
        let mut command = host.command(find_tool("strace", "strace"));
        command.args(PollRecord::OPTIONS).arg(&waits.0).arg(program);
        (Self::from_command(&mut command), waits)
    }

    /// The program of a prepared command.
    #[must_use]
    pub fn from_command(command: &mut Command) -> Self {
        Self(NssCaller::start(command))
    }

    /// Sends a request in the program's format, and returns the reply.
    pub fn send_request(&mut self, question: &str) -> String {
        self.0.send_command(question)
    }

    /// A user's name, ids, GECOS and home; "none" and errno if there is no entry.
    pub fn user(&mut self, name: &str) -> String {
        decode_reply(&self.0.send_command(&format!("u {}", hexadecimal(name.as_bytes()))))
    }

    /// Looks a user up by uid, with the same result.
    pub fn user_by_uid(&mut self, uid: u32) -> String {
        decode_reply(&self.0.send_command(&format!("U {uid}")))
    }

    /// A group with its members.
    pub fn group(&mut self, name: &str) -> String {
        decode_reply(&self.0.send_command(&format!("g {}", hexadecimal(name.as_bytes()))))
    }

    /// The gids of a user's groups, in their order, before the value for "none".
    pub fn gids_of(&mut self, name: &str) -> String {
        self.0.send_command(&format!("i {}", hexadecimal(name.as_bytes())))
    }
}

/// The waits of a program for the server. A client in a C library gives a server up when its poll(2) has lasted for 5
/// s. A shorter wait ended with an answer.
pub struct PollRecord(PathBuf);

impl PollRecord {
    /// Options of strace(1) in front of the name of a record.
    pub const OPTIONS: [&str; 5] = ["-f", "-qq", "-e", "trace=poll,ppoll", "-o"];

    /// The number of times that the program has given a server up.
    #[must_use]
    pub fn timed_out(&self) -> usize {
        Self::timed_out_in(&fs::read_to_string(&self.0).expect("read the record"))
    }

    /// Counts them in the text of a record.
    #[must_use]
    pub fn timed_out_in(record: &str) -> usize {
        record.matches("= 0 (Timeout)").count()
    }
}

/// Bytes as digits.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Strings of an answer as text: `"616c"` as `al`.
fn decode_reply(answer: &str) -> String {
    let word = |word: &str| match word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(digits) => {
            let pairs = digits.as_bytes().chunks(2);
            let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
            String::from_utf8_lossy(&pairs.filter_map(byte).collect::<Vec<_>>()).into_owned()
        }
        None => word.to_owned(),
    };
    answer.trim_start().split(' ').map(word).collect::<Vec<_>>().join(":")
}
