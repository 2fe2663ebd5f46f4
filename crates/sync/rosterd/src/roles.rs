// SPDX-License-Identifier: MIT OR Apache-2.0
//! The roles by name: their configurations, and the code that runs each. `process_plan` makes the configurations, and
//! `roster_role` runs a role.

use roster_backend::{BackendRole, BackendRoleConfig};
use roster_messages::{CodedError, table::daemon};
use roster_publisher::{PublisherRole, PublisherRoleConfig};
use roster_responder::metrics::{MetricsRole, MetricsRoleConfig};
use roster_responder::nss::{NssRole, NssRoleConfig};
use roster_responder::pam::{PamRole, PamRoleConfig};
use roster_role::launch::{Launch, read_launch};
use roster_role::logging::print_stderr;
use roster_role::sandbox::ResourceLimits;
use roster_role::{exit_status, process, sandbox};
use roster_sandbox::{NetlinkProtocol, SandboxSpec};
use serde::{Deserialize, Serialize};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The configuration of a role, without unneeded parts: a role with an unchanged `RoleConfig` is not restarted at a
/// reload.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub enum RoleConfig {
    /// For the process that becomes `dbus-daemon`.
    Bus(BusRoleConfig),
    /// For [`PublisherRole`].
    Publisher(PublisherRoleConfig),
    /// For [`BackendRole`].
    Backend(Box<BackendRoleConfig>),
    /// For [`NssRole`].
    Nss(NssRoleConfig),
    /// For [`PamRole`].
    Pam(PamRoleConfig),
    /// For [`MetricsRole`].
    Metrics(MetricsRoleConfig),
}

/// Parameters of `dbus-daemon`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct BusRoleConfig {
    /// The executable.
    pub program: PathBuf,
    /// The bus's configuration.
    pub config: PathBuf,
}

/// Runs the process of a role. Returns the exit status.
#[must_use]
pub fn main() -> u8 {
    let (config, launch) = match read_launch::<RoleConfig>() {
        Ok(launch) => launch.into_parts(),
        Err(error) => {
            print_stderr(format_args!("rosterd role: {error}"));
            return exit_status::USAGE;
        }
    };
    match config {
        RoleConfig::Bus(config) => exec_bus(&launch.with_config(config)),
        RoleConfig::Publisher(config) => process::run::<PublisherRole>(launch.with_config(config)),
        RoleConfig::Backend(config) => process::run::<BackendRole>(launch.with_config(*config)),
        RoleConfig::Nss(config) => process::run::<NssRole>(launch.with_config(config)),
        RoleConfig::Pam(config) => process::run::<PamRole>(launch.with_config(config)),
        RoleConfig::Metrics(config) => process::run::<MetricsRole>(launch.with_config(config)),
    }
}

/// The rights of dbus-daemon: it reads its configuration and libraries, and creates its socket.
fn bus_sandbox(launch: &Launch<BusRoleConfig>) -> SandboxSpec {
    SandboxSpec {
        read: vec!["/".into()],
        write: vec![launch.run_dir.join("dbus")],
        execute: true,
        // Without the right to write to the audit log it opens no socket for it.
        netlink: Some(NetlinkProtocol::Selinux),
        ..SandboxSpec::default()
    }
}

