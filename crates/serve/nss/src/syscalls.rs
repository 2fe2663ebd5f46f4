// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that only this module makes; `roster-module-sys` has the others. They avoid libc functions that are
//! cancellation points, so that a cancelled thread cannot leave a call unfinished. A lookup that the snapshot answers
//! uses only system calls that glibc's `files` service also uses. A process in a seccomp filter can therefore look up
//! its user.
#![allow(unsafe_code)]

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use libc::{c_int, c_long, c_void};
pub use roster_module_sys::syscalls::*;

/// Identity of a file. A replacement differs in at least one field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    device: libc::dev_t,
    inode: libc::ino_t,
    bytes: u64,
    modified: (libc::time_t, c_long),
    changed: (libc::time_t, c_long),
}

/// The relevant fields of `struct stat`.
#[derive(Clone, Copy)]
pub struct FileStat {
    pub identity: FileIdentity,
    pub bytes: u64,
    pub owner: u32,
    pub mode: u32,
}

impl FileStat {
    pub fn inode(&self) -> u64 {
        self.identity.inode
    }

    /// Returns whether this file is a copy with the same owner and mode. `file` must be regular, and then the copy is.
    pub fn is_copy_of(&self, file: &Self) -> bool {
        (self.owner, self.mode, self.bytes) == (file.owner, file.mode, file.bytes)
            && self.identity.modified == file.identity.modified
    }

    pub fn is_regular(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    pub fn is_directory(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    pub fn is_sticky(&self) -> bool {
        self.mode & libc::S_ISVTX != 0
    }

    /// Returns whether the group or others may write.
    pub fn is_writable_by_others(&self) -> bool {
        self.mode & (libc::S_IWGRP | libc::S_IWOTH) != 0
    }
}

/// Returns the text before the first NUL. Without a NUL as the last byte, returns an empty text.
#[inline(never)] // one copy for all callers
pub fn c_str(bytes: &[u8]) -> &CStr {
    match bytes.last() {
        // SAFETY: the bytes contain a NUL. The search of the C library is smaller than that of core.
        Some(0) => unsafe { CStr::from_ptr(bytes.as_ptr().cast()) },
        _ => c"",
    }
}

/// Calls fstat(2).
pub fn stat_open(descriptor: &Descriptor) -> Result<FileStat, c_int> {
    stat_at(descriptor.number(), c"", libc::AT_EMPTY_PATH)
}

/// Calls lstat(2) for a name in an open directory.
pub fn stat_below(folder: &Descriptor, name: &CStr) -> Result<FileStat, c_int> {
    stat_at(folder.number(), name, libc::AT_SYMLINK_NOFOLLOW)
}

/// Calls lstat(2).
pub fn stat_path(path: &CStr) -> Result<FileStat, c_int> {
    stat_at(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW)
}

#[inline(never)] // not on the path of a lookup, and long compared with the call
fn stat_at(folder: c_int, path: &CStr, flags: c_int) -> Result<FileStat, c_int> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // The raw call, because glibc before 2.33 does not export fstatat(3).
    // SAFETY: `path` ends with a NUL, and `stat` has space for the result.
    let result = unsafe {
        libc::syscall(libc::SYS_newfstatat, folder, path.as_ptr(), stat.as_mut_ptr(), flags)
    };
    if result != 0 {
        return Err(error_number());
    }
    // SAFETY: the call succeeded, so it has written all of `stat`.
    let stat = unsafe { stat.assume_init() };
    let bytes = stat.st_size as u64;
    Ok(FileStat {
        identity: FileIdentity {
            device: stat.st_dev,
            inode: stat.st_ino,
            bytes,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        },
        bytes,
        owner: stat.st_uid,
        mode: stat.st_mode,
    })
}

/// Size of a read of [`read_through`] in bytes.
const READ_BYTES: usize = 64 << 10;

/// Reads an open file to its end, only to detect errors.
#[cold]
pub fn read_through(descriptor: &Descriptor) -> Result<(), c_int> {
    let room = allocate::<[u8; READ_BYTES]>().ok_or(libc::ENOMEM)?;
    // SAFETY: fresh, zeroed memory, which is freed only below.
    let buffer = unsafe { &mut *room };
    let read = loop {
        match read(descriptor, buffer) {
            Ok(0) => break Ok(()),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
    };
    // SAFETY: it came from `allocate`, and no reference to it remains.
    unsafe { free(room) };
    read
}

/// Maps the first `bytes` of a file for reading. The mapping stays until [`unmap`].
pub fn map(descriptor: &Descriptor, bytes: usize) -> Result<&'static [u8], c_int> {
    let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
    // SAFETY: a fresh mapping at an address that the kernel chooses touches no memory in use.
    let address =
        unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, descriptor.number(), 0) };
    if address == libc::MAP_FAILED {
        return Err(error_number());
    }
    // SAFETY: `bytes` bytes are mapped there. Published files are never modified or truncated, see
    // docs/reference/snapshot-format.md. A writer that violates this breaks the readers of the file.
    Ok(unsafe { core::slice::from_raw_parts(address.cast(), bytes) })
}

