// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection to one server: LDAP messages over TCP, TLS or a local socket. `message` has the encoding, and
//! `server_selection` chooses the server.
//!
//! The caller pulls messages. Unread messages stay at the server, so there is no unbounded queue, and a slow reader
//! slows the server down. All are read in place, in one buffer that grows with the largest message, up to
//! `message_bytes_max`. The caller assigns a message to its search and interprets it. Referrals are not followed.

use crate::ber::{self, MessageFrame};
use crate::dn;
use crate::error::LdapError;
use crate::filter::EncodedFilter;
use crate::gssapi::{GssapiHelper, GssapiStep};
use crate::message::{
    LdapRequest, LdapResponse, RequestControl, ResponseOperation, Scope, SearchRequest, code, oid,
    printable,
};
use crate::operation_log::OperationLog;
use crate::resolve_host::HostResolver;
use crate::server_selection::describe;
use roster_config::{BindMethod, ClientCertificate, DomainSecrets, LdapConfig, LdapServer};
use roster_krb5_helper::bind_ipc::BindCall;
use roster_messages::table::directory;
use roster_provider::reason::Reason;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout};
use tracing::debug;
use zeroize::{Zeroize, Zeroizing};

/// First size of the buffer, and its size after a large message was read.
const BUFFER_BYTES: usize = 256 * 1024;
/// Minimum free space for a read.
const READ_BYTES_MIN: usize = 32 * 1024;
/// The kernel tests an idle connection after this time …
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// … and then at this interval, three times.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The connection has failed if sent data is not acknowledged within this time.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(20);

/// A stream of bytes: a socket or TLS.
trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// Parameters of new connections.
pub struct ConnectionSettings {
    bind: BindMethod,
    password: Zeroizing<String>,
    /// The program that makes binds by this host's key.
    gssapi: Option<Arc<GssapiHelper>>,
    start_tls: bool,
    allow_clear_password: bool,
    /// With the authorities of `tls_ca`. `None` uses the authorities that the host has at that time.
    tls: Option<Arc<rustls::ClientConfig>>,
    client_certificate: Option<ClientCertificate>,
    connect_timeout: Duration,
    bytes_max: usize,
    resolver: HostResolver,
}

impl ConnectionSettings {
    /// Makes settings from a domain's configuration. Fails if `tls_ca` is unusable or the password is missing.
    pub fn new(ldap: &LdapConfig, secrets: &DomainSecrets) -> Result<Self, String> {
        let certificate = secrets.client_certificate.as_ref();
        let tls =
            secrets.tls_ca.as_deref().map(|text| tls_config(configured_roots(text)?, certificate));
        let password = Zeroizing::new(secrets.bind_password.clone().unwrap_or_default());
        if let (BindMethod::Simple { dn, .. }, "") = (&ldap.bind, password.as_str()) {
            // A server treats a DN without a password as an anonymous bind, and reports success.
            return Err(format!("the password of bind_dn {dn:?} is empty"));
        }
        Ok(Self {
            bind: ldap.bind.clone(),
            password,
            gssapi: None,
            start_tls: ldap.start_tls,
            allow_clear_password: ldap.allow_clear_password,
            tls: tls.transpose()?,
            client_certificate: secrets.client_certificate.clone(),
            connect_timeout: ldap.connect_timeout,
            bytes_max: usize::try_from(ldap.message_bytes_max).unwrap_or(usize::MAX),
            resolver: HostResolver::default(),
        })
    }

    /// Adds the program that makes binds by this host's key.
    #[must_use]
    pub fn with_gssapi(self, gssapi: Option<Arc<GssapiHelper>>) -> Self {
        Self { gssapi, ..self }
    }

    /// Makes settings for connections that verify users' passwords. Such a connection starts without a bind.
    pub fn for_user_binds(ldap: &LdapConfig, secrets: &DomainSecrets) -> Result<Self, String> {
        let nobody = LdapConfig { bind: BindMethod::Anonymous, ..ldap.clone() };
        Self::new(&nobody, secrets)
    }

