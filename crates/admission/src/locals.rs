//! The host's own accounts, read from its passwd, group, subuid and subgid files.

use roster_config::{Host, USERS_GID};
use roster_record::text::{Line, group_line, passwd_line};
use roster_record::{Group, User, is_nis};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The name of group [`USERS_GID`].
const USERS_NAME: &[u8] = b"users";

/// The host's own accounts, which no directory may touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // names say it
pub struct Locals {
    pub user_names: HashSet<Vec<u8>>,
    pub uids: HashSet<u32>,
    pub group_names: HashSet<Vec<u8>>,
    pub gids: HashSet<u32>,
    /// Primary gids of local users.
    pub primary_gids: HashSet<u32>,
    pub subuids: IdRanges,
    pub subgids: IdRanges,
    /// Whether group [`USERS_GID`] has the name `users`.
    pub has_users_group: bool,
}

impl Locals {
    /// Whether `other` has all that this has.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.user_names.is_subset(&other.user_names)
            && self.uids.is_subset(&other.uids)
            && self.group_names.is_subset(&other.group_names)
            && self.gids.is_subset(&other.gids)
            && self.primary_gids.is_subset(&other.primary_gids)
            && self.subuids.is_subset(&other.subuids)
            && self.subgids.is_subset(&other.subgids)
            && self.has_users_group == other.has_users_group
    }

    /// Adds the accounts of `other`.
    pub fn add(&mut self, other: Self) {
        self.user_names.extend(other.user_names);
        self.uids.extend(other.uids);
        self.group_names.extend(other.group_names);
        self.gids.extend(other.gids);
        self.primary_gids.extend(other.primary_gids);
        self.subuids.add(other.subuids);
        self.subgids.add(other.subgids);
        // It lets more in, so that it counts when both say so.
        self.has_users_group &= other.has_users_group;
    }
}

/// Ranges of ids, first and last, in order and apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdRanges(Vec<(u32, u32)>);

impl IdRanges {
    /// From ranges in any order.
    #[must_use]
    pub fn new(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        ranges.dedup_by(|next, before| {
            let is_joined = next.0 <= before.1.saturating_add(1);
            if is_joined {
                before.1 = before.1.max(next.1);
            }
            is_joined
        });
        Self(ranges)
    }

    /// Whether an id lies in one of them.
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= id);
        after.checked_sub(1).is_some_and(|at| id <= self.0[at].1)
    }

    fn is_subset(&self, other: &Self) -> bool {
        let is_within = |&(first, last): &(u32, u32)| {
            let after = other.0.partition_point(|&(begin, _)| begin <= first);
            after.checked_sub(1).is_some_and(|at| last <= other.0[at].1)
        };
        self.0.iter().all(is_within)
    }

    fn add(&mut self, other: Self) {
        if !other.is_subset(self) {
            let mut all = std::mem::take(&mut self.0);
            all.extend(other.0);
            *self = Self::new(all);
        }
    }
}

/// The files that hold the host's own accounts.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // names say it
pub struct LocalFiles {
    pub passwd: PathBuf,
    pub group: PathBuf,
    pub subuid: PathBuf,
    pub subgid: PathBuf,
}

impl LocalFiles {
    /// Those of the configuration.
    #[must_use]
    pub fn new(host: &Host) -> Self {
        let Host { passwd, group, subuid, subgid, .. } = host.clone();
        Self { passwd, group, subuid, subgid }
    }

    /// For a watch.
    #[must_use]
    pub fn paths(&self) -> [PathBuf; 4] {
        let Self { passwd, group, subuid, subgid } = self.clone();
        [passwd, group, subuid, subgid]
    }

    /// Reads the files. Lines that `files` passes over are passed over.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or lacks root: it is being written.
    pub fn read(&self) -> io::Result<Locals> {
        let mut locals = read_accounts(&self.passwd, &self.group)?;
        locals.subuids = subordinate(&self.subuid)?;
        locals.subgids = subordinate(&self.subgid)?;
        Ok(locals)
    }
}

/// The ranges of subuid(5) or subgid(5). An absent file gives an empty list.
fn subordinate(file: &Path) -> io::Result<IdRanges> {
    if !file.try_exists().map_err(|error| unreadable(file, &error))? {
        return Ok(IdRanges::default());
    }
    let mut ranges = Vec::new();
    for_each_line(file, |line| ranges.extend(subordinate_line(line)))?;
    Ok(IdRanges::new(ranges))
}

