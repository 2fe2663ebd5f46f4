// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of requests. Reports count them by kind, so a kind has few words and no value of a single request. This
//! module makes no requests: engines do.

use crate::coded::coded;
use roster_messages::Message;
use roster_messages::table::lab;
use std::borrow::Cow;
use std::fmt::{self, Display};
use std::io;

/// System calls and library functions of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SystemCall {
    Connect,
    Send,
    Receive,
    Epoll,
    /// Start of a command.
    Spawn,
    PidfdOpen,
    Waitid,
    Malloc,
    /// NSS_STATUS_TRYAGAIN of a module.
    NssTryAgain,
    /// NSS_STATUS_UNAVAIL of a module.
    NssUnavailable,
    Getpwnam,
    Getpwuid,
    Getgrnam,
    Getgrgid,
    Getgrouplist,
}

impl SystemCall {
    fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Epoll => "epoll",
            Self::Spawn => "start",
            Self::PidfdOpen => "pidfd_open",
            Self::Waitid => "waitid",
            Self::Malloc => "malloc",
            Self::NssTryAgain => "TRYAGAIN",
            Self::NssUnavailable => "UNAVAIL",
            Self::Getpwnam => "getpwnam_r",
            Self::Getpwuid => "getpwuid_r",
            Self::Getgrnam => "getgrnam_r",
            Self::Getgrgid => "getgrgid_r",
            Self::Getgrouplist => "getgrouplist",
        }
    }

    fn message(self) -> &'static Message {
        match self {
            Self::Connect => &lab::CONNECT_FAILED,
            Self::Spawn => &lab::COMMAND_NOT_STARTED,
            Self::Send
            | Self::Receive
            | Self::Epoll
            | Self::PidfdOpen
            | Self::Waitid
            | Self::Malloc => &lab::REQUEST_SYSTEM_CALL,
            Self::NssTryAgain
            | Self::NssUnavailable
            | Self::Getpwnam
            | Self::Getpwuid
            | Self::Getgrnam
            | Self::Getgrgid
            | Self::Getgrouplist => &lab::LOOKUP_FAILED,
        }
    }
}

/// Sources of error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CodeSource {
    Ldap,
    /// A search with result code 0 and without an entry.
    LdapEmptySearch,
    Dns,
    /// NOERROR without a record of the type (NODATA, RFC 2308).
    DnsNoData,
    /// NOERROR with the flag for truncation.
    DnsTruncated,
    Kerberos,
    Pam,
}

impl CodeSource {
    fn protocol(self) -> &'static str {
        match self {
            Self::Ldap | Self::LdapEmptySearch => "LDAP",
            Self::Dns | Self::DnsNoData | Self::DnsTruncated => "DNS",
            Self::Kerberos => "Kerberos",
            Self::Pam => "PAM",
        }
    }

    fn message(self) -> &'static Message {
        match self {
            Self::Ldap => &lab::LDAP_RESULT,
            Self::LdapEmptySearch => &lab::LDAP_NOTHING_FOUND,
            Self::Dns => &lab::DNS_ERROR,
            Self::DnsNoData => &lab::DNS_NO_DATA,
            Self::DnsTruncated => &lab::DNS_TRUNCATED,
            Self::Kerberos => &lab::KERBEROS_ERROR,
            Self::Pam => &lab::PAM_ERROR,
        }
    }
}

/// Kinds of failures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestError {
    /// No reply arrived within `--timeout`.
    TimedOut,
    /// The request was due, but all users were busy until the end of the run.
    NotSent,
    /// A call failed with this error number.
    System(SystemCall, i32),
    /// The server closed the connection before its reply.
    Closed,
    /// The server's bytes do not conform to the protocol.
    Malformed(&'static str),
    /// TLS failed.
    Tls(String),
    /// The server or library returned a code that is not success, and its name.
    ErrorCode(CodeSource, u32, Cow<'static, str>),
    /// No user or group has the key.
    NotFound,
    /// The search filter is invalid.
    InvalidFilter(String),
    /// The DNS name is invalid.
    InvalidName(&'static str),
    /// A string for the C library contains a NUL byte.
    NulByte(&'static str),
    /// The key of a lookup is not UTF-8.
    NotUtf8,
    /// A command ended with this exit code.
    Exited(i32),
    /// A signal ended a command.
    Killed(i32),
}

/// Text for failures beyond the kinds that a recorder distinguishes.
pub const OTHER_KINDS: &str = "of other kinds";

impl RequestError {
    /// Returns the failure of a system call.
    #[must_use]
    pub fn system(call: SystemCall, error: &io::Error) -> Self {
        Self::System(call, error.raw_os_error().unwrap_or_default())
    }

    /// Returns the code of this kind.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::TimedOut => &lab::REQUEST_TIMEOUT,
            Self::NotSent => &lab::REQUEST_NOT_SENT,
            Self::System(call, _) => call.message(),
            Self::Closed => &lab::CONNECTION_CLOSED,
            Self::Malformed(_) => &lab::REPLY_MALFORMED,
            Self::Tls(_) => &lab::TLS_FAILED,
            Self::ErrorCode(source, ..) => source.message(),
            Self::NotFound => &lab::ENTRY_NOT_FOUND,
            Self::InvalidFilter(_) => &lab::FILTER_SYNTAX,
            Self::InvalidName(_) => &lab::DNS_NAME_INVALID,
            Self::NulByte(_) => &lab::NUL_IN_REQUEST,
            Self::NotUtf8 => &lab::KEY_NOT_UTF8,
            Self::Exited(_) => &lab::COMMAND_EXITED,
            Self::Killed(_) => &lab::COMMAND_KILLED,
        }
    }

    /// Returns an error with the code of this kind. `object` names the server or the request.
    #[must_use]
    pub fn into_error(self, object: impl Display) -> anyhow::Error {
        coded(self.message(), format!("{object}: {self}"))
    }

    /// Returns whether the elapsed time is a latency. A request that timed out took at least that time, and percentiles
    /// without it would hide a stall. A rejected connection is not a fast reply.
    #[must_use]
    pub fn has_latency(&self) -> bool {
        !matches!(
            self,
            Self::System(..)
                | Self::Closed
                | Self::Malformed(_)
                | Self::Tls(_)
                | Self::InvalidFilter(_)
                | Self::InvalidName(_)
                | Self::NulByte(_)
                | Self::NotUtf8
        )
    }

    /// Returns whether a user waits before its next request, because the server is unreachable.
    #[must_use]
    pub fn is_transport_error(&self) -> bool {
        !self.has_latency()
    }
}

impl Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("no reply in time"),
            Self::NotSent => f.write_str("not sent before the end"),
            Self::System(call, code) => {
                write!(f, "{}: {}", call.name(), io::Error::from_raw_os_error(*code))
            }
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Malformed(problem) => write!(f, "malformed reply: {problem}"),
            Self::Tls(problem) => write!(f, "TLS: {problem}"),
            Self::ErrorCode(source, code, name) => {
                write!(f, "{} {code} {name}", source.protocol())
            }
            Self::InvalidFilter(problem) => f.write_str(problem),
            Self::InvalidName(problem) => write!(f, "invalid name: {problem}"),
            Self::NulByte(part) => write!(f, "NUL byte in the {part}"),
            Self::NotUtf8 => f.write_str("key is not UTF-8"),
            Self::NotFound => f.write_str("not found"),
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => write!(f, "ended by signal {signal}"),
        }
    }
}
