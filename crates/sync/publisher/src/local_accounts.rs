// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's own accounts, read from its passwd, group, subuid and subgid files, and the shells of shells(5).
//!
//! A program that rewrites a file in place empties it first. A reader in between sees only some accounts, and a
//! directory could then own the missing names and ids. A file with root in it can be cut anywhere behind that line. New
//! accounts therefore count at once. Accounts are removed only if the files were stable before and after the read, as
//! [`FileStamps`] show.

use roster_admission::{LocalFiles, Locals};
use roster_provider::stable_file::FileStamps;
use std::io;
use std::path::Path;

/// The accounts that count, from all reads so far.
#[derive(Default)]
pub struct AcceptedLocals {
    accounts: Option<Locals>,
}

impl AcceptedLocals {
    /// Adds the content of the files. `settled` states that no program wrote them for a while. Returns the accounts
    /// that count from now on, `None` if no complete read has happened. The second value is false if the files have to
    /// be read again once they are stable.
    pub fn accept_read(&mut self, read: Locals, settled: bool) -> (Option<&Locals>, bool) {
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

/// Returns the present stamps of the files. `None` if passwd or group is missing.
#[must_use]
pub fn file_marks(files: &LocalFiles) -> Option<FileStamps> {
    let mut optional: Vec<&Path> = vec![&files.subuid, &files.subgid];
    optional.extend(files.shells.as_deref());
    FileStamps::from_paths(&[&files.passwd, &files.group], &optional)
}

/// Reads the files. The second value states that the stamps are still those in `left`. A file that is being written
/// would otherwise count in part.
pub fn read_stable(files: &LocalFiles, left: Option<&FileStamps>) -> io::Result<(Locals, bool)> {
    let read = files.read()?;
    Ok((read, left.is_some() && left == file_marks(files).as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tasks;
    use crate::{follow_locals, watch_locals};
    use roster_messages::table::daemon;
    use roster_role::testing::{TestBus, block_on};
    use roster_system_tests::logged_codes::logged_codes;
    use std::fs;
    use std::time::Duration;

    fn accounts(users: &[&str]) -> Locals {
        let user_names = users.iter().map(|name| name.as_bytes().to_owned()).collect();
        Locals { user_names, ..Locals::default() }
    }

    #[test]
    fn what_comes_counts_at_once_and_what_goes_when_the_files_have_settled() {
        let mut believed = AcceptedLocals::default();
        let both = accounts(&["root", "local"]);
        assert_eq!(believed.accept_read(accounts(&["root"]), false), (None, false), "perhaps cut");
        assert_eq!(believed.accept_read(both.clone(), true), (Some(&both), true));
        // Written in place: cut behind root, and whole a moment later.
        assert_eq!(believed.accept_read(accounts(&["root"]), false), (Some(&both), false));
        let three = accounts(&["root", "local", "new"]);
        assert_eq!(believed.accept_read(accounts(&["root", "new"]), false), (Some(&three), false));
        assert_eq!(believed.accept_read(three.clone(), false), (Some(&three), true));
        let root = accounts(&["root"]);
        assert_eq!(believed.accept_read(root.clone(), true), (Some(&root), true), "it was removed");
    }

    #[test]
    fn files_that_are_written_after_the_quiet_time_have_not_settled() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = files(folder.path());
        let LocalFiles { passwd, group, subuid, .. } = files.clone();
        let both = "root:x:0:0:root:/root:/bin/sh\nlocal:x:1500:1500::/:/bin/sh\n";
        fs::write(&passwd, both).expect("write");
        fs::write(&group, "root:x:0:\n").expect("write");
        let settled =
            |left: Option<&FileStamps>| read_stable(&files, left).expect("files with root").1;
        assert!(!settled(None), "nobody waited");
        let left = file_marks(&files);
        assert!(settled(left.as_ref()));
        // In place and cut, with the old modification time and length.
        let written = passwd.metadata().and_then(|file| file.modified()).expect("a time");
        // The kernel's clock for files goes by ticks of some milliseconds.
        std::thread::sleep(Duration::from_millis(50));
        fs::write(&passwd, both.replace("local", "other")).expect("write");
        fs::File::open(&passwd).and_then(|file| file.set_modified(written)).expect("set the time");
        assert!(!settled(left.as_ref()), "passwd was written");
        let left = file_marks(&files);
        fs::write(&subuid, "local:100000:65536\n").expect("write");
        assert!(!settled(left.as_ref()), "subuid came");
        let left = file_marks(&files);
        fs::write(folder.path().join("new"), "root:x:0:\n").expect("write");
        fs::rename(folder.path().join("new"), &group).expect("rename");
        assert!(!settled(left.as_ref()), "group was replaced");
        assert!(settled(file_marks(&files).as_ref()));
        fs::remove_file(&group).expect("remove");
        assert_eq!(file_marks(&files), None);
    }

    fn files(folder: &Path) -> LocalFiles {
        let [passwd, group, subuid, subgid] =
            ["passwd", "group", "subuid", "subgid"].map(|name| folder.join(name));
        LocalFiles { passwd, group, subuid, subgid, shells: Some(folder.join("shells")) }
    }

    #[test]
    fn unreadable_local_accounts_are_logged() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = |name| folder.path().join(name);
        let files = LocalFiles {
            passwd: path("passwd"),
            group: path("group"),
            subuid: path("subuid"),
            subgid: path("subgid"),
            shells: None,
        };
        let followed = async {
            let bus = TestBus::start(folder.path(), TestBus::OPEN);
            let hub = tasks(folder.path(), &bus).await;
            let watch = watch_locals(&files).expect("a watch");
            let told = async {
                while hub.status.lock().locals_error.is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                () = follow_locals(hub.clone(), files.clone(), watch) => {}
                () = told => {}
            }
        };
        let logged = logged_codes(|| block_on(followed));
        assert_eq!(logged, [&daemon::LOCAL_ACCOUNTS_UNREADABLE]);
    }
}
