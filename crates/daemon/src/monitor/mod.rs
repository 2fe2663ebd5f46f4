//! Starts the bus and every role, restarts what dies or hangs, tells readiness, reads the
//! configuration anew when told to. It serves no look-up and writes no snapshot; of what roles do it
//! knows nothing.
//!
//! One loop takes what happens (a child ended, a signal came, the bus has [news](link::News), a
//! deadline passed), lets [`decide()`] judge it and does what that says. Nothing in the loop waits but
//! for the next happening, and for the bus to take a new policy, which has a deadline; what may hang,
//! such as a file on a network mount, is read beside it.
//!
//! A user that goes from one role to another, as when domains change places, is the new role's once
//! no process of the old one is left: until then the new one does not start, owns no name on the bus
//! and has no folder.
//!
//! Timers: one, for pings and systemd's watchdog, every 10 s; tokio's wheel of timers wakes up to
//! three times on its way there. All others are deadlines of something that is under way.

mod decide;
mod folders;
mod keytabs;
mod link;
mod object;
mod plan;
mod policy;
mod process;
mod reload;
mod settings;
mod start;
mod tell;
mod users;

pub(crate) use policy::escaped;
pub(crate) use start::main;
pub(crate) use users::Ids;

use crate::exit::{self, Failure, Status};
use crate::logging::LogLevel;
use crate::metrics::Counters;
use crate::role::{self, Launch, RoleConfig, bus_address};
use anyhow::Context as _;
use decide::{Action, Event, Phase, State, Times, decide};
use folders::Folders;
use keytabs::Keytabs;
use link::News;
use object::{Reload, Shared};
use plan::{Key, Wanted, plan};
use process::Words;
use roster_bus::names::Role;
use roster_bus::zbus::Connection;
use roster_bus::zbus::fdo::DBusProxy;
use roster_config::Listen;
use roster_descriptors::closing;
use rustix::process::Signal;
use sd_notify::NotifyState;
use settings::{Reader, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal as Hangup, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep_until, timeout};
use tracing::{debug, error, info, warn};
use users::Users;

/// How long the answer to a ping may take, if pings are not more frequent than that.
const PING_WAIT: Duration = Duration::from_secs(5);
/// From the order to end until the end, whatever hangs.
const END_WAIT: Duration = Duration::from_secs(20);
/// How long the bus may take to read its policy anew.
const POLICY_WAIT: Duration = Duration::from_secs(3);
/// After it did not, how long until it is told again: nothing else goes on while it is.
const POLICY_PAUSE: Duration = Duration::from_secs(10);
/// The policy's file in the run-time folder.
const BUS_CONF: &str = "bus.conf";
/// How long a client of nscd may wait for a role that is to start again soon.
const REFUSED_AFTER: Duration = Duration::from_secs(1);
/// News that may wait.
const NEWS_MAX: usize = 256;
/// Orders to read the configuration anew that may wait.
const RELOADS_MAX: usize = 8;

/// One process, or what stands for it.
struct Minded {
    /// What it runs by; the bus runs by nothing of the configuration.
    wanted: Option<Wanted>,
    state: State,
    child: Option<Child>,
    /// Where it leaves word of why it ends.
    words: Option<Words>,
    /// Whose process the child is.
    user: Option<Ids>,
    since: SystemTime,
    last_end: String,
    /// Waits for its socket to be used.
    watch: Option<AbortHandle>,
    /// Sends everybody away who connects to its socket.
    refusal: Option<AbortHandle>,
}

impl Minded {
    fn new(wanted: Option<Wanted>, times: &Times) -> Self {
        let on_use = wanted.as_ref().is_some_and(|wanted| wanted.on_use);
        Self {
            wanted,
            state: State::new(Instant::now(), times, on_use),
            child: None,
            words: None,
            user: None,
            since: SystemTime::now(),
            last_end: String::new(),
            watch: None,
            refusal: None,
        }
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }
}

fn times(key: &Key) -> &'static Times {
    if *key == Key::Bus { &Times::BUS } else { &Times::ROLE }
}

fn in_words(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Waiting { .. } => "waiting",
        Phase::Starting { .. } => "starting",
        Phase::Running { .. } => "running",
        Phase::Stopping { .. } => "stopping",
        Phase::Gone => "gone",
    }
}

