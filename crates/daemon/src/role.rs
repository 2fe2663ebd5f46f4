//! A role's process: takes what the monitor hands it, gives up all rights that it does not need,
//! joins the bus and runs the role's own code. The role `bus` becomes `dbus-daemon`.
//!
//! The monitor gives a role its [`RoleConfig`] as standard input, and as standard output its listening
//! socket or, if it serves none, a file into which it writes why it ended. A role reads no configuration file. Its code builds its state,
//! puts its object at its path, calls [`Context::ready`], works until [`Shutdown::wait`] returns,
//! flushes and returns.

use crate::logging::{self, LogLevel};
use crate::metrics::Counters;
use crate::monitor::Ids;
use crate::reach::Reach;
use crate::{backend, exit, publisher, responder, runtime, sandbox};
use anyhow::{Context as _, anyhow, bail};
use roster_bus::interfaces::{CALL_DEADLINE, Error, LOG_IN_DEADLINE, RoleStatus};
use roster_bus::names::{Role, SOCKET};
use roster_bus::zbus::fdo::{DBusProxy, RequestNameFlags, RequestNameReply};
use roster_bus::zbus::message::Header;
use roster_bus::zbus::names::BusName;
use roster_bus::zbus::{self, Connection};
use roster_config as config;
use roster_nscd::server::rights::Accounts;
use roster_nscd::starter::Starter;
use roster_provider_krb5::Helper;
use rustix::process::{DumpableBehavior, Signal};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::time::{Duration, SystemTime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};
use zeroize::Zeroizing;

/// How long a role waits for its name, which the process before it may still hold for a moment.
const NAME_WAIT: Duration = Duration::from_secs(5);
/// Between two tries for the name.
const NAME_PAUSE: Duration = Duration::from_millis(50);
/// From connecting to the bus until the role is on it.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// From the order to stop until the process ends; the monitor kills after 5 s.
const STOP_WAIT: Duration = Duration::from_secs(4);
/// Largest text that the monitor hands to a role; certificates are most of it.
pub const LAUNCH_BYTES_MAX: usize = 8 << 20;

/// Folder of the snapshot in the state folder: the publisher's.
pub const SNAPSHOTS: &str = "snap";
/// The snapshot in it.
pub const SNAPSHOT: &str = "roster.snap";
/// Folder of copies of the snapshot in the run-time folder: the publisher's.
pub const COPIES: &str = "snap";
/// Folder of caches in the state folder: root's, with a folder of each back-end's in it.
pub const DOMAINS: &str = "domains";

/// Longest word that a role leaves of why it ended.
pub const WORDS_BYTES_MAX: usize = 1 << 10;

/// What the monitor hands to a role's process.
#[derive(Serialize, Deserialize)]
pub struct Launch {
    /// Who it is; the bus is nobody on itself.
    pub role: Option<String>,
    /// What it needs to know.
    pub config: RoleConfig,
    /// `[log]`.
    pub log: config::Log,
    /// See [`Context::state_dir`].
    pub state_dir: PathBuf,
    /// See [`Context::run_dir`].
    pub run_dir: PathBuf,
    /// The monitor's process, without which there is nothing to do.
    pub monitor_pid: u32,
    /// The monitor's user, who may stop the role.
    pub monitor_uid: u32,
}

/// What a role needs to know, and no more: a role whose `RoleConfig` stays the same is left alone
/// when the configuration is read anew.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub enum RoleConfig {
    /// For the process that becomes `dbus-daemon`.
    Bus(Bus),
    /// For [`crate::publisher`].
    Publisher(Publisher),
    /// For [`crate::backend`].
    Backend(Box<Backend>),
    /// For [`crate::responder::nss`].
    Nss(Nss),
    /// For [`crate::responder::pam`].
    Pam(Pam),
    /// For [`crate::responder::metrics`].
    Metrics(Metrics),
    /// For [`crate::responder::nscd`].
    Nscd(Nscd),
}

/// What it takes to become `dbus-daemon`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Bus {
    /// The executable.
    pub program: PathBuf,
    /// Its configuration.
    pub config: PathBuf,
}

