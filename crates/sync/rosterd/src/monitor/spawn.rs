// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts and ends processes of roles. `process_plan` decides which processes are needed, and `supervision` when they
//! start again.

use crate::roles::RoleConfig;
use roster_messages::{CodedError, table::daemon};
use roster_role::UserIds;
use roster_role::error_code::WithCode;
use roster_role::launch::{EXIT_MESSAGE_BYTES_MAX, LAUNCH_BYTES_MAX, Launch};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;
use tracing::{debug, info};

/// Makes the C library return large blocks to the system as soon as they are free (mallopt(3)). A role holds a whole
/// domain for a moment, and is small otherwise.
const MALLOC: &str = "glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=131072:\
                      glibc.malloc.arena_max=1";

/// Longest line from another program. The rest of a longer line becomes another line.
const LINE_BYTES_MAX: u64 = 1 << 10;

/// Messages of dbus-daemon in normal operation. As root it requests more descriptors than its policy allows, and
/// continues without them. The monitor itself causes the reload of the policy.
const HARMLESS_MESSAGES: [&str; 2] = ["Failed to set fd limit", "Reloaded configuration"];

/// The exit message of a role: a memfd that is its standard output.
pub struct ExitMessage(File);

impl ExitMessage {
    fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("roster-words", flags)?);
        file.set_len(EXIT_MESSAGE_BYTES_MAX as u64)?;
        // A hijacked role could otherwise fill the memory.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(file.as_fd(), seals)?;
        Ok(Self(file))
    }

    /// Returns one printable line; empty without a message.
    pub fn read(&self) -> String {
        let mut bytes = [0; EXIT_MESSAGE_BYTES_MAX];
        let length = self.0.read_at(&mut bytes, 0).unwrap_or_default();
        let said = bytes[..length].split(|&byte| byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(said);
        text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
    }
}

/// Starts the process of a role. `user` is `None` if it runs as the monitor's user. Standard error of `relayed` is a
/// pipe. Returns the file of the exit message, if the role has one.
pub fn spawn_role(
    role: &str,
    launch: &Launch<RoleConfig>,
    user: Option<UserIds>,
    listener: Option<BorrowedFd<'_>>,
    relayed: bool,
) -> Result<(Child, Option<ExitMessage>), CodedError> {
    let input = sealed_launch(launch)
        .with_code(&daemon::ROLE_START_FAILED, || "cannot pass the configuration")?;
    // The executable of this process, even if a newer file has replaced it since.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("rosterd").args(["role", role]);
    command.current_dir("/").process_group(0).env("GLIBC_TUNABLES", MALLOC);
    command.stdin(input);
    let failed = &daemon::ROLE_START_FAILED;
    let no_output = || "cannot prepare standard output";
    let words = match listener {
        Some(listener) => {
            command.stdout(listener.try_clone_to_owned().with_code(failed, no_output)?);
            None
        }
        None => {
            let words = ExitMessage::new().with_code(failed, no_output)?;
            command.stdout(words.0.try_clone().with_code(failed, no_output)?);
            Some(words)
        }
    };
    if relayed {
        command.stderr(Stdio::piped());
    }
    if let Some(user) = user {
        // The standard library also removes all supplementary groups.
        command.uid(user.uid).gid(user.gid);
    }
    let child = command.spawn().with_code(failed, || "cannot start a process")?;
    Ok((child, words))
}

fn sealed_launch(launch: &Launch<RoleConfig>) -> anyhow::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("roster-role", flags)?);
    // Without a buffer, which would retain a copy of a password.
    serde_json::to_writer(&mut file, launch)?;
    let length = file.stream_position()?;
    if length > LAUNCH_BYTES_MAX as u64 {
        let text = format!(
            "configuration of a role: {length} bytes; the limit is {LAUNCH_BYTES_MAX} bytes"
        );
        return Err(CodedError::new(&daemon::ROLE_CONFIG_TOO_LARGE, text).into());
    }
    file.rewind()?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(file.as_fd(), seals)?;
    Ok(file.into())
}

/// Logs the lines of a program with another log format. Repeated lines are logged once.
pub fn relay_stderr(role: String, said: ChildStderr) {
    tokio::spawn(async move {
        let Ok(said) = Receiver::from_owned_fd(said.into()) else { return };
        let mut said = BufReader::new(said);
        let (mut line, mut last) = (Vec::new(), String::new());
        while let Ok(1..) = (&mut said).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            if text == last || HARMLESS_MESSAGES.iter().any(|harmless| text.contains(harmless)) {
                debug!("{role}: {text}");
            } else if !text.is_empty() {
                info!("{role}: {text}");
                last = text;
            }
            line.clear();
        }
    });
}

/// Sends a signal to a child that was not reaped yet, so that its id still refers to it.
pub fn send_signal(child: &Child, signal: Signal) {
    let _ = rustix::process::kill_process(Pid::from_child(child), signal);
}

/// Describes the end of a process as text.
pub fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_responder::metrics::MetricsRoleConfig;
    use std::io::Write;

    #[test]
    fn a_role_leaves_one_short_line_whatever_it_writes() {
        let words = ExitMessage::new().unwrap();
        assert_eq!(words.read(), "");
        let mut output = words.0.try_clone().unwrap();
        output.write_all("no way:\n\u{1b}[2J for me".as_bytes()).unwrap();
        assert_eq!(words.read(), "no way:  [2J for me");
        assert!(output.write_all(&vec![b'x'; EXIT_MESSAGE_BYTES_MAX]).is_err());
        assert!(output.set_len(1 << 30).is_err());
        assert!(words.read().len() <= EXIT_MESSAGE_BYTES_MAX);
    }

    #[test]
    fn role_with_large_config_is_not_started() {
        let roles = vec!["x".repeat(LAUNCH_BYTES_MAX)];
        let launch = Launch {
            role: None,
            config: RoleConfig::Metrics(MetricsRoleConfig { roles }),
            log: roster_config::LogConfig { level: "info".into(), json: false },
            state_dir: "/".into(),
            run_dir: "/".into(),
            monitor_pid: 0,
            monitor_uid: 0,
        };
        let error = spawn_role("publisher", &launch, None, None, false).err().unwrap();
        assert_eq!(error.message, &daemon::ROLE_CONFIG_TOO_LARGE);
    }
}
