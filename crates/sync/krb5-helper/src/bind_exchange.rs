// SPDX-License-Identifier: MIT OR Apache-2.0
//! One SASL GSSAPI bind (RFC 4752) from the tickets to the choice of the security layer. Runs in a dedicated process.
//! `bind_server` starts it, and `seal_relay` encrypts the connection afterwards.

use crate::gss::{ClientContext, GssError};
use crate::libkrb5::{Ccache, Keytab, LibraryContext, LibraryError};
use roster_krb5_helper::bind_ipc::{BindReply, BindSetup};
use roster_krb5_helper::kdc_errors::{host_ticket_message, is_client_unknown};
use roster_messages::{Message, table::directory};
use std::time::Duration;

/// Longest message that this side accepts. It is offered to the server.
pub const MESSAGE_BYTES_MAX: u32 = 64 << 10;
/// Bits of security layers.
mod layer {
    pub const NONE: u8 = 1;
    pub const ENCRYPTION: u8 = 4;
}

/// A bind that is impossible.
pub struct BindError {
    message: &'static Message,
    detail: String,
}

impl BindError {
    pub fn new(message: &'static Message, detail: impl Into<String>) -> Self {
        Self { message, detail: detail.into() }
    }

    pub fn into_reply(self) -> BindReply {
        BindReply::Failed { message: self.message, detail: self.detail }
    }
}

/// A bind in progress.
pub struct BindExchange {
    context: ClientContext,
    seals: bool,
    principal: String,
    /// Remaining life of the ticket, once the identities are proven.
    life: Option<Duration>,
    /// Most bytes of a message before its encryption, once the layer is chosen.
    bytes_max: usize,
}

impl BindExchange {
    /// Gets the tickets, and returns the first token.
    pub fn begin(
        library: &LibraryContext,
        keytab: &Keytab<'_>,
        setup: &BindSetup,
        (host, seals, channel_binding): (&str, bool, Vec<u8>),
    ) -> Result<(Self, Vec<u8>), BindError> {
        let (cache, principal) = host_ticket(library, keytab, setup)?;
        let name = cache.name().map_err(|error| {
            BindError::new(&directory::GSSAPI_FAILED, format!("cache of tickets: {error}"))
        })?;
        let service = format!("ldap/{}@{}", host.to_ascii_lowercase(), setup.realm.name);
        let failed = |error: GssError| {
            let message = host_ticket_message(error.code, true);
            BindError::new(message, format!("no ticket of {principal} for {service}: {error}"))
        };
        let mut context =
            ClientContext::new(&name, &service, seals, channel_binding).map_err(failed)?;
        let first = context.step(b"").map_err(failed)?;
        let exchange = Self { context, seals, principal, life: first.life, bytes_max: 0 };
        Ok((exchange, first.token))
    }

    /// Processes a token of the server.
    pub fn step(&mut self, token: &[u8]) -> Result<BindReply, BindError> {
        let Some(life) = self.life else {
            let step = self.context.step(token).map_err(|error| {
                let message = match host_ticket_message(error.code, true) {
                    message if message == &directory::GSSAPI_FAILED => {
                        &directory::GSSAPI_BIND_REJECTED
                    }
                    message => message,
                };
                BindError::new(message, format!("the server's token: {error}"))
            })?;
            self.life = step.life;
            return Ok(BindReply::Token(step.token));
        };
        let choice = self.choose_layer(token)?;
        let failed = |error: GssError| BindError::new(&directory::GSSAPI_FAILED, error.text);
        let token = self.context.wrap(&choice, false, <[u8]>::to_vec).map_err(failed)?;
        Ok(BindReply::Last { token, life, principal: self.principal.clone() })
    }

