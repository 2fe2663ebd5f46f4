// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logs: to journald if standard error is connected to it, otherwise to standard error as text or JSON. Every line
//! names the role that wrote it. The level can change while the process runs.
//!
//! An event of `roster_messages::log!` has a code. A line of text ends with it, JSON has it as `code`, and the journal
//! as `CODE`, beside `MESSAGE_ID`. Such events are counted at any level of the log.

use roster_bus::bus_names::RoleName;
use roster_config::LogConfig;
use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, format::Writer};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// Writes a line to standard error before logging has started. Standard error may be closed.
pub fn print_stderr(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Levels by name, as in the configuration and `roster log-level`.
const LEVELS: [(&str, LevelFilter); 5] = [
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// Level and format of a running process's log.
#[derive(Clone)]
pub struct LogLevel {
    filter: reload::Handle<Targets, Registry>,
    json: Arc<AtomicBool>,
}

impl LogLevel {
    /// Returns the name of the level.
    #[must_use]
    pub fn get(&self) -> String {
        let level = self.filter.with_current(own_level).unwrap_or(LevelFilter::OFF);
        let named = LEVELS.iter().find(|(_, candidate)| *candidate == level);
        named.map_or("off", |(name, _)| name).to_owned()
    }

    /// Sets the level. Returns false if there is no level of that name.
    #[must_use]
    pub fn set(&self, name: &str) -> bool {
        filter(name).is_some_and(|filter| self.filter.reload(filter).is_ok())
    }

    /// Selects lines of JSON or of text. The journal has another format.
    pub fn set_json(&self, json: bool) {
        self.json.store(json, Ordering::Relaxed);
    }
}

fn own_level(targets: &Targets) -> LevelFilter {
    let ours = targets.iter().find(|(target, _)| *target == OWN_TARGET_PREFIX);
    ours.map_or(LevelFilter::OFF, |(_, level)| level)
}

/// Prefix of the names of the daemon's own crates.
const OWN_TARGET_PREFIX: &str = "roster";

/// Returns a filter that logs Roster's own lines at that level, and lines of libraries with less detail. At `info`,
/// libraries log only warnings, because an administrator cannot act on the rest.
fn filter(name: &str) -> Option<Targets> {
    let (_, level) = LEVELS.iter().find(|(candidate, _)| *candidate == name)?;
    let others = match *level {
        LevelFilter::TRACE => LevelFilter::DEBUG,
        LevelFilter::DEBUG => LevelFilter::INFO,
        level => level.min(LevelFilter::WARN),
    };
    Some(Targets::new().with_default(others).with_target(OWN_TARGET_PREFIX, *level))
}

/// Starts logging, once for each process. An unknown level counts as `info`.
#[must_use]
pub fn start(role: &RoleName, log: &LogConfig) -> LogLevel {
    let targets = filter(&log.level).or_else(|| filter("info")).unwrap_or_default();
    let (targets, filter) = reload::Layer::new(targets);
    let json = Arc::new(AtomicBool::new(log.json));
    let journal = is_stderr_the_journal().then(|| journal_layer(role));
    if let Some(Ok(journal)) = journal {
        let layers = tracing_subscriber::registry().with(journal.with_filter(targets));
        let _ = layers.with(message_counter()).try_init();
    } else {
        let lines = LineFormat { role: role.to_string(), json: Arc::clone(&json) };
        let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr).event_format(lines);
        let layers = tracing_subscriber::registry().with(layer.with_filter(targets));
        let _ = layers.with(message_counter()).try_init();
    }
    LogLevel { filter, json }
}

/// Returns the layer that writes to journald. It converts names of fields to capitals.
fn journal_layer(role: &RoleName) -> io::Result<tracing_journald::Layer> {
    let mut fields = vec![("ROSTER_ROLE", role.to_string())];
    if let RoleName::Backend(domain) = role {
        fields.push(("ROSTER_DOMAIN", domain.clone()));
    }
    let layer = tracing_journald::Layer::new()?
        .with_syslog_identifier(format!("rosterd:{role}"))
        .with_field_prefix(None)
        .with_custom_fields(fields);
    Ok(layer)
}

/// Field of `roster_messages::log!` with the journal's identifier of the message.
const JOURNAL_ID: &str = "message_id";
/// Field of `roster_messages::log!` with the code.
const CODE: &str = "code";

/// Whether an event has a code.
fn has_code(metadata: &Metadata<'_>) -> bool {
    metadata.fields().field(JOURNAL_ID).is_some()
}

/// Returns the layer that counts events with a code.
fn message_counter<S>() -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    MessageCounter.with_filter(filter_fn(has_code).with_max_level_hint(Level::INFO))
}

