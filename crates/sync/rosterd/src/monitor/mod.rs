// SPDX-License-Identifier: MIT OR Apache-2.0
//! The monitor starts the bus and every role, restarts processes that end or hang, reports readiness, and reloads the
//! configuration on request. It serves no lookups, writes no snapshot, and does not know the work of roles.
//!
//! One loop receives events: the end of a child, a signal, a [bus event](MonitorEvent), or a deadline. [`supervision`]
//! decides about each event, and the loop acts. It waits only for the next event, and for the bus to apply a new
//! policy, with a deadline. Operations that may hang, such as a read from a network mount, run in other threads.
//!
//! A user moves from one role to another when domains are reordered. It belongs to the new role only after all
//! processes of the old one have ended. Until then the new role does not start, and has neither a bus name nor a
//! directory.
//!
//! There is one timer, every 10 s, for pings and systemd's watchdog. The timer wheel of tokio wakes up to three times
//! in between. All others are deadlines of operations in progress.

mod bus_connection;
mod config_load;
mod dbus;
mod dbus_policy;
mod host_names;
mod keytab_watch;
mod log_levels;
mod process_plan;
mod reload;
mod role_proxy;
mod role_users;
mod runtime_dirs;
mod spawn;
mod startup;
mod status;
mod supervision;
mod watched_keys;

pub(crate) use startup::main;

use crate::roles::{BusRoleConfig, RoleConfig};
use bus_connection::MonitorEvent;
use config_load::{ConfigReader, LoadedConfig};
use dbus::{ReloadRequest, SharedStatus};
use keytab_watch::KeytabWatch;
use log_levels::LogLevels;
use process_plan::{DesiredProcess, ProcessKey, plan};
use role_users::RoleUsers;
use roster_bus::bus_names::RoleName;
use roster_bus::bus_names::bus_address;
use roster_bus::zbus::Connection;
use roster_bus::zbus::fdo::DBusProxy;
use roster_config::{ListenAddress, LogConfig};
use roster_messages::{CodedError, log, table::daemon as messages};
use roster_role::UserIds;
use roster_role::directories::{SNAPSHOT_DIR, SNAPSHOT_FILE};
use roster_role::error_code::{CodedLine, WithCode};
use roster_role::exit_status::{self, ExitFailure, WithExitStatus};
use roster_role::launch::Launch;
use roster_role::logging::LogLevel;
use roster_role::metrics::Counters;
use roster_role::role_object::RoleObject;
use roster_snapshot_build::mark;
use runtime_dirs::RuntimeDirs;
use rustix::process::Signal;
use sd_notify::NotifyState;
use spawn::ExitMessage;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant, SystemTime};
use supervision::{
    ProcessAction, ProcessEvent, ProcessPhase, ProcessState, SupervisionTimes, decide,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal as Hangup, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep_until, timeout};
use tracing::{debug, info};

/// Time limit of a ping, unless pings are more frequent.
const PING_WAIT: Duration = Duration::from_secs(5);
/// Time limit from the stop request until the end.
const END_WAIT: Duration = Duration::from_secs(20);
/// Time limit of the bus to reload its policy.
const POLICY_WAIT: Duration = Duration::from_secs(3);
/// Pause after a failed reload of the policy, because the loop waits during each attempt.
const POLICY_PAUSE: Duration = Duration::from_secs(10);
/// The file of the policy in the run-time directory.
const BUS_CONF: &str = "bus.conf";
/// Events that may wait.
const EVENTS_MAX: usize = 256;
/// Reload requests that may wait.
const RELOADS_MAX: usize = 8;

/// A process, present or planned.
struct SupervisedProcess {
    /// The process's configuration. `None` for the bus.
    desired: Option<DesiredProcess>,
    state: ProcessState,
    child: Option<Child>,
    /// The file with its exit message.
    exit_message: Option<ExitMessage>,
    /// The user of the child.
    user: Option<UserIds>,
    /// The level of the log with which the child started.
    started_level: String,
    since: SystemTime,
    last_exit: String,
    /// Whether the last process ended with exit status 0 and without a message.
    last_exit_is_clean: bool,
    /// Waits for a connection to its socket.
    socket_watch: Option<AbortHandle>,
}

