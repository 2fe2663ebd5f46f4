// SPDX-License-Identifier: MIT OR Apache-2.0
//! Offline logins: stores hashes of verified passwords, and checks passwords against them while the directory is
//! unreachable.
//!
//! A verified password is stored as a hash, for a limited time, after the reply was sent. Wrong passwords are counted,
//! and the count is on the disk before the reply. Results of the directory override all of this. A user that is
//! disabled there is forgotten here, and so is a password that it no longer accepts. Checks of one user run one after
//! the other, so concurrent requests give no more attempts.
//!
//! A hash with a date that is later than the host's time is refused, but stays. `store` handles a file that cannot be
//! written: reads return the pending changes.
//!
//! All refusals take the same time and the same work. The time therefore does not reveal whether a hash is stored, the
//! user is locked out, or the user exists.

mod guess_limit;
mod monotonic_clock;
mod store;
mod validity;

use super::engine::EngineStatus;
use super::user_index::UserIndex;
use guess_limit::GuessLimit;
use hmac::{Hmac, KeyInit as _, Mac as _};
use monotonic_clock::{Clock, MonotonicClock};
use parking_lot::Mutex;
use roster_config::OfflineConfig as Settings;
use roster_domain_cache::CacheError;
use roster_domain_cache::credentials::{
    CredentialChanges, FilterMatch, FilterMatches, MATCHES_PER_USER_MAX, MeasuredHashParams,
    StoredCredential,
};
use roster_domain_cache::password_hash::{HashError, HashParams, PasswordHash};
use roster_messages::{Message, RequestNumber, log, table::login};
use roster_provider::access::FilterOutcome;
use roster_provider::authenticator::{AuthOutcome, LoginUser};
use roster_provider::reason::Reason;
use roster_request::AuthResult;
use roster_secret::Secret;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::CredentialStore;
use tokio::sync::{Mutex as Turn, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until, timeout};
use tracing::trace;
use validity::{CredentialValidity, credential_validity, refusal_delay};

/// Concurrent checks of passwords, each with up to 64 MiB of memory.
const HASHES_AT_ONCE: usize = 2;
/// Concurrent hashes of passwords to store. No request waits for them, and others can log in meanwhile.
const STORED_AT_ONCE: usize = 1;
/// Concurrent checks of passwords that a directory refused. These guesses come from anywhere. They must not delay
/// logins while the directory is unreachable.
const COMPARED_AT_ONCE: usize = 1;
/// Interval of attempts to read an unreadable file for such a check.
const COMPARE_RETRY: Duration = Duration::from_secs(1);
/// Passwords that wait to be stored. Others are stored after the next login.
const WAITING_MAX: usize = 64;
/// Users with a digest of an unchanged password. Others are hashed again at their next login.
const REMEMBERED_MAX: usize = 4096;
/// Interval of the removal of old credentials and of removed users.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(600);
/// Interval of clock readings while the directory is reachable. Only then the host's clock is trusted.
const CLOCK_INTERVAL: Duration = Duration::from_secs(30);
/// Time limit of the last write. The monitor waits 5 seconds for the process to end.
const LAST_WRITE_WAIT: Duration = Duration::from_secs(2);
/// The time of the last login is written again if it is older than this fraction of the lifetime.
const LIFETIME_DIVISOR: u32 = 100;
/// Lifetime of a filter match in a domain without credentials.
const MATCH_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

/// The credentials of a domain's users.
pub struct OfflineAuth {
    cached: Option<OfflineState>,
    /// `None` if no credentials are stored.
    settings: Option<Settings>,
    time: Mutex<MonotonicClock>,
    clock: Box<dyn Clock>,
    /// Status of the directory; `None` if the provider does not confirm the clock, as for files.
    directory: Option<watch::Receiver<EngineStatus>>,
}

struct OfflineState {
    store: Arc<CredentialStore>,
    users: Arc<UserIndex>,
    user_locks: Mutex<HashMap<Vec<u8>, Arc<Turn<()>>>>,
    hashing: Semaphore,
    storing: Semaphore,
    waiting: Semaphore,
    comparing: Semaphore,
    guesses: Mutex<GuessLimit>,
    /// Counts removals of all credentials. Data that was read before one is not written after it.
    clear_count: AtomicU64,
    hash_params: Turn<Option<HashParams>>,
    /// Held while dates are corrected.
    correction_lock: Turn<()>,
    /// Keyed digests of the passwords that this process stored.
    remembered_digests: Mutex<HashMap<Vec<u8>, [u8; 32]>>,
    key: Secret,
}

/// Reasons why an offline check is impossible.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error(transparent)]
    Store(#[from] CacheError),
    #[error(transparent)]
    Hash(#[from] HashError),
    #[error("{}", .1)]
    Other(&'static Message, &'static str),
    #[error("the credential is removed, but not yet from the file: {0}")]
    Unwritten(Reason),
}

impl OfflineError {
    /// Returns the row of the table.
    pub fn message(&self) -> &'static Message {
        match self {
            Self::Store(_) => &login::CREDENTIALS_UNREADABLE,
            Self::Hash(_) => &login::OFFLINE_HASH_UNUSABLE,
            Self::Other(message, _) => message,
            Self::Unwritten(reason) => reason.message,
        }
    }

    /// Returns the error as a reason.
    pub fn reason(&self) -> Reason {
        Reason::new(self.message(), self.to_string())
    }
}

