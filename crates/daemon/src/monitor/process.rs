//! Starts and ends processes of roles.

use super::users::Ids;
use crate::role::{LAUNCH_BYTES_MAX, Launch};
use anyhow::{Context as _, ensure};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::io::Seek;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Has the C library give large blocks back to the system as soon as they are free: a role handles a
/// whole domain for a moment, and is small for the rest of its life (mallopt(3)).
const MALLOC: &str = "glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=131072:\
                      glibc.malloc.arena_max=1";

/// Starts the process of a role. `user` is none where it runs as the monitor does.
pub fn start(
    role: &str,
    launch: &Launch,
    user: Option<Ids>,
    listener: Option<BorrowedFd<'_>>,
) -> anyhow::Result<Child> {
    let input = sealed(launch).context("cannot hand over the configuration")?;
    // The executable as it is now, though a newer one may have taken its place since.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("rosterd").args(["role", role]);
    command.current_dir("/").process_group(0).env("GLIBC_TUNABLES", MALLOC);
    command.stdin(input);
    command.stdout(match listener {
        Some(listener) => listener.try_clone_to_owned()?.into(),
        None => Stdio::null(),
    });
    if let Some(user) = user {
        // The standard library takes all supplementary groups away with it.
        command.uid(user.uid).gid(user.gid);
    }
    command.spawn().with_context(|| format!("cannot start a process for {role}"))
}

fn sealed(launch: &Launch) -> anyhow::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("roster-role", flags)?);
    // Without a buffer, in which a password would stay behind.
    serde_json::to_writer(&mut file, launch)?;
    let length = file.stream_position()?;
    ensure!(length <= LAUNCH_BYTES_MAX as u64, "it has more than {LAUNCH_BYTES_MAX} bytes");
    file.rewind()?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(file.as_fd(), seals)?;
    Ok(file.into())
}

/// Sends a signal to a child that was not waited for yet, so that its id is nobody else's.
pub fn send(child: &Child, signal: Signal) {
    let _ = rustix::process::kill_process(Pid::from_child(child), signal);
}

/// How a process ended, in words.
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}
