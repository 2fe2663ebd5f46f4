//! `roster status`: every role, every domain, the snapshot, and what is wrong with them.
//!
//! [`Report::gather`] asks and judges nothing, [`judge`] concludes and asks nobody.

use super::{Bus, Unreached, age, ago, converse, domain, now, trouble};
use crate::doctor::{self, Finding, Level, marked};
use crate::terminal::{Align, Paint, bytes, count, counted, duration, shown, table};
use crate::unserved::{by_reason, names};
use anyhow::Result;
use roster_bus::interfaces::{
    DomainCounts, DomainStatus, MonitorStatus, PublisherStatus, Rejected, RoleState, RoleStatus,
};
use roster_bus::names::Role;
use roster_record::text::{Line, passwd_line};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;

/// What systemctl(1) says of a service that does not run.
const NOT_RUNNING: u8 = 3;
const NOT_WELL: u8 = 1;

/// How long a role may take to say how it is: those who wait want to know that it hangs.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Reasons of refusal that are shown of a domain; `roster domain rejected` has all.
const REASONS_SHOWN: usize = 3;
/// A domain is not well when more than one in so many of its entries is rejected for one reason.
const REJECTED_SHARE: u64 = 10;

/// Local users, as the daemon reads them.
const PASSWD: &str = "/etc/passwd";

/// What a back-end says where the server tells no changes.
pub const POLLING: &str = "polling";

/// What it says where the server does not show what a resumption is believed by.
pub const NEVER_RESUMED: &str = "syncrepl, never resumed";

/// What it says where the server, besides, does not show what changes are found by.
pub const POLLS_EVERYTHING: &str = "polling, everything each time";

const CHECK_CONFIG: &str = "`roster check-config` says how to fix it";

const SEE_LOG: &str = "see its log: journalctl -u rosterd";

/// What every role said, or why it did not.
#[derive(Clone, Debug)]
pub struct Report {
    now: u64,
    monitor: Result<MonitorStatus, String>,
    publisher: Result<PublisherStatus, String>,
    /// In order of precedence.
    domains: Vec<(String, Result<DomainStatus, String>)>,
    /// Of those that answered.
    roles: Vec<RoleStatus>,
    /// Local users by id, among them those that roles run as.
    users: HashMap<u32, String>,
    /// Rejected entries by domain; empty unless `report_with_rejected` fetched them.
    rejected: Vec<(String, Vec<Rejected>)>,
}

/// Prints how the daemon is; the exit code says it too.
pub fn run(run_dir: &Path, json: bool, out: &mut dyn Write) -> Result<u8> {
    let report = match report(run_dir) {
        Ok(report) => report,
        Err(error) => {
            let not_running = matches!(error.downcast_ref(), Some(Unreached::NotRunning(..)));
            if json {
                let value =
                    json!({"ok": false, "running": !not_running, "error": error.to_string()});
                writeln!(out, "{value:#}")?;
            }
            if not_running {
                crate::say(format_args!("roster: {error}"));
                return Ok(NOT_RUNNING);
            }
            return Err(error);
        }
    };
    let mut findings = report.files();
    findings.extend(judge(&report));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    if json {
        writeln!(out, "{:#}", as_json(&report, &findings))?;
    } else {
        out.write_all(as_text(&report, &findings, Paint::stdout()).as_bytes())?;
    }
    Ok(if is_well(&findings) { 0 } else { NOT_WELL })
}

/// Asks the daemon whose sockets are there. An error is an [`Unreached`].
pub fn report(run_dir: &Path) -> Result<Report> {
    converse(async {
        let bus = Bus::connect_for(run_dir, ANSWER_WAIT).await?;
        Ok(Report::gather(&bus).await)
    })
}

/// As [`report`], with the rejected entries of each domain.
pub fn report_with_rejected(run_dir: &Path) -> Result<Report> {
    converse(async {
        let bus = Bus::connect_for(run_dir, ANSWER_WAIT).await?;
        let mut report = Report::gather(&bus).await;
        for (name, _) in &report.domains {
            // A role that does not answer is among the findings.
            let entries = domain::rejected_by_publisher(&bus, name).await.unwrap_or_default();
            report.rejected.push((name.clone(), entries));
        }
        Ok(report)
    })
}

fn is_well(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level < Level::Problem)
}

impl Report {
    /// Asks every role, all at once: one that hangs does not hold up the others.
    pub async fn gather(bus: &Bus) -> Self {
        let monitor = monitor(bus).await.map_err(|error| error.to_string());
        let publisher = publisher(bus).await.map_err(|error| error.to_string());
        // Without the monitor the publisher knows what there is.
        let names = match (&monitor, &publisher) {
            (Ok(monitor), _) => monitor.domains.clone(),
            (_, Ok(publisher)) => publisher.domains.iter().map(|d| d.domain.clone()).collect(),
            _ => Vec::new(),
        };
        let mut asked = JoinSet::new();
        for (at, name) in names.into_iter().enumerate() {
            let bus = bus.clone();
            asked.spawn(async move {
                let status = backend(&bus, &name).await.map_err(|error| error.to_string());
                (at, name, status)
            });
        }
        let states = monitor.as_ref().map(|monitor| &*monitor.roles).unwrap_or_default();
        let (mut domains, roles) = tokio::join!(asked.join_all(), roles(bus, states));
        domains.sort_by_key(|(at, ..)| *at);
        let domains = domains.into_iter().map(|(_, name, status)| (name, status)).collect();
        // The C library would ask the snapshot too, which has no say in who runs what.
        let users = local_users(&std::fs::read(PASSWD).unwrap_or_default());
        Self { now: now(), monitor, publisher, domains, roles, users, rejected: Vec::new() }
    }

    /// What keeps programs from using the snapshot: doctor's checks of its file and directories, and of the
    /// floor. Doctor makes them by itself.
    fn files(&self) -> Vec<Finding> {
        let monitor = self.monitor.as_ref().ok();
        let made = || {
            monitor.map(|monitor| Path::new(&monitor.state_dir).join("snap").join("roster.snap"))
        };
        let Some(snapshot) = self.snapshot().or_else(made) else { return Vec::new() };
        doctor::of_files(&snapshot, monitor.is_none_or(|monitor| monitor.separate_users))
    }

    /// The file that programs are to read.
    pub fn snapshot(&self) -> Option<PathBuf> {
        self.publisher.as_ref().ok().map(|publisher| PathBuf::from(&publisher.snapshot))
    }
}

