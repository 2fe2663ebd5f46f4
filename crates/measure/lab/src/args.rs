// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command-line arguments: the single source of the parser, of `--help`, man pages and completions, and of the keys of a
//! [plan](crate::plan). `commands` implements the subcommands.

use crate::bisect_metric::Metric;
use crate::dlopen::nss_module::NssLookup;
use crate::dlopen::pam::PamStep;
use crate::dns::message::RecordType;
use crate::help_text;
use crate::krb5::{self, crypto::EncType};
use crate::ldap::{ConnectionMode, LdapOp, SearchScope};
use crate::message_engine::Transport;
use crate::net::CloseMode;
use crate::schedule::RateSpec;
use crate::template::Template;
use clap::{Args, Parser, Subcommand, ValueHint};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Load and measure identity services, and warn about misleading figures
///
/// Makes requests to an identity service. In a closed loop each user waits for its reply; in an open loop requests
/// arrive at a fixed rate. Reports the rate, the latencies, and the processor time of client and server. Latencies
/// count from the intended start of a request, so they include stalls of the server. Figures exclude the warm-up. A
/// run warns if the load generator was the limit.
///
/// In values that name an identity, {A..B} is a range of numbers, with leading zeros if A has them. {@FILE} is a line
/// of a file. An n in braces is the number of the request. @FILE as the whole value uses its lines. Each request
/// uses the next value. Write a literal brace twice: {{.
#[derive(Debug, Parser)]
#[command(
    name = "roster-lab",
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
    #[command(flatten)]
    Load(LoadCommand),
    Check(CheckArgs),
    Run(RunArgs),
    Compare(CompareArgs),
    Bisect(Box<BisectArgs>),
    Schemes(Box<SchemesArgs>),
    Trace(TraceArgs),
    Worker(WorkerArgs),
    Locust(LocustArgs),
    Man(ManArgs),
    Completions(CompletionsArgs),
}

/// Loads, which are also the tables of a plan.
#[derive(Debug, Subcommand)]
pub enum LoadCommand {
    Ldap(Box<LdapArgs>),
    Dns(Box<DnsArgs>),
    Krb5(Box<Krb5Args>),
    Nss(Box<NssArgs>),
    Pam(Box<PamArgs>),
    #[command(name = "command")]
    Shell(Box<CommandArgs>),
}

/// Check for pitfalls that make the figures of a run misleading
///
/// Makes only the short comparisons before a run: one identity against many, constant bytes against varied, low load
/// against high, entries before a bind against after, ports, clocks. Each warning has its ratio, its consequence for
/// the figures, and a remedy.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("check"))]
pub struct CheckArgs {
    /// Select the load, with the options of a run
    #[command(subcommand)]
    pub load: LoadCommand,
}

/// Load a directory server over LDAP
///
/// Each user has one connection and one request at a time. With --connections new, each request opens a connection,
/// with TLS and a bind as --bind-dn if set. Its latency includes all of that.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("ldap"))]
pub struct LdapArgs {
    /// Set the server: ldap://HOST:PORT, or ldaps:// for TLS from the first byte
    #[arg(long, value_name = "URI", value_hint = ValueHint::Url)]
    pub uri: String,

    /// Select the LDAP operation
    #[arg(long, value_enum, default_value = "bind")]
    pub op: LdapOp,

    /// Set the target DN: bind DN, search base, or entry to compare or modify
    #[arg(long, value_name = "DN")]
    pub dn: Template,