/// No memory for a copy of a password.
const NO_MEMORY: OfflineError =
    OfflineError::Other(&login::OFFLINE_HASH_UNUSABLE, "no memory for a password");

/// A credential for a password check.
enum UsableCredential {
    /// The credential, at this time.
    Now(StoredCredential, PasswordHash, u64),
    /// Locked until the first time. The second is the present time.
    Later(u64, u64),
}

/// A filter of access rules for one login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessFilter {
    /// The text, without templates.
    pub text: String,
    /// The text depends on the PAM service.
    pub is_of_service: bool,
}

/// The stored credential of a user, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialSummary {
    /// The user.
    pub name: Vec<u8>,
    /// Time of the last login that the directory verified.
    pub verified_unix: u64,
    /// Expiry.
    pub expires_unix: u64,
    /// Wrong passwords since then.
    pub failures: u32,
    /// End of the lockout; 0 if the user is not locked out.
    pub locked_until_unix: u64,
}

impl OfflineAuth {
    /// Makes an instance without stored credentials.
    #[must_use]
    pub fn disabled() -> Self {
        Self {
            cached: None,
            settings: None,
            time: Mutex::default(),
            clock: Box::new(monotonic_clock::HostClock::new()),
            directory: None,
        }
    }

    /// Opens the files in the domain's directory. [`maintain`](Self::maintain) retries if that fails. `directory` is
    /// the status of a directory that confirms the clock.
    #[must_use]
    pub fn open(
        folder: &Path,
        settings: Option<Settings>,
        people: Arc<UserIndex>,
        directory: Option<watch::Receiver<EngineStatus>>,
    ) -> Self {
        let clock = Box::new(monotonic_clock::HostClock::new());
        Self::with_store(CredentialStore::open(folder), clock, settings, people, directory)
    }

    fn with_store(
        store: Arc<CredentialStore>,
        clock: Box<dyn Clock>,
        settings: Option<Settings>,
        people: Arc<UserIndex>,
        directory: Option<watch::Receiver<EngineStatus>>,
    ) -> Self {
        let none = Self { clock, ..Self::disabled() };
        let Some(key) = random_key() else {
            log!(
                ERROR,
                &login::OFFLINE_LOGINS_DISABLED,
                "the kernel returned no random bytes; offline logins are disabled"
            );
            return none;
        };
        let kept = OfflineState {
            store,
            users: people,
            user_locks: Mutex::default(),
            hashing: Semaphore::new(HASHES_AT_ONCE),
            storing: Semaphore::new(STORED_AT_ONCE),
            waiting: Semaphore::new(WAITING_MAX),
            comparing: Semaphore::new(COMPARED_AT_ONCE),
            guesses: Mutex::default(),
            clear_count: AtomicU64::new(0),
            hash_params: Turn::default(),
            correction_lock: Turn::default(),
            remembered_digests: Mutex::default(),
            key,
        };
        Self { cached: Some(kept), settings, directory, ..none }
    }

    /// Returns the time for lifetimes and locks: the host's clock while the directory is reachable, otherwise never
    /// earlier than a time seen before.
    #[must_use]
    pub fn now_unix(&self) -> u64 {
        self.current_time(self.is_directory_online())
    }

    /// Whether the directory is reachable at present.
    #[must_use]
    pub fn is_directory_online(&self) -> bool {
        self.directory.as_ref().is_some_and(|news| news.borrow().online == Some(true))
    }

    fn current_time(&self, is_confirmed: bool) -> u64 {
        let mut time = self.time.lock();
        let reading = self.clock.read();
        if let Some(found) = self.cached.as_ref().and_then(|kept| kept.store.take_first_mark()) {
            time.raise_to(found, &reading);
        }
        if is_confirmed { time.confirm(&reading) } else { time.now(&reading) }
    }

    /// Returns the reason why the clock is not trusted; `None` if it is.
    #[must_use]
    pub fn clock_fault(&self) -> Option<Reason> {
        self.cached.as_ref()?;
        let _ = self.now_unix();
        self.time.lock().fault(&self.clock.read())
    }

    /// Returns the reason why the files cannot be read or written; `None` if they can.
    #[must_use]
    pub fn store_fault(&self) -> Option<Reason> {
        self.cache_and_settings().and_then(|(kept, _)| kept.store.fault())
    }

    /// Does the work of a failed offline check for an unknown name.
    pub async fn simulate_wrong_password(&self, name: &[u8]) {
        let Some((kept, settings)) = self.cache_and_settings() else { return };
        let refused = async {
            let due = tokio::time::Instant::now() + refusal_delay(settings);
            kept.hash_decoy(settings).await;
            sleep_until(due).await;
        };
        kept.with_user_lock(name, refused).await;
    }

