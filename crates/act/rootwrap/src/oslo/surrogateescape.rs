// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion between bytes and JSON text as in Python: a byte 0xNN outside of UTF-8 becomes the surrogate U+DCNN
//! (`surrogateescape`). Both directions are exact, and continue at any byte of the input. This module knows no request:
//! `request` and `output_buffer` do.

/// A receiver of encoded text.
pub trait TextSink {
    /// Adds text.
    fn put(&mut self, bytes: &[u8]);
}

impl TextSink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A receiver that counts bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteCount(pub u64);

impl TextSink for ByteCount {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }
}

/// An encoder from bytes to the content of a JSON string.
#[derive(Clone, Debug, Default)]
pub struct SurrogateEncoder {
    /// Start of an incomplete character.
    partial: [u8; 4],
    count: usize,
}

impl SurrogateEncoder {
    /// Encodes the next piece.
    pub fn feed(&mut self, mut bytes: &[u8], out: &mut impl TextSink) {
        while self.count > 0 {
            let Some((&next, rest)) = bytes.split_first() else { return };
            self.partial[self.count] = next;
            let started = self.partial;
            match std::str::from_utf8(&started[..=self.count]) {
                Ok(_) => out.put(&started[..=self.count]),
                Err(error) if error.error_len().is_none() => {
                    self.count += 1;
                    bytes = rest;
                    continue;
                }
                // The next byte starts another character.
                Err(_) => {
                    self.finish(out);
                    break;
                }
            }
            self.count = 0;
            bytes = rest;
        }
        while !bytes.is_empty() {
            let (valid, invalid) = match std::str::from_utf8(bytes) {
                Ok(_) => return put_valid(bytes, out),
                Err(error) => (error.valid_up_to(), error.error_len()),
            };
            put_valid(&bytes[..valid], out);
            bytes = &bytes[valid..];
            let Some(invalid) = invalid else {
                self.partial[..bytes.len()].copy_from_slice(bytes);
                self.count = bytes.len();
                return;
            };
            put_escaped(&bytes[..invalid], out);
            bytes = &bytes[invalid..];
        }
    }

    /// Encodes the end.
    pub fn finish(&mut self, out: &mut impl TextSink) {
        put_escaped(&self.partial[..self.count], out);
        self.count = 0;
    }
}

/// Encodes bytes outside of UTF-8.
fn put_escaped(bytes: &[u8], out: &mut impl TextSink) {
    for &byte in bytes {
        out.put(&[b'\\', b'u', b'd', b'c', hex(byte >> 4), hex(byte & 15)]);
    }
}

fn put_valid(bytes: &[u8], out: &mut impl TextSink) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| byte < b' ' || byte == b'"' || byte == b'\\')
    {
        out.put(&rest[..at]);
        match rest[at] {
            b'\n' => out.put(b"\\n"),
            byte @ (b'"' | b'\\') => out.put(&[b'\\', byte]),
            byte => out.put(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]),
        }
        rest = &rest[at + 1..];
    }
    out.put(rest);
}

fn hex(digit: u8) -> u8 {
    b"0123456789abcdef"[usize::from(digit)]
}

/// Reasons for which the content of a JSON string does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadText {
    /// JSON does not have this escape.
    Escape,
    /// No byte has this surrogate.
    Surrogate,
}

/// A decoder from the content of a JSON string to bytes.
#[derive(Clone, Debug, Default)]
pub struct SurrogateDecoder {
    state: DecoderState,
    /// The first half of a surrogate pair.
    high: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
enum DecoderState {
    #[default]
    Plain,
    Escape,
    /// Received digits of a code, and its value.
    Code(u8, u32),
}

impl SurrogateDecoder {
    /// Decodes the next piece. Returns the used length, and whether the closing quote was its last byte.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, bool), BadText> {
        let mut at = 0;
        while at < bytes.len() {
            if let DecoderState::Plain = self.state {
                let rest = &bytes[at..];
                let plain = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                if self.high.is_some() && rest.first() != Some(&b'\\') {
                    return Err(BadText::Surrogate);
                }
                out.extend_from_slice(&rest[..plain]);
                at += plain;
                match bytes.get(at) {
                    Some(b'"') => return Ok((at + 1, true)),
                    Some(_) => self.state = DecoderState::Escape,
                    None => break,
                }
            } else {
                self.escaped(bytes[at], out)?;
            }
            at += 1;
        }
        Ok((at, false))
    }

