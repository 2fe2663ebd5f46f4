// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of BER (X.690) that LDAP uses: a reader that returns slices of its message, and a writer. LDAP's messages
//! are in [`message`](crate::message).
//!
//! A dedicated reader, because a mirror of a large directory reads millions of member values. Each of them is a slice
//! of the connection's buffer, without an allocation. A server may also be hostile. The reader compares each length
//! with the bytes that are there, and neither recurses nor panics. It enters an element only if its caller asks for it,
//! so the calling code bounds the nesting.

/// Tags, each as the one octet that LDAP needs.
pub mod tag {
    /// BOOLEAN.
    pub const BOOLEAN: u8 = 0x01;
    /// INTEGER.
    pub const INTEGER: u8 = 0x02;
    /// OCTET STRING.
    pub const OCTETS: u8 = 0x04;
    /// ENUMERATED.
    pub const ENUMERATED: u8 = 0x0a;
    /// SEQUENCE.
    pub const SEQUENCE: u8 = 0x30;
    /// SET.
    pub const SET: u8 = 0x31;

    /// A constructed tag of class APPLICATION.
    #[must_use]
    pub const fn application(number: u8) -> u8 {
        0x60 | number
    }

    /// A primitive context-specific tag.
    #[must_use]
    pub const fn context(number: u8) -> u8 {
        0x80 | number
    }

    /// A constructed context-specific tag.
    #[must_use]
    pub const fn context_constructed(number: u8) -> u8 {
        0xa0 | number
    }
}

/// Bytes that the protocol does not allow at this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed LDAP message: {0}")]
pub struct BerError(pub &'static str);

/// Reads elements one after the other.
#[derive(Clone, Copy, Debug)]
pub struct BerReader<'a> {
    rest: &'a [u8],
}

impl<'a> BerReader<'a> {
    /// Returns a reader of the elements in these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns whether the reader is at the end.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the tag of the next element.
    #[must_use]
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Returns the tag and the content of the next element.
    pub fn element(&mut self) -> Result<(u8, &'a [u8]), BerError> {
        let (tag, header, length) = match head(self.rest)? {
            ElementHead::Whole { tag, header, length } => (tag, header, length),
            ElementHead::Short => return Err(BerError("an element ends too early")),
        };
        let body = self.rest.get(header..).unwrap_or_default();
        let (Some(content), Some(rest)) = (body.get(..length), body.get(length..)) else {
            return Err(BerError("an element is longer than what it is in"));
        };
        self.rest = rest;
        Ok((tag, content))
    }

    /// Returns the content of the next element, which must have this tag.
    pub fn expect(&mut self, tag: u8) -> Result<&'a [u8], BerError> {
        match self.element()? {
            (found, content) if found == tag => Ok(content),
            _ => Err(BerError("an element of another type than expected")),
        }
    }

    /// Returns the content of the next element if it has this tag.
    pub fn optional(&mut self, tag: u8) -> Result<Option<&'a [u8]>, BerError> {
        if self.peek() == Some(tag) { self.expect(tag).map(Some) } else { Ok(None) }
    }

    /// Returns a reader of the next element, which must be constructed.
    pub fn inner(&mut self, tag: u8) -> Result<BerReader<'a>, BerError> {
        self.expect(tag).map(BerReader::new)
    }

    /// Reads an INTEGER or ENUMERATED that is not negative.
    pub fn number(&mut self, tag: u8) -> Result<u32, BerError> {
        number(self.expect(tag)?)
    }
}

/// Returns the value of an integer's content octets.
pub fn number(content: &[u8]) -> Result<u32, BerError> {
    let (Some(first), true) = (content.first(), content.len() <= 5) else {
        return Err(BerError("a number of no or too many octets"));
    };
    if first & 0x80 != 0 {
        return Err(BerError("a negative number"));
    }
    let value = content.iter().fold(0_u64, |value, &octet| value << 8 | u64::from(octet));
    u32::try_from(value).map_err(|_| BerError("a number beyond 32 bits"))
}

/// The first octets of an element.
enum ElementHead {
    Short,
    Whole { tag: u8, header: usize, length: usize },
}

fn head(bytes: &[u8]) -> Result<ElementHead, BerError> {
    let (Some(&tag), second) = (bytes.first(), bytes.get(1).copied()) else {
        return Ok(ElementHead::Short);
    };
    if tag & 0x1f == 0x1f {
        return Err(BerError("a tag of several octets"));
    }
    let Some(second) = second else { return Ok(ElementHead::Short) };
    if second < 0x80 {
        return Ok(ElementHead::Whole { tag, header: 2, length: usize::from(second) });
    }
    // Some servers always write four octets of length. No server needs more than eight.
    let octets = usize::from(second & 0x7f);
    if octets == 0 || octets > 8 {
        return Err(BerError("a length that is indefinite or of too many octets"));
    }
    let Some(field) = bytes.get(2..2 + octets) else { return Ok(ElementHead::Short) };
    let length = field.iter().fold(0_u64, |value, &octet| value << 8 | u64::from(octet));
    let length = usize::try_from(length).map_err(|_| BerError("a length beyond memory"))?;
    Ok(ElementHead::Whole { tag, header: 2 + octets, length })
}

/// State of the message at the start of bytes that are still arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFrame {
    /// A whole message of this many bytes.
    Whole(usize),
    /// The message needs at least this many bytes in total.
    Needs(usize),
}

