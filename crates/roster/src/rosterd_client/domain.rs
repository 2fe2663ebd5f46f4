// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster domain`: lists domains, shows the state of one, and sends requests to its backend: refresh, and approval of
//! removals.

use super::rejected_entries::{all_pages, by_reason, rejected_by_publisher};
use super::status;
use super::status_report::{self, StatusReport, no_reply};
use super::{BusClient, ago, call_error, run_async, unix_now};
use crate::args::{DomainArgs, DomainCommand, RejectedArgs as Args};
use crate::output::{count, count_with_noun, print_warning, printable};
use anyhow::Result;
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{
    CALL_DEADLINE, DomainStatus, PublishedDomain, REJECTED_PER_REPLY_MAX, RejectedEntry,
};
use roster_messages::CodedError;
use roster_messages::table::tools;
use roster_request::TrackingMethod;
use serde_json::json;
use std::io::Write;
use std::time::Duration;

/// Timeout of `confirm` in the backend, which searches for each entry again.
const CONFIRM_WAIT: Duration = Duration::from_secs(300);
/// Time limit of `confirm` for a complete read of the domain.
const READ_WAIT: Duration = Duration::from_secs(60);
/// Pause between two checks for its end.
const READ_PAUSE: Duration = Duration::from_millis(200);
/// Entries that are listed for each reason without `--all`.
const NAMES_SHOWN: usize = 3;

/// Runs one of the commands that query the daemon.
pub fn run(args: &DomainArgs, out: &mut dyn Write) -> Result<()> {
    let Some(run_dir) = args.command.run_dir() else { return Ok(()) };
    let wait = match &args.command {
        DomainCommand::ApproveRemovals(_) => CONFIRM_WAIT,
        _ => CALL_DEADLINE,
    };
    run_async(async {
        let bus = BusClient::connect_for(run_dir, wait).await?;
        match &args.command {
            DomainCommand::List(args) => list(&bus, args.json, out).await,
            DomainCommand::Show(args) => show(&bus, &args.name, args.json, out).await,
            DomainCommand::Refresh(args) => refresh(&bus, &args.name, out).await,
            DomainCommand::ApproveRemovals(args) => confirm(&bus, &args.name, out).await,
            DomainCommand::Rejected(args) => rejected(&bus, args, out).await,
            DomainCommand::CompareIds(_) => Ok(()),
        }
    })
}

async fn list(bus: &BusClient, json: bool, out: &mut dyn Write) -> Result<()> {
    let report = StatusReport::collect(bus).await;
    if json {
        writeln!(out, "{:#}", json!(status::domains_json(&report)))?;
    } else {
        out.write_all(status::domain_table(&report).as_bytes())?;
    }
    Ok(())
}

async fn show(bus: &BusClient, name: &str, json: bool, out: &mut dyn Write) -> Result<()> {
    if let Err(error) = bus.check_domain(name).await {
        if json {
            let mut value = status::error_json(&no_reply(&error));
            value["domain"] = json!(name);
            writeln!(out, "{value:#}")?;
        }
        return Err(error);
    }
    let status = status_report::backend(bus, name).await;
    let publisher = status_report::publisher(bus).await.ok();
    let counts = publisher.into_iter().flat_map(|publisher| publisher.domains);
    let counts = counts.into_iter().find(|counts| counts.domain == name);
    if json {
        let status = status.map_err(|error| no_reply(&error));
        writeln!(out, "{:#}", status::domain_json(name, &status, counts.as_ref()))?;
    } else {
        out.write_all(as_text(unix_now(), name, &status?, counts.as_ref()).as_bytes())?;
    }
    Ok(())
}

