// SPDX-License-Identifier: MIT OR Apache-2.0
//! The uids and gids of an Active Directory domain, from the SIDs of its entries.
//!
//! A connection first shows the SID of its domain ([`SidIds::set_domain`]). Entries of any other domain have no ids: a
//! server cannot make its entries look like those of another one. `roster_sid` has the algorithm, and stores the slices
//! in a file. A slice is stored before an id of it is returned, so no restart changes an id.

use parking_lot::Mutex;
use roster_config::SidMapping;
use roster_messages::Message;
use roster_messages::table::directory;
use roster_provider::reason::Reason;
use roster_sid::slice_table_file::{self, SliceFileError};
use roster_sid::{DomainSlice, IdMapper, Sid, SliceTable, open_mapper};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Computes the ids of one domain.
pub(crate) struct SidIds {
    config: SidMapping,
    /// Directory of the file with the slices. Without it, nothing is stored.
    directory: OnceLock<PathBuf>,
    domain: Mutex<Option<MappedDomain>>,
}

struct MappedDomain {
    sid: Sid,
    mapper: IdMapper,
    stored: Option<SliceTable>,
}

/// Shows the configuration only, because the text identifies the way in which entries are read.
impl fmt::Debug for SidIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SidIds").field(&self.config).finish()
    }
}

impl SidIds {
    pub fn new(config: &SidMapping) -> Self {
        Self { config: config.clone(), directory: OnceLock::new(), domain: Mutex::default() }
    }

    /// Stores the slices in a file of this directory.
    pub fn store_in(&self, directory: PathBuf) {
        // The first directory counts.
        let _ = self.directory.set(directory);
    }

    /// Sets the domain to the one of a server, as its SID in binary form. Fails if another server had another domain,
    /// or if the stored slices are of another domain or configuration.
    pub fn set_domain(&self, sid: &[u8]) -> Result<(), Reason> {
        let sid = Sid::from_bytes(sid).map_err(|error| unusable(&error))?;
        let mut domain = self.domain.lock();
        match &*domain {
            Some(known) if known.sid == sid => Ok(()),
            Some(known) => {
                let text = format!("the server has domain {sid}; the entries are of {}", known.sid);
                Err(Reason::new(&directory::DOMAIN_SID_CHANGED, text))
            }
            None => {
                let mut found = self.open(sid)?;
                found.store(self.directory())?;
                *domain = Some(found);
                Ok(())
            }
        }
    }

    fn directory(&self) -> Option<&Path> {
        self.directory.get().map(PathBuf::as_path)
    }

    fn open(&self, sid: Sid) -> Result<MappedDomain, Reason> {
        if !sid.is_account_domain() {
            return Err(unusable(&format_args!("{sid} is not the SID of a domain")));
        }
        let stored = self.directory().map(slice_table_file::read).transpose();
        let stored = stored.map_err(|error| file_reason(&error))?.flatten();
        // The parser accepts no other range.
        let range = self.config.range().map_err(|error| unusable(&error))?;
        let slice = DomainSlice { sid, slice: self.config.slice };
        let mapper = open_mapper(range, slice, &self.config.reserved, stored.as_ref());
        let mapper = mapper.map_err(|error| {
            let directory = self.directory().unwrap_or(Path::new(""));
            file_reason(&SliceFileError::mismatch(directory, error))
        })?;
        Ok(MappedDomain { sid, mapper, stored })
    }

    /// Returns uid and gid of a user with this SID and the RID of its primary group.
    pub fn user_ids(&self, sid: &[u8], primary_group: u32) -> Result<(u32, u32), Reason> {
        self.with_account(sid, |domain, user| {
            let group = domain.sid.with_rid(primary_group);
            let group = group.ok_or_else(|| other_domain(&user, &domain.sid))?;
            Ok((domain.id(&user, self.directory())?, domain.id(&group, self.directory())?))
        })
    }

