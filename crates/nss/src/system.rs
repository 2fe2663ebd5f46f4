//! System calls, none through a libc function that is a cancellation point, so that a cancelled
//! thread cannot leave a call half done. A look-up that the snapshot answers makes only those that
//! glibc's `files` service makes too, so that a process in a seccomp filter can look its user up;
//! those for a question to the responder are the last ones here.
#![allow(unsafe_code)]

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::mem::offset_of;
use core::ptr;
use libc::{c_int, c_long, c_uint, c_void};

/// An open descriptor, closed when dropped.
pub struct Descriptor(c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: close(2) takes a number; this one is ours.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

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

/// The calling thread's error number.
fn error_number() -> c_int {
    // SAFETY: libc gives the address of the thread's errno, always valid.
    unsafe { *libc::__errno_location() }
}

/// Opens `name` below `folder`, or an absolute path or a path from the working folder when there
/// is none. Never follows a symbolic link in the last place.
pub fn open(folder: Option<&Descriptor>, name: &CStr, flags: c_int) -> Result<Descriptor, c_int> {
    let folder = folder.map_or(libc::AT_FDCWD, |folder| folder.0);
    let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    let mode: c_uint = 0;
    // SAFETY: `name` ends with a NUL and is only read.
    match unsafe { libc::syscall(libc::SYS_openat, folder, name.as_ptr(), flags, mode) } {
        descriptor if descriptor >= 0 => Ok(Descriptor(descriptor as c_int)),
        _ => Err(error_number()),
    }
}

/// fstat(2).
pub fn stat_open(descriptor: &Descriptor) -> Result<Stat, c_int> {
    stat_at(descriptor.0, c"", libc::AT_EMPTY_PATH)
}

/// lstat(2).
pub fn stat_path(path: &CStr) -> Result<Stat, c_int> {
    stat_at(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW)
}

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

/// read(2), once.
pub fn read(descriptor: &Descriptor, buffer: &mut [u8]) -> Result<usize, c_int> {
    // SAFETY: the kernel writes at most `len` bytes to `buffer`.
    let read =
        unsafe { libc::syscall(libc::SYS_read, descriptor.0, buffer.as_mut_ptr(), buffer.len()) };
    if read < 0 { Err(error_number()) } else { Ok(read as usize) }
}

/// Maps the first `bytes` of a file for reading, for ever unless [`unmap`]ped.
pub fn map(descriptor: &Descriptor, bytes: usize) -> Result<&'static [u8], c_int> {
    let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory in use.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, descriptor.0, 0) };
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

/// Milliseconds of a clock that never goes back, a few milliseconds coarse, read without a system
/// call.
#[inline]
pub fn clock_ms() -> u64 {
    milliseconds(libc::CLOCK_MONOTONIC_COARSE)
}

/// Milliseconds of the same clock, exact.
pub fn exact_clock_ms() -> u64 {
    milliseconds(libc::CLOCK_MONOTONIC)
}

