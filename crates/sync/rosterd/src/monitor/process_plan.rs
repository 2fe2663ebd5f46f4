// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derives the required processes from a configuration. This module starts nothing: `spawn` does, and `reload` compares
//! two plans.

use super::config_load::LoadedConfig;
use super::host_names;
use super::role_users::{RESPONDER_USERS, RoleUsers};
use crate::roles::RoleConfig;
use roster_backend::BackendRoleConfig;
use roster_bus::bus_names::RoleName;
use roster_config::{
    AuthMethod, DomainConfig, DomainMode, ListenAddress, OverridesConfig, RESPONDER_PATH_MAX,
};
use roster_messages::{CodedError, table::daemon};
use roster_publisher::{DomainRules, PublisherRoleConfig};
use roster_responder::metrics::MetricsRoleConfig;
use roster_responder::nss::NssRoleConfig;
use roster_responder::pam::{LoginDomain, PamRoleConfig};
use roster_role::UserIds;
use roster_snapshot::layout::RESPONDER_BYTES;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

const _: () = assert!(RESPONDER_PATH_MAX == RESPONDER_BYTES - 1);

/// The socket of PAM modules in the run-time directory.
const PAM_SOCKET: &str = "pam";

/// A process of the daemon, the bus first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProcessKey {
    /// dbus-daemon.
    Bus,
    /// A role on it.
    Role(RoleName),
}

impl fmt::Display for ProcessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bus => f.write_str("bus"),
            Self::Role(role) => role.fmt(f),
        }
    }
}

/// Settings of a process. A process with equal settings stays when the configuration changes.
#[derive(Clone, PartialEq)]
pub struct DesiredProcess {
    /// The process's configuration.
    pub config: RoleConfig,
    /// The process's user.
    pub user: UserIds,
    /// The process's listening address. Such a process starts only at the first connection.
    pub listen: Option<ListenAddress>,
}

/// Plans every process except the bus.
pub fn plan(
    settings: &LoadedConfig,
    users: &RoleUsers,
    run_dir: &Path,
) -> Result<ProcessPlan, CodedError> {
    let domains = settings.domain_names();
    let mut planner = Planner { settings, users, run_dir, domains, plan: BTreeMap::new() };
    planner.add_publisher()?;
    planner.add_backends()?;
    planner.add_nss()?;
    planner.add_pam()?;
    planner.add_metrics()?;
    Ok(planner.plan)
}

/// The required processes without the bus.
pub type ProcessPlan = BTreeMap<ProcessKey, DesiredProcess>;

struct Planner<'a> {
    settings: &'a LoadedConfig,
    users: &'a RoleUsers,
    run_dir: &'a Path,
    domains: Vec<String>,
    plan: ProcessPlan,
}

impl Planner<'_> {
    fn user_of(&self, role: &RoleName) -> Result<UserIds, CodedError> {
        let user = self.users.user_of_role(role, &self.domains);
        user.ok_or_else(|| missing_user_error(role))
    }

    fn add(
        &mut self,
        role: RoleName,
        config: RoleConfig,
        listen: Option<ListenAddress>,
    ) -> Result<(), CodedError> {
        let user = self.user_of(&role)?;
        let process = DesiredProcess { config, user, listen };
        self.plan.insert(ProcessKey::Role(role), process);
        Ok(())
    }

    fn add_publisher(&mut self) -> Result<(), CodedError> {
        let config = &self.settings.config;
        let publisher = PublisherRoleConfig {
            host: config.host.clone(),
            publisher: config.publisher.clone(),
            domains: config.domains.iter().map(domain_rules).collect(),
        };
        self.add(RoleName::Publisher, RoleConfig::Publisher(publisher), None)
    }

    fn add_backends(&mut self) -> Result<(), CodedError> {
        let settings = self.settings;
        for (domain, secrets) in settings.config.domains.iter().zip(&settings.secrets) {
            let needs_names = domain.access.needs_host_names();
            let backend = BackendRoleConfig {
                // Only the publisher knows the overrides. A change does not restart the backend.
                domain: DomainConfig {
                    local_overrides: OverridesConfig::default(),
                    ..domain.clone()
                },
                secrets: secrets.clone(),
                host_names: if needs_names { host_names::read() } else { Vec::new() },
            };
            let role = RoleName::Backend(domain.name.clone());
            self.add(role, RoleConfig::Backend(Box::new(backend)), None)?;
        }
        Ok(())
    }

    fn add_nss(&mut self) -> Result<(), CodedError> {
        let config = &self.settings.config;
        let on_demand = config.domains.iter().filter(|domain| domain.mode == DomainMode::OnDemand);
        let responder = config.responder_path(self.run_dir)?;
        let negative = on_demand.map(|domain| domain.negative).min();
        let (Some(negative), Some(path)) = (negative, responder) else { return Ok(()) };
        let nss = NssRoleConfig { negative };
        let listen = Some(ListenAddress::Unix(path));
        self.add(RoleName::Responder("nss".into()), RoleConfig::Nss(nss), listen)
    }

    fn add_pam(&mut self) -> Result<(), CodedError> {
        let config = &self.settings.config;
        let Some(pam) = &config.pam else { return Ok(()) };
        let domain = |domain: &DomainConfig| LoginDomain {
            name: domain.name.clone(),
            authenticates: domain.auth.method != AuthMethod::None,
        };
        let role_config = PamRoleConfig {
            domains: config.domains.iter().map(domain).collect(),
            trusted: self.settings.trusted_uids.clone(),
            timeout: pam.timeout,
            tries_per_minute: pam.tries_per_minute,
        };
        let listen = ListenAddress::Unix(self.run_dir.join(PAM_SOCKET));
        self.add(RoleName::Responder("pam".into()), RoleConfig::Pam(role_config), Some(listen))
    }

    /// Adds the metrics responder. It is added last, because it knows all other roles.
    fn add_metrics(&mut self) -> Result<(), CodedError> {
        let Some(metrics) = &self.settings.config.metrics else { return Ok(()) };
        let mut roles: Vec<_> = self.plan.keys().map(ProcessKey::to_string).collect();
        roles.push(RoleName::Monitor.to_string());
        let role_config = RoleConfig::Metrics(MetricsRoleConfig { roles });
        let listen = Some(metrics.listen.clone());
        self.add(RoleName::Responder("metrics".into()), role_config, listen)
    }
}

