//! Tells the journal, in a thread of its own: who has something to tell puts it into a queue and goes
//! on, and what finds the queue full is counted and told of later. Where there is no journal, standard
//! error is told.

use super::metrics::Counters;
use super::record::{Record, put_field};
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const SOCKET: &str = "/run/systemd/journal/socket";
/// Records that wait.
const QUEUE_MAX: usize = 4096;
/// How long a journal that does not read is waited for.
const SEND_TIME: Duration = Duration::from_secs(1);
/// How long the end of the program waits for the last records.
const LAST_TIME: Duration = Duration::from_secs(3);

/// The queue.
pub(super) struct Journal {
    queue: Mutex<Option<SyncSender<Record>>>,
    /// Closed by the thread when it has told everything.
    done: Mutex<Receiver<()>>,
    counters: Arc<Counters>,
}

impl Journal {
    pub(super) fn start(counters: &Arc<Counters>) -> io::Result<Self> {
        let (queue, records) = sync_channel::<Record>(QUEUE_MAX);
        let (is_done, done) = channel();
        let mut teller = Teller { socket: None, counters: Arc::clone(counters), told_dropped: 0 };
        thread::Builder::new().name("journal".into()).spawn(move || {
            records.into_iter().for_each(|record| teller.tell(&record));
            drop(is_done);
        })?;
        let (queue, done) = (Mutex::new(Some(queue)), Mutex::new(done));
        Ok(Self { queue, done, counters: Arc::clone(counters) })
    }

    /// Never waits.
    pub(super) fn tell(&self, record: Record) {
        let queue = self.queue.lock().expect("a thread that panics ends the process");
        if queue.as_ref().is_none_or(|queue| queue.try_send(record).is_err()) {
            self.counters.records_dropped.add();
        }
    }

    /// Waits, for a time, until what is in the queue has been told.
    pub(super) fn finish(&self) {
        self.queue.lock().expect("as above").take();
        let _ = self.done.lock().expect("as above").recv_timeout(LAST_TIME);
    }
}

struct Teller {
    socket: Option<UnixDatagram>,
    counters: Arc<Counters>,
    told_dropped: u64,
}

impl Teller {
    fn tell(&mut self, record: &Record) {
        let dropped = self.counters.records_dropped.get();
        if dropped > self.told_dropped {
            let message = format!("{} records were dropped", dropped - self.told_dropped);
            let mut entry = Vec::new();
            put_field(&mut entry, "MESSAGE", &message);
            put_field(&mut entry, "PRIORITY", "4");
            put_field(&mut entry, "SYSLOG_IDENTIFIER", "roster-exec");
            self.send(&entry, &message);
            self.told_dropped = dropped;
        }
        self.send(&record.encode(), &record.message());
    }

    fn send(&mut self, entry: &[u8], message: &str) {
        if self.socket.as_ref().is_some_and(|socket| socket.send(entry).is_ok()) {
            return;
        }
        // The journal was started anew, or was never there.
        self.socket = connect().ok();
        match &self.socket {
            Some(socket) if socket.send(entry).is_ok() => {}
            Some(_) => self.counters.records_dropped.add(),
            None => {
                let _ = writeln!(io::stderr(), "{}", message.replace('\n', "\\n"));
            }
        }
    }
}

fn connect() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIME))?;
    socket.connect(SOCKET)?;
    Ok(socket)
}