    /// Chooses a layer of the server's offer: encryption without TLS, none with TLS.
    fn choose_layer(&mut self, token: &[u8]) -> Result<[u8; 4], BindError> {
        let malformed = |text: &str| BindError::new(&directory::GSSAPI_FAILED, text);
        let offer = self.context.unwrap(token, false, <[u8]>::to_vec);
        let offer = offer.map_err(|error| malformed(&error.text))?;
        let Ok([layers, size @ ..]) = <[u8; 4]>::try_from(&*offer) else {
            return Err(malformed("the server's offer of security layers is malformed"));
        };
        let server_max = u32::from_be_bytes([0, size[0], size[1], size[2]]);
        if !self.seals {
            if layers & layer::NONE == 0 {
                let text = "the server requires a security layer below TLS";
                return Err(BindError::new(&directory::GSSAPI_LAYER_BELOW_TLS, text));
            }
            return Ok([layer::NONE, 0, 0, 0]);
        }
        if layers & layer::ENCRYPTION == 0 {
            let text = "the server does not offer encryption";
            return Err(BindError::new(&directory::GSSAPI_WITHOUT_ENCRYPTION, text));
        }
        let limit = self.context.wrap_size_limit(server_max.min(MESSAGE_BYTES_MAX));
        match limit {
            Ok(bytes_max @ 1..) => self.bytes_max = bytes_max,
            _ => return Err(malformed("the server's buffer is too small")),
        }
        let [_, size @ ..] = MESSAGE_BYTES_MAX.to_be_bytes();
        Ok([layer::ENCRYPTION, size[0], size[1], size[2]])
    }

    /// Returns the context for the encryption, and the limit of bytes that are encrypted at once. `None` before the last
    /// token, or without encryption.
    pub fn into_sealed(self) -> Option<(ClientContext, usize)> {
        (self.bytes_max > 0).then_some((self.context, self.bytes_max))
    }
}

/// Gets a ticket of this host, with the name of its principal. Without a configured principal, tries those of the keytab:
/// `host/…` first, in the order of the keytab. A KDC does not issue tickets to each name of a host.
fn host_ticket<'c>(
    library: &'c LibraryContext,
    keytab: &Keytab<'_>,
    setup: &BindSetup,
) -> Result<(Ccache<'c>, String), BindError> {
    let failed = |name: &str, error: &LibraryError| {
        let message = host_ticket_message(error.code, false);
        BindError::new(message, format!("no ticket for {name}: {error}"))
    };
    let realm = &setup.realm.name;
    if !setup.principal.is_empty() {
        let name = match setup.principal.contains('@') {
            true => setup.principal.clone(),
            false => format!("{}@{realm}", setup.principal),
        };
        let cache = library.keytab_cache(&name, keytab).map_err(|error| failed(&name, &error))?;
        return Ok((cache, name));
    }
    let names = keytab.principals().map_err(|error| failed("the keytab", &error))?;
    let names = candidates(names, realm);
    let mut refused = None;
    for name in names {
        match library.keytab_cache(&name, keytab) {
            Ok(cache) => return Ok((cache, name)),
            Err(error) => {
                let goes_on = is_client_unknown(error.code);
                let error = failed(&name, &error);
                if !goes_on {
                    return Err(error);
                }
                refused.get_or_insert(error);
            }
        }
    }
    Err(refused.unwrap_or_else(|| {
        let text = format!("the keytab has no key of the realm {realm}");
        BindError::new(&directory::BIND_KEY_MISSING, text)
    }))
}

/// Returns the principals of the realm in the order in which they are tried.
fn candidates(names: Vec<String>, realm: &str) -> Vec<String> {
    let suffix = format!("@{realm}");
    let own = names.into_iter().filter(|name| name.ends_with(&suffix));
    let (hosts, others): (Vec<_>, Vec<_>) = own.partition(|name| name.starts_with("host/"));
    [hosts, others].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_principal_default_prefers_host_keys() {
        let names = ["CLIENT$@A", "host/x@B", "host/client@A", "ldap/client@A", "host/other@A"];
        let names = names.map(str::to_owned).to_vec();
        assert_eq!(
            candidates(names, "A"),
            ["host/client@A", "host/other@A", "CLIENT$@A", "ldap/client@A"]
        );
    }
}
