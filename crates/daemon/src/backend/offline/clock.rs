//! The time that lives and locks are counted in.
//!
//! A clock that is set back must lengthen no life, so the latest time that was ever seen is kept with
//! what is counted by it. Within one boot time goes on from there as the kernel counts it, sleep included,
//! whatever the clock says; over a boot it never begins earlier. A clock that was ahead would be believed
//! for ever, so the host's clock is believed while a directory answers. If it was moved, dates are
//! [corrected](Correction): ages stay as they were counted. Knows no credentials and no directory.

use roster_store::credentials::Mark;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// The mark is written again when time has gone on by so many seconds.
const MARK_SECS: u64 = 60;
/// A clock that differs by so much was moved; less is how clocks are kept right.
const MOVED_SECS: u64 = 300;
/// How long a clock has to go with the kernel's count before anything is deleted by it. Clocks that are wrong after a
/// boot are set within minutes.
const STEADY_SECS: u64 = 3600;
/// No clock that shows an earlier time is right: 2026-01-01, before this program was released. Hosts without a
/// clock of their own begin in 1970.
pub const EARLIEST_UNIX: u64 = 1_767_225_600;
/// Corrections that wait to be made. They wait only while the file of credentials cannot be read.
const CORRECTIONS_MAX: usize = 64;

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

/// The clock was moved, as a directory's answer has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correction {
    /// What time it was until then.
    from_unix: u64,
    /// And what it is.
    to_unix: u64,
}

impl Correction {
    /// A date as it is now. What is not later than now stays. A later date keeps its age.
    #[must_use]
    pub fn redated(self, unix: u64) -> u64 {
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
pub struct Time {
    latest: Mark,
    /// As it is on the disk.
    written_unix: u64,
    /// By how much the clock went ahead of the kernel's count since a directory answered, in seconds.
    ahead_secs: u64,
    /// What the clocks showed when a directory answered last.
    confirmed: Option<Reading>,
    /// Since when the clock has gone with the kernel's count, in its seconds.
    steady_up: u64,
    /// Corrections of dates that are to be made.
    due: Vec<Correction>,
}

impl From<Mark> for Time {
    fn from(latest: Mark) -> Self {
        Self { written_unix: latest.unix, latest, ..Self::default() }
    }
}

impl Time {
    /// Seconds since 1970, and never fewer than before: the time while no directory answers.
    pub fn now(&mut self, reading: &Reading) -> u64 {
        let counted = self.counted(reading);
        if let Some(counted) = counted {
            let ahead = reading.unix.saturating_sub(counted);
            self.ahead_secs += if ahead > MOVED_SECS { ahead } else { 0 };
        }
        let now = reading.unix.max(counted.unwrap_or(self.latest.unix));
        self.latest = Mark { moved_unix: self.latest.moved_unix, ..mark(now, reading) };
        now
    }

    /// The time when a directory answers: the clock's, unless it cannot be right.
    pub fn confirm(&mut self, reading: &Reading) -> u64 {
        let counted = self.counted(reading);
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
            self.due.push(Correction { from_unix, to_unix: reading.unix });
        }
        if is_moved {
            let unix = if from_unix.is_some() { reading.unix } else { own };
            self.latest = Mark { moved_unix: reading.unix, ..mark(unix, reading) };
            // So that the mark is written soon.
            self.written_unix = 0;
        }
        if is_moved || !self.goes_with_kernel(reading) {
            self.steady_up = reading.up;
        }
        self.ahead_secs = 0;
        self.confirmed = Some(reading.clone());
        self.latest.unix
    }

    /// What another process knew as the latest time.
    pub fn not_before(&mut self, found: Mark, reading: &Reading) {
        let moved_unix = found.moved_unix.max(self.latest.moved_unix);
        let mut other = Self::from(found);
        if other.now(reading) >= self.now(reading) {
            self.latest = Mark { moved_unix, ..other.latest };
            self.ahead_secs = other.ahead_secs;
        }
        self.written_unix = other.written_unix;
    }

    /// The latest time, to be written with what is dated by it.
    pub fn mark(&mut self) -> Mark {
        self.written_unix = self.latest.unix;
        self.latest.clone()
    }

    /// The latest time, if it is to be written so that it is known after the next start.
    pub fn note(&mut self) -> Option<Mark> {
        let is_due = self.latest.unix >= self.written_unix.saturating_add(MARK_SECS);
        is_due.then(|| self.mark())
    }

    /// The latest time, if the clock was moved and that is not written yet.
    pub fn note_move(&mut self) -> Option<Mark> {
        let is_due = self.written_unix == 0 && self.latest.moved_unix > 0;
        is_due.then(|| self.mark())
    }

    /// Corrections that are to be made now; gives them once.
    pub fn take_due(&mut self) -> Vec<Correction> {
        std::mem::take(&mut self.due)
    }

    /// These could not be made.
    pub fn put_back(&mut self, corrections: Vec<Correction>) {
        self.due.splice(0..0, corrections);
    }

    /// Whether something of that date may be deleted for its age: a directory has answered in this process, and
    /// the clock has not been moved since, nor since that date.
    #[must_use]
    pub fn may_delete(&self, dated_unix: u64, reading: &Reading) -> bool {
        let is_steady = self.goes_with_kernel(reading)
            && reading.up.saturating_sub(self.steady_up) >= STEADY_SECS;
        is_steady && dated_unix >= self.latest.moved_unix.max(EARLIEST_UNIX)
    }

    /// Why the clock is not believed, in words; empty if it is.
    #[must_use]
    pub fn doubt(&self, reading: &Reading) -> String {
        let now = self.counted(reading).unwrap_or(self.latest.unix);
        let behind = now.saturating_sub(reading.unix);
        let ahead = self.counted(reading).map_or(0, |now| reading.unix.saturating_sub(now));
        let ahead = self.ahead_secs + if ahead > MOVED_SECS { ahead } else { 0 };
        if reading.unix < EARLIEST_UNIX {
            "it shows a time before 2026".to_owned()
        } else if behind > MOVED_SECS {
            format!("it is {} behind the latest time that was seen", in_words(behind))
        } else if ahead > 0 {
            format!("it was set ahead by {} while the directory did not answer", in_words(ahead))
        } else {
            String::new()
        }
    }

    /// The time by the kernel's count, where the latest time is of the same boot.
    fn counted(&self, reading: &Reading) -> Option<u64> {
        let Mark { unix, boot, up, .. } = self.latest;
        let is_same = unix > 0 && reading.boot == Some(boot);
        is_same.then(|| unix.saturating_add(reading.up.saturating_sub(up)))
    }

    /// Whether the clock has gone as the kernel counts since a directory answered.
    fn goes_with_kernel(&self, reading: &Reading) -> bool {
        self.confirmed.as_ref().is_some_and(|before| {
            let counted = before.unix.saturating_add(reading.up.saturating_sub(before.up));
            before.boot == reading.boot && counted.abs_diff(reading.unix) <= MOVED_SECS
        })
    }
}

fn mark(unix: u64, reading: &Reading) -> Mark {
    Mark { unix, boot: reading.boot.unwrap_or_default(), up: reading.up, moved_unix: 0 }
}

fn in_words(secs: u64) -> String {
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
        let mut time =
            Time::from(Mark { unix: 1_000_000, boot: [1; 16], up: 900, ..Mark::default() });
        assert_eq!(time.now(&reading(5_000, 2, 10)), 1_000_000);
        assert_eq!(time.now(&reading(5_060, 2, 70)), 1_000_060);
        let unknown = Reading { unix: 5_100, boot: None, up: 1_000_000 };
        assert_eq!(time.now(&unknown), 1_000_060, "which boot it is cannot be told");
    }

