//! What is wrong with the daemon, by its report. Pure: [`check`] asks no role.
//!
//! Each check is a function, and the tables have them in the order of their findings.

use super::status_report::{
    NEVER_RESUMED, POLLING, POLLS_EVERYTHING, StatusReport, domain_counts, held_removals,
    or_if_empty, rejected_count,
};
use super::{age, ago};
use crate::finding::{Finding, FindingLevel, problem, warning};
use crate::output::count_with_noun;
use crate::unserved::{by_reason, list_names, remedy};
use roster_bus::interfaces::{
    DomainStatus, MonitorStatus, PublishedDomain, PublisherStatus, RejectedEntry, RejectionCount,
    SupervisedRole,
};
use roster_messages::{Message, table::directory};

/// Faults of TLS that a change of the configuration can fix.
const TLS_FAULTS: [&Message; 5] = [
    &directory::TLS_FAILED,
    &directory::TLS_NOT_SPOKEN,
    &directory::TLS_CERTIFICATE_NAME,
    &directory::TLS_AUTHORITY_UNKNOWN,
    &directory::TLS_AUTHORITY_AS_SERVER,
];

/// The name of these checks in JSON.
const CHECK: &str = "daemon";

/// Reasons of refusal that are shown of a domain; `roster domain rejected` has all.
const REASONS_SHOWN: usize = 3;
/// A domain is not well when more than one in so many of its entries is rejected for one reason.
const REJECTED_SHARE: u64 = 10;

const CHECK_CONFIG: &str = "`roster check-config` says how to fix it";

const SEE_LOG: &str = "see its log: journalctl -u rosterd";

/// How the monitor tells of a process that ended as it was told to.
const EXITED_WITH_0: &str = "ended with status 0";

/// The checks of a publisher that answers.
const PUBLISHER_CHECKS: [fn(&PublisherStatus) -> Option<Finding>; 6] = [
    check_publication,
    check_foreign_snapshot,
    check_disk,
    check_memory_copy,
    check_lookups,
    check_local_accounts,
];

/// The checks of a domain, but for entries that the publisher rejects.
const DOMAIN_CHECKS: [fn(&ExaminedDomain<'_>) -> Option<Finding>; 17] = [
    check_backend,
    check_directory,
    check_credentials_file,
    check_clock,
    check_failed_servers,
    check_cache,
    check_login_error,
    check_login_warning,
    check_polling,
    check_full_polling,
    check_resumption,
    check_first_read,
    check_held_removals,
    check_unreadable_entries,
    check_emptiness,
    check_updates,
    check_earlier_domain,
];

/// A domain as its backend and the publisher see it.
struct ExaminedDomain<'r> {
    now: u64,
    name: &'r str,
    status: Result<&'r DomainStatus, &'r String>,
    counts: Option<&'r PublishedDomain>,
}

/// What is worth a word, worst first.
pub fn check(report: &StatusReport) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &report.monitor {
        Ok(monitor) => {
            findings.extend(check_configuration(report.now, monitor));
            findings.extend(monitor.roles.iter().filter_map(|role| check_role(report.now, role)));
        }
        Err(why) => findings.push(problem(CHECK, why, SEE_LOG)),
    }
    match &report.publisher {
        Ok(publisher) => {
            findings.extend(PUBLISHER_CHECKS.iter().filter_map(|check| check(publisher)));
        }
        Err(why) => findings.push(problem(CHECK, why, SEE_LOG)),
    }
    for (name, status) in &report.domains {
        let counts = domain_counts(report, name);
        let domain = ExaminedDomain { now: report.now, name, status: status.as_ref(), counts };
        findings.extend(DOMAIN_CHECKS.iter().filter_map(|check| check(&domain)));
        findings.extend(check_rejected_entries(&domain));
    }
    for (name, entries) in &report.rejected {
        name_rejected(name, entries, &mut findings);
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    findings
}

/// Whether no finding is a problem.
pub fn is_well(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level < FindingLevel::Problem)
}

fn check_configuration(now: u64, monitor: &MonitorStatus) -> Option<Finding> {
    let MonitorStatus { config, config_error, .. } = monitor;
    (!config_error.is_empty()).then(|| {
        let read = ago(now, monitor.config_read_unix);
        let mistakes = config_error.trim_end().replace('\n', "\n    ");
        problem(
            CHECK,
            format!(
                "{config} is not in force as it is now; what was read {read} goes on:\n    {mistakes}"
            ),
            format!(
                "correct it, `roster check-config {config}`, then `systemctl reload rosterd`"
            ),
        )
    })
}

