// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rights that `roster-krb5 serve` retains while it serves.

use roster_sandbox::{NetlinkProtocol, SandboxSpec, TcpAccess};

/// Directories for host name resolution, and of libraries that are loaded late.
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
/// The port of name servers over TCP.
const DNS: u16 = 53;

/// Confines this process and its children. TCP is allowed to these ports and DNS, or to any port if the list is empty.
/// Returns the parts in force as text.
pub fn apply(ports: &[u16]) -> String {
    roster_sandbox::apply(&needs(ports))
}

fn needs(ports: &[u16]) -> SandboxSpec {
    let tcp = match ports {
        [] => TcpAccess::Any,
        _ => TcpAccess::Ports(ports.iter().copied().chain([DNS]).collect()),
    };
    SandboxSpec {
        read: READ.map(Into::into).into(),
        families: &[libc::AF_INET, libc::AF_INET6],
        netlink: Some(NetlinkProtocol::Route),
        tcp,
        ..SandboxSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn krb5_sandbox_equals_documented_row() {
        let page = include_str!("../../../../docs/internals/sandbox.md");
        let documented = roster_sandbox::read_doc_columns(page, "roster-krb5");
        assert_eq!(documented, Some(needs(&[88, 464]).doc_columns()));
        assert_eq!(needs(&[]).tcp, TcpAccess::Any, "as with krb5_discover");
    }
}
