//! Tests of who is served when several domains have a name or an id, mirrored or asked on demand, and of
//! who is in which group: in whatever order questions come, it is what the rule says.

use super::model::Entry;
use super::on_demand::{Answer, Directories, Question, Unavailable, look_up};
use super::state::State;
use super::tests::{Image, host, learn, published, take};
use roster_bus::exchange::Records;
use roster_bus::interfaces::Kind;
use roster_config::Mode;
use std::collections::BTreeSet;
use tokio::sync::RwLock;

/// Below the smallest id: an entry that has it is not served.
const REFUSED: u32 = 900;

/// A user, or a group, whose `gid` says nothing. Of numbers of its domain's entries those are a group's
/// members whose bit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Person {
    is_user: bool,
    number: u32,
    name: &'static str,
    id: u32,
    gid: u32,
    members: u8,
}

const fn user(number: u32, name: &'static str, id: u32, gid: u32) -> Person {
    Person { is_user: true, number, name, id, gid, members: 0 }
}

const fn group(number: u32, name: &'static str, id: u32) -> Person {
    Person { is_user: false, number, name, id, gid: 0, members: 0 }
}

impl Person {
    const fn with(self, members: u8) -> Self {
        Self { members, ..self }
    }

    fn lists(&self, number: u32) -> bool {
        self.members & (1 << number) != 0
    }

    /// It alone, without lists.
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

/// A group, what it lists, and what groups in it list.
fn within<'p>(people: &'p [Person], group: &'p Person) -> Vec<&'p Person> {
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

/// The groups of a directory that a user is in.
fn groups_of<'p>(people: &'p [Person], user: &Person) -> Vec<&'p Person> {
    let groups = people.iter().filter(|one| !one.is_user);
    groups.filter(|group| within(people, group).contains(&user)).collect()
}

fn image(people: &[Person]) -> Image {
    people.iter().fold(Image::full(), |image, person| person.whole(image))
}

/// A domain's position and one of its entries.
type Known = (usize, Person);

/// The rule, said in the plainest way: who is served of all these.
fn served(all: &[Known]) -> Vec<Known> {
    let admitted = all
        .iter()
        .filter(|(_, person)| person.id != REFUSED && !(person.is_user && person.gid == REFUSED));
    let admitted: Vec<Known> = admitted.copied().collect();
    let is_served = |&(domain, me): &Known| {
        admitted.iter().all(|&(other, them)| {
            let is_earlier = other < domain;
            let goes_before = is_earlier || other == domain && them.number < me.number;
            match (me.is_user, them.is_user) {
                (true, true) | (false, false) => {
                    !goes_before || me.name != them.name && me.id != them.id
                }
                (true, false) => !is_earlier || me.gid != them.id,
                (false, true) => !is_earlier || me.id != them.gid,
            }
        })
    };
    admitted.iter().copied().filter(is_served).collect()
}

/// The directories of a host, and what the publisher knows of them.
struct Net {
    state: RwLock<State>,
    domains: Vec<Vec<Person>>,
}

impl Directories for Net {
    fn state(&self) -> &RwLock<State> {
        &self.state
    }