fn check_role(now: u64, role: &SupervisedRole) -> Option<Finding> {
    let SupervisedRole { role: name, state, since_unix, last_end, restarts, .. } = role;
    let ended = if last_end.is_empty() { String::new() } else { format!(": {last_end}") };
    match &**state {
        "running" | "idle" => {
            // Once is a restart; time and again is trouble, though it runs just now. One that ended well was
            // told to: it reads its settings as it starts.
            let often = *restarts >= 3
                && now.saturating_sub(*since_unix) < 300
                && last_end != EXITED_WITH_0;
            often.then(|| {
                let times = count_with_noun(u64::from(*restarts), "time");
                let message = format!("{name} was started again {times}, the last end{ended}");
                warning(CHECK, message, SEE_LOG)
            })
        }
        state => {
            let message = format!("{name} is {state} for {}{ended}", age(now, *since_unix));
            Some(problem(CHECK, message, SEE_LOG))
        }
    }
}

fn check_publication(publisher: &PublisherStatus) -> Option<Finding> {
    if !publisher.error.is_empty() {
        return Some(problem(
            CHECK,
            format!("the snapshot could not be published: {}", publisher.error),
            "what was published before is served until it can",
        ));
    }
    if !publisher.waits_for.is_empty() {
        return Some(problem(
            CHECK,
            format!("the next snapshot is made when {}", publisher.waits_for),
            "what was published before is served until then",
        ));
    }
    (publisher.generation == 0).then(|| {
        problem(
            CHECK,
            "nothing was published yet",
            "the first snapshot comes as soon as one domain was read whole or can be asked",
        )
    })
}

fn check_foreign_snapshot(publisher: &PublisherStatus) -> Option<Finding> {
    (!publisher.foreign.is_empty()).then(|| {
        problem(
            CHECK,
            format!("{} is not rosterd's: {}", publisher.snapshot, publisher.foreign),
            "programs get its users until rosterd replaces it, as soon as it knows a domain. Find what wrote it: a \
             restore, or a job with `roster compile`",
        )
    })
}

fn check_disk(publisher: &PublisherStatus) -> Option<Finding> {
    let PublisherStatus { snapshot, disk_error, .. } = publisher;
    (!disk_error.is_empty()).then(|| {
        problem(
            CHECK,
            format!("{snapshot} cannot be read from the disk: {disk_error}"),
            "the publisher writes a new file, on other blocks. Check the disk",
        )
    })
}

fn check_memory_copy(publisher: &PublisherStatus) -> Option<Finding> {
    (!publisher.copy_error.is_empty()).then(|| {
        warning(
            CHECK,
            format!("the copy of the snapshot in memory is missing: {}", publisher.copy_error),
            "each program reads the whole file when it opens it. /run must be a tmpfs with room for two more snapshots",
        )
    })
}

fn check_lookups(publisher: &PublisherStatus) -> Option<Finding> {
    let PublisherStatus { failed_lookups, failed_lookup, .. } = publisher;
    (*failed_lookups > 0).then(|| {
        let lookups = count_with_noun(*failed_lookups, "lookup");
        problem(
            CHECK,
            format!(
                "{lookups} of programs failed in the last minute, the last one: {failed_lookup}"
            ),
            "programs get an error for users and groups that are not in the snapshot: see to the directory",
        )
    })
}

fn check_local_accounts(publisher: &PublisherStatus) -> Option<Finding> {
    (!publisher.locals_error.is_empty()).then(|| {
        problem(
            CHECK,
            format!("the host's own accounts cannot be read: {}", publisher.locals_error),
            "accounts that were added since may be a directory's as well: see to the file, or to \
             [host] passwd and group in roster.toml",
        )
    })
}

fn check_backend(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    domain.status.err().map(|why| problem(CHECK, why, SEE_LOG))
}

fn check_directory(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let (name, status) = (domain.name, domain.status.ok()?);
    (!status.online).then(|| {
        let is_served = status.complete || status.users + status.groups > 0;
        let kept = if is_served { "; what is known is served" } else { "" };
        let since = since_text(domain.now, status.since_unix);
        let reason = or_if_empty(&status.reason, "no server has answered yet");
        problem(
            CHECK,
            format!("{name} is offline {since}: {reason}{kept}"),
            offline_advice(name, &status.reason_code),
        )
    })
}

