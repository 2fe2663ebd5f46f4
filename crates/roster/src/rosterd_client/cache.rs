// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster cache`: shows the entries of one name in each domain, expires cached data, and lists or removes cached
//! credentials. The backends and the publisher do the work.

use super::rejected_entries::all_pages;
use super::status_report::no_reply;
use super::{BusClient, age, ago, call_error, join_errors, run_async, unix_now};
use crate::args::{
    CacheArgs, CacheCommand, EntryMap, ExpireArgs, ListCredentialsArgs, ShowEntryArgs,
};
use crate::output::{count_with_noun, print_error, print_warning, printable};
use anyhow::Result;
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{
    CredentialInfo, EntryDetails, REJECTED_PER_REPLY_MAX, RejectedEntry, lookup_number,
};
use roster_messages::CodedError;
use roster_messages::table::tools;
use roster_request::LookupKind;
use serde_json::{Value, json};
use std::io::Write;

/// Groups or members in the text output. `--json` lists all.
const RELATED_SHOWN: usize = 20;

/// Runs one of the commands. Returns whether the entries exist.
pub fn run(args: &CacheArgs, out: &mut dyn Write) -> Result<bool> {
    match &args.command {
        CacheCommand::Show(args) => run_async(show(args, out)),
        CacheCommand::Expire(args) if args.credentials => {
            run_async(forget(args, out)).map(|()| true)
        }
        CacheCommand::Expire(args) => run_async(expire(args, out)),
        CacheCommand::Credentials(args) => run_async(credentials(args, out)).map(|()| true),
    }
}

async fn show(args: &ShowEntryArgs, out: &mut dyn Write) -> Result<bool> {
    let bus = BusClient::connect(&args.bus.run_dir).await?;
    let kind = kind(args.map);
    let found = bus.publisher().await?.show(lookup_number(kind), args.name.as_bytes()).await;
    let found = found.map_err(|error| call_error(&RoleName::Publisher, &error))?;
    let unreadable = unreadable_entries(&bus, &args.name).await?;
    if args.json {
        let found = found.iter().map(|entry| as_json(args.map, entry));
        let unreadable = unreadable.iter().map(|(domain, entry)| unreadable_json(domain, entry));
        let all: Vec<Value> = found.chain(unreadable).collect();
        writeln!(out, "{:#}", json!(all))?;
    } else {
        for entry in &found {
            out.write_all(as_text(args.map, entry).as_bytes())?;
        }
        for (domain, entry) in &unreadable {
            out.write_all(unreadable_text(domain, entry).as_bytes())?;
        }
    }
    let exists = !found.is_empty() || !unreadable.is_empty();
    if !exists {
        print_error(&no_such_entry(args.map, &args.name));
    }
    Ok(exists)
}

fn no_such_entry(map: EntryMap, name: &str) -> CodedError {
    CodedError::new(&tools::NO_SUCH_ENTRY, format!("no domain has a {map} named {name:?}"))
}

/// Returns the directory entries of that name that the backends cannot parse, with their domains. A backend that
/// does not reply adds no entries: the publisher's entries are useful without them.
async fn unreadable_entries(bus: &BusClient, name: &str) -> Result<Vec<(String, RejectedEntry)>> {
    let mut found = Vec::new();
    for domain in bus.domains().await? {
        let role = RoleName::Backend(domain.clone());
        let backend = bus.backend(&domain).await?;
        let entries = all_pages(async |from| {
            let page = backend.rejected(from, REJECTED_PER_REPLY_MAX).await;
            page.map_err(|error| call_error(&role, &error).into())
        });
        match entries.await {
            Ok(entries) => {
                let named = entries.into_iter().filter(|entry| is_named(&entry.name, name));
                found.extend(named.map(|entry| (domain.clone(), entry)));
            }
            Err(error) => {
                let what = format!("{domain}: the list of rejected entries is incomplete");
                let warning = CodedError::new(&tools::REJECTIONS_INCOMPLETE, what);
                print_warning(&warning.caused_by(no_reply(&error).text));
            }
        }
    }
    Ok(found)
}

