// SPDX-License-Identifier: MIT OR Apache-2.0
//! Differences between compat and strict mode, one for each rule, derived from the rule alone. `evaluate` decides about
//! single commands.
//!
//! docs/reference/rootwrap-differences.md lists all differences. This module leaves out differences of every command,
//! such as the environment.

use crate::evaluate::{is_dangerous, is_safe_value};
use crate::filters::{FilterClass, FilterRule};
use crate::mode::Mode;
use crate::pattern::Pattern;
use crate::python_strings::{basename, is_absolute};
use crate::rootwrap_policy::RootwrapPolicy;
use roster_messages::Message;
use roster_messages::table::commands;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

/// A rule that the modes read differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeDifference {
    /// The rule with its file and line.
    pub rule: String,
    /// The rule's effect in compat mode.
    pub compat: String,
    /// The rule's effect in strict mode.
    pub strict: String,
}

impl ModeDifference {
    /// The row of every difference.
    pub const MESSAGE: &'static Message = &commands::CHECK_MODES_DIFFER;
}

impl fmt::Display for ModeDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, compat, strict } = self;
        write!(f, "{rule}: compat mode {compat}; strict mode {strict} [{}]", Self::MESSAGE)
    }
}

/// The effects in compat and in strict mode: two phrases with the mode as their subject.
type Contrast = (String, String);

/// Returns the differences in the order of the files' names. The built-in rule of compat mode comes last.
pub(super) fn mode_differences(policy: &RootwrapPolicy) -> Vec<ModeDifference> {
    let rules: Vec<&FilterRule> = policy.rules(Mode::Strict).collect();
    let effects = CommandEffects::new(&rules);
    let built_in = policy.rules(Mode::Compat).filter(|rule| rule.location.is_none());
    let all = rules.iter().copied().chain(built_in);
    all.filter_map(|rule| {
        let contrasts = class_contrasts(rule).into_iter().chain(effects.order_contrast(rule));
        let (compat, strict): (Vec<_>, Vec<_>) = contrasts.unzip();
        let rule = rule.to_string();
        (!compat.is_empty()).then(|| ModeDifference {
            rule,
            compat: compat.join(", and "),
            strict: strict.join(", and "),
        })
    })
    .collect()
}

fn class_contrasts(rule: &FilterRule) -> Vec<Contrast> {
    let contrast = |compat: &str, strict: &str| (compat.to_owned(), strict.to_owned());
    let by_path = || {
        contrast(
            "evaluates the chained command by the last part of its path, and executes that path",
            "evaluates and executes the whole path",
        )
    };
    match &rule.class {
        FilterClass::Command if rule.location.is_none() => {
            vec![contrast("allows any arguments", "has no such rule")]
        }
        FilterClass::Command | FilterClass::Chaining | FilterClass::ReadFile(_) => Vec::new(),
        FilterClass::RegExp(patterns) => end_contrast(patterns).into_iter().collect(),
        FilterClass::ChainingRegExp(patterns) if patterns.is_empty() => {
            vec![contrast("chains any command", "never matches")]
        }
        FilterClass::ChainingRegExp(patterns) => {
            [by_path()].into_iter().chain(end_contrast(patterns)).collect()
        }
        // Compat mode also matches it only for root.
        FilterClass::IpNetnsExec if rule.run_as != "root" => Vec::new(),
        FilterClass::IpNetnsExec => {
            let namespace = contrast("allows any word as namespace", "allows names only");
            vec![by_path(), namespace]
        }
        FilterClass::Path(arguments) => {
            let directory = arguments.iter().find(|argument| is_absolute(argument.as_bytes()));
            let compat = |directory| format!("allows paths that begin with {directory}");
            let strict = "allows the directory and paths below it".to_owned();
            directory.map(|directory| (compat(directory), strict)).into_iter().collect()
        }
        FilterClass::Kill(_) => vec![contrast(
            "allows process numbers such as +12 and 1_2, and trusts the command line of a process",
            "allows plain numbers, and trusts only the kernel",
        )],
        FilterClass::Ip => vec![contrast(
            "allows ip to run commands and to load programs, for example by -batch",
            "refuses that, and options that it does not know",
        )],
        FilterClass::Env(settings) => env_contrast(settings).into_iter().collect(),
    }
}

/// Returns the difference at the end of a word. `None` for a faulty pattern, which the check reports as a mistake.
fn end_contrast(patterns: &[Pattern]) -> Option<Contrast> {
    let is_faulty = |pattern: &Pattern| {
        [Mode::Compat, Mode::Strict].iter().any(|&mode| pattern.fault(mode).is_some())
    };
    if patterns.is_empty() || patterns.iter().any(is_faulty) {
        return None;
    }
    let compat = match patterns.iter().find(|pattern| pattern.is_open_in_compat()) {
        Some(open) => format!("lets a word continue behind the pattern {:?}", open.text()),
        None => "allows a newline behind a word".to_owned(),
    };
    Some((compat, "matches whole words".to_owned()))
}

/// Returns the difference of the first setting that strict mode restricts.
fn env_contrast(settings: &[String]) -> Option<Contrast> {
    settings.iter().map_while(|setting| setting.split_once('=')).find_map(|(name, value)| {
        let bytes = name.as_bytes();
        let strict = if is_dangerous(bytes) || name == "PATH" {
            "never matches, because programs load code by the variable".to_owned()
        } else if !value.is_empty() {
            format!("allows only {name}={value}")
        } else if !is_safe_value(bytes, b"/x") {
            "refuses values that lead to files".to_owned()
        } else {
            return None;
        };
        Some((format!("allows any value of {name}"), strict))
    })
}