fn local_users(passwd: &[u8]) -> HashMap<u32, String> {
    let mut users = HashMap::new();
    for line in passwd.split(|&byte| byte == b'\n') {
        if let Line::Entry(user) = passwd_line(line) {
            let name = String::from_utf8_lossy(user.name);
            users.entry(user.uid).or_insert_with(|| name.into_owned());
        }
    }
    users
}

async fn monitor(bus: &Bus) -> Result<MonitorStatus> {
    bus.monitor().await?.status().await.map_err(|error| trouble(&Role::Monitor, &error))
}

/// How the publisher is.
pub async fn publisher(bus: &Bus) -> Result<PublisherStatus> {
    bus.publisher().await?.status().await.map_err(|error| trouble(&Role::Publisher, &error))
}

/// How a domain's back-end is.
pub async fn backend(bus: &Bus, domain: &str) -> Result<DomainStatus> {
    let role = Role::Backend(domain.to_owned());
    bus.backend(domain).await?.status().await.map_err(|error| trouble(&role, &error))
}

/// What the running ones say of themselves. Who does not answer is seen by the monitor's word.
async fn roles(bus: &Bus, states: &[RoleState]) -> Vec<RoleStatus> {
    let mut asked = JoinSet::new();
    let running = states.iter().filter(|state| state.state == "running");
    for role in running.filter_map(|state| Role::parse(&state.role)) {
        let bus = bus.clone();
        asked.spawn(async move { bus.role(&role).await.ok()?.status().await.ok() });
    }
    asked.join_all().await.into_iter().flatten().collect()
}

/// What is worth a word, worst first.
pub fn judge(report: &Report) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |level, message: String, advice: String| {
        findings.push(Finding { level, check: "daemon", message, advice: Some(advice) });
    };
    match &report.monitor {
        Ok(monitor) => {
            if !monitor.config_error.is_empty() {
                find(
                    Level::Problem,
                    format!(
                        "{} is not in force as it is now; what was read {} goes on:\n    {}",
                        monitor.config,
                        ago(report.now, monitor.config_read_unix),
                        indented(&monitor.config_error)
                    ),
                    format!(
                        "correct it, `roster check-config {}`, then `systemctl reload rosterd`",
                        monitor.config
                    ),
                );
            }
            for role in &monitor.roles {
                if let Some((level, message)) = of_role(report.now, role) {
                    find(level, message, SEE_LOG.to_owned());
                }
            }
        }
        Err(why) => find(Level::Problem, why.clone(), SEE_LOG.to_owned()),
    }
    match &report.publisher {
        Ok(publisher) if !publisher.error.is_empty() => find(
            Level::Problem,
            format!("the snapshot could not be published: {}", publisher.error),
            "what was published before is served until it can".to_owned(),
        ),
        Ok(publisher) if !publisher.waits_for.is_empty() => find(
            Level::Problem,
            format!("the next snapshot is made when {}", publisher.waits_for),
            "what was published before is served until then".to_owned(),
        ),
        Ok(publisher) if publisher.generation == 0 => find(
            Level::Problem,
            "nothing was published yet".to_owned(),
            "the first snapshot comes as soon as one domain was read whole or can be asked"
                .to_owned(),
        ),
        Ok(_) => {}
        Err(why) => find(Level::Problem, why.clone(), SEE_LOG.to_owned()),
    }
    if let Ok(publisher) = &report.publisher
        && !publisher.foreign.is_empty()
    {
        find(
            Level::Problem,
            format!("{} is not rosterd's: {}", publisher.snapshot, publisher.foreign),
            "programs get its users until rosterd replaces it, as soon as it knows a domain. Find what wrote it: a \
             restore, or a job with `roster compile`"
                .to_owned(),
        );
    }
    if let Ok(publisher) = &report.publisher
        && !publisher.disk_error.is_empty()
    {
        find(
            Level::Problem,
            format!(
                "{} cannot be read from the disk: {}",
                publisher.snapshot, publisher.disk_error
            ),
            "the publisher writes a new file, on other blocks. Check the disk".to_owned(),
        );
    }
    if let Ok(publisher) = &report.publisher
        && !publisher.copy_error.is_empty()
    {
        find(
            Level::Warning,
            format!("the copy of the snapshot in memory is missing: {}", publisher.copy_error),
            "each program reads the whole file when it opens it. /run must be a tmpfs with room for two more snapshots".to_owned(),
        );
    }
    if let Ok(publisher) = &report.publisher
        && publisher.failed_lookups > 0
    {
        let lookups = counted(publisher.failed_lookups, "lookup");
        find(
            Level::Problem,
            format!(
                "{lookups} of programs failed in the last minute, the last one: {}",
                publisher.failed_lookup
            ),
            "programs get an error for users and groups that are not in the snapshot: see to the directory"
                .to_owned(),
        );
    }
    if let Ok(publisher) = &report.publisher
        && !publisher.locals_error.is_empty()
    {
        find(
            Level::Problem,
            format!("the host's own accounts cannot be read: {}", publisher.locals_error),
            "accounts that were added since may be a directory's as well: see to the file, or to \
             [host] passwd and group in roster.toml"
                .to_owned(),
        );
    }
    for (name, status) in &report.domains {
        let counts = counts(report, name);
        for (level, message, advice) in of_domain(report.now, name, status, counts) {
            find(level, message, advice);
        }
    }
    for (name, entries) in &report.rejected {
        name_rejected(name, entries, &mut findings);
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    findings
}

/// Adds the rejected entries of a domain that a key of the configuration allows: to the finding that counts them, or
/// as a finding of their own where that one counts several reasons together.
fn name_rejected(domain: &str, entries: &[Rejected], findings: &mut Vec<Finding>) {
    let all = entries.iter().map(|entry| (&*entry.reason, (&*entry.kind, &*entry.name)));
    for (reason, entries) in by_reason(all) {
        let Some(remedy) = remedy(reason) else { continue };
        let names = names(&entries, &format!("roster domain rejected {domain} --all"));
        let (begin, end) = (format!("{domain}: "), format!(" rejected: {reason}"));
        let counted = findings
            .iter_mut()
            .find(|finding| finding.message.starts_with(&begin) && finding.message.ends_with(&end));
        match counted {
            Some(finding) => finding.message += &format!(": {names}"),
            None => findings.push(Finding {
                level: Level::Warning,
                check: "daemon",
                message: format!("{domain}: rejected: {reason}: {names}"),
                advice: Some(remedy),
            }),
        }
    }
}

/// How the monitor tells of a process that ended as it was told to.
const ENDED_WELL: &str = "ended with status 0";

