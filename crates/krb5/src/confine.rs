//! What `roster-krb5 serve` needs when it serves; everything else it gives up.

use roster_confine::{Needs, Netlink, Tcp};

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
    roster_confine::apply(&needs(ports))
}

fn needs(ports: &[u16]) -> Needs {
    let tcp = match ports {
        [] => Tcp::Any,
        _ => Tcp::Ports(ports.iter().copied().chain([DNS]).collect()),
    };
    Needs {
        read: READ.map(Into::into).into(),
        families: &[libc::AF_INET, libc::AF_INET6],
        netlink: Some(Netlink::Route),
        tcp,
        ..Needs::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn krb5_sandbox_equals_documented_row() {
        let page = include_str!("../../../docs/sandbox.md");
        let documented = roster_confine::documented(page, "roster-krb5");
        assert_eq!(documented, Some(needs(&[88, 464]).documented()));
        assert_eq!(needs(&[]).tcp, Tcp::Any, "as with krb5_discover");
    }
}
