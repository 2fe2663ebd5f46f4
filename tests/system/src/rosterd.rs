// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running `rosterd` on a pretend [`TestHost`], in private directories and as the invoking user. It gives tests
//! access to its roles' processes and its log, and checks that the host serves the expected entries.

use crate::artifacts::{krb5_program, roster_program, rosterd_program};
use crate::corpus::Corpus;
use crate::old_names;
use crate::servers::{DirectoryServer, READER_PASSWORD, Samba, ServerProcess};
use crate::test_host::{
    ProgramOutput, RECOMMENDED_NSSWITCH, ROSTER_NSSWITCH, TestHost, find_tool, plain_environment,
    run,
};
use crate::wait::{wait_for, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use crate::wait::SOON;

/// Longest wait for an event after several timeouts.
pub const LONG_WAIT: Duration = Duration::from_secs(120);

/// Local accounts of a host, for tests that do not care.
pub const LOCAL_PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/usr/sbin:/bin/false\n\
                          nobody:x:65534:65534::/nonexistent:/bin/false\n\
                          local:x:1500:1500:Local account:/home/local:/bin/sh\n";
/// The groups of the local accounts.
pub const LOCAL_GROUP: &str = "root:x:0:\ndaemon:x:1:\nshadow:x:42:\nusers:x:100:\n\
                                nogroup:x:65534:\nlocal:x:1500:\n";

/// The uid of `roster-bus`, and the gid of all roles; the uids of the others follow.
pub const FIRST_ROLE_UID: u32 = 990;

/// Starts `$1` with the configuration `$3`, in a private mount namespace, from a place that every user can reach,
/// `roster` being beside it. If there is a directory `$4`, it is /etc/pam.d. Further arguments are a command that executes
/// the daemon.
const INSTALLED_SCRIPT: &str = r#"mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/bin /run/libexec/roster
cp "$1" "$2" "$5" /run/bin
ln "/run/bin/${5##*/}" /run/libexec/roster
mount -t overlay -o lowerdir=/run/libexec:/usr/libexec overlay /usr/libexec
if [ -d "$4" ]; then mount --bind "$4" /etc/pam.d; fi
config=$3
shift 5
exec "$@" /run/bin/rosterd --config "$config"
"#;

/// A table `[domain.NAME]` of roster.toml.
#[derive(Clone, Debug)]
pub struct DomainTable {
    name: String,
    keys: Vec<(String, String)>,
}

impl DomainTable {
    /// A domain that mirrors `server` through it.
    #[must_use]
    pub fn ldap<S: DirectoryServer>(name: &str, server: &S) -> Self {
        Self::ldap_through(name, server, &[&server.uri()])
    }

    /// A domain that mirrors `server`, reached by these URIs.
    #[must_use]
    pub fn ldap_through<S: DirectoryServer>(name: &str, server: &S, uris: &[&str]) -> Self {
        let password = server.server_dir().join("reader.password");
        fs::write(&password, READER_PASSWORD).expect("write the reader's password");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("chmod");
        let mut domain = Self { name: name.to_owned(), keys: Vec::new() };
        // Keys that an older installation needs to serve such a domain.
        for key in std::env::var("ROSTER_DOMAIN_KEYS").unwrap_or_default().split_whitespace() {
            domain = domain.with(key, "true");
        }
        domain
            .with("provider", "\"ldap\"")
            .with("uris", &format!("{uris:?}"))
            .with("base", &format!("{:?}", server.base()))
            .with("schema", &format!("{:?}", server.schema().key()))
            .with("bind_dn", &format!("{:?}", server.reader_dn()))
            .with("bind_password_file", &format!("{password:?}"))
    }

    /// A domain that mirrors a Samba AD DC, by an account of it.
    #[must_use]
    pub fn active_directory(name: &str, samba: &Samba, bind_dn: &str) -> Self {
        let password = samba.path("reader.password");
        fs::write(&password, Samba::PASSWORD).expect("write the reader's password");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("chmod");
        let domain = Self { name: name.to_owned(), keys: Vec::new() };
        domain
            .with("provider", "\"ldap\"")
            .with("uris", "[\"ldap://127.0.0.1\"]")
            .with("base", &format!("{:?}", Samba::BASE))
            .with("schema", "\"ad\"")
            .with("bind_dn", &format!("{bind_dn:?}"))
            .with("bind_password_file", &format!("{password:?}"))
    }

    /// A domain out of text files.
    #[must_use]
    pub fn files(name: &str, passwd: &Path, group: &Path) -> Self {
        let domain = Self { name: name.to_owned(), keys: Vec::new() };
        domain
            .with("provider", "\"files\"")
            .with("passwd", &format!("{passwd:?}"))
            .with("group", &format!("{group:?}"))
    }

    /// The domain under another name.
    #[must_use]
    pub fn renamed(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// The domain with a key set; the value is TOML.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.keys.retain(|(name, _)| name != key);
        self.keys.push((key.to_owned(), value.to_owned()));
        self
    }

    /// The domain without a key.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.keys.retain(|(name, _)| name != key);
        self
    }
}

