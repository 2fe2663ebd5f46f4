// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of Kerberos (RFC 4120): templates of requests, and the parts of replies that the lab needs. Any bytes are
//! safe to parse. `crypto` encrypts.

use super::crypto::EncType;
use crate::ber::{self, MessageTemplate, close, open, primitive};
use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTETS: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const TEXT: u8 = 0x1b;
const TIME: u8 = 0x18;
const AS_REQUEST: u8 = 0x6a;
const TGS_REQUEST: u8 = 0x6c;
const AP_REQUEST: u8 = 0x6e;
const AUTHENTICATOR: u8 = 0x62;
const ERROR: u8 = 0x7e;
const TICKET: u8 = 0x61;
const PA_TGS_REQUEST: u32 = 1;
const PA_TIMESTAMP: u32 = 2;
const PA_ETYPE_INFO2: u32 = 19;
/// Maximum number of elements of a list in a reply.
const LIST_MAX: usize = 64;

/// KDC_ERR_PREAUTH_REQUIRED.
pub const PREAUTH_REQUIRED: u32 = 25;
/// KRB_ERR_RESPONSE_TOO_BIG.
pub const TOO_BIG: u32 = 52;

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum KdcRequestKind {
    /// Log in: request a ticket-granting ticket
    As,
    /// Request a service ticket after one login before the run
    Tgs,
}

impl KdcRequestKind {
    /// Returns the tag of the reply.
    fn reply_tag(self) -> u8 {
        match self {
            Self::As => 0x6b,
            Self::Tgs => 0x6d,
        }
    }
}

/// Returns the tag of an element with this number in its sequence.
fn context_tag(number: u8) -> u8 {
    0xa0 | number
}

fn element(tag: u8, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = open(tag, out);
    fill(out);
    close(start, out);
}

/// Writes a name of one or several parts, separated by `/`, as an element.
pub fn write_name(name: &[u8], out: &mut Vec<u8>) {
    let parts = name.split(|&byte| byte == b'/');
    // The name type is principal or service instance. KDCs do not compare it.
    let kind = if name.contains(&b'/') { 2 } else { 1 };
    element(SEQUENCE, out, |out| {
        element(context_tag(0), out, |out| primitive(INTEGER, &[kind], out));
        element(context_tag(1), out, |out| {
            element(SEQUENCE, out, |out| parts.for_each(|part| primitive(TEXT, part, out)));
        });
    });
}

/// Writes a text as an element.
pub fn write_text(text: &[u8], out: &mut Vec<u8>) {
    primitive(TEXT, text, out);
}

/// Writes encrypted data as an element.
pub fn write_encrypted(kind: EncType, sealed: &[u8], out: &mut Vec<u8>) {
    element(SEQUENCE, out, |out| {
        element(context_tag(0), out, |out| primitive(INTEGER, &[kind.number()], out));
        element(context_tag(2), out, |out| primitive(OCTETS, sealed, out));
    });
}

/// Writes a checksum as an element.
pub fn write_checksum(kind: EncType, checksum: &[u8], out: &mut Vec<u8>) {
    element(SEQUENCE, out, |out| {
        element(context_tag(0), out, |out| primitive(INTEGER, &[kind.checksum_number()], out));
        element(context_tag(1), out, |out| primitive(OCTETS, checksum, out));
    });
}

/// Writes the plain text of PA-ENC-TIMESTAMP.
pub fn write_timestamp(stamp: &KerberosTime, out: &mut Vec<u8>) {
    element(SEQUENCE, out, |out| {
        element(context_tag(0), out, |out| primitive(TIME, &stamp.text, out));
        element(context_tag(1), out, |out| primitive(INTEGER, &stamp.micros, out));
    });
}

/// A time in the format of messages, with a constant length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KerberosTime {
    /// Seconds, such as `20261122133710Z`.
    pub text: [u8; 15],
    /// Microseconds in three octets. Smaller values are raised by up to 66 ms, which every KDC accepts.
    pub micros: [u8; 3],
}

