//! Plans: TOML files whose keys are the options of a command.
//!
//! There is no second definition: a plan becomes the arguments that a person would type, and the
//! command line's parser judges them. What it says is told with the file, the line and the key.

use crate::args::{self, Cli, LoadCommand};
use anyhow::{Context, Result, anyhow};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A plan is written by people.
const BYTES_MAX: u64 = 1 << 20;
/// The commands that a plan may have.
const LOADS: [&str; 6] = ["ldap", "dns", "krb5", "nss", "pam", "command"];

/// What `file` says, with `options` in the place of what it says of the same.
pub fn read(file: &Path, options: &[OsString]) -> Result<(LoadCommand, ArgMatches)> {
    let name = file.display();
    let size = fs::metadata(file).with_context(|| format!("cannot read {name}"))?.len();
    anyhow::ensure!(size <= BYTES_MAX, "{name}: is longer than a plan may be");
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    parse(&text, options).map_err(|PlanDiagnostic { offset: place, message: what }| match place {
        Some(place) => anyhow!("{name}:{}: {what}", line(&text, place)),
        None => anyhow!("{what}"),
    })
}

/// What a master of Locust says of a class of users, which has the shape of a plan, with `options` in the
/// place of what it says of the same.
pub fn from_master(told: &Value, options: &[OsString]) -> Result<LoadCommand> {
    let text = toml::to_string(told).context("is not of the shape of a plan")?;
    parse(&text, options)
        .map(|(load, _)| load)
        .map_err(|PlanDiagnostic { message: what, .. }| anyhow!("{what}"))
}

/// What is wrong, and where; nowhere if it is in the options.
#[derive(Debug)]
struct PlanDiagnostic {
    offset: Option<usize>,
    message: String,
}

impl PlanDiagnostic {
    fn at(place: &Range<usize>, what: impl Into<String>) -> Self {
        Self { offset: Some(place.start), message: what.into() }
    }
}

fn line(text: &str, place: usize) -> usize {
    text.as_bytes().iter().take(place).filter(|&&byte| byte == b'\n').count() + 1
}

/// A key and the arguments that it becomes.
struct PlanSetting {
    span: Range<usize>,
    id: String,
    arguments: Vec<OsString>,
}

fn parse(text: &str, options: &[OsString]) -> Result<(LoadCommand, ArgMatches), PlanDiagnostic> {
    let whole = DeTable::parse(text).map_err(|error| {
        let place = error.span().unwrap_or_default();
        PlanDiagnostic::at(&place, error.message())
    })?;
    let program = Cli::command();
    let (command, place, table) = load(&whole, &program)?;
    let mut settings = Vec::new();
    for (key, value) in table {
        settings.push(setting(command, key.get_ref(), &key.span(), value)?);
    }
    // What is typed counts: an option that is there takes the one of the plan away.
    let typed = typed_options(command, options);
    settings.retain(|setting| !typed.contains(&setting.id));
    let (last, first): (Vec<_>, Vec<_>) =
        settings.iter().partition(|setting| is_positional(command, &setting.id));
    let mut arguments: Vec<OsString> = vec![program.get_name().into(), command.get_name().into()];
    first.iter().for_each(|setting| arguments.extend_from_slice(&setting.arguments));
    arguments.extend_from_slice(options);
    last.iter().for_each(|setting| arguments.extend_from_slice(&setting.arguments));
    let parsed = Cli::command().try_get_matches_from(arguments);
    let parsed = parsed.and_then(|matches| match Cli::from_arg_matches(&matches)?.command {
        args::Command::Load(load) => Ok((load, matches)),
        // Its name is one of the loads'.
        _ => Err(clap::Error::new(clap::error::ErrorKind::InvalidSubcommand)),
    });
    parsed.map_err(|error| {
        // Which option it is about is told as it is written: `--users <N>`.
        let named = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(name)) => Some(name.as_str()),
            Some(ContextValue::Strings(names)) => names.first().map(String::as_str),
            _ => None,
        };
        let id = named.and_then(|name| {
            let option = name.split([' ', '=']).next()?.strip_prefix("--")?;
            command.get_arguments().find(|arg| arg.get_long() == Some(option))
        });
        let of_plan =
            id.and_then(|arg| settings.iter().find(|one| one.id == arg.get_id().as_str()));
        let what = parser_message(&error);
        match (of_plan, id) {
            (Some(setting), _) => PlanDiagnostic::at(&setting.span, what),
            (None, Some(arg)) if typed.iter().any(|id| id == arg.get_id().as_str()) => {
                PlanDiagnostic { offset: None, message: what }
            }
            _ => PlanDiagnostic::at(&place, what),
        }
    })
}

