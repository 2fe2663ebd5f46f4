// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds snapshots and publishes them for readers.
//!
//! [`SnapshotBuilder`] collects entries and makes an [`SnapshotImage`]. [`compile`] feeds it from passwd, group and
//! shadow text, by the rules of glibc's `files`. [`publish`] replaces a file so that a reader sees the old file or the
//! new one. [`verify`] and [`inspect`] read a whole file. [`renumber`] writes a file with another generation. [`copy`]
//! puts a snapshot into memory for readers.
//!
//! [`floor_file`] is the file with which readers limit a snapshot that root does not own. [`mark`] is the file with
//! which they report a missing snapshot. This crate has no policy: other crates decide which entries may be served.

#![forbid(unsafe_code)]

mod builder;
pub mod compile;
pub mod copy;
pub mod floor_file;
mod image;
mod index;
pub mod inspect;
mod invert_memberships;
pub mod mark;
mod name_table;
pub mod parallel;
pub mod publish;
pub mod renumber;
mod string_slots;
mod too_large;
pub mod verify;

pub use builder::{
    BuiltSnapshot, DomainOptions, Duplicate, IncompleteFlags, LookupKey, MemberId,
    MemberVisibility, SnapshotBuilder,
};
pub use image::SnapshotImage;
pub use too_large::TooLarge;
