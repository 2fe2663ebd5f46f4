// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenLDAP's slapd, as Debian packages it, on a private database and configuration.

use super::{
    ADMIN_PASSWORD, BASE, DirectoryServer, START_WITHIN, Schema, ServerCertificate, ServerProcess,
    TestCertificates, check_responds, free_port, ldapsearch, reader_ldif,
};
use crate::test_host::{find_tool, run};
use crate::wait::wait_for;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

/// The kind of server that a test needs.
#[derive(Clone, Debug)]
pub struct SlapdOptions {
    /// The way in which groups name their members.
    pub schema: Schema,
    /// Lines of slapd.conf with further schemas.
    pub schemas: String,
    /// The naming context.
    pub base: String,
    /// Whether changes can be followed (RFC 4533); without it they can only be polled for.
    pub syncprov: bool,
    /// The server repairs references to entries that are deleted or renamed. OpenLDAP does not report these changes.
    pub refint: bool,
    /// The number of changes that the server remembers for clients with a cookie.
    pub session_log: u32,
    /// The number of entries that the reader may have at once; `None` sets no limit.
    pub size_limit: Option<u32>,
    /// Anonymous clients may read.
    pub anonymous: bool,
    /// Whether there is a policy on passwords, to be found as [`POLICY_RDN`] below the base, and users may
    /// change their own.
    pub policy: bool,
    /// The certificate that the server shows; without one it speaks no TLS.
    pub certificate: Option<ServerCertificate>,
}

impl SlapdOptions {
    /// A server that can be followed, anonymously too, without TLS.
    #[must_use]
    pub fn new(schema: Schema) -> Self {
        Self {
            schema,
            schemas: String::new(),
            base: BASE.to_owned(),
            syncprov: true,
            refint: false,
            session_log: 10_000,
            size_limit: None,
            anonymous: true,
            policy: false,
            certificate: None,
        }
    }
}

/// The RDN of the policy on passwords.
pub const POLICY_RDN: &str = "cn=policy";

/// A slapd.
#[derive(Debug)]
pub struct Slapd {
    setup: SlapdOptions,
    port: u16,
    tls_port: u16,
    certificates: Option<TestCertificates>,
    process: Option<ServerProcess>,
    /// Variables of its environment.
    environment: Vec<(String, OsString)>,
    /// Searches that the harness itself made.
    harness_searches: AtomicU64,
    // Removed last.
    dir: TempDir,
}

impl Slapd {
    /// A running server that holds `ldif`, in which the first entry is the base.
    ///
    /// # Panics
    /// If it does not come up; so do the other functions of this file.
    #[must_use]
    pub fn serving(setup: SlapdOptions, ldif: &str) -> Self {
        let mut slapd = Self::loaded(setup, ldif);
        slapd.start();
        slapd
    }

    /// The same, not yet started.
    #[must_use]
    pub fn loaded(setup: SlapdOptions, ldif: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("roster-slapd-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .expect("make a folder for slapd");
        let certificates =
            setup.certificate.is_some().then(|| TestCertificates::generate(folder.path()));
        let (port, tls_port) = (free_port(), free_port());
        let own_searches = AtomicU64::new(0);
        let slapd = Self {
            setup,
            port,
            tls_port,
            certificates,
            process: None,
            environment: Vec::new(),
            harness_searches: own_searches,
            dir: folder,
        };
        fs::create_dir(slapd.database_dir()).expect("create the database folder");
        slapd.configure();
        let text = slapd.dir.path().join("load.ldif");
        fs::write(&text, format!("{ldif}\n{}", reader_ldif(slapd.base()))).expect("write LDIF");
        let mut slapadd = Command::new(find_tool("slapadd", "slapd"));
        slapadd.arg("-q").arg("-f").arg(slapd.conf()).arg("-l").arg(&text);
        let done = run(&mut slapadd);
        assert_eq!(done.code, 0, "slapadd: {}", done.error());
        slapd
    }

    /// `ldaps://127.0.0.1:PORT`.
    #[must_use]
    pub fn ldaps_uri(&self) -> String {
        format!("ldaps://127.0.0.1:{}", self.tls_port)
    }

    /// `ldapi://` and the socket's path, escaped.
    #[must_use]
    pub fn ldapi_uri(&self) -> String {
        let path = self.dir.path().join("ldapi");
        format!("ldapi://{}", path.to_str().expect("a plain path").replace('/', "%2F"))
    }

    /// The port of [`DirectoryServer::uri`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The file with the authority that signed the server's certificates.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.certificates.as_ref().expect("set up with a certificate").authority()
    }