/// A directory of filter files, and the name of a command.
type CommandKey<'p> = (&'p Path, &'p OsStr);
/// The user and the executable of a rule.
type Effect<'p> = (&'p str, &'p str);

/// The effects that the rules of one directory have on one command, each with its files.
#[derive(Default)]
struct CommandEffects<'p>(HashMap<CommandKey<'p>, BTreeMap<Effect<'p>, BTreeSet<&'p Path>>>);

impl<'p> CommandEffects<'p> {
    fn new(rules: &[&'p FilterRule]) -> Self {
        let mut effects = Self::default();
        for &rule in rules {
            let Some((command, file)) = command_and_file(rule) else { continue };
            let of_command = effects.0.entry(command).or_default();
            of_command.entry((&rule.run_as, &rule.exec_path)).or_default().insert(file);
        }
        effects
    }

    /// Returns the difference if rules of two files have different effects on one command. The order of the files then
    /// decides.
    fn order_contrast(&self, rule: &'p FilterRule) -> Option<Contrast> {
        let (command, file) = command_and_file(rule)?;
        let own = (&*rule.run_as, &*rule.exec_path);
        let mut others = self.0.get(&command)?.iter().filter(|(effect, _)| **effect != own);
        let other = others.find_map(|(_, files)| files.iter().find(|&&other| other != file))?;
        let compat = format!(
            "takes this rule or one of {} first, as the file system lists the files",
            other.display()
        );
        Some((compat, "takes the files by name".to_owned()))
    }
}

fn command_and_file(rule: &FilterRule) -> Option<(CommandKey<'_>, &Path)> {
    let file = rule.location.as_ref()?.file.as_path();
    Some(((file.parent()?, basename(OsStr::new(&rule.exec_path))), file))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines about files in one directory, without the line about the built-in rule.
    fn differences(files: &[&str]) -> Vec<String> {
        let files: Vec<String> = files.iter().map(|file| format!("[Filters]\n{file}")).collect();
        let files: Vec<&[u8]> = files.iter().map(String::as_bytes).collect();
        let conf = b"[DEFAULT]\nfilters_path=/x\n";
        let policy = RootwrapPolicy::from_texts(conf, &files).unwrap();
        let mut told: Vec<_> = mode_differences(&policy).iter().map(ToString::to_string).collect();
        assert_eq!(
            told.pop().unwrap(),
            format!(
                "built in: privsep-helper (CommandFilter): compat mode allows any arguments; strict mode has no such \
                 rule [{}]",
                ModeDifference::MESSAGE
            )
        );
        told
    }

    #[test]
    fn check_rule_with_difference_has_one_line() {
        for (rule, expected) in [
            ("RegExpFilter, no-such, root, no-such, a|b", "continue behind the pattern \"a|b\";"),
            ("RegExpFilter, no-such, root, no-such, (?x)a #", "behind the pattern \"(?x)a #\";"),
            ("RegExpFilter, no-such, root, no-such, (?m)a", "behind the pattern \"(?m)a\";"),
            ("RegExpFilter, no-such, root, no-such, (a|b)", "allows a newline behind a word;"),
            ("PathFilter, chown, root, pass, /srv/images", "paths that begin with /srv/images;"),
            ("KillFilter, root, no-such, -9", "allows plain numbers"),
            ("IpFilter, ip, root", "by -batch;"),
            ("EnvFilter, env, root, LD_PRELOAD=, ls", "value of LD_PRELOAD; strict mode never"),
            (
                "EnvFilter, env, root, A=, LC_ALL=C, ls",
                "value of LC_ALL; strict mode allows only LC_ALL=C",
            ),
            ("EnvFilter, env, root, LC_ALL=, ls", "strict mode refuses values that lead to files"),
            ("ChainingRegExpFilter, nice, root, nice", "and allows a newline behind a word;"),
            ("ChainingRegExpFilter, nice, root", "strict mode never matches"),
            ("IpNetnsExecFilter, ip, root", "and allows any word as namespace;"),
        ] {
            let found = differences(&[&format!("x: {rule}\n")]);
            let [line] = &found[..] else { panic!("{rule}: {found:?}") };
            assert!(line.starts_with("000000.filters:2: x ("), "{line}");
            assert!(line.contains(expected), "{rule}: {line}");
        }
    }

    #[test]
    fn check_rule_without_difference_has_no_line() {
        let rules = "a: CommandFilter, ls, root\nb: ReadFileFilter, /etc/shadow\n\
                     c: EnvFilter, env, root, A=, ls\nd: CommandFilter, /no/such, root\n\
                     e: PathFilter, ls, root, pass\nf: IpNetnsExecFilter, ip, nova\n";
        assert_eq!(differences(&[rules]), [""; 0]);
    }

    #[test]
    fn check_rules_of_two_files_depend_on_order() {
        let (root, nobody) = ("x: CommandFilter, ls, root\n", "y: CommandFilter, ls, nobody\n");
        let expected = |(own, name, other): (u8, char, u8)| {
            format!(
                "00000{own}.filters:2: {name} (CommandFilter): compat mode takes this rule or one of \
                 00000{other}.filters first, as the file system lists the files; strict mode takes the files by name [{}]",
                ModeDifference::MESSAGE
            )
        };
        assert_eq!(differences(&[root, nobody]), [(0, 'x', 1), (1, 'y', 0)].map(expected));
        assert_eq!(differences(&[&format!("{root}{nobody}")]), [""; 0]);
        assert_eq!(differences(&[root, root]), [""; 0]);
    }
}
