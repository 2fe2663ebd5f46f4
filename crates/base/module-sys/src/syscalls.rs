// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls without libc functions that are cancellation points. A cancelled thread therefore cannot leave a call
//! unfinished. `unix_client` connects with them.
#![allow(unsafe_code)]

use core::ffi::CStr;
use core::mem::offset_of;
use core::ptr;
use libc::{c_int, c_long, c_uint, c_void};

/// An open descriptor, closed when dropped.
pub struct Descriptor(c_int);

impl Descriptor {
    /// Returns its number, which stays reserved as long as this value lives.
    #[must_use]
    pub fn number(&self) -> c_int {
        self.0
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: close(2) takes a number; this value owns the descriptor.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// Returns the errno of the calling thread.
#[must_use]
#[inline]
pub fn error_number() -> c_int {
    // SAFETY: libc returns the address of the thread's errno, which is always valid.
    unsafe { *libc::__errno_location() }
}

/// Opens `name` in the directory `folder`. Without `folder`, opens an absolute path, or a path relative to the working
/// directory. Never follows a symbolic link as the last component.
#[inline]
pub fn open(folder: Option<&Descriptor>, name: &CStr, flags: c_int) -> Result<Descriptor, c_int> {
    open_path(folder, name, flags | libc::O_NOFOLLOW)
}

/// Opens an absolute path that an administrator may have replaced by a symbolic link.
#[inline]
pub fn open_following_symlinks(name: &CStr, flags: c_int) -> Result<Descriptor, c_int> {
    open_path(None, name, flags)
}

#[inline(never)] // long compared with the call
fn open_path(folder: Option<&Descriptor>, name: &CStr, flags: c_int) -> Result<Descriptor, c_int> {
    let folder = folder.map_or(libc::AT_FDCWD, |folder| folder.0);
    let flags = flags | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    let mode: c_uint = 0;
    // SAFETY: `name` ends with a NUL and is only read.
    match unsafe { libc::syscall(libc::SYS_openat, folder, name.as_ptr(), flags, mode) } {
        descriptor if descriptor >= 0 => Ok(Descriptor(descriptor as c_int)),
        _ => Err(error_number()),
    }
}

/// Calls read(2) once.
#[inline]
pub fn read(descriptor: &Descriptor, buffer: &mut [u8]) -> Result<usize, c_int> {
    // SAFETY: the kernel writes at most `len` bytes to `buffer`.
    let read =
        unsafe { libc::syscall(libc::SYS_read, descriptor.0, buffer.as_mut_ptr(), buffer.len()) };
    if read < 0 { Err(error_number()) } else { Ok(read as usize) }
}

/// Returns milliseconds of a monotonic clock with a resolution of a few milliseconds, without a system call.
#[inline]
#[must_use]
pub fn clock_ms() -> u64 {
    milliseconds(libc::CLOCK_MONOTONIC_COARSE)
}

/// Returns milliseconds of the same clock with full resolution.
#[must_use]
#[inline]
pub fn exact_clock_ms() -> u64 {
    milliseconds(libc::CLOCK_MONOTONIC)
}

#[inline]
fn milliseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` has space for the result.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1000).wrapping_add(time.tv_nsec as u64 / 1_000_000)
}

/// Lower descriptors are standard input, output and error. A program that closed one may write to its successor.
const FIRST_DESCRIPTOR: c_int = 3;

/// Creates a nonblocking local stream socket, which is closed on exec.
#[inline]
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
    // SAFETY: F_DUPFD_CLOEXEC takes a number. The lower descriptor is closed when dropped.
    match unsafe { libc::syscall(libc::SYS_fcntl, socket.0, how, least) } {
        higher if higher >= 0 => Ok(Descriptor(higher as c_int)),
        _ => Err(error_number()),
    }
}

/// Calls connect(2) for the socket at that path, which must fit into an address with its NUL.
#[inline]
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

/// Returns the effective uid of the process that called listen(2) at the other end.
#[inline]
pub fn peer_uid(socket: &Descriptor) -> Result<u32, c_int> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` has space for the result, and `bytes` is its size.
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

/// Calls send(2) once, without a SIGPIPE for a closed peer.
#[inline]
pub fn send(socket: &Descriptor, bytes: &[u8]) -> Result<usize, c_int> {
    let (start, len, flags) = (bytes.as_ptr(), bytes.len(), libc::MSG_NOSIGNAL);
    let nobody = ptr::null::<c_void>();
    // SAFETY: the kernel reads `len` bytes; the address is null.
    let sent = unsafe { libc::syscall(libc::SYS_sendto, socket.0, start, len, flags, nobody, 0) };
    if sent < 0 { Err(error_number()) } else { Ok(sent as usize) }
}

/// Calls poll(2) for the events, or only waits without a socket. Returns whether an event occurred in time.
#[inline]
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

/// Restores the errno of the calling thread when it is dropped.
pub struct ErrnoGuard(c_int);

#[allow(clippy::new_without_default)] // the stored value is not a default
impl ErrnoGuard {
    /// Stores the present errno.
    #[must_use]
    pub fn new() -> Self {
        Self(error_number())
    }
}

impl Drop for ErrnoGuard {
    fn drop(&mut self) {
        // SAFETY: libc returns the address of the thread's errno, which is always valid.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