/// The one table of the plan.
fn load<'p, 'd, 'i>(
    whole: &'d Spanned<DeTable<'i>>,
    program: &'p Command,
) -> Result<(&'p Command, Range<usize>, &'d DeTable<'i>), PlanDiagnostic> {
    let mut tables: Vec<_> = whole.get_ref().iter().collect();
    // In the order of the file, which the parser does not keep.
    tables.sort_by_key(|(name, _)| name.span().start);
    let mut tables = tables.into_iter();
    let names = LOADS.map(|name| format!("[{name}]")).join(" or ");
    let Some((name, value)) = tables.next() else {
        return Err(PlanDiagnostic::at(&(0..0), format!("has no load: begin with {names}")));
    };
    if let Some((other, _)) = tables.next() {
        let what = format!("{}: a plan has one load, and here is a second", other.get_ref());
        return Err(PlanDiagnostic::at(&other.span(), what));
    }
    let command = LOADS
        .contains(&&**name.get_ref())
        .then(|| program.find_subcommand(&**name.get_ref()))
        .flatten()
        .ok_or_else(|| {
            let what = format!("{}: is no load; begin with {names}", name.get_ref());
            PlanDiagnostic::at(&name.span(), what)
        })?;
    let table = value.get_ref().as_table().ok_or_else(|| {
        PlanDiagnostic::at(
            &name.span(),
            format!("{0}: write [{0}], and its keys below", name.get_ref()),
        )
    })?;
    Ok((command, name.span(), table))
}

fn setting(
    command: &Command,
    key: &str,
    place: &Range<usize>,
    value: &Spanned<DeValue<'_>>,
) -> Result<PlanSetting, PlanDiagnostic> {
    let of_key = |arg: &&Arg| match arg.get_long() {
        Some(long) => long == key,
        None => arg.get_id() == key,
    };
    let not_for_plans = ["help", "version"].contains(&key);
    let found = command.get_arguments().find(of_key).filter(|_| !not_for_plans);
    let Some(arg) = found else {
        let what = match nearest(key, command) {
            Some(near) => format!("{key}: there is no such key; did you mean {near}?"),
            None => {
                format!("{key}: there is no such key; see roster-lab {} --help", command.get_name())
            }
        };
        return Err(PlanDiagnostic::at(place, what));
    };
    let mut arguments: Vec<OsString> = Vec::new();
    let flag = OsString::from(format!("--{key}"));
    match (value.get_ref(), arg.get_action(), arg.get_long()) {
        (DeValue::Boolean(on), ArgAction::SetTrue, _) => {
            arguments.extend(on.then_some(flag));
        }
        (_, ArgAction::SetTrue, _) => {
            return Err(PlanDiagnostic::at(&value.span(), format!("{key}: must be true or false")));
        }
        (DeValue::Array(values), _, None) => {
            arguments.push("--".into());
            for value in values {
                arguments.push(scalar(key, value)?.into());
            }
        }
        (_, _, None) => {
            let what = format!("{key}: must be a list of words, as in [\"id\", \"alice\"]");
            return Err(PlanDiagnostic::at(&value.span(), what));
        }
        (DeValue::Array(values), _, Some(_)) => {
            let values =
                values.iter().map(|value| scalar(key, value)).collect::<Result<Vec<_>, _>>()?;
            arguments.push(format!("--{key}={}", values.join(",")).into());
        }
        _ => arguments.push(format!("--{key}={}", scalar(key, value)?).into()),
    }
    Ok(PlanSetting { span: place.clone(), id: arg.get_id().to_string(), arguments })
}

fn scalar(key: &str, value: &Spanned<DeValue<'_>>) -> Result<String, PlanDiagnostic> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        _ => Err(PlanDiagnostic::at(&value.span(), format!("{key}: must be a number or a string"))),
    }
}

