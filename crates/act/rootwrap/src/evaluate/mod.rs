// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decision whether a command may run, by which rule, and as what. It is a pure function: all facts of the host
//! come through [`HostFacts`], and `filter_match` matches single rules.
//!
//! Compat mode decides as oslo.rootwrap in every case, its faults included. Strict mode closes the known gaps:
//! docs/reference/rootwrap-differences.md.

mod env_vars;
mod filter_match;
mod ip_command;
pub(crate) mod kill_command;

use crate::filters::{FilterClass, FilterRule};
use crate::host_facts::HostFacts;
use crate::interpreter::distrust_of_program;
use crate::mode::Mode;
use crate::path_trust::distrust;
use crate::pattern::{MatchBudget, MatchLimit, PatternFault};
use crate::python_strings::{basename, is_absolute, join, os_string};
pub use crate::realpath::ResolveError;
use crate::rootwrap_conf::SECURE_PATH;
use crate::rootwrap_policy::RootwrapPolicy;
use roster_messages::Message;
use roster_messages::table::commands;
use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) use env_vars::{is_command_variable, is_dangerous, is_dangerous_prefix, is_safe_value};

/// Proof that a command may run, with what to execute. Only this module creates it.
#[derive(Debug)]
pub struct AllowedCommand<'p> {
    mode: Mode,
    rule: &'p FilterRule,
    argv: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    kill: Option<KillRequest>,
}

/// A signal with its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillRequest {
    /// The process of the decision.
    pub process: ProcessIdentity,
    /// The number of the signal. 0 only checks that the process exists.
    pub signal: i32,
}

/// One process. A later process with the same pid is different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The process id.
    pub pid: i64,
    /// The start time by [`HostFacts::start_of`].
    pub started: u64,
}

impl<'p> AllowedCommand<'p> {
    /// Returns the mode of the decision.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the rule that allows the command.
    #[must_use]
    pub fn rule(&self) -> &'p FilterRule {
        self.rule
    }

    /// Returns the words to execute. The first one is the executable: an absolute path in strict mode. In compat mode
    /// it may be a relative path of `exec_dirs`, or a name for `$PATH`.
    #[must_use]
    pub fn argv(&self) -> &[OsString] {
        &self.argv
    }

    /// Returns the whole environment of the command.
    #[must_use]
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    /// Returns the name of the user that it runs as.
    #[must_use]
    pub fn run_as(&self) -> &'p str {
        &self.rule.run_as
    }

    /// Returns the signal of a kill(1) in strict mode, behind other words or not. The executor sends it in the place of
    /// the command: it opens a pidfd, checks the start time, and then sends the signal.
    #[must_use]
    pub fn kill(&self) -> Option<KillRequest> {
        self.kill
    }
}

/// Reasons for which a command may not run.
#[derive(Debug)]
pub enum Refusal<'p> {
    /// No rule matches.
    NoFilter,
    /// A rule matches, but its executable is missing or not trusted. This is the first such rule.
    NotExecutable(&'p FilterRule),
    /// oslo.rootwrap aborts at this rule and ignores later ones, or a pattern reaches its limit.
    Aborted(&'p FilterRule, MismatchReason),
    /// An argument has a NUL, which execve(2) cannot pass.
    Nul,
    /// execve(2) does not accept an argument of this length.
    ArgumentTooLong,
}

impl Refusal<'_> {
    /// The exit code of a call without a command, or with wrong options.
    pub const NO_COMMAND: u8 = 98;
    /// The exit code of an invalid configuration.
    pub const BAD_CONFIG: u8 = 97;

    /// Returns the exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotExecutable(_) => 96,
            Self::NoFilter | Self::Aborted(..) | Self::Nul | Self::ArgumentTooLong => 99,
        }
    }

    /// Returns the row of the table of messages.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        match self {
            Self::NoFilter => &commands::NO_FILTER_MATCHED,
            Self::NotExecutable(_) => &commands::NO_EXECUTABLE,
            Self::Aborted(_, MismatchReason::MatchLimit(..)) => &commands::MATCH_LIMIT,
            Self::Aborted(..) => &commands::FILTER_ABORTED,
            Self::Nul => &commands::COMMAND_NUL,
            Self::ArgumentTooLong => &commands::ARGUMENT_TOO_LONG,
        }
    }
}

