// SPDX-License-Identifier: MIT OR Apache-2.0
//! The match of a rule with the words of a command, for each class of filters. `kill_command` and `ip_command` parse
//! the commands of two classes. The parent module decides.

use super::{
    Evaluation, KillRequest, MismatchReason, ResolveError, ip_command, is_dangerous, is_safe_value,
    kill_command, skip_settings,
};
use crate::filters::{FilterClass, FilterRule, setting_names};
use crate::mode::Mode;
use crate::pattern::{MatchError, Pattern};
use crate::python_strings::{basename, is_absolute, os_string};
use crate::realpath::realpath;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

impl Evaluation<'_> {
    /// Returns the signal to send if strict mode executes a kill(1) itself.
    pub(super) fn matches(
        &self,
        rule: &FilterRule,
        words: &mut &[&OsStr],
    ) -> Result<Option<KillRequest>, MismatchReason> {
        if let FilterClass::Env(settings) = &rule.class {
            return self.match_env(rule, settings, words).map(|()| None);
        }
        let words = *words;
        match &rule.class {
            FilterClass::Command => match_command(rule, words)?,
            FilterClass::Chaining => match_command(rule, words).and(Err(MismatchReason::Never))?,
            FilterClass::RegExp(patterns) => self.match_patterns(patterns, words, true)?,
            FilterClass::ChainingRegExp(patterns) => self.match_prefix(patterns, words)?,
            FilterClass::Path(arguments) => self.match_path(rule, arguments, words)?,
            FilterClass::Kill(arguments) => return kill_command::matches(self, arguments, words),
            FilterClass::ReadFile(file) => match words {
                [cat, name] if *cat == "cat" && *name == file.as_str() => {}
                [cat, _] if *cat == "cat" => return Err(MismatchReason::Argument(2)),
                [cat, ..] if *cat == "cat" => return Err(MismatchReason::ArgumentCount(2)),
                _ => return Err(MismatchReason::OtherCommand),
            },
            FilterClass::Ip => match self.mode {
                Mode::Compat => ip_command::compat(words)?,
                Mode::Strict => ip_command::strict(words)?,
            },
            FilterClass::IpNetnsExec => self.match_netns(rule, words)?,
            // Handled above.
            FilterClass::Env(_) => {}
        }
        Ok(None)
    }

    /// `whole`: each word needs a pattern.
    fn match_patterns(
        &self,
        patterns: &[Pattern],
        words: &[&OsStr],
        whole: bool,
    ) -> Result<(), MismatchReason> {
        if words.is_empty() {
            return Err(MismatchReason::OtherCommand);
        }
        if whole && patterns.len() != words.len() || patterns.len() > words.len() {
            return Err(MismatchReason::ArgumentCount(patterns.len()));
        }
        for (at, (pattern, word)) in (1..).zip(patterns.iter().zip(words)) {
            match pattern.matches(self.mode, word, &self.budget) {
                Ok(true) => {}
                Ok(false) => return Err(MismatchReason::Argument(at)),
                Err(MatchError::Fault(fault)) => return Err(MismatchReason::Pattern(at, fault)),
                Err(MatchError::Limit(bound)) => return Err(MismatchReason::MatchLimit(at, bound)),
            }
        }
        Ok(())
    }

    fn match_prefix(&self, patterns: &[Pattern], words: &[&OsStr]) -> Result<(), MismatchReason> {
        // Without patterns the rule would chain any command.
        if self.mode == Mode::Strict && patterns.is_empty() {
            return Err(MismatchReason::Never);
        }
        self.match_patterns(patterns, words, false)
    }

    fn match_path(
        &self,
        rule: &FilterRule,
        arguments: &[String],
        words: &[&OsStr],
    ) -> Result<(), MismatchReason> {
        match_command(rule, words)?;
        if words.len() < 2 || words.len() - 1 != arguments.len() {
            return Err(MismatchReason::ArgumentCount(arguments.len() + 1));
        }
        for (at, (argument, word)) in (2..).zip(arguments.iter().zip(&words[1..])) {
            self.path_argument(at, argument, word)?;
        }
        Ok(())
    }

    /// Returns the word that a PathFilter passes on, if its argument allows the word.
    pub(super) fn path_argument(
        &self,
        at: usize,
        argument: &str,
        word: &OsStr,
    ) -> Result<OsString, MismatchReason> {
        if !is_absolute(argument.as_bytes()) {
            let matches = argument == "pass" || *word == *argument;
            return if matches { Ok(word.to_owned()) } else { Err(MismatchReason::Argument(at)) };
        }
        let real = realpath(self.facts, word);
        match (self.mode, real.error) {
            // oslo.rootwrap uses the path that contains the loop.
            (_, None) | (Mode::Compat, Some(ResolveError::Loop)) => {}
            (_, Some(why)) => return Err(MismatchReason::Unresolved(at, why)),
        }
        let within = match self.mode {
            Mode::Compat => real.path.starts_with(argument.as_bytes()),
            Mode::Strict => is_within(argument.as_bytes(), &real.path),
        };
        if within {
            Ok(os_string(real.path))
        } else {
            Err(MismatchReason::OutsideDirectory(at, os_string(real.path)))
        }
    }

    fn match_env(
        &self,
        rule: &FilterRule,
        settings: &[String],
        words: &mut &[&OsStr],
    ) -> Result<(), MismatchReason> {
        if words.is_empty() {
            return Err(MismatchReason::OtherCommand);
        }
        if let Some((first, rest)) = words.split_first()
            && *first == "env"
        {
            *words = rest;
        }
        if words.len() < settings.len() {
            return Err(MismatchReason::Settings);
        }
        let of_words = setting_names(words.iter().map(|word| word.as_bytes()));
        let of_rule = setting_names(settings.iter().map(String::as_bytes));
        // Names are counted once. A name that is set twice therefore shifts the position of the command.
        match_command(rule, words.get(of_words.len()..).unwrap_or_default())?;
        if of_rule.is_empty() || of_rule != of_words {
            return Err(MismatchReason::Settings);
        }
        match self.mode {
            Mode::Compat => Ok(()),
            Mode::Strict => check_strict_settings(settings, words, of_words.len()),
        }
    }

    fn match_netns(&self, rule: &FilterRule, words: &[&OsStr]) -> Result<(), MismatchReason> {
        if rule.run_as != "root" {
            return Err(MismatchReason::NotRoot);
        }
        let [ip, netns, exec, namespace, ..] = words else {
            return Err(if words.first().is_some_and(|word| *word == "ip") {
                MismatchReason::NoChainedCommand
            } else {
                MismatchReason::OtherCommand
            });
        };
        if *ip != "ip" || !ip_command::is_netns(netns) || !ip_command::is_exec(exec) {
            return Err(MismatchReason::OtherCommand);
        }
        if self.mode == Mode::Strict && !ip_command::is_namespace(namespace) {
            return Err(MismatchReason::Namespace);
        }
        Ok(())
    }
}

