// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of private groups, mirrored and on demand. The results follow the rule in any order of queries. The rule is in
//! `merge`.

use super::local_overrides::DomainOverrides;
use super::on_demand::{
    DomainAnswer, LookupReply, LookupRequest, LookupSource, Unavailable, lookup,
};
use super::state::{DeferReason, ImageOutcome, PublisherState};
use super::tests::{Image, apply_image, config, learn, locals, published};
use roster_config::{DomainMode, NameCase, NameConfig, PrivateGroups};
use roster_messages::table::directory;
use roster_request::LookupKind;
use roster_snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::RwLock;

/// Below the smallest id: an entry with this id is not served.
const REFUSED: u32 = 900;
/// The name of a local group.
const LOCAL: &str = "carol";

/// A user, or a group without members. A group has no meaningful `gid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TestEntry {
    is_user: bool,
    number: u32,
    name: &'static str,
    id: u32,
    gid: u32,
}

const fn user(number: u32, name: &'static str, id: u32, gid: u32) -> TestEntry {
    TestEntry { is_user: true, number, name, id, gid }
}

const fn group(number: u32, name: &'static str, id: u32) -> TestEntry {
    TestEntry { is_user: false, number, name, id, gid: 0 }
}

impl TestEntry {
    fn write(&self, image: Image) -> Image {
        match self.is_user {
            true => image.user(self.number, self.name, self.id, self.gid),
            false => image.group(self.number, self.name, self.id, &[]),
        }
    }

    fn answers(&self, question: &LookupRequest) -> bool {
        let has_name = || self.name.as_bytes() == question.name();
        match question.kind() {
            LookupKind::UserByName | LookupKind::GroupsOf => self.is_user && has_name(),
            LookupKind::UserByUid => self.is_user && self.id == question.id(),
            LookupKind::GroupByName => !self.is_user && has_name(),
            LookupKind::GroupByGid => !self.is_user && self.id == question.id(),
        }
    }
}

/// A domain. Names of on-demand domains start with `asked`.
#[derive(Clone, Debug)]
struct TestDomain {
    name: &'static str,
    kind: PrivateGroups,
    entries: Vec<TestEntry>,
}

fn domain(name: &'static str, kind: PrivateGroups, entries: &[TestEntry]) -> TestDomain {
    TestDomain { name, kind, entries: entries.to_vec() }
}

/// An entry of any kind that may have a name and an id.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    domain: usize,
    entry: TestEntry,
    /// The number of the user, if it is a private group.
    user: Option<u32>,
}

impl Claim {
    /// Groups of the directory precede private groups.
    fn rank(&self) -> (usize, bool, u32) {
        (self.domain, self.user.is_some(), self.entry.number)
    }
}

/// The rule in its simplest form.
struct Rule<'d> {
    domains: &'d [TestDomain],
    claims: Vec<Claim>,
    /// Whether a group may not have the primary gid of a user of an earlier domain. No query finds such users.
    with_primary_gids: bool,
}

impl<'d> Rule<'d> {
    fn new(domains: &'d [TestDomain]) -> Self {
        let mut claims = Vec::new();
        for (position, domain) in domains.iter().enumerate() {
            for &(mut entry) in &domain.entries {
                if entry.is_user && domain.kind == PrivateGroups::Always {
                    entry.gid = entry.id;
                }
                let is_local = !entry.is_user && entry.name == LOCAL;
                if entry.id == REFUSED || entry.is_user && entry.gid == REFUSED || is_local {
                    continue;
                }
                claims.push(Claim { domain: position, entry, user: None });
                let is_same = entry.id == entry.gid && domain.kind != PrivateGroups::Off;
                if entry.is_user && is_same && entry.name != LOCAL {
                    let private = TestEntry { is_user: false, gid: 0, ..entry };
                    let user = Some(entry.number);
                    claims.push(Claim { domain: position, entry: private, user });
                }
            }
        }
        claims.sort_by_key(Claim::rank);
        Self { domains, claims, with_primary_gids: true }
    }