    /// Returns whether TLS protects a connection to that server, or the connection stays on this host.
    pub fn is_private(&self, server: &LdapServer) -> bool {
        match server {
            LdapServer::Ldapi { .. } | LdapServer::Ldaps { .. } => true,
            LdapServer::Ldap { .. } => self.start_tls || server.is_this_host(),
        }
    }

    /// Returns our identity at the server, for cookies and messages.
    pub fn bind_identity(&self) -> &str {
        match &self.bind {
            BindMethod::Anonymous => "anonymous",
            BindMethod::Simple { dn, .. } => dn,
            BindMethod::External => "SASL EXTERNAL",
            BindMethod::Gssapi(gssapi) => gssapi.principal.as_deref().unwrap_or("SASL GSSAPI"),
        }
    }
}

/// Parses the authorities of `tls_ca`.
fn configured_roots(text: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.extend(roster_config::trust_anchors(text).map_err(|why| format!("tls_ca {why}"))?);
    Ok(roots)
}

/// Reads the host's own authorities. Each connection reads them again, within milliseconds, because an update of the
/// host may add and remove some.
fn host_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let anchors = roster_config::host_anchors();
    let fix = roster_messages::table::config::HOST_AUTHORITIES_MISSING.fix;
    roots.extend(anchors.map_err(|why| format!("{why}. {fix}"))?);
    Ok(roots)
}

fn tls_config(
    roots: RootCertStore,
    certificate: Option<&ClientCertificate>,
) -> Result<Arc<rustls::ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?
        .with_root_certificates(roots);
    let config = match certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => {
            let (chain, key) = certificate.parse().map_err(|error| error.text)?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| format!("tls_cert: {error}"))?
        }
    };
    Ok(Arc::new(config))
}

/// A bound connection.
pub struct LdapConnection {
    transport: Box<dyn Transport>,
    /// Received bytes: messages from `start` on, the last possibly incomplete.
    buffer: Vec<u8>,
    start: usize,
    /// Wiped after it is sent, because it may contain a password.
    outgoing: Zeroizing<Vec<u8>>,
    last_id: u32,
    bytes_max: usize,
    /// Nothing was received yet. A server that expects TLS, or a certificate of the client, may close the connection.
    is_unanswered: bool,
    /// Another connection should replace this one then.
    renew_at: Option<Instant>,
    operations: OperationLog,
}

impl fmt::Debug for LdapConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("last_id", &self.last_id).finish_non_exhaustive()
    }
}

impl LdapConnection {
    /// Connects, secures and binds, and reads the root DSE. All of that has to end within `connect_timeout`, because a
    /// server may accept connections and never reply. Without a bind, its first message is the root DSE.
    pub async fn open(
        server: &LdapServer,
        settings: &ConnectionSettings,
    ) -> Result<(Self, RootDse), LdapError> {
        Self::open_with(server, settings, true).await
    }

    /// Opens a connection only to check whether the server replies. A bind by this host's key is left out, because the
    /// check may not depend on a KDC.
    pub async fn open_for_check(
        server: &LdapServer,
        settings: &ConnectionSettings,
    ) -> Result<(Self, RootDse), LdapError> {
        let binds = !matches!(settings.bind, BindMethod::Gssapi(_));
        Self::open_with(server, settings, binds).await
    }

    async fn open_with(
        server: &LdapServer,
        settings: &ConnectionSettings,
        binds: bool,
    ) -> Result<(Self, RootDse), LdapError> {
        let deadline = settings.connect_timeout;
        let opened = async {
            let mut connection = Self::establish(server, settings, binds).await?;
            let root = connection.read_root_dse().await?;
            Ok((connection, root))
        };
        timeout(deadline, opened).await.unwrap_or(Err(LdapError::NoReply {
            what: "connect, bind and a first question",
            deadline,
        }))
    }