/// The text for an argument that is too long, in rootwrap and in the exec daemon.
pub(crate) const ARGUMENT_TOO_LONG: &str =
    "an argument is 128 KiB or longer (kernel limit MAX_ARG_STRLEN)";

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFilter => write!(f, "no filter matched"),
            Self::NotExecutable(rule) => {
                write!(f, "no executable {} (filter match = {})", rule.exec_path, rule.name)
            }
            Self::Aborted(rule, why) => write!(f, "{rule} aborts the evaluation: {why}"),
            Self::Nul => f.write_str("an argument contains a NUL byte"),
            Self::ArgumentTooLong => f.write_str(ARGUMENT_TOO_LONG),
        }
    }
}

/// Reasons for which a rule does not allow a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MismatchReason {
    /// The rule is for another command.
    OtherCommand,
    /// The rule is for this number of words, with the name of the command.
    ArgumentCount(usize),
    /// The word with this number does not match.
    Argument(usize),
    /// The pattern for this word is faulty.
    Pattern(usize, PatternFault),
    /// The match of this word reaches a limit.
    MatchLimit(usize, MatchLimit),
    /// The word leads out of its directory.
    OutsideDirectory(usize, OsString),
    /// Links of the word cannot be resolved.
    Unresolved(usize, ResolveError),
    /// The signal is not one of the rule, is missing, or is excess.
    Signal,
    /// Strict mode does not know the signal of the rule.
    NoSignal(OsString),
    /// The process does not exist, or is not visible.
    NoProcess,
    /// The process runs another executable.
    OtherProcess(OsString),
    /// Other programs could read the number differently.
    AmbiguousNumber,
    /// ip(8) would run a command.
    IpRuns,
    /// ip(8) would load a program of the caller into the kernel.
    IpLoads,
    /// Strict mode does not know this option of ip(8).
    IpOption(OsString),
    /// The settings of variables are not those of the rule.
    Settings,
    /// Programs load code by this variable.
    DangerousSetting(OsString),
    /// A caller may not choose this value of the variable.
    UnsoundSetting(OsString),
    /// The word is not the name of a network namespace.
    Namespace,
    /// The rule only matches for root.
    NotRoot,
    /// No command follows the prefix of the rule.
    NoChainedCommand,
    /// No rule of the same user allows the chained command.
    ChainedCommandRefused,
    /// The class of the rule never matches.
    Never,
    /// Other users can change the file of the rule.
    Distrusted(String),
    /// The executable is missing, or not trusted for these reasons.
    NoExecutable(Vec<String>),
    /// oslo.rootwrap aborts at this rule.
    Aborts(&'static str),
}

impl MismatchReason {
    fn aborts(&self) -> bool {
        matches!(
            self,
            Self::Pattern(_, PatternFault::Raises(_)) | Self::MatchLimit(..) | Self::Aborts(_)
        )
    }
}

