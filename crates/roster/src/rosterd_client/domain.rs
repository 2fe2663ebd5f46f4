//! `roster domain`: what is known of each directory, and what may be told to its back-end.

use super::rejected_entries::{all_pages, rejected_by_publisher};
use super::status;
use super::status_report::{self, NEVER_RESUMED, POLLING, POLLS_EVERYTHING, StatusReport};
use super::{BusClient, ago, call_error, run_async, unix_now};
use crate::args::{DomainArgs, DomainCommand, RejectedArgs as Args};
use crate::output::{count, count_with_noun, print_stderr, printable};
use crate::unserved::{by_reason, remedy};
use anyhow::{Context, Result};
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{
    CALL_DEADLINE, DomainStatus, PublishedDomain, REJECTED_PER_REPLY_MAX, RejectedEntry,
};
use serde_json::json;
use std::io::Write;
use std::time::Duration;

/// How long `confirm` waits for the back-end, which looks for each entry once more.
const CONFIRM_WAIT: Duration = Duration::from_secs(300);
/// How long `confirm` waits for a domain to be read again.
const READ_WAIT: Duration = Duration::from_secs(60);
/// How often it asks whether that is done.
const READ_PAUSE: Duration = Duration::from_millis(200);
/// Entries that are named for each reason unless all are asked for.
const NAMES_SHOWN: usize = 3;

/// Runs one of the commands.
pub fn run(args: &DomainArgs, out: &mut dyn Write) -> Result<()> {
    let run_dir = args.command.run_dir();
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
            writeln!(out, "{:#}", json!({"domain": name, "error": error.to_string()}))?;
        }
        return Err(error);
    }
    let status = status_report::backend(bus, name).await;
    let publisher = status_report::publisher(bus).await.ok();
    let counts = publisher.into_iter().flat_map(|publisher| publisher.domains);
    let counts = counts.into_iter().find(|counts| counts.domain == name);
    if json {
        let status = status.map_err(|error| error.to_string());
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
    row(
        "changes by",
        &match &*status.tracking {
            POLLING => format!("{POLLING}, which costs delay: roster.toml(5), DIRECTORY SERVERS"),
            POLLS_EVERYTHING => {
                format!("{POLLS_EVERYTHING}, which costs time: roster.toml(5), DIRECTORY SERVERS")
            }
            NEVER_RESUMED => {
                format!("{NEVER_RESUMED}, which costs time: roster.toml(5), DIRECTORY SERVERS")
            }
            tracking => tracking.to_owned(),
        },
    );
    row("last change", &ago(now, status.last_change_unix));
    row("last refresh", &ago(now, status.last_refresh_unix));
    row("complete", if status.complete { "yes" } else { "no" });
    let entries = |users, groups| {
        format!("{}, {}", count_with_noun(users, "user"), count_with_noun(groups, "group"))
    };
    row("in the cache", &entries(status.users, status.groups));
    row("mixed groups", &status::mixed_groups(status).unwrap_or_default());
    if let Some(counts) = counts.filter(|counts| counts.present) {
        row("served", &entries(counts.users, counts.groups));
        row("waits for", &counts.waits_for);
    }
    row("not taken", counts.map_or("", |counts| &counts.not_taken));
    let refused =
        counts.into_iter().flat_map(|counts| &counts.refused).map(|reason| reason.entries);
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
    writeln!(out, "{name} is read anew; `roster domain show {name}` says when that was done")?;
    Ok(())
}

/// Has the snapshot written again, whether anything changed or not. That the next one has to wait for a domain is
/// the status's to tell.
async fn publish(bus: &BusClient) -> Result<()> {
    match bus.publisher().await?.publish().await {
        Ok(_) | Err(roster_bus::interfaces::BusError::Unavailable(_)) => Ok(()),
        Err(error) => Err(call_error(&RoleName::Publisher, &error)),
    }
}

