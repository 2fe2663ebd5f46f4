// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of `roster`: the only source of the parser, `--help`, man pages and completions. [`help_text`] has the
//! other text of help.

use crate::generate::{Corpus, ENTRIES_MAX, MembershipShape};
use crate::get::Database;
use crate::help_text;
use crate::paths::{CONFIG, KRB5_CONF, NSSWITCH, RUN_DIR, SSSD_CACHE_DIR, SSSD_CONF};
use crate::snapshot_file::DEFAULT_SNAPSHOT;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Compile, show, check and enable snapshots of users and groups, and query rosterd
///
/// A snapshot is a compact file with users and groups. Programs with glibc read it in their own
/// process through the name service `roster`. This program compiles snapshots from passwd(5) and
/// group(5) files, shows and verifies them, and adds the service to nsswitch.conf(5). rosterd(8)
/// mirrors directories into the snapshot; this program shows its state.
#[derive(Debug, Parser)]
#[command(
    name = "roster",
    version,
    styles = roster_cli_docs::STYLES,
    max_term_width = 80,
    after_long_help = help_text::after_help("")
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Compile(CompileArgs),
    Inspect(InspectArgs),
    Verify(VerifyArgs),
    Get(GetArgs),
    Enable(EnableArgs),
    Disable(DisableArgs),
    Doctor(DoctorArgs),
    Status(StatusArgs),
    Domain(DomainArgs),
    Cache(CacheArgs),
    Access(AccessArgs),
    SshKeys(SshKeysArgs),
    LogLevel(LogLevelArgs),
    CheckConfig(CheckConfigArgs),
    MigrateConfig(MigrateConfigArgs),
    Explain(ExplainArgs),
    Nscd(NscdArgs),
    /// Query the name services of the host for roster nscd
    #[command(hide = true, after_long_help = help_text::after_help("nscd"))]
    NscdHelper,
    /// Start helpers of roster nscd
    #[command(hide = true, after_long_help = help_text::after_help("nscd"))]
    NscdStarter,
    Generate(GenerateArgs),
    Man(ManArgs),
    Completions(CompletionsArgs),
}

/// Print cause and fix of a message's code
///
/// Errors, warnings, findings and refusals end with a code such as [RST-1001]. The same rows are in
/// docs/reference/messages.md, and `journalctl -x` shows them.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("explain"))]
pub struct ExplainArgs {
    /// Explain these codes, such as RST-1001 or 1001
    #[arg(value_name = "CODE", required = true)]
    pub codes: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Compile passwd and group files into a snapshot
///
/// The snapshot has the same entries in the same order as the `files` service of glibc for the same
/// files. The command skips lines that `files` skips, and reports them on standard error with file,
/// line and reason. It also reports entries that no lookup reaches because an earlier entry has the
/// same name or id. The new file replaces the old one atomically. Running programs use it within
/// 100 ms. After an error the old file stays in place.
///
/// Password hashes are written to a separate file with mode 0640. If root runs the command, the file
/// belongs to group `shadow`.
///
/// The command accepts any valid source: an empty file becomes a snapshot without users. If a program
/// creates the sources, check its exit status first (`set -o pipefail`).
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("compile"))]
pub struct CompileArgs {
    /// Read users from FILE, in the format of passwd(5)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub passwd: PathBuf,

    /// Read groups from FILE, in the format of group(5)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub group: PathBuf,

    /// Read password hashes from FILE, in the format of shadow(5)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub shadow: Option<PathBuf>,

    /// Write or replace this snapshot
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,

    /// Write password hashes to this file [default: shadow.v3.snap in the directory of --output;
    /// /var/lib/roster/shadow/shadow.v3.snap for the default snapshot]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "shadow")]
    pub shadow_output: Option<PathBuf>,

    /// Print the report as JSON, with all remarks
    #[arg(long)]
    pub json: bool,
}

