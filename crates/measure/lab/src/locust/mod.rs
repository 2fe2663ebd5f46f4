//! Locust's worker protocol: what a worker and a master say to each other, on the wire of ZeroMQ. Who
//! makes the requests is not known here; that is `commands`'s.

pub mod message;
pub mod stats;
pub mod zmtp;
