// SPDX-License-Identifier: MIT OR Apache-2.0
//! The syslog of commands, with facility and level of a rootwrap.conf. It never waits: without a listener, or with a
//! full queue, a message is lost. `log_messages` has the texts.

use crate::rootwrap_conf::{LogLevel, RootwrapConf};
use parking_lot::Mutex;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

const LOG_SOCKET: &str = "/dev/log";
/// Limit of a message, because readers of the log accept no more. A longer one loses its middle.
const MESSAGE_BYTES_MAX: usize = 8192;
/// Bytes at the end of such a message, which contain the rule.
const END_BYTES: usize = 256;
const TRUNCATION_MARK: &str = " […] ";

/// The connection to syslog, or none if `use_syslog` is false.
#[derive(Debug)]
pub struct Syslog {
    name: String,
    facility: u8,
    min_level: LogLevel,
    socket: Option<Mutex<Option<UnixDatagram>>>,
}

impl Syslog {
    /// Creates it with the name of a program.
    #[must_use]
    pub fn new(conf: &RootwrapConf, program: &Path) -> Self {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (facility, least) = (conf.syslog_log_facility, conf.syslog_log_level);
        let socket = conf.use_syslog.then(|| Mutex::new(connect()));
        Self { name, facility, min_level: least, socket }
    }

    /// Sends a message if its level is high enough.
    pub fn send_message(&self, level: LogLevel, message: impl FnOnce() -> String) {
        let Some(socket) = self.socket.as_ref().filter(|_| level >= self.min_level) else { return };
        let priority = u32::from(self.facility) << 3 | severity(level);
        let mut line = format!("<{priority}>{}: {}", self.name, message());
        truncate_middle(&mut line);
        let mut line = line.into_bytes();
        line.push(0);
        let mut socket = socket.lock();
        let sent = socket.as_ref().map(|socket| socket.send(&line));
        // The reader of the log was restarted.
        if !matches!(sent, Some(Ok(_))) && !is_full(&sent) {
            *socket = connect();
            let _ = socket.as_ref().map(|socket| socket.send(&line));
        }
    }
}

/// Removes the middle of a long line, and marks the place.
fn truncate_middle(line: &mut String) {
    if line.len() > MESSAGE_BYTES_MAX {
        let start = line.floor_char_boundary(MESSAGE_BYTES_MAX - END_BYTES - TRUNCATION_MARK.len());
        let end = line.ceil_char_boundary(line.len() - END_BYTES);
        line.replace_range(start..end, TRUNCATION_MARK);
    }
}

fn is_full(sent: &Option<std::io::Result<usize>>) -> bool {
    matches!(sent, Some(Err(error)) if error.kind() == std::io::ErrorKind::WouldBlock)
}

fn connect() -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect(LOG_SOCKET).ok()?;
    Some(socket)
}

fn severity(level: LogLevel) -> u32 {
    match level {
        LogLevel::Critical => 2,
        LogLevel::Error => 3,
        LogLevel::Warning => 4,
        LogLevel::Info => 6,
        LogLevel::Notset | LogLevel::Debug => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syslog_long_message_is_cut_with_mark() {
        let rule = " (filter match = ls)";
        for word in ["x".repeat(MESSAGE_BYTES_MAX), "é".repeat(MESSAGE_BYTES_MAX)] {
            let mut line = format!("ls {word}{rule}");
            truncate_middle(&mut line);
            assert!(line.len() <= MESSAGE_BYTES_MAX && line.len() > MESSAGE_BYTES_MAX - 8);
            assert!(
                line.starts_with("ls ") && line.contains(TRUNCATION_MARK) && line.ends_with(rule)
            );
        }
        let mut line = "x".repeat(MESSAGE_BYTES_MAX);
        truncate_middle(&mut line);
        assert!(!line.contains(TRUNCATION_MARK));
    }
}
