//! The helper process: asks all of the host's name services, as any program would that knows no nscd.
//!
//! Setting the services of a database by hand is what getent(1) does for `--service`, and has glibc
//! leave nscd out for that database, in this process and whatever its modules ask. So the helper never
//! waits for the server that waits for it.
//!
//! Third-party modules run in this process. A server that root started gives it a user of its own. Before it loads the
//! first module it gives up rights that name services do not need: to write to files, to signal or trace other programs.
#![allow(unsafe_code)]

use crate::protocol::{self, Kind};
use libc::{c_char, c_int, gid_t};
use roster_confine::{Needs, Netlink, Tcp};
use rustix::process::{
    DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal,
};
use std::ffi::{CStr, CString, OsString};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::ptr;

/// The largest answer of a name service that is passed on.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Buffer that is tried first.
const BUFFER_BYTES: usize = 4 << 10;
/// Groups that one user may be in: Linux has 65,536 for a process.
const GROUPS_MAX: usize = 1 << 17;
/// The databases, in the order of the arguments.
pub const DATABASES: [&str; 3] = ["passwd", "group", "initgroups"];

/// The longest line of services: no line of nsswitch.conf that is read is longer.
const SERVICES_BYTES_MAX: usize = 1 << 20;

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The packet.
    Found(Vec<u8>),
    /// Nobody.
    Absent,
    /// It cannot be told.
    Unavailable,
}

unsafe extern "C" {
    /// Declared in <nss.h>; sets a database's services for this process.
    fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
}

/// The helper from its start: standard input is a socket, over which the services of the databases come, then
/// questions; answers go back there. Ends with the server.
///
/// # Errors
///
/// The socket is none, or broke.
pub fn main() -> io::Result<()> {
    // Also where a module hangs when the starter ends.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Helpers are one user, and may not reach into each other.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let _ = roster_confine::apply(&needs());
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    for database in DATABASES {
        let services = service_line(&socket)?;
        if !services.is_empty() {
            configure(database, services)?;
        }
    }
    serve(&socket)
}

/// Name services read what their user may, connect to servers, and a few of them execute programs.
fn needs() -> Needs {
    Needs {
        read: vec!["/".into()],
        write: Vec::new(),
        execute: true,
        families: &[libc::AF_INET, libc::AF_INET6],
        netlink: Some(Netlink::Route),
        tcp: Tcp::Any,
    }
}

/// The services of the databases as the helper reads them, an empty text for none.
#[must_use]
pub fn services(lines: &[OsString; 3]) -> Vec<u8> {
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
        let kind = Kind::of(head[0]).ok_or(io::ErrorKind::InvalidData)?;
        let (status, packet) = match ask(kind, &key) {
            Answer::Found(packet) if packet.len() <= ANSWER_BYTES_MAX => (1, packet),
            Answer::Absent => (0, Vec::new()),
            Answer::Found(_) | Answer::Unavailable => (2, Vec::new()),
        };
        let mut frame = vec![status];
        frame.extend((packet.len() as u32).to_ne_bytes());
        frame.extend(packet);
        socket.write_all(&frame)?;
    }
}

/// A question as the helper reads it.
#[must_use]
pub fn question(kind: Kind, key: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind as u8];
    frame.extend((key.len() as u16).to_ne_bytes());
    frame.extend_from_slice(key);
    frame
}

/// Bytes of an answer in front of its packet.
pub const ANSWER_HEADER_BYTES: usize = 5;

