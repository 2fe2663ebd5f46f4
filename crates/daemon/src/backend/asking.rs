//! A domain that is asked on demand: puts questions to the provider, and asks again what was asked
//! before, so that the answers that are kept stay true.
//!
//! What is asked again goes by the hundred into one question. An entry about which the directory
//! fails to answer is found by halves, left alone for a while, longer each time, and holds up no
//! other.

use super::absences::Absences;
use super::engine::{Engine, Found, Inquiry};
use crate::hops::{Outcome, Place};
use futures_util::{StreamExt, TryStreamExt, stream};
use roster_bus::interfaces::{CALL_DEADLINE, Error, LOOK_UP_DEADLINE, Trace};
use roster_config::Mode;
use roster_provider::{Keys, LookUp, Of, Provider, Unanswered};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

/// Questions of others at a time. Equal ones came together before they came here.
const QUESTIONS_MAX: usize = 64;
/// Questions that wait for their turn besides; the publisher asks no more at once.
const WAITING_MAX: usize = 256;
/// Bytes of one answer; the bus takes no message of more than 16 MiB.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Questions of our own at a time, for answers that may have changed.
const REFRESHES_MAX: usize = 4;
/// Entries in one of them.
const BATCH: usize = 100;
/// Questions for many entries that are put at once for one who asks.
const TOGETHER_MAX: usize = 8;
/// Groups with their members, of which there may be many.
const BATCH_OF_GROUPS: usize = 16;
/// Groups that are asked for ahead of somebody's questions, at the least and at the most.
const AHEAD_MIN: usize = 2;
/// See there.
const AHEAD_MAX: usize = 64;
/// As many are asked for as come within about this time: whoever asked for the first waits for all.
const AHEAD_WITHIN: Duration = Duration::from_millis(400);
/// Into how many rounds one refresh of all answers is spread.
const ROUNDS: u32 = 10;
/// Parts of a batch in a row that have no answer in time before the rest is left for the next round: a
/// few more than it takes to find one entry among a hundred.
const LATE_MAX: u32 = 10;
/// How long an entry is left alone at the most that cannot be answered.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Of so many the list is cleared of those whose time is over: they may be gone.
const FAILING_MAX: usize = 10_000;

/// What is asked of our own accord.
const NOBODYS: Trace = Trace { request: 0, call: 0 };

/// An entry by number and name.
type Known = (u32, Vec<u8>);

/// See the module.
pub struct Asking<P> {
    engine: Arc<Engine>,
    provider: Arc<P>,
    absences: Arc<Absences<P>>,
    place: Arc<Place>,
    mode: Mode,
    /// How long an answer counts.
    refresh: Duration,
    places: Semaphore,
    turns: Semaphore,
    expired: Notify,
    /// How many groups to ask for at once.
    ahead: AtomicUsize,
    failing: Mutex<HashMap<u32, Failing>>,
}

/// What a server says to a question.
enum Heard {
    Answer,
    /// That it does not answer.
    Failure,
    /// Nothing in time.
    Nothing,
}

/// An entry that the directory did not answer for.
struct Failing {
    until: Instant,
    pause: Duration,
}

fn busy() -> Error {
    Error::Busy(format!("{WAITING_MAX} look-ups wait already"))
}

fn late() -> Unanswered {
    Unanswered::Failed("the directory did not answer in time".into())
}

/// An answer, if the bus takes it.
fn fits(answer: Found) -> Result<Found, Error> {
    if answer.records.len() <= ANSWER_BYTES_MAX {
        return Ok(answer);
    }
    let most = ANSWER_BYTES_MAX >> 20;
    Err(Error::Unavailable(format!("the answer has more than {most} MiB")))
}

