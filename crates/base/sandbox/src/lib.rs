// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restricts a process before it serves: file access, ports, unused system calls, and kinds of sockets. This crate has
//! no knowledge of roles and programs; the caller passes their needs.
//!
//! All restrictions are best effort: without landlock or seccomp in the kernel, the process still runs, under its own
//! user. [`apply`] returns the restrictions in force. The directory `/proc/self` stays readable, because the C
//! library's resolver loads its services late.
//!
//! docs/internals/sandbox.md lists all of them for each role. A system test compares the page with the filters of
//! running roles.
#![forbid(unsafe_code)]

mod calls;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Newest version of landlock's rules that this code uses. Older kernels apply the rules that they support.
const LANDLOCK: ABI = ABI::V6;

/// Permissions of a process beyond the basic ones.
#[derive(Debug, Default)]
pub struct SandboxSpec {
    /// Directories and files that it may read.
    pub read: Vec<PathBuf>,
    /// Directories that it may write.
    pub write: Vec<PathBuf>,
    /// Whether the process may execute programs.
    pub execute: bool,
    /// Socket families besides AF_UNIX and AF_NETLINK.
    pub families: &'static [i32],
    /// The permitted protocol of AF_NETLINK.
    pub netlink: Option<NetlinkProtocol>,
    /// TCP ports to which it may connect.
    pub tcp: TcpAccess,
}

impl SandboxSpec {
    /// Returns the columns of docs/internals/sandbox.md after the role: executes, sockets, TCP, reads, writes.
    #[must_use]
    pub fn doc_columns(&self) -> [String; 5] {
        let paths = |paths: &[PathBuf]| {
            let mut shown: Vec<_> = Vec::new();
            for path in paths.iter().map(|path| format!("`{}`", path.display())) {
                if !shown.contains(&path) {
                    shown.push(path);
                }
            }
            shown.join(" ")
        };
        let families = self.families.iter().map(|&family| match family {
            libc::AF_INET => "`AF_INET`".to_owned(),
            libc::AF_INET6 => "`AF_INET6`".to_owned(),
            other => other.to_string(),
        });
        let netlink = self.netlink.map(|protocol| match protocol {
            NetlinkProtocol::Route => "`AF_NETLINK` with `NETLINK_ROUTE`".to_owned(),
            NetlinkProtocol::Selinux => "`AF_NETLINK` with `NETLINK_SELINUX`".to_owned(),
        });
        let sockets = ["`AF_UNIX`".to_owned()].into_iter().chain(families).chain(netlink);
        let tcp = match &self.tcp {
            TcpAccess::None => "none".to_owned(),
            TcpAccess::Any => "any".to_owned(),
            TcpAccess::Ports(ports) => {
                ports.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")
            }
        };
        let executes = if self.execute { "yes" } else { "no" };
        let sockets = sockets.collect::<Vec<_>>().join(", ");
        [executes.to_owned(), sockets, tcp, paths(&self.read), paths(&self.write)]
    }
}

/// Reads the columns of a role from the text of docs/internals/sandbox.md.
#[must_use]
pub fn read_doc_columns(page: &str, role: &str) -> Option<[String; 5]> {
    page.lines().find_map(|line| {
        let cells: Vec<_> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        let (first, rest) = cells.split_first()?;
        if first.replace('`', "") != role {
            return None;
        }
        rest.get(..5)?.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>().try_into().ok()
    })
}

/// Protocols of AF_NETLINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetlinkProtocol {
    /// Addresses and routes: the C library's resolver queries the addresses of the host.
    Route,
    /// Changes of the SELinux policy, which dbus-daemon follows.
    Selinux,
}

/// TCP ports of other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TcpAccess {
    /// None.
    #[default]
    None,
    /// The listed ports.
    Ports(Vec<u16>),
    /// All ports.
    Any,
}

/// Restricts this process, which must not have threads yet, and its later threads and children. Returns a description
/// of the restrictions in force.
#[must_use]
pub fn apply(needs: &SandboxSpec) -> String {
    let files = apply_landlock(needs).unwrap_or_else(|error| format!("no landlock ({error})"));
    let calls = match calls::apply(needs) {
        Ok(()) => "seccomp".to_owned(),
        Err(error) => format!("no seccomp ({error})"),
    };
    format!("{files}, {calls}")
}

/// Returns whether the kernel has Landlock, and permits its use.
#[must_use]
pub fn is_landlock_available() -> bool {
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let handled = required.handle_access(AccessFs::Execute);
    handled.is_ok_and(|ruleset| ruleset.create().is_ok())
}

/// Applies landlock to files, TCP, signals to other processes, and abstract sockets.
fn apply_landlock(needs: &SandboxSpec) -> Result<String, Box<dyn Error>> {
    let mut network = BitFlags::from(AccessNet::BindTcp);
    if needs.tcp != TcpAccess::Any {
        network |= AccessNet::ConnectTcp;
    }
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(network)?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    let mut read = AccessFs::ReadFile | AccessFs::ReadDir;
    if needs.execute {
        read |= AccessFs::Execute;
    }
    // Written directories never permit execution, device nodes, or links and renames between directories.
    let never = AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::Refer;
    let write = AccessFs::from_all(LANDLOCK) & !never;
    let own = [PathBuf::from("/proc/self")];
    let null = AccessFs::ReadFile | AccessFs::WriteFile;
    let rules = needs.read.iter().chain(&own).map(|path| (path.as_path(), read));
    let rules = rules.chain(needs.write.iter().map(|path| (path.as_path(), write)));
    for (path, access) in rules.chain([(Path::new("/dev/null"), null)]) {
        // A missing path needs no rule.
        if let Ok(folder) = PathFd::new(path) {
            ruleset = ruleset.add_rule(PathBeneath::new(folder, access))?;
        }
    }
    if let TcpAccess::Ports(ports) = &needs.tcp {
        for &port in ports {
            ruleset = ruleset.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
        }
    }
    let status = ruleset.restrict_self()?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => "no landlock (the kernel has none)".to_owned(),
        (_, LandlockStatus::Available { effective_abi, .. }) => {
            format!("landlock {}", (effective_abi as i32).min(LANDLOCK as i32))
        }
        _ => "landlock".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::process::Command;

    #[test]
    fn ports_that_are_named_are_the_only_ones() {
        // In a child process, because restrictions are permanent.
        let mut command = Command::new("/proc/self/exe");
        let done = command.args(["--exact", "tests::inside", "--ignored", "--nocapture"]).output();
        let done = done.unwrap();
        let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    #[ignore = "run by ports_that_are_named_are_the_only_ones"]
    fn inside() {
        let listener = || TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (named, other) = (listener(), listener());
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        let needs = SandboxSpec {
            families: &[libc::AF_INET],
            tcp: TcpAccess::Ports(vec![address(&named).port()]),
            ..SandboxSpec::default()
        };
        let said = apply(&needs);
        if said.contains("no landlock") {
            eprintln!("skipped: {said}");
            return;
        }
        assert!(TcpStream::connect(address(&named)).is_ok());
        assert!(TcpStream::connect(address(&other)).is_err(), "{said}");
        assert!(TcpListener::bind(("127.0.0.1", 0)).is_err(), "{said}");
    }
}
