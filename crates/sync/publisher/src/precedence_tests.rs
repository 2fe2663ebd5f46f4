// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of ownership when several domains have a name or an id, mirrored or on demand, and of group members. The
//! result follows the rule in any order of queries. The rule is in `merge` and `name_owners`.

use super::local_overrides::DomainOverrides;
use super::model_entry::ModelEntry;
use super::on_demand::{
    DomainAnswer, LookupReply, LookupRequest, LookupSource, Unavailable, lookup,
};
use super::state::PublisherState;
use super::tests::{Image, apply_image, host, learn, published};
use roster_bus::domain_image::Records;
use roster_config::{DomainMode, GroupOverride, LocalOverrides, NameConfig, UserOverride};
use roster_request::LookupKind;
use std::collections::BTreeSet;
use tokio::sync::RwLock;

/// Below the smallest id: an entry with this id is not served.
const REFUSED: u32 = 900;

/// A user, or a group. A group has no meaningful `gid`. Each set bit of its members is the number of an entry in its
/// domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TestEntry {
    is_user: bool,
    number: u32,
    name: &'static str,
    id: u32,
    gid: u32,
    members: u8,
}

const fn user(number: u32, name: &'static str, id: u32, gid: u32) -> TestEntry {
    TestEntry { is_user: true, number, name, id, gid, members: 0 }
}

const fn group(number: u32, name: &'static str, id: u32) -> TestEntry {
    TestEntry { is_user: false, number, name, id, gid: 0, members: 0 }
}

impl TestEntry {
    const fn with(self, members: u8) -> Self {
        Self { members, ..self }
    }

    fn lists(&self, number: u32) -> bool {
        self.members & (1 << number) != 0
    }

    /// Adds the entry without lists.
    fn bare(&self, image: Image) -> Image {
        match self.is_user {
            true => image.user(self.number, self.name, self.id, self.gid),
            false => image.unasked(self.number, self.name, self.id),
        }
    }

    fn whole(&self, image: Image) -> Image {
        let members: Vec<u32> = (0..8).filter(|number| self.lists(*number)).collect();
        match self.is_user {
            true => self.bare(image),
            false => image.group(self.number, self.name, self.id, &members),
        }
    }
}

/// Returns a group, its members, and the members of its nested groups.
fn within<'p>(people: &'p [TestEntry], group: &'p TestEntry) -> Vec<&'p TestEntry> {
    let mut found = vec![group];
    let mut next = 0;
    while let Some(&group) = found.get(next) {
        next += 1;
        let listed = people.iter().filter(|one| group.lists(one.number));
        let listed: Vec<_> = listed.filter(|one| !found.contains(one)).collect();
        found.extend(listed);
    }
    found
}

/// Returns the groups of a directory that a user is in.
fn groups_of<'p>(people: &'p [TestEntry], user: &TestEntry) -> Vec<&'p TestEntry> {
    let groups = people.iter().filter(|one| !one.is_user);
    groups.filter(|group| within(people, group).contains(&user)).collect()
}

fn image(people: &[TestEntry]) -> Image {
    people.iter().fold(Image::full(), |image, person| person.whole(image))
}

/// A domain's position and one of its entries.
type PlacedEntry = (usize, TestEntry);

fn admitted(all: &[PlacedEntry]) -> Vec<PlacedEntry> {
    let admitted = all
        .iter()
        .filter(|(_, person)| person.id != REFUSED && !(person.is_user && person.gid == REFUSED));
    admitted.copied().collect()
}

