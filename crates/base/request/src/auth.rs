// SPDX-License-Identifier: MIT OR Apache-2.0
//! A login: its kinds, its results and the limits of its fields. The results are a refinement of those of PAM, see
//! pam(3). The frames of a login are in `roster_wire::pam`.

/// Maximum length of a user name.
pub const USER_BYTES_MAX: usize = 256;
/// Maximum length of service, remote host, terminal and remote user. Longer values are truncated: only logs and rules
/// use them, and no rule has a longer service.
pub const ORIGIN_BYTES_MAX: usize = 256;
/// Maximum length of a password; longer ones are never sent. PAM's own conversations end at 511 bytes.
pub const SECRET_BYTES_MAX: usize = 1024;
/// Maximum number of messages in a response: the limit of a PAM conversation.
pub const MESSAGES_MAX: usize = 32;
/// Maximum length of a message: the limit of PAM without the NUL.
pub const MESSAGE_BYTES_MAX: usize = 511;
/// Maximum length of the blob for the session: it fits into a pipe with its length.
pub const BLOB_BYTES_MAX: usize = 60 << 10;

/// Kind of a login request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum AuthRequestKind {
    /// Checks the password of the user.
    Authenticate = 0,
    /// Checks whether the user may log in now.
    Account = 1,
    /// Checks whether the user may change the password with the old one. Changes nothing.
    PrepareChange = 2,
    /// Changes the password from the old one to the new one.
    Change = 3,
    /// Returns the user's keys for sshd as the blob, one on each line. Any user may request them, because they are
    /// public.
    SshKeys = 4,
}

impl AuthRequestKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Authenticate, Self::Account, Self::PrepareChange, Self::Change, Self::SshKeys];

    /// Returns the kind with that number.
    #[must_use]
    #[inline]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| *known as u16 == number)
    }
}

/// Result of a login. A reply with another number is rejected. Only [`Success`](Self::Success) allows a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum AuthResult {
    /// The request succeeded.
    Success = 0,
    /// The password is wrong. An empty password, or one with a NUL, is always wrong.
    WrongPassword = 1,
    /// No domain has the user, or the domain may not serve the user.
    UnknownUser = 2,
    /// Another service must decide: the user is local, or the domain has no authentication.
    NotHandled = 3,
    /// The password is correct, and must be changed first.
    MustChange = 4,
    /// The password has expired, and the user can no longer change it.
    PasswordExpired = 5,
    /// The account has expired.
    AccountExpired = 6,
    /// The account is locked, by too many failures or by an administrator.
    Locked = 7,
    /// The account is disabled.
    Disabled = 8,
    /// An access rule denies the login.
    Denied = 9,
    /// The directory is unreachable, and the request cannot be decided without it.
    Unreachable = 10,
    /// The directory rejects the request, or the configuration forbids it.
    Misconfigured = 11,
    /// Too many attempts; later ones may be accepted.
    TooManyAttempts = 12,
    /// The client may not send requests for this user.
    NotPermitted = 13,
    /// The new password is rejected; the messages give the reason.
    NewPasswordRefused = 14,
}

impl AuthResult {
    /// All results, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::Success,
        Self::WrongPassword,
        Self::UnknownUser,
        Self::NotHandled,
        Self::MustChange,
        Self::PasswordExpired,
        Self::AccountExpired,
        Self::Locked,
        Self::Disabled,
        Self::Denied,
        Self::Unreachable,
        Self::Misconfigured,
        Self::TooManyAttempts,
        Self::NotPermitted,
        Self::NewPasswordRefused,
    ];

    /// Returns the result with that number.
    #[must_use]
    #[inline]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| *known as u16 == number)
    }

    /// Returns the label in logs and counters.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::WrongPassword => "wrong password",
            Self::UnknownUser => "unknown user",
            Self::NotHandled => "not ours",
            Self::MustChange => "password must be changed",
            Self::PasswordExpired => "password expired",
            Self::AccountExpired => "account expired",
            Self::Locked => "locked",
            Self::Disabled => "disabled",
            Self::Denied => "denied",
            Self::Unreachable => "unreachable",
            Self::Misconfigured => "misconfigured",
            Self::TooManyAttempts => "too many tries",
            Self::NotPermitted => "not permitted",
            Self::NewPasswordRefused => "new password refused",
        }
    }
}
