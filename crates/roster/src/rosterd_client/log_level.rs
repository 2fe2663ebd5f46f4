// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster log-level`: shows and sets the log level of roles. The monitor stores a level for roles that start later;
//! roster.toml has the permanent one.

use super::{BusClient, call_error, run_async};
use crate::args::{LevelName, LogLevelArgs};
use crate::output::{Align, table};
use anyhow::Result;
use clap::ValueEnum;
use roster_bus::bus_names::RoleName;
use roster_messages::CodedError;
use roster_messages::table::tools;
use serde_json::json;
use std::io::Write;

/// Shows or sets levels.
pub fn run(args: &LogLevelArgs, out: &mut dyn Write) -> Result<()> {
    let (role, level) = parse_role_and_level(args)?;
    run_async(async {
        let bus = BusClient::connect(&args.bus.run_dir).await?;
        let mut roles = roles(&bus).await?;
        if let Some(role) = &role {
            check_role(role, &roles)?;
            roles.retain(|known| known.name == *role);
        }
        match level {
            Some(level) => set(&bus, role.as_ref(), &roles, level, out).await,
            None => show(&bus, &roles, args.json, out).await,
        }
    })
}

/// A role, as the monitor reports it.
struct KnownRole {
    name: RoleName,
    is_running: bool,
    /// The level of its next process.
    level: String,
}

/// Parses the arguments. A single argument is a role or a level; no role has the name of a level.
fn parse_role_and_level(
    args: &LogLevelArgs,
) -> Result<(Option<RoleName>, Option<LevelName>), CodedError> {
    let role = |text: &str| {
        RoleName::parse(text).ok_or_else(|| {
            let what = format!("{text:?} is neither a role nor a level");
            CodedError::new(&tools::UNKNOWN_ROLE_OR_LEVEL, what).fix(
                "Roles are monitor, publisher, backend:DOMAIN and responder:NAME. Levels are error, warn, \
                 info, debug and trace.",
            )
        })
    };
    match (args.role.as_deref(), args.level) {
        (None, level) => Ok((None, level)),
        (Some(text), None) => match LevelName::from_str(text, true) {
            Ok(level) => Ok((None, Some(level))),
            Err(_) => Ok((Some(role(text)?), None)),
        },
        (Some(text), level) => Ok((Some(role(text)?), level)),
    }
}

/// Returns all roles except the bus, which is another program.
async fn roles(bus: &BusClient) -> Result<Vec<KnownRole>> {
    let status = bus.monitor().await?.status().await;
    let status = status.map_err(|error| call_error(&RoleName::Monitor, &error))?;
    let roles = status.roles.into_iter().filter_map(|role| {
        let (name, is_running) = (RoleName::parse(&role.role)?, role.state == "running");
        Some(KnownRole { name, is_running, level: role.log_level })
    });
    Ok(roles.collect())
}

fn check_role(role: &RoleName, all: &[KnownRole]) -> Result<(), CodedError> {
    if all.iter().any(|known| known.name == *role) {
        return Ok(());
    }
    let known: Vec<_> = all.iter().map(|role| role.name.to_string()).collect();
    let text = format!("unknown role {role}: the roles are {}", known.join(", "));
    Err(CodedError::new(&tools::UNKNOWN_ROLE, text))
}

async fn show(bus: &BusClient, roles: &[KnownRole], json: bool, out: &mut dyn Write) -> Result<()> {
    let mut levels = Vec::new();
    for KnownRole { name, is_running, level } in roles {
        let level = if *is_running {
            let status = bus.role(name).await?.status().await;
            status.map_err(|error| call_error(name, &error))?.log_level
        } else {
            level.clone()
        };
        levels.push((name.to_string(), level, *is_running));
    }
    if json {
        let levels: serde_json::Map<_, _> =
            levels.into_iter().map(|(role, level, _)| (role, json!(level))).collect();
        writeln!(out, "{:#}", json!(levels))?;
    } else {
        let row = |(role, level, is_running)| {
            let note = if is_running { "" } else { "from the next start" };
            vec![role, level, note.to_owned()]
        };
        let rows: Vec<_> = levels.into_iter().map(row).collect();
        out.write_all(table(&rows, &[Align::Left; 3]).as_bytes())?;
    }
    Ok(())
}

async fn set(
    bus: &BusClient,
    role: Option<&RoleName>,
    roles: &[KnownRole],
    level: LevelName,
    out: &mut dyn Write,
) -> Result<()> {
    let name = role.map(ToString::to_string).unwrap_or_default();
    let replies = bus.monitor().await?.set_log_level(&name, level.as_str()).await;
    let replies = replies.map_err(|error| call_error(&RoleName::Monitor, &error))?;
    let level = level.as_str();
    let mut failed = Vec::new();
    for KnownRole { name, .. } in roles {
        let name = name.to_string();
        match replies.iter().find(|(role, _)| *role == name) {
            Some((_, error)) if error.is_empty() => writeln!(out, "{name} logs at level {level}")?,
            Some((_, error)) => failed.push(format!("{name}: {error}")),
            None => writeln!(out, "{name} logs at level {level} from the next start")?,
        }
    }
    if !failed.is_empty() {
        let text = format!("not set for all roles: {}", failed.join("; "));
        return Err(CodedError::new(&tools::LOG_LEVEL_NOT_SET, text).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::BusArgs;

    #[test]
    fn log_level_unknown_role_lists_known_ones() {
        let names = ["monitor", "backend:corp", "responder:nss"];
        let all = names.map(|name| KnownRole {
            name: RoleName::parse(name).unwrap(),
            is_running: name == "monitor",
            level: "info".to_owned(),
        });
        for known in &all {
            assert!(check_role(&known.name, &all).is_ok());
        }
        let error = check_role(&RoleName::Backend("x".to_owned()), &all).unwrap_err();
        let text = "unknown role backend:x: the roles are monitor, backend:corp, responder:nss";
        assert_eq!((error.message, &*error.text), (&tools::UNKNOWN_ROLE, text));
    }

    #[test]
    fn log_level_single_argument_is_role_or_level() {
        let meant = |role: Option<&str>, level| {
            let bus = BusArgs { run_dir: "/run/roster".into() };
            parse_role_and_level(&LogLevelArgs {
                role: role.map(str::to_owned),
                level,
                json: false,
                bus,
            })
        };
        assert_eq!(meant(None, None).unwrap(), (None, None));
        assert_eq!(meant(Some("debug"), None).unwrap(), (None, Some(LevelName::Debug)));
        let corp = RoleName::Backend("corp".to_owned());
        assert_eq!(meant(Some("backend:corp"), None).unwrap(), (Some(corp.clone()), None));
        assert_eq!(
            meant(Some("backend:corp"), Some(LevelName::Trace)).unwrap(),
            (Some(corp), Some(LevelName::Trace))
        );
        let error = meant(Some("corp"), None).unwrap_err();
        assert_eq!(error.message, &tools::UNKNOWN_ROLE_OR_LEVEL);
    }
}
