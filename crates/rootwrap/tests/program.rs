//! `roster-rootwrap` as people call it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A rootwrap.conf that leads to one filter file.
fn lay_out(folder: &Path, filters: &str) -> PathBuf {
    let rules = folder.join("rules");
    fs::create_dir(&rules).unwrap();
    fs::write(rules.join("a.filters"), filters).unwrap();
    let conf = folder.join("rootwrap.conf");
    let text = format!("[DEFAULT]\nfilters_path={}\nexec_dirs=/usr/bin,/bin\n", rules.display());
    fs::write(&conf, text).unwrap();
    for (path, mode) in [(&rules, 0o755), (&rules.join("a.filters"), 0o644), (&conf, 0o644)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    conf
}

/// Exit code and output, the folder's name left out.
fn run(folder: &Path, args: &[&str]) -> (i32, String) {
    let program = env!("CARGO_BIN_EXE_roster-rootwrap");
    let output = Command::new(program).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap().replace(&format!("{}/", folder.display()), "");
    (output.status.code().unwrap(), text)
}

const RULES: &str = "[Filters]\nls: RegExpFilter, ls, root, ls, -l|-a\n\
                     x: NoFilter, x\nid: CommandFilter, id, nobody\n";

#[test]
fn check_lists_mistakes_and_what_strict_reads_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let conf = lay_out(folder.path(), RULES);
    let (code, text) = run(folder.path(), &["check", conf.to_str().unwrap()]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((code, lines.len()), (0, 3), "{text}");
    assert!(
        lines[0].starts_with("rules/a.filters:3: warning: x: \"NoFilter\" is no class of filters")
    );
    assert_eq!(
        lines[1],
        "rules/a.filters:2: ls (RegExpFilter): `ls '-l and more'` runs `/usr/bin/ls '-l and more'` as \
         root in compat mode, and is refused in strict mode"
    );
    assert_eq!(
        lines[2],
        "rootwrap.conf: errors: 0, warnings: 1, rules that strict mode reads otherwise: 1"
    );
}

#[test]
fn check_fails_where_nothing_can_be_judged_and_speaks_json() {
    let folder = tempfile::tempdir().unwrap();
    let conf = lay_out(folder.path(), "[Filters]\nls: CommandFilter, ls\n");
    let (code, text) = run(folder.path(), &["check", "--json", conf.to_str().unwrap()]);
    assert_eq!(code, 1);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["ok"], &report["problems"][0]["line"]), (&false.into(), &2.into()));
    assert_eq!(report["problems"][0]["severity"], "error");
}

#[test]
fn explain_names_the_rule_and_has_the_exit_code_of_the_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let conf = lay_out(folder.path(), RULES);
    let conf = conf.to_str().unwrap();
    let (code, text) = run(folder.path(), &["explain", conf, "--", "id", "-u"]);
    assert_eq!(code, 0);
    assert!(
        text.ends_with("(CommandFilter): lets it run\ncompat: runs as nobody: /usr/bin/id -u\n")
    );
    let explained =
        |mode| run(folder.path(), &["explain", "--mode", mode, conf, "--", "ls", "-lx"]);
    assert_eq!((explained("compat").0, explained("strict").0), (0, 99));
    assert!(
        explained("strict").1.contains("a.filters:2: ls (RegExpFilter): word 2 does not match")
    );
    assert_eq!(run(folder.path(), &["explain", "/no/such.conf", "--", "ls"]).0, 97);
}
