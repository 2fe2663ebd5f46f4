// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client sockets. Nearly all clients have sent the request before the accept, and have buffer space for the reply. A
//! connection is therefore registered with the runtime only if it has to wait. This saves a third of the system calls
//! of a request. `accept_loop` accepts, and `connection_limits` counts.

use roster_fd_passing::peer_credentials;
use roster_messages::{CodedError, table::daemon};
use roster_role::RoleContext;
use roster_role::error_code::WithCode;
use rustix::net::{SocketFlags, accept_with};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Returns the listening socket that the monitor passed, as `listener` wraps it.
pub fn take_socket<C, L>(
    context: &mut RoleContext<C>,
    listener: impl FnOnce(OwnedFd) -> io::Result<L>,
) -> Result<L, CodedError> {
    let missing = || CodedError::new(&daemon::RESPONDER_SOCKET_MISSING, "no listening socket");
    let socket = context.listener.take().ok_or_else(missing)?;
    let unusable = || "the listening socket cannot be used";
    listener(socket).with_code(&daemon::RESPONDER_SOCKET_MISSING, unusable)
}

/// The listening socket.
pub struct ClientListener(AsyncFd<OwnedFd>);

impl ClientListener {
    /// Wraps a socket that another process has bound.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        // Deprecated for types that may change their descriptor without the knowledge of tokio. This one owns one and
        // never changes it.
        #[allow(deprecated)]
        AsyncFd::with_interest(socket, Interest::READABLE).map(Self)
    }

    /// Returns the next connection, and the user id of its client.
    pub async fn accept(&self) -> io::Result<(u32, ClientConnection)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = |listener: &OwnedFd| Ok(accept_with(listener, flags)?);
        let socket = self.0.async_io(Interest::READABLE, accept).await?;
        let uid = peer_credentials(&socket)?.uid;
        Ok((uid, ClientConnection(socket.into())))
    }
}

/// A client's connection, for one request and its reply.
pub struct ClientConnection(UnixStream);

impl ClientConnection {
    /// Reads a request into `room` and returns its length. `whole` computes the length of the request from the bytes so
    /// far. Further bytes are ignored.
    pub async fn read_request(
        self,
        room: &mut [u8],
        whole: impl Fn(&[u8]) -> io::Result<usize>,
    ) -> io::Result<(Self, usize)> {
        let Self(mut socket) = self;
        let (mut read, mut needed) = (0, whole(&[])?);
        while read < needed {
            let free = room.get_mut(read..).filter(|free| !free.is_empty());
            match (&socket).read(free.ok_or(io::ErrorKind::InvalidData)?) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => read += more,
                Err(error) => socket = wait_ready(socket, Interest::READABLE, error).await?,
            }
            needed = whole(&room[..read])?;
        }
        Ok((Self(socket), needed))
    }

    /// Sends all of a reply.
    pub async fn send_reply(self, mut frame: &[u8]) -> io::Result<()> {
        let Self(mut socket) = self;
        while !frame.is_empty() {
            match (&socket).write(frame) {
                Ok(sent) => frame = &frame[sent..],
                Err(error) => socket = wait_ready(socket, Interest::WRITABLE, error).await?,
            }
        }
        Ok(())
    }
}

