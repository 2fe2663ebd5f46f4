//! The network under the engines: where to connect to and from, how to close, and a connection, with
//! TLS or without, that never blocks.

use crate::request_error::RequestError;
use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
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

/// EINPROGRESS: a connection that does not wait is on its way.
const IN_PROGRESS: i32 = 115;
/// What a server may send before it is looked at: whoever sends faster than it is read would go on for
/// ever.
const INBOX_BYTES_MAX: usize = 128 << 20;
/// More will be sent at once.
const MSG_MORE: i32 = 0x8000;

/// How a connection is closed from our side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CloseMode {
    /// As programs do; the port is taken for a minute.
    Normal,
    /// With a reset, which frees the port at once and which the server sees as a broken connection.
    Reset,
}

/// To where, and from which addresses in turn.
#[derive(Clone, Debug)]
pub struct Route {
    /// The server.
    pub target: SocketAddr,
    /// Our own addresses; none leaves the choice to the kernel.
    pub sources: Vec<IpAddr>,
    /// How connections end.
    pub close: CloseMode,
}

/// The address of `HOST:PORT`, as every program of this host would find it; the first, if there are
/// several.
pub fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let found = (host, port).to_socket_addrs()?.next();
    found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "the name has no address"))
}

impl Route {
    /// A socket on its way to the server, from the address whose turn it is.
    pub fn connect(&self, turn: usize) -> io::Result<Socket> {
        let socket = self.socket(Type::STREAM, turn)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&SockAddr::from(self.target)) {
            Err(error) if error.raw_os_error() != Some(IN_PROGRESS) => Err(error),
            _ => Ok(socket),
        }
    }

    /// A socket for datagrams to and from the server alone.
    pub fn datagrams(&self, turn: usize) -> io::Result<Socket> {
        let socket = self.socket(Type::DGRAM, turn)?;
        socket.connect(&SockAddr::from(self.target))?;
        Ok(socket)
    }

    fn socket(&self, kind: Type, turn: usize) -> io::Result<Socket> {
        let domain = Domain::for_address(self.target);
        let socket = Socket::new(domain, kind.nonblocking().cloexec(), None)?;
        if let Some(&source) = turn.checked_rem(self.sources.len()).map(|at| &self.sources[at]) {
            // The port is chosen when the target is known, so that one port may serve several.
            setsockopt(&socket, IpBindAddressNoPort, &true)?;
            socket.bind(&SockAddr::from(SocketAddr::new(source, 0)))?;
        }
        Ok(socket)
    }
}

/// What TLS needs to know.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsSettings {
    /// With the authorities of a file, or those of the host.
    pub fn new(host: &str, authorities: Option<&Path>) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        match authorities {
            Some(path) => {
                let say =
                    |error: &dyn std::fmt::Display| anyhow::anyhow!("{}: {error}", path.display());
                let text = fs::read(path).map_err(|error| say(&error))?;
                for certificate in CertificateDer::pem_slice_iter(&text) {
                    roots.add(certificate.map_err(|error| say(&error))?).map_err(|e| say(&e))?;
                }
                anyhow::ensure!(!roots.is_empty(), "{}: has no certificate in PEM", path.display());
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                anyhow::ensure!(
                    !roots.is_empty(),
                    "this host has no certificates of authorities: name a file with --tls-ca"
                );
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned())?;
        Ok(Self { config: Arc::new(config), name })
    }
}

#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
    /// What the socket did not take yet.
    unsent: Vec<u8>,
    close: CloseMode,
}

/// What became of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Everything that was there.
    All,
    /// Also the end: the server closed the connection.
    End,
}

impl Connection {
    /// A connection that [`Route::connect`] began.
    #[must_use]
    pub fn new(socket: Socket, close: CloseMode) -> Self {
        Self { socket, tls: None, unsent: Vec::new(), close }
    }

    /// From now on everything goes through TLS.
    pub fn start_tls(&mut self, tls: &TlsSettings) -> Result<(), RequestError> {
        let made = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone());
        self.tls = Some(Box::new(made.map_err(|error| RequestError::Tls(error.to_string()))?));
        self.flush()
    }

    /// Whether the two sides still agree on keys.
    #[must_use]
    pub fn is_shaking_hands(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Why the connection did not come about, if it is known not to have.
    pub fn connect_result(&self) -> Result<(), RequestError> {
        match self.socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(RequestError::system("connect", &error)),
        }
    }

    /// Sends, or keeps for later what does not fit.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(bytes).map_err(|error| RequestError::system("send", &error))?;
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

    /// Sends what was kept.
    pub fn flush(&mut self) -> Result<(), RequestError> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                match tls.write_tls(&mut &self.socket) {
                    Ok(_) => {}
                    Err(error) if is_would_block(&error) => return Ok(()),
                    Err(error) => return Err(RequestError::system("send", &error)),
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

    /// Appends everything that has come to `inbox`, by way of `scratch`. `is_last` says that an end is
    /// behind it.
    pub fn read(
        &mut self,
        scratch: &mut [u8],
        inbox: &mut Vec<u8>,
        is_last: bool,
    ) -> Result<ReadOutcome, RequestError> {
        const FLOOD: RequestError = RequestError::Malformed("more than any answer holds");
        let Some(tls) = &mut self.tls else {
            loop {
                if inbox.len() > INBOX_BYTES_MAX {
                    return Err(FLOOD);
                }
                match (&self.socket).read(scratch) {
                    Ok(0) => return Ok(ReadOutcome::End),
                    Ok(read) => {
                        inbox.extend_from_slice(&scratch[..read]);
                        // Less than asked for is all there is: epoll tells of what comes next.
                        if read < scratch.len() && !is_last {
                            return Ok(ReadOutcome::All);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if is_would_block(&error) => return Ok(ReadOutcome::All),
                    Err(error) => return Err(RequestError::system("receive", &error)),
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
                Err(error) => return Err(RequestError::system("receive", &error)),
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
                // The other side is told what is wrong.
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

    /// Closes as the route says; a reset is sent by dropping it.
    pub fn close(mut self, farewell: &[u8]) {
        match self.close {
            // Whoever has gone already hears no farewell.
            CloseMode::Normal if self.tls.is_some() => {
                let _ = self.send(farewell);
                if let Some(tls) = &mut self.tls {
                    tls.send_close_notify();
                    let _ = self.flush();
                }
            }
            // Held back for the end of the connection, with which it makes one packet.
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
            // A socket that does not linger is closed with a reset.
            let _ = self.socket.set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Writes what the socket takes.
fn write_available(mut socket: impl Write, bytes: &[u8]) -> Result<usize, RequestError> {
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.write(&bytes[sent..]) {
            Ok(written) => sent += written,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_would_block(&error) => break,
            Err(error) => return Err(RequestError::system("send", &error)),
        }
    }
    Ok(sent)
}

/// Whether it is only not yet time: also where the connection is still on its way.
fn is_would_block(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}
