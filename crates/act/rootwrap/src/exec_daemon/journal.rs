// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends records to the journal. The record of a start is sent before the command starts, if the journal has space,
//! because the command may kill this daemon. Other records wait in two queues for a thread, so that no caller waits.
//! The queue of allowed commands goes first. Full queues drop records and count them. Without a journal the records go
//! to standard error. `audit_record` has the fields.

use super::audit_record::{AuditRecord, ExecOutcome, put_field};
use super::counters::Counters;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use roster_messages::CodedError;
use roster_messages::table::commands;
use rustix::rand::{GetRandomFlags, getrandom};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const SOCKET: &str = "/run/systemd/journal/socket";
/// Limit of each queue.
const QUEUE_MAX: usize = 4096;
/// Limit of the wait for a journal that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit of the wait for the last records at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The sender of records.
pub(super) struct Journal {
    shared: Arc<JournalShared>,
    /// The socket for records that are sent at once, without a wait.
    direct_socket: RwLock<Option<UnixDatagram>>,
    /// A random number that distinguishes the records of this daemon.
    run: u32,
    commands: AtomicU64,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct JournalShared {
    queues: Mutex<JournalQueues>,
    changed: Condvar,
}

#[derive(Default)]
struct JournalQueues {
    allowed: VecDeque<AuditRecord>,
    others: VecDeque<AuditRecord>,
    is_ending: bool,
    /// The thread has sent all records.
    is_done: bool,
}

impl Journal {
    pub(super) fn start(counters: &Arc<Counters>) -> io::Result<Self> {
        let shared = Arc::<JournalShared>::default();
        let mut teller =
            JournalWriter { socket: None, counters: Arc::clone(counters), reported_dropped: 0 };
        let queues = Arc::clone(&shared);
        thread::Builder::new().name("journal".into()).spawn(move || {
            while let Some(record) = queues.next() {
                teller.write_record(&record);
            }
            queues.queues().is_done = true;
            queues.changed.notify_all();
        })?;
        let mut run = [0; 4];
        getrandom(&mut run, GetRandomFlags::empty())?;
        Ok(Self {
            shared,
            direct_socket: RwLock::default(),
            run: u32::from_ne_bytes(run),
            commands: AtomicU64::new(0),
            counters: Arc::clone(counters),
        })
    }

    /// Returns a unique identifier for a command.
    pub(super) fn next_id(&self) -> String {
        format!("{:08x}-{}", self.run, self.commands.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Sends the record of a start before it returns, if the journal has space. It never waits.
    pub(super) fn send_start(&self, record: &AuditRecord) {
        let record = AuditRecord { outcome: ExecOutcome::Starting, ..record.clone() };
        if self.send(&record.encode()).is_err() {
            self.enqueue_record(record);
        }
    }

    /// Adds a record to its queue. It never waits.
    pub(super) fn enqueue_record(&self, record: AuditRecord) {
        let mut queues = self.shared.queues();
        let is_allowed = record.outcome.label() == ExecOutcome::Starting.label();
        let queue = if is_allowed { &mut queues.allowed } else { &mut queues.others };
        if queue.len() >= QUEUE_MAX {
            self.counters.records_dropped.add();
            return;
        }
        queue.push_back(record);
        drop(queues);
        self.shared.changed.notify_all();
    }

    /// Waits until the queues are empty, for a limited time.
    pub(super) fn finish(&self) {
        let mut queues = self.shared.queues();
        queues.is_ending = true;
        self.shared.changed.notify_all();
        let busy = |queues: &mut JournalQueues| !queues.is_done;
        self.shared.changed.wait_while_for(&mut queues, busy, FLUSH_TIMEOUT);
    }

    fn send(&self, entry: &[u8]) -> io::Result<()> {
        let direct = self.direct_socket.read();
        let sent = match &*direct {
            Some(socket) => socket.send(entry).map(drop),
            None => Err(ErrorKind::NotConnected.into()),
        };
        drop(direct);
        match sent {
            // The journal was restarted, or this is the first record.
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                let socket = connect()?;
                socket.set_nonblocking(true)?;
                let sent = socket.send(entry).map(drop);
                *self.direct_socket.write() = Some(socket);
                sent
            }
            sent => sent,
        }
    }
}

impl JournalShared {
    fn queues(&self) -> MutexGuard<'_, JournalQueues> {
        self.queues.lock()
    }