impl SupervisedProcess {
    fn new(wanted: Option<DesiredProcess>, times: &SupervisionTimes) -> Self {
        let on_use = wanted.as_ref().is_some_and(|wanted| wanted.listen.is_some());
        Self {
            desired: wanted,
            state: ProcessState::new(Instant::now(), times, on_use),
            child: None,
            exit_message: None,
            user: None,
            started_level: String::new(),
            since: SystemTime::now(),
            last_exit: String::new(),
            last_exit_is_clean: false,
            socket_watch: None,
        }
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }
}

fn times_of(key: &ProcessKey) -> &'static SupervisionTimes {
    if *key == ProcessKey::Bus { &SupervisionTimes::BUS } else { &SupervisionTimes::ROLE }
}

fn describe_phase(phase: ProcessPhase) -> &'static str {
    match phase {
        ProcessPhase::Idle => "idle",
        ProcessPhase::Waiting { .. } => "waiting",
        ProcessPhase::Starting { .. } => "starting",
        ProcessPhase::Running { .. } => "running",
        ProcessPhase::Stopping { .. } => "stopping",
        ProcessPhase::Gone => "gone",
    }
}

/// The configuration, and its reader.
struct ConfigState {
    path: PathBuf,
    loaded: LoadedConfig,
    /// The reason why the present file is not in force. Empty if it is.
    error: String,
    reader: ConfigReader,
    keytabs: KeytabWatch,
    /// Whether the configuration is being read. Requests are processed one at a time.
    is_reading: bool,
}

/// The message bus, and the connection to it.
struct BusLink {
    program: PathBuf,
    /// The policy in force.
    policy: String,
    /// Earliest time of the next policy reload.
    policy_due: Instant,
    connection: Option<Connection>,
    /// Number of this connection.
    number: u64,
    task: Option<AbortHandle>,
}

/// Queues of the loop.
struct MonitorQueues {
    events: mpsc::Sender<MonitorEvent>,
    event_queue: mpsc::Receiver<MonitorEvent>,
    reloads: mpsc::Sender<ReloadRequest>,
    reload_queue: mpsc::Receiver<ReloadRequest>,
}

/// Listening sockets of roles. They survive the end of a role, with the connections that wait.
#[derive(Default)]
struct RoleListeners {
    sockets: BTreeMap<ProcessKey, (ListenAddress, OwnedFd)>,
    /// Device and inode of the sockets' files, once they were checked.
    files: BTreeMap<ProcessKey, (u64, u64)>,
}

/// The mark that a snapshot was published.
#[derive(Default)]
struct PublicationMark {
    is_set: bool,
    /// Whether the log has the reason why it is not set.
    is_failure_logged: bool,
}

/// The monitor's own process.
struct MonitorProcess {
    level: LogLevel,
    /// Levels that were set at run time, for roles that start later.
    levels: LogLevels,
    counters: Counters,
    started: SystemTime,
    started_at: Instant,
    stop: watch::Sender<bool>,
}

/// State as reported to the bus and to systemd.
#[derive(Default)]
struct StatusReport {
    status: SharedStatus,
    is_ready_sent: bool,
    sent: String,
}

struct Monitor {
    config: ConfigState,
    users: RoleUsers,
    runtime_dirs: RuntimeDirs,
    bus_link: BusLink,
    channels: MonitorQueues,
    listeners: RoleListeners,
    processes: BTreeMap<ProcessKey, SupervisedProcess>,
    mark: PublicationMark,
    process: MonitorProcess,
    report: StatusReport,
    /// Deadline of the end, after a stop request.
    end_deadline: Option<Instant>,
    ping: Duration,
}