/// One domain as the oracle reads it.
#[derive(Clone, Debug)]
pub enum OracleSource<'a> {
    /// The entries of this server.
    Server(&'a dyn DirectoryServer),
    /// Text.
    Files(&'a Path, &'a Path),
}

impl std::fmt::Debug for dyn DirectoryServer + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.uri())
    }
}

/// A daemon and its host. Dropping it ends the daemon; in a test that fails it shows the log.
#[derive(Debug)]
pub struct Rosterd {
    process: Option<ServerProcess>,
    /// Lines of `[host]` beside the usual ones.
    host_keys: String,
    domains: Vec<DomainTable>,
    /// Further tables of the configuration.
    tables: String,
    /// A command that executes the daemon, see [`Rosterd::set_start_script`].
    wrapper: Vec<String>,
    /// A command that executes the daemon in another network.
    network: Vec<String>,
    /// See [`Rosterd::installed`].
    installed: bool,
    // Removed last.
    host: TestHost,
}

impl Rosterd {
    /// A daemon with these domains on a host that has [`LOCAL_PASSWD`].
    ///
    /// # Panics
    /// If it cannot be started; so do the other functions of this file when the expected event does not occur.
    #[must_use]
    pub fn start(domains: &[DomainTable]) -> Self {
        let mut rosterd = Self::prepared(domains);
        rosterd.launch();
        rosterd
    }

    /// The same, configured and not started.
    #[must_use]
    pub fn prepared(domains: &[DomainTable]) -> Self {
        let locals = Corpus::new("", LOCAL_PASSWD.as_bytes(), LOCAL_GROUP.as_bytes(), b"");
        Self::on(TestHost::new(&locals, ROSTER_NSSWITCH), "", domains)
    }

    /// The same on a host of the test's own making, with more lines of `[host]`.
    #[must_use]
    pub fn on(host: TestHost, host_keys: &str, domains: &[DomainTable]) -> Self {
        fs::create_dir_all(host.path("run")).expect("create the run-time folder");
        let rosterd = Self {
            process: None,
            host_keys: host_keys.to_owned(),
            domains: domains.to_vec(),
            tables: String::new(),
            wrapper: Vec::new(),
            network: Vec::new(),
            installed: false,
            host,
        };
        rosterd.configure();
        rosterd
    }

    /// A daemon as a package sets it up: started by root with the default directories, each role under a dedicated
    /// user, in private mounts.
    #[must_use]
    pub fn installed(domains: &[DomainTable]) -> Self {
        let mut passwd = LOCAL_PASSWD.to_owned();
        let group = format!("{LOCAL_GROUP}roster:x:{FIRST_ROLE_UID}:\n");
        let names =
            ["bus", "publisher", "nss", "backend-0", "backend-1", "backend-2", "metrics", "pam"];
        for (name, id) in names.into_iter().zip(FIRST_ROLE_UID..) {
            let _ = writeln!(passwd, "roster-{name}:x:{id}:{FIRST_ROLE_UID}::/:/usr/sbin/nologin");
        }
        let locals = Corpus::new("", passwd.as_bytes(), group.as_bytes(), b"");
        // dbus-daemon looks its own user up.
        let host = TestHost::new(&locals, RECOMMENDED_NSSWITCH);
        // For the floor; the configuration lies elsewhere.
        let _ = host.make_config_dir();
        let mut rosterd = Self::on(host, "", domains);
        rosterd.installed = true;
        rosterd.configure();
        rosterd
    }

