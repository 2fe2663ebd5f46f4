// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats the output of commands: numbers, sizes, tables, errors, and a progress bar. Colours and bars are for
//! terminals only; files and pipes receive plain text. The texts are in the modules of the commands, such as `inspect`.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use roster_messages::CodedError;
use roster_messages::table::tools;
use std::fmt::Display;
use std::io::{self, IsTerminal, StdoutLock, Write};
use std::iter;
use std::path::Path;
use std::time::{Duration, Instant};

/// Age of a task from which the bar is shown. Before that it would flicker.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// Prints a line on standard error. Ignores an error of that stream, so that the command continues.
pub fn print_stderr(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints an error without ending the command.
pub fn print_error(error: &CodedError) {
    print_stderr(format_args!("roster: {error}"));
}

/// Prints a warning.
pub fn print_warning(warning: &CodedError) {
    print_stderr(format_args!("roster: warning: {warning}"));
}

/// Standard output with coded errors.
pub struct Stdout(StdoutLock<'static>);

impl Stdout {
    pub fn lock() -> Self {
        Self(io::stdout().lock())
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| on_stdout(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| on_stdout(&error))
    }
}

fn on_stdout(error: &io::Error) -> io::Error {
    // The kind stays: callers repeat an interrupted call, and a broken pipe is not a failure.
    let coded = CodedError::new(&tools::OUTPUT_STREAM_FAILED, "standard output: write failed");
    io::Error::new(error.kind(), coded.caused_by(error.to_string()))
}

/// Returns a path for JSON. U+FFFD replaces invalid UTF-8.
pub fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Formats `1234567` as `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats `1` as `1 group`, `2` as `2 groups`.
pub fn count_with_noun(number: u64, what: &str) -> String {
    match (number, what.strip_suffix("ry")) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{} {stem}ries", count(number)),
        (_, None) => format!("{} {what}s", count(number)),
    }
}

/// Formats a size in the units of `ls -h`, with three digits.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number < 1024 {
        return count_with_noun(number, "byte");
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Formats a duration in one unit, from microseconds to days.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match duration.as_secs() {
        0 if seconds < 0.001 => format!("{:.0} µs", seconds * 1e6),
        0 => format!("{:.0} ms", seconds * 1e3),
        1..60 => format!("{seconds:.2} s"),
        whole @ 60..3600 => count_with_noun(whole / 60, "minute"),
        whole @ 3600..172_800 => count_with_noun(whole / 3600, "hour"),
        whole => count_with_noun(whole / 86_400, "day"),
    }
}

/// Escapes control characters in text from other programs.
pub fn printable(text: &str) -> String {
    let escape = |char: char| -> Box<dyn Iterator<Item = char>> {
        if char.is_control() { Box::new(char.escape_default()) } else { Box::new(iter::once(char)) }
    };
    text.chars().flat_map(escape).collect()
}

/// Alignment of the cells of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Formats rows of cells as a table.
pub fn table(rows: &[Vec<String>], columns: &[Align]) -> String {
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, &align), &width) in row.iter().zip(columns).zip(&widths) {
            let gap = if line.is_empty() { "" } else { "  " };
            line += &match align {
                Align::Left => format!("{gap}{cell:<width$}"),
                Align::Right => format!("{gap}{cell:>width$}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Colours for marks and diffs, or none.
#[derive(Clone, Copy)]
pub struct Paint {
    on: bool,
}

/// Colours by their ANSI number.
#[derive(Clone, Copy)]
pub enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

impl Paint {
    /// Returns colours for standard output. `NO_COLOR` disables them.
    pub fn stdout() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { on: wanted && io::stdout().is_terminal() }
    }

    #[cfg(test)]
    pub fn plain() -> Self {
        Self { on: false }
    }

    pub fn text(self, colour: Colour, text: &str) -> String {
        if self.on { format!("\x1b[{}m{text}\x1b[0m", colour as u8) } else { text.to_owned() }
    }
}

/// A bar that appears on a terminal after one second.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
}

impl Progress {
    pub fn new(total: u64, what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} % {eta:>4}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Self { bar, started: Instant::now(), shown: false }
    }

    pub fn at(&mut self, done: u64) {
        if !self.shown && self.started.elapsed() >= BAR_AFTER {
            self.shown = true;
            // The bar stays hidden if standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if self.shown {
            self.bar.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_thousands_marked() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (4_995_000, "4,995,000")] {
            assert_eq!(count(number), text);
        }
        assert_eq!(count_with_noun(1, "entry"), "1 entry");
        assert_eq!(count_with_noun(0, "entry"), "0 entries");
        assert_eq!(count_with_noun(2000, "group"), "2,000 groups");
    }

    #[test]
    fn a_table_has_straight_columns_and_no_blanks_at_the_end() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows =
            [row(["NAME", "USERS", "FROM"]), row(["a", "1,000", "x"]), row(["longer", "7", ""])];
        assert_eq!(
            table(&rows, &[Align::Left, Align::Right, Align::Left]),
            "NAME    USERS  FROM\na       1,000  x\nlonger      7\n"
        );
    }

    #[test]
    fn foreign_text_cannot_move_the_cursor() {
        assert_eq!(printable("ä\x1b[2J\n"), "ä\\u{1b}[2J\\n");
    }

    #[test]
    fn sizes_and_times_keep_three_digits() {
        for (size, text) in
            [(1, "1 byte"), (1023, "1,023 bytes"), (1536, "1.50 KiB"), (24 << 20, "24.0 MiB")]
        {
            assert_eq!(bytes(size), text);
        }
        for (micros, text) in [(7, "7 µs"), (12_345, "12 ms"), (1_500_000, "1.50 s")] {
            assert_eq!(duration(Duration::from_micros(micros)), text);
        }
        assert_eq!(duration(Duration::from_secs(3 * 86_400)), "3 days");
    }
}
