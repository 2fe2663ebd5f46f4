//! Why a server did not give what was asked of it, in words for an administrator.

use crate::ber::Malformed;
use std::io;
use std::time::Duration;

/// What went wrong with one server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No address.
    #[error("its name cannot be resolved: {0}")]
    Resolve(io::Error),
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// TLS failed.
    #[error("TLS: {0}")]
    Tls(String),
    /// StartTLS was refused.
    #[error("the server refuses StartTLS: {0}; use ldaps:// or set start_tls = false")]
    StartTls(String),
    /// A password would be readable on the way.
    #[error(
        "the password would cross the network in clear: use ldaps:// or start_tls, or allow it \
         with allow_clear_password = true"
    )]
    ClearPassword,
    /// The bind was refused.
    #[error("bind as {who} failed: {outcome}")]
    Bind {
        /// The bind DN, or what stands for it.
        who: String,
        /// The server's words.
        outcome: String,
    },
    /// The connection broke.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The server closed it.
    #[error("the server closed the connection")]
    Closed,
    /// The server closed it, or broke it off, before it had said anything.
    #[error(
        "the server closed the connection without a word: is its port one for TLS? Such a one, as \
         636, takes ldaps://"
    )]
    Wordless,
    /// The server announced that it will close it.
    #[error("the server ends the connection: {0}")]
    Disconnected(String),
    /// Nothing came in time.
    #[error("no answer to {what} within {} s", .deadline.as_secs_f32())]
    Silent {
        /// What was asked.
        what: &'static str,
        /// How long was waited.
        deadline: Duration,
    },
    /// A look-up took too long; the server may be well.
    #[error(
        "no answer to a look-up within {} s: the server may lack an index for it",
        .deadline.as_secs_f32()
    )]
    Slow {
        /// How long was waited.
        deadline: Duration,
    },
    /// The server answers other questions meanwhile.
    #[error("no answer to {what} within {} s, while the server answers others", .deadline.as_secs_f32())]
    AtWork {
        /// What was asked.
        what: &'static str,
        /// How long was waited.
        deadline: Duration,
    },
    /// Not LDAP.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A search failed.
    #[error("search below {base:?} failed: {outcome}")]
    Search {
        /// Its base.
        base: String,
        /// The server's words, and what to do.
        outcome: String,
        /// The result code.
        code: u32,
    },
    /// An entry without lasting key.
    #[error("entry {dn} has no readable {attribute}: let the bind DN read it, or configure `uuid`")]
    Keyless {
        /// Which.
        dn: String,
        /// The attribute of the key.
        attribute: String,
    },
    /// More entries than a mirror has room for.
    #[error(
        "more than {most} {what} are found below {base:?}: narrow the bases or filters, or set mode = \"on-demand\""
    )]
    TooManyEntries {
        /// The base of the search.
        base: String,
        /// Of what.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
    /// More folders than there is room for.
    #[error(
        "the names of folders below {base:?} take more than 96 MiB: narrow the bases, or set mode = \"on-demand\""
    )]
    TooManyFolders {
        /// The base of the search.
        base: String,
    },
    /// A look-up found more than any should.
    #[error("a look-up found more than {0} entries: narrow the search bases or filters")]
    TooMany(usize),
    /// A look-up brought more than there is room for.
    #[error("look-ups bring more than {} MiB at once: mirror the domain instead", .0 >> 20)]
    TooLarge(usize),
}

impl Error {
    /// Whether it says something of one question only, and others may be answered.
    pub fn is_of_the_question(&self) -> bool {
        matches!(
            self,
            Self::Search { .. } | Self::Slow { .. } | Self::TooMany(_) | Self::TooLarge(_)
        )
    }

    /// Whether it may be that the server answers no question at all; limits are of one question.
    pub fn casts_doubt(&self) -> bool {
        use crate::message::code::{ADMIN_LIMIT, SIZE_LIMIT, TIME_LIMIT};
        matches!(self, Self::Search { code, .. } if ![ADMIN_LIMIT, SIZE_LIMIT, TIME_LIMIT].contains(code))
    }

    /// Whether the server does not do what was asked, or not for us, so that something else may be
    /// tried on the same connection.
    pub fn is_refusal(&self) -> bool {
        // protocolError, strongerAuthRequired, unavailableCriticalExtension,
        // insufficientAccessRights, unwillingToPerform
        matches!(self, Self::Search { code: 2 | 8 | 12 | 50 | 53, .. })
    }
}
