// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands that query a running rosterd: [`status`], [`domain`], [`cache`], [`access`], [`ssh_keys`],
//! [`log_level`]. All except [`ssh_keys`] connect to the daemon's bus. Its socket is for root and the users of the
//! daemon. Passwords and keys pass the socket for PAM. No decision is made here: the interfaces of `roster-bus` define each request.

pub mod access;
pub mod cache;
pub mod domain;
pub mod log_level;
mod old_processes;
mod pam_socket;
mod password_trial;
mod rejected_entries;
pub mod ssh_keys;
pub mod status;
pub mod status_checks;
pub mod status_report;

use crate::finding::split_code;
use anyhow::Result;
use roster_bus::bus_names::{self, RoleName, SOCKET};
use roster_bus::interfaces::{
    BackendProxy, BusError, CALL_DEADLINE, MonitorProxy, PublisherProxy, RoleProxy,
};
use roster_bus::zbus::{self, Connection, fdo, proxy::CacheProperties};
use roster_messages::table::tools;
use roster_messages::{CodedError, Message};
use std::fmt::Display;
use std::future::Future;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Timeout of the handshake with a bus that listens.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// A connection to the roles of a running daemon.
#[derive(Clone)]
pub struct BusClient {
    connection: Connection,
}

/// Runs the requests of a command.
pub fn run_async<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(future)
}

/// Returns whether an error has that row of the table.
pub fn has_code(error: &anyhow::Error, message: &Message) -> bool {
    error.downcast_ref::<CodedError>().is_some_and(|error| error.message == message)
}

impl BusClient {
    /// Connects to the bus in this directory.
    pub async fn connect(run_dir: &Path) -> Result<Self, CodedError> {
        Self::connect_for(run_dir, CALL_DEADLINE).await
    }

    /// Connects to the bus in this directory. `wait` is the timeout of each call.
    pub async fn connect_for(run_dir: &Path, wait: Duration) -> Result<Self, CodedError> {
        let socket = run_dir.join(SOCKET);
        let name = socket.display();
        let not_running = |why| {
            let text = format!("rosterd is not running: {name}: {why}");
            CodedError::new(&tools::ROSTERD_NOT_RUNNING, text)
        };
        let not_permitted = || {
            let text = format!("{name}: this user may not query rosterd");
            CodedError::new(&tools::BUS_NOT_PERMITTED, text)
        };
        let unusable = |why: &dyn Display| {
            let text = format!("{name}: the bus does not accept the connection: {why}");
            CodedError::new(&tools::BUS_UNUSABLE, text)
        };
        // Not the standard library's connect, which would wait for a socket with a full backlog.
        let stream = tokio::net::UnixStream::connect(&socket).await;
        let stream = match stream.and_then(tokio::net::UnixStream::into_std) {
            Ok(stream) => stream,
            Err(error) => {
                return Err(match error.kind() {
                    ErrorKind::NotFound => not_running("the socket does not exist"),
                    ErrorKind::ConnectionRefused => not_running("no process listens"),
                    ErrorKind::PermissionDenied => not_permitted(),
                    ErrorKind::WouldBlock => unusable(&"connection backlog is full"),
                    _ => unusable(&error),
                });
            }
        };
        let connecting =
            zbus::connection::Builder::unix_stream(stream).method_timeout(wait).build();
        match tokio::time::timeout(CONNECT_WAIT, connecting).await {
            Ok(Ok(connection)) => Ok(Self { connection }),
            // The bus closes the connection of an unknown user during the handshake.
            Ok(Err(_)) if !is_ours(&socket) => Err(not_permitted()),
            Ok(Err(error)) => Err(unusable(&error)),
            Err(_) => Err(unusable(&format!("no reply within {} s", CONNECT_WAIT.as_secs()))),
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

    /// Returns the backend of a domain.
    pub async fn backend(&self, domain: &str) -> Result<BackendProxy<'static>> {
        let role = RoleName::Backend(domain.to_owned());
        let proxy = BackendProxy::builder(&self.connection)
            .destination(role.bus_name())
            .path(role.path())
            .cache_properties(CacheProperties::No);
        Ok(proxy.build().await?)
    }

    /// Returns the interface that every role has.
    pub async fn role(&self, role: &RoleName) -> Result<RoleProxy<'static>> {
        let proxy = RoleProxy::builder(&self.connection)
            .destination(role.bus_name())
            .path(role.path())
            .cache_properties(CacheProperties::No);
        Ok(proxy.build().await?)
    }

