// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patterns against CPython's `re`: all small ones of some shapes, and large random ones. In compat mode a pattern
//! matches exactly as in Python, or is rejected. In strict mode it matches nothing else.
//!
//! `make test` takes a sample, and `ROSTER_PATTERNS=all` takes all. `ROSTER_SEED=S` starts with another seed.
//! `ROSTER_OSLO_ROOTWRAP` names the Python; the default is that of `scripts/need test`.

use roster_rootwrap::Mode;
use roster_rootwrap::pattern::{
    MatchBudget, MatchError, MatchLimit, Pattern, PatternFault, STEPS_MAX,
};
use serde_json::json;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Reciprocal share of small patterns in the sample. It is a prime, so that every part of a shape occurs.
const SAMPLE: usize = 97;
const RANDOM: usize = 3000;
const RANDOM_ALL: usize = 100_000;
/// Limit of steps for all words together.
const CHEAP_STEPS: u64 = 100_000;

const REPEATS: [&str; 17] = [
    "", "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{2}?", "{2}+", "{1,2}", "{,2}?",
    "{2,}+", "{0}",
];
const POSSESSIVE: [&str; 5] = ["*+", "++", "?+", "{2}+", "{2,}+"];
const WRAPPERS: [&str; 7] = ["(@)", "(?:@)", "(?>@)", "(?=@)", "(?!@)", "(?<=@)", "(?<!@)"];
const TAILS: [&str; 12] =
    ["", "b", r"\1", r"\n?", r"(?!\n)", r"\Z", r"\b", "$", "a", "(?<=b)", r"\1b", r"(?=\1|\n)."];
const INNER: [&str; 22] = [
    "a",
    "ab",
    "a|b",
    "a|ab",
    "ab|a",
    "a*",
    "a*?",
    "a?",
    "a??",
    "a+?b",
    "|a",
    "a|",
    r"\b",
    "a$",
    r"a$|a\n",
    "(a)|b",
    "(a|ab)",
    "(a)?b",
    r"(.)\1?",
    "[^a]|a",
    r"\D",
    "(?=(a))b?",
];

const PARTS: [&str; 12] = [
    "(a)",
    "(a)?",
    "(a)|",
    "(a|b)",
    "(.)b",
    "(?=(a))",
    "(?!(a))",
    "(?>(a)|b)",
    r"b\1",
    "(a)*?",
    "(b*)",
    "(a)(?!b)",
];

/// Returns all patterns of a few parts. Most have a group. Without one, Python rejects `\1`.
fn small() -> impl Iterator<Item = String> {
    let simple =
        ["", "a?", "(a)?", "(a|b)*?", "(?=(a|ab))", r"(\s|a)"].into_iter().flat_map(|head| {
            all([&WRAPPERS, &INNER, &REPEATS, &TAILS]).map(move |[wrapper, inner, repeat, tail]| {
                format!("{head}{}{repeat}{tail}", wrapper.replace('@', inner))
            })
        });
    let bodies =
        ["a", "(a)", "(a|ab)", "(?:a|b)", "[ab]", ".", "(?:|a)", r"(\D)", r"(?:(a)|b\1)", "(a??)"];
    let nested = bodies.into_iter().flat_map(|body| {
        all([&REPEATS, &["(@)", "(?:@)", "(?>@)", "(?=@)", "(?:b|@)", "(@|b)"], &REPEATS, &TAILS])
            .map(move |[inner, wrapper, outer, tail]| {
                format!("{}{outer}{tail}", wrapper.replace('@', &format!("{body}{inner}")))
            })
    });
    // The patterns show the content of a group after a reverted turn of a repetition.
    let groups = all([
        &PARTS,
        &["", "|", "b|", "b?", "(?=b)"],
        &PARTS,
        &["*", "+?", "{2}", "*+", "{1,2}?", "?"],
    ])
    .flat_map(move |[first, between, second, repeat]| {
        [r"\1", r"\1b", r"b\1\Z", r"\2", r"(?!\1)."]
            .map(|tail| format!("(?:{first}{between}{second}){repeat}{tail}"))
    });
    simple.chain(nested).chain(groups)
}

fn all<'p>(lists: [&'p [&'static str]; 4]) -> impl Iterator<Item = [&'static str; 4]> + 'p {
    let count = lists.iter().map(|list| list.len()).product();
    (0..count).map(move |mut number: usize| {
        lists.map(|list| {
            let one = list[number % list.len()];
            number /= list.len();
            one
        })
    })
}