/// The rule in its simplest form: the served entries among all these, under any name.
fn expected_served(all: &[PlacedEntry]) -> Vec<PlacedEntry> {
    let admitted = admitted(all);
    let is_served = |&(domain, me): &PlacedEntry| {
        admitted.iter().all(|&(other, them)| {
            let is_earlier = other < domain;
            let goes_before = is_earlier || other == domain && them.number < me.number;
            match (me.is_user, them.is_user) {
                (true, true) | (false, false) => {
                    let has_name = other == domain && me.name == them.name;
                    !goes_before || !has_name && me.id != them.id
                }
                (true, false) => !is_earlier || me.gid != them.id,
                (false, true) => !is_earlier || me.id != them.gid,
            }
        })
    };
    admitted.iter().copied().filter(is_served).collect()
}

/// Returns the entry that has a name, in one domain or in the first of all domains.
fn named(
    all: &[PlacedEntry],
    is_user: bool,
    name: &str,
    of_domain: Option<usize>,
) -> Option<PlacedEntry> {
    let mut entries = admitted(all);
    entries.sort_by_key(|(domain, one)| (*domain, one.number));
    entries.into_iter().find(|(domain, one)| {
        one.is_user == is_user && one.name == name && of_domain.is_none_or(|of| of == *domain)
    })
}

/// The directories of a host, and the publisher's knowledge of them.
struct TestDirectories {
    state: RwLock<PublisherState>,
    domains: Vec<Vec<TestEntry>>,
    names: Vec<String>,
}

impl LookupSource for TestDirectories {
    fn state(&self) -> &RwLock<PublisherState> {
        &self.state
    }

    async fn query_domain(
        &self,
        domain: usize,
        question: &LookupRequest,
    ) -> Result<DomainAnswer, Unavailable> {
        let mut state = self.state.write().await;
        if state.domains[domain].mode == DomainMode::OnDemand {
            let people = &self.domains[domain];
            let found = people.iter().filter(|person| is_asked_for(question, person));
            let found =
                found.fold(Image::full(), |image, one| match (one.is_user, question.kind()) {
                    (true, LookupKind::GroupsOf) => {
                        let groups = groups_of(people, one);
                        let numbers: Vec<u32> = groups.iter().map(|group| group.number).collect();
                        let image = one.bare(image).groups_of(one.number, &numbers);
                        groups.iter().fold(image, |image, group| group.bare(image))
                    }
                    (true, _) => one.bare(image),
                    (false, _) => {
                        within(people, one).iter().fold(image, |image, one| one.whole(image))
                    }
                });
            learn(&mut state, domain, found).expect("well formed");
        }
        Ok(DomainAnswer::Given)
    }

    async fn query_domain_batch(
        &self,
        domain: usize,
        questions: &[&LookupRequest],
    ) -> Result<DomainAnswer, Unavailable> {
        let mut state = self.state.write().await;
        assert!(state.domains[domain].mode == DomainMode::OnDemand, "{domain} is mirrored");
        let is_asked_for =
            |person: &&TestEntry| questions.iter().any(|one| is_asked_for(one, person));
        let found = self.domains[domain].iter().filter(is_asked_for);
        let found = found.fold(Image::full(), |image, one| one.bare(image));
        learn(&mut state, domain, found).expect("well formed");
        Ok(DomainAnswer::Given)
    }
}

fn is_asked_for(question: &LookupRequest, person: &TestEntry) -> bool {
    match question.kind() {
        LookupKind::UserByName | LookupKind::GroupsOf => {
            person.is_user && person.name.as_bytes() == question.name()
        }
        LookupKind::UserByUid => person.is_user && person.id == question.id(),
        LookupKind::GroupByName => !person.is_user && person.name.as_bytes() == question.name(),
        LookupKind::GroupByGid => !person.is_user && person.id == question.id(),
    }
}

