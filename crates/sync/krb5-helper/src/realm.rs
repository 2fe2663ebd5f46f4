// SPDX-License-Identifier: MIT OR Apache-2.0
//! A realm as fields: its name, its servers, and whether DNS may name more. Callers of `roster-krb5` send these fields.
//! Only the program converts them to the text of a krb5.conf. `krb5_conf` makes the text.
//!
//! That text can name plug-ins, which libkrb5 loads. A decoded field therefore has no character that could end its line
//! or begin a section.

use crate::codec::{DecodeError, FieldReader, FieldWriter};

/// Longest name of a realm (a domain name of DNS).
const NAME_BYTES_MAX: usize = 253;
/// Longest server: a host name, brackets, a colon and a port.
const SERVER_BYTES_MAX: usize = NAME_BYTES_MAX + 8;

/// A realm and its servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Realm {
    /// The realm's name.
    pub name: String,
    /// KDCs in order of preference, `HOST[:PORT]`.
    pub kdcs: Vec<String>,
    /// Servers that change passwords, `HOST[:PORT]`. If empty, the hosts of `kdcs` at the default port.
    pub kpasswds: Vec<String>,
    /// Whether libkrb5 queries DNS for servers after the named ones.
    pub discover: bool,
}

impl Realm {
    /// Returns the realm with this KDC in front. The password servers stay the same.
    #[must_use]
    pub fn with_first(mut self, kdc: &str) -> Self {
        self.kpasswds = self.kpasswd_servers();
        self.kdcs.retain(|other| other != kdc);
        self.kdcs.insert(0, kdc.to_owned());
        self
    }

    /// Returns the realm with only this KDC.
    #[must_use]
    pub fn with_only(self, kdc: &str) -> Self {
        Self { kdcs: vec![kdc.to_owned()], discover: false, ..self }
    }

    /// Returns the servers that change passwords.
    #[must_use]
    pub fn kpasswd_servers(&self) -> Vec<String> {
        match &self.kpasswds[..] {
            [] => self.kdcs.iter().map(|kdc| strip_port(kdc).to_owned()).collect(),
            named => named.to_vec(),
        }
    }

    /// Returns the largest number of bytes that [`encode`](Self::encode) writes.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let servers = self.kdcs.iter().chain(&self.kpasswds);
        servers.fold(self.name.len() + 16, |sum, server| sum + server.len() + 4)
    }

    pub(crate) fn encode(&self, out: &mut FieldWriter) {
        out.bytes(self.name.as_bytes());
        for list in [&self.kdcs, &self.kpasswds] {
            out.number(u32::try_from(list.len()).unwrap_or(u32::MAX));
            for server in list {
                out.bytes(server.as_bytes());
            }
        }
        out.byte(self.discover.into());
    }

    /// Decodes a realm. Rejects every value that [`is_name`] or [`is_server`] rejects.
    pub(crate) fn decode(reader: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        let name = reader.text()?.to_owned();
        let realm = Self {
            kdcs: servers(reader)?,
            kpasswds: servers(reader)?,
            discover: reader.flag()?,
            name,
        };
        if is_name(&realm.name) { Ok(realm) } else { Err(DecodeError) }
    }
}

fn servers(reader: &mut FieldReader<'_>) -> Result<Vec<String>, DecodeError> {
    let count = reader.number()?;
    let mut servers = Vec::new();
    // The message bounds the loop: each server uses bytes of it.
    for _ in 0..count {
        let server = reader.text()?;
        if !is_server(server) {
            return Err(DecodeError);
        }
        servers.push(server.to_owned());
    }
    Ok(servers)
}

/// Whether this is a valid realm name, by the rule of `krb5_realm` in roster.toml(5).
fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && has_only(text, b".-_")
}

/// Whether this is `HOST[:PORT]`. A slash would make it a URL or a socket's path; libkrb5 loads a plug-in for URLs.
fn is_server(text: &str) -> bool {
    (1..=SERVER_BYTES_MAX).contains(&text.len()) && has_only(text, b".-_:[]%")
}

