//! One connection to one server: TCP, TLS or a local socket, and LDAP messages over it.
//!
//! Messages are pulled: what is not read stays with the server, so nothing here queues without
//! bound, and a slow reader slows the server down. They are read in place, out of one buffer that
//! grows to the largest message and no further than `message_bytes_max`. Which search a message
//! belongs to, and what it means, is for those who asked. Referrals are not followed.

use crate::ber::{self, Frame};
use crate::dn;
use crate::error::Error;
use crate::filter::Filter;
use crate::message::{
    Control, Operation, Request, Response, Scope, SearchRequest, code, oid, printable,
};
use crate::names::Names;
use roster_config::{Bind, Ldap, Secrets, Server};
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use zeroize::{Zeroize, Zeroizing};

/// First size of the buffer, and what it returns to after a large message.
const BUFFER_BYTES: usize = 256 * 1024;
/// Least free space worth a read.
const READ_BYTES_MIN: usize = 32 * 1024;
/// A connection on which nothing moves is tested by the kernel after this long …
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// … and again after this long, three times.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// What was sent and not even acknowledged for so long will not be.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(20);

/// Anything that bytes go through.
trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// How connections are made.
pub struct Settings {
    bind: Bind,
    password: Zeroizing<String>,
    start_tls: bool,
    allow_clear_password: bool,
    /// With the authorities of `tls_ca`; without that, those that the host has at the moment.
    tls: Option<Arc<rustls::ClientConfig>>,
    connect_timeout: Duration,
    bytes_max: usize,
    names: Names,
}

impl Settings {
    /// From a domain's configuration. Fails when `tls_ca` is of no use or the password is missing.
    pub fn new(ldap: &Ldap, secrets: &Secrets) -> Result<Self, String> {
        let tls = secrets.tls_ca.as_deref().map(|text| chosen(text).and_then(tls_config));
        let password = Zeroizing::new(secrets.bind_password.clone().unwrap_or_default());
        if let (Bind::Simple { dn, .. }, "") = (&ldap.bind, password.as_str()) {
            // A server takes DN without password for an anonymous bind and says success.
            return Err(format!(
                "the password of bind_dn {dn:?} is empty: write it to bind_password_file"
            ));
        }
        Ok(Self {
            bind: ldap.bind.clone(),
            password,
            start_tls: ldap.start_tls,
            allow_clear_password: ldap.allow_clear_password,
            tls: tls.transpose()?,
            connect_timeout: ldap.connect_timeout,
            bytes_max: usize::try_from(ldap.message_bytes_max).unwrap_or(usize::MAX),
            names: Names::default(),
        })
    }

    /// The same for connections over which users prove who they are: nobody binds when they are made.
    pub fn of_users(ldap: &Ldap, secrets: &Secrets) -> Result<Self, String> {
        let nobody = Ldap { bind: Bind::Anonymous, ..ldap.clone() };
        Self::new(&nobody, secrets)
    }

    /// Whether a connection to that server is protected by TLS or stays on this host.
    pub fn is_private(&self, server: &Server) -> bool {
        match server {
            Server::Ldapi { .. } | Server::Ldaps { .. } => true,
            Server::Ldap { .. } => self.start_tls || server.is_this_host(),
        }
    }

    /// Who we are to the server, for cookies and messages.
    pub fn who(&self) -> &str {
        match &self.bind {
            Bind::Anonymous => "anonymous",
            Bind::Simple { dn, .. } => dn,
            Bind::External => "SASL EXTERNAL",
        }
    }
}

/// The authorities of `tls_ca`.
fn chosen(text: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.extend(roster_config::trust_anchors(text).map_err(|why| format!("tls_ca {why}"))?);
    Ok(roots)
}

/// The host's own authorities. They are read for each connection, which takes milliseconds: an
/// update of the host brings others, and takes some away.
fn of_the_host() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let anchors = roster_config::host_anchors();
    roots.extend(anchors.map_err(|why| format!("{why}: {}", roster_config::NO_ANCHORS))?);
    Ok(roots)
}