/// Show the content of a snapshot
///
/// Prints the header, counts, sections with their sizes, the largest group, the user with most
/// groups, and the buffers that getpwnam_r(3) and getgrnam_r(3) need for any entry. The command reads
/// every record, but does not verify the file: see `roster verify`.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("inspect"))]
pub struct InspectArgs {
    /// Read this snapshot
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Verify all of a snapshot
///
/// Checks every checksum, offset and list, and that lookups find every entry by name and id. Lookups
/// check the records that they read. This command finds damage before they do.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("verify"))]
pub struct VerifyArgs {
    /// Read this snapshot
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Look up entries in a snapshot, as getent does in the system
///
/// Output and exit status are those of getent(1), so that you can compare both. Numbers are ids.
/// Without a key the command prints all entries, in the order of the source. A missing or damaged
/// snapshot is an error with a message; getent reports "not found" instead.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("get"))]
pub struct GetArgs {
    /// Search passwd, group, initgroups (supplementary groups of a user) or shadow
    #[arg(value_name = "DATABASE", value_enum)]
    pub database: Database,

    /// Look up these names or ids
    #[arg(value_name = "KEY")]
    pub keys: Vec<OsString>,

    /// Read this snapshot; for shadow, its file of password hashes
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        env = "ROSTER_SNAPSHOT",
        default_value = DEFAULT_SNAPSHOT
    )]
    pub snapshot: PathBuf,

    /// Print each entry as a line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Add roster to nsswitch.conf
///
/// Adds `roster` behind `files` on the passwd and group lines, so that local accounts have priority.
/// On an existing initgroups line it also adds `[SUCCESS=continue]` to the services before `roster`.
/// Otherwise a user in a local group would lose all groups of the snapshot. Without an initgroups
/// line, glibc asks all services of the group line. Other services, such as systemd or sss, stay
/// behind `roster`.
///
/// Prints the change as a diff. Replaces the file atomically, keeps its owner, mode and labels, and
/// writes a backup to the same directory. A second run changes nothing.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("enable"))]
pub struct EnableArgs {
    #[command(flatten)]
    pub edit: NsswitchEditArgs,

    /// Add `roster` to the shadow line too, to serve password hashes
    ///
    /// Few hosts need this: users then log in with a password hash of the snapshot, after `roster
    /// compile --shadow`.
    #[arg(long)]
    pub shadow: bool,
}

/// Remove roster from nsswitch.conf
///
/// Undoes `roster enable`. Restores a file byte for byte if it was not edited since. Otherwise only
/// `roster` is removed. Prints the change as a diff.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("disable"))]
pub struct DisableArgs {
    #[command(flatten)]
    pub edit: NsswitchEditArgs,
}

#[derive(Debug, Args)]
pub struct NsswitchEditArgs {
    /// Edit this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = NSSWITCH)]
    pub file: PathBuf,

    /// Print the change without editing the file
    ///
    /// The exit status is 2 if there is a change to make, otherwise 0.
    #[arg(long)]
    pub dry_run: bool,
}

/// Find the faults that keep programs from the snapshot
///
/// Checks the order of services in nsswitch.conf, the NSS module, and the snapshot with its
/// permissions and content. Checks rosterd if it is configured, the PAM stacks in /etc/pam.d, a
/// running nscd, AppArmor and SELinux. If the module is installed, getent(1) looks up a user through it.
/// The command changes nothing. It shows the age of the snapshot, and evaluates it only if rosterd
/// should publish. The mark of a finding is ✓ (no fault), ! (warning) or ✗ (problem). Warnings and
/// problems have a fix and a code. Run the command as root to make all checks.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("doctor"))]
pub struct DoctorArgs {
    /// Examine the system in this directory, such as a mounted image
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, default_value = "/")]
    pub root: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The location of a running rosterd.
#[derive(Debug, Args)]
pub struct BusArgs {
    /// Connect to the sockets of the daemon in this directory
    #[arg(
        long,
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        env = "ROSTER_RUN_DIR",
        default_value = RUN_DIR
    )]
    pub run_dir: PathBuf,
}

/// Show the state of rosterd: roles, domains, snapshot
///
/// Shows the snapshot with its generation and age, each domain with its state, server, entries and
/// last change, and each process of the daemon. Below are the findings with fix and code, marked
/// ! (warning) or ✗ (problem). Examples are an unreachable directory, a process that restarts, a
/// rejected configuration, and rejected entries with the reason. Lookups do not need the daemon:
/// programs read the published snapshot.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("status"))]
pub struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// Show the domains of rosterd, and send requests to one
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("domain"))]
pub struct DomainArgs {
    #[command(subcommand)]
    pub command: DomainCommand,
}

