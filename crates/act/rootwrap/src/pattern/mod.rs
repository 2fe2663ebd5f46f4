// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regular expressions of Python's `re`, with a limit of steps.
//!
//! `parse` reads the syntax, `program` compiles it, and `matcher` executes it. `chars` has sets of characters, and
//! `example_strings` creates examples. An expression matches as in CPython 3.11, or is rejected. This module knows no
//! rules.

mod chars;
mod example_strings;
mod matcher;
mod parse;
mod program;

use crate::mode::Mode;
use matcher::run;
use program::{MatchProgram, compile};
use roster_messages::Message;
use roster_messages::table::commands;
use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Limit of steps for all patterns of one decision. A step is one character, one choice, or one part of a pattern.
pub const STEPS_MAX: u64 = 1 << 26;
/// Limit of choices of one match. Each takes 16 bytes.
pub const STACK_MAX: usize = 1 << 19;
/// Limit of steps for one example. A check tests many.
const SAMPLE_STEPS_MAX: u64 = 1 << 20;
/// The processor compares about this many bytes in the time of one step.
const ASCII_BYTES_A_STEP: u32 = 64;

/// Remaining steps for one decision.
#[derive(Debug)]
pub struct MatchBudget {
    limit: u64,
    left: Cell<u64>,
}

impl Default for MatchBudget {
    fn default() -> Self {
        Self::new(STEPS_MAX)
    }
}

impl MatchBudget {
    /// Creates a budget.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self { limit: most, left: Cell::new(most) }
    }

    /// Returns the number of used steps.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.limit - self.left.get()
    }

    #[inline]
    fn spend_steps(&self, steps: u32) -> Result<(), MatchLimit> {
        let left = self.left.get().checked_sub(steps.into());
        self.left.set(left.unwrap_or_default());
        left.map(|_| ()).ok_or(MatchLimit::Steps)
    }
}

/// The limit that a match reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchLimit {
    /// [`STEPS_MAX`].
    Steps,
    /// [`STACK_MAX`].
    Choices,
}

impl fmt::Display for MatchLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps => write!(f, "takes more than {STEPS_MAX} steps to match"),
            Self::Choices => write!(f, "leaves more than {STACK_MAX} choices open"),
        }
    }
}

/// A suffix that leads from any directory of an example to a file that all users can write.
const WAY_OUT: &str = "/../../../../../../../../tmp/x";

/// Reasons for which an expression matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternFault {
    /// Python rejects it. The filter of oslo.rootwrap then never matches.
    Bad(&'static str),
    /// Python raises another error, and oslo.rootwrap aborts.
    Raises(&'static str),
    /// Python would accept it.
    Unsupported(&'static str),
}

impl fmt::Display for PatternFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(what) | Self::Raises(what) | Self::Unsupported(what) => f.write_str(what),
        }
    }
}

impl PatternFault {
    /// Returns the row of the table of messages.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::Bad(_) => &commands::PATTERN_INVALID,
            Self::Raises(_) => &commands::PATTERN_ABORTS,
            Self::Unsupported(_) => &commands::PATTERN_UNSUPPORTED,
        }
    }
}

/// Reasons for which a match has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchError {
    /// The pattern is faulty.
    Fault(PatternFault),
    /// The match reached a limit.
    Limit(MatchLimit),
}

impl From<MatchLimit> for MatchError {
    fn from(bound: MatchLimit) -> Self {
        Self::Limit(bound)
    }
}

/// A pattern of a rule, in the reading of each mode.
#[derive(Debug)]
pub struct Pattern {
    text: String,
    compat: ModePattern,
    strict: ModePattern,
}

#[derive(Debug)]
struct ModePattern {
    node: Result<parse::PatternNode, PatternFault>,
    mode: Mode,
    /// The program is compiled at its first use. A command uses few patterns of a large file.
    program: OnceLock<MatchProgram>,
}

impl ModePattern {
    fn new(text: &str, mode: Mode) -> Self {
        Self { node: parse::parse(text), mode, program: OnceLock::new() }
    }

    fn program(&self) -> Result<&MatchProgram, PatternFault> {
        let node = self.node.as_ref().map_err(|fault| *fault)?;
        Ok(self.program.get_or_init(|| compile(node, self.mode)))
    }
}

