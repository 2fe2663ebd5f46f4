// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logs: to journald if standard error is connected to it, otherwise to standard error as text or JSON. Every line
//! names the role that wrote it. The level can change while the process runs.
//!
//! An event of `roster_messages::log!` has a code. A line of text ends with it, JSON has it as `code`, and the journal
//! as `CODE`, beside `MESSAGE_ID`. Such events are counted at any level of the log. A line that a request caused has its
//! number as `request`.
//!
//! A ring of at most 64 KiB stores the last debug lines that the level leaves out. An error, and a warning about
//! a directory or a login, writes them.

mod journal;
mod record;
mod ring;
mod writer;

use record::{LogRecord, level_name};
use ring::DebugRing;
use roster_bus::bus_names::RoleName;
use roster_config::LogConfig;
use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};
use writer::{LogWriter, time_text};

/// Writes a line to standard error before logging has started. Standard error may be closed.
pub fn print_stderr(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Levels by name, as in the configuration and `roster log-level`.
const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
/// Prefix of the names of the daemon's own crates.
const OWN_TARGET_PREFIX: &str = "roster";
/// Digits of a code that mark a reason for a backtrace: warnings about directories and logins.
const BACKTRACE_AREAS: [&str; 2] = ["RST-5", "RST-6"];

/// Returns the position of a level in [`LEVELS`].
fn level_number(name: &str) -> Option<usize> {
    LEVELS.iter().position(|level| level_name(*level) == name)
}

/// Whether there is a level of that name.
#[must_use]
pub fn is_level(name: &str) -> bool {
    level_number(name).is_some()
}

/// Level and format of a running process's log.
#[derive(Clone)]
pub struct LogLevel {
    filter: reload::Handle<Targets, Registry>,
    /// Position in [`LEVELS`].
    level: Arc<AtomicUsize>,
    json: Arc<AtomicBool>,
}

impl LogLevel {
    /// Returns the name of the level.
    #[must_use]
    pub fn get(&self) -> String {
        level_name(current_level(&self.level)).to_owned()
    }

    /// Sets the level. Returns false if there is no level of that name.
    #[must_use]
    pub fn set(&self, name: &str) -> bool {
        let Some(number) = level_number(name) else { return false };
        let is_set = self.filter.reload(filter(LEVELS[number])).is_ok();
        if is_set {
            self.level.store(number, Ordering::Relaxed);
        }
        is_set
    }

    /// Selects lines of JSON or of text. The journal has another format.
    pub fn set_json(&self, json: bool) {
        self.json.store(json, Ordering::Relaxed);
    }
}

fn current_level(number: &AtomicUsize) -> Level {
    LEVELS.get(number.load(Ordering::Relaxed)).copied().unwrap_or(Level::INFO)
}

/// Returns the level of lines of libraries. At `info` they log only warnings, because an administrator cannot act on the
/// rest.
fn library_level(own: Level) -> Level {
    match own {
        Level::TRACE => Level::DEBUG,
        Level::DEBUG => Level::INFO,
        Level::INFO | Level::WARN => Level::WARN,
        _ => Level::ERROR,
    }
}

/// Returns a filter of events for a level of the log. Roster's own debug lines pass at any level, because the ring
/// keeps them.
fn filter(level: Level) -> Targets {
    let own = LevelFilter::from_level(level.max(Level::DEBUG));
    let libraries = LevelFilter::from_level(library_level(level));
    Targets::new().with_default(libraries).with_target(OWN_TARGET_PREFIX, own)
}

/// Starts logging, once for each process. An unknown level counts as `info`.
#[must_use]
pub fn start(role: &RoleName, log: &LogConfig) -> LogLevel {
    let number = level_number(&log.level).or_else(|| level_number("info")).unwrap_or_default();
    let (targets, filter) = reload::Layer::new(filter(LEVELS[number]));
    let (level, json) = (Arc::new(number.into()), Arc::new(AtomicBool::new(log.json)));
    let writer = LogWriter::new(role, is_stderr_the_journal(), Arc::clone(&json));
    let layer = LogLayer { writer, level: Arc::clone(&level), ring: Mutex::default() };
    let _ = tracing_subscriber::registry().with(targets).with(layer).try_init();
    LogLevel { filter, level, json }
}

/// Whether standard error is still the stream of systemd. `JOURNAL_STREAM` has the device and inode of that stream. A
/// redirected standard error gets the lines instead.
fn is_stderr_the_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    let Some((device, inode)) = stream.split_once(':') else { return false };
    let stat = std::fs::metadata("/proc/self/fd/2");
    stat.is_ok_and(|stat| device.parse() == Ok(stat.dev()) && inode.parse() == Ok(stat.ino()))
}