fn of_role(now: u64, role: &RoleState) -> Option<(Level, String)> {
    let RoleState { role: name, state, since_unix, last_end, restarts, .. } = role;
    let ended = if last_end.is_empty() { String::new() } else { format!(": {last_end}") };
    match &**state {
        "running" | "idle" => {
            // Once is a restart; time and again is trouble, though it runs just now. One that ended well was
            // told to: it reads its settings as it starts.
            let often =
                *restarts >= 3 && now.saturating_sub(*since_unix) < 300 && last_end != ENDED_WELL;
            often.then(|| {
                let times = counted(u64::from(*restarts), "time");
                (Level::Warning, format!("{name} was started again {times}, the last end{ended}"))
            })
        }
        state => Some((
            Level::Problem,
            format!("{name} is {state} for {}{ended}", age(now, *since_unix)),
        )),
    }
}

fn of_domain(
    now: u64,
    name: &str,
    status: &Result<DomainStatus, String>,
    counts: Option<&DomainCounts>,
) -> Vec<(Level, String, String)> {
    let mut found = Vec::new();
    match status {
        Ok(status) => {
            if !status.online {
                let kept = if status.complete || status.users + status.groups > 0 {
                    "; what is known is served"
                } else {
                    ""
                };
                found.push((
                    Level::Problem,
                    format!(
                        "{name} is offline {}: {}{kept}",
                        since(now, status.since_unix),
                        or(&status.reason, "no server has answered yet")
                    ),
                    offline_advice(name, &status.reason),
                ));
            }
            if !status.credentials_error.is_empty() {
                found.push((
                    Level::Problem,
                    format!("{name}: {}", status.credentials_error),
                    "free space, or fix the disk or the file's owner: the backend opens the file again within 30 s"
                        .to_owned(),
                ));
            }
            if !status.clock_error.is_empty() {
                found.push((
                    Level::Problem,
                    format!("{name}: the clock of this host is not believed: {}", status.clock_error),
                    "set the clock, if it is wrong: the backend believes it as soon as the directory answers"
                        .to_owned(),
                ));
            }
            if status.online && !status.reason.is_empty() {
                found.push((
                    Level::Warning,
                    format!(
                        "{name} is served by {}, after others failed: {}",
                        status.server, status.reason
                    ),
                    "the first that is good again is gone back to by itself".to_owned(),
                ));
            }
            if !status.cache_error.is_empty() {
                let advice = "what was published goes on being served".to_owned();
                found.push((Level::Warning, format!("{name}: {}", status.cache_error), advice));
            }
            let of_logins =
                [(Level::Problem, &status.login_error), (Level::Warning, &status.login_warning)];
            for (level, text) in of_logins.into_iter().filter(|(_, text)| !text.is_empty()) {
                found.push((level, format!("{name}: {text}"), CHECK_CONFIG.to_owned()));
            }
            if status.tracking == POLLING || status.tracking == POLLS_EVERYTHING {
                found.push((
                    Level::Warning,
                    format!(
                        "{name}: the server does not tell what changes, so it is asked: changes are \
                         seen late, and who is gone later still"
                    ),
                    "what to switch on at the server: roster.toml(5), DIRECTORY SERVERS".to_owned(),
                ));
            }
            if status.tracking == POLLS_EVERYTHING {
                found.push((
                    Level::Warning,
                    format!(
                        "{name}: the server does not show when users or groups were changed, so everything \
                         is read anew at each poll"
                    ),
                    "let the bind DN read modifyTimestamp, or entryUSN, of all entries".to_owned(),
                ));
            }
            if status.tracking == NEVER_RESUMED {
                found.push((
                    Level::Warning,
                    format!(
                        "{name}: the server does not show when entries were changed, so everything is read \
                         anew at each connection"
                    ),
                    format!(
                        "let the bind DN read entryCSN, with 389 Directory Server modifyTimestamp, then: \
                         roster domain refresh {name}"
                    ),
                ));
            }
            if status.online && !status.complete && status.mode == "replicate" {
                found.push((
                    Level::Warning,
                    format!("{name} is being read for the first time"),
                    "it is served as soon as it is known whole".to_owned(),
                ));
            }
        }
        Err(why) => found.push((Level::Problem, why.clone(), SEE_LOG.to_owned())),
    }
    let held = held(status, counts);
    if held > 0 {
        let entries = counted(held, "entry");
        found.push((
            Level::Problem,
            format!(
                "{name}: {entries} that the directory does not show or names as deleted are kept: too \
                 many to go without a confirmation"
            ),
            format!(
                "if they are meant to go: roster domain confirm {name}; if not, fix the directory or the \
                 domain's configuration: entries that are there again stay"
            ),
        ));
    }
    let unreadable = status.as_ref().map_or(0, |status| status.rejected);
    let served = counts.map_or(0, |counts| counts.users + counts.groups);
    let all = served + refused(counts) + unreadable;
    let level = |number: u64| match number.saturating_mul(REJECTED_SHARE) > all {
        true => Level::Problem,
        false => Level::Warning,
    };
    if unreadable > 0 {
        let entries = counted(unreadable, "entry");
        found.push((
            level(unreadable),
            format!("{name}: {entries} rejected: not readable as users or groups"),
            format!("which, and why: roster domain rejected {name}"),
        ));
    }
    let Some(counts) = counts else { return found };
    if let Ok(status) = status
        && let Some((message, advice)) = of_nothing(name, status, counts)
    {
        found.push((Level::Warning, message, advice.to_owned()));
    }
    if !counts.not_taken.is_empty() {
        found.push((
            Level::Problem,
            format!("{name}: what changes is not taken: {}", counts.not_taken),
            SEE_LOG.to_owned(),
        ));
    }
    if !counts.waits_for.is_empty() {
        let first = &counts.waits_for;
        found.push((
            Level::Problem,
            format!("{name} is not served: {first}, which goes before it, was never read"),
            format!(
                "it is served as soon as {first} was read once, or is taken out of [host] domains"
            ),
        ));
    }
    if !counts.new_wait_for.is_empty() {
        let first = &counts.new_wait_for;
        found.push((
            Level::Problem,
            format!(
                "{name}: nobody new is served: {first}, which goes before it and may have the name, is \
                 not taken"
            ),
            format!("it is as soon as {first} is taken again, or is taken out of [host] domains"),
        ));
    }
    let others = counts.refused.get(REASONS_SHOWN..).unwrap_or_default();
    for (reason, number) in counts.refused.iter().take(REASONS_SHOWN) {
        let advice =
            remedy(reason).unwrap_or_else(|| format!("which ones: roster domain rejected {name}"));
        let entries = counted(*number, "entry");
        found.push((level(*number), format!("{name}: {entries} rejected: {reason}"), advice));
    }
    if !others.is_empty() {
        let entries = counted(others.iter().map(|(_, number)| number).sum(), "entry");
        let reasons = counted(others.len() as u64, "other reason");
        found.push((
            Level::Warning,
            format!("{name}: {entries} rejected for {reasons}"),
            format!("all of them: roster domain rejected {name}"),
        ));
    }
    found
}