struct MessageCounter;

impl<S: Subscriber> Layer<S> for MessageCounter {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut CountedCode);
    }
}

struct CountedCode;

impl Visit for CountedCode {
    fn record_str(&mut self, field: &Field, value: &str) {
        // Only codes of the table: their number bounds the number of counters.
        if field.name() == CODE
            && let Some(message) = roster_messages::find(value)
        {
            metrics::counter!("roster_messages_total", "code" => message.code).increment(1);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// Whether standard error is still the stream of systemd. `JOURNAL_STREAM` has the device and inode of that stream. A
/// redirected standard error gets the lines instead.
fn is_stderr_the_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    let Some((device, inode)) = stream.split_once(':') else { return false };
    let stat = std::fs::metadata("/proc/self/fd/2");
    stat.is_ok_and(|stat| device.parse() == Ok(stat.dev()) && inode.parse() == Ok(stat.ino()))
}

/// One event, one line.
struct LineFormat {
    role: String,
    json: Arc<AtomicBool>,
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let fields = EventFields::from_event(event);
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let level = event.metadata().level();
        if self.json.load(Ordering::Relaxed) {
            let mut line = serde_json::Map::new();
            line.insert("time".into(), time.into());
            line.insert("level".into(), level_name(level).into());
            line.insert("role".into(), self.role.as_str().into());
            line.insert("target".into(), event.metadata().target().into());
            line.insert("message".into(), fields.message.into());
            if let Some(code) = fields.code {
                line.insert(CODE.into(), code.into());
            }
            for (name, value) in fields.others {
                line.entry(name).or_insert_with(|| value.into());
            }
            return writeln!(writer, "{}", serde_json::Value::Object(line));
        }
        write!(writer, "{time} {:5} {}: {}", level_name(level), self.role, fields.message)?;
        for (name, value) in fields.others {
            write!(writer, " {name}={value}")?;
        }
        if let Some(code) = fields.code {
            write!(writer, " [{code}]")?;
        }
        writeln!(writer)
    }
}

fn level_name(level: &Level) -> &'static str {
    let named = LEVELS.iter().find(|(_, candidate)| *candidate == *level);
    named.map_or("off", |(name, _)| name)
}

/// The fields of an event. Control characters in a directory's values neither end the line nor move a cursor.
#[derive(Default)]
struct EventFields {
    message: String,
    code: Option<String>,
    others: Vec<(&'static str, String)>,
}

impl EventFields {
    fn from_event(event: &Event<'_>) -> Self {
        let mut fields = Self::default();
        event.record(&mut fields);
        if !has_code(event.metadata()) {
            let code = fields.code.take();
            fields.others.extend(code.map(|code| (CODE, code)));
        } else if let Some(code) = &fields.code
            // The text of an error ends with the code already.
            && let Some(text) = fields.message.strip_suffix(&format!(" [{code}]"))
        {
            fields.message.truncate(text.len());
        }
        fields
    }

    fn put(&mut self, field: &Field, value: &str) {
        let mut shown = String::with_capacity(value.len());
        for char in value.chars() {
            match char {
                char if char.is_control() => shown.extend(char.escape_default()),
                char => shown.push(char),
            }
        }
        let value = shown;
        match field.name() {
            "message" => self.message = value,
            JOURNAL_ID => {}
            CODE => self.code = Some(value),
            name => self.others.push((name, value)),
        }
    }
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::test_counters;
    use roster_messages::table::daemon::{BUS_LOST, ROLE_FAILED};
    use roster_messages::{CodedError, log};
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;
    use std::sync::Mutex;
    use tracing::subscriber::with_default;