fn words() -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let (mut from, mut length) = (0, 1);
    while length <= 4 {
        let to = words.len();
        for word in from..to {
            for char in ["a", "b"] {
                words.push(format!("{}{char}", words[word]));
            }
        }
        (from, length) = (to, length + 1);
    }
    let odd = [
        "\n",
        "a\n",
        "b\n",
        "ab\n",
        "aa\n",
        "aba\n",
        "abab\n",
        "a\na",
        "\n\n",
        "\u{e9}",
        "\u{e9}\n",
        "\u{e9}\u{e9}",
        "aaaaaa",
        "ababab",
    ];
    words.extend(odd.map(String::from));
    words
}

#[test]
fn small_patterns_match_as_in_python() {
    let step = if is_all() { 1 } else { SAMPLE };
    compare("small", small().step_by(step), &words());
}

#[test]
fn large_patterns_match_as_in_python() {
    let count = if is_all() { RANDOM_ALL } else { RANDOM };
    let odd = [
        "A",
        "k",
        "\u{212a}",
        "s\u{17f}",
        "i\u{130}",
        "\u{131}",
        "I",
        "a-b",
        "1",
        "\u{661}a",
        "_",
        " a",
        "b\u{2003}",
    ];
    let mut words = words();
    words.extend(odd.map(String::from));
    let mut writer = Writer::new();
    // Python has no limit, so patterns of high or unknown cost are omitted.
    let is_cheap = |text: &String| {
        let (pattern, work) = (Pattern::new(text), MatchBudget::default());
        if ours(&pattern, Mode::Compat, &words[..1]) == "unsupported" {
            assert!(is_unsupported(text), "{text:?}");
            return false;
        }
        words.iter().all(|word| {
            let _ = pattern.matches(Mode::Compat, OsStr::new(word), &work);
            let _ = pattern.matches(Mode::Strict, OsStr::new(word), &work);
            work.steps() < CHEAP_STEPS
        })
    };
    let patterns: Vec<String> = (0..count).map(|_| writer.pattern()).filter(is_cheap).collect();
    assert!(patterns.len() * 5 > count * 4, "{} of {count} are compared", patterns.len());
    compare("large", patterns.into_iter(), &words);
}

/// Counts of the comparison.
#[derive(Debug, Default)]
struct Tally {
    patterns: usize,
    matches: usize,
    bad: usize,
    unsupported: usize,
    too_costly: usize,
}