fn as_text(
    now: u64,
    name: &str,
    status: &DomainStatus,
    counts: Option<&PublishedDomain>,
) -> String {
    let mut text = format!("{name}: {}, {}\n\n", status.provider, status.mode);
    let mut row = |name: &str, value: &str| {
        if !value.is_empty() {
            text += &format!("{name:<16}{}\n", printable(value));
        }
    };
    let state = if status.online { "online" } else { "offline" };
    row("state", &format!("{state} for {}", super::age(now, status.since_unix)));
    row(if status.online { "others failed" } else { "reason" }, &status.reason);
    row(if status.online { "server" } else { "last server" }, &status.server);
    row("site", &status.site);
    row("found by DNS", &status.found_servers.join(" "));
    row("other sites", &status.distant_servers.join(" "));
    let tracking = match TrackingMethod::parse(&status.tracking) {
        Some(TrackingMethod::Polling) => ", with delays: roster.toml(5), DIRECTORY SERVERS",
        Some(TrackingMethod::PollingEverything | TrackingMethod::SyncreplWithoutResume) => {
            ", at higher costs: roster.toml(5), DIRECTORY SERVERS"
        }
        _ => "",
    };
    row("changes by", &format!("{}{tracking}", status.tracking));
    row("last change", &ago(now, status.last_change_unix));
    row("last refresh", &ago(now, status.last_refresh_unix));
    row("complete", if status.complete { "yes" } else { "no" });
    let entries = |users, groups| {
        format!("{}, {}", count_with_noun(users, "user"), count_with_noun(groups, "group"))
    };
    row("in the cache", &entries(status.users, status.groups));
    row("mixed groups", &status::mixed_groups(status).unwrap_or_default());
    row("nested only", &status::nested_groups(status).unwrap_or_default());
    if let Some(counts) = counts.filter(|counts| counts.present) {
        row("served", &entries(counts.users, counts.groups));
        row("waits for", &counts.waits_for);
    }
    let overrides_error = counts.map(|counts| counts.overrides_error.replace('\n', "; "));
    row("overrides", &overrides_error.unwrap_or_default());
    row("update error", counts.map_or("", |counts| &counts.not_taken));
    let refused = counts.into_iter().flat_map(|counts| &counts.refused).map(|one| one.entries);
    match status.rejected + refused.sum::<u64>() {
        0 => row("rejected", "none"),
        number => row("rejected", &format!("{}: roster domain rejected {name}", count(number))),
    }
    let held = status.held_removals + counts.map_or(0, |counts| counts.held_removals);
    if held > 0 {
        let held = count_with_noun(held, "entry");
        row("held", &format!("{held} that may be gone: roster domain approve-removals {name}"));
    }
    row("cache", &status.cache_error);
    row("passwords", &status.credentials_error);
    row("clock", &status.clock_error);
    text
}

async fn refresh(bus: &BusClient, name: &str, out: &mut dyn Write) -> Result<()> {
    bus.check_domain(name).await?;
    let role = RoleName::Backend(name.to_owned());
    bus.backend(name).await?.refresh().await.map_err(|error| call_error(&role, &error))?;
    publish(bus).await?;
    writeln!(out, "full refresh of {name} started; see `roster domain show {name}`")?;
    Ok(())
}

/// Publishes the snapshot again, with or without changes. If publication waits for a domain, the status reports it.
async fn publish(bus: &BusClient) -> Result<()> {
    match bus.publisher().await?.publish().await {
        Ok(_) | Err(roster_bus::interfaces::BusError::Unavailable(_)) => Ok(()),
        Err(error) => Err(call_error(&RoleName::Publisher, &error).into()),
    }
}

async fn confirm(bus: &BusClient, name: &str, out: &mut dyn Write) -> Result<()> {
    bus.check_domain(name).await?;
    let role = RoleName::Backend(name.to_owned());
    let (mut gone, mut kept) =
        bus.backend(name).await?.confirm().await.map_err(|error| call_error(&role, &error))?;
    let before = removals_held_by_publisher(bus, name).await?;
    if before > 0 {
        // The backend started without a cache: only a complete read shows which entries exist.
        reread_domain(bus, name).await?;
        let confirmed = bus.publisher().await?.confirm(name).await;
        let confirmed = confirmed.map_err(|error| call_error(&RoleName::Publisher, &error))?;
        gone += confirmed;
        kept += before.saturating_sub(confirmed);
    }
    out.write_all(confirmation_text(name, gone, kept).as_bytes())?;
    Ok(())
}

/// Formats the result of `confirm`.
fn confirmation_text(name: &str, gone: u64, kept: u64) -> String {
    if gone + kept == 0 {
        return format!("{name}: no removals were on hold\n");
    }
    let removed = count_with_noun(gone, "entry");
    let stay = match kept {
        1 => "1 entry stays because the directory has it".to_owned(),
        kept => {
            format!("{} stay because the directory has them", count_with_noun(kept, "entry"))
        }
    };
    format!("{name}: {removed} removed, {stay}\n")
}

/// Returns the number of held removals of a domain in the publisher.
async fn removals_held_by_publisher(bus: &BusClient, name: &str) -> Result<u64> {
    let domains = status_report::publisher(bus).await?.domains;
    let counts = domains.into_iter().find(|counts| counts.domain == name);
    Ok(counts.map_or(0, |counts| counts.held_removals))
}

