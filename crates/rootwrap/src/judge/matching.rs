//! Class by class, whether a rule matches the words of a command.

use super::{
    Case, Kill, Mode, Unresolved, Why, command_of, ip, is_dangerous, is_sound, kill,
    names_of_settings,
};
use crate::conf::os;
use crate::filters::{Class, Rule};
use crate::paths::realpath;
use crate::pattern::{NoAnswer, Pattern};
use crate::python::{basename, is_absolute};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

impl Case<'_> {
    /// `Ok`: it does; with what a kill(1) is to do, if strict mode is to do it.
    pub(super) fn matches(&self, rule: &Rule, words: &mut &[&OsStr]) -> Result<Option<Kill>, Why> {
        if let Class::Env(settings) = &rule.class {
            return self.env(rule, settings, words).map(|()| None);
        }
        let words = *words;
        match &rule.class {
            Class::Command => command(rule, words)?,
            Class::Chaining => command(rule, words).and(Err(Why::Never))?,
            Class::RegExp(patterns) => self.patterns(patterns, words, true)?,
            Class::ChainingRegExp(patterns) => self.prefix(patterns, words)?,
            Class::Path(arguments) => self.path(rule, arguments, words)?,
            Class::Kill(arguments) => return kill::matches(self, arguments, words),
            Class::ReadFile(file) => match words {
                [cat, name] if *cat == "cat" && *name == file.as_str() => {}
                [cat, _] if *cat == "cat" => return Err(Why::Argument(2)),
                [cat, ..] if *cat == "cat" => return Err(Why::ArgumentCount(2)),
                _ => return Err(Why::OtherCommand),
            },
            Class::Ip => match self.mode {
                Mode::Compat => ip::compat(words)?,
                Mode::Strict => ip::strict(words)?,
            },
            Class::IpNetnsExec => self.netns(rule, words)?,
            // Above.
            Class::Env(_) => {}
        }
        Ok(None)
    }

    /// `whole`: a pattern for every word.
    fn patterns(&self, patterns: &[Pattern], words: &[&OsStr], whole: bool) -> Result<(), Why> {
        if words.is_empty() {
            return Err(Why::OtherCommand);
        }
        if whole && patterns.len() != words.len() || patterns.len() > words.len() {
            return Err(Why::ArgumentCount(patterns.len()));
        }
        for (at, (pattern, word)) in (1..).zip(patterns.iter().zip(words)) {
            match pattern.matches(self.mode, word, &self.work) {
                Ok(true) => {}
                Ok(false) => return Err(Why::Argument(at)),
                Err(NoAnswer::Fault(fault)) => return Err(Why::Pattern(at, fault)),
                Err(NoAnswer::TooCostly(bound)) => return Err(Why::TooCostly(at, bound)),
            }
        }
        Ok(())
    }

    fn prefix(&self, patterns: &[Pattern], words: &[&OsStr]) -> Result<(), Why> {
        // Without a pattern it would put any command behind its executable.
        if self.mode == Mode::Strict && patterns.is_empty() {
            return Err(Why::Never);
        }
        self.patterns(patterns, words, false)
    }

    fn path(&self, rule: &Rule, arguments: &[String], words: &[&OsStr]) -> Result<(), Why> {
        command(rule, words)?;
        if words.len() < 2 || words.len() - 1 != arguments.len() {
            return Err(Why::ArgumentCount(arguments.len() + 1));
        }
        for (at, (argument, word)) in (2..).zip(arguments.iter().zip(&words[1..])) {
            self.path_argument(at, argument, word)?;
        }
        Ok(())
    }

    /// A word as a PathFilter hands it on, if the filter's argument lets it through.
    pub(super) fn path_argument(
        &self,
        at: usize,
        argument: &str,
        word: &OsStr,
    ) -> Result<OsString, Why> {
        if !is_absolute(argument.as_bytes()) {
            let matches = argument == "pass" || *word == *argument;
            return if matches { Ok(word.to_owned()) } else { Err(Why::Argument(at)) };
        }
        let real = realpath(self.facts, word);
        match (self.mode, real.unresolved) {
            // The original goes by the path with the link to itself in it.
            (_, None) | (Mode::Compat, Some(Unresolved::Loop)) => {}
            (_, Some(why)) => return Err(Why::Unresolved(at, why)),
        }
        let within = match self.mode {
            Mode::Compat => real.path.starts_with(argument.as_bytes()),
            Mode::Strict => is_within(argument.as_bytes(), &real.path),
        };
        if within { Ok(os(real.path)) } else { Err(Why::OutOfFolder(at, os(real.path))) }
    }

    fn env(&self, rule: &Rule, settings: &[String], words: &mut &[&OsStr]) -> Result<(), Why> {
        if words.is_empty() {
            return Err(Why::OtherCommand);
        }
        if let Some((first, rest)) = words.split_first()
            && *first == "env"
        {
            *words = rest;
        }
        if words.len() < settings.len() {
            return Err(Why::Settings);
        }
        let of_words = names_of_settings(words.iter().map(|word| word.as_bytes()));
        let of_rule = names_of_settings(settings.iter().map(String::as_bytes));
        // Counted by names, so that a name that is set twice puts the second in the command's place.
        command(rule, words.get(of_words.len()..).unwrap_or_default())?;
        if of_rule.is_empty() || of_rule != of_words {
            return Err(Why::Settings);
        }
        match self.mode {
            Mode::Compat => Ok(()),
            Mode::Strict => strict_settings(settings, words, of_words.len()),
        }
    }

    fn netns(&self, rule: &Rule, words: &[&OsStr]) -> Result<(), Why> {
        if rule.run_as != "root" {
            return Err(Why::NotRoot);
        }
        let [ip, netns, exec, namespace, ..] = words else {
            return Err(if words.first().is_some_and(|word| *word == "ip") {
                Why::NoRest
            } else {
                Why::OtherCommand
            });
        };
        if *ip != "ip" || !ip::is_netns(netns) || !ip::is_exec(exec) {
            return Err(Why::OtherCommand);
        }
        let name = namespace.as_bytes();
        let odd = name.is_empty() || name.starts_with(b"-") || name == b"." || name == b"..";
        if self.mode == Mode::Strict && (odd || name.contains(&b'/')) {
            return Err(Why::Namespace);
        }
        Ok(())
    }
}

