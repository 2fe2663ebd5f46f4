// SPDX-License-Identifier: MIT OR Apache-2.0
//! Non-blocking connections of engines, with or without TLS: routes, TLS settings, and how connections close. This
//! module knows no protocol. `ldap` and `message_engine` have the protocols.

use crate::coded::{Coded, ensure_coded};
use crate::request_error::{RequestError, SystemCall};
use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use roster_messages::table::lab;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// EINPROGRESS: a non-blocking connect(2) has started.
const IN_PROGRESS: i32 = 115;
/// Maximum number of unprocessed bytes from a server.
const INBOX_BYTES_MAX: usize = 128 << 20;
/// Flag of send(2): more data follows at once.
const MSG_MORE: i32 = 0x8000;

/// The way in which the client closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CloseMode {
    /// Close as programs do; the port stays in use for a minute
    Normal,
    /// Close with a reset, which frees the port at once; the server sees a broken connection
    Reset,
}

/// The server, and the source addresses in turn.
#[derive(Clone, Debug)]
pub struct Route {
    /// Address of the server.
    pub target: SocketAddr,
    /// Source addresses. If empty, the kernel selects one.
    pub sources: Vec<IpAddr>,
    /// The way in which connections close.
    pub close: CloseMode,
}

/// Resolves a host by the name services of this host. Returns the first address.
pub fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let found = (host, port).to_socket_addrs()?.next();
    found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "the name has no address"))
}

impl Route {
    /// Starts a connection to the server, from the source address of this turn.
    pub fn connect(&self, turn: usize) -> io::Result<Socket> {
        let socket = self.socket(Type::STREAM, turn)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&SockAddr::from(self.target)) {
            Err(error) if error.raw_os_error() != Some(IN_PROGRESS) => Err(error),
            _ => Ok(socket),
        }
    }

    /// Creates a UDP socket that is connected to the server.
    pub fn datagrams(&self, turn: usize) -> io::Result<Socket> {
        let socket = self.socket(Type::DGRAM, turn)?;
        socket.connect(&SockAddr::from(self.target))?;
        Ok(socket)
    }

    fn socket(&self, kind: Type, turn: usize) -> io::Result<Socket> {
        let domain = Domain::for_address(self.target);
        let socket = Socket::new(domain, kind.nonblocking().cloexec(), None)?;
        if let Some(&source) = turn.checked_rem(self.sources.len()).map(|at| &self.sources[at]) {
            // The kernel selects the port at connect(2), so that several targets can share a port.
            setsockopt(&socket, IpBindAddressNoPort, &true)?;
            socket.bind(&SockAddr::from(SocketAddr::new(source, 0)))?;
        }
        Ok(socket)
    }
}

/// TLS settings of a server.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsSettings {
    /// Creates settings with the CA certificates of a file, or those of the host.
    pub fn new(host: &str, authorities: Option<&Path>) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        match authorities {
            Some(path) => {
                let shown = path.display();
                let invalid = format!("--tls-ca {shown}: invalid certificate");
                let unreadable = format_args!("--tls-ca {shown}: cannot be read");
                let text = fs::read(path).coded(&lab::FILE_UNREADABLE, unreadable)?;
                for certificate in CertificateDer::pem_slice_iter(&text) {
                    let certificate = certificate.coded(&lab::CA_FILE_INVALID, &invalid)?;
                    roots.add(certificate).coded(&lab::CA_FILE_INVALID, &invalid)?;
                }
                ensure_coded!(
                    !roots.is_empty(),
                    CA_FILE_EMPTY,
                    "--tls-ca {shown}: no certificate in PEM"
                );
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                ensure_coded!(
                    !roots.is_empty(),
                    HOST_CA_MISSING,
                    "this host has no CA certificates"
                );
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let text = format_args!("{host}: not a valid name for TLS");
        let name = ServerName::try_from(host.to_owned()).coded(&lab::SERVER_NAME_INVALID, text)?;
        Ok(Self { config: Arc::new(config), name })
    }
}

#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
    /// Bytes that the socket has not accepted yet.
    unsent: Vec<u8>,
    close: CloseMode,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// All available bytes were read.
    All,
    /// All bytes were read, and the server closed the connection.
    End,
}

impl Connection {
    /// Wraps a socket of [`Route::connect`].
    #[must_use]
    pub fn new(socket: Socket, close: CloseMode) -> Self {
        Self { socket, tls: None, unsent: Vec::new(), close }
    }

