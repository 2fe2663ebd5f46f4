// SPDX-License-Identifier: MIT OR Apache-2.0
//! DNS messages (RFC 1035): encodes queries, and parses the question, the code and the record types of replies. Any
//! bytes are safe to parse. This module opens no socket: `message_engine` does.

use std::borrow::Cow;
use std::net::IpAddr;

/// Maximum size of a message; the length over TCP has two octets.
pub const MESSAGE_BYTES_MAX: usize = u16::MAX as usize;
const HEADER_BYTES: usize = 12;
const LABEL_BYTES_MAX: usize = 63;
/// Maximum size of a name: labels with their lengths, and the root label.
const NAME_BYTES_MAX: usize = 255;

/// Record types of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum RecordType {
    /// Query IPv4 addresses
    A = 1,
    /// Query the name of an address; --name may be the address
    Ptr = 12,
    /// Query IPv6 addresses
    Aaaa = 28,
    /// Query the servers of a service
    Srv = 33,
}

/// Writes a query. An invalid name is an error.
pub fn write_query(
    id: u16,
    name: &[u8],
    kind: RecordType,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    const RECURSION_DESIRED: u16 = 0x0100;
    const CLASS_IN: u16 = 1;
    for field in [id, RECURSION_DESIRED, 1, 0, 0, 0] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    let reversed;
    let name = match kind {
        RecordType::Ptr => {
            reversed = reverse(name);
            reversed.as_deref().unwrap_or(name)
        }
        _ => name,
    };
    let start = out.len();
    let name = name.strip_suffix(b".").unwrap_or(name);
    for label in name.split(|&byte| byte == b'.').filter(|_| !name.is_empty()) {
        match u8::try_from(label.len()) {
            Ok(length) if length > 0 && label.len() <= LABEL_BYTES_MAX => out.push(length),
            _ => return Err("label with no or more than 63 characters"),
        }
        out.extend_from_slice(label);
    }
    out.push(0);
    if out.len() - start > NAME_BYTES_MAX {
        return Err("name longer than 253 characters");
    }
    for field in [kind as u16, CLASS_IN] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    Ok(())
}

/// Returns the name for the reverse lookup of an address.
fn reverse(address: &[u8]) -> Option<Vec<u8>> {
    let address: IpAddr = std::str::from_utf8(address).ok()?.parse().ok()?;
    let name = match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let nibbles =
                address.octets().into_iter().rev().flat_map(|octet| [octet & 15, octet >> 4]);
            let digits: String = nibbles.map(|nibble| format!("{nibble:x}.")).collect();
            format!("{digits}ip6.arpa")
        }
    };
    Some(name.into_bytes())
}

/// Result of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsReply {
    /// The reply is for another query.
    Other,
    /// The code; 0 is success.
    Code(u8),
    /// The name exists without a record of this type (NODATA, RFC 2308).
    Empty,
    /// The records do not fit into a datagram.
    Truncated,
}

/// Parses a reply to `query`.
pub fn read(answer: &[u8], query: &[u8]) -> Result<DnsReply, &'static str> {
    const RESPONSE: u8 = 0x80;
    const TRUNCATED: u8 = 0x02;
    const FORMAT_ERROR: u8 = 1;
    let (Some(header), Some(asked)) = (answer.get(..HEADER_BYTES), query.get(..HEADER_BYTES))
    else {
        return Err("message too short");
    };
    if header[..2] != asked[..2] {
        return Ok(DnsReply::Other);
    }
    if header[2] & RESPONSE == 0 {
        return Err("query instead of a reply");
    }
    let code = header[3] & 0x0f;
    let questions = u16::from_be_bytes([header[4], header[5]]);
    // A server that rejects the format of the query may omit the question.
    if questions != 0 || code != FORMAT_ERROR {
        let question = &query[HEADER_BYTES..];
        let repeated = answer.get(HEADER_BYTES..HEADER_BYTES + question.len());
        match repeated {
            Some(repeated) if questions == 1 && repeated.eq_ignore_ascii_case(question) => {}
            _ => return Ok(DnsReply::Other),
        }
    }
    if header[2] & TRUNCATED != 0 {
        return Ok(DnsReply::Truncated);
    }
    let answers = u16::from_be_bytes([header[6], header[7]]);
    let is_empty = || {
        Ok::<_, &str>(!has_requested_type(
            &answer[HEADER_BYTES..],
            &query[HEADER_BYTES..],
            answers,
        )?)
    };
    Ok(if code == 0 && is_empty()? { DnsReply::Empty } else { DnsReply::Code(code) })
}