/// Checks that the first words set the variables of the rule, to values of the rule or to harmless ones.
fn check_strict_settings(
    of_rule: &[String],
    words: &[&OsStr],
    names: usize,
) -> Result<(), MismatchReason> {
    let settings = words.len() - skip_settings(words).len();
    if settings != names {
        return Err(MismatchReason::Settings);
    }
    for word in &words[..settings] {
        let word = word.as_bytes();
        let at = word.iter().position(|&byte| byte == b'=').unwrap_or(word.len());
        let (name, value) = (&word[..at], word.get(at + 1..).unwrap_or_default());
        if is_dangerous(name) || name == b"PATH" {
            return Err(MismatchReason::DangerousSetting(os_string(name.to_vec())));
        }
        let is_free = |setting: &[u8]| setting.strip_prefix(name) == Some(b"=");
        if !of_rule.iter().any(|setting| setting.as_bytes() == word || is_free(setting.as_bytes()))
        {
            return Err(MismatchReason::Settings);
        }
        if !is_safe_value(name, value) {
            return Err(MismatchReason::UnsoundSetting(os_string(name.to_vec())));
        }
    }
    Ok(())
}

/// Checks that the first word is the executable of the rule, by path or by name.
fn match_command(rule: &FilterRule, words: &[&OsStr]) -> Result<(), MismatchReason> {
    let path = OsStr::new(&rule.exec_path);
    match words.first() {
        Some(first) if *first == path || *first == basename(path) => Ok(()),
        _ => Err(MismatchReason::OtherCommand),
    }
}

/// Returns true for the directory and paths in it. A path of a removed working directory is not in it.
fn is_within(folder: &[u8], path: &[u8]) -> bool {
    let end = folder.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let behind = path.strip_prefix(&folder[..end]);
    let is_below = |behind: &[u8]| behind.is_empty() || behind.starts_with(b"/");
    is_absolute(path) && behind.is_some_and(is_below)
}
