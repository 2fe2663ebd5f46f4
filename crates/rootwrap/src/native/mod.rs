//! Commands for anybody, by a policy of this host: docs/exec-protocol.md. So far the policy, and what it
//! says of a command.

pub mod decide;
pub mod policy;
