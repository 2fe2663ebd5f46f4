//! Commands that show what a rule lets run: made out of the rule, and to be tried.

use super::PID;
use crate::filters::{Class, Rule};
use crate::judge::names_of_settings;
use crate::python::{basename, is_absolute};
use std::ffi::{OsStr, OsString};

/// Commands that are tried of one rule.
const TRIES_MAX: usize = 400;
/// Rules that are tried behind one that chains.
const LEAVES_MAX: usize = 20;

/// Of a rule among others, some of which it may chain.
pub(super) fn of_rule(rule: &Rule, rules: &[&Rule]) -> Vec<Vec<OsString>> {
    let mut leaves = Vec::new();
    if rule.class.is_chaining() {
        let all = rules.iter().copied();
        let all = all.filter(|leaf| leaf.run_as == rule.run_as && !leaf.class.is_chaining());
        leaves.extend(all.take(LEAVES_MAX));
    }
    let mut commands = commands(rule, &leaves);
    commands.truncate(TRIES_MAX);
    commands
}

/// Commands that the rule matches or nearly matches, those first that show most.
fn commands(rule: &Rule, leaves: &[&Rule]) -> Vec<Vec<OsString>> {
    let name = basename(OsStr::new(&rule.exec_path)).to_owned();
    match &rule.class {
        Class::Command | Class::Chaining => vec![vec![name]],
        Class::RegExp(patterns) => {
            variants(&patterns.iter().map(crate::pattern::Pattern::samples).collect::<Vec<_>>())
        }
        Class::Path(arguments) => {
            let plain: Vec<String> = arguments
                .iter()
                .map(|argument| match &**argument {
                    "pass" => "x".into(),
                    path if is_absolute(path.as_bytes()) => format!("{}/x", without_slash(path)),
                    word => word.to_owned(),
                })
                .collect();
            let mut all = Vec::new();
            for (at, argument) in arguments.iter().enumerate() {
                if is_absolute(argument.as_bytes()) {
                    for other in [format!("{}-evil/x", without_slash(argument)), argument.clone()] {
                        all.push([&plain[..at], &[other], &plain[at + 1..]].concat());
                    }
                }
            }
            all.push(plain);
            let command = |words: Vec<String>| {
                [name.clone()].into_iter().chain(words.into_iter().map(OsString::from)).collect()
            };
            all.into_iter().map(command).collect()
        }
        Class::Kill(arguments) => {
            let signal = arguments.get(1).map(OsString::from);
            let kill = |pid: String| {
                [Some("kill".into()), signal.clone(), Some(pid.into())]
                    .into_iter()
                    .flatten()
                    .collect()
            };
            vec![kill(format!("+{PID}")), kill(PID.to_string())]
        }
        Class::ReadFile(file) => vec![vec!["cat".into(), file.into()]],
        Class::Ip => vec![
            vec!["ip".into(), "-batch".into(), "FILE".into()],
            vec!["ip".into(), "link".into()],
        ],
        Class::Env(settings) => {
            let names = names_of_settings(settings.iter().map(String::as_bytes));
            let command = |value: &[u8]| {
                let setting = |name: &&[u8]| crate::conf::os([name, &b"="[..], value].concat());
                let mut words: Vec<OsString> = names.iter().map(setting).collect();
                words.push(name.clone());
                // The command needs at least as many words as the rule.
                while words.len() < settings.len() {
                    words.push("x".into());
                }
                words
            };
            let mut commands = vec![command(b"x"), command(b"/x")];
            // With the values that the rule names.
            let mut plain: Vec<OsString> = settings.iter().map(OsString::from).collect();
            plain.truncate(names.len());
            plain.push(name);
            plain.extend(settings.iter().skip(plain.len()).map(|_| "x".into()));
            commands.push(plain);
            commands
        }
        Class::IpNetnsExec => {
            behind(&[vec!["ip".into(), "netns".into(), "exec".into(), "NAMESPACE".into()]], leaves)
        }
        Class::ChainingRegExp(patterns) => {
            let samples: Vec<_> = patterns.iter().map(crate::pattern::Pattern::samples).collect();
            let prefixes = if samples.is_empty() { vec![Vec::new()] } else { variants(&samples) };
            behind(&prefixes, leaves)
        }
    }
}

fn without_slash(path: &str) -> &str {
    path.trim_end_matches('/')
}

/// Words out of the samples of each, and the same with one word that goes on behind its sample.
fn variants(samples: &[Vec<String>]) -> Vec<Vec<OsString>> {
    let plain: Vec<OsString> = samples
        .iter()
        .map(|samples| samples.first().map(OsString::from).unwrap_or_default())
        .collect();
    let mut all = Vec::new();
    for behind in [" and more", "x", "", "\n"] {
        for (at, samples) in samples.iter().enumerate() {
            for sample in samples {
                let mut words = plain.clone();
                words[at] = format!("{sample}{behind}").into();
                all.push(words);
            }
        }
    }
    all
}

/// Commands of other rules behind prefixes: first by a path that is not the rule's.
fn behind(prefixes: &[Vec<OsString>], leaves: &[&Rule]) -> Vec<Vec<OsString>> {
    let mut inner: Vec<Vec<OsString>> =
        leaves.iter().filter_map(|leaf| commands(leaf, &[]).pop()).collect();
    let elsewhere = inner.iter().filter_map(|command| {
        let (first, rest) = command.split_first()?;
        let mut path = OsString::from("/tmp/");
        path.push(first);
        Some([&[path], rest].concat())
    });
    let elsewhere: Vec<_> = elsewhere.collect();
    inner.splice(0..0, elsewhere);
    let whole = inner
        .iter()
        .flat_map(|command| prefixes.iter().map(move |prefix| [&prefix[..], command].concat()));
    whole.take(TRIES_MAX).collect()
}
