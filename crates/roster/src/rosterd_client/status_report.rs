//! What every role says of itself, asked at once. Concludes nothing: `status_checks` does.

use super::rejected_entries::rejected_by_publisher;
use super::{BusClient, call_error, run_async, unix_now};
use anyhow::Result;
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{
    DomainStatus, MonitorStatus, PublishedDomain, PublisherStatus, RejectedEntry, RoleStatus,
    SupervisedRole,
};
use roster_passwd_format::lines::{ParsedLine, passwd_line};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;

/// How long a role may take to say how it is: those who wait want to know that it hangs.
const REPLY_WAIT: Duration = Duration::from_secs(5);

/// Local users, as the daemon reads them.
const PASSWD: &str = "/etc/passwd";

/// What a back-end says where the server tells no changes.
pub const POLLING: &str = "polling";

/// What it says where the server does not show what a resumption is believed by.
pub const NEVER_RESUMED: &str = "syncrepl, never resumed";

/// What it says where the server, besides, does not show what changes are found by.
pub const POLLS_EVERYTHING: &str = "polling, everything each time";

/// What every role said, or why it did not.
#[derive(Clone, Debug)]
pub struct StatusReport {
    pub(super) now: u64,
    pub(super) monitor: Result<MonitorStatus, String>,
    pub(super) publisher: Result<PublisherStatus, String>,
    /// In order of precedence.
    pub(super) domains: Vec<(String, Result<DomainStatus, String>)>,
    /// Of those that answered.
    pub(super) roles: Vec<RoleStatus>,
    /// Local users by id, among them those that roles run as.
    pub(super) users: HashMap<u32, String>,
    /// Rejected entries by domain; empty unless `report_with_rejected` fetched them.
    pub(super) rejected: Vec<(String, Vec<RejectedEntry>)>,
}

/// Asks the daemon whose sockets are there. An error is a [`ConnectError`](super::ConnectError).
pub fn report(run_dir: &Path) -> Result<StatusReport> {
    run_async(async {
        let bus = BusClient::connect_for(run_dir, REPLY_WAIT).await?;
        Ok(StatusReport::collect(&bus).await)
    })
}

/// As [`report`], with the rejected entries of each domain.
pub fn report_with_rejected(run_dir: &Path) -> Result<StatusReport> {
    run_async(async {
        let bus = BusClient::connect_for(run_dir, REPLY_WAIT).await?;
        let mut report = StatusReport::collect(&bus).await;
        for (name, _) in &report.domains {
            // A role that does not answer is among the findings.
            let entries = rejected_by_publisher(&bus, name).await.unwrap_or_default();
            report.rejected.push((name.clone(), entries));
        }
        Ok(report)
    })
}

impl StatusReport {
    /// Asks every role, all at once: one that hangs does not hold up the others.
    pub async fn collect(bus: &BusClient) -> Self {
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
        Self { now: unix_now(), monitor, publisher, domains, roles, users, rejected: Vec::new() }
    }

    /// The file that programs are to read.
    pub fn snapshot(&self) -> Option<PathBuf> {
        self.publisher.as_ref().ok().map(|publisher| PathBuf::from(&publisher.snapshot))
    }
}

/// The names of local users by uid.
pub(super) fn local_users(passwd: &[u8]) -> HashMap<u32, String> {
    let mut users = HashMap::new();
    for line in passwd.split(|&byte| byte == b'\n') {
        if let ParsedLine::Entry(user) = passwd_line(line) {
            let name = String::from_utf8_lossy(user.name);
            users.entry(user.uid).or_insert_with(|| name.into_owned());
        }
    }
    users
}

async fn monitor(bus: &BusClient) -> Result<MonitorStatus> {
    bus.monitor().await?.status().await.map_err(|error| call_error(&RoleName::Monitor, &error))
}

pub async fn publisher(bus: &BusClient) -> Result<PublisherStatus> {
    bus.publisher().await?.status().await.map_err(|error| call_error(&RoleName::Publisher, &error))
}

/// How a domain's back-end is.
pub async fn backend(bus: &BusClient, domain: &str) -> Result<DomainStatus> {
    let role = RoleName::Backend(domain.to_owned());
    bus.backend(domain).await?.status().await.map_err(|error| call_error(&role, &error))
}

/// What the running ones say of themselves. Who does not answer is seen by the monitor's word.
async fn roles(bus: &BusClient, states: &[SupervisedRole]) -> Vec<RoleStatus> {
    let mut asked = JoinSet::new();
    let running = states.iter().filter(|state| state.state == "running");
    for role in running.filter_map(|state| RoleName::parse(&state.role)) {
        let bus = bus.clone();
        asked.spawn(async move { bus.role(&role).await.ok()?.status().await.ok() });
    }
    asked.join_all().await.into_iter().flatten().collect()
}

/// Removals that wait for a confirmation, in the back-end and in the publisher.
pub(super) fn held_removals(
    status: Option<&DomainStatus>,
    counts: Option<&PublishedDomain>,
) -> u64 {
    let in_backend = status.map_or(0, |status| status.held_removals);
    in_backend + counts.map_or(0, |counts| counts.held_removals)
}

/// What the publisher says of a domain.
pub(super) fn domain_counts<'r>(
    report: &'r StatusReport,
    domain: &str,
) -> Option<&'r PublishedDomain> {
    let publisher = report.publisher.as_ref().ok()?;
    publisher.domains.iter().find(|counts| counts.domain == domain)
}

/// Entries of a domain that the publisher rejects.
pub(super) fn rejected_count(counts: Option<&PublishedDomain>) -> u64 {
    counts.map_or(0, |counts| counts.refused.iter().map(|reason| reason.entries).sum())
}

/// The text, or another one in its place.
pub(super) fn or_if_empty<'t>(text: &'t str, otherwise: &'t str) -> &'t str {
    if text.is_empty() { otherwise } else { text }
}
