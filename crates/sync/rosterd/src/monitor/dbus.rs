// SPDX-License-Identifier: MIT OR Apache-2.0
//! `org.roster.Monitor1`: the status, and requests to reload the configuration.

use parking_lot::Mutex;
use roster_bus::interfaces::{BusError, MonitorStatus};
use roster_bus::zbus;
use roster_bus::zbus::message::Header;
use roster_bus::zbus::object_server::SignalEmitter;
use roster_messages::{CodedError, Message, table::daemon};
use roster_role::role_object::require_monitor;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

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

#[zbus::interface(name = "org.roster.Monitor1", introspection_docs = false)]
impl MonitorObject {
    fn status(&self) -> MonitorStatus {
        self.status.get()
    }

    async fn reload(
        &self,
        #[zbus(connection)] connection: &zbus::Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        require_monitor(connection, &header, self.uid).await?;
        request_reload(&self.reloads).await
    }

    #[zbus(signal)]
    pub async fn config_reloaded(emitter: &SignalEmitter<'_>) -> zbus::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

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
