// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches the host's network: reports changes of links, addresses or routes, as announced by the kernel. After a
//! change the provider retries an unreachable server at once, and sends a keepalive on an open connection. The report
//! has no details of the change. `follow_loop` and `lookup_connection` wait for it.

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::future::pending;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

/// Multicast groups: links, IPv4 addresses and routes, IPv6 addresses and routes.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// An interface that comes up causes many messages. They count as one event.
const SETTLE: Duration = Duration::from_millis(300);

/// The kernel's messages, if the socket is available.
pub(crate) struct NetworkWatch {
    socket: Option<AsyncFd<OwnedFd>>,
    /// End of the event in progress. `None` after it was reported.
    settles_at: Mutex<Option<Instant>>,
}

impl NetworkWatch {
    /// Opens the socket. Without permission, no change is ever reported.
    pub fn listen() -> Self {
        let socket = open().map_err(|error| {
            tracing::debug!(%error, "no announcements of network changes");
        });
        Self { socket: socket.ok(), settles_at: Mutex::new(None) }
    }

    /// Returns after a change. Cancel-safe: the next call reports a change that this one read.
    pub async fn changed(&self) {
        let Some(socket) = &self.socket else { return pending().await };
        loop {
            let settles = *self.settles_at.lock();
            if let Some(settles) = settles {
                sleep_until(settles).await;
                // Later messages are another event.
                drain(socket);
                *self.settles_at.lock() = None;
                return;
            }
            match socket.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return pending().await,
            }
            if drain(socket) {
                *self.settles_at.lock() = Some(Instant::now() + SETTLE);
            }
        }
    }
}

/// Reads the messages in the socket's buffer. Returns `false` if there are none.
fn drain(socket: &AsyncFd<OwnedFd>) -> bool {
    const ANNOUNCEMENTS_MAX: usize = 10_000;
    for read in 0..ANNOUNCEMENTS_MAX {
        match recv(socket, &mut [0; 4096], RecvFlags::DONTWAIT) {
            // An overflow counts as a message.
            Ok(_) | Err(Errno::NOBUFS) => {}
            Err(_) => return read > 0,
        }
    }
    true
}

fn open() -> std::io::Result<AsyncFd<OwnedFd>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
    // The replacement is unsafe for types with a changeable descriptor. The descriptor of an `OwnedFd` does not change.
    #[expect(deprecated)]
    AsyncFd::new(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::process::Command;
    use std::task::Poll;
    use tokio::time::timeout;

    /// Returns whether a change is reported at once.
    async fn is_told(network: &NetworkWatch) -> bool {
        let mut changed = pin!(network.changed());
        let is_told =
            poll_fn(|context| Poll::Ready(changed.as_mut().poll(context).is_ready())).await;
        tokio::task::yield_now().await;
        is_told
    }

    /// Set in the child process of the test, which has a network namespace that it may change.
    const ALONE: &str = "ROSTER_TEST_ALONE";

    #[test]
    fn network_link_up_is_reported_once() {
        if std::env::var_os(ALONE).is_none() {
            let test = std::env::current_exe().expect("this program");
            let again = Command::new("unshare")
                .args(["--user", "--map-root-user", "--net"])
                .arg(test)
                .args([
                    "--exact",
                    "network::tests::network_link_up_is_reported_once",
                    "--nocapture",
                ])
                .env(ALONE, "1")
                .output()
                .expect("unshare of util-linux");
            let said = String::from_utf8_lossy(&again.stderr).into_owned();
            if said.contains("unshare failed") {
                eprintln!("not tested, this machine has no user namespaces: {said}");
                return;
            }
            assert!(again.status.success(), "{}{said}", String::from_utf8_lossy(&again.stdout));
            return;
        }
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
        runtime.block_on(async {
            let network = NetworkWatch::listen();
            let a_while = Duration::from_secs(1);
            assert!(timeout(a_while, network.changed()).await.is_err(), "nothing has changed yet");
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.expect("ip of iproute2").success());
            // From here on only the test advances the clock.
            tokio::time::pause();
            // Each call is cancelled, as if other events arrived all the time.
            while network.settles_at.lock().is_none() {
                assert!(!is_told(&network).await, "before it has settled");
            }
            tokio::time::advance(SETTLE - Duration::from_millis(1)).await;
            assert!(!is_told(&network).await, "before it has settled");
            tokio::time::advance(Duration::from_millis(2)).await;
            assert!(is_told(&network).await);
            tokio::time::resume();
            assert!(timeout(a_while, network.changed()).await.is_err(), "once");
        });
    }
}