impl KerberosTime {
    /// Converts a time between 1970 and 10000.
    #[must_use]
    pub fn from_time(time: SystemTime) -> Self {
        const THREE_OCTETS: u32 = 0x1_0000;
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let micros = since.subsec_micros().max(THREE_OCTETS).to_be_bytes();
        let mut text = *b"00000000000000Z";
        let (year, month, day) = date(since.as_secs() / 86_400);
        let second = since.as_secs() % 86_400;
        let fields = [
            (0, 4, year),
            (4, 2, month),
            (6, 2, day),
            (8, 2, second / 3600),
            (10, 2, second / 60 % 60),
            (12, 2, second % 60),
        ];
        for (at, width, value) in fields {
            let mut rest = value;
            for digit in text[at..at + width].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        Self { text, micros: [micros[1], micros[2], micros[3]] }
    }
}

/// Returns year, month and day of a day since 1970. The computation uses years that begin in March, so the leap day is
/// their last day.
fn date(day: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // The offset is the number of days from 1 March of the year 0 to 1970.
    let day = day + 719_468;
    let (era, of_era) = (day / DAYS_OF_400_YEARS, day % DAYS_OF_400_YEARS);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

/// Returns the requested end of tickets, later than the end of any run.
#[must_use]
pub fn till(now: SystemTime) -> KerberosTime {
    KerberosTime::from_time(now + Duration::from_secs(86_400))
}

/// Returns a nonce of four octets. The first is from 0x40 to 0x7f, so all nonces have the same length.
#[must_use]
pub fn nonce(number: u64) -> [u8; 4] {
    (0x4000_0000 | (number & 0x3fff_ffff) as u32).to_be_bytes()
}

fn number_at(number: u8, value: u8, message: &mut MessageTemplate) {
    message.constructed(context_tag(number), |message| message.number(INTEGER, value));
}

/// Writes KDC-REQ-BODY. Its slots are `client` if present, `service`, and the octets of a nonce.
fn write_body(
    realm: &[u8],
    till: &KerberosTime,
    kinds: &[EncType],
    [client, service, nonce]: [Option<usize>; 3],
    message: &mut MessageTemplate,
) {
    message.constructed(SEQUENCE, |message| {
        let slot = |number, slot: Option<usize>, message: &mut MessageTemplate| {
            if let Some(slot) = slot {
                message.constructed(context_tag(number), |message| message.slot(slot));
            }
        };
        // The request has no options, so it is for a plain ticket.
        message.constructed(context_tag(0), |message| message.constant(BIT_STRING, &[0; 5]));
        slot(1, client, message);
        message.constructed(context_tag(2), |message| message.constant(TEXT, realm));
        slot(3, service, message);
        message.constructed(context_tag(5), |message| message.constant(TIME, &till.text));
        if let Some(nonce) = nonce {
            message.constructed(context_tag(7), |message| {
                message.constructed(INTEGER, |message| message.slot(nonce));
            });
        }
        message.constructed(context_tag(8), |message| {
            message.constructed(SEQUENCE, |message| {
                kinds.iter().for_each(|kind| message.number(INTEGER, kind.number()));
            });
        });
    });
}

fn write_request(
    tag: u8,
    preauth: Option<u32>,
    fill: impl FnOnce(&mut MessageTemplate),
    body: impl FnOnce(&mut MessageTemplate),
) -> MessageTemplate {
    const VERSION: u8 = 5;
    let mut message = MessageTemplate::default();
    message.constructed(tag, |message| {
        message.constructed(SEQUENCE, |message| {
            number_at(1, VERSION, message);
            // The message type equals the number of the tag.
            number_at(2, tag & 0x1f, message);
            if let Some(kind) = preauth {
                message.constructed(context_tag(3), |message| {
                    message.constructed(SEQUENCE, |message| {
                        message.constructed(SEQUENCE, |message| {
                            // The types that the lab sends have numbers of one octet.
                            number_at(1, kind as u8, message);
                            message.constructed(context_tag(2), |message| {
                                message.constructed(OCTETS, fill);
                            });
                        });
                    });
                });
            }
            message.constructed(context_tag(4), body);
        });
    });
    message
}

/// Returns the template of AS-REQ. Its slots are the names of client and service, the octets of the nonce, and the
/// encrypted timestamp with pre-authentication.
#[must_use]
pub fn as_request(
    realm: &[u8],
    till: &KerberosTime,
    kinds: &[EncType],
    preauth: bool,
) -> MessageTemplate {
    let kind = preauth.then_some(PA_TIMESTAMP);
    write_request(
        AS_REQUEST,
        kind,
        |message| message.slot(3),
        |message| write_body(realm, till, kinds, [Some(0), Some(1), Some(2)], message),
    )
}

/// The templates of a TGS-REQ. Its body is signed.
#[derive(Clone, Debug)]
pub struct TgsTemplates {
    /// Body. Slots: name of the service, octets of the nonce.
    pub body: MessageTemplate,
    /// Plain authenticator. Slots: realm and name of the client, checksum of the body, octets of microseconds and time.
    pub authenticator: MessageTemplate,
    /// Whole message. Slots: the ticket, the encrypted authenticator, the body.
    pub whole: MessageTemplate,
}

impl TgsTemplates {
    /// Creates the templates for a realm.
    #[must_use]
    pub fn new(realm: &[u8], till: &KerberosTime, kinds: &[EncType]) -> Self {
        let mut body = MessageTemplate::default();
        write_body(realm, till, kinds, [None, Some(0), Some(1)], &mut body);
        let mut authenticator = MessageTemplate::default();
        authenticator.constructed(AUTHENTICATOR, |message| {
            message.constructed(SEQUENCE, |message| {
                number_at(0, 5, message);
                message.constructed(context_tag(1), |message| message.slot(0));
                message.constructed(context_tag(2), |message| message.slot(1));
                message.constructed(context_tag(3), |message| message.slot(2));
                message.constructed(context_tag(4), |message| {
                    message.constructed(INTEGER, |message| message.slot(3));
                });
                message.constructed(context_tag(5), |message| {
                    message.constructed(TIME, |message| message.slot(4));
                });
            });
        });
        let whole = write_request(
            TGS_REQUEST,
            Some(PA_TGS_REQUEST),
            |message| {
                message.constructed(AP_REQUEST, |message| {
                    message.constructed(SEQUENCE, |message| {
                        number_at(0, 5, message);
                        number_at(1, AP_REQUEST & 0x1f, message);
                        message.constructed(context_tag(2), |message| {
                            message.constant(BIT_STRING, &[0; 5]);
                        });
                        message.constructed(context_tag(3), |message| message.slot(0));
                        message.constructed(context_tag(4), |message| message.slot(1));
                    });
                });
            },
            |message| message.slot(2),
        );
        Self { body, authenticator, whole }
    }
}

/// Replies of a KDC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KdcReply<'a> {
    Granted(TicketReply<'a>),
    /// Error code and its data.
    Refused(u32, &'a [u8]),
}

/// A ticket and the encrypted part for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketReply<'a> {
    /// Salt parameters, as a list of pre-authentication data.
    pub salt_params: &'a [u8],
    /// Realm and name of the client, as elements.
    pub client: (&'a [u8], &'a [u8]),
    /// Ticket, as an element.
    pub ticket: &'a [u8],
    /// Encryption type of the encrypted part.
    pub kind: u32,
    /// Encrypted part.
    pub sealed: &'a [u8],
}

/// Splits a sequence into its elements by number.
fn fields(mut rest: &[u8]) -> Result<[&[u8]; 16], &'static str> {
    let mut fields = [&rest[..0]; 16];
    while !rest.is_empty() {
        let (tag, content) = ber::take_element(&mut rest)?;
        match fields.get_mut(usize::from(tag & 0x1f)) {
            Some(field) if tag & 0xe0 == 0xa0 => *field = content,
            _ => return Err("element without a number"),
        }
    }
    Ok(fields)
}

fn integer(mut element: &[u8]) -> Result<u32, &'static str> {
    ber::unsigned(ber::take_expected(INTEGER, &mut element)?)
}