    #[test]
    fn clock_mark_is_due_once_a_minute() {
        let mut time = Time::default();
        let mut note = |unix, up| {
            time.now(&reading(unix, 1, up));
            time.note()
        };
        let mark = Mark { unix: 1_000_000, boot: [1; 16], up: 100, ..Mark::default() };
        assert_eq!(note(1_000_000, 100), Some(mark));
        assert_eq!(note(1_000_059, 159), None);
        assert_eq!(note(1_000_060, 160).map(|mark| mark.unix), Some(1_000_060));
    }

    #[test]
    fn clock_set_back_is_confirmed_by_an_answer() {
        let mut time = Time::default();
        time.now(&reading(START + 100 * DAY, 1, 100));
        let slightly = START + 100 * DAY - 100;
        time.confirm(&reading(slightly, 1, 110));
        assert_eq!(time.take_due(), [], "it was only adjusted");
        assert_eq!(time.confirm(&reading(START, 1, 200)), START);
        let due = time.take_due();
        assert_eq!(due.len(), 1);
        // One of the time before keeps its age, one of another time stays.
        assert_eq!(due[0].redated(START + 100 * DAY), START - 100);
        assert_eq!((due[0].redated(START - 5), due[0].redated(0)), (START - 5, 0));
        assert_eq!(time.now(&reading(START + 10, 1, 210)), START + 10);
        assert_eq!(time.mark().moved_unix, START);
    }

    #[test]
    fn clock_before_2026_is_never_confirmed() {
        let mut time = Time::from(Mark { unix: START, boot: [1; 16], up: 9, ..Mark::default() });
        assert_eq!(time.confirm(&reading(1000, 2, 20)), START);
        assert_eq!(time.confirm(&reading(1010, 2, 30)), START + 10);
        assert_eq!(time.take_due(), []);
        assert_eq!(time.doubt(&reading(1010, 2, 30)), "it shows a time before 2026");
        // On a host that has never known better.
        let mut time = Time::default();
        assert_eq!(time.confirm(&reading(1000, 2, 20)), 1000);
        assert_eq!(time.confirm(&reading(START, 2, 40)), START);
        assert_eq!(time.take_due()[0].redated(1005), START - 15);
    }

    #[test]
    fn clock_deletes_by_age_only_when_steady() {
        let mut time = Time::default();
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
        // The directory answers by the moved clock, too: what is dated before it stays.
        time.confirm(&moved);
        let steady = reading(START + 8 * DAY + STEADY_SECS, 1, 5000 + STEADY_SECS);
        assert!(!time.may_delete(old, &steady));
        assert!(time.may_delete(START + 8 * DAY, &steady));
    }

    #[test]
    fn clock_doubts_name_what_is_wrong() {
        let mut time = Time::default();
        time.confirm(&reading(START, 1, 100));
        assert_eq!(time.doubt(&reading(START + 9, 1, 110)), "");
        assert_eq!(
            time.doubt(&reading(START - 7 * 3600, 1, 100)),
            "it is 7 h behind the latest time that was seen"
        );
        let ahead = reading(START + 8 * DAY, 1, 100);
        let text = "it was set ahead by 8 d while the directory did not answer";
        assert_eq!(time.doubt(&ahead), text);
        time.now(&ahead);
        assert_eq!(time.doubt(&ahead), text, "also after it was seen");
        assert_eq!(
            time.doubt(&reading(START, 1, 100)),
            "it is 8 d behind the latest time that was seen"
        );
        time.confirm(&reading(START, 1, 100));
        assert_eq!(time.doubt(&reading(START, 1, 101)), "");
    }
}
