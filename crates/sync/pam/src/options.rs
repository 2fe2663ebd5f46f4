// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of the module in a stack, and the flags of the call. `service_functions` and `pam_user` apply them.
#![forbid(unsafe_code)]

use core::ffi::{CStr, c_int};
use roster_request::auth::ORIGIN_BYTES_MAX;

const SILENT: c_int = 0x8000;
const PRELIM_CHECK: c_int = 0x4000;
const UPDATE_AUTHTOK: c_int = 0x2000;

const REINITIALIZE_CRED: c_int = 0x8;
const REFRESH_CRED: c_int = 0x10;
const DELETE_CRED: c_int = 0x4;

/// The action of a call about credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CredentialAction {
    /// Establishes them.
    #[default]
    Establish,
    /// Refreshes them.
    Refresh,
    /// Deletes them.
    Delete,
}

/// Options of a call, from the administrator and the program.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModuleOptions {
    /// Uses only the password of an earlier module.
    pub use_first_pass: bool,
    /// Tries that password first, and prompts for another one if it fails.
    pub try_first_pass: bool,
    /// Uses only the new password of an earlier module.
    pub use_authtok: bool,
    /// Gives the password to later modules.
    pub forward_pass: bool,
    /// Shows only errors.
    pub quiet: bool,
    /// Logs more.
    pub debug: bool,
    /// Makes authentication fail if the password must be changed, for programs without account management.
    pub must_change_fails: bool,
    /// Adds no delay to a failure.
    pub no_delay: bool,
    /// Shows nothing at all.
    pub is_silent: bool,
    /// A change of password is only prepared.
    pub prepares: bool,
    /// The change is to be made.
    pub updates: bool,
    /// The action of a call about credentials.
    pub credentials: CredentialAction,
    /// There was an unknown argument.
    pub has_unknown_argument: bool,
    /// The domains with users that count.
    pub domains: DomainList,
    /// Another text for the prompt for the password.
    pub prompt: Option<PasswordPrompt>,
}

/// Limit of the text of `prompt=`.
const PROMPT_BYTES_MAX: usize = 127;

/// The text of `prompt=`. Bytes behind it are NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordPrompt([u8; PROMPT_BYTES_MAX + 1]);

impl PasswordPrompt {
    /// Returns the prompt. `None` if the text is empty, too long, or has control characters, which could imitate another
    /// program's output.
    fn from_argument(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; PROMPT_BYTES_MAX + 1];
        let is_valid = !text.is_empty() && !text.iter().any(u8::is_ascii_control);
        let place =
            bytes.get_mut(..text.len()).filter(|_| is_valid && text.len() <= PROMPT_BYTES_MAX)?;
        place.copy_from_slice(text);
        Some(Self(bytes))
    }

    /// Returns the text.
    pub fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

/// The names in `domains=`, separated by commas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // the module has no allocator, and one value a call
pub enum DomainList {
    /// All domains.
    #[default]
    All,
    /// The listed names.
    Names {
        /// The text of the argument.
        bytes: [u8; ORIGIN_BYTES_MAX],
        /// The text's length.
        len: usize,
    },
    /// The argument is empty or too long, so no user counts.
    Invalid,
}

impl DomainList {
    fn from_argument(text: &[u8]) -> Self {
        let mut bytes = [0; ORIGIN_BYTES_MAX];
        match bytes.get_mut(..text.len()) {
            Some(place) if !text.is_empty() => {
                place.copy_from_slice(text);
                Self::Names { bytes, len: text.len() }
            }
            _ => Self::Invalid,
        }
    }

    /// Returns the names for a request. Empty means all domains.
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Names { bytes, len } => bytes.get(..*len).unwrap_or_default(),
            Self::All | Self::Invalid => b"",
        }
    }
}

impl ModuleOptions {
    /// Reads the flags of a call.
    pub fn from_flags(flags: c_int) -> Self {
        let has = |flag| flags & flag != 0;
        Self {
            is_silent: has(SILENT),
            prepares: has(PRELIM_CHECK),
            updates: has(UPDATE_AUTHTOK),
            credentials: if has(DELETE_CRED) {
                CredentialAction::Delete
            } else if has(REINITIALIZE_CRED) || has(REFRESH_CRED) {
                CredentialAction::Refresh
            } else {
                CredentialAction::Establish
            },
            ..Self::default()
        }
    }

    /// Adds one more argument.
    pub fn apply_argument(&mut self, word: &[u8]) {
        match word {
            b"use_first_pass" => self.use_first_pass = true,
            b"try_first_pass" => self.try_first_pass = true,
            b"use_authtok" => self.use_authtok = true,
            b"forward_pass" => self.forward_pass = true,
            b"quiet" => self.quiet = true,
            b"debug" => self.debug = true,
            b"must_change=fail" => self.must_change_fails = true,
            b"nodelay" => self.no_delay = true,
            _ => match (word.strip_prefix(b"domains="), word.strip_prefix(b"prompt=")) {
                (Some(names), _) => self.domains = DomainList::from_argument(names),
                (_, Some(text)) => {
                    self.prompt = PasswordPrompt::from_argument(text);
                    self.has_unknown_argument |= self.prompt.is_none();
                }
                _ => self.has_unknown_argument = true,
            },
        }
    }
}
