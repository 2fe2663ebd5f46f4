// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drops root for two users: the server's user owns the maps, and the helpers' user cannot open them. systemd's `User=`
//! is unsuitable. systemd would look up the user through the nscd socket before the server answers there, and wait. The
//! server therefore reads both users from /etc/passwd.

use crate::starter::Starter;
use roster_messages::Message;
use roster_messages::table::tools;
use roster_passwd_format::lines::{ParsedLine, passwd_line};
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid, chownat, fchown, fstat, openat, statat,
};
use rustix::io::Errno;
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The user of helpers.
const HELPER: &str = "roster-nscd-helper";

/// Reasons that a server cannot drop its privileges.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// The passwd file cannot be read.
    #[error("{path}: cannot be read")]
    Passwd {
        /// Path of the passwd file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The passwd file does not contain the user.
    #[error("{path}: no user {name}")]
    Unknown {
        /// Path of the passwd file.
        path: PathBuf,
        /// Name of the user.
        name: String,
        /// Option of useradd(8) for the user's group.
        group: &'static str,
    },
    /// Both users have the same uid or gid, so helpers could open the server's files.
    #[error("{path}: {HELPER} has the uid or the gid of {name}")]
    SameUser {
        /// Path of the passwd file.
        path: PathBuf,
        /// Name of the server's user.
        name: String,
    },
    /// Helpers cannot be started.
    #[error("{HELPER}: cannot start helpers")]
    Starter(#[source] io::Error),
    /// The user has the uid or gid of root.
    #[error("{name}: has the uid or the gid of root")]
    IsRoot {
        /// Name of the user.
        name: String,
    },
    /// The caller is not root.
    #[error("--user {name}: the server was not started as root")]
    NotRoot {
        /// Name of the user.
        name: String,
    },
    /// The owner of the map directory cannot be changed.
    #[error("{path}: cannot be given to {name}")]
    MapDir {
        /// Path of the directory.
        path: PathBuf,
        /// Name of the user.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The system calls that change the user failed.
    #[error("--user {name}: cannot change to this user")]
    System {
        /// Name of the user.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
}

impl PrivilegeError {
    /// Returns the code of the error.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::Passwd { .. } => &tools::NSCD_PASSWD_UNREADABLE,
            Self::Unknown { .. } => &tools::NSCD_USER_MISSING,
            Self::SameUser { .. } => &tools::NSCD_USERS_SHARED,
            Self::Starter(_) => &tools::NSCD_STARTER_FAILED,
            Self::IsRoot { .. } => &tools::NSCD_USER_IS_ROOT,
            Self::NotRoot { .. } => &tools::NSCD_NOT_STARTED_AS_ROOT,
            Self::MapDir { .. } => &tools::NSCD_MAP_DIR_OWNER,
            Self::System { .. } => &tools::NSCD_USER_NOT_CHANGED,
        }
    }

    /// Returns the fix with values. `None` means the fix of the table.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        let Self::Unknown { name, group, .. } = self else { return None };
        Some(format!("Run systemd-sysusers, or `useradd --system {group} {name}`."))
    }
}

/// A user other than root, read from a passwd file.
#[derive(Clone, Debug)]
struct UnixAccount {
    name: String,
    uid: Uid,
    gid: Gid,
}

/// The users of a server and of its helpers.
#[derive(Clone, Debug)]
pub struct ServerAccounts {
    server: UnixAccount,
    helper: UnixAccount,
}

