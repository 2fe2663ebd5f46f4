// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to the socket. A file system of the caller (FUSE) can delay the close of a connection without limit, and no
//! signal ends that. The gate excludes a user with many such connections by an entry in the access list of the socket.
//! Root bypasses access lists and is never excluded. `resource_limits` has the limits of connections that the gate lets
//! through.

use super::subuid_owners::SubuidOwners;
use crate::access_list::{AccessList, AccessRights, CONNECT, READ_WRITE};
use parking_lot::Mutex;
use roster_fd_passing::deferred_close::PendingCloses;
use roster_messages::CodedError;
use roster_messages::table::commands;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Pending closes of one user at which the gate excludes that user.
const HANGING_PER_USER_MAX: usize = 32;
/// Pending closes of all users at which the gate excludes all users but root.
const HANGING_MAX: usize = 1024;
/// Limit of excluded uids, because one user may have thousands. Beyond it the gate excludes all users but root.
const REFUSED_MAX: usize = 256;
/// The right `x` replaces the right to connect of an excluded user. It has no meaning for sockets, so the next daemon
/// can distinguish these entries from those of an administrator.
const REFUSED_RIGHTS: AccessRights = 1;

pub(super) struct SocketAccess {
    path: PathBuf,
    subuid_owners: Arc<SubuidOwners>,
    open: AccessList,
    refused: Mutex<RefusedUsers>,
    is_finished: AtomicBool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RefusedUsers {
    Users(BTreeSet<u32>),
    AllButRoot,
}

impl SocketAccess {
    /// Removes exclusions of a killed daemon from the socket.
    pub(super) fn new(path: &Path, persons: Arc<SubuidOwners>) -> io::Result<Self> {
        let replaced = |what: &str| {
            CodedError::new(&commands::SOCKET_REPLACED, format!("{}: {what}", path.display()))
        };
        let status = fs::symlink_metadata(path).map_err(|error| {
            io::Error::other(replaced("the mode of the socket cannot be read").caused_by(error))
        })?;
        if !status.file_type().is_socket() {
            return Err(io::Error::other(replaced("not a socket")));
        }
        // A file system without access lists has only modes.
        let list = AccessList::read(path).ok().flatten();
        let list = list.unwrap_or_else(|| AccessList::from_mode(status.permissions().mode()));
        let open = without_refusals(list);
        let refused = Mutex::new(RefusedUsers::Users(BTreeSet::new()));
        let is_over = AtomicBool::new(false);
        let gate = Self {
            path: path.to_owned(),
            subuid_owners: persons,
            open,
            refused,
            is_finished: is_over,
        };
        gate.apply(&RefusedUsers::Users(BTreeSet::new()));
        Ok(gate)
    }

    /// Adjusts the exclusions to the pending closes.
    pub(super) fn adjust(&self, pending: &PendingCloses) {
        let wanted = self.users_to_refuse(pending);
        let mut refused = self.refused.lock();
        let is_over = self.is_finished.load(Ordering::SeqCst);
        let wanted = if is_over { RefusedUsers::Users(BTreeSet::new()) } else { wanted };
        if *refused != wanted {
            self.apply(&wanted);
            *refused = wanted;
        }
    }

    /// Removes all exclusions permanently. Connections then wait for the next daemon.
    pub(super) fn open(&self) {
        self.is_finished.store(true, Ordering::SeqCst);
        self.adjust(&PendingCloses::new());
    }

    fn users_to_refuse(&self, pending: &PendingCloses) -> RefusedUsers {
        let mut hanging: BTreeMap<u32, (usize, BTreeSet<u32>)> = BTreeMap::new();
        for (&uid, count) in pending {
            let (all, uids) = hanging.entry(self.subuid_owners.find_owner(uid)).or_default();
            *all += count;
            uids.insert(uid);
        }
        let many = hanging.into_values().filter(|(count, _)| *count >= HANGING_PER_USER_MAX);
        let users: BTreeSet<u32> =
            many.flat_map(|(_, uids)| uids).filter(|uid| *uid != 0).collect();
        let all: usize = pending.values().sum();
        match all >= HANGING_MAX || users.len() > REFUSED_MAX {
            true => RefusedUsers::AllButRoot,
            false => RefusedUsers::Users(users),
        }
    }

    fn apply(&self, refused: &RefusedUsers) {
        let list = self.access_list(refused);
        if list.write(&self.path).is_err() {
            // The file system has no access lists.
            let is_open = *refused == RefusedUsers::Users(BTreeSet::new());
            let list =
                if is_open { &self.open } else { &self.access_list(&RefusedUsers::AllButRoot) };
            let _ = fs::set_permissions(&self.path, Permissions::from_mode(list_mode(list)));
        }
    }

