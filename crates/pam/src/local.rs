//! Whether a user is the host's own, by the text of /etc/passwd: the C library would ask the directory,
//! and whoever is in that file is none of its business.
#![forbid(unsafe_code)]

use core::ffi::CStr;
use roster_calls::system;

const PASSWD: &CStr = c"/etc/passwd";
/// Read at a time.
const BYTES: usize = 4096;
/// Read at all: 256 MiB.
const READS_MAX: usize = 1 << 16;
/// Must be able to log in whatever there is to read.
const ROOT: &[u8] = b"root";

/// Whether that user is the host's own. Where it cannot be told only root is: anybody else might be a
/// directory's, and is asked about.
pub fn is_local(user: &[u8]) -> bool {
    user == ROOT || search(user).unwrap_or(false)
}

fn search(user: &[u8]) -> Option<bool> {
    let file = system::open_linked(PASSWD, libc::O_RDONLY).ok()?;
    let mut buffer = [0; BYTES];
    // How much of the line's name is the user's so far; none in what cannot be or is no name.
    let mut matched = Some(0_usize);
    for _ in 0..READS_MAX {
        let read = match system::read(&file, &mut buffer) {
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