struct Monitor {
    config: PathBuf,
    settings: Settings,
    config_error: String,
    users: Users,
    bus_program: PathBuf,
    folders: Folders,
    /// What the bus goes by.
    policy: String,
    /// Not before then it is told of another.
    policy_due: Instant,
    level: LogLevel,
    counters: Counters,
    started: SystemTime,
    started_at: Instant,
    minded: BTreeMap<Key, Minded>,
    /// Listening sockets of roles; they stay when a role dies, and so do connections that wait.
    sockets: BTreeMap<Key, (Listen, OwnedFd)>,
    /// Which files have their names, once they were looked at.
    socket_files: BTreeMap<Key, (u64, u64)>,
    /// Whether the mark is set that a snapshot was published, and whether the log has why it is not.
    is_marked: bool,
    mark_told: bool,
    /// The connection to the bus, and its number.
    bus: Option<Connection>,
    link: u64,
    link_task: Option<AbortHandle>,
    news: mpsc::Sender<News>,
    news_queue: mpsc::Receiver<News>,
    reloads: mpsc::Sender<Reload>,
    reload_queue: mpsc::Receiver<Reload>,
    reader: Reader,
    keytabs: Keytabs,
    /// Whether the configuration is being read. One order at a time is carried out.
    reading: bool,
    stop: watch::Sender<bool>,
    /// When the end must have come, once it was ordered.
    ending: Option<Instant>,
    shared: Shared,
    ping: Duration,
    ready_told: bool,
    status_told: String,
}

impl Monitor {
    fn new(
        config: PathBuf,
        ping: Duration,
        (reader, settings): (Reader, Settings),
        users: Users,
        bus_program: PathBuf,
        folders: Folders,
        level: LogLevel,
    ) -> Result<Self, Failure> {
        let (news, news_queue) = mpsc::channel(NEWS_MAX);
        let (reloads, reload_queue) = mpsc::channel(RELOADS_MAX);
        let mut monitor = Self {
            config,
            config_error: String::new(),
            bus_program,
            folders,
            policy: String::new(),
            policy_due: Instant::now(),
            level,
            counters: Counters::start(),
            started: SystemTime::now(),
            started_at: Instant::now(),
            minded: BTreeMap::from([(Key::Bus, Minded::new(None, &Times::BUS))]),
            sockets: BTreeMap::new(),
            socket_files: BTreeMap::new(),
            is_marked: false,
            mark_told: false,
            bus: None,
            link: 0,
            link_task: None,
            news,
            news_queue,
            reloads,
            reload_queue,
            reader,
            keytabs: Keytabs::default(),
            reading: false,
            stop: watch::Sender::new(false),
            ending: None,
            shared: Shared::default(),
            ping,
            ready_told: false,
            status_told: String::new(),
            settings,
            users,
        };
        monitor.mark_keytab();
        monitor.look_for_snapshot();
        let plan = plan(&monitor.settings, &monitor.users, &monitor.folders.run)
            .status(exit::CANNOT_CREATE)?;
        let sockets = monitor.open_sockets(&plan).status(exit::CANNOT_CREATE)?;
        monitor.sockets.extend(sockets);
        for (key, wanted) in plan {
            monitor.minded.insert(key, Minded::new(Some(wanted), &Times::ROLE));
        }
        Ok(monitor)
    }

