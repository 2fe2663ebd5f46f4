// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server's listening socket, and I/O on connections. `connections` has the state of each connection.

use super::unmapped_clients::PeerCredentials;
use roster_fd_passing::peer_credentials;
use roster_messages::Message;
use roster_messages::table::tools;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, connect, getsockname, listen, recv, send, sendmsg,
    socket_with,
};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Path at which glibc and musl look for nscd; /var/run/nscd is the same directory.
pub const SOCKET: &str = "/run/nscd/socket";
/// Maximum number of connections that wait for accept.
const BACKLOG: i32 = 4096;

/// Reasons that the server has no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another server listens there.
    #[error("{path}: served by {by}")]
    Owned {
        /// Path of the socket.
        path: PathBuf,
        /// Description of that server.
        by: String,
    },
    /// The socket from systemd is not at its path.
    #[error("{path}: no longer the socket from systemd")]
    Gone {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The socket cannot be created.
    #[error("{path}: cannot listen")]
    Io {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

impl SocketError {
    /// Returns the code of the error.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::Owned { .. } => &tools::NSCD_SOCKET_IN_USE,
            Self::Gone { .. } => &tools::NSCD_SOCKET_REPLACED,
            Self::Io { .. } => &tools::NSCD_SOCKET_FAILED,
        }
    }
}

/// Returns a description of the process that listens at a socket, or `None` if no process does.
fn owner(path: &Path) -> io::Result<Option<String>> {
    let client = match try_connect(path)? {
        ListenerState::Unreachable => return Ok(None),
        ListenerState::Busy => return Ok(Some("a process with a full accept queue".to_owned())),
        ListenerState::Listener(client) => client,
    };
    let PeerCredentials { pid, .. } = peer_credentials(&client)?;
    if pid == 0 {
        return Ok(Some("a process of another namespace".to_owned()));
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim();
    let name = if name.is_empty() { "a program" } else { name };
    Ok(Some(format!("{name}, process {pid}")))
}

/// Rejects a listener from systemd that clients cannot reach by its path. Another server may have taken the path, or
/// removed it on exit, as nscd does.
///
/// # Errors
///
/// The path leads elsewhere, or the check failed.
pub fn check_path(listener: impl AsFd) -> Result<(), SocketError> {
    let address = getsockname(&listener).and_then(SocketAddrUnix::try_from);
    let Some(path) = address
        .ok()
        .and_then(|address| Some(PathBuf::from(OsStr::from_bytes(address.path_bytes()?))))
    else {
        return Ok(());
    };
    let told = || -> io::Result<bool> {
        Ok(match try_connect(&path)? {
            ListenerState::Unreachable => false,
            ListenerState::Busy => true,
            // Both report the process that began to listen.
            ListenerState::Listener(client) => {
                peer_credentials(&client)?.pid == peer_credentials(&listener)?.pid
            }
        })
    };
    match told() {
        Ok(true) => Ok(()),
        Ok(false) => Err(SocketError::Gone { path }),
        Err(source) => Err(SocketError::Io { path, source }),
    }
}

enum ListenerState {
    Unreachable,
    /// The accept queue is full.
    Busy,
    Listener(OwnedFd),
}

fn try_connect(path: &Path) -> io::Result<ListenerState> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&client, &address).map_err(io::Error::from) {
        Ok(()) => Ok(ListenerState::Listener(client)),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock => Ok(ListenerState::Busy),
            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory => {
                Ok(ListenerState::Unreachable)
            }
            _ => Err(error),
        },
    }
}

/// Listens at the path with mode 0666, if no other process does.
///
/// # Errors
///
/// Another program listens there, or a system call failed.
pub fn listen_at(path: &Path) -> Result<OwnedFd, SocketError> {
    let cannot = |source| SocketError::Io { path: path.to_owned(), source };
    if let Some(by) = owner(path).map_err(cannot)? {
        return Err(SocketError::Owned { path: path.to_owned(), by });
    }
    let made = || -> io::Result<OwnedFd> {
        // The parent of a bare name is empty.
        let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        if let Some(folder) = path.parent().filter(is_missing) {
            fs::create_dir(folder)?;
            fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        }
        match fs::symlink_metadata(path) {
            Ok(left) if left.file_type().is_socket() => fs::remove_file(path)?,
            Ok(_) => return Err(io::Error::other("the path has a file that is not a socket")),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        fs::set_permissions(path, Permissions::from_mode(0o666))?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    made().map_err(cannot)
}

/// Accepts the next connection, with its peer. Returns `None` if the queue is empty.
pub fn accept(listener: impl AsFd) -> io::Result<Option<(OwnedFd, PeerCredentials)>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match accept_with(listener, flags) {
        Ok(socket) => {
            let by = peer_credentials(&socket)?;
            Ok(Some((socket, by)))
        }
        Err(error) if error == rustix::io::Errno::AGAIN => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Appends available bytes to `heard`, up to `most`. Returns whether the other end is still open.
pub fn receive(socket: impl AsFd, heard: &mut Vec<u8>, most: usize) -> io::Result<bool> {
    let mut room = [0; 2048];
    let room = &mut room[..most.min(2048)];
    loop {
        match recv(&socket, &mut *room, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Ok(false),
            Ok((_, bytes)) => {
                heard.extend_from_slice(&room[..bytes]);
                return Ok(true);
            }
            Err(rustix::io::Errno::AGAIN) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends as many bytes as the socket accepts.
pub fn transmit(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(sent) => Ok(sent),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Sends the descriptor of a map, with the key of the request and the length to map.
pub fn send_map(socket: impl AsFd, key: &[u8], bytes: u64, map: BorrowedFd<'_>) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    let maps = [map];
    ancillary.push(SendAncillaryMessage::ScmRights(&maps));
    let length = bytes.to_ne_bytes();
    let parts = [IoSlice::new(key), IoSlice::new(&length)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &parts, &mut ancillary, flags)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_at_other_file_has_code() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        fs::write(&path, "text").unwrap();
        let error = listen_at(&path).unwrap_err();
        assert_eq!(error.message(), &tools::NSCD_SOCKET_FAILED, "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    }
}
