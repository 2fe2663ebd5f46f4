// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes records to journald, or to standard error as text or JSON. `record` has the line, `journal` the datagrams,
//! and `ring` the lines below the level.

use super::journal::{Journal, JournalRecord, priority};
use super::record::{CODE, LogRecord, REQUEST, level_name};
use super::ring::RingLine;
use roster_bus::bus_names::RoleName;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Returns the present time, as lines have it.
pub fn time_text() -> String {
    let mut time = String::new();
    // The clock of the kernel has no error.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time
}

/// The destination of records.
enum LogOutput {
    Journal(Journal),
    Stderr,
    #[cfg(test)]
    Memory(Arc<std::sync::Mutex<Vec<u8>>>),
}

/// Writes the records of a role.
pub struct LogWriter {
    role: RoleName,
    role_text: String,
    output: LogOutput,
    json: Arc<AtomicBool>,
}

impl LogWriter {
    /// Writes to journald if `to_journal` is set and journald listens, otherwise to standard error.
    pub fn new(role: &RoleName, to_journal: bool, json: Arc<AtomicBool>) -> Self {
        let journal = to_journal.then(Journal::open).and_then(Result::ok);
        let output = journal.map_or(LogOutput::Stderr, LogOutput::Journal);
        Self { role: role.clone(), role_text: role.to_string(), output, json }
    }

    /// Writes to memory.
    #[cfg(test)]
    pub fn to_memory(role: &RoleName, json: bool, memory: Arc<std::sync::Mutex<Vec<u8>>>) -> Self {
        let (role_text, output) = (role.to_string(), LogOutput::Memory(memory));
        Self { role: role.clone(), role_text, output, json: Arc::new(json.into()) }
    }

    /// Writes a record.
    pub fn write(&self, record: &LogRecord) {
        if let LogOutput::Journal(journal) = &self.output {
            journal.send(&self.journal_record(record));
        } else if self.json.load(Ordering::Relaxed) {
            self.write_line(&self.json_line(record));
        } else {
            let (time, level, text) = (time_text(), level_name(record.level()), record.text());
            self.write_line(&format!("{time} {level:5} {}: {text}", self.role_text));
        }
    }

    /// Writes a line of the ring.
    pub fn write_backtrace(&self, line: &RingLine) {
        let RingLine { time, text } = line;
        let message = format!("backtrace: {time}: {text}");
        if let LogOutput::Journal(journal) = &self.output {
            let mut record = self.started_record(Level::DEBUG);
            record.put("BACKTRACE", "1");
            record.put("MESSAGE", &message);
            return journal.send(&record);
        }
        let (now, level) = (time_text(), level_name(Level::DEBUG));
        if self.json.load(Ordering::Relaxed) {
            let role = &self.role_text;
            let line = serde_json::json!({
                "time": now, "level": level, "role": role, "message": message, "backtrace": true,
            });
            self.write_line(&line.to_string());
        } else {
            self.write_line(&format!("{now} {level:5} {}: {message}", self.role_text));
        }
    }

    fn write_line(&self, line: &str) {
        let line = format!("{line}\n");
        match &self.output {
            LogOutput::Journal(_) => {}
            // Standard error may be closed.
            LogOutput::Stderr => drop(io::stderr().lock().write_all(line.as_bytes())),
            #[cfg(test)]
            LogOutput::Memory(memory) => {
                memory.lock().expect("no panic").extend_from_slice(line.as_bytes());
            }
        }
    }

    fn json_line(&self, record: &LogRecord) -> String {
        let mut line = serde_json::Map::new();
        line.insert("time".into(), time_text().into());
        line.insert("level".into(), level_name(record.level()).into());
        line.insert("role".into(), self.role_text.as_str().into());
        line.insert("target".into(), record.metadata.target().into());
        line.insert("message".into(), record.message.as_str().into());
        if let Some(code) = &record.code {
            line.insert(CODE.into(), code.as_str().into());
        }
        if record.request.is_set() {
            line.insert(REQUEST.into(), record.request.to_string().into());
        }
        for (name, value) in &record.fields {
            line.entry(*name).or_insert_with(|| value.as_str().into());
        }
        serde_json::Value::Object(line).to_string()
    }

    /// Returns a record with the fields of all records.
    fn started_record(&self, level: Level) -> JournalRecord {
        let mut record = JournalRecord::default();
        record.put("PRIORITY", priority(level));
        record.put("SYSLOG_IDENTIFIER", &format!("rosterd:{}", self.role_text));
        record.put("ROSTER_ROLE", &self.role_text);
        if let RoleName::Backend(domain) = &self.role {
            record.put("ROSTER_DOMAIN", domain);
        }
        record
    }

    fn journal_record(&self, record: &LogRecord) -> JournalRecord {
        let mut journal = self.started_record(record.level());
        let metadata = record.metadata;
        journal.put("TARGET", metadata.target());
        if let Some(file) = metadata.file() {
            journal.put("CODE_FILE", file);
        }
        if let Some(line) = metadata.line() {
            journal.put("CODE_LINE", &line.to_string());
        }
        journal.put("MESSAGE", &record.message);
        if let Some(id) = &record.journal_id {
            journal.put("MESSAGE_ID", id);
        }
        if let Some(code) = &record.code {
            journal.put(CODE, code);
        }
        if record.request.is_set() {
            journal.put(REQUEST, &record.request.to_string());
        }
        for (name, value) in &record.fields {
            journal.put(name, value);
        }
        journal
    }
}
