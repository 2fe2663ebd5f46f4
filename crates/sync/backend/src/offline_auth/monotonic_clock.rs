// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock for lifetimes and locks.
//!
//! A clock that is set back must not extend a lifetime. The latest time ever seen is therefore stored with the
//! credentials. Within one boot, time continues from there by the kernel's count, sleep included, independent of the
//! host's clock. After a boot it never starts earlier.
//!
//! A clock that was ahead would be trusted forever. The host's clock is therefore trusted while a directory replies. If
//! it was moved, dates are [corrected](DateCorrection): ages stay the same. This module knows no credentials and no
//! directory.

use roster_domain_cache::credentials::ClockMark;
use roster_messages::table::login;
use roster_provider::reason::Reason;
use roster_role::clock::unix_now;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};
use std::fs;

/// Seconds after which the mark is written again.
const MARK_SECS: u64 = 60;
/// A difference above this, in seconds, means that the clock was moved. Smaller ones come from time synchronization.
const MOVED_SECS: u64 = 300;
/// Seconds for which the clock must agree with the kernel's count before data is deleted by age. Wrong clocks are set
/// within minutes after a boot.
const STEADY_SECS: u64 = 3600;
/// Earliest plausible time: 2026-01-01, before this program was released. Hosts without a hardware clock start in 1970.
pub const EARLIEST_UNIX: u64 = 1_767_225_600;
/// Corrections that wait. They wait only while the file of credentials cannot be read.
const CORRECTIONS_MAX: usize = 64;

/// Readings of the clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    /// The host's clock, in seconds since 1970.
    pub unix: u64,
    /// The boot id; `None` if it is unknown.
    pub boot: Option<[u8; 16]>,
    /// Seconds since the boot, sleep included.
    pub up_secs: u64,
}

/// Source of the time.
pub trait Clock: Send + Sync {
    /// Reads the clocks.
    fn read(&self) -> ClockReading;
}

/// The clocks of the host.
pub struct HostClock {
    boot: Option<[u8; 16]>,
}

impl HostClock {
    pub fn new() -> Self {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let boot = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
        // If the boot id is unknown, the kernel's count is valid for the lifetime of the process.
        let own = || {
            let mut own = [0; 16];
            getrandom(&mut own, GetRandomFlags::empty()).ok().map(|_| own)
        };
        Self { boot: boot.map(u128::to_le_bytes).or_else(own) }
    }
}

impl Clock for HostClock {
    fn read(&self) -> ClockReading {
        let up = u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or_default();
        ClockReading { unix: unix_now(), boot: self.boot, up_secs: up }
    }
}

/// A move of the clock, as a directory's reply has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateCorrection {
    /// The time before the move.
    from_unix: u64,
    /// The time after it.
    to_unix: u64,
}

impl DateCorrection {
    /// Returns a date of the corrected clock. A date up to the present time stays. A later date retains its age.
    #[must_use]
    pub fn corrected(self, unix: u64) -> u64 {
        let Self { from_unix, to_unix } = self;
        match unix {
            0 => 0,
            _ if from_unix > to_unix && unix > to_unix => {
                unix.saturating_sub(from_unix - to_unix).clamp(1, to_unix.max(1))
            }
            _ if from_unix < to_unix && unix < EARLIEST_UNIX => unix + (to_unix - from_unix),
            _ => unix,
        }
    }
}

/// The latest time that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonotonicClock {
    latest: ClockMark,
    /// The time in the file.
    written_unix: u64,
    /// Seconds by which the clock ran ahead of the kernel's count since a directory replied.
    ahead_secs: u64,
    /// Readings at the time of the directory's last reply.
    confirmed: Option<ClockReading>,
    /// Uptime, in seconds, since which the clock has agreed with the kernel's count.
    steady_up: u64,
    /// Corrections of dates that are due.
    due: Vec<DateCorrection>,
}

impl From<ClockMark> for MonotonicClock {
    fn from(latest: ClockMark) -> Self {
        Self { written_unix: latest.unix, latest, ..Self::default() }
    }
}