impl Monitor {
    fn new(
        config: PathBuf,
        ping: Duration,
        (reader, settings): (ConfigReader, LoadedConfig),
        users: RoleUsers,
        bus_program: PathBuf,
        folders: RuntimeDirs,
        (level, counters): (LogLevel, Counters),
    ) -> Result<Self, ExitFailure> {
        let (events, event_queue) = mpsc::channel(EVENTS_MAX);
        let (reloads, reload_queue) = mpsc::channel(RELOADS_MAX);
        let mut monitor = Self {
            config: ConfigState {
                path: config,
                loaded: settings,
                error: String::new(),
                reader,
                keytabs: KeytabWatch::default(),
                is_reading: false,
            },
            users,
            runtime_dirs: folders,
            bus_link: BusLink {
                program: bus_program,
                policy: String::new(),
                policy_due: Instant::now(),
                connection: None,
                number: 0,
                task: None,
            },
            channels: MonitorQueues { events, event_queue, reloads, reload_queue },
            listeners: RoleListeners::default(),
            processes: BTreeMap::from([(
                ProcessKey::Bus,
                SupervisedProcess::new(None, &SupervisionTimes::BUS),
            )]),
            mark: PublicationMark::default(),
            process: MonitorProcess {
                level,
                levels: LogLevels::default(),
                counters,
                started: SystemTime::now(),
                started_at: Instant::now(),
                stop: watch::Sender::new(false),
            },
            report: StatusReport::default(),
            end_deadline: None,
            ping,
        };
        monitor.mark_keytab();
        monitor.check_snapshot_mark();
        let plan = plan(&monitor.config.loaded, &monitor.users, &monitor.runtime_dirs.run_dir)
            .with_exit_status(exit_status::CANNOT_CREATE)?;
        let sockets = monitor.open_sockets(&plan).with_exit_status(exit_status::CANNOT_CREATE)?;
        monitor.listeners.sockets.extend(sockets);
        for (key, wanted) in plan {
            monitor
                .processes
                .insert(key, SupervisedProcess::new(Some(wanted), &SupervisionTimes::ROLE));
        }
        Ok(monitor)
    }

    /// `hangup` delivers reload requests, also from before the first read of the configuration.
    async fn run(&mut self, mut hangup: Hangup) -> Result<(), ExitFailure> {
        let catch = |kind| {
            signal(kind)
                .with_code(&messages::PROCESS_SETUP_FAILED, || "cannot receive signals")
                .with_exit_status(exit_status::SYSTEM)
        };
        let mut child = catch(SignalKind::child())?;
        let mut terminate = catch(SignalKind::terminate())?;
        let mut interrupt = catch(SignalKind::interrupt())?;
        let mut stop = self.process.stop.subscribe();
        self.log_startup();
        let mut next_ping = Instant::now() + self.ping;
        loop {
            self.update_bus_policy().await;
            let keys: Vec<_> = self.processes.keys().cloned().collect();
            for key in &keys {
                self.handle_tick(key);
            }
            self.remove_ended();
            self.update_status();
            if self.processes.is_empty() {
                break;
            }
            let now = Instant::now();
            if self.end_deadline.is_some_and(|deadline| deadline <= now) {
                log!(ERROR, &messages::PROCESSES_LEFT, "some role processes survived SIGKILL");
                break;
            }
            if next_ping <= now {
                next_ping = now + self.ping;
                self.ping_roles();
                self.check_keytabs();
                self.check_snapshot_mark();
                self.check_socket_files();
            }
            let wake = self
                .processes
                .iter()
                .filter_map(|(key, minded)| minded.state.next_wake(self.may_start(key)));
            let wake = wake.chain([next_ping]).chain(self.end_deadline).min().unwrap_or(next_ping);
            tokio::select! {
                _ = child.recv() => self.reap(),
                Some(news) = self.channels.event_queue.recv() => self.handle_event(news),
                Some(done) = self.channels.reload_queue.recv(), if !self.config.is_reading => self.start_reload(Some(done)),
                _ = hangup.recv(), if !self.config.is_reading => self.start_reload(None),
                _ = terminate.recv() => self.end_all("SIGTERM"),
                _ = interrupt.recv() => self.end_all("SIGINT"),
                Ok(()) = stop.changed() => self.end_all("a request over the bus"),
                () = sleep_until(wake.into()) => {}
            }
        }
        for (listen, _) in self.listeners.sockets.values() {
            runtime_dirs::remove_socket(listen);
        }
        info!("ended");
        Ok(())
    }

