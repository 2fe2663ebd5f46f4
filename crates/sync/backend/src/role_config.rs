// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the configuration that the monitor sends to a backend.

use roster_config as config;
use serde::{Deserialize, Serialize};

/// Configuration of a backend.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct BackendRoleConfig {
    /// The backend's domain.
    pub domain: config::DomainConfig,
    /// Content of the secret files in the domain's configuration.
    pub secrets: config::DomainSecrets,
    /// The names of this host, the one of hostname(1) first. Empty if no access rule needs them.
    pub host_names: Vec<String>,
}
