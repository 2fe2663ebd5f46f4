// SPDX-License-Identifier: MIT OR Apache-2.0
//! The netlogon ping of Active Directory (MS-ADTS 6.3.3): one LDAP search and its reply, each in a datagram. Pure.
//!
//! The reply names the domain and the host of the controller, its site, and the site of the client. It is not authentic,
//! so it selects servers and never proves one. The module `controllers` sends the pings.

use crate::ber::{BerError, MessageFrame, frame};
use crate::filter::EncodedFilter;
use crate::message::{LdapRequest, LdapResponse, ResponseOperation, Scope, SearchRequest};

/// Limit of a reply in bytes. The names of a reply have at most 2 KiB.
pub const REPLY_BYTES_MAX: usize = 4096;

/// The attribute that holds the reply.
const NETLOGON: &str = "Netlogon";
/// Requested versions: `NETLOGON_NT_VERSION_5` and `NETLOGON_NT_VERSION_5EX`.
const NT_VERSION: u32 = 0x06;
/// Type of the requested reply: `LOGON_SAM_LOGON_RESPONSE_EX`.
const SAM_LOGON_RESPONSE_EX: u16 = 23;
/// Longest name in the form of DNS (RFC 1035), with a length octet for each label.
const NAME_BYTES_MAX: usize = 255;
/// Two high bits of a length octet that begin a pointer.
const POINTER: u8 = 0xc0;

/// Properties of a controller in [`ControllerReply::flags`] (MS-ADTS 6.3.1.2).
pub mod flag {
    /// The controller is the PDC emulator.
    pub const PDC: u32 = 0x1;
    /// The controller is a global catalog.
    pub const GLOBAL_CATALOG: u32 = 0x4;
    /// The controller serves LDAP.
    pub const LDAP: u32 = 0x8;
    /// The controller is a KDC.
    pub const KDC: u32 = 0x20;
    /// The controller is in the site of the client.
    pub const CLOSEST: u32 = 0x80;
    /// The controller accepts changes.
    pub const WRITABLE: u32 = 0x100;
}

/// The content of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerReply {
    /// Properties of the controller, see [`flag`].
    pub flags: u32,
    /// `objectGUID` of the domain, as its octets.
    pub domain_guid: [u8; 16],
    /// DNS name of the forest.
    pub forest: String,
    /// DNS name of the domain.
    pub domain: String,
    /// DNS name of the controller.
    pub host: String,
    /// NetBIOS name of the domain.
    pub netbios_domain: String,
    /// NetBIOS name of the controller.
    pub netbios_host: String,
    /// Site of the controller.
    pub server_site: String,
    /// Site of the client's address. Empty if the directory assigns no site to it.
    pub client_site: String,
}

/// The reason that a datagram is not a usable reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PingError {
    /// The bytes are not LDAP.
    #[error(transparent)]
    Malformed(#[from] BerError),
    /// The reply belongs to another request.
    #[error("a reply to another request")]
    OtherRequest,
    /// The server has no such attribute, or does not serve the domain.
    #[error("the server does not serve the domain")]
    NoEntry,
    /// The reply has another type.
    #[error("a reply of type {0}, expected {SAM_LOGON_RESPONSE_EX}")]
    OtherType(u16),
    /// The value ends before its last field.
    #[error("the reply is truncated")]
    Truncated,
    /// A name has an invalid label, is too long, or points forward.
    #[error("the reply has an invalid name")]
    InvalidName,
    /// The controller belongs to another domain.
    #[error("the server {host} belongs to the domain {found}, expected {expected}")]
    ForeignDomain {
        /// The controller's name for itself.
        host: String,
        /// The domain of the controller.
        found: String,
        /// The wanted domain.
        expected: String,
    },
}

/// Encodes a ping for the controllers of a domain.
#[must_use]
pub fn encode_ping(id: u32, domain: &str) -> Vec<u8> {
    let filter = EncodedFilter::all(&[
        EncodedFilter::equals("DnsDomain", domain.trim_end_matches('.').as_bytes()),
        EncodedFilter::equals("NtVer", &NT_VERSION.to_le_bytes()),
    ]);
    let request = LdapRequest::Search(SearchRequest {
        base: "",
        scope: Scope::Base,
        filter: &filter,
        attributes: &[NETLOGON],
        entries_max: 0,
    });
    request.encode(id, &[])
}

