//! Addresses of servers, by the C library: /etc/hosts and whatever else the `hosts:` line of
//! nsswitch.conf names count here as they do for every other program of the host.
//!
//! The price is that a question to it cannot be given up: with the host's name servers away it holds
//! a thread for half a minute. So a bounded number of threads is for that alone, and what writes to
//! disk never waits for DNS.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Host names that are looked up at once, a blocking thread each. Several, so that when the name
/// servers are back nobody waits for a question that was asked before.
pub const RESOLUTIONS_MAX: usize = 4;

/// The host's names, a few at a time.
#[derive(Clone)]
pub(crate) struct Names {
    places: Arc<Semaphore>,
}

impl Default for Names {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(RESOLUTIONS_MAX)) }
    }
}

impl Names {
    /// The addresses of a host, the best first. Waits for a place; may be given up at any point.
    pub async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let host = host.to_owned();
        self.ask(move || Ok((host.as_str(), port).to_socket_addrs()?.collect())).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
        let answer = spawn_blocking(move || {
            let answer = question();
            // Held by the thread, whoever still waits for it.
            drop(place);
            answer
        });
        answer.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use tokio::runtime::Builder;
    use tokio::time::timeout;

    /// The limit of a wait: it only ends a test that waits in vain.
    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn name_servers_that_hang_leave_threads_for_everything_else() {
        let threads = RESOLUTIONS_MAX + 1;
        let runtime =
            Builder::new_current_thread().enable_all().max_blocking_threads(threads).build();
        let runtime = runtime.expect("tokio");
        runtime.block_on(async {
            let names = Names::default();
            let mut hanging = Vec::new();
            for _ in 0..3 * RESOLUTIONS_MAX {
                let (release, released) = channel::<()>();
                hanging.push(release);
                let question = names.ask(move || {
                    let _ = released.recv();
                    Ok(())
                });
                // Each is given up, as after `connect_timeout`.
                assert!(timeout(Duration::from_millis(20), question).await.is_err());
            }
            let disk = timeout(SOON, spawn_blocking(|| 7)).await;
            assert_eq!(disk.expect("a thread is free").expect("no panic"), 7);
            // An address is no question.
            let address = timeout(SOON, names.resolve("::1", 389)).await;
            assert_eq!(address.expect("at once").expect("good")[0].port(), 389);
            drop(hanging);
            let again = timeout(SOON, names.ask(|| Ok(7))).await;
            assert_eq!(again.expect("places are free again").expect("good"), 7);
        });
    }
}
