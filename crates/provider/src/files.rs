//! Users and groups out of passwd(5) and group(5) text.
//!
//! Reports what `files` would serve from the same text, entry for entry, and names what it would
//! pass over. The files are read anew whenever they may have changed; when one of them cannot be
//! read, everything stays as it was. Password fields are nobody's business here.

use crate::watch::{Watch, changed};
use crate::{Cookie, Entry, EntryId, Group, LookUp, Of, Part, Provider, Sink, Unmentioned};
use crate::{Unanswered, User, overrides};
use roster_config::{Files, Overrides};
use roster_record::is_nis;
use roster_record::text::{self, GroupLine, Line};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const USERS: Part = Part(0);
const GROUPS: Part = Part(1);
/// A longer file is taken for a mistake: 256 MiB hold two million users.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// How soon to look again at files that cannot be read or watched.
const RETRY: Duration = Duration::from_secs(5);

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

    /// Reads both files and reports all that is in them.
    async fn report(&self) -> Result<(), String> {
        let Files { passwd, group } = &self.files;
        let (users, groups) = (read(passwd).await?, read(group).await?);
        self.sink.online(&format!("{} and {}", passwd.display(), group.display()), "");
        self.refresh(USERS, passwd, &users, text::passwd_line, |user| {
            let text = |field: Option<&'_ [u8]>| Cow::Owned(field.unwrap_or_default().to_vec());
            let name = Cow::Borrowed(user.name);
            let (gecos, dir, shell) = (text(user.gecos), text(user.dir), text(user.shell));
            let (uid, gid, reference) = (user.uid, user.gid, name.clone());
            let mut entry = User { name, uid, gid, gecos, dir, shell, reference };
            overrides::apply(&self.overrides, &self.domain, &mut entry);
            (user.name, Entry::User(entry))
        });
        self.refresh(GROUPS, group, &groups, text::group_line, |line: GroupLine<'_>| {
            let members = line.members().map(Cow::Borrowed).collect();
            let name = line.group.name;
            let entry = Group {
                name: Cow::Borrowed(name),
                gid: line.group.gid,
                // Lists hold names of users alone.
                reference: Cow::Borrowed(b""),
                members: Some(members),
            };
            (name, Entry::Group(entry))
        });
        self.sink.flush();
        Ok(())
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
                self.sink.rejected(part, id, &format!("{}:{number}", path.display()), reason);
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

    fn tracking(&self) -> Cow<'static, str> {
        "inotify".into()
    }

    async fn mirror(&self, _cookies: Vec<(Part, Cookie)>) -> String {
        let mut watch = None;
        loop {
            if watch.is_none() {
                let files = [self.files.passwd.clone(), self.files.group.clone()];
                let made = Watch::new(files).inspect_err(|error| {
                    tracing::warn!("cannot watch the files, looking every 5 s instead: {error}");
                });
                watch = made.ok();
            }
            let report = self.report().await;
            let failed = report.is_err();
            if let Err(reason) = report {
                self.sink.offline(&reason);
            }
            let unwatched = failed || watch.is_none();
            tokio::select! {
                () = changed(watch.as_mut()) => {}
                () = self.again.notified() => {}
                () = tokio::time::sleep(RETRY), if unwatched => {}
            }
        }
    }

    /// Everything is reported at all times; to ask is to read again.
    async fn look_up(&self, what: &LookUp) -> Result<bool, Unanswered> {
        self.report().await.map_err(Unanswered::Unreachable)?;
        let Files { passwd, group } = &self.files;
        let users = read(passwd).await.map_err(Unanswered::Unreachable)?;
        let groups = read(group).await.map_err(Unanswered::Unreachable)?;
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

    async fn look_up_all(&self, _: Of, _: &[Vec<u8>]) -> Result<(), Unanswered> {
        self.report().await.map_err(Unanswered::Unreachable)
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