/// First and last id of a line `OWNER:FIRST:COUNT`, and nothing of others.
fn subordinate_line(line: &[u8]) -> Option<(u32, u32)> {
    let mut fields = std::str::from_utf8(line).ok()?.trim().split(':');
    let (_owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
    let (first, count) = (first.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
    (fields.next().is_none() && count > 0).then(|| (first, first.saturating_add(count - 1)))
}

fn read_accounts(passwd: &Path, group: &Path) -> io::Result<Locals> {
    let mut locals = Locals::default();
    for_each_line(passwd, |line| {
        if let Line::Entry(User { name, uid, gid, .. }) = passwd_line(line)
            && !is_nis(name)
        {
            locals.user_names.insert(name.to_owned());
            locals.uids.insert(uid);
            locals.primary_gids.insert(gid);
        }
    })?;
    if !locals.uids.contains(&0) {
        return Err(not_whole(passwd, "user"));
    }
    for_each_line(group, |line| {
        if let Line::Entry(line) = group_line(line) {
            let Group { name, gid, .. } = line.group;
            if !is_nis(name) {
                locals.group_names.insert(name.to_owned());
                locals.gids.insert(gid);
                locals.has_users_group |= gid == USERS_GID && name == USERS_NAME;
            }
        }
    })?;
    if !locals.gids.contains(&0) {
        return Err(not_whole(group, "group"));
    }
    Ok(locals)
}

fn for_each_line(path: &Path, act: impl FnMut(&[u8])) -> io::Result<()> {
    let text = fs::read(path).map_err(|error| unreadable(path, &error))?;
    text.split(|&byte| byte == b'\n').for_each(act);
    Ok(())
}

fn unreadable(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
}

fn not_whole(path: &Path, what: &str) -> io::Error {
    io::Error::other(format!("{}: {what} 0 is missing: the file is not whole", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> LocalFiles {
        let [passwd, group, subuid, subgid] =
            ["passwd", "group", "subuid", "subgid"].map(|name| folder.join(name));
        LocalFiles { passwd, group, subuid, subgid }
    }

    #[test]
    fn files_without_root_are_not_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = files(folder.path());
        let LocalFiles { passwd, group, .. } = files.clone();
        let root = "root:x:0:0:root:/root:/bin/sh\n";
        for (users, groups, whole) in [
            (root, "root:x:0:\n", true),
            ("local:x:1500:1500::/:/bin/sh\n", "root:x:0:\n", false),
            (root, "", false),
            (root, "sudo:x:27:\n", false),
        ] {
            fs::write(&passwd, users).expect("write");
            fs::write(&group, groups).expect("write");
            assert_eq!(files.read().is_ok(), whole, "{users:?} {groups:?}");
        }
    }

    #[test]
    fn locals_hold_primary_gids_and_subordinate_ranges() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = files(folder.path());
        fs::write(&files.passwd, "root:x:0:0::/:/bin/sh\nbob:x:1500:1501::/:/bin/sh\n")
            .expect("write");
        fs::write(&files.group, "root:x:0:\nusers:x:100:\n").expect("write");
        let locals = files.read().expect("whole");
        assert_eq!((locals.primary_gids, locals.has_users_group), ([0, 1501].into(), true));
        assert_eq!((locals.subuids, locals.subgids), Default::default());
        fs::write(&files.subuid, "bob:100000:65536\nbad\n1500:165536:1\n\n#x:1:1:1\n")
            .expect("write");
        fs::write(&files.subgid, "bob:4294967295:9\nbob:7:0\n").expect("write");
        fs::write(&files.group, "root:x:0:\nusers:x:101:\nother:x:100:\n").expect("write");
        let locals = files.read().expect("whole");
        assert_eq!(locals.subuids, IdRanges(vec![(100_000, 165_536)]), "joined");
        assert_eq!(locals.subgids, IdRanges(vec![(u32::MAX, u32::MAX)]));
        assert!(!locals.has_users_group);
        fs::remove_file(&files.subuid).expect("remove");
        fs::create_dir(&files.subuid).expect("create");
        assert!(files.read().is_err(), "it is there and cannot be read");
    }

    #[test]
    fn ranges_answer_for_each_id() {
        let ranges = IdRanges::new(vec![(30, 40), (10, 20), (15, 25), (50, 50)]);
        assert_eq!(ranges, IdRanges(vec![(10, 25), (30, 40), (50, 50)]));
        let inside: Vec<u32> = (0..60).filter(|&id| ranges.contains(id)).collect();
        assert_eq!(inside, (10..=25).chain(30..=40).chain([50]).collect::<Vec<_>>());
        assert!(IdRanges::new(vec![(11, 12), (31, 40)]).is_subset(&ranges));
        assert!(!IdRanges::new(vec![(25, 30)]).is_subset(&ranges));
        let mut sum = ranges.clone();
        sum.add(IdRanges::new(vec![(25, 30)]));
        assert_eq!(sum, IdRanges(vec![(10, 40), (50, 50)]));
    }
}