    /// Connects and secures, within `connect_timeout`. Sends no request.
    pub async fn connect(
        server: &LdapServer,
        settings: &ConnectionSettings,
    ) -> Result<Self, LdapError> {
        let deadline = settings.connect_timeout;
        timeout(deadline, Self::establish(server, settings, true))
            .await
            .unwrap_or(Err(LdapError::NoReply { what: "connect", deadline }))
    }

    /// Requests the root DSE and returns whether the server replies. Any reply counts.
    pub async fn is_responsive(&mut self) -> bool {
        let filter = EncodedFilter::present("objectClass");
        let (scope, attributes) = (Scope::Base, &["1.1"][..]);
        let request =
            SearchRequest { base: "", scope, filter: &filter, attributes, entries_max: 1 };
        match self.search(request, |_| Ok(())).await {
            Ok(()) | Err(LdapError::Search { .. }) => true,
            Err(_) => false,
        }
    }

    /// Sends one request and waits for its reply. Nothing else may run on the connection, and the caller sets the
    /// deadline. The result borrows the buffer.
    pub async fn exchange(
        &mut self,
        request: &LdapRequest<'_>,
        controls: &[RequestControl<'_>],
    ) -> Result<LdapResponse<'_>, LdapError> {
        let id = self.queue(request, controls);
        self.flush().await?;
        loop {
            self.ready().await?;
            if self.peek_id()? == id {
                return self.take_response();
            }
            // The reply to an abandoned request, or the notice of disconnection.
            self.take_response()?;
        }
    }

    fn peek_id(&self) -> Result<u32, LdapError> {
        let MessageFrame::Whole(length) = self.frame()? else {
            return Err(ber::BerError("an incomplete message").into());
        };
        let bytes = self.buffer.get(self.start..self.start + length).unwrap_or_default();
        Ok(LdapResponse::parse(bytes)?.id)
    }

    async fn establish(
        server: &LdapServer,
        settings: &ConnectionSettings,
        binds: bool,
    ) -> Result<Self, LdapError> {
        let begun = Instant::now();
        let opened = open_transport(server, settings).await;
        log_step(server, "connect", begun, &opened);
        let operations = OperationLog::new(describe(server));
        // `clear` is the socket of a connection without TLS, which a bind by this host's key encrypts.
        let OpenTransport { stream, clear } = opened?;
        let mut connection = Self::from_transport(stream, settings, operations);
        connection.is_unanswered = !matches!(server, LdapServer::Ldapi { .. });
        if !binds {
            drop(clear);
        } else if let BindMethod::Gssapi(_) = &settings.bind {
            connection.bind_gssapi(settings, server, clear).await?;
        } else {
            drop(clear);
            connection.bind(settings, settings.is_private(server)).await?;
        }
        Ok(connection)
    }

    fn from_transport(
        transport: Box<dyn Transport>,
        settings: &ConnectionSettings,
        operations: OperationLog,
    ) -> Self {
        Self {
            transport,
            buffer: Vec::new(),
            start: 0,
            outgoing: Zeroizing::default(),
            last_id: 0,
            bytes_max: settings.bytes_max,
            is_unanswered: false,
            renew_at: None,
            operations,
        }
    }

    /// Returns the time at which another connection should replace this one, because its ticket ends soon after.
    pub fn renew_at(&self) -> Option<Instant> {
        self.renew_at
    }

    async fn bind(
        &mut self,
        settings: &ConnectionSettings,
        private: bool,
    ) -> Result<(), LdapError> {
        let request = match &settings.bind {
            // Binds by a key have their own function.
            BindMethod::Anonymous | BindMethod::Gssapi(_) => return Ok(()),
            BindMethod::Simple { .. } if !private && !settings.allow_clear_password => {
                return Err(LdapError::ClearPassword);
            }
            BindMethod::Simple { dn, .. } => {
                LdapRequest::SimpleBind { dn, password: settings.password.as_bytes() }
            }
            BindMethod::External => LdapRequest::ExternalBind,
        };
        let id = self.queue(&request, &[]);
        self.flush().await?;
        loop {
            let response = self.receive().await?;
            match response.operation {
                ResponseOperation::BindDone(outcome) if response.id == id => {
                    return if outcome.code == code::SUCCESS {
                        Ok(())
                    } else {
                        let who = settings.bind_identity().to_owned();
                        Err(LdapError::Bind { who, outcome: outcome.to_string() })
                    };
                }
                _ => {}
            }
        }
    }