    /// Set the password of --dn for --op bind; @FILE hides it from the list of processes
    #[arg(
        long,
        value_name = "PASSWORD",
        required_unless_present = "op",
        required_if_eq("op", "bind")
    )]
    pub password: Option<Template>,

    /// Set the search filter
    #[arg(long, value_name = "FILTER", default_value = "(objectClass=*)")]
    pub filter: String,

    /// Set the search scope
    #[arg(long, value_enum, default_value = "base")]
    pub scope: SearchScope,

    /// Request these attributes, comma-separated [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub attributes: Vec<String>,

    /// Set the attribute and value to compare or to modify
    #[arg(
        long,
        value_name = "ATTRIBUTE=VALUE",
        required_if_eq_any([("op", "compare"), ("op", "modify")])
    )]
    pub value: Option<String>,

    /// Bind connections as this DN before the first request [default: anonymous]
    #[arg(long, value_name = "DN", requires = "bind_password")]
    pub bind_dn: Option<Template>,

    /// Set the password of --bind-dn
    #[arg(long, value_name = "PASSWORD", requires = "bind_dn")]
    pub bind_password: Option<Template>,

    /// Reuse connections, or open one for each request
    #[arg(long, value_enum, default_value = "reuse")]
    pub connections: ConnectionMode,

    /// Use StartTLS
    #[arg(long)]
    pub start_tls: bool,

    /// Trust these CA certificates, in PEM [default: those of the host]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_ca: Option<PathBuf>,

    #[command(flatten)]
    pub network: NetworkArgs,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// Load a DNS server
///
/// Each user has one query in flight. A name that does not exist, and every code except NOERROR, is a failure of its
/// own kind.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("dns"))]
pub struct DnsArgs {
    /// Set the server, by address or name [default port: 53]
    #[arg(long, value_name = "HOST:PORT")]
    pub server: String,

    /// Query this name; with --type PTR it may be an address
    #[arg(long, value_name = "NAME")]
    pub name: Template,

    /// Select the record type
    #[arg(long, value_enum, default_value = "A", ignore_case = true)]
    pub r#type: RecordType,

    /// Select the transport
    #[arg(long, value_enum, default_value = "udp")]
    pub protocol: Transport,

    /// Reuse sockets, or open one for each query
    #[arg(long, value_enum, default_value = "reuse")]
    pub connections: ConnectionMode,

    #[command(flatten)]
    pub network: NetworkArgs,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// Load a Kerberos KDC
///
/// Each user has one request in flight. Logins use an encrypted timestamp for pre-authentication. The keys are derived
/// from the passwords before the run, with the salt of the KDC, and with --op tgs each identity logs in once. The
/// figures exclude this setup. No two requests have the same bytes. Replies are not decrypted.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("krb5"))]
pub struct Krb5Args {
    /// Set the KDC, by address or name [default port: 88]
    #[arg(long, value_name = "HOST:PORT")]
    pub kdc: String,

    /// Set the realm
    #[arg(long, value_name = "REALM")]
    pub realm: String,

    /// Select the kind of request
    #[arg(long, value_enum, default_value = "as")]
    pub op: krb5::message::KdcRequestKind,

    /// Set the client principal, without the realm
    #[arg(long, value_name = "NAME")]
    pub principal: Template,

    /// Set the password of --principal; @FILE hides it from the list of processes
    #[arg(long, value_name = "PASSWORD", required_unless_present = "no_preauth")]
    pub password: Option<Template>,

    /// Omit pre-authentication, for principals without the requirement
    #[arg(long, conflicts_with = "password")]
    pub no_preauth: bool,

    /// Request a ticket for this service [default: krbtgt/REALM]
    #[arg(long, value_name = "NAME")]
    pub service: Option<Template>,

    /// Permit these encryption types [default: all four]
    #[arg(long, value_enum, value_name = "KIND", value_delimiter = ',')]
    pub enctype: Vec<EncType>,

    /// Repeat the bytes of each client, to measure the reply cache of the KDC
    #[arg(long)]
    pub same_bytes: bool,

    /// Select the transport
    #[arg(long, value_enum, default_value = "udp")]
    pub protocol: Transport,

    /// Reuse sockets, or open one for each request; MIT's KDC closes a TCP connection after each reply
    #[arg(long, value_enum, default_value = "reuse")]
    pub connections: ConnectionMode,