    fn cache_and_settings(&self) -> Option<(&OfflineState, &Settings)> {
        Some((self.cached.as_ref()?, self.settings.as_ref()?))
    }

    /// Whether the user has a usable credential.
    #[must_use]
    pub fn has_credential(&self, person: &LoginUser) -> bool {
        let Some((kept, settings)) = self.cache_and_settings() else { return false };
        let Ok(Some(credential)) = kept.store.get(&person.name) else { return false };
        let standing = credential_validity(&credential, person.uid, self.now_unix(), settings);
        matches!(standing, CredentialValidity::Valid | CredentialValidity::LockedUntil(_))
    }

    /// Checks a password while the directory is unreachable. `unreachable` is the reply without a usable credential.
    pub async fn check_password(
        &self,
        person: &LoginUser,
        password: &Secret,
        unreachable: AuthOutcome,
    ) -> AuthOutcome {
        let Some((kept, settings)) = self.cache_and_settings() else { return unreachable };
        let checked = async {
            let due = tokio::time::Instant::now() + refusal_delay(settings);
            let checked = self.check_cached(kept, settings, person, password).await;
            let is_yes = |answer: &AuthOutcome| answer.result == AuthResult::Success;
            if !checked.as_ref().is_ok_and(|answer| answer.as_ref().is_some_and(is_yes)) {
                sleep_until(due).await;
            }
            checked
        };
        let checked = kept.with_user_lock(&person.name, checked).await;
        let result = checked.as_ref().map(|answer| answer.as_ref().map(|one| one.result.label()));
        trace!(?result, reason = unreachable.reason, "cached credential checked");
        match checked {
            Ok(Some(answer)) => {
                let why = format!("{}; {}", answer.reason, unreachable.reason);
                AuthOutcome { reason: why, is_offline: true, ..answer }
            }
            Ok(None) => {
                let reason = format!("{}; no cached credential", unreachable.reason);
                AuthOutcome { reason, message: Some(&login::OFFLINE_NO_CREDENTIAL), ..unreachable }
            }
            Err(trouble) => {
                let reason =
                    format!("{}; cached credential not usable: {trouble}", unreachable.reason);
                AuthOutcome { reason, message: Some(trouble.message()), ..unreachable }
            }
        }
    }

    async fn check_cached(
        &self,
        kept: &OfflineState,
        settings: &Settings,
        person: &LoginUser,
        password: &Secret,
    ) -> Result<Option<AuthOutcome>, OfflineError> {
        let emptied = kept.clear_count();
        let usable = self.find_usable(kept, settings, person).await;
        let (credential, hash, now) = match usable {
            Ok(Some(UsableCredential::Now(credential, hash, now))) => (credential, hash, now),
            other => {
                kept.hash_decoy(settings).await;
                let Some(UsableCredential::Later(until, now)) = other? else { return Ok(None) };
                let text = format!("locked for {} s", until.saturating_sub(now));
                let reason = Reason::new(&login::OFFLINE_LOCKED, text);
                return Ok(Some(AuthOutcome::for_reason(AuthResult::Locked, reason)));
            }
        };
        if kept.verify(hash, password).await? {
            if credential.failures > 0 {
                let forgiven = StoredCredential { failures: 0, failed_unix: 0, ..credential };
                self.store_credential(kept, &person.name, forgiven, emptied).await?;
            }
            if kept.clear_count() != emptied {
                return Ok(None);
            }
            let text = "Offline login: your password was checked against this host's cache.";
            let answer = AuthOutcome::with_reason(AuthResult::Success, "by the cached credential");
            return Ok(Some(answer.with_message(false, text)));
        }
        let failures = credential.failures.saturating_add(1);
        let counted = StoredCredential { failures, failed_unix: now, ..credential };
        // Written before the result is returned.
        self.store_credential(kept, &person.name, counted, emptied).await?;
        let text = format!("by the cached credential, {failures} consecutive failures");
        let reason = Reason::new(&login::OFFLINE_WRONG_PASSWORD, text);
        Ok(Some(AuthOutcome::for_reason(AuthResult::WrongPassword, reason)))
    }

