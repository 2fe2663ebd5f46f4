//! `org.roster.Monitor1`: how everything is, and the order to read the configuration anew.

use crate::role::require_monitor;
use roster_bus::interfaces::{Error, MonitorStatus};
use roster_bus::zbus;
use roster_bus::zbus::message::Header;
use roster_bus::zbus::object_server::SignalEmitter;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long a caller waits for a new configuration to be read.
const RELOAD_WAIT: Duration = Duration::from_secs(8);

/// The status, kept up to date by the monitor.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<MonitorStatus>>);

impl Shared {
    /// A copy.
    pub fn get(&self) -> MonitorStatus {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another.
    pub fn set(&self, status: MonitorStatus) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

/// The order to read the configuration anew, and where the outcome goes.
pub type Reload = oneshot::Sender<Result<(), String>>;

/// The monitor's object.
pub struct Object {
    /// How everything is.
    pub shared: Shared,
    /// Where orders go. Its bound is that of orders that wait.
    pub reloads: mpsc::Sender<Reload>,
    /// The monitor's own user.
    pub uid: u32,
}

#[zbus::interface(name = "org.roster.Monitor1", introspection_docs = false)]
impl Object {
    fn status(&self) -> MonitorStatus {
        self.shared.get()
    }

    async fn reload(
        &self,
        #[zbus(connection)] connection: &zbus::Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), Error> {
        require_monitor(connection, &header, self.uid).await?;
        let (done, outcome) = oneshot::channel();
        let busy = |_| Error::Busy("the configuration is being read already".into());
        self.reloads.try_send(done).map_err(busy)?;
        match tokio::time::timeout(RELOAD_WAIT, outcome).await {
            Ok(Ok(outcome)) => outcome.map_err(Error::Invalid),
            Ok(Err(_)) => Err(Error::Unavailable("the monitor stops".into())),
            Err(_) => Err(Error::Busy("the configuration is still being read".into())),
        }
    }

    #[zbus(signal)]
    pub async fn config_reloaded(emitter: &SignalEmitter<'_>) -> zbus::Result<()>;
}