fn tls_config(roots: RootCertStore) -> Result<Arc<rustls::ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// A bound connection.
pub struct Connection {
    transport: Box<dyn Transport>,
    /// What came: messages from `start` on, the last perhaps not whole.
    buffer: Vec<u8>,
    start: usize,
    /// Wiped when it is sent, for there may be a password in it.
    outgoing: Zeroizing<Vec<u8>>,
    last_id: u32,
    bytes_max: usize,
    /// It is without TLS, and the server has said nothing yet.
    may_be_for_tls: bool,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("last_id", &self.last_id).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects, secures, binds and asks the server what it can do, all within `connect_timeout`: a
    /// server may take connections and say nothing, and without a bind its first word is that answer.
    pub async fn open(server: &Server, settings: &Settings) -> Result<(Self, Root), Error> {
        let deadline = settings.connect_timeout;
        let opened = async {
            let mut connection = Self::establish(server, settings).await?;
            let root = connection.root().await?;
            Ok((connection, root))
        };
        timeout(deadline, opened)
            .await
            .unwrap_or(Err(Error::Silent { what: "connect, bind and a first question", deadline }))
    }

    /// Connects and secures, within `connect_timeout`, and asks nothing.
    pub async fn reach(server: &Server, settings: &Settings) -> Result<Self, Error> {
        let deadline = settings.connect_timeout;
        timeout(deadline, Self::establish(server, settings))
            .await
            .unwrap_or(Err(Error::Silent { what: "connect", deadline }))
    }

    /// Asks for the root entry, whatever the answer: whether the server says anything.
    pub async fn is_answered(&mut self) -> bool {
        let filter = Filter::present("objectClass");
        let (scope, attributes) = (Scope::Base, &["1.1"][..]);
        let request =
            SearchRequest { base: "", scope, filter: &filter, attributes, entries_max: 1 };
        match self.search(request, |_| Ok(())).await {
            Ok(()) | Err(Error::Search { .. }) => true,
            Err(_) => false,
        }
    }

    /// Sends one request and waits for its answer, while nothing else runs on the connection; whoever asks has a
    /// deadline. The message, for it is read in place.
    pub async fn exchange(
        &mut self,
        request: &Request<'_>,
        controls: &[Control<'_>],
    ) -> Result<Response<'_>, Error> {
        let id = self.queue(request, controls);
        self.flush().await?;
        loop {
            self.ready().await?;
            if self.peek_id()? == id {
                return self.take();
            }
            // An answer to something that nobody waits for any more, or the announcement of the end.
            self.take()?;
        }
    }

    fn peek_id(&self) -> Result<u32, Error> {
        let Frame::Whole(length) = self.frame()? else {
            return Err(ber::Malformed("a message that is not whole").into());
        };
        let bytes = self.buffer.get(self.start..self.start + length).unwrap_or_default();
        Ok(Response::parse(bytes)?.id)
    }

    async fn establish(server: &Server, settings: &Settings) -> Result<Self, Error> {
        let mut connection = match server {
            Server::Ldapi { path } => {
                let stream = UnixStream::connect(path).await.map_err(Error::Connect)?;
                Self::over(Box::new(stream), settings)
            }
            Server::Ldaps { host, port } => {
                let stream = dial(host, *port, settings).await?;
                Self::over(secure(stream, host, settings).await?, settings)
            }
            Server::Ldap { host, port } => {
                let stream = dial(host, *port, settings).await?;
                if settings.start_tls {
                    let stream = ask_for_tls(stream, settings).await?;
                    Self::over(secure(stream, host, settings).await?, settings)
                } else {
                    let plain = Self::over(Box::new(stream), settings);
                    Self { may_be_for_tls: true, ..plain }
                }
            }
        };
        connection.bind(settings, settings.is_private(server)).await?;
        Ok(connection)
    }

    fn over(transport: Box<dyn Transport>, settings: &Settings) -> Self {
        Self {
            transport,
            buffer: Vec::new(),
            start: 0,
            outgoing: Zeroizing::default(),
            last_id: 0,
            bytes_max: settings.bytes_max,
            may_be_for_tls: false,
        }
    }

    async fn bind(&mut self, settings: &Settings, private: bool) -> Result<(), Error> {
        let request = match &settings.bind {
            Bind::Anonymous => return Ok(()),
            Bind::Simple { .. } if !private && !settings.allow_clear_password => {
                return Err(Error::ClearPassword);
            }
            Bind::Simple { dn, .. } => {
                Request::SimpleBind { dn, password: settings.password.as_bytes() }
            }
            Bind::External => Request::ExternalBind,
        };
        let id = self.queue(&request, &[]);
        self.flush().await?;
        loop {
            let response = self.receive().await?;
            match response.operation {
                Operation::BindDone(outcome) if response.id == id => {
                    return if outcome.code == code::SUCCESS {
                        Ok(())
                    } else {
                        let who = settings.who().to_owned();
                        Err(Error::Bind { who, outcome: outcome.to_string() })
                    };
                }
                _ => {}
            }
        }
    }

