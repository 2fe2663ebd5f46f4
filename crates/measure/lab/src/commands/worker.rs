//! `roster-lab worker`: what a master of Locust says becomes crowds of users, and what they measured its
//! reports. One thread talks; each class of users has threads of its own.

use super::engines::{self, host_and_port};
use super::locust_users::VirtualUsers;
use super::run_load::{LoadTask, stop_on_signals};
use super::{INTERRUPTED, print_error};
use crate::args::{self, LoadCommand};
use crate::locust::message::{self, MasterMessage, SpawnRequest};
use crate::locust::stats::{self, ExtraStats, StatsKey, Tally, now};
use crate::locust::zmtp::{self, ZmtpSender};
use crate::net::resolve;
use crate::plan;
use crate::server_usage::WatchedServer;
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Heartbeats and reports, as Locust's own workers send heartbeats.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// A worker that was not heard is told of again.
const HELLO_INTERVAL: Duration = Duration::from_secs(5);
/// Between two tries to connect.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// A master answers each heartbeat; one that does not for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A master that was served and has ended may be started again within this time.
const RESTART_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks at signals and at crowds that failed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Requests in flight end in this time when the master ends, which waits half a second for reports.
const FINISH_WITHIN: Duration = Duration::from_millis(350);
/// Messages that were heard and not looked at yet.
const UNREAD_MESSAGES_MAX: usize = 64;
/// For any Locust 2: no version is compared.
const ANY_VERSION: i8 = -1;
/// Where the classes of `roster_locust` put what their users do.
const OPTION: &str = "roster_lab";
/// What a master itself says, and files that are written here.
const NOT_FOR_WORKERS: [&str; 12] = [
    "json",
    "hdr",
    "html",
    "duration",
    "warm-up",
    "users",
    "rate",
    "knee",
    "knee-failures",
    "quiet",
    "source",
    "threads",
];

/// Serves the master to its end.
pub fn run(args: &args::WorkerArgs) -> Result<u8> {
    let form = || format!("--master {}: write HOST:PORT", args.master);
    let (host, port) = host_and_port(&args.master).with_context(form)?;
    let master = resolve(host, port.unwrap_or(5557))
        .with_context(|| format!("--master {}: cannot find {host}", args.master))?;
    // So that a slip is said before a master has users come.
    if let Some(path) = &args.plan {
        plan::read(path, &[])?;
    }
    let stop = stop_on_signals()?;
    let mut worker = LocustWorker::new(args, &stop);
    let (mut alone_since, mut patience) = (Instant::now(), args.patience);
    loop {
        let served = worker.serve(master);
        if worker.acknowledged {
            alone_since = Instant::now();
            patience = args.patience.min(RESTART_WITHIN);
        }
        // Without a master nobody says when to stop.
        worker.end_run(Duration::ZERO, None);
        worker.clear_run();
        let why = match served {
            Ok(ConnectionEnd::Quit) => return Ok(0),
            Ok(ConnectionEnd::Interrupted) => return Ok(INTERRUPTED),
            Ok(ConnectionEnd::Reconnect) => continue,
            Err(why) => why,
        };
        let what = format!("--master {}: {why:#}", args.master);
        ensure!(alone_since.elapsed() < patience, "{what}");
        if worker.acknowledged {
            print_error(&format!("roster-lab: {what}; trying again"));
        }
        worker.acknowledged = false;
        if wait_for(&stop, RETRY_EVERY) {
            return Ok(INTERRUPTED);
        }
    }
}

/// True if a signal came meanwhile.
fn wait_for(stop: &AtomicBool, time: Duration) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        thread::sleep(POLL_INTERVAL.min(time));
    }
    stop.load(Ordering::Relaxed)
}

/// Why a conversation ended.
enum ConnectionEnd {
    Quit,
    Interrupted,
    Reconnect,
}

struct UserClass {
    kind: StatsKey,
    virtual_users: Arc<VirtualUsers>,
    thread: JoinHandle<()>,
}

struct LocustWorker<'a> {
    args: &'a args::WorkerArgs,
    stop: &'a AtomicBool,
    node: String,
    acknowledged: bool,
    index: u64,
    /// The classes of the run that is on.
    classes: BTreeMap<String, UserClass>,
    /// Those that failed, of which the master knows.
    reported_failures: BTreeSet<String>,
    /// When the run began.
    start: f64,
    last_spawn: f64,
    usage: ProcessUsage,
}

