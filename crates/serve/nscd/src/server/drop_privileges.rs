//! Drops root for two users: the server's user owns the maps, and the helpers' user cannot open them. systemd's `User=`
//! is unsuitable. systemd would look up the user through the nscd socket before the server answers there, and wait. The
//! server therefore reads both users from /etc/passwd.

use crate::starter::Starter;
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
    #[error("cannot read {path}")]
    Passwd {
        /// Path of the passwd file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The passwd file does not contain the user.
    #[error(
        "{path} has no user {name}: make it with systemd-sysusers, or with \
         `useradd --system {group} {name}`"
    )]
    Unknown {
        /// Path of the passwd file.
        path: PathBuf,
        /// Name of the user.
        name: String,
        /// Option of useradd(8) for the user's group.
        group: &'static str,
    },
    /// Both users have the same uid or gid, so helpers could open the server's files.
    #[error("{path}: {HELPER} has the uid or the group of {name}: give it both of its own")]
    SameUser {
        /// Path of the passwd file.
        path: PathBuf,
        /// Name of the server's user.
        name: String,
    },
    /// Helpers cannot be started.
    #[error("cannot start helpers as {HELPER}")]
    Starter(#[source] io::Error),
    /// The user has the uid or gid of root.
    #[error("{name} is root: start the server without --user, or with a user of its own")]
    IsRoot {
        /// Name of the user.
        name: String,
    },
    /// The caller is not root.
    #[error("only root can start a server as {name}")]
    NotRoot {
        /// Name of the user.
        name: String,
    },
    /// The owner of the map directory cannot be changed.
    #[error("cannot give {path} to {name}")]
    MapDir {
        /// Path of the directory.
        path: PathBuf,
        /// Name of the user.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The system calls that change the user failed.
    #[error("cannot become {name}")]
    System {
        /// Name of the user.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
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
        return Err(io::Error::other("it is another user's, or others may write to it"));
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

    #[test]
    fn the_user_is_the_first_of_that_name_in_the_text() {
        let text = b"root:x:0:0:::\nroster-nscd:x:906:901:::\nroster-nscd:x:0:0:::\n";
        let found = ids(text, "roster-nscd").map(|(uid, gid)| (uid.as_raw(), gid.as_raw()));
        assert_eq!(found, Some((906, 901)));
        assert!(ids(text, "roster").is_none());
    }

    #[test]
    fn nscd_users_unfit_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let passwd = folder.path().join("passwd");
        let told = |name, lines: &str| {
            fs::write(&passwd, format!("root:x:0:0:::\ntoor:x:0:0:::\nwheel:x:7:0:::\n{lines}"))
                .unwrap();
            ServerAccounts::from_passwd(name, &passwd).unwrap_err().to_string()
        };
        let server = "roster-nscd:x:906:901:::\n";
        let missing = told("roster-nscd", "");
        let advice = "no user roster-nscd: make it with systemd-sysusers, or with `useradd --system --gid roster \
                      roster-nscd`";
        assert!(missing.contains(advice), "{missing}");
        let missing = told("roster-nscd", server);
        let advice = "no user roster-nscd-helper: make it with systemd-sysusers, or with `useradd --system \
                      --user-group roster-nscd-helper`";
        assert!(missing.contains(advice), "{missing}");
        for ids in ["906:907", "907:901"] {
            let told = told("roster-nscd", &format!("{server}{HELPER}:x:{ids}:::\n"));
            assert!(
                told.contains("roster-nscd-helper has the uid or the group of roster-nscd"),
                "{told}"
            );
        }
        for name in ["root", "toor", "wheel"] {
            assert!(told(name, "").contains("is root"), "{name}");
        }
        let root = told("roster-nscd", &format!("{server}{HELPER}:x:0:907:::\n"));
        assert!(root.contains("roster-nscd-helper is root"), "{root}");
    }
}
