//! The one option of sockets that is set here.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// SO_PASSRIGHTS of asm-generic/socket.h, since Linux 6.16: whether descriptors may be sent to this socket, and to those
/// that it accepts.
const PASS_RIGHTS: libc::c_int = 83;

/// Has the kernel refuse descriptors that are sent to this socket, or to one that it accepts.
///
/// # Errors
///
/// The kernel is older than Linux 6.16.
pub fn refuse(socket: impl AsFd) -> io::Result<()> {
    let no: libc::c_int = 0;
    let bytes = size_of_val(&no) as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: setsockopt reads that many bytes from where the pointer leads, and the descriptor is open.
    let set = unsafe {
        libc::setsockopt(socket, libc::SOL_SOCKET, PASS_RIGHTS, (&raw const no).cast(), bytes)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn what_a_listener_refuses_nobody_sends_to_what_it_accepts() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        if let Err(error) = refuse(&listener) {
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
