//! Whether a command may run, by which rule, and as what. Pure: all it asks of the host goes through
//! [`HostFacts`]; which rule matches is said in `filter_match`.
//!
//! Compat is the original's verdict in every case, what it gets wrong included. Strict closes what is
//! known to be open in it: docs/reference/rootwrap-differences.md has the list.

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

/// Proof that a command may run, and what is to run. Made here alone.
#[derive(Debug)]
pub struct AllowedCommand<'p> {
    mode: Mode,
    rule: &'p FilterRule,
    argv: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    kill: Option<KillRequest>,
}

/// A signal, and the process that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillRequest {
    /// The process that was judged.
    pub process: ProcessIdentity,
    /// The signal's number, which was judged as well; 0 only looks for the process.
    pub signal: i32,
}

/// One process, whatever else gets its pid when it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: i64,
    /// When it began, as [`HostFacts::start_of`] has it.
    pub started: u64,
}

impl<'p> AllowedCommand<'p> {
    /// How the rules were read.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The rule that lets the command run.
    #[must_use]
    pub fn rule(&self) -> &'p FilterRule {
        self.rule
    }

    /// What to run. The first word is the executable; in strict mode it is an absolute path, in
    /// compat a relative one of `exec_dirs` may have led to it, and a name without a slash is
    /// looked for in `$PATH`.
    #[must_use]
    pub fn argv(&self) -> &[OsString] {
        &self.argv
    }

    /// The whole environment to run it in.
    #[must_use]
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    /// The name of the user to run it as.
    #[must_use]
    pub fn run_as(&self) -> &'p str {
        &self.rule.run_as
    }

    /// In strict mode, what a kill(1) is to do, behind other words or not. It is done instead of the
    /// command: who does it holds the process fast by a pidfd, sees that it still began at that time, and
    /// only then sends the signal.
    #[must_use]
    pub fn kill(&self) -> Option<KillRequest> {
        self.kill
    }
}

/// Why a command may not run.
#[derive(Debug)]
pub enum Refusal<'p> {
    /// No rule matches.
    NoFilter,
    /// A rule matches, and nothing that may be executed is where it leads. It is the first such.
    NotExecutable(&'p FilterRule),
    /// The original breaks off at this rule and comes to none behind it, or a pattern comes to its bound.
    Aborted(&'p FilterRule, MismatchReason),
    /// The command has a NUL in it, with which nothing can be run.
    Nul,
    /// A word is so long that nothing can be run with it.
    ArgumentTooLong,
}

impl Refusal<'_> {
    /// The exit code of a call without a command, or with too many words.
    pub const NO_COMMAND: u8 = 98;
    /// The exit code where the configuration cannot be used.
    pub const BAD_CONFIG: u8 = 97;

    /// The exit code that tells it.
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

/// What is said of an argument that is too long, in both daemons.
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

/// Why a rule does not let a command run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MismatchReason {
    /// It is for another command.
    OtherCommand,
    /// It is for so many arguments, the command's name included.
    ArgumentCount(usize),
    /// An argument, by its number, is not what the rule says.
    Argument(usize),
    /// A pattern that cannot be used, by its argument's number.
    Pattern(usize, PatternFault),
    /// The match of an argument comes to a bound.
    MatchLimit(usize, MatchLimit),
    /// An argument leads out of its folder.
    OutsideDirectory(usize, OsString),
    /// Links of an argument cannot be resolved to the end.
    Unresolved(usize, ResolveError),
    /// The signal is not among the rule's, or one is missing or too many.
    Signal,
    /// The rule's signal is none that strict mode knows.
    NoSignal(OsString),
    /// There is no such process, or nothing is known of it.
    NoProcess,
    /// The process runs another executable.
    OtherProcess(OsString),
    /// A number that other programs could read otherwise.
    AmbiguousNumber,
    /// ip(8) would run a command by it.
    IpRuns,
    /// ip(8) would load a program of the caller's into the kernel by it.
    IpLoads,
    /// Strict mode does not know what ip(8) would make of this option.
    IpOption(OsString),
    /// The settings of the environment are not those of the rule.
    Settings,
    /// A setting that makes programs load foreign code.
    DangerousSetting(OsString),
    /// A setting with a value that no caller may choose.
    UnsoundSetting(OsString),
    /// Not the name of a network namespace.
    Namespace,
    /// A rule that chains runs as root only.
    NotRoot,
    /// Nothing is left behind what the rule matches.
    NoChainedCommand,
    /// No rule of the same user lets the rest run.
    ChainedCommandRefused,
    /// Its class never matches.
    Never,
    /// The file that it is in could be changed by others.
    Distrusted(String),
    /// Nothing that may be executed is where it leads; in strict mode perhaps for these reasons.
    NoExecutable(Vec<String>),
    /// The original breaks off.
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
            Self::Pattern(at, fault) => write!(f, "its pattern for {} {fault}", Word(*at)),
            Self::MatchLimit(at, bound) => write!(f, "its pattern for {} {bound}", Word(*at)),
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
            Self::Distrusted(why) => write!(f, "its filter file is not trusted: {why}"),
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

/// What is told of each rule that is looked at: how deep in a chain, the rule, and its answer.
pub(crate) type RuleObserver<'o> =
    &'o mut dyn FnMut(usize, &FilterRule, Result<(), &MismatchReason>);

/// More bytes in a word and execve(2) refuses the command (`MAX_ARG_STRLEN`, with the NUL behind it).
pub(crate) const ARGUMENT_BYTES_MAX: usize = (128 << 10) - 1;

/// Judges a command.
pub fn evaluate<'p>(
    mode: Mode,
    policy: &'p RootwrapPolicy,
    argv: &[OsString],
    facts: &dyn HostFacts,
) -> Result<AllowedCommand<'p>, Refusal<'p>> {
    let rules: Vec<&FilterRule> = policy.rules(mode).collect();
    evaluate_rules(mode, policy, &rules, argv, facts, &mut |_, _, _| {})
}

/// The same by some of the rules, telling of each.
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
    /// The folders of `PATH` in strict mode.
    trusted_path: OnceCell<Vec<OsString>>,
    observer: RuleObserver<'c>,
    /// The steps that are left for the patterns of all rules.
    budget: MatchBudget,
}

/// A rule that lets a command run, and what it makes of it.
struct RuleMatch<'p> {
    rule: &'p FilterRule,
    argv: Vec<OsString>,
    settings: Vec<(OsString, OsString)>,
    kill: Option<KillRequest>,
}

impl Evaluation<'_> {
    /// The first of the rules that lets the words run.
    fn first_match<'p>(
        &mut self,
        depth: usize,
        rules: &[&'p FilterRule],
        words: &[&OsStr],
    ) -> Result<RuleMatch<'p>, Refusal<'p>> {
        let mut not_executable = None;
        // An EnvFilter takes a leading `env` away, from itself and from all rules behind it.
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
            // What was judged is what runs, not what the caller called it.
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

    /// Judges what is behind the words that a chaining rule matches: from which word on, and how.
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

    /// What a rule leads to.
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

    /// The folders of `PATH` in strict mode.
    fn trusted_path(&self) -> &[OsString] {
        self.trusted_path.get_or_init(|| trusted_dirs(self.facts, self.exec_dirs))
    }
}

/// The folders of executables in which root alone can put any.
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

/// What is behind the settings.
fn skip_settings<'w, 's>(words: &'s [&'w OsStr]) -> &'s [&'w OsStr] {
    let settings = words.iter().take_while(|word| is_setting(word)).count();
    &words[settings..]
}

/// The settings that are made: those that have both name and value.
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
