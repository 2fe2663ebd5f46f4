//! The host's own accounts, read from its passwd and group files.
//!
//! Whoever writes a file in place empties it first, and a reader in between sees fewer accounts than
//! there are: their names and ids would be a directory's for a moment. A file that speaks of root can
//! be cut anywhere behind that. So what comes counts at once, and what goes only when the files had
//! settled and still were as they were when they had been read, which [`Marks`] tell.

use super::admit::Locals;
use anyhow::{Context as _, ensure};
use roster_provider::settled::Marks;
use roster_record::text::{Line, group_line, passwd_line};
use roster_record::{Group, User, is_nis};
use std::path::Path;

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

/// Reads both files. Gives with what they hold whether they had settled and still were as `left` says
/// when they had been read: whoever writes just then would be believed half way otherwise.
pub fn read_settled(
    passwd: &Path,
    group: &Path,
    left: Option<Marks>,
) -> anyhow::Result<(Locals, bool)> {
    let read = read(passwd, group)?;
    Ok((read, left.is_some() && left == Marks::of(passwd, group)))
}

/// Reads both files. Lines that `files` passes over are passed over: they are nobody's.
fn read(passwd: &Path, group: &Path) -> anyhow::Result<Locals> {
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
        let (passwd, group) = (folder.path().join("passwd"), folder.path().join("group"));
        let both = "root:x:0:0:root:/root:/bin/sh\nlocal:x:1500:1500::/:/bin/sh\n";
        fs::write(&passwd, both).expect("write");
        fs::write(&group, "root:x:0:\n").expect("write");
        let settled = |left| read_settled(&passwd, &group, left).expect("files with root").1;
        assert!(!settled(None), "nobody waited");
        let left = Marks::of(&passwd, &group);
        assert!(settled(left));
        // In place and cut, the time of writing put back and the length kept.
        let written = passwd.metadata().and_then(|file| file.modified()).expect("a time");
        // The kernel's clock for files goes by ticks of some milliseconds.
        std::thread::sleep(Duration::from_millis(50));
        fs::write(&passwd, both.replace("local", "other")).expect("write");
        fs::File::open(&passwd).and_then(|file| file.set_modified(written)).expect("set the time");
        assert!(!settled(left), "passwd was written");
        let left = Marks::of(&passwd, &group);
        fs::write(folder.path().join("new"), "root:x:0:\n").expect("write");
        fs::rename(folder.path().join("new"), &group).expect("rename");
        assert!(!settled(left), "group was replaced");
        assert!(settled(Marks::of(&passwd, &group)));
        fs::remove_file(&group).expect("remove");
        assert_eq!(Marks::of(&passwd, &group), None);
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
