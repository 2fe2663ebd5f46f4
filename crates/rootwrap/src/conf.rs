//! rootwrap.conf: where filters and executables are, and how the daemon runs. Reads one text; which
//! files it names is looked after by [`policy`](crate::policy).

use crate::ini::{self, Duplicates, Entry, Ini};
use crate::judge::Mode;
use crate::problem::Problem;
use crate::python;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// What a rootwrap.conf says, defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conf {
    /// Folders with filter files, in order of precedence.
    pub filters_path: Vec<String>,
    /// Folders to look for executables in; `None`: those of `$PATH`.
    pub exec_dirs: Option<Vec<String>>,
    /// Whether commands are told to syslog.
    pub use_syslog: bool,
    /// Facility by its number in syslog(3), not shifted.
    pub syslog_log_facility: u8,
    /// Least severity that is told.
    pub syslog_log_level: Level,
    /// Seconds without a command after which the daemon ends.
    pub daemon_timeout: i64,
    /// Bound on open files.
    pub rlimit_nofile: i64,
    /// Bytes that the daemon passes to a command, and of each of its streams back. The original passes
    /// over this key.
    pub data_max: u64,
    /// Which judge decides where nobody says otherwise. The original passes over this key.
    pub mode: Mode,
}

/// Severities of Python's `logging`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // names say it
pub enum Level {
    Notset,
    Debug,
    Info,
    Warning,
    Error,
    Critical,
}

/// The names in syslog(3), by number; 12 to 15 are `ntp`, `security`, `console` and `solaris-cron`.
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

/// Constants of Python's handler that are severities; it takes them for facilities all the same.
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

/// What `roster_data_max` is where it is not said.
const DATA_BYTES_MAX: u64 = 2 << 30;

const LEVELS: [(&str, Level); 8] = [
    ("NOTSET", Level::Notset),
    ("DEBUG", Level::Debug),
    ("INFO", Level::Info),
    ("WARN", Level::Warning),
    ("WARNING", Level::Warning),
    ("ERROR", Level::Error),
    ("FATAL", Level::Critical),
    ("CRITICAL", Level::Critical),
];

impl Conf {
    /// Reads the text of a rootwrap.conf. An error is every mistake in it.
    pub fn parse(file: &Path, bytes: &[u8]) -> Result<Self, Vec<Problem>> {
        let ini = ini::parse(file, bytes, Duplicates::Refused)?;
        let mut reader = Reader { file, ini: &ini, problems: Vec::new() };
        let filters_path = reader.folders("filters_path");
        if filters_path.is_none() {
            let instead = "write filters_path=/etc/…/rootwrap.d below [DEFAULT]";
            let problem = Problem::error(file, 0, "there is no filters_path", instead);
            reader.problems.push(problem);
        }
        let conf = Self {
            filters_path: filters_path.unwrap_or_default(),
            exec_dirs: reader.folders("exec_dirs"),
            use_syslog: reader.read("use_syslog", "True or False", boolean).unwrap_or(false),
            syslog_log_facility: reader
                .read("syslog_log_facility", "a facility of syslog(3), such as daemon", facility)
                .unwrap_or(5),
            syslog_log_level: reader
                .read("syslog_log_level", "DEBUG, INFO, WARNING, ERROR or CRITICAL", level)
                .unwrap_or(Level::Error),
            daemon_timeout: reader
                .read("daemon_timeout", "seconds as a whole number", python::int)
                .unwrap_or(600),
            rlimit_nofile: reader
                .read("rlimit_nofile", "a whole number of files", python::int)
                .unwrap_or(1024),
            data_max: reader
                .read("roster_data_max", "a whole number of bytes", size)
                .unwrap_or(DATA_BYTES_MAX),
            mode: reader.read("roster_mode", "compat or strict", mode).unwrap_or(Mode::Compat),
        };
        let problems = reader.problems;
        if problems.is_empty() { Ok(conf) } else { Err(problems) }
    }

    /// The folders to look for executables in, of a process with this `$PATH`.
    #[must_use]
    pub fn folders_of_executables(&self, path: Option<&OsStr>) -> Vec<OsString> {
        match (&self.exec_dirs, path) {
            (Some(folders), _) => folders.iter().map(OsString::from).collect(),
            (None, Some(path)) => split(path).map(OsStr::to_owned).collect(),
            (None, None) => Vec::new(),
        }
    }
}

/// Where commands of strict mode and of roster-exec find others, unless the configuration says otherwise.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The folders of that.
pub(crate) fn default_path() -> Vec<OsString> {
    split(OsStr::new(PATH)).map(OsStr::to_owned).collect()
}

/// The folders of a `$PATH`.
pub(crate) fn split(path: &OsStr) -> impl Iterator<Item = &OsStr> {
    path.as_bytes().split(|&byte| byte == b':').map(OsStr::from_bytes)
}

struct Reader<'a> {
    file: &'a Path,
    ini: &'a Ini,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn read<T>(&mut self, name: &str, wanted: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let Entry { value, line, .. } = self.ini.defaults.get(name)?;
        let value_read = read(value);
        if value_read.is_none() {
            let what = format!("{name} cannot be {value:?}");
            let instead = format!("write {wanted}");
            self.problems.push(Problem::error(self.file, *line, what, instead));
        }
        value_read
    }

    /// Separated by commas; a space beside one belongs to the name.
    fn folders(&mut self, name: &str) -> Option<Vec<String>> {
        let wanted = "paths without NUL, separated by commas";
        self.read(name, wanted, |value| {
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

fn level(value: &str) -> Option<Level> {
    let value = value.to_uppercase();
    LEVELS.iter().find(|(name, _)| *name == value).map(|&(_, level)| level)
}

fn size(value: &str) -> Option<u64> {
    python::int(value).and_then(|bytes| u64::try_from(bytes).ok())
}

fn mode(value: &str) -> Option<Mode> {
    match value {
        "compat" => Some(Mode::Compat),
        "strict" => Some(Mode::Strict),
        _ => None,
    }
}

/// A path out of bytes.
pub(crate) fn os(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Conf, Vec<String>> {
        Conf::parse(Path::new("rootwrap.conf"), text.as_bytes())
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_is_not_said_has_the_defaults_of_the_original() {
        let conf = parse("[DEFAULT]\nfilters_path=/a,/b, /c\n").unwrap();
        assert_eq!(
            conf,
            Conf {
                filters_path: vec!["/a".into(), "/b".into(), " /c".into()],
                exec_dirs: None,
                use_syslog: false,
                syslog_log_facility: 5,
                syslog_log_level: Level::Error,
                daemon_timeout: 600,
                rlimit_nofile: 1024,
                data_max: 2 << 30,
                mode: Mode::Compat,
            }
        );
        let path = conf.folders_of_executables(Some(OsStr::new("/x::/y")));
        assert_eq!(path, ["/x", "", "/y"]);
        assert_eq!(conf.folders_of_executables(None), Vec::<OsString>::new());
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
        assert_eq!((conf.syslog_log_level, conf.daemon_timeout), (Level::Warning, 10));
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
                "rootwrap.conf: there is no filters_path; write filters_path=/etc/…/rootwrap.d below \
                 [DEFAULT]",
                "rootwrap.conf:2: use_syslog cannot be \"perhaps\"; write True or False",
                "rootwrap.conf:3: daemon_timeout cannot be \"soon\"; write seconds as a whole number",
            ]
        );
    }
}
