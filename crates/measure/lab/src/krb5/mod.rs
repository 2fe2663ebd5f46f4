// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Kerberos engine: logins (AS-REQ, with or without pre-authentication) and service tickets (TGS-REQ). `key_setup`
//! prepares a run, and `message_engine` sends the requests.
//!
//! No two requests of a run have the same bytes unless --same-bytes is set, because a KDC caches its replies. Replies
//! are not decrypted, because that is the work of a client.

pub mod crypto;
pub mod key_setup;
pub mod message;

use crate::ber::MessageTemplate;
use crate::message_engine::MessageCodec;
use crate::request_error::{CodeSource, RequestError};
use crate::template::Template;
use crypto::{BLOCK, EncType};
use key_setup::{ClientKey, TicketSession, usage};
use message::{KdcReply, KdcRequestKind, KerberosTime, TgsTemplates};
use std::sync::Arc;
use std::time::SystemTime;

/// Settings of all requests of a run.
pub struct Krb5Settings {
    /// Service of the tickets.
    pub service: Template,
    /// First nonce.
    pub seed: u64,
    /// Start of the run.
    pub start: SystemTime,
    /// Requests with their clients.
    pub request: Krb5Requests,
}

/// Kinds of requests.
pub enum Krb5Requests {
    /// Login without pre-authentication.
    Plain(MessageTemplate, Template),
    /// Login with an encrypted timestamp: name and key of each client.
    Timestamp(MessageTemplate, Vec<(Vec<u8>, EncType, crypto::UsageKey)>),
    /// Service ticket: session of each client.
    Tgs(Box<TgsTemplates>, Vec<TgsClient>),
}

/// A session with derived keys.
pub struct TgsClient {
    session: TicketSession,
    authenticator: crypto::UsageKey,
    signer: crypto::ChecksumKey,
}

impl Krb5Requests {
    /// Returns logins without pre-authentication.
    #[must_use]
    pub fn plain(realm: &str, kinds: &[EncType], principal: Template, now: SystemTime) -> Self {
        let till = message::till(now);
        Self::Plain(message::as_request(realm.as_bytes(), &till, kinds, false), principal)
    }

    /// Returns logins of these clients.
    #[must_use]
    pub fn timestamp(
        realm: &str,
        kinds: &[EncType],
        clients: Vec<ClientKey>,
        now: SystemTime,
    ) -> Self {
        let till = message::till(now);
        let ready = |client: ClientKey| {
            (client.name, client.key.kind(), client.key.for_use(usage::TIMESTAMP))
        };
        let clients = clients.into_iter().map(ready).collect();
        Self::Timestamp(message::as_request(realm.as_bytes(), &till, kinds, true), clients)
    }

    /// Returns requests for service tickets in these sessions.
    #[must_use]
    pub fn tgs(
        realm: &str,
        kinds: &[EncType],
        sessions: Vec<TicketSession>,
        now: SystemTime,
    ) -> Self {
        let ready = |session: TicketSession| TgsClient {
            authenticator: session.key.for_use(usage::TGS_AUTHENTICATOR),
            signer: session.key.signer(usage::TGS_CHECKSUM),
            session,
        };
        let sessions = sessions.into_iter().map(ready).collect();
        let till = message::till(now);
        Self::Tgs(Box::new(TgsTemplates::new(realm.as_bytes(), &till, kinds)), sessions)
    }

    fn op(&self) -> KdcRequestKind {
        match self {
            Self::Plain(..) | Self::Timestamp(..) => KdcRequestKind::As,
            Self::Tgs(..) => KdcRequestKind::Tgs,
        }
    }

    /// Returns the number of requests after which the clients repeat.
    fn period(&self) -> u64 {
        match self {
            Self::Plain(_, principal) => principal.count(),
            Self::Timestamp(_, clients) => clients.len() as u64,
            Self::Tgs(_, sessions) => sessions.len() as u64,
        }
    }
}

/// Messages of one thread.
pub struct Krb5Codec {
    settings: Arc<Krb5Settings>,
    /// Whether a client repeats its first request.
    same_bytes: bool,
    text: Vec<u8>,
    name: Vec<u8>,
    service: Vec<u8>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    element: Vec<u8>,
    body: Vec<u8>,
}

