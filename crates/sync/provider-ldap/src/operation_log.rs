// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log lines of a connection: one debug line for each search, bind, extended operation and password change, and a
//! warning for each slow one. Passwords are not part of any line. `connection` measures the operations.

use crate::filter::EncodedFilter;
use crate::filter_text::{FilterValues, filter_text};
use crate::message::{
    LdapRequest, LdapResponse, LdapResult, RequestControl, ResponseOperation, Scope, SearchRequest,
    code, printable,
};
use roster_messages::table::directory;
use roster_messages::{RequestNumber, log};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{Level, debug, enabled, trace};

/// A longer operation is a warning.
const SLOW: Duration = Duration::from_secs(3);
/// A search with more entries reads a part of a mirror, which takes its time on a large directory.
const SLOW_ENTRIES_MAX: u32 = 1000;
/// Largest number of operations in progress. A connection has fewer.
const PENDING_MAX: usize = 512;
/// Longest DN in a line, in bytes.
const DN_BYTES_MAX: usize = 512;

/// The operations of a connection that have no result yet.
pub struct OperationLog {
    server: String,
    pending: Vec<PendingOperation>,
}

/// An operation without a result.
struct PendingOperation {
    id: u32,
    kind: OperationKind,
    /// The base and the filter, or the DN. Empty unless the level of the log includes it.
    details: OperationDetails,
    request: RequestNumber,
    begun: Instant,
    entries: u32,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperationKind {
    Search,
    /// A search that reports changes until the connection ends.
    ChangeSearch,
    /// A search for the root DSE, which shows that the server replies.
    Keepalive,
    Bind,
    /// The extended operation of RFC 3062.
    PasswordChange,
    /// A password change, or the date of one.
    Modify,
}

impl OperationKind {
    /// Returns the kind; `None` for a request without a result.
    fn of_request(request: &LdapRequest<'_>, controls: &[RequestControl<'_>]) -> Option<Self> {
        let is_endless = |control: &RequestControl<'_>| {
            matches!(control, RequestControl::Sync(_) | RequestControl::PersistentSearch)
        };
        match request {
            LdapRequest::Search(_) if controls.iter().any(is_endless) => Some(Self::ChangeSearch),
            LdapRequest::Search(SearchRequest { base: "", attributes: ["1.1"], .. }) => {
                Some(Self::Keepalive)
            }
            LdapRequest::Search(_) => Some(Self::Search),
            LdapRequest::SimpleBind { .. }
            | LdapRequest::ExternalBind
            | LdapRequest::GssapiBind(_) => Some(Self::Bind),
            LdapRequest::ModifyPassword { .. } => Some(Self::PasswordChange),
            LdapRequest::Modify { .. } => Some(Self::Modify),
            // StartTLS is sent before the connection has a log.
            LdapRequest::StartTls | LdapRequest::Abandon(_) | LdapRequest::Unbind => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Search | Self::ChangeSearch => "search",
            Self::Keepalive => "keepalive",
            Self::Bind => "bind",
            Self::PasswordChange => "password change",
            Self::Modify => "modify",
        }
    }
}

/// The base, the scope and the filter of a search, or the DN of another operation.
#[derive(Default)]
struct OperationDetails {
    base: String,
    scope: &'static str,
    filter: Option<EncodedFilter>,
}

impl OperationDetails {
    fn filter_text(&self, values: FilterValues) -> String {
        let text = self.filter.as_ref().map(|filter| filter_text(filter, values));
        text.unwrap_or_default()
    }

    fn of_request(request: &LdapRequest<'_>) -> Self {
        let bounded = |dn: &str| printable(&dn.as_bytes()[..dn.floor_char_boundary(DN_BYTES_MAX)]);
        match request {
            LdapRequest::Search(search) => Self {
                base: bounded(search.base),
                scope: match search.scope {
                    Scope::Base => "base",
                    Scope::One => "one",
                    Scope::Subtree => "subtree",
                },
                filter: Some(search.filter.clone()),
            },
            LdapRequest::SimpleBind { dn, .. }
            | LdapRequest::ModifyPassword { dn, .. }
            | LdapRequest::Modify { dn, .. } => Self { base: bounded(dn), ..Self::default() },
            LdapRequest::ExternalBind => Self { base: "SASL EXTERNAL".into(), ..Self::default() },
            LdapRequest::GssapiBind(_) => Self { base: "SASL GSSAPI".into(), ..Self::default() },
            LdapRequest::StartTls | LdapRequest::Abandon(_) | LdapRequest::Unbind => {
                Self::default()
            }
        }
    }
}

/// Returns a result for a line.
fn result_text(result: &LdapResult<'_>) -> String {
    match result.code {
        code::SUCCESS => "success".to_owned(),
        _ => result.to_string(),
    }
}

impl OperationLog {
    /// Makes the log of a connection to that server.
    pub fn new(server: String) -> Self {
        Self { server, pending: Vec::new() }
    }

