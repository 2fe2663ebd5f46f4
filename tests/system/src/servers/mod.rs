// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real servers, each in a private directory and on private loopback ports, gone when dropped.
//!
//! [`Slapd`], [`Ds389`], [`Kdc`], [`Kcm`] and [`Samba`] start servers of Debian packages. [`Relay`] stands between a
//! client and a server and drops their messages. [`TestCertificates`] are made for them. The trait [`DirectoryServer`]
//! has the tasks of an administrator on either directory server, by `ldapmodify` and by signals.

mod certificates;
mod controllers;
mod dns;
mod ds389;
mod kcm;
mod kdc;
mod process;
mod relay;
mod samba;
mod slapd;
mod sssd;

pub use certificates::{ServerCertificate, TestCertificates};
pub use controllers::{ControllerPair, ControllerRecord};
pub use dns::{DnsServer, SrvRecord};
pub use ds389::Ds389;
pub use kcm::Kcm;
pub use kdc::Kdc;
pub use process::ServerProcess;
pub use relay::{Relay, ServerFault};
pub use samba::Samba;
pub use slapd::{POLICY_RDN, Slapd, SlapdOptions};
pub use sssd::Sssd;

use crate::test_host::{ProgramOutput, find_tool, run};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// The naming context of a server, unless a test wants two.
pub const BASE: &str = "dc=example,dc=com";

/// The account that rosterd binds as is `cn=reader` below the base, with this password.
pub const READER_PASSWORD: &str = "reads everything";

/// The password of the servers' own administrators.
const ADMIN_PASSWORD: &str = "may do anything";

/// Longest start and stop of a server on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(60);

/// The way in which groups name their members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// By user name.
    Rfc2307,
    /// By DN.
    Rfc2307bis,
}

impl Schema {
    /// As roster.toml spells it.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Rfc2307 => "rfc2307",
            Self::Rfc2307bis => "rfc2307bis",
        }
    }
}

/// A copy of a server's database.
#[derive(Debug)]
pub struct DatabaseCopy(TempDir);

/// A directory server and its administrator.
pub trait DirectoryServer {
    /// `ldap://127.0.0.1:PORT`.
    fn uri(&self) -> String;

    /// The server's naming context.
    fn base(&self) -> &str;

    /// The way in which the server's groups name their members.
    fn schema(&self) -> Schema;

    /// Whether the server itself puts member lists right when an entry takes another name.
    fn repairs_member_lists(&self) -> bool {
        false
    }

    /// The DN of the administrator, which has all rights.
    fn admin_dn(&self) -> String;

    /// The server's own directory.
    fn server_dir(&self) -> &Path;

    /// The directory of its database.
    fn database_dir(&self) -> PathBuf;

    /// Copies the database of a stopped server.
    ///
    /// # Panics
    /// If it cannot be copied.
    #[must_use]
    fn save(&self) -> DatabaseCopy {
        let copy = tempfile::tempdir().expect("make a folder for a copy");
        copy_files(&self.database_dir(), copy.path());
        DatabaseCopy(copy)
    }

    /// Puts a copy back, as after a crash of the server's disk.
    ///
    /// # Panics
    /// If it cannot be copied.
    fn restore(&self, saved: &DatabaseCopy) {
        fs::remove_dir_all(self.database_dir()).expect("remove the database");
        fs::create_dir(self.database_dir()).expect("create the database folder");
        copy_files(saved.0.path(), &self.database_dir());
    }

    /// The running server.
    ///
    /// # Panics
    /// If it does not run.
    fn process(&mut self) -> &mut ServerProcess;

    /// Starts it and waits until it answers.
    ///
    /// # Panics
    /// If it does not.
    fn start(&mut self);

    /// Ends it as an administrator would.
    fn stop(&mut self) {
        self.process().stop();
    }

    /// The DN of the account that rosterd binds as.
    fn reader_dn(&self) -> String {
        format!("cn=reader,{}", self.base())
    }

    /// Carries out changes, which are LDIF; an entry without `changetype` is added.
    ///
    /// # Panics
    /// If the server refuses any.
    fn change(&self, ldif: &str) {
        modify(self, &[], ldif);
    }

    /// Carries out changes that may set attributes that the server maintains, such as time stamps.
    ///
    /// # Panics
    /// If the server refuses any.
    fn change_relaxed(&self, ldif: &str) {
        modify(self, &["-e", "!relax"], ldif);
    }

    /// Deletes entries, each named by its DN, with all that is below.
    ///
    /// # Panics
    /// If the server refuses.
    fn delete(&self, dns: &[String]) {
        let changes: String =
            dns.iter().map(|dn| format!("dn: {dn}\nchangetype: delete\n\n")).collect();
        self.change(&changes);
    }

