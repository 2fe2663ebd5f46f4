// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-rootwrap`: runs a command by the rules of a rootwrap.conf, checks the rules, and explains decisions. The
//! library does the work.
//!
//! The first word of `check` and `explain` is the name of the subcommand. Another first word is the configuration of a
//! drop-in call, `roster-rootwrap CONF CMD…`. A configuration with the name of a subcommand is written `./check`.

#![forbid(unsafe_code)]

use clap::{Parser, Subcommand, ValueEnum, ValueHint};
use roster_cli_docs::PackagerCommand;
use roster_messages::CodedError;
use roster_messages::table::commands;
use roster_rootwrap::config_check::{self, ModeDifference};
use roster_rootwrap::exec::{self, Executor, StdStreams};
use roster_rootwrap::explain::explain;
use roster_rootwrap::host_facts::LocalHost;
use roster_rootwrap::syslog::Syslog;
use roster_rootwrap::{
    Diagnostic, Mode, Refusal, RootwrapPolicy, Severity, coded, evaluate, exec_daemon,
    log_messages, man_pages,
};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code of an error that was printed.
const FAILED: u8 = 1;
/// Added to the number of a signal that ended the command.
const SIGNAL_BASE: i32 = 128;

/// Run a command as root or another user by the rules of a rootwrap.conf
#[derive(Parser)]
#[command(
    name = "roster-rootwrap",
    version,
    max_term_width = 80,
    override_usage = "roster-rootwrap CONF COMMAND [ARGUMENT]...\n       \
                      roster-rootwrap check [--json] CONF\n       \
                      roster-rootwrap explain [--mode MODE] CONF -- COMMAND [ARGUMENT]...\n       \
                      roster-rootwrap check-policy FILE",
    after_long_help = man_pages::ROOTWRAP.after_help()
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List mistakes, and rules that the two modes read differently
    Check {
        /// Check this rootwrap.conf
        #[arg(value_name = "CONF", value_hint = ValueHint::FilePath)]
        conf: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the deciding rule of a command and the reasons
    Explain {
        /// Read this rootwrap.conf
        #[arg(value_name = "CONF", value_hint = ValueHint::FilePath)]
        conf: PathBuf,
        /// Evaluate in this mode, by default roster_mode of the configuration
        #[arg(long)]
        mode: Option<ModeArg>,
        /// Evaluate this command with its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// List mistakes of an exec.toml, the policy of roster-exec
    CheckPolicy {
        /// Check this exec.toml
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    #[command(flatten)]
    Packager(PackagerCommand),
    /// The rootwrap.conf, and the command to run with its arguments
    #[command(external_subcommand)]
    Run(Vec<OsString>),
}

#[derive(Clone, Copy, ValueEnum)]
enum ModeArg {
    /// Decide as oslo.rootwrap
    Compat,
    /// Close known gaps of oslo.rootwrap
    Strict,
}

fn main() -> ExitCode {
    if let Some(code) = exec::run_if_staged() {
        return code;
    }
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => {
            let _ = error.print();
            // oslo.rootwrap has this code for a call without a command or with unknown options.
            return ExitCode::from(if error.use_stderr() { Refusal::NO_COMMAND } else { 0 });
        }
    };
    let mut out = io::stdout().lock();
    let written = match command {
        Command::Check { conf, json } => run_check(&conf, json, &mut out),
        Command::Explain { conf, mode, command } => run_explain(&conf, mode, &command, &mut out),
        Command::CheckPolicy { file } => run_check_policy(&file, &mut out),
        Command::Packager(what) => {
            let program = <Cli as clap::CommandFactory>::command();
            what.write(&man_pages::ROOTWRAP, program, &mut out).map(|()| 0)
        }
        Command::Run(words) => return ExitCode::from(run_command(&words)),
    };
    match written.and_then(|code| out.flush().map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        // The reader closed the pipe, as `head` does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&coded(error, &commands::OUTPUT_FAILED, "cannot write the output"));
            ExitCode::from(FAILED)
        }
    }
}

