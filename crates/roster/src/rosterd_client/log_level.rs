//! `roster log-level`: how much each role logs, until it is started anew.

use super::{BusClient, call_error, run_async};
use crate::args::{LevelName, LogLevelArgs};
use crate::output::{Align, table};
use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use roster_bus::bus_names::RoleName;
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

/// One word alone is a role or a level; no role has a level's name.
fn parse_role_and_level(args: &LogLevelArgs) -> Result<(Option<RoleName>, Option<LevelName>)> {
    let role = |text: &str| {
        RoleName::parse(text).ok_or_else(|| {
            anyhow!(
                "{text:?} is no role and no level; roles are monitor, publisher, backend:DOMAIN and \
                 responder:NAME, levels error, warn, info, debug and trace"
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

/// All roles that can be asked, and whether they run: not the bus, which is another program.
async fn roles(bus: &BusClient) -> Result<Vec<(RoleName, bool)>> {
    let status = bus.monitor().await?.status().await;
    let status = status.map_err(|error| call_error(&RoleName::Monitor, &error))?;
    let roles = status.roles.iter();
    Ok(roles
        .filter_map(|role| Some((RoleName::parse(&role.role)?, role.state == "running")))
        .collect())
}

fn running_role(role: RoleName, all: &[(RoleName, bool)]) -> Result<RoleName> {
    match all.iter().find(|(known, _)| *known == role) {
        Some((_, true)) => Ok(role),
        Some((RoleName::Responder(_), false)) => {
            bail!("{role} does not run: it is started when somebody first asks it")
        }
        Some((_, false)) => bail!("{role} does not run just now: see `roster status`"),
        None => {
            let known: Vec<_> = all.iter().map(|(role, _)| role.to_string()).collect();
            bail!("there is no role {role}; there are: {}", known.join(", "))
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
            Err(error) => failed.push(call_error(role, &error).to_string()),
        }
    }
    if !failed.is_empty() {
        bail!("not set everywhere: {}", failed.join("; "));
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
        let error = |role| running_role(role, &all).unwrap_err().to_string();
        assert_eq!(
            error(backend("x")),
            "there is no role backend:x; there are: monitor, backend:corp, responder:nss"
        );
        assert!(error(backend("corp")).contains("see `roster status`"));
        assert!(error(nss).contains("when somebody first asks it"));
    }

    #[test]
    fn one_word_is_a_role_or_a_level() {
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
        assert!(meant(Some("corp"), None).unwrap_err().to_string().contains("backend:DOMAIN"));
    }
}