    /// Returns the credential for a password check.
    async fn find_usable(
        &self,
        kept: &OfflineState,
        settings: &Settings,
        person: &LoginUser,
    ) -> Result<Option<UsableCredential>, OfflineError> {
        if kept.store.get(&person.name)?.is_none() {
            return Ok(None);
        }
        // The users of the domain may be unknown, as after a loss of its cache. The publisher is then trusted: it has
        // just stated that the domain serves that name and uid.
        let has = kept.has(person).await?;
        if has == Some(false) {
            kept.forget(&person.name).await?;
            return Ok(None);
        }
        let now = self.store_time(kept).await?;
        // Its dates may have been corrected.
        let Some(credential) = kept.store.get(&person.name)? else { return Ok(None) };
        match credential_validity(&credential, person.uid, now, settings) {
            CredentialValidity::Valid => {
                let hash = PasswordHash::parse(&credential.hash)?;
                Ok(Some(UsableCredential::Now(credential, hash, now)))
            }
            CredentialValidity::OtherUser => {
                if has.is_some() {
                    kept.forget(&person.name).await?;
                }
                Ok(None)
            }
            CredentialValidity::FromFuture => {
                let text = "the clock is behind the last online login";
                Err(OfflineError::Other(&login::OFFLINE_FROM_FUTURE, text))
            }
            CredentialValidity::Expired => {
                let text = "the last online login is too long ago";
                Err(OfflineError::Other(&login::OFFLINE_EXPIRED, text))
            }
            CredentialValidity::LockedUntil(until) => Ok(Some(UsableCredential::Later(until, now))),
        }
    }

    /// Processes a result of the directory. Writes happen after the reply was sent.
    pub fn record_result(
        self: &Arc<Self>,
        person: &LoginUser,
        password: &Secret,
        verdict: AuthResult,
    ) {
        if self.cache_and_settings().is_none() {
            return;
        }
        let what = match verdict {
            AuthResult::Success => CredentialUpdate::Verified,
            AuthResult::WrongPassword => CredentialUpdate::Wrong,
            AuthResult::MustChange
            | AuthResult::PasswordExpired
            | AuthResult::AccountExpired
            | AuthResult::Locked
            | AuthResult::Disabled
            | AuthResult::Denied
            | AuthResult::UnknownUser => CredentialUpdate::Disabled,
            AuthResult::NotHandled
            | AuthResult::Unreachable
            | AuthResult::Misconfigured
            | AuthResult::TooManyAttempts
            | AuthResult::NotPermitted
            | AuthResult::NewPasswordRefused => return,
        };
        self.current_time(true);
        self.schedule_update(person, password, what);
    }

    /// Stores a new password after a change.
    pub fn record_change(self: &Arc<Self>, person: &LoginUser, password: &Secret) {
        if self.cache_and_settings().is_some() {
            self.current_time(true);
            self.schedule_update(person, password, CredentialUpdate::Changed);
        }
    }

    /// Forgets the credential after a password change with an unknown result.
    pub fn record_possible_change(self: &Arc<Self>, person: &LoginUser, password: &Secret) {
        if self.cache_and_settings().is_some() {
            self.schedule_update(person, password, CredentialUpdate::Disabled);
        }
    }

    fn schedule_update(
        self: &Arc<Self>,
        person: &LoginUser,
        password: &Secret,
        what: CredentialUpdate,
    ) {
        let Some(password) = Secret::copy_of(password.as_bytes()) else { return };
        let (offline, person) = (Arc::clone(self), person.clone());
        let Some(emptied) = self.cached.as_ref().map(OfflineState::clear_count) else { return };
        let update = async move {
            let Some((kept, settings)) = offline.cache_and_settings() else { return };
            let learnt = match what {
                CredentialUpdate::Disabled => {
                    kept.with_user_lock(&person.name, kept.forget(&person.name)).await
                }
                CredentialUpdate::Wrong => {
                    kept.handle_wrong_password(&person.name, &password).await
                }
                CredentialUpdate::Verified | CredentialUpdate::Changed => {
                    let is_changed = what == CredentialUpdate::Changed;
                    let learnt = offline
                        .store_password(kept, settings, &person, &password, is_changed, emptied);
                    kept.with_user_lock(&person.name, learnt).await
                }
            };
            if let Err(trouble) = learnt {
                let user = person.name.escape_ascii();
                log!(
                    ERROR,
                    &login::CREDENTIAL_NOT_UPDATED,
                    %user,
                    "the cached credential was not updated: {trouble}"
                );
            }
        };
        tokio::spawn(RequestNumber::current().scope(update));
    }

    async fn store_password(
        &self,
        kept: &OfflineState,
        settings: &Settings,
        person: &LoginUser,
        password: &Secret,
        is_changed: bool,
        emptied: u64,
    ) -> Result<(), OfflineError> {
        let name = &person.name;
        let is_remembered = kept.is_remembered(name, password);
        if is_changed || is_remembered == Some(false) {
            // The old password is no longer valid, even if the new one cannot be stored.
            kept.forget_password(name).await?;
        }
        let now = self.store_time(kept).await?;
        let cost = kept.hash_params(settings).await?;
        // An unreadable credential is replaced.
        let before = kept.store.get(name).ok().flatten();
        let before = before.filter(|before| before.uid == person.uid);
        let same = before.filter(|before| {
            is_remembered == Some(true)
                && PasswordHash::parse(&before.hash).is_ok_and(|hash| hash.params() == cost)
        });
        if let Some(before) = same {
            let age = now.saturating_sub(before.verified_unix);
            let is_recent = age < (settings.life / LIFETIME_DIVISOR).as_secs();
            if !is_recent || before.failures > 0 {
                let seen =
                    StoredCredential { verified_unix: now, failures: 0, failed_unix: 0, ..before };
                self.store_credential(kept, name, seen, emptied).await?;
            }
            return Ok(());
        }
        let Ok(_place) = kept.waiting.try_acquire() else {
            // The stored hash may be of another password.
            return kept.forget_password(name).await;
        };
        let hash = match kept.hash(cost, password).await {
            Ok(hash) => hash,
            Err(trouble) => {
                kept.forget_password(name).await?;
                return Err(trouble);
            }
        };
        let credential = StoredCredential {
            uid: person.uid,
            hash,
            verified_unix: now,
            failures: 0,
            failed_unix: 0,
        };
        self.store_credential(kept, name, credential, emptied).await?;
        kept.remember(name, password);
        Ok(())
    }