/// How long a domain is online or offline.
fn since(now: u64, unix: u64) -> String {
    match unix {
        0 => "since the start".to_owned(),
        unix => format!("for {}", age(now, unix)),
    }
}

/// What to do about a directory that does not answer: of what is read with the configuration only,
/// another try finds nothing new.
fn offline_advice(name: &str, reason: &str) -> String {
    let look_at = match reason {
        _ if reason.contains("bind as ") => "bind_dn and the file of bind_password_file",
        _ if reason.contains("TLS: ") => "tls_ca and the names in uris",
        _ => {
            return format!("it is tried again by itself; at once: roster domain refresh {name}");
        }
    };
    format!(
        "look at {look_at}: what is changed there counts after `systemctl reload rosterd`; what is \
         changed at the server is tried by itself, at once: roster domain refresh {name}"
    )
}

/// What is most likely a mistake in the configuration though the directory answers: nobody is found, or
/// nobody is in any group.
fn of_nothing(
    name: &str,
    status: &DomainStatus,
    counts: &DomainCounts,
) -> Option<(String, &'static str)> {
    if !status.online || !status.complete {
        return None;
    }
    if status.users + status.rejected == 0 {
        return Some((
            format!("{name} is read whole and has no users"),
            "if it should: see base, user_base and user_filter with roster check-config --explain",
        ));
    }
    (counts.groups > 0 && counts.listed == 0).then(|| {
        let groups = counted(counts.groups, "group");
        (
            format!("{name}: nobody is a member of any of its {groups}"),
            "if the groups have members in the directory: member_attributes may lack the attribute that \
             names them, or the bind DN may not read it",
        )
    })
}

/// Removals that wait for a confirmation, in the back-end and in the publisher.
fn held(status: &Result<DomainStatus, String>, counts: Option<&DomainCounts>) -> u64 {
    let in_backend = status.as_ref().map_or(0, |status| status.held_removals);
    in_backend + counts.map_or(0, |counts| counts.held_removals)
}

/// What an administrator may do about entries that are refused for this reason.
pub fn remedy(reason: &str) -> Option<String> {
    let words: Vec<&str> = reason.split(' ').collect();
    match *words {
        [.., gid, "is", "a", "local", "user's", "primary", "gid"] => Some(format!(
            "if the directory may share it: allowed_unnamed_gids = [{gid}] under [host]"
        )),
        ["gid", gid, "is", "below", "min_id", ..]
        | ["primary", "gid", gid, "is", "a", "local", ..] => Some(format!(
            "if users may have the host's own group {gid} as their primary group: \
                 allowed_local_gids = [{gid}] under [host]"
        )),
        [.., "subordinate", "id", "of", "a", "local", "user"]
        | [.., "subordinate", "ids", "of", "local", "users"] => Some(
            "if local users may take such ids: allow_subordinate_ids = true under [host]".to_owned(),
        ),
        ["the", "name", "belongs", "to", "a", "privileged", ..] => Some(
            "if the directory may give out its rights: allowed_names = [\"NAME\"] under [host]"
                .to_owned(),
        ),
        ["the", "name", "has", "characters", "other", "than", ..] => Some(
            "if such names are to be served: allowed_name_characters under [host]".to_owned(),
        ),
        ["uid", _, "is", "below", "min_id", ..] => {
            Some("if such users are to be served, lower min_id".to_owned())
        }
        ["uids" | "gids", "below", "min_id", ..] => {
            Some("if such entries are to be served, lower min_id".to_owned())
        }
        ["the", "home", "folder", "is", "empty"] => Some(
            "a home folder for users that have none: fallback_home = \"/home/%u\" under their domain"
                .to_owned(),
        ),
        [_, _, "is", "above", "max_id", ..] | [_, "above", "max_id", ..] => {
            Some("if such entries are to be served, raise max_id".to_owned())
        }
        _ => None,
    }
}

fn counts<'r>(report: &'r Report, domain: &str) -> Option<&'r DomainCounts> {
    let publisher = report.publisher.as_ref().ok()?;
    publisher.domains.iter().find(|counts| counts.domain == domain)
}

fn or<'t>(text: &'t str, otherwise: &'t str) -> &'t str {
    if text.is_empty() { otherwise } else { text }
}

fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

fn as_text(report: &Report, findings: &[Finding], paint: Paint) -> String {
    let now = report.now;
    let mut text = String::new();
    if let Ok(monitor) = &report.monitor {
        let monitor_role = monitor.roles.iter().find(|role| role.role == "monitor");
        let running = monitor_role.map_or(String::new(), |role| {
            format!(" for {}, pid {}", age(now, role.since_unix), role.pid)
        });
        text += &format!("rosterd runs{running}\n");
        let read = ago(now, monitor.config_read_unix);
        text += &format!("configuration  {}, read {read}\n", monitor.config);
        if !monitor.separate_users {
            text += &format!("state          {}, all roles as one user\n", monitor.state_dir);
        }
    }
    if let Ok(publisher) = &report.publisher {
        text += &snapshot_text(now, publisher);
    }
    text += "\n";
    text += &domain_table(report);
    for (name, status) in &report.domains {
        if let Ok(status) = status
            && let Some(mixed) = mixed_groups(status)
        {
            text += &format!("{name}: {mixed}\n");
        }
    }
    if let Ok(monitor) = &report.monitor {
        text += "\n";
        text += &role_table(report, monitor);
    }
    text += "\n";
    for finding in findings {
        text += &format!("{}\n", marked(finding, paint));
    }
    if findings.is_empty() {
        text += "All well.\n";
    }
    text
}

/// The line that counts groups with members in both ways; `None` without such groups.
pub fn mixed_groups(status: &DomainStatus) -> Option<String> {
    let groups = counted(status.mixed_groups, "group");
    let name = if status.mixed_groups == 1 { "names" } else { "name" };
    (status.mixed_groups > 0).then(|| format!("{groups} {name} members both by name and by DN"))
}

fn snapshot_text(now: u64, publisher: &PublisherStatus) -> String {
    if publisher.generation == 0 {
        return format!("snapshot       {}, not published yet\n", publisher.snapshot);
    }
    let took = Duration::from_micros(publisher.last_publish_us);
    format!(
        "snapshot       {}\n               generation {}, published {}, {} after the change\n               \
         {}, {}, {}, {}\n",
        publisher.snapshot,
        publisher.generation,
        ago(now, publisher.published_unix_ms / 1000),
        duration(took),
        counted(publisher.users, "user"),
        counted(publisher.groups, "group"),
        counted(publisher.memberships, "membership"),
        bytes(publisher.bytes),
    )
}