/// Whether the first component of a DN has that value. Case does not matter, as in most directories.
fn is_named(dn: &str, name: &str) -> bool {
    let mut values = vec![Vec::new()];
    let mut rest = dn.as_bytes();
    let mut is_value = false;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match byte {
            b',' => break,
            b'+' => {
                values.push(Vec::new());
                is_value = false;
            }
            b'=' if !is_value => is_value = true,
            _ if !is_value => {}
            byte => {
                let (byte, behind) =
                    if *byte == b'\\' { unescaped(rest) } else { (Some(*byte), rest) };
                rest = behind;
                values.last_mut().into_iter().for_each(|value| value.extend(byte));
            }
        }
    }
    let is_it = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(name.trim().as_bytes());
    values.iter().any(|value| is_it(value))
}

/// Returns the byte of an escape, and the rest: two hexadecimal digits, or the character itself.
fn unescaped(rest: &[u8]) -> (Option<u8>, &[u8]) {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if let [high, low, behind @ ..] = rest
        && let (Some(high), Some(low)) = (digit(*high), digit(*low))
    {
        return (Some(high << 4 | low), behind);
    }
    (rest.first().copied(), rest.get(1..).unwrap_or_default())
}

fn unreadable_text(domain: &str, entry: &RejectedEntry) -> String {
    let RejectedEntry { kind, name, reason, code, .. } = entry;
    let code = if code.is_empty() { String::new() } else { format!(" [{code}]") };
    format!("{kind} {} of {domain}: not served: {}{code}\n", printable(name), printable(reason))
}

fn unreadable_json(domain: &str, entry: &RejectedEntry) -> Value {
    json!({
        "domain": domain,
        "name": entry.name,
        "kind": entry.kind,
        "refused": entry.reason,
        "code": Some(&entry.code).filter(|code| !code.is_empty()),
    })
}

fn kind(map: EntryMap) -> LookupKind {
    match map {
        EntryMap::User => LookupKind::UserByName,
        EntryMap::Group => LookupKind::GroupByName,
    }
}

fn as_text(map: EntryMap, entry: &EntryDetails) -> String {
    let mut text = format!("{map} {} of {}: ", printable(&entry.name), entry.domain);
    text += &match &*entry.refused {
        "" => "served\n".to_owned(),
        why if entry.refused_code.is_empty() => format!("not served: {}\n", printable(why)),
        why => format!("not served: {} [{}]\n", printable(why), entry.refused_code),
    };
    let mut row = |name: &str, value: &str| {
        text += &format!("    {name:<10}{}\n", printable(value));
    };
    let related = || {
        let named = entry.related.iter().take(RELATED_SHOWN).map(String::as_str);
        let mut named = named.collect::<Vec<_>>().join(", ");
        if let Some(more) = entry.related.len().checked_sub(RELATED_SHOWN).filter(|&n| n > 0) {
            named += &format!(" and {more} more");
        }
        named
    };
    match map {
        EntryMap::User => {
            row("uid", &entry.id.to_string());
            row("gid", &entry.gid.to_string());
            for (name, value) in ["gecos", "home", "shell", "replaced"].iter().zip(&entry.details) {
                row(name, value);
            }
            row("groups", &related());
        }
        EntryMap::Group => {
            row("gid", &group_gid(entry).map_or_else(|| "none".to_owned(), |gid| gid.to_string()));
            row("members", &related());
        }
    }
    for (field, value) in &entry.directory {
        text += &format!("    override of {field}: {} in the directory\n", printable(value));
    }
    text
}

/// Returns the values of the directory that an override replaces. `null` without an override.
fn replaced_values(entry: &EntryDetails) -> Value {
    let values = entry.directory.iter();
    let values: serde_json::Map<String, Value> =
        values.map(|(field, value)| (field.clone(), Value::from(value.clone()))).collect();
    if values.is_empty() { Value::Null } else { Value::Object(values) }
}

/// Returns the gid of a group. `None` for a group that only nests.
fn group_gid(entry: &EntryDetails) -> Option<u32> {
    Some(entry.id).filter(|&gid| gid != u32::MAX)
}

