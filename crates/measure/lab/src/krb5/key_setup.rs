// SPDX-License-Identifier: MIT OR Apache-2.0
//! The setup before a run: derives the key of each client from its password, and makes the logins for service tickets.
//! Requests of the run itself are in the parent module `krb5`.
//!
//! A password hash takes milliseconds. Real clients spend them on their own hosts; in the run they would hide the cost of
//! the KDC. The setup computes each hash once, on all processors.

use super::crypto::{BLOCK, BaseKey, EncType};
use super::message::{
    self, KdcReply, KdcRequestKind, KerberosTime, PREAUTH_REQUIRED, TOO_BIG, TicketReply,
};
use crate::ber::MessageTemplate;
use crate::coded::{Coded, coded, ensure_coded};
use crate::message_engine::{Transport, frame};
use crate::net::Route;
use crate::request_error::{CodeSource, RequestError};
use crate::template::{Template, least_common_multiple};
use anyhow::{Context, Result};
use roster_messages::table::lab;
use socket2::Socket;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, available_parallelism};
use std::time::{Duration, SystemTime};

/// Maximum number of identities with keys: a few minutes of hashing.
pub const IDENTITIES_MAX: u64 = 100_000;
/// Timeout of one reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of attempts over UDP.
const TRIES: u32 = 3;

/// Key usage numbers.
pub mod usage {
    /// Timestamp of pre-authentication.
    pub const TIMESTAMP: u32 = 1;
    /// Encrypted part of the reply to a login.
    pub const AS_REPLY: u32 = 3;
    /// Checksum of a request for a service ticket.
    pub const TGS_CHECKSUM: u32 = 6;
    /// Authenticator of a request for a service ticket.
    pub const TGS_AUTHENTICATOR: u32 = 7;
}

/// A client and its key.
pub struct ClientKey {
    /// Name, as an element.
    pub name: Vec<u8>,
    /// Key from its password.
    pub key: BaseKey,
}

/// The result of a login.
pub struct TicketSession {
    /// Realm and name of the client, as elements.
    pub client: (Vec<u8>, Vec<u8>),
    /// Ticket, as an element.
    pub ticket: Vec<u8>,
    /// Session key.
    pub key: BaseKey,
}

/// The KDC and the clients.
pub struct KeySetup<'a> {
    /// The KDC.
    pub route: &'a Route,
    /// Transport of messages.
    pub protocol: Transport,
    pub realm: &'a str,
    /// Names of clients.
    pub principal: &'a Template,
    /// Passwords of clients.
    pub password: &'a Template,
    /// Permitted encryption types.
    pub kinds: &'a [EncType],
}

