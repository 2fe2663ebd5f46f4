// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subcommands: decide which runs are made, in which order, and where their reports go. `run_load` makes the runs, and
//! engines make the requests.

mod engines;
mod locust;
mod locust_users;
mod redact;
mod run_load;
mod schemes;
mod tether;
mod trace;
mod worker;

use crate::args::{self, Cli};
use crate::coded::{Coded, describe, ensure_coded};
use crate::compare::{self, LoadedReport, html};
use crate::{bisect, man_pages, plan};
use anyhow::Result;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use roster_cli_docs::with_usage_lines;
use roster_messages::Message;
use roster_messages::table::lab;
use run_load::LoadTask;
use serde_json::{Map, Value};
use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code of a failed run, after its message.
const FAILED: u8 = 1;
/// Exit code of a check with a warning.
const FOUND: u8 = 3;
/// Exit code of a run that Ctrl-C ended, the same as of shells.
const INTERRUPTED: u8 = 130;

/// Runs the program.
pub fn main() -> ExitCode {
    if let Some(code) = tether::become_tied() {
        return code;
    }
    let matches = with_usage_lines(Cli::command()).get_matches();
    let mut out = BufWriter::new(io::stdout().lock());
    let result = Cli::from_arg_matches(&matches)
        .map_err(|error| error.exit())
        .and_then(|cli| run(&cli, &matches, &mut out))
        .and_then(|code| Ok(out.flush().map(|()| code)?));
    match result {
        Ok(code) => ExitCode::from(code),
        // The reader of the output has ended, for example `head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = out.flush();
            print_failure(&error);
            ExitCode::from(FAILED)
        }
    }
}

/// Prints a line on standard error, and ignores a failure to print.
fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints an error with its fix and code.
fn print_failure(error: &anyhow::Error) {
    print_error(&format!("roster-lab: {}", describe(error)));
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io_error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Adds a code to a failed write, unless the reader of a pipe has ended.
fn code_failed_write(result: Result<()>, message: &'static Message, name: &str) -> Result<()> {
    match result {
        Err(error) if is_broken_pipe(&error) => Err(error),
        result => result.coded(message, format_args!("{name}: cannot be written")),
    }
}

fn run(cli: &Cli, matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    match &cli.command {
        args::Command::Load(load) => {
            engines::run(load, LoadTask::new(options(matches), false), out)
        }
        args::Command::Check(args::CheckArgs { load }) => {
            let given = matches.subcommand_matches("check").unwrap_or(matches);
            engines::run(load, LoadTask::new(options(given), true), out)
        }
        args::Command::Run(args) => {
            let (load, matches) = plan::read(&args.plan, &args.options)?;
            let task = LoadTask::new(options(&matches), args.check);
            engines::run(&load, task, out)
        }
        args::Command::Compare(args) => compare_reports(args, out).map(|()| 0),
        args::Command::Bisect(args) => bisect::run(args, out).map(|()| 0),
        args::Command::Schemes(args) => schemes::run(args, out),
        args::Command::Trace(args) => trace::run(args, options(matches), out),
        args::Command::Worker(args) => worker::run(args),
        args::Command::Locust(args) => locust::run(args),
        args::Command::Man(args) => man_pages::write_man_pages(&args.folder, out).map(|()| 0),
        args::Command::Completions(args) => {
            man_pages::write_completions(args.shell, out).map(|()| 0)
        }
    }
}

fn compare_reports(args: &args::CompareArgs, out: &mut dyn Write) -> Result<()> {
    let names = match args.names.len() {
        0 => names_of(&args.reports),
        count => {
            let files = args.reports.len();
            ensure_coded!(
                count == files,
                NAMES_COUNT,
                "--names: number of names is {count}, number of reports is {files}"
            );
            args.names.clone()
        }
    };
    let read = args.reports.iter().zip(names).map(|(path, name)| LoadedReport::read(path, name));
    let all = read.collect::<Result<Vec<_>>>()?;
    let is_same = |one: &LoadedReport, other: &LoadedReport| {
        let run = |of: &LoadedReport| (of.origin.time, of.figures.batches.clone());
        one.name == other.name && run(one) == run(other)
    };
    for (at, one) in all.iter().enumerate() {
        // A run that counts twice would make a difference look more certain.
        let twice = all[..at].iter().any(|before| is_same(before, one));
        ensure_coded!(
            !twice,
            REPORT_TWICE,
            "{}: the same run as in another argument",
            args.reports[at].display()
        );
    }
    let all = if args.names.is_empty() { all } else { compare::pooled(all) };
    if let Some(path) = &args.html {
        write_file(path, html::html(&all).as_bytes())?;
    }
    if let Some(path) = &args.png {
        write_file(path, &html::png(&all)?)?;
    }
    Ok(compare::write_text(&all, out)?)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let text = format_args!("{}: cannot be written", path.display());
    fs::write(path, bytes).coded(&lab::FILE_UNWRITABLE, text)
}

/// Returns file names without their extensions, or whole paths if these would be equal.
fn names_of(paths: &[PathBuf]) -> Vec<String> {
    let stem = |path: &PathBuf| path.file_stem().unwrap_or_default().display().to_string();
    let stems: Vec<String> = paths.iter().map(stem).collect();
    let is_single = |name: &String| stems.iter().filter(|other| *other == name).count() == 1;
    let named = |(path, stem): (&PathBuf, &String)| {
        if is_single(stem) { stem.clone() } else { path.display().to_string() }
    };
    paths.iter().zip(&stems).map(named).collect()
}

/// Returns the options with their defaults for the report, without passwords.
fn options(matches: &ArgMatches) -> Value {
    let mut plan = Map::new();
    if let Some((name, given)) = matches.subcommand() {
        let program = Cli::command();
        let known =
            program.find_subcommand(name).into_iter().flat_map(clap::Command::get_arguments);
        plan.insert("load".to_owned(), name.into());
        for arg in known {
            let Ok(Some(values)) = given.try_get_raw(arg.get_id().as_str()) else { continue };
            let values = values.map(|value| value.to_string_lossy().into_owned());
            let values: Vec<String> = match arg.get_id().as_str() {
                "command" => redact::redact_arguments(&values.collect::<Vec<_>>()),
                id => values.map(|value| redact::redact_value(id, &value)).collect(),
            };
            let values: Vec<Value> = values.into_iter().map(Value::from).collect();
            let key = arg.get_long().unwrap_or(arg.get_id().as_str()).to_owned();
            let is_list = arg.get_value_delimiter().is_some() || arg.get_long().is_none();
            let value = match (values.as_slice(), is_list) {
                ([one], false) => one.clone(),
                _ => Value::Array(values),
            };
            plan.insert(key, value);
        }
    }
    Value::Object(plan)
}