fn compare(name: &str, patterns: impl Iterator<Item = String>, words: &[String]) {
    let driver = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/patterns.py");
    let mut python = Command::new(python())
        .arg(driver)
        .env("PYTHONUTF8", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python starts: run `scripts/need test`");
    let patterns: Vec<String> = patterns.collect();
    let (mut tally, mut wrong) = (Tally::default(), Vec::new());
    std::thread::scope(|scope| {
        let mut input = BufWriter::new(python.stdin.take().unwrap());
        let lines = patterns.iter().map(|pattern| json!([pattern, words]));
        scope.spawn(move || {
            for line in lines {
                writeln!(input, "{line}").unwrap();
            }
        });
        let answers = BufReader::new(python.stdout.take().unwrap()).lines();
        for (text, answer) in patterns.iter().zip(answers) {
            let [theirs, whole]: [String; 2] = serde_json::from_str(&answer.unwrap()).unwrap();
            let pattern = Pattern::new(text);
            let ours = [Mode::Compat, Mode::Strict].map(|mode| ours(&pattern, mode, words));
            tally.count(&ours[0]);
            if ours[0] == "unsupported" && !is_unsupported(text) {
                wrong.push(format!("{text:?} is refused"));
            }
            if let Some(word) = difference(text, words, &ours, &theirs, &whole) {
                wrong.push(format!("{text:?} {word}"));
            }
        }
    });
    assert!(python.wait().unwrap().success());
    println!("{name}: {tally:?}, {} words each; {} wrong", words.len(), wrong.len());
    assert!(
        wrong.is_empty(),
        "{} of {}: {:#?}",
        wrong.len(),
        tally.patterns,
        &wrong[..wrong.len().min(60)]
    );
    assert_eq!(tally.patterns, patterns.len());
    assert!(tally.matches > tally.patterns, "{tally:?}");
}

impl Tally {
    fn count(&mut self, ours: &str) {
        self.patterns += 1;
        match ours {
            "bad" | "raises" => self.bad += 1,
            "unsupported" => self.unsupported += 1,
            _ => {
                self.matches += ours.matches('1').count();
                self.too_costly += ours.matches('?').count();
            }
        }
    }
}

fn ours(pattern: &Pattern, mode: Mode, words: &[String]) -> String {
    let mut answers = String::new();
    for word in words {
        answers.push(match pattern.matches(mode, OsStr::new(word), &MatchBudget::default()) {
            Ok(true) => '1',
            Ok(false) => '0',
            Err(MatchError::Limit(_)) => '?',
            Err(MatchError::Fault(PatternFault::Bad(_))) => return "bad".into(),
            Err(MatchError::Fault(PatternFault::Raises(_))) => return "raises".into(),
            Err(MatchError::Fault(PatternFault::Unsupported(_))) => return "unsupported".into(),
        });
    }
    answers
}

/// Returns true for unsupported constructs: a possessive repetition of a group, or a reference or a letter outside
/// ASCII with the flag `i`.
fn is_unsupported(text: &str) -> bool {
    let is_possessive = POSSESSIVE.iter().any(|repeat| text.contains(&format!("){repeat}")));
    let refers =
        text.contains("(?P=") || ('1'..='9').any(|group| text.contains(&format!("\\{group}")));
    is_possessive || text.contains("(?i") && (refers || text.contains('\u{e9}'))
}

/// Returns the first word or mode with different results.
fn difference(
    text: &str,
    words: &[String],
    ours: &[String; 2],
    theirs: &str,
    whole: &str,
) -> Option<String> {
    let [compat, strict] = ours;
    if compat != "unsupported"
        && (compat.len() != theirs.len()
            || !compat.starts_with(['0', '1', '?']) && compat != theirs)
    {
        return Some(format!("compat: {compat}, Python: {theirs}"));
    }
    if strict != "unsupported"
        && (strict.len() != whole.len() || !strict.starts_with(['0', '1', '?']) && strict != whole)
    {
        return Some(format!("strict: {strict}, Python: {whole}"));
    }
    for (at, word) in words.iter().enumerate() {
        let of = |answers: &str| {
            answers.as_bytes().get(at).copied().filter(|byte| b"01?E".contains(byte))
        };
        let (Some(compat), Some(theirs)) = (of(compat), of(theirs)) else { continue };
        if compat != theirs && compat != b'?' {
            return Some(format!(
                "on {word:?}: compat {}, Python {}",
                char::from(compat),
                char::from(theirs)
            ));
        }
        let (Some(strict), Some(whole)) = (of(strict), of(whole)) else { continue };
        // Strict mode reads `$` more narrowly.
        let is_narrow = text.contains('$') && word.contains('\n');
        let is_wrong = strict == b'1' && (whole == b'0' || theirs == b'0')
            || strict == b'0' && whole == b'1' && !is_narrow;
        if is_wrong {
            return Some(format!(
                "on {word:?}: strict {}, Python {}",
                char::from(strict),
                char::from(whole)
            ));
        }
    }
    None
}

fn is_all() -> bool {
    std::env::var("ROSTER_PATTERNS").is_ok_and(|value| value == "all")
}

fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("ROSTER_OSLO_ROOTWRAP") {
        return python.into();
    }
    // The directory of the build contains this test program.
    let program = std::env::current_exe().unwrap();
    let target = program.ancestors().nth(3).unwrap();
    target.join("tools/oslo-rootwrap/bin/python")
}

/// A writer of random patterns. One seed gives the same patterns on all hosts.
struct Writer {
    state: u64,
    /// Number of groups in the pattern, and closed groups for references.
    groups: usize,
    closed: Vec<usize>,
}