/// Returns whether a record after the question has the requested type. An alias without such a record does not count.
fn has_requested_type(behind: &[u8], question: &[u8], answers: u16) -> Result<bool, &'static str> {
    const BROKEN: &str = "truncated record";
    let asked =
        question.len().checked_sub(4).and_then(|at| question.get(at..at + 2)).ok_or(BROKEN)?;
    let mut rest = behind.get(question.len()..).ok_or(BROKEN)?;
    for _ in 0..answers {
        loop {
            let &[first, ref more @ ..] = rest else { return Err(BROKEN) };
            rest = match first {
                0 => more,
                // A pointer ends a name.
                0xc0.. => more.get(1..).ok_or(BROKEN)?,
                length => more.get(usize::from(length)..).ok_or(BROKEN)?,
            };
            if first == 0 || first >= 0xc0 {
                break;
            }
        }
        let (fixed, data) = rest.split_first_chunk::<10>().ok_or(BROKEN)?;
        if fixed[..2] == *asked {
            return Ok(true);
        }
        let length = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        rest = data.get(length..).ok_or(BROKEN)?;
    }
    Ok(false)
}

/// Returns the name of a code.
#[must_use]
pub fn name(code: u8) -> Cow<'static, str> {
    Cow::Borrowed(match code {
        0 => "NOERROR",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        9 => "NOTAUTH",
        _ => "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: RecordType) -> Result<Vec<u8>, &'static str> {
        let mut out = Vec::new();
        write_query(0x0102, name.as_bytes(), kind, &mut out).map(|()| out)
    }

    #[test]
    fn a_query_is_encoded_as_the_standard_says() {
        let expected =
            b"\x01\x02\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02h1\x03lab\x00\x00\x21\x00\x01";
        for name in ["h1.lab", "h1.lab."] {
            assert_eq!(query(name, RecordType::Srv).unwrap(), expected);
        }
        assert!(query(".", RecordType::A).unwrap().ends_with(b"\x00\x00\x00\x01\x00\x01"));
    }

    #[test]
    fn an_address_is_asked_for_by_its_reversed_name() {
        let four = query("192.0.2.7", RecordType::Ptr).unwrap();
        assert_eq!(four, query("7.2.0.192.in-addr.arpa", RecordType::Ptr).unwrap());
        let six = query("2001:db8::1", RecordType::Ptr).unwrap();
        let name = format!("1.{}8.b.d.0.1.0.0.2.ip6.arpa", "0.".repeat(23));
        assert_eq!(six, query(&name, RecordType::Ptr).unwrap());
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        for name in ["a..b".to_owned(), ".a".to_owned(), "x".repeat(64), "x.".repeat(127) + "xx"] {
            assert!(query(&name, RecordType::A).is_err(), "{name}");
        }
        assert!(query(&("x.".repeat(126) + "x"), RecordType::A).is_ok());
    }

    #[test]
    fn only_an_answer_to_the_question_is_one() {
        let asked = query("h.lab", RecordType::A).unwrap();
        let mut answer = asked.clone();
        assert_eq!(read(&answer, &asked), Err("query instead of a reply"));
        answer[2] |= 0x80;
        answer[3] = 3;
        assert_eq!(read(&answer, &asked), Ok(DnsReply::Code(3)));
        let upper: Vec<u8> = answer.iter().map(u8::to_ascii_uppercase).collect();
        assert_eq!(read(&upper, &asked), Ok(DnsReply::Code(3)));
        assert_eq!(read(&answer, &query("i.lab", RecordType::A).unwrap()), Ok(DnsReply::Other));
        assert_eq!(read(&answer[..20], &asked), Ok(DnsReply::Other));
        assert!(read(&answer[..11], &asked).is_err());
        answer[3] = 0;
        assert_eq!(read(&answer, &asked), Ok(DnsReply::Empty));
        answer[7] = 1;
        assert!(read(&answer, &asked).is_err());
        // The records are an alias with a name, one with a pointer, and the requested type.
        let (alias, address) =
            (b"\x01a\0\0\x05\0\x01\0\0\0\0\0\x02\xc0\x0c", b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\0");
        let only = [&answer[..], alias].concat();
        assert_eq!(read(&only, &asked), Ok(DnsReply::Empty));
        answer[7] = 2;
        assert!(read(&[&answer[..], alias].concat(), &asked).is_err());
        let both = [&answer[..], alias, address].concat();
        assert_eq!(read(&both, &asked), Ok(DnsReply::Code(0)));
        answer[7] = 0;
        answer[2] |= 2;
        assert_eq!(read(&answer, &asked), Ok(DnsReply::Truncated));
        answer[0] ^= 1;
        assert_eq!(read(&answer, &asked), Ok(DnsReply::Other));
    }
}
