//! `roster log-level`: how much each role logs, until it is started anew.

use super::{Bus, converse, trouble};
use crate::cli::{Level, LogLevel};
use crate::terminal::{Align, table};
use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use roster_bus::names::Role;
use serde_json::json;
use std::io::Write;

/// Shows or sets levels.
pub fn run(args: &LogLevel, out: &mut dyn Write) -> Result<()> {
    let (role, level) = meant(args)?;
    converse(async {
        let bus = Bus::connect(&args.bus.run_dir).await?;
        let all = roles(&bus).await?;
        let roles = match role {
            Some(role) => vec![one_of(role, &all)?],
            None => all.into_iter().filter(|(_, runs)| *runs).map(|(role, _)| role).collect(),
        };
        match level {
            Some(level) => set(&bus, &roles, level, out).await,
            None => show(&bus, &roles, args.json, out).await,
        }
    })
}

/// One word alone is a role or a level; no role has a level's name.
fn meant(args: &LogLevel) -> Result<(Option<Role>, Option<Level>)> {
    let role = |text: &str| {
        Role::parse(text).ok_or_else(|| {
            anyhow!(
                "{text:?} is no role and no level; roles are monitor, publisher, backend:DOMAIN and \
                 responder:NAME, levels error, warn, info, debug and trace"
            )
        })
    };
    match (args.role.as_deref(), args.level) {
        (None, level) => Ok((None, level)),
        (Some(text), None) => match Level::from_str(text, true) {
            Ok(level) => Ok((None, Some(level))),
            Err(_) => Ok((Some(role(text)?), None)),
        },
        (Some(text), level) => Ok((Some(role(text)?), level)),
    }
}

/// All roles that can be asked, and whether they run: not the bus, which is another program.
async fn roles(bus: &Bus) -> Result<Vec<(Role, bool)>> {
    let status = bus.monitor().await?.status().await;
    let status = status.map_err(|error| trouble(&Role::Monitor, &error))?;
    let roles = status.roles.iter();
    Ok(roles.filter_map(|role| Some((Role::parse(&role.role)?, role.state == "running"))).collect())
}

fn one_of(role: Role, all: &[(Role, bool)]) -> Result<Role> {
    match all.iter().find(|(known, _)| *known == role) {
        Some((_, true)) => Ok(role),
        Some((Role::Responder(_), false)) => {
            bail!("{role} does not run: it is started when somebody first asks it")
        }
        Some((_, false)) => bail!("{role} does not run just now: see `roster status`"),
        None => {
            let known: Vec<_> = all.iter().map(|(role, _)| role.to_string()).collect();
            bail!("there is no role {role}; there are: {}", known.join(", "))
        }
    }
}

async fn show(bus: &Bus, roles: &[Role], json: bool, out: &mut dyn Write) -> Result<()> {
    let mut levels = Vec::new();
    for role in roles {
        let status = bus.role(role).await?.status().await.map_err(|error| trouble(role, &error))?;
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

async fn set(bus: &Bus, roles: &[Role], level: Level, out: &mut dyn Write) -> Result<()> {
    let mut failed = Vec::new();
    for role in roles {
        match bus.role(role).await?.set_log_level(level.as_str()).await {
            Ok(()) => writeln!(out, "{role} logs at level {}", level.as_str())?,
            Err(error) => failed.push(trouble(role, &error).to_string()),
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
    use crate::cli::OnBus;

    #[test]
    fn a_role_that_is_not_there_is_told_from_one_that_does_not_run() {
        let backend = |domain: &str| Role::Backend(domain.to_owned());
        let nss = Role::Responder("nss".to_owned());
        let all = [(Role::Monitor, true), (backend("corp"), false), (nss.clone(), false)];
        assert_eq!(one_of(Role::Monitor, &all).unwrap(), Role::Monitor);
        let error = |role| one_of(role, &all).unwrap_err().to_string();
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
            let bus = OnBus { run_dir: "/run/roster".into() };
            meant(&LogLevel { role: role.map(str::to_owned), level, json: false, bus })
        };
        assert_eq!(meant(None, None).unwrap(), (None, None));
        assert_eq!(meant(Some("debug"), None).unwrap(), (None, Some(Level::Debug)));
        let corp = Role::Backend("corp".to_owned());
        assert_eq!(meant(Some("backend:corp"), None).unwrap(), (Some(corp.clone()), None));
        assert_eq!(
            meant(Some("backend:corp"), Some(Level::Trace)).unwrap(),
            (Some(corp), Some(Level::Trace))
        );
        assert!(meant(Some("corp"), None).unwrap_err().to_string().contains("backend:DOMAIN"));
    }
}
