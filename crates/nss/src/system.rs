//! System calls that this module alone makes; the others are those of `roster-calls`. None goes through a
//! libc function that is a cancellation point, so that a cancelled thread cannot leave a call half done. A look-up
//! that the snapshot answers makes only those that glibc's `files` service makes too, so that a process in a
//! seccomp filter can look its user up.
#![allow(unsafe_code)]

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use libc::{c_int, c_long, c_void};
pub use roster_calls::system::*;

/// What is told apart about a file: another one in its place differs somewhere here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: libc::dev_t,
    inode: libc::ino_t,
    bytes: u64,
    modified: (libc::time_t, c_long),
    changed: (libc::time_t, c_long),
}

/// The parts of `struct stat` that matter here.
#[derive(Clone, Copy)]
pub struct Stat {
    pub identity: Identity,
    pub bytes: u64,
    pub owner: u32,
    pub mode: u32,
}

impl Stat {
    pub fn inode(&self) -> u64 {
        self.identity.inode
    }

    /// Whether it is a copy with the same rights. The file itself was regular, and so is the copy.
    pub fn is_copy_of(&self, file: &Self) -> bool {
        (self.owner, self.mode, self.bytes) == (file.owner, file.mode, file.bytes)
            && self.identity.modified == file.identity.modified
    }

