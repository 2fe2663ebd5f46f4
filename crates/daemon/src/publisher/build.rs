//! From merged domains to the image of a snapshot. Members are resolved here: references of a
//! domain's groups lead to users of the same domain that are served, through nested groups of the
//! same domain, and nowhere else.

use super::merge::{Merged, Served};
use super::model::{Domain, Entry, Group};
use roster_record as record;
use roster_snapshot::layout::Kind;
use roster_snapshot_build::{Builder, Gaps, Image, Members, TooLarge};
use std::collections::{BTreeMap, HashSet};

/// The password field of whoever comes from a directory: a hash elsewhere, which is none. With `x`
/// pam_unix would look for a shadow entry and fail.
pub const PASSWD: &[u8] = b"*";

/// Builds the image. `responder` is the socket to ask when domains are asked on demand.
pub fn build(
    domains: &[&Domain],
    merged: &Merged<'_>,
    min_id: u32,
    responder: Option<&[u8]>,
) -> Result<Image, TooLarge> {
    let mut builder = Builder::new(min_id);
    if let Some(path) = responder {
        builder.responder(path)?;
    }
    let first_asked = domains.iter().position(|domain| !domain.complete);
    let gaps = |domain: usize, list_known: bool| Gaps {
        ask_first: first_asked.is_some_and(|first| first < domain),
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
        targets[user.domain].claim(entry.reference, Target::User(position));
    }
    let mut walk = Walk::new(merged.users.len());
    for group in &merged.groups {
        let members = walk.members(domains[group.domain], &targets[group.domain], group)?;
        let entry = group.entry.entry();
        let record = record::Group { name: &entry.name, passwd: Some(PASSWD), gid: entry.gid };
        let members = members.iter().map(|&user| ids[user as usize]);
        let gaps = gaps(group.domain, entry.members.is_some());
        builder.group_of(&record, members, count_for(domains[group.domain]), gaps)?;
    }
    asked_memberships(&mut builder, domains, merged)?;
    Ok(builder.finish(Kind::Accounts)?.image)
}

/// Where a domain is asked on demand, a user's groups are what was asked for, not what the member
/// lists that happen to be here add up to.
fn count_for(domain: &Domain) -> Members {
    if domain.complete { Members::Both } else { Members::Shown }
}

fn asked_memberships(
    builder: &mut Builder,
    domains: &[&Domain],
    merged: &Merged<'_>,
) -> Result<(), TooLarge> {
    let incomplete = (0..).zip(domains).filter(|(_, domain)| !domain.complete);
    for position in incomplete.map(|(position, _)| position) {
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

/// References that one build looks at: ten times the members of a very large directory. Groups
/// nested within each other could multiply to anything.
const STEPS_MAX: u64 = 1 << 30;

/// Resolves one group after the other; what it needs for that is made once.
struct Walk {
    /// For each user the last group that listed it.
    listed: Vec<u32>,
    group: u32,
    members: Vec<u32>,
    /// Numbers of the group and of those within it, in the order in which they were met.
    groups: Vec<u32>,
    /// The nested among them.
    nested: HashSet<u32>,
    steps: u64,
}

impl Walk {
    fn new(users: usize) -> Self {
        Self {
            listed: vec![0; users],
            group: 0,
            members: Vec::new(),
            groups: Vec::new(),
            nested: HashSet::new(),
            steps: 0,
        }
    }

    /// Positions of the users in a group and in the groups within it, each once. Every group is
    /// entered once, so that circles end.
    fn members(
        &mut self,
        domain: &Domain,
        targets: &Targets,
        group: &Served<'_, Group>,
    ) -> Result<&[u32], TooLarge> {
        self.group += 1;
        self.members.clear();
        self.nested.clear();
        self.groups.clear();
        self.groups.push(group.number);
        let mut next = 0;
        while let Some(&number) = self.groups.get(next) {
            next += 1;
            let Some(Entry::Group(group)) = domain.entry(number) else { continue };
            let references = group.members.as_deref().unwrap_or_default();
            self.steps += references.len() as u64;
            if self.steps > STEPS_MAX {
                return Err(TooLarge("what the groups within groups add up to"));
            }
            for &reference in references {
                match targets.get(reference) {
                    Target::Nowhere | Target::Ambiguous => {}
                    Target::User(user) => {
                        let last = &mut self.listed[user as usize];
                        if *last != self.group {
                            *last = self.group;
                            self.members.push(user);
                        }
                    }
                    Target::Group(nested) => {
                        if self.nested.insert(nested) {
                            self.groups.push(nested);
                        }
                    }
                }
            }
        }
        Ok(&self.members)
    }
}
