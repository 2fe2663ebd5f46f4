//! The daemon that serves the unchanged Python client of `oslo.rootwrap`, as the original's does: the same
//! words on standard output, the same proof of the key, the same messages.
//!
//! [`frame`], [`auth`], [`request`] and [`text`] are the protocol; `run` and `spool` take a command
//! from its start to its end; `connection` serves one client, and [`daemon`] all of them. What may run
//! is said by the judge, and who runs it is the executor.

pub mod auth;
mod connection;
pub mod daemon;
pub mod frame;
pub mod request;
mod run;
mod socket;
mod spool;
pub mod text;
