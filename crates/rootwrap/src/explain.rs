//! Which rule decides about a command and why each one before it does not, without running anything.

use crate::filters::Rule;
use crate::host::Facts;
use crate::judge::{Mode, Refusal, Verdict, Why, judge_by};
use crate::policy::Policy;
use std::ffi::OsString;
use std::fmt::{self, Write};

/// A judgement with its reasons. Displayed, it is a line for each rule and one for the outcome.
#[derive(Debug)]
pub struct Explanation<'p> {
    /// How the rules were read.
    pub mode: Mode,
    /// The rules that were looked at, in order.
    pub steps: Vec<Step>,
    /// What came of it.
    pub outcome: Result<Verdict<'p>, Refusal<'p>>,
}

/// One rule's answer.
#[derive(Debug)]
pub struct Step {
    /// The rule with its place.
    pub rule: String,
    /// Why it does not let the command run; `None` of the rule that does.
    pub why: Option<Why>,
    /// Of a rule that chains, what others say of the rest of the command.
    pub rest: Vec<Step>,
}

/// Judges a command and tells how.
#[must_use]
pub fn explain<'p>(
    mode: Mode,
    policy: &'p Policy,
    argv: &[OsString],
    facts: &dyn Facts,
) -> Explanation<'p> {
    let rules: Vec<&Rule> = policy.rules(mode).collect();
    // The steps at each depth that belong to no rule yet.
    let mut open: Vec<Vec<Step>> = vec![Vec::new()];
    let outcome = judge_by(mode, policy, &rules, argv, facts, &mut |depth, rule, answer| {
        if open.len() <= depth + 1 {
            open.resize_with(depth + 2, Vec::new);
        }
        let rest = std::mem::take(&mut open[depth + 1]);
        let why = answer.err().cloned();
        open[depth].push(Step { rule: rule.to_string(), why, rest });
    });
    Explanation { mode, steps: open.swap_remove(0), outcome }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_steps(f, &self.steps, 0)?;
        match &self.outcome {
            Ok(verdict) => {
                write!(f, "{}: runs as {}:", self.mode, verdict.run_as())?;
                verdict.argv().iter().try_for_each(|word| write!(f, " {}", Word(word)))
            }
            Err(refusal) => {
                write!(f, "{}: does not run ({}): {refusal}", self.mode, refusal.exit_code())
            }
        }
    }
}

fn write_steps(f: &mut fmt::Formatter<'_>, steps: &[Step], depth: usize) -> fmt::Result {
    for step in steps {
        let indent = "    ".repeat(depth);
        match &step.why {
            Some(why) => writeln!(f, "{indent}{}: {why}", step.rule)?,
            None => writeln!(f, "{indent}{}: lets it run", step.rule)?,
        }
        write_steps(f, &step.rest, depth + 1)?;
    }
    Ok(())
}

/// Format characters (Cf) and the separators of lines and paragraphs (Zl, Zp): they change how what stands around them
/// is shown, or where a line ends.
const FORMATS: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// Whether a character is not shown as itself.
fn is_hidden(char: char) -> bool {
    char.is_control() || FORMATS.iter().any(|&(first, last)| (first..=last).contains(&char))
}

/// A word as it could be typed into bash, whatever bytes are in it.
#[derive(Debug)]
pub struct Word<'w>(pub &'w OsString);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |char: char| char.is_alphanumeric() || "%+,-./:=@_^".contains(char);
        match self.0.to_str() {
            Some(text) if !text.is_empty() && text.chars().all(plain) => f.write_str(text),
            Some(text) if !text.chars().any(|char| is_hidden(char) || char == '\'') => {
                write!(f, "'{text}'")
            }
            _ => {
                f.write_str("$'")?;
                for byte in self.0.as_encoded_bytes() {
                    match byte {
                        b'\'' | b'\\' => write!(f, "\\{}", char::from(*byte))?,
                        b'\n' => f.write_str("\\n")?,
                        b' '..=b'~' => f.write_char(char::from(*byte))?,
                        byte => write!(f, "\\x{byte:02x}")?,
                    }
                }
                f.write_char('\'')
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::ThisHost;

    fn explained(mode: Mode, filters: &str, command: &[&str]) -> String {
        let conf = b"[DEFAULT]\nfilters_path=/x\nexec_dirs=/usr/bin,/bin\n";
        let policy = Policy::of_texts(conf, &[filters.as_bytes()]).unwrap();
        let argv: Vec<OsString> = command.iter().map(OsString::from).collect();
        explain(mode, &policy, &argv, &ThisHost::new()).to_string()
    }

    #[test]
    fn every_rule_up_to_the_deciding_one_has_its_reason() {
        let filters = "[Filters]\nip: IpFilter, ip, root\nls: RegExpFilter, ls, root, ls, -l\n\
                       all: CommandFilter, ls, daemon\n";
        assert_eq!(
            explained(Mode::Compat, filters, &["ls", "-a", "it's"]),
            "000000.filters:2: ip (IpFilter): is for another command\n\
             000000.filters:3: ls (RegExpFilter): is for 2 words\n\
             000000.filters:4: all (CommandFilter): lets it run\n\
             compat: runs as daemon: /usr/bin/ls -a $'it\\'s'"
        );
        assert!(explained(Mode::Compat, filters, &["rm"]).ends_with(
            "built in: privsep-helper (CommandFilter): is for another command\n\
             compat: does not run (99): no filter matched"
        ));
    }

    #[test]
    fn the_rest_of_a_chain_stands_below_its_rule() {
        let filters = "[Filters]\nnice: ChainingRegExpFilter, nice, root, nice\nls: CommandFilter, ls, root\n";
        assert_eq!(
            explained(Mode::Strict, filters, &["nice", "ls"]),
            "000000.filters:2: nice (ChainingRegExpFilter): lets it run\n    \
             000000.filters:3: ls (CommandFilter): lets it run\n\
             strict: runs as root: /usr/bin/nice /usr/bin/ls"
        );
    }

    #[test]
    fn words_can_be_typed_again() {
        use std::os::unix::ffi::OsStringExt;
        for (word, typed) in [("a-b/c", "a-b/c"), ("", "''"), ("a b", "'a b'"), ("a\n", "$'a\\n'")]
        {
            assert_eq!(Word(&word.into()).to_string(), typed);
        }
        assert_eq!(Word(&OsString::from_vec(vec![b'a', 0xff])).to_string(), "$'a\\xff'");
    }

    #[test]
    fn characters_that_change_a_line_are_escaped() {
        for char in "\u{ad}\u{61c}\u{200b}\u{200f}\u{2028}\u{2029}\u{202e}\u{2069}\u{feff}\u{e0041}\u{7f}\u{85}\n".chars()
        {
            assert!(is_hidden(char), "{char:?}");
        }
        for char in "a é'\u{a0}\u{200a}\u{2027}\u{202f}\u{2065}\u{e0080}".chars() {
            assert!(!is_hidden(char), "{char:?}");
        }
        // Unicode 15 and 16 have 170 characters of category Cf.
        let count =
            ('\0'..=char::MAX).filter(|&char| is_hidden(char) && !char.is_control()).count();
        assert_eq!(count, 170 + 2);
        let typed = Word(&"a\u{202e}b".into()).to_string();
        assert_eq!(typed, r"$'a\xe2\x80\xaeb'");
    }
}
