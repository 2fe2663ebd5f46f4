// SPDX-License-Identifier: MIT OR Apache-2.0
//! The object of a role on the bus: status, metrics, log level, stop. `logging` has the level, and `metrics` the
//! counters. Calls that only one role serves are in its crate.

use crate::clock::unix_seconds;
use crate::logging::LogLevel;
use crate::metrics::Counters;
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{BusError, RoleStatus};
use roster_bus::zbus::fdo::DBusProxy;
use roster_bus::zbus::message::Header;
use roster_bus::zbus::names::BusName;
use roster_bus::zbus::{self, Connection};
use roster_messages::{CodedError, table::daemon};
use std::time::SystemTime;
use tokio::sync::watch;
use tracing::info;

/// Allows root and the monitor's user, as the bus reports them. The bus policy has the same rule. This check holds if
/// the policy fails.
///
/// # Errors
///
/// The caller is another user.
pub async fn require_monitor(
    connection: &Connection,
    header: &Header<'_>,
    monitor_uid: u32,
) -> Result<(), BusError> {
    let uid = match header.sender() {
        None => None,
        Some(sender) => {
            let bus = DBusProxy::new(connection).await?;
            let uid = bus.get_connection_unix_user(BusName::from(sender.to_owned())).await;
            Some(uid.map_err(zbus::Error::from)?)
        }
    };
    allow_user(uid, monitor_uid)
}

/// Allows root and the monitor's user. The caller without a user id is unknown.
fn allow_user(uid: Option<u32>, monitor_uid: u32) -> Result<(), BusError> {
    if uid.is_some_and(|uid| uid == 0 || uid == monitor_uid) {
        return Ok(());
    }
    let text = "request refused: the caller is neither root nor the monitor";
    Err(BusError::Denied(CodedError::new(&daemon::MONITOR_ONLY, text).to_string()))
}

/// `org.roster.Role1`.
pub struct RoleObject {
    /// Name of the role.
    pub role: RoleName,
    /// Start of the process.
    pub started: SystemTime,
    /// The sandbox in force, as text.
    pub sandbox: String,
    /// Level of the log.
    pub level: LogLevel,
    /// Metrics of the process.
    pub counters: Counters,
    /// Ends the process.
    pub stop: watch::Sender<bool>,
    /// User of the monitor. It and root may stop the role.
    pub monitor_uid: u32,
}

#[zbus::interface(name = "org.roster.Role1", introspection_docs = false)]
impl RoleObject {
    fn status(&self) -> RoleStatus {
        // The monitor pings roles every few seconds.
        self.counters.run_upkeep();
        RoleStatus {
            role: self.role.to_string(),
            pid: std::process::id(),
            started_unix: unix_seconds(self.started),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sandbox: self.sandbox.clone(),
            log_level: self.level.get(),
        }
    }

    fn metrics(&self) -> String {
        self.counters.render()
    }

    async fn set_log_level(
        &self,
        level: &str,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        require_monitor(connection, &header, self.monitor_uid).await?;
        if self.level.set(level) {
            info!("log level: {level}");
            Ok(())
        } else {
            let error = CodedError::new(
                &daemon::LOG_LEVEL_UNKNOWN,
                format!("{level:?}: unknown log level"),
            );
            Err(BusError::Invalid(error.to_string()))
        }
    }

    async fn stop(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        require_monitor(connection, &header, self.monitor_uid).await?;
        let _ = self.stop.send(true);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_object_other_caller_is_refused() {
        for (uid, is_allowed) in
            [(Some(0), true), (Some(900), true), (Some(901), false), (None, false)]
        {
            match allow_user(uid, 900) {
                Ok(()) => assert!(is_allowed, "{uid:?}"),
                Err(BusError::Denied(text)) => {
                    assert!(!is_allowed && text.contains(daemon::MONITOR_ONLY.code), "{text}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}