impl fmt::Display for MismatchReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherCommand => write!(f, "is for another command"),
            Self::ArgumentCount(words) => {
                write!(f, "the number of arguments is not {}", words.saturating_sub(1))
            }
            Self::Argument(at) => write!(f, "{} does not match", Word(*at)),
            Self::Pattern(at, fault) => write!(f, "the pattern for {} {fault}", Word(*at)),
            Self::MatchLimit(at, bound) => write!(f, "the pattern for {} {bound}", Word(*at)),
            Self::OutsideDirectory(at, path) => {
                write!(f, "{} leads out of its directory, to {}", Word(*at), path.display())
            }
            Self::Unresolved(at, why) => write!(f, "{} {why}", Word(*at)),
            Self::Signal => write!(f, "is for other signals"),
            Self::NoSignal(option) => write!(f, "unknown signal {}", option.display()),
            Self::NoProcess => write!(f, "the process does not exist"),
            Self::OtherProcess(program) => write!(f, "the process is {}", program.display()),
            Self::AmbiguousNumber => write!(f, "the process is not given as a plain number"),
            Self::IpRuns => write!(f, "ip would run a command"),
            Self::IpLoads => write!(f, "ip would load a program into the kernel"),
            Self::IpOption(option) => write!(f, "unknown option {} of ip", option.display()),
            Self::Settings => write!(f, "is for other settings of the environment"),
            Self::DangerousSetting(name) => {
                write!(
                    f,
                    "variable {} can load code and may not be set by the caller",
                    name.display()
                )
            }
            Self::UnsoundSetting(name) => {
                write!(f, "the value of {} could lead to a file of the caller", name.display())
            }
            Self::Namespace => write!(f, "the argument is not the name of a network namespace"),
            Self::NotRoot => write!(f, "matches only for root"),
            Self::NoChainedCommand => write!(f, "no command follows the matched prefix"),
            Self::ChainedCommandRefused => {
                write!(f, "no rule of the same user allows the chained command")
            }
            Self::Never => write!(f, "a rule of this class never matches"),
            Self::Distrusted(why) => write!(f, "the filter file is not trusted: {why}"),
            Self::NoExecutable(reasons) if reasons.is_empty() => {
                write!(f, "matches, but its executable does not exist")
            }
            Self::NoExecutable(reasons) => {
                write!(f, "matches, but no executable is trusted: {}", reasons.join(", "))
            }
            Self::Aborts(what) => write!(f, "{what}"),
        }
    }
}

/// The name of a word in messages, by its number from 1. Arguments count from 1 behind the command.
struct Word(usize);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 | 1 => f.write_str("the command name"),
            at => write!(f, "argument {}", at - 1),
        }
    }
}

/// A callback for each evaluated rule: its depth in a chain, the rule, and the result.
pub(crate) type RuleObserver<'o> =
    &'o mut dyn FnMut(usize, &FilterRule, Result<(), &MismatchReason>);

/// execve(2) refuses longer words (`MAX_ARG_STRLEN` counts the NUL).
pub(crate) const ARGUMENT_BYTES_MAX: usize = (128 << 10) - 1;

/// Decides about a command.
pub fn evaluate<'p>(
    mode: Mode,
    policy: &'p RootwrapPolicy,
    argv: &[OsString],
    facts: &dyn HostFacts,
) -> Result<AllowedCommand<'p>, Refusal<'p>> {
    let rules: Vec<&FilterRule> = policy.rules(mode).collect();
    evaluate_rules(mode, policy, &rules, argv, facts, &mut |_, _, _| {})
}

/// Decides by a part of the rules, and reports each one.
pub(crate) fn evaluate_rules<'p>(
    mode: Mode,
    policy: &RootwrapPolicy,
    rules: &[&'p FilterRule],
    argv: &[OsString],
    facts: &dyn HostFacts,
    observer: RuleObserver<'_>,
) -> Result<AllowedCommand<'p>, Refusal<'p>> {
    if argv.iter().any(|arg| arg.as_bytes().contains(&0)) {
        return Err(Refusal::Nul);
    }
    if argv.iter().any(|arg| arg.len() > ARGUMENT_BYTES_MAX) {
        return Err(Refusal::ArgumentTooLong);
    }
    let path = match mode {
        Mode::Compat => facts.variable("PATH"),
        Mode::Strict => Some(OsStr::new(SECURE_PATH)),
    };
    let folders = policy.conf.executable_dirs(path);
    let words: Vec<&OsStr> = argv.iter().map(OsString::as_os_str).collect();
    let trusted_path = OnceCell::new();
    let work = MatchBudget::default();
    let mut case =
        Evaluation { mode, facts, exec_dirs: &folders, trusted_path, observer, budget: work };
    let hit = case.first_match(0, rules, &words)?;
    let mut environment = facts.environment().to_vec();
    if mode == Mode::Strict {
        environment.retain(|(name, value)| {
            env_vars::is_passed_through(name.as_bytes())
                && is_safe_value(name.as_bytes(), value.as_bytes())
        });
        let path = case.trusted_path();
        if !path.is_empty() {
            environment.push(("PATH".into(), path.join(OsStr::new(":"))));
        }
    }
    for (name, value) in hit.settings {
        match environment.iter_mut().find(|(found, _)| *found == name) {
            Some((_, old)) => *old = value,
            None => environment.push((name, value)),
        }
    }
    Ok(AllowedCommand { mode, rule: hit.rule, argv: hit.argv, environment, kill: hit.kill })
}