    /// Notes a request that is sent.
    pub fn sent(&mut self, id: u32, request: &LdapRequest<'_>, controls: &[RequestControl<'_>]) {
        if let LdapRequest::Abandon(abandoned) = request {
            self.end(*abandoned, "abandoned");
        }
        let Some(kind) = OperationKind::of_request(request, controls) else { return };
        if self.pending.len() >= PENDING_MAX {
            return;
        }
        let is_shown = match kind {
            OperationKind::Keepalive => enabled!(Level::TRACE),
            _ => enabled!(Level::DEBUG),
        };
        let details =
            if is_shown { OperationDetails::of_request(request) } else { Default::default() };
        if kind == OperationKind::ChangeSearch {
            let OperationDetails { base, scope, .. } = &details;
            // The filter of a mirror has no names.
            let filter = details.filter_text(FilterValues::Shown);
            debug!(server = self.server, base, scope, filter, "search for changes begins");
        }
        let (request, begun) = (RequestNumber::current(), Instant::now());
        self.pending.push(PendingOperation { id, kind, details, request, begun, entries: 0 });
    }

    /// Notes a response: counts an entry, or logs the end of its operation.
    pub fn received(&mut self, response: &LdapResponse<'_>) {
        match &response.operation {
            ResponseOperation::Entry(_) => {
                let one = self.pending.iter_mut().find(|one| one.id == response.id);
                if let Some(one) = one {
                    one.entries = one.entries.saturating_add(1);
                }
            }
            ResponseOperation::SearchDone(result)
            | ResponseOperation::BindDone(result)
            | ResponseOperation::ModifyDone(result)
            | ResponseOperation::Extended(result, _)
                if response.id != 0 =>
            {
                let Some(at) = self.pending.iter().position(|one| one.id == response.id) else {
                    return;
                };
                let one = self.pending.swap_remove(at);
                let result =
                    if enabled!(Level::DEBUG) { result_text(result) } else { String::new() };
                one.log(&self.server, &result);
            }
            ResponseOperation::BindStep(_) => self.end(response.id, "continues"),
            _ => {}
        }
    }

    /// Logs the end of an operation without a result of the server.
    fn end(&mut self, id: u32, result: &str) {
        if let Some(at) = self.pending.iter().position(|one| one.id == id) {
            self.pending.swap_remove(at).log(&self.server, result);
        }
    }
}

impl Drop for OperationLog {
    /// The operations in progress end with their connection.
    fn drop(&mut self) {
        for one in std::mem::take(&mut self.pending) {
            one.log(&self.server, "connection ended");
        }
    }
}

impl PendingOperation {
    fn log(self, server: &str, result: &str) {
        let Self { kind, details, request, begun, entries, .. } = self;
        let _entered = request.enter();
        let duration = begun.elapsed();
        let ms = duration.as_micros() as f64 / 1000.0;
        let OperationDetails { base, scope, .. } = &details;
        match kind {
            OperationKind::Search | OperationKind::ChangeSearch => {
                let values = if entries > 0 { FilterValues::Shown } else { FilterValues::Hidden };
                let filter = details.filter_text(values);
                debug!(server, base, scope, filter, result, entries, ms, "search");
            }
            OperationKind::Keepalive => trace!(server, result, ms, "keepalive"),
            OperationKind::Bind => debug!(server, dn = base, result, ms, "bind"),
            OperationKind::PasswordChange => {
                debug!(server, dn = base, result, ms, "password change");
            }
            OperationKind::Modify => debug!(server, dn = base, result, ms, "modify"),
        }
        let is_bulk = kind == OperationKind::ChangeSearch || entries > SLOW_ENTRIES_MAX;
        if duration >= SLOW && !is_bulk {
            let (operation, seconds) = (kind.name(), duration.as_secs_f64());
            log!(
                WARN,
                &directory::OPERATION_SLOW,
                server,
                operation,
                "{server}: {operation} took {seconds:.1} s"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AttributeChange, ChangeKind};
    use roster_system_tests::logged_codes::logged_codes;
    use tokio::time::advance;

    const SEARCH_DONE: &[u8] = b"\x30\x0c\x02\x01\x07\x65\x07\x0a\x01\x00\x04\x00\x04\x00";

    fn search(filter: &EncodedFilter) -> LdapRequest<'_> {
        let (base, attributes) = ("dc=x", &["uid"][..]);
        LdapRequest::Search(SearchRequest {
            base,
            scope: Scope::Subtree,
            filter,
            attributes,
            entries_max: 0,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn operation_over_three_seconds_is_warning() {
        let filter = EncodedFilter::equals("uid", b"alice");
        let done = LdapResponse::parse(SEARCH_DONE).expect("a response");
        for (wait, controls, expected) in [
            (SLOW, &[][..], &[&directory::OPERATION_SLOW][..]),
            (SLOW - Duration::from_millis(1), &[], &[]),
            (SLOW, &[RequestControl::PersistentSearch], &[]),
        ] {
            let mut operations = OperationLog::new("ldap://h:389".into());
            operations.sent(7, &search(&filter), controls);
            advance(wait).await;
            let logged = logged_codes(|| operations.received(&done));
            assert_eq!(logged, expected, "{wait:?}");
            assert!(operations.pending.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn operation_without_result_is_warning_too() {
        let filter = EncodedFilter::equals("uid", b"alice");
        let mut operations = OperationLog::new("ldap://h:389".into());
        operations.sent(1, &search(&filter), &[]);
        operations.sent(2, &search(&filter), &[]);
        advance(SLOW).await;
        let abandoned = logged_codes(|| operations.sent(3, &LdapRequest::Abandon(1), &[]));
        assert_eq!(abandoned, [&directory::OPERATION_SLOW]);
        assert_eq!(logged_codes(|| drop(operations)), [&directory::OPERATION_SLOW]);
    }

    #[test]
    fn operation_details_have_no_password() {
        let (password, old, new) = (&b"secret"[..], &b"secret"[..], &b"secret"[..]);
        let (kind, attribute) = (ChangeKind::Replace, "userPassword");
        let change = AttributeChange { kind, attribute, value: new };
        for request in [
            LdapRequest::SimpleBind { dn: "uid=a,dc=x", password },
            LdapRequest::ModifyPassword { dn: "uid=a,dc=x", old, new },
            LdapRequest::Modify { dn: "uid=a,dc=x", changes: &[change] },
        ] {
            let OperationDetails { base, scope, filter } = OperationDetails::of_request(&request);
            assert_eq!((&*base, scope, filter), ("uid=a,dc=x", "", None));
        }
    }
}
