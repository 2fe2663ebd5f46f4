//! Before a run: each client's key, out of its password as the KDC wants it hashed, and where tickets
//! for services are to be asked for, its log-in.
//!
//! Hashing a password takes milliseconds, which real clients spend where they are; here it would be
//! measured in place of the KDC. So it is done once for each identity, on all processors, before the
//! clock starts.

use super::crypto::{BLOCK, BaseKey, EncType};
use super::message::{
    self, KdcReply, KdcRequestKind, KerberosTime, PREAUTH_REQUIRED, TOO_BIG, TicketReply,
};
use crate::ber::MessageTemplate;
use crate::message_engine::{Transport, frame};
use crate::net::Route;
use crate::template::{Template, least_common_multiple};
use anyhow::{Context, Result, anyhow, bail, ensure};
use socket2::Socket;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, available_parallelism};
use std::time::{Duration, SystemTime};

/// Identities whose keys are kept: a few minutes of hashing.
pub const IDENTITIES_MAX: u64 = 100_000;
/// For one answer, before a run.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// Datagrams are lost.
const TRIES: u32 = 3;

/// Uses of keys.
pub mod usage {
    /// The time that shows that a client knows its password.
    pub const TIMESTAMP: u32 = 1;
    /// What only the client can read of the answer to a log-in.
    pub const AS_REPLY: u32 = 3;
    /// The checksum of a request for a service.
    pub const TGS_CHECKSUM: u32 = 6;
    /// Who makes it.
    pub const TGS_AUTHENTICATOR: u32 = 7;
}

pub struct ClientKey {
    /// Its name, as an element.
    pub name: Vec<u8>,
    /// Of its password.
    pub key: BaseKey,
}

/// What a client has after its log-in.
pub struct TicketSession {
    /// Realm and name of the client, as elements.
    pub client: (Vec<u8>, Vec<u8>),
    /// As an element.
    pub ticket: Vec<u8>,
    /// The session's key.
    pub key: BaseKey,
}

/// Whom to ask, and for whom.
pub struct KeySetup<'a> {
    /// The KDC.
    pub route: &'a Route,
    /// How messages travel.
    pub protocol: Transport,
    pub realm: &'a str,
    /// Names of clients.
    pub principal: &'a Template,
    /// Their passwords.
    pub password: &'a Template,
    /// What may be used.
    pub kinds: &'a [EncType],
}

impl KeySetup<'_> {
    /// How many pairs of name and password there are.
    pub fn identities(&self) -> Result<u64> {
        let pairs = least_common_multiple(self.principal.count(), self.password.count());
        ensure!(
            pairs <= IDENTITIES_MAX,
            "--principal, --password: each of the identities needs a key before the run, and these are \
             more than {IDENTITIES_MAX}; with --no-preauth there may be any number"
        );
        Ok(pairs)
    }

    /// All clients, in the order of requests.
    pub fn clients(&self) -> Result<Vec<ClientKey>> {
        let identities = self.identities()?;
        each(identities, |turn| self.client(turn))
    }

    /// All log-ins, in the order of requests.
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

    /// Asks how the client's key is made, and makes it.
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
        let key = key.with_context(|| {
            format!(
                "{}: the KDC asks for a hash of {:?} rounds",
                self.client_name(turn),
                hint.iterations
            )
        })?;
        Ok(ClientKey { name, key })
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
            KdcReply::Refused(code, _) => bail!("Kerberos {code} {}", message::name(code)),
        };
        let hint =
            message::salt_params(list).map_err(|what| anyhow!("malformed answer: {what}"))?;
        // A KDC that says nothing of it has what everybody has.
        let usual = message::SaltParams { kind: EncType::Aes256Sha1, salt: None, iterations: None };
        let hint = hint.unwrap_or(usual);
        ensure!(
            self.kinds.contains(&hint.kind),
            "the KDC has no key of the kinds that were asked for (--enctype)"
        );
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
            KdcReply::Refused(code, _) => bail!("Kerberos {code} {}", message::name(code)),
        }
    }

    /// Sends a message and waits for its answer; what does not fit into a datagram goes over TCP.
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
            // Another socket each time: an answer that comes late is for nobody.
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
        Err(last.map_or_else(|| anyhow!("no answer"), anyhow::Error::from))
            .with_context(|| format!("no answer from {}", self.route.target))
    }

    fn exchange_tcp(&self, message: &[u8]) -> Result<Vec<u8>> {
        const LENGTH_OCTETS: usize = 4;
        let failed = || format!("no answer from {} over TCP", self.route.target);
        let mut stream =
            TcpStream::connect_timeout(&self.route.target, REPLY_TIMEOUT).with_context(failed)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        let length = u32::try_from(message.len())?.to_be_bytes();
        stream.write_all(&[&length, message].concat()).with_context(failed)?;
        let (mut inbox, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let found = frame(&inbox, LENGTH_OCTETS);
            if let Some((begin, end)) = found.map_err(|what| anyhow!("malformed answer: {what}"))? {
                return Ok(inbox[begin..end].to_vec());
            }
            let length = stream.read(&mut piece).with_context(failed)?;
            ensure!(length > 0, "{} closed the connection before it answered", self.route.target);
            inbox.extend_from_slice(&piece[..length]);
        }
    }
}

fn limit_wait(socket: &Socket) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(REPLY_TIMEOUT))
}

fn read(reply: &[u8]) -> Result<KdcReply<'_>> {
    message::read(reply, KdcRequestKind::As).map_err(|what| anyhow!("malformed answer: {what}"))
}

fn session(grant: &TicketReply<'_>, client: &ClientKey) -> Result<TicketSession> {
    ensure!(
        grant.kind == u32::from(client.key.kind().number()),
        "the answer is encrypted by another kind of key than was agreed on"
    );
    let text = client.key.for_use(usage::AS_REPLY).unseal(grant.sealed);
    let text = text.context("the answer cannot be decrypted: is the password right?")?;
    let malformed = |what| anyhow!("malformed answer: {what}");
    let (kind, octets) = message::session(&text).map_err(malformed)?;
    let key = EncType::from_number(kind).and_then(|kind| BaseKey::new(kind, octets));
    let key =
        key.with_context(|| format!("the session's key is of kind {kind}, which is not known"))?;
    let (realm, name) = grant.client;
    Ok(TicketSession {
        client: (realm.to_vec(), name.to_vec()),
        ticket: grant.ticket.to_vec(),
        key,
    })
}

/// Does something for all identities, on all processors; the first failure ends it.
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
            Err(_) => Err(anyhow!("a thread has ended before its work was done")),
        });
        ended.collect::<Result<Vec<Vec<T>>>>()
    })?;
    let mut shares: Vec<_> = shares.into_iter().map(Vec::into_iter).collect();
    let turns = (0..count).map(|turn| (turn % threads) as usize);
    Ok(turns.filter_map(|share| shares[share].next()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_setup_keeps_order_and_stops_at_failure() {
        assert_eq!(each(1000, Ok).unwrap(), (0..1000).collect::<Vec<_>>());
        assert!(each(0, Ok).unwrap().is_empty());
        let failing = each(1_000_000_000, |turn| {
            ensure!(turn != 5, "five");
            Ok(())
        });
        assert_eq!(failing.unwrap_err().to_string(), "five");
    }
}
