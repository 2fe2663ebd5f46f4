// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parsing of rootwrap.conf: filters, executables and options of the daemon.
//! [`rootwrap_policy`](crate::rootwrap_policy) reads the files that it names.

use crate::diagnostic::error;
use crate::ini::{self, DuplicateHandling, IniEntry, IniFile};
use crate::mode::Mode;
use crate::python_strings;
use roster_messages::Diagnostic;
use roster_messages::table::commands;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Values of a rootwrap.conf, with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootwrapConf {
    /// Directories of filter files, in order of precedence.
    pub filters_path: Vec<String>,
    /// Directories of executables. `None`: those of `$PATH`.
    pub exec_dirs: Option<Vec<String>>,
    /// True if commands are logged to syslog.
    pub use_syslog: bool,
    /// The facility as its number in syslog(3), not shifted.
    pub syslog_log_facility: u8,
    /// The lowest level that is logged.
    pub syslog_log_level: LogLevel,
    /// Seconds without a command after which the daemon stops.
    pub daemon_timeout: i64,
    /// Limit of open files.
    pub rlimit_nofile: i64,
    /// Limit of bytes to a command, and of each output stream. oslo.rootwrap ignores this key.
    pub data_max: u64,
    /// The mode of decisions. oslo.rootwrap ignores this key.
    pub mode: Mode,
}

/// Levels of Python's `logging`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // names say it
pub enum LogLevel {
    Notset,
    Debug,
    Info,
    Warning,
    Error,
    Critical,
}

/// Names in syslog(3) by number. 12 to 15 are `ntp`, `security`, `console` and `solaris-cron`.
const FACILITIES: [&str; 24] = [
    "kern",
    "user",
    "mail",
    "daemon",
    "auth",
    "syslog",
    "lpr",
    "news",
    "uucp",
    "cron",
    "authpriv",
    "ftp",
    "ntp",
    "security",
    "console",
    "solaris-cron",
    "local0",
    "local1",
    "local2",
    "local3",
    "local4",
    "local5",
    "local6",
    "local7",
];

/// Severities that Python's handler accepts as facilities.
const SEVERITIES: [&str; 8] = [
    "LOG_EMERG",
    "LOG_ALERT",
    "LOG_CRIT",
    "LOG_ERR",
    "LOG_WARNING",
    "LOG_NOTICE",
    "LOG_INFO",
    "LOG_DEBUG",
];

/// The default of `roster_data_max`.
const DATA_BYTES_MAX: u64 = 2 << 30;

const LEVELS: [(&str, LogLevel); 8] = [
    ("NOTSET", LogLevel::Notset),
    ("DEBUG", LogLevel::Debug),
    ("INFO", LogLevel::Info),
    ("WARN", LogLevel::Warning),
    ("WARNING", LogLevel::Warning),
    ("ERROR", LogLevel::Error),
    ("FATAL", LogLevel::Critical),
    ("CRITICAL", LogLevel::Critical),
];

impl RootwrapConf {
    /// Parses a rootwrap.conf. The errors are all its mistakes.
    pub fn parse(file: &Path, bytes: &[u8]) -> Result<Self, Vec<Diagnostic>> {
        let ini = ini::parse(file, bytes, DuplicateHandling::Refused)?;
        let mut reader = ConfReader { file, ini: &ini, problems: Vec::new() };
        let filters_path = reader.read_dirs("filters_path");
        if filters_path.is_none() {
            let problem =
                error(&commands::FILTERS_PATH_MISSING, file, 0, "filters_path is missing");
            reader.problems.push(problem);
        }
        let conf = Self {
            filters_path: filters_path.unwrap_or_default(),
            exec_dirs: reader.read_dirs("exec_dirs"),
            use_syslog: reader.read_value("use_syslog", "True or False", boolean).unwrap_or(false),
            syslog_log_facility: reader
                .read_value(
                    "syslog_log_facility",
                    "a facility of syslog(3), such as daemon",
                    facility,
                )
                .unwrap_or(5),
            syslog_log_level: reader
                .read_value("syslog_log_level", "DEBUG, INFO, WARNING, ERROR or CRITICAL", level)
                .unwrap_or(LogLevel::Error),
            daemon_timeout: reader
                .read_value("daemon_timeout", "seconds as a whole number", python_strings::int)
                .unwrap_or(600),
            rlimit_nofile: reader
                .read_value("rlimit_nofile", "a whole number of files", python_strings::int)
                .unwrap_or(1024),
            data_max: reader
                .read_value("roster_data_max", "a whole number of bytes", size)
                .unwrap_or(DATA_BYTES_MAX),
            mode: reader
                .read_value("roster_mode", "compat or strict", mode)
                .unwrap_or(Mode::Compat),
        };
        let problems = reader.problems;
        if problems.is_empty() { Ok(conf) } else { Err(problems) }
    }

    /// Returns the directories of executables for a process with this `$PATH`.
    #[must_use]
    pub fn executable_dirs(&self, path: Option<&OsStr>) -> Vec<OsString> {
        match (&self.exec_dirs, path) {
            (Some(folders), _) => folders.iter().map(OsString::from).collect(),
            (None, Some(path)) => split_path(path).map(OsStr::to_owned).collect(),
            (None, None) => Vec::new(),
        }
    }
}

/// The `PATH` of commands of roster-exec, and of strict mode without `exec_dirs`.
pub(crate) const SECURE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the directories of [`SECURE_PATH`].
pub(crate) fn default_path_dirs() -> Vec<OsString> {
    split_path(OsStr::new(SECURE_PATH)).map(OsStr::to_owned).collect()
}