#[derive(Debug, Subcommand)]
pub enum DomainCommand {
    /// List the domains in order of priority
    #[command(after_long_help = help_text::after_help("domain list"))]
    List(ListDomainsArgs),
    /// Show the state of one domain
    #[command(after_long_help = help_text::after_help("domain show"))]
    Show(ShowDomainArgs),
    /// Connect to the directory again and read all of it
    ///
    /// rosterd follows changes, so this is rarely needed: for a directory that is reachable again, or
    /// that was restored from a backup. The command returns immediately. rosterd serves the previous
    /// entries until the read is complete.
    #[command(after_long_help = help_text::after_help("domain refresh"))]
    Refresh(DomainNameArgs),
    /// List rejected entries by reason
    ///
    /// The backend rejects entries that it cannot parse as users or groups. The publisher rejects ids
    /// outside the limits, names and ids of local accounts or of a higher-priority domain, primary
    /// groups of a higher-priority domain, and invalid names. The command shows each reason with the
    /// number of entries, some of them, and the fix.
    #[command(after_long_help = help_text::after_help("domain rejected"))]
    Rejected(RejectedArgs),
    /// Approve held removals of entries
    ///
    /// rosterd holds removals of many entries at once, and serves these entries. For entries that
    /// disappeared without a notification the limit is 3, and 2 % of the users or groups of the domain
    /// within ten minutes. For deletions it is mass_deletion_threshold in roster.toml(5). The command
    /// searches for each entry again, removes the absent ones, and prints how many were removed and how
    /// many stay. To keep the entries, fix the directory: rosterd searches again every minute.
    #[command(after_long_help = help_text::after_help("domain approve-removals"))]
    ApproveRemovals(DomainNameArgs),
    /// Compare users and groups with the cache of SSSD
    ///
    /// Reads the cache files of SSSD, which may run, and the snapshot. Lists each difference in name, uid,
    /// gid, gecos, home, shell, groups and members. SSSD has only entries that programs asked for, unless it
    /// enumerates: entries that only Roster has are counted. Expired entries are counted and not compared.
    /// Groups of a user are compared if SSSD has looked them up. The settings of sssd.conf for homes, shells
    /// and hidden names apply to the cache. The command changes nothing and needs no daemon. Run it as
    /// root.
    ///
    /// If SSSD computes ids from SIDs, the command first prints the id_slice of the domain, also without a
    /// snapshot.
    #[command(after_long_help = help_text::after_help("domain compare-ids"))]
    CompareIds(CompareIdsArgs),
}

impl DomainCommand {
    /// Returns the directory of the daemon's sockets. `None` for a command without a daemon.
    pub fn run_dir(&self) -> Option<&Path> {
        let bus = match self {
            Self::CompareIds(_) => return None,
            Self::List(args) => &args.bus,
            Self::Show(args) => &args.bus,
            Self::Refresh(args) | Self::ApproveRemovals(args) => &args.bus,
            Self::Rejected(args) => &args.bus,
        };
        Some(&bus.run_dir)
    }
}

#[derive(Debug, Args)]
pub struct ListDomainsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

#[derive(Debug, Args)]
pub struct ShowDomainArgs {
    /// Select this domain
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

#[derive(Debug, Args)]
pub struct DomainNameArgs {
    /// Select this domain
    #[arg(value_name = "NAME")]
    pub name: String,

    #[command(flatten)]
    pub bus: BusArgs,
}

#[derive(Debug, Args)]
pub struct RejectedArgs {
    /// Select this domain
    #[arg(value_name = "NAME")]
    pub name: String,

    /// List every entry, one on each line
    #[arg(long, conflicts_with = "json")]
    pub all: bool,

    /// Print all entries as JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// Daemons with a cache that `compare-ids` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheOwner {
    Sssd,
}

#[derive(Debug, Args)]
pub struct CompareIdsArgs {
    /// Compare the entries of this domain of Roster
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Read the cache of this daemon
    #[arg(long, value_name = "DAEMON", value_enum)]
    pub with: CacheOwner,

    /// Read this domain of SSSD [default: the same name in any case]
    #[arg(long, value_name = "NAME")]
    pub sssd_domain: Option<String>,