    /// Binds by this host's key. With the socket of a connection without TLS, the connection is encrypted from then on.
    async fn bind_gssapi(
        &mut self,
        settings: &ConnectionSettings,
        server: &LdapServer,
        clear: Option<OwnedFd>,
    ) -> Result<(), LdapError> {
        let (Some(helper), LdapServer::Ldap { host, .. } | LdapServer::Ldaps { host, .. }) =
            (&settings.gssapi, server)
        else {
            let text = "a bind by GSSAPI is not set up for this server";
            return Err(LdapError::Gssapi(Reason::new(&directory::GSSAPI_FAILED, text)));
        };
        let call = BindCall::Start {
            host: host.clone(),
            deadline: settings.connect_timeout,
            seals: clear.is_some(),
            channel_binding: Vec::new(),
        };
        let begun = helper.begin(&call, clear.as_ref().map(AsFd::as_fd)).await;
        let mut exchange = begun.map_err(LdapError::Gssapi)?;
        let principal = loop {
            let (token, last) = match exchange.next().await.map_err(LdapError::Gssapi)? {
                GssapiStep::Token(token) => (token, None),
                GssapiStep::Last(token, renewal, principal) => (token, Some((renewal, principal))),
            };
            let reply = self.gssapi_round(settings, &token).await?;
            match (reply, last) {
                (Some(reply), None) => exchange.answer(&reply).await.map_err(LdapError::Gssapi)?,
                (None, Some((renewal, principal))) => {
                    self.renew_at = Some(Instant::now() + renewal);
                    break principal;
                }
                // Success before the server has proven its identity, or none after.
                _ => {
                    let text = "the server ends the exchange too early or too late";
                    let reason = Reason::new(&directory::GSSAPI_BIND_REJECTED, text);
                    return Err(LdapError::Gssapi(reason));
                }
            }
        };
        tracing::debug!(principal, "bound by GSSAPI");
        if clear.is_some() {
            // An attacker on the path may have sent bytes that arrived before the encryption.
            if self.start != self.buffer.len() {
                return Err(ber::BerError("data before the encryption by GSSAPI").into());
            }
            let sealed = exchange.into_sealed().await.map_err(LdapError::Gssapi)?;
            self.transport = Box::new(sealed);
        }
        Ok(())
    }

    /// Sends a token. Returns the next token of the server, or `None` for its success.
    async fn gssapi_round(
        &mut self,
        settings: &ConnectionSettings,
        token: &[u8],
    ) -> Result<Option<Vec<u8>>, LdapError> {
        match self.exchange(&LdapRequest::GssapiBind(token), &[]).await?.operation {
            ResponseOperation::BindStep(token) => Ok(Some(token.to_vec())),
            ResponseOperation::BindDone(outcome) if outcome.code == code::SUCCESS => Ok(None),
            ResponseOperation::BindDone(outcome) => {
                let text = format!("bind as {} failed: {outcome}", settings.bind_identity());
                let reason = Reason::new(&directory::GSSAPI_BIND_REJECTED, text);
                Err(LdapError::Gssapi(reason))
            }
            _ => Err(ber::BerError("a reply to another request than the bind").into()),
        }
    }