/// What the publisher needs to know.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Publisher {
    /// `[host]`.
    pub host: config::Host,
    /// `[publisher]`.
    pub publisher: config::Publisher,
    /// Domains in order of precedence.
    pub domains: Vec<DomainRules>,
}

/// What the publisher holds a domain to.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainRules {
    /// Its name.
    pub name: String,
    /// Smallest uid and gid taken from it.
    pub min_id: u32,
    /// Largest.
    pub max_id: u32,
    /// Whether what the back-end has is all there is.
    pub mode: config::Mode,
    /// Share of the users, or of the groups, that may go at once.
    pub mass_deletion: f64,
    /// On demand: how long a name that is not there is known not to be there.
    pub negative: Duration,
}

/// What a back-end needs to know.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// Its domain.
    pub domain: config::Domain,
    /// What stands in the files that the domain's configuration names.
    pub secrets: config::Secrets,
}

/// What the NSS responder needs to know.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Nss {
    /// How long a name that is not there is known not to be there: the shortest time of any domain
    /// that is asked on demand.
    pub negative: Duration,
}

/// What the responder in place of nscd needs to know.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Nscd {
    /// The host's own users.
    pub passwd: PathBuf,
    /// The host's own groups.
    pub group: PathBuf,
    /// The folder of maps.
    pub maps: PathBuf,
    /// Who may give orders over the socket, beside root.
    pub administrator: u32,
    /// The user of the role and that of its helpers. The role starts as root and becomes the first. None if all roles
    /// are one user.
    pub users: Option<[Ids; 2]>,
    /// `[responder.nscd]`.
    pub config: config::Nscd,
}

/// What the PAM responder needs to know.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Pam {
    /// The domains in order of precedence.
    pub domains: Vec<LogInDomain>,
    /// Users of the host whose programs may ask for anybody.
    pub trusted: Vec<u32>,
    /// How long a program waits for an answer.
    pub timeout: Duration,
    /// Passwords that an ordinary user may have tried in a minute.
    pub tries_per_minute: u32,
}

/// A domain as far as log-ins are concerned.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct LogInDomain {
    /// Its name.
    pub name: String,
    /// Whether anybody there knows passwords.
    pub authenticates: bool,
}

/// What the metrics responder needs to know.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// All roles, as people write them.
    pub roles: Vec<String>,
}

/// What a role's code is given; `C` is its variant of [`RoleConfig`].
pub struct Context<C> {
    /// Who this process is.
    pub role: Role,
    /// What it needs to know.
    pub config: C,
    /// Where lasting files are: the publisher has [`SNAPSHOTS`] in it, a back-end `domains/NAME`.
    pub state_dir: PathBuf,
    /// Where sockets are.
    pub run_dir: PathBuf,
    /// The bus: connected, with [`roster_bus::names::ROLE`] at the role's path, and without the
    /// role's name. Calls over it have a deadline of [`roster_bus::interfaces::CALL_DEADLINE`].
    /// When it is lost, the process ends.
    pub connection: Connection,
    /// The listening socket, for roles that serve one.
    pub listener: Option<OwnedFd>,
    /// Whether to stop.
    pub shutdown: Shutdown,
}

impl<C> Context<C> {
    fn with<D>(self, config: D) -> Context<D> {
        let Self { role, state_dir, run_dir, connection, listener, shutdown, .. } = self;
        Context { role, config, state_dir, run_dir, connection, listener, shutdown }
    }

    /// The folder of the snapshot.
    #[must_use]
    pub fn snapshots(&self) -> PathBuf {
        self.state_dir.join(SNAPSHOTS)
    }

    /// Takes the role's name, once its objects are at its path: from now on others ask it.
    ///
    /// # Errors
    ///
    /// The bus does not give the name, or is gone.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let name = self.role.bus_name();
        let taken = async {
            loop {
                let reply = self
                    .connection
                    .request_name_with_flags(name.as_str(), RequestNameFlags::DO_NOT_QUEUE)
                    .await;
                match reply {
                    Ok(RequestNameReply::PrimaryOwner | RequestNameReply::AlreadyOwner) => {
                        return Ok(());
                    }
                    Ok(_) | Err(zbus::Error::NameTaken) => sleep(NAME_PAUSE).await,
                    Err(error) => return Err(error),
                }
            }
        };
        match timeout(NAME_WAIT, taken).await {
            Ok(taken) => taken.with_context(|| format!("the bus does not give the name {name}")),
            Err(_) => bail!("another process holds the name {name} on the bus"),
        }
    }
}