    fn log_startup(&self) {
        self.config.loaded.warnings.iter().for_each(CodedLine::log_warning);
        let domains = self.config.loaded.domain_names().join(", ");
        let (state, run) =
            (self.runtime_dirs.state_dir.display(), self.runtime_dirs.run_dir.display());
        info!("starts; domains: {domains}; state in {state}, sockets in {run}");
        if let RoleUsers::Invoking(ids) = &self.users {
            let uid = ids.uid;
            log!(WARN, &messages::ROLES_SHARE_USER, "all roles run as uid {uid}");
            if !startup::is_in_passwd(uid) {
                log!(WARN, &messages::UID_NOT_IN_PASSWD, "uid {uid}: not in /etc/passwd");
            }
        }
    }

    /// Whether the preconditions of a role are met: the bus, and exclusive use of its user.
    fn may_start(&self, key: &ProcessKey) -> bool {
        let Some(minded) = self.processes.get(key) else { return false };
        let user = minded.desired.as_ref().map(|wanted| wanted.user);
        *key == ProcessKey::Bus
            || self.bus_link.connection.is_some()
                && user.is_none_or(|user| !self.stale_users().contains(&user.uid))
    }

    /// Returns users with a process of a role that they no longer belong to.
    fn stale_users(&self) -> BTreeSet<u32> {
        let domains = self.config.loaded.domain_names();
        let now = |key: &ProcessKey| match key {
            ProcessKey::Bus => Some(self.users.bus()),
            ProcessKey::Role(role) => self.users.user_of_role(role, &domains),
        };
        let running = self.processes.iter().filter(|(_, minded)| minded.child.is_some());
        let moved = running.filter(|(key, minded)| minded.user != now(key));
        moved.filter_map(|(_, minded)| minded.user).map(|user| user.uid).collect()
    }

    fn handle_tick(&mut self, key: &ProcessKey) {
        let may_start = self.may_start(key);
        self.apply_process_event(key, ProcessEvent::Tick { may_start });
    }

    /// Decides about an event and acts.
    fn apply_process_event(&mut self, key: &ProcessKey, event: ProcessEvent) {
        let Some(minded) = self.processes.get_mut(key) else { return };
        let before = minded.state.phase;
        let (state, action) = decide(Instant::now(), minded.state, event, times_of(key));
        minded.state = state;
        if describe_phase(before) != describe_phase(state.phase) {
            minded.since = SystemTime::now();
        }
        match action {
            ProcessAction::Nothing => {}
            ProcessAction::Start => {
                if let Err(error) = self.start_process(key) {
                    log!(ERROR, error.message, "{key}: {error}");
                    self.record_exit(key, error.to_string(), false);
                }
            }
            ProcessAction::Terminate => self.send_signal(key, Signal::TERM),
            ProcessAction::Kill => {
                let (message, why) = match before {
                    ProcessPhase::Starting { .. } => {
                        (&messages::ROLE_START_TIMEOUT, "not ready within the time limit")
                    }
                    ProcessPhase::Running { .. } => {
                        (&messages::ROLE_NO_REPLY, "no reply to status calls")
                    }
                    _ => (&messages::ROLE_STOP_TIMEOUT, "stop request: not finished in time"),
                };
                log!(WARN, message, "{key}: {why}; sending SIGKILL");
                self.send_signal(key, Signal::KILL);
            }
        }
        if event == ProcessEvent::Ready && describe_phase(before) != describe_phase(state.phase) {
            info!("{key}: ready");
            self.renew_level(key);
        }
        self.watch_socket(key);
    }

    fn send_signal(&self, key: &ProcessKey, signal: Signal) {
        if let Some(child) = self.processes.get(key).and_then(|minded| minded.child.as_ref()) {
            spawn::send_signal(child, signal);
        }
    }

