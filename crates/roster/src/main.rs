// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster`: compiles, shows, checks and enables snapshots of users and groups, and queries the daemon. Each command has
//! its own file. [`args`] defines all arguments, and [`help_text`] the other text of help and man pages. The program
//! serves no lookups: the NSS module does. It mirrors no directory: rosterd does, and [`rosterd_client`] queries it over
//! its bus.

#![forbid(unsafe_code)]
// These macros end the program if a stream is full or closed: see `output::print_stderr`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod atomic_write;
mod check_config;
mod compare_ids;
mod compile;
mod doctor;
mod explain;
mod finding;
mod generate;
mod get;
mod help_text;
mod inspect;
mod man_pages;
mod man_roster_toml;
mod migrate_config;
mod nscd;
mod nsswitch_file;
mod nsswitch_lines;
mod output;
mod paths;
mod rosterd_client;
mod snapshot_file;
mod unserved;

use anyhow::Result;
use args::{Cli, Command, DomainCommand};
use clap::Parser;
use output::{Stdout, print_stderr};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

/// Exit status after a reported failure or problem.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| exit_usage_error(&error));
    let mut out = BufWriter::new(Stdout::lock());
    let result = run(cli.command, &mut out).and_then(|code| Ok(out.flush().map(|()| code)?));
    match result {
        Ok(code) => ExitCode::from(code),
        // The reader closed the pipe, as `head` does.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = out.flush();
            print_stderr(format_args!("roster: {error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

fn run(command: Command, out: &mut dyn Write) -> Result<u8> {
    let well = |well: bool| if well { 0 } else { FAILED };
    match command {
        Command::Compile(args) => compile::run(&args, out).map(|()| 0),
        Command::Inspect(args) => inspect::inspect(&args.file, args.json, out).map(|()| 0),
        Command::Verify(args) => inspect::verify(&args.file, args.json, out).map(well),
        Command::Get(args) => get::run(args.database, &args.keys, &args.snapshot, args.json, out),
        Command::Enable(args) => nsswitch_file::enable(&args.edit, args.shadow, out),
        Command::Disable(args) => nsswitch_file::disable(&args.edit, out),
        Command::Doctor(args) => doctor::run(&args.root, args.json, out).map(well),
        Command::Status(args) => rosterd_client::status::run(&args.bus.run_dir, args.json, out),
        Command::Domain(args) => match &args.command {
            DomainCommand::CompareIds(args) => Ok(compare_ids::run(args, out)),
            _ => rosterd_client::domain::run(&args, out).map(|()| 0),
        },
        Command::Cache(args) => rosterd_client::cache::run(&args, out).map(well),
        Command::Access(args) => rosterd_client::access::run(&args, out),
        Command::SshKeys(args) => rosterd_client::ssh_keys::run(&args, out).map(well),
        Command::LogLevel(args) => rosterd_client::log_level::run(&args, out).map(|()| 0),
        Command::CheckConfig(args) => check_config::run(&args, out).map(well),
        Command::MigrateConfig(args) => migrate_config::run(&args, out).map(well),
        Command::Explain(args) => explain::run(&args.codes, args.json, out).map(well),
        Command::Nscd(args) => nscd::run(&args, out).map(|()| 0),
        Command::NscdHelper => nscd::run_helper().map(|()| 0),
        Command::NscdStarter => nscd::run_helper_starter().map(|()| 0),
        Command::Generate(args) => {
            generate::run(args.corpus(), args.shadow, &args.output, out).map(|()| 0)
        }
        Command::Man(args) => man_pages::write_man_pages(&args.folder, out).map(|()| 0),
        Command::Completions(args) => man_pages::write_completions(args.shell, out).map(|()| 0),
    }
}

/// Prints the message of clap and exits. 2 means "not found" in `get`, as in getent, and "would change" in a dry run of
/// `enable` and `disable`.
fn exit_usage_error(error: &clap::Error) -> ! {
    let has_other_meaning = std::env::args_os()
        .nth(1)
        .is_some_and(|command| ["get", "enable", "disable"].iter().any(|name| command == *name));
    let _ = error.print();
    let code = if has_other_meaning && error.use_stderr() {
        i32::from(get::EXIT_WRONG_USE)
    } else {
        error.exit_code()
    };
    std::process::exit(code)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io_error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
