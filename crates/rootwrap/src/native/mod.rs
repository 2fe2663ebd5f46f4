//! Commands for anybody, by a policy of this host: docs/exec-protocol.md.
//!
//! [`daemon`] has a thread for each connection; `connection` is what such a thread does: it
//! reads a request (`incoming`), asks the name service who the caller is (`names`), has
//! [`decide`] say what [`policy`] permits, has [`crate::exec`] start that, and stays with the command
//! until it has ended (`running`). What came of it goes to the log (`record`, `journal`) and is
//! counted (`metrics`), and neither keeps a caller waiting. How much anybody may have at once is
//! `places`' matter, and who counts as one there `persons`'. The `gate` refuses a user with many connections that hang when they are closed.

pub mod daemon;
pub mod decide;
pub mod policy;

mod connection;
mod environment;
mod gate;
mod incoming;
mod journal;
mod metrics;
mod names;
mod peer;
mod persons;
mod places;
mod record;
mod running;
mod socket;
