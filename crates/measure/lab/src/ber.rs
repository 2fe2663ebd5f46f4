// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of BER (X.690) that the engines need: templates of requests with variable parts, and elements of replies.
//! The encoding is DER, which LDAP servers accept and Kerberos requires. The messages are in `ldap` and `krb5`.

use crate::template::Template;

/// Maximum size of a reply.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Maximum nesting of elements. A filter has its own limit, and other elements are shallow.
pub const DEPTH_MAX: usize = 40;

/// An encoded request with variable parts.
#[derive(Clone, Debug, Default)]
pub struct MessageTemplate {
    steps: Vec<TemplateStep>,
}

#[derive(Clone, Debug)]
enum TemplateStep {
    /// Encoded bytes.
    Bytes(Vec<u8>),
    /// Bytes that the caller passes for each request.
    Slot(usize),
    /// A primitive element with variable content.
    Value(u8, Template),
    /// The start of an element. `Close` writes its length.
    Open(u8),
    Close,
}

impl MessageTemplate {
    /// Adds an element with the content from `fill`.
    pub fn constructed(&mut self, tag: u8, fill: impl FnOnce(&mut Self)) {
        self.steps.push(TemplateStep::Open(tag));
        fill(self);
        self.steps.push(TemplateStep::Close);
    }

    /// Adds an element with variable content.
    pub fn value(&mut self, tag: u8, content: &Template) {
        self.steps.push(TemplateStep::Value(tag, content.clone()));
    }

    /// Returns the variable contents.
    pub fn values(&self) -> impl Iterator<Item = &Template> {
        self.steps.iter().filter_map(|step| match step {
            TemplateStep::Value(_, template) => Some(template),
            _ => None,
        })
    }

    /// Adds a slot for elements, or for the content of one, that the caller passes for each request.
    pub fn slot(&mut self, number: usize) {
        self.steps.push(TemplateStep::Slot(number));
    }

    /// Adds an element with constant content.
    pub fn constant(&mut self, tag: u8, content: &[u8]) {
        let bytes = match self.steps.last_mut() {
            Some(TemplateStep::Bytes(bytes)) => bytes,
            _ => {
                self.steps.push(TemplateStep::Bytes(Vec::new()));
                let Some(TemplateStep::Bytes(bytes)) = self.steps.last_mut() else { return };
                bytes
            }
        };
        let place = open(tag, bytes);
        bytes.extend_from_slice(content);
        close(place, bytes);
    }

    /// Adds a small INTEGER or ENUMERATED.
    pub fn number(&mut self, tag: u8, value: u8) {
        self.constant(tag, &[value]);
    }

    /// Appends the message of a request with these slots.
    pub fn write(&self, slots: &[&[u8]], request: u64, out: &mut Vec<u8>) {
        let mut places = [0; DEPTH_MAX];
        let mut depth = 0;
        for step in &self.steps {
            match step {
                TemplateStep::Bytes(bytes) => out.extend_from_slice(bytes),
                TemplateStep::Slot(number) => out.extend_from_slice(slots[*number]),
                TemplateStep::Value(tag, template) => {
                    let place = open(*tag, out);
                    template.write(request, out);
                    close(place, out);
                }
                TemplateStep::Open(tag) => {
                    places[depth] = open(*tag, out);
                    depth += 1;
                }
                TemplateStep::Close => {
                    depth -= 1;
                    close(places[depth], out);
                }
            }
        }
    }
}

/// Begins an element. Returns the start of its content.
pub fn open(tag: u8, out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[tag, 0]);
    out.len()
}

/// Ends an element with content from `place` on. Its length gets the shortest encoding.
pub fn close(place: usize, out: &mut Vec<u8>) {
    let length = out.len() - place;
    match u8::try_from(length) {
        Ok(short @ ..0x80) => out[place - 1] = short,
        _ => {
            let octets = length.to_be_bytes();
            let first = octets.iter().position(|&octet| octet != 0).unwrap_or_default();
            // The number of octets is at most eight, so the sum is small.
            out[place - 1] = 0x80 + (octets.len() - first) as u8;
            out.splice(place..place, octets[first..].iter().copied());
        }
    }
}

/// Appends a primitive element.
pub fn primitive(tag: u8, content: &[u8], out: &mut Vec<u8>) {
    let place = open(tag, out);
    out.extend_from_slice(content);
    close(place, out);
}

/// Parses the head of the element at the start of `bytes`. Returns its tag, and the start and end of its content, which
/// may be incomplete. Returns `None` while the head is incomplete.
pub fn head(bytes: &[u8]) -> Result<Option<(u8, usize, usize)>, &'static str> {
    let [tag, first, behind @ ..] = bytes else { return Ok(None) };
    if *first < 0x80 {
        return Ok(Some((*tag, 2, 2 + usize::from(*first))));
    }
    let octets = usize::from(first & 0x7f);
    if octets == 0 || octets > 8 {
        return Err("length with no or too many octets");
    }
    let Some(field) = behind.get(..octets) else { return Ok(None) };
    let length = field.iter().fold(0_u64, |length, &octet| length << 8 | u64::from(octet));
    match usize::try_from(length) {
        Ok(length) if length <= MESSAGE_BYTES_MAX => {
            Ok(Some((*tag, 2 + octets, 2 + octets + length)))
        }
        _ => Err("element too long"),
    }
}

/// Takes the complete element at the start of `rest`. Returns its tag and its content.
pub fn take_element<'a>(rest: &mut &'a [u8]) -> Result<(u8, &'a [u8]), &'static str> {
    let (tag, begin, end) = head(rest)?.ok_or("truncated element")?;
    let content = rest.get(begin..end).ok_or("element longer than its container")?;
    *rest = &rest[end..];
    Ok((tag, content))
}

/// Takes an element with this tag. Returns its content.
pub fn take_expected<'a>(tag: u8, rest: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    match take_element(rest)? {
        (found, content) if found == tag => Ok(content),
        _ => Err("element of another type"),
    }
}

/// Parses a number that is not negative.
pub fn unsigned(content: &[u8]) -> Result<u32, &'static str> {
    match content {
        [] | [0x80..=0xff, ..] | [_, _, _, _, _, _, ..] => Err("number out of range"),
        octets => {
            let value = octets.iter().fold(0_u64, |value, &octet| value << 8 | u64::from(octet));
            u32::try_from(value).map_err(|_| "number out of range")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_as_few_octets_as_there_can_be_and_are_read_again() {
        for (length, head) in [
            (0, &b"\x04\x00"[..]),
            (127, b"\x04\x7f"),
            (128, b"\x04\x81\x80"),
            (256, b"\x04\x82\x01\x00"),
            (70_000, b"\x04\x83\x01\x11\x70"),
        ] {
            let mut out = Vec::new();
            primitive(4, &vec![7; length], &mut out);
            assert!(out.starts_with(head) && out.len() == head.len() + length, "{length}");
            let mut rest = &out[..];
            assert_eq!(take_element(&mut rest), Ok((4, &vec![7; length][..])));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn what_varies_is_written_into_what_does_not() {
        let mut message = MessageTemplate::default();
        message.constructed(0x30, |message| {
            message.number(0x02, 5);
            message.slot(0);
            message.value(0x04, &"u{1..2}".parse().unwrap());
            message.constructed(0xa1, |message| message.slot(1));
        });
        let mut out = Vec::new();
        message.write(&[b"\x01\x01\xff", b"xyz"], 1, &mut out);
        assert_eq!(out, b"\x30\x0f\x02\x01\x05\x01\x01\xff\x04\x02u2\xa1\x03xyz");
    }
}