impl KeySetup<'_> {
    /// Returns the number of pairs of name and password.
    pub fn identities(&self) -> Result<u64> {
        let pairs = least_common_multiple(self.principal.count(), self.password.count());
        ensure_coded!(
            pairs <= IDENTITIES_MAX,
            TOO_MANY_IDENTITIES,
            "--principal and --password: more than {IDENTITIES_MAX} identities"
        );
        Ok(pairs)
    }

    /// Returns all clients, in the order of requests.
    pub fn clients(&self) -> Result<Vec<ClientKey>> {
        let identities = self.identities()?;
        each(identities, |turn| self.client(turn))
    }

    /// Makes all logins, in the order of requests.
    pub fn sessions(&self) -> Result<Vec<TicketSession>> {
        let identities = self.identities()?;
        each(identities, |turn| {
            let client = self.client(turn)?;
            self.login(&client).with_context(|| self.client_name(turn))
        })
    }

    fn client_name(&self, turn: u64) -> String {
        format!("{}@{}", String::from_utf8_lossy(&self.principal.text(turn)), self.realm)
    }

    /// Requests the salt of a client, and derives its key.
    fn client(&self, turn: u64) -> Result<ClientKey> {
        let principal = self.principal.text(turn);
        let mut name = Vec::new();
        message::write_name(&principal, &mut name);
        let hint = self.query_salt_params(&name, turn).with_context(|| self.client_name(turn))?;
        let salt = hint.salt.unwrap_or_else(|| {
            let parts = principal.split(|&byte| byte == b'/');
            parts.fold(self.realm.as_bytes().to_vec(), |salt, part| [&salt, part].concat())
        });
        let password = self.password.text(turn);
        let key = BaseKey::from_password(hint.kind, &password, &salt, hint.iterations);
        let rounds = hint.iterations.unwrap_or_default();
        let text = format_args!("{}: {rounds} hash iterations", self.client_name(turn));
        Ok(ClientKey { name, key: key.coded(&lab::KDC_ITERATIONS, text)? })
    }

    fn query_salt_params(&self, name: &[u8], turn: u64) -> Result<message::SaltParams> {
        let request = message::as_request(
            self.realm.as_bytes(),
            &message::till(SystemTime::now()),
            self.kinds,
            false,
        );
        let reply = self.exchange(&self.build_request(&request, name, turn, &[]))?;
        let list = match read(&reply)? {
            KdcReply::Refused(PREAUTH_REQUIRED, list) => list,
            KdcReply::Granted(grant) => grant.salt_params,
            KdcReply::Refused(code, _) => return Err(rejected(code)),
        };
        let hint = message::salt_params(list).map_err(malformed)?;
        // A KDC without salt parameters uses the defaults.
        let usual = message::SaltParams { kind: EncType::Aes256Sha1, salt: None, iterations: None };
        let hint = hint.unwrap_or(usual);
        ensure_coded!(self.kinds.contains(&hint.kind), KDC_NO_KEY, "no key of a type of --enctype");
        Ok(hint)
    }

    fn build_request(
        &self,
        request: &MessageTemplate,
        name: &[u8],
        turn: u64,
        preauth: &[u8],
    ) -> Vec<u8> {
        let mut service = Vec::new();
        message::write_name(format!("krbtgt/{}", self.realm).as_bytes(), &mut service);
        let mut out = Vec::new();
        request.write(&[name, &service, &message::nonce(turn), preauth], turn, &mut out);
        out
    }

    fn login(&self, client: &ClientKey) -> Result<TicketSession> {
        let now = SystemTime::now();
        let (mut text, mut sealed, mut preauth) = (Vec::new(), Vec::new(), Vec::new());
        message::write_timestamp(&KerberosTime::from_time(now), &mut text);
        client.key.for_use(usage::TIMESTAMP).seal(&[0; BLOCK], &text, &mut sealed);
        message::write_encrypted(client.key.kind(), &sealed, &mut preauth);
        let till = message::till(now);
        let request = message::as_request(self.realm.as_bytes(), &till, self.kinds, true);
        let reply = self.exchange(&self.build_request(&request, &client.name, 0, &preauth))?;
        match read(&reply)? {
            KdcReply::Granted(grant) => session(&grant, client),
            KdcReply::Refused(code, _) => Err(rejected(code)),
        }
    }

    /// Sends a message and waits for its reply. Uses TCP if the reply does not fit into a datagram.
    fn exchange(&self, message: &[u8]) -> Result<Vec<u8>> {
        if self.protocol == Transport::Udp {
            let reply = self.exchange_udp(message)?;
            if !matches!(
                message::read(&reply, KdcRequestKind::As),
                Ok(KdcReply::Refused(TOO_BIG, _))
            ) {
                return Ok(reply);
            }
        }
        self.exchange_tcp(message)
    }

    fn exchange_udp(&self, message: &[u8]) -> Result<Vec<u8>> {
        let mut reply = vec![0; usize::from(u16::MAX)];
        let mut last = None;
        for turn in 0..TRIES {
            // Each attempt has a new socket, which does not receive late replies.
            let tried = self.route.datagrams(turn as usize).and_then(|socket| {
                limit_wait(&socket)?;
                (&socket).write_all(message)?;
                (&socket).read(&mut reply)
            });
            match tried {
                Ok(length) => {
                    reply.truncate(length);
                    return Ok(reply);
                }
                Err(error) => last = Some(error),
            }
        }
        let text = format_args!("{}: no reply", self.route.target);
        match last {
            Some(error) => Err(error).coded(&lab::KDC_UNREACHABLE, text),
            None => Err(coded(&lab::KDC_UNREACHABLE, text.to_string())),
        }
    }

    fn exchange_tcp(&self, message: &[u8]) -> Result<Vec<u8>> {
        const LENGTH_OCTETS: usize = 4;
        let (unreachable, text) =
            (&lab::KDC_UNREACHABLE, format!("{}: no reply over TCP", self.route.target));
        let mut stream = TcpStream::connect_timeout(&self.route.target, REPLY_TIMEOUT)
            .coded(unreachable, &text)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        let length = u32::try_from(message.len())?.to_be_bytes();
        stream.write_all(&[&length, message].concat()).coded(unreachable, &text)?;
        let (mut inbox, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let found = frame(&inbox, LENGTH_OCTETS);
            if let Some((begin, end)) = found.map_err(malformed)? {
                return Ok(inbox[begin..end].to_vec());
            }
            let length = stream.read(&mut piece).coded(unreachable, &text)?;
            if length == 0 {
                return Err(RequestError::Closed.into_error(self.route.target));
            }
            inbox.extend_from_slice(&piece[..length]);
        }
    }
}

fn rejected(code: u32) -> anyhow::Error {
    RequestError::ErrorCode(CodeSource::Kerberos, code, message::name(code)).into_error("KDC")
}

fn malformed(problem: &'static str) -> anyhow::Error {
    RequestError::Malformed(problem).into_error("KDC")
}