    /// `hangup` tells of orders to read the configuration anew, and has since before it was read.
    async fn run(&mut self, mut hangup: Hangup) -> Result<(), Failure> {
        let catch = |kind| signal(kind).status(exit::SYSTEM);
        let mut child = catch(SignalKind::child())?;
        let mut terminate = catch(SignalKind::terminate())?;
        let mut interrupt = catch(SignalKind::interrupt())?;
        let mut stop = self.stop.subscribe();
        self.say_hello();
        let mut next_ping = Instant::now() + self.ping;
        loop {
            self.renew_policy().await;
            let keys: Vec<_> = self.minded.keys().cloned().collect();
            for key in &keys {
                self.time_passes(key);
            }
            self.tidy();
            self.tell();
            if self.minded.is_empty() {
                break;
            }
            let now = Instant::now();
            if self.ending.is_some_and(|deadline| deadline <= now) {
                error!("processes that do not even die are left behind");
                break;
            }
            if next_ping <= now {
                next_ping = now + self.ping;
                self.ping();
                self.look_at_keytabs();
                self.look_for_snapshot();
                self.look_at_sockets();
            }
            let wake = self
                .minded
                .iter()
                .filter_map(|(key, minded)| minded.state.wake(self.may_start(key)));
            let wake = wake.chain([next_ping]).chain(self.ending).min().unwrap_or(next_ping);
            tokio::select! {
                _ = child.recv() => self.reap(),
                Some(news) = self.news_queue.recv() => self.hear(news),
                Some(done) = self.reload_queue.recv(), if !self.reading => self.reload(Some(done)),
                _ = hangup.recv(), if !self.reading => self.reload(None),
                _ = terminate.recv() => self.end("SIGTERM"),
                _ = interrupt.recv() => self.end("SIGINT"),
                Ok(()) = stop.changed() => self.end("an order over the bus"),
                () = sleep_until(wake.into()) => {}
            }
        }
        for (listen, _) in self.sockets.values() {
            folders::unlisten(listen);
        }
        info!("ended");
        Ok(())
    }

    fn say_hello(&self) {
        for warning in &self.settings.warnings {
            warn!("{warning}");
        }
        let domains = self.settings.domains().join(", ");
        let (state, run) = (self.folders.state.display(), self.folders.run.display());
        info!("starts; domains: {domains}; state in {state}, sockets in {run}");
        if let Users::Invoking(ids) = &self.users {
            warn!("every role runs as user {}: nothing but the sandbox keeps them apart", ids.uid);
            if !start::is_in_passwd(ids.uid) {
                warn!(
                    "/etc/passwd has no user {}: unless another name service knows him, dbus-daemon \
                     lets nobody in and no role can start; add a line for him",
                    ids.uid
                );
            }
        }
    }

    /// Whether what a role needs to start is there: the bus, and its user for itself.
    fn may_start(&self, key: &Key) -> bool {
        let Some(minded) = self.minded.get(key) else { return false };
        let user = minded.wanted.as_ref().map(|wanted| wanted.user);
        *key == Key::Bus
            || self.bus.is_some() && user.is_none_or(|user| !self.taken().contains(&user.uid))
    }

    /// Users under which there is still a process of a role that they belong to no more.
    fn taken(&self) -> BTreeSet<u32> {
        let domains = self.settings.domains();
        let now = |key: &Key| match key {
            Key::Bus => Some(self.users.bus()),
            Key::Role(role) => self.users.of(role, &domains),
        };
        let running = self.minded.iter().filter(|(_, minded)| minded.child.is_some());
        let moved = running.filter(|(key, minded)| minded.user != now(key));
        moved.filter_map(|(_, minded)| minded.user).map(|user| user.uid).collect()
    }

    fn time_passes(&mut self, key: &Key) {
        let may_start = self.may_start(key);
        self.step(key, Event::Time { may_start });
    }

    /// Judges an event and does what follows.
    fn step(&mut self, key: &Key, event: Event) {
        let Some(minded) = self.minded.get_mut(key) else { return };
        let before = minded.state.phase;
        let (state, action) = decide(Instant::now(), minded.state, event, times(key));
        minded.state = state;
        if in_words(before) != in_words(state.phase) {
            minded.since = SystemTime::now();
        }
        match action {
            Action::Nothing => {}
            Action::Start => {
                if let Err(error) = self.start(key) {
                    error!("{key}: {error:#}");
                    self.ended(key, format!("{error:#}"));
                }
            }
            Action::Terminate => self.signal(key, Signal::TERM),
            Action::Kill => {
                let why = match before {
                    Phase::Starting { .. } => "did not get ready in time",
                    Phase::Running { .. } => "does not answer",
                    _ => "does not end",
                };
                warn!("{key} {why} and is killed");
                self.signal(key, Signal::KILL);
            }
        }
        if event == Event::Ready && in_words(before) != in_words(state.phase) {
            info!("{key} is ready");
        }
        self.watch_socket(key);
        self.refuse(key);
    }

