//! The functions that glibc calls, by the names that it forms from the service's name. Each one
//! makes references of what it is given and leaves the rest to safe code.
//!
//! The promises of glibc that the unsafe code here relies on (nss/nsswitch.h, and the manual's
//! chapter "Adding another Service to NSS"): names end with a NUL; the result and `errnop` are
//! writable; `buffer` has `buflen` writable bytes; nothing of it is used by others during a call.
#![allow(unsafe_code)]

use crate::answer::{self, Buffer, GidArray};
use crate::ask;
use crate::enumerate::{GROUPS, SHADOWS, Turn, USERS};
use crate::generations::{ACCOUNTS, SHADOW};
use crate::status::{Miss, NssStatus, told};
use core::ffi::CStr;
use libc::{c_char, c_int, c_long, gid_t, group, passwd, spwd};
use roster_snapshot::{Found, Group, Shadow, Snapshot, User};
use roster_wire::{Kind, Request};

/// The one path of every look-up of users and groups: pin a generation, find and fill; where the
/// snapshot leaves it open, unpin, ask and fill; tell.
///
/// # Safety
/// `errnop` is writable.
#[inline]
unsafe fn look_up(
    errnop: *mut c_int,
    answer: impl FnOnce(&Snapshot<'_>) -> Result<(), Miss>,
    ask: impl FnOnce() -> Result<(), Miss>,
) -> NssStatus {
    let outcome = match ACCOUNTS.with(|snapshot, _| answer(snapshot)) {
        Ok(Err(Miss::LeftOpen)) => ask(),
        Ok(outcome) => outcome,
        Err(error) => Err(Miss::Unavailable(error)),
    };
    // SAFETY: writable, as promised.
    unsafe { tell(outcome, errnop) }
}

/// # Safety
/// `errnop` is writable.
#[inline]
unsafe fn tell(outcome: Result<(), Miss>, errnop: *mut c_int) -> NssStatus {
    let (status, error) = told(outcome);
    if let Some(error) = error {
        // SAFETY: writable, as promised.
        unsafe { errnop.write(error) };
    }
    status
}

fn present<T>(found: Found<T>) -> Result<T, Miss> {
    found?.ok_or(Miss::Absent)
}

/// The bytes of a name that glibc passes.
///
/// # Safety
/// `name` ends with a NUL and stays as it is during the call.
unsafe fn bytes<'a>(name: *const c_char) -> &'a [u8] {
    // SAFETY: as promised.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

/// Defines the export of one look-up: by a name or by an id, found so, filled so, and filled so when
/// the responder had to be asked.
macro_rules! look_up {
    ($export:ident(name: $name:ident), $find:ident => $fill:path,
        $kind:ident => $fill_asked:path, $out:ty) => {
        look_up!(@ $export($name: *const c_char), $find({
            // SAFETY: glibc passes a name that ends with a NUL.
            unsafe { bytes($name) }
        }) => $fill, {
            // SAFETY: the same.
            Request::by_name(Kind::$kind, unsafe { bytes($name) })
        } => $fill_asked, $out);
    };
    ($export:ident(id: $id:ident), $find:ident => $fill:path,
        $kind:ident => $fill_asked:path, $out:ty) => {
        look_up!(@ $export($id: u32), $find($id) => $fill,
            { Some(Request::by_id(Kind::$kind, $id)) } => $fill_asked, $out);
    };
    (@ $export:ident($key:ident: $type:ty), $find:ident($argument:expr) => $fill:path,
        $request:block => $fill_asked:path, $out:ty) => {
        /// One look-up.
        ///
        /// # Safety
        /// See the head of this module.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $export(
            $key: $type,
            result: *mut $out,
            buffer: *mut c_char,
            buflen: usize,
            errnop: *mut c_int,
        ) -> NssStatus {
            // Closures that have what they need, not references to it: that keeps it in registers.
            // SAFETY: glibc passes `buflen` writable bytes at `buffer`; it is made once, for one of
            // the two below.
            let buffer = move || unsafe { Buffer::new(buffer, buflen) };
            let answer = move |snapshot: &Snapshot<'_>| {
                let entry = snapshot.$find($argument)?.ok_or_else(|| ask::absent(snapshot))?;
                if !entry.is_sure() {
                    return Err(Miss::LeftOpen);
                }
                // SAFETY: glibc passes a writable `result`.
                unsafe { $fill(&entry, result, buffer()) }
            };
            let ask = move || {
                let request = $request;
                // SAFETY: glibc passes a writable `result`.
                unsafe { $fill_asked(request, result, buffer()) }
            };
            // SAFETY: glibc passes a writable `errnop`.
            unsafe { look_up(errnop, answer, ask) }
        }
    };
}

look_up!(_nss_roster_getpwnam_r(name: name), user_by_name => answer::passwd,
    UserByName => answer::asked_passwd, passwd);
look_up!(_nss_roster_getpwuid_r(id: uid), user_by_uid => answer::passwd,
    UserByUid => answer::asked_passwd, passwd);
look_up!(_nss_roster_getgrnam_r(name: name), group_by_name => answer::group,
    GroupByName => answer::asked_group, group);
