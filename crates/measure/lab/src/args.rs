//! What may be typed: the one source of the parser, of `--help`, man pages and completions, and of the
//! keys of a [plan](crate::plan).

use crate::dlopen::nss_module::NssLookup;
use crate::dlopen::pam::PamStep;
use crate::dns::message::RecordType;
use crate::help_text;
use crate::krb5::{self, crypto::EncType};
use crate::ldap::{ConnectionMode, LdapOp, SearchScope};
use crate::message_engine::Transport;
use crate::metric::Metric;
use crate::net::CloseMode;
use crate::schedule::RateSpec;
use crate::template::Template;
use clap::{Args, Parser, Subcommand, ValueHint};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Load and time identity services, and say when a figure is not what it seems
///
/// Makes requests of an identity service as fast as they are answered (a closed loop of users) or at
/// a rate of its own (an open loop), and tells how many were answered, how soon, and what that cost
/// client and server. Latencies count from when a request was meant to start, so that a stall of the
/// server is seen in full; the time of the warm-up is left out. A run says whether the generator
/// itself was the limit.
///
/// Where a value names an identity, {A..B} is a range of numbers (with zeros in front if A has them),
/// {@FILE} a line of a file, and an n in braces the number of the request; @FILE for the whole value
/// takes its lines. Each request takes the next. A brace is written twice: {{.
#[derive(Debug, Parser)]
#[command(
    name = "roster-lab",
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

/// Loads, which a plan may have too.
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

/// Look for traps: what would make the figures of a run other than they seem
///
/// Makes the short comparisons that go before each run, and no run: one identity against many, constant
/// bytes against varied, low load against high, entries before a bind against after, ports, clocks. What
/// is found is told with its ratio, what it means for the figures and what to do.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("check"))]
pub struct CheckArgs {
    /// The load, with the options of a run
    #[command(subcommand)]
    pub load: LoadCommand,
}

/// Load a directory server over LDAP
///
/// One user has one connection and one request at a time. With --connections new, each request opens a
/// connection of its own (and does TLS, and binds as --bind-dn if that is given), and its latency
/// holds all of that.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("ldap"))]
pub struct LdapArgs {
    /// The server: ldap://HOST:PORT, or ldaps:// for TLS from the first byte
    #[arg(long, value_name = "URI", value_hint = ValueHint::Url)]
    pub uri: String,

    /// What is done
    #[arg(long, value_enum, default_value = "bind")]
    pub op: LdapOp,

    /// The entry: who binds, where the search begins, what is compared or modified
    #[arg(long, value_name = "DN")]
    pub dn: Template,

    /// The password of --dn, for --op bind; @FILE keeps it out of the list of processes
    #[arg(
        long,
        value_name = "PASSWORD",
        required_unless_present = "op",
        required_if_eq("op", "bind")
    )]
    pub password: Option<Template>,

    /// What a search looks for
    #[arg(long, value_name = "FILTER", default_value = "(objectClass=*)")]
    pub filter: String,

    /// How deep a search goes
    #[arg(long, value_enum, default_value = "base")]
    pub scope: SearchScope,

    /// What a search brings of each entry: attributes, with commas between them [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub attributes: Vec<String>,

    /// What is compared, or what a modification sets: an attribute and its value
    #[arg(
        long,
        value_name = "ATTRIBUTE=VALUE",
        required_if_eq_any([("op", "compare"), ("op", "modify")])
    )]
    pub value: Option<String>,

    /// Who connections are bound as before the first request [default: nobody]
    #[arg(long, value_name = "DN", requires = "bind_password")]
    pub bind_dn: Option<Template>,

    /// The password of --bind-dn
    #[arg(long, value_name = "PASSWORD", requires = "bind_dn")]
    pub bind_password: Option<Template>,

    /// When connections are opened
    #[arg(long, value_enum, default_value = "reuse")]
    pub connections: ConnectionMode,

    /// Ask for TLS on connections that began without
    #[arg(long)]
    pub start_tls: bool,

    /// Authorities that the server's certificate may be from, in PEM [default: the host's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_ca: Option<PathBuf>,

    #[command(flatten)]
    pub network: NetworkArgs,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// Load a DNS server
///
/// One user has one query in flight. A name that does not exist, and every other code but NOERROR, is
/// a failure of its own kind.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("dns"))]
pub struct DnsArgs {
    /// The server, an address or name of a host; port 53 unless it is given
    #[arg(long, value_name = "HOST:PORT")]
    pub server: String,

