//! What `roster-krb5 serve` needs when it serves; everything else it gives up.

use roster_confine::{Needs, Tcp};

/// What resolving a host name reads, and libraries that are loaded late.
const READ: [&str; 8] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/run/systemd",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/nscd",
];
/// Where name servers answer over TCP.
const DNS: u16 = 53;

/// Confines this process, and those that it makes. TCP is for these ports, and DNS; for any when none is
/// named. Gives what is in force, in words.
pub fn apply(ports: &[u16]) -> String {
    let tcp = match ports {
        [] => Tcp::Any,
        _ => Tcp::Ports(ports.iter().copied().chain([DNS]).collect()),
    };
    roster_confine::apply(&Needs {
        read: READ.map(Into::into).into(),
        families: &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        tcp,
        ..Needs::default()
    })
}
