// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a role in this process. `role` has the interface to the role's code, and `sandbox` the rights.
//!
//! Standard output of the process is the listening socket of the role. A role without one gets a file instead, for
//! the exit message.

use crate::error_code::{WithCode, code_of, ensure_code};
use crate::launch::{Launch, write_exit_message};
use crate::logging::{self, LogLevel, print_stderr};
use crate::metrics::Counters;
use crate::role_object::RoleObject;
use crate::watched_path_check::WatchedPaths;
use crate::{RoleContext, RoleProgram, Shutdown, exit_status, runtime, sandbox};
use roster_bus::bus_names::{RoleName, bus_address};
use roster_bus::zbus;
use roster_messages::{CodedError, log, table::daemon};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, SystemTime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tracing::info;

/// Time limit from the connection attempt until the role is on the bus.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Time limit from the stop request until the process ends. The monitor kills it after 5 s.
const STOP_WAIT: Duration = Duration::from_secs(4);

/// Runs a role from its start to its end. The result is the exit status.
#[must_use]
pub fn run<R: RoleProgram>(launch: Launch<R::Config>) -> u8 {
    let Some(role) = launch.role.as_deref().and_then(RoleName::parse) else {
        return exit_status::USAGE;
    };
    let reach = WatchedPaths::new(&R::watched_files(&launch.config));
    let helper = match start_helper::<R>(&launch) {
        Ok(helper) => helper,
        Err(error) => {
            print_stderr(format_args!("rosterd: {role}: {error:#}"));
            return exit_status::SOFTWARE;
        }
    };
    let limits = sandbox::apply(&R::sandbox(&launch), &R::LIMITS);
    // Counts from the first event of the log.
    let counters = Counters::start();
    let level = logging::start(&role, &launch.log);
    match serve::<R>(role, launch, helper, limits, &reach, (level, counters)) {
        Ok(()) => 0,
        Err(failure) => report_failure(failure),
    }
}

/// Starts the process beside the role.
fn start_helper<R: RoleProgram>(launch: &Launch<R::Config>) -> anyhow::Result<R::Helper> {
    R::start_helper(launch).map_err(|error| ensure_code(error, &daemon::ROLE_HELPER_FAILED))
}

/// Logs the failure, and leaves the exit message for the monitor. Returns the exit status.
fn report_failure(failure: RoleFailure) -> u8 {
    match failure {
        RoleFailure::BusLost => {
            log!(WARN, &daemon::BUS_LOST, "the bus: connection lost; this process exits");
            exit_status::TEMPORARY
        }
        RoleFailure::OutsideSandbox(file) => {
            log!(
                WARN,
                &daemon::FILE_OUTSIDE_SANDBOX,
                "{}: moved outside this process's Landlock sandbox; this process exits",
                file.display()
            );
            exit_status::TEMPORARY
        }
        RoleFailure::Failed(error) => {
            let error = ensure_code(error, &daemon::ROLE_FAILED);
            log!(ERROR, code_of(&error, &daemon::ROLE_FAILED), "{error:#}");
            write_exit_message(&format!("{error:#}"));
            exit_status::SOFTWARE
        }
    }
}

