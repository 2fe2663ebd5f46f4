// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two Samba AD DCs with equal data, each at an address of a private network, and dnsmasq as their DNS server. The second
//! is a copy of the first before its start, so both answer as the same controller of LAB.TEST. [`super::Samba`] is a
//! single one.

use super::ServerProcess;
use crate::rosterd::DomainTable;
use crate::test_host::{find_tool, run};
use crate::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Longest start of a controller on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(120);
/// Address of the DNS server.
const DNS_ADDRESS: &str = "192.0.2.53";

/// An SRV record below a domain: name, host and priority.
pub type ControllerRecord<'a> = (&'a str, &'a str, u16);

/// The controllers `dc1.lab.test` and `dc2.lab.test`. Hosts of the network are in the site Berlin.
#[derive(Debug)]
pub struct ControllerPair {
    controllers: [Option<ServerProcess>; 2],
    dns: Option<ServerProcess>,
    network: ServerProcess,
    // Removed last.
    dir: TempDir,
}

impl ControllerPair {
    /// Host names of the controllers.
    pub const HOSTS: [&str; 2] = ["dc1.lab.test", "dc2.lab.test"];
    /// Addresses of the controllers.
    const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
    /// The password of all users.
    pub const PASSWORD: &str = "Passw0rd-of-all";
    /// SRV records of the controllers in Berlin.
    pub const OF_BERLIN: &str = "_ldap._tcp.Berlin._sites.dc._msdcs.lab.test";
    /// SRV records of all controllers.
    pub const OF_DOMAIN: &str = "_ldap._tcp.dc._msdcs.lab.test";

    /// A domain with the users `u0` to `u5`, of uid 20000 and up, and both controllers. `prepare` changes the database
    /// before the controllers start, by arguments of samba-tool.
    ///
    /// # Panics
    /// If it does not come up; so do the other functions when a command fails.
    #[must_use]
    pub fn start(prepare: &[&[&str]]) -> Self {
        let dir = tempfile::tempdir().expect("make a folder");
        let first = dir.path().join("dc1");
        provision(&first);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/fill_controller.py");
        // The interpreter of the package, not another one in PATH.
        let mut fill = Command::new("/usr/bin/python3");
        fill.arg(script).arg(first.join("etc/smb.conf")).arg(first.join("private/sam.ldb"));
        succeed(fill.arg(Self::PASSWORD));
        for words in prepare {
            samba_tool(&first, words);
        }
        copy_controller(&first, &dir.path().join("dc2"));
        let network = network(dir.path());
        let mut pair = Self { controllers: [None, None], dns: None, network, dir };
        for index in 0..2 {
            pair.start_controller(index);
        }
        fs::write(pair.path("resolv.conf"), format!("nameserver {DNS_ADDRESS}\n")).expect("write");
        fs::write(pair.path("nsswitch.conf"), "hosts: files dns\n").expect("write nsswitch.conf");
        pair
    }

