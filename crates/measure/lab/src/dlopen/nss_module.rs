// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls an NSS module as the C library does (nss/nss.h, "Adding another Service to NSS" in its manual), without
//! nsswitch.conf and caches. `nss` has the lookups through the C library.
#![allow(unsafe_code)]

use crate::coded::Coded;
use crate::request_error::{RequestError, SystemCall};
use anyhow::Result;
use libc::{c_char, c_int, c_long, gid_t, group, passwd};
use roster_messages::table::lab;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::path::Path;

/// Maximum size of an entry: a group of a million members.
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// Size of the first buffer, the same as of the C library.
const BUFFER_BYTES: usize = 1024;
/// Maximum number of groups of a user.
const GROUPS_MAX: c_long = 1 << 20;

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

/// Kinds of lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum NssLookup {
    /// Look up a user by name or uid
    Passwd,
    /// Look up a group with its members by name or gid
    Group,
    /// Look up the groups of a user
    Initgroups,
}

/// The functions of a module for a kind of lookup.
#[derive(Clone, Copy, Debug)]
enum NssFunctions {
    Passwd(ByName<passwd>, ById<passwd>),
    Group(ByName<group>, ById<group>),
    Initgroups(Initgroups),
}

#[derive(Clone, Copy, Debug)]
pub struct NssModule {
    functions: NssFunctions,
}

impl NssModule {
    /// Loads `libnss_NAME.so.2`. The names of its functions contain NAME.
    pub fn load(file: &Path, lookup: NssLookup) -> Result<Self> {
        let shown = file.display();
        let service = file
            .file_name()
            .and_then(|name| name.to_str()?.strip_prefix("libnss_")?.split('.').next())
            .coded(
                &lab::MODULE_NAME,
                format_args!("--module {shown}: not named libnss_NAME.so.2"),
            )?;
        // The dynamic linker would search a bare name in its directories.
        let missing = format_args!("--module {shown}: does not exist");
        let path = file.canonicalize().coded(&lab::MODULE_NOT_FOUND, missing)?;
        let library = super::load(path.as_os_str())?;
        let name = |function: &str| format!("_nss_{service}_{function}");
        macro_rules! function {
            ($function:literal) => {{
                let name = name($function);
                // SAFETY: a function of this name has this type, by the C library's manual.
                let function = unsafe { library.get(name.as_bytes()) };
                let missing = format_args!("--module {shown}: no function {name}");
                *function.coded(&lab::MODULE_FUNCTION_MISSING, missing)?
            }};
        }
        let functions = match lookup {
            NssLookup::Passwd => {
                NssFunctions::Passwd(function!("getpwnam_r"), function!("getpwuid_r"))
            }
            NssLookup::Group => {
                NssFunctions::Group(function!("getgrnam_r"), function!("getgrgid_r"))
            }
            NssLookup::Initgroups => NssFunctions::Initgroups(function!("initgroups_dyn")),
        };
        Ok(Self { functions })
    }

    /// Looks up a key by name, or by id if it is a number. `buffer` grows to the size of the entry.
    pub fn lookup(self, key: &str, buffer: &mut Vec<u8>) -> Result<(), RequestError> {
        let id = key.parse::<u32>().ok();
        let name = CString::new(key).map_err(|_| RequestError::NulByte("key"))?;
        let name = name.as_ptr();
        match (self.functions, id) {
            (NssFunctions::Passwd(by_name, _), None) => {
                entry(buffer, |entry, text, size, errno| {
                    // SAFETY: the name ends with a NUL; the rest is as `entry` says.
                    unsafe { by_name(name, entry, text, size, errno) }
                })
            }
            (NssFunctions::Passwd(_, by_id), Some(id)) => {
                entry(buffer, |entry, text, size, errno| {
                    // SAFETY: as `entry` says.
                    unsafe { by_id(id, entry, text, size, errno) }
                })
            }
            (NssFunctions::Group(by_name, _), None) => entry(buffer, |entry, text, size, errno| {
                // SAFETY: the name ends with a NUL; the rest is as `entry` says.
                unsafe { by_name(name, entry, text, size, errno) }
            }),
            (NssFunctions::Group(_, by_id), Some(id)) => {
                entry(buffer, |entry, text, size, errno| {
                    // SAFETY: as `entry` says.
                    unsafe { by_id(id, entry, text, size, errno) }
                })
            }
            (NssFunctions::Initgroups(function), _) => groups(function, name),
        }
    }
}

/// Calls with a writable entry, a writable buffer of the given size, and a writable number. Repeats the call with twice
/// the buffer while it is too small.
fn entry<T>(
    buffer: &mut Vec<u8>,
    call: impl Fn(*mut T, *mut c_char, usize, *mut c_int) -> c_int,
) -> Result<(), RequestError> {
    buffer.resize(buffer.len().max(BUFFER_BYTES), 0);
    loop {
        let (mut entry, mut errno) = (MaybeUninit::<T>::uninit(), 0);
        let text = buffer.as_mut_ptr().cast();
        let status = call(entry.as_mut_ptr(), text, buffer.len(), &raw mut errno);
        let is_small = status == TRYAGAIN && errno == libc::ERANGE;
        if !is_small || buffer.len() >= BUFFER_BYTES_MAX {
            return status_to_result(status, errno);
        }
        buffer.resize(buffer.len() * 2, 0);
    }
}

fn groups(function: Initgroups, name: *const c_char) -> Result<(), RequestError> {
    const ROOM: usize = 64;
    /// The gid to exclude, which is not a valid group.
    const NONE: gid_t = gid_t::MAX;
    let (mut used, mut size, mut errno) = (0, ROOM as c_long, 0);
    // SAFETY: the list has space for gids, and the module enlarges it with realloc.
    let mut list: *mut gid_t = unsafe { libc::calloc(ROOM, size_of::<gid_t>()) }.cast();
    if list.is_null() {
        return Err(RequestError::System(SystemCall::Malloc, libc::ENOMEM));
    }
    let (used_at, size_at) = (&raw mut used, &raw mut size);
    // SAFETY: the name ends with a NUL, the numbers are writable, and malloc returned the list.
    let status = unsafe {
        function(name, NONE, used_at, size_at, &raw mut list, GROUPS_MAX, &raw mut errno)
    };
    // SAFETY: the list is from malloc or realloc.
    unsafe { libc::free(list.cast()) };
    status_to_result(status, errno)?;
    // Modules report success for a user without groups.
    if used > 0 { Ok(()) } else { Err(RequestError::NotFound) }
}

const TRYAGAIN: c_int = -2;

/// Converts a status of a module.
fn status_to_result(status: c_int, errno: c_int) -> Result<(), RequestError> {
    match status {
        1 => Ok(()),
        0 => Err(RequestError::NotFound),
        TRYAGAIN => Err(RequestError::System(SystemCall::NssTryAgain, errno)),
        -1 => Err(RequestError::System(SystemCall::NssUnavailable, errno)),
        _ => Err(RequestError::Malformed("unknown status")),
    }
}
