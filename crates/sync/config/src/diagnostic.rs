//! Mistakes in configuration files, with their position and their fix.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Severity of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is used. A value is probably a mistake.
    Warning,
    /// The file is used, and logins of a domain are denied until this is fixed.
    Refusal,
    /// The file is not used.
    Error,
}

/// One mistake. Its `Display` is the message without the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Severity.
    pub severity: Severity,
    /// The file with the mistake.
    pub file: PathBuf,
    /// Line in the file, from 1. 0 for the file as a whole.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
    /// Path of the key, such as `domain.corp.schema`. Empty if the text is not TOML.
    pub key: String,
    /// The mistake.
    pub message: String,
    /// The correct value, or the next step.
    pub fix: Option<String>,
}

impl Diagnostic {
    /// Returns a mistake of the file as a whole.
    #[must_use]
    pub fn of_file(severity: Severity, file: &Path, problem: ConfigProblem) -> Self {
        let ConfigProblem { message, fix } = problem;
        Self {
            severity,
            file: file.to_owned(),
            line: 0,
            column: 1,
            key: String::new(),
            message,
            fix,
        }
    }

    /// Formats a line for administrators: file, line, key, mistake and fix.
    pub fn render(&self) -> String {
        let warning = if self.severity == Severity::Warning { "warning: " } else { "" };
        let line = if self.line == 0 { String::new() } else { format!("{}:", self.line) };
        format!("{}:{line} {warning}{self}", self.file.display())
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write_problem(f, &self.message, self.fix.as_deref())
    }
}

fn write_problem(f: &mut fmt::Formatter<'_>, message: &str, fix: Option<&str>) -> fmt::Result {
    f.write_str(message)?;
    fix.map_or(Ok(()), |fix| write!(f, "; {fix}"))
}

/// A mistake and its fix, without its position in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The mistake.
    pub message: String,
    /// The correct value, or the next step.
    pub fix: Option<String>,
}

impl ConfigProblem {
    pub(crate) fn new(what: impl Into<String>, instead: impl Into<String>) -> Self {
        Self { message: what.into(), fix: Some(instead.into()) }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_problem(f, &self.message, self.fix.as_deref())
    }
}

/// A text with the starts of its lines.
pub(crate) struct LineIndex<'t> {
    text: &'t str,
    /// Byte offset of each line.
    starts: Vec<usize>,
}

impl<'t> LineIndex<'t> {
    pub fn from_text(text: &'t str) -> Self {
        let behind = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(behind).collect() }
    }

    /// Returns line and column of a position, from 1.
    pub fn locate(&self, place: &Range<usize>) -> (usize, usize) {
        let at = place.start.min(self.text.len());
        let line = self.starts.partition_point(|&start| start <= at);
        let start = line.checked_sub(1).and_then(|line| self.starts.get(line)).unwrap_or(&0);
        let before = self.text.get(*start..at).unwrap_or_default();
        (line, before.chars().count() + 1)
    }
}

/// Texts of several files, with positions in one common range.
#[derive(Default)]
pub(crate) struct SourceIndex<'t> {
    /// Each with its first position.
    sources: Vec<(usize, &'t Path, LineIndex<'t>)>,
    end: usize,
}

impl<'t> SourceIndex<'t> {
    /// Adds a file. Returns the offset of its text in the common range.
    pub fn add(&mut self, path: &'t Path, text: &'t str) -> usize {
        let offset = self.end;
        self.sources.push((offset, path, LineIndex::from_text(text)));
        // The end of a text is also a position.
        self.end += text.len() + 1;
        offset
    }

    /// Returns file, line and column of a position.
    pub fn locate(&self, place: &Range<usize>) -> (&'t Path, usize, usize) {
        let behind = self.sources.partition_point(|(offset, ..)| *offset <= place.start);
        let Some((offset, path, lines)) =
            behind.checked_sub(1).and_then(|found| self.sources.get(found))
        else {
            return (Path::new(""), 0, 1);
        };
        let (line, column) = lines.locate(&(place.start - offset..place.end.max(*offset) - offset));
        (path, line, column)
    }
}

/// Returns the most similar candidate, if one is similar enough.
pub(crate) fn nearest<'a>(
    typed: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // Longer than any key or word. The table would have the square of the length.
    if typed.len() > 64 {
        return None;
    }
    let typed = typed.to_ascii_lowercase();
    let within = (typed.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(&typed, candidate), candidate))
        .filter(|&(distance, _)| distance <= within)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the number of insertions, deletions, replacements and swaps of neighbours between two texts.
fn distance(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().collect();
    let to: Vec<char> = to.chars().collect();
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    rows[0] = (0..=to.len()).collect();
    for at in 1..=from.len() {
        rows[at][0] = at;
        for other in 1..=to.len() {
            let changed = usize::from(from[at - 1] != to[other - 1]);
            let mut least = (rows[at - 1][other] + 1)
                .min(rows[at][other - 1] + 1)
                .min(rows[at - 1][other - 1] + changed);
            let swapped = at > 1
                && other > 1
                && from[at - 1] == to[other - 2]
                && from[at - 2] == to[other - 1];
            if swapped {
                least = least.min(rows[at - 2][other - 2] + 1);
            }
            rows[at][other] = least;
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_finger_are_seen_through_and_other_words_are_not() {
        let schemas = ["rfc2307", "rfc2307bis"];
        assert_eq!(nearest("rfc2307bs", schemas), Some("rfc2307bis"));
        assert_eq!(nearest("RFC2307", schemas), Some("rfc2307"));
        assert_eq!(nearest("rcf2307", schemas), Some("rfc2307"));
        assert_eq!(nearest("ad", schemas), None);
        assert_eq!(nearest("provder", ["provider", "mode"]), Some("provider"));
        assert_eq!(nearest(&"x".repeat(1000), schemas), None);
    }

    #[test]
    fn sources_have_their_own_lines() {
        let mut sources = SourceIndex::default();
        let (one, two) = (sources.add(Path::new("1"), "a\nb"), sources.add(Path::new("2"), "c\nd"));
        let found = |at| sources.locate(&(at..at + 1));
        assert_eq!((one, two), (0, 4));
        assert_eq!(found(2), (Path::new("1"), 2, 1));
        assert_eq!(found(3), (Path::new("1"), 2, 2), "its end");
        assert_eq!(found(4), (Path::new("2"), 1, 1));
        assert_eq!(found(6), (Path::new("2"), 2, 1));
        assert_eq!(found(99), (Path::new("2"), 2, 2));
    }

    #[test]
    fn places_count_characters_from_one() {
        assert_eq!(LineIndex::from_text("a = 1\nä = ö").locate(&(10..11)), (2, 4));
        assert_eq!(LineIndex::from_text("a\n\nb\n").locate(&(1..2)), (1, 2));
        assert_eq!(LineIndex::from_text("a\n\nb\n").locate(&(3..4)), (3, 1));
        assert_eq!(LineIndex::from_text("").locate(&(0..0)), (1, 1));
        assert_eq!(LineIndex::from_text("ab").locate(&(7..9)), (1, 3));
    }
}
