// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locates the snapshot file and decides whether to trust it. `mapped_snapshot` opens the file.
//!
//! The default is in a directory that root made. `ROSTER_SNAPSHOT` may name another file, if the process is
//! unprivileged and no other user could have written the file. A process of root ignores the variable, which an
//! unprivileged caller may have set.
#![forbid(unsafe_code)]

use crate::syscalls::{self, Descriptor, ErrnoGuard, FileStat};
use core::ffi::CStr;
use libc::c_int;
use roster_snapshot::floor::{self, Floor};
use roster_snapshot::layout::SnapshotKind;

/// Maximum length of a path, including the NUL.
pub const PATH_BYTES_MAX: usize = 1024;

const ACCOUNTS_DIR: &CStr = c"/var/lib/roster/snap";
const SHADOW_DIR: &CStr = c"/var/lib/roster/shadow";
const ACCOUNTS_NAME: &CStr = c"roster.v3.snap";
const SHADOW_NAME: &CStr = c"shadow.v3.snap";
/// Copy in memory of an accounts snapshot with format version 3 and inode number 0. The digits after the dot are the
/// inode number, see docs/reference/snapshot-format.md.
const COPY: &CStr = c"/run/roster/snap/v3.0000000000000000";
const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";
/// Names the snapshot of accounts. The snapshot of shadow entries has a fixed name in the same directory.
const VARIABLE: &CStr = c"ROSTER_SNAPSHOT";
/// `AT_SECURE` of the auxiliary vector (getauxval(3)).
const AT_SECURE: usize = 23;
/// Maximum bytes read from /proc/self/auxv; Linux writes less than half of it.
const AUXV_BYTES: usize = 1024;

#[derive(Clone, Copy)]
pub struct SnapshotPath {
    path: [u8; PATH_BYTES_MAX],
    kind: SnapshotKind,
    /// Set if the environment chose the path: the user that may own the file, besides root.
    chosen_by: Option<u32>,
}

impl SnapshotPath {
    /// Finds the snapshot for this process: the path from the environment, if it is trusted, or else the default.
    pub fn find(kind: SnapshotKind) -> Result<Self, c_int> {
        let mut value = [0; PATH_BYTES_MAX];
        let named = syscalls::environment(VARIABLE, &mut value);
        // Queried only if the variable is set. The `files` service makes none of these calls, so a seccomp filter for
        // it may reject them.
        let chosen_by = named.and_then(|_| syscalls::unprivileged_uid());
        let chosen_by = match chosen_by {
            Some(user) if !is_secure_execution()? => Some(user),
            _ => None,
        };
        let named = named.filter(|_| chosen_by.is_some());
        let mut location = Self { path: [0; PATH_BYTES_MAX], kind, chosen_by };
        let parts = match (named.map(CStr::to_bytes), kind) {
            (Some(path), _) if path.first() != Some(&b'/') => return Err(libc::EIO),
            (Some(path), SnapshotKind::Accounts) => [path, b"", b""],
            (Some(path), SnapshotKind::Shadow) => [dir_of(path), b"/", SHADOW_NAME.to_bytes()],
            (None, SnapshotKind::Accounts) => {
                [ACCOUNTS_DIR.to_bytes(), b"/", ACCOUNTS_NAME.to_bytes()]
            }
            (None, SnapshotKind::Shadow) => [SHADOW_DIR.to_bytes(), b"/", SHADOW_NAME.to_bytes()],
        };
        let mut end = 0_usize;
        for part in parts {
            let place = location.path.get_mut(end..).and_then(|rest| rest.get_mut(..part.len()));
            place.ok_or(libc::ENAMETOOLONG)?.copy_from_slice(part);
            end = end.wrapping_add(part.len());
        }
        // The NUL needs one more byte.
        if end < PATH_BYTES_MAX { Ok(location) } else { Err(libc::ENAMETOOLONG) }
    }

    pub fn path(&self) -> &CStr {
        syscalls::c_str(&self.path)
    }

