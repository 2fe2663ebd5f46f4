// SPDX-License-Identifier: MIT OR Apache-2.0
//! The monitor's connection to the bus. Joins the bus once it listens, and reports ready roles, ping replies and the
//! loss of the bus. Runs in tasks beside the monitor's loop, which never waits for the bus. `role_proxy` has the calls,
//! and `supervision` decides.

use super::config_load::LoadedConfig;
use super::dbus;
use super::process_plan::ProcessKey;
use super::role_proxy::role_proxy;
use super::watched_keys::FoundKeys;
use futures_util::StreamExt;
use parking_lot::Mutex;
use roster_bus::bus_names::{PREFIX, PUBLISHER, RoleName};
use roster_bus::zbus::fdo::{DBusProxy, NameOwnerChanged, RequestNameFlags};
use roster_bus::zbus::names::{BusName, OwnedWellKnownName};
use roster_bus::zbus::proxy::CacheProperties;
use roster_bus::zbus::{self, Connection, MatchRule, MessageStream, message};
use roster_role::error_code::CodedErrors;
use roster_role::role_object::RoleObject;
use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// First pause between attempts to join. It doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
/// Longest pause between attempts to join.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Time limit of one attempt to join, and of any call to the bus itself.
const WAIT: Duration = Duration::from_secs(5);

/// Signals that may wait for their short processing.
const SIGNALS_MAX: NonZero<usize> = NonZero::new(256).unwrap();
/// Names that may wait for a query. There are no more roles.
const NAMES_MAX: usize = 64;

/// Events for the monitor. `link` numbers the connections to the bus, so that the monitor can ignore events of an
/// earlier one.
pub enum MonitorEvent {
    /// The monitor is on the bus.
    Joined {
        /// The number of the connection.
        link: u64,
        /// The connection.
        connection: Connection,
    },
    /// The bus is lost.
    BusLost {
        /// The number of the connection.
        link: u64,
    },
    /// A process took a name.
    NameTaken {
        /// The number of the connection.
        link: u64,
        /// The name.
        name: String,
        /// The process.
        pid: u32,
    },
    /// A round of pings has ended.
    PingsDone {
        /// The number of the connection.
        link: u64,
        /// The processes with their process ids, and whether they replied. Only the bus if it did not reply.
        answers: Vec<(ProcessKey, u32, bool)>,
    },
    /// The content of keytabs and client certificates, by domain.
    KeytabsRead(Vec<FoundKeys>),
    /// The publisher has put a snapshot in place.
    Published,
    /// A client connected to a role's socket.
    SocketUsed(ProcessKey),
    /// The configuration was read again.
    ConfigRead {
        /// The new content.
        settings: Result<Box<LoadedConfig>, CodedErrors>,
        /// Channel for the outcome.
        done: Option<dbus::ReloadRequest>,
    },
}

