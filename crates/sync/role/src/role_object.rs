//! The object of a role on the bus: status, metrics, log level, stop.

use crate::clock::unix_seconds;
use crate::logging::LogLevel;
use crate::metrics::Counters;
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::{BusError, RoleStatus};
use roster_bus::zbus::fdo::DBusProxy;
use roster_bus::zbus::message::Header;
use roster_bus::zbus::names::BusName;
use roster_bus::zbus::{self, Connection};
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
    let denied = || BusError::Denied("only root and the monitor may do that".into());
    let sender = header.sender().ok_or_else(denied)?;
    let bus = DBusProxy::new(connection).await?;
    let uid = bus.get_connection_unix_user(BusName::from(sender.to_owned())).await;
    match uid.map_err(zbus::Error::from)? {
        uid if uid == 0 || uid == monitor_uid => Ok(()),
        _ => Err(denied()),
    }
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
            info!("logs at level {level} from now on");
            Ok(())
        } else {
            let levels = "error, warn, info, debug or trace";
            Err(BusError::Invalid(format!("{level:?} is no log level; write {levels}")))
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
