// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interpreters of scripts, as the kernel selects them by the `#!` line. They decide what a script does, so they are
//! checked as the executable is. `path_trust` checks one path.

use crate::host_facts::{FileKind, HostFacts};
use crate::path_trust::distrust;
use crate::python_strings::{basename, is_absolute, join, os_string};
use crate::shell_quoted::ShellQuoted;
use roster_messages::Message;
use roster_messages::table::commands;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Number of bytes that the kernel reads (`BINPRM_BUF_SIZE`).
const START_BYTES: usize = 256;
/// The kernel follows five interpreters that are scripts.
const LEVELS_MAX: usize = 4;

/// The row of a reason, and the reason.
pub(crate) type Distrust = (&'static Message, String);

/// Returns the reason for which strict mode and roster-exec do not execute a file: the file itself, or an interpreter
/// of it. env(1) looks for programs in `path`.
pub(crate) fn distrust_of_program(
    facts: &dyn HostFacts,
    file: &OsStr,
    path: &dyn Fn() -> Vec<OsString>,
) -> Option<Distrust> {
    let executable =
        distrust_of_executable(facts, file).map(|why| (&commands::EXECUTABLE_UNTRUSTED, why));
    executable.or_else(|| {
        let why = distrust_of_interpreters(facts, file, path)?;
        Some((&commands::INTERPRETER_UNTRUSTED, why))
    })
}

/// Returns the reason for which an interpreter of a script is not trusted. `None`: all are trusted, or the file has no
/// `#!`. env(1) looks for programs in `path`.
pub(crate) fn distrust_of_interpreters(
    facts: &dyn HostFacts,
    file: &OsStr,
    path: &dyn Fn() -> Vec<OsString>,
) -> Option<String> {
    InterpreterChain { facts, path }.follow(file, 0).err()
}

struct InterpreterChain<'c> {
    facts: &'c dyn HostFacts,
    path: &'c dyn Fn() -> Vec<OsString>,
}

impl InterpreterChain<'_> {
    fn follow(&self, file: &OsStr, level: usize) -> Result<(), String> {
        let mut start = [0; START_BYTES];
        self.facts.first_bytes(Path::new(file), &mut start);
        let Some(line) = ShebangLine::parse(&start) else { return Ok(()) };
        let wrong = |why: String| format!("{} is a script, {why}", file.display());
        if level == LEVELS_MAX {
            return Err(wrong(format!(
                "with more than {LEVELS_MAX} interpreters that are scripts"
            )));
        }
        let interpreter = OsStr::from_bytes(line.interpreter);
        self.check_trusted(interpreter)
            .map_err(|why| wrong(format!("and the interpreter is not trusted: {why}")))?;
        self.follow(interpreter, level + 1)?;
        let real = crate::realpath::realpath(self.facts, interpreter).path;
        if basename(interpreter) == "env" || basename(OsStr::from_bytes(&real)) == "env" {
            let program = name_for_env(line.argument).ok_or_else(|| {
                wrong("and the program that env executes for it is unknown".into())
            })?;
            self.follow_env(OsStr::from_bytes(program), level).map_err(wrong)?;
        }
        Ok(())
    }

    /// Checks each program of the name, because a user without access to the first one gets the next.
    fn follow_env(&self, name: &OsStr, level: usize) -> Result<(), String> {
        let candidates: Vec<OsString> = match name.as_bytes().contains(&b'/') {
            true => vec![name.to_owned()],
            false => {
                let folders = (self.path)();
                let in_folder =
                    |folder: &OsString| os_string(join(folder.as_bytes(), name.as_bytes()));
                let candidates = folders.iter().map(in_folder);
                candidates.filter(|path| self.facts.may_execute(Path::new(path))).collect()
            }
        };
        if candidates.is_empty() {
            return Err(format!("and env does not find {}", name.display()));
        }
        for candidate in &candidates {
            self.check_trusted(candidate)
                .map_err(|why| format!("and the interpreter is not trusted: {why}"))?;
            self.follow(candidate, level + 1)?;
        }
        Ok(())
    }

    fn check_trusted(&self, interpreter: &OsStr) -> Result<(), String> {
        distrust_of_executable(self.facts, interpreter).map_or(Ok(()), Err)
    }
}