/// Unmaps a file.
///
/// # Safety
/// No reference to `mapping` remains.
pub unsafe fn unmap(mapping: &'static [u8]) {
    // SAFETY: the caller promises that no code accesses the mapping again.
    unsafe { libc::munmap(mapping.as_ptr().cast_mut().cast(), mapping.len()) };
}

/// Allocates zeroed memory, which stays until [`free`].
pub fn allocate<T>() -> Option<*mut T> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at an address that the kernel chooses touches no memory in use.
    let address = unsafe { libc::mmap(ptr::null_mut(), size_of::<T>(), protection, flags, -1, 0) };
    (address != libc::MAP_FAILED).then_some(address.cast())
}

/// Frees memory from [`allocate`].
///
/// # Safety
/// `memory` came from [`allocate`], and no reference to it remains.
pub unsafe fn free<T>(memory: *mut T) {
    // SAFETY: the caller promises that no code accesses the memory again.
    unsafe { libc::munmap(memory.cast::<c_void>(), size_of::<T>()) };
}

/// Returns the effective uid of an unprivileged process: it is not root's, and real and effective ids agree.
pub fn unprivileged_uid() -> Option<u32> {
    let id = |call: c_long| {
        // SAFETY: the four calls here take no arguments and cannot fail.
        unsafe { libc::syscall(call) as u32 }
    };
    let user = id(libc::SYS_geteuid);
    (user != 0 && id(libc::SYS_getuid) == user && id(libc::SYS_getgid) == id(libc::SYS_getegid))
        .then_some(user)
}

/// Copies the value of an environment variable, with its NUL, to `value`. Returns `None` if the variable is unset or
/// its value too long.
pub fn environment<'a>(name: &CStr, value: &'a mut [u8]) -> Option<&'a CStr> {
    // SAFETY: `name` ends with a NUL. A program that changes its environment while another thread is here breaks the
    // contract of getenv(3), as for all of libc.
    let found = unsafe { libc::getenv(name.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: getenv(3) returns a string that ends with a NUL.
    let found = unsafe { CStr::from_ptr(found) }.to_bytes_with_nul();
    let value = value.get_mut(..found.len())?;
    value.copy_from_slice(found);
    Some(c_str(value))
}

/// Returns whether the program is statically linked, from its program headers. Such a program has a second libc beside
/// the libc of this module. Returns true if the headers are unknown.
pub fn is_static() -> bool {
    const PT_INTERP: u32 = 3;
    let value = |kind| {
        // SAFETY: getauxval(3) takes a number; 0 means that the value is unknown.
        unsafe { libc::getauxval(kind) as usize }
    };
    let headers = value(libc::AT_PHDR) as *const u8;
    let (count, bytes) = (value(libc::AT_PHNUM), value(libc::AT_PHENT));
    if headers.is_null() {
        return true;
    }
    (0..count).all(|header| {
        let kind = headers.wrapping_add(header.wrapping_mul(bytes)).cast::<u32>();
        // SAFETY: the kernel has mapped `count` headers of `bytes` bytes there; each starts with its type.
        unsafe { kind.read_unaligned() != PT_INTERP }
    })
}

/// Registers `child` for the child process of every later fork(3). The module is never unloaded (`-z nodelete`), so the
/// handler is never unregistered. MADV_WIPEONFORK would need madvise(2), which a seccomp filter may reject; this makes
/// no system call. Returns false without memory for the handler.
pub fn at_fork(child: extern "C" fn()) -> bool {
    type Handler = Option<extern "C" fn()>;
    unsafe extern "C" {
        /// The base of pthread_atfork(3).
        fn __register_atfork(
            prepare: Handler,
            parent: Handler,
            child: Handler,
            object: *mut c_void,
        ) -> c_int;
    }
    // SAFETY: the handler stays mapped for the life of the process.
    unsafe { __register_atfork(None, None, Some(child), ptr::null_mut()) == 0 }
}

/// Disables cancellation of the calling thread while it lives. A request that arrives meanwhile takes effect
/// afterwards; for asynchronous cancellation immediately.
///
/// The state alone does not suffice. glibc 2.36 sends the signal of an asynchronous cancellation when it finds
/// cancellation enabled. The signal's handler looks only at the type. In a test, 45 of 20,000 threads ended after they
/// had disabled cancellation. The guard therefore sets the deferred type first, and restores the type last.
pub struct CancellationGuard {
    kind: c_int,
    state: c_int,
}

impl CancellationGuard {
    pub fn new() -> Self {
        let mut before = Self { kind: PTHREAD_CANCEL_DEFERRED, state: PTHREAD_CANCEL_ENABLE };
        // SAFETY: both change only the calling thread; `before` has space for the old values.
        unsafe {
            pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &raw mut before.kind);
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before.state);
        }
        before
    }
}

impl Drop for CancellationGuard {
    fn drop(&mut self) {
        let mut ignored = 0;
        // SAFETY: both restore earlier values of the calling thread.
        unsafe {
            pthread_setcancelstate(self.state, &raw mut ignored);
            pthread_setcanceltype(self.kind, &raw mut ignored);
        }
    }
}

/// The values are those of glibc and musl.
const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_DEFERRED: c_int = 0;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}
