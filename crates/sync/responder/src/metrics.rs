// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves the counters of all roles as Prometheus text, over HTTP on a loopback port or a unix socket. Off unless
//! `[metrics]` is configured. It has no counters: it queries every role over the bus. `roster_role` has the counters of
//! a role.
//!
//! It implements the smallest subset of HTTP that scrapers need: one GET a connection, with a reply in HTTP/1.0 and a
//! close.

use super::accept_loop::serve_connections;
use super::client_connection::take_socket;
use super::connection_limits::{ConnectionLimits, ConnectionSlot};
use roster_bus::bus_names::RoleName;
use roster_bus::interfaces::RoleProxy;
use roster_bus::zbus::Connection;
use roster_bus::zbus::proxy::CacheProperties;
use roster_role::launch::Launch;
use roster_role::sandbox::ResourceLimits;
use roster_role::{RoleContext, RoleProgram};
use rustix::net::AddressFamily;
use serde::{Deserialize, Serialize};
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
use tokio::time::timeout;

/// Connection limits. There are few scrapers. On a port, which does not show the client's user, all count as one.
const LIMITS: ConnectionLimits = ConnectionLimits { per_user: 8, for_root: 8, total: 64 };
/// Stands for clients of a port. The kernel assigns the value (uid_t) -1 to no user.
const UNKNOWN_UID: u32 = u32::MAX;
/// Time limit of a connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(10);
/// Time limit of the counters of a role.
const ROLE_WAIT: Duration = Duration::from_secs(2);
/// Longest request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Longest text of one role.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Lifetime of a collection. All scrapers share it, so many cost no more than one.
const CACHE_LIFETIME: Duration = Duration::from_secs(1);

/// Configuration of the metrics responder.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricsRoleConfig {
    /// Names of all roles for people.
    pub roles: Vec<String>,
}

/// The role `responder:metrics`.
pub struct MetricsRole;

impl RoleProgram for MetricsRole {
    type Config = MetricsRoleConfig;
    type Helper = ();

    const SERVES_PROGRAMS: bool = true;
    const LIMITS: ResourceLimits = ResourceLimits::SERVING;

    fn start_helper(_: &Launch<MetricsRoleConfig>) -> anyhow::Result<()> {
        Ok(())
    }

    async fn run(context: RoleContext<MetricsRoleConfig>, (): ()) -> anyhow::Result<()> {
        run(context).await
    }
}

async fn run(mut context: RoleContext<MetricsRoleConfig>) -> anyhow::Result<()> {
    let listener = take_socket(&mut context, MetricsListener::new)?;
    let roles = context.config.roles.iter().filter_map(|role| RoleName::parse(role)).collect();
    let source = Arc::new(MetricsSource {
        connection: context.connection.clone(),
        roles,
        last: Mutex::default(),
    });
    context.announce_ready().await?;
    let serve = |_, stream, slot| {
        let source = Arc::clone(&source);
        async move { timeout(CONNECTION_WAIT, serve(stream, &source, slot)).await? }
    };
    let accept = async || listener.accept().await;
    serve_connections(LIMITS, &mut context.shutdown, accept, serve).await;
    Ok(())
}

enum MetricsListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

trait MetricsStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> MetricsStream for T {}

impl MetricsListener {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        match rustix::net::sockopt::socket_domain(&socket)? {
            AddressFamily::UNIX => Ok(Self::Unix(UnixListener::from_std(socket.into())?)),
            _ => Ok(Self::Tcp(TcpListener::from_std(socket.into())?)),
        }
    }

    /// Returns a connection, and the user id of its client.
    async fn accept(&self) -> io::Result<(u32, Box<dyn MetricsStream>)> {
        Ok(match self {
            Self::Tcp(listener) => (UNKNOWN_UID, Box::new(listener.accept().await?.0)),
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                (stream.peer_cred()?.uid(), Box::new(stream))
            }
        })
    }
}

async fn serve(
    mut stream: Box<dyn MetricsStream>,
    source: &MetricsSource,
    mut admitted: ConnectionSlot,
) -> io::Result<()> {
    let mut request = Vec::with_capacity(1 << 10);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() >= REQUEST_BYTES_MAX {
            return stream
                .write_all(&http_reply("431 Request Header Fields Too Large", "", true))
                .await;
        }
        if (&mut stream).take(1 << 10).read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    admitted.mark_requested();
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let whole = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics" | b"/") => {
            http_reply("200 OK", &source.text().await, method == b"GET")
        }
        (b"GET" | b"HEAD", _) => http_reply("404 Not Found", "see /metrics\n", true),
        _ => http_reply("405 Method Not Allowed", "GET /metrics\n", true),
    };
    stream.write_all(&whole).await?;
    stream.shutdown().await
}

fn http_reply(status: &str, body: &str, with_body: bool) -> Vec<u8> {
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

/// Source of the text.
struct MetricsSource {
    connection: Connection,
    roles: Vec<RoleName>,
    last: Mutex<Option<(Instant, Arc<str>)>>,
}

impl MetricsSource {
    async fn text(&self) -> Arc<str> {
        // Concurrent requests wait here for the collection in progress.
        let mut last = self.last.lock().await;
        if let Some((when, text)) = &*last
            && when.elapsed() < CACHE_LIFETIME
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
                let text = timeout(ROLE_WAIT, query_counters(&connection, &role)).await;
                (role.to_string(), text.ok().flatten())
            });
        }
        let mut texts = asked.join_all().await;
        texts.sort();
        merge_texts(&texts)
    }
}

/// Returns the counters of a role. `None` if it does not run, as a responder without a client so far.
async fn query_counters(connection: &Connection, role: &RoleName) -> Option<String> {
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
struct MetricFamily {
    /// `# HELP` and `# TYPE`.
    head: Vec<String>,
    samples: Vec<String>,
}

/// Merges the texts of the roles. A label of each sample names its role.
fn merge_texts(texts: &[(String, Option<String>)]) -> String {
    let mut families: BTreeMap<&str, MetricFamily> = BTreeMap::new();
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

/// Adds the label `role` in front of all others to `name 1` or `name{a="b"} 1`.
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
        assert_eq!(merge_texts(&texts), expected);
    }

    #[test]
    fn a_reply_to_head_has_the_length_and_no_body() {
        let text = String::from_utf8(http_reply("200 OK", "abc", false)).unwrap();
        assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\n"), "{text}");
    }
}