impl TestDirectories {
    /// Checks that the lists of a reply have exactly the expected names.
    async fn check_lists(
        &self,
        truth: &[PlacedEntry],
        (kind, name, id): (LookupKind, &'static str, u32),
        case: &str,
    ) {
        match kind {
            LookupKind::GroupByName | LookupKind::GroupByGid => {
                let found = self.members(kind, name, id).await;
                let known = self.known().await;
                let group = entry_of(&known, kind, name, id);
                // Whether a member is a user does not depend on the publisher's knowledge.
                let wanted = group.map(|group| (group.1.id, self.members_among(truth, group)));
                assert_eq!(found, wanted, "members: {case}");
            }
            LookupKind::UserByName => {
                let found = self.gids(name).await;
                let known = self.known().await;
                assert_eq!(found, self.gids_among(&known, name), "groups: {case}");
            }
            LookupKind::UserByUid | LookupKind::GroupsOf => {}
        }
    }

    /// Checks that a name with a domain finds the served entry of this domain.
    async fn check_names_with_domain(
        &self,
        truth: &[PlacedEntry],
        kind: LookupKind,
        name: &'static str,
        case: &str,
    ) {
        if kind != LookupKind::UserByName {
            return;
        }
        for (domain, called) in self.names.iter().enumerate() {
            let owner = named(truth, true, name, Some(domain));
            let wanted = owner.filter(|owner| expected_served(truth).contains(owner));
            let found = self.query_id(kind, &format!("{name}@{called}"), 0).await;
            assert_eq!(found, wanted.map(|(_, one)| one.id), "{name}@{called}: {case}");
        }
    }

    /// Names of on-demand domains start with `asked`.
    fn new(domains: &[(&str, &[TestEntry])]) -> Self {
        let names: Vec<_> = domains.iter().map(|(name, _)| *name).collect();
        let mut state = host(&names);
        for (position, (_, people)) in domains.iter().enumerate() {
            if state.domains[position].mode == DomainMode::Replicate {
                apply_image(&mut state, position, image(people)).expect("well formed");
            }
        }
        let names = domains.iter().map(|(name, _)| (*name).to_owned()).collect();
        let domains = domains.iter().map(|(_, people)| people.to_vec()).collect();
        Self { state: RwLock::new(state), domains, names }
    }

    async fn query_id(&self, kind: LookupKind, name: &str, id: u32) -> Option<u32> {
        let question = LookupRequest::new(kind, name.into(), id);
        match lookup(self, &question).await.expect("every domain answers") {
            LookupReply::User { uid, .. } => Some(uid),
            LookupReply::Group { gid, .. } => Some(gid),
            LookupReply::Gids(_) => panic!("groups were not asked for"),
            LookupReply::Absent => None,
        }
    }

    /// Returns a group's gid and members.
    async fn members(
        &self,
        kind: LookupKind,
        name: &str,
        id: u32,
    ) -> Option<(u32, BTreeSet<String>)> {
        let question = LookupRequest::new(kind, name.into(), id);
        match lookup(self, &question).await.expect("every domain answers") {
            LookupReply::Group { gid, members, .. } => {
                let names = members.into_iter().map(|name| String::from_utf8(name).expect("ASCII"));
                Some((gid, names.collect()))
            }
            LookupReply::Absent => None,
            other => panic!("a group was asked for: {other:?}"),
        }
    }

    /// Returns the gids of a user's groups.
    async fn gids(&self, name: &str) -> Option<BTreeSet<u32>> {
        let question = LookupRequest::GroupsOf(name.into());
        match lookup(self, &question).await.expect("every domain answers") {
            LookupReply::Gids(gids) => Some(gids.into_iter().collect()),
            LookupReply::Absent => None,
            other => panic!("groups were asked for: {other:?}"),
        }
    }

    /// Returns the expected name of a served entry.
    fn served_name(&self, all: &[PlacedEntry], (domain, one): PlacedEntry) -> String {
        match named(all, one.is_user, one.name, None) {
            Some((owner, _)) if owner != domain => format!("{}@{}", one.name, self.names[domain]),
            _ => one.name.to_owned(),
        }
    }

    /// Returns the expected members of a group, from all entries.
    fn members_among(&self, all: &[PlacedEntry], (domain, group): PlacedEntry) -> BTreeSet<String> {
        let served = expected_served(all);
        let users = within(&self.domains[domain], &group).into_iter().filter(|one| one.is_user);
        let users = users.filter(|user| served.contains(&(domain, **user)));
        users.map(|user| self.served_name(all, (domain, *user))).collect()
    }

    /// Returns the expected gids of a user, from all known entries.
    fn gids_among(&self, all: &[PlacedEntry], name: &str) -> Option<BTreeSet<u32>> {
        let served = expected_served(all);
        let (domain, user) = entry_of(all, LookupKind::UserByName, name, 0)?;
        let groups = groups_of(&self.domains[domain], &user).into_iter();
        let groups = groups.filter(|group| served.contains(&(domain, **group)));
        Some(groups.map(|group| group.id).collect())
    }

    /// Returns the entries that the publisher knows.
    async fn known(&self) -> Vec<PlacedEntry> {
        let state = self.state.read().await;
        let all = self.domains.iter().enumerate();
        let all = all.flat_map(|(domain, people)| people.iter().map(move |one| (domain, *one)));
        let is_known = |(domain, person): &PlacedEntry| {
            state.domains[*domain].entries.entry(person.number).is_some()
        };
        all.filter(is_known).collect()
    }

    /// Checks that the next snapshot has the expected entries. No member may be in it that an unqueried directory could
    /// own.
    async fn check_snapshot(&self, truth: &[PlacedEntry]) {
        let known = self.known().await;
        let served = expected_served(&known);
        let mut state = self.state.write().await;
        published(&mut state, |snapshot| {
            let count = |is_user| served.iter().filter(|(_, one)| one.is_user == is_user).count();
            let shape = snapshot.shape();
            assert_eq!((shape.users as usize, shape.groups as usize), (count(true), count(false)));
            for (domain, one) in &served {
                let name = self.served_name(&known, (*domain, *one));
                let with_domain = format!("{}@{}", one.name, self.names[*domain]);
                for name in [&name, &with_domain] {
                    let id = match one.is_user {
                        true => snapshot.user_by_name(name.as_bytes()).map(|u| u.map(|u| u.uid)),
                        false => snapshot.group_by_name(name.as_bytes()).map(|g| g.map(|g| g.gid)),
                    };
                    assert_eq!(id.expect("undamaged"), Some(one.id), "{name}: {domain} {one:?}");
                }
                if let Ok(Some(group)) = snapshot.group_by_name(name.as_bytes())
                    && !one.is_user
                {
                    let wanted = self.members_among(truth, (*domain, *one));
                    for member in group.members.iter() {
                        let name = String::from_utf8_lossy(member.expect("undamaged"));
                        assert!(wanted.contains(&*name), "{name} in {domain} {one:?}");
                    }
                }
            }
        });
    }
}

/// Numbers that are equal in every run: splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

const NAMES: [&str; 4] = ["alice", "bob", "carol", "dora"];
const IDS: [u32; 5] = [5001, 5002, 5003, 5004, REFUSED];

/// Makes a few entries with few names and ids. Within an on-demand domain a name has one id. A query by name returns
/// only one of two entries with one id.
fn people(dice: &mut Dice, is_asked: bool) -> Vec<TestEntry> {
    let mut people: Vec<TestEntry> = Vec::new();
    for number in 1..=dice.below(8) as u32 {
        let is_user = dice.below(2) == 0;
        let name = NAMES[dice.below(NAMES.len())];
        let (id, gid) = (IDS[dice.below(IDS.len())], IDS[dice.below(IDS.len())]);
        let is_double =
            |other: &TestEntry| other.is_user == is_user && (other.name == name || other.id == id);
        if !is_asked || !people.iter().any(is_double) {
            people.push(if is_user {
                user(number, name, id, gid)
            } else {
                group(number, name, id).with(dice.below(256) as u8)
            });
        }
    }
    people
}

fn questions() -> Vec<(LookupKind, &'static str, u32)> {
    let names = NAMES
        .iter()
        .flat_map(|&name| [(LookupKind::UserByName, name, 0), (LookupKind::GroupByName, name, 0)]);
    let ids = IDS
        .iter()
        .flat_map(|&id| [(LookupKind::UserByUid, "", id), (LookupKind::GroupByGid, "", id)]);
    names.chain(ids).collect()
}

/// Returns the served entry that has a name alone, or an id.
fn entry_of(all: &[PlacedEntry], kind: LookupKind, name: &str, id: u32) -> Option<PlacedEntry> {
    let served = expected_served(all);
    if kind.is_by_name() {
        let owner = named(all, kind != LookupKind::GroupByName, name, None)?;
        return Some(owner).filter(|owner| served.contains(owner));
    }
    let question = LookupRequest::new(kind, name.into(), id);
    served.into_iter().find(|(_, person)| is_asked_for(&question, person))
}

fn id_of(all: &[PlacedEntry], kind: LookupKind, name: &str, id: u32) -> Option<u32> {
    entry_of(all, kind, name, id).map(|(_, person)| person.id)
}

#[tokio::test]
async fn who_is_served_is_what_the_rule_says_whatever_was_asked_before() {
    for seed in 0..400 {
        let mut dice = Dice(seed);
        // At least one domain is on demand. Otherwise no query would be sent.
        let mut names = vec!["lab-a", "lab-b", "asked-c"];
        dice.shuffle(&mut names);
        names.truncate(1 + dice.below(2));
        names.push("asked-d");
        dice.shuffle(&mut names);
        let people = |name: &&'static str| (*name, people(&mut dice, name.starts_with("asked")));
        let domains: Vec<_> = names.iter().map(people).collect();
        let domains: Vec<_> = domains.iter().map(|(name, list)| (*name, &list[..])).collect();
        let net = TestDirectories::new(&domains);
        let each = domains.iter().enumerate();
        let all: Vec<PlacedEntry> = each
            .flat_map(|(domain, (_, list))| list.iter().map(move |one| (domain, *one)))
            .collect();
        let truth = all;
        let mut questions = questions();
        dice.shuffle(&mut questions);
        for (kind, name, id) in questions {
            let answer = net.query_id(kind, name, id).await;
            let case = format!("seed {seed}: {kind:?} {name:?} {id} in {domains:?}");
            if matches!(kind, LookupKind::UserByName | LookupKind::UserByUid) {
                // A later query does not change the owner.
                assert_eq!(answer, id_of(&truth, kind, name, id), "{case}");
            }
            let known = net.known().await;
            assert_eq!(answer, id_of(&known, kind, name, id), "{case}");
            net.check_names_with_domain(&truth, kind, name, &case).await;
            net.check_lists(&truth, (kind, name, id), &case).await;
            if dice.below(8) == 0 {
                net.check_snapshot(&truth).await;
            }
        }
        // All entries of all directories, as after queries for all of them.
        for (domain, (_, list)) in domains.iter().enumerate() {
            let mut state = net.state.write().await;
            if state.domains[domain].mode == DomainMode::OnDemand {
                learn(&mut state, domain, image(list)).expect("well formed");
            }
        }
        net.check_snapshot(&truth).await;
        for (kind, name, id) in self::questions() {
            let answer = net.query_id(kind, name, id).await;
            assert_eq!(
                answer,
                id_of(&truth, kind, name, id),
                "seed {seed}: {kind:?} {name:?} {id}"
            );
        }
        // A removed entry is forgotten completely and owns nothing.
        let mut state = net.state.write().await;
        for (domain, (_, list)) in domains.iter().enumerate() {
            let numbers: Vec<_> = list.iter().map(|person| person.number).collect();
            let gone = numbers.iter().fold(Image::full(), |image, number| image.gone(*number));
            let gone = gone.records();
            state
                .change(domain, &numbers, |entries| {
                    entries.apply_lookup(Records::without_header(&gone))
                })
                .expect("well formed");
        }
        assert!(state.ownership.is_empty(), "seed {seed}");
    }
}

/// Overrides of some names, which give no name and no id twice.
fn random_overrides(dice: &mut Dice) -> LocalOverrides {
    let (mut user_names, mut uids) = (NAMES.to_vec(), IDS.to_vec());
    dice.shuffle(&mut user_names);
    dice.shuffle(&mut uids);
    let (mut group_names, mut gids) = (user_names.clone(), uids.clone());
    dice.shuffle(&mut group_names);
    dice.shuffle(&mut gids);
    let mut overrides = LocalOverrides::default();
    for name in NAMES {
        let mut sometimes = || dice.below(3) == 0;
        let user = UserOverride {
            name: user_names.pop().filter(|_| sometimes()).map(str::to_owned),
            uid: uids.pop().filter(|_| sometimes()),
            gid: sometimes().then_some(5002),
            ..UserOverride::default()
        };
        let group = GroupOverride {
            name: group_names.pop().filter(|_| sometimes()).map(str::to_owned),
            gid: gids.pop().filter(|_| sometimes()),
        };
        overrides.users.insert(name.to_owned(), user);
        overrides.groups.insert(name.to_owned(), group);
    }
    overrides
}

#[tokio::test]
async fn overrides_on_demand_equal_overrides_of_mirror() {
    let mut renamed = 0;
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let (first, list) = (people(&mut dice, false), people(&mut dice, true));
        let overrides = random_overrides(&mut dice);
        // The last domain only makes the publisher keep owners of names.
        let [mirror, asked] = ["lab-b", "asked-b"].map(|name| {
            TestDirectories::new(&[("lab-a", &first[..]), (name, &list[..]), ("asked-z", &[])])
        });
        for net in [&mirror, &asked] {
            let given = DomainOverrides::new(overrides.clone(), &NameConfig::default());
            net.state.write().await.set_overrides(1, given);
        }
        let mut questions = questions();
        dice.shuffle(&mut questions);
        for (kind, name, id) in questions {
            let case =
                format!("seed {seed}: {kind:?} {name:?} {id} {overrides:?} {first:?} {list:?}");
            let wanted = mirror.query_id(kind, name, id).await;
            assert_eq!(asked.query_id(kind, name, id).await, wanted, "{case}");
            match kind {
                LookupKind::GroupByName | LookupKind::GroupByGid => {
                    let plain = |found: Option<(u32, BTreeSet<String>)>, domain: &str| {
                        let named = |name: String| name.replace(domain, "b");
                        found
                            .map(|(gid, all)| (gid, all.into_iter().map(named).collect::<Vec<_>>()))
                    };
                    let wanted = plain(mirror.members(kind, name, id).await, "lab-b");
                    let found = plain(asked.members(kind, name, id).await, "asked-b");
                    assert_eq!(found, wanted, "members: {case}");
                }
                LookupKind::UserByName => {
                    assert_eq!(asked.gids(name).await, mirror.gids(name).await, "groups: {case}");
                    let given =
                        overrides.users.values().any(|user| user.name.as_deref() == Some(name));
                    renamed += usize::from(given && wanted.is_some());
                }
                LookupKind::UserByUid | LookupKind::GroupsOf => {}
            }
        }
        let mut state = mirror.state.write().await;
        let native = DomainOverrides::new(LocalOverrides::default(), &NameConfig::default());
        state.set_overrides(1, native);
        drop(state);
        let truth: Vec<PlacedEntry> = [(0, &first), (1, &list)]
            .iter()
            .flat_map(|(domain, list)| list.iter().map(move |one| (*domain, *one)))
            .collect();
        mirror.check_snapshot(&truth).await;
    }
    assert!(renamed > 100, "{renamed} renamed users were found");
}

