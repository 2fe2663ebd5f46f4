// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions that glibc calls, with names that glibc derives from the service name. Each one converts its pointers
//! to references and calls safe code. `generations` has the snapshot, and `result_buffer` writes the results.
//!
//! The unsafe code relies on these promises of glibc (nss/nsswitch.h, and the manual's chapter "Adding another Service
//! to NSS"). Names end with a NUL. The result and `errnop` are writable. `buffer` has `buflen` writable bytes. No other
//! code uses any of them during a call.
#![allow(unsafe_code)]

use crate::enumerate::{Enumeration, GROUPS, SHADOWS, USERS};
use crate::generations::{ACCOUNTS, SHADOW, SnapshotSource};
use crate::responder_client;
use crate::result_buffer::{self, GidArray, ResultBuffer};
use crate::status::{Miss, NssStatus, to_nss_status};
use core::ffi::CStr;
use libc::{c_char, c_int, c_long, c_void, gid_t, group, passwd, spwd};
use roster_request::LookupKind;
use roster_snapshot::{Group, LookupResult, Shadow, Snapshot, User};
use roster_wire::NssRequest;

/// Looks up a user or group: pins a generation, finds the entry and fills the result. If the snapshot is incomplete, it
/// unpins the generation, queries the responder and fills the result.
///
/// # Safety
/// `errnop` is writable.
#[inline]
unsafe fn lookup(
    errnop: *mut c_int,
    answer: impl FnOnce(&Snapshot<'_>) -> Result<(), Miss>,
    ask: impl FnOnce() -> Result<(), Miss>,
) -> NssStatus {
    let outcome = match ACCOUNTS.with(|snapshot, _| answer(snapshot)) {
        Ok(Err(Miss::NeedsResponder)) => ask(),
        Ok(outcome) => outcome,
        Err(error) => Err(Miss::Unavailable(error)),
    };
    // SAFETY: writable, as promised.
    unsafe { set_errno(outcome, errnop) }
}

/// # Safety
/// `errnop` is writable.
#[inline]
unsafe fn set_errno(outcome: Result<(), Miss>, errnop: *mut c_int) -> NssStatus {
    let (status, error) = to_nss_status(outcome);
    if let Some(error) = error {
        // SAFETY: writable, as promised.
        unsafe { errnop.write(error) };
    }
    status
}

fn present<T>(found: LookupResult<T>) -> Result<T, Miss> {
    found?.ok_or(Miss::Absent)
}

/// Returns the bytes of a name that glibc passes.
///
/// # Safety
/// `name` ends with a NUL and does not change during the call.
unsafe fn bytes<'a>(name: *const c_char) -> &'a [u8] {
    // SAFETY: as promised.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

/// Reports that no entry has an id.
///
/// # Safety
/// None is needed; the function has the form of those for names.
#[inline]
unsafe fn no_entry<T>(
    snapshot: &Snapshot<'_>,
    _: u32,
    _: *mut T,
    _: ResultBuffer<'_>,
) -> Result<(), Miss> {
    Err(responder_client::absent(snapshot))
}

/// Defines a function that fills the result with the entry of a name that no entry has exactly.
macro_rules! other_name {
    ($function:ident, $find:ident => $fill:path, $out:ty) => {
        /// Answers for a name that no entry has exactly.
        ///
        /// # Safety
        /// The promises at the head of this module hold.
        #[cold]
        #[inline(never)]
        unsafe fn $function(
            snapshot: &Snapshot<'_>,
            name: *const c_char,
            result: *mut $out,
            buffer: ResultBuffer<'_>,
        ) -> Result<(), Miss> {
            // SAFETY: glibc passes a name that ends with a NUL.
            let name = unsafe { bytes(name) };
            let entry = snapshot.$find(name)?.ok_or_else(|| responder_client::absent(snapshot))?;
            if !entry.is_complete() {
                return Err(Miss::NeedsResponder);
            }
            // SAFETY: glibc passes a writable `result`.
            unsafe { $fill(&entry, result, buffer) }
        }
    };
}

other_name!(other_user, user_by_other_name => result_buffer::passwd, passwd);
other_name!(other_group, group_by_other_name => result_buffer::group, group);

/// Defines the export of one lookup, by name or by id. The arguments are the functions for a found entry and for a
/// missing one, and the two that fill the result, from the snapshot and from a reply.
macro_rules! lookup {
    ($export:ident(name: $name:ident), $find:ident or $miss:ident => $fill:path,
        $kind:ident => $fill_asked:path, $out:ty) => {
        lookup!(@ $export($name: *const c_char), $find({
            // SAFETY: glibc passes a name that ends with a NUL.
            unsafe { bytes($name) }
        }) or $miss => $fill, {
            // SAFETY: glibc passes a name that ends with a NUL.
            NssRequest::by_name(LookupKind::$kind, unsafe { bytes($name) })
        } => $fill_asked, $out);
    };
    ($export:ident(id: $id:ident), $find:ident => $fill:path,
        $kind:ident => $fill_asked:path, $out:ty) => {
        lookup!(@ $export($id: u32), $find($id) or no_entry => $fill,
            { Some(NssRequest::by_id(LookupKind::$kind, $id)) } => $fill_asked, $out);
    };
    (@ $export:ident($key:ident: $type:ty), $find:ident($argument:expr) or $miss:ident => $fill:path,
        $request:block => $fill_asked:path, $out:ty) => {
        /// Looks up one entry.
        ///
        /// # Safety
        /// The promises at the head of this module hold.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $export(
            $key: $type,
            result: *mut $out,
            buffer: *mut c_char,
            buflen: usize,
            errnop: *mut c_int,
        ) -> NssStatus {
            // The closures own what they need instead of borrowing it: that keeps it in registers.
            // SAFETY: glibc passes `buflen` writable bytes at `buffer`; the buffer is made once, for one of the two
            // closures below.
            let buffer = move || unsafe { ResultBuffer::new(buffer, buflen) };
            let answer = move |snapshot: &Snapshot<'_>| {
                let Some(entry) = snapshot.$find($argument)? else {
                    // SAFETY: glibc passes a writable `result`, and the promises about the name.
                    return unsafe { $miss(snapshot, $key, result, buffer()) };
                };
                if !entry.is_complete() {
                    return Err(Miss::NeedsResponder);
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
            unsafe { lookup(errnop, answer, ask) }
        }
    };
}

lookup!(_nss_roster_getpwnam_r(name: name), user_by_exact_name or other_user => result_buffer::passwd,
    UserByName => result_buffer::responder_passwd, passwd);
lookup!(_nss_roster_getpwuid_r(id: uid), user_by_uid => result_buffer::passwd,
    UserByUid => result_buffer::responder_passwd, passwd);
lookup!(_nss_roster_getgrnam_r(name: name), group_by_exact_name or other_group => result_buffer::group,
    GroupByName => result_buffer::responder_group, group);
lookup!(_nss_roster_getgrgid_r(id: gid), group_by_gid => result_buffer::group,
    GroupByGid => result_buffer::responder_group, group);

/// Looks up a shadow entry. The responder has none.
///
/// # Safety
/// The promises at the head of this module hold.
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
        let buffer = unsafe { ResultBuffer::new(buffer, buflen) };
        // SAFETY: glibc passes a writable `result`.
        unsafe { result_buffer::shadow(&entry, result, buffer) }
    };
    let outcome =
        SHADOW.with_outlined(answer).unwrap_or_else(|error| Err(Miss::Unavailable(error)));
    // SAFETY: glibc passes a writable `errnop`.
    unsafe { set_errno(outcome, errnop) }
}

