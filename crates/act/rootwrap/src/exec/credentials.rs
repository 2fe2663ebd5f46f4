// SPDX-License-Identifier: MIT OR Apache-2.0
//! Uid, gid and supplementary groups of a process: lookup through the C library, and the change of this thread to them.
//! `setuid_stage` decides when they change, and `evaluate` which user a command gets.

use nix::unistd::User;
use roster_messages::CodedError;
use roster_messages::table::commands::RULE_USER_UNKNOWN;
use rustix::fs::{Gid, Uid};
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::ffi::CString;
use std::io;
use std::path::PathBuf;

/// A user that commands run as.
#[derive(Clone, Debug)]
pub struct Account {
    pub name: String,
    /// The home directory.
    pub home: PathBuf,
    pub shell: PathBuf,
    pub(super) credentials: Credentials,
}

impl Account {
    fn new(user: User, credentials: Credentials) -> Self {
        Self { name: user.name, home: user.dir, shell: user.shell, credentials }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(name: &str, home: &str) -> Self {
        let credentials = Credentials::new(1, 1, Vec::new());
        Self { name: name.into(), home: home.into(), shell: "/bin/sh".into(), credentials }
    }

    /// Returns the account with another primary group.
    #[must_use]
    pub fn with_group(&self, gid: u32) -> Self {
        let Credentials { uid, groups, .. } = &self.credentials;
        let credentials = Credentials::new(*uid, gid, groups.clone());
        Self { credentials, ..self.clone() }
    }

    /// Returns the uid.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.credentials.uid
    }

    /// Returns the groups, sorted.
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        &self.credentials.groups
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Sorted and unique, with the gid.
    pub(super) groups: Vec<u32>,
}

impl Credentials {
    /// Returns the credentials of this process. Root first takes those of the account root, because sudo may pass on
    /// other groups. The process must have one thread.
    pub(super) fn normalized() -> io::Result<Self> {
        if geteuid().is_root() {
            let root = Self::root()?;
            match root.assume() {
                // In a user namespace the groups may be fixed. All commands then have them.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                assumed => assumed?,
            }
            return Ok(root);
        }
        let gid = getegid().as_raw();
        let groups = getgroups()?.into_iter().map(Gid::as_raw).collect();
        Ok(Self::new(geteuid().as_raw(), gid, groups))
    }

    fn new(uid: u32, gid: u32, mut groups: Vec<u32>) -> Self {
        groups.push(gid);
        groups.sort_unstable();
        groups.dedup();
        Self { uid, gid, groups }
    }

    /// Without an entry in the user database root has no other groups.
    fn root() -> io::Result<Self> {
        match User::from_uid(nix::unistd::Uid::from_raw(0)) {
            Ok(Some(root)) => Self::from_user(&root),
            _ => Ok(Self::new(0, 0, Vec::new())),
        }
    }

    /// Returns the credentials of a user. Without root's rights, this process keeps its own for its own user.
    pub(super) fn lookup_user(name: &str, own: &Self) -> io::Result<Self> {
        let unknown = || CodedError::new(&RULE_USER_UNKNOWN, format!("user {name} does not exist"));
        let account = Self::lookup_account(name, own)?;
        Ok(account.ok_or_else(|| io::Error::other(unknown()))?.credentials)
    }

    /// Returns the account of a user. `None`: unknown user.
    pub(super) fn lookup_account(name: &str, own: &Self) -> io::Result<Option<Account>> {
        let Some(user) = User::from_name(name)? else { return Ok(None) };
        let is_own = user.uid.as_raw() == own.uid && own.uid != 0;
        let credentials = if is_own { own.clone() } else { Self::from_user(&user)? };
        Ok(Some(Account::new(user, credentials)))
    }

    /// Returns the account with these credentials.
    pub(super) fn lookup_owner(&self) -> io::Result<Option<Account>> {
        let user = User::from_uid(nix::unistd::Uid::from_raw(self.uid))?;
        Ok(user.map(|user| Account::new(user, self.clone())))
    }

    fn from_user(user: &User) -> io::Result<Self> {
        let name = CString::new(user.name.as_bytes())?;
        let groups = nix::unistd::getgrouplist(&name, user.gid)?;
        let groups = groups.into_iter().map(nix::unistd::Gid::as_raw).collect();
        Ok(Self::new(user.uid.as_raw(), user.gid.as_raw(), groups))
    }

    /// Changes this thread permanently. It must be the only one of its process.
    pub(super) fn assume(&self) -> io::Result<()> {
        let groups: Vec<Gid> = self.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
        set_thread_groups(&groups)?;
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        Ok(())
    }
}