    /// The name to ask for; with --type PTR it may be an address
    #[arg(long, value_name = "NAME")]
    pub name: Template,

    /// What is asked of it
    #[arg(long, value_enum, default_value = "A", ignore_case = true)]
    pub r#type: RecordType,

    /// How queries travel
    #[arg(long, value_enum, default_value = "udp")]
    pub protocol: Transport,

    /// When sockets are opened
    #[arg(long, value_enum, default_value = "reuse")]
    pub connections: ConnectionMode,

    #[command(flatten)]
    pub network: NetworkArgs,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// Load a KDC of Kerberos
///
/// One user has one request in flight. Log-ins show that they know their password by an encrypted
/// timestamp. The keys for that are made of the passwords before the run, as the KDC says that they
/// are, and with --op tgs all identities are logged in once; none of that is in the figures. No two
/// requests have the same bytes. Answers are not decrypted.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("krb5"))]
pub struct Krb5Args {
    /// The KDC, an address or name of a host; port 88 unless it is given
    #[arg(long, value_name = "HOST:PORT")]
    pub kdc: String,

    /// The realm
    #[arg(long, value_name = "REALM")]
    pub realm: String,

    /// What is asked for
    #[arg(long, value_enum, default_value = "as")]
    pub op: krb5::message::KdcRequestKind,

    /// Who asks, without the realm
    #[arg(long, value_name = "NAME")]
    pub principal: Template,

    /// The password of --principal; @FILE keeps it out of the list of processes
    #[arg(long, value_name = "PASSWORD", required_unless_present = "no_preauth")]
    pub password: Option<Template>,

    /// Ask without showing that the password is known, for principals that the KDC allows it
    #[arg(long, conflicts_with = "password")]
    pub no_preauth: bool,

    /// What the ticket is for [default: krbtgt/REALM]
    #[arg(long, value_name = "NAME")]
    pub service: Option<Template>,

    /// Ways to encrypt that may be used [default: all four]
    #[arg(long, value_enum, value_name = "KIND", value_delimiter = ',')]
    pub enctype: Vec<EncType>,

    /// Let each client send the same bytes again and again, which no program does: what a cache of
    /// answers makes of a figure
    #[arg(long)]
    pub same_bytes: bool,

    /// How messages travel
    #[arg(long, value_enum, default_value = "udp")]
    pub protocol: Transport,

    /// When sockets are opened; MIT's KDC closes a TCP connection after each answer
    #[arg(long, value_enum, default_value = "reuse")]
    pub connections: ConnectionMode,

    #[command(flatten)]
    pub network: NetworkArgs,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// Time look-ups of users and groups
///
/// What getpwnam_r(3), getgrnam_r(3) and their kin take, by way of nsswitch.conf(5), in this process;
/// or what an NSS module takes alone. Each user has a thread of its own. Keys that are numbers are ids. What is not there is a failure.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("nss"))]
pub struct NssArgs {
    /// What is looked up
    #[arg(long, value_enum)]
    pub lookup: NssLookup,

    /// Its name or id; for initgroups, a user's name
    #[arg(long, value_name = "KEY")]
    pub key: Template,

    /// Call this module straight, without the C library: libnss_NAME.so.2
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub module: Option<PathBuf>,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// Time log-ins through PAM
///
/// From pam_start(3) to pam_end(3) in this process, as a program does that logs people in. Each user has
/// a thread of its own. Questions that modules ask are answered with the password. A module may wait
/// after a wrong one, which counts.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("pam"))]
pub struct PamArgs {
    /// The service, a file of /etc/pam.d
    #[arg(long, value_name = "NAME")]
    pub service: String,

    /// Who logs in
    #[arg(long, value_name = "NAME")]
    pub user: Template,

    /// The password; @FILE keeps it out of the list of processes
    #[arg(long, value_name = "PASSWORD")]
    pub password: Template,

    /// What is done of a log-in
    #[arg(
        long,
        value_enum,
        value_name = "STEP",
        value_delimiter = ',',
        default_value = "auth,account"
    )]
    pub steps: Vec<PamStep>,

