// SPDX-License-Identifier: MIT OR Apache-2.0
//! The helper process. It queries all name services of the host, as a program without nscd would. `helper_pool` sends
//! the queries, and `starter` starts the process.
//!
//! `__nss_configure_lookup` sets the services of a database, as `getent --service` does. glibc then does not use nscd
//! for that database in this process. A helper therefore never waits for the server that waits for it.
//!
//! Third-party modules run in this process. A server that root started gives helpers a dedicated user. Before the first
//! module is loaded, a helper gives up rights that name services do not need: writing files, and signalling or tracing
//! other programs.
#![allow(unsafe_code)]

use crate::protocol::{self, MapLookupKind};
use libc::{c_char, c_int, gid_t};
use roster_sandbox::{NetlinkProtocol, SandboxSpec, TcpAccess};
use rustix::process::{
    DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal,
};
use std::ffi::{CStr, CString, OsString};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::ptr;

/// Maximum bytes of a name service's reply that a helper forwards.
pub const REPLY_BYTES_MAX: usize = 16 << 20;
/// Size of the first buffer in bytes.
const BUFFER_BYTES: usize = 4 << 10;
/// Maximum number of groups of a user. Linux allows 65,536 for a process.
const GROUPS_MAX: usize = 1 << 17;
/// The databases, in the order of [`encode_services`].
pub const DATABASES: [&str; 3] = ["passwd", "group", "initgroups"];

/// Maximum bytes of the services of a database; nsswitch.conf is read up to the same size.
const SERVICES_BYTES_MAX: usize = 1 << 20;

/// The reply of a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelperReply {
    /// The packet for the client.
    Found(Vec<u8>),
    /// No such entry.
    Absent,
    /// The name services could not answer.
    Unavailable,
}

unsafe extern "C" {
    /// Declared in <nss.h>; sets the services of a database for this process.
    fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
}

/// Runs the helper. Standard input is a socket: it first receives the services of the databases, then requests. Replies
/// go to the same socket. The helper exits when the server does.
///
/// # Errors
///
/// Standard input is not a socket, or the socket fails.
pub fn main() -> io::Result<()> {
    // Needed if a module hangs when the starter exits.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // All helpers share a user, and must not trace each other.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let _ = roster_sandbox::apply(&needs());
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    for database in DATABASES {
        let services = service_line(&socket)?;
        if !services.is_empty() {
            configure(database, services)?;
        }
    }
    serve(&socket)
}

/// Returns the sandbox of a helper. Name services read files, connect to servers, and some of them execute programs.
fn needs() -> SandboxSpec {
    SandboxSpec {
        read: vec!["/".into()],
        write: Vec::new(),
        execute: true,
        families: &[libc::AF_INET, libc::AF_INET6],
        netlink: Some(NetlinkProtocol::Route),
        tcp: TcpAccess::Any,
    }
}

/// Encodes the services of the databases for a helper. An empty string leaves a database unconfigured.
#[must_use]
pub fn encode_services(lines: &[OsString; 3]) -> Vec<u8> {
    let mut frame = Vec::new();
    for line in lines {
        frame.extend((line.len() as u32).to_ne_bytes());
        frame.extend_from_slice(line.as_bytes());
    }
    frame
}

fn service_line(mut socket: &UnixStream) -> io::Result<OsString> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_ne_bytes(length) as usize;
    if length > SERVICES_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut line = vec![0; length];
    socket.read_exact(&mut line)?;
    Ok(OsString::from_vec(line))
}

