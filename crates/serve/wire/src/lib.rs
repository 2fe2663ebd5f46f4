// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames between a program and a responder over a local socket: one request, one reply.
//!
//! An [`NssRequest`] is a header and a name. A reply is a header and, for a found entry, a payload. The payload has the
//! form that the NSS module returns. It is read from the socket directly into the caller's buffer; only pointers are
//! set afterwards. [`NssReplyHeader`] and [`PayloadStrings`] check every number and every NUL before its use. The uid
//! of the other side is known, but its bytes are not trusted. [`encode`] writes replies.
//!
//! [`pam`] has the frames between the PAM module and its responder.
//!
//! This crate opens no socket and never waits. `docs/internals/wire-format.md` describes the format.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

pub mod encode;
pub mod pam;
mod reply;
mod request;

pub use reply::{
    NssReply, NssReplyHeader, NssReplyStatus, PAYLOAD_BYTES_MAX, PayloadStrings, REPLY_HEADER_BYTES,
};
pub use request::{
    NAME_BYTES_MAX, NssRequest, NssRequestHeader, REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES,
};

/// Version of both frames. Each side accepts only its own version.
pub const VERSION: u16 = 1;

/// First bytes of frames, the same in every version; the version follows.
const MAGICS: [[u8; 4]; 4] =
    [request::MAGIC, reply::MAGIC, pam::REQUEST_MAGIC, pam::RESPONSE_MAGIC];

/// Returns the version of a frame from its first bytes, if it differs from [`VERSION`].
#[must_use]
pub fn other_version(bytes: &[u8]) -> Option<u16> {
    let (magic, rest) = bytes.split_first_chunk()?;
    let (version, _) = rest.split_first_chunk()?;
    let version = u16::from_le_bytes(*version);
    (MAGICS.contains(magic) && version != VERSION).then_some(version)
}

/// The bytes are not a valid frame, or contradict each other.
///
/// ```
/// use roster_wire::{Malformed, NssRequest};
///
/// let answer = NssRequest::read(b"GET / HTTP/1.1\r\n\r\n");
/// assert_eq!(answer, Err(Malformed));
/// let text = "not a frame of this version, or one that contradicts itself";
/// assert_eq!(Malformed.to_string(), text);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("not a frame of this version, or one that contradicts itself")
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn another_version_is_known_by_what_every_frame_begins_with() {
        for magic in MAGICS {
            let frame =
                |version: [u8; 2]| -> Vec<u8> { [&magic[..], &version, b"whatever"].concat() };
            assert_eq!(other_version(&frame([1, 0])), None);
            assert_eq!(other_version(&frame([2, 0])), Some(2));
            assert_eq!(other_version(&frame([1, 1])), Some(0x101));
            assert_eq!(other_version(&frame([2, 0])[..6]), Some(2));
            assert_eq!(other_version(&frame([2, 0])[..5]), None);
        }
        assert_eq!(other_version(b"GET /\x02\0"), None);
        let mut room = [0; REQUEST_BYTES_MAX];
        let own = NssRequest { kind: roster_request::LookupKind::UserByUid, name: b"", id: 1 }
            .write(&mut room);
        assert_eq!(other_version(own), None);
        assert_eq!(other_version(&encode::ABSENT), None);
    }

    #[test]
    fn malformed_reads_as_sentence() {
        let text = std::format!("{Malformed}");
        assert_eq!(text, "not a frame of this version, or one that contradicts itself");
    }
}
