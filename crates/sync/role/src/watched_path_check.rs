// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether a role can still read the files that it follows. `process` ends the role.
//!
//! Landlock rules hold for the directories of the time when the role dropped its rights, not for their names. A
//! directory that appeared later, replaced another or is the new target of a link cannot be read. The process cannot
//! change that. It ends, and the next process gets the rights.

use roster_provider::file_watch::{FileWatch, wait_for_change};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

/// Interval of checks while a file is missing. inotify does not report a new file in a directory that this user cannot
/// list.
const RETRY: Duration = Duration::from_secs(5);

/// Files, and the directories with Landlock rules.
pub struct WatchedPaths {
    files: Vec<PathBuf>,
    dirs: HashSet<DirIdentity>,
}

/// The identity of a directory: device and inode.
type DirIdentity = (u64, u64);

impl WatchedPaths {
    /// Records the present directories. Must be called before the rules are made. A change in between then only causes
    /// a restart. In the other order it would go unnoticed.
    #[must_use]
    pub fn new(files: &[&Path]) -> Self {
        let folders = parent_dirs(files).iter().filter_map(|folder| dir_identity(folder)).collect();
        Self { files: files.iter().map(|file| file.to_path_buf()).collect(), dirs: folders }
    }

    /// Returns the path of a file without a rule, once there is one. Waits forever without files.
    pub async fn wait_until_outside(&self) -> PathBuf {
        if self.files.is_empty() {
            return std::future::pending().await;
        }
        let mut watch = FileWatch::new(self.files.iter().cloned()).ok();
        loop {
            if let Some(file) = self.files.iter().find(|file| !self.covers(file)) {
                return file.clone();
            }
            let is_missing = self.files.iter().any(|file| !file.exists());
            let look_again = is_missing || watch.is_none();
            tokio::select! {
                _ = wait_for_change(watch.as_mut()) => {}
                () = sleep(RETRY), if look_again => {}
            }
        }
    }

    /// Whether a rule covers the file's directory or one of its parents. A file without a directory counts as covered.
    fn covers(&self, file: &Path) -> bool {
        let Some(folder) = real_dir(file) else { return true };
        folder.ancestors().filter_map(dir_identity).any(|found| self.dirs.contains(&found))
    }
}

/// Returns the directories of files, because files are replaced, and the directories of link targets.
pub fn parent_dirs(files: &[&Path]) -> Vec<PathBuf> {
    let own = files.iter().filter_map(|file| file.parent().map(Path::to_owned));
    own.chain(files.iter().filter_map(|file| real_dir(file))).collect()
}

/// Returns the directory of the file, with all links resolved. The file may be missing.
fn real_dir(file: &Path) -> Option<PathBuf> {
    match file.canonicalize() {
        Ok(target) => target.parent().map(Path::to_owned),
        Err(_) => file.parent()?.canonicalize().ok(),
    }
}

fn dir_identity(folder: &Path) -> Option<DirIdentity> {
    let metadata = folder.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use roster_system_tests::wait::SOON;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tokio::time::timeout;

    /// Whether the first check finds a lost file.
    fn is_lost(reach: &WatchedPaths) -> bool {
        reach.wait_until_outside().now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_file_is_lost_when_its_folder_is_another() {
        let root = tempfile::tempdir().expect("a folder");
        let path = |name: &str| root.path().join(name);
        for folder in ["v1", "v2", "lab"] {
            fs::create_dir(path(folder)).expect("create");
            fs::write(path(folder).join("passwd"), folder).expect("write");
        }
        symlink("v1", path("current")).expect("link");
        symlink("v1/passwd", path("link")).expect("link");
        let (linked, swapped, late) =
            (path("current/passwd"), path("lab/passwd"), path("late/passwd"));
        let reaches = [&linked, &swapped, &late].map(|file| WatchedPaths::new(&[file.as_path()]));
        for (reach, file) in reaches.iter().zip([&linked, &swapped]) {
            assert!(!is_lost(reach));
            fs::write(file, "written").expect("write");
            fs::remove_file(file).expect("remove");
            assert!(!is_lost(reach), "gone, and its folder is the same");
            fs::write(file, "back").expect("write");
            assert!(!is_lost(reach));
        }
        assert!(!is_lost(&reaches[2]), "there is nothing to read");
        let lost = tokio::spawn(async move {
            let lost = reaches.iter().map(|reach| timeout(SOON, reach.wait_until_outside()));
            futures_util::future::join_all(lost).await
        });
        tokio::task::yield_now().await;
        symlink("v2", path("new")).expect("link");
        fs::rename(path("new"), path("current")).expect("rename");
        fs::rename(path("lab"), path("lab.old")).expect("rename");
        fs::create_dir(path("lab.new")).expect("create");
        fs::rename(path("lab.new"), path("lab")).expect("rename");
        fs::create_dir(path("late")).expect("create");
        let lost: Vec<_> = lost.await.expect("it ran").into_iter().flatten().collect();
        assert_eq!(lost, [linked, swapped, late]);
    }

    #[tokio::test]
    async fn a_link_into_another_folder_loses_the_file_unless_rules_reach_there() {
        let root = tempfile::tempdir().expect("a folder");
        let path = |name: &str| root.path().join(name);
        let outside = tempfile::tempdir().expect("a folder");
        fs::create_dir(path("below")).expect("create");
        for folder in [path("below"), outside.path().to_owned()] {
            fs::write(folder.join("passwd"), "").expect("write");
        }
        symlink("below/passwd", path("passwd")).expect("link");
        let file = path("passwd");
        let reach = WatchedPaths::new(&[file.as_path()]);
        fs::remove_file(&file).expect("remove");
        fs::write(&file, "").expect("write");
        assert!(!is_lost(&reach));
        fs::remove_file(&file).expect("remove");
        symlink(outside.path().join("passwd"), &file).expect("link");
        assert!(is_lost(&reach));
    }
}