/// Returns the error for a role without a user.
fn missing_user_error(role: &RoleName) -> CodedError {
    let names =
        RESPONDER_USERS.iter().find(|(name, _)| *role == RoleName::Responder((*name).into()));
    let Some((name, user)) = names else {
        return CodedError::new(&daemon::ROLE_USERS_MISSING, format!("{role}: has no user"));
    };
    let required_by = match *name {
        "nss" => "a domain has mode = \"on-demand\"".to_owned(),
        "metrics" => "[metrics] is set".to_owned(),
        name => format!("[responder.{name}] is set"),
    };
    let text = format!(
        "{role}: {required_by}, but /etc/passwd has no user {user} with the primary group of roster-bus"
    );
    let fix = format!(
        "Create it with `systemd-sysusers roster.conf`, or with `useradd --system --gid roster {user}`."
    );
    CodedError::new(&daemon::RESPONDER_USER_MISSING, text).fix(fix)
}

fn domain_rules(domain: &DomainConfig) -> DomainRules {
    DomainRules {
        names: domain.names.clone(),
        name: domain.name.clone(),
        min_id: domain.min_id,
        max_id: domain.max_id,
        overrides: domain.local_overrides.clone(),
        rule_groups: domain.access.groups().map(ToOwned::to_owned).collect(),
        mode: domain.mode,
        mass_deletion: domain.mass_deletion,
        negative: domain.negative,
        when_away: domain.when_away,
        serving: domain.serving.clone(),
        private_groups: domain.private_groups,
        refresh: domain.refresh,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn plan_responder_without_user_has_code() {
        let passwd = b"roster-bus:x:901:901::/:/bin/false\n\
            roster-publisher:x:902:901::/:/bin/false\n\
            roster-backend-0:x:910:901::/:/bin/false\n";
        let users = RoleUsers::from_passwd(passwd, 1).unwrap();
        let on_demand = "mode = \"on-demand\"\nprovider = \"ldap\"\nuris = [\"ldaps://h\"]\n\
                         base = \"dc=x\"\n";
        let files = "provider = \"files\"\npasswd = \"/p\"\ngroup = \"/g\"\n";
        for (text, user) in [
            (on_demand.to_owned(), "roster-nss"),
            (format!("{files}[responder.pam]\nenabled = true\n"), "roster-pam"),
            (format!("{files}[metrics]\nlisten = \"unix:/m\"\n"), "roster-metrics"),
        ] {
            let text = format!("[host]\ndomains = [\"corp\"]\n[domain.corp]\n{text}");
            let settings = LoadedConfig {
                config: roster_config::parse(&text).unwrap().config,
                secrets: vec![roster_config::DomainSecrets::default()],
                trusted_uids: Vec::new(),
                read_at: SystemTime::UNIX_EPOCH,
                warnings: Vec::new(),
                has_main_file: true,
            };
            let error = plan(&settings, &users, Path::new("/run/roster")).err().unwrap();
            assert_eq!(error.message, &daemon::RESPONDER_USER_MISSING);
            assert!(error.text.contains(user), "{error}");
        }
    }
}
