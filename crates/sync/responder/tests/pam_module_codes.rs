// SPDX-License-Identifier: MIT OR Apache-2.0
//! The codes in log lines of pam_roster. Its crate cannot have tests, because the module is built without the
//! standard library and for libpam. Its sources are compiled here, with stand-ins for libpam, the responder and
//! roster-krb5.
#![allow(dead_code, missing_docs)] // the test uses a part of the module

#[path = "../../pam/src/options.rs"]
mod options;
#[path = "../../pam/src/pam_user.rs"]
mod pam_user;
#[path = "../../pam/src/return_codes.rs"]
mod return_codes;
#[path = "../../pam/src/service_functions.rs"]
mod service_functions;
#[path = "../../pam/src/session_ticket.rs"]
mod session_ticket;

/// No user is local.
mod local_users {
    pub fn is_local(_: &[u8]) -> bool {
        false
    }
}

/// roster-krb5 is not installed.
mod krb5_helper {
    use std::ffi::CStr;

    pub fn run(
        _what: &CStr,
        _uid: u32,
        _gid: u32,
        _name: Option<&CStr>,
        _input: &[u8],
        _output: &mut [u8],
    ) -> Option<usize> {
        None
    }

    pub fn process_ccache_name() -> Option<&'static CStr> {
        None
    }
}

/// rosterd has another version for the user `other-version`, and does not reply about the rest.
mod responder_client {
    use roster_secret::Secret;
    use roster_wire::pam::{AuthRequest, AuthResponseHeader};

    pub struct ResponderReply {
        pub header: AuthResponseHeader,
        pub messages: Secret,
        pub blob: Secret,
    }

    #[derive(Debug)]
    pub enum QueryError {
        NoReply,
        OtherVersion,
    }

    pub fn query(request: &AuthRequest<'_>) -> Result<ResponderReply, QueryError> {
        Err(if request.user == b"other-version" {
            QueryError::OtherVersion
        } else {
            QueryError::NoReply
        })
    }
}

/// A libpam that collects the log, and has no conversation.
mod pam_handle {
    use super::return_codes::PamCode;
    use roster_secret::Secret;
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::ffi::{CStr, CString};
    use std::marker::PhantomData;

    #[derive(Clone, Copy)]
    pub enum PamItem {
        Service,
        Terminal,
        RemoteHost,
        Password,
        OldPassword,
        RemoteUser,
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum MessageStyle {
        Hidden,
        Error,
        Info,
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum LogPriority {
        Error,
        Debug,
    }

    pub struct CallHandle<'c> {
        pub user: CString,
        pub lines: RefCell<Vec<String>>,
        pub data: RefCell<HashMap<CString, Secret>>,
        /// The canonical name and the ids for a name.
        pub users: HashMap<CString, (CString, (u32, u32))>,
        /// The name that the module set.
        pub set: RefCell<Option<CString>>,
        pub call: PhantomData<&'c ()>,
    }

    impl CallHandle<'_> {
        pub fn canonical_name(&self, user: &CStr) -> Option<&CStr> {
            self.users.get(user).map(|(name, _)| &**name)
        }

        pub fn set_user(&self, user: &CStr) {
            self.set.replace(Some(user.to_owned()));
        }

        pub fn user(&self) -> Result<&CStr, PamCode> {
            Ok(&self.user)
        }

        pub fn item_text(&self, _: PamItem, _: usize) -> &[u8] {
            b""
        }

        pub fn password(&self, _: PamItem) -> Option<Secret> {
            None
        }

        pub fn set_password(&self, _: PamItem, _: &Secret) -> Result<(), PamCode> {
            Ok(())
        }

        pub fn set_flag(&self, _: &CStr, _: bool) {}

        pub fn has_flag(&self, _: &CStr) -> bool {
            false
        }

        pub fn store_data(&self, name: &CStr, bytes: Secret) {
            self.data.borrow_mut().insert(name.to_owned(), bytes);
        }

        pub fn stored_data(&self, name: &CStr) -> Option<Secret> {
            Secret::copy_of(self.data.borrow().get(name)?.as_bytes())
        }

        pub fn remove_data(&self, name: &CStr) {
            self.data.borrow_mut().remove(name);
        }

        pub fn variable(&self, _: &CStr) -> Option<&CStr> {
            None
        }