#[tokio::test]
async fn who_alice_is_does_not_depend_on_a_later_domains_group() {
    let corp = [user(1, "alice", 5001, 6000), group(2, "staff", 6000)];
    for (uid, gid) in [(9001, 7777), (9001, 6000)] {
        let lab = [user(1, "alice", uid, gid), group(2, "lab", 7777), group(3, "labstaff", 6000)];
        let truth: Vec<PlacedEntry> = [(0, &corp[..]), (1, &lab[..])]
            .iter()
            .flat_map(|&(d, list)| list.iter().map(move |one| (d, *one)))
            .collect();
        for gid_first in [false, true] {
            let net = TestDirectories::new(&[("asked", &corp), ("lab", &lab)]);
            if gid_first {
                assert_eq!(net.query_id(LookupKind::GroupByGid, "", 6000).await, Some(6000));
            }
            assert_eq!(net.query_id(LookupKind::UserByName, "alice", 0).await, Some(5001));
            let of_lab = (gid == 7777).then_some(9001);
            assert_eq!(net.query_id(LookupKind::UserByUid, "", 9001).await, of_lab);
            assert_eq!(net.query_id(LookupKind::UserByName, "alice@lab", 0).await, of_lab);
            assert_eq!(net.query_id(LookupKind::GroupByName, "staff", 0).await, Some(6000));
            assert_eq!(net.query_id(LookupKind::GroupByName, "labstaff", 0).await, None);
            net.check_snapshot(&truth).await;
        }
    }
}

