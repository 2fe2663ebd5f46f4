//! Look-ups in domains that are asked on demand. What a back-end finds goes the same way as
//! everything else: into the model, past `admit` and the claims of all domains, and only then into
//! the answer; the next snapshot has it too.
//!
//! Domains are asked in their order, and one that cannot be asked ends the look-up: were it passed
//! over, whoever has the name in a later domain could be its owner while the first is away.

use super::Hub;
use super::merge::Claimant;
use super::model::{Entry, Refused, User, record_number};
use super::state::{Forget, State};
use futures_util::future::try_join_all;
use roster_bus::coalesce::{Coalescer, Key};
use roster_bus::exchange::Records;
use roster_bus::interfaces::{BackendProxy, Kind, LOOK_UP_DEADLINE};
use roster_bus::names::{BACKEND, Role};
use roster_config::Mode;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::RwLock;
use tokio::time::timeout;

/// Different questions to all back-ends together that may be in flight.
const IN_FLIGHT_MAX: usize = 256;
/// Names and ids that one domain is known not to have.
const ABSENT_MAX: usize = 16_384;
/// Of what one look-up brought, names that are told one by one to be forgotten.
const NAMES_TOLD_MAX: usize = 20;

/// Questions of one look-up that earlier domains are asked at a time.
const EARLIER_AT_ONCE: usize = 8;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Question {
    pub(super) kind: Kind,
    pub(super) name: Vec<u8>,
    pub(super) id: u32,
}

