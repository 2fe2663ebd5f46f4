//! Errors of one server, worded for an administrator.

use crate::ber::BerError;
use std::io;
use std::time::Duration;

/// An error of one server.
#[derive(Debug, thiserror::Error)]
pub enum LdapError {
    /// The name has no address.
    #[error("its name cannot be resolved: {0}")]
    Resolve(io::Error),
    /// The server cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// TLS failed.
    #[error("TLS: {0}")]
    Tls(String),
    /// The server refused StartTLS.
    #[error("the server refuses StartTLS: {0}; use ldaps:// or set start_tls = false")]
    StartTls(String),
    /// A password would cross the network in clear text.
    #[error(
        "the password would cross the network in clear: use ldaps:// or start_tls, or allow it \
         with allow_clear_password = true"
    )]
    ClearPassword,
    /// The server refused the bind.
    #[error("bind as {who} failed: {outcome}")]
    Bind {
        /// The bind DN, or a description of the bind method.
        who: String,
        /// The server's reply.
        outcome: String,
    },
    /// The connection broke.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server closed or reset the connection before it sent anything.
    #[error(
        "the server closed the connection without a word: is its port one for TLS? Such a one, as \
         636, takes ldaps://"
    )]
    ClosedBeforeReply,
    /// The server announced that it closes the connection.
    #[error("the server ends the connection: {0}")]
    Disconnected(String),
    /// No reply arrived in time.
    #[error("no answer to {what} within {} s", .deadline.as_secs_f32())]
    NoReply {
        /// The request.
        what: &'static str,
        /// The time limit.
        deadline: Duration,
    },
    /// A lookup took too long. The server may be well.
    #[error(
        "no answer to a look-up within {} s: the server may lack an index for it",
        .deadline.as_secs_f32()
    )]
    Slow {
        /// The time limit.
        deadline: Duration,
    },
    /// A request timed out while the server answered others.
    #[error("no answer to {what} within {} s, while the server answers others", .deadline.as_secs_f32())]
    BusyServer {
        /// The request.
        what: &'static str,
        /// The time limit.
        deadline: Duration,
    },
    /// The bytes are not LDAP.
    #[error(transparent)]
    Malformed(#[from] BerError),
    /// A search failed.
    #[error("search below {base:?} failed: {outcome}")]
    Search {
        /// The base of the search.
        base: String,
        /// The server's reply, and the fix.
        outcome: String,
        /// The result code.
        code: u32,
    },
    /// An entry without a permanent key.
    #[error("entry {dn} has no readable {attribute}: let the bind DN read it, or configure `uuid`")]
    MissingKey {
        /// Its DN.
        dn: String,
        /// The attribute of the key.
        attribute: String,
    },
    /// A mirror exceeds its limit of entries.
    #[error(
        "more than {most} {what} are found below {base:?}: narrow the bases or filters, or set mode = \"on-demand\""
    )]
    TooManyEntries {
        /// The base of the search.
        base: String,
        /// The items that are counted.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// Names of containers exceed their limit of memory.
    #[error(
        "the names of folders below {base:?} take more than 96 MiB: narrow the bases, or set mode = \"on-demand\""
    )]
    TooManyContainers {
        /// The base of the search.
        base: String,
    },
    /// A lookup found too many entries.
    #[error("a look-up found more than {0} entries: narrow the search bases or filters")]
    TooManyResults(usize),
    /// Lookups exceed their limit of memory.
    #[error("look-ups bring more than {} MiB at once: mirror the domain instead", .0 >> 20)]
    ResultsTooLarge(usize),
}

impl LdapError {
    /// Returns whether the error concerns one query only, so that others may succeed.
    pub fn is_query_specific(&self) -> bool {
        matches!(
            self,
            Self::Search { .. }
                | Self::Slow { .. }
                | Self::TooManyResults(_)
                | Self::ResultsTooLarge(_)
        )
    }

    /// Returns whether the server may refuse all queries. Limits concern one query.
    pub fn suggests_server_unusable(&self) -> bool {
        use crate::message::code::{ADMIN_LIMIT, SIZE_LIMIT, TIME_LIMIT};
        matches!(self, Self::Search { code, .. } if ![ADMIN_LIMIT, SIZE_LIMIT, TIME_LIMIT].contains(code))
    }

    /// Returns whether the server does not support the request or denies it to us. Then another request may work on the
    /// same connection.
    pub fn is_refusal(&self) -> bool {
        // protocolError, strongerAuthRequired, unavailableCriticalExtension, insufficientAccessRights,
        // unwillingToPerform
        matches!(self, Self::Search { code: 2 | 8 | 12 | 50 | 53, .. })
    }
}