    /// The authority, and certificates that it signed.
    #[must_use]
    pub fn certificates(&self) -> &TestCertificates {
        self.certificates.as_ref().expect("set up with a certificate")
    }

    /// From the next start on, the server has this variable in its environment.
    pub fn set_variable(&mut self, name: &str, value: impl Into<OsString>) {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.into()));
    }

    /// Has the text of slapd.conf be another, of a stopped server.
    ///
    /// # Panics
    /// If it cannot be read or written.
    pub fn edit_conf(&self, edit: impl FnOnce(String) -> String) {
        let text = fs::read_to_string(self.conf()).expect("read slapd.conf");
        fs::write(self.conf(), edit(text)).expect("write slapd.conf");
    }

    /// From the next start on, the configuration is stored in entries below `cn=config`, which the invoking user
    /// changes at [`Self::ldapi_uri`].
    ///
    /// # Panics
    /// If `slaptest` cannot convert it.
    pub fn use_cn_config(&self) {
        let [uid, gid] = [rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()];
        let user = format!("gidNumber={gid}+uidNumber={uid},cn=peercred,cn=external,cn=auth");
        let access = format!("database config\naccess to * by dn.exact={user} manage\n");
        self.edit_conf(|text| text.replacen("database ", &format!("{access}database "), 1));
        fs::create_dir(self.config_dir()).expect("create the folder of the configuration");
        let mut slaptest = Command::new(find_tool("slaptest", "slapd"));
        let done = run(slaptest.arg("-f").arg(self.conf()).arg("-F").arg(self.config_dir()));
        assert_eq!(done.code, 0, "slaptest: {}", done.error());
    }

    /// Changes the configuration of the database of a server that stores it in entries. `change` is the text behind
    /// `changetype: modify`.
    ///
    /// # Panics
    /// If the server refuses.
    pub fn configure_database(&self, change: &str) {
        let path = self.dir.path().join("configuration.ldif");
        let database = "dn: olcDatabase={1}mdb,cn=config\nchangetype: modify\n";
        fs::write(&path, format!("{database}{change}")).expect("write LDIF");
        let mut command = Command::new(find_tool("ldapmodify", "ldap-utils"));
        command.args(["-Q", "-Y", "EXTERNAL", "-H", &self.ldapi_uri(), "-f"]).arg(&path);
        let done = run(command.env("LDAPNOINIT", "1"));
        assert_eq!(done.code, 0, "ldapmodify: {}", done.error());
    }

    /// From the next start on, the server shows this certificate.
    pub fn set_certificate(&mut self, certificate: ServerCertificate) {
        self.setup.certificate = Some(certificate);
        self.configure();
    }

    /// From the next start on, the reader gets no more entries than this at once.
    pub fn set_size_limit(&mut self, entries: Option<u32>) {
        self.setup.size_limit = entries;
        self.configure();
    }

    /// The number of searches that the server has completed, without those of the harness.
    #[must_use]
    pub fn searches(&self) -> u64 {
        let asked = ldapsearch(
            self,
            "cn=Search,cn=Operations,cn=Monitor",
            "(objectClass=*)",
            &["monitorOpCompleted"],
        )
        .text();
        let own = self.harness_searches.fetch_add(1, Ordering::Relaxed);
        let all: u64 = asked
            .lines()
            .find_map(|line| line.strip_prefix("monitorOpCompleted: ")?.parse().ok())
            .expect("cn=Monitor counts searches");
        all - own
    }

    /// The number of binds that the server has completed, including that of this request.
    #[must_use]
    pub fn binds(&self) -> u64 {
        let base = "cn=Bind,cn=Operations,cn=Monitor";
        let told = ldapsearch(self, base, "(objectClass=*)", &["monitorOpCompleted"]).text();
        told.lines()
            .find_map(|line| line.strip_prefix("monitorOpCompleted: ")?.parse().ok())
            .expect("cn=Monitor counts binds")
    }

    fn conf(&self) -> PathBuf {
        self.dir.path().join("slapd.conf")
    }

    /// The directory of the configuration that is stored in entries.
    fn config_dir(&self) -> PathBuf {
        self.dir.path().join("slapd.d")
    }

    fn configure(&self) {
        let SlapdOptions {
            schema,
            schemas,
            base,
            syncprov,
            refint,
            session_log,
            size_limit,
            anonymous,
            policy,
            certificate,
        } = &self.setup;
        let folder = self.dir.path().display();
        let mut text = String::new();
        for name in ["core", "cosine", "inetorgperson"] {
            let _ = writeln!(text, "include /etc/ldap/schema/{name}.schema");
        }
        let schema = match schema {
            Schema::Rfc2307 => PathBuf::from("/etc/ldap/schema/nis.schema"),
            Schema::Rfc2307bis => {
                Path::new(env!("CARGO_MANIFEST_DIR")).join("ldap/rfc2307bis.schema")
            }
        };
        let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("ldap/openssh-lpk.schema");
        for schema in [schema, keys] {
            let _ = writeln!(text, "include {}", schema.display());
        }
        text.push_str(schemas);
        if let Some(certificate) = certificate {
            let files = self.certificates.as_ref().expect("made with the server");
            let _ = writeln!(
                text,
                "TLSCACertificateFile {}\nTLSCertificateFile {}\nTLSCertificateKeyFile {}",
                files.authority().display(),
                files.certificate(*certificate).display(),
                files.key(*certificate).display(),
            );
        }
        let anonymous = if *anonymous { "read" } else { "none" };
        let size_limit = size_limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
        // slapd dedicates one thread to each client that follows changes: hence so many.
        let _ = write!(
            text,
            "pidfile {folder}/pid\nargsfile {folder}/args\nmodulepath /usr/lib/ldap\n\
             moduleload back_mdb\nmoduleload back_monitor\nmoduleload syncprov\nmoduleload refint\n\
             moduleload ppolicy\nthreads 16\n\
             sizelimit {size_limit}\n\
             database mdb\nsuffix \"{base}\"\nrootdn \"{admin}\"\nrootpw \"{ADMIN_PASSWORD}\"\n\
             directory {folder}/db\nmaxsize 2147483648\ndbnosync\n\
             index objectClass,uid,cn,uidNumber,gidNumber,memberUid,member,uniqueMember,entryUUID,entryCSN eq\n\
             access to attrs=userPassword by self write by anonymous auth by * none\n\
             access to * by dn.exact=\"cn=reader,{base}\" read\n\
             \x20 by dn.children=\"cn=peercred,cn=external,cn=auth\" read\n\
             \x20 by anonymous {anonymous} by * none\n",
            admin = self.admin_dn(),
        );
        if *syncprov {
            let _ = write!(text, "overlay syncprov\nsyncprov-sessionlog {session_log}\n");
        }
        if *refint {
            text.push_str("overlay refint\nrefint_attributes member\n");
        }
        if *policy {
            let _ = write!(
                text,
                "overlay ppolicy\nppolicy_default \"{POLICY_RDN},{base}\"\nppolicy_use_lockout\n"
            );
        }
        let _ = write!(
            text,
            "database monitor\nrootdn \"{}\"\naccess to * by * read\n",
            self.admin_dn()
        );
        fs::write(self.conf(), text).expect("write slapd.conf");
    }
}

