//! Keys of this host change while the daemon runs: it joins a realm, or a tool of the realm's gives it
//! a new key. KDCs go by the new one at once, and whoever cannot verify them lets nobody in. So the
//! files are looked at with every round of pings, and back-ends start again with what is new.
//!
//! Those tools write in place: what is found counts when it is found a second time. A file that is gone,
//! or cannot be read, changes nothing here: at a reload or a start it refuses logins.
//!
//! The first keytab that is put in force is marked in the state directory, for `krb5_validate = "auto"`.

use super::Monitor;
use super::link::News;
use super::settings::Settings;
use roster_config::{Keytab, Krb5, Secrets, Validate};
use std::collections::BTreeMap;
use tracing::{error, info};

/// What was found once.
#[derive(Default)]
pub struct Keytabs {
    candidates: BTreeMap<String, Vec<u8>>,
    /// One look at a time.
    looking: bool,
    /// Whether this process has ever put one in force.
    pub used: bool,
    /// Whether the mark of that is on the disk.
    marked: bool,
    /// Whether the log has why it is not.
    told: bool,
}

impl Keytabs {
    /// Of a domain's file: the bytes if they are to count from now on.
    fn settle(&mut self, domain: &str, current: &Keytab, found: Vec<u8>) -> Option<Vec<u8>> {
        if matches!(current, Keytab::Keys(current) if *current == found) {
            self.candidates.remove(domain);
            return None;
        }
        let before = self.candidates.insert(domain.to_owned(), found);
        let candidate = self.candidates.get(domain);
        if before.as_ref() == candidate { self.candidates.remove(domain) } else { None }
    }
}

impl Monitor {
    /// Marks this host if a keytab is in use. Until the mark is on the disk, each look at the keytabs tries
    /// again; as long as this process lives it knows without.
    pub(super) fn mark_keytab(&mut self) {
        self.keytabs.used |= self.settings.use_keytab();
        if self.keytabs.marked || !self.keytabs.used {
            return;
        }
        match self.folders.mark_keytab() {
            Ok(()) => self.keytabs.marked = true,
            Err(error) if !self.keytabs.told => {
                self.keytabs.told = true;
                error!(
                    "{}: cannot mark that this host uses a keytab: {error}. Until it is marked, \
                     krb5_validate = \"auto\" accepts any KDC if the keytab is lost before the next start",
                    self.folders.state.display()
                );
            }
            Err(_) => {}
        }
    }

    /// Has all keytabs in use read, and what is in them come back as news.
    pub(super) fn look_at_keytabs(&mut self) {
        self.mark_keytab();
        let domains = self.settings.config.domains.iter();
        let files: Vec<(String, Krb5)> = domains
            .filter_map(|domain| {
                Some((domain.name.clone(), (**domain.auth.krb5.as_ref()?).clone()))
            })
            .filter(|(_, krb5)| krb5.validate != Validate::Off)
            .collect();
        if files.is_empty() || self.keytabs.looking || self.reading || self.ending.is_some() {
            return;
        }
        self.keytabs.looking = true;
        let (reader, news) = (self.reader.clone(), self.news.clone());
        tokio::spawn(async move {
            let read = move || {
                let read = |(domain, krb5): (String, Krb5)| match krb5.read_keytab(false) {
                    Keytab::Keys(bytes) => Some((domain, bytes)),
                    Keytab::None | Keytab::Unusable { .. } => None,
                };
                Ok(files.into_iter().filter_map(read).collect())
            };
            let found = reader.run("a keytab".to_owned(), read).await.unwrap_or_default();
            let _ = news.send(News::Keytabs(found)).await;
        });
    }

    /// Goes by what was read.
    pub(super) fn keytabs_read(&mut self, found: Vec<(String, Vec<u8>)>) {
        self.keytabs.looking = false;
        if self.reading || self.ending.is_some() {
            return;
        }
        let mut secrets = self.settings.secrets.clone();
        let mut changed = Vec::new();
        for (domain, bytes) in found {
            let place = self.settings.config.domains.iter().position(|known| known.name == domain);
            let Some(Secrets { keytab, .. }) = place.and_then(|place| secrets.get_mut(place))
            else {
                continue;
            };
            if let Some(bytes) = self.keytabs.settle(&domain, keytab, bytes) {
                *keytab = Keytab::Keys(bytes);
                changed.push(domain);
            }
        }
        if changed.is_empty() {
            return;
        }
        let settings = Settings {
            config: self.settings.config.clone(),
            secrets,
            trusted: self.settings.trusted.clone(),
            read: self.settings.read,
            warnings: Vec::new(),
        };
        match self.take_over(settings) {
            Ok(()) => info!("the keytab of {} has changed, and is in force", changed.join(", ")),
            Err(error) => error!("the keytab of {} has changed: {error:#}", changed.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keytab_counts_when_it_was_found_twice() {
        let mut keytabs = Keytabs::default();
        let (old, half, new) = (vec![5, 1], vec![5, 2], vec![5, 2, 3]);
        let (none, is_old, is_new) =
            (Keytab::None, Keytab::Keys(old.clone()), Keytab::Keys(new.clone()));
        assert_eq!(keytabs.settle("corp", &is_old, old.clone()), None);
        assert_eq!(keytabs.settle("corp", &is_old, half), None);
        assert_eq!(keytabs.settle("corp", &is_old, new.clone()), None, "it is being written");
        assert_eq!(keytabs.settle("lab", &is_old, new.clone()), None, "another domain's");
        assert_eq!(keytabs.settle("corp", &is_old, new.clone()), Some(new.clone()));
        assert_eq!(keytabs.settle("corp", &is_new, new.clone()), None);
        // One that comes, where one is missed or not, and one that was put back before it counted.
        let missed = Keytab::Unusable { why: "there is none".into(), instead: String::new() };
        for before in [&none, &missed] {
            assert_eq!(keytabs.settle("corp", before, old.clone()), None);
            assert_eq!(keytabs.settle("corp", before, old.clone()), Some(old.clone()));
        }
        assert_eq!(keytabs.settle("corp", &is_old, new.clone()), None);
        assert_eq!(keytabs.settle("corp", &is_old, old.clone()), None);
        assert_eq!(keytabs.settle("corp", &is_old, new), None);
    }
}
