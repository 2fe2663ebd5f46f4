//! What may be typed: the one source of the parser, of `--help`, man pages and completions.

use crate::generate::{Corpus, ENTRIES_MAX, MembershipShape};
use crate::get::Database;
use crate::help_text;
use crate::paths::{CONFIG, NSSWITCH, RUN_DIR};
use crate::snapshot_file::DEFAULT_SNAPSHOT;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Users and groups from memory: snapshots, and what is needed to serve them
///
/// Roster answers "who is this user, and which groups are they in" from one compact file, the
/// snapshot, that glibc programs read in-process through the name service `roster`. This program
/// makes snapshots from passwd(5) and group(5) text, shows and checks them, and puts the service
/// into nsswitch.conf(5). Where rosterd(8) mirrors directories into the snapshot, it tells how that
/// goes.
#[derive(Debug, Parser)]
#[command(
    name = "roster",
    version,
    styles = roster_cli_docs::STYLES,
    max_term_width = 100,
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
    Explain(ExplainArgs),
    Nscd(NscdArgs),
    /// Ask the host's name services, for a server of maps
    #[command(hide = true, after_long_help = help_text::after_help("nscd"))]
    NscdHelper,
    /// Start helpers of a server of maps
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
    /// Codes, such as RST-1001 or 1001
    #[arg(value_name = "CODE", required = true)]
    pub codes: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Make a snapshot from passwd and group files
///
/// The snapshot answers what glibc's `files` service would answer from the same text, entry by
/// entry and in the same order. Lines that `files` skips are skipped and named on standard error
/// with file, line and reason; so are entries that no look-up reaches because an earlier one has
/// the same name or id. The new file takes the place of the old one in one step: programs that run
/// see it within 100 ms, and an error leaves the old one as it is.
///
/// Password hashes go into a file of their own, mode 0640, for group `shadow` if root runs this.
///
/// There is no judgement here of what the sources hold: an empty file is a snapshot without users.
/// Where a command makes the sources, see to it that its failure is noticed (`set -o pipefail`)
/// before this runs.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("compile"))]
pub struct CompileArgs {
    /// Users, in the format of passwd(5)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub passwd: PathBuf,

    /// Groups, in the format of group(5)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub group: PathBuf,

    /// Password hashes, in the format of shadow(5)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub shadow: Option<PathBuf>,

    /// The snapshot to write or replace
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,

    /// The snapshot of password hashes [default: shadow.v3.snap beside --output; for the default snapshot,
    /// /var/lib/roster/shadow/shadow.v3.snap]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "shadow")]
    pub shadow_output: Option<PathBuf>,

    /// Print the report as JSON, with all remarks on lines
    #[arg(long)]
    pub json: bool,
}

/// Show what a snapshot holds
///
/// Header, counts, sections with their sizes, the largest group, the user with most groups, and
/// the buffer that getpwnam_r(3) and getgrnam_r(3) need for any entry. Reads every record, but
/// does not prove that the file is sound: see `roster verify`.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("inspect"))]
pub struct InspectArgs {
    /// The snapshot
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Read a whole snapshot and prove that it is sound
///
/// Checks every checksum, offset and list, and that every entry is found under its name and id.
/// Look-ups check what they touch by themselves; this is for finding damage before they do.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("verify"))]
pub struct VerifyArgs {
    /// The snapshot
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Look entries up in a snapshot, as getent does in the system
///
/// Output and exit status are those of getent(1), so that the two can be compared. Keys that are
/// numbers are ids. Without a key all entries are printed, in the order of the source. Unlike
/// getent, a snapshot that is missing or damaged is an error with a message, never "not found".
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("get"))]
pub struct GetArgs {
    /// passwd, group, initgroups (the supplementary groups of a user), or shadow
    #[arg(value_name = "DATABASE", value_enum)]
    pub database: Database,

    /// Names or ids
    #[arg(value_name = "KEY")]
    pub keys: Vec<OsString>,

    /// The snapshot; for shadow, the file of password hashes that belongs to it
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

/// Put Roster into nsswitch.conf
///
/// Adds `roster` behind `files` on the passwd and group lines, so that local accounts win. Where
/// there is an initgroups line, `roster` goes there too, and the services around it go on after a
/// success (`[SUCCESS=continue]`): without that, a user in one local group would lose all groups of
/// the snapshot. Where there is none, glibc goes by the group line and asks all of it. Other
/// services, such as systemd or sss, stay on all lines, behind `roster`.
///
/// Prints the change as a diff. The file is replaced in one step and keeps its owner, mode and
/// labels; what it was stays in a backup beside it. Enabling twice changes nothing.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("enable"))]
pub struct EnableArgs {
    #[command(flatten)]
    pub edit: NsswitchEditArgs,