async fn confirm(bus: &BusClient, name: &str, out: &mut dyn Write) -> Result<()> {
    bus.check_domain(name).await?;
    let role = RoleName::Backend(name.to_owned());
    let (mut gone, mut kept) =
        bus.backend(name).await?.confirm().await.map_err(|error| call_error(&role, &error))?;
    let before = removals_held_by_publisher(bus, name).await?;
    if before > 0 {
        // The back-end began with nothing: only a listing of everything tells which entries are there.
        reread_domain(bus, name).await?;
        let confirmed = bus.publisher().await?.confirm(name).await;
        let confirmed = confirmed.map_err(|error| call_error(&RoleName::Publisher, &error))?;
        gone += confirmed;
        kept += before.saturating_sub(confirmed);
    }
    out.write_all(confirmation_text(name, gone, kept).as_bytes())?;
    Ok(())
}

/// What `confirm` says.
fn confirmation_text(name: &str, gone: u64, kept: u64) -> String {
    if gone + kept == 0 {
        return format!("{name}: nothing was held back\n");
    }
    let removed = count_with_noun(gone, "entry");
    let stay = match kept {
        1 => "1 entry stays, which the directory has".to_owned(),
        kept => format!("{} stay, which the directory has", count_with_noun(kept, "entry")),
    };
    format!("{name}: {removed} removed, {stay}\n")
}

/// Removals of a domain that wait in the publisher.
async fn removals_held_by_publisher(bus: &BusClient, name: &str) -> Result<u64> {
    let domains = status_report::publisher(bus).await?.domains;
    let counts = domains.into_iter().find(|counts| counts.domain == name);
    Ok(counts.map_or(0, |counts| counts.held_removals))
}

