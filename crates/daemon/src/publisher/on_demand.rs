//! Look-ups in domains that are asked on demand. What a back-end finds goes the same way as
//! everything else: into the model, past `admit` and the claims of all domains, and only then into
//! the answer; the next snapshot has it too.
//!
//! Domains are asked in their order, and one that cannot be asked ends the look-up: were it passed
//! over, whoever has the name in a later domain could be its owner while the first is away. So are the
//! domains that go before asked about everybody whom an answer names: the members of a group and the
//! groups of a user are of one domain, and what is called so elsewhere is not meant. That is thousands of
//! questions, which go by the thousand to a back-end and by the hundred to its directory. Domains that go
//! behind have no say in any of that: that one of them cannot be asked is felt only by who is in none before it.

use super::Hub;
use super::learnt::Found;
use super::merge::Claimant;
use super::model::{Entry, Refused, Untold, User, record_number};
use super::state::{Forget, State};
use crate::hops::{self, Outcome, What};
use futures_util::{TryStreamExt, stream};
use roster_admission::Rules;
use roster_bus::coalesce::{Coalescer, Key};
use roster_bus::exchange::{Record, Records};
use roster_bus::interfaces::{self, BackendProxy, Kind, LOOK_UP_DEADLINE, LOOK_UPS_AT_ONCE, Trace};
use roster_bus::names::{BACKEND, Role};
use roster_config::Mode;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::RwLock;
use tokio::time::timeout;

/// Different questions to all back-ends together that may be in flight.
const IN_FLIGHT_MAX: usize = 256;
/// Names and ids that one domain is known not to have: a name, a uid and a gid for each member of two of
/// the largest groups that are asked for.
const ABSENT_MAX: usize = 65_536;
/// Calls with many questions that are made of one back-end at a time for one look-up.
const CALLS_AT_ONCE: usize = 4;
/// How often a look-up begins anew, for what it brought made its name or id another's.
const ROUNDS_MAX: usize = 3;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Question {
    pub(super) kind: Kind,
    pub(super) name: Vec<u8>,
    pub(super) id: u32,
}

impl Question {
    fn by_name(kind: Kind, name: &[u8]) -> Self {
        Self { kind, name: name.into(), id: 0 }
    }

    fn by_id(kind: Kind, id: u32) -> Self {
        Self { kind, name: Vec::new(), id }
    }

