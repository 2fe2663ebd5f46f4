// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may be typed: the one source of the parser, of `--help`, man page and completions.

use crate::man_page;
use clap::{Args, Parser, Subcommand, ValueHint};
use roster_cli_docs::PackagerCommand;
use std::path::PathBuf;

/// Mirrors directories into the snapshot of users and groups
///
/// rosterd reads its configuration, starts a message bus of its own and one process for each role:
/// a back-end for every domain, the publisher, which alone writes the snapshot, and the responders,
/// which come when somebody first asks them. A process that dies or hangs is started again, however
/// often. Started by root without --state-dir, every role has a user of its own; in any other way all
/// run as the user who starts it.
///
/// It stays in the foreground and logs to standard error, or to the journal under systemd.
#[derive(Debug, Parser)]
#[command(
    name = "rosterd",
    version,
    styles = roster_cli_docs::STYLES,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    after_long_help = man_page::PAGE.after_help()
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub options: MonitorOptions,
}

/// What the monitor runs by.
#[derive(Clone, Debug, Args)]
pub struct MonitorOptions {
    /// The configuration, with drop-ins in FILE.d, see roster.toml(5)
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/roster/roster.toml",
        value_hint = ValueHint::FilePath
    )]
    pub config: PathBuf,

    /// Where snapshot and caches are [default: /var/lib/roster]
    ///
    /// With this option every role runs as the user who starts rosterd, root or not.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub state_dir: Option<PathBuf>,

    /// Where sockets are
    #[arg(
        long,
        value_name = "FOLDER",
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
        /// Which
        name: String,
    },
    #[command(flatten)]
    ForPackagers(PackagerCommand),
}
