//! The little of BER (X.690) that a load generator needs: requests as short programs that write
//! themselves anew for each identity, and heads of answers.

use crate::template::Template;

/// Of an answer; one entry of a directory is seldom more.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A request, encoded but for what varies.
#[derive(Clone, Debug, Default)]
pub struct Message {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Encoded already.
    Bytes(Vec<u8>),
    /// The number of the message, four octets.
    Id,
    /// A primitive element whose content varies.
    Value(u8, Template),
    /// The begin of an element whose length is known at its end.
    Open(u8),
    Close,
}

impl Message {
    /// An LDAP message: its number, and what `fill` writes.
    pub fn new(fill: impl FnOnce(&mut Self)) -> Self {
        let mut message = Self::default();
        message.constructed(0x30, |message| {
            message.steps.push(Step::Id);
            fill(message);
        });
        message
    }

    /// An element that holds what `fill` writes.
    pub fn constructed(&mut self, tag: u8, fill: impl FnOnce(&mut Self)) {
        self.steps.push(Step::Open(tag));
        fill(self);
        self.steps.push(Step::Close);
    }

    /// An element whose content varies.
    pub fn value(&mut self, tag: u8, content: &Template) {
        self.steps.push(Step::Value(tag, content.clone()));
    }

    /// An element whose content never varies.
    pub fn constant(&mut self, tag: u8, content: &[u8]) {
        let bytes = match self.steps.last_mut() {
            Some(Step::Bytes(bytes)) => bytes,
            _ => {
                self.steps.push(Step::Bytes(Vec::new()));
                let Some(Step::Bytes(bytes)) = self.steps.last_mut() else { return };
                bytes
            }
        };
        let place = open(tag, bytes);
        bytes.extend_from_slice(content);
        close(place, bytes);
    }

    /// A small INTEGER or ENUMERATED.
    pub fn number(&mut self, tag: u8, value: u8) {
        self.constant(tag, &[value]);
    }

    /// Appends the message of a request.
    pub fn write(&self, id: u32, request: u64, out: &mut Vec<u8>) {
        // Messages are as deep as their filters, which have a bound.
        let mut places = [0; super::filter::DEPTH_MAX + 8];
        let mut depth = 0;
        for step in &self.steps {
            match step {
                Step::Bytes(bytes) => out.extend_from_slice(bytes),
                Step::Id => {
                    out.extend_from_slice(&[0x02, 4]);
                    out.extend_from_slice(&id.to_be_bytes());
                }
                Step::Value(tag, template) => {
                    let place = open(*tag, out);
                    template.write(request, out);
                    close(place, out);
                }
                Step::Open(tag) => {
                    places[depth] = open(*tag, out);
                    depth += 1;
                }
                Step::Close => {
                    depth -= 1;
                    close(places[depth], out);
                }
            }
        }
    }
}

/// Begins an element; returns where its content begins.
fn open(tag: u8, out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[tag, 0]);
    out.len()
}

/// Ends the element whose content begins at `place`. Few are so long that their length needs more than
/// the one octet that is there for it.
fn close(place: usize, out: &mut Vec<u8>) {
    let length = out.len() - place;
    match u8::try_from(length) {
        Ok(short @ ..0x80) => out[place - 1] = short,
        _ => {
            let octets = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
            out.splice(place - 1..place, [0x84, octets[0], octets[1], octets[2], octets[3]]);
        }
    }
}

/// The element at the start of `bytes`: its tag, where its content begins, and where it ends, which
/// may be beyond what is there yet. None while even that cannot be told.
pub fn head(bytes: &[u8]) -> Result<Option<(u8, usize, usize)>, &'static str> {
    let [tag, first, behind @ ..] = bytes else { return Ok(None) };
    if *first < 0x80 {
        return Ok(Some((*tag, 2, 2 + usize::from(*first))));
    }
    let octets = usize::from(first & 0x7f);
    if octets == 0 || octets > 8 {
        return Err("a length of no or too many octets");
    }
    let Some(field) = behind.get(..octets) else { return Ok(None) };
    let length = field.iter().fold(0_u64, |length, &octet| length << 8 | u64::from(octet));
    match usize::try_from(length) {
        Ok(length) if length <= MESSAGE_BYTES_MAX => {
            Ok(Some((*tag, 2 + octets, 2 + octets + length)))
        }
        _ => Err("an element that is too long"),
    }
}

/// Takes the element at the start of `rest`, which must be whole: its tag and its content.
pub fn take<'a>(rest: &mut &'a [u8]) -> Result<(u8, &'a [u8]), &'static str> {
    let (tag, begin, end) = head(rest)?.ok_or("an element that is cut off")?;
    let content = rest.get(begin..end).ok_or("an element that is longer than what it is in")?;
    *rest = &rest[end..];
    Ok((tag, content))
}

/// The value of a number that is not negative.
pub fn unsigned(content: &[u8]) -> Result<u32, &'static str> {
    match content {
        [] | [0x80..=0xff, ..] | [_, _, _, _, _, _, ..] => Err("a number out of range"),
        octets => {
            let value = octets.iter().fold(0_u64, |value, &octet| value << 8 | u64::from(octet));
            u32::try_from(value).map_err(|_| "a number out of range")
        }
    }
}