    #[command(flatten)]
    pub network: NetworkArgs,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// Measure lookups of users and groups
///
/// Calls getpwnam_r(3), getgrnam_r(3) and related functions in this process, by nsswitch.conf(5), or the functions of
/// one NSS module. Each user has its own thread. Numeric keys are ids. A missing entry is a failure.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("nss"))]
pub struct NssArgs {
    /// Select the kind of lookup
    #[arg(long, value_enum)]
    pub lookup: NssLookup,

    /// Look up this name or id; for initgroups, the name of a user
    #[arg(long, value_name = "KEY")]
    pub key: Template,

    /// Call this module directly, without the C library: libnss_NAME.so.2
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub module: Option<PathBuf>,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// Measure logins through PAM
///
/// Calls pam_start(3) to pam_end(3) in this process, as login programs do. Each user has its own thread. Prompts of
/// modules get the password. The latency includes the delay of modules after a wrong password.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("pam"))]
pub struct PamArgs {
    /// Set the service, a file of /etc/pam.d
    #[arg(long, value_name = "NAME")]
    pub service: String,

    /// Log in as this user
    #[arg(long, value_name = "NAME")]
    pub user: Template,

    /// Set the password; @FILE hides it from the list of processes
    #[arg(long, value_name = "PASSWORD")]
    pub password: Template,

    /// Perform these steps of a login
    #[arg(
        long,
        value_enum,
        value_name = "STEP",
        value_delimiter = ',',
        default_value = "auth,account"
    )]
    pub steps: Vec<PamStep>,

    /// Read services from this directory instead of /etc/pam.d
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub config_folder: Option<PathBuf>,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// Run a command repeatedly, in concurrent processes
///
/// Starts the command without a shell and with an empty standard input, and discards its output. Its arguments may
/// vary like identities. The latency is the time from its start to its end. The time of a process that does nothing,
/// true(1), is measured at the same load and reported separately. An exit code other than 0 is a failure. roster-lab
/// compare compares the reports of several commands or hosts. Reports contain the command, without values after -w
/// and after names such as --password and PASSWORD=. Write other secrets into a file.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("command"))]
pub struct CommandArgs {
    /// Run this command with its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<Template>,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of connections.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub struct NetworkArgs {
    /// Connect from these addresses of this host, in turn
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub source: Vec<IpAddr>,

    /// Close connections in this way
    #[arg(long, value_enum, default_value = "normal")]
    pub close: CloseMode,
}

/// Options of every load.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Load")]
pub struct CommonArgs {
    /// Simulate this number of users, each with one request at a time; a comma-separated list runs once per value. With
    /// --rate: maximum requests in flight [default: 16; nss: number of CPUs; with --rate: 64]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub users: Vec<u32>,

    /// Wait between a reply and the next request of a user
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0", conflicts_with = "rate")]
    pub think: Duration,

    /// Make R requests per second, independent of replies; a list runs once per value, and A..B changes the rate
    /// during the run
    #[arg(long, value_name = "R")]
    pub rate: Option<RateSpec>,

    /// Search the highest rate, from --rate on, with a 99th percentile of at most this time
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "rate")]
    pub knee: Option<Duration>,

    /// Permit this share of failed requests below the knee
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0.01", requires = "knee")]
    pub knee_failures: f64,

    /// Measure for this time, in each run
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10")]
    pub duration: Duration,

    /// Run for this time before, excluded from the figures
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1")]
    pub warm_up: Duration,

    /// Set the duration of each pre-run check; 0 disables them
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0.5")]
    pub probe: Duration,

    /// Fail a request without a reply after this time
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10")]
    pub timeout: Duration,

    /// Distribute users over this number of threads; nss and pam have one for each user [default: 1; command: number
    /// of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,

    /// Report processor time and memory of this process, a server on this host
    #[arg(long, value_name = "PID", help_heading = "Report")]
    pub server_pid: Option<u32>,

    /// Report the same of this systemd unit
    #[arg(long, value_name = "UNIT", help_heading = "Report", conflicts_with = "server_pid")]
    pub server_unit: Option<String>,

    /// Write the report as JSON to this file, or with - to the standard output instead of text
    #[arg(long, value_name = "FILE", help_heading = "Report", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,

