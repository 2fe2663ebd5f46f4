// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens, maps and checks a snapshot file. `snapshot_path` decides about trust, and `generations` about the time of a
//! new mapping.
#![allow(unsafe_code)]

use crate::snapshot_path::{self, SnapshotPath};
use crate::syscalls::{self, FileIdentity, FileStat};
use core::ptr::NonNull;
use libc::c_int;
use roster_snapshot::Snapshot;
use roster_snapshot::layout::SnapshotKind;

/// A mapped file that passed the checks of the reader.
#[derive(Clone, Copy)]
pub struct MappedSnapshot {
    pub bytes: &'static [u8],
    pub identity: FileIdentity,
    /// Uid of the file's owner.
    pub owner: u32,
    pub snapshot: Snapshot<'static>,
    /// Another [`crate::generations`] table may hold the mapping too, so it is never unmapped.
    pub shared: bool,
}

/// A mapping with one owner. Its description is in separately mapped memory.
pub struct PrivateSnapshot(NonNull<MappedSnapshot>);

impl PrivateSnapshot {
    /// Opens the file.
    #[cold]
    pub fn new(location: &SnapshotPath, kind: SnapshotKind) -> Result<Self, c_int> {
        let place = NonNull::new(syscalls::allocate::<MappedSnapshot>().ok_or(libc::ENOMEM)?);
        let place = place.ok_or(libc::ENOMEM)?;
        match load(location, kind) {
            Ok(mapped) => {
                // SAFETY: freshly allocated, and large enough.
                unsafe { place.write(mapped) };
                Ok(Self(place))
            }
            Err(error) => {
                // SAFETY: no other code has this pointer.
                unsafe { syscalls::free(place.as_ptr()) };
                Err(error)
            }
        }
    }

    /// Returns the snapshot. Callers must not keep any part of it beyond this value.
    pub fn snapshot(&self) -> &Snapshot<'_> {
        &self.mapped().snapshot
    }

    /// Returns the mapping. Callers must not keep any part of it beyond this value.
    pub fn mapped(&self) -> &MappedSnapshot {
        // SAFETY: written by `new`, and valid as long as `self` lives.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for PrivateSnapshot {
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: written by `new`.
        let mapped = unsafe { self.0.read() };
        // SAFETY: both have no other owner, and all borrows from them have ended.
        unsafe {
            syscalls::unmap(mapped.bytes);
            syscalls::free(self.0.as_ptr());
        }
    }
}

/// Opens, maps and checks the file.
#[cold]
#[inline(never)]
pub fn load(location: &SnapshotPath, kind: SnapshotKind) -> Result<MappedSnapshot, c_int> {
    let (file, stat) = location.open()?;
    let bytes = usize::try_from(stat.bytes).map_err(|_| libc::EIO)?;
    if bytes == 0 {
        return Err(libc::EIO);
    }
    let bytes = syscalls::map(&file, bytes)?;
    let opened = match kind {
        SnapshotKind::Accounts => Snapshot::open(bytes),
        SnapshotKind::Shadow => Snapshot::open_shadow(bytes),
    };
    match opened {
        Ok(mut snapshot) => {
            if location.has_floor(&stat) {
                snapshot.set_floor(&snapshot_path::floor());
            }
            let FileStat { identity, owner, .. } = stat;
            Ok(MappedSnapshot { bytes, identity, owner, snapshot, shared: false })
        }
        Err(_) => {
            // SAFETY: no other code has this mapping, and the failed open retained no part of it.
            unsafe { syscalls::unmap(bytes) };
            Err(libc::EIO)
        }
    }
}