    pub fn is_regular(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    pub fn is_folder(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    pub fn is_sticky(&self) -> bool {
        self.mode & libc::S_ISVTX != 0
    }

    /// Whether group or others may write.
    pub fn is_writable_by_others(&self) -> bool {
        self.mode & (libc::S_IWGRP | libc::S_IWOTH) != 0
    }
}

/// The text before the first NUL of bytes that end with one.
#[inline(never)] // one copy for all callers
pub fn c_str(bytes: &[u8]) -> &CStr {
    match bytes.last() {
        // SAFETY: a NUL is among the bytes. The C library finds it with less code than core.
        Some(0) => unsafe { CStr::from_ptr(bytes.as_ptr().cast()) },
        _ => c"",
    }
}

/// fstat(2).
pub fn stat_open(descriptor: &Descriptor) -> Result<Stat, c_int> {
    stat_at(descriptor.number(), c"", libc::AT_EMPTY_PATH)
}

/// lstat(2).
pub fn stat_path(path: &CStr) -> Result<Stat, c_int> {
    stat_at(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW)
}

#[inline(never)] // never in the way of a lookup, and long beside the call
fn stat_at(folder: c_int, path: &CStr, flags: c_int) -> Result<Stat, c_int> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // The raw call rather than libc's fstatat(3), which glibc before 2.33 does not export.
    // SAFETY: `path` ends with a NUL, and `stat` has room for what the call writes.
    let result = unsafe {
        libc::syscall(libc::SYS_newfstatat, folder, path.as_ptr(), stat.as_mut_ptr(), flags)
    };
    if result != 0 {
        return Err(error_number());
    }
    // SAFETY: the call succeeded, so it has written all of it.
    let stat = unsafe { stat.assume_init() };
    let bytes = stat.st_size as u64;
    Ok(Stat {
        identity: Identity {
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

/// Bytes that [`read_through`] reads at once.
const READ_BYTES: usize = 64 << 10;

/// Reads an open file to its end, for the errors alone.
#[cold]
pub fn read_through(descriptor: &Descriptor) -> Result<(), c_int> {
    let room = allocate::<[u8; READ_BYTES]>().ok_or(libc::ENOMEM)?;
    // SAFETY: fresh memory, zeroed, that is freed below only.
    let buffer = unsafe { &mut *room };
    let read = loop {
        match read(descriptor, buffer) {
            Ok(0) => break Ok(()),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
    };
    // SAFETY: it came from `allocate`, and nothing refers to it any more.
    unsafe { free(room) };
    read
}

/// Maps the first `bytes` of a file for reading, for ever unless [`unmap`]ped.
pub fn map(descriptor: &Descriptor, bytes: usize) -> Result<&'static [u8], c_int> {
    let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory in use.
    let address =
        unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, descriptor.number(), 0) };
    if address == libc::MAP_FAILED {
        return Err(error_number());
    }
    // SAFETY: `bytes` bytes are mapped there. Published files are never written to nor cut, see
    // docs/snapshot-format.md; who does so to a file in use breaks its readers.
    Ok(unsafe { core::slice::from_raw_parts(address.cast(), bytes) })
}

/// Ends a mapping.
///
/// # Safety
/// Nothing refers to `mapping` any more.
pub unsafe fn unmap(mapping: &'static [u8]) {
    // SAFETY: the caller promises that nobody looks at it again.
    unsafe { libc::munmap(mapping.as_ptr().cast_mut().cast(), mapping.len()) };
}

/// Zeroed memory that is never given back.
pub fn allocate<T>() -> Option<*mut T> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory in use.
    let address = unsafe { libc::mmap(ptr::null_mut(), size_of::<T>(), protection, flags, -1, 0) };
    (address != libc::MAP_FAILED).then_some(address.cast())
}

/// Gives [`allocate`]d memory back after all.
///
/// # Safety
/// `memory` came from [`allocate`], and nothing refers to it any more.
pub unsafe fn free<T>(memory: *mut T) {
    // SAFETY: the caller promises that nobody looks at it again.
    unsafe { libc::munmap(memory.cast::<c_void>(), size_of::<T>()) };
}

/// Effective user id, when it is not root's and real and effective user and group ids agree.
pub fn unprivileged_user() -> Option<u32> {
    let id = |call: c_long| {
        // SAFETY: the four calls that come here take no argument and cannot fail.
        unsafe { libc::syscall(call) as u32 }
    };
    let user = id(libc::SYS_geteuid);
    (user != 0 && id(libc::SYS_getuid) == user && id(libc::SYS_getgid) == id(libc::SYS_getegid))
        .then_some(user)
}

/// Copies the value of an environment variable, with its NUL, to `value`. Nothing when it is not
/// set or too long.
pub fn environment<'a>(name: &CStr, value: &'a mut [u8]) -> Option<&'a CStr> {
    // SAFETY: `name` ends with a NUL. A program that changes its environment while another thread
    // is in here breaks getenv(3)'s contract, as for all of libc.
    let found = unsafe { libc::getenv(name.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: getenv(3) gives a string that ends with a NUL.
    let found = unsafe { CStr::from_ptr(found) }.to_bytes_with_nul();
    let value = value.get_mut(..found.len())?;
    value.copy_from_slice(found);
    Some(c_str(value))
}

/// Whether the program is statically linked, as far as its program headers tell: it then has a
/// libc of its own beside the one that this module was loaded with. In doubt it is.
pub fn is_static() -> bool {
    const PT_INTERP: u32 = 3;
    let value = |kind| {
        // SAFETY: getauxval(3) takes a number; 0 says that it is not known.
        unsafe { libc::getauxval(kind) as usize }
    };
    let headers = value(libc::AT_PHDR) as *const u8;
    let (count, bytes) = (value(libc::AT_PHNUM), value(libc::AT_PHENT));
    if headers.is_null() {
        return true;
    }
    (0..count).all(|header| {
        let kind = headers.wrapping_add(header.wrapping_mul(bytes)).cast::<u32>();
        // SAFETY: the kernel has mapped `count` headers of `bytes` bytes there; each starts with
        // its type.
        unsafe { kind.read_unaligned() != PT_INTERP }
    })
}

/// Has `child` called in the child of every fork(3) from now on. The module is never unloaded (it is
/// linked with `-z nodelete`), so this needs no taking back. It makes no system call, which is why
/// it is not MADV_WIPEONFORK: a seccomp filter need not let madvise(2) through. `false` when there
/// is no memory for it.
pub fn at_fork(child: extern "C" fn()) -> bool {
    type Handler = Option<extern "C" fn()>;
    unsafe extern "C" {
        /// What pthread_atfork(3) is made of.
        fn __register_atfork(
            prepare: Handler,
            parent: Handler,
            child: Handler,
            object: *mut c_void,
        ) -> c_int;
    }
    // SAFETY: the handler stays where it is for the life of the process.
    unsafe { __register_atfork(None, None, Some(child), ptr::null_mut()) == 0 }
}

/// The calling thread is not cancelled while this lives; what was asked for meanwhile happens after
/// it, in a thread of the asynchronous kind at once.
pub struct Uncancelled(c_int);

impl Uncancelled {
    pub fn new() -> Self {
        let mut before = PTHREAD_CANCEL_ENABLE;
        // SAFETY: changes the calling thread alone; `before` has room for what it was.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state that the thread had before; it need not be told what it has now.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}

/// The values of glibc and of musl.
const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}