struct Evaluation<'c> {
    mode: Mode,
    facts: &'c dyn HostFacts,
    exec_dirs: &'c [OsString],
    /// The directories of `PATH` in strict mode.
    trusted_path: OnceCell<Vec<OsString>>,
    observer: RuleObserver<'c>,
    /// The remaining steps of matching for all rules.
    budget: MatchBudget,
}

/// A rule that allows a command, and the resulting words.
struct RuleMatch<'p> {
    rule: &'p FilterRule,
    argv: Vec<OsString>,
    settings: Vec<(OsString, OsString)>,
    kill: Option<KillRequest>,
}

impl Evaluation<'_> {
    /// Returns the first rule that allows the words.
    fn first_match<'p>(
        &mut self,
        depth: usize,
        rules: &[&'p FilterRule],
        words: &[&OsStr],
    ) -> Result<RuleMatch<'p>, Refusal<'p>> {
        let mut not_executable = None;
        // An EnvFilter removes a leading `env` for itself and all later rules.
        let mut words = words;
        for &rule in rules {
            let why = match self.evaluate_rule(depth, rules, rule, &mut words) {
                Ok(hit) => {
                    (self.observer)(depth, rule, Ok(()));
                    return Ok(hit);
                }
                Err(why) => why,
            };
            (self.observer)(depth, rule, Err(&why));
            if why.aborts() {
                return Err(Refusal::Aborted(rule, why));
            }
            if matches!(why, MismatchReason::NoExecutable(_)) {
                not_executable.get_or_insert(rule);
            }
        }
        Err(not_executable.map_or(Refusal::NoFilter, Refusal::NotExecutable))
    }

    fn evaluate_rule<'p>(
        &mut self,
        depth: usize,
        rules: &[&'p FilterRule],
        rule: &'p FilterRule,
        words: &mut &[&OsStr],
    ) -> Result<RuleMatch<'p>, MismatchReason> {
        if let (Mode::Strict, Some(why)) = (self.mode, &rule.distrust) {
            return Err(MismatchReason::Distrusted(why.clone()));
        }
        let kill = self.matches(rule, words)?;
        let words = *words;
        let inner = match rule.class.is_chaining() {
            true => Some(self.evaluate_chained(depth, rules, rule, words)?),
            false => None,
        };
        let executable = self.executable(rule)?;
        let mut hit = RuleMatch { rule, argv: vec![executable], settings: Vec::new(), kill };
        match (&rule.class, inner, self.mode) {
            (FilterClass::Env(_), ..) => {
                hit.argv.extend(skip_settings(words).iter().skip(1).map(|&word| word.to_owned()));
                hit.settings = parse_settings(words);
            }
            (FilterClass::Path(rules), ..) => {
                for (at, (rule, word)) in (2..).zip(rules.iter().zip(&words[1..])) {
                    hit.argv.push(self.path_argument(at, rule, word)?);
                }
            }
            // The evaluated path is executed, not the name that the caller used.
            (_, Some((from, inner)), Mode::Strict) => {
                hit.argv.extend(words[1..from].iter().map(|&word| word.to_owned()));
                hit.argv.extend(inner.argv);
                hit.settings = inner.settings;
                hit.kill = inner.kill;
            }
            _ => hit.argv.extend(words[1..].iter().map(|&word| word.to_owned())),
        }
        Ok(hit)
    }

    /// Evaluates the command behind the prefix of a chaining rule. Returns the position of that command, and its match.
    fn evaluate_chained<'p>(
        &mut self,
        depth: usize,
        rules: &[&'p FilterRule],
        rule: &FilterRule,
        words: &[&OsStr],
    ) -> Result<(usize, RuleMatch<'p>), MismatchReason> {
        let from = match &rule.class {
            FilterClass::ChainingRegExp(patterns) => patterns.len(),
            FilterClass::IpNetnsExec => 4,
            _ => words.len(),
        };
        let mut rest = words.get(from..).unwrap_or_default().to_vec();
        let first = rest.first_mut().ok_or(MismatchReason::NoChainedCommand)?;
        if self.mode == Mode::Compat {
            *first = basename(first);
        }
        let leaves = rules.iter().copied();
        let leaves: Vec<&FilterRule> =
            leaves.filter(|leaf| leaf.run_as == rule.run_as && !leaf.class.is_chaining()).collect();
        match self.first_match(depth + 1, &leaves, &rest) {
            Ok(hit) => Ok((from, hit)),
            Err(Refusal::Aborted(..)) => {
                Err(MismatchReason::Aborts("a rule for the chained command aborts the evaluation"))
            }
            Err(_) => Err(MismatchReason::ChainedCommandRefused),
        }
    }

    /// Returns the executable of a rule.
    fn executable(&self, rule: &FilterRule) -> Result<OsString, MismatchReason> {
        let exec_path = rule.exec_path.as_bytes();
        let mut reasons = Vec::new();
        let mut candidates: Vec<Vec<u8>> = Vec::new();
        if is_absolute(exec_path) {
            candidates.push(exec_path.to_vec());
        } else {
            candidates.extend(self.exec_dirs.iter().map(|dir| join(dir.as_bytes(), exec_path)));
        }
        for candidate in candidates {
            let path = os_string(candidate);
            if !self.facts.may_execute(Path::new(&path)) {
                continue;
            }
            let reason = match self.mode {
                Mode::Compat => None,
                Mode::Strict => self.executable_distrust(&path),
            };
            match reason {
                Some(reason) => reasons.push(reason),
                None => return Ok(path),
            }
        }
        Err(MismatchReason::NoExecutable(reasons))
    }

    fn executable_distrust(&self, path: &OsStr) -> Option<String> {
        let path_dirs = || self.trusted_path().to_vec();
        distrust_of_program(self.facts, path, &path_dirs).map(|(_, why)| why)
    }

    /// Returns the directories of `PATH` in strict mode.
    fn trusted_path(&self) -> &[OsString] {
        self.trusted_path.get_or_init(|| trusted_dirs(self.facts, self.exec_dirs))
    }
}

