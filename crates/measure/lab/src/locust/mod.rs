// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locust's worker protocol over ZeroMQ: messages, statistics and the wire format. `commands` makes the requests.

pub mod message;
pub mod stats;
pub mod zmtp;