/// Refreshes a domain, and waits for the end of the read.
async fn reread_domain(bus: &BusClient, name: &str) -> Result<()> {
    let role = RoleName::Backend(name.to_owned());
    let backend = bus.backend(name).await?;
    let read = async {
        // The status has whole seconds: an earlier read may have ended within this one.
        let asked = unix_now();
        while unix_now() <= asked {
            tokio::time::sleep(READ_PAUSE).await;
        }
        backend.refresh().await.map_err(|error| call_error(&role, &error))?;
        loop {
            let status = backend.status().await.map_err(|error| call_error(&role, &error))?;
            if status.last_refresh_unix > asked {
                return anyhow::Ok(());
            }
            tokio::time::sleep(READ_PAUSE).await;
        }
    };
    wait_for_read(name, READ_WAIT, read).await
}

async fn wait_for_read(
    name: &str,
    wait: Duration,
    read: impl Future<Output = Result<()>>,
) -> Result<()> {
    match tokio::time::timeout(wait, read).await {
        Ok(read) => read,
        Err(_) => {
            let text = format!(
                "{name}: no entry was removed: the directory was not read completely within {} s",
                wait.as_secs()
            );
            let fix = format!("See the state with `roster domain show {name}`, and try again.");
            Err(CodedError::new(&tools::DOMAIN_NOT_READ, text).fix(fix).into())
        }
    }
}

async fn rejected(bus: &BusClient, args: &Args, out: &mut dyn Write) -> Result<()> {
    let name = &*args.name;
    bus.check_domain(name).await?;
    let role = RoleName::Backend(name.to_owned());
    let backend = bus.backend(name).await?;
    // Each list is useful without the second one.
    let unreadable = all_pages(async |from| {
        let page = backend.rejected(from, REJECTED_PER_REPLY_MAX).await;
        page.map_err(|error| call_error(&role, &error).into())
    });
    let unreadable = unreadable.await;
    let refused = rejected_by_publisher(bus, name).await;
    let entries = match (unreadable, refused) {
        (Ok(mut unreadable), Ok(refused)) => {
            unreadable.extend(refused);
            unreadable
        }
        (Ok(entries), Err(error)) | (Err(error), Ok(entries)) => {
            let what = format!("{name}: the list of rejected entries is incomplete");
            print_warning(
                &CodedError::new(&tools::REJECTIONS_INCOMPLETE, what)
                    .caused_by(no_reply(&error).text),
            );
            entries
        }
        (Err(error), Err(_)) => {
            let what = format!("{name}: the rejected entries are unknown");
            return Err(CodedError::new(&tools::REJECTIONS_UNKNOWN, what)
                .caused_by(no_reply(&error).text)
                .into());
        }
    };
    if args.json {
        let entries: Vec<_> = entries
            .iter()
            .map(|RejectedEntry { kind, name, reason, code, .. }| {
                let code = Some(code).filter(|code| !code.is_empty());
                json!({"kind": kind, "name": name, "reason": reason, "code": code})
            })
            .collect();
        writeln!(out, "{:#}", json!(entries))?;
    } else if args.all {
        for RejectedEntry { kind, name, reason, code, .. } in &entries {
            let code = if code.is_empty() { String::new() } else { format!(" [{code}]") };
            writeln!(out, "{kind} {}: {}{code}", printable(name), printable(reason))?;
        }
    } else {
        out.write_all(rejected_text(name, &entries).as_bytes())?;
    }
    Ok(())
}