impl Krb5Codec {
    /// Creates the codec of a run.
    #[must_use]
    pub fn new(settings: Arc<Krb5Settings>, same_bytes: bool) -> Self {
        let new = Vec::new;
        Self {
            settings,
            same_bytes,
            text: new(),
            name: new(),
            service: new(),
            plain: new(),
            sealed: new(),
            element: new(),
            body: new(),
        }
    }

    /// Returns the number of a request for its nonce, and its time.
    fn number_and_time(&self, request: u64) -> (u64, SystemTime) {
        let Krb5Settings { seed, start, request: what, .. } = &*self.settings;
        if self.same_bytes {
            (seed.wrapping_add(request % what.period().max(1)), *start)
        } else {
            (seed.wrapping_add(request), SystemTime::now())
        }
    }

    /// Encrypts `plain` into `element`.
    fn seal(&mut self, kind: EncType, key: &crypto::UsageKey, number: u64) {
        // The confounder only has to differ in each request.
        let mut confounder = [0; BLOCK];
        confounder[..8].copy_from_slice(&number.to_be_bytes());
        self.sealed.clear();
        key.seal(&confounder, &self.plain, &mut self.sealed);
        self.element.clear();
        message::write_encrypted(kind, &self.sealed, &mut self.element);
    }

    fn write_tgs(
        &mut self,
        (template, granted): (&TgsTemplates, &TgsClient),
        (number, now): (u64, SystemTime),
        out: &mut Vec<u8>,
    ) {
        let stamp = KerberosTime::from_time(now);
        let TgsClient { session, authenticator, signer } = granted;
        self.body.clear();
        template.body.write(&[&self.service, &message::nonce(number)], 0, &mut self.body);
        self.text.clear();
        message::write_checksum(session.key.kind(), &signer.sign(&self.body), &mut self.text);
        self.plain.clear();
        let (realm, name) = &session.client;
        let slots = [realm, name, &self.text, &stamp.micros[..], &stamp.text[..]];
        template.authenticator.write(&slots, 0, &mut self.plain);
        self.seal(session.key.kind(), authenticator, number);
        template.whole.write(&[&session.ticket, &self.element, &self.body], 0, out);
    }
}

impl MessageCodec for Krb5Codec {
    const LENGTH_OCTETS: usize = 4;
    const IS_NUMBERED: bool = false;

    fn write(&mut self, request: u64, out: &mut Vec<u8>) -> Result<(), RequestError> {
        let settings = Arc::clone(&self.settings);
        let (number, now) = self.number_and_time(request);
        let nonce = message::nonce(number);
        self.text.clear();
        settings.service.write(request, &mut self.text);
        self.service.clear();
        message::write_name(&self.text, &mut self.service);
        // The number of clients fits into usize, because they are in memory.
        let turn = (request % settings.request.period().max(1)) as usize;
        match &settings.request {
            Krb5Requests::Plain(template, principal) => {
                self.text.clear();
                principal.write(request, &mut self.text);
                self.name.clear();
                message::write_name(&self.text, &mut self.name);
                template.write(&[&self.name, &self.service, &nonce], request, out);
            }
            Krb5Requests::Timestamp(template, clients) => {
                let (name, kind, key) = &clients[turn];
                self.plain.clear();
                message::write_timestamp(&KerberosTime::from_time(now), &mut self.plain);
                self.seal(*kind, key, number);
                template.write(&[name, &self.service, &nonce, &self.element], request, out);
            }
            Krb5Requests::Tgs(template, sessions) => {
                self.write_tgs((template, &sessions[turn]), (number, now), out);
            }
        }
        Ok(())
    }

    fn read(&self, answer: &[u8], _: &[u8]) -> Option<Result<(), RequestError>> {
        Some(match message::read(answer, self.settings.request.op()) {
            Ok(KdcReply::Granted(_)) => Ok(()),
            Ok(KdcReply::Refused(code, _)) => {
                Err(RequestError::ErrorCode(CodeSource::Kerberos, code, message::name(code)))
            }
            Err(what) => Err(RequestError::Malformed(what)),
        })
    }
}
