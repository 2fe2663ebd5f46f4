// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds entries by other names: other spellings in domains without regard to case, and names with a domain.
//!
//! An entry of a domain that ignores case has [`flags::ANY_CASE`](crate::layout::flags::ANY_CASE), and its key in the
//! index is the folded name. `alice@corp` and `CORP\\alice` find the entry `alice` or `alice@corp` of the domain `corp`,
//! and no entry of another domain.

use crate::domains::Domain;
use crate::{Damage, Gids, Group, LookupResult, Snapshot, User, hash};
use core::ops::Range;
use roster_names::{NAME_BYTES_MAX, NameBuffer, QualifiedName, qualified_forms};

/// A key of an index, and the entries that count.
#[derive(Clone, Copy)]
struct SpellingKey<'k> {
    name: &'k [u8],
    /// The name is folded, and only entries that ignore case count.
    is_folded: bool,
    /// Positions of the entries of one domain.
    within: Option<&'k Range<u32>>,
}

impl SpellingKey<'_> {
    fn is_within(&self, position: u32) -> bool {
        self.within.is_none_or(|within| within.contains(&position))
    }
}

impl<'a> Snapshot<'a> {
    #[cold]
    #[inline(never)]
    pub(crate) fn user_by_other_spelling(&self, name: &[u8]) -> LookupResult<User<'a>> {
        self.by_other_spelling(name, |domain| &domain.users, |key| self.user_of_key(key))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn group_by_other_spelling(&self, name: &[u8]) -> LookupResult<Group<'a>> {
        self.by_other_spelling(name, |domain| &domain.groups, |key| self.group_of_key(key))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn groups_by_other_spelling(&self, name: &[u8]) -> LookupResult<Gids<'a>> {
        match self.user_by_name(name)? {
            Some(user) => self.supplementary(user.record().name),
            None => Ok(None),
        }
    }

    #[inline(never)]
    fn user_of_key(&self, key: SpellingKey<'_>) -> LookupResult<User<'a>> {
        self.by_user_name.find(hash::bytes(key.name, self.seed), |position| {
            let user = self.user_of(position)?;
            let is_called = match key.is_folded {
                true => user.text.is_any_case() && user.text.is_first_folded(key.name),
                false => user.text.is_first(key.name),
            };
            Ok((is_called && key.is_within(position) && !user.is_refused()).then_some(user))
        })
    }

    #[inline(never)]
    fn group_of_key(&self, key: SpellingKey<'_>) -> LookupResult<Group<'a>> {
        self.by_group_name.find(hash::bytes(key.name, self.seed), |position| {
            let group = self.group_of(position)?;
            let is_called = match key.is_folded {
                true => group.text.is_any_case() && group.text.is_first_folded(key.name),
                false => group.text.is_first(key.name),
            };
            Ok((is_called && key.is_within(position) && !group.is_refused()).then_some(group))
        })
    }

    /// Tries the other readings of a name. An exact match was tried before.
    fn by_other_spelling<T>(
        &self,
        name: &[u8],
        positions: for<'d> fn(&'d Domain<'a>) -> &'d Range<u32>,
        find: impl Fn(SpellingKey<'_>) -> LookupResult<T>,
    ) -> LookupResult<T> {
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
            for (place, form) in named.iter_mut().zip(forms) {
                if let Some(form) = form.filter(|form| domain.is_called(form.domain)) {
                    *place = Some((form, domain.clone()));
                }
            }
        }
        if ignores_case && let Some(found) = find_folded(name, None, &find)? {
            return Ok(Some(found));
        }
        for (form, domain) in named.into_iter().flatten() {
            if let Some(found) = find_in_domain(form, &domain, positions(&domain), &find)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// Finds an entry of one domain: by its name with the domain, or by its name alone.
fn find_in_domain<T>(
    form: QualifiedName<'_>,
    domain: &Domain<'_>,
    positions: &Range<u32>,
    find: &impl Fn(SpellingKey<'_>) -> LookupResult<T>,
) -> LookupResult<T> {
    let qualified = NameBuffer::qualified(form.name, domain.name);
    let names = [qualified.as_ref().map(NameBuffer::as_bytes), Some(form.name)];
    for name in names.into_iter().flatten() {
        let exactly = find(SpellingKey { name, is_folded: false, within: Some(positions) })?;
        if exactly.is_some() {
            return Ok(exactly);
        }
        if domain.ignores_case()
            && let Some(found) = find_folded(name, Some(positions), find)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn find_folded<T>(
    name: &[u8],
    within: Option<&Range<u32>>,
    find: &impl Fn(SpellingKey<'_>) -> LookupResult<T>,
) -> LookupResult<T> {
    match NameBuffer::folded(name) {
        Some(folded) => find(SpellingKey { name: folded.as_bytes(), is_folded: true, within }),
        None => Ok(None),
    }
}
