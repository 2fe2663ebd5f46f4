// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replies of an LDAP server (RFC 4511): message number, type, result code, and attributes of entries. Other parts are
//! skipped. Any bytes are safe to parse. Requests are in the parent module `ldap`, and `ber` reads the elements.

use crate::ber::{self, MESSAGE_BYTES_MAX};
use std::borrow::Cow;

/// Tags of replies.
pub mod tag {
    /// BindResponse.
    pub const BIND: u8 = 0x61;
    /// SearchResultEntry, which does not end a request.
    pub const ENTRY: u8 = 0x64;
    /// SearchResultDone.
    pub const SEARCH: u8 = 0x65;
    /// ModifyResponse.
    pub const MODIFY: u8 = 0x67;
    /// AddResponse.
    pub const ADD: u8 = 0x69;
    /// DelResponse.
    pub const DELETE: u8 = 0x6b;
    /// CompareResponse.
    pub const COMPARE: u8 = 0x6f;
    /// SearchResultReference, which does not end a request.
    pub const REFERENCE: u8 = 0x73;
    /// ExtendedResponse.
    pub const EXTENDED: u8 = 0x78;
    /// IntermediateResponse, which does not end a request.
    pub const INTERMEDIATE: u8 = 0x79;
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LdapReply {
    /// Number of the request; 0 for an unsolicited message.
    pub id: u32,
    pub tag: u8,
    /// Result code of a reply that ends a request.
    pub code: Option<u32>,
}

/// Parses the message at the start of `bytes`. Returns it with its length; `None` while it is incomplete.
pub fn next(bytes: &[u8]) -> Result<Option<(LdapReply, usize)>, &'static str> {
    if bytes.first().is_some_and(|&first| first != 0x30) {
        return Err("not an LDAP message");
    }
    let Some((_, begin, end)) = ber::head(bytes)? else { return Ok(None) };
    if end > MESSAGE_BYTES_MAX {
        return Err("message too long");
    }
    let Some(mut rest) = bytes.get(begin..end) else { return Ok(None) };
    let (0x02, id) = ber::take_element(&mut rest)? else {
        return Err("message without a number");
    };
    let id = ber::unsigned(id)?;
    let (tag, mut content) = ber::take_element(&mut rest)?;
    let code = match tag {
        tag::ENTRY | tag::REFERENCE | tag::INTERMEDIATE => None,
        tag::BIND
        | tag::SEARCH
        | tag::MODIFY
        | tag::ADD
        | tag::DELETE
        | tag::COMPARE
        | tag::EXTENDED => {
            let (0x0a, code) = ber::take_element(&mut content)? else {
                return Err("result without a code");
            };
            Some(ber::unsigned(code)?)
        }
        _ => return Err("message of an unknown type"),
    };
    Ok(Some((LdapReply { id, tag, code }, end)))
}

/// Names of attributes in lower case, with their values.
pub type EntryAttributes = Vec<(Vec<u8>, Vec<Vec<u8>>)>;

/// Parses the attributes of a SearchResultEntry from a complete message.
pub fn attributes(message: &[u8]) -> Result<EntryAttributes, &'static str> {
    let mut rest = message;
    let mut content = ber::take_expected(0x30, &mut rest)?;
    ber::take_expected(0x02, &mut content)?;
    let mut entry = ber::take_expected(tag::ENTRY, &mut content)?;
    ber::take_expected(0x04, &mut entry)?;
    let mut list = ber::take_expected(0x30, &mut entry)?;
    let mut attributes = Vec::new();
    while !list.is_empty() {
        let mut one = ber::take_expected(0x30, &mut list)?;
        let name = ber::take_expected(0x04, &mut one)?.to_ascii_lowercase();
        let mut set = ber::take_expected(0x31, &mut one)?;
        let mut values = Vec::new();
        while !set.is_empty() {
            values.push(ber::take_expected(0x04, &mut set)?.to_vec());
        }
        attributes.push((name, values));
    }
    Ok(attributes)
}

/// Returns the name of a result code.
#[must_use]
pub fn name(code: u32) -> Cow<'static, str> {
    Cow::Borrowed(match code {
        0 => "success",
        1 => "operationsError",
        2 => "protocolError",
        3 => "timeLimitExceeded",
        4 => "sizeLimitExceeded",
        5 => "compareFalse",
        6 => "compareTrue",
        7 => "authMethodNotSupported",
        8 => "strongerAuthRequired",
        10 => "referral",
        11 => "adminLimitExceeded",
        13 => "confidentialityRequired",
        16 => "noSuchAttribute",
        17 => "undefinedAttributeType",
        19 => "constraintViolation",
        20 => "attributeOrValueExists",
        21 => "invalidAttributeSyntax",
        32 => "noSuchObject",
        34 => "invalidDNSyntax",
        48 => "inappropriateAuthentication",
        49 => "invalidCredentials",
        50 => "insufficientAccessRights",
        51 => "busy",
        52 => "unavailable",
        53 => "unwillingToPerform",
        65 => "objectClassViolation",
        80 => "other",
        _ => "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: &[u8] = b"\x30\x0c\x02\x01\x07\x61\x07\x0a\x01\x31\x04\x00\x04\x00";

    #[test]
    fn an_answer_is_read_when_its_last_byte_is_there() {
        for end in 0..BOUND.len() {
            assert_eq!(next(&BOUND[..end]), Ok(None), "{end}");
        }
        let reply = LdapReply { id: 7, tag: tag::BIND, code: Some(49) };
        assert_eq!(next(BOUND), Ok(Some((reply, BOUND.len()))));
        assert_eq!(next(&[BOUND, b"\x30"].concat()), Ok(Some((reply, BOUND.len()))));
    }

    #[test]
    fn an_entry_has_its_attributes_and_no_broken_one_has_any() {
        let entry = b"\x30\x1c\x02\x01\x02\x64\x17\x04\x01d\x30\x12\x30\x10\x04\x02CN\x31\x0a\
                      \x04\x01a\x04\x05bcdef";
        let found = attributes(entry).unwrap();
        assert_eq!(found, [(b"cn".to_vec(), vec![b"a".to_vec(), b"bcdef".to_vec()])]);
        for end in 0..entry.len() {
            assert!(attributes(&entry[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bytes in [
            &b"HTTP/1.1 400"[..],
            b"\x30\x80",
            b"\x30\x89\x01",
            b"\x30\x84\xff\xff\xff\xff",
            b"\x30\x03\x04\x01\x07",
            b"\x30\x05\x02\x01\x07\x60\x00",
            b"\x30\x05\x02\x01\x07\x61\x05",
            b"\x30\x08\x02\x01\x07\x61\x03\x0a\x01\xff",
            b"\x30\x0a\x02\x01\x07\x61\x05\x0a\x09\x00\x00\x00",
        ] {
            assert!(next(bytes).is_err(), "{bytes:x?}");
        }
    }
}