/// Has a domain read again, and waits for the end of that.
async fn reread_domain(bus: &BusClient, name: &str) -> Result<()> {
    let role = RoleName::Backend(name.to_owned());
    let backend = bus.backend(name).await?;
    let read = async {
        // The status counts in whole seconds: a reading of this one may have ended before.
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
    match tokio::time::timeout(READ_WAIT, read).await {
        Ok(read) => read,
        Err(_) => anyhow::bail!(
            "{name}: nothing was removed: the directory was not read whole within {} s. See: roster \
             domain show {name}",
            READ_WAIT.as_secs()
        ),
    }
}

async fn rejected(bus: &BusClient, args: &Args, out: &mut dyn Write) -> Result<()> {
    let name = &*args.name;
    bus.check_domain(name).await?;
    let role = RoleName::Backend(name.to_owned());
    let backend = bus.backend(name).await?;
    // What one of them knows is worth showing while the other is away.
    let unreadable = all_pages(async |from| {
        let page = backend.rejected(from, REJECTED_PER_REPLY_MAX).await;
        page.map_err(|error| call_error(&role, &error))
    });
    let unreadable = unreadable.await;
    let refused = rejected_by_publisher(bus, name).await;
    let entries = match (unreadable, refused) {
        (Ok(mut unreadable), Ok(refused)) => {
            unreadable.extend(refused);
            unreadable
        }
        (Ok(entries), Err(error)) | (Err(error), Ok(entries)) => {
            print_stderr(format_args!("roster: this list is not whole: {error:#}"));
            entries
        }
        (Err(error), Err(_)) => return Err(error).context("nobody knows what is rejected"),
    };
    if args.json {
        let entries: Vec<_> = entries
            .iter()
            .map(|RejectedEntry { kind, name, reason, code, .. }| {
                json!({"kind": kind, "name": name, "reason": reason, "code": code})
            })
            .collect();
        writeln!(out, "{:#}", json!(entries))?;
    } else if args.all {
        for RejectedEntry { kind, name, reason, .. } in &entries {
            writeln!(out, "{kind} {}: {}", printable(name), printable(reason))?;
        }
    } else {
        out.write_all(rejected_text(name, &entries).as_bytes())?;
    }
    Ok(())
}

/// Reasons, the commonest first, each with a few of its entries and what to do.
fn rejected_text(domain: &str, entries: &[RejectedEntry]) -> String {
    if entries.is_empty() {
        return format!("{domain}: no entry is rejected\n");
    }
    let all = entries.iter().map(|entry| (&*entry.reason, (&*entry.kind, &*entry.name)));
    let mut text =
        format!("{domain}: {} rejected\n", count_with_noun(entries.len() as u64, "entry"));
    for (reason, entries) in by_reason(all) {
        let number = count_with_noun(entries.len() as u64, "entry");
        text += &format!("\n{number} rejected: {}\n", printable(reason));
        for (kind, name) in entries.iter().take(NAMES_SHOWN) {
            text += &format!("    {kind} {}\n", printable(name));
        }
        if entries.len() > NAMES_SHOWN {
            let more = count((entries.len() - NAMES_SHOWN) as u64);
            text += &format!("    and {more} more: roster domain rejected {domain} --all\n");
        }
        // What may be done about primary groups does nothing for groups.
        let users = entries.iter().any(|(kind, _)| *kind == "user");
        if let Some(remedy) = remedy(reason).filter(|_| users || !reason.contains("gid")) {
            text += &format!("    → {remedy}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_bus::interfaces::RejectionCount;

    fn entry(name: &str, reason: &str) -> RejectedEntry {
        let (kind, name, reason) = ("user".to_owned(), name.to_owned(), reason.to_owned());
        RejectedEntry { kind, name, reason, ..RejectedEntry::default() }
    }

    #[test]
    fn rejected_entries_are_counted_by_reason_and_answered_with_a_remedy() {
        let mut entries = vec![entry("eve\n", "a local user has this name")];
        entries.extend(
            (0..1234).map(|n| entry(&format!("u{n}"), "primary gid 100 is below min_id (1000)")),
        );
        assert_eq!(
            rejected_text("corp", &entries),
            "corp: 1,235 entries rejected\n\n\
             1,234 entries rejected: primary gid 100 is below min_id (1000)\n    \
             user u0\n    user u1\n    user u2\n    \
             and 1,231 more: roster domain rejected corp --all\n    \
             → if users may have the host's own group 100 as their primary group: \
             allowed_local_gids = [100] under [host]; for a group of the directory, lower min_id\n\n\
             1 entry rejected: a local user has this name\n    \
             user eve\\n\n"
        );
        assert_eq!(rejected_text("corp", &[]), "corp: no entry is rejected\n");
    }

    #[test]
    fn pages_are_asked_for_until_one_is_not_full() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let page = async |from: u32| {
            let length = if from == 0 { REJECTED_PER_REPLY_MAX } else { 5 };
            Ok((0..length).map(|n| entry(&format!("{}", from + n), "x")).collect())
        };
        let entries = runtime.block_on(all_pages(page)).unwrap();
        assert_eq!(entries.len() as u32, REJECTED_PER_REPLY_MAX + 5);
        assert_eq!(entries.last().unwrap().name, (REJECTED_PER_REPLY_MAX + 4).to_string());
    }

    #[test]
    fn confirm_says_how_many_go_and_stay() {
        for (gone, kept, said) in [
            (0, 0, "nothing was held back"),
            (1, 0, "1 entry removed, 0 entries stay, which the directory has"),
            (2, 1, "2 entries removed, 1 entry stays, which the directory has"),
            (0, 138, "0 entries removed, 138 entries stay, which the directory has"),
        ] {
            assert_eq!(confirmation_text("corp", gone, kept), format!("corp: {said}\n"));
        }
    }

    #[test]
    fn a_domain_is_shown_with_what_waits_for_the_administrator() {
        let status = DomainStatus {
            domain: "corp".to_owned(),
            provider: "ldap".to_owned(),
            mode: "replicate".to_owned(),
            online: false,
            since_unix: 880,
            server: "ldaps://ldap1.example.com".to_owned(),
            reason: "connection refused".to_owned(),
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
