//! From merged domains to the image of a snapshot. Members are resolved here: references of a
//! domain's groups lead to users of the same domain that are served, through nested groups of the
//! same domain, and nowhere else.

use super::cost;
use super::merge::{Merged, Served};
use super::model::{Domain, Entry, Group};
use roster_admission::Refusal;
use roster_record as record;
use roster_snapshot::layout::Kind;
use roster_snapshot_build::parallel::{self, cut, threads};
use roster_snapshot_build::{Builder, Gaps, Image, MemberId, Members, TooLarge};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// The password field of whoever comes from a directory: a hash elsewhere, which is none. With `x`
/// pam_unix would look for a shadow entry and fail.
pub const PASSWD: &[u8] = b"*";

/// Builds the image. `responder` is the socket to ask when domains are asked on demand. Behind the first
/// of these nobody's memberships are in it: who a member is that domain has to be asked. Groups that
/// hold more through others than is built are taken out of `merged` and refused.
pub fn build(
    domains: &[&Domain],
    merged: &mut Merged<'_>,
    min_id: u32,
    responder: Option<&[u8]>,
) -> Result<Image, TooLarge> {
    let mut builder = Builder::new(min_id);
    if let Some(path) = responder {
        builder.responder(path)?;
    }
    let references = merged.groups.iter().map(|group| group.entry.entry().references().len());
    builder.reserve(merged.users.len(), merged.groups.len(), references.sum());
    let first_asked = domains.iter().position(|domain| !domain.complete);
    let ask_first = |domain: usize| first_asked.is_some_and(|first| first < domain);
    let gaps = |domain: usize, list_known: bool| Gaps {
        ask_first: ask_first(domain),
        list_unknown: !list_known && !domains[domain].complete,
    };
    let mut targets: Vec<_> = domains.iter().map(|domain| Targets::new(domain)).collect();
    let mut ids = Vec::with_capacity(merged.users.len());
    for (position, user) in (0..).zip(&merged.users) {
        let entry = user.entry.entry();
        let record = record::User {
            name: entry.name(),
            passwd: Some(PASSWD),
            uid: entry.uid,
            gid: entry.gid,
            gecos: Some(entry.gecos()),
            dir: Some(entry.dir()),
            shell: Some(entry.shell()),
        };
        ids.push(builder.user(&record, gaps(user.domain, entry.groups.is_some()))?);
        for reference in entry.references {
            targets[user.domain].claim(reference, Target::User(position));
        }
    }
    let weights = merged.groups.iter().map(|group| group.entry.entry().references().len() as u64);
    let ranges = cut(weights, threads());
    let flat = parallel::each(ranges, |range| Flat::new(&merged.groups[range], &targets, &ids));
    let lists = flat.iter().flat_map(Flat::lists);
    let mut walk = Walk::new(&ids);
    let budget = |domain: &&Domain| NESTED_MAX.min(domain.room() / cost::MEMBER);
    let mut budgets: Vec<u64> = domains.iter().map(budget).collect();
    let mut refused = HashSet::new();
    for (group, list) in merged.groups.iter().zip(lists) {
        let (domain, budget) = (domains[group.domain], &mut budgets[group.domain]);
        let entry = group.entry.entry();
        let record = record::Group { name: &entry.name, passwd: Some(PASSWD), gid: entry.gid };
        if ask_first(group.domain) {
            // Any of the members may be somebody else there.
            let gaps = Gaps { ask_first: true, list_unknown: true };
            builder.group_of(&record, &[], Members::Shown, gaps)?;
            continue;
        }
        let members = match list {
            Some(members) => Some((members, entry.members.is_some())),
            None => walk.members(domain, &targets[group.domain], group, budget),
        };
        let Some((members, list_known)) = members else {
            refused.insert((group.domain, group.number));
            merged.refused[group.domain].push((group.number, Refusal::Nested));
            continue;
        };
        let gaps = gaps(group.domain, list_known);
        builder.group_of(&record, members, count_for(domains[group.domain]), gaps)?;
    }
    // Another copy is made of all members in a moment.
    drop((flat, walk));
    merged.groups.retain(|group| !refused.contains(&(group.domain, group.number)));
    if let Some(position) = first_asked {
        asked_memberships(&mut builder, position, merged)?;
    }
    Ok(builder.finish(Kind::Accounts)?.image)
}

/// Where a domain is asked on demand, a user's groups are what was asked for, not what the member
/// lists that happen to be here add up to.
fn count_for(domain: &Domain) -> Members {
    if domain.complete { Members::Both } else { Members::Shown }
}

