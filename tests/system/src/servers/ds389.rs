// SPDX-License-Identifier: MIT OR Apache-2.0
//! 389 Directory Server, as Debian packages it, in a private directory. Its configuration is the package's template
//! filled in here: `dscreate` fills in the same one, but only for /etc and for systemd.

use super::{
    ADMIN_PASSWORD, BASE, DirectoryServer, START_WITHIN, Schema, ServerProcess, check_responds,
    free_port, reader_ldif,
};
use crate::test_host::{find_tool, run};
use crate::wait::wait_for;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Files of the package.
const TEMPLATE: &str = "/usr/share/dirsrv/data/template-dse.ldif";
const SCHEMA: &str = "/etc/dirsrv/schema/99user.ldif";
const FILES: [&str; 2] =
    ["/etc/dirsrv/config/slapd-collations.conf", "/etc/dirsrv/config/certmap.conf"];

/// The plug-ins for all the ways to follow changes, in the template's spelling, each with further
/// lines of its entry.
const PLUGINS: [(&str, &str); 4] = [
    ("Content Synchronization", ""),
    // Without it an entry that was deleted is announced without its key.
    ("Retro Changelog Plugin", "nsslapd-attribute: nsuniqueid:targetUniqueId\n"),
    ("USN", ""),
    ("MemberOf Plugin", ""),
];

/// The plug-in that repairs references to entries that are deleted or renamed.
const INTEGRITY: (&str, &str) = ("referential integrity postoperation", "");

/// A 389-ds.
#[derive(Debug)]
pub struct Ds389 {
    port: u16,
    /// The server repairs references.
    repairs_references: bool,
    /// Whether entries must be as schema and syntax have it.
    checks_schema: bool,
    /// Variables of its environment.
    environment: Vec<(String, OsString)>,
    process: Option<ServerProcess>,
    // Removed last.
    dir: TempDir,
}

impl Ds389 {
    /// A running server that holds `ldif`, in which the first entry is [`BASE`]. Values that the schema forbids are
    /// loaded as well, as happens in servers that were migrated. Reading takes a bind.
    ///
    /// # Panics
    /// If it does not come up; so do the other functions of this file.
    #[must_use]
    pub fn serving(ldif: &str) -> Self {
        Self::unconfigured(false, false).start_with(ldif)
    }

    /// A server in its default configuration: it checks entries by its schema and the syntax of its attributes.
    #[must_use]
    pub fn as_delivered(ldif: &str) -> Self {
        Self::unconfigured(false, true).start_with(ldif)
    }

    /// The same with the plug-in that repairs references to entries that are deleted or renamed.
    #[must_use]
    pub fn with_referential_integrity(ldif: &str) -> Self {
        Self::unconfigured(true, false).start_with(ldif)
    }

    /// The default configuration with these variables in its environment, and with another mapping of SASL identities.
    #[must_use]
    pub fn with_sasl(ldif: &str, environment: &[(&str, OsString)], mapping: &str) -> Self {
        let mut server = Self::unconfigured(false, false);
        let variable = |(name, value): &(&str, OsString)| ((*name).to_owned(), value.clone());
        server.environment = environment.iter().map(variable).collect();
        server.configure();
        let path = server.config().join("dse.ldif");
        let text = fs::read_to_string(&path).expect("read dse.ldif");
        fs::write(&path, format!("{}\n\n{mapping}\n", text.trim_end())).expect("write dse.ldif");
        server.load(ldif);
        server.start();
        server
    }

    fn unconfigured(mends: bool, checks: bool) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("roster-389ds-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .expect("make a folder for 389-ds");
        Self {
            port: free_port(),
            repairs_references: mends,
            checks_schema: checks,
            environment: Vec::new(),
            process: None,
            dir: folder,
        }
    }

    fn start_with(mut self, ldif: &str) -> Self {
        self.configure();
        self.load(ldif);
        self.start();
        self
    }

    /// The port of [`DirectoryServer::uri`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts a new record of changes, on a stopped server: cookies out of the old one are invalid.
    pub fn reset_changelog(&self) {
        let export = self.dir.path().join("ldif/all.ldif");
        self.offline("db2ldif", "-a", &export);
        fs::remove_dir_all(self.database_dir()).expect("remove the databases");
        self.make_database_dir();
        // With their old keys: the export includes `nsUniqueId`.
        self.offline("ldif2db", "-i", &export);
    }