look_up!(_nss_roster_getgrgid_r(id: gid), group_by_gid => answer::group,
    GroupByGid => answer::asked_group, group);

/// One look-up of a shadow entry, which nobody is asked about.
///
/// # Safety
/// See the head of this module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _nss_roster_getspnam_r(
    name: *const c_char,
    result: *mut spwd,
    buffer: *mut c_char,
    buflen: usize,
    errnop: *mut c_int,
) -> NssStatus {
    let answer = |snapshot: &Snapshot<'_>, _| {
        // SAFETY: glibc passes a name that ends with a NUL.
        let entry = present(snapshot.shadow_by_name(unsafe { bytes(name) }))?;
        // SAFETY: glibc passes `buflen` writable bytes at `buffer`.
        let buffer = unsafe { Buffer::new(buffer, buflen) };
        // SAFETY: glibc passes a writable `result`.
        unsafe { answer::shadow(&entry, result, buffer) }
    };
    let outcome = SHADOW.with_apart(answer).unwrap_or_else(|error| Err(Miss::Unavailable(error)));
    // SAFETY: glibc passes a writable `errnop`.
    unsafe { tell(outcome, errnop) }
}

/// Defines the exports of one enumeration. Entries come in the order of the source. Left out are those that the
/// floor refuses, and those whose name or id may be another's: the responder is not asked about a whole list.
macro_rules! enumeration {
    ($list:ident: $set:ident, $get:ident, $end:ident in $source:ident,
        $find:ident if $is_listed:expr => $fill:path, $out:ty) => {
        const _: () = {
            /// Back to the first entry.
            #[unsafe(no_mangle)]
            pub extern "C" fn $set(_stay_open: c_int) -> NssStatus {
                told($list.rewind()).0
            }

            /// Back to the first entry.
            #[unsafe(no_mangle)]
            pub extern "C" fn $end() -> NssStatus {
                told($list.rewind()).0
            }

            /// The next entry.
            ///
            /// # Safety
            /// See the head of this module.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $get(
                result: *mut $out,
                buffer: *mut c_char,
                buflen: usize,
                errnop: *mut c_int,
            ) -> NssStatus {
                let give = |turn: &Turn<'_>| {
                    let (snapshot, position) = turn.entry()?;
                    let entry = present(snapshot.$find(position))?;
                    if !$is_listed(&entry) {
                        return Err(Miss::LeftOpen);
                    }
                    // SAFETY: glibc passes `buflen` writable bytes at `buffer`.
                    let buffer = unsafe { Buffer::new(buffer, buflen) };
                    // SAFETY: glibc passes a writable `result`.
                    unsafe { $fill(&entry, result, buffer) }
                };
                let outcome = $list.next(&$source).and_then(|mut turn| {
                    // As far as the end of the list.
                    let given = loop {
                        match give(&turn) {
                            Err(Miss::LeftOpen) => turn.pass(),
                            given => break given,
                        }
                    };
                    turn.step(&given);
                    given
                });
                // SAFETY: glibc passes a writable `errnop`.
                unsafe { tell(outcome, errnop) }
            }
        };
    };
}

enumeration!(USERS: _nss_roster_setpwent, _nss_roster_getpwent_r, _nss_roster_endpwent
    in ACCOUNTS, user if User::is_listed => answer::passwd, passwd);
enumeration!(GROUPS: _nss_roster_setgrent, _nss_roster_getgrent_r, _nss_roster_endgrent
    in ACCOUNTS, group if Group::is_listed => answer::group, group);
enumeration!(SHADOWS: _nss_roster_setspent, _nss_roster_getspent_r, _nss_roster_endspent
    in SHADOW, shadow if (|_: &Shadow<'_>| true) => answer::shadow, spwd);

/// Supplementary groups of a user, appended to the array that grows with them. Without this
/// function glibc would enumerate all groups.
///
/// # Safety
/// See the head of this module; `start`, `size` and `groups` are writable, and `groups` points to
/// an array from malloc(3) with room for `size` ids, `start` of them in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _nss_roster_initgroups_dyn(
    user: *const c_char,
    group: gid_t,
    start: *mut c_long,
    size: *mut c_long,
    groups: *mut *mut gid_t,
    limit: c_long,
    errnop: *mut c_int,
) -> NssStatus {
    // SAFETY: glibc passes a name that ends with a NUL.
    let name = unsafe { bytes(user) };
    // SAFETY: glibc passes three writable places, which differ; they are taken once, for one of the
    // two below.
    let array = move || unsafe {
        GidArray { start: &mut *start, size: &mut *size, groups: &mut *groups, limit }
    };
    let answer = move |snapshot: &Snapshot<'_>| {
        // Where nobody is to be asked, what the user's record leaves open need not be looked at.
        if snapshot.responder().is_some() && !ask::is_sure_of_groups(snapshot, name)? {
            return Err(Miss::LeftOpen);
        }
        let gids = present(snapshot.supplementary(name))?;
        array().append(&gids, group)
    };
    let ask = move || array().append_asked(Request::by_name(Kind::GroupsOf, name), group);
    // SAFETY: glibc passes a writable `errnop`.
    unsafe { look_up(errnop, answer, ask) }
}