impl ServerAccounts {
    /// Reads the server's user with that name, and `roster-nscd-helper`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, a user is missing or root, both users share an id, or the caller is not root.
    pub fn from_passwd(name: &str, passwd: &Path) -> Result<Self, PrivilegeError> {
        let text = fs::read(passwd)
            .map_err(|source| PrivilegeError::Passwd { path: passwd.to_owned(), source })?;
        let find = |name: &str, group| -> Result<UnixAccount, PrivilegeError> {
            let (uid, gid) = ids(&text, name).ok_or_else(|| PrivilegeError::Unknown {
                path: passwd.to_owned(),
                name: name.to_owned(),
                group,
            })?;
            if uid.is_root() || gid.is_root() {
                return Err(PrivilegeError::IsRoot { name: name.to_owned() });
            }
            Ok(UnixAccount { name: name.to_owned(), uid, gid })
        };
        let server = find(name, "--gid roster")?;
        let helper = find(HELPER, "--user-group")?;
        if server.uid == helper.uid || server.gid == helper.gid {
            return Err(PrivilegeError::SameUser {
                path: passwd.to_owned(),
                name: name.to_owned(),
            });
        }
        if !rustix::process::geteuid().is_root() {
            return Err(PrivilegeError::NotRoot { name: name.to_owned() });
        }
        Ok(Self { server, helper })
    }

    /// Creates the map directory if necessary, and makes the server's user its owner.
    ///
    /// # Errors
    ///
    /// The directory belongs to another user. The server then cannot use it, and redirects all clients.
    pub fn take_ownership(&self, maps: &Path) -> Result<(), PrivilegeError> {
        let UnixAccount { name, uid, gid } = &self.server;
        change_owner(maps, *uid, *gid).map_err(|source| PrivilegeError::MapDir {
            path: maps.to_owned(),
            name: name.clone(),
            source,
        })
    }

    /// Starts the starter as the helpers' user. Then changes the calling thread to the server's user, which later
    /// threads and processes inherit. Call this before a second thread exists.
    ///
    /// # Errors
    ///
    /// The starter cannot be started, or the user cannot be changed.
    pub fn drop_privileges(&self) -> Result<Starter, PrivilegeError> {
        let UnixAccount { uid, gid, .. } = self.helper;
        let starter = Starter::start(Some((uid, gid))).map_err(PrivilegeError::Starter)?;
        self.server.become_user()?;
        Ok(starter)
    }
}

impl UnixAccount {
    /// Changes the calling thread to this user and its group, without supplementary groups. This is irreversible, and
    /// later threads and processes inherit it.
    fn become_user(&self) -> Result<(), PrivilegeError> {
        let become_it = || {
            set_no_new_privs(true)?;
            set_thread_groups(&[])?;
            set_thread_res_gid(self.gid, self.gid, self.gid)?;
            set_thread_res_uid(self.uid, self.uid, self.uid)
        };
        become_it().map_err(|error: Errno| PrivilegeError::System {
            name: self.name.clone(),
            source: error.into(),
        })
    }
}

fn ids(passwd: &[u8], name: &str) -> Option<(Uid, Gid)> {
    let entries = passwd.split(|&byte| byte == b'\n').filter_map(|line| match passwd_line(line) {
        ParsedLine::Entry(user) if user.name == name.as_bytes() => Some((user.uid, user.gid)),
        _ => None,
    });
    // The first line of a name counts.
    let (uid, gid) = entries.into_iter().next()?;
    Some((Uid::from_raw(uid), Gid::from_raw(gid)))
}

/// Makes a user the owner of the directory, and of the maps of an earlier server that ran as root. In a directory of
/// root, other users cannot have created files. A directory of the user stays unchanged.
fn change_owner(path: &Path, uid: Uid, gid: Gid) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    // With an `O_PATH` descriptor, root without capabilities can stat the directory of another user.
    let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::open(path, how, Mode::empty())?;
    let stat = fstat(&place)?;
    if stat.st_uid == uid.as_raw() {
        return Ok(());
    }
    if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 {
        return Err(io::Error::other(
            "the directory belongs to another user, or others may write to it",
        ));
    }
    let folder = readable(&place)?;
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let stat = statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1 {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            chownat(&folder, entry.file_name(), Some(uid), Some(gid), flags)?;
        }
    }
    fchown(&folder, Some(uid), Some(gid))?;
    Ok(())
}

