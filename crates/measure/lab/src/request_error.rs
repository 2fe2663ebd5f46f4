//! Why a request brought no good answer. Reports count them by kind, so that a kind is few words and
//! never the text of a single request.

use std::borrow::Cow;
use std::fmt;
use std::io;

/// A kind of failure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestError {
    /// No answer within `--timeout`.
    TimedOut,
    /// Due, but all users were busy until the end.
    NotSent,
    /// The system refused: what was done, and its error number.
    System(&'static str, i32),
    /// The server closed the connection before it answered.
    Closed,
    /// The server's bytes are no answer.
    Malformed(&'static str),
    /// TLS does not come about or breaks.
    Tls(String),
    /// The server answered with a code that is not success: the protocol, and the code's name.
    ErrorCode(&'static str, u32, Cow<'static, str>),
    /// What was looked up is not there.
    NotFound,
    /// It cannot be begun at all.
    Setup(String),
    /// A command ended with this code.
    Exited(i32),
    /// A command was ended by this signal.
    Killed(i32),
}

impl RequestError {
    /// Of a system call.
    #[must_use]
    pub fn system(doing: &'static str, error: &io::Error) -> Self {
        Self::System(doing, error.raw_os_error().unwrap_or_default())
    }

    /// Whether the time that passed is a latency: a request that timed out took at least so long, and a
    /// figure without it would hide a stall. A connection that was refused at once is no quick answer.
    #[must_use]
    pub fn has_latency(&self) -> bool {
        !matches!(
            self,
            Self::System(..) | Self::Closed | Self::Malformed(_) | Self::Tls(_) | Self::Setup(_)
        )
    }

    /// Whether to leave the server alone for a moment, for it cannot be talked to.
    #[must_use]
    pub fn is_transport_error(&self) -> bool {
        !self.has_latency()
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("no answer in time"),
            Self::NotSent => f.write_str("not sent before the end"),
            Self::System(doing, code) => {
                write!(f, "{doing}: {}", io::Error::from_raw_os_error(*code))
            }
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Malformed(what) => write!(f, "malformed answer: {what}"),
            Self::Tls(what) => write!(f, "TLS: {what}"),
            Self::ErrorCode(protocol, code, name) => write!(f, "{protocol} {code} {name}"),
            Self::Setup(what) => f.write_str(what),
            Self::NotFound => f.write_str("not found"),
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => write!(f, "ended by signal {signal}"),
        }
    }
}