    /// Queues a request for the next [`flush`](Self::flush). Returns its id.
    pub fn queue(&mut self, request: &LdapRequest<'_>, controls: &[RequestControl<'_>]) -> u32 {
        // Ids repeat after 2³¹ requests. The replies to the first requests arrived long before.
        self.last_id = if self.last_id >= 0x7fff_ffff { 1 } else { self.last_id + 1 };
        self.operations.sent(self.last_id, request, controls);
        let message = Zeroizing::new(request.encode(self.last_id, controls));
        if self.outgoing.capacity() - self.outgoing.len() < message.len() {
            // A reallocation would leave a copy of the bytes behind.
            let mut larger =
                Vec::with_capacity((self.outgoing.len() + message.len()).next_power_of_two());
            larger.extend_from_slice(&self.outgoing);
            self.outgoing = Zeroizing::new(larger);
        }
        self.outgoing.extend_from_slice(&message);
        self.last_id
    }

    /// Returns whether a request is queued.
    pub fn has_queued(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends the queued requests.
    pub async fn flush(&mut self) -> Result<(), LdapError> {
        if !self.outgoing.is_empty() {
            let sent = async {
                self.transport.write_all(&self.outgoing).await?;
                self.transport.flush().await
            };
            let deadline = UNACKNOWLEDGED_MAX;
            timeout(deadline, sent)
                .await
                .map_err(|_| LdapError::NoReply { what: "a request", deadline })??;
            self.outgoing.zeroize();
        }
        Ok(())
    }

    /// Waits until a whole message is here. Cancel-safe.
    pub async fn ready(&mut self) -> Result<(), LdapError> {
        while !self.has_message()? {
            let count = match self.fill().await {
                Err(LdapError::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset => 0,
                // TLS without its own end.
                Err(LdapError::Io(error))
                    if self.is_unanswered && error.kind() == io::ErrorKind::UnexpectedEof =>
                {
                    0
                }
                // With TLS 1.3, the server checks the certificate of the client after the handshake.
                Err(LdapError::Io(error)) if is_client_rejected(&error) => {
                    return Err(LdapError::Tls(describe_tls(&error, "")));
                }
                filled => filled?,
            };
            if count == 0 {
                return Err(if self.is_unanswered {
                    LdapError::ClosedBeforeReply
                } else {
                    LdapError::Closed
                });
            }
        }
        self.is_unanswered = false;
        Ok(())
    }

    /// Returns whether a whole message is here. Also reads the bytes that the kernel has received.
    pub async fn ready_now(&mut self) -> Result<bool, LdapError> {
        loop {
            if self.has_message()? {
                return Ok(true);
            }
            // An expired deadline still lets the read run once.
            match timeout(Duration::ZERO, self.fill()).await.ok().transpose()? {
                Some(1..) => {}
                _ => return Ok(false), // the next reader meets the end of file again
            }
        }
    }

    /// Returns the next message. Requires [`ready`](Self::ready).
    pub fn take_response(&mut self) -> Result<LdapResponse<'_>, LdapError> {
        let (_, response) = self.take_message()?;
        if let (0, ResponseOperation::Extended(outcome, _)) = (response.id, response.operation) {
            return Err(LdapError::Disconnected(outcome.to_string()));
        }
        Ok(response)
    }

    /// Returns the next message with its bytes. Requires [`ready`](Self::ready).
    pub fn take_message(&mut self) -> Result<(&[u8], LdapResponse<'_>), LdapError> {
        let MessageFrame::Whole(length) = self.frame()? else {
            return Err(ber::BerError("an incomplete message").into());
        };
        let start = self.start;
        self.start += length;
        let bytes = self.buffer.get(start..self.start).unwrap_or_default();
        let response = LdapResponse::parse(bytes)?;
        self.operations.received(&response);
        Ok((bytes, response))
    }

    /// Waits for the next message.
    pub async fn receive(&mut self) -> Result<LdapResponse<'_>, LdapError> {
        self.ready().await?;
        self.take_response()
    }

    fn frame(&self) -> Result<MessageFrame, LdapError> {
        Ok(ber::frame(self.buffer.get(self.start..).unwrap_or_default(), self.bytes_max)?)
    }

    fn has_message(&self) -> Result<bool, LdapError> {
        Ok(matches!(self.frame()?, MessageFrame::Whole(_)))
    }

    /// Reads once. Returns 0 at the end of the stream.
    async fn fill(&mut self) -> Result<usize, LdapError> {
        if self.start == self.buffer.len() {
            self.start = 0;
            self.buffer.clear();
            self.buffer.shrink_to(BUFFER_BYTES);
        }
        if self.buffer.capacity() - self.buffer.len() < READ_BYTES_MIN {
            self.buffer.drain(..self.start);
            self.start = 0;
            if self.buffer.capacity() - self.buffer.len() < READ_BYTES_MIN {
                // Doubles the buffer. A claimed length allocates nothing before its bytes arrive.
                self.buffer.reserve(self.buffer.len().max(BUFFER_BYTES));
            }
        }
        Ok(self.transport.read_buf(&mut self.buffer).await?)
    }

    /// Runs one search and passes each entry to `each`. For searches with few results, while nothing else runs on the
    /// connection. The caller sets the deadline.
    async fn search(
        &mut self,
        request: SearchRequest<'_>,
        mut each: impl FnMut(&LdapResponse<'_>) -> Result<(), LdapError>,
    ) -> Result<(), LdapError> {
        let base = request.base.to_owned();
        let id = self.queue(&LdapRequest::Search(request), &[]);
        self.flush().await?;
        loop {
            let response = self.receive().await?;
            match response.operation {
                ResponseOperation::SearchDone(outcome) if response.id == id => {
                    return if outcome.code == code::SUCCESS {
                        Ok(())
                    } else {
                        let outcome_text = outcome.to_string();
                        Err(LdapError::Search { base, outcome: outcome_text, code: outcome.code })
                    };
                }
                ResponseOperation::Entry(_) if response.id == id => each(&response)?,
                _ => {}
            }
        }
    }

    /// Checks that the server accepts a search: requests one entry.
    pub async fn try_search(
        &mut self,
        base: &str,
        scope: Scope,
        filter: &EncodedFilter,
        deadline: Duration,
    ) -> Result<(), LdapError> {
        let attributes = &["1.1"][..];
        let request = SearchRequest { base, scope, filter, attributes, entries_max: 1 };
        match timeout(deadline, self.search(request, |_| Ok(()))).await {
            Err(_) => Err(LdapError::NoReply { what: "a search", deadline }),
            Ok(Err(LdapError::Search { code: code::SIZE_LIMIT, .. })) => Ok(()),
            Ok(outcome) => outcome,
        }
    }

    /// Reads the SID of the Active Directory domain with this naming context, in binary form. Empty if the entry does
    /// not show it.
    pub async fn read_domain_sid(
        &mut self,
        context: &str,
        deadline: Duration,
    ) -> Result<Vec<u8>, LdapError> {
        let filter = EncodedFilter::present("objectClass");
        let (scope, attributes) = (Scope::Base, &["objectSid"][..]);
        let request =
            SearchRequest { base: context, scope, filter: &filter, attributes, entries_max: 0 };
        let mut sid = Vec::new();
        let read = self.search(request, |response| {
            if let ResponseOperation::Entry(entry) = response.operation
                && let Some(value) = entry.values("objectSid")?.next()
            {
                sid = value?.to_vec();
            }
            Ok(())
        });
        match timeout(deadline, read).await {
            Err(_) => Err(LdapError::NoReply { what: "a search for the domain", deadline }),
            Ok(outcome) => outcome.map(|()| sid),
        }
    }

    /// Reads the root DSE.
    async fn read_root_dse(&mut self) -> Result<RootDse, LdapError> {
        let mut root = RootDse::default();
        let filter = EncodedFilter::present("objectClass");
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
            if let ResponseOperation::Entry(entry) = response.operation {
                root.read(&entry)?;
            }
            Ok(())
        })
        .await?;
        Ok(root)
    }

    /// Sends an unbind request and closes the connection.
    pub async fn close(mut self) {
        self.queue(&LdapRequest::Unbind, &[]);
        let _ = self.flush().await;
        let _ = timeout(Duration::from_secs(1), self.transport.shutdown()).await;
    }
}