    async fn ask(&self, domain: usize, question: &Question) -> Result<(), Unavailable> {
        let mut state = self.state.write().await;
        if state.domains[domain].mode == Mode::OnDemand {
            let people = &self.domains[domain];
            let found = people.iter().filter(|person| is_asked_for(question, person));
            let found =
                found.fold(Image::full(), |image, one| match (one.is_user, question.kind) {
                    (true, Kind::GroupsOf) => {
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
        Ok(())
    }

    async fn ask_all(&self, domain: usize, questions: &[&Question]) -> Result<(), Unavailable> {
        let mut state = self.state.write().await;
        assert!(state.domains[domain].mode == Mode::OnDemand, "{domain} is mirrored");
        let is_asked_for = |person: &&Person| questions.iter().any(|one| is_asked_for(one, person));
        let found = self.domains[domain].iter().filter(is_asked_for);
        let found = found.fold(Image::full(), |image, one| one.bare(image));
        learn(&mut state, domain, found).expect("well formed");
        Ok(())
    }
}

fn is_asked_for(question: &Question, person: &Person) -> bool {
    match question.kind {
        Kind::UserByName | Kind::GroupsOf => {
            person.is_user && person.name.as_bytes() == question.name
        }
        Kind::UserByUid => person.is_user && person.id == question.id,
        Kind::GroupByName => !person.is_user && person.name.as_bytes() == question.name,
        Kind::GroupByGid => !person.is_user && person.id == question.id,
    }
}

impl Net {
    /// Whether the lists that belong to an answer name exactly those whom the rule says.
    async fn check_lists(
        &self,
        truth: &[Known],
        (kind, name, id): (Kind, &'static str, u32),
        case: &str,
    ) {
        match kind {
            Kind::GroupByName | Kind::GroupByGid => {
                let found = self.members(kind, name, id).await;
                let known = served(&self.known().await);
                let question = Question { kind, name: name.into(), id };
                let group = known.iter().find(|(_, one)| is_asked_for(&question, one));
                // Who is a user, and so a member, is no question of what is known.
                let wanted = group.map(|&group| (group.1.id, self.members_among(truth, group)));
                assert_eq!(found, wanted, "members: {case}");
            }
            Kind::UserByName => {
                let found = self.gids(name).await;
                let known = served(&self.known().await);
                assert_eq!(found, self.gids_among(&known, name), "groups: {case}");
            }
            Kind::UserByUid | Kind::GroupsOf => {}
        }
    }

    /// The names of domains that are asked on demand start with `asked`.
    fn new(domains: &[(&str, &[Person])]) -> Self {
        let names: Vec<_> = domains.iter().map(|(name, _)| *name).collect();
        let mut state = host(&names);
        for (position, (_, people)) in domains.iter().enumerate() {
            if state.domains[position].mode == Mode::Replicate {
                take(&mut state, position, image(people)).expect("well formed");
            }
        }
        let domains = domains.iter().map(|(_, people)| people.to_vec()).collect();
        Self { state: RwLock::new(state), domains }
    }

    async fn ask(&self, kind: Kind, name: &str, id: u32) -> Option<u32> {
        let question = Question { kind, name: name.into(), id };
        match look_up(self, &question).await.expect("every domain answers") {
            Answer::User { uid, .. } => Some(uid),
            Answer::Group { gid, .. } => Some(gid),
            Answer::Gids(_) => panic!("groups were not asked for"),
            Answer::Absent => None,
        }
    }

    /// A group's gid and members.
    async fn members(&self, kind: Kind, name: &str, id: u32) -> Option<(u32, BTreeSet<String>)> {
        let question = Question { kind, name: name.into(), id };
        match look_up(self, &question).await.expect("every domain answers") {
            Answer::Group { gid, members, .. } => {
                let names = members.into_iter().map(|name| String::from_utf8(name).expect("ASCII"));
                Some((gid, names.collect()))
            }
            Answer::Absent => None,
            other => panic!("a group was asked for: {other:?}"),
        }
    }

    /// The gids of a user's groups.
    async fn gids(&self, name: &str) -> Option<BTreeSet<u32>> {
        let question = Question { kind: Kind::GroupsOf, name: name.into(), id: 0 };
        match look_up(self, &question).await.expect("every domain answers") {
            Answer::Gids(gids) => Some(gids.into_iter().collect()),
            Answer::Absent => None,
            other => panic!("groups were asked for: {other:?}"),
        }
    }

    /// Who is in a group by the rule, of those who are served.
    fn members_among(&self, served: &[Known], (domain, group): Known) -> BTreeSet<String> {
        let users = within(&self.domains[domain], &group).into_iter().filter(|one| one.is_user);
        let users = users.filter(|user| served.contains(&(domain, **user)));
        users.map(|user| user.name.to_owned()).collect()
    }

    /// The groups of a user by the rule, of those that are served.
    fn gids_among(&self, served: &[Known], name: &str) -> Option<BTreeSet<u32>> {
        let is_it = |(_, one): &&Known| one.is_user && one.name == name;
        let (domain, user) = served.iter().find(is_it)?;
        let groups = groups_of(&self.domains[*domain], user).into_iter();
        let groups = groups.filter(|group| served.contains(&(*domain, **group)));
        Some(groups.map(|group| group.id).collect())
    }

    /// Of all entries those that the publisher has heard of.
    async fn known(&self) -> Vec<Known> {
        let state = self.state.read().await;
        let all = self.domains.iter().enumerate();
        let all = all.flat_map(|(domain, people)| people.iter().map(move |one| (domain, *one)));
        let is_known = |(domain, person): &Known| {
            state.domains[*domain].entries.entry(person.number).is_some()
        };
        all.filter(is_known).collect()
    }

    /// Whether the next snapshot would have what the rule says, of what is known, and no member whom a
    /// directory that was not asked yet may call its own.
    async fn check_snapshot(&self, truth: &[Known]) {
        let served = served(&self.known().await);
        let mut state = self.state.write().await;
        published(&mut state, |snapshot| {
            let count = |is_user| served.iter().filter(|(_, one)| one.is_user == is_user).count();
            let shape = snapshot.shape();
            assert_eq!((shape.users as usize, shape.groups as usize), (count(true), count(false)));
            for (domain, one) in &served {
                let id = match one.is_user {
                    true => snapshot.user_by_name(one.name.as_bytes()).map(|u| u.map(|u| u.uid)),
                    false => snapshot.group_by_name(one.name.as_bytes()).map(|g| g.map(|g| g.gid)),
                };
                assert_eq!(id.expect("undamaged"), Some(one.id), "{domain} {one:?}");
                if let Ok(Some(group)) = snapshot.group_by_name(one.name.as_bytes())
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

/// Numbers that are the same in every run: splitmix64.
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

/// A few entries with few names and ids. Within a domain that is asked a name goes with one id: of two
/// entries of one directory with one id a question by name tells one.
fn people(dice: &mut Dice, is_asked: bool) -> Vec<Person> {
    let mut people: Vec<Person> = Vec::new();
    for number in 1..=dice.below(8) as u32 {
        let is_user = dice.below(2) == 0;
        let name = NAMES[dice.below(NAMES.len())];
        let (id, gid) = (IDS[dice.below(IDS.len())], IDS[dice.below(IDS.len())]);
        let is_double =
            |other: &Person| other.is_user == is_user && (other.name == name || other.id == id);
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

fn questions() -> Vec<(Kind, &'static str, u32)> {
    let names =
        NAMES.iter().flat_map(|&name| [(Kind::UserByName, name, 0), (Kind::GroupByName, name, 0)]);
    let ids = IDS.iter().flat_map(|&id| [(Kind::UserByUid, "", id), (Kind::GroupByGid, "", id)]);
    names.chain(ids).collect()
}

fn id_of(served: &[Known], kind: Kind, name: &str, id: u32) -> Option<u32> {
    let question = Question { kind, name: name.into(), id };
    served.iter().find(|(_, person)| is_asked_for(&question, person)).map(|(_, person)| person.id)
}

#[tokio::test]
async fn who_is_served_is_what_the_rule_says_whatever_was_asked_before() {
    for seed in 0..400 {
        let mut dice = Dice(seed);
        // One is asked at least, or nobody would ask.
        let mut names = vec!["lab-a", "lab-b", "asked-c"];
        dice.shuffle(&mut names);
        names.truncate(1 + dice.below(2));
        names.push("asked-d");
        dice.shuffle(&mut names);
        let people = |name: &&'static str| (*name, people(&mut dice, name.starts_with("asked")));
        let domains: Vec<_> = names.iter().map(people).collect();
        let domains: Vec<_> = domains.iter().map(|(name, list)| (*name, &list[..])).collect();
        let net = Net::new(&domains);
        let each = domains.iter().enumerate();
        let all: Vec<Known> = each
            .flat_map(|(domain, (_, list))| list.iter().map(move |one| (domain, *one)))
            .collect();
        let truth = served(&all);
        let mut questions = questions();
        dice.shuffle(&mut questions);
        for (kind, name, id) in questions {
            let answer = net.ask(kind, name, id).await;
            let case = format!("seed {seed}: {kind:?} {name:?} {id} in {domains:?}");
            if matches!(kind, Kind::UserByName | Kind::UserByUid) {
                // Who somebody is no question changes that comes later.
                assert_eq!(answer, id_of(&truth, kind, name, id), "{case}");
            }
            let known = served(&net.known().await);
            assert_eq!(answer, id_of(&known, kind, name, id), "{case}");
            net.check_lists(&truth, (kind, name, id), &case).await;
            if dice.below(8) == 0 {
                net.check_snapshot(&truth).await;
            }
        }
        // Everything that every directory has, as if each had been asked for all of it.
        for (domain, (_, list)) in domains.iter().enumerate() {
            let mut state = net.state.write().await;
            if state.domains[domain].mode == Mode::OnDemand {
                learn(&mut state, domain, image(list)).expect("well formed");
            }
        }
        net.check_snapshot(&truth).await;
        for (kind, name, id) in self::questions() {
            let answer = net.ask(kind, name, id).await;
            assert_eq!(
                answer,
                id_of(&truth, kind, name, id),
                "seed {seed}: {kind:?} {name:?} {id}"
            );
        }
        // What goes is forgotten whole: nothing is claimed by who is not there.
        let mut state = net.state.write().await;
        for (domain, (_, list)) in domains.iter().enumerate() {
            let numbers: Vec<_> = list.iter().map(|person| person.number).collect();
            let gone = numbers.iter().fold(Image::full(), |image, number| image.gone(*number));
            let gone = gone.records();
            state
                .change(domain, &numbers, |entries| entries.learn(Records::bare(&gone)))
                .expect("well formed");
        }
        assert!(state.claims.is_empty(), "seed {seed}");
    }
}

#[tokio::test]
async fn who_alice_is_does_not_depend_on_a_later_domains_group() {
    let corp = [user(1, "alice", 5001, 6000), group(2, "staff", 6000)];
    for (uid, gid) in [(9001, 7777), (9001, 6000)] {
        let lab = [user(1, "alice", uid, gid), group(2, "lab", 7777), group(3, "labstaff", 6000)];
        let truth: Vec<Known> = [(0, &corp[..]), (1, &lab[..])]
            .iter()
            .flat_map(|&(d, list)| list.iter().map(move |one| (d, *one)))
            .collect();
        let truth = served(&truth);
        for gid_first in [false, true] {
            let net = Net::new(&[("asked", &corp), ("lab", &lab)]);
            if gid_first {
                assert_eq!(net.ask(Kind::GroupByGid, "", 6000).await, Some(6000));
            }
            assert_eq!(net.ask(Kind::UserByName, "alice", 0).await, Some(5001));
            assert_eq!(net.ask(Kind::UserByUid, "", 9001).await, None);
            assert_eq!(net.ask(Kind::GroupByName, "staff", 0).await, Some(6000));
            assert_eq!(net.ask(Kind::GroupByName, "labstaff", 0).await, None);
            net.check_snapshot(&truth).await;
        }
    }
}

#[tokio::test]
async fn a_look_up_in_a_later_domain_makes_no_user_of_an_earlier_one_vanish() {
    let lab = [user(1, "dora", 7010, 6000)];
    let corp = [group(1, "staff", 6000)];
    let net = Net::new(&[("lab", &lab), ("asked", &corp)]);
    assert_eq!(net.ask(Kind::UserByName, "dora", 0).await, Some(7010));
    assert_eq!(net.ask(Kind::GroupByName, "staff", 0).await, None, "dora would be a member");
    assert_eq!(net.ask(Kind::UserByName, "dora", 0).await, Some(7010));
    let mut state = net.state.write().await;
    assert!(matches!(state.domains[1].entries.entry(1), Some(Entry::Group(_))), "it was learnt");
    published(&mut state, |snapshot| {
        let dora = snapshot.user_by_name(b"dora").expect("undamaged");
        assert_eq!(dora.map(|dora| dora.uid), Some(7010));
    });
}

#[tokio::test]
async fn a_group_of_a_later_domain_lists_nobody_of_an_earlier_one_before_anybody_asked() {
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
        let net = Net::new(&[("asked", &corp), (name, &lab)]);
        let wheel = Some((7007, BTreeSet::from(["bob".to_owned()])));
        for _ in 0..2 {
            assert_eq!(net.members(Kind::GroupByName, "wheel-lab", 0).await, wheel, "{name}");
        }
        assert_eq!(net.gids("bob").await, Some(BTreeSet::from([7006, 7007])), "{name}");
        assert_eq!(net.gids("alice").await, Some(BTreeSet::new()), "corp's alice is in no group");
        assert_eq!(net.members(Kind::GroupByGid, "", 7007).await, wheel, "{name}");
    }
}