    /// Where services are, in place of /etc/pam.d
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub config_folder: Option<PathBuf>,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// Run a command again and again, in many processes at once
///
/// The command is started without a shell, with nothing on its standard input; what it writes is
/// discarded. Its arguments may vary as identities do. The latency of a run is from its start to its
/// end; what of that a process takes that does nothing (true(1)) is measured at the same load and shown
/// apart. An exit code other than 0 is a failure. Reports of several commands or hosts stand side by
/// side with roster-lab compare. They tell the command, without what stands behind -w or a name as --password
/// and PASSWORD=; whatever else must not be seen belongs into a file.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("command"))]
pub struct CommandArgs {
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<Template>,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// How connections are made.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub struct NetworkArgs {
    /// Addresses of this host to connect from, in turn
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub source: Vec<IpAddr>,

    /// How connections are closed
    #[arg(long, value_enum, default_value = "normal")]
    pub close: CloseMode,
}

/// What every kind of load has.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Load")]
pub struct CommonArgs {
    /// Users, of whom each has one request at a time; a list of numbers is as many runs. With --rate,
    /// the most requests at a time [default: 16, of look-ups as many as processors, with --rate 64]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub users: Vec<u32>,

    /// What a user waits between an answer and the next request
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0", conflicts_with = "rate")]
    pub think: Duration,

    /// Requests a second, whatever the answers: R, a list for as many runs, or A..B to go from the one
    /// to the other
    #[arg(long, value_name = "R")]
    pub rate: Option<RateSpec>,

    /// Raise the rate from --rate on until the 99th percentile is above this time, and find where
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "rate")]
    pub knee: Option<Duration>,

    /// The share of requests that may fail below the knee
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0.01", requires = "knee")]
    pub knee_failures: f64,

    /// How long to measure; each run of several
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10")]
    pub duration: Duration,

    /// How long to run before that, which the figures leave out
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1")]
    pub warm_up: Duration,

    /// How long each comparison takes that is made before the run, lest its figures be other than they
    /// seem; 0 for none
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0.5")]
    pub probe: Duration,

    /// A request without an answer for so long has failed
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10")]
    pub timeout: Duration,

    /// Threads of the generator, to whom users are dealt out; nss and pam have one for each user [default: 1, for
    /// commands one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,

    /// The server's process, if it is on this host, for its processor time and memory
    #[arg(long, value_name = "PID", help_heading = "Report")]
    pub server_pid: Option<u32>,

    /// The server's systemd unit, for the same
    #[arg(long, value_name = "UNIT", help_heading = "Report", conflicts_with = "server_pid")]
    pub server_unit: Option<String>,

    /// Write the report as JSON to this file; - for standard output, in place of the text
    #[arg(long, value_name = "FILE", help_heading = "Report", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,

    /// Write all percentiles to this file, as plotters of HDR histograms read them
    #[arg(long, value_name = "FILE", help_heading = "Report", value_hint = ValueHint::FilePath)]
    pub hdr: Option<PathBuf>,

    /// Write a page with charts to this file, which needs no other
    #[arg(long, value_name = "FILE", help_heading = "Report", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Draw no live view
    #[arg(long, help_heading = "Report")]
    pub quiet: bool,
}

/// Carry out a plan
///
/// A plan is a TOML file with one table, named as one of the commands here, whose keys are the options
/// of that command without their dashes. Options behind the file take the place of those in it.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("run"))]
pub struct RunArgs {
    /// Look for traps only, as roster-lab check does
    #[arg(long)]
    pub check: bool,

    /// The plan
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,

    /// Options of the plan's command
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    pub options: Vec<OsString>,
}

/// Compare runs by their reports
///
/// Shows reports that runs wrote with --json side by side: a table, and for each against the first a
/// sentence that says what differs and how sure that is. Of a curve the run with the highest rate
/// counts. How sure a difference is comes from the spread within the runs: differences between one
/// start of a server and the next are not in it. Of five runs or more of each, under one name, it comes
/// from the spread between them.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("compare"))]
pub struct CompareArgs {
    /// Reports, of which the first is what the others are compared with
    #[arg(value_name = "FILE", required = true, num_args = 1..=64, value_hint = ValueHint::FilePath)]
    pub reports: Vec<PathBuf>,

    /// What they are called, with commas between; those of one name are runs of the same [default: the files'
    /// names]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub names: Vec<String>,

    /// Write a page with charts, which needs no other file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Write the charts as a picture
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub png: Option<PathBuf>,
}

