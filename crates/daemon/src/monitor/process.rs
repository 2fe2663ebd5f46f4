//! Starts and ends processes of roles.

use super::users::Ids;
use crate::role::{LAUNCH_BYTES_MAX, Launch, WORDS_BYTES_MAX};
use anyhow::{Context as _, ensure};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::io::Seek;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;
use tracing::{debug, info};

/// Has the C library give large blocks back to the system as soon as they are free: a role handles a
/// whole domain for a moment, and is small for the rest of its life (mallopt(3)).
const MALLOC: &str = "glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=131072:\
                      glibc.malloc.arena_max=1";

/// Longest line of what a process says that is not one of ours; the rest of it is another line.
const LINE_BYTES_MAX: u64 = 1 << 10;

/// What dbus-daemon says in the ordinary run of things: as root it asks for more descriptors than its
/// policy lets it use, and gets by without; and it is told of a new policy by us.
const HARMLESS: [&str; 2] = ["Failed to set fd limit", "Reloaded configuration"];

/// Why a role ended, in its own words: a file without a name that is its standard output.
pub struct Words(File);

impl Words {
    fn new() -> anyhow::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("roster-words", flags)?);
        file.set_len(WORDS_BYTES_MAX as u64)?;
        // A role that was taken over could otherwise fill the memory with them.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(file.as_fd(), seals)?;
        Ok(Self(file))
    }

    /// One line that can be printed; empty when the role said nothing.
    pub fn read(&self) -> String {
        let mut bytes = [0; WORDS_BYTES_MAX];
        let length = self.0.read_at(&mut bytes, 0).unwrap_or_default();
        let said = bytes[..length].split(|&byte| byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(said);
        text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
    }
}

/// Starts the process of a role. `user` is none where it runs as the monitor does. Standard error of
/// `relayed` is a pipe. Gives where the role leaves word, if it can.
pub fn start(
    role: &str,
    launch: &Launch,
    user: Option<Ids>,
    listener: Option<BorrowedFd<'_>>,
    relayed: bool,
) -> anyhow::Result<(Child, Option<Words>)> {
    let input = sealed(launch).context("cannot hand over the configuration")?;
    // The executable as it is now, though a newer one may have taken its place since.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("rosterd").args(["role", role]);
    command.current_dir("/").process_group(0).env("GLIBC_TUNABLES", MALLOC);
    command.stdin(input);
    let words = match listener {
        Some(listener) => {
            command.stdout(listener.try_clone_to_owned()?);
            None
        }
        None => {
            let words = Words::new().context("cannot make room for its last words")?;
            command.stdout(words.0.try_clone()?);
            Some(words)
        }
    };
    if relayed {
        command.stderr(Stdio::piped());
    }
    if let Some(user) = user {
        // The standard library takes all supplementary groups away with it.
        command.uid(user.uid).gid(user.gid);
    }
    let child = command.spawn().with_context(|| format!("cannot start a process for {role}"))?;
    Ok((child, words))
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

/// Logs what a program says that knows nothing of our log; what it says again and again, once.
pub fn relay(role: String, said: ChildStderr) {
    tokio::spawn(async move {
        let Ok(said) = Receiver::from_owned_fd(said.into()) else { return };
        let mut said = BufReader::new(said);
        let (mut line, mut last) = (Vec::new(), String::new());
        while let Ok(1..) = (&mut said).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            if text == last || HARMLESS.iter().any(|harmless| text.contains(harmless)) {
                debug!("{role}: {text}");
            } else if !text.is_empty() {
                info!("{role}: {text}");
                last = text;
            }
            line.clear();
        }
    });
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_role_leaves_one_short_line_whatever_it_writes() {
        let words = Words::new().unwrap();
        assert_eq!(words.read(), "");
        let mut output = words.0.try_clone().unwrap();
        output.write_all("no way:\n\u{1b}[2J for me".as_bytes()).unwrap();
        assert_eq!(words.read(), "no way:  [2J for me");
        assert!(output.write_all(&vec![b'x'; WORDS_BYTES_MAX]).is_err());
        assert!(output.set_len(1 << 30).is_err());
        assert!(words.read().len() <= WORDS_BYTES_MAX);
    }
}