    /// Makes the directory that the import expects on a server without data.
    fn make_database_dir(&self) {
        fs::create_dir_all(self.dir.path().join("db/userroot")).expect("create a folder");
    }

    fn offline(&self, task: &str, flag: &str, file: &Path) {
        let mut command = Command::new(find_tool("ns-slapd", "389-ds-base"));
        command.args([task, "-n", "userroot", "-D"]).arg(self.config()).arg(flag).arg(file);
        let done = run(&mut command);
        let said = fs::read_to_string(self.dir.path().join("log/errors")).unwrap_or_default();
        assert_eq!(done.code, 0, "{task}: {}{said}", done.error());
    }

    fn configure(&self) {
        for name in ["log", "bak", "ldif", "run", "lock", "tmp"] {
            fs::create_dir(self.dir.path().join(name)).expect("create a folder");
        }
        self.make_database_dir();
        let config = self.config();
        fs::create_dir_all(config.join("schema")).expect("create the schema folder");
        for (from, to) in FILES.map(|file| (file, "")).into_iter().chain([(SCHEMA, "schema")]) {
            let name = Path::new(from).file_name().expect("a file");
            fs::copy(from, config.join(to).join(name))
                .unwrap_or_else(|e| fail_missing_file(from, &e));
        }
        let template =
            fs::read_to_string(TEMPLATE).unwrap_or_else(|e| fail_missing_file(TEMPLATE, &e));
        fs::write(config.join("dse.ldif"), self.fill_template(&template)).expect("write dse.ldif");
    }

    fn fill_template(&self, template: &str) -> String {
        let folder = self.dir.path().display();
        let user = run(Command::new("id").arg("-un")).text();
        let root_password = format!("{{CLEAR}}{ADMIN_PASSWORD}");
        let config = self.config();
        let values = [
            ("config_dir", config.display().to_string()),
            ("cert_dir", config.display().to_string()),
            ("schema_dir", config.join("schema").display().to_string()),
            ("inst_dir", folder.to_string()),
            ("log_dir", format!("{folder}/log")),
            ("db_dir", format!("{folder}/db")),
            ("db_home_dir", format!("{folder}/db")),
            ("bak_dir", format!("{folder}/bak")),
            ("ldif_dir", format!("{folder}/ldif")),
            ("run_dir", format!("{folder}/run")),
            ("lock_dir", format!("{folder}/lock")),
            ("tmp_dir", format!("{folder}/tmp")),
            // The backend that dscreate selects. LMDB's import at this version runs in several threads, which give some
            // pairs of entries one nsUniqueId, and now and then crash.
            ("db_lib", "bdb".to_owned()),
            ("fqdn", "localhost".to_owned()),
            ("ds_port", self.port.to_string()),
            ("ds_user", user),
            ("rootdn", self.admin_dn()),
            ("ds_passwd", root_password),
            ("ds_suffix", BASE.to_owned()),
            ("ldapi_enabled", "off".to_owned()),
            ("ldapi_autobind", "off".to_owned()),
            ("ldapi", format!("{folder}/ldapi")),
        ];
        let text = values
            .iter()
            .fold(template.to_owned(), |text, (name, value)| {
                text.replace(&format!("%{name}%"), value)
            })
            .replacen("nsslapd-port:", LISTEN, 1);
        let mut text = text.replacen("nsslapd-mode: 600\n", NO_LOOKTHROUGH_LIMIT, 1);
        if !self.checks_schema {
            text = text.replacen("nsslapd-port:", ACCEPT_ANY_VALUE, 1);
        }
        for (plugin, lines) in
            PLUGINS.into_iter().chain(self.repairs_references.then_some(INTEGRITY))
        {
            let start = text.find(&format!("dn: cn={plugin},cn=plugins")).expect("in the template");
            let off = "nsslapd-pluginenabled: off\n";
            let place = start + text[start..].find(off).expect("the plug-in is off");
            let on = format!("nsslapd-pluginenabled: on\n{lines}");
            text.replace_range(place..place + off.len(), &on);
        }
        let entries: Vec<_> =
            text.split("\n\n").map(str::trim).filter(|text| !text.is_empty()).collect();
        format!("{}\n\n{}", entries.join("\n\n"), self.backend())
    }