    /// Sets an attribute of an entry to exactly these values; none removes it.
    ///
    /// # Panics
    /// If the server refuses.
    fn set(&self, dn: &str, attribute: &str, values: &[&str]) {
        let values: String = values.iter().map(|value| format!("{attribute}: {value}\n")).collect();
        self.change(&format!("dn: {dn}\nchangetype: modify\nreplace: {attribute}\n{values}-\n"));
    }

    /// Changes an entry's RDN, the old value going away, and its place if there is a new one.
    ///
    /// # Panics
    /// If the server refuses.
    fn rename(&self, dn: &str, rdn: &str, superior: Option<&str>) {
        let superior = superior.map(|dn| format!("newsuperior: {dn}\n")).unwrap_or_default();
        self.change(&format!(
            "dn: {dn}\nchangetype: modrdn\nnewrdn: {rdn}\ndeleteoldrdn: 1\n{superior}"
        ));
    }

    /// The output of `ldapsearch` as the administrator: LDIF.
    ///
    /// # Panics
    /// If the server does not answer.
    fn search(&self, base: &str, filter: &str, attributes: &[&str]) -> Vec<u8> {
        let done = ldapsearch(self, base, filter, attributes);
        assert_eq!(done.code, 0, "ldapsearch: {}", done.error());
        done.stdout
    }

    /// The entries that the reader may see, as LDIF in a file of that name in the server's directory.
    ///
    /// # Panics
    /// If the server does not answer.
    fn export(&self, name: &str) -> PathBuf {
        let path = self.server_dir().join(name);
        fs::write(&path, self.search(self.base(), "(objectClass=*)", &["*"])).expect("write LDIF");
        path
    }
}

/// `ldapmodify` as the administrator.
fn modify<S: DirectoryServer + ?Sized>(server: &S, options: &[&str], ldif: &str) {
    let mut command = openldap_client("ldapmodify", server);
    let mut child = command
        .args(options)
        .arg("-a")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start ldapmodify");
    let mut input = child.stdin.take().expect("was piped");
    input.write_all(ldif.as_bytes()).expect("feed ldapmodify");
    drop(input);
    let done = child.wait_with_output().expect("wait for ldapmodify");
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ldapmodify: {words}{}", first_lines(ldif));
}

/// `ldapsearch` as the administrator.
pub(crate) fn ldapsearch<S: DirectoryServer + ?Sized>(
    server: &S,
    base: &str,
    filter: &str,
    attributes: &[&str],
) -> ProgramOutput {
    let mut command = openldap_client("ldapsearch", server);
    command.args(["-LLL", "-o", "ldif-wrap=no", "-b", base, filter]).args(attributes);
    run(&mut command)
}

/// Whether a server answers its administrator.
fn check_responds<S: DirectoryServer + ?Sized>(server: &S) -> Result<(), String> {
    let mut command = openldap_client("ldapsearch", server);
    let done = run(command.args(["-LLL", "-s", "base", "-b", server.base(), "1.1"]));
    if done.code == 0 { Ok(()) } else { Err(done.error()) }
}

/// A program of OpenLDAP, connected as the administrator.
fn openldap_client<S: DirectoryServer + ?Sized>(program: &str, server: &S) -> Command {
    let password = server.server_dir().join("admin.password");
    fs::write(&password, ADMIN_PASSWORD).expect("write the password");
    let mut command = Command::new(find_tool(program, "ldap-utils"));
    command.args(["-x", "-o", "nettimeout=30", "-H", &server.uri()]);
    command.args(["-D", &server.admin_dn(), "-y"]).arg(&password).stdin(Stdio::null());
    // The machine's own ldap.conf and ~/.ldaprc must not matter.
    command.env("LDAPNOINIT", "1");
    command
}

/// The entry of the account that rosterd binds as.
fn reader_ldif(base: &str) -> String {
    format!(
        "dn: cn=reader,{base}\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\n\
         cn: reader\nuserPassword: {READER_PASSWORD}\n\n"
    )
}

/// With `cp`, which leaves out the holes that most of a database consists of.
fn copy_files(from: &Path, to: &Path) {
    let mut copy = Command::new("cp");
    let done = run(copy.args(["-r", "--sparse=always"]).arg(from.join(".")).arg(to));
    assert_eq!(done.code, 0, "copy the database: {}", done.error());
}

/// A port without a listener. It is outside the range from which the kernel gives ports to clients, so that it stays
/// free while its server is stopped.
pub fn free_port() -> u16 {
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 20_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test binaries that run at the same time begin in different places.
    let place = u16::try_from(RandomState::new().hash_one(0) % u64::from(COUNT)).unwrap_or(0);
    let _ = NEXT.compare_exchange(0, place.max(1), Ordering::Relaxed, Ordering::Relaxed);
    (0..COUNT)
        .map(|_| FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT)
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .expect("a free port")
}

/// The beginning of a long text, for messages.
fn first_lines(text: &str) -> String {
    text.lines().take(20).map(|line| format!("\n  {line}")).collect()
}
