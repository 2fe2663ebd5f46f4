// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error of all parts of a builder.

/// A value exceeds a limit of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} does not fit into a snapshot")]
pub struct TooLarge(pub &'static str);