    /// Write all percentiles to this file, in the format of HDR histogram plotters
    #[arg(long, value_name = "FILE", help_heading = "Report", value_hint = ValueHint::FilePath)]
    pub hdr: Option<PathBuf>,

    /// Write a self-contained page with charts to this file
    #[arg(long, value_name = "FILE", help_heading = "Report", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Hide the live view
    #[arg(long, help_heading = "Report")]
    pub quiet: bool,
}

/// Run a plan
///
/// A plan is a TOML file with one table, which has the name of a load. Its keys are the options of that command
/// without their dashes. Options after the file replace those in it.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("run"))]
pub struct RunArgs {
    /// Make only the pre-run checks, like roster-lab check
    #[arg(long)]
    pub check: bool,

    /// Read this plan
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,

    /// Replace options of the plan
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    pub options: Vec<OsString>,
}

/// Compare runs by their reports
///
/// Prints a table of reports that runs wrote with --json. For each later report, prints its difference from the first
/// report and the confidence. In a curve, the run with the highest rate counts. With one run of each, the confidence
/// comes from the spread within a run, which excludes differences between two starts of a server. With at
/// least five runs of each name, it comes from the spread between the runs.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("compare"))]
pub struct CompareArgs {
    /// Compare these reports with the first one
    #[arg(value_name = "FILE", required = true, num_args = 1..=64, value_hint = ValueHint::FilePath)]
    pub reports: Vec<PathBuf>,

    /// Label the reports, comma-separated; reports with the same label are repeated runs [default: file names]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub names: Vec<String>,

    /// Write a self-contained page with charts to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Write the charts as a PNG picture to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub png: Option<PathBuf>,
}

/// Find the release that changed a figure
///
/// Measures releases between a good and a bad one, always the one in the middle: installs it with a command, and runs
/// a plan. A release counts as good or bad by the nearer figure, measured as a ratio. Releases that cannot be installed or
/// measured are skipped. The state is saved after each release, and the same command continues from it.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("bisect"))]
pub struct BisectArgs {
    /// List the releases in their order, comma-separated; @FILE reads the lines of a file
    #[arg(long, value_name = "VERSION", value_parser = versions, required = true)]
    pub versions: Versions,

    /// Name a release with a good figure
    #[arg(long, value_name = "VERSION")]
    pub good: String,

    /// Name a release with a bad figure
    #[arg(long, value_name = "VERSION")]
    pub bad: String,

    /// Install a release with this shell command; {version} is replaced by its name. A server must run in the background
    /// and be reachable when the command ends
    #[arg(long, value_name = "COMMAND")]
    pub cmd: String,

    /// Measure each release with this plan
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,

    /// Compare this figure; of a curve, the one of the run with the highest rate
    #[arg(long, value_enum, default_value = "rate")]
    pub figure: Metric,

    /// Permit this share of failed requests; a release with more is untestable
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0.01")]
    pub failures: f64,

    /// Fail a command after this time
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub cmd_timeout: Duration,

    /// Save the state in this file
    #[arg(long, value_name = "FILE", default_value = "bisect.json", value_hint = ValueHint::FilePath)]
    pub state: PathBuf,
}

/// Releases in their order.
pub type Versions = std::sync::Arc<[String]>;

/// Parses a comma-separated list, or the lines of a file.
fn versions(text: &str) -> Result<Versions, String> {
    let read;
    let words: Vec<&str> = match text.strip_prefix('@') {
        Some(path) => {
            read = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            read.lines().collect()
        }
        None => text.split(',').collect(),
    };
    let words = words.into_iter().map(str::trim).filter(|word| !word.is_empty());
    Ok(words.map(str::to_owned).collect())
}

