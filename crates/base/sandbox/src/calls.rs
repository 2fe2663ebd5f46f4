// SPDX-License-Identifier: MIT OR Apache-2.0
//! The seccomp filter: system calls and sockets that a process gives up. Refused calls fail with EPERM, so a library
//! that tries one continues without it. Rules for files and ports are in the parent module; `roster-role` selects both.

use crate::{NetlinkProtocol, SandboxSpec};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::error::Error;

/// Refused calls, with the arguments for which they are refused. A call without rules is refused for all.
type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;
type BoxedResult<T> = Result<T, Box<dyn Error>>;

/// SOCK_PACKET of <linux/net.h>: an obsolete name for raw packets.
const SOCK_PACKET: i32 = 10;

/// Applies the filter to this process and its children.
///
/// # Errors
///
/// The kernel lacks seccomp, or the architecture is not supported.
pub fn apply(needs: &SandboxSpec) -> BoxedResult<()> {
    // The flags of clone3(2) are in memory, which a filter cannot read. After ENOSYS, the C library calls clone(2).
    install([(libc::SYS_clone3, Vec::new())].into(), libc::ENOSYS)?;
    install(rules(needs)?, libc::EPERM)
}

fn install(rules: SyscallRules, error: i32) -> BoxedResult<()> {
    #[cfg(target_arch = "x86_64")]
    let rules = with_x32(rules);
    let refuse = SeccompAction::Errno(error.cast_unsigned());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

fn rules(needs: &SandboxSpec) -> BoxedResult<SyscallRules> {
    let mut rules: SyscallRules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.extend(REFUSED_X86_64.map(|call| (call, Vec::new())));
    if !needs.execute {
        rules.insert(libc::SYS_execve, Vec::new());
        rules.insert(libc::SYS_execveat, Vec::new());
    }
    let clone = NAMESPACES.map(|flag| rule(&[bit(0, flag)?]));
    rules.insert(libc::SYS_clone, clone.into_iter().collect::<BoxedResult<_>>()?);
    rules.insert(libc::SYS_socket, sockets(needs)?);
    rules.insert(libc::SYS_socketpair, vec![rule(&[differs(0, libc::AF_UNIX)?])?]);
    Ok(rules)
}

/// Returns rules for refused sockets: other families, raw sockets, and unused protocols.
fn sockets(needs: &SandboxSpec) -> BoxedResult<Vec<SeccompRule>> {
    let netlink = needs.netlink.map(|_| libc::AF_NETLINK);
    let families = [libc::AF_UNIX].into_iter().chain(needs.families.iter().copied());
    let other = families.chain(netlink).map(|family| differs(0, family));
    let mut refused = vec![rule(&other.collect::<BoxedResult<Vec<_>>>()?)?];
    for kind in [libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_DCCP, SOCK_PACKET] {
        // A netlink socket may be of type SOCK_RAW, which has no effect there.
        refused.push(rule(&[differs(0, libc::AF_NETLINK)?, is_socket_type(kind)?])?);
    }
    if let Some(netlink) = needs.netlink {
        let protocol = differs(2, netlink.protocol())?;
        refused.push(rule(&[equals(0, libc::AF_NETLINK)?, protocol])?);
    }
    for &family in needs.families {
        let of = equals(0, family)?;
        refused.push(rule(&[of.clone(), is_socket_type(libc::SOCK_SEQPACKET)?])?);
        for (kind, protocol) in
            [(libc::SOCK_STREAM, libc::IPPROTO_TCP), (libc::SOCK_DGRAM, libc::IPPROTO_UDP)]
        {
            let other = [differs(2, libc::IPPROTO_IP)?, differs(2, protocol)?];
            refused.push(rule(&[&[of.clone(), is_socket_type(kind)?][..], &other].concat())?);
        }
    }
    Ok(refused)
}

impl NetlinkProtocol {
    fn protocol(self) -> i32 {
        match self {
            Self::Route => libc::NETLINK_ROUTE,
            // <linux/netlink.h>
            Self::Selinux => 7,
        }
    }
}

fn rule(conditions: &[SeccompCondition]) -> BoxedResult<SeccompRule> {
    Ok(SeccompRule::new(conditions.to_vec())?)
}

fn equals(argument: u8, value: i32) -> BoxedResult<SeccompCondition> {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn differs(argument: u8, value: i32) -> BoxedResult<SeccompCondition> {
    condition(argument, SeccompCmpOp::Ne, value)
}

fn bit(argument: u8, bit: i32) -> BoxedResult<SeccompCondition> {
    let mask = u64::from(bit.cast_unsigned());
    condition(argument, SeccompCmpOp::MaskedEq(mask), bit)
}

/// Compares the type of a socket, without the flags in the same argument.
fn is_socket_type(kind: i32) -> BoxedResult<SeccompCondition> {
    /// SOCK_TYPE_MASK of the kernel.
    const MASK: u64 = 0xf;
    condition(1, SeccompCmpOp::MaskedEq(MASK), kind)
}

fn condition(argument: u8, operator: SeccompCmpOp, value: i32) -> BoxedResult<SeccompCondition> {
    let value = u64::from(value.cast_unsigned());
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?)
}

/// Returns the rules, and equal rules for the x32 interface, which a filter cannot distinguish from x86-64.
#[cfg(target_arch = "x86_64")]
fn with_x32(mut rules: SyscallRules) -> SyscallRules {
    /// Marks the numbers of x32.
    const BIT: i64 = 0x4000_0000;
    /// Calls with separate numbers in x32. Some kernels accept these without the mark, too.
    const OWN: [(i64, i64); 7] = [
        (libc::SYS_execve, 520),
        (libc::SYS_ptrace, 521),
        (libc::SYS_kexec_load, 528),
        (libc::SYS_vmsplice, 532),
        (libc::SYS_process_vm_readv, 539),
        (libc::SYS_process_vm_writev, 540),
        (libc::SYS_execveat, 545),
    ];
    for (call, own) in OWN {
        if let Some(refused) = rules.get(&call).cloned() {
            rules.insert(own, refused);
        }
    }
    let same: Vec<_> = rules.iter().map(|(call, rules)| (call | BIT, rules.clone())).collect();
    rules.extend(same);
    rules
}

/// Flags of clone(2) that make a namespace.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Refused calls. They concern memory of other processes, users and privileges, mounts and namespaces, the kernel, its
/// clock and its keys. Others are unused interfaces with a history of vulnerabilities.
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
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_vmsplice,
    libc::SYS_quotactl_fd,
];

/// An older call for devices, and obsolete calls for processor settings.
#[cfg(target_arch = "x86_64")]
const REFUSED_X86_64: [i64; 4] =
    [libc::SYS_mknod, libc::SYS_modify_ldt, libc::SYS_iopl, libc::SYS_ioperm];