fn limit_wait(socket: &Socket) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(REPLY_TIMEOUT))
}

fn read(reply: &[u8]) -> Result<KdcReply<'_>> {
    message::read(reply, KdcRequestKind::As).map_err(malformed)
}

fn session(grant: &TicketReply<'_>, client: &ClientKey) -> Result<TicketSession> {
    let expected = client.key.kind().number();
    ensure_coded!(
        grant.kind == u32::from(expected),
        KDC_OTHER_KEY,
        "reply encrypted with type {} instead of {expected}",
        grant.kind
    );
    let text = client.key.for_use(usage::AS_REPLY).unseal(grant.sealed);
    let text = text.coded(&lab::KDC_REPLY_UNREADABLE, "reply cannot be decrypted")?;
    let (kind, octets) = message::session(&text).map_err(malformed)?;
    let key = EncType::from_number(kind).and_then(|kind| BaseKey::new(kind, octets));
    let key = key.coded(&lab::KDC_SESSION_KEY, format_args!("session key of type {kind}"))?;
    let (realm, name) = grant.client;
    Ok(TicketSession {
        client: (realm.to_vec(), name.to_vec()),
        ticket: grant.ticket.to_vec(),
        key,
    })
}

/// Calls `make` for all identities, on all processors, up to the first failure.
fn each<T: Send>(count: u64, make: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
    let threads = available_parallelism().map_or(1, usize::from) as u64;
    let (failed, make) = (AtomicBool::new(false), &make);
    let share = |first: u64| -> Result<Vec<T>> {
        let mut made = Vec::new();
        let mut turn = first;
        while turn < count && !failed.load(Ordering::Relaxed) {
            made.push(make(turn).inspect_err(|_| failed.store(true, Ordering::Relaxed))?);
            turn += threads;
        }
        Ok(made)
    };
    let shares = thread::scope(|scope| {
        let share = &share;
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first))).collect();
        let ended = running.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => Err(coded(&lab::THREAD_ENDED, "a thread ended during the setup")),
        });
        // The scope panics if it has to join a thread that panicked.
        ended.collect::<Vec<Result<Vec<T>>>>()
    });
    let shares = shares.into_iter().collect::<Result<Vec<Vec<T>>>>()?;
    let mut shares: Vec<_> = shares.into_iter().map(Vec::into_iter).collect();
    let turns = (0..count).map(|turn| (turn % threads) as usize);
    Ok(turns.filter_map(|share| shares[share].next()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coded::describe;
    use roster_messages::Message;

    #[test]
    fn key_setup_keeps_order_and_stops_at_failure() {
        assert_eq!(each(1000, Ok).unwrap(), (0..1000).collect::<Vec<_>>());
        assert!(each(0, Ok).unwrap().is_empty());
        let failing = each(1_000_000_000, |turn| {
            anyhow::ensure!(turn != 5, "five");
            Ok(())
        });
        assert_eq!(failing.unwrap_err().to_string(), "five");
    }

    #[test]
    fn key_setup_ended_thread_has_code() {
        let ended = each(4, |turn| -> Result<()> { panic!("request {turn} of the test") });
        assert_code(&ended.unwrap_err(), &lab::THREAD_ENDED);
    }

    fn assert_code(error: &anyhow::Error, message: &Message) {
        let text = describe(error);
        assert!(text.ends_with(&format!("[{}]", message.code)), "{text}");
    }

    #[test]
    fn session_unusable_reply_has_code() {
        let key = |kind| BaseKey::from_password(kind, b"secret", b"salt", Some(1)).unwrap();
        let client = ClientKey { name: Vec::new(), key: key(EncType::Aes256Sha1) };
        let sealed = |key: &BaseKey, kind: u8| {
            // EncKDCRepPart with its only used field, the session key.
            let text =
                [0x79, 16, 0x30, 14, 0xa0, 12, 0x30, 10, 0xa0, 3, 2, 1, kind, 0xa1, 3, 4, 1, 0];
            let mut out = Vec::new();
            key.for_use(usage::AS_REPLY).seal(&[0; BLOCK], &text, &mut out);
            out
        };
        let other = key(EncType::Aes128Sha1);
        for (kind, sealed, message) in [
            (17, sealed(&client.key, 18), &lab::KDC_OTHER_KEY),
            (18, sealed(&other, 18), &lab::KDC_REPLY_UNREADABLE),
            (18, sealed(&client.key, 23), &lab::KDC_SESSION_KEY),
            (18, sealed(&client.key, 18), &lab::KDC_SESSION_KEY),
        ] {
            let grant = TicketReply {
                client: (&[], &[]),
                ticket: &[],
                kind,
                sealed: &sealed,
                salt_params: &[],
            };
            assert_code(&session(&grant, &client).err().unwrap(), message);
        }
    }
}