    /// A command in the mounts of the daemon.
    #[must_use]
    pub fn command_inside(&self, program: &Path) -> Command {
        let pid = self.process.as_ref().expect("rosterd was started").pid();
        let mut command = Command::new(find_tool("nsenter", "util-linux"));
        plain_environment(&mut command);
        if !rustix::process::geteuid().is_root() {
            command.args(["-U", "--preserve-credentials"]);
        }
        command.args(["-m", "-t", &pid.to_string()]).arg(program);
        command
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &TestHost {
        &self.host
    }

    /// Starts the prepared or stopped daemon.
    pub fn launch(&mut self) {
        if self.installed {
            let mut command = self.host.command("sh");
            command.args(["-ec", INSTALLED_SCRIPT, "installed"]);
            command.arg(rosterd_program()).arg(roster_program()).arg(self.config());
            command
                .arg(self.host.path("pam.d"))
                .arg(krb5_program())
                .args(&self.wrapper)
                .args(&self.network);
            self.process = Some(ServerProcess::start(&mut command, &self.host.path("rosterd.log")));
            self.wait_for_mounts();
            return;
        }
        let words = self.wrapper.iter().chain(&self.network).map(AsRef::as_ref);
        let mut words = words.chain([rosterd_program().as_os_str()]);
        let mut command = Command::new(words.next().expect("the daemon at least"));
        command.args(words).arg("--config").arg(self.config());
        command.arg("--state-dir").arg(self.host.state_dir());
        command.arg("--run-dir").arg(self.host.path("run"));
        self.process = Some(ServerProcess::start(&mut command, &self.host.path("rosterd.log")));
        self.wait_for_mounts();
    }

    /// The script has become the daemon: before that, programs [inside](Self::command_inside) would find the machine's own
    /// /etc/pam.d, and users out of the last snapshot.
    fn wait_for_mounts(&mut self) {
        let process = self.process();
        wait_until(SOON, "the daemon is started", || {
            let name = format!("/proc/{}/comm", process.pid().as_raw_nonzero());
            !process.is_running() || fs::read_to_string(name).is_ok_and(|name| name == "rosterd\n")
        });
    }

    /// From the next launch on, a shell script that ends in `exec "$@"` starts the daemon, in private mounts.
    pub fn set_start_script(&mut self, script: &str) {
        let unshare = find_tool("unshare", "util-linux").display().to_string();
        let mounts = if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" };
        self.wrapper = [&unshare, mounts, "sh", "-ec", script, "within"].map(str::to_owned).into();
    }

    /// From the next launch on, this program executes an [installed](Self::installed) daemon, given its command line.
    pub fn set_launcher(&mut self, program: &Path) {
        assert!(self.installed, "a start script does that for other daemons");
        self.wrapper = vec![program.to_str().expect("a plain path").to_owned()];
    }

    /// From the next launch on, the daemon is in the network of this server.
    pub fn set_network(&mut self, samba: &Samba) {
        self.network = samba.network_command().into();
    }

    /// Replaces the domains of the configuration without a reload.
    pub fn set_domains(&mut self, domains: &[DomainTable]) {
        self.domains = domains.to_vec();
        self.configure();
    }

    /// Replaces the tables of the configuration beside `[host]` and the domains, without a reload.
    pub fn set_tables(&mut self, tables: &str) {
        tables.clone_into(&mut self.tables);
        self.configure();
    }

    /// The daemon's configuration.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.host.path("roster.toml")
    }

    /// Ends it in good order.
    pub fn stop(&mut self) {
        self.process().stop();
    }

    /// The monitor.
    pub fn process(&mut self) -> &mut ServerProcess {
        self.process.as_mut().expect("rosterd was started")
    }

