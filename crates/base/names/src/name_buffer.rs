// SPDX-License-Identifier: MIT OR Apache-2.0
//! A name of bounded length on the stack. `fold` folds the characters. Nothing here allocates.

use crate::fold::folded_codes;

/// Limit of a name, as in admission.
pub const NAME_BYTES_MAX: usize = 255;
/// Limit of a folded name: a character of two bytes may fold to one of three.
pub const FOLDED_BYTES_MAX: usize = NAME_BYTES_MAX.div_ceil(2).saturating_mul(3);

/// A name on the stack.
#[derive(Clone, Debug)]
pub struct NameBuffer {
    bytes: [u8; FOLDED_BYTES_MAX],
    len: usize,
}

impl NameBuffer {
    const EMPTY: Self = Self { bytes: [0; FOLDED_BYTES_MAX], len: 0 };

    /// Returns the simple case folding of a name. `None` for a name that no entry has because it is too long.
    ///
    /// ```
    /// use roster_names::NameBuffer;
    ///
    /// let folded = NameBuffer::folded("JÜRGEN".as_bytes()).unwrap();
    /// assert_eq!(folded.as_bytes(), "jürgen".as_bytes());
    /// assert!(NameBuffer::folded(&[b'a'; 256]).is_none());
    /// ```
    #[inline(never)] // one copy in each module
    #[must_use]
    pub fn folded(name: &[u8]) -> Option<Self> {
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        let mut buffer = Self::EMPTY;
        for code in folded_codes(name) {
            buffer.push_code(code)?;
        }
        Some(buffer)
    }

    /// Returns `user@domain`. `None` if that is longer than a name may be.
    ///
    /// ```
    /// use roster_names::NameBuffer;
    ///
    /// assert_eq!(NameBuffer::qualified(b"alice", b"corp").unwrap().as_bytes(), b"alice@corp");
    /// ```
    #[inline(never)]
    #[must_use]
    pub fn qualified(user: &[u8], domain: &[u8]) -> Option<Self> {
        let mut buffer = Self::EMPTY;
        for byte in user.iter().chain(b"@").chain(domain) {
            buffer.push(*byte)?;
        }
        (buffer.len <= NAME_BYTES_MAX).then_some(buffer)
    }

    /// Returns the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn push(&mut self, byte: u8) -> Option<()> {
        *self.bytes.get_mut(self.len)? = byte;
        self.len = self.len.wrapping_add(1);
        Some(())
    }

    /// Appends a character in UTF-8, or a byte that is not text.
    #[inline(never)]
    fn push_code(&mut self, code: u32) -> Option<()> {
        let tail = |shift: u32| ((code >> shift) & 0x3f) as u8 | 0x80;
        match code {
            0..0x80 => self.push(code as u8),
            0x80..0x800 => {
                self.push((code >> 6) as u8 | 0xc0)?;
                self.push(tail(0))
            }
            0x800..0x1_0000 => {
                self.push((code >> 12) as u8 | 0xe0)?;
                self.push(tail(6))?;
                self.push(tail(0))
            }
            0x1_0000..0x11_0000 => {
                self.push((code >> 18) as u8 | 0xf0)?;
                self.push(tail(12))?;
                self.push(tail(6))?;
                self.push(tail(0))
            }
            _ => self.push(code as u8),
        }
    }
}

/// Returns whether the folding of a name is `folded`. A name that is too long for an entry has none.
///
/// ```
/// use roster_names::folds_to;
///
/// assert!(folds_to(b"Alice", b"alice") && !folds_to(b"Alice", b"Alice"));
/// ```
#[must_use]
pub fn folds_to(name: &[u8], folded: &[u8]) -> bool {
    NameBuffer::folded(name).is_some_and(|name| name.as_bytes() == folded)
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::String;

    #[test]
    fn name_buffer_holds_longest_folded_name() {
        let growing = "Ⱥ".repeat(127);
        let folded = NameBuffer::folded(growing.as_bytes()).unwrap();
        assert_eq!(folded.as_bytes(), "ⱥ".repeat(127).as_bytes());
        assert!(NameBuffer::folded("Ⱥ".repeat(128).as_bytes()).is_none());
        let all: String = ["a", "ß", "€", "😀"].concat();
        assert_eq!(NameBuffer::folded(all.as_bytes()).unwrap().as_bytes(), all.as_bytes());
        assert_eq!(NameBuffer::folded(b"A\xffB\xc3").unwrap().as_bytes(), b"a\xffb\xc3");
    }

    #[test]
    fn name_buffer_qualified_name_has_limit() {
        let user = [b'u'; 250];
        assert_eq!(NameBuffer::qualified(&user, b"corp").unwrap().as_bytes().len(), 255);
        assert!(NameBuffer::qualified(&user, b"corps").is_none());
        assert!(NameBuffer::qualified(&[b'u'; 1000], b"corp").is_none());
    }
}