#[inline]
fn milliseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` has room for what the call writes.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1000).wrapping_add(time.tv_nsec as u64 / 1_000_000)
}

/// Effective user id, when real and effective user and group ids agree.
pub fn unprivileged_user() -> Option<u32> {
    let id = |call: c_long| {
        // SAFETY: the four calls that come here take no argument and cannot fail.
        unsafe { libc::syscall(call) as u32 }
    };
    let user = id(libc::SYS_geteuid);
    (id(libc::SYS_getuid) == user && id(libc::SYS_getgid) == id(libc::SYS_getegid)).then_some(user)
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
    CStr::from_bytes_with_nul(value).ok()
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

/// Descriptors below this are standard input, output and error: a program that closed one may write
/// to whatever took its place.
const FIRST_DESCRIPTOR: c_int = 3;

/// A stream socket for local addresses that nobody waits in and no program inherits.
pub fn socket() -> Result<Descriptor, c_int> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket(2) takes numbers.
    let socket = match unsafe { libc::syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0) } {
        socket if socket >= 0 => Descriptor(socket as c_int),
        _ => return Err(error_number()),
    };
    if socket.0 >= FIRST_DESCRIPTOR {
        return Ok(socket);
    }
    let (how, least) = (libc::F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);
    // SAFETY: F_DUPFD_CLOEXEC takes a number. The lower one is closed when dropped.
    match unsafe { libc::syscall(libc::SYS_fcntl, socket.0, how, least) } {
        higher if higher >= 0 => Ok(Descriptor(higher as c_int)),
        _ => Err(error_number()),
    }
}

/// connect(2) to the socket at that path, which fits into an address with a NUL behind it.
pub fn connect(socket: &Descriptor, path: &[u8]) -> Result<(), c_int> {
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; _] };
    let (end, place) = address.sun_path.split_last_mut().ok_or(libc::EIO)?;
    *end = 0;
    let place = place.get_mut(..path.len()).ok_or(libc::ENAMETOOLONG)?;
    for (to, from) in place.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    let bytes = offset_of!(libc::sockaddr_un, sun_path).wrapping_add(path.len()).wrapping_add(1);
    // SAFETY: the kernel reads `bytes` bytes of `address`, which has as many.
    let result = unsafe { libc::syscall(libc::SYS_connect, socket.0, &raw const address, bytes) };
    if result == 0 { Ok(()) } else { Err(error_number()) }
}

/// Who listens at the other end: the effective user id of the process that called listen(2).
pub fn peer_user(socket: &Descriptor) -> Result<u32, c_int> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` has room for what the call writes, and `bytes` says how much that is.
    let result = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            socket.0,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            &raw mut peer,
            &raw mut bytes,
        )
    };
    match result {
        0 if bytes as usize == size_of::<libc::ucred>() => Ok(peer.uid),
        0 => Err(libc::EIO),
        _ => Err(error_number()),
    }
}

/// send(2), once, without the signal that a peer who is gone would bring.
pub fn send(socket: &Descriptor, bytes: &[u8]) -> Result<usize, c_int> {
    let (start, len, flags) = (bytes.as_ptr(), bytes.len(), libc::MSG_NOSIGNAL);
    let nobody = ptr::null::<c_void>();
    // SAFETY: the kernel reads `len` bytes; there is no address.
    let sent = unsafe { libc::syscall(libc::SYS_sendto, socket.0, start, len, flags, nobody, 0) };
    if sent < 0 { Err(error_number()) } else { Ok(sent as usize) }
}

/// poll(2) for one of the events, or for none when there is no socket: whether it came in time.
pub fn poll(socket: Option<&Descriptor>, events: i16, ms: u64) -> Result<bool, c_int> {
    let descriptor = socket.map_or(-1, |socket| socket.0);
    let mut waited = libc::pollfd { fd: descriptor, events, revents: 0 };
    let mut time = libc::timespec {
        tv_sec: (ms / 1000) as libc::time_t,
        tv_nsec: (ms % 1000).wrapping_mul(1_000_000) as c_long,
    };
    let (mask, mask_bytes) = (ptr::null::<c_void>(), 0_usize);
    // SAFETY: the kernel reads and writes one `waited` and one `time`; there is no signal mask.
    let ready = unsafe {
        libc::syscall(libc::SYS_ppoll, &raw mut waited, 1_usize, &raw mut time, mask, mask_bytes)
    };
    if ready < 0 { Err(error_number()) } else { Ok(ready > 0) }
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

/// The calling thread's error number as it was when this was made, and will be when it is dropped.
pub struct KeptErrorNumber(c_int);

impl KeptErrorNumber {
    pub fn new() -> Self {
        Self(error_number())
    }
}

impl Drop for KeptErrorNumber {
    fn drop(&mut self) {
        // SAFETY: libc gives the address of the thread's errno, always valid.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