/// Returns the socket once a retry may succeed, otherwise the error.
async fn wait_ready(
    socket: UnixStream,
    interest: Interest,
    error: io::Error,
) -> io::Result<UnixStream> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(socket),
        io::ErrorKind::WouldBlock => {
            let watched = tokio::net::UnixStream::from_std(socket)?;
            watched.ready(interest).await?;
            watched.into_std()
        }
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_bus::bus_names::RoleName;
    use roster_request::LookupKind;
    use roster_role::Shutdown;
    use roster_role::testing::TestBus;
    use roster_system_tests::wait::SOON;
    use roster_wire::{NssRequest, NssRequestHeader, REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES};
    use std::fs::File;
    use std::time::Duration;
    use tokio::time::{sleep, timeout};

    const ALICE: NssRequest<'static> =
        NssRequest { kind: LookupKind::UserByName, name: b"alice", id: 0 };

    fn pair() -> (UnixStream, ClientConnection) {
        let (program, ours) = UnixStream::pair().expect("two sockets");
        ours.set_nonblocking(true).expect("a socket");
        (program, ClientConnection(ours))
    }

    async fn asked(connection: ClientConnection) -> Result<(LookupKind, Vec<u8>), io::ErrorKind> {
        let mut room = [0; REQUEST_BYTES_MAX];
        let whole = |read: &[u8]| match read.first_chunk() {
            None => Ok(REQUEST_HEADER_BYTES),
            Some(header) => NssRequestHeader::parse(header)
                .map(|header| REQUEST_HEADER_BYTES + header.name_bytes())
                .map_err(io::Error::other),
        };
        match connection.read_request(&mut room, whole).await {
            Ok((_, length)) => {
                let request = NssRequest::read(&room[..length]).expect("a request");
                Ok((request.kind, request.name.to_vec()))
            }
            Err(error) => Err(error.kind()),
        }
    }

    #[tokio::test]
    async fn a_question_is_the_same_whole_or_byte_by_byte() {
        let mut room = [0; REQUEST_BYTES_MAX];
        let bytes = ALICE.write(&mut room).to_vec();
        let (program, connection) = pair();
        (&program).write_all(&[&bytes[..], b"and more"].concat()).expect("room");
        assert_eq!(asked(connection).await, Ok((ALICE.kind, ALICE.name.to_vec())));

        let (program, connection) = pair();
        let asked = tokio::spawn(asked(connection));
        for byte in bytes {
            (&program).write_all(&[byte]).expect("room");
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(asked.await.expect("no panic"), Ok((ALICE.kind, ALICE.name.to_vec())));
    }

    #[tokio::test]
    async fn half_a_question_and_none_of_ours_are_errors() {
        let mut room = [0; REQUEST_BYTES_MAX];
        let bytes = ALICE.write(&mut room);
        for (sent, error) in [
            (&bytes[..bytes.len() - 1], io::ErrorKind::UnexpectedEof),
            (&bytes[..3], io::ErrorKind::UnexpectedEof),
            (b"", io::ErrorKind::UnexpectedEof),
            (b"GET / HTTP/1.1\r\n\r\n", io::ErrorKind::Other),
        ] {
            let (program, connection) = pair();
            (&program).write_all(sent).expect("room");
            drop(program);
            assert_eq!(asked(connection).await, Err(error), "{}", sent.escape_ascii());
        }
    }

    #[tokio::test]
    async fn client_reply_arrives_whole_or_fails() {
        let frame: Vec<u8> = (0..4_000_000).map(|at: u32| at.to_le_bytes()[0]).collect();
        let (program, connection) = pair();
        let reader = tokio::task::spawn_blocking(move || {
            let mut received = Vec::new();
            (&program).read_to_end(&mut received).map(|_| received)
        });
        connection.send_reply(&frame).await.expect("sent");
        assert!(reader.await.expect("no panic").expect("received") == frame);

        let (program, connection) = pair();
        let replied = tokio::spawn(async move { connection.send_reply(&frame).await });
        sleep(Duration::from_millis(1)).await;
        drop(program);
        let replied = timeout(SOON, replied).await.expect("it ends");
        assert_eq!(
            replied.expect("no panic").map_err(|error| error.kind()),
            Err(io::ErrorKind::BrokenPipe)
        );
    }

    #[tokio::test]
    async fn responder_without_usable_socket_has_code() {
        let folder = tempfile::tempdir().expect("a directory");
        let bus = TestBus::start(folder.path(), TestBus::OPEN);
        // epoll(7) accepts no directory.
        let directory = File::open("/").expect("open");
        for listener in [None, Some(directory.into())] {
            let mut context = RoleContext {
                role: RoleName::Responder("nss".into()),
                config: (),
                state_dir: "/".into(),
                run_dir: "/".into(),
                connection: bus.connect().await,
                listener,
                shutdown: Shutdown::new().1,
            };
            let error = take_socket(&mut context, ClientListener::new).err().expect("no socket");
            assert_eq!(error.message, &daemon::RESPONDER_SOCKET_MISSING);
        }
    }
}
