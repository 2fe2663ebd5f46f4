//! What may be typed: the one source of the parser, of `--help`, man page and completions.

use clap::{Args, Parser, Subcommand, ValueHint};
use std::path::PathBuf;

/// Mirrors directories into the snapshot of users and groups
///
/// rosterd reads its configuration, starts a message bus of its own and one process for each role:
/// a back-end for every domain, the publisher, which alone writes the snapshot, and responders. What
/// dies is started again.
///
/// SIGHUP makes it read its configuration anew; with a mistake in it the old one goes on. SIGTERM and
/// SIGINT end it in good order.
#[derive(Debug, Parser)]
#[command(name = "rosterd", version, max_term_width = 100, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub options: Options,
}

/// What the monitor runs by.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The configuration, see roster.toml(5)
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/roster/roster.toml",
        value_hint = ValueHint::FilePath
    )]
    pub config: PathBuf,

    /// Where snapshot and caches are [default: /var/lib/roster]
    ///
    /// With this option every role runs as the user who starts rosterd, root or not. Without it,
    /// root gives each role a user of its own.
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

    /// Seconds between two pings of a role
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
}