    /// Returns the gid of a group with this SID.
    pub fn group_id(&self, sid: &[u8]) -> Result<u32, Reason> {
        self.with_account(sid, |domain, group| domain.id(&group, self.directory()))
    }

    fn with_account<T>(
        &self,
        sid: &[u8],
        ids: impl FnOnce(&mut MappedDomain, Sid) -> Result<T, Reason>,
    ) -> Result<T, Reason> {
        let unreadable = |error| sid_reason(&directory::SID_UNREADABLE, &error);
        let sid = Sid::from_bytes(sid).map_err(unreadable)?;
        let mut domain = self.domain.lock();
        let Some(domain) = &mut *domain else {
            let text = "the SID of the domain was not read yet";
            return Err(Reason::new(&directory::DOMAIN_SID_UNREADABLE, text));
        };
        if sid.domain() != Some(domain.sid) {
            return Err(other_domain(&sid, &domain.sid));
        }
        ids(domain, sid)
    }
}

impl MappedDomain {
    /// Returns the id of an account. A new slice is stored first.
    fn id(&mut self, sid: &Sid, directory: Option<&Path>) -> Result<u32, Reason> {
        let id = self.mapper.to_id(sid);
        let id = id.map_err(|error| sid_reason(&directory::SID_UNMAPPED, &error))?;
        if sid.rid() >= self.mapper.range().size() {
            self.store(directory)?;
        }
        Ok(id)
    }

    /// Stores the slices if they differ from the stored ones.
    fn store(&mut self, directory: Option<&Path>) -> Result<(), Reason> {
        let table = SliceTable::from(&self.mapper);
        if let Some(directory) = directory
            && self.stored.as_ref() != Some(&table)
        {
            slice_table_file::write(directory, &table).map_err(|error| file_reason(&error))?;
            self.stored = Some(table);
        }
        Ok(())
    }
}

fn unusable(error: &dyn fmt::Display) -> Reason {
    let text = format!("objectSid of the domain: {error}");
    Reason::new(&directory::DOMAIN_SID_UNREADABLE, text)
}

fn file_reason(error: &SliceFileError) -> Reason {
    Reason::new(error.message(), error.to_string())
}

fn sid_reason(message: &'static Message, error: &dyn fmt::Display) -> Reason {
    Reason::new(message, format!("objectSid: {error}"))
}

