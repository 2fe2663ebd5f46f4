//! Regular expressions as Python's `re` has them, matched with a bound on steps.
//!
//! `parse` reads Python's syntax, `emit` writes for the engine what it means, `sample` makes
//! examples. An expression that has neither look-around nor references is matched in linear time;
//! others give up after [`STEPS_MAX`] steps, which is no match. Words for which either may take longer than
//! some tenths of a second match nothing. Knows nothing of rules.

mod emit;
mod parse;
mod sample;

use crate::judge::Mode;
use fancy_regex::{Regex, RegexBuilder};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Steps back that one match may take, each of which may look at the whole word.
pub const STEPS_MAX: usize = 1 << 16;
/// Bytes of a word that is matched in steps: as many as the longest path has.
pub const STEPPED_BYTES_MAX: usize = 4096;
/// Bytes that look-arounds may look at besides: each at all of the word, from each place in it.
const LOOKED_AT_BYTES_MAX: usize = 1 << 27;
/// Bytes of a word times what may stand next at each: a tenth of a second where the automaton has to try all.
const WORK_MAX: usize = 1 << 24;
/// Memory of one expression's automaton.
const PROGRAM_BYTES_MAX: usize = 10 << 20;

/// Why an expression matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Python refuses it, and the original's rule then never matches.
    Bad(&'static str),
    /// The original breaks off when it has to use it.
    Raises(&'static str),
    /// Python would match it.
    Unsupported(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(what) | Self::Raises(what) | Self::Unsupported(what) => f.write_str(what),
        }
    }
}

impl Fault {
    /// What to do about it.
    #[must_use]
    pub fn instead(&self) -> &'static str {
        match self {
            Self::Bad(_) => "the rule never matches: mend it, or remove the rule",
            Self::Raises(_) => "commands that come to this rule are refused: mend it",
            Self::Unsupported(_) => "the rule never matches: write it without that",
        }
    }
}

/// Why there is no answer to whether an argument matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The pattern cannot be used.
    Fault(Fault),
    /// It took more than [`STEPS_MAX`] steps, or might take as long as those.
    Steps,
    /// The argument holds a private character that is used for something else here.
    Private,
}

/// One pattern of a rule, in both of its readings.
#[derive(Debug)]
pub struct Pattern {
    text: String,
    compat: Reading,
    strict: Reading,
}

#[derive(Debug)]
struct Reading {
    node: Result<parse::Node, Fault>,
    mode: Mode,
    /// Made when it is first used: of a file with a hundred patterns one command uses a few.
    regex: OnceLock<Result<Compiled, Fault>>,
}

#[derive(Debug)]
struct Compiled {
    regex: Regex,
    cost: emit::Cost,
}

impl Compiled {
    /// Whether a match ends in time, whatever is in a word of so many bytes.
    fn is_bounded(&self, bytes: usize) -> bool {
        let emit::Cost { size, looks } = self.cost;
        let looked_at = bytes.saturating_mul(bytes).saturating_mul(looks);
        bytes.saturating_mul(size) <= WORK_MAX
            && (looks == 0 || bytes <= STEPPED_BYTES_MAX && looked_at <= LOOKED_AT_BYTES_MAX)
    }
}

impl Reading {
    fn new(text: &str, mode: Mode) -> Self {
        Self { node: parse::parse(text), mode, regex: OnceLock::new() }
    }

    fn regex(&self) -> Result<&Compiled, Fault> {
        let compile = || {
            let node = self.node.as_ref().map_err(|fault| *fault)?;
            let (pattern, cost) = emit::emit(node, self.mode);
            RegexBuilder::new(&pattern)
                .backtrack_limit(STEPS_MAX)
                .delegate_size_limit(PROGRAM_BYTES_MAX)
                .build()
                .map(|regex| Compiled { regex, cost })
                .map_err(|_| Fault::Unsupported("is too large, or looks behind at too much"))
        };
        self.regex.get_or_init(compile).as_ref().map_err(|fault| *fault)
    }
}

