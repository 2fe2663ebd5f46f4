// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes results to the memory of glibc's caller. Lookups are in `exports`; this module searches nothing.
#![allow(unsafe_code)]

use crate::responder_client::{self, ResponderReply};
use crate::status::Miss;
use crate::syscalls;
use core::mem::MaybeUninit;
use core::ptr;
use libc::{c_char, gid_t};
use roster_snapshot::{EntryStrings, Gids, Group, ServedIds, Shadow, User};
use roster_wire::{Malformed, NssReply, NssRequest, PayloadStrings};

/// Replaces a password by `*`.
///
/// # Safety
/// `password` is a string of one byte or more in the caller's buffer, without other borrows.
#[inline]
unsafe fn hide(password: *mut c_char) {
    // SAFETY: two bytes with the NUL, as promised; they need no alignment.
    unsafe { password.cast::<[u8; 2]>().write(*b"*\0") };
}

/// The caller's buffer for strings and pointers.
pub struct ResultBuffer<'b>(&'b mut [MaybeUninit<u8>]);

impl<'b> ResultBuffer<'b> {
    /// # Safety
    /// `start` points to `len` writable bytes that no other code accesses during the call.
    pub unsafe fn new(start: *mut c_char, len: usize) -> Self {
        if start.is_null() {
            return Self(&mut []);
        }
        // SAFETY: as promised; no object is larger than `isize::MAX`, even if the caller passes a larger length.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(start.cast(), len.min(isize::MAX as usize)) };
        Self(bytes)
    }

    /// Splits off the first `bytes`.
    fn take_bytes(&mut self, bytes: usize) -> Result<&'b mut [MaybeUninit<u8>], Miss> {
        let all = core::mem::take(&mut self.0);
        let (first, rest) = all.split_at_mut_checked(bytes).ok_or(Miss::BufferTooSmall)?;
        self.0 = rest;
        Ok(first)
    }

    /// Splits off an aligned array of `count` pointers.
    fn take_pointers(&mut self, count: usize) -> Result<&'b mut [MaybeUninit<*mut c_char>], Miss> {
        let padding = self.0.as_ptr().align_offset(align_of::<*mut c_char>());
        self.take_bytes(padding)?;
        let bytes = count.checked_mul(size_of::<*mut c_char>()).ok_or(Miss::BufferTooSmall)?;
        let place = self.take_bytes(bytes)?.as_mut_ptr();
        // SAFETY: aligned, and as many bytes long as `count` pointers are.
        Ok(unsafe { core::slice::from_raw_parts_mut(place.cast(), count) })
    }

    /// Copies the strings of an entry. Returns a pointer to each.
    #[inline]
    fn strings<const N: usize>(
        &mut self,
        text: &EntryStrings<'_, N>,
    ) -> Result<[*mut c_char; N], Miss> {
        let place = self.take_bytes(text.bytes().len())?;
        // SAFETY: both have that many bytes, and the caller's buffer is not in the snapshot.
        unsafe {
            ptr::copy_nonoverlapping(text.bytes().as_ptr(), place.as_mut_ptr().cast(), place.len());
        }
        let base = place.as_mut_ptr().cast::<c_char>();
        let fields = text
            .starts()
            .map(|start| start.map_or(ptr::null_mut(), |start| base.wrapping_add(start)));
        if let Some(password) = fields.get(1).filter(|_| text.hides_password()) {
            // SAFETY: an entry with a hidden password is served only if the password has a byte, see
            // `EntryStrings::hides_password`.
            unsafe { hide(*password) };
        }
        Ok(fields)
    }
}

/// Fills a `struct passwd`.
///
/// # Safety
/// `out` is writable.
#[inline]
pub unsafe fn passwd(
    user: &User<'_>,
    out: *mut libc::passwd,
    mut buffer: ResultBuffer<'_>,
) -> Result<(), Miss> {
    let [name, passwd, gecos, dir, shell] = buffer.strings(&user.text)?;
    let filled = libc::passwd {
        pw_name: name,
        pw_passwd: passwd,
        pw_uid: user.uid,
        pw_gid: user.gid,
        pw_gecos: gecos,
        pw_dir: dir,
        pw_shell: shell,
    };
    // SAFETY: writable, as promised.
    unsafe { out.write(filled) };
    Ok(())
}

