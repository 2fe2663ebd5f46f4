// SPDX-License-Identifier: MIT OR Apache-2.0
//! A security identifier: binary form of `objectSid` (MS-DTYP 2.4.2.2) and text form `S-1-5-21-…`. This module assigns
//! no ids: `id_mapper` does.

use std::fmt;
use std::str::FromStr;

/// Highest number of sub-authorities (MS-DTYP 2.4.2.2).
pub const SUB_AUTHORITIES_MAX: usize = 15;

/// Longest text: `S-1-`, an authority of 48 bits in hexadecimal, and 15 numbers of 32 bits with their hyphens.
const TEXT_BYTES_MAX: usize = 4 + 14 + SUB_AUTHORITIES_MAX * 11;

/// Authority of Windows NT, 5: `SECURITY_NT_AUTHORITY`.
const NT_AUTHORITY: [u8; 6] = [0, 0, 0, 0, 0, 5];
/// First sub-authority of accounts of a domain: `SECURITY_NT_NON_UNIQUE`.
const NT_NON_UNIQUE: u32 = 21;

/// A security identifier with 1 to 15 sub-authorities.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sid {
    /// Big-endian, as in the binary form.
    authority: [u8; 6],
    count: u8,
    /// Numbers behind `count` are 0, so that equal SIDs are equal values.
    sub_authorities: [u32; SUB_AUTHORITIES_MAX],
}

/// The reason that a value is not a SID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SidError {
    /// The value ends within the header.
    #[error("binary SID has {found} bytes, at least 12 expected")]
    Short {
        /// Length of the value.
        found: usize,
    },
    /// The first byte or the text after `S-` is not 1.
    #[error("SID has revision {found}, 1 expected")]
    Revision {
        /// The revision of the value.
        found: u8,
    },
    /// The number of sub-authorities is 0 or above 15.
    #[error("SID has {found} sub-authorities, 1 to 15 expected")]
    SubAuthorities {
        /// The number in the value.
        found: usize,
    },
    /// The length does not follow from the number of sub-authorities.
    #[error("binary SID has {found} bytes, its sub-authorities need {expected}")]
    Length {
        /// Length that follows from the number of sub-authorities.
        expected: usize,
        /// Length of the value.
        found: usize,
    },
    /// The text does not begin with `S-1-`.
    #[error("text does not begin with S-1-")]
    Prefix,
    /// The text is longer than any SID.
    #[error("text has {found} bytes, a SID has at most {TEXT_BYTES_MAX}")]
    LongText {
        /// Length of the text.
        found: usize,
    },
    /// A part of the text is not a number in its usual form, or exceeds its width.
    #[error("part {part} of the text is not a number of {bits} bits")]
    Number {
        /// Number of the part: the authority is part 1.
        part: usize,
        /// Width of this part.
        bits: u8,
    },
}

impl Sid {
    /// Parses the binary form, for example a value of `objectSid`.
    ///
    /// # Errors
    ///
    /// The value has another revision, a wrong number of sub-authorities or a wrong length.
    pub fn from_bytes(value: &[u8]) -> Result<Self, SidError> {
        let short = SidError::Short { found: value.len() };
        let (&[revision, count], rest) = value.split_first_chunk::<2>().ok_or(short)?;
        let (authority, numbers) = rest.split_first_chunk::<6>().ok_or(short)?;
        if revision != 1 {
            return Err(SidError::Revision { found: revision });
        }
        let count = usize::from(count);
        if count == 0 || count > SUB_AUTHORITIES_MAX {
            return Err(SidError::SubAuthorities { found: count });
        }
        let (numbers, rest) = numbers.as_chunks::<4>();
        if numbers.len() != count || !rest.is_empty() {
            let expected = count.saturating_mul(4).saturating_add(8);
            return Err(SidError::Length { expected, found: value.len() });
        }
        Self::from_parts(*authority, numbers.iter().map(|number| Ok(u32::from_le_bytes(*number))))
    }