fn check_credentials_file(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let error = &domain.status.ok()?.credentials_error;
    (!error.is_empty()).then(|| {
        problem(
            CHECK,
            format!("{}: {error}", domain.name),
            "free space, or fix the disk or the file's owner: the backend opens the file again within 30 s",
        )
    })
}

fn check_clock(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let error = &domain.status.ok()?.clock_error;
    (!error.is_empty()).then(|| {
        problem(
            CHECK,
            format!("{}: {error}", domain.name),
            "set the clock, if it is wrong: the backend believes it as soon as the directory answers",
        )
    })
}

fn check_failed_servers(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let status = domain.status.ok()?;
    (status.online && !status.reason.is_empty()).then(|| {
        let DomainStatus { server, reason, .. } = status;
        warning(
            CHECK,
            format!("{} is served by {server}, after others failed: {reason}", domain.name),
            "the first that is good again is gone back to by itself",
        )
    })
}

fn check_cache(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let error = &domain.status.ok()?.cache_error;
    (!error.is_empty()).then(|| {
        let advice = "what was published goes on being served";
        warning(CHECK, format!("{}: {error}", domain.name), advice)
    })
}

fn check_login_error(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let error = &domain.status.ok()?.login_error;
    (!error.is_empty()).then(|| problem(CHECK, format!("{}: {error}", domain.name), CHECK_CONFIG))
}

fn check_login_warning(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let text = &domain.status.ok()?.login_warning;
    (!text.is_empty()).then(|| warning(CHECK, format!("{}: {text}", domain.name), CHECK_CONFIG))
}

fn check_polling(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    [POLLING, POLLS_EVERYTHING].contains(&&*domain.status.ok()?.tracking).then(|| {
        warning(
            CHECK,
            format!(
                "{}: the server does not tell what changes, so it is asked: changes are seen late, and who is \
                 gone later still",
                domain.name
            ),
            "what to switch on at the server: roster.toml(5), DIRECTORY SERVERS",
        )
    })
}

fn check_full_polling(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    (domain.status.ok()?.tracking == POLLS_EVERYTHING).then(|| {
        warning(
            CHECK,
            format!(
                "{}: the server does not show when users or groups were changed, so everything is read anew at \
                 each poll",
                domain.name
            ),
            "let the bind DN read modifyTimestamp, or entryUSN, of all entries",
        )
    })
}

fn check_resumption(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let name = domain.name;
    (domain.status.ok()?.tracking == NEVER_RESUMED).then(|| {
        warning(
            CHECK,
            format!(
                "{name}: the server does not show when entries were changed, so everything is read anew at each \
                 connection"
            ),
            format!(
                "let the bind DN read entryCSN, with 389 Directory Server modifyTimestamp, then: \
                 roster domain refresh {name}"
            ),
        )
    })
}

fn check_first_read(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let status = domain.status.ok()?;
    (status.online && !status.complete && status.mode == "replicate").then(|| {
        warning(
            CHECK,
            format!("{} is being read for the first time", domain.name),
            "it is served as soon as it is known whole",
        )
    })
}

fn check_held_removals(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let (name, held) = (domain.name, held_removals(domain.status.ok(), domain.counts));
    (held > 0).then(|| {
        let entries = count_with_noun(held, "entry");
        problem(
            CHECK,
            format!(
                "{name}: {entries} that the directory does not show, shows unreadable or names as deleted are \
                 kept: too many to go without a confirmation"
            ),
            format!(
                "if they are meant to go: roster domain approve-removals {name}; if not, fix the directory or the \
                 domain's configuration: entries that are there again stay"
            ),
        )
    })
}

fn check_unreadable_entries(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let (name, unreadable) = (domain.name, domain.unreadable());
    (unreadable > 0).then(|| {
        let entries = count_with_noun(unreadable, "entry");
        domain.rejection(
            unreadable,
            format!("{name}: {entries} rejected: not readable as users or groups"),
            format!("which, and why: roster domain rejected {name}"),
        )
    })
}

