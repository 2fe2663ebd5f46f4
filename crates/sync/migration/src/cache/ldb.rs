// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of LDB in the records of a TDB file: a DN, and attributes with values. Both formats are little-endian. This
//! module opens no file: the parent module `cache` does.
//!
//! Format 1 has strings that end with NUL, and the length before each value. Format 2 has the lengths of names and values
//! before all values. Written from the description of the formats.

use super::error::SssdCacheError;

const FORMAT_1: u32 = 0x2601_1967;
const FORMAT_1_WITHOUT_DN: u32 = 0x2601_1966;
const FORMAT_2: u32 = 0x2601_1968;

/// One entry. Values borrow from the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The entry's DN.
    pub dn: &'a [u8],
    /// Attributes with their values.
    pub elements: Vec<(&'a [u8], Vec<&'a [u8]>)>,
}

impl<'a> Entry<'a> {
    /// Returns the values of an attribute.
    #[must_use]
    pub fn values(&self, name: &str) -> &[&'a [u8]] {
        let found =
            self.elements.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
        found.map_or(&[], |(_, values)| values)
    }

    /// Returns the first value of an attribute as text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&'a str> {
        std::str::from_utf8(self.values(name).first()?).ok()
    }
}

/// A position in a record.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], SssdCacheError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(SssdCacheError::Entry)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<usize, SssdCacheError> {
        let bytes: [u8; 4] = self.bytes(4)?.try_into().map_err(|_| SssdCacheError::Entry)?;
        Ok(u32::from_le_bytes(bytes) as usize)
    }

    fn nul(&mut self) -> Result<(), SssdCacheError> {
        if self.bytes(1)? == b"\0" { Ok(()) } else { Err(SssdCacheError::Entry) }
    }

    fn string(&mut self) -> Result<&'a [u8], SssdCacheError> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(SssdCacheError::Entry)?;
        let text = self.bytes(end)?;
        self.nul()?;
        Ok(text)
    }

    /// Reads a text with its length before it and a NUL behind it.
    fn counted(&mut self) -> Result<&'a [u8], SssdCacheError> {
        let length = self.number()?;
        let text = self.bytes(length)?;
        self.nul()?;
        Ok(text)
    }
}

/// Parses a record. Returns `None` for records of indexes and of LDB itself.
///
/// # Errors
///
/// The record is damaged or of an unknown format.
pub fn entry<'a>(key: &'a [u8], data: &'a [u8]) -> Result<Option<Entry<'a>>, SssdCacheError> {
    let dn_of_key = key.strip_prefix(b"DN=");
    if dn_of_key.is_some_and(|dn| dn.starts_with(b"@"))
        || (dn_of_key.is_none() && !key.starts_with(b"GUID="))
    {
        return Ok(None);
    }
    let mut reader = Reader { rest: data };
    let format = u32::try_from(reader.number()?).map_err(|_| SssdCacheError::Entry)?;
    let count = reader.number()?;
    match format {
        FORMAT_1 | FORMAT_1_WITHOUT_DN => {
            let dn = if format == FORMAT_1 {
                reader.string()?
            } else {
                dn_of_key
                    .map(|dn| dn.strip_suffix(b"\0").unwrap_or(dn))
                    .ok_or(SssdCacheError::Entry)?
            };
            format_1(&mut reader, count, dn).map(Some)
        }
        FORMAT_2 => format_2(&mut reader, count).map(Some),
        _ => Err(SssdCacheError::Entry),
    }
}

fn format_1<'a>(
    reader: &mut Reader<'a>,
    count: usize,
    dn: &'a [u8],
) -> Result<Entry<'a>, SssdCacheError> {
    let mut elements = Vec::new();
    for _ in 0..count {
        let name = reader.string()?;
        let number = reader.number()?;
        let mut values = Vec::new();
        for _ in 0..number {
            values.push(reader.counted()?);
        }
        elements.push((name, values));
    }
    Ok(Entry { dn, elements })
}

