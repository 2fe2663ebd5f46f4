// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks of `roster status`: findings from the report of the daemon. Pure: [`status_report`](super::status_report)
//! queries the roles. Each check is a function, and the tables have them in the order of their findings.

use super::rejected_entries::by_reason;
use super::status_report::{
    CHECK, StatusReport, domain_counts, held_removals, or_if_empty, rejected_count,
};
use super::{age, ago};
use crate::finding::{Finding, FindingLevel, problem, warning};
use crate::output::{count_with_noun, printable};
use crate::unserved::list_names;
use roster_bus::interfaces::{
    DomainStatus, MonitorStatus, PublishedDomain, PublisherStatus, RejectedEntry, RejectionCount,
    RoleStatus, SupervisedRole,
};
use roster_messages::Message;
use roster_messages::table::{directory, status};
use roster_request::TrackingMethod;

/// Reasons of rejection that the status lists for a domain. `roster domain rejected` lists all.
const REASONS_SHOWN: usize = 3;
/// Rejections for one reason are a problem if they are more than this fraction of the entries of a domain.
const REJECTED_SHARE: u64 = 10;

/// Reasons of rejection that a key of the configuration removes.
static ALLOWED_BY_KEY: [&Message; 9] = [
    &directory::ID_BELOW_MIN,
    &directory::PRIMARY_GID_BELOW_MIN,
    &directory::ID_ABOVE_MAX,
    &directory::PRIMARY_GID_LOCAL,
    &directory::GID_OF_LOCAL_USERS,
    &directory::SUBORDINATE_ID,
    &directory::PRIVILEGED_NAME,
    &directory::NAME_CHARACTERS,
    &directory::HOME_EMPTY,
];

/// The checks of a publisher that replies.
const PUBLISHER_CHECKS: [fn(&PublisherStatus) -> Option<Finding>; 6] = [
    check_publication,
    check_foreign_snapshot,
    check_disk,
    check_memory_copy,
    check_lookups,
    check_local_accounts,
];

/// The checks of a domain, except for entries that the publisher rejects.
const DOMAIN_CHECKS: [fn(&ExaminedDomain<'_>) -> Option<Finding>; 20] = [
    check_backend,
    check_directory,
    check_credentials_file,
    check_clock,
    check_failed_servers,
    check_cache,
    check_login_error,
    check_login_warning,
    check_referrals,
    check_polling,
    check_full_polling,
    check_resumption,
    check_first_read,
    check_held_removals,
    check_unreadable_entries,
    check_emptiness,
    check_updates,
    check_overrides,
    check_unused_overrides,
    check_earlier_domain,
];

/// A part of the sandbox of a role.
struct SandboxPart {
    name: &'static str,
    /// The mark in the status of a role without this part.
    mark: &'static str,
    loss: &'static str,
}

const SANDBOX_PARTS: [SandboxPart; 2] = [
    SandboxPart {
        name: "Landlock",
        mark: "no landlock",
        loss: "only their users and file modes restrict files, and nothing restricts TCP ports",
    },
    SandboxPart {
        name: "seccomp",
        mark: "no seccomp",
        loss: "nothing restricts system calls and kinds of sockets",
    },
];

/// A domain as its backend and the publisher see it.
struct ExaminedDomain<'r> {
    now: u64,
    name: &'r str,
    status: Result<&'r DomainStatus, &'r Finding>,
    counts: Option<&'r PublishedDomain>,
    /// Rejected entries, if the report has them.
    rejected: &'r [RejectedEntry],
}

