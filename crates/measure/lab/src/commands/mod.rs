//! From what was typed to reports: which runs are made, in which order, and what is written of them.

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
use crate::compare::{self, LoadedReport, html};
use crate::{bisect, man_pages, plan};
use anyhow::{Context, Result, ensure};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use run_load::LoadTask;
use serde_json::{Map, Value};
use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// It could not be run, or nothing was answered; it has been said.
const FAILED: u8 = 1;
/// A check found something.
const FOUND: u8 = 3;
/// Ended by Ctrl-C, as shells tell it.
const INTERRUPTED: u8 = 130;

/// The program.
pub fn main() -> ExitCode {
    if let Some(code) = tether::become_tied() {
        return code;
    }
    let matches = Cli::command().get_matches();
    let mut out = BufWriter::new(io::stdout().lock());
    let result = Cli::from_arg_matches(&matches)
        .map_err(|error| error.exit())
        .and_then(|cli| run(&cli, &matches, &mut out))
        .and_then(|code| Ok(out.flush().map(|()| code)?));
    match result {
        Ok(code) => ExitCode::from(code),
        // Whoever reads us has seen enough, as `head` has.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = out.flush();
            print_error(&format!("roster-lab: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

/// A line on standard error; where that is full or broken, nobody is left to tell.
fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io_error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
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
            ensure!(count == files, "--names: there are {count} for {files} reports");
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
        // Counted twice it would look surer than it is.
        let twice = all[..at].iter().any(|before| is_same(before, one));
        ensure!(
            !twice,
            "{}: is the report of a run that was given before",
            args.reports[at].display()
        );
    }
    let all = if args.names.is_empty() { all } else { compare::pooled(all) };
    let write = |path: &Path, bytes: &[u8]| {
        fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &args.html {
        write(path, html::html(&all).as_bytes())?;
    }
    if let Some(path) = &args.png {
        write(path, &html::png(&all)?)?;
    }
    Ok(compare::write_text(&all, out)?)
}

/// File names without their ends, or whole paths where these would be the same.
fn names_of(paths: &[PathBuf]) -> Vec<String> {
    let stem = |path: &PathBuf| path.file_stem().unwrap_or_default().display().to_string();
    let stems: Vec<String> = paths.iter().map(stem).collect();
    let is_single = |name: &String| stems.iter().filter(|other| *other == name).count() == 1;
    let named = |(path, stem): (&PathBuf, &String)| {
        if is_single(stem) { stem.clone() } else { path.display().to_string() }
    };
    paths.iter().zip(&stems).map(named).collect()
}

/// The options as they were given or left, for the report; passwords that stand in them are left out.
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
