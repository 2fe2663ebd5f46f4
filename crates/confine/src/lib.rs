//! What a process gives up before it serves: files that are not its business, ports, system calls that none
//! of this code makes, and kinds of sockets. Knows nothing of roles and of programs: they say what they need.
//!
//! All of it is best effort: a kernel without landlock or seccomp runs the process all the same, under its own
//! user. What is in force is told. The folder `/proc/self` stays readable, for the C library's resolver of host
//! names loads its services late.
//!
//! docs/sandbox.md lists all of it for each role. A system test compares the page with the filters of live roles.
#![forbid(unsafe_code)]

mod calls;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Newest set of landlock's rules that this code was written for; older kernels take what they know.
const LANDLOCK: ABI = ABI::V6;

/// What a process may do beyond what every process here may.
#[derive(Debug, Default)]
pub struct Needs {
    /// Folders and files to read.
    pub read: Vec<PathBuf>,
    /// Folders to write in.
    pub write: Vec<PathBuf>,
    /// Whether it may execute.
    pub execute: bool,
    /// Families of sockets beyond AF_UNIX and AF_NETLINK.
    pub families: &'static [i32],
    /// The one protocol of AF_NETLINK.
    pub netlink: Option<Netlink>,
    /// Where it may connect to over TCP.
    pub tcp: Tcp,
}

impl Needs {
    /// The columns of docs/sandbox.md after the role: executes, sockets, TCP, reads, writes.
    #[must_use]
    pub fn documented(&self) -> [String; 5] {
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
            Netlink::Route => "`AF_NETLINK` with `NETLINK_ROUTE`".to_owned(),
            Netlink::Selinux => "`AF_NETLINK` with `NETLINK_SELINUX`".to_owned(),
        });
        let sockets = ["`AF_UNIX`".to_owned()].into_iter().chain(families).chain(netlink);
        let tcp = match &self.tcp {
            Tcp::None => "none".to_owned(),
            Tcp::Any => "any".to_owned(),
            Tcp::Ports(ports) => ports.iter().map(u16::to_string).collect::<Vec<_>>().join(" "),
        };
        let executes = if self.execute { "yes" } else { "no" };
        let sockets = sockets.collect::<Vec<_>>().join(", ");
        [executes.to_owned(), sockets, tcp, paths(&self.read), paths(&self.write)]
    }
}

/// The columns of a role in the text of docs/sandbox.md.
#[must_use]
pub fn documented(page: &str, role: &str) -> Option<[String; 5]> {
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
pub enum Netlink {
    /// Addresses and routes: the C library's resolver asks for the host's addresses.
    Route,
    /// Changes of the SELinux policy, which dbus-daemon follows.
    Selinux,
}

/// Ports of other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tcp {
    /// None.
    #[default]
    None,
    /// These.
    Ports(Vec<u16>),
    /// All.
    Any,
}

/// Applies everything to this process, which must not have threads yet, and to those that it makes. Gives what
/// is in force, in words.
#[must_use]
pub fn apply(needs: &Needs) -> String {
    let files = files_and_ports(needs).unwrap_or_else(|error| format!("no landlock ({error})"));
    let calls = match calls::apply(needs) {
        Ok(()) => "seccomp".to_owned(),
        Err(error) => format!("no seccomp ({error})"),
    };
    format!("{files}, {calls}")
}

/// Landlock: files, TCP, signals to others and abstract sockets.
fn files_and_ports(needs: &Needs) -> Result<String, Box<dyn Error>> {
    let mut network = BitFlags::from(AccessNet::BindTcp);
    if needs.tcp != Tcp::Any {
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
    // Neither programs nor devices are made, and nothing leads from folder to folder.
    let never = AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::Refer;
    let write = AccessFs::from_all(LANDLOCK) & !never;
    let own = [PathBuf::from("/proc/self")];
    let null = AccessFs::ReadFile | AccessFs::WriteFile;
    let rules = needs.read.iter().chain(&own).map(|path| (path.as_path(), read));
    let rules = rules.chain(needs.write.iter().map(|path| (path.as_path(), write)));
    for (path, access) in rules.chain([(Path::new("/dev/null"), null)]) {
        // What is not there cannot be had.
        if let Ok(folder) = PathFd::new(path) {
            ruleset = ruleset.add_rule(PathBeneath::new(folder, access))?;
        }
    }
    if let Tcp::Ports(ports) = &needs.tcp {
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
        // In a process of its own, for what is given up is gone.
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
        let needs = Needs {
            families: &[libc::AF_INET],
            tcp: Tcp::Ports(vec![address(&named).port()]),
            ..Needs::default()
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