impl<'a> LocustWorker<'a> {
    fn new(args: &'a args::WorkerArgs, stop: &'a AtomicBool) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let node = format!("{host}_{:x}_{:x}", std::process::id(), (now() * 1e6) as u64);
        Self {
            args,
            stop,
            node,
            acknowledged: false,
            index: 0,
            classes: BTreeMap::new(),
            reported_failures: BTreeSet::new(),
            start: now(),
            last_spawn: 0.0,
            usage: ProcessUsage::default(),
        }
    }

    fn send(&self, to: &mut ZmtpSender, kind: &str, data: &impl Serialize) -> Result<()> {
        to.send(&message::pack(kind, data, &self.node)?)
    }

    fn serve(&mut self, master: SocketAddr) -> Result<ConnectionEnd> {
        let (mut to, mut from) = zmtp::connect(master, &self.node)?;
        let (say, heard) = mpsc::sync_channel(UNREAD_MESSAGES_MAX);
        thread::Builder::new().name("master".to_owned()).spawn(move || {
            loop {
                let word = match from.receive() {
                    Ok(Some(bytes)) => message::read(&bytes),
                    Ok(None) => Err(anyhow!("the master closed the connection")),
                    Err(error) => Err(error),
                };
                let is_last = word.is_err();
                if say.send(word).is_err() || is_last {
                    return;
                }
            }
        })?;
        self.run_connection(&mut to, &heard)
    }

    fn run_connection(
        &mut self,
        to: &mut ZmtpSender,
        heard: &Receiver<Result<MasterMessage>>,
    ) -> Result<ConnectionEnd> {
        // Of words of an earlier connection none can come late.
        self.last_spawn = 0.0;
        self.send(to, "client_ready", &ANY_VERSION)?;
        let (mut next_report, mut introduced) = (Instant::now(), Instant::now());
        let mut last_word = Instant::now();
        loop {
            match heard.recv_timeout(POLL_INTERVAL) {
                Ok(word) => {
                    last_word = Instant::now();
                    if let Some(end) = self.handle_message(to, word?)? {
                        return Ok(end);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("the connection has ended"),
            }
            if self.stop.load(Ordering::Relaxed) {
                self.end_run(FINISH_WITHIN, Some(to));
                self.send_report(to)?;
                self.send(to, "quit", &())?;
                return Ok(ConnectionEnd::Interrupted);
            }
            self.report_failures(to)?;
            if Instant::now() >= next_report {
                next_report = Instant::now() + REPORT_EVERY;
                self.send_heartbeat(to)?;
                if !self.classes.is_empty() {
                    self.send_report(to)?;
                }
            }
            if !self.acknowledged && introduced.elapsed() >= HELLO_INTERVAL {
                introduced = Instant::now();
                self.send(to, "client_ready", &ANY_VERSION)?;
            }
            ensure!(last_word.elapsed() < SILENCE_MAX, "the master says nothing any more");
        }
    }

    fn handle_message(
        &mut self,
        to: &mut ZmtpSender,
        heard: MasterMessage,
    ) -> Result<Option<ConnectionEnd>> {
        match heard {
            MasterMessage::Acknowledged { index } => {
                if !self.acknowledged {
                    print_error(&format!(
                        "roster-lab: serving {} as {}",
                        self.args.master, self.node
                    ));
                }
                (self.acknowledged, self.index) = (true, index);
            }
            MasterMessage::Spawn(spawn) => self.spawn(to, &spawn)?,
            MasterMessage::Stop => {
                self.end_run(Duration::MAX, Some(to));
                self.send_report(to)?;
                self.clear_run();
                self.send(to, "client_stopped", &())?;
                self.send(to, "client_ready", &ANY_VERSION)?;
            }
            MasterMessage::Quit => {
                // What is known already, lest a slow server keep it from the master.
                self.send_report(to)?;
                self.end_run(FINISH_WITHIN, None);
                self.send_report(to)?;
                return Ok(Some(ConnectionEnd::Quit));
            }
            MasterMessage::Reconnect => return Ok(Some(ConnectionEnd::Reconnect)),
            MasterMessage::Other => {}
        }
        Ok(None)
    }

    /// Has so many users of each class there.
    fn spawn(&mut self, to: &mut ZmtpSender, spawn: &SpawnRequest) -> Result<()> {
        self.send(to, "spawning", &())?;
        if spawn.timestamp <= self.last_spawn {
            return Ok(());
        }
        self.last_spawn = spawn.timestamp;
        if self.classes.is_empty() {
            self.start = now();
            self.reported_failures.clear();
        }
        for (class, &users) in &spawn.user_classes_count {
            match self.classes.get(class) {
                Some(member) => member.virtual_users.set_users(users),
                None if users == 0 => {}
                None => {
                    let member = self.start_class(class, users, spawn);
                    self.classes.insert(class.clone(), member);
                }
            }
        }
        self.report_failures(to)?;
        let users = self.users();
        let count: usize = users.values().sum();
        let data = json!({ "user_classes_count": users, "user_count": count });
        self.send(to, "spawning_complete", &data)
    }

    /// Users of a class, who begin at once; if they cannot, they have failed.
    fn start_class(&self, class: &str, users: usize, spawn: &SpawnRequest) -> UserClass {
        let crowd = Arc::new(VirtualUsers::new(self.index, users));
        let load = self.class_options(class, spawn).and_then(|told| self.load(told.as_ref()));
        let method = load.as_ref().map_or_else(|_| String::new(), method);
        let kind = StatsKey { name: class.to_owned(), method };
        let own = Arc::clone(&crowd);
        let thread = thread::spawn(move || {
            let task = LoadTask {
                virtual_users: Some(Arc::clone(&own)),
                ..LoadTask::new(Value::Null, false)
            };
            let served = load.and_then(|load| engines::run(&load, task, &mut io::sink()));
            if let Err(error) = served {
                own.fail(format!("{error:#}"));
            }
        });
        UserClass { kind, virtual_users: crowd, thread }
    }

    /// What is said of a class, by whoever may say it.
    fn class_options(&self, class: &str, spawn: &SpawnRequest) -> Result<Option<Value>> {
        let Some(path) = &self.args.classes else {
            let all = spawn.parsed_options.get(OPTION);
            return Ok(all.and_then(|all| all.get(class)).cloned());
        };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            // No class of the master's file is ours.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let mut all: Map<String, Value> = serde_json::from_str(&text)
            .with_context(|| format!("{}: is no list of classes", path.display()))?;
        Ok(all.remove(class))
    }

    /// What users of a class do: what was said of it, or else the plan.
    fn load(&self, told: Option<&Value>) -> Result<LoadCommand> {
        let load = match (told, &self.args.plan) {
            (Some(told), _) => {
                let keys = told.as_object().into_iter().flat_map(|loads| loads.values());
                let mut keys = keys.filter_map(Value::as_object).flat_map(|keys| keys.keys());
                if let Some(key) = keys.find(|key| NOT_FOR_WORKERS.contains(&key.as_str())) {
                    bail!(
                        "{key}: is not for users of Locust: it is said by the master or a worker"
                    );
                }
                plan::from_master(told, &self.options(told))?
            }
            (None, Some(path)) => plan::read(path, &[])?.0,
            (None, None) => bail!(
                "nothing says what these users do: write their class with roster_locust, or start \
                 this worker with --plan"
            ),
        };
        let wants_code = match &load {
            LoadCommand::Shell(_) => true,
            LoadCommand::Nss(nss) => nss.module.is_some(),
            LoadCommand::Pam(pam) => pam.config_folder.is_some(),
            _ => false,
        };
        ensure!(
            self.args.classes.is_some()
                || told.is_none()
                || !wants_code
                || self.args.allow_commands,
            "the master names a command or module to run on {}: start its worker with \
             --allow-commands if it may",
            self.node
        );
        Ok(load)
    }

    /// What this worker says of any load.
    fn options(&self, told: &Value) -> Vec<OsString> {
        let mut options = Vec::new();
        if let Some(threads) = self.args.threads {
            options.push(format!("--threads={threads}").into());
        }
        let goes_out = ["ldap", "dns", "krb5"].iter().any(|load| told.get(load).is_some());
        if goes_out && !self.args.source.is_empty() {
            let sources: Vec<String> = self.args.source.iter().map(ToString::to_string).collect();
            options.push(format!("--source={}", sources.join(",")).into());
        }
        options
    }

    fn users(&self) -> BTreeMap<String, usize> {
        let of = |member: &UserClass| member.virtual_users.users();
        self.classes.iter().map(|(class, member)| (class.clone(), of(member))).collect()
    }

    /// Each class that cannot go on is an exception of the master's, once.
    fn report_failures(&mut self, to: &mut ZmtpSender) -> Result<()> {
        for (class, member) in &self.classes {
            let Some(why) =
                member.virtual_users.failure().filter(|_| !self.reported_failures.contains(class))
            else {
                continue;
            };
            print_error(&format!("roster-lab: {class}: {why}"));
            let data = json!({ "msg": format!("{class}: {why}"), "traceback": format!("{class}: {why}\n") });
            to.send(&message::pack("exception", &data, &self.node)?)?;
            self.reported_failures.insert(class.clone());
        }
        Ok(())
    }

    fn send_heartbeat(&mut self, to: &mut ZmtpSender) -> Result<()> {
        let state = match self.classes.is_empty() {
            true => "ready",
            false => "running",
        };
        let (busy, memory) = self.usage.sample();
        let busy = busy / f64::from(self.args.threads.unwrap_or(1));
        let data = json!({
            "state": state, "current_cpu_usage": busy, "current_memory_usage": memory,
        });
        self.send(to, "heartbeat", &data)
    }

    /// What was measured since the last report.
    fn send_report(&self, to: &mut ZmtpSender) -> Result<()> {
        let taken = |member: &UserClass| (member.kind.clone(), member.virtual_users.take_tally());
        let tallies: Vec<(StatsKey, Tally)> = self.classes.values().map(taken).collect();
        let bytes =
            stats::pack(&self.node, &tallies, self.start, &self.users(), &self.extra_stats())?;
        to.send(&bytes)
    }

    fn extra_stats(&self) -> ExtraStats {
        let mut beyond =
            ExtraStats { client_cpu: self.usage.run_seconds(), ..ExtraStats::default() };
        beyond.host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        for (class, member) in &self.classes {
            let warnings = member.virtual_users.warnings().into_iter();
            beyond.warnings.extend(warnings.map(|one| (class.clone(), one.kind, one.text)));
            let server = member.virtual_users.server_cpu();
            let server = server.map(|(what, cpu)| (class.clone(), what, cpu.as_secs_f64()));
            beyond.server_cpu.extend(server);
        }
        beyond
    }

    /// Has everybody leave when their last request is answered, and waits for that so long. The master
    /// hears of us meanwhile.
    fn end_run(&mut self, at_most: Duration, mut to: Option<&mut ZmtpSender>) {
        self.classes.values().for_each(|member| member.virtual_users.stop());
        let (since, mut next_beat) = (Instant::now(), Instant::now() + REPORT_EVERY);
        while self.classes.values().any(|member| !member.thread.is_finished()) {
            if since.elapsed() >= at_most {
                break;
            }
            thread::sleep(POLL_INTERVAL / 10);
            if let (Some(to), true) = (to.as_deref_mut(), Instant::now() >= next_beat) {
                next_beat = Instant::now() + REPORT_EVERY;
                // If it is gone, the next message says so.
                let _ = self.send_heartbeat(to);
            }
        }
    }

    fn clear_run(&mut self) {
        self.classes.clear();
        self.usage.begin();
    }
}

/// As Locust lists it: `LDAP bind`.
fn method(load: &LoadCommand) -> String {
    fn name(of: &impl ValueEnum) -> String {
        of.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
    match load {
        LoadCommand::Ldap(args) => format!("LDAP {}", name(&args.op)),
        LoadCommand::Dns(args) => format!("DNS {}", name(&args.r#type)),
        LoadCommand::Krb5(args) => format!("Kerberos {}", name(&args.op)),
        LoadCommand::Nss(args) => format!("NSS {}", name(&args.lookup)),
        LoadCommand::Pam(_) => "PAM".to_owned(),
        LoadCommand::Shell(_) => "command".to_owned(),
    }
}

/// What this program itself uses.
#[derive(Debug)]
struct ProcessUsage {
    last: Option<(Instant, Duration)>,
    run_start: Duration,
}

impl Default for ProcessUsage {
    fn default() -> Self {
        let mut usage = Self { last: None, run_start: Duration::ZERO };
        usage.begin();
        usage
    }
}

impl ProcessUsage {
    fn cpu() -> (Duration, u64) {
        let own = WatchedServer::Process(std::process::id()).consumed();
        own.map_or((Duration::ZERO, 0), |consumed| (consumed.cpu, consumed.memory))
    }

    fn begin(&mut self) {
        self.run_start = Self::cpu().0;
    }

    /// Seconds on a processor since the run began.
    fn run_seconds(&self) -> f64 {
        Self::cpu().0.saturating_sub(self.run_start).as_secs_f64()
    }

    /// Percent of a processor since the last look, and memory in bytes.
    fn sample(&mut self) -> (f64, u64) {
        let (cpu, memory) = Self::cpu();
        let before = self.last.replace((Instant::now(), cpu));
        let busy = before.map_or(0.0, |(since, before)| {
            let passed = since.elapsed().as_secs_f64().max(1e-3);
            cpu.saturating_sub(before).as_secs_f64() / passed * 100.0
        });
        (busy, memory)
    }
}