/// Defines the exports of one enumeration. Entries keep the order of the snapshot. It omits unlisted domains and entries
/// that the floor refuses. It also omits entries that a higher-priority domain may override. It never queries the
/// responder.
macro_rules! enumeration {
    ($list:ident: $set:ident, $get:ident, $end:ident in $source:ident,
        $find:ident if $is_listed:expr => $fill:path, $out:ty) => {
        const _: () = {
            /// Returns to the first entry.
            #[unsafe(no_mangle)]
            pub extern "C" fn $set(_stay_open: c_int) -> NssStatus {
                to_nss_status($list.rewind()).0
            }

            /// Returns to the first entry.
            #[unsafe(no_mangle)]
            pub extern "C" fn $end() -> NssStatus {
                to_nss_status($list.rewind()).0
            }

            /// Returns the next entry.
            ///
            /// # Safety
            /// The promises at the head of this module hold.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $get(
                result: *mut $out,
                buffer: *mut c_char,
                buflen: usize,
                errnop: *mut c_int,
            ) -> NssStatus {
                /// Fills the result with the entry at a position.
                ///
                /// # Safety
                /// `result` is writable.
                unsafe fn give(
                    snapshot: &Snapshot<'_>,
                    position: u32,
                    result: *mut c_void,
                    buffer: ResultBuffer<'_>,
                ) -> Result<(), Miss> {
                    let entry = present(snapshot.$find(position))?;
                    if !$is_listed(&entry) {
                        return Err(Miss::NeedsResponder);
                    }
                    // SAFETY: writable, as promised.
                    unsafe { $fill(&entry, result.cast::<$out>(), buffer) }
                }
                // SAFETY: glibc passes writable memory, and `give` fills a result of this type.
                unsafe { next_entry(&$list, &$source, give, result.cast(), buffer, buflen, errnop) }
            }
        };
    };
}