#[tokio::test]
async fn on_demand_later_lookup_hides_no_earlier_user() {
    let lab = [user(1, "dora", 7010, 6000)];
    let corp = [group(1, "staff", 6000)];
    let net = TestDirectories::new(&[("lab", &lab), ("asked", &corp)]);
    assert_eq!(net.query_id(LookupKind::UserByName, "dora", 0).await, Some(7010));
    assert_eq!(
        net.query_id(LookupKind::GroupByName, "staff", 0).await,
        None,
        "dora would be a member"
    );
    assert_eq!(net.query_id(LookupKind::UserByName, "dora", 0).await, Some(7010));
    let mut state = net.state.write().await;
    assert!(
        matches!(state.domains[1].entries.entry(1), Some(ModelEntry::Group(_))),
        "it was learnt"
    );
    published(&mut state, |snapshot| {
        let dora = snapshot.user_by_name(b"dora").expect("undamaged");
        assert_eq!(dora.map(|dora| dora.uid), Some(7010));
    });
}

#[tokio::test]
async fn precedence_later_group_lists_no_earlier_user() {
    let corp = [user(1, "alice", 5001, 5001), user(2, "other", 9003, 5002), group(3, "dev", 7004)];
    let lab = [
        user(1, "alice", 9002, 9002),
        user(2, "bob", 9001, 9001),
        user(3, "carol", 9003, 9004),
        user(4, "dora", 9005, 7004),
        group(5, "inner", 7006).with(1 << 1 | 1 << 2),
        group(6, "wheel-lab", 7007).with(1 << 3 | 1 << 4 | 1 << 5),
    ];
    // Both modes of the later domain.
    for name in ["lab", "asked-lab"] {
        let net = TestDirectories::new(&[("asked", &corp), (name, &lab)]);
        let wheel = Some((7007, BTreeSet::from(["bob".to_owned(), format!("alice@{name}")])));
        for _ in 0..2 {
            assert_eq!(net.members(LookupKind::GroupByName, "wheel-lab", 0).await, wheel, "{name}");
        }
        assert_eq!(net.gids("bob").await, Some(BTreeSet::from([7006, 7007])), "{name}");
        assert_eq!(net.gids("alice").await, Some(BTreeSet::new()), "corp's alice is in no group");
        assert_eq!(net.members(LookupKind::GroupByGid, "", 7007).await, wheel, "{name}");
    }
}
