// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parsing of filter files as in oslo.rootwrap, with file and line of each rule. [`evaluate`](mod@crate::evaluate)
//! matches them.

use crate::diagnostic::{error, warning};
use crate::ini::{self, DuplicateHandling, IniEntry};
use crate::mode::Mode;
use crate::pattern::Pattern;
use crate::python_strings;
use roster_messages::table::commands;
use roster_messages::{Diagnostic, Message};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct FilterRule {
    /// The name in the file, in lower case.
    pub name: String,
    /// The position in a file. `None` for the built-in rule.
    pub location: Option<SourceLocation>,
    /// The class with its arguments.
    pub class: FilterClass,
    /// The executable: a path, or a name for `exec_dirs`.
    pub exec_path: String,
    /// The user that the command runs as.
    pub run_as: String,
    /// The reason for which its file is not trusted. Strict mode ignores such a rule.
    pub distrust: Option<String>,
}

/// The position of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// The filter file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

/// A class of filters, with the arguments behind executable and user.
#[derive(Debug)]
pub enum FilterClass {
    /// Matches the name of the command, with any arguments.
    Command,
    /// A pattern for each argument, the command's name first.
    RegExp(Vec<Pattern>),
    /// Has `pass`, a word, or a directory for each argument.
    Path(Vec<String>),
    /// Sends a signal to processes of one executable. The arguments are the executable and the signals. oslo.rootwrap
    /// accepts a rule without the executable, and aborts when it uses the rule.
    Kill(Vec<String>),
    ReadFile(String),
    /// Allows ip(8), except its ways to run commands.
    Ip,
    /// Sets variables before the command: `NAME=…`, and possibly the command.
    Env(Vec<String>),
    /// The base class of the next two, which never matches.
    Chaining,
    /// `ip netns exec NAMESPACE` before a command that another rule allows.
    IpNetnsExec,
    /// A pattern for each argument before a command that another rule allows.
    ChainingRegExp(Vec<Pattern>),
}

impl FilterClass {
    /// Returns the name in filter files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Command => "CommandFilter",
            Self::RegExp(_) => "RegExpFilter",
            Self::Path(_) => "PathFilter",
            Self::Kill(_) => "KillFilter",
            Self::ReadFile(_) => "ReadFileFilter",
            Self::Ip => "IpFilter",
            Self::Env(_) => "EnvFilter",
            Self::Chaining => "ChainingFilter",
            Self::IpNetnsExec => "IpNetnsExecFilter",
            Self::ChainingRegExp(_) => "ChainingRegExpFilter",
        }
    }

    /// Returns true if the rest of the command is evaluated again.
    #[must_use]
    pub fn is_chaining(&self) -> bool {
        matches!(self, Self::Chaining | Self::IpNetnsExec | Self::ChainingRegExp(_))
    }

    /// Returns the patterns.
    #[must_use]
    pub fn patterns(&self) -> &[Pattern] {
        match self {
            Self::RegExp(patterns) | Self::ChainingRegExp(patterns) => patterns,
            _ => &[],
        }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

impl fmt::Display for FilterRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Some(place) => write!(f, "{place}: {} ({})", self.name, self.class.name()),
            None => write!(f, "built in: {} ({})", self.name, self.class.name()),
        }
    }
}

/// Returns the built-in rule of compat mode, which comes last.
pub(crate) fn privsep_helper() -> FilterRule {
    FilterRule {
        name: "privsep-helper".into(),
        location: None,
        class: FilterClass::Command,
        exec_path: "privsep-helper".into(),
        run_as: "root".into(),
        distrust: None,
    }
}

