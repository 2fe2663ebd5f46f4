// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keepalives: small searches that distinguish a quiet server from a dead one. `track::server_liveness` decides when
//! one is sent.

use crate::connection::{ConnectionSettings, LdapConnection};
use crate::error::LdapError;
use crate::filter::EncodedFilter;
use crate::message::{LdapRequest, Scope, SearchRequest};
use roster_config::LdapServer;
use std::time::Duration;
use tokio::time::timeout;

/// Silence is normal while changes are followed. After this time a keepalive checks that the server still answers. It
/// costs two packets.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(4);
/// Timeout of the reply to a keepalive.
pub(crate) const KEEPALIVE_DEADLINE: Duration = Duration::from_secs(5);
/// A dead server is reported within this time.
const _: () = assert!(KEEPALIVE_INTERVAL.as_secs() + KEEPALIVE_DEADLINE.as_secs() < 10);

/// Times of the checks of a followed server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LivenessTimes {
    /// While a response is due: silence before the check over a second connection.
    pub second_check_after: Duration,
    /// Timeout of the check over a second connection.
    pub second_check_deadline: Duration,
    /// Timeout of a keepalive.
    pub keepalive_deadline: Duration,
}

impl LivenessTimes {
    /// Times for servers of any kind.
    pub const DEFAULT: Self = Self {
        second_check_after: KEEPALIVE_INTERVAL,
        second_check_deadline: KEEPALIVE_DEADLINE,
        keepalive_deadline: KEEPALIVE_DEADLINE,
    };
    /// Times for domain controllers: another one takes over, so a request may be 3 s late.
    pub const CONTROLLERS: Self = Self {
        second_check_after: Duration::from_secs(1),
        second_check_deadline: Duration::from_secs(2),
        keepalive_deadline: Duration::from_secs(3),
    };
}

/// Queues a search for the root DSE, which every server has. Returns the id of the request.
pub(crate) fn queue_keepalive(connection: &mut LdapConnection) -> u32 {
    let request = LdapRequest::Search(SearchRequest {
        base: "",
        scope: Scope::Base,
        filter: &EncodedFilter::present("objectClass"),
        attributes: &["1.1"],
        entries_max: 0,
    });
    connection.queue(&request, &[])
}

/// Returns the error of a server that leaves a keepalive without a reply.
pub(crate) fn keepalive_error(deadline: Duration) -> LdapError {
    LdapError::NoReply { what: "a keepalive", deadline }
}

/// Returns whether the server answers on a new connection. While it works on a search, it may read nothing else on the
/// first one. A refusal is an answer.
pub(crate) async fn answers_second_connection(
    server: &LdapServer,
    settings: &ConnectionSettings,
    deadline: Duration,
) -> bool {
    match timeout(deadline, LdapConnection::open_for_check(server, settings)).await {
        Ok(Ok((connection, _))) => {
            connection.close().await;
            true
        }
        Ok(Err(LdapError::NoReply { .. })) | Err(_) => false,
        Ok(Err(_)) => true,
    }
}