fn as_json(map: EntryMap, entry: &EntryDetails) -> Value {
    let refused = Some(&entry.refused).filter(|why| !why.is_empty());
    let detail = |at: usize| entry.details.get(at);
    match map {
        EntryMap::User => json!({
            "domain": entry.domain,
            "name": entry.name,
            "uid": entry.id,
            "gid": entry.gid,
            "gecos": detail(0),
            "home": detail(1),
            "shell": detail(2),
            "replaced_shell": detail(3),
            "groups": entry.related,
            "directory": replaced_values(entry),
            "refused": refused,
            "code": Some(&entry.refused_code).filter(|code| !code.is_empty()),
        }),
        EntryMap::Group => json!({
            "domain": entry.domain,
            "name": entry.name,
            "gid": group_gid(entry),
            "members": entry.related,
            "directory": replaced_values(entry),
            "refused": refused,
            "code": Some(&entry.refused_code).filter(|code| !code.is_empty()),
        }),
    }
}

async fn expire(args: &ExpireArgs, out: &mut dyn Write) -> Result<bool> {
    let bus = BusClient::connect(&args.bus.run_dir).await?;
    let domains = domains(&bus, args.domain.as_ref()).await?;
    let users = args.user.iter().map(|name| (LookupKind::UserByName, &**name));
    let groups = args.group.iter().map(|name| (LookupKind::GroupByName, &**name));
    let everything = args.all.then_some((LookupKind::UserByName, ""));
    let wanted: Vec<_> = users.chain(groups).chain(everything).collect();
    let mut failed = Vec::new();
    // Names that no backend has found. Mirrors find none.
    let mut missing = wanted.clone();
    for domain in &domains {
        let role = RoleName::Backend(domain.clone());
        let backend = bus.backend(domain).await?;
        for one @ (kind, name) in &wanted {
            let native = directory_name(&bus, domain, *kind, name).await?;
            match backend.expire(lookup_number(*kind), &native).await {
                Ok(true) => missing.retain(|name| name != one),
                Ok(false) => {}
                Err(error) => {
                    failed.push(call_error(&role, &error));
                    break;
                }
            }
        }
    }
    if !failed.is_empty() {
        let text = format!("not expired in all domains: {}", join_errors(&failed));
        return Err(CodedError::new(&tools::CACHE_NOT_EXPIRED, text).into());
    }
    let mut unknown = 0;
    for (kind, name) in missing {
        if !is_known(&bus, &domains, kind, name).await? {
            let map =
                if kind == LookupKind::GroupByName { EntryMap::Group } else { EntryMap::User };
            print_error(&no_such_entry(map, name));
            unknown += 1;
        }
    }
    let names = if args.all { None } else { Some(wanted.len() as u64 - unknown) };
    if names != Some(0) {
        writeln!(out, "{}", expired_text(names, domains.len() as u64))?;
    }
    Ok(unknown == 0)
}

/// Returns the name in a domain's directory of the entry with that name on this host. Backends know it alone. The empty
/// name stands for all entries.
async fn directory_name(
    bus: &BusClient,
    domain: &str,
    kind: LookupKind,
    name: &str,
) -> Result<Vec<u8>> {
    if name.is_empty() {
        return Ok(Vec::new());
    }
    let publisher = bus.publisher().await?;
    let found = publisher.directory_name(domain, lookup_number(kind), name.as_bytes()).await;
    Ok(found.map_err(|error| call_error(&RoleName::Publisher, &error))?)
}

/// Whether one of the domains has an entry of that name, served or not. The empty name stands for all entries.
async fn is_known(
    bus: &BusClient,
    domains: &[String],
    kind: LookupKind,
    name: &str,
) -> Result<bool> {
    if name.is_empty() {
        return Ok(true);
    }
    let found = bus.publisher().await?.show(lookup_number(kind), name.as_bytes()).await;
    let found = found.map_err(|error| call_error(&RoleName::Publisher, &error))?;
    if found.iter().any(|entry| domains.contains(&entry.domain)) {
        return Ok(true);
    }
    let unreadable = unreadable_entries(bus, name).await?;
    Ok(unreadable.iter().any(|(domain, _)| domains.contains(domain)))
}

