// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stand-in: the published file is a number.

use crate::layout::SnapshotKind;
use crate::syscalls::{FileIdentity, FileStat};
use crate::threads::switch_point;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;
use libc::c_int;

/// The number of the published file; 0 is none.
pub static PUBLISHED: AtomicU64 = AtomicU64::new(0);

/// As rename(2) does.
pub fn publish(generation: u64) {
    switch_point();
    PUBLISHED.store(generation, SeqCst);
}

#[derive(Clone, Copy)]
pub struct SnapshotPath;

impl SnapshotPath {
    pub fn find(_: SnapshotKind) -> Result<Self, c_int> {
        Ok(Self)
    }

    pub fn stat(&self) -> Result<FileStat, c_int> {
        switch_point();
        match PUBLISHED.load(SeqCst) {
            0 => Err(libc::ENOENT),
            generation => Ok(FileStat { identity: FileIdentity(generation) }),
        }
    }
}
