//! What people are told of the publisher's entries: how many are refused and why, which, and what is
//! known of a name.

use super::merge::Merged;
use super::model::{Entry, Group, User};
use super::restored::Behind;
use super::state::{DomainState, State};
use roster_admission::Refusal;
use roster_bus::exchange::NO_REFERENCE;
use roster_bus::interfaces::{DomainCounts, Kind, Rejected, Shown};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Reasons that are told of one domain; the rest is one line.
const REASONS_MAX: usize = 20;
/// Of one fault, different ids that are told one by one. Where there are more, the ids say nothing.
const IDS_MAX: usize = 8;
/// Longest name in a report, in bytes: longer ones are refused anyway, and ten thousand of them are to
/// fit into one message.
const NAME_BYTES_MAX: usize = 256;
/// Members of a group, or groups of a user, that are shown.
const RELATED_MAX: usize = 10_000;

/// How many entries are served of each domain, and why others are not.
#[must_use]
pub fn counts(names: &[&str], merged: &Merged<'_>) -> Vec<DomainCounts> {
    let named = |name: &&str| DomainCounts { domain: (*name).into(), ..DomainCounts::default() };
    let mut counts: Vec<_> = names.iter().map(named).collect();
    merged.users.iter().for_each(|user| counts[user.domain].users += 1);
    for group in &merged.groups {
        let counts = &mut counts[group.domain];
        counts.groups += 1;
        counts.listed += group.entry.entry().references().len() as u64;
    }
    for (counts, refused) in counts.iter_mut().zip(&merged.refused) {
        counts.refused = reasons(refused);
    }
    counts
}

/// Reasons and how often, most frequent first.
fn reasons(refused: &[(u32, Refusal)]) -> Vec<(String, u64)> {
    let mut refusals: HashMap<Refusal, u64> = HashMap::new();
    refused.iter().for_each(|(_, refusal)| *refusals.entry(*refusal).or_default() += 1);
    let mut faults: HashMap<String, Vec<(Refusal, u64)>> = HashMap::new();
    for (refusal, count) in refusals {
        faults.entry(refusal.without_id()).or_default().push((refusal, count));
    }
    let mut reasons = Vec::new();
    for (fault, refusals) in faults {
        if refusals.len() > IDS_MAX {
            reasons.push((fault, refusals.iter().map(|(_, count)| count).sum()));
        } else {
            reasons.extend(refusals.iter().map(|(refusal, count)| (refusal.to_string(), *count)));
        }
    }
    reasons.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    if reasons.len() > REASONS_MAX {
        let others = reasons.split_off(REASONS_MAX);
        let count = others.iter().map(|(_, count)| count).sum();
        reasons.push((format!("{} other reasons", others.len()), count));
    }
    reasons
}

impl State {
    /// Entries of a domain that are not served. `None` when there is no such domain.
    #[must_use]
    pub fn rejected(&self, domain: &str, from: u32, at_most: u32) -> Option<Vec<Rejected>> {
        let domain = self.domains.iter().find(|known| known.name == domain)?;
        let refused = domain.refused.iter().skip(from as usize).take(at_most as usize);
        Some(refused.filter_map(|(number, refusal)| domain.rejected(*number, refusal)).collect())
    }

    /// Every entry of that name in any domain; of users when `kind` is one for users.
    #[must_use]
    pub fn show(&self, kind: Kind, name: &[u8]) -> Vec<Shown> {
        let unread = self.unread();
        let domains = self.domains.iter().enumerate();
        let shown = domains.flat_map(|(position, domain)| {
            let first = unread.filter(|unread| *unread < position);
            let first = first.map(|unread| &*self.domains[unread].name);
            let shown = domain.show(kind, name, self.restored_before(position));
            shown.into_iter().map(move |shown| match first {
                Some(first) => Shown {
                    refused: format!("domain {first}, which goes before, was never read"),
                    ..shown
                },
                None => shown,
            })
        });
        shown.collect()
    }
}

