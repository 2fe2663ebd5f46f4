// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `rosterd`: the source of the parser, of `--help`, of the man page and of completions.

use crate::man_page;
use clap::{Args, Parser, Subcommand, ValueHint};
use roster_cli_docs::PackagerCommand;
use std::path::PathBuf;

/// Mirror directories into the snapshot of users and groups
///
/// rosterd reads its configuration. It starts a private message bus and one process for each role:
/// a backend for each domain, the publisher and the responders. Only the publisher writes the snapshot.
/// A responder starts at its first request. rosterd restarts a role that ends or hangs.
///
/// If root starts rosterd without --state-dir, each role has a dedicated user. Otherwise all roles
/// run as the user that starts rosterd.
///
/// rosterd stays in the foreground. It logs to standard error, or to the journal under systemd.
#[derive(Debug, Parser)]
#[command(
    name = "rosterd",
    version,
    styles = roster_cli_docs::STYLES,
    max_term_width = 80,
    args_conflicts_with_subcommands = true,
    after_long_help = man_page::PAGE.after_help()
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub options: MonitorOptions,
}

/// Options of the monitor.
#[derive(Clone, Debug, Args)]
pub struct MonitorOptions {
    /// Read this configuration file, and drop-ins in FILE.d, see roster.toml(5)
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/roster/roster.toml",
        value_hint = ValueHint::FilePath
    )]
    pub config: PathBuf,

    /// Write the snapshot and the caches to this directory [default: /var/lib/roster]
    ///
    /// With this option all roles run as the user that starts rosterd, also as root.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,

    /// Create the sockets in this directory
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/run/roster",
        value_hint = ValueHint::DirPath
    )]
    pub run_dir: PathBuf,

    /// Seconds between two pings of a role; for tests
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, hide = true)]
    pub ping: f64,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run as one role, for the monitor
    #[command(hide = true)]
    Role {
        /// Name of the role
        name: String,
    },
    #[command(flatten)]
    ForPackagers(PackagerCommand),
}
