// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users and groups from passwd(5) and group(5) text. `file_watch` reports changes, and `stable_file` decides when a
//! file is complete.
//!
//! Reports the entries that glibc `files` would serve from the same text, and names the lines that it would skip. The
//! files are read again after possible changes. Replaced files are read at once, and written files after they are
//! stable. If a file is unreadable, all entries stay unchanged. Password fields are ignored.

use crate::account::Account;
use crate::file_watch::{FileChange, FileWatch, wait_for_change};
use crate::reason::Reason;
use crate::stable_file::{FileStamps, STABLE_FOR};
use crate::{
    DirectoryEntry, DirectoryGroup, EntryId, KeySearchResult, LookupKeys, LookupQuery, LookupScope,
    Member, Provider, SearchId, SyncCookie,
};
use crate::{DirectoryUser, EntrySink, LookupError, UnlistedEntries, UnreadableEntry, overrides};
use roster_config::{FilesConfig, HomeShellOverrides};
use roster_messages::{log, table};
use roster_passwd_format::is_nis;
use roster_passwd_format::lines::{self, GroupLine, ParsedLine};
use roster_request::TrackingMethod;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

const USERS: SearchId = SearchId(0);
const GROUPS: SearchId = SearchId(1);
/// Limit of a file. 256 MiB hold two million users.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Retry interval for files that cannot be read or watched.
const RETRY: Duration = Duration::from_secs(5);

/// Wait for a file with an incomplete last line, because its writer may have paused.
const INCOMPLETE_LINE_WAIT: Duration = Duration::from_secs(10);
/// Time of continuous writes after which a warning is logged.
const BUSY_WARNING_AFTER: Duration = Duration::from_secs(60);

/// The content of the files.
#[derive(PartialEq)]
struct FileTexts {
    passwd: Vec<u8>,
    group: Vec<u8>,
}

impl FileTexts {
    /// Returns the time after which unchanged files count as complete.
    fn stable_after(&self) -> Duration {
        let has_end = |text: &[u8]| text.last().is_none_or(|&last| last == b'\n');
        if has_end(&self.passwd) && has_end(&self.group) {
            STABLE_FOR
        } else {
            INCOMPLETE_LINE_WAIT
        }
    }
}

/// The provider.
pub struct FilesProvider {
    domain: String,
    files: FilesConfig,
    overrides: HomeShellOverrides,
    sink: Arc<dyn EntrySink>,
    refresh_requested: Notify,
}

impl FilesProvider {
    /// Makes a provider that reports the entries of the files to the sink.
    #[must_use]
    pub fn new(
        domain: &str,
        files: FilesConfig,
        overrides: HomeShellOverrides,
        sink: Arc<dyn EntrySink>,
    ) -> Self {
        Self { domain: domain.to_owned(), files, overrides, sink, refresh_requested: Notify::new() }
    }

    /// Reads both files when they are complete. They are complete if they were replaced, if there was no write for a
    /// while, or if their content is unchanged for a while. Fails at once if a file is missing or unreadable.
    async fn read_complete(
        &self,
        watch: &mut Option<FileWatch>,
        mut change: FileChange,
    ) -> Result<FileTexts, Reason> {
        let (began, mut is_said) = (Instant::now(), false);
        let mut seen: Option<(Instant, FileTexts)> = None;
        loop {
            let marks = self.file_stamps().await;
            let FilesConfig { passwd, group } = &self.files;
            let texts = FileTexts { passwd: read(passwd).await?, group: read(group).await? };
            // The event of a truncation arrives before the file can be read empty.
            if watch.as_mut().is_some_and(FileWatch::was_written) {
                change = FileChange::Written;
            }
            let settle_in = texts.stable_after();
            let has_settled = change == FileChange::Replaced
                || marks
                    .as_ref()
                    .is_some_and(|marks| marks.was_stable(SystemTime::now(), settle_in));
            if has_settled && self.file_stamps().await == marks {
                return Ok(texts);
            }
            seen = match seen {
                Some((when, before)) if before == texts => {
                    if when.elapsed() >= settle_in {
                        return Ok(texts);
                    }
                    Some((when, before))
                }
                _ => Some((Instant::now(), texts)),
            };
            // A file that was replaced during the read is read again. A written file has to become stable.
            if let Ok(FileChange::Written) | Err(_) =
                timeout(STABLE_FOR, wait_for_change(watch.as_mut())).await
            {
                change = FileChange::Written;
            }
            if began.elapsed() > BUSY_WARNING_AFTER && !std::mem::replace(&mut is_said, true) {
                log!(
                    WARN,
                    &table::directory::FILES_NEVER_STABLE,
                    "{}: files are written continuously; the last content stays served",
                    self.source()
                );
            }
        }
    }

