// SPDX-License-Identifier: MIT OR Apache-2.0
//! A DNS server, dnsmasq as Debian packages it, with the records of a test. It listens at resolvers' port 53 at a
//! dedicated loopback address, which requires root.

use super::ServerProcess;
use crate::test_host::find_tool;
use crate::wait::wait_until;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Longest start on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(30);

/// A SRV record for LDAP, and the address of its host, which is this one.
#[derive(Clone, Copy, Debug)]
pub struct SrvRecord<'a> {
    /// The host.
    pub host: &'a str,
    /// The server's port.
    pub port: u16,
    /// Lower is tried first.
    pub priority: u16,
    /// The server's share of first attempts among servers of one priority.
    pub weight: u16,
}

/// A DNS server.
#[derive(Debug)]
pub struct DnsServer {
    address: String,
    process: Option<ServerProcess>,
    // Removed last.
    dir: TempDir,
}

impl DnsServer {
    /// A running server that knows these LDAP servers of a domain.
    ///
    /// # Panics
    /// If it does not come up; so does [`Self::set`].
    #[must_use]
    pub fn serving(domain: &str, services: &[SrvRecord<'_>]) -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        let folder = tempfile::tempdir().expect("make a folder for DNS");
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = format!("127.{}.{high}.{low}", 50 + COUNT.fetch_add(1, Ordering::Relaxed));
        let mut dns = Self { address, process: None, dir: folder };
        dns.set_nameserver(&dns.address);
        fs::write(dns.path("nsswitch.conf"), "hosts: files dns\n").expect("write nsswitch.conf");
        dns.set(domain, services);
        dns
    }

    /// From now on it knows these.
    pub fn set(&mut self, domain: &str, services: &[SrvRecord<'_>]) {
        let mut text = format!(
            "no-resolv\nno-hosts\nbind-interfaces\nlisten-address={}\nport=53\nuser=root\n\
             log-facility=-\npid-file={}\nlocal=/test/\n",
            self.address,
            self.path("pid").display(),
        );
        for SrvRecord { host, port, priority, weight } in services {
            let record = format!("{host},{port},{priority},{weight}");
            let _ = writeln!(text, "host-record={host},127.0.0.1");
            let _ = writeln!(text, "srv-host=_ldap._tcp.{domain},{record}");
        }
        fs::write(self.path("dnsmasq.conf"), text).expect("write the records");
        // It gives the port back first.
        self.process = None;
        let log = self.path("log");
        let _ = fs::remove_file(&log);
        let mut command = Command::new(find_tool("dnsmasq", "dnsmasq-base"));
        command.arg("--keep-in-foreground");
        command.arg(format!("--conf-file={}", self.path("dnsmasq.conf").display()));
        let mut process = ServerProcess::start(&mut command, &log);
        wait_until(START_WITHIN, "dnsmasq has started", || {
            assert!(process.is_running(), "dnsmasq has ended: {}", process.log());
            process.log().contains("started, version")
        });
        self.process = Some(process);
    }

    /// A script for [`Rosterd::set_start_script`](crate::Rosterd::set_start_script): the host uses this server.
    #[must_use]
    pub fn mount_script(&self) -> String {
        let bind = |name: &str| format!("mount --bind {} /etc/{name}", self.path(name).display());
        format!("{}\n{}\nexec \"$@\"", bind("resolv.conf"), bind("nsswitch.conf"))
    }

    /// From now on hosts within [`Self::mount_script`] use another server, as in another network.
    ///
    /// # Panics
    /// If that cannot be written.
    pub fn redirect_to(&self, other: &Self) {
        self.set_nameserver(&other.address);
    }

    fn set_nameserver(&self, address: &str) {
        let text = format!("nameserver {address}\n");
        fs::write(self.path("resolv.conf"), text).expect("write resolv.conf");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}
