// SPDX-License-Identifier: MIT OR Apache-2.0
//! Manages the two files of credentials, and changes in memory that could not be written. `offline_auth` checks the
//! passwords, and `credentials` has the files.
//!
//! A database refuses everything after its first error. The files are therefore opened again, with pauses, as for the
//! cache. Until then changes wait in memory, and reads return the file with these changes. Removed passwords and
//! wrong attempts therefore count at once. Pending changes are lost with the process. This module does not check
//! passwords.

use parking_lot::Mutex;
use roster_domain_cache::credentials::MeasuredHashParams;
use roster_domain_cache::credentials::{
    CREDENTIALS_FILE, ClockMark, CredentialChanges, CredentialFiles, FilterMatch, FilterMatches,
    OpenedCredentials, StoredCredential,
};
use roster_domain_cache::{CacheError, QuarantinedFile};
use roster_messages::{log, table::login};
use roster_provider::reason::Reason;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// First pause after an error. It doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(500);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// State of a file that cannot be opened.
const UNREADABLE: &str = "cached credentials cannot be read, and new ones stay in memory";
/// State of a file that does not accept changes.
const NOT_WRITTEN: &str = "cached credentials cannot be written and stay in memory";

/// The credentials of a domain's users: the file, and pending changes.
pub struct CredentialStore {
    dir: PathBuf,
    /// Held during writes and opens, for as long as the disk takes.
    writing: Mutex<()>,
    /// Held only for short times.
    state: Mutex<CredentialStoreState>,
    failed: Notify,
    #[cfg(test)]
    pub faults: Faults,
}

#[derive(Default)]
struct CredentialStoreState {
    file: Option<Arc<CredentialFiles>>,
    /// Changes that are not in the file, the last of each user. There are no more users than in the domain.
    waiting: CredentialChanges,
    /// The reason why they wait; empty if the file can be written.
    error: String,
    was_opened: bool,
    /// The latest time in the file at its first open.
    first_mark: Option<ClockMark>,
}

/// Simulated disk faults in tests.
#[cfg(test)]
#[derive(Default)]
pub struct Faults {
    pub opening: std::sync::atomic::AtomicBool,
    pub writing: std::sync::atomic::AtomicBool,
}

impl CredentialStore {
    /// Opens the file in `folder`. If that fails, [`keep_written`](Self::keep_written) tries again.
    #[must_use]
    pub fn open(folder: &Path) -> Arc<Self> {
        Self::new_closed(folder).into_opened()
    }

    fn new_closed(folder: &Path) -> Self {
        Self {
            dir: folder.to_owned(),
            writing: Mutex::default(),
            state: Mutex::default(),
            failed: Notify::new(),
            #[cfg(test)]
            faults: Faults::default(),
        }
    }

    fn into_opened(self) -> Arc<Self> {
        if let Err(error) = self.reopen() {
            log!(
                ERROR,
                &login::CREDENTIALS_UNREADABLE,
                "{UNREADABLE}; next attempt in {RETRY_MIN:?}: {error}"
            );
            self.state.lock().error = error.to_string();
            self.failed.notify_one();
        }
        Arc::new(self)
    }

    /// Makes a store with a file that cannot be opened as long as `faults.opening` is set.
    #[cfg(test)]
    pub fn open_with_fault(folder: &Path) -> Arc<Self> {
        let store = Self::new_closed(folder);
        store.faults.opening.store(true, std::sync::atomic::Ordering::SeqCst);
        store.into_opened()
    }

    /// Returns the credential of a user.
    ///
    /// # Errors
    ///
    /// The file cannot be read, and nothing in memory replaces it.
    pub fn get(&self, user: &[u8]) -> Result<Option<StoredCredential>, CacheError> {
        let file = {
            let state = self.state.lock();
            match state.waiting.credentials.get(user) {
                Some(waiting) => return Ok(waiting.clone()),
                None if state.waiting.clears_all => return Ok(None),
                None => self.file(&state)?,
            }
        };
        self.close_on_error(file, |file| file.get(user))
    }

