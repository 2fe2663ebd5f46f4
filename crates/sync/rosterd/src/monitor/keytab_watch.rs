// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches keytabs. This host's keys change while the daemon runs: it joins a realm, or a tool of the realm gives it a
//! new key. KDCs use the new key at once, and a backend that cannot verify them refuses all logins. The files are
//! therefore read with every round of pings, and backends restart with new keys.
//!
//! Those tools write in place, so new content counts when it is found a second time. A missing or unreadable file
//! changes nothing here. At a reload or a start it refuses logins.
//!
//! The first keytab in use is marked in the state directory, for `krb5_validate = "auto"`.

use super::Monitor;
use super::bus_connection::MonitorEvent;
use super::config_load::LoadedConfig;
use roster_config::{DomainSecrets, KdcValidation, KeytabState, Krb5Config};
use roster_messages::{log, table::daemon};
use std::collections::BTreeMap;
use tracing::info;

/// Content that was found once.
#[derive(Default)]
pub struct KeytabWatch {
    candidates: BTreeMap<String, Vec<u8>>,
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
    /// Returns the content of a domain's file, if it counts from now on.
    fn confirm_change(
        &mut self,
        domain: &str,
        current: &KeytabState,
        found: Vec<u8>,
    ) -> Option<Vec<u8>> {
        if matches!(current, KeytabState::Keys(current) if *current == found) {
            self.candidates.remove(domain);
            return None;
        }
        let before = self.candidates.insert(domain.to_owned(), found);
        let candidate = self.candidates.get(domain);
        if before.as_ref() == candidate { self.candidates.remove(domain) } else { None }
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

    /// Starts a read of all keytabs in use. The content arrives as an event.
    pub(super) fn check_keytabs(&mut self) {
        self.mark_keytab();
        let domains = self.config.loaded.config.domains.iter();
        let files: Vec<(String, Krb5Config)> = domains
            .filter_map(|domain| {
                Some((domain.name.clone(), (**domain.auth.krb5.as_ref()?).clone()))
            })
            .filter(|(_, krb5)| krb5.validate != KdcValidation::Off)
            .collect();
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
                let read = |(domain, krb5): (String, Krb5Config)| match krb5
                    .read_keytab(false, credentials.as_deref())
                {
                    KeytabState::Keys(bytes) => Some((domain, bytes)),
                    KeytabState::None | KeytabState::Unusable { .. } => None,
                };
                Ok(files.into_iter().filter_map(read).collect())
            };
            let found = reader.run_in_thread("a keytab".to_owned(), read).await.unwrap_or_default();
            let _ = news.send(MonitorEvent::KeytabsRead(found)).await;
        });
    }

    /// Applies the content of keytabs.
    pub(super) fn apply_keytabs(&mut self, found: Vec<(String, Vec<u8>)>) {
        self.config.keytabs.is_reading = false;
        if self.config.is_reading || self.end_deadline.is_some() {
            return;
        }
        let mut secrets = self.config.loaded.secrets.clone();
        let mut changed = Vec::new();
        for (domain, bytes) in found {
            let place =
                self.config.loaded.config.domains.iter().position(|known| known.name == domain);
            let Some(DomainSecrets { keytab, .. }) = place.and_then(|place| secrets.get_mut(place))
            else {
                continue;
            };
            if let Some(bytes) = self.config.keytabs.confirm_change(&domain, keytab, bytes) {
                *keytab = KeytabState::Keys(bytes);
                changed.push(domain);
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
        };
        match self.apply_config(settings) {
            Ok(()) => info!("{}: the new keytab is in force", changed.join(", ")),
            Err(errors) => {
                let domains = changed.join(", ");
                log!(
                    ERROR,
                    &daemon::KEYTAB_NOT_APPLIED,
                    "{domains}: the new keytab is not applied"
                );
                errors.log();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keytab_counts_when_it_was_found_twice() {
        let mut keytabs = KeytabWatch::default();
        let (old, half, new) = (vec![5, 1], vec![5, 2], vec![5, 2, 3]);
        let (none, is_old, is_new) =
            (KeytabState::None, KeytabState::Keys(old.clone()), KeytabState::Keys(new.clone()));
        assert_eq!(keytabs.confirm_change("corp", &is_old, old.clone()), None);
        assert_eq!(keytabs.confirm_change("corp", &is_old, half), None);
        assert_eq!(
            keytabs.confirm_change("corp", &is_old, new.clone()),
            None,
            "it is being written"
        );
        assert_eq!(keytabs.confirm_change("lab", &is_old, new.clone()), None, "another domain's");
        assert_eq!(keytabs.confirm_change("corp", &is_old, new.clone()), Some(new.clone()));
        assert_eq!(keytabs.confirm_change("corp", &is_new, new.clone()), None);
        // A new keytab, whether or not it was missed, and a change that was reverted before it counted.
        let missed = KeytabState::Unusable {
            code: String::new(),
            why: "missing".into(),
            instead: String::new(),
        };
        for before in [&none, &missed] {
            assert_eq!(keytabs.confirm_change("corp", before, old.clone()), None);
            assert_eq!(keytabs.confirm_change("corp", before, old.clone()), Some(old.clone()));
        }
        assert_eq!(keytabs.confirm_change("corp", &is_old, new.clone()), None);
        assert_eq!(keytabs.confirm_change("corp", &is_old, old.clone()), None);
        assert_eq!(keytabs.confirm_change("corp", &is_old, new), None);
    }
}
