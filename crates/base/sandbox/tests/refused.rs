// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the kernel refuses the calls in docs/internals/sandbox.md, and allows calls of ordinary programs.

use roster_sandbox::{NetlinkProtocol, SandboxSpec, TcpAccess, apply};
use std::process::Command;

/// Runs an ignored test in a child process, because restrictions are permanent.
fn in_a_process(test: &str) -> String {
    let mut command = Command::new("/proc/self/exe");
    let done = command.args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
    text.into_owned()
}

#[test]
fn confined_program_refused_namespaces_raw_sockets_netfilter() {
    let said = in_a_process("inside");
    let tried = |text: &str| {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        lines.map(|(name, end)| (name.to_owned(), end.to_owned())).collect::<Vec<_>>()
    };
    let (refused, allowed) = said.split_once("allowed:\n").unwrap();
    let (refused, allowed) = (tried(refused), tried(allowed));
    assert!(refused.len() >= 18 && allowed.len() == 8, "{said}");
    for (name, end) in refused {
        let error = if name == "clone3" { "ENOSYS" } else { "EPERM" };
        assert_eq!(end, error, "{name}");
    }
    for (name, end) in allowed {
        assert_eq!(end, "ok", "{name}");
    }
}

#[test]
#[ignore = "run by confined_program_refused_namespaces_raw_sockets_netfilter"]
fn inside() {
    let said = apply(&SandboxSpec {
        read: vec!["/".into()],
        execute: true,
        families: &[libc::AF_INET, libc::AF_INET6],
        netlink: Some(NetlinkProtocol::Route),
        tcp: TcpAccess::Any,
        ..SandboxSpec::default()
    });
    assert!(said.contains("seccomp") && !said.contains("no seccomp"), "{said}");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/refused.py");
    println!();
    assert!(Command::new("python3").arg(script).status().unwrap().success());
}
