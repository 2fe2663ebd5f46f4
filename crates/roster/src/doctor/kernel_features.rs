// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that Roster uses if the kernel has them. docs/reference/platforms.md has the same table. `checks` reports
//! the missing ones.

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// A system call, or a group of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelFeature {
    Landlock,
    PidfdOpen,
    Openat2,
}

impl KernelFeature {
    const ALL: [Self; 3] = [Self::Landlock, Self::PidfdOpen, Self::Openat2];

    /// Returns the features that this kernel refuses to this process.
    pub fn missing() -> Vec<Self> {
        Self::ALL.into_iter().filter(|feature| feature.is_missing()).collect()
    }

    fn is_missing(self) -> bool {
        let is_unknown = |error: Option<Errno>| error == Some(Errno::NOSYS);
        match self {
            Self::Landlock => !roster_sandbox::is_landlock_available(),
            Self::PidfdOpen => is_unknown(pidfd_open(getpid(), PidfdFlags::empty()).err()),
            Self::Openat2 => {
                let none = ResolveFlags::empty();
                is_unknown(openat2(CWD, "/", OFlags::PATH, Mode::empty(), none).err())
            }
        }
    }

    /// Returns its name, and the first version of Linux that has it.
    pub fn name_and_version(self) -> (&'static str, &'static str) {
        match self {
            Self::Landlock => ("Landlock", "5.13"),
            Self::PidfdOpen => ("pidfd_open", "5.3"),
            Self::Openat2 => ("openat2", "5.6"),
        }
    }

    /// Returns what does not work without it.
    pub fn loss(self) -> &'static str {
        match self {
            Self::Landlock => {
                "only their users and file modes keep the roles of rosterd from files, and nothing from TCP ports"
            }
            Self::PidfdOpen => {
                "roster-rootwrap-daemon runs no command, and the end of a session stops the renewal of its ticket a minute late"
            }
            Self::Openat2 => "roster doctor cannot examine a mounted root",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_features_equal_documented_table() {
        let page = include_str!("../../../../docs/reference/platforms.md");
        for (name, version) in KernelFeature::ALL.map(KernelFeature::name_and_version) {
            let row =
                page.lines().find(|line| line.starts_with(&format!("| `{name}` | {version} |")));
            assert!(row.is_some(), "{name} {version} is not in docs/reference/platforms.md");
        }
    }
}
