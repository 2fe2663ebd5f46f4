//! The host's network: tells when links, addresses or routes change, by the kernel's own
//! announcements. A server that could not be reached a moment ago is then tried at once, and a
//! connection that may have lost its way is probed. Says nothing of what changed.

use crate::lock;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::future::pending;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

/// Groups of announcements: links, IPv4 addresses and routes, IPv6 addresses and routes.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// An interface that comes up makes many announcements; they are one event.
const SETTLE: Duration = Duration::from_millis(300);

/// The kernel's announcements, where they are to be had.
pub(crate) struct Network {
    socket: Option<AsyncFd<OwnedFd>>,
    /// When the event that was heard last is over; none when it was told.
    settles: Mutex<Option<Instant>>,
}

impl Network {
    /// Listens from now on. Without the right to, nothing is ever heard.
    pub fn listen() -> Self {
        let socket = open().map_err(|error| {
            tracing::debug!(%error, "no announcements of network changes");
        });
        Self { socket: socket.ok(), settles: Mutex::new(None) }
    }

    /// Over when something has changed. May be given up at any point: what was heard is told to the
    /// next caller.
    pub async fn changed(&self) {
        let Some(socket) = &self.socket else { return pending().await };
        loop {
            let settles = *lock(&self.settles);
            if let Some(settles) = settles {
                sleep_until(settles).await;
                // What comes from here on is another event.
                drain(socket);
                *lock(&self.settles) = None;
                return;
            }
            match socket.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return pending().await,
            }
            if drain(socket) {
                *lock(&self.settles) = Some(Instant::now() + SETTLE);
            }
        }
    }
}

/// Reads what has come, of which there is at most a socket's buffer; `false` when nothing has.
fn drain(socket: &AsyncFd<OwnedFd>) -> bool {
    const ANNOUNCEMENTS_MAX: usize = 10_000;
    for read in 0..ANNOUNCEMENTS_MAX {
        match recv(socket, &mut [0; 4096], RecvFlags::DONTWAIT) {
            // An overflow is as good as an announcement.
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
    // Its successor is unsafe for the sake of types whose descriptor may change; that of an
    // `OwnedFd` does not.
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

    /// Whether a change is told without a wait.
    async fn is_told(network: &Network) -> bool {
        let mut changed = pin!(network.changed());
        let is_told =
            poll_fn(|context| Poll::Ready(changed.as_mut().poll(context).is_ready())).await;
        tokio::task::yield_now().await;
        is_told
    }

    /// Set in the second life of the test, which has a network of its own to change.
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
            let network = Network::listen();
            let a_while = Duration::from_secs(1);
            assert!(timeout(a_while, network.changed()).await.is_err(), "nothing has changed yet");
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.expect("ip of iproute2").success());
            // From here on the clock moves only by hand.
            tokio::time::pause();
            // As when other things happen all the time: whoever waits turns to them and comes back.
            while lock(&network.settles).is_none() {
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