/// Whether all bytes are ASCII letters, digits or these others.
pub(crate) fn has_only(text: &str, others: &[u8]) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
}

/// Returns a server without its port.
fn strip_port(server: &str) -> &str {
    match server.rsplit_once(':') {
        Some((host, _)) if host.ends_with(']') || !host.contains(':') => host,
        _ => server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn realm() -> Realm {
        Realm {
            name: "LAB.TEST".into(),
            kdcs: vec!["kdc1:750".into(), "[2001:db8::1]:88".into(), "kdc2".into()],
            ..Realm::default()
        }
    }

    fn decoded(realm: &Realm) -> Result<Realm, DecodeError> {
        let mut out = FieldWriter::new(realm.encoded_bytes());
        realm.encode(&mut out);
        assert!(out.0.len() <= realm.encoded_bytes());
        let mut reader = FieldReader(&out.0);
        let decoded = Realm::decode(&mut reader)?;
        reader.end()?;
        Ok(decoded)
    }

    #[test]
    fn realm_first_kdc_keeps_password_servers() {
        assert_eq!(realm().kpasswd_servers(), ["kdc1", "[2001:db8::1]", "kdc2"]);
        let first = realm().with_first("[2001:db8::1]:88");
        assert_eq!(first.kdcs, ["[2001:db8::1]:88", "kdc1:750", "kdc2"]);
        assert_eq!(first.kpasswd_servers(), realm().kpasswd_servers());
        let named = Realm { kpasswds: vec!["kdc1:464".into()], ..realm() };
        assert_eq!(named.with_first("kdc2").kpasswd_servers(), ["kdc1:464"]);
        let only = Realm { discover: true, ..realm() }.with_only("192.0.2.1:88");
        assert_eq!((&only.kdcs[..], only.discover), (&["192.0.2.1:88".to_owned()][..], false));
    }

    #[test]
    fn realm_well_formed_survives_encoding() {
        let full = Realm {
            kpasswds: vec!["[fe80::1%2]:464".into(), "192.0.2.1".into()],
            discover: true,
            ..realm()
        };
        for realm in [realm(), full, Realm { kdcs: Vec::new(), ..realm() }] {
            assert_eq!(decoded(&realm), Ok(realm));
        }
    }

    #[test]
    fn realm_characters_of_krb5_conf_are_malformed() {
        let injections = [
            "LAB.TEST\n[plugins]",
            "LAB.TEST\r",
            "LAB.TEST }",
            "LAB.TEST = {",
            "LAB.TEST#",
            "LAB.TEST;",
            "LAB.TEST\"",
            "LAB.TEST\0",
            "LAB.TEST*",
            "LÄB.TEST",
            "https://kdc/KdcProxy",
            "/run/kdc.socket",
            "",
        ];
        for text in injections {
            let name = Realm { name: text.into(), ..realm() };
            let kdc = Realm { kdcs: vec!["kdc1".into(), text.into()], ..realm() };
            let kpasswd = Realm { kpasswds: vec![text.into()], ..realm() };
            for realm in [name, kdc, kpasswd] {
                assert_eq!(decoded(&realm), Err(DecodeError), "{realm:?}");
            }
        }
        let long = "x".repeat(SERVER_BYTES_MAX + 1);
        assert_eq!(decoded(&Realm { name: long.clone(), ..realm() }), Err(DecodeError));
        assert_eq!(decoded(&Realm { kdcs: vec![long], ..realm() }), Err(DecodeError));
    }

    #[test]
    fn realm_server_count_beyond_message_is_malformed() {
        let mut out = FieldWriter::new(64);
        out.bytes(b"LAB.TEST");
        out.number(u32::MAX);
        out.bytes(b"kdc1");
        assert_eq!(Realm::decode(&mut FieldReader(&out.0)), Err(DecodeError));
    }
}
