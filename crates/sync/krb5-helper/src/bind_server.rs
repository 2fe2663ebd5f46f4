// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-krb5 bind`: SASL GSSAPI binds for one backend, each in a separate process. `bind_exchange` has the exchange,
//! and `seal_relay` the encryption.
//!
//! The backend sends the descriptors of each connection. A copy of this process gets tickets with a key of this host
//! and exchanges tokens with the directory server through the backend. It then encrypts a connection without TLS.
//! This process reads only descriptors after its setup. A copy that crashes is a lost connection.

use crate::bind_exchange::{BindError, BindExchange};
use crate::libkrb5::{Keytab, LibraryContext};
use crate::seal_relay::SealRelay;
use crate::{fork, gss, krb5_conf, memory_lock, sandbox};
use roster_krb5_helper::bind_ipc::{
    BindCall, BindReply, BindSetup, DESCRIPTORS_BYTE, message_length,
};
use roster_messages::table::{directory, login};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, set_parent_process_death_signal, wait,
};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use zeroize::Zeroizing;

/// Concurrent connections. A backend has a handful.
const CHILDREN_MAX: usize = 16;
/// Time limit of the backend to send the setup or the first call.
const BACKEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest bind.
const DEADLINE_MAX: Duration = Duration::from_secs(120);

/// Serves until the backend closes its end.
pub fn serve() -> io::Result<()> {
    memory_lock::hide()?;
    let locked = memory_lock::lock();
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // The end of the socket must be noticed, so no other descriptor may hold it open.
    let null = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    socket.set_read_timeout(Some(BACKEND_TIMEOUT))?;
    socket.set_write_timeout(Some(BACKEND_TIMEOUT))?;
    let Some(setup) = receive(&mut socket)? else { return Ok(()) };
    let setup = BindSetup::decode(&setup).map_err(io::Error::other)?;
    let failed = |error: BindError| error.into_reply();
    let unusable = |error: io::Error| {
        let text = format!("libkrb5 cannot be used: {error}");
        failed(BindError::new(&login::LIBKRB5_UNUSABLE, text))
    };
    let context = match LibraryContext::new(&krb5_conf::realm_profile(&setup.realm)) {
        Ok(context) => context,
        Err(error) => return send(&mut socket, &unusable(error)),
    };
    let keytab = match context.keytab(&setup.keytab) {
        Ok(keytab) => keytab,
        Err(error) => {
            let text = format!("the keytab cannot be read: {error}");
            let error = BindError::new(&directory::BIND_KEY_MISSING, text);
            return send(&mut socket, &failed(error));
        }
    };
    let prepared = gss::prepare_environment(&context)
        .and_then(|()| context.warm_up(&setup.realm.name).map_err(io::Error::other));
    if let Err(error) = prepared {
        return send(&mut socket, &unusable(error));
    }
    let confined = sandbox::apply(&setup.ports);
    send(&mut socket, &BindReply::Ready(format!("{confined}, {locked}")))?;
    socket.set_read_timeout(None)?;
    BindServer { context: &context, keytab: &keytab, setup: &setup }.run(&socket)
}

/// Receives one message, and no byte after it. `None` at the end of the stream.
fn receive(socket: &mut UnixStream) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let mut head = [0; 4];
    match socket.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        done => done?,
    }
    let mut message = Zeroizing::new(vec![0; message_length(head).map_err(io::Error::other)?]);
    socket.read_exact(&mut message)?;
    Ok(Some(message))
}

fn send(socket: &mut UnixStream, reply: &BindReply) -> io::Result<()> {
    socket.write_all(&reply.encode())
}

/// The descriptors of a connection.
struct Connection {
    backend: UnixStream,
    /// The directory server, for a connection without TLS.
    server: Option<OwnedFd>,
}

/// Receives the descriptors of the next connection. `None` at the end of the stream.
fn receive_descriptors(socket: &UnixStream) -> io::Result<Option<Connection>> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    let received = loop {
        let mut into = [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let (backend, server) = (descriptors.next(), descriptors.next());
    match backend {
        Some(backend)
            if byte == [DESCRIPTORS_BYTE] && !received.flags.contains(ReturnFlags::CTRUNC) =>
        {
            Ok(Some(Connection { backend: backend.into(), server }))
        }
        _ => Err(io::Error::other("malformed message of the backend")),
    }
}

struct BindServer<'c> {
    context: &'c LibraryContext,
    keytab: &'c Keytab<'c>,
    setup: &'c BindSetup,
}

impl BindServer<'_> {
    fn run(&self, socket: &UnixStream) -> io::Result<()> {
        let mut children = BTreeSet::new();
        while let Some(connection) = receive_descriptors(socket)? {
            reap(&mut children);
            // Without a process, the backend sees the end of its socket.
            if children.len() < CHILDREN_MAX {
                children.extend(
                    self.spawn(socket, connection).ok().map(|pid| pid.as_raw_nonzero().get()),
                );
            }
        }
        Ok(())
    }

    /// Makes a process for a connection.
    fn spawn(&self, socket: &UnixStream, connection: Connection) -> io::Result<Pid> {
        let parent = getpid();
        let mut connection = Some(connection);
        fork::fork(&[socket.as_fd()], || {
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            if getppid() != Some(parent) {
                return;
            }
            // The result was reported at the start of the parent: it fails here for the same reason.
            let _ = memory_lock::lock();
            fork::end_after(Some(BACKEND_TIMEOUT));
            if let Some(connection) = connection.take() {
                let _ = self.bind(connection);
            }
        })
    }

    /// Makes a bind in its dedicated process, and relays the connection.
    fn bind(&self, connection: Connection) -> io::Result<()> {
        let Connection { mut backend, server } = connection;
        let mut exchange: Option<BindExchange> = None;
        loop {
            let Some(call) = receive(&mut backend)? else { return Ok(()) };
            let step = match (BindCall::decode(&call).map_err(io::Error::other)?, &mut exchange) {
                (BindCall::Start { host, deadline, seals, channel_binding }, none @ None) => {
                    fork::end_after(Some(deadline.min(DEADLINE_MAX)));
                    let wishes = (&*host, seals, channel_binding);
                    let begun = BindExchange::begin(self.context, self.keytab, self.setup, wishes);
                    begun.map(|(begun, token)| {
                        *none = Some(begun);
                        BindReply::Token(token)
                    })
                }
                (BindCall::Token(token), Some(exchange)) => exchange.step(&token),
                (BindCall::Relay, Some(_)) => break,
                _ => return Err(io::Error::other("malformed message of the backend")),
            };
            match step {
                Ok(reply) => send(&mut backend, &reply)?,
                Err(error) => return send(&mut backend, &error.into_reply()),
            }
        }
        fork::end_after(None);
        match (exchange.and_then(BindExchange::into_sealed), server) {
            (Some(sealed), Some(server)) => SealRelay::new(sealed, backend.into(), server)?.run(),
            _ => Err(io::Error::other("nothing to relay")),
        }
    }
}

/// Removes processes that have ended.
fn reap(children: &mut BTreeSet<i32>) {
    while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
        children.remove(&pid.as_raw_nonzero().get());
    }
}
