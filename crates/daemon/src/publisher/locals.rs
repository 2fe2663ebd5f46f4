//! The host's own accounts, read from its passwd and group files.
//!
//! Whoever writes a file in place empties it first, and a reader in between sees fewer accounts than
//! there are: their names and ids would be a directory's for a moment. A file that speaks of root can
//! be cut anywhere behind that. So what comes counts at once, and what goes only when the files have
//! been left alone for [`SETTLED`].

use super::admit::Locals;
use anyhow::{Context as _, ensure};
use roster_record::text::{Line, group_line, passwd_line};
use roster_record::{Group, User, is_nis};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How long nobody may have written for the files to be believed whole.
pub const SETTLED: Duration = Duration::from_secs(1);

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
    }

    fn add(&mut self, other: Self) {
        self.user_names.extend(other.user_names);
        self.uids.extend(other.uids);
        self.group_names.extend(other.group_names);
        self.gids.extend(other.gids);
    }
}

/// Whether the files were written long enough ago, by the clock. One that was moved says no.
pub fn is_settled(files: [&Path; 2]) -> bool {
    let now = SystemTime::now();
    files.iter().all(|file| {
        let written = file.metadata().and_then(|file| file.modified());
        written.is_ok_and(|written| now.duration_since(written).is_ok_and(|age| age >= SETTLED))
    })
}

/// Reads both files. Lines that `files` passes over are passed over: they are nobody's.
pub fn read(passwd: &Path, group: &Path) -> anyhow::Result<Locals> {
    let mut locals = Locals::default();
    for_each_line(passwd, |line| {
        if let Line::Entry(User { name, uid, .. }) = passwd_line(line)
            && !is_nis(name)
        {
            locals.user_names.insert(name.to_owned());
            locals.uids.insert(uid);
        }
    })?;
    ensure!(locals.uids.contains(&0), "{} has no user 0: it is not whole", passwd.display());
    for_each_line(group, |line| {
        if let Line::Entry(line) = group_line(line) {
            let Group { name, gid, .. } = line.group;
            if !is_nis(name) {
                locals.group_names.insert(name.to_owned());
                locals.gids.insert(gid);
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
    fn files_that_do_not_speak_of_root_are_not_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let (passwd, group) = (folder.path().join("passwd"), folder.path().join("group"));
        let root = "root:x:0:0:root:/root:/bin/sh\n";
        for (users, groups, whole) in [
            (root, "root:x:0:\n", true),
            ("local:x:1500:1500::/:/bin/sh\n", "root:x:0:\n", false),
            (root, "", false),
            (root, "sudo:x:27:\n", false),
        ] {
            fs::write(&passwd, users).expect("write");
            fs::write(&group, groups).expect("write");
            assert_eq!(read(&passwd, &group).is_ok(), whole, "{users:?} {groups:?}");
        }
    }
}
