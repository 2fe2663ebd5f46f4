// SPDX-License-Identifier: MIT OR Apache-2.0
//! `org.roster.Monitor1`: the status, and requests to reload the configuration.

use super::log_levels::LogLevels;
use super::role_proxy::role_proxy;
use futures_util::future::join_all;
use parking_lot::Mutex;
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{BusError, MonitorStatus, SupervisedRole};
use roster_bus::zbus;
use roster_bus::zbus::message::Header;
use roster_bus::zbus::object_server::SignalEmitter;
use roster_messages::{CodedError, Message, table::daemon};
use roster_role::logging::{LogLevel, is_level};
use roster_role::requests;
use roster_role::role_object::require_monitor;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tracing::info;

/// Time limit of a role to accept a level.
const LEVEL_WAIT: Duration = Duration::from_secs(5);
/// Time that a caller waits for a reload.
const RELOAD_WAIT: Duration = Duration::from_secs(8);

/// The status, which the monitor updates.
#[derive(Clone, Default)]
pub struct SharedStatus(Arc<Mutex<MonitorStatus>>);

impl SharedStatus {
    /// Returns a copy.
    pub fn get(&self) -> MonitorStatus {
        self.0.lock().clone()
    }

    /// Replaces the status.
    pub fn set(&self, status: MonitorStatus) {
        *self.0.lock() = status;
    }
}

/// A request to reload the configuration, as the channel for its outcome.
pub type ReloadRequest = oneshot::Sender<Result<(), String>>;

/// The monitor's object.
pub struct MonitorObject {
    /// The status.
    pub status: SharedStatus,
    /// Channel for reload requests. Its bound limits the requests that wait.
    pub reloads: mpsc::Sender<ReloadRequest>,
    /// The monitor's own user.
    pub uid: u32,
    /// Levels for roles that start later.
    pub levels: LogLevels,
    /// The level of the monitor's own log.
    pub own_level: LogLevel,
}

fn refusal(message: &'static Message, text: &str) -> String {
    CodedError::new(message, text).to_string()
}

/// Requests a reload and waits for its outcome.
async fn request_reload(reloads: &mpsc::Sender<ReloadRequest>) -> Result<(), BusError> {
    let (done, outcome) = oneshot::channel();
    let busy = |_| BusError::Busy(refusal(&daemon::RELOAD_BUSY, "reload: too many requests"));
    reloads.try_send(done).map_err(busy)?;
    match tokio::time::timeout(RELOAD_WAIT, outcome).await {
        Ok(Ok(outcome)) => outcome.map_err(BusError::Invalid),
        Ok(Err(_)) => {
            Err(BusError::Unavailable(refusal(&daemon::MONITOR_STOPS, "reload: not done")))
        }
        Err(_) => Err(BusError::Busy(refusal(
            &daemon::RELOAD_RUNNING,
            "reload: the configuration is still being read",
        ))),
    }
}

