// SPDX-License-Identifier: MIT OR Apache-2.0
//! The snapshot that is in place when the publisher starts. `last_snapshot` has the entries of a domain whose backend
//! is missing.

use super::disk;
use super::entry_counts::{EntryCounts, ServedCounts, counts_of_snapshot};
use super::own::{CurrentSnapshot, SnapshotIdentity, SnapshotStamp};
use super::own_record;
use crate::role_config::PublisherRoleConfig;
use roster_messages::{log, table::daemon};
use roster_snapshot::layout::SnapshotKind;
use roster_snapshot_build::verify::verify;
use std::io;
use std::path::Path;

/// The snapshot in place.
#[derive(Default)]
pub(super) struct ExistingSnapshot {
    /// The counts that count as served.
    pub(super) served: ServedCounts,
    /// The snapshot's bytes, unless another program wrote them.
    pub(super) previous: Option<Vec<u8>>,
    /// The snapshot's identity, if this publisher's last process wrote it.
    pub(super) own: Option<CurrentSnapshot>,
    /// The newest recorded generation.
    pub(super) newest: u64,
    /// Description of a snapshot of another program, or empty.
    pub(super) foreign: String,
}

impl ExistingSnapshot {
    /// Reads the snapshot in place. If its list of domains cannot be read, it may have entries of every domain.
    pub(super) fn read(
        state_dir: &Path,
        snapshot: &Path,
        copies: Option<&Path>,
        config: &PublisherRoleConfig,
    ) -> Self {
        let records = own_record::read(state_dir);
        let newest = records.iter().flatten().map(|record| record.generation).max();
        let newest = newest.unwrap_or(0);
        let stamp = SnapshotStamp::from_path(snapshot).ok();
        let bytes = match disk::read_snapshot(snapshot, copies) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Self { newest, ..Self::default() };
            }
            Err(error) => {
                let snapshot = snapshot.display();
                log!(WARN, &daemon::SNAPSHOT_DISK_ERROR, "{snapshot}: cannot be read: {error}");
                Vec::new()
            }
        };
        let Some(records) = records else {
            log!(WARN, &daemon::OWN_RECORD_MISSING, "{}: missing or damaged", own_record::FILE);
            let served = every_domain(config);
            return Self { served, previous: Some(bytes), newest, ..Self::default() };
        };
        Self { newest, ..Self::compare(&records, bytes, stamp, snapshot, config) }
    }

    fn kept(bytes: Vec<u8>, config: &PublisherRoleConfig) -> Self {
        let served = counts_of_snapshot(&bytes).unwrap_or_else(|| every_domain(config));
        Self { served, previous: Some(bytes), ..Self::default() }
    }

    /// Compares the snapshot with the records of this publisher's snapshots.
    fn compare(
        records: &[SnapshotIdentity],
        bytes: Vec<u8>,
        stamp: Option<SnapshotStamp>,
        snapshot: &Path,
        config: &PublisherRoleConfig,
    ) -> Self {
        let identity = SnapshotIdentity::from_bytes(&bytes);
        if let Some(identity) = identity.filter(|identity| records.contains(identity)) {
            let own = CurrentSnapshot { identity, stamp };
            return Self { own: Some(own), ..Self::kept(bytes, config) };
        }
        let generation = identity.map(|identity| identity.generation);
        let is_recorded = records.iter().any(|record| Some(record.generation) == generation);
        let is_damaged = verify(&bytes, SnapshotKind::Accounts).is_err();
        match generation {
            // This publisher wrote it, and it is damaged.
            Some(_) if is_recorded && is_damaged => Self::kept(bytes, config),
            // Its header cannot be read.
            None => Self::kept(bytes, config),
            Some(_) => {
                let newest = records.iter().map(|record| record.generation).max();
                let foreign = format!(
                    "generation {} was not written by rosterd, whose last generation is {}",
                    generation.unwrap_or_default(),
                    newest.unwrap_or(0)
                );
                let snapshot = snapshot.display();
                log!(ERROR, &daemon::SNAPSHOT_FOREIGN, "{snapshot}: {foreign}");
                // Holds until all domains are present, or until the wait for them ends.
                Self { served: every_domain(config), foreign, ..Self::default() }
            }
        }
    }
}

fn every_domain(config: &PublisherRoleConfig) -> ServedCounts {
    config.domains.iter().map(|domain| (domain.name.clone(), EntryCounts::default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{config, host, put};
    use roster_system_tests::logged_codes::logged_codes;
    use std::fs;

    #[test]
    fn existing_snapshot_of_others_is_logged() {
        let folder = tempfile::tempdir().expect("a directory");
        let (folder, snapshot) = (folder.path(), folder.path().join("roster.v3.snap"));
        let (own, identity, _) = put(folder, &host(&["corp"]), 7);
        let (foreign, ..) = put(folder, &host(&["corp"]), 8);
        for (bytes, records, messages) in [
            (None, None, vec![]),
            (Some(&own), Some(identity), vec![]),
            (Some(&own), None, vec![&daemon::OWN_RECORD_MISSING]),
            (Some(&foreign), Some(identity), vec![&daemon::SNAPSHOT_FOREIGN]),
        ] {
            let _ = fs::remove_file(&snapshot);
            let _ = fs::remove_file(folder.join(own_record::FILE));
            if let Some(bytes) = bytes {
                fs::write(&snapshot, bytes).expect("write");
            }
            if let Some(identity) = records {
                own_record::write(folder, &[identity]).expect("write");
            }
            let logged = logged_codes(|| {
                ExistingSnapshot::read(folder, &snapshot, None, &config(&["corp"]));
            });
            assert_eq!(logged, messages);
        }
        fs::remove_file(&snapshot).expect("remove");
        fs::create_dir(&snapshot).expect("create");
        let logged = logged_codes(|| {
            ExistingSnapshot::read(folder, &snapshot, None, &config(&["corp"]));
        });
        assert_eq!(logged, [&daemon::SNAPSHOT_DISK_ERROR]);
    }
}