/// Reads an answer, if all of it is there. An error is what no helper says.
///
/// # Errors
///
/// The bytes are no answer.
pub fn answer(bytes: &[u8]) -> Result<Option<Answer>, io::Error> {
    let Some((head, rest)) = bytes.split_first_chunk::<ANSWER_HEADER_BYTES>() else {
        return Ok(None);
    };
    let [status, a, b, c, d] = *head;
    let length = u32::from_ne_bytes([a, b, c, d]) as usize;
    if status > 2 || length > ANSWER_BYTES_MAX || rest.len() > length {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if rest.len() < length {
        return Ok(None);
    }
    Ok(Some(match status {
        0 => Answer::Absent,
        1 => Answer::Found(rest.to_vec()),
        _ => Answer::Unavailable,
    }))
}

fn ask(kind: Kind, key: &[u8]) -> Answer {
    let Ok(name) = CString::new(key) else { return Answer::Absent };
    let id = protocol::id(key);
    match (kind, id) {
        (Kind::UserByName, _) => user(|entry, buffer, length, result| {
            // SAFETY: `user` gives what getpwnam_r(3) wants; `name` ends with a NUL.
            unsafe { libc::getpwnam_r(name.as_ptr(), entry, buffer, length, result) }
        }),
        (Kind::UserByUid, Some(uid)) => user(|entry, buffer, length, result| {
            // SAFETY: `user` gives what getpwuid_r(3) wants.
            unsafe { libc::getpwuid_r(uid, entry, buffer, length, result) }
        }),
        (Kind::GroupByName, _) => group(|entry, buffer, length, result| {
            // SAFETY: `group` gives what getgrnam_r(3) wants; `name` ends with a NUL.
            unsafe { libc::getgrnam_r(name.as_ptr(), entry, buffer, length, result) }
        }),
        (Kind::GroupByGid, Some(gid)) => group(|entry, buffer, length, result| {
            // SAFETY: `group` gives what getgrgid_r(3) wants.
            unsafe { libc::getgrgid_r(gid, entry, buffer, length, result) }
        }),
        (Kind::GroupsOf, _) => groups_of(&name),
        // A key that is no number.
        (Kind::UserByUid | Kind::GroupByGid, None) => Answer::Absent,
    }
}

fn user(
    call: impl Fn(*mut libc::passwd, *mut c_char, usize, *mut *mut libc::passwd) -> c_int,
) -> Answer {
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
) -> Answer {
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
        // SAFETY: after success `gr_mem` is null or an array of strings that a null pointer ends, all of
        // it in `buffer`.
        while let Some(&member) = unsafe { place.as_ref() }.filter(|member| !member.is_null()) {
            members.push(text(member));
            // SAFETY: this was not the array's last one.
            place = unsafe { place.add(1) };
        }
        Ok(protocol::group(entry.gr_gid, text(entry.gr_name), text(entry.gr_passwd), &members))
    })
}

/// A string of an entry, which lives as long as the buffer that it lies in.
fn text<'a>(string: *mut c_char) -> &'a [u8] {
    if string.is_null() {
        return b"";
    }
    // SAFETY: the entries' functions give strings that end with a NUL and lie in the caller's buffer or
    // in static memory; both are used up before the next call.
    unsafe { CStr::from_ptr(string) }.to_bytes()
}

/// Calls again with twice the buffer while that is too small.
fn with_buffer(look_up: impl Fn(&mut [u8]) -> Result<Vec<u8>, c_int>) -> Answer {
    let mut bytes = BUFFER_BYTES;
    loop {
        match look_up(&mut vec![0; bytes]) {
            Ok(packet) => return Answer::Found(packet),
            Err(0) => return Answer::Absent,
            Err(libc::ERANGE) if bytes < 2 * ANSWER_BYTES_MAX => bytes *= 2,
            Err(_) => return Answer::Unavailable,
        }
    }
}

fn groups_of(name: &CStr) -> Answer {
    // No group has this number; the answer begins with it.
    const NONE: gid_t = gid_t::MAX;
    let mut room = 256;
    while room <= GROUPS_MAX {
        let mut gids: Vec<gid_t> = vec![0; room];
        let mut count = room as c_int;
        // SAFETY: `gids` has room for `count` numbers, and `name` ends with a NUL.
        let status =
            unsafe { libc::getgrouplist(name.as_ptr(), NONE, gids.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).unwrap_or_default();
        if status >= 0 {
            gids.truncate(count.min(room));
            gids.retain(|&gid| gid != NONE);
            return if gids.is_empty() {
                Answer::Absent
            } else {
                Answer::Found(protocol::groups(&gids))
            };
        }
        room = count.max(room * 2);
    }
    Answer::Unavailable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nscd_helper_sandbox_equals_documented_row() {
        let page = include_str!("../../../docs/sandbox.md");
        let documented = roster_confine::documented(page, "helper of nscd");
        assert_eq!(documented, Some(needs().documented()));
    }
}
