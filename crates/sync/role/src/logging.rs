//! Logs: to journald if standard error is connected to it, otherwise to standard error as text or JSON. Every line
//! names the role that wrote it. The level can change while the process runs.

use roster_bus::bus_names::RoleName;
use roster_config::LogConfig;
use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, format::Writer};
use tracing_subscriber::layer::SubscriberExt;
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
    let journal = is_stderr_the_journal().then(tracing_journald::Layer::new);
    if let Some(Ok(journal)) = journal {
        let mut fields = vec![("ROSTER_ROLE", role.to_string())];
        if let RoleName::Backend(domain) = role {
            fields.push(("ROSTER_DOMAIN", domain.clone()));
        }
        let journal = journal
            .with_syslog_identifier(format!("rosterd:{role}"))
            .with_field_prefix(None)
            .with_custom_fields(fields);
        let _ = tracing_subscriber::registry().with(journal.with_filter(targets)).try_init();
    } else {
        let lines = LineFormat { role: role.to_string(), json: Arc::clone(&json) };
        let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr).event_format(lines);
        let _ = tracing_subscriber::registry().with(layer.with_filter(targets)).try_init();
    }
    LogLevel { filter, json }
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
        let mut fields = EventFields::default();
        event.record(&mut fields);
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
            for (name, value) in fields.others {
                line.entry(name).or_insert_with(|| value.into());
            }
            return writeln!(writer, "{}", serde_json::Value::Object(line));
        }
        write!(writer, "{time} {:5} {}: {}", level_name(level), self.role, fields.message)?;
        for (name, value) in fields.others {
            write!(writer, " {name}={value}")?;
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
    others: Vec<(&'static str, String)>,
}

impl EventFields {
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
