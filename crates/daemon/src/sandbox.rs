//! What a role's process gives up before it does anything else: privileges it could gain, files that
//! are not its business, system calls that none of this code makes, and the network, which back-ends
//! of a directory alone keep.
//!
//! All of it is best effort: a kernel without landlock or seccomp runs the role all the same, under
//! its own user. What is in force is told in the role's status. The folders of `/proc/self` and of
//! libraries stay readable, for the C library's resolver of host names loads its services late.

use crate::reach::folders_of;
use crate::role::{COPIES, DOMAINS, Launch, RoleConfig, SNAPSHOTS};
use roster_config::{Provider, Server};
use roster_confine::{Needs, Netlink, Tcp};
use rustix::process::{Resource, Rlimit};
use std::path::{Path, PathBuf};

/// Descriptors of a role: databases, the bus, a directory's connections.
const DESCRIPTORS: u64 = 1024;
/// Descriptors of roles that serve sockets: a thousand clients that say nothing leave room for more.
const DESCRIPTORS_SERVING: u64 = 8192;
/// Private memory of a responder, in bytes: its cache has a bound far below.
const RESPONDER_MEMORY: u64 = 512 << 20;

/// Applies everything to this process, which must not have threads yet. Gives what is in force, in
/// words.
pub fn apply(launch: &Launch) -> String {
    let needs = needs(launch);
    let mut said = vec!["no new privileges".to_owned(), "not dumpable".to_owned()];
    limit(launch);
    said.push(roster_confine::apply(&needs));
    said.push(if needs.tcp == Tcp::None { "no network" } else { "network" }.to_owned());
    said.join(", ")
}

fn needs(launch: &Launch) -> Needs {
    let owned = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    match &launch.config {
        // It reads its own configuration and libraries, and makes its socket.
        RoleConfig::Bus(_) => Needs {
            read: owned(&["/"]),
            write: vec![launch.run_dir.join("dbus")],
            execute: true,
            // Without the right to write to the audit log it opens no socket for it.
            netlink: Some(Netlink::Selinux),
            ..Needs::default()
        },
        RoleConfig::Publisher(_) => Needs {
            read: folders_of(&followed(&launch.config)),
            write: vec![launch.state_dir.join(SNAPSHOTS), launch.run_dir.join(COPIES)],
            ..Needs::default()
        },
        RoleConfig::Backend(backend) => {
            let write = vec![launch.state_dir.join(DOMAINS).join(&backend.domain.name)];
            let boot = backend.domain.has_log_ins().then(|| PathBuf::from(BOOT));
            match &backend.domain.provider {
                Provider::Files(_) => {
                    let mut read = folders_of(&followed(&launch.config));
                    read.extend(boot);
                    Needs { read, write, ..Needs::default() }
                }
                Provider::Ldap(ldap) => {
                    let mut read = owned(&RESOLVER);
                    read.extend(boot);
                    for server in &ldap.servers {
                        if let Server::Ldapi { path } = server {
                            read.extend(folders_of(&[path]));
                        }
                    }
                    let families = &[libc::AF_INET, libc::AF_INET6];
                    let netlink = Some(Netlink::Route);
                    Needs { read, write, families, netlink, tcp: Tcp::Any, execute: false }
                }
            }
        }
        RoleConfig::Nss(_) | RoleConfig::Pam(_) | RoleConfig::Metrics(_) => Needs::default(),
        // Its helpers were given another user and other needs before.
        RoleConfig::Nscd(nscd) => {
            Needs { read: owned(&["/"]), write: vec![nscd.maps.clone()], ..Needs::default() }
        }
    }
}

/// Which boot this is: the life of what is kept of passwords is counted by it.
const BOOT: &str = "/proc/sys/kernel/random";

/// What resolving a host name reads, and where certificate authorities are.
const RESOLVER: [&str; 12] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/run/systemd",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/connman",
    "/run/nscd",
    "/run/avahi-daemon",
    "/var/lib/ca-certificates",
];

/// Files that a role follows: they are replaced, and so are folders and links on the way to them.
pub fn followed(config: &RoleConfig) -> Vec<&Path> {
    match config {
        RoleConfig::Publisher(publisher) => {
            let host = &publisher.host;
            vec![&host.passwd, &host.group, &host.subuid, &host.subgid]
        }
        RoleConfig::Backend(backend) => match &backend.domain.provider {
            Provider::Files(files) => vec![&files.passwd, &files.group],
            Provider::Ldap(_) => Vec::new(),
        },
        RoleConfig::Bus(_)
        | RoleConfig::Nss(_)
        | RoleConfig::Pam(_)
        | RoleConfig::Metrics(_)
        | RoleConfig::Nscd(_) => Vec::new(),
    }
}

fn limit(launch: &Launch) {
    let (descriptors, memory) = match launch.config {
        RoleConfig::Nss(_) | RoleConfig::Pam(_) | RoleConfig::Metrics(_) => {
            (DESCRIPTORS_SERVING, Some(RESPONDER_MEMORY))
        }
        // It holds a snapshot for as long as maps are made.
        RoleConfig::Nscd(_) => (DESCRIPTORS_SERVING, None),
        RoleConfig::Bus(_) | RoleConfig::Publisher(_) | RoleConfig::Backend(_) => {
            (DESCRIPTORS, None)
        }
    };
    set_limit(Resource::Core, 0);
    set_limit(Resource::Nofile, descriptors);
    if let Some(bytes) = memory {
        set_limit(Resource::Data, bytes);
    }
}