impl DirectoryServer for Slapd {
    fn uri(&self) -> String {
        format!("ldap://127.0.0.1:{}", self.port)
    }

    fn base(&self) -> &str {
        &self.setup.base
    }

    fn schema(&self) -> Schema {
        self.setup.schema
    }

    fn admin_dn(&self) -> String {
        format!("cn=admin,{}", self.setup.base)
    }

    fn server_dir(&self) -> &Path {
        self.dir.path()
    }

    fn database_dir(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    fn process(&mut self) -> &mut ServerProcess {
        self.process.as_mut().expect("slapd was started")
    }

    fn start(&mut self) {
        let mut listen = format!("{} {}", self.uri(), self.ldapi_uri());
        if self.setup.certificate.is_some() {
            let _ = write!(listen, " {}", self.ldaps_uri());
        }
        let mut command = Command::new(find_tool("slapd", "slapd"));
        // "-d 0" keeps it in the foreground and quiet.
        command.args(["-d", "0", "-h", &listen]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        match self.config_dir().exists() {
            true => command.arg("-F").arg(self.config_dir()),
            false => command.arg("-f").arg(self.conf()),
        };
        self.process = Some(ServerProcess::start(&mut command, &self.dir.path().join("log")));
        wait_for(START_WITHIN, || {
            let process = self.process.as_mut().expect("was just started");
            assert!(process.is_running(), "slapd has ended: {}", process.log());
            check_responds(self)
        });
        self.harness_searches.store(0, Ordering::Relaxed);
        self.harness_searches.store(self.searches(), Ordering::Relaxed);
    }

    fn search(&self, base: &str, filter: &str, attributes: &[&str]) -> Vec<u8> {
        self.harness_searches.fetch_add(1, Ordering::Relaxed);
        let done = ldapsearch(self, base, filter, attributes);
        assert_eq!(done.code, 0, "ldapsearch: {}", done.error());
        done.stdout
    }
}