/// Whether the first words set what the rule's settings do, to values that it names or that a caller may choose.
fn strict_settings(of_rule: &[String], words: &[&OsStr], names: usize) -> Result<(), Why> {
    let settings = words.len() - command_of(words).len();
    if settings != names {
        return Err(Why::Settings);
    }
    for word in &words[..settings] {
        let word = word.as_bytes();
        let at = word.iter().position(|&byte| byte == b'=').unwrap_or(word.len());
        let (name, value) = (&word[..at], word.get(at + 1..).unwrap_or_default());
        if is_dangerous(name) || name == b"PATH" {
            return Err(Why::DangerousSetting(os(name.to_vec())));
        }
        let is_free = |setting: &[u8]| setting.strip_prefix(name) == Some(b"=");
        if !of_rule.iter().any(|setting| setting.as_bytes() == word || is_free(setting.as_bytes()))
        {
            return Err(Why::Settings);
        }
        if !is_sound(name, value) {
            return Err(Why::UnsoundSetting(os(name.to_vec())));
        }
    }
    Ok(())
}

/// The first word is the rule's executable, by path or by name.
fn command(rule: &Rule, words: &[&OsStr]) -> Result<(), Why> {
    let path = OsStr::new(&rule.exec_path);
    match words.first() {
        Some(first) if *first == path || *first == basename(path) => Ok(()),
        _ => Err(Why::OtherCommand),
    }
}

/// The folder itself, or something in it. No path of a working directory that is gone is.
fn is_within(folder: &[u8], path: &[u8]) -> bool {
    let end = folder.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let behind = path.strip_prefix(&folder[..end]);
    let is_below = |behind: &[u8]| behind.is_empty() || behind.starts_with(b"/");
    is_absolute(path) && behind.is_some_and(is_below)
}
