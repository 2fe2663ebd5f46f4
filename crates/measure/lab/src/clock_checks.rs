// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of this host's clocks: the cost of a read, a change of the time, and a suspended host. This module does not
//! set clocks. `run_load` makes the checks around a run.

use crate::report::Warning;
use roster_messages::table::lab;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::{Duration, Instant, SystemTime};

/// Maximum cost of a read. A processor's own clock takes tens of nanoseconds, another clock a microsecond. Each request
/// takes three reads.
const SLOW: Duration = Duration::from_nanos(300);
/// Maximum difference between the two clocks: a constant part, and the share by which a time service slews.
const STEP: Duration = Duration::from_millis(50);
const SLEW: f64 = 0.0005;
const READINGS: usize = 1001;

/// Returns a warning if the clock is slow to read.
#[must_use]
pub fn check_read_cost() -> Option<Warning> {
    let mut times: Vec<Duration> = (0..READINGS)
        .map(|_| {
            let before = Instant::now();
            before.elapsed()
        })
        .collect();
    times.sort_unstable();
    let each = times[READINGS / 2];
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(path).unwrap_or_default();
    (each > SLOW).then(|| Warning {
        kind: "clock",
        message: &lab::CLOCK_SLOW,
        ratio: each.as_secs_f64() / SLOW.as_secs_f64(),
        text: format!(
            "a read of this host's clock takes {} ns (clock source {}). This is a part of every latency and of the \
             generator's processor time. Enable the processor's own clock, or measure from another host.",
            each.as_nanos(),
            if source.trim().is_empty() { "unknown" } else { source.trim() }
        ),
    })
}

/// The time of all clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ClockCheck {
    steady: Instant,
    wall: SystemTime,
    /// Time of the clock that also counts while the host sleeps.
    boot: Duration,
}

impl ClockCheck {
    /// Reads all clocks.
    #[must_use]
    pub fn start() -> Self {
        let boot = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(boot.tv_sec).unwrap_or_default();
        let boot = Duration::new(seconds, u32::try_from(boot.tv_nsec).unwrap_or_default());
        Self { steady: Instant::now(), wall: SystemTime::now(), boot }
    }

    /// Returns a warning if the clocks differ more than since the start of the run.
    #[must_use]
    pub fn end(self) -> Option<Warning> {
        let now = Self::start();
        let steady = now.steady - self.steady;
        let slept = (now.boot.saturating_sub(self.boot)).saturating_sub(steady);
        let moved = match now.wall.duration_since(self.wall) {
            Ok(wall) => wall.abs_diff(steady),
            Err(back) => back.duration() + steady,
        };
        check_drift(steady, slept, moved)
    }
}

fn check_drift(steady: Duration, slept: Duration, moved: Duration) -> Option<Warning> {
    let allowed = STEP + steady.mul_f64(SLEW);
    let ratio = |time: Duration| time.as_secs_f64() / allowed.as_secs_f64();
    if slept > allowed {
        return Some(Warning {
            kind: "clock",
            message: &lab::HOST_SLEPT,
            ratio: ratio(slept),
            text: format!(
                "this host was suspended for {:.1} s during the run. The clocks of the run do not count that time. \
                 Repeat the run.",
                slept.as_secs_f64()
            ),
        });
    }
    (moved > allowed).then(|| Warning {
        kind: "clock",
        message: &lab::CLOCK_SET,
        ratio: ratio(moved),
        text: format!(
            "this host's clock was set by {:.3} s during the run. Latencies use another clock and are correct. \
             Servers that compare times (Kerberos, expiry of passwords and sessions) may have rejected requests. \
             Repeat the run with a correct clock.",
            moved.as_secs_f64()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn clock_check_equal_clocks_no_warning() {
        assert_eq!(ClockCheck::start().end(), None);
        assert_eq!(check_drift(100 * SECOND, Duration::ZERO, Duration::from_millis(90)), None);
    }

    #[test]
    fn clock_check_step_and_sleep_have_codes() {
        let step = check_drift(SECOND, Duration::ZERO, 2 * SECOND).unwrap();
        assert_eq!(step.message, &lab::CLOCK_SET);
        assert!(step.text.contains("was set by 2.000 s"), "{}", step.text);
        let sleep = check_drift(SECOND, 7 * SECOND, 7 * SECOND).unwrap();
        assert_eq!(sleep.message, &lab::HOST_SLEPT);
        assert!(sleep.text.contains("suspended for 7.0 s"), "{}", sleep.text);
    }
}