/// The options among what was typed behind the plan.
fn typed_options(command: &Command, options: &[OsString]) -> Vec<String> {
    let longs = options.iter().filter_map(|option| option.to_str()?.strip_prefix("--"));
    let longs = longs.map(|option| option.split('=').next().unwrap_or_default());
    longs
        .filter_map(|long| command.get_arguments().find(|arg| arg.get_long() == Some(long)))
        .map(|arg| arg.get_id().to_string())
        .collect()
}

fn is_positional(command: &Command, id: &str) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == id && arg.get_long().is_none())
}

/// The key that was most likely meant, which the parser knows for options.
fn nearest(key: &str, command: &Command) -> Option<String> {
    let program = Cli::command();
    let typed = [program.get_name(), command.get_name(), &format!("--{key}=")].map(str::to_owned);
    let error = program.try_get_matches_from(typed).err()?;
    let Some(ContextValue::String(near)) = error.get(ContextKind::SuggestedArg) else {
        return None;
    };
    near.strip_prefix("--").map(str::to_owned)
}

/// The first line of what the parser says, without the word before it.
fn parser_message(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.split("\n\nUsage:").next().unwrap_or(&text);
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn wrong(text: &str) -> (usize, String) {
        let wrong = parse(text, &[]).unwrap_err();
        (line(text, wrong.offset.expect("in the plan")), wrong.message)
    }

    #[test]
    fn a_plan_is_what_would_be_typed() {
        let plan = "[ldap]\nuri = \"ldap://h\"\ndn = \"uid=u{0..9},dc=x\"\npassword = \"p\"\n\
                    users = [1, 2]\nduration = 2.5\nstart-tls = true\n";
        let (LoadCommand::Ldap(ldap), _) = parse(plan, &[]).unwrap() else {
            panic!("another command");
        };
        assert_eq!(ldap.common.users, [1, 2]);
        assert_eq!(ldap.common.duration, Duration::from_millis(2500));
        assert_eq!(ldap.dn.count(), 10);
        assert!(ldap.start_tls);
    }

    #[test]
    fn what_is_typed_takes_the_place_of_what_the_plan_says() {
        let plan = "[command]\ncommand = [\"true\", \"--users\"]\nusers = 3\nwarm-up = 0\n";
        let options = ["--users=5".into(), "--quiet".into()];
        let (LoadCommand::Shell(shell), _) = parse(plan, &options).unwrap() else {
            panic!("another command");
        };
        assert_eq!(shell.common.users, [5]);
        assert_eq!(shell.common.warm_up, Duration::ZERO);
        assert!(shell.common.quiet);
        assert_eq!(shell.command.len(), 2);
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_key() {
        let ldap = "[ldap]\nuri = \"ldap://h\"\ndn = \"x\"\npassword = \"p\"\n";
        for (text, at, what) in [
            ("", 1, "has no load"),
            ("\n[dns2]\n", 2, "dns2: is no load"),
            ("ldap = 5\n", 1, "ldap: write [ldap]"),
            ("[ldap]\nuri = \n", 2, ""),
            ("[ldap]\nuri = \"ldap://h\"\ndn = \"x\"\n", 1, "--password"),
            (&format!("{ldap}userz = 5\n"), 5, "did you mean users?"),
            (&format!("{ldap}warm_up = 5\n"), 5, "did you mean warm-up?"),
            (&format!("{ldap}users = 0\n"), 5, "--users"),
            (&format!("{ldap}\n\nop = \"bnd\"\n"), 7, "--op"),
            (&format!("{ldap}start-tls = 1\n"), 5, "start-tls: must be true or false"),
            (&format!("{ldap}users = {{}}\n"), 5, "users: must be a number or a string"),
            (&format!("{ldap}help = true\n"), 5, "help: there is no such key"),
            (&format!("{ldap}[command]\n"), 5, "command: a plan has one load"),
            ("[ldap]\nuri = \"ldap://h\"\npassword=\"p\"\ndn = \"u{0..\"\n", 4, "without its }"),
            ("[command]\ncommand = \"true\"\n", 2, "must be a list of words"),
        ] {
            let (line, said) = wrong(text);
            assert!(line == at && said.contains(what), "{text}: {line}: {said}");
        }
    }
}