    /// Also serve password hashes: add `roster` to the shadow line
    ///
    /// Not done otherwise, because few hosts need it: it is for users who log in here with a
    /// password out of the snapshot, that is after `roster compile --shadow`.
    #[arg(long)]
    pub shadow: bool,
}

/// Take Roster out of nsswitch.conf
///
/// Undoes `roster enable`: a file that was not edited since is restored byte for byte; from one
/// that was, only Roster goes. Prints the change as a diff.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("disable"))]
pub struct DisableArgs {
    #[command(flatten)]
    pub edit: NsswitchEditArgs,
}

#[derive(Debug, Args)]
pub struct NsswitchEditArgs {
    /// The file to edit
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = NSSWITCH)]
    pub file: PathBuf,

    /// Print the change and leave the file as it is
    #[arg(long)]
    pub dry_run: bool,
}

/// Say what keeps programs from seeing the snapshot
///
/// Looks at the order of services in nsswitch.conf, the module, the snapshot with its rights and
/// content, rosterd if there is a configuration for it, whether the stacks in /etc/pam.d go with what
/// that says of log-ins, a running nscd that hides changes, and at AppArmor and SELinux with what
/// they denied. Where the module is installed, getent(1) looks one user up through it. Changes
/// nothing. The age of the snapshot is shown; it is judged only where rosterd should renew it, as
/// only you know how often another one should come. Each finding is marked ✓ (well), ! (works, with a
/// drawback) or ✗ (a problem), with what to do next. Run it as root to have everything checked.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("doctor"))]
pub struct DoctorArgs {
    /// Examine the system in this folder, such as a mounted image
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, default_value = "/")]
    pub root: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Where a running rosterd is found.
#[derive(Debug, Args)]
pub struct BusArgs {
    /// The folder with the daemon's sockets
    #[arg(
        long,
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        env = "ROSTER_RUN_DIR",
        default_value = RUN_DIR
    )]
    pub run_dir: PathBuf,
}

/// Say how rosterd is: roles, domains, snapshot
///
/// Shows the snapshot with its generation and age, each domain with its directory's state, server,
/// entries and last change, and each process of the daemon. Below are the findings, marked ! (works,
/// with a drawback) or ✗ (a problem), with what to do next: a directory that does not answer, a
/// process that does not stay up, a configuration that is not in force, entries that are rejected and
/// why. Look-ups do not need the daemon: what was published is served without it.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("status"))]
pub struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// Show the directories that rosterd mirrors, and talk to one
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("domain"))]
pub struct DomainArgs {
    #[command(subcommand)]
    pub command: DomainCommand,
}

#[derive(Debug, Subcommand)]
pub enum DomainCommand {
    /// List the domains in order of precedence
    #[command(after_long_help = help_text::after_help("domain list"))]
    List(ListDomainsArgs),
    /// Show all that is known of one domain
    #[command(after_long_help = help_text::after_help("domain show"))]
    Show(ShowDomainArgs),
    /// Connect to the directory and read all of it again
    ///
    /// Not needed in the ordinary run of things, as changes are followed; for a directory that is
    /// known to be back, or that was restored from a backup. Returns at once. What is served goes on
    /// being served until the new reading is whole.
    #[command(after_long_help = help_text::after_help("domain refresh"))]
    Refresh(DomainNameArgs),
    /// List entries that are not served, by reason
    ///
    /// Those that cannot be read as users or groups, and those that may not be served: ids outside
    /// the bounds, names and ids of local accounts or of an earlier domain, primary gids that are groups
    /// of an earlier domain, groups of primary gids of its users, impossible names. Shows
    /// each reason with the number of entries, a few of them, and what to do about it.
    #[command(after_long_help = help_text::after_help("domain rejected"))]
    Rejected(RejectedArgs),
    /// Remove held entries that the directory does not have
    ///
    /// rosterd keeps and serves entries that the directory does not show any more when they are more
    /// than 3 and more than 2 % of the domain's users or groups within ten minutes, and entries that it
    /// names as deleted when they are more than mass_deletion_threshold in roster.toml(5) allows. The command looks
    /// for each of them once more, removes those that are still not there, and says how many go and how
    /// many stay. To keep them, fix the directory: rosterd looks again every minute.
    #[command(after_long_help = help_text::after_help("domain approve-removals"))]
    ApproveRemovals(DomainNameArgs),
}

impl DomainCommand {
    pub fn run_dir(&self) -> &Path {
        let bus = match self {
            Self::List(args) => &args.bus,
            Self::Show(args) => &args.bus,
            Self::Refresh(args) | Self::ApproveRemovals(args) => &args.bus,
            Self::Rejected(args) => &args.bus,
        };
        &bus.run_dir
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
    /// The domain
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
    /// The domain
    #[arg(value_name = "NAME")]
    pub name: String,

    #[command(flatten)]
    pub bus: BusArgs,
}

#[derive(Debug, Args)]
pub struct RejectedArgs {
    /// The domain
    #[arg(value_name = "NAME")]
    pub name: String,

