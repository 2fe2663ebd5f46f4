// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon for the unchanged Python client of oslo.rootwrap: the same output, the same proof of the key, the same
//! messages.
//!
//! - [`frame`], [`hmac_handshake`], [`request`] and [`surrogateescape`] are the protocol.
//! - `command_io` and `output_buffer` run one command.
//! - `connection` serves one client, and [`daemon`] accepts all of them.
//! - `client_table` has their state, and `services` has state that they share.
//!
//! `crate::evaluate` decides which command may run, and `crate::exec` starts it.

mod client_table;
mod command_io;
mod connection;
pub mod daemon;
pub mod frame;
pub mod hmac_handshake;
mod output_buffer;
pub mod request;
mod services;
mod socket;
pub mod surrogateescape;