    /// Returns the names of both files.
    fn source(&self) -> String {
        let FilesConfig { passwd, group } = &self.files;
        format!("{} and {}", passwd.display(), group.display())
    }

    async fn file_stamps(&self) -> Option<FileStamps> {
        let FilesConfig { passwd, group } = self.files.clone();
        // Runs in a blocking thread, because access to the files may block.
        let marks =
            tokio::task::spawn_blocking(move || FileStamps::from_paths(&[&passwd, &group], &[]));
        marks.await.ok().flatten()
    }

    /// Reports all entries of the files.
    fn report_entries(&self, texts: &FileTexts) {
        let FilesConfig { passwd, group } = &self.files;
        let FileTexts { passwd: users, group: groups } = texts;
        self.sink.online(&self.source(), None);
        self.refresh(USERS, passwd, users, lines::passwd_line, |user| {
            let text = |field: Option<&'_ [u8]>| Cow::Owned(field.unwrap_or_default().to_vec());
            let name = Cow::Borrowed(user.name);
            let (gecos, dir, shell) = (text(user.gecos), text(user.dir), text(user.shell));
            // Member lists have names of users only.
            let (uid, gid, reference) = (user.uid, user.gid, Cow::Borrowed(&b""[..]));
            let account = Account::default();
            let mut entry = DirectoryUser { name, uid, gid, gecos, dir, shell, reference, account };
            overrides::apply(&self.overrides, &self.domain, &mut entry);
            (user.name, DirectoryEntry::User(entry))
        });
        self.refresh(GROUPS, group, groups, lines::group_line, |line: GroupLine<'_>| {
            let members = line.members().map(|name| Member::Name(Cow::Borrowed(name))).collect();
            let name = line.group.name;
            let entry = DirectoryGroup {
                name: Cow::Borrowed(name),
                gid: Some(line.group.gid),
                reference: Cow::Borrowed(b""),
                members: Some(members),
            };
            (name, DirectoryEntry::Group(entry))
        });
        self.sink.flush();
    }

    fn refresh<'a, T>(
        &self,
        part: SearchId,
        path: &Path,
        text: &'a [u8],
        parse: impl Fn(&'a [u8]) -> ParsedLine<T>,
        entry: impl Fn(T) -> (&'a [u8], DirectoryEntry<'a>),
    ) {
        self.sink.refresh_began(part);
        let mut names = HashSet::new();
        for (number, line) in (1_u64..).zip(text.split(|&byte| byte == b'\n')) {
            let reject = |message, text: String| {
                let id = entry_id(part, b"line", &number.to_le_bytes());
                let name = format!("{}:{number}", path.display());
                let reason = Reason::new(message, text);
                let entry = UnreadableEntry { name: &name, reference: b"", reason: &reason };
                self.sink.rejected(part, id, &entry);
            };
            match parse(line) {
                ParsedLine::Blank => {}
                ParsedLine::Skipped(skip) => {
                    reject(&table::directory::LINE_MALFORMED, skip.to_string());
                }
                ParsedLine::Entry(parsed) => {
                    let (name, entry) = entry(parsed);
                    if is_nis(name) {
                        let text = "the line requests NIS, which is not supported";
                        reject(&table::directory::LINE_NIS, text.to_owned());
                    } else if names.insert(name) {
                        self.sink.put(part, entry_id(part, b"name", name), entry);
                    } else {
                        let text = "an earlier line has the same name";
                        reject(&table::directory::LINE_DUPLICATE, text.to_owned());
                    }
                }
            }
        }
        self.sink.refresh_ended(part, UnlistedEntries::Removed, None);
    }
}

impl Provider for FilesProvider {
    fn parts(&self) -> Vec<SearchId> {
        vec![USERS, GROUPS]
    }

    fn source_fingerprint(&self) -> String {
        format!("{:?}", self.overrides)
    }

    fn tracking_method(&self) -> Option<TrackingMethod> {
        Some(TrackingMethod::Inotify)
    }

    async fn mirror(&self, _cookies: Vec<(SearchId, SyncCookie)>) -> Reason {
        let mut watch = None;
        let mut change = FileChange::Written;
        loop {
            if watch.is_none() {
                let files = [self.files.passwd.clone(), self.files.group.clone()];
                let made = FileWatch::new(files).inspect_err(|error| {
                    log!(
                        WARN,
                        &table::directory::FILES_NOT_WATCHED,
                        "{}: files cannot be watched and are read every {} s: {error}",
                        self.source(),
                        RETRY.as_secs()
                    );
                });
                watch = made.ok();
            }
            let read = self.read_complete(&mut watch, change).await;
            let failed = read.is_err();
            match read {
                Ok(texts) => self.report_entries(&texts),
                Err(reason) => self.sink.offline(&reason),
            }
            let unwatched = failed || watch.is_none();
            tokio::select! {
                // A file that could not be read may still be written.
                how = wait_for_change(watch.as_mut()) => change = if failed { how.max(change) } else { how },
                () = self.refresh_requested.notified() => change = FileChange::Written,
                () = tokio::time::sleep(RETRY), if unwatched => change = FileChange::Written,
            }
        }
    }

