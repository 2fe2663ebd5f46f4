// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy exec.toml: parsing and warnings. docs/internals/exec-protocol.md has the keys, and `rule_match` applies
//! them.

use crate::diagnostic::{error, warning};
use crate::evaluate::{is_command_variable, is_dangerous, is_dangerous_prefix};
use crate::host_facts::LocalHost;
use crate::interpreter::distrust_of_program;
use crate::mode::Mode;
use crate::path_trust::distrust;
use crate::pattern::Pattern;
use crate::rootwrap_conf::default_path_dirs;
use nix::unistd::{Group, User};
use roster_messages::table::commands;
use roster_messages::{Diagnostic, Message};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Limit of rules, because each command may have to check all of them.
const RULES_MAX: usize = 10_000;
const NAME_BYTES_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Standard input, output and error.
const STREAM_FILES: u64 = 3;

/// A policy.
#[derive(Debug)]
pub struct ExecPolicy {
    /// The rules in order, with unique names.
    pub rules: Vec<ExecRule>,
}

#[derive(Debug)]
pub struct ExecRule {
    /// The name for records.
    pub name: String,
    /// The line in the file, from 1.
    pub line: usize,
    /// Users of the rule.
    pub users: Vec<String>,
    /// Groups of the rule.
    pub groups: Vec<String>,
    /// Hosts of the rule. Empty: all hosts.
    pub hosts: Vec<Glob>,
    /// The absolute path of the executable.
    pub command: PathBuf,
    /// A pattern for each argument.
    pub args: Vec<Pattern>,
    /// True if any arguments may follow those of `args`.
    pub any_args: bool,
    /// The user that the command runs as.
    pub run_as: String,
    /// The group that replaces the one of that user.
    pub run_as_group: Option<String>,
    /// Variables of the caller that the command keeps.
    pub keep_env: Vec<Glob>,
    /// The time after which the daemon kills the command.
    pub timeout: Option<Duration>,
    pub limits: RuleLimits,
}

/// Limits for setrlimit(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleLimits {
    /// Number of open files.
    pub files: Option<u64>,
    /// Bytes of address space.
    pub memory: Option<u64>,
    /// Processor time.
    pub cpu: Option<Duration>,
}

/// A text in which `*` matches any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(String);

impl Glob {
    /// Returns true if the whole text matches.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        let mut parts = self.0.as_bytes().split(|&byte| byte == b'*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        // The earliest match of a part leaves the most for the parts behind it.
        for part in parts.filter(|part| !part.is_empty()) {
            let Some(at) = rest.windows(part.len()).position(|window| window == part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }

    /// Returns true if every variable that matches is dangerous.
    fn is_never_kept(&self) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => is_dangerous_prefix(start.as_bytes()),
            None => self.0 == "PATH" || is_dangerous(self.0.as_bytes()),
        }
    }
}

impl ExecPolicy {
    /// Reads a policy file. The errors are all its mistakes, or the reason for which it is not trusted.
    pub fn load(file: &Path) -> Result<Self, Vec<Diagnostic>> {
        let mut text = String::new();
        let read = File::open(file)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
        let rejected = |message, text: String| Err(vec![error(message, file, 0, text)]);
        match read {
            Err(cause) if cause.kind() == ErrorKind::InvalidData => {
                rejected(&commands::POLICY_NOT_UTF8, "not UTF-8".into())
            }
            Err(cause) => {
                rejected(&commands::EXEC_TOML_UNREADABLE, format!("cannot be read: {cause}"))
            }
            Ok(_) if text.len() as u64 > FILE_BYTES_MAX => {
                rejected(&commands::POLICY_TOO_LARGE, "larger than 1 MiB".into())
            }
            Ok(_) => match distrust(&LocalHost::new(), file.as_os_str()) {
                Some(why) => {
                    let text = format!("other users can change it: {why}");
                    rejected(&commands::EXEC_TOML_UNTRUSTED, text)
                }
                None => Self::parse(file, &text),
            },
        }
    }

