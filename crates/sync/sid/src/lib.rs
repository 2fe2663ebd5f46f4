// SPDX-License-Identifier: MIT OR Apache-2.0
//! Security identifiers (SIDs) of Active Directory, and the numeric ids that they stand for.
//!
//! [`Sid`] parses the binary attribute `objectSid` and the text form. [`IdMapper`] computes uids and gids equal to
//! libsss_idmap, so that a host can move from SSSD without changing the owner of a file. Where libsss_idmap would
//! choose another slice because the first one is in use, the result depends on the order of requests. The mapper
//! returns an [`Unmapped`] reason instead.
//!
//! [`open_mapper`] continues with the slices of an earlier run, which [`slice_table_file`] stores. Otherwise this crate
//! opens no file. It knows no directory server. docs/internals/id-mapping.md describes the algorithm.

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

mod helper_blocks;
mod id_mapper;
mod id_range;
mod murmur3;
mod sid;
mod slice_plan;
mod slice_table;
pub mod slice_table_file;

pub use id_mapper::{DOMAINS_MAX, DomainSlice, HELPER_SLICES, IdMapper, MapperError, Unmapped};
pub use id_range::{IdRange, IdRangeError};
pub use sid::{SUB_AUTHORITIES_MAX, Sid, SidError};
pub use slice_plan::{SliceClaim, SliceDispute};
pub use slice_table::{
    SliceTable, SliceTableError, TABLE_BYTES_MAX, TableMismatch, check_stored, open_mapper,
};
