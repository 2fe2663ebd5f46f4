//! A role's process: takes what the monitor hands it, gives up all rights that it does not need,
//! joins the bus and runs the role's own code.
//!
//! The monitor gives a role its [`RoleConfig`] as standard input, and its listening socket, if it
//! serves one, as standard output. A role reads no configuration file. Its code builds its state,
//! puts its object at its path, calls [`Context::ready`], works until [`Shutdown::wait`] returns,
//! flushes and returns.

use anyhow::{Context as _, bail};
use roster_bus::names::Role;
use roster_bus::zbus::{self, fdo::RequestNameFlags, fdo::RequestNameReply};
use roster_config as config;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;

/// How long a role waits for its name, which the process before it may still hold for a moment.
const NAME_WAIT: Duration = Duration::from_secs(5);
/// Between two tries for the name.
const NAME_PAUSE: Duration = Duration::from_millis(50);

/// What a role needs to know, and no more: a role whose `RoleConfig` stays the same is left alone
/// when the configuration is read anew.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub enum RoleConfig {
    /// For [`crate::publisher`].
    Publisher(Publisher),
    /// For [`crate::backend`].
    Backend(Box<Backend>),
    /// For [`crate::responder::nss`].
    Nss(Nss),
    /// For [`crate::responder::metrics`].
    Metrics(Metrics),
}

/// What the publisher needs to know.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Publisher {
    /// `[host]`.
    pub host: config::Host,
    /// `[publisher]`.
    pub publisher: config::Publisher,
    /// Domains in order of precedence.
    pub domains: Vec<DomainRules>,
}

/// What the publisher holds a domain to.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainRules {
    /// Its name.
    pub name: String,
    /// Smallest uid and gid taken from it.
    pub min_id: u32,
    /// Largest.
    pub max_id: u32,
    /// Whether what the back-end has is all there is.
    pub mode: config::Mode,
}

/// What a back-end needs to know.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// Its domain.
    pub domain: config::Domain,
    /// What stands in the files that the domain's configuration names.
    pub secrets: config::Secrets,
}

/// What the NSS responder needs to know.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Nss {
    /// How long a name that is not there is known not to be there: the shortest time of any domain
    /// that is asked on demand.
    pub negative: Duration,
}

/// What the metrics responder needs to know.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {}

/// What a role's code is given; `C` is its variant of [`RoleConfig`].
pub struct Context<C> {
    /// Who this process is.
    pub role: Role,
    /// What it needs to know.
    pub config: C,
    /// Where lasting files are. The publisher's folder; a back-end has `domains/NAME` in it.
    pub state_dir: PathBuf,
    /// Where sockets are.
    pub run_dir: PathBuf,
    /// The bus: connected, with [`roster_bus::names::ROLE`] at the role's path, and without the
    /// role's name. Calls over it have a deadline of [`roster_bus::interfaces::CALL_DEADLINE`].
    /// When it is lost, the process ends.
    pub connection: zbus::Connection,
    /// The listening socket, for roles that serve one.
    pub listener: Option<OwnedFd>,
    /// Whether to stop.
    pub shutdown: Shutdown,
}

impl<C> Context<C> {
    /// Takes the role's name, once its objects are at its path: from now on others ask it.
    ///
    /// # Errors
    ///
    /// The bus does not give the name, or is gone.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let name = self.role.bus_name();
        let taken = async {
            loop {
                let reply = self
                    .connection
                    .request_name_with_flags(name.as_str(), RequestNameFlags::DO_NOT_QUEUE)
                    .await;
                match reply {
                    Ok(RequestNameReply::PrimaryOwner | RequestNameReply::AlreadyOwner) => {
                        return Ok(());
                    }
                    Ok(_) | Err(zbus::Error::NameTaken) => tokio::time::sleep(NAME_PAUSE).await,
                    Err(error) => return Err(error),
                }
            }
        };
        match tokio::time::timeout(NAME_WAIT, taken).await {
            Ok(taken) => taken.with_context(|| format!("the bus does not give the name {name}")),
            Err(_) => bail!("another process holds the name {name} on the bus"),
        }
    }
}

/// Tells that the role is to stop: SIGTERM came, or the monitor said so over the bus. A copy of it
/// may go into any task.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// Returns when the role is to stop. Cancel safe.
    pub async fn wait(&mut self) {
        // An error means that the sender is gone, and with it the reason to go on.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// Whether the role is to stop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// A shutdown and what sets it off.
    #[must_use]
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }
}
