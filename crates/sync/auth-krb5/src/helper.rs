// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts the program `roster-krb5`, configures it, and sends it requests. `roster_krb5_helper::ipc` has the messages,
//! and `kdc_selection` the KDCs.

use parking_lot::{Mutex, MutexGuard};
use roster_config::{GssapiConfig, KeytabState, Krb5Config};
use roster_krb5_helper::bind_ipc::BindSetup;
use roster_krb5_helper::ipc::{HelperReply, HelperRequest, HelperSetup, MessageBuffer};
use roster_krb5_helper::kdc_errors::KdcOutcome;
use roster_krb5_helper::realm::Realm;
use roster_messages::log;
use roster_messages::table::{directory, login};
use roster_provider::reason::Reason;
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Blocking;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use zeroize::Zeroizing;

/// The name of the program.
const PROGRAM: &str = "roster-krb5";
/// Extra time beyond a request's deadline, which the program observes.
const GRACE: Duration = Duration::from_secs(1);
/// Requests that wait while the program processes its maximum of logins.
const REQUESTS_MAX: usize = 64;
/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;

/// The running program.
pub struct Krb5HelperProcess {
    socket: Blocking,
    /// The helper. It ends when the socket closes, and stays a child until this process ends.
    _child: Child,
}

impl Krb5HelperProcess {
    /// Starts it, while the process may still execute programs, and sends it its setup. `keytab` is the result of the
    /// monitor's read. An error is for the log and for failed logins.
    ///
    /// # Errors
    ///
    /// It is not installed, cannot be started, or would lack keys that it needs.
    pub fn start(krb5: &Krb5Config, keytab: &KeytabState) -> Result<Self, Reason> {
        let keytab = match keytab {
            KeytabState::None => &[][..],
            KeytabState::Keys(bytes) => bytes,
            KeytabState::Unusable { code, why, .. } => {
                let message = roster_messages::find(code).unwrap_or(&login::KEYTAB_UNUSABLE);
                return Err(Reason::new(message, why.clone()));
            }
        };
        let program = program().ok_or_else(missing_program)?;
        Self::start_program(&program, krb5, keytab)
    }

    fn start_program(program: &Path, krb5: &Krb5Config, keytab: &[u8]) -> Result<Self, Reason> {
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let setup = HelperSetup {
            realm: crate::realm(krb5),
            keytab: Zeroizing::new(keytab.to_vec()),
            fast_principal: krb5.fast_principal.clone().unwrap_or_default(),
            life_seconds: seconds(krb5.lifetime),
            renewable_seconds: seconds(krb5.renewable),
            forwardable: krb5.forwardable,
            ports: ports(krb5),
        };
        let (socket, child) = spawn(program, "serve", &setup.encode())?;
        Ok(Self { socket, _child: child })
    }
}

/// The running program for binds at a directory by this host's key.
pub struct BindHelperProcess {
    socket: Blocking,
    /// As in [`Krb5HelperProcess`].
    child: Child,
}

impl BindHelperProcess {
    /// Starts it, while the process may still execute programs, and sends it its setup. `keytab` is the result of the
    /// monitor's read.
    ///
    /// # Errors
    ///
    /// It is not installed, cannot be started, or lacks keys.
    pub fn start(gssapi: &GssapiConfig, keytab: &KeytabState) -> Result<Self, Reason> {
        let keytab = match keytab {
            KeytabState::Keys(bytes) => bytes,
            KeytabState::None => {
                return Err(Reason::new(&directory::BIND_KEY_MISSING, "the keytab was not read"));
            }
            KeytabState::Unusable { code, why, instead } => {
                let message = roster_messages::find(code).unwrap_or(&directory::BIND_KEY_MISSING);
                return Err(Reason::new(message, format!("{why}. {instead}")));
            }
        };
        let GssapiConfig { principal, realm, kdcs, discover, .. } = gssapi;
        let setup = BindSetup {
            realm: Realm {
                name: realm.clone(),
                kdcs: kdcs.clone(),
                kpasswds: Vec::new(),
                discover: *discover,
            },
            keytab: Zeroizing::new(keytab.clone()),
            principal: principal.clone().unwrap_or_default(),
            ports: if *discover { Vec::new() } else { port_numbers(kdcs.iter()) },
        };
        let program = program().ok_or_else(missing_program)?;
        let (socket, child) = spawn(&program, "bind", &setup.encode())?;
        Ok(Self { socket, child })
    }

    /// Returns its socket and the process, which stays a child until this process ends.
    #[must_use]
    pub fn into_parts(self) -> (Blocking, Child) {
        (self.socket, self.child)
    }
}