/// Returns the findings, most severe first.
pub fn check(report: &StatusReport) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &report.monitor {
        Ok(monitor) => {
            findings.extend(check_configuration(report.now, monitor));
            findings.extend(monitor.roles.iter().filter_map(|role| check_role(report.now, role)));
        }
        Err(finding) => findings.push(finding.clone()),
    }
    findings.extend(SANDBOX_PARTS.iter().filter_map(|part| check_sandbox(&report.roles, part)));
    match &report.publisher {
        Ok(publisher) => {
            findings.extend(PUBLISHER_CHECKS.iter().filter_map(|check| check(publisher)));
        }
        Err(finding) => findings.push(finding.clone()),
    }
    for (name, status) in &report.domains {
        let counts = domain_counts(report, name);
        let rejected = report.rejected.iter().find(|(domain, _)| domain == name);
        let rejected = rejected.map(|(_, entries)| &**entries).unwrap_or_default();
        let domain =
            ExaminedDomain { now: report.now, name, status: status.as_ref(), counts, rejected };
        findings.extend(DOMAIN_CHECKS.iter().filter_map(|check| check(&domain)));
        findings.extend(check_rejected_entries(&domain));
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    findings
}

/// Returns whether no finding is a problem.
pub fn is_well(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level < FindingLevel::Problem)
}

fn check_configuration(now: u64, monitor: &MonitorStatus) -> Option<Finding> {
    let MonitorStatus { config, config_error, .. } = monitor;
    (!config_error.is_empty()).then(|| {
        let read = ago(now, monitor.config_read_unix);
        let mistakes = config_error.trim_end().replace('\n', "\n    ");
        let text = format!(
            "{config} has errors; rosterd keeps the configuration read {read}:\n    {mistakes}"
        );
        problem(CHECK, &status::CONFIGURATION_REJECTED, text)
    })
}

fn check_sandbox(roles: &[RoleStatus], part: &SandboxPart) -> Option<Finding> {
    let without = roles.iter().filter(|role| role.sandbox.contains(part.mark));
    let names: Vec<_> = without.map(|role| &*role.role).collect();
    (!names.is_empty()).then(|| {
        let text = format!("{} run without {}: {}", names.join(", "), part.name, part.loss);
        warning(CHECK, &status::SANDBOX_INCOMPLETE, text)
    })
}

fn check_role(now: u64, role: &SupervisedRole) -> Option<Finding> {
    let SupervisedRole { role: name, state, since_unix, last_end, restarts, .. } = role;
    let ended = if last_end.is_empty() { String::new() } else { format!(": {last_end}") };
    match &**state {
        "running" | "idle" => {
            // One restart is not a finding. A role with a clean exit restarts to reread its settings.
            let is_frequent =
                *restarts >= 3 && now.saturating_sub(*since_unix) < 300 && !role.last_end_is_clean;
            is_frequent.then(|| {
                let times = count_with_noun(u64::from(*restarts), "time");
                let text = format!("{name} was restarted {times}, the last end{ended}");
                warning(CHECK, &status::ROLE_RESTARTS, text)
            })
        }
        state => {
            let text = format!("{name} is {state} for {}{ended}", age(now, *since_unix));
            Some(problem(CHECK, &status::ROLE_NOT_RUNNING, text))
        }
    }
}

fn check_publication(publisher: &PublisherStatus) -> Option<Finding> {
    if !publisher.error.is_empty() {
        let text = format!("the snapshot cannot be published: {}", publisher.error);
        return Some(problem(CHECK, &status::PUBLICATION_FAILED, text));
    }
    if !publisher.waits_for.is_empty() {
        let text = format!("publication is on hold until {}", publisher.waits_for);
        return Some(problem(CHECK, &status::PUBLICATION_WAITS, text));
    }
    (publisher.generation == 0)
        .then(|| problem(CHECK, &status::NOT_PUBLISHED, "no snapshot was published yet"))
}

fn check_foreign_snapshot(publisher: &PublisherStatus) -> Option<Finding> {
    let PublisherStatus { snapshot, foreign, .. } = publisher;
    (!foreign.is_empty()).then(|| {
        let text = format!("{snapshot}: another program wrote the snapshot: {foreign}");
        problem(CHECK, &status::SNAPSHOT_FOREIGN, text)
    })
}

fn check_disk(publisher: &PublisherStatus) -> Option<Finding> {
    let PublisherStatus { snapshot, disk_error, .. } = publisher;
    (!disk_error.is_empty()).then(|| {
        let text = format!("{snapshot} cannot be read from the disk: {disk_error}");
        problem(CHECK, &status::DISK_READ_FAILED, text)
    })
}