/// Returns the reason for which a file must not be executed with rights that its caller lacks.
pub(crate) fn distrust_of_executable(facts: &dyn HostFacts, path: &OsStr) -> Option<String> {
    if !is_absolute(path.as_bytes()) {
        return Some(format!("{} is relative", path.display()));
    }
    if facts.status(Path::new(path)).is_none_or(|status| status.kind != FileKind::File) {
        // The path may end in a carriage return.
        return Some(format!("{} is not a regular file", ShellQuoted(&path.to_owned())));
    }
    distrust(facts, path)
}

/// The first line of a script, as the kernel reads it.
#[derive(Debug, PartialEq, Eq)]
struct ShebangLine<'l> {
    interpreter: &'l [u8],
    /// The argument is one word for the kernel, even with blanks.
    argument: &'l [u8],
}

impl<'l> ShebangLine<'l> {
    /// Parses the start of a file. `None`: the kernel does not treat it as a script, or does not execute it.
    fn parse(start: &'l [u8; START_BYTES]) -> Option<Self> {
        let whole = start.strip_prefix(b"#!")?;
        let ends_name = |byte: &u8| matches!(byte, b' ' | b'\t' | 0);
        let end = whole.iter().position(|&byte| byte == b'\n');
        // The kernel does not execute a path that may continue behind these bytes.
        if end.is_none() && !trim_blanks(whole).iter().any(ends_name) {
            return None;
        }
        // Without a newline the last byte only ends the path.
        let line = trim_blanks(&whole[..end.unwrap_or(whole.len() - 1)]);
        let name_end = line.iter().position(ends_name);
        let (interpreter, rest) = line.split_at(name_end.unwrap_or(line.len()));
        // A NUL ends each of them.
        let rest = if rest.starts_with(b"\0") { &[] } else { trim_blanks(rest) };
        let argument = rest.split(|&byte| byte == 0).next().unwrap_or_default();
        (!interpreter.is_empty()).then_some(Self { interpreter, argument })
    }
}

fn trim_blanks(text: &[u8]) -> &[u8] {
    let is_other = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = text.iter().position(is_other).unwrap_or(text.len());
    let end = text.iter().rposition(is_other).map_or(start, |last| last + 1);
    &text[start..end]
}

