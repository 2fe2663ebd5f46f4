//! Look-ups of users and groups, as every program on this host makes them: through the C library, by
//! way of nsswitch.conf; or by a module alone. A look-up blocks, so each user has a thread.
//!
//! Entries are read into buffers of our own and thrown away; a name that is not there is a failure of
//! its own kind.

use crate::dlopen::nss_module::{NssLookup, NssModule};
use crate::request_error::RequestError;
use crate::template::Template;
use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::ffi::CString;
use std::str;
use std::sync::Arc;

/// What the look-ups of a run have in common.
#[derive(Clone, Debug)]
pub struct NssSettings {
    /// What is looked up.
    pub lookup: NssLookup,
    /// By which name or id.
    pub key: Template,
    /// Without the C library around it.
    pub module: Option<NssModule>,
}

/// The one user of a thread.
#[derive(Debug)]
pub struct NssUser {
    settings: Arc<NssSettings>,
    key: Vec<u8>,
    buffer: Vec<u8>,
}

impl NssUser {
    /// For one user.
    #[must_use]
    pub fn new(settings: Arc<NssSettings>) -> Self {
        Self { settings, key: Vec::new(), buffer: Vec::new() }
    }

    /// Makes a request.
    pub fn lookup(&mut self, request: u64) -> Result<(), RequestError> {
        self.key.clear();
        self.settings.key.write(request, &mut self.key);
        let Ok(key) = str::from_utf8(&self.key) else {
            return Err(RequestError::Setup("a key that is no text".to_owned()));
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
        (NssLookup::Passwd, None) => User::from_name(key).map_err(failed("getpwnam_r"))?.is_some(),
        (NssLookup::Passwd, Some(id)) => {
            User::from_uid(Uid::from_raw(id)).map_err(failed("getpwuid_r"))?.is_some()
        }
        (NssLookup::Group, None) => Group::from_name(key).map_err(failed("getgrnam_r"))?.is_some(),
        (NssLookup::Group, Some(id)) => {
            Group::from_gid(Gid::from_raw(id)).map_err(failed("getgrgid_r"))?.is_some()
        }
        (NssLookup::Initgroups, _) => {
            // The gid that it is given comes back; one that no group has tells the groups from it.
            const NONE: Gid = Gid::from_raw(u32::MAX);
            let name = CString::new(key)
                .map_err(|_| RequestError::Setup("a key with a zero in it".to_owned()))?;
            let groups = getgrouplist(&name, NONE).map_err(failed("getgrouplist"))?;
            groups.iter().any(|&gid| gid != NONE)
        }
    };
    if found { Ok(()) } else { Err(RequestError::NotFound) }
}
