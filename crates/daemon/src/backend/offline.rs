//! What is kept of passwords for when nobody can be asked about them, and what is made of it.
//!
//! A password that was found right is kept as a hash, for a time, after the person was told. Wrong ones are
//! counted, and the count is on the disk before anybody hears of it. Whatever a directory says counts
//! over all of this: who is disabled there is forgotten here, and so is a password that it does not take any
//! more. One user's questions are answered one after the other, so that many at once are no more tries.
//!
//! A password that this host cannot date is refused, and kept. A file that takes no changes is the business of
//! `store`: what is read here is what would be in it.
//!
//! Everything but a yes takes the same time and the same work, so that neither tells of whom something is kept,
//! who is locked out, or who exists.

mod clock;
mod guesses;
mod standing;
mod store;

use super::engine::News;
use super::people::People;
use clock::{Clock, Time};
use guesses::Guesses;
use hmac::{Hmac, KeyInit as _, Mac as _};
use roster_config::Offline as Settings;
use roster_provider::access::Matched;
use roster_provider::log_in::{Answer, Person};
use roster_secret::Secret;
use roster_store::StoreError;
use roster_store::credentials::{Changes, Credential, Match, Measured};
use roster_store::password::{Cost, Hash, HashError};
use roster_wire::pam::Verdict;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;
use standing::{Standing, refusal, standing};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::CredentialStore;
use tokio::sync::{Mutex as Turn, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until, timeout};

/// Passwords that are compared at a time, each in up to 64 MiB of memory.
const HASHES_AT_ONCE: usize = 2;
/// Passwords that are hashed to be kept, at a time: nobody waits for it, and others log in meanwhile.
const LEARNT_AT_ONCE: usize = 1;
/// Passwords that a directory called wrong and that are compared with what is kept, at a time: guesses from
/// anywhere, which must not keep those waiting who log in while it is away.
const COMPARED_AT_ONCE: usize = 1;
/// How often a file that could not be read is tried again for one of these.
const COMPARED_AGAIN: Duration = Duration::from_secs(1);
/// Passwords that wait to be kept; further ones are kept after the next log-in.
const WAITING_MAX: usize = 64;
/// People whose passwords are remembered as unchanged. More are hashed again at their next log-in.
const REMEMBERED_MAX: usize = 4096;
/// How often what is kept of people who have gone, or kept for too long, is looked for.
const CLEANING: Duration = Duration::from_secs(600);
/// How often the clock is looked at while the directory answers, which is when it is believed.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(30);
/// How long the last write may take: the monitor waits five seconds for the process to end.
const LAST_WRITE_WAIT: Duration = Duration::from_secs(2);
/// The time of the last log-in is written again when it is older than this share of a life.
const LIFE_SHARE: u32 = 100;
/// Without credentials a filter's word is believed for so long.
const MATCH_LIFE: Duration = Duration::from_secs(30 * 86_400);

/// The credentials of a domain's users.
pub struct Offline {
    kept: Option<Kept>,
    /// None where no credentials are kept.
    settings: Option<Settings>,
    time: Mutex<Time>,
    clock: Box<dyn Clock>,
    /// Whether the directory answers; none where it tells nothing of the time, as files.
    directory: Option<watch::Receiver<News>>,
}

struct Kept {
    store: Arc<CredentialStore>,
    people: Arc<People>,
    turns: Mutex<HashMap<Vec<u8>, Arc<Turn<()>>>>,
    hashing: Semaphore,
    learning: Semaphore,
    waiting: Semaphore,
    comparing: Semaphore,
    guesses: Mutex<Guesses>,
    /// How often everything was forgotten: what was read before that is not written after it.
    emptied: AtomicU64,
    cost: Turn<Option<Cost>>,
    /// Held while dates are corrected.
    correcting: Turn<()>,
    /// Keyed digests of the passwords that were kept by this process.
    remembered: Mutex<HashMap<Vec<u8>, [u8; 32]>>,
    key: Secret,
}

/// Why there is nothing to go by.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Hash(#[from] HashError),
    #[error("{0}")]
    Other(&'static str),
    #[error(
        "it is forgotten, but not in the file, which is written as soon as it takes changes: {0}"
    )]
    Unwritten(String),
}

/// What a password can be compared with.
enum Usable {
    /// That, at this time.
    Now(Credential, Hash, u64),
    /// Something, from the first of these times on; the second is now.
    Later(u64, u64),
}