/// Compare password storage schemes of a 389 Directory Server
///
/// Measures binds with each scheme of the server, with test users below --base that are removed afterwards. Ranks the
/// schemes by strength and rate, and recommends one for administrators and one for users. During the measurement the
/// server does not upgrade hashes on bind, and applies policies of single entries. Both changes are undone, also after
/// Ctrl-C, errors and the end of the terminal. The entry cn=roster-lab schemes,cn=config records them, and the next run
/// undoes the changes of a killed run. Other passwords stay unchanged.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("schemes"))]
pub struct SchemesArgs {
    /// Set the server: ldap://HOST:PORT, or ldaps:// for TLS from the first byte
    #[arg(value_name = "URI", value_hint = ValueHint::Url)]
    pub uri: String,

    /// Create the test users below this entry, and read its stored passwords
    #[arg(long, value_name = "DN")]
    pub base: String,

    /// Bind as this DN, with permission to change cn=config
    #[arg(long, value_name = "DN", default_value = "cn=Directory Manager")]
    pub bind_dn: String,

    /// Set the password of --bind-dn; @FILE hides it from the list of processes
    #[arg(long, value_name = "PASSWORD")]
    pub bind_password: Template,

    /// Trust these CA certificates, in PEM [default: those of the host]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_ca: Option<PathBuf>,

    /// Measure only these schemes, comma-separated
    #[arg(long, value_name = "SCHEME", value_delimiter = ',')]
    pub only: Vec<String>,

    /// Bind with this number of concurrent users
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub users: u32,

    /// Create this number of test users, more than a server caches
    #[arg(long, value_name = "N", default_value = "200", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub identities: u64,

    /// Measure each scheme for this time
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "3")]
    pub duration: Duration,

    /// Recommend schemes for this expected peak of binds per second
    #[arg(long, value_name = "R", default_value = "100")]
    pub binds: f64,

    /// Report the processor time of this process, a server on this host
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,

    /// Report the same of this systemd unit
    #[arg(long, value_name = "UNIT", conflicts_with = "server_pid")]
    pub server_unit: Option<String>,

    /// Store new passwords with this scheme from now on
    #[arg(long, value_name = "SCHEME")]
    pub apply: Option<String>,

    /// Limit --apply and the list of old passwords to this subtree
    #[arg(long, value_name = "DN")]
    pub subtree: Option<String>,

    /// List users with passwords in other schemes [default: the scheme of --apply]
    #[arg(long, value_name = "SCHEME", conflicts_with = "apply")]
    pub not_using: Option<String>,

    /// Skip the measurement
    #[arg(long)]
    pub no_measure: bool,

    /// Undo changes left by a killed run, then exit
    #[arg(long, conflicts_with_all = ["apply", "not_using", "json"])]
    pub undo: bool,

    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// Show the times of requests by stage
///
/// Reads the probes of rosterd's processes with bpftrace, and joins their events by request. The stages are the
/// responder, the bus, the publisher, a backend, and its directory. Only requests to the daemon for on-demand domains
/// have events; lookups in the snapshot cause no events. Requires root, and a kernel with uprobes and BPF. Ctrl-C ends the trace
/// with a report.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("trace"))]
pub struct TraceArgs {
    /// Trace the rosterd of this process, or with --sssd this backend [default: the running one, or all backends]
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,

    /// Trace for this time
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10")]
    pub duration: Duration,

    /// Trace the backends of SSSD: requests, the LDAP provider, searches, the cache
    #[arg(long)]
    pub sssd: bool,

    /// Write the report as JSON to this file, or with - to the standard output instead of text
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,

    /// Write a self-contained page with box plots to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Hide the progress
    #[arg(long)]
    pub quiet: bool,
}

/// Make the requests of a Locust master
///
/// Serves a master of Locust 2 like its own workers, and makes the requests of its users in a closed loop. The master's
/// file defines the load of a user class with the Python package roster_locust; otherwise --plan does. The master's
/// page, charts, CSV and HTML work as usual. When the master ends, the worker completes its requests, waits up to 5 s
/// for a restart of the master, and ends.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("worker"))]
pub struct WorkerArgs {
    /// Connect to this master [default port: 5557]
    #[arg(long, value_name = "HOST:PORT")]
    pub master: String,