fn octets(mut element: &[u8]) -> Result<&[u8], &'static str> {
    ber::take_expected(OCTETS, &mut element)
}

/// Parses the reply to a request.
pub fn read(bytes: &[u8], op: KdcRequestKind) -> Result<KdcReply<'_>, &'static str> {
    let mut rest = bytes;
    let (tag, mut content) = ber::take_element(&mut rest)?;
    if !rest.is_empty() {
        return Err("data after the message");
    }
    let fields = fields(ber::take_expected(SEQUENCE, &mut content)?)?;
    if tag == ERROR {
        let data = if fields[12].is_empty() { &[] } else { octets(fields[12])? };
        return Ok(KdcReply::Refused(integer(fields[6])?, data));
    }
    if tag != op.reply_tag() {
        return Err("reply of another type");
    }
    if fields[5].first() != Some(&TICKET) || fields[3].is_empty() || fields[4].is_empty() {
        return Err("reply without a ticket");
    }
    let (kind, sealed) = encrypted(fields[6])?;
    let client = (fields[3], fields[4]);
    Ok(KdcReply::Granted(TicketReply {
        salt_params: fields[2],
        client,
        ticket: fields[5],
        kind,
        sealed,
    }))
}

fn encrypted(mut element: &[u8]) -> Result<(u32, &[u8]), &'static str> {
    let fields = fields(ber::take_expected(SEQUENCE, &mut element)?)?;
    Ok((integer(fields[0])?, octets(fields[2])?))
}

