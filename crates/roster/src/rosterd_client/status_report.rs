// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries the status of every role, all at once. The module evaluates nothing: [`status_checks`](super::status_checks)
//! does.

use super::rejected_entries::rejected_by_publisher;
use super::{BusClient, call_error, run_async, unix_now};
use crate::finding::Finding;
use anyhow::Result;
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{
    DomainStatus, MonitorStatus, PublishedDomain, PublisherStatus, RejectedEntry, RoleStatus,
    SupervisedRole,
};
use roster_messages::table::tools;
use roster_passwd_format::lines::{ParsedLine, passwd_line};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;

/// Timeout of each role. A role that hangs must not delay the report.
const REPLY_WAIT: Duration = Duration::from_secs(5);

/// The local users.
const PASSWD: &str = "/etc/passwd";

/// Name of the findings about rosterd in JSON.
pub const CHECK: &str = "daemon";

/// The status of a role, or the problem of a role that does not reply.
pub type RoleReply<T> = Result<T, Finding>;

/// The replies of all roles.
#[derive(Clone, Debug)]
pub struct StatusReport {
    pub(super) now: u64,
    pub(super) monitor: RoleReply<MonitorStatus>,
    pub(super) publisher: RoleReply<PublisherStatus>,
    /// In order of priority.
    pub(super) domains: Vec<(String, RoleReply<DomainStatus>)>,
    /// The roles that replied.
    pub(super) roles: Vec<RoleStatus>,
    /// Names of local users by uid, for the users of roles.
    pub(super) users: HashMap<u32, String>,
    /// Rejected entries by domain; empty unless `report_with_rejected` fetched them.
    pub(super) rejected: Vec<(String, Vec<RejectedEntry>)>,
}

/// Queries the daemon with sockets in `run_dir`. An error is about the connection.
pub fn report(run_dir: &Path) -> Result<StatusReport> {
    run_async(async {
        let bus = BusClient::connect_for(run_dir, REPLY_WAIT).await?;
        Ok(StatusReport::collect(&bus).await)
    })
}

/// Queries the daemon, and fetches the rejected entries of each domain.
pub fn report_with_rejected(run_dir: &Path) -> Result<StatusReport> {
    run_async(async {
        let bus = BusClient::connect_for(run_dir, REPLY_WAIT).await?;
        let mut report = StatusReport::collect(&bus).await;
        for (name, _) in &report.domains {
            // A finding reports a role that does not reply.
            let entries = rejected_by_publisher(&bus, name).await.unwrap_or_default();
            report.rejected.push((name.clone(), entries));
        }
        Ok(report)
    })
}

impl StatusReport {
    /// Queries every role at once, so that a role that hangs does not delay the others.
    pub async fn collect(bus: &BusClient) -> Self {
        let monitor = monitor(bus).await.map_err(|error| no_reply(&error));
        let publisher = publisher(bus).await.map_err(|error| no_reply(&error));
        // Without the monitor, the publisher knows the domains.
        let names = match (&monitor, &publisher) {
            (Ok(monitor), _) => monitor.domains.clone(),
            (_, Ok(publisher)) => publisher.domains.iter().map(|d| d.domain.clone()).collect(),
            _ => Vec::new(),
        };
        let mut asked = JoinSet::new();
        for (at, name) in names.into_iter().enumerate() {
            let bus = bus.clone();
            asked.spawn(async move {
                let status = backend(&bus, &name).await.map_err(|error| no_reply(&error));
                (at, name, status)
            });
        }
        let states = monitor.as_ref().map(|monitor| &*monitor.roles).unwrap_or_default();
        let (mut domains, roles) = tokio::join!(asked.join_all(), roles(bus, states));
        domains.sort_by_key(|(at, ..)| *at);
        let domains = domains.into_iter().map(|(_, name, status)| (name, status)).collect();
        // The C library would also query the snapshot, which has no users of roles.
        let users = local_users(&std::fs::read(PASSWD).unwrap_or_default());
        Self { now: unix_now(), monitor, publisher, domains, roles, users, rejected: Vec::new() }
    }

    /// Returns the path of the snapshot.
    pub fn snapshot(&self) -> Option<PathBuf> {
        self.publisher.as_ref().ok().map(|publisher| PathBuf::from(&publisher.snapshot))
    }
}

/// Returns the problem of a role that does not reply.
pub fn no_reply(error: &anyhow::Error) -> Finding {
    Finding::of_error(CHECK, error, &tools::BUS_ERROR)
}

/// Returns the names of local users by uid.
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
    let status = bus.monitor().await?.status().await;
    Ok(status.map_err(|error| call_error(&RoleName::Monitor, &error))?)
}

pub async fn publisher(bus: &BusClient) -> Result<PublisherStatus> {
    let status = bus.publisher().await?.status().await;
    Ok(status.map_err(|error| call_error(&RoleName::Publisher, &error))?)
}

/// Returns the status of a backend.
pub async fn backend(bus: &BusClient, domain: &str) -> Result<DomainStatus> {
    let role = RoleName::Backend(domain.to_owned());
    let status = bus.backend(domain).await?.status().await;
    Ok(status.map_err(|error| call_error(&role, &error))?)
}

/// Returns the status of the running roles. The status of the monitor reports roles without a reply.
async fn roles(bus: &BusClient, states: &[SupervisedRole]) -> Vec<RoleStatus> {
    let mut asked = JoinSet::new();
    let running = states.iter().filter(|state| state.state == "running");
    for role in running.filter_map(|state| RoleName::parse(&state.role)) {
        let bus = bus.clone();
        asked.spawn(async move { bus.role(&role).await.ok()?.status().await.ok() });
    }
    asked.join_all().await.into_iter().flatten().collect()
}

/// Returns the number of held removals in the backend and in the publisher.
pub(super) fn held_removals(
    status: Option<&DomainStatus>,
    counts: Option<&PublishedDomain>,
) -> u64 {
    let in_backend = status.map_or(0, |status| status.held_removals);
    in_backend + counts.map_or(0, |counts| counts.held_removals)
}

/// Returns the counts of the publisher for a domain.
pub(super) fn domain_counts<'r>(
    report: &'r StatusReport,
    domain: &str,
) -> Option<&'r PublishedDomain> {
    let publisher = report.publisher.as_ref().ok()?;
    publisher.domains.iter().find(|counts| counts.domain == domain)
}

/// Returns the number of entries of a domain that the publisher rejects.
pub(super) fn rejected_count(counts: Option<&PublishedDomain>) -> u64 {
    counts.map_or(0, |counts| counts.refused.iter().map(|reason| reason.entries).sum())
}

/// Returns the text, or `otherwise` if it is empty.
pub(super) fn or_if_empty<'t>(text: &'t str, otherwise: &'t str) -> &'t str {
    if text.is_empty() { otherwise } else { text }
}