    fn start_process(&mut self, key: &ProcessKey) -> Result<(), CodedError> {
        let Some(minded) = self.processes.get(key) else { return Ok(()) };
        let separate = self.users.are_separate();
        let (config, user) = match &minded.desired {
            Some(wanted) => (wanted.config.clone(), wanted.user),
            None => (self.prepare_bus()?, self.users.bus()),
        };
        let owner = Some(user).filter(|_| separate);
        let role = match key {
            ProcessKey::Bus => None,
            ProcessKey::Role(role) => {
                if matches!(role, RoleName::Backend(_) | RoleName::Publisher) {
                    let publisher =
                        self.users.user_of_role(&RoleName::Publisher, &[]).filter(|_| separate);
                    self.runtime_dirs.recreate_state(publisher)?;
                }
                match role {
                    RoleName::Backend(domain) => {
                        self.runtime_dirs.prepare_cache_dir(
                            domain,
                            owner,
                            &self.users.backend_uids(),
                        )?;
                    }
                    RoleName::Monitor | RoleName::Publisher | RoleName::Responder(_) => {}
                }
                Some(role.to_string())
            }
        };
        let level = self.level_of(key);
        let launch = Launch {
            role,
            config,
            log: LogConfig { level: level.clone(), ..self.config.loaded.config.log.clone() },
            state_dir: self.runtime_dirs.state_dir.clone(),
            run_dir: self.runtime_dirs.run_dir.clone(),
            monitor_pid: std::process::id(),
            monitor_uid: rustix::process::geteuid().as_raw(),
        };
        let socket = self.listeners.sockets.get(key).map(|(_, socket)| socket.as_fd());
        let role = key.to_string();
        let (mut child, words) =
            spawn::spawn_role(&role, &launch, owner, socket, *key == ProcessKey::Bus)?;
        debug!("{key} starts as process {}", child.id());
        if let Some(said) = child.stderr.take() {
            spawn::relay_stderr(role, said);
        }
        if let Some(minded) = self.processes.get_mut(key) {
            minded.child = Some(child);
            minded.exit_message = words;
            minded.user = Some(user);
            minded.started_level = level;
        }
        if *key == ProcessKey::Bus {
            self.join_bus();
        }
        Ok(())
    }

    fn prepare_bus(&mut self) -> Result<RoleConfig, CodedError> {
        let owner = Some(self.users.bus()).filter(|_| self.users.are_separate());
        self.runtime_dirs.prepare_bus_dir(owner)?;
        self.bus_link.policy = self.current_bus_policy();
        let config = self.runtime_dirs.write_file(BUS_CONF, &self.bus_link.policy)?;
        Ok(RoleConfig::Bus(BusRoleConfig { program: self.bus_link.program.clone(), config }))
    }

    fn current_bus_policy(&self) -> String {
        let (socket, domains) = (self.runtime_dirs.bus_socket(), self.config.loaded.domain_names());
        dbus_policy::bus_conf(&socket, &self.users, &domains, &self.stale_users())
    }

    /// Updates the policy of the bus, if it differs from the one in force.
    async fn update_bus_policy(&mut self) {
        let Some(connection) = self.bus_link.connection.clone() else { return };
        let policy = self.current_bus_policy();
        if policy == self.bus_link.policy || Instant::now() < self.bus_link.policy_due {
            return;
        }
        match self.reload_bus_policy(&connection, &policy).await {
            Ok(()) => self.bus_link.policy = policy,
            Err(error) => {
                // A role that may not own its name yet is restarted later. The policy in force is now unknown: the bus
                // may have read the file, with the reply lost.
                log!(ERROR, error.message, "{error}");
                self.bus_link.policy.clear();
                self.bus_link.policy_due = Instant::now() + POLICY_PAUSE;
            }
        }
    }

    async fn reload_bus_policy(&self, bus: &Connection, policy: &str) -> Result<(), CodedError> {
        self.runtime_dirs.write_file(BUS_CONF, policy)?;
        let told = async {
            let reloading = async { DBusProxy::new(bus).await?.reload_config().await };
            anyhow::Ok(timeout(POLICY_WAIT, reloading).await??)
        };
        let text = || "the bus: the new policy is not applied";
        told.await.with_code(&messages::BUS_POLICY_NOT_APPLIED, text)
    }