    /// Returns the lines of events, without their times.
    fn lines_of(json: bool, events: impl FnOnce()) -> Vec<String> {
        struct Output(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Output {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().expect("no panic").write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let output = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&output);
        let format = LineFormat { role: "publisher".into(), json: Arc::new(json.into()) };
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(move || Output(Arc::clone(&writer)))
            .event_format(format);
        with_default(tracing_subscriber::registry().with(layer), events);
        let text = String::from_utf8(output.lock().expect("no panic").clone()).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn logging_text_line_ends_with_code() {
        let lines = lines_of(false, || {
            log!(WARN, &BUS_LOST, domain = "corp", "the bus: gone");
            log!(ERROR, &ROLE_FAILED, "{}", CodedError::new(&ROLE_FAILED, "cache: damaged"));
            tracing::info!(code = 7, "without a code");
        });
        let behind_time = |line: &String| line.split_once(' ').map(|(_, text)| text.to_owned());
        let lines: Vec<_> = lines.iter().filter_map(behind_time).collect();
        let (lost, failed) = (BUS_LOST.code, ROLE_FAILED.code);
        assert_eq!(
            lines,
            [
                format!("warn  publisher: the bus: gone domain=corp [{lost}]"),
                format!("error publisher: cache: damaged. {} [{failed}]", ROLE_FAILED.fix),
                "info  publisher: without a code code=7".to_owned(),
            ]
        );
    }

    #[test]
    fn logging_json_line_has_code() {
        let lines = lines_of(true, || {
            log!(WARN, &BUS_LOST, domain = "corp", "the bus: gone");
        });
        let line: serde_json::Value = serde_json::from_str(&lines[0]).expect("JSON");
        assert_eq!(
            (line["code"].as_str(), line["domain"].as_str()),
            (Some(BUS_LOST.code), Some("corp"))
        );
        assert_eq!(line["message"], "the bus: gone");
        assert!(line.get("message_id").is_none(), "{line}");
    }

    #[test]
    fn logging_counts_messages_by_code() {
        let text = test_counters(|| {
            with_default(tracing_subscriber::registry().with(message_counter()), || {
                for _ in 0..2 {
                    log!(WARN, &BUS_LOST, "the bus: gone");
                }
                tracing::warn!(code = "RST-4001", "without a code");
            });
        });
        let expected = format!("roster_messages_total{{code=\"{}\"}} 2\n", BUS_LOST.code);
        assert!(text.contains(&expected), "{text}");
        assert_eq!(text.matches("roster_messages_total{").count(), 1, "{text}");
    }

    /// The socket of journald. The test below has its own one at that path, in a private mount namespace.
    const JOURNAL: &str = "/run/systemd/journal/socket";

    #[test]
    fn logging_journal_record_has_code_fields() {
        const INSIDE: &str = "logging::tests::inside_journal_namespace";
        const SCRIPT: &str =
            "mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/journal; exec \"$@\"";
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let test = std::env::current_exe().expect("a path");
        command.args(["sh", "-ec", SCRIPT, "sh"]).arg(test);
        let done = command.args(["--exact", INSIDE, "--ignored", "--nocapture"]).output();
        let done = done.expect("start unshare of util-linux");
        let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        if text.contains("unshare failed") {
            eprintln!("skipped: {text}");
            return;
        }
        assert!(done.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    #[ignore = "run by logging_journal_record_has_code_fields"]
    fn inside_journal_namespace() {
        let journal = UnixDatagram::bind(JOURNAL).expect("bind");
        let layer = journal_layer(&RoleName::Publisher).expect("a layer");
        with_default(tracing_subscriber::registry().with(layer), || {
            log!(WARN, &BUS_LOST, user = "alice", "the bus: gone");
        });
        let mut record = vec![0; 1 << 16];
        // The layer tries the socket with an empty datagram.
        assert_eq!(journal.recv(&mut record).expect("receive"), 0);
        let length = journal.recv(&mut record).expect("receive");
        record.truncate(length);
        for (name, value) in [
            ("MESSAGE_ID", BUS_LOST.journal_id),
            ("CODE", BUS_LOST.code),
            ("MESSAGE", "the bus: gone"),
            ("USER", "alice"),
            ("ROSTER_ROLE", "publisher"),
        ] {
            let bytes = (value.len() as u64).to_le_bytes();
            let field = [name.as_bytes(), b"\n", &bytes, value.as_bytes(), b"\n"].concat();
            let found = record.windows(field.len()).any(|part| part == field);
            assert!(found, "{name}: {}", record.escape_ascii());
        }
    }
}
