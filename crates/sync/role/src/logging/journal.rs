// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records for journald, in the native protocol of systemd: one datagram a record, with the length in front of each
//! value. `writer` selects the fields.

use std::io;
use std::os::unix::net::UnixDatagram;
use tracing::Level;

/// The socket of journald.
pub const SOCKET: &str = "/run/systemd/journal/socket";

/// A record under construction.
#[derive(Default)]
pub struct JournalRecord(Vec<u8>);

impl JournalRecord {
    /// Adds a field. Characters that journald does not accept in names are left out.
    pub fn put(&mut self, name: &str, value: &str) {
        let name = name.trim_start_matches('_').bytes();
        let name = name.filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
        self.0.extend(name.map(|byte| if byte == b'.' { b'_' } else { byte.to_ascii_uppercase() }));
        self.0.push(b'\n');
        self.0.extend_from_slice(&(value.len() as u64).to_le_bytes());
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'\n');
    }
}

/// Returns the priority of a level, see syslog(3). Each level has its own.
pub fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "5",
        Level::DEBUG => "6",
        Level::TRACE => "7",
    }
}

/// The connection to journald.
pub struct Journal(UnixDatagram);

impl Journal {
    /// Checks that journald reads records. It discards the empty one of this check.
    pub fn open() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.send_to(&[], SOCKET)?;
        Ok(Self(socket))
    }

    /// Sends a record. The bounds of values keep it shorter than the buffer of a socket.
    pub fn send(&self, record: &JournalRecord) {
        // There is no other place for the error.
        let _ = self.0.send_to(&record.0, SOCKET);
    }
}