impl Writer {
    fn new() -> Self {
        let seed = std::env::var("ROSTER_SEED").map_or(1, |seed| seed.parse().unwrap());
        Self { state: 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed), groups: 0, closed: Vec::new() }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % bound
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }

    fn pattern(&mut self) -> String {
        (self.groups, self.closed) = (0, Vec::new());
        let flags = ["", "", "", "", "(?i)", "(?s)", "(?m)", "(?x)", "(?a)", "(?ia)", "(?sm)"];
        self.pick(&flags).to_owned() + &self.choice(3)
    }

    fn choice(&mut self, depth: usize) -> String {
        let count = 1 + self.below(5) / 3;
        let branches: Vec<String> = (0..count).map(|_| self.sequence(depth)).collect();
        branches.join("|")
    }

    fn sequence(&mut self, depth: usize) -> String {
        let mut text = String::new();
        for _ in 0..1 + self.below(3) {
            let (atom, is_long) = self.atom(depth);
            text += &atom;
            let is_place = ["", "^", "$", r"\A", r"\b", r"\B", r"\Z"].contains(&&*atom);
            let repeats: Vec<_> =
                REPEATS.into_iter().filter(|it| !(is_long && POSSESSIVE.contains(it))).collect();
            if self.below(2) == 0 && !is_place {
                text += self.pick(&repeats);
            }
            if self.below(40) == 0 {
                text += self.pick(&["(?#a)", r"(?#\)|)", "# a\n", "# \\\n|", " ", "*", ")"]);
            }
        }
        text
    }

    /// Writes an atom. Returns true if it may match several characters.
    fn atom(&mut self, depth: usize) -> (String, bool) {
        let plain = [
            "a", "a", "b", "c", ".", "[ab]", "[^a]", r"\w", r"\s", r"\D", r"\W", "[a-c]", r"[^\d]",
            "K", "s", "i", "-", r"\b", r"\B", "^", "$", r"\Z", r"\A", "\u{e9}", r"\n", r"[\W_]",
            r"\x41", "",
        ];
        let fixed = ["a", "ab", "[ab]|c", r"\b", "^", r"\s", "a(?=b)", "(?<!b)a", "a{2}"];
        let kind = if depth == 0 { 0 } else { self.below(16) };
        let text = match kind {
            0..=7 if self.closed.is_empty() || self.below(4) > 0 => {
                return (self.pick(&plain).to_owned(), false);
            }
            0..=7 => {
                let at = self.below(self.closed.len());
                let group = self.closed[at];
                if self.below(2) == 0 { format!(r"\{group}") } else { format!("(?P=g{group})") }
            }
            8 => format!("(?<={})", self.pick(&fixed)),
            9 => format!("(?<!{})", self.pick(&fixed)),
            10..=12 => {
                self.groups += 1;
                let group = self.groups;
                let inner = self.choice(depth - 1);
                self.closed.push(group);
                format!("(?P<g{group}>{inner})")
            }
            _ => {
                let open =
                    self.pick(&["(?:", "(?:", "(?>", "(?=", "(?!", "(?i:", "(?s-i:", "(?x:"]);
                format!("{open}{})", self.choice(depth - 1))
            }
        };
        (text, true)
    }
}

/// Shapes that once took minutes: atomic parts, look-around and lazy repetition.
#[test]
fn slowest_shapes_end_at_the_steps() {
    let (mut slowest, mut stopped, mut count) = ((0, String::new()), 0, 0);
    let words = ["a", "b"].map(|last| "a".repeat(4095) + last);
    let leads = ["a*?", "", "a*", "(a)*?", "(?:a|b)*?"];
    let looks = ["(?=[a-z]*)", "", "(?![a-z]*?c)", "(?=.*b)", "(?<=a|b)", "(?=a*?b)"];
    // A match up to the limit takes seconds without optimization.
    let (leads, looks) =
        if is_all() { (&leads[..], &looks[..]) } else { (&leads[..1], &looks[..1]) };
    for lead in leads {
        for body in ["(?>(?:@a)*)", "(?:@a)*", "(?:@a)*?"] {
            for look in looks {
                let text = format!("{lead}{}b", body.replace('@', look));
                for word in &words {
                    let work = MatchBudget::default();
                    let answer = Pattern::new(&text).matches(Mode::Compat, OsStr::new(word), &work);
                    let is_stopped = answer == Err(MatchError::Limit(MatchLimit::Steps));
                    assert!(answer.is_ok() || is_stopped, "{text}: {answer:?}");
                    assert_eq!(is_stopped, work.steps() == STEPS_MAX, "{text}: {answer:?}");
                    count += 1;
                    stopped += usize::from(is_stopped);
                    slowest = slowest.max((work.steps(), text.clone()));
                }
            }
        }
    }
    println!("{count} matches, {stopped} stopped; the slowest: {slowest:?}");
    assert!((1..count).contains(&stopped), "{stopped} of {count} stopped");
}
