// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches keytabs and client certificates. This host's keys change while the daemon runs: it joins a realm, or a tool
//! of the realm or of an authority gives it a new key. KDCs and servers use the new key at once, or reject the old one
//! soon. The files are therefore read with every round of pings, and backends restart with new keys. `watched_keys`
//! reads the files.
//!
//! These tools write in place. New content therefore counts only when the monitor reads it a second time. A missing or unreadable file
//! changes nothing here, and neither does a certificate without its key. At a reload or a start it refuses logins, or
//! is an error.
//!
//! The first keytab in use is marked in the state directory, for `krb5_validate = "auto"`.

use super::Monitor;
use super::bus_connection::MonitorEvent;
use super::config_load::LoadedConfig;
use super::watched_keys::{FoundKeys, WatchedFiles};
use roster_config::DomainSecrets;
use roster_messages::{Message, log, table::daemon};
use std::collections::BTreeMap;
use tracing::info;

/// Content that was found once.
#[derive(Default)]
pub struct KeytabWatch {
    candidates: BTreeMap<String, FoundKeys>,
    /// Allows one read at a time.
    is_reading: bool,
    /// Whether this process has ever used a keytab.
    pub is_used: bool,
    /// Whether the mark of that is on the disk.
    is_mark_durable: bool,
    /// Whether the log has the reason why it is not.
    is_failure_logged: bool,
}

impl KeytabWatch {
    /// Returns the content of a domain's files, if it counts from now on.
    fn confirm_change(&mut self, current: &DomainSecrets, found: FoundKeys) -> Option<FoundKeys> {
        let domain = found.domain.clone();
        if !found.differs(current) {
            self.candidates.remove(&domain);
            return None;
        }
        let before = self.candidates.insert(domain.clone(), found);
        let candidate = self.candidates.get(&domain);
        if before.as_ref() == candidate { self.candidates.remove(&domain) } else { None }
    }
}

impl Monitor {
    /// Marks this host if a keytab is in use. Until the mark is on the disk, each check of the keytabs retries. This
    /// process remembers it without the mark.
    pub(super) fn mark_keytab(&mut self) {
        self.config.keytabs.is_used |= self.config.loaded.uses_keytab();
        if self.config.keytabs.is_mark_durable || !self.config.keytabs.is_used {
            return;
        }
        match self.runtime_dirs.mark_keytab() {
            Ok(()) => self.config.keytabs.is_mark_durable = true,
            Err(error) if !self.config.keytabs.is_failure_logged => {
                self.config.keytabs.is_failure_logged = true;
                log!(
                    ERROR,
                    &daemon::KEYTAB_MARK_UNWRITABLE,
                    "{}: cannot record that this host uses a keytab: {error}",
                    self.runtime_dirs.state_dir.display()
                );
            }
            Err(_) => {}
        }
    }

    /// Starts a read of all keytabs and client certificates in use. The content arrives as an event.
    pub(super) fn check_keytabs(&mut self) {
        self.mark_keytab();
        let domains = self.config.loaded.config.domains.iter();
        let files: Vec<_> = domains.filter_map(WatchedFiles::of_domain).collect();
        if files.is_empty()
            || self.config.keytabs.is_reading
            || self.config.is_reading
            || self.end_deadline.is_some()
        {
            return;
        }
        self.config.keytabs.is_reading = true;
        let (reader, news) = (self.config.reader.clone(), self.channels.events.clone());
        tokio::spawn(async move {
            let credentials = reader.credentials.clone();
            let read = move || {
                Ok(files.into_iter().map(|files| files.read(credentials.as_deref())).collect())
            };
            let shown = "a keytab or certificate".to_owned();
            let found = reader.run_in_thread(shown, read).await.unwrap_or_default();
            let _ = news.send(MonitorEvent::KeytabsRead(found)).await;
        });
    }

    /// Applies the content of keytabs and client certificates.
    pub(super) fn apply_keytabs(&mut self, found: Vec<FoundKeys>) {
        self.config.keytabs.is_reading = false;
        if self.config.is_reading || self.end_deadline.is_some() {
            return;
        }
        let mut secrets = self.config.loaded.secrets.clone();
        let mut changed = Vec::new();
        let mut failure = &daemon::KEYTAB_NOT_APPLIED;
        for found in found {
            let domains = &self.config.loaded.config.domains;
            let place = domains.iter().position(|known| known.name == found.domain);
            let Some(current) = place.and_then(|place| secrets.get_mut(place)) else { continue };
            if let Some(found) = self.config.keytabs.confirm_change(current, found) {
                failure = found.failure(current);
                changed.push(found.domain.clone());
                found.apply(current);
            }
        }
        if changed.is_empty() {
            return;
        }
        let settings = LoadedConfig {
            config: self.config.loaded.config.clone(),
            secrets,
            trusted_uids: self.config.loaded.trusted_uids.clone(),
            read_at: self.config.loaded.read_at,
            warnings: Vec::new(),
            has_main_file: self.config.loaded.has_main_file,
        };
        let (domains, what) = (changed.join(", "), described(failure));
        match self.apply_config(settings) {
            Ok(()) => info!("{domains}: the new {what} is in force"),
            Err(errors) => {
                log!(ERROR, failure, "{domains}: the new {what} is not applied");
                errors.log();
            }
        }
    }
}

