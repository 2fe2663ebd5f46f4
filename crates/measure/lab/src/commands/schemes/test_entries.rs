// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test entries for the measurement of schemes: users with their own policy, and temporary changes of the server's
//! configuration. `schemes` chooses the measurements.
//!
//! An entry in the server's configuration records the changes before they are made, until they are undone. The next run
//! undoes the changes of a killed run, and no run takes the changes of another for the original state.

use super::ldap_admin::{AdminClient, REQUEST_TIMEOUT, fixed_template};
use super::{CONFIG, LOCAL_POLICIES, SCHEME, UPGRADE};
use crate::args;
use crate::coded::{Coded, bail_coded, coded, describe_cause, ensure_coded};
use crate::commands::print_failure;
use crate::fd_limit::FdReservation;
use crate::ldap::{LdapEngine, LdapRequest};
use crate::load_thread::{RequestNumbers, RunSpec, ThreadShare};
use crate::password_schemes::SchemeStats;
use crate::runner::{ThreadPlan, run_threads};
use crate::schedule::LoadModel;
use crate::server_usage::WatchedServer;
use crate::template::Template;
use anyhow::Result;
use ring::rand::{SecureRandom, SystemRandom};
use roster_messages::table::lab;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Entry with the changes to undo.
const RECORD: &str = "cn=roster-lab schemes,cn=config";
/// Warm-up of each scheme, which its figures exclude.
const WARM_UP: Duration = Duration::from_millis(300);
/// Random bytes of the test password.
const PASSWORD_BYTES: usize = 16;

/// The changes of a run, and its process.
#[derive(Debug, Deserialize, Serialize)]
struct UndoRecord {
    host: String,
    process: u32,
    /// Start of that process in clock ticks. Another process may get its number.
    began: u64,
    /// Parent of the test entries.
    folder: String,
    /// Original values of cn=config.
    before: Vec<(String, String)>,
}

impl UndoRecord {
    /// Creates the record of this process.
    fn new(server: &AdminClient, base: &str) -> Result<Self> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros());
        let mut before = Vec::new();
        for name in [UPGRADE, LOCAL_POLICIES] {
            let value = server.value(CONFIG, name)?;
            before.extend(value.map(|value| (name.to_owned(), value)));
        }
        Ok(Self {
            host: host(),
            process: std::process::id(),
            began: process_start_time(std::process::id()).unwrap_or_default(),
            folder: format!("ou=roster-lab-{time},{base}"),
            before,
        })
    }

    fn read(server: &AdminClient) -> Result<Option<Self>> {
        let Some(text) = server.value(RECORD, "description")? else { return Ok(None) };
        let read = serde_json::from_str(&text);
        read.map(Some).coded(&lab::UNDO_RECORD_FORMAT, format_args!("{RECORD}: unknown format"))
    }

    /// Stores the record on the server, which accepts only one.
    fn store(&self, server: &AdminClient) -> Result<()> {
        let text = serde_json::to_string(self)?;
        let kept = server.add(
            RECORD,
            &[
                ("objectClass", "top"),
                ("objectClass", "extensibleObject"),
                ("cn", "roster-lab schemes"),
                ("description", &text),
            ],
        )?;
        ensure_coded!(kept, SCHEMES_CONCURRENT, "{RECORD}: exists already");
        Ok(())
    }

    /// Returns whether its process still runs; `None` if it is one of another host.
    fn runs(&self) -> Option<bool> {
        (self.host == host()).then(|| process_start_time(self.process) == Some(self.began))
    }

    /// Removes the test entries and restores the configuration. After a failure the record stays.
    fn undo(&self, server: &AdminClient) -> Result<()> {
        let mut wrong = server.remove_with_children(&self.folder);
        for (name, value) in &self.before {
            let set = server.set(CONFIG, name, value);
            wrong = wrong.and(set);
        }
        wrong.and_then(|()| server.remove(RECORD)).map_err(|error| {
            let cause = describe_cause(&error);
            coded(&lab::SCHEMES_NOT_UNDONE, format!("changes of the server: not undone: {cause}"))
        })
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the 22nd field of /proc/PID/stat. The second field, the name, may contain any bytes.
fn process_start_time(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, behind) = text.rsplit_once(')')?;
    behind.split_whitespace().nth(19)?.parse().ok()
}

/// Undoes the changes of a run that has ended. Returns false if there are none. `asked_for` states that no run of
/// another host is active.
pub fn undo_leftovers(server: &AdminClient, asked_for: bool) -> Result<bool> {
    let Some(left) = UndoRecord::read(server)? else { return Ok(false) };
    let (process, host) = (left.process, &left.host);
    match left.runs() {
        Some(true) => {
            bail_coded!(SCHEMES_RUNNING, "{RECORD}: process {process} of this host runs")
        }
        None if !asked_for => bail_coded!(
            SCHEMES_LEFTOVERS,
            "{RECORD}: process {process} of {host} runs or was killed"
        ),
        _ => left.undo(server).map(|()| true),
    }
}

/// Test users for binds. Dropping this removes them.
pub struct TestEntries<'a> {
    server: &'a AdminClient,
    record: UndoRecord,
    identities: u64,
    password: String,
    stop: &'a Arc<AtomicBool>,
    is_undone: bool,
}

