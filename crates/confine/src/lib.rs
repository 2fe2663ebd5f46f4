//! What a process gives up before it serves: files that are not its business, ports, system calls that none
//! of this code makes, and kinds of sockets. Knows nothing of roles and of programs: they say what they need.
//!
//! All of it is best effort: a kernel without landlock or seccomp runs the process all the same, under its own
//! user. What is in force is told. The folder `/proc/self` stays readable, for the C library's resolver of host
//! names loads its services late.
#![forbid(unsafe_code)]

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
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
    /// Families of sockets beyond AF_UNIX.
    pub families: &'static [i32],
    /// Where it may connect to over TCP.
    pub tcp: Tcp,
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
    let calls = match calls(needs) {
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

/// Seccomp: system calls that are refused to everybody here, and families of sockets that this process does
/// not need. They fail with EPERM: a library that tries its luck goes on without.
fn calls(needs: &Needs) -> Result<(), Box<dyn Error>> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in REFUSED {
        rules.insert(*call, Vec::new());
    }
    if !needs.execute {
        rules.insert(libc::SYS_execve, Vec::new());
        rules.insert(libc::SYS_execveat, Vec::new());
    }
    let mut other = Vec::new();
    for family in [libc::AF_UNIX].iter().chain(needs.families) {
        let family = u64::from(family.cast_unsigned());
        other.push(SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)?);
    }
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(other)?]);
    #[cfg(target_arch = "x86_64")]
    also_by_x32(&mut rules);
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

/// The same calls by the numbers of the x32 interface, which pass for x86-64 in a filter.
#[cfg(target_arch = "x86_64")]
fn also_by_x32(rules: &mut BTreeMap<i64, Vec<SeccompRule>>) {
    /// Marks the numbers.
    const BIT: i64 = 0x4000_0000;
    /// Calls that have numbers of their own there.
    const OWN: [(i64, i64); 6] = [
        (libc::SYS_execve, 520),
        (libc::SYS_ptrace, 521),
        (libc::SYS_kexec_load, 528),
        (libc::SYS_process_vm_readv, 539),
        (libc::SYS_process_vm_writev, 540),
        (libc::SYS_execveat, 545),
    ];
    let same: Vec<_> = rules.iter().map(|(call, rules)| (call | BIT, rules.clone())).collect();
    rules.extend(same);
    for (call, own) in OWN {
        if let Some(refused) = rules.get(&call).cloned() {
            rules.insert(own | BIT, refused);
        }
    }
}

/// Other processes' memory, users and privileges, mounts and namespaces, the kernel itself, its
/// clock and keys, and interfaces with a record of holes that nothing here uses.
const REFUSED: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_personality,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_mknodat,
];

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
