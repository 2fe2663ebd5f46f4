// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster-lab worker`: starts users for the messages of a Locust master, and reports their figures. One thread
//! communicates, and each class of users has its own threads. `locust::zmtp` has the wire protocol.

use super::engines::{self, resolve_address};
use super::locust_users::VirtualUsers;
use super::run_load::{LoadTask, stop_on_signals};
use super::{INTERRUPTED, print_error};
use crate::args::{self, LoadCommand};
use crate::coded::{Coded, bail_coded, coded, describe, ensure_coded};
use crate::locust::message::{self, MasterMessage, SpawnRequest};
use crate::locust::stats::{self, ExtraStats, StatsKey, Tally, now};
use crate::locust::zmtp::{self, ZmtpSender};
use crate::plan;
use crate::server_usage::WatchedServer;
use anyhow::Result;
use clap::ValueEnum;
use roster_messages::table::lab;
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

/// Interval of heartbeats and reports, the same as of Locust's own workers.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Interval of introductions until the master acknowledges one.
const HELLO_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of attempts to connect.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Maximum time without a message. A master replies to each heartbeat.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Time for a restart of a master that has ended.
const RESTART_WITHIN: Duration = Duration::from_secs(5);
/// Interval of checks for signals and failed classes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time for requests in flight when the master ends. It waits 500 ms for reports.
const FINISH_WITHIN: Duration = Duration::from_millis(350);
/// Maximum number of received messages in the queue.
const UNREAD_MESSAGES_MAX: usize = 64;
/// Version that the master does not compare, for any Locust 2.
const ANY_VERSION: i8 = -1;
/// Option in which the classes of `roster_locust` define their load.
const OPTION: &str = "roster_lab";
/// Keys that the master or this worker sets.
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

/// Serves the master until it ends.
pub fn run(args: &args::WorkerArgs) -> Result<u8> {
    let master = resolve_address("--master", &args.master, 5557)?;
    // An invalid plan is reported before the first users.
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
        // Without a master no message would stop the users.
        worker.end_run(Duration::ZERO, None);
        worker.clear_run();
        let error = match served {
            Ok(ConnectionEnd::Quit) => return Ok(0),
            Ok(ConnectionEnd::Interrupted) => return Ok(INTERRUPTED),
            Ok(ConnectionEnd::Reconnect) => continue,
            Err(error) => error.context(format!("--master {}", args.master)),
        };
        if alone_since.elapsed() >= patience {
            return Err(error);
        }
        if worker.acknowledged {
            print_error(&format!("roster-lab: connecting again: {}", describe(&error)));
        }
        worker.acknowledged = false;
        if wait_for(&stop, RETRY_EVERY) {
            return Ok(INTERRUPTED);
        }
    }
}

/// Waits for this time. Returns true early if a signal arrived.
fn wait_for(stop: &AtomicBool, time: Duration) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        thread::sleep(POLL_INTERVAL.min(time));
    }
    stop.load(Ordering::Relaxed)
}

