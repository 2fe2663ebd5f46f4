// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookups of users and groups, through the C library by nsswitch.conf(5), or by a single NSS module. A lookup blocks,
//! so each user has a thread. `blocking_engine` makes the requests.
//!
//! Entries are discarded. A missing entry is a failure of its own kind.

use crate::dlopen::nss_module::{NssLookup, NssModule};
use crate::request_error::{RequestError, SystemCall};
use crate::template::Template;
use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::ffi::CString;
use std::str;
use std::sync::Arc;

/// Settings of all lookups of a run.
#[derive(Clone, Debug)]
pub struct NssSettings {
    /// Kind of lookup.
    pub lookup: NssLookup,
    /// Names or ids.
    pub key: Template,
    /// Module that replaces the C library.
    pub module: Option<NssModule>,
}

/// The single user of a thread.
#[derive(Debug)]
pub struct NssUser {
    settings: Arc<NssSettings>,
    key: Vec<u8>,
    buffer: Vec<u8>,
}

impl NssUser {
    /// Creates a user.
    #[must_use]
    pub fn new(settings: Arc<NssSettings>) -> Self {
        Self { settings, key: Vec::new(), buffer: Vec::new() }
    }

    /// Makes the lookup of a request.
    pub fn lookup(&mut self, request: u64) -> Result<(), RequestError> {
        self.key.clear();
        self.settings.key.write(request, &mut self.key);
        let Ok(key) = str::from_utf8(&self.key) else {
            return Err(RequestError::NotUtf8);
        };
        match self.settings.module {
            Some(module) => module.lookup(key, &mut self.buffer),
            None => lookup_with_libc(self.settings.lookup, key),
        }
    }
}

fn lookup_with_libc(lookup: NssLookup, key: &str) -> Result<(), RequestError> {
    let id = key.parse::<u32>().ok();
    let failed = |call| move |errno: Errno| RequestError::System(call, errno as i32);
    let found = match (lookup, id) {
        (NssLookup::Passwd, None) => {
            User::from_name(key).map_err(failed(SystemCall::Getpwnam))?.is_some()
        }
        (NssLookup::Passwd, Some(id)) => {
            User::from_uid(Uid::from_raw(id)).map_err(failed(SystemCall::Getpwuid))?.is_some()
        }
        (NssLookup::Group, None) => {
            Group::from_name(key).map_err(failed(SystemCall::Getgrnam))?.is_some()
        }
        (NssLookup::Group, Some(id)) => {
            Group::from_gid(Gid::from_raw(id)).map_err(failed(SystemCall::Getgrgid))?.is_some()
        }
        (NssLookup::Initgroups, _) => {
            // The result contains the given gid. This one is not a valid group, so it is distinguishable.
            const NONE: Gid = Gid::from_raw(u32::MAX);
            let name = CString::new(key).map_err(|_| RequestError::NulByte("key"))?;
            let groups = getgrouplist(&name, NONE).map_err(failed(SystemCall::Getgrouplist))?;
            groups.iter().any(|&gid| gid != NONE)
        }
    };
    if found { Ok(()) } else { Err(RequestError::NotFound) }
}