fn missing_program() -> Reason {
    let text = format!("{PROGRAM} is not installed; Kerberos authentication is unavailable");
    Reason::new(&login::KRB5_HELPER_MISSING, text)
}

/// Starts the program in this mode and sends it its setup.
fn spawn(program: &Path, mode: &str, setup: &[u8]) -> Result<(Blocking, Child), Reason> {
    let failed = |error: io::Error| {
        let text = format!("{} cannot be started: {error}", program.display());
        Reason::new(&login::KRB5_HELPER_NOT_STARTED, text)
    };
    let (ours, theirs) = Blocking::pair().map_err(failed)?;
    let child = Command::new(program)
        .arg(mode)
        .env_clear()
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    // It is shorter than the buffer of a socket.
    (&ours).write_all(setup).map_err(failed)?;
    Ok((ours, child))
}

/// Returns the path: beside this program, as built, or below the same prefix, as installed.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folder = own.parent()?;
    let installed = folder.parent().unwrap_or(Path::new("/")).join("libexec/roster");
    [folder, &installed].map(|folder| folder.join(PROGRAM)).into_iter().find(|path| path.is_file())
}

/// Returns the ports of all configured servers; empty if DNS names more.
fn ports(krb5: &Krb5Config) -> Vec<u16> {
    /// The standard port of password changes.
    const KPASSWD: u16 = 464;
    if krb5.discover {
        return Vec::new();
    }
    [port_numbers(krb5.kdcs.iter().chain(&krb5.kpasswd)), vec![KPASSWD]].concat()
}

fn port_numbers<'s>(servers: impl Iterator<Item = &'s String>) -> Vec<u16> {
    servers.filter_map(|server| server.rsplit_once(':')?.1.parse().ok()).collect()
}

/// Client of the program.
pub struct HelperClient {
    requests: mpsc::Sender<HelperRequest>,
    state: Mutex<ClientState>,
    ended: watch::Sender<bool>,
    _child: Option<Child>,
}

struct ClientState {
    /// Reason why requests are impossible.
    failure: Option<Reason>,
    next: u64,
    pending: HashMap<u64, oneshot::Sender<HelperReply>>,
}