    /// Returns whether an entry owns its id and a name, and whether the name is that with the domain.
    fn owns(&self, me: &Claim) -> Option<bool> {
        let mut with_domain = false;
        for other in self.claims.iter().filter(|other| other.rank() < me.rank()) {
            let is_earlier = other.domain < me.domain;
            let (mine, theirs) = (&me.entry, &other.entry);
            if mine.is_user != theirs.is_user {
                let is_joined = match mine.is_user {
                    true => mine.gid == theirs.id,
                    false => self.with_primary_gids && mine.id == theirs.gid,
                };
                if is_earlier && is_joined {
                    return None;
                }
                continue;
            }
            if mine.id == theirs.id || !is_earlier && mine.name == theirs.name {
                return None;
            }
            with_domain |= mine.name == theirs.name;
        }
        Some(with_domain)
    }

    fn has_gid(&self, me: &Claim) -> bool {
        let entries = &self.domains[me.domain].entries;
        entries.iter().any(|other| !other.is_user && other.id == me.entry.id)
    }

    /// Returns the name of a served entry.
    fn served_name(&self, me: &Claim) -> Option<String> {
        let kind = self.domains[me.domain].kind;
        let of_user =
            |claim: &&Claim, number| claim.domain == me.domain && claim.entry.number == number;
        let mut with_domain = self.owns(me)?;
        if let Some(number) = me.user {
            let is_it = |claim: &&Claim| claim.entry.is_user && of_user(claim, number);
            with_domain |= self.owns(self.claims.iter().find(is_it)?)?;
            if self.has_gid(me) {
                return None;
            }
        } else if me.entry.is_user && kind == PrivateGroups::Always {
            let number = me.entry.number;
            let is_it = |claim: &&Claim| claim.user.is_some() && of_user(claim, number);
            let private = self.claims.iter().find(is_it)?;
            self.owns(private)?;
            if self.has_gid(private) {
                return None;
            }
        }
        Some(match with_domain {
            true => format!("{}@{}", me.entry.name, self.domains[me.domain].name),
            false => me.entry.name.to_owned(),
        })
    }

    /// Returns name, id and primary gid of the entry that a query finds.
    fn find(&self, question: &LookupRequest) -> Option<(String, u32, u32)> {
        let mut found = self.claims.iter().filter(|claim| claim.entry.answers(question));
        let claim = match question.kind().is_by_name() {
            true => found.next(),
            false => found.find(|claim| self.served_name(claim).is_some()),
        }?;
        let name = self.served_name(claim)?;
        let is_found = !question.kind().is_by_name() || name == claim.entry.name;
        is_found.then_some((name, claim.entry.id, claim.entry.gid))
    }

    /// Returns served users or groups: the id and the primary gid by name.
    fn served(&self, is_user: bool) -> BTreeMap<String, (u32, u32)> {
        let claims = self.claims.iter().filter(|claim| claim.entry.is_user == is_user);
        let named =
            |claim: &Claim| Some((self.served_name(claim)?, (claim.entry.id, claim.entry.gid)));
        claims.filter_map(named).collect()
    }
}

/// The directories of a host, and the publisher's knowledge of them.
struct TestDirectories {
    state: RwLock<PublisherState>,
    domains: Vec<TestDomain>,
    is_away: AtomicBool,
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
        self.query_domain_batch(domain, &[question]).await
    }

    async fn query_domain_batch(
        &self,
        domain: usize,
        questions: &[&LookupRequest],
    ) -> Result<DomainAnswer, Unavailable> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(Unavailable("away".into()));
        }
        let mut state = self.state.write().await;
        if state.domains[domain].mode == DomainMode::OnDemand {
            let entries = self.domains[domain].entries.iter();
            let found = entries.filter(|entry| questions.iter().any(|one| entry.answers(one)));
            let found = found.fold(Image::full(), |image, entry| entry.write(image));
            learn(&mut state, domain, found).expect("well formed");
        }
        Ok(DomainAnswer::Given)
    }

    async fn query_if_online(
        &self,
        domain: usize,
        questions: &[&LookupRequest],
    ) -> Result<bool, Unavailable> {
        Ok(self.query_domain_batch(domain, questions).await.is_ok())
    }
}