fn format_2<'a>(reader: &mut Reader<'a>, count: usize) -> Result<Entry<'a>, SssdCacheError> {
    let dn = reader.counted()?;
    // The DN in the form of paths, and the offset of the values, which follow the last element.
    reader.counted()?;
    reader.number()?;
    let mut elements: Vec<(&[u8], Vec<usize>)> = Vec::new();
    for _ in 0..count {
        let name = reader.counted()?;
        let number = reader.number()?;
        let width = match reader.bytes(1)? {
            [width @ (1 | 2 | 4)] => usize::from(*width),
            _ => return Err(SssdCacheError::Entry),
        };
        let mut lengths = Vec::new();
        for _ in 0..number {
            let bytes = reader.bytes(width)?;
            lengths.push(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)));
        }
        elements.push((name, lengths));
    }
    let mut read = Vec::new();
    for (name, lengths) in elements {
        let mut values = Vec::new();
        for length in lengths {
            values.push(reader.bytes(length)?);
            reader.nul()?;
        }
        read.push((name, values));
    }
    Ok(Entry { dn, elements: read })
}

/// Writes records for tests of this crate.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    type Elements<'a> = [(&'a str, Vec<&'a str>)];

    fn push_text(out: &mut Vec<u8>, text: &[u8]) {
        out.extend((text.len() as u32).to_le_bytes());
        out.extend(text);
        out.push(0);
    }

    /// Returns key and data of an entry in format 1.
    pub(crate) fn packed_1(dn: &str, elements: &Elements<'_>) -> (Vec<u8>, Vec<u8>) {
        let mut out = FORMAT_1.to_le_bytes().to_vec();
        out.extend((elements.len() as u32).to_le_bytes());
        out.extend(dn.as_bytes());
        out.push(0);
        for (name, values) in elements {
            out.extend(name.as_bytes());
            out.push(0);
            out.extend((values.len() as u32).to_le_bytes());
            for value in values {
                push_text(&mut out, value.as_bytes());
            }
        }
        (format!("DN={}\0", dn.to_uppercase()).into_bytes(), out)
    }

    fn packed_2(dn: &str, elements: &Elements<'_>, width: u8) -> (Vec<u8>, Vec<u8>) {
        let mut out = FORMAT_2.to_le_bytes().to_vec();
        out.extend((elements.len() as u32).to_le_bytes());
        push_text(&mut out, dn.as_bytes());
        push_text(&mut out, b"path");
        out.extend(0_u32.to_le_bytes());
        for (name, values) in elements {
            push_text(&mut out, name.as_bytes());
            out.extend((values.len() as u32).to_le_bytes());
            out.push(width);
            for value in values {
                out.extend(&(value.len() as u32).to_le_bytes()[..usize::from(width)]);
            }
        }
        for value in elements.iter().flat_map(|(_, values)| values) {
            out.extend(value.as_bytes());
            out.push(0);
        }
        (b"GUID=0123456789abcdef".to_vec(), out)
    }

    #[test]
    fn ldb_entry_of_both_formats_read() {
        let elements = [("name", vec!["alice@corp"]), ("memberOf", vec!["a", "", "ccc"])];
        let (key, data) = packed_1("name=alice@corp,cn=users,cn=corp,cn=sysdb", &elements);
        let one = entry(&key, &data).unwrap().unwrap();
        assert_eq!(one.text("NAME"), Some("alice@corp"));
        assert_eq!(one.values("memberof"), [&b"a"[..], b"", b"ccc"]);
        for width in [1, 2, 4] {
            let (key, data) =
                packed_2("name=alice@corp,cn=users,cn=corp,cn=sysdb", &elements, width);
            assert_eq!(entry(&key, &data).unwrap().unwrap(), one);
        }
    }

    #[test]
    fn ldb_internal_records_are_skipped() {
        for key in [&b"DN=@INDEX:NAME:x\0"[..], b"DN=@BASEINFO\0", b"other"] {
            assert_eq!(entry(key, b"nonsense"), Ok(None));
        }
    }

    #[test]
    fn ldb_cut_record_is_error() {
        let elements = [("name", vec!["alice@corp"]), ("x", vec!["1", "2"])];
        for (key, data) in
            [packed_1("name=a,cn=sysdb", &elements), packed_2("name=a,cn=sysdb", &elements, 1)]
        {
            for length in 0..data.len() {
                assert_eq!(entry(&key, &data[..length]), Err(SssdCacheError::Entry), "{length}");
            }
        }
        let mut huge = packed_1("x", &[]).1;
        huge[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(entry(b"DN=X\0", &huge), Err(SssdCacheError::Entry));
    }
}