fn readable(place: &OwnedFd) -> io::Result<OwnedFd> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(place, ".", how, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_user_is_the_first_of_that_name_in_the_text() {
        let text = b"root:x:0:0:::\nroster-nscd:x:906:901:::\nroster-nscd:x:0:0:::\n";
        let found = ids(text, "roster-nscd").map(|(uid, gid)| (uid.as_raw(), gid.as_raw()));
        assert_eq!(found, Some((906, 901)));
        assert!(ids(text, "roster").is_none());
    }

    #[test]
    fn nscd_unfit_user_has_code() {
        let folder = tempfile::tempdir().unwrap();
        let passwd = folder.path().join("passwd");
        let told = |name, lines: &str| {
            fs::write(&passwd, format!("root:x:0:0:::\ntoor:x:0:0:::\nwheel:x:7:0:::\n{lines}"))
                .unwrap();
            ServerAccounts::from_passwd(name, &passwd).unwrap_err()
        };
        let server = "roster-nscd:x:906:901:::\n";
        let fix = told("roster-nscd", "").fix().unwrap();
        assert!(fix.contains("`useradd --system --gid roster roster-nscd`"), "{fix}");
        let fix = told("roster-nscd", server).fix().unwrap();
        assert!(fix.contains("`useradd --system --user-group roster-nscd-helper`"), "{fix}");
        for ids in ["906:907", "907:901"] {
            let error = told("roster-nscd", &format!("{server}{HELPER}:x:{ids}:::\n"));
            assert_eq!(error.message(), &tools::NSCD_USERS_SHARED, "{error}");
        }
        for name in ["root", "toor", "wheel"] {
            assert_eq!(told(name, "").message(), &tools::NSCD_USER_IS_ROOT, "{name}");
        }
        let error = told("roster-nscd", &format!("{server}{HELPER}:x:0:907:::\n"));
        assert_eq!(error.message(), &tools::NSCD_USER_IS_ROOT, "{error}");
        assert!(error.to_string().starts_with("roster-nscd-helper: "), "{error}");
    }

    #[test]
    fn nscd_missing_passwd_or_user_has_code() {
        let folder = tempfile::tempdir().unwrap();
        let passwd = folder.path().join("passwd");
        let code = || ServerAccounts::from_passwd("roster-nscd", &passwd).unwrap_err().message();
        assert_eq!(code(), &tools::NSCD_PASSWD_UNREADABLE);
        fs::write(&passwd, "").unwrap();
        assert_eq!(code(), &tools::NSCD_USER_MISSING);
    }

    #[test]
    fn nscd_change_of_user_without_root_has_code() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let passwd = folder.path().join("passwd");
        let lines = format!("roster-nscd:x:906:901:::\n{HELPER}:x:907:907:::\n");
        fs::write(&passwd, lines).unwrap();
        // Only this thread loses its privileges.
        let unprivileged = std::thread::spawn(move || {
            let nobody = Uid::from_raw(65_534);
            let _ = set_thread_res_uid(nobody, nobody, nobody);
            let error = ServerAccounts::from_passwd("roster-nscd", &passwd).unwrap_err();
            assert_eq!(error.message(), &tools::NSCD_NOT_STARTED_AS_ROOT, "{error}");
            let account = |name: &str, id| UnixAccount {
                name: name.to_owned(),
                uid: Uid::from_raw(id),
                gid: Gid::from_raw(id),
            };
            let accounts = ServerAccounts { server: account("s", 906), helper: account("h", 907) };
            let error = accounts.take_ownership(Path::new("/no/such/folder/maps")).unwrap_err();
            assert_eq!(error.message(), &tools::NSCD_MAP_DIR_OWNER, "{error}");
            let error = accounts.drop_privileges().err().unwrap();
            assert_eq!(error.message(), &tools::NSCD_STARTER_FAILED, "{error}");
            let error = accounts.server.become_user().unwrap_err();
            assert_eq!(error.message(), &tools::NSCD_USER_NOT_CHANGED, "{error}");
        });
        unprivileged.join().unwrap();
    }
}
