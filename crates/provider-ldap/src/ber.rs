//! The part of BER (X.690) that LDAP uses: a reader that hands out slices of the message it reads,
//! and a writer. Knows nothing of LDAP's messages; that is [`message`](crate::message).
//!
//! Our own, because a mirror of a large directory is millions of member values: here each is a
//! slice of the connection's buffer, without an allocation of its own. And because what a server
//! sends may be hostile: no length is believed before it is checked against what is there, nothing
//! recurses, and nothing panics. A reader goes into an element only when its caller asks for it, so
//! nesting is as deep as the code that reads, whatever the server sends.

/// Tags, as the one octet that LDAP needs for each.
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

    /// A constructed tag of an application's own.
    #[must_use]
    pub const fn application(number: u8) -> u8 {
        0x60 | number
    }

    /// A primitive tag that its place gives a meaning.
    #[must_use]
    pub const fn context(number: u8) -> u8 {
        0x80 | number
    }

    /// A constructed tag that its place gives a meaning.
    #[must_use]
    pub const fn context_constructed(number: u8) -> u8 {
        0xa0 | number
    }
}

/// Bytes that are not what the protocol has at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed LDAP message: {0}")]
pub struct Malformed(pub &'static str);

/// Reads elements one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads the elements in these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether all was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The tag of the next element.
    #[must_use]
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The next element: its tag and what is in it.
    pub fn element(&mut self) -> Result<(u8, &'a [u8]), Malformed> {
        let (tag, header, length) = match head(self.rest)? {
            Head::Whole { tag, header, length } => (tag, header, length),
            Head::Short => return Err(Malformed("an element ends too early")),
        };
        let body = self.rest.get(header..).unwrap_or_default();
        let (Some(content), Some(rest)) = (body.get(..length), body.get(length..)) else {
            return Err(Malformed("an element is longer than what it is in"));
        };
        self.rest = rest;
        Ok((tag, content))
    }

    /// The content of the next element, which must have this tag.
    pub fn expect(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        match self.element()? {
            (found, content) if found == tag => Ok(content),
            _ => Err(Malformed("an element of another type than expected")),
        }
    }

    /// The content of the next element if it has this tag.
    pub fn optional(&mut self, tag: u8) -> Result<Option<&'a [u8]>, Malformed> {
        if self.peek() == Some(tag) { self.expect(tag).map(Some) } else { Ok(None) }
    }

    /// The next element, which must hold others.
    pub fn inner(&mut self, tag: u8) -> Result<Reader<'a>, Malformed> {
        self.expect(tag).map(Reader::new)
    }

    /// An INTEGER or ENUMERATED that is not negative.
    pub fn number(&mut self, tag: u8) -> Result<u32, Malformed> {
        number(self.expect(tag)?)
    }
}

/// The value of an integer's content octets.
pub fn number(content: &[u8]) -> Result<u32, Malformed> {
    let (Some(first), true) = (content.first(), content.len() <= 5) else {
        return Err(Malformed("a number of no or too many octets"));
    };
    if first & 0x80 != 0 {
        return Err(Malformed("a negative number"));
    }
    let value = content.iter().fold(0_u64, |value, &octet| value << 8 | u64::from(octet));
    u32::try_from(value).map_err(|_| Malformed("a number beyond 32 bits"))
}

/// The first octets of an element.
enum Head {
    Short,
    Whole { tag: u8, header: usize, length: usize },
}

fn head(bytes: &[u8]) -> Result<Head, Malformed> {
    let (Some(&tag), second) = (bytes.first(), bytes.get(1).copied()) else {
        return Ok(Head::Short);
    };
    if tag & 0x1f == 0x1f {
        return Err(Malformed("a tag of several octets"));
    }
    let Some(second) = second else { return Ok(Head::Short) };
    if second < 0x80 {
        return Ok(Head::Whole { tag, header: 2, length: usize::from(second) });
    }
    // Some servers always write four octets of length; more than eight is nobody's.
    let octets = usize::from(second & 0x7f);
    if octets == 0 || octets > 8 {
        return Err(Malformed("a length that is indefinite or of too many octets"));
    }
    let Some(field) = bytes.get(2..2 + octets) else { return Ok(Head::Short) };
    let length = field.iter().fold(0_u64, |value, &octet| value << 8 | u64::from(octet));
    let length = usize::try_from(length).map_err(|_| Malformed("a length beyond memory"))?;
    Ok(Head::Whole { tag, header: 2 + octets, length })
}