/// Parses the reply to the ping with this id, and checks that the controller belongs to the domain.
pub fn parse_reply(datagram: &[u8], id: u32, domain: &str) -> Result<ControllerReply, PingError> {
    let MessageFrame::Whole(length) = frame(datagram, REPLY_BYTES_MAX)? else {
        return Err(PingError::Truncated);
    };
    let response = LdapResponse::parse(datagram.get(..length).unwrap_or_default())?;
    if response.id != id {
        return Err(PingError::OtherRequest);
    }
    let ResponseOperation::Entry(entry) = response.operation else {
        return Err(PingError::NoEntry);
    };
    let value = entry.values(NETLOGON)?.next().ok_or(PingError::NoEntry)??;
    let reply = ControllerReply::parse(value)?;
    if !is_same_name(&reply.domain, domain) {
        let ControllerReply { host, domain: found, .. } = reply;
        let expected = domain.trim_end_matches('.').to_owned();
        return Err(PingError::ForeignDomain { host, found, expected });
    }
    Ok(reply)
}

/// Returns whether two DNS names are equal. DNS ignores the case of ASCII letters, and a dot at the end.
fn is_same_name(one: &str, other: &str) -> bool {
    one.trim_end_matches('.').eq_ignore_ascii_case(other.trim_end_matches('.'))
}

impl ControllerReply {
    /// Parses the value of the attribute: `NETLOGON_SAM_LOGON_RESPONSE_EX` (MS-ADTS 6.3.1.9). Ignores the fields after
    /// the names, which depend on the version.
    pub fn parse(value: &[u8]) -> Result<Self, PingError> {
        let mut reader = ValueReader { value, offset: 0 };
        let kind = u16::from_le_bytes(reader.take_bytes()?);
        if kind != SAM_LOGON_RESPONSE_EX {
            return Err(PingError::OtherType(kind));
        }
        let _reserved: [u8; 2] = reader.take_bytes()?;
        let flags = u32::from_le_bytes(reader.take_bytes()?);
        let domain_guid = reader.take_bytes()?;
        let forest = reader.name()?;
        let domain = reader.name()?;
        let host = reader.name()?;
        let netbios_domain = reader.name()?;
        let netbios_host = reader.name()?;
        let _user = reader.name()?;
        let server_site = reader.name()?;
        let client_site = reader.name()?;
        Ok(Self {
            flags,
            domain_guid,
            forest,
            domain,
            host,
            netbios_domain,
            netbios_host,
            server_site,
            client_site,
        })
    }

    /// Returns whether the controller has this property.
    #[must_use]
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Reads the fields of a value one after the other.
struct ValueReader<'a> {
    value: &'a [u8],
    offset: usize,
}

impl ValueReader<'_> {
    /// Reads a field of fixed length.
    fn take_bytes<const N: usize>(&mut self) -> Result<[u8; N], PingError> {
        let field = self.value.get(self.offset..).and_then(|rest| rest.first_chunk::<N>());
        let field = *field.ok_or(PingError::Truncated)?;
        self.offset += N;
        Ok(field)
    }

    /// Reads a name: labels up to an empty one, or up to a pointer to the rest of the name. Pointers count from the
    /// start of the value. Each must point to an earlier offset than the one before, so their number is bounded.
    fn name(&mut self) -> Result<String, PingError> {
        let mut name = String::new();
        let mut encoded = 0;
        let mut offset = self.offset;
        let mut pointer_max = self.offset;
        let mut end = None;
        loop {
            let byte = |offset: usize| self.value.get(offset).copied().ok_or(PingError::Truncated);
            let length = byte(offset)?;
            match length {
                0 => {
                    self.offset = end.unwrap_or(offset + 1);
                    return Ok(name);
                }
                1..=63 => {
                    let start = offset + 1;
                    offset = start + usize::from(length);
                    let label = self.value.get(start..offset).ok_or(PingError::Truncated)?;
                    encoded += 1 + label.len();
                    if encoded >= NAME_BYTES_MAX {
                        return Err(PingError::InvalidName);
                    }
                    push_label(&mut name, label)?;
                }
                POINTER.. => {
                    let low = byte(offset + 1)?;
                    let target = usize::from(length & !POINTER) << 8 | usize::from(low);
                    if target >= pointer_max {
                        return Err(PingError::InvalidName);
                    }
                    end = end.or(Some(offset + 2));
                    pointer_max = target;
                    offset = target;
                }
                _ => return Err(PingError::InvalidName),
            }
        }
    }
}