    /// Starts a task that connects to the bus and reads its signals.
    fn join_bus(&mut self) {
        self.leave_bus();
        self.bus_link.number += 1;
        let (level, counters) = (self.process.level.clone(), self.process.counters.clone());
        let (stop, started) = (self.process.stop.clone(), self.process.started);
        let (shared, reloads) = (self.report.status.clone(), self.channels.reloads.clone());
        let uid = rustix::process::geteuid().as_raw();
        let levels = self.process.levels.clone();
        let objects = move || {
            let role = RoleObject {
                role: RoleName::Monitor,
                started,
                sandbox: "no new privileges, not dumpable".to_owned(),
                level: level.clone(),
                counters: counters.clone(),
                stop: stop.clone(),
                monitor_uid: uid,
            };
            let monitor = dbus::MonitorObject {
                status: shared.clone(),
                reloads: reloads.clone(),
                uid,
                levels: levels.clone(),
                own_level: level.clone(),
            };
            (role, monitor)
        };
        let address = bus_address(&self.runtime_dirs.run_dir);
        let task = tokio::spawn(bus_connection::hold_connection(
            self.bus_link.number,
            address,
            objects,
            self.channels.events.clone(),
        ));
        self.bus_link.task = Some(task.abort_handle());
    }

    /// Drops the connection. Roles on the bus restart when it is back.
    fn leave_bus(&mut self) {
        if let Some(task) = self.bus_link.task.take() {
            task.abort();
        }
        if self.bus_link.connection.take().is_some() && self.end_deadline.is_none() {
            for key in self.roles() {
                self.apply_process_event(&key, ProcessEvent::BusLost);
            }
        }
    }

    fn roles(&self) -> Vec<ProcessKey> {
        self.processes.keys().filter(|key| **key != ProcessKey::Bus).cloned().collect()
    }

    /// Processes the end of children.
    fn reap(&mut self) {
        let keys: Vec<_> = self.processes.keys().cloned().collect();
        for key in keys {
            let Some(minded) = self.processes.get_mut(&key) else { continue };
            let Some(child) = minded.child.as_mut() else { continue };
            let mut is_clean = false;
            let how = match child.try_wait() {
                Ok(None) => continue,
                Ok(Some(status)) => {
                    let why =
                        minded.exit_message.take().map(|words| words.read()).unwrap_or_default();
                    is_clean = status.success() && why.is_empty();
                    let how = spawn::describe_exit(status);
                    if why.is_empty() { how } else { format!("{how}: {why}") }
                }
                Err(error) => format!("exit status cannot be read: {error}"),
            };
            let pid = child.id();
            minded.child = None;
            let expected = matches!(minded.state.phase, ProcessPhase::Stopping { .. });
            if expected {
                debug!("{key}: process {pid}: {how}");
            } else {
                log!(WARN, &messages::ROLE_RESTARTED, "{key}: restarting process {pid}: {how}");
            }
            self.record_exit(&key, how, is_clean);
        }
    }

    fn record_exit(&mut self, key: &ProcessKey, how: String, is_clean: bool) {
        if let Some(minded) = self.processes.get_mut(key) {
            minded.last_exit = how;
            minded.last_exit_is_clean = is_clean;
        }
        self.apply_process_event(key, ProcessEvent::Ended);
        if *key == ProcessKey::Bus {
            self.leave_bus();
        }
    }