    /// Puts a request among those that the next [`flush`](Self::flush) sends; returns its id.
    pub fn queue(&mut self, request: &Request<'_>, controls: &[Control<'_>]) -> u32 {
        // Ids may come round again after 2³¹ requests, when the first are long answered.
        self.last_id = if self.last_id >= 0x7fff_ffff { 1 } else { self.last_id + 1 };
        let message = Zeroizing::new(request.encode(self.last_id, controls));
        if self.outgoing.capacity() - self.outgoing.len() < message.len() {
            // Nothing is left behind where it was.
            let mut larger =
                Vec::with_capacity((self.outgoing.len() + message.len()).next_power_of_two());
            larger.extend_from_slice(&self.outgoing);
            self.outgoing = Zeroizing::new(larger);
        }
        self.outgoing.extend_from_slice(&message);
        self.last_id
    }

    /// Whether something is queued.
    pub fn has_queued(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends what is queued.
    pub async fn flush(&mut self) -> Result<(), Error> {
        if !self.outgoing.is_empty() {
            let sent = async {
                self.transport.write_all(&self.outgoing).await?;
                self.transport.flush().await
            };
            let deadline = UNACKNOWLEDGED_MAX;
            timeout(deadline, sent)
                .await
                .map_err(|_| Error::Silent { what: "a request", deadline })??;
            self.outgoing.zeroize();
        }
        Ok(())
    }

    /// Waits until a whole message is here; may be given up at any point without loss.
    pub async fn ready(&mut self) -> Result<(), Error> {
        while !self.has_message()? {
            let count = match self.fill().await {
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset => 0,
                filled => filled?,
            };
            if count == 0 {
                return Err(if self.may_be_for_tls { Error::Wordless } else { Error::Closed });
            }
        }
        self.may_be_for_tls = false;
        Ok(())
    }

    /// Whether a whole message is here, also after taking what the kernel has already.
    pub async fn ready_now(&mut self) -> Result<bool, Error> {
        loop {
            if self.has_message()? {
                return Ok(true);
            }
            // A deadline that is over lets the read be tried once.
            match timeout(Duration::ZERO, self.fill()).await.ok().transpose()? {
                Some(1..) => {}
                _ => return Ok(false), // an end of file is met again by whoever waits
            }
        }
    }

    /// The next message: call it after [`ready`](Self::ready).
    pub fn take(&mut self) -> Result<Response<'_>, Error> {
        let response = Response::parse(self.take_bytes()?)?;
        if let (0, Operation::Extended(outcome, _)) = (response.id, response.operation) {
            return Err(Error::Disconnected(outcome.to_string()));
        }
        Ok(response)
    }

    /// The bytes of the next message: call it after [`ready`](Self::ready).
    pub fn take_bytes(&mut self) -> Result<&[u8], Error> {
        let Frame::Whole(length) = self.frame()? else {
            return Err(ber::Malformed("a message that is not whole").into());
        };
        let start = self.start;
        self.start += length;
        Ok(self.buffer.get(start..self.start).unwrap_or_default())
    }

    /// Waits for the next message.
    pub async fn receive(&mut self) -> Result<Response<'_>, Error> {
        self.ready().await?;
        self.take()
    }

    fn frame(&self) -> Result<Frame, Error> {
        Ok(ber::frame(self.buffer.get(self.start..).unwrap_or_default(), self.bytes_max)?)
    }

    fn has_message(&self) -> Result<bool, Error> {
        Ok(matches!(self.frame()?, Frame::Whole(_)))
    }

    /// Reads once; 0 at the end of the stream.
    async fn fill(&mut self) -> Result<usize, Error> {
        if self.start == self.buffer.len() {
            self.start = 0;
            self.buffer.clear();
            self.buffer.shrink_to(BUFFER_BYTES);
        }
        if self.buffer.capacity() - self.buffer.len() < READ_BYTES_MIN {
            self.buffer.drain(..self.start);
            self.start = 0;
            if self.buffer.capacity() - self.buffer.len() < READ_BYTES_MIN {
                // Doubles: what a length claims is believed only as its bytes arrive.
                self.buffer.reserve(self.buffer.len().max(BUFFER_BYTES));
            }
        }
        Ok(self.transport.read_buf(&mut self.buffer).await?)
    }

    /// Asks one question and hands each entry to `each`; for questions with few answers, while
    /// nothing else runs on the connection. Whoever asks has a deadline.
    async fn search(
        &mut self,
        request: SearchRequest<'_>,
        mut each: impl FnMut(&Response<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let base = request.base.to_owned();
        let id = self.queue(&Request::Search(request), &[]);
        self.flush().await?;
        loop {
            let response = self.receive().await?;
            match response.operation {
                Operation::SearchDone(outcome) if response.id == id => {
                    return if outcome.code == code::SUCCESS {
                        Ok(())
                    } else {
                        let outcome_text = outcome.to_string();
                        Err(Error::Search { base, outcome: outcome_text, code: outcome.code })
                    };
                }
                Operation::Entry(_) if response.id == id => each(&response)?,
                _ => {}
            }
        }
    }

    /// Whether the server lets us search: asks for one entry of many.
    pub async fn try_out(
        &mut self,
        base: &str,
        filter: &Filter,
        deadline: Duration,
    ) -> Result<(), Error> {
        let (scope, attributes) = (Scope::Subtree, &["1.1"][..]);
        let request = SearchRequest { base, scope, filter, attributes, entries_max: 1 };
        match timeout(deadline, self.search(request, |_| Ok(()))).await {
            Err(_) => Err(Error::Silent { what: "a search", deadline }),
            Ok(Err(Error::Search { code: code::SIZE_LIMIT, .. })) => Ok(()),
            Ok(outcome) => outcome,
        }
    }

    /// What the server says of itself.
    async fn root(&mut self) -> Result<Root, Error> {
        let mut root = Root::default();
        let filter = Filter::present("objectClass");
        let request = SearchRequest {
            base: "",
            scope: Scope::Base,
            filter: &filter,
            attributes: &[
                "supportedControl",
                "vendorName",
                "supportedCapabilities",
                "lastusn",
                "namingContexts",
            ],
            entries_max: 0,
        };
        self.search(request, |response| {
            if let Operation::Entry(entry) = response.operation {
                root.read(&entry)?;
            }
            Ok(())
        })
        .await?;
        Ok(root)
    }

    /// Says good-bye.
    pub async fn close(mut self) {
        self.queue(&Request::Unbind, &[]);
        let _ = self.flush().await;
        let _ = timeout(Duration::from_secs(1), self.transport.shutdown()).await;
    }
}