/// Fills a `struct group`. The strings follow the array of pointers. The members come first, then the name, so that the
/// checked NUL of the text ends all strings.
///
/// # Safety
/// `out` is writable.
#[inline(never)] // three callers, and long compared with the call
pub unsafe fn group(
    group: &Group<'_>,
    out: *mut libc::group,
    mut buffer: ResultBuffer<'_>,
) -> Result<(), Miss> {
    let members = &group.members;
    let pointers =
        buffer.take_pointers(members.len().checked_add(1).ok_or(Miss::BufferTooSmall)?)?;
    let text = group.text.bytes().len();
    let strings = members.bytes().checked_add(text).ok_or(Miss::BufferTooSmall)?;
    let slack = roster_snapshot::layout::COPY_SLACK;
    let place = buffer.take_bytes(strings.checked_add(slack).ok_or(Miss::BufferTooSmall)?)?;
    let (end, starts) = pointers.split_last_mut().ok_or(Miss::BufferTooSmall)?;
    members.copy(place, starts, |name| MaybeUninit::new(name.as_mut_ptr().cast()))?;
    end.write(ptr::null_mut());
    let behind = place.get_mut(members.bytes()..).unwrap_or_default();
    let [name, passwd] = ResultBuffer(behind).strings(&group.text)?;
    let filled = libc::group {
        gr_name: name,
        gr_passwd: passwd,
        gr_gid: group.gid,
        gr_mem: pointers.as_mut_ptr().cast(),
    };
    // SAFETY: writable, as promised.
    unsafe { out.write(filled) };
    Ok(())
}

/// Fills a `struct passwd` from a reply of the responder.
///
/// # Safety
/// `out` is writable.
#[cold]
#[inline(never)]
pub unsafe fn responder_passwd(
    request: Option<NssRequest<'_>>,
    out: *mut libc::passwd,
    mut buffer: ResultBuffer<'_>,
) -> Result<(), Miss> {
    let mut answer = responder_client::query_responder(request)?;
    let NssReply::User { uid, gid } = answer.reply() else { return Err(Malformed.into()) };
    let mut text = ReplyStrings::read(&mut answer, &mut buffer)?;
    let (name, passwd) = (text.next()?, text.next()?);
    let filled = libc::passwd {
        pw_name: name,
        pw_passwd: passwd,
        pw_uid: uid,
        pw_gid: gid,
        pw_gecos: text.next()?,
        pw_dir: text.next()?,
        pw_shell: text.next()?,
    };
    text.end(&answer, passwd)?;
    // SAFETY: writable, as promised.
    unsafe { out.write(filled) };
    Ok(())
}

/// Fills a `struct group` from a reply of the responder.
///
/// # Safety
/// `out` is writable.
#[cold]
#[inline(never)]
pub unsafe fn responder_group(
    request: Option<NssRequest<'_>>,
    out: *mut libc::group,
    mut buffer: ResultBuffer<'_>,
) -> Result<(), Miss> {
    let mut answer = responder_client::query_responder(request)?;
    let NssReply::Group { gid, members } = answer.reply() else { return Err(Malformed.into()) };
    let pointers = buffer.take_pointers(members.checked_add(1).ok_or(Miss::BufferTooSmall)?)?;
    let mut text = ReplyStrings::read(&mut answer, &mut buffer)?;
    let (name, passwd) = (text.next()?, text.next()?);
    let (end, members) = pointers.split_last_mut().ok_or(Miss::BufferTooSmall)?;
    for member in members {
        member.write(text.next()?);
    }
    text.end(&answer, passwd)?;
    end.write(ptr::null_mut());
    let gr_mem = pointers.as_mut_ptr().cast();
    let filled = libc::group { gr_name: name, gr_passwd: passwd, gr_gid: gid, gr_mem };
    // SAFETY: writable, as promised.
    unsafe { out.write(filled) };
    Ok(())
}

/// Initializes the memory with zeros, which costs little compared with the read from the socket.
fn zeroed(place: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    place.fill(MaybeUninit::new(0));
    // SAFETY: all of it was set just now.
    unsafe { place.assume_init_mut() }
}

/// Strings of a reply in the caller's buffer.
struct ReplyStrings<'b> {
    base: *mut c_char,
    strings: PayloadStrings<'b>,
}

