// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bus names, object paths and interface names, in one place.
//!
//! `org.roster.Monitor` at `/org/roster/Monitor`, `org.roster.Publisher` at `/org/roster/Publisher`,
//! `org.roster.Backend.DOMAIN` at `/org/roster/Backend/DOMAIN`, `org.roster.Responder.Nss` at
//! `/org/roster/Responder/Nss`, and so on: a role's one object carries its own interface and
//! [`ROLE`].

use std::fmt::Write as _;
use std::path::Path;

/// Prefix of every bus name.
pub const PREFIX: &str = "org.roster";
/// Interface of every role.
pub const ROLE: &str = "org.roster.Role1";
/// Interface of the monitor.
pub const MONITOR: &str = "org.roster.Monitor1";
/// Interface of a backend.
pub const BACKEND: &str = "org.roster.Backend1";
/// Interface of the publisher.
pub const PUBLISHER: &str = "org.roster.Publisher1";
/// Prefix of the errors in [`crate::interfaces::BusError`].
pub const ERROR: &str = "org.roster.Error";
/// The bus's socket in the run-time directory.
pub const SOCKET: &str = "bus";

/// Returns the address of the bus in that run-time directory.
#[must_use]
pub fn bus_address(run_dir: &Path) -> String {
    format!("unix:path={}", escape_address_value(&run_dir.join(SOCKET)))
}

/// Escapes a path for a D-Bus address.
#[must_use]
pub fn escape_address_value(path: &Path) -> String {
    let mut value = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'/' | b'.' => {
                value.push((*byte).into());
            }
            byte => {
                let _ = write!(value, "%{byte:02x}");
            }
        }
    }
    value
}

/// A process of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RoleName {
    /// Starts the others.
    Monitor,
    /// Writes the snapshot.
    Publisher,
    /// Talks to one domain's directory.
    Backend(String),
    /// Replies to requests of programs on one of the daemon's sockets.
    Responder(String),
}

impl RoleName {
    /// Parses the form for people: `monitor`, `publisher`, `backend:corp`, `responder:nss`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None if text == "monitor" => Some(Self::Monitor),
            None if text == "publisher" => Some(Self::Publisher),
            Some(("backend", domain)) if !domain.is_empty() => Some(Self::Backend(domain.into())),
            Some(("responder", name)) if !name.is_empty() => Some(Self::Responder(name.into())),
            _ => None,
        }
    }

    /// Returns the name that the role owns on the bus.
    #[must_use]
    pub fn bus_name(&self) -> String {
        format!("{PREFIX}.{}", self.elements().join("."))
    }

    /// Returns the path of the role's object.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/{}/{}", PREFIX.replace('.', "/"), self.elements().join("/"))
    }

    fn elements(&self) -> Vec<String> {
        match self {
            Self::Monitor => vec!["Monitor".into()],
            Self::Publisher => vec!["Publisher".into()],
            Self::Backend(domain) => vec!["Backend".into(), escape(domain)],
            Self::Responder(name) => vec!["Responder".into(), escape(name)],
        }
    }
}

impl std::fmt::Display for RoleName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Monitor => f.write_str("monitor"),
            Self::Publisher => f.write_str("publisher"),
            Self::Backend(domain) => write!(f, "backend:{domain}"),
            Self::Responder(name) => write!(f, "responder:{name}"),
        }
    }
}

/// Escapes a name as one element of a bus name or path. Characters other than ASCII letters and digits, and a digit at
/// the start, become `_` and two hexadecimal digits.
#[must_use]
pub fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for (position, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (byte.is_ascii_digit() && position > 0) {
            escaped.push(byte.into());
        } else {
            let _ = write!(escaped, "_{byte:02x}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_domain_has_a_valid_name_of_its_own() {
        let names = ["corp", "corp.example.com", "corp_example_com", "1st", "a-b", "_31st"];
        let mut seen = std::collections::HashSet::new();
        for name in names {
            let role = RoleName::Backend(name.into());
            assert!(zbus::names::WellKnownName::try_from(role.bus_name()).is_ok(), "{name}");
            assert!(zbus::ObjectPath::try_from(role.path()).is_ok(), "{name}");
            assert!(seen.insert(role.bus_name()), "{name}");
            assert_eq!(RoleName::parse(&role.to_string()), Some(role));
        }
    }

    #[test]
    fn bus_address_odd_characters_escaped() {
        assert_eq!(escape_address_value(Path::new("/a b/<ü>,x")), "/a%20b/%3c%c3%bc%3e%2cx");
    }
}
