//! The host's own accounts, read from its passwd, group, subuid and subgid files.
//!
//! Whoever writes a file in place empties it first, and a reader in between sees fewer accounts than
//! there are: their names and ids would be a directory's for a moment. A file that speaks of root can
//! be cut anywhere behind that. So what comes counts at once, and what goes only when the files had
//! settled and still were as they were when they had been read, which [`Marks`] tell.

use super::admit::{Locals, USERS_NAME};
use anyhow::{Context as _, ensure};
use roster_config::Host;
use roster_config::USERS_GID;
use roster_provider::settled::Marks;
use roster_record::text::{Line, group_line, passwd_line};
use roster_record::{Group, User, is_nis};
use std::path::{Path, PathBuf};

/// What counts, of what was read so far.
#[derive(Default)]
pub struct Believed {
    accounts: Option<Locals>,
}

impl Believed {
    /// Takes in what stands in the files. `settled` tells that nobody wrote for a while. Gives what
    /// counts from now on, nothing when nothing was ever read whole, and whether that is all there is
    /// to it: if not, the files are to be read again when they have settled.
    pub fn take(&mut self, read: Locals, settled: bool) -> (Option<&Locals>, bool) {
        match &mut self.accounts {
            accounts if settled => *accounts = Some(read),
            None => return (None, false),
            Some(accounts) => {
                let all = accounts.is_subset(&read);
                accounts.add(read);
                return (self.accounts.as_ref(), all);
            }
        }
        (self.accounts.as_ref(), true)
    }
}

impl Locals {
    fn is_subset(&self, other: &Self) -> bool {
        self.user_names.is_subset(&other.user_names)
            && self.uids.is_subset(&other.uids)
            && self.group_names.is_subset(&other.group_names)
            && self.gids.is_subset(&other.gids)
            && self.primary_gids.is_subset(&other.primary_gids)
            && self.subuids.is_subset(&other.subuids)
            && self.subgids.is_subset(&other.subgids)
            && self.has_users_group == other.has_users_group
    }

    fn add(&mut self, other: Self) {
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
pub struct LocalFiles {
    passwd: PathBuf,
    group: PathBuf,
    subuid: PathBuf,
    subgid: PathBuf,
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

    /// As the files are now; `None` when passwd or group cannot be seen.
    #[must_use]
    pub fn marks(&self) -> Option<Marks> {
        Marks::of(&[&self.passwd, &self.group], &[&self.subuid, &self.subgid])
    }

    /// Reads the files. Gives with what they hold whether they had settled and still were as `left` says
    /// when they had been read: a file that is being written would be believed half way otherwise.
    pub fn read_settled(&self, left: Option<&Marks>) -> anyhow::Result<(Locals, bool)> {
        let read = self.read()?;
        Ok((read, left.is_some() && left == self.marks().as_ref()))
    }

    /// Reads the files. Lines that `files` passes over are passed over.
    fn read(&self) -> anyhow::Result<Locals> {
        let Self { passwd, group, .. } = self;
        let mut locals = read_accounts(passwd, group)?;
        locals.subuids = subordinate(&self.subuid)?;
        locals.subgids = subordinate(&self.subgid)?;
        Ok(locals)
    }
}

/// The ranges of subuid(5) or subgid(5). Without the file there are none.
fn subordinate(file: &Path) -> anyhow::Result<IdRanges> {
    if !file.try_exists().with_context(|| format!("cannot read {}", file.display()))? {
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

fn read_accounts(passwd: &Path, group: &Path) -> anyhow::Result<Locals> {
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
    ensure!(locals.uids.contains(&0), "{} has no user 0: it is not whole", passwd.display());
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
    ensure!(locals.gids.contains(&0), "{} has no group 0: it is not whole", group.display());
    Ok(locals)
}

fn for_each_line(path: &Path, act: impl FnMut(&[u8])) -> anyhow::Result<()> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.split(|&byte| byte == b'\n').for_each(act);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Duration;

    fn accounts(users: &[&str]) -> Locals {
        let user_names = users.iter().map(|name| name.as_bytes().to_owned()).collect();
        Locals { user_names, ..Locals::default() }
    }

    #[test]
    fn what_comes_counts_at_once_and_what_goes_when_the_files_have_settled() {
        let mut believed = Believed::default();
        let both = accounts(&["root", "local"]);
        assert_eq!(believed.take(accounts(&["root"]), false), (None, false), "perhaps cut");
        assert_eq!(believed.take(both.clone(), true), (Some(&both), true));
        // Written in place: cut behind root, and whole a moment later.
        assert_eq!(believed.take(accounts(&["root"]), false), (Some(&both), false));
        let three = accounts(&["root", "local", "new"]);
        assert_eq!(believed.take(accounts(&["root", "new"]), false), (Some(&three), false));
        assert_eq!(believed.take(three.clone(), false), (Some(&three), true));
        let root = accounts(&["root"]);
        assert_eq!(believed.take(root.clone(), true), (Some(&root), true), "it was removed");
    }

    #[test]
    fn files_that_are_written_after_the_quiet_time_have_not_settled() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = files(folder.path());
        let LocalFiles { passwd, group, subuid, .. } = files.clone();
        let both = "root:x:0:0:root:/root:/bin/sh\nlocal:x:1500:1500::/:/bin/sh\n";
        fs::write(&passwd, both).expect("write");
        fs::write(&group, "root:x:0:\n").expect("write");
        let settled = |left: Option<&Marks>| files.read_settled(left).expect("files with root").1;
        assert!(!settled(None), "nobody waited");
        let left = files.marks();
        assert!(settled(left.as_ref()));
        // In place and cut, the time of writing put back and the length kept.
        let written = passwd.metadata().and_then(|file| file.modified()).expect("a time");
        // The kernel's clock for files goes by ticks of some milliseconds.
        std::thread::sleep(Duration::from_millis(50));
        fs::write(&passwd, both.replace("local", "other")).expect("write");
        fs::File::open(&passwd).and_then(|file| file.set_modified(written)).expect("set the time");
        assert!(!settled(left.as_ref()), "passwd was written");
        let left = files.marks();
        fs::write(&subuid, "local:100000:65536\n").expect("write");
        assert!(!settled(left.as_ref()), "subuid came");
        let left = files.marks();
        fs::write(folder.path().join("new"), "root:x:0:\n").expect("write");
        fs::rename(folder.path().join("new"), &group).expect("rename");
        assert!(!settled(left.as_ref()), "group was replaced");
        assert!(settled(files.marks().as_ref()));
        fs::remove_file(&group).expect("remove");
        assert_eq!(files.marks(), None);
    }

    #[test]
    fn files_that_do_not_speak_of_root_are_not_whole() {
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

    fn files(folder: &Path) -> LocalFiles {
        let [passwd, group, subuid, subgid] =
            ["passwd", "group", "subuid", "subgid"].map(|name| folder.join(name));
        LocalFiles { passwd, group, subuid, subgid }
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
