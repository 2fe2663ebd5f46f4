// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shells that the users of a domain may have, and the lines of shells(5). `locals` reads the file.

use roster_config::{AllowedShells, ShellRules};
use std::collections::HashSet;

/// The shell that programs start for an empty field.
const DEFAULT_SHELL: &[u8] = b"/bin/sh";
/// Shells that end at once. They stay, because another shell would let their users in.
const NO_LOGIN: [&[u8]; 4] =
    [b"/bin/false", b"/sbin/nologin", b"/usr/bin/false", b"/usr/sbin/nologin"];
/// The shells of getusershell(3) without the file.
const SHELLS_WITHOUT_FILE: [&[u8]; 2] = [b"/bin/sh", b"/bin/csh"];

/// Returns the shell that replaces one that users may not have. `None`: they may have it. `etc_shells` are the shells of
/// shells(5).
pub(crate) fn replacement<'r>(
    rules: &'r ShellRules,
    shell: &[u8],
    etc_shells: &HashSet<Vec<u8>>,
) -> Option<&'r [u8]> {
    if NO_LOGIN.contains(&shell) {
        return None;
    }
    let started = if shell.is_empty() { DEFAULT_SHELL } else { shell };
    let is_allowed = match &rules.allowed {
        AllowedShells::Any => true,
        AllowedShells::EtcShells => etc_shells.contains(started),
        AllowedShells::Listed(shells) => shells.iter().any(|one| one.as_bytes() == started),
    };
    let is_refused = rules.refused.iter().any(|one| is_same_path(one.as_bytes(), started));
    match (is_refused, is_allowed) {
        (true, _) => Some(rules.replacement.as_bytes()),
        (false, false) => Some(rules.unlisted.as_bytes()),
        (false, true) => None,
    }
}

/// Returns whether two paths have the same steps. Slashes and dots that change nothing do not count.
fn is_same_path(one: &[u8], other: &[u8]) -> bool {
    let steps = |path| {
        <[u8]>::split(path, |&byte| byte == b'/').filter(|step| !matches!(*step, b"" | b"."))
    };
    steps(one).eq(steps(other))
}

/// Returns the shells of a text in the form of shells(5), as getusershell(3) reads it.
pub(crate) fn parse(text: &[u8]) -> HashSet<Vec<u8>> {
    text.split(|&byte| byte == b'\n').filter_map(shell_of_line).map(<[u8]>::to_vec).collect()
}

/// Returns the shells that count without the file.
pub(crate) fn without_file() -> HashSet<Vec<u8>> {
    SHELLS_WITHOUT_FILE.map(<[u8]>::to_vec).into()
}

/// Returns the path in a line: from its first slash to a space or comment.
fn shell_of_line(line: &[u8]) -> Option<&[u8]> {
    let line = line.split(|&byte| byte == b'#').next()?;
    let start = line.iter().position(|&byte| byte == b'/')?;
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
    line[start..].split(is_end).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(rules: &ShellRules, shell: &str, etc_shells: &[u8]) -> bool {
        let found = replacement(rules, shell.as_bytes(), &parse(etc_shells));
        assert!(found.is_none_or(|shell| shell == b"/no"), "{shell}");
        found.is_some()
    }

    #[test]
    fn shell_rules_replace_refused_and_unlisted() {
        let rules = |allowed, refused: &[&str]| ShellRules {
            allowed,
            refused: refused.iter().map(ToString::to_string).collect(),
            replacement: "/no".to_owned(),
            unlisted: "/no".to_owned(),
        };
        let file = b"# /etc/shells\n/bin/sh\n/bin/bash\n/bin/csh\n";
        let listed = || AllowedShells::Listed(vec!["/bin/zsh".to_owned(), "/bin/sh".to_owned()]);
        for (rules, shell, expected) in [
            (ShellRules::default(), "/any", false),
            (rules(AllowedShells::EtcShells, &[]), "/bin/bash", false),
            (rules(AllowedShells::EtcShells, &[]), "/bin/zsh", true),
            (rules(AllowedShells::EtcShells, &[]), "/bin//bash", true),
            (rules(AllowedShells::EtcShells, &["/bin/csh"]), "/bin/csh", true),
            (rules(AllowedShells::EtcShells, &[]), "", false),
            (rules(listed(), &[]), "/bin/zsh", false),
            (rules(listed(), &[]), "/bin/bash", true),
            (rules(listed(), &["/bin/sh"]), "", true),
            (rules(AllowedShells::Listed(vec![]), &[]), "/bin/sh", true),
            (rules(AllowedShells::Listed(vec![]), &[]), "", true),
            (rules(AllowedShells::Any, &["/bin/csh"]), "/bin/csh", true),
            (rules(AllowedShells::Any, &["/bin/false"]), "/bin/false", false),
            (rules(listed(), &[]), "/usr/sbin/nologin", false),
            (rules(listed(), &[]), "/usr/bin/nologin", true),
            (rules(AllowedShells::Any, &["/bin/csh"]), "//bin/./csh", true),
            (rules(AllowedShells::Any, &["/bin/csh"]), "/bin/cshx", false),
            (rules(AllowedShells::Any, &["/bin/csh"]), "/bin", false),
        ] {
            assert_eq!(replaced(&rules, shell, file), expected, "{rules:?} {shell:?}");
        }
    }

    #[test]
    fn shell_refused_differs_from_unlisted() {
        let rules = ShellRules {
            allowed: AllowedShells::EtcShells,
            refused: vec!["/bin/csh".to_owned(), "/bin/ksh".to_owned()],
            replacement: "/refused".to_owned(),
            unlisted: "/unlisted".to_owned(),
        };
        let file = parse(b"/bin/sh\n/bin/csh\n");
        for (shell, served) in [
            ("/bin/sh", None),
            ("/bin/csh", Some("/refused")),
            ("/bin/ksh", Some("/refused")),
            ("/bin/zsh", Some("/unlisted")),
            ("/bin/false", None),
        ] {
            let found = replacement(&rules, shell.as_bytes(), &file);
            assert_eq!(found, served.map(str::as_bytes), "{shell}");
        }
    }

    #[test]
    fn shells_file_is_read_as_getusershell() {
        let shells =
            parse(b"#/no\n/bin/sh\n  /bin/ksh # x\nx/bin/zsh\t/two\n/a#b\n\nrelative\n/last");
        let mut shells: Vec<_> = shells.iter().map(|shell| &**shell).collect();
        shells.sort_unstable();
        assert_eq!(shells, [&b"/a"[..], b"/bin/ksh", b"/bin/sh", b"/bin/zsh", b"/last"]);
        assert!(parse(b"").is_empty());
        assert_eq!(without_file().len(), 2);
    }
}
