//! What `roster-krb5 serve` gives up before it serves: files, programs, other processes, ports. All of
//! it is best effort, as with the roles of rosterd: a kernel without landlock or seccomp runs it all
//! the same, as the back-end's user. What is in force is told.

use landlock::{
    ABI, Access, AccessFs, AccessNet, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Newest set of landlock's rules that this code was written for; older kernels take what they know.
const LANDLOCK: ABI = ABI::V6;
/// What resolving a host name reads, and libraries that are loaded late.
const READ: [&str; 9] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/run/systemd",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/nscd",
    "/proc/self",
];
/// Where name servers answer over TCP.
const DNS: u16 = 53;

/// Confines this process, and those that it makes. TCP is for these ports, and DNS; for any when none is
/// named. Gives what is in force, in words.
pub fn apply(ports: &[u16]) -> String {
    let files = match files_and_ports(ports) {
        Ok(true) => "landlock".to_owned(),
        Ok(false) => "no landlock (the kernel has none)".to_owned(),
        Err(error) => format!("no landlock ({error})"),
    };
    let calls = match calls() {
        Ok(()) => "seccomp".to_owned(),
        Err(error) => format!("no seccomp ({error})"),
    };
    format!("{files}, {calls}")
}

fn files_and_ports(ports: &[u16]) -> Result<bool, landlock::RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(AccessNet::BindTcp)?;
    if !ports.is_empty() {
        rules = rules.handle_access(AccessNet::ConnectTcp)?;
    }
    let mut rules = rules.scope(Scope::from_all(LANDLOCK))?.create()?;
    for path in READ {
        // What is not there cannot be had.
        if let Ok(folder) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(folder, read))?;
        }
    }
    if !ports.is_empty() {
        for port in ports.iter().copied().chain([DNS]) {
            rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
        }
    }
    Ok(rules.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// System calls that are refused, and families of sockets beyond those of servers and name services.
fn calls() -> Result<(), Box<dyn std::error::Error>> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in REFUSED {
        rules.insert(*call, Vec::new());
    }
    let mut other = Vec::new();
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
        let family = u64::from(family.cast_unsigned());
        other.push(SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)?);
    }
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(other)?]);
    #[cfg(target_arch = "x86_64")]
    {
        // The same calls by the numbers of the x32 interface, which pass for x86-64 in a filter.
        const BIT: i64 = 0x4000_0000;
        // Calls that have numbers of their own there.
        const OWN: [i64; 6] = [520, 521, 528, 539, 540, 545];
        let same: Vec<_> = rules.iter().map(|(call, rules)| (call | BIT, rules.clone())).collect();
        rules.extend(same);
        rules.extend(OWN.map(|call| (call | BIT, Vec::new())));
    }
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

/// Programs, other processes' memory, users, mounts and namespaces, the kernel, its clock and its keys.
const REFUSED: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
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
