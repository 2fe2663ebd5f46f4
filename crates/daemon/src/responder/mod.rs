//! What answers programs over sockets. Each responder is a role of its own, started when somebody
//! first connects to its socket, but for that which serves in place of nscd; none talks to a directory.

mod connection;
mod gate;
pub mod metrics;
pub mod nscd;
pub mod nss;
pub mod pam;
mod versions;