    fn signal(&self, key: &Key, signal: Signal) {
        if let Some(child) = self.minded.get(key).and_then(|minded| minded.child.as_ref()) {
            process::send(child, signal);
        }
    }

    fn start(&mut self, key: &Key) -> anyhow::Result<()> {
        let Some(minded) = self.minded.get(key) else { return Ok(()) };
        let separate = self.users.are_separate();
        let (config, user) = match &minded.wanted {
            Some(wanted) => (wanted.config.clone(), wanted.user),
            None => (self.prepare_bus()?, self.users.bus()),
        };
        let owner = Some(user).filter(|_| separate);
        let role = match key {
            Key::Bus => None,
            Key::Role(role) => {
                if matches!(role, Role::Backend(_) | Role::Publisher) {
                    let publisher = self.users.of(&Role::Publisher, &[]).filter(|_| separate);
                    self.folders.renew_state(publisher)?;
                }
                match role {
                    Role::Backend(domain) => {
                        self.folders.cache(domain, owner, &self.users.backend_uids())?;
                    }
                    Role::Monitor | Role::Publisher | Role::Responder(_) => {}
                }
                if let RoleConfig::Nscd(nscd) = &config {
                    folders::maps(&nscd.maps, owner)?;
                }
                Some(role.to_string())
            }
        };
        let launch = Launch {
            role,
            config,
            log: self.settings.config.log.clone(),
            state_dir: self.folders.state.clone(),
            run_dir: self.folders.run.clone(),
            monitor_pid: std::process::id(),
            monitor_uid: rustix::process::geteuid().as_raw(),
        };
        let socket = self.sockets.get(key).map(|(_, socket)| socket.as_fd());
        let role = key.to_string();
        // It starts a process of another user, and becomes its own then.
        let parts = matches!(launch.config, RoleConfig::Nscd(_));
        let starts_as = owner.filter(|_| !parts);
        let (mut child, words) =
            process::start(&role, &launch, starts_as, socket, *key == Key::Bus)?;
        debug!("{key} starts as process {}", child.id());
        if let Some(said) = child.stderr.take() {
            process::relay(role, said);
        }
        if let Some(minded) = self.minded.get_mut(key) {
            minded.child = Some(child);
            minded.words = words;
            minded.user = Some(user);
        }
        if *key == Key::Bus {
            self.join_bus();
        }
        Ok(())
    }

    fn prepare_bus(&mut self) -> anyhow::Result<RoleConfig> {
        let owner = Some(self.users.bus()).filter(|_| self.users.are_separate());
        self.folders.bus(owner)?;
        self.policy = self.policy_now();
        let config = self.folders.write(BUS_CONF, &self.policy)?;
        Ok(RoleConfig::Bus(role::Bus { program: self.bus_program.clone(), config }))
    }

    fn policy_now(&self) -> String {
        let (socket, domains) = (self.folders.bus_socket(), self.settings.domains());
        policy::bus_conf(&socket, &self.users, &domains, &self.taken())
    }

    /// Has the bus go by what must hold now, if that is something else than it goes by.
    async fn renew_policy(&mut self) {
        let Some(connection) = self.bus.clone() else { return };
        let policy = self.policy_now();
        if policy == self.policy || Instant::now() < self.policy_due {
            return;
        }
        match self.tell_policy(&connection, &policy).await {
            Ok(()) => self.policy = policy,
            Err(error) => {
                // Who may not own its name yet will be started again. What the bus goes by now is
                // not known: it may have read the file and the answer be lost.
                error!("the bus did not take its new policy, and is told again: {error:#}");
                self.policy.clear();
                self.policy_due = Instant::now() + POLICY_PAUSE;
            }
        }
    }

    async fn tell_policy(&self, bus: &Connection, policy: &str) -> anyhow::Result<()> {
        self.folders.write(BUS_CONF, policy)?;
        let told = async { DBusProxy::new(bus).await?.reload_config().await };
        Ok(timeout(POLICY_WAIT, told).await.context("no answer")??)
    }

