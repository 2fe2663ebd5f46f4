//! Fields one behind the other: integers in big-endian order, bytes with their length in front. What
//! is read is checked, and bounded by the message that it stands in.

use zeroize::Zeroizing;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a message of roster-krb5")]
pub struct Malformed;

/// Puts fields into a message, which is wiped when it is done with.
#[derive(Default)]
pub(crate) struct Writer(pub Zeroizing<Vec<u8>>);

impl Writer {
    /// With room for a message of that length: one that grows would leave a copy behind.
    pub fn new(bytes: usize) -> Self {
        Self(Zeroizing::new(Vec::with_capacity(bytes)))
    }

    pub fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub fn number(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub fn long(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub fn bytes(&mut self, value: &[u8]) {
        self.number(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(value);
    }
}

/// Takes fields from a message.
pub(crate) struct Reader<'m>(pub &'m [u8]);

impl<'m> Reader<'m> {
    fn take(&mut self, length: usize) -> Result<&'m [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub fn number(&mut self) -> Result<u32, Malformed> {
        self.take(4)?.try_into().map(u32::from_be_bytes).map_err(|_| Malformed)
    }

    pub fn long(&mut self) -> Result<u64, Malformed> {
        self.take(8)?.try_into().map(u64::from_be_bytes).map_err(|_| Malformed)
    }

    pub fn bytes(&mut self) -> Result<&'m [u8], Malformed> {
        let length = self.number()?;
        self.take(usize::try_from(length).map_err(|_| Malformed)?)
    }

    pub fn text(&mut self) -> Result<&'m str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// Nothing may be left.
    pub fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}