impl MonotonicClock {
    /// Returns the time while no directory replies: seconds since 1970, never fewer than before.
    pub fn now(&mut self, reading: &ClockReading) -> u64 {
        let counted = self.kernel_time(reading);
        if let Some(counted) = counted {
            let ahead = reading.unix.saturating_sub(counted);
            self.ahead_secs += if ahead > MOVED_SECS { ahead } else { 0 };
        }
        let now = reading.unix.max(counted.unwrap_or(self.latest.unix));
        self.latest = ClockMark { moved_unix: self.latest.moved_unix, ..mark(now, reading) };
        now
    }

    /// Returns the time while a directory replies: the host's clock, unless it is implausible.
    pub fn confirm(&mut self, reading: &ClockReading) -> u64 {
        let counted = self.kernel_time(reading);
        let own = self.now(reading);
        if reading.unix < EARLIEST_UNIX {
            return own;
        }
        let from_unix = if reading.unix.saturating_add(MOVED_SECS) < own {
            Some(own)
        } else {
            counted.filter(|counted| *counted < EARLIEST_UNIX && self.ahead_secs > 0)
        };
        let is_moved = from_unix.is_some() || self.ahead_secs > 0;
        if let Some(from_unix) = from_unix
            && self.due.len() < CORRECTIONS_MAX
        {
            self.due.push(DateCorrection { from_unix, to_unix: reading.unix });
        }
        if is_moved {
            let unix = if from_unix.is_some() { reading.unix } else { own };
            self.latest = ClockMark { moved_unix: reading.unix, ..mark(unix, reading) };
            // Has the mark written soon.
            self.written_unix = 0;
        }
        if is_moved || !self.agrees_with_kernel(reading) {
            self.steady_up = reading.up_secs;
        }
        self.ahead_secs = 0;
        self.confirmed = Some(reading.clone());
        self.latest.unix
    }

    /// Takes the latest time of another process into account.
    pub fn raise_to(&mut self, found: ClockMark, reading: &ClockReading) {
        let moved_unix = found.moved_unix.max(self.latest.moved_unix);
        let mut other = Self::from(found);
        if other.now(reading) >= self.now(reading) {
            self.latest = ClockMark { moved_unix, ..other.latest };
            self.ahead_secs = other.ahead_secs;
        }
        self.written_unix = other.written_unix;
    }

    /// Returns the latest time, to be written with data of that date.
    pub fn mark(&mut self) -> ClockMark {
        self.written_unix = self.latest.unix;
        self.latest.clone()
    }

    /// Returns the latest time if a write is due, so that it is known after the next start.
    pub fn due_mark(&mut self) -> Option<ClockMark> {
        let is_due = self.latest.unix >= self.written_unix.saturating_add(MARK_SECS);
        is_due.then(|| self.mark())
    }

    /// Returns the latest time if the clock was moved and that is not written yet.
    pub fn moved_mark(&mut self) -> Option<ClockMark> {
        let is_due = self.written_unix == 0 && self.latest.moved_unix > 0;
        is_due.then(|| self.mark())
    }

    /// Returns due corrections, once.
    pub fn take_corrections(&mut self) -> Vec<DateCorrection> {
        std::mem::take(&mut self.due)
    }

    /// Puts back corrections that could not be made.
    pub fn restore_corrections(&mut self, corrections: Vec<DateCorrection>) {
        self.due.splice(0..0, corrections);
    }

    /// Whether data of that date may be deleted by age. It requires that a directory has replied in this process, and
    /// that the clock was not moved since then or since that date.
    #[must_use]
    pub fn may_delete(&self, dated_unix: u64, reading: &ClockReading) -> bool {
        let is_steady = self.agrees_with_kernel(reading)
            && reading.up_secs.saturating_sub(self.steady_up) >= STEADY_SECS;
        is_steady && dated_unix >= self.latest.moved_unix.max(EARLIEST_UNIX)
    }

