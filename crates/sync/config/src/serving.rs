// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules by which rosterd serves the entries of a domain: lists, empty home directories, and allowed shells. `domain`
//! parses the keys, and the publisher applies them.

use serde::{Deserialize, Serialize};

/// The file of login shells, shells(5).
pub const ETC_SHELLS: &str = "/etc/shells";

/// Rules for the entries of a domain that are served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServingConfig {
    /// Enumerations such as `getent passwd` list the entries.
    pub enumerate: bool,
    /// Users without a home directory are served.
    pub empty_homes: bool,
    /// The users of a primary group belong to the groups around it, as in Active Directory.
    pub nests_primary_groups: bool,
    /// The shells that users may have.
    pub shells: ShellRules,
}

impl Default for ServingConfig {
    fn default() -> Self {
        Self {
            enumerate: true,
            empty_homes: false,
            nests_primary_groups: false,
            shells: ShellRules::default(),
        }
    }
}

/// Rules about the shells of a domain's users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellRules {
    /// The allowed shells.
    pub allowed: AllowedShells,
    /// Shells that are replaced although they are allowed: absolute paths.
    pub refused: Vec<String>,
    /// The shell instead of refused ones: an absolute path. Empty without rules.
    pub replacement: String,
    /// The shell instead of those that are not allowed, likewise.
    pub unlisted: String,
}

/// `allowed_shells = …`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllowedShells {
    /// All shells.
    #[default]
    Any,
    /// The shells in [`ETC_SHELLS`].
    EtcShells,
    /// The listed absolute paths.
    Listed(Vec<String>),
}
