// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports on the publisher's entries: rejected ones with counts and reasons, and the details of a name.
//! `roster_admission` and `merge` decide about them.

use super::domain_model::private_group_owner;
use super::model_entry::{ModelEntry, ModelGroup, ModelUser};
use super::printable::printable;
use super::state::{DomainState, PublisherState};
use roster_admission::{AsGroup as _, Locals, Refusal};
use roster_bus::domain_image::NO_REFERENCE;
use roster_bus::interfaces::{EntryDetails, RejectedEntry};
use roster_messages::table::directory;
use roster_names::qualified_forms;
use roster_request::LookupKind;
use std::collections::HashSet;
use tracing::trace;

/// Rejected entries of one snapshot in the trace log.
const LOGGED_MAX: usize = 1000;
/// Members of a group, or groups of a user, in a report.
const RELATED_MAX: usize = 10_000;

impl PublisherState {
    /// Returns rejected entries of a domain. `None` if there is no such domain.
    #[must_use]
    pub fn rejected(&self, domain: &str, from: u32, at_most: u32) -> Option<Vec<RejectedEntry>> {
        let domain = self.domains.iter().find(|known| known.name == domain)?;
        let refused = domain.rejected.iter().skip(from as usize).take(at_most as usize);
        Some(
            refused
                .filter_map(|(number, refusal)| domain.rejected_entry(*number, refusal))
                .collect(),
        )
    }

    /// Returns every entry of that name in any domain: users if `kind` is a kind of user lookup, otherwise groups.
    #[must_use]
    pub fn show_entries(&self, kind: LookupKind, name: &[u8]) -> Vec<EntryDetails> {
        let domains = self.domains.iter().enumerate();
        let shown = domains.flat_map(|(position, domain)| {
            let first = self.unread_before(position).map(|unread| &*unread.name);
            // A lookup may have brought an entry that no snapshot has decided about yet.
            let refusal = move |number| self.refusal((position, number));
            let shown = domain.show_entries(kind, name, refusal, self.locals.as_deref());
            shown.into_iter().map(move |shown| match first {
                Some(first) => EntryDetails {
                    refused: format!("the higher-priority domain {first} was not read yet"),
                    refused_code: directory::DOMAIN_NOT_READ.code.to_owned(),
                    ..shown
                },
                None => shown,
            })
        });
        shown.collect()
    }
}

impl DomainState {
    fn show_entries(
        &self,
        kind: LookupKind,
        name: &[u8],
        refusal: impl Fn(u32) -> Option<Refusal>,
        locals: Option<&Locals>,
    ) -> Vec<EntryDetails> {
        let described =
            |refusal: &Refusal| (refusal.to_string(), refusal.message().code.to_owned());
        let refused = |number: u32| {
            let found = self.rejected.iter().find(|(refused, _)| *refused == number);
            let found = found.map(|(_, refusal)| described(refusal));
            found.or_else(|| refusal(number).as_ref().map(described)).unwrap_or_default()
        };
        let names = &self.rules.names;
        // The name alone, and the name with this domain.
        let forms = qualified_forms(name).into_iter().flatten();
        let forms = forms.filter(|form| names.is_called(form.domain)).map(|form| form.name);
        let searched: Vec<&[u8]> = std::iter::once(name).chain(forms).collect();
        let is_searched = |native: &[u8]| {
            let base = names.base(native);
            searched.iter().any(|name| *native == **name || names.matches(&base, name))
        };
        let shown = |number, name: &[u8], id| {
            let (refused, refused_code) = refused(number);
            let (domain, name) = (self.name.clone(), printable(&self.served_name(number, name)));
            EntryDetails { domain, name, id, refused, refused_code, ..EntryDetails::default() }
        };
        let is_user_searched =
            |user: &ModelUser| is_searched(user.name()) || is_searched(user.native().name());
        let is_group_searched =
            |group: &ModelGroup| is_searched(&group.name) || is_searched(group.native_name());
        match kind {
            LookupKind::UserByName | LookupKind::UserByUid | LookupKind::GroupsOf => {
                let users = self.entries.users().filter(|(_, user)| is_user_searched(user));
                users
                    .map(|(number, user)| EntryDetails {
                        gid: user.gid,
                        details: user_details(user, self.served_shell(user, locals)),
                        related: capped_names(self.groups_of(user)),
                        directory: replaced_values(user),
                        ..shown(number, user.name(), user.uid)
                    })
                    .collect()
            }
            LookupKind::GroupByName | LookupKind::GroupByGid => {
                let groups = self.entries.groups().filter(|(_, group)| is_group_searched(group));
                let private = self.entries.private_groups();
                // A private group of a rejected user is not served either.
                let private = private.filter(|(number, group)| {
                    let user = private_group_owner(*number).unwrap_or(*number);
                    is_searched(&group.name)
                        && (!refused(*number).0.is_empty() || refused(user).0.is_empty())
                });
                groups
                    .chain(private)
                    .map(|(number, group)| EntryDetails {
                        related: capped_names(self.members_of(group)),
                        directory: replaced_values_of_group(group),
                        ..match group.gid {
                            Some(gid) => shown(number, &group.name, gid),
                            None => EntryDetails {
                                refused: "without a gid: used for nesting and access rules".into(),
                                refused_code: directory::GROUP_ONLY_NESTS.code.to_owned(),
                                ..shown(number, &group.name, group.gid())
                            },
                        }
                    })
                    .collect()
            }
        }
    }

