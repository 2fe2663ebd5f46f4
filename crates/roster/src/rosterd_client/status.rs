// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster status`: formats the state of every role and domain, the snapshot, and the findings about them.
//! [`status_report`](super::status_report) queries the roles, and [`status_checks`](super::status_checks) makes findings.

use super::old_processes;
use super::status_checks::{check, is_well};
use super::status_report::{
    RoleReply, StatusReport, domain_counts, held_removals, no_reply, or_if_empty, rejected_count,
    report,
};
use super::{age, ago, has_code};
use crate::doctor;
use crate::finding::{Finding, marked_line};
use crate::output::{Align, Paint, bytes, count, count_with_noun, duration, printable, table};
use crate::paths::CONFIG;
use anyhow::Result;
use roster_bus::interfaces::{
    DomainStatus, MonitorStatus, PublishedDomain, PublisherStatus, RejectionCount, RoleStatus,
    SupervisedRole,
};
use roster_messages::table::tools;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Exit status of systemctl(1) for a service that is not running.
const NOT_RUNNING: u8 = 3;
const HAS_PROBLEMS: u8 = 1;

/// Prints the state of the daemon. Returns the exit status.
pub fn run(run_dir: &Path, json: bool, out: &mut dyn Write) -> Result<u8> {
    let report = match report(run_dir) {
        Ok(report) => report,
        Err(error) => {
            let is_stopped = has_code(&error, &tools::ROSTERD_NOT_RUNNING);
            if json {
                let mut value = json!({"ok": false, "running": !is_stopped});
                merge(&mut value, error_json(&no_reply(&error)));
                writeln!(out, "{value:#}")?;
            }
            if is_stopped {
                crate::print_stderr(format_args!("roster: {error}"));
                return Ok(NOT_RUNNING);
            }
            return Err(error);
        }
    };
    let mut findings = file_findings(&report);
    findings.extend(check(&report));
    let old = old_processes::old_processes(Path::new("/proc"));
    findings.extend(old_processes::check(&old));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    if json {
        let mut value = as_json(&report, &findings);
        value["old_processes"] = json!(old);
        writeln!(out, "{value:#}")?;
    } else {
        out.write_all(as_text(&report, &findings, Paint::stdout()).as_bytes())?;
    }
    Ok(if is_well(&findings) { 0 } else { HAS_PROBLEMS })
}

/// Returns the findings of doctor about the snapshot, its directories and the floor of ids. Doctor itself makes these
/// checks without this function.
fn file_findings(report: &StatusReport) -> Vec<Finding> {
    let monitor = report.monitor.as_ref().ok();
    let made =
        || monitor.map(|monitor| Path::new(&monitor.state_dir).join("snap").join("roster.v3.snap"));
    let Some(snapshot) = report.snapshot().or_else(made) else { return Vec::new() };
    let config = monitor.map_or(Path::new(CONFIG), |monitor| Path::new(&monitor.config));
    doctor::check_files(&snapshot, config, monitor.is_none_or(|monitor| monitor.separate_users))
}

fn as_text(report: &StatusReport, findings: &[Finding], paint: Paint) -> String {
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
        if let Ok(status) = status
            && let Some(site) = site(status)
        {
            text += &format!("{name}: {site}\n");
        }
    }
    if let Ok(monitor) = &report.monitor {
        text += "\n";
        text += &role_table(report, monitor);
    }
    text += "\n";
    for finding in findings {
        text += &format!("{}\n", marked_line(finding, paint));
    }
    if findings.is_empty() {
        text += "All well.\n";
    }
    text
}

/// Returns the line that counts groups with members both by name and by DN. `None` without such groups.
pub fn mixed_groups(status: &DomainStatus) -> Option<String> {
    let groups = count_with_noun(status.mixed_groups, "group");
    let name = if status.mixed_groups == 1 { "names" } else { "name" };
    (status.mixed_groups > 0).then(|| format!("{groups} {name} members both by name and by DN"))
}

/// Returns the line about the site of this host and the controllers that DNS lists. `None` without a site.
fn site(status: &DomainStatus) -> Option<String> {
    let near = count_with_noun(status.found_servers.len() as u64, "controller");
    let distant = count_with_noun(status.distant_servers.len() as u64, "controller");
    let site = printable(&status.site);
    (!status.site.is_empty()).then(|| format!("site {site} with {near}, {distant} in other sites"))
}

