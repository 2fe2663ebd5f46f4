//! The monitor on the bus: joins it once it listens, tells which role is ready and who answers, and
//! that the bus is lost. Runs in tasks beside the monitor's loop, which never waits for the bus.

use super::object;
use super::plan::Key;
use super::settings::Settings;
use crate::role;
use futures_util::StreamExt;
use roster_bus::interfaces::RoleProxy;
use roster_bus::names::{PREFIX, PUBLISHER, Role};
use roster_bus::zbus::fdo::{DBusProxy, NameOwnerChanged, RequestNameFlags};
use roster_bus::zbus::names::{BusName, OwnedWellKnownName};
use roster_bus::zbus::proxy::CacheProperties;
use roster_bus::zbus::{self, Connection, MatchRule, MessageStream, message};
use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Between the first tries to join; doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
/// Between tries to join, at the most.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// How long one try to join may take, and any call to the bus itself.
const WAIT: Duration = Duration::from_secs(5);

/// Signals that may wait to be looked at, which takes a moment.
const SIGNALS_MAX: NonZero<usize> = NonZero::new(256).unwrap();
/// Names that may wait to be asked about; there are no more roles.
const NAMES_MAX: usize = 64;

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
    /// Keytabs were read: of which domain, and what is in them.
    Keytabs(Vec<(String, Vec<u8>)>),
    /// The publisher has put a snapshot in place.
    Published,
    /// Somebody connected to a role's socket.
    Used(Key),
    /// The configuration was read anew.
    Read {
        /// What stands in it.
        settings: anyhow::Result<Box<Settings>>,
        /// Where the outcome goes.
        done: Option<object::Reload>,
    },
}

/// Joins the bus at `address`, and tells `news` until the bus is lost or the receiver gone.
pub async fn hold(
    link: u64,
    address: String,
    objects: impl Fn() -> (role::Object, object::Object),
    news: mpsc::Sender<News>,
) {
    let mut pause = PAUSE_FIRST;
    let (connection, bus, changes, publications) = loop {
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
    let taken = Arc::new(Taken::default());
    // Ends with this task.
    let mut noting = JoinSet::new();
    noting.spawn(Arc::clone(&taken).note(changes));
    noting.spawn(note_publication(publications, news.clone()));
    loop {
        tokio::select! {
            () = connection.closed() => break,
            () = taken.news.notified() => {}
        }
        for name in taken.take() {
            let asked = bus.get_connection_unix_process_id(name.clone().into());
            // An error means that the process is gone already.
            if let Ok(Ok(pid)) = timeout(WAIT, asked).await {
                let named = News::Named { link, name: name.to_string(), pid };
                if news.send(named).await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = news.send(News::Lost { link }).await;
}

/// Names that were taken since somebody last looked, each once. The connection hands out signals one
/// after the other and waits for who reads them, so that whoever calls somebody between two of them,
/// as to ask whose process it is, could wait for himself.
#[derive(Default)]
struct Taken {
    names: Mutex<BTreeSet<OwnedWellKnownName>>,
    news: Notify,
}

impl Taken {
    /// Reads signals as they come, and never waits for anything else.
    async fn note(self: Arc<Self>, mut changes: MessageStream) {
        while let Some(Ok(message)) = changes.next().await {
            let Some(change) = NameOwnerChanged::from_message(message) else { continue };
            let Ok(change) = change.args() else { continue };
            if let (BusName::WellKnown(name), Some(_)) = (change.name(), &**change.new_owner()) {
                self.add(name.clone().into());
            }
        }
    }

    fn add(&self, name: OwnedWellKnownName) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() < NAMES_MAX {
            names.insert(name);
            self.news.notify_one();
        }
    }

    fn take(&self) -> BTreeSet<OwnedWellKnownName> {
        std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tells of the names of roles, and of none of the connections that come and go.
fn name_changes() -> zbus::Result<MatchRule<'static>> {
    MatchRule::builder()
        .msg_type(message::Type::Signal)
        .sender("org.freedesktop.DBus")
        .interface("org.freedesktop.DBus")
        .member("NameOwnerChanged")
        .arg0ns(PREFIX)
        .build()
}

type Joined = (Connection, DBusProxy<'static>, MessageStream, MessageStream);

/// Signals of the publisher, which may come in any number: the first is passed on.
async fn note_publication(mut signals: MessageStream, news: mpsc::Sender<News>) {
    while let Some(Ok(_)) = signals.next().await {
        if news.try_send(News::Published).is_ok() {
            return;
        }
    }
}

/// Tells of snapshots that are in place.
fn publications() -> zbus::Result<MatchRule<'static>> {
    MatchRule::builder()
        .msg_type(message::Type::Signal)
        .interface(PUBLISHER)
        .member("SnapshotPublished")
        .build()
}

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
    let changes =
        MessageStream::for_match_rule(name_changes()?, &connection, Some(SIGNALS_MAX)).await?;
    let signals =
        MessageStream::for_match_rule(publications()?, &connection, Some(SIGNALS_MAX)).await?;
    let name = Role::Monitor.bus_name();
    connection.request_name_with_flags(name, RequestNameFlags::DO_NOT_QUEUE).await?;
    Ok((connection, bus, changes, signals))
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
