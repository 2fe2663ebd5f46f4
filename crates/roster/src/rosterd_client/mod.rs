//! The commands that ask a running rosterd: [`status`], [`domain`], [`cache`], [`access`], [`ssh_keys`],
//! [`log_level`].
//!
//! All but [`ssh_keys`] come in as callers on the daemon's own bus, whose socket is for root and the
//! daemon's own users. Nothing is decided here: what is asked of whom is in the interfaces of `roster-bus`.

pub mod access;
pub mod cache;
pub mod domain;
pub mod log_level;
mod old_processes;
mod rejected_entries;
pub mod ssh_keys;
pub mod status;
pub mod status_checks;
#[cfg(test)]
mod status_fixture;
pub mod status_report;

use anyhow::{Result, anyhow, bail};
use roster_bus::bus_names::{self, RoleName, SOCKET};
use roster_bus::interfaces::{
    BackendProxy, BusError, CALL_DEADLINE, MonitorProxy, PublisherProxy, RoleProxy,
};
use roster_bus::zbus::{self, Connection, fdo, proxy::CacheProperties};
use std::fmt;
use std::future::Future;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a bus that listens may take to let us in.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Why nobody can be asked.
#[derive(Debug)]
pub enum ConnectError {
    /// There is no daemon.
    NotRunning(PathBuf, &'static str),
    /// There is one, and not for us.
    NotAllowed(PathBuf),
    /// It has a socket and does not behave.
    Silent(PathBuf, String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning(socket, why) => write!(
                f,
                "rosterd is not running: {why} {}\n  start it: systemctl start rosterd\n  one with \
                 another --run-dir: name the same folder here",
                socket.display()
            ),
            Self::NotAllowed(socket) => write!(
                f,
                "no permission to ask rosterd at {}, which is for root and for the user that it runs \
                 as: try sudo",
                socket.display()
            ),
            Self::Silent(socket, why) => write!(
                f,
                "rosterd's bus at {} does not let us in: {why}\n  see its log: journalctl -u rosterd",
                socket.display()
            ),
        }
    }
}

impl std::error::Error for ConnectError {}

/// A way to the roles of a running daemon.
#[derive(Clone)]
pub struct BusClient {
    connection: Connection,
}

/// Runs a command's conversation with the daemon.
pub fn run_async<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(future)
}

impl BusClient {
    /// Comes in at the bus in this folder.
    pub async fn connect(run_dir: &Path) -> Result<Self, ConnectError> {
        Self::connect_for(run_dir, CALL_DEADLINE).await
    }

    /// The same for calls that wait no longer than this.
    pub async fn connect_for(run_dir: &Path, wait: Duration) -> Result<Self, ConnectError> {
        let socket = run_dir.join(SOCKET);
        // Not the standard library's, which would wait for one that takes in nobody.
        let stream = tokio::net::UnixStream::connect(&socket).await;
        let stream = match stream.and_then(tokio::net::UnixStream::into_std) {
            Ok(stream) => stream,
            Err(error) => {
                return Err(match error.kind() {
                    ErrorKind::NotFound => ConnectError::NotRunning(socket, "there is no socket"),
                    ErrorKind::ConnectionRefused => {
                        ConnectError::NotRunning(socket, "nobody listens on")
                    }
                    ErrorKind::PermissionDenied => ConnectError::NotAllowed(socket),
                    ErrorKind::WouldBlock => {
                        ConnectError::Silent(socket, "too many are waiting already".to_owned())
                    }
                    _ => ConnectError::Silent(socket, error.to_string()),
                });
            }
        };
        let connecting =
            zbus::connection::Builder::unix_stream(stream).method_timeout(wait).build();
        match tokio::time::timeout(CONNECT_WAIT, connecting).await {
            Ok(Ok(connection)) => Ok(Self { connection }),
            // A bus that does not know the user hangs up in the middle of the handshake.
            Ok(Err(_)) if !is_ours(&socket) => Err(ConnectError::NotAllowed(socket)),
            Ok(Err(error)) => Err(ConnectError::Silent(socket, error.to_string())),
            Err(_) => {
                let why = format!("no answer in {} s", CONNECT_WAIT.as_secs());
                Err(ConnectError::Silent(socket, why))
            }
        }
    }

    pub async fn monitor(&self) -> Result<MonitorProxy<'static>> {
        let proxy = MonitorProxy::builder(&self.connection).cache_properties(CacheProperties::No);
        Ok(proxy.build().await?)
    }

    pub async fn publisher(&self) -> Result<PublisherProxy<'static>> {
        let proxy = PublisherProxy::builder(&self.connection).cache_properties(CacheProperties::No);
        Ok(proxy.build().await?)
    }

    /// A domain's back-end.
    pub async fn backend(&self, domain: &str) -> Result<BackendProxy<'static>> {
        let role = RoleName::Backend(domain.to_owned());
        let proxy = BackendProxy::builder(&self.connection)
            .destination(role.bus_name())
            .path(role.path())
            .cache_properties(CacheProperties::No);
        Ok(proxy.build().await?)
    }

    /// What every role offers.
    pub async fn role(&self, role: &RoleName) -> Result<RoleProxy<'static>> {
        let proxy = RoleProxy::builder(&self.connection)
            .destination(role.bus_name())
            .path(role.path())
            .cache_properties(CacheProperties::No);
        Ok(proxy.build().await?)
    }

    /// The names of the domains, in order of precedence.
    pub async fn domains(&self) -> Result<Vec<String>> {
        let status = self.monitor().await?.status().await;
        Ok(status.map_err(|error| call_error(&RoleName::Monitor, &error))?.domains)
    }

    /// Refuses a name that is no domain's.
    pub async fn check_domain(&self, name: &str) -> Result<()> {
        let domains = self.domains().await?;
        if !domains.iter().any(|domain| domain == name) {
            bail!("there is no domain {name:?}; there are: {}", domains.join(", "));
        }
        Ok(())
    }
}

