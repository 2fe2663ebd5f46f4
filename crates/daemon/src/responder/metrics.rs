//! Serves the counters of all roles as Prometheus text, over HTTP on a loopback port or a unix
//! socket. Off unless `[metrics]` is configured. Counts nothing itself: asks every role over the bus.
//!
//! The least HTTP that scrapers need: one GET a connection, answered in HTTP/1.0 and closed.

use super::gate::{self, Admitted, Gate, Limits};
use crate::role::{self, Context};
use anyhow::Context as _;
use roster_bus::interfaces::RoleProxy;
use roster_bus::names::Role;
use roster_bus::zbus::Connection;
use roster_bus::zbus::proxy::CacheProperties;
use rustix::net::AddressFamily;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

/// Connections. Scrapers come one by one; on a port, where nobody can tell who comes, all are one user.
const LIMITS: Limits = Limits { of_a_user: 8, of_root: 8, of_all: 64 };
/// Stands for whoever comes by a port; (uid_t) -1 is nobody's.
const NOBODY: u32 = u32::MAX;
/// From a connection to its end.
const CONNECTION_WAIT: Duration = Duration::from_secs(10);
/// How long a role may take to give its counters.
const ROLE_WAIT: Duration = Duration::from_secs(2);
/// Longest request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Longest text of one role.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// For so long one collection serves everybody, so that many scrapers cost no more than one.
const FRESH: Duration = Duration::from_secs(1);
/// After an error of accept(2), which is most likely a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Runs until the role is to stop.
///
/// # Errors
///
/// What keeps the role from its work; the monitor starts it again.
pub async fn run(mut context: Context<role::Metrics>) -> anyhow::Result<()> {
    let socket = context.listener.take().context("the monitor gave no socket to listen at")?;
    let listener = Listener::new(socket).context("cannot listen at the socket given")?;
    let roles = context.config.roles.iter().filter_map(|role| Role::parse(role)).collect();
    let source =
        Arc::new(Source { connection: context.connection.clone(), roles, last: Mutex::default() });
    let gate = Gate::new(LIMITS);
    context.ready().await?;
    loop {
        let accepted = tokio::select! {
            () = context.shutdown.wait() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        let (uid, stream) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!("cannot accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let source = Arc::clone(&source);
        // Who is refused has asked so often that no answer has come yet.
        gate::admit(&gate, uid, |admitted| {
            let served = async move {
                match timeout(CONNECTION_WAIT, serve(stream, &source, admitted)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!("a connection ended early: {error}"),
                    Err(_) => debug!("a connection took too long"),
                }
            };
            tokio::spawn(served).abort_handle()
        });
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Listener {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        match rustix::net::sockopt::socket_domain(&socket)? {
            AddressFamily::UNIX => Ok(Self::Unix(UnixListener::from_std(socket.into())?)),
            _ => Ok(Self::Tcp(TcpListener::from_std(socket.into())?)),
        }
    }

    /// A connection, and whose it is.
    async fn accept(&self) -> io::Result<(u32, Box<dyn Stream>)> {
        Ok(match self {
            Self::Tcp(listener) => (NOBODY, Box::new(listener.accept().await?.0)),
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                (stream.peer_cred()?.uid(), Box::new(stream))
            }
        })
    }
}

async fn serve(
    mut stream: Box<dyn Stream>,
    source: &Source,
    mut admitted: Admitted,
) -> io::Result<()> {
    let mut request = Vec::with_capacity(1 << 10);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() >= REQUEST_BYTES_MAX {
            return stream.write_all(&reply("431 Request Header Fields Too Large", "", true)).await;
        }
        if (&mut stream).take(1 << 10).read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    admitted.has_asked();
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let whole = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics" | b"/") => {
            reply("200 OK", &source.text().await, method == b"GET")
        }
        (b"GET" | b"HEAD", _) => reply("404 Not Found", "see /metrics\n", true),
        _ => reply("405 Method Not Allowed", "GET /metrics\n", true),
    };
    stream.write_all(&whole).await?;
    stream.shutdown().await
}

fn reply(status: &str, body: &str, with_body: bool) -> Vec<u8> {
    let mut text = format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len(),
    );
    if with_body {
        text.push_str(body);
    }
    text.into_bytes()
}

/// Where the text comes from.
struct Source {
    connection: Connection,
    roles: Vec<Role>,
    last: Mutex<Option<(Instant, Arc<str>)>>,
}

