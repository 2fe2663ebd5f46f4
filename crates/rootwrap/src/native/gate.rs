//! Which users may connect to the socket. A file system of the caller's (FUSE) may hold the closing of a connection for
//! as long as its server likes, and no signal ends that. A user with many such closings is refused by the kernel: an
//! entry without rights in the access list of the socket. Root passes access lists and is never refused.

use super::persons::Persons;
use crate::access_list::{AccessList, READ_WRITE, Rights};
use roster_descriptors::closing::Pending;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Closings of one user's connections that hang, from which on the user is refused.
const HANGING_OF_USER_MAX: usize = 32;
/// Those of all users, from which on all users but root are refused.
const HANGING_MAX: usize = 1024;
/// Uids in the list, beyond which all users but root are refused: one user may have thousands.
const REFUSED_MAX: usize = 256;
/// An entry of this uid, which no list binds, keeps the rights of others while all users are refused.
const MARK: u32 = 0;

/// Of one socket.
pub(super) struct Gate {
    path: PathBuf,
    persons: Arc<Persons>,
    open: AccessList,
    refused: Mutex<Refused>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Refused {
    Users(BTreeSet<u32>),
    AllButRoot,
}

impl Gate {
    /// Opens the socket to the users to whom it was open: a daemon that was killed may have left it closed.
    pub(super) fn new(path: &Path, persons: Arc<Persons>) -> io::Result<Self> {
        let status = fs::symlink_metadata(path)?;
        if !status.file_type().is_socket() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let of_mode = || AccessList::of_mode(status.permissions().mode());
        // A file system without access lists has modes alone.
        let open = AccessList::read(path).ok().flatten().map_or_else(of_mode, reopened);
        let refused = Mutex::new(Refused::Users(BTreeSet::new()));
        let gate = Self { path: path.to_owned(), persons, open, refused };
        gate.apply(&Refused::Users(BTreeSet::new()));
        Ok(gate)
    }

    /// Goes by the closings that hang now.
    pub(super) fn adjust(&self, pending: &Pending) {
        let wanted = self.wanted(pending);
        let mut refused = self.refused.lock().expect("a thread that panics ends the process");
        if *refused != wanted {
            self.apply(&wanted);
            *refused = wanted;
        }
    }

    fn wanted(&self, pending: &Pending) -> Refused {
        let mut hanging: BTreeMap<u32, (usize, BTreeSet<u32>)> = BTreeMap::new();
        for (&uid, count) in pending {
            let (all, uids) = hanging.entry(self.persons.of(uid)).or_default();
            *all += count;
            uids.insert(uid);
        }
        let many = hanging.into_values().filter(|(count, _)| *count >= HANGING_OF_USER_MAX);
        let users: BTreeSet<u32> =
            many.flat_map(|(_, uids)| uids).filter(|uid| *uid != 0).collect();
        let all: usize = pending.values().sum();
        match all >= HANGING_MAX || users.len() > REFUSED_MAX {
            true => Refused::AllButRoot,
            false => Refused::Users(users),
        }
    }

    fn apply(&self, refused: &Refused) {
        let list = self.list(refused);
        if list.write(&self.path).is_err() {
            // The file system has no access lists.
            let is_open = *refused == Refused::Users(BTreeSet::new());
            let mode = if is_open { mode_of(&self.open) } else { 0o600 };
            let _ = fs::set_permissions(&self.path, Permissions::from_mode(mode));
        }
    }

    fn list(&self, refused: &Refused) -> AccessList {
        let mut list = self.open.clone();
        match refused {
            Refused::Users(uids) => {
                list.users.retain(|(uid, _)| !uids.contains(uid));
                list.users.extend(uids.iter().map(|&uid| (uid, 0)));
            }
            Refused::AllButRoot => {
                list.users.push((MARK, list.others));
                (list.mask, list.others) = (0, 0);
            }
        }
        // The kernel takes entries in this order alone.
        list.users.sort_unstable();
        list
    }
}

/// The list without what a gate has put into it.
fn reopened(mut list: AccessList) -> AccessList {
    let marked = list.users.iter().find(|(uid, _)| *uid == MARK).map(|(_, rights)| *rights);
    if let Some(others) = marked {
        (list.mask, list.others) = (READ_WRITE, others);
    }
    list.users.retain(|(uid, rights)| *uid != MARK && *rights != 0);
    list
}

fn mode_of(list: &AccessList) -> u32 {
    let bits = |rights: Rights, shift: u32| u32::from(rights) << shift;
    bits(list.owner, 6) | bits(list.group, 3) | bits(list.others, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    struct Socket {
        folder: tempfile::TempDir,
        _listener: UnixListener,
    }

    impl Socket {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let listener = UnixListener::bind(folder.path().join("exec")).unwrap();
            let socket = Self { folder, _listener: listener };
            fs::set_permissions(socket.path(), Permissions::from_mode(0o666)).unwrap();
            socket
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("exec")
        }

        fn gate(&self) -> Gate {
            Gate::new(&self.path(), Arc::default()).unwrap()
        }

        fn list(&self) -> Option<AccessList> {
            AccessList::read(&self.path()).unwrap()
        }

        fn mode(&self) -> u32 {
            fs::metadata(self.path()).unwrap().permissions().mode() & 0o777
        }
    }

    #[test]
    fn gate_refuses_user_whose_closings_hang() {
        let socket = Socket::new();
        let gate = socket.gate();
        assert_eq!((socket.list(), socket.mode()), (None, 0o666));
        gate.adjust(&Pending::from([(7, HANGING_OF_USER_MAX - 1), (0, HANGING_OF_USER_MAX)]));
        assert_eq!(socket.list(), None);
        gate.adjust(&Pending::from([(7, HANGING_OF_USER_MAX), (8, 1)]));
        let list = socket.list().unwrap();
        assert_eq!((&list.users[..], list.mask, list.others), (&[(7, 0)][..], 6, 6));
        gate.adjust(&Pending::from([(8, 1)]));
        assert_eq!((socket.list(), socket.mode()), (None, 0o666));
    }

    #[test]
    fn gate_refuses_all_but_root_when_many_hang() {
        let socket = Socket::new();
        let gate = socket.gate();
        gate.adjust(&(1..=HANGING_MAX as u32).map(|uid| (uid, 1)).collect());
        let list = socket.list().unwrap();
        assert_eq!((list.owner, list.mask, list.others), (6, 0, 0));
        gate.adjust(&Pending::new());
        assert_eq!((socket.list(), socket.mode()), (None, 0o666));
    }

    #[test]
    fn gate_opens_what_killed_daemon_left_closed() {
        for pending in
            [Pending::from([(7, HANGING_OF_USER_MAX)]), Pending::from([(7, HANGING_MAX)])]
        {
            let socket = Socket::new();
            socket.gate().adjust(&pending);
            assert!(socket.list().is_some());
            let _next = socket.gate();
            assert_eq!((socket.list(), socket.mode()), (None, 0o666), "{pending:?}");
        }
    }

    #[test]
    fn gate_keeps_access_list_of_administrator() {
        let socket = Socket::new();
        let mut own = AccessList::of_mode(0o660);
        own.users = vec![(1, READ_WRITE), (7, READ_WRITE)];
        own.mask = READ_WRITE;
        own.write(&socket.path()).unwrap();
        let gate = socket.gate();
        gate.adjust(&Pending::from([(7, HANGING_OF_USER_MAX)]));
        assert_eq!(socket.list().unwrap().users, [(1, READ_WRITE), (7, 0)]);
        gate.adjust(&Pending::new());
        assert_eq!(socket.list(), Some(own));
    }
}
