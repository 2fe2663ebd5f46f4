//! The monitor on the bus: joins it once it listens, tells which role is ready and who answers, and
//! that the bus is lost. Runs in tasks beside the monitor's loop, which never waits for the bus.

use super::object;
use super::plan::Key;
use crate::role;
use roster_bus::interfaces::RoleProxy;
use roster_bus::names::{PREFIX, Role};
use roster_bus::zbus::export::ordered_stream::OrderedStreamExt;
use roster_bus::zbus::fdo::{DBusProxy, RequestNameFlags};
use roster_bus::zbus::proxy::CacheProperties;
use roster_bus::zbus::{self, Connection};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Between the first tries to join; doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
/// Between tries to join, at the most.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// How long one try to join may take, and any call to the bus itself.
const WAIT: Duration = Duration::from_secs(5);

/// What the bus tells. `link` numbers the connections to it, so that news of an earlier one are known
/// for what they are.
pub enum News {
    /// The monitor is on the bus.
    Joined {
        /// Which connection.
        link: u64,
        /// It.
        connection: Connection,
    },
    /// The bus is lost.
    Lost {
        /// Which connection.
        link: u64,
    },
    /// A process took a name.
    Named {
        /// Which connection.
        link: u64,
        /// The name.
        name: String,
        /// The process.
        pid: u32,
    },
    /// A round of pings is over.
    Pinged {
        /// Which connection.
        link: u64,
        /// Who was asked, by which process id, and whether it answered. Nobody but the bus when that
        /// did not answer.
        answers: Vec<(Key, u32, bool)>,
    },
    /// Somebody connected to a role's socket.
    Used(Key),
}

/// Joins the bus at `address`, and tells `news` until the bus is lost or the receiver gone.
pub async fn hold(
    link: u64,
    address: String,
    objects: impl Fn() -> (role::Object, object::Object),
    news: mpsc::Sender<News>,
) {
    let mut pause = PAUSE_FIRST;
    let (connection, bus, mut changes) = loop {
        match timeout(WAIT, join(&address, objects())).await {
            Ok(Ok(joined)) => break joined,
            Ok(Err(error)) => tracing::debug!("not on the bus yet: {error}"),
            Err(_) => tracing::debug!("not on the bus yet: it does not answer"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    };
    if news.send(News::Joined { link, connection: connection.clone() }).await.is_err() {
        return;
    }
    loop {
        let change = tokio::select! {
            () = connection.closed() => break,
            change = changes.next() => change,
        };
        let Some(change) = change else { break };
        let Ok(change) = change.args() else { continue };
        let name = change.name().as_str();
        if change.new_owner().is_none() || !name.starts_with(PREFIX) {
            continue;
        }
        let asked = bus.get_connection_unix_process_id(change.name().to_owned());
        // An error means that the process is gone already.
        if let Ok(Ok(pid)) = timeout(WAIT, asked).await {
            let named = News::Named { link, name: name.to_owned(), pid };
            if news.send(named).await.is_err() {
                return;
            }
        }
    }
    let _ = news.send(News::Lost { link }).await;
}

type Joined = (Connection, DBusProxy<'static>, zbus::fdo::NameOwnerChangedStream);

async fn join(
    address: &str,
    (role_object, monitor_object): (role::Object, object::Object),
) -> zbus::Result<Joined> {
    let path = Role::Monitor.path();
    let connection = zbus::connection::Builder::address(address)
        .method_timeout(WAIT)
        .serve_at(path.as_str(), role_object)
        .serve_at(path.as_str(), monitor_object)
        .build()
        .await?;
    let bus = DBusProxy::builder(&connection).cache_properties(CacheProperties::No).build().await?;
    let changes = bus.receive_name_owner_changed().await?;
    let name = Role::Monitor.bus_name();
    connection.request_name_with_flags(name, RequestNameFlags::DO_NOT_QUEUE).await?;
    Ok((connection, bus, changes))
}

/// Asks the bus and then the roles how they are, each with the deadline `within`.
pub async fn ping(
    link: u64,
    connection: Connection,
    roles: Vec<(Key, u32)>,
    within: Duration,
    news: mpsc::Sender<News>,
) {
    let mut answers = Vec::new();
    let alive =
        async { DBusProxy::new(&connection).await?.get_id().await.map_err(zbus::Error::from) };
    let alive = matches!(timeout(within, alive).await, Ok(Ok(_)));
    answers.push((Key::Bus, 0, alive));
    // While the bus hangs, silence says nothing of the roles.
    if alive {
        let mut asked = JoinSet::new();
        for (key, pid) in roles {
            let connection = connection.clone();
            asked.spawn(async move {
                let answer = matches!(timeout(within, ask(&connection, &key)).await, Ok(Ok(())));
                (key, pid, answer)
            });
        }
        answers.extend(asked.join_all().await);
    }
    let _ = news.send(News::Pinged { link, answers }).await;
}

/// A role that gives its status reads the bus and runs its loop.
async fn ask(connection: &Connection, key: &Key) -> zbus::Result<()> {
    let Key::Role(role) = key else { return Ok(()) };
    let asked = Instant::now();
    let proxy = proxy(connection, role).await?;
    proxy.status().await.map_err(|error| zbus::Error::Failure(error.to_string()))?;
    metrics::histogram!("roster_bus_seconds", "peer" => role.to_string())
        .record(asked.elapsed().as_secs_f64());
    Ok(())
}

/// A role's common interface.
pub async fn proxy(connection: &Connection, role: &Role) -> zbus::Result<RoleProxy<'static>> {
    RoleProxy::builder(connection)
        .destination(role.bus_name())
        .path(role.path())
        .cache_properties(CacheProperties::No)
        .build()
        .await
}
