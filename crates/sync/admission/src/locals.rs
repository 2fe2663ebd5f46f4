// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's own accounts, read from its passwd, group, subuid and subgid files. The publisher decides when they are
//! read again (`local_accounts`).

use crate::name_set::NameSet;
use crate::shells;
use roster_config::{ETC_SHELLS, HostConfig, USERS_GID};
use roster_passwd_format::lines::{ParsedLine, group_line, passwd_line};
use roster_passwd_format::{Group, User, is_nis};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The name of group [`USERS_GID`].
const USERS_NAME: &[u8] = b"users";

/// The host's own accounts, with which no directory entry may collide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // names say it
pub struct Locals {
    pub user_names: NameSet,
    pub uids: HashSet<u32>,
    pub group_names: NameSet,
    pub gids: HashSet<u32>,
    /// Primary gids of local users.
    pub primary_gids: HashSet<u32>,
    pub subuids: IdRanges,
    pub subgids: IdRanges,
    /// Group [`USERS_GID`] has the name `users`.
    pub has_users_group: bool,
    /// Paths in shells(5). Empty if no domain needs them.
    pub shells: HashSet<Vec<u8>>,
}

impl Locals {
    /// Returns whether `other` has all accounts of this set.
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
            && self.shells.is_subset(&other.shells)
    }

    /// Adds the accounts of `other`.
    pub fn add(&mut self, other: Self) {
        self.user_names.add(other.user_names);
        self.uids.extend(other.uids);
        self.group_names.add(other.group_names);
        self.gids.extend(other.gids);
        self.primary_gids.extend(other.primary_gids);
        self.subuids.add(other.subuids);
        self.subgids.add(other.subgids);
        // A file that is being written may lack shells that users have.
        self.shells.extend(other.shells);
        // The flag allows more entries, so both must have it.
        self.has_users_group &= other.has_users_group;
    }
}

/// Ranges of ids, each with its first and last id, sorted and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdRanges(Vec<(u32, u32)>);

impl IdRanges {
    /// Merges ranges in any order.
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

    /// Returns whether a range contains the id.
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

/// The files with the host's own accounts.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // names say it
pub struct LocalFiles {
    pub passwd: PathBuf,
    pub group: PathBuf,
    pub subuid: PathBuf,
    pub subgid: PathBuf,
    /// shells(5), if a domain needs it.
    pub shells: Option<PathBuf>,
}

impl LocalFiles {
    /// Returns the configured files, without shells(5).
    #[must_use]
    pub fn new(host: &HostConfig) -> Self {
        let HostConfig { passwd, group, subuid, subgid, .. } = host.clone();
        Self { passwd, group, subuid, subgid, shells: None }
    }

    /// Returns the files with shells(5) if `needed`.
    #[must_use]
    pub fn with_shells(self, needed: bool) -> Self {
        Self { shells: needed.then(|| PathBuf::from(ETC_SHELLS)), ..self }
    }

    /// Returns the paths for a watch.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let Self { passwd, group, subuid, subgid, shells } = self.clone();
        [passwd, group, subuid, subgid].into_iter().chain(shells).collect()
    }

    /// Reads the files. Skips the lines that glibc `files` skips.
    ///
    /// # Errors
    ///
    /// A file is unreadable, or lacks root because it is being written.
    pub fn read(&self) -> io::Result<Locals> {
        let mut locals = read_accounts(&self.passwd, &self.group)?;
        locals.subuids = subordinate(&self.subuid)?;
        locals.subgids = subordinate(&self.subgid)?;
        if let Some(file) = &self.shells {
            locals.shells = read_shells(file)?;
        }
        Ok(locals)
    }
}

/// Reads shells(5). Without the file the shells of getusershell(3) count.
///
/// # Errors
///
/// The file is unreadable.
pub fn read_shells(file: &Path) -> io::Result<HashSet<Vec<u8>>> {
    match fs::read(file) {
        Ok(text) => Ok(shells::parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(shells::without_file()),
        Err(error) => Err(unreadable(file, &error)),
    }
}

/// Reads the ranges of subuid(5) or subgid(5). An absent file gives an empty list.
fn subordinate(file: &Path) -> io::Result<IdRanges> {
    if !file.try_exists().map_err(|error| unreadable(file, &error))? {
        return Ok(IdRanges::default());
    }
    let mut ranges = Vec::new();
    for_each_line(file, |line| ranges.extend(subordinate_line(line)))?;
    Ok(IdRanges::new(ranges))
}

/// Parses a line `OWNER:FIRST:COUNT` to the first and last id. Returns `None` for other lines.
fn subordinate_line(line: &[u8]) -> Option<(u32, u32)> {
    let mut fields = std::str::from_utf8(line).ok()?.trim().split(':');
    let (_owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
    // newuidmap(1) accepts ranges beyond 32 bits. The part within 32 bits counts.
    let (first, count) = (first.parse::<u64>().ok()?, count.parse::<u64>().ok()?);
    let last = first.saturating_add(count.checked_sub(1)?).min(u32::MAX.into());
    let ids = u32::try_from(first).ok()?..=u32::try_from(last).ok()?;
    fields.next().is_none().then(|| ids.into_inner())
}

fn read_accounts(passwd: &Path, group: &Path) -> io::Result<Locals> {
    let mut locals = Locals::default();
    for_each_line(passwd, |line| {
        if let ParsedLine::Entry(User { name, uid, gid, .. }) = passwd_line(line)
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
        if let ParsedLine::Entry(line) = group_line(line) {
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
        LocalFiles { passwd, group, subuid, subgid, shells: Some(folder.join("shells")) }
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
        assert_eq!(locals.shells, shells::without_file());
        fs::write(files.shells.as_ref().unwrap(), "/bin/zsh\n").expect("write");
        assert_eq!(files.read().expect("whole").shells, [b"/bin/zsh".to_vec()].into());
        fs::write(&files.subuid, "bob:100000:65536\nbad\n1500:165536:1\n\n#x:1:1:1\n")
            .expect("write");
        fs::write(&files.subgid, "bob:4294967295:9\nbob:7:0\neve:4294967296:9\n").expect("write");
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
    fn subordinate_counts_beyond_ids_are_ranges() {
        for count in ["4294967295", "4294967296", "10000000000", "18446744073709551615"] {
            let line = format!("bob:100000:{count}");
            assert_eq!(subordinate_line(line.as_bytes()), Some((100_000, u32::MAX)), "{count}");
        }
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
