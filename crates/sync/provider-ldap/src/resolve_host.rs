// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resolves the host names of servers by the C library. The sources are /etc/hosts and the others in the `hosts:` line
//! of nsswitch.conf, as for every other program of the host. `connection` connects to the addresses.
//!
//! A call of the C library cannot be cancelled. If the name servers are unreachable, it occupies a thread for half a
//! minute. A bounded number of threads therefore serves only this, so that disk writes never wait for DNS.

use roster_config::is_loopback_name;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Concurrent resolutions, each in a blocking thread. With several of them, a new request need not wait for an old one
/// after the name servers are back.
pub const RESOLUTIONS_MAX: usize = 4;

/// Resolves host names, a few at a time.
#[derive(Clone)]
pub(crate) struct HostResolver {
    permits: Arc<Semaphore>,
}

impl Default for HostResolver {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(RESOLUTIONS_MAX)) }
    }
}

impl HostResolver {
    /// Returns the addresses of a host, the best first. Waits for a permit. Cancel-safe.
    pub async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let host = host.to_owned();
        let resolved =
            move || usable(&host, (host.as_str(), port).to_socket_addrs()?.collect::<Vec<_>>());
        self.run_blocking(resolved).await
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        question: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let place = Arc::clone(&self.permits).acquire_owned().await.map_err(io::Error::other)?;
        let answer = spawn_blocking(move || {
            let answer = question();
            // The thread holds the permit, also if the caller was cancelled.
            drop(place);
            answer
        });
        answer.await.map_err(io::Error::other)?
    }
}

/// Selects the usable addresses of a host. A forging name server may add others to a loopback name. Passwords travel to
/// a loopback address without TLS.
fn usable(host: &str, mut addresses: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
    if !is_loopback_name(host) {
        return Ok(addresses);
    }
    let first = addresses.first().map(SocketAddr::ip);
    addresses.retain(|address| address.ip().is_loopback());
    match first.filter(|_| addresses.is_empty()) {
        Some(first) => Err(io::Error::other(format!("{first} is not a loopback address"))),
        None => Ok(addresses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use tokio::runtime::Builder;
    use tokio::time::timeout;

    /// The limit of a wait. It only ends a failing test.
    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn loopback_names_have_loopback_addresses_only() {
        let [local, v6, other] = ["127.0.0.1:389", "[::1]:389", "192.0.2.1:389"]
            .map(|address| address.parse::<SocketAddr>().expect("an address"));
        for name in ["localhost", "LocalHost.", "ldap.localhost"] {
            assert_eq!(usable(name, vec![other, local, v6]).expect("two"), [local, v6], "{name}");
            let refused = usable(name, vec![other]).expect_err(name).to_string();
            assert!(refused.contains("192.0.2.1 is not a loopback address"), "{refused}");
        }
        for name in ["ldap.example.com", "localhost.example.com", "notlocalhost"] {
            assert_eq!(usable(name, vec![other]).expect("any"), [other], "{name}");
        }
    }

    #[test]
    fn name_servers_that_hang_leave_threads_for_everything_else() {
        let threads = RESOLUTIONS_MAX + 1;
        let runtime =
            Builder::new_current_thread().enable_all().max_blocking_threads(threads).build();
        let runtime = runtime.expect("tokio");
        runtime.block_on(async {
            let names = HostResolver::default();
            let mut hanging = Vec::new();
            for _ in 0..3 * RESOLUTIONS_MAX {
                let (release, released) = channel::<()>();
                hanging.push(release);
                let question = names.run_blocking(move || {
                    let _ = released.recv();
                    Ok(())
                });
                // Each is cancelled, as after `connect_timeout`.
                assert!(timeout(Duration::from_millis(20), question).await.is_err());
            }
            let disk = timeout(SOON, spawn_blocking(|| 7)).await;
            assert_eq!(disk.expect("a thread is free").expect("no panic"), 7);
            // An address needs no resolution.
            let address = timeout(SOON, names.resolve("::1", 389)).await;
            assert_eq!(address.expect("at once").expect("good")[0].port(), 389);
            drop(hanging);
            let again = timeout(SOON, names.run_blocking(|| Ok(7))).await;
            assert_eq!(again.expect("places are free again").expect("good"), 7);
        });
    }
}