impl HelperClient {
    pub fn new(helper: Result<Krb5HelperProcess, Reason>) -> Arc<Self> {
        let joined = helper.and_then(|Krb5HelperProcess { socket, _child: child }| {
            let stream = socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket));
            let failed = |error| {
                let text = format!("{PROGRAM} is not reachable: {error}");
                Reason::new(&login::KRB5_HELPER_NOT_STARTED, text)
            };
            Ok((stream.map_err(failed)?, child))
        });
        let (broken, stream, child) = match joined {
            Ok((stream, child)) => (None, Some(stream.into_split()), Some(child)),
            Err(why) => {
                log!(ERROR, why.message, "Kerberos logins: {why}");
                (Some(why), None, None)
            }
        };
        let (requests, queue) = mpsc::channel(REQUESTS_MAX);
        let line = Arc::new(Self {
            requests,
            state: Mutex::new(ClientState { failure: broken, next: 1, pending: HashMap::new() }),
            ended: watch::Sender::new(false),
            _child: child,
        });
        if let Some((reader, writer)) = stream {
            tokio::spawn(Arc::clone(&line).read_replies(reader));
            tokio::spawn(Arc::clone(&line).write_requests(writer, queue));
        }
        line
    }

    fn state(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock()
    }

    /// Returns when the program has ended unexpectedly, so that a restart may help.
    pub async fn ended(&self) {
        // `self` owns the sender.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Sends a request. This function assigns its number.
    pub async fn send_request(&self, mut request: HelperRequest) -> HelperReply {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.state();
            if let Some(why) = &state.failure {
                let failed = HelperReply::from_outcome(0, KdcOutcome::Failed, why.text.clone());
                let failed = failed.with_message(why.message);
                return HelperReply { is_surely_unchanged: true, ..failed };
            }
            request.id = state.next;
            state.next += 1;
            state.pending.insert(request.id, sender);
        }
        let _gone = PendingRequest { client: self, id: request.id };
        let (id, until) = (request.id, request.deadline + GRACE);
        let answered = timeout(until, async {
            self.requests.send(request).await.ok()?;
            receiver.await.ok()
        });
        match answered.await {
            Ok(Some(reply)) => reply,
            Ok(None) => {
                let why = format!("{PROGRAM} has ended");
                HelperReply::from_outcome(id, KdcOutcome::Failed, why)
                    .with_message(&login::KRB5_HELPER_ENDED)
            }
            // This host is slow; the state of the KDCs is unknown.
            Err(_) => {
                let why = format!("{PROGRAM} did not reply in time");
                HelperReply::from_outcome(id, KdcOutcome::Failed, why)
                    .with_message(&login::KRB5_HELPER_TIMEOUT)
            }
        }
    }

    /// Writes complete requests, one after the other. It skips requests without a waiting caller.
    async fn write_requests(
        self: Arc<Self>,
        mut writer: OwnedWriteHalf,
        mut queue: mpsc::Receiver<HelperRequest>,
    ) {
        while let Some(request) = queue.recv().await {
            if !self.state().pending.contains_key(&request.id) {
                continue;
            }
            if writer.write_all(&request.encode()).await.is_err() {
                // The reader finds the reason.
                return;
            }
        }
    }

    async fn read_replies(self: Arc<Self>, mut reader: OwnedReadHalf) {
        let mut incoming = MessageBuffer::default();
        let mut bytes = Zeroizing::new([0; READ_BYTES]);
        let why = loop {
            match reader.read(&mut bytes[..]).await {
                Ok(0) => break ended_reason("has ended"),
                Ok(read) => incoming.push(&bytes[..read]),
                Err(error) => break ended_reason(&format!("cannot be read: {error}")),
            }
            if let Err(why) = self.handle_replies(&mut incoming) {
                break why;
            }
        };
        let mut state = self.state();
        state.pending.clear();
        // If the program reported a permanent failure before, a restart would not help.
        if state.failure.is_none() {
            state.failure = Some(why);
            self.ended.send_replace(true);
        }
    }

    fn handle_replies(&self, incoming: &mut MessageBuffer) -> Result<(), Reason> {
        let odd = |_| {
            let text = format!("malformed reply from {PROGRAM}");
            Reason::new(&login::KRB5_HELPER_MALFORMED, text)
        };
        while let Some(message) = incoming.next_message().map_err(odd)? {
            let reply = HelperReply::decode(&message).map_err(odd)?;
            let mut state = self.state();
            match (reply.id, reply.outcome) {
                (0, KdcOutcome::Success) => tracing::info!("{PROGRAM} is ready: {}", reply.detail),
                (0, _) => {
                    let message = reply.message.unwrap_or(&login::LIBKRB5_UNUSABLE);
                    let reason = Reason::new(message, reply.detail.clone());
                    log!(ERROR, message, "Kerberos logins: {reason}");
                    state.failure = Some(reason);
                }
                (id, _) => {
                    if let Some(sender) = state.pending.remove(&id) {
                        // The caller may have stopped waiting.
                        let _ = sender.send(reply);
                    }
                }
            }
        }
        Ok(())
    }
}

fn ended_reason(what: &str) -> Reason {
    Reason::new(&login::KRB5_HELPER_ENDED, format!("{PROGRAM} {what}"))
}