/// Returns the text that counts groups without gid. `None` without such groups.
pub fn nested_groups(status: &DomainStatus) -> Option<String> {
    let groups = count_with_noun(status.nested_groups, "group");
    (status.nested_groups > 0)
        .then(|| format!("{groups} without gid, for nesting and access rules"))
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
        count_with_noun(publisher.users, "user"),
        count_with_noun(publisher.groups, "group"),
        count_with_noun(publisher.memberships, "membership"),
        bytes(publisher.bytes),
    )
}

/// Formats the domains, one on each line.
pub fn domain_table(report: &StatusReport) -> String {
    let mut rows = vec![
        ["DOMAIN", "STATE", "USERS", "GROUPS", "REJECTED", "CHANGED", "FROM"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (name, status) in &report.domains {
        rows.push(domain_row(report.now, name, status, domain_counts(report, name)).to_vec());
    }
    use Align::{Left, Right};
    table(&rows, &[Left, Left, Right, Right, Right, Left, Left])
}

fn domain_row(
    now: u64,
    name: &str,
    status: &RoleReply<DomainStatus>,
    counts: Option<&PublishedDomain>,
) -> [String; 7] {
    let nothing = || "-".to_owned();
    let served = |number: fn(&PublishedDomain) -> u64| {
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
        count(status.rejected + rejected_count(counts)),
        ago(now, status.last_change_unix),
        printable(or_if_empty(&status.server, "-")),
    ]
}

fn role_table(report: &StatusReport, monitor: &MonitorStatus) -> String {
    let mut rows = vec![
        ["ROLE", "STATE", "PID", "USER", "RESTARTS", "LOG", "SANDBOX"].map(str::to_owned).to_vec(),
    ];
    for state in &monitor.roles {
        let own = report.roles.iter().find(|role| role.role == state.role);
        let own = |field: fn(&RoleStatus) -> &str| {
            own.map_or("-".to_owned(), |role| printable(or_if_empty(field(role), "-")))
        };
        let pid = if state.pid == 0 { "-".to_owned() } else { state.pid.to_string() };
        rows.push(vec![
            state.role.clone(),
            format!("{} {}", state.state, age(report.now, state.since_unix)),
            pid,
            report
                .users
                .get(&state.uid)
                .map_or_else(|| state.uid.to_string(), |name| printable(name)),
            count(state.restarts.into()),
            own(|role| &role.log_level),
            own(|role| &role.sandbox),
        ]);
    }
    use Align::{Left, Right};
    table(&rows, &[Left, Left, Right, Left, Right, Left, Left])
}

fn as_json(report: &StatusReport, findings: &[Finding]) -> Value {
    let monitor = report.monitor.as_ref().ok();
    json!({
        "ok": is_well(findings),
        "running": true,
        "now_unix": report.now,
        "config": monitor.map(|monitor| json!({
            "file": monitor.config,
            "read_unix": monitor.config_read_unix,
            "error": non_empty(&monitor.config_error),
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

fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn known_time(unix: u64) -> Option<u64> {
    Some(unix).filter(|&unix| unix > 0)
}

fn snapshot_json(publisher: &PublisherStatus) -> Value {
    json!({
        "file": publisher.snapshot,
        "generation": publisher.generation,
        "published_unix_ms": known_time(publisher.published_unix_ms),
        "users": publisher.users,
        "groups": publisher.groups,
        "memberships": publisher.memberships,
        "bytes": publisher.bytes,
        "publications": publisher.publications,
        "bytes_written": publisher.bytes_written,
        "last_publish_us": publisher.last_publish_us,
        "error": non_empty(&publisher.error),
        "waiting_for": non_empty(&publisher.waits_for),
        "local_accounts_error": non_empty(&publisher.locals_error),
        "foreign": non_empty(&publisher.foreign),
        "disk_error": non_empty(&publisher.disk_error),
        "copy_error": non_empty(&publisher.copy_error),
        "failed_lookups": publisher.failed_lookups,
        "failed_lookup": non_empty(&publisher.failed_lookup),
    })
}

/// Returns all domains, in order of priority.
pub fn domains_json(report: &StatusReport) -> Vec<Value> {
    let domains = report.domains.iter();
    domains.map(|(name, status)| domain_json(name, status, domain_counts(report, name))).collect()
}

/// Returns a domain as the backend and the publisher see it.
pub fn domain_json(
    name: &str,
    status: &RoleReply<DomainStatus>,
    counts: Option<&PublishedDomain>,
) -> Value {
    let mut value = json!({"domain": name});
    match status {
        Ok(status) => {
            let more = json!({
                "provider": status.provider,
                "mode": status.mode,
                "online": status.online,
                "since_unix": known_time(status.since_unix),
                "server": non_empty(&status.server),
                "reason": non_empty(&status.reason),
                "reason_code": non_empty(&status.reason_code),
                "tracking": non_empty(&status.tracking),
                "complete": status.complete,
                "users": status.users,
                "groups": status.groups,
                "mixed_groups": status.mixed_groups,
                "nested_groups": status.nested_groups,
                "foreign_members": status.foreign_members,
                "parse_errors": status.rejected,
                "referrals": status.referrals,
                "site": non_empty(&status.site),
                "found_servers": status.found_servers,
                "distant_servers": status.distant_servers,
                "last_change_unix": known_time(status.last_change_unix),
                "last_refresh_unix": known_time(status.last_refresh_unix),
                "credentials_error": non_empty(&status.credentials_error),
                "clock_error": non_empty(&status.clock_error),
                "sequence": status.sequence,
                "cache_error": non_empty(&status.cache_error),
                "login_error": non_empty(&status.login_error),
                "login_warning": non_empty(&status.login_warning),
            });
            merge(&mut value, more);
        }
        Err(finding) => merge(&mut value, error_json(finding)),
    }
    merge(&mut value, json!({"pending_removals": held_removals(status.as_ref().ok(), counts)}));
    if let Some(counts) = counts {
        let refused: Vec<_> = counts
            .refused
            .iter()
            .map(|RejectionCount { reason, code, entries, .. }| {
                json!({"reason": reason, "code": non_empty(code), "entries": entries})
            })
            .collect();
        let more = json!({
            "waiting_for": non_empty(&counts.waits_for),
            "update_error": non_empty(&counts.not_taken),
            "overrides_error": non_empty(&counts.overrides_error),
            "unused_overrides": counts.unused_overrides,
            "served_users": counts.users,
            "served_groups": counts.groups,
            "resolved_members": counts.listed,
            "refused": refused,
        });
        merge(&mut value, more);
    }
    value
}

/// Returns an error as JSON.
pub fn error_json(finding: &Finding) -> Value {
    json!({"error": finding.text, "code": finding.message.map(|message| message.code)})
}

fn merge(value: &mut Value, more: Value) {
    if let (Value::Object(value), Value::Object(more)) = (value, more) {
        value.extend(more);
    }
}

fn role_json(state: &SupervisedRole, roles: &[RoleStatus]) -> Value {
    let own = roles.iter().find(|role| role.role == state.role);
    json!({
        "role": state.role,
        "state": state.state,
        "pid": known_time(state.pid.into()),
        "uid": state.uid,
        "restarts": state.restarts,
        "since_unix": known_time(state.since_unix),
        "last_end": non_empty(&state.last_end),
        "version": own.map(|role| &role.version),
        "sandbox": own.map(|role| &role.sandbox),
        "log_level": own.map(|role| &role.log_level),
    })
}

#[cfg(test)]
mod tests {
    use super::super::status_fixture::{NOW, change, found, refuse, report, role, said};
    use super::*;
    use crate::finding::problem;
    use roster_messages::table::{config, directory, status as status_table};

    #[test]
    fn status_healthy_daemon_fits_one_screen() {
        let report = report();
        assert_eq!(
            as_text(&report, &check(&report), Paint::plain()),
            "\
rosterd runs for 3 h, pid 100
configuration  /etc/roster/roster.toml, read 3 h ago
snapshot       /var/lib/roster/roster.v3.snap
               generation 123, published 3 s ago, 12 ms after the change
               10,201 users, 10,100 groups, 5,050,000 memberships, 24.0 MiB

DOMAIN  STATE        USERS  GROUPS  REJECTED  CHANGED  FROM
corp    online 3 h  10,201  10,100         0  3 s ago  ldaps://ldap1.example.com

ROLE          STATE        PID  USER        RESTARTS  LOG   SANDBOX
monitor       running 3 h  100  roster-bus         0  -     -
bus           running 3 h  101  roster-bus         0  -     -
backend:corp  running 3 h  104  roster-bus         0  info  landlock, seccomp

All well.
"
        );
        assert!(is_well(&check(&report)));
    }

    #[test]
    fn status_counts_mixed_groups() {
        let mut report = report();
        let text = |report: &StatusReport| as_text(report, &check(report), Paint::plain());
        assert!(!text(&report).contains("by DN"));
        for (mixed, line) in [
            (1, "\ncorp: 1 group names members both by name and by DN\n"),
            (3, "\ncorp: 3 groups name members both by name and by DN\n"),
        ] {
            change(&mut report, |status| status.mixed_groups = mixed);
            assert!(text(&report).contains(line));
            assert_eq!(domains_json(&report)[0]["mixed_groups"], mixed);
        }
        assert!(is_well(&check(&report)));
    }

    #[test]
    fn status_site_and_controllers_are_shown() {
        let mut report = report();
        let text = |report: &StatusReport| as_text(report, &check(report), Paint::plain());
        assert!(!text(&report).contains("site "));
        change(&mut report, |status| {
            status.site = "Berlin".to_owned();
            status.found_servers = vec!["ldap://dc1.lab.test:389".to_owned()];
            status.distant_servers = vec!["ldap://dc2.lab.test:389".to_owned(); 2];
        });
        let line = "\ncorp: site Berlin with 1 controller, 2 controllers in other sites\n";
        assert!(text(&report).contains(line));
        let json = domains_json(&report).remove(0);
        assert_eq!(json["site"], "Berlin");
        assert_eq!(json["found_servers"], json!(["ldap://dc1.lab.test:389"]));
        assert_eq!(json["distant_servers"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn status_rejected_entries_have_reason_and_fix() {
        let mut report = report();
        let (below, local) = (&directory::ID_BELOW_MIN, &directory::LOCAL_USER_NAME);
        let reasons = [
            ("gid 100 is below min_id (1000)", below, 812),
            ("a local user has this name", local, 2),
            ("uid 7 is below min_id (1000)", below, 1),
            ("uid 8 is below min_id (1000)", below, 1),
            ("uid 9 is below min_id (1000)", below, 1),
        ];
        refuse(&mut report, &reasons);
        let (below, local) =
            [below, local].map(|one| format!("\n    → {} [{one}]", one.fix)).into();
        assert_eq!(
            said(&report),
            [
                format!("! corp: 812 entries rejected: gid 100 is below min_id (1000){below}"),
                format!("! corp: 2 entries rejected: a local user has this name{local}"),
                format!("! corp: 1 entry rejected: uid 7 is below min_id (1000){below}"),
                "! corp: 2 entries rejected for 2 other reasons\n    → List all of them with `roster \
                 domain rejected corp`. [RST-3025]"
                    .to_owned(),
            ]
        );
        assert!(is_well(&check(&report)));
        assert!(domain_table(&report).contains("817"));
    }

    #[test]
    fn status_unverified_kdcs_warn_refused_logins_fail() {
        let mut report = report();
        let message = &config::KDCS_UNVERIFIED;
        change(&mut report, |status| {
            status.login_warning = "KDCs are not verified".to_owned();
            status.login_warning_code = message.code.to_owned();
        });
        let line = format!("! corp: KDCs are not verified\n    → {} [{message}]", message.fix);
        assert_eq!(said(&report), [line]);
        assert!(is_well(&check(&report)));
        change(&mut report, |status| status.login_error = "logins are refused".to_owned());
        let found = check(&report);
        assert!(!is_well(&found) && found[0].text == "corp: logins are refused", "{found:?}");
        let json = as_json(&report, &found);
        assert_eq!(json["domains"][0]["login_error"], "logins are refused");
        assert_eq!(json["domains"][0]["login_warning"], "KDCs are not verified");
    }

    #[test]
    fn status_wrong_clock_or_unwritten_passwords_fail() {
        let mut report = report();
        change(&mut report, |status| {
            status.clock_error = "the clock is 7 h behind the latest known time".to_owned();
        });
        let found = check(&report);
        assert_eq!(found[0].text, "corp: the clock is 7 h behind the latest known time");
        assert!(!is_well(&found));
        assert_eq!(
            as_json(&report, &found)["domains"][0]["clock_error"],
            "the clock is 7 h behind the latest known time"
        );
        change(&mut report, |status| {
            status.clock_error.clear();
            status.credentials_error = "passwords are kept in memory: no space".to_owned();
        });
        let found = check(&report);
        assert_eq!(found[0].text, "corp: passwords are kept in memory: no space");
        assert!(!is_well(&found));
        let json = as_json(&report, &found);
        assert_eq!(
            json["domains"][0]["credentials_error"],
            "passwords are kept in memory: no space"
        );
    }

    #[test]
    fn status_publisher_wait_differs_from_failure() {
        let mut report = report();
        let waits_for = "domain corp can be read";
        report.publisher.as_mut().unwrap().waits_for = waits_for.to_owned();
        let text = "publication is on hold until domain corp can be read";
        assert_eq!(found(&report, &status_table::PUBLICATION_WAITS).text, text);
        assert_eq!(as_json(&report, &[])["snapshot"]["waiting_for"], waits_for);
        report.publisher.as_mut().unwrap().error = "No space left on device".to_owned();
        let text = "the snapshot cannot be published: No space left on device";
        assert_eq!(found(&report, &status_table::PUBLICATION_FAILED).text, text);
    }

    #[test]
    fn status_stopped_role_shows_last_end() {
        let mut report = report();
        let monitor = report.monitor.as_mut().unwrap();
        monitor.roles[2] = SupervisedRole {
            state: "waiting".to_owned(),
            since_unix: NOW - 2,
            last_end: "killed by signal 9".to_owned(),
            restarts: 4,
            ..role("backend:corp", 0)
        };
        let away = problem("daemon", &tools::ROLE_RESTARTING, "backend:corp: not running");
        report.domains[0].1 = Err(away);
        assert_eq!(
            said(&report),
            [
                "✗ backend:corp is waiting for 2 s: killed by signal 9\n    → See its log: \
                 `journalctl -u rosterd`. [RST-3003]",
                "✗ backend:corp: not running\n    → See `roster status`, and try again. [RST-9008]",
            ]
        );
        assert!(domain_table(&report).contains("corp    not there  10,201  10,100"));
    }

    #[test]
    fn status_without_monitor_shows_the_rest() {
        let mut report = report();
        let silent = "monitor: no reply within the timeout";
        report.monitor = Err(problem("daemon", &tools::ROLE_TIMED_OUT, silent));
        let text = as_text(&report, &check(&report), Paint::plain());
        assert!(text.contains("generation 123") && text.contains(&format!("✗ {silent}\n")));
    }

    #[test]
    fn status_json_has_states_and_codes() {
        let mut report = report();
        refuse(&mut report, &[("gid 100 is below min_id (1000)", &directory::ID_BELOW_MIN, 812)]);
        let value = as_json(&report, &check(&report));
        assert_eq!(value["ok"], true);
        assert_eq!(value["snapshot"]["generation"], 123);
        assert_eq!(value["domains"][0]["domain"], "corp");
        let refused = json!({
            "reason": "gid 100 is below min_id (1000)",
            "code": directory::ID_BELOW_MIN.code,
            "entries": 812,
        });
        assert_eq!(value["domains"][0]["refused"][0], refused);
        assert_eq!(value["domains"][0]["reason"], Value::Null);
        assert_eq!(value["roles"][2]["sandbox"], "landlock, seccomp");
        let finding = &value["findings"][0];
        let code = json!(directory::ID_BELOW_MIN.code);
        assert_eq!((&finding["level"], &finding["code"]), (&json!("warning"), &code));
    }

    #[test]
    fn status_stopped_daemon_has_own_exit_status() {
        let folder = tempfile::tempdir().unwrap();
        let mut out = Vec::new();
        assert_eq!(run(folder.path(), true, &mut out).unwrap(), NOT_RUNNING);
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&value["ok"], &value["running"]), (&json!(false), &json!(false)));
        assert_eq!(value["code"], "RST-9001");
    }
}
