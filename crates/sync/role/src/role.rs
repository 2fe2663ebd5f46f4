// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface between a role's code and the process around it. `process` runs the role, and `launch` has its input.

use crate::directories::SNAPSHOT_DIR;
use crate::error_code::WithCode;
use crate::launch::Launch;
use crate::sandbox::ResourceLimits;
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces;
use roster_bus::zbus::fdo::{RequestNameFlags, RequestNameReply};
use roster_bus::zbus::{self, Connection};
use roster_messages::{CodedError, table::daemon};
use roster_sandbox::SandboxSpec;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Time that a role waits for its name, which the previous process may still hold.
const NAME_WAIT: Duration = Duration::from_secs(5);
/// Pause between two attempts to get the name.
const NAME_PAUSE: Duration = Duration::from_millis(50);
/// Threads for work that waits for a disk: flushes of the cache, publications.
pub const DISK_THREADS_MAX: usize = 4;

/// The code of a role, and the rights of its process.
pub trait RoleProgram {
    /// The part of the configuration that the role gets from the monitor. A change of this part restarts the role.
    type Config;
    /// A process beside the role. It starts before the sandbox, while this process may still execute programs.
    type Helper;

    /// Deadline of a call over the bus.
    const CALL_DEADLINE: Duration = interfaces::CALL_DEADLINE;
    /// Threads for blocking work.
    const BLOCKING_THREADS_MAX: usize = DISK_THREADS_MAX;
    /// Whether programs of any user connect to the role. Such a program can send descriptors, and close(2) of one may
    /// take an hour. The role closes them in another thread.
    const SERVES_PROGRAMS: bool = false;
    /// Limits of the process.
    const LIMITS: ResourceLimits = ResourceLimits::INTERNAL;

    /// Returns files that the role follows. They may be replaced, as well as directories and links in their paths.
    fn watched_files(_config: &Self::Config) -> Vec<&Path> {
        Vec::new()
    }

    /// Returns the rights that the process retains.
    fn sandbox(_launch: &Launch<Self::Config>) -> SandboxSpec {
        SandboxSpec::default()
    }

    /// Starts the process beside the role.
    ///
    /// # Errors
    ///
    /// The role cannot work without it.
    fn start_helper(launch: &Launch<Self::Config>) -> anyhow::Result<Self::Helper>;

    /// Works until [`RoleContext::shutdown`] is set. The role puts its object at its path, calls
    /// [`RoleContext::announce_ready`], works, flushes and returns.
    ///
    /// # Errors
    ///
    /// The role cannot continue. The monitor restarts it.
    fn run(
        context: RoleContext<Self::Config>,
        helper: Self::Helper,
    ) -> impl Future<Output = anyhow::Result<()>>;
}

/// A user and its primary group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserIds {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl UserIds {
    /// Returns the owner of a file.
    #[must_use]
    pub fn from_stat(stat: &rustix::fs::Stat) -> Self {
        Self { uid: stat.st_uid, gid: stat.st_gid }
    }
}

/// Input of a role's code. `C` is the configuration of the role.
pub struct RoleContext<C> {
    /// Name of the role.
    pub role: RoleName,
    /// Configuration of the role.
    pub config: C,
    /// Directory of durable files: the publisher has [`SNAPSHOT_DIR`] in it, a backend `domains/NAME`.
    pub state_dir: PathBuf,
    /// Directory of sockets.
    pub run_dir: PathBuf,
    /// The bus: connected, with [`roster_bus::bus_names::ROLE`] at the role's path, and without the
    /// role's name. Calls over it have a deadline of [`roster_bus::interfaces::CALL_DEADLINE`].
    /// When it is lost, the process ends.
    pub connection: Connection,
    /// The listening socket, for roles that serve one.
    pub listener: Option<OwnedFd>,
    /// Whether to stop.
    pub shutdown: Shutdown,
}

impl<C> RoleContext<C> {
    /// Returns the directory of the snapshot.
    #[must_use]
    pub fn snapshot_dir(&self) -> PathBuf {
        self.state_dir.join(SNAPSHOT_DIR)
    }

    /// Requests the role's bus name, once its objects are at its path. Other roles call it from then on.
    ///
    /// # Errors
    ///
    /// The bus denies the name, or is lost.
    pub async fn announce_ready(&self) -> anyhow::Result<()> {
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
                    Ok(_) | Err(zbus::Error::NameTaken) => sleep(NAME_PAUSE).await,
                    Err(error) => return Err(error),
                }
            }
        };
        match timeout(NAME_WAIT, taken).await {
            Ok(taken) => Ok(taken.with_code(&daemon::BUS_NAME_DENIED, || {
                format!("{name}: the bus denies the name")
            })?),
            Err(_) => {
                let text = format!("{name}: another process owns the name on the bus");
                Err(CodedError::new(&daemon::BUS_NAME_TAKEN, text).into())
            }
        }
    }
}

/// The stop request of a role, by SIGTERM or from the monitor over the bus. Any task may have a clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// Returns when the role is to stop. Cancel safe.
    pub async fn wait(&mut self) {
        // An error means that the sender is dropped, so there is no reason to continue.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// Whether the role is to stop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Makes a stop request and its sender.
    #[must_use]
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestBus;

    #[tokio::test]
    async fn bus_name_not_granted_has_code() {
        for (restrictions, is_taken, message) in [
            (TestBus::NO_NAMES, false, &daemon::BUS_NAME_DENIED),
            (TestBus::OPEN, true, &daemon::BUS_NAME_TAKEN),
        ] {
            let folder = tempfile::tempdir().expect("a directory");
            let bus = TestBus::start(folder.path(), restrictions);
            let context = RoleContext {
                role: RoleName::Publisher,
                config: (),
                state_dir: PathBuf::new(),
                run_dir: PathBuf::new(),
                connection: bus.connect().await,
                listener: None,
                shutdown: Shutdown::new().1,
            };
            let other = bus.connect().await;
            if is_taken {
                other.request_name(context.role.bus_name()).await.expect("the name");
                // The limit of the wait passes without waiting.
                tokio::time::pause();
            }
            let error = context.announce_ready().await.expect_err("no name");
            assert_eq!(error.downcast::<CodedError>().expect("a code").message, message);
        }
    }
}