/// Tells that the role is to stop: SIGTERM came, or the monitor said so over the bus. A copy of it
/// may go into any task.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// Returns when the role is to stop. Cancel safe.
    pub async fn wait(&mut self) {
        // An error means that the sender is gone, and with it the reason to go on.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// Whether the role is to stop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// A shutdown and what sets it off.
    #[must_use]
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }
}

/// A role's process from its start; gives its exit status.
#[must_use]
pub fn main() -> u8 {
    let launch = match take_launch() {
        Ok(launch) => launch,
        Err(error) => {
            crate::say(format_args!(
                "rosterd role: {error:#}; roles are started by rosterd itself"
            ));
            return exit::USAGE;
        }
    };
    match launch.role.as_deref().map(Role::parse) {
        None => become_bus(&launch),
        Some(Some(role)) => {
            let reach = Reach::new(&sandbox::followed(&launch.config));
            // While this process may still execute programs.
            let beside = match Beside::start(&launch) {
                Ok(beside) => beside,
                Err(error) => {
                    crate::say(format_args!("rosterd: {role}: {error:#}"));
                    return exit::SOFTWARE;
                }
            };
            let limits = sandbox::apply(&launch);
            let level = logging::start(&role, &launch.log);
            match serve(role, launch, beside, limits, &reach, level) {
                Ok(()) => 0,
                Err(End::BusLost) => {
                    warn!("the bus is gone; this process ends with it and will be started again");
                    exit::TEMPORARY
                }
                Err(End::OutOfReach(file)) => {
                    warn!(
                        "{} is in another folder than at the start, which this process may not read; \
                         it ends and will be started again",
                        file.display()
                    );
                    exit::TEMPORARY
                }
                Err(End::Failed(error)) => {
                    error!("{error:#}");
                    leave_word(&format!("{error:#}"));
                    exit::SOFTWARE
                }
            }
        }
        Some(None) => exit::USAGE,
    }
}

/// Tells the monitor why this process ends; where the role serves a socket there is no way to.
fn leave_word(why: &str) {
    if let Ok(output) = io::stdout().as_fd().try_clone_to_owned() {
        let end = why.floor_char_boundary(WORDS_BYTES_MAX);
        // What cannot be told is in the log.
        let _ = File::from(output).write_all(&why.as_bytes()[..end]);
    }
}

/// Reads what the monitor prepared, and makes sure that this process does not outlive it.
fn take_launch() -> anyhow::Result<Launch> {
    let text = launch_text().context("cannot read standard input")?;
    let launch: Launch =
        serde_json::from_slice(&text).context("standard input is not what a monitor hands over")?;
    let _ = rustix::thread::set_name(c"rosterd");
    // Readable memory and core dumps would show what the configuration keeps secret.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = rustix::thread::set_no_new_privs(true);
    end_with(launch.monitor_pid)?;
    Ok(launch)
}

/// Has this process end with the monitor. The kernel forgets it when the process becomes another user.
fn end_with(monitor: u32) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    if parent != Some(monitor) {
        bail!("the monitor, process {monitor}, is gone");
    }
    Ok(())
}

/// What stands in standard input, passwords included: in one block of memory, which is wiped.
fn launch_text() -> io::Result<Zeroizing<Vec<u8>>> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let length = input.metadata()?.len().min(LAUNCH_BYTES_MAX as u64);
    // One byte more, or the end of the file is looked for in a larger block.
    let mut text = Zeroizing::new(Vec::with_capacity(length as usize + 1));
    input.take(length).read_to_end(&mut text)?;
    Ok(text)
}

