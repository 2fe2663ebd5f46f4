// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-rootwrap-daemon`: starts the daemon for clients of oslo.rootwrap, or with `--native` that of roster-exec.
//! This file parses options. `oslo::daemon` and `exec_daemon::daemon` of the library serve.

#![forbid(unsafe_code)]

use clap::{CommandFactory, Parser, Subcommand, ValueHint};
use roster_cli_docs::completions;
use roster_messages::table::commands;
use roster_rootwrap::exec::{self, Executor};
use roster_rootwrap::exec_daemon::daemon::{
    ExecDaemonError, ExecDaemonOptions, serve_exec_clients,
};
use roster_rootwrap::host_facts::LocalHost;
use roster_rootwrap::oslo::daemon::serve_oslo_clients;
use roster_rootwrap::{Refusal, RootwrapPolicy, coded, man_pages};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code of an error that was printed.
const FAILED: u8 = 1;

/// Run commands for clients of oslo.rootwrap by the rules of a rootwrap.conf, or for roster-exec by exec.toml
#[derive(Parser)]
#[command(
    name = "roster-rootwrap-daemon",
    version,
    max_term_width = 80,
    args_conflicts_with_subcommands = true,
    after_long_help = man_pages::DAEMON.after_help()
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// Read this rootwrap.conf
    #[arg(
        value_name = "CONF",
        value_hint = ValueHint::FilePath,
        required_unless_present = "native",
        conflicts_with = "native"
    )]
    conf: Option<PathBuf>,

    /// Allow this user to connect, besides root, the caller of sudo, and the owner of standard output
    #[arg(long, value_name = "UID", conflicts_with = "native")]
    allow_uid: Vec<u32>,

    /// Run commands for roster-exec instead
    #[arg(long)]
    native: bool,

    /// Read this policy, see exec.toml(5)
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "/etc/roster/exec.toml",
        requires = "native"
    )]
    policy: PathBuf,

    /// Create this socket, unless systemd passes one
    #[arg(
        long,
        value_name = "PATH",
        value_hint = ValueHint::FilePath,
        default_value = roster_exec::protocol::SOCKET,
        requires = "native"
    )]
    socket: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    /// Write the man pages of this program, of roster-exec and of exec.toml, for packagers
    #[command(hide = true)]
    Man {
        /// The directory, created if missing
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
    /// Print shell completions, for packagers
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
        /// Print completions of roster-exec
        #[arg(long)]
        client: bool,
    },
}

fn main() -> ExitCode {
    if let Some(code) = exec::run_if_staged() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { Refusal::NO_COMMAND } else { 0 });
        }
    };
    if cli.native {
        let Cli { policy, socket, .. } = cli;
        return ExitCode::from(run_exec_daemon(&ExecDaemonOptions { policy, socket }));
    }
    let done = match (cli.command, cli.conf) {
        (Some(Command::Man { folder }), _) => {
            let mut out = io::stdout();
            man_pages::DAEMON
                .write_listed(Cli::command(), &folder, &mut out)
                .and_then(|()| man_pages::write_exec_pages(&folder, &mut out))
        }
        (Some(Command::Completions { shell, client }), _) => {
            io::stdout().write_all(&match client {
                true => man_pages::exec_completions(shell),
                false => completions(shell, Cli::command()),
            })
        }
        (None, Some(conf)) => return ExitCode::from(run(&conf, &cli.allow_uid)),
        (None, None) => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&coded(error, &commands::OUTPUT_FAILED, "cannot write the output"));
            ExitCode::from(FAILED)
        }
    }
}

fn run(conf: &Path, allowed_uids: &[u32]) -> u8 {
    let policy = match RootwrapPolicy::load(conf, &LocalHost::new()) {
        Ok(policy) => policy,
        Err(problems) => {
            problems.iter().for_each(|problem| print_error(problem));
            return Refusal::BAD_CONFIG;
        }
    };
    let served = Executor::new(policy.conf.rlimit_nofile).and_then(|executor| {
        serve_oslo_clients(policy, executor, &man_pages::invoked_program(), allowed_uids)
    });
    match served {
        Ok(()) => 0,
        Err(error) => fail(error),
    }
}

fn fail(error: io::Error) -> u8 {
    print_error(&coded(error, &commands::DAEMON_START_FAILED, "cannot start"));
    FAILED
}

fn run_exec_daemon(settings: &ExecDaemonOptions) -> u8 {
    match serve_exec_clients(settings) {
        Ok(()) => 0,
        Err(ExecDaemonError::Policy(problems)) => {
            problems.iter().for_each(|problem| print_error(problem));
            Refusal::BAD_CONFIG
        }
        Err(ExecDaemonError::System(error)) => fail(error),
    }
}

fn print_error(what: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}: {what}", man_pages::invoked_program().display());
}