/// Lowers a limit; never raises the hard one.
fn set_limit(resource: Resource, value: u64) {
    let hard = rustix::process::getrlimit(resource).maximum;
    let value = Some(hard.map_or(value, |hard| hard.min(value)));
    let _ = rustix::process::setrlimit(resource, Rlimit { current: value, maximum: value });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role;
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};
    use std::fs::{self, File};
    use std::process::Command;

    fn launch(config: RoleConfig, state_dir: &Path) -> Launch {
        Launch {
            role: None,
            config,
            log: roster_config::Log { level: "info".into(), json: false },
            state_dir: state_dir.to_owned(),
            run_dir: state_dir.to_owned(),
            monitor_pid: 0,
            monitor_uid: 0,
        }
    }

    /// Runs one of the ignored tests in a process of its own, for what a sandbox takes is gone.
    fn in_a_process(test: &str) {
        let mut command = Command::new("/proc/self/exe");
        let done = command.args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    fn a_responder_reads_nothing_executes_nothing_and_has_no_network() {
        in_a_process("sandbox::tests::inside_a_responder");
    }

    #[test]
    fn a_back_end_of_files_writes_its_cache_and_reads_its_files_only() {
        in_a_process("sandbox::tests::inside_a_back_end_of_files");
    }

    /// A configuration with one domain, out of its table.
    fn configured(keys: &str) -> roster_config::Config {
        let text = format!("[host]\ndomains = [\"corp\"]\n[domain.corp]\n{keys}");
        roster_config::parse(&format!("{text}\n[responder.nscd]\nenabled = true\n")).unwrap().config
    }

    #[test]
    fn role_sandbox_equals_documented_row() {
        let backend = |keys: &str| {
            let domain = configured(keys).domains.into_iter().next().unwrap();
            let secrets = roster_config::Secrets::default();
            RoleConfig::Backend(Box::new(role::Backend { domain, secrets }))
        };
        let logins = "auth = \"krb5\"\nkrb5_realm = \"R\"\nkrb5_kdcs = [\"kdc\"]\n";
        let ldap = "provider = \"ldap\"\nuris = [\"ldapi://%2FLDAPI%2Fsocket\"]\nbase = \"dc=x\"\n";
        let files = "provider = \"files\"\npasswd = \"/FILES/passwd\"\ngroup = \"/FILES/group\"\n";
        let config = configured(files);
        let nscd = role::Nscd {
            passwd: "/etc/passwd".into(),
            group: "/etc/group".into(),
            maps: "/run/roster-nscd".into(),
            administrator: 0,
            users: None,
            config: config.nscd.unwrap(),
        };
        let (host, publisher) = (config.host, config.publisher);
        let publisher = role::Publisher { host, publisher, domains: Vec::new() };
        let bus = role::Bus { program: PathBuf::new(), config: PathBuf::new() };
        let page = include_str!("../../../docs/sandbox.md");
        for (row, config) in [
            ("bus", RoleConfig::Bus(bus)),
            ("publisher", RoleConfig::Publisher(publisher)),
            ("backend, ldap", backend(&format!("{ldap}{logins}"))),
            ("backend, files", backend(&format!("{files}{logins}"))),
            ("responder metrics", RoleConfig::Metrics(role::Metrics { roles: Vec::new() })),
            ("responder nscd", RoleConfig::Nscd(nscd)),
        ] {
            let mut launch = launch(config, Path::new("/var/lib/roster"));
            launch.run_dir = "/run/roster".into();
            let needs = needs(&launch).documented();
            let placeholders = [("/LDAPI", "LDAPI"), ("/FILES", "FILES"), ("/corp", "/NAME")];
            let shown = needs.map(|cell| {
                placeholders.iter().fold(cell, |cell, (found, shown)| cell.replace(found, shown))
            });
            assert_eq!(roster_confine::documented(page, row), Some(shown), "{row}");
        }
        for same in ["responder nss", "responder pam"] {
            let metrics = roster_confine::documented(page, "responder metrics");
            assert_eq!(roster_confine::documented(page, same), metrics, "{same}");
        }
    }

    fn refused(family: AddressFamily) -> bool {
        socket(family, SocketType::STREAM, None).err() == Some(Errno::PERM)
    }

    #[test]
    #[ignore = "run by a_responder_reads_nothing_executes_nothing_and_has_no_network"]
    fn inside_a_responder() {
        let config = RoleConfig::Metrics(role::Metrics { roles: Vec::new() });
        let said = apply(&launch(config, Path::new("/nonexistent")));
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
        let core = rustix::process::getrlimit(Resource::Core);
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
        let secrets = roster_config::Secrets::default();
        let backend = role::Backend { domain, secrets };
        let said = apply(&launch(RoleConfig::Backend(Box::new(backend)), &path("state")));
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
        assert!(fs::write(path("state/roster.snap"), "").is_err(), "the snapshot");
        assert!(fs::read("/etc/passwd").is_err(), "a file that is not its business");
        assert!(refused(AddressFamily::INET), "network without a directory");
    }
}
