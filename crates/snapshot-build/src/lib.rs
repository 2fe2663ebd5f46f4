//! Builds snapshots and brings them safely to where readers look.
//!
//! [`Builder`] takes entries and makes an [`Image`]; [`compile`] feeds it from passwd, group and
//! shadow text with the verdicts of glibc's `files`; [`publish`] puts an image in place so that a
//! reader sees the old file or the new one, whatever happens; [`verify`] and [`inspect`] read a
//! file whole; [`floor_file`] is the file by which readers limit a snapshot that root does not own,
//! [`mark`] the file by which they report a missing snapshot; [`copy`] puts a snapshot into memory for
//! them. No policy:
//! what may be served is decided before an entry gets here.

#![forbid(unsafe_code)]

mod builder;
pub mod compile;
pub mod copy;
pub mod floor_file;
mod image;
mod index;
pub mod inspect;
mod invert;
pub mod mark;
mod names;
pub mod parallel;
pub mod publish;
mod slots;
pub mod verify;

pub use builder::{Builder, Duplicate, Finished, Gaps, Key, MemberId, Members, TooLarge};
pub use image::Image;