/// What is most likely a mistake in the configuration though the directory answers: nobody is found, or
/// nobody is in any group.
fn check_emptiness(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let (name, status, counts) = (domain.name, domain.status.ok()?, domain.counts?);
    if !status.online || !status.complete {
        return None;
    }
    if status.users + status.rejected == 0 {
        return Some(warning(
            CHECK,
            format!("{name} is read whole and has no users"),
            "if it should: see base, user_base and user_filter with roster check-config --explain",
        ));
    }
    (counts.groups > 0 && counts.listed == 0).then(|| {
        let groups = count_with_noun(counts.groups, "group");
        warning(
            CHECK,
            format!("{name}: nobody is a member of any of its {groups}"),
            "if the groups have members in the directory: member_attributes may lack the attribute that \
             names them, or the bind DN may not read it",
        )
    })
}

fn check_updates(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let why = &domain.counts?.not_taken;
    (!why.is_empty()).then(|| {
        problem(CHECK, format!("{}: what changes is not taken: {why}", domain.name), SEE_LOG)
    })
}

fn check_earlier_domain(domain: &ExaminedDomain<'_>) -> Option<Finding> {
    let first = &domain.counts?.waits_for;
    (!first.is_empty()).then(|| {
        problem(
            CHECK,
            format!("{} is not served: {first}, which goes before it, was never read", domain.name),
            format!(
                "it is served as soon as {first} was read once, or is taken out of [host] domains"
            ),
        )
    })
}

/// Entries that the publisher rejects, by reason.
fn check_rejected_entries(domain: &ExaminedDomain<'_>) -> Vec<Finding> {
    let (name, Some(counts)) = (domain.name, domain.counts) else { return Vec::new() };
    let mut findings = Vec::new();
    for RejectionCount { reason, entries: number, .. } in counts.refused.iter().take(REASONS_SHOWN)
    {
        let advice =
            remedy(reason).unwrap_or_else(|| format!("which ones: roster domain rejected {name}"));
        let entries = count_with_noun(*number, "entry");
        let message = format!("{name}: {entries} rejected: {reason}");
        findings.push(domain.rejection(*number, message, advice));
    }
    let others = counts.refused.get(REASONS_SHOWN..).unwrap_or_default();
    if !others.is_empty() {
        let entries = count_with_noun(others.iter().map(|reason| reason.entries).sum(), "entry");
        let reasons = count_with_noun(others.len() as u64, "other reason");
        findings.push(warning(
            CHECK,
            format!("{name}: {entries} rejected for {reasons}"),
            format!("all of them: roster domain rejected {name}"),
        ));
    }
    findings
}

impl ExaminedDomain<'_> {
    /// Entries that the backend cannot read.
    fn unreadable(&self) -> u64 {
        self.status.map_or(0, |status| status.rejected)
    }

    /// A problem where so many are a large share of the domain's entries; else a warning.
    fn rejection(&self, rejected: u64, message: String, advice: String) -> Finding {
        let served = self.counts.map_or(0, |counts| counts.users + counts.groups);
        let all = served + rejected_count(self.counts) + self.unreadable();
        match rejected.saturating_mul(REJECTED_SHARE) > all {
            true => problem(CHECK, message, advice),
            false => warning(CHECK, message, advice),
        }
    }
}

/// Adds the rejected entries of a domain that a key of the configuration allows: to the finding that counts them, or
/// as a finding of their own where that one counts several reasons together.
fn name_rejected(domain: &str, entries: &[RejectedEntry], findings: &mut Vec<Finding>) {
    let all = entries.iter().map(|entry| (&*entry.reason, (&*entry.kind, &*entry.name)));
    for (reason, entries) in by_reason(all) {
        let Some(remedy) = remedy(reason) else { continue };
        let names = list_names(&entries, &format!("roster domain rejected {domain} --all"));
        let (begin, end) = (format!("{domain}: "), format!(" rejected: {reason}"));
        let counted = findings
            .iter_mut()
            .find(|finding| finding.message.starts_with(&begin) && finding.message.ends_with(&end));
        match counted {
            Some(finding) => finding.message += &format!(": {names}"),
            None => findings.push(Finding {
                level: FindingLevel::Warning,
                check: "daemon",
                message: format!("{domain}: rejected: {reason}: {names}"),
                advice: Some(remedy),
            }),
        }
    }
}

/// How long a domain is online or offline.
fn since_text(now: u64, unix: u64) -> String {
    match unix {
        0 => "since the start".to_owned(),
        unix => format!("for {}", age(now, unix)),
    }
}