/// Whether the bus would let us in by its policy: it is for root and its own user.
fn is_ours(socket: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    uid == 0 || socket.metadata().is_ok_and(|metadata| metadata.uid() == uid)
}

/// What a failed call means to a person.
pub fn call_error(role: &RoleName, error: &BusError) -> anyhow::Error {
    let restarting = "is not there: it is being started again, see `roster status`";
    match error {
        BusError::Unavailable(why)
        | BusError::Invalid(why)
        | BusError::Busy(why)
        | BusError::Denied(why) => {
            anyhow!("{role}: {why}")
        }
        BusError::ZBus(zbus::Error::FDO(error)) => match &**error {
            fdo::Error::ServiceUnknown(_) | fdo::Error::NameHasNoOwner(_) => {
                anyhow!("{role} {restarting}")
            }
            fdo::Error::NoReply(_) => {
                anyhow!("{role} ended in the middle of the answer; ask again")
            }
            fdo::Error::AccessDenied(why) => {
                anyhow!("{role}: no permission ({why}); this is for root: try sudo")
            }
            other => anyhow!("{role}: {other}"),
        },
        BusError::ZBus(zbus::Error::InputOutput(error)) if error.kind() == ErrorKind::TimedOut => {
            anyhow!("{role} does not answer: it is busy, or hangs and is ended soon")
        }
        BusError::ZBus(zbus::Error::InputOutput(error)) => {
            anyhow!("the bus was lost while {role} was asked: {error}; ask again")
        }
        BusError::ZBus(zbus::Error::MethodError(name, why, _)) => match why {
            // One of the errors of the interfaces, in a place where the proxy does not tell them.
            Some(why) if name.as_str().starts_with(bus_names::ERROR) => anyhow!("{role}: {why}"),
            why => anyhow!(
                "{role}: {name}{}",
                why.as_deref().map_or(String::new(), |w| format!(": {w}"))
            ),
        },
        BusError::ZBus(other) => anyhow!("{role}: {other}"),
    }
}

/// Seconds since 1970.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// How long ago something was, as people say it.
pub fn age(now: u64, then: u64) -> String {
    match now.saturating_sub(then) {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// The same of a time that may not have come yet.
pub fn ago(now: u64, then: u64) -> String {
    match then {
        0 => "never".to_owned(),
        then if then >= now => "just now".to_owned(),
        then => format!("{} ago", age(now, then)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        let now = 1_000_000;
        for (then, text) in [
            (0, "never"),
            (now, "just now"),
            (now + 5, "just now"),
            (now - 3, "3 s ago"),
            (now - 90, "1 min ago"),
            (now - 7199, "119 min ago"),
            (now - 7200, "2 h ago"),
            (now - 3 * 86_400, "3 days ago"),
        ] {
            assert_eq!(ago(now, then), text);
        }
    }

    #[test]
    fn a_missing_daemon_is_told_with_its_socket_and_how_to_start_it() {
        let folder = tempfile::tempdir().unwrap();
        let error =
            run_async(async { Ok(BusClient::connect(folder.path()).await?) }).err().unwrap();
        let text = error.to_string();
        assert!(text.starts_with("rosterd is not running: there is no socket"), "{text}");
        assert!(text.contains("systemctl start rosterd"), "{text}");

        drop(std::os::unix::net::UnixListener::bind(folder.path().join(SOCKET)).unwrap());
        let error =
            run_async(async { Ok(BusClient::connect(folder.path()).await?) }).err().unwrap();
        assert!(matches!(
            error.downcast_ref(),
            Some(ConnectError::NotRunning(_, "nobody listens on"))
        ));
    }

    #[test]
    fn a_socket_whose_owner_is_no_bus_is_an_error_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let strange = std::thread::spawn(move || drop(listener.accept()));
        let error =
            run_async(async { Ok(BusClient::connect(folder.path()).await?) }).err().unwrap();
        strange.join().unwrap();
        assert!(matches!(error.downcast_ref(), Some(ConnectError::Silent(..))), "{error}");
    }

    #[test]
    fn a_role_that_is_away_is_named() {
        let role = RoleName::Backend("corp".to_owned());
        let unknown = fdo::Error::ServiceUnknown("x".to_owned());
        let error = BusError::ZBus(zbus::Error::FDO(Box::new(unknown)));
        assert_eq!(
            call_error(&role, &error).to_string(),
            "backend:corp is not there: it is being started again, see `roster status`"
        );
        let late = std::io::Error::from(ErrorKind::TimedOut);
        let error = BusError::ZBus(zbus::Error::InputOutput(late.into()));
        assert_eq!(
            call_error(&role, &error).to_string(),
            "backend:corp does not answer: it is busy, or hangs and is ended soon"
        );
        let error = BusError::Invalid("no such thing".to_owned());
        assert_eq!(call_error(&role, &error).to_string(), "backend:corp: no such thing");
    }
}
