// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ticket of a login for the user's session, and its cache name. The backend creates it. It is opaque on its way
//! through the bus, the responder and the PAM module. `roster-krb5 session` reads it as the user.

use crate::codec::{DecodeError, FieldReader, FieldWriter};
use crate::realm::{Realm, has_only};
use zeroize::Zeroizing;

/// First bytes, with the version.
const MAGIC: &[u8] = b"RKT2";
/// Longest name of a cache.
const CACHE_BYTES_MAX: usize = 512;

/// A ticket for a session. Never logged, hence no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionTicket {
    /// The name of the cache: `FILE:/path/…XXXXXX` for a separate file, or a collection, `KEYRING:persistent:UID`,
    /// `KCM:` or `DIR:/path`, in which a cache is made.
    pub cache: String,
    /// The realm with the KDCs for renewals.
    pub realm: Realm,
    /// Whether the ticket is renewed during the session.
    pub renew: bool,
    /// A file of [`crate::ccache_file`].
    pub file: Zeroizing<Vec<u8>>,
}

impl SessionTicket {
    /// Encodes the ticket.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let length = self.cache.len() + self.realm.encoded_bytes() + self.file.len();
        let mut out = FieldWriter::new(length + 32);
        out.bytes(MAGIC);
        out.bytes(self.cache.as_bytes());
        self.realm.encode(&mut out);
        out.byte(self.renew.into());
        out.bytes(&self.file);
        out.0
    }

    /// Decodes a ticket.
    ///
    /// # Errors
    ///
    /// The bytes are of another format, or a field holds a value that no configuration allows.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader(bytes);
        if reader.bytes()? != MAGIC {
            return Err(DecodeError);
        }
        let tickets = Self {
            cache: reader.text()?.to_owned(),
            realm: Realm::decode(&mut reader)?,
            renew: reader.flag()?,
            file: Zeroizing::new(reader.bytes()?.to_vec()),
        };
        reader.end()?;
        if is_cache(&tickets.cache) { Ok(tickets) } else { Err(DecodeError) }
    }
}

/// Whether this names a kind of cache that `krb5_cache` in roster.toml(5) allows. The name becomes a separate line in
/// libkrb5's configuration.
fn is_cache(name: &str) -> bool {
    let is_known = match name.split_once(':') {
        Some(("FILE" | "DIR", path)) => path.starts_with('/'),
        Some(("KEYRING", rest)) => rest.starts_with("persistent:"),
        Some(("KCM", rest)) => rest.is_empty(),
        _ => false,
    };
    is_known && name.len() <= CACHE_BYTES_MAX && has_only(name, b"/._-:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets() -> SessionTicket {
        SessionTicket {
            cache: "FILE:/tmp/krb5cc_1_XXXXXX".into(),
            realm: Realm {
                name: "LAB.TEST".into(),
                kdcs: vec!["kdc1:88".into()],
                ..Realm::default()
            },
            renew: true,
            file: Zeroizing::new(vec![5, 4]),
        }
    }

    #[test]
    fn tickets_whole_survive_cut_refused() {
        let bytes = tickets().encode();
        assert!(SessionTicket::decode(&bytes) == Ok(tickets()));
        for length in 0..bytes.len() {
            assert!(SessionTicket::decode(&bytes[..length]).is_err());
        }
        for cache in ["DIR:/run/user/1/krb5cc", "KEYRING:persistent:1", "KCM:"] {
            let tickets = SessionTicket { cache: cache.into(), ..tickets() };
            assert!(SessionTicket::decode(&tickets.encode()) == Ok(tickets), "{cache}");
        }
    }

    #[test]
    fn tickets_configuration_text_is_malformed() {
        let plugins = "[plugins]\nhostrealm = {\nmodule = x:/tmp/x.so\n}\n";
        let mut before = FieldWriter::new(256);
        before.bytes(b"RKT1");
        before.bytes(b"KCM:");
        before.bytes(plugins.as_bytes());
        before.byte(1);
        before.bytes(&[5, 4]);
        assert!(SessionTicket::decode(&before.0).is_err(), "the format that carried text");
        let realm =
            |name: String| SessionTicket { realm: Realm { name, ..tickets().realm }, ..tickets() };
        assert!(SessionTicket::decode(&realm(format!("LAB.TEST\n{plugins}")).encode()).is_err());
        let long = format!("DIR:/{}", "x".repeat(CACHE_BYTES_MAX));
        let caches = [
            &format!("DIR:/tmp\n{plugins}"),
            "DIR:/tmp/%{TEMP}",
            "DIR:tmp",
            "DIR:/a b",
            "MEMORY:x",
            "API:x",
            "KCM:x",
            "KEYRING:session:x",
            "/tmp/krb5cc",
            "",
            &long,
        ];
        for cache in caches {
            let tickets = SessionTicket { cache: cache.into(), ..tickets() };
            assert!(SessionTicket::decode(&tickets.encode()).is_err(), "{cache}");
        }
    }
}
