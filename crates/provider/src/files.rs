//! Users and groups out of passwd(5) and group(5) text.
//!
//! Reports what `files` would serve from the same text, entry for entry, and names what it would
//! pass over. The files are read anew whenever they may have changed: at once where whole ones were put in
//! their place, and once they have settled where somebody wrote, or may have. When one of them cannot be
//! read, everything stays as it was. Password fields are nobody's business here.

use crate::account::Account;
use crate::settled::{Marks, SETTLED};
use crate::watch::{Change, Watch, changed};
use crate::{Cookie, Entry, EntryId, Group, Keys, LookUp, Looked, Member, Of, Part, Provider};
use crate::{Rejected, Sink, Unanswered, Unmentioned, User, overrides};
use roster_config::{Files, Overrides};
use roster_record::is_nis;
use roster_record::text::{self, GroupLine, Line};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Notify;
use tokio::time::timeout;

const USERS: Part = Part(0);
const GROUPS: Part = Part(1);
/// A longer file is taken for a mistake: 256 MiB hold two million users.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// How soon to look again at files that cannot be read or watched.
const RETRY: Duration = Duration::from_secs(5);

/// How long a file is left alone whose last line has no end: whoever writes it may have stopped to think.
const UNENDED: Duration = Duration::from_secs(10);
/// How long files may be written without a pause before that is worth a word.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the files hold.
#[derive(PartialEq)]
struct Texts {
    passwd: Vec<u8>,
    group: Vec<u8>,
}

impl Texts {
    /// How long they have to be the same to be believed.
    fn settle_in(&self) -> Duration {
        let has_end = |text: &[u8]| text.last().is_none_or(|&last| last == b'\n');
        if has_end(&self.passwd) && has_end(&self.group) { SETTLED } else { UNENDED }
    }
}

/// The provider.
pub struct FilesProvider {
    domain: String,
    files: Files,
    overrides: Overrides,
    sink: Arc<dyn Sink>,
    again: Notify,
}

impl FilesProvider {
    /// A provider that reports what is in the files into the sink.
    #[must_use]
    pub fn new(domain: &str, files: Files, overrides: Overrides, sink: Arc<dyn Sink>) -> Self {
        Self { domain: domain.to_owned(), files, overrides, sink, again: Notify::new() }
    }

    /// Reads both files when they are whole: when others were put in their place, when nobody has written
    /// for a while, or when they hold the same as a while before. With a file that is not there or cannot
    /// be read it comes back at once.
    async fn read_whole(
        &self,
        watch: &mut Option<Watch>,
        mut change: Change,
    ) -> Result<Texts, String> {
        let (began, mut is_said) = (Instant::now(), false);
        let mut seen: Option<(Instant, Texts)> = None;
        loop {
            let marks = self.marks().await;
            let Files { passwd, group } = &self.files;
            let texts = Texts { passwd: read(passwd).await?, group: read(group).await? };
            // Somebody who empties a file has that told before anybody can read it empty.
            if watch.as_mut().is_some_and(Watch::was_written) {
                change = Change::Written;
            }
            let settle_in = texts.settle_in();
            let has_settled = change == Change::Replaced
                || marks
                    .as_ref()
                    .is_some_and(|marks| marks.had_settled(SystemTime::now(), settle_in));
            if has_settled && self.marks().await == marks {
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
            // One that was replaced while it was read is read again; one that was written has to settle.
            if let Ok(Change::Written) | Err(_) = timeout(SETTLED, changed(watch.as_mut())).await {
                change = Change::Written;
            }
            if began.elapsed() > PATIENCE && !std::mem::replace(&mut is_said, true) {
                let files = format!("{} and {}", passwd.display(), group.display());
                tracing::warn!(
                    "{files} are written all the time; what was read last goes on counting"
                );
            }
        }
    }

    async fn marks(&self) -> Option<Marks> {
        let Files { passwd, group } = self.files.clone();
        // Where reading may wait, so may this.
        let marks = tokio::task::spawn_blocking(move || Marks::of(&[&passwd, &group], &[]));
        marks.await.ok().flatten()
    }

    /// Reports all that is in the files.
    fn report(&self, texts: &Texts) {
        let Files { passwd, group } = &self.files;
        let Texts { passwd: users, group: groups } = texts;
        self.sink.online(&format!("{} and {}", passwd.display(), group.display()), "");
        self.refresh(USERS, passwd, users, text::passwd_line, |user| {
            let text = |field: Option<&'_ [u8]>| Cow::Owned(field.unwrap_or_default().to_vec());
            let name = Cow::Borrowed(user.name);
            let (gecos, dir, shell) = (text(user.gecos), text(user.dir), text(user.shell));
            // Lists hold names of users alone.
            let (uid, gid, reference) = (user.uid, user.gid, Cow::Borrowed(&b""[..]));
            let account = Account::default();
            let mut entry = User { name, uid, gid, gecos, dir, shell, reference, account };
            overrides::apply(&self.overrides, &self.domain, &mut entry);
            (user.name, Entry::User(entry))
        });
        self.refresh(GROUPS, group, groups, text::group_line, |line: GroupLine<'_>| {
            let members = line.members().map(|name| Member::Name(Cow::Borrowed(name))).collect();
            let name = line.group.name;
            let entry = Group {
                name: Cow::Borrowed(name),
                gid: line.group.gid,
                reference: Cow::Borrowed(b""),
                members: Some(members),
            };
            (name, Entry::Group(entry))
        });
        self.sink.flush();
    }