    /// Read the cache files in this directory
    #[arg(
        long,
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        default_value = SSSD_CACHE_DIR
    )]
    pub cache_dir: PathBuf,

    /// Apply the settings for homes, shells and hidden names of this file and of conf.d beside it
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = SSSD_CONF
    )]
    pub sssd: PathBuf,

    /// Read this snapshot
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        env = "ROSTER_SNAPSHOT",
        default_value = DEFAULT_SNAPSHOT
    )]
    pub snapshot: PathBuf,

    /// Compare expired entries of the cache too
    #[arg(long)]
    pub expired: bool,

    /// Count entries that only Roster has as differences, for an SSSD that enumerates
    #[arg(long)]
    pub enumerated: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Show or expire the cached data of users and groups
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("cache"))]
pub struct CacheArgs {
    #[command(subcommand)]
    pub command: CacheCommand,
}

#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Show the entries of a name in each domain, with the reason of a rejection
    ///
    /// Programs see the output of `getent`. This command shows the entries behind it. It finds directory
    /// entries that cannot be parsed by the value of their RDN.
    #[command(after_long_help = help_text::after_help("cache show"))]
    Show(ShowEntryArgs),
    /// Expire cached entries and query the directory again
    ///
    /// For on-demand domains, the command removes the cached entries and queries the directory. Mirrored
    /// domains are up to date; there the command reads all entries again. The command fails if no domain
    /// has one of the names.
    #[command(after_long_help = help_text::after_help("cache expire"))]
    Expire(ExpireArgs),
    /// List users with cached credentials for offline logins
    ///
    /// Shows the expiration of each credential, and the wrong passwords since the last online login.
    /// Hashes are never shown. `roster cache expire --credentials` removes credentials.
    #[command(after_long_help = help_text::after_help("cache credentials"))]
    Credentials(ListCredentialsArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EntryMap {
    User,
    Group,
}

impl fmt::Display for EntryMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Group => "group",
        })
    }
}

#[derive(Debug, Args)]
pub struct ShowEntryArgs {
    /// Select the type of the entry: user or group
    #[arg(value_name = "user|group", value_enum)]
    pub map: EntryMap,

    /// Show the user or group of this name
    #[arg(value_name = "NAME")]
    pub name: String,

    /// Print JSON, with all groups or members
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["user", "group", "all"])))]
pub struct ExpireArgs {
    /// Expire this user; repeat the option for more users
    #[arg(long, value_name = "NAME")]
    pub user: Vec<String>,

    /// Expire this group; repeat the option for more groups
    #[arg(long, value_name = "NAME")]
    pub group: Vec<String>,

    /// Expire everything
    #[arg(long, conflicts_with_all = ["user", "group"])]
    pub all: bool,

    /// Remove cached credentials instead, of these users or with --all of all users
    ///
    /// Offline login works again after each user has logged in once while the directory is reachable.
    #[arg(long, conflicts_with = "group")]
    pub credentials: bool,

    /// Select this domain only
    #[arg(long, value_name = "NAME")]
    pub domain: Option<String>,

    #[command(flatten)]
    pub bus: BusArgs,
}

#[derive(Debug, Args)]
pub struct ListCredentialsArgs {
    /// Select this domain only
    #[arg(long, value_name = "NAME")]
    pub domain: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// Show whether a user may log in to this host, rule by rule
///
/// Sends the request of pam_roster(8) for a login, and shows every rule with its input: lists of users
/// and groups, the filter, and the account data of the directory. Every rule must allow the login. The
/// rules are those of the table access of the domain in roster.toml(5). The command checks no password
/// without --password. Only root may run it.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("access"))]
pub struct AccessArgs {
    /// Check this user
    #[arg(value_name = "USER")]
    pub user: String,

    /// Check logins by this PAM service, a file name in /etc/pam.d
    #[arg(long, value_name = "SERVICE", default_value = "sshd")]
    pub service: String,

    /// Check logins from this host, for the account check rhost
    #[arg(long, value_name = "HOST")]
    pub rhost: Option<String>,

    /// Try the password of the user, too
    ///
    /// The command asks for it at a terminal, or else reads one line of standard input. rosterd checks it as
    /// for a login, and the attempt counts: the directory may lock the account after wrong passwords.
    #[arg(long)]
    pub password: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// Print the ssh keys of a user, for AuthorizedKeysCommand of sshd
///
/// The keys come from the cache of the daemon, so they are available while the directory is
/// unreachable. The command omits keys that are malformed or weak, or that have other options than
/// ssh_key_options in roster.toml(5). The log of the daemon names them. Local users, and users that may
/// not log in by sshd, have no keys. Any user may run the command.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("ssh-keys"))]
pub struct SshKeysArgs {
    /// Print the keys of this user
    #[arg(value_name = "USER")]
    pub user: String,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// Show or set the log level of rosterd
///
/// Without arguments, the command shows the level of each role. A role is one process of the daemon, as
/// in `roster status`: monitor, publisher, backend:DOMAIN, responder:NAME. A level alone applies to all
/// roles, also to those that start later. The level lasts until rosterd restarts, or until it reloads a
/// configuration with another level. For a permanent level, set the key level of the table log in
/// roster.toml(5).
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("log-level"))]
pub struct LogLevelArgs {
    /// Select this role [default: all roles]
    #[arg(value_name = "ROLE")]
    pub role: Option<String>,