/// Runs a command with the exit codes of oslo.rootwrap.
fn run_command(words: &[OsString]) -> u8 {
    let [conf, command @ ..] = words else { return Refusal::NO_COMMAND };
    if command.is_empty() {
        let text = "no command follows the configuration";
        print_error(&CodedError::new(&commands::NO_COMMAND, text));
        return Refusal::NO_COMMAND;
    }
    let host = LocalHost::new();
    let policy = match RootwrapPolicy::load(Path::new(conf), &host) {
        Ok(policy) => policy,
        Err(problems) => {
            problems.iter().for_each(|problem| print_error(problem));
            return Refusal::BAD_CONFIG;
        }
    };
    let executor = match Executor::new(policy.conf.rlimit_nofile) {
        Ok(executor) => executor,
        Err(error) => {
            print_error(&coded(error, &commands::START_FAILED, "cannot prepare the process"));
            return FAILED;
        }
    };
    // The log opens after inherited descriptors are closed.
    let syslog = Syslog::new(&policy.conf, &man_pages::invoked_program());
    let verdict = match evaluate(policy.conf.mode, &policy, command, &host) {
        Ok(verdict) => verdict,
        Err(refusal) => {
            let message = log_messages::refused(policy.conf.mode, &refusal, command);
            print_error(&message);
            syslog.send_message(log_messages::REFUSED_TO_PERSON, || message);
            return refusal.exit_code();
        }
    };
    syslog.send_message(log_messages::ALLOWED, || log_messages::allowed(&verdict, &host));
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let (stdin, stdout, stderr) = (stdin.as_fd(), stdout.as_fd(), stderr.as_fd());
    let ran = || -> io::Result<i32> {
        let mut child = executor.start(&verdict, StdStreams { stdin, stdout, stderr })?;
        let status = child.wait()?;
        Ok(status
            .signal()
            .map_or_else(|| status.code().unwrap_or_default(), |signal| SIGNAL_BASE + signal))
    };
    match ran() {
        Ok(code) => u8::try_from(code).unwrap_or(FAILED),
        Err(error) => {
            let command = verdict.argv()[0].display();
            print_error(&format_args!("{command}: {}", exec::start_error(error)));
            FAILED
        }
    }
}

fn print_error(what: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}: {what}", man_pages::invoked_program().display());
}

fn run_check(conf: &Path, json: bool, out: &mut dyn Write) -> io::Result<u8> {
    let host = LocalHost::new();
    let (problems, differences) = match RootwrapPolicy::load(conf, &host) {
        Ok(policy) => {
            let report = config_check::check(&policy, &host);
            (report.problems, report.differences)
        }
        Err(problems) => (problems, Vec::new()),
    };
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    if json {
        writeln!(out, "{:#}", as_json(conf, errors == 0, &problems, &differences))?;
    } else {
        for problem in &problems {
            writeln!(out, "{problem}")?;
        }
        for difference in &differences {
            writeln!(out, "{difference}")?;
        }
        let (warnings, apart) = (problems.len() - errors, differences.len());
        writeln!(
            out,
            "{}: errors: {errors}, warnings: {warnings}, rules that differ in strict mode: {apart}",
            conf.display()
        )?;
    }
    Ok(if errors == 0 { 0 } else { FAILED })
}

fn run_check_policy(file: &Path, out: &mut dyn Write) -> io::Result<u8> {
    let read = exec_daemon::exec_toml::ExecPolicy::load(file);
    let (rules, errors, problems) = match read {
        Ok(policy) => (policy.rules.len(), 0, policy.warnings(file)),
        Err(problems) => (0, problems.len(), problems),
    };
    for problem in &problems {
        writeln!(out, "{problem}")?;
    }
    let warnings = problems.len() - errors;
    writeln!(out, "{}: errors: {errors}, warnings: {warnings}, rules: {rules}", file.display())?;
    Ok(if errors == 0 { 0 } else { FAILED })
}

fn as_json(
    conf: &Path,
    ok: bool,
    problems: &[Diagnostic],
    differences: &[ModeDifference],
) -> Value {
    let problem = |problem: &Diagnostic| {
        json!({
            "severity": if problem.severity == Severity::Error { "error" } else { "warning" },
            "file": problem.file.to_string_lossy(),
            "line": problem.line,
            "message": match &*problem.key {
                "" => problem.text.clone(),
                key => format!("{key}: {}", problem.text),
            },
            "fix": problem.fix(),
            "code": problem.message.code,
        })
    };
    let difference = |difference: &ModeDifference| {
        json!({
            "rule": difference.rule,
            "compat": difference.compat,
            "strict": difference.strict,
            "code": ModeDifference::MESSAGE.code,
        })
    };
    json!({
        "file": conf.to_string_lossy(),
        "ok": ok,
        "problems": problems.iter().map(problem).collect::<Vec<_>>(),
        "differences": differences.iter().map(difference).collect::<Vec<_>>(),
    })
}

fn run_explain(
    conf: &Path,
    mode: Option<ModeArg>,
    command: &[OsString],
    out: &mut dyn Write,
) -> io::Result<u8> {
    let host = LocalHost::new();
    let policy = match RootwrapPolicy::load(conf, &host) {
        Ok(policy) => policy,
        Err(problems) => {
            for problem in problems {
                writeln!(io::stderr(), "{problem}")?;
            }
            return Ok(Refusal::BAD_CONFIG);
        }
    };
    let mode = match mode {
        Some(ModeArg::Compat) => Mode::Compat,
        Some(ModeArg::Strict) => Mode::Strict,
        None => policy.conf.mode,
    };
    let explanation = explain(mode, &policy, command, &host);
    writeln!(out, "{explanation}")?;
    Ok(explanation.outcome.map_or_else(|refusal| refusal.exit_code(), |_| 0))
}