/// Reasons why a role ended without a stop request.
enum RoleFailure {
    BusLost,
    /// A watched file is in a directory without access rights.
    OutsideSandbox(PathBuf),
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for RoleFailure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

fn serve<R: RoleProgram>(
    role: RoleName,
    launch: Launch<R::Config>,
    helper: R::Helper,
    sandbox: String,
    reach: &WatchedPaths,
    (level, counters): (LogLevel, Counters),
) -> Result<(), RoleFailure> {
    let runtime = runtime::new(R::BLOCKING_THREADS_MAX, R::SERVES_PROGRAMS)
        .with_code(&daemon::PROCESS_SETUP_FAILED, || "cannot start the event loop")?;
    let result = runtime.block_on(async {
        let (stop, shutdown) = Shutdown::new();
        let mut terminate = signal(SignalKind::terminate())
            .with_code(&daemon::PROCESS_SETUP_FAILED, || "cannot receive SIGTERM")?;
        let object = RoleObject {
            role: role.clone(),
            started: SystemTime::now(),
            sandbox,
            level,
            counters,
            stop: stop.clone(),
            monitor_uid: launch.monitor_uid,
        };
        let address = bus_address(&launch.run_dir);
        let connection = join_bus(&address, role.path(), object, R::CALL_DEADLINE).await?;
        let closing = connection.clone();
        let Launch { config, state_dir, run_dir, .. } = launch;
        let listener = io::stdout().as_fd().try_clone_to_owned().ok().filter(is_listening);
        let context =
            RoleContext { role, config, state_dir, run_dir, connection, listener, shutdown };
        let mut work = pin!(R::run(context, helper));
        let why = tokio::select! {
            result = &mut work => return result.map_err(RoleFailure::Failed),
            () = closing.closed() => Some(RoleFailure::BusLost),
            file = reach.wait_until_outside() => Some(RoleFailure::OutsideSandbox(file)),
            _ = terminate.recv() => None,
        };
        if why.is_none() {
            info!("stops");
        }
        let _ = stop.send(true);
        // For any reason, the role may still have data to write.
        match (timeout(STOP_WAIT, work).await, why) {
            (_, Some(why)) => Err(why),
            (Ok(result), None) => result.map_err(RoleFailure::Failed),
            (Err(_), None) => {
                let text = format!("stop request: not finished within {STOP_WAIT:?}");
                Err(CodedError::new(&daemon::ROLE_STOP_TIMEOUT, text).into())
            }
        }
    });
    // Blocking work that still runs after this time is abandoned.
    runtime.shutdown_timeout(Duration::from_secs(2));
    result
}

/// Connects to the bus, with the role's object at its path.
async fn join_bus(
    address: &str,
    path: String,
    object: impl zbus::object_server::Interface,
    call_deadline: Duration,
) -> Result<zbus::Connection, CodedError> {
    let connecting = zbus::connection::Builder::address(address)
        .method_timeout(call_deadline)
        .serve_at(path, object)
        .build();
    match timeout(CONNECT_WAIT, connecting).await {
        Ok(connection) => {
            connection.with_code(&daemon::BUS_UNREACHABLE, || format!("{address}: cannot connect"))
        }
        Err(_) => {
            let text = format!("{address}: no reply within {CONNECT_WAIT:?}");
            Err(CodedError::new(&daemon::BUS_NO_REPLY, text))
        }
    }
}

fn is_listening(socket: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_acceptconn(socket) == Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_config::LogConfig;
    use roster_system_tests::logged_codes::logged_codes;
    use std::os::unix::net::UnixListener;

    #[test]
    fn process_failure_is_logged_with_code() {
        let moved = PathBuf::from("/etc/passwd");
        for (failure, message) in [
            (RoleFailure::BusLost, &daemon::BUS_LOST),
            (RoleFailure::OutsideSandbox(moved), &daemon::FILE_OUTSIDE_SANDBOX),
        ] {
            let logged = logged_codes(|| {
                assert_eq!(report_failure(failure), exit_status::TEMPORARY);
            });
            assert_eq!(logged, [message]);
        }
    }

    /// A role without an installed helper.
    struct RoleWithoutHelper;

    impl RoleProgram for RoleWithoutHelper {
        type Config = ();
        type Helper = ();

        fn start_helper(_: &Launch<()>) -> anyhow::Result<()> {
            Err(io::Error::from(io::ErrorKind::NotFound).into())
        }

        async fn run(_: RoleContext<()>, (): ()) -> anyhow::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn process_without_helper_has_code() {
        let launch = Launch {
            role: Some("publisher".into()),
            config: (),
            log: LogConfig { level: "info".into(), json: false },
            state_dir: PathBuf::new(),
            run_dir: PathBuf::new(),
            monitor_pid: 0,
            monitor_uid: 0,
        };
        let error = start_helper::<RoleWithoutHelper>(&launch).expect_err("no helper");
        assert_eq!(code_of(&error, &daemon::ROLE_FAILED), &daemon::ROLE_HELPER_FAILED);
    }

    struct Object;

    #[zbus::interface(name = "org.roster.Role1")]
    impl Object {}

    #[tokio::test(start_paused = true)]
    async fn bus_without_connection_has_code() {
        let folder = tempfile::tempdir().expect("a directory");
        let silent = folder.path().join("silent");
        let _listener = UnixListener::bind(&silent).expect("bind");
        for (path, message) in [
            (folder.path().join("missing"), &daemon::BUS_UNREACHABLE),
            (silent, &daemon::BUS_NO_REPLY),
        ] {
            let address = format!("unix:path={}", path.display());
            let path = RoleName::Publisher.path();
            let joined = join_bus(&address, path, Object, CONNECT_WAIT * 2).await;
            assert_eq!(joined.expect_err("no bus").message, message);
        }
    }
}
