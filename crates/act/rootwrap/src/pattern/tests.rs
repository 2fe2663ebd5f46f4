// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the matcher and of its bound. `tests/patterns.rs` compares it with CPython.

use super::matcher::MatchText;
use super::*;
use std::cell::Cell;

fn match_result(mode: Mode, pattern: &str, arg: &str) -> Result<bool, MatchError> {
    Pattern::new(pattern).matches(mode, OsStr::new(arg), &MatchBudget::default())
}

fn matches(mode: Mode, pattern: &str, arg: &str) -> bool {
    match_result(mode, pattern, arg).unwrap()
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
    for (pattern, arg) in [("a", "a\n"), ("a$", "a\n"), ("a|b", "a and more"), ("(?x)a # ", "ab")] {
        assert!(!matches(Mode::Strict, pattern, arg), "{pattern:?} {arg:?}");
    }
    assert_eq!(
        Pattern::new("a\\").fault(Mode::Strict),
        Some(PatternFault::Bad("has an invalid escape"))
    );
}

#[test]
fn strict_lets_nothing_through_by_a_narrower_end() {
    for pattern in [
        "(?!evil$)[^/]+",
        "(?:(?!evil$)[^/])+",
        "(?!(?=evil$)).*\\s?",
        "(?>a$|a\n)(?!\n)",
        "(?>(?:a$|a\n)+)(?!\n)",
        "(?s).*(?<!evil$)\n?",
        r"(?=(a$|a\n))\1(?!\n)",
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
    let is = |pattern: &str| {
        Pattern::new(pattern).matches(Mode::Strict, arg, &MatchBudget::default()).unwrap()
    };
    assert!(is("a.") && is(r"a\udcff") && is(r"a[\ud800-\udfff]") && is(r"a[^\ue000-\U0010ffff]"));
    assert!(!is("a") && !is(r"a\w") && !is(r"a\udcfe") && !is(r"a[\x00-\uffff]b"));
    assert!(matches(Mode::Strict, "a.", "a\u{10dcff}"));
    assert!(!matches(Mode::Strict, r"a\udcff", "a\u{10dcff}"));
}

#[test]
fn classes_of_unicode_have_members_beyond_ascii() {
    for (class, members, others) in [
        (r"\d", "\u{661}\u{1d7ce}", "\u{b2}a\u{e9}"),
        (r"\w", "\u{e9}\u{b2}\u{661}\u{4e00}", "\u{301}\u{2003}"),
        (r"\s", "\u{85}\u{2003}\x1c", "\u{200b}\u{e9}"),
    ] {
        let is = |pattern: &str, char: char| matches(Mode::Strict, pattern, &char.to_string());
        assert!(members.chars().all(|char| is(class, char)), "{class}");
        assert!(!others.chars().any(|char| is(class, char)), "{class}");
        let ascii = format!("(?a){class}");
        assert!(!members.chars().any(|char| is(&ascii, char)), "{ascii}");
    }
}

#[test]
fn look_ahead_is_not_entered_again() {
    for mode in [Mode::Compat, Mode::Strict] {
        assert!(!matches(mode, r"(?=(a$|a\n))\1(?!\n)", "a\n"));
        assert!(!matches(mode, r"(?=(a|ab))\1c", "abc"));
        assert!(matches(mode, r"(?=(ab|a))\1c", "abc"));
    }
}

#[test]
fn repetition_keeps_all_its_turns() {
    assert!(matches(Mode::Strict, "(a+?)*", "aaa"));
    assert!(matches(Mode::Strict, r"(?>(a|ab){2})\n?", "aba"));
    // An empty turn behind the minimum number of turns is the last one.
    for pattern in ["(?:a|b?)*c", "(?:a??)*c", "(?:|a)+c", "(?:|a){2,}?c", "(?:){3}c"] {
        assert!(matches(Mode::Strict, pattern, "c"), "{pattern}");
    }
}

#[test]
fn comment_goes_on_behind_an_escaped_end() {
    for mode in [Mode::Compat, Mode::Strict] {
        assert!(!matches(mode, "(?x)a # x \\\n |zzz", "zzz"));
        assert!(!matches(mode, r"a(?#\)|b)", "b"));
    }
    assert!(matches!(Pattern::new("(?x)a # \\").fault(Mode::Strict), Some(PatternFault::Bad(_))));
}

/// A budget for a build without optimization.
fn little_work() -> MatchBudget {
    MatchBudget::new(1 << 16)
}

#[test]
fn endless_backtracking_ends_without_a_match() {
    let word = "a".repeat(60);
    for pattern in [
        r"(?=(a+))\1*(a*)*\2b",
        "(a*)*b",
        "(?:a|a)*b",
        "(?:a*?){9,}?b",
        "(?>(?:a|aa)*b)",
        "(?!(?:a*)*b)c",
    ] {
        for mode in [Mode::Compat, Mode::Strict] {
            let answer = Pattern::new(pattern).matches(mode, OsStr::new(&word), &little_work());
            assert_eq!(answer, Err(MatchError::Limit(MatchLimit::Steps)), "{pattern}");
        }
    }
}

#[test]
fn verdict_shares_its_steps_between_patterns() {
    let (pattern, work) = (Pattern::new("(?:a|a)*b"), little_work());
    let word = "a".repeat(9);
    let mut answers = (0..1000).map(|_| pattern.matches(Mode::Strict, OsStr::new(&word), &work));
    assert_eq!(answers.next(), Some(Ok(false)));
    assert_eq!(answers.last(), Some(Err(MatchError::Limit(MatchLimit::Steps))));
}

#[test]
fn open_choices_have_a_bound() {
    let word = "ab".repeat(STACK_MAX / 2 + 1);
    let bound = Err(MatchError::Limit(MatchLimit::Choices));
    assert_eq!(match_result(Mode::Strict, "(?:a|b)*c", &word), bound);
    assert!(!matches(Mode::Strict, "[ab]*c", &word));
}

/// Words of real filter files match within the limits.
#[test]
fn usual_long_words_match() {
    let path = format!("/srv/{}", "ab/".repeat(1300));
    assert!(matches(Mode::Strict, r"/srv/(?:(?!.*\.\.).)+", &path));
    assert!(!matches(Mode::Strict, r"/srv/(?:(?!.*\.\.).)+", &format!("{path}..")));
    assert!(matches(Mode::Strict, r"/srv/(?!.*\.\.)(\w+/)+", &path));
    assert!(matches(Mode::Strict, "(?s).*", &"a\n".repeat(60_000)));
    assert!(matches(Mode::Strict, "(?:[a-z]{1,8},?)+", &"abcdefgh,".repeat(14_000)));
}

/// A word that counts the accesses to its characters.
struct CountedText<'c> {
    bytes: &'c [u8],
    looks: Cell<u64>,
}