    /// Returns the names of the domains, in order of priority.
    pub async fn domains(&self) -> Result<Vec<String>> {
        let status = self.monitor().await?.status().await;
        Ok(status.map_err(|error| call_error(&RoleName::Monitor, &error))?.domains)
    }

    /// Fails if no domain has the name.
    pub async fn check_domain(&self, name: &str) -> Result<()> {
        let domains = self.domains().await?;
        if !domains.iter().any(|domain| domain == name) {
            let text = format!("unknown domain {name:?}: the domains are {}", domains.join(", "));
            return Err(CodedError::new(&tools::UNKNOWN_DOMAIN, text).into());
        }
        Ok(())
    }
}

/// Returns whether the policy of the bus allows this user: root, or the owner of the socket.
fn is_ours(socket: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    uid == 0 || socket.metadata().is_ok_and(|metadata| metadata.uid() == uid)
}

/// Returns the error of a failed call.
pub fn call_error(role: &RoleName, error: &BusError) -> CodedError {
    let of = |message, why: &dyn Display| {
        let why = why.to_string();
        // Roles of rosterd send errors with fix and code.
        if let (why, Some(message)) = split_code(&why)
            && let Some((text, fix)) = why.split_once(". ")
        {
            return CodedError::new(message, format!("{role}: {text}")).fix(fix);
        }
        CodedError::new(message, format!("{role}: {why}"))
    };
    match error {
        BusError::Unavailable(why) | BusError::Away(why) => of(&tools::ROLE_UNAVAILABLE, why),
        BusError::Invalid(why) => of(&tools::REQUEST_INVALID, why),
        BusError::Busy(why) => of(&tools::ROLE_BUSY, why),
        BusError::Denied(why) => of(&tools::REQUEST_DENIED, why),
        BusError::ZBus(zbus::Error::FDO(error)) => match &**error {
            fdo::Error::ServiceUnknown(_) | fdo::Error::NameHasNoOwner(_) => {
                of(&tools::ROLE_RESTARTING, &"not running")
            }
            fdo::Error::NoReply(_) => of(&tools::ROLE_ENDED, &"ended before its reply"),
            fdo::Error::AccessDenied(why) => {
                of(&tools::BUS_NOT_PERMITTED, &format!("the bus denies the call: {why}"))
            }
            other => of(&tools::BUS_ERROR, other),
        },
        BusError::ZBus(zbus::Error::InputOutput(error)) if error.kind() == ErrorKind::TimedOut => {
            of(&tools::ROLE_TIMED_OUT, &"no reply within the timeout")
        }
        BusError::ZBus(zbus::Error::InputOutput(error)) => {
            of(&tools::BUS_LOST, &format!("the connection to the bus was lost: {error}"))
        }
        BusError::ZBus(zbus::Error::MethodError(name, why, _)) => match why {
            // An error of the interfaces that the proxy does not map.
            Some(why) if name.as_str().starts_with(bus_names::ERROR) => {
                of(&tools::ROLE_UNAVAILABLE, why)
            }
            why => {
                let why = why.as_deref().map_or(String::new(), |why| format!(": {why}"));
                of(&tools::BUS_ERROR, &format!("{name}{why}"))
            }
        },
        BusError::ZBus(other) => of(&tools::BUS_ERROR, other),
    }
}

/// Adds errors of several roles to one text.
pub fn join_errors(errors: &[CodedError]) -> String {
    errors.iter().map(|error| &*error.text).collect::<Vec<_>>().join("; ")
}

