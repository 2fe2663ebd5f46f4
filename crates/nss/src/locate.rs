//! Which file is the snapshot, and may it be believed.
//!
//! The default is in a folder that root made. `ROSTER_SNAPSHOT` may name another, for a process
//! without privilege and only where no other user could have put it. A process of root's is never
//! one: an unprivileged caller's variable may have come with it.
#![forbid(unsafe_code)]

use crate::system::{self, Descriptor, KeptErrorNumber, Stat};
use core::ffi::CStr;
use libc::c_int;
use roster_snapshot::floor::{self, Floor};
use roster_snapshot::layout::Kind;

/// Longest path, NUL included.
pub const PATH_BYTES_MAX: usize = 1024;

const ACCOUNTS_FOLDER: &CStr = c"/var/lib/roster/snap";
const SHADOW_FOLDER: &CStr = c"/var/lib/roster/shadow";
const ACCOUNTS_NAME: &CStr = c"roster.snap";
const SHADOW_NAME: &CStr = c"shadow.snap";
/// The copy in memory of a snapshot of accounts with inode number 0. The digits are those of the inode number, see
/// docs/snapshot-format.md.
const COPY: &CStr = c"/run/roster/snap/0000000000000000";
const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";
/// Names the snapshot of accounts; the one of shadow entries is looked for beside it.
const VARIABLE: &CStr = c"ROSTER_SNAPSHOT";
/// `AT_SECURE` of the auxiliary vector (getauxval(3)).
const AT_SECURE: usize = 23;
/// Bytes of /proc/self/auxv looked at; Linux writes less than half of it.
const AUXV_BYTES: usize = 1024;

/// A snapshot's place.
#[derive(Clone, Copy)]
pub struct Location {
    path: [u8; PATH_BYTES_MAX],
    kind: Kind,
    /// Set when the environment chose the place: the user who may own it beside root.
    chosen_by: Option<u32>,
}

impl Location {
    /// The place of a snapshot for this process: in the default folder, or where the environment
    /// says, if the environment is to be believed.
    pub fn find(kind: Kind) -> Result<Self, c_int> {
        let mut value = [0; PATH_BYTES_MAX];
        let named = system::environment(VARIABLE, &mut value);
        // Asked only where there is something to believe: `files` asks none of this, and a seccomp
        // filter that lets it through need not let these calls through.
        let chosen_by = named.and_then(|_| system::unprivileged_user());
        let chosen_by = match chosen_by {
            Some(user) if !is_secure_execution()? => Some(user),
            _ => None,
        };
        let named = named.filter(|_| chosen_by.is_some());
        let mut location = Self { path: [0; PATH_BYTES_MAX], kind, chosen_by };
        let parts = match (named.map(CStr::to_bytes), kind) {
            (Some(path), _) if path.first() != Some(&b'/') => return Err(libc::EIO),
            (Some(path), Kind::Accounts) => [path, b"", b""],
            (Some(path), Kind::Shadow) => [folder_of(path), b"/", SHADOW_NAME.to_bytes()],
            (None, Kind::Accounts) => [ACCOUNTS_FOLDER.to_bytes(), b"/", ACCOUNTS_NAME.to_bytes()],
            (None, Kind::Shadow) => [SHADOW_FOLDER.to_bytes(), b"/", SHADOW_NAME.to_bytes()],
        };
        let mut end = 0_usize;
        for part in parts {
            let place = location.path.get_mut(end..).and_then(|rest| rest.get_mut(..part.len()));
            place.ok_or(libc::ENAMETOOLONG)?.copy_from_slice(part);
            end = end.wrapping_add(part.len());
        }
        // One byte more is left for the terminating NUL.
        if end < PATH_BYTES_MAX { Ok(location) } else { Err(libc::ENAMETOOLONG) }
    }

    /// The path.
    pub fn path(&self) -> &CStr {
        system::c_str(&self.path)
    }

    /// What is at the path now.
    #[inline(never)] // one copy for both callers
    pub fn stat(&self) -> Result<Stat, c_int> {
        system::stat_path(self.path())
    }

    /// Opens the file if it may be believed. `ENOENT` when it is missing on a host that never had one,
    /// `EACCES` when this process may not read it, `EIO` when it is missing or not to be believed.
    pub fn open(&self) -> Result<(Descriptor, Stat), c_int> {
        let opened = self.open_file();
        // Programs take ENOENT for an answer: that the user does not exist.
        if matches!(opened, Err(libc::ENOENT))
            && self.chosen_by.is_none()
            && self.kind == Kind::Accounts
            && !matches!(system::stat_path(floor::PUBLISHED), Err(libc::ENOENT))
        {
            return Err(libc::EIO);
        }
        opened
    }