fn check_memory_copy(publisher: &PublisherStatus) -> Option<Finding> {
    let error = &publisher.copy_error;
    (!error.is_empty()).then(|| {
        let text = format!("the copy of the snapshot in memory is missing: {error}");
        warning(CHECK, &status::MEMORY_COPY_MISSING, text)
    })
}

fn check_lookups(publisher: &PublisherStatus) -> Option<Finding> {
    let PublisherStatus { failed_lookups, failed_lookup, .. } = publisher;
    (*failed_lookups > 0).then(|| {
        let lookups = count_with_noun(*failed_lookups, "lookup");
        let text = format!("{lookups} failed in the last minute, the last one: {failed_lookup}");
        problem(CHECK, &status::LOOKUPS_FAILED, text)
    })
}

fn check_local_accounts(publisher: &PublisherStatus) -> Option<Finding> {
    let error = &publisher.locals_error;
    (!error.is_empty()).then(|| {
        let text = format!("the local accounts cannot be read: {error}");
        problem(CHECK, &status::LOCAL_ACCOUNTS_UNREADABLE, text)
    })
}

fn check_backend(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    domain.status.err().cloned()
}

fn check_directory(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let (name, status) = (domain.name, domain.status.ok()?);
    (!status.online).then(|| {
        let since = since_text(domain.now, status.since_unix);
        let reason = or_if_empty(&status.reason, "no server has replied yet");
        let cause = roster_messages::find(&status.reason_code);
        let advice = format!(
            "{} rosterd retries automatically; to retry now, run `roster domain refresh {name}`. After a \
             change of the configuration or its files, run `systemctl reload rosterd`.",
            cause.map_or("Fix the cause.", |cause| cause.fix)
        );
        let message = cause.unwrap_or(&status::DOMAIN_OFFLINE);
        problem(CHECK, message, format!("{name} is offline {since}: {reason}")).advice(advice)
    })
}

/// Returns the finding about a fault of a domain, with the code that the backend sent.
fn fault(
    domain: &ExaminedDomain<'_>,
    (text, code): (&str, &str),
    finding: fn(&'static str, &'static Message, String) -> Finding,
) -> Option<Finding> {
    let message = roster_messages::find(code).unwrap_or(&status::DOMAIN_FAULT);
    (!text.is_empty()).then(|| finding(CHECK, message, format!("{}: {text}", domain.name)))
}

fn check_credentials_file(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let DomainStatus { credentials_error, credentials_code, .. } = domain.status.ok()?;
    fault(domain, (credentials_error, credentials_code), problem)
}

fn check_clock(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let DomainStatus { clock_error, clock_code, .. } = domain.status.ok()?;
    fault(domain, (clock_error, clock_code), problem)
}

fn check_failed_servers(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let status = domain.status.ok()?;
    (status.online && !status.reason.is_empty()).then(|| {
        let DomainStatus { server, reason, .. } = status;
        let text = format!("{} uses {server}, because others failed: {reason}", domain.name);
        warning(CHECK, &status::SERVERS_FAILED, text)
    })
}

fn check_cache(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let DomainStatus { cache_error, cache_code, .. } = domain.status.ok()?;
    fault(domain, (cache_error, cache_code), warning)
}

fn check_login_error(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let DomainStatus { login_error, login_error_code, .. } = domain.status.ok()?;
    fault(domain, (login_error, login_error_code), problem)
}

fn check_login_warning(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let DomainStatus { login_warning, login_warning_code, .. } = domain.status.ok()?;
    fault(domain, (login_warning, login_warning_code), warning)
}

fn check_referrals(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let servers = &domain.status.ok()?.referrals;
    (!servers.is_empty()).then(|| {
        let servers: Vec<String> = servers.iter().map(|server| printable(server)).collect();
        let servers = servers.join(", ");
        let text = format!(
            "{}: the directory refers to {servers} for a part of the search bases; rosterd does not \
             follow referrals",
            domain.name
        );
        warning(CHECK, &status::REFERRALS_NOT_FOLLOWED, text)
    })
}