    /// List every entry, a line each
    #[arg(long, conflicts_with = "json")]
    pub all: bool,

    /// Print all entries as JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// Show what rosterd knows of a user or group, or have it asked for again
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("cache"))]
pub struct CacheArgs {
    #[command(subcommand)]
    pub command: CacheCommand,
}

#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Show every entry of a name, in each domain, with why it is not served if it is not
    ///
    /// What programs see is what `getent` prints; this shows the entries behind it.
    #[command(after_long_help = help_text::after_help("cache show"))]
    Show(ShowEntryArgs),
    /// Have entries asked for again
    ///
    /// For domains that are asked on demand: what is remembered of the entries is forgotten, and the
    /// directory is asked. Mirrored domains are up to date by themselves; there it has everything
    /// enumerated anew, to make sure.
    #[command(after_long_help = help_text::after_help("cache expire"))]
    Expire(ExpireArgs),
    /// List whose passwords are kept for when the directory is away
    ///
    /// With the time until which each is believed, and wrong passwords since the last log-in by the
    /// directory. Hashes are never shown. `roster cache expire --credentials` has them forgotten.
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
    /// What it is
    #[arg(value_name = "user|group", value_enum)]
    pub map: EntryMap,

    /// Its name
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
    /// This user; may be given again
    #[arg(long, value_name = "NAME")]
    pub user: Vec<String>,

    /// This group; may be given again
    #[arg(long, value_name = "NAME")]
    pub group: Vec<String>,

    /// Everything
    #[arg(long, conflicts_with_all = ["user", "group"])]
    pub all: bool,

    /// Forget what is kept of passwords instead, of these users or with --all of everybody
    ///
    /// Whoever it is has to log in while the directory answers before it is possible again without.
    #[arg(long, conflicts_with = "group")]
    pub credentials: bool,

    /// In this domain only
    #[arg(long, value_name = "NAME")]
    pub domain: Option<String>,

    #[command(flatten)]
    pub bus: BusArgs,
}

#[derive(Debug, Args)]
pub struct ListCredentialsArgs {
    /// In this domain only
    #[arg(long, value_name = "NAME")]
    pub domain: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// Say whether a user may log in to this host, rule by rule
///
/// Asks what pam_roster(8) asks when the user logs in, and shows every rule with what it saw: lists of
/// users and groups, the filter, and what the directory says of the account. All of them have to allow.
/// The rules are those of the table access of the user's domain in roster.toml(5). Passwords are not
/// looked at. For root.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("access"))]
pub struct AccessArgs {
    /// The user
    #[arg(value_name = "USER")]
    pub user: String,

    /// The PAM service to log in by, as its file in /etc/pam.d is called
    #[arg(long, value_name = "SERVICE", default_value = "sshd")]
    pub service: String,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// Print a user's ssh keys, for AuthorizedKeysCommand of sshd
///
/// The keys are the directory's, as the daemon has them: they are there while the directory is away,
/// too. One that is malformed, weak, or has options in front that ssh_key_options in roster.toml(5)
/// does not name is left out, and named in the daemon's log. Users who may not log in by sshd have none,
/// nor have users of the host. Any user may run this.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("ssh-keys"))]
pub struct SshKeysArgs {
    /// The user
    #[arg(value_name = "USER")]
    pub user: String,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// Show or set how much rosterd logs
///
/// Without arguments, shows the level of each role. A role is one process of the daemon, as `roster
/// status` names it: monitor, publisher, backend:DOMAIN, responder:NAME. With a level alone, sets it
/// for all of them. What is set here holds until the role is started again; for longer, set the key
/// level of the table log in roster.toml(5).
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("log-level"))]
pub struct LogLevelArgs {
    /// The role; all of them if none is given
    #[arg(value_name = "ROLE")]
    pub role: Option<String>,

    /// The new level
    #[arg(value_name = "LEVEL", value_enum)]
    pub level: Option<LevelName>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// From the fewest lines to the most.
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

/// Check rosterd's configuration, with every mistake by line
///
/// Reads the file and its drop-ins as rosterd would, and the files with passwords and certificates that they
/// name, and prints what is wrong, in which file and line, and what to write instead. Needs no daemon and contacts no
/// directory. Lists users and groups of the snapshot that the configuration would refuse, with the key
/// that allows each. Run it as root, which may read the passwords, and with the --run-dir of rosterd if
/// that is another than the usual one.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("check-config"))]
pub struct CheckConfigArgs {
    /// The configuration, with drop-ins in FILE.d
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, default_value = CONFIG)]
    pub file: PathBuf,

    /// Print the configuration with every key written down, and where each value is from
    #[arg(long)]
    pub explain: bool,

