// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wall clock of a daemon, which a test moves.

use crate::artifacts::c_program_with;
use crate::rosterd::Rosterd;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock of processes that preload `c/preload_clock.c`.
#[derive(Debug)]
pub struct DaemonClock(File);

impl DaemonClock {
    /// The clock of a daemon that is not started yet.
    ///
    /// # Panics
    /// If the clock cannot be made; so does [`set_shift`](Self::set_shift).
    #[must_use]
    pub fn for_daemon(rosterd: &mut Rosterd) -> Self {
        Self::for_daemon_after(rosterd, "")
    }

    /// The same with a shell script that begins with `script`, see [`Rosterd::set_start_script`].
    ///
    /// # Panics
    /// As [`for_daemon`](Self::for_daemon).
    #[must_use]
    pub fn for_daemon_after(rosterd: &mut Rosterd, script: &str) -> Self {
        let library = c_program_with("preload_clock", "clock.so", &["-shared", "-fPIC"]);
        let path = rosterd.host().path("clock");
        fs::write(&path, 0_i64.to_ne_bytes()).expect("write the clock");
        rosterd.set_start_script(&format!(
            "{script}export LD_PRELOAD={} ROSTER_TEST_CLOCK={}; exec \"$@\"",
            library.display(),
            path.display()
        ));
        Self(File::options().write(true).open(path).expect("open the clock"))
    }

    /// Moves it to so many seconds after the host's own.
    pub fn set_shift(&self, shift: i64) {
        self.0.write_all_at(&shift.to_ne_bytes(), 0).expect("move the clock");
    }
}

/// The time by the host's own clock, in seconds since 1970.
///
/// # Panics
/// If that is before 1970.
#[must_use]
pub fn now_unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}