    /// Returns the state of the file at the path.
    #[inline(never)] // one copy for both callers
    pub fn stat(&self) -> Result<FileStat, c_int> {
        syscalls::stat_path(self.path())
    }

    /// Opens the file, or its copy in memory, if the file is trusted. Returns `ENOENT` for a missing file on a host
    /// that never had one, and `EACCES` without permission to read. Returns `EIO` for a file that went missing or is
    /// not trusted.
    pub fn open(&self) -> Result<(Descriptor, FileStat), c_int> {
        let opened = self.open_file();
        // Programs interpret ENOENT as a missing user.
        if matches!(opened, Err(libc::ENOENT))
            && self.chosen_by.is_none()
            && self.kind == SnapshotKind::Accounts
            && !matches!(syscalls::stat_path(floor::PUBLISHED), Err(libc::ENOENT))
        {
            return Err(libc::EIO);
        }
        opened
    }

    fn open_file(&self) -> Result<(Descriptor, FileStat), c_int> {
        let path = self.path().to_bytes();
        let folder = self.open_dir(dir_of(path))?;
        let folder_stat = syscalls::stat_open(&folder)?;
        let mut name = [0; PATH_BYTES_MAX];
        let name = c_string(last_of(path), &mut name)?;
        let mut stat = syscalls::stat_below(&folder, name)?;
        // If a copy exists, the file itself is not opened.
        let copy = self.open_copy(&stat);
        let is_copy = copy.is_some();
        let file = match copy {
            Some(copy) => copy,
            None => {
                let file = syscalls::open(Some(&folder), name, libc::O_RDONLY).map_err(refused)?;
                stat = syscalls::stat_open(&file)?;
                file
            }
        };
        let owner_is_trusted = match self.chosen_by {
            Some(user) => stat.owner == 0 || stat.owner == user,
            // The owner of the directory can replace the file, regardless of the file's owner.
            None if self.kind == SnapshotKind::Shadow => stat.owner == 0 && folder_stat.owner == 0,
            None => stat.owner == 0 || stat.owner == folder_stat.owner,
        };
        let trusted = owner_is_trusted
            && stat.is_regular()
            && !stat.is_writable_by_others()
            && (!folder_stat.is_writable_by_others()
                || (self.chosen_by.is_some() && folder_stat.is_sticky()));
        if !trusted {
            return Err(libc::EIO);
        }
        if !is_copy {
            // For an unreadable page, a read fails here, and an access to the mapping raises SIGBUS.
            syscalls::read_through(&file)?;
        }
        Ok((file, stat))
    }

    /// Opens the copy in memory of that file. It must have the same owner, length, mode and modification time. Only
    /// that owner and root can create such a file.
    fn open_copy(&self, stat: &FileStat) -> Option<Descriptor> {
        if self.chosen_by.is_some() || self.kind != SnapshotKind::Accounts {
            return None;
        }
        let mut name = [0; COPY.count_bytes() + 1];
        name.copy_from_slice(COPY.to_bytes_with_nul());
        let mut rest = stat.inode();
        for digit in name.iter_mut().rev().skip(1) {
            if rest == 0 {
                break;
            }
            *digit = HEXADECIMAL[(rest & 15) as usize];
            rest >>= 4;
        }
        let copy = syscalls::open(None, syscalls::c_str(&name), libc::O_RDONLY).ok()?;
        syscalls::stat_open(&copy).ok()?.is_copy_of(stat).then_some(copy)
    }

    /// Returns whether the floor limits that file. It does if a user other than root, such as the publisher, may have
    /// written the file. A file that the process's own user chose and wrote gives that user no rights.
    pub fn has_floor(&self, stat: &FileStat) -> bool {
        stat.owner != 0 && self.chosen_by.is_none()
    }