/// Splits a `$PATH` into directories.
pub(crate) fn split_path(path: &OsStr) -> impl Iterator<Item = &OsStr> {
    path.as_bytes().split(|&byte| byte == b':').map(OsStr::from_bytes)
}

struct ConfReader<'a> {
    file: &'a Path,
    ini: &'a IniFile,
    problems: Vec<Diagnostic>,
}

impl ConfReader<'_> {
    fn read_value<T>(
        &mut self,
        name: &str,
        wanted: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let IniEntry { value, line, .. } = self.ini.defaults.get(name)?;
        let value_read = read(value);
        if value_read.is_none() {
            let text = format!("invalid value {value:?}");
            self.problems.push(Diagnostic {
                key: name.to_owned(),
                fix: Some(format!("Write {wanted}.")),
                ..error(&commands::CONF_VALUE_INVALID, self.file, *line, text)
            });
        }
        value_read
    }

    /// Reads paths with commas between them. Blanks belong to the paths.
    fn read_dirs(&mut self, name: &str) -> Option<Vec<String>> {
        let wanted = "paths without NUL, separated by commas";
        self.read_value(name, wanted, |value| {
            (!value.contains('\0')).then(|| value.split(',').map(str::to_owned).collect())
        })
    }
}

fn boolean(value: &str) -> Option<bool> {
    match &*value.to_lowercase() {
        "1" | "yes" | "true" | "on" => Some(true),
        "0" | "no" | "false" | "off" => Some(false),
        _ => None,
    }
}

fn number_in(names: &[&str], is: impl Fn(&str) -> bool) -> Option<u8> {
    names.iter().position(|name| is(name)).and_then(|number| u8::try_from(number).ok())
}

fn facility(value: &str) -> Option<u8> {
    if let Some(severity) = number_in(&SEVERITIES, |name| name == value) {
        return Some(severity);
    }
    let constant = |name: &str| match name {
        "solaris-cron" => value == "LOG_SOLCRON",
        _ => value.strip_prefix("LOG_") == Some(&*name.to_uppercase()),
    };
    number_in(&FACILITIES, |name| name == value || constant(name))
}

fn level(value: &str) -> Option<LogLevel> {
    let value = value.to_uppercase();
    LEVELS.iter().find(|(name, _)| *name == value).map(|&(_, level)| level)
}

fn size(value: &str) -> Option<u64> {
    python_strings::int(value).and_then(|bytes| u64::try_from(bytes).ok())
}

fn mode(value: &str) -> Option<Mode> {
    match value {
        "compat" => Some(Mode::Compat),
        "strict" => Some(Mode::Strict),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RootwrapConf, Vec<String>> {
        RootwrapConf::parse(Path::new("rootwrap.conf"), text.as_bytes())
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_is_not_said_has_the_defaults_of_the_original() {
        let conf = parse("[DEFAULT]\nfilters_path=/a,/b, /c\n").unwrap();
        assert_eq!(
            conf,
            RootwrapConf {
                filters_path: vec!["/a".into(), "/b".into(), " /c".into()],
                exec_dirs: None,
                use_syslog: false,
                syslog_log_facility: 5,
                syslog_log_level: LogLevel::Error,
                daemon_timeout: 600,
                rlimit_nofile: 1024,
                data_max: 2 << 30,
                mode: Mode::Compat,
            }
        );
        let path = conf.executable_dirs(Some(OsStr::new("/x::/y")));
        assert_eq!(path, ["/x", "", "/y"]);
        assert_eq!(conf.executable_dirs(None), Vec::<OsString>::new());
    }

    #[test]
    fn every_key_is_read() {
        let conf = parse(
            "[DEFAULT]\nfilters_path=/a\nExec_Dirs: /sbin,/bin\nuse_syslog=YES\n\
             syslog_log_facility=LOG_LOCAL0\nsyslog_log_level=warn\ndaemon_timeout= 1_0\n\
             rlimit_nofile=99\nroster_mode=strict\nroster_data_max=1\nunknown=1\n",
        )
        .unwrap();
        assert_eq!(conf.exec_dirs, Some(vec!["/sbin".into(), "/bin".into()]));
        assert_eq!((conf.use_syslog, conf.syslog_log_facility), (true, 16));
        assert_eq!((conf.syslog_log_level, conf.daemon_timeout), (LogLevel::Warning, 10));
        assert_eq!((conf.rlimit_nofile, conf.mode, conf.data_max), (99, Mode::Strict, 1));
        assert_eq!(facility("LOG_ERR"), Some(3));
        assert_eq!(facility("authpriv"), Some(10));
        assert_eq!(facility("DAEMON"), None);
    }

    #[test]
    fn every_mistake_has_its_line_and_what_to_write_instead() {
        let problems = parse("[DEFAULT]\nuse_syslog = perhaps\ndaemon_timeout=soon\n").unwrap_err();
        assert_eq!(
            problems,
            [
                "rootwrap.conf: filters_path is missing. Write filters_path=/etc/…/rootwrap.d below \
                 [DEFAULT]. [RST-7003]",
                "rootwrap.conf:2: use_syslog: invalid value \"perhaps\". Write True or False. [RST-7002]",
                "rootwrap.conf:3: daemon_timeout: invalid value \"soon\". Write seconds as a whole number. \
                 [RST-7002]",
            ]
        );
    }
}
