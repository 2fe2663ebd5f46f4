// SPDX-License-Identifier: MIT OR Apache-2.0
//! The method by which a backend tracks the changes of its source. `provider-ldap` selects it by the features of a
//! server.

use core::fmt;

/// A method, with one text form on the bus and in the output of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrackingMethod {
    /// LDAP content synchronization (RFC 4533).
    Syncrepl,
    /// LDAP content synchronization that reads everything again at each connection.
    SyncreplWithoutResume,
    /// LDAP persistent search.
    PersistentSearch,
    /// Regular searches for changed entries.
    Polling,
    /// Regular searches for entries with a new update sequence number of Active Directory.
    UpdateNumbers,
    /// Regular searches that read everything again.
    PollingEverything,
    /// Notifications about files.
    Inotify,
    /// No tracking: the backend queries the directory on demand.
    OnDemand,
}

impl TrackingMethod {
    /// All methods.
    pub const ALL: [Self; 8] = [
        Self::Syncrepl,
        Self::SyncreplWithoutResume,
        Self::PersistentSearch,
        Self::Polling,
        Self::UpdateNumbers,
        Self::PollingEverything,
        Self::Inotify,
        Self::OnDemand,
    ];

    /// Returns the text form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Syncrepl => "syncrepl",
            Self::SyncreplWithoutResume => "syncrepl, never resumed",
            Self::PersistentSearch => "persistent search",
            Self::Polling => "polling",
            Self::UpdateNumbers => "polling of update sequence numbers",
            Self::PollingEverything => "polling, everything each time",
            Self::Inotify => "inotify",
            Self::OnDemand => "on demand",
        }
    }

    /// Returns the method with that text form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == text)
    }
}

impl fmt::Display for TrackingMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracking_method_text_form_parses_back() {
        for method in TrackingMethod::ALL {
            assert_eq!(TrackingMethod::parse(method.as_str()), Some(method));
        }
        assert_eq!(TrackingMethod::parse(""), None);
    }
}