/// Returns the named domain, or all domains.
async fn domains(bus: &BusClient, name: Option<&String>) -> Result<Vec<String>> {
    match name {
        Some(name) => {
            bus.check_domain(name).await?;
            Ok(vec![name.clone()])
        }
        None => bus.domains().await,
    }
}

async fn forget(args: &ExpireArgs, out: &mut dyn Write) -> Result<()> {
    let bus = BusClient::connect(&args.bus.run_dir).await?;
    let names: Vec<&str> = match args.all {
        true => vec![""],
        false => args.user.iter().map(String::as_str).collect(),
    };
    let mut forgotten = 0;
    for domain in domains(&bus, args.domain.as_ref()).await? {
        let role = RoleName::Backend(domain.clone());
        let backend = bus.backend(&domain).await?;
        for name in &names {
            let native = directory_name(&bus, &domain, LookupKind::UserByName, name).await?;
            let gone = backend.forget_credentials(&native).await;
            forgotten += gone.map_err(|error| call_error(&role, &error))?;
        }
    }
    writeln!(out, "{} removed", count_with_noun(forgotten, "cached credential"))?;
    Ok(())
}

async fn credentials(args: &ListCredentialsArgs, out: &mut dyn Write) -> Result<()> {
    let bus = BusClient::connect(&args.bus.run_dir).await?;
    let mut all = Vec::new();
    for domain in domains(&bus, args.domain.as_ref()).await? {
        let role = RoleName::Backend(domain.clone());
        let kept = bus.backend(&domain).await?.credentials().await;
        let kept = kept.map_err(|error| call_error(&role, &error))?;
        all.extend(kept.into_iter().map(|one| (domain.clone(), one)));
    }
    if args.json {
        let all: Vec<Value> =
            all.iter().map(|(domain, kept)| credential_json(domain, kept)).collect();
        writeln!(out, "{:#}", json!(all))?;
    } else {
        let now = unix_now();
        for (domain, kept) in &all {
            out.write_all(credential_text(now, domain, kept).as_bytes())?;
        }
    }
    Ok(())
}

fn credential_text(now: u64, domain: &str, kept: &CredentialInfo) -> String {
    let name = String::from_utf8_lossy(&kept.name).into_owned();
    let mut text = format!("{} of {domain}: ", printable(&name));
    text += &match kept.expires_unix > now {
        true => format!(
            "verified {}, valid for {}",
            ago(now, kept.verified_unix),
            age(kept.expires_unix, now)
        ),
        false => format!("verified {}, expired", ago(now, kept.verified_unix)),
    };
    if kept.failures > 0 {
        text += &format!(", {} since", count_with_noun(kept.failures.into(), "wrong password"));
    }
    if kept.locked_until_unix > now {
        text += &format!(", locked for {}", age(kept.locked_until_unix, now));
    }
    text.push('\n');
    text
}

fn credential_json(domain: &str, kept: &CredentialInfo) -> Value {
    let locked = Some(kept.locked_until_unix).filter(|&until| until > 0);
    json!({
        "domain": domain,
        "user": String::from_utf8_lossy(&kept.name),
        "verified_unix": kept.verified_unix,
        "expires_unix": kept.expires_unix,
        "failures": kept.failures,
        "locked_until_unix": locked,
    })
}