/// Fills a result with the entry at a position of a snapshot. [`Miss::NeedsResponder`] stands for an entry that no
/// enumeration lists.
type FillEntry = unsafe fn(&Snapshot<'_>, u32, *mut c_void, ResultBuffer<'_>) -> Result<(), Miss>;

/// Returns the next entry of an enumeration. The three enumerations share this code.
///
/// # Safety
/// `give` may fill `result`. `buffer` has `buflen` writable bytes. `errnop` is writable.
#[inline(never)]
unsafe fn next_entry(
    list: &'static Enumeration,
    source: &'static SnapshotSource,
    give: FillEntry,
    result: *mut c_void,
    buffer: *mut c_char,
    buflen: usize,
    errnop: *mut c_int,
) -> NssStatus {
    let outcome = list.next(source, SnapshotSource::open).and_then(|mut guard| {
        // Bounded by the end of the list.
        let given = loop {
            // SAFETY: as promised; the buffer of the pass before was dropped.
            let room = unsafe { ResultBuffer::new(buffer, buflen) };
            let given = match guard.entry() {
                // SAFETY: as promised.
                Ok((snapshot, position)) => unsafe { give(snapshot, position, result, room) },
                Err(miss) => Err(miss),
            };
            match given {
                Err(Miss::NeedsResponder) => guard.skip(),
                given => break given,
            }
        };
        guard.advance(&given);
        given
    });
    // SAFETY: writable, as promised.
    unsafe { set_errno(outcome, errnop) }
}

enumeration!(USERS: _nss_roster_setpwent, _nss_roster_getpwent_r, _nss_roster_endpwent
    in ACCOUNTS, user if User::is_listed => result_buffer::passwd, passwd);
enumeration!(GROUPS: _nss_roster_setgrent, _nss_roster_getgrent_r, _nss_roster_endgrent
    in ACCOUNTS, group if Group::is_listed => result_buffer::group, group);
enumeration!(SHADOWS: _nss_roster_setspent, _nss_roster_getspent_r, _nss_roster_endspent
    in SHADOW, shadow if (|_: &Shadow<'_>| true) => result_buffer::shadow, spwd);

/// Appends the supplementary groups of a user to an array, which grows if needed. Without this function glibc would
/// enumerate all groups.
///
/// # Safety
/// The promises at the head of this module hold. `start`, `size` and `groups` are writable. `groups` points to an array
/// from malloc(3) with space for `size` ids, of which `start` are in use.
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
    // SAFETY: glibc passes three writable, distinct locations; they are used once, for one of the two closures below.
    let array = move || unsafe {
        GidArray { start: &mut *start, size: &mut *size, groups: &mut *groups, limit }
    };
    let answer = move |snapshot: &Snapshot<'_>| {
        // Without a responder, an incomplete user record makes no difference.
        if snapshot.responder().is_some() && !responder_client::has_all_groups(snapshot, name)? {
            return Err(Miss::NeedsResponder);
        }
        let gids = present(snapshot.groups_of_user(name))?;
        array().append(&gids, group)
    };
    let ask = move || {
        array().append_from_responder(NssRequest::by_name(LookupKind::GroupsOf, name), group)
    };
    // SAFETY: glibc passes a writable `errnop`.
    unsafe { lookup(errnop, answer, ask) }
}