fn other_domain(sid: &Sid, domain: &Sid) -> Reason {
    let text = format!("objectSid {sid} is not of domain {domain}");
    Reason::new(&directory::SID_OF_OTHER_DOMAIN, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: &str = "S-1-5-21-3623811015-3361044348-30300820";

    fn sid(text: &str) -> Vec<u8> {
        text.parse::<Sid>().expect("a SID").to_bytes()
    }

    fn unset() -> SidIds {
        let (min, max, size) = (200_000, 2_000_200_000, 200_000);
        SidIds::new(&SidMapping { min, max, size, slice: None, reserved: Vec::new() })
    }

    fn sids() -> SidIds {
        let sids = unset();
        assert_eq!(
            sids.group_id(&sid(&format!("{DOMAIN}-512"))).map_err(|reason| reason.message),
            Err(&directory::DOMAIN_SID_UNREADABLE)
        );
        sids.set_domain(&sid(DOMAIN)).expect("a domain");
        sids
    }

    #[test]
    fn sid_ids_equal_those_of_sssd() {
        let sids = sids();
        let user = sid(&format!("{DOMAIN}-1104"));
        assert_eq!(sids.user_ids(&user, 513), Ok((674_001_104, 674_000_513)));
        assert_eq!(sids.user_ids(&user, 200_500), Ok((674_001_104, 1_787_200_500)));
        assert_eq!(sids.group_id(&sid(&format!("{DOMAIN}-200000"))), Ok(1_787_200_000));
    }

    #[test]
    fn sid_ids_other_domains_are_refused() {
        let sids = sids();
        for other in [
            "S-1-5-32-544",
            "S-1-5-11",
            "S-1-5-21-3623811015-3361044348-30300821-500",
            "S-1-5-21-3623811015-3361044348-30300820-500-500",
            DOMAIN,
        ] {
            let reason = sids.user_ids(&sid(other), 513).expect_err(other);
            assert_eq!(reason.message, &directory::SID_OF_OTHER_DOMAIN, "{other}");
        }
        let changed = sids.set_domain(&sid("S-1-5-21-1-2-3")).expect_err("another");
        assert_eq!(changed.message, &directory::DOMAIN_SID_CHANGED);
        assert_eq!(sids.set_domain(&sid(DOMAIN)), Ok(()));
    }

    #[test]
    fn sid_ids_bytes_of_other_length_are_refused() {
        let sids = sids();
        let whole = sid(&format!("{DOMAIN}-500"));
        for cut in 0..whole.len() {
            let reason = sids.group_id(&whole[..cut]).expect_err("too short");
            assert_eq!(reason.message, &directory::SID_UNREADABLE, "{cut}");
        }
        let longer = [&whole[..], &[0]].concat();
        assert_eq!(sids.group_id(&longer).expect_err("long").message, &directory::SID_UNREADABLE);
        let fresh = unset();
        for bad in [&b""[..], &sid("S-1-5-32"), &whole] {
            let reason = fresh.set_domain(bad).expect_err("not a domain");
            assert_eq!(reason.message, &directory::DOMAIN_SID_UNREADABLE);
        }
    }

    #[test]
    fn sid_ids_slices_outlive_process() {
        let state = tempfile::tempdir().expect("a directory");
        let start = |slice| {
            let sids = SidIds::new(&SidMapping { slice, ..unset().config });
            sids.store_in(state.path().to_owned());
            sids
        };
        let first = start(None);
        first.set_domain(&sid(DOMAIN)).expect("a domain");
        let user = sid(&format!("{DOMAIN}-200500"));
        assert_eq!(first.group_id(&user), Ok(1_787_200_500));
        let stored = slice_table_file::read(state.path()).expect("a file").expect("slices");
        assert!(stored.claims().iter().any(|claim| claim.first_rid == 200_000), "{stored:?}");
        let again = start(None);
        again.set_domain(&sid(DOMAIN)).expect("the same domain");
        assert_eq!(again.group_id(&user), Ok(1_787_200_500));
        let slice = start(Some(5)).set_domain(&sid(DOMAIN)).expect_err("another slice");
        assert_eq!(slice.message, &directory::ID_SLICES_MISMATCH, "{slice}");
        let domain = start(None).set_domain(&sid("S-1-5-21-1-2-3")).expect_err("another domain");
        assert_eq!(domain.message, &directory::ID_SLICES_MISMATCH, "{domain}");
    }

    #[test]
    fn sid_ids_of_reserved_slice_are_refused() {
        let reserved = vec![(1_787_200_000, 1_787_399_999)];
        let sids = SidIds::new(&SidMapping { reserved, ..unset().config });
        sids.set_domain(&sid(DOMAIN)).expect("a domain");
        let reason = sids.group_id(&sid(&format!("{DOMAIN}-200500"))).expect_err("reserved");
        assert_eq!(reason.message, &directory::SID_UNMAPPED, "{reason}");
        assert_eq!(sids.group_id(&sid(&format!("{DOMAIN}-512"))), Ok(674_000_512));
    }

    #[test]
    fn sid_ids_unstored_slice_gives_none() {
        let state = tempfile::tempdir().expect("a directory");
        let sids = unset();
        sids.store_in(state.path().join("missing"));
        let reason = sids.set_domain(&sid(DOMAIN)).expect_err("no directory");
        assert_eq!(reason.message, &directory::ID_SLICES_IO, "{reason}");
        assert!(sids.group_id(&sid(&format!("{DOMAIN}-512"))).is_err());
    }
}