    /// Set this level
    #[arg(value_name = "LEVEL", value_enum)]
    pub level: Option<LevelName>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// The log levels, from the fewest lines to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LevelName {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LevelName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Check the configuration of rosterd, and list every mistake
///
/// Reads the file and its drop-ins as rosterd does, and the files with passwords and certificates that
/// they name. Prints each mistake with file, line and fix. The command needs no daemon and contacts no
/// directory. It lists users and groups of the snapshot that the configuration would reject, with the
/// key that allows each. Run it as root, which may read the passwords. If rosterd uses another
/// --run-dir, pass the same one.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("check-config"))]
pub struct CheckConfigArgs {
    /// Check this configuration, with drop-ins in FILE.d
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, default_value = CONFIG)]
    pub file: PathBuf,

    /// Print every key with its value and the origin of the value
    #[arg(long)]
    pub explain: bool,

    /// Apply the rules to the users and groups of this snapshot
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = DEFAULT_SNAPSHOT)]
    pub snapshot: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// Convert sssd.conf or nslcd.conf to roster.toml
///
/// Reads sssd.conf with conf.d, or nslcd.conf, and krb5.conf. Prints roster.toml, with a comment for each
/// setting without a counterpart. A setting stops the conversion if it restricts logins or entries and has
/// no counterpart: the command then writes nothing, and lists each such setting with file, line and cure.
/// The result has no passwords. With --output, the password of the reader goes into a file of mode 0600
/// beside the output, which roster.toml names. The command changes no other file, and no service.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("migrate-config"))]
pub struct MigrateConfigArgs {
    /// Convert this file of SSSD, and conf.d/*.conf beside it [default: /etc/sssd/sssd.conf]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "nslcd")]
    pub sssd: Option<PathBuf>,

    /// Convert this file of nslcd [default: /etc/nslcd.conf, if there is no sssd.conf]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub nslcd: Option<PathBuf>,

    /// Read realm and KDCs from this file, if it exists
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = KRB5_CONF
    )]
    pub krb5: PathBuf,

    /// Name the domain of nslcd.conf
    #[arg(long, value_name = "NAME", default_value = "ldap")]
    pub domain: String,

    /// Write FILE, which must not exist, instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,

    /// Leave out this setting although it stops the conversion; repeat the option for more settings
    ///
    /// SETTING is a name such as override_gid, or a section and a name such as domain/corp/override_gid.
    #[arg(long, value_name = "SETTING")]
    pub without: Vec<String>,

    /// Convert a domain of Active Directory although group policies may deny logins
    ///
    /// SSSD applies the logon rights of group policies by default, and Roster does not read them. Write their groups
    /// into the access rules of the domain first.
    #[arg(long)]
    pub ignore_gpo: bool,

    /// Print a report of all settings as JSON: converted, dropped, stopped
    #[arg(long)]
    pub json: bool,
}

/// Serve users and groups through the nscd client of glibc
///
/// Replaces nscd(8). Every glibc program, also static and set-uid ones, first connects to the socket of
/// nscd. It receives a map and reads it without a system call for each lookup. The server builds the
/// map in advance from the passwd and group files and the snapshot, in the order of nsswitch.conf(5). A
/// helper process queries other services of that file, and the server caches their replies. It follows
/// changes of all these files. Programs on musl receive replies over the socket.
///
/// The server needs no daemon and no configuration. It runs in the foreground, and accepts a listening
/// socket as standard input for socket activation. It exits immediately if another process (for example
/// nscd) already serves the socket.
///
/// With --statistics, --invalidate or --shutdown the command sends a request to a running server, also
/// to nscd itself if nscd knows the request.
#[derive(Debug, Args)]
#[command(
    after_long_help = help_text::after_help("nscd"),
    group(ArgGroup::new("request").multiple(false).args(["statistics", "invalidate", "shutdown"]))
)]
pub struct NscdArgs {
    /// Print the statistics of a running server, as root
    #[arg(short = 'g', long)]
    pub statistics: bool,