/// Writes events, counts events that have a code, and stores the last debug lines.
struct LogLayer {
    writer: LogWriter,
    /// Position in [`LEVELS`].
    level: Arc<AtomicUsize>,
    ring: Mutex<DebugRing>,
}

impl LogLayer {
    /// Whether the level of the log includes an event.
    fn is_written(&self, metadata: &Metadata<'_>) -> bool {
        let own = current_level(&self.level);
        let is_own = metadata.target().starts_with(OWN_TARGET_PREFIX);
        *metadata.level() <= if is_own { own } else { library_level(own) }
    }

    fn write_backtrace(&self) {
        let lines = {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            ring.take_lines(Instant::now())
        };
        for line in &lines {
            self.writer.write_backtrace(line);
        }
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let record = LogRecord::from_event(event);
        if let Some(code) = &record.code {
            count(code);
        }
        if self.is_written(record.metadata) {
            self.writer.write(&record);
        } else if record.level() == Level::DEBUG {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            ring.push(time_text(), record.text());
        }
        if is_backtrace_reason(&record) {
            self.write_backtrace();
        }
    }
}

/// Counts an event with a code of the table. The table bounds the number of counters.
fn count(code: &str) {
    if let Some(message) = roster_messages::find(code) {
        metrics::counter!("roster_messages_total", "code" => message.code).increment(1);
    }
}

