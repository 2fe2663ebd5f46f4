// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of directories and files that more than one role uses.

/// The publisher's directory of the snapshot, in the state directory.
pub const SNAPSHOT_DIR: &str = "snap";
/// The snapshot in it.
pub const SNAPSHOT_FILE: &str = "roster.v3.snap";
/// The publisher's directory of snapshot copies, in the run-time directory.
pub const SNAPSHOT_COPY_DIR: &str = "snap";
/// Directory of caches, in the state directory. It belongs to root, and has a directory for each backend.
pub const DOMAIN_CACHE_DIR: &str = "domains";