fn image(entries: &[TestEntry]) -> Image {
    entries.iter().fold(Image::full(), |image, entry| entry.write(image))
}

/// Makes a host with a local group [`LOCAL`].
fn private_host(domains: &[(&str, PrivateGroups)], names: &NameConfig) -> PublisherState {
    let all: Vec<_> = domains.iter().map(|(name, _)| *name).collect();
    let mut config = config(&all);
    for (rules, (_, kind)) in config.domains.iter_mut().zip(domains) {
        rules.private_groups = *kind;
        rules.names = names.clone();
    }
    let mut state =
        PublisherState::new(&config, Path::new("/run/roster/nss"), BTreeMap::new(), None);
    state.set_locals(locals(&[("root", 0)], &[("root", 0), (LOCAL, 700), ("games", 5050)]));
    state
}

/// Makes a host with one mirrored domain.
fn mirrored(kind: PrivateGroups, entries: &[TestEntry]) -> PublisherState {
    let mut state = private_host(&[("corp", kind)], &NameConfig::default());
    apply_image(&mut state, 0, image(entries)).expect("well formed");
    state
}

fn users_of(snapshot: &Snapshot<'_>) -> BTreeMap<String, (u32, u32)> {
    let users = (0..).map_while(|position| snapshot.user(position).expect("undamaged"));
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    users.map(|user| (text(user.record().name), (user.uid, user.gid))).collect()
}

fn groups_of(snapshot: &Snapshot<'_>) -> BTreeMap<String, (u32, u32)> {
    let groups = (0..).map_while(|position| snapshot.group(position).expect("undamaged"));
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    groups.map(|group| (text(group.record().name), (group.gid, 0))).collect()
}

/// Returns the names and ids of users and groups of the next snapshot, in the form `alice:5000:5000 staff:6000`.
fn served(state: &mut PublisherState) -> String {
    published(state, |snapshot| {
        let users = users_of(snapshot);
        let users = users.iter().map(|(name, (uid, gid))| format!("{name}:{uid}:{gid}"));
        let groups = groups_of(snapshot);
        let groups = groups.iter().map(|(name, (gid, _))| format!("{name}:{gid}"));
        users.chain(groups).collect::<Vec<_>>().join(" ")
    })
}

fn reasons(state: &PublisherState, domain: &str) -> Vec<String> {
    let rejected = state.rejected(domain, 0, 100).expect("a domain").into_iter();
    rejected.map(|entry| format!("{} {}: {}", entry.kind, entry.name, entry.reason)).collect()
}

impl TestDirectories {
    fn new(domains: &[TestDomain]) -> Self {
        let kinds: Vec<_> = domains.iter().map(|domain| (domain.name, domain.kind)).collect();
        let mut state = private_host(&kinds, &NameConfig::default());
        for (position, domain) in domains.iter().enumerate() {
            if state.domains[position].mode == DomainMode::Replicate {
                apply_image(&mut state, position, image(&domain.entries)).expect("well formed");
            }
        }
        let is_away = AtomicBool::new(false);
        Self { state: RwLock::new(state), domains: domains.to_vec(), is_away }
    }

    async fn find(&self, question: &LookupRequest) -> Option<(String, u32, u32)> {
        let text = |name: Vec<u8>| String::from_utf8(name).expect("ASCII");
        match lookup(self, question).await.expect("every domain answers") {
            LookupReply::User { name, uid, gid, .. } => Some((text(name), uid, gid)),
            LookupReply::Group { name, gid, members } => {
                assert_eq!(members, Vec::<Vec<u8>>::new());
                Some((text(name), gid, 0))
            }
            LookupReply::Gids(_) => panic!("groups were not asked for"),
            LookupReply::Absent => None,
        }
    }