/// Parses a file. Returns its rules and warnings, or all mistakes at which oslo.rootwrap aborts.
pub(crate) fn parse(
    file: &Path,
    bytes: &[u8],
) -> Result<(Vec<FilterRule>, Vec<Diagnostic>), Vec<Diagnostic>> {
    let ini = ini::parse(file, bytes, DuplicateHandling::LastWins)?;
    let Some(entries) = ini.items("Filters") else {
        let text = "no section [Filters]";
        return Err(vec![error(&commands::FILTERS_SECTION_MISSING, file, 0, text)]);
    };
    let (mut rules, mut warnings, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for entry in entries {
        let IniEntry { name, value, line } = entry;
        let words: Vec<&str> = value.split(',').map(python_strings::strip).collect();
        match parse_definition(&words) {
            Ok((class, exec_path, run_as)) => {
                for pattern in class.patterns() {
                    if let Some(fault) = pattern.fault(Mode::Compat) {
                        let text = format!("pattern {:?} {fault}", pattern.text());
                        let problem = warning(fault.message(), file, line, text);
                        warnings.push(Diagnostic { key: name.clone(), ..problem });
                    }
                }
                let place = Some(SourceLocation { file: file.to_owned(), line });
                rules.push(FilterRule {
                    name,
                    location: place,
                    class,
                    exec_path,
                    run_as,
                    distrust: None,
                });
            }
            Err(DefinitionError::Class(class)) => {
                let text = format!("unknown class {class:?}, so the filter is ignored");
                let problem = warning(&commands::FILTER_CLASS_UNKNOWN, file, line, text);
                warnings.push(Diagnostic { key: name, ..problem });
            }
            Err(DefinitionError::Other(message, text, fix)) => {
                errors.push(Diagnostic { key: name, fix, ..error(message, file, line, text) });
            }
        }
    }
    if errors.is_empty() { Ok((rules, warnings)) } else { Err(errors) }
}

enum DefinitionError<'w> {
    Class(&'w str),
    /// An error with its text, and its fix if that has values.
    Other(&'static Message, String, Option<String>),
}

fn parse_definition<'w>(
    words: &[&'w str],
) -> Result<(FilterClass, String, String), DefinitionError<'w>> {
    let (class, words) = words.split_first().ok_or(DefinitionError::Class(""))?;
    if !is_known(class) {
        return Err(DefinitionError::Class(class));
    }
    if words.iter().any(|word| word.contains('\0')) {
        return Err(DefinitionError::Other(&commands::FILTER_NUL, "contains a NUL".into(), None));
    }
    let least = |count: usize, form: &str| {
        if words.len() >= count {
            return Ok(());
        }
        let (text, fix) = (format!("{class} lacks arguments"), format!("Write {class}, {form}."));
        Err(DefinitionError::Other(&commands::FILTER_ARGUMENTS_MISSING, text, Some(fix)))
    };
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    match *class {
        "KillFilter" => {
            least(1, "USER, EXECUTABLE, SIGNAL…")?;
            return Ok((
                FilterClass::Kill(owned(&words[1..])),
                "/bin/kill".into(),
                words[0].into(),
            ));
        }
        "ReadFileFilter" => {
            least(1, "FILE")?;
            return Ok((FilterClass::ReadFile(words[0].into()), "/bin/cat".into(), "root".into()));
        }
        _ => least(2, "EXECUTABLE, USER, …")?,
    }
    let (mut exec_path, run_as, rest) = (words[0].to_owned(), words[1].to_owned(), &words[2..]);
    let patterns = || rest.iter().map(|text| Pattern::new(text)).collect::<Vec<_>>();
    let class = match *class {
        "CommandFilter" => FilterClass::Command,
        "RegExpFilter" => FilterClass::RegExp(patterns()),
        "PathFilter" => FilterClass::Path(owned(rest)),
        "IpFilter" => FilterClass::Ip,
        "ChainingFilter" => FilterClass::Chaining,
        "IpNetnsExecFilter" => FilterClass::IpNetnsExec,
        "ChainingRegExpFilter" => FilterClass::ChainingRegExp(patterns()),
        // The class is EnvFilter.
        _ => {
            // The executable of `EnvFilter, env, root, A=, ls` is ls.
            let names = setting_names(rest.iter().map(|word| word.as_bytes()));
            if let Some(command) = rest.get(names.len()).filter(|_| exec_path.contains("env")) {
                exec_path = (*command).to_owned();
            }
            FilterClass::Env(owned(rest))
        }
    };
    Ok((class, exec_path, run_as))
}

/// Returns the names of leading `NAME=…` words.
pub(crate) fn setting_names<'w>(words: impl Iterator<Item = &'w [u8]>) -> BTreeSet<&'w [u8]> {
    words.map_while(|word| Some(&word[..word.iter().position(|&byte| byte == b'=')?])).collect()
}