impl Question {
    /// Equal for equal questions.
    fn args(&self) -> Vec<u8> {
        let Self { kind, name, id } = self;
        [format!("{kind:?},{id},").as_bytes(), name].concat()
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    User {
        name: Vec<u8>,
        uid: u32,
        gid: u32,
        gecos: Vec<u8>,
        dir: Vec<u8>,
        shell: Vec<u8>,
    },
    Group {
        name: Vec<u8>,
        gid: u32,
        members: Vec<Vec<u8>>,
    },
    Gids(Vec<u32>),
    /// No domain has it.
    Absent,
}

/// A domain that had to be asked could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unavailable(pub(super) String);

/// What a back-end found: the epoch of its numbers, and the records.
type Found = (u64, Vec<u8>);
type Asked = Result<Arc<Found>, Unavailable>;

/// The way to the back-ends that are asked.
pub(super) struct Asker {
    /// By position of the domain; none where everything is mirrored.
    back_ends: Vec<Option<BackEnd>>,
    in_flight: Coalescer<Asked>,
    uid: u32,
}

struct BackEnd {
    role: Role,
    proxy: BackendProxy<'static>,
    /// What it said it does not have, and until when that is believed.
    absent: Mutex<HashMap<Question, Instant>>,
    negative: Duration,
}

impl Asker {
    /// Asks these; the durations are how long "no" is believed.
    pub(super) fn new(
        back_ends: impl Iterator<Item = Option<(Role, BackendProxy<'static>, Duration)>>,
    ) -> Self {
        let back_end =
            |(role, proxy, negative)| BackEnd { role, proxy, absent: Mutex::default(), negative };
        Self {
            back_ends: back_ends.map(|found| found.map(back_end)).collect(),
            in_flight: Coalescer::new(IN_FLIGHT_MAX),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// What a domain did not have it may have now.
    pub(super) fn forget_absent(&self, domain: usize) {
        if let Some(Some(back_end)) = self.back_ends.get(domain) {
            back_end.absent.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Asks one domain: the records it has, none when it has nothing, or is not to be asked.
    async fn ask(&self, domain: usize, question: &Question) -> Asked {
        let Some(Some(back_end)) = self.back_ends.get(domain) else {
            return Ok(Arc::default());
        };
        if back_end.is_absent(question) {
            return Ok(Arc::default());
        }
        let key = Key {
            uid: self.uid,
            message: "call",
            destination: back_end.role.bus_name(),
            member: "org.roster.Backend1.LookUp",
            path: back_end.role.path(),
            args: question.args(),
        };
        debug_assert!(key.member.starts_with(BACKEND));
        let (proxy, asked) = (back_end.proxy.clone(), question.clone());
        let joined = |joined| {
            if joined {
                metrics::counter!("roster_coalesced_requests_total").increment(1);
            }
        };
        let request = || async move {
            let Question { kind, name, id } = asked;
            match timeout(LOOK_UP_DEADLINE, proxy.look_up(kind, &name, id)).await {
                Ok(Ok(found)) => Ok(Arc::new(found)),
                Ok(Err(error)) => Err(Unavailable(error.to_string())),
                Err(_) => Err(Unavailable("the back-end did not answer in time".into())),
            }
        };
        let busy = |error: roster_bus::coalesce::Busy| Err(Unavailable(error.to_string()));
        let asked = self.in_flight.ask(key, joined, request).await.unwrap_or_else(busy);
        if asked.as_ref().is_ok_and(|found| found.1.is_empty()) {
            back_end.note_absent(question);
        }
        asked
    }
}

impl BackEnd {
    fn is_absent(&self, question: &Question) -> bool {
        let absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        absent.get(question).is_some_and(|until| Instant::now() < *until)
    }

    fn note_absent(&self, question: &Question) {
        let now = Instant::now();
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        if absent.len() >= ABSENT_MAX {
            absent.retain(|_, until| now < *until);
        }
        if absent.len() < ABSENT_MAX {
            absent.insert(question.clone(), now + self.negative);
        }
    }
}

/// What a look-up goes by: what is known, and a way to learn more.
pub(super) trait Directories: Sync {
    fn state(&self) -> &RwLock<State>;

    /// Asks one domain, and takes in what it has.
    fn ask(
        &self,
        domain: usize,
        question: &Question,
    ) -> impl Future<Output = Result<(), Unavailable>> + Send;
}

impl Directories for Hub {
    fn state(&self) -> &RwLock<State> {
        &self.state
    }

    async fn ask(&self, domain: usize, question: &Question) -> Result<(), Unavailable> {
        let found = self.asker.ask(domain, question).await?;
        if found.1.is_empty() { Ok(()) } else { learn(self, domain, &found).await }
    }
}

/// Answers a question, asking whom it must.
pub(super) async fn look_up(
    directories: &impl Directories,
    question: &Question,
) -> Result<Answer, Unavailable> {
    let state = directories.state();
    if state.read().await.is_local(question)? {
        return Ok(Answer::Absent);
    }
    // Whose groups is found out by the name first: the question then goes to that domain alone.
    let by_name = match question.kind {
        Kind::GroupsOf => Question { kind: Kind::UserByName, ..question.clone() },
        _ => question.clone(),
    };
    let Some(claimant) = find(directories, &by_name).await? else {
        return Ok(Answer::Absent);
    };
    if state.read().await.lacks_list(question.kind, claimant) {
        directories.ask(claimant.0, question).await?;
    }
    if question.kind == Kind::GroupsOf && claimant.0 > 0 {
        // So are the ids of the groups.
        let groups = state.read().await.group_questions(claimant);
        ask_earlier(directories, claimant.0, &groups).await?;
    }
    let state = state.read().await;
    if state.lacks_list(question.kind, claimant) {
        return Err(Unavailable("the directory did not say who belongs to it".into()));
    }
    // Found a moment ago and changed since: there is no telling what it is now.
    let changed = || Unavailable("the entry changed while it was asked for".into());
    state.answer(question.kind, claimant).ok_or_else(changed)
}

/// Who has the name or id, after every domain that goes before was asked for it, and for the name and
/// the ids of whoever was found: they may be somebody's there.
async fn find(
    directories: &impl Directories,
    question: &Question,
) -> Result<Option<Claimant>, Unavailable> {
    let state = directories.state();
    let domains = state.read().await.domains.len();
    for domain in 0..domains {
        state.read().await.is_there(domain)?;
        let owner = state.read().await.owner(question);
        if owner.is_some_and(|(owner, _)| owner <= domain) {
            break;
        }
        directories.ask(domain, question).await?;
    }
    let Some(found) = state.read().await.claimant(question) else { return Ok(None) };
    let mut claims = state.read().await.claims_of(found);
    claims.retain(|claim| claim != question);
    ask_earlier(directories, found.0, &claims).await?;
    Ok(state.read().await.claimant(question))
}

/// Asks the domains that go before that position, several questions at a time.
async fn ask_earlier(
    directories: &impl Directories,
    position: usize,
    questions: &[Question],
) -> Result<(), Unavailable> {
    for domain in 0..position {
        for some in questions.chunks(EARLIER_AT_ONCE) {
            try_join_all(some.iter().map(|question| directories.ask(domain, question))).await?;
        }
    }
    Ok(())
}

/// Takes records in and has the next snapshot show them.
async fn learn(hub: &Hub, domain: usize, (epoch, records): &Found) -> Result<(), Unavailable> {
    let mut state = hub.state.write().await;
    state.is_of(domain, *epoch)?;
    let learnt = state.learn(domain, records);
    drop(state);
    let forget = learnt.map_err(|error| {
        tracing::error!("what the back-end answers is not believed: {error}");
        Unavailable(error.to_string())
    })?;
    if let Some(forget) = forget {
        hub.learnt.notify_one();
        hub.invalidate(&forget).await;
    }
    Ok(())
}

impl State {
    /// Whether the question is about the host's own: no directory has a say in that, and none is kept
    /// waiting for it.
    fn is_local(&self, question: &Question) -> Result<bool, Unavailable> {
        let Question { kind, name, id } = question;
        let locals = self.locals.as_ref();
        let locals =
            locals.ok_or_else(|| Unavailable("the host's own accounts were not read".into()))?;
        Ok(match kind {
            Kind::UserByName | Kind::GroupsOf => locals.user_names.contains(name),
            Kind::UserByUid => locals.uids.contains(id),
            Kind::GroupByName => locals.group_names.contains(name),
            Kind::GroupByGid => locals.gids.contains(id),
        })
    }

    /// Whether the domain's back-end has said anything yet. Until then a later domain's answer could be
    /// a wrong one.
    fn is_there(&self, domain: usize) -> Result<(), Unavailable> {
        let domain = &self.domains[domain];
        if domain.mode == Mode::OnDemand || domain.entries.present {
            return Ok(());
        }
        Err(Unavailable(format!("domain {} was not read yet", domain.name)))
    }

    /// Whether the numbers of what was found are those of the entries that are here. A back-end that began
    /// anew may have given them to others, until everything was fetched from it.
    fn is_of(&self, domain: usize, epoch: u64) -> Result<(), Unavailable> {
        if self.position(domain).0 == epoch {
            return Ok(());
        }
        let name = &self.domains[domain].name;
        Err(Unavailable(format!("domain {name}: its back-end began anew and was not read yet")))
    }

    /// The questions by which another domain says whether an entry's name and ids are its own.
    fn claims_of(&self, claimant: Claimant) -> Vec<Question> {
        let by_name = |kind, name: &[u8]| Question { kind, name: name.into(), id: 0 };
        let by_id = |kind, id| Question { kind, name: Vec::new(), id };
        match self.served(claimant) {
            Some(Entry::User(user)) => vec![
                by_name(Kind::UserByName, user.name()),
                by_id(Kind::UserByUid, user.uid),
                by_id(Kind::GroupByGid, user.gid),
            ],
            Some(Entry::Group(group)) => {
                vec![by_name(Kind::GroupByName, &group.name), by_id(Kind::GroupByGid, group.gid)]
            }
            None => Vec::new(),
        }
    }

    /// The same for the gids of a user's groups.
    fn group_questions(&self, claimant: Claimant) -> Vec<Question> {
        let Some(Entry::User(user)) = self.served(claimant) else { return Vec::new() };
        let gids = self.gids_of(claimant.0, user).into_iter();
        gids.map(|id| Question { kind: Kind::GroupByGid, name: Vec::new(), id }).collect()
    }

    /// Whose the name or id is, of what is known here, served or not.
    fn owner(&self, question: &Question) -> Option<Claimant> {
        let Question { kind, name, id } = question;
        match kind {
            Kind::UserByName | Kind::GroupsOf => self.claims.user_named(name),
            Kind::UserByUid => self.claims.uid(*id),
            Kind::GroupByName => self.claims.group_named(name),
            Kind::GroupByGid => self.claims.gid(*id),
        }
    }

    /// The same, if it is served.
    fn claimant(&self, question: &Question) -> Option<Claimant> {
        self.owner(question).filter(|owner| self.served(*owner).is_some())
    }

    /// The entry, if it is admitted and has both its name and its id for itself.
    fn served(&self, claimant: Claimant) -> Option<Entry<'_>> {
        let (position, number) = claimant;
        let domain = self.domains.get(position)?;
        let locals = self.locals.as_ref()?;
        let entry = domain.entries.entry(number)?;
        match entry {
            Entry::User(user) => {
                domain.rules.user(user, locals).ok()?;
                self.claims.user(claimant, user).ok()?;
            }
            Entry::Group(group) => {
                domain.rules.group(group, locals).ok()?;
                self.claims.group(claimant, group).ok()?;
            }
        }
        Some(entry)
    }

    /// Takes in what a back-end found, and puts down who may have its names and ids. `None` when
    /// nothing of it is new.
    pub(super) fn learn(
        &mut self,
        position: usize,
        records: &[u8],
    ) -> Result<Option<Forget>, Refused> {
        let domain = &self.domains[position];
        let mut forget = Forget::default();
        for record in Records::bare(records).flatten() {
            domain.note(&record, &mut forget);
        }
        if forget.users.len() + forget.groups.len() > NAMES_TOLD_MAX {
            forget = Forget { all: true, ..Forget::default() };
        }
        let numbers: Vec<u32> =
            Records::bare(records).flatten().map(|record| record_number(&record)).collect();
        let is_new = self.change(position, &numbers, |entries| entries.learn(records))?;
        Ok(is_new.then_some(forget))
    }

    /// Whether the list that the question is for is not known whole.
    fn lacks_list(&self, kind: Kind, (position, number): Claimant) -> bool {
        let domain = &self.domains[position];
        match (domain.mode, kind, domain.entries.entry(number)) {
            (Mode::Replicate, ..) => false,
            (_, Kind::GroupsOf, Some(Entry::User(user))) => user.groups.is_none(),
            (_, Kind::GroupByName | Kind::GroupByGid, Some(Entry::Group(_))) => {
                !domain.entries.knows_members(number)
            }
            _ => false,
        }
    }

    /// The answer out of an entry that is served.
    fn answer(&self, kind: Kind, claimant: Claimant) -> Option<Answer> {
        Some(match self.served(claimant)? {
            Entry::User(user) if kind == Kind::GroupsOf => {
                Answer::Gids(self.gids_of(claimant.0, user))
            }
            Entry::User(user) => Answer::User {
                name: user.name().into(),
                uid: user.uid,
                gid: user.gid,
                gecos: user.gecos().into(),
                dir: user.dir().into(),
                shell: user.shell().into(),
            },
            Entry::Group(group) => Answer::Group {
                name: group.name.to_vec(),
                gid: group.gid,
                members: self.members_of(claimant),
            },
        })
    }

    /// Names of the users in a group and in the groups within it.
    fn members_of(&self, (position, group): Claimant) -> Vec<Vec<u8>> {
        let entries = &self.domains[position].entries;
        let (mut groups, mut seen) = (vec![group], HashSet::from([group]));
        let mut members = Vec::new();
        while let Some(number) = groups.pop() {
            let Some(Entry::Group(group)) = entries.entry(number) else { continue };
            for &reference in group.members.iter().flatten() {
                let Some(number) = self.meant(position, reference) else { continue };
                if !seen.insert(number) {
                    continue;
                }
                match entries.entry(number) {
                    Some(Entry::User(user)) => members.push(user.name().to_owned()),
                    _ => groups.push(number),
                }
            }
        }
        members
    }

    /// The entry that a member list means: a user who is served before a group, and of two users, or of
    /// two groups, neither.
    fn meant(&self, position: usize, reference: u32) -> Option<u32> {
        let entries = &self.domains[position].entries;
        let only = |is_kind: &dyn Fn(u32) -> bool| {
            let mut found = entries.referred(reference).filter(|number| is_kind(*number));
            (found.next(), found.next())
        };
        let is_user = |number| matches!(self.served((position, number)), Some(Entry::User(_)));
        let is_group = |number| matches!(entries.entry(number), Some(Entry::Group(_)));
        match only(&is_user) {
            (None, _) => match only(&is_group) {
                (found, None) => found,
                _ => None,
            },
            (found, None) => found,
            _ => None,
        }
    }

    /// Gids of the user's groups: those that the directory named or, where everything is mirrored,
    /// those that list the user or a group that does.
    fn gids_of(&self, position: usize, user: &User) -> Vec<u32> {
        let domain = &self.domains[position];
        let gid = |number: u32| match self.served((position, number)) {
            Some(Entry::Group(group)) => Some(group.gid),
            _ => None,
        };
        if domain.mode == Mode::OnDemand {
            return user.groups.iter().flatten().filter_map(|&group| gid(group)).collect();
        }
        let (mut groups, mut references) = (BTreeSet::new(), vec![user.reference]);
        while let Some(reference) = references.pop() {
            for &number in domain.entries.listed_by(reference) {
                if groups.insert(number)
                    && let Some(Entry::Group(group)) = domain.entries.entry(number)
                {
                    references.push(group.reference);
                }
            }
        }
        groups.into_iter().filter_map(gid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Image, host, locals, published, take};
    use super::*;

    fn by_name(kind: Kind, name: &str) -> Question {
        Question { kind, name: name.into(), id: 0 }
    }

    fn answer(state: &State, question: &Question) -> Option<Answer> {
        state.answer(question.kind, state.claimant(question)?)
    }

    fn user(name: &str, uid: u32) -> Answer {
        Answer::User {
            name: name.into(),
            uid,
            gid: uid,
            gecos: b"A user".to_vec(),
            dir: b"/home/user".to_vec(),
            shell: b"/bin/sh".to_vec(),
        }
    }

    #[test]
    fn what_was_learnt_is_answered_and_is_in_the_next_snapshot_with_its_gaps() {
        let mut state = host(&["asked"]);
        let found = Image::full().user(1, "alice", 5001, 5001).unasked(2, "staff", 6000);
        state.learn(0, &found.groups_of(1, &[2]).records()).expect("well formed");
        let question = by_name(Kind::UserByName, "alice");
        assert_eq!(answer(&state, &question), Some(user("alice", 5001)));
        let gids = answer(&state, &by_name(Kind::GroupsOf, "alice"));
        assert_eq!(gids, Some(Answer::Gids(vec![6000])));
        let staff = state.claimant(&by_name(Kind::GroupByName, "staff")).expect("there");
        assert!(state.lacks_list(Kind::GroupByName, staff));
        let alice = state.claimant(&question).expect("there");
        assert!(!state.lacks_list(Kind::GroupsOf, alice));
        published(&mut state, |snapshot| {
            assert_eq!(snapshot.responder(), Some(&b"/run/roster/nss"[..]));
            let staff = snapshot.group_by_name(b"staff").expect("undamaged").expect("there");
            assert!(staff.members_unknown());
            let alice = snapshot.user_by_name(b"alice").expect("undamaged").expect("there");
            assert!(!alice.groups_unknown() && !alice.ask_first());
        });
    }

    #[test]
    fn a_group_is_asked_for_as_long_as_the_members_of_one_within_it_are_not_known() {
        let mut state = host(&["asked"]);
        let found = Image::full()
            .user(1, "alice", 5001, 5001)
            .group(2, "outer", 6002, &[3, 99])
            .group(3, "middle", 6003, &[4, 2])
            .unasked(4, "inner", 6004);
        take(&mut state, 0, found).expect("well formed");
        let question = by_name(Kind::GroupByName, "outer");
        published(&mut state, |snapshot| {
            for name in [&b"outer"[..], b"middle", b"inner"] {
                let group = snapshot.group_by_name(name).expect("undamaged").expect("there");
                assert!(group.members_unknown(), "{}", group.gid);
            }
        });
        let outer = state.claimant(&question).expect("there");
        assert!(state.lacks_list(Kind::GroupByName, outer));
        let found = Image::full().group(4, "inner", 6004, &[1]);
        state.learn(0, &found.records()).expect("well formed");
        assert!(!state.lacks_list(Kind::GroupByName, outer), "99 is nobody");
        let Some(Answer::Group { members, .. }) = answer(&state, &question) else {
            panic!("a group")
        };
        assert_eq!(members, [b"alice"]);
        published(&mut state, |snapshot| {
            let outer = snapshot.group_by_name(b"outer").expect("undamaged").expect("there");
            assert!(!outer.members_unknown());
        });
    }

    #[test]
    fn the_groups_of_a_user_leave_what_is_known_of_their_members_as_it_is() {
        let mut state = host(&["asked"]);
        let found = Image::full().user(1, "alice", 5001, 5001).group(2, "staff", 6000, &[1]);
        state.learn(0, &found.records()).expect("well formed");
        let staff = state.claimant(&by_name(Kind::GroupByName, "staff")).expect("there");
        state.learn(0, &Image::full().unasked(2, "staff", 6000).records()).expect("well formed");
        assert!(!state.lacks_list(Kind::GroupByName, staff));
        state.learn(0, &Image::full().unasked(2, "wheel", 6000).records()).expect("well formed");
        assert!(state.lacks_list(Kind::GroupByName, staff), "another group");
    }

    #[test]
    fn members_that_are_not_known_any_more_are_asked_for_and_not_answered() {
        let mut state = host(&["asked"]);
        let found = Image::full().user(1, "alice", 5001, 5001).group(2, "staff", 6000, &[1]);
        take(&mut state, 0, found).expect("well formed");
        let question = by_name(Kind::GroupByName, "staff");
        published(&mut state, |_| {});
        let staff = state.claimant(&question).expect("there");
        assert!(!state.lacks_list(Kind::GroupByName, staff));
        take(&mut state, 0, Image::changes(1).unasked(2, "staff", 6000)).expect("well formed");
        assert!(state.lacks_list(Kind::GroupByName, staff));
        published(&mut state, |snapshot| {
            let staff = snapshot.group_by_name(b"staff").expect("undamaged").expect("there");
            assert!(staff.members_unknown());
        });
    }

    #[test]
    fn numbers_of_another_process_of_the_back_end_are_not_believed() {
        let mut state = host(&["asked"]);
        assert!(state.is_of(0, 1).is_err(), "nothing was read yet");
        take(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
        assert_eq!(state.is_of(0, 1), Ok(()));
        assert!(state.is_of(0, 2).is_err(), "1 may be bob there");
    }

    #[test]
    fn who_is_refused_is_not_learnt() {
        let mut state = host(&["asked"]);
        let found = Image::full()
            .user(1, "root", 5001, 5001)
            .user(2, "mallory", 0, 5001)
            .user(3, "eve", 5003, 42)
            .unasked(4, "users", 6000)
            .unasked(5, "shadow", 42);
        state.learn(0, &found.records()).expect("well formed");
        for name in ["root", "mallory", "eve"] {
            assert_eq!(answer(&state, &by_name(Kind::UserByName, name)), None, "{name}");
        }
        for name in ["users", "shadow"] {
            assert_eq!(answer(&state, &by_name(Kind::GroupByName, name)), None, "{name}");
        }
        for id in [0, 42, 5001, 5003, 6000] {
            for kind in [Kind::UserByUid, Kind::GroupByGid] {
                let question = Question { kind, name: Vec::new(), id };
                assert_eq!(answer(&state, &question), None, "{kind:?} {id}");
            }
        }
    }

    #[test]
    fn an_entry_that_changed_is_not_answered_under_its_old_name_or_the_id_of_another() {
        let mut state = host(&["asked"]);
        let found = Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5002);
        state.learn(0, &found.records()).expect("well formed");
        let renamed = Image::full().user(2, "robert", 5001, 5002);
        state.learn(0, &renamed.records()).expect("well formed");
        assert_eq!(answer(&state, &by_name(Kind::UserByName, "bob")), None);
        assert_eq!(answer(&state, &by_name(Kind::UserByName, "robert")), None);
        let by_uid = Question { kind: Kind::UserByUid, name: Vec::new(), id: 5001 };
        assert_eq!(answer(&state, &by_uid), Some(user("alice", 5001)));
    }

    #[test]
    fn an_earlier_domain_takes_a_name_from_a_later_one_when_it_is_learnt() {
        let mut state = host(&["asked", "lab"]);
        take(&mut state, 1, Image::full().user(1, "alice", 7001, 7001)).expect("well formed");
        published(&mut state, |snapshot| {
            let alice = snapshot.user_by_name(b"alice").expect("undamaged").expect("there");
            assert!(alice.ask_first(), "the first domain may have an alice");
        });
        let question = by_name(Kind::UserByName, "alice");
        assert_eq!(state.claimant(&question), Some((1, 1)));
        let found = Image::full().user(1, "alice", 5001, 5001);
        state.learn(0, &found.records()).expect("well formed");
        assert_eq!(answer(&state, &question), Some(user("alice", 5001)));
        let by_uid = Question { kind: Kind::UserByUid, name: Vec::new(), id: 7001 };
        assert_eq!(answer(&state, &by_uid), None, "she has lost her name");
    }

    #[test]
    fn a_user_who_was_made_anew_has_the_name_at_once() {
        let mut state = host(&["asked"]);
        state.learn(0, &Image::full().user(1, "alice", 5001, 5001).records()).expect("well formed");
        let anew = Image::full().gone(1).user(2, "alice", 5001, 5001);
        state.learn(0, &anew.records()).expect("well formed");
        let question = by_name(Kind::UserByName, "alice");
        assert_eq!(answer(&state, &question), Some(user("alice", 5001)));
    }

    #[test]
    fn what_was_learnt_while_a_snapshot_was_made_is_still_known_after_it() {
        let mut state = host(&["asked"]);
        let made = state.begin().make().expect("an image");
        state.learn(0, &Image::full().user(1, "alice", 5001, 5001).records()).expect("well formed");
        state.published(made);
        let question = by_name(Kind::UserByName, "alice");
        assert_eq!(answer(&state, &question), Some(user("alice", 5001)));
    }

    #[test]
    fn a_later_domains_user_loses_to_ids_of_an_earlier_one_as_soon_as_they_are_known() {
        let mut state = host(&["asked", "lab"]);
        let lab = Image::full().user(1, "mallory", 5001, 7001).user(2, "eve", 7002, 6000);
        take(&mut state, 1, lab).expect("well formed");
        published(&mut state, |_| {});
        let mallory = by_name(Kind::UserByName, "mallory");
        let claimant = state.claimant(&mallory).expect("nobody else is known yet");
        let asked: Vec<_> = state.claims_of(claimant).into_iter().map(|q| (q.kind, q.id)).collect();
        let claims = [(Kind::UserByName, 0), (Kind::UserByUid, 5001), (Kind::GroupByGid, 7001)];
        assert_eq!(asked, claims);
        let found = Image::full().user(1, "alice", 5001, 5001).unasked(2, "admins", 6000);
        state.learn(0, &found.records()).expect("well formed");
        assert_eq!(answer(&state, &mallory), None, "5001 is alice's");
        assert_eq!(answer(&state, &by_name(Kind::UserByName, "eve")), None, "admins are not lab's");
    }

    #[test]
    fn the_hosts_own_accounts_are_nobody_elses_business() {
        let mut state = host(&["asked"]);
        for kind in [Kind::UserByName, Kind::GroupsOf, Kind::GroupByName] {
            assert_eq!(state.is_local(&by_name(kind, "root")), Ok(true), "{kind:?}");
        }
        assert_eq!(state.is_local(&by_name(Kind::UserByName, "alice")), Ok(false));
        state.locals = None;
        assert!(state.is_local(&by_name(Kind::UserByName, "alice")).is_err(), "nobody can tell");
    }

    #[test]
    fn members_and_groups_are_resolved_through_nested_groups() {
        let mut state = host(&["corp", "asked"]);
        let corp = Image::full()
            .user(1, "alice", 5001, 5001)
            .group(2, "inner", 6002, &[1, 3])
            .group(3, "outer", 6003, &[2]);
        take(&mut state, 0, corp).expect("well formed");
        published(&mut state, |_| {});
        let gids = answer(&state, &by_name(Kind::GroupsOf, "alice"));
        assert_eq!(gids, Some(Answer::Gids(vec![6002, 6003])));
        let Some(Answer::Group { members, .. }) =
            answer(&state, &by_name(Kind::GroupByName, "outer"))
        else {
            panic!("a group")
        };
        assert_eq!(members, [b"alice"]);
    }

    #[test]
    fn a_new_local_account_is_no_longer_answered_from_a_directory() {
        let mut state = host(&["asked"]);
        let found = Image::full().user(1, "alice", 5001, 5001);
        state.learn(0, &found.records()).expect("well formed");
        state.set_locals(locals(&[("alice", 1000)], &[]));
        assert_eq!(answer(&state, &by_name(Kind::UserByName, "alice")), None);
    }
}
