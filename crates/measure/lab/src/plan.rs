// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans: TOML files with the options of a command as keys.
//!
//! This module has no list of keys: it converts a plan to arguments, and [`args`] parses them. Errors have
//! the file, the line and the key.

use crate::args::{self, Cli, LoadCommand};
use crate::coded::{Coded, ensure_coded};
use anyhow::Result;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use roster_messages::table::lab;
use roster_messages::{CodedError, Message};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum size of a plan.
const BYTES_MAX: u64 = 1 << 20;
/// Commands that a plan may have.
const LOADS: [&str; 6] = ["ldap", "dns", "krb5", "nss", "pam", "command"];

/// Reads a plan. `options` replace its keys.
pub fn read(file: &Path, options: &[OsString]) -> Result<(LoadCommand, ArgMatches)> {
    let name = file.display();
    let unreadable = format!("{name}: cannot be read");
    let size = fs::metadata(file).coded(&lab::FILE_UNREADABLE, &unreadable)?.len();
    let mib = BYTES_MAX >> 20;
    ensure_coded!(size <= BYTES_MAX, PLAN_TOO_LONG, "{name}: longer than {mib} MiB");
    let text = fs::read_to_string(file).coded(&lab::FILE_UNREADABLE, &unreadable)?;
    parse(&text, options).map_err(|PlanDiagnostic { offset, mut error }| {
        if let Some(offset) = offset {
            error.text = format!("{name}:{}: {}", line(&text, offset), error.text);
        }
        error.into()
    })
}

/// Reads the options of a user class from a Locust master, which have the structure of a plan. `options` replace its
/// keys.
pub fn from_master(told: &Value, options: &[OsString]) -> Result<LoadCommand> {
    let text = toml::to_string(told)
        .coded(&lab::PLAN_NOT_TABLES, "options of the user class: not a table")?;
    parse(&text, options).map(|(load, _)| load).map_err(|diagnostic| diagnostic.error.into())
}

/// An error and its offset in the plan. An error of the options has no offset.
#[derive(Debug)]
struct PlanDiagnostic {
    offset: Option<usize>,
    error: CodedError,
}

impl PlanDiagnostic {
    fn at(place: &Range<usize>, message: &'static Message, text: impl Into<String>) -> Self {
        Self { offset: Some(place.start), error: CodedError::new(message, text) }
    }

    fn fix(self, fix: impl Into<String>) -> Self {
        Self { error: self.error.fix(fix), ..self }
    }
}

fn line(text: &str, place: usize) -> usize {
    text.as_bytes().iter().take(place).filter(|&&byte| byte == b'\n').count() + 1
}

/// A key and its arguments.
struct PlanSetting {
    span: Range<usize>,
    id: String,
    arguments: Vec<OsString>,
}

fn parse(text: &str, options: &[OsString]) -> Result<(LoadCommand, ArgMatches), PlanDiagnostic> {
    let whole = DeTable::parse(text).map_err(|error| {
        let place = error.span().unwrap_or_default();
        PlanDiagnostic::at(&place, &lab::PLAN_SYNTAX, error.message().trim_end_matches('.'))
    })?;
    let program = Cli::command();
    let (command, place, table) = load(&whole, &program)?;
    let mut settings = Vec::new();
    for (key, value) in table {
        settings.push(setting(command, key.get_ref(), &key.span(), value)?);
    }
    // An option of the command line removes the key of the plan.
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
        // The name is in `LOADS`, so this is unreachable.
        _ => Err(clap::Error::new(clap::error::ErrorKind::InvalidSubcommand)),
    });
    parsed.map_err(|error| {
        // clap names the option in its written form: `--users <N>`.
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
        let error = CodedError::new(&lab::PLAN_INVALID_OPTION, parser_message(&error));
        let offset = match (of_plan, id) {
            (Some(setting), _) => Some(setting.span.start),
            (None, Some(arg)) if typed.iter().any(|id| id == arg.get_id().as_str()) => None,
            _ => Some(place.start),
        };
        PlanDiagnostic { offset, error }
    })
}

/// Returns the single table of the plan.
fn load<'p, 'd, 'i>(
    whole: &'d Spanned<DeTable<'i>>,
    program: &'p Command,
) -> Result<(&'p Command, Range<usize>, &'d DeTable<'i>), PlanDiagnostic> {
    let mut tables: Vec<_> = whole.get_ref().iter().collect();
    // The parser does not keep the order of the file.
    tables.sort_by_key(|(name, _)| name.span().start);
    let mut tables = tables.into_iter();
    let Some((name, value)) = tables.next() else {
        return Err(PlanDiagnostic::at(&(0..0), &lab::PLAN_WITHOUT_LOAD, "no load"));
    };
    if let Some((other, _)) = tables.next() {
        let text = format!("{}: second load", other.get_ref());
        return Err(PlanDiagnostic::at(&other.span(), &lab::PLAN_SECOND_LOAD, text));
    }
    let command = LOADS
        .contains(&&**name.get_ref())
        .then(|| program.find_subcommand(&**name.get_ref()))
        .flatten()
        .ok_or_else(|| {
            let text = format!("{}: unknown load", name.get_ref());
            PlanDiagnostic::at(&name.span(), &lab::PLAN_UNKNOWN_LOAD, text)
        })?;
    let table = value.get_ref().as_table().ok_or_else(|| {
        let text = format!("{}: not a table", name.get_ref());
        PlanDiagnostic::at(&name.span(), &lab::PLAN_NOT_A_TABLE, text)
    })?;
    Ok((command, name.span(), table))
}

