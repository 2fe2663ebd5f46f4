// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stand-in: a mapping is a heap block with the number of its file.
#![allow(unsafe_code)]

use crate::layout::SnapshotKind;
use crate::snapshot_path::SnapshotPath;
use crate::syscalls::FileIdentity;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::SeqCst;
use libc::c_int;

/// The memory of a mapping.
#[repr(C)]
pub struct Block {
    generation: u64,
    /// Set at the end of the mapping with shuttle, which does not free it. Miri detects a later read without that.
    is_unmapped: AtomicBool,
}

impl Block {
    fn map(generation: u64) -> &'static Self {
        let block = Box::into_raw(Box::new(Self { generation, is_unmapped: false.into() }));
        // For `at`.
        block.expose_provenance();
        // SAFETY: a fresh allocation, which stays until the end of the mapping.
        unsafe { &*block }
    }

    fn bytes(&'static self) -> &'static [u8] {
        let start = core::ptr::from_ref(self).cast::<u8>();
        // SAFETY: nothing reads or writes the first byte of `generation` as a part of these bytes.
        unsafe { core::slice::from_raw_parts(start, 1) }
    }

    /// Returns the block with these bytes.
    pub fn at(bytes: &'static [u8]) -> *mut Self {
        core::ptr::with_exposed_provenance_mut(bytes.as_ptr().addr())
    }

    /// Ends the mapping.
    pub fn unmap(&self) {
        assert!(!self.is_unmapped.swap(true, SeqCst), "{} is unmapped twice", self.generation);
    }

    /// Returns the number of the file.
    fn read(&self) -> u64 {
        if cfg!(loom) {
            assert!(!self.is_unmapped.load(SeqCst), "{} is read when unmapped", self.generation);
        }
        self.generation
    }
}

/// The file in a mapping.
#[derive(Clone, Copy)]
pub struct Snapshot<'a>(&'a Block);

impl Snapshot<'_> {
    pub fn generation(&self) -> u64 {
        self.0.read()
    }
}

#[derive(Clone, Copy)]
pub struct MappedSnapshot {
    pub bytes: &'static [u8],
    pub identity: FileIdentity,
    pub owner: u32,
    pub snapshot: Snapshot<'static>,
    pub shared: bool,
}

pub struct PrivateSnapshot(MappedSnapshot);

impl PrivateSnapshot {
    pub fn new(location: &SnapshotPath, kind: SnapshotKind) -> Result<Self, c_int> {
        load(location, kind).map(Self)
    }

    pub fn mapped(&self) -> &MappedSnapshot {
        &self.0
    }
}

impl Drop for PrivateSnapshot {
    fn drop(&mut self) {
        // SAFETY: it has no other owner.
        unsafe { crate::syscalls::unmap(self.0.bytes) };
    }
}

/// Opens the published file. The owner in the result is its number.
pub fn load(location: &SnapshotPath, _: SnapshotKind) -> Result<MappedSnapshot, c_int> {
    let identity = location.stat()?.identity;
    let block = Block::map(identity.0);
    let (bytes, owner) = (block.bytes(), identity.0 as u32);
    Ok(MappedSnapshot { bytes, identity, owner, snapshot: Snapshot(block), shared: false })
}
