// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors that clients send over a socket. A client can leave descriptors in a connection that make close(2) wait.
//! The thread that reads past them, or closes the connection, then waits as long as the client chooses.
//! [`refuse_descriptors`] makes the kernel reject them, if it supports that. [`deferred_close`] limits the wait.
//! [`peer_credentials`] identifies the client.

pub mod deferred_close;
mod socket_options;

pub use socket_options::{PeerCredentials, peer_credentials, refuse_descriptors};