/// Formats the reasons, most frequent first, each with some of its entries and the fix.
fn rejected_text(domain: &str, entries: &[RejectedEntry]) -> String {
    if entries.is_empty() {
        return format!("{domain}: no entry is rejected\n");
    }
    let mut text =
        format!("{domain}: {} rejected\n", count_with_noun(entries.len() as u64, "entry"));
    for entries in by_reason(entries) {
        let number = count_with_noun(entries.len() as u64, "entry");
        let RejectedEntry { reason, code, fix, .. } = entries[0];
        text += &format!("\n{number} rejected: {}\n", printable(reason));
        for RejectedEntry { kind, name, .. } in entries.iter().take(NAMES_SHOWN) {
            text += &format!("    {kind} {}\n", printable(name));
        }
        if entries.len() > NAMES_SHOWN {
            let more = count((entries.len() - NAMES_SHOWN) as u64);
            text += &format!("    and {more} more: roster domain rejected {domain} --all\n");
        }
        if let Some(message) = roster_messages::find(code) {
            let fix = if fix.is_empty() { message.fix } else { fix };
            text += &format!("    → {fix} [{message}]\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_bus::interfaces::RejectionCount;
    use roster_messages::table::directory;

    fn entry(name: &str, reason: &str, code: &str) -> RejectedEntry {
        let [kind, name, reason, code] = ["user", name, reason, code].map(str::to_owned);
        RejectedEntry { kind, name, reason, code, fix: String::new() }
    }

    #[test]
    fn domain_rejected_counts_reasons_with_fix() {
        let (below, local) = (&directory::ID_BELOW_MIN, &directory::LOCAL_USER_NAME);
        let mut entries = vec![entry("eve\n", "a local user has this name", local.code)];
        let reason = "gid 100 is below min_id (1000)";
        entries.extend((0..1234).map(|n| entry(&format!("u{n}"), reason, below.code)));
        entries[1].fix = "Allow gid 100.".to_owned();
        assert_eq!(
            rejected_text("corp", &entries),
            format!(
                "corp: 1,235 entries rejected\n\n\
             1,234 entries rejected: gid 100 is below min_id (1000)\n    \
             user u0\n    user u1\n    user u2\n    \
             and 1,231 more: roster domain rejected corp --all\n    \
             → Allow gid 100. [{below}]\n\n\
             1 entry rejected: a local user has this name\n    \
             user eve\\n\n    \
             → {} [{local}]\n",
                local.fix
            )
        );
        assert_eq!(rejected_text("corp", &[]), "corp: no entry is rejected\n");
    }

    #[test]
    fn domain_rejected_fetches_all_pages() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let page = async |from: u32| {
            let length = if from == 0 { REJECTED_PER_REPLY_MAX } else { 5 };
            Ok((0..length).map(|n| entry(&format!("{}", from + n), "x", "")).collect())
        };
        let entries = runtime.block_on(all_pages(page)).unwrap();
        assert_eq!(entries.len() as u32, REJECTED_PER_REPLY_MAX + 5);
        assert_eq!(entries.last().unwrap().name, (REJECTED_PER_REPLY_MAX + 4).to_string());
    }

    #[test]
    fn domain_read_without_end_has_code() {
        let read = wait_for_read("corp", Duration::ZERO, std::future::pending());
        let error = run_async(read).unwrap_err();
        assert!(error.to_string().ends_with("[RST-9014]"), "{error}");
    }

    #[test]
    fn domain_approval_counts_removed_and_kept() {
        for (gone, kept, said) in [
            (0, 0, "no removals were on hold"),
            (1, 0, "1 entry removed, 0 entries stay because the directory has them"),
            (2, 1, "2 entries removed, 1 entry stays because the directory has it"),
            (0, 138, "0 entries removed, 138 entries stay because the directory has them"),
        ] {
            assert_eq!(confirmation_text("corp", gone, kept), format!("corp: {said}\n"));
        }
    }

    #[test]
    fn domain_show_lists_held_removals() {
        let status = DomainStatus {
            domain: "corp".to_owned(),
            provider: "ldap".to_owned(),
            mode: "replicate".to_owned(),
            online: false,
            since_unix: 880,
            server: "ldaps://ldap1.example.com".to_owned(),
            reason: "connection refused".to_owned(),
            site: "Berlin".to_owned(),
            found_servers: ["ldap://dc1.lab.test:389", "ldap://dc2.lab.test:389"]
                .map(str::to_owned)
                .to_vec(),
            distant_servers: vec!["ldap://dc3.lab.test:389".to_owned()],
            tracking: "syncrepl".to_owned(),
            complete: true,
            users: 10_201,
            groups: 10_100,
            mixed_groups: 2,
            rejected: 2,
            last_change_unix: 500,
            held_removals: 5000,
            ..DomainStatus::default()
        };
        let counts = PublishedDomain {
            domain: "corp".to_owned(),
            present: true,
            users: 389,
            groups: 10_100,
            refused: vec![RejectionCount { entries: 9812, ..RejectionCount::default() }],
            ..PublishedDomain::default()
        };
        assert_eq!(
            as_text(1000, "corp", &status, Some(&counts)),
            "corp: ldap, replicate\n\n\
             state           offline for 2 min\n\
             reason          connection refused\n\
             last server     ldaps://ldap1.example.com\n\
             site            Berlin\n\
             found by DNS    ldap://dc1.lab.test:389 ldap://dc2.lab.test:389\n\
             other sites     ldap://dc3.lab.test:389\n\
             changes by      syncrepl\n\
             last change     8 min ago\n\
             last refresh    never\n\
             complete        yes\n\
             in the cache    10,201 users, 10,100 groups\n\
             mixed groups    2 groups name members both by name and by DN\n\
             served          389 users, 10,100 groups\n\
             rejected        9,814: roster domain rejected corp\n\
             held            5,000 entries that may be gone: roster domain approve-removals corp\n"
        );
    }
}