    /// Returns the reason why the clock is not trusted; `None` if it is.
    #[must_use]
    pub fn fault(&self, reading: &ClockReading) -> Option<Reason> {
        let now = self.kernel_time(reading).unwrap_or(self.latest.unix);
        let behind = now.saturating_sub(reading.unix);
        let ahead = self.kernel_time(reading).map_or(0, |now| reading.unix.saturating_sub(now));
        let ahead = self.ahead_secs + if ahead > MOVED_SECS { ahead } else { 0 };
        if reading.unix < EARLIEST_UNIX {
            Some(Reason::new(&login::CLOCK_TOO_EARLY, "the clock shows a time before 2026"))
        } else if behind > MOVED_SECS {
            let behind = describe_duration(behind);
            let text = format!("the clock is {behind} behind the latest known time");
            Some(Reason::new(&login::CLOCK_BEHIND, text))
        } else if ahead > 0 {
            let ahead = describe_duration(ahead);
            let text =
                format!("the clock was set ahead by {ahead} while the directory was offline");
            Some(Reason::new(&login::CLOCK_AHEAD, text))
        } else {
            None
        }
    }

    /// Returns the time by the kernel's count, if the latest time is of the same boot.
    fn kernel_time(&self, reading: &ClockReading) -> Option<u64> {
        let ClockMark { unix, boot, uptime_secs: up, .. } = self.latest;
        let is_same = unix > 0 && reading.boot == Some(boot);
        is_same.then(|| unix.saturating_add(reading.up_secs.saturating_sub(up)))
    }

    /// Whether the clock has agreed with the kernel's count since a directory replied.
    fn agrees_with_kernel(&self, reading: &ClockReading) -> bool {
        self.confirmed.as_ref().is_some_and(|before| {
            let counted =
                before.unix.saturating_add(reading.up_secs.saturating_sub(before.up_secs));
            before.boot == reading.boot && counted.abs_diff(reading.unix) <= MOVED_SECS
        })
    }
}

fn mark(unix: u64, reading: &ClockReading) -> ClockMark {
    ClockMark {
        unix,
        boot: reading.boot.unwrap_or_default(),
        uptime_secs: reading.up_secs,
        moved_unix: 0,
    }
}

