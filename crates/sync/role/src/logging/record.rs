// SPDX-License-Identifier: MIT OR Apache-2.0
//! One log line: the fields of an event, bounded and printable, and the number of its request. `writer` writes it.

use roster_messages::RequestNumber;
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};

/// Longest value of a field, in bytes. Values of directories and users have no other bound.
const VALUE_BYTES_MAX: usize = 4096;
/// Field of `roster_messages::log!` with the journal's identifier of the message.
const JOURNAL_ID: &str = "message_id";
/// Field of `roster_messages::log!` with the code.
pub const CODE: &str = "code";
/// Field with the number of the request.
pub const REQUEST: &str = "request";

/// Returns the name of a level, as in the configuration.
pub fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// The fields of an event. Control characters in a directory's values neither end the line nor move a cursor.
pub struct LogRecord {
    /// Level, target and place in the source.
    pub metadata: &'static Metadata<'static>,
    /// The text.
    pub message: String,
    /// The code of the table, of events with one.
    pub code: Option<String>,
    /// The journal's identifier of the message, of events with a code.
    pub journal_id: Option<String>,
    /// The request that the thread worked on.
    pub request: RequestNumber,
    /// All other fields.
    pub fields: Vec<(&'static str, String)>,
}

impl LogRecord {
    /// Reads an event.
    pub fn from_event(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let mut record = Self {
            metadata,
            message: String::new(),
            code: None,
            journal_id: None,
            request: RequestNumber::current(),
            fields: Vec::new(),
        };
        event.record(&mut FieldReader(&mut record));
        if metadata.fields().field(JOURNAL_ID).is_none() {
            let code = record.code.take();
            record.fields.extend(code.map(|code| (CODE, code)));
        } else if let Some(code) = &record.code
            // The text of an error ends with the code already.
            && let Some(text) = record.message.strip_suffix(&format!(" [{code}]"))
        {
            record.message.truncate(text.len());
        }
        record
    }

    /// Returns the level.
    pub fn level(&self) -> Level {
        *self.metadata.level()
    }

    /// Returns the line without its time, level and role.
    pub fn text(&self) -> String {
        let mut text = self.message.clone();
        for (name, value) in &self.fields {
            let _ = write!(text, " {name}={value}");
        }
        if self.request.is_set() {
            let _ = write!(text, " {REQUEST}={}", self.request);
        }
        if let Some(code) = &self.code {
            let _ = write!(text, " [{code}]");
        }
        text
    }
}

/// Reads the fields of an event.
struct FieldReader<'r>(&'r mut LogRecord);

impl FieldReader<'_> {
    fn put(&mut self, field: &Field, value: &dyn fmt::Display) {
        let mut shown = PrintableValue::default();
        // An error means that the bound is reached.
        let _ = write!(shown, "{value}");
        let value = shown.0;
        match field.name() {
            "message" => self.0.message = value,
            JOURNAL_ID => self.0.journal_id = Some(value),
            CODE => self.0.code = Some(value),
            name => self.0.fields.push((name, value)),
        }
    }
}

impl Visit for FieldReader<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, &value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, &format_args!("{value:?}"));
    }
}

/// A value with a bound and without control characters.
#[derive(Default)]
struct PrintableValue(String);

impl fmt::Write for PrintableValue {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for char in text.chars() {
            if self.0.len() >= VALUE_BYTES_MAX {
                self.0.push('…');
                return Err(fmt::Error);
            }
            if char.is_control() {
                self.0.extend(char.escape_default());
            } else {
                self.0.push(char);
            }
        }
        Ok(())
    }
}