/// What is kept of a user, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The user.
    pub name: Vec<u8>,
    /// When the directory found the password right last.
    pub verified_unix: u64,
    /// Until when it is believed.
    pub expires_unix: u64,
    /// Wrong passwords since.
    pub failures: u32,
    /// Until when the user is locked out; 0 if not.
    pub locked_until_unix: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Offline {
    /// A domain of which nothing is kept.
    #[must_use]
    pub fn none() -> Self {
        Self {
            kept: None,
            settings: None,
            time: Mutex::default(),
            clock: Box::new(clock::OfTheHost::new()),
            directory: None,
        }
    }

    /// Opens what is kept in the domain's folder. A file that cannot be opened is opened again by
    /// [`keep`](Self::keep). `directory` tells whether a directory answers that vouches for the clock.
    #[must_use]
    pub fn open(
        folder: &Path,
        settings: Option<Settings>,
        people: Arc<People>,
        directory: Option<watch::Receiver<News>>,
    ) -> Self {
        let clock = Box::new(clock::OfTheHost::new());
        Self::over(CredentialStore::open(folder), clock, settings, people, directory)
    }

    fn over(
        store: Arc<CredentialStore>,
        clock: Box<dyn Clock>,
        settings: Option<Settings>,
        people: Arc<People>,
        directory: Option<watch::Receiver<News>>,
    ) -> Self {
        let none = Self { clock, ..Self::none() };
        let Some(key) = random_key() else {
            tracing::error!("no random bytes; nobody can log in while the directory is away");
            return none;
        };
        let kept = Kept {
            store,
            people,
            turns: Mutex::default(),
            hashing: Semaphore::new(HASHES_AT_ONCE),
            learning: Semaphore::new(LEARNT_AT_ONCE),
            waiting: Semaphore::new(WAITING_MAX),
            comparing: Semaphore::new(COMPARED_AT_ONCE),
            guesses: Mutex::default(),
            emptied: AtomicU64::new(0),
            cost: Turn::default(),
            correcting: Turn::default(),
            remembered: Mutex::default(),
            key,
        };
        Self { kept: Some(kept), settings, directory, ..none }
    }

    /// The time that lives and locks are counted in: the host's while the directory answers. While it does not,
    /// never earlier than it was seen to be.
    #[must_use]
    pub fn now_unix(&self) -> u64 {
        self.time(self.answers())
    }

    /// Whether the directory answers at this time.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.directory.as_ref().is_some_and(|news| news.borrow().online == Some(true))
    }

    fn time(&self, is_confirmed: bool) -> u64 {
        let mut time = lock(&self.time);
        let reading = self.clock.read();
        if let Some(found) = self.kept.as_ref().and_then(|kept| kept.store.take_found()) {
            time.not_before(found, &reading);
        }
        if is_confirmed { time.confirm(&reading) } else { time.now(&reading) }
    }

    /// Why the clock is not believed, in words; empty if it is.
    #[must_use]
    pub fn clock_doubt(&self) -> String {
        if self.kept.is_none() {
            return String::new();
        }
        let _ = self.now_unix();
        lock(&self.time).doubt(&self.clock.read())
    }

    /// Why what is kept cannot be read or written, in words; empty if it can.
    #[must_use]
    pub fn trouble(&self) -> String {
        self.in_use().map(|(kept, _)| kept.store.trouble()).unwrap_or_default()
    }

    /// Does what is done for a wrong password while nobody can be asked, under a name that is nobody's.
    pub async fn pretend(&self, name: &[u8]) {
        let Some((kept, settings)) = self.in_use() else { return };
        let refused = async {
            let due = tokio::time::Instant::now() + refusal(settings);
            kept.work_for_nothing(settings).await;
            sleep_until(due).await;
        };
        kept.in_turn(name, refused).await;
    }

    fn in_use(&self) -> Option<(&Kept, &Settings)> {
        Some((self.kept.as_ref()?, self.settings.as_ref()?))
    }

    /// Whether there is something to go by for that person.
    #[must_use]
    pub fn has(&self, person: &Person) -> bool {
        let Some((kept, settings)) = self.in_use() else { return false };
        let Ok(Some(credential)) = kept.store.get(&person.name) else { return false };
        let standing = standing(&credential, person.uid, self.now_unix(), settings);
        matches!(standing, Standing::Good | Standing::LockedUntil(_))
    }

    /// What is to be said while nobody who knows can be asked, which `unreachable` says.
    pub async fn check(&self, person: &Person, password: &Secret, unreachable: Answer) -> Answer {
        let Some((kept, settings)) = self.in_use() else { return unreachable };
        let checked = async {
            let due = tokio::time::Instant::now() + refusal(settings);
            let checked = self.checked(kept, settings, person, password).await;
            let is_yes = |answer: &Answer| answer.verdict == Verdict::Success;
            if !checked.as_ref().is_ok_and(|answer| answer.as_ref().is_some_and(is_yes)) {
                sleep_until(due).await;
            }
            checked
        };
        match kept.in_turn(&person.name, checked).await {
            Ok(Some(answer)) => {
                let why = format!("{}; {}", answer.reason, unreachable.reason);
                Answer { reason: why, is_offline: true, ..answer }
            }
            Ok(None) => {
                let reason = format!("{}; nothing is kept of the password", unreachable.reason);
                Answer { reason, ..unreachable }
            }
            Err(trouble) => {
                let reason =
                    format!("{}; what is kept is of no use: {trouble}", unreachable.reason);
                Answer { reason, ..unreachable }
            }
        }
    }

    async fn checked(
        &self,
        kept: &Kept,
        settings: &Settings,
        person: &Person,
        password: &Secret,
    ) -> Result<Option<Answer>, Trouble> {
        let emptied = kept.emptied();
        let usable = self.usable(kept, settings, person).await;
        let (credential, hash, now) = match usable {
            Ok(Some(Usable::Now(credential, hash, now))) => (credential, hash, now),
            other => {
                kept.work_for_nothing(settings).await;
                let Some(Usable::Later(until, now)) = other? else { return Ok(None) };
                let reason = format!("locked out for {} s", until.saturating_sub(now));
                return Ok(Some(Answer::because(Verdict::Locked, reason)));
            }
        };
        if kept.verify(hash, password).await? {
            if credential.failures > 0 {
                let forgiven = Credential { failures: 0, failed_unix: 0, ..credential };
                self.put(kept, &person.name, forgiven, emptied).await?;
            }
            if kept.emptied() != emptied {
                return Ok(None);
            }
            let text = "The directory cannot be reached: this host has checked the password.";
            let answer = Answer::because(Verdict::Success, "by what is kept of the password");
            return Ok(Some(answer.telling(false, text)));
        }
        let failures = credential.failures.saturating_add(1);
        let counted = Credential { failures, failed_unix: now, ..credential };
        // Before the verdict is known to anybody.
        self.put(kept, &person.name, counted, emptied).await?;
        let reason = format!("by what is kept of the password, {failures} times in a row");
        Ok(Some(Answer::because(Verdict::WrongPassword, reason)))
    }

    /// What there is to compare a password with.
    async fn usable(
        &self,
        kept: &Kept,
        settings: &Settings,
        person: &Person,
    ) -> Result<Option<Usable>, Trouble> {
        if kept.store.get(&person.name)?.is_none() {
            return Ok(None);
        }
        // While nothing is known of the domain's users, as after its cache was lost, the publisher is believed: it
        // has just said that the domain serves that name and uid.
        let has = kept.has(person).await?;
        if has == Some(false) {
            kept.forget(&person.name).await?;
            return Ok(None);
        }
        let now = self.noted(kept).await?;
        // Its dates may have been corrected.
        let Some(credential) = kept.store.get(&person.name)? else { return Ok(None) };
        match standing(&credential, person.uid, now, settings) {
            Standing::Good => {
                let hash = Hash::parse(&credential.hash)?;
                Ok(Some(Usable::Now(credential, hash, now)))
            }
            Standing::SomebodyElse => {
                if has.is_some() {
                    kept.forget(&person.name).await?;
                }
                Ok(None)
            }
            Standing::Undated => {
                Err(Trouble::Other("the clock is behind the last log-in by the directory"))
            }
            Standing::TooOld => {
                Err(Trouble::Other("the last log-in by the directory is too long ago"))
            }
            Standing::LockedUntil(until) => Ok(Some(Usable::Later(until, now))),
        }
    }

    /// Who knows has answered. What has to be written is written after the person was told.
    pub fn heard(self: &Arc<Self>, person: &Person, password: &Secret, verdict: Verdict) {
        if self.in_use().is_none() {
            return;
        }
        let what = match verdict {
            Verdict::Success => Lesson::Right,
            Verdict::WrongPassword => Lesson::Wrong,
            Verdict::MustChange
            | Verdict::PasswordExpired
            | Verdict::AccountExpired
            | Verdict::Locked
            | Verdict::Disabled
            | Verdict::Denied
            | Verdict::UnknownUser => Lesson::Out,
            Verdict::NotOurs
            | Verdict::Unreachable
            | Verdict::Misconfigured
            | Verdict::TooManyTries
            | Verdict::NotPermitted
            | Verdict::NewPasswordRefused => return,
        };
        self.time(true);
        self.learn(person, password, what);
    }

    /// The password was changed to this.
    pub fn changed(self: &Arc<Self>, person: &Person, password: &Secret) {
        if self.in_use().is_some() {
            self.time(true);
            self.learn(person, password, Lesson::Changed);
        }
    }

    /// The password may have been changed, and nobody can tell: what is kept is believed no more.
    pub fn may_have_changed(self: &Arc<Self>, person: &Person, password: &Secret) {
        if self.in_use().is_some() {
            self.learn(person, password, Lesson::Out);
        }
    }

    fn learn(self: &Arc<Self>, person: &Person, password: &Secret, what: Lesson) {
        let Some(password) = Secret::copy_of(password.as_bytes()) else { return };
        let (offline, person) = (Arc::clone(self), person.clone());
        let Some(emptied) = self.kept.as_ref().map(Kept::emptied) else { return };
        tokio::spawn(async move {
            let Some((kept, settings)) = offline.in_use() else { return };
            let learnt = match what {
                Lesson::Out => kept.in_turn(&person.name, kept.forget(&person.name)).await,
                Lesson::Wrong => kept.learn_wrong(&person.name, &password).await,
                Lesson::Right | Lesson::Changed => {
                    let is_changed = what == Lesson::Changed;
                    let learnt = offline
                        .learn_right(kept, settings, &person, &password, is_changed, emptied);
                    kept.in_turn(&person.name, learnt).await
                }
            };
            if let Err(trouble) = learnt {
                let user = person.name.escape_ascii();
                tracing::error!(%user, "what is kept of the password is not up to date: {trouble}");
            }
        });
    }

    async fn learn_right(
        &self,
        kept: &Kept,
        settings: &Settings,
        person: &Person,
        password: &Secret,
        is_changed: bool,
        emptied: u64,
    ) -> Result<(), Trouble> {
        let name = &person.name;
        let is_remembered = kept.is_remembered(name, password);
        if is_changed || is_remembered == Some(false) {
            // The one before is wrong from now on, whatever becomes of this one.
            kept.forget_password(name).await?;
        }
        let now = self.noted(kept).await?;
        let cost = kept.cost(settings).await?;
        // What cannot be read is replaced.
        let before = kept.store.get(name).ok().flatten();
        let before = before.filter(|before| before.uid == person.uid);
        let same = before.filter(|before| {
            is_remembered == Some(true)
                && Hash::parse(&before.hash).is_ok_and(|hash| hash.cost() == cost)
        });
        if let Some(before) = same {
            let age = now.saturating_sub(before.verified_unix);
            let is_recent = age < (settings.life / LIFE_SHARE).as_secs();
            if !is_recent || before.failures > 0 {
                let seen = Credential { verified_unix: now, failures: 0, failed_unix: 0, ..before };
                self.put(kept, name, seen, emptied).await?;
            }
            return Ok(());
        }
        let Ok(_place) = kept.waiting.try_acquire() else {
            // Whatever was kept is of another password, perhaps.
            return kept.forget_password(name).await;
        };
        let hash = match kept.hash(cost, password).await {
            Ok(hash) => hash,
            Err(trouble) => {
                kept.forget_password(name).await?;
                return Err(trouble);
            }
        };
        let credential =
            Credential { uid: person.uid, hash, verified_unix: now, failures: 0, failed_unix: 0 };
        self.put(kept, name, credential, emptied).await?;
        kept.remember(name, password);
        Ok(())
    }

    /// Keeps that with the time that it is dated by, unless everything was forgotten since `emptied` was read.
    async fn put(
        &self,
        kept: &Kept,
        name: &[u8],
        credential: Credential,
        emptied: u64,
    ) -> Result<(), Trouble> {
        let mark = lock(&self.time).mark();
        // The clock may have been corrected since the credential was read.
        let verified_unix = credential.verified_unix.min(mark.unix);
        let credential = Credential { verified_unix, ..credential };
        let changes = Changes { mark: Some(mark), ..Changes::credential(name, Some(credential)) };
        kept.write(changes).await?;
        if kept.emptied() == emptied { Ok(()) } else { kept.forget(name).await }
    }

    /// The time now, which is kept as the latest that was seen. What is kept is dated by it.
    async fn noted(&self, kept: &Kept) -> Result<u64, Trouble> {
        let _correcting = kept.correcting.lock().await;
        let now = self.now_unix();
        // What cannot be corrected now is refused until it is.
        let _ = self.correct(kept).await;
        let mark = lock(&self.time).note();
        if let Some(mark) = mark {
            kept.write(Changes { mark: Some(mark), ..Changes::default() }).await?;
        }
        Ok(now)
    }

    /// Corrects what was dated by a clock that was moved since. Where that cannot be done now, it is refused.
    async fn correct(&self, kept: &Kept) -> Result<(), Trouble> {
        let (due, mark) = {
            let mut time = lock(&self.time);
            let due = time.take_due();
            if due.is_empty() {
                return Ok(());
            }
            (due, time.mark())
        };
        tracing::warn!("the clock was moved: the dates of what is kept of passwords are corrected");
        let (store, corrections) = (Arc::clone(&kept.store), due.clone());
        let redated = move |unix| corrections.iter().fold(unix, |unix, one| one.redated(unix));
        let corrected = blocking(move || store.redate(mark, redated)).await;
        match corrected {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                lock(&self.time).put_back(due);
                Err(error.into())
            }
            Err(ending) => Err(ending),
        }
    }

    /// Keeps what is kept in order, for as long as it is polled: writes what could not be written, corrects what
    /// was dated by a wrong clock, and forgets what nobody needs.
    pub async fn keep(&self) {
        let Some(kept) = &self.kept else { return std::future::pending().await };
        tokio::join!(kept.store.keep_written(), self.keep_time(kept), self.keep_clean(kept));
    }

    /// Writes the rest.
    pub async fn close(&self) {
        let Some(kept) = &self.kept else { return };
        let store = Arc::clone(&kept.store);
        if timeout(LAST_WRITE_WAIT, blocking(move || store.settle())).await.is_err() {
            tracing::error!("the last changes to the passwords for offline logins are not written");
        }
    }

    async fn keep_time(&self, kept: &Kept) {
        let mut news = self.directory.clone();
        loop {
            let returns = async {
                match &mut news {
                    Some(news) if !self.answers() => {
                        let online = |news: &News| news.online == Some(true);
                        if news.wait_for(online).await.is_err() {
                            std::future::pending::<()>().await;
                        }
                    }
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = returns => {}
                () = sleep(LOOK_AT_CLOCK) => {}
            }
            let _ = self.now_unix();
            let _correcting = kept.correcting.lock().await;
            // What cannot be read now is corrected when it can.
            let _ = self.correct(kept).await;
            let moved = lock(&self.time).note_move();
            if let Some(mark) = moved {
                // An error is that the process ends.
                let _ = kept.write(Changes { mark: Some(mark), ..Changes::default() }).await;
            }
        }
    }

    /// Looks from time to time for what is kept of people who have gone, or was kept for too long.
    async fn keep_clean(&self, kept: &Kept) {
        loop {
            if let Err(trouble) = self.clean(kept).await {
                tracing::error!("what is kept of passwords cannot be cleared up: {trouble}");
            }
            sleep(CLEANING).await;
        }
    }

    async fn clean(&self, kept: &Kept) -> Result<(), Trouble> {
        let now = self.noted(kept).await?;
        let Some(settings) = &self.settings else {
            let store = Arc::clone(&kept.store);
            let is_empty = move || {
                Ok::<_, StoreError>(store.list()?.is_empty() && store.all_matched()?.is_empty())
            };
            if blocking(is_empty).await?? {
                return Ok(());
            }
            // Nothing is to be kept any more.
            return kept.write(Changes { forgets_all: true, ..Changes::default() }).await;
        };
        let is_old = |credential: &Credential| {
            let is_too_old =
                standing(credential, credential.uid, now, settings) == Standing::TooOld;
            is_too_old && lock(&self.time).may_delete(credential.verified_unix, &self.clock.read())
        };
        let mut gone = 0;
        let store = Arc::clone(&kept.store);
        for (name, credential) in blocking(move || store.list()).await?? {
            if !is_old(&credential) {
                continue;
            }
            let looked_at = async {
                // The user may have logged in since.
                let is_old = kept.store.get(&name)?.is_some_and(|now| is_old(&now));
                if is_old {
                    kept.forget(&name).await?;
                }
                Ok::<_, Trouble>(is_old)
            };
            gone += u64::from(kept.in_turn(&name, looked_at).await?);
        }
        for name in kept.departed_users().await? {
            kept.in_turn(&name, kept.forget(&name)).await?;
            gone += 1;
        }
        if gone > 0 {
            tracing::info!(
                "what was kept of the passwords of {gone} users was too old, or they are gone"
            );
        }
        Ok(())
    }

    /// Of whom something is kept, and how it stands.
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        let Some((kept, settings)) = self.in_use() else { return Ok(Vec::new()) };
        let now = self.now_unix();
        let listed = kept.store.list()?.into_iter().map(|(name, credential)| {
            let locked_until_unix = match standing(&credential, credential.uid, now, settings) {
                Standing::LockedUntil(until) => until,
                Standing::Good | Standing::Undated | Standing::TooOld | Standing::SomebodyElse => 0,
            };
            let Credential { verified_unix, failures, .. } = credential;
            let expires_unix = verified_unix.saturating_add(settings.life.as_secs());
            Listed { name, verified_unix, expires_unix, failures, locked_until_unix }
        });
        Ok(listed.collect())
    }

    /// Forgets what is kept of a user, or with an empty name of everybody; gives of how many.
    pub async fn forget(&self, name: &[u8]) -> Result<u64, Trouble> {
        let Some(kept) = &self.kept else { return Ok(0) };
        if name.is_empty() {
            // Who is being asked about now has read already, and finds this out after writing.
            kept.emptied.fetch_add(1, Ordering::SeqCst);
            lock(&kept.remembered).clear();
            let forgotten = kept.store.list().map_or(0, |listed| listed.len() as u64);
            kept.write(Changes { forgets_all: true, ..Changes::default() }).await?;
            return self.written(forgotten);
        }
        let forgotten = async {
            let had = kept.store.get(name).is_ok_and(|credential| credential.is_some());
            kept.forget(name).await?;
            Ok::<_, Trouble>(u64::from(had))
        };
        let forgotten = kept.in_turn(name, forgotten).await?;
        self.written(forgotten)
    }

    fn written(&self, forgotten: u64) -> Result<u64, Trouble> {
        match self.trouble() {
            trouble if trouble.is_empty() => Ok(forgotten),
            trouble => Err(Trouble::Unwritten(trouble)),
        }
    }

    /// The directory said whether a filter finds a user.
    pub fn matched(self: &Arc<Self>, user: &[u8], uid: u32, filter: &str, matched: bool) {
        let Some(kept) = &self.kept else { return };
        let asked_unix = self.now_unix();
        let said = Match { uid, filter: filter.to_owned(), matched, asked_unix };
        let is_new = match kept.store.matched(user) {
            Ok(Some(before)) => {
                let age = asked_unix.saturating_sub(before.asked_unix);
                let is_old = age >= (self.match_life() / LIFE_SHARE).as_secs();
                is_old || Match { asked_unix, ..before } != said
            }
            _ => true,
        };
        if is_new {
            let (offline, user, emptied) = (Arc::clone(self), user.to_vec(), kept.emptied());
            tokio::spawn(async move {
                let Some(kept) = &offline.kept else { return };
                let put = kept.put_matched(&user, said, emptied);
                if let Err(trouble) = kept.in_turn(&user, put).await {
                    tracing::error!("what the access filter said is not kept: {trouble}");
                }
            });
        }
    }

    /// What the directory said of that before, for it cannot be asked now.
    pub fn matched_before(&self, user: &[u8], uid: u32, filter: &str, why: &str) -> Matched {
        let Some(kept) = &self.kept else { return Matched::Unknown(why.to_owned()) };
        let before = kept.store.matched(user);
        let now = self.now_unix();
        let before = match before {
            Ok(before) => before.filter(|before| before.uid == uid && before.filter == filter),
            Err(error) => return Matched::Unknown(format!("{why}; {error}")),
        };
        let Some(before) = before else {
            return Matched::Unknown(format!("{why}, and it was never asked before"));
        };
        let age = Duration::from_secs(now.saturating_sub(before.asked_unix));
        if before.asked_unix > now || (before.matched && age > self.match_life()) {
            return Matched::Unknown(format!("{why}, and it was asked too long ago"));
        }
        Matched::Before { matched: before.matched, age }
    }

    fn match_life(&self) -> Duration {
        self.settings.as_ref().map_or(MATCH_LIFE, |settings| settings.life)
    }
}