    /// Parses a policy. The errors are all its mistakes.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Vec<Diagnostic>> {
        let mut reader = ExecTomlReader { file, text, problems: Vec::new() };
        let (document, errors) = DeTable::parse_recoverable(text);
        for invalid in errors {
            let place = invalid.span().unwrap_or_default();
            let text = format!("invalid TOML: {}", invalid.message());
            reader.add_problem(&commands::EXEC_TOML_SYNTAX, &place, "", text, None);
        }
        let rules =
            if reader.problems.is_empty() { reader.rules(document.get_ref()) } else { vec![] };
        if reader.problems.is_empty() { Ok(Self { rules }) } else { Err(reader.problems) }
    }

    /// Returns warnings about the policy on this host. They are about unknown users, groups and executables, dangerous
    /// variables in keep_env, patterns with paths elsewhere, and low limits.
    #[must_use]
    pub fn warnings(&self, file: &Path) -> Vec<Diagnostic> {
        let is_no_user = |name: &String| matches!(User::from_name(name), Ok(None));
        let is_no_group = |name: &String| matches!(Group::from_name(name), Ok(None));
        let host = LocalHost::with_environment(Vec::new());
        let mut problems = Vec::new();
        for rule in &self.rules {
            let mut warn = |message: &'static Message, text: String| {
                let key = format!("rule {}", rule.name);
                problems.push(Diagnostic { key, ..warning(message, file, rule.line, text) });
            };
            let as_user = std::iter::once(&rule.run_as);
            for name in rule.users.iter().chain(as_user).filter(|name| is_no_user(name)) {
                warn(&commands::RULE_USER_UNKNOWN, format!("user {name} does not exist"));
            }
            let as_group = rule.run_as_group.iter();
            for name in rule.groups.iter().chain(as_group).filter(|name| is_no_group(name)) {
                warn(&commands::RULE_GROUP_UNKNOWN, format!("group {name} does not exist"));
            }
            for glob in &rule.keep_env {
                if let Some((message, text)) = keep_env_warning(glob) {
                    warn(message, format!("keep_env has {}: {text}", glob.0));
                }
            }
            for pattern in &rule.args {
                let is_below =
                    |sample: &str| sample.starts_with('/') && sample.rfind('/') > Some(0);
                if let Some(word) = pattern.words_elsewhere(is_below).next() {
                    let text = format!(
                        "args: pattern {:?} also matches {word}, a path elsewhere",
                        pattern.text()
                    );
                    warn(&commands::ARGS_PATH_ELSEWHERE, text);
                }
            }
            if rule.limits.files.is_some_and(|files| files <= STREAM_FILES) {
                let text = "max_files is too low to load a shared library".to_owned();
                warn(&commands::MAX_FILES_TOO_LOW, text);
            }
            if !rule.command.exists() {
                let text = format!("{} does not exist", rule.command.display());
                warn(&commands::EXECUTABLE_MISSING, text);
            } else if let Some((message, why)) =
                distrust_of_program(&host, rule.command.as_os_str(), &default_path_dirs)
            {
                warn(message, format!("the command does not run: {why}"));
            }
        }
        problems
    }
}

struct ExecTomlReader<'t> {
    file: &'t Path,
    text: &'t str,
    problems: Vec<Diagnostic>,
}

type SpannedValue<'d> = Spanned<DeValue<'d>>;

