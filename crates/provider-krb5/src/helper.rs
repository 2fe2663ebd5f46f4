//! The program `roster-krb5`: started, told what to go by, and asked.

use roster_config::{Keytab, Krb5};
use roster_krb5::message::{Incoming, Reply, Request, Setup};
use roster_krb5::outcome::Outcome;
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Blocking;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use zeroize::Zeroizing;

/// Its name.
const PROGRAM: &str = "roster-krb5";
/// Beyond a request's own deadline, which the program keeps.
const GRACE: Duration = Duration::from_secs(1);
/// Requests that wait to be written, while the program has as many log-ins as it takes on.
const REQUESTS_MAX: usize = 64;
/// Of each read.
const READ_BYTES: usize = 16 << 10;

/// The program, started.
pub struct Helper {
    socket: Blocking,
    /// It ends when the socket closes, and is the process's child until this one ends.
    _child: Child,
}

impl Helper {
    /// Starts it, which a process can do as long as it may execute programs, and hands it what to go by.
    /// `keytab` is what the monitor has found. An error is for the log and for whoever tries to log in.
    ///
    /// # Errors
    ///
    /// It is not installed, cannot be started, or would have to do without the keys that it needs.
    pub fn start(krb5: &Krb5, keytab: &Keytab) -> Result<Self, String> {
        let keytab = match keytab {
            Keytab::None => &[][..],
            Keytab::Keys(bytes) => bytes,
            Keytab::Unusable { why, instead } => return Err(format!("{why}; {instead}")),
        };
        let program = program().ok_or_else(|| {
            format!("{PROGRAM} is not installed, without which nobody logs in by Kerberos")
        })?;
        let failed = |error: io::Error| format!("{} cannot be started: {error}", program.display());
        let (ours, theirs) = Blocking::pair().map_err(failed)?;
        let child = Command::new(&program)
            .arg("serve")
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let setup = Setup {
            realm: crate::realm(krb5),
            keytab: Zeroizing::new(keytab.to_vec()),
            life_seconds: seconds(krb5.lifetime),
            renewable_seconds: seconds(krb5.renewable),
            forwardable: krb5.forwardable,
            ports: ports(krb5),
        };
        // It is shorter than what a socket takes without being read.
        (&ours).write_all(&setup.encode()).map_err(failed)?;
        Ok(Self { socket: ours, _child: child })
    }
}

/// Beside this program, as it is built, or below the same prefix, as it is installed.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folder = own.parent()?;
    let installed = folder.parent().unwrap_or(Path::new("/")).join("libexec/roster");
    [folder, &installed].map(|folder| folder.join(PROGRAM)).into_iter().find(|path| path.is_file())
}

/// The ports of all servers that are named; none where DNS names more.
fn ports(krb5: &Krb5) -> Vec<u16> {
    /// Where passwords are changed at KDCs.
    const KPASSWD: u16 = 464;
    if krb5.discover {
        return Vec::new();
    }
    let servers = krb5.kdcs.iter().chain(&krb5.kpasswd);
    let ports = servers.filter_map(|server| server.rsplit_once(':')?.1.parse().ok());
    ports.chain([KPASSWD]).collect()
}

/// What is said to the program, and by it.
pub struct Line {
    requests: mpsc::Sender<Request>,
    state: Mutex<State>,
    ended: watch::Sender<bool>,
    _child: Option<Child>,
}

struct State {
    /// Why nothing can be asked.
    broken: Option<String>,
    next: u64,
    waiting: HashMap<u64, oneshot::Sender<Reply>>,
}

