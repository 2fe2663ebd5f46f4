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

/// The bytes are no frame of ours, or contradict themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("not a frame of this version, or one that contradicts itself")
    }
}

impl core::error::Error for Malformed {}