fn become_bus(launch: &Launch) -> u8 {
    let RoleConfig::Bus(bus) = &launch.config else { return exit::USAGE };
    let _ = sandbox::apply(launch);
    let mut command = Command::new(&bus.program);
    command.args(["--nofork", "--nopidfile", "--nosyslog"]);
    command.arg(format!("--config-file={}", bus.config.display()));
    command.env_clear();
    // dbus-daemon asks the C library for the groups of who connects. Where `roster` is among the
    // name services the answer would have to come over this very bus: with a snapshot that is none,
    // the module says at once that it cannot answer. In a bus of root's it ignores the variable. Only root gets to
    // that bus's socket then, and the module asks no responder for root.
    command.env("ROSTER_SNAPSHOT", "/dev/null");
    let error = command.exec();
    crate::say(format_args!("rosterd: bus: cannot run {}: {error}", bus.program.display()));
    exit::UNAVAILABLE
}

/// Why a role ended without having been told to.
enum End {
    BusLost,
    /// A file that it follows is where it has no rights.
    OutOfReach(PathBuf),
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for End {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

fn serve(
    role: Role,
    launch: Launch,
    beside: Beside,
    sandbox: String,
    reach: &Reach,
    level: LogLevel,
) -> Result<(), End> {
    let counters = Counters::start();
    let runtime = runtime::new(&role)?;
    let result = runtime.block_on(async {
        let (stop, shutdown) = Shutdown::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let object = Object {
            role: role.clone(),
            started: SystemTime::now(),
            sandbox,
            level,
            counters,
            stop: stop.clone(),
            monitor_uid: launch.monitor_uid,
        };
        let address = bus_address(&launch.run_dir);
        // What others ask each other is answered at once; a directory thinks about passwords.
        let hands_passwords_on = matches!(launch.config, RoleConfig::Pam(_));
        let deadline = if hands_passwords_on { LOG_IN_DEADLINE } else { CALL_DEADLINE };
        let connecting = zbus::connection::Builder::address(address.as_str())
            .method_timeout(deadline)
            .serve_at(role.path(), object)
            .build();
        let connection = match timeout(CONNECT_WAIT, connecting).await {
            Ok(connection) => {
                connection.with_context(|| format!("cannot join the bus {address}"))?
            }
            Err(_) => return Err(anyhow!("the bus {address} does not answer").into()),
        };
        let closing = connection.clone();
        let mut work = pin!(run(role, launch, beside, connection, shutdown));
        let why = tokio::select! {
            result = &mut work => return result.map_err(End::Failed),
            () = closing.closed() => Some(End::BusLost),
            file = reach.lost() => Some(End::OutOfReach(file)),
            _ = terminate.recv() => None,
        };
        if why.is_none() {
            info!("stops");
        }
        let _ = stop.send(true);
        // Whatever the reason, there may still be something to write down.
        match (timeout(STOP_WAIT, work).await, why) {
            (_, Some(why)) => Err(why),
            (Ok(result), None) => result.map_err(End::Failed),
            (Err(_), None) => Err(anyhow!("did not stop in {STOP_WAIT:?}").into()),
        }
    });
    // Whatever still blocks after this will not be waited for.
    runtime.shutdown_timeout(Duration::from_secs(2));
    result
}

/// A process that a role has beside it.
enum Beside {
    /// None.
    Nothing,
    /// The program by which a back-end's users log in, or why it cannot.
    Krb5(Result<Helper, String>),
    /// The process that starts helpers of the responder in place of nscd.
    Nscd(Starter),
}

impl Beside {
    /// Starts what the role takes. That in place of nscd is root until then, and its own user from then on.
    fn start(launch: &Launch) -> anyhow::Result<Self> {
        match &launch.config {
            RoleConfig::Backend(backend) => {
                let krb5 = backend.domain.auth.krb5.as_ref();
                let started = krb5.map(|krb5| Helper::start(krb5, &backend.secrets.keytab));
                Ok(started.map_or(Self::Nothing, Self::Krb5))
            }
            RoleConfig::Nscd(Nscd { users: None, .. }) => {
                Ok(Self::Nscd(Starter::start(None).context("cannot start helpers")?))
            }
            RoleConfig::Nscd(Nscd { users: Some(users), .. }) => {
                let [own, helper] = users.map(|Ids { uid, gid }| (uid, gid));
                let starter = Accounts::known(own, helper).part()?;
                let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
                end_with(launch.monitor_pid)?;
                Ok(Self::Nscd(starter))
            }
            RoleConfig::Bus(_)
            | RoleConfig::Publisher(_)
            | RoleConfig::Nss(_)
            | RoleConfig::Pam(_)
            | RoleConfig::Metrics(_) => Ok(Self::Nothing),
        }
    }
}

async fn run(
    role: Role,
    launch: Launch,
    beside: Beside,
    connection: Connection,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let Launch { config, state_dir, run_dir, .. } = launch;
    let listener = io::stdout().as_fd().try_clone_to_owned().ok().filter(is_listening);
    let context = Context { role, config: (), state_dir, run_dir, connection, listener, shutdown };
    match (config, beside) {
        (RoleConfig::Publisher(config), _) => publisher::run(context.with(config)).await,
        (RoleConfig::Backend(config), beside) => {
            let helper = match beside {
                Beside::Krb5(helper) => Some(helper),
                Beside::Nothing | Beside::Nscd(_) => None,
            };
            backend::run(context.with(*config), helper).await
        }
        (RoleConfig::Nss(config), _) => responder::nss::run(context.with(config)).await,
        (RoleConfig::Pam(config), _) => responder::pam::run(context.with(config)).await,
        (RoleConfig::Metrics(config), _) => responder::metrics::run(context.with(config)).await,
        (RoleConfig::Nscd(config), Beside::Nscd(starter)) => {
            responder::nscd::run(context.with(config), starter).await
        }
        (RoleConfig::Nscd(_), _) => bail!("nothing starts its helpers"),
        (RoleConfig::Bus(_), _) => bail!("the bus is no role on itself"),
    }
}

fn is_listening(socket: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_acceptconn(socket) == Ok(true)
}

/// The address of the bus in that run-time folder.
#[must_use]
pub fn bus_address(run_dir: &Path) -> String {
    format!("unix:path={}", crate::monitor::escaped(&run_dir.join(SOCKET)))
}

/// Lets root and the monitor's user pass, by the bus's own word on who they are. The bus's policy
/// says the same; this holds when the policy is lost.
///
/// # Errors
///
/// Somebody else calls.
pub async fn require_monitor(
    connection: &Connection,
    header: &Header<'_>,
    monitor_uid: u32,
) -> Result<(), Error> {
    let denied = || Error::Denied("only root and the monitor may do that".into());
    let sender = header.sender().ok_or_else(denied)?;
    let bus = DBusProxy::new(connection).await?;
    let uid = bus.get_connection_unix_user(BusName::from(sender.to_owned())).await;
    match uid.map_err(zbus::Error::from)? {
        uid if uid == 0 || uid == monitor_uid => Ok(()),
        _ => Err(denied()),
    }
}

/// Seconds since 1970, 0 before that.
#[must_use]
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |duration| duration.as_secs())
}

