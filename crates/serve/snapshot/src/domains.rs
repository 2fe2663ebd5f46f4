// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entries of each domain in a file. `listing` decides which of them an enumeration returns.
//!
//! The section has the number of users and groups for each domain. The entries of a domain follow those of the previous
//! domain.

use crate::Damage;
use crate::hash::{self, ChecksumIdentity};
use crate::layout::{DomainOptionsSlot, DomainSlot, SectionId, domain_flags};
use core::ops::Range;

/// A domain and the positions of its entries.
///
/// ```
/// use roster_snapshot::{Domain, Snapshot};
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let snapshot = Snapshot::open(bytes)?;
/// let corp = snapshot.domains()?.last().unwrap()?;
/// assert_eq!((corp.name, corp.users.clone(), corp.groups), (&b"corp"[..], 2..5, 3..4));
/// assert_eq!(snapshot.user(corp.users.start)?.unwrap().record().name, b"carol");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain<'a> {
    /// Name in the configuration.
    pub name: &'a [u8],
    /// Another name of the domain; empty without one.
    pub short_name: &'a [u8],
    /// [`domain_flags`].
    pub flags: u32,
    /// Positions of its users.
    pub users: Range<u32>,
    /// Positions of its groups.
    pub groups: Range<u32>,
}

impl Domain<'_> {
    /// Returns whether any spelling of a name finds its entries.
    #[must_use]
    pub fn ignores_case(&self) -> bool {
        self.flags & domain_flags::ANY_CASE != 0
    }

    /// Returns whether enumerations return the entries.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.flags & domain_flags::UNLISTED == 0
    }

    /// Returns whether the domain has that name or short name, in any spelling.
    #[inline(never)]
    #[must_use]
    pub fn is_called(&self, name: &[u8]) -> bool {
        // Names of domains are ASCII. The short name is empty if the domain lacks one.
        let is_own = |own: &[u8]| !name.is_empty() && own.eq_ignore_ascii_case(name);
        is_own(self.name) || is_own(self.short_name)
    }
}

/// Iterator over the domains of a file, in file order.
///
/// ```
/// use roster_snapshot::Snapshot;
///
/// # let bytes = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/accounts.snap"));
/// let domains = Snapshot::open(bytes)?.domains()?.collect::<Result<Vec<_>, _>>()?;
/// let names: Vec<&[u8]> = domains.iter().map(|domain| domain.name).collect();
/// assert_eq!(names, [&b"lab"[..], b"corp"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Domains<'a> {
    slots: core::slice::Iter<'a, DomainSlot>,
    /// One for each slot, or none.
    options: &'a [DomainOptionsSlot],
    position: u32,
    identity: ChecksumIdentity,
    /// Users and groups of all domains so far.
    ends: [u32; 2],
    /// Users and groups of the file.
    totals: [u32; 2],
}

impl<'a> Domains<'a> {
    pub(crate) fn new(
        slots: &'a [DomainSlot],
        options: &'a [DomainOptionsSlot],
        identity: ChecksumIdentity,
        totals: [u32; 2],
    ) -> Self {
        // A file without this section has no information on domains.
        let totals = if slots.is_empty() { [0; 2] } else { totals };
        Self { slots: slots.iter(), options, position: 0, identity, ends: [0; 2], totals }
    }

    #[inline(never)] // one copy in the module
    fn domain(&mut self, slot: &'a DomainSlot) -> Result<Domain<'a>, Damage> {
        let name = slot.name.get(..slot.name_len.into()).ok_or(Damage)?;
        if !self.is_whole(zerocopy::transmute_ref!(slot), SectionId::Domains) || name.is_empty() {
            return Err(Damage);
        }
        let [users, groups] = self.ends;
        let ends = [
            users.checked_add(slot.users.get()).ok_or(Damage)?,
            groups.checked_add(slot.groups.get()).ok_or(Damage)?,
        ];
        if ends[0] > self.totals[0] || ends[1] > self.totals[1] {
            return Err(Damage);
        }
        let (short_name, flags) = self.options()?;
        self.position = self.position.wrapping_add(1);
        self.ends = ends;
        Ok(Domain { name, short_name, flags, users: users..ends[0], groups: groups..ends[1] })
    }

    /// Returns whether the record at the position matches its checksum.
    #[inline(never)] // one copy in the module
    fn is_whole(&self, slot: &[u8; size_of::<DomainSlot>()], section: SectionId) -> bool {
        let [a, b, c, d, ..] = *slot;
        let check = self.identity.check(slot, section, self.position);
        hash::agrees(u32::from_le_bytes([a, b, c, d]), check)
    }

    /// Returns the short name and the flags of the domain at the position.
    fn options(&self) -> Result<(&'a [u8], u32), Damage> {
        if self.options.is_empty() {
            return Ok((&[], 0));
        }
        let slot = self.options.get(self.position as usize).ok_or(Damage)?;
        if !self.is_whole(zerocopy::transmute_ref!(slot), SectionId::DomainOptions) {
            return Err(Damage);
        }
        let short_name = slot.short_name.get(..slot.short_name_len.into()).ok_or(Damage)?;
        Ok((short_name, slot.flags.get()))
    }
}

impl<'a> Iterator for Domains<'a> {
    type Item = Result<Domain<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let domain = match self.slots.next() {
            Some(slot) => self.domain(slot),
            None if self.ends == self.totals => return None,
            None => Err(Damage),
        };
        if domain.is_err() {
            // Ends the iteration after an error.
            self.slots = Default::default();
            self.totals = self.ends;
        }
        Some(domain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Snapshot;
    use crate::golden::{ACCOUNTS, SHADOW, with_flipped_bit, with_record};
    use zerocopy::little_endian::U32;
    extern crate std;
    use std::vec::Vec;

    type Found<'a> = Vec<Result<Domain<'a>, Damage>>;

    fn domains(file: &[u8]) -> Found<'_> {
        Snapshot::open(file).unwrap().domains().unwrap().collect()
    }

    fn lab() -> Domain<'static> {
        Domain { name: b"lab", short_name: b"", flags: 0, users: 0..2, groups: 0..3 }
    }

    #[test]
    fn domains_follow_one_another() {
        let corp = Domain { name: b"corp", users: 2..5, groups: 3..4, ..lab() };
        assert_eq!(domains(ACCOUNTS), [Ok(lab()), Ok(corp)]);
        assert_eq!(Snapshot::open_shadow(SHADOW).unwrap().domains().unwrap().count(), 0);
    }

    #[test]
    fn domains_that_do_not_fit_are_damage() {
        let changed = |position, change: fn(&mut DomainSlot)| {
            with_record(ACCOUNTS, SectionId::Domains, position, change)
        };
        for change in [
            (|slot| slot.users = U32::new(4)) as fn(&mut DomainSlot),
            |slot| slot.groups = U32::new(u32::MAX),
            |slot| slot.name_len = 0,
            |slot| slot.name_len = 65,
        ] {
            assert_eq!(domains(&changed(1, change)), [Ok(lab()), Err(Damage)]);
        }
        let fewer = changed(1, |slot| slot.users = U32::new(2));
        let corp = Domain { name: &b"corp"[..], users: 2..4, groups: 3..4, ..lab() };
        assert_eq!(domains(&fewer), [Ok(lab()), Ok(corp), Err(Damage)]);
        assert_eq!(
            domains(&with_flipped_bit::<DomainSlot>(ACCOUNTS, SectionId::Domains, 0)),
            [Err(Damage)]
        );
    }
}