fn configure(database: &str, services: OsString) -> io::Result<()> {
    let (database, services) = (CString::new(database)?, CString::new(services.into_vec())?);
    // SAFETY: both strings end with a NUL and are copied; there is one thread.
    match unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn serve(mut socket: &UnixStream) -> io::Result<()> {
    loop {
        let mut head = [0; 3];
        match socket.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let mut key = vec![0; usize::from(u16::from_ne_bytes([head[1], head[2]]))];
        socket.read_exact(&mut key)?;
        let kind = MapLookupKind::from_number(head[0]).ok_or(io::ErrorKind::InvalidData)?;
        let (status, packet) = match query_services(kind, &key) {
            HelperReply::Found(packet) if packet.len() <= REPLY_BYTES_MAX => (1, packet),
            HelperReply::Absent => (0, Vec::new()),
            HelperReply::Found(_) | HelperReply::Unavailable => (2, Vec::new()),
        };
        let mut frame = vec![status];
        frame.extend((packet.len() as u32).to_ne_bytes());
        frame.extend(packet);
        socket.write_all(&frame)?;
    }
}

/// Encodes a request for a helper.
#[must_use]
pub fn encode_query(kind: MapLookupKind, key: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind as u8];
    frame.extend((key.len() as u16).to_ne_bytes());
    frame.extend_from_slice(key);
    frame
}

/// Bytes of a reply before its packet.
pub const REPLY_HEADER_BYTES: usize = 5;

