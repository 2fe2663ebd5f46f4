// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running SSSD, in private mounts with a directory of the test behind it. Its packages are unpacked, not installed:
//! installed packages would make this machine use SSSD for its own users.

use super::{DirectoryServer, READER_PASSWORD, ServerProcess};
use crate::artifacts::unpack_package;
use crate::pam::stdin_with_lines;
use crate::test_host::{ProgramOutput, find_tool, plain_environment, run};
use crate::wait::wait_for;
use rustix::process::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The packages of SSSD; of the libraries, only ones that a bare machine lacks.
const PACKAGES: [&str; 26] = [
    "sssd-common",
    "sssd-ldap",
    "sssd-krb5-common",
    "libnss-sss",
    "libpam-sss",
    "libsss-idmap0",
    "libsss-nss-idmap0",
    "libsss-certmap0",
    "libdhash1",
    "libini-config5",
    "libref-array1",
    "libcollection4",
    "libpath-utils1",
    "libbasicobjects0",
    "libldb2",
    "libtalloc2",
    "libtdb1",
    "libtevent0",
    "libc-ares2",
    "libnfsidmap1",
    "libnl-3-200",
    "libnl-route-3-200",
    "libpopt0",
    "libkeyutils1",
    "libsemanage2",
    "libsemanage-common",
];

/// Lays packages (`$1`) over /usr and files (`$2`) over /etc; its state is in memory.
const SETUP: &str = r#"mount -t overlay overlay -o "lowerdir=$1:/usr" /usr
mount -t overlay overlay -o "lowerdir=$2:/etc" /etc
for folder in /var/lib /var/log /run; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
mkdir /var/log/sssd /var/lib/sss
cd /var/lib/sss
mkdir -p db mc pipes/private pubconf/krb5.include.d gpo_cache secrets deskprofile
exec /usr/sbin/sssd -i
"#;

/// A stack that asks SSSD alone.
const STACK: &str = "auth required pam_sss.so\naccount required pam_sss.so\npassword required pam_sss.so\n\
                     session required pam_sss.so\n";

const READY_WITHIN: Duration = Duration::from_secs(60);

/// The daemon of SSSD, which ends when this value is dropped.
#[derive(Debug)]
pub struct Sssd {
    process: ServerProcess,
    // Removed last.
    folder: TempDir,
}

impl Sssd {
    /// An SSSD with the domain `corp`, which holds the entries of a server reached by that URI.
    ///
    /// # Panics
    /// If it does not come up; so do the other functions of this file.
    #[must_use]
    pub fn for_server<S: DirectoryServer>(server: &S, uri: &str) -> Self {
        Self::with_conf(&format!(
            "[sssd]\nservices = nss\ndomains = corp\n\n[nss]\n\n[domain/corp]\nid_provider = ldap\n\
             auth_provider = none\nchpass_provider = none\naccess_provider = permit\nsudo_provider = none\n\
             autofs_provider = none\nldap_uri = {uri}\nldap_search_base = {}\nldap_schema = {}\n\
             ldap_default_bind_dn = {}\nldap_default_authtok = {READER_PASSWORD}\n",
            server.base(),
            server.schema().key(),
            server.reader_dn()
        ))
    }

    /// An SSSD with that sssd.conf, which has the domain `corp`. The PAM service `sss` asks it alone.
    #[must_use]
    pub fn with_conf(text: &str) -> Self {
        Self::with_dropins(text, &[])
    }

    /// The same with files of conf.d, each with its name.
    #[must_use]
    pub fn with_dropins(text: &str, dropins: &[(&str, &str)]) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("roster-sssd-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .expect("make a folder for SSSD");
        let etc = folder.path().join("etc");
        fs::create_dir_all(etc.join("sssd")).expect("create its etc");
        fs::write(etc.join("nsswitch.conf"), "passwd: files sss\ngroup: files sss\n")
            .expect("write");
        fs::create_dir_all(etc.join("pam.d")).expect("create its pam.d");
        fs::write(etc.join("pam.d/sss"), STACK).expect("write a stack");
        let conf = etc.join("sssd/sssd.conf");
        fs::write(&conf, text).expect("write sssd.conf");
        fs::set_permissions(&conf, fs::Permissions::from_mode(0o600)).expect("chmod");
        fs::create_dir(etc.join("sssd/conf.d")).expect("create conf.d");
        for (name, text) in dropins {
            let file = etc.join("sssd/conf.d").join(name);
            fs::write(&file, text).expect("write a drop-in");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
        }
        let layers: Vec<String> = PACKAGES
            .map(|package| unpack_package(package).join("usr").display().to_string())
            .into();
        let mut command = Command::new(find_tool("unshare", "util-linux"));
        command.args(["-m", "sh", "-ec", SETUP, "sssd"]).arg(layers.join(":")).arg(&etc);
        let process = ServerProcess::start(&mut command, &folder.path().join("log"));
        let sssd = Self { process, folder };
        wait_for(READY_WITHIN, || sssd.backend_pid().ok_or_else(|| sssd.process.log()));
        sssd
    }

    /// The process of its domain's backend, if it runs.
    #[must_use]
    pub fn backend_pid(&self) -> Option<Pid> {
        let monitor = self.process.pid();
        let list = fs::read_to_string(format!("/proc/{monitor}/task/{monitor}/children")).ok()?;
        let is_back_end = |pid: &&str| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "sssd_be")
        };
        let pid = list.split_whitespace().find(is_back_end)?;
        Pid::from_raw(pid.parse().ok()?)
    }

    /// A command in its mounts.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(find_tool("nsenter", "util-linux"));
        plain_environment(&mut command);
        command.args(["-m", "-t", &self.process.pid().to_string(), program]);
        command
    }

    /// getent(1), of SSSD alone.
    #[must_use]
    pub fn getent(&self, database: &str, key: &str) -> ProgramOutput {
        run(self.command("getent").args(["-s", "sss", database, key]))
    }

    /// The output of `pamtester` for these operations of the service `sss`.
    #[must_use]
    pub fn run_pamtester(&self, user: &str, operations: &[&str], lines: &[&str]) -> ProgramOutput {
        let program = find_tool("pamtester", "pamtester");
        let mut command = self.command(program.to_str().expect("a path"));
        run(command.args(["sss", user]).args(operations).stdin(stdin_with_lines(lines)))
    }

    /// The daemon's sssd.conf.
    #[must_use]
    pub fn conf(&self) -> PathBuf {
        self.folder.path().join("etc/sssd/sssd.conf")
    }

    /// The directory of its cache, as other processes reach it.
    #[must_use]
    pub fn cache_dir(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root/var/lib/sss/db", self.process.pid()))
    }
}

impl Drop for Sssd {
    fn drop(&mut self) {
        // It ends its own processes.
        self.process.stop();
    }
}
