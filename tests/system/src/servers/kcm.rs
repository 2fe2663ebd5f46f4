// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heimdal's kcm, which serves credential caches to libkrb5 too, in private mounts with a private `/run`. Its packages
//! are unpacked, not installed.

use super::ServerProcess;
use crate::artifacts::unpack_package;
use crate::test_host::{find_tool, plain_environment};
use crate::wait::wait_until;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Longest start on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(30);

/// The libraries that it needs.
const LIBRARIES: [&str; 8] = [
    "libasn1-8-heimdal",
    "libhcrypto5-heimdal",
    "libheimbase1-heimdal",
    "libheimntlm0-heimdal",
    "libhx509-5-heimdal",
    "libkrb5-26-heimdal",
    "libroken19-heimdal",
    "libwind0-heimdal",
];

/// A private directory over /run, and the server in it.
const START_SCRIPT: &str = r#"mount -t tmpfs -o mode=755 tmpfs /run
exec env LD_LIBRARY_PATH="$1" "$2" --config-file=/dev/null --disallow-getting-krbtgt
"#;

/// A server of credential caches.
#[derive(Debug)]
pub struct Kcm {
    process: ServerProcess,
    // Removed last.
    _folder: TempDir,
}

impl Kcm {
    /// A running one. Takes root.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("make a folder for kcm");
        let libraries = LIBRARIES.map(|package| {
            let folder = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
            unpack_package(package).join(folder).display().to_string()
        });
        let mut command = Command::new(find_tool("unshare", "util-linux"));
        command.args(["-m", "sh", "-ec", START_SCRIPT, "kcm", &libraries.join(":")]);
        command.arg(unpack_package("heimdal-kcm").join("usr/sbin/kcm"));
        let process = ServerProcess::start(&mut command, &folder.path().join("said"));
        let mut kcm = Self { process, _folder: folder };
        wait_until(START_WITHIN, "kcm listens", || {
            assert!(kcm.process.is_running(), "kcm has ended: {}", kcm.process.log());
            let found =
                kcm.command_inside("test").args(["-S", "/run/.heim_org.h5l.kcm-socket"]).status();
            found.expect("run test").success()
        });
        kcm
    }

    /// A program in its mounts.
    #[must_use]
    pub fn command_inside(&self, program: &str) -> Command {
        let mut command = Command::new(find_tool("nsenter", "util-linux"));
        plain_environment(&mut command);
        command.args(["-m", "-t", &self.process.pid().as_raw_nonzero().to_string(), program]);
        command
    }
}