/// Find the release that changed a figure
///
/// Measures releases between a good one and a bad one, each time the one in the middle: puts it in place
/// by a command, and carries a plan out. A release is good or bad by which of the two its figure is
/// nearer to, as a quotient. One that cannot be put in place or measured is gone around. What was found
/// is kept after each release, and the same command goes on from there.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("bisect"))]
pub struct BisectArgs {
    /// Releases in their order, with commas between; @FILE for the lines of a file
    #[arg(long, value_name = "VERSION", value_parser = versions, required = true)]
    pub versions: Versions,

    /// A release whose figure is as it should be
    #[arg(long, value_name = "VERSION")]
    pub good: String,

    /// One whose figure is not
    #[arg(long, value_name = "VERSION")]
    pub bad: String,

    /// What puts a release in place, for sh; {version} stands for it. A server that it starts must be in
    /// the background, and must be reached when the command ends
    #[arg(long, value_name = "COMMAND")]
    pub cmd: String,

    /// What measures it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,

    /// The figure; of a curve, that of the run with the highest rate
    #[arg(long, value_enum, default_value = "rate")]
    pub figure: Metric,

    /// The share of requests that may fail: a release of which more do counts as one that cannot be tested
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0.01")]
    pub failures: f64,

    /// A command that takes longer has failed
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub cmd_timeout: Duration,

    /// Where what was found is kept
    #[arg(long, value_name = "FILE", default_value = "bisect.json", value_hint = ValueHint::FilePath)]
    pub state: PathBuf,
}

/// Releases in their order.
pub type Versions = std::sync::Arc<[String]>;

/// With commas between, or from a file.
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

/// Compare the ways in which a 389-ds stores passwords
///
/// Measures binds by each scheme that the server offers, as many users of its own below --base, which are
/// removed afterwards; ranks speed beside strength, and says which to take for whom. While it measures,
/// hashing anew on bind is off and policies of single entries are on; both are put back, also after Ctrl-C,
/// failures and the loss of the terminal. What is to be put back stands in cn=roster-lab
/// schemes,cn=config meanwhile: the next run does it for one that was killed. Nobody else's password is
/// stored otherwise meanwhile.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("schemes"))]
pub struct SchemesArgs {
    /// The server: ldap://HOST:PORT, or ldaps:// for TLS from the first byte
    #[arg(value_name = "URI", value_hint = ValueHint::Url)]
    pub uri: String,

    /// Where the users of the test are made, and whose stored passwords are looked at
    #[arg(long, value_name = "DN")]
    pub base: String,

    /// Who may change cn=config
    #[arg(long, value_name = "DN", default_value = "cn=Directory Manager")]
    pub bind_dn: String,

    /// The password of --bind-dn; @FILE keeps it out of the list of processes
    #[arg(long, value_name = "PASSWORD")]
    pub bind_password: Template,

    /// Authorities that the server's certificate may be from, in PEM [default: the host's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_ca: Option<PathBuf>,

    /// Measure these only, with commas between
    #[arg(long, value_name = "SCHEME", value_delimiter = ',')]
    pub only: Vec<String>,

    /// Users that bind at a time
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub users: u32,

    /// Users that there are: a server keeps the results of the last few
    #[arg(long, value_name = "N", default_value = "200", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub identities: u64,

    /// How long to measure each scheme
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "3")]
    pub duration: Duration,

    /// Binds a second that users make when the most of them come, for the advice
    #[arg(long, value_name = "R", default_value = "100")]
    pub binds: f64,

    /// The server's process, if it is on this host, for its processor time
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,

    /// The server's systemd unit, for the same
    #[arg(long, value_name = "UNIT", conflicts_with = "server_pid")]
    pub server_unit: Option<String>,

    /// Have new passwords stored by this scheme from now on
    #[arg(long, value_name = "SCHEME")]
    pub apply: Option<String>,

    /// Below this entry only
    #[arg(long, value_name = "DN")]
    pub subtree: Option<String>,

    /// Tell whose password is not stored by this scheme [default: that of --apply]
    #[arg(long, value_name = "SCHEME", conflicts_with = "apply")]
    pub not_using: Option<String>,

    /// Measure nothing
    #[arg(long)]
    pub no_measure: bool,

    /// Only put back what a run that was killed has left behind
    #[arg(long, conflicts_with_all = ["apply", "not_using", "json"])]
    pub undo: bool,

    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// Show at which hop requests spend their time
