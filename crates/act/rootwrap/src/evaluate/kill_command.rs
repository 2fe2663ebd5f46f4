// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process and the signal of a kill(1), and the match with a KillFilter. `crate::exec` sends the signal.

use super::{Evaluation, KillRequest, MismatchReason, ProcessIdentity};
use crate::host_facts::FileKind;
use crate::mode::Mode;
use crate::python_strings::{basename, dirname, int, is_absolute, join, os_string};
use crate::rootwrap_conf::split_path;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Directories in which the shell and Python look without `$PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// Signals by number, from 1.
pub(crate) const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// Other names of signals.
const SIGNAL_ALIASES: [(&str, i32); 3] = [("IOT", 6), ("CLD", 17), ("POLL", 29)];
/// The default signal of kill(1).
const TERM: i32 = 15;

/// Matches `kill [SIGNAL] PID`. The arguments of the rule are an executable and the allowed signals.
pub(super) fn matches(
    case: &Evaluation<'_>,
    arguments: &[String],
    words: &[&OsStr],
) -> Result<Option<KillRequest>, MismatchReason> {
    if words.first().is_none_or(|first| *first != "kill") {
        return Err(MismatchReason::OtherCommand);
    }
    let signals = arguments.get(1..).unwrap_or_default();
    let (option, target) = match words {
        [_, option, target] if signals.iter().any(|known| *option == known.as_str()) => {
            (Some(*option), target)
        }
        [_, target] if signals.is_empty() => (None, target),
        [_, _, _] | [_, _] => return Err(MismatchReason::Signal),
        _ => return Err(MismatchReason::ArgumentCount(if signals.is_empty() { 2 } else { 3 })),
    };
    let pid = target.to_str().and_then(int).ok_or(MismatchReason::NoProcess)?;
    match case.mode {
        Mode::Compat => compat(case, arguments, pid).map(|()| None),
        Mode::Strict => {
            let signal = option.map_or(Ok(TERM), parse_signal)?;
            let process = strict(case, arguments, target, pid)?;
            Ok(Some(KillRequest { process, signal }))
        }
    }
}

/// Returns the number of `-9`, `-KILL` or `-SIGKILL`.
fn parse_signal(option: &OsStr) -> Result<i32, MismatchReason> {
    let unknown = || MismatchReason::NoSignal(option.to_owned());
    let name = option.to_str().and_then(|option| option.strip_prefix('-')).ok_or_else(unknown)?;
    let name = name.to_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let of_number = (0..).take(SIGNALS.len() + 1).find(|number: &i32| number.to_string() == name);
    let of_name = (1..).zip(SIGNALS).find_map(|(number, known)| (known == name).then_some(number));
    let of_other =
        || SIGNAL_ALIASES.into_iter().find_map(|(known, number)| (known == name).then_some(number));
    of_number.or(of_name).or_else(of_other).ok_or_else(unknown)
}

fn compat(case: &Evaluation<'_>, arguments: &[String], pid: i64) -> Result<(), MismatchReason> {
    let program = process_program(case, pid)?;
    if program.is_empty() {
        return Err(MismatchReason::NoProcess);
    }
    let wanted = arguments.first().ok_or(MismatchReason::Aborts("names no executable"))?;
    check_program(case, wanted, &program)
}

/// Strict mode ignores the command line of the process, because the process can change it.
fn strict(
    case: &Evaluation<'_>,
    arguments: &[String],
    target: &OsStr,
    pid: i64,
) -> Result<ProcessIdentity, MismatchReason> {
    let plain =
        !target.as_bytes().starts_with(b"0") && target.as_bytes().iter().all(u8::is_ascii_digit);
    if !plain || pid > i64::from(i32::MAX) {
        return Err(MismatchReason::AmbiguousNumber);
    }
    let started = case.facts.start_of(pid).ok_or(MismatchReason::NoProcess)?;
    let program = case.facts.executable_of(pid).ok_or(MismatchReason::NoProcess)?;
    // The executable belongs to the process that started at that time.
    if case.facts.start_of(pid) != Some(started) {
        return Err(MismatchReason::NoProcess);
    }
    let wanted = arguments.first().ok_or(MismatchReason::Never)?;
    check_program(case, wanted, &strip_deleted_mark(program))?;
    Ok(ProcessIdentity { pid, started })
}

fn check_program(
    case: &Evaluation<'_>,
    wanted: &str,
    program: &OsStr,
) -> Result<(), MismatchReason> {
    let bytes = program.as_bytes();
    let is_wanted = if is_absolute(wanted.as_bytes()) {
        *program == *wanted
    } else {
        let path = case.facts.variable("PATH").unwrap_or_default();
        is_absolute(bytes)
            && basename(program) == wanted
            && split_path(path).any(|folder| folder.as_bytes() == dirname(bytes))
    };
    if is_wanted { Ok(()) } else { Err(MismatchReason::OtherProcess(program.to_owned())) }
}

/// Returns the program of a process as oslo.rootwrap determines it.
fn process_program(case: &Evaluation<'_>, pid: i64) -> Result<OsString, MismatchReason> {
    let program =
        strip_deleted_mark(case.facts.executable_of(pid).ok_or(MismatchReason::NoProcess)?);
    let is_file = |path: &OsStr| case.facts.status(Path::new(path)).map(|found| found.kind);
    if is_file(&program) == Some(FileKind::File) {
        return Ok(program);
    }
    // A replaced executable may have another name.
    let word = case.facts.first_argument_of(pid).ok_or(MismatchReason::NoProcess)?;
    if word.to_str().is_none() {
        return Err(MismatchReason::Aborts("the command line of the process is not UTF-8"));
    }
    let word = find_in_path(case, &word).unwrap_or(word);
    Ok(if is_file(&word) == Some(FileKind::File) { word } else { program })
}

/// Removes the mark of the kernel for deleted files.
fn strip_deleted_mark(program: OsString) -> OsString {
    let mut bytes = program.into_vec();
    if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
        bytes.truncate(end);
    }
    if bytes.ends_with(b" (deleted)") {
        bytes.truncate(bytes.len() - b" (deleted)".len());
    }
    os_string(bytes)
}

/// Python's `shutil.which`.
fn find_in_path(case: &Evaluation<'_>, name: &OsStr) -> Option<OsString> {
    let is_program = |path: &OsStr| {
        let kind = case.facts.status(Path::new(path)).map(|found| found.kind);
        kind.is_some_and(|kind| kind != FileKind::Directory)
            && case.facts.may_execute(Path::new(path))
    };
    if !dirname(name.as_bytes()).is_empty() {
        return is_program(name).then(|| name.to_owned());
    }
    let path = case.facts.variable("PATH").unwrap_or(OsStr::new(DEFAULT_PATH));
    if path.is_empty() {
        return None;
    }
    split_path(path)
        .map(|folder| os_string(join(folder.as_bytes(), name.as_bytes())))
        .find(|path| is_program(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_named_as_kill_has_them() {
        let of = |option: &str| parse_signal(OsStr::new(option)).ok();
        for name in ["-9", "-KILL", "-SIGKILL", "-kill"] {
            assert_eq!(of(name), Some(9), "{name}");
        }
        assert_eq!((of("-0"), of("-31"), of("-SYS")), (Some(0), Some(31), Some(31)));
        assert_eq!((of("-POLL"), of("-SIGIOT"), of("-CLD")), (of("-IO"), of("-ABRT"), of("-CHLD")));
        for name in ["-65", "-34", "-RTMIN", "-32", "-", "-NO", "9", "--", "-l", "--9", "-09"] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