    /// Returns the shell with which a user is served.
    pub(super) fn served_shell<'s>(
        &'s self,
        user: &'s ModelUser,
        locals: Option<&Locals>,
    ) -> &'s [u8] {
        let replacement = |locals| self.rules.replacement_shell(user.shell(), locals);
        locals.and_then(replacement).unwrap_or_else(|| user.shell())
    }

    /// Returns the name under which the last publication served an entry.
    fn served_name(&self, number: u32, native: &[u8]) -> Vec<u8> {
        let names = &self.rules.names;
        match self.with_domain.contains(&number) {
            true => names.qualified(&names.base(native)).into_owned(),
            false => names.preferred(native).into_owned(),
        }
    }

    /// Logs the first rejected entries of a snapshot with their reasons.
    pub(super) fn log_rejections(&self) {
        let listed = self.rejected.iter().take(LOGGED_MAX);
        for entry in listed.filter_map(|(number, refusal)| self.rejected_entry(*number, refusal)) {
            let RejectedEntry { kind, name, reason, code, .. } = entry;
            trace!(domain = self.name, kind, name, reason, reason_code = code, "entry rejected");
        }
        trace!(
            domain = self.name,
            rejected = self.rejected.len(),
            "entries of the snapshot admitted"
        );
    }

    fn rejected_entry(&self, number: u32, refusal: &Refusal) -> Option<RejectedEntry> {
        let entry = self.entries.entry(number)?;
        let (kind, name) = match entry {
            ModelEntry::User(user) => ("user", user.name()),
            ModelEntry::Group(group) => ("group", &*group.name),
        };
        let name = printable(name);
        let code = refusal.message().code.to_owned();
        let (mut reason, fix) = (refusal.to_string(), refusal.fix().unwrap_or_default());
        if let Some(native) = overridden_name(entry) {
            reason += &format!(" (override of {})", printable(native));
        }
        Some(RejectedEntry { kind: kind.into(), name, reason, code, fix })
    }

    /// Returns names behind a group's references; names of groups are in parentheses.
    fn members_of(&self, group: &ModelGroup) -> impl Iterator<Item = String> {
        let mut told = HashSet::new();
        let references =
            group.references().iter().filter(move |&&reference| told.insert(reference));
        let mut seen = HashSet::new();
        let numbers = references.flat_map(|&reference| self.entries.entries_referred(reference));
        let numbers = numbers.filter(move |number| seen.insert(*number));
        numbers.filter_map(|number| match self.entries.entry(number)? {
            ModelEntry::User(user) => Some(printable(user.name())),
            ModelEntry::Group(group) => Some(format!("({})", printable(&group.name))),
        })
    }

    /// Returns names of the groups that list the user, or that the directory named in reply to a query.
    fn groups_of(&self, user: &ModelUser) -> impl Iterator<Item = String> {
        let asked: HashSet<u32> = user.groups.iter().flatten().copied().collect();
        let references = user.references;
        let lists = move |group: &ModelGroup| {
            let mut named = group.references().iter().filter(|one| **one != NO_REFERENCE);
            named.any(|member| references.contains(member))
        };
        let groups = self.entries.groups();
        let groups = groups.filter(move |(number, group)| asked.contains(number) || lists(group));
        groups.map(|(_, group)| printable(&group.name))
    }
}

/// Returns GECOS, home directory and shell of a user, and the directory's shell if another one is served.
fn user_details(user: &ModelUser, served_shell: &[u8]) -> Vec<String> {
    let replaced = Some(user.shell()).filter(|own| *own != served_shell);
    [user.gecos(), user.dir(), served_shell].into_iter().chain(replaced).map(printable).collect()
}

/// Returns the name in the directory of an entry with an override.
fn overridden_name(entry: ModelEntry<'_>) -> Option<&[u8]> {
    match entry {
        ModelEntry::User(user) => user.is_overridden().then(|| user.native().name()),
        ModelEntry::Group(group) => group.native.is_some().then(|| group.native_name()),
    }
}

/// Returns the values of the directory that an override replaces, by field.
fn replaced_values(user: &ModelUser) -> Vec<(String, String)> {
    let native = user.native();
    let number = |id: u32| id.to_string().into_bytes();
    let fields = [
        ("name", user.name().to_vec(), native.name().to_vec()),
        ("uid", number(user.uid), number(native.uid)),
        ("gid", number(user.gid), number(native.gid)),
        ("gecos", user.gecos().to_vec(), native.gecos().to_vec()),
        ("home", user.dir().to_vec(), native.dir().to_vec()),
        ("shell", user.shell().to_vec(), native.shell().to_vec()),
    ];
    let replaced = fields.into_iter().filter(|(_, served, native)| served != native);
    replaced.map(|(field, _, native)| (field.to_owned(), printable(&native))).collect()
}

/// As [`replaced_values`], for a group.
fn replaced_values_of_group(group: &ModelGroup) -> Vec<(String, String)> {
    let mut replaced = Vec::new();
    if *group.name != *group.native_name() {
        replaced.push(("name".to_owned(), printable(group.native_name())));
    }
    if let Some(gid) = group.native_gid().filter(|_| group.gid != group.native_gid()) {
        replaced.push(("gid".to_owned(), gid.to_string()));
    }
    replaced
}

fn capped_names(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names = names;
    let mut some: Vec<_> = names.by_ref().take(RELATED_MAX).collect();
    let more = names.count();
    if more > 0 {
        some.push(format!("… and {more} more"));
    }
    some
}
