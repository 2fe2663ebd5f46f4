//! What is wrong with a file, where, and what to write instead.

use std::fmt;
use std::ops::Range;
use std::path::Path;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is used; something in it is most likely not what was meant.
    Warning,
    /// The file is used, and logins of a domain are refused until this is fixed.
    Refusal,
    /// The file is not used.
    Error,
}

/// One mistake. Its `Display` is the message without the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Line in the file, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
    /// Path of the key, such as `domain.corp.schema`; empty where the text is no TOML.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What to write instead, or to do.
    pub instead: Option<String>,
}

impl Problem {
    /// A line for people: file, line, key, what is wrong, what to write instead.
    pub fn render(&self, file: &Path) -> String {
        let warning = if self.severity == Severity::Warning { "warning: " } else { "" };
        let line = if self.line == 0 { String::new() } else { format!("{}:", self.line) };
        format!("{}:{line} {warning}{self}", file.display())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)?;
        match &self.instead {
            Some(instead) => write!(f, "; {instead}"),
            None => Ok(()),
        }
    }
}

/// A finding about a value before its place in the file is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub what: String,
    pub instead: Option<String>,
}

impl Wrong {
    pub fn new(what: impl Into<String>, instead: impl Into<String>) -> Self {
        Self { what: what.into(), instead: Some(instead.into()) }
    }
}

/// A text by its lines.
pub(crate) struct Lines<'t> {
    text: &'t str,
    /// Where each line begins.
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub fn of(text: &'t str) -> Self {
        let behind = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(behind).collect() }
    }

    /// Line and column of a place, from 1.
    pub fn locate(&self, place: &Range<usize>) -> (usize, usize) {
        let at = place.start.min(self.text.len());
        let line = self.starts.partition_point(|&start| start <= at);
        let start = line.checked_sub(1).and_then(|line| self.starts.get(line)).unwrap_or(&0);
        let before = self.text.get(*start..at).unwrap_or_default();
        (line, before.chars().count() + 1)
    }
}

/// The candidate that was most likely meant, if one is close.
pub(crate) fn nearest<'a>(
    typed: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // Longer than any key or word: not worth a table of its square.
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

/// Insertions, deletions, replacements and swaps of neighbours that make one of the other.
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
    fn places_count_characters_from_one() {
        assert_eq!(Lines::of("a = 1\nä = ö").locate(&(10..11)), (2, 4));
        assert_eq!(Lines::of("a\n\nb\n").locate(&(1..2)), (1, 2));
        assert_eq!(Lines::of("a\n\nb\n").locate(&(3..4)), (3, 1));
        assert_eq!(Lines::of("").locate(&(0..0)), (1, 1));
        assert_eq!(Lines::of("ab").locate(&(7..9)), (1, 3));
    }
}
