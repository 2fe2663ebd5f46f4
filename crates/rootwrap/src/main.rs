//! `roster-rootwrap`: checks a policy of privileged commands, and explains what it says of one.
//!
//! Who checks or explains names a command of this program first, and then the rootwrap.conf. A first
//! word that is none of those is the configuration of a drop-in call, `roster-rootwrap CONF CMD…`: a
//! configuration that is called like a command is written `./check`. Runs nothing as yet.

#![forbid(unsafe_code)]

use clap::{Parser, Subcommand, ValueEnum};
use roster_rootwrap::check::{self, Difference};
use roster_rootwrap::explain::explain;
use roster_rootwrap::host::ThisHost;
use roster_rootwrap::{Mode, Policy, Problem, Severity};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Something is wrong, and it has been said.
const FAILED: u8 = 1;
/// The configuration cannot be used: the original's code.
const BAD_CONFIG: u8 = 97;

/// The policy of privileged commands: rootwrap.conf and the filter files that it leads to.
#[derive(Parser)]
#[command(name = "roster-rootwrap", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List mistakes, and rules that strict mode reads otherwise, each with an example.
    Check {
        /// The rootwrap.conf.
        conf: PathBuf,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Tell which rule decides about a command and why, without running it.
    Explain {
        /// The rootwrap.conf.
        conf: PathBuf,
        /// How the rules are read; by default as `roster_mode` in the configuration says.
        #[arg(long)]
        mode: Option<Reading>,
        /// The command with its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Reading {
    /// As the original.
    Compat,
    /// With the original's holes closed.
    Strict,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = io::stdout().lock();
    let written = match cli.command {
        Command::Check { conf, json } => run_check(&conf, json, &mut out),
        Command::Explain { conf, mode, command } => run_explain(&conf, mode, &command, &mut out),
    };
    match written.and_then(|code| out.flush().map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        // Whoever reads us has seen enough, as `head` has.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "roster-rootwrap: {error}");
            ExitCode::from(FAILED)
        }
    }
}

fn run_check(conf: &Path, json: bool, out: &mut dyn Write) -> io::Result<u8> {
    let host = ThisHost::new();
    let (problems, differences) = match Policy::load(conf, &host) {
        Ok(policy) => {
            let report = check::check(&policy, &host);
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
            "{}: errors: {errors}, warnings: {warnings}, rules that strict mode reads otherwise: {apart}",
            conf.display()
        )?;
    }
    Ok(if errors == 0 { 0 } else { FAILED })
}

fn as_json(conf: &Path, ok: bool, problems: &[Problem], differences: &[Difference]) -> Value {
    let problem = |problem: &Problem| {
        json!({
            "severity": if problem.severity == Severity::Error { "error" } else { "warning" },
            "file": problem.file.to_string_lossy(),
            "line": problem.line,
            "message": problem.what,
            "instead": problem.instead,
        })
    };
    let difference = |difference: &Difference| {
        let words = difference.example.iter().map(|word| word.to_string_lossy());
        json!({
            "rule": difference.rule,
            "example": words.collect::<Vec<_>>(),
            "compat": difference.compat,
            "strict": difference.strict,
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
    mode: Option<Reading>,
    command: &[OsString],
    out: &mut dyn Write,
) -> io::Result<u8> {
    let host = ThisHost::new();
    let policy = match Policy::load(conf, &host) {
        Ok(policy) => policy,
        Err(problems) => {
            for problem in problems {
                writeln!(io::stderr(), "{problem}")?;
            }
            return Ok(BAD_CONFIG);
        }
    };
    let mode = match mode {
        Some(Reading::Compat) => Mode::Compat,
        Some(Reading::Strict) => Mode::Strict,
        None => policy.conf.mode,
    };
    let explanation = explain(mode, &policy, command, &host);
    writeln!(out, "{explanation}")?;
    Ok(explanation.outcome.map_or_else(|refusal| refusal.exit_code(), |_| 0))
}
