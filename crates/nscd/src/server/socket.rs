//! Where clients connect.

use super::programs::Peer;
use roster_descriptors::peer;
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

/// Where glibc and musl look for nscd. The folder is the same as /var/run/nscd.
pub const SOCKET: &str = "/run/nscd/socket";
/// Connections that may wait for being accepted.
const BACKLOG: i32 = 4096;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody else serves it.
    #[error("{path} is served by {by}: stop that first, for only one can answer there")]
    Owned {
        /// The socket.
        path: PathBuf,
        /// Who.
        by: String,
    },
    /// It was handed over and is not there any more.
    #[error(
        "{path} is not the socket that was handed over: another server took or removed it. \
             Stop that for good, then systemctl restart roster-nscd.socket"
    )]
    Gone {
        /// The socket.
        path: PathBuf,
    },
    /// It cannot be made.
    #[error("cannot listen at {path}")]
    Cannot {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Who listens at a socket, in words; nobody where no one can be connected to.
///
/// # Errors
///
/// It cannot be told.
pub fn owner(path: &Path) -> io::Result<Option<String>> {
    let client = match reach(path)? {
        Reached::Nobody => return Ok(None),
        Reached::Busy => return Ok(Some("somebody".to_owned())),
        Reached::Listener(client) => client,
    };
    let Peer { pid, .. } = peer(&client)?;
    if pid == 0 {
        return Ok(Some("a process of another namespace".to_owned()));
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim();
    let name = if name.is_empty() { "a program" } else { name };
    Ok(Some(format!("{name}, process {pid}")))
}

/// Refuses a listener that was handed over and that nobody reaches by its path: another server took the path, or
/// removed it when it ended, as nscd does.
///
/// # Errors
///
/// It is so, or cannot be told.
pub fn check_path(listener: impl AsFd) -> Result<(), SocketError> {
    let address = getsockname(&listener).and_then(SocketAddrUnix::try_from);
    let Some(path) = address
        .ok()
        .and_then(|address| Some(PathBuf::from(OsStr::from_bytes(address.path_bytes()?))))
    else {
        return Ok(());
    };
    let told = || -> io::Result<bool> {
        Ok(match reach(&path)? {
            Reached::Nobody => false,
            Reached::Busy => true,
            // Both say who began to listen.
            Reached::Listener(client) => peer(&client)?.pid == peer(&listener)?.pid,
        })
    };
    match told() {
        Ok(true) => Ok(()),
        Ok(false) => Err(SocketError::Gone { path }),
        Err(source) => Err(SocketError::Cannot { path, source }),
    }
}

enum Reached {
    Nobody,
    /// The queue is full.
    Busy,
    Listener(OwnedFd),
}

fn reach(path: &Path) -> io::Result<Reached> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&client, &address).map_err(io::Error::from) {
        Ok(()) => Ok(Reached::Listener(client)),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock => Ok(Reached::Busy),
            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory => {
                Ok(Reached::Nobody)
            }
            _ => Err(error),
        },
    }
}

/// Listens at that path, where everybody may connect and nobody else listens.
///
/// # Errors
///
/// Another program does, or the system does not allow it.
pub fn listen_at(path: &Path) -> Result<OwnedFd, SocketError> {
    let cannot = |source| SocketError::Cannot { path: path.to_owned(), source };
    if let Some(by) = owner(path).map_err(cannot)? {
        return Err(SocketError::Owned { path: path.to_owned(), by });
    }
    let made = || -> io::Result<OwnedFd> {
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            fs::create_dir(folder)?;
            fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        }
        match fs::symlink_metadata(path) {
            Ok(left) if left.file_type().is_socket() => fs::remove_file(path)?,
            Ok(_) => return Err(io::Error::other("what is there is no socket")),
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

/// The next connection, and who connected; nothing where nobody waits.
pub fn accept(listener: impl AsFd) -> io::Result<Option<(OwnedFd, Peer)>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match accept_with(listener, flags) {
        Ok(socket) => {
            let by = peer(&socket)?;
            Ok(Some((socket, by)))
        }
        Err(error) if error == rustix::io::Errno::AGAIN => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads what is there into the end of `heard`. Gives whether the other end is still open.
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

/// Sends as much as there is room for.
pub fn transmit(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(sent) => Ok(sent),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Hands the descriptor of a map over: the key of the question, the length to map, the descriptor.
pub fn hand_over(socket: impl AsFd, key: &[u8], bytes: u64, map: BorrowedFd<'_>) -> io::Result<()> {
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