impl Pattern {
    /// Of the text in a filter file. The original puts a `$` behind it, which may end up in a
    /// comment, be escaped by a `\`, or belong to the last branch alone.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            compat: Reading::new(&format!("{text}$"), Mode::Compat),
            strict: Reading::new(text, Mode::Strict),
        }
    }

    /// As it stands in the file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Why it matches nothing in compat mode, if so.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        self.compat.node.as_ref().err().copied()
    }

    /// The same, after it was made ready for use in both modes.
    #[must_use]
    pub fn fault_in_use(&self, mode: Mode) -> Option<Fault> {
        self.reading(mode).regex().err()
    }

    fn reading(&self, mode: Mode) -> &Reading {
        match mode {
            Mode::Compat => &self.compat,
            Mode::Strict => &self.strict,
        }
    }

    /// Whether an argument matches.
    pub fn matches(&self, mode: Mode, arg: &OsStr) -> Result<bool, NoAnswer> {
        if self.is_literal() {
            let whole = arg.as_bytes() == self.text.as_bytes();
            let line = arg.as_bytes().strip_suffix(b"\n") == Some(self.text.as_bytes());
            return Ok(whole || line && mode == Mode::Compat);
        }
        let compiled = self.reading(mode).regex().map_err(NoAnswer::Fault)?;
        if !compiled.is_bounded(arg.len()) {
            return Err(NoAnswer::Steps);
        }
        let subject = emit::subject(arg).ok_or(NoAnswer::Private)?;
        compiled.regex.is_match(&*subject).map_err(|_| NoAnswer::Steps)
    }

    /// Whether every character stands for itself, as in most patterns of most filter files.
    fn is_literal(&self) -> bool {
        !self.text.contains(['.', '\\', '[', '{', '(', ')', '*', '+', '?', '^', '$', '|'])
    }

    /// Texts that most likely match in compat mode, one along each branch.
    pub(crate) fn samples(&self) -> Vec<String> {
        let Ok(node) = &self.compat.node else { return Vec::new() };
        let of = |branch| {
            let plain = sample::sample(node, branch, false);
            let fits = |sample: &String| self.is_sample(sample);
            let [plain, other] = [plain, sample::sample(node, branch, true)];
            if fits(&plain) || !fits(&other) { plain } else { other }
        };
        (0..sample::branches(node).min(8)).map(of).collect()
    }

    /// Whether a text does match in compat mode.
    pub(crate) fn is_sample(&self, text: &str) -> bool {
        self.matches(Mode::Compat, OsStr::new(text)) == Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn matches(mode: Mode, pattern: &str, arg: &str) -> bool {
        Pattern::new(pattern).matches(mode, OsStr::new(arg)).unwrap()
    }

    #[test]
    fn compat_ends_where_the_original_ends() {
        assert!(matches(Mode::Compat, "a", "a\n"));
        assert!(matches(Mode::Compat, "a|b", "a and more"));
        assert!(!matches(Mode::Compat, "a|b", "b and more"));
        assert!(matches(Mode::Compat, "(?x)a # ", "a and more"));
        assert!(matches(Mode::Compat, "a\\", "a$ and more"));
    }

    #[test]
    fn strict_matches_the_whole_argument() {
        assert!(matches(Mode::Strict, "a|b", "a"));
        for (pattern, arg) in
            [("a", "a\n"), ("a$", "a\n"), ("a|b", "a and more"), ("(?x)a # ", "ab")]
        {
            assert!(!matches(Mode::Strict, pattern, arg), "{pattern:?} {arg:?}");
        }
        assert_eq!(
            Pattern::new("a\\").fault_in_use(Mode::Strict),
            Some(Fault::Bad("has a \\ before what it does not go with"))
        );
    }

    #[test]
    fn strict_lets_nothing_through_by_a_narrower_end() {
        for pattern in [
            "(?!evil$)[^/]+",
            "(?:(?!evil$)[^/])+",
            "(?!(?=evil$)).*\\s?",
            "(?>a$|a\n)(?!\n)",
            "(?:a$|a\n)++(?!\n)",
            "(?s).*(?<!evil$)\n?",
        ] {
            for arg in ["evil\n", "a\n", "evil", "a"] {
                let is_new =
                    matches(Mode::Strict, pattern, arg) && !matches(Mode::Compat, pattern, arg);
                assert!(!is_new, "{pattern:?} {arg:?}");
            }
        }
        assert!(matches(Mode::Strict, "(?!evil$)[^/]+", "evils"));
        assert!(!matches(Mode::Strict, "(?=a$)a\\s", "a\n"));
    }

    #[test]
    fn a_byte_that_is_no_character_is_one_all_the_same() {
        let arg = OsStr::from_bytes(b"a\xff");
        let is = |pattern: &str| Pattern::new(pattern).matches(Mode::Strict, arg).unwrap();
        assert!(
            is("a.") && is(r"a\udcff") && is(r"a[\ud800-\udfff]") && is(r"a[^\ue000-\U0010ffff]")
        );
        assert!(!is("a") && !is(r"a\w") && !is(r"a\udcfe") && !is(r"a[\x00-\uffff]b"));
        assert_eq!(
            Pattern::new("a.").matches(Mode::Strict, OsStr::new("a\u{10dcff}")),
            Err(NoAnswer::Private)
        );
    }

    #[test]
    fn endless_backtracking_ends_without_a_match() {
        let pattern = Pattern::new(r"(?=(a+))\1*(a*)*\2b");
        let arg = "a".repeat(60);
        assert_eq!(pattern.matches(Mode::Compat, OsStr::new(&arg)), Err(NoAnswer::Steps));
        // What has no look-around takes linear time.
        assert!(!matches(Mode::Strict, "(a*)*b", &"a".repeat(100_000)));
    }

    /// Without the bound on steps each of these takes seconds to hours.
    #[test]
    fn pattern_backtracking_ends_at_the_bound() {
        for (pattern, word) in [
            (r"/srv/(?:(?!.*\.\.).)+", "/srv/"),
            (r"\w+(?=.*x)", ""),
            (r"((?!xy)[a-z])+b", ""),
            (r"(?:(?:(?=.*x)){1000}.)+", ""),
            (r"(?:\b\w{1,3}\B){1,9}", ""),
            (r"(?>a*)*(a)\1*b", ""),
            (r".*\w{200}x", ""),
            (r"(?:\w*\s?){100}x", ""),
        ] {
            let (pattern, mode) = (Pattern::new(pattern), Mode::Strict);
            let of = |length: usize| OsString::from(format!("{word}{}", "a".repeat(length)));
            let _ = pattern.matches(mode, &of(4000));
            assert_eq!(pattern.matches(mode, &of(131_000)), Err(NoAnswer::Steps), "{pattern:?}");
        }
        // The words that there are match as they did.
        let path = format!("/srv/{}", "ab/".repeat(1300));
        assert!(matches(Mode::Strict, r"/srv/(?:(?!.*\.\.).)+", &path));
        assert!(!matches(Mode::Strict, r"/srv/(?:(?!.*\.\.).)+", &format!("{path}..")));
        assert!(matches(Mode::Strict, "(?s).*", &"a\n".repeat(60_000)));
    }

    #[test]
    fn what_python_refuses_is_refused() {
        for pattern in [
            "*a",
            "a**",
            "^*",
            "(",
            ")",
            "[",
            "[b-a]",
            r"[\w-z]",
            "a{3,2}",
            r"\q",
            r"\8",
            r"\1",
            "(?P<a>x)(?P<a>y)",
            "(?P=a)",
            "(?<=a*)b",
            "(?<=a|bc)d",
            "a(?i)b",
            "(?z)",
            r"(a\1)",
            "(?P<1>a)",
            r"\x1",
            r"\U00110000",
            r"[\8]",
            "(?L)a",
            "(?i-i:a)",
        ] {
            assert!(matches!(Pattern::new(pattern).fault(), Some(Fault::Bad(_))), "{pattern}");
        }
        assert!(matches!(Pattern::new("a{99999999999}").fault(), Some(Fault::Raises(_))));
        assert!(matches!(Pattern::new("(?a)(?u)").fault(), Some(Fault::Raises(_))));
        for pattern in [r"\N{DASH}", "(a)?(?(1)b|c)", "(?i)\u{e9}", r"(?i)(a)\1"] {
            assert!(matches!(Pattern::new(pattern).fault(), Some(Fault::Unsupported(_))));
        }
    }
}