    /// Stores a credential with the time of its date, unless all credentials were removed since `emptied` was read.
    async fn store_credential(
        &self,
        kept: &OfflineState,
        name: &[u8],
        credential: StoredCredential,
        emptied: u64,
    ) -> Result<(), OfflineError> {
        let mark = self.time.lock().mark();
        // The clock may have been corrected since the credential was read.
        let verified_unix = credential.verified_unix.min(mark.unix);
        let credential = StoredCredential { verified_unix, ..credential };
        let changes = CredentialChanges {
            clock_mark: Some(mark),
            ..CredentialChanges::credential(name, Some(credential))
        };
        kept.write(changes).await?;
        if kept.clear_count() == emptied { Ok(()) } else { kept.forget(name).await }
    }

    /// Returns the present time and stores it as the latest time seen. Credentials have dates of this clock.
    async fn store_time(&self, kept: &OfflineState) -> Result<u64, OfflineError> {
        let _correcting = kept.correction_lock.lock().await;
        let now = self.now_unix();
        // Credentials are refused until their dates are corrected.
        let _ = self.correct_dates(kept).await;
        let mark = self.time.lock().due_mark();
        if let Some(mark) = mark {
            kept.write(CredentialChanges {
                clock_mark: Some(mark),
                ..CredentialChanges::default()
            })
            .await?;
        }
        Ok(now)
    }