/// What a server's root entry tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Content synchronization.
    pub sync: bool,
    /// Persistent search.
    pub persistent_search: bool,
    /// Paged results.
    pub paged: bool,
    /// Update sequence numbers of the 389 directory server's kind.
    pub usn: bool,
    /// 389 directory server or a relative.
    pub is_389: bool,
    /// Active Directory or Samba.
    pub is_active_directory: bool,
    /// The databases' bases.
    contexts: Vec<String>,
}

impl Root {
    fn read(&mut self, entry: &crate::message::RawEntry<'_>) -> Result<(), Error> {
        for attribute in entry.attributes() {
            let (name, values) = attribute?;
            for value in values {
                let value = value?;
                if name.eq_ignore_ascii_case(b"supportedControl") {
                    self.sync |= value == oid::SYNC_REQUEST.as_bytes();
                    self.persistent_search |= value == oid::PERSISTENT_SEARCH.as_bytes();
                    self.paged |= value == oid::PAGED.as_bytes();
                } else if name.eq_ignore_ascii_case(b"namingContexts") {
                    self.contexts.extend(String::from_utf8(value.to_vec()));
                } else if name.eq_ignore_ascii_case(b"vendorName") {
                    self.is_389 |= printable(value).contains("389");
                } else if name.eq_ignore_ascii_case(b"supportedCapabilities") {
                    self.is_active_directory |= value == b"1.2.840.113556.1.4.800";
                } else if name.get(..7).is_some_and(|name| name.eq_ignore_ascii_case(b"lastusn")) {
                    self.usn = true; // lastusn or lastusn;backend
                }
            }
        }
        Ok(())
    }

    /// The base of the database that this base is in; the base itself where that is not told.
    #[must_use]
    pub fn context<'a>(&'a self, base: &'a str) -> &'a str {
        let canonical = dn::normalise(base.as_bytes());
        let holds = |context: &&String| {
            let context = dn::normalise(context.as_bytes());
            !context.is_empty() && dn::is_within(&canonical, &context)
        };
        let contexts = self.contexts.iter().filter(holds);
        contexts.max_by_key(|context| context.len()).map_or(base, String::as_str)
    }

