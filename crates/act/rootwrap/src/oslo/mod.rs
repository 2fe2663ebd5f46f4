//! The daemon that serves the unchanged Python client of `oslo.rootwrap`, as the original's does: the same
//! words on standard output, the same proof of the key, the same messages.
//!
//! [`frame`], [`hmac_handshake`], [`request`] and [`surrogateescape`] are the protocol; `command_io` and `output_buffer` take a command
//! from its start to its end; `connection` serves one client,
//! and [`daemon`] all of them; `client_table` has their number and state, `services` what they share. What may run
//! is said by the judge, and who runs it is the executor.

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
