// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two modes: compat decides as oslo.rootwrap, and strict closes its known gaps.

use std::fmt;

/// A mode of decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Decides as oslo.rootwrap.
    Compat,
    /// Closes known gaps of oslo.rootwrap.
    Strict,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compat => "compat",
            Self::Strict => "strict",
        })
    }
}