/// Formats the result: `names` is the number of expired names, or `None` for everything.
fn expired_text(names: Option<u64>, domains: u64) -> String {
    let what = match names {
        None => "all entries".to_owned(),
        Some(names) => count_with_noun(names, "name"),
    };
    format!("{what} expired in {}", count_with_noun(domains, "domain"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_expire_counts_names_and_domains() {
        assert_eq!(expired_text(None, 2), "all entries expired in 2 domains");
        assert_eq!(expired_text(Some(1), 1), "1 name expired in 1 domain");
        assert_eq!(expired_text(Some(2), 1), "2 names expired in 1 domain");
    }

    #[test]
    fn cache_show_finds_rejected_entry_by_dn() {
        for (dn, name) in [
            ("uid=carl,ou=people,dc=x", "carl"),
            ("uid=Carl,ou=people,dc=x", "carl"),
            ("cn=Carl C+uid=carl,dc=x", "carl"),
            ("uid=doe\\, jane,dc=x", "doe, jane"),
            ("uid=doe\\2c jane,dc=x", "doe, jane"),
            ("uid=a=b,dc=x", "a=b"),
            ("uid=j\\C3\\BCrgen,dc=x", "jürgen"),
        ] {
            assert!(is_named(dn, name), "{dn}");
        }
        for (dn, name) in [("uid=carla,dc=carl", "carl"), ("uid=x,uid=carl", "carl"), ("", "a")] {
            assert!(!is_named(dn, name), "{dn}");
        }
        let entry = RejectedEntry {
            kind: "entry".to_owned(),
            name: "uid=carl,dc=x".to_owned(),
            reason: "no home\x1b".to_owned(),
            code: "RST-5104".to_owned(),
            fix: String::new(),
        };
        let text = "entry uid=carl,dc=x of corp: not served: no home\\u{1b} [RST-5104]\n";
        assert_eq!(unreadable_text("corp", &entry), text);
        assert_eq!(unreadable_json("corp", &entry)["code"], "RST-5104");
    }

    #[test]
    fn cached_credential_shows_validity_and_failures() {
        let now = 1_000_000;
        let kept = CredentialInfo {
            name: b"alice".to_vec(),
            verified_unix: now - 7200,
            expires_unix: now + 3 * 86_400,
            failures: 0,
            locked_until_unix: 0,
        };
        assert_eq!(
            credential_text(now, "corp", &kept),
            "alice of corp: verified 2 h ago, valid for 3 days\n"
        );
        let locked = CredentialInfo { failures: 5, locked_until_unix: now + 90, ..kept.clone() };
        assert_eq!(
            credential_text(now, "corp", &locked),
            "alice of corp: verified 2 h ago, valid for 3 days, 5 wrong passwords since, locked for 1 \
             min\n"
        );
        let old = CredentialInfo { expires_unix: now, ..kept };
        assert_eq!(
            credential_text(now, "corp", &old),
            "alice of corp: verified 2 h ago, expired\n"
        );
    }

    #[test]
    fn cache_show_gives_reason_of_rejection() {
        let user = EntryDetails {
            domain: "corp".to_owned(),
            name: "alice".to_owned(),
            id: 10_001,
            gid: 20_001,
            details: ["Alice\x1b", "/home/alice", "/no", "/bin/x"].map(str::to_owned).to_vec(),
            related: (0..25).map(|n| format!("g{n}")).collect(),
            directory: Vec::new(),
            refused: "an earlier domain has this name".to_owned(),
            refused_code: "RST-5119".to_owned(),
        };
        let text = as_text(EntryMap::User, &user);
        assert!(text.starts_with(
            "user alice of corp: not served: an earlier domain has this name [RST-5119]\n    \
             uid       10001\n    gid       20001\n    gecos     Alice\\u{1b}\n    \
             home      /home/alice\n    shell     /no\n    replaced  /bin/x\n    groups    g0, g1,"
        ));
        assert!(text.ends_with("g19 and 5 more\n"));
        let group = EntryDetails { related: Vec::new(), refused: String::new(), ..user };
        assert!(as_text(EntryMap::Group, &group).starts_with("group alice of corp: served\n"));
        assert_eq!(as_json(EntryMap::Group, &group)["refused"], Value::Null);
        assert_eq!(as_json(EntryMap::Group, &group)["directory"], Value::Null);
    }

    #[test]
    fn cache_show_has_values_of_directory() {
        let replaced = [("name", "alice"), ("uid", "5001")];
        let entry = EntryDetails {
            domain: "corp".to_owned(),
            name: "al".to_owned(),
            directory: replaced.map(|(field, value)| (field.into(), value.into())).to_vec(),
            ..EntryDetails::default()
        };
        let text = as_text(EntryMap::User, &entry);
        let wanted = "    override of name: alice in the directory\n    \
                      override of uid: 5001 in the directory\n";
        assert!(text.starts_with("user al of corp: served\n") && text.ends_with(wanted), "{text}");
        let json = as_json(EntryMap::User, &entry);
        assert_eq!(json["directory"], json!({"name": "alice", "uid": "5001"}));
    }
}
