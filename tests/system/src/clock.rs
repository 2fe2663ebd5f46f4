//! The wall clock of a daemon, which a test moves.

use crate::artifacts::c_program_with;
use crate::rosterd::Rosterd;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock of processes that `c/clock.c` is loaded into.
#[derive(Debug)]
pub struct Clock(File);

impl Clock {
    /// The clock of a daemon that is not started yet.
    ///
    /// # Panics
    /// If the clock cannot be made; so does [`set`](Self::set).
    #[must_use]
    pub fn of(rosterd: &mut Rosterd) -> Self {
        Self::after(rosterd, "")
    }

    /// The same, by a shell script that begins with `script`, see [`Rosterd::within`].
    ///
    /// # Panics
    /// As [`of`](Self::of).
    #[must_use]
    pub fn after(rosterd: &mut Rosterd, script: &str) -> Self {
        let library = c_program_with("clock", "clock.so", &["-shared", "-fPIC"]);
        let path = rosterd.host().path("clock");
        fs::write(&path, 0_i64.to_ne_bytes()).expect("write the clock");
        rosterd.within(&format!(
            "{script}export LD_PRELOAD={} ROSTER_TEST_CLOCK={}; exec \"$@\"",
            library.display(),
            path.display()
        ));
        Self(File::options().write(true).open(path).expect("open the clock"))
    }

    /// Moves it to so many seconds after the host's own.
    pub fn set(&self, shift: i64) {
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