fn wrong_type(key: &str, value: &Spanned<DeValue<'_>>, fix: &str) -> PlanDiagnostic {
    let text = format!("{key}: value of the wrong type");
    PlanDiagnostic::at(&value.span(), &lab::PLAN_WRONG_TYPE, text).fix(fix)
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
        let fix = match nearest(key, command) {
            Some(near) => format!("Write {near}, if you meant this key."),
            None => format!("Read the keys in roster-lab {} --help.", command.get_name()),
        };
        let text = format!("{key}: unknown key");
        return Err(PlanDiagnostic::at(place, &lab::PLAN_UNKNOWN_KEY, text).fix(fix));
    };
    let mut arguments: Vec<OsString> = Vec::new();
    let flag = OsString::from(format!("--{key}"));
    match (value.get_ref(), arg.get_action(), arg.get_long()) {
        (DeValue::Boolean(on), ArgAction::SetTrue, _) => {
            arguments.extend(on.then_some(flag));
        }
        (_, ArgAction::SetTrue, _) => return Err(wrong_type(key, value, "Write true or false.")),
        (DeValue::Array(values), _, None) => {
            arguments.push("--".into());
            for value in values {
                arguments.push(scalar(key, value)?.into());
            }
        }
        (_, _, None) => {
            let fix = "Write a list of strings, for example [\"id\", \"alice\"].";
            return Err(wrong_type(key, value, fix));
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
        _ => Err(wrong_type(key, value, "Write a number or a string.")),
    }
}

/// Returns the options after the plan on the command line.
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

/// Returns the nearest key, by clap's suggestion for options.
fn nearest(key: &str, command: &Command) -> Option<String> {
    let program = Cli::command();
    let typed = [program.get_name(), command.get_name(), &format!("--{key}=")].map(str::to_owned);
    let error = program.try_get_matches_from(typed).err()?;
    let Some(ContextValue::String(near)) = error.get(ContextKind::SuggestedArg) else {
        return None;
    };
    near.strip_prefix("--").map(str::to_owned)
}

/// Returns the first paragraph of a parser error as one line, without its prefix and period.
fn parser_message(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.split("\n\nUsage:").next().unwrap_or(&text);
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn wrong(text: &str) -> (usize, CodedError) {
        let wrong = parse(text, &[]).unwrap_err();
        (line(text, wrong.offset.expect("in the plan")), wrong.error)
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
    fn plan_error_has_line_key_and_code() {
        let ldap = "[ldap]\nuri = \"ldap://h\"\ndn = \"x\"\npassword = \"p\"\n";
        for (text, at, part, message) in [
            ("", 1, "", &lab::PLAN_WITHOUT_LOAD),
            ("\n[dns2]\n", 2, "dns2: ", &lab::PLAN_UNKNOWN_LOAD),
            ("ldap = 5\n", 1, "ldap: ", &lab::PLAN_NOT_A_TABLE),
            ("[ldap]\nuri = \n", 2, "", &lab::PLAN_SYNTAX),
            (
                "[ldap]\nuri = \"ldap://h\"\ndn = \"x\"\n",
                1,
                "--password",
                &lab::PLAN_INVALID_OPTION,
            ),
            (&format!("{ldap}userz = 5\n"), 5, "Write users,", &lab::PLAN_UNKNOWN_KEY),
            (&format!("{ldap}warm_up = 5\n"), 5, "Write warm-up,", &lab::PLAN_UNKNOWN_KEY),
            (&format!("{ldap}users = 0\n"), 5, "--users", &lab::PLAN_INVALID_OPTION),
            (&format!("{ldap}\n\nop = \"bnd\"\n"), 7, "--op", &lab::PLAN_INVALID_OPTION),
            (&format!("{ldap}start-tls = 1\n"), 5, "Write true or false.", &lab::PLAN_WRONG_TYPE),
            (&format!("{ldap}users = {{}}\n"), 5, "a number or a string", &lab::PLAN_WRONG_TYPE),
            (&format!("{ldap}help = true\n"), 5, "help: ", &lab::PLAN_UNKNOWN_KEY),
            (&format!("{ldap}[command]\n"), 5, "command: ", &lab::PLAN_SECOND_LOAD),
            (
                "[ldap]\nuri = \"ldap://h\"\npassword=\"p\"\ndn = \"u{0..\"\n",
                4,
                "--dn",
                &lab::PLAN_INVALID_OPTION,
            ),
            ("[command]\ncommand = \"true\"\n", 2, "a list of strings", &lab::PLAN_WRONG_TYPE),
        ] {
            let (line, error) = wrong(text);
            assert_eq!((line, error.message), (at, message), "{text}: {error}");
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn plan_of_master_without_tables_has_code() {
        for told in [json!([1]), json!("ldap"), json!({"ldap": null})] {
            let error = from_master(&told, &[]).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("[{}]", lab::PLAN_NOT_TABLES.code)),
                "{told}: {error}"
            );
        }
    }
}
