//! From root to two users: the server's user owns the maps, the helpers' user cannot open them. systemd's `User=` cannot
//! do it: systemd would look the user up at the socket before a server answers there, and wait. So the server reads the
//! users in /etc/passwd itself.

use crate::starter::Starter;
use roster_record::text::{Line, passwd_line};
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
pub const HELPER: &str = "roster-nscd-helper";

/// Why a server does not become another user.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// The file of users cannot be read.
    #[error("cannot read {path}")]
    Passwd {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It does not know the user.
    #[error(
        "{path} has no user {name}: make it with systemd-sysusers, or with \
         `useradd --system {group} {name}`"
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The user.
        name: String,
        /// The option of useradd(8) for its group.
        group: &'static str,
    },
    /// Helpers could open what is the server's.
    #[error("{path}: {HELPER} has the uid or the group of {name}: give it both of its own")]
    NotApart {
        /// The file.
        path: PathBuf,
        /// The server's user.
        name: String,
    },
    /// Helpers cannot be started.
    #[error("cannot start helpers as {HELPER}")]
    Starter(#[source] io::Error),
    /// It is root, by whatever name.
    #[error("{name} is root: start the server without --user, or with a user of its own")]
    IsRoot {
        /// The user.
        name: String,
    },
    /// Only root can become another.
    #[error("only root can start a server as {name}")]
    NotRoot {
        /// The user.
        name: String,
    },
    /// The folder of maps cannot be handed over.
    #[error("cannot give {path} to {name}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The user.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system refuses to make another user of this process.
    #[error("cannot become {name}")]
    System {
        /// The user.
        name: String,
        /// What it said.
        source: io::Error,
    },
}

/// A user that is not root, by the text of a passwd file.
#[derive(Clone, Debug)]
struct Account {
    name: String,
    uid: Uid,
    gid: Gid,
}

/// The users of a server and of its helpers.
#[derive(Clone, Debug)]
pub struct Accounts {
    server: Account,
    helper: Account,
}

impl Accounts {
    /// The server's user by that name, and [`HELPER`].
    ///
    /// # Errors
    ///
    /// One of them is not there, they are not apart, or the caller may not become another.
    pub fn of(name: &str, passwd: &Path) -> Result<Self, RightsError> {
        let text = fs::read(passwd)
            .map_err(|source| RightsError::Passwd { path: passwd.to_owned(), source })?;
        let find = |name: &str, group| -> Result<Account, RightsError> {
            let (uid, gid) = ids(&text, name).ok_or_else(|| RightsError::Unknown {
                path: passwd.to_owned(),
                name: name.to_owned(),
                group,
            })?;
            if uid.is_root() || gid.is_root() {
                return Err(RightsError::IsRoot { name: name.to_owned() });
            }
            Ok(Account { name: name.to_owned(), uid, gid })
        };
        let server = find(name, "--gid roster")?;
        let helper = find(HELPER, "--user-group")?;
        if server.uid == helper.uid || server.gid == helper.gid {
            return Err(RightsError::NotApart { path: passwd.to_owned(), name: name.to_owned() });
        }
        if !rustix::process::geteuid().is_root() {
            return Err(RightsError::NotRoot { name: name.to_owned() });
        }
        Ok(Self { server, helper })
    }

    /// Users that the caller has looked up: uid and gid of the server's user and of the helpers'.
    #[must_use]
    pub fn known(server: (u32, u32), helper: (u32, u32)) -> Self {
        let account = |name: &str, (uid, gid)| Account {
            name: name.to_owned(),
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
        };
        Self { server: account("roster-nscd", server), helper: account(HELPER, helper) }
    }

    /// Gives the server's user the folder of maps.
    ///
    /// # Errors
    ///
    /// The folder is somebody else's. A server does not take it then, and sends everybody away until it can.
    pub fn own(&self, maps: &Path) -> Result<(), RightsError> {
        let Account { name, uid, gid } = &self.server;
        hand_over(maps, *uid, *gid).map_err(|source| RightsError::Folder {
            path: maps.to_owned(),
            name: name.clone(),
            source,
        })
    }

    /// Starts the starter as the helpers' user. Then the calling thread, and all that it starts, is the server's user. To be
    /// called before there is a second thread.
    ///
    /// # Errors
    ///
    /// The system refuses it.
    pub fn part(&self) -> Result<Starter, RightsError> {
        let Account { uid, gid, .. } = self.helper;
        let starter = Starter::start(Some((uid, gid))).map_err(RightsError::Starter)?;
        self.server.assume()?;
        Ok(starter)
    }
}

impl Account {
    /// Has the calling thread, and all that it starts, be this user from now on, with its group and no other, and
    /// without a way back.
    fn assume(&self) -> Result<(), RightsError> {
        let become_it = || {
            set_no_new_privs(true)?;
            set_thread_groups(&[])?;
            set_thread_res_gid(self.gid, self.gid, self.gid)?;
            set_thread_res_uid(self.uid, self.uid, self.uid)
        };
        become_it().map_err(|error: Errno| RightsError::System {
            name: self.name.clone(),
            source: error.into(),
        })
    }
}

fn ids(passwd: &[u8], name: &str) -> Option<(Uid, Gid)> {
    let entries = passwd.split(|&byte| byte == b'\n').filter_map(|line| match passwd_line(line) {
        Line::Entry(user) if user.name == name.as_bytes() => Some((user.uid, user.gid)),
        _ => None,
    });
    // The first line of a name is the one that counts.
    let (uid, gid) = entries.into_iter().next()?;
    Some((Uid::from_raw(uid), Gid::from_raw(gid)))
}

/// Gives the folder to that user, with the maps of a server that was root. Where root has it nobody else could
/// have put anything there; a folder that is the user's already stays as it is.
fn hand_over(path: &Path, uid: Uid, gid: Gid) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    // Where it is another's, root without capabilities may look at it and no more.
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
            Accounts::of(name, &passwd).unwrap_err().to_string()
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