impl Line {
    pub fn new(helper: Result<Helper, String>) -> Arc<Self> {
        let joined = helper.and_then(|Helper { socket, _child: child }| {
            let stream = socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket));
            Ok((stream.map_err(|error| format!("{PROGRAM} cannot be asked: {error}"))?, child))
        });
        let (broken, stream, child) = match joined {
            Ok((stream, child)) => (None, Some(stream.into_split()), Some(child)),
            Err(why) => {
                tracing::error!("log-ins by Kerberos: {why}");
                (Some(why), None, None)
            }
        };
        let (requests, queue) = mpsc::channel(REQUESTS_MAX);
        let line = Arc::new(Self {
            requests,
            state: Mutex::new(State { broken, next: 1, waiting: HashMap::new() }),
            ended: watch::Sender::new(false),
            _child: child,
        });
        if let Some((reader, writer)) = stream {
            tokio::spawn(Arc::clone(&line).listen(reader));
            tokio::spawn(Arc::clone(&line).speak(writer, queue));
        }
        line
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the program has ended by itself, and may be better when started again.
    pub async fn ended(&self) {
        // The sender is this line's own.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Puts a request, whose number is given here.
    pub async fn ask(&self, mut request: Request) -> Reply {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.state();
            if let Some(why) = &state.broken {
                let failed = Reply::of(0, Outcome::Failed, why.clone());
                return Reply { is_undone: true, ..failed };
            }
            request.id = state.next;
            state.next += 1;
            state.waiting.insert(request.id, sender);
        }
        let _gone = Waiting { line: self, id: request.id };
        let (id, until) = (request.id, request.deadline + GRACE);
        let answered = timeout(until, async {
            self.requests.send(request).await.ok()?;
            receiver.await.ok()
        });
        match answered.await {
            Ok(Some(reply)) => reply,
            Ok(None) => Reply::of(id, Outcome::Failed, format!("{PROGRAM} has ended meanwhile")),
            // This host is slow; nothing is known of KDCs.
            Err(_) => Reply::of(id, Outcome::Failed, format!("{PROGRAM} has not answered in time")),
        }
    }

    /// Writes whole requests, one after the other, and none that nobody waits for any more.
    async fn speak(
        self: Arc<Self>,
        mut writer: OwnedWriteHalf,
        mut queue: mpsc::Receiver<Request>,
    ) {
        while let Some(request) = queue.recv().await {
            if !self.state().waiting.contains_key(&request.id) {
                continue;
            }
            if writer.write_all(&request.encode()).await.is_err() {
                // The reader finds out why.
                return;
            }
        }
    }

    async fn listen(self: Arc<Self>, mut reader: OwnedReadHalf) {
        let mut incoming = Incoming::default();
        let mut bytes = Zeroizing::new([0; READ_BYTES]);
        let why = loop {
            match reader.read(&mut bytes[..]).await {
                Ok(0) => break format!("{PROGRAM} has ended"),
                Ok(read) => incoming.push(&bytes[..read]),
                Err(error) => break format!("{PROGRAM} cannot be heard: {error}"),
            }
            if let Err(why) = self.take(&mut incoming) {
                break why;
            }
        };
        let mut state = self.state();
        state.waiting.clear();
        // Where it said before why it cannot work, starting it again would change nothing.
        if state.broken.is_none() {
            state.broken = Some(why);
            self.ended.send_replace(true);
        }
    }

    fn take(&self, incoming: &mut Incoming) -> Result<(), String> {
        let odd = |_| format!("{PROGRAM} says what makes no sense");
        while let Some(message) = incoming.message().map_err(odd)? {
            let reply = Reply::decode(&message).map_err(odd)?;
            let mut state = self.state();
            match (reply.id, reply.outcome) {
                (0, Outcome::Success) => tracing::info!("{PROGRAM} is ready: {}", reply.detail),
                (0, _) => {
                    tracing::error!("log-ins by Kerberos: {}", reply.detail);
                    state.broken = Some(reply.detail);
                }
                (id, _) => {
                    if let Some(sender) = state.waiting.remove(&id) {
                        // Who asked may not wait any more.
                        let _ = sender.send(reply);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whoever gives up is not kept in mind.
struct Waiting<'l> {
    line: &'l Line,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.line.state().waiting.remove(&self.id);
    }
}