/// Properties of a server, from its root DSE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RootDse {
    /// Content synchronization (RFC 4533).
    pub sync: bool,
    /// Persistent search.
    pub persistent_search: bool,
    /// Paged results.
    pub paged: bool,
    /// Update sequence numbers as 389 Directory Server has them.
    pub usn: bool,
    /// 389 Directory Server or a derivative.
    pub is_389: bool,
    /// Active Directory or Samba.
    pub is_active_directory: bool,
    /// The bases of the databases.
    contexts: Vec<String>,
}

impl RootDse {
    fn read(&mut self, entry: &crate::message::RawEntry<'_>) -> Result<(), LdapError> {
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

    /// Returns the base of the database that contains this base. Returns the base itself if the server does not list
    /// it.
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

    /// Returns the attribute of the permanent key of an entry, for a domain that configures none.
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

    /// Returns the attribute that changes with each change of an entry.
    #[must_use]
    pub fn stamp_attribute(&self) -> &'static str {
        if self.is_389 || self.is_active_directory { "modifyTimestamp" } else { "entryCSN" }
    }
}

/// Logs a step before the first request.
fn log_step<T>(server: &LdapServer, step: &str, begun: Instant, outcome: &Result<T, LdapError>) {
    let ms = begun.elapsed().as_micros() as f64 / 1000.0;
    match outcome {
        Ok(_) => debug!(server = describe(server), result = "success", ms, "{step}"),
        Err(error) => debug!(server = describe(server), result = %error, ms, "{step}"),
    }
}