/// The groups of users of the first domain that is asked on demand. Those of later ones are asked for.
fn asked_memberships(
    builder: &mut Builder,
    position: usize,
    merged: &Merged<'_>,
) -> Result<(), TooLarge> {
    let groups = merged.groups.iter().filter(|group| group.domain == position);
    let mut members: BTreeMap<u32, (u32, Vec<&[u8]>)> =
        groups.map(|group| (group.number, (group.entry.entry().gid, Vec::new()))).collect();
    for user in merged.users.iter().filter(|user| user.domain == position) {
        let user = user.entry.entry();
        for group in user.groups.iter().flatten() {
            if let Some((_, members)) = members.get_mut(group) {
                members.push(user.name());
            }
        }
    }
    for (gid, members) in members.into_values().filter(|(_, members)| !members.is_empty()) {
        builder.initgroups_only(gid, members.into_iter())?;
    }
    Ok(())
}

/// What a reference of a domain leads to.
#[derive(Clone, Copy)]
enum Target {
    Nowhere,
    /// Two entries: nobody knows which is meant, and neither gets a membership by it.
    Ambiguous,
    /// Position among the users that are served.
    User(u32),
    /// Number of a group.
    Group(u32),
}

struct Targets(Vec<Target>);

impl Targets {
    fn new(domain: &Domain) -> Self {
        let mut targets = Self(vec![Target::Nowhere; domain.references()]);
        for (number, group) in domain.groups() {
            targets.claim(group.reference, Target::Group(number));
        }
        targets
    }

    fn claim(&mut self, reference: u32, target: Target) {
        if let Some(place) = self.0.get_mut(reference as usize) {
            *place = match (*place, target) {
                (Target::Nowhere, _) => target,
                // One entry that is a user and the user's own group.
                (Target::Group(_), Target::User(_)) => target,
                _ => Target::Ambiguous,
            };
        }
    }

    fn get(&self, reference: u32) -> Target {
        self.0.get(reference as usize).copied().unwrap_or(Target::Nowhere)
    }
}

/// Member lists of some groups that have no groups within them, which are nearly all and need nothing of
/// each other.
struct Flat {
    members: Vec<MemberId>,
    /// Where each group's list is; nothing for a group that has groups.
    lists: Vec<Option<Range<usize>>>,
}

impl Flat {
    fn new(groups: &[Served<'_, Group>], targets: &[Targets], ids: &[MemberId]) -> Self {
        // For each user the last group that listed it.
        let mut listed = vec![0; ids.len()];
        let references = groups.iter().map(|group| group.entry.entry().references().len());
        let mut members = Vec::with_capacity(references.sum());
        let list = |(number, group): (u32, &Served<'_, Group>)| {
            let start = members.len();
            let references = group.entry.entry().references();
            let is_flat = references.iter().all(|&reference| {
                let target = targets[group.domain].get(reference);
                if let Target::User(user) = target {
                    let user = user as usize;
                    if std::mem::replace(&mut listed[user], number) != number {
                        members.push(ids[user]);
                    }
                }
                !matches!(target, Target::Group(_))
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

/// References that one build looks at, for each domain, in groups because they are within others: ten
/// times the members of a very large directory, or as many as the domain has room for. Groups nested within each other could multiply to
/// anything, and one domain's shall not keep those of the others from being served.
const NESTED_MAX: u64 = 1 << 26;

/// Resolves groups that have groups within them, one after the other; what it needs for that is made
/// once.
struct Walk<'a> {
    ids: &'a [MemberId],
    /// For each user the last group that listed it.
    listed: Vec<u32>,
    group: u32,
    members: Vec<MemberId>,
    /// Numbers of the group and of those within it, in the order in which they were met.
    groups: Vec<u32>,
    /// For each entry the last group that it was met in.
    met: Vec<u32>,
}

impl<'a> Walk<'a> {
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

    /// The users in a group and in the groups within it, each once, and whether the members of all
    /// these groups are known. Every group is entered once, so that circles end. `None` when that looks
    /// at more than is left of the budget.
    fn members(
        &mut self,
        domain: &Domain,
        targets: &Targets,
        group: &Served<'_, Group>,
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
            let Some(Entry::Group(group)) = domain.entry(number) else { continue };
            known &= group.members.is_some();
            let references = group.references();
            if number != self.groups[0] {
                // An empty one costs a step too.
                *budget = budget.checked_sub(1 + references.len() as u64)?;
            }
            for &reference in references {
                match targets.get(reference) {
                    Target::Nowhere | Target::Ambiguous => {}
                    Target::User(user) => {
                        let last = &mut self.listed[user as usize];
                        if *last != self.group {
                            *last = self.group;
                            self.members.push(self.ids[user as usize]);
                        }
                    }
                    Target::Group(nested) => {
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
}