/// Appends a label. A label of a host, a domain or a site is text without dots and control characters.
fn push_label(name: &mut String, label: &[u8]) -> Result<(), PingError> {
    let label = std::str::from_utf8(label).map_err(|_| PingError::InvalidName)?;
    if label.chars().any(|char| char == '.' || char.is_control()) {
        return Err(PingError::InvalidName);
    }
    if !name.is_empty() {
        name.push('.');
    }
    name.push_str(label);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }

    /// Recorded from Samba 4.17.12: the reply to message 1, for a client in the site Berlin.
    const SAMBA: &str = "307502010164700400306c306a04086e65746c6f676f6e315e045c170000003d110000b0e28b6b6b2ab44982b1c6\
                         34d063334c036c6162047465737400c018026463c018034c41420002444300001744656661756c742d46697273\
                         742d536974652d4e616d6500064265726c696e0005000000ffffffff300c02010165070a010004000400";
    /// The same with the address of the controller behind the names (version 0x1e).
    const SAMBA_WITH_ADDRESS: &str = "3081870201016481810400307d307b04086e65746c6f676f6e316f046d170000003d110000b0e28b6b6b2a\
                                      b44982b1c634d063334c036c6162047465737400c018026463c018034c41420002444300001744656661\
                                      756c742d46697273742d536974652d4e616d6500064265726c696e0010020000007f000001000000000000\
                                      00000d000000ffffffff300c02010165070a010004000400";
    /// The reply to a ping for another domain: no entry.
    const SAMBA_OTHER: &str = "300c02010165070a010004000400";

    #[test]
    fn ping_samba_replies_are_parsed() {
        for recorded in [SAMBA, SAMBA_WITH_ADDRESS] {
            let reply = parse_reply(&bytes(recorded), 1, "LAB.test.").unwrap();
            assert_eq!(reply.forest, "lab.test");
            assert_eq!(reply.domain, "lab.test");
            assert_eq!(reply.host, "dc.lab.test");
            assert_eq!((&*reply.netbios_domain, &*reply.netbios_host), ("LAB", "DC"));
            assert_eq!(reply.server_site, "Default-First-Site-Name");
            assert_eq!(reply.client_site, "Berlin");
            assert_eq!(reply.domain_guid, bytes("b0e28b6b6b2ab44982b1c634d063334c")[..]);
            assert_eq!(reply.flags, 0x113d);
            let has = [flag::PDC, flag::GLOBAL_CATALOG, flag::LDAP, flag::KDC, flag::WRITABLE];
            assert!(has.iter().all(|&flag| reply.has(flag)));
            assert!(!reply.has(flag::CLOSEST));
        }
    }

    #[test]
    fn ping_without_entry_serves_another_domain() {
        let reply = parse_reply(&bytes(SAMBA_OTHER), 1, "wrong.test");
        assert_eq!(reply, Err(PingError::NoEntry));
    }

    #[test]
    fn ping_foreign_domain_is_refused_by_name() {
        let error = parse_reply(&bytes(SAMBA), 1, "corp.test").unwrap_err();
        let text = "the server dc.lab.test belongs to the domain lab.test, expected corp.test";
        assert_eq!(error.to_string(), text);
        assert_eq!(parse_reply(&bytes(SAMBA), 2, "lab.test"), Err(PingError::OtherRequest));
    }

    #[test]
    fn ping_request_has_domain_and_version() {
        let ping = encode_ping(7, "lab.test.");
        assert_eq!(frame(&ping, REPLY_BYTES_MAX), Ok(MessageFrame::Whole(ping.len())));
        let has = |part: &[u8]| ping.windows(part.len()).any(|found| found == part);
        assert!(has(b"\x04\x09DnsDomain\x04\x08lab.test"));
        assert!(has(b"\x04\x05NtVer\x04\x04\x06\0\0\0"));
        assert!(has(b"\x04\x08Netlogon"));
    }

    /// Returns a value with this first name, and names that are empty otherwise.
    fn value(name: &[u8]) -> Vec<u8> {
        let mut value = bytes("1700000000000000");
        value.extend([7; 16]);
        value.extend(name);
        value.extend([0; 7]);
        value
    }

    #[test]
    fn ping_hostile_names_are_refused() {
        let own = 24_u8;
        for (case, name) in [
            ("a pointer to itself", vec![0xc0, own]),
            ("a pointer to the label before it", vec![1, b'a', 0xc0, own]),
            ("a pointer forward", vec![0xc0, own + 4]),
            ("a reserved length", vec![0x40, b'a', 0]),
            ("a dot in a label", vec![3, b'a', b'.', b'b', 0]),
            ("a newline", vec![1, b'\n', 0]),
            ("no UTF-8", vec![1, 0xff, 0]),
            ("too long", [&[63; 64][..]; 4].concat().into_iter().chain([0]).collect()),
        ] {
            let parsed = ControllerReply::parse(&value(&name));
            assert_eq!(parsed, Err(PingError::InvalidName), "{case}");
        }
        let plain = ControllerReply::parse(&value(b"\x03lab\x04test\0")).unwrap();
        assert_eq!((&*plain.forest, &*plain.client_site), ("lab.test", ""));
    }

    #[test]
    fn ping_pointer_chain_ends() {
        // The first pointer of the GUID leads to a label in the flags, each other one to the pointer before it.
        let mut hostile = bytes("17000000");
        hostile.extend([1, b'a', 0, 0]);
        for offset in (8..24).step_by(2) {
            hostile.extend([0xc0, if offset == 8 { 4 } else { offset - 2 }]);
        }
        hostile.extend([0xc0, 22]);
        hostile.extend([0; 7]);
        let parsed = ControllerReply::parse(&hostile).unwrap();
        assert_eq!(parsed.forest, "a");
    }

    #[test]
    fn ping_truncated_reply_is_refused() {
        let whole = bytes(SAMBA);
        let entry = whole.len() - bytes(SAMBA_OTHER).len();
        for end in 0..entry {
            assert!(parse_reply(&whole[..end], 1, "lab.test").is_err(), "{end} bytes");
        }
        let value = &whole[27..27 + 0x5c];
        let names_end = value.len() - 8;
        for end in 0..names_end {
            assert_eq!(ControllerReply::parse(&value[..end]), Err(PingError::Truncated), "{end}");
        }
        assert!(ControllerReply::parse(&value[..names_end]).is_ok());
    }

    #[test]
    fn ping_altered_replies_never_break_bounds() {
        let recorded = bytes(SAMBA);
        let mut state = 1_u32;
        let mut random = |limit: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % limit
        };
        let mut parsed = 0;
        for _ in 0..50_000 {
            let mut altered = recorded.clone();
            for _ in 0..=random(4) {
                let place = random(altered.len());
                altered[place] = random(256) as u8;
            }
            if let Ok(reply) = parse_reply(&altered, 1, "lab.test") {
                assert!(
                    reply.host.len() < NAME_BYTES_MAX && reply.client_site.len() < NAME_BYTES_MAX
                );
                parsed += 1;
            }
        }
        assert!(parsed > 0, "no altered reply is valid");
    }

    #[test]
    fn ping_other_reply_type_is_refused() {
        let mut value = value(b"\0");
        value[0] = 25;
        assert_eq!(ControllerReply::parse(&value), Err(PingError::OtherType(25)));
    }
}