    /// Serves these SRV records, and the addresses of the controllers as all hosts in them.
    pub fn serve_dns(&mut self, records: &[ControllerRecord<'_>]) {
        let mut text = format!(
            "no-resolv\nno-hosts\nbind-interfaces\nlisten-address={DNS_ADDRESS}\nport=53\nuser=root\n\
             log-facility=-\npid-file={}\nlocal=/test/\n",
            self.path("dns.pid").display(),
        );
        let hosts: BTreeSet<&str> = records.iter().map(|(_, host, _)| *host).collect();
        for host in hosts {
            // Another name is one of the first controller.
            let index = usize::from(host == Self::HOSTS[1]);
            let _ = writeln!(text, "host-record={host},{}", Self::ADDRESSES[index]);
        }
        for (name, host, priority) in records {
            let _ = writeln!(text, "srv-host={name},{host},389,{priority},100");
        }
        fs::write(self.path("dnsmasq.conf"), text).expect("write the records");
        // It gives the port back first.
        self.dns = None;
        let log = self.path("dns.log");
        let _ = fs::remove_file(&log);
        let mut command = self.command_inside(&find_tool("dnsmasq", "dnsmasq-base"));
        command.arg("--keep-in-foreground");
        command.arg(format!("--conf-file={}", self.path("dnsmasq.conf").display()));
        let mut process = ServerProcess::start(&mut command, &log);
        wait_until(START_WITHIN, "dnsmasq has started", || {
            assert!(process.is_running(), "dnsmasq has ended: {}", process.log());
            process.log().contains("started, version")
        });
        self.dns = Some(process);
    }

    /// Stops all processes of a controller: its connections stay, and no request has a reply.
    pub fn freeze(&self, index: usize) {
        self.signal(index, Signal::STOP);
    }

    /// Ends that.
    pub fn thaw(&self, index: usize) {
        self.signal(index, Signal::CONT);
    }

    /// Ends a controller.
    pub fn stop(&mut self, index: usize) {
        if let Some(mut process) = self.controllers[index].take() {
            process.stop();
        }
    }

    /// The domain `corp` for a host in this network, which finds the controllers by DNS. Logins are by password.
    #[must_use]
    pub fn domain(&self) -> DomainTable {
        let password = self.path("reader.password");
        fs::write(&password, Self::PASSWORD).expect("write the reader's password");
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("chmod");
        DomainTable::files("corp", Path::new("/"), Path::new("/"))
            .without("passwd")
            .without("group")
            .with("provider", "\"ldap\"")
            .with("discover", "\"lab.test\"")
            .with("discover_controllers", "true")
            .with("base", "\"DC=lab,DC=test\"")
            .with("schema", "\"rfc2307bis\"")
            .with("member_attributes", "[\"member\"]")
            .with("user_filter", "\"(&(objectClass=user)(uidNumber=*))\"")
            .with("group_filter", "\"(&(objectClass=group)(gidNumber=*))\"")
            .with("bind_dn", "\"CN=Administrator,CN=Users,DC=lab,DC=test\"")
            .with("bind_password_file", &format!("{password:?}"))
            .with("allow_clear_password", "true")
            .with("allow_clear_identities", "true")
            .with("allow_clear_user_passwords", "true")
            .with("auth", "\"ldap\"")
            .with("offline_credentials", "false")
            .with("failback_interval", "\"1s\"")
            .with("poll_interval", "\"1s\"")
    }

    /// Names of attributes for [`Self::domain`], and the responder for logins.
    pub const TABLES: &str = "[domain.corp.attributes]\nuser_name = \"sAMAccountName\"\n\
                              user_home = \"unixHomeDirectory\"\ngroup_name = \"sAMAccountName\"\n\
                              [responder.pam]\n";

    /// A script for [`Rosterd::set_start_script`](crate::Rosterd::set_start_script): the host is in this network.
    #[must_use]
    pub fn start_script(&self) -> String {
        let bind = |name: &str| format!("mount --bind {} /etc/{name}", self.path(name).display());
        let net = format!("/proc/{}/ns/net", self.network.pid().as_raw_nonzero());
        format!(
            "{}\n{}\nexec nsenter --net={net} \"$@\"",
            bind("resolv.conf"),
            bind("nsswitch.conf")
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command_inside(&self, program: &Path) -> Command {
        let mut command = Command::new(find_tool("nsenter", "util-linux"));
        let pid = self.network.pid().as_raw_nonzero().to_string();
        command.args(["--net", "--target", &pid]).arg(program);
        command
    }

    fn start_controller(&mut self, index: usize) {
        let address = Self::ADDRESSES[index];
        let dir = self.path(&format!("dc{}", index + 1));
        let mut command = self.command_inside(&find_tool("samba", "samba-ad-dc"));
        command.args(["-i", "--no-process-group", "--debug-stdout"]);
        command.arg("-s").arg(dir.join("etc/smb.conf")).args(options(&dir, address));
        let mut process = ServerProcess::start(&mut command, &dir.join("said"));
        let filter = format!("src {address} and sport = :389");
        wait_until(START_WITHIN, "Samba answers", || {
            assert!(process.is_running(), "Samba has ended: {}", process.log());
            let mut sockets = self.command_inside(Path::new("ss"));
            let sockets = run(sockets.args(["-Hlntu", &filter])).text();
            sockets.contains("tcp") && sockets.contains("udp")
        });
        self.controllers[index] = Some(process);
    }

    fn signal(&self, index: usize, signal: Signal) {
        let process = self.controllers[index].as_ref().expect("the controller runs");
        let mut pids = vec![process.pid()];
        let mut next = 0;
        while let Some(&pid) = pids.get(next) {
            pids.extend(children(pid));
            next += 1;
        }
        for pid in pids {
            // A child may have ended since.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for ControllerPair {
    fn drop(&mut self) {
        for index in 0..2 {
            if self.controllers[index].is_some() {
                // A stopped process does not end on request.
                self.thaw(index);
                self.stop(index);
            }
        }
    }
}

/// The children of a process.
fn children(pid: Pid) -> Vec<Pid> {
    let pid = pid.as_raw_nonzero();
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Options of each program of a controller. Not all of them stand in the file that provisioning writes.
fn options(dir: &Path, address: &str) -> Vec<String> {
    let path = |name: &str| dir.join(name).display().to_string();
    let options = [
        format!("interfaces={address}"),
        "bind interfaces only=yes".to_owned(),
        "server services=ldap, cldap, kdc".to_owned(),
        // Simple binds without TLS.
        "ldap server require strong auth=no".to_owned(),
        "dns update command=/bin/true".to_owned(),
        "vfs objects=".to_owned(),
        "max log size=0".to_owned(),
        format!("pid directory={}", path("pid")),
        format!("ncalrpc dir={}", path("ncalrpc")),
    ];
    options.map(|option| format!("--option={option}")).into()
}

fn provision(dir: &Path) {
    fs::create_dir(dir).expect("make a folder");
    let mut command = Command::new(find_tool("samba-tool", "samba-ad-dc"));
    command.args(["domain", "provision", "--realm=LAB.TEST", "--domain=LAB", "--use-rfc2307"]);
    command.args(["--server-role=dc", "--dns-backend=SAMBA_INTERNAL", "--host-name=dc1"]);
    command.args(["--host-ip=192.0.2.1", &format!("--adminpass={}", ControllerPair::PASSWORD)]);
    command.arg(format!("--targetdir={}/", dir.display())).args(options(dir, "lo"));
    succeed(&mut command);
    fs::create_dir_all(dir.join("pid")).expect("make a folder");
}

/// `samba-tool` on the database of a controller that does not run.
fn samba_tool(dir: &Path, words: &[&str]) {
    let mut command = Command::new(find_tool("samba-tool", "samba-ad-dc"));
    command.args(words).arg("-H").arg(dir.join("private/sam.ldb"));
    succeed(command.arg("-s").arg(dir.join("etc/smb.conf")));
}

fn copy_controller(from: &Path, to: &Path) {
    succeed(Command::new("cp").arg("-a").arg(from).arg(to));
    let conf = to.join("etc/smb.conf");
    let text = fs::read_to_string(&conf).expect("read smb.conf");
    let [from, to] = [from, to].map(|path| path.display().to_string());
    fs::write(&conf, text.replace(&from, &to)).expect("write smb.conf");
}

/// A process in a network with the addresses of all servers.
fn network(dir: &Path) -> ServerProcess {
    let mut script = String::from("ip link set lo up\n");
    for address in ControllerPair::ADDRESSES.iter().chain(&[DNS_ADDRESS]) {
        let _ = writeln!(script, "ip address add {address}/24 dev lo");
    }
    script += "echo ready\nexec sleep infinity";
    let mut command = Command::new(find_tool("unshare", "util-linux"));
    command.args(["--net", "sh", "-ec", &script]);
    let mut network = ServerProcess::start(&mut command, &dir.join("network"));
    wait_until(START_WITHIN, "the network is there", || {
        assert!(network.is_running(), "no network: {}", network.log());
        network.log().contains("ready")
    });
    network
}

fn succeed(command: &mut Command) {
    let done = run(command);
    let said = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.code, 0, "{command:?}: {said}{}", done.error());
}
