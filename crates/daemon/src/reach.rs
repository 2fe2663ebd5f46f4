//! Whether a role may still read the files that it follows.
//!
//! Landlock's rules hold for the folders that were there when the role gave up its rights, not for
//! their names: one that came later, took another's place or is what a link leads to now cannot be
//! read, by a process that can do nothing about it. It ends, and the next one gets the rights.

use roster_provider::watch::{Watch, changed};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

/// While a file is missing: look again after this time, for nothing tells that it came into a folder that
/// this user may not list.
const RETRY: Duration = Duration::from_secs(5);

/// Files, and the folders that rules were made for.
pub struct Reach {
    files: Vec<PathBuf>,
    folders: HashSet<Identity>,
}

/// A folder whatever its name: device and inode.
type Identity = (u64, u64);

impl Reach {
    /// The folders as they are now. To be called before rules are made for them: what comes in between
    /// costs a start, and were it the other way round it would never be seen.
    #[must_use]
    pub fn new(files: &[&Path]) -> Self {
        let folders = folders_of(files).iter().filter_map(|folder| identity(folder)).collect();
        Self { files: files.iter().map(|file| file.to_path_buf()).collect(), folders }
    }

    /// Returns when a file lies where no rule was made for; gives its path. Never where there are no files.
    pub async fn lost(&self) -> PathBuf {
        if self.files.is_empty() {
            return std::future::pending().await;
        }
        let mut watch = Watch::new(self.files.iter().cloned()).ok();
        loop {
            if let Some(file) = self.files.iter().find(|file| !self.has(file)) {
                return file.clone();
            }
            let is_missing = self.files.iter().any(|file| !file.exists());
            let look_again = is_missing || watch.is_none();
            tokio::select! {
                _ = changed(watch.as_mut()) => {}
                () = sleep(RETRY), if look_again => {}
            }
        }
    }

    /// Whether the file's folder, or one above it, is one of those. A file without a folder is in none
    /// that matters.
    fn has(&self, file: &Path) -> bool {
        let Some(folder) = real_folder(file) else { return true };
        folder.ancestors().filter_map(identity).any(|found| self.folders.contains(&found))
    }
}

/// Folders of files, for the files are replaced; and of what links lead to.
pub fn folders_of(files: &[&Path]) -> Vec<PathBuf> {
    let own = files.iter().filter_map(|file| file.parent().map(Path::to_owned));
    own.chain(files.iter().filter_map(|file| real_folder(file))).collect()
}

/// The folder that the file is in, or would be in, with all links followed.
fn real_folder(file: &Path) -> Option<PathBuf> {
    match file.canonicalize() {
        Ok(target) => target.parent().map(Path::to_owned),
        Err(_) => file.parent()?.canonicalize().ok(),
    }
}

fn identity(folder: &Path) -> Option<Identity> {
    let metadata = folder.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SOON;
    use futures_util::FutureExt;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tokio::time::timeout;

    /// Whether the first look finds a lost file.
    fn is_lost(reach: &Reach) -> bool {
        reach.lost().now_or_never().is_some()
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
        let reaches = [&linked, &swapped, &late].map(|file| Reach::new(&[file.as_path()]));
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
            let lost = reaches.iter().map(|reach| timeout(SOON, reach.lost()));
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
        let reach = Reach::new(&[file.as_path()]);
        fs::remove_file(&file).expect("remove");
        fs::write(&file, "").expect("write");
        assert!(!is_lost(&reach));
        fs::remove_file(&file).expect("remove");
        symlink(outside.path().join("passwd"), &file).expect("link");
        assert!(is_lost(&reach));
    }
}