    /// Starts TLS.
    pub fn start_tls(&mut self, tls: &TlsSettings) -> Result<(), RequestError> {
        let made = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone());
        self.tls = Some(Box::new(made.map_err(|error| RequestError::Tls(error.to_string()))?));
        self.flush()
    }

    /// Returns whether the TLS handshake is incomplete.
    #[must_use]
    pub fn is_shaking_hands(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Returns the error of a failed connect(2), if it is known.
    pub fn connect_result(&self) -> Result<(), RequestError> {
        match self.socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(RequestError::system(SystemCall::Connect, &error)),
        }
    }

    /// Sends bytes, and keeps those that the socket does not accept.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(bytes).map_err(|error| send_error(&error))?;
            return self.flush();
        }
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return self.flush();
        }
        let sent = write_available(&mut &self.socket, bytes)?;
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Sends the bytes that an earlier call could not send.
    pub fn flush(&mut self) -> Result<(), RequestError> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                match tls.write_tls(&mut &self.socket) {
                    Ok(_) => {}
                    Err(error) if is_would_block(&error) => return Ok(()),
                    Err(error) => return Err(send_error(&error)),
                }
            }
            return Ok(());
        }
        if !self.unsent.is_empty() {
            let sent = write_available(&mut &self.socket, &self.unsent)?;
            self.unsent.drain(..sent);
        }
        Ok(())
    }

    /// Appends all received bytes to `inbox`, with `scratch` as the buffer. `is_last` states that the connection ends
    /// after them.
    pub fn read(
        &mut self,
        scratch: &mut [u8],
        inbox: &mut Vec<u8>,
        is_last: bool,
    ) -> Result<ReadOutcome, RequestError> {
        const FLOOD: RequestError = RequestError::Malformed("more bytes than any reply");
        let Some(tls) = &mut self.tls else {
            loop {
                if inbox.len() > INBOX_BYTES_MAX {
                    return Err(FLOOD);
                }
                match (&self.socket).read(scratch) {
                    Ok(0) => return Ok(ReadOutcome::End),
                    Ok(read) => {
                        inbox.extend_from_slice(&scratch[..read]);
                        // A short read is the end of the available bytes, and epoll reports later ones.
                        if read < scratch.len() && !is_last {
                            return Ok(ReadOutcome::All);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if is_would_block(&error) => return Ok(ReadOutcome::All),
                    Err(error) => return Err(receive_error(&error)),
                }
            }
        };
        let mut heard = ReadOutcome::All;
        loop {
            if inbox.len() > INBOX_BYTES_MAX {
                return Err(FLOOD);
            }
            match tls.read_tls(&mut &self.socket) {
                Ok(0) => heard = ReadOutcome::End,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_would_block(&error) => break,
                Err(error) => return Err(receive_error(&error)),
            }
            let verdict = tls.process_new_packets();
            loop {
                match tls.reader().read(scratch) {
                    Ok(0) => {
                        heard = ReadOutcome::End;
                        break;
                    }
                    Ok(read) => inbox.extend_from_slice(&scratch[..read]),
                    Err(_) => break,
                }
            }
            if let Err(error) = verdict {
                // This sends the TLS alert.
                let _ = tls.write_tls(&mut &self.socket);
                return Err(RequestError::Tls(error.to_string()));
            }
            if heard == ReadOutcome::End {
                break;
            }
        }
        self.flush()?;
        Ok(heard)
    }

    /// Closes the connection with its mode. The drop sends a reset.
    pub fn close(mut self, farewell: &[u8]) {
        match self.close {
            // Failures are ignored: the server may have closed the connection.
            CloseMode::Normal if self.tls.is_some() => {
                let _ = self.send(farewell);
                if let Some(tls) = &mut self.tls {
                    tls.send_close_notify();
                    let _ = self.flush();
                }
            }
            // The kernel sends the farewell and the FIN in one packet.
            CloseMode::Normal if self.unsent.is_empty() && !farewell.is_empty() => {
                let _ = self.socket.send_with_flags(farewell, MSG_MORE);
            }
            CloseMode::Normal | CloseMode::Reset => {}
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.close == CloseMode::Reset {
            // Without lingering, close(2) sends a reset.
            let _ = self.socket.set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn send_error(error: &io::Error) -> RequestError {
    RequestError::system(SystemCall::Send, error)
}

fn receive_error(error: &io::Error) -> RequestError {
    RequestError::system(SystemCall::Receive, error)
}

/// Writes as many bytes as the socket accepts.
fn write_available(mut socket: impl Write, bytes: &[u8]) -> Result<usize, RequestError> {
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.write(&bytes[sent..]) {
            Ok(written) => sent += written,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_would_block(&error) => break,
            Err(error) => return Err(send_error(&error)),
        }
    }
    Ok(sent)
}

/// Returns whether the call has to wait, also for an incomplete connect(2).
fn is_would_block(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}
