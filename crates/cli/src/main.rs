//! `roster`: makes, shows, checks and switches on snapshots of users and groups, and tells how the
//! daemon is that mirrors directories into one.
//!
//! One file a command; [`cli`] is the only definition of what may be typed, and [`pages`] of what
//! help and man pages say beyond it. Nothing here serves look-ups: that is the NSS module's part; nor
//! mirrors anything: that is rosterd's, which [`daemon`] asks over its bus.

#![forbid(unsafe_code)]
// Those two end the program where a stream is full or broken: see `terminal::say`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod check_config;
mod cli;
mod compile;
mod daemon;
mod doctor;
mod enable;
mod get;
mod inspect;
mod manual;
mod nscd;
mod nsswitch;
mod pages;
mod pam_page;
mod replace;
mod snapshot_file;
mod synth;
mod terminal;
mod unserved;

use anyhow::Result;
use clap::Parser;
use cli::{Cli, Command};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;
use terminal::{Stdout, say};

/// Something is wrong, and it has been said.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| wrong_use(&error));
    let mut out = BufWriter::new(Stdout::lock());
    let result = run(cli.command, &mut out).and_then(|code| Ok(out.flush().map(|()| code)?));
    match result {
        Ok(code) => ExitCode::from(code),
        // Whoever reads us has seen enough, as `head` has.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = out.flush();
            say(format_args!("roster: {error:#}"));
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
        Command::Enable(args) => enable::enable(&args.edit, args.shadow, out).map(|()| 0),
        Command::Disable(args) => enable::disable(&args.edit, out).map(|()| 0),
        Command::Doctor(args) => doctor::run(&args.root, args.json, out).map(well),
        Command::Status(args) => daemon::status::run(&args.bus.run_dir, args.json, out),
        Command::Domain(args) => daemon::domain::run(&args, out).map(|()| 0),
        Command::Cache(args) => daemon::cache::run(&args, out).map(well),
        Command::Access(args) => daemon::access::run(&args, out),
        Command::SshKeys(args) => daemon::ssh_keys::run(&args, out).map(well),
        Command::LogLevel(args) => daemon::log_level::run(&args, out).map(|()| 0),
        Command::CheckConfig(args) => check_config::run(&args, out).map(well),
        Command::Nscd(args) => nscd::run(&args, out).map(|()| 0),
        Command::NscdHelper => nscd::help().map(|()| 0),
        Command::NscdStarter => nscd::start_helpers().map(|()| 0),
        Command::Synth(args) => {
            synth::run(args.corpus(), args.shadow, &args.output, out).map(|()| 0)
        }
        Command::Man(args) => pages::write_man_pages(&args.folder, out).map(|()| 0),
        Command::Completions(args) => pages::write_completions(args.shell, out).map(|()| 0),
    }
}

/// Prints clap's message and leaves. `get` has getent's codes, where 2 says "not found".
fn wrong_use(error: &clap::Error) -> ! {
    let is_get = std::env::args_os().nth(1).is_some_and(|command| command == "get");
    let _ = error.print();
    let code =
        if is_get && error.use_stderr() { i32::from(get::WRONG_USE) } else { error.exit_code() };
    std::process::exit(code)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io_error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