/// Removes the request when its caller stops waiting.
struct PendingRequest<'l> {
    client: &'l HelperClient,
    id: u64,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.client.state().pending.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Krb5Authenticator;
    use crate::kdc_selection::KdcSelection;
    use roster_config::{KdcValidation, SecretFile};
    use roster_krb5_helper::ipc::HelperOperation;
    use roster_messages::Message;
    use roster_provider::authenticator::{Authenticator, LoginUser};
    use roster_secret::Secret;
    use roster_system_tests::LoggedCodes;

    fn config() -> Krb5Config {
        Krb5Config {
            realm: "LAB.TEST".to_owned(),
            kdcs: vec!["127.0.0.1:88".to_owned()],
            kpasswd: Vec::new(),
            discover: false,
            keytab: SecretFile::Path("keytab".into()),
            validate: KdcValidation::Off,
            fast_principal: None,
            cache: Some("KCM:".to_owned()),
            lifetime: Duration::from_secs(60),
            renewable: Duration::ZERO,
            forwardable: false,
        }
    }

    /// Returns a program that the test plays.
    fn played() -> (Krb5HelperProcess, Blocking) {
        let (socket, theirs) = Blocking::pair().expect("sockets");
        let child = Command::new("true").spawn().expect("a child");
        (Krb5HelperProcess { socket, _child: child }, theirs)
    }

    fn login_request() -> HelperRequest {
        let limit = Duration::from_secs(5);
        crate::request("alice", HelperOperation::Ticket, b"secret", b"", limit)
    }

    /// Sends a request to the program. Returns the code of the reply.
    async fn code_with(program: Krb5HelperProcess) -> Option<&'static Message> {
        let client = HelperClient::new(Ok(program));
        client.send_request(login_request()).await.message
    }

    #[test]
    fn krb5_helper_failed_start_has_code() {
        let missing = Krb5HelperProcess::start(&config(), &KeytabState::None).err();
        assert_eq!(missing.expect("not there").message, &login::KRB5_HELPER_MISSING);
        let folder = Krb5HelperProcess::start_program(Path::new("/"), &config(), b"").err();
        assert_eq!(folder.expect("no program").message, &login::KRB5_HELPER_NOT_STARTED);
    }

    #[tokio::test(start_paused = true)]
    async fn krb5_helper_without_reply_has_code() {
        let (program, _silent) = played();
        assert_eq!(code_with(program).await, Some(&login::KRB5_HELPER_TIMEOUT));
    }

    #[tokio::test]
    async fn krb5_helper_unusable_reply_has_code() {
        let (program, theirs) = played();
        drop(theirs);
        assert_eq!(code_with(program).await, Some(&login::KRB5_HELPER_ENDED));
        let no_library =
            HelperReply { message: None, ..HelperReply::from_outcome(0, KdcOutcome::Failed, "no") };
        for (bytes, message) in [
            (Zeroizing::new(b"\0\0\0\x01\xff".to_vec()), &login::KRB5_HELPER_MALFORMED),
            (no_library.encode(), &login::LIBKRB5_UNUSABLE),
        ] {
            let (program, mut theirs) = played();
            let client = HelperClient::new(Ok(program));
            theirs.write_all(&bytes).expect("written");
            while client.state().failure.is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(client.send_request(login_request()).await.message, Some(message));
        }
    }

    #[tokio::test]
    async fn krb5_unusable_name_or_ticket_has_code() {
        let (program, _silent) = played();
        let krb5 = Krb5Authenticator::new(&config(), Duration::from_secs(5), Ok(program));
        let person = |name: &[u8]| LoginUser { name: name.to_vec(), uid: 5000, host_uid: 5000 };
        let password = Secret::copy_of(b"secret").expect("memory");
        let latin = krb5.authenticate(&person(b"\xe9"), &password, Duration::from_secs(5)).await;
        assert_eq!(latin.message, Some(&login::PRINCIPAL_INVALID));
        let logged = LoggedCodes::default();
        let _collecting = logged.collect();
        let ticket = Zeroizing::new(vec![0; 1 << 20]);
        let reply =
            HelperReply { ticket, ..HelperReply::from_outcome(1, KdcOutcome::Success, "done") };
        assert!(krb5.auth_outcome(&person(b"alice"), reply).blob.is_none());
        assert_eq!(logged.codes(), [login::TICKET_TOO_LARGE.code]);
    }

    #[tokio::test]
    async fn krb5_fast_key_missing_names_keytab() {
        let (program, _silent) = played();
        let krb5 = Krb5Authenticator::new(&config(), Duration::from_secs(5), Ok(program));
        let reply = HelperReply::from_outcome(1, KdcOutcome::NotVerified, "no ticket of host/x")
            .with_message(&login::FAST_KEY_MISSING);
        let outcome = krb5
            .auth_outcome(&LoginUser { name: b"alice".to_vec(), uid: 5000, host_uid: 5000 }, reply);
        assert_eq!(outcome.message, Some(&login::FAST_KEY_MISSING));
        assert_eq!(outcome.reason, "keytab: no ticket of host/x");
    }

    #[tokio::test]
    async fn kdc_one_of_several_silent_has_code() {
        let (program, mut theirs) = played();
        std::thread::spawn(move || {
            use std::io::Read;
            let (mut incoming, mut bytes) = (MessageBuffer::default(), [0; 4096]);
            while let Ok(read @ 1..) = theirs.read(&mut bytes) {
                incoming.push(&bytes[..read]);
                while let Some(message) = incoming.next_message().expect("well formed") {
                    let request = HelperRequest::decode(&message).expect("well formed");
                    // The probe cannot tell whether a KDC replies.
                    let outcome = match request.operation {
                        HelperOperation::Probe => KdcOutcome::Failed,
                        _ => KdcOutcome::Unreachable,
                    };
                    let reply = HelperReply::from_outcome(request.id, outcome, "no reply");
                    if theirs.write_all(&reply.encode()).is_err() {
                        return;
                    }
                }
            }
        });
        let limit = Duration::from_secs(60);
        let servers =
            KdcSelection::new(HelperClient::new(Ok(program)), crate::realm(&config()), limit);
        let reply = servers.send_request(login_request(), limit).await;
        assert_eq!(reply.message, Some(&login::KDC_PARTLY_UNREACHABLE));
    }
}