impl MatchText for CountedText<'_> {
    fn length(&self) -> u32 {
        self.bytes.length()
    }

    fn at(&self, at: u32) -> Option<u32> {
        self.looks.set(self.looks.get() + 1);
        self.bytes.at(at)
    }
}

/// Shapes that once took minutes: atomic parts, look-around and lazy repetition. Each access to a character is in a
/// counted step, so the limit of steps limits the work.
#[test]
fn looks_at_characters_are_counted_steps() {
    let word = [b'a'; 4096];
    for lead in ["", "a*?", "(a)*?", "(?:a|b)*?"] {
        for body in ["(?>(?:@a)*)", "[^@]*+", "(?:@a)*", "(?:@(a))*?"] {
            for look in
                ["", "(?=[a-z]*)", "(?![a-z]*?c)", "(?=.*b)", "(?<=a|b)", "(?=(a*?)b)", r"\b"]
            {
                for last in ["b", "$", r"\1", r"\b"] {
                    let pattern = format!("{lead}{}{last}", body.replace('@', look));
                    let Ok(node) = parse::parse(&pattern) else { continue };
                    let text = CountedText { bytes: &word, looks: Cell::new(0) };
                    let work = little_work();
                    let _ = run(&compile(&node, Mode::Compat), &text, &work);
                    let (steps, looks) = (work.steps(), text.looks.get());
                    assert!(looks <= 2 * steps + 4096, "{pattern}: {looks} in {steps} steps");
                }
            }
        }
    }
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
        "(?<!(?:a{65536}){65536})b",
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
        let fault = Pattern::new(pattern).fault(Mode::Compat);
        assert!(matches!(fault, Some(PatternFault::Bad(_))), "{pattern}");
    }
    let fault = |pattern: &str| Pattern::new(pattern).fault(Mode::Compat);
    assert!(matches!(fault("a{99999999999}"), Some(PatternFault::Raises(_))));
    assert!(matches!(fault("(?a)(?u)"), Some(PatternFault::Raises(_))));
    for pattern in [
        r"\N{DASH}",
        "(a)?(?(1)b|c)",
        "(?i)\u{e9}",
        r"(?i)(a)\1",
        "(?:ab)*+",
        "(a)++",
        "(?:a|b){2}+",
    ] {
        assert!(matches!(fault(pattern), Some(PatternFault::Unsupported(_))), "{pattern}");
    }
}
