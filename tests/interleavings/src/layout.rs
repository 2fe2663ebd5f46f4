// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stand-in: the kinds of snapshots.

#[derive(Clone, Copy)]
pub enum SnapshotKind {
    Accounts,
    Shadow,
}