/// The domains, a line each.
pub fn domain_table(report: &Report) -> String {
    let mut rows = vec![
        ["DOMAIN", "STATE", "USERS", "GROUPS", "REJECTED", "LAST CHANGE", "BY", "FROM"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (name, status) in &report.domains {
        rows.push(domain_row(report.now, name, status, counts(report, name)).to_vec());
    }
    use Align::{Left, Right};
    table(&rows, &[Left, Left, Right, Right, Right, Left, Left, Left])
}

fn domain_row(
    now: u64,
    name: &str,
    status: &Result<DomainStatus, String>,
    counts: Option<&DomainCounts>,
) -> [String; 8] {
    let nothing = || "-".to_owned();
    let served = |number: fn(&DomainCounts) -> u64| {
        counts.filter(|counts| counts.present).map_or_else(nothing, |c| count(number(c)))
    };
    let (users, groups) = (served(|counts| counts.users), served(|counts| counts.groups));
    let Ok(status) = status else {
        return [
            name.to_owned(),
            "not there".to_owned(),
            users,
            groups,
            nothing(),
            nothing(),
            nothing(),
            nothing(),
        ];
    };
    let state = if status.online { "online" } else { "offline" };
    [
        name.to_owned(),
        match status.since_unix {
            0 => state.to_owned(),
            since => format!("{state} {}", age(now, since)),
        },
        users,
        groups,
        count(status.rejected + refused(counts)),
        ago(now, status.last_change_unix),
        or(&status.tracking, "-").to_owned(),
        shown(or(&status.server, "-")),
    ]
}

fn refused(counts: Option<&DomainCounts>) -> u64 {
    counts.map_or(0, |counts| counts.refused.iter().map(|(_, number)| number).sum())
}

fn role_table(report: &Report, monitor: &MonitorStatus) -> String {
    let mut rows = vec![
        ["ROLE", "STATE", "PID", "USER", "RESTARTS", "LOG", "SANDBOX"].map(str::to_owned).to_vec(),
    ];
    for state in &monitor.roles {
        let own = report.roles.iter().find(|role| role.role == state.role);
        let own = |field: fn(&RoleStatus) -> &str| {
            own.map_or("-".to_owned(), |role| shown(or(field(role), "-")))
        };
        let pid = if state.pid == 0 { "-".to_owned() } else { state.pid.to_string() };
        rows.push(vec![
            state.role.clone(),
            format!("{} {}", state.state, age(report.now, state.since_unix)),
            pid,
            report.users.get(&state.uid).map_or_else(|| state.uid.to_string(), |name| shown(name)),
            count(state.restarts.into()),
            own(|role| &role.log_level),
            own(|role| &role.sandbox),
        ]);
    }
    use Align::{Left, Right};
    table(&rows, &[Left, Left, Right, Left, Right, Left, Left])
}

fn as_json(report: &Report, findings: &[Finding]) -> Value {
    let monitor = report.monitor.as_ref().ok();
    json!({
        "ok": is_well(findings),
        "running": true,
        "now_unix": report.now,
        "config": monitor.map(|monitor| json!({
            "file": monitor.config,
            "read_unix": monitor.config_read_unix,
            "error": some(&monitor.config_error),
        })),
        "state_dir": monitor.map(|monitor| &monitor.state_dir),
        "separate_users": monitor.map(|monitor| monitor.separate_users),
        "snapshot": report.publisher.as_ref().ok().map(snapshot_json),
        "domains": domains_json(report),
        "roles": monitor.map(|monitor| {
            monitor.roles.iter().map(|state| role_json(state, &report.roles)).collect::<Vec<_>>()
        }),
        "findings": findings,
    })
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn time(unix: u64) -> Option<u64> {
    Some(unix).filter(|&unix| unix > 0)
}

fn snapshot_json(publisher: &PublisherStatus) -> Value {
    json!({
        "file": publisher.snapshot,
        "generation": publisher.generation,
        "published_unix_ms": time(publisher.published_unix_ms),
        "users": publisher.users,
        "groups": publisher.groups,
        "memberships": publisher.memberships,
        "bytes": publisher.bytes,
        "publications": publisher.publications,
        "bytes_written": publisher.bytes_written,
        "last_publish_us": publisher.last_publish_us,
        "error": some(&publisher.error),
        "waits_for": some(&publisher.waits_for),
        "locals_error": some(&publisher.locals_error),
        "foreign": some(&publisher.foreign),
        "disk_error": some(&publisher.disk_error),
        "copy_error": some(&publisher.copy_error),
        "failed_lookups": publisher.failed_lookups,
        "failed_lookup": some(&publisher.failed_lookup),
    })
}

/// All domains, in order of precedence.
pub fn domains_json(report: &Report) -> Vec<Value> {
    let domains = report.domains.iter();
    domains.map(|(name, status)| domain_json(name, status, counts(report, name))).collect()
}

/// A domain as the back-end and the publisher see it.
pub fn domain_json(
    name: &str,
    status: &Result<DomainStatus, String>,
    counts: Option<&DomainCounts>,
) -> Value {
    let mut value = json!({"domain": name});
    match status {
        Ok(status) => {
            let more = json!({
                "provider": status.provider,
                "mode": status.mode,
                "online": status.online,
                "since_unix": time(status.since_unix),
                "server": some(&status.server),
                "reason": some(&status.reason),
                "tracking": some(&status.tracking),
                "complete": status.complete,
                "users": status.users,
                "groups": status.groups,
                "mixed_groups": status.mixed_groups,
                "unreadable": status.rejected,
                "last_change_unix": time(status.last_change_unix),
                "last_refresh_unix": time(status.last_refresh_unix),
                "credentials_error": some(&status.credentials_error),
                "clock_error": some(&status.clock_error),
                "sequence": status.sequence,
                "cache_error": some(&status.cache_error),
                "login_error": some(&status.login_error),
                "login_warning": some(&status.login_warning),
            });
            merge(&mut value, more);
        }
        Err(error) => merge(&mut value, json!({"error": error})),
    }
    merge(&mut value, json!({"held_removals": held(status, counts)}));
    if let Some(counts) = counts {
        let refused: Vec<_> = counts
            .refused
            .iter()
            .map(|(reason, number)| json!({"reason": reason, "entries": number}))
            .collect();
        let more = json!({
            "waits_for": some(&counts.waits_for),
            "not_taken": some(&counts.not_taken),
            "new_wait_for": some(&counts.new_wait_for),
            "served_users": counts.users,
            "served_groups": counts.groups,
            "listed_members": counts.listed,
            "refused": refused,
        });
        merge(&mut value, more);
    }
    value
}

fn merge(value: &mut Value, more: Value) {
    if let (Value::Object(value), Value::Object(more)) = (value, more) {
        value.extend(more);
    }
}

fn role_json(state: &RoleState, roles: &[RoleStatus]) -> Value {
    let own = roles.iter().find(|role| role.role == state.role);
    json!({
        "role": state.role,
        "state": state.state,
        "pid": time(state.pid.into()),
        "uid": state.uid,
        "restarts": state.restarts,
        "since_unix": time(state.since_unix),
        "last_end": some(&state.last_end),
        "version": own.map(|role| &role.version),
        "sandbox": own.map(|role| &role.sandbox),
        "log_level": own.map(|role| &role.log_level),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn role(name: &str, pid: u32) -> RoleState {
        RoleState {
            role: name.to_owned(),
            state: "running".to_owned(),
            pid,
            uid: 990,
            restarts: 0,
            since_unix: NOW - 10_800,
            last_end: String::new(),
        }
    }

    fn domain(name: &str) -> (String, Result<DomainStatus, String>) {
        let status = DomainStatus {
            domain: name.to_owned(),
            provider: "ldap".to_owned(),
            mode: "replicate".to_owned(),
            online: true,
            since_unix: NOW - 10_800,
            server: "ldaps://ldap1.example.com".to_owned(),
            tracking: "syncrepl".to_owned(),
            complete: true,
            users: 10_201,
            groups: 10_100,
            last_change_unix: NOW - 3,
            last_refresh_unix: NOW - 10_799,
            ..DomainStatus::default()
        };
        (name.to_owned(), Ok(status))
    }

    /// A daemon in which all is well.
    fn report() -> Report {
        let monitor = MonitorStatus {
            config: "/etc/roster/roster.toml".to_owned(),
            config_read_unix: NOW - 10_800,
            state_dir: "/var/lib/roster".to_owned(),
            separate_users: true,
            domains: vec!["corp".to_owned()],
            roles: vec![role("monitor", 100), role("bus", 101), role("backend:corp", 104)],
            ..MonitorStatus::default()
        };
        let publisher = PublisherStatus {
            snapshot: "/var/lib/roster/roster.snap".to_owned(),
            generation: 123,
            published_unix_ms: (NOW - 3) * 1000,
            users: 10_201,
            groups: 10_100,
            memberships: 5_050_000,
            bytes: 24 << 20,
            last_publish_us: 12_000,
            domains: vec![DomainCounts {
                domain: "corp".to_owned(),
                present: true,
                users: 10_201,
                groups: 10_100,
                listed: 5_050_000,
                ..DomainCounts::default()
            }],
            ..PublisherStatus::default()
        };
        let own = RoleStatus {
            role: "backend:corp".to_owned(),
            log_level: "info".to_owned(),
            sandbox: "landlock, seccomp".to_owned(),
            ..RoleStatus::default()
        };
        Report {
            now: NOW,
            monitor: Ok(monitor),
            publisher: Ok(publisher),
            domains: vec![domain("corp")],
            roles: vec![own],
            users: local_users(b"roster-bus:x:990:990::/:/bin/false\nalso:x:990:1::/:/bin/sh\n"),
            rejected: Vec::new(),
        }
    }

    fn said(report: &Report) -> Vec<String> {
        judge(report).iter().map(|finding| marked(finding, Paint::plain())).collect()
    }

    fn refuse(report: &mut Report, reasons: &[(&str, u64)]) {
        if let Ok(publisher) = &mut report.publisher {
            let reasons = reasons.iter().map(|&(reason, number)| (reason.to_owned(), number));
            publisher.domains[0].refused = reasons.collect();
        }
    }

    fn change(report: &mut Report, change: impl Fn(&mut DomainStatus)) {
        report.domains[0].1.iter_mut().for_each(change);
    }

    #[test]
    fn a_daemon_that_is_well_is_shown_on_one_screen() {
        let report = report();
        assert_eq!(
            as_text(&report, &judge(&report), Paint::plain()),
            "\
rosterd runs for 3 h, pid 100
configuration  /etc/roster/roster.toml, read 3 h ago
snapshot       /var/lib/roster/roster.snap
               generation 123, published 3 s ago, 12 ms after the change
               10,201 users, 10,100 groups, 5,050,000 memberships, 24.0 MiB

DOMAIN  STATE        USERS  GROUPS  REJECTED  LAST CHANGE  BY        FROM
corp    online 3 h  10,201  10,100         0  3 s ago      syncrepl  ldaps://ldap1.example.com

ROLE          STATE        PID  USER        RESTARTS  LOG   SANDBOX
monitor       running 3 h  100  roster-bus         0  -     -
bus           running 3 h  101  roster-bus         0  -     -
backend:corp  running 3 h  104  roster-bus         0  info  landlock, seccomp

All well.
"
        );
        assert!(is_well(&judge(&report)));
    }

    #[test]
    fn status_counts_mixed_groups() {
        let mut report = report();
        let text = |report: &Report| as_text(report, &judge(report), Paint::plain());
        assert!(!text(&report).contains("by DN"));
        for (mixed, line) in [
            (1, "\ncorp: 1 group names members both by name and by DN\n"),
            (3, "\ncorp: 3 groups name members both by name and by DN\n"),
        ] {
            change(&mut report, |status| status.mixed_groups = mixed);
            assert!(text(&report).contains(line));
            assert_eq!(domains_json(&report)[0]["mixed_groups"], mixed);
        }
        assert!(is_well(&judge(&report)));
    }

    #[test]
    fn local_accounts_that_cannot_be_read_are_a_problem() {
        let mut report = report();
        if let Ok(publisher) = &mut report.publisher {
            publisher.locals_error = "cannot read /etc/passwd: Permission denied".to_owned();
        }
        assert!(!is_well(&judge(&report)));
        let said = said(&report).concat();
        assert!(said.contains("own accounts cannot be read: cannot read /etc/passwd"), "{said}");
    }

    #[test]
    fn rejected_entries_are_named_with_reason_and_remedy_and_are_no_failure() {
        let mut report = report();
        let reasons = [
            ("gid 100 is below min_id (1000)", 812),
            ("a local user has this name", 2),
            ("uid 7 is below min_id (1000)", 1),
            ("uid 8 is below min_id (1000)", 1),
            ("uid 9 is below min_id (1000)", 1),
        ];
        refuse(&mut report, &reasons);
        assert_eq!(
            said(&report),
            [
                "! corp: 812 entries rejected: gid 100 is below min_id (1000)\n    → if users may \
                 have the host's own group 100 as their primary group: allowed_local_gids = [100] \
                 under [host]",
                "! corp: 2 entries rejected: a local user has this name\n    → which ones: roster \
                 domain rejected corp",
                "! corp: 1 entry rejected: uid 7 is below min_id (1000)\n    → if such users are to \
                 be served, lower min_id",
                "! corp: 2 entries rejected for 2 other reasons\n    → all of them: roster domain \
                 rejected corp",
            ]
        );
        assert!(is_well(&judge(&report)));
        assert!(domain_table(&report).contains("817"));
    }

    #[test]
    fn doctor_rejected_entries_are_named() {
        let mut report = report();
        let gid = "gid 100 is below min_id (1000)";
        refuse(&mut report, &[(gid, 2), ("uids below min_id (1000)", 2)]);
        let entry = |name: &str, reason: &str| Rejected {
            kind: "user".to_owned(),
            name: name.to_owned(),
            reason: reason.to_owned(),
        };
        let uid = "uid 7 is below min_id (1000)";
        let local = "a local user has this name";
        let all = [("al", gid), ("bo", gid), ("cy", uid), ("di", local)];
        let all = all.map(|(name, reason)| entry(name, reason));
        report.rejected.push(("corp".to_owned(), all.into()));
        assert_eq!(
            said(&report),
            [
                "! corp: 2 entries rejected: gid 100 is below min_id (1000): user al, user bo\n    \
                 → if users may have the host's own group 100 as their primary group: \
                 allowed_local_gids = [100] under [host]",
                "! corp: 2 entries rejected: uids below min_id (1000)\n    → if such entries are to \
                 be served, lower min_id",
                "! corp: rejected: uid 7 is below min_id (1000): user cy\n    → if such users are to \
                 be served, lower min_id",
            ]
        );
    }

    #[test]
    fn remedy_names_the_key_of_its_reason() {
        for (reason, key) in [
            ("primary gid 27 is a local group's", "allowed_local_gids = [27]"),
            ("gid 1500 is a local user's primary gid", "allowed_unnamed_gids = [1500]"),
            ("primary gid 1500 is a local user's primary gid", "allowed_unnamed_gids = [1500]"),
            ("uid 7 is a subordinate id of a local user", "allow_subordinate_ids = true"),
            ("gids that are subordinate ids of local users", "allow_subordinate_ids = true"),
            ("the name belongs to a privileged account on many hosts", "allowed_names"),
        ] {
            let said = remedy(reason).expect("a remedy");
            assert!(said.contains(key), "{reason}: {said}");
        }
    }

    #[test]
    fn status_tenth_rejected_for_one_reason_fails() {
        // 20,301 are served.
        for (number, is_well_then) in [(2_255, true), (2_256, false)] {
            let mut rejected = report();
            refuse(&mut rejected, &[("primary gid 100 is a local group's", number)]);
            assert_eq!(is_well(&judge(&rejected)), is_well_then, "{number}");
            assert!(said(&rejected).concat().contains("allowed_local_gids = [100] under [host]"));
            let mut unreadable = report();
            change(&mut unreadable, |status| status.rejected = number);
            assert_eq!(is_well(&judge(&unreadable)), is_well_then, "{number}");
        }
    }

    #[test]
    fn a_domain_that_is_offline_is_a_problem_with_its_reason() {
        let mut report = report();
        change(&mut report, |status| {
            status.online = false;
            status.since_unix = NOW - 130;
            status.reason = "ldaps://ldap1.example.com: connection refused".to_owned();
        });
        assert_eq!(
            said(&report),
            [
                "✗ corp is offline for 2 min: ldaps://ldap1.example.com: connection refused; what is \
              known is served\n    → it is tried again by itself; at once: roster domain refresh \
              corp"
            ]
        );
        assert!(!is_well(&judge(&report)));
        change(&mut report, |status| status.since_unix = 0);
        assert!(said(&report)[0].starts_with("✗ corp is offline since the start: "));
    }

    #[test]
    fn servers_that_fail_beside_a_good_one_are_named_and_are_no_failure() {
        let mut report = report();
        change(&mut report, |status| {
            status.server = "ldaps://ldap2.example.com".to_owned();
            status.reason = "ldaps://ldap1.example.com: connection refused".to_owned();
        });
        assert_eq!(
            said(&report),
            ["! corp is served by ldaps://ldap2.example.com, after others failed: \
              ldaps://ldap1.example.com: connection refused\n    → the first that is good again is \
              gone back to by itself"]
        );
        assert!(is_well(&judge(&report)));
    }

    #[test]
    fn what_another_try_does_not_mend_is_said_to_need_a_reload() {
        for (reason, advice) in [
            (
                "ldap://x: bind as cn=reader failed: invalidCredentials",
                "look at bind_dn and the file of bind_password_file: what is changed there counts \
                 after `systemctl reload rosterd`",
            ),
            ("ldaps://x: TLS: UnknownIssuer", "look at tls_ca and the names in uris: "),
            ("ldaps://x: connection refused", "it is tried again by itself"),
        ] {
            let said = offline_advice("corp", reason);
            assert!(said.starts_with(advice) && said.ends_with("domain refresh corp"), "{said}");
        }
    }

    #[test]
    fn status_unverified_kdcs_warn_refused_logins_fail() {
        let mut report = report();
        change(&mut report, |status| status.login_warning = "KDCs are not verified".to_owned());
        assert_eq!(
            said(&report),
            ["! corp: KDCs are not verified\n    → `roster check-config` says how to fix it"]
        );
        assert!(is_well(&judge(&report)));
        change(&mut report, |status| status.login_error = "logins are refused".to_owned());
        let found = judge(&report);
        assert!(!is_well(&found) && found[0].message == "corp: logins are refused", "{found:?}");
        let json = as_json(&report, &found);
        assert_eq!(json["domains"][0]["login_error"], "logins are refused");
        assert_eq!(json["domains"][0]["login_warning"], "KDCs are not verified");
    }

    #[test]
    fn a_server_that_has_to_be_polled_is_named_with_what_it_costs() {
        let mut report = report();
        change(&mut report, |status| status.tracking = POLLING.to_owned());
        let said = said(&report);
        assert!(said[0].contains("changes are seen late"), "{said:?}");
        assert!(said[0].contains("roster.toml(5), DIRECTORY SERVERS"), "{said:?}");
    }

    #[test]
    fn a_server_that_hides_its_stamps_is_named_with_what_to_allow() {
        let mut report = report();
        change(&mut report, |status| status.tracking = NEVER_RESUMED.to_owned());
        let said = said(&report);
        assert!(said[0].contains("everything is read anew at each connection"), "{said:?}");
        assert!(said[0].contains("let the bind DN read entryCSN"), "{said:?}");
    }

    #[test]
    fn a_server_that_is_polled_for_everything_is_named_with_what_to_allow() {
        let mut report = report();
        change(&mut report, |status| status.tracking = POLLS_EVERYTHING.to_owned());
        let said = said(&report);
        assert!(said[0].contains("changes are seen late"), "{said:?}");
        assert!(said[1].contains("everything is read anew at each poll"), "{said:?}");
        assert!(said[1].contains("let the bind DN read modifyTimestamp"), "{said:?}");
    }

    #[test]
    fn a_domain_of_nobody_or_of_empty_groups_is_most_likely_a_mistake() {
        let mut report = report();
        let counts = &mut report.publisher.as_mut().unwrap().domains[0];
        counts.listed = 0;
        assert!(said(&report)[0].contains("nobody is a member of any of its 10,100 groups"));
        change(&mut report, |status| status.users = 0);
        assert!(said(&report)[0].contains("corp is read whole and has no users"));
        change(&mut report, |status| status.complete = false);
        assert!(!said(&report).iter().any(|said| said.contains("no users")));
    }

    #[test]
    fn a_domain_of_which_nothing_is_taken_any_more_is_a_problem() {
        let mut report = report();
        report.publisher.as_mut().unwrap().domains[0].not_taken = "it is too long".to_owned();
        assert!(said(&report)[0].starts_with("✗ corp: what changes is not taken: it is too long"));
        report.publisher.as_mut().unwrap().domains[0].new_wait_for = "lab".to_owned();
        assert!(
            said(&report)[1].starts_with("✗ corp: nobody new is served: lab, which goes before")
        );
    }

    #[test]
    fn status_wrong_clock_or_unwritten_passwords_fail() {
        let mut report = report();
        change(&mut report, |status| status.clock_error = "it is 7 h behind".to_owned());
        let found = judge(&report);
        assert_eq!(
            found[0].message,
            "corp: the clock of this host is not believed: it is 7 h behind"
        );
        assert!(!is_well(&found));
        assert_eq!(as_json(&report, &found)["domains"][0]["clock_error"], "it is 7 h behind");
        change(&mut report, |status| {
            status.clock_error.clear();
            status.credentials_error = "passwords are kept in memory: no space".to_owned();
        });
        let found = judge(&report);
        assert_eq!(found[0].message, "corp: passwords are kept in memory: no space");
        assert!(!is_well(&found));
        let json = as_json(&report, &found);
        assert_eq!(
            json["domains"][0]["credentials_error"],
            "passwords are kept in memory: no space"
        );
    }

    #[test]
    fn held_removals_wait_for_a_word() {
        let mut report = report();
        change(&mut report, |status| status.held_removals = 6000);
        let said = said(&report);
        assert!(said[0].starts_with("✗ corp: 6,000 entries that the directory does not show"));
        assert!(said[0].contains("roster domain confirm corp"));
    }

    #[test]
    fn a_publisher_that_waits_has_not_failed() {
        let mut report = report();
        let waits_for = "domain corp can be read";
        report.publisher.as_mut().unwrap().waits_for = waits_for.to_owned();
        assert_eq!(
            said(&report),
            ["✗ the next snapshot is made when domain corp can be read\n    → what was published \
              before is served until then"]
        );
        assert_eq!(as_json(&report, &[])["snapshot"]["waits_for"], waits_for);
        report.publisher.as_mut().unwrap().error = "No space left on device".to_owned();
        assert!(said(&report)[0].contains("could not be published: No space left on device"));
    }

    #[test]
    fn a_role_that_is_down_is_named_with_how_it_ended() {
        let mut report = report();
        let monitor = report.monitor.as_mut().unwrap();
        monitor.roles[2] = RoleState {
            state: "waiting".to_owned(),
            since_unix: NOW - 2,
            last_end: "killed by signal 9".to_owned(),
            restarts: 4,
            ..role("backend:corp", 0)
        };
        report.domains[0].1 = Err("backend:corp is not there".to_owned());
        assert_eq!(
            said(&report),
            [
                "✗ backend:corp is waiting for 2 s: killed by signal 9\n    → see its log: \
                 journalctl -u rosterd",
                "✗ backend:corp is not there\n    → see its log: journalctl -u rosterd",
            ]
        );
        assert!(domain_table(&report).contains("corp    not there  10,201  10,100"));
    }

    #[test]
    fn a_configuration_that_is_not_in_force_is_shown_with_its_mistakes() {
        let mut report = report();
        let monitor = report.monitor.as_mut().unwrap();
        monitor.config_error = "roster.toml:3: host.min_id: x\nroster.toml:4: y".to_owned();
        let said = said(&report);
        assert!(said[0].starts_with("✗ /etc/roster/roster.toml is not in force as it is now"));
        assert!(said[0].contains("\n    roster.toml:3: host.min_id: x\n    roster.toml:4: y\n"));
    }

    #[test]
    fn without_a_monitor_the_rest_is_still_shown() {
        let mut report = report();
        report.monitor = Err("monitor does not answer".to_owned());
        let text = as_text(&report, &judge(&report), Paint::plain());
        assert!(text.contains("generation 123") && text.contains("✗ monitor does not answer"));
    }

    #[test]
    fn json_holds_what_a_monitoring_system_asks() {
        let mut report = report();
        refuse(&mut report, &[("gid 100 is below min_id (1000)", 812)]);
        let value = as_json(&report, &judge(&report));
        assert_eq!(value["ok"], true);
        assert_eq!(value["snapshot"]["generation"], 123);
        assert_eq!(value["domains"][0]["domain"], "corp");
        assert_eq!(value["domains"][0]["refused"][0]["entries"], 812);
        assert_eq!(value["domains"][0]["reason"], Value::Null);
        assert_eq!(value["roles"][2]["sandbox"], "landlock, seccomp");
        assert_eq!(value["findings"][0]["level"], "warning");
    }

    #[test]
    fn a_daemon_that_does_not_run_has_an_exit_code_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut out = Vec::new();
        assert_eq!(run(folder.path(), true, &mut out).unwrap(), NOT_RUNNING);
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&value["ok"], &value["running"]), (&json!(false), &json!(false)));
    }
}