    /// Has a task connect to the bus and listen to it.
    fn join_bus(&mut self) {
        self.leave_bus();
        self.link += 1;
        let (level, counters) = (self.level.clone(), self.counters.clone());
        let (stop, started) = (self.stop.clone(), self.started);
        let (shared, reloads) = (self.shared.clone(), self.reloads.clone());
        let uid = rustix::process::geteuid().as_raw();
        let objects = move || {
            let role = role::Object {
                role: Role::Monitor,
                started,
                sandbox: "no new privileges, not dumpable".to_owned(),
                level: level.clone(),
                counters: counters.clone(),
                stop: stop.clone(),
                monitor_uid: uid,
            };
            (role, object::Object { shared: shared.clone(), reloads: reloads.clone(), uid })
        };
        let address = bus_address(&self.folders.run);
        let task = tokio::spawn(link::hold(self.link, address, objects, self.news.clone()));
        self.link_task = Some(task.abort_handle());
    }

    /// Roles that were on the bus start anew when it is there again.
    fn leave_bus(&mut self) {
        if let Some(task) = self.link_task.take() {
            task.abort();
        }
        if self.bus.take().is_some() && self.ending.is_none() {
            for key in self.roles() {
                self.step(&key, Event::Cut);
            }
        }
    }

    fn roles(&self) -> Vec<Key> {
        self.minded.keys().filter(|key| **key != Key::Bus).cloned().collect()
    }

    /// Takes note of children that ended.
    fn reap(&mut self) {
        let keys: Vec<_> = self.minded.keys().cloned().collect();
        for key in keys {
            let Some(minded) = self.minded.get_mut(&key) else { continue };
            let Some(child) = minded.child.as_mut() else { continue };
            let how = match child.try_wait() {
                Ok(None) => continue,
                Ok(Some(status)) => {
                    let why = minded.words.take().map(|words| words.read()).unwrap_or_default();
                    let how = process::in_words(status);
                    if why.is_empty() { how } else { format!("{how}: {why}") }
                }
                Err(error) => format!("lost sight of: {error}"),
            };
            let pid = child.id();
            minded.child = None;
            let expected = matches!(minded.state.phase, Phase::Stopping { .. });
            if expected {
                debug!("{key}, process {pid}, {how}");
            } else {
                warn!("{key}, process {pid}, {how}; it will be started again");
            }
            self.ended(&key, how);
        }
    }

    fn ended(&mut self, key: &Key, how: String) {
        if let Some(minded) = self.minded.get_mut(key) {
            minded.last_end = how;
        }
        self.step(key, Event::Ended);
        if *key == Key::Bus {
            self.leave_bus();
        }
    }

    /// What the tasks on the bus tell.
    fn hear(&mut self, news: News) {
        match news {
            News::Joined { link, connection } if link == self.link => {
                self.bus = Some(connection);
                self.step(&Key::Bus, Event::Ready);
            }
            News::Lost { link } if link == self.link => {
                // Most likely its process has ended; if not, it has no use for us and is replaced.
                self.step(&Key::Bus, Event::Cut);
                self.leave_bus();
            }
            News::Named { link, name, pid } if link == self.link => {
                let named = self.minded.iter().find(|(key, minded)| {
                    minded.pid() == pid && matches!(key, Key::Role(role) if role.bus_name() == name)
                });
                if let Some(key) = named.map(|(key, _)| key.clone()) {
                    self.step(&key, Event::Ready);
                }
            }
            News::Pinged { link, answers } if link == self.link => {
                for (key, pid, answered) in answers {
                    // An answer of a process that was replaced since says nothing of the present one.
                    let same = self.minded.get(&key).is_some_and(|minded| minded.pid() == pid);
                    if key == Key::Bus || same {
                        let event = if answered { Event::Answered } else { Event::Missed };
                        self.step(&key, event);
                    }
                }
            }
            News::Used(key) => {
                if let Some(minded) = self.minded.get_mut(&key) {
                    minded.watch = None;
                    if self.may_start(&key) {
                        self.step(&key, Event::Used);
                    }
                }
            }
            News::Read { settings, done } => {
                self.reading = false;
                let outcome = self.reloaded(settings);
                if let Some(done) = done {
                    let _ = done.send(outcome.map_err(|error| format!("{error:#}")));
                }
            }
            News::Keytabs(found) => self.keytabs_read(found),
            News::Published => self.look_for_snapshot(),
            News::Joined { .. } | News::Lost { .. } | News::Named { .. } | News::Pinged { .. } => {}
        }
    }