/// Returns the time in seconds since 1970.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Formats the time since `then` in one unit.
pub fn age(now: u64, then: u64) -> String {
    match now.saturating_sub(then) {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Formats the time since `then` with "ago". 0 is a time that never was.
pub fn ago(now: u64, then: u64) -> String {
    match then {
        0 => "never".to_owned(),
        then if then >= now => "just now".to_owned(),
        then => format!("{} ago", age(now, then)),
    }
}

#[cfg(test)]
mod status_fixture;

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

    fn connect_error(run_dir: &Path) -> anyhow::Error {
        run_async(async { Ok(BusClient::connect(run_dir).await?) }).err().unwrap()
    }

    #[test]
    fn bus_client_missing_daemon_names_socket_and_fix() {
        let folder = tempfile::tempdir().unwrap();
        let error = connect_error(folder.path());
        let text = error.to_string();
        assert!(text.starts_with("rosterd is not running: "), "{text}");
        assert!(text.contains("bus: the socket does not exist. Run `systemctl start"), "{text}");
        assert!(text.ends_with("[RST-9001]"), "{text}");

        drop(std::os::unix::net::UnixListener::bind(folder.path().join(SOCKET)).unwrap());
        let error = connect_error(folder.path());
        assert!(has_code(&error, &tools::ROSTERD_NOT_RUNNING), "{error}");
        assert!(error.to_string().contains("no process listens"), "{error}");
    }

    #[test]
    fn bus_client_socket_without_bus_fails_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let strange = std::thread::spawn(move || drop(listener.accept()));
        let error = connect_error(folder.path());
        strange.join().unwrap();
        assert!(has_code(&error, &tools::BUS_UNUSABLE), "{error}");
    }

    #[test]
    fn call_error_names_role_and_condition() {
        let role = RoleName::Backend("corp".to_owned());
        let of = |error: &BusError| {
            let error = call_error(&role, error);
            (error.message, error.text)
        };
        let unknown = fdo::Error::ServiceUnknown("x".to_owned());
        let error = BusError::ZBus(zbus::Error::FDO(Box::new(unknown)));
        assert_eq!(of(&error), (&tools::ROLE_RESTARTING, "backend:corp: not running".to_owned()));
        let late = std::io::Error::from(ErrorKind::TimedOut);
        let error = BusError::ZBus(zbus::Error::InputOutput(late.into()));
        let text = "backend:corp: no reply within the timeout".to_owned();
        assert_eq!(of(&error), (&tools::ROLE_TIMED_OUT, text));
        let error = BusError::Busy("queue is full. Wait a minute. [RST-9006]".to_owned());
        let error = call_error(&role, &error).to_string();
        assert_eq!(error, "backend:corp: queue is full. Wait a minute. [RST-9006]");
        let error = BusError::Invalid("no such thing".to_owned());
        let text = "backend:corp: no such thing".to_owned();
        assert_eq!(of(&error), (&tools::REQUEST_INVALID, text));
    }

    #[test]
    fn call_error_has_code_of_condition() {
        let fdo = |error| BusError::ZBus(zbus::Error::FDO(Box::new(error)));
        let lost = std::io::Error::from(ErrorKind::BrokenPipe);
        for (error, message) in [
            (BusError::Unavailable("x".to_owned()), &tools::ROLE_UNAVAILABLE),
            (BusError::Busy("x".to_owned()), &tools::ROLE_BUSY),
            (BusError::Denied("x".to_owned()), &tools::REQUEST_DENIED),
            (fdo(fdo::Error::NoReply("x".to_owned())), &tools::ROLE_ENDED),
            (fdo(fdo::Error::AccessDenied("x".to_owned())), &tools::BUS_NOT_PERMITTED),
            (fdo(fdo::Error::Failed("x".to_owned())), &tools::BUS_ERROR),
            (BusError::ZBus(zbus::Error::InputOutput(lost.into())), &tools::BUS_LOST),
        ] {
            assert_eq!(call_error(&RoleName::Publisher, &error).message, message);
        }
    }
}
