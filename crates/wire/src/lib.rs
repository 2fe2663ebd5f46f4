//! What a program and a responder say to each other over a local socket: one question, one answer.
//!
//! A [`Request`] is a header and a name. A reply is a header and, when something was found, a
//! payload in the very form in which the NSS module hands it to its caller, so that it goes from
//! the socket into the caller's buffer and only pointers are set after that. [`ReplyHeader`] and
//! [`Strings`] check every number and every NUL before it is used: the other side is known by its
//! user id, and is not believed in its bytes. [`encode`] writes replies.
//!
//! [`pam`] is what the PAM module and its responder say to each other.
//!
//! No socket is opened here and nothing waits; `docs/wire-format.md` is the prose of this crate.

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

pub use reply::{PAYLOAD_BYTES_MAX, REPLY_HEADER_BYTES, Reply, ReplyHeader, Status, Strings};
pub use request::{
    Kind, NAME_BYTES_MAX, REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES, Request, RequestHeader,
};

/// Version of both frames. Each side takes its own version only.
pub const VERSION: u16 = 1;

/// What frames begin with, in every version; the version follows.
const MAGICS: [[u8; 4]; 4] = [request::MAGIC, reply::MAGIC, pam::REQUEST_MAGIC, pam::ANSWER_MAGIC];

/// The version of a frame whose beginning this is, if it is another than [`VERSION`].
#[must_use]
pub fn other_version(bytes: &[u8]) -> Option<u16> {
    let (magic, rest) = bytes.split_first_chunk()?;
    let (version, _) = rest.split_first_chunk()?;
    let version = u16::from_le_bytes(*version);
    (MAGICS.contains(magic) && version != VERSION).then_some(version)
}

/// The bytes are no frame of ours, or contradict themselves.
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
        let own = Request { kind: Kind::UserByUid, name: b"", id: 1 }.write(&mut room);
        assert_eq!(other_version(own), None);
        assert_eq!(other_version(&encode::ABSENT), None);
    }

    #[test]
    fn malformed_reads_as_sentence() {
        let text = std::format!("{Malformed}");
        assert_eq!(text, "not a frame of this version, or one that contradicts itself");
    }
}