    /// Has a task wait for the first connection to a role's socket, while no process does.
    fn watch_socket(&mut self, key: &Key) {
        let may_start = self.may_start(key);
        let Some(minded) = self.minded.get_mut(key) else { return };
        if minded.state.phase != Phase::Idle || !may_start {
            if let Some(watch) = minded.watch.take() {
                watch.abort();
            }
            return;
        }
        if minded.watch.is_some() {
            return;
        }
        let Some((_, socket)) = self.sockets.get(key) else { return };
        let Ok(socket) = socket.try_clone() else { return };
        let (key, news) = (key.clone(), self.news.clone());
        let task = tokio::spawn(async move {
            // Deprecated for types that may change their descriptor under the hands of tokio. This
            // one owns one and never changes it.
            #[allow(deprecated)]
            let socket = AsyncFd::with_interest(socket, Interest::READABLE);
            let Ok(socket) = socket else { return };
            if socket.readable().await.is_ok() {
                let _ = news.send(News::Used(key)).await;
            }
        });
        minded.watch = Some(task.abort_handle());
    }

    /// Has a task close what comes in at nscd's socket while its role does not come up: the C library would wait
    /// for 5 s, in each process, instead of asking the name services.
    fn refuse(&mut self, key: &Key) {
        let Some(minded) = self.minded.get_mut(key) else { return };
        let is_nscds =
            minded.wanted.as_ref().is_some_and(|of| matches!(of.config, RoleConfig::Nscd(_)));
        if !is_nscds || !matches!(minded.state.phase, Phase::Waiting { .. }) {
            if let Some(refusal) = minded.refusal.take() {
                refusal.abort();
            }
            return;
        }
        if minded.refusal.is_some() {
            return;
        }
        let Some((_, socket)) = self.sockets.get(key) else { return };
        let Ok(socket) = socket.try_clone() else { return };
        let task = tokio::spawn(async move {
            tokio::time::sleep(REFUSED_AFTER).await;
            // The role sets it, too; all share it.
            if rustix::io::ioctl_fionbio(&socket, true).is_err() {
                return;
            }
            #[allow(deprecated)] // as above
            let Ok(socket) = AsyncFd::with_interest(socket, Interest::READABLE) else { return };
            while let Ok(mut is_used) = socket.readable().await {
                match roster_nscd::server::socket::accept(socket.get_ref()) {
                    Ok(Some(stranger)) => closing::cut_short(|| drop(stranger)),
                    Ok(None) => is_used.clear_ready(),
                    Err(_) => tokio::time::sleep(REFUSED_AFTER).await,
                }
            }
        });
        minded.refusal = Some(task.abort_handle());
    }

    /// Starts a round of pings, and tells systemd that this loop runs.
    fn ping(&mut self) {
        self.counters.tidy();
        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        let Some(connection) = self.bus.clone() else { return };
        let running = |minded: &Minded| matches!(minded.state.phase, Phase::Running { .. });
        let roles = self.minded.iter().filter(|(key, minded)| **key != Key::Bus && running(minded));
        let roles = roles.map(|(key, minded)| (key.clone(), minded.pid())).collect();
        let within = PING_WAIT.min(self.ping / 2);
        tokio::spawn(link::ping(self.link, connection, roles, within, self.news.clone()));
    }

    /// Opens those sockets of a plan that are not open yet.
    fn open_sockets(
        &self,
        plan: &BTreeMap<Key, Wanted>,
    ) -> anyhow::Result<BTreeMap<Key, (Listen, OwnedFd)>> {
        let mut opened = BTreeMap::new();
        for (key, wanted) in plan {
            let Some(listen) = &wanted.listen else { continue };
            if self.sockets.get(key).is_some_and(|(old, _)| old == listen) {
                continue;
            }
            let is_nscds = matches!(wanted.config, RoleConfig::Nscd(_));
            match self.listen(listen, is_nscds) {
                Ok(socket) => opened.insert(key.clone(), (listen.clone(), socket)),
                Err(error) => {
                    opened.values().for_each(|(listen, _)| folders::unlisten(listen));
                    return Err(error);
                }
            };
        }
        Ok(opened)
    }