    /// Waits for the next record. `None`: the queues are empty and the daemon is stopping.
    fn next(&self) -> Option<AuditRecord> {
        let is_empty = |queues: &mut JournalQueues| {
            queues.allowed.is_empty() && queues.others.is_empty() && !queues.is_ending
        };
        let mut queues = self.queues();
        self.changed.wait_while(&mut queues, is_empty);
        queues.allowed.pop_front().or_else(|| queues.others.pop_front())
    }
}

struct JournalWriter {
    socket: Option<UnixDatagram>,
    counters: Arc<Counters>,
    reported_dropped: u64,
}

impl JournalWriter {
    fn write_record(&mut self, record: &AuditRecord) {
        let dropped = self.counters.records_dropped.get();
        if dropped > self.reported_dropped {
            let text = format!("{} records were dropped", dropped - self.reported_dropped);
            let message = CodedError::new(&commands::RECORDS_DROPPED, text).to_string();
            let mut entry = Vec::new();
            for (name, value) in [
                ("MESSAGE", &*message),
                ("PRIORITY", "4"),
                ("SYSLOG_IDENTIFIER", "roster-exec"),
                ("MESSAGE_ID", commands::RECORDS_DROPPED.journal_id),
                ("CODE", commands::RECORDS_DROPPED.code),
            ] {
                put_field(&mut entry, name, value);
            }
            self.send(&entry, &message);
            self.reported_dropped = dropped;
        }
        self.send(&record.encode(), &record.message());
    }

    fn send(&mut self, entry: &[u8], message: &str) {
        if self.socket.as_ref().is_some_and(|socket| socket.send(entry).is_ok()) {
            return;
        }
        // The journal was restarted, or is missing.
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
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    socket.connect(SOCKET)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roster_exec::protocol::{CommandEnd, DenyCode};

    fn record(outcome: ExecOutcome) -> AuditRecord {
        AuditRecord {
            uid: 7,
            pid: 8,
            id: String::new(),
            command_pid: None,
            user: String::new(),
            executable: None,
            command: String::new(),
            run_as: String::new(),
            rule: None,
            outcome,
            duration: Duration::ZERO,
            bytes: None,
            counters: None,
        }
    }

    #[test]
    fn journal_refused_records_push_out_no_allowed() {
        let (shared, counters) = (Arc::<JournalShared>::default(), Arc::<Counters>::default());
        let journal = Journal {
            shared: Arc::clone(&shared),
            direct_socket: RwLock::default(),
            run: 0,
            commands: AtomicU64::new(0),
            counters: Arc::clone(&counters),
        };
        for _ in 0..=QUEUE_MAX {
            let message = &commands::DENIED_CALLER;
            let outcome = ExecOutcome::Denied(DenyCode::Refused, message, String::new());
            journal.enqueue_record(record(outcome));
        }
        journal.enqueue_record(record(ExecOutcome::Ended(CommandEnd::Exited(0))));
        assert_eq!(counters.records_dropped.get(), 1);
        assert_eq!(shared.next().unwrap().outcome, ExecOutcome::Ended(CommandEnd::Exited(0)));
        assert_eq!(shared.next().unwrap().outcome.label(), "refused");
    }

    #[test]
    fn journal_dropped_records_have_code() {
        let (journal, socket) = UnixDatagram::pair().unwrap();
        let counters = Arc::<Counters>::default();
        counters.records_dropped.add();
        let mut writer = JournalWriter { socket: Some(socket), counters, reported_dropped: 0 };
        writer.write_record(&record(ExecOutcome::Starting));
        let mut entry = [0; 4096];
        let count = journal.recv(&mut entry).unwrap();
        let entry = String::from_utf8_lossy(&entry[..count]);
        let code = format!("CODE={}", commands::RECORDS_DROPPED.code);
        assert!(entry.contains("MESSAGE=1 records were dropped"), "{entry}");
        assert!(entry.lines().any(|line| line == code), "{entry}");
    }
}