    fn open_file(&self) -> Result<(Descriptor, Stat), c_int> {
        let path = self.path().to_bytes();
        let folder = self.open_folder(folder_of(path))?;
        let folder_stat = system::stat_open(&folder)?;
        let mut name = [0; PATH_BYTES_MAX];
        let file = system::open(Some(&folder), c_string(last_of(path), &mut name)?, libc::O_RDONLY)
            .map_err(refused)?;
        let stat = system::stat_open(&file)?;
        let owner_is_trusted = match self.chosen_by {
            Some(user) => stat.owner == 0 || stat.owner == user,
            // Who owns the folder can put another file there, whoever owns this one.
            None if self.kind == Kind::Shadow => stat.owner == 0 && folder_stat.owner == 0,
            None => stat.owner == 0 || stat.owner == folder_stat.owner,
        };
        let trusted = owner_is_trusted
            && stat.is_regular()
            && !stat.is_writable_by_others()
            && (!folder_stat.is_writable_by_others()
                || (self.chosen_by.is_some() && folder_stat.is_sticky()));
        if trusted { Ok((file, stat)) } else { Err(libc::EIO) }
    }

    /// The copy in memory of the opened file: the same owner's, of the same length, mode and time of modification.
    /// Only that owner and root can make such a file.
    pub fn copy_of(&self, stat: &Stat) -> Option<Descriptor> {
        if self.chosen_by.is_some() || self.kind != Kind::Accounts {
            return None;
        }
        let mut name = [0; COPY.count_bytes() + 1];
        name.copy_from_slice(COPY.to_bytes_with_nul());
        let (mut rest, mut end) = (stat.inode(), COPY.count_bytes());
        while rest != 0 {
            end = end.wrapping_sub(1);
            *name.get_mut(end)? = HEXADECIMAL[(rest & 15) as usize];
            rest >>= 4;
        }
        let copy = system::open(None, system::c_str(&name), libc::O_RDONLY).ok()?;
        system::stat_open(&copy).ok()?.is_copy_of(stat).then_some(copy)
    }

    /// Whether the floor limits that file. It does where another user than root, such as the publisher, may have
    /// written the file. What a process' own user named and wrote gives that user nothing.
    pub fn has_floor(&self, stat: &Stat) -> bool {
        stat.owner != 0 && self.chosen_by.is_none()
    }

    /// The folder; one that the environment chose is reached step by step, without symbolic links
    /// and through folders only that no other user can write to.
    fn open_folder(&self, path: &[u8]) -> Result<Descriptor, c_int> {
        let how = libc::O_PATH | libc::O_DIRECTORY;
        let mut buffer = [0; PATH_BYTES_MAX];
        let Some(user) = self.chosen_by else {
            return system::open(None, c_string(path, &mut buffer)?, how).map_err(refused);
        };
        let mut folder = system::open(None, c"/", how)?;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            folder =
                system::open(Some(&folder), c_string(name, &mut buffer)?, how).map_err(refused)?;
            let stat = system::stat_open(&folder)?;
            let trusted = stat.is_folder()
                && (stat.owner == 0 || stat.owner == user)
                && (!stat.is_writable_by_others() || stat.is_sticky());
            if !trusted {
                return Err(libc::EIO);
            }
        }
        Ok(folder)
    }
}

/// The floor of this host. A file that is missing, malformed or not root's alone gives the default.
#[cold]
#[inline(never)]
pub fn floor() -> Floor {
    let _kept = KeptErrorNumber::new();
    read_floor().unwrap_or_default()
}

fn read_floor() -> Option<Floor> {
    let file = system::open(None, floor::PATH, libc::O_RDONLY).ok()?;
    let stat = system::stat_open(&file).ok()?;
    let mut text = [0; floor::FILE_BYTES_MAX];
    let trusted = stat.owner == 0 && stat.is_regular() && !stat.is_writable_by_others();
    let len = system::read(&file, &mut text).ok()?;
    let text = text.get(..len).filter(|text| trusted && text.len() as u64 == stat.bytes)?;
    Floor::parse(text)
}

/// A symbolic link or something else in a folder's place is refused; that nothing is there, or
/// that it may not be read, is told as it is.
fn refused(error: c_int) -> c_int {
    match error {
        libc::ELOOP | libc::ENOTDIR | libc::ENXIO | libc::ENODEV => libc::EIO,
        error => error,
    }
}

/// Whether the kernel raised this process' rights at exec, from the kernel's own word: in a
/// statically linked set-uid program the libc that came with this module does not know. When the
/// kernel does not say, it did. That there is no descriptor or memory left to ask with is an
/// error, which passes, so that nothing is decided for the life of the process.
fn is_secure_execution() -> Result<bool, c_int> {
    let auxv = match system::open(None, c"/proc/self/auxv", libc::O_RDONLY) {
        Ok(auxv) => auxv,
        Err(error @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => return Err(error),
        Err(_) => return Ok(true),
    };
    let mut bytes = [0; AUXV_BYTES];
    let len = system::read(&auxv, &mut bytes).unwrap_or(0);
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

fn folder_of(path: &[u8]) -> &[u8] {
    split(path).0
}

fn last_of(path: &[u8]) -> &[u8] {
    split(path).1
}

/// The bytes with a NUL behind them, in `buffer`.
#[inline(never)]
fn c_string<'a>(bytes: &[u8], buffer: &'a mut [u8; PATH_BYTES_MAX]) -> Result<&'a CStr, c_int> {
    *buffer.get_mut(bytes.len()).ok_or(libc::ENAMETOOLONG)? = 0;
    buffer.get_mut(..bytes.len()).ok_or(libc::ENAMETOOLONG)?.copy_from_slice(bytes);
    Ok(system::c_str(buffer))
}
