//! What is told to the host's log, as a rootwrap.conf wants it: facility and least severity. A log that
//! does not listen, or is full, keeps nobody waiting.

use crate::rootwrap_conf::{LogLevel, RootwrapConf};
use parking_lot::Mutex;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

const LOG_SOCKET: &str = "/dev/log";
/// Readers of the log take no more. A longer message lacks its middle.
const MESSAGE_BYTES_MAX: usize = 8192;
/// The end of such a message, where the rule stands.
const END_BYTES: usize = 256;
const TRUNCATION_MARK: &str = " […] ";

/// The host's log; or nothing, where it is not to be told.
#[derive(Debug)]
pub struct Syslog {
    name: String,
    facility: u8,
    min_level: LogLevel,
    socket: Option<Mutex<Option<UnixDatagram>>>,
}

impl Syslog {
    /// In the name of a program.
    #[must_use]
    pub fn new(conf: &RootwrapConf, program: &Path) -> Self {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (facility, least) = (conf.syslog_log_facility, conf.syslog_log_level);
        let socket = conf.use_syslog.then(|| Mutex::new(connect()));
        Self { name, facility, min_level: least, socket }
    }

    /// Tells something, if it is severe enough.
    pub fn send_message(&self, level: LogLevel, message: impl FnOnce() -> String) {
        let Some(socket) = self.socket.as_ref().filter(|_| level >= self.min_level) else { return };
        let priority = u32::from(self.facility) << 3 | severity(level);
        let mut line = format!("<{priority}>{}: {}", self.name, message());
        truncate_middle(&mut line);
        let mut line = line.into_bytes();
        line.push(0);
        let mut socket = socket.lock();
        let sent = socket.as_ref().map(|socket| socket.send(&line));
        // The log's reader was started anew.
        if !matches!(sent, Some(Ok(_))) && !is_full(&sent) {
            *socket = connect();
            let _ = socket.as_ref().map(|socket| socket.send(&line));
        }
    }
}

/// Leaves out what is too much, and marks the place.
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