    /// Opens the directory. A path from the environment is opened step by step, without symbolic links, and only
    /// through directories that no other user can write to.
    fn open_dir(&self, path: &[u8]) -> Result<Descriptor, c_int> {
        let how = libc::O_PATH | libc::O_DIRECTORY;
        let mut buffer = [0; PATH_BYTES_MAX];
        let Some(user) = self.chosen_by else {
            return syscalls::open(None, c_string(path, &mut buffer)?, how).map_err(refused);
        };
        let mut folder = syscalls::open(None, c"/", how)?;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            folder = syscalls::open(Some(&folder), c_string(name, &mut buffer)?, how)
                .map_err(refused)?;
            let stat = syscalls::stat_open(&folder)?;
            let trusted = stat.is_directory()
                && (stat.owner == 0 || stat.owner == user)
                && (!stat.is_writable_by_others() || stat.is_sticky());
            if !trusted {
                return Err(libc::EIO);
            }
        }
        Ok(folder)
    }
}

/// Returns the floor of this host. A missing or malformed file, or a file that is not writable by root alone, gives the
/// default.
#[cold]
#[inline(never)]
pub fn floor() -> Floor {
    let _kept = ErrnoGuard::new();
    read_floor().unwrap_or_default()
}

fn read_floor() -> Option<Floor> {
    let file = syscalls::open(None, floor::PATH, libc::O_RDONLY).ok()?;
    let stat = syscalls::stat_open(&file).ok()?;
    let mut text = [0; floor::FILE_BYTES_MAX];
    let trusted = stat.owner == 0 && stat.is_regular() && !stat.is_writable_by_others();
    let len = syscalls::read(&file, &mut text).ok()?;
    let text = text.get(..len).filter(|text| trusted && text.len() as u64 == stat.bytes)?;
    Floor::parse(text)
}

/// Maps an error for a symbolic link or a wrong file type to `EIO`. A missing or unreadable file keeps its error.
fn refused(error: c_int) -> c_int {
    match error {
        libc::ELOOP | libc::ENOTDIR | libc::ENXIO | libc::ENODEV => libc::EIO,
        error => error,
    }
}

/// Returns whether the kernel raised this process's rights at exec. It reads /proc/self/auxv, because in a statically
/// linked set-uid program the libc of this module has no such information. Returns true if the file cannot be read or
/// lacks the entry. A lack of descriptors or memory is temporary, so it is an error and does not decide for the life of
/// the process.
fn is_secure_execution() -> Result<bool, c_int> {
    let auxv = match syscalls::open(None, c"/proc/self/auxv", libc::O_RDONLY) {
        Ok(auxv) => auxv,
        Err(error @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => return Err(error),
        Err(_) => return Ok(true),
    };
    let mut bytes = [0; AUXV_BYTES];
    let len = syscalls::read(&auxv, &mut bytes).unwrap_or(0);
    let (entries, _) =
        bytes.get(..len).unwrap_or_default().as_chunks::<{ 2 * size_of::<usize>() }>();
    let mut words = entries.iter().map(|entry| {
        let (kind, value) = (entry.first_chunk(), entry.last_chunk());
        (kind.copied().map(usize::from_ne_bytes), value.copied().map(usize::from_ne_bytes))
    });
    Ok(words.find(|(kind, _)| *kind == Some(AT_SECURE)).is_none_or(|(_, value)| value != Some(0)))
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    (path.get(..slash).unwrap_or_default(), path.get(slash.wrapping_add(1)..).unwrap_or_default())
}

fn dir_of(path: &[u8]) -> &[u8] {
    split(path).0
}

fn last_of(path: &[u8]) -> &[u8] {
    split(path).1
}

/// Copies the bytes and a NUL to `buffer`.
#[inline(never)]
fn c_string<'a>(bytes: &[u8], buffer: &'a mut [u8; PATH_BYTES_MAX]) -> Result<&'a CStr, c_int> {
    *buffer.get_mut(bytes.len()).ok_or(libc::ENAMETOOLONG)? = 0;
    buffer.get_mut(..bytes.len()).ok_or(libc::ENAMETOOLONG)?.copy_from_slice(bytes);
    Ok(syscalls::c_str(buffer))
}