impl DomainState {
    fn show(&self, kind: Kind, name: &[u8], restored: Option<(&str, &Arc<Behind>)>) -> Vec<Shown> {
        let refused = |number: u32| {
            if let (Some((restored, behind)), Some(entry)) = (restored, self.entries.entry(number))
                && behind.gid_of(entry).is_none()
            {
                return format!(
                    "it is new, and domain {restored}, which goes before, is not taken in"
                );
            }
            let found = self.refused.iter().find(|(refused, _)| *refused == number);
            found.map(|(_, refusal)| refusal.to_string()).unwrap_or_default()
        };
        let shown = |number, id| Shown {
            domain: self.name.clone(),
            name: printable(name),
            id,
            refused: refused(number),
            ..Shown::default()
        };
        match kind {
            Kind::UserByName | Kind::UserByUid | Kind::GroupsOf => {
                let users = self.entries.users().filter(|(_, user)| user.name() == name);
                users
                    .map(|(number, user)| Shown {
                        gid: user.gid,
                        details: [user.gecos(), user.dir(), user.shell()].map(printable).into(),
                        related: some_of(self.groups_of(user)),
                        ..shown(number, user.uid)
                    })
                    .collect()
            }
            Kind::GroupByName | Kind::GroupByGid => {
                let groups = self.entries.groups().filter(|(_, group)| *group.name == *name);
                groups
                    .map(|(number, group)| Shown {
                        related: some_of(self.members_of(group)),
                        ..shown(number, group.gid)
                    })
                    .collect()
            }
        }
    }

    fn rejected(&self, number: u32, refusal: &Refusal) -> Option<Rejected> {
        let (kind, name) = match self.entries.entry(number)? {
            Entry::User(user) => ("user", user.name()),
            Entry::Group(group) => ("group", &*group.name),
        };
        let name = printable(name);
        Some(Rejected { kind: kind.into(), name, reason: refusal.to_string() })
    }

    /// Names behind a group's references; of users, and of groups in parentheses.
    fn members_of(&self, group: &Group) -> impl Iterator<Item = String> {
        let mut told = HashSet::new();
        let references =
            group.references().iter().filter(move |&&reference| told.insert(reference));
        let mut seen = HashSet::new();
        let numbers = references.flat_map(|&reference| self.entries.referred(reference));
        let numbers = numbers.filter(move |number| seen.insert(*number));
        numbers.filter_map(|number| match self.entries.entry(number)? {
            Entry::User(user) => Some(printable(user.name())),
            Entry::Group(group) => Some(format!("({})", printable(&group.name))),
        })
    }

    /// Names of the groups that list the user, or that the directory named when it was asked.
    fn groups_of(&self, user: &User) -> impl Iterator<Item = String> {
        let asked: HashSet<u32> = user.groups.iter().flatten().copied().collect();
        let references = user.references;
        let lists = move |group: &Group| {
            let mut named = group.references().iter().filter(|one| **one != NO_REFERENCE);
            named.any(|member| references.contains(member))
        };
        let groups = self.entries.groups();
        let groups = groups.filter(move |(number, group)| asked.contains(number) || lists(group));
        groups.map(|(_, group)| printable(&group.name))
    }
}

fn some_of(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names = names;
    let mut some: Vec<_> = names.by_ref().take(RELATED_MAX).collect();
    let more = names.count();
    if more > 0 {
        some.push(format!("… and {more} more"));
    }
    some
}

/// Any bytes as text that can be printed and sent: a NUL does not go over the bus, and an escape
/// sequence not onto a terminal.
fn printable(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(NAME_BYTES_MAX)];
    let mut text = String::with_capacity(cut.len());
    for chunk in cut.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| text.extend(byte.escape_ascii().map(char::from)));
    }
    if cut.len() < bytes.len() {
        text.push('…');
    }
    text
}