fn is_known(class: &str) -> bool {
    const CLASSES: [&str; 10] = [
        "CommandFilter",
        "RegExpFilter",
        "PathFilter",
        "KillFilter",
        "ReadFileFilter",
        "IpFilter",
        "EnvFilter",
        "ChainingFilter",
        "IpNetnsExecFilter",
        "ChainingRegExpFilter",
    ];
    CLASSES.contains(&class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<FilterRule> {
        parse(Path::new("f"), format!("[Filters]\n{text}").as_bytes()).unwrap().0
    }

    #[test]
    fn a_rule_keeps_its_place_and_its_words_without_the_spaces_around_them() {
        let rules = rules("# no\nLs: CommandFilter , /bin/ls,\n   nova\n");
        let rule = &rules[0];
        assert_eq!(rule.to_string(), "f:3: ls (CommandFilter)");
        assert_eq!((&*rule.exec_path, &*rule.run_as), ("/bin/ls", "nova"));
    }

    #[test]
    fn an_unknown_class_is_passed_over_with_a_warning() {
        let text = "[Filters]\na: DnsmasqFilter, /x, root\nb:\nc: CommandFilter, /c, root\n";
        let (rules, warnings) = parse(Path::new("f"), text.as_bytes()).unwrap();
        assert_eq!((rules.len(), warnings.len()), (1, 2));
        assert!(warnings[0].to_string().starts_with(
            "f:2: warning: a: unknown class \"DnsmasqFilter\", so the filter is ignored. Write one"
        ));
    }

    #[test]
    fn too_few_arguments_are_an_error() {
        let wrong = |rule: &str| {
            let text = format!("[Filters]\nx: {rule}\n");
            parse(Path::new("f"), text.as_bytes())
                .map(|_| ())
                .map_err(|errors| errors[0].to_string())
        };
        let code = commands::FILTER_ARGUMENTS_MISSING.code;
        let expected = "f:2: x: IpFilter lacks arguments. Write IpFilter, EXECUTABLE, USER, ….";
        assert_eq!(wrong("IpFilter, ip"), Err(format!("{expected} [{code}]")));
        assert!(wrong("KillFilter").is_err() && wrong("ReadFileFilter").is_err());
        assert!(wrong("KillFilter, root").is_ok() && wrong("ReadFileFilter, /x, y").is_ok());
        assert!(parse(Path::new("f"), b"[filters]\n").is_err());
    }

    #[test]
    fn an_env_rule_leads_to_the_command_behind_its_settings() {
        let rules = rules(
            "a: EnvFilter, env, root, A=, B=1, ls, x\nb: EnvFilter, ls, root, A=\n\
             c: EnvFilter, /usr/bin/env, root, A=\n",
        );
        let paths: Vec<_> = rules.iter().map(|rule| &*rule.exec_path).collect();
        assert_eq!(paths, ["ls", "ls", "/usr/bin/env"]);
    }

    #[test]
    fn filter_mistake_has_code() {
        for (text, message) in [
            ("[filters]\n", &commands::FILTERS_SECTION_MISSING),
            ("[Filters]\nx: CommandFilter, l\0s, root\n", &commands::FILTER_NUL),
            ("[Filters]\nx: ReadFileFilter\n", &commands::FILTER_ARGUMENTS_MISSING),
        ] {
            let errors = parse(Path::new("f"), text.as_bytes()).unwrap_err();
            let [error] = &errors[..] else { panic!("{text:?}: {errors:?}") };
            assert_eq!(error.message, message, "{text:?}");
        }
        for (rule, message) in [
            ("NoFilter, ls, root", &commands::FILTER_CLASS_UNKNOWN),
            ("RegExpFilter, ls, root, (", &commands::PATTERN_INVALID),
            ("RegExpFilter, ls, root, a{99999999999}", &commands::PATTERN_ABORTS),
            (r"ChainingRegExpFilter, ls, root, \N{DIGIT ONE}", &commands::PATTERN_UNSUPPORTED),
        ] {
            let text = format!("[Filters]\nx: {rule}\n");
            let (_, warnings) = parse(Path::new("f"), text.as_bytes()).unwrap();
            let [warning] = &warnings[..] else { panic!("{rule}: {warnings:?}") };
            assert_eq!(warning.message, message, "{rule}");
        }
    }
}