    /// Equal for equal questions, of one or of several behind each other.
    fn args(&self) -> Vec<u8> {
        let Self { kind, name, id } = self;
        [format!("{kind:?},{id},{},", name.len()).as_bytes(), name].concat()
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

type Asked = Result<Arc<Found>, Unavailable>;

/// The way to the back-ends that are asked.
pub(super) struct Asker {
    /// By position of the domain; none where everything is mirrored.
    back_ends: Vec<Option<BackEnd>>,
    in_flight: Coalescer<(u64, Asked)>,
    uid: u32,
}

struct BackEnd {
    domain: CString,
    role: Role,
    proxy: BackendProxy<'static>,
    absent: Mutex<Absent>,
}

impl Asker {
    /// Asks these; the durations are how long "no" is believed.
    pub(super) fn new(
        back_ends: impl Iterator<Item = Option<(String, BackendProxy<'static>, Duration)>>,
    ) -> Self {
        let back_end = |(domain, proxy, negative): (String, _, _)| {
            let absent = Mutex::new(Absent::new(negative));
            BackEnd { domain: hops::text(&domain), role: Role::Backend(domain), proxy, absent }
        };
        Self {
            back_ends: back_ends.map(|found| found.map(back_end)).collect(),
            in_flight: Coalescer::new(IN_FLIGHT_MAX),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// What a domain did not have it may have now.
    pub(super) fn forget_absent(&self, domain: usize) {
        if let Some(Some(back_end)) = self.back_ends.get(domain) {
            back_end.absent().forget();
        }
    }

    /// Asks one domain: the records it has, none when it has nothing, or is not to be asked.
    async fn ask(&self, request: u64, domain: usize, question: &Question) -> Asked {
        let Some(Some(back_end)) = self.back_ends.get(domain) else {
            return Ok(Arc::default());
        };
        if back_end.absent().knows(question, Instant::now()) {
            return Ok(Arc::default());
        }
        let Question { kind, name, id } = question.clone();
        let trace = Trace { request, call: hops::number() };
        hops::call_sent(trace, What::of(kind), &back_end.domain);
        let ask =
            async move |proxy: BackendProxy<'static>| proxy.look_up(trace, kind, &name, id).await;
        let (asked_at, asked) =
            self.call(back_end, "org.roster.Backend1.LookUp", question.args(), ask).await;
        hops::call_returned(trace, outcome(&asked));
        if asked.as_ref().is_ok_and(|found| found.records.is_empty()) {
            back_end.absent().note([question], asked_at, Instant::now());
        }
        asked
    }

    /// Those of the questions to which a domain is not known to have nothing.
    fn open(&self, domain: usize, questions: &[&Question]) -> Vec<Question> {
        match self.back_ends.get(domain) {
            Some(Some(back_end)) => back_end.absent().open(questions, Instant::now()),
            _ => Vec::new(),
        }
    }

    /// Asks one domain many questions with one call: the entries that it has, without lists.
    async fn ask_all(&self, request: u64, domain: usize, questions: Vec<Question>) -> Asked {
        let Some(Some(back_end)) = self.back_ends.get(domain) else {
            return Ok(Arc::default());
        };
        let args = questions.iter().flat_map(Question::args).collect();
        let sent = questions.clone();
        let trace = Trace { request, call: hops::number() };
        hops::call_sent(trace, What::SEVERAL, &back_end.domain);
        let ask = async move |proxy: BackendProxy<'static>| {
            let sent: Vec<_> = sent.iter().map(|sent| (sent.kind, &*sent.name, sent.id)).collect();
            proxy.look_up_all(trace, &sent).await
        };
        let (asked_at, asked) =
            self.call(back_end, "org.roster.Backend1.LookUpAll", args, ask).await;
        hops::call_returned(trace, outcome(&asked));
        let asked = asked?;
        let told = told(&asked.records);
        let untold = questions.iter().filter(|question| !told.contains(question));
        back_end.absent().note(untold, asked_at, Instant::now());
        Ok(asked)
    }

    /// Calls a back-end, unless an equal call is in flight. With the answer comes how much was new when it was
    /// asked.
    async fn call<F>(
        &self,
        back_end: &BackEnd,
        member: &'static str,
        args: Vec<u8>,
        request: impl FnOnce(BackendProxy<'static>) -> F,
    ) -> (u64, Asked)
    where
        F: Future<Output = Result<(u64, u64, Vec<u8>), interfaces::Error>> + Send + 'static,
    {
        let key = Key {
            uid: self.uid,
            message: "call",
            destination: back_end.role.bus_name(),
            member,
            path: back_end.role.path(),
            args,
        };
        debug_assert!(key.member.starts_with(BACKEND));
        let joined = |joined| {
            if joined {
                metrics::counter!("roster_coalesced_requests_total").increment(1);
            }
        };
        let request = || {
            let answer = request(back_end.proxy.clone());
            async move {
                match timeout(LOOK_UP_DEADLINE, answer).await {
                    Ok(Ok((epoch, sequence, records))) => {
                        Ok(Arc::new(Found { epoch, sequence, records }))
                    }
                    Ok(Err(error)) => Err(Unavailable(error.to_string())),
                    Err(_) => Err(late()),
                }
            }
        };
        let news = back_end.absent().news;
        let busy = |error: roster_bus::coalesce::Busy| (news, Err(Unavailable(error.to_string())));
        self.in_flight.ask_after(news, key, joined, request).await.unwrap_or_else(busy)
    }

    /// What a domain did not have it has now.
    fn forget_one(&self, domain: usize, question: &Question) {
        if let Some(Some(back_end)) = self.back_ends.get(domain) {
            back_end.absent().until.remove(question);
        }
    }
}

fn outcome(asked: &Asked) -> Outcome {
    Outcome::of(asked, |found| !found.records.is_empty())
}

fn late() -> Unavailable {
    Unavailable("the back-end did not answer in time".into())
}

/// The questions for an entry that these records answer.
fn told(records: &[u8]) -> HashSet<Question> {
    let told = Records::bare(records).flatten().flat_map(|record| match record {
        Record::User(user) => vec![
            Question::by_name(Kind::UserByName, user.name),
            Question::by_id(Kind::UserByUid, user.uid),
        ],
        Record::Group(group) => vec![
            Question::by_name(Kind::GroupByName, group.name),
            Question::by_id(Kind::GroupByGid, group.gid),
        ],
        Record::Gone { .. } | Record::GroupsOf { .. } => Vec::new(),
    });
    told.collect()
}

impl BackEnd {
    fn absent(&self) -> MutexGuard<'_, Absent> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a back-end said it does not have, and until when that is believed.
struct Absent {
    life: Duration,
    until: HashMap<Question, Instant>,
    /// Counts how often it may have got something.
    news: u64,
}

impl Absent {
    fn new(life: Duration) -> Self {
        Self { life, until: HashMap::new(), news: 0 }
    }

    fn knows(&self, question: &Question, now: Instant) -> bool {
        self.until.get(question).is_some_and(|until| now < *until)
    }

    /// Those that it is not known to have nothing to.
    fn open(&self, questions: &[&Question], now: Instant) -> Vec<Question> {
        let open = questions.iter().copied().filter(|question| !self.knows(question, now));
        open.cloned().collect()
    }

    /// Remembers what it said, unless it may have got something since it was asked.
    fn note<'q>(
        &mut self,
        questions: impl IntoIterator<Item = &'q Question>,
        asked_at: u64,
        now: Instant,
    ) {
        if self.news != asked_at {
            return;
        }
        for question in questions {
            if self.until.len() >= ABSENT_MAX {
                self.until.retain(|_, until| now < *until);
            }
            if self.until.len() >= ABSENT_MAX {
                return;
            }
            self.until.insert(question.clone(), now + self.life);
        }
    }

    /// It may have anything.
    fn forget(&mut self) {
        self.news += 1;
        self.until.clear();
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

    /// Asks one domain for many entries, and takes in those that it has, without their lists. All of
    /// them are asked for, or it is an error.
    fn ask_all(
        &self,
        domain: usize,
        questions: &[&Question],
    ) -> impl Future<Output = Result<(), Unavailable>> + Send;
}

/// What is learnt for one request of a program.
pub(super) struct Inquiry<'a> {
    pub(super) hub: &'a Hub,
    /// Its number.
    pub(super) request: u64,
}

impl Directories for Inquiry<'_> {
    fn state(&self) -> &RwLock<State> {
        &self.hub.state
    }

    async fn ask(&self, domain: usize, question: &Question) -> Result<(), Unavailable> {
        let Self { hub, request } = *self;
        if hub.state.read().await.owner(question).is_some_and(|(owner, _)| owner == domain) {
            // It came to be known otherwise, and what is asked for is its list.
            hub.asker.forget_one(domain, question);
        }
        let found = hub.asker.ask(request, domain, question).await?;
        learn(hub, domain, &found).await
    }

    async fn ask_all(&self, domain: usize, questions: &[&Question]) -> Result<(), Unavailable> {
        let Self { hub, request } = *self;
        let open = hub.asker.open(domain, questions);
        let calls = open.chunks(LOOK_UPS_AT_ONCE).map(|questions| {
            let questions = questions.to_vec();
            Ok(async move {
                let found = hub.asker.ask_all(request, domain, questions).await?;
                learn(hub, domain, &found).await
            })
        });
        let calls = stream::iter(calls.collect::<Vec<_>>());
        let calls = calls.try_buffer_unordered(CALLS_AT_ONCE).try_collect::<()>();
        timeout(LOOK_UP_DEADLINE, calls).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Answers a question, asking whom it must.
pub(super) async fn look_up(
    directories: &impl Directories,
    question: &Question,
) -> Result<Answer, Unavailable> {
    if directories.state().read().await.is_local(question)? {
        return Ok(Answer::Absent);
    }
    for _ in 0..ROUNDS_MAX {
        if let Some(answer) = try_look_up(directories, question).await? {
            return Ok(answer);
        }
    }
    Err(Unavailable("the entry changed while it was asked for".into()))
}

/// The same; `None` when what was brought on the way made the name or id another's, or gave its owner
/// others, about which nobody was asked.
async fn try_look_up(
    directories: &impl Directories,
    question: &Question,
) -> Result<Option<Answer>, Unavailable> {
    let state = directories.state();
    // Whose groups is found out by the name first: the question then goes to that domain alone.
    let by_name = match question.kind {
        Kind::GroupsOf => Question { kind: Kind::UserByName, ..question.clone() },
        _ => question.clone(),
    };
    let Some(claimant) = find(directories, &by_name).await? else {
        return Ok(Some(Answer::Absent));
    };
    let claims = state.read().await.claims_of(claimant);
    let others: Vec<Question> = claims.iter().filter(|claim| **claim != by_name).cloned().collect();
    ask_earlier(directories, claimant.0, &others).await?;
    if state.read().await.lacks_list(question.kind, claimant) {
        directories.ask(claimant.0, question).await?;
    }
    let (named, changes) = {
        let state = state.read().await;
        (state.claims_of_named(question.kind, claimant), state.changes)
    };
    ask_earlier(directories, claimant.0, &named).await?;
    let state = state.read().await;
    let names_others = || {
        let asked: HashSet<&Question> = named.iter().collect();
        state.claims_of_named(question.kind, claimant).iter().any(|one| !asked.contains(one))
    };
    let is_another = state.claimant(&by_name) != Some(claimant)
        || state.claims_of(claimant) != claims
        || state.changes != changes && names_others();
    if is_another {
        return Ok(None);
    }
    if state.lacks_list(question.kind, claimant) {
        return Err(Unavailable("the directory did not say who belongs to it".into()));
    }
    Ok(state.answer(question.kind, claimant))
}

/// Whose domain a user is served from, and under which uid.
pub(super) async fn find_user(
    directories: &impl Directories,
    name: &[u8],
) -> Result<Option<(String, u32)>, Unavailable> {
    if let Some(found) = directories.state().read().await.mirrored_user(name) {
        return found;
    }
    let question = Question::by_name(Kind::UserByName, name);
    let Answer::User { uid, .. } = look_up(directories, &question).await? else { return Ok(None) };
    let state = directories.state().read().await;
    // Between the two the name may have become another's: of whom the uid is not.
    let owner = state.claimant(&question).map(|(position, _)| state.domains[position].name.clone());
    Ok(owner.map(|domain| (domain, uid)))
}

/// Who has the name or id, after every domain that goes before was asked for it. That nobody has it all
/// domains have to say.
async fn find(
    directories: &impl Directories,
    question: &Question,
) -> Result<Option<Claimant>, Unavailable> {
    let state = directories.state();
    let domains = state.read().await.domains.len();
    for domain in 0..domains {
        let known = state.read().await;
        if known.owner(question).is_some_and(|(owner, _)| owner <= domain) {
            break;
        }
        known.is_there(domain)?;
        if known.can_have(domain, question) {
            drop(known);
            directories.ask(domain, question).await?;
        }
    }
    let known = state.read().await;
    known.is_decided(question)?;
    Ok(known.claimant(question))
}

/// Asks the domains that go before that position whether names and ids are somebody's there.
async fn ask_earlier(
    directories: &impl Directories,
    position: usize,
    questions: &[Question],
) -> Result<(), Unavailable> {
    for domain in 0..position {
        let open: Vec<&Question> = {
            let known = directories.state().read().await;
            questions.iter().filter(|question| known.is_open(domain, question)).collect()
        };
        if !open.is_empty() {
            directories.ask_all(domain, &open).await?;
        }
    }
    Ok(())
}

/// Takes records in and has the next snapshot show them.
async fn learn(hub: &Hub, domain: usize, found: &Arc<Found>) -> Result<(), Unavailable> {
    if found.records.is_empty() {
        return Ok(());
    }
    let mut state = hub.state.write().await;
    state.is_of(domain, found.epoch)?;
    let learnt = state.learn(domain, found);
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

    /// The same where everything is mirrored, `None` where it is not. There are no claims to go by then: the entries
    /// are gone through, and what was refused at the last publication is.
    fn mirrored_user(&self, name: &[u8]) -> Option<Result<Option<(String, u32)>, Unavailable>> {
        if self.domains.iter().any(|domain| domain.mode == Mode::OnDemand) {
            return None;
        }
        match self.is_local(&Question::by_name(Kind::UserByName, name)) {
            Ok(false) => {}
            Ok(true) => return Some(Ok(None)),
            Err(unavailable) => return Some(Err(unavailable)),
        }
        let locals = self.locals.as_ref()?;
        for (position, domain) in self.domains.iter().enumerate() {
            if let Err(unavailable) = self.is_there(position) {
                return Some(self.served_before(position, name).map(Some).ok_or(unavailable));
            }
            let called_so = domain.entries.users().filter(|(_, user)| user.name() == name);
            let mut admitted =
                called_so.filter(|&(_, user)| domain.rules.user(user, locals).is_ok()).peekable();
            if admitted.peek().is_none() {
                continue;
            }
            // The name is this domain's, whether it is served or not.
            let served = admitted.find(|(number, user)| {
                self.gid_of(position, Entry::User(user)).is_ok()
                    && !domain.refused.iter().any(|(refused, _)| refused == number)
            });
            return Some(Ok(served.map(|(_, user)| (domain.name.clone(), user.uid))));
        }
        Some(Ok(None))
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

    /// Whether it is known whose the name or id is: behind a domain that is as it was it is not of anybody new,
    /// see `restored`.
    fn is_decided(&self, question: &Question) -> Result<(), Unavailable> {
        let Some((position, number)) = self.owner(question) else { return Ok(()) };
        let Some(entry) = self.domains[position].entries.entry(number) else { return Ok(()) };
        match self.gid_of(position, entry) {
            Ok(_) => Ok(()),
            Err(restored) => Err(Unavailable(format!(
                "nobody new is served behind domain {restored}, of which nothing can be taken in"
            ))),
        }
    }

    /// Whether a domain may have what is asked for: an id that its rules shut out is nobody's there, and no
    /// directory has to be asked.
    fn can_have(&self, domain: usize, question: &Question) -> bool {
        let Rules { min_id, max_id, .. } = &self.domains[domain].rules;
        match question.kind {
            Kind::UserByUid | Kind::GroupByGid => (*min_id..=*max_id).contains(&question.id),
            Kind::UserByName | Kind::GroupByName | Kind::GroupsOf => true,
        }
    }

    /// Whether a domain has to be asked, for nobody is known who has the name or id there or in a domain
    /// that goes before it.
    fn is_open(&self, domain: usize, question: &Question) -> bool {
        self.domains[domain].mode == Mode::OnDemand
            && self.can_have(domain, question)
            && self.owner(question).is_none_or(|(owner, _)| domain < owner)
    }

    /// Whether any domain that goes before that position is asked on demand.
    fn is_behind_asked(&self, position: usize) -> bool {
        self.domains[..position].iter().any(|domain| domain.mode == Mode::OnDemand)
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
        match self.served(claimant) {
            Some(entry @ Entry::User(user)) => vec![
                Question::by_name(Kind::UserByName, user.name()),
                Question::by_id(Kind::UserByUid, user.uid),
                Question::by_id(
                    Kind::GroupByGid,
                    self.gid_of(claimant.0, entry).unwrap_or(user.gid),
                ),
            ],
            Some(Entry::Group(group)) => vec![
                Question::by_name(Kind::GroupByName, &group.name),
                Question::by_id(Kind::GroupByGid, group.gid),
            ],
            None => Vec::new(),
        }
    }

    /// The same, each once, for all whom an answer would name: a group's members, a user's groups. None
    /// where nobody else has a say in that.
    fn claims_of_named(&self, kind: Kind, claimant: Claimant) -> Vec<Question> {
        let position = claimant.0;
        if !self.is_behind_asked(position) {
            return Vec::new();
        }
        let named = match (kind, self.served(claimant)) {
            (Kind::GroupsOf, Some(Entry::User(user))) => self.groups_of(position, user),
            (Kind::GroupByName | Kind::GroupByGid, Some(Entry::Group(_))) => {
                self.members_of(claimant)
            }
            _ => Vec::new(),
        };
        // Of all these only gids can be those of several.
        let mut gids = HashSet::new();
        let claims = named.into_iter().flat_map(|number| self.claims_of((position, number)));
        claims.filter(|claim| claim.kind != Kind::GroupByGid || gids.insert(claim.id)).collect()
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

    /// The entry, if it is admitted and has both its name and its id for itself, as far as is known.
    fn served(&self, claimant: Claimant) -> Option<Entry<'_>> {
        let (position, number) = claimant;
        let domain = self.domains.get(position)?;
        let locals = self.locals.as_ref()?;
        let entry = domain.entries.entry(number)?;
        self.gid_of(position, entry).ok()?;
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
    /// nothing of it is new: what was fetched of its state or a later one has all of it, as it is there
    /// or as it became since.
    pub(super) fn learn(
        &mut self,
        position: usize,
        found: &Arc<Found>,
    ) -> Result<Option<Forget>, Refused> {
        let domain = &mut self.domains[position];
        if found.sequence <= domain.entries.sequence {
            return Ok(None);
        }
        let forget = domain.forget(Records::bare(&found.records).flatten(), Untold::Stays);
        let mut learnt = std::mem::take(&mut domain.learnt);
        // An answer that newer ones have overtaken goes below them.
        let newer = learnt.records_after(found.sequence);
        let records = Records::bare(&found.records).chain(newer);
        let numbers: Vec<u32> =
            records.clone().flatten().map(|record| record_number(&record)).collect();
        let is_new = self.change(position, &numbers, |entries| entries.learn(records));
        if is_new.is_ok() {
            learnt.add(found);
        }
        self.domains[position].learnt = learnt;
        Ok(is_new?.then_some(forget))
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
                gid: self.gid_of(claimant.0, Entry::User(user)).ok()?,
                gecos: user.gecos().into(),
                dir: user.dir().into(),
                shell: user.shell().into(),
            },
            Entry::Group(group) => Answer::Group {
                name: group.name.to_vec(),
                gid: group.gid,
                members: self.names_of(claimant.0, self.members_of(claimant)),
            },
        })
    }

    fn names_of(&self, position: usize, users: Vec<u32>) -> Vec<Vec<u8>> {
        let entries = &self.domains[position].entries;
        let name = |number| match entries.entry(number) {
            Some(Entry::User(user)) => Some(user.name().to_owned()),
            _ => None,
        };
        users.into_iter().filter_map(name).collect()
    }

    /// Numbers of the users in a group and in the groups within it.
    fn members_of(&self, (position, group): Claimant) -> Vec<u32> {
        let entries = &self.domains[position].entries;
        // What many entries have in common is looked at once, however often it is listed.
        let (mut groups, mut seen, mut told) =
            (vec![group], HashSet::from([group]), HashSet::new());
        let mut members = Vec::new();
        while let Some(number) = groups.pop() {
            let Some(Entry::Group(group)) = entries.entry(number) else { continue };
            for &reference in group.references().iter().filter(|&&reference| told.insert(reference))
            {
                let Some(number) = self.meant(position, reference) else { continue };
                if !seen.insert(number) {
                    continue;
                }
                match entries.entry(number) {
                    Some(Entry::User(_)) => members.push(number),
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

    fn gids_of(&self, position: usize, user: &User) -> Vec<u32> {
        let gid = |number| match self.domains[position].entries.entry(number) {
            Some(Entry::Group(group)) => Some(group.gid),
            _ => None,
        };
        self.groups_of(position, user).into_iter().filter_map(gid).collect()
    }

    /// Numbers of the user's groups that are served: of those that the directory named or, where
    /// everything is mirrored, of those that list the user or a group that does.
    fn groups_of(&self, position: usize, user: &User) -> Vec<u32> {
        let domain = &self.domains[position];
        let is_served =
            |number: &u32| matches!(self.served((position, *number)), Some(Entry::Group(_)));
        if domain.mode == Mode::OnDemand {
            return user.groups.iter().flatten().copied().filter(is_served).collect();
        }
        let (mut groups, mut told) = (BTreeSet::new(), HashSet::from(user.references));
        let mut references = user.references.to_vec();
        while let Some(reference) = references.pop() {
            for &number in domain.entries.listed_by(reference) {
                if groups.insert(number)
                    && let Some(Entry::Group(group)) = domain.entries.entry(number)
                    && told.insert(group.reference)
                {
                    references.push(group.reference);
                }
            }
        }
        groups.into_iter().filter(is_served).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::Taken;
    use super::super::tests::{Image, host, learn, locals, published, restored, succeeded, take};
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
    fn a_back_end_that_may_have_got_something_since_it_was_asked_is_asked_again() {
        let now = Instant::now();
        let question = by_name(Kind::UserByName, "zoe");
        let life = Duration::from_secs(15);
        let mut absent = Absent::new(life);
        absent.note([&question], absent.news, now);
        assert!(absent.knows(&question, now) && !absent.knows(&question, now + life));
        let asked_at = absent.news;
        absent.forget();
        assert!(!absent.knows(&question, now));
        absent.note([&question], asked_at, now);
        assert!(!absent.knows(&question, now), "the answer is older than the news");
    }

    #[test]
    fn what_was_learnt_is_answered_and_is_in_the_next_snapshot_with_its_gaps() {
        let mut state = host(&["asked"]);
        let found = Image::full().user(1, "alice", 5001, 5001).unasked(2, "staff", 6000);
        learn(&mut state, 0, found.groups_of(1, &[2])).expect("well formed");
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
        learn(&mut state, 0, found).expect("well formed");
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
        learn(&mut state, 0, found).expect("well formed");
        let staff = state.claimant(&by_name(Kind::GroupByName, "staff")).expect("there");
        learn(&mut state, 0, Image::full().unasked(2, "staff", 6000)).expect("well formed");
        assert!(!state.lacks_list(Kind::GroupByName, staff));
        learn(&mut state, 0, Image::full().unasked(2, "riders", 6000)).expect("well formed");
        assert!(state.lacks_list(Kind::GroupByName, staff), "another group");
    }

    #[test]
    fn lists_that_name_somebody_who_was_renamed_are_asked_for() {
        let mut state = host(&["asked"]);
        let found = Image::full()
            .user(1, "alice", 5001, 5001)
            .group(2, "staff", 6000, &[1])
            .group(3, "all", 6001, &[2])
            .group(4, "others", 6002, &[9]);
        take(&mut state, 0, found).expect("well formed");
        let lacks = |state: &State, name: &str| {
            let question = by_name(Kind::GroupByName, name);
            state.lacks_list(Kind::GroupByName, state.claimant(&question).expect("there"))
        };
        assert!(["staff", "all", "others"].iter().all(|name| !lacks(&state, name)));
        let alicia = || Image::full().user_named_by(1, 7, "alicia", 5001);
        learn(&mut state, 0, alicia()).expect("well formed");
        assert_eq!(["staff", "all", "others"].map(|name| lacks(&state, name)), [true, true, false]);
        // Where the directory goes on naming her so, the list is what it says.
        let staff = alicia().group(2, "staff", 6000, &[1]);
        learn(&mut state, 0, staff).expect("well formed");
        assert!(!lacks(&state, "staff"));
    }

    /// A directory in which everything is told by one answer to whatever is asked.
    struct Telling {
        state: RwLock<State>,
        tells: Arc<Found>,
    }

    impl Directories for Telling {
        fn state(&self) -> &RwLock<State> {
            &self.state
        }

        async fn ask(&self, domain: usize, _: &Question) -> Result<(), Unavailable> {
            let mut state = self.state.write().await;
            if state.domains[domain].mode == Mode::Replicate {
                return Ok(());
            }
            let learnt = state.learn(domain, &self.tells);
            learnt.map(drop).map_err(|error| Unavailable(error.to_string()))
        }

        async fn ask_all(&self, _: usize, _: &[&Question]) -> Result<(), Unavailable> {
            unreachable!("one domain is asked")
        }
    }

    #[tokio::test]
    async fn a_name_that_went_to_another_while_it_was_asked_for_is_the_others() {
        let mut state = host(&["asked"]);
        let alice = || Image::full().user(1, "alice", 5001, 5001);
        let before = alice().unasked(2, "team", 6000).unasked(3, "team-all", 6001);
        take(&mut state, 0, before).expect("well formed");
        let after = alice().group(2, "team-core", 6000, &[1]).group(3, "team", 6001, &[2]);
        let directory = Telling { state: RwLock::new(state), tells: after.found(3) };
        let team = by_name(Kind::GroupByName, "team");
        let name = |name: &str| name.as_bytes().to_vec();
        let members = vec![name("alice")];
        let team_now = Answer::Group { name: name("team"), gid: 6001, members };
        assert_eq!(look_up(&directory, &team).await, Ok(team_now));
        let gone = by_name(Kind::GroupByName, "team-all");
        assert_eq!(look_up(&directory, &gone).await, Ok(Answer::Absent));
    }

    #[tokio::test]
    async fn a_later_domain_that_was_not_read_keeps_nobody_of_an_earlier_one_waiting() {
        let alice = Image::full().user(1, "alice", 5001, 5001).group(2, "staff", 6000, &[1]);
        let tells = alice.groups_of(1, &[2]).found(3);
        let directory = Telling { state: RwLock::new(host(&["asked", "lab"])), tells };
        let staff = |members| Answer::Group { name: b"staff".to_vec(), gid: 6000, members };
        let by_id = Question::by_id(Kind::UserByUid, 5001);
        assert_eq!(look_up(&directory, &by_id).await, Ok(user("alice", 5001)));
        for (question, wanted) in [
            (by_name(Kind::UserByName, "alice"), user("alice", 5001)),
            (by_name(Kind::GroupsOf, "alice"), Answer::Gids(vec![6000])),
            (by_name(Kind::GroupByName, "staff"), staff(vec![b"alice".to_vec()])),
        ] {
            assert_eq!(look_up(&directory, &question).await, Ok(wanted), "{question:?}");
        }
        // Whoever the first has not may be the other's.
        let not_read = Err(Unavailable("domain lab was not read yet".into()));
        for kind in [Kind::UserByName, Kind::GroupByName, Kind::GroupsOf] {
            assert_eq!(look_up(&directory, &by_name(kind, "carol")).await, not_read);
        }
    }

    #[test]
    fn log_in_before_domains_are_read_follows_snapshot() {
        let mut state = host(&["corp", "lab"]);
        // Two of one uid: the second is not served.
        let corp = Image::full().user(1, "alice", 5001, 5001).user(2, "zed", 5001, 5001);
        take(&mut state, 0, corp).expect("well formed");
        take(&mut state, 1, Image::full().user(1, "bob", 7001, 7001)).expect("well formed");
        let mut anew = succeeded(&state, &["corp", "lab"]);
        let user = |domain: &str, uid| Some(Ok(Some((domain.to_owned(), uid))));
        assert_eq!(anew.mirrored_user(b"alice"), user("corp", 5001));
        assert_eq!(anew.mirrored_user(b"bob"), user("lab", 7001), "behind one that is not read");
        for name in [&b"zed"[..], b"newcomer"] {
            let not_read = Err(Unavailable("domain corp was not read yet".into()));
            assert_eq!(anew.mirrored_user(name), Some(not_read));
        }
        // What was read counts.
        take(&mut anew, 0, Image::full().user(1, "alice", 5005, 5005)).expect("well formed");
        assert_eq!(anew.mirrored_user(b"alice"), user("corp", 5005));
        assert_eq!(anew.mirrored_user(b"bob"), user("lab", 7001));
        anew.set_locals(locals(&[("root", 0), ("robert", 7001)], &[]));
        let not_read = Err(Unavailable("domain lab was not read yet".into()));
        assert_eq!(anew.mirrored_user(b"bob"), Some(not_read), "the host has the uid");
    }

    #[tokio::test]
    async fn behind_a_domain_that_is_as_it_was_whoever_was_served_is_answered_for() {
        let mut state = host(&["corp", "asked"]);
        let corp = Image::full().user(1, "alice", 5001, 5001).user(2, "zed", 5001, 5001);
        take(&mut state, 0, corp.group(3, "riders", 6000, &[1])).expect("well formed");
        let bob = Image::full().user(1, "bob", 7001, 7001).group(4, "team", 7500, &[1, 2]);
        take(&mut state, 1, bob.groups_of(1, &[4])).expect("well formed");
        let mut anew = succeeded(&state, &["corp", "asked"]);
        restored(&mut anew, 0).expect("undamaged");
        let tells = Image::full().user(1, "bob", 7001, 7600).user(2, "zed", 7002, 7002);
        let tells = tells.user(3, "newcomer", 7003, 7003).user(6, "alice", 7004, 7004);
        let tells = tells.group(4, "team", 7500, &[1, 2]).groups_of(1, &[4]).found(3);
        let directory = Telling { state: RwLock::new(anew), tells };
        let group = |name: &[u8], gid, member: &[u8]| Answer::Group {
            name: name.into(),
            gid,
            members: vec![member.into()],
        };
        for (question, wanted) in [
            (by_name(Kind::UserByName, "alice"), user("alice", 5001)),
            // With the primary gid that he had: the new one may be corp's.
            (by_name(Kind::UserByName, "bob"), user("bob", 7001)),
            (by_name(Kind::GroupsOf, "bob"), Answer::Gids(vec![7500])),
            (by_name(Kind::GroupByName, "team"), group(b"team", 7500, b"bob")),
            (by_name(Kind::GroupByName, "riders"), group(b"riders", 6000, b"alice")),
            (by_name(Kind::UserByName, "nobody-there"), Answer::Absent),
        ] {
            assert_eq!(look_up(&directory, &question).await, Ok(wanted), "{question:?}");
        }
        for name in ["zed", "newcomer"] {
            let answer = look_up(&directory, &by_name(Kind::UserByName, name)).await;
            assert!(matches!(&answer, Err(Unavailable(why)) if why.contains("corp")), "{answer:?}");
        }
    }

    /// A directory that has nobody, and puts down what it was asked.
    struct Empty {
        state: RwLock<State>,
        asked: Mutex<Vec<Question>>,
    }

    impl Directories for Empty {
        fn state(&self) -> &RwLock<State> {
            &self.state
        }

        async fn ask(&self, domain: usize, question: &Question) -> Result<(), Unavailable> {
            assert_eq!(domain, 0, "the other is mirrored");
            self.asked.lock().expect("whole").push(question.clone());
            Ok(())
        }

        async fn ask_all(&self, domain: usize, questions: &[&Question]) -> Result<(), Unavailable> {
            assert_eq!(domain, 0, "the other is mirrored");
            self.asked.lock().expect("whole").extend(questions.iter().copied().cloned());
            Ok(())
        }
    }

    #[tokio::test]
    async fn an_earlier_domain_is_not_asked_for_ids_that_it_cannot_have() {
        for (max_id, asked_for_ids) in [(9999, true), (4999, false)] {
            let mut state = host(&["asked", "lab"]);
            state.domains[0].rules.max_id = max_id;
            let lab = Image::full().user(1, "alice", 5001, 5002).group(2, "staff", 6000, &[1]);
            take(&mut state, 1, lab).expect("well formed");
            let asked = Mutex::default();
            let directory = Empty { state: RwLock::new(state), asked };
            let groups = by_name(Kind::GroupsOf, "alice");
            assert_eq!(look_up(&directory, &groups).await, Ok(Answer::Gids(vec![6000])));
            let asked = directory.asked.into_inner().expect("whole");
            assert_eq!(
                asked[0],
                by_name(Kind::UserByName, "alice"),
                "she may be somebody else there"
            );
            let (ids, names): (Vec<_>, Vec<_>) =
                asked[1..].iter().partition(|question| question.name.is_empty());
            assert_eq!(names, [&by_name(Kind::GroupByName, "staff")]);
            let mut ids: Vec<u32> = ids.iter().map(|question| question.id).collect();
            ids.sort_unstable();
            assert_eq!(ids, if asked_for_ids { vec![5001, 5002, 6000] } else { vec![] });
        }
    }

    /// Whoever goes over all of them for each of them does not end.
    #[test]
    fn a_reference_that_very_many_share_is_gone_over_once() {
        const MANY: u32 = 200_000;
        let mut state = host(&["asked"]);
        let name = |number| format!("u{number}");
        let all = 1..=MANY;
        let group = MANY + 1;
        let shared = all.clone().fold(Image::full(), |image, number| {
            image.user_named_by(number, group + 1, &name(number), 10_000 + number)
        });
        let list = vec![group + 1; MANY as usize];
        learn(&mut state, 0, shared.group(group, "all", 6000, &list)).expect("well formed");
        let question = by_name(Kind::GroupByName, "all");
        assert!(!state.lacks_list(Kind::GroupByName, (0, group)));
        let members = Vec::new();
        let nobody = Answer::Group { name: b"all".to_vec(), gid: 6000, members };
        assert_eq!(answer(&state, &question), Some(nobody), "of many users none is meant");
        let apart = all.fold(Image::full(), |image, number| {
            image.user(number, &name(number), 10_000 + number, 10_000 + number)
        });
        let forget = state.learn(0, &apart.found(9)).expect("well formed").expect("news");
        assert!(forget.all && forget.users.is_empty());
        assert_eq!(uid(&state, "u7"), Some(10_007));
    }

    #[test]
    fn an_answer_that_was_overtaken_renames_nobody_back() {
        let mut state = host(&["asked"]);
        let alice = || Image::full().user(1, "alice", 5001, 5001);
        take(&mut state, 0, alice().group(2, "staff", 6000, &[7])).expect("well formed");
        let alicia = Image::full().user_named_by(1, 7, "alicia", 5001);
        state.learn(0, &alicia.found(3)).expect("well formed");
        state.learn(0, &alice().found(2)).expect("well formed");
        let question = by_name(Kind::GroupByName, "staff");
        let staff = state.claimant(&question).expect("there");
        assert!(!state.lacks_list(Kind::GroupByName, staff));
        let Some(Answer::Group { members, .. }) = answer(&state, &question) else {
            panic!("a group")
        };
        assert_eq!(members, [b"alicia"]);
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
        learn(&mut state, 0, found).expect("well formed");
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
        learn(&mut state, 0, found).expect("well formed");
        let renamed = Image::full().user(2, "robert", 5001, 5002);
        learn(&mut state, 0, renamed).expect("well formed");
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
        learn(&mut state, 0, found).expect("well formed");
        assert_eq!(answer(&state, &question), Some(user("alice", 5001)));
        let by_uid = Question { kind: Kind::UserByUid, name: Vec::new(), id: 7001 };
        assert_eq!(answer(&state, &by_uid), None, "she has lost her name");
    }

    #[test]
    fn a_user_who_was_made_anew_has_the_name_at_once() {
        let mut state = host(&["asked"]);
        learn(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
        let anew = Image::full().gone(1).user(2, "alice", 5001, 5001);
        learn(&mut state, 0, anew).expect("well formed");
        let question = by_name(Kind::UserByName, "alice");
        assert_eq!(answer(&state, &question), Some(user("alice", 5001)));
    }

    #[test]
    fn what_was_learnt_while_a_snapshot_was_made_is_still_known_after_it() {
        let mut state = host(&["asked"]);
        let made = state.begin().make().expect("an image");
        learn(&mut state, 0, Image::full().user(1, "alice", 5001, 5001)).expect("well formed");
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
        learn(&mut state, 0, found).expect("well formed");
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
        learn(&mut state, 0, found).expect("well formed");
        state.set_locals(locals(&[("alice", 1000)], &[]));
        assert_eq!(answer(&state, &by_name(Kind::UserByName, "alice")), None);
    }

    fn uid(state: &State, name: &str) -> Option<u32> {
        match answer(state, &by_name(Kind::UserByName, name)) {
            Some(Answer::User { uid, .. }) => Some(uid),
            _ => None,
        }
    }

    #[test]
    fn an_answer_that_is_older_than_what_was_fetched_brings_nothing_back() {
        let mut state = host(&["asked"]);
        let old = || Image::full().user(1, "alice", 5001, 5001).user(2, "bob", 5002, 5002);
        take(&mut state, 0, old()).expect("well formed");
        // On their way since the first state.
        let [first, second] = [1, 2].map(|sequence| old().found(sequence));
        let changes = Image::changes(1).user(1, "alice", 6001, 5001).gone(2);
        take(&mut state, 0, changes).expect("well formed");
        for answer in [first, second] {
            assert_eq!(state.learn(0, &answer), Ok(None));
            assert_eq!((uid(&state, "alice"), uid(&state, "bob")), (Some(6001), None));
        }
    }

    #[test]
    fn what_was_fetched_before_an_answer_takes_nothing_of_it_back() {
        let mut state = host(&["asked"]);
        let user = |uid| Image::full().user(1, "alice", uid, 5001);
        take(&mut state, 0, user(5001)).expect("well formed");
        let answer = user(7001).user(2, "bob", 5002, 5002).found(4);
        state.learn(0, &answer).expect("well formed");
        take(&mut state, 0, Image::changes(1).user(1, "alice", 6001, 5001)).expect("well formed");
        assert_eq!((uid(&state, "alice"), uid(&state, "bob")), (Some(7001), Some(5002)));
        let by_uid = Question { kind: Kind::UserByUid, name: Vec::new(), id: 6001 };
        assert_eq!(state.claimant(&by_uid), None);
        take(&mut state, 0, user(6001).leads_to(3)).expect("well formed");
        assert_eq!((uid(&state, "alice"), uid(&state, "bob")), (Some(7001), Some(5002)));
        // That one has it, and the next are newer.
        take(&mut state, 0, user(7001).leads_to(4)).expect("well formed");
        assert_eq!((uid(&state, "alice"), uid(&state, "bob")), (Some(7001), None));
        take(&mut state, 0, Image::changes(4).user(1, "alice", 8001, 5001)).expect("well formed");
        assert_eq!(uid(&state, "alice"), Some(8001));
    }

    #[test]
    fn what_a_look_up_brought_is_no_news_when_it_is_fetched() {
        let mut state = host(&["asked"]);
        take(&mut state, 0, Image::full()).expect("well formed");
        let many = || {
            let user = |image: Image, n| image.user(n, &format!("u{n}"), 5000 + n, 5000);
            (0..200).fold(Image::changes(1), user).group(200, "staff", 7000, &[1, 2])
        };
        learn(&mut state, 0, many()).expect("well formed");
        assert_eq!(take(&mut state, 0, many()), Ok(Taken::Changes(Forget::default())));
        let next = Image::changes(2).user(7, "u7", 6007, 5000).user(8, "u8", 5008, 5000);
        let forget = Forget { users: vec![b"u7".to_vec()], ..Forget::default() };
        assert_eq!(take(&mut state, 0, next), Ok(Taken::Changes(forget)));
    }

    #[test]
    fn of_answers_that_overtake_each_other_the_newest_counts() {
        let mut state = host(&["asked"]);
        take(&mut state, 0, Image::full()).expect("well formed");
        for (sequence, id, seen) in [(3, 5003, 5003), (2, 5002, 5003), (4, 5004, 5004)] {
            let answer = Image::full().user(1, "alice", id, 5001).found(sequence);
            state.learn(0, &answer).expect("well formed");
            assert_eq!(uid(&state, "alice"), Some(seen));
        }
        take(&mut state, 0, Image::changes(1)).expect("well formed");
        assert_eq!(uid(&state, "alice"), Some(5004));
    }

    #[test]
    fn answers_of_another_process_of_the_back_end_do_not_outlive_it() {
        let mut state = host(&["asked"]);
        take(&mut state, 0, Image::full()).expect("well formed");
        let answer = Image::full().user(1, "alice", 5001, 5001).found(9);
        state.learn(0, &answer).expect("well formed");
        take(&mut state, 0, Image::full().of_process(2)).expect("well formed");
        assert_eq!(uid(&state, "alice"), None);
    }
}
