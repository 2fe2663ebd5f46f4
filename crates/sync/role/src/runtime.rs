// SPDX-License-Identifier: MIT OR Apache-2.0
//! The single thread of a role, and protection from slow close(2) calls. `process` runs the role in it.

use roster_fd_passing::deferred_close;
use std::io;
use tokio::runtime::{Builder, Runtime};

/// Makes a runtime in this thread. With `serves_programs`, another thread closes the descriptors that programs sent.
pub fn new(blocking_threads_max: usize, serves_programs: bool) -> io::Result<Runtime> {
    let mut runtime = Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(blocking_threads_max);
    if serves_programs {
        // Otherwise clients could send descriptors that take an hour to close.
        runtime
            .on_thread_unpark(deferred_close::begin_round)
            .on_thread_park(deferred_close::end_round);
        deferred_close::begin_round();
    }
    runtime.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::DISK_THREADS_MAX;
    use roster_system_tests::wait::SOON;
    use rustix::net::sockopt::set_socket_linger;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::{ErrorKind, IoSlice, Write};
    use std::mem::MaybeUninit;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;
    use tokio::io::AsyncReadExt;

    /// Makes a socket with a last close(2) that waits for an hour, because no process reads its data.
    fn lingering(listener: &TcpListener) -> TcpStream {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_socket_linger(&client, Some(Duration::from_secs(3600))).unwrap();
        client.set_nonblocking(true).unwrap();
        loop {
            match client.write(&[0; 1 << 16]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return client,
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn runtime_responder_never_waits_for_received_descriptors() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connections: Vec<_> = (0..20)
            .map(|_| {
                let (ours, theirs) = UnixStream::pair().unwrap();
                for _ in 0..2 {
                    let sent = lingering(&listener);
                    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                    let mut control = SendAncillaryBuffer::new(&mut room);
                    let sent = [sent.as_fd()];
                    control.push(SendAncillaryMessage::ScmRights(&sent));
                    sendmsg(&theirs, &[IoSlice::new(b"x")], &mut control, SendFlags::empty())
                        .unwrap();
                }
                ours.set_nonblocking(true).unwrap();
                (ours, theirs)
            })
            .collect();
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let runtime = new(DISK_THREADS_MAX, true).unwrap();
            runtime.block_on(async {
                for (ours, _theirs) in connections {
                    let mut ours = tokio::net::UnixStream::from_std(ours).unwrap();
                    tokio::task::yield_now().await;
                    // The second of the two descriptors is closed with the connection.
                    assert_eq!(ours.read_u8().await.unwrap(), b'x');
                }
            });
            done.send(()).unwrap();
        });
        // The listener accepts nothing meanwhile. A close that waits for one of them takes an hour.
        assert_eq!(is_done.recv_timeout(SOON), Ok(()));
        drop(listener);
    }
}