    /// Rebuild the map of a running server (passwd or group), as root; repeat the option for more maps
    #[arg(short, long, value_name = "TABLE", value_parser = ["passwd", "group", "hosts", "services", "netgroup"])]
    pub invalidate: Vec<String>,

    /// Stop a running server, as root
    #[arg(short = 'K', long)]
    pub shutdown: bool,

    /// Listen on this socket
    #[arg(
        long,
        value_name = "PATH",
        value_hint = ValueHint::FilePath,
        default_value = roster_nscd::server::socket::SOCKET
    )]
    pub socket: PathBuf,

    /// Write the maps to this directory, best a dedicated tmpfs with huge pages; created if missing
    #[arg(
        long,
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        default_value = roster_nscd::server::MAPS_DIR
    )]
    pub maps: PathBuf,

    /// Drop privileges to this user after opening the socket and the map directory; requires root
    ///
    /// This user and roster-nscd-helper, the user of the helper process, must be in the file of --passwd.
    /// Without the option, server and helper run as the user that starts the server.
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Username)]
    pub user: Option<String>,

    /// Read local users from FILE
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "/etc/passwd"
    )]
    pub passwd: PathBuf,

    /// Read local groups from FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "/etc/group")]
    pub group: PathBuf,

    /// Read the order of name services from FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = NSSWITCH)]
    pub nsswitch: PathBuf,

    /// Read this snapshot if nsswitch.conf names roster
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = DEFAULT_SNAPSHOT)]
    pub snapshot: PathBuf,

    /// Reserve this space in each map for replies of other name services; expire all if it is full
    #[arg(
        long,
        value_name = "KIB",
        default_value_t = (roster_nscd::server::map_sources::CACHE_BYTES >> 10) as u32,
        value_parser = clap::value_parser!(u32).range(64..=2 << 20)
    )]
    pub cache_kib: u32,

    /// Cache replies of other name services for this time
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = clap::value_parser!(u32).range(0..=3600)
    )]
    pub positive: u32,

    /// Cache negative replies of other name services for this time
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(0..=3600)
    )]
    pub negative: u32,
}

/// Generate users and groups for tests and benchmarks
///
/// Writes `passwd` and `group` into a directory: users u_1000000, u_1000001 … and groups g_1000000,
/// g_1000001 …. The id of an entry is the number in its name, and the primary group of each user is one
/// of the groups. The same options produce the same files on every machine. The command replaces only
/// files of an earlier corpus.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("generate"))]
pub struct GenerateArgs {
    /// Generate this number of users
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = entries())]
    users: u32,

    /// Generate this number of groups
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = entries())]
    groups: u32,

    /// Set the mean number of members of a group
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = entries())]
    members: u32,

    /// Set the distribution of members over groups
    #[arg(long, value_enum, default_value_t = MembershipShape::Consecutive)]
    shape: MembershipShape,

    /// Set the seed of the random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Write `shadow` too
    #[arg(long)]
    pub shadow: bool,

    /// Write the files into this directory; created if missing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: PathBuf,
}

impl GenerateArgs {
    pub fn corpus(&self) -> Corpus {
        let Self { users, groups, members, shape, seed, .. } = *self;
        Corpus { users, groups, members, shape, seed }
    }
}

fn entries() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=i64::from(ENTRIES_MAX))
}

/// Write the man pages into a directory
///
/// The pages are one for the program and one for each command in section 1, roster.toml(5) and
/// pam_roster(8). Packages and `make install` use the command.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("man"))]
pub struct ManArgs {
    /// Write the pages into this directory; created if missing
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}

/// Print the completion script of a shell
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("completions"))]
pub struct CompletionsArgs {
    /// Generate the script for this shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_and_exit_codes() {
        fn check(command: &clap::Command) {
            for command in command.get_subcommands() {
                let help = command.get_after_long_help().map(ToString::to_string);
                let help = help.unwrap_or_default();
                let name = command.get_name();
                assert!(help.contains("Examples") && help.contains("Exit status"), "{name}");
                assert!(command.get_about().is_some(), "{name}");
                check(command);
            }
        }
        check(&Cli::command());
    }
}
