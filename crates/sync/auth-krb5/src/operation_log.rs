// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log lines of Kerberos operations: one debug line for each, and a warning for a slow one. `roster-krb5` writes no
//! log. Its backend logs for it, with the number of the request. `kdc_selection` measures the operations.

use roster_krb5_helper::ipc::{HelperOperation, HelperReply, HelperRequest};
use roster_krb5_helper::realm::Realm;
use roster_messages::{RequestNumber, log, table::login};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{Level, debug, enabled};

/// A longer operation is a warning.
const SLOW: Duration = Duration::from_secs(3);

/// An operation in progress. The drop without a reply is logged as well.
pub struct KerberosOperation {
    operation: HelperOperation,
    request: RequestNumber,
    realm: String,
    /// The principal, and the KDCs in the order of the queries. Empty unless the level of the log includes them.
    principal: String,
    kdcs: String,
    begun: Instant,
    result: String,
}

fn operation_name(operation: HelperOperation) -> &'static str {
    match operation {
        HelperOperation::Ticket => "ticket",
        HelperOperation::MayChange => "ticket for a password change",
        HelperOperation::Change => "password change",
        HelperOperation::Probe => "probe",
    }
}

impl KerberosOperation {
    /// Begins an operation. `realm` is that of the request, or the default.
    pub fn begin(request: &HelperRequest, realm: &Realm) -> Self {
        let realm = request.realm.as_ref().unwrap_or(realm);
        let (mut principal, mut kdcs) = (String::new(), String::new());
        if enabled!(Level::DEBUG) {
            principal = match request.is_principal {
                true => request.name.clone(),
                false => format!("{}@{}", request.name, realm.name),
            };
            kdcs = realm.kdcs.join(",");
            if realm.discover {
                kdcs += if kdcs.is_empty() { "DNS" } else { ",DNS" };
            }
        }
        Self {
            operation: request.operation,
            request: RequestNumber::current(),
            realm: realm.name.clone(),
            principal,
            kdcs,
            begun: Instant::now(),
            result: String::new(),
        }
    }

    /// Ends the operation with a reply.
    pub fn end(mut self, reply: &HelperReply) {
        if enabled!(Level::DEBUG) {
            self.result = match &*reply.detail {
                "" => format!("{:?}", reply.outcome),
                detail => format!("{:?}: {detail}", reply.outcome),
            };
        }
    }
}

impl Drop for KerberosOperation {
    fn drop(&mut self) {
        let Self { operation, request, realm, principal, kdcs, begun, result } = self;
        let _entered = request.enter();
        let duration = begun.elapsed();
        let ms = duration.as_micros() as f64 / 1000.0;
        let name = operation_name(*operation);
        let result = if result.is_empty() { "no reply" } else { result.as_str() };
        debug!(operation = name, principal = &**principal, kdcs = &**kdcs, result, ms, "Kerberos");
        // A probe of a silent KDC takes its time limit.
        if duration >= SLOW && *operation != HelperOperation::Probe {
            let seconds = duration.as_secs_f64();
            log!(
                WARN,
                &login::KERBEROS_SLOW,
                operation = name,
                realm = &**realm,
                "{realm}: {name} took {seconds:.1} s"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_krb5_helper::kdc_errors::KdcOutcome;
    use roster_system_tests::logged_codes::logged_codes;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn kerberos_over_three_seconds_is_warning() {
        let realm = Realm {
            name: "LAB.TEST".into(),
            kdcs: Vec::new(),
            kpasswds: Vec::new(),
            discover: true,
        };
        let reply = HelperReply::from_outcome(0, KdcOutcome::Success, "");
        for (operation, wait, expected) in [
            (HelperOperation::Ticket, SLOW, &[&login::KERBEROS_SLOW][..]),
            (HelperOperation::Ticket, SLOW - Duration::from_millis(1), &[]),
            (HelperOperation::Probe, SLOW, &[]),
        ] {
            let request = crate::request("alice", operation, b"secret", b"", SLOW);
            let begun = KerberosOperation::begin(&request, &realm);
            let unanswered = KerberosOperation::begin(&request, &realm);
            advance(wait).await;
            assert_eq!(logged_codes(|| begun.end(&reply)), expected, "{operation:?}");
            assert_eq!(logged_codes(|| drop(unanswered)), expected, "{operation:?}");
        }
    }
}