    /// Returns the binary form.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut value = vec![1, self.count];
        value.extend(self.authority);
        value.extend(self.sub_authorities().iter().flat_map(|number| number.to_le_bytes()));
        value
    }

    fn from_parts(
        authority: [u8; 6],
        numbers: impl Iterator<Item = Result<u32, SidError>>,
    ) -> Result<Self, SidError> {
        let mut sid = Self { authority, count: 0, sub_authorities: [0; SUB_AUTHORITIES_MAX] };
        for number in numbers {
            let number = number?;
            sid = sid.append(number).ok_or(SidError::SubAuthorities { found: 16 })?;
        }
        match sid.count {
            0 => Err(SidError::SubAuthorities { found: 0 }),
            _ => Ok(sid),
        }
    }

    /// Adds a last number. `None`: the SID has 15 already.
    fn append(mut self, number: u32) -> Option<Self> {
        *self.sub_authorities.get_mut(usize::from(self.count))? = number;
        self.count = self.count.checked_add(1)?;
        Some(self)
    }

    /// Returns the sub-authorities in the order of the text.
    #[must_use]
    pub fn sub_authorities(&self) -> &[u32] {
        self.sub_authorities.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// Returns the relative identifier (RID): the last number.
    #[must_use]
    pub fn rid(&self) -> u32 {
        self.sub_authorities().last().copied().unwrap_or_default()
    }

    /// Returns the SID without its RID: the domain of an account. `None`: the SID has one number only.
    #[must_use]
    pub fn domain(&self) -> Option<Self> {
        let (_, rest) = self.sub_authorities().split_last()?;
        Self::from_parts(self.authority, rest.iter().map(|number| Ok(*number))).ok()
    }

    /// Returns the SID of the account with this RID in the domain. `None`: the SID has 15 numbers already.
    #[must_use]
    pub fn with_rid(&self, rid: u32) -> Option<Self> {
        self.append(rid)
    }

    /// Returns whether the SID is a domain with accounts that may have ids: `S-1-5-21-a-b-c`.
    #[must_use]
    pub fn is_account_domain(&self) -> bool {
        let numbers = self.sub_authorities();
        self.authority == NT_AUTHORITY
            && numbers.len() == 4
            && numbers.first() == Some(&NT_NON_UNIQUE)
    }

    /// Returns whether the SID is `S-1-5-32` or one of its accounts, which are equal in all domains.
    #[must_use]
    pub fn is_builtin(&self) -> bool {
        self.authority == NT_AUTHORITY && self.sub_authorities().first() == Some(&32)
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority =
            self.authority.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte));
        // MS-DTYP 2.4.2.1: hexadecimal from 2^32.
        match u32::try_from(authority) {
            Ok(authority) => write!(f, "S-1-{authority}")?,
            Err(_) => write!(f, "S-1-0x{authority:012x}")?,
        }
        self.sub_authorities().iter().try_for_each(|number| write!(f, "-{number}"))
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sid {
    type Err = SidError;

    /// Parses the text form. Each number has its shortest form, so that a SID has one text, except for the case of
    /// hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, SidError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(SidError::LongText { found: text.len() });
        }
        let rest = text.strip_prefix("S-").ok_or(SidError::Prefix)?;
        let (revision, rest) = rest.split_once('-').ok_or(SidError::Prefix)?;
        match revision.parse::<u8>() {
            Ok(1) if revision == "1" => {}
            Ok(found) if found != 1 => return Err(SidError::Revision { found }),
            _ => return Err(SidError::Prefix),
        }
        let mut parts = rest.split('-');
        let authority = parse_authority(parts.next().unwrap_or_default())
            .ok_or(SidError::Number { part: 1, bits: 48 })?;
        Self::from_parts(
            authority,
            parts
                .zip(2..)
                .map(|(text, part)| parse_decimal(text).ok_or(SidError::Number { part, bits: 32 })),
        )
    }
}

/// Parses a number of 32 bits without sign and leading zeros.
fn parse_decimal(text: &str) -> Option<u32> {
    let is_shortest = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    text.parse().ok().filter(|_| is_shortest)
}