impl<P: Provider + 'static> Asking<P> {
    /// Asks this provider, which reports into that engine; an answer counts for so long.
    pub fn new(
        engine: Arc<Engine>,
        provider: Arc<P>,
        place: Arc<Place>,
        mode: Mode,
        refresh: Duration,
    ) -> Self {
        let absences = Arc::new(Absences::new(Arc::clone(&engine), Arc::clone(&provider)));
        Self {
            engine,
            provider,
            absences,
            place,
            mode,
            refresh,
            places: Semaphore::new(QUESTIONS_MAX + WAITING_MAX),
            turns: Semaphore::new(QUESTIONS_MAX),
            expired: Notify::new(),
            ahead: AtomicUsize::new(BATCH_OF_GROUPS),
            failing: Mutex::default(),
        }
    }

    /// What decides about entries that replies lack.
    pub fn absences(&self) -> Arc<Absences<P>> {
        Arc::clone(&self.absences)
    }

    /// The directory has replied. Entries that the reply lacked are looked for by their keys now: the
    /// answer goes by what comes of it. If nothing does, they are served.
    async fn conclude(&self, inquiry: Inquiry) {
        if self.engine.conclude(inquiry)
            && let Err(error) = self.absences.check().await
        {
            tracing::debug!("entries that a reply lacked are served: {error}");
        }
    }

    /// The records that answer the question; none when the directory has no such entry. While it
    /// does not answer, what is known of the entry.
    pub async fn look_up(&self, trace: Trace, what: &LookUp) -> Result<Found, Error> {
        self.is_asked()?;
        let (result, answer) = self.answer(trace, what).await;
        metrics::counter!("roster_directory_lookups_total", "result" => result).increment(1);
        answer.and_then(fits)
    }

    /// The entries that these questions are about, without the lists that belong to them. All of them
    /// are told, or none.
    pub async fn look_up_all(&self, trace: Trace, what: &[LookUp]) -> Result<Found, Error> {
        self.is_asked()?;
        let untold = self.engine.untold(what, self.refresh);
        if !untold.is_empty() {
            let Ok(_place) = self.places.try_acquire() else { return Err(busy()) };
            let asked = timeout(LOOK_UP_DEADLINE, self.ask_together(trace, &untold)).await;
            if let Err(Unanswered::Unreachable(reason) | Unanswered::Failed(reason)) =
                asked.unwrap_or_else(|_| Err(late()))
                // As for a single one: what is known of an entry is told while the directory is away.
                && !untold.iter().all(|what| self.engine.knows_of(what))
            {
                return Err(Error::Unavailable(reason));
            }
        }
        fits(self.engine.found_all(what))
    }

    fn is_asked(&self) -> Result<(), Error> {
        if self.mode == Mode::OnDemand {
            return Ok(());
        }
        let text = "the domain is mirrored, there is nothing beyond what can be fetched";
        Err(Error::Invalid(text.into()))
    }

    /// Asks for entries by the hundred.
    async fn ask_together(&self, trace: Trace, what: &[&LookUp]) -> Result<(), Unanswered> {
        let ways: [fn(&LookUp) -> bool; 4] = [
            |what| matches!(what, LookUp::UserByName(_) | LookUp::GroupsOf(_)),
            |what| matches!(what, LookUp::UserByUid(_)),
            |what| matches!(what, LookUp::GroupByName(_)),
            |what| matches!(what, LookUp::GroupByGid(_)),
        ];
        let ways = ways.map(|is_one| what.iter().copied().filter(|what| is_one(what)).collect());
        let batches: Vec<_> = ways.iter().flat_map(|way: &Vec<_>| way.chunks(BATCH)).collect();
        let asked = batches.into_iter().map(|batch| Ok(self.ask_by_halves(trace, batch)));
        let asked = stream::iter(asked.collect::<Vec<_>>());
        asked.try_buffer_unordered(TOGETHER_MAX).try_collect::<()>().await
    }

    /// Asks for entries with one question or, if the server refuses that, which may have a limit, with
    /// one for each half of them.
    async fn ask_by_halves(&self, trace: Trace, batch: &[&LookUp]) -> Result<(), Unanswered> {
        let mut parts = vec![batch];
        while let Some(part) = parts.pop() {
            let _turn = self.turns.acquire().await;
            match self.ask_alike(trace, part).await {
                Err(Unanswered::Failed(_)) if part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                asked => asked?,
            }
        }
        Ok(())
    }

    /// Asks for entries that are all asked for by name, or all by id.
    async fn ask_alike(&self, trace: Trace, what: &[&LookUp]) -> Result<(), Unanswered> {
        let (mut names, mut ids) = (Vec::new(), Vec::new());
        let mut of = Of::Users;
        for what in what {
            match what {
                LookUp::UserByName(name) | LookUp::GroupsOf(name) => names.push(name.clone()),
                LookUp::GroupByName(name) => {
                    of = Of::Groups;
                    names.push(name.clone());
                }
                LookUp::UserByUid(id) => ids.push(*id),
                LookUp::GroupByGid(id) => {
                    of = Of::Groups;
                    ids.push(*id);
                }
            }
        }
        let keys = if names.is_empty() { Keys::Ids(&ids) } else { Keys::Names(&names) };
        let inquiry = self.engine.inquire(what.iter().copied());
        self.ask_provider(trace, of, keys).await?;
        self.conclude(inquiry).await;
        Ok(())
    }

    async fn answer(&self, trace: Trace, what: &LookUp) -> (&'static str, Result<Found, Error>) {
        // Asked for a moment ago, with others or for somebody else.
        if let Some(found) = self.engine.fresh(what, self.refresh) {
            return ("known", Ok(found));
        }
        let Ok(_place) = self.places.try_acquire() else {
            return ("busy", Err(busy()));
        };
        let asked = async {
            let _turn = self.turns.acquire().await;
            match self.engine.fresh(what, self.refresh) {
                Some(_) => Ok(true),
                None => self.ask_ahead(trace, what).await,
            }
        };
        match timeout(LOOK_UP_DEADLINE, asked).await.unwrap_or_else(|_| Err(late())) {
            Ok(is_found) => match self.engine.found(what) {
                Some(found) => (if is_found { "found" } else { "kept" }, Ok(found)),
                // What is in it changed meanwhile: a part of it is not an answer, nor is none.
                None if self.engine.knows_of(what) => {
                    let reason =
                        "the entry changed while it was asked for, or its list is not shown";
                    ("changed", Err(Error::Unavailable(reason.into())))
                }
                None => (if is_found { "found" } else { "absent" }, Ok(Found::default())),
            },
            Err(Unanswered::Unreachable(reason) | Unanswered::Failed(reason)) => {
                match self.engine.found(what) {
                    Some(found) => ("stale", Ok(found)),
                    None => ("unreachable", Err(Error::Unavailable(reason))),
                }
            }
        }
    }

    /// Asks a question and, if it is for one of the groups of a user, for others of them with it:
    /// `id` asks for all, one after the other.
    async fn ask_ahead(&self, trace: Trace, what: &LookUp) -> Result<bool, Unanswered> {
        let mut groups = self.engine.asked_next(what);
        groups.retain(|(number, _)| !self.is_failing(*number));
        let most = self.ahead.load(Ordering::Relaxed);
        groups.truncate(most);
        if groups.len() > 1 {
            // Whoever gives up waiting leaves word for the next.
            self.ahead.store((most / 4).max(AHEAD_MIN), Ordering::Relaxed);
            let began = Instant::now();
            let asked = self.ask_all(trace, Of::GroupsWithMembers, &groups).await;
            if let Err(Unanswered::Unreachable(_)) = asked {
                return asked.map(|()| false);
            }
            if asked.is_ok() {
                let slow = began.elapsed() > AHEAD_WITHIN;
                let next = if slow { most / 2 } else { most * 2 };
                self.ahead.store(next.clamp(AHEAD_MIN, AHEAD_MAX), Ordering::Relaxed);
                self.note_untold(&groups, self.engine.asked_next(what));
                if self.engine.found(what).is_some() {
                    return Ok(true);
                }
            }
        }
        self.ask(trace, what).await
    }

    async fn ask(&self, trace: Trace, what: &LookUp) -> Result<bool, Unanswered> {
        let inquiry = self.engine.inquire([what]);
        let question = self.place.asks(trace);
        let found = self.provider.look_up(what).await;
        question.answered(Outcome::of(&found, |found| *found));
        let found = found?;
        self.conclude(inquiry).await;
        if self.engine.is_undecided(what) {
            self.provider.look_up(what).await?;
        }
        Ok(found)
    }

    async fn ask_provider(&self, trace: Trace, of: Of, keys: Keys<'_>) -> Result<(), Unanswered> {
        let question = self.place.asks(trace);
        let asked = self.provider.look_up_all(of, keys).await;
        question.answered(Outcome::of(&asked, |()| true));
        asked
    }

    async fn ask_all(&self, trace: Trace, of: Of, entries: &[Known]) -> Result<(), Unanswered> {
        let (numbers, names): (Vec<u32>, Vec<Vec<u8>>) = entries.iter().cloned().unzip();
        let inquiry = self.engine.inquire_all(numbers);
        self.ask_provider(trace, of, Keys::Names(&names)).await?;
        self.conclude(inquiry).await;
        Ok(())
    }

    /// Asks for a user or a group anew, and for all that is known of it. What the directory does not
    /// say stays as it is: while it is away, there is nothing better. A mirror is made anew: to a
    /// question another server might answer, with what this one has left behind.
    pub async fn expire(&self, what: &LookUp) -> Result<(), Error> {
        if self.mode == Mode::Replicate {
            self.provider.refresh();
            return Ok(());
        }
        let what = self.engine.question(what);
        let late = || Err(Unanswered::Failed("it did not answer in time".into()));
        match timeout(CALL_DEADLINE, self.ask(NOBODYS, &what)).await.unwrap_or_else(|_| late()) {
            Ok(_) => Ok(()),
            Err(Unanswered::Unreachable(reason) | Unanswered::Failed(reason)) => {
                Err(Error::Unavailable(format!(
                    "the directory does not answer, what is known of it stays: {reason}"
                )))
            }
        }
    }

    /// Entries are read in this way from now on; what was answered in another is asked for again.
    pub fn read_by(&self, reading: &str) {
        if self.engine.read_by(reading) {
            self.expired.notify_one();
        }
    }

    /// Asks for everything anew.
    pub fn expire_all(&self) {
        self.engine.expire();
        self.failing().clear();
        self.expired.notify_one();
        self.provider.refresh();
    }

    /// Asks again what was answered too long ago, a part of it at a time, for as long as it is
    /// polled.
    pub async fn keep_fresh(&self) {
        tokio::join!(self.ask_in_rounds(), self.forgive());
    }

    /// A server that takes over, or is back, may answer what could not be answered before.
    async fn forgive(&self) {
        let mut news = self.engine.news();
        let mut before = None;
        while news.changed().await.is_ok() {
            let server = {
                let news = news.borrow_and_update();
                (news.online == Some(true)).then(|| news.server.clone())
            };
            if server.is_some() && server != before {
                self.failing().clear();
            }
            before = server;
        }
    }

    async fn ask_in_rounds(&self) {
        let round = (self.refresh / ROUNDS).max(Duration::from_secs(1));
        let mut news = self.engine.news();
        loop {
            let expired = async {
                self.expired.notified().await;
                // It may be so since before a server was found.
                let _ = news.wait_for(|news| news.online == Some(true)).await;
            };
            tokio::select! {
                () = sleep(round) => {}
                () = expired => {}
            }
            if self.engine.news().borrow().online == Some(true) {
                self.refresh(self.refresh.saturating_sub(round)).await;
            }
        }
    }

    /// Asks again what was answered longer ago than that, as long as a server answers.
    pub async fn refresh(&self, age: Duration) {
        // Asking for users' groups confirms these as well.
        for of in [Of::UsersWithGroups, Of::Users, Of::GroupsWithMembers, Of::Groups] {
            if self.ask_again(of, age).await.is_err() {
                return;
            }
        }
    }

    /// An error is that no server answers.
    async fn ask_again(&self, of: Of, age: Duration) -> Result<(), ()> {
        let mut stale = self.engine.stale(of, age);
        stale.retain(|(number, _)| !self.is_failing(*number));
        let size = if of == Of::GroupsWithMembers { BATCH_OF_GROUPS } else { BATCH };
        let batches = stream::iter(stale.chunks(size)).map(Ok);
        batches.try_for_each_concurrent(REFRESHES_MAX, |batch| self.ask_batch(of, batch)).await
    }

    /// Groups that were asked for and told without their members, for these are too many, are not
    /// asked for again at once.
    fn note_untold(&self, asked: &[Known], still: Vec<Known>) {
        let asked: HashSet<u32> = asked.iter().map(|(number, _)| *number).collect();
        for (number, _) in still.into_iter().filter(|(number, _)| asked.contains(number)) {
            self.note_failure(number);
        }
    }

    /// Asks for entries together and, where one among them has no answer, for each half of them. What
    /// a server is too slow for waits for the next round, and holds up no other batch.
    async fn ask_batch(&self, of: Of, batch: &[Known]) -> Result<(), ()> {
        let mut parts = vec![batch];
        let mut late = 0;
        while let Some(part) = parts.pop() {
            late = match self.ask_in_time(of, part).await? {
                Heard::Answer => {
                    late = 0;
                    continue;
                }
                Heard::Failure => 0,
                Heard::Nothing => late + 1,
            };
            match part {
                [(number, _)] => self.note_failure(*number),
                _ => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
            if late >= LATE_MAX {
                tracing::debug!(?of, "a batch is left for the next round: no answer in time");
                break;
            }
        }
        Ok(())
    }

    /// What came of a question; an error is that no server answers.
    async fn ask_in_time(&self, of: Of, entries: &[Known]) -> Result<Heard, ()> {
        match timeout(CALL_DEADLINE, self.ask_all(NOBODYS, of, entries)).await {
            Ok(Ok(())) => {
                let mut failing = self.failing();
                for (number, _) in entries {
                    failing.remove(number);
                }
                Ok(Heard::Answer)
            }
            Ok(Err(Unanswered::Unreachable(_))) => Err(()),
            Ok(Err(Unanswered::Failed(reason))) => {
                tracing::debug!(?of, entries = entries.len(), "not refreshed: {reason}");
                Ok(Heard::Failure)
            }
            Err(_) => Ok(Heard::Nothing),
        }
    }

    fn is_failing(&self, number: u32) -> bool {
        self.failing().get(&number).is_some_and(|failing| Instant::now() < failing.until)
    }

    fn note_failure(&self, number: u32) {
        let now = Instant::now();
        let mut failing = self.failing();
        if failing.len() >= FAILING_MAX {
            failing.retain(|_, failing| now < failing.until);
        }
        let before = failing.get(&number).map(|failing| failing.pause * 2);
        let pause = before.unwrap_or(self.refresh).min(PAUSE_MAX);
        failing.insert(number, Failing { until: now + pause, pause });
    }

    fn failing(&self) -> MutexGuard<'_, HashMap<u32, Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
