// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two socket options: SO_PASSRIGHTS, which is set, and SO_PEERCRED, which is read. This module receives no data and
//! closes nothing: `deferred_close` closes.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// SO_PASSRIGHTS of asm-generic/socket.h, since Linux 6.16: whether this socket, and those that it accepts, receive
/// descriptors.
const PASS_RIGHTS: libc::c_int = 83;

/// Makes the kernel reject descriptors that are sent to this socket, or to a socket that it accepts.
///
/// # Errors
///
/// The kernel is older than Linux 6.16.
pub fn refuse_descriptors(socket: impl AsFd) -> io::Result<()> {
    let no: libc::c_int = 0;
    let bytes = size_of_val(&no) as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: setsockopt reads that many bytes from the location of the pointer, and the descriptor is open.
    let set = unsafe {
        libc::setsockopt(socket, libc::SOL_SOCKET, PASS_RIGHTS, (&raw const no).cast(), bytes)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The peer of a connection, as reported by the kernel (SO_PEERCRED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Uid.
    pub uid: u32,
    /// Process id; 0 for a process outside the PID namespace of this process.
    pub pid: i32,
}

/// Returns the peer of a connection, or the process that began to listen. rustix cannot represent process id 0.
///
/// # Errors
///
/// The descriptor is not such a socket.
pub fn peer_credentials(socket: impl AsFd) -> io::Result<PeerCredentials> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of_val(&found) as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: getsockopt writes at most that many bytes to the locations of the pointers: integers, for which all
    // values are valid.
    let got = unsafe {
        let (into, bytes) = ((&raw mut found).cast(), &raw mut bytes);
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, into, bytes)
    };
    let libc::ucred { pid, uid, .. } = found;
    if got == 0 { Ok(PeerCredentials { uid, pid }) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn the_other_end_is_this_process() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let found = peer_credentials(&socket).unwrap();
        assert_eq!(found.pid, std::process::id().cast_signed());
        let own = std::fs::metadata("/proc/self").unwrap();
        assert_eq!(found.uid, std::os::unix::fs::MetadataExt::uid(&own));
        assert!(peer_credentials(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn what_a_listener_refuses_nobody_sends_to_what_it_accepts() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        if let Err(error) = refuse_descriptors(&listener) {
            assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT), "{error}");
            return;
        }
        let client = UnixStream::connect(folder.path().join("socket")).unwrap();
        let (served, _) = listener.accept().unwrap();
        let send = |to: &UnixStream| {
            let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = rustix::net::SendAncillaryBuffer::new(&mut room);
            let own = [listener.as_fd()];
            control.push(rustix::net::SendAncillaryMessage::ScmRights(&own));
            let byte = [io::IoSlice::new(b"x")];
            rustix::net::sendmsg(to, &byte, &mut control, rustix::net::SendFlags::empty())
        };
        assert_eq!(send(&client), Err(rustix::io::Errno::PERM));
        assert_eq!(send(&served), Ok(1), "to the client it may");
    }
}