/// What an answer of the directory teaches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lesson {
    Right,
    /// The password is right since now.
    Changed,
    Wrong,
    Out,
}

impl Kept {
    /// A user's turn: questions about one are answered one after the other.
    fn turn(&self, name: &[u8]) -> Arc<Turn<()>> {
        Arc::clone(lock(&self.turns).entry(name.to_vec()).or_default())
    }

    /// Forgets a turn for which nobody waits.
    fn end_turn(&self, name: &[u8]) {
        let mut turns = lock(&self.turns);
        if turns.get(name).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            turns.remove(name);
        }
    }

    /// Does something in a user's turn.
    async fn in_turn<T>(&self, name: &[u8], work: impl Future<Output = T>) -> T {
        let turn = self.turn(name);
        let done = {
            let _turn = turn.lock().await;
            work.await
        };
        drop(turn);
        self.end_turn(name);
        done
    }

    /// To be read before anything that is written again.
    fn emptied(&self) -> u64 {
        self.emptied.load(Ordering::SeqCst)
    }

    async fn write(&self, changes: Changes) -> Result<(), Trouble> {
        let store = Arc::clone(&self.store);
        blocking(move || store.write(changes)).await
    }

    async fn put_matched(&self, name: &[u8], said: Match, emptied: u64) -> Result<(), Trouble> {
        self.write(Changes::matched(name, Some(said))).await?;
        if self.emptied() == emptied { Ok(()) } else { self.forget(name).await }
    }

    async fn forget(&self, name: &[u8]) -> Result<(), Trouble> {
        lock(&self.remembered).remove(name);
        let is_kept =
            !matches!((self.store.get(name), self.store.matched(name)), (Ok(None), Ok(None)));
        if is_kept { self.write(Changes::forget(name)).await } else { Ok(()) }
    }

    /// What an access filter said of the user stays.
    async fn forget_password(&self, name: &[u8]) -> Result<(), Trouble> {
        lock(&self.remembered).remove(name);
        let is_kept = !matches!(self.store.get(name), Ok(None));
        if is_kept { self.write(Changes::credential(name, None)).await } else { Ok(()) }
    }

    /// Users of whom something is kept and who are not in the domain any more.
    async fn departed_users(&self) -> Result<BTreeSet<Vec<u8>>, Trouble> {
        let (store, people) = (Arc::clone(&self.store), Arc::clone(&self.people));
        let find = move || {
            let credentials = store.list()?.into_iter().map(|(name, kept)| (name, kept.uid));
            let matches = store.all_matched()?.into_iter().map(|(name, kept)| (name, kept.uid));
            let all = credentials.chain(matches);
            let gone = all.filter(|(name, uid)| people.has(name, *uid) == Some(false));
            Ok::<_, StoreError>(gone.map(|(name, _)| name).collect())
        };
        Ok(blocking(find).await??)
    }

    /// The directory calls a password wrong. A mistyped one takes nothing away; one that was right before
    /// does. Guesses that come too fast are not looked at, and take nothing away either.
    async fn learn_wrong(&self, name: &[u8], password: &Secret) -> Result<(), Trouble> {
        match self.is_remembered(name, password) {
            Some(false) => Ok(()),
            Some(true) => self.in_turn(name, self.forget(name)).await,
            None if matches!(self.store.get(name), Ok(None)) => Ok(()),
            None if !lock(&self.guesses).begin(name, Instant::now()) => Ok(()),
            None => {
                let compared = async {
                    // It may be the password of a file that cannot be read now.
                    while self.store.get(name).is_err() {
                        sleep(COMPARED_AGAIN).await;
                    }
                    let _permit = self.comparing.acquire().await;
                    self.in_turn(name, self.compare_wrong(name, password)).await
                };
                let compared = compared.await;
                lock(&self.guesses).end(name);
                compared
            }
        }
    }

    async fn compare_wrong(&self, name: &[u8], password: &Secret) -> Result<(), Trouble> {
        let Some(credential) = self.store.get(name)? else { return Ok(()) };
        let was_right = compare(Hash::parse(&credential.hash)?, password).await?;
        if was_right { self.forget(name).await } else { Ok(()) }
    }

    /// Whether the domain has that person; `None` while nothing is known of it.
    async fn has(&self, person: &Person) -> Result<Option<bool>, Trouble> {
        if self.people.is_at_hand(&[]) {
            return Ok(self.people.has(&person.name, person.uid));
        }
        let (people, who) = (Arc::clone(&self.people), person.clone());
        // What changed since the last time may be a whole domain.
        blocking(move || people.has(&who.name, who.uid)).await
    }

    /// Works as a comparison does.
    async fn work_for_nothing(&self, settings: &Settings) {
        let Ok(cost) = self.cost(settings).await else { return };
        let _permit = self.hashing.acquire().await;
        // What comes of it, a failure too, is nobody's.
        let _ = blocking(move || cost.hash(b"nobody")).await;
    }

    async fn verify(&self, hash: Hash, password: &Secret) -> Result<bool, Trouble> {
        let _permit = self.hashing.acquire().await;
        compare(hash, password).await
    }

    async fn hash(&self, cost: Cost, password: &Secret) -> Result<String, Trouble> {
        let _permit = self.learning.acquire().await;
        let password = Secret::copy_of(password.as_bytes()).ok_or(Trouble::Other("no memory"))?;
        Ok(blocking(move || cost.hash(password.as_bytes())).await??)
    }

    /// How costly hashes are made: as was measured once for that time.
    async fn cost(&self, settings: &Settings) -> Result<Cost, Trouble> {
        let mut known = self.cost.lock().await;
        if let Some(cost) = *known {
            return Ok(cost);
        }
        let aim = settings.hash_time;
        let aim_us = u64::try_from(aim.as_micros()).unwrap_or(u64::MAX);
        let store = Arc::clone(&self.store);
        let cost = blocking(move || {
            if let Some(measured) = store.measured().filter(|before| before.aim_us == aim_us) {
                return Ok(Cost::from(measured));
            }
            let cost = Cost::measure(aim)?;
            let Cost { memory_kib, passes } = cost;
            let measured = Some(Measured { aim_us, memory_kib, passes });
            store.write(Changes { measured, ..Changes::default() });
            Ok::<_, Trouble>(cost)
        })
        .await??;
        Ok(*known.insert(cost))
    }

    fn digest(&self, name: &[u8], password: &Secret) -> Option<[u8; 32]> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.as_bytes()).ok()?;
        mac.update(&name.len().to_le_bytes());
        mac.update(name);
        mac.update(password.as_bytes());
        Some(mac.finalize().into_bytes().into())
    }

    fn remember(&self, name: &[u8], password: &Secret) {
        let Some(digest) = self.digest(name, password) else { return };
        let mut remembered = lock(&self.remembered);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(name.to_vec(), digest);
    }

    /// Whether this is the password that was kept; `None` when this process has kept none.
    fn is_remembered(&self, name: &[u8], password: &Secret) -> Option<bool> {
        let digest = self.digest(name, password)?;
        let remembered = lock(&self.remembered);
        // Digests under a key that nobody knows: in what time they are compared tells nothing.
        remembered.get(name).map(|before| *before == digest)
    }
}

async fn compare(hash: Hash, password: &Secret) -> Result<bool, Trouble> {
    let password = Secret::copy_of(password.as_bytes()).ok_or(Trouble::Other("no memory"))?;
    Ok(blocking(move || hash.is_of(password.as_bytes())).await??)
}

fn random_key() -> Option<Secret> {
    let mut key = Secret::with_room(32)?;
    let length = getrandom(&mut *key.free_mut(), GetRandomFlags::empty()).ok()?;
    key.advance(length);
    (length >= 32).then_some(key)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Trouble> {
    spawn_blocking(work).await.map_err(|_| Trouble::Other("the process is ending"))
}

#[cfg(test)]
mod tests;
