//! What is said to `roster-krb5`, the one program of Roster that is linked with libkrb5, and what it
//! hands on; nothing here calls that library.
//!
//! The program has two callers. A back-end of a domain with `auth = "krb5"` starts `roster-krb5 serve`
//! before it gives up its rights, and sends it log-ins as [`message::Request`]s. The PAM module starts
//! `roster-krb5 session`, once for each thing it wants done, with what the back-end's answer brought:
//! a [`tickets::Tickets`] that stays opaque to everybody in between.
//!
//! Both pass fields, never text of a krb5.conf: see [`realm`].
#![forbid(unsafe_code)]

mod codec;
pub mod file;
pub mod message;
pub mod outcome;
pub mod realm;
pub mod tickets;

pub use codec::Malformed;