    /// Processes an event of the bus tasks.
    fn handle_event(&mut self, news: MonitorEvent) {
        match news {
            MonitorEvent::Joined { link, connection } if link == self.bus_link.number => {
                self.bus_link.connection = Some(connection);
                self.apply_process_event(&ProcessKey::Bus, ProcessEvent::Ready);
            }
            MonitorEvent::BusLost { link } if link == self.bus_link.number => {
                // Most likely its process has ended. Otherwise it refuses the monitor, and is replaced.
                self.apply_process_event(&ProcessKey::Bus, ProcessEvent::BusLost);
                self.leave_bus();
            }
            MonitorEvent::NameTaken { link, name, pid } if link == self.bus_link.number => {
                let named = self.processes.iter().find(|(key, minded)| {
                    minded.pid() == pid
                        && matches!(key, ProcessKey::Role(role) if role.bus_name() == name)
                });
                if let Some(key) = named.map(|(key, _)| key.clone()) {
                    self.apply_process_event(&key, ProcessEvent::Ready);
                }
            }
            MonitorEvent::PingsDone { link, answers } if link == self.bus_link.number => {
                for (key, pid, answered) in answers {
                    // A reply of a replaced process says nothing about the present one.
                    let same = self.processes.get(&key).is_some_and(|minded| minded.pid() == pid);
                    if key == ProcessKey::Bus || same {
                        let event = if answered {
                            ProcessEvent::PingAnswered
                        } else {
                            ProcessEvent::PingMissed
                        };
                        self.apply_process_event(&key, event);
                    }
                }
            }
            MonitorEvent::SocketUsed(key) => {
                if let Some(minded) = self.processes.get_mut(&key) {
                    minded.socket_watch = None;
                    if self.may_start(&key) {
                        self.apply_process_event(&key, ProcessEvent::SocketUsed);
                    }
                }
            }
            MonitorEvent::ConfigRead { settings, done } => {
                self.config.is_reading = false;
                let outcome = self.finish_reload(settings);
                if let Some(done) = done {
                    let _ = done.send(outcome.map_err(|errors| errors.to_string()));
                }
            }
            MonitorEvent::KeytabsRead(found) => self.apply_keytabs(found),
            MonitorEvent::Published => self.check_snapshot_mark(),
            MonitorEvent::Joined { .. }
            | MonitorEvent::BusLost { .. }
            | MonitorEvent::NameTaken { .. }
            | MonitorEvent::PingsDone { .. } => {}
        }
    }

    /// Starts a task that waits for the first connection to a role's socket, while the role has no process.
    fn watch_socket(&mut self, key: &ProcessKey) {
        let may_start = self.may_start(key);
        let Some(minded) = self.processes.get_mut(key) else { return };
        if minded.state.phase != ProcessPhase::Idle || !may_start {
            if let Some(watch) = minded.socket_watch.take() {
                watch.abort();
            }
            return;
        }
        if minded.socket_watch.is_some() {
            return;
        }
        let Some((_, socket)) = self.listeners.sockets.get(key) else { return };
        let Ok(socket) = socket.try_clone() else { return };
        let (key, news) = (key.clone(), self.channels.events.clone());
        let task = tokio::spawn(async move {
            // Deprecated for types that may change their descriptor without the knowledge of tokio. This one owns one
            // and never changes it.
            #[allow(deprecated)]
            let socket = AsyncFd::with_interest(socket, Interest::READABLE);
            let Ok(socket) = socket else { return };
            if socket.readable().await.is_ok() {
                let _ = news.send(MonitorEvent::SocketUsed(key)).await;
            }
        });
        minded.socket_watch = Some(task.abort_handle());
    }

    /// Starts a round of pings, and reports to systemd that this loop runs.
    fn ping_roles(&mut self) {
        self.process.counters.run_upkeep();
        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        let Some(connection) = self.bus_link.connection.clone() else { return };
        let running =
            |minded: &SupervisedProcess| matches!(minded.state.phase, ProcessPhase::Running { .. });
        let roles = self
            .processes
            .iter()
            .filter(|(key, minded)| **key != ProcessKey::Bus && running(minded));
        let roles = roles.map(|(key, minded)| (key.clone(), minded.pid())).collect();
        let within = PING_WAIT.min(self.ping / 2);
        tokio::spawn(bus_connection::ping_all(
            self.bus_link.number,
            connection,
            roles,
            within,
            self.channels.events.clone(),
        ));
    }

    /// Opens sockets of a plan that are not open yet.
    fn open_sockets(
        &self,
        plan: &BTreeMap<ProcessKey, DesiredProcess>,
    ) -> Result<BTreeMap<ProcessKey, (ListenAddress, OwnedFd)>, CodedError> {
        let mut opened = BTreeMap::new();
        for (key, wanted) in plan {
            let Some(listen) = &wanted.listen else { continue };
            if self.listeners.sockets.get(key).is_some_and(|(old, _)| old == listen) {
                continue;
            }
            match runtime_dirs::listen(listen) {
                Ok(socket) => opened.insert(key.clone(), (listen.clone(), socket)),
                Err(error) => {
                    opened.values().for_each(|(listen, _)| runtime_dirs::remove_socket(listen));
                    return Err(error);
                }
            };
        }
        Ok(opened)
    }

