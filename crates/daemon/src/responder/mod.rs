//! What answers programs over sockets. Each responder is a role of its own, started when somebody
//! first connects to its socket; none talks to a directory.

mod connection;
mod gate;
pub mod metrics;
pub mod nss;
pub mod pam;
