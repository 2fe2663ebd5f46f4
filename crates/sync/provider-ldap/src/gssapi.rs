// SPDX-License-Identifier: MIT OR Apache-2.0
//! SASL GSSAPI binds (RFC 4752) through `roster-krb5 bind`, which alone calls Kerberos libraries. This module passes
//! descriptors and tokens; the format is in [`roster_krb5_helper::bind_ipc`].

use roster_krb5_helper::DecodeError;
use roster_krb5_helper::bind_ipc::{BindCall, BindReply, DESCRIPTORS_BYTE, message_length};
use roster_messages::table::{directory, login};
use roster_messages::{Message, log};
use roster_provider::reason::Reason;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as Blocking;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::watch;

/// The program, in messages.
const PROGRAM: &str = "roster-krb5";
/// Largest share of a ticket's life that is left unused.
const MARGIN_MAX: Duration = Duration::from_secs(300);
/// Shortest time between two connections for the sake of tickets.
const RENEWAL_MIN: Duration = Duration::from_secs(5);

/// State of the program.
#[derive(Clone)]
enum ProgramState {
    Starting,
    Ready,
    /// Binds are impossible.
    Failed(Reason),
    /// The program has ended. A restart may help.
    Ended,
}

/// The running `roster-krb5 bind`.
pub struct GssapiHelper {
    /// `None` if it does not run.
    socket: Option<Arc<UnixStream>>,
    state: watch::Sender<ProgramState>,
}

impl GssapiHelper {
    /// Uses the socket of the program after its setup, or the reason why it does not run.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    #[must_use]
    pub fn new(program: Result<Blocking, Reason>) -> Arc<Self> {
        let socket = program.and_then(|socket| {
            let stream = socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket));
            stream.map_err(|error| {
                let text = format!("{PROGRAM} is not reachable: {error}");
                Reason::new(&login::KRB5_HELPER_NOT_STARTED, text)
            })
        });
        let (socket, state) = match socket {
            Ok(socket) => (Some(Arc::new(socket)), ProgramState::Starting),
            Err(why) => {
                log!(ERROR, why.message, "GSSAPI binds: {why}");
                (None, ProgramState::Failed(why))
            }
        };
        let helper = Arc::new(Self { socket, state: watch::Sender::new(state) });
        if let Some(socket) = &helper.socket {
            let (socket, state) = (Arc::clone(socket), helper.state.clone());
            tokio::spawn(async move { follow(&socket, &state).await });
        }
        helper
    }

    /// Returns when the program has ended unexpectedly, so that a restart may help.
    pub async fn ended(&self) {
        let is_over = |state: &ProgramState| matches!(state, ProgramState::Ended);
        // `self` owns a sender.
        let _ = self.state.subscribe().wait_for(is_over).await;
    }

    /// Begins a bind at a server. `server` is the socket of a connection without TLS, which the program encrypts later.
    pub(crate) async fn begin(
        &self,
        call: &BindCall,
        server: Option<BorrowedFd<'_>>,
    ) -> Result<GssapiExchange, Reason> {
        let socket = self.ready().await?;
        let failed = |error: io::Error| lost(format!("{PROGRAM} cannot be reached: {error}"));
        let (ours, theirs) = Blocking::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let send = || send_descriptors(socket, theirs.as_fd(), server);
        socket.async_io(Interest::WRITABLE, send).await.map_err(failed)?;
        drop(theirs);
        let mut exchange = GssapiExchange { stream: UnixStream::from_std(ours).map_err(failed)? };
        exchange.send(call).await?;
        Ok(exchange)
    }

    async fn ready(&self) -> Result<&UnixStream, Reason> {
        let is_known = |state: &ProgramState| !matches!(state, ProgramState::Starting);
        let mut states = self.state.subscribe();
        let state = states.wait_for(is_known).await.map(|state| state.clone());
        match (state, &self.socket) {
            (Ok(ProgramState::Ready), Some(socket)) => Ok(socket),
            (Ok(ProgramState::Failed(why)), _) => Err(why),
            _ => Err(Reason::new(&login::KRB5_HELPER_ENDED, format!("{PROGRAM} has ended"))),
        }
    }
}