/// Joins the bus at `address`, and sends events until the bus is lost or the receiver is dropped.
pub async fn hold_connection(
    link: u64,
    address: String,
    objects: impl Fn() -> (RoleObject, dbus::MonitorObject),
    news: mpsc::Sender<MonitorEvent>,
) {
    let mut pause = PAUSE_FIRST;
    let (connection, bus, changes, publications) = loop {
        match timeout(WAIT, join_bus(&address, objects())).await {
            Ok(Ok(joined)) => break joined,
            Ok(Err(error)) => tracing::debug!("not on the bus yet: {error}"),
            Err(_) => tracing::debug!("not on the bus yet: it does not answer"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    };
    if news.send(MonitorEvent::Joined { link, connection: connection.clone() }).await.is_err() {
        return;
    }
    let taken = Arc::new(TakenNames::default());
    // Ends with this task.
    let mut noting = JoinSet::new();
    noting.spawn(Arc::clone(&taken).collect_changes(changes));
    noting.spawn(forward_publications(publications, news.clone()));
    loop {
        tokio::select! {
            () = connection.closed() => break,
            () = taken.added.notified() => {}
        }
        for name in taken.drain_names() {
            let asked = bus.get_connection_unix_process_id(name.clone().into());
            // An error means that the process has ended already.
            if let Ok(Ok(pid)) = timeout(WAIT, asked).await {
                let named = MonitorEvent::NameTaken { link, name: name.to_string(), pid };
                if news.send(named).await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = news.send(MonitorEvent::BusLost { link }).await;
}

/// Names that were taken since the last read, without duplicates. The connection delivers signals one after the other
/// and waits for their readers. A reader that makes a call between two signals could therefore wait for itself.
#[derive(Default)]
struct TakenNames {
    names: Mutex<BTreeSet<OwnedWellKnownName>>,
    added: Notify,
}

impl TakenNames {
    /// Collects signals as they arrive, and never waits for anything else.
    async fn collect_changes(self: Arc<Self>, mut changes: MessageStream) {
        while let Some(Ok(message)) = changes.next().await {
            let Some(change) = NameOwnerChanged::from_message(message) else { continue };
            let Ok(change) = change.args() else { continue };
            if let (BusName::WellKnown(name), Some(_)) = (change.name(), &**change.new_owner()) {
                self.add(name.clone().into());
            }
        }
    }

    fn add(&self, name: OwnedWellKnownName) {
        let mut names = self.names.lock();
        if names.len() < NAMES_MAX {
            names.insert(name);
            self.added.notify_one();
        }
    }

    fn drain_names(&self) -> BTreeSet<OwnedWellKnownName> {
        std::mem::take(&mut *self.names.lock())
    }
}

/// Matches changes of role names, but not of the unnamed connections.
fn name_change_rule() -> zbus::Result<MatchRule<'static>> {
    MatchRule::builder()
        .msg_type(message::Type::Signal)
        .sender("org.freedesktop.DBus")
        .interface("org.freedesktop.DBus")
        .member("NameOwnerChanged")
        .arg0ns(PREFIX)
        .build()
}

type JoinedBus = (Connection, DBusProxy<'static>, MessageStream, MessageStream);

/// Forwards one signal of the publisher. Further ones are dropped.
async fn forward_publications(mut signals: MessageStream, news: mpsc::Sender<MonitorEvent>) {
    while let Some(Ok(_)) = signals.next().await {
        if news.try_send(MonitorEvent::Published).is_ok() {
            return;
        }
    }
}

/// Matches the signal of a published snapshot.
fn publication_rule() -> zbus::Result<MatchRule<'static>> {
    MatchRule::builder()
        .msg_type(message::Type::Signal)
        .interface(PUBLISHER)
        .member("SnapshotPublished")
        .build()
}

async fn join_bus(
    address: &str,
    (role_object, monitor_object): (RoleObject, dbus::MonitorObject),
) -> zbus::Result<JoinedBus> {
    let path = RoleName::Monitor.path();
    let connection = zbus::connection::Builder::address(address)
        .method_timeout(WAIT)
        .serve_at(path.as_str(), role_object)
        .serve_at(path.as_str(), monitor_object)
        .build()
        .await?;
    let bus = DBusProxy::builder(&connection).cache_properties(CacheProperties::No).build().await?;
    let changes =
        MessageStream::for_match_rule(name_change_rule()?, &connection, Some(SIGNALS_MAX)).await?;
    let signals =
        MessageStream::for_match_rule(publication_rule()?, &connection, Some(SIGNALS_MAX)).await?;
    let name = RoleName::Monitor.bus_name();
    connection.request_name_with_flags(name, RequestNameFlags::DO_NOT_QUEUE).await?;
    Ok((connection, bus, changes, signals))
}

/// Pings the bus and then the roles, each with the deadline `within`.
pub async fn ping_all(
    link: u64,
    connection: Connection,
    roles: Vec<(ProcessKey, u32)>,
    within: Duration,
    news: mpsc::Sender<MonitorEvent>,
) {
    let mut answers = Vec::new();
    let alive =
        async { DBusProxy::new(&connection).await?.get_id().await.map_err(zbus::Error::from) };
    let alive = matches!(timeout(within, alive).await, Ok(Ok(_)));
    answers.push((ProcessKey::Bus, 0, alive));
    // While the bus hangs, missing replies of roles mean nothing.
    if alive {
        let mut asked = JoinSet::new();
        for (key, pid) in roles {
            let connection = connection.clone();
            asked.spawn(async move {
                let answer =
                    matches!(timeout(within, ping_process(&connection, &key)).await, Ok(Ok(())));
                (key, pid, answer)
            });
        }
        answers.extend(asked.join_all().await);
    }
    let _ = news.send(MonitorEvent::PingsDone { link, answers }).await;
}

/// Requests the status of a role. A reply shows that the role reads the bus and runs its loop.
async fn ping_process(connection: &Connection, key: &ProcessKey) -> zbus::Result<()> {
    let ProcessKey::Role(role) = key else { return Ok(()) };
    let asked = Instant::now();
    let proxy = role_proxy(connection, role).await?;
    proxy.status().await.map_err(|error| zbus::Error::Failure(error.to_string()))?;
    metrics::histogram!("roster_bus_seconds", "peer" => role.to_string())
        .record(asked.elapsed().as_secs_f64());
    Ok(())
}