/// What to do about a directory that does not answer: of what is read with the configuration only,
/// another try finds nothing new.
fn offline_advice(name: &str, reason_code: &str) -> String {
    let is = |messages: &[&Message]| messages.iter().any(|message| message.code == reason_code);
    let look_at = match reason_code {
        _ if is(&[&directory::BIND_FAILED]) => "bind_dn and the file of bind_password_file",
        _ if is(&TLS_FAULTS) => "tls_ca and the names in uris",
        _ => {
            return format!("it is tried again by itself; at once: roster domain refresh {name}");
        }
    };
    format!(
        "look at {look_at}: what is changed there counts after `systemctl reload rosterd`; what is \
         changed at the server is tried by itself, at once: roster domain refresh {name}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::status_fixture::{NOW, change, refuse, report, said};
    use super::*;

    #[test]
    fn local_accounts_that_cannot_be_read_are_a_problem() {
        let mut report = report();
        if let Ok(publisher) = &mut report.publisher {
            publisher.locals_error = "cannot read /etc/passwd: Permission denied".to_owned();
        }
        assert!(!is_well(&check(&report)));
        let said = said(&report).concat();
        assert!(said.contains("own accounts cannot be read: cannot read /etc/passwd"), "{said}");
    }

    #[test]
    fn doctor_rejected_entries_are_named() {
        let mut report = report();
        let gid = "primary gid 100 is below min_id (1000)";
        refuse(&mut report, &[(gid, 2), ("uids below min_id (1000)", 2)]);
        let entry = |name: &str, reason: &str| RejectedEntry {
            kind: "user".to_owned(),
            name: name.to_owned(),
            reason: reason.to_owned(),
            ..RejectedEntry::default()
        };
        let uid = "uid 7 is below min_id (1000)";
        let local = "a local user has this name";
        let all = [("al", gid), ("bo", gid), ("cy", uid), ("di", local)];
        let all = all.map(|(name, reason)| entry(name, reason));
        report.rejected.push(("corp".to_owned(), all.into()));
        assert_eq!(
            said(&report),
            [
                "! corp: 2 entries rejected: primary gid 100 is below min_id (1000): user al, user bo\n    \
                 → if users may have the host's own group 100 as their primary group: \
                 allowed_local_gids = [100] under [host]; for a group of the directory, lower min_id",
                "! corp: 2 entries rejected: uids below min_id (1000)\n    → if such entries are to \
                 be served, lower min_id",
                "! corp: rejected: uid 7 is below min_id (1000): user cy\n    → if such users are to \
                 be served, lower min_id",
            ]
        );
    }

    #[test]
    fn status_tenth_rejected_for_one_reason_fails() {
        // 20,301 are served.
        for (number, is_well_then) in [(2_255, true), (2_256, false)] {
            let mut rejected = report();
            refuse(&mut rejected, &[("primary gid 100 belongs to a local group", number)]);
            assert_eq!(is_well(&check(&rejected)), is_well_then, "{number}");
            assert!(said(&rejected).concat().contains("allowed_local_gids = [100] under [host]"));
            let mut unreadable = report();
            change(&mut unreadable, |status| status.rejected = number);
            assert_eq!(is_well(&check(&unreadable)), is_well_then, "{number}");
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
        assert!(!is_well(&check(&report)));
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
        assert!(is_well(&check(&report)));
    }

    #[test]
    fn what_another_try_does_not_mend_is_said_to_need_a_reload() {
        for (message, advice) in [
            (
                &directory::BIND_FAILED,
                "look at bind_dn and the file of bind_password_file: what is changed there counts \
                 after `systemctl reload rosterd`",
            ),
            (&directory::TLS_AUTHORITY_UNKNOWN, "look at tls_ca and the names in uris: "),
            (&directory::CONNECT_FAILED, "it is tried again by itself"),
        ] {
            let said = offline_advice("corp", message.code);
            assert!(said.starts_with(advice) && said.ends_with("domain refresh corp"), "{said}");
        }
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
    }

    #[test]
    fn held_removals_wait_for_a_word() {
        let mut report = report();
        change(&mut report, |status| status.held_removals = 6000);
        let said = said(&report);
        assert!(said[0].starts_with("✗ corp: 6,000 entries that the directory does not show"));
        assert!(said[0].contains("roster domain approve-removals corp"));
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
}