    /// The daemon's log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.as_ref().map(ServerProcess::log).unwrap_or_default()
    }

    /// The process of a role, `bus`, `publisher`, `backend:corp` or `responder:nss`, if it runs.
    #[must_use]
    pub fn role(&self, role: &str) -> Option<Pid> {
        let monitor = self.process.as_ref()?.pid();
        let list = fs::read_to_string(format!("/proc/{monitor}/task/{monitor}/children")).ok()?;
        list.split_whitespace().find_map(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let words: Vec<_> = line.split(|&byte| byte == 0).collect();
            let runs = if role == "bus" {
                words.first()?.ends_with(b"dbus-daemon")
            } else {
                words.contains(&role.as_bytes())
            };
            if runs { Pid::from_raw(pid.parse().ok()?) } else { None }
        })
    }

    /// Waits for a role to run.
    pub fn wait_for_role(&self, role: &str) -> Pid {
        wait_for(SOON, || self.role(role).ok_or_else(|| format!("{role} does not run")))
    }

    /// Kills a role in its present state.
    pub fn kill_role(&self, role: &str) {
        let pid = self.wait_for_role(role);
        // It may have ended in the meantime.
        let _ = kill_process(pid, Signal::KILL);
    }

    /// Runs `roster` with arguments, on this daemon's bus.
    #[must_use]
    pub fn roster(&self, args: &[&str]) -> ProgramOutput {
        let args = args.iter().map(|word| old_names::word_of_installation(word));
        let mut output = if self.installed {
            run(self.command_inside(Path::new("/run/bin/roster")).args(args))
        } else {
            let mut command = Command::new(roster_program());
            command.args(args).arg("--run-dir").arg(self.host.path("run"));
            run(&mut command)
        };
        output.stdout = old_names::with_present_names(output.stdout);
        output
    }

    /// `roster status --json`, with problems or without.
    ///
    /// # Errors
    /// The error output, when the daemon does not answer.
    pub fn status(&self) -> Result<Value, String> {
        let done = self.roster(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&done.stdout).map_err(|_| done.error())?;
        if status["running"] == true { Ok(status) } else { Err(status.to_string()) }
    }

    /// The status of a domain.
    ///
    /// # Errors
    /// The error output instead.
    pub fn domain(&self, name: &str) -> Result<Value, String> {
        let status = self.status()?;
        let domains = status["domains"].as_array().ok_or("no domains")?;
        let found = domains.iter().find(|domain| domain["domain"] == name);
        found.cloned().ok_or_else(|| status.to_string())
    }

    /// Waits until `key` is `value` in the status of a domain.
    #[track_caller]
    pub fn expect_domain_status<V: Into<Value>>(&self, name: &str, key: &str, value: V) {
        let value = value.into();
        wait_for(LONG_WAIT, || {
            let domain = self.domain(name)?;
            if domain[key] == value {
                Ok(())
            } else {
                Err(format!("{key} is not {value}: {domain}"))
            }
        });
    }

    /// Number of removals of a domain that wait for a confirmation.
    ///
    /// # Errors
    /// The text of the status without that number.
    pub fn pending_removals(&self, domain: &str) -> Result<u64, String> {
        let domain = self.domain(domain)?;
        domain["pending_removals"].as_u64().ok_or_else(|| domain.to_string())
    }

    /// Waits until the mirror equals the directories, and approves pending removals of the domain.
    #[track_caller]
    pub fn expect_mirror_approving_removals(&self, domain: &str, sources: &[OracleSource<'_>]) {
        let case = self.write_oracle_case(sources);
        wait_for(LONG_WAIT, || {
            if self.pending_removals(domain)? > 0 {
                let confirmed = self.roster(&["domain", "approve-removals", domain]);
                assert_eq!(confirmed.code, 0, "{}", confirmed.error());
            }
            let done = self.compare(&case);
            let difference =
                || format!("{}{}", String::from_utf8_lossy(&done.stdout), done.error());
            if done.code == 0 { Ok(()) } else { Err(difference()) }
        });
    }

    /// One line of getent on the host; `None` when it finds nothing.
    #[must_use]
    pub fn getent(&self, database: &str, key: &str) -> Option<String> {
        let done = self.host.run("getent", &["-s", "roster", database, key]);
        match done.code {
            0 => Some(done.text()),
            2 => None,
            code => panic!("getent {database} {key} ends with {code}: {}", done.error()),
        }
    }

    /// Waits until `getent` answers so.
    #[track_caller]
    pub fn expect(&self, database: &str, key: &str, answer: Option<&str>) {
        wait_for(SOON, || {
            let found = self.getent(database, key);
            if found.as_deref() == answer {
                Ok(())
            } else {
                Err(format!("getent {database} {key}: {found:?} instead of {answer:?}"))
            }
        });
    }

    /// Waits until the user is in exactly these groups, of which `gid` is the primary one.
    #[track_caller]
    pub fn expect_groups(&self, user: &str, gid: u32, groups: &[u32]) {
        let mut wanted = groups.to_vec();
        wanted.sort_unstable();
        let program = format!("import os; print(*sorted(os.getgrouplist({user:?}, {gid})))");
        let wanted = wanted.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        wait_for(SOON, || {
            let found = run(self.python_with_roster_only().args(["-c", &program])).text();
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{user} is in {found}, not {wanted}"))
            }
        });
    }

    /// Waits until there is a snapshot.
    pub fn wait_for_snapshot(&self) {
        wait_until(SOON, "there is a snapshot", || self.host.snapshot_path().exists());
    }

    /// Waits until the host serves exactly the expected entries of the directories. A script that shares no code with
    /// the daemon computes them.
    #[track_caller]
    pub fn expect_mirror(&self, sources: &[OracleSource<'_>]) {
        let case = self.write_oracle_case(sources);
        self.wait_for_snapshot();
        wait_for(SOON, || {
            let done = self.compare(&case);
            if done.code == 0 {
                Ok(())
            } else {
                Err(format!("{}{}", String::from_utf8_lossy(&done.stdout), done.error()))
            }
        });
    }

    /// Writes the input of the oracle.
    fn write_oracle_case(&self, sources: &[OracleSource<'_>]) -> PathBuf {
        let name = |i: usize| self.domains.get(i).map(|domain| domain.name.clone());
        let domains: Vec<Value> = sources
            .iter()
            .enumerate()
            .map(|(i, source)| match source {
                OracleSource::Server(server) => {
                    json!({"name": name(i), "ldif": server.export(&format!("export{i}.ldif"))})
                }
                OracleSource::Files(passwd, group) => {
                    json!({"name": name(i), "passwd": passwd, "group": group})
                }
            })
            .collect();
        let case = json!({
            "passwd": self.host.path("etc/passwd"),
            "group": self.host.path("etc/group"),
            "domains": domains,
        });
        let path = self.host.path("case.json");
        fs::write(&path, case.to_string()).expect("write the case");
        path
    }

    fn compare(&self, case: &Path) -> ProgramOutput {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/expected_accounts.py");
        run(self.python_with_roster_only().arg(script).arg(case))
    }

    /// Python on the host, with `roster` as glibc's only service.
    #[must_use]
    pub fn python_with_roster_only(&self) -> Command {
        let nsswitch = self.host.path("etc/roster-only");
        fs::write(&nsswitch, ROSTER_NSSWITCH).expect("write nsswitch.conf");
        let script = "mount --bind \"$1\" /etc/nsswitch.conf; shift; exec python3 \"$@\"";
        let mut command = self.host.command("sh");
        command.args(["-ec", script, "roster-only"]).arg(nsswitch);
        command
    }

    fn configure(&self) {
        let names: Vec<_> = self.domains.iter().map(|domain| &domain.name).collect();
        let mut text = format!("[host]\ndomains = {names:?}\n{}\n", self.host_keys);
        if !self.installed {
            for name in ["passwd", "group"] {
                let _ = writeln!(text, "{name} = {:?}", self.host.path("etc").join(name));
            }
        }
        for domain in &self.domains {
            let _ = writeln!(text, "\n[domain.{:?}]", domain.name);
            for (key, value) in &domain.keys {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        let _ = writeln!(text, "\n{}", self.tables);
        fs::write(self.config(), old_names::config_of_installation(&text))
            .expect("write roster.toml");
    }
}

impl Drop for Rosterd {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            if std::thread::panicking() {
                // The end of the log, which leads to the failure.
                let log = process.log();
                let lines: Vec<_> = log.lines().collect();
                let shown = &lines[lines.len().saturating_sub(60)..];
                eprintln!("rosterd logged:\n  {}", shown.join("\n  "));
                process.kill();
            } else {
                process.stop();
            }
        }
    }
}
