// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects changes of entries by binds. Some servers hash a password again on a bind, so after the first bind of each
//! user another scheme is measured. `preflight` formats the result.

use super::reply::{self, EntryAttributes};
use super::{ConnectionMode, LdapEngine, LdapRequest, LdapSettings, SearchScope, TlsMode};
use crate::load_thread::run_sequentially;
use crate::net::Route;
use crate::request_error::RequestError;
use crate::template::Template;
use std::sync::Arc;
use std::time::Duration;

/// Number of compared entries.
pub const SAMPLE_ENTRIES: u64 = 8;
/// Attributes that change with a hash.
const ATTRIBUTES: [&str; 4] = ["userPassword", "modifyTimestamp", "entryUSN", "entryCSN"];

/// Reads the entries that requests bind as.
#[derive(Debug)]
pub struct HashUpgradeCheck {
    settings: Arc<LdapSettings>,
    timeout: Duration,
}

/// The readable attributes of an entry; `None` if no attribute is readable.
pub type ObservedEntry = Option<EntryAttributes>;

impl HashUpgradeCheck {
    /// Creates a check that binds as this DN, or anonymously.
    pub fn new(
        route: Route,
        security: TlsMode,
        dn: Template,
        bind_as: Option<&(Template, Template)>,
        timeout: Duration,
    ) -> Result<Self, String> {
        let names = ATTRIBUTES.map(str::to_owned).to_vec();
        let request =
            LdapRequest::Search(dn, SearchScope::Base, "(objectClass=*)".to_owned(), names);
        let settings =
            LdapSettings::new(route, security, ConnectionMode::Reuse, &request, bind_as)?;
        Ok(Self { settings: Arc::new(settings), timeout })
    }

    /// Reads the entries of these requests.
    pub fn read_entries(&self, requests: &[u64]) -> Result<Vec<ObservedEntry>, RequestError> {
        let mut ldap = LdapEngine::new(Arc::clone(&self.settings), 1, 0);
        ldap.collect_entries();
        let mut seen = Vec::new();
        for &request in requests {
            match run_sequentially(&mut ldap, std::iter::once(request), self.timeout) {
                // The entry does not exist or is not readable.
                Ok(()) | Err(RequestError::ErrorCode(..)) => {}
                Err(failure) => return Err(failure),
            }
            let entry = ldap.take_entries().pop();
            let attributes = entry.as_deref().map(reply::attributes).transpose();
            let attributes = attributes.map_err(RequestError::Malformed)?;
            seen.push(attributes.filter(|attributes| !attributes.is_empty()));
        }
        Ok(seen)
    }
}

/// Result of a comparison of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryChanges {
    /// Number of readable entries.
    pub seen: usize,
    pub changed: usize,
    /// Old and new scheme, if passwords are readable.
    pub schemes: Option<(String, String)>,
}

/// Compares entries before and after binds.
#[must_use]
pub fn compare(before: &[ObservedEntry], after: &[ObservedEntry]) -> EntryChanges {
    let both =
        before.iter().zip(after).filter_map(|(before, after)| before.as_ref().zip(after.as_ref()));
    let both: Vec<_> = both.collect();
    let changed: Vec<_> = both.iter().filter(|(before, after)| before != after).collect();
    let schemes = changed.iter().find_map(|(before, after)| {
        let (before, after) = (scheme(before)?, scheme(after)?);
        (before != after).then_some((before, after))
    });
    EntryChanges { seen: both.len(), changed: changed.len(), schemes }
}

/// Returns the scheme of a password, in braces before it.
fn scheme(attributes: &EntryAttributes) -> Option<String> {
    let (_, values) = attributes.iter().find(|(name, _)| name == b"userpassword")?;
    let value = values.first()?;
    let Some(behind) = value.strip_prefix(b"{") else { return Some("clear text".to_owned()) };
    let end = behind.iter().position(|&byte| byte == b'}')?;
    Some(String::from_utf8_lossy(&behind[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(password: &[u8]) -> ObservedEntry {
        Some(vec![(b"userpassword".to_vec(), vec![password.to_vec()])])
    }

    #[test]
    fn what_changed_is_told_with_its_schemes() {
        let before = [entry(b"{SSHA}x"), entry(b"{SSHA}y"), None, entry(b"{SSHA}z")];
        let after = [entry(b"{PBKDF2}x"), entry(b"{SSHA}y"), None, entry(b"{SSHA}other")];
        let schemes = Some(("SSHA".to_owned(), "PBKDF2".to_owned()));
        assert_eq!(compare(&before, &after), EntryChanges { seen: 3, changed: 2, schemes });
        let same = EntryChanges { seen: 3, changed: 0, schemes: None };
        assert_eq!(compare(&before, &before), same);
        assert_eq!(scheme(&entry(b"plain").unwrap()).unwrap(), "clear text");
        assert_eq!(scheme(&entry(b"{open").unwrap()), None);
    }
}