impl Source {
    async fn text(&self) -> Arc<str> {
        // Whoever comes meanwhile waits here for the collection that is under way.
        let mut last = self.last.lock().await;
        if let Some((when, text)) = &*last
            && when.elapsed() < FRESH
        {
            return Arc::clone(text);
        }
        let text: Arc<str> = self.collect().await.into();
        *last = Some((Instant::now(), Arc::clone(&text)));
        text
    }

    async fn collect(&self) -> String {
        let mut asked = JoinSet::new();
        for role in &self.roles {
            let (connection, role) = (self.connection.clone(), role.clone());
            asked.spawn(async move {
                let text = timeout(ROLE_WAIT, ask(&connection, &role)).await;
                (role.to_string(), text.ok().flatten())
            });
        }
        let mut texts = asked.join_all().await;
        texts.sort();
        merge(&texts)
    }
}

/// The counters of a role; none when it does not run, as a responder that nobody has asked yet.
async fn ask(connection: &Connection, role: &Role) -> Option<String> {
    let proxy = RoleProxy::builder(connection)
        .destination(role.bus_name())
        .path(role.path())
        .cache_properties(CacheProperties::No)
        .build()
        .await
        .ok()?;
    let text = proxy.metrics().await.ok()?;
    (text.len() <= TEXT_BYTES_MAX).then_some(text)
}

/// All samples of one metric, which must stand together.
#[derive(Default)]
struct Family {
    /// `# HELP` and `# TYPE`.
    head: Vec<String>,
    samples: Vec<String>,
}

/// One text out of those of the roles; the samples say by a label whose they are.
fn merge(texts: &[(String, Option<String>)]) -> String {
    let mut families: BTreeMap<&str, Family> = BTreeMap::new();
    for (role, text) in texts {
        let Some(text) = text else { continue };
        let mut family = "";
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# ") {
                let Some(name) = rest.split(' ').nth(1) else { continue };
                family = name;
                let head = &mut families.entry(family).or_default().head;
                if !head.iter().any(|known| known == line) {
                    head.push(line.to_owned());
                }
            } else if let Some(sample) = labelled(line, role) {
                families.entry(family).or_default().samples.push(sample);
            }
        }
    }
    let mut merged = String::from(
        "# HELP roster_up Whether the role runs and answers\n# TYPE roster_up gauge\n",
    );
    for (role, text) in texts {
        let up = u8::from(text.is_some());
        let _ = writeln!(merged, "roster_up{{role=\"{}\"}} {up}", escaped(role));
    }
    for family in families.values() {
        for line in family.head.iter().chain(&family.samples) {
            merged.push_str(line);
            merged.push('\n');
        }
    }
    merged
}

/// `name 1` or `name{a="b"} 1`, with the label `role` before all others.
fn labelled(sample: &str, role: &str) -> Option<String> {
    let end = sample.find(['{', ' '])?;
    let (name, rest) = sample.split_at(end);
    let role = escaped(role);
    Some(match rest.strip_prefix('{') {
        Some(labels) => format!("{name}{{role=\"{role}\",{labels}"),
        None => format!("{name}{{role=\"{role}\"}}{rest}"),
    })
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_metric_stand_together_and_name_their_role() {
        let publisher = "# HELP roster_lookups Look-ups\n# TYPE roster_lookups counter\n\
                         roster_lookups{result=\"found\"} 3\n\n\
                         # TYPE roster_memory_bytes gauge\nroster_memory_bytes 5\n";
        let backend = "# TYPE roster_memory_bytes gauge\nroster_memory_bytes 7\n";
        let texts = [
            ("backend:corp".to_owned(), Some(backend.to_owned())),
            ("publisher".to_owned(), Some(publisher.to_owned())),
            ("responder:nss".to_owned(), None),
        ];
        let expected = "# HELP roster_up Whether the role runs and answers\n\
                        # TYPE roster_up gauge\n\
                        roster_up{role=\"backend:corp\"} 1\n\
                        roster_up{role=\"publisher\"} 1\n\
                        roster_up{role=\"responder:nss\"} 0\n\
                        # HELP roster_lookups Look-ups\n\
                        # TYPE roster_lookups counter\n\
                        roster_lookups{role=\"publisher\",result=\"found\"} 3\n\
                        # TYPE roster_memory_bytes gauge\n\
                        roster_memory_bytes{role=\"backend:corp\"} 7\n\
                        roster_memory_bytes{role=\"publisher\"} 5\n";
        assert_eq!(merge(&texts), expected);
    }

    #[test]
    fn a_reply_to_head_has_the_length_and_no_body() {
        let text = String::from_utf8(reply("200 OK", "abc", false)).unwrap();
        assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\n"), "{text}");
    }
}
