//! Logs: to journald when standard error leads there, else to standard error as text or JSON. Every
//! line names the role that wrote it, and the level can change while the process runs.

use roster_bus::names::Role;
use roster_config::Log;
use std::fmt;
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

/// Levels by name, as the configuration and `roster log-level` have them.
const LEVELS: [(&str, LevelFilter); 5] = [
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// How much a running process logs, and in which form.
#[derive(Clone)]
pub struct LogLevel {
    filter: reload::Handle<Targets, Registry>,
    json: Arc<AtomicBool>,
}

impl LogLevel {
    /// Its name.
    #[must_use]
    pub fn get(&self) -> String {
        let level = self.filter.with_current(ours).unwrap_or(LevelFilter::OFF);
        let named = LEVELS.iter().find(|(_, candidate)| *candidate == level);
        named.map_or("off", |(name, _)| name).to_owned()
    }

    /// Sets it; false when there is no level of that name.
    #[must_use]
    pub fn set(&self, name: &str) -> bool {
        filter(name).is_some_and(|filter| self.filter.reload(filter).is_ok())
    }

    /// Writes lines of JSON from now on, or of text; the journal has a form of its own.
    pub fn set_json(&self, json: bool) {
        self.json.store(json, Ordering::Relaxed);
    }
}

fn ours(targets: &Targets) -> LevelFilter {
    let ours = targets.iter().find(|(target, _)| *target == OURS);
    ours.map_or(LevelFilter::OFF, |(_, level)| level)
}

/// Prefix of the names of the daemon's own crates.
const OURS: &str = "roster";

/// Our own lines at that level; those of libraries one step less talkative, and not at `info`, where
/// only what an administrator can act on belongs.
fn filter(name: &str) -> Option<Targets> {
    let (_, level) = LEVELS.iter().find(|(candidate, _)| *candidate == name)?;
    let others = match *level {
        LevelFilter::TRACE => LevelFilter::DEBUG,
        LevelFilter::DEBUG => LevelFilter::INFO,
        level => level.min(LevelFilter::WARN),
    };
    Some(Targets::new().with_default(others).with_target(OURS, *level))
}

/// Starts logging, once for each process. A level that does not exist is `info`.
#[must_use]
pub fn start(role: &Role, log: &Log) -> LogLevel {
    let targets = filter(&log.level).or_else(|| filter("info")).unwrap_or_default();
    let (targets, filter) = reload::Layer::new(targets);
    let json = Arc::new(AtomicBool::new(log.json));
    let journal = is_stderr_the_journal().then(tracing_journald::Layer::new);
    if let Some(Ok(journal)) = journal {
        let mut fields = vec![("ROSTER_ROLE", role.to_string())];
        if let Role::Backend(domain) = role {
            fields.push(("ROSTER_DOMAIN", domain.clone()));
        }
        let journal = journal
            .with_syslog_identifier(format!("rosterd:{role}"))
            .with_field_prefix(None)
            .with_custom_fields(fields);
        let _ = tracing_subscriber::registry().with(journal.with_filter(targets)).try_init();
    } else {
        let lines = Lines { role: role.to_string(), json: Arc::clone(&json) };
        let layer =
            tracing_subscriber::fmt::layer().with_writer(std::io::stderr).event_format(lines);
        let _ = tracing_subscriber::registry().with(layer.with_filter(targets)).try_init();
    }
    LogLevel { filter, json }
}

/// systemd says in `JOURNAL_STREAM` which device and inode it connected to the journal; whoever
/// redirected standard error since then wants the lines there.
fn is_stderr_the_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    let Some((device, inode)) = stream.split_once(':') else { return false };
    let stat = std::fs::metadata("/proc/self/fd/2");
    stat.is_ok_and(|stat| device.parse() == Ok(stat.dev()) && inode.parse() == Ok(stat.ino()))
}

/// One event, one line.
struct Lines {
    role: String,
    json: Arc<AtomicBool>,
}

impl<S, N> FormatEvent<S, N> for Lines
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
        let mut fields = Fields::default();
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

/// The fields of an event. What a directory's values hold neither ends the line nor moves a cursor.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, String)>,
}

impl Fields {
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

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, &format!("{value:?}"));
    }
}