    /// The attribute that holds an entry's lasting key, unless one is configured.
    #[must_use]
    pub fn uuid_attribute(&self) -> &'static str {
        if self.is_389 {
            "nsUniqueId"
        } else if self.is_active_directory {
            "objectGUID"
        } else {
            "entryUUID"
        }
    }

    /// The attribute that has another value after each change of an entry.
    #[must_use]
    pub fn stamp_attribute(&self) -> &'static str {
        if self.is_389 || self.is_active_directory { "modifyTimestamp" } else { "entryCSN" }
    }
}

async fn dial(host: &str, port: u16, settings: &Settings) -> Result<TcpStream, Error> {
    let addresses = settings.names.resolve(host, port).await.map_err(Error::Resolve)?;
    // One address that swallows packets must not use up the time of the others.
    let share = settings.connect_timeout / u32::try_from(addresses.len()).unwrap_or(1).clamp(1, 4);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                prepare(&stream).map_err(Error::Connect)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => {
                last =
                    io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer"));
            }
        }
    }
    Err(Error::Connect(last))
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))
}

/// Asks for TLS in clear; what the server sends before TLS is in place must be its answer alone.
async fn ask_for_tls(stream: TcpStream, settings: &Settings) -> Result<TcpStream, Error> {
    let mut stream = stream;
    stream.write_all(&Request::StartTls.encode(1, &[])).await?;
    let mut buffer = Vec::new();
    loop {
        match ber::frame(&buffer, settings.bytes_max.min(READ_BYTES_MIN))? {
            Frame::Whole(length) if length == buffer.len() => break,
            Frame::Whole(_) => {
                return Err(Error::Tls("the server sent more before TLS began".to_owned()));
            }
            Frame::Needs(_) => {
                if stream.read_buf(&mut buffer).await? == 0 {
                    return Err(Error::Wordless);
                }
            }
        }
    }
    match Response::parse(&buffer)?.operation {
        Operation::Extended(outcome, _) if outcome.code == code::SUCCESS => Ok(stream),
        Operation::Extended(outcome, _) => Err(Error::StartTls(outcome.to_string())),
        _ => Err(ber::Malformed("another answer than that to StartTLS").into()),
    }
}

async fn secure(
    stream: TcpStream,
    host: &str,
    settings: &Settings,
) -> Result<Box<dyn Transport>, Error> {
    let config = match &settings.tls {
        Some(config) => Arc::clone(config),
        None => of_the_host().and_then(tls_config).map_err(Error::Tls)?,
    };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| Error::Tls(format!("{host:?} is no name that a certificate could have")))?;
    let connector = tokio_rustls::TlsConnector::from(config);
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(Error::Tls(describe_tls(&error, host))),
    }
}

/// What may be wrong where TLS does not even begin.
const STARTS_PLAIN: &str = "; does its port speak TLS at once? One that does not, such as 389, takes ldap:// with start_tls = true";

/// Says which of the checks failed, and what would mend it.
fn describe_tls(error: &io::Error, host: &str) -> String {
    use rustls::CertificateError as Bad;
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(bad)) = tls else {
        // What is no TLS, or nothing at all: told of before any verdict on certificates.
        let is_strange = error.kind() == io::ErrorKind::UnexpectedEof
            || matches!(tls, Some(rustls::Error::InvalidMessage(_)));
        let hint = if is_strange { STARTS_PLAIN } else { "" };
        return format!("{error}{hint}");
    };
    match bad {
        Bad::Expired | Bad::ExpiredContext { .. } => {
            format!("the certificate has expired (or this host's clock is wrong): {bad}")
        }
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            format!("the certificate is not valid yet (or this host's clock is wrong): {bad}")
        }
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
            format!("the certificate is not for the name {host:?}: {bad}")
        }
        Bad::UnknownIssuer => {
            "the certificate is signed by no authority that is trusted here: name the authority's \
             PEM file with tls_ca"
                .to_owned()
        }
        // An error of a crate below, which can be told by its name alone.
        Bad::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the certificate is an authority's, as `openssl req -x509` makes it by default, and no \
             server's: have the server show one with basicConstraints=CA:FALSE"
                .to_owned()
        }
        _ => format!("the certificate is not accepted: {bad}"),
    }
}