/// Parameters of the key derivation from a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaltParams {
    /// Encryption type of the key.
    pub kind: EncType,
    /// Salt; `None` means the principal.
    pub salt: Option<Vec<u8>>,
    /// Number of iterations.
    pub iterations: Option<u32>,
}

/// Returns the first known parameters from a list of pre-authentication data.
pub fn salt_params(list: &[u8]) -> Result<Option<SaltParams>, &'static str> {
    if list.is_empty() {
        return Ok(None);
    }
    let mut list = list;
    let mut rest = ber::take_expected(SEQUENCE, &mut list)?;
    for _ in 0..LIST_MAX {
        if rest.is_empty() {
            break;
        }
        let data = fields(ber::take_expected(SEQUENCE, &mut rest)?)?;
        // Some types have negative numbers, which are errors here and are skipped.
        if integer(data[1]) == Ok(PA_ETYPE_INFO2) {
            return first_known_params(octets(data[2])?);
        }
    }
    Ok(None)
}

fn first_known_params(mut list: &[u8]) -> Result<Option<SaltParams>, &'static str> {
    let mut rest = ber::take_expected(SEQUENCE, &mut list)?;
    for _ in 0..LIST_MAX {
        if rest.is_empty() {
            break;
        }
        let entry = fields(ber::take_expected(SEQUENCE, &mut rest)?)?;
        let Some(kind) = EncType::from_number(integer(entry[0])?) else { continue };
        let mut salt = entry[1];
        let salt = if salt.is_empty() {
            None
        } else {
            Some(ber::take_expected(TEXT, &mut salt)?.to_vec())
        };
        let iterations = if entry[2].is_empty() {
            None
        } else {
            let octets = octets(entry[2])?;
            let octets = octets.try_into().map_err(|_| "invalid number of iterations")?;
            Some(u32::from_be_bytes(octets))
        };
        return Ok(Some(SaltParams { kind, salt, iterations }));
    }
    Ok(None)
}

/// Returns type and octets of the session key from the decrypted part.
pub fn session(text: &[u8]) -> Result<(u32, &[u8]), &'static str> {
    const OF_AS: u8 = 0x79;
    const OF_TGS: u8 = 0x7a;
    let mut text = text;
    // MIT's KDC uses the tag of TGS for AS replies.
    let (OF_AS | OF_TGS, mut content) = ber::take_element(&mut text)? else {
        return Err("invalid encrypted part");
    };
    let outer = fields(ber::take_expected(SEQUENCE, &mut content)?)?;
    let mut key = outer[0];
    let key = fields(ber::take_expected(SEQUENCE, &mut key)?)?;
    Ok((integer(key[0])?, octets(key[1])?))
}