    /// Sets the mark that a snapshot was published on this host, once there is one. If all roles share one user,
    /// programs of the host read another file.
    fn check_snapshot_mark(&mut self) {
        if self.mark.is_set || !self.users.are_separate() {
            return;
        }
        let snapshot = self.runtime_dirs.state_dir.join(SNAPSHOT_DIR).join(SNAPSHOT_FILE);
        if snapshot.symlink_metadata().is_err() {
            return;
        }
        let is_news = !self.mark.is_failure_logged;
        let (is_marked, mark_told) = (startup::mark_published(mark::path(), is_news), true);
        (self.mark.is_set, self.mark.is_failure_logged) = (is_marked, mark_told);
    }

    /// Listens again if the file of a socket was removed or replaced, because no program can reach the old socket. The
    /// role of that socket restarts with the new one.
    fn check_socket_files(&mut self) {
        if self.end_deadline.is_some() || self.config.is_reading {
            return;
        }
        if let Err(error) = self.runtime_dirs.recreate_run() {
            log!(WARN, error.message, "{error}");
        }
        let is_running = self
            .processes
            .get(&ProcessKey::Bus)
            .is_some_and(|bus| matches!(bus.state.phase, ProcessPhase::Running { .. }));
        if is_running && !self.runtime_dirs.has_bus() {
            log!(WARN, &messages::BUS_SOCKET_REMOVED, "the bus: its socket was removed");
            self.apply_process_event(&ProcessKey::Bus, ProcessEvent::Restart);
        }
        let keys: Vec<_> = self.listeners.sockets.keys().cloned().collect();
        for key in keys {
            let Some((listen @ ListenAddress::Unix(path), _)) = self.listeners.sockets.get(&key)
            else {
                continue;
            };
            let found = runtime_dirs::socket_file(listen);
            let known = self.listeners.files.get(&key).copied();
            if let Some(found) = found.filter(|found| known.is_none_or(|known| known == *found)) {
                self.listeners.files.insert(key, found);
                continue;
            }
            let (listen, path) = (listen.clone(), path.display().to_string());
            match runtime_dirs::listen(&listen) {
                Ok(socket) => {
                    log!(
                        WARN,
                        &messages::ROLE_SOCKET_REMOVED,
                        "{path}: removed or replaced; created again for {key}"
                    );
                    self.listeners.files.remove(&key);
                    self.listeners.sockets.insert(key.clone(), (listen, socket));
                    if let Some(minded) = self.processes.get_mut(&key) {
                        minded.socket_watch.take().inspect(AbortHandle::abort);
                    }
                    self.apply_process_event(&key, ProcessEvent::Restart);
                }
                Err(error) => {
                    log!(ERROR, error.message, "{path}: removed or replaced. {error}");
                }
            }
        }
    }

    /// Ends all processes, the bus last.
    fn end_all(&mut self, by: &str) {
        if self.end_deadline.is_some() {
            return;
        }
        info!("stopping: {by}");
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        self.end_deadline = Some(Instant::now() + END_WAIT);
        for key in self.roles() {
            self.apply_process_event(&key, ProcessEvent::Stop);
        }
    }

    /// Removes processes that ended for good.
    fn remove_ended(&mut self) {
        self.processes.retain(|_, minded| minded.state.phase != ProcessPhase::Gone);
        if self.end_deadline.is_some() && self.processes.keys().eq([&ProcessKey::Bus]) {
            let leaving = matches!(
                self.processes[&ProcessKey::Bus].state.phase,
                ProcessPhase::Stopping { then: supervision::NextPhase::End, .. }
            );
            if !leaving {
                self.apply_process_event(&ProcessKey::Bus, ProcessEvent::Stop);
                self.processes.retain(|_, minded| minded.state.phase != ProcessPhase::Gone);
            }
        }
    }
}

impl Drop for Monitor {
    /// Kills the remaining processes if the loop could not end them regularly.
    fn drop(&mut self) {
        for minded in self.processes.values() {
            if let Some(child) = &minded.child {
                spawn::send_signal(child, Signal::KILL);
            }
        }
    }
}
