// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of one server, worded for an administrator. `server_selection` decides when the server is tried again.

use crate::ber::BerError;
use crate::message::code;
use roster_messages::{Message, table::directory};
use roster_provider::reason::Reason;
use std::io;
use std::time::Duration;

/// An error of one server.
#[derive(Debug, thiserror::Error)]
pub enum LdapError {
    /// The name has no address.
    #[error("host name cannot be resolved: {0}")]
    Resolve(io::Error),
    /// The server cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// TLS failed.
    #[error("TLS: {0}")]
    Tls(Reason),
    /// The server refused StartTLS.
    #[error("StartTLS refused: {0}")]
    StartTls(String),
    /// A password would cross the network in clear text.
    #[error("bind password would cross the network unencrypted")]
    ClearPassword,
    /// The server refused the bind.
    #[error("bind as {who} failed: {outcome}")]
    Bind {
        /// The bind DN, or a description of the bind method.
        who: String,
        /// The server's reply.
        outcome: String,
    },
    /// A bind by this host's key failed, here, at the KDC, or at the server.
    #[error("GSSAPI: {0}")]
    Gssapi(Reason),
    /// The server is not a controller of the configured Active Directory domain.
    #[error("{0}")]
    Directory(Reason),
    /// The connection broke.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The server closed the connection.
    #[error("server closed the connection")]
    Closed,
    /// The server closed or reset the connection before it sent anything.
    #[error("server closed the connection before its first reply")]
    ClosedBeforeReply,
    /// The server announced that it closes the connection.
    #[error("server ends the connection: {0}")]
    Disconnected(String),
    /// No reply arrived in time.
    #[error("no reply to {what} within {} s", .deadline.as_secs_f32())]
    NoReply {
        /// The request.
        what: &'static str,
        /// The time limit.
        deadline: Duration,
    },
    /// A lookup took too long. The server may be well.
    #[error("no reply to a lookup within {} s", .deadline.as_secs_f32())]
    Slow {
        /// The time limit.
        deadline: Duration,
    },
    /// A request timed out while the server answered others.
    #[error("no reply to {what} within {} s, but to other requests", .deadline.as_secs_f32())]
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
        /// The server's reply.
        outcome: String,
        /// The result code.
        code: u32,
    },
    /// An entry without a permanent key.
    #[error("entry {dn} has no readable {attribute}")]
    MissingKey {
        /// The entry's DN.
        dn: String,
        /// The attribute of the key.
        attribute: String,
    },
    /// A mirror exceeds its limit of entries.
    #[error("more than {most} {what} below {base:?}")]
    TooManyEntries {
        /// The base of the search.
        base: String,
        /// The items that are counted.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// Names of containers exceed their limit of memory.
    #[error("container names below {base:?} take more than 96 MiB")]
    TooManyContainers {
        /// The base of the search.
        base: String,
    },
    /// A lookup found too many entries.
    #[error("a lookup found more than {0} entries")]
    TooManyResults(usize),
    /// Lookups exceed their limit of memory.
    #[error("concurrent lookups take more than {} MiB", .0 >> 20)]
    ResultsTooLarge(usize),
}

impl LdapError {
    /// Returns the row of the table.
    pub fn message(&self) -> &'static Message {
        match self {
            Self::Resolve(_) => &directory::HOST_NOT_RESOLVED,
            Self::Connect(_) => &directory::CONNECT_FAILED,
            Self::Tls(reason) | Self::Gssapi(reason) | Self::Directory(reason) => reason.message,
            Self::StartTls(_) => &directory::START_TLS_REFUSED,
            Self::ClearPassword => &directory::BIND_PASSWORD_UNENCRYPTED,
            Self::Bind { .. } => &directory::BIND_FAILED,
            Self::Io(_) | Self::Closed => &directory::CONNECTION_LOST,
            Self::ClosedBeforeReply => &directory::CLOSED_BEFORE_REPLY,
            Self::Disconnected(_) => &directory::CONNECTION_ENDED,
            Self::NoReply { .. } => &directory::NO_REPLY,
            Self::Slow { .. } => &directory::LOOKUP_SLOW,
            Self::BusyServer { .. } => &directory::REQUEST_TIMEOUT,
            Self::Malformed(_) => &directory::MALFORMED_REPLY,
            Self::Search { code, .. } => search_message(*code),
            Self::MissingKey { .. } => &directory::ENTRY_WITHOUT_KEY,
            Self::TooManyEntries { .. } => &directory::TOO_MANY_ENTRIES,
            Self::TooManyContainers { .. } => &directory::TOO_MANY_CONTAINERS,
            Self::TooManyResults(_) => &directory::TOO_MANY_RESULTS,
            Self::ResultsTooLarge(_) => &directory::RESULTS_TOO_LARGE,
        }
    }

    /// Returns the error as a reason, with the server in front.
    pub fn reason(&self, server: &str) -> Reason {
        Reason::new(self.message(), self.to_string()).for_object(server)
    }

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
        matches!(self, Self::Search { code, .. } if !code::LIMITS.contains(code))
    }

    /// Returns whether the server does not support the request or denies it to us. Then another request may work on the
    /// same connection.
    pub fn is_refusal(&self) -> bool {
        // protocolError, strongerAuthRequired, unavailableCriticalExtension, insufficientAccessRights,
        // unwillingToPerform
        matches!(self, Self::Search { code: 2 | 8 | 12 | 50 | 53, .. })
    }
}

