//! Where schemes are measured: users of our own with a policy of their own, and what of the server's
//! configuration must be otherwise meanwhile.
//!
//! Before anything is changed, an entry of the server's own configuration says what is to be undone. It is
//! there as long as something is changed, so that also what a killed run left behind is undone by the
//! next one, and no two runs take each other's changes for the former state.

use super::ldap_admin::{AdminClient, REQUEST_TIMEOUT, fixed_template};
use super::{CONFIG, LOCAL_POLICIES, SCHEME, UPGRADE};
use crate::args;
use crate::commands::print_error;
use crate::fd_limit::FdReservation;
use crate::ldap::{LdapEngine, LdapRequest};
use crate::load_thread::{RequestNumbers, RunSpec, ThreadShare};
use crate::password_schemes::SchemeStats;
use crate::runner::{ThreadPlan, run_threads};
use crate::schedule::LoadModel;
use crate::server_usage::WatchedServer;
use crate::template::Template;
use anyhow::{Context, Result, anyhow, bail, ensure};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is to be undone is said here.
const RECORD: &str = "cn=roster-lab schemes,cn=config";
/// Left out of the figures of each scheme.
const WARM_UP: Duration = Duration::from_millis(300);
/// Of a password: nobody guesses it while its user is there.
const PASSWORD_BYTES: usize = 16;

/// What a run changes, and who runs.
#[derive(Debug, Deserialize, Serialize)]
struct UndoRecord {
    host: String,
    process: u32,
    /// When that process began, by its system's clock: another may come to have its number.
    began: u64,
    /// The entry that ours are below.
    folder: String,
    /// Of cn=config, as they were.
    before: Vec<(String, String)>,
}

impl UndoRecord {
    /// Of this process.
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
        read.map(Some).with_context(|| format!("{RECORD}: was written by another program"))
    }

    /// Has the server keep it; there can be one only.
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
        ensure!(kept, "another run has begun on this server at the same time");
        Ok(())
    }

    /// Whether its process is known to run still; of another host that cannot be seen.
    fn runs(&self) -> Option<bool> {
        (self.host == host()).then(|| process_start_time(self.process) == Some(self.began))
    }

    /// Removes what was added and sets what was set. What fails stays written down.
    fn undo(&self, server: &AdminClient) -> Result<()> {
        let mut wrong = server.remove_with_children(&self.folder);
        for (name, value) in &self.before {
            let set = server.set(CONFIG, name, value);
            wrong = wrong.and(set);
        }
        wrong.and_then(|()| server.remove(RECORD)).context(
            "the server is not yet as it was; the same command with --undo puts it back when that \
             is mended",
        )
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The 22nd field of what the kernel says of a process; the second, its name, may have any bytes.
fn process_start_time(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, behind) = text.rsplit_once(')')?;
    behind.split_whitespace().nth(19)?.parse().ok()
}

/// Undoes what a run that has ended left behind; false if none has. `asked_for` says that no run of
/// another host is on.
pub fn undo_leftovers(server: &AdminClient, asked_for: bool) -> Result<bool> {
    let Some(left) = UndoRecord::read(server)? else { return Ok(false) };
    let (process, host) = (left.process, &left.host);
    match left.runs() {
        Some(true) => bail!("process {process} of this host measures this server already"),
        None if !asked_for => bail!(
            "process {process} of {host} measures this server, or was killed while it did: if it \
             runs no more, the same command with --undo puts back what it left behind"
        ),
        _ => left.undo(server).map(|()| true),
    }
}

/// Entries of our own to bind as; gone when dropped.
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
        // From here on whatever fails is put back by drop.
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
        field.for_each_user(&LdapRequest::Add(field.user()?, attributes), "cannot add users")?;
        Ok(field)
    }

    fn policy(&self) -> String {
        format!("cn=policy,{}", self.record.folder)
    }

    /// One of our users after the other.
    fn user(&self) -> Result<Template> {
        let last = self.identities.saturating_sub(1);
        // The folder's name may have braces, which a template takes for its own.
        let folder = self.record.folder.replace('{', "{{").replace('}', "}}");
        format!("uid=u{{0..{last}}},{folder}").parse().map_err(|why| anyhow!("{why}"))
    }

    /// Asks this of each, until the run is to end.
    fn for_each_user(&self, request: &LdapRequest, wrong: &str) -> Result<()> {
        let numbers = (0..self.identities).take_while(|_| !self.stop.load(Ordering::Relaxed));
        let asked = self.server.send_requests(request, numbers);
        asked.map(drop).map_err(|why| anyhow!("{wrong}: {why}"))
    }

    /// Has all of them bind whose password is stored so.
    pub fn measure(&self, args: &args::SchemesArgs, name: &str) -> Result<SchemeStats> {
        self.server.set(&self.policy(), SCHEME, name)?;
        let password = fixed_template(&self.password);
        let change = LdapRequest::Modify(self.user()?, "userPassword".to_owned(), password.clone());
        self.for_each_user(&change, "it stores no password")?;
        let stored = self.server.passwords(&self.record.folder)?;
        let (_, stored) = stored.into_iter().next().context("no password is stored")?;
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
        ensure!(!outcome.interrupted, "ended by Ctrl-C");
        if let Some((why, count)) = recorder.failures.iter().next() {
            bail!("{count} of {} binds failed: {why}", recorder.requests);
        }
        ensure!(recorder.requests > 0, "no bind was answered in {} s", args.duration.as_secs_f64());
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

    /// Has the server be as it was.
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
        if let Err(why) = self.record.undo(self.server) {
            print_error(&format!("roster-lab: {why:#}"));
        }
    }
}

fn password() -> Result<String> {
    let mut bytes = [0; PASSWORD_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| anyhow!("the kernel gives no random bytes"))?;
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
    fn a_run_is_told_from_one_that_has_ended_and_from_one_elsewhere() {
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