fn describe_duration(secs: u64) -> String {
    match secs {
        0..7200 => format!("{} min", secs / 60),
        7200..172_800 => format!("{} h", secs / 3600),
        _ => format!("{} d", secs / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In 2027.
    const START: u64 = 1_800_000_000;
    const DAY: u64 = 86_400;

    fn reading(unix: u64, boot: u8, up: u64) -> ClockReading {
        ClockReading { unix, boot: Some([boot; 16]), up_secs: up }
    }

    fn text(time: &MonotonicClock, reading: &ClockReading) -> String {
        time.fault(reading).map(|reason| reason.text).unwrap_or_default()
    }

    #[test]
    fn the_host_tells_which_boot_it_is() {
        let (one, other) = (HostClock::new().read(), HostClock::new().read());
        assert!(one.boot.is_some() && one.boot == other.boot);
        assert!(one.up_secs > 0 && one.unix > 1_700_000_000);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_time() {
        let mut time = MonotonicClock::default();
        assert_eq!(time.now(&reading(1_000_000, 1, 100)), 1_000_000);
        assert_eq!(time.now(&reading(5_000, 1, 160)), 1_000_060);
        assert_eq!(time.now(&reading(1_000_070, 1, 170)), 1_000_070);
        assert_eq!(time.now(&reading(1_000_000, 1, 200)), 1_000_100);
    }

    #[test]
    fn a_boot_with_the_clock_set_back_begins_where_time_was() {
        let mut time = MonotonicClock::from(ClockMark {
            unix: 1_000_000,
            boot: [1; 16],
            uptime_secs: 900,
            ..ClockMark::default()
        });
        assert_eq!(time.now(&reading(5_000, 2, 10)), 1_000_000);
        assert_eq!(time.now(&reading(5_060, 2, 70)), 1_000_060);
        let unknown = ClockReading { unix: 5_100, boot: None, up_secs: 1_000_000 };
        assert_eq!(time.now(&unknown), 1_000_060, "which boot it is cannot be told");
    }

    #[test]
    fn clock_mark_is_due_once_a_minute() {
        let mut time = MonotonicClock::default();
        let mut note = |unix, up| {
            time.now(&reading(unix, 1, up));
            time.due_mark()
        };
        let mark =
            ClockMark { unix: 1_000_000, boot: [1; 16], uptime_secs: 100, ..ClockMark::default() };
        assert_eq!(note(1_000_000, 100), Some(mark));
        assert_eq!(note(1_000_059, 159), None);
        assert_eq!(note(1_000_060, 160).map(|mark| mark.unix), Some(1_000_060));
    }

    #[test]
    fn clock_set_back_is_confirmed_by_an_answer() {
        let mut time = MonotonicClock::default();
        time.now(&reading(START + 100 * DAY, 1, 100));
        let slightly = START + 100 * DAY - 100;
        time.confirm(&reading(slightly, 1, 110));
        assert_eq!(time.take_corrections(), [], "it was only adjusted");
        assert_eq!(time.confirm(&reading(START, 1, 200)), START);
        let due = time.take_corrections();
        assert_eq!(due.len(), 1);
        // A date of the earlier clock retains its age, another date stays.
        assert_eq!(due[0].corrected(START + 100 * DAY), START - 100);
        assert_eq!((due[0].corrected(START - 5), due[0].corrected(0)), (START - 5, 0));
        assert_eq!(time.now(&reading(START + 10, 1, 210)), START + 10);
        assert_eq!(time.mark().moved_unix, START);
    }

    #[test]
    fn clock_before_2026_is_never_confirmed() {
        let mut time = MonotonicClock::from(ClockMark {
            unix: START,
            boot: [1; 16],
            uptime_secs: 9,
            ..ClockMark::default()
        });
        assert_eq!(time.confirm(&reading(1000, 2, 20)), START);
        assert_eq!(time.confirm(&reading(1010, 2, 30)), START + 10);
        assert_eq!(time.take_corrections(), []);
        assert_eq!(text(&time, &reading(1010, 2, 30)), "the clock shows a time before 2026");
        let fault = time.fault(&reading(1010, 2, 30)).expect("a fault");
        assert_eq!(fault.message, &login::CLOCK_TOO_EARLY);
        // On a host without an earlier correct time.
        let mut time = MonotonicClock::default();
        assert_eq!(time.confirm(&reading(1000, 2, 20)), 1000);
        assert_eq!(time.confirm(&reading(START, 2, 40)), START);
        assert_eq!(time.take_corrections()[0].corrected(1005), START - 15);
    }

    #[test]
    fn clock_deletes_by_age_only_when_steady() {
        let mut time = MonotonicClock::default();
        let old = START - 50 * DAY;
        time.now(&reading(START, 1, 100));
        let later = |up: u64| reading(START - 100 + up, 1, up);
        assert!(!time.may_delete(old, &later(9000)), "no directory has answered");
        time.confirm(&later(100));
        assert!(!time.may_delete(old, &later(100 + STEADY_SECS - 1)));
        assert!(time.may_delete(old, &later(100 + STEADY_SECS)));
        assert!(!time.may_delete(EARLIEST_UNIX - 1, &later(100 + STEADY_SECS)));
        let moved = reading(START + 8 * DAY, 1, 5000);
        assert!(!time.may_delete(old, &moved));
        // The directory confirms the moved clock, too: data of earlier dates stays.
        time.confirm(&moved);
        let steady = reading(START + 8 * DAY + STEADY_SECS, 1, 5000 + STEADY_SECS);
        assert!(!time.may_delete(old, &steady));
        assert!(time.may_delete(START + 8 * DAY, &steady));
    }

    #[test]
    fn clock_doubts_name_what_is_wrong() {
        let mut time = MonotonicClock::default();
        time.confirm(&reading(START, 1, 100));
        assert_eq!(text(&time, &reading(START + 9, 1, 110)), "");
        assert_eq!(
            text(&time, &reading(START - 7 * 3600, 1, 100)),
            "the clock is 7 h behind the latest known time"
        );
        let ahead = reading(START + 8 * DAY, 1, 100);
        let set_ahead = "the clock was set ahead by 8 d while the directory was offline";
        assert_eq!(text(&time, &ahead), set_ahead);
        assert_eq!(time.fault(&ahead).expect("a fault").message, &login::CLOCK_AHEAD);
        time.now(&ahead);
        assert_eq!(text(&time, &ahead), set_ahead, "also after it was seen");
        assert_eq!(
            text(&time, &reading(START, 1, 100)),
            "the clock is 8 d behind the latest known time"
        );
        time.confirm(&reading(START, 1, 100));
        assert_eq!(text(&time, &reading(START, 1, 101)), "");
    }
}
