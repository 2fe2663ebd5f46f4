// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds entries by other names: other spellings in domains without regard to case, and names with a domain.
//!
//! An entry of a domain that ignores case has [`flags::ANY_CASE`](crate::layout::flags::ANY_CASE), and its key in the
//! index is the folded name. `alice@corp` and `CORP\\alice` find the entry `alice` or `alice@corp` of the domain `corp`,
//! and no entry of another domain.
//!
//! Every process loads the module, so users and groups share one copy of this code.

use crate::domains::Domain;
use crate::{Damage, Gids, Group, LookupResult, Snapshot, User, hash};
use core::ops::Range;
use roster_names::{NAME_BYTES_MAX, NameBuffer, QualifiedName, folds_to, qualified_forms};

/// Kind of the entries that a name may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamedKind {
    User,
    Group,
    /// A name slot.
    Member,
}

/// A key of an index, and the entries that count.
#[derive(Clone, Copy)]
struct SpellingKey<'k> {
    kind: NamedKind,
    name: &'k [u8],
    /// The name is folded, and only entries that ignore case count.
    is_folded: bool,
    /// Positions of the entries of one domain.
    within: Option<&'k Range<u32>>,
}

impl<'a> Snapshot<'a> {
    /// Returns the user with that name, if no user has exactly the name: by another spelling, or with a domain.
    #[cold]
    #[inline(never)]
    pub fn user_by_other_name(&self, name: &[u8]) -> LookupResult<User<'a>> {
        let position = self.position_by_other_name(NamedKind::User, name)?;
        position.map(|position| self.user_of(position)).transpose()
    }

    /// Returns the group with that name, if no group has exactly the name.
    #[cold]
    #[inline(never)]
    pub fn group_by_other_name(&self, name: &[u8]) -> LookupResult<Group<'a>> {
        let position = self.position_by_other_name(NamedKind::Group, name)?;
        position.map(|position| self.group_of(position)).transpose()
    }

    /// Returns the user with that name, in less code and more time than [`Snapshot::user_by_name`].
    #[cold]
    #[inline(never)]
    pub fn user_by_any_name(&self, name: &[u8]) -> LookupResult<User<'a>> {
        let key = SpellingKey { kind: NamedKind::User, name, is_folded: false, within: None };
        match self.position_of_key(&key)? {
            Some(position) => self.user_of(position).map(Some),
            None => self.user_by_other_name(name),
        }
    }

    /// Returns the groups of the user that another name finds.
    #[cold]
    #[inline(never)]
    pub(crate) fn groups_by_other_name(&self, name: &[u8]) -> LookupResult<Gids<'a>> {
        let Some(user) = self.user_by_other_name(name)? else { return Ok(None) };
        let (kind, name) = (NamedKind::Member, user.text.first());
        let key = SpellingKey { kind, name, is_folded: false, within: None };
        let Some(position) = self.position_of_key(&key)? else { return Ok(None) };
        Ok(self.supplementary_at(position)?.map(|(_, gids)| gids))
    }

    /// Tries the other readings of a name. An exact match was tried before.
    #[inline(never)]
    fn position_by_other_name(&self, kind: NamedKind, name: &[u8]) -> LookupResult<u32> {
        if !self.has_domains {
            return Ok(None);
        }
        let forms = qualified_forms(name);
        let is_plain = forms.iter().all(Option::is_none);
        if name.len() > NAME_BYTES_MAX || is_plain && !self.has_domain_options {
            return Ok(None);
        }
        let mut ignores_case = false;
        let mut named = [None, None];
        for domain in self.domains().map_err(|_| Damage)? {
            let domain = domain?;
            ignores_case |= domain.ignores_case();
            for (place, form) in named.iter_mut().zip(&forms) {
                if let Some(form) = form
                    && domain.is_called(form.domain)
                {
                    *place = Some((*form, domain.clone()));
                }
            }
        }
        if ignores_case {
            let found = self.position_by_folded(kind, name, None)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        for (form, domain) in named.iter().flatten() {
            let found = self.position_in_domain(kind, *form, domain)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Finds an entry of one domain: by its name with the domain, or by its name alone.
    #[inline(never)]
    fn position_in_domain(
        &self,
        kind: NamedKind,
        form: QualifiedName<'_>,
        domain: &Domain<'_>,
    ) -> LookupResult<u32> {
        let within = match kind {
            NamedKind::User => &domain.users,
            NamedKind::Group | NamedKind::Member => &domain.groups,
        };
        if let Some(qualified) = NameBuffer::qualified(form.name, domain.name) {
            let found = self.position_within(kind, qualified.as_bytes(), domain, within)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        self.position_within(kind, form.name, domain, within)
    }

    #[inline(never)]
    fn position_within(
        &self,
        kind: NamedKind,
        name: &[u8],
        domain: &Domain<'_>,
        within: &Range<u32>,
    ) -> LookupResult<u32> {
        let key = SpellingKey { kind, name, is_folded: false, within: Some(within) };
        match self.position_of_key(&key)? {
            None if domain.ignores_case() => self.position_by_folded(kind, name, Some(within)),
            found => Ok(found),
        }
    }

    #[inline(never)]
    fn position_by_folded(
        &self,
        kind: NamedKind,
        name: &[u8],
        within: Option<&Range<u32>>,
    ) -> LookupResult<u32> {
        let Some(folded) = NameBuffer::folded(name) else { return Ok(None) };
        let key = SpellingKey { kind, name: folded.as_bytes(), is_folded: true, within };
        self.position_of_key(&key)
    }

    #[inline(never)]
    fn position_of_key(&self, key: &SpellingKey<'_>) -> LookupResult<u32> {
        let index = match key.kind {
            NamedKind::User => &self.by_user_name,
            NamedKind::Group => &self.by_group_name,
            NamedKind::Member => &self.by_member,
        };
        index.find(hash::bytes(key.name, self.seed), |position| {
            let is_within = key.within.is_none_or(|within| within.contains(&position));
            let is_called = match (self.name_at(key.kind, position)?, key.is_folded) {
                (Some((name, true)), true) => folds_to(name, key.name),
                (Some((name, _)), false) => name == key.name,
                _ => false,
            };
            Ok((is_within && is_called).then_some(position))
        })
    }

    /// Returns the name of an entry, and whether it ignores case. Returns `None` if the floor refuses the entry.
    #[inline(never)]
    fn name_at(&self, kind: NamedKind, position: u32) -> LookupResult<(&'a [u8], bool)> {
        match kind {
            NamedKind::User => {
                let text = self.user_of(position)?.text;
                Ok((!text.is_refused()).then(|| (text.first(), text.is_any_case())))
            }
            NamedKind::Group => {
                let text = self.group_of(position)?.text;
                Ok((!text.is_refused()).then(|| (text.first(), text.is_any_case())))
            }
            NamedKind::Member => Ok(self.name(position)?.map(|name| (name, false))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{NAMES, with_flipped_bit, with_header, with_record};
    use crate::layout::{DomainOptionsSlot, SectionId, UserSlot, flags};
    use zerocopy::little_endian::{U32, U64};
    extern crate std;

    fn uid(file: &[u8], name: &[u8]) -> LookupResult<u32> {
        let snapshot = Snapshot::open(file).unwrap();
        Ok(snapshot.user_by_name(name)?.map(|user| user.uid))
    }

    #[test]
    fn spellings_of_golden_file_are_found() {
        for (name, expected) in [
            (&b"alice"[..], Some(5000)),
            (b"ALICE@HQ", Some(5000)),
            (b"hq\\Alice", Some(5000)),
            ("j\u{fc}rgen".as_bytes(), Some(5001)),
            (b"Alice@lab", Some(7000)),
            (b"LAB\\Alice", Some(7000)),
            (b"zoe@lab", Some(7001)),
            (b"ZOE", None),
            (b"zoe@corp", None),
            (b"zoe@hq", None),
        ] {
            assert_eq!(uid(NAMES, name), Ok(expected), "{}", name.escape_ascii());
        }
        let snapshot = Snapshot::open(NAMES).unwrap();
        assert_eq!(snapshot.user_by_any_name(b"STRANGER").map(|_| ()), Ok(()));
        assert_eq!(snapshot.group_by_name(b"STAFF").unwrap().unwrap().gid, 6000);
    }

    /// An attacker can compute each checksum.
    #[test]
    fn spellings_in_forged_file_are_bounded() {
        // A record without the flag is found by no other spelling, even with the key of one.
        let file = with_record(NAMES, SectionId::Users, 0, |slot: &mut UserSlot| {
            slot.flags &= !flags::ANY_CASE;
        });
        assert_eq!(uid(&file, b"alice"), Ok(None));
        let options = |change: fn(&mut DomainOptionsSlot)| {
            with_record(NAMES, SectionId::DomainOptions, 0, change)
        };
        assert_eq!(uid(&options(|slot| slot.flags = U32::new(0)), b"alice"), Ok(None));
        for len in [65, u8::MAX] {
            let file =
                with_record(NAMES, SectionId::DomainOptions, 0, |slot: &mut DomainOptionsSlot| {
                    slot.short_name_len = len;
                });
            assert_eq!(uid(&file, b"alice"), Err(Damage), "{len}");
        }
        let file = with_flipped_bit::<DomainOptionsSlot>(NAMES, SectionId::DomainOptions, 1);
        assert_eq!(uid(&file, b"alice"), Err(Damage));
        assert_eq!(uid(&file, b"zoe"), Ok(Some(7001)));
        // Fewer options than domains.
        let file = with_header(NAMES, |header| {
            let id = SectionId::DomainOptions as u32;
            let section = header.sections.iter_mut().find(|one| one.id.get() == id).unwrap();
            section.count = U64::new(1);
        });
        assert_eq!(uid(&file, b"alice"), Err(Damage));
        assert_eq!(uid(&file, b"zoe"), Ok(Some(7001)));
    }
}