/// Finds the end of the message at the start of `bytes`. A message may have at most `bytes_max` bytes.
pub fn frame(bytes: &[u8], bytes_max: usize) -> Result<MessageFrame, BerError> {
    if bytes.first().is_some_and(|&first| first != tag::SEQUENCE) {
        return Err(BerError("not an LDAP message"));
    }
    match head(bytes)? {
        ElementHead::Short => Ok(MessageFrame::Needs(bytes.len() + 1)),
        ElementHead::Whole { header, length, .. } => match header.checked_add(length) {
            Some(whole) if whole <= bytes_max => Ok(if whole <= bytes.len() {
                MessageFrame::Whole(whole)
            } else {
                MessageFrame::Needs(whole)
            }),
            _ => Err(BerError("a message longer than message_bytes_max")),
        },
    }
}

/// Writes elements.
#[derive(Debug, Default)]
pub struct BerWriter {
    bytes: Vec<u8>,
}

impl BerWriter {
    /// Returns a writer with this capacity, within which it does not reallocate.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    /// Returns the bytes written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the number of bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the writer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes a primitive element.
    pub fn primitive(&mut self, tag: u8, content: &[u8]) {
        self.bytes.push(tag);
        match u8::try_from(content.len()) {
            Ok(short @ ..0x80) => self.bytes.push(short),
            _ => self.length(content.len()),
        }
        self.bytes.extend_from_slice(content);
    }

    /// Writes an element with the content that `fill` writes. The length always has four octets, so it can be written
    /// after the content. Any BER reader accepts that.
    pub fn constructed(&mut self, tag: u8, fill: impl FnOnce(&mut Self)) {
        self.open(tag);
        let start = self.bytes.len();
        fill(self);
        self.close(start);
    }

    /// Begins an element. Returns its start for [`close`](Self::close).
    pub(crate) fn open(&mut self, tag: u8) -> usize {
        self.bytes.push(tag);
        self.length(0);
        self.bytes.len()
    }

    /// Ends the element with content from `start` on.
    pub(crate) fn close(&mut self, start: usize) {
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        if let Some(field) = self.bytes.get_mut(start - 4..start) {
            field.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Writes elements that are already encoded.
    pub fn raw(&mut self, elements: &[u8]) {
        self.bytes.extend_from_slice(elements);
    }

    /// Writes an OCTET STRING.
    pub fn octets(&mut self, content: &[u8]) {
        self.primitive(tag::OCTETS, content);
    }

    /// Writes a BOOLEAN.
    pub fn boolean(&mut self, value: bool) {
        self.primitive(tag::BOOLEAN, &[if value { 0xff } else { 0 }]);
    }

    /// Writes an INTEGER or ENUMERATED.
    pub fn number(&mut self, tag: u8, value: u32) {
        // A leading zero octet prevents a negative value.
        let octets = [&[0], value.to_be_bytes().as_slice()].concat();
        let needless = octets.windows(2).take_while(|two| two[0] == 0 && two[1] < 0x80).count();
        self.primitive(tag, &octets[needless..]);
    }

    fn length(&mut self, length: usize) {
        self.bytes.push(0x84);
        self.bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_a_round_trip() {
        for value in [0, 1, 127, 128, 255, 256, 32767, 32768, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            let mut writer = BerWriter::default();
            writer.number(tag::INTEGER, value);
            let bytes = writer.into_bytes();
            assert_eq!(BerReader::new(&bytes).number(tag::INTEGER), Ok(value));
        }
    }

    #[test]
    fn negative_empty_and_giant_numbers_are_refused() {
        for content in [&[][..], &[0x80], &[0xff, 0xff], &[1, 0, 0, 0, 0], &[0; 6]] {
            assert!(number(content).is_err(), "{content:?}");
        }
    }

    #[test]
    fn lengths_beyond_what_is_there_are_refused() {
        for bytes in [
            &[0x04][..],
            &[0x04, 0x05, 1],
            &[0x04, 0x80],
            &[0x04, 0xff],
            &[0x04, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x04, 0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x1f, 0x81, 0x00],
        ] {
            assert!(BerReader::new(bytes).element().is_err(), "{bytes:x?}");
        }
    }

    #[test]
    fn a_message_is_whole_only_with_its_last_byte() {
        let mut writer = BerWriter::default();
        writer.constructed(tag::SEQUENCE, |writer| writer.octets(&[7; 300]));
        let bytes = writer.into_bytes();
        for end in 0..bytes.len() {
            match frame(&bytes[..end], 1000).unwrap() {
                MessageFrame::Needs(needs) => assert!(needs > end && needs <= bytes.len()),
                MessageFrame::Whole(_) => panic!("whole after {end} bytes"),
            }
        }
        assert_eq!(frame(&bytes, 1000), Ok(MessageFrame::Whole(bytes.len())));
        assert_eq!(frame(&bytes, bytes.len()), Ok(MessageFrame::Whole(bytes.len())));
        assert!(frame(&bytes, bytes.len() - 1).is_err(), "a message over the cap is refused");
    }

    #[test]
    fn any_bytes_at_all_only_give_errors() {
        let mut state = 1_u32;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..24)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            let mut reader = BerReader::new(&bytes);
            while reader.element().is_ok() {}
            let _ = frame(&bytes, 1 << 20);
        }
    }
}
