// SPDX-License-Identifier: MIT OR Apache-2.0
//! The built NSS module, loaded as glibc loads it, and its functions. Only this module of the counts has unsafe code.
//!
//! The clock of this process stands still. The module checks for a new snapshot every 50 ms, and a count must not
//! depend on the time between two calls. Its random bytes are fixed as well.
#![allow(unsafe_code)]

use libc::{c_char, c_int, c_long, c_uint, c_void, gid_t};
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

/// The variable that names the built module.
pub const PATH_VARIABLE: &str = "ROSTER_COUNTS_MODULE";
/// The variable that names the module's snapshot.
const SNAPSHOT_VARIABLE: &str = "ROSTER_SNAPSHOT";

/// `NSS_STATUS_NOTFOUND` of glibc's nss.h.
pub const NOT_FOUND: c_int = 0;
/// `NSS_STATUS_SUCCESS` of glibc's nss.h.
pub const SUCCESS: c_int = 1;

/// The time that `clock_gettime` returns, in seconds.
const NOW_SECONDS: i64 = 1_000_000;
const BUFFER_BYTES: usize = 64 << 10;
const GIDS_MAX: usize = 256;

/// Replaces glibc's function in this process, including the loaded module.
///
/// # Safety
/// `time` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(_clock: c_int, time: *mut libc::timespec) -> c_int {
    // SAFETY: as promised.
    unsafe { time.write(libc::timespec { tv_sec: NOW_SECONDS, tv_nsec: 0 }) };
    0
}

/// Replaces glibc's function, which gives the standard library the keys of hash tables. With different keys in each
/// process a table would be probed and grown in another way.
///
/// # Safety
/// `bytes` has `length` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(bytes: *mut c_void, length: usize, _flags: c_uint) -> isize {
    // SAFETY: as promised.
    unsafe { bytes.cast::<u8>().write_bytes(7, length) };
    length as isize
}

/// Bytes at the start of a page, so that copies take the same path independent of the rest of the process.
#[repr(C, align(4096))]
struct Pages([u8; BUFFER_BYTES]);

type ByName<T> =
    unsafe extern "C" fn(*const c_char, *mut T, *mut c_char, usize, *mut c_int) -> c_int;
type ById<T> = unsafe extern "C" fn(u32, *mut T, *mut c_char, usize, *mut c_int) -> c_int;
type Initgroups = unsafe extern "C" fn(
    *const c_char,
    gid_t,
    *mut c_long,
    *mut c_long,
    *mut *mut gid_t,
    c_long,
    *mut c_int,
) -> c_int;

/// One lookup, ready to be made any number of times.
pub trait Lookup {
    /// Makes it.
    fn call(&mut self);
    /// The module's status of the last call.
    fn status(&self) -> c_int;
    /// The number of members or groups that the last call returned; 0 for other entries.
    fn listed(&self) -> usize;
}

/// The key of a lookup, and the function that takes it.
enum Key<T> {
    Name(ByName<T>, Box<Pages>),
    Id(ById<T>, u32),
}

struct Entry<T> {
    key: Key<T>,
    result: MaybeUninit<T>,
    buffer: Box<Pages>,
    error: c_int,
    status: c_int,
    count: fn(&T) -> usize,
}

impl<T> Lookup for Entry<T> {
    fn call(&mut self) {
        let (result, buffer) = (self.result.as_mut_ptr(), self.buffer.0.as_mut_ptr().cast());
        // SAFETY: the types are those of the module's exports; the name ends with a NUL, and result,
        // buffer and error number are writable and used by this call alone.
        self.status = unsafe {
            match &self.key {
                Key::Name(function, name) => function(
                    name.0.as_ptr().cast(),
                    result,
                    buffer,
                    BUFFER_BYTES,
                    &raw mut self.error,
                ),
                Key::Id(function, id) => {
                    function(*id, result, buffer, BUFFER_BYTES, &raw mut self.error)
                }
            }
        };
    }

    fn status(&self) -> c_int {
        self.status
    }

    fn listed(&self) -> usize {
        match self.status {
            // SAFETY: the module fills the result of a successful lookup.
            SUCCESS => (self.count)(unsafe { self.result.assume_init_ref() }),
            _ => 0,
        }
    }
}

struct Groups {
    function: Initgroups,
    name: Box<Pages>,
    gids: *mut gid_t,
    start: c_long,
    error: c_int,
    status: c_int,
}

impl Lookup for Groups {
    fn call(&mut self) {
        let mut size = GIDS_MAX as c_long;
        self.start = 0;
        // SAFETY: the type is that of the module's export; the name ends with a NUL, and the array has
        // room for `size` ids and comes from malloc(3).
        self.status = unsafe {
            (self.function)(
                self.name.0.as_ptr().cast(),
                0,
                &raw mut self.start,
                &raw mut size,
                &raw mut self.gids,
                -1,
                &raw mut self.error,
            )
        };
    }