/// Returns the directories in which only root can create files.
pub(crate) fn trusted_dirs(facts: &dyn HostFacts, folders: &[OsString]) -> Vec<OsString> {
    let is_trusted = |folder: &&OsString| {
        let path = folder.as_bytes();
        is_absolute(path) && !path.contains(&b':') && distrust(facts, folder).is_none()
    };
    folders.iter().filter(is_trusted).cloned().collect()
}

fn is_setting(word: &OsStr) -> bool {
    word.as_bytes().contains(&b'=')
}

/// Returns the words behind the settings.
fn skip_settings<'w, 's>(words: &'s [&'w OsStr]) -> &'s [&'w OsStr] {
    let settings = words.iter().take_while(|word| is_setting(word)).count();
    &words[settings..]
}

/// Returns the settings that have both a name and a value.
fn parse_settings(words: &[&OsStr]) -> Vec<(OsString, OsString)> {
    let settings = words.iter().take_while(|word| is_setting(word));
    let pairs = settings.filter_map(|word| {
        let bytes = word.as_bytes();
        let at = bytes.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (&bytes[..at], &bytes[at + 1..]);
        (!name.is_empty() && !value.is_empty())
            .then(|| (os_string(name.to_vec()), os_string(value.to_vec())))
    });
    pairs.collect()
}
