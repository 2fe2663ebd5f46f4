//! From a configuration to the processes that there must be.

use super::settings::Settings;
use super::users::{Ids, RESPONDERS, Users};
use crate::role::{self, DomainRules, LogInDomain, RoleConfig};
use anyhow::{anyhow, bail};
use roster_bus::names::Role;
use roster_config::{AuthMethod, Domain, Listen, Mode, RESPONDER_PATH_MAX};
use roster_nscd::server::MAPS;
use roster_nscd::server::rights::HELPER as NSCD_HELPER;
use roster_nscd::server::socket::SOCKET;
use roster_snapshot::layout::RESPONDER_BYTES;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

const _: () = assert!(RESPONDER_PATH_MAX == RESPONDER_BYTES - 1);

/// The socket of PAM modules in the run-time folder.
const PAM: &str = "pam";

/// Maps of a daemon that is one user's, in the run-time folder.
const OWN_MAPS: &str = "nscd";

/// A process of the daemon, the bus first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// dbus-daemon.
    Bus,
    /// A role on it.
    Role(Role),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bus => f.write_str("bus"),
            Self::Role(role) => role.fmt(f),
        }
    }
}

/// What a process runs by. One that stays equal is left alone when the configuration changes.
#[derive(Clone, PartialEq)]
pub struct Wanted {
    /// What it is told.
    pub config: RoleConfig,
    /// Whose process it is.
    pub user: Ids,
    /// Where it serves.
    pub listen: Option<Listen>,
    /// Whether it is started only when somebody connects there.
    pub on_use: bool,
}

/// Every process but the bus. An error says what cannot be, and what to write instead.
pub fn plan(
    settings: &Settings,
    users: &Users,
    run_dir: &Path,
) -> anyhow::Result<BTreeMap<Key, Wanted>> {
    let config = &settings.config;
    let domains = settings.domains();
    let mut plan = BTreeMap::new();
    let want = |plan: &mut BTreeMap<Key, Wanted>, role, config, listen: Option<Listen>| {
        let user = users.of(&role, &domains).ok_or_else(|| lacks_user(&role))?;
        // Maps are to be there before anybody asks.
        let on_use = listen.is_some() && !matches!(config, RoleConfig::Nscd(_));
        plan.insert(Key::Role(role), Wanted { config, user, listen, on_use });
        anyhow::Ok(())
    };
    let publisher = role::Publisher {
        host: config.host.clone(),
        publisher: config.publisher.clone(),
        domains: config.domains.iter().map(rules).collect(),
    };
    want(&mut plan, Role::Publisher, RoleConfig::Publisher(publisher), None)?;
    for (domain, secrets) in config.domains.iter().zip(&settings.secrets) {
        let backend = role::Backend { domain: domain.clone(), secrets: secrets.clone() };
        let role = Role::Backend(domain.name.clone());
        want(&mut plan, role, RoleConfig::Backend(Box::new(backend)), None)?;
    }
    let on_demand = config.domains.iter().filter(|domain| domain.mode == Mode::OnDemand);
    let responder =
        config.responder(run_dir).map_err(|error| anyhow!("mode = on-demand: {error}"))?;
    if let (Some(negative), Some(path)) = (on_demand.map(|d| d.negative).min(), responder) {
        want(
            &mut plan,
            Role::Responder("nss".into()),
            RoleConfig::Nss(role::Nss { negative }),
            Some(Listen::Unix(path)),
        )?;
    }
    if let Some(nscd) = &config.nscd {
        let role = Role::Responder("nscd".into());
        if !users.are_separate() && nscd.socket == Path::new(SOCKET) {
            bail!(
                "[responder.nscd] enabled: where all roles run as one user the message bus would ask at {SOCKET}, and \
                 wait for itself; start rosterd as root without --state-dir, use roster nscd, or choose another socket"
            );
        }
        let helper = users.nscd_helper().ok_or_else(|| {
            anyhow!(
                "[responder.nscd] is on, and /etc/passwd lacks the user of its helper, {NSCD_HELPER}, with a uid and a \
                 group of its own: make it with systemd-sysusers, for which make install puts roster.conf in place, \
                 or with useradd --system --user-group {NSCD_HELPER}"
            )
        })?;
        let own = users.of(&role, &domains).ok_or_else(|| lacks_user(&role))?;
        let config = role::Nscd {
            passwd: config.host.passwd.clone(),
            group: config.host.group.clone(),
            // Programs of every user hold maps; in the run-time folder they could fill /run with old ones.
            maps: if users.are_separate() { MAPS.into() } else { run_dir.join(OWN_MAPS) },
            administrator: users.of(&Role::Monitor, &domains).map_or(0, |ids| ids.uid),
            users: users.are_separate().then_some([own, helper]),
            config: nscd.clone(),
        };
        let listen = Listen::Unix(nscd.socket.clone());
        want(&mut plan, role, RoleConfig::Nscd(config), Some(listen))?;
    }
    if let Some(pam) = &config.pam {
        let domain = |domain: &Domain| LogInDomain {
            name: domain.name.clone(),
            authenticates: domain.auth.method != AuthMethod::None,
        };
        let told = role::Pam {
            domains: config.domains.iter().map(domain).collect(),
            trusted: settings.trusted.clone(),
            timeout: pam.timeout,
            tries_per_minute: pam.tries_per_minute,
        };
        let listen = Listen::Unix(run_dir.join(PAM));
        want(&mut plan, Role::Responder("pam".into()), RoleConfig::Pam(told), Some(listen))?;
    }
    if let Some(metrics) = &config.metrics {
        let mut roles: Vec<_> = plan.keys().map(Key::to_string).collect();
        roles.push(Role::Monitor.to_string());
        want(
            &mut plan,
            Role::Responder("metrics".into()),
            RoleConfig::Metrics(role::Metrics { roles }),
            Some(metrics.listen.clone()),
        )?;
    }
    Ok(plan)
}

/// What to do about a responder that is wanted and has no user.
fn lacks_user(role: &Role) -> anyhow::Error {
    let names = RESPONDERS.iter().find(|(name, _)| *role == Role::Responder((*name).into()));
    let Some((name, user)) = names else { return anyhow!("{role} has no user to run as") };
    let wanted = match *name {
        "nss" => "a domain has mode = on-demand".to_owned(),
        "metrics" => "[metrics] is there".to_owned(),
        name => format!("[responder.{name}] is on"),
    };
    anyhow!(
        "{wanted}, and /etc/passwd lacks the user that it runs as, {user}, with the group of roster-bus: make it \
         with systemd-sysusers, for which make install puts roster.conf in place, or with useradd --system \
         --gid roster {user}"
    )
}

fn rules(domain: &Domain) -> DomainRules {
    DomainRules {
        name: domain.name.clone(),
        min_id: domain.min_id,
        max_id: domain.max_id,
        mode: domain.mode,
        mass_deletion: domain.mass_deletion,
        negative: domain.negative,
    }
}
