// SPDX-License-Identifier: MIT OR Apache-2.0
//! Positions in configuration files, and similar names, for the messages about mistakes.
//!
//! The messages themselves are [`CodedError`]s without a position and [`Diagnostic`]s with one. This module parses no
//! TOML and knows no keys.

use roster_messages::{CodedError, Diagnostic, Severity};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Adds a position to a mistake. `place` is the file with line and column.
pub(crate) fn with_position(
    severity: Severity,
    (file, line, column): (PathBuf, usize, usize),
    key: String,
    error: CodedError,
) -> Diagnostic {
    let CodedError { message, text, fix, .. } = error;
    Diagnostic { message, severity, file, line, column, key, text, fix }
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
    fn nearest_finds_typing_mistakes_only() {
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
