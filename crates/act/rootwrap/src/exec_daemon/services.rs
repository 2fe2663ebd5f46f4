// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that connections share: the policy, the executor, lookups, counters and the journal. `daemon` creates it.

use super::counters::Counters;
use super::exec_toml::ExecPolicy;
use super::journal::Journal;
use super::nss_lookups::NssLookups;
use super::subuid_owners::SubuidOwners;
use crate::exec::Executor;
use parking_lot::RwLock;
use std::io;
use std::sync::Arc;

/// The shared state.
pub(super) struct ExecServices {
    policy: RwLock<Arc<ExecPolicy>>,
    pub(super) executor: Arc<Executor>,
    pub(super) nss_lookups: NssLookups,
    pub(super) counters: Arc<Counters>,
    pub(super) journal: Journal,
    pub(super) subuid_owners: Arc<SubuidOwners>,
}

impl ExecServices {
    /// Starts the thread of the journal.
    pub(super) fn new(
        policy: ExecPolicy,
        executor: Arc<Executor>,
        subuid_owners: Arc<SubuidOwners>,
    ) -> io::Result<Self> {
        let counters = Arc::<Counters>::default();
        Ok(Self {
            policy: RwLock::new(Arc::new(policy)),
            nss_lookups: NssLookups::new(Arc::clone(&executor)),
            executor,
            journal: Journal::start(&counters)?,
            counters,
            subuid_owners,
        })
    }

    /// Returns the present policy.
    pub(super) fn policy(&self) -> Arc<ExecPolicy> {
        Arc::clone(&self.policy.read())
    }

    /// Replaces the policy. Requests that have begun keep the old one.
    pub(super) fn replace_policy(&self, policy: ExecPolicy) {
        *self.policy.write() = Arc::new(policy);
    }
}