/// Sends the descriptors of a connection.
fn send_descriptors(
    socket: &UnixStream,
    backend: BorrowedFd<'_>,
    server: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let descriptors: Vec<_> = [Some(backend), server].into_iter().flatten().collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let byte = [IoSlice::new(&[DESCRIPTORS_BYTE])];
    sendmsg(socket, &byte, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Reads the result of the setup, and then waits for the end of the program.
async fn follow(socket: &UnixStream, state: &watch::Sender<ProgramState>) {
    let mut stream = SharedReader(socket);
    match stream.reply().await {
        Some(Ok(BindReply::Ready(in_force))) => {
            tracing::info!("{PROGRAM} is ready for binds: {in_force}");
            state.send_replace(ProgramState::Ready);
        }
        Some(Ok(BindReply::Failed { message, detail })) => {
            log!(ERROR, message, "GSSAPI binds: {detail}");
            state.send_replace(ProgramState::Failed(Reason::new(message, detail)));
            return;
        }
        Some(_) => {
            let text = format!("malformed reply from {PROGRAM}");
            let why = Reason::new(&login::KRB5_HELPER_MALFORMED, text);
            log!(ERROR, why.message, "GSSAPI binds: {why}");
            state.send_replace(ProgramState::Failed(why));
            return;
        }
        None => {}
    }
    // It sends nothing more.
    let _ = stream.read_exact(&mut [0]).await;
    state.send_replace(ProgramState::Ended);
}

/// Reads from a socket to which others write.
struct SharedReader<'s>(&'s UnixStream);

impl SharedReader<'_> {
    async fn read_exact(&mut self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            self.0.readable().await?;
            match self.0.try_read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => buffer = buffer.split_at_mut(count).1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the next reply; `None` at the end.
    async fn reply(&mut self) -> Option<Result<BindReply, DecodeError>> {
        let mut head = [0; 4];
        self.read_exact(&mut head).await.ok()?;
        let length = match message_length(head) {
            Ok(length) => length,
            Err(error) => return Some(Err(error)),
        };
        let mut message = vec![0; length];
        self.read_exact(&mut message).await.ok()?;
        Some(BindReply::decode(&message))
    }
}

/// A step of a bind.
pub(crate) enum GssapiStep {
    /// A token for the server, which replies with another one.
    Token(Vec<u8>),
    /// The last token for the server, with the time after which another connection should replace this one, and with
    /// the principal of the bind.
    Last(Vec<u8>, Duration, String),
}

/// A bind in progress.
pub(crate) struct GssapiExchange {
    stream: UnixStream,
}

impl GssapiExchange {
    async fn send(&mut self, call: &BindCall) -> Result<(), Reason> {
        let sent = self.stream.write_all(&call.encode()).await;
        // The reason may be in a reply.
        match sent {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(lost(error.to_string())),
            _ => Ok(()),
        }
    }

    /// Passes on a token of the server.
    pub async fn answer(&mut self, token: &[u8]) -> Result<(), Reason> {
        self.send(&BindCall::Token(token.to_vec())).await
    }

    /// Returns the next step.
    pub async fn next(&mut self) -> Result<GssapiStep, Reason> {
        match SharedReader(&self.stream).reply().await {
            Some(Ok(BindReply::Token(token))) => Ok(GssapiStep::Token(token)),
            Some(Ok(BindReply::Last { token, life, principal })) => {
                Ok(GssapiStep::Last(token, renewal_after(life), principal))
            }
            Some(Ok(BindReply::Failed { message, detail })) => Err(Reason::new(message, detail)),
            Some(Ok(BindReply::Ready(_)) | Err(_)) => {
                let text = format!("malformed reply from {PROGRAM}");
                Err(Reason::new(&login::KRB5_HELPER_MALFORMED, text))
            }
            None => Err(lost(format!("the process of {PROGRAM} has ended"))),
        }
    }

    /// Starts the encryption, after the server has accepted the bind. Returns the stream of plain LDAP.
    pub async fn into_sealed(mut self) -> Result<UnixStream, Reason> {
        self.send(&BindCall::Relay).await?;
        Ok(self.stream)
    }
}

fn lost(text: String) -> Reason {
    const ENDED: &Message = &directory::GSSAPI_PROCESS_ENDED;
    Reason::new(ENDED, text)
}

/// Returns the time after which a connection is replaced, before its ticket ends. Servers may refuse requests then.
fn renewal_after(life: Duration) -> Duration {
    let margin = (life / 10).min(MARGIN_MAX);
    life.saturating_sub(margin).max(RENEWAL_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tokio::io::AsyncReadExt;

    fn start() -> BindCall {
        BindCall::Start {
            host: "ldap1".to_owned(),
            deadline: Duration::from_secs(5),
            seals: false,
            channel_binding: Vec::new(),
        }
    }

    /// Returns the code of a failed begin.
    async fn code_of(helper: &GssapiHelper) -> &'static Message {
        let Err(reason) = helper.begin(&start(), None).await else { panic!("it began") };
        reason.message
    }

    #[tokio::test]
    async fn gssapi_unusable_program_has_code() {
        let why = Reason::new(&login::KRB5_HELPER_MISSING, "no");
        assert_eq!(code_of(&GssapiHelper::new(Err(why))).await, &login::KRB5_HELPER_MISSING);
        let detail = "the keytab has no key".to_owned();
        let message = &directory::BIND_KEY_MISSING;
        for (bytes, message) in [
            (BindReply::Failed { message, detail }.encode().to_vec(), message),
            (b"\0\0\0\x01\xff".to_vec(), &login::KRB5_HELPER_MALFORMED),
            (u32::MAX.to_be_bytes().to_vec(), &login::KRB5_HELPER_MALFORMED),
            (Vec::new(), &login::KRB5_HELPER_ENDED),
        ] {
            let (ours, mut theirs) = Blocking::pair().unwrap();
            theirs.write_all(&bytes).unwrap();
            drop(theirs);
            assert_eq!(code_of(&GssapiHelper::new(Ok(ours))).await, message);
        }
    }

    #[tokio::test]
    async fn gssapi_program_end_is_noticed_once() {
        let (ours, mut theirs) = Blocking::pair().unwrap();
        theirs.write_all(&BindReply::Ready(String::new()).encode()).unwrap();
        let helper = GssapiHelper::new(Ok(ours));
        let exchange = helper.begin(&start(), None).await;
        assert!(exchange.is_ok());
        drop(theirs);
        helper.ended().await;
        assert_eq!(code_of(&helper).await, &login::KRB5_HELPER_ENDED);
        // Its socket was in the lost message.
        let Err(reason) = exchange.ok().unwrap().next().await else { panic!("a step") };
        assert_eq!(reason.message, &directory::GSSAPI_PROCESS_ENDED);
    }

    #[tokio::test]
    async fn gssapi_sealed_stream_starts_after_relay_call() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let sealed = GssapiExchange { stream: ours }.into_sealed().await;
        let mut sealed = sealed.ok().unwrap();
        sealed.write_all(b"LDAP").await.unwrap();
        let mut received = vec![0; BindCall::Relay.encode().len() + 4];
        theirs.read_exact(&mut received).await.unwrap();
        assert_eq!(received, [&BindCall::Relay.encode()[..], b"LDAP"].concat());
    }

    #[test]
    fn gssapi_connection_is_replaced_before_ticket_ends() {
        for (life, after) in [(36_000, 35_700), (600, 540), (60, 54), (3, 5), (0, 5)] {
            let (life, after) = (Duration::from_secs(life), Duration::from_secs(after));
            assert_eq!(renewal_after(life), after);
        }
    }
}