fn check_polling(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let method = domain.tracking()?;
    matches!(method, TrackingMethod::Polling | TrackingMethod::PollingEverything).then(|| {
        let text = format!(
            "{}: the server sends no change notifications; rosterd polls it, so changes and deletions \
             are seen late",
            domain.name
        );
        warning(CHECK, &status::CHANGES_POLLED, text)
    })
}

fn check_full_polling(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    (domain.tracking()? == TrackingMethod::PollingEverything).then(|| {
        let text = format!(
            "{}: the server does not show change stamps of users or groups; each poll reads everything",
            domain.name
        );
        warning(CHECK, &status::POLLS_READ_EVERYTHING, text)
    })
}

fn check_resumption(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let name = domain.name;
    (domain.tracking()? == TrackingMethod::SyncreplWithoutResume).then(|| {
        let text = format!(
            "{name}: the server does not show change stamps of entries; each connection reads everything"
        );
        let advice = format!(
            "Grant the bind DN read access to entryCSN (389 Directory Server: modifyTimestamp), then run \
             `roster domain refresh {name}`."
        );
        warning(CHECK, &status::CONNECTIONS_READ_EVERYTHING, text).advice(advice)
    })
}

fn check_first_read(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let status = domain.status.ok()?;
    (status.online && !status.complete && status.mode == "replicate").then(|| {
        let text = format!("{} is being read for the first time", domain.name);
        warning(CHECK, &status::FIRST_READ_RUNNING, text)
    })
}

fn check_held_removals(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let (name, held) = (domain.name, held_removals(domain.status.ok(), domain.counts));
    (held > 0).then(|| {
        let entries = count_with_noun(held, "entry");
        let text = format!("{name}: {entries} would be removed at once; removal is on hold");
        let advice = format!(
            "If the removals are intended, run `roster domain approve-removals {name}`. Otherwise fix the \
             directory or the configuration of the domain."
        );
        problem(CHECK, &status::REMOVALS_HELD, text).advice(advice)
    })
}

fn check_unreadable_entries(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let (name, unreadable) = (domain.name, domain.unreadable());
    (unreadable > 0).then(|| {
        let entries = count_with_noun(unreadable, "entry");
        let text = format!("{name}: {entries} rejected: not readable as users or groups");
        let advice = format!("List them with `roster domain rejected {name}`.");
        domain.rejection(unreadable, &status::ENTRIES_UNREADABLE, text).advice(advice)
    })
}

/// Finds probable mistakes of a configuration with a reachable directory: no user, or no member of any group.
fn check_emptiness(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let (name, status, counts) = (domain.name, domain.status.ok()?, domain.counts?);
    if !status.online || !status.complete {
        return None;
    }
    if status.users + status.rejected == 0 {
        let text = format!("{name} was read completely and has no users");
        let finding = warning(CHECK, &status::NO_USERS, text);
        return Some(match domain.tracking() {
            Some(TrackingMethod::Inotify) => {
                finding.advice(format!("Check the passwd file of {name}: it has no valid line."))
            }
            _ => finding,
        });
    }
    (counts.groups > 0 && counts.listed == 0).then(|| {
        let groups = count_with_noun(counts.groups, "group");
        let text = format!("{name}: none of its {groups} has a member");
        let finding = warning(CHECK, &status::NO_MEMBERS, text);
        match domain.tracking() {
            // A domain of text files has no attributes.
            Some(TrackingMethod::Inotify) => {
                finding.advice(format!("Add members to the lines of the group file of {name}."))
            }
            _ => finding,
        }
    })
}

fn check_updates(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let why = &domain.counts?.not_taken;
    (!why.is_empty()).then(|| {
        let text = format!("{}: the publisher rejects its updates: {why}", domain.name);
        problem(CHECK, &status::UPDATES_REJECTED, text)
    })
}

fn check_overrides(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let error = &domain.counts?.overrides_error;
    (!error.is_empty()).then(|| {
        let mistakes = error.trim_end().replace('\n', "\n    ");
        let text = format!("{}: the overrides have errors:\n    {mistakes}", domain.name);
        problem(CHECK, &status::OVERRIDES_REJECTED, text)
    })
}