fn search_message(result: u32) -> &'static Message {
    match result {
        code::SUCCESS => &directory::SEARCH_INTERRUPTED,
        _ if code::LIMITS.contains(&result) => &directory::SEARCH_LIMIT,
        code::NO_SUCH_OBJECT => &directory::SEARCH_BASE_MISSING,
        code::INSUFFICIENT_ACCESS => &directory::SEARCH_DENIED,
        code::SYNC_REFRESH_REQUIRED => &directory::SYNC_BROKEN,
        code::REFERRAL => &directory::REFERRAL,
        _ => &directory::SEARCH_FAILED,
    }
}

/// Combines the reasons of several servers. The code is that of the first reason that only an administrator can fix,
/// otherwise that of the first server. `None` without reasons.
pub fn join_reasons(reasons: &[Reason]) -> Option<Reason> {
    let texts: Vec<&str> = reasons.iter().map(|reason| &*reason.text).collect();
    let text = texts.join("; ");
    let is_outage = |reason: &&Reason| {
        let outages = [
            &directory::HOST_NOT_RESOLVED,
            &directory::CONNECT_FAILED,
            &directory::CONNECTION_LOST,
            &directory::CONNECTION_ENDED,
            &directory::NO_REPLY,
        ];
        outages.contains(&reason.message)
    };
    let first = reasons.iter().find(|reason| !is_outage(reason)).or(reasons.first())?;
    Some(Reason::new(first.message, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_reasons_prefer_code_of_configuration() {
        let down = LdapError::NoReply { what: "connect", deadline: Duration::from_secs(2) };
        let refused = LdapError::Bind { who: "cn=a".to_owned(), outcome: "no".to_owned() };
        let all = join_reasons(&[down.reason("ldap://a"), refused.reason("ldap://b")]);
        let all = all.expect("two");
        assert_eq!(all.message, &directory::BIND_FAILED);
        assert_eq!(
            all.text,
            "ldap://a: no reply to connect within 2 s; ldap://b: bind as cn=a failed: no"
        );
        let one = join_reasons(&[down.reason("ldap://a")]).expect("one");
        assert_eq!(one.message, &directory::NO_REPLY);
        assert_eq!(join_reasons(&[]), None);
    }

    #[test]
    fn errors_have_codes_of_their_causes() {
        let no = || io::Error::other("no");
        let deadline = Duration::from_secs(2);
        let search = |code| LdapError::Search { base: String::new(), outcome: String::new(), code };
        for (error, message) in [
            (LdapError::Resolve(no()), &directory::HOST_NOT_RESOLVED),
            (LdapError::StartTls(String::new()), &directory::START_TLS_REFUSED),
            (LdapError::Disconnected(String::new()), &directory::CONNECTION_ENDED),
            (LdapError::Slow { deadline }, &directory::LOOKUP_SLOW),
            (LdapError::BusyServer { what: "a login", deadline }, &directory::REQUEST_TIMEOUT),
            (LdapError::Malformed(BerError("no")), &directory::MALFORMED_REPLY),
            (search(80), &directory::SEARCH_FAILED),
            (search(code::INSUFFICIENT_ACCESS), &directory::SEARCH_DENIED),
            (search(code::SYNC_REFRESH_REQUIRED), &directory::SYNC_BROKEN),
            (search(code::REFERRAL), &directory::REFERRAL),
            (
                LdapError::MissingKey { dn: String::new(), attribute: String::new() },
                &directory::ENTRY_WITHOUT_KEY,
            ),
            (
                LdapError::TooManyEntries { base: String::new(), what: "entries", most: 1 },
                &directory::TOO_MANY_ENTRIES,
            ),
            (LdapError::TooManyContainers { base: String::new() }, &directory::TOO_MANY_CONTAINERS),
            (LdapError::TooManyResults(1), &directory::TOO_MANY_RESULTS),
        ] {
            assert_eq!(error.reason("ldap://a").message, message, "{error}");
        }
    }
}
