// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a role in this process.
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
    let helper = match R::start_helper(&launch) {
        Ok(helper) => helper,
        Err(error) => {
            let error = ensure_code(error, &daemon::ROLE_HELPER_FAILED);
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
        Err(RoleFailure::BusLost) => {
            log!(WARN, &daemon::BUS_LOST, "the bus: connection lost; this process exits");
            exit_status::TEMPORARY
        }
        Err(RoleFailure::OutsideSandbox(file)) => {
            log!(
                WARN,
                &daemon::FILE_OUTSIDE_SANDBOX,
                "{}: moved outside this process's Landlock sandbox; this process exits",
                file.display()
            );
            exit_status::TEMPORARY
        }
        Err(RoleFailure::Failed(error)) => {
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
        let connecting = zbus::connection::Builder::address(address.as_str())
            .method_timeout(R::CALL_DEADLINE)
            .serve_at(role.path(), object)
            .build();
        let connection = match timeout(CONNECT_WAIT, connecting).await {
            Ok(connection) => connection
                .with_code(&daemon::BUS_UNREACHABLE, || format!("{address}: cannot connect"))?,
            Err(_) => {
                let text = format!("{address}: no reply within {CONNECT_WAIT:?}");
                return Err(CodedError::new(&daemon::BUS_NO_REPLY, text).into());
            }
        };
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

fn is_listening(socket: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_acceptconn(socket) == Ok(true)
}