/// Returns the noun of the files to which the row of a failure belongs.
fn described(failure: &'static Message) -> &'static str {
    match failure == &daemon::CLIENT_CERTIFICATE_NOT_APPLIED {
        true => "client certificate",
        false => "keytab",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_config::KeytabState;

    fn found(domain: &str, logins: &[u8]) -> FoundKeys {
        let logins = Some(logins.to_vec());
        FoundKeys { domain: domain.to_owned(), logins, binds: None, certificate: None }
    }

    fn secrets(keytab: KeytabState) -> DomainSecrets {
        DomainSecrets { keytab, ..DomainSecrets::default() }
    }

    #[test]
    fn a_keytab_counts_when_it_was_found_twice() {
        let mut keytabs = KeytabWatch::default();
        let mut counts = |domain: &str, current: &KeytabState, bytes: &[u8]| {
            let confirmed = keytabs.confirm_change(&secrets(current.clone()), found(domain, bytes));
            confirmed.map(|found| found.logins)
        };
        let (old, half, new) = (&[5, 1][..], &[5, 2][..], &[5, 2, 3][..]);
        let (none, is_old, is_new) =
            (KeytabState::None, KeytabState::Keys(old.into()), KeytabState::Keys(new.into()));
        let counted = |bytes: &[u8]| Some(Some(bytes.to_vec()));
        assert_eq!(counts("corp", &is_old, old), None);
        assert_eq!(counts("corp", &is_old, half), None);
        assert_eq!(counts("corp", &is_old, new), None, "it is being written");
        assert_eq!(counts("lab", &is_old, new), None, "another domain's");
        assert_eq!(counts("corp", &is_old, new), counted(new));
        assert_eq!(counts("corp", &is_new, new), None);
        // A new keytab, whether or not it was missed, and a change that was reverted before it counted.
        let missed = KeytabState::Unusable {
            code: String::new(),
            why: "missing".into(),
            instead: String::new(),
        };
        for before in [&none, &missed] {
            assert_eq!(counts("corp", before, old), None);
            assert_eq!(counts("corp", before, old), counted(old));
        }
        assert_eq!(counts("corp", &is_old, new), None);
        assert_eq!(counts("corp", &is_old, old), None);
        assert_eq!(counts("corp", &is_old, new), None);
    }

    fn renewed_in(secrets: &DomainSecrets, found: &FoundKeys) -> DomainSecrets {
        let mut secrets = secrets.clone();
        found.clone().apply(&mut secrets);
        secrets
    }

    #[test]
    fn watched_file_without_content_changes_nothing() {
        let mut keytabs = KeytabWatch::default();
        let current = DomainSecrets {
            bind_keytab: KeytabState::Keys(vec![5, 1]),
            ..secrets(KeytabState::None)
        };
        let none = FoundKeys { logins: None, ..found("corp", b"") };
        let binds = FoundKeys { binds: Some(vec![5, 2]), ..none.clone() };
        for _ in 0..2 {
            assert!(keytabs.confirm_change(&current, none.clone()).is_none());
        }
        assert!(keytabs.confirm_change(&current, binds.clone()).is_none());
        let confirmed = keytabs.confirm_change(&current, binds).expect("found twice");
        assert_eq!(confirmed.failure(&current), &daemon::KEYTAB_NOT_APPLIED);
        let mut next = current.clone();
        confirmed.apply(&mut next);
        assert!(next.bind_keytab == KeytabState::Keys(vec![5, 2]));
        assert!(next.keytab == KeytabState::None && next.client_certificate.is_none());
        let certificate = serde_json::from_str("{\"chain\": \"c\", \"key\": \"k\"}").ok();
        let renewed = FoundKeys { certificate, ..none };
        assert!(renewed.differs(&next) && !renewed.differs(&renewed_in(&next, &renewed)));
        assert_eq!(renewed.failure(&next), &daemon::CLIENT_CERTIFICATE_NOT_APPLIED);
    }
}