/// Parses the authority: decimal below 2^32, otherwise `0x` and 12 hexadecimal digits.
fn parse_authority(text: &str) -> Option<[u8; 6]> {
    let number = match text.strip_prefix("0x") {
        Some(digits)
            if digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            u64::from_str_radix(digits, 16).ok().filter(|number| *number > u64::from(u32::MAX))?
        }
        Some(_) => return None,
        None => u64::from(parse_decimal(text)?),
    };
    number.to_be_bytes().last_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "S-1-5-21-735199366-4244774717-4292193313-1110";
    /// Read from Samba 4.17.
    const BYTES: [u8; 28] = [
        1, 5, 0, 0, 0, 0, 0, 5, 0x15, 0, 0, 0, 0x86, 0x40, 0xd2, 0x2b, 0x3d, 0x1f, 0x02, 0xfd,
        0x21, 0xac, 0xd5, 0xff, 0x56, 0x04, 0, 0,
    ];

    fn sid(text: &str) -> Sid {
        text.parse().expect("a SID")
    }

    #[test]
    fn sid_binary_from_samba_has_text() {
        let found = Sid::from_bytes(&BYTES).expect("a SID");
        assert_eq!((found.to_string(), found), (TEXT.into(), sid(TEXT)));
        assert_eq!(sid(TEXT).to_bytes(), BYTES);
    }

    #[test]
    fn sid_splits_into_domain_and_rid() {
        let domain = sid(TEXT).domain().expect("a domain");
        assert_eq!(domain.to_string(), "S-1-5-21-735199366-4244774717-4292193313");
        assert_eq!((domain.with_rid(1110), sid(TEXT).rid()), (Some(sid(TEXT)), 1110));
        assert!(domain.is_account_domain() && !sid(TEXT).is_account_domain());
        assert_eq!(sid("S-1-5-11").domain(), None);
        assert!(sid("S-1-5-32-544").is_builtin() && !sid(TEXT).is_builtin());
    }

    #[test]
    fn sid_invalid_binary_is_refused() {
        let with = |place: usize, byte| {
            let mut value = BYTES;
            value[place] = byte;
            Sid::from_bytes(&value)
        };
        assert_eq!(Sid::from_bytes(&[]), Err(SidError::Short { found: 0 }));
        assert_eq!(Sid::from_bytes(&BYTES[..7]), Err(SidError::Short { found: 7 }));
        assert_eq!(with(0, 2), Err(SidError::Revision { found: 2 }));
        assert_eq!(with(1, 0), Err(SidError::SubAuthorities { found: 0 }));
        assert_eq!(with(1, 16), Err(SidError::SubAuthorities { found: 16 }));
        assert_eq!(with(1, 4), Err(SidError::Length { expected: 24, found: 28 }));
        assert_eq!(with(1, 15), Err(SidError::Length { expected: 68, found: 28 }));
        let mut long = BYTES.to_vec();
        long.push(0);
        assert_eq!(Sid::from_bytes(&long), Err(SidError::Length { expected: 28, found: 29 }));
    }

    #[test]
    fn sid_invalid_text_is_refused() {
        let number = |part, bits| Err(SidError::Number { part, bits });
        for (text, error) in [
            ("", Err(SidError::Prefix)),
            ("s-1-5-21", Err(SidError::Prefix)),
            ("S-01-5-21", Err(SidError::Prefix)),
            ("S-2-5-21", Err(SidError::Revision { found: 2 })),
            ("S-1-5", Err(SidError::SubAuthorities { found: 0 })),
            ("S-1--21", number(1, 48)),
            ("S-1-5-", number(2, 32)),
            ("S-1-5-+1", number(2, 32)),
            ("S-1-5-21-01", number(3, 32)),
            ("S-1-5-4294967296", number(2, 32)),
            ("S-1-0x00000000000f-1", number(1, 48)),
            ("S-1-0x+123456789ab-1", number(1, 48)),
            ("S-1-4294967296-1", number(1, 48)),
            ("S-1-5-21 ", number(2, 32)),
        ] {
            assert_eq!(text.parse::<Sid>(), error, "{text}");
        }
        let numbers = |count| format!("S-1-5{}", "-7".repeat(count));
        assert_eq!(numbers(15).parse::<Sid>().map(|sid| sid.with_rid(1)), Ok(None));
        assert_eq!(numbers(16).parse::<Sid>(), Err(SidError::SubAuthorities { found: 16 }));
        let long = SidError::LongText { found: 4 + 1 + 200 };
        assert_eq!(numbers(100).parse::<Sid>(), Err(long));
    }

    #[test]
    fn sid_large_authority_is_hexadecimal() {
        let mut value = BYTES;
        value[2..8].copy_from_slice(&[0x0a, 0, 0, 0, 0, 0xff]);
        let found = Sid::from_bytes(&value).expect("a SID");
        assert!(found.to_string().starts_with("S-1-0x0a00000000ff-21-"), "{found}");
        assert_eq!(sid(&found.to_string()), found);
        let longest = Sid::from_parts([0xff; 6], std::iter::repeat_n(Ok(u32::MAX), 15));
        let text = longest.expect("a SID").to_string();
        assert_eq!((text.len(), sid(&text).to_string()), (TEXT_BYTES_MAX, text.clone()));
    }
}