    /// Returns the last filter matches of a user.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn last_matches(&self, user: &[u8]) -> Result<Option<FilterMatches>, CacheError> {
        let file = {
            let state = self.state.lock();
            match state.waiting.matches.get(user) {
                Some(waiting) => return Ok(waiting.clone()),
                None if state.waiting.clears_all => return Ok(None),
                None => self.file(&state)?,
            }
        };
        self.close_on_error(file, |file| file.filter_matches_of(user))
    }

    /// Returns the credentials of all users.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn list(&self) -> Result<Vec<(Vec<u8>, StoredCredential)>, CacheError> {
        let (file, waiting) = self.file_and_changes()?;
        let listed = self.close_on_error(file, CredentialFiles::list)?;
        Ok(overlay_changes(listed, waiting.clears_all, waiting.credentials))
    }

    /// Returns the last filter matches of all users.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn all_matches(&self) -> Result<Vec<(Vec<u8>, FilterMatches)>, CacheError> {
        let (file, waiting) = self.file_and_changes()?;
        let listed = self.close_on_error(file, CredentialFiles::filter_matches)?;
        Ok(overlay_changes(listed, waiting.clears_all, waiting.matches))
    }

    /// Returns the measured hash parameters, if they are known.
    #[must_use]
    pub fn measured(&self) -> Option<MeasuredHashParams> {
        let file = {
            let state = self.state.lock();
            match state.waiting.measured_params {
                Some(measured) => return Some(measured),
                None => state.file.clone()?,
            }
        };
        self.close_on_error(file, CredentialFiles::measured_params).ok().flatten()
    }

    /// Returns the latest time in the file at its first open, once.
    #[must_use]
    pub fn take_first_mark(&self) -> Option<ClockMark> {
        self.state.lock().first_mark.take()
    }

    /// Applies changes. They are in the file or wait in memory when this returns. May take as long as the disk does.
    pub fn write(&self, changes: CredentialChanges) {
        let _writing = self.writing.lock();
        self.apply_changes(changes);
    }

    /// Replaces all stored dates with the results of `redated`.
    ///
    /// # Errors
    ///
    /// The file cannot be read. Nothing has changed.
    pub fn redate(&self, mark: ClockMark, redated: impl Fn(u64) -> u64) -> Result<(), CacheError> {
        let _writing = self.writing.lock();
        let mut changes =
            CredentialChanges { clock_mark: Some(mark), ..CredentialChanges::default() };
        for (user, before) in self.list()? {
            let (verified_unix, failed_unix) =
                (redated(before.verified_unix), redated(before.failed_unix));
            let now = StoredCredential { verified_unix, failed_unix, ..before.clone() };
            if now != before {
                changes.credentials.insert(user, Some(now));
            }
        }
        for (user, before) in self.all_matches()? {
            let redated = |one: &FilterMatch| FilterMatch {
                queried_unix: redated(one.queried_unix),
                ..one.clone()
            };
            let now = FilterMatches(before.0.iter().map(redated).collect());
            if now != before {
                changes.matches.insert(user, Some(now));
            }
        }
        self.apply_changes(changes);
        Ok(())
    }

    /// Returns the reason why changes wait or reads fail; `None` without a fault.
    #[must_use]
    pub fn fault(&self) -> Option<Reason> {
        let state = self.state.lock();
        if state.error.is_empty() {
            return None;
        }
        let (message, what) = match state.file {
            Some(_) => (&login::CREDENTIALS_NOT_WRITTEN, NOT_WRITTEN),
            None => (&login::CREDENTIALS_UNREADABLE, UNREADABLE),
        };
        Some(Reason::new(message, format!("{what}: {}", state.error)))
    }

    /// Opens the file again after an error, and writes pending changes. Runs forever.
    pub async fn keep_written(self: &Arc<Self>) {
        let mut pause = RETRY_MIN;
        loop {
            if self.state.lock().error.is_empty() {
                pause = RETRY_MIN;
                self.failed.notified().await;
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
            let store = Arc::clone(self);
            // An error means that the process ends.
            let _ = spawn_blocking(move || store.write_waiting()).await;
        }
    }

    /// Writes pending changes, if that is possible now.
    pub fn write_waiting(&self) {
        let _writing = self.writing.lock();
        if self.state.lock().error.is_empty() {
            return;
        }
        let written = self.reopen().and_then(|()| {
            let (file, waiting) = self.file_and_changes()?;
            self.write_to(&file, &waiting)
        });
        let mut state = self.state.lock();
        match written {
            Ok(()) => {
                state.waiting = CredentialChanges::default();
                state.error.clear();
                tracing::info!("cached credentials are written again");
            }
            Err(error) => {
                state.error = error.to_string();
                state.file = None;
                drop(state);
                // Reopened at once for reads, which a full disk does not prevent.
                let _ = self.reopen();
            }
        }
    }

    fn apply_changes(&self, changes: CredentialChanges) {
        let file = {
            let mut state = self.state.lock();
            match state.file.clone().filter(|_| state.error.is_empty()) {
                Some(file) => file,
                None => return state.waiting.add(changes),
            }
        };
        if let Err(error) = self.write_to(&file, &changes) {
            drop(file);
            self.state.lock().waiting.add(changes);
            self.close(&error);
            let _ = self.reopen();
        }
    }

    fn write_to(
        &self,
        file: &CredentialFiles,
        changes: &CredentialChanges,
    ) -> Result<(), CacheError> {
        #[cfg(test)]
        if self.faults.writing.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(self.closed("No space left on device"));
        }
        file.write(changes)
    }

    /// Opens the file unless it is open.
    fn reopen(&self) -> Result<(), CacheError> {
        if self.state.lock().file.is_some() {
            return Ok(());
        }
        #[cfg(test)]
        if self.faults.opening.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(self.closed("Input/output error"));
        }
        let OpenedCredentials { credentials: file, quarantined: set_aside, is_lost } =
            CredentialFiles::open(&self.dir)?;
        for QuarantinedFile { path, reason, .. } in set_aside {
            let path = path.display();
            if is_lost {
                log!(
                    ERROR,
                    &login::CREDENTIALS_LOST,
                    "cached credentials were damaged and moved to {path}; users must log in once online: {reason}"
                );
            } else {
                log!(
                    WARN,
                    &login::CREDENTIALS_RESTORED,
                    "a file of cached credentials was damaged and moved to {path}, and replaced from the second \
                     file: {reason}"
                );
            }
        }
        let found = latest_date(&file)?;
        let trouble = file.missing_copy_reason();
        let mut state = self.state.lock();
        state.file = Some(Arc::new(file));
        if !trouble.is_empty() && state.error.is_empty() {
            log!(
                ERROR,
                &login::CREDENTIALS_ONE_COPY,
                "cached credentials are in one file instead of two: {trouble}"
            );
            state.error = trouble;
            self.failed.notify_one();
        }
        if !std::mem::replace(&mut state.was_opened, true) {
            // A mark from the meantime may be of a clock that was set back.
            let is_later = |mark: &ClockMark| mark.unix > found.unix;
            state.waiting.clock_mark = state.waiting.clock_mark.take().filter(is_later);
            state.first_mark = Some(found);
        }
        Ok(())
    }

    /// Closes the file until it is opened again.
    fn close(&self, error: &CacheError) {
        let mut state = self.state.lock();
        state.file = None;
        if state.error.is_empty() {
            log!(ERROR, &login::CREDENTIALS_NOT_WRITTEN, "{NOT_WRITTEN}: {error}");
        }
        state.error = error.to_string();
        drop(state);
        self.failed.notify_one();
    }

    fn close_on_error<T>(
        &self,
        file: Arc<CredentialFiles>,
        read: impl FnOnce(&CredentialFiles) -> Result<T, CacheError>,
    ) -> Result<T, CacheError> {
        let result = read(&file);
        drop(file);
        if let Err(error @ (CacheError::Io { .. } | CacheError::Damaged { .. })) = &result {
            self.close(error);
        }
        result
    }

    fn file_and_changes(&self) -> Result<(Arc<CredentialFiles>, CredentialChanges), CacheError> {
        let state = self.state.lock();
        Ok((self.file(&state)?, state.waiting.clone()))
    }

    fn file(&self, state: &CredentialStoreState) -> Result<Arc<CredentialFiles>, CacheError> {
        state.file.clone().ok_or_else(|| self.closed(&state.error))
    }

    fn closed(&self, reason: &str) -> CacheError {
        CacheError::Closed { path: self.dir.join(CREDENTIALS_FILE), reason: reason.to_owned() }
    }
}

fn overlay_changes<T>(
    listed: Vec<(Vec<u8>, T)>,
    forgets_all: bool,
    waiting: BTreeMap<Vec<u8>, Option<T>>,
) -> Vec<(Vec<u8>, T)> {
    let listed = if forgets_all { Vec::new() } else { listed };
    let mut all: BTreeMap<Vec<u8>, T> = listed.into_iter().collect();
    for (user, waiting) in waiting {
        match waiting {
            Some(kept) => {
                all.insert(user, kept);
            }
            None => {
                all.remove(&user);
            }
        }
    }
    all.into_iter().collect()
}

/// Returns the latest time in a file. Earlier builds wrote the mark less often than credentials.
fn latest_date(file: &CredentialFiles) -> Result<ClockMark, CacheError> {
    let mark = file.clock_mark()?;
    let dated = file.list()?.into_iter().map(|(_, kept)| kept.verified_unix).max();
    Ok(ClockMark { unix: mark.unix.max(dated.unwrap_or_default()), ..mark })
}
