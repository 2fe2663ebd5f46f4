// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages and tickets of `roster-krb5`, the only program of Roster that is linked with libkrb5. This library does not
//! call libkrb5.
//!
//! The program has two callers. A backend of a domain with `auth = "krb5"` starts `roster-krb5 serve` before it drops
//! its rights, and sends it logins as [`ipc::HelperRequest`]s. The PAM module starts `roster-krb5 session` once for
//! each operation, with the ticket from the backend's reply. That [`session_ticket::SessionTicket`] stays opaque in
//! between.
//!
//! Both pass fields, never text of a krb5.conf: see [`realm`].
//!
//! The backend of a domain with `bind = "gssapi"` also starts `roster-krb5 bind`: see [`bind_ipc`].
#![forbid(unsafe_code)]

pub mod bind_ipc;
pub mod ccache_file;
mod codec;
pub mod ipc;
pub mod kdc_errors;
pub mod realm;
pub mod session_ticket;

pub use codec::DecodeError;