    fn refresh<'a, T>(
        &self,
        part: Part,
        path: &Path,
        text: &'a [u8],
        parse: impl Fn(&'a [u8]) -> Line<T>,
        entry: impl Fn(T) -> (&'a [u8], Entry<'a>),
    ) {
        self.sink.refresh_began(part);
        let mut names = HashSet::new();
        for (number, line) in (1_u64..).zip(text.split(|&byte| byte == b'\n')) {
            let reject = |reason: &str| {
                let id = entry_id(part, b"line", &number.to_le_bytes());
                let name = format!("{}:{number}", path.display());
                self.sink.rejected(part, id, &Rejected { name: &name, reference: b"", reason });
            };
            match parse(line) {
                Line::Blank => {}
                Line::Skipped(skip) => reject(&skip.to_string()),
                Line::Entry(parsed) => {
                    let (name, entry) = entry(parsed);
                    if is_nis(name) {
                        reject("it is for NIS, which is not asked");
                    } else if names.insert(name) {
                        self.sink.put(part, entry_id(part, b"name", name), entry);
                    } else {
                        reject("an earlier line has the same name");
                    }
                }
            }
        }
        self.sink.refresh_ended(part, Unmentioned::Gone, None);
    }
}

impl Provider for FilesProvider {
    fn parts(&self) -> Vec<Part> {
        vec![USERS, GROUPS]
    }

    fn reading(&self) -> String {
        format!("{:?}", self.overrides)
    }

