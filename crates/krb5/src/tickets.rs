//! What a log-in hands to the user's session: the ticket, and where it is to be kept. Made by the
//! back-end, opaque on its way through the bus, the responder and the PAM module, read by
//! `roster-krb5 session` as the user.

use crate::codec::{Malformed, Reader, Writer};
use zeroize::Zeroizing;

/// First bytes, which tell the version.
const MAGIC: &[u8] = b"RKT1";

/// A ticket for a session. Never logged, hence no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Tickets {
    /// Where it is to be kept: `FILE:/path/…XXXXXX` for a file of its own, or a collection,
    /// `KEYRING:persistent:UID`, `KCM:` or `DIR:/path`, in which a cache is made.
    pub cache: String,
    /// What libkrb5 goes by when it is renewed, see [`crate::profile`].
    pub profile: String,
    /// Whether it is renewed for as long as the session lasts.
    pub renew: bool,
    /// A file of [`crate::file`].
    pub file: Zeroizing<Vec<u8>>,
}

impl Tickets {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let length = self.cache.len() + self.profile.len() + self.file.len();
        let mut out = Writer::new(length + 32);
        out.bytes(MAGIC);
        out.bytes(self.cache.as_bytes());
        out.bytes(self.profile.as_bytes());
        out.byte(self.renew.into());
        out.bytes(&self.file);
        out.0
    }

    /// From bytes.
    ///
    /// # Errors
    ///
    /// They are none of these.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        if reader.bytes()? != MAGIC {
            return Err(Malformed);
        }
        let tickets = Self {
            cache: reader.text()?.to_owned(),
            profile: reader.text()?.to_owned(),
            renew: reader.flag()?,
            file: Zeroizing::new(reader.bytes()?.to_vec()),
        };
        reader.end()?;
        Ok(tickets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_come_back_as_they_were_and_nothing_else_is_taken_for_some() {
        let tickets = Tickets {
            cache: "FILE:/tmp/krb5cc_1_XXXXXX".into(),
            profile: "[libdefaults]\n".into(),
            renew: true,
            file: Zeroizing::new(vec![5, 4]),
        };
        let bytes = tickets.encode();
        assert!(Tickets::decode(&bytes) == Ok(tickets));
        for length in 0..bytes.len() {
            assert!(Tickets::decode(&bytes[..length]).is_err());
        }
    }
}