impl Pattern {
    /// Parses the text of a filter file. oslo.rootwrap appends `$`. It may become part of a comment, be escaped by `\`,
    /// or belong only to the last branch.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            compat: ModePattern::new(&format!("{text}$"), Mode::Compat),
            strict: ModePattern::new(text, Mode::Strict),
        }
    }

    /// Returns the text of the file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the fault in a mode.
    #[must_use]
    pub fn fault(&self, mode: Mode) -> Option<PatternFault> {
        self.for_mode(mode).node.as_ref().err().copied()
    }

    fn for_mode(&self, mode: Mode) -> &ModePattern {
        match mode {
            Mode::Compat => &self.compat,
            Mode::Strict => &self.strict,
        }
    }

    /// Matches an argument.
    ///
    /// # Errors
    /// The pattern is faulty, or the match reaches a limit.
    pub fn matches(&self, mode: Mode, arg: &OsStr, work: &MatchBudget) -> Result<bool, MatchError> {
        if self.is_literal() {
            let whole = arg.as_bytes() == self.text.as_bytes();
            let line = arg.as_bytes().strip_suffix(b"\n") == Some(self.text.as_bytes());
            return Ok(whole || line && mode == Mode::Compat);
        }
        let program = self.for_mode(mode).program().map_err(MatchError::Fault)?;
        let length = u32::try_from(arg.len()).map_err(|_| MatchLimit::Steps)?;
        if arg.as_bytes().is_ascii() {
            work.spend_steps(length / ASCII_BYTES_A_STEP)?;
            return Ok(run(program, arg.as_bytes(), work)?);
        }
        work.spend_steps(length)?;
        Ok(run(program, &decoded(arg)[..], work)?)
    }

    /// Returns true if every character means itself, as in most patterns of filter files.
    fn is_literal(&self) -> bool {
        !self.text.contains(['.', '\\', '[', '{', '(', ')', '*', '+', '?', '^', '$', '|'])
    }

    /// Returns true if compat mode lets a word continue behind the match. The `$` then belongs to the last branch or a
    /// comment, or means the end of any line.
    pub(crate) fn is_open_in_compat(&self) -> bool {
        use parse::{Anchor, PatternNode};
        let (Ok(compat), Ok(strict)) = (&self.compat.node, &self.strict.node) else { return false };
        let ends_at_line = |node: &PatternNode| match node {
            PatternNode::Sequence(nodes) => {
                nodes.last() == Some(&PatternNode::Anchor(Anchor::EndOfLine))
            }
            _ => false,
        };
        compat == strict || matches!(strict, PatternNode::Choice(_)) || ends_at_line(compat)
    }

    /// Returns texts that probably match in compat mode, one for each branch.
    pub(crate) fn samples(&self) -> Vec<String> {
        let Ok(node) = &self.compat.node else { return Vec::new() };
        let of = |branch| {
            let plain = example_strings::sample(node, branch, false);
            let fits = |sample: &String| self.matches_text(Mode::Compat, sample);
            let [plain, other] = [plain, example_strings::sample(node, branch, true)];
            if fits(&plain) || !fits(&other) { plain } else { other }
        };
        (0..example_strings::branches(node).min(8)).map(of).collect()
    }

    /// Returns words that strict mode matches: examples with a path behind them that leads out of any directory.
    /// `is_wanted` selects the examples.
    pub(crate) fn words_elsewhere(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = String> {
        let wanted = self.samples().into_iter().filter(move |sample| is_wanted(sample));
        wanted.map(|sample| sample + WAY_OUT).filter(|word| self.matches_text(Mode::Strict, word))
    }

    /// Returns true if a text matches within the limit for examples.
    pub(crate) fn matches_text(&self, mode: Mode, text: &str) -> bool {
        self.matches(mode, OsStr::new(text), &MatchBudget::new(SAMPLE_STEPS_MAX)) == Ok(true)
    }
}

/// Returns an argument as in Python, with surrogates for bytes outside of UTF-8.
fn decoded(arg: &OsStr) -> Vec<u32> {
    let mut chars = Vec::with_capacity(arg.len());
    for chunk in arg.as_bytes().utf8_chunks() {
        chars.extend(chunk.valid().chars().map(u32::from));
        chars.extend(chunk.invalid().iter().map(|&byte| 0xdc00 + u32::from(byte)));
    }
    chars
}

#[cfg(test)]
mod tests;