/// Returns the name of an error code.
#[must_use]
pub fn name(code: u32) -> Cow<'static, str> {
    Cow::Borrowed(match code {
        6 => "KDC_ERR_C_PRINCIPAL_UNKNOWN",
        7 => "KDC_ERR_S_PRINCIPAL_UNKNOWN",
        12 => "KDC_ERR_POLICY",
        13 => "KDC_ERR_BADOPTION",
        14 => "KDC_ERR_ETYPE_NOSUPP",
        18 => "KDC_ERR_CLIENT_REVOKED",
        23 => "KDC_ERR_KEY_EXPIRED",
        24 => "KDC_ERR_PREAUTH_FAILED",
        25 => "KDC_ERR_PREAUTH_REQUIRED",
        29 => "KDC_ERR_SVC_UNAVAILABLE",
        31 => "KRB_AP_ERR_BAD_INTEGRITY",
        32 => "KRB_AP_ERR_TKT_EXPIRED",
        34 => "KRB_AP_ERR_REPEAT",
        37 => "KRB_AP_ERR_SKEW",
        41 => "KRB_AP_ERR_MODIFIED",
        52 => "KRB_ERR_RESPONSE_TOO_BIG",
        60 => "KRB_ERR_GENERIC",
        68 => "KDC_ERR_WRONG_REALM",
        _ => "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0, "19700101000000Z"),
            (951_782_399, "20000228235959Z"),
            (951_782_400, "20000229000000Z"),
            (951_868_800, "20000301000000Z"),
            (1_798_761_599, "20261231235959Z"),
            (4_107_542_400, "21000301000000Z"),
        ] {
            let stamp = KerberosTime::from_time(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(std::str::from_utf8(&stamp.text).unwrap(), text);
            assert_eq!(stamp.micros, [1, 0, 0]);
        }
        let stamp = KerberosTime::from_time(UNIX_EPOCH + Duration::from_micros(999_999));
        assert_eq!(stamp.micros, [0x0f, 0x42, 0x3f]);
    }

    #[test]
    fn a_request_has_one_length_whatever_its_nonce() {
        let till = KerberosTime::from_time(UNIX_EPOCH);
        let message = as_request(b"LAB.TEST", &till, &EncType::ALL, false);
        let mut name = Vec::new();
        write_name(b"u1", &mut name);
        let written = |number: u64| {
            let mut out = Vec::new();
            message.write(&[&name, &name, &nonce(number)], 0, &mut out);
            out
        };
        let lengths: Vec<usize> =
            [0, 1, 0x3fff_ffff, u64::MAX].map(|number| written(number).len()).to_vec();
        assert!(lengths.iter().all(|&length| length == lengths[0]), "{lengths:?}");
        assert_ne!(written(0), written(1));
        assert_eq!(written(5), written(5 + (1 << 30)), "and begins again after 2^30");
    }

    #[test]
    fn an_error_tells_its_code_and_how_keys_are_made() {
        let mut info = Vec::new();
        element(SEQUENCE, &mut info, |out| {
            for (number, salt) in [(23, &b"x"[..]), (18, b"LAB.TESTu1")] {
                element(SEQUENCE, out, |out| {
                    element(context_tag(0), out, |out| primitive(INTEGER, &[number], out));
                    element(context_tag(1), out, |out| primitive(TEXT, salt, out));
                    element(context_tag(2), out, |out| primitive(OCTETS, &[0, 0, 0x10, 0], out));
                });
            }
        });
        let mut list = Vec::new();
        element(SEQUENCE, &mut list, |out| {
            for (kind, value) in [(&[0xff][..], &b""[..]), (&[19], &info)] {
                element(SEQUENCE, out, |out| {
                    element(context_tag(1), out, |out| primitive(INTEGER, kind, out));
                    element(context_tag(2), out, |out| primitive(OCTETS, value, out));
                });
            }
        });
        let mut error = Vec::new();
        element(ERROR, &mut error, |out| {
            element(SEQUENCE, out, |out| {
                element(context_tag(6), out, |out| primitive(INTEGER, &[25], out));
                element(context_tag(12), out, |out| primitive(OCTETS, &list, out));
            });
        });
        let Ok(KdcReply::Refused(25, data)) = read(&error, KdcRequestKind::As) else {
            panic!("{error:x?}")
        };
        let hint = salt_params(data).unwrap().unwrap();
        assert_eq!(hint.kind, EncType::Aes256Sha1, "the first of those that we know");
        assert_eq!(hint.salt.as_deref(), Some(&b"LAB.TESTu1"[..]));
        assert_eq!(hint.iterations, Some(4096));
        for end in 0..error.len() {
            assert!(read(&error[..end], KdcRequestKind::As).is_err(), "{end}");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bytes in
            [&b""[..], b"HTTP/1.1 400", b"\x6b\x02\x30\x00", b"\x7e\x02\x30\x00", b"\x6d\x80"]
        {
            assert!(read(bytes, KdcRequestKind::As).is_err(), "{bytes:x?}");
        }
    }
}