/// Whether an event is an error, or a warning about a directory or a login.
fn is_backtrace_reason(record: &LogRecord) -> bool {
    let code = record.code.as_deref().unwrap_or_default();
    match record.level() {
        Level::ERROR => true,
        Level::WARN => BACKTRACE_AREAS.iter().any(|area| code.starts_with(area)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::test_counters;
    use roster_messages::table::daemon::{BUS_LOST, ROLE_FAILED};
    use roster_messages::table::directory::NO_REPLY;
    use roster_messages::{CodedError, RequestNumber, log};
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;
    use tracing::subscriber::with_default;

    /// Returns the layer of a log at that level, and its output.
    fn layer_at(level: Level, json: bool) -> (LogLayer, Arc<Mutex<Vec<u8>>>) {
        let output = Arc::new(Mutex::new(Vec::new()));
        let writer = LogWriter::to_memory(&RoleName::Publisher, json, Arc::clone(&output));
        let number = level_number(level_name(level)).expect("a level");
        (LogLayer { writer, level: Arc::new(number.into()), ring: Mutex::default() }, output)
    }

    /// Returns the lines of events at that level, without their times.
    fn lines_at(level: Level, json: bool, events: impl FnOnce()) -> Vec<String> {
        let (layer, output) = layer_at(level, json);
        with_default(tracing_subscriber::registry().with(filter(level)).with(layer), events);
        let text = String::from_utf8(output.lock().expect("no panic").clone()).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    fn lines_of(json: bool, events: impl FnOnce()) -> Vec<String> {
        lines_at(Level::INFO, json, events)
    }

    /// Returns the lines of text without their times.
    fn without_times(lines: &[String]) -> Vec<&str> {
        lines.iter().filter_map(|line| Some(line.split_once(' ')?.1)).collect()
    }

    #[test]
    fn logging_text_line_ends_with_code() {
        let lines = lines_of(false, || {
            log!(WARN, &BUS_LOST, domain = "corp", "the bus: gone");
            log!(ERROR, &ROLE_FAILED, "{}", CodedError::new(&ROLE_FAILED, "cache: damaged"));
            tracing::info!(code = 7, "without a code");
        });
        let lines = without_times(&lines);
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
            // Events below the level of the log are counted as well.
            let (layer, _) = layer_at(Level::ERROR, false);
            with_default(tracing_subscriber::registry().with(layer), || {
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

    #[test]
    fn logging_line_has_number_of_request() {
        let number = RequestNumber(12 << 32 | 3);
        let logged = |json| {
            let _entered = number.enter();
            lines_of(json, || tracing::info!(user = "alice", "login"))
        };
        let text = "info  publisher: login user=alice request=12-3";
        assert_eq!(without_times(&logged(false)), [text]);
        let line: serde_json::Value = serde_json::from_str(&logged(true)[0]).expect("JSON");
        assert_eq!(line["request"], "12-3");
    }

    #[test]
    fn logging_values_are_bounded_and_printable() {
        let long = "é".repeat(10_000);
        let lines = lines_of(false, || tracing::info!(name = "a\u{1b}[2J\nb", %long, "text"));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(" name=a\\u{1b}[2J\\nb "), "{lines:?}");
        assert!(lines[0].len() < 5_000 && lines[0].ends_with("é…"), "{}", lines[0].len());
    }

    #[test]
    fn logging_error_writes_earlier_debug_lines() {
        let events = || {
            let _entered = RequestNumber(12 << 32 | 3).enter();
            tracing::debug!(base = "dc=x", "search");
            tracing::trace!("not kept");
            tracing::debug!(target: "zbus", "of a library");
            log!(WARN, &BUS_LOST, "the bus: gone");
            log!(ERROR, &ROLE_FAILED, "failed");
            log!(ERROR, &ROLE_FAILED, "failed again");
        };
        let lines = lines_of(false, events);
        let lines = without_times(&lines);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[2].starts_with("debug publisher: backtrace: "), "{lines:?}");
        assert!(lines[2].ends_with("Z: search base=dc=x request=12-3"), "{lines:?}");
        // The lines were written already, or a directory caused the warning.
        let debug = lines_at(Level::DEBUG, false, events);
        assert!(!debug.iter().any(|line| line.contains("backtrace")), "{debug:?}");
        let json = lines_of(true, || {
            tracing::debug!("search");
            log!(WARN, &NO_REPLY, "offline");
        });
        let line: serde_json::Value = serde_json::from_str(&json[1]).expect("JSON");
        assert_eq!((&line["backtrace"], &line["level"]), (&true.into(), &"debug".into()));
    }

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
        let journal = UnixDatagram::bind(journal::SOCKET).expect("bind");
        let writer = LogWriter::new(&RoleName::Publisher, true, Arc::default());
        let layer = LogLayer { writer, level: Arc::new(2.into()), ring: Mutex::default() };
        with_default(tracing_subscriber::registry().with(layer), || {
            let _entered = RequestNumber(12 << 32 | 3).enter();
            log!(WARN, &BUS_LOST, user = "alice", "the bus: gone");
        });
        let mut record = vec![0; 1 << 16];
        // The writer tries the socket with an empty datagram.
        assert_eq!(journal.recv(&mut record).expect("receive"), 0);
        let length = journal.recv(&mut record).expect("receive");
        record.truncate(length);
        for (name, value) in [
            ("MESSAGE_ID", BUS_LOST.journal_id),
            ("CODE", BUS_LOST.code),
            ("MESSAGE", "the bus: gone"),
            ("USER", "alice"),
            ("REQUEST", "12-3"),
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "rosterd:publisher"),
            ("ROSTER_ROLE", "publisher"),
        ] {
            let bytes = (value.len() as u64).to_le_bytes();
            let field = [name.as_bytes(), b"\n", &bytes, value.as_bytes(), b"\n"].concat();
            let found = record.windows(field.len()).any(|part| part == field);
            assert!(found, "{name}: {}", record.escape_ascii());
        }
    }
}
