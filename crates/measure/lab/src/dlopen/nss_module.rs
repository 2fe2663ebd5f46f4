//! An NSS module, called as the C library calls it (nss/nss.h, "Adding another Service to NSS" in its
//! manual), without nsswitch.conf and the caches around it.
#![allow(unsafe_code)]

use crate::request_error::RequestError;
use anyhow::{Context, Result};
use libc::{c_char, c_int, c_long, gid_t, group, passwd};
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::path::Path;

/// What an entry may take: a group of a million members.
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// As the C library begins.
const BUFFER_BYTES: usize = 1024;
/// Groups of one user.
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

/// What is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum NssLookup {
    /// A user, by name or uid
    Passwd,
    /// A group with its members, by name or gid
    Group,
    /// The groups of a user
    Initgroups,
}

/// The functions of a module that a lookup takes.
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
    /// Loads `libnss_NAME.so.2`, whose functions are named after it.
    pub fn load(file: &Path, lookup: NssLookup) -> Result<Self> {
        let shown = file.display();
        let service = file
            .file_name()
            .and_then(|name| name.to_str()?.strip_prefix("libnss_")?.split('.').next())
            .with_context(|| format!("--module {shown}: is not named libnss_NAME.so.2"))?;
        // A bare name would be looked for in the folders of libraries.
        let path = file.canonicalize().with_context(|| format!("--module {shown}"))?;
        let library = super::load(path.as_os_str()).context("--module")?;
        let name = |function: &str| format!("_nss_{service}_{function}");
        let missing = |name: &str| format!("--module {shown}: has no function {name}");
        macro_rules! function {
            ($function:literal) => {{
                let name = name($function);
                // SAFETY: a function of this name has this type, by the C library's manual.
                *unsafe { library.get(name.as_bytes()) }.with_context(|| missing(&name))?
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

    /// Looks one up, by name or, if it is a number, by id. `buffer` grows to what an entry takes.
    pub fn lookup(self, key: &str, buffer: &mut Vec<u8>) -> Result<(), RequestError> {
        let id = key.parse::<u32>().ok();
        let name = CString::new(key)
            .map_err(|_| RequestError::Setup("a key with a zero in it".to_owned()))?;
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

/// Calls with a writable entry, as many writable bytes as it is told, and a writable number, again with
/// more room for as long as that is what is missing.
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
    /// The gid that is left out, which no group has.
    const NONE: gid_t = gid_t::MAX;
    let (mut used, mut size, mut errno) = (0, ROOM as c_long, 0);
    // SAFETY: room for gids, of which the module takes over what it needs more of, by realloc.
    let mut list: *mut gid_t = unsafe { libc::calloc(ROOM, size_of::<gid_t>()) }.cast();
    if list.is_null() {
        return Err(RequestError::System("malloc", libc::ENOMEM));
    }
    let (used_at, size_at) = (&raw mut used, &raw mut size);
    // SAFETY: the name ends with a NUL, the numbers are writable, and the list is malloc's.
    let status = unsafe {
        function(name, NONE, used_at, size_at, &raw mut list, GROUPS_MAX, &raw mut errno)
    };
    // SAFETY: it is malloc's still, whoever made it grow.
    unsafe { libc::free(list.cast()) };
    status_to_result(status, errno)?;
    // A user without groups is told as one who is there, and in no group.
    if used > 0 { Ok(()) } else { Err(RequestError::NotFound) }
}

const TRYAGAIN: c_int = -2;

/// What a status means.
fn status_to_result(status: c_int, errno: c_int) -> Result<(), RequestError> {
    match status {
        1 => Ok(()),
        0 => Err(RequestError::NotFound),
        TRYAGAIN => Err(RequestError::System("TRYAGAIN", errno)),
        -1 => Err(RequestError::System("UNAVAIL", errno)),
        _ => Err(RequestError::Malformed("a status that is none")),
    }
}