    /// Corrects dates of a clock that was moved since. Fails if that is impossible now.
    async fn correct_dates(&self, kept: &OfflineState) -> Result<(), OfflineError> {
        let (due, mark) = {
            let mut time = self.time.lock();
            let due = time.take_corrections();
            if due.is_empty() {
                return Ok(());
            }
            (due, time.mark())
        };
        log!(
            WARN,
            &login::CLOCK_CORRECTED,
            "the clock was moved; the dates of cached credentials are corrected"
        );
        let (store, corrections) = (Arc::clone(&kept.store), due.clone());
        let redated = move |unix| corrections.iter().fold(unix, |unix, one| one.corrected(unix));
        let corrected = run_blocking(move || store.redate(mark, redated)).await;
        match corrected {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.time.lock().restore_corrections(due);
                Err(error.into())
            }
            Err(ending) => Err(ending),
        }
    }

    /// Maintains the files for as long as it is polled: writes pending changes, corrects dates, and removes unneeded
    /// data.
    pub async fn maintain(&self) {
        let Some(kept) = &self.cached else { return std::future::pending().await };
        tokio::join!(
            kept.store.keep_written(),
            self.maintain_clock(kept),
            self.keep_removing_stale(kept)
        );
    }

    /// Writes pending changes.
    pub async fn close(&self) {
        let Some(kept) = &self.cached else { return };
        let store = Arc::clone(&kept.store);
        if timeout(LAST_WRITE_WAIT, run_blocking(move || store.write_waiting())).await.is_err() {
            log!(
                ERROR,
                &login::CREDENTIALS_LAST_CHANGES_LOST,
                "the last changes of cached credentials were not written"
            );
        }
    }

    async fn maintain_clock(&self, kept: &OfflineState) {
        let mut news = self.directory.clone();
        loop {
            let returns = async {
                match &mut news {
                    Some(news) if !self.is_directory_online() => {
                        let online = |news: &EngineStatus| news.online == Some(true);
                        if news.wait_for(online).await.is_err() {
                            std::future::pending::<()>().await;
                        }
                    }
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = returns => {}
                () = sleep(CLOCK_INTERVAL) => {}
            }
            let _ = self.now_unix();
            let _correcting = kept.correction_lock.lock().await;
            // A failed correction is made later.
            let _ = self.correct_dates(kept).await;
            let moved = self.time.lock().moved_mark();
            if let Some(mark) = moved {
                // An error means that the process ends.
                let _ = kept
                    .write(CredentialChanges {
                        clock_mark: Some(mark),
                        ..CredentialChanges::default()
                    })
                    .await;
            }
        }
    }

    /// Removes credentials of removed users, and old ones, from time to time.
    async fn keep_removing_stale(&self, kept: &OfflineState) {
        loop {
            if let Err(trouble) = self.remove_stale(kept).await {
                log!(
                    ERROR,
                    &login::CREDENTIALS_NOT_CLEANED,
                    "expired credentials cannot be removed: {trouble}"
                );
            }
            sleep(CLEANUP_INTERVAL).await;
        }
    }

    async fn remove_stale(&self, kept: &OfflineState) -> Result<(), OfflineError> {
        let now = self.store_time(kept).await?;
        let Some(settings) = &self.settings else {
            let store = Arc::clone(&kept.store);
            let is_empty = move || {
                Ok::<_, CacheError>(store.list()?.is_empty() && store.all_matches()?.is_empty())
            };
            if run_blocking(is_empty).await?? {
                return Ok(());
            }
            // The configuration no longer stores credentials.
            return kept
                .write(CredentialChanges { clears_all: true, ..CredentialChanges::default() })
                .await;
        };
        let is_old = |credential: &StoredCredential| {
            let is_too_old = credential_validity(credential, credential.uid, now, settings)
                == CredentialValidity::Expired;
            is_too_old && self.time.lock().may_delete(credential.verified_unix, &self.clock.read())
        };
        let mut gone = 0;
        let store = Arc::clone(&kept.store);
        for (name, credential) in run_blocking(move || store.list()).await?? {
            if !is_old(&credential) {
                continue;
            }
            let looked_at = async {
                // The user may have logged in since.
                let is_old = kept.store.get(&name)?.is_some_and(|now| is_old(&now));
                if is_old {
                    kept.forget(&name).await?;
                }
                Ok::<_, OfflineError>(is_old)
            };
            gone += u64::from(kept.with_user_lock(&name, looked_at).await?);
        }
        for name in kept.departed_users().await? {
            kept.with_user_lock(&name, kept.forget(&name)).await?;
            gone += 1;
        }
        if gone > 0 {
            tracing::info!("cached credentials of {gone} expired or removed users were deleted");
        }
        Ok(())
    }

    /// Returns the users with credentials, and their state.
    pub fn list(&self) -> Result<Vec<CredentialSummary>, CacheError> {
        let Some((kept, settings)) = self.cache_and_settings() else { return Ok(Vec::new()) };
        let now = self.now_unix();
        let listed = kept.store.list()?.into_iter().map(|(name, credential)| {
            let locked_until_unix =
                match credential_validity(&credential, credential.uid, now, settings) {
                    CredentialValidity::LockedUntil(until) => until,
                    CredentialValidity::Valid
                    | CredentialValidity::FromFuture
                    | CredentialValidity::Expired
                    | CredentialValidity::OtherUser => 0,
                };
            let StoredCredential { verified_unix, failures, .. } = credential;
            let expires_unix = verified_unix.saturating_add(settings.life.as_secs());
            CredentialSummary { name, verified_unix, expires_unix, failures, locked_until_unix }
        });
        Ok(listed.collect())
    }

    /// Forgets the credential of a user, or of all users if the name is empty. Returns the number of users.
    pub async fn forget(&self, name: &[u8]) -> Result<u64, OfflineError> {
        let Some(kept) = &self.cached else { return Ok(0) };
        if name.is_empty() {
            // A check in progress has read already. It notices this after its write.
            kept.clear_count.fetch_add(1, Ordering::SeqCst);
            kept.remembered_digests.lock().clear();
            let forgotten = kept.store.list().map_or(0, |listed| listed.len() as u64);
            kept.write(CredentialChanges { clears_all: true, ..CredentialChanges::default() })
                .await?;
            return self.check_written(forgotten);
        }
        let forgotten = async {
            let had = kept.store.get(name).is_ok_and(|credential| credential.is_some());
            kept.forget(name).await?;
            Ok::<_, OfflineError>(u64::from(had))
        };
        let forgotten = kept.with_user_lock(name, forgotten).await?;
        self.check_written(forgotten)
    }

    fn check_written(&self, forgotten: u64) -> Result<u64, OfflineError> {
        self.store_fault().map_or(Ok(forgotten), |fault| Err(OfflineError::Unwritten(fault)))
    }

    /// Records whether the directory's filter matched a user. A filter that depends on the service has a result for each
    /// of the last services.
    pub fn record_match(
        self: &Arc<Self>,
        user: &[u8],
        uid: u32,
        filter: &AccessFilter,
        matched: bool,
    ) {
        let Some(kept) = &self.cached else { return };
        let asked_unix = self.now_unix();
        let is_new = match kept.store.last_matches(user) {
            Ok(Some(before)) => before.find(uid, &filter.text).is_none_or(|before| {
                let age = asked_unix.saturating_sub(before.queried_unix);
                let is_old = age >= (self.match_lifetime() / LIFETIME_DIVISOR).as_secs();
                is_old || before.matched != matched
            }),
            _ => true,
        };
        if is_new {
            let text = filter.text.clone();
            let said = FilterMatch { uid, filter: text, matched, queried_unix: asked_unix };
            let limit = if filter.is_of_service { MATCHES_PER_USER_MAX } else { 1 };
            let (offline, user, emptied) = (Arc::clone(self), user.to_vec(), kept.clear_count());
            let store = async move {
                let Some(kept) = &offline.cached else { return };
                let put = kept.store_match(&user, said, limit, emptied);
                if let Err(trouble) = kept.with_user_lock(&user, put).await {
                    log!(
                        ERROR,
                        &login::FILTER_RESULT_NOT_STORED,
                        "the result of the access filter was not stored: {trouble}"
                    );
                }
            };
            tokio::spawn(RequestNumber::current().scope(store));
        }
    }

    /// Returns the stored filter match, because the directory is unreachable.
    pub fn last_match(&self, user: &[u8], uid: u32, filter: &str, why: &str) -> FilterOutcome {
        let Some(kept) = &self.cached else { return FilterOutcome::Unknown(why.to_owned()) };
        let before = kept.store.last_matches(user);
        let now = self.now_unix();
        let before = match before {
            Ok(before) => before.and_then(|before| before.find(uid, filter).cloned()),
            Err(error) => return FilterOutcome::Unknown(format!("{why}; {error}")),
        };
        let Some(before) = before else {
            return FilterOutcome::Unknown(format!("{why}; no earlier result"));
        };
        let age = Duration::from_secs(now.saturating_sub(before.queried_unix));
        if before.queried_unix > now || (before.matched && age > self.match_lifetime()) {
            return FilterOutcome::Unknown(format!("{why}; the earlier result is too old"));
        }
        FilterOutcome::Cached { matched: before.matched, age }
    }

    fn match_lifetime(&self) -> Duration {
        self.settings.as_ref().map_or(MATCH_LIFETIME, |settings| settings.life)
    }
}