/// Reasons for the end of a connection.
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
    /// The classes of the current run.
    classes: BTreeMap<String, UserClass>,
    /// Failed classes that the master knows.
    reported_failures: BTreeSet<String>,
    /// Start of the run.
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
                    Ok(None) => Err(coded(&lab::MASTER_CLOSED, "the master closed the connection")),
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
        // No message of an earlier connection can arrive now.
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
                Err(RecvTimeoutError::Disconnected) => {
                    bail_coded!(MASTER_CLOSED, "the connection ended")
                }
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
            ensure_coded!(
                last_word.elapsed() < SILENCE_MAX,
                MASTER_SILENT,
                "no message for {} s",
                SILENCE_MAX.as_secs()
            );
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
                // The first report does not wait for a slow server.
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

    /// Sets the number of users of each class.
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

    /// Starts the users of a class. An error fails the class.
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
                own.fail(describe(&error));
            }
        });
        UserClass { kind, virtual_users: crowd, thread }
    }

    /// Returns the options of a class, from the file of --classes or from the master.
    fn class_options(&self, class: &str, spawn: &SpawnRequest) -> Result<Option<Value>> {
        let Some(path) = &self.args.classes else {
            let all = spawn.parsed_options.get(OPTION);
            return Ok(all.and_then(|all| all.get(class)).cloned());
        };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            // The master's file has no class of roster_locust.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let text = format_args!("{}: cannot be read", path.display());
                return Err(error).coded(&lab::FILE_UNREADABLE, text);
            }
        };
        let invalid = format_args!("{}: not a list of classes", path.display());
        let mut all: Map<String, Value> =
            serde_json::from_str(&text).coded(&lab::CLASSES_FORMAT, invalid)?;
        Ok(all.remove(class))
    }

    /// Returns the load of a class: its options, or the plan.
    fn load(&self, told: Option<&Value>) -> Result<LoadCommand> {
        let load = match (told, &self.args.plan) {
            (Some(told), _) => {
                let keys = told.as_object().into_iter().flat_map(|loads| loads.values());
                let mut keys = keys.filter_map(Value::as_object).flat_map(|keys| keys.keys());
                if let Some(key) = keys.find(|key| NOT_FOR_WORKERS.contains(&key.as_str())) {
                    bail_coded!(KEY_OF_MASTER, "{key}: the master or the worker sets this value");
                }
                plan::from_master(told, &self.options(told))?
            }
            (None, Some(path)) => plan::read(path, &[])?.0,
            (None, None) => bail_coded!(CLASS_UNDEFINED, "the class has no load"),
        };
        let wants_code = match &load {
            LoadCommand::Shell(_) => true,
            LoadCommand::Nss(nss) => nss.module.is_some(),
            LoadCommand::Pam(pam) => pam.config_folder.is_some(),
            _ => false,
        };
        ensure_coded!(
            self.args.classes.is_some()
                || told.is_none()
                || !wants_code
                || self.args.allow_commands,
            COMMANDS_NOT_ALLOWED,
            "{}: the master requested a command or module",
            self.node
        );
        Ok(load)
    }

    /// Returns the options that this worker adds to a load.
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

    /// Reports each failed class to the master once, as an exception.
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

    /// Sends the figures since the last report.
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
            beyond
                .warnings
                .extend(warnings.map(|one| (class.clone(), one.kind, one.text, one.message.code)));
            let server = member.virtual_users.server_cpu();
            let server = server.map(|(what, cpu)| (class.clone(), what, cpu.as_secs_f64()));
            beyond.server_cpu.extend(server);
        }
        beyond
    }

    /// Stops all users after their last reply, and waits for that. Meanwhile the master gets heartbeats.
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
                // The next message reports a closed connection.
                let _ = self.send_heartbeat(to);
            }
        }
    }

    fn clear_run(&mut self) {
        self.classes.clear();
        self.usage.begin();
    }
}

/// Returns the method in Locust's list: `LDAP bind`.
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

/// Processor time and memory of this process.
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

    /// Returns the processor time since the start of the run in seconds.
    fn run_seconds(&self) -> f64 {
        Self::cpu().0.saturating_sub(self.run_start).as_secs_f64()
    }

    /// Returns percent of a processor since the last call, and memory in bytes.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use roster_messages::Message;

    fn worker_args(options: &[&str]) -> args::WorkerArgs {
        let words = [&["roster-lab", "worker", "--master", "h"], options].concat();
        let Command::Worker(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("another command");
        };
        args
    }

    fn assert_code<T>(result: Result<T>, message: &Message) {
        let text = describe(&result.err().unwrap());
        assert!(text.ends_with(&format!("[{}]", message.code)), "{text}");
    }

    #[test]
    fn worker_unusable_class_has_code() {
        let stop = AtomicBool::new(false);
        let args = worker_args(&[]);
        let worker = LocustWorker::new(&args, &stop);
        let keyed = json!({"command": {"command": ["true"], "users": 5}});
        let shell = json!({"command": {"command": ["true"]}});
        for (told, message) in [
            (Some(&keyed), &lab::KEY_OF_MASTER),
            (Some(&shell), &lab::COMMANDS_NOT_ALLOWED),
            (None, &lab::CLASS_UNDEFINED),
        ] {
            assert_code(worker.load(told), message);
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("classes.json");
        let args = worker_args(&["--classes", file.to_str().unwrap()]);
        let worker = LocustWorker::new(&args, &stop);
        fs::write(&file, "[]").unwrap();
        assert_code(worker.class_options("A", &SpawnRequest::default()), &lab::CLASSES_FORMAT);
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_code(worker.class_options("A", &SpawnRequest::default()), &lab::FILE_UNREADABLE);
    }
}