        pub fn set_variable(&self, _: &CStr) {}

        pub fn ids(&self, user: &CStr) -> Option<(u32, u32)> {
            self.users.get(user).map(|(_, ids)| *ids)
        }

        pub fn delay_failure(&self, _: u32) {}

        pub fn log(&self, _: LogPriority, _: &CStr, text: &CStr) {
            self.lines.borrow_mut().push(text.to_string_lossy().into_owned());
        }

        pub fn show(&self, _: MessageStyle, _: &[u8]) {}

        pub fn prompt(&self, _: &CStr) -> Result<Secret, PamCode> {
            Err(PamCode::CONV_ERR)
        }
    }
}

use options::ModuleOptions;
use pam_handle::CallHandle;
use return_codes::PamCode;
use roster_messages::table::login;
use roster_secret::Secret;
use std::cell::RefCell;
use std::marker::PhantomData;

#[test]
fn pam_module_failure_is_logged_with_code() {
    type Function = fn(&CallHandle<'_>, &ModuleOptions) -> PamCode;
    let account: Function = service_functions::account;
    let open: Function = service_functions::open_session;
    let close: Function = service_functions::close_session;
    // Data that earlier calls of alice stored.
    let ticket = (c"roster_tickets", &b"alice\0ticket"[..]);
    let cache = (c"roster_cache", &b"FILE:/tmp/krb5cc_2000"[..]);
    for (user, function, stored, argument, messages) in [
        (c"alice", account, ticket, None, vec![&login::PAM_NO_REPLY]),
        (c"other-version", account, ticket, None, vec![&login::PAM_VERSION_MISMATCH]),
        (c"alice", open, ticket, None, vec![&login::PAM_TICKET_NOT_STORED]),
        (c"alice", close, cache, None, vec![&login::PAM_TICKET_NOT_REMOVED]),
        // Without a ticket.
        (c"bob", open, ticket, None, vec![]),
        (c"bob", open, ticket, Some("debug"), vec![]),
        (c"bob", open, ticket, Some("try_first_password"), vec![&login::PAM_OPTION_UNKNOWN]),
        (c"bob", account, ticket, Some("domains="), vec![&login::PAM_DOMAINS_INVALID]),
    ] {
        let (name, bytes) = stored;
        let handle = CallHandle {
            user: user.to_owned(),
            lines: RefCell::default(),
            data: RefCell::new([(name.to_owned(), Secret::copy_of(bytes).expect("memory"))].into()),
            users: [(user.to_owned(), (user.to_owned(), (2000, 2000)))].into(),
            set: RefCell::default(),
            call: PhantomData,
        };
        let mut options = ModuleOptions::from_flags(0);
        if let Some(argument) = argument {
            options.apply_argument(argument.as_bytes());
        }
        function(&handle, &options);
        let lines = handle.lines.take();
        assert_eq!(lines.len(), messages.len(), "{lines:?}");
        for (line, message) in lines.iter().zip(messages) {
            assert!(line.ends_with(&format!(" [{message}]")), "{line}");
        }
    }
}

/// Another name service may have found the name that the program gave.
#[test]
fn pam_canonical_name_needs_equal_ids() {
    let alice = (2000, 2000);
    for (of_typed, of_canonical, is_set) in [
        (alice, Some(alice), true),
        ((2001, 2000), Some(alice), false),
        ((2000, 2001), Some(alice), false),
        (alice, None, false),
    ] {
        let typed = (c"ALICE".to_owned(), (c"alice".to_owned(), of_typed));
        let canonical = of_canonical.map(|ids| (c"alice".to_owned(), (c"alice".to_owned(), ids)));
        let handle = CallHandle {
            user: c"ALICE".to_owned(),
            lines: RefCell::default(),
            data: RefCell::default(),
            users: [typed].into_iter().chain(canonical).collect(),
            set: RefCell::default(),
            call: PhantomData,
        };
        let options = ModuleOptions::from_flags(0);
        let user = pam_user::PamUser::from_handle(&handle, &options);
        let Ok(user) = user else { panic!("the module handles the user") };
        user.use_canonical_name();
        let set = handle.set.take();
        assert_eq!(set.as_deref(), is_set.then_some(c"alice"), "{of_typed:?} {of_canonical:?}");
    }
}
