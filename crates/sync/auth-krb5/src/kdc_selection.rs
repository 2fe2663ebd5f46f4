// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selects the KDCs of a realm: tracks the available ones, and the preferred one. `helper` sends the requests, and
//! `kdc_availability` tracks the replies.
//!
//! libkrb5 queries one after the other, and waits for each. A missing reply may therefore be due to one silent KDC. The
//! realm counts as unavailable only after parallel probes of all KDCs without a reply.

use crate::helper::HelperClient;
use crate::kdc_availability::KdcAvailability;
use crate::operation_log::KerberosOperation;
use crate::{NONEXISTENT_USER, request};
use parking_lot::Mutex;
use roster_krb5_helper::ipc::{HelperOperation, HelperReply, HelperRequest};
use roster_krb5_helper::kdc_errors::KdcOutcome;
use roster_krb5_helper::realm::Realm;
use roster_messages::{RequestNumber, log, table::login};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Time limit of a probe of one address: by UDP, and a second later by TCP.
const PROBE: Duration = Duration::from_millis(1500);
/// First pause between probes of unavailable KDCs.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between probes.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Time for which the last KDC with a reply is queried first. Then the order of the configuration applies again.
const PREFERRED_FOR: Duration = Duration::from_secs(600);

/// A realm's KDCs, and the program that queries them.
pub struct KdcSelection {
    client: Arc<HelperClient>,
    realm: Realm,
    /// Time limit of an available KDC.
    timeout: Duration,
    availability: KdcAvailability,
    /// The preferred KDC, and the end of the preference.
    preferred: Mutex<Option<(String, Instant)>>,
    /// Allows one probe at a time.
    probe_lock: tokio::sync::Mutex<()>,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeResult {
    /// A KDC replies.
    Available,
    /// No KDC replies.
    Unavailable,
    /// Some KDCs could not be probed.
    Inconclusive,
}

impl KdcSelection {
    pub fn new(line: Arc<HelperClient>, realm: Realm, timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            client: line,
            realm,
            timeout,
            availability: KdcAvailability::default(),
            preferred: Mutex::default(),
            probe_lock: tokio::sync::Mutex::default(),
        })
    }

    /// Returns when the program has ended unexpectedly.
    pub async fn ended(&self) {
        self.client.ended().await;
    }

    /// Sends a request. The result is [`KdcOutcome::Unreachable`] only if no KDC replies at all. The probes start if
    /// there is no reply within `patience`.
    pub async fn send_request(
        self: &Arc<Self>,
        mut request: HelperRequest,
        patience: Duration,
    ) -> HelperReply {
        if let Some(since) = self.availability.unavailable_for() {
            let seconds = since.as_secs();
            let why = format!("no KDC has replied for {seconds} s");
            tracing::trace!(why, "no KDC is asked");
            return HelperReply {
                is_surely_unchanged: true,
                ..HelperReply::from_outcome(0, KdcOutcome::Unreachable, why)
            };
        }
        request.realm = self.preferred_realm();
        let begun = Instant::now();
        let asked = self.send_logged(request);
        tokio::pin!(asked);
        let reply = match timeout(patience, &mut asked).await {
            Ok(reply) => reply,
            // It is busy, not unavailable. Another KDC may be faster for the next request.
            Err(_) if self.availability.replied_recently() => {
                let servers = Arc::clone(self);
                let probe = async move { servers.probe_if_unknown(begun).await };
                tokio::spawn(RequestNumber::current().scope(probe));
                asked.await
            }
            Err(_) => match self.probe_if_unknown(begun).await {
                ProbeResult::Unavailable => {
                    let why = "no KDC replied in time";
                    self.mark_unavailable(why);
                    return HelperReply::from_outcome(0, KdcOutcome::Unreachable, why);
                }
                // A password goes to one KDC only: a wrong one would count twice.
                ProbeResult::Available | ProbeResult::Inconclusive => asked.await,
            },
        };
        match reply.outcome {
            KdcOutcome::Unreachable => {}
            // DNS may have been unavailable, and so named no KDC.
            KdcOutcome::Misconfigured if self.realm.discover => {}
            // The request did not reach a KDC.
            KdcOutcome::Failed => return reply,
            _ => {
                self.availability.mark_available();
                return reply;
            }
        }
        if self.probe_if_unknown(begun).await == ProbeResult::Unavailable {
            self.mark_unavailable(&reply.detail);
            let message = KdcOutcome::Unreachable.message();
            return HelperReply { outcome: KdcOutcome::Unreachable, message, ..reply };
        }
        if reply.outcome == KdcOutcome::Misconfigured {
            return reply;
        }
        let why = format!("{}; other KDCs may be available", reply.detail);
        HelperReply {
            is_surely_unchanged: reply.is_surely_unchanged,
            ..HelperReply::from_outcome(reply.id, KdcOutcome::Failed, why)
                .with_message(&login::KDC_PARTLY_UNREACHABLE)
        }
    }

    /// Sends a request to the program, and logs it.
    async fn send_logged(&self, request: HelperRequest) -> HelperReply {
        let operation = KerberosOperation::begin(&request, &self.realm);
        let reply = self.client.send_request(request).await;
        operation.end(&reply);
        reply
    }

    fn mark_unavailable(self: &Arc<Self>, why: &str) {
        if self.availability.mark_unavailable() {
            let realm = &self.realm.name;
            log!(WARN, &login::KDC_UNREACHABLE, realm, "no KDC of {realm} replies: {why}");
            tokio::spawn(Arc::clone(self).probe_until_available());
        }
    }

    /// Returns the realm with the last replying KDC in front; `None` for the order of the configuration.
    fn preferred_realm(&self) -> Option<Realm> {
        let mut preferred = self.preferred.lock();
        if preferred.as_ref().is_some_and(|(_, until)| *until <= Instant::now()) {
            *preferred = None;
        }
        preferred.as_ref().map(|(kdc, _)| self.realm.clone().with_first(kdc))
    }

    fn prefer(&self, kdc: String) {
        let until = Instant::now() + PREFERRED_FOR;
        *self.preferred.lock() = Some((kdc, until));
    }

    /// Probes all KDCs, unless the result is known since then.
    async fn probe_if_unknown(self: &Arc<Self>, since: Instant) -> ProbeResult {
        let _turn = self.probe_lock.lock().await;
        if self.availability.unavailable_for().is_some() {
            return ProbeResult::Unavailable;
        }
        if self.availability.replied_since(since) {
            return ProbeResult::Available;
        }
        self.probe_all().await
    }

    async fn probe_all(self: &Arc<Self>) -> ProbeResult {
        let number = RequestNumber::current();
        let mut asked = JoinSet::new();
        for kdc in self.realm.kdcs.clone() {
            asked.spawn(number.scope(Arc::clone(self).probe_host(kdc)));
        }
        if self.realm.discover {
            asked.spawn(number.scope(Arc::clone(self).probe_dns_kdcs()));
        }
        self.first_available(&mut asked).await
    }

    /// Returns at the first reply, otherwise the result of all probes.
    async fn first_available(&self, asked: &mut JoinSet<ProbeResult>) -> ProbeResult {
        let mut found = ProbeResult::Unavailable;
        while let Some(said) = asked.join_next().await {
            match said {
                Ok(ProbeResult::Available) => return ProbeResult::Available,
                Ok(ProbeResult::Unavailable) => {}
                Ok(ProbeResult::Inconclusive) | Err(_) => found = ProbeResult::Inconclusive,
            }
        }
        found
    }

    /// Probes each address of a host separately.
    async fn probe_host(self: Arc<Self>, kdc: String) -> ProbeResult {
        let addresses = match timeout(self.timeout, lookup_host(&kdc)).await {
            Ok(Ok(addresses)) => addresses.map(|address| address.to_string()).collect(),
            _ => Vec::new(),
        };
        if addresses.is_empty() {
            return self.probe_address(kdc, self.timeout).await;
        }
        let mut asked = JoinSet::new();
        for address in addresses {
            let servers = Arc::clone(&self);
            let probe = async move { servers.probe_address(address, PROBE).await };
            asked.spawn(RequestNumber::current().scope(probe));
        }
        self.first_available(&mut asked).await
    }

    async fn probe_address(&self, kdc: String, deadline: Duration) -> ProbeResult {
        let found = self.probe(self.realm.clone().with_only(&kdc), deadline).await;
        if found == ProbeResult::Available {
            self.prefer(kdc);
        }
        found
    }

    /// Probes the KDCs from DNS. Only libkrb5 knows them, and queries one after the other.
    async fn probe_dns_kdcs(self: Arc<Self>) -> ProbeResult {
        let realm = Realm { kdcs: Vec::new(), ..self.realm.clone() };
        self.probe(realm, self.timeout).await
    }

    async fn probe(&self, realm: Realm, deadline: Duration) -> ProbeResult {
        let mut probe = request(NONEXISTENT_USER, HelperOperation::Probe, b"none", b"", deadline);
        probe.realm = Some(realm);
        match self.send_logged(probe).await.outcome {
            KdcOutcome::Unreachable => ProbeResult::Unavailable,
            KdcOutcome::Failed => ProbeResult::Inconclusive,
            _ => {
                self.availability.mark_available();
                ProbeResult::Available
            }
        }
    }

    /// Probes all KDCs repeatedly until one replies.
    async fn probe_until_available(self: Arc<Self>) {
        let mut pause = PROBE_PAUSE;
        loop {
            sleep(pause).await;
            if self.probe_all().await == ProbeResult::Available {
                tracing::info!("a KDC replies again");
                return;
            }
            pause = (pause * 2).min(PROBE_PAUSE_MAX);
        }
    }
}