impl<'a> TestEntries<'a> {
    pub fn set_up(
        server: &'a AdminClient,
        base: &str,
        identities: u64,
        stop: &'a Arc<AtomicBool>,
    ) -> Result<Self> {
        let (record, password) = (UndoRecord::new(server, base)?, password()?);
        record.store(server)?;
        // From here on drop undoes all changes.
        let field = Self { server, record, identities, password, stop, is_undone: false };
        for (name, _) in &field.record.before {
            let value = if name == UPGRADE { "off" } else { "on" };
            server.set(CONFIG, name, value)?;
        }
        server.add(
            &field.record.folder,
            &[("objectClass", "top"), ("objectClass", "organizationalUnit")],
        )?;
        server.add(
            &field.policy(),
            &[
                ("objectClass", "top"),
                ("objectClass", "ldapsubentry"),
                ("objectClass", "passwordpolicy"),
                ("cn", "policy"),
                (SCHEME, "CLEAR"),
            ],
        )?;
        let attributes = vec![
            ("objectClass", fixed_template("inetOrgPerson")),
            ("cn", fixed_template("roster-lab")),
            ("sn", fixed_template("roster-lab")),
            ("pwdpolicysubentry", fixed_template(&field.policy())),
        ];
        let add = LdapRequest::Add(field.user()?, attributes);
        field.for_each_user(&add, "test users: cannot be added")?;
        Ok(field)
    }

    fn policy(&self) -> String {
        format!("cn=policy,{}", self.record.folder)
    }

    /// Returns the DNs of the test users in turn.
    fn user(&self) -> Result<Template> {
        let last = self.identities.saturating_sub(1);
        // The base DN may contain braces, which templates escape.
        let folder = self.record.folder.replace('{', "{{").replace('}', "}}");
        let template = format!("uid=u{{0..{last}}},{folder}").parse();
        template.map_err(|why: String| coded(&lab::TEMPLATE_SYNTAX, why))
    }

    /// Makes a request for each user, until the run stops.
    fn for_each_user(&self, request: &LdapRequest, problem: &str) -> Result<()> {
        let numbers = (0..self.identities).take_while(|_| !self.stop.load(Ordering::Relaxed));
        let sent = self.server.send_requests(request, numbers);
        sent.map(drop).map_err(|failure| failure.into_error(problem))
    }

    /// Measures binds of the test users with a scheme.
    pub fn measure(&self, args: &args::SchemesArgs, name: &str) -> Result<SchemeStats> {
        self.server.set(&self.policy(), SCHEME, name)?;
        let password = fixed_template(&self.password);
        let change = LdapRequest::Modify(self.user()?, "userPassword".to_owned(), password.clone());
        self.for_each_user(&change, "passwords: cannot be set")?;
        let stored = self.server.passwords(&self.record.folder)?;
        let text = "test users: no stored password";
        let (_, stored) = stored.into_iter().next().coded(&lab::PASSWORD_NOT_STORED, text)?;
        let settings = self.server.for_users(&LdapRequest::Bind(self.user()?, password))?;
        let stage = RunSpec {
            load: LoadModel::Closed { think: Duration::ZERO },
            numbers: RequestNumbers::ALL,
            warm_up: WARM_UP,
            duration: args.duration,
            timeout: REQUEST_TIMEOUT,
        };
        let make = |seat: ThreadShare| Ok(LdapEngine::new(Arc::clone(&settings), seat.users, 0));
        let crew = ThreadPlan { users: args.users as usize, threads: 1 };
        let _held = FdReservation::for_run::<LdapEngine>(crew)?;
        let looked_at = WatchedServer::from_options(args.server_pid, args.server_unit.as_deref())?;
        let outcome = run_threads(stage, crew, looked_at.as_ref(), self.stop, make, |_| {})?;
        let recorder = &outcome.recorder;
        ensure_coded!(!outcome.interrupted, RUN_INTERRUPTED, "a signal stopped the run");
        if let Some((failure, count)) = recorder.failures.iter().next() {
            let problem = format_args!("{count} of {} binds failed", recorder.requests);
            return Err(failure.clone().into_error(problem));
        }
        ensure_coded!(
            recorder.requests > 0,
            NO_BIND_ANSWERED,
            "no bind was answered in {} s",
            args.duration.as_secs_f64()
        );
        let ms = |percentile| recorder.percentile(percentile).as_secs_f64() * 1e3;
        let served = recorder.requests_in_window.max(f64::MIN_POSITIVE);
        Ok(SchemeStats {
            name: name.to_owned(),
            stored,
            rate: outcome.rate(),
            p50_ms: ms(50.0),
            p99_ms: ms(99.0),
            server_cpu_ms: outcome.server.map(|used| used.cpu.as_secs_f64() * 1e3 / served),
        })
    }

    /// Undoes all changes.
    pub fn restore(mut self) -> Result<()> {
        self.is_undone = true;
        self.record.undo(self.server)
    }
}

impl Drop for TestEntries<'_> {
    fn drop(&mut self) {
        if self.is_undone {
            return;
        }
        if let Err(error) = self.record.undo(self.server) {
            print_failure(&error);
        }
    }
}

fn password() -> Result<String> {
    let mut bytes = [0; PASSWORD_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| coded(&lab::RANDOM_UNAVAILABLE, "test password: no random bytes"))?;
    let mut text = String::with_capacity(2 * PASSWORD_BYTES);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_process(host: String, process: u32, began: u64) -> UndoRecord {
        UndoRecord { host, process, began, folder: String::new(), before: Vec::new() }
    }

    #[test]
    fn undo_record_knows_whether_its_process_runs() {
        let own = std::process::id();
        let since = process_start_time(own).unwrap();
        assert_eq!(of_process(host(), own, since).runs(), Some(true));
        assert_eq!(of_process(host(), own, since + 1).runs(), Some(false), "its number anew");
        assert_eq!(of_process(host(), u32::MAX, 0).runs(), Some(false));
        assert_eq!(of_process("elsewhere".to_owned(), own, since).runs(), None);
    }

    #[test]
    fn no_two_passwords_are_the_same() {
        let (one, other) = (password().unwrap(), password().unwrap());
        assert!(one.len() == 2 * PASSWORD_BYTES && one != other, "{one} {other}");
    }
}