/// What stands at the start of bytes that are still arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A whole message of this many bytes.
    Whole(usize),
    /// The message needs this many bytes in all, as far as can be told.
    Needs(usize),
}

/// Finds the end of the message at the start of `bytes`, which may be at most `bytes_max` long.
pub fn frame(bytes: &[u8], bytes_max: usize) -> Result<Frame, Malformed> {
    if bytes.first().is_some_and(|&first| first != tag::SEQUENCE) {
        return Err(Malformed("not an LDAP message"));
    }
    match head(bytes)? {
        Head::Short => Ok(Frame::Needs(bytes.len() + 1)),
        Head::Whole { header, length, .. } => match header.checked_add(length) {
            Some(whole) if whole <= bytes_max => {
                Ok(if whole <= bytes.len() { Frame::Whole(whole) } else { Frame::Needs(whole) })
            }
            _ => Err(Malformed("a message longer than message_bytes_max")),
        },
    }
}

/// Writes elements.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// One that has room for so much without moving.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    /// The bytes written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// How much is written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A primitive element.
    pub fn primitive(&mut self, tag: u8, content: &[u8]) {
        self.bytes.push(tag);
        match u8::try_from(content.len()) {
            Ok(short @ ..0x80) => self.bytes.push(short),
            _ => self.length(content.len()),
        }
        self.bytes.extend_from_slice(content);
    }

    /// An element that holds what `fill` writes. The length has always four octets, which any BER
    /// reader takes and which lets it be written after the content.
    pub fn constructed(&mut self, tag: u8, fill: impl FnOnce(&mut Self)) {
        self.open(tag);
        let start = self.bytes.len();
        fill(self);
        self.close(start);
    }

    /// Begins an element; returns the place that [`close`](Self::close) wants.
    pub(crate) fn open(&mut self, tag: u8) -> usize {
        self.bytes.push(tag);
        self.length(0);
        self.bytes.len()
    }

    /// Ends the element whose content begins at `start`.
    pub(crate) fn close(&mut self, start: usize) {
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        if let Some(field) = self.bytes.get_mut(start - 4..start) {
            field.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Elements that are encoded already.
    pub fn raw(&mut self, elements: &[u8]) {
        self.bytes.extend_from_slice(elements);
    }

    /// An OCTET STRING.
    pub fn octets(&mut self, content: &[u8]) {
        self.primitive(tag::OCTETS, content);
    }

    /// A BOOLEAN.
    pub fn boolean(&mut self, value: bool) {
        self.primitive(tag::BOOLEAN, &[if value { 0xff } else { 0 }]);
    }

    /// An INTEGER or ENUMERATED.
    pub fn number(&mut self, tag: u8, value: u32) {
        // A leading zero keeps the number from being read as negative.
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
            let mut writer = Writer::default();
            writer.number(tag::INTEGER, value);
            let bytes = writer.into_bytes();
            assert_eq!(Reader::new(&bytes).number(tag::INTEGER), Ok(value));
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
            assert!(Reader::new(bytes).element().is_err(), "{bytes:x?}");
        }
    }

    #[test]
    fn a_message_is_whole_only_with_its_last_byte() {
        let mut writer = Writer::default();
        writer.constructed(tag::SEQUENCE, |writer| writer.octets(&[7; 300]));
        let bytes = writer.into_bytes();
        for end in 0..bytes.len() {
            match frame(&bytes[..end], 1000).unwrap() {
                Frame::Needs(needs) => assert!(needs > end && needs <= bytes.len()),
                Frame::Whole(_) => panic!("whole after {end} bytes"),
            }
        }
        assert_eq!(frame(&bytes, 1000), Ok(Frame::Whole(bytes.len())));
        assert_eq!(frame(&bytes, bytes.len()), Ok(Frame::Whole(bytes.len())));
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
            let mut reader = Reader::new(&bytes);
            while reader.element().is_ok() {}
            let _ = frame(&bytes, 1 << 20);
        }
    }
}
