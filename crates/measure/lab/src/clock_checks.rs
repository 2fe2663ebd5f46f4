//! The clocks that figures rest on: how long it takes to read one, and whether somebody moved the time or
//! the machine slept while a run went on.

use crate::report::Warning;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::{Duration, Instant, SystemTime};

/// Reading the clock takes tens of nanoseconds where the processor keeps it, and a microsecond where it
/// does not; each request takes three readings.
const SLOW: Duration = Duration::from_nanos(300);
/// The two clocks may part by so much, and by half a thousandth of the time, which is what a time service
/// slews by.
const STEP: Duration = Duration::from_millis(50);
const SLEW: f64 = 0.0005;
const READINGS: usize = 1001;

/// Whether reading the clock is slow.
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
        ratio: each.as_secs_f64() / SLOW.as_secs_f64(),
        text: format!(
            "reading the clock takes {} ns each time (clock source {}), which is a part of every latency \
             and of the generator's processor time. Let the kernel use the processor's own clock, or \
             measure from another machine.",
            each.as_nanos(),
            if source.trim().is_empty() { "unknown" } else { source.trim() }
        ),
    })
}

/// A moment by all clocks.
#[derive(Clone, Copy, Debug)]
pub struct ClockCheck {
    steady: Instant,
    wall: SystemTime,
    /// Counts on while the machine sleeps.
    boot: Duration,
}

impl ClockCheck {
    /// Now.
    #[must_use]
    pub fn start() -> Self {
        let boot = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(boot.tv_sec).unwrap_or_default();
        let boot = Duration::new(seconds, u32::try_from(boot.tv_nsec).unwrap_or_default());
        Self { steady: Instant::now(), wall: SystemTime::now(), boot }
    }

    /// What happened to the clocks since then.
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
            ratio: ratio(slept),
            text: format!(
                "the machine slept for {:.1} s during the run, which no clock of ours counts: the figures \
                 are of a machine that was going to sleep and waking up. Run again.",
                slept.as_secs_f64()
            ),
        });
    }
    (moved > allowed).then(|| Warning {
        kind: "clock",
        ratio: ratio(moved),
        text: format!(
            "somebody set this host's clock by {:.3} s during the run. Latencies are by another clock and \
             hold, but servers that look at the time (Kerberos, time-outs of passwords and sessions) may \
             have seen requests from another hour, and logs do not fit. Run again when it is right.",
            moved.as_secs_f64()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn clocks_that_go_together_are_not_warned_about() {
        assert_eq!(ClockCheck::start().end(), None);
        assert_eq!(check_drift(100 * SECOND, Duration::ZERO, Duration::from_millis(90)), None);
    }

    #[test]
    fn a_step_and_a_sleep_are_each_told() {
        let step = check_drift(SECOND, Duration::ZERO, 2 * SECOND).unwrap();
        assert!(step.text.contains("set this host's clock by 2.000 s"), "{}", step.text);
        let sleep = check_drift(SECOND, 7 * SECOND, 7 * SECOND).unwrap();
        assert!(sleep.text.contains("slept for 7.0 s"), "{}", sleep.text);
    }
}
