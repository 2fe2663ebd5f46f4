// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the image of a snapshot from merged domains, and resolves members. A reference of a domain's group leads only
//! to served users of that domain, directly or through its nested groups. With Active Directory, a nested group also
//! stands for the users with this primary group. `merge` decides which entries are served.

use super::domain_model::DomainModel;
use super::memory_limit;
use super::merge::{DomainSource, MergedDomains, MergedEntry};
use super::model_entry::{ModelEntry, ModelGroup};
use super::name_owners::NameScheme;
use roster_admission::{AsGroup as _, DomainNames, Refusal};
use roster_config::{NameCase, ServingConfig};
use roster_passwd_format as record;
use roster_snapshot::layout::{SnapshotKind, domain_flags};
use roster_snapshot_build::parallel::{self, cut, threads};
use roster_snapshot_build::{
    DomainOptions, IncompleteFlags, MemberId, MemberVisibility, SnapshotBuilder, SnapshotImage,
    TooLarge,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// The password field of directory users, which matches no password. With `x`, pam_unix would look for a shadow entry
/// and fail.
pub const PASSWD: &[u8] = b"*";

/// Builds the image. `scheme` has the names of the domains. `responder` is the socket for queries if a domain is on demand. Entries below the first on-demand
/// domain come without memberships, because that domain may own the names. Groups with more nested members than the
/// limit are removed from `merged` and rejected. The snapshot lists the domains that were read.
pub fn build(
    scheme: &NameScheme,
    sources: &[DomainSource<'_>],
    merged: &mut MergedDomains<'_>,
    min_id: u32,
    responder: Option<&[u8]>,
) -> Result<SnapshotImage, TooLarge> {
    let domains: Vec<_> = sources.iter().map(|source| source.domain).collect();
    let mut builder = SnapshotBuilder::new(min_id);
    if let Some(path) = responder {
        builder.responder(path)?;
    }
    let references = merged.groups.iter().map(|group| group.entry.entry().references().len());
    builder.reserve(merged.users.len(), merged.groups.len(), references.sum());
    let first_asked = domains.iter().position(|domain| !domain.is_complete);
    let is_asked = |domain: &usize| !domains[*domain].is_complete;
    let ask_first = |domain: usize| {
        (0..domains.len())
            .filter(is_asked)
            .any(|other| other != domain && scheme.precedes(other, domain))
    };
    let gaps = |domain: usize, number: u32, list_known: bool| IncompleteFlags {
        responder_first: ask_first(domain) || domains[domain].is_undecided(number),
        list_unknown: !list_known && !domains[domain].is_complete,
    };
    let mut targets: Vec<_> = domains.iter().map(|domain| ReferenceTargets::new(domain)).collect();
    let ids = add_users(&mut builder, scheme, merged, &gaps, &mut targets)?;
    let weights = merged.groups.iter().map(|group| group.entry.entry().references().len() as u64);
    let ranges = cut(weights, threads());
    let flat =
        parallel::each(ranges, |range| FlatGroups::new(&merged.groups[range], &targets, &ids));
    let lists = flat.iter().flat_map(FlatGroups::lists);
    let mut walk = NestedGroupWalk::new(&ids);
    let primary = primary_members(sources, merged);
    let budget =
        |domain: &&DomainModel| NESTED_MAX.min(domain.memory_left() / memory_limit::MEMBER_BYTES);
    let mut budgets: Vec<u64> = domains.iter().map(budget).collect();
    let mut refused = HashSet::new();
    for (group, list) in merged.groups.iter().zip(lists) {
        let (domain, budget) = (domains[group.domain], &mut budgets[group.domain]);
        let entry = group.entry.entry();
        builder.set_any_case(scheme.names(group.domain).ignores_case());
        let name = group.entry.name();
        let record = record::Group { name, passwd: Some(PASSWD), gid: entry.gid() };
        if ask_first(group.domain) {
            // Each member name may be another user there.
            let gaps = IncompleteFlags { responder_first: true, list_unknown: true };
            builder.group_with_ids(&record, &[], MemberVisibility::GroupOnly, gaps)?;
            continue;
        }
        let members = match list {
            Some(members) => Some((members, entry.members.is_some())),
            None => {
                let edges =
                    GroupEdges { targets: &targets[group.domain], primary: &primary[group.domain] };
                walk.members(domain, edges, group, budget)
            }
        };
        let Some((members, list_known)) = members else {
            refused.insert((group.domain, group.number));
            merged.rejected[group.domain].push((group.number, Refusal::Nested));
            continue;
        };
        let gaps = gaps(group.domain, group.number, list_known);
        builder.group_with_ids(&record, members, membership_source(domains[group.domain]), gaps)?;
    }
    // The builder copies all members in the next step.
    drop((flat, walk));
    merged.groups.retain(|group| !refused.contains(&(group.domain, group.number)));
    add_domains(&mut builder, scheme, sources, merged)?;
    if let Some(position) = first_asked {
        add_on_demand_groups(&mut builder, position, merged)?;
    }
    Ok(builder.finish(SnapshotKind::Accounts)?.image)
}

/// Adds the users, and notes the references that lead to them. Returns their ids.
fn add_users(
    builder: &mut SnapshotBuilder,
    scheme: &NameScheme,
    merged: &MergedDomains<'_>,
    gaps: &impl Fn(usize, u32, bool) -> IncompleteFlags,
    targets: &mut [ReferenceTargets],
) -> Result<Vec<MemberId>, TooLarge> {
    let mut ids = Vec::with_capacity(merged.users.len());
    for (position, user) in (0..).zip(&merged.users) {
        let entry = user.entry.entry();
        builder.set_any_case(scheme.names(user.domain).ignores_case());
        let record = record::User {
            name: user.entry.name(),
            passwd: Some(PASSWD),
            uid: entry.uid,
            gid: entry.gid,
            gecos: Some(entry.gecos()),
            dir: Some(entry.dir()),
            shell: Some(user.entry.shell()),
        };
        ids.push(builder.user(&record, gaps(user.domain, user.number, entry.groups.is_some()))?);
        for reference in entry.references {
            targets[user.domain].claim(reference, ReferenceTarget::User(position));
        }
    }
    Ok(ids)
}

/// Lists the domains. `merge` leaves the entries in the order of the domains.
fn add_domains(
    builder: &mut SnapshotBuilder,
    scheme: &NameScheme,
    sources: &[DomainSource<'_>],
    merged: &MergedDomains<'_>,
) -> Result<(), TooLarge> {
    let mut counts = vec![(0, 0); sources.len()];
    merged.users.iter().for_each(|user| counts[user.domain].0 += 1);
    merged.groups.iter().for_each(|group| counts[group.domain].1 += 1);
    for (position, (source, (users, groups))) in sources.iter().zip(counts).enumerate() {
        // An on-demand domain may have entries before it was read.
        if source.domain.is_present || users + groups > 0 {
            let names = scheme.names(position);
            let options = DomainOptions {
                short_name: &names.config().short_name,
                flags: domain_flags_of(names, &source.rules.serving),
            };
            builder.domain(names.domain(), &options, users, groups)?;
        }
    }
    Ok(())
}

fn domain_flags_of(names: &DomainNames, serving: &ServingConfig) -> u32 {
    let case = match names.config().case {
        NameCase::Sensitive => 0,
        NameCase::Insensitive => domain_flags::ANY_CASE,
        NameCase::Preserving => domain_flags::ANY_CASE | domain_flags::PRESERVING,
    };
    let qualified = if names.is_qualified() { domain_flags::QUALIFIED } else { 0 };
    let unlisted = if serving.enumerate { 0 } else { domain_flags::UNLISTED };
    case | qualified | unlisted
}

/// In an on-demand domain the groups of a user come from a request for that user, not from the member lists here.
fn membership_source(domain: &DomainModel) -> MemberVisibility {
    if domain.is_complete {
        MemberVisibility::GroupAndInitgroups
    } else {
        MemberVisibility::GroupOnly
    }
}

/// Adds the groups of users of the first on-demand domain. Users of lower-priority domains need a query.
fn add_on_demand_groups(
    builder: &mut SnapshotBuilder,
    position: usize,
    merged: &MergedDomains<'_>,
) -> Result<(), TooLarge> {
    let groups = merged.groups.iter().filter(|group| group.domain == position);
    let mut members: BTreeMap<u32, (u32, Vec<&[u8]>)> =
        groups.map(|group| (group.number, (group.entry.entry().gid(), Vec::new()))).collect();
    for user in merged.users.iter().filter(|user| user.domain == position) {
        for group in user.entry.entry().groups.iter().flatten() {
            if let Some((_, members)) = members.get_mut(group) {
                members.push(user.entry.name());
            }
        }
    }
    for (gid, members) in members.into_values().filter(|(_, members)| !members.is_empty()) {
        builder.initgroups_only(gid, members.into_iter())?;
    }
    Ok(())
}

/// Target of a domain's reference.
#[derive(Clone, Copy)]
enum ReferenceTarget {
    Nowhere,
    /// Two entries. The meaning is unclear, and neither gets a membership by it.
    Ambiguous,
    /// Position among the served users.
    User(u32),
    /// Number of a group.
    Group(u32),
}

struct ReferenceTargets(Vec<ReferenceTarget>);

impl ReferenceTargets {
    fn new(domain: &DomainModel) -> Self {
        let mut targets = Self(vec![ReferenceTarget::Nowhere; domain.reference_count()]);
        for (number, group) in domain.groups() {
            targets.claim(group.reference, ReferenceTarget::Group(number));
        }
        targets
    }

    fn claim(&mut self, reference: u32, target: ReferenceTarget) {
        if let Some(place) = self.0.get_mut(reference as usize) {
            *place = match (*place, target) {
                (ReferenceTarget::Nowhere, _) => target,
                // One entry that is a user and the user's own group.
                (ReferenceTarget::Group(_), ReferenceTarget::User(_)) => target,
                _ => ReferenceTarget::Ambiguous,
            };
        }
    }

    fn get(&self, reference: u32) -> ReferenceTarget {
        self.0.get(reference as usize).copied().unwrap_or(ReferenceTarget::Nowhere)
    }
}

/// Member lists of some groups without nested groups. Nearly all groups are of this kind, and they are independent of
/// each other.
struct FlatGroups {
    members: Vec<MemberId>,
    /// Range of each group's list; `None` for a group with nested groups.
    lists: Vec<Option<Range<usize>>>,
}

impl FlatGroups {
    fn new(
        groups: &[MergedEntry<'_, ModelGroup>],
        targets: &[ReferenceTargets],
        ids: &[MemberId],
    ) -> Self {
        // By user, the last group that listed the user.
        let mut listed = vec![0; ids.len()];
        let references = groups.iter().map(|group| group.entry.entry().references().len());
        let mut members = Vec::with_capacity(references.sum());
        let list = |(number, group): (u32, &MergedEntry<'_, ModelGroup>)| {
            let start = members.len();
            let references = group.entry.entry().references();
            let is_flat = references.iter().all(|&reference| {
                let target = targets[group.domain].get(reference);
                if let ReferenceTarget::User(user) = target {
                    let user = user as usize;
                    if std::mem::replace(&mut listed[user], number) != number {
                        members.push(ids[user]);
                    }
                }
                !matches!(target, ReferenceTarget::Group(_))
            });
            if !is_flat {
                members.truncate(start);
            }
            is_flat.then_some(start..members.len())
        };
        let lists = (1..).zip(groups).map(list).collect();
        Self { members, lists }
    }

    fn lists(&self) -> impl Iterator<Item = Option<&[MemberId]>> {
        self.lists.iter().map(|range| Some(&self.members[range.clone()?]))
    }
}

/// Positions of the served users of each primary group, by its gid in the directory.
type PrimaryMembers = HashMap<u32, Vec<u32>>;

/// Returns the members of primary groups of each domain. Empty for a domain where these belong to no group around.
fn primary_members(
    sources: &[DomainSource<'_>],
    merged: &MergedDomains<'_>,
) -> Vec<PrimaryMembers> {
    let mut members = vec![PrimaryMembers::new(); sources.len()];
    for (position, user) in (0..).zip(&merged.users) {
        if sources[user.domain].rules.serving.nests_primary_groups {
            let gid = user.entry.entry().native().gid;
            members[user.domain].entry(gid).or_default().push(position);
        }
    }
    members
}

/// The ways from a domain's groups to their members.
#[derive(Clone, Copy)]
struct GroupEdges<'a> {
    targets: &'a ReferenceTargets,
    /// Users with a nested group as primary group.
    primary: &'a PrimaryMembers,
}

/// References that one build visits in nested groups, for each domain. It is ten times the members of a very large
/// directory, or fewer if the domain's memory limit is lower. Nested groups can multiply without bound. One domain's
/// groups must not stop the publication of the others.
const NESTED_MAX: u64 = 1 << 26;

/// Resolves groups with nested groups, one after the other, and reuses its buffers.
struct NestedGroupWalk<'a> {
    ids: &'a [MemberId],
    /// By user, the last group that listed the user.
    listed: Vec<u32>,
    group: u32,
    members: Vec<MemberId>,
    /// Numbers of the group and of its nested groups, in the order of the visits.
    groups: Vec<u32>,
    /// By entry, the last group that visited it.
    met: Vec<u32>,
}

impl<'a> NestedGroupWalk<'a> {
    fn new(ids: &'a [MemberId]) -> Self {
        Self {
            ids,
            listed: vec![0; ids.len()],
            group: 0,
            members: Vec::new(),
            groups: Vec::new(),
            met: Vec::new(),
        }
    }

    /// Returns the users in a group and in its nested groups without duplicates, and whether all these members are
    /// known. The walk enters every group once, so cycles end. `None` if the budget is exceeded.
    fn members(
        &mut self,
        domain: &DomainModel,
        edges: GroupEdges<'_>,
        group: &MergedEntry<'_, ModelGroup>,
        budget: &mut u64,
    ) -> Option<(&[MemberId], bool)> {
        let mut known = true;
        self.group += 1;
        self.members.clear();
        self.groups.clear();
        self.groups.push(group.number);
        let mut next = 0;
        while let Some(&number) = self.groups.get(next) {
            next += 1;
            let Some(ModelEntry::Group(group)) = domain.entry(number) else { continue };
            known &= group.members.is_some();
            let references = group.references();
            if number != self.groups[0] {
                // An empty group costs a step too.
                let primary = group.native_gid().and_then(|gid| edges.primary.get(&gid));
                let primary = primary.map_or(&[][..], Vec::as_slice);
                let steps = 1 + references.len() + primary.len();
                *budget = budget.checked_sub(steps as u64)?;
                primary.iter().for_each(|&user| self.add(user));
            }
            for &reference in references {
                match edges.targets.get(reference) {
                    ReferenceTarget::Nowhere | ReferenceTarget::Ambiguous => {}
                    ReferenceTarget::User(user) => self.add(user),
                    ReferenceTarget::Group(nested) => {
                        let place = nested as usize;
                        if self.met.len() <= place {
                            self.met.resize(place + 1, 0);
                        }
                        if self.met[place] != self.group {
                            self.met[place] = self.group;
                            self.groups.push(nested);
                        }
                    }
                }
            }
        }
        Some((&self.members, known))
    }

    /// Adds a user to the members of the present group, unless it is among them.
    fn add(&mut self, user: u32) {
        let last = &mut self.listed[user as usize];
        if *last != self.group {
            *last = self.group;
            self.members.push(self.ids[user as usize]);
        }
    }
}
