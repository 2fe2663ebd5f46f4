// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rights that a role's process drops first. It drops privileges that it could gain, files of other roles, and
//! unused system calls. `RoleProgram::sandbox` names the files and the network that a role keeps. `roster-sandbox` has
//! the calls of the kernel.
//!
//! All of it is best effort: a kernel without landlock or seccomp still runs the role, under its own user. The status
//! of the role lists the parts in force. `/proc/self` and the directories of libraries stay readable: the C library's
//! resolver of host names loads its services late.

use roster_sandbox::{SandboxSpec, TcpAccess};
use rustix::process::{Resource, Rlimit};

/// Limits of a process, see setrlimit(2).
#[derive(Clone, Copy, Debug)]
pub struct ResourceLimits {
    /// Open descriptors.
    pub descriptors: u64,
    /// Private memory, in bytes. `None` sets no limit.
    pub memory: Option<u64>,
}

impl ResourceLimits {
    /// A role without clients: databases, the bus, connections to a directory.
    pub const INTERNAL: Self = Self { descriptors: 1024, memory: None };
    /// A role that serves a socket. The limit allows more than a thousand silent clients. Its caches have a bound far
    /// below this memory.
    pub const SERVING: Self = Self { descriptors: 8192, memory: Some(512 << 20) };
}

/// Applies the sandbox and the limits to this process, which must have one thread. Returns the parts in force as text.
pub fn apply(spec: &SandboxSpec, limits: &ResourceLimits) -> String {
    let mut said = vec!["no new privileges".to_owned(), "not dumpable".to_owned()];
    set_limit(Resource::Core, 0);
    set_limit(Resource::Nofile, limits.descriptors);
    if let Some(bytes) = limits.memory {
        set_limit(Resource::Data, bytes);
    }
    said.push(roster_sandbox::apply(spec));
    said.push(if spec.tcp == TcpAccess::None { "no network" } else { "network" }.to_owned());
    said.join(", ")
}

/// Lowers a limit; never raises the hard one.
fn set_limit(resource: Resource, value: u64) {
    let hard = rustix::process::getrlimit(resource).maximum;
    let value = Some(hard.map_or(value, |hard| hard.min(value)));
    let _ = rustix::process::setrlimit(resource, Rlimit { current: value, maximum: value });
}