    fn status(&self) -> c_int {
        self.status
    }

    fn listed(&self) -> usize {
        self.start as usize
    }
}

/// The loaded module.
pub struct Module(*mut c_void);

impl Module {
    /// Loads the built module and has it read this snapshot.
    pub fn load(snapshot: &std::path::Path) -> Self {
        let path =
            std::env::var(PATH_VARIABLE).expect("bench/counts/measure names the built module");
        let path = CString::new(path).expect("a path has no NUL");
        // SAFETY: no other thread runs that could read the environment.
        unsafe { std::env::set_var(SNAPSHOT_VARIABLE, snapshot) };
        // SAFETY: the module has neither constructors nor destructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "dlopen: {path:?} cannot be loaded");
        let module = Self(handle);
        module.settle();
        module
    }

    /// Has the module find the snapshots, which it does once. A process of root's would ignore the variable, so it
    /// is another user's meanwhile.
    fn settle(&self) {
        const READER: libc::uid_t = 12_321;
        // SAFETY: geteuid(2) cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        let set_user = |user| {
            // SAFETY: setresuid(2) takes numbers; no other thread runs.
            let changed = unsafe { libc::setresuid(user, user, 0) };
            assert_eq!(changed, 0, "setresuid");
        };
        if is_root {
            set_user(READER);
        }
        self.user_by_name("nobody").call();
        self.shadow_by_name("nobody").call();
        if is_root {
            set_user(0);
        }
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is open, and the name ends with a NUL.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null(), "dlsym: the module has no {name:?}");
        symbol
    }

    /// getpwnam_r(3).
    pub fn user_by_name(&self, name: &str) -> Box<dyn Lookup> {
        self.by_name::<libc::passwd>(c"_nss_roster_getpwnam_r", name, |_| 0)
    }

    /// getpwuid_r(3).
    pub fn user_by_uid(&self, uid: u32) -> Box<dyn Lookup> {
        self.by_id::<libc::passwd>(c"_nss_roster_getpwuid_r", uid, |_| 0)
    }

    /// getgrnam_r(3).
    pub fn group_by_name(&self, name: &str) -> Box<dyn Lookup> {
        self.by_name(c"_nss_roster_getgrnam_r", name, members)
    }

    /// getgrgid_r(3).
    pub fn group_by_gid(&self, gid: u32) -> Box<dyn Lookup> {
        self.by_id(c"_nss_roster_getgrgid_r", gid, members)
    }

    /// getspnam_r(3).
    pub fn shadow_by_name(&self, name: &str) -> Box<dyn Lookup> {
        self.by_name::<libc::spwd>(c"_nss_roster_getspnam_r", name, |_| 0)
    }

    /// getgrouplist(3).
    pub fn initgroups(&self, name: &str) -> Box<dyn Lookup> {
        let symbol = self.symbol(c"_nss_roster_initgroups_dyn");
        // SAFETY: this is the type of the export of that name.
        let function = unsafe { std::mem::transmute::<*mut c_void, Initgroups>(symbol) };
        // SAFETY: malloc(3) takes any size.
        let gids: *mut gid_t = unsafe { libc::malloc(GIDS_MAX * size_of::<gid_t>()) }.cast();
        assert!(!gids.is_null(), "malloc: no memory");
        let name = page_with(name);
        Box::new(Groups { function, name, gids, start: 0, error: 0, status: -1 })
    }

    fn by_name<T: 'static>(
        &self,
        symbol: &CStr,
        name: &str,
        count: fn(&T) -> usize,
    ) -> Box<dyn Lookup> {
        // SAFETY: the callers pair the name of each export with its type.
        let function =
            unsafe { std::mem::transmute::<*mut c_void, ByName<T>>(self.symbol(symbol)) };
        entry(Key::Name(function, page_with(name)), count)
    }

    fn by_id<T: 'static>(&self, symbol: &CStr, id: u32, count: fn(&T) -> usize) -> Box<dyn Lookup> {
        // SAFETY: the callers pair the name of each export with its type.
        let function = unsafe { std::mem::transmute::<*mut c_void, ById<T>>(self.symbol(symbol)) };
        entry(Key::Id(function, id), count)
    }
}

fn entry<T: 'static>(key: Key<T>, count: fn(&T) -> usize) -> Box<dyn Lookup> {
    let buffer = page_with("");
    Box::new(Entry { key, result: MaybeUninit::zeroed(), buffer, error: 0, status: -1, count })
}

/// A buffer that starts with this string and its NUL.
fn page_with(text: &str) -> Box<Pages> {
    let mut pages = Box::new(Pages([0; BUFFER_BYTES]));
    pages.0[..text.len()].copy_from_slice(text.as_bytes());
    pages
}

fn members(group: &libc::group) -> usize {
    let mut count = 0;
    // SAFETY: a group's list of members ends with a null pointer.
    while !unsafe { *group.gr_mem.add(count) }.is_null() {
        count += 1;
    }
    count
}
