// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the configuration that the monitor sends to the publisher. `roster_config` parses it.

use roster_config as config;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Configuration of the publisher.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct PublisherRoleConfig {
    /// `[host]`.
    pub host: config::HostConfig,
    /// `[publisher]`.
    pub publisher: config::PublisherConfig,
    /// Domains in order of precedence.
    pub domains: Vec<DomainRules>,
}

/// Limits and rules of a domain.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainRules {
    /// The domain's name.
    pub name: String,
    /// Smallest accepted uid and gid.
    pub min_id: u32,
    /// Largest accepted uid and gid.
    pub max_id: u32,
    /// Names of its entries.
    pub names: config::NameConfig,
    /// Values of single entries that replace those of the directory.
    pub overrides: config::OverridesConfig,
    /// Names of groups in access rules, in the form in which the domain compares them.
    pub rule_groups: Vec<String>,
    /// Whether the backend mirrors the directory or queries it on demand.
    pub mode: config::DomainMode,
    /// Share of the users, or of the groups, that may be removed at once.
    pub mass_deletion: f64,
    /// On demand: lifetime of negative entries.
    pub negative: Duration,
    /// On demand: the treatment of unknown names while no server replies.
    pub when_away: config::WhenAway,
    /// Users that get a private group.
    pub private_groups: config::PrivateGroups,
    /// On demand: interval at which the groups behind private groups are queried again.
    pub refresh: Duration,
    /// Rules for the entries that are served.
    pub serving: config::ServingConfig,
}

impl PublisherRoleConfig {
    /// Whether a domain allows the shells of shells(5).
    #[must_use]
    pub fn needs_shells(&self) -> bool {
        let allows = |domain: &DomainRules| {
            domain.serving.shells.allowed == config::AllowedShells::EtcShells
        };
        self.domains.iter().any(allows)
    }
}