    fn access_list(&self, refused: &RefusedUsers) -> AccessList {
        let mut list = self.open.clone();
        match refused {
            RefusedUsers::Users(uids) => {
                // The gate keeps an entry by which the administrator excludes the user.
                list.users.retain(|(uid, rights)| !uids.contains(uid) || rights & CONNECT == 0);
                let listed: BTreeSet<u32> = list.users.iter().map(|(uid, _)| *uid).collect();
                list.users.extend(uids.difference(&listed).map(|&uid| (uid, REFUSED_RIGHTS)));
            }
            RefusedUsers::AllButRoot => {
                // The mask limits all entries except those of the owner and of others.
                let rights = if list.is_mode_only() { &mut list.group } else { &mut list.mask };
                for rights in [rights, &mut list.others] {
                    *rights = if *rights & CONNECT == 0 { *rights } else { REFUSED_RIGHTS };
                }
            }
        }
        // The kernel requires this order of the entries.
        list.users.sort_unstable();
        list
    }
}

/// Returns the list without the entries of a gate.
fn without_refusals(mut list: AccessList) -> AccessList {
    list.users.retain(|(_, rights)| *rights != REFUSED_RIGHTS);
    for rights in [&mut list.group, &mut list.mask, &mut list.others] {
        *rights = if *rights == REFUSED_RIGHTS { READ_WRITE } else { *rights };
    }
    list
}

fn list_mode(list: &AccessList) -> u32 {
    let bits = |rights: AccessRights, shift: u32| u32::from(rights) << shift;
    bits(list.owner, 6) | bits(list.group, 3) | bits(list.others, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    struct TestSocket {
        folder: tempfile::TempDir,
        _listener: UnixListener,
    }

    impl TestSocket {
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

        fn gate(&self) -> SocketAccess {
            SocketAccess::new(&self.path(), Arc::default()).unwrap()
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
        let socket = TestSocket::new();
        let gate = socket.gate();
        assert_eq!((socket.list(), socket.mode()), (None, 0o666));
        gate.adjust(&PendingCloses::from([
            (7, HANGING_PER_USER_MAX - 1),
            (0, HANGING_PER_USER_MAX),
        ]));
        assert_eq!(socket.list(), None);
        gate.adjust(&PendingCloses::from([(7, HANGING_PER_USER_MAX), (8, 1)]));
        let list = socket.list().unwrap();
        assert_eq!((&list.users[..], list.mask, list.others), (&[(7, REFUSED_RIGHTS)][..], 6, 6));
        gate.adjust(&PendingCloses::from([(8, 1)]));
        assert_eq!((socket.list(), socket.mode()), (None, 0o666));
    }

    #[test]
    fn gate_opened_for_good_stays_open() {
        let socket = TestSocket::new();
        let gate = socket.gate();
        let pending = PendingCloses::from([(7, HANGING_PER_USER_MAX)]);
        gate.adjust(&pending);
        assert!(socket.list().is_some());
        gate.open();
        gate.adjust(&pending);
        assert_eq!((socket.list(), socket.mode()), (None, 0o666));
    }

    #[test]
    fn gate_refuses_all_but_root_when_many_hang() {
        let socket = TestSocket::new();
        let gate = socket.gate();
        gate.adjust(&(1..=HANGING_MAX as u32).map(|uid| (uid, 1)).collect());
        assert_eq!((socket.list(), socket.mode()), (None, 0o611));
        gate.adjust(&PendingCloses::new());
        assert_eq!((socket.list(), socket.mode()), (None, 0o666));
    }

    #[test]
    fn gate_opens_what_killed_daemon_left_closed() {
        for pending in [
            PendingCloses::from([(7, HANGING_PER_USER_MAX)]),
            PendingCloses::from([(7, HANGING_MAX)]),
        ] {
            let socket = TestSocket::new();
            socket.gate().adjust(&pending);
            assert!(socket.list().is_some() || socket.mode() == 0o611);
            let _next = socket.gate();
            assert_eq!((socket.list(), socket.mode()), (None, 0o666), "{pending:?}");
        }
    }

    #[test]
    fn gate_keeps_access_list_of_administrator() {
        let socket = TestSocket::new();
        let mut own = AccessList::from_mode(0o660);
        own.users = vec![(1, READ_WRITE), (7, READ_WRITE), (8, 0)];
        own.groups = vec![(9, READ_WRITE)];
        own.mask = READ_WRITE;
        own.write(&socket.path()).unwrap();
        let gate = socket.gate();
        gate.adjust(&PendingCloses::from([(7, HANGING_PER_USER_MAX), (8, HANGING_PER_USER_MAX)]));
        assert_eq!(socket.list().unwrap().users, [(1, READ_WRITE), (7, REFUSED_RIGHTS), (8, 0)]);
        gate.adjust(&PendingCloses::from([(7, HANGING_MAX)]));
        assert_eq!(socket.mode(), 0o610);
        // The next daemon cannot restore an entry that this one replaced.
        let _next = socket.gate();
        assert_eq!(socket.list(), Some(own.clone()));
        gate.adjust(&PendingCloses::new());
        assert_eq!(socket.list(), Some(own));
    }

    #[test]
    fn gate_opens_mode_that_killed_daemon_left_closed() {
        for mode in [0o666, 0o660, 0o600] {
            let open = AccessList::from_mode(mode);
            let socket = TestSocket::new();
            let gate = SocketAccess { open: open.clone(), ..socket.gate() };
            let closed = list_mode(&gate.access_list(&RefusedUsers::AllButRoot));
            assert_eq!((closed & 0o700, closed & 0o066), (0o600, 0), "{mode:o}");
            assert_eq!(without_refusals(AccessList::from_mode(closed)), open, "{mode:o}");
        }
    }

    #[test]
    fn gate_without_socket_has_code() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for name in ["file", "missing"] {
            let refused = SocketAccess::new(&folder.path().join(name), Arc::default());
            let Err(error) = refused else { panic!("{name}") };
            let error: CodedError = error.downcast().unwrap();
            assert_eq!(error.message, &commands::SOCKET_REPLACED, "{name}");
        }
    }
}
