// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control groups that tests make below their own one, and their removal with all processes in them.

use crate::wait::wait_until;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Killed processes leave their group within this time, on a busy machine.
const EMPTY_WITHIN: Duration = Duration::from_secs(60);

/// A new group. Dropping it ends its processes and removes it.
#[derive(Debug)]
pub struct ControlGroup(PathBuf);

impl ControlGroup {
    /// A group below the test's own group.
    ///
    /// # Panics
    /// If it cannot be made: root and cgroup2 are needed.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = own_group().join(format!("{name}-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap_or_else(|e| panic!("create {}: {e}", path.display()));
        Self(path)
    }

    /// The group's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        remove_control_group(&self.0);
    }
}

/// Ends the processes of a group and of the groups below it, and removes all of them.
pub fn remove_control_group(group: &Path) {
    if group.exists() {
        let _ = fs::write(group.join("cgroup.kill"), "1");
        wait_until(EMPTY_WITHIN, "the control group is removed", || {
            remove_dirs(group);
            !group.exists()
        });
    }
}

fn remove_dirs(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_dirs(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// The group of this process.
fn own_group() -> PathBuf {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mounts = read("/proc/self/mountinfo");
    let mounted = mounts.lines().find(|line| line.contains(" - cgroup2 "));
    let mounted = mounted.and_then(|line| line.split(' ').nth(4)).expect("cgroup2 is mounted");
    let groups = read("/proc/self/cgroup");
    let own =
        groups.lines().find_map(|line| line.strip_prefix("0::/")).expect("a group in cgroup2");
    Path::new(mounted).join(own)
}