    /// All entries are reported at all times. A lookup reads the files again.
    async fn lookup(&self, what: &LookupQuery) -> Result<bool, LookupError> {
        let texts = self
            .read_complete(&mut None, FileChange::Written)
            .await
            .map_err(LookupError::Unreachable)?;
        self.report_entries(&texts);
        let FileTexts { passwd: users, group: groups } = texts;
        let user = |found: &dyn Fn(&[u8], u32) -> bool| {
            users.split(|&byte| byte == b'\n').any(|line| match lines::passwd_line(line) {
                ParsedLine::Entry(user) => found(user.name, user.uid),
                _ => false,
            })
        };
        let group = |found: &dyn Fn(&[u8], u32) -> bool| {
            groups.split(|&byte| byte == b'\n').any(|line| match lines::group_line(line) {
                ParsedLine::Entry(line) => found(line.group.name, line.group.gid),
                _ => false,
            })
        };
        Ok(match what {
            LookupQuery::UserByName(name) | LookupQuery::GroupsOf(name) => {
                user(&|other, _| other == name)
            }
            LookupQuery::UserByUid(uid) => user(&|_, other| other == *uid),
            LookupQuery::GroupByName(name) => group(&|other, _| other == name),
            LookupQuery::GroupByGid(gid) => group(&|_, other| other == *gid),
        })
    }

    async fn lookup_all(&self, _: LookupScope, _: LookupKeys<'_>) -> Result<(), LookupError> {
        let texts = self
            .read_complete(&mut None, FileChange::Written)
            .await
            .map_err(LookupError::Unreachable)?;
        self.report_entries(&texts);
        Ok(())
    }

    /// Reads the files again. A complete file proves the absence of an entry.
    async fn search_keys(
        &self,
        of: LookupScope,
        _: &[(SearchId, EntryId)],
        _: &[EntryId],
    ) -> Result<KeySearchResult, LookupError> {
        let texts = self
            .read_complete(&mut None, FileChange::Written)
            .await
            .map_err(LookupError::Unreachable)?;
        self.report_entries(&texts);
        let found = match of {
            LookupScope::Users | LookupScope::UsersWithGroups => {
                let lines = texts.passwd.split(|&byte| byte == b'\n');
                let users = lines.filter_map(|line| match lines::passwd_line(line) {
                    ParsedLine::Entry(user) => Some(entry_id(USERS, b"name", user.name)),
                    _ => None,
                });
                users.collect()
            }
            LookupScope::Groups | LookupScope::GroupsWithMembers => {
                let lines = texts.group.split(|&byte| byte == b'\n');
                let groups = lines.filter_map(|line| match lines::group_line(line) {
                    ParsedLine::Entry(line) => Some(entry_id(GROUPS, b"name", line.group.name)),
                    _ => None,
                });
                groups.collect()
            }
        };
        Ok(KeySearchResult { found, is_credible: true })
    }

    fn refresh(&self) {
        self.refresh_requested.notify_one();
    }
}

/// Reads a file. The error names it.
async fn read(path: &Path) -> Result<Vec<u8>, Reason> {
    let failed = |error: io::Error| {
        let text = format!("{}: file cannot be read: {error}", path.display());
        Reason::new(&table::directory::FILE_UNREADABLE, text)
    };
    let file: PathBuf = path.to_owned();
    // Access to the file may block. It must not block the process.
    let read = tokio::task::spawn_blocking(move || {
        let mut text = Vec::new();
        roster_config::check_ownership(&file)
            .map_err(|problem| io::Error::other(problem.to_string()))?;
        File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
        Ok(text)
    });
    let read = read.await.map_err(|error| failed(io::Error::other(error)))?;
    let text = read.map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let largest = FILE_BYTES_MAX >> 20;
        let text = format!("{}: file is longer than {largest} MiB", path.display());
        return Err(Reason::new(&table::directory::FILE_TOO_LARGE, text));
    }
    Ok(text)
}

/// Returns a key that depends only on the name: the FNV-1a hash of 128 bits. It is the same on every host and in every
/// version.
fn entry_id(part: SearchId, what: &[u8], name: &[u8]) -> EntryId {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let texts = [&[part.0][..], what, b"\0", name];
    for &byte in texts.into_iter().flatten() {
        hash ^= u128::from(byte);
        hash = hash.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    EntryId(hash.to_be_bytes())
}
