//! The host's own accounts, read from its passwd, group, subuid and subgid files.
//!
//! Whoever writes a file in place empties it first, and a reader in between sees fewer accounts than
//! there are: their names and ids would be a directory's for a moment. A file that speaks of root can
//! be cut anywhere behind that. So what comes counts at once, and what goes only when the files had
//! settled and still were as they were when they had been read, which [`Marks`] tell.

use roster_admission::{LocalFiles, Locals};
use roster_provider::settled::Marks;
use std::io;

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

/// As the files are now; `None` when passwd or group cannot be seen.
#[must_use]
pub fn marks(files: &LocalFiles) -> Option<Marks> {
    Marks::of(&[&files.passwd, &files.group], &[&files.subuid, &files.subgid])
}

/// Reads the files. Gives with what they hold whether they had settled and still were as `left` says
/// when they had been read: a file that is being written would be believed half way otherwise.
pub fn read_settled(files: &LocalFiles, left: Option<&Marks>) -> io::Result<(Locals, bool)> {
    let read = files.read()?;
    Ok((read, left.is_some() && left == marks(files).as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
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
        let settled = |left: Option<&Marks>| read_settled(&files, left).expect("files with root").1;
        assert!(!settled(None), "nobody waited");
        let left = marks(&files);
        assert!(settled(left.as_ref()));
        // In place and cut, the time of writing put back and the length kept.
        let written = passwd.metadata().and_then(|file| file.modified()).expect("a time");
        // The kernel's clock for files goes by ticks of some milliseconds.
        std::thread::sleep(Duration::from_millis(50));
        fs::write(&passwd, both.replace("local", "other")).expect("write");
        fs::File::open(&passwd).and_then(|file| file.set_modified(written)).expect("set the time");
        assert!(!settled(left.as_ref()), "passwd was written");
        let left = marks(&files);
        fs::write(&subuid, "local:100000:65536\n").expect("write");
        assert!(!settled(left.as_ref()), "subuid came");
        let left = marks(&files);
        fs::write(folder.path().join("new"), "root:x:0:\n").expect("write");
        fs::rename(folder.path().join("new"), &group).expect("rename");
        assert!(!settled(left.as_ref()), "group was replaced");
        assert!(settled(marks(&files).as_ref()));
        fs::remove_file(&group).expect("remove");
        assert_eq!(marks(&files), None);
    }

    fn files(folder: &Path) -> LocalFiles {
        let [passwd, group, subuid, subgid] =
            ["passwd", "group", "subuid", "subgid"].map(|name| folder.join(name));
        LocalFiles { passwd, group, subuid, subgid }
    }
}