fn check_unused_overrides(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let unused = &domain.counts?.unused_overrides;
    (!unused.is_empty()).then(|| {
        let names: Vec<String> = unused.iter().map(|name| printable(name).to_string()).collect();
        let text = format!(
            "{}: the directory lacks entries with an override: {}",
            domain.name,
            names.join(", ")
        );
        warning(CHECK, &status::OVERRIDES_UNUSED, text)
    })
}

fn check_earlier_domain(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let first = &domain.counts?.waits_for;
    (!first.is_empty()).then(|| {
        let text = format!(
            "{} is not served until the higher-priority domain {first} has been read once",
            domain.name
        );
        let advice = format!("Make {first} reachable, or remove it from domains under [host].");
        problem(CHECK, &status::DOMAIN_WAITS_FOR_ANOTHER, text).advice(advice)
    })
}

/// Finds entries that the publisher rejects, by reason. If the report has the entries, a finding names those that a key
/// of the configuration allows. Such a reason has its own finding also if the status does not list it.
fn check_rejected_entries(domain: &ExaminedDomain<'_>) -> Vec<Finding> {
    let (name, Some(counts)) = (domain.name, domain.counts) else { return Vec::new() };
    let mut named = by_reason(domain.rejected);
    named.retain(|entries| {
        roster_messages::find(&entries[0].code).is_some_and(|one| ALLOWED_BY_KEY.contains(&one))
    });
    let list = |entries: &[&RejectedEntry]| {
        let entries: Vec<_> = entries.iter().map(|entry| (&*entry.kind, &*entry.name)).collect();
        list_names(&entries, &format!("`roster domain rejected {name} --all` lists them"))
    };
    let mut findings = Vec::new();
    for RejectionCount { reason, code, fix, entries } in counts.refused.iter().take(REASONS_SHOWN) {
        let number = count_with_noun(*entries, "entry");
        let mut text = format!("{name}: {number} rejected: {}", printable(reason));
        if let Some(position) = named.iter().position(|entries| entries[0].reason == *reason) {
            text += &format!(": {}", list(&named.remove(position)));
        }
        let message = roster_messages::find(code).unwrap_or(&status::ENTRIES_REJECTED);
        let finding = domain.rejection(*entries, message, text);
        findings.push(Finding { advice: non_empty(fix), ..finding });
    }
    let others = counts.refused.get(REASONS_SHOWN..).unwrap_or_default();
    if !others.is_empty() {
        let entries = count_with_noun(others.iter().map(|one| one.entries).sum(), "entry");
        let reasons = count_with_noun(others.len() as u64, "other reason");
        let text = format!("{name}: {entries} rejected for {reasons}");
        let advice = format!("List all of them with `roster domain rejected {name}`.");
        findings.push(warning(CHECK, &status::ENTRIES_REJECTED, text).advice(advice));
    }
    findings.extend(named.iter().filter_map(|entries| {
        let RejectedEntry { reason, code, fix, .. } = entries[0];
        let text = format!("{name}: rejected: {}: {}", printable(reason), list(entries));
        let finding = warning(CHECK, roster_messages::find(code)?, text);
        Some(Finding { advice: non_empty(fix), ..finding })
    }));
    findings
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl ExaminedDomain<'_> {
    fn tracking(&self) -> Option<TrackingMethod> {
        TrackingMethod::parse(&self.status.ok()?.tracking)
    }

    /// Returns the number of entries that the backend cannot parse.
    fn unreadable(&self) -> u64 {
        self.status.map_or(0, |status| status.rejected)
    }

    /// Returns a problem if the rejected entries are a large share of the domain, otherwise a warning.
    fn rejection(&self, rejected: u64, message: &'static Message, text: String) -> Finding {
        let served = self.counts.map_or(0, |counts| counts.users + counts.groups);
        let all = served + rejected_count(self.counts) + self.unreadable();
        match rejected.saturating_mul(REJECTED_SHARE) > all {
            true => problem(CHECK, message, text),
            false => warning(CHECK, message, text),
        }
    }
}