/// The change that follows from a result of the directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CredentialUpdate {
    Verified,
    /// The password is new.
    Changed,
    Wrong,
    Disabled,
}

impl OfflineState {
    /// Returns the user's lock: checks of one user run one after the other.
    fn user_lock(&self, name: &[u8]) -> Arc<Turn<()>> {
        Arc::clone(self.user_locks.lock().entry(name.to_vec()).or_default())
    }

    /// Removes an unused lock.
    fn release_user_lock(&self, name: &[u8]) {
        let mut turns = self.user_locks.lock();
        if turns.get(name).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            turns.remove(name);
        }
    }

    /// Runs a task under the user's lock.
    async fn with_user_lock<T>(&self, name: &[u8], work: impl Future<Output = T>) -> T {
        let turn = self.user_lock(name);
        let done = {
            let _turn = turn.lock().await;
            work.await
        };
        drop(turn);
        self.release_user_lock(name);
        done
    }

    /// Must be read before any data that is written again.
    fn clear_count(&self) -> u64 {
        self.clear_count.load(Ordering::SeqCst)
    }

    async fn write(&self, changes: CredentialChanges) -> Result<(), OfflineError> {
        let store = Arc::clone(&self.store);
        run_blocking(move || store.write(changes)).await
    }

    async fn store_match(
        &self,
        name: &[u8],
        said: FilterMatch,
        limit: usize,
        emptied: u64,
    ) -> Result<(), OfflineError> {
        // Results that cannot be read are not worth a failure: the next login of the service stores one again.
        let before = self.store.last_matches(name).ok().flatten().unwrap_or_default();
        let all = before.with(said, limit);
        self.write(CredentialChanges::filter_matches(name, Some(all))).await?;
        if self.clear_count() == emptied { Ok(()) } else { self.forget(name).await }
    }

    async fn forget(&self, name: &[u8]) -> Result<(), OfflineError> {
        self.remembered_digests.lock().remove(name);
        let is_kept =
            !matches!((self.store.get(name), self.store.last_matches(name)), (Ok(None), Ok(None)));
        if is_kept { self.write(CredentialChanges::forget(name)).await } else { Ok(()) }
    }

    /// Forgets the password. The result of an access filter stays.
    async fn forget_password(&self, name: &[u8]) -> Result<(), OfflineError> {
        self.remembered_digests.lock().remove(name);
        let is_kept = !matches!(self.store.get(name), Ok(None));
        if is_kept { self.write(CredentialChanges::credential(name, None)).await } else { Ok(()) }
    }

    /// Returns users with credentials that are no longer in the domain.
    async fn departed_users(&self) -> Result<BTreeSet<Vec<u8>>, OfflineError> {
        let (store, people) = (Arc::clone(&self.store), Arc::clone(&self.users));
        let find = move || {
            let credentials = store.list()?.into_iter().map(|(name, kept)| (name, kept.uid));
            let uids = |(name, kept): (Vec<u8>, FilterMatches)| {
                kept.0.into_iter().map(move |one| (name.clone(), one.uid))
            };
            let matches = store.all_matches()?.into_iter().flat_map(uids);
            let all = credentials.chain(matches);
            let gone = all.filter(|(name, uid)| people.has(name, *uid) == Some(false));
            Ok::<_, CacheError>(gone.map(|(name, _)| name).collect())
        };
        Ok(run_blocking(find).await??)
    }

    /// Handles a password that the directory refused. If it is the stored one, the user is forgotten. A mistyped
    /// password changes nothing. Guesses above the limit are not checked and change nothing either.
    async fn handle_wrong_password(
        &self,
        name: &[u8],
        password: &Secret,
    ) -> Result<(), OfflineError> {
        match self.is_remembered(name, password) {
            Some(false) => Ok(()),
            Some(true) => self.with_user_lock(name, self.forget(name)).await,
            None if matches!(self.store.get(name), Ok(None)) => Ok(()),
            None if !self.guesses.lock().begin(name, Instant::now()) => Ok(()),
            None => {
                let compared = async {
                    // The file may have a credential and be unreadable now.
                    while self.store.get(name).is_err() {
                        sleep(COMPARE_RETRY).await;
                    }
                    let _permit = self.comparing.acquire().await;
                    self.with_user_lock(name, self.compare_wrong(name, password)).await
                };
                let compared = compared.await;
                self.guesses.lock().end(name);
                compared
            }
        }
    }

    async fn compare_wrong(&self, name: &[u8], password: &Secret) -> Result<(), OfflineError> {
        let Some(credential) = self.store.get(name)? else { return Ok(()) };
        let was_right = compare_hash(PasswordHash::parse(&credential.hash)?, password).await?;
        if was_right { self.forget(name).await } else { Ok(()) }
    }

    /// Whether the domain has that user; `None` while its users are unknown.
    async fn has(&self, person: &LoginUser) -> Result<Option<bool>, OfflineError> {
        if self.users.is_ready(&[]) {
            return Ok(self.users.has(&person.name, person.uid));
        }
        let (people, who) = (Arc::clone(&self.users), person.clone());
        // The changes since the last call may be a whole domain.
        run_blocking(move || people.has(&who.name, who.uid)).await
    }

    /// Does the work of a password check.
    async fn hash_decoy(&self, settings: &Settings) {
        let Ok(cost) = self.hash_params(settings).await else { return };
        let _permit = self.hashing.acquire().await;
        // The result is unused, also if it is an error.
        let _ = run_blocking(move || cost.hash(b"nobody")).await;
    }

    async fn verify(&self, hash: PasswordHash, password: &Secret) -> Result<bool, OfflineError> {
        let _permit = self.hashing.acquire().await;
        compare_hash(hash, password).await
    }

    async fn hash(&self, cost: HashParams, password: &Secret) -> Result<String, OfflineError> {
        let _permit = self.storing.acquire().await;
        let password = Secret::copy_of(password.as_bytes()).ok_or(NO_MEMORY)?;
        Ok(run_blocking(move || cost.hash(password.as_bytes())).await??)
    }

    /// Returns the hash parameters, measured once for that target time.
    async fn hash_params(&self, settings: &Settings) -> Result<HashParams, OfflineError> {
        let mut known = self.hash_params.lock().await;
        if let Some(cost) = *known {
            return Ok(cost);
        }
        let aim = settings.hash_time;
        let aim_us = u64::try_from(aim.as_micros()).unwrap_or(u64::MAX);
        let store = Arc::clone(&self.store);
        let cost = run_blocking(move || {
            if let Some(measured) = store.measured().filter(|before| before.target_us == aim_us) {
                return Ok(HashParams::from(measured));
            }
            let cost = HashParams::measure(aim)?;
            let HashParams { memory_kib, passes } = cost;
            let measured = Some(MeasuredHashParams { target_us: aim_us, memory_kib, passes });
            store.write(CredentialChanges {
                measured_params: measured,
                ..CredentialChanges::default()
            });
            Ok::<_, OfflineError>(cost)
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
        let mut remembered = self.remembered_digests.lock();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(name.to_vec(), digest);
    }

    /// Whether this is the password that this process stored; `None` if it stored none.
    fn is_remembered(&self, name: &[u8], password: &Secret) -> Option<bool> {
        let digest = self.digest(name, password)?;
        let remembered = self.remembered_digests.lock();
        // The digests have a secret key, so the time of a comparison reveals nothing.
        remembered.get(name).map(|before| *before == digest)
    }
}

async fn compare_hash(hash: PasswordHash, password: &Secret) -> Result<bool, OfflineError> {
    let password = Secret::copy_of(password.as_bytes()).ok_or(NO_MEMORY)?;
    Ok(run_blocking(move || hash.is_hash_of(password.as_bytes())).await??)
}

fn random_key() -> Option<Secret> {
    let mut key = Secret::with_capacity(32)?;
    let length = getrandom(&mut *key.spare_mut(), GetRandomFlags::empty()).ok()?;
    key.advance(length);
    (length >= 32).then_some(key)
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, OfflineError> {
    let ending = OfflineError::Other(&login::OFFLINE_STOPPING, "the backend is stopping");
    spawn_blocking(work).await.map_err(|_| ending)
}

#[cfg(test)]
mod tests;