    /// Returns the domains with the entries that the publisher knows.
    async fn known(&self) -> Vec<TestDomain> {
        let state = self.state.read().await;
        let known = |(position, domain): (usize, &TestDomain)| {
            let model = &state.domains[position].entries;
            let entries = domain.entries.iter().copied();
            let entries = entries.filter(|entry| model.entry(entry.number).is_some()).collect();
            TestDomain { entries, ..domain.clone() }
        };
        self.domains.iter().enumerate().map(known).collect()
    }

    async fn check_snapshot(&self, case: &str) {
        let known = self.known().await;
        let rule = Rule::new(&known);
        published(&mut *self.state.write().await, |snapshot| {
            assert_eq!(users_of(snapshot), rule.served(true), "{case}");
            assert_eq!(groups_of(snapshot), rule.served(false), "{case}");
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
}

const NAMES: [&str; 4] = ["alice", "bob", LOCAL, "dora"];
const IDS: [u32; 5] = [5001, 5002, 5003, 5004, REFUSED];

/// Makes a few entries with few names and ids. Within an on-demand domain a name has one id.
fn entries(dice: &mut Dice, is_asked: bool) -> Vec<TestEntry> {
    let mut entries: Vec<TestEntry> = Vec::new();
    for number in 1..=dice.below(7) as u32 {
        let is_user = dice.below(5) < 3;
        let name = NAMES[dice.below(NAMES.len())];
        let id = IDS[dice.below(IDS.len())];
        let gid = if dice.below(2) == 0 { id } else { IDS[dice.below(IDS.len())] };
        let is_double =
            |other: &TestEntry| other.is_user == is_user && (other.name == name || other.id == id);
        if !is_asked || !entries.iter().any(is_double) {
            entries.push(match is_user {
                true => user(number, name, id, gid),
                false => group(number, name, id),
            });
        }
    }
    entries
}

fn questions(dice: &mut Dice) -> Vec<LookupRequest> {
    let names = NAMES.iter().flat_map(|name| {
        [LookupKind::UserByName, LookupKind::GroupByName]
            .map(|kind| LookupRequest::new(kind, (*name).into(), 0))
    });
    let ids = IDS.iter().flat_map(|id| {
        [LookupKind::UserByUid, LookupKind::GroupByGid]
            .map(|kind| LookupRequest::new(kind, Vec::new(), *id))
    });
    let mut all: Vec<_> = names.chain(ids).collect();
    for last in (1..all.len()).rev() {
        all.swap(last, dice.below(last + 1));
    }
    all
}

const KINDS: [PrivateGroups; 3] =
    [PrivateGroups::Off, PrivateGroups::Always, PrivateGroups::SameId];

fn domains(dice: &mut Dice, names: &[&'static str]) -> Vec<TestDomain> {
    let made = |name: &&'static str| {
        let entries = entries(dice, name.starts_with("asked"));
        TestDomain { name, kind: KINDS[dice.below(3)], entries }
    };
    names.iter().map(made).collect()
}

#[tokio::test]
async fn private_groups_mirrored_follow_rule() {
    for seed in 0..1000 {
        let mut dice = Dice(seed);
        let domains = domains(&mut dice, &["corp", "lab"]);
        let net = TestDirectories::new(&domains);
        net.check_snapshot(&format!("seed {seed}: {domains:?}")).await;
    }
}

#[tokio::test]
async fn private_groups_on_demand_follow_rule() {
    for seed in 0..500 {
        let mut dice = Dice(seed);
        let names: &[&str] = match dice.below(4) {
            0 => &["asked"],
            1 => &["asked", "asked-b"],
            2 => &["asked", "lab"],
            _ => &["lab", "asked"],
        };
        let domains = domains(&mut dice, names);
        let net = TestDirectories::new(&domains);
        let truth = Rule::new(&domains);
        let lenient = Rule { with_primary_gids: false, ..Rule::new(&domains) };
        for question in questions(&mut dice) {
            let case = format!("seed {seed}: {question:?} in {domains:?}");
            let is_local =
                question.kind() == LookupKind::GroupByName && question.name() == LOCAL.as_bytes();
            let found = net.find(&question).await;
            if is_local {
                assert_eq!(found, None, "{case}");
                continue;
            }
            let known = net.known().await;
            assert_eq!(found, Rule::new(&known).find(&question), "known: {case}");
            let wanted = truth.find(&question);
            if wanted == lenient.find(&question) {
                assert_eq!(found, wanted, "truth: {case}");
            }
            if dice.below(8) == 0 {
                net.check_snapshot(&case).await;
            }
        }
        // All entries leave, and own nothing.
        for (position, domain) in domains.iter().enumerate() {
            let mut state = net.state.write().await;
            let gone =
                domain.entries.iter().fold(Image::full(), |image, one| image.gone(one.number));
            learn(&mut state, position, gone).expect("well formed");
        }
        assert!(net.state.read().await.ownership.is_empty(), "seed {seed}");
    }
}

#[test]
fn private_group_always_replaces_primary_gid() {
    let entries = [user(1, "alice", 5000, 6000), group(2, "staff", 6000)];
    let mut state = mirrored(PrivateGroups::Always, &entries);
    assert_eq!(served(&mut state), "alice:5000:5000 alice:5000 staff:6000");
    published(&mut state, |snapshot| {
        let alice = snapshot.group_by_gid(5000).expect("undamaged").expect("there");
        assert_eq!(alice.members.iter().count(), 0);
        assert!(alice.is_complete());
        let mut gids: Vec<u32> = Vec::new();
        if let Some(list) = snapshot.supplementary(b"alice").expect("undamaged") {
            list.each(|gid| gids.push(gid)).expect("undamaged");
        }
        assert!(gids.is_empty(), "staff does not list alice");
    });
    let counts = &state.domain_counts()[0];
    assert_eq!((counts.users, counts.groups), (1, 2));
    // Another name, another uid, and no user.
    let renamed = Image::changes(1).user(1, "alicia", 5000, 6000);
    let ImageOutcome::Changed(forget) = apply_image(&mut state, 0, renamed).expect("well formed")
    else {
        panic!("a change")
    };
    assert_eq!(forget.groups, [&b"alice"[..], b"alicia"]);
    assert_eq!(served(&mut state), "alicia:5000:5000 alicia:5000 staff:6000");
    let moved = Image::changes(2).user(1, "alicia", 5001, 6000);
    apply_image(&mut state, 0, moved).expect("well formed");
    assert_eq!(served(&mut state), "alicia:5001:5001 alicia:5001 staff:6000");
    apply_image(&mut state, 0, Image::changes(3).gone(1)).expect("well formed");
    assert_eq!(served(&mut state), "staff:6000");
}

#[test]
fn private_group_same_id_yields_to_directory_group() {
    let entries = [user(1, "alice", 5000, 5000), user(2, "bob", 5001, 6000)];
    let mut state = mirrored(PrivateGroups::SameId, &entries);
    assert_eq!(served(&mut state), "alice:5000:5000 bob:5001:6000 alice:5000");
    let later = Image::changes(1).group(3, "staff", 5000, &[2]);
    apply_image(&mut state, 0, later).expect("well formed");
    assert_eq!(served(&mut state), "alice:5000:5000 bob:5001:6000 staff:5000");
    assert_eq!(reasons(&state, "corp"), [""; 0]);
    assert!(state.show_entries(LookupKind::GroupByName, b"alice").is_empty());
    // A group that the host rejects has the gid as well.
    let sudo = Image::changes(2).group(3, "sudo", 5000, &[2]);
    apply_image(&mut state, 0, sudo).expect("well formed");
    assert_eq!(served(&mut state), "alice:5000:5000 bob:5001:6000");
    apply_image(&mut state, 0, Image::changes(3).gone(3)).expect("well formed");
    assert_eq!(served(&mut state), "alice:5000:5000 bob:5001:6000 alice:5000");
}

#[test]
fn private_group_rejected_names_group_and_user() {
    let taken = "the private group of the user is rejected";
    let cases: [(TestEntry, &[TestEntry], &str); 4] = [
        (
            user(1, "alice", 5000, 6000),
            &[group(2, "staff", 5000)],
            "group alice: an earlier entry of this domain has gid 5000",
        ),
        (
            user(1, "alice", 5000, 6000),
            &[group(2, "alice", 6000)],
            "group alice: an earlier entry of this domain has this name",
        ),
        (user(1, LOCAL, 5000, 6000), &[], "group carol: a local group has this name"),
        // A group that the host rejects, and its gid.
        (
            user(1, "alice", 5000, 6000),
            &[group(2, "sudo", 5000)],
            "group alice: an earlier entry of this domain has gid 5000",
        ),
    ];
    for (one, groups, reason) in cases {
        let entries: Vec<_> = [one].iter().chain(groups).copied().collect();
        let mut state = mirrored(PrivateGroups::Always, &entries);
        let shown = served(&mut state);
        assert!(!shown.contains(one.name) || groups.iter().any(|group| group.name == one.name));
        let reasons = reasons(&state, "corp");
        assert!(reasons.contains(&reason.to_owned()), "{reasons:?}");
        assert!(reasons.contains(&format!("user {}: {taken}", one.name)), "{reasons:?}");
        let rejected = state.rejected("corp", 0, 10).expect("a domain");
        let is_it = |code: &str| code == directory::PRIVATE_GROUP_REJECTED.code;
        assert_eq!(rejected.iter().filter(|entry| is_it(&entry.code)).count(), 1);
        let details = state.show_entries(LookupKind::GroupByName, one.name.as_bytes());
        let mut refused = details.iter().map(|details| details.refused.as_str());
        assert!(refused.any(|refused| !refused.is_empty()), "{details:?}");
        // With equal ids the group alone is rejected, or a group of the directory replaces it.
        let entries: Vec<_> =
            [TestEntry { gid: one.id, ..one }].into_iter().chain(groups.iter().copied()).collect();
        let mut state = mirrored(PrivateGroups::SameId, &entries);
        let shown = served(&mut state);
        assert!(shown.starts_with(&format!("{}:5000:5000", one.name)), "{shown}");
        assert!(!shown.contains(&format!(" {}:5000", one.name)), "{shown}");
    }
    // The uid is the gid of a local group.
    let mut state = mirrored(PrivateGroups::Always, &[user(1, "alice", 5050, 6000)]);
    assert_eq!(served(&mut state), "");
    assert_eq!(reasons(&state, "corp"), ["user alice: primary gid 5050 belongs to a local group"]);
}

#[test]
fn private_group_has_name_of_its_user() {
    let names = NameConfig { case: NameCase::Insensitive, ..NameConfig::default() };
    let mut state = private_host(&[("corp", PrivateGroups::Always)], &names);
    let people = [user(1, "Alice", 5000, 1), user(2, "ALICE", 5001, 1)];
    apply_image(&mut state, 0, image(&people)).expect("well formed");
    assert_eq!(served(&mut state), "alice:5000:5000 alice:5000");
    let names = NameConfig { qualified: true, ..NameConfig::default() };
    let mut state = private_host(&[("corp", PrivateGroups::Always)], &names);
    apply_image(&mut state, 0, image(&people)).expect("well formed");
    let wanted = "ALICE@corp:5001:5001 Alice@corp:5000:5000 ALICE@corp:5001 Alice@corp:5000";
    assert_eq!(served(&mut state), wanted);
    // The other domain has a user of this name, and no group.
    let kinds = [("corp", PrivateGroups::Off), ("lab", PrivateGroups::Always)];
    let mut state = private_host(&kinds, &NameConfig::default());
    let corp = [user(1, "alice", 5000, 5000)];
    apply_image(&mut state, 0, image(&corp)).expect("well formed");
    apply_image(&mut state, 1, image(&[user(1, "alice", 7000, 1)])).expect("well formed");
    let wanted = "alice:5000:5000 alice@lab:7000:7000 alice@lab:7000";
    assert_eq!(served(&mut state), wanted);
}

/// A guard that counts private groups would let all groups go.
#[test]
fn mass_deletion_private_groups_do_not_count() {
    let people: Vec<_> = (1..=300).map(|number| user(number, "", 6000 + number, 1)).collect();
    let names: Vec<String> = people.iter().map(|one| format!("u{}", one.number)).collect();
    let with_users = |image: Image| {
        people
            .iter()
            .zip(&names)
            .fold(image, |image, (one, name)| image.user(one.number, name, one.id, one.gid))
    };
    let with_groups = |image: Image| {
        (400..420).fold(image, |image, number| {
            image.group(number, &format!("g{number}"), 8000 + number, &[])
        })
    };
    for is_restart in [false, true] {
        let mut state = private_host(&[("corp", PrivateGroups::Always)], &NameConfig::default());
        let full = with_groups(with_users(Image::full()));
        apply_image(&mut state, 0, full).expect("well formed");
        let snapshot = published_bytes(&mut state);
        if is_restart {
            let mut rules = config(&["corp"]);
            rules.domains[0].private_groups = PrivateGroups::Always;
            let served = state.served.clone();
            let path = Path::new("/run/roster/nss");
            state = PublisherState::new(&rules, path, served, Some(snapshot));
            state.set_locals(locals(&[("root", 0)], &[("root", 0)]));
        }
        let without = with_users(Image::full()).of_process(2);
        let outcome = apply_image(&mut state, 0, without).expect("well formed");
        assert_eq!(outcome, ImageOutcome::Deferred(DeferReason::RemovalsHeld), "{is_restart}");
        // One user of many.
        let fewer = with_groups(with_users(Image::full()).gone(1)).of_process(3);
        let outcome = apply_image(&mut state, 0, fewer).expect("well formed");
        assert!(matches!(outcome, ImageOutcome::Changed(_)), "{is_restart}: {outcome:?}");
        assert_eq!(served(&mut state).split(' ').count(), 299 + 299 + 20);
    }
}

fn published_bytes(state: &mut PublisherState) -> Vec<u8> {
    let made = state.snapshot_input().make().expect("an image");
    let mut bytes = std::io::Cursor::new(Vec::new());
    made.image.write(&mut bytes, 1).expect("write to memory");
    state.apply_published(made);
    bytes.into_inner()
}

#[tokio::test]
async fn private_groups_on_demand_wait_for_directory() {
    let kinds = [(PrivateGroups::Always, [true, true]), (PrivateGroups::SameId, [false, true])];
    for (kind, marked) in kinds {
        let people = [user(1, "alice", 5000, 5000), user(2, "bob", 5001, 5001)];
        let net = TestDirectories::new(&[domain("asked", kind, &people)]);
        // Both came with another entry.
        learn(&mut *net.state.write().await, 0, image(&people)).expect("well formed");
        let marks = async |name: &str| {
            published(&mut *net.state.write().await, |snapshot| {
                let user = snapshot.user_by_name(name.as_bytes()).expect("undamaged");
                let group = snapshot.group_by_name(name.as_bytes()).expect("undamaged");
                let (user, group) = (user.expect("there"), group.expect("there"));
                [user.needs_responder_first(), group.needs_responder_first()]
            })
        };
        assert_eq!(marks("alice").await, marked, "{kind:?}");
        net.is_away.store(true, Ordering::Relaxed);
        let by_name = LookupRequest::UserByName(b"alice".to_vec());
        let found = Some(("alice".to_owned(), 5000, 5000));
        assert_eq!(net.find(&by_name).await, found, "logins work without the directory");
        let by_gid = LookupRequest::GroupByGid(5000);
        assert_eq!(net.find(&by_gid).await, Some(("alice".to_owned(), 5000, 0)));
        assert_eq!(marks("alice").await, marked, "{kind:?}");
        net.is_away.store(false, Ordering::Relaxed);
        assert_eq!(net.find(&by_gid).await, Some(("alice".to_owned(), 5000, 0)));
        assert_eq!(marks("alice").await, [false; 2], "{kind:?}");
        assert_eq!(marks("bob").await, marked, "{kind:?}");
        // Another uid is another private group.
        let moved = Image::full().user(1, "alice", 5002, 5002);
        learn(&mut *net.state.write().await, 0, moved).expect("well formed");
        assert_eq!(marks("alice").await, marked, "{kind:?}");
        let all: BTreeSet<_> =
            net.state.read().await.users_to_check(0, false).into_iter().collect();
        assert_eq!(all.len(), 2);
    }
}

/// Overrides swap the names of two users. Earlier lookups do not change the answers.
#[tokio::test]
async fn private_groups_follow_swapped_names_on_demand() {
    let people = [user(1, "alice", 5000, 5000), user(2, "bob", 5001, 5001)];
    let text = "[host]\ndomains = ['corp']\n[domain.corp]\nprovider = 'files'\npasswd = '/p'\n\
                group = '/g'\n[domain.corp.override.user]\n\
                alice = { name = 'bob', uid = 6000, gid = 6000 }\n\
                bob = { name = 'alice', uid = 6001, gid = 6001 }\n";
    let config = roster_config::parse(text).expect("valid").config;
    let entries = &config.domains[0].local_overrides.entries;
    let by_name = |kind, name: &str| LookupRequest::new(kind, name.into(), 0);
    for kind in [PrivateGroups::Always, PrivateGroups::SameId] {
        for known in [&["alice"][..], &["bob"], &[]] {
            let net = TestDirectories::new(&[domain("asked", kind, &people)]);
            let given = DomainOverrides::new(entries.clone(), &NameConfig::default());
            net.state.write().await.set_overrides(0, given);
            for name in known {
                net.find(&by_name(LookupKind::UserByName, name)).await;
            }
            for (name, id) in [("bob", 6000), ("alice", 6001)] {
                let group = Some((name.to_owned(), id, 0));
                let case = format!("{kind:?} {known:?} {name}");
                let found = net.find(&by_name(LookupKind::GroupByName, name)).await;
                assert_eq!(found, group, "{case}");
                assert_eq!(net.find(&LookupRequest::GroupByGid(id)).await, group, "{case}");
                let found = net.find(&by_name(LookupKind::UserByName, name)).await;
                assert_eq!(found, Some((name.to_owned(), id, id)), "{case}");
            }
            for id in [5000, 5001] {
                assert_eq!(net.find(&LookupRequest::GroupByGid(id)).await, None, "{kind:?}");
            }
        }
    }
}

/// A known group hides the private group, and the directory has a further group of its name.
#[tokio::test]
async fn private_group_hidden_does_not_hide_name() {
    let people = [user(1, "alice", 5000, 5000), group(2, "staff", 5000), group(3, "alice", 6000)];
    for kind in [PrivateGroups::SameId, PrivateGroups::Always] {
        let net = TestDirectories::new(&[domain("asked", kind, &people)]);
        let known = image(&people[..2]);
        learn(&mut *net.state.write().await, 0, known).expect("well formed");
        let question = LookupRequest::GroupByName(b"alice".to_vec());
        assert_eq!(net.find(&question).await, Some(("alice".to_owned(), 6000, 0)), "{kind:?}");
        let question = LookupRequest::UserByUid(5000);
        let is_found = net.find(&question).await.is_some();
        assert_eq!(is_found, kind == PrivateGroups::SameId);
    }
}

#[test]
fn private_groups_take_memory_of_domain() {
    let people = [user(1, "alice", 5000, 5000)];
    let left = |kind| mirrored(kind, &people).domains[0].entries.memory_left();
    assert!(left(PrivateGroups::Always) < left(PrivateGroups::Off));
    assert_eq!(left(PrivateGroups::Always), left(PrivateGroups::SameId));
}