impl<'b> ReplyStrings<'b> {
    /// Reads the payload. If the buffer is too small, the payload stays unread.
    fn read(answer: &mut ResponderReply, buffer: &mut ResultBuffer<'b>) -> Result<Self, Miss> {
        let place = buffer.take_bytes(answer.payload_bytes())?;
        let place = zeroed(place);
        answer.read(place)?;
        Ok(Self { base: place.as_mut_ptr().cast(), strings: PayloadStrings::new(place) })
    }

    /// Returns the start of the next string.
    fn next(&mut self) -> Result<*mut c_char, Malformed> {
        self.strings.next_start().map(|start| self.base.wrapping_add(start))
    }

    /// Checks that all strings were used, and hides the password, which must be one of them.
    fn end(self, answer: &ResponderReply, password: *mut c_char) -> Result<(), Malformed> {
        self.strings.end()?;
        if answer.has_floor() {
            // SAFETY: `password` is a string of the caller's buffer, without other borrows. A string that is not empty
            // has two bytes with its NUL.
            unsafe {
                if *password == 0 {
                    return Err(Malformed);
                }
                hide(password);
            }
        }
        Ok(())
    }
}

/// Fills a `struct spwd`.
///
/// # Safety
/// `out` is writable.
pub unsafe fn shadow(
    shadow: &Shadow<'_>,
    out: *mut libc::spwd,
    mut buffer: ResultBuffer<'_>,
) -> Result<(), Miss> {
    let [name, passwd] = buffer.strings(&shadow.text)?;
    let entry = shadow.record();
    let filled = libc::spwd {
        sp_namp: name,
        sp_pwdp: passwd,
        sp_lstchg: entry.last_change.into(),
        sp_min: entry.min.into(),
        sp_max: entry.max.into(),
        sp_warn: entry.warn.into(),
        sp_inact: entry.inactive.into(),
        sp_expire: entry.expire.into(),
        sp_flag: entry.flag as libc::c_ulong,
    };
    // SAFETY: writable, as promised.
    unsafe { out.write(filled) };
    Ok(())
}

/// More than glibc ever allocates from a heap: M_MMAP_THRESHOLD is 128 KiB, and the first heap of a second libc 1 MiB.
const FOREIGN_ARRAY_BYTES_MIN: usize = 4 << 20;

/// The growing array of `initgroups_dyn`.
pub struct GidArray<'c> {
    /// Number of entries in use.
    pub start: &'c mut libc::c_long,
    /// Number of entries with space.
    pub size: &'c mut libc::c_long,
    /// The array, from malloc(3).
    pub groups: &'c mut *mut gid_t,
    /// Maximum number of entries; no limit unless positive.
    pub limit: libc::c_long,
}