/// A connected stream, before the bind.
struct OpenTransport {
    stream: Box<dyn Transport>,
    /// The socket, if the connection has no TLS.
    clear: Option<OwnedFd>,
}

/// Connects to a server, with TLS if that is configured.
async fn open_transport(
    server: &LdapServer,
    settings: &ConnectionSettings,
) -> Result<OpenTransport, LdapError> {
    let stream: Box<dyn Transport> = match server {
        LdapServer::Ldapi { path } => {
            Box::new(UnixStream::connect(path).await.map_err(LdapError::Connect)?)
        }
        LdapServer::Ldaps { host, port } => {
            secure(dial(host, *port, settings).await?, host, settings).await?
        }
        LdapServer::Ldap { host, port } => {
            let stream = dial(host, *port, settings).await?;
            if !settings.start_tls {
                let clear = Some(stream.as_fd().try_clone_to_owned()?);
                return Ok(OpenTransport { stream: Box::new(stream), clear });
            }
            let begun = Instant::now();
            let stream = request_tls(stream, settings).await;
            log_step(server, "StartTLS", begun, &stream);
            secure(stream?, host, settings).await?
        }
    };
    Ok(OpenTransport { stream, clear: None })
}

async fn dial(
    host: &str,
    port: u16,
    settings: &ConnectionSettings,
) -> Result<TcpStream, LdapError> {
    let addresses = settings.resolver.resolve(host, port).await.map_err(LdapError::Resolve)?;
    // An address that drops packets must not consume the time of the others.
    let share = settings.connect_timeout / u32::try_from(addresses.len()).unwrap_or(1).clamp(1, 4);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                prepare(&stream).map_err(LdapError::Connect)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => {
                last = io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not reply"));
            }
        }
    }
    Err(LdapError::Connect(last))
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

/// Requests TLS in clear text. Before TLS starts, the server may send the reply to this request and no other byte.
async fn request_tls(
    stream: TcpStream,
    settings: &ConnectionSettings,
) -> Result<TcpStream, LdapError> {
    let mut stream = stream;
    stream.write_all(&LdapRequest::StartTls.encode(1, &[])).await?;
    let mut buffer = Vec::new();
    loop {
        match ber::frame(&buffer, settings.bytes_max.min(READ_BYTES_MIN))? {
            MessageFrame::Whole(length) if length == buffer.len() => break,
            MessageFrame::Whole(_) => {
                return Err(tls_failed("the server sent data before TLS began"));
            }
            MessageFrame::Needs(_) => {
                if stream.read_buf(&mut buffer).await? == 0 {
                    return Err(LdapError::ClosedBeforeReply);
                }
            }
        }
    }
    match LdapResponse::parse(&buffer)?.operation {
        ResponseOperation::Extended(outcome, _) if outcome.code == code::SUCCESS => Ok(stream),
        ResponseOperation::Extended(outcome, _) => Err(LdapError::StartTls(outcome.to_string())),
        _ => Err(ber::BerError("a reply to another request than StartTLS").into()),
    }
}