impl ExecTomlReader<'_> {
    fn line(&self, place: &Range<usize>) -> usize {
        let before = self.text.as_bytes().get(..place.start).unwrap_or(self.text.as_bytes());
        before.iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    fn add_problem(
        &mut self,
        message: &'static Message,
        place: &Range<usize>,
        key: &str,
        text: impl Into<String>,
        fix: Option<String>,
    ) {
        let problem = error(message, self.file, self.line(place), text);
        self.problems.push(Diagnostic { key: key.to_owned(), fix, ..problem });
    }

    fn rules(&mut self, document: &DeTable<'_>) -> Vec<ExecRule> {
        let mut rules = Vec::new();
        for (key, value) in document.iter() {
            match (&**key.get_ref(), value.get_ref()) {
                ("rule", DeValue::Array(tables)) if tables.len() <= RULES_MAX => {
                    rules.extend(tables.iter().filter_map(|table| self.rule(table)));
                }
                ("rule", DeValue::Array(_)) => {
                    let (row, text) =
                        (&commands::EXEC_RULES_TOO_MANY, format!("more than {RULES_MAX} rules"));
                    self.add_problem(row, &key.span(), "", text, None);
                }
                (name, _) => {
                    let row = &commands::EXEC_KEY_UNKNOWN;
                    self.add_problem(row, &key.span(), name, "unknown key", None);
                }
            }
        }
        let mut names = BTreeSet::new();
        for rule in &rules {
            if !names.insert(&rule.name) {
                let text = format!("two rules have the name {:?}", rule.name);
                let row = &commands::EXEC_RULE_NAME_DUPLICATE;
                self.problems.push(error(row, self.file, rule.line, text));
            }
        }
        rules
    }

    fn rule(&mut self, value: &SpannedValue<'_>) -> Option<ExecRule> {
        let DeValue::Table(table) = value.get_ref() else {
            let row = &commands::EXEC_RULE_NOT_TABLE;
            self.add_problem(row, &value.span(), "", "the rule is not a table", None);
            return None;
        };
        let mut fields =
            TableFields { reader: self, table, known_keys: Vec::new(), span: value.span() };
        let rule = ExecRule {
            line: fields.reader.line(&fields.span),
            name: fields.read_required("name", "1 to 64 letters, digits, -, _ and .", name),
            users: fields.read_list("users", "names of users", account),
            groups: fields.read_list("groups", "names of groups", account),
            hosts: fields.read_hosts(),
            command: fields.read_required("command", "an absolute path without . and ..", path),
            args: fields.read_patterns("args"),
            any_args: fields.read_optional("any_args", "true or false", boolean).unwrap_or(false),
            run_as: fields
                .read_optional("run_as", "a user's name", account)
                .unwrap_or_else(|| "root".into()),
            run_as_group: fields.read_optional("run_as_group", "a group's name", account),
            keep_env: fields.read_list(
                "keep_env",
                "names of variables, with * only at the end",
                variable,
            ),
            timeout: fields.read_optional("timeout", "a duration, such as \"30s\"", duration),
            limits: RuleLimits {
                files: fields.read_optional("max_files", "a number, at least 3", files),
                memory: fields.read_optional("max_memory", "bytes, such as \"64MiB\"", size),
                cpu: fields.read_optional(
                    "max_cpu",
                    "a duration of whole seconds, such as \"10s\"",
                    seconds,
                ),
            },
        };
        if rule.users.is_empty() && rule.groups.is_empty() {
            let (row, text) = (&commands::EXEC_RULE_WITHOUT_USERS, "no users and no groups");
            fields.reader.add_problem(row, &fields.span, "", text, None);
        }
        fields.reject_unknown_keys();
        Some(rule)
    }
}

/// A reader of one table, which records the keys that it knows.
struct TableFields<'f, 't, 'd> {
    reader: &'f mut ExecTomlReader<'t>,
    table: &'f DeTable<'d>,
    known_keys: Vec<&'static str>,
    span: Range<usize>,
}

