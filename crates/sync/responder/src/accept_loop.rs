// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accepts connections, and serves each in a separate task. `connection_limits` bounds the connections of one user.

use super::connection_limits::{self, ConnectionLimits, ConnectionSlot, ConnectionTable};
use roster_messages::{log, table::daemon};
use roster_role::Shutdown;
use std::io;
use std::time::Duration;
use tokio::time::sleep;
use tracing::debug;

/// Pause after an error of accept(2), which is most likely a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until the role stops. `accept` returns the next connection and the user id of its client.
pub async fn serve_connections<C, S>(
    limits: ConnectionLimits,
    shutdown: &mut Shutdown,
    accept: impl AsyncFn() -> io::Result<(u32, C)>,
    serve: impl Fn(u32, C, ConnectionSlot) -> S,
) where
    S: Future<Output = io::Result<()>> + Send + 'static,
{
    metrics::describe_counter!(
        "roster_refused_connections_total",
        "Connections refused because their user, or all users, had too many"
    );
    let table = ConnectionTable::new(limits);
    loop {
        let accepted = tokio::select! {
            () = shutdown.wait() => return,
            accepted = accept() => accepted,
        };
        let (uid, connection) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                log!(WARN, &daemon::ACCEPT_FAILED, "cannot accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let admitted = connection_limits::admit(&table, uid, |slot| {
            let served = serve(uid, connection, slot);
            let served = async move {
                if let Err(error) = served.await {
                    debug!(uid, "a connection ended early: {error}");
                }
            };
            tokio::spawn(served).abort_handle()
        });
        if !admitted {
            metrics::counter!("roster_refused_connections_total").increment(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_role::testing::block_on;
    use roster_system_tests::logged_codes::logged_codes;
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn accept_failure_is_logged_and_retried() {
        let limits = ConnectionLimits { per_user: 1, for_root: 1, total: 1 };
        let (stop, mut shutdown) = Shutdown::new();
        let has_failed = AtomicBool::new(false);
        let accept = async || {
            if has_failed.swap(true, Ordering::Relaxed) {
                let _ = stop.send(true);
                return pending().await;
            }
            Err(io::Error::other("no descriptors"))
        };
        let serve = |_, (), _| ready(Ok(()));
        let logged =
            logged_codes(|| block_on(serve_connections(limits, &mut shutdown, accept, serve)));
        assert_eq!(logged, [&daemon::ACCEPT_FAILED]);
    }
}