async fn secure(
    stream: TcpStream,
    host: &str,
    settings: &ConnectionSettings,
) -> Result<Box<dyn Transport>, LdapError> {
    let config = match &settings.tls {
        Some(config) => Arc::clone(config),
        None => {
            let certificate = settings.client_certificate.as_ref();
            host_roots().and_then(|roots| tls_config(roots, certificate)).map_err(tls_failed)?
        }
    };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| tls_failed(format!("{host:?} is not a valid name for a certificate")))?;
    let connector = tokio_rustls::TlsConnector::from(config);
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(LdapError::Tls(describe_tls(&error, host))),
    }
}

/// Returns whether the server rejects the certificate of this host, or demands one.
fn is_client_rejected(error: &io::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        tls,
        Some(rustls::Error::AlertReceived(
            Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                | Alert::CertificateRequired
        ))
    )
}

/// Describes the check that failed.
fn describe_tls(error: &io::Error, host: &str) -> Reason {
    use rustls::CertificateError as Bad;
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if is_client_rejected(error) {
        let text = format!("the server rejects the client certificate: {error}");
        return Reason::new(&directory::CLIENT_CERTIFICATE_REJECTED, text);
    }
    let Some(rustls::Error::InvalidCertificate(bad)) = tls else {
        // The server does not speak TLS, or sent nothing. This is known before any certificate is checked.
        let is_strange = error.kind() == io::ErrorKind::UnexpectedEof
            || matches!(tls, Some(rustls::Error::InvalidMessage(_)));
        let message = if is_strange { &directory::TLS_NOT_SPOKEN } else { &directory::TLS_FAILED };
        return Reason::new(message, error.to_string());
    };
    let (message, text) = match bad {
        Bad::Expired | Bad::ExpiredContext { .. } => {
            (&directory::TLS_CERTIFICATE_EXPIRED, format!("the certificate has expired: {bad}"))
        }
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => (
            &directory::TLS_CERTIFICATE_EXPIRED,
            format!("the certificate is not valid yet: {bad}"),
        ),
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => (
            &directory::TLS_CERTIFICATE_NAME,
            format!("the certificate is not for the name {host:?}: {bad}"),
        ),
        Bad::UnknownIssuer => (
            &directory::TLS_AUTHORITY_UNKNOWN,
            "the certificate is from an unknown authority".to_owned(),
        ),
        // An error of a lower crate, which only its name identifies.
        Bad::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => (
            &directory::TLS_AUTHORITY_AS_SERVER,
            "the certificate is that of an authority".to_owned(),
        ),
        _ => (&directory::TLS_FAILED, format!("the certificate is not accepted: {bad}")),
    };
    Reason::new(message, text)
}

fn tls_failed(text: impl Into<String>) -> LdapError {
    LdapError::Tls(Reason::new(&directory::TLS_FAILED, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::AlertDescription as Alert;

    #[test]
    fn tls_alert_about_client_certificate_has_code() {
        let reason = |alert| {
            describe_tls(&io::Error::other(rustls::Error::AlertReceived(alert)), "ldap1").message
        };
        for alert in [Alert::CertificateRequired, Alert::UnknownCA, Alert::CertificateExpired] {
            assert_eq!(reason(alert), &directory::CLIENT_CERTIFICATE_REJECTED);
        }
        assert_eq!(reason(Alert::ProtocolVersion), &directory::TLS_FAILED);
    }
}