impl GidArray<'_> {
    /// Appends the gids of a snapshot except `primary`, up to the limit. After an error the contents are unchanged, but
    /// the array may be larger.
    #[inline(always)]
    pub fn append(&mut self, gids: &Gids<'_>, primary: gid_t) -> Result<(), Miss> {
        let served = gids.served();
        self.append_with(gids.len(), primary, served, |places| Ok(gids.copy(places)?))
    }

    /// Appends the gids of a reply of the responder.
    #[cold]
    #[inline(never)]
    pub fn append_from_responder(
        &mut self,
        request: Option<NssRequest<'_>>,
        primary: gid_t,
    ) -> Result<(), Miss> {
        let mut answer = responder_client::query_responder(request)?;
        let NssReply::Groups { count } = answer.reply() else { return Err(Malformed.into()) };
        self.append_with(count, primary, answer.served(), |places| {
            // SAFETY: as many bytes, which need no alignment.
            answer.read(zeroed(unsafe {
                core::slice::from_raw_parts_mut(places.as_mut_ptr().cast(), size_of_val(places))
            }))?;
            // SAFETY: all of them were read just now.
            let gids = unsafe { places.assume_init_mut() };
            gids.iter_mut().for_each(|gid| *gid = gid_t::from_le(*gid));
            if answer.may_be_ids(gids) { Ok(()) } else { Err(Malformed.into()) }
        })
    }

    /// Appends `count` gids that `fill` writes, or returns its error. Gids that are not in `served` are omitted.
    #[inline(always)]
    fn append_with(
        &mut self,
        count: usize,
        primary: gid_t,
        served: ServedIds,
        fill: impl FnOnce(&mut [MaybeUninit<gid_t>]) -> Result<(), Miss>,
    ) -> Result<(), Miss> {
        let used = usize::try_from(*self.start).map_err(|_| Miss::Unavailable(libc::EINVAL))?;
        let wanted = used.checked_add(count).ok_or(Miss::NoMemory)?;
        if count == 0 || used >= self.limit() {
            return Err(Miss::Absent);
        }
        if wanted > usize::try_from(*self.size).unwrap_or(0) {
            self.grow(wanted)?;
        }
        let free = self.groups.wrapping_add(used).cast::<MaybeUninit<gid_t>>();
        // SAFETY: the array has space for `wanted` ids.
        let places = unsafe { core::slice::from_raw_parts_mut(free, count) };
        fill(places)?;
        // SAFETY: all of them were written.
        let copied = unsafe { places.assume_init_mut() };
        let added =
            remove(retain_served(copied, served), primary).min(self.limit().saturating_sub(used));
        if added == 0 {
            return Err(Miss::Absent);
        }
        *self.start = used.wrapping_add(added) as libc::c_long;
        Ok(())
    }

    /// Returns the maximum number of ids.
    fn limit(&self) -> usize {
        if self.limit > 0 { self.limit as usize } else { isize::MAX as usize }
    }

    /// Enlarges the array to that many ids in total.
    fn grow(&mut self, entries: usize) -> Result<(), Miss> {
        let bytes = entries.checked_mul(size_of::<gid_t>()).ok_or(Miss::NoMemory)?;
        let (grown, entries) = if syscalls::is_static() {
            let bytes = bytes.max(FOREIGN_ARRAY_BYTES_MIN);
            (self.copied_to_mapped_chunk(bytes)?, bytes / size_of::<gid_t>())
        } else {
            // SAFETY: the array came from malloc(3), as glibc promises to `initgroups_dyn`.
            (unsafe { libc::realloc((*self.groups).cast(), bytes) }, entries)
        };
        if grown.is_null() {
            return Err(Miss::NoMemory);
        }
        *self.groups = grown.cast();
        // At most the limit, which tells glibc that it need not query further services.
        *self.size = entries.min(self.limit()) as libc::c_long;
        Ok(())
    }

    /// Copies the array to a new one. A statically linked program has its own malloc, and this module that of the libc
    /// loaded with it. Each malloc may touch chunks of its heap only, so the old array stays where it is. This leaks a
    /// few hundred bytes. A chunk that is a separate mapping belongs to no heap: any glibc can grow and free it. Its
    /// unused pages cost nothing.
    #[cold]
    fn copied_to_mapped_chunk(&self, bytes: usize) -> Result<*mut libc::c_void, Miss> {
        let used = usize::try_from(*self.start).map_err(|_| Miss::Unavailable(libc::EINVAL))?;
        // SAFETY: malloc(3) takes a number.
        let fresh = unsafe { libc::malloc(bytes) };
        if !fresh.is_null() {
            // SAFETY: `used` ids are in the old array, and the new one is larger.
            unsafe { ptr::copy_nonoverlapping(*self.groups, fresh.cast(), used) };
        }
        Ok(fresh)
    }
}

/// Removes every `unwanted` from the list, and returns the remaining length. Usually the list has no such gid, so a
/// cheap count comes first.
fn remove(gids: &mut [gid_t], unwanted: gid_t) -> usize {
    let found = gids.iter().fold(0_u32, |found, &gid| found.wrapping_add((gid == unwanted).into()));
    if found > 0 {
        let mut kept = 0_usize;
        for index in 0..gids.len() {
            let gid = gids.get(index).copied().unwrap_or_default();
            if let Some(place) = gids.get_mut(kept) {
                *place = gid;
            }
            kept = kept.wrapping_add(usize::from(gid != unwanted));
        }
    }
    gids.len().saturating_sub(found as usize)
}

/// Removes ids that are not served, and returns the rest. Usually all are served.
fn retain_served(gids: &mut [gid_t], served: ServedIds) -> &mut [gid_t] {
    if served.has_all(gids) {
        return gids;
    }
    let mut kept = 0_usize;
    for index in 0..gids.len() {
        let gid = gids.get(index).copied().unwrap_or_default();
        if let Some(place) = gids.get_mut(kept) {
            *place = gid;
        }
        kept = kept.wrapping_add(usize::from(served.has(gid)));
    }
    gids.get_mut(..kept).unwrap_or_default()
}