    fn backend(&self) -> String {
        let folder = self.dir.path().join("db/userroot").display().to_string();
        BACKEND.replace("SUFFIX", BASE).replace("FOLDER", &folder)
    }

    fn load(&self, ldif: &str) {
        let text = self.dir.path().join("load.ldif");
        let aci = format!(
            "aci: (targetattr=\"*\")(version 3.0; acl \"the reader\"; \
             allow (read, search, compare) userdn=\"ldap:///{}\";)\n",
            self.reader_dn()
        );
        // The base entry comes first and ends at the first blank line.
        let (base, rest) = ldif.split_once("\n\n").expect("an entry for the base");
        let ldif = format!("{base}\n{aci}\n{rest}\n{}", reader_ldif(BASE));
        fs::write(&text, ldif).expect("write LDIF");
        self.offline("ldif2db", "-i", &text);
    }

    /// The instance's configuration. The name must be unique on the machine: the server names a semaphore in /dev/shm
    /// after it.
    fn config(&self) -> PathBuf {
        let name = self.dir.path().file_name().expect("a temporary folder has a name");
        self.dir.path().join(name)
    }
}

impl DirectoryServer for Ds389 {
    fn uri(&self) -> String {
        format!("ldap://127.0.0.1:{}", self.port)
    }

    fn base(&self) -> &str {
        BASE
    }

    fn schema(&self) -> Schema {
        Schema::Rfc2307bis
    }

    fn repairs_member_lists(&self) -> bool {
        // The MemberOf plug-in does.
        true
    }

    fn admin_dn(&self) -> String {
        "cn=Directory Manager".to_owned()
    }

    fn server_dir(&self) -> &Path {
        self.dir.path()
    }

    fn database_dir(&self) -> PathBuf {
        // The record of changes is in there too.
        self.dir.path().join("db")
    }

    fn process(&mut self) -> &mut ServerProcess {
        self.process.as_mut().expect("389-ds was started")
    }

    fn start(&mut self) {
        let mut command = Command::new(find_tool("ns-slapd", "389-ds-base"));
        // "-d 0" keeps it in the foreground and quiet.
        command.args(["-d", "0", "-D"]).arg(self.config());
        command.arg("-i").arg(self.dir.path().join("run/pid"));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        self.process = Some(ServerProcess::start(&mut command, &self.dir.path().join("out")));
        wait_for(START_WITHIN, || {
            let process = self.process.as_mut().expect("was just started");
            assert!(process.is_running(), "ns-slapd has ended: {}", process.log());
            check_responds(self)
        });
    }
}

impl Drop for Ds389 {
    fn drop(&mut self) {
        let config = self.config();
        let name = config.file_name().expect("a folder has a name").display();
        let _ = fs::remove_file(format!("/dev/shm/sem.{name}.stats"));
    }
}

/// The default limits suit clients that search, not clients that mirror.
const LISTEN: &str = "nsslapd-listenhost: 127.0.0.1
nsslapd-sizelimit: -1
nsslapd-port:";

/// Servers that were migrated from elsewhere have values that the schema forbids.
const ACCEPT_ANY_VALUE: &str = "nsslapd-schemacheck: off
nsslapd-syntaxcheck: off
nsslapd-port:";

const NO_LOOKTHROUGH_LIMIT: &str = "nsslapd-mode: 600\nnsslapd-lookthroughlimit: -1\n";

fn fail_missing_file<T>(file: &str, error: &std::io::Error) -> T {
    panic!("{file}: {error}: install the Debian package 389-ds-base")
}

/// The database and its place in the tree. The import's queue is as long as its cache is large: with
/// the least it takes, an entry takes 2 ms.
const BACKEND: &str = "dn: cn=userroot,cn=ldbm database,cn=plugins,cn=config
objectClass: top
objectClass: extensibleObject
objectClass: nsBackendInstance
cn: userroot
nsslapd-suffix: SUFFIX
nsslapd-directory: FOLDER
nsslapd-cachememsize: 268435456

dn: cn=\"SUFFIX\",cn=mapping tree,cn=config
objectClass: top
objectClass: extensibleObject
objectClass: nsMappingTree
cn: SUFFIX
nsslapd-state: backend
nsslapd-backend: userroot
";