fn exec_bus(launch: &Launch<BusRoleConfig>) -> u8 {
    let bus = &launch.config;
    let _ = sandbox::apply(&bus_sandbox(launch), &ResourceLimits::INTERNAL);
    let mut command = Command::new(&bus.program);
    command.args(["--nofork", "--nopidfile", "--nosyslog"]);
    command.arg(format!("--config-file={}", bus.config.display()));
    command.env_clear();
    // dbus-daemon looks up the groups of connecting users through the C library. With `roster` in nsswitch.conf the
    // reply would have to come over this bus. With an invalid snapshot, the module reports at once that it is
    // unavailable. In a privileged bus it ignores the variable. Only root can reach the socket of that bus then, and
    // the module sends no request about root.
    command.env("ROSTER_SNAPSHOT", "/dev/null");
    let text = format!("bus: cannot run {}", bus.program.display());
    let error = CodedError::new(&daemon::BUS_NOT_EXECUTABLE, text).caused_by(command.exec());
    print_stderr(format_args!("rosterd: {error}"));
    exit_status::UNAVAILABLE
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_role::RoleProgram;
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};
    use std::fs::{self, File};
    use std::path::Path;
    use std::process::Command;

    fn launch(config: RoleConfig, state_dir: &Path) -> Launch<RoleConfig> {
        Launch {
            role: None,
            config,
            log: roster_config::LogConfig { level: "info".into(), json: false },
            state_dir: state_dir.to_owned(),
            run_dir: state_dir.to_owned(),
            monitor_pid: 0,
            monitor_uid: 0,
        }
    }

    /// Returns the rights and limits of a role's process.
    fn rights(launch: Launch<RoleConfig>) -> (SandboxSpec, ResourceLimits) {
        fn rights_of<R: RoleProgram>(launch: &Launch<R::Config>) -> (SandboxSpec, ResourceLimits) {
            (R::sandbox(launch), R::LIMITS)
        }
        let (config, launch) = launch.into_parts();
        match config {
            RoleConfig::Bus(config) => {
                (bus_sandbox(&launch.with_config(config)), ResourceLimits::INTERNAL)
            }
            RoleConfig::Publisher(config) => {
                rights_of::<PublisherRole>(&launch.with_config(config))
            }
            RoleConfig::Backend(config) => rights_of::<BackendRole>(&launch.with_config(*config)),
            RoleConfig::Nss(config) => rights_of::<NssRole>(&launch.with_config(config)),
            RoleConfig::Pam(config) => rights_of::<PamRole>(&launch.with_config(config)),
            RoleConfig::Metrics(config) => rights_of::<MetricsRole>(&launch.with_config(config)),
        }
    }

    fn apply(launch: Launch<RoleConfig>) -> String {
        let (spec, limits) = rights(launch);
        sandbox::apply(&spec, &limits)
    }

    /// Runs one of the ignored tests in a separate process, because a sandbox cannot be undone. Returns its output.
    fn in_a_process(test: &str) -> String {
        let mut command = Command::new("/proc/self/exe");
        let done = command.args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && text.contains("1 passed"), "{text}");
        text.into_owned()
    }

    #[test]
    fn bus_not_executable_has_code() {
        let text = in_a_process("roles::tests::inside_a_bus_that_is_missing");
        let line = text.lines().find(|line| line.starts_with("rosterd: bus: cannot run "));
        let ending = format!(" [{}]", daemon::BUS_NOT_EXECUTABLE);
        assert!(line.is_some_and(|line| line.ends_with(&ending)), "{text}");
    }

    #[test]
    #[ignore = "run by bus_not_executable_has_code"]
    fn inside_a_bus_that_is_missing() {
        let program = PathBuf::from("/nonexistent/dbus-daemon");
        let bus = BusRoleConfig { program, config: PathBuf::new() };
        let launch = launch(
            RoleConfig::Metrics(MetricsRoleConfig { roles: Vec::new() }),
            Path::new("/nonexistent"),
        );
        assert_eq!(exec_bus(&launch.with_config(bus)), exit_status::UNAVAILABLE);
    }

    #[test]
    fn a_responder_reads_nothing_executes_nothing_and_has_no_network() {
        in_a_process("roles::tests::inside_a_responder");
    }

    #[test]
    fn a_back_end_of_files_writes_its_cache_and_reads_its_files_only() {
        in_a_process("roles::tests::inside_a_back_end_of_files");
    }

    /// Parses a configuration with one domain, from the keys of its table.
    fn configured(keys: &str) -> roster_config::Config {
        let text = format!("[host]\ndomains = [\"corp\"]\n[domain.corp]\n{keys}");
        roster_config::parse(&text).unwrap().config
    }

    #[test]
    fn role_sandbox_equals_documented_row() {
        let backend = |keys: &str| {
            let domain = configured(keys).domains.into_iter().next().unwrap();
            let secrets = roster_config::DomainSecrets::default();
            let host_names = Vec::new();
            RoleConfig::Backend(Box::new(BackendRoleConfig { domain, secrets, host_names }))
        };
        let logins = "auth = \"krb5\"\nkrb5_realm = \"R\"\nkrb5_kdcs = [\"kdc\"]\n";
        let ldap = "provider = \"ldap\"\nuris = [\"ldapi://%2FLDAPI%2Fsocket\"]\nbase = \"dc=x\"\n";
        let files = "provider = \"files\"\npasswd = \"/FILES/passwd\"\ngroup = \"/FILES/group\"\n";
        let config = configured(files);
        let (host, publisher) = (config.host, config.publisher);
        let publisher = PublisherRoleConfig { host, publisher, domains: Vec::new() };
        let bus = BusRoleConfig { program: PathBuf::new(), config: PathBuf::new() };
        let page = include_str!("../../../../docs/internals/sandbox.md");
        for (row, config) in [
            ("bus", RoleConfig::Bus(bus)),
            ("publisher", RoleConfig::Publisher(publisher)),
            ("backend, ldap", backend(&format!("{ldap}{logins}"))),
            ("backend, files", backend(&format!("{files}{logins}"))),
            ("responder metrics", RoleConfig::Metrics(MetricsRoleConfig { roles: Vec::new() })),
        ] {
            let mut launch = launch(config, Path::new("/var/lib/roster"));
            launch.run_dir = "/run/roster".into();
            let needs = rights(launch).0.doc_columns();
            let placeholders = [("/LDAPI", "LDAPI"), ("/FILES", "FILES"), ("/corp", "/NAME")];
            let shown = needs.map(|cell| {
                placeholders.iter().fold(cell, |cell, (found, shown)| cell.replace(found, shown))
            });
            assert_eq!(roster_sandbox::read_doc_columns(page, row), Some(shown), "{row}");
        }
        for same in ["responder nss", "responder pam"] {
            let metrics = roster_sandbox::read_doc_columns(page, "responder metrics");
            assert_eq!(roster_sandbox::read_doc_columns(page, same), metrics, "{same}");
        }
    }

    fn refused(family: AddressFamily) -> bool {
        socket(family, SocketType::STREAM, None).err() == Some(Errno::PERM)
    }

    #[test]
    #[ignore = "run by a_responder_reads_nothing_executes_nothing_and_has_no_network"]
    fn inside_a_responder() {
        let config = RoleConfig::Metrics(MetricsRoleConfig { roles: Vec::new() });
        let said = apply(launch(config, Path::new("/nonexistent")));
        if said.contains("no seccomp") {
            eprintln!("skipped in part: {said}");
        } else {
            assert!(refused(AddressFamily::INET) && refused(AddressFamily::NETLINK));
            assert!(socket(AddressFamily::UNIX, SocketType::STREAM, None).is_ok());
            let executed = Command::new("/bin/true").status().unwrap_err();
            let code = executed.raw_os_error();
            assert!(code == Some(libc::EPERM) || code == Some(libc::EACCES), "{executed}");
        }
        if said.contains("no landlock") {
            eprintln!("skipped in part: {said}");
        } else {
            assert!(File::open("/etc/passwd").is_err());
            assert!(File::open("/proc/self/statm").is_ok());
        }
        let core = rustix::process::getrlimit(rustix::process::Resource::Core);
        assert_eq!((core.current, core.maximum), (Some(0), Some(0)));
    }

    #[test]
    #[ignore = "run by a_back_end_of_files_writes_its_cache_and_reads_its_files_only"]
    fn inside_a_back_end_of_files() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("state/domains/lab")).unwrap();
        fs::create_dir_all(path("state/domains/corp")).unwrap();
        fs::create_dir(path("source")).unwrap();
        fs::write(path("source/passwd"), "").unwrap();
        let text = format!(
            "[host]\ndomains = [\"lab\"]\n[domain.lab]\nprovider = \"files\"\npasswd = {:?}\n\
             group = {:?}\n",
            path("source/passwd"),
            path("source/group"),
        );
        let config = roster_config::parse(&text).unwrap().config;
        let domain = config.domains.into_iter().next().unwrap();
        let secrets = roster_config::DomainSecrets::default();
        let backend = BackendRoleConfig { domain, secrets, host_names: Vec::new() };
        let said = apply(launch(RoleConfig::Backend(Box::new(backend)), &path("state")));
        if said.contains("no landlock") {
            eprintln!("skipped: {said}");
            return;
        }
        assert!(fs::read(path("source/passwd")).is_ok());
        assert!(fs::write(path("source/group"), "").is_err(), "writes to its source");
        let cache = path("state/domains/lab/cache.redb");
        assert!(fs::write(&cache, "").is_ok());
        assert!(fs::rename(&cache, path("state/domains/lab/cache.redb.bad")).is_ok());
        assert!(fs::write(path("state/domains/corp/cache.redb"), "").is_err(), "another's cache");
        assert!(fs::write(path("state/roster.v3.snap"), "").is_err(), "the snapshot");
        assert!(fs::read("/etc/passwd").is_err(), "a file that is not its business");
        assert!(refused(AddressFamily::INET), "network without a directory");
    }
}
