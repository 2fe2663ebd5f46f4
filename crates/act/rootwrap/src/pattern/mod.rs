//! Regular expressions as Python's `re` has them, matched with a bound on work.
//!
//! `parse` reads Python's syntax, `program` puts it into steps, `matcher` follows these over a word, `chars` tells
//! which characters a set has, and `example_strings` makes examples. An expression has the language that CPython 3.11 gives
//! it, or it is refused. Knows nothing of rules.

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

/// Steps that the patterns of one verdict may take together. A step looks at one character or one choice, or follows
/// one part of a pattern.
pub const STEPS_MAX: u64 = 1 << 26;
/// Choices that one match may leave open. Each takes 16 bytes.
pub const STACK_MAX: usize = 1 << 19;
/// Steps for one sample, of which a check tries many.
const SAMPLE_STEPS_MAX: u64 = 1 << 20;
/// The processor compares so many bytes in about one step's time.
const ASCII_BYTES_A_STEP: u32 = 64;

/// The steps that are left for the patterns of one verdict.
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
    /// At most so many steps.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self { limit: most, left: Cell::new(most) }
    }

    /// The steps that were taken.
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

/// The bound that a match comes to.
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

/// Leads from any directory of a sample to a file that every user can write.
const WAY_OUT: &str = "/../../../../../../../../tmp/x";

/// Why an expression matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternFault {
    /// Python refuses it, and the original's rule then never matches.
    Bad(&'static str),
    /// The original breaks off when it has to use it.
    Raises(&'static str),
    /// Python would match it.
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

/// Why there is no answer to whether an argument matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchError {
    /// The pattern cannot be used.
    Fault(PatternFault),
    /// The match comes to a bound.
    Limit(MatchLimit),
}

impl From<MatchLimit> for MatchError {
    fn from(bound: MatchLimit) -> Self {
        Self::Limit(bound)
    }
}

/// One pattern of a rule, in both of its readings.
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
    /// Made when it is first used: of a file with a hundred patterns one command uses a few.
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
    /// Of the text in a filter file. The original puts a `$` behind it, which may end up in a
    /// comment, be escaped by a `\`, or belong to the last branch alone.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            compat: ModePattern::new(&format!("{text}$"), Mode::Compat),
            strict: ModePattern::new(text, Mode::Strict),
        }
    }

    /// As it stands in the file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Why it matches nothing, if so.
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

    /// Whether an argument matches.
    ///
    /// # Errors
    /// The pattern is at fault, or the match comes to a bound.
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

    /// Whether every character stands for itself, as in most patterns of most filter files.
    fn is_literal(&self) -> bool {
        !self.text.contains(['.', '\\', '[', '{', '(', ')', '*', '+', '?', '^', '$', '|'])
    }

    /// Whether compat mode lets a word continue behind what matches: its `$` is part of the last branch alone or of a
    /// comment, or stands for the end of any line.
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

    /// Texts that most likely match in compat mode, one along each branch.
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

    /// Words that strict mode matches, each a sample with a path behind it that leads out of every directory. Samples
    /// for which `is_wanted` is false are left out.
    pub(crate) fn words_elsewhere(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = String> {
        let wanted = self.samples().into_iter().filter(move |sample| is_wanted(sample));
        wanted.map(|sample| sample + WAY_OUT).filter(|word| self.matches_text(Mode::Strict, word))
    }

    /// Whether a text matches within the steps of a trial.
    pub(crate) fn matches_text(&self, mode: Mode, text: &str) -> bool {
        self.matches(mode, OsStr::new(text), &MatchBudget::new(SAMPLE_STEPS_MAX)) == Ok(true)
    }
}

/// An argument as Python has it: a byte that is part of no character is a surrogate.
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