/// Returns the program that env(1) executes for the argument of a `#!` line. The argument is a name, or `-S` with
/// settings, a name and arguments, without quotes and options. `None`: the program is unknown.
fn name_for_env(argument: &[u8]) -> Option<&[u8]> {
    let Some(split) = argument.strip_prefix(b"-S") else {
        let is_plain = !argument.is_empty() && argument[0] != b'-' && !argument.contains(&b'=');
        return is_plain.then_some(argument);
    };
    if split.iter().any(|byte| b"'\"\\$#".contains(byte)) {
        return None;
    }
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
    let mut words = split.split(is_blank).filter(|word| !word.is_empty());
    let name = words.find(|word| !word.contains(&b'=') || word.starts_with(b"PATH="))?;
    let is_env = basename(OsStr::from_bytes(name)) == "env";
    (!name.starts_with(b"-") && !name.starts_with(b"PATH=") && !is_env).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_facts::LocalHost;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn parsed(text: &str) -> Option<(String, String)> {
        let mut start = [0; START_BYTES];
        let count = text.len().min(START_BYTES);
        start[..count].copy_from_slice(&text.as_bytes()[..count]);
        let shown = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        ShebangLine::parse(&start).map(|line| (shown(line.interpreter), shown(line.argument)))
    }

    #[test]
    fn interpreter_line_is_read_as_by_kernel() {
        for (text, interpreter, argument) in [
            ("#!/bin/sh\n", "/bin/sh", ""),
            ("#! \t/bin/sh \t\n", "/bin/sh", ""),
            ("#!/bin/sh -e -u \nx", "/bin/sh", "-e -u"),
            ("#!/bin/sh", "/bin/sh", ""),
            ("#!/bin/sh\0x\n", "/bin/sh", ""),
            ("#!/bin/sh a\0x\n", "/bin/sh", "a"),
            ("#!sh\r\n", "sh\r", ""),
        ] {
            assert_eq!(parsed(text), Some((interpreter.into(), argument.into())), "{text:?}");
        }
        for text in ["", "#", "# !/bin/sh\n", "#!\n", "#! \n", "\x7fELF", " #!/bin/sh\n"] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
        // The kernel executes no path that may continue behind its buffer.
        let long = format!("#!/{}", "x".repeat(START_BYTES));
        assert_eq!(parsed(&long), None);
        let argument = format!("#!/bin/sh {}", "x".repeat(START_BYTES));
        assert_eq!(parsed(&argument).unwrap().0, "/bin/sh");
        for (count, end) in [(252, "\n"), (252, "")] {
            let longest = format!("#!/{}{end}", "x".repeat(count));
            assert_eq!(parsed(&longest).unwrap().0.len(), count + 1);
        }
    }

    #[test]
    fn env_program_is_found_or_unknown() {
        for (argument, name) in [
            ("python3", Some("python3")),
            ("/x/python3", Some("/x/python3")),
            ("a b", Some("a b")),
            ("-S python3 -u", Some("python3")),
            ("-S A=1 B=2 python3", Some("python3")),
            ("-Spython3", Some("python3")),
            ("", None),
            ("-i python3", None),
            ("A=1", None),
            ("-S", None),
            ("-S -i python3", None),
            ("-S PATH=/tmp python3", None),
            ("-S \"python3\"", None),
            ("-S py${X}", None),
            ("-S env python3", None),
            ("-S /usr/bin/env python3", None),
        ] {
            assert_eq!(name_for_env(argument.as_bytes()), name.map(str::as_bytes), "{argument}");
        }
    }

    #[test]
    fn chain_of_interpreters_is_judged() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let script = |name: &str, text: &str, mode: u32| {
            let path = root.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let here = root.display();
        script("open", "", 0o777);
        script("good", "#!/bin/sh\n", 0o755);
        symlink("/usr/bin/env", root.join("by-link")).unwrap();
        let path = || vec![root.clone().into_os_string()];
        let host = LocalHost::with_environment(Vec::new());
        let why = |file: &Path| distrust_of_interpreters(&host, file.as_os_str(), &path);
        for text in [
            "\x7fELF",
            "no line\n",
            "#!/bin/sh -e\n",
            "#!/usr/bin/env good\n",
            &format!("#!{here}/good\n"),
            &format!("#!{here}/by-link good\n"),
        ] {
            assert_eq!(why(&script("script", text, 0o755)), None, "{text}");
        }
        for text in [
            &format!("#!{here}/open\n"),
            "#!/usr/bin/env open\n",
            "#!/usr/bin/env no-such\n",
            "#!/usr/bin/env -i good\n",
            &format!("#!{here}/by-link open\n"),
            &format!("#!/usr/bin/env {here}/open\n"),
            "#!open\n",
            "#!/no/such\n",
            "#!/usr\n",
        ] {
            assert!(why(&script("script", text, 0o755)).is_some(), "{text}");
        }
        script("script", &format!("#!{here}/open\n"), 0o755);
        for (name, expected) in [
            ("good", None),
            ("open", Some(&commands::EXECUTABLE_UNTRUSTED)),
            ("script", Some(&commands::INTERPRETER_UNTRUSTED)),
        ] {
            let told = distrust_of_program(&host, root.join(name).as_os_str(), &path);
            assert_eq!(told.map(|(message, _)| message), expected, "{name}");
        }
        script("level0", &format!("#!{here}/open\n"), 0o755);
        script("level1", &format!("#!{here}/level0\n"), 0o755);
        let told = why(&script("script", &format!("#!{here}/level1\n"), 0o755)).unwrap();
        let told_of_line_end = why(&script("script", "#!/bin/sh\r\n", 0o755)).unwrap();
        assert!(told_of_line_end.contains(r"$'/bin/sh\x0d' is not a"), "{told_of_line_end}");
        let expected = format!(
            "{here}/level0 is a script, and the interpreter is not trusted: {here}/open is writable by all"
        );
        assert_eq!(told, expected);
        script("level0", "#!/bin/sh\n", 0o755);
        for level in 1..5 {
            script(&format!("level{level}"), &format!("#!{here}/level{}\n", level - 1), 0o755);
        }
        assert_eq!(why(&root.join("level3")), None);
        assert!(why(&root.join("level4")).unwrap().contains("more than 4 interpreters"));
    }
}
