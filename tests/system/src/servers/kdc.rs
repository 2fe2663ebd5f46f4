// SPDX-License-Identifier: MIT OR Apache-2.0
//! A KDC, MIT's krb5kdc as Debian packages it, with principals of a test's own.

use super::{ServerProcess, free_port};
use crate::test_host::find_tool;
use crate::wait::wait_until;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Longest start on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(30);

/// A KDC of the realm LAB.TEST.
#[derive(Debug)]
pub struct Kdc {
    port: u16,
    kpasswd_port: u16,
    process: Option<ServerProcess>,
    kadmind: Option<ServerProcess>,
    // Removed last.
    dir: TempDir,
}

impl Kdc {
    /// The realm.
    pub const REALM: &str = "LAB.TEST";

    /// A running KDC. `commands` are commands of kadmin, which make the principals; `settings` are lines of the realm's
    /// part of kdc.conf.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start(commands: &[String], settings: &str) -> Self {
        Self::start_at((free_port(), free_port()), commands, settings)
    }

    /// Another KDC in the place of this one, which is stopped, and of its server that changes passwords.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn replace_with(&mut self, commands: &[String]) -> Self {
        self.stop();
        if let Some(kadmind) = &mut self.kadmind {
            kadmind.stop();
        }
        Self::start_at((self.port, self.kpasswd_port), commands, "")
    }

    fn start_at((port, kpasswd_port): (u16, u16), commands: &[String], settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("make a folder for the KDC");
        let mut kdc = Self { port, kpasswd_port, process: None, kadmind: None, dir: folder };
        kdc.configure(settings);
        kdc.run("kdb5_util", "krb5-kdc", &["create", "-s", "-P", "master", "-r", Self::REALM], "");
        kdc.kadmin(commands);
        kdc.launch(&[]);
        kdc
    }

    /// Starts it, again after [`stop`](Self::stop), in an environment with these variables.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn launch(&mut self, environment: &[(&str, &OsStr)]) {
        let mut command = self.command("krb5kdc", "krb5-kdc");
        command.arg("-n").arg("-P").arg(self.path("pid")).envs(environment.iter().copied());
        let mut process = ServerProcess::start(&mut command, &self.path("said"));
        wait_until(START_WITHIN, "krb5kdc answers", || {
            assert!(process.is_running(), "krb5kdc has ended: {}{}", process.log(), self.log());
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
        });
        self.process = Some(process);
    }

    /// Ends it.
    pub fn stop(&mut self) {
        self.process().stop();
    }

    /// Ends the server that changes passwords.
    ///
    /// # Panics
    /// If it was not started.
    pub fn stop_kadmind(&mut self) {
        self.kadmind.as_mut().expect("it was started").stop();
    }

    /// Starts the server that changes passwords.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn launch_kadmind(&mut self) {
        let mut command = self.command("kadmind", "krb5-admin-server");
        command.arg("-nofork").arg("-P").arg(self.path("kadmind.pid"));
        let mut process = ServerProcess::start(&mut command, &self.path("kadmind.said"));
        wait_until(START_WITHIN, "kadmind answers", || {
            assert!(process.is_running(), "kadmind has ended: {}", process.log());
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.kpasswd_port)).is_ok()
        });
        self.kadmind = Some(process);
    }

    /// Carries out commands of kadmin.
    ///
    /// # Panics
    /// If one fails.
    pub fn kadmin(&self, commands: &[String]) {
        let commands = commands.join("\n") + "\n";
        self.run("kadmin.local", "krb5-admin-server", &[], &commands);
    }

    /// A keytab with the keys of a principal.
    ///
    /// # Panics
    /// If there is no such principal.
    #[must_use]
    pub fn keytab(&self, principal: &str) -> PathBuf {
        let path = self.path(&format!("keytab-{}", principal.replace('/', "-")));
        self.kadmin(&[format!("ktadd -norandkey -k {} {principal}", path.display())]);
        path
    }

    fn configure(&self, settings: &str) {
        let path = |name: &str| self.path(name).display().to_string();
        let (port, realm) = (self.port, Self::REALM);
        let (kpasswd, kadmin) = (self.kpasswd_port, free_port());
        let mut kdc = String::from("[realms]\n");
        let _ = writeln!(
            kdc,
            "{realm} = {{\nkdc_listen = 127.0.0.1:{port}\nkdc_tcp_listen = 127.0.0.1:{port}\n\
             kpasswd_listen = 127.0.0.1:{kpasswd}\nkadmind_listen = 127.0.0.1:{kadmin}\n\
             database_name = {}\nkey_stash_file = {}\nacl_file = {}\n{settings}\n}}",
            path("principal"),
            path("stash"),
            path("acl"),
        );
        fs::write(self.path("kdc.conf"), kdc).expect("write kdc.conf");
        let krb5 = format!(
            "[libdefaults]\ndefault_realm = {realm}\ndns_lookup_kdc = false\nrdns = false\n\
             dns_canonicalize_hostname = false\n\
             [realms]\n{realm} = {{\nkdc = 127.0.0.1:{port}\n}}\n[logging]\nkdc = FILE:{}\n",
            path("log")
        );
        fs::write(self.path("acl"), "").expect("write an empty list of administrators");
        fs::write(self.path("krb5.conf"), krb5).expect("write krb5.conf");
    }

    /// The KDC's address.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The address of the server that changes passwords.
    #[must_use]
    pub fn kpasswd_address(&self) -> String {
        format!("127.0.0.1:{}", self.kpasswd_port)
    }

    /// The KDC's process.
    ///
    /// # Panics
    /// Never: it runs from the start on.
    pub fn process(&mut self) -> &mut ServerProcess {
        self.process.as_mut().expect("it was started")
    }

    /// The KDC's log of requests so far.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.path("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A program that takes its configuration from here.
    #[must_use]
    pub fn command(&self, name: &str, package: &str) -> Command {
        let mut command = Command::new(find_tool(name, package));
        command
            .env("KRB5_CONFIG", self.path("krb5.conf"))
            .env("KRB5_KDC_PROFILE", self.path("kdc.conf"))
            .env("LC_ALL", "C.UTF-8");
        command
    }

    fn run(&self, name: &str, package: &str, arguments: &[&str], input: &str) {
        let mut child = self
            .command(name, package)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("start {name}: {error}"));
        let mut pipe = child.stdin.take().expect("a pipe");
        let input = input.to_owned();
        // Write and read at once: the program prints a line for each command.
        let writer = std::thread::spawn(move || pipe.write_all(input.as_bytes()));
        let output = child.wait_with_output().expect("wait for it");
        writer.join().expect("not panicked").expect("it reads all");
        let said = String::from_utf8_lossy(&output.stderr);
        let is_well = output.status.success() && !said.contains("while");
        assert!(is_well, "{name}: {said}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}