    fn tracking(&self) -> Cow<'static, str> {
        "inotify".into()
    }

    async fn mirror(&self, _cookies: Vec<(Part, Cookie)>) -> String {
        let mut watch = None;
        let mut change = Change::Written;
        loop {
            if watch.is_none() {
                let files = [self.files.passwd.clone(), self.files.group.clone()];
                let made = Watch::new(files).inspect_err(|error| {
                    tracing::warn!("cannot watch the files, looking every 5 s instead: {error}");
                });
                watch = made.ok();
            }
            let read = self.read_whole(&mut watch, change).await;
            let failed = read.is_err();
            match read {
                Ok(texts) => self.report(&texts),
                Err(reason) => self.sink.offline(&reason),
            }
            let unwatched = failed || watch.is_none();
            tokio::select! {
                // Of files that could not be read nobody knows whether they have settled since.
                how = changed(watch.as_mut()) => change = if failed { how.max(change) } else { how },
                () = self.again.notified() => change = Change::Written,
                () = tokio::time::sleep(RETRY), if unwatched => change = Change::Written,
            }
        }
    }

    /// Everything is reported at all times; to ask is to read again.
    async fn look_up(&self, what: &LookUp) -> Result<bool, Unanswered> {
        let texts =
            self.read_whole(&mut None, Change::Written).await.map_err(Unanswered::Unreachable)?;
        self.report(&texts);
        let Texts { passwd: users, group: groups } = texts;
        let user = |found: &dyn Fn(&[u8], u32) -> bool| {
            users.split(|&byte| byte == b'\n').any(|line| match text::passwd_line(line) {
                Line::Entry(user) => found(user.name, user.uid),
                _ => false,
            })
        };
        let group = |found: &dyn Fn(&[u8], u32) -> bool| {
            groups.split(|&byte| byte == b'\n').any(|line| match text::group_line(line) {
                Line::Entry(line) => found(line.group.name, line.group.gid),
                _ => false,
            })
        };
        Ok(match what {
            LookUp::UserByName(name) | LookUp::GroupsOf(name) => user(&|other, _| other == name),
            LookUp::UserByUid(uid) => user(&|_, other| other == *uid),
            LookUp::GroupByName(name) => group(&|other, _| other == name),
            LookUp::GroupByGid(gid) => group(&|_, other| other == *gid),
        })
    }

    async fn look_up_all(&self, _: Of, _: Keys<'_>) -> Result<(), Unanswered> {
        let texts =
            self.read_whole(&mut None, Change::Written).await.map_err(Unanswered::Unreachable)?;
        self.report(&texts);
        Ok(())
    }

    /// The files are read again. A file that is whole states by itself what it does not have.
    async fn look_for(
        &self,
        of: Of,
        _: &[(Part, EntryId)],
        _: &[EntryId],
    ) -> Result<Looked, Unanswered> {
        let texts =
            self.read_whole(&mut None, Change::Written).await.map_err(Unanswered::Unreachable)?;
        self.report(&texts);
        let found = match of {
            Of::Users | Of::UsersWithGroups => {
                let lines = texts.passwd.split(|&byte| byte == b'\n');
                let users = lines.filter_map(|line| match text::passwd_line(line) {
                    Line::Entry(user) => Some(entry_id(USERS, b"name", user.name)),
                    _ => None,
                });
                users.collect()
            }
            Of::Groups | Of::GroupsWithMembers => {
                let lines = texts.group.split(|&byte| byte == b'\n');
                let groups = lines.filter_map(|line| match text::group_line(line) {
                    Line::Entry(line) => Some(entry_id(GROUPS, b"name", line.group.name)),
                    _ => None,
                });
                groups.collect()
            }
        };
        Ok(Looked { found, is_credible: true })
    }

    fn refresh(&self) {
        self.again.notify_one();
    }
}

/// The file's bytes; an error that names it.
async fn read(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let file: PathBuf = path.to_owned();
    // A file may lie where reading waits; the rest of the process does not wait with it.
    let read = tokio::task::spawn_blocking(move || {
        let mut text = Vec::new();
        roster_config::check_ownership(&file)
            .map_err(|(what, instead)| io::Error::other(format!("{what}; {instead}")))?;
        File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
        Ok(text)
    });
    let read = read.await.map_err(|error| failed(io::Error::other(error)))?;
    let text = read.map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let largest = FILE_BYTES_MAX >> 20;
        return Err(format!("{} is longer than {largest} MiB", path.display()));
    }
    Ok(text)
}

/// A key that is the same as long as the name is, on every host and in every version: FNV-1a of
/// 128 bits.
fn entry_id(part: Part, what: &[u8], name: &[u8]) -> EntryId {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let texts = [&[part.0][..], what, b"\0", name];
    for &byte in texts.into_iter().flatten() {
        hash ^= u128::from(byte);
        hash = hash.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    EntryId(hash.to_be_bytes())
}
