// SPDX-License-Identifier: MIT OR Apache-2.0
//! `roster log-level`: shows and sets the log level of roles. A level lasts until the role restarts; roster.toml has the
//! permanent one.

use super::{BusClient, call_error, join_errors, run_async};
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
        let all = roles(&bus).await?;
        let roles = match role {
            Some(role) => vec![running_role(role, &all)?],
            None => all.into_iter().filter(|(_, runs)| *runs).map(|(role, _)| role).collect(),
        };
        match level {
            Some(level) => set(&bus, &roles, level, out).await,
            None => show(&bus, &roles, args.json, out).await,
        }
    })
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

/// Returns all roles except the bus, which is another program, and whether they run.
async fn roles(bus: &BusClient) -> Result<Vec<(RoleName, bool)>> {
    let status = bus.monitor().await?.status().await;
    let status = status.map_err(|error| call_error(&RoleName::Monitor, &error))?;
    let roles = status.roles.iter();
    Ok(roles
        .filter_map(|role| Some((RoleName::parse(&role.role)?, role.state == "running")))
        .collect())
}

fn running_role(role: RoleName, all: &[(RoleName, bool)]) -> Result<RoleName, CodedError> {
    match all.iter().find(|(known, _)| *known == role) {
        Some((_, true)) => Ok(role),
        Some((RoleName::Responder(_), false)) => {
            Err(CodedError::new(&tools::ROLE_NOT_STARTED, format!("{role}: not started yet")))
        }
        Some((_, false)) => {
            Err(CodedError::new(&tools::ROLE_RESTARTING, format!("{role}: not running")))
        }
        None => {
            let known: Vec<_> = all.iter().map(|(role, _)| role.to_string()).collect();
            let text = format!("unknown role {role}: the roles are {}", known.join(", "));
            Err(CodedError::new(&tools::UNKNOWN_ROLE, text))
        }
    }
}

async fn show(bus: &BusClient, roles: &[RoleName], json: bool, out: &mut dyn Write) -> Result<()> {
    let mut levels = Vec::new();
    for role in roles {
        let status =
            bus.role(role).await?.status().await.map_err(|error| call_error(role, &error))?;
        levels.push((role.to_string(), status.log_level));
    }
    if json {
        let levels: serde_json::Map<_, _> =
            levels.into_iter().map(|(role, level)| (role, json!(level))).collect();
        writeln!(out, "{:#}", json!(levels))?;
    } else {
        let rows: Vec<_> = levels.into_iter().map(|(role, level)| vec![role, level]).collect();
        out.write_all(table(&rows, &[Align::Left, Align::Left]).as_bytes())?;
    }
    Ok(())
}

async fn set(
    bus: &BusClient,
    roles: &[RoleName],
    level: LevelName,
    out: &mut dyn Write,
) -> Result<()> {
    let mut failed = Vec::new();
    for role in roles {
        match bus.role(role).await?.set_log_level(level.as_str()).await {
            Ok(()) => writeln!(out, "{role} logs at level {}", level.as_str())?,
            Err(error) => failed.push(call_error(role, &error)),
        }
    }
    if !failed.is_empty() {
        let text = format!("not set for all roles: {}", join_errors(&failed));
        return Err(CodedError::new(&tools::LOG_LEVEL_NOT_SET, text).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::BusArgs;

    #[test]
    fn log_level_unknown_role_differs_from_stopped() {
        let backend = |domain: &str| RoleName::Backend(domain.to_owned());
        let nss = RoleName::Responder("nss".to_owned());
        let all = [(RoleName::Monitor, true), (backend("corp"), false), (nss.clone(), false)];
        assert_eq!(running_role(RoleName::Monitor, &all).unwrap(), RoleName::Monitor);
        let error = |role| {
            let error = running_role(role, &all).unwrap_err();
            (error.message, error.text)
        };
        let text = "unknown role backend:x: the roles are monitor, backend:corp, responder:nss";
        assert_eq!(error(backend("x")), (&tools::UNKNOWN_ROLE, text.to_owned()));
        assert_eq!(error(backend("corp")).0, &tools::ROLE_RESTARTING);
        assert_eq!(error(nss).0, &tools::ROLE_NOT_STARTED);
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