/// `org.roster.Role1`.
pub(crate) struct Object {
    pub(crate) role: Role,
    pub(crate) started: SystemTime,
    pub(crate) sandbox: String,
    pub(crate) level: LogLevel,
    pub(crate) counters: Counters,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) monitor_uid: u32,
}

#[zbus::interface(name = "org.roster.Role1", introspection_docs = false)]
impl Object {
    fn status(&self) -> RoleStatus {
        // The monitor asks every few seconds whether the role is well.
        self.counters.tidy();
        RoleStatus {
            role: self.role.to_string(),
            pid: std::process::id(),
            started_unix: unix_seconds(self.started),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sandbox: self.sandbox.clone(),
            log_level: self.level.get(),
        }
    }

    fn metrics(&self) -> String {
        self.counters.render()
    }

    async fn set_log_level(
        &self,
        level: &str,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), Error> {
        require_monitor(connection, &header, self.monitor_uid).await?;
        if self.level.set(level) {
            info!("logs at level {level} from now on");
            Ok(())
        } else {
            let levels = "error, warn, info, debug or trace";
            Err(Error::Invalid(format!("{level:?} is no log level; write {levels}")))
        }
    }

    async fn stop(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), Error> {
        require_monitor(connection, &header, self.monitor_uid).await?;
        let _ = self.stop.send(true);
        Ok(())
    }
}
