// SPDX-License-Identifier: MIT OR Apache-2.0
//! The servers to which a directory refers for parts of the search bases. Referrals are not followed: they would send
//! the bind to a server that the directory chooses. The status names these servers. `track_sink` and
//! `lookup_connection` find them.

use crate::ber::{BerReader, tag};
use crate::message::{LdapResult, ResponseOperation, code};
use parking_lot::Mutex;
use roster_messages::{log, table::directory};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Limit of the servers in the status.
const SERVERS_MAX: usize = 8;
/// Limit of a server's name, as in DNS.
const NAME_BYTES_MAX: usize = 253;

/// The servers of the referrals on the present connection.
#[derive(Debug, Default)]
pub(crate) struct Referrals {
    servers: Mutex<BTreeSet<String>>,
}

impl Referrals {
    /// Records the referral in a response, if it has one.
    pub fn note(&self, operation: &ResponseOperation<'_>) {
        let uris = match operation {
            ResponseOperation::Reference(uris) => uris,
            ResponseOperation::SearchDone(LdapResult {
                code: code::REFERRAL, referral, ..
            }) => referral,
            _ => return,
        };
        let uri = first_uri(uris);
        if is_partition_without_users(&uri) {
            return;
        }
        let server = referred_server(&uri);
        let mut servers = self.servers.lock();
        if servers.len() < SERVERS_MAX && !servers.contains(&server) {
            log!(
                INFO,
                &directory::REFERRAL,
                "the server refers to {server}; referrals are not followed. Configure the referred server as a separate domain."
            );
            servers.insert(server);
        }
    }

    /// Forgets the servers, because a new connection shows the present ones.
    pub fn clear(&self) {
        self.servers.lock().clear();
    }

    /// Returns the servers.
    pub fn servers(&self) -> Vec<String> {
        self.servers.lock().iter().cloned().collect()
    }
}

/// Partitions of Active Directory below the domain's base. They have no users and groups.
const PARTITIONS_WITHOUT_USERS: [&str; 3] =
    ["CN=Configuration,", "DC=DomainDnsZones,", "DC=ForestDnsZones,"];

fn first_uri(uris: &[u8]) -> Cow<'_, str> {
    let uri = BerReader::new(uris).optional(tag::OCTETS).ok().flatten().unwrap_or_default();
    String::from_utf8_lossy(uri)
}

fn is_partition_without_users(uri: &str) -> bool {
    let place = uri.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
    let starts_with = |name: &str, start: &str| {
        name.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
    };
    place.is_some_and(|(_, name)| {
        PARTITIONS_WITHOUT_USERS.iter().any(|partition| starts_with(name, partition))
    })
}

/// Returns the host of a URI, of bounded length and without special characters.
fn referred_server(uri: &str) -> String {
    let authority = uri.split_once("://").map_or("", |(_, rest)| rest);
    let host = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(&byte);
    match host {
        "" => "an unnamed server".to_owned(),
        host if host.len() <= NAME_BYTES_MAX && host.bytes().all(is_plain) => host.to_owned(),
        _ => "a server with an invalid name".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ber::BerWriter;

    fn uris(uris: &[&str]) -> Vec<u8> {
        let mut writer = BerWriter::default();
        uris.iter().for_each(|uri| writer.octets(uri.as_bytes()));
        writer.into_bytes()
    }

    #[test]
    fn referral_server_is_bounded_and_plain() {
        let long = format!("ldap://{}/", "x".repeat(NAME_BYTES_MAX + 1));
        for (uri, server) in [
            ("ldap://ldap2.example.com/ou=people,dc=example,dc=com??sub", "ldap2.example.com"),
            ("ldaps://[2001:db8::1]:636", "[2001:db8::1]:636"),
            ("ldap://user@host/dc=x", "host"),
            ("ldap:///dc=x", "an unnamed server"),
            ("nonsense", "an unnamed server"),
            ("ldap://a\u{1b}[31m/", "a server with an invalid name"),
            (&long, "a server with an invalid name"),
        ] {
            let uris = uris(&[uri, "ldap://other/"]);
            assert_eq!(referred_server(&first_uri(&uris)), server, "{uri}");
        }
        assert_eq!(referred_server(&first_uri(b"\x04\x7f")), "an unnamed server");
    }

    #[test]
    fn referrals_to_partitions_without_users_are_ignored() {
        let referrals = Referrals::default();
        for name in ["CN=Configuration,DC=x", "DC=DomainDnsZones,DC=x", "dc=forestdnszones,DC=x"] {
            let uri = uris(&[&format!("ldap://lab.test/{name}")]);
            referrals.note(&ResponseOperation::Reference(&uri));
        }
        assert_eq!(referrals.servers(), Vec::<String>::new());
        for name in ["DC=child,DC=x", "CN=Configuration", ""] {
            let uri = uris(&[&format!("ldap://{}.test/{name}", name.len())]);
            referrals.note(&ResponseOperation::Reference(&uri));
        }
        assert_eq!(referrals.servers(), ["0.test", "13.test", "16.test"]);
    }

    #[test]
    fn referrals_are_counted_once_until_cleared() {
        let referrals = Referrals::default();
        let (a, b) = (uris(&["ldap://a/dc=x"]), uris(&["ldap://b"]));
        for _ in 0..3 {
            referrals.note(&ResponseOperation::Reference(&a));
        }
        let result = |code| LdapResult { code, message: b"", referral: &b };
        referrals.note(&ResponseOperation::SearchDone(result(code::SUCCESS)));
        assert_eq!(referrals.servers(), ["a"]);
        referrals.note(&ResponseOperation::SearchDone(result(code::REFERRAL)));
        assert_eq!(referrals.servers(), ["a", "b"]);
        for number in 0..2 * SERVERS_MAX {
            let uri = uris(&[&format!("ldap://host{number}/")]);
            referrals.note(&ResponseOperation::Reference(&uri));
        }
        assert_eq!(referrals.servers().len(), SERVERS_MAX);
        referrals.clear();
        assert_eq!(referrals.servers(), Vec::<String>::new());
    }
}