/// Sets the level of a running role. Returns the error as text, empty without one.
async fn set_role_level(connection: &zbus::Connection, role: &RoleName, level: &str) -> String {
    let set = async { role_proxy(connection, role).await?.set_log_level(level).await };
    match tokio::time::timeout(LEVEL_WAIT, set).await {
        Ok(Ok(())) => String::new(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no reply within {} s", LEVEL_WAIT.as_secs()),
    }
}

/// Stores a level for a role, or for all roles if the name is empty. Returns the roles concerned that run.
fn store_level(
    levels: &LogLevels,
    status: MonitorStatus,
    role: &str,
    level: &str,
) -> Result<Vec<RoleName>, BusError> {
    if !is_level(level) {
        let text = format!("{level:?}: unknown log level");
        return Err(BusError::Invalid(refusal(&daemon::LOG_LEVEL_UNKNOWN, &text)));
    }
    // The bus is another program.
    let named = |one: SupervisedRole| Some((RoleName::parse(&one.role)?, one.state));
    let mut roles: Vec<_> = status.roles.into_iter().filter_map(named).collect();
    if role.is_empty() {
        levels.set_all(level);
    } else {
        roles.retain(|(name, _)| name.to_string() == role);
        if roles.is_empty() {
            let text = format!("{role:?}: unknown role");
            return Err(BusError::Invalid(refusal(&daemon::LOG_ROLE_UNKNOWN, &text)));
        }
        levels.set(role, level);
    }
    let running = roles.into_iter().filter(|(_, state)| state == "running");
    Ok(running.map(|(name, _)| name).collect())
}

#[zbus::interface(name = "org.roster.Monitor1", introspection_docs = false)]
impl MonitorObject {
    fn status(&self) -> MonitorStatus {
        let mut status = self.status.get();
        for role in status.roles.iter_mut().filter(|role| !role.log_level.is_empty()) {
            // The status may be older than the levels.
            role.log_level = self.levels.level_of(&role.role, &role.log_level);
        }
        status
    }

    async fn reload(
        &self,
        #[zbus(connection)] connection: &zbus::Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        require_monitor(connection, &header, self.uid).await?;
        requests::admin_request("reload", request_reload(&self.reloads)).await
    }

    async fn set_log_level(
        &self,
        role: String,
        level: String,
        #[zbus(connection)] connection: &zbus::Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<Vec<(String, String)>, BusError> {
        require_monitor(connection, &header, self.uid).await?;
        let roles = store_level(&self.levels, self.status.get(), &role, &level)?;
        let (own_level, level) = (&self.own_level, &*level);
        let set = roles.iter().map(|role| async move {
            let error = if *role == RoleName::Monitor {
                let _ = own_level.set(level);
                info!("log level: {level}");
                String::new()
            } else {
                set_role_level(connection, role, level).await
            };
            (role.to_string(), error)
        });
        Ok(requests::admin_request("set the log level", join_all(set)).await)
    }

    #[zbus(signal)]
    pub async fn config_reloaded(emitter: &SignalEmitter<'_>) -> zbus::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitor_level_is_stored_for_known_roles() {
        let role = |role: &str, state: &str| {
            let [role, state] = [role, state].map(str::to_owned);
            SupervisedRole { role, state, ..SupervisedRole::default() }
        };
        let roles = vec![
            role("bus", "running"),
            role("publisher", "running"),
            role("responder:pam", "idle"),
        ];
        let status = MonitorStatus { roles, ..MonitorStatus::default() };
        let levels = LogLevels::default();
        let set = |role, level| store_level(&levels, status.clone(), role, level);
        for (role, level, message) in [
            ("publisher", "loud", &daemon::LOG_LEVEL_UNKNOWN),
            ("backend:x", "debug", &daemon::LOG_ROLE_UNKNOWN),
            ("bus", "debug", &daemon::LOG_ROLE_UNKNOWN),
        ] {
            let Err(BusError::Invalid(text)) = set(role, level) else { panic!("{role} {level}") };
            assert!(text.ends_with(&format!(" [{message}]")), "{text}");
        }
        assert_eq!(set("responder:pam", "trace").ok(), Some(Vec::new()));
        assert_eq!(levels.level_of("responder:pam", "info"), "trace");
        assert_eq!(set("", "debug").ok(), Some(vec![RoleName::Publisher]));
        assert_eq!(levels.level_of("responder:pam", "info"), "debug");
    }

    #[tokio::test(start_paused = true)]
    async fn monitor_reload_without_outcome_has_code() {
        let (reloads, mut queue) = mpsc::channel(1);
        let stops = async {
            drop(queue.recv().await);
        };
        let (reply, ()) = tokio::join!(request_reload(&reloads), stops);
        let Err(BusError::Unavailable(text)) = reply else { panic!("{reply:?}") };
        assert!(text.ends_with(&format!(" [{}]", daemon::MONITOR_STOPS)), "{text}");
        // The first request is not answered, and the next one finds it in the queue.
        for message in [&daemon::RELOAD_RUNNING, &daemon::RELOAD_BUSY] {
            let reply = request_reload(&reloads).await;
            let Err(BusError::Busy(text)) = reply else { panic!("{reply:?}") };
            assert!(text.ends_with(&format!(" [{message}]")), "{text}");
        }
    }
}
