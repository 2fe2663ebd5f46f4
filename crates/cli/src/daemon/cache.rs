//! `roster cache`: what is known of one user or group, and having it asked for again.

use super::{Bus, converse, trouble};
use crate::cli::{Cache, CacheCommand, Expire, MapOfNames, ShowEntry};
use crate::terminal::{counted, say, shown};
use anyhow::{Result, bail};
use roster_bus::interfaces::{Kind, Shown};
use roster_bus::names::Role;
use serde_json::{Value, json};
use std::io::Write;

/// Groups or members that are named; `--json` has all.
const RELATED_SHOWN: usize = 20;

/// Runs one of the commands. `true`: what was asked for is there.
pub fn run(args: &Cache, out: &mut dyn Write) -> Result<bool> {
    match &args.command {
        CacheCommand::Show(args) => converse(show(args, out)),
        CacheCommand::Expire(args) => converse(expire(args, out)).map(|()| true),
    }
}

async fn show(args: &ShowEntry, out: &mut dyn Write) -> Result<bool> {
    let bus = Bus::connect(&args.bus.run_dir).await?;
    let kind = kind(args.map);
    let found = bus.publisher().await?.show(kind, args.name.as_bytes()).await;
    let found = found.map_err(|error| trouble(&Role::Publisher, &error))?;
    if args.json {
        let found: Vec<Value> = found.iter().map(|entry| as_json(args.map, entry)).collect();
        writeln!(out, "{:#}", json!(found))?;
    } else {
        for entry in &found {
            out.write_all(as_text(args.map, entry).as_bytes())?;
        }
    }
    if found.is_empty() {
        say(format_args!("roster: no domain has a {} named {:?}", args.map, args.name));
    }
    Ok(!found.is_empty())
}

fn kind(map: MapOfNames) -> Kind {
    match map {
        MapOfNames::User => Kind::UserByName,
        MapOfNames::Group => Kind::GroupByName,
    }
}

fn as_text(map: MapOfNames, entry: &Shown) -> String {
    let mut text = format!("{map} {} of {}: ", shown(&entry.name), entry.domain);
    text += &match &*entry.refused {
        "" => "served\n".to_owned(),
        why => format!("not served: {}\n", shown(why)),
    };
    let mut row = |name: &str, value: &str| {
        text += &format!("    {name:<10}{}\n", shown(value));
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
        MapOfNames::User => {
            row("uid", &entry.id.to_string());
            row("gid", &entry.gid.to_string());
            for (name, value) in ["gecos", "home", "shell"].iter().zip(&entry.details) {
                row(name, value);
            }
            row("groups", &related());
        }
        MapOfNames::Group => {
            row("gid", &entry.id.to_string());
            row("members", &related());
        }
    }
    text
}

fn as_json(map: MapOfNames, entry: &Shown) -> Value {
    let refused = Some(&entry.refused).filter(|why| !why.is_empty());
    let detail = |at: usize| entry.details.get(at);
    match map {
        MapOfNames::User => json!({
            "domain": entry.domain,
            "name": entry.name,
            "uid": entry.id,
            "gid": entry.gid,
            "gecos": detail(0),
            "home": detail(1),
            "shell": detail(2),
            "groups": entry.related,
            "refused": refused,
        }),
        MapOfNames::Group => json!({
            "domain": entry.domain,
            "name": entry.name,
            "gid": entry.id,
            "members": entry.related,
            "refused": refused,
        }),
    }
}

async fn expire(args: &Expire, out: &mut dyn Write) -> Result<()> {
    let bus = Bus::connect(&args.bus.run_dir).await?;
    let domains = match &args.domain {
        Some(name) => {
            bus.check_domain(name).await?;
            vec![name.clone()]
        }
        None => bus.domains().await?,
    };
    let users = args.user.iter().map(|name| (Kind::UserByName, &**name));
    let groups = args.group.iter().map(|name| (Kind::GroupByName, &**name));
    let everything = args.all.then_some((Kind::UserByName, ""));
    let wanted: Vec<_> = users.chain(groups).chain(everything).collect();
    let mut failed = Vec::new();
    for domain in &domains {
        let role = Role::Backend(domain.clone());
        let backend = bus.backend(domain).await?;
        for (kind, name) in &wanted {
            if let Err(error) = backend.expire(*kind, name.as_bytes()).await {
                failed.push(trouble(&role, &error).to_string());
                break;
            }
        }
    }
    if !failed.is_empty() {
        bail!("not everywhere: {}", failed.join("; "));
    }
    let names = if args.all { None } else { Some(wanted.len() as u64) };
    writeln!(out, "{}", expired(names, domains.len() as u64))?;
    Ok(())
}

/// What was expired: that many names, or everything.
fn expired(names: Option<u64>, domains: u64) -> String {
    let what = match names {
        None => "everything is".to_owned(),
        Some(1) => "1 name is".to_owned(),
        Some(names) => format!("{} are", counted(names, "name")),
    };
    format!("{what} asked for again in {}", counted(domains, "domain"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_again_is_counted() {
        assert_eq!(expired(None, 2), "everything is asked for again in 2 domains");
        assert_eq!(expired(Some(1), 1), "1 name is asked for again in 1 domain");
        assert_eq!(expired(Some(2), 1), "2 names are asked for again in 1 domain");
    }

    #[test]
    fn an_entry_is_shown_with_why_it_is_not_served() {
        let user = Shown {
            domain: "corp".to_owned(),
            name: "alice".to_owned(),
            id: 10_001,
            gid: 20_001,
            details: ["Alice\x1b", "/home/alice", "/bin/sh"].map(str::to_owned).to_vec(),
            related: (0..25).map(|n| format!("g{n}")).collect(),
            refused: "an earlier domain has this name".to_owned(),
        };
        let text = as_text(MapOfNames::User, &user);
        assert!(text.starts_with(
            "user alice of corp: not served: an earlier domain has this name\n    \
             uid       10001\n    gid       20001\n    gecos     Alice\\u{1b}\n    \
             home      /home/alice\n    shell     /bin/sh\n    groups    g0, g1,"
        ));
        assert!(text.ends_with("g19 and 5 more\n"));
        let group = Shown { related: Vec::new(), refused: String::new(), ..user };
        assert!(as_text(MapOfNames::Group, &group).starts_with("group alice of corp: served\n"));
        assert_eq!(as_json(MapOfNames::Group, &group)["refused"], Value::Null);
    }
}