    fn escaped(&mut self, byte: u8, out: &mut Vec<u8>) -> Result<(), BadText> {
        let DecoderState::Code(count, code) = self.state else {
            if byte == b'u' {
                self.state = DecoderState::Code(0, 0);
                return Ok(());
            }
            if self.high.is_some() {
                return Err(BadText::Surrogate);
            }
            out.push(match byte {
                b'"' | b'\\' | b'/' => byte,
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                _ => return Err(BadText::Escape),
            });
            self.state = DecoderState::Plain;
            return Ok(());
        };
        let digit = char::from(byte).to_digit(16).ok_or(BadText::Escape)?;
        let code = code << 4 | digit;
        if count < 3 {
            self.state = DecoderState::Code(count + 1, code);
            return Ok(());
        }
        self.state = DecoderState::Plain;
        self.code(code, out)
    }

    fn code(&mut self, code: u32, out: &mut Vec<u8>) -> Result<(), BadText> {
        let char = match (self.high.take(), code) {
            (Some(high), 0xdc00..=0xdfff) => 0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00),
            (Some(_), _) => return Err(BadText::Surrogate),
            (None, 0xd800..=0xdbff) => {
                self.high = Some(code);
                return Ok(());
            }
            (None, 0xdc80..=0xdcff) => {
                out.push(code.to_le_bytes()[0]);
                return Ok(());
            }
            (None, code) => code,
        };
        let char = char::from_u32(char).ok_or(BadText::Surrogate)?;
        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(bytes: &[u8], piece: usize) -> String {
        let (mut encoder, mut out, mut count) =
            (SurrogateEncoder::default(), Vec::new(), ByteCount::default());
        for piece in bytes.chunks(piece) {
            encoder.clone().feed(piece, &mut count);
            encoder.feed(piece, &mut out);
        }
        encoder.clone().finish(&mut count);
        encoder.finish(&mut out);
        assert_eq!(count.0, out.len() as u64);
        String::from_utf8(out).unwrap()
    }

    fn decode(text: &[u8], piece: usize) -> Result<Vec<u8>, BadText> {
        let (mut decoder, mut out) = (SurrogateDecoder::default(), Vec::new());
        let quoted = [text, b"\""].concat();
        for piece in quoted.chunks(piece) {
            let (used, ended) = decoder.feed(piece, &mut out)?;
            assert!(used == piece.len() || ended);
        }
        Ok(out)
    }

    #[test]
    fn bytes_are_the_text_that_python_makes_of_them() {
        let bytes = b"a\"\\\n\x01\x7f\xc3\xa9\xff\xed\xa0\x80\xf0\x9f\x92\xa9\xf0\x9f\xe2\x82";
        let text = "a\\\"\\\\\\n\\u0001\x7f\u{e9}\\udcff\\udced\\udca0\\udc80\u{1f4a9}\
                    \\udcf0\\udc9f\\udce2\\udc82";
        for piece in 1..=bytes.len() {
            assert_eq!(encode(bytes, piece), text, "in pieces of {piece}");
            assert_eq!(decode(text.as_bytes(), piece).unwrap(), bytes);
        }
    }

    #[test]
    fn what_stands_for_no_bytes_is_refused() {
        assert_eq!(decode(b"\\ud83d\\uDCA9\\/\\b", 3).unwrap(), "\u{1f4a9}/\u{8}".as_bytes());
        assert_eq!(decode(b"\\ud800\\udc80", 9).unwrap(), "\u{10080}".as_bytes());
        for text in
            [&b"\\ud800"[..], b"\\ud800x", b"\\ud800\\n", b"\\ud800\\u0041", b"\\udc7f", b"\\udfff"]
        {
            assert_eq!(decode(text, 4), Err(BadText::Surrogate), "{text:?}");
        }
        for text in [&b"\\x"[..], b"\\u00g0", b"\\u+001"] {
            assert_eq!(decode(text, 2), Err(BadText::Escape), "{text:?}");
        }
    }
}