/// Formats the time of a state of a domain.
fn since_text(now: u64, unix: u64) -> String {
    match unix {
        0 => "since the start".to_owned(),
        unix => format!("for {}", age(now, unix)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::status_fixture::{NOW, change, found, refuse, report, said};
    use super::*;

    #[test]
    fn status_role_without_landlock_named() {
        let mut report = report();
        report.roles[0].sandbox = "no landlock (the kernel has none), seccomp".to_owned();
        let finding = found(&report, &status::SANDBOX_INCOMPLETE);
        assert_eq!(finding.level, FindingLevel::Warning);
        assert!(finding.text.starts_with("backend:corp run without Landlock"), "{finding}");
    }

    #[test]
    fn status_unreadable_local_accounts_are_problem() {
        let mut report = report();
        if let Ok(publisher) = &mut report.publisher {
            publisher.locals_error = "cannot read /etc/passwd: Permission denied".to_owned();
        }
        assert!(!is_well(&check(&report)));
        let found = found(&report, &status::LOCAL_ACCOUNTS_UNREADABLE);
        let text = "the local accounts cannot be read: cannot read /etc/passwd: Permission denied";
        assert_eq!(found.text, text);
    }

    #[test]
    fn doctor_rejected_entries_are_named() {
        let mut report = report();
        let (gid, uids) = ("gid 100 is below min_id (1000)", "uids below min_id (1000)");
        let (below, primary) = (&directory::ID_BELOW_MIN, &directory::PRIMARY_GID_BELOW_MIN);
        refuse(&mut report, &[(gid, primary, 2), (uids, below, 2)]);
        let entry = |name: &str, reason: &str, message: &Message| RejectedEntry {
            kind: "user".to_owned(),
            name: name.to_owned(),
            reason: reason.to_owned(),
            code: message.code.to_owned(),
            fix: if message == primary { "Allow gid 100.".to_owned() } else { String::new() },
        };
        let uid = "uid 7 is below min_id (1000)";
        let all = [
            entry("al", gid, primary),
            entry("bo", gid, primary),
            entry("cy", uid, below),
            entry("di", "a local user has this name", &directory::LOCAL_USER_NAME),
        ];
        report.rejected.push(("corp".to_owned(), all.into()));
        let (fix, gid_fix) = (below.fix, primary.fix);
        assert_eq!(
            said(&report),
            [
                format!(
                    "! corp: 2 entries rejected: {gid}: user al, user bo\n    → {gid_fix} [{primary}]"
                ),
                format!("! corp: 2 entries rejected: {uids}\n    → {fix} [{below}]"),
                format!("! corp: rejected: {uid}: user cy\n    → {fix} [{below}]"),
            ]
        );
    }

    #[test]
    fn status_tenth_rejected_for_one_reason_fails() {
        // 20,301 are served.
        for (number, is_well_then) in [(2_255, true), (2_256, false)] {
            let mut rejected = report();
            let message = &directory::PRIMARY_GID_LOCAL;
            refuse(&mut rejected, &[("primary gid 100 is a local group's", message, number)]);
            assert_eq!(is_well(&check(&rejected)), is_well_then, "{number}");
            found(&rejected, message);
            let mut unreadable = report();
            change(&mut unreadable, |status| status.rejected = number);
            assert_eq!(is_well(&check(&unreadable)), is_well_then, "{number}");
        }
    }

    #[test]
    fn status_offline_domain_is_problem_with_reason() {
        let mut report = report();
        change(&mut report, |status| {
            status.online = false;
            status.since_unix = NOW - 130;
            status.reason = "ldaps://ldap1.example.com: connection refused".to_owned();
        });
        let found = check(&report);
        let text = "corp is offline for 2 min: ldaps://ldap1.example.com: connection refused";
        assert_eq!((found[0].message, &*found[0].text), (Some(&status::DOMAIN_OFFLINE), text));
        let advice = "Fix the cause. rosterd retries automatically; to retry now, run `roster domain \
                      refresh corp`. ";
        assert!(found[0].fix().is_some_and(|fix| fix.starts_with(advice)), "{found:?}");
        change(&mut report, |status| status.reason_code = directory::BIND_FAILED.code.to_owned());
        let found = check(&report);
        assert_eq!(found[0].message, Some(&directory::BIND_FAILED));
        assert!(found[0].fix().is_some_and(|fix| fix.starts_with(directory::BIND_FAILED.fix)));
        assert!(!is_well(&check(&report)));
        change(&mut report, |status| status.since_unix = 0);
        assert!(said(&report)[0].starts_with("✗ corp is offline since the start: "));
    }

    #[test]
    fn status_failed_servers_warn() {
        let mut report = report();
        change(&mut report, |status| {
            status.server = "ldaps://ldap2.example.com".to_owned();
            status.reason = "ldaps://ldap1.example.com: connection refused".to_owned();
        });
        let found = found(&report, &status::SERVERS_FAILED);
        let text = "corp uses ldaps://ldap2.example.com, because others failed: \
                    ldaps://ldap1.example.com: connection refused";
        assert_eq!(found.text, text);
        assert!(is_well(&check(&report)));
    }

    #[test]
    fn status_tracking_methods_have_their_findings() {
        for (method, expected) in [
            (TrackingMethod::Polling, &[&status::CHANGES_POLLED][..]),
            (
                TrackingMethod::PollingEverything,
                &[&status::CHANGES_POLLED, &status::POLLS_READ_EVERYTHING],
            ),
            (TrackingMethod::SyncreplWithoutResume, &[&status::CONNECTIONS_READ_EVERYTHING]),
            (TrackingMethod::Syncrepl, &[]),
            (TrackingMethod::UpdateNumbers, &[]),
            (TrackingMethod::Inotify, &[]),
        ] {
            let mut report = report();
            change(&mut report, |status| status.tracking = method.to_string());
            let found: Vec<_> = check(&report).iter().filter_map(|found| found.message).collect();
            assert_eq!(found, expected, "{method}");
        }
    }

    #[test]
    fn status_domain_without_users_or_members_warns() {
        let mut report = report();
        let counts = &mut report.publisher.as_mut().unwrap().domains[0];
        counts.listed = 0;
        assert_eq!(
            found(&report, &status::NO_MEMBERS).text,
            "corp: none of its 10,100 groups has a member"
        );
        change(&mut report, |status| status.users = 0);
        assert_eq!(found(&report, &status::NO_USERS).fix(), Some(status::NO_USERS.fix));
        change(&mut report, |status| status.complete = false);
        let found = check(&report);
        assert!(!found.iter().any(|found| found.message == Some(&status::NO_USERS)), "{found:?}");
    }

    #[test]
    fn status_empty_files_domain_names_its_files() {
        let mut report = report();
        report.publisher.as_mut().unwrap().domains[0].listed = 0;
        change(&mut report, |status| status.tracking = TrackingMethod::Inotify.to_string());
        let fix = "Add members to the lines of the group file of corp.";
        assert_eq!(found(&report, &status::NO_MEMBERS).fix(), Some(fix));
        change(&mut report, |status| status.users = 0);
        let fix = "Check the passwd file of corp: it has no valid line.";
        assert_eq!(found(&report, &status::NO_USERS).fix(), Some(fix));
    }

    #[test]
    fn status_rejected_updates_are_problem() {
        let mut report = report();
        report.publisher.as_mut().unwrap().domains[0].not_taken = "it is too long".to_owned();
        let found = found(&report, &status::UPDATES_REJECTED);
        assert_eq!(found.text, "corp: the publisher rejects its updates: it is too long");
        assert_eq!(found.level, FindingLevel::Problem);
    }

    #[test]
    fn status_faults_of_overrides_have_codes() {
        let mut report = report();
        let counts = &mut report.publisher.as_mut().unwrap().domains[0];
        counts.overrides_error = "x.toml:1: a\nx.toml:2: b".to_owned();
        counts.unused_overrides = vec!["user alice".to_owned(), "group staff".to_owned()];
        let rejected = found(&report, &status::OVERRIDES_REJECTED);
        let text = "corp: the overrides have errors:\n    x.toml:1: a\n    x.toml:2: b";
        assert_eq!((&*rejected.text, rejected.level), (text, FindingLevel::Problem));
        let unused = found(&report, &status::OVERRIDES_UNUSED);
        let text = "corp: the directory lacks entries with an override: user alice, group staff";
        assert_eq!((&*unused.text, unused.level), (text, FindingLevel::Warning));
    }

    #[test]
    fn status_faults_of_publisher_have_codes() {
        type Change = fn(&mut PublisherStatus);
        let rows: [(&Message, Change); 5] = [
            (&status::NOT_PUBLISHED, |publisher| publisher.generation = 0),
            (&status::SNAPSHOT_FOREIGN, |publisher| publisher.foreign = "x".to_owned()),
            (&status::DISK_READ_FAILED, |publisher| publisher.disk_error = "x".to_owned()),
            (&status::MEMORY_COPY_MISSING, |publisher| publisher.copy_error = "x".to_owned()),
            (&status::LOOKUPS_FAILED, |publisher| publisher.failed_lookups = 1),
        ];
        for (message, change) in rows {
            let mut report = report();
            change(report.publisher.as_mut().unwrap());
            let codes: Vec<_> = check(&report).iter().map(|finding| finding.message).collect();
            assert_eq!(codes, [Some(message)]);
        }
    }

    #[test]
    fn status_faults_of_domain_have_codes() {
        type Change = fn(&mut DomainStatus);
        let rows: [(&Message, Change); 5] = [
            (&status::DOMAIN_FAULT, |status| status.cache_error = "x".to_owned()),
            (&directory::CACHE_IO, |status| {
                status.cache_error = "x".to_owned();
                status.cache_code = directory::CACHE_IO.code.to_owned();
            }),
            (&status::FIRST_READ_RUNNING, |status| status.complete = false),
            (&status::REMOVALS_HELD, |status| status.held_removals = 1),
            (&status::ENTRIES_UNREADABLE, |status| status.rejected = 1),
        ];
        for (message, apply) in rows {
            let mut report = report();
            change(&mut report, apply);
            let codes: Vec<_> = check(&report).iter().map(|finding| finding.message).collect();
            assert_eq!(codes, [Some(message)]);
        }
        let mut report = report();
        report.publisher.as_mut().unwrap().domains[0].waits_for = "first".to_owned();
        found(&report, &status::DOMAIN_WAITS_FOR_ANOTHER);
    }

    #[test]
    fn status_repeated_restarts_warn_unless_clean() {
        for is_clean in [false, true] {
            let mut report = report();
            let role = &mut report.monitor.as_mut().unwrap().roles[2];
            (role.restarts, role.since_unix) = (3, NOW - 10);
            role.last_end_is_clean = is_clean;
            let codes: Vec<_> = check(&report).iter().map(|finding| finding.message).collect();
            let expected = (!is_clean).then_some(Some(&status::ROLE_RESTARTS));
            assert_eq!(codes, Vec::from_iter(expected));
        }
    }

    #[test]
    fn status_held_removals_name_the_approval() {
        let mut report = report();
        change(&mut report, |status| status.held_removals = 6000);
        let said = said(&report);
        assert!(said[0].starts_with("✗ corp: 6,000 entries would be removed at once"));
        assert!(said[0].contains("roster domain approve-removals corp"));
    }

    #[test]
    fn status_rejected_configuration_shows_mistakes() {
        let mut report = report();
        let monitor = report.monitor.as_mut().unwrap();
        monitor.config_error = "roster.toml:3: host.min_id: x\nroster.toml:4: y".to_owned();
        found(&report, &status::CONFIGURATION_REJECTED);
        let said = said(&report);
        assert!(said[0].starts_with("✗ /etc/roster/roster.toml has errors; rosterd keeps"));
        assert!(said[0].contains("\n    roster.toml:3: host.min_id: x\n    roster.toml:4: y\n"));
    }
}