    fn listen(&self, listen: &Listen, is_nscds: bool) -> anyhow::Result<OwnedFd> {
        // The message bus asks the C library for users, before there is a role that would answer: it, and all
        // that runs in its group, asks the name services themselves.
        let roles = Some(self.users.bus().gid).filter(|_| self.users.are_separate());
        match is_nscds {
            true => folders::listen_alone(listen, roles),
            false => folders::listen(listen),
        }
    }

    /// Sets the mark that a snapshot was published on this host, once there is one. Where all roles are one user,
    /// programs of the host read another file.
    fn look_for_snapshot(&mut self) {
        if self.is_marked || !self.users.are_separate() {
            return;
        }
        let snapshot = self.folders.state.join(role::SNAPSHOTS).join(role::SNAPSHOT);
        if snapshot.symlink_metadata().is_err() {
            return;
        }
        let (is_marked, mark_told) = (start::mark_published(!self.mark_told), true);
        (self.is_marked, self.mark_told) = (is_marked, mark_told);
    }

    /// Listens again where a socket's name was removed or is another file's: no program reaches the old one. The
    /// role of such a socket starts again, with the new one.
    fn look_at_sockets(&mut self) {
        if self.ending.is_some() || self.reading {
            return;
        }
        if let Err(error) = self.folders.renew_run() {
            warn!("{error:#}");
        }
        let is_running = self
            .minded
            .get(&Key::Bus)
            .is_some_and(|bus| matches!(bus.state.phase, Phase::Running { .. }));
        if is_running && !self.folders.has_bus() {
            warn!("the socket of the bus was removed: the bus and all roles start again");
            self.step(&Key::Bus, Event::Restart);
        }
        let keys: Vec<_> = self.sockets.keys().cloned().collect();
        for key in keys {
            let Some((listen @ Listen::Unix(path), _)) = self.sockets.get(&key) else { continue };
            let found = folders::socket_file(listen);
            let known = self.socket_files.get(&key).copied();
            if let Some(found) = found.filter(|found| known.is_none_or(|known| known == *found)) {
                self.socket_files.insert(key, found);
                continue;
            }
            let is_nscds = self.minded.get(&key).and_then(|minded| minded.wanted.as_ref());
            let is_nscds = is_nscds.is_some_and(|of| matches!(of.config, RoleConfig::Nscd(_)));
            let (listen, path) = (listen.clone(), path.display().to_string());
            match self.listen(&listen, is_nscds) {
                Ok(socket) => {
                    warn!("{path} was removed or replaced, and is there again: {key} starts again");
                    self.socket_files.remove(&key);
                    self.sockets.insert(key.clone(), (listen, socket));
                    if let Some(minded) = self.minded.get_mut(&key) {
                        for task in [minded.watch.take(), minded.refusal.take()] {
                            task.inspect(AbortHandle::abort);
                        }
                    }
                    self.step(&key, Event::Restart);
                }
                Err(error) => error!("{path} was removed or replaced: {error:#}"),
            }
        }
    }

    /// Has everything end, the bus last.
    fn end(&mut self, by: &str) {
        if self.ending.is_some() {
            return;
        }
        info!("ends, by {by}");
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        self.ending = Some(Instant::now() + END_WAIT);
        for key in self.roles() {
            self.step(&key, Event::Stop);
        }
    }

    /// Forgets processes that ended for good.
    fn tidy(&mut self) {
        self.minded.retain(|_, minded| minded.state.phase != Phase::Gone);
        if self.ending.is_some() && self.minded.keys().eq([&Key::Bus]) {
            let leaving = matches!(
                self.minded[&Key::Bus].state.phase,
                Phase::Stopping { then: decide::Then::Gone, .. }
            );
            if !leaving {
                self.step(&Key::Bus, Event::Stop);
                self.minded.retain(|_, minded| minded.state.phase != Phase::Gone);
            }
        }
    }
}

impl Drop for Monitor {
    /// Ends what still runs when the loop could not do so in good order.
    fn drop(&mut self) {
        for minded in self.minded.values() {
            if let Some(child) = &minded.child {
                process::send(child, Signal::KILL);
            }
        }
    }
}
