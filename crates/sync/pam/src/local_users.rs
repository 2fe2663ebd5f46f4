// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks for a local user in the text of /etc/passwd. The C library would query the directory. The module does not
//! handle users in that file. `pam_user` decides by it.
#![forbid(unsafe_code)]

use core::ffi::CStr;
use roster_module_sys::syscalls;

const PASSWD: &CStr = c"/etc/passwd";
/// Bytes of one read.
const BYTES: usize = 4096;
/// Largest number of reads: 256 MiB.
const READS_MAX: usize = 1 << 16;
/// root must be able to log in even if the file is unreadable.
const ROOT: &[u8] = b"root";

/// Whether the user is local. If the file is unreadable only root is: other users may be in a directory, and a request
/// is sent.
pub fn is_local(user: &[u8]) -> bool {
    user == ROOT || search(user).unwrap_or(false)
}

fn search(user: &[u8]) -> Option<bool> {
    let file = syscalls::open_following_symlinks(PASSWD, libc::O_RDONLY).ok()?;
    let mut buffer = [0; BYTES];
    // Number of matching bytes of the line's name; `None` after a mismatch.
    let mut matched = Some(0_usize);
    for _ in 0..READS_MAX {
        let read = match syscalls::read(&file, &mut buffer) {
            Ok(0) => return Some(false),
            Ok(read) => read,
            Err(libc::EINTR) => continue,
            Err(_) => return None,
        };
        for &byte in buffer.get(..read)? {
            matched = match (byte, matched) {
                (b'\n', _) => Some(0),
                (b':', Some(length)) if length == user.len() => return Some(true),
                (_, Some(length)) if user.get(length) == Some(&byte) => length.checked_add(1),
                _ => None,
            };
        }
    }
    None
}
