//! Keeps the two files of credentials open, and in memory what could not be written to them.
//!
//! A database refuses everything after its first error. So the files are opened again, with pauses, as the cache
//! is. Until then changes wait in memory, and readers see the file as if they were in it: a password that is to
//! be forgotten is forgotten, and a wrong one is counted. What waits is lost with the process. Decides nothing
//! about passwords.

use super::lock;
use roster_store::credentials::Measured;
use roster_store::credentials::{
    CREDENTIALS_FILE, Changes, Credential, Credentials, Mark, Match, Opened,
};
use roster_store::{SetAside, StoreError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// After an error: the first pause, which doubles up to the longest.
const RETRY_MIN: Duration = Duration::from_millis(500);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The credentials of a domain's users: the file, and what waits to be written to it.
pub struct CredentialStore {
    folder: PathBuf,
    /// Held by all that writes or opens, which may take as long as the disk does.
    writing: Mutex<()>,
    /// Held for moments.
    state: Mutex<State>,
    failed: Notify,
    #[cfg(test)]
    pub faults: Faults,
}

#[derive(Default)]
struct State {
    file: Option<Arc<Credentials>>,
    /// Changes that are not in the file, of every user the last. There are no more users than the domain has.
    waiting: Changes,
    /// Why they wait; empty if the file takes changes.
    error: String,
    was_opened: bool,
    /// The latest time that the file knew when it was opened first.
    found: Option<Mark>,
}

/// What a disk refuses in tests.
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
        Self::unopened(folder).opened()
    }

    fn unopened(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            writing: Mutex::default(),
            state: Mutex::default(),
            failed: Notify::new(),
            #[cfg(test)]
            faults: Faults::default(),
        }
    }

    fn opened(self) -> Arc<Self> {
        if let Err(error) = self.reopen() {
            tracing::error!(
                "passwords for offline logins cannot be read, and new ones are kept in memory; next attempt in \
                 {RETRY_MIN:?}: {error}"
            );
            lock(&self.state).error = error.to_string();
            self.failed.notify_one();
        }
        Arc::new(self)
    }

    /// The same with a file that cannot be opened, as long as `faults.opening` is set.
    #[cfg(test)]
    pub fn open_with_fault(folder: &Path) -> Arc<Self> {
        let store = Self::unopened(folder);
        store.faults.opening.store(true, std::sync::atomic::Ordering::SeqCst);
        store.opened()
    }

    /// What is kept of a user's password.
    ///
    /// # Errors
    ///
    /// The file cannot be read, and nothing in memory replaces it.
    pub fn get(&self, user: &[u8]) -> Result<Option<Credential>, StoreError> {
        let file = {
            let state = lock(&self.state);
            match state.waiting.credentials.get(user) {
                Some(waiting) => return Ok(waiting.clone()),
                None if state.waiting.forgets_all => return Ok(None),
                None => self.file(&state)?,
            }
        };
        self.noting_errors(file, |file| file.get(user))
    }

    /// What a filter said of a user last.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn matched(&self, user: &[u8]) -> Result<Option<Match>, StoreError> {
        let file = {
            let state = lock(&self.state);
            match state.waiting.matches.get(user) {
                Some(waiting) => return Ok(waiting.clone()),
                None if state.waiting.forgets_all => return Ok(None),
                None => self.file(&state)?,
            }
        };
        self.noting_errors(file, |file| file.matched(user))
    }

    /// What is kept of all users.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn list(&self) -> Result<Vec<(Vec<u8>, Credential)>, StoreError> {
        let (file, waiting) = self.both()?;
        let listed = self.noting_errors(file, Credentials::list)?;
        Ok(laid_over(listed, waiting.forgets_all, waiting.credentials))
    }

    /// What filters said of all users.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn all_matched(&self) -> Result<Vec<(Vec<u8>, Match)>, StoreError> {
        let (file, waiting) = self.both()?;
        let listed = self.noting_errors(file, Credentials::all_matched)?;
        Ok(laid_over(listed, waiting.forgets_all, waiting.matches))
    }

    /// How costly hashes are made, if that is known.
    #[must_use]
    pub fn measured(&self) -> Option<Measured> {
        let file = {
            let state = lock(&self.state);
            match state.waiting.measured {
                Some(measured) => return Some(measured),
                None => state.file.clone()?,
            }
        };
        self.noting_errors(file, Credentials::measured).ok().flatten()
    }

    /// The latest time that the file knew when it was opened first; told once.
    #[must_use]
    pub fn take_found(&self) -> Option<Mark> {
        lock(&self.state).found.take()
    }

    /// Makes changes, which are in the file or wait in memory when this returns. May take as long as the disk does.
    pub fn write(&self, changes: Changes) {
        let _writing = lock(&self.writing);
        self.make(changes);
    }

    /// Replaces the dates of everything that is kept by what `redated` makes of them.
    ///
    /// # Errors
    ///
    /// The file cannot be read: nothing has changed.
    pub fn redate(&self, mark: Mark, redated: impl Fn(u64) -> u64) -> Result<(), StoreError> {
        let _writing = lock(&self.writing);
        let mut changes = Changes { mark: Some(mark), ..Changes::default() };
        for (user, before) in self.list()? {
            let (verified_unix, failed_unix) =
                (redated(before.verified_unix), redated(before.failed_unix));
            let now = Credential { verified_unix, failed_unix, ..before.clone() };
            if now != before {
                changes.credentials.insert(user, Some(now));
            }
        }
        for (user, before) in self.all_matched()? {
            let asked_unix = redated(before.asked_unix);
            if asked_unix != before.asked_unix {
                changes.matches.insert(user, Some(Match { asked_unix, ..before }));
            }
        }
        self.make(changes);
        Ok(())
    }

    /// Why changes wait or nothing can be read, in words; empty if all is well.
    #[must_use]
    pub fn trouble(&self) -> String {
        let state = lock(&self.state);
        if state.error.is_empty() {
            return String::new();
        }
        let what = match state.file {
            Some(_) => {
                "passwords for offline logins are kept in memory, for the file takes no changes"
            }
            None => "passwords for offline logins cannot be read, and new ones are kept in memory",
        };
        format!("{what}: {}", state.error)
    }

    /// Opens the file again after an error, and writes what waits. Never over.
    pub async fn keep_written(self: &Arc<Self>) {
        let mut pause = RETRY_MIN;
        loop {
            if lock(&self.state).error.is_empty() {
                pause = RETRY_MIN;
                self.failed.notified().await;
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
            let store = Arc::clone(self);
            // An error is that the process ends.
            let _ = spawn_blocking(move || store.settle()).await;
        }
    }

    /// Writes what waits, if that is possible now.
    pub fn settle(&self) {
        let _writing = lock(&self.writing);
        if lock(&self.state).error.is_empty() {
            return;
        }
        let written = self.reopen().and_then(|()| {
            let (file, waiting) = self.both()?;
            self.write_to(&file, &waiting)
        });
        let mut state = lock(&self.state);
        match written {
            Ok(()) => {
                state.waiting = Changes::default();
                state.error.clear();
                tracing::info!("passwords for offline logins are written again");
            }
            Err(error) => {
                state.error = error.to_string();
                state.file = None;
                drop(state);
                // At once for reading, which a full disk does not hinder.
                let _ = self.reopen();
            }
        }
    }

    fn make(&self, changes: Changes) {
        let file = {
            let mut state = lock(&self.state);
            match state.file.clone().filter(|_| state.error.is_empty()) {
                Some(file) => file,
                None => return state.waiting.add(changes),
            }
        };
        if let Err(error) = self.write_to(&file, &changes) {
            drop(file);
            lock(&self.state).waiting.add(changes);
            self.close(&error);
            let _ = self.reopen();
        }
    }

    fn write_to(&self, file: &Credentials, changes: &Changes) -> Result<(), StoreError> {
        #[cfg(test)]
        if self.faults.writing.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(self.closed("No space left on device"));
        }
        file.write(changes)
    }

    /// Opens the file unless it is open.
    fn reopen(&self) -> Result<(), StoreError> {
        if lock(&self.state).file.is_some() {
            return Ok(());
        }
        #[cfg(test)]
        if self.faults.opening.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(self.closed("Input/output error"));
        }
        let Opened { credentials: file, set_aside, is_lost } = Credentials::open(&self.folder)?;
        for SetAside { path, reason, .. } in set_aside {
            let path = path.display();
            if is_lost {
                tracing::error!(
                    "what was kept of passwords was set aside as {path}; everybody has to log in once while \
                     the directory answers: {reason}"
                );
            } else {
                tracing::warn!(
                    "one of the two files of passwords was set aside as {path}, and made again from the other: \
                     {reason}"
                );
            }
        }
        let found = latest_dated(&file)?;
        let trouble = file.trouble();
        let mut state = lock(&self.state);
        state.file = Some(Arc::new(file));
        if !trouble.is_empty() && state.error.is_empty() {
            tracing::error!(
                "passwords for offline logins are in one file instead of two: {trouble}"
            );
            state.error = trouble;
            self.failed.notify_one();
        }
        if !std::mem::replace(&mut state.was_opened, true) {
            // One that was made meanwhile may be of a clock that was set back.
            let is_later = |mark: &Mark| mark.unix > found.unix;
            state.waiting.mark = state.waiting.mark.take().filter(is_later);
            state.found = Some(found);
        }
        Ok(())
    }

    /// No more of the file until it is opened again.
    fn close(&self, error: &StoreError) {
        let mut state = lock(&self.state);
        state.file = None;
        if state.error.is_empty() {
            tracing::error!(
                "passwords for offline logins are kept in memory until the file takes changes: {error}"
            );
        }
        state.error = error.to_string();
        drop(state);
        self.failed.notify_one();
    }

    fn noting_errors<T>(
        &self,
        file: Arc<Credentials>,
        read: impl FnOnce(&Credentials) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let result = read(&file);
        drop(file);
        if let Err(error @ (StoreError::Io { .. } | StoreError::Damaged { .. })) = &result {
            self.close(error);
        }
        result
    }

    fn both(&self) -> Result<(Arc<Credentials>, Changes), StoreError> {
        let state = lock(&self.state);
        Ok((self.file(&state)?, state.waiting.clone()))
    }

    fn file(&self, state: &State) -> Result<Arc<Credentials>, StoreError> {
        state.file.clone().ok_or_else(|| self.closed(&state.error))
    }

    fn closed(&self, reason: &str) -> StoreError {
        StoreError::Closed { path: self.folder.join(CREDENTIALS_FILE), reason: reason.to_owned() }
    }
}

fn laid_over<T>(
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

/// The latest time that a file knows. Earlier builds wrote the mark less often than credentials.
fn latest_dated(file: &Credentials) -> Result<Mark, StoreError> {
    let mark = file.mark()?;
    let dated = file.list()?.into_iter().map(|(_, kept)| kept.verified_unix).max();
    Ok(Mark { unix: mark.unix.max(dated.unwrap_or_default()), ..mark })
}