/// Decodes a reply, or returns `None` if it is incomplete.
///
/// # Errors
///
/// The bytes are not a valid reply.
pub fn decode_reply(bytes: &[u8]) -> Result<Option<HelperReply>, io::Error> {
    let Some((head, rest)) = bytes.split_first_chunk::<REPLY_HEADER_BYTES>() else {
        return Ok(None);
    };
    let [status, a, b, c, d] = *head;
    let length = u32::from_ne_bytes([a, b, c, d]) as usize;
    if status > 2 || length > REPLY_BYTES_MAX || rest.len() > length {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if rest.len() < length {
        return Ok(None);
    }
    Ok(Some(match status {
        0 => HelperReply::Absent,
        1 => HelperReply::Found(rest.to_vec()),
        _ => HelperReply::Unavailable,
    }))
}

fn query_services(kind: MapLookupKind, key: &[u8]) -> HelperReply {
    let Ok(name) = CString::new(key) else { return HelperReply::Absent };
    let id = protocol::id(key);
    match (kind, id) {
        (MapLookupKind::UserByName, _) => user(|entry, buffer, length, result| {
            // SAFETY: `user` passes valid arguments of getpwnam_r(3); `name` ends with a NUL.
            unsafe { libc::getpwnam_r(name.as_ptr(), entry, buffer, length, result) }
        }),
        (MapLookupKind::UserByUid, Some(uid)) => user(|entry, buffer, length, result| {
            // SAFETY: `user` passes valid arguments of getpwuid_r(3).
            unsafe { libc::getpwuid_r(uid, entry, buffer, length, result) }
        }),
        (MapLookupKind::GroupByName, _) => group(|entry, buffer, length, result| {
            // SAFETY: `group` passes valid arguments of getgrnam_r(3); `name` ends with a NUL.
            unsafe { libc::getgrnam_r(name.as_ptr(), entry, buffer, length, result) }
        }),
        (MapLookupKind::GroupByGid, Some(gid)) => group(|entry, buffer, length, result| {
            // SAFETY: `group` passes valid arguments of getgrgid_r(3).
            unsafe { libc::getgrgid_r(gid, entry, buffer, length, result) }
        }),
        (MapLookupKind::GroupsOf, _) => groups_of(&name),
        // The key is not a number.
        (MapLookupKind::UserByUid | MapLookupKind::GroupByGid, None) => HelperReply::Absent,
    }
}

fn user(
    call: impl Fn(*mut libc::passwd, *mut c_char, usize, *mut *mut libc::passwd) -> c_int,
) -> HelperReply {
    with_buffer(|buffer| {
        let mut entry = libc::passwd {
            pw_name: ptr::null_mut(),
            pw_passwd: ptr::null_mut(),
            pw_uid: 0,
            pw_gid: 0,
            pw_gecos: ptr::null_mut(),
            pw_dir: ptr::null_mut(),
            pw_shell: ptr::null_mut(),
        };
        let mut result = ptr::null_mut();
        let status =
            call(&raw mut entry, buffer.as_mut_ptr().cast(), buffer.len(), &raw mut result);
        if status != 0 || result.is_null() {
            return Err(status);
        }
        let strings =
            [entry.pw_name, entry.pw_passwd, entry.pw_gecos, entry.pw_dir, entry.pw_shell];
        Ok(protocol::user(entry.pw_uid, entry.pw_gid, strings.map(text)))
    })
}

fn group(
    call: impl Fn(*mut libc::group, *mut c_char, usize, *mut *mut libc::group) -> c_int,
) -> HelperReply {
    with_buffer(|buffer| {
        let mut entry = libc::group {
            gr_name: ptr::null_mut(),
            gr_passwd: ptr::null_mut(),
            gr_gid: 0,
            gr_mem: ptr::null_mut(),
        };
        let mut result = ptr::null_mut();
        let status =
            call(&raw mut entry, buffer.as_mut_ptr().cast(), buffer.len(), &raw mut result);
        if status != 0 || result.is_null() {
            return Err(status);
        }
        let mut members = Vec::new();
        let mut place = entry.gr_mem;
        // SAFETY: after success `gr_mem` is null or an array of strings that ends with a null pointer, all of it in
        // `buffer`.
        while let Some(&member) = unsafe { place.as_ref() }.filter(|member| !member.is_null()) {
            members.push(text(member));
            // SAFETY: `place` pointed to a string, so the array continues after it.
            place = unsafe { place.add(1) };
        }
        Ok(protocol::group(entry.gr_gid, text(entry.gr_name), text(entry.gr_passwd), &members))
    })
}

/// Returns a string of an entry. It lives as long as the buffer of the entry.
fn text<'a>(string: *mut c_char) -> &'a [u8] {
    if string.is_null() {
        return b"";
    }
    // SAFETY: the functions return strings that end with a NUL and lie in the caller's buffer or in static memory. Both
    // are used only before the next call.
    unsafe { CStr::from_ptr(string) }.to_bytes()
}

/// Repeats a lookup with twice the buffer while the buffer is too small.
fn with_buffer(look_up: impl Fn(&mut [u8]) -> Result<Vec<u8>, c_int>) -> HelperReply {
    let mut bytes = BUFFER_BYTES;
    loop {
        match look_up(&mut vec![0; bytes]) {
            Ok(packet) => return HelperReply::Found(packet),
            Err(0) => return HelperReply::Absent,
            Err(libc::ERANGE) if bytes < 2 * REPLY_BYTES_MAX => bytes *= 2,
            Err(_) => return HelperReply::Unavailable,
        }
    }
}

fn groups_of(name: &CStr) -> HelperReply {
    // Placeholder for the primary group, which begins the result. No group has this number.
    const NONE: gid_t = gid_t::MAX;
    let mut room = 256;
    while room <= GROUPS_MAX {
        let mut gids: Vec<gid_t> = vec![0; room];
        let mut count = room as c_int;
        // SAFETY: `gids` has space for `count` numbers, and `name` ends with a NUL.
        let status =
            unsafe { libc::getgrouplist(name.as_ptr(), NONE, gids.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).unwrap_or_default();
        if status >= 0 {
            gids.truncate(count.min(room));
            gids.retain(|&gid| gid != NONE);
            return if gids.is_empty() {
                HelperReply::Absent
            } else {
                HelperReply::Found(protocol::groups(&gids))
            };
        }
        room = count.max(room * 2);
    }
    HelperReply::Unavailable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nscd_helper_sandbox_equals_documented_row() {
        let page = include_str!("../../../../docs/internals/sandbox.md");
        let documented = roster_sandbox::read_doc_columns(page, "helper of nscd");
        assert_eq!(documented, Some(needs().doc_columns()));
    }
}
