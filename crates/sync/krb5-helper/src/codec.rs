// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodes fields in sequence: integers in big-endian order, bytes after their length. The decoder checks all fields,
//! and the message bounds them. The messages are in `ipc`, `bind_ipc` and `session_ticket`.

use zeroize::Zeroizing;

/// The bytes are malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message of roster-krb5")]
pub struct DecodeError;

/// Writes fields to a message, which is wiped on drop.
#[derive(Default)]
pub(crate) struct FieldWriter(pub Zeroizing<Vec<u8>>);

impl FieldWriter {
    /// Reserves space for a message of that length: a growing buffer would leave a copy behind.
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

/// Reads fields from a message.
pub(crate) struct FieldReader<'m>(pub &'m [u8]);

impl<'m> FieldReader<'m> {
    fn take_bytes(&mut self, length: usize) -> Result<&'m [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(DecodeError)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take_bytes(1)?[0])
    }

    pub fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError),
        }
    }

    pub fn number(&mut self) -> Result<u32, DecodeError> {
        self.take_bytes(4)?.try_into().map(u32::from_be_bytes).map_err(|_| DecodeError)
    }

    pub fn long(&mut self) -> Result<u64, DecodeError> {
        self.take_bytes(8)?.try_into().map(u64::from_be_bytes).map_err(|_| DecodeError)
    }

    pub fn bytes(&mut self) -> Result<&'m [u8], DecodeError> {
        let length = self.number()?;
        self.take_bytes(usize::try_from(length).map_err(|_| DecodeError)?)
    }

    pub fn text(&mut self) -> Result<&'m str, DecodeError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError)
    }

    /// Fails if bytes remain.
    pub fn end(self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError) }
    }
}