///
/// Looks at the probes of rosterd's processes with bpftrace, and puts together what they tell of each request:
/// how long it was in the responder, on the bus, in the publisher, in a back-end and at its directory. Requests
/// are those that programs make of the daemon, of domains that are asked on demand; what the snapshot answers
/// passes no probe. It takes root, and a kernel with uprobes and BPF. Ctrl-C ends it with a report.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("trace"))]
pub struct TraceArgs {
    /// A process of the rosterd, or with --sssd the back-end [default: the one that runs, or all back-ends]
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,

    /// How long to look
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10")]
    pub duration: Duration,

    /// Look at the probes that SSSD's back-ends have: requests, the LDAP provider, searches, the cache
    #[arg(long)]
    pub sssd: bool,

    /// Write the report as JSON to this file; - for standard output, in place of the text
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,

    /// Write a page with box plots to this file, which needs no other
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Draw no progress
    #[arg(long)]
    pub quiet: bool,
}

/// Make the requests of a master of Locust
///
/// Serves a master of Locust 2 as its own workers do, and makes the requests of its users as the other
/// commands here do: users are a closed loop, and each has one request at a time. What users of a class
/// do is named by the master's file, with the classes of the Python package roster_locust, or by --plan.
/// The master's page, charts, CSV and HTML are as ever. When the master ends, the worker ends its requests,
/// waits up to 5 s for the master to be started again, and then ends.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("worker"))]
pub struct WorkerArgs {
    /// The master; port 5557 unless it is given
    #[arg(long, value_name = "HOST:PORT")]
    pub master: String,

    /// What users do whose class says nothing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plan: Option<PathBuf>,

    /// Let the master have commands run and modules loaded, with the rights of this program
    #[arg(long)]
    pub allow_commands: bool,

    /// What users of each class do, and commands and modules too, is what this file of JSON says and nothing
    /// that comes over the network: roster-lab locust has one for its own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["plan", "allow_commands"])]
    pub classes: Option<PathBuf>,

    /// Addresses of this host to connect from to the servers that are loaded, in turn
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub source: Vec<IpAddr>,

    /// Threads for each class of users
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,

    /// How long to try before a master first answers
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "60")]
    pub patience: Duration,
}

/// Start a master of Locust with its page, and workers beside it
///
/// The master is Locust's own, by a Python that has it (pip install locust); the workers are roster-lab's,
/// and make the requests of the classes that the file derives from those of roster_locust. All end
/// together, also when this command is killed.
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("locust"))]
pub struct LocustArgs {
    /// The locustfile
    #[arg(long, value_name = "FILE", default_value = "locustfile.py", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Workers [default: one for each --source, or for each processor but one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,

    /// Addresses of this host that workers connect from, each from its own
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub source: Vec<IpAddr>,

    /// Where the page is
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8089")]
    pub web: std::net::SocketAddr,

    /// The port that workers find the master at, on this host only
    #[arg(long, value_name = "PORT", default_value = "5557")]
    pub port: u16,

    /// The Python that has Locust
    #[arg(long, value_name = "FILE", default_value = "python3", value_hint = ValueHint::ExecutablePath)]
    pub python: PathBuf,

    /// Further options of Locust, behind --
    #[arg(value_name = "OPTION", last = true)]
    pub options: Vec<OsString>,
}

/// Write the man pages into a folder
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("man"))]
pub struct ManArgs {
    /// The folder, made if it is not there
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}

/// Print a completion script
#[derive(Debug, Args)]
#[command(after_long_help = help_text::after_help("completions"))]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: clap_complete::Shell,
}

/// A day: nobody waits longer, and sums of such times stay far from any bound.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

/// `5`, `0.5`, `500ms`, `5s`, `2m`, `1h`.
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
        _ => return Err(format!("{unit:?} is no unit of time: write us, ms, s, m or h")),
    };
    let seconds = number.trim().parse::<f64>().ok().map(|number| number * scale);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let duration =
        duration.ok_or_else(|| format!("{text:?} is no time: write 10, 0.5, 500ms or 2m"))?;
    if duration > DURATION_MAX { Err(format!("{text:?} is more than a day")) } else { Ok(duration) }
}

/// From 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is no share: write a number from 0 to 1"))
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
            assert!(parse(&format!("{knee}={share}")).unwrap_err().contains("is no share"));
        }
        assert!(parse(&format!("{line} --password p --knee 5ms")).unwrap_err().contains("--rate"));
    }
}
