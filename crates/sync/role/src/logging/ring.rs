// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last debug lines that the level of the log leaves out. An error writes them, so that the log shows the steps
//! that led to it. Pure: time is an argument. `writer` prints them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Largest number of lines.
pub const LINES_MAX: usize = 256;
/// Largest total of their texts, in bytes.
pub const BYTES_MAX: usize = 64 << 10;
/// Longest line, in bytes. The rest is cut off.
const LINE_BYTES_MAX: usize = 1 << 10;
/// Shortest time between two backtraces. Each line is written once.
pub const PAUSE: Duration = Duration::from_secs(300);

/// A line that was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingLine {
    /// The line's time, as in the log.
    pub time: String,
    /// The line without time, level and role.
    pub text: String,
}

/// The last lines, oldest first.
#[derive(Default)]
pub struct DebugRing {
    lines: VecDeque<RingLine>,
    bytes: usize,
    last_taken: Option<Instant>,
}

impl DebugRing {
    /// Adds a line. Drops the oldest ones beyond the limits.
    pub fn push(&mut self, time: String, mut text: String) {
        text.truncate(text.floor_char_boundary(LINE_BYTES_MAX));
        self.bytes += text.len();
        self.lines.push_back(RingLine { time, text });
        while self.lines.len() > LINES_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.text.len();
        }
    }

    /// Removes and returns all lines at an error. Returns nothing for a while after that.
    pub fn take_lines(&mut self, now: Instant) -> VecDeque<RingLine> {
        let is_due =
            self.last_taken.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        if !is_due || self.lines.is_empty() {
            return VecDeque::new();
        }
        self.last_taken = Some(now);
        self.bytes = 0;
        std::mem::take(&mut self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &VecDeque<RingLine>) -> Vec<&str> {
        lines.iter().map(|line| &*line.text).collect()
    }

    #[test]
    fn ring_keeps_last_lines_within_bounds() {
        let now = Instant::now();
        let mut ring = DebugRing::default();
        for number in 0..LINES_MAX + 2 {
            ring.push(String::new(), number.to_string());
        }
        let lines = ring.take_lines(now);
        assert_eq!((lines.len(), &*lines[0].text), (LINES_MAX, "2"));

        let mut ring = DebugRing::default();
        for _ in 0..LINES_MAX {
            ring.push(String::new(), "é".repeat(LINE_BYTES_MAX));
        }
        let lines = ring.take_lines(now);
        assert_eq!(lines.len(), BYTES_MAX / LINE_BYTES_MAX);
        assert!(lines.iter().all(|line| line.text.len() == LINE_BYTES_MAX));
    }

    #[test]
    fn ring_writes_once_and_then_pauses() {
        let now = Instant::now();
        let mut ring = DebugRing::default();
        assert!(ring.take_lines(now).is_empty());
        ring.push(String::new(), "one".into());
        assert_eq!(texts(&ring.take_lines(now)), ["one"]);
        ring.push(String::new(), "two".into());
        assert!(ring.take_lines(now + PAUSE / 2).is_empty());
        ring.push(String::new(), "three".into());
        assert_eq!(texts(&ring.take_lines(now + PAUSE)), ["two", "three"]);
    }
}