    /// Judge the users and groups of this snapshot by the configuration
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = DEFAULT_SNAPSHOT)]
    pub snapshot: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub bus: BusArgs,
}

/// Serve users and groups through glibc's own client of nscd
///
/// Takes the place of nscd(8): every glibc program, static and set-uid ones too, first asks at nscd's
/// socket, and reads the map that it is handed without a system call for each look-up. The map is made
/// before anybody asks, out of the passwd and group files and of the snapshot, in the order of
/// nsswitch.conf(5); other services that stand there are asked by a helper process, and their answers
/// are kept for a while. Changes of all these files are followed. Programs on musl are answered over
/// the socket.
///
/// It needs no daemon and no configuration. It stays in the foreground and takes a listening socket as
/// standard input, if there is one there, for socket activation. It ends at once when somebody else, such
/// as nscd, serves the socket.
///
/// With one of --statistics, --invalidate and --shutdown it tells a server that runs, also nscd's own
/// where it knows the order.
#[derive(Debug, Args)]
#[command(
    after_long_help = help_text::after_help("nscd"),
    group(ArgGroup::new("order").multiple(false).args(["statistics", "invalidate", "shutdown"]))
)]
pub struct NscdArgs {
    /// Print the figures of a server that runs, as root
    #[arg(short = 'g', long)]
    pub statistics: bool,

    /// Have a server make a map anew (passwd or group; it keeps nothing of nscd's other tables), as root; may be given
    /// again
    #[arg(short, long, value_name = "TABLE", value_parser = ["passwd", "group", "hosts", "services", "netgroup"])]
    pub invalidate: Vec<String>,

    /// Have a server end, as root
    #[arg(short = 'K', long)]
    pub shutdown: bool,

    /// Where programs ask
    #[arg(
        long,
        value_name = "PATH",
        value_hint = ValueHint::FilePath,
        default_value = roster_nscd::server::socket::SOCKET
    )]
    pub socket: PathBuf,

    /// Folder of the maps, made if missing, of the server's user alone; a tmpfs of its own, best with huge pages
    #[arg(
        long,
        value_name = "DIR",
        value_hint = ValueHint::DirPath,
        default_value = roster_nscd::server::MAPS_DIR
    )]
    pub maps: PathBuf,

    /// The user of the server, once the socket and the folder are there; only root can become another user
    ///
    /// This user and roster-nscd-helper, the user of the helper process, are in the file of --passwd itself.
    /// Without the option server and helper run as the user that starts the server.
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Username)]
    pub user: Option<String>,

    /// The host's users
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "/etc/passwd"
    )]
    pub passwd: PathBuf,

    /// The host's groups
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "/etc/group")]
    pub group: PathBuf,

    /// The order of name services
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = NSSWITCH)]
    pub nsswitch: PathBuf,

    /// The snapshot; used where nsswitch.conf names roster
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = DEFAULT_SNAPSHOT)]
    pub snapshot: PathBuf,

    /// KiB in each map for answers of other name services; when they are full, all are asked for again
    #[arg(
        long,
        value_name = "KIB",
        default_value_t = (roster_nscd::server::map_sources::CACHE_BYTES >> 10) as u32,
        value_parser = clap::value_parser!(u32).range(64..=2 << 20)
    )]
    pub cache_kib: u32,

    /// For how many seconds an answer of another name service is kept
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = clap::value_parser!(u32).range(0..=3600)
    )]
    pub positive: u32,

    /// For how many seconds it is kept that nobody has a name or id
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(0..=3600)
    )]
    pub negative: u32,
}

/// Invent users and groups, for tests and benchmarks
///
/// Writes `passwd` and `group` into a folder: users u_1000000, u_1000001 … and groups g_1000000,
/// g_1000001 …, each id the number in the name, each user's primary group one of the groups. The
/// same options give the same files on every machine. Files that are no earlier corpus are never
/// overwritten.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("generate"))]
pub struct GenerateArgs {
    /// Number of users
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = entries())]
    users: u32,

    /// Number of groups
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = entries())]
    groups: u32,

    /// Members of a group, on average
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = entries())]
    members: u32,

    /// How members spread over groups
    #[arg(long, value_enum, default_value_t = MembershipShape::Consecutive)]
    shape: MembershipShape,

    /// Start of the random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Write `shadow` too
    #[arg(long)]
    pub shadow: bool,

    /// Folder for the files, made if missing
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

/// Write the man pages into a folder
///
/// One page for the program and one for each command, in section 1, roster.toml(5) and pam_roster(8): for
/// packages, and for `make install`.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("man"))]
pub struct ManArgs {
    /// Folder for the pages, made if missing
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}

/// Print the completion script of a shell
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("completions"))]
pub struct CompletionsArgs {
    /// The shell
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