impl TableFields<'_, '_, '_> {
    fn read_optional<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Option<T> {
        self.known_keys.push(key);
        let (_, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        let found = read(value.get_ref());
        if found.is_none() {
            let (row, fix) = (&commands::EXEC_RULE_VALUE_INVALID, format!("Write {wanted}."));
            self.reader.add_problem(row, &value.span(), key, "invalid value", Some(fix));
        }
        found
    }

    fn read_required<T: Default>(
        &mut self,
        key: &'static str,
        wanted: &str,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> T {
        if !self.table.iter().any(|(name, _)| name.get_ref() == key) {
            let (row, fix) = (&commands::EXEC_RULE_KEY_MISSING, format!("Write {wanted}."));
            self.reader.add_problem(row, &self.span, key, "required key is missing", Some(fix));
        }
        self.read_optional(key, wanted, read).unwrap_or_default()
    }

    fn read_list<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        read: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Vec<T> {
        let list = |value: &DeValue<'_>| match value {
            DeValue::Array(items) => items.iter().map(|item| read(item.get_ref())).collect(),
            _ => None,
        };
        self.read_optional(key, &format!("a list of {wanted}"), list).unwrap_or_default()
    }

    /// An empty list is an error: it is unlikely to mean every host.
    fn read_hosts(&mut self) -> Vec<Glob> {
        let list = |value: &DeValue<'_>| match value {
            DeValue::Array(items) if !items.is_empty() => {
                items.iter().map(|item| glob(item.get_ref())).collect()
            }
            _ => None,
        };
        let wanted = "a list of names of hosts, or omit hosts for every host";
        self.read_optional("hosts", wanted, list).unwrap_or_default()
    }

    /// Each faulty pattern is a separate error with its line.
    fn read_patterns(&mut self, key: &'static str) -> Vec<Pattern> {
        let value = self.table.iter().find(|(name, _)| name.get_ref() == key);
        let items = match value.map(|(_, value)| value.get_ref()) {
            Some(DeValue::Array(items)) => &items[..],
            _ => &[],
        };
        for item in items {
            // An empty pattern is for an empty argument.
            if let DeValue::String(text) = item.get_ref()
                && let Some(fault) = Pattern::new(text).fault(Mode::Strict)
            {
                let text = format!("pattern {text:?} {fault}");
                self.reader.add_problem(fault.message(), &item.span(), key, text, None);
            }
        }
        let pattern = |value: &DeValue<'_>| match value {
            DeValue::String(text) => Some(Pattern::new(text)),
            _ => None,
        };
        self.read_list(key, "patterns, each a string", pattern)
    }

    /// Adds an error for each key that was not read.
    fn reject_unknown_keys(self) {
        for (key, _) in self.table.iter() {
            if !self.known_keys.contains(&&**key.get_ref()) {
                let row = &commands::EXEC_RULE_KEY_UNKNOWN;
                let fix = format!("Write one of {}.", self.known_keys.join(", "));
                self.reader.add_problem(row, &key.span(), key.get_ref(), "unknown key", Some(fix));
            }
        }
    }
}

fn text<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    match value {
        DeValue::String(text) if !text.is_empty() && !text.contains('\0') => Some(text),
        _ => None,
    }
}

fn name(value: &DeValue<'_>) -> Option<String> {
    let name = text(value).filter(|name| name.len() <= NAME_BYTES_MAX)?;
    name.chars()
        .all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char))
        .then(|| name.into())
}

/// Reads the name of a user or a group. Such a name has no character that separates fields of passwd(5).
fn account(value: &DeValue<'_>) -> Option<String> {
    text(value).filter(|name| !name.contains([':', '\n', ','])).map(str::to_owned)
}

fn glob(value: &DeValue<'_>) -> Option<Glob> {
    text(value).map(|text| Glob(text.to_owned()))
}

fn variable(value: &DeValue<'_>) -> Option<Glob> {
    let text = text(value).filter(|text| !text.contains('='))?;
    let name = text.strip_suffix('*').unwrap_or(text);
    (!name.is_empty() && !name.contains('*')).then(|| Glob(text.to_owned()))
}

/// Returns the danger of keeping the variables of a glob.
fn keep_env_warning(glob: &Glob) -> Option<(&'static Message, &'static str)> {
    if glob.is_never_kept() {
        return Some((&commands::KEEP_ENV_DROPPED, "the daemon never keeps it"));
    }
    let (name, is_beginning) = match glob.0.strip_suffix('*') {
        Some(name) => (name.as_bytes(), true),
        None => (glob.0.as_bytes(), false),
    };
    if glob.matches(b"LANGUAGE") {
        return Some((&commands::KEEP_ENV_LANGUAGE, "programs find their messages by LANGUAGE"));
    }
    let text = "some programs use it as a command, or as a file with commands";
    is_command_variable(name, is_beginning).then_some((&commands::KEEP_ENV_COMMAND, text))
}

