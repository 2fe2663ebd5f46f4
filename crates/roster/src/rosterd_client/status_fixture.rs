// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test data: the report of a daemon without faults, and changes to it. Only the tests of `status` and `status_checks`
//! use it.

use super::status_checks::check;
use super::status_report::{RoleReply, StatusReport, local_users};
use crate::finding::{Finding, marked_line};
use crate::output::Paint;
use roster_bus::interfaces::{
    DomainStatus, MonitorStatus, PublishedDomain, PublisherStatus, RejectionCount, RoleStatus,
    SupervisedRole,
};
use roster_messages::Message;

pub const NOW: u64 = 1_000_000;

pub fn role(name: &str, pid: u32) -> SupervisedRole {
    SupervisedRole {
        role: name.to_owned(),
        state: "running".to_owned(),
        pid,
        uid: 990,
        restarts: 0,
        since_unix: NOW - 10_800,
        last_end: String::new(),
        last_end_is_clean: false,
        log_level: "info".to_owned(),
    }
}

pub fn domain(name: &str) -> (String, RoleReply<DomainStatus>) {
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

/// Returns the report of a daemon without faults.
pub fn report() -> StatusReport {
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
        snapshot: "/var/lib/roster/roster.v3.snap".to_owned(),
        generation: 123,
        published_unix_ms: (NOW - 3) * 1000,
        users: 10_201,
        groups: 10_100,
        memberships: 5_050_000,
        bytes: 24 << 20,
        last_publish_us: 12_000,
        domains: vec![PublishedDomain {
            domain: "corp".to_owned(),
            present: true,
            users: 10_201,
            groups: 10_100,
            listed: 5_050_000,
            ..PublishedDomain::default()
        }],
        ..PublisherStatus::default()
    };
    let own = RoleStatus {
        role: "backend:corp".to_owned(),
        log_level: "info".to_owned(),
        sandbox: "landlock, seccomp".to_owned(),
        ..RoleStatus::default()
    };
    StatusReport {
        now: NOW,
        monitor: Ok(monitor),
        publisher: Ok(publisher),
        domains: vec![domain("corp")],
        roles: vec![own],
        users: local_users(b"roster-bus:x:990:990::/:/bin/false\nalso:x:990:1::/:/bin/sh\n"),
        rejected: Vec::new(),
    }
}

pub fn said(report: &StatusReport) -> Vec<String> {
    check(report).iter().map(|finding| marked_line(finding, Paint::plain())).collect()
}

/// Returns the first finding with that row of the table.
pub fn found(report: &StatusReport, message: &Message) -> Finding {
    let findings = check(report);
    let found = findings.iter().find(|finding| finding.message == Some(message));
    found.unwrap_or_else(|| panic!("no {message} in {findings:#?}")).clone()
}

pub fn refuse(report: &mut StatusReport, reasons: &[(&str, &Message, u64)]) {
    if let Ok(publisher) = &mut report.publisher {
        let reasons = reasons.iter().map(|&(reason, message, entries)| RejectionCount {
            reason: reason.to_owned(),
            code: message.code.to_owned(),
            entries,
            ..RejectionCount::default()
        });
        publisher.domains[0].refused = reasons.collect();
    }
}

pub fn change(report: &mut StatusReport, change: impl Fn(&mut DomainStatus)) {
    report.domains[0].1.iter_mut().for_each(change);
}
