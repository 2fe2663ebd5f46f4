// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of users and groups: which spellings are equal, and names that include a domain.
//!
//! The NSS module, the daemon and the tools use these functions, so that all of them find the same entry. Two names
//! are equal in a domain that ignores case if their simple case foldings (Unicode, `CaseFolding.txt`, status C and S)
//! are equal. `alice@corp` and `CORP\alice` name the user `alice` of the domain `corp`. This crate does not allocate,
//! except with the feature `alloc`, and cannot panic.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

#[cfg(feature = "alloc")]
extern crate alloc;

#[cfg(feature = "compose")]
mod compose;
mod fold;
mod fold_table;
mod name_buffer;
mod qualified;

pub use fold::{equals_folded, fold_char, folded_codes, is_folded};
pub use name_buffer::{FOLDED_BYTES_MAX, NAME_BYTES_MAX, NameBuffer, folds_to};
pub use qualified::{QualifiedName, qualified_forms};

#[cfg(feature = "compose")]
pub use compose::compose;
#[cfg(feature = "alloc")]
pub use fold::fold;
