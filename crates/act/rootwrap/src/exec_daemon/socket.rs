// SPDX-License-Identifier: MIT OR Apache-2.0
//! The listening socket of the daemon: systemd's, or one that the daemon creates and removes. `gate` restricts access
//! to it.

use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use roster_messages::CodedError;
use roster_messages::table::commands;
use rustix::io::Errno;
use rustix::net::sockopt::{socket_acceptconn, socket_domain};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, listen, recvmsg,
};
use std::fs;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The first descriptor of systemd: sd_listen_fds(3).
const FIRST_SYSTEMD_FD: i32 = 3;
/// Connections that wait for accept(2). Each may hang at its close, and the gate excludes its user only after that.
const BACKLOG: i32 = 128;

/// Returns a copy of the first descriptor of systemd. std has no safe conversion from a number to an owned descriptor, so
/// this process sends the descriptor to itself. pidfd_getfd(2) would need Linux 5.6.
fn copy_systemd_fd() -> Result<OwnedFd, Errno> {
    let into_errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let (receiver, sender) = UnixStream::pair().map_err(into_errno)?;
    let rights = [ControlMessage::ScmRights(&[FIRST_SYSTEMD_FD])];
    let bytes = [IoSlice::new(&[0])];
    sendmsg::<UnixAddr>(sender.as_raw_fd(), &bytes, &rights, MsgFlags::empty(), None)
        .map_err(|error| Errno::from_raw_os_error(error as i32))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let into = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(&receiver, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let rights = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    rights.ok_or(Errno::BADF)
}

pub(super) struct ExecSocket {
    listener: UnixListener,
    /// The path of a socket that this process created.
    created_path: Option<PathBuf>,
}

impl ExecSocket {
    /// Returns the socket that systemd passes, if there is one.
    pub(super) fn from_systemd() -> io::Result<Option<Self>> {
        let variable = |name| std::env::var(name).ok();
        let pid = variable("LISTEN_PID").and_then(|pid| pid.parse::<u32>().ok());
        if pid != Some(std::process::id()) {
            return Ok(None);
        }
        if variable("LISTEN_FDS").as_deref() != Some("1") {
            let text = "systemd: LISTEN_FDS is not 1";
            return Err(io::Error::other(CodedError::new(&commands::SYSTEMD_SOCKET_COUNT, text)));
        }
        let is_unix_listener = |fd: &OwnedFd| match socket_domain(fd) {
            Ok(AddressFamily::UNIX) => socket_acceptconn(fd),
            Ok(_) => Ok(false),
            Err(error) => Err(error),
        };
        let fd = match copy_systemd_fd().and_then(|fd| Ok(is_unix_listener(&fd)?.then_some(fd))) {
            Ok(Some(fd)) => fd,
            // The descriptor is closed, or that of another file.
            Ok(None) | Err(Errno::BADF | Errno::NOTSOCK) => {
                let text = "systemd: descriptor 3 is not a listening Unix socket";
                let invalid = CodedError::new(&commands::SYSTEMD_SOCKET_INVALID, text);
                return Err(io::Error::other(invalid));
            }
            Err(error) => return Err(error.into()),
        };
        listen(&fd, BACKLOG)?;
        let listener = UnixListener::from(fd);
        listener.set_nonblocking(true)?;
        Ok(Some(Self { listener, created_path: None }))
    }

    /// Creates the socket. It replaces one without a listener.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let at = |error: io::Error| {
            let text = format!("{}: cannot be created", path.display());
            io::Error::other(CodedError::new(&commands::SOCKET_UNAVAILABLE, text).caused_by(error))
        };
        if UnixStream::connect(path).is_ok() {
            let text = format!("{}: another daemon serves the socket", path.display());
            return Err(io::Error::other(CodedError::new(&commands::SOCKET_IN_USE, text)));
        }
        if let Some(folder) = path.parent() {
            create_dirs(folder).map_err(at)?;
        }
        let fresh = path.with_extension("new");
        let make = || {
            match fs::remove_file(&fresh) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => removed?,
            }
            let listener = UnixListener::bind(&fresh)?;
            listen(&listener, BACKLOG)?;
            listener.set_nonblocking(true)?;
            fs::set_permissions(&fresh, fs::Permissions::from_mode(0o666))?;
            fs::rename(&fresh, path)?;
            Ok(listener)
        };
        Ok(Self { listener: make().map_err(at)?, created_path: Some(path.to_owned()) })
    }

    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Returns the path of the socket.
    pub(super) fn path(&self, configured: &Path) -> PathBuf {
        let address = self.listener.local_addr().ok();
        let bound = address.as_ref().and_then(|address| address.as_pathname());
        match (&self.created_path, bound) {
            (None, Some(bound)) => bound.to_owned(),
            _ => configured.to_owned(),
        }
    }

    /// Removes a socket of this process and returns true. The socket of systemd stays for the next daemon.
    pub(super) fn close(&self) -> bool {
        if let Some(path) = &self.created_path {
            let _ = fs::remove_file(path);
            let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        }
        self.created_path.is_some()
    }
}

/// Creates missing directories that all users may enter, with any umask.
fn create_dirs(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    folder.parent().map_or(Ok(()), create_dirs)?;
    fs::create_dir(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

impl AsFd for ExecSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_that_cannot_be_created_has_code() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let _served = ExecSocket::create(&folder.path().join("served")).unwrap();
        for (name, message) in [
            ("file/exec", &commands::SOCKET_UNAVAILABLE),
            (&*"x".repeat(108), &commands::SOCKET_UNAVAILABLE),
            ("served", &commands::SOCKET_IN_USE),
        ] {
            let Err(error) = ExecSocket::create(&folder.path().join(name)) else {
                panic!("{name}")
            };
            let error: CodedError = error.downcast().unwrap();
            assert_eq!(error.message, message, "{error}");
        }
    }
}