fn path(value: &DeValue<'_>) -> Option<PathBuf> {
    let path = text(value).filter(|path| !path.ends_with('/'))?;
    let mut names = path.strip_prefix('/')?.split('/');
    names.all(|name| !matches!(name, "" | "." | "..")).then(|| path.into())
}

fn boolean(value: &DeValue<'_>) -> Option<bool> {
    match value {
        DeValue::Boolean(value) => Some(*value),
        _ => None,
    }
}

fn number(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    }
}

fn files(value: &DeValue<'_>) -> Option<u64> {
    number(value).filter(|&files| files >= STREAM_FILES)
}

/// Reads a number with a unit.
fn number_with_unit(value: &DeValue<'_>, units: &[(&str, u64)]) -> Option<u64> {
    let text = text(value)?;
    let at = text.find(|char: char| !char.is_ascii_digit())?;
    let (_, unit) = units.iter().find(|(unit, _)| *unit == &text[at..])?;
    text[..at].parse::<u64>().ok()?.checked_mul(*unit).filter(|&value| value > 0)
}

fn size(value: &DeValue<'_>) -> Option<u64> {
    number(value).filter(|&bytes| bytes > 0).or_else(|| {
        number_with_unit(value, &[("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)])
    })
}

fn duration(value: &DeValue<'_>) -> Option<Duration> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    number_with_unit(value, &units).map(Duration::from_millis)
}

fn seconds(value: &DeValue<'_>) -> Option<Duration> {
    duration(value).filter(|duration| duration.subsec_nanos() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::man_pages::EXEC_TOML;
    use roster_cli_docs::{TextBlock, man_sections};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn parse(text: &str) -> Result<ExecPolicy, Vec<Diagnostic>> {
        ExecPolicy::parse(Path::new("exec.toml"), text)
    }

    #[test]
    fn every_key_of_the_page_is_read() {
        let page = include_str!("../../../../../docs/internals/exec-protocol.md");
        let start = page.find("```toml host\n").unwrap() + 13;
        let example = &page[start..start + page[start..].find("```").unwrap()];
        let policy = parse(example).unwrap();
        let rule = &policy.rules[0];
        assert_eq!((rule.name.as_str(), rule.line), ("restart-web", 1));
        assert_eq!((rule.users.len(), rule.groups.len(), rule.args.len()), (2, 1, 2));
        assert_eq!((rule.run_as.as_str(), rule.run_as_group.as_deref()), ("root", Some("adm")));
        assert_eq!(rule.timeout, Some(Duration::from_secs(30)));
        let limits = RuleLimits {
            files: Some(1024),
            memory: Some(1 << 30),
            cpu: Some(Duration::from_secs(10)),
        };
        assert_eq!((rule.limits, rule.any_args), (limits, false));
        assert!(parse("").unwrap().rules.is_empty());
    }

    #[test]
    fn every_key_is_in_the_manual() {
        let unknown = parse("[[rule]]\nother = 1").unwrap_err();
        let known = unknown
            .iter()
            .find_map(|problem| problem.fix().strip_prefix("Write one of ")?.strip_suffix('.'));
        let sections = man_sections(EXEC_TOML, "");
        let section = sections.iter().find(|section| section.title == "Keys").unwrap();
        let terms = section.blocks.iter().map(|block| match block {
            TextBlock::Term(key, _) => key.as_str(),
            _ => panic!("{block:?}"),
        });
        let keys: Vec<&str> = terms.collect();
        assert_eq!(known.unwrap().split(", ").collect::<Vec<_>>(), keys);
        let page = include_str!("../../../../../docs/internals/exec-protocol.md");
        for key in keys {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }

    #[test]
    fn every_mistake_has_its_line_and_what_to_write_instead() {
        let problems = parse(
            "[[rule]]\nname = \"a b\"\ncommand = \"bin/../ls\"\nusers = [\"x\", 1]\n\
             args = [\"(\"]\ntimeout = \"30\"\nuser = \"y\"\n\n[[rule]]\n[other]\n",
        )
        .unwrap_err();
        let lines: Vec<usize> = problems.iter().map(|problem| problem.line).collect();
        assert!(
            problems.iter().any(|problem| problem.fix().ends_with("letters, digits, -, _ and .."))
        );
        for line in [1, 2, 3, 4, 5, 6, 7, 9, 10] {
            assert!(lines.contains(&line), "{line}: {problems:#?}");
        }
        assert_eq!(parse("a = ").unwrap_err().len(), 1);
        let two = "[[rule]]\nname = \"a\"\ncommand = \"/a\"\nusers = [\"x\"]\n".repeat(2);
        let duplicate = &parse(&two).unwrap_err()[0];
        assert_eq!(duplicate.message, &commands::EXEC_RULE_NAME_DUPLICATE);
        assert_eq!(duplicate.line, 5);
    }

    #[test]
    fn a_pattern_that_cannot_be_used_is_told_with_its_place_and_why() {
        let rule = "[[rule]]\nname = \"a\"\nusers = [\"x\"]\ncommand = \"/a\"\n";
        assert_eq!(
            parse(&format!("{rule}args = [\n\"ok\",\n\"(\",\n\"a**\"]\n")).unwrap_err().len(),
            2
        );
        let told = parse(&format!("{rule}args = [\n\"ok\",\n\"b)\"]\n")).unwrap_err();
        let told = told[0].to_string();
        let expected = "exec.toml:7: args: pattern \"b)\" has a ) without its (. ";
        assert!(told.starts_with(expected), "{told}");
    }

    #[test]
    fn what_has_no_effect_or_an_odd_one_is_told() {
        let rule = "[[rule]]\nname = \"a\"\nusers = [\"x\"]\ncommand = \"/a\"\n";
        let of = |keys: &str| {
            parse(&format!("{rule}{keys}")).map(|policy| {
                let doubts = policy.warnings(Path::new("exec.toml"));
                // Users and executables depend on the host of the test.
                let of_host = [&commands::RULE_USER_UNKNOWN, &commands::EXECUTABLE_MISSING];
                let told = doubts.iter().filter(|doubt| !of_host.contains(&doubt.message));
                told.map(|doubt| format!("{} {}", doubt.message, doubt.text)).collect::<Vec<_>>()
            })
        };
        assert_eq!(of("keep_env = [\"LC_*\", \"TERM\"]\nmax_files = 4\n"), Ok(vec![]));
        let names = [
            ("LD_PRELOAD", &commands::KEEP_ENV_DROPPED),
            ("PATH", &commands::KEEP_ENV_DROPPED),
            ("PYTHON*", &commands::KEEP_ENV_DROPPED),
            ("LANG*", &commands::KEEP_ENV_LANGUAGE),
            ("LANGUAGE", &commands::KEEP_ENV_LANGUAGE),
            ("DOCKER_HOST", &commands::KEEP_ENV_COMMAND),
            ("KUBE*", &commands::KEEP_ENV_COMMAND),
        ];
        let odd = of(&format!(
            "keep_env = {:?}\nmax_files = 3\n",
            [&names.map(|(name, _)| name)[..], &["LANG", "LC_*"]].concat()
        ));
        let odd = odd.unwrap();
        let max_files = ("max_files", &commands::MAX_FILES_TOO_LOW);
        for (told, (name, message)) in odd.iter().zip(names.iter().chain(&[max_files])) {
            assert!(told.contains(name) && told.starts_with(message.code), "{told}");
        }
        assert_eq!(odd.len(), names.len() + 1);
        let unknown = of("groups = [\"no such group\"]\n").unwrap();
        let [told] = &unknown[..] else { panic!("{unknown:?}") };
        assert!(told.starts_with(commands::RULE_GROUP_UNKNOWN.code), "{told}");
        let args = |pattern: &str| of(&format!("args = ['{pattern}']\n")).unwrap();
        for pattern in ["/srv/www/.*", r"/etc/(?!\.\.).*", "(/a|/srv/www/[a-z./]+)"] {
            let [told] = &args(pattern)[..] else { panic!("{pattern}: {:?}", args(pattern)) };
            assert!(told.starts_with(commands::ARGS_PATH_ELSEWHERE.code), "{told}");
        }
        for pattern in
            ["/srv/www/[a-z]+", "/srv/www/index", ".*", "/.*", r"(?!.*/\.\.(/|$))/srv/www/.*"]
        {
            assert_eq!(args(pattern), [""; 0], "{pattern}");
        }
        let empty = of("hosts = []\n").unwrap_err();
        assert!(empty[0].fix().contains("omit hosts for every host"), "{empty:?}");
        assert_eq!(of("groups = []\n"), Ok(vec![]));
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        let matches = |glob: &str, text: &str| Glob(glob.into()).matches(text.as_bytes());
        for (glob, text) in [
            ("a", "a"),
            ("*", ""),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*b*c", "a-b-b-c"),
            ("a**c", "ac"),
        ] {
            assert!(matches(glob, text), "{glob} {text}");
        }
        for (glob, text) in [("a", "ab"), ("a*a", "a"), ("a*b*c", "ac"), ("", "a"), ("*bc", "cb")] {
            assert!(!matches(glob, text), "{glob} {text}");
        }
    }

    #[test]
    fn exec_toml_mistake_has_code() {
        let rule = |keys: &str| {
            format!("[[rule]]\nname = \"a\"\nusers = [\"x\"]\ncommand = \"/a\"\n{keys}\n")
        };
        for (text, message) in [
            ("a = ", &commands::EXEC_TOML_SYNTAX),
            ("[other]\n", &commands::EXEC_KEY_UNKNOWN),
            (&"[[rule]]\n".repeat(RULES_MAX + 1), &commands::EXEC_RULES_TOO_MANY),
            ("rule = [1]\n", &commands::EXEC_RULE_NOT_TABLE),
            (&rule("other = 1"), &commands::EXEC_RULE_KEY_UNKNOWN),
            ("[[rule]]\nname = \"a\"\nusers = [\"x\"]\n", &commands::EXEC_RULE_KEY_MISSING),
            (&rule("timeout = 3"), &commands::EXEC_RULE_VALUE_INVALID),
            ("[[rule]]\nname = \"a\"\ncommand = \"/a\"\n", &commands::EXEC_RULE_WITHOUT_USERS),
            (&rule("args = ['(']"), &commands::PATTERN_INVALID),
            (&rule("args = ['a{99999999999}']"), &commands::PATTERN_ABORTS),
            (&rule(r"args = ['\N{DIGIT ONE}']"), &commands::PATTERN_UNSUPPORTED),
        ] {
            let problems = parse(text).unwrap_err();
            let [problem] = &problems[..] else { panic!("{message}: {problems:?}") };
            assert_eq!(problem.message, message, "{problem}");
        }
    }

    #[test]
    fn exec_toml_unusable_file_has_code() {
        let folder = tempfile::tempdir().unwrap();
        let large = vec![b'#'; 1 + usize::try_from(FILE_BYTES_MAX).unwrap()];
        for (name, bytes, mode, message) in [
            ("large", &large[..], 0o600, &commands::POLICY_TOO_LARGE),
            ("latin", b"# \xe9", 0o600, &commands::POLICY_NOT_UTF8),
            ("open", b"", 0o666, &commands::EXEC_TOML_UNTRUSTED),
        ] {
            let file = folder.path().join(name);
            std::fs::write(&file, bytes).unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!(ExecPolicy::load(&file).unwrap_err()[0].message, message, "{name}");
        }
        let missing = ExecPolicy::load(&folder.path().join("missing")).unwrap_err();
        assert_eq!(missing[0].message, &commands::EXEC_TOML_UNREADABLE);
    }
}
