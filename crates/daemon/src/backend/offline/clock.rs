//! The time that lives and locks are counted in.
//!
//! A clock that is set back must lengthen no life, so the latest time that was ever seen is kept with what
//! is counted by it. Within one boot time goes on from there as the kernel counts it, sleep included,
//! whatever the clock says; over a boot it never begins earlier. A clock that was ahead would be believed
//! for ever: it is put right when a directory answers, which is when what was kept meanwhile is forgotten.

use roster_store::credentials::Mark;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// The mark is written again when time has gone on by so many seconds.
const MARK_SECS: u64 = 60;
/// A clock that is so much behind was set back; less is how clocks are kept right.
const SET_BACK_SECS: u64 = 300;

/// What clocks show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The host's clock, in seconds since 1970.
    pub unix: u64,
    /// Which boot this is; none when that cannot be told.
    pub boot: Option<[u8; 16]>,
    /// Seconds since then, sleep included.
    pub up: u64,
}

/// Shows the time.
pub trait Clock: Send + Sync {
    /// Now.
    fn read(&self) -> Reading;
}

/// The clocks of the host.
pub struct OfTheHost {
    boot: Option<[u8; 16]>,
}

impl OfTheHost {
    pub fn new() -> Self {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let boot = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
        // Where that cannot be told, time goes on by the kernel for as long as the process lives.
        let own = || {
            let mut own = [0; 16];
            getrandom(&mut own, GetRandomFlags::empty()).ok().map(|_| own)
        };
        Self { boot: boot.map(u128::to_le_bytes).or_else(own) }
    }
}

impl Clock for OfTheHost {
    fn read(&self) -> Reading {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let up = u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or_default();
        Reading { unix, boot: self.boot, up }
    }
}

/// The latest time that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Time {
    latest: Mark,
    /// As it is on the disk.
    written_unix: u64,
}

impl From<Mark> for Time {
    fn from(latest: Mark) -> Self {
        Self { written_unix: latest.unix, latest }
    }
}

impl Time {
    /// Seconds since 1970, and never fewer than before.
    pub fn now(&mut self, reading: &Reading) -> u64 {
        let Mark { unix, boot, up } = self.latest;
        let went_on = match reading.boot {
            Some(same) if same == boot => reading.up.saturating_sub(up),
            _ => 0,
        };
        let now = reading.unix.max(unix.saturating_add(went_on));
        self.latest = mark(now, reading);
        now
    }

    /// The same, and what is to be written so that it is known after the next start.
    pub fn note(&mut self, reading: &Reading) -> (u64, Option<Mark>) {
        let now = self.now(reading);
        if now < self.written_unix.saturating_add(MARK_SECS) {
            return (now, None);
        }
        self.written_unix = now;
        (now, Some(self.latest.clone()))
    }

    /// The clock is believed, if it was set back: then it is this mark from now on.
    pub fn put_right(&mut self, reading: &Reading) -> Option<Mark> {
        let now = self.now(reading);
        if reading.unix.saturating_add(SET_BACK_SECS) >= now {
            return None;
        }
        self.latest = mark(reading.unix, reading);
        self.written_unix = reading.unix;
        Some(self.latest.clone())
    }
}

fn mark(unix: u64, reading: &Reading) -> Mark {
    Mark { unix, boot: reading.boot.unwrap_or_default(), up: reading.up }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(unix: u64, boot: u8, up: u64) -> Reading {
        Reading { unix, boot: Some([boot; 16]), up }
    }

    #[test]
    fn the_host_tells_which_boot_it_is() {
        let (one, other) = (OfTheHost::new().read(), OfTheHost::new().read());
        assert!(one.boot.is_some() && one.boot == other.boot);
        assert!(one.up > 0 && one.unix > 1_700_000_000);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_time() {
        let mut time = Time::default();
        assert_eq!(time.now(&reading(1_000_000, 1, 100)), 1_000_000);
        assert_eq!(time.now(&reading(5_000, 1, 160)), 1_000_060);
        assert_eq!(time.now(&reading(1_000_070, 1, 170)), 1_000_070);
        assert_eq!(time.now(&reading(1_000_000, 1, 200)), 1_000_100);
    }

    #[test]
    fn a_boot_with_the_clock_set_back_begins_where_time_was() {
        let mut time = Time::from(Mark { unix: 1_000_000, boot: [1; 16], up: 900 });
        assert_eq!(time.now(&reading(5_000, 2, 10)), 1_000_000);
        assert_eq!(time.now(&reading(5_060, 2, 70)), 1_000_060);
        let unknown = Reading { unix: 5_100, boot: None, up: 1_000_000 };
        assert_eq!(time.now(&unknown), 1_000_060, "which boot it is cannot be told");
    }

    #[test]
    fn the_mark_is_written_once_a_minute() {
        let mut time = Time::default();
        let (_, mark) = time.note(&reading(1_000_000, 1, 100));
        assert_eq!(mark, Some(Mark { unix: 1_000_000, boot: [1; 16], up: 100 }));
        assert_eq!(time.note(&reading(1_000_059, 1, 159)), (1_000_059, None));
        let (now, mark) = time.note(&reading(1_000_060, 1, 160));
        assert_eq!((now, mark.map(|mark| mark.unix)), (1_000_060, Some(1_000_060)));
    }

    #[test]
    fn a_clock_that_was_ahead_is_put_right_while_a_directory_answers() {
        let mut time = Time::default();
        time.now(&reading(9_000_000, 1, 100));
        assert_eq!(time.put_right(&reading(8_999_900, 1, 110)), None, "it was only corrected");
        let mark = time.put_right(&reading(1_000_000, 1, 200));
        assert_eq!(mark.map(|mark| mark.unix), Some(1_000_000));
        assert_eq!(time.now(&reading(1_000_010, 1, 210)), 1_000_010);
    }
}
