// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user of a PAM call. Rejects local users and impossible names before the responder is queried. Logs and shows
//! messages with the options of the call. `service_functions` sends the query.
#![forbid(unsafe_code)]

use crate::local_users::is_local;
use crate::options::{DomainList, ModuleOptions};
use crate::pam_handle::{CallHandle, LogPriority, MessageStyle};
use crate::return_codes::PamCode;
use core::ffi::CStr;
use roster_request::auth::USER_BYTES_MAX;

/// A user that a directory may have.
pub struct PamUser<'h> {
    /// The call.
    pub handle: &'h CallHandle<'h>,
    /// The module's arguments and flags in this call.
    pub options: &'h ModuleOptions,
    /// The name from the program.
    pub name: &'h CStr,
}

/// Reasons to end a call before the responder is queried.
pub enum EarlyReturn {
    /// The user is local.
    Local,
    /// The name is impossible, or the program set no name.
    UnknownUser(PamCode),
}

impl<'h> PamUser<'h> {
    /// Returns the user of a call, unless the call ends without a query.
    pub fn from_handle(
        handle: &'h CallHandle<'h>,
        options: &'h ModuleOptions,
    ) -> Result<Self, EarlyReturn> {
        let name = handle.user().map_err(EarlyReturn::UnknownUser)?;
        let bytes = name.to_bytes();
        let is_possible = (1..=USER_BYTES_MAX).contains(&bytes.len())
            && !bytes.iter().any(|&byte| byte.is_ascii_control() || byte == b':' || byte == b'/');
        if !is_possible {
            return Err(EarlyReturn::UnknownUser(PamCode::USER_UNKNOWN));
        }
        if is_local(bytes) {
            return Err(EarlyReturn::Local);
        }
        let person = Self { handle, options, name };
        if options.has_unknown_argument {
            person.log(
                LogPriority::Error,
                c"pam_roster: unknown option in the PAM stack. See pam_roster(8). [RST-6022]",
            );
        }
        if options.domains == DomainList::Invalid {
            person.log(
                LogPriority::Error,
                c"pam_roster: domains= is empty or too long; no user is accepted. See pam_roster(8). [RST-6700]",
            );
            return Err(EarlyReturn::UnknownUser(PamCode::PERM_DENIED));
        }
        Ok(person)
    }

    /// Returns the name of the user in the databases of the host. The program may have another spelling.
    pub fn canonical_name(&self) -> &CStr {
        self.handle.canonical_name(self.name).unwrap_or(self.name)
    }

    /// Gives the name of the directory to the program and to later modules, if the user was found by another name, and
    /// both names find the same user. Nothing may use the old name afterwards.
    pub fn use_canonical_name(self) {
        let canonical = self.canonical_name();
        if canonical == self.name || is_local(canonical.to_bytes()) {
            return;
        }
        // Another name service may have found the name.
        let ids = self.handle.ids(canonical);
        if ids.is_some() && ids == self.handle.ids(self.name) {
            self.handle.set_user(canonical);
        }
    }

    /// Writes a line to the log.
    pub fn log(&self, priority: LogPriority, text: &CStr) {
        if priority != LogPriority::Debug || self.options.debug {
            self.handle.log(priority, self.name, text);
        }
    }

    /// Shows a message, as far as the options allow it.
    pub fn show(&self, style: MessageStyle, text: &[u8]) {
        let is_unwanted = self.options.quiet && style == MessageStyle::Info;
        if !self.options.is_silent && !is_unwanted {
            self.handle.show(style, text);
        }
    }
}