    /// Use this plan for user classes without a load
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plan: Option<PathBuf>,

    /// Allow the master to run commands and load modules as this user
    #[arg(long)]
    pub allow_commands: bool,

    /// Read user classes, commands and modules only from this JSON file, and ignore definitions of the master (used by
    /// roster-lab locust)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["plan", "allow_commands"])]
    pub classes: Option<PathBuf>,

    /// Connect to the loaded servers from these addresses of this host, in turn
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub source: Vec<IpAddr>,

    /// Use this number of threads for each user class
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,

    /// Try to reach the master for this time
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "60")]
    pub patience: Duration,
}

/// Start a Locust master with its page, and workers
///
/// Starts Locust as the master with a Python that has it (pip install locust), and workers of roster-lab for classes of
/// roster_locust. All processes end together, even if this command is killed.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("locust"))]
pub struct LocustArgs {
    /// Read this locustfile
    #[arg(long, value_name = "FILE", default_value = "locustfile.py", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Start this number of workers [default: one for each --source, or number of CPUs less one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,

    /// Connect from these addresses of this host, one for each worker
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub source: Vec<IpAddr>,

    /// Serve the page at this address
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8089")]
    pub web: std::net::SocketAddr,

    /// Set the port of the master for its workers, on this host only
    #[arg(long, value_name = "PORT", default_value = "5557")]
    pub port: u16,

    /// Use this Python, which has Locust
    #[arg(long, value_name = "FILE", default_value = "python3", value_hint = ValueHint::ExecutablePath)]
    pub python: PathBuf,

    /// Pass these options to Locust, after --
    #[arg(value_name = "OPTION", last = true)]
    pub options: Vec<OsString>,
}

/// Write the man pages into a directory
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("man"))]
pub struct ManArgs {
    /// Write into this directory, created if missing
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}

/// Print a completion script
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("completions"))]
pub struct CompletionsArgs {
    /// Select the shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: clap_complete::Shell,
}

/// Maximum duration of options, a day. Sums of such times do not overflow.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

/// Parses a time: `5`, `0.5`, `500ms`, `5s`, `2m`, `1h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let at =
        text.find(|char: char| char.is_ascii_alphabetic() || char == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let scale = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{unit:?} is not a unit of time. Write us, ms, s, m or h.")),
    };
    let seconds = number.trim().parse::<f64>().ok().map(|number| number * scale);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let duration =
        duration.ok_or_else(|| format!("{text:?} is not a time. Write 10, 0.5, 500ms or 2m."))?;
    if duration > DURATION_MAX { Err(format!("{text:?} is more than a day")) } else { Ok(duration) }
}

/// Parses a share from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is not a share. Write a number from 0 to 1."))
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
    fn times_are_seconds_unless_they_say_otherwise() {
        for (text, micros) in [
            ("10", 10_000_000),
            ("0.5", 500_000),
            ("250ms", 250_000),
            ("30us", 30),
            ("2m", 120_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "s", "-1", "5 days", "nan", "25h", "1x"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_an_operation_needs_is_asked_for() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map_err(|e| e.to_string());
        let line = "roster-lab ldap --uri ldap://h --dn cn=x";
        assert!(parse(line).unwrap_err().contains("--password"));
        assert!(parse(&format!("{line} --op modify")).unwrap_err().contains("--value"));
        assert!(
            parse(&format!("{line} --op search --bind-dn cn=y"))
                .unwrap_err()
                .contains("--bind-password")
        );
        assert!(parse(&format!("{line} --op search")).is_ok());
        let knee = format!("{line} --password p --rate 5 --knee 5ms --knee-failures");
        assert!(parse(&format!("{knee} 0.5")).is_ok());
        for share in ["1.5", "-1", "nan", "x"] {
            assert!(parse(&format!("{knee}={share}")).unwrap_err().contains("is not a share"));
        }
        assert!(parse(&format!("{line} --password p --knee 5ms")).unwrap_err().contains("--rate"));
    }
}
